"""The differentiable operators against plain torch formulas, whose own gradients ``gradcheck`` confirms."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import aclnn_py

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[test,torch]'")

import torch_moe as plain  # noqa: E402

from aclnn_py.interop import torch as ours  # noqa: E402

FLOATS = ("expanded_x", "x1", "x2", "bias", "scales")
#: bits of the significand that survive one rounding
EPS = {torch.float32: 2.0**-22, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


@pytest.fixture(autouse=True)
def on(backend: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The operators on tensors take the backend of the host from the environment."""
    monkeypatch.setenv("ACLNN_PY_BACKEND", backend.name)
    return str(backend.name)


def double(case: dict[str, Any], *wanted: str) -> dict[str, Any]:
    """The case in float64; those wanted require a gradient."""
    made = {n: t.double() if t is not None and t.is_floating_point() else t for n, t in case.items()}
    return {n: t.clone().requires_grad_() if n in wanted and t is not None else t for n, t in made.items()}


def single(case: dict[str, Any], *wanted: str) -> dict[str, Any]:
    return {n: t.clone().requires_grad_() if n in wanted and t is not None else t for n, t in case.items()}


def close(got: Any, want: Any, terms: int = 1) -> None:
    """Compare with a float64 result: one rounding of the dtype, and float32 sums of ``terms`` products."""
    assert got.shape == want.shape
    error = (got.double() - want).abs()
    size = want.abs().max().item() if want.numel() else 0.0
    bound = EPS[got.dtype] * want.abs() + terms * 2.0**-22 * (1 + size)
    assert (error <= bound).all(), f"{error.max().item()} beyond {bound.max().item()}"


# -- finalize


