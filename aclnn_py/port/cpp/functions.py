"""Calls: overloads, template parameters, references, lambdas, constructors and methods of the sample's own classes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .convert import convert, copy_in, decay, flat_type
from .machine import FunctionDef, Machine, Running, Scope
from .syntax import Node
from .types import AUTO, CType, declare, numeric
from .values import NULL, Array, Cell, Closure, Num, Ptr, Struct, Text, Unk, Vector, np_type

__all__ = ["Alias", "Argument", "find_method", "invoke", "parameters_of", "poison", "reference", "run", "score"]


MAX_DEPTH = 40


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


def _unify(pattern: CType, actual: CType, found: dict[str, CType], names: list[str]) -> None:
    if pattern.base in names and actual.base != "auto":
        if actual.ptr >= pattern.ptr:
            found.setdefault(pattern.base, CType(actual.base, actual.args, actual.ptr - pattern.ptr))
        return
    for p, a in zip(pattern.args, actual.args, strict=False):
        if isinstance(p, CType) and isinstance(a, CType):
            _unify(p, a, found, names)


def score(m: Machine, definition: FunctionDef, arguments: list[Argument]) -> int:
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
        scored = [(s, d) for d in candidates if (s := score(m, d, arguments)) >= 0]
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
    return run(m, closure, candidates[0], arguments, templates, node)


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


def run(
    m: Machine, closure: Closure, d: FunctionDef, arguments: list[Argument], templates: list[Any], node: Node
) -> Any:
    """Run one function: bind its parameters, execute its body."""
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
    if isinstance(value, Vector):
        value = Ptr(value.array)
    elif isinstance(value, Struct):
        value = Ptr(Cell(value, AUTO))
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


def find_method(m: Machine, kind: str, name: str) -> list[FunctionDef] | None:
    """Return the methods of that name in a class or its first bases."""
    definition = m.structs.get(kind)
    while definition is not None:
        if name in definition.methods:
            return definition.methods[name]
        definition = m.structs.get(definition.bases[0]) if definition.bases else None
    return None


# objects
