"""What to port: C++ files with the local headers that they include, standard input, Markdown pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Sample", "read", "split_page"]

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*([\w+#-]*)")
_CPP = frozenset(("", "c", "c++", "cc", "cpp", "cxx", "h", "hpp"))
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_MAIN = re.compile(r"\bmain\s*\(")
_CALL = re.compile(r"\baclnn\w+GetWorkspaceSize\s*\(")
_PAGES = (".md", ".markdown")


@dataclass(frozen=True)
class Sample:
    """One program: (name, text) of its files, headers first; lines are numbered as in the source.

    ``prototypes`` is C text beside it that may declare its operators; ``paths`` are its own files, where it has any.
    """

    title: str
    files: tuple[tuple[str, str], ...]
    prototypes: str = ""
    paths: tuple[Path, ...] = ()


def split_page(text: str) -> tuple[list[str], str]:
    r"""Return the complete C++ programs of a Markdown page, each on its own lines, and the rest of its C text.

    Examples
    --------
    >>> page = "# Add\n```cpp\nint main() { aclnnAddGetWorkspaceSize(x); }\n```\n```c\nint f();\n```\n"
    >>> split_page(page)
    (['\n\nint main() { aclnnAddGetWorkspaceSize(x); }\n'], 'int f();\n')
    """
    programs, rest = [], []
    start, fence, wanted = 0, "", False
    lines = text.splitlines(keepends=True)
    for number, line in enumerate([*lines, ""]):
        match = _FENCE.match(line)
        if not fence and match:
            start, fence, wanted = number + 1, match[1], match[2].lower() in _CPP
        elif fence and (number == len(lines) or (match and match[1].startswith(fence) and not match[2])):
            block = "".join(lines[start:number])
            if wanted and _MAIN.search(block) and _CALL.search(block):
                programs.append("\n" * start + block)
            elif wanted:
                rest.append(block)
            fence = ""
    return programs, "".join(rest)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace")


def _included(path: Path, text: str, seen: set[Path]) -> list[tuple[str, str]]:
    """Return the files that a file includes by a name in quotes and that lie beside it, before the file itself."""
    found: list[tuple[str, str]] = []
    for name in _INCLUDE.findall(text):
        header = path.parent / name
        if header.is_file() and header.resolve() not in seen:
            seen.add(header.resolve())
            inner = _text(header)
            found += [*_included(header, inner, seen), (str(header), inner)]
    return found


def _page(name: str, text: str) -> list[Sample]:
    programs, prototypes = split_page(text)
    if not programs:
        raise ValueError(f"{name}: no C++ block with a main function and a call of an operator")
    title = Path(name).name
    return [Sample(title, ((name, program),), prototypes) for program in programs]


def read(names: Sequence[str]) -> list[Sample]:
    """Return the samples in files; ``-`` is standard input.

    Files of which at most one has a main function are one program; otherwise each main is a program of its own, with
    the others' help. Headers that a file includes in quotes are found beside it.

    Raises
    ------
    FileNotFoundError, ValueError
        No such file, or nothing to port in it.
    """
    samples: list[Sample] = []
    files: list[tuple[Path | None, str, str]] = []
    for name in names:
        path = None if name == "-" else Path(name)
        if path is not None and not path.is_file():
            why = "a directory, not a file" if path.is_dir() else "no such file"
            raise FileNotFoundError(f"{name}: {why}")
        text = sys.stdin.read() if path is None else _text(path)
        page = path is not None and path.suffix.lower() in _PAGES
        if page or (path is None and any(_FENCE.match(line) for line in text.splitlines())):
            samples += _page("stdin" if path is None else name, text)
        else:
            files.append((path, "stdin" if path is None else name, text))
    if not files:
        return samples
    mains = [row for row in files if _MAIN.search(row[2])]
    helpers = [row for row in files if row not in mains]
    for group in [[*helpers, main] for main in mains] if len(mains) > 1 else [files]:
        seen = {path.resolve() for path, _, _ in group if path is not None}
        found: list[tuple[str, str]] = []
        for path, name, text in group:
            found += [] if path is None else _included(path, text, seen)
            found.append((name, text))
        title = Path(group[-1][1]).name
        paths = tuple(path for path, _, _ in group if path is not None)
        samples.append(Sample(title, tuple(found), "", paths if len(paths) == len(group) else ()))
    return samples