@pytest.mark.parametrize("extras", [False, True], ids=["", "x1x2"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_finalize_and_its_gradients_in_every_mode(mode: int, bias: bool, extras: bool) -> None:
    case = plain.finalize_case(mode, bias=bias, extras=extras, seed=mode)
    wanted = FLOATS if extras or bias else ("expanded_x", "scales")
    truth = double(case, *wanted)
    inputs = tuple(truth[n] for n in wanted if truth[n] is not None)
    rest = {n: t for n, t in truth.items() if n not in wanted}

    def formula(*tensors: Any) -> Any:
        given = dict(zip([n for n in wanted if truth[n] is not None], tensors, strict=True))
        calls = {**rest, **given}
        return plain.finalize(calls.pop("expanded_x"), calls.pop("expanded_row_idx"), mode=mode, **calls)

    assert torch.autograd.gradcheck(formula, inputs)
    want = formula(*inputs)
    call = single(case, *wanted)
    got = ours.moe_finalize_routing(**call, drop_pad_mode=mode, all_grads=True)
    assert got.dtype is torch.float32
    close(got, want, 8)
    grad = torch.randn(want.shape, generator=torch.Generator().manual_seed(9))
    want.backward(grad.double())
    got.backward(grad)
    for name in wanted:
        if truth[name] is None:
            continue
        mine, theirs = call[name].grad, truth[name].grad
        if name == "scales" and bias:
            # CANN's operator keeps the bias of a dropped slot, which the forward has skipped
            lost = plain.dropped(case, mode)
            theirs = torch.where(
                lost, (case["bias"][case["expert_idx"].long()].double() * grad[:, None]).sum(-1), theirs
            )
            assert lost.any() == (mode % 2 == 1)
        close(mine, theirs, 16)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_finalize_in_16_bits(mode: int, dtype: Any) -> None:
    case = plain.finalize_case(mode, bias=True, hidden=24, seed=mode + 10, drop=0.0, dtype=dtype)
    truth, call = double(case, "expanded_x", "scales"), single(case, "expanded_x", "scales")
    want = plain.finalize(truth["expanded_x"], truth["expanded_row_idx"], mode=mode, **{
        n: truth[n] for n in ("bias", "scales", "expert_idx")
    })  # fmt: skip
    got = ours.moe_finalize_routing(**call, drop_pad_mode=mode)
    close(got, want, 4)
    grad = torch.randn(want.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    want.backward(grad.double())
    got.backward(grad)
    close(call["expanded_x"].grad, truth["expanded_x"].grad)
    close(call["scales"].grad, truth["scales"].grad, 24)
    assert call["scales"].grad.dtype is dtype


def test_mixed_dtypes_give_gradients_of_their_own_dtypes() -> None:
    """bfloat16 tokens with float32 scales: the forward takes them on A2, the gradient operator does not."""
    case = plain.finalize_case(2, bias=True, dtype=torch.bfloat16)
    case["scales"] = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    truth, call = double(case, "expanded_x", "scales"), single(case, "expanded_x", "scales")
    want = plain.finalize(truth["expanded_x"], truth["expanded_row_idx"], None, None, truth["bias"], truth["scales"],
                          truth["expert_idx"], mode=2)  # fmt: skip
    got = ours.moe_finalize_routing(**call, drop_pad_mode=2)
    grad = torch.ones(5, 7, dtype=torch.bfloat16)
    want.backward(grad.double())
    got.backward(grad)
    assert (call["expanded_x"].grad.dtype, call["scales"].grad.dtype) == (torch.bfloat16, torch.float32)
    close(call["expanded_x"].grad, truth["expanded_x"].grad)
    close(call["scales"].grad, truth["scales"].grad, 8)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_without_scales_they_are_ones(mode: int) -> None:
    for k in (1, 2):
        case = plain.finalize_case(mode, scales=False, k=k, seed=k)
        truth, call = double(case, "expanded_x"), single(case, "expanded_x")
        want = plain.finalize(truth["expanded_x"], truth["expanded_row_idx"], mode=mode, k=k)
        got = ours.moe_finalize_routing(**call, drop_pad_mode=mode, k=k)
        close(got, want, 4)
        want.sum().backward()
        got.sum().backward()
        assert torch.equal(call["expanded_x"].grad.double(), truth["expanded_x"].grad)


def test_rows_that_nobody_names_have_no_gradient() -> None:
    case = single(plain.finalize_case(3, drop=1.0), "expanded_x", "scales")
    ours.moe_finalize_routing(**case, drop_pad_mode=3).sum().backward()
    assert not case["expanded_x"].grad.any()
    assert not case["scales"].grad.any()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the operators that run from now on."""
    from aclnn_py.ops import _common

    run, calls = _common.OperatorCall.run, []

    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        calls.append(self.api)
        run(self, *args, **kwargs)

    monkeypatch.setattr(_common.OperatorCall, "run", noting)
    return calls


def test_the_gradient_runs_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    case = plain.finalize_case(2, extras=True)
    call = single(case, "x1")
    with pytest.warns(UserWarning, match="x1, x2 and bias"):
        ours.moe_finalize_routing(**call, drop_pad_mode=2).sum().backward()
    assert calls == ["aclnnMoeFinalizeRoutingV2"]
    assert call["x1"].grad is None
    for wanted in ("expanded_x", "scales"):
        calls.clear()
        call = single(case, wanted)
        ours.moe_finalize_routing(**call, drop_pad_mode=2).sum().backward()
        assert calls == ["aclnnMoeFinalizeRoutingV2", "aclnnMoeFinalizeRoutingV2Grad"]
        assert call[wanted].grad is not None
    calls.clear()
    assert not ours.moe_finalize_routing(**case, drop_pad_mode=2).requires_grad
    with torch.no_grad():
        assert not ours.moe_finalize_routing(**call, drop_pad_mode=2).requires_grad
    call = single(case, "expanded_x", "x1", "x2")
    ours.moe_finalize_routing(**call, drop_pad_mode=2, all_grads=True).sum().backward()
    assert torch.equal(call["x2"].grad, torch.ones(5, 7))
    assert calls == ["aclnnMoeFinalizeRoutingV2"] * 3 + ["aclnnMoeFinalizeRoutingV2Grad"]


@pytest.mark.parametrize("name", ["x1", "x2", "bias"])
def test_a_gradient_that_does_not_exist_is_warned_of(name: str) -> None:
    call = single(plain.finalize_case(0, extras=True, bias=True), "expanded_x", "scales", name)
    out = ours.moe_finalize_routing(**call)
    with pytest.warns(UserWarning, match=r"do not exist in CANN.*all_grads=True"):
        out.sum().backward()
    assert call[name].grad is None
    assert call["expanded_x"].grad is not None


# -- the gradient as an operator of its own


def test_the_gradient_operator_is_that_of_the_package() -> None:
    case = plain.finalize_case(3, bias=True)
    grad = torch.ones(5, 7)
    inputs = (grad, case["expanded_row_idx"], case["expanded_x"], case["scales"], case["expert_idx"], case["bias"])
    sizes = {"drop_pad_mode": 1, "expert_num": 4, "expert_capacity": 4}
    got = ours.moe_finalize_routing_grad(*inputs, **sizes)
    want = aclnn_py.moe_finalize_routing_v2_grad(*inputs, **sizes)
    assert torch.equal(got.grad_expanded_x, want.grad_expanded_x)
    assert torch.equal(got.grad_scales, want.grad_scales)
    assert got._fields == want._fields
    alone = ours.moe_finalize_routing_grad(grad, torch.arange(5).int())
    assert alone.grad_scales is None
    raw = torch.ops.aclnn_py.moe_finalize_routing_grad(grad, torch.arange(5).int(), None, None, None, None, 0, 0, 0, 0)
    assert raw[1].shape == (0,)
    few = ours.moe_finalize_routing_grad(grad, torch.tensor([4, 3, 2, 1, 0]).int(), active_num=2)
    assert few.grad_expanded_x.shape == (2, 7)


def test_double_backward_is_refused_clearly() -> None:
    call = single(plain.finalize_case(2), "expanded_x", "scales")
    (grad,) = torch.autograd.grad(
        ours.moe_finalize_routing(**call, drop_pad_mode=2).square().sum(), call["scales"], create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"double backward: CANN has no operator"):
        grad.sum().backward()
    rows = torch.randn(4, 3, requires_grad=True)
    probs = torch.rand(2, 2, requires_grad=True)
    out = ours.moe_token_unpermute_with_ep(rows, torch.arange(4).int(), probs)
    (grad,) = torch.autograd.grad(out.sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match=r"double backward: CANN has no operator"):
        grad.sum().backward()


# -- un-permute


@pytest.mark.parametrize("rows", ["all", "own"])
@pytest.mark.parametrize("part", [None, (0, 8), (2, 7), (3, 3), (5, 8), (-4, -1)], ids=str)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "probs"])
def test_unpermute_and_its_gradients(weighted: bool, part: Any, rows: str) -> None:
    make = torch.Generator().manual_seed(4)
    start, end = (0, 8) if part is None else tuple(e + 8 if e < 0 else e for e in part)
    index = torch.randperm(8, generator=make).int()
    tokens = torch.randn(8 if rows == "all" else end - start, 5, generator=make)
    probs = torch.randn(4, 2, generator=make) if weighted else None
    inputs = [t.double().requires_grad_() for t in (tokens, probs) if t is not None]

    def formula(permuted: Any, *weights: Any) -> Any:
        return plain.unpermute(permuted, index, *weights, topk=2, start=start, end=end)

    assert torch.autograd.gradcheck(formula, inputs)
    want = formula(*inputs)
    call = [t.clone().requires_grad_() for t in (tokens, probs) if t is not None]
    got = ours.moe_token_unpermute_with_ep(call[0], index, *call[1:], topk_num=2, range=part)
    close(got, want, 4)
    grad = torch.randn(4, 5, generator=make)
    want.backward(grad.double())
    got.backward(grad)
    for mine, theirs in zip(call, inputs, strict=True):
        assert mine.grad.shape == theirs.shape
        close(mine.grad, theirs.grad, 8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_unpermute_in_16_bits_with_float32_probs(dtype: Any) -> None:
    make = torch.Generator().manual_seed(6)
    index, tokens = torch.randperm(12, generator=make).int(), torch.randn(12, 16, generator=make).to(dtype)
    probs, grad = torch.rand(4, 3, generator=make), torch.randn(4, 16, generator=make).to(dtype)
    truth = [t.double().requires_grad_() for t in (tokens, probs)]
    call = [t.clone().requires_grad_() for t in (tokens, probs)]
    want, got = plain.unpermute(truth[0], index, truth[1]), ours.moe_token_unpermute_with_ep(call[0], index, call[1])
    close(got, want, 4)
    want.backward(grad.double())
    got.backward(grad)
    assert (call[0].grad.dtype, call[1].grad.dtype) == (dtype, torch.float32)
    close(call[0].grad, truth[0].grad)
    close(call[1].grad, truth[1].grad, 16)


def test_unpermute_defaults_to_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    rows = torch.randn(3, 2, requires_grad=True)
    index = torch.tensor([2, 0, 1]).int()
    out = ours.moe_token_unpermute_with_ep(rows, index)
    assert torch.equal(out, rows.detach()[index.long()])
    out.backward(torch.ones(3, 2))
    assert torch.equal(rows.grad, torch.ones(3, 2))
    assert calls == ["aclnnMoeTokenUnpermuteWithEp", "aclnnMoeTokenUnpermuteWithEpGrad"]
    probs = torch.rand(3, 1, requires_grad=True)
    ours.moe_token_unpermute_with_ep(rows.detach(), index, probs).sum().backward()
    assert torch.allclose(probs.grad[:, 0], rows.detach()[index.long()].sum(1))


# -- errors


V4 = {
    "x": torch.ones(1), "alpha1": torch.ones(1), "alpha2": torch.ones(1), "v": torch.ones(1),
    "zero_expert_range": (0, 1), "copy_expert_range": [1, 2], "constant_expert_range": (2, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", V4)
def test_inputs_of_v4_are_refused_with_the_reason(name: str) -> None:
    case = plain.finalize_case(0)
    with pytest.raises(NotImplementedError, match=rf"{name} belong to aclnnMoeFinalizeRoutingV4 .*no gradient"):
        ours.moe_finalize_routing(**case, **{name: V4[name]})
    none = dict.fromkeys(("zero_expert_range", "copy_expert_range", "constant_expert_range"), (-1, -1))
    assert torch.isfinite(ours.moe_finalize_routing(**case, **none)).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": 0}, ValueError, "k is 0"),
        ({"scales": None, "k": 3}, ValueError, "10 entries, expected a multiple of 3"),
        ({"k": 3}, ValueError, "k is 3, but scales has 2 columns"),
        ({"drop_pad_mode": 4}, aclnn_py.InnerNullptrError, "dropPadMode"),
        ({"expanded_row_idx": torch.arange(10)}, aclnn_py.InvalidParameterError, "int64"),
        ({"scales": torch.ones(5, 2).half()}, aclnn_py.InnerNullptrError, "scalesOptional"),
        ({"bias": torch.ones(4, 7)}, aclnn_py.InnerNullptrError, "expertIdxOptional"),
        ({"x2": torch.ones(5, 7)}, aclnn_py.InnerNullptrError, "x1Optional"),
        ({"expanded_x": torch.ones(10, 7).double()}, aclnn_py.InvalidParameterError, "float64"),
        ({"expanded_x": [1.0]}, RuntimeError, "expanded_x"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ours.moe_finalize_routing(**{**plain.finalize_case(0), **change})


def test_errors_of_the_others() -> None:
    rows, index = torch.ones(4, 3), torch.arange(4).int()
    with pytest.raises(aclnn_py.TilingError, match="numTopk"):
        ours.moe_token_unpermute_with_ep(rows, index, topk_num=0)
    with pytest.raises(aclnn_py.TilingError, match="start <= end"):
        ours.moe_token_unpermute_with_ep(rows, index, range=(3, 1))
    with pytest.raises(aclnn_py.InnerNullptrError, match="expandedXOptional"):
        ours.moe_finalize_routing_grad(rows, index, scales=torch.ones(4, 1))


def test_an_unknown_backend_of_the_environment_leaves_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors are never taken to a device behind the caller's back."""
    monkeypatch.setenv("ACLNN_PY_BACKEND", "npu")
    rows = torch.ones(2, 2)
    assert torch.equal(ours.moe_token_unpermute_with_ep(rows, torch.tensor([1, 0]).int()), rows)


# -- a layer


class Layer(torch.nn.Module):
    """Router, dispatch, experts, finalize; the operators or the formulas at both ends."""

    def __init__(self, operators: bool, mode: int, capacity: int = 0) -> None:
        super().__init__()
        self.operators, self.mode, self.capacity = operators, mode, capacity
        make = torch.Generator().manual_seed(7)
        self.router = torch.nn.Parameter(torch.randn(8, 4, generator=make) * 0.5)
        self.up = torch.nn.Parameter(torch.randn(4, 8, 12, generator=make) * 0.3)
        self.down = torch.nn.Parameter(torch.randn(4, 12, 8, generator=make) * 0.3)
        self.bias = torch.nn.Parameter(torch.randn(4, 8, generator=make) * 0.1)

    def forward(self, x: Any) -> Any:
        probs, experts = torch.topk(torch.softmax(x @ self.router, -1), 2)
        index = self.dispatch(x, experts.int())
        kept = index >= 0
        if self.mode == 2:
            order = torch.argsort(index)
            rows, owner = x[order // 2], experts.flatten()[order]
            out = torch.bmm(torch.relu(torch.bmm(rows[:, None], self.up[owner])), self.down[owner])[:, 0]
        else:
            slots = torch.arange(index.numel())[kept]
            rows = x.new_zeros(4 * self.capacity, 8).index_put((index[kept].long(),), x[slots // 2])
            rows = rows.reshape(4, self.capacity, 8)
            out = torch.bmm(torch.relu(torch.bmm(rows, self.up)), self.down)
        # the operator's gradient of a dropped slot's scale keeps the bias: no bias where slots are dropped
        bias, idx = (self.bias, experts.int()) if self.mode == 2 else (None, None)
        if self.operators:
            return ours.moe_finalize_routing(
                out, index, x, None, bias, probs, idx, drop_pad_mode=self.mode, all_grads=True
            )
        return plain.finalize(out, index, x, None, bias, probs, idx, mode=self.mode)

    def dispatch(self, x: Any, experts: Any) -> Any:
        if self.operators:
            padded = {} if self.mode == 2 else {"drop_pad_mode": 1, "expert_capacity": self.capacity, "expert_num": 4}
            return aclnn_py.moe_init_routing_v2(x.detach(), experts, **padded).expanded_row_idx
        flat = experts.flatten().long()
        order = torch.argsort(flat, stable=True)
        if self.mode == 2:
            return torch.argsort(order).int()
        rank = torch.argsort(order) - torch.searchsorted(flat[order], flat)
        return torch.where(rank < self.capacity, flat * self.capacity + rank, -1).int()


@pytest.mark.parametrize(("mode", "capacity"), [(2, 0), (3, 5)], ids=["dropless", "drop and pad"])
def test_a_layer_trains_as_the_same_layer_in_plain_torch(mode: int, capacity: int) -> None:
    make = torch.Generator().manual_seed(8)
    x, target = torch.randn(16, 8, generator=make), torch.randn(16, 8, generator=make)
    layers = [Layer(operators, mode, capacity) for operators in (True, False)]
    losses: list[list[float]] = [[], []]
    for layer, seen in zip(layers, losses, strict=True):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
        for _ in range(6):
            optimizer.zero_grad()
            loss = (layer(x) - target).square().mean()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loss.backward()
            optimizer.step()
            seen.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][-1] < 0.99 * losses[0][0], "it learns"
    for (name, mine), theirs in zip(layers[0].named_parameters(), layers[1].parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6), name
        if name != "bias" or mode == 2:
            assert mine.grad is not None, name
    if mode == 3:
        assert (layers[0].dispatch(x, torch.topk(x @ layers[0].router, 2).indices.int()) < 0).any(), "some are dropped"
