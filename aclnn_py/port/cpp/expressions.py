"""Evaluation of C++ expressions other than calls."""

from __future__ import annotations

import re
from typing import Any

from .arithmetic import binary, cast, unary, unknown
from .convert import convert, copy_in, decay, load
from .machine import Machine, evaluates
from .syntax import Node
from .types import AUTO, SIZES, CType
from .values import (
    Array,
    Braces,
    Cell,
    Closure,
    Handle,
    Num,
    Ptr,
    Smart,
    Struct,
    Text,
    Unk,
    truth,
)

__all__ = ["assign", "bytes_of", "explicit", "sizeof"]


@evaluates("parenthesized_expression", "condition_clause", "expression_statement")
def _inner(m: Machine, node: Node) -> Any:
    value = node.get("value") or (node.kids[-1] if node.kids else None)
    return m.eval(value) if value is not None else None


@evaluates("comma_expression")
def _comma(m: Machine, node: Node) -> Any:
    for kid in node.kids[:-1]:
        m.eval(kid)
    return m.eval(node.kids[-1])


@evaluates("this")
def _this(m: Machine, node: Node) -> Any:
    this = m.scope.find_this()
    return Ptr(Cell(this, CType(this.kind)), 0, CType(this.kind)) if this is not None else m.unk("this", node)


@evaluates("initializer_list")
def _braces(m: Machine, node: Node) -> Any:
    if any(k.kind == "initializer_pair" for k in node.kids):
        return Braces([m.eval(k["value"]) if "value" in k.fields else m.eval(k) for k in node.kids], node.line)
    return Braces([m.eval(k) for k in node.kids], node.line)


@evaluates("binary_expression")
def _binary(m: Machine, node: Node) -> Any:
    if node.cache is None:
        node.cache = (node["operator"].text, node["left"], node["right"])
    op, left, right = node.cache
    if op in ("&&", "||", "and", "or"):
        return _logic(m, "&&" if op in ("&&", "and") else "||", left, right)
    count = _array_length(m, left, right) if op == "/" and left.kind == right.kind == "sizeof_expression" else None
    if count is not None:
        return Num(count, "uint64")
    a, b = m.eval(left), m.eval(right)
    if op == ">>" and not isinstance(a, Num):
        place = m.lvalue(right)
        if place is not None:
            place[0].set(place[1], m.unk("what a stream gives", node))
        return a
    if op == "<<" and not isinstance(a, (Num, Unk)):
        return m.extra["stream"](m, a, b, node)
    if isinstance(a, Struct) or isinstance(b, Struct):
        return m.extra["operator"](m, op, a, b, node)
    result = binary(op, a, b)
    if isinstance(result, Unk):
        if not result.line:
            result.line = node.line
        if op in ("<", ">", "<=", ">=", "==", "!="):
            m.extra["compared"](m, op, a, b, node, result)
    return result


def _logic(m: Machine, op: str, left: Node, right: Node) -> Any:
    a = m.eval(left)
    known = truth(a) if not (isinstance(a, Unk) and a.tag == "workspace") else None
    if known is not None:
        if known != (op == "&&"):
            return Num(known, "bool")
        b = m.eval(right)
        other = truth(b)
        return b if other is None or (isinstance(b, Unk)) else Num(other, "bool")
    if m.vector and isinstance(a, Num):
        b = m.eval(right)
        if isinstance(b, Num):
            x, y = cast(a, "bool").v, cast(b, "bool").v
            return Num((x & y) if op == "&&" else (x | y), "bool")
        return b
    b = m.eval(right)
    other = truth(b)
    if other is not None and other != (op == "&&"):
        return Num(other, "bool")
    return unknown(op, a, b) if isinstance(a, Unk) else m.unk("a condition", left)


@evaluates("unary_expression")
def _unary(m: Machine, node: Node) -> Any:
    op = node["operator"].text
    value = m.eval(node["argument"])
    if op in ("!", "not"):
        if isinstance(value, Num) and m.vector and not isinstance(value.v, (int, float, bool)):
            return Num(~cast(value, "bool").v, "bool")
        known = truth(value)
        if known is None or (isinstance(value, Unk)):
            return unknown("!", value) if isinstance(value, Unk) else m.unk("a condition", node)
        return Num(not known, "bool")
    return unary(op, value)


