"""torch CPU tensors as arguments: the same memory as NumPy's, torch in and torch out, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclnn_py
from aclnn_py import arrays, dtypes

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[test,torch]'")

from aclnn_py.interop import tensors  # noqa: E402

GRAD = "aclnnMoeFinalizeRoutingV2Grad"
#: every torch dtype of the table, with one that it lacks
DTYPES = [getattr(torch, dtypes.torch_name(dtypes.from_acl(value))) for value in dtypes._BY_ACL]


def case(dtype: Any = torch.float32) -> dict[str, Any]:
    """Arguments of the V2 gradient: R = 3, K = 2, H = 5; exact in 16 bits."""
    make = torch.Generator().manual_seed(5)
    whole = lambda *shape: torch.randint(-4, 5, shape, generator=make).to(dtype)  # noqa: E731
    return {
        "grad_y": whole(3, 5),
        "expanded_row_idx": torch.randperm(6, generator=make).int(),
        "expanded_x": whole(6, 5),
        "scales": whole(3, 2),
        "expert_idx": torch.randint(0, 4, (3, 2), generator=make).int(),
        "bias": whole(4, 5),
    }


def to_numpy(tensor: Any) -> Any:
    """The values of a tensor, by way of a list and not of the code under test."""
    return np.array(tensor.to(torch.float64).tolist()).reshape(tensor.shape)


# -- memory


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_shares_memory_both_ways(dtype: Any) -> None:
    tensor = torch.zeros(3, dtype=torch.uint8).repeat_interleave(16)[: 2 * dtype.itemsize].view(dtype)
    view = arrays.as_array("x", tensor)
    assert view.dtype == tensors.numpy_dtype(dtype)
    assert tensors.torch_dtype(view.dtype) == dtype
    assert view.ctypes.data == tensor.data_ptr()
    view.view(np.uint8)[-1] = 1  # True in bool, the sign-and-exponent byte or the high byte elsewhere
    assert tensor.view(torch.uint8)[-1] == 1
    tensor.view(torch.uint8)[0] = 1
    assert view.view(np.uint8)[0] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize(
    "cut",
    [
        lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[2, 3], lambda t: t[:0],
        lambda t: t[:1].expand(4, 6), lambda t: t.as_strided((2, 2), (1, 1), 3),
    ],
    ids=["whole", "transposed", "strided", "0-d", "empty", "expanded", "overlapping"],
)  # fmt: skip
def test_views_keep_shape_strides_and_offset(dtype: Any, cut: Any) -> None:
    tensor = cut(torch.arange(24, dtype=torch.uint8).reshape(4, 6).to(dtype))
    view = tensors._view("x", tensor)
    assert view.shape == tuple(tensor.shape)
    if view.size:
        assert [s // view.itemsize for s, n in zip(view.strides, view.shape, strict=True) if n > 1] == [
            s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1
        ]
        assert view.ctypes.data == tensor.data_ptr()
        assert np.array_equal(view.astype(np.float64), to_numpy(tensor))


# -- operators: torch in, torch out, the numbers of NumPy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_gradient_gives_the_same_bits_as_with_numpy(backend: Any, dtype: Any) -> None:
    given = case(dtype)
    views = {name: np.array(tensors._view(name, tensor)) for name, tensor in given.items()}
    before = {name: tensor.clone() for name, tensor in given.items()}
    expected = aclnn_py.moe_finalize_routing_v2_grad(**views, backend=backend)
    result = aclnn_py.moe_finalize_routing_v2_grad(**given, backend=backend)
    for got, want in zip(result, expected, strict=True):
        assert type(got) is torch.Tensor
        assert got.dtype is dtype
        assert got.is_contiguous()
        assert tensors._view("x", got).tobytes() == want.tobytes()
    assert all(torch.equal(given[name], before[name]) for name in given), "inputs stay as they were"


def test_strided_inputs_need_no_copy_by_the_caller(backend: Any) -> None:
    given = case()
    expected = aclnn_py.moe_finalize_routing_v2_grad(**given, backend=backend)
    strided = {
        name: torch.stack([t, torch.full_like(t, 99)], -1)[..., 0] if t.ndim == 1 else t.t().contiguous().t()
        for name, t in given.items()
    }
    assert not any(t.is_contiguous() for t in strided.values())
    result = aclnn_py.moe_finalize_routing_v2_grad(**strided, backend=backend)
    assert torch.equal(result.grad_expanded_x, expected.grad_expanded_x)
    assert torch.equal(result.grad_scales, expected.grad_scales)


def test_each_of_the_seven_takes_and_returns_tensors(backend: Any) -> None:
    make = torch.Generator().manual_seed(1)
    x = torch.randint(-4, 5, (4, 3), generator=make).float()
    experts = torch.tensor([[1, 2], [3, 1], [2, 3], [0, 1]], dtype=torch.int32)
    scales = torch.tensor([[1.0, 2.0], [0.5, 4.0], [2.0, 1.0], [8.0, 0.25]])
    options = {"backend": backend}
    routed = aclnn_py.moe_init_routing_v2(x, experts, expert_num=4, expert_tokens_count_or_cumsum_flag=2, **options)
    assert routed.expert_tokens_count_or_cumsum.tolist() == [1, 3, 2, 2]
    order = torch.argsort(experts.flatten(), stable=True)
    assert torch.equal(routed.expanded_x, x[order // 2])
    index = routed.expanded_row_idx
    assert torch.equal(index.long(), torch.argsort(order))
    by_token = (x[:, None] * scales[..., None]).sum(1)
    assert torch.equal(
        aclnn_py.moe_finalize_routing_v2(x[order // 2], index, scales=scales, drop_pad_mode=2, **options), by_token
    )
    moved = aclnn_py.moe_token_permute_with_ep(x, experts, scales, range=(1, 6), **options)
    assert torch.equal(moved.permute_tokens, x[order // 2][1:6])
    assert torch.equal(moved.permute_probs, scales.flatten()[order][1:6])
    inside = ((moved.sorted_indices >= 1) & (moved.sorted_indices < 6)).reshape(4, 2)
    part = aclnn_py.moe_token_unpermute_with_ep(moved.permute_tokens, index, scales, range=(1, 6), **options)
    assert torch.equal(part, (x[:, None] * (scales * inside)[..., None]).sum(1))
    # 5 rows, so that the gradient pads to 8 for the C call and slices
    grads = aclnn_py.moe_token_unpermute_with_ep_grad(x, index, moved.permute_tokens, scales, range=(1, 6), **options)
    assert torch.equal(grads.permuted_tokens_grad, (x[order // 2] * scales.flatten()[order][:, None])[1:6])
    assert torch.equal(grads.probs_grad, (x * x).sum(1, keepdim=True) * inside)
    back = aclnn_py.moe_token_permute_with_ep_grad(
        moved.permute_tokens, index, moved.permute_probs, num_topk=2, range=(1, 6), **options
    )
    assert torch.equal(back.token_grad, x * inside.sum(1, keepdim=True))
    assert torch.equal(back.probs_grad, scales * inside)
    empty = aclnn_py.moe_token_unpermute_with_ep_grad(x, index, x[:0], scales, range=(3, 3), **options)
    assert empty.permuted_tokens_grad.shape == (0, 3)
    assert not empty.probs_grad.any()
    assert type(empty.probs_grad) is torch.Tensor


def test_out_is_filled_and_returned(backend: Any) -> None:
    given = case()
    expected = aclnn_py.moe_finalize_routing_v2_grad(**given, backend=backend)
    outs = torch.full((6, 5), -7.0), torch.full((3, 2), -7.0)
    result = aclnn_py.moe_finalize_routing_v2_grad(**given, out=outs, backend=backend)
    assert all(got is out for got, out in zip(result, outs, strict=True))
    assert all(torch.equal(got, want) for got, want in zip(result, expected, strict=True))
    half = aclnn_py.moe_finalize_routing_v2_grad(**given, out=(None, outs[1].fill_(-7)), backend=backend)
    assert half.grad_scales is outs[1]
    assert torch.equal(half.grad_scales, expected.grad_scales)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (lambda g: (torch.zeros(6, 4), None), ValueError, "shape"),
        (lambda g: (torch.zeros(6, 5, dtype=torch.float16), None), TypeError, "float16"),
        (lambda g: (torch.zeros(5, 6).t(), None), ValueError, "contiguous"),
        (lambda g: (g["expanded_x"], None), ValueError, "overlaps the input"),
        (lambda g: (np.zeros((6, 5), np.float32), None), TypeError, "torch CPU tensor"),
        (lambda g: (torch.zeros(6, 5, requires_grad=True), None), RuntimeError, "detach"),
    ],
)
def test_an_unsuitable_out_is_refused(backend: Any, out: Any, error: type[Exception], words: str) -> None:
    given = case()
    with pytest.raises(error, match=words):
        aclnn_py.moe_finalize_routing_v2_grad(**given, out=out(given), backend=backend)


def test_op_and_executor_take_tensors(backend: Any) -> None:
    x, y, out = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3), torch.empty(2, 3)
    aclnn_py.op("aclnnAdd")(x, y, 2.0, out, backend=backend)
    assert torch.equal(out, x + 2)
    with aclnn_py.op("aclnnMuls", backend=backend).bind(x, 3.0, out) as triple:
        triple()
        assert torch.equal(out, x * 3)
        triple(self=y)
        assert torch.equal(out, y * 3)
    pieces = [torch.tensor([1.0]), torch.tensor([2.0, 3.0])]
    joined = torch.empty(3)
    aclnn_py.op("aclnnCat")(pieces, 0, joined, backend=backend)
    assert joined.tolist() == [1, 2, 3]
    with aclnn_py.Executor("aclnnNeg", x, out, backend=backend) as executor:
        executor.run()
    assert torch.equal(out, -x)


def test_an_executor_takes_kinds_together(backend: Any) -> None:
    """Only the Pythonic operators insist on one kind: they have to choose that of the result."""
    out = torch.empty(3)
    aclnn_py.op("aclnnAdd")(np.ones(3, np.float32), torch.ones(3), 1.0, out, backend=backend)
    assert out.tolist() == [2, 2, 2]


def test_device_arrays_are_made_from_tensors(backend: Any) -> None:
    if backend.name == "reference":
        pytest.skip("the reference has no device memory")
    tensor = torch.arange(6.0).reshape(2, 3).bfloat16().t()
    array = backend.to_device(tensor)
    assert np.array_equal(array.numpy().astype(np.float64), to_numpy(tensor))


def test_helpers_keep_the_kind() -> None:
    index = torch.tensor([0, 1, 2, 3, 4, 5], dtype=torch.int32)
    rows = aclnn_py.row_major_row_idx(index, 3)
    assert rows.tolist() == [0, 2, 4, 1, 3, 5]
    assert rows.dtype is torch.int32
    assert torch.equal(aclnn_py.column_major_row_idx(rows, 3), index)
    assert aclnn_py.row_major_row_idx(index[:0], 3).shape == (0,)
    same = aclnn_py.row_major_row_idx(index, 1)
    same[0] = 9
    assert index[0] == 0, "the result is new memory"
    with pytest.raises(ValueError, match="dividing its length"):
        aclnn_py.row_major_row_idx(index, 4)
    made = aclnn_py.empty_like(torch.zeros(2, 3, dtype=torch.bfloat16).t())
    assert (made.shape, made.dtype, made.is_contiguous()) == ((3, 2), torch.bfloat16, True)


def test_parameters_and_subclasses_are_tensors(backend: Any) -> None:
    class Mine(torch.Tensor):
        pass

    x, out = torch.nn.Parameter(torch.ones(3)), torch.empty(3)
    with torch.no_grad():
        aclnn_py.op("aclnnNeg")(x, out, backend=backend)
    assert out.tolist() == [-1, -1, -1]
    aclnn_py.op("aclnnNeg")(torch.ones(3).as_subclass(Mine), out.zero_(), backend=backend)
    assert out.tolist() == [-1, -1, -1]


# -- refusals


def lazily_conjugated() -> Any:
    return torch.ones(2, 2, dtype=torch.complex64).conj()


REFUSED = {
    "sparse": (lambda: torch.eye(2).to_sparse(), TypeError, r"sparse.*to_dense\(\)"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8), TypeError, "quantized"),
    "meta": (lambda: torch.empty(2, 2, device="meta"), TypeError, "device 'meta'.*'cpu' and 'npu'"),
    "conj": (lazily_conjugated, TypeError, r"resolve_conj\(\)"),
    "neg": (lambda: lazily_conjugated().imag, TypeError, r"resolve_neg\(\)"),
    "complex32": (lambda: torch.zeros(2, dtype=torch.complex32), TypeError, "complex32 has no aclDataType"),
    "grad": (lambda: torch.ones(2, 2, requires_grad=True), RuntimeError, r"requires a gradient.*\.detach\(\)"),
    "non-leaf": (lambda: torch.ones(2, 2, requires_grad=True) * 2, RuntimeError, r"requires a gradient"),
    "dtype": (lambda: torch.float32, TypeError, "takes an array, got dtype"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*(quantiz|ComplexHalf).*:UserWarning")
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_used_in_place_is_refused(backend: Any, what: str) -> None:
    make, error, words = REFUSED[what]
    with pytest.raises(error, match=words) as caught:
        aclnn_py.op("aclnnNeg")(make(), torch.empty(2, 2), backend=backend)
    assert "aclnnNeg: argument 'self'" in str(caught.value)


def test_fake_tensors_are_refused_by_name(backend: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(2)
    with pytest.raises(TypeError, match="FakeTensor, a tensor without memory"):
        aclnn_py.op("aclnnNeg")(fake, torch.empty(2), backend=backend)


def test_wrapped_tensors_of_transforms_are_refused(backend: Any) -> None:
    with pytest.raises(TypeError, match="'self' is a tensor whose memory NumPy cannot see"):
        torch.func.vmap(lambda row: aclnn_py.op("aclnnNeg")(row, torch.empty(2), backend=backend))(torch.ones(3, 2))


def test_a_gradient_is_refused_only_where_it_would_be_lost(backend: Any) -> None:
    given = case()
    given["expanded_x"].requires_grad_()
    with pytest.raises(RuntimeError, match="'expandedXOptional' requires a gradient"):
        aclnn_py.moe_finalize_routing_v2_grad(**given, backend=backend)
    with torch.no_grad():
        result = aclnn_py.moe_finalize_routing_v2_grad(**given, backend=backend)
    assert not result.grad_expanded_x.requires_grad

    class Negate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = torch.empty_like(x)
            aclnn_py.op("aclnnNeg")(x, out, backend=backend)
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return -grad

    x = torch.ones(3, requires_grad=True)
    Negate.apply(x).sum().backward()
    assert x.grad.tolist() == [-1, -1, -1]


def test_kinds_are_not_mixed_by_the_operators(backend: Any) -> None:
    given = case()
    given["scales"] = given["scales"].numpy()
    with pytest.raises(
        TypeError, match=r"torch tensor on cpu.*'scalesOptional' \(ndarray\) are arrays of different kinds"
    ):
        aclnn_py.moe_finalize_routing_v2_grad(**given, backend=backend)


def test_a_tensor_is_no_list_of_tensors(backend: Any) -> None:
    with pytest.raises(TypeError, match="a list of arrays"):
        aclnn_py.op("aclnnCat")(torch.ones(2, 2), 0, torch.empty(4), backend=backend)


def test_statuses_are_those_of_numpy(backend: Any) -> None:
    given = case()
    with pytest.raises(aclnn_py.InvalidParameterError, match="int64") as caught:
        aclnn_py.moe_finalize_routing_v2_grad(**{**given, "expanded_row_idx": given["expanded_row_idx"].long()})
    assert caught.value.code == 161002
    with pytest.raises(aclnn_py.InnerNullptrError) as caught:
        aclnn_py.moe_finalize_routing_v2_grad(**{**given, "scales": given["scales"][:2]}, backend=backend)
    assert caught.value.code == 561103
    with pytest.raises(aclnn_py.IndexOutOfRangeError, match=r"expandedRowIdx\[0\] is 6"):
        aclnn_py.moe_finalize_routing_v2_grad(
            **{**given, "expanded_row_idx": torch.tensor([6, 1, 2, 3, 4, 5], dtype=torch.int32)},
            check_indices=True, backend=backend,
        )  # fmt: skip


# -- imports


def python(code: str, path: Path | None = None) -> Any:
    command = [sys.executable, "-W", "error", "-c", f"import sys; sys.path[:0] = {[str(path)] if path else []}\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_torch_is_imported_by_nobody_but_the_caller() -> None:
    assert (
        python("""
import json, sys, numpy as np, aclnn_py
x = np.ones((1, 1), np.float32)
aclnn_py.moe_finalize_routing_v2_grad(x, np.zeros(1, np.int32), backend="reference")
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "torch" or "interop" in name]))
""")
        == []
    )


def test_a_host_whose_torch_is_broken_is_served(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: undefined symbol')")
    assert python(
        """
import json, numpy as np, aclnn_py
x = np.ones((1, 1), np.float32)
refused = None
try:
    import torch
except ImportError:
    pass
try:
    import aclnn_py.interop.torch
except ImportError as error:
    refused = str(error)
result = aclnn_py.moe_finalize_routing_v2_grad(x, np.zeros(1, np.int32), backend="reference")
print(json.dumps([refused, result.grad_expanded_x.tolist()]))
""",
        tmp_path,
    ) == ["libtorch.so: undefined symbol", [[1.0]]]


def test_exit_is_clean_in_either_order_of_import() -> None:
    for order in ("import torch, aclnn_py", "import aclnn_py, torch"):
        assert python(f"""
{order}
import json
out = torch.empty(2)
aclnn_py.op("aclnnNeg", backend="reference")(torch.ones(2), out)
print(json.dumps(out.tolist()))
""") == [-1, -1]
