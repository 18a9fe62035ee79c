"""Functions of numbers: cmath, extremes, limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..model import LAST_BIT
from .arithmetic import cast, common, unknown
from .convert import target
from .functions import poison
from .machine import FUNCTIONS, Machine, library
from .syntax import Node
from .types import numeric
from .values import (
    Braces,
    Num,
    Unk,
)

__all__: list[str] = []  # registers its functions


_EXACT = frozenset({"fabs", "abs", "floor", "ceil", "trunc", "sqrt", "fmod", "ldexp", "scalbn"})


def _precision(m: Machine, node: Node, values: list[Any]) -> str:
    """Type that a function computes in: without ``std`` there is the function of C alone, of double."""
    name = node["function"].text
    if re.fullmatch(r"(std::)?\w+f", name) and not name.endswith("erf"):
        return "float32"
    single = all(v.t == "float32" for v in values)
    return "float32" if single and ("::" in name or m.extra.get("overloads", True)) else "float64"


def _rounded(m: Machine, node: Node, name: str, wide: Any, t: str) -> Any:
    """Round a result in double; the last bit of C's single precision is its library's own."""
    with np.errstate(all="ignore"):
        value = Num(np.asarray(wide).astype(t), t) if isinstance(wide, np.ndarray) else cast(Num(wide, "float64"), t)
        if t == "float32" and name not in _EXACT and not np.all((value.v == wide) | (value.v != value.v)):
            m.note(f"{name} in single precision: {LAST_BIT}", node.line)
    return value


def _each(name: str, function: Callable[..., float], *arrays: Any) -> np.ndarray[Any, Any]:
    """Apply a function of the C library, which NumPy's may differ from in the last bit."""
    wide = np.broadcast_arrays(*(np.asarray(a, np.float64) for a in arrays))
    if name in _EXACT:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(np, name)(*wide))
    parts = zip(*(np.array_split(w.ravel(), w.size // 65536 + 1) for w in wide), strict=True)
    done = [np.fromiter(map(function, *(p.tolist() for p in part)), np.float64) for part in parts]
    return np.concatenate(done).reshape(wide[0].shape)


def _unary_math(name: str) -> Callable[[Machine, Node, list[Any]], Any]:
    scalar = getattr(math, {"abs": "fabs"}.get(name, name))

    def apply(m: Machine, node: Node, values: list[Any]) -> Any:
        value = values[0] if values else m.unk(name, node)
        if isinstance(value, Unk):
            return unknown("abs" if name in ("fabs", "abs") else name, value)
        if not isinstance(value, Num):
            return m.unk(name, node)
        if name == "abs" and value.t not in ("float32", "float64", "float16", "bfloat16"):
            return Num(abs(value.v), common(value.t, "int32"))
        t = _precision(m, node, [value])
        value = cast(value, t)
        try:
            wide = _each(name, scalar, value.v) if isinstance(value.v, np.ndarray) else float(scalar(float(value.v)))
        except (ValueError, OverflowError):
            return m.unk(f"{name} outside its domain", node)
        return _rounded(m, node, name, wide, t)

    return apply


for _name in ("fabs", "abs", "sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "floor", "ceil",
              "trunc", "erf", "log2", "log10", "log1p", "expm1", "acosh", "asinh", "atanh",
              "acos", "asin", "atan"):  # fmt: skip
    FUNCTIONS[_name] = _unary_math(_name)


for _name in ("fabsf", "sqrtf", "expf", "logf", "sinf", "cosf", "tanhf", "floorf", "ceilf", "labs", "llabs"):
    FUNCTIONS[_name] = FUNCTIONS[_name.lstrip("l").rstrip("f") if _name.endswith("labs") else _name[:-1]]


@library("round", "lround", "roundf", "rint", "nearbyint", "lrint", "rintf", "nearbyintf", "llround")
def _round(m: Machine, node: Node, values: list[Any]) -> Any:
    value = values[0]
    if not isinstance(value, Num) or isinstance(value.v, np.ndarray):
        return value if isinstance(value, Unk) else m.unk("round", node)
    name = node["function"].text
    v = float(value.v)
    if not math.isfinite(v):
        return value
    rounded = float(round(v)) if "int" in name else math.copysign(math.floor(abs(v) + 0.5), v)
    return (
        Num(int(rounded), "int64")
        if "::l" in name or name.startswith("l")
        else Num(rounded, "float32" if value.t == "float32" else "float64")
    )


@library("pow", "fmod", "atan2", "hypot", "ldexp", "powf", "fmodf", "scalbn", "fmaf", "fma")
def _two(m: Machine, node: Node, values: list[Any]) -> Any:
    name = node["function"].text.split("::")[-1]
    if any(isinstance(v, Unk) for v in values):
        return unknown(name, *values)
    if not all(isinstance(v, Num) for v in values):
        return m.unk(name, node)
    name = name.removesuffix("f") if name in ("powf", "fmodf") else name
    t = _precision(m, node, values[:1] if name in ("ldexp", "scalbn") else values)
    try:
        operation: Any = {"pow": math.pow, "fmod": math.fmod, "atan2": math.atan2, "hypot": math.hypot,
                          "ldexp": math.ldexp, "scalbn": math.ldexp}[name]  # fmt: skip
        if any(isinstance(v.v, np.ndarray) for v in values):
            if name not in ("pow", "fmod"):
                return m.unk(name, node)
            return _rounded(m, node, name, _each(name, operation, *(cast(v, t).v for v in values[:2])), t)
        second = values[1] if operation is math.ldexp else cast(values[1], t)
        return _rounded(m, node, name, operation(cast(values[0], t).v, second.v), t)
    except (KeyError, ValueError, OverflowError):
        return m.unk(name, node)


@library("max", "min", "fmax", "fmin", "fmaxf", "fminf")
def _extreme(m: Machine, node: Node, values: list[Any]) -> Any:
    if len(values) == 1 and isinstance(values[0], Braces):
        values = values[0].items
    if any(isinstance(v, Unk) for v in values):
        return next(v for v in values if isinstance(v, Unk))
    if not values or not all(isinstance(v, Num) for v in values):
        return m.unk("max or min", node)
    greater = "max" in node["function"].text
    best = values[0]
    for value in values[1:]:
        if isinstance(best.v, np.ndarray) or isinstance(value.v, np.ndarray):
            t = common(best.t, value.t)
            best = Num((np.maximum if greater else np.minimum)(best.v, value.v).astype(t), t)
        elif (value.v > best.v) == greater and value.v != best.v:
            best = value
    t = common(*(v.t for v in values)) if len(values) == 2 and values[0].t != values[1].t else best.t
    return cast(best, t)


@library("frexp", "frexpf")
def _frexp(m: Machine, node: Node, values: list[Any]) -> Any:
    place = target(values[1]) if len(values) == 2 else None
    if not isinstance(values[0], Num) or isinstance(values[0].v, np.ndarray) or place is None:
        poison(m, values[-1], m.unk("frexp", node))
        return values[0] if isinstance(values[0], Unk) else m.unk("frexp", node)
    mantissa, exponent = math.frexp(values[0].v)
    place[0].set(place[1], Num(exponent))
    return Num(mantissa, "float32" if values[0].t == "float32" else "float64")


@library("isnan", "isinf", "isfinite", "signbit")
def _classify(m: Machine, node: Node, values: list[Any]) -> Any:
    value = values[0]
    if not isinstance(value, Num) or isinstance(value.v, np.ndarray):
        return value if isinstance(value, Unk) else m.unk("a number", node)
    v = float(value.v)
    name = node["function"].text.split("::")[-1]
    return Num(
        {"isnan": v != v, "isinf": math.isinf(v), "isfinite": math.isfinite(v), "signbit": math.copysign(1, v) < 0}[
            name
        ],
        "bool",
    )


@library("infinity", "quiet_NaN", "epsilon", "lowest", "signaling_NaN")
def _limits(m: Machine, node: Node, values: list[Any]) -> Any:
    match = re.search(r"numeric_limits\s*<\s*([\w: ]+)\s*>\s*::\s*(\w+)", node["function"].text)
    scope = node["function"]
    t = "float64"
    for inner in scope.walk():
        if inner.kind == "type_descriptor":
            t = numeric(m.type(inner)) or ""
    if match is None or not t:
        return m.unk("numeric_limits", node)
    name = match[2]
    if t.startswith(("int", "uint", "bool")):
        info = np.iinfo(t) if t != "bool" else None
        if info is None:
            return m.unk("numeric_limits", node)
        return Num(int(info.max if name == "max" else info.min if name in ("min", "lowest") else 0), t)
    finfo = np.finfo(t)
    found = {"max": finfo.max, "min": finfo.tiny, "lowest": finfo.min, "epsilon": finfo.eps}.get(name)
    if found is None:
        return Num(math.inf if name == "infinity" else math.nan, t, "np.inf" if name == "infinity" else "np.nan")
    return Num(float(found), t)


_plain_extreme = FUNCTIONS["max"]


@library("max", "min")
def _extreme_or_limit(m: Machine, node: Node, values: list[Any]) -> Any:
    return _limits(m, node, values) if "numeric_limits" in node["function"].text else _plain_extreme(m, node, values)
