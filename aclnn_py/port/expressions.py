"""Evaluation of C++ expressions other than calls."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from . import names
from .arithmetic import binary, bit_cast, cast, literal, unary, unknown
from .convert import convert, copy_in, decay, load, target
from .machine import Machine, evaluates, locates
from .syntax import Node, fragment
from .types import AUTO, CHAR, SIZES, CType, numeric
from .values import (
    NULL,
    Array,
    Braces,
    Cell,
    Closure,
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
    truth,
)

__all__ = ["assign", "sizeof"]

_CONSTANTS = {
    "INFINITY": Num(math.inf, "float32"), "NAN": Num(math.nan, "float32"), "NULL": NULL, "nullptr": NULL,
    "INT_MAX": Num(2**31 - 1), "INT32_MAX": Num(2**31 - 1), "INT_MIN": Num(-(2**31)), "INT64_MAX": Num(2**63 - 1, "int64"),
    "UINT32_MAX": Num(2**32 - 1, "uint32"), "UINT16_MAX": Num(65535), "INT32_MIN": Num(-(2**31)),
    "INT64_MIN": Num(-(2**63), "int64"), "UINT64_MAX": Num(2**64 - 1, "uint64"), "LONG_MAX": Num(2**63 - 1, "int64"),
    "FLT_MAX": Num(3.4028234663852886e38, "float32"), "FLT_MIN": Num(1.1754943508222875e-38, "float32"),
    "FLT_EPSILON": Num(2.0**-23, "float32"), "DBL_MAX": Num(1.7976931348623157e308, "float64"), "SIZE_MAX": Num(2**64 - 1, "uint64"),
    "M_PI": Num(math.pi, "float64", "np.pi"), "EXIT_SUCCESS": Num(0), "EXIT_FAILURE": Num(1), "INT8_MAX": Num(127),
    "true": Num(True, "bool", "True"), "false": Num(False, "bool", "False"), "INT8_MIN": Num(-128), "UINT8_MAX": Num(255),
    "__FILE__": Text(""), "__LINE__": Num(0), "__func__": Text(""), "__FUNCTION__": Text(""),
}  # fmt: skip


@evaluates("number_literal")
def _number(m: Machine, node: Node) -> Any:
    if node.cache is None:
        node.cache = literal(node.text) or m.unk(f"the number {node.text} is not understood", node)
    return node.cache


@evaluates("true", "false", "null", "nullptr")
def _constant(m: Machine, node: Node) -> Any:
    return _CONSTANTS[node.text]


def _unescape(text: str) -> str:
    try:
        return str(ast.literal_eval(re.sub(r"\\([?%])", r"\1", text).replace("\n", " ")))
    except (ValueError, SyntaxError):
        return text.strip("\"'")


@evaluates("string_literal", "raw_string_literal")
def _string(m: Machine, node: Node) -> Any:
    if node.cache is None:
        text = node.text
        node.cache = Text(
            text.split("(", 1)[1].rsplit(")", 1)[0] if text.startswith("R") else _unescape(text.lstrip("uUL8"))
        )
    return node.cache


@evaluates("concatenated_string")
def _strings(m: Machine, node: Node) -> Any:
    parts = [m.eval(k) if k.kind.endswith("literal") else Text("%ld") for k in node.kids]
    return Text("".join(p.value for p in parts if isinstance(p, Text)))


@evaluates("char_literal")
def _char(m: Machine, node: Node) -> Any:
    text = _unescape(node.text)
    return Num(ord(text[0]) if text else 0, "int8")


@evaluates("identifier", "type_identifier", "field_identifier")
def _identifier(m: Machine, node: Node) -> Any:
    return lookup(m, node.text, node)


def lookup(m: Machine, name: str, node: Node) -> Any:
    """Return the value of a name."""
    cell = m.scope.find(name)
    if cell is not None:
        return cell.value
    constant = names.constant(name)
    if constant is not None:
        return constant
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    closure = m.function(name)
    if closure is not None:
        return closure
    this = m.scope.find_this()
    if this is not None and name in m.structs[this.kind].methods:
        return Closure(name, m.structs[this.kind].methods[name], None, this)
    macro = m.macros.get(name)
    if macro is not None and macro.parameters is None and macro.body:
        body = fragment(f"({macro.body})", node.line, m.file)
        return m.eval(body.kids[0])
    if name.startswith("acl"):
        return Closure(name, [])  # an API function passed as a deleter
    return Unk(f"{name} is not known", node.line)


@evaluates("qualified_identifier")
def _qualified(m: Machine, node: Node) -> Any:
    inner = node["name"]
    while inner.kind == "qualified_identifier":
        inner = inner["name"]
    if inner.kind == "template_function":
        inner = inner["name"]
    scope = node.get("scope")
    if inner.text in ("value", "npos") and scope is not None:
        return _trait(m, node, scope, inner.text)
    return lookup(m, inner.text, node)


def _trait(m: Machine, node: Node, scope: Node, name: str) -> Any:
    if name == "npos":
        return Num(2**64 - 1, "uint64")
    inner: Node | None = node
    while inner is not None and inner.kind == "qualified_identifier":
        scope, inner = inner.get("scope") or scope, inner.get("name")
    return type_trait(m, scope)


def type_trait(m: Machine, node: Node) -> Any:
    """``is_same<A, B>`` and the like."""
    if node.kind not in ("template_type", "template_function"):
        return m.unk("a type trait", node)
    args = [m.type(a) for a in node["arguments"].kids]
    name = node["name"].text.removesuffix("_v")
    if name == "is_same" and len(args) == 2:
        return Num(args[0].bare() == args[1].bare(), "bool")
    kind = numeric(args[0]) if args else None
    if name == "is_floating_point":
        return Num(kind in ("float32", "float64"), "bool")
    if name == "is_integral":
        return Num(kind is not None and kind.startswith(("int", "uint", "bool")), "bool")
    return m.unk("a type trait", node)


@evaluates("template_function")
def _template_value(m: Machine, node: Node) -> Any:
    name = node["name"].text
    return type_trait(m, node) if name.startswith("is_") else lookup(m, name, node)


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
    a, b = m.eval(left), m.eval(right)
    if op in ("<<", ">>") and not isinstance(a, (Num, Unk)):
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


@locates("identifier", "field_identifier")
def _variable(m: Machine, node: Node) -> Any:
    cell = m.scope.find(node.text)
    return (cell, 0) if cell is not None else None


@locates("qualified_identifier")
def _qualified_variable(m: Machine, node: Node) -> Any:
    cell = m.scope.find(node["name"].text)
    return (cell, 0) if cell is not None else None


@locates("parenthesized_expression")
def _parenthesized(m: Machine, node: Node) -> Any:
    return m.lvalue(node.kids[0])


@locates("pointer_expression")
def _deref(m: Machine, node: Node) -> Any:
    if node["operator"].text != "*":
        return None
    value = m.eval(node["argument"])
    if isinstance(value, Smart):
        value = value.value
    return target(value)


@locates("subscript_expression")
def _subscript(m: Machine, node: Node) -> Any:
    if node.cache is None:
        indices = node.get("indices") or node["index"]
        node.cache = (node["argument"], indices.kids[0] if indices.kind == "subscript_argument_list" else indices)
    base, index = m.eval(node.cache[0]), m.eval(node.cache[1])
    return element(m, base, index, node)


def element(m: Machine, base: Any, index: Any, node: Node) -> tuple[Any, Any] | None:
    """Return the place of ``base[index]``."""
    if isinstance(base, Smart):
        base = base.value
    if isinstance(base, Map):
        from .convert import map_key

        key = map_key(index)
        if key not in base.items:
            base.items[key] = Cell(m.extra["default"](m, base.elem, True), base.elem)
        return base.items[key], 0
    if isinstance(base, Struct):
        found = m.extra["operator"](m, "[]", base, index, node)
        return (Cell(found, AUTO), 0)
    if not isinstance(index, Num):
        return None
    at = index.v if not isinstance(index.v, (bool, float)) else int(index.v)
    if isinstance(base, Vector):
        return base.array, at
    if isinstance(base, Array):
        return base, at
    if isinstance(base, Ptr):
        return target(binary("+", base, index))
    if isinstance(base, Text) and isinstance(at, int):
        char = ord(base.value[at]) & 255 if 0 <= at < len(base.value) else 0
        return Cell(Num(char, "int8"), CHAR), 0
    return None


@locates("field_expression")
def _field(m: Machine, node: Node) -> Any:
    value = m.eval(node["argument"])
    if isinstance(value, Smart):
        value = value.value
    if isinstance(value, Ptr):
        value = load(value)
    name = node["field"].text
    if isinstance(value, Struct):
        cell = value.fields.get(name)
        if cell is None:
            return None
        return (UnionCell(value, name), 0) if value.union else (cell, 0)
    if isinstance(value, Pair) and name in ("first", "second"):
        return value.cells[0 if name == "first" else 1], 0
    if isinstance(value, Num) and name == "val":  # the bits of a half
        return Cell(bit_cast(value, "uint16"), CType("uint16")), 0
    return None


class UnionCell(Cell):
    """A member of a union: reading another member than was written gives the bytes."""

    __slots__ = ("owner",)

    def __init__(self, owner: Struct, name: str) -> None:
        cell = owner.fields[name]
        super().__init__(None, cell.ctype, name)
        self.owner = owner

    def get(self, _index: Any = 0) -> Any:
        """Return the value, from the bytes of the member written last."""
        last = self.owner.last
        if last is None or last == self.name:
            return self.owner.fields[self.name].value
        kind = numeric(self.ctype)
        value = self.owner.fields[last].value
        return bit_cast(value, kind) if kind else Unk("a union seen as another member")

    def set(self, _index: Any, value: Any) -> None:
        """Write the member."""
        self.owner.fields[self.name].value = duplicate(value)
        self.owner.last = self.name
