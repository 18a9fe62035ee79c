"""A light syntax tree of a C++ sample: tree-sitter's named nodes without comments, with fields and line numbers."""

from __future__ import annotations

import re
from typing import Any

from ..model import SampleError
from .macros import Prepared

__all__ = ["Node", "Source", "parse"]


class Source:
    """One file of the sample: its text as parsed, and what its macros removed."""

    def __init__(self, name: str, prepared: Prepared) -> None:
        self.name = name
        self.prepared = prepared
        self.bytes = prepared.text.encode()
        self.faults: list[tuple[int, int, int]] = []  # byte position, line, column of what the parser refused


class Node:
    """A syntax node. ``named`` has the children with their field names ("" without)."""

    __slots__ = ("_text", "cache", "end", "fields", "kids", "kind", "line", "named", "source", "start")

    def __init__(self, kind: str, start: int, end: int, line: int, source: Source) -> None:
        self.kind = kind
        self.start = start
        self.end = end
        self.line = line
        self.source = source
        self.kids: list[Node] = []
        self.named: list[tuple[str, Node]] = []
        self.fields: dict[str, Node] = {}
        self.cache: Any = None
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The source text of the node."""
        if self._text is None:
            self._text = self.source.bytes[self.start : self.end].decode(errors="replace")
        return self._text

    def __getitem__(self, name: str) -> Node:
        return self.fields[name]

    def get(self, name: str) -> Node | None:
        """Return the child of that field, or None."""
        return self.fields.get(name)

    def all(self, name: str) -> list[Node]:
        """All children of that field."""
        return [n for f, n in self.named if f == name]

    def walk(self) -> Any:
        """Return this node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.kids))


# anonymous tokens are dropped, except those that a field names (operators) and these
_KEEP = frozenset({"&", "*", "&&", "=", "virtual", "static", "this"})


def _convert(root: Any, source: Source) -> Node:
    def build(cursor: Any) -> Node:
        raw = cursor.node
        node = Node(raw.type, raw.start_byte, raw.end_byte, raw.start_point[0] + 1, source)
        if raw.type == "ERROR" or raw.is_missing:
            source.faults.append((raw.start_byte, raw.start_point[0] + 1, raw.start_point[1] + 1))
        if cursor.goto_first_child():
            while True:
                child, name = cursor.node, cursor.field_name or ""
                if child.is_missing and child.type in (")", "]", "}"):  # a missing ; may be a macro's business
                    source.faults.append((child.start_byte, child.start_point[0] + 1, child.start_point[1] + 1))
                if child.type != "comment" and (child.is_named or name or child.type in _KEEP):
                    built = build(cursor)
                    if child.is_named or name:
                        node.named.append((name, built))
                        if name:
                            node.fields.setdefault(name, built)
                    if child.is_named:
                        node.kids.append(built)
                    elif child.type in _KEEP:
                        node.fields.setdefault(child.type, built)
                if not cursor.goto_next_sibling():
                    break
            cursor.goto_parent()
        return node

    return build(root.walk())


def _parser() -> Any:
    import tree_sitter
    import tree_sitter_cpp

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


_shared: list[Any] = []


def parse(source: Source) -> Node:
    """Parse one prepared source.

    Raises
    ------
    ImportError
        tree-sitter is not installed (extra ``port``).
    """
    if not _shared:
        _shared.append(_parser())
    tree = _shared[0].parse(source.bytes)
    return _convert(tree.root_node, source)


def fragment(text: str, line: int, name: str) -> Node:
    """Return the statements of a piece of C++, as a compound statement."""
    source = Source(name, Prepared("void f() {" + text + ";}", {}))
    root = parse(source)
    body = root.kids[0].fields.get("body")
    if body is None:
        raise SampleError(f"not understood: {re.sub(r'[ ]+', ' ', text)[:60]}", name, line, 1)
    for node in body.walk():
        node.line = line
    return body
