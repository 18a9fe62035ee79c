"""What the seven Pythonic operators promise around the arithmetic: outputs, ranges, checks and containers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import aclnn_py
from aclnn_py import errors, signatures
from aclnn_py.reference import OPERATORS

F32, F16, I32, I64 = (np.dtype(t) for t in (np.float32, np.float16, np.int32, np.int64))
FILL = 777

GRAD = np.array([[1, 2], [3, 4]], F32)  # (T, H) = (2, 2)
INDEX = np.array([2, 0, 1, 3], I32)  # (T * K,)
ROWS = np.arange(8, dtype=F32).reshape(4, 2)  # (N, H)
PROBS = np.array([[1, 10], [100, 1000]], F32)  # (T, K)
EXPERTS = np.array([[1, 0], [0, 1]], I32)  # its stable sort is INDEX


class Case(NamedTuple):
    """A good call: operator, tensors by parameter name, attributes, and the results."""

    api: str
    tensors: dict[str, Any]
    attributes: dict[str, Any]
    results: list[Any]
    index: str  # the parameter with indices


CASES = {
    "moe_finalize_routing_v2_grad": Case(
        "aclnnMoeFinalizeRoutingV2Grad",
        dict(grad_y=GRAD, expanded_row_idx=INDEX, expanded_x=ROWS, scales=PROBS),
        {},
        [[[10, 20], [300, 400], [1, 2], [3000, 4000]], [[14, 2], [18, 46]]],
        "expanded_row_idx",
    ),
    "moe_token_unpermute_with_ep_grad": Case(
        "aclnnMoeTokenUnpermuteWithEpGrad",
        dict(unpermuted_tokens_grad=GRAD, sorted_indices=INDEX, permuted_tokens=ROWS, probs=PROBS),
        {},
        [[[10, 20], [300, 400], [1, 2], [3000, 4000]], [[14, 2], [18, 46]]],
        "sorted_indices",
    ),
    "moe_finalize_routing_v2": Case(
        "aclnnMoeFinalizeRoutingV2",
        dict(expanded_x=ROWS, expanded_row_idx=INDEX, scales=PROBS),
        dict(drop_pad_mode=2),
        [[[4, 15], [6200, 7300]]],
        "expanded_row_idx",
    ),
    "moe_token_unpermute_with_ep": Case(
        "aclnnMoeTokenUnpermuteWithEp",
        dict(permuted_tokens=ROWS, sorted_indices=INDEX, probs=PROBS),
        {},
        [[[4, 15], [6200, 7300]]],
        "sorted_indices",
    ),
    "moe_token_permute_with_ep": Case(
        "aclnnMoeTokenPermuteWithEp",
        dict(tokens=GRAD, indices=EXPERTS, probs=PROBS),
        {},
        [[[1, 2], [3, 4], [1, 2], [3, 4]], [2, 0, 1, 3], [10, 100, 1, 1000]],
        "indices",
    ),
    "moe_token_permute_with_ep_grad": Case(
        "aclnnMoeTokenPermuteWithEpGrad",
        dict(permuted_tokens_output_grad=ROWS, sorted_indices=INDEX, permuted_probs_output_grad=ROWS[:, 1].copy()),
        dict(num_topk=2),
        [[[4, 6], [8, 10]], [[5, 1], [3, 7]]],
        "sorted_indices",
    ),
    "moe_init_routing_v2": Case(
        "aclnnMoeInitRoutingV2",
        dict(x=GRAD, expert_idx=EXPERTS),
        dict(expert_num=2, expert_tokens_count_or_cumsum_flag=1),
        [[[1, 2], [3, 4], [1, 2], [3, 4]], [2, 0, 1, 3], [2, 4], None],
        "expert_idx",
    ),
}
EP = [name for name in CASES if "with_ep" in name]


@pytest.fixture(params=list(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(backend: Any, name: str, *, change: dict[str, Any] | None = None, **more: Any) -> Any:
    """Make the good call of an operator, with changes."""
    case = CASES[name]
    return getattr(aclnn_py, name)(**{**case.tensors, **case.attributes, **(change or {}), **more}, backend=backend)


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def plain(result: Any) -> list[Any]:
    return [None if array is None else array.tolist() for array in parts(result)]


def outs(backend: Any, name: str) -> list[Any]:
    """Output arrays of the right shape, with content."""
    return [None if array is None else np.full_like(array, 77) for array in parts(call(backend, name))]


def packed(arrays: list[Any]) -> Any:
    return tuple(arrays) if len(arrays) > 1 else arrays[0]


# -- all seven


def test_the_table_of_this_file_covers_every_operator() -> None:
    assert set(CASES) == {name for name in aclnn_py.__all__ if name.startswith("moe_")}
    assert {case.api for case in CASES.values()} <= set(OPERATORS)


def test_results_are_named_tuples_in_the_order_of_the_c_outputs(backend: Any, name: str) -> None:
    result = call(backend, name)
    assert plain(result) == CASES[name].results
    outputs = signatures.find(CASES[name].api).outputs
    assert len(parts(result)) == len(outputs)
    if len(outputs) > 1:
        assert type(result).__name__ in aclnn_py.__all__
        assert isinstance(result, tuple)
        assert getattr(result, result._fields[0]) is result[0]
        spelled = [c.removesuffix("Optional").removesuffix("Out").removesuffix("OutOptional") for c in outputs]
        assert [field.replace("_", "") for field in result._fields] == [c.lower() for c in spelled]
    for array in parts(result):
        if array is not None:
            assert type(array) is np.ndarray
            assert array.flags.c_contiguous
            assert array.flags.writeable


def test_tensors_come_in_c_order_and_the_rest_is_keyword_only(name: str) -> None:
    """Several int64 attributes in a row are too easy to mix up by position."""
    parameters = inspect.signature(getattr(aclnn_py, name)).parameters.values()
    signature = signatures.find(CASES[name].api)
    inputs = [p for p in signature.parameters if p.name not in signature.outputs]
    spelled = {p.name: p.name.removesuffix("Optional").lower() for p in inputs}
    positional = [p.name.replace("_", "") for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [spelled[p.name] for p in inputs if p.kind == "tensor"]
    keywords = {p.name.replace("_", "") for p in parameters if p.kind is p.KEYWORD_ONLY}
    attributes = {spelled[p.name] for p in inputs if p.kind != "tensor"}
    assert keywords == attributes | {"out", "checkindices", "backend", "stream"}


def test_inputs_may_be_read_only_and_are_never_modified(backend: Any, name: str) -> None:
    case = CASES[name]
    copies = {key: value.copy() for key, value in case.tensors.items()}
    for array in copies.values():
        array.flags.writeable = False
    assert plain(call(backend, name, change=copies)) == case.results
    for key, array in copies.items():
        assert array.tobytes() == case.tensors[key].tobytes(), key


def layouts(array: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    wide = np.zeros(tuple(3 * n for n in array.shape), array.dtype)
    wide[tuple(slice(1, None, 3) for _ in array.shape)] = array
    flipped = tuple(slice(None, None, -1) for _ in array.shape)
    return {
        "every third": wide[tuple(slice(1, None, 3) for _ in array.shape)],
        "reversed": np.ascontiguousarray(array[flipped])[flipped],
        "fortran": np.asfortranarray(array),
        "subclass": array.copy().view(Sub),
    }


class Sub(np.ndarray):
    """A user's own array class."""


