"""Operator calls in two stages, macros of the sample, and functions that are not known."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from aclnn_py.signatures import Parameter, Signature

from ..model import Array as ModelArray
from ..model import Attribute, Call, Scalar, Sequence, Unknown, Value
from . import names
from .convert import decay, string_of
from .functions import poison
from .library import repr_of
from .machine import Machine, Scope, library
from .syntax import Node, fragment
from .tensors import tensor_of
from .types import CType
from .values import Cell, Handle, Null, Num, Struct, Text, Unk, Vector

__all__ = ["api", "finish", "macro", "stage_two"]

_KINDS = {
    "tensor": "const aclTensor *", "scalar": "const aclScalar *", "int_array": "const aclIntArray *",
    "float_array": "const aclFloatArray *", "bool_array": "const aclBoolArray *",
    "tensor_list": "const aclTensorList *", "scalar_list": "const aclScalarList *",
}  # fmt: skip
_NUMBER = re.compile(r"-?(0x[0-9a-fA-F]+|[0-9.]+(e[-+]?[0-9]+)?)|np\.\w+")
_CTYPES = {"float32": "float", "float64": "double", "bool": "bool"}


def api(m: Machine, node: Node, name: str) -> Any:
    """Return a call of something that neither the sample nor the libraries known here define."""
    arguments = node["arguments"].kids if "arguments" in node.fields else []
    if name.startswith("acl") and name.endswith("GetWorkspaceSize"):
        return _stage_one(m, node, name.removesuffix("GetWorkspaceSize"), arguments)
    values = [m.eval(k) for k in arguments]
    if name.startswith("acl") and len(values) >= 4 and stage_two(m, name, values, node):
        return Num(0)
    known = name.startswith(("acl", "Hccl"))
    if not known:  # it may take its arguments by reference
        for argument in arguments:
            place = (
                m.lvalue(argument)
                if argument.kind in ("identifier", "field_expression", "subscript_expression")
                else None
            )
            if place is not None and isinstance(place[0].get(place[1]), (Num, Text, Unk)):
                place[0].set(place[1], Unk(f"{name} may have changed it", node.line))
    for value in values if not known else [v for v in values if not isinstance(v, (Vector, Struct))]:
        poison(m, value, Unk(f"{name} is not followed", node.line))
        if isinstance(value, Handle) and value.kind == "tensor" and not re.search("Calculate|Get", name):
            value.data["why"] = Unk(f"{name} may have changed it", node.line)
    if name in ("cout", "cerr", "endl"):
        return None
    return Num(0) if known else m.unk(f"{name or node['function'].text[:30]} is not known", node)


def _identifier(node: Node) -> str:
    """Return the name that an argument is known by in the source."""
    text = re.sub(r"\b(static_cast|reinterpret_cast|const_cast|std::move)\s*(<[^<>]*>)?", "", node.text)
    text = re.sub(r"\.get\(\)|\.c_str\(\)|\.data\(\)|\.release\(\)|->", " ", text)
    words = re.findall(r"[A-Za-z_]\w*(?:\[\w+\])?", text.replace(".", " "))
    word = words[-1] if words else ""
    return re.sub(r"\W+", "_", word).strip("_")


def _stage_one(m: Machine, node: Node, op: str, arguments: list[Node]) -> Any:
    values = [m.eval(k) for k in arguments]
    if len(values) < 2:
        return m.unk(f"{op} without arguments", node)
    signature = m.signature(op)
    if signature is not None and len(signature.parameters) != len(values) - 2:
        m.note(
            f"{op} is known with {len(signature.parameters)} arguments, the sample passes {len(values) - 2}", node.line
        )
        signature = None
    pending = {"op": op, "nodes": arguments[:-2], "values": values[:-2], "signature": signature, "line": node.line}
    handle = Handle("executor", node.line)
    handle.data.update(pending)
    handle.data["ctypes"] = [_declared(m, k) for k in arguments[:-2]]
    m.pending.append(handle)
    m.extra["store"](values[-2], Unk("the size of the workspace", node.line, "workspace"))
    m.extra["store"](values[-1], handle)
    return Num(0)


def _declared(m: Machine, node: Node) -> CType | None:
    place = m.lvalue(node) if node.kind == "identifier" else None
    return place[0].ctype if place is not None else None


def stage_two(m: Machine, name: str, values: list[Any], node: Node) -> bool:
    """Add the call that a second stage launches; False when there was no first stage."""
    executor = values[2]
    if not (isinstance(executor, Handle) and executor.kind == "executor" and executor.data["op"] == name):
        executor = next((p for p in reversed(m.pending) if p.data["op"] == name), None)
    if executor is None:
        return False
    if executor in m.pending:
        m.pending.remove(executor)
    elif not executor.data.get("repeatable"):
        m.note(f"{name} is launched again, but its executor is not repeatable: one launch is kept", node.line)
        return True
    m.emit(_call(m, executor))
    return True


def finish(m: Machine) -> None:
    """Add the calls whose second stage was never met."""
    for executor in m.pending:
        m.note(f"{executor.data['op']}: only the first stage is called", executor.line)
        m.emit(_call(m, executor))


def _call(m: Machine, executor: Handle) -> Call:
    data = executor.data
    signature: Signature | None = data["signature"]
    parameters = list(signature.parameters) if signature is not None else _invent(m, data)
    converted: dict[str, Value] = {}
    for parameter, value, node in zip(parameters, data["values"], data["nodes"], strict=True):
        converted[parameter.name] = _argument(m, decay(value), parameter, node)
    for value in data["values"]:
        _touch(decay(value))
    declaration = None
    if signature is None:
        text = ", ".join(f"{p.ctype}{p.name}" if p.ctype.endswith("*") else f"{p.ctype} {p.name}" for p in parameters)
        tail = "uint64_t *workspaceSize, aclOpExecutor **executor"
        declaration = f"aclnnStatus {data['op']}GetWorkspaceSize({text + ', ' if text else ''}{tail});"
    return Call(data["op"], converted, data["line"], m.frames(), declaration)


def _touch(value: Any) -> None:
    if isinstance(value, Handle):
        if value.kind == "tensor" and isinstance(value.data.get("memory"), Handle):
            value.data["memory"].data["touched"] = True
            value.data["memory"].data["last"] = value
        for item in value.data.get("items", ()) if value.kind == "tensor_list" else ():
            _touch(item)


def _invent(m: Machine, data: dict[str, Any]) -> list[Parameter]:
    """Parameters of an operator without a signature: names from the source, types from the values."""
    found: list[Parameter] = []
    used: set[str] = set()
    for i, (value, node, declared) in enumerate(zip(data["values"], data["nodes"], data["ctypes"], strict=True)):
        value = decay(value)
        name = _identifier(node)
        if not name or name in ("nullptr", "true", "false", "NULL") or name in used or not name.isidentifier():
            name = f"argument{i}"
        used.add(name)
        kind = value.kind if isinstance(value, Handle) else ""
        if kind not in _KINDS and declared is not None and declared.ptr == 1 and declared.base.startswith("acl"):
            kind = re.sub(r"(?<!^)(?=[A-Z])", "_", declared.base[3:]).lower()
        if (
            isinstance(value, Text)
            or (declared is not None and declared.ptr == 1 and declared.base == "int8")
            or string_of(value) is not None
        ):
            found.append(Parameter(name, "const char *", "string"))
        elif isinstance(value, Num):
            dtype = value.text is not None and value.text.startswith("ACL_") and "FORMAT" not in value.text
            ctype = "aclDataType" if dtype else _CTYPES.get(value.t, value.t + "_t")
            found.append(
                Parameter(
                    name,
                    ctype,
                    "dtype" if dtype else {"float": "float", "double": "double", "bool": "bool"}.get(ctype, "int"),
                )
            )
        else:
            found.append(Parameter(name, _KINDS.get(kind, "const aclTensor *"), kind if kind in _KINDS else "tensor"))
    return found


def _argument(m: Machine, value: Any, parameter: Parameter, node: Node) -> Value:
    if isinstance(value, Null):
        return None
    if isinstance(value, Unk):
        return Unknown(value.reason, (value.line or node.line, node.line), m.file, node.text)
    name = _identifier(node) or parameter.name
    if isinstance(value, Handle):
        return handle_value(m, value, name)
    if parameter.kind == "string" or isinstance(value, Text):
        text = string_of(value)
        return (
            Attribute(repr(text), text, node.line)
            if text is not None
            else m.unknown("a string", node.line, source=node.text)
        )
    if isinstance(value, Num):
        return attribute(value, parameter.kind, node.line)
    if isinstance(value, Struct):
        return m.unknown(f"a struct {value.kind} as an argument", node.line, source=node.text)
    return m.unknown(f"argument '{parameter.name}'", node.line, source=node.text)


def attribute(value: Num, kind: str, line: int) -> Attribute | Unknown:
    """Return a number, bool or dtype that is passed by value."""
    v = value.v
    if isinstance(v, np.ndarray):
        return Unknown("a number that differs between iterations", (line, line))
    if kind == "bool" or (value.t == "bool" and kind not in ("int", "float", "double")):
        return Attribute(str(bool(v)), bool(v), line)
    if kind == "dtype":
        name = names.dtype_name(int(v))
        return Attribute(name or str(int(v)), int(v), line)
    if kind in ("int", "enum"):
        number = int(v)
        text = (
            value.text
            if value.text is not None and _NUMBER.fullmatch(value.text) and "." not in value.text
            else str(number)
        )
        return Attribute(text, number, line)
    text = value.text if value.text is not None and _NUMBER.fullmatch(value.text) else repr_of(value)
    return Attribute(text, v, line)


def handle_value(m: Machine, handle: Handle, name: str) -> Value:
    """Return the model's object for a handle."""
    data, kind = handle.data, handle.kind
    why: Unk | None = data.get("why")
    if kind == "tensor":
        if "named" not in data:
            data["named"] = name
        return tensor_of(m, handle, data["named"])
    if why is not None:
        return m.unknown(f"'{name}': {why.reason}", why.line or handle.line, handle.line)
    if kind == "scalar":
        if "model" not in data:
            number = attribute(data["value"], "bool" if data["dtype"] == "bool" else "float", handle.line)
            text = number.text if isinstance(number, Attribute) else ""
            data["model"] = Scalar(name, text, data["value"].v, data["dtype"], handle.line)
        return data["model"]  # type: ignore[no-any-return]
    if kind in ("int_array", "float_array", "bool_array"):
        shown = [attribute(i, kind.removesuffix("_array"), handle.line) for i in data["items"]]
        good = [s for s in shown if isinstance(s, Attribute)]
        return ModelArray(name, tuple(s.text for s in good), tuple(s.value for s in good), handle.line)
    if kind in ("tensor_list", "scalar_list"):
        items: list[Any] = []
        for i, item in enumerate(data["items"]):
            made = handle_value(m, item, f"{name}_{i}") if isinstance(item, Handle) else None
            if isinstance(item, Unk):
                made = m.unknown(item.reason, item.line or handle.line, handle.line)
            items.append(made)
        return Sequence(name, tuple(items), handle.line)
    return m.unknown(f"'{name}' is a {kind}", handle.line)


