"""What each core operator should give, in float64 and int64, written apart from the reference.

An answer is ``Want``: values, how far a result may be from them, and the type they are rounded to before they are
cast to the output. Tables of types are those of torch, spelled out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aclnn_py import dtypes

NAMES = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool")
# row by row as torch.promote_types answers, in the order of NAMES
_PROMOTE = """
u1 i2 i2 i4 i8 f2 bf f4 f8 u1
i2 i1 i2 i4 i8 f2 bf f4 f8 i1
i2 i2 i2 i4 i8 f2 bf f4 f8 i2
i4 i4 i4 i4 i8 f2 bf f4 f8 i4
i8 i8 i8 i8 i8 f2 bf f4 f8 i8
f2 f2 f2 f2 f2 f2 f4 f4 f8 f2
bf bf bf bf bf f4 bf f4 f8 bf
f4 f4 f4 f4 f4 f4 f4 f4 f8 f4
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8
u1 i1 i2 i4 i8 f2 bf f4 f8 b1
"""
_SHORT = dict(zip(("u1", "i1", "i2", "i4", "i8", "f2", "bf", "f4", "f8", "b1"), NAMES, strict=True))
PROMOTE = {
    (NAMES[i], NAMES[j]): _SHORT[short]
    for i, row in enumerate(_PROMOTE.split("\n")[1:-1])
    for j, short in enumerate(row.split())
}
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
INTS = NAMES[:5]
EPS = 2.0**-23


def kind(name: str) -> str:
    return "f" if name in FLOATS else "b" if name == "bool" else "i"


def with_scalar(tensor: str, scalar: str) -> str:
    """Torch's type of a tensor and a Python number."""
    order = "bif"
    if order.index(kind(scalar)) <= order.index(kind(tensor)):
        return tensor
    return {"i": "int64", "f": "float32"}[kind(scalar)]


def castable(source: str, target: str) -> bool:
    return "bif".index(kind(source)) <= "bif".index(kind(target))


def _whole_number(value: float, low: int, high: int) -> int:
    if math.isnan(value):
        return 0
    return (high if value > 0 else low) if math.isinf(value) else min(max(math.trunc(value), low), high)


def cast(values: np.ndarray, name: str) -> np.ndarray:
    """Convert, with the rounding of float32 on the way to 16 bits; what an integer cannot hold saturates."""
    values = np.asarray(values)
    if kind(name) == "i" and values.dtype.kind == "f":
        info = np.iinfo(name)
        whole = [_whole_number(float(v), int(info.min), int(info.max)) for v in values.flat]
        return np.array(whole, name).reshape(values.shape)
    with np.errstate(all="ignore"):
        if name in HALVES:
            values = values.astype(np.float32)
        return values.astype(dtypes.parse(name))


def wide(values: np.ndarray) -> np.ndarray:
    """Values for arithmetic: float64, int64 or bool."""
    values = np.asarray(values)
    name = values.dtype.name
    return values if name == "bool" else values.astype(np.float64 if name in FLOATS else np.int64)


def operand(value: Any, name: str) -> np.ndarray:
    """An argument as the common type holds it."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value.value, value.dtype)
    return wide(cast(wide(array) if array.dtype.name in FLOATS else array, name))


@dataclass
class Want:
    values: np.ndarray
    kind: str
    slack: Any = 0.0

    def bounds(self, out: str) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest result that will do."""
        with np.errstate(all="ignore"):
            if self.values.dtype.kind != "f":
                exact = cast(cast(self.values, self.kind), out)
                return exact, exact
            slack = np.where(np.isfinite(self.values) & np.isfinite(self.slack), self.slack, 0.0)
            low, high = (cast(wide(cast(v, self.kind)), out) for v in (self.values - slack, self.values + slack))
            return low, high


def mismatch(got: np.ndarray, want: Want) -> np.ndarray:
    """Mask of the elements that are wrong."""
    low, high = (wide(v) for v in want.bounds(got.dtype.name))
    value = wide(got)
    if value.dtype.kind != "f":
        return value != low
    with np.errstate(invalid="ignore"):
        inside = (value >= low) & (value <= high)
    return ~(inside | (np.isnan(value) & np.isnan(low) & np.isnan(high)))


def _near(value: np.ndarray, ulps: float = 4) -> tuple[np.ndarray, np.ndarray]:
    # the smallest normal number: results below it may be flushed or lose bits
    return value, ulps * EPS * np.abs(value) + 1e-37


def _single(values: np.ndarray, name: str) -> np.ndarray:
    return values.astype(np.float32).astype(np.float64) if values.dtype.kind == "f" and name != "float64" else values


def _bool_or_int(one: np.ndarray, two: np.ndarray, boolean: Callable, number: Callable) -> np.ndarray:
    return boolean(one, two) if one.dtype == bool else number(one, two)


