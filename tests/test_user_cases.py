"""Faults that users of these operators met, as small cases: layouts, sentinels, windows, dtypes, empty ranks, views.

Numbers were worked out by hand in a plain loop.
"""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
import oracle
import pytest
from harness import BF16, F16, F32, FLOATS, I32, I64, buffer, idx, tensor

import aclnn_py
from aclnn_py import errors

V2_GRAD, EP_GRAD = "aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"
NAN, INF = float("nan"), float("inf")
ECH = [[[10], [20]], [[30], [40]]]  # E = C = 2, H = 1
DROPPED = [0, 3, -1, 2]
FLOAT_IDS = [aclnn_py.dtypes.name(d) for d in FLOATS]


def grad_v2(backend: Any, grad: Any, row_idx: Any, x: Any, scales: Any, dtype: np.dtype = F32, **more: Any) -> Any:
    floats = [None if v is None else tensor(v, dtype) for v in (grad, x, scales)]
    return aclnn_py.moe_finalize_routing_v2_grad(floats[0], idx(row_idx), floats[1], floats[2], backend=backend, **more)


# -- index layout ------------------------------------------------------------------------------------------------


def test_column_order_index_of_the_forward_is_converted_for_the_gradient(backend: Any) -> None:
    x, scales, grad = [[10], [20], [30], [40]], [[0.5, 0.25], [2, 4]], [[1], [10]]
    columns = idx([0, 2, 1, 3])
    out = aclnn_py.moe_finalize_routing_v2(tensor(x), columns, scales=tensor(scales), drop_pad_mode=0, backend=backend)
    assert out.tolist() == [[10], [220]]
    rows = aclnn_py.row_major_row_idx(columns, 2)
    assert rows.tolist() == [0, 1, 2, 3]
    right_x, right_scales = grad_v2(backend, grad, rows, x, scales)
    assert right_x.tolist() == [[0.5], [0.25], [20], [40]]
    assert right_scales.tolist() == [[10, 20], [300, 400]]
    wrong_x, wrong_scales = grad_v2(backend, grad, columns, x, scales)
    assert wrong_x.tolist() == [[0.5], [20], [0.25], [40]]
    assert wrong_scales.tolist() == [[10, 30], [200, 400]]
    # the adjoint identity tells them apart
    assert float(np.sum(grad * out)) == float(np.sum(x * right_x)) == 2210
    assert float(np.sum(x * wrong_x)) == 2012.5
    assert aclnn_py.row_major_row_idx(idx(range(6)), 3).tolist() == [0, 2, 4, 1, 3, 5]


def test_sorted_indices_are_the_inverse_of_an_argsort(backend: Any) -> None:
    experts = [1, 0, 1, 0]
    argsort = np.argsort(experts, kind="stable")
    _, where, _ = aclnn_py.moe_token_permute_with_ep(tensor(np.zeros((4, 1))), idx(experts), backend=backend)
    assert argsort.tolist() == [1, 3, 0, 2]
    assert where.tolist() == np.argsort(argsort).tolist() == [2, 0, 3, 1]
    rows = tensor([[10], [20], [30]])
    forward = aclnn_py.moe_token_unpermute_with_ep
    assert forward(rows, idx([2, 0, 1]), backend=backend).tolist() == [[30], [10], [20]]
    assert forward(rows, idx([1, 2, 0]), backend=backend).tolist() == [[20], [30], [10]]
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
        tensor([[1, 2], [3, 4], [5, 6]]), idx([2, 0, 1]), backend=backend
    )
    assert grad.tolist() == [[3, 4], [5, 6], [1, 2]]
    assert probs_grad is None


# -- dropped, repeated and unused rows --------------------------------------------------------------------------


@pytest.mark.parametrize("unused", [20, NAN, INF])
def test_minus_one_is_dropped_and_never_read_as_another_row(backend: Any, unused: float) -> None:
    x = tensor(ECH)
    x[0, 1] = unused
    out = aclnn_py.moe_finalize_routing_v2(
        x, idx(DROPPED), scales=tensor([[0.5, 1], [2, 3]]), drop_pad_mode=3, backend=backend
    )
    assert out.tolist() == [[45], [90]]


def test_a_dropped_slot_keeps_its_bias_in_the_gradient_of_its_scale(backend: Any) -> None:
    common = dict(drop_pad_mode=1, expert_num=2, expert_capacity=2)
    args = ([[1], [10]], DROPPED, ECH, [[0.5, 1], [2, 3]])
    grad_x, plain = grad_v2(backend, *args, **common)
    assert grad_x.reshape(-1).tolist() == [0.5, 0, 30, 1]
    assert plain.tolist() == [[10, 40], [0, 300]]
    extra = dict(expert_idx=idx([[0, 1], [0, 1]]), bias=tensor([[1], [100]]))
    _, biased = grad_v2(backend, *args, **common, **extra)
    assert biased.tolist() == [[11, 140], [10, 1300]]
    forward = aclnn_py.moe_finalize_routing_v2(
        tensor(ECH), idx(DROPPED), scales=tensor([[0.5, 1], [2, 3]]), drop_pad_mode=3, backend=backend, **extra
    )
    assert forward.tolist()[1] == [390], "the forward drops the slot with its bias"