# macros


def macro(m: Machine, node: Node, definition: Any) -> Any:
    """Return a call of one of the sample's function-like macros."""
    arguments = node["arguments"].kids if "arguments" in node.fields else []
    position = len(node.source.bytes[: node.start].decode(errors="replace"))
    rest = node.source.prepared.blanked.get(position)
    if definition.prints and not definition.checks:
        return m.extra["print"](m, node, [m.eval(k) for k in arguments])
    if rest is not None or definition.checks:
        value = m.eval(arguments[0]) if arguments else None
        if definition.checks and rest is not None and isinstance(value, Num) and not value.v:
            return m.extra["rest"](m, rest, node)
        return None
    body = definition.body.strip()
    statements = body.startswith(("do", "{", "if", "for")) or ";" in body
    if statements:  # it checks or prints: what counts are the arguments
        for argument in arguments:
            m.eval(argument)
        return None
    scope = Scope(m.scope)
    for parameter, argument in zip(definition.parameters, arguments, strict=False):
        scope.vars[parameter] = Cell(m.eval(argument), CType("auto"), parameter)
    outer, m.scope = m.scope, scope
    try:
        return m.eval(fragment(f"({body})", node.line, m.file).kids[0])
    finally:
        m.scope = outer


@library("static_assert")
def _nothing(m: Machine, node: Node, values: list[Any]) -> Any:
    return None