def _product(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return _bool_or_int(one, two, lambda a, b: a & b, lambda a, b: a * b)


def add(x: np.ndarray, y: np.ndarray, alpha: np.ndarray, name: str) -> np.ndarray:
    scaled = _single(_product(y, alpha), name)
    return _bool_or_int(x, scaled, lambda a, b: a | b, lambda a, b: a + b)


def subtract(x: np.ndarray, y: np.ndarray, alpha: np.ndarray, name: str) -> np.ndarray:
    return x - _single(y * alpha, name)


def _c_pow(x: float, y: float) -> float:
    """The pow of C; that of Python raises for infinite results and for no result."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        return math.nan if x != 0 else math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def power(x: np.ndarray, y: np.ndarray, name: str) -> Any:
    if x.dtype.kind == "f":
        return _near(np.asarray(np.vectorize(_c_pow, otypes=[float])(x, y)))
    width = 8 * np.dtype(name).itemsize

    def one(base: int, exponent: int) -> int:
        if exponent < 0:
            return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
        value = pow(base, exponent, 2**width)
        return value - 2**width if value >= 2 ** (width - 1) and name != "uint8" else value

    x, y = np.broadcast_arrays(x, y)
    return np.array([one(int(a), int(b)) for a, b in zip(x.flat, y.flat, strict=True)], np.int64).reshape(x.shape)


def _greater(x: np.ndarray, y: np.ndarray, sign: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        picked = np.where((x > y) if sign > 0 else (x < y), x, y)
    return np.where(x != x, x, np.where(y != y, y, picked))


def clamp(x: np.ndarray, low: Any, high: Any) -> np.ndarray:
    if low is not None:
        x = _greater(x, low, 1)
    return x if high is None else _greater(x, high, -1)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.flat], np.float64).reshape(x.shape)


def gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value = x * 0.5 * (1 + _erf(x / math.sqrt(2)))
    # 1 + erf cancels in float32: the error is in units of x
    return value, 8 * EPS * np.abs(x) + 1e-37


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _near(x * sigmoid(x), 8)


def _silu_backward(grad: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # the derivative of x / (1 + exp(-x)) by the quotient rule, another form than the implementations'
    power = np.exp(-x)
    value = grad * (1 + power + x * power) / (1 + power) ** 2
    return value, EPS * 16 * np.abs(grad) * (1 + np.abs(x)) + 1e-37


def _gelu_backward(grad: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bell = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return grad * ((1 + _erf(x / math.sqrt(2))) / 2 + x * bell), EPS * 16 * np.abs(grad) * (1 + np.abs(x)) + 1e-37


def _floor_divide(x: np.ndarray, y: np.ndarray) -> Any:
    if x.dtype.kind != "f":
        return np.where(y == 0, 0, x // np.where(y == 0, 1, y))
    return x // y


def _remainder(x: np.ndarray, y: np.ndarray) -> Any:
    if x.dtype.kind != "f":
        return np.where(y == 0, 0, x % np.where(y == 0, 1, y))
    return x % y, EPS * 4 * np.abs(y)


def _whole(function: Callable) -> Callable:
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _sign(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == bool else np.where(x != x, x, (x > 0).astype(x.dtype) - (x < 0))


def _nonzero(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a != 0 for a in arrays]


ANY, NUMERIC, INTEGER = NAMES, NAMES[:-1], (*INTS, "bool")
#: base name: function of the operands; rule of the result's type (s same, f floating, b bool); common types
ELEMENTWISE: dict[str, tuple[Callable[..., Any], str, tuple[str, ...]]] = {
    "Add": (add, "s", ANY),
    "Sub": (subtract, "s", NUMERIC),
    "Mul": (_product, "s", ANY),
    "Div": (lambda x, y: x / y, "f", ANY),
    "Maximum": (lambda x, y: _greater(x, y, 1), "s", ANY),
    "Minimum": (lambda x, y: _greater(x, y, -1), "s", ANY),
    "Pow": (power, "s", NUMERIC),
    "Eq": (lambda x, y: x == y, "b", ANY),
    "Ne": (lambda x, y: x != y, "b", ANY),
    "Lt": (lambda x, y: x < y, "b", ANY),
    "Le": (lambda x, y: x <= y, "b", ANY),
    "Gt": (lambda x, y: x > y, "b", ANY),
    "Ge": (lambda x, y: x >= y, "b", ANY),
    "LogicalAnd": (lambda x, y: np.logical_and(*_nonzero(x, y)), "b", ANY),
    "LogicalOr": (lambda x, y: np.logical_or(*_nonzero(x, y)), "b", ANY),
    "LogicalNot": (lambda x: x == 0, "b", ANY),
    "BitwiseAnd": (lambda x, y: x & y, "s", INTEGER),
    "BitwiseOr": (lambda x, y: x | y, "s", INTEGER),
    "BitwiseXor": (lambda x, y: x ^ y, "s", INTEGER),
    "BitwiseNot": (lambda x: ~x, "s", INTEGER),
    "Clamp": (clamp, "s", NUMERIC),
    "ClampMin": (lambda x, y: _greater(x, y, 1), "s", NUMERIC),
    "ClampMax": (lambda x, y: _greater(x, y, -1), "s", NUMERIC),
    "Rsub": (lambda x, y, alpha, name: subtract(y, x, alpha, name), "s", NUMERIC),
    "FloorDivide": (_floor_divide, "s", NUMERIC),
    "Remainder": (_remainder, "s", NUMERIC),
    "IsFinite": (lambda x: ~(np.isnan(x) | np.isinf(x)), "b", ANY),
    "ThresholdBackward": (lambda grad, x, bound: np.where(x <= bound, np.zeros_like(grad), grad), "s", NUMERIC),
    "SiluBackward": (_silu_backward, "s", FLOATS),
    "GeluBackward": (_gelu_backward, "s", FLOATS),
    "SigmoidBackward": (lambda grad, y: _near(grad * y * (1 - y), 8), "s", FLOATS),
    "TanhBackward": (lambda grad, y: _near(grad * (1 - y) * (1 + y), 8), "s", FLOATS),
    "Abs": (lambda x: x if x.dtype == bool else np.where(x < 0, -x, x), "s", ANY),
    "Neg": (lambda x: -x, "s", NUMERIC),
    "Sign": (_sign, "s", ANY),
    "Floor": (_whole(np.floor), "s", NUMERIC),
    "Ceil": (_whole(np.ceil), "s", NUMERIC),
    "Round": (_whole(np.rint), "s", NUMERIC),
    "Relu": (lambda x: np.where(x < 0, np.zeros_like(x), x), "s", NUMERIC),
    "Exp": (lambda x: _near(np.exp(x)), "f", ANY),
    "Log": (lambda x: _near(np.log(x)), "f", ANY),
    "Log1p": (lambda x: _near(np.log1p(x)), "f", ANY),
    "Sqrt": (np.sqrt, "f", ANY),
    "Rsqrt": (lambda x: _near(1 / np.sqrt(x)), "f", ANY),
    "Reciprocal": (lambda x: 1 / x, "f", ANY),
    "Sin": (lambda x: _near(np.sin(x)), "f", ANY),
    "Cos": (lambda x: _near(np.cos(x)), "f", ANY),
    "Tanh": (lambda x: _near(np.tanh(x)), "f", ANY),
    "Erf": (lambda x: _near(_erf(x)), "f", ANY),
    "Sigmoid": (lambda x: _near(sigmoid(x), 6), "f", ANY),
    "Silu": (_silu, "s", FLOATS),
    "Gelu": (gelu, "s", FLOATS),
}


def base_name(op: str) -> str:
    """``aclnnInplaceClampMinTensor`` to ``ClampMin``."""
    name = op.removeprefix("aclnn").removeprefix("Inplace")
    for ending in ("TensorScalar", "ScalarTensor", "TensorTensor", "Tensor", "Scalar"):
        name = name.removesuffix(ending) if name.removesuffix(ending) in ELEMENTWISE else name
    return name[:-1] if name in ("Adds", "Subs", "Muls", "Divs", "Rsubs", "FloorDivides") else name


def common_type(values: list[Any]) -> str:
    tensors = [v.dtype.name for v in values if isinstance(v, np.ndarray)]
    name = tensors[0]
    for other in tensors[1:]:
        name = PROMOTE[name, other]
    for value in values:
        if not isinstance(value, np.ndarray) and value is not None:
            name = with_scalar(name, value.dtype.name)
    return name


def elementwise(op: str, args: Mapping[str, Any], out: str) -> Want:
    """The answer of an elementwise operator (but aclnnSWhere)."""
    base = base_name(op)
    function, rule, _ = ELEMENTWISE[base]
    names = [n for n in args if n not in ("alpha", out) or (n == out and "Inplace" in op)]
    name = common_type([args[n] for n in names])
    if rule == "f" and kind(name) != "f":
        name = "float32"
    names += ["alpha"] if "alpha" in args else []
    logical = base.startswith("Logical")
    values = [None if args[n] is None else wide(args[n]) if logical else operand(args[n], name) for n in names]
    with np.errstate(all="ignore"):
        result = function(*values, *([name] if base in ("Add", "Sub", "Rsub", "Pow") else []))
    value, slack = result if isinstance(result, tuple) else (result, 0.0)
    return Want(np.asarray(value), "bool" if rule == "b" else name, slack)