@evaluates("conditional_expression")
def _conditional(m: Machine, node: Node) -> Any:
    condition = m.eval(node["condition"])
    known = truth(condition)
    if known is not None:
        return m.eval(node["consequence"] if known else node["alternative"])
    a, b = m.eval(node["consequence"]), m.eval(node["alternative"])
    if isinstance(condition, Num) and isinstance(a, Num) and isinstance(b, Num):
        import numpy as np

        from .arithmetic import common

        t = common(a.t, b.t)
        return Num(np.where(condition.v, cast(a, t).v, cast(b, t).v), t)
    return condition if isinstance(condition, Unk) else m.unk("a condition", node)


@evaluates("pointer_expression")
def _pointer(m: Machine, node: Node) -> Any:
    if node["operator"].text == "*":
        return load(m.eval(node["argument"]))
    argument = node["argument"]
    place = m.lvalue(argument)
    if argument.kind == "subscript_expression" and place is not None and isinstance(place[0], Cell):
        base = m.eval(argument["argument"])
        if isinstance(base, Text):
            return base
    if place is None:
        value = m.eval(argument)
        return value if isinstance(value, (Closure, Unk)) else Ptr(Cell(value, AUTO), 0, AUTO)
    block, at = place
    if isinstance(block, Cell) and isinstance(block.value, Array):
        return Ptr(block.value, 0, block.value.elem)
    return Ptr(block, at, block.ctype)


@evaluates("subscript_expression", "field_expression")
def _element(m: Machine, node: Node) -> Any:
    place = m.lvalue(node)
    if place is None:
        if node.kind == "field_expression":
            value = m.eval(node["argument"])
            if isinstance(value, Unk):
                return value
        return m.unk(f"{node.text[:40]} cannot be followed", node)
    value = place[0].get(place[1])
    if isinstance(value, Unk) and not value.line:
        value.line = node.line
    return value


@evaluates("sizeof_expression", "alignof_expression")
def _sizeof(m: Machine, node: Node) -> Any:
    size = sizeof(m, node)
    return Num(size, "uint64") if size is not None else m.unk("the size of a type", node)


def sizeof(m: Machine, node: Node) -> int | None:
    """Bytes of the type or expression in a sizeof."""
    inner = node.get("type") or node.get("value") or node.kids[0]
    while inner.kind == "parenthesized_expression":
        inner = inner.kids[0]
    if inner.kind == "type_descriptor":
        return _size(m, m.type(inner))
    if inner.kind in ("identifier", "qualified_identifier") and m.scope.find(inner.text) is None:
        return _size(m, m.type(inner))
    place = m.lvalue(inner)
    if (
        place is not None
        and not isinstance(place[0].ctype, type(None))
        and place[0].ctype.base not in ("auto", "carray")
    ):
        block = place[0]
        if isinstance(block, Cell) and isinstance(block.value, Array):
            return bytes_of(block.value)
        return _size(m, block.ctype)
    value = m.eval(inner)
    if isinstance(value, Num):
        return SIZES[value.t]
    return bytes_of(value) if isinstance(value, Array) else 8 if isinstance(value, Ptr) else None


def _array_length(m: Machine, whole: Node, part: Node) -> int | None:
    """Return the length that ``sizeof(a) / sizeof(a[0])`` gives, whatever the size of an element is."""
    name, first = (re.sub(r"^sizeof|[()\s]", "", n.text) for n in (whole, part))
    cell = m.scope.find(name)
    array = cell.value if cell is not None else None
    return array.n if isinstance(array, Array) and first in (f"{name}[0]", f"*{name}") else None


def bytes_of(array: Array) -> int | None:
    """Bytes of a C array, nested ones included."""
    if array.elem.base == "carray":
        inner = bytes_of(array.data[0]) if array.data else 0
        return None if inner is None else inner * array.n
    size = array.elem.size
    return None if size is None else size * array.n


def _size(m: Machine, ctype: CType) -> int | None:
    if ctype.size is not None:
        return ctype.size
    if ctype.base in m.structs and not ctype.ptr:
        sizes = [_size(m, c.ctype) for c in m.extra["construct"](m, ctype, []).fields.values()]
        if any(s is None for s in sizes) or len(set(sizes)) > 1:
            return None  # padding: left to the compiler
        return sum(s for s in sizes if s is not None)
    return 8 if ctype.ptr else None


