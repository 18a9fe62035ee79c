"""C prototypes out of an operator's documentation page."""

from __future__ import annotations

import html
import re

from .. import signatures

__all__ = ["prototypes"]

_DECLARATION = re.compile(r"(?<!\w)(\w+GetWorkspaceSize)\s*\(")


def prototypes(markdown_text: str) -> list[str]:
    """Return the ``…GetWorkspaceSize`` prototypes that a Markdown page shows, in its order.

    A page gives the prototype in a code block, or as one line of text with its stars escaped. Calls of the function in
    the page's sample are no prototypes, and what cannot be read as one is left out.

    Examples
    --------
    >>> page = "- `aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor* x, uint64_t* workspaceSize, "
    >>> page += "aclOpExecutor** executor)`"
    >>> prototypes(page)
    ['aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x, uint64_t *workspaceSize, aclOpExecutor **executor);']
    """
    text = re.sub(r"<br\s*/?>|</?(?:code|pre|span|strong|b|p|td|a|font|li)\b[^<>]*>", " ", markdown_text)
    text = html.unescape(text).replace("\\*", "*").replace("\\_", "_").replace("`", " ")
    text = re.sub(r"[\u00a0\u3000]", " ", text).translate(_FULL_WIDTH)
    found: dict[str, str] = {}
    for match in _DECLARATION.finditer(text):
        end = _closing(text, match.end())
        source = f"aclnnStatus {match.group(1)}({text[match.end() : end]});"
        for signature in signatures.parse_prototypes(source, problems=[]):
            if all(parameter.kind != "unknown" for parameter in signature.parameters):
                found.setdefault(signature.name, f"{signature};")
    return list(found.values())


_FULL_WIDTH = str.maketrans({"（": "(", "）": ")", "，": ",", "；": ";", "＊": "*"})


def _closing(text: str, start: int) -> int:
    """Return where the parameter list that starts here ends, or the end of the text."""
    depth = 1
    for position in range(start, min(len(text), start + 20000)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position
    return len(text)
