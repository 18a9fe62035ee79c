"""Branches on something unknown: what they may change becomes unknown too."""

from __future__ import annotations

import re
from typing import Any

from .convert import decay
from .functions import poison
from .machine import Machine
from .syntax import Node
from .values import Closure, Ptr, Struct, Unk, Vector

__all__ = ["uncertain", "undecided"]


def _leaves(node: Node) -> bool:
    return any(
        n.kind in ("return_statement", "goto_statement", "throw_statement", "break_statement") for n in node.walk()
    )


def undecided(m: Machine, value: Any, then: Node, otherwise: Node | None, node: Node) -> Any:
    """Return a branch on something unknown: checks are taken as passed; what either branch changes becomes unknown."""
    device = isinstance(value, Unk) and value.tag == "device"
    reason = value.reason if isinstance(value, Unk) else "a condition that is not known"
    why = Unk(reason, node.line, "device" if device else "", ("lost",) if device else ())
    if not device:
        m.extra["undecided"](m, node, reason)
    leaves = _leaves(then)
    if leaves and otherwise is not None and not _leaves(otherwise):
        return m.exec(otherwise)
    uncertain(m, [then, *([otherwise] if otherwise is not None else [])], why)
    return None


def uncertain(m: Machine, nodes: list[Node], why: Unk) -> None:
    """Everything that these statements may change becomes unknown; calls in them become unknown steps."""
    m.budget -= 100
    for root in nodes:
        for node in root.walk():
            if node.kind in ("assignment_expression", "update_expression"):
                left = node.get("left") or node["argument"]
                _lose(m, left, why)
            elif node.kind == "call_expression":
                function = node["function"]
                text = function.text
                if text.endswith("GetWorkspaceSize") and text.startswith("acl"):
                    m.emit(m.unknown(f"whether it is called is not known: {why.reason}", node.line, node.line, text))
                _lose_arguments(m, node, why)


_HARMLESS = re.compile(
    r"printf|static_cast|sizeof|memcmp|str(n)?cmp|strlen|size|get|c_str|to_string|f?abs|sqrt|exp|log|sin|cos|pow|floor|ceil"
    r"|max|min|isnan|isinf|isfinite|empty|begin|end|acl\w*(Free|Destroy|Reset|Finalize|Synchronize|GetRecentErrMsg)\w*"
)


_RESIZING = frozenset({"push_back", "emplace_back", "resize", "insert", "erase", "clear", "assign", "pop_back", "swap"})


def _lose_inside(m: Machine, name: str, why: Unk, member: bool) -> None:
    """Make unknown what a function of the sample changes beyond its arguments, and note the operators that it calls."""
    active: set[str] = m.extra.setdefault("uncertain functions", set())
    cell = m.scope.find(name) if not member else None
    found = m.functions.get(name, []) if not member else []
    found = [*found, *(d for s in m.structs.values() for d in s.methods.get(name, ()))] if member else found
    outer = m.scope
    if cell is not None and isinstance(cell.value, Closure):
        found, outer = cell.value.candidates, m.scope
    elif found:
        m.scope = m.globals
    if name in active:
        m.scope = outer
        return
    active.add(name)
    try:
        uncertain(m, [d.body for d in found if d.body is not None], why)
    finally:
        active.discard(name)
        m.scope = outer


def _lose_arguments(m: Machine, node: Node, why: Unk) -> None:
    """Make unknown what a call may change: its object, and what its arguments point or refer to."""
    function = node["function"]
    name = function.text.split("<")[0].split("::")[-1].split(".")[-1].split(">")[-1]
    macro = m.macros.get(name)
    if _HARMLESS.fullmatch(name) or (macro is not None and (macro.prints or macro.checks)):
        return
    if function.kind == "field_expression" and name != "data":
        _lose(m, function["argument"], why, name in _RESIZING)
    _lose_inside(m, name, why, function.kind == "field_expression")
    closure = m.function(name)
    parameters = closure.candidates[-1].parameters if closure is not None else []
    for i, argument in enumerate(node["arguments"].kids if "arguments" in node.fields else []):
        if closure is not None and i < len(parameters):
            text = parameters[i].text
            if "const" in text or not ("&" in text or "*" in text):
                continue
        for part in argument.walk():
            if part.kind == "identifier":
                cell = m.scope.find(part.text)
                if cell is None:
                    continue
                value = decay(cell.value)
                if isinstance(value, (Vector, Ptr, Struct)):
                    poison(m, value, why)
                elif argument.kind == "pointer_expression" or (part is argument and closure is not None):
                    cell.set(0, why)


def _lose(m: Machine, node: Node, why: Unk, length: bool = False) -> None:
    root = node
    while root.kind in ("subscript_expression", "field_expression", "pointer_expression", "parenthesized_expression"):
        root = root.get("argument") or root.kids[0]
    if root.kind != "identifier":
        return
    cell = m.scope.find(root.text)
    if cell is None:
        return
    value = decay(cell.value)
    if isinstance(value, Vector) and length and root is node:
        cell.set(0, why)
    elif isinstance(value, Vector):
        value.array.forget(why)
    elif root is node or not isinstance(value, (Ptr, Struct)):
        cell.set(0, why)
    else:
        poison(m, value if isinstance(value, Ptr) else Ptr(cell), why)
