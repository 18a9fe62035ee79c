"""C++ arithmetic on numbers: promotions, wrapping, float32 rounding; unknown operands give unknown results."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .types import SIZES
from .values import NULL, Array, Handle, Null, Num, Ptr, Smart, Text, Unk, Vector, np_type

__all__ = ["binary", "bit_cast", "cast", "literal", "unary", "unknown"]

_INT_RANK = ["int32", "uint32", "int64", "uint64"]
_BITS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
_pack = struct.Struct("f")


def _wrap(v: int, t: str) -> int:
    bits = _BITS[t]
    v &= (1 << bits) - 1
    return v - (1 << bits) if t[0] == "i" and v >> (bits - 1) else v


def to_float32(v: float) -> float:
    """Round to single precision, overflow to infinity."""
    try:
        return float(_pack.unpack(_pack.pack(v))[0])
    except OverflowError:
        return math.copysign(math.inf, v)


def cast(value: Any, t: str) -> Any:
    """Convert a number to a numeric type as C++ does."""
    if isinstance(value, Unk):
        return value
    if not isinstance(value, Num):
        if isinstance(value, Null) and t in _BITS:
            return Num(0, t)
        if isinstance(value, (Ptr, Handle)) and t == "bool":
            return Num(True, t)
        return Unk("a pointer used as a number" if isinstance(value, (Ptr, Handle)) else "not a number")
    v = value.v
    if value.t == t:
        return value
    if isinstance(v, np.ndarray):
        with np.errstate(all="ignore"):
            return Num(v.astype(bool) if t == "bool" else v.astype(np_type(t)), t)
    if t.startswith("complex"):
        return Num(complex(np.complex64(v)) if t == "complex64" else complex(v), t, value.text)
    if isinstance(v, complex):
        return Unk("a complex number used as a real one")
    if t == "bool":
        return Num(bool(v), t, value.text)
    if t in _BITS:
        if isinstance(v, float):
            if not math.isfinite(v) or abs(v) >= 2.0**64:
                return Unk("a float outside the integers")
            v = int(v)
        new: Any = _wrap(int(v), t)
    elif t == "float64":
        new = float(v)
    elif t == "float32":
        new = to_float32(float(v))
    else:
        with np.errstate(all="ignore"):
            new = float(np_type(t).type(v))
    keep = value.text is not None and (t.startswith(("float", "bfloat")) or new == v)
    return Num(new, t, value.text if keep else None)


def literal(text: str) -> Num | None:
    """Return a C++ number: the value, its type and its Python spelling."""
    if text[:1] in "+-":
        found = literal(text[1:].strip())
        return found if found is None or text[0] == "+" else unary("-", found)
    s = text.replace("'", "").lower()
    if s.startswith(("0x", "0b")) and "p" not in s:
        digits = s.rstrip("ul")
        value = int(digits, 0)
        suffix = s[len(digits) :]
        t = _int_type(value, suffix, True)
        return Num(value, t, text.replace("'", "").rstrip("uUlL"))
    if s.startswith("0x"):
        return Num(float.fromhex(s.rstrip("fl")), "float64")
    if any(c in s for c in ".e") or (s.endswith("f") and s[:-1].isdigit()):
        digits = s.rstrip("fl")
        value_f = float(digits)
        plain = digits if digits[-1] != "." else digits + "0"
        plain = "0" + plain if plain[0] == "." else plain
        return Num(to_float32(value_f), "float32", plain) if s.endswith("f") else Num(value_f, "float64", plain)
    digits = s.rstrip("ulz")
    if not digits.isdigit():
        return None
    octal = len(digits) > 1 and digits[0] == "0"
    value = int(digits, 8) if octal else int(digits)
    return Num(value, _int_type(value, s[len(digits) :], octal), hex(value) if octal else digits)


def _int_type(value: int, suffix: str, based: bool) -> str:
    unsigned, long = "u" in suffix, "l" in suffix or "z" in suffix
    for t in _INT_RANK:
        if (unsigned and t[0] == "i") or (long and t.endswith("32")) or (t[0] == "u" and not unsigned and not based):
            continue
        if value == _wrap(value, t):
            return t
    return "uint64"


def _promote(t: str) -> str:
    if t in _INT_RANK or t in ("float32", "float64", "complex64", "complex128"):
        return t
    return "float32" if t in ("float16", "bfloat16") else "int32"


def common(a: str, b: str) -> str:
    """Return the type that both operands are converted to."""
    a, b = _promote(a), _promote(b)
    if a == b:
        return a
    for t in ("complex128", "complex64", "float64", "float32"):
        if t in (a, b):
            return t
    return _INT_RANK[max(_INT_RANK.index(a), _INT_RANK.index(b))]


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


def _depth(expr: tuple[Any, ...]) -> int:
    return (
        0 if not expr or expr[0] == "dev" else 1 + max((_depth(e) for e in expr[1:] if isinstance(e, tuple)), default=0)
    )


def _deepest(expr: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the first read element in an expression, in place of one that has become too long to be a comparison."""
    while expr and expr[0] != "dev":
        expr = next((e for e in expr[1:] if isinstance(e, tuple) and e and e[0] != "num"), ())
    return expr


