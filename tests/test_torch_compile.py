"""The operators in graphs: ``opcheck``, ``torch.compile``, ``torch.export`` and shapes without data."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[test,torch]'")

import torch_moe as plain  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

from aclnn_py.interop import torch as ours  # noqa: E402

OPS = torch.ops.aclnn_py
pytestmark = pytest.mark.filterwarnings(
    # torch's own imports and tracing
    "ignore::DeprecationWarning",
    "ignore:.*(TF32|tensor cores|isinstance\\(treespec).*",
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_BACKEND", "reference")
    torch._dynamo.reset()


def finalize_inputs(mode: int, *wanted: str, **kind: Any) -> tuple[Any, ...]:
    case = plain.finalize_case(mode, **kind)
    return tuple(t.requires_grad_() if n in wanted and t is not None else t for n, t in case.items())


def samples() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    make = torch.Generator().manual_seed(2)
    index, probs = torch.randperm(6, generator=make).int(), torch.rand(3, 2, generator=make)
    rows, grad = torch.randn(6, 4, generator=make), torch.randn(3, 4, generator=make)
    both = ("expanded_x", "scales")
    finalize, grad_of = OPS.moe_finalize_routing.default, OPS.moe_finalize_routing_grad.default
    unpermute, unpermute_grad = OPS.moe_token_unpermute_with_ep.default, OPS.moe_token_unpermute_with_ep_grad.default
    x, idx, _, _, bias, scales, experts = plain.finalize_case(3, bias=True).values()
    flat = plain.finalize_case(2, bias=True)
    return {
        **{f"finalize {m}": (finalize, (*finalize_inputs(m, *both), m, False)) for m in range(4)},
        "finalize bias": (finalize, (*finalize_inputs(2, *both, bias=True), 2, False)),
        "finalize all": (finalize, (*finalize_inputs(1, *both, "x1", "x2", "bias", bias=True, extras=True), 1, True)),
        "finalize plain": (finalize, (*finalize_inputs(0, "expanded_x", scales=False, k=1), 0, False)),
        "grad 1": (grad_of, (torch.randn(5, 7), idx, x, scales, experts, bias, 1, 0, 4, 4)),
        "grad 0": (grad_of, (torch.randn(5, 7), flat["expanded_row_idx"], flat["expanded_x"], flat["scales"],
                             None, None, 0, 10, 0, 0)),
        "grad active": (grad_of, (torch.randn(5, 7), torch.arange(5).int(), None, None, None, None, 0, 2, 0, 0)),
        "unpermute": (unpermute, (rows.clone().requires_grad_(), index, probs.clone().requires_grad_(), 2, None)),
        "unpermute part": (unpermute, (rows[:3].clone().requires_grad_(), index, None, 2, [2, 5])),
        "unpermute_grad": (unpermute_grad, (grad, index, rows, probs, 2, [1, 4])),
        "unpermute_grad bare": (unpermute_grad, (grad, index, None, None, 2, None)),
    }  # fmt: skip


@pytest.mark.parametrize("name", samples())
def test_opcheck(name: str) -> None:
    operator, arguments = samples()[name]
    results = torch.library.opcheck(operator, arguments)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", samples())
def test_shapes_without_data_are_those_with_data(name: str) -> None:
    operator, arguments = samples()[name]
    arguments = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments)
    real = operator(*arguments)
    with FakeTensorMode() as mode:
        fake = operator(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))
    meta = operator(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in arguments))
    for one, two, three in zip(*(r if isinstance(r, tuple) else (r,) for r in (real, fake, meta)), strict=True):
        assert isinstance(two, FakeTensor)
        assert (one.shape, one.dtype, one.stride()) == (two.shape, two.dtype, two.stride())
        assert (one.shape, one.dtype, one.stride()) == (three.shape, three.dtype, three.stride())


def test_registered_signatures_hold_the_documented_arguments() -> None:
    for name in ours.__all__:
        public = [p for p in inspect.signature(getattr(ours, name)).parameters if p not in ("k", "all_grads")]
        schema = [a.name for a in getattr(OPS, name).default._schema.arguments if a.name != "all_grads"]
        assert public[: len(schema)] == schema


# -- compile


def finalize_step(mode: int) -> Any:
    def step(x: Any, index: Any, bias: Any, scales: Any, experts: Any) -> Any:
        return ours.moe_finalize_routing(
            x * 2, index, bias=bias, scales=scales.sigmoid(), expert_idx=experts, drop_pad_mode=mode
        )

    return step


def compare(compiled: Any, plain_step: Any, inputs: list[Any]) -> None:
    """Outputs and gradients of two functions."""
    results = []
    for step in (plain_step, compiled):
        leaves = [t.clone().requires_grad_() if t is not None and t.is_floating_point() else t for t in inputs]
        out = step(*leaves)
        out.square().sum().backward()
        results.append([out.detach(), *(t.grad for t in leaves if t is not None and t.requires_grad)])
    for one, two in zip(*results, strict=True):
        assert (one is None) == (two is None)
        assert one is None or torch.allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", range(4))
def test_compile_the_whole_graph(mode: int) -> None:
    case = plain.finalize_case(mode)
    inputs = [case[n] for n in ("expanded_x", "expanded_row_idx", "bias", "scales", "expert_idx")]
    step = finalize_step(mode)
    compare(torch.compile(step, fullgraph=True, backend="aot_eager"), step, inputs)


@pytest.mark.parametrize("around", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "fused around"])
def test_compile_with_inductor(around: bool) -> None:
    """The default compiler; around the operator it chooses strides and kernels of its own, which g++ compiles."""

    def step(x: Any, index: Any, probs: Any) -> Any:
        if not around:
            return ours.moe_token_unpermute_with_ep(x.t(), index, probs, range=(0, 5))
        rows = torch.relu(x).t().contiguous()
        return ours.moe_token_unpermute_with_ep(rows, index, probs.softmax(-1), range=(0, 6)).tanh()

    inputs = [torch.randn(4, 6), torch.randperm(6).int(), torch.randn(3, 2)]
    compare(torch.compile(step, fullgraph=True), step, inputs)


def test_compile_with_sizes_that_change() -> None:
    compiled_for = []

    def backend(graph: Any, example: Any) -> Any:
        compiled_for.append(graph)
        return torch._dynamo.backends.debugging.aot_eager(graph, example)

    step = finalize_step(2)
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    for tokens in (5, 9, 14):
        case = plain.finalize_case(2, tokens=tokens)
        inputs = [case[n] for n in ("expanded_x", "expanded_row_idx", "bias", "scales", "expert_idx")]
        compare(compiled, step, inputs)
    assert len(compiled_for) == 1, "one graph serves all sizes"


def test_compile_with_ones_for_scales_and_with_a_named_result() -> None:
    def step(x: Any, index: Any) -> Any:
        out = ours.moe_finalize_routing(x, index, drop_pad_mode=2, k=2)
        second = ours.moe_finalize_routing_grad(out.detach(), torch.arange(out.shape[0]).int())
        return out + (0 if second.grad_scales is None else 1) + second.grad_expanded_x

    inputs = [torch.randn(6, 4), torch.randperm(6).int()]
    compare(torch.compile(step, fullgraph=True, backend="aot_eager"), step, inputs)


def test_a_refusal_passes_through_a_compiled_function() -> None:
    compiled = torch.compile(finalize_step(2), fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="int64"):
        compiled(torch.randn(10, 7), torch.arange(10), None, torch.randn(5, 2), None)


# -- export


class Combine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(4, 7))

    def forward(self, x: Any, index: Any, scales: Any, experts: Any) -> Any:
        return ours.moe_finalize_routing(
            x, index, bias=self.bias, scales=scales, expert_idx=experts, drop_pad_mode=2
        ).relu()


def test_export_keeps_the_operator_and_its_numbers() -> None:
    model, case = Combine(), plain.finalize_case(2, bias=True)
    inputs = tuple(case[n] for n in ("expanded_x", "expanded_row_idx", "scales", "expert_idx"))
    tokens = torch.export.Dim("tokens", min=2, max=64)
    shapes = ({0: 2 * tokens}, {0: 2 * tokens}, {0: tokens}, {0: tokens})
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    assert [n.target for n in program.graph.nodes if "aclnn" in str(n.target)] == [OPS.moe_finalize_routing.default]
    other = plain.finalize_case(2, bias=True, tokens=9, seed=3)
    more = tuple(other[n] for n in ("expanded_x", "expanded_row_idx", "scales", "expert_idx"))
    for given in (inputs, more):
        with torch.no_grad():
            assert torch.equal(program.module()(*given), model(*given))
