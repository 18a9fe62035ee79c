"""Objects of the sample's own classes: constructors, operators and conversions."""

from __future__ import annotations

from typing import Any

from .arithmetic import binary, cast
from .convert import copy_in, default
from .functions import Argument, find_method, invoke, run, score
from .machine import Machine, Scope
from .syntax import Node
from .types import AUTO, CType, numeric
from .values import Array, Braces, Closure, Struct, Unk, duplicate

__all__ = ["construct", "conversion", "operator"]


def construct(m: Machine, ctype: CType, values: list[Any], braces: bool = False) -> Any:
    """Return an object of that type from constructor arguments (``braces``: an aggregate's members)."""
    definition = m.structs.get(ctype.base) if not ctype.ptr else None
    if definition is None:
        return m.extra["build"](m, ctype, values)
    made = Struct(ctype.base, definition.union)
    outer = m.scope
    m.scope = Scope(definition.scope, made)
    for name, given in zip(definition.templates, ctype.args, strict=False):
        if isinstance(given, CType):
            m.scope.add_type(name, given)
    scope = m.scope
    constructors = definition.methods.get(ctype.base, [])
    try:
        m.extra["members"](m, definition, made)
        if len(values) == 1 and isinstance(values[0], Struct) and values[0].kind == ctype.base:
            return duplicate(values[0])
        if constructors:
            arguments = [Argument(m, None, v) for v in values]
            fitting = [c for c in constructors if score(m, c, arguments) >= 0 and c.body is not None]
            if fitting:
                best = max(fitting, key=lambda c: score(m, c, arguments))
                run(m, Closure(ctype.base, [best], scope, made), best, arguments, [], best.node)
            elif values:
                return m.unk(f"a constructor of {ctype.base}")
            return made
        for cell, value in zip(made.fields.values(), values, strict=False):
            if isinstance(cell.value, Array) and isinstance(value, Braces):
                new = m.extra["array_of"](m, value, cell.value.elem, [cell.value.n])
                cell.value = new
            else:
                cell.value = copy_in(m, value, cell.ctype)
        if braces:
            for cell in list(made.fields.values())[len(values) :]:
                if isinstance(cell.value, Unk):
                    cell.value = default(m, cell.ctype, True)
        return made
    finally:
        m.scope = outer


def operator(m: Machine, op: str, a: Any, b: Any, node: Node) -> Any:
    """Return an operator of the sample's own classes."""
    if isinstance(a, Struct):
        found = find_method(m, a.kind, f"operator{op}")
        if found is not None:
            return invoke(m, Closure(f"operator{op}", found, None, a), [Argument(m, None, b)], [], node)
    closure = m.function(f"operator{op}")
    if closure is not None:
        return invoke(m, closure, [Argument(m, None, a), Argument(m, None, b)], [], node)
    x, y = (conversion(m, v, AUTO) if isinstance(v, Struct) else v for v in (a, b))
    return (
        binary(op, x, y) if not isinstance(x, Struct) and not isinstance(y, Struct) else m.unk(f"operator {op}", node)
    )


def conversion(m: Machine, value: Struct, ctype: CType) -> Any:
    """Return what a conversion operator of a class gives."""
    for name, found in (m.structs[value.kind].methods if value.kind in m.structs else {}).items():
        if name.startswith("operator ") and found[0].body is not None:
            result = invoke(m, Closure(name, found, None, value), [], [], found[0].node)
            return cast(result, ctype.base) if numeric(ctype) else result
    return m.unk(f"an object of type {value.kind}")
