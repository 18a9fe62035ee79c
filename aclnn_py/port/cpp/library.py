"""Functions of the C and C++ libraries, and what its classes are built from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .calling import call_value
from .convert import convert, decay, default, flat_type, string_of
from .functions import Argument, poison
from .machine import Machine, library
from .objects import construct
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

__all__ = ["MAX_ELEMENTS", "build", "call_back", "convert_array", "repr_of", "slice_of", "span"]


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
        good = base == "ofstream" if values else False
        if values and base != "ofstream" and _there(m, values[0]):
            return m.unk("the content of a file")
        return Handle("file", m.line, good=good)
    if base in ("stringstream", "ostringstream"):
        return Handle("ostream", m.line)
    for value in values:
        poison(m, value, Unk(f"an object of type {base}", m.line))
    if not values:
        return default(m, ctype, True)
    return values[0] if len(values) == 1 and base in ("aclrtStream", "T") else Unk(f"an object of type {base}", m.line)


def _there(m: Machine, path: Any) -> bool:
    """Tell whether a file to read may be there: one that does not lie beside the sample is not, and that is noted."""
    if not isinstance(path, Text) or (Path(m.file).parent / path.value).exists():
        return True
    m.note(f"{path.value!r} does not lie beside the sample: this goes on as the sample does without it")
    return False


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
    if n > 200_000 and not numeric(elem):
        return m.unk(f"a vector of {n:,} objects")
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


@library("free", "srand", "sleep", "usleep", "fclose", "fflush", "sleep_for", "setenv", "close", "aclDestroy", "assert")
def _harmless(m: Machine, node: Node, values: list[Any]) -> Any:
    return Num(0)


@library("rand", "random", "time", "clock", "now", "get_id", "mt19937", "mt19937_64", "random_device",
         "default_random_engine",
         "uniform_real_distribution", "uniform_int_distribution", "normal_distribution", "getpid")  # fmt: skip
def _random(m: Machine, node: Node, values: list[Any]) -> Any:
    return m.unk("a random number or the time", node)


@library("fopen")
def _fopen(m: Machine, node: Node, values: list[Any]) -> Any:
    mode = values[1].value if len(values) > 1 and isinstance(values[1], Text) else "r"
    reads = mode.startswith("r")
    return NULL if reads and not _there(m, values[0]) else m.unk("the content of a file", node)


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