@pytest.mark.parametrize("kind", layouts(GRAD))
def test_inputs_of_any_strides_give_the_same(backend: Any, name: str, kind: str) -> None:
    change = {key: layouts(value)[kind] for key, value in CASES[name].tensors.items()}
    assert plain(call(backend, name, change=change)) == CASES[name].results


def test_foreign_byte_order_is_refused_in_every_tensor(backend: Any, name: str) -> None:
    for key, value in CASES[name].tensors.items():
        foreign = value.astype(value.dtype.newbyteorder())
        with pytest.raises(TypeError, match=r"byte order.*astype") as caught:
            call(backend, name, change={key: foreign})
        assert key.replace("_", "") in str(caught.value).lower()


def test_only_arrays_are_tensors(backend: Any, name: str) -> None:
    for key, value in CASES[name].tensors.items():
        for wrong in (value.tolist(), np.ma.masked_array(value), float(value.flat[0]), value.dtype.type(1)):
            with pytest.raises(TypeError, match="takes an array") as caught:
                call(backend, name, change={key: wrong})
            assert key.replace("_", "") in str(caught.value).lower()
            assert type(wrong).__name__ in str(caught.value)


def test_kinds_of_arrays_are_not_mixed(backend: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another registered kind in one call with NumPy is refused, naming both arguments."""
    from aclnn_py import arrays

    class Other:
        __module__ = "otherpackage.core"
        shape, dtype = (4,), I32

    class Family(arrays.NumpyFamily):
        def convert(self, where: str, value: Any) -> Any:
            return value

    monkeypatch.setattr(arrays, "_families", {**arrays._families, "otherpackage": Family()})
    first, *_, last = CASES[name].tensors
    with pytest.raises(TypeError, match=r"ndarray.*Other.*different kinds") as caught:
        call(backend, name, change={last: Other()})
    assert first.replace("_", "") in str(caught.value).lower()


def test_int64_indices_are_refused_with_a_hint(backend: Any, name: str) -> None:
    case = CASES[name]
    wide = case.tensors[case.index].astype(I64)
    if name == "moe_token_permute_with_ep":  # the one that takes both
        assert plain(call(backend, name, change={case.index: wide})) == case.results
        return
    with pytest.raises(errors.InvalidParameterError, match=r"(?s)int64.*int32") as caught:
        call(backend, name, change={case.index: wide})
    assert case.index.replace("_", "") in caught.value.detail.lower()


def test_a_missing_required_tensor_is_a_null_pointer(backend: Any, name: str) -> None:
    for key in list(CASES[name].tensors)[:2]:
        with pytest.raises(errors.NullptrError) as caught:
            call(backend, name, change={key: None})
        assert key.replace("_", "") in caught.value.detail.lower()
        assert caught.value.code == 161001
        assert caught.value.api == CASES[name].api


def test_products_without_the_operators_are_unsupported(name: str) -> None:
    for product in ("Ascend310P3", "Ascend910A"):
        with pytest.raises(errors.UnsupportedError, match="A2, A3, 950") as caught:
            call(aclnn_py.get_backend("reference", product=product), name)
        assert caught.value.api == CASES[name].api
    for product in ("A2", "A3", "950"):
        assert plain(call(aclnn_py.get_backend("reference", product=product), name)) == CASES[name].results


def test_backend_by_name_and_by_default(backend: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain(call(backend.name, name)) == CASES[name].results
    monkeypatch.setenv("ACLNN_PY_BACKEND", backend.name)
    assert plain(call(None, name)) == CASES[name].results


# -- out=


def test_out_is_written_and_returned(backend: Any, name: str) -> None:
    mine = outs(backend, name)
    result = call(backend, name, out=packed(mine))
    assert plain(result) == CASES[name].results
    assert all(got is array for got, array in zip(parts(result), mine, strict=True))
    again = call(backend, name, out=result)
    assert all(got is array for got, array in zip(parts(again), mine, strict=True)), "a result is a valid out"


def test_none_in_out_means_allocate(backend: Any, name: str) -> None:
    arrays = outs(backend, name)
    if len(arrays) == 1:
        assert plain(call(backend, name, out=(None,))) == CASES[name].results
        return
    assert plain(call(backend, name, out=(None,) * len(arrays))) == CASES[name].results
    for position, array in enumerate(arrays):
        mine = [array if i == position else None for i in range(len(arrays))]
        result = call(backend, name, out=tuple(mine))
        assert plain(result) == CASES[name].results
        assert result[position] is array


@pytest.mark.parametrize("count", [0, 5])
def test_out_has_as_many_entries_as_results(backend: Any, name: str, count: int) -> None:
    with pytest.raises(TypeError, match=rf"out takes a tuple of {len(outs(backend, name))}"):
        call(backend, name, out=(None,) * count)


WRONG_OUTS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a row too many": (lambda a: np.zeros((a.shape[0] + 1, *a.shape[1:]), a.dtype), ValueError, "shape"),
    "an axis too many": (lambda a: np.zeros((*a.shape, 1), a.dtype), ValueError, "shape"),
    "broadcastable": (lambda a: np.zeros((1,) * a.ndim, a.dtype), ValueError, "shape"),
    "dtype": (lambda a: np.zeros(a.shape, np.float64), TypeError, "dtype"),
    "byte order": (lambda a: np.zeros(a.shape, a.dtype.newbyteorder()), TypeError, "byte order"),
    "strides": (lambda a: np.zeros(tuple(2 * n for n in a.shape), a.dtype)[(slice(None, None, 2),) * a.ndim],
                ValueError, "contiguous"),
    "read-only": (lambda a: np.broadcast_to(np.zeros((), a.dtype), a.shape).copy().view(ReadOnly),
                  ValueError, "read-only"),
    "list": (lambda a: a.tolist(), TypeError, "takes an array"),
    "masked": (lambda a: np.ma.masked_array(a), TypeError, "takes an array"),
}  # fmt: skip


class ReadOnly(np.ndarray):
    """An array that cannot be written to."""

    def __array_finalize__(self, _: Any) -> None:
        self.flags.writeable = False


@pytest.mark.parametrize("kind", WRONG_OUTS)
def test_an_unsuitable_out_is_refused_and_nothing_is_written(backend: Any, name: str, kind: str) -> None:
    make, error, says = WRONG_OUTS[kind]
    for position, array in enumerate(outs(backend, name)):
        if array is None:
            continue
        mine = outs(backend, name)
        mine[position] = make(array)
        with pytest.raises(error, match=says) as caught:
            call(backend, name, out=packed(mine))
        assert CASES[name].api in str(caught.value)
        for other in mine[:position] + mine[position + 1 :]:
            assert other is None or (other == 77).all(), "another output was written"
    assert plain(call(backend, name)) == CASES[name].results


def test_out_may_overlap_neither_inputs_nor_another_output(backend: Any, name: str) -> None:
    tensors = CASES[name].tensors
    for position, array in enumerate(outs(backend, name)):
        if array is None:
            continue
        for key, value in tensors.items():
            if value.dtype != array.dtype:
                continue
            memory = np.zeros(array.size + value.size, array.dtype)
            shared = memory[: value.size].reshape(value.shape)
            shared[...] = value
            mine = [None] * len(outs(backend, name))
            mine[position] = memory[value.size - 1 : value.size - 1 + array.size].reshape(array.shape)
            with pytest.raises(ValueError, match="overlaps the input") as caught:
                call(backend, name, change={key: shared}, out=packed(mine))
            assert key.replace("_", "") in str(caught.value).lower()
            assert shared.tolist() == value.tolist(), "the input was written"
            mine[position] = memory[value.size :].reshape(array.shape)
            call(backend, name, change={key: shared}, out=packed(mine))  # side by side is fine
            assert shared.tolist() == value.tolist()
    arrays = outs(backend, name)
    pairs = [(i, j) for i, a in enumerate(arrays) for j, b in enumerate(arrays) if i < j and a is not None
             and b is not None and a.dtype == b.dtype]  # fmt: skip
    for i, j in pairs:
        memory = np.full(arrays[i].size + arrays[j].size, 77, arrays[i].dtype)
        mine = [None] * len(arrays)
        mine[i] = memory[: arrays[i].size].reshape(arrays[i].shape)
        mine[j] = memory[arrays[i].size - 1 : -1].reshape(arrays[j].shape)
        with pytest.raises(ValueError, match="overlaps another output"):
            call(backend, name, out=tuple(mine))
        assert (memory == 77).all()


def test_out_for_a_result_that_the_call_does_not_have_is_refused(backend: Any) -> None:
    one_each = np.array([1, 0], I32)
    with pytest.raises(ValueError, match=r"gradScalesOut.*None"):
        aclnn_py.moe_finalize_routing_v2_grad(GRAD, one_each, out=(None, np.zeros((2, 1), F32)), backend=backend)
    with pytest.raises(ValueError, match=r"probsGradOut.*None"):
        aclnn_py.moe_token_unpermute_with_ep_grad(GRAD, one_each, out=(None, np.zeros((2, 1), F32)), backend=backend)
    with pytest.raises(ValueError, match=r"permuteProbsOut.*None"):
        call(backend, "moe_token_permute_with_ep", change=dict(probs=None), out=(None, None, np.zeros(4, F32)))
    with pytest.raises(ValueError, match=r"expertTokensBeforeCapacity.*None"):
        call(backend, "moe_init_routing_v2", out=(None, None, None, np.zeros(2, I32)))


def test_rows_that_no_index_names_are_zero_or_keep_their_content(backend: Any) -> None:
    gap = np.array([2, 0, 9, 3], I32)  # nobody writes row 1
    for name, key in (("moe_finalize_routing_v2_grad", "expanded_row_idx"),
                      ("moe_token_unpermute_with_ep_grad", "sorted_indices")):  # fmt: skip
        assert call(backend, name, change={key: gap})[0].tolist()[1] == [0, 0]
        mine = np.full((4, 2), FILL, F32)
        result = call(backend, name, change={key: gap}, out=(mine, None))[0]
        assert result is mine
        assert result.tolist() == [[10, 20], [FILL, FILL], [1, 2], [3000, 4000]]


def test_padded_rows_are_zero_even_in_the_callers_buffer(backend: Any) -> None:
    mine = np.full((2, 2, 2), FILL, F32)
    result = call(
        backend, "moe_finalize_routing_v2_grad", out=(mine, None),
        change=dict(expanded_row_idx=np.array([-1, 0, 3, -1], I32), expanded_x=ROWS.reshape(2, 2, 2),
                    drop_pad_mode=1, expert_num=2, expert_capacity=2),
    )  # fmt: skip
    assert result.grad_expanded_x.tolist() == [[[10, 20], [0, 0]], [[0, 0], [300, 400]]]


# -- optional results


def test_without_scales_there_is_no_gradient_of_them(backend: Any) -> None:
    one_each = np.array([1, 0], I32)
    result = aclnn_py.moe_finalize_routing_v2_grad(GRAD, one_each, backend=backend)
    assert result.grad_scales is None
    assert result.grad_expanded_x.tolist() == [[3, 4], [1, 2]]
    result = aclnn_py.moe_token_unpermute_with_ep_grad(GRAD, one_each, backend=backend)
    assert result.probs_grad is None
    assert result.permuted_tokens_grad.tolist() == [[3, 4], [1, 2]]
    moved = call(backend, "moe_token_permute_with_ep", change=dict(probs=None))
    assert moved.permute_probs is None
    assert moved.permute_tokens.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4]]
    back = call(backend, "moe_token_permute_with_ep_grad", change=dict(permuted_probs_output_grad=None))
    assert back.probs_grad is None
    assert back.token_grad.tolist() == [[4, 6], [8, 10]]


def test_scales_are_needed_for_several_slots(backend: Any) -> None:
    with pytest.raises(errors.InnerNullptrError):
        aclnn_py.moe_finalize_routing_v2_grad(GRAD, INDEX, ROWS, backend=backend)


def test_dtypes_of_results_follow_tokens_and_probs(backend: Any) -> None:
    half = dict(permuted_tokens=ROWS.astype(F16), unpermuted_tokens_grad=GRAD.astype(F16))
    rows, probs = call(backend, "moe_token_unpermute_with_ep_grad", change=half)
    assert (rows.dtype, probs.dtype) == (F16, F32)
    rows, probs = call(backend, "moe_token_unpermute_with_ep_grad", change=dict(probs=PROBS.astype(F16)))
    assert (rows.dtype, probs.dtype) == (F32, F16)
    moved = call(backend, "moe_token_permute_with_ep", change=dict(tokens=GRAD.astype(F16), probs=PROBS.astype(F16)))
    assert [a.dtype for a in moved] == [F16, I32, F16]


def test_routing_counts_are_there_when_asked_for(backend: Any) -> None:
    def routed(**more: Any) -> Any:
        change = dict(expert_tokens_count_or_cumsum_flag=0, expert_num=2, **more)
        return plain(call(backend, "moe_init_routing_v2", change=change))

    assert routed()[2:] == [None, None]
    counts = dict(expert_idx=np.array([[1, 1], [1, 0]], I32))
    result = call(backend, "moe_init_routing_v2", change={**counts, "expert_tokens_count_or_cumsum_flag": 2})
    assert result.expert_tokens_count_or_cumsum.tolist() == [1, 3]
    assert result.expert_tokens_before_capacity is None
    padded = dict(drop_pad_mode=1, expert_capacity=1)
    assert routed(**padded)[2:] == [None, None]
    result = routed(**padded, **counts, expert_tokens_before_capacity_flag=True)
    assert result == [[[[3, 4]], [[1, 2]]], [1, -1, -1, 0], None, [1, 3]]


# -- topk


def test_topk_defaults_to_the_columns_of_probs_or_one(backend: Any) -> None:
    unpermute, back = aclnn_py.moe_token_unpermute_with_ep, aclnn_py.moe_token_unpermute_with_ep_grad
    assert unpermute(ROWS, INDEX, backend=backend).shape == (4, 2)
    assert unpermute(ROWS, INDEX, PROBS, backend=backend).shape == (2, 2)
    assert unpermute(ROWS, INDEX, num_topk=2, backend=backend).tolist() == [[4, 6], [8, 10]]
    with pytest.raises(errors.TilingError, match="sortedIndices"):
        back(GRAD, INDEX, backend=backend)
    rows = back(GRAD, INDEX, topk_num=2, backend=backend).permuted_tokens_grad
    assert rows.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4]]
    with pytest.raises(errors.TilingError, match=r"(?s)numTopk"):
        unpermute(ROWS, INDEX, PROBS, num_topk=3, backend=backend)


@pytest.mark.parametrize("topk", [0, -1, 3, 5, 513])
def test_a_topk_that_does_not_fit_is_refused_not_taken_for_no_tokens(backend: Any, topk: int) -> None:
    for function, args, key in [
        (aclnn_py.moe_token_unpermute_with_ep, (ROWS, INDEX), "num_topk"),
        (aclnn_py.moe_token_permute_with_ep_grad, (ROWS, INDEX), "num_topk"),
        (aclnn_py.moe_token_unpermute_with_ep_grad, (GRAD, INDEX), "topk_num"),
    ]:
        with pytest.raises(errors.TilingError, match=r"(?i)topk|sortedIndices"):
            function(*args, **{key: topk}, backend=backend)


@pytest.mark.parametrize("value", [2.0, True, "2"])
def test_attributes_are_checked_as_c_values(backend: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=r"topkNum.*int64_t"):
        aclnn_py.moe_token_unpermute_with_ep_grad(GRAD, INDEX, topk_num=value, backend=backend)
    with pytest.raises(TypeError, match=r"dropPadMode.*int64_t"):
        call(backend, "moe_finalize_routing_v2_grad", change=dict(drop_pad_mode=value))
    with pytest.raises(TypeError, match=r"paddedMode.*bool"):
        call(backend, "moe_token_unpermute_with_ep_grad", change=dict(padded_mode=int(value)))


# -- range


WINDOWS = [
    (None, (0, 4)),
    ((-1, -1), (0, 4)),
    ([-1, -1], (0, 4)),
    ((0, 4), (0, 4)),
    ((1, 3), (1, 3)),
    ([1, 3], (1, 3)),
    (np.array([1, 3], I32), (1, 3)),
    ((np.int64(1), np.uint8(3)), (1, 3)),
    ((-3, -1), (1, 3)),
    ((1, -1), (1, 3)),
    ((-4, 3), (0, 3)),
    ((-100, 2), (0, 2)),
    ((2, 100), (2, 4)),
    ((2, 2**70), (2, 4)),
    ((-100, 100), (0, 4)),
    ((2, 2), (2, 2)),
    ((0, 0), (0, 0)),
    ((4, 4), (4, 4)),
    ((5, 9), (4, 4)),
    ((-9, -5), (0, 0)),
    ((-1, 3), (3, 3)),
    ((0, -5), (0, 0)),
]


def windowed(name: str, s: int, e: int) -> list[Any]:
    """The results for a window, worked out in a loop."""
    if name == "moe_token_permute_with_ep":
        tokens, index, probs = CASES[name].results
        return [tokens[s:e], index, probs[s:e]]
    rows = [[0, 0] for _ in range(4)]
    sums, combined = [[0, 0], [0, 0]], [[0, 0], [0, 0]]
    probs = [[0, 0], [0, 0]]
    inner = [[0, 0], [0, 0]]
    for entry, q in enumerate(INDEX.tolist()):
        t, k = divmod(entry, 2)
        if not s <= q < e:
            continue
        row = ROWS[q - s].tolist()
        rows[q - s] = [g * PROBS[t, k] for g in GRAD[t].tolist()]
        inner[t][k] = sum(a * b for a, b in zip(row, GRAD[t].tolist(), strict=True))
        combined[t] = [a + b * PROBS[t, k] for a, b in zip(combined[t], row, strict=True)]
        sums[t] = [a + b for a, b in zip(sums[t], row, strict=True)]
        probs[t][k] = ROWS[q - s, 1]
    return {
        "moe_token_unpermute_with_ep_grad": [rows, inner],
        "moe_token_unpermute_with_ep": [combined],
        "moe_token_permute_with_ep_grad": [sums, probs],
    }[name]


@pytest.mark.parametrize(("value", "window"), WINDOWS, ids=[str(w[0]) for w in WINDOWS])
@pytest.mark.parametrize("operator", EP)
def test_every_form_of_range_is_one_window(backend: Any, operator: str, value: Any, window: Any) -> None:
    assert plain(call(backend, operator, range=value)) == windowed(operator, *window)


@pytest.mark.parametrize("value", [(3, 1), (4, 0), (-1, 1), (1, -9), (-1, -3)])
@pytest.mark.parametrize("operator", EP)
def test_a_window_that_ends_before_it_starts_is_refused(backend: Any, operator: str, value: Any) -> None:
    with pytest.raises(errors.TilingError, match="range") as caught:
        call(backend, operator, range=value)
    assert caught.value.code == 561002
    assert str(tuple(value)) in caught.value.detail


@pytest.mark.parametrize("value", [(), (1,), (0, 1, 2), np.arange(3)])
@pytest.mark.parametrize("operator", EP)
def test_a_window_has_two_ends(backend: Any, operator: str, value: Any) -> None:
    with pytest.raises(errors.TilingError, match=f"range has {len(value)} entries, expected 2"):
        call(backend, operator, range=value)


@pytest.mark.parametrize("value", [3, "02", b"02", 1.5, (0.0, 4.0), (None, 4), ("0", "4"), object], ids=str)
@pytest.mark.parametrize("operator", EP)
def test_the_ends_of_a_window_are_integers(backend: Any, operator: str, value: Any) -> None:
    with pytest.raises(TypeError, match=r"range takes two integers"):
        call(backend, operator, range=value)


@pytest.mark.parametrize("value", [(False, 4), (0, True), np.array(3), {0: 1, 2: 3}], ids=str)
def test_lookalikes_of_a_window_are_refused_like_other_attributes(backend: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=r"range takes two integers"):
        call(backend, "moe_token_unpermute_with_ep", range=value)


@pytest.mark.parametrize("window", [(0, 4), (1, 3), (0, 1), (3, 4), (2, 2)])
def test_permuted_tokens_may_have_all_rows_or_those_of_the_window(backend: Any, window: tuple[int, int]) -> None:
    s, e = window
    for name, key in [("moe_token_unpermute_with_ep_grad", "permuted_tokens"),
                      ("moe_token_unpermute_with_ep", "permuted_tokens"),
                      ("moe_token_permute_with_ep_grad", "permuted_tokens_output_grad")]:  # fmt: skip
        change: dict[str, Any] = {key: ROWS[: e - s]}
        if name == "moe_token_permute_with_ep_grad":
            change["permuted_probs_output_grad"] = ROWS[: e - s, 1]
        expected = windowed(name, s, e)
        if name == "moe_token_unpermute_with_ep_grad":
            expected[0] = expected[0][: e - s]
        assert plain(call(backend, name, change=change, range=window)) == expected


def test_the_gradient_has_all_rows_when_there_are_no_permuted_tokens(backend: Any) -> None:
    result = aclnn_py.moe_token_unpermute_with_ep_grad(GRAD, INDEX, topk_num=2, range=(1, 3), backend=backend)
    assert result.permuted_tokens_grad.tolist() == [[3, 4], [1, 2], [0, 0], [0, 0]]


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_another_number_of_rows_is_refused(backend: Any, rows: int) -> None:
    wrong = np.zeros((rows, 2), F32)
    with pytest.raises(errors.TilingError, match="permutedTokens"):
        call(backend, "moe_token_unpermute_with_ep_grad", change=dict(permuted_tokens=wrong), range=(1, 3))
    if rows < 2:
        with pytest.raises(errors.TilingError, match="permutedTokens"):
            call(backend, "moe_token_unpermute_with_ep", change=dict(permuted_tokens=wrong), range=(1, 3))


def test_rows_of_the_window_keep_what_no_index_names(backend: Any) -> None:
    """Also where a backend pads the rows for the C call and slices them again."""
    mine = np.full((3, 2), FILL, F32)
    gap = np.array([2, 0, 9, 3], I32)  # position 1 is missing
    result = aclnn_py.moe_token_unpermute_with_ep_grad(
        GRAD, gap, ROWS[:3], PROBS, range=(0, 3), out=(mine, None), backend=backend
    )
    assert result.permuted_tokens_grad is mine
    assert mine.tolist() == [[10, 20], [FILL, FILL], [1, 2]]


# -- nothing to do


def test_an_empty_window_gives_zeros_and_leaves_rows_alone(backend: Any) -> None:
    mine = np.full((4, 2), FILL, F32), np.full((2, 2), FILL, F32)
    call(backend, "moe_token_unpermute_with_ep_grad", range=(2, 2), out=mine)
    assert (mine[0] == FILL).all(), "no index names a row"
    assert not mine[1].any()
    out = np.full((2, 2), FILL, F32)
    call(backend, "moe_token_unpermute_with_ep", range=(2, 2), out=out)
    assert not out.any()
    mine = np.full((2, 2), FILL, F32), np.full((2, 2), FILL, F32)
    call(backend, "moe_token_permute_with_ep_grad", range=(4, 4), out=mine)
    assert not mine[0].any()
    assert not mine[1].any()
    moved = call(backend, "moe_token_permute_with_ep", range=(1, 1))
    assert [array.shape for array in moved] == [(0, 2), (4,), (0,)]
    assert moved.sorted_indices.tolist() == INDEX.tolist(), "the indices are for all slots, whatever the window"


def test_no_tokens_give_empty_results_of_the_right_shapes(backend: Any) -> None:
    none, no_index = np.zeros((0, 2), F32), np.zeros(0, I32)
    pairs = np.zeros((0, 2), I32)
    shapes = {
        "moe_finalize_routing_v2_grad": ((none, no_index, none, none), {}, [(0, 2), (0, 2)]),
        "moe_token_unpermute_with_ep_grad": ((none, no_index, none, none), {}, [(0, 2), (0, 2)]),
        "moe_finalize_routing_v2": ((none, no_index), dict(scales=none, drop_pad_mode=2), [(0, 2)]),
        "moe_token_unpermute_with_ep": ((none, no_index, none), {}, [(0, 2)]),
        "moe_token_permute_with_ep": ((none, pairs, none), {}, [(0, 2), (0,), (0,)]),
        "moe_token_permute_with_ep_grad": ((none, no_index, np.zeros(0, F32)), dict(num_topk=2), [(0, 2), (0, 2)]),
        "moe_init_routing_v2": ((none, pairs), {}, [(0, 2), (0,), None, None]),
    }
    assert set(shapes) == set(CASES)
    for name, (args, more, expected) in shapes.items():
        result = parts(getattr(aclnn_py, name)(*args, **more, backend=backend))
        assert [None if a is None else a.shape for a in result] == expected, name
    for window in (None, (0, 0), (-1, -1), (0, 5)):
        result = aclnn_py.moe_token_unpermute_with_ep_grad(none, no_index, none, none, range=window, backend=backend)
        assert [a.shape for a in result] == [(0, 2), (0, 2)]


# -- check_indices


@pytest.mark.parametrize("bad", [-1, 4, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("operator", ["moe_finalize_routing_v2_grad", "moe_finalize_routing_v2",
                                      "moe_token_unpermute_with_ep_grad", "moe_token_unpermute_with_ep",
                                      "moe_token_permute_with_ep_grad"])  # fmt: skip
def test_the_first_index_outside_is_named_on_request(backend: Any, operator: str, bad: int) -> None:
    key = CASES[operator].index
    index = np.array([2, 0, bad, bad - 1 if bad < 0 and bad > -(2**31) else bad], I32)
    mine = outs(backend, operator)
    with pytest.raises(errors.IndexOutOfRangeError, match=rf"\[2\] is {bad}, expected 0 <= index < 4") as caught:
        call(backend, operator, change={key: index}, check_indices=True, out=packed(mine))
    assert caught.value.code == 161002
    assert caught.value.api == CASES[operator].api
    assert isinstance(caught.value, IndexError)
    assert all((array == 77).all() for array in mine), "outputs are untouched"
    call(backend, operator, change={key: index})  # without the request: dropped
    assert plain(call(backend, operator, check_indices=True)) == CASES[operator].results


@pytest.mark.parametrize("bad", [-2, 4])
def test_minus_one_is_inside_the_domain_of_padded_modes(backend: Any, bad: int) -> None:
    padded = ROWS.reshape(2, 2, 2)
    grad = dict(expanded_x=padded, drop_pad_mode=1, expert_num=2, expert_capacity=2)
    forward = dict(expanded_x=padded, drop_pad_mode=3)
    for name, change in (("moe_finalize_routing_v2_grad", grad), ("moe_finalize_routing_v2", forward)):
        fine = np.array([-1, -1, 3, 0], I32)
        call(backend, name, change={**change, "expanded_row_idx": fine}, check_indices=True)
        fine[1] = bad
        with pytest.raises(errors.IndexOutOfRangeError, match=rf"\[1\] is {bad}, expected -1 <= index < 4"):
            call(backend, name, change={**change, "expanded_row_idx": fine}, check_indices=True)


def test_expert_numbers_are_checked_on_request(backend: Any) -> None:
    wrong = np.array([[1, 0], [-2, 1]], I32)
    with pytest.raises(errors.IndexOutOfRangeError, match=r"indices\[\(1, 0\)\] is -2"):
        call(backend, "moe_token_permute_with_ep", change=dict(indices=wrong), check_indices=True)
    change = dict(expert_idx=np.array([[1, 0], [0, 2]], I32))
    with pytest.raises(errors.IndexOutOfRangeError, match=r"expertIdx\[\(1, 1\)\] is 2, expected 0 <= index < 2"):
        call(backend, "moe_init_routing_v2", change=change, check_indices=True)
    for name in ("moe_token_permute_with_ep", "moe_init_routing_v2"):
        assert plain(call(backend, name, check_indices=True)) == CASES[name].results


def test_checking_expert_numbers_needs_their_count(backend: Any) -> None:
    """Without expert_num there is no domain: saying ``0 <= index < 0`` of good input would mislead."""
    with pytest.raises(ValueError, match=r"expert_?[nN]um"):
        aclnn_py.moe_init_routing_v2(GRAD, EXPERTS, check_indices=True, backend=backend)


@pytest.mark.parametrize("expert", [2, -1, 2**31 - 1])
def test_an_expert_outside_bias_is_refused_on_the_host_unasked(backend: Any, expert: int) -> None:
    experts, bias = np.array([[0, 1], [expert, 0]], I32), np.ones((2, 2), F32)
    for name in ("moe_finalize_routing_v2_grad", "moe_finalize_routing_v2"):
        mine = outs(backend, name)
        with pytest.raises(errors.IndexOutOfRangeError, match=rf"\[\(1, 0\)\] is {expert}, expected 0 <= index < 2"):
            call(backend, name, change=dict(expert_idx=experts, bias=bias), out=packed(mine))
        assert all((array == 77).all() for array in mine)
        call(backend, name, change=dict(expert_idx=experts))  # without bias nobody reads it


# -- checks come before the library


def test_semantic_checks_run_before_any_output_is_touched(backend: Any, name: str) -> None:
    mine = outs(backend, name)
    key = next(iter(CASES[name].tensors))
    with pytest.raises(errors.AclnnError):
        call(backend, name, change={key: np.zeros((2, 2, 2, 2), F32)}, out=packed(mine))
    assert all(array is None or (array == 77).all() for array in mine)
    assert plain(call(backend, name)) == CASES[name].results


# -- the two layouts


@pytest.mark.parametrize("top_k", [1, 2, 3, 6])
def test_layouts_convert_there_and_back(top_k: int) -> None:
    index = np.random.default_rng(top_k).permutation(12).astype(I32)
    rows = aclnn_py.row_major_row_idx(index, top_k)
    for t in range(12 // top_k):
        for k in range(top_k):
            assert rows[t * top_k + k] == index[k * (12 // top_k) + t]
    assert rows.dtype == I32
    assert rows.flags.c_contiguous
    assert np.array_equal(aclnn_py.column_major_row_idx(rows, top_k), index)
    assert not np.shares_memory(rows, index)
    for function in (aclnn_py.row_major_row_idx, aclnn_py.column_major_row_idx):
        assert function(np.zeros(0, I32), top_k).shape == (0,)
        assert np.array_equal(function(index[::-1], top_k), function(index[::-1].copy(), top_k))


@pytest.mark.parametrize(("idx", "top_k"), [(np.arange(4), 3), (np.arange(4), 0), (np.arange(4), -2),
                                            (np.zeros((2, 2), int), 2), (np.array(3), 1)])  # fmt: skip
def test_an_index_that_does_not_divide_is_refused(idx: Any, top_k: int) -> None:
    for function in (aclnn_py.row_major_row_idx, aclnn_py.column_major_row_idx):
        with pytest.raises(ValueError, match="top_k") as caught:
            function(idx, top_k)
        assert str(idx.shape) in str(caught.value)


def test_the_forward_reads_columns_and_the_gradient_rows(backend: Any) -> None:
    columns = aclnn_py.column_major_row_idx(INDEX, 2)
    name = "moe_finalize_routing_v2"
    assert plain(call(backend, name, change=dict(expanded_row_idx=columns, drop_pad_mode=0))) == CASES[name].results
