"""Call expressions: what is called, and on what."""

from __future__ import annotations

from typing import Any

from .convert import convert, decay, load
from .expressions import explicit
from .functions import Argument, find_method, invoke, parameters_of, poison
from .machine import FUNCTIONS, METHODS, FunctionDef, Machine, Scope, evaluates
from .objects import construct
from .syntax import Node
from .types import AUTO, CType, numeric
from .values import Array, Cell, Closure, Num, Ptr, Smart, Struct, Unk, Vector, duplicate

__all__ = ["call", "call_method", "call_value"]

_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"})


def _arguments(m: Machine, node: Node | None) -> list[Argument]:
    return [Argument(m, k) for k in node.kids] if node is not None else []


def _template_arguments(m: Machine, node: Node | None) -> list[CType | Any]:
    if node is None:
        return []
    return [_template_argument(m, k) for k in node.kids]


def _template_argument(m: Machine, node: Node) -> Any:
    """Return a type, or the value of a constant, which reads like a type."""
    if node.kind != "type_descriptor":
        return m.eval(node)
    name = node.text.split("::")[-1].strip()
    cell = m.scope.find(name)
    return cell.value if cell is not None and m.scope.find_type(name) is None else m.type(node)


@evaluates("call_expression")
def call(m: Machine, node: Node) -> Any:
    """Evaluate a call."""
    if node.cache is None:
        node.cache = _callee(node["function"])
    name, templates, qualifier = node.cache
    function, arguments = node["function"], node.get("arguments")
    if function.kind == "field_expression":
        return _method(m, node, function, arguments)
    if name in _CASTS and templates is not None:
        ctype = m.type(templates.kids[0])
        argument = arguments.kids[0] if arguments is not None else None
        if ctype.ref and argument is not None:
            place = m.lvalue(argument)
            if place is not None:
                return load(convert(m, Ptr(place[0], place[1], place[0].ctype), ctype.bare().pointer()))
        return explicit(m, m.eval(argument), ctype) if argument is not None else m.unk("a cast", node)
    if name in m.macros and m.macros[name].parameters is not None:
        return m.extra["macro"](m, node, m.macros[name])
    cell = m.scope.find(name) if not qualifier else None
    if cell is not None:
        return call_value(m, cell.value, _arguments(m, arguments), node)
    if name in FUNCTIONS and (name not in m.functions or qualifier.startswith("std")):
        values = [m.eval(k) for k in arguments.kids] if arguments is not None else []
        return FUNCTIONS[name](m, node, values)
    closure = _resolve(m, name, qualifier)
    if closure is not None and name in m.extra.get("specialised", ()):
        for given in _arguments(m, arguments):
            poison(m, given.value, m.unk(f"a specialisation of {name}", node))
        return m.unk(f"a specialisation of {name}", node)
    if closure is not None:
        return invoke(m, closure, _arguments(m, arguments), _template_arguments(m, templates), node)
    ctype = m.type(function if templates is None else _as_type(function))
    if ctype.base in m.structs or numeric(ctype) or ctype.size is not None or ctype.base in _CONSTRUCTIBLE:
        values = [m.eval(k) for k in arguments.kids] if arguments is not None else []
        return construct(m, ctype, values)
    if function.kind in (
        "lambda_expression",
        "call_expression",
        "parenthesized_expression",
        "subscript_expression",
        "pointer_expression",
    ):
        return call_value(m, m.eval(function), _arguments(m, arguments), node)
    return m.extra["api"](m, node, name)


_CONSTRUCTIBLE = (
    "vector",
    "string",
    "pair",
    "tuple",
    "unique_ptr",
    "shared_ptr",
    "thread",
    "complex",
    "map",
    "set",
    "function",
)


def _as_type(function: Node) -> Node:
    """Return a template_function seen as the template_type that it names."""
    node = Node(
        function.kind.replace("template_function", "template_type"),
        function.start,
        function.end,
        function.line,
        function.source,
    )
    node.kids, node.named, node.fields = function.kids, function.named, dict(function.fields)
    if "name" in node.fields and node.fields["name"].kind in ("template_function", "qualified_identifier"):
        node.fields["name"] = _as_type(node.fields["name"])
        node.kids = [_as_type(k) if k is function.fields["name"] else k for k in function.kids]
    return node