def test_all_slots_dropped_gives_zeros(backend: Any) -> None:
    grad_x, grad_scales = grad_v2(
        backend, [[1], [10]], [-1] * 4, ECH, np.ones((2, 2)), drop_pad_mode=1, expert_num=2, expert_capacity=2
    )
    assert grad_x.tolist() == [[[0], [0]], [[0], [0]]]
    assert grad_scales.tolist() == [[0, 0], [0, 0]]


def test_duplicate_indices_never_accumulate(backend: Any) -> None:
    grad_x, grad_scales = grad_v2(
        backend, [[1, 2], [3, 4]], [0, 0, 1, 1], [[1, 2], [3, 4], [5, 6], [7, 8]], [[0.5, 1], [2, 3]]
    )
    assert grad_scales.tolist() == [[5, 5], [25, 25]]
    assert grad_x[0].tolist() in ([0.5, 1], [1, 2])
    assert grad_x[1].tolist() in ([6, 8], [9, 12])
    assert grad_x[2:].tolist() == [[0, 0], [0, 0]]
    if backend.name == "reference":  # on several cores it is a race
        assert grad_x[:2].tolist() == [[1, 2], [9, 12]], "the last writer wins"


def test_nan_behind_a_zero_weight_is_hidden_forwards_only(backend: Any) -> None:
    permuted, probs = tensor([[NAN, NAN], [1, 2]]), tensor([[0, 1]])
    common = dict(range=(0, 2), backend=backend)
    out = aclnn_py.moe_token_unpermute_with_ep(permuted, idx([0, 1]), probs, **common)
    assert out.tolist() == [[1, 2]]
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
        tensor([[1, 1]]), idx([0, 1]), permuted, probs, **common
    )
    assert grad.tolist() == [[0, 0], [1, 1]]
    assert np.isnan(probs_grad[0, 0])
    assert probs_grad[0, 1] == 3


def test_no_row_of_the_padded_gradient_is_left_uninitialised(backend: Any) -> None:
    out = (buffer((3, 2, 2), fill=777), buffer((2, 2), fill=777))
    grad_x, grad_scales = grad_v2(
        backend,
        [[1, 2], [3, 4]],
        [0, 5, -1, 2],
        np.arange(1, 13).reshape(3, 2, 2),
        [[0.5, 1], [2, 3]],
        drop_pad_mode=1,
        expert_num=3,
        expert_capacity=2,
        out=out,
    )
    assert grad_x is out[0]
    assert grad_x.tolist() == [[[0.5, 1], [0, 0]], [[9, 12], [0, 0]], [[0, 0], [1, 2]]]
    assert grad_scales.tolist() == [[5, 35], [0, 39]]


def test_rows_that_a_kernel_leaves_are_zero_unless_the_caller_brings_the_buffer(backend: Any) -> None:
    args = (tensor([[1, 2], [3, 4]]), idx([0, 1, 2, 3]), tensor(np.ones((4, 2))), tensor(np.ones((2, 2))))
    grad, _ = aclnn_py.moe_token_unpermute_with_ep_grad(*args, range=(0, 2), backend=backend)
    assert grad.tolist() == [[1, 2], [1, 2], [0, 0], [0, 0]]
    mine = buffer((4, 2), fill=777)
    grad, _ = aclnn_py.moe_token_unpermute_with_ep_grad(*args, range=(0, 2), out=(mine, None), backend=backend)
    assert grad is mine
    assert mine.tolist() == [[1, 2], [1, 2], [777, 777], [777, 777]]
    grad_x, _ = grad_v2(backend, [[1, 2]], [0, 5], np.ones((2, 2)), [[1, 1]], out=(mine[:2], None))
    assert grad_x.tolist() == [[1, 2], [1, 2]], "row 1 keeps what it held"


# -- expert-parallel windows -------------------------------------------------------------------------------------

WINDOW_PROBS, WINDOW_GRAD = [[0.5, 0.25], [1, 2], [4, 8]], [[1, 1], [10, 1], [100, 1]]
WINDOW_ROWS = [[1, 2], [3, 4], [5, 6], [7, 8]]


