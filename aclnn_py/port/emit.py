"""Write the script of a sample: definitions, calls, prints and checks, in the order of the sample."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np

from .. import dtypes, signatures
from ..signatures import Signature
from .grouping import Group, Tree, merge, repeated, tree
from .literals import array_expression, dtype_text, literal, nested
from .model import (
    Array,
    Attribute,
    Call,
    Check,
    Note,
    Print,
    Program,
    Scalar,
    Tensor,
    Unknown,
    Value,
)
from .model import (
    Sequence as Items,
)
from .plan import Path, Plan, identifier, steps_of, used_by
from .script import WIDTH, Block, Cat, Comment, Line, Node, Seq, Slot, Statement, bare, flat, script
from .spelling import all_exact, attribute, exact, label, quoted, scalar, short
from .views import Store, define, values_of

__all__ = ["Emitted", "emit", "place_of"]

Lookup = Callable[[str], "Signature | None"]


@dataclass(frozen=True)
class Emitted:
    """A script, the arrays that it reads from a file, and what is left to do in it."""

    script: str
    data: dict[str, np.ndarray[Any, Any]]
    missing: tuple[Unknown, ...]
    guessed: tuple[str, ...] = ()  # operators whose prototype nobody knows


def place_of(program: Program, file: str, first: int, last: int, *, short: bool = True) -> str:
    """Return a place in the sample; the file is the last one where none is named."""
    name = file or (program.files[-1] if program.files else "sample")
    return f"{PurePath(name).name if short else name}:{first}" + (f"-{last}" if last > first else "")


@dataclass
class _Writer:
    program: Program
    lookup: Lookup
    plan: Plan
    store: Store = field(default_factory=Store)
    missing: list[Unknown] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    # -- statements

    def body(self, nodes: tuple[Tree, ...], path: Path) -> list[Statement]:
        found: list[Statement] = []
        for node in nodes:
            steps = steps_of(node)
            found += self._definitions(steps[0], path)
            found += self._group(node, path) if isinstance(node, Group) else self._step(node, path)
        return found

    def _definitions(self, step: int, path: Path) -> list[Statement]:
        found: list[Statement] = []
        for key, place in self.plan.places.items():
            if place.step == step and place.path == path and key not in self.done:
                found += self._define(self.plan.tensors[key])
        return found

    def _define(self, tensor: Tensor) -> list[Statement]:
        found: list[Statement] = []
        if id(tensor) in self.done:
            return found
        self.done.add(id(tensor))
        if tensor.base is not None and id(tensor.base) in self.plan.places:
            found += self._define(tensor.base)
        base = "" if tensor.base is None else self.plan.names.get(id(tensor.base), "")
        made = define(tensor, self.plan.names[id(tensor)], self.store, self._todo, base)
        return found + self._noted(made, tensor.line)

    def _group(self, group: Group, path: Path) -> list[Statement]:
        bodies = [self.body(part, (*path, (id(group), k))) for k, part in enumerate(group.iterations)]
        found: list[Statement] = []
        start = 0
        while start < len(bodies):
            end = len(bodies)
            merged: list[Statement] | None = None
            while end - start > 1 and merged is None:
                merged = merge(group.frames[start:end], bodies[start:end], self.plan.taken)
                end -= merged is None
            found += bodies[start] if merged is None else merged
            start = end
        return found

    def _step(self, number: int, path: Path) -> list[Statement]:
        step = self.program.steps[number]
        if isinstance(step, Unknown):
            return self._todo(step, "")
        if isinstance(step, Call):
            return self._noted(self._call(step, path), step.line)
        made = self._print(step, path) if isinstance(step, Print) else self._check(step, path)
        return self._noted(made, step.line)

    def _noted(self, made: list[Statement], line: int) -> list[Statement]:
        """Add the notes about a line of the sample."""
        mine = [note for note in self.notes if note.line and note.line == line]
        self.notes = [note for note in self.notes if note not in mine]
        return [*(Comment(f"{self.where(note.file, note.line, note.line)}: {note.text}") for note in mine), *made]

    def where(self, file: str, first: int, last: int) -> str:
        return place_of(self.program, file, first, last)

    def _todo(self, unknown: Unknown, what: str) -> list[Statement]:
        if unknown not in self.missing:
            self.missing.append(unknown)
        place = self.where(unknown.file, *unknown.lines)
        source = [f"    {line.strip()}" for line in unknown.source.strip().splitlines()[:3]]
        text = "\n".join([f"TODO {place}: {unknown.reason}", *source])
        message = f"{what}: {place}" if what else place
        return [Comment(text), Line(Seq("raise NotImplementedError(", (quoted(message),), ")"))]

    def ref(self, tensor: Tensor, path: Path) -> Node:
        name = self.plan.names[id(tensor)]
        return name if self.plan.places[id(tensor)].path == path else Slot(name, identifier(tensor.name))

    def _call(self, call: Call, path: Path) -> list[Statement]:
        before: list[Statement] = []
        arguments: list[Node] = []
        open_range = None
        by_name = all(name.isidentifier() for name in call.arguments)
        signature = self.lookup(call.op)
        kinds = {} if signature is None else {p.name: p.kind for p in signature.parameters}
        for name, value in call.arguments.items():
            if value is None and name == "rangeOptional" and "WithEp" in call.op:
                open_range = _whole_range(call)
                node: Node = open_range or "(-1, -1)"
            elif value is None and by_name:
                continue
            elif isinstance(value, Unknown):
                before += self._todo(value, name)
                node = "..."
            else:
                node = self._value(value, name, path, before, kinds.get(name, ""))
            if not by_name:
                arguments.append(node)
            elif keyword.iskeyword(name):
                arguments.append(Cat((f'**{{"{name}": ', node, "}")))
            else:
                arguments.append(Cat((f"{name}=", node)))
        comments: tuple[str, ...] = ()
        if open_range:
            comments = (f"the sample's range is null, which releases read differently: {open_range} is everything",)
        node = Cat((f'aclnn_py.op("{call.op}")', Seq("(", tuple(arguments), ")")))
        return [*before, Line(node, "", comments, True)]

    def _value(self, value: Value, name: str, path: Path, before: list[Statement], kind: str = "") -> Node:
        if isinstance(value, Tensor):
            return self.ref(value, path)
        if isinstance(value, Scalar):
            return scalar(value, name)
        if isinstance(value, Attribute):
            return Slot(attribute(value, kind), name)
        if isinstance(value, Array):
            return Slot(nested([literal(item) for item in value.items], (len(value.items),)), name)
        if isinstance(value, Items):
            nodes: list[Node] = []
            for item in value.items:
                if isinstance(item, Unknown):
                    before += self._todo(item, name)
                nodes.append("..." if isinstance(item, Unknown) else self._value(item, name, path, before))
            return Seq("[", tuple(nodes), "]")
        return "None"

    @cached_property
    def labels(self) -> dict[str, set[str]]:
        """Names of the tensors that each label of the sample is printed with."""
        found: dict[str, set[str]] = {}
        for step in self.program.steps:
            if isinstance(step, Print):
                found.setdefault(label(step.label), set()).add(self.plan.names[id(step.tensor)])
        return found

    def _print(self, step: Print, path: Path) -> list[Statement]:
        text, name = label(step.label), self.plan.names[id(step.tensor)]
        text = text if text and self.labels[text] == {name} else name
        node = _first(self.ref(step.tensor, path), step.tensor, step.count)
        return [Line(Seq("print(", (Slot(quoted(text + ":"), "label"), node), ")"))]

    def _check(self, step: Check, path: Path) -> list[Statement]:
        tensor, expected = step.tensor, step.expected
        name = self.plan.names[id(tensor)]
        if isinstance(expected, Unknown):
            return [
                *self._todo(expected, f"expected {name}"),
                Line(Seq("np.testing.assert_array_equal(", (name, "..."), ")")),
            ]
        size = int(np.prod(tensor.shape, dtype=np.int64))
        values, _ = values_of(expected, min(size, expected.values.size))
        own = dtype_text(tensor.dtype) == tensor.dtype  # of ml_dtypes: NumPy tells no NaN there
        kind = np.dtype(np.float32) if own else dtypes.parse(tensor.dtype)
        got = _first(self.ref(tensor, path), tensor, values.size if values.size < size else None)
        got = Cat((got, ".astype(np.float32)")) if own and np.isnan(values.astype(kind)).any() else got
        shape = tensor.shape if values.size == size else (values.size,)
        wanted = values.astype(kind)
        found = array_expression(wanted, shape, dtype_text(kind.name), expected.text, f"expected_{name}")
        node = found.node or self.store.keep(wanted, shape, kind.name, f"{name}_expected")
        loose = bool(step.rtol or step.atol)
        if isinstance(node, Seq) and node.open == "np.array(" and (loose or all_exact(node.items[0], wanted)):
            node = Slot(bare(node.items[0]), f"expected_{name}")  # NumPy makes an array of it
        if found.fill is not None and (loose or exact(found.fill, wanted[0])):
            node = Slot(found.fill, f"expected_{name}")
        if not loose:
            return [Line(Seq("np.testing.assert_array_equal(", (got, node), ")"))]
        bounds = (f"rtol={short(step.rtol)}", *([f"atol={short(step.atol)}"] if step.atol else []))
        return [Line(Seq("np.testing.assert_allclose(", (got, node, *bounds), ")"))]

    # -- what the sample leaves unread

    def unread(self) -> list[Statement]:
        read = {id(step.tensor) for step in self.program.steps if isinstance(step, (Print, Check))}
        calls = [step for step in self.program.steps if isinstance(step, Call)]
        found: dict[str, None] = {}
        for number, call in enumerate(calls):
            signature = self.lookup(call.op)
            later = {id(tensor) for other in calls[number + 1 :] for tensor in used_by(other)}
            for output in () if signature is None else signature.outputs:
                tensor = call.arguments.get(output)
                if isinstance(tensor, Tensor) and id(tensor) not in read | later and tensor.shape:
                    found[self.plan.names[id(tensor)]] = None
        if not found:
            return []
        return [Comment(f"The sample does not read back {', '.join(found)}.")]


def _first(name: Node, tensor: Tensor, count: int | None) -> Node:
    size = int(np.prod(tensor.shape, dtype=np.int64))
    if count is None or count >= size:
        return name
    return Cat((name, f"[:{count}]" if len(tensor.shape) == 1 else f".ravel()[:{count}]"))


def _whole_range(call: Call) -> str | None:
    """Return the range that owns everything: N is the number of (token, slot) pairs."""
    index = call.arguments.get("sortedIndices") or call.arguments.get("indices")
    return f"(0, {int(np.prod(index.shape, dtype=np.int64))})" if isinstance(index, Tensor) else None


def _paragraphs(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Part blocks, and calls from the definitions that follow them."""
    found: list[list[Statement]] = [[]]
    acted = False
    for statement in statements:
        block = isinstance(statement, Block)
        defines = isinstance(statement, Comment) or (
            isinstance(statement, Line) and (bool(statement.target) or flat(statement.node).startswith("raise "))
        )
        before = bool(found[-1]) and isinstance(found[-1][-1], Block)
        if found[-1] and (block or before or (acted and defines)):
            if block and isinstance(found[-1][-1], Comment):
                found.append([found[-1].pop()])  # a comment on the loop
            else:
                found.append([])
        found[-1].append(statement)
        acted = not defines
    return [part for part in found if part]


