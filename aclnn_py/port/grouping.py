"""Loops and functions again: what a sample did several times is written once, where only values differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .model import Call, Check, Frame, Print, Unknown
from .script import Block, Cat, Comment, Line, Node, Seq, Slot, Statement, flat, tuple_of

__all__ = ["Group", "Tree", "merge", "repeated", "tree"]


@dataclass(frozen=True)
class Group:
    """Consecutive steps of one loop, or of calls of one function, by iteration."""

    frames: tuple[Frame, ...]  # one of each iteration
    iterations: tuple[tuple[Tree, ...], ...]


Tree: TypeAlias = "int | Group"
Step: TypeAlias = "Call | Print | Check | Unknown"


def _frames(step: Any) -> tuple[Frame, ...]:
    return () if isinstance(step, Unknown) else step.frames


def _key(frame: Frame) -> tuple[Any, ...]:
    return (frame.kind, frame.name, frame.line if frame.kind == "loop" else 0)


def repeated(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of a program without frames with one around consecutive calls of one operator.

    A recorder sees no loops; what differs in more than values is taken apart again when it is written.
    """
    if any(_frames(step) for step in steps):
        return list(steps)
    found: list[Step] = []
    op, index = "", 0
    for step in steps:
        if isinstance(step, Call):
            op, index = step.op, index + 1 if step.op == op else 0
        if isinstance(step, Unknown) or not op:
            op = ""
            found.append(step)
        else:
            found.append(replace(step, frames=(Frame("loop", op, 0, index),)))
    return found


def tree(steps: Sequence[Any], numbers: Sequence[int] | None = None, depth: int = 0) -> tuple[Tree, ...]:
    """Return the steps (by number) with what was done more than once in groups."""
    found: list[Tree] = []
    rest = list(range(len(steps)) if numbers is None else numbers)
    while rest:
        frames = _frames(steps[rest[0]])
        if len(frames) <= depth:
            found.append(rest.pop(0))
            continue
        key, iterations, seen = _key(frames[depth]), [[rest[0]]], [frames[depth]]
        end = 1
        while end < len(rest):
            others = _frames(steps[rest[end]])
            if len(others) <= depth or _key(others[depth]) != key or others[depth].index < seen[-1].index:
                break
            if others[depth].index != seen[-1].index:
                iterations.append([])
                seen.append(others[depth])
            iterations[-1].append(rest[end])
            end += 1
        rest = rest[end:]
        inner = [tree(steps, numbers, depth + 1) for numbers in iterations]
        found += inner[0] if len(inner) == 1 else [Group(tuple(seen), tuple(inner))]
    return tuple(found)


def _node(node: Node, slots: list[Slot]) -> Any:
    """Return what may not differ of a node; collect what may."""
    if isinstance(node, str):
        return node
    if isinstance(node, Slot):
        slots.append(node)
        return None
    if isinstance(node, Cat):
        return tuple(_node(part, slots) for part in node.parts)
    return node.open, node.close, tuple(_node(item, slots) for item in node.items)


def _statement(statement: Statement, slots: list[Slot]) -> Any:
    if isinstance(statement, Comment):
        return "comment"
    if isinstance(statement, Line):
        return statement.target, _node(statement.node, slots)
    return flat(statement.head), tuple(_statement(inner, slots) for inner in statement.body)


def _aligned(bodies: Sequence[Sequence[Statement]]) -> list[list[Statement]] | None:
    """Return the bodies with whole right-hand sides as slots where only their targets agree; None: they differ."""
    if len({len(body) for body in bodies}) != 1:
        return None
    aligned: list[list[Statement]] = [[] for _ in bodies]
    for row in zip(*bodies, strict=True):
        if len({repr(_statement(statement, [])) for statement in row}) != 1:
            targets = {statement.target if isinstance(statement, Line) else "" for statement in row}
            if len(targets) != 1 or not targets.pop().isidentifier():
                return None
            row = tuple(replace(s, node=Slot(s.node, s.target)) for s in row if isinstance(s, Line))
        for body, statement in zip(aligned, row, strict=True):
            body.append(statement)
    return aligned


def _targets(body: Sequence[Statement]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Line) and statement.target.isidentifier():
            yield statement.target
        elif isinstance(statement, Block):
            yield from _targets(statement.body)


def _variables(body: Sequence[Statement]) -> Iterator[str]:
    """Yield the names in the heads of inner loops and functions."""
    for statement in body:
        if isinstance(statement, Block):
            yield from re.findall(r"\w+", flat(statement.head))
            yield from _variables(statement.body)


def _replaced(node: Node, names: Iterator[str | None]) -> Node:
    if isinstance(node, Slot):
        return next(names) or node
    if isinstance(node, Cat):
        return Cat(tuple(_replaced(part, names) for part in node.parts))
    if isinstance(node, Seq):
        return replace(node, items=tuple(_replaced(item, names) for item in node.items))
    return node


def _named(body: Sequence[Statement], names: Iterator[str | None]) -> Iterator[Statement]:
    for statement in body:
        if isinstance(statement, Line):
            node = _replaced(statement.node, names)
            if node != statement.target:  # else the value is the loop's variable itself
                yield replace(statement, node=node)
        elif isinstance(statement, Block):
            yield replace(statement, body=tuple(_named(statement.body, names)))
        else:
            yield statement


