"""Statements: blocks, branches, loops, and what stays unknown when a condition is not known."""

from __future__ import annotations

from typing import Any

from .convert import convert, copy_in, map_key
from .declarations import bind_structure, branch, define_type
from .functions import Alias
from .machine import FunctionDef, Machine, Running, Scope, Stop, executes
from .syntax import Node, fragment
from .types import CType
from .undecided import uncertain, undecided
from .values import Array, Braces, Cell, Map, Num, Pair, Smart, Text, Unk, Vector, truth

__all__ = ["BREAK", "CONTINUE", "Return", "body", "macro_rest"]


LOOP_BUDGET = 30_000  # steps that one loop may take


class Return:
    """A return statement's value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Goto:
    """A jump to a label of the function."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label


BREAK, CONTINUE = object(), object()


def body(m: Machine, d: FunctionDef, scope: Scope) -> Any:
    """Run a function's body in its scope: the returned value."""
    if d.body is None:
        return m.unk(f"{d.name} has no body")
    faults = d.body.source.faults
    if faults:
        m.extra["fault"](m, d.body)
    result = _run_block(m, d.body.kids) if d.body.kind == "compound_statement" else m.exec(d.body)
    jumps = 0
    while isinstance(result, Goto) and jumps < 4:
        jumps += 1
        rest = _after_label(d.body, result.label)
        if rest is None:
            return m.unk(f"goto {result.label} is not followed")
        result = _run_block(m, rest)
    if not isinstance(result, Return):
        return None
    value = result.value
    returns = scope.returns
    if returns is not None and returns.base != "auto" and not returns.ref:
        value = copy_in(m, value, returns)
    elif isinstance(value, Braces):
        value = convert(m, value, CType("auto"))
    return value


def _after_label(node: Node, label: str) -> list[Node] | None:
    for i, kid in enumerate(node.kids):
        if kid.kind == "labeled_statement" and kid["label"].text == label:
            return [kid, *node.kids[i + 1 :]]
    return None


def _run_block(m: Machine, nodes: list[Node]) -> Any:
    for node in nodes:
        result = m.exec(node)
        if result is not None:
            return result
    return None


@executes("compound_statement")
def _block(m: Machine, node: Node) -> Any:
    outer, m.scope = m.scope, Scope(m.scope)
    try:
        return _run_block(m, node.kids)
    finally:
        m.scope = outer


@executes("expression_statement")
def _expression(m: Machine, node: Node) -> Any:
    if node.kids:
        result = m.eval(node.kids[0])
        if isinstance(result, (Return, Goto)) or result is BREAK or result is CONTINUE:
            return result
    return None


@executes("return_statement")
def _return(m: Machine, node: Node) -> Any:
    return Return(m.eval(node.kids[0]) if node.kids else None)


@executes("break_statement")
def _break(m: Machine, node: Node) -> Any:
    return BREAK


@executes("continue_statement")
def _continue(m: Machine, node: Node) -> Any:
    return CONTINUE


@executes("goto_statement")
def _goto(m: Machine, node: Node) -> Any:
    return Goto(node["label"].text)


@executes("throw_statement")
def _throw(m: Machine, node: Node) -> Any:
    raise Stop("the sample throws an exception here")


@executes("labeled_statement")
def _labeled(m: Machine, node: Node) -> Any:
    return _run_block(m, [k for k in node.kids if k.kind != "statement_identifier"])


@executes("try_statement")
def _try(m: Machine, node: Node) -> Any:
    return m.exec(node["body"])


@executes("alias_declaration")
def _alias(m: Machine, node: Node) -> Any:
    m.scope.add_type(node["name"].text, m.type(node["type"]))


@executes("type_definition")
def _typedef(m: Machine, node: Node) -> Any:
    if "body" in node["type"].fields:
        define_type(m, node["type"], [])
    for declarator in node.all("declarator"):
        ctype, name, _ = m.declared(node["type"], declarator)
        if name is not None:
            m.scope.add_type(name.text, ctype)