def unknown(op: str, *operands: Any) -> Unk:
    """Return the result of an operation with an unknown operand; what the device computed keeps its expression."""
    unks = [o for o in operands if isinstance(o, Unk)]
    device = next((u for u in unks if u.tag == "device"), None)
    if device is not None and all(isinstance(o, Num) or (isinstance(o, Unk) and o.tag == "device") for o in operands):
        parts = tuple(o.expr if isinstance(o, Unk) else ("num", o) for o in operands)
        expr = (op, *parts) if _depth(device.expr) < 5 else ("lost", _deepest(device.expr))
        return Unk(device.reason, device.line, "device", expr)
    first = unks[0]
    tag = first.tag if all(u.tag == first.tag for u in unks) and first.tag == "workspace" else ""
    return Unk(first.reason, first.line, tag)


def binary(op: str, a: Any, b: Any) -> Any:
    """Apply a binary operator to numbers, pointers or strings."""
    if isinstance(a, Num) and isinstance(b, Num):
        return _numbers(op, a, b)
    if isinstance(a, Unk) or isinstance(b, Unk):
        return unknown(op, a, b)
    return _objects(op, a, b)


def _numbers(op: str, a: Num, b: Num) -> Any:
    if op in ("<<", ">>"):
        t = _promote(a.t)
        v, n = cast(a, t).v, b.v
        if isinstance(v, np.ndarray) or isinstance(n, np.ndarray):
            with np.errstate(all="ignore"):
                return Num(np.asarray(np.left_shift(v, n) if op == "<<" else np.right_shift(v, n)).astype(t), t)
        if not 0 <= n < 64 or t not in _BITS:
            return Unk("a shift outside the type")
        return Num(_wrap(v << n, t) if op == "<<" else v >> n, t)
    t = common(a.t, b.t)
    x, y = (a.v if a.t == t else cast(a, t)), (b.v if b.t == t else cast(b, t))
    if isinstance(x, Unk) or isinstance(y, Unk):
        return x if isinstance(x, Unk) else y
    x, y = x.v if isinstance(x, Num) else x, y.v if isinstance(y, Num) else y
    if op in _COMPARE:
        return Num(_COMPARE[op](x, y), "bool")
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return _arrays(op, x, y, t)
    if op in _PLAIN:
        if t in _BITS:
            return Num(_wrap(_PLAIN[op](x, y), t), t)
        if op in "&|^":
            return Unk("bits of a float")
        v = _PLAIN[op](x, y)
        if isinstance(v, complex):
            return cast(Num(v, "complex128"), t)
        return Num(to_float32(v) if t == "float32" else v, t)
    if op == "/":
        if t in _BITS:
            if y == 0:
                return Unk("a division by zero")
            q = abs(x) // abs(y)
            return Num(_wrap(q if (x < 0) == (y < 0) else -q, t), t)
        zero = math.nan if x == 0 or x != x or isinstance(x, complex) else math.copysign(math.inf, x)
        v = x / y if y != 0 else zero * math.copysign(1, y) if isinstance(y, float) else math.nan
        if isinstance(v, complex):
            return cast(Num(v, "complex128"), t)
        return Num(to_float32(v) if t == "float32" else v, t)
    if op == "%" and t in _BITS:
        if y == 0:
            return Unk("a division by zero")
        r = abs(x) % abs(y)
        return Num(_wrap(-r if x < 0 else r, t), t)
    return Unk(f"operator {op}")


def _arrays(op: str, x: Any, y: Any, t: str) -> Any:
    with np.errstate(all="ignore"):
        if op in _PLAIN:
            v = _PLAIN[op](np.asarray(x, t), np.asarray(y, t))
        elif op == "/" and t not in _BITS:
            v = np.asarray(x, t) / np.asarray(y, t)
        elif op in "/%" and t in _BITS and not np.any(np.asarray(y) == 0):
            a, b = np.asarray(x, t), np.asarray(y, t)
            r = np.fmod(a, b)
            v = r if op == "%" else (a - r) // b
        else:
            return Unk(f"operator {op}")
    return Num(np.asarray(v, t), t)


