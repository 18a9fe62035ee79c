"""Loops over many elements: evaluated for all iterations at once with NumPy when their statements allow it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .arithmetic import binary, cast
from .convert import decay, target
from .machine import Machine
from .syntax import Node
from .types import NUMERIC, numeric
from .values import Array, Cell, Closure, Num, Ptr, Unk, Vector, np_type, truth

__all__ = ["fast_loop", "range_loop"]

LEAST = 256  # iterations from which it is worth it
MOST = 30_000  # iterations that are followed one by one
_ALLOWED = frozenset({
    "compound_statement", "expression_statement", "assignment_expression", "subscript_expression", "identifier",
    "subscript_argument_list", "number_literal", "binary_expression", "unary_expression", "parenthesized_expression",
    "call_expression", "argument_list", "field_expression", "field_identifier", "conditional_expression",
    "cast_expression", "type_descriptor", "primitive_type", "type_identifier", "qualified_identifier",
    "namespace_identifier", "template_function", "template_argument_list", "declaration", "init_declarator",
    "sizeof_expression", "true", "false", "for_statement", "update_expression", "sized_type_specifier",
    "if_statement", "else_clause",
    "condition_clause", "placeholder_type_specifier",
    "auto", "type_qualifier", "template_type", "char_literal", "character",
    "pointer_expression",
})  # fmt: skip
_PURE = frozenset({
    "sin", "cos", "exp", "sqrt", "fabs", "abs", "pow", "log", "tanh", "floor", "ceil", "fmod", "static_cast", "min",
    "max", "size", "data", "sinf", "cosf", "powf", "expf", "sqrtf",
})  # fmt: skip


def bounds(m: Machine, node: Node) -> tuple[str, int, int, int] | None:
    """Variable, first value, stop and step of a counting loop."""
    condition, update = node.get("condition"), node.get("update")
    if condition is None or update is None or condition.kind != "binary_expression" or not m.scope.vars:
        return None
    name = condition["left"].text
    cell = m.scope.vars.get(name)
    if cell is None or not isinstance(cell.value, Num) or isinstance(cell.value.v, np.ndarray):
        return None
    step = 1
    if update.kind == "assignment_expression" and update["operator"].text == "+=" and update["left"].text == name:
        given = m.eval(update["right"])
        if not isinstance(given, Num) or given.v <= 0:
            return None
        step = int(given.v)
    elif update.kind != "update_expression" or update["operator"].text != "++" or update["argument"].text != name:
        return None
    stop = m.eval(condition["right"])
    op = condition["operator"].text
    if not isinstance(stop, Num) or op not in ("<", "<=", "!=") or isinstance(stop.v, np.ndarray):
        return None
    return name, int(cell.value.v), int(stop.v) + (op == "<="), step


def _root(node: Node) -> Node:
    while node.kind in ("subscript_expression", "field_expression", "parenthesized_expression", "pointer_expression"):
        node = node.get("argument") or node.kids[0]
    return node


def _base(node: Node) -> Node:
    """Return the identifier that ``v.data() + i`` starts from."""
    while node.kind != "identifier" and node.kids:
        node = node.kids[0]
    return node


def _suits(m: Machine, body: Node, name: str) -> bool:
    """Whether the statements only set elements of arrays that they do not read, and their own variables."""
    own = {name}
    written: list[str] = []
    targets: set[int] = set()
    for node in body.walk():
        if node.kind not in _ALLOWED:
            return False
        if node.kind in ("init_declarator", "declaration"):
            for d in node.all("declarator"):
                if d.kind == "identifier":
                    own.add(d.text)
        if node.kind == "call_expression":
            function = node["function"].text.split("<")[0].split("::")[-1].split(".")[-1]
            if function == "push_back":
                written.append(_root(node["function"]).text)
                targets.add(_root(node["function"]).start)
            elif function == "memcpy" and len(node["arguments"].kids) == 3:
                written.append(_base(node["arguments"].kids[0]).text)
                targets.add(_base(node["arguments"].kids[0]).start)
            elif function not in _PURE and not _harmless(m, node["function"], function):
                return False
    for node in body.walk():
        if node.kind == "assignment_expression":
            left = node["left"]
            if left.kind == "identifier":
                if left.text not in own:
                    return False
            elif left.kind == "subscript_expression":
                if node["operator"].text != "=":
                    return False
                written.append(_root(left).text)
                targets.add(_root(left).start)
            else:
                return False
        elif node.kind == "update_expression":
            if node["argument"].text not in own:
                return False
        elif node.kind == "pointer_expression" and not re.fullmatch(r"&\s*\w+", node.text):
            return False
    return not any(n.kind == "identifier" and n.text in written and n.start not in targets for n in body.walk())


def _harmless(m: Machine, node: Node, name: str) -> bool:
    """Return whether a call only computes: a type, a function of numbers, something unknown (a random number)."""
    if (
        node.kind in ("primitive_type", "parenthesized_expression")
        or m.scope.find_type(name) is not None
        or name in NUMERIC
    ):
        return True
    cell = m.scope.find(name)
    if cell is not None:
        return isinstance(cell.value, Unk) or (isinstance(cell.value, Closure) and _pure_function(cell.value))
    if name in ("rand", "aclFloatToFloat16", "aclFloat16ToFloat") and name not in m.functions:
        return True
    closure = m.function(name)
    return closure is not None and _pure_function(closure)


def _pure_function(closure: Any) -> bool:
    """Whether a function of the sample takes numbers and only computes one from them."""
    if not closure.candidates:
        return False
    definition = closure.candidates[-1]
    if definition.body is None or any(
        "&" in p.text or "*" in p.text or "vector" in p.text for p in definition.parameters
    ):
        return False
    return not any(word in definition.body.text for word in ("acl", "print", "cout", "static ", "push_back"))


def fast_loop(m: Machine, node: Node) -> bool:
    """Run a counting loop at once; False when it has to be run step by step."""
    if m.vector:
        return False
    found = bounds(m, node)
    if found is None:
        return False
    name, start, stop, step = found
    n = len(range(start, stop, step))
    body = node["body"]
    if n > 4096 and _only_prints(m, body):
        return _print_once(m, node, body, n)
    if n < LEAST:
        return False
    if node.cache is None:
        node.cache = _suits(m, body, name)
    if not node.cache or n > 1 << 25:
        return _give_up(m, node, n)
    cell = m.scope.vars[name]
    kept = cell.value
    index = np.arange(start, stop, step, dtype=np.int64)
    stores: list[tuple[Array, Any, Any]] = []
    cell.value = Num(index if cell.value.t == "int64" else index.astype(cell.value.t), cell.value.t)
    m.vector = True
    scope = m.scope
    inner = _Vectorised(m, stores)
    try:
        good = inner.run(body)
    finally:
        m.vector = False
        m.scope = scope
    if good:
        good = _commit(stores, n)
    cell.value = kept if not good else Num(start + n * step, kept.t)
    return good or _give_up(m, node, n)


def _give_up(m: Machine, node: Node, n: int) -> bool:
    """Return a loop that is too long to follow step by step leaves what it changes unknown."""
    if n <= MOST:
        return False
    m.extra["uncertain"](m, [node["body"]], m.unk(f"a loop of {n:,} iterations", node))
    return True


class _Vectorised:
    """Executes the statements of a body with arrays in place of numbers, collecting what they store."""

    def __init__(self, m: Machine, stores: list[tuple[Array, Any, Any]]) -> None:
        self.m, self.stores = m, stores

    def run(self, node: Node) -> bool:
        """Execute one statement; False when it cannot be done for all iterations at once."""
        m = self.m
        kind = node.kind
        if kind == "compound_statement":
            return all(self.run(k) for k in node.kids)
        if kind == "expression_statement":
            return self.store(node.kids[0])
        if kind == "declaration":
            m.exec(node)
            return all(isinstance(c.value, (Num, Unk)) for k, c in m.scope.vars.items() if k in node.text)
        if kind == "for_statement":
            return self.inner(node)
        if kind == "if_statement":
            known = truth(m.eval(node["condition"]))
            if known is None:
                return False
            chosen = node["consequence"] if known else node.get("alternative")
            return chosen is None or self.run(chosen.kids[-1] if chosen.kind == "else_clause" else chosen)
        return False

    def inner(self, node: Node) -> bool:
        """Return a loop inside: its own counter runs step by step."""
        m = self.m
        if node.get("initializer") is None:
            return False
        m.exec(node["initializer"])
        found = bounds(m, node)
        if found is None:
            return False
        name, start, stop, step = found
        if len(range(start, stop, step)) > 20_000:
            return False
        kind = m.scope.vars[name].value.t
        for i in range(start, stop, step):
            m.scope.vars[name].value = Num(i, kind)
            if not self.run(node["body"]):
                return False
        return True

    def copy(self, to: Any, source: Any, count: Any) -> bool:
        """``memcpy`` of a variable of the body into an array of bytes."""
        array = to.block if isinstance(to, Ptr) else None
        value = source.block.value if isinstance(source, Ptr) and isinstance(source.block, Cell) else None
        if (
            not isinstance(array, Array)
            or not isinstance(to.at, np.ndarray)
            or array.elem.base not in ("uint8", "int8")
        ):
            return False
        if isinstance(value, Unk):
            self.stores.append((array, to.at, value))
            return True
        if not isinstance(value, Num) or not isinstance(count, Num) or np_type(value.t).itemsize != count.v:
            return False
        whole = np.ascontiguousarray(np.broadcast_to(np.asarray(value.v, np_type(value.t)), to.at.shape))
        parts = whole.view(np.uint8).reshape(len(whole), -1)
        for k in range(parts.shape[1]):
            self.stores.append((array, to.at + k, cast(Num(parts[:, k], "uint8"), array.elem.base)))
        return True

    def store(self, node: Node) -> bool:
        """Return an assignment to an element or a variable of the body, or a push_back."""
        m = self.m
        if node.kind == "assignment_expression" and node["left"].kind == "subscript_expression":
            value = m.eval(node["right"])
            base, index = (
                m.eval(node["left"]["argument"]),
                m.eval((node["left"].get("indices") or node["left"]["index"]).kids[0]),
            )
            base = decay(base)
            array = base.array if isinstance(base, Vector) else None
            if isinstance(base, Ptr):
                place = target(base)
                if place is None or not isinstance(place[0], Array):
                    return False
                array = place[0]
                index = binary("+", index, Num(place[1], "int64")) if place[1] else index
            if not isinstance(index, Num) or array is None or not array.is_numeric or not isinstance(value, (Num, Unk)):
                return False
            self.stores.append((array, index.v, cast(value, array.elem.base)))
            return True
        if node.kind == "call_expression" and node["function"].text.split("::")[-1] == "memcpy":
            return self.copy(*(m.eval(k) for k in node["arguments"].kids))
        if node.kind == "call_expression":
            if node["function"].kind != "field_expression":
                return False
            base = m.eval(node["function"]["argument"])
            if (
                node["function"]["field"].text != "push_back"
                or not isinstance(base, Vector)
                or any(s[0] is base.array for s in self.stores)
            ):
                return False
            value = m.eval(node["arguments"].kids[0])
            if not isinstance(value, (Num, Unk)) or not numeric(base.array.elem):
                return False
            self.stores.append((base.array, None, cast(value, base.array.elem.base)))
            return True
        if node.kind == "assignment_expression" or node.kind == "update_expression":
            left = node.get("left") or node["argument"]
            m.eval(node)
            cell = m.scope.find(left.text)
            return isinstance(cell, Cell) and isinstance(cell.value, Num)
        return False


def range_loop(m: Machine, node: Node, name: str, array: Array) -> bool:
    """``for (auto& x : v) x = …`` over many elements; False when it has to be run step by step."""
    if array.n < LEAST or not array.is_numeric:
        return False
    statements = node["body"].kids if node["body"].kind == "compound_statement" else [node["body"]]
    assignment = statements[0].kids[0] if len(statements) == 1 and statements[0].kids else None
    if assignment is not None and assignment.kind == "assignment_expression" and assignment["left"].text == name:
        calls = [n["function"] for n in assignment["right"].walk() if n.kind == "call_expression"]
        if assignment["operator"].text == "=" and all(_harmless(m, c, c.text.split("::")[-1]) for c in calls):
            m.scope.vars[name] = Cell(array.get(np.arange(array.n)), array.elem, name)
            value = m.eval(assignment["right"])
            if isinstance(value, Unk):
                array.forget(value)
                return True
            if isinstance(value, Num):
                return _commit([(array, np.arange(array.n), cast(value, array.elem.base))], array.n)
    if array.n <= MOST:
        return False
    why = m.unk(f"a loop of {array.n:,} iterations", node)
    array.forget(why)
    m.extra["uncertain"](m, [node["body"]], why)
    return True


def _commit(stores: list[tuple[Array, Any, Any]], n: int) -> bool:
    for array, index, _ in stores:
        if index is not None:
            low, high = int(np.min(index)), int(np.max(index))
            if low < 0 or high >= array.n:
                return False
    for array, index, value in stores:
        if index is None:
            old = array.n
            array.resize(old + n)
            index = np.arange(old, old + n)
        if isinstance(value, Unk):
            _lose(array, index, value)
            continue
        spread = np.broadcast_to(np.asarray(value.v), (n,))
        if array.read is not None:
            array.forget(Unk("computed on the device"))
        if not isinstance(index, np.ndarray):
            array.set(int(index), Num(spread[-1].item(), array.elem.base))
            continue
        whole = array.n == n and bool(index[0] == 0 and index[-1] == n - 1)
        array.texts = array.fill = array.origin = None
        array.own()
        array.data[index] = spread
        if array.mask is not None:
            array.mask[index] = False
            if not array.mask[: array.n].any():
                array.mask = None
        if whole and not isinstance(value.v, np.ndarray):
            array.fill = value.text
    return True


def _lose(array: Array, index: Any, why: Unk) -> None:
    """Store something unknown; converted results of the device stay results."""
    low, high = int(np.min(index)), int(np.max(index)) + 1
    expr = why.expr
    while expr and expr[0] in ("cast", "float", "neg"):
        expr = expr[1]
    if why.tag == "device" and expr and expr[0] == "dev" and low == 0:
        array.texts = array.fill = array.origin = None
        array.read = expr[1]
    else:
        array.forget(why, low, high)


def _only_prints(m: Machine, body: Node) -> bool:
    """Whether a body prints and changes nothing."""
    if any(n.kind in ("assignment_expression", "update_expression", "return_statement") for n in body.walk()):
        return False
    names = [n["function"].text for n in body.walk() if n.kind == "call_expression"]
    macros = [n for n in names if n in m.macros and m.macros[n].prints]
    return bool(macros) or any(n.split("::")[-1] in ("printf", "fprintf") for n in names) or "cout" in body.text


def _print_once(m: Machine, node: Node, body: Node, n: int) -> bool:
    """Return a loop that prints many elements: its first iteration stands for all."""
    before = {id(p): p.count for r in m.reads for p in r.prints.values()}
    m.exec(body)
    for read in m.reads:
        for step in read.prints.values():
            if step.count is not None and step.count != before.get(id(step), 0):
                step.count += n - 1
    return True