@pytest.mark.parametrize("rows", [4, 6], ids=["own-rows", "all-rows"])
@pytest.mark.parametrize("window", [(1, 5), [1, 5], (-5, -1), (-5, 5), (1, -1)], ids=str)
def test_the_window_shifts_rows_by_its_start(backend: Any, rows: int, window: Any) -> None:
    permuted = np.full((6, 2), 99.0)
    permuted[:4] = WINDOW_ROWS
    args = (tensor(permuted[:rows]), idx([0, 3, 1, 4, 2, 5]))
    common = dict(range=window, backend=backend)
    out = aclnn_py.moe_token_unpermute_with_ep(*args, tensor(WINDOW_PROBS), **common)
    assert out.tolist() == [[1.25, 1.5], [15, 18], [12, 16]]
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
        tensor(WINDOW_GRAD), args[1], args[0], tensor(WINDOW_PROBS), **common
    )
    assert grad.tolist() == [[10, 1], [400, 4], [0.25, 0.25], [20, 2], [0, 0], [0, 0]][:rows]
    assert probs_grad.tolist() == [[0, 11], [12, 78], [304, 0]]


@pytest.mark.parametrize("window", [None, (-1, -1), (0, 3), (0, 99), (-3, 3), (-99, 99)], ids=str)
def test_an_omitted_window_is_the_whole_range(backend: Any, window: Any) -> None:
    ones = tensor(np.ones((3, 2)))
    common = dict(range=window, backend=backend)
    args = (idx([0, 1, 2]), ones, tensor(np.ones((1, 3))))
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(tensor([[1, 1]]), *args, **common)
    assert grad.tolist() == [[1, 1]] * 3
    assert probs_grad.tolist() == [[2, 2, 2]]
    out = aclnn_py.moe_token_unpermute_with_ep(ones, args[0], args[2], **common)
    assert out.tolist() == [[3, 3]]
    rows, where, probs = aclnn_py.moe_token_permute_with_ep(tensor([[1, 1]]), idx([[0, 1, 2]]), args[2], **common)
    assert rows.tolist() == [[1, 1]] * 3
    assert where.tolist() == [0, 1, 2]
    assert probs.tolist() == [1, 1, 1]
    token_grad, back = aclnn_py.moe_token_permute_with_ep_grad(ones, where, probs, num_topk=3, **common)
    assert token_grad.tolist() == [[3, 3]]
    assert back.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("window", [(3, 1), (-1, -2), (2, -3)], ids=str)
def test_a_window_that_ends_before_it_starts_is_refused(backend: Any, window: Any) -> None:
    with pytest.raises(errors.TilingError, match="range"):
        aclnn_py.moe_token_unpermute_with_ep(tensor(np.ones((4, 2))), idx(range(4)), range=window, backend=backend)


@pytest.mark.parametrize("window", [(1,), (0, 1, 2), ()], ids=str)
def test_a_window_needs_two_numbers(backend: Any, window: Any) -> None:
    with pytest.raises(errors.TilingError, match="range"):
        aclnn_py.moe_token_unpermute_with_ep_grad(tensor(np.ones((4, 2))), idx(range(4)), range=window, backend=backend)


# -- dtypes and numerics -----------------------------------------------------------------------------------------


def test_the_probs_gradient_has_the_dtype_of_probs(backend: Any) -> None:
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
        tensor([[1, 3]], BF16), idx([0]), tensor([[1.5, 0.125]], BF16), tensor([[0.3]]), backend=backend
    )
    assert grad.dtype == BF16
    assert grad.astype(F32).tolist() == [[0.30078125, 0.8984375]]
    assert probs_grad.dtype == F32
    assert probs_grad.tolist() == [[1.875]]


@pytest.mark.parametrize("probs", FLOATS, ids=FLOAT_IDS)
@pytest.mark.parametrize("tokens", FLOATS, ids=FLOAT_IDS)
def test_every_pair_of_token_and_probs_dtypes(backend: Any, tokens: np.dtype, probs: np.dtype) -> None:
    args = (idx([1, 0]), tensor([[1, 2], [3, 4]], tokens), tensor([[2, 0.5]], probs))
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(tensor([[1, 2]], tokens), *args, backend=backend)
    assert (grad.dtype, probs_grad.dtype) == (tokens, probs)
    assert grad.astype(F32).tolist() == [[0.5, 1], [2, 4]]
    assert probs_grad.astype(F32).tolist() == [[11, 5]]
    out = aclnn_py.moe_token_unpermute_with_ep(args[1], args[0], args[2], backend=backend)
    assert out.dtype == tokens
    assert out.astype(F32).tolist() == [[6.5, 9]]


def mixed_scales() -> dict[str, Any]:
    return dict(
        gradY=tensor([[1, 2]], BF16),
        expandedRowIdx=idx([0]),
        expandedXOptional=tensor([[1.5, 0.125]], BF16),
        scalesOptional=tensor([[0.3]]),
        gradExpandedXOut=buffer((1, 2), BF16),
        gradScalesOut=buffer((1, 1)),
    )


@pytest.mark.parametrize("product", ["A2", "A3"])
def test_another_scales_dtype_is_refused_on_the_older_products(backend: Any, product: str) -> None:
    code, error = harness.status_of(backend, V2_GRAD, harness.arguments(V2_GRAD, **mixed_scales()), product)
    assert code == 561103
    assert isinstance(error, errors.InnerNullptrError)