def _callee(node: Node) -> tuple[str, Node | None, str]:
    """Unqualified name, template arguments and qualifier of what is called."""
    qualifier = ""
    while node.kind == "qualified_identifier":
        scope = node.get("scope")
        qualifier += (scope.text if scope is not None else "") + "::"
        node = node["name"]
    if node.kind == "template_function":
        name, templates = node["name"], node["arguments"]
        while name.kind == "qualified_identifier":
            qualifier += name["scope"].text + "::" if "scope" in name.fields else "::"
            name = name["name"]
        return name.text, templates, qualifier
    return node.text, None, qualifier


def _resolve(m: Machine, name: str, qualifier: str) -> Closure | None:
    this = m.scope.find_this()
    owner = qualifier.rstrip(":").split("::")[-1]
    if owner in m.structs and name in m.structs[owner].methods:
        return Closure(name, m.structs[owner].methods[name], m.structs[owner].scope, this)
    if this is not None and not qualifier:
        found = find_method(m, this.kind, name)
        if found is not None:
            return Closure(name, found, None, this)
    return m.function(name)


def call_value(m: Machine, value: Any, arguments: list[Argument], node: Node) -> Any:
    """Call what a variable holds."""
    value = decay(value)
    if isinstance(value, Ptr):
        value = load(value)
    if isinstance(value, Closure):
        if not value.candidates and value.name.startswith("acl"):
            values = [a.value for a in arguments]
            if value.name in FUNCTIONS:
                return FUNCTIONS[value.name](m, node, values)
            if len(values) == 4:  # a second stage through a function pointer
                m.extra["stage_two"](m, value.name, values, node)
            return Num(0)
        return invoke(m, value, arguments, [], node)
    if isinstance(value, Struct):
        found = find_method(m, value.kind, "operator()")
        if found is not None:
            return invoke(m, Closure("operator()", found, None, value), arguments, [], node)
    for argument in arguments:
        poison(m, argument.value, Unk(f"{node['function'].text} is not understood", node.line))
    return value if isinstance(value, Unk) else m.unk(f"{node['function'].text[:40]} is not understood", node)


def _method(m: Machine, node: Node, function: Node, arguments: Node | None) -> Any:
    base = m.eval(function["argument"])
    field = function["field"]
    templates = None
    if field.kind in ("template_method", "template_function"):
        templates, field = field["arguments"], field["name"]
    elif field.kind == "dependent_name":
        field = field.kids[-1]
    name = field.text
    arrow = function.get("operator") is not None and function["operator"].text == "->"
    if isinstance(base, Smart) and arrow:
        base = base.value
    if isinstance(base, Ptr) and arrow:
        base = load(base)
    if isinstance(base, Struct):
        if name in base.fields:
            return call_value(m, base.fields[name].value, _arguments(m, arguments), node)
        found = find_method(m, base.kind, name)
        if found is not None:
            closure = Closure(name, found, None, base)
            return invoke(m, closure, _arguments(m, arguments), _template_arguments(m, templates), node)
    return call_method(m, base, name, [m.eval(k) for k in arguments.kids] if arguments is not None else [], node)


def call_method(m: Machine, base: Any, name: str, values: list[Any], node: Node) -> Any:
    """Call a method of a library object."""
    handler = METHODS.get(type(base), {}).get(name)
    if handler is not None:
        return handler(m, base, values, node)
    for value in values:
        poison(m, value, Unk(f"{name} is not understood", node.line))
    if isinstance(base, (Vector, Array)):
        poison(m, Ptr(base.array if isinstance(base, Vector) else base), Unk(f"{name} is not understood", node.line))
    return base if isinstance(base, Unk) else m.unk(f"{name} is not understood", node)


@evaluates("lambda_expression")
def _lambda(m: Machine, node: Node) -> Any:
    declarator = node.get("declarator")
    parameters = declarator.get("parameters") if declarator is not None else None
    definition = FunctionDef("lambda", node, node["body"], parameters_of(parameters) if parameters is not None else [])
    definition.templates = []
    return Closure("lambda", [definition], _captured(m, node))


def _captured(m: Machine, node: Node) -> Scope:
    """Return the scope that a lambda sees: the enclosing one, with copies of what it captures by value."""
    scope = Scope(m.scope)
    for capture in node["captures"].kids if "captures" in node.fields else []:
        by_reference = capture.source.bytes[: capture.start].rstrip().endswith(b"&")
        if capture.kind == "identifier" and not by_reference:
            cell = m.scope.find(capture.text)
            if cell is not None:
                scope.vars[capture.text] = Cell(duplicate(cell.value), cell.ctype, cell.name)
        elif capture.kind == "lambda_capture_initializer":
            scope.vars[capture["left"].text] = Cell(m.eval(capture["right"]), AUTO)
    return scope
