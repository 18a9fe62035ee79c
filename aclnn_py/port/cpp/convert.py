"""Implicit conversions and construction: what a value becomes in a variable of a declared type."""

from __future__ import annotations

from typing import Any

from .arithmetic import bit_cast, cast
from .machine import Machine
from .types import AUTO, DOUBLE, CType, numeric
from .values import (
    NULL,
    Array,
    Braces,
    Cell,
    Handle,
    Map,
    Null,
    Num,
    Pair,
    Ptr,
    Smart,
    Struct,
    Text,
    Unk,
    Vector,
    duplicate,
)

__all__ = ["convert", "decay", "default", "flat_type", "load", "string_of", "target"]

_SMART = ("unique_ptr", "shared_ptr")
_SEQUENCES = ("vector", "array", "initializer_list", "deque", "list", "span")


def decay(value: Any) -> Any:
    """Return an array as the pointer to its first element; a smart pointer as what it holds."""
    if isinstance(value, Array):
        return Ptr(value, 0, value.elem)
    return value.value if isinstance(value, Smart) else value


def target(pointer: Any) -> tuple[Any, Any] | None:
    """Container and index that a pointer designates, through the type it was cast to."""
    pointer = decay(pointer)
    if not isinstance(pointer, Ptr) or isinstance(pointer.block, Handle):
        return None
    block, at = pointer.block, pointer.at
    kind = numeric(pointer.ctype)
    if isinstance(block, Array) and block.is_numeric and kind and kind != block.elem.base:
        size = block.elem.size or 1
        view = block.seen_as(pointer.ctype or AUTO)
        return (view, at * size // (view.elem.size or 1)) if view is not block else (view, at)
    if isinstance(block, Cell) and kind and isinstance(block.value, Num) and block.value.t != kind:
        return Cell(bit_cast(block.value, kind), CType(kind)), 0
    return block, at


def load(pointer: Any) -> Any:
    """Return what a pointer points to."""
    place = target(pointer)
    if place is None:
        return pointer if isinstance(pointer, Unk) else Unk("memory that cannot be followed")
    return place[0].get(place[1])


def string_of(value: Any) -> str | None:
    """Return the characters of a std::string, a literal or a char array; None when they are not known."""
    value = decay(value)
    if isinstance(value, Text):
        return value.value
    if isinstance(value, Vector):
        value = Ptr(value.array, 0)
    if isinstance(value, Ptr) and isinstance(value.block, Array) and value.block.is_numeric:
        out: list[str] = []
        for i in range(value.at, value.block.n):
            item = value.block.get(i)
            if not isinstance(item, Num):
                return None
            if item.v == 0:
                return "".join(out)
            out.append(chr(item.v & 255))
        return None  # no terminator: what follows is not the sample's
    if isinstance(value, Ptr) and isinstance(value.block, Cell) and isinstance(value.block.value, Text):
        return value.block.value.value
    return None


def flat_type(value: Any) -> CType:
    """Return the type of a value, as ``auto`` and template deduction find it."""
    if isinstance(value, Num):
        return CType(value.t)
    if isinstance(value, Vector):
        return CType("vector", (value.array.elem,))
    if isinstance(value, Array):
        return value.elem.pointer()
    if isinstance(value, Ptr):
        return (value.ctype or AUTO).pointer()
    if isinstance(value, Text):
        return CType("string")
    if isinstance(value, Struct):
        return CType(value.kind)
    if isinstance(value, Smart):
        return value.ctype
    return AUTO


def default(machine: Machine, ctype: CType, zero: bool = False) -> Any:
    """Return a variable without initialiser: unknown unless its class initialises it (``zero``: value-initialised)."""
    if ctype.ptr:
        return NULL if zero else Unk("a pointer that was not initialised", machine.line)
    if numeric(ctype):
        return Num(0, ctype.base) if zero else Unk("a variable that was not initialised", machine.line)
    base = ctype.base
    if base == "string":
        return Text("")
    if base == "array" and len(ctype.args) == 2 and isinstance(ctype.args[1], int):
        array = Array(ctype.arg(0), ctype.args[1])
        if array.is_numeric and not zero:
            array.forget(Unk("an array that was not initialised", machine.line))
        elif not array.is_numeric:
            array.data = [default(machine, ctype.arg(0), True) for _ in range(array.n)]
        return Vector(array)
    if base in _SEQUENCES:
        return Vector(Array(ctype.arg(0)))
    if base in _SMART:
        return Smart(NULL, ctype)
    if base in ("pair", "tuple"):
        return Pair([default(machine, a, True) for a in ctype.args if isinstance(a, CType)])
    if base in ("map", "unordered_map", "set", "unordered_set"):
        return Map(ctype.arg(1))
    if base in machine.structs:
        return machine.extra["construct"](machine, ctype, [])
    if base in ("function", "optional"):
        return NULL
    if base == "file":
        return Handle("file", machine.line, good=False)
    if base in ("aclrtStream", "aclrtContext", "HcclComm", "aclrtEvent"):
        return NULL if zero else Unk("a handle that was not initialised", machine.line)
    return Unk(f"an object of type {base}", machine.line)


def _sequence(machine: Machine, items: list[Any], elem: CType) -> Vector:
    if elem.base == "auto" and items:
        elem = flat_type(items[0])
    array = Array(elem, len(items))
    texts: list[str | None] = []
    kind = numeric(elem)
    for i, item in enumerate(items):
        if kind and isinstance(item, Num):
            number = item if item.t == kind else cast(item, kind)
            if isinstance(number, Num):
                array.data[i] = number.v
                texts.append(number.text)
                continue
        texts.append(None)
        array.set(i, convert(machine, duplicate(item), elem))
    if array.is_numeric:
        array.texts = texts
    return Vector(array)


def array_of(machine: Machine, braces: Braces, elem: CType, extents: list[int | None]) -> Array:
    """Return a C array from its initialiser, the rest zero."""
    inner = extents[1:]
    n = extents[0] if extents and extents[0] is not None else len(braces.items)
    if inner:
        array = Array(CType("carray", (elem,)), n)
        flat = [b for b in braces.items if not isinstance(b, Braces)]
        for i in range(n):
            if flat:
                item: Any = Unk("a nested array without inner braces", braces.line)
                array.data[i] = Array(elem, inner[0] or 0)
                array.data[i].forget(item)
            else:
                item = braces.items[i] if i < len(braces.items) else Braces([], braces.line)
                array.data[i] = array_of(machine, item, elem, inner)
        return array
    array = _sequence(machine, braces.items, elem).array
    array.resize(n)
    if not array.is_numeric:
        array.data = [default(machine, elem, True) if v is None else v for v in array.data]
    return array


def convert(machine: Machine, value: Any, ctype: CType) -> Any:
    """Convert a value to the declared type of what takes it. The caller copies where C++ copies."""
    if isinstance(value, Unk):
        return value
    kind = numeric(ctype)
    if kind:
        if isinstance(value, Num):
            return value if value.t == kind else cast(value, kind)
        if isinstance(value, Braces):
            if kind.startswith("complex") and len(value.items) == 2:
                parts = [convert(machine, item, DOUBLE) for item in value.items]
                if not all(isinstance(p, Num) for p in parts):
                    return next(p for p in parts if not isinstance(p, Num))
                return cast(Num(complex(parts[0].v, parts[1].v), "complex128"), kind)
            return convert(machine, value.items[0], ctype) if value.items else Num(0, kind)
        if isinstance(value, Smart) and kind == "bool":
            return Num(not isinstance(value.value, Null), "bool")
        if isinstance(value, Struct):
            return machine.extra["conversion"](machine, value, ctype)
        return cast(decay(value), kind)
    if ctype.ptr:
        if isinstance(value, Num):
            return NULL if value.v == 0 else Unk("a number used as a pointer", machine.line)
        if isinstance(value, Braces):
            return convert(machine, value.items[0], ctype) if value.items else NULL
        value = decay(value)
        if isinstance(value, Text) and ctype.base != "string":
            return value
        if isinstance(value, Ptr) and ctype.base not in ("void", "auto") and value.ctype != ctype.pointee():
            return repoint(value, ctype.pointee())
        return value
    base = ctype.base
    if base == "specialised":
        return Unk("a type that a specialisation names", machine.line)
    if base == "auto":
        return _sequence(machine, value.items, AUTO) if isinstance(value, Braces) else value
    if base == "string":
        if isinstance(value, Braces):
            return convert(machine, value.items[0], ctype) if value.items else Text("")
        text = string_of(value)
        return Text(text) if text is not None else Unk("a string that is not known", machine.line)
    if base in _SEQUENCES and isinstance(value, Braces):
        made = _braced_vector(machine, value, ctype)
        if isinstance(made, Vector) and base == "array" and len(ctype.args) == 2 and isinstance(ctype.args[1], int):
            made.array.resize(ctype.args[1])
        return made
    if base in _SMART:
        if isinstance(value, Smart):
            return value
        return Smart(NULL if isinstance(value, Num) else decay(value), ctype)
    if isinstance(value, Braces):
        return _braced(machine, value, ctype)
    if base in ("aclrtStream", "aclrtContext") and isinstance(value, Num):
        return NULL
    if base in machine.structs and not isinstance(value, Struct):
        return machine.extra["construct"](machine, ctype, [value])
    return value


def _braced_vector(machine: Machine, value: Braces, ctype: CType) -> Vector | Unk:
    elem, items = ctype.arg(0), value.items
    # {{1, 2}} for a vector of numbers copies the inner list; {{{...}}} is left unknown
    if len(items) == 1 and isinstance(items[0], Braces) and numeric(elem):
        inner = items[0]
        if any(isinstance(i, Braces) for i in inner.items):
            return Unk("nested braces", value.line)
        if len(inner.items) != 1 or ctype.base == "array":
            return _sequence(machine, inner.items, elem)
    if len(items) == 1 and isinstance(items[0], Vector) and flat_type(items[0]).args == (elem,):
        return Vector(items[0].array.copy())
    return _sequence(machine, items, elem)


def _braced(machine: Machine, value: Braces, ctype: CType) -> Any:
    base = ctype.base
    if base in ("pair", "tuple"):
        types = [a for a in ctype.args if isinstance(a, CType)]
        made = [duplicate(convert(machine, v, t)) for v, t in zip(value.items, types, strict=False)]
        return Pair(made + [default(machine, t, True) for t in types[len(made) :]])
    if base in ("map", "unordered_map"):
        result = Map(ctype.arg(1))
        for item in value.items:
            if isinstance(item, Braces) and len(item.items) == 2:
                result.items[map_key(convert(machine, item.items[0], ctype.arg(0)))] = Cell(
                    convert(machine, item.items[1], ctype.arg(1)), ctype.arg(1)
                )
        return result
    if base in ("set", "unordered_set"):
        result = Map(ctype.arg(0))
        result.items = {map_key(convert(machine, i, ctype.arg(0))): Cell(i, ctype.arg(0)) for i in value.items}
        return result
    if base in machine.structs:
        return machine.extra["construct"](machine, ctype, value.items, True)
    if not value.items:
        return default(machine, ctype, True)
    return convert(machine, value.items[0], ctype) if len(value.items) == 1 else Unk("a brace initialiser", value.line)


def map_key(value: Any) -> Any:
    """Return a value as the key of a Python dict."""
    if isinstance(value, Num):
        return value.v
    text = string_of(value)
    return text if text is not None else value


def repoint(pointer: Ptr, ctype: CType) -> Ptr:
    """Return the pointer after a cast to another pointee type."""
    block = pointer.block
    if isinstance(block, Array) and block.is_numeric and numeric(ctype):
        size = block.elem.size or 1
        return Ptr(block.seen_as(ctype), pointer.at * size // (ctype.size or 1), ctype)
    return Ptr(block, pointer.at, ctype)


def copy_in(machine: Machine, value: Any, ctype: CType) -> Any:
    """Convert and copy, as initialising a variable by value does."""
    if isinstance(value, (Vector, Text, Struct, Pair, Map)):
        value = duplicate(value)
    elif isinstance(value, Array) and ctype.ptr == 0 and ctype.base != "carray":
        value = decay(value)
    return convert(machine, value, ctype)
