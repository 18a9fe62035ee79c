"""The static engine: reads a C++ sample and executes it without compiler, headers or device.

The sample runs concretely on the host side, from ``main`` and along the path on which every call succeeds; device
memory only remembers what was copied into it. What is not understood stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from aclnn_py.signatures import Signature

from .cpp import (
    acl,
    algorithms,
    atoms,
    calling,
    calls,
    containers,
    convert,
    declarations,
    functions,
    host_memory,
    library,
    loops,
    numeric,
    objects,
    places,
    results,
    statements,
    undecided,
)
from .cpp.functions import Argument
from .cpp.machine import Machine, Stop
from .cpp.macros import prepare
from .cpp.syntax import Node, Source, parse
from .cpp.types import CType
from .cpp.values import Array, Cell, Closure, Handle, Num, Ptr, Text, Unk
from .model import Call, Check, Frame, Print, Program, SampleError, Unknown

__all__ = ["trace"]

# with these, sqrt(x) of a float is computed in float without std:: too
_OVERLOADS = re.compile(r"using\s+namespace\s+std\b|using\s+std::\w+|<(tg)?math\.h>")
# these register what they implement when they are imported
_REGISTERED = (algorithms, atoms, containers, host_memory, numeric, places)
_STREAMS = (
    "cout",
    "cerr",
    "clog",
    "endl",
    "ios",
    "fixed",
    "flush",
    "left",
    "right",
    "hex",
    "dec",
    "scientific",
    "boolalpha",
)


def trace(sources: Sequence[tuple[str, str]], *, signature: Callable[[str], Signature | None]) -> Program:
    """Return what a sample does, from its source text.

    Parameters
    ----------
    sources
        ``(file name, text)`` of each file, the one with ``main`` anywhere among them.
    signature
        Gives the parameters of an operator by its name, or None; then names are taken from the sample.

    Raises
    ------
    SampleError
        The sample is not valid C++, or has no ``main``; it says where.
    ImportError
        tree-sitter is not installed (extra ``port``).

    Examples
    --------
    >>> text = "int main() { aclInit(nullptr); return 0; }"
    >>> trace([("empty.cpp", text)], signature=lambda op: None).steps
    []
    """
    program = Program(tuple(name for name, _ in sources))
    machine = _machine(program, signature)
    roots = []
    for _, text in sources if len(sources) > 1 else ():
        machine.macros.update(prepare(text).macros)
    for name, text in sources:
        source = Source(name, prepare(text, machine.macros))
        machine.macros.update(source.prepared.macros)
        roots.append((source, parse(source)))
    refusal = _refusal(" ".join(source.prepared.text for source, _ in roots))
    machine.extra["overloads"] = any(_OVERLOADS.search(text) for _, text in sources)
    try:
        for source, root in roots:
            machine.file = source.name
            declarations.collect(machine, root)
        main = machine.functions.get("main")
        if main is None:
            source = roots[-1][0]
            at = source.faults[0] if source.faults else (0, 1, 1)
            raise SampleError("not valid C++" if source.faults else "no main function", source.name, at[1], at[2])
        machine.file = main[-1].body.source.name if main[-1].body is not None else machine.file
        _run(machine, main[-1])
    except Stop as stop:
        if "exits" not in str(stop):
            program.steps.append(Unknown(str(stop), (machine.line, machine.line), machine.file))
    calls.finish(machine)
    results.finish(machine)
    _prune(program)
    faults = [(source.name, *source.faults[0]) for source, _ in roots if source.faults]
    if faults and not any(isinstance(step, Call) for step in program.steps):
        raise SampleError("not valid C++", faults[0][0], faults[0][2], faults[0][3])
    program.refused = refusal
    return program


def _refusal(text: str) -> str | None:
    if "Hccl" in text:
        return "it needs HCCL: several devices that communicate"
    return None


def _run(m: Machine, main: Any) -> None:
    arguments = [Argument(m, None, Num(1))]
    argv = Array(CType("int8", ptr=1), 1)
    argv.data[0] = Text("sample")
    arguments.append(Argument(m, None, Ptr(argv, 0, CType("int8", ptr=1))))
    functions.invoke(m, Closure("main", [main]), arguments[: len(main.parameters)], [], main.node)


def _machine(program: Program, signature: Callable[[str], Signature | None]) -> Machine:
    m = Machine(program, signature)
    m.extra.update(
        construct=objects.construct,
        operator=objects.operator,
        conversion=objects.conversion,
        poison=functions.poison,
        build=library.build,
        default=convert.default,
        array_of=convert.array_of,
        members=declarations.members,
        initialise=declarations.initialise,
        body=statements.body,
        rest=statements.macro_rest,
        fast_loop=loops.fast_loop,
        range_loop=loops.range_loop,
        uncertain=undecided.uncertain,
        api=calls.api,
        stage_two=calls.stage_two,
        macro=calls.macro,
        store=acl.store,
        read_back=results.read_back,
        compared=results.compared,
        print=results.printed,
        stream=results.stream,
        same=results.same,
        undecided=_note_condition,
        fault=_fault,
        assign_other=_assign_other,
        thread=_thread,
    )
    for name in _STREAMS:
        m.globals.vars[name] = Cell(Handle("ostream"), CType("auto"), name)
    for name in ("stderr", "stdout", "stdin"):
        m.globals.vars[name] = Cell(Handle("file"), CType("auto"), name)
    return m


def _note_condition(m: Machine, node: Node, reason: str) -> None:
    text = " ".join(node["condition"].text.split())[:60] if "condition" in node.fields else ""
    m.note(f"the condition {text} is not known ({reason})", node.line)


def _fault(m: Machine, node: Node) -> None:
    for position, line, column in node.source.faults:
        if node.start <= position <= node.end:
            raise SampleError("not valid C++", node.source.name, line, column)


def _assign_other(m: Machine, left: Node, value: Any, node: Node) -> Any:
    """Assign to something that has no place: several variables at once (``std::tie``), or unknown."""
    if left.kind == "call_expression" and left["function"].text.endswith("tie"):
        pair = m.eval(left)
        source = value.cells if hasattr(value, "cells") else []
        for i, cell in enumerate(pair.cells):
            cell.value = source[i].value if i < len(source) else Unk("std::tie", node.line)
        return pair
    m.eval(left)
    undecided.uncertain(m, [node], Unk("an assignment that is not understood", node.line))
    return value


def _thread(m: Machine, values: list[Any]) -> Any:
    """Threads run one after the other; of several that do the same, the first."""
    if m.extra.get("threads", 0) == 0 and values:
        m.extra["threads"] = 1
        node = _CALL
        node.line = m.line
        calling.call_value(m, values[0], [Argument(m, None, v) for v in values[1:]], node)
    return Handle("thread", m.line)


_CALL = Node("call_expression", 0, 0, 0, Source("", prepare("")))
_CALL.fields["function"] = Node("identifier", 0, 0, 0, _CALL.source)


def _prune(program: Program) -> None:
    """Drop the frames in which no operator is called: helpers that only print, loops that only copy."""
    used = {(f.kind, f.name, f.line) for s in program.steps if isinstance(s, Call) for f in s.frames}

    def kept(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        return tuple(f for f in frames if (f.kind, f.name, f.line) in used)

    for step in program.steps:
        if isinstance(step, (Print, Check)):
            step.frames = kept(step.frames)
