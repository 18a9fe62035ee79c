"""Branches on something unknown: what they may change becomes unknown too."""

from __future__ import annotations

from typing import Any

from .convert import decay
from .functions import poison
from .machine import Machine
from .syntax import Node
from .values import Ptr, Struct, Unk, Vector

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
                if function.kind == "field_expression" and function["field"].text not in (
                    "size",
                    "data",
                    "get",
                    "c_str",
                ):
                    _lose(m, function["argument"], why)
                for argument in node["arguments"].kids if "arguments" in node.fields else []:
                    if argument.kind == "pointer_expression" and argument["operator"].text == "&":
                        _lose(m, argument["argument"], why)
                if function.kind == "identifier" and text in m.functions and not text.startswith("acl"):
                    for argument in node["arguments"].kids:
                        if argument.kind == "identifier":
                            cell = m.scope.find(argument.text)
                            if (
                                cell is not None
                                and isinstance(cell.value, Vector)
                                and m.functions[text][0].returns is None
                            ):
                                cell.value.array.forget(why)


def _lose(m: Machine, node: Node, why: Unk) -> None:
    root = node
    while root.kind in ("subscript_expression", "field_expression", "pointer_expression", "parenthesized_expression"):
        root = root.get("argument") or root.kids[0]
    if root.kind != "identifier":
        return
    cell = m.scope.find(root.text)
    if cell is None:
        return
    value = decay(cell.value)
    if isinstance(value, Vector):
        value.array.forget(why)
    elif root is node or not isinstance(value, (Ptr, Struct)):
        cell.set(0, why)
    else:
        poison(m, value if isinstance(value, Ptr) else Ptr(cell), why)
