"""Functions of the C and C++ libraries, and what its classes are built from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .arithmetic import binary, bit_cast, cast, common, unknown
from .convert import convert, decay, default, flat_type, string_of, target
from .functions import Argument, call_value, construct, poison
from .machine import FUNCTIONS, Machine, library
from .syntax import Node
from .types import AUTO, CType, numeric
from .values import (
    NULL,
    Array,
    Braces,
    Cell,
    Handle,
    Map,
    Num,
    Pair,
    Ptr,
    Smart,
    Struct,
    Text,
    Unk,
    Vector,
    duplicate,
    np_type,
)

__all__ = ["build", "copy_memory", "span"]

MAX_ELEMENTS = 1 << 28


def build(m: Machine, ctype: CType, values: list[Any]) -> Any:
    """Return a library object, or a number, from constructor arguments."""
    base = ctype.base
    if len(values) == 2 and numeric(ctype) in ("complex64", "complex128"):
        return convert(m, Braces(values, m.line), ctype)
    if ctype.ptr or numeric(ctype):
        return convert(m, values[0], ctype) if values else default(m, ctype, True)
    if base in ("vector", "deque", "array", "list"):
        return _vector(m, ctype, values)
    if base == "string":
        return _string(m, values)
    if base in ("unique_ptr", "shared_ptr"):
        held = values[0] if values else NULL
        if isinstance(held, Smart):
            return Smart(held.value, ctype)
        return held if isinstance(held, Unk) else Smart(NULL if isinstance(held, Num) else decay(held), ctype)
    if base in ("pair", "tuple"):
        return convert(m, Braces(values, m.line), ctype) if values else default(m, ctype, True)
    if base == "auto" and len(values) == 1:
        return values[0]
    if base == "function" or (len(values) == 1 and flat_type(values[0]).base == base):
        return duplicate(values[0]) if values else NULL
    if base == "thread":
        return m.extra["thread"](m, values)
    if base in ("ifstream", "ofstream", "fstream", "file", "filebuf"):
        return Handle("file", m.line, good=bool(values) and base == "ofstream")
    if base in ("stringstream", "ostringstream"):
        return Handle("ostream", m.line)
    for value in values:
        poison(m, value, Unk(f"an object of type {base}", m.line))
    if not values:
        return default(m, ctype, True)
    return values[0] if len(values) == 1 and base in ("aclrtStream", "T") else Unk(f"an object of type {base}", m.line)


def _vector(m: Machine, ctype: CType, values: list[Any]) -> Any:
    elem = ctype.arg(0)
    if not values:
        return default(m, ctype)
    first = values[0] = decay(values[0]) if isinstance(values[0], Array) else values[0]
    if isinstance(first, Unk):
        made = Vector(Array(elem))
        return Unk(f"a vector of unknown length: {first.reason}", m.line) if len(values) < 3 else made
    if isinstance(first, Vector):
        return Vector(first.array.copy())
    if isinstance(first, Braces):
        return convert(m, first, ctype)
    if isinstance(first, Ptr) and len(values) >= 2 and isinstance(values[1], Ptr):
        found = span(first, values[1])
        if found is None:
            return m.unk("a range of elements")
        array, low, high = found
        part = slice_of(array, low, high)
        return convert_array(m, part, elem)
    if not isinstance(first, Num) or isinstance(first.v, np.ndarray):
        return m.unk("a vector")
    n = int(first.v)
    if n < 0 or n > MAX_ELEMENTS:
        m.note(f"a host vector of {n:,} elements is larger than the memory of most machines")
        return m.unk(f"a vector of {n:,} elements")
    kind = numeric(elem)
    array = Array(elem, n)
    if len(values) > 1 and not (len(values) == 2 and isinstance(values[1], Handle)):
        value = convert(m, values[1], elem)
        if kind and isinstance(value, Num):
            array.uniform(value.v)
            array.fill = value.text if value.text is not None else repr_of(value)
        elif kind:
            array.forget(value if isinstance(value, Unk) else m.unk("a fill value"))
        else:
            array.data = [duplicate(value) for _ in range(n)]
    elif not kind:
        array.data = [default(m, elem, True) for _ in range(n)]
    else:
        array.uniform(0)
        array.fill = "0"
    return Vector(array)


def repr_of(value: Num) -> str:
    """Return the shortest Python spelling of a number."""
    if value.t == "float32":
        return (
            str(np.float32(value.v).item())
            if value.v != value.v
            else np.format_float_positional(np.float32(value.v), unique=True, trim="0")
            if 1e-5 < abs(value.v) < 1e16 or value.v == 0
            else repr(float(str(np.float32(value.v))))
        )
    return repr(value.v)


def convert_array(m: Machine, array: Array, elem: CType) -> Vector:
    """Return a copy of numbers as another element type."""
    kind = numeric(elem)
    if elem.base == "auto" or kind is None or not array.is_numeric or kind == array.elem.base:
        return Vector(array)
    new = Array(elem, array.n)
    with np.errstate(all="ignore"):
        new.data[:] = array.items().astype(np_type(kind))
    new.mask, new.why, new.texts = array.mask, array.why, array.texts
    if array.read is not None:
        new.read = array.read
    return Vector(new)


def span(first: Any, last: Any) -> tuple[Array, int, int] | None:
    """Array, start and stop of a pair of iterators."""
    first, last = decay(first), decay(last)
    if (
        isinstance(first, Ptr)
        and isinstance(last, Ptr)
        and first.block is last.block
        and isinstance(first.block, Array)
    ):
        return first.block, int(first.at), int(last.at)
    return None


def slice_of(array: Array, low: int, high: int) -> Array:
    """Return some elements as a new array."""
    part = Array(array.elem)
    part.n = max(high - low, 0)
    part.data = array.data[low:high].copy() if array.is_numeric else [duplicate(v) for v in array.data[low:high]]
    part.mask = None if array.mask is None else array.mask[low:high].copy()
    part.why, part.fill = array.why, array.fill
    part.texts = None if array.texts is None else array.texts[low:high]
    if array.read is not None:
        part.read = array.read
    return part


def _string(m: Machine, values: list[Any]) -> Any:
    if len(values) == 2 and isinstance(values[0], Num) and isinstance(values[1], Num):
        return Text(chr(values[1].v) * values[0].v)
    if len(values) >= 2 and isinstance(values[0], Text) and all(isinstance(v, Num) for v in values[1:]):
        low = values[1].v if len(values) == 3 else 0
        return Text(values[0].value[low : low + values[-1].v])
    return convert(m, values[0], CType("string")) if values else Text("")


# numbers


def _unary_math(name: str) -> Callable[[Machine, Node, list[Any]], Any]:
    scalar = getattr(math, {"abs": "fabs"}.get(name, name), None)
    vector = getattr(np, {"fabs": "abs", "acosh": "arccosh", "asinh": "arcsinh", "atanh": "arctanh", "acos": "arccos",
                          "asin": "arcsin", "atan": "arctan"}.get(name, name), None)  # fmt: skip

    def apply(m: Machine, node: Node, values: list[Any]) -> Any:
        value = values[0] if values else m.unk(name, node)
        if isinstance(value, Unk):
            return unknown("abs" if name in ("fabs", "abs") else name, value)
        if not isinstance(value, Num):
            return m.unk(name, node)
        if name == "abs" and value.t not in ("float32", "float64", "float16", "bfloat16"):
            return Num(abs(value.v), common(value.t, "int32"))
        t = "float32" if value.t == "float32" else "float64"
        if isinstance(value.v, np.ndarray):
            if vector is None:
                return m.unk(name, node)
            with np.errstate(all="ignore"):
                return Num(vector(value.v.astype(t)), t)
        try:
            result = float(scalar(float(value.v))) if scalar is not None else math.nan
        except (ValueError, OverflowError):
            return m.unk(f"{name} outside its domain", node)
        exact = name in ("fabs", "abs", "floor", "ceil", "trunc", "sqrt")
        if not exact and not isinstance(result, float):
            return m.unk(name, node)
        return cast(Num(result, "float64"), t)

    return apply


for _name in ("fabs", "abs", "sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "floor", "ceil",
              "trunc", "erf", "log2", "log10", "log1p", "expm1", "acosh", "asinh", "atanh", "acos", "asin", "atan"):  # fmt: skip
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
    t = (
        "float32"
        if values[0].t == "float32" and (name in ("ldexp", "scalbn") or values[-1].t == "float32")
        else "float64"
    )
    a, b = values[0].v, values[1].v
    try:
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            table = {"pow": np.power, "fmod": np.fmod}
            return Num(np.asarray(table[name](np.asarray(a, t), np.asarray(b, t)), t), t)
        operation: Any = {"pow": math.pow, "powf": math.pow, "fmod": math.fmod, "fmodf": math.fmod, "atan2": math.atan2,
                          "hypot": math.hypot, "ldexp": math.ldexp, "scalbn": math.ldexp}[name]  # fmt: skip
        return cast(Num(operation(a, b), "float64"), t)
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


# memory


def copy_memory(m: Machine, to: Any, source: Any, count: Any, line: int) -> None:
    """Memcpy between host objects; bytes that cannot be followed become unknown."""
    to, source = decay(to), decay(source)
    why = Unk("a copy of bytes", line)
    if isinstance(source, Unk):
        why = source
    if isinstance(to, Ptr) and isinstance(to.block, Cell) and isinstance(source, Ptr):
        kind, place = numeric(to.block.ctype), target(source)
        if kind and place is not None and isinstance(count, Num):
            value = place[0].get(place[1])
            size = np_type(kind).itemsize
            same = isinstance(value, Num) and np_type(value.t).itemsize >= size
            to.block.set(
                0, bit_cast(value, kind) if int(count.v) == size and same else value if isinstance(value, Unk) else why
            )
            return
    if not isinstance(to, Ptr) or not isinstance(to.block, Array):
        poison(m, to, why)
        return
    block = to.block
    if isinstance(source, Text) and block.is_numeric and isinstance(count, Num):
        raw = source.value.encode() + b"\0"
        if int(count.v) > 1 << 19 and to.at + len(raw) > block.n:
            m.note(f"a string of {len(raw)} bytes is copied into an array of {block.n}", line)
            block.resize(to.at + len(raw))
        for i in range(min(int(count.v), len(raw))):
            block.set(to.at + i, Num(raw[i] - 256 if raw[i] > 127 else raw[i], "int8"))
        return
    place = target(source)
    if not isinstance(count, Num) or place is None or not block.is_numeric:
        poison(m, to, why)
        return
    n = int(count.v)
    origin, at = place
    size = block.data.itemsize
    if isinstance(origin, Array) and origin.is_numeric and origin.elem.base == block.elem.base:
        part = slice_of(origin, at, min(at + n // size, origin.n))
        _paste(block, to.at, part)
    elif (
        isinstance(origin, Array)
        and origin.is_numeric
        and origin.mask is None
        and origin.read is None
        and n % size == 0
    ):
        raw_bytes = origin.items()[at:].tobytes()[:n]
        part = Array(block.elem, len(raw_bytes) // size)
        part.data[:] = np.frombuffer(raw_bytes[: part.n * size], block.data.dtype)
        _paste(block, to.at, part)
    elif isinstance(origin, Cell) and isinstance(origin.value, Num) and n == size:
        block.set(to.at, bit_cast(origin.value, block.elem.base))
    elif (
        isinstance(origin, Cell)
        and isinstance(origin.value, Num)
        and size == 1
        and n <= np_type(origin.value.t).itemsize
    ):
        raw = np.array([origin.value.v], np_type(origin.value.t)).tobytes()[:n]
        for i, byte in enumerate(raw):
            block.set(to.at + i, cast(Num(byte, "uint8"), block.elem.base))
    else:
        value = origin.value if isinstance(origin, Cell) else None
        poison(m, to, value if isinstance(value, Unk) else why)


def _paste(block: Array, at: int, part: Array) -> None:
    block.own()
    high = min(at + part.n, block.n)
    n = max(high - at, 0)
    if at == 0 and n == block.n:
        block.texts, block.fill, block.read, block.origin = part.texts, part.fill, part.read, part.origin
        block.mask = None if part.mask is None else part.mask[:n].copy()
        block.why = part.why
    else:
        block.texts = block.fill = block.origin = None
        if part.read is not None or part.mask is not None:
            block.forget(part.why or Unk("computed on the device"), at, high)
        elif block.mask is not None:
            block.mask[at:high] = False
    block.data[at:high] = part.data[:n]


@library("memcpy", "memmove", "strcpy", "strncpy")
def _memcpy(m: Machine, node: Node, values: list[Any]) -> Any:
    count: Any = values[2] if len(values) > 2 else Num(1 << 20)
    if "str" in node["function"].text:
        text = string_of(values[1])
        values[1] = Text(text) if text is not None else m.unk("a string", node)
    copy_memory(m, values[0], values[1], count, node.line)
    return values[0]


@library("memcpy_s", "strcpy_s", "strncpy_s", "memmove_s")
def _memcpy_s(m: Machine, node: Node, values: list[Any]) -> Any:
    copy_memory(m, values[0], values[2], values[3] if len(values) > 3 else Num(1 << 20), node.line)
    return Num(0)


@library("memset", "memset_s")
def _memset(m: Machine, node: Node, values: list[Any]) -> Any:
    to = decay(values[0])
    value, count = (values[1], values[2]) if "_s" not in node["function"].text else (values[2], values[3])
    if not (
        isinstance(to, Ptr)
        and isinstance(to.block, Array)
        and to.block.is_numeric
        and isinstance(value, Num)
        and isinstance(count, Num)
    ):
        poison(m, to, Unk("memset", node.line))
        if isinstance(to, Ptr) and isinstance(to.block, Cell) and isinstance(value, Num) and value.v == 0:
            to.block.value = default(m, to.block.ctype, True)
        return values[0]
    block = to.block
    n = int(count.v) // block.data.itemsize
    part = Array(block.elem, n)
    part.data[:] = np.frombuffer(bytes([int(value.v) & 255]) * (n * block.data.itemsize), block.data.dtype)
    part.fill = "0" if value.v == 0 else None
    if block.read is not None:
        block.forget(Unk("computed on the device"))
    _paste(block, to.at, part)
    return values[0]


@library("malloc", "calloc", "realloc", "aligned_alloc")
def _malloc(m: Machine, node: Node, values: list[Any]) -> Any:
    count = values[0] if len(values) == 1 else binary("*", values[0], values[1])
    return raw_memory(m, count, node, "calloc" in node["function"].text)


def raw_memory(m: Machine, count: Any, node: Node, zero: bool = False) -> Any:
    """Host memory without a type yet."""
    if not isinstance(count, Num) or int(count.v) > MAX_ELEMENTS * 8:
        return m.unk("memory of unknown size", node)
    array = Array(CType("uint8"), int(count.v))
    array.raw = True
    if not zero:
        array.forget(Unk("memory that was not initialised", node.line))
    return Ptr(array, 0, CType("void"))


@library("free", "srand", "sleep", "usleep", "fclose", "fflush", "sleep_for", "setenv", "close", "aclDestroy", "assert")
def _harmless(m: Machine, node: Node, values: list[Any]) -> Any:
    return Num(0)


@library("rand", "random", "time", "clock", "now", "get_id", "mt19937", "mt19937_64", "random_device", "default_random_engine",
         "uniform_real_distribution", "uniform_int_distribution", "normal_distribution", "getpid")  # fmt: skip
def _random(m: Machine, node: Node, values: list[Any]) -> Any:
    return m.unk("a random number or the time", node)


@library("exit", "_exit", "abort", "quick_exit")
def _exit(m: Machine, node: Node, values: list[Any]) -> Any:
    from .machine import Stop

    raise Stop("the sample exits here")


@library("move", "forward", "ref", "cref", "as_const", "launder", "addressof")
def _same(m: Machine, node: Node, values: list[Any]) -> Any:
    if node["function"].text.endswith("ref") and node["arguments"].kids:
        place = m.lvalue(node["arguments"].kids[0])
        if place is not None and isinstance(place[0], Cell):
            return Argument(m, node["arguments"].kids[0]).value
    return values[0]


@library("swap")
def _swap(m: Machine, node: Node, values: list[Any]) -> Any:
    places = [m.lvalue(k) for k in node["arguments"].kids]
    for place, value in zip(places, reversed(values), strict=True):
        if place is not None:
            place[0].set(place[1], value)
    return None


@library("tie")
def _tie(m: Machine, node: Node, values: list[Any]) -> Any:
    pair = Pair([])
    places = [m.lvalue(k) for k in node["arguments"].kids]
    pair.cells = [
        p[0] if p is not None and isinstance(p[0], Cell) else Cell(v, AUTO) for p, v in zip(places, values, strict=True)
    ]
    return pair


@library("make_tuple", "make_pair")
def _make_pair(m: Machine, node: Node, values: list[Any]) -> Any:
    return Pair([duplicate(v) for v in values])


@library("make_unique", "make_shared")
def _make(m: Machine, node: Node, values: list[Any]) -> Any:
    args = next((n for n in node["function"].walk() if n.kind == "template_argument_list"), None)
    if args is None:
        return m.unk("make_unique", node)
    ctype = m.type(args.kids[0])
    return Smart(Ptr(Cell(construct(m, ctype, values), ctype), 0, ctype), CType("unique_ptr", (ctype,)))


@library("get")
def _get(m: Machine, node: Node, values: list[Any]) -> Any:
    args = next((n for n in node["function"].walk() if n.kind == "template_argument_list"), None)
    index = m.eval(args.kids[0]) if args is not None else None
    if isinstance(values[0], Pair) and isinstance(index, Num) and index.v < len(values[0].cells):
        return values[0].cells[index.v].value
    return m.unk("std::get", node)


@library("getenv")
def _getenv(m: Machine, node: Node, values: list[Any]) -> Any:
    return NULL


@library("to_string")
def _to_string(m: Machine, node: Node, values: list[Any]) -> Any:
    value = values[0]
    if not isinstance(value, Num):
        return m.unk("to_string", node)
    return Text(f"{value.v:f}" if isinstance(value.v, float) else str(int(value.v)))


@library("strlen")
def _strlen(m: Machine, node: Node, values: list[Any]) -> Any:
    text = string_of(values[0])
    return Num(len(text), "uint64") if text is not None else m.unk("the length of a string", node)


@library("strcmp", "strncmp", "strstr")
def _strcmp(m: Machine, node: Node, values: list[Any]) -> Any:
    a, b = string_of(values[0]), string_of(values[1])
    if a is None or b is None:
        return m.unk("a comparison of strings", node)
    name = node["function"].text
    if name.endswith("strstr"):
        return Text(a[a.index(b) :]) if b in a else NULL
    if "strn" in name and isinstance(values[2], Num):
        a, b = a[: values[2].v], b[: values[2].v]
    return Num((a > b) - (a < b))


@library("atoi", "stoi", "stol", "stoll", "stof", "atof", "strtol", "stoul")
def _parse(m: Machine, node: Node, values: list[Any]) -> Any:
    text = string_of(values[0])
    name = node["function"].text
    try:
        if text is not None:
            return (
                Num(float(text), "float32")
                if name.endswith("f")
                else Num(int(text), "int32" if name.endswith("i") else "int64")
            )
    except ValueError:
        pass
    return m.unk("a number from a string", node)


def call_back(m: Machine, function: Any, values: list[Any], node: Node) -> Any:
    """Call what a library function was given."""
    return call_value(m, function, [Argument(m, None, v) for v in values], node)


def instance(value: Any) -> bool:
    """Whether a value is an object with members."""
    return isinstance(value, (Struct, Map))
