"""Elementwise operators: one plan, and a row for each function.

Operands are converted to their common type; 16-bit floats are computed in float32. Transcendental functions are
computed in float64, and so are within half a unit of the last place of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .core_checks import CoreChecks, Stages, Work, is_tensor, stages
from .core_types import ACCEPTED, FLOATING, INTEGRAL, NUMERIC, category, convert, plain, scalar_array, store
from .numerics import Array

_SAME, _FLOAT, _COMPARE, _LOGICAL = range(4)


@dataclass(frozen=True)
class _Row:
    """An elementwise operator.

    Attributes
    ----------
    function : callable
        Computes on plain arrays of one dtype; absent optional operands are None.
    rule : int
        How the result's type follows from the operands' common type: the same; floating; bool, after a comparison
        in the common type; bool, after each operand is made one.
    accepted : tuple of str
        Common types.
    inputs : tuple of str
        Operands that take part in promotion and broadcasting.
    out : str
        The output, which may be an operand.
    optional : tuple of str
        Operands of which all but one may be null.
    alpha : str
        A factor that takes no part in promotion.
    check : callable, optional
        Further refusals, given the common type.
    """

    function: Callable[..., Any]
    rule: int = _SAME
    accepted: tuple[str, ...] = ACCEPTED
    inputs: tuple[str, ...] = ("self",)
    out: str = "out"
    optional: tuple[str, ...] = ()
    alpha: str = ""
    check: Callable[[CoreChecks, str], None] | None = None


def _operand(value: Any, name: str) -> Array | None:
    if value is None:
        return None
    return convert(value, name) if is_tensor(value) else scalar_array(value, name)


def _plan(row: _Row, checks: CoreChecks) -> Work:
    args = checks.args
    factors = (row.alpha,) if row.alpha else ()
    checks.require(*(n for n in (*row.inputs, *factors, row.out) if n not in row.optional))
    if row.optional and all(args[name] is None for name in row.optional):
        checks.require(row.optional[0])
    checks.accept((*row.inputs, *factors, row.out))
    common = checks.promoted(row.inputs)
    if row.rule == _FLOAT and category(common) < 2:
        common = "float32"
    checks.need(common in row.accepted, row.inputs[0], f"common dtype {common}", " or ".join(row.accepted))
    if row.alpha:
        checks.integral_scalar(row.alpha, common)
    if row.check:
        row.check(checks, common)
    result = "bool" if row.rule in (_COMPARE, _LOGICAL) else common
    checks.stores(result, row.out)
    checks.ranks((*row.inputs, row.out))
    checks.shape(row.out, checks.broadcast(row.inputs), "the broadcast shape of the inputs")
    if row.rule == _LOGICAL:
        common = "bool"

    def work() -> None:
        operands = [_operand(args[name], common) for name in (*row.inputs, *factors)]
        store(row.function(*operands), result, args[row.out])

    return work


def _where_plan(checks: CoreChecks) -> Work:
    names = ("self", "other")
    checks.require("condition", *names, "out")
    checks.accept(("condition",), ("bool", "uint8"))
    checks.accept((*names, "out"))
    common = checks.promoted(names)
    checks.stores(common, "out")
    checks.ranks(("condition", *names, "out"))
    checks.shape("out", checks.broadcast(("condition", *names)), "the broadcast shape of the inputs")
    args = checks.args

    def work() -> None:
        chosen, other = (convert(args[name], common) for name in names)
        store(np.where(convert(args["condition"], "bool"), chosen, other), common, args["out"])

    return work


def _masked_fill_plan(checks: CoreChecks) -> Work:
    checks.require("selfRef", "mask", "value")
    checks.accept(("selfRef", "value"))
    checks.accept(("mask",), ("bool", "uint8"))
    out = checks.args["selfRef"]
    checks.integral_scalar("value", out.dtype.name)
    checks.ranks(("selfRef", "mask"))
    checks.shape("selfRef", checks.broadcast(("selfRef", "mask")), "the broadcast shape of the inputs")

    def work() -> None:
        value = scalar_array(checks.args["value"], out.dtype.name)
        filled = np.where(convert(checks.args["mask"], "bool"), value, plain(out))
        store(filled, out.dtype.name, out)

    return work


def _add(x: Array, y: Array, alpha: Array) -> Any:
    # two roundings, as a multiplication and an addition; for bool these are "and" and "or"
    return np.add(x, np.multiply(y, alpha))


def _subtract(x: Array, y: Array, alpha: Array) -> Any:
    return np.subtract(x, np.multiply(y, alpha))


def _power(base: Array, exponent: Array) -> Any:
    if base.dtype.kind == "f":
        # for 0.5 NumPy may take the square root, which differs from C's pow for these two
        root = (exponent == 0.5) & ((base == 0) | (base == -np.inf))
        return np.power(np.where(root, np.abs(base), base), exponent, dtype=np.float64)
    inverse = np.where(base == 1, 1, np.where(base + 1 == 0, 1 - 2 * (exponent & 1), 0))
    # NumPy refuses any negative exponent
    return np.where(exponent < 0, inverse.astype(base.dtype), np.power(base, np.maximum(exponent, 0)))


def _no_negative_exponent(checks: CoreChecks, common: str) -> None:
    value = checks.args["exponent"].value
    checks.need(common in FLOATING or value >= 0, "exponent", value, f"0 or more, for {common}")


def _clamp(x: Array, low: Array | None, high: Array | None) -> Any:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _each(function: Callable[[float], float], x: Array) -> Array:
    """Apply a function of the standard library; for erf a series in NumPy takes as long and is less exact."""
    return np.asarray(np.frompyfunc(function, 1, 1)(x.astype(np.float64)), dtype=np.float64)


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def _gelu(x: Array) -> Any:
    # 1 + erf(z) cancels below zero, erfc(-z) does not
    return 0.5 * x.astype(np.float64) * _each(math.erfc, -x.astype(np.float64) / math.sqrt(2))


def _silu_backward(grad: Array, x: Array) -> Any:
    gate, wide = _sigmoid(x), x.astype(np.float64)
    return grad * gate * (1 + wide * (1 - gate))


def _gelu_backward(grad: Array, x: Array) -> Any:
    wide = x.astype(np.float64)
    density = np.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    return grad * (0.5 * _each(math.erfc, -wide / math.sqrt(2)) + wide * density)


def _sigmoid_backward(grad: Array, y: Array) -> Any:
    return grad.astype(np.float64) * (1 - y.astype(np.float64)) * y


def _tanh_backward(grad: Array, y: Array) -> Any:
    return grad.astype(np.float64) * (1 - y.astype(np.float64) ** 2)


def _rounded(function: Callable[[Array], Any], x: Array) -> Any:
    return function(x) if x.dtype.kind == "f" else x


def _wide(function: Callable[..., Any]) -> Callable[[Array], Any]:
    return partial(function, dtype=np.float64)


_ORDERED = {
    "Eq": np.equal,
    "Ne": np.not_equal,
    "Lt": np.less,
    "Le": np.less_equal,
    "Gt": np.greater,
    "Ge": np.greater_equal,
}
_BITS = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
_TWO = ("self", "other")
_BITWISE = (*INTEGRAL, "bool")

_ROWS: dict[str, _Row] = {
    "Add": _Row(_add, inputs=_TWO, alpha="alpha"),
    "Adds": _Row(_add, inputs=_TWO, alpha="alpha"),
    "Sub": _Row(_subtract, accepted=NUMERIC, inputs=_TWO, alpha="alpha"),
    "Subs": _Row(_subtract, accepted=NUMERIC, inputs=_TWO, alpha="alpha"),
    "Mul": _Row(np.multiply, inputs=_TWO),
    "Muls": _Row(np.multiply, inputs=_TWO),
    "Div": _Row(np.true_divide, _FLOAT, inputs=_TWO),
    "Divs": _Row(np.true_divide, _FLOAT, inputs=_TWO),
    "Maximum": _Row(np.maximum, inputs=_TWO),
    "Minimum": _Row(np.minimum, inputs=_TWO),
    "PowTensorScalar": _Row(_power, accepted=NUMERIC, inputs=("self", "exponent"), check=_no_negative_exponent),
    "PowScalarTensor": _Row(_power, accepted=NUMERIC, inputs=("self", "exponent")),
    "PowTensorTensor": _Row(_power, accepted=NUMERIC, inputs=("self", "exponent")),
    **{f"{n}{kind}": _Row(f, _COMPARE, inputs=_TWO) for n, f in _ORDERED.items() for kind in ("Tensor", "Scalar")},
    "LogicalAnd": _Row(np.logical_and, _LOGICAL, inputs=_TWO),
    "LogicalOr": _Row(np.logical_or, _LOGICAL, inputs=_TWO),
    "LogicalNot": _Row(np.logical_not, _LOGICAL),
    **{
        f"{n}{kind}": _Row(f, accepted=_BITWISE, inputs=_TWO) for n, f in _BITS.items() for kind in ("Tensor", "Scalar")
    },
    "BitwiseNot": _Row(np.invert, accepted=_BITWISE),
    **{
        f"Clamp{kind}": _Row(
            _clamp,
            accepted=NUMERIC,
            inputs=("self", "clipValueMin", "clipValueMax"),
            optional=("clipValueMin", "clipValueMax"),
        )
        for kind in ("", "Tensor")
    },
    "ClampMin": _Row(np.maximum, accepted=NUMERIC, inputs=("self", "clipValueMin")),
    "ClampMax": _Row(np.minimum, accepted=NUMERIC, inputs=("self", "clipValueMax")),
    "ClampMinTensor": _Row(np.maximum, accepted=NUMERIC, inputs=("self", "clipValueMin")),
    "ClampMaxTensor": _Row(np.minimum, accepted=NUMERIC, inputs=("self", "max")),
    "Rsub": _Row(lambda x, y, alpha: _subtract(y, x, alpha), accepted=NUMERIC, inputs=_TWO, alpha="alpha"),
    "Rsubs": _Row(lambda x, y, alpha: _subtract(y, x, alpha), accepted=NUMERIC, inputs=_TWO, alpha="alpha"),
    "FloorDivide": _Row(np.floor_divide, accepted=NUMERIC, inputs=_TWO),
    "FloorDivides": _Row(np.floor_divide, accepted=NUMERIC, inputs=_TWO),
    "RemainderTensorTensor": _Row(np.remainder, accepted=NUMERIC, inputs=_TWO),
    "RemainderTensorScalar": _Row(np.remainder, accepted=NUMERIC, inputs=_TWO),
    "IsFinite": _Row(np.isfinite, _COMPARE),
    "ThresholdBackward": _Row(
        lambda grad, x, bound: np.where(x <= bound, 0, grad),
        accepted=NUMERIC,
        inputs=("gradOutput", "self", "threshold"),
    ),
    "SiluBackward": _Row(_silu_backward, accepted=FLOATING, inputs=("gradOutput", "self"), out="gradInput"),
    "GeluBackward": _Row(_gelu_backward, accepted=FLOATING, inputs=("gradOutput", "self"), out="gradInput"),
    "SigmoidBackward": _Row(_sigmoid_backward, accepted=FLOATING, inputs=("gradOutput", "output"), out="gradInput"),
    "TanhBackward": _Row(_tanh_backward, accepted=FLOATING, inputs=("gradOutput", "output"), out="gradInput"),
    "Abs": _Row(np.absolute),
    "Neg": _Row(np.negative, accepted=NUMERIC),
    "Sign": _Row(lambda x: x if x.dtype == bool else np.sign(x), out="result"),
    "Floor": _Row(partial(_rounded, np.floor), accepted=NUMERIC),
    "Ceil": _Row(partial(_rounded, np.ceil), accepted=NUMERIC),
    "Round": _Row(partial(_rounded, np.rint), accepted=NUMERIC),
    "Relu": _Row(lambda x: np.maximum(x, 0), accepted=NUMERIC),
    "Exp": _Row(_wide(np.exp), _FLOAT),
    "Log": _Row(_wide(np.log), _FLOAT),
    "Log1p": _Row(_wide(np.log1p), _FLOAT),
    "Sqrt": _Row(np.sqrt, _FLOAT),
    "Rsqrt": _Row(lambda x: 1 / np.sqrt(x, dtype=np.float64), _FLOAT),
    "Reciprocal": _Row(np.reciprocal, _FLOAT),
    "Sin": _Row(_wide(np.sin), _FLOAT),
    "Cos": _Row(_wide(np.cos), _FLOAT, inputs=("input",)),
    "Tanh": _Row(_wide(np.tanh), _FLOAT),
    "Erf": _Row(partial(_each, math.erf), _FLOAT),
    "Sigmoid": _Row(_sigmoid, _FLOAT),
    "Silu": _Row(lambda x: x * _sigmoid(x), accepted=FLOATING),
    "Gelu": _Row(_gelu, accepted=FLOATING),
}

#: Operators without an in-place form here, and the in-place operators whose parameter is not ``selfRef``.
_NOT_INPLACE = (
    *("Maximum", "Minimum", "PowScalarTensor", "BitwiseNot", "Clamp", "ClampTensor", "ClampMin", "Abs", "Sign"),
    *("Silu", "Gelu", "Rsub", "Rsubs", "FloorDivide", "FloorDivides", "RemainderTensorTensor", "RemainderTensorScalar"),
    *("IsFinite", "ThresholdBackward", "SiluBackward", "GeluBackward", "SigmoidBackward", "TanhBackward"),
)
_INPLACE_NAMES = {"PowTensorScalar": "self", "PowTensorTensor": "self", "Sqrt": "self", "Cos": "inputRef"}


def _inplace(name: str, row: _Row) -> _Row:
    target = _INPLACE_NAMES.get(name, "selfRef")
    return replace(row, inputs=(target, *row.inputs[1:]), out=target)


def operators() -> dict[str, Stages]:
    """Give the stages of the elementwise operators by name."""
    rows = {f"aclnn{name}": row for name, row in _ROWS.items()}
    rows |= {f"aclnnInplace{n}": _inplace(n, row) for n, row in _ROWS.items() if n not in _NOT_INPLACE}
    return {
        "aclnnSWhere": stages("aclnnSWhere", _where_plan),
        "aclnnInplaceMaskedFillScalar": stages("aclnnInplaceMaskedFillScalar", _masked_fill_plan),
        **{name: stages(name, partial(_plan, row)) for name, row in rows.items()},
    }