def _strip(value: Any) -> Any:
    while isinstance(value, Smart):
        value = value.value
    return Ptr(value, 0, value.elem) if isinstance(value, Array) else value


def _objects(op: str, a: Any, b: Any) -> Any:
    a, b = _strip(a), _strip(b)
    if isinstance(a, Unk) or isinstance(b, Unk):
        return unknown(op, a, b)
    if op in ("==", "!="):
        same = _same(a, b)
        return Num(same == (op == "=="), "bool") if same is not None else Unk("a comparison of objects")
    if op == "+" and isinstance(b, Ptr):
        a, b = b, a
    if op in "+-" and isinstance(a, Ptr) and isinstance(b, Num):
        step = int(b.v) if not isinstance(b.v, np.ndarray) else b.v
        size = scale(a)
        if size is None:
            return Unk("pointer arithmetic")
        return Ptr(a.block, a.at + step * size if op == "+" else a.at - step * size, a.ctype)
    if op == "-" and isinstance(a, Ptr) and isinstance(b, Ptr) and a.block is b.block:
        return Num((a.at - b.at) // (scale(a) or 1), "int64")
    if op in _COMPARE and isinstance(a, Ptr) and isinstance(b, Ptr) and a.block is b.block:
        return Num(_COMPARE[op](a.at, b.at), "bool")
    if isinstance(a, Text) and isinstance(b, Text):
        if op == "+":
            return Text(a.value + b.value)
        if op in _COMPARE:
            return Num(_COMPARE[op](a.value, b.value), "bool")
    if op == "+" and isinstance(a, Text) and isinstance(b, Num) and b.t == "int8":
        return Text(a.value + chr(b.v))
    return Unk(f"operator {op}")


def scale(pointer: Ptr) -> int | None:
    """Return what one step of a pointer adds to its position: elements, or bytes in device memory."""
    if isinstance(pointer.block, Handle):
        return pointer.ctype.size if pointer.ctype is not None and pointer.ctype.base != "void" else 1
    return 1


def _same(a: Any, b: Any) -> bool | None:
    if isinstance(a, Num) and a.v == 0:
        a = NULL
    if isinstance(b, Num) and b.v == 0:
        b = NULL
    if isinstance(a, Null) or isinstance(b, Null):
        return isinstance(a, Null) and isinstance(b, Null)
    if isinstance(a, Ptr) and isinstance(b, Ptr):
        return a.block is b.block and bool(a.at == b.at)
    if isinstance(a, Text) and isinstance(b, Text):
        return a.value == b.value
    if isinstance(a, Vector) and isinstance(b, Vector):
        return _same_arrays(a.array, b.array)
    if isinstance(a, Handle) and isinstance(b, Handle):
        return a is b
    return None


def _same_arrays(a: Array, b: Array) -> bool | None:
    if a.n != b.n:
        return False
    if a.is_numeric and b.is_numeric and not any(x.mask is not None or x.read is not None for x in (a, b)):
        return bool(np.array_equal(a.items(), b.items()))
    return None


def unary(op: str, a: Any) -> Any:
    """Apply ``-``, ``+`` or ``~``."""
    if isinstance(a, Unk):
        return unknown("neg" if op == "-" else op, a)
    if not isinstance(a, Num):
        return Unk(f"operator {op}")
    t = _promote(a.t)
    a = cast(a, t)
    text = f"-{a.text}" if op == "-" and a.text and a.text[0] not in "-" else a.text if op == "+" else None
    if op == "~":
        return Num(_wrap(~a.v, t), t) if t in _BITS and not isinstance(a.v, np.ndarray) else Unk("bits of a float")
    if op == "+":
        return Num(a.v, t, text)
    return Num(_wrap(-a.v, t) if t in _BITS and not isinstance(a.v, np.ndarray) else -a.v, t, text)


def bit_cast(value: Any, t: str) -> Any:
    """Return the number whose bytes are those of another number of the same or greater size."""
    if not isinstance(value, Num):
        return value if isinstance(value, Unk) else Unk("the bytes of an object")
    if value.t == t:
        return value
    if SIZES[value.t] < SIZES[t] or isinstance(value.v, np.ndarray):
        return Unk("bytes that are not defined")
    with np.errstate(all="ignore"):
        raw = np.array([value.v], np_type(value.t)).tobytes()
    return Num(np.frombuffer(raw[: SIZES[t]], np_type(t)).tolist()[0], t)
