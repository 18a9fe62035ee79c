"""The smallest expressions: literals, names, constants, type traits."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from . import names
from .arithmetic import literal
from .machine import Machine, evaluates
from .syntax import Node, fragment
from .types import numeric
from .values import (
    NULL,
    Closure,
    Num,
    Text,
    Unk,
)

__all__ = ["lookup", "type_trait"]

_CONSTANTS = {
    "INFINITY": Num(math.inf, "float32"), "NAN": Num(math.nan, "float32"), "NULL": NULL, "nullptr": NULL,
    "INT_MAX": Num(2**31 - 1), "INT32_MAX": Num(2**31 - 1), "INT_MIN": Num(-(2**31)),
    "INT64_MAX": Num(2**63 - 1, "int64"),
    "UINT32_MAX": Num(2**32 - 1, "uint32"), "UINT16_MAX": Num(65535), "INT32_MIN": Num(-(2**31)),
    "INT64_MIN": Num(-(2**63), "int64"), "UINT64_MAX": Num(2**64 - 1, "uint64"), "LONG_MAX": Num(2**63 - 1, "int64"),
    "FLT_MAX": Num(3.4028234663852886e38, "float32"), "FLT_MIN": Num(1.1754943508222875e-38, "float32"),
    "FLT_EPSILON": Num(2.0**-23, "float32"), "DBL_MAX": Num(1.7976931348623157e308, "float64"),
    "SIZE_MAX": Num(2**64 - 1, "uint64"),
    "M_PI": Num(math.pi, "float64", "np.pi"), "EXIT_SUCCESS": Num(0), "EXIT_FAILURE": Num(1), "INT8_MAX": Num(127),
    "true": Num(True, "bool", "True"), "false": Num(False, "bool", "False"),
    "INT8_MIN": Num(-128), "UINT8_MAX": Num(255),
    "__FILE__": Text(""), "__LINE__": Num(0), "__func__": Text(""), "__FUNCTION__": Text(""),
}  # fmt: skip


@evaluates("number_literal")
def _number(m: Machine, node: Node) -> Any:
    if node.cache is None:
        node.cache = literal(node.text) or m.unk(f"the number {node.text} is not understood", node)
    return node.cache


@evaluates("true", "false", "null", "nullptr")
def _constant(m: Machine, node: Node) -> Any:
    return _CONSTANTS[node.text]


def _unescape(text: str) -> str:
    try:
        return str(ast.literal_eval(re.sub(r"\\([?%])", r"\1", text).replace("\n", " ")))
    except (ValueError, SyntaxError):
        return text.strip("\"'")


@evaluates("string_literal", "raw_string_literal")
def _string(m: Machine, node: Node) -> Any:
    if node.cache is None:
        text = node.text
        node.cache = Text(
            text.split("(", 1)[1].rsplit(")", 1)[0] if text.startswith("R") else _unescape(text.lstrip("uUL8"))
        )
    return node.cache


@evaluates("concatenated_string")
def _strings(m: Machine, node: Node) -> Any:
    parts = [m.eval(k) if k.kind.endswith("literal") else Text("%ld") for k in node.kids]
    return Text("".join(p.value for p in parts if isinstance(p, Text)))


@evaluates("char_literal")
def _char(m: Machine, node: Node) -> Any:
    text = _unescape(node.text)
    return Num(ord(text[0]) if text else 0, "int8")


@evaluates("identifier", "type_identifier", "field_identifier")
def _identifier(m: Machine, node: Node) -> Any:
    return lookup(m, node.text, node)


def lookup(m: Machine, name: str, node: Node) -> Any:
    """Return the value of a name."""
    cell = m.scope.find(name)
    if cell is not None:
        return cell.value
    constant = names.constant(name)
    if constant is not None:
        return constant
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    closure = m.function(name)
    if closure is not None:
        return closure
    this = m.scope.find_this()
    if this is not None and name in m.structs[this.kind].methods:
        return Closure(name, m.structs[this.kind].methods[name], None, this)
    macro = m.macros.get(name)
    if macro is not None and macro.parameters is None and macro.body:
        body = fragment(f"({macro.body})", node.line, m.file)
        return m.eval(body.kids[0])
    if name.startswith("acl"):
        return Closure(name, [])  # an API function passed as a deleter
    return Unk(f"{name} is not known", node.line)


@evaluates("qualified_identifier")
def _qualified(m: Machine, node: Node) -> Any:
    inner = node["name"]
    while inner.kind == "qualified_identifier":
        inner = inner["name"]
    if inner.kind == "template_function":
        inner = inner["name"]
    scope = node.get("scope")
    if inner.text in ("value", "npos") and scope is not None:
        return _trait(m, node, scope, inner.text)
    return lookup(m, inner.text, node)


def _trait(m: Machine, node: Node, scope: Node, name: str) -> Any:
    if name == "npos":
        return Num(2**64 - 1, "uint64")
    inner: Node | None = node
    while inner is not None and inner.kind == "qualified_identifier":
        scope, inner = inner.get("scope") or scope, inner.get("name")
    return type_trait(m, scope)


def type_trait(m: Machine, node: Node) -> Any:
    """``is_same<A, B>`` and the like."""
    if node.kind not in ("template_type", "template_function"):
        return m.unk("a type trait", node)
    args = [m.type(a) for a in node["arguments"].kids]
    name = node["name"].text.removesuffix("_v")
    if name == "is_same" and len(args) == 2:
        return Num(args[0].bare() == args[1].bare(), "bool")
    kind = numeric(args[0]) if args else None
    if name == "is_floating_point":
        return Num(kind in ("float32", "float64"), "bool")
    if name == "is_integral":
        return Num(kind is not None and kind.startswith(("int", "uint", "bool")), "bool")
    return m.unk("a type trait", node)


@evaluates("template_function")
def _template_value(m: Machine, node: Node) -> Any:
    name = node["name"].text
    return type_trait(m, node) if name.startswith("is_") else lookup(m, name, node)