def test_another_scales_dtype_is_used_unrounded_on_950(backend: Any) -> None:
    out = harness.check(backend, V2_GRAD, "950", **mixed_scales())
    assert out["gradExpandedXOut"].astype(F32).tolist() == [[0.30078125, 0.6015625]]
    assert out["gradScalesOut"].tolist() == [[1.75]]


@pytest.mark.parametrize("product", harness.PRODUCTS)
@pytest.mark.parametrize("name", ["biasOptional", "expandedXOptional"])
def test_tokens_of_one_call_share_their_dtype_on_every_product(backend: Any, product: str, name: str) -> None:
    args = harness.arguments(
        V2_GRAD, **(mixed_scales() | {"scalesOptional": tensor([[0.3]], BF16), name: tensor([[1, 1]])})
    )
    args |= dict(gradScalesOut=buffer((1, 1), BF16), expertIdxOptional=idx([[0]]))
    assert harness.status_of(backend, V2_GRAD, args, product)[0] == 161002


@pytest.mark.parametrize(("hidden", "expected"), [(300, 300), (257, 256), (7168, 7168)])
def test_bf16_sums_keep_growing(backend: Any, hidden: int, expected: float) -> None:
    """In bf16 arithmetic a sum of ones sticks at 256; 257 itself rounds to even."""
    row = np.ones((1, hidden))
    _, grad_scales = grad_v2(backend, row, [0], row, [[1]], BF16)
    assert grad_scales.astype(F32).tolist() == [[expected]]


def test_fp16_overflow_gives_infinity(backend: Any) -> None:
    grad_x, grad_scales = grad_v2(backend, [[300, -300]], [0], [[300, 300]], [[300]], F16)
    assert grad_x.tolist() == [[INF, -INF]]
    assert grad_scales.tolist() == [[0]]
    _, grad_scales = grad_v2(backend, [[300, 300]], [0], [[300, 300]], [[300]], F16)
    assert grad_scales.tolist() == [[INF]]
    _, grad_scales = grad_v2(backend, [[300, 300, 1]], [0], [[300, -300, 1]], [[1]], F16)
    assert grad_scales.tolist() == [[1]], "no overflow inside"


def test_the_comparison_of_this_suite_is_strict() -> None:
    def wrong(actual: Any, value: Any, dtype: np.dtype, slack: float | None) -> bool:
        array = np.array([actual]).astype(F32).astype(dtype)
        exact = np.array([value], np.float64)
        if slack is None:
            expected = oracle.Expected(exact.astype(F32).astype(dtype), np.array([True]))
        else:
            expected = oracle.Expected(exact, np.array([True]), np.array([slack]))
        return bool(oracle.mismatches(array, expected, array)[0])

    assert wrong(65504, INF, F16, 1.0)
    assert wrong(INF, 65504, F16, 1.0)
    assert not wrong(INF, 65520, F16, 0.0), "65520 rounds to infinity"
    assert wrong(NAN, 0, F32, 1.0)
    assert wrong(0, NAN, F32, 1.0)
    assert wrong(INF, NAN, F32, 1.0)
    assert wrong(-INF, INF, F32, 1.0)
    assert wrong(1 + 2**-7, 1, BF16, 2**-20)
    assert not wrong(1, 1 + 2**-9, BF16, 2**-20)
    assert not wrong(-0.0, 0.0, F32, 0.0), "a sum has no sign of zero"
    assert wrong(-0.0, 0.0, F32, None), "a product has"
    assert not wrong(NAN, NAN, F16, None)
    kept = oracle.Expected(np.zeros(1, F32), np.array([False]))
    assert oracle.mismatches(np.array([-0.0], F32), kept, np.array([0.0], F32))[0], "unwritten means the same bits"


@pytest.mark.parametrize("dtype", FLOATS, ids=FLOAT_IDS)
def test_copies_are_bit_exact_for_odd_lengths(backend: Any, dtype: np.dtype) -> None:
    words = np.array([[1, 0x7F81, 0x8000], [0x7C01, 0xFFFF, 0x0001], [0x3C00, 0xFC00, 0x7BFF]])
    rows = words.astype(f"u{dtype.itemsize}").view(dtype)  # denormals, infinities and NaN payloads among them
    grad, _ = aclnn_py.moe_finalize_routing_v2_grad(rows, idx([2, 0, 1]), backend=backend)
    assert grad.dtype == dtype
    assert oracle.same_bits(grad, rows[[1, 2, 0]]).all()
    grad, _ = aclnn_py.moe_token_unpermute_with_ep_grad(rows, idx([2, 0, 1]), backend=backend)
    assert oracle.same_bits(grad, rows[[1, 2, 0]]).all()
    moved, where, _ = aclnn_py.moe_token_permute_with_ep(rows, idx([2, 0, 1]), backend=backend)
    assert oracle.same_bits(moved, rows[[1, 2, 0]]).all()
    assert where.dtype == I32
    routed = aclnn_py.moe_init_routing_v2(rows, idx([[2], [0], [1]]), backend=backend).expanded_x
    assert oracle.same_bits(routed, rows[[1, 2, 0]]).all()


