"""Calls: overloads, template parameters, references, lambdas, constructors and methods of the sample's own classes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .arithmetic import binary, cast
from .convert import convert, copy_in, decay, default, flat_type, load
from .expressions import explicit
from .machine import FUNCTIONS, METHODS, FunctionDef, Machine, Running, Scope, evaluates
from .syntax import Node
from .types import AUTO, CType, declare, numeric
from .values import NULL, Array, Braces, Cell, Closure, Num, Ptr, Smart, Struct, Text, Unk, Vector, duplicate, np_type

__all__ = ["call", "call_method", "construct", "invoke", "parameters_of", "poison"]

MAX_DEPTH = 40
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"})


class Alias(Cell):
    """A reference to an element of a container."""

    __slots__ = ("at", "block")

    def __init__(self, block: Any, at: Any) -> None:
        super().__init__(None, block.ctype, "")
        self.block, self.at = block, at

    def get(self, _index: Any = 0) -> Any:
        """Return the element."""
        return self.block.get(self.at)

    def set(self, _index: Any, value: Any) -> None:
        """Store the element."""
        self.block.set(self.at, value)

    @property
    def value(self) -> Any:
        """The element."""
        return self.block.get(self.at)

    @value.setter
    def value(self, new: Any) -> None:
        if new is not None:
            self.block.set(self.at, new)


def reference(place: tuple[Any, Any]) -> Cell:
    """Return the cell that a reference to a place is."""
    block, at = place
    return block if type(block) is Cell else Alias(block, at)


def parameters_of(node: Node) -> list[Node]:
    """Return the parameter declarations of a parameter list, ``(void)`` left out."""
    found = [k for k in node.kids if k.kind.endswith("parameter_declaration") or k.kind == "variadic_parameter"]
    return [] if len(found) == 1 and found[0].text.strip() == "void" else found


class Argument:
    """An argument that is evaluated once, with its place when it has one."""

    __slots__ = ("_value", "done", "machine", "node", "scope")

    def __init__(self, machine: Machine, node: Node | None, value: Any = None) -> None:
        self.machine, self.node, self._value = machine, node, value
        self.done = node is None
        self.scope = machine.scope

    @property
    def value(self) -> Any:
        """The value."""
        if not self.done and self.node is not None:
            outer, self.machine.scope = self.machine.scope, self.scope
            try:
                self._value = self.machine.eval(self.node)
            finally:
                self.machine.scope = outer
            self.done = True
        return self._value

    def place(self) -> tuple[Any, Any] | None:
        """Where it is stored."""
        if self.node is None:
            return None
        outer, self.machine.scope = self.machine.scope, self.scope
        try:
            return self.machine.lvalue(self.node)
        finally:
            self.machine.scope = outer


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


def _unify(pattern: CType, actual: CType, found: dict[str, CType], names: list[str]) -> None:
    if pattern.base in names and actual.base != "auto":
        if actual.ptr >= pattern.ptr:
            found.setdefault(pattern.base, CType(actual.base, actual.args, actual.ptr - pattern.ptr))
        return
    for p, a in zip(pattern.args, actual.args, strict=False):
        if isinstance(p, CType) and isinstance(a, CType):
            _unify(p, a, found, names)


def _score(m: Machine, definition: FunctionDef, arguments: list[Argument]) -> int:
    """How well the parameter types fit; -1 when the count does not."""
    required = [p for p in definition.parameters if p.kind == "parameter_declaration"]
    most = len(definition.parameters)
    if any(p.kind.startswith("variadic") for p in definition.parameters):
        most = 99
    if not len(required) <= len(arguments) <= most:
        return -1
    score = 0
    for parameter, argument in zip(definition.parameters, arguments, strict=False):
        ctype = m.declared(parameter.get("type"), parameter.get("declarator"))[0].bare()
        actual = flat_type(argument.value)
        if ctype == actual:
            score += 3
        elif ctype.base in definition.templates or (ctype.base == actual.base and ctype.ptr == actual.ptr):
            score += 2 if ctype.base == actual.base and ctype.args == actual.args else 1
        elif numeric(ctype) and numeric(actual):
            score += 1
        elif actual.base != "auto" and (bool(numeric(ctype)) != bool(numeric(actual))):
            score -= 1
    return max(score, 0)


def invoke(m: Machine, closure: Closure, arguments: list[Argument], templates: list[Any], node: Node) -> Any:
    """Call a function of the sample."""
    candidates = closure.candidates
    if len(candidates) > 1:
        scored = [(s, d) for d in candidates if (s := _score(m, d, arguments)) >= 0]
        if templates:
            scored = [(s, d) for s, d in scored if d.templates] or scored
        candidates = [d for s, d in scored if s == max(s for s, _ in scored)]
    candidates = [d for d in candidates if d.body is not None] or candidates
    if not candidates or candidates[-1].body is None:
        for argument in arguments:
            poison(m, argument.value, Unk(f"{closure.name} is not defined in the sample", node.line))
        return m.unk(f"{closure.name} is not defined in the sample", node)
    if m.vector and closure.this is None:
        return _for_each(m, closure, arguments, templates, node)
    converted = _conversion_of_result(closure, arguments, node)
    if converted is not None:
        return converted
    if m.depth >= MAX_DEPTH:
        return m.unk(f"{closure.name} calls itself too deeply", node)
    return _run(m, closure, candidates[0], arguments, templates, node)


_HALF = re.compile(r"float|half|fp16|bf16|fp32", re.I)


def _conversion_of_result(closure: Closure, arguments: list[Argument], node: Node) -> Unk | None:
    """Return a number that was read back, given to the sample's own conversion from half: still that number."""
    if len(arguments) != 1 or closure.this is not None or not _HALF.search(closure.name):
        return None
    value = arguments[0].value
    if isinstance(value, Unk) and value.tag == "device" and value.expr and value.expr[0] in ("dev", "cast"):
        return Unk(value.reason, node.line, "device", ("cast", value.expr))
    return None


