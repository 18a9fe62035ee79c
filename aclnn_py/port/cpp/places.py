"""Where an expression's value is stored: variables, elements, members."""

from __future__ import annotations

from typing import Any

from .arithmetic import binary, bit_cast
from .convert import load, target
from .machine import Machine, locates
from .syntax import Node
from .types import AUTO, CHAR, CType, numeric
from .values import (
    Array,
    Cell,
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
)

__all__ = ["UnionCell", "element"]


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