# -- shapes ------------------------------------------------------------------------------------------------------


def test_a_rank_with_no_tokens_gets_empty_results_of_the_right_shape(backend: Any) -> None:
    grad_x, grad_scales = grad_v2(backend, np.zeros((0, 4)), [], np.zeros((0, 4)), np.zeros((0, 2)))
    assert (grad_x.shape, grad_scales.shape) == ((0, 4), (0, 2))
    empty, none = tensor(np.zeros((0, 4))), idx([])
    probs = tensor(np.zeros((0, 2)))
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(empty, none, empty, probs, backend=backend)
    assert (grad.shape, probs_grad.shape) == ((0, 4), (0, 2))
    assert aclnn_py.moe_token_unpermute_with_ep(empty, none, probs, backend=backend).shape == (0, 4)
    rows, where, moved = aclnn_py.moe_token_permute_with_ep(empty, idx(np.zeros((0, 2))), probs, backend=backend)
    assert (rows.shape, where.shape, moved.shape) == ((0, 4), (0,), (0,))
    token_grad, back = aclnn_py.moe_token_permute_with_ep_grad(empty, none, moved, num_topk=2, backend=backend)
    assert (token_grad.shape, back.shape) == ((0, 4), (0, 2))
    assert aclnn_py.moe_finalize_routing_v2(empty, none, scales=probs, backend=backend).shape == (0, 4)
    assert aclnn_py.moe_init_routing_v2(empty, idx(np.zeros((0, 2))), backend=backend).expanded_x.shape == (0, 4)


@pytest.mark.parametrize("window", [(0, 0), (4, 4), (6, 6), (9, 12)], ids=str)
def test_a_rank_that_owns_nothing_gets_zeros(backend: Any, window: Any) -> None:
    """Three tokens, none of them routed here, and no rows: the same number of results as in any other branch."""
    nothing, where, probs = tensor(np.zeros((0, 4))), idx([2, 0, 4, 1, 5, 3]), tensor(np.ones((3, 2)))
    common = dict(range=window, backend=backend)
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
        tensor(np.ones((3, 4))), where, nothing, probs, **common
    )
    assert grad.shape == (0, 4)
    assert probs_grad.tolist() == np.zeros((3, 2)).tolist()
    assert aclnn_py.moe_token_unpermute_with_ep(nothing, where, probs, **common).tolist() == np.zeros((3, 4)).tolist()
    token_grad, back = aclnn_py.moe_token_permute_with_ep_grad(nothing, where, tensor([]), num_topk=2, **common)
    assert token_grad.tolist() == np.zeros((3, 4)).tolist()
    assert back.tolist() == np.zeros((3, 2)).tolist()
    rows, order, moved = aclnn_py.moe_token_permute_with_ep(
        tensor(np.ones((3, 4))), idx([[1, 2], [3, 1], [2, 3]]), probs, **common
    )
    assert (rows.shape, moved.shape) == ((0, 4), (0,))
    assert order.shape == (6,)


def test_the_executor_follows_the_library_for_empty_tensors(backend: Any) -> None:
    empty = dict(
        unpermutedTokensGrad=tensor(np.zeros((0, 4))),
        sortedIndices=idx([]),
        permutedTokensOptional=tensor(np.zeros((0, 4))),
        probsOptional=tensor(np.zeros((0, 2))),
        rangeOptional=[0, 0],
        topkNum=2,
        permutedTokensGradOut=buffer((0, 4)),
        probsGradOut=buffer((0, 2)),
    )
    with aclnn_py.Executor(EP_GRAD, **harness.arguments(EP_GRAD, **empty), backend=backend) as executor:
        assert executor.workspace_size == 0
        executor.run()
    no_hidden = dict(
        unpermutedTokensGrad=tensor(np.zeros((3, 0))),
        sortedIndices=idx(range(6)),
        probsOptional=tensor(np.ones((3, 2))),
        permutedTokensOptional=tensor(np.zeros((6, 0))),
        permutedTokensGradOut=buffer((6, 0)),
        probsGradOut=buffer((3, 2)),
    )
    args = harness.arguments(EP_GRAD, **(empty | no_hidden | dict(rangeOptional=[0, 6])))
    assert harness.status_of(backend, EP_GRAD, args)[0] == 561002