def _for_each(m: Machine, closure: Closure, arguments: list[Argument], templates: list[Any], node: Node) -> Any:
    """Return a function of numbers for all iterations of a loop: called once for each set of arguments that differs."""
    values = [a.value for a in arguments]
    varying = [i for i, v in enumerate(values) if isinstance(v, Num) and isinstance(v.v, np.ndarray)]
    device = next((v for v in values if isinstance(v, Unk)), None)
    if device is not None:
        return Unk(device.reason, node.line, device.tag, ("cast", device.expr) if device.expr else ())
    m.vector = False
    try:
        if not varying:
            return invoke(m, closure, arguments, templates, node)
        table = np.stack([values[i].v.astype(np.float64) for i in varying], axis=1)
        rows, inverse = np.unique(table, axis=0, return_inverse=True)
        if len(rows) > 2048:
            return m.unk(f"{closure.name} of {len(rows):,} different arguments", node)
        results = []
        for row in rows:
            for i, v in zip(varying, row, strict=True):
                kind = values[i].t
                values[i] = Num(float(v) if kind.startswith(("float", "bfloat")) else int(v), kind)
            got = invoke(m, closure, [Argument(m, None, v) for v in values], templates, node)
            if not isinstance(got, Num):
                return got if isinstance(got, Unk) else m.unk(f"{closure.name} gives no number", node)
            results.append(got)
        return Num(np.array([r.v for r in results], np_type(results[0].t))[inverse.ravel()], results[0].t)
    finally:
        m.vector = True


