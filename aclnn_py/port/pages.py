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


# attribute type of an operator definition -> C type
_ATTRIBUTES = {
    "Int": "int64_t ", "Float": "double ", "Bool": "bool ", "String": "char *", "ListInt": "const aclIntArray *",
    "ListFloat": "const aclFloatArray *", "ListBool": "const aclBoolArray *",
}  # fmt: skip
_MEMBER = re.compile(r'this->(Input|Output|Attr)\("(\w+)"\)((?:[^;"]|"[^"]*")*)')


def definitions(code: str) -> list[str]:
    """Return the prototypes that CANN's build generates from operator definitions (``class Mine : public OpDef``).

    Inputs come first, then attributes, then outputs, in camel case. An output that is also an input is one parameter,
    ``…Ref``; an only output is called ``out``, others ``…Out``.

    Examples
    --------
    >>> definitions('class Mine : public OpDef { Mine() { this->Input("x").ParamType(REQUIRED);'
    ...     ' this->Attr("eps").Float(0.1); this->Output("y"); } };')[0].partition(", uint64_t")[0]
    'aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x, double eps, const aclTensor *out'
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)
    heads = list(re.finditer(r"\bclass\s+(\w+)\s*(?:final\s*)?:\s*public\s+(?:\w+::)*OpDef\b", code))
    found = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = code[head.end() : following.start() if following is not None else len(code)]
        members = {"Input": {}, "Attr": {}, "Output": {}}  # type: dict[str, dict[str, str]]
        for kind, name, rest in _MEMBER.findall(body):
            members[kind].setdefault(re.sub(r"_+(\w)", lambda m: m[1].upper(), name), rest)
        inputs, outputs = members["Input"], members["Output"]
        parameters = [_input(name, rest, name in outputs) for name, rest in inputs.items()]
        parameters += [_attribute(name, rest) for name, rest in members["Attr"].items()]
        for name, rest in outputs.items():
            if name not in inputs:
                text = "out" if len(outputs) == 1 else f"{name}Out{_optional(rest)}"
                parameters.append(f"{_tensor(rest)}{text}")
        if outputs and all(parameters):
            text = ", ".join([*parameters, "uint64_t *workspaceSize", "aclOpExecutor **executor"])
            found.append(f"aclnnStatus aclnn{head.group(1)}GetWorkspaceSize({text});")
    return found


def _optional(rest: str) -> str:
    return "Optional" if re.search(r"\bParamType\(\s*OPTIONAL\b|\bAttrType\(\s*OPTIONAL\b", rest) else ""


def _tensor(rest: str) -> str:
    return "const aclTensorList *" if re.search(r"\bDYNAMIC\b", rest) else "const aclTensor *"


def _input(name: str, rest: str, written: bool) -> str:
    if written:
        return f"{_tensor(rest).removeprefix('const ')}{name}Ref{_optional(rest)}"
    scalar = re.search(r"\.(Scalar|ScalarList)\(\)", rest)
    if scalar is not None:
        return f"const acl{scalar.group(1)} *{name}{_optional(rest)}"
    if ".ValueDepend(" in rest:
        types = {"DT_INT64": "Int", "DT_FLOAT": "Float", "DT_BOOL": "Bool"}
        first = re.search(r"\bDT_\w+", rest)
        kind = types.get(first.group() if first is not None else "")
        return f"const acl{kind}Array *{name}{_optional(rest)}" if kind is not None else ""
    return f"{_tensor(rest)}{name}{_optional(rest)}"


def _attribute(name: str, rest: str) -> str:
    """Return the parameter of an attribute, or nothing for one of another type."""
    match = re.search(rf"\.({'|'.join(_ATTRIBUTES)})\(", rest)
    ctype = _ATTRIBUTES[match.group(1)] if match is not None else ""
    return f"{ctype}{name}{_optional(rest) if ctype.endswith('*') else ''}" if ctype else ""