def test_without_scales_there_is_one_slot_per_token(backend: Any) -> None:
    grad, nothing = grad_v2(backend, [[1, 2], [3, 4]], [1, 0], None, None)
    assert grad.tolist() == [[3, 4], [1, 2]]
    assert nothing is None
    with pytest.raises(errors.InnerNullptrError, match=r"gradY|expandedRowIdx|scales"):
        grad_v2(backend, [[1, 2], [3, 4]], [1, 0, 2, 3], None, None)


def test_sizes_beyond_32_bits_are_computed_in_full(backend: Any) -> None:
    """More than 2^31 elements, seen through a stride of zero: two rows of them belong to this rank."""
    if backend.name != "reference":
        pytest.skip("a device would need the 8.6 GB in memory")
    count, hidden = 300_000, 7168
    grad = np.broadcast_to(np.arange(hidden, dtype=F32), (count, hidden))
    assert grad.size > 2**31
    where = np.arange(count, dtype=I32)
    mine = (count - 3, count - 1)
    rows, nothing = aclnn_py.moe_token_unpermute_with_ep_grad(
        grad, where, np.zeros((2, hidden), F32), range=mine, backend=backend
    )
    assert nothing is None
    assert (rows == np.arange(hidden)).all()
    out = aclnn_py.moe_token_permute_with_ep(grad, where, range=mine, backend=backend)
    assert (out.permute_tokens == np.arange(hidden)).all()


@pytest.mark.slow
def test_offsets_beyond_32_bits_reach_the_right_row(backend: Any) -> None:
    """Row 299594 starts at element 2 147 489 792. The array is never touched but there, so it costs address space."""
    if backend.name != "reference":
        pytest.skip("a device would need the 4.3 GB in memory")
    count, hidden, row = 299_600, 7168, 299_594
    grad = np.zeros((count, hidden), F16)
    grad[row] = 3
    rows, _ = aclnn_py.moe_token_unpermute_with_ep_grad(
        grad, np.arange(count, dtype=I32), np.zeros((2, hidden), F16), range=(row - 1, row + 1), backend=backend
    )
    assert not rows[0].any()
    assert (rows[1] == 3).all()


def test_many_tokens_do_not_overflow(backend: Any) -> None:
    count, topk = 37_450, 8
    order = np.random.default_rng(7).permutation(count * topk).astype(I32)
    grad = (np.arange(count) % 128).astype(F32).reshape(count, 1)
    scales = ((np.arange(count * topk) % 5) - 2).astype(F32).reshape(count, topk)
    x = ((np.arange(count * topk) % 7) - 3).astype(F32).reshape(-1, 1)
    grad_x, grad_scales = aclnn_py.moe_finalize_routing_v2_grad(grad, order, x, scales, backend=backend)
    expected = np.zeros_like(x)
    expected[order, 0] = (grad * scales).reshape(-1)
    assert np.array_equal(grad_x, expected)
    assert np.array_equal(grad_scales, x[order].reshape(count, topk) * grad)


@pytest.mark.parametrize("hidden", [1, 3, 7, 33, 20000])
def test_any_hidden_size(backend: Any, hidden: int) -> None:
    row = np.ones((1, hidden))
    grad_x, grad_scales = grad_v2(backend, row, [0], row, [[1]])
    assert grad_x.tolist() == row.tolist()
    assert grad_scales.tolist() == [[hidden]]
    grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
        tensor(row), idx([0]), tensor(row), tensor([[1]]), backend=backend
    )
    assert grad.tolist() == row.tolist()
    assert probs_grad.tolist() == [[hidden]]


# -- arguments ---------------------------------------------------------------------------------------------------


def test_unsuitable_arguments_are_refused_by_name(backend: Any) -> None:
    grad = tensor([[1, 2]])
    call = aclnn_py.moe_finalize_routing_v2_grad
    with pytest.raises(errors.InnerNullptrError, match="gradY"):
        call(np.ones((1,) * 9, F32), idx([0]), backend=backend)
    with pytest.raises(TypeError, match="gradY"):
        call([[1.0, 2.0]], idx([0]), backend=backend)
    with pytest.raises(errors.NullptrError, match="gradY"):
        call(None, idx([0]), backend=backend)
    with pytest.raises(errors.NullptrError, match="expandedRowIdx"):
        call(grad, None, backend=backend)
    with pytest.raises((TypeError, errors.InvalidParameterError), match="gradY"):
        call(np.ones((1, 2), np.uint16), idx([0]), backend=backend)


TOKENS_FIRST = {  # operator -> what follows the token tensor, and its C name
    "moe_finalize_routing_v2_grad": ([idx([0])], "gradY"),
    "moe_token_unpermute_with_ep_grad": ([idx([0])], "unpermutedTokensGrad"),
    "moe_finalize_routing_v2": ([idx([0])], "expandedX"),
    "moe_token_unpermute_with_ep": ([idx([0])], "permutedTokens"),
    "moe_token_permute_with_ep": ([idx([0])], "tokens"),
    "moe_token_permute_with_ep_grad": ([idx([0])], "permutedTokensOutputGrad"),
    "moe_init_routing_v2": ([idx([[0]])], "x"),
}


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", TOKENS_FIRST)
def test_tokens_of_a_wrong_rank_are_refused_not_taken_for_empty(
    backend: Any, name: str, shape: tuple[int, ...]
) -> None:
    more, argument = TOKENS_FIRST[name]
    with pytest.raises(errors.RefusedArgumentError, match=argument):
        getattr(aclnn_py, name)(np.ones(shape, F32), *more, backend=backend)