@executes("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
def _type(m: Machine, node: Node) -> Any:
    define_type(m, node, [])


@executes("preproc_ifdef", "preproc_if", "preproc_elif", "preproc_else")
def _conditional(m: Machine, node: Node) -> Any:
    return _run_block(m, branch(m, node))


@executes("using_declaration", "static_assert_declaration", "preproc_def", "preproc_call", "preproc_include",
          "preproc_function_def", "empty_declaration", "attribute_statement", "comment", "friend_declaration",
          "namespace_alias_definition", ";")  # fmt: skip
def _nothing(m: Machine, node: Node) -> Any:
    return None


@executes("if_statement")
def _if(m: Machine, node: Node) -> Any:
    outer, m.scope = m.scope, Scope(m.scope)
    try:
        clause = node["condition"]
        initial = clause.get("initializer")
        if initial is not None:
            m.exec(initial.kids[0] if initial.kind == "init_statement" else initial)
        condition = clause.get("value") or clause.kids[-1]
        if condition.kind == "declaration":
            m.exec(condition)
            value = list(m.scope.vars.values())[-1].value
        else:
            value = m.eval(condition)
        known = truth(value)
        if isinstance(value, Unk) and value.tag == "workspace":
            known = not condition.text.replace(" ", "").endswith(("==0", "<=0", "==0u"))
        then, otherwise = node["consequence"], node.get("alternative")
        if otherwise is not None and otherwise.kind == "else_clause":
            otherwise = otherwise.kids[-1]
        if known is None:
            return undecided(m, value, then, otherwise, node)
        chosen = then if known else otherwise
        return m.exec(chosen) if chosen is not None else None
    finally:
        m.scope = outer


# loops


@executes("for_statement")
def _for(m: Machine, node: Node) -> Any:
    outer, m.scope = m.scope, Scope(m.scope)
    try:
        initial = node.get("initializer")
        if initial is not None:
            m.exec(initial)
        if m.extra["fast_loop"](m, node):
            return None
        return _loop(m, node, node.get("condition"), node.get("update"), node["body"], False)
    finally:
        m.scope = outer


@executes("while_statement")
def _while(m: Machine, node: Node) -> Any:
    return _loop(m, node, node["condition"], None, node["body"], False)


@executes("do_statement")
def _do(m: Machine, node: Node) -> Any:
    return _loop(m, node, node["condition"], None, node["body"], True)


def _loop(m: Machine, node: Node, condition: Node | None, update: Node | None, inner: Node, first: bool) -> Any:
    name = next(iter(m.scope.vars), "") if node.kind == "for_statement" else ""
    state = Running("loop", name, node.line)
    cells = list(m.scope.vars.items()) if node.kind == "for_statement" else []
    least = m.budget - min(LOOP_BUDGET, m.budget // 4)
    steps = len(m.program.steps)
    m.running.append(state)
    try:
        while True:
            if not first and condition is not None:
                value = m.eval(condition)
                known = truth(value)
                if isinstance(value, Unk) and value.tag == "workspace":
                    known = False
                if known is None:
                    reason = value.reason if isinstance(value, Unk) else "a condition that is not known"
                    m.extra["undecided"](m, node, reason)
                    uncertain(m, [inner, *([update] if update is not None else [])], Unk(reason, node.line))
                    return None
                if not known:
                    return None
            if len(m.program.steps) > steps:  # a loop over cases may take long
                steps = len(m.program.steps)
                least = m.budget - min(LOOP_BUDGET, m.budget // 4)
            if m.budget < least and (state.index > 8 or m.budget < LOOP_BUDGET):
                uncertain(m, [inner], Unk("a loop that is too long to follow", node.line))
                return None
            first = False
            state.values = tuple((k, str(c.value.v)) for k, c in cells if isinstance(c.value, Num))
            result = m.exec(inner)
            if result is BREAK:
                return None
            if result is not None and result is not CONTINUE:
                return result
            if update is not None:
                m.eval(update)
            state.index += 1
            state.calls.clear()
    finally:
        m.running.pop()


@executes("for_range_loop")
def _range(m: Machine, node: Node) -> Any:
    outer, m.scope = m.scope, Scope(m.scope)
    try:
        source = m.eval(node["right"])
        ctype, name_node, _ = m.declared(node.get("type"), node.get("declarator"))
        binding = next((n for n in node["declarator"].walk() if n.kind == "structured_binding_declarator"), None)
        state = Running("loop", name_node.text if name_node is not None else "", node.line)
        array = source.array if isinstance(source, Vector) else source
        if isinstance(array, Array) and name_node is not None and m.extra["range_loop"](m, node, name_node.text, array):
            return None
        m.running.append(state)
        try:
            cells = _cells(m, source)
            if cells is None:
                reason = source.reason if isinstance(source, Unk) else "a range that is not known"
                uncertain(m, [node["body"]], Unk(reason, node.line))
                return None
            for cell in cells:
                if binding is not None:
                    bind_structure(m, binding, cell.get())
                elif name_node is not None:
                    name = name_node.text
                    if not ctype.ref:
                        value = copy_in(m, cell.get(), ctype)
                        cell = Cell(
                            value, CType(value.t) if isinstance(value, Num) and ctype.base == "auto" else ctype, name
                        )
                    m.scope.vars[name] = cell
                    value = cell.get()
                    state.values = ((name, value.text or str(value.v)),) if isinstance(value, Num) else ()
                result = m.exec(node["body"])
                if result is BREAK:
                    break
                if result is not None and result is not CONTINUE:
                    return result
                state.index += 1
                state.calls.clear()
        finally:
            m.running.pop()
    finally:
        m.scope = outer
    return None


def _cells(m: Machine, source: Any) -> list[Cell] | None:
    """Return the elements of a range, as cells."""
    if isinstance(source, Smart):
        source = source.value
    if isinstance(source, Braces):
        source = convert(m, source, CType("auto"))
    if isinstance(source, Vector):
        source = source.array
    if isinstance(source, Array):
        return [Alias(source, i) for i in range(source.n)]
    if isinstance(source, Map):
        return [Cell(Pair([_key(k), c.value]), CType("auto")) for k, c in source.items.items()]
    if isinstance(source, Text):
        return [Cell(Num(ord(c) & 127, "int8"), CType("int8")) for c in source.value]
    return None


def _key(key: Any) -> Any:
    return Text(key) if isinstance(key, str) else Num(key, "int64") if isinstance(key, int) else key


@executes("switch_statement")
def _switch(m: Machine, node: Node) -> Any:
    value = m.eval(node["condition"])
    cases = [k for k in node["body"].kids if k.kind == "case_statement"]
    if not isinstance(value, Num):
        uncertain(m, cases, value if isinstance(value, Unk) else m.unk("a switch", node))
        return None
    start = None
    for i, case in enumerate(cases):
        label = case.get("value")
        if label is None:
            start = i if start is None else start
            continue
        found = m.eval(label)
        if isinstance(found, Num) and map_key(found) == value.v:
            start = i
            break
    outer, m.scope = m.scope, Scope(m.scope)
    try:
        for case in cases[start:] if start is not None else []:
            for kid in case.kids:
                if kid is case.get("value"):
                    continue
                result = m.exec(kid)
                if result is BREAK:
                    return None
                if result is not None:
                    return result
    finally:
        m.scope = outer
    return None


def macro_rest(m: Machine, text: str, node: Node) -> Any:
    """Execute what a check macro does when its condition fails."""
    return _run_block(m, fragment(text, node.line, m.file).kids)
