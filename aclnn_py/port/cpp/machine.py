"""The state of an evaluated sample, and the tables that the other modules put their handlers in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aclnn_py.signatures import Signature

from ..model import Call, Check, Frame, Note, Print, Program, Unknown
from .arithmetic import literal
from .syntax import Node, Source
from .types import AUTO, CType, declare, type_of
from .values import Array, Cell, Closure, Num, Struct, Unk

__all__ = ["EVAL", "EXEC", "FUNCTIONS", "LVALUE", "METHODS", "FunctionDef", "Machine", "Scope", "StructDef"]

Handler = Callable[["Machine", Node], Any]
# one entry per kind of syntax node, C++ function or method; filled by decorators in the modules that implement them
EVAL: dict[str, Handler] = {}
EXEC: dict[str, Handler] = {}
LVALUE: dict[str, Handler] = {}
FUNCTIONS: dict[str, Callable[[Machine, Node, list[Any]], Any]] = {}
METHODS: dict[type, dict[str, Callable[[Machine, Any, list[Any], Node], Any]]] = {}


class Stop(Exception):
    """The sample ends here, or the budget is used up."""


class Scope:
    """Names of one block, function call, struct or the file."""

    __slots__ = ("parent", "returns", "this", "types", "vars")

    def __init__(self, parent: Scope | None, this: Struct | None = None) -> None:
        self.parent = parent
        self.vars: dict[str, Cell] = {}
        self.types: dict[str, CType] | None = None
        self.this = this
        self.returns: CType | None = None

    def find(self, name: str) -> Cell | None:
        """Return the variable of that name, a member of ``this`` included."""
        scope: Scope | None = self
        while scope is not None:
            cell = scope.vars.get(name)
            if cell is not None:
                return cell
            if scope.this is not None and name in scope.this.fields:
                return scope.this.fields[name]
            scope = scope.parent
        return None

    def find_this(self) -> Struct | None:
        """Return the object whose method runs."""
        scope: Scope | None = self
        while scope is not None:
            if scope.this is not None:
                return scope.this
            scope = scope.parent
        return None

    def add_type(self, name: str, ctype: CType) -> None:
        """Name a type."""
        if self.types is None:
            self.types = {}
        self.types[name] = ctype

    def find_type(self, name: str) -> CType | None:
        """Return the typedef, alias or template parameter of that name."""
        scope: Scope | None = self
        while scope is not None:
            if scope.types is not None and name in scope.types:
                return scope.types[name]
            scope = scope.parent
        return None


@dataclass
class FunctionDef:
    """A function, method, constructor or lambda of the sample."""

    name: str
    node: Node
    body: Node | None
    parameters: list[Node]
    returns: Node | None = None
    templates: list[str] = field(default_factory=list)
    scope: Scope | None = None
    initialisers: Node | None = None
    declarator: Node | None = None


@dataclass
class StructDef:
    """A struct, class or union: members in order with their declarations, methods by name."""

    name: str
    scope: Scope
    union: bool = False
    members: list[tuple[str, Node, Node]] = field(default_factory=list)  # name, declaration, declarator
    methods: dict[str, list[FunctionDef]] = field(default_factory=dict)
    bases: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)


@dataclass
class Running:
    """A loop or function that is being executed."""

    kind: str
    name: str
    line: int
    index: int = 0
    values: tuple[tuple[str, str], ...] = ()
    calls: dict[tuple[str, int], int] = field(default_factory=dict)


class Machine:
    """Executes a sample from ``main``: concretely on the host, by what is copied and called on the device."""

    budget = 250_000

    def __init__(self, program: Program, signature: Callable[[str], Signature | None]) -> None:
        self.program = program
        self.signature = signature
        self.scope = self.globals = Scope(None)
        self.functions: dict[str, list[FunctionDef]] = {}
        self.structs: dict[str, StructDef] = {}
        self.macros: dict[str, Any] = {}
        self.running: list[Running] = [Running("function", "main", 0)]
        self.line = 0
        self.file = ""
        self.depth = 0
        self.vector = False  # inside a vectorised loop
        self.reads: list[Any] = []
        self.pending: list[Any] = []  # calls whose second stage has not come yet
        self.extra: dict[str, Any] = {}

    # evaluation

    def eval(self, node: Node) -> Any:
        """Return the value of an expression."""
        self.budget -= 1
        if self.budget < 0:
            raise Stop("the sample runs longer than can be followed")
        handler = EVAL.get(node.kind)
        if handler is None:
            return Unk(f"{node.kind.replace('_', ' ')} is not understood", node.line)
        return handler(self, node)

    def lvalue(self, node: Node) -> tuple[Any, Any] | None:
        """Container and index that an expression designates; None when unknown."""
        handler = LVALUE.get(node.kind)
        found = handler(self, node) if handler is not None else None
        return found if found is None or isinstance(found, tuple) else None

    def exec(self, node: Node) -> Any:
        """Execute a statement: None, or what ends the block (BREAK, CONTINUE, a Return)."""
        self.budget -= 1
        if self.budget < 0:
            raise Stop("the sample runs longer than can be followed")
        self.line = node.line
        handler = EXEC.get(node.kind)
        if handler is not None:
            return handler(self, node)
        self.eval(node)
        return None

    # types

    def type(self, node: Node) -> CType:
        """Return the type that a node names, typedefs resolved."""
        return type_of(node, self._lookup, self._constant)

    def declared(self, type_node: Node | None, declarator: Node | None) -> tuple[CType, Node | None, list[Node | None]]:
        """Type, name and extents of a declaration."""
        return declare(self.type(type_node) if type_node is not None else AUTO, declarator)

    def _lookup(self, name: str) -> CType | None:
        if name.startswith("decltype:"):
            text = name[9:].strip("()& ")
            if text.startswith("acl"):
                return CType("function", ptr=1)
            cell = self.scope.find(text)
            return cell.ctype if cell is not None and cell.ctype.base != "auto" else None
        return self.scope.find_type(name)

    def _constant(self, node: Node) -> int | None:
        value = literal(node.text) if node.kind == "number_literal" else self.eval(node)
        return int(value.v) if isinstance(value, Num) else None

    # reporting

    def unk(self, reason: str, node: Node | None = None) -> Unk:
        """Return an unknown value met at a node."""
        return Unk(reason, node.line if node is not None else self.line)

    def note(self, text: str, line: int | None = None) -> None:
        """Report a fault of the sample, once."""
        note = Note(text, self.line if line is None else line, self.file)
        if note not in self.program.notes:
            self.program.notes.append(note)

    def unknown(self, reason: str, first: int, last: int | None = None, source: str = "") -> Unknown:
        """Return an Unknown for the program."""
        return Unknown(reason, (first, last or first), self.file, source)

    def frames(self) -> tuple[Frame, ...]:
        """Return the loops and functions around this moment, main left out."""
        return tuple(Frame(r.kind, r.name, r.line, r.index, r.values) for r in self.running[2:])

    def emit(self, step: Call | Print | Check | Unknown) -> None:
        """Add a step."""
        self.program.steps.append(step)

    # functions

    def declare_variable(self, name: str, value: Any, ctype: CType) -> Cell:
        """Put a variable into the scope."""
        cell = Cell(value, ctype, name)
        if isinstance(value, Array) and not value.name:
            value.name = name
        self.scope.vars[name] = cell
        return cell

    def function(self, name: str) -> Closure | None:
        """Return a function of the sample by name."""
        found = self.functions.get(name)
        return Closure(name, list(found)) if found else None

    def source_of(self, node: Node) -> Source:
        """Return the file of a node."""
        return node.source


def evaluates(*kinds: str) -> Callable[[Handler], Handler]:
    """Register the evaluator of expression nodes."""

    def register(handler: Handler) -> Handler:
        EVAL.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def executes(*kinds: str) -> Callable[[Handler], Handler]:
    """Register the executor of statement nodes."""

    def register(handler: Handler) -> Handler:
        EXEC.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def locates(*kinds: str) -> Callable[[Handler], Handler]:
    """Register what finds the lvalue of a node."""

    def register(handler: Handler) -> Handler:
        LVALUE.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def library(*names: str) -> Callable[[Any], Any]:
    """Register a function of the C or C++ library, or of the acl API, by its name without ``std::``."""

    def register(handler: Any) -> Any:
        FUNCTIONS.update(dict.fromkeys(names, handler))
        return handler

    return register


def method(kind: type, *names: str) -> Callable[[Any], Any]:
    """Register a method of a library class."""

    def register(handler: Any) -> Any:
        METHODS.setdefault(kind, {}).update(dict.fromkeys(names, handler))
        return handler

    return register


def texts_of(nodes: Sequence[Node]) -> list[str]:
    """Return the source texts of nodes."""
    return [n.text for n in nodes]