@evaluates("assignment_expression")
def _assignment(m: Machine, node: Node) -> Any:
    op = node["operator"].text
    value = m.eval(node["right"])
    left = node["left"]
    place = m.lvalue(left)
    if place is None:
        return m.extra["assign_other"](m, left, value, node)
    if op != "=":
        old = place[0].get(place[1])
        if isinstance(old, Text) and op == "+=":
            old.value += value.value if isinstance(value, Text) else chr(value.v) if isinstance(value, Num) else "?"
            return old
        value = binary(op[:-1], old, value)
    elif isinstance(value, Closure) and value.name == "lambda":
        value.name = left.text
    return assign(m, place, value)


def assign(m: Machine, place: tuple[Any, Any], value: Any) -> Any:
    """Store a value, converted to the type of its place and copied where C++ copies."""
    block, at = place
    ctype = block.ctype
    if isinstance(block, Cell) and isinstance(block.value, Smart) and not isinstance(value, (Smart, Unk)):
        block.value.value = decay(value)
        return block.value
    stored = copy_in(m, value, ctype)
    if isinstance(stored, Smart) and isinstance(value, Smart):
        stored = Smart(value.value, value.ctype)
    block.set(at, stored)
    if isinstance(stored, Handle) and isinstance(block, Cell):
        stored.data.setdefault("name", block.name)
    return stored


@evaluates("update_expression")
def _update(m: Machine, node: Node) -> Any:
    place = m.lvalue(node["argument"])
    if place is None:
        return m.unk("an update", node)
    block, at = place
    old = block.get(at)
    op = node["operator"].text[0]
    new = convert(m, binary(op, old, Num(1)), block.ctype)
    if isinstance(new, Num) and isinstance(old, Num):
        new.text = None
    block.set(at, new)
    prefix = node["operator"].start < node["argument"].start
    return new if prefix else old


@evaluates("cast_expression")
def _cast(m: Machine, node: Node) -> Any:
    return explicit(m, m.eval(node["value"]), m.type(node["type"]))


def explicit(m: Machine, value: Any, ctype: CType) -> Any:
    """Return a cast that is written out; pointers take the new pointee type."""
    if ctype.base == "void" and not ctype.ptr:
        return value
    if isinstance(value, Text) and ctype.ptr:
        return value
    return convert(m, value, ctype.bare()) if not isinstance(value, Struct) or ctype.ptr == 0 else value


@evaluates("compound_literal_expression")
def _compound(m: Machine, node: Node) -> Any:
    return copy_in(m, m.eval(node["value"]), m.type(node["type"]))


@evaluates("delete_expression")
def _delete(m: Machine, node: Node) -> Any:
    return None


@evaluates("throw_statement", "ERROR", "co_await_expression")
def _not_followed(m: Machine, node: Node) -> Any:
    return m.unk(f"{node.kind} is not followed", node)


@evaluates("new_expression")
def _new(m: Machine, node: Node) -> Any:
    ctype = m.type(node["type"])
    declarator = node.get("declarator")
    while declarator is not None and declarator.kind.endswith("pointer_declarator"):
        ctype, declarator = ctype.pointer(), declarator.get("declarator")
    arguments = node.get("arguments")
    if declarator is not None:
        length = m.eval(declarator["length"] if "length" in declarator.fields else declarator.kids[0])
        if not isinstance(length, Num):
            return m.unk("an array of unknown length", node)
        array = Array(ctype, int(length.v))
        if arguments is None and array.is_numeric:
            array.forget(Unk("memory that was not initialised", node.line))
        elif not array.is_numeric:
            array.data = [m.extra["default"](m, ctype, True) for _ in range(array.n)]
        return Ptr(array, 0, ctype)
    values = [m.eval(a) for a in arguments.kids] if arguments is not None else []
    if ctype.base == "thread":
        m.extra["construct"](m, ctype, values)
        return Handle("thread", node.line)
    value = m.extra["construct"](m, ctype, values, arguments is not None and arguments.kind == "initializer_list")
    return Ptr(Cell(value, ctype), 0, ctype)


# lvalues