def test_int64_indices_are_refused_with_a_hint(backend: Any) -> None:
    with pytest.raises(errors.InvalidParameterError, match=r"(?s)expandedRowIdx.*int32"):
        aclnn_py.moe_finalize_routing_v2_grad(tensor([[1, 2]]), idx([0], I64), backend=backend)


@pytest.mark.parametrize("product", harness.PRODUCTS)
def test_optional_tensors_may_be_absent_on_every_product(backend: Any, product: str) -> None:
    out = harness.check(
        backend,
        V2_GRAD,
        product,
        gradY=tensor([[1, 2]]),
        expandedRowIdx=idx([0]),
        expandedXOptional=tensor([[3, 4]]),
        scalesOptional=tensor([[2]]),
        gradExpandedXOut=buffer((1, 2)),
        gradScalesOut=buffer((1, 1)),
    )
    assert out["gradScalesOut"].tolist() == [[11]]
    out = harness.check(
        backend,
        EP_GRAD,
        product,
        unpermutedTokensGrad=tensor([[1, 2], [3, 4]]),
        sortedIndices=idx([1, 0]),
        rangeOptional=[0, 2],
        permutedTokensGradOut=buffer((2, 2)),
        probsGradOut=buffer((2, 1)),
    )
    assert out["permutedTokensGradOut"].tolist() == [[3, 4], [1, 2]]


@pytest.mark.parametrize("expert", [2, 5, -1, 2**31 - 1])
def test_an_expert_outside_bias_is_refused_and_never_read(backend: Any, expert: int) -> None:
    experts, bias = idx([[0, expert]]), tensor([[1, 1], [2, 2]])
    with pytest.raises(errors.IndexOutOfRangeError, match=r"expertIdx\w*\W+0, 1"):
        grad_v2(backend, [[1, 1]], [0, 1], np.ones((2, 2)), [[1, 1]], expert_idx=experts, bias=bias)
    with pytest.raises(errors.IndexOutOfRangeError, match="expertIdx"):
        aclnn_py.moe_finalize_routing_v2(
            tensor(np.ones((2, 2))),
            idx([0, 1]),
            bias=bias,
            scales=tensor([[1, 1]]),
            expert_idx=experts,
            drop_pad_mode=2,
            backend=backend,
        )


def test_indices_are_checked_on_request_only(backend: Any) -> None:
    args = ([[1, 2]], [0, 7], np.ones((2, 2)), [[1, 1]])
    assert grad_v2(backend, *args).grad_expanded_x.tolist() == [[1, 2], [0, 0]]
    with pytest.raises(errors.IndexOutOfRangeError, match=r"expandedRowIdx\[1\] is 7") as caught:
        grad_v2(backend, *args, check_indices=True)
    assert caught.value.code == 161002
    assert isinstance(caught.value, IndexError)


# -- arrays ------------------------------------------------------------------------------------------------------


