"""Methods of the standard containers, strings and smart pointers, and the algorithms over them."""

from __future__ import annotations

from typing import Any

from .algorithms import fill
from .convert import convert, copy_in, decay, default, map_key, string_of
from .library import convert_array, slice_of, span
from .machine import Machine, method
from .syntax import Node
from .types import CType
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
    Text,
    Vector,
)

__all__ = ["LENGTHS"]


LENGTHS = ("size", "length", "count")


@method(Vector, "size", "length")
def _size(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    return Num(v.array.n, "uint64")


@method(Vector, "empty")
def _empty(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    return Num(v.array.n == 0, "bool")


@method(Vector, "data", "begin", "cbegin")
def _data(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    return Ptr(v.array, 0, v.array.elem)


@method(Vector, "end", "cend")
def _end(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    return Ptr(v.array, v.array.n, v.array.elem)


@method(Vector, "at")
def _at(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    return v.array.get(args[0].v) if isinstance(args[0], Num) else m.unk("an index", node)


@method(Vector, "front", "back")
def _edge(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    back = node["function"]["field"].text == "back"
    return v.array.get(v.array.n - 1 if back else 0)


@method(Vector, "push_back", "emplace_back")
def _push(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    elem = v.array.elem
    if len(args) == 1 and (isinstance(args[0], Braces) or not (elem.base in m.structs and not elem.ptr)):
        value = copy_in(m, args[0], elem)
    else:
        value = m.extra["construct"](m, elem, args)
    v.array.append(value)
    return None


@method(Vector, "reserve", "shrink_to_fit")
def _reserve(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    return None


@method(Vector, "clear")
def _clear(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    v.array = Array(v.array.elem, 0, v.array.name)


@method(Vector, "pop_back")
def _pop(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    v.array.resize(max(v.array.n - 1, 0))


@method(Vector, "resize", "assign")
def _resize(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    name = node["function"]["field"].text
    if name == "assign":
        v.array = m.extra["construct"](m, CType("vector", (v.array.elem,)), args).array
        return None
    if not isinstance(args[0], Num):
        v.array.forget(m.unk("a length", node))
        return None
    old, n = v.array.n, int(args[0].v)
    if old == 0:
        made = m.extra["construct"](m, CType("vector", (v.array.elem,)), args)
        if isinstance(made, Vector):
            v.array = made.array
        return None
    v.array.resize(n)
    for i in range(old, n):
        v.array.set(i, copy_in(m, args[1], v.array.elem) if len(args) > 1 else default(m, v.array.elem, True))
    return None


@method(Vector, "fill")
def _fill_method(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    fill(m, v.array, 0, v.array.n, args[0])


@method(Vector, "insert")
def _insert(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    at = args[0].at if isinstance(args[0], Ptr) and args[0].block is v.array else None
    tail: Array | None = None
    if len(args) == 3 and isinstance(args[1], Ptr):
        found = span(args[1], args[2])
        tail = slice_of(*found) if found is not None else None
    elif len(args) == 3 and isinstance(args[1], Num):
        tail = m.extra["construct"](m, CType("vector", (v.array.elem,)), args[1:]).array
    elif len(args) == 2 and isinstance(args[1], Braces):  # a list of elements
        made = convert(m, args[1], CType("vector", (v.array.elem,)))
        tail = made.array if isinstance(made, Vector) else None
    elif len(args) == 2:
        tail = Array(v.array.elem)
        tail.append(copy_in(m, args[1], v.array.elem))
    if at is None or tail is None:
        v.array.forget(m.unk("insert", node))
        return m.unk("insert", node)
    rest = slice_of(v.array, at, v.array.n)
    v.array.resize(at)
    for part in (convert_array(m, tail, v.array.elem).array, rest):
        for i in range(part.n):
            v.array.append(part.get(i))
    return Ptr(v.array, at, v.array.elem)


@method(Vector, "erase")
def _erase(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    if not isinstance(args[0], Ptr):
        v.array.forget(m.unk("erase", node))
        return m.unk("erase", node)
    low = args[0].at
    high = args[1].at if len(args) > 1 and isinstance(args[1], Ptr) else low + 1
    head, rest = slice_of(v.array, 0, low), slice_of(v.array, high, v.array.n)
    v.array = head
    for i in range(rest.n):
        v.array.append(rest.get(i))
    return Ptr(v.array, low, v.array.elem)


@method(Vector, "swap")
def _swap(m: Machine, v: Vector, args: list[Any], node: Node) -> Any:
    if isinstance(args[0], Vector):
        v.array, args[0].array = args[0].array, v.array


# strings


@method(Text, "c_str", "data", "str")
def _c_str(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    return Text(s.value)


@method(Text, "size", "length")
def _length(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    return Num(len(s.value.encode()), "uint64")


@method(Text, "empty")
def _no_text(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    return Num(not s.value, "bool")


@method(Text, "find")
def _find(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    text = string_of(args[0])
    if text is None:
        return m.unk("find", node)
    at = s.value.find(text)
    return Num(at if at >= 0 else 2**64 - 1, "uint64")


@method(Text, "substr")
def _substr(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    if not all(isinstance(a, Num) for a in args):
        return m.unk("substr", node)
    low = int(args[0].v)
    return Text(s.value[low : low + int(args[1].v)] if len(args) > 1 else s.value[low:])


@method(Text, "append", "push_back", "assign")
def _append(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    text = string_of(args[0]) if not isinstance(args[0], Num) else chr(args[0].v)
    s.value = (text or "") if node["function"]["field"].text == "assign" else s.value + (text or "")
    return s


@method(Text, "begin", "end", "copy", "at", "compare", "rfind")
def _text_other(m: Machine, s: Text, args: list[Any], node: Node) -> Any:
    return m.unk("a string's characters", node)


# smart pointers, maps, pairs, files


@method(Smart, "get", "release")
def _get(m: Machine, s: Smart, args: list[Any], node: Node) -> Any:
    value = s.value
    if node["function"]["field"].text == "release":
        s.value = NULL
    return value


@method(Smart, "reset")
def _reset(m: Machine, s: Smart, args: list[Any], node: Node) -> Any:
    s.value = decay(args[0]) if args and not isinstance(args[0], Num) else NULL


@method(Smart, "get_deleter", "use_count")
def _smart_other(m: Machine, s: Smart, args: list[Any], node: Node) -> Any:
    return m.unk("a smart pointer's state", node)


@method(Map, "size")
def _map_size(m: Machine, v: Map, args: list[Any], node: Node) -> Any:
    return Num(len(v.items), "uint64")


@method(Map, "count", "contains")
def _count(m: Machine, v: Map, args: list[Any], node: Node) -> Any:
    return Num(int(map_key(args[0]) in v.items), "uint64")


@method(Map, "at")
def _map_at(m: Machine, v: Map, args: list[Any], node: Node) -> Any:
    cell = v.items.get(map_key(args[0]))
    return cell.value if cell is not None else m.unk("a key that is not in the map", node)


@method(Map, "find")
def _map_find(m: Machine, v: Map, args: list[Any], node: Node) -> Any:
    key = map_key(args[0])
    cell = v.items.get(key)
    if cell is None:
        return NULL
    first = Text(key) if isinstance(key, str) else Num(key, "int64")
    return Ptr(Cell(Pair([first, cell.value]), CType("pair")), 0, CType("pair"))


@method(Map, "end")
def _map_end(m: Machine, v: Map, args: list[Any], node: Node) -> Any:
    return NULL


@method(Map, "insert", "emplace")
def _map_insert(m: Machine, v: Map, args: list[Any], node: Node) -> Any:
    if len(args) == 2:
        v.items[map_key(args[0])] = Cell(args[1], v.elem)
    elif isinstance(args[0], Braces) and len(args[0].items) == 2:
        v.items[map_key(args[0].items[0])] = Cell(args[0].items[1], v.elem)
    else:
        v.items[map_key(args[0])] = Cell(args[0], v.elem)
    return None


@method(Null, "get")
def _null_get(m: Machine, v: Null, args: list[Any], node: Node) -> Any:
    return NULL


@method(Null, "good", "is_open", "fail", "joinable", "join", "detach")
def _null_state(m: Machine, v: Null, args: list[Any], node: Node) -> Any:
    return Num(False, "bool")


@method(Handle, "is_open", "good")
def _is_open(m: Machine, h: Handle, args: list[Any], node: Node) -> Any:
    return Num(bool(h.data.get("good")), "bool")


@method(Handle, "fail", "bad", "joinable")
def _fail(m: Machine, h: Handle, args: list[Any], node: Node) -> Any:
    return Num(False if h.kind == "thread" else not h.data.get("good"), "bool")


@method(Handle, "open", "close", "join", "detach", "write", "flush", "precision", "setf", "seekg", "width", "fill")
def _file(m: Machine, h: Handle, args: list[Any], node: Node) -> Any:
    return Num(0)


@method(Handle, "str")
def _str(m: Machine, h: Handle, args: list[Any], node: Node) -> Any:
    return Text("")


@method(Num, "real", "imag")
def _part(m: Machine, z: Num, args: list[Any], node: Node) -> Any:
    value = getattr(z.v, node["function"]["field"].text)
    return Num(value, "float32" if z.t == "complex64" else "float64")


# algorithms