def emit(
    program: Program, *, lookup: Lookup = signatures.find, data_file: str = "data.npz", title: str = ""
) -> Emitted:
    """Write the script of a program.

    Parameters
    ----------
    program
        What an engine found.
    lookup
        Signatures by operator name; tells which tensors are outputs.
    data_file
        Name of the file, beside the script, for arrays that are too long to write out.
    title
        Where the sample comes from; default: its file names.

    Examples
    --------
    >>> x = Tensor("x", (2,), "float32", None)
    >>> call = Call("aclnnMuls", {"self": x, "other": Scalar("other", "2.0", 2.0, "float64"), "out": x})
    >>> print(emit(Program(("muls.cpp",), [call, Print(x)])).script, end="")
    # Ported from muls.cpp by aclnn-py.
    import numpy as np
    <BLANKLINE>
    import aclnn_py
    <BLANKLINE>
    x = np.zeros(2, np.float32)
    aclnn_py.op("aclnnMuls")(self=x, other=2.0, out=x)
    print("x:", x)
    """
    steps = repeated(program.steps)
    trees = tree(steps)
    writer = _Writer(replace(program, steps=steps), lookup, Plan(steps, trees), notes=list(program.notes))
    body = [*writer.body(trees, ()), *writer.unread()]
    source = title or ", ".join(PurePath(name).name for name in program.files) or "a sample"
    head: list[Statement] = [Comment(f"Ported from {source} by aclnn-py.")]
    if program.refused:
        head = [Comment(f"Not ported from {source}: {program.refused}")]
    for note in writer.notes:
        place = f"{writer.where(note.file, note.line, note.line)}: " if note.line else ""
        head.append(Comment(place + note.text))
    declared, guessed = _declarations(program, lookup)
    main = _paragraphs([*declared, *_loading(writer.store, data_file), *body])
    text = script(main)
    used = sorted(set(re.findall(r"\b(bfloat16|float8_\w+)\b", text)) & set(_ML_TYPES))
    imports: list[list[Statement]] = [[Line("from pathlib import Path")]] if writer.store.arrays else []
    third: list[Statement] = [Line("import numpy as np")] if re.search(r"\bnp\.", text) else []
    third += [Line(f"from ml_dtypes import {', '.join(used)}")] if used else []
    imports += [third] if third else []
    imports += [[Line("import aclnn_py")]] if "aclnn_py." in text else []
    imports = imports or [[]]
    text = script([[*head, *imports[0]], *imports[1:], *main])
    if program.refused:
        text = "".join(line if line.startswith("#") else f"# {line}".rstrip() + "\n" for line in text.splitlines(True))
    return Emitted(text, writer.store.arrays, tuple(writer.missing), guessed)