def views(array: np.ndarray) -> dict[str, np.ndarray]:
    """Equal arrays in other layouts."""
    rows, columns = array.shape
    wide = np.zeros((rows, 2 * columns), array.dtype)
    wide[:, ::2] = array
    longer = np.zeros((rows + 1, columns), array.dtype)
    longer[1:] = array
    raw = np.zeros(array.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    return {
        "every second column": wide[:, ::2],
        "transposed": np.ascontiguousarray(array.T).T,
        "reversed": np.ascontiguousarray(array[::-1])[::-1],
        "both reversed": np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
        "offset": longer[1:],
        "fortran": np.asfortranarray(array),
        "unaligned": unaligned,
        "read-only": frozen,
    }


@pytest.mark.parametrize("dtype", FLOATS, ids=FLOAT_IDS)
@pytest.mark.parametrize("kind", [*views(np.zeros((1, 1), F32)), "stride zero"])
def test_any_memory_layout_gives_the_contiguous_result(backend: Any, dtype: np.dtype, kind: str) -> None:
    random = np.random.default_rng(3)
    grad, x, scales, bias = (
        random.integers(-8, 9, shape).astype(F32).astype(dtype) for shape in ((4, 5), (8, 5), (4, 2), (3, 5))
    )
    row_idx, experts = random.permutation(8).astype(I32), random.integers(0, 3, (4, 2)).astype(I32)
    if kind == "stride zero":
        grad = np.broadcast_to(grad[:1], grad.shape)
        args = [grad, row_idx[::-1], x, np.broadcast_to(scales[:, :1], scales.shape), experts[::-1], bias]
    else:
        args = [
            views(grad)[kind],
            row_idx[::-1],
            views(x)[kind],
            views(scales)[kind],
            views(experts)[kind],
            views(bias)[kind],
        ]
    before = [a.copy() for a in args]
    strided = aclnn_py.moe_finalize_routing_v2_grad(*args, backend=backend)
    plain = aclnn_py.moe_finalize_routing_v2_grad(*[np.ascontiguousarray(a) for a in args], backend=backend)
    for left, right in zip(strided, plain, strict=True):
        assert oracle.same_bits(left, right).all()
    assert all(np.array_equal(a, b) for a, b in zip(args, before, strict=True)), "an input was changed"


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_foreign_byte_order_is_refused_not_misread(backend: Any, which: int) -> None:
    args = [tensor([[1, 2]]), idx([0]), tensor([[3, 4]]), tensor([[2]])]
    args[which] = args[which].astype(args[which].dtype.newbyteorder())
    with pytest.raises((TypeError, ValueError), match="byte"):
        aclnn_py.moe_finalize_routing_v2_grad(*args, backend=backend)


def test_empty_arrays_pass_the_boundary(backend: Any) -> None:
    outputs = harness.check(
        backend,
        V2_GRAD,
        gradY=np.zeros((0, 4), F32),
        expandedRowIdx=idx([]),
        expandedXOptional=np.zeros((1, 2, 4), F32),
        scalesOptional=np.zeros((0, 2), F32),
        dropPadMode=1,
        expertNum=1,
        expertCapacity=2,
        gradExpandedXOut=buffer((1, 2, 4)),
        gradScalesOut=np.zeros((0, 2), F32),
    )
    assert not outputs["gradExpandedXOut"].any(), "the output that is not empty is zero-filled"
    assert outputs["gradScalesOut"].shape == (0, 2)


def test_unsuitable_output_arrays_are_refused(backend: Any) -> None:
    grad, x, scales = tensor([[1, 2], [3, 4]]), tensor(np.ones((4, 2))), tensor(np.ones((2, 2)))

    def call(*out: Any) -> Any:
        return aclnn_py.moe_finalize_routing_v2_grad(grad, idx([0, 1, 2, 3]), x, scales, out=out, backend=backend)

    read_only = buffer((4, 2))
    read_only.flags.writeable = False
    shared = buffer((6, 2))
    for out, says in [
        ((buffer((4, 4))[:, ::2], None), "contiguous"),
        ((read_only, None), "read-only"),
        ((buffer((4, 2), F16), None), "dtype"),
        ((buffer((4, 3)), None), "shape"),
        ((buffer((8,)), None), "shape"),
        ((x, None), "expandedX"),
        ((None, scales), "scales"),
        ((shared[:4], shared[3:5]), "overlap"),
    ]:
        with pytest.raises((TypeError, ValueError), match=says):
            call(*out)
    assert (x == 1).all()
    assert (scales == 1).all()
    result = call(shared[:4], shared[4:])
    assert result.grad_scales.base is shared
    assert shared.tolist() == [[1, 2], [1, 2], [3, 4], [3, 4], [3, 3], [7, 7]]


def test_a_read_only_output_of_an_executor_is_refused(backend: Any) -> None:
    out = buffer((1, 2))
    out.flags.writeable = False
    args = harness.arguments(
        V2_GRAD, gradY=tensor([[1, 2]]), expandedRowIdx=idx([0]), gradExpandedXOut=out, gradScalesOut=buffer((1, 1))
    )
    with pytest.raises(ValueError, match="gradExpandedXOut"):
        harness.execute(backend, V2_GRAD, args)
    assert (out == harness.PREFILL).all()


# -- the public samples ------------------------------------------------------------------------------------------


def test_the_public_gradient_sample(backend: Any) -> None:
    grad_x, grad_scales = aclnn_py.moe_finalize_routing_v2_grad(
        tensor([[0.3816, 0.3939], [0.8474, 0.1652]]),
        idx([1, 3, 0, 2]),
        tensor([[0.6049, 0.3315], [0.4954, 0.3284], [0.7060, 0.4359], [0.6514, 0.9476]]),
        tensor([[0.4708, 0.0656], [0.9652, 0.9512]]),
        idx([[0, 1], [0, 1]]),
        tensor([[0.6452, 0.1981], [0.4159, 0.9575]]),
        backend=backend,
    )
    expected = [[0.81791049, 0.15945104], [0.17965728, 0.18544812], [0.80604690, 0.15713824], [0.02503296, 0.02583984]]
    np.testing.assert_allclose(grad_x, expected, atol=1e-7)
    np.testing.assert_allclose(grad_scales, [[0.64264131, 1.15770054], [1.14682472, 1.18088770]], atol=5e-7)