def _comments(bodies: Sequence[Sequence[Statement]]) -> tuple[list[Statement], list[list[str]]]:
    """Return the first body with the comments that all share, and the other comments of each body."""
    own: list[list[str]] = [[] for _ in bodies]
    shared: list[Statement] = []
    for row in zip(*bodies, strict=True):
        first = row[0]
        found = [s.comments if isinstance(s, Line) else (s.text,) if isinstance(s, Comment) else () for s in row]
        if len(set(found)) > 1:
            for mine, comments in zip(own, found, strict=True):
                mine += [f"{first.target}: {c}" if isinstance(first, Line) and first.target else c for c in comments]
            if isinstance(first, Comment):
                continue
            if isinstance(first, Line):
                first = replace(first, comments=())
        shared.append(first)
    return shared, own


def _free(hint: str, used: set[str]) -> str:
    name, count = hint, 2
    while name in used:
        name, count = f"{hint}_{count}", count + 1
    used.add(name)
    return name


def _sequence(nodes: Sequence[Node]) -> Node:
    """Return what a loop with one variable goes through."""
    try:
        numbers = [ast.literal_eval(flat(node)) for node in nodes]
    except (ValueError, SyntaxError):
        numbers = []
    if numbers and all(type(n) is int for n in numbers) and len(numbers) > 2:
        first = numbers[0]
        if numbers == list(range(first, first + len(numbers))):
            return f"range({len(numbers)})" if first == 0 else f"range({first}, {first + len(numbers)})"
    return Seq("[", tuple(nodes), "]")


def merge(frames: Sequence[Frame], bodies: Sequence[Sequence[Statement]], taken: set[str]) -> list[Statement] | None:
    """Return a loop, or a function and its calls, that does what the bodies do one after the other.

    Parameters
    ----------
    frames, bodies
        Each iteration's frame and statements.
    taken
        Names that the script uses; that of a function is added.

    Returns
    -------
    list of Statement, or None
        None: more differs than values.
    """
    aligned = _aligned(bodies)
    if aligned is None:
        return None
    columns: list[list[Slot]] = []
    for body in aligned:
        slots: list[Slot] = []
        for statement in body:
            _statement(statement, slots)
        columns.append(slots)
    rows = list(zip(*columns, strict=True))
    local = {name for body in aligned for name in _targets(body)}
    used = taken.union(*(_variables(body) for body in aligned))
    whole = {statement.node: statement.target for statement in aligned[0] if isinstance(statement, Line)}
    names: dict[tuple[str, ...], str] = {}
    chosen: list[str | None] = []
    parameters: list[tuple[Node, ...]] = []
    for row in rows:
        texts = tuple(flat(slot) for slot in row)
        if len(set(texts)) == 1:
            chosen.append(None)
            continue
        if local & set(texts):
            return None
        target = whole.get(row[0], "")
        key = (*texts, target)  # arrays of equal content stay two arrays
        if key not in names:
            source = [name for name, _ in frames[0].values if _column(frames, name) == texts and name.isidentifier()]
            hint = target or (source[0] if source else row[0].hint)
            names[key] = hint if target else _free(hint, used | set(names.values()))
            parameters.append(tuple(slot.node for slot in row))
        chosen.append(names[key])
    variables = list(names.values())
    shared, own = _comments(aligned)
    merged = tuple(_named(shared, iter(chosen)))
    if frames[0].kind == "function" and variables:
        return _function(frames, variables, parameters, merged, own, taken)
    head: Node
    above: list[Statement] = [Comment(text) for mine in own for text in dict.fromkeys(mine)]
    if not variables:
        head = Cat(("for _ in ", f"range({len(bodies)}):"))
    elif len(variables) == 1:
        head = Cat((f"for {variables[0]} in ", _sequence(parameters[0]), ":"))
    else:
        table = tuple(tuple_of(nodes) for nodes in zip(*parameters, strict=True))
        head = Cat((f"for {', '.join(variables)} in ", Seq("[", table, "]"), ":"))
    return [*above, Block(head, merged)]


def _column(frames: Sequence[Frame], name: str) -> tuple[str, ...]:
    return tuple(dict(frame.values).get(name, "") for frame in frames)


def _function(
    frames: Sequence[Frame],
    variables: list[str],
    parameters: list[tuple[Node, ...]],
    body: tuple[Statement, ...],
    own: list[list[str]],
    taken: set[str],
) -> list[Statement]:
    name = _free(frames[0].name if frames[0].name.isidentifier() else "case", taken)
    calls: list[Statement] = []
    for nodes, comments in zip(zip(*parameters, strict=True), own, strict=True):
        arguments: tuple[Node, ...] = tuple(nodes)
        if len(variables) > 3:
            arguments = tuple(Cat((f"{v}=", node)) for v, node in zip(variables, nodes, strict=True))
        calls.append(Line(Cat((name, Seq("(", arguments, ")"))), "", tuple(dict.fromkeys(comments)), True))
    return [Block(Cat((f"def {name}", Seq("(", tuple(variables), ")"), ":")), body, function=True), *calls]