def _run(
    m: Machine, closure: Closure, d: FunctionDef, arguments: list[Argument], templates: list[Any], node: Node
) -> Any:
    parent = closure.scope or d.scope or m.globals
    scope = Scope(parent, closure.this)
    found: dict[str, CType] = {}
    for name, given in zip(d.templates, templates, strict=False):
        if isinstance(given, CType):
            found[name] = given
        else:
            scope.vars[name] = Cell(given, AUTO, name)
    outer = m.scope
    if d.templates:
        for name in d.templates:
            if name not in found and name not in scope.vars:
                scope.add_type(name, CType(name))
        m.scope = scope
        for parameter, argument in zip(d.parameters, arguments, strict=False):
            pattern = m.declared(parameter.get("type"), parameter.get("declarator"))[0]
            _unify(pattern, flat_type(argument.value), found, d.templates)
        m.scope = outer
    for name, given in found.items():
        scope.add_type(name, given)
    for i, parameter in enumerate(d.parameters):
        if parameter.kind.startswith("variadic"):
            _bind_pack(m, scope, parameter, arguments[i:])
            break
        m.scope = scope
        ctype, name_node, extents = m.declared(parameter.get("type"), parameter.get("declarator"))
        if extents:
            ctype = ctype.pointer()
        if i < len(arguments):
            cell = _bind(m, arguments[i], ctype, parameter)
        else:
            fallback = parameter.get("default_value")
            cell = Cell(copy_in(m, m.eval(fallback), ctype.bare()) if fallback is not None else NULL, ctype.bare())
        if name_node is not None:
            if not cell.name:
                cell.name = name_node.text
            scope.vars[name_node.text] = cell
    m.scope = scope
    frame = m.running[-1]
    key = (d.name, d.node.line)
    frame.calls[key] = frame.calls.get(key, -1) + 1
    m.running.append(
        Running("function", closure.name if closure.name != "lambda" else d.name, d.node.line, frame.calls[key])
    )
    m.depth += 1
    scope.returns = m.declared(d.returns, _return_declarator(d))[0] if d.returns is not None else AUTO
    try:
        if d.initialisers is not None:
            m.extra["initialise"](m, d.initialisers, closure.this)
        return m.extra["body"](m, d, scope)
    finally:
        m.depth -= 1
        m.running.pop()
        m.scope = outer
        m.line = node.line


def _return_declarator(d: FunctionDef) -> Node | None:
    node = d.declarator
    return node if node is not None and node.kind in ("pointer_declarator", "reference_declarator") else None


def _bind_pack(m: Machine, scope: Scope, parameter: Node, rest: list[Argument]) -> None:
    _, name_node, _ = declare(AUTO, parameter.get("declarator"))
    if name_node is not None:
        scope.vars[name_node.text.strip(". ")] = Cell(m.unk("a parameter pack"), AUTO)


def _bind(m: Machine, argument: Argument, ctype: CType, parameter: Node) -> Cell:
    if ctype.ref:
        place = argument.place() if argument.node is not None else None
        bare = ctype.bare()
        if place is not None:
            block = place[0]
            same = numeric(bare) is None or numeric(bare) == numeric(block.ctype)
            if same or bare.base == "auto":
                if (
                    isinstance(block, Cell)
                    and isinstance(block.value, (Array, Text))
                    and bare.base in ("string", "vector")
                ):
                    return Cell(copy_in(m, block.value, bare), bare)
                return reference(place)
        value = argument.value
        if isinstance(value, (Vector, Struct, Text)) and not (bare.base == "string" and isinstance(value, Unk)):
            return Cell(value, bare)
        return Cell(convert(m, value, bare), bare)
    return Cell(copy_in(m, argument.value, ctype), ctype)


def poison(m: Machine, value: Any, why: Unk) -> None:
    """Return what something that is not understood may have written through a pointer becomes unknown."""
    value = decay(value)
    if isinstance(value, Ptr):
        block = value.block
        if isinstance(block, Array):
            block.forget(why)
        elif isinstance(block, Cell):
            if isinstance(block.value, Vector):
                block.value.array.forget(why)
            elif isinstance(block.value, Struct):
                for cell in block.value.fields.values():
                    cell.value = why
            else:
                block.value = why
        elif hasattr(block, "data") and isinstance(block.data, dict):
            block.data["lost"] = why


