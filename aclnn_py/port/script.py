"""Statements of a Python script, and their text as a formatter would leave it.

Whatever does not fit a line is broken at its last bracket, one item a line with a comma after the last: both of the
common line lengths (88 and 120) accept that.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

__all__ = [
    "WIDTH",
    "Block",
    "Cat",
    "Comment",
    "Line",
    "Node",
    "Seq",
    "Slot",
    "Statement",
    "bare",
    "flat",
    "script",
    "tuple_of",
]

WIDTH = 88
STEP = 4


@dataclass(frozen=True)
class Slot:
    """A part that may differ between iterations of a loop; ``hint`` is a good name for it."""

    node: Node
    hint: str


@dataclass(frozen=True)
class Seq:
    """Bracketed items. ``fill``: numbers, of which many go on a line."""

    open: str
    items: tuple[Node, ...]
    close: str
    fill: bool = False


@dataclass(frozen=True)
class Cat:
    """Parts in a row."""

    parts: tuple[Node, ...]


Node: TypeAlias = str | Slot | Seq | Cat


@dataclass(frozen=True)
class Line:
    """``target = node``, or an expression; ``comments`` go above it, or behind it where one fits."""

    node: Node
    target: str = ""
    comments: tuple[str, ...] = ()
    above: bool = False


@dataclass(frozen=True)
class Comment:
    """A comment on lines of its own."""

    text: str


@dataclass(frozen=True)
class Block:
    """A loop or a function."""

    head: Node
    body: tuple[Statement, ...]
    function: bool = False


Statement: TypeAlias = Line | Comment | Block


def tuple_of(nodes: Iterable[Node]) -> Node:
    """Return the nodes as a Python tuple."""
    found = tuple(nodes)
    return Cat(("(", found[0], ",)")) if len(found) == 1 else Seq("(", found, ")")


def flat(node: Node) -> str:
    """Return the text of a node on one line."""
    if isinstance(node, str):
        return node
    if isinstance(node, Slot):
        return flat(node.node)
    if isinstance(node, Cat):
        return "".join(map(flat, node.parts))
    return node.open + ", ".join(map(flat, node.items)) + node.close


def bare(node: Node) -> Node:
    """Return what is in a slot."""
    return bare(node.node) if isinstance(node, Slot) else node


def _pieces(node: Node) -> list[str | Seq]:
    if isinstance(node, Cat):
        return [piece for part in node.parts for piece in _pieces(part)]
    return _pieces(node.node) if isinstance(node, Slot) else [node]


def _broken(node: Node, indent: int, width: int) -> tuple[str, bool]:
    """Return the text of a node that starts at ``indent``, and whether it needs ``# fmt: skip``."""
    text = flat(node)
    if len(text) <= width - indent:
        return text, False
    pieces = _pieces(node)
    last = max((i for i, piece in enumerate(pieces) if isinstance(piece, Seq) and piece.items), default=None)
    if last is None:
        return text, False
    before, seq, after = "".join(map(flat, pieces[:last])), pieces[last], "".join(map(flat, pieces[last + 1 :]))
    assert isinstance(seq, Seq)
    pad, inner = " " * indent, " " * (indent + STEP)
    if seq.fill:
        packed = textwrap.fill(", ".join(map(flat, seq.items)) + ",", width - indent - STEP)
        return f"{before}{seq.open}\n{textwrap.indent(packed, inner)}\n{pad}{seq.close}{after}", True
    rows, skip = [], False
    for item in seq.items:
        row, needs = _broken(item, indent + STEP, width - 1)
        rows.append(f"{inner}{row},\n")
        skip |= needs
    return f"{before}{seq.open}\n{''.join(rows)}{pad}{seq.close}{after}", skip


def _plain(node: Node) -> Node:
    """Return the node without filled lists: a header cannot be kept from the formatter."""
    if isinstance(node, Seq):
        return replace(node, items=tuple(map(_plain, node.items)), fill=False)
    if isinstance(node, Cat):
        return Cat(tuple(map(_plain, node.parts)))
    return _plain(node.node) if isinstance(node, Slot) else node


def _comment(text: str, indent: int) -> list[str]:
    pad = " " * indent
    return [
        part
        for line in text.splitlines() or [""]
        for part in textwrap.wrap(
            line, WIDTH, initial_indent=f"{pad}# ", subsequent_indent=f"{pad}# ", break_long_words=False,
            break_on_hyphens=False, drop_whitespace=True, replace_whitespace=False,
        )
    ]  # fmt: skip


def _line(line: Line, indent: int) -> list[str]:
    pad = " " * indent
    node = Cat((f"{line.target} = ", line.node)) if line.target else line.node
    text, skip = _broken(node, indent, WIDTH)
    whole = pad + text
    if skip:
        whole += "  # fmt: skip"
    behind = "  # " + line.comments[0] if len(line.comments) == 1 else ""
    if behind and not line.above and not skip and "\n" not in whole and len(whole) + len(behind) <= WIDTH:
        return [whole + behind]
    return [part for comment in line.comments for part in _comment(comment, indent)] + [whole]


def _lines(body: Iterable[Statement], indent: int) -> list[str]:
    found: list[str] = []
    after_function = False
    for statement in body:
        if isinstance(statement, Block):
            function = statement.function
            if found and (function or after_function):
                found += [""] if indent else ["", ""]
            head, _ = _broken(_plain(statement.head), indent, WIDTH)
            found += [" " * indent + head, *_lines(statement.body, indent + STEP)]
        else:
            function = False
            if after_function:
                found += [""] if indent else ["", ""]
            found += _comment(statement.text, indent) if isinstance(statement, Comment) else _line(statement, indent)
        after_function = function
    return found


def script(paragraphs: Iterable[Iterable[Statement]]) -> str:
    """Return the text of a script: paragraphs with a blank line between them, two around functions.

    Examples
    --------
    >>> print(script([[Line("np.zeros(3)", "x", ("a comment",))], [Line(Seq("print(", ("x",), ")"))]]), end="")
    x = np.zeros(3)  # a comment
    <BLANKLINE>
    print(x)
    """
    text, wide = "", False
    for paragraph in paragraphs:
        body = list(paragraph)
        if not body:
            continue
        starts = isinstance(body[0], Block) and body[0].function
        if text:
            text += "\n\n" if wide or starts else "\n"
        text += "\n".join(_lines(body, 0)) + "\n"
        wide = isinstance(body[-1], Block) and body[-1].function
    return text
