"""Prototypes of operators from a tree of public repositories: headers, documentation pages, operator definitions.

    index = PrototypeIndex([Path("checkout")])
    record([sample], signature=index.near(sample))

An operator of an experimental directory may share its name with another one, so a sample gets the prototype that stands
nearest to it: in its own operator's directory, in its repository, elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

from aclnn_py import signatures
from aclnn_py.port.pages import definitions, prototypes
from aclnn_py.signatures import Signature

# how far to trust a kind of source; an experimental operator is built from its definition
_RANK = {".h": 2, ".md": 1, ".cpp": 0}
_RANK_EXPERIMENTAL = {".h": 2, ".cpp": 1, ".md": 0}


class PrototypeIndex:
    """Every prototype below some directories; read at the first question."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = list(roots)

    @cached_property
    def _found(self) -> dict[str, list[tuple[tuple[str, ...], Signature]]]:
        found: dict[str, list[tuple[tuple[str, ...], Signature]]] = {}
        for root in self.roots:
            for path in sorted(root.rglob("*")):
                parts = path.relative_to(root).parts
                for signature in _read(path):
                    found.setdefault(signature.name, []).append((parts, signature))
        return found

    def near(self, sample: Path) -> Callable[[str], Signature | None]:
        """Return the lookup of a sample: its path below one of the directories says what is near."""
        parts = next((sample.relative_to(r).parts for r in self.roots if sample.is_relative_to(r)), sample.parts)

        def find(name: str) -> Signature | None:
            known = self._found.get(name)
            if not known:
                return signatures.find(name)
            return max(known, key=lambda item: _nearness(item[0], parts))[1]

        return find


def _nearness(source: tuple[str, ...], sample: tuple[str, ...]) -> tuple[int, bool, int]:
    common = next((i for i, (a, b) in enumerate(zip(source, sample, strict=False)) if a != b), len(source))
    experimental = "experimental" in source
    rank = (_RANK_EXPERIMENTAL if experimental else _RANK)[Path(source[-1]).suffix]
    return (common if common > 2 else min(common, 1)), experimental == ("experimental" in sample), rank


def _read(path: Path) -> list[Signature]:
    if path.suffix == ".h" and path.name.startswith(("aclnn_", "acl_")):
        return list(signatures.parse_prototypes(_text(path), str(path), []))
    if path.suffix == ".md" and path.name.startswith("aclnn"):
        texts = prototypes(_text(path))
    elif path.name.endswith("_def.cpp"):
        texts = definitions(_text(path))
    else:
        return []
    return [s for text in texts for s in signatures.parse_prototypes(text, str(path), [])]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
