"""Function-like macros, dealt with before parsing so that a C++ parser accepts the sample; positions stay valid.

``CHECK_RET(ok, return 1)`` is not an expression, so everything but the first argument is blanked out and kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Macro", "Prepared", "prepare"]

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^)]*)\))?((?:.*\\\n)*.*)", re.M)
_C_LINKAGE = re.compile(
    r'^[ \t]*#[ \t]*ifdef[ \t]+__cplusplus\s*\n\s*(?:extern\s+"C"\s*\{|\})\s*\n\s*#[ \t]*endif', re.M
)
_STATEMENT = re.compile(
    r";|\{|^\s*(?:return|goto|break|continue|throw|delete|do|if|for|while)\b|^\s*$|^\s*[\w:]+\s*[*&]+\s*$"
)


@dataclass(frozen=True)
class Macro:
    """One ``#define``; ``parameters`` is None for an object-like one."""

    name: str
    parameters: tuple[str, ...] | None
    body: str

    @property
    def checks(self) -> bool:
        """Whether the macro tests that its first argument is true."""
        return bool(self.parameters) and bool(re.search(rf"!\s*\(?\s*{self.parameters[0]}\b", self.body))  # type: ignore[index]

    @property
    def prints(self) -> bool:
        """Whether the macro hands its arguments to printf."""
        return bool(re.search(r"printf\s*\(", self.body)) and not self.checks


@dataclass
class Prepared:
    """Text of the same length as the source; ``blanked`` holds what was removed, by position of the call."""

    text: str
    macros: dict[str, Macro]
    blanked: dict[int, str] = field(default_factory=dict)


def _closing(text: str, start: int) -> list[int] | None:
    """Positions of the top-level commas and of the closing bracket of the argument list opened at ``start``."""
    depth, i = 0, start
    marks: list[int] = []
    while i < len(text):
        c = text[i]
        if c in "\"'":
            if c == "'" and i and text[i - 1].isalnum() and text[i + 1 : i + 2].isalnum():  # 1'000
                i += 1
                continue
            i += 1
            while i < len(text) and text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return [*marks, i]
        elif c == "," and depth == 1:
            marks.append(i)
        i += 1
    return None


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text: str) -> str:
    """Blank comments, keeping the length and the lines."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    return re.sub(pattern, lambda m: _blank(m[0]) if m[0][0] == "/" else m[0], text, flags=re.S)


def _expand(macro: Macro, arguments: list[str]) -> str:
    body = macro.body
    names = macro.parameters or ()
    for i, name in enumerate(names):
        name = name.removesuffix("...")
        value = ", ".join(arguments[i:]) if (names[i].endswith("...")) else arguments[i] if i < len(arguments) else ""
        name = name or "__VA_ARGS__"
        text = value.strip().replace("\\", r"\\")
        if not text:  # GNU's , ## swallows the comma
            body = re.sub(rf",\s*##\s*\b{name}\b", "", body)
        body = re.sub(rf"\s*##\s*\b{name}\b|\b{name}\b\s*##\s*|\b{name}\b", text, body)
    return body


def _writes(macro: Macro) -> bool:
    """Whether the body itself makes acl calls or declarations, so that its text is needed."""
    body = re.sub(r"aclGetRecentErrMsg|aclFinalize|aclrt(Reset|Destroy|Free)\w*", "", macro.body)
    return bool(
        re.search(
            r"\bacl(nn|rt)?[A-Z]\w*\s*\(|##\s*GetWorkspaceSize|GetWorkspaceSize\s*##|##\s*(?!__VA_ARGS__)\w", body
        )
    ) and (not macro.prints)


def prepare(source: str, known: Mapping[str, Macro] | None = None) -> Prepared:
    r"""Blank comments and all but the first argument of macro calls that C++ could not parse as an expression.

    ``known`` are macros of other files of the sample.

    Examples
    --------
    >>> prepare("#define CHECK(c, r) if (!(c)) { r; }\nCHECK(ok, return 1);").text.splitlines()[1]
    'CHECK(ok          );'
    """
    text = _C_LINKAGE.sub(lambda m: _blank(m[0]), strip_comments(source))
    text = re.sub(r"(?<=\")(\s*)PRI([diuxX]\w+)", r'\1""   ', text)  # a format between two strings
    macros: dict[str, Macro] = dict(known or {})

    def define(match: re.Match[str]) -> str:
        body = re.sub(r"\\\n", " ", match[4] or "").strip()
        parameters = None
        if match[2] is not None:
            parameters = tuple(p.strip() for p in match[3].replace("\\", "").split(",") if p.strip())
        macros[match[1]] = Macro(match[1], parameters, body)
        return _blank(match[0]) if match[2] is not None else match[0]

    text = _DEFINE.sub(define, text)
    out = Prepared(text, macros)
    functions = [m for m in macros.values() if m.parameters is not None]
    for macro in functions:
        if _writes(macro):
            out.text = _expand_all(out.text, macro)
    if functions:
        pattern = re.compile(r"\b(" + "|".join(m.name for m in functions) + r")\b(\s*)\(")
        pieces = list(out.text)
        for match in pattern.finditer(out.text):
            marks = _closing(out.text, match.end() - 1)
            if marks is None or len(marks) < 2:
                continue
            rest = [out.text[a + 1 : b] for a, b in pairwise(marks)]
            if macros[match[1]].checks or any(_STATEMENT.search(r) for r in rest):
                first, last = marks[0], marks[-1]
                out.blanked[match.start()] = out.text[first + 1 : last]
                pieces[first:last] = _blank(out.text[first:last])
        out.text = "".join(pieces)
    return out


def _expand_all(text: str, macro: Macro) -> str:
    """Replace the calls of one macro by its body, keeping the line count (columns after it move)."""
    at = 0
    pattern = re.compile(rf"\b{macro.name}\s*\(")
    while match := pattern.search(text, at):
        marks = _closing(text, match.end() - 1)
        if marks is None:
            break
        edges = [match.end() - 1, *marks]
        arguments = [text[a + 1 : b] for a, b in pairwise(edges)]
        new = re.sub(r"\s+", " ", _expand(macro, arguments))
        lines = text.count("\n", match.start(), marks[-1])
        text = text[: match.start()] + new + "\n" * lines + text[marks[-1] + 1 :]
        at = match.start() + len(new)
    return text