_ML_TYPES = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu")


def _declarations(program: Program, lookup: Lookup) -> tuple[list[Statement], tuple[str, ...]]:
    """Declare the operators that the package does not know by itself; also return those that had to be guessed."""
    made: dict[str, Statement] = {}
    guessed: list[str] = []
    for step in program.steps:
        if not isinstance(step, Call) or step.op in made or signatures.builtin(step.op) is not None:
            continue
        signature = lookup(step.op)
        prototype = (str(signature) if signature is not None else step.declaration) or ""
        if not prototype:
            continue
        comments: tuple[str, ...] = ()
        if signature is None:
            guessed.append(step.op)
            comments = ("Guessed from the sample: CANN's header has the true types and names.",)
        start, rest = " ".join(prototype.split()).rstrip("; ").split("(", 1)
        text = textwrap.fill(rest, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
        text = f'aclnn_py.declare("""\n{start}(\n{textwrap.indent(text, "    ")};\n""")'
        made[step.op] = Line(text, "", comments, True)
    return list(made.values()), tuple(guessed)


def _loading(store: Store, data_file: str) -> list[Statement]:
    if not store.arrays:
        return []
    path = Seq("Path(__file__).with_name(", (f'"{data_file}"',), ")")
    return [Line(Seq("np.load(", (path,), ")"), "data")]