# call expressions


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
        found = _find_method(m, this.kind, name)
        if found is not None:
            return Closure(name, found, None, this)
    return m.function(name)


def _find_method(m: Machine, kind: str, name: str) -> list[FunctionDef] | None:
    definition = m.structs.get(kind)
    while definition is not None:
        if name in definition.methods:
            return definition.methods[name]
        definition = m.structs.get(definition.bases[0]) if definition.bases else None
    return None


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
        found = _find_method(m, value.kind, "operator()")
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
        found = _find_method(m, base.kind, name)
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


# objects


def construct(m: Machine, ctype: CType, values: list[Any], braces: bool = False) -> Any:
    """Return an object of that type from constructor arguments (``braces``: an aggregate's members)."""
    definition = m.structs.get(ctype.base) if not ctype.ptr else None
    if definition is None:
        return m.extra["build"](m, ctype, values)
    made = Struct(ctype.base, definition.union)
    outer = m.scope
    m.scope = Scope(definition.scope, made)
    for name, given in zip(definition.templates, ctype.args, strict=False):
        if isinstance(given, CType):
            m.scope.add_type(name, given)
    scope = m.scope
    constructors = definition.methods.get(ctype.base, [])
    try:
        m.extra["members"](m, definition, made)
        if len(values) == 1 and isinstance(values[0], Struct) and values[0].kind == ctype.base:
            return duplicate(values[0])
        if constructors:
            arguments = [Argument(m, None, v) for v in values]
            fitting = [c for c in constructors if _score(m, c, arguments) >= 0 and c.body is not None]
            if fitting:
                best = max(fitting, key=lambda c: _score(m, c, arguments))
                _run(m, Closure(ctype.base, [best], scope, made), best, arguments, [], best.node)
            elif values:
                return m.unk(f"a constructor of {ctype.base}")
            return made
        for cell, value in zip(made.fields.values(), values, strict=False):
            if isinstance(cell.value, Array) and isinstance(value, Braces):
                new = m.extra["array_of"](m, value, cell.value.elem, [cell.value.n])
                cell.value = new
            else:
                cell.value = copy_in(m, value, cell.ctype)
        if braces:
            for cell in list(made.fields.values())[len(values) :]:
                if isinstance(cell.value, Unk):
                    cell.value = default(m, cell.ctype, True)
        return made
    finally:
        m.scope = outer


def operator(m: Machine, op: str, a: Any, b: Any, node: Node) -> Any:
    """Return an operator of the sample's own classes."""
    if isinstance(a, Struct):
        found = _find_method(m, a.kind, f"operator{op}")
        if found is not None:
            return invoke(m, Closure(f"operator{op}", found, None, a), [Argument(m, None, b)], [], node)
    closure = m.function(f"operator{op}")
    if closure is not None:
        return invoke(m, closure, [Argument(m, None, a), Argument(m, None, b)], [], node)
    x, y = (conversion(m, v, AUTO) if isinstance(v, Struct) else v for v in (a, b))
    return (
        binary(op, x, y) if not isinstance(x, Struct) and not isinstance(y, Struct) else m.unk(f"operator {op}", node)
    )


def conversion(m: Machine, value: Struct, ctype: CType) -> Any:
    """Return what a conversion operator of a class gives."""
    for name, found in (m.structs[value.kind].methods if value.kind in m.structs else {}).items():
        if name.startswith("operator ") and found[0].body is not None:
            result = invoke(m, Closure(name, found, None, value), [], [], found[0].node)
            return cast(result, ctype.base) if numeric(ctype) else result
    return m.unk(f"an object of type {value.kind}")


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
        if capture.kind == "identifier":
            cell = m.scope.find(capture.text)
            if cell is not None:
                scope.vars[capture.text] = Cell(duplicate(cell.value), cell.ctype, cell.name)
        elif capture.kind == "lambda_capture_initializer":
            scope.vars[capture["left"].text] = Cell(m.eval(capture["right"]), AUTO)
    return scope
