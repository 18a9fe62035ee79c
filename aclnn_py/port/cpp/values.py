"""What an evaluated C++ expression can be. What is not understood is an ``Unk``, and stays one through arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn_py import dtypes

from .types import CType, numeric

__all__ = [
    "NULL",
    "Array",
    "Cell",
    "Closure",
    "Handle",
    "Null",
    "Num",
    "Ptr",
    "Smart",
    "Struct",
    "Text",
    "Unk",
    "Vector",
]

V = Any  # any of the classes below


def np_type(name: str) -> np.dtype[Any]:
    """NumPy dtype of a numeric type's name."""
    return dtypes.bfloat16() if name == "bfloat16" else np.dtype(name)


class Num:
    """A number of C type ``t``; ``text`` is how the source wrote it. ``v`` is an array while a loop is vectorised."""

    __slots__ = ("t", "text", "v")

    def __init__(self, v: Any, t: str = "int32", text: str | None = None) -> None:
        self.v = v
        self.t = t
        self.text = text


class Unk:
    """An unknown value. ``tag``: "" in general, "device" read back from a tensor, "workspace" the workspace size."""

    __slots__ = ("expr", "line", "reason", "tag")

    def __init__(self, reason: str, line: int = 0, tag: str = "", expr: tuple[Any, ...] = ()) -> None:
        self.reason = reason
        self.line = line
        self.tag = tag
        self.expr = expr


class Null:
    """A null pointer."""


NULL = Null()


class Cell:
    """A variable: one value of a declared type (``auto`` takes any)."""

    __slots__ = ("ctype", "name", "value")
    n = 1

    def __init__(self, value: V, ctype: CType, name: str = "") -> None:
        self.value = value
        self.ctype = ctype
        self.name = name

    def get(self, _index: Any = 0) -> V:
        """Return the value."""
        return self.value

    def set(self, _index: Any, value: V) -> None:
        """Store a value that has been converted to the declared type."""
        self.value = value


class Array:
    """Contiguous elements of one type: a NumPy buffer for numbers (with a mask of unknown ones), else a list."""

    __slots__ = ("base", "data", "elem", "fill", "mask", "n", "name", "origin", "raw", "read", "texts", "why")

    def __init__(self, elem: CType, n: int = 0, name: str = "") -> None:
        self.elem = elem
        self.n = n
        self.name = name
        kind = numeric(elem)
        self.data: Any = np.zeros(n, np_type(kind)) if kind else [None] * n
        self.mask: np.ndarray[Any, Any] | None = None
        self.why: Unk | None = None
        self.texts: list[str | None] | None = None  # literals as written, one per element
        self.fill: str | None = None  # the literal that all elements were filled with
        self.read: Any = None  # where the elements were read back from
        self.origin: str | None = None  # a NumPy expression of all elements, when a loop made them
        self.base: Array | None = None  # the array whose bytes these elements are
        self.raw = False  # memory without a type yet (malloc)

    @property
    def ctype(self) -> CType:
        """The element type (as a container of lvalues)."""
        return self.elem

    @property
    def is_numeric(self) -> bool:
        """Whether the elements lie in a NumPy buffer."""
        return not isinstance(self.data, list)

    def uniform(self, value: Any) -> None:
        """Fill with one number; many elements share it until one of them changes."""
        if self.n > 1 << 20:
            self.data = np.broadcast_to(np.array(value, self.data.dtype), (self.n,))
        else:
            self.data[: self.n] = value

    def own(self) -> None:
        """Before elements change: give each its own place."""
        if self.is_numeric and not self.data.flags.writeable:
            self.data = self.data.copy()

    def items(self) -> np.ndarray[Any, Any]:
        """Return the numbers in use."""
        return self.data[: self.n]  # type: ignore[no-any-return]

    def forget(self, why: Unk, start: int = 0, stop: int | None = None) -> None:
        """Make elements unknown."""
        if self.base is not None:
            self.base.forget(why)
        self.texts = self.fill = self.origin = None
        if not self.is_numeric:
            for i in range(start, self.n if stop is None else min(stop, self.n)):
                self.data[i] = why
            return
        if self.mask is None:
            self.mask = np.zeros(len(self.data), bool)
        if self.read is not None:
            self.read, start, stop = None, 0, None
        self.mask[start : self.n if stop is None else stop] = True
        self.why = why

    def get(self, index: Any) -> V:
        """Return an element; outside the array it is unknown."""
        if isinstance(index, np.ndarray):
            return self._gather(index)
        if not 0 <= index < self.n:
            return Unk(f"element {index} of {self.n} does not exist")
        if not self.is_numeric:
            value = self.data[index]
            return Unk("not initialised") if value is None else value
        if self.read is not None and self.read.low <= index < self.read.high:
            return Unk("computed on the device", 0, "device", ("dev", self.read, index))
        if self.mask is not None and self.mask[index]:
            return self.why
        text = self.texts[index] if self.texts is not None else self.fill
        return Num(self.data[index].item(), self.elem.base, text)

    def _gather(self, index: np.ndarray[Any, Any]) -> V:
        if self.is_numeric and self.read is not None:
            return Unk("computed on the device", 0, "device", ("dev", self.read, index))
        if not self.is_numeric or self.mask is not None:
            return self.why or Unk("not known for all iterations")
        if index.size and (int(index.min()) < 0 or int(index.max()) >= self.n):
            return Unk("an index outside the array")
        return Num(self.data[index], self.elem.base)

    def set(self, index: Any, value: V) -> None:
        """Store an element that has been converted to the element type; outside the array nothing happens."""
        self.origin = None
        self.own()
        if isinstance(index, np.ndarray):
            self.texts = self.fill = None
            self.data[index] = value.v
            return
        if not 0 <= index < self.n:
            return
        if not self.is_numeric:
            self.data[index] = value
            return
        if self.read is not None:
            self.forget(Unk("computed on the device"))
        if isinstance(value, Num):
            self.data[index] = value.v
            if self.mask is not None:
                self.mask[index] = False
                if not self.mask.any():
                    self.mask = None
            if self.texts is not None:
                self.texts[index] = value.text
            elif self.fill is not None and value.text != self.fill:
                self.fill = None
        else:
            self.forget(value if isinstance(value, Unk) else Unk("not a number"), index, index + 1)

    def resize(self, n: int) -> None:
        """Change the length; new numbers are zero, as in a vector."""
        self.own()
        if not self.is_numeric:
            self.data = (self.data + [None] * n)[:n] if n > self.n else self.data[:n]
        elif n > len(self.data):
            grown = np.zeros(max(n, 2 * len(self.data)), self.data.dtype)
            grown[: self.n] = self.data[: self.n]
            self.data = grown
            if self.mask is not None:
                self.mask = np.concatenate([self.mask, np.zeros(len(grown) - len(self.mask), bool)])
        else:
            self.data[self.n : n] = 0
        if n != self.n:
            self.origin = self.fill = None
        if self.texts is not None:
            self.texts = (self.texts + [None] * n)[:n] if n <= 100_000 else None
        self.n = n

    def append(self, value: V) -> None:
        """Add an element at the end."""
        if self.n == 0 and self.is_numeric:
            self.texts = []
        self.resize(self.n + 1)
        self.set(self.n - 1, value)

    def copy(self) -> Array:
        """Return a copy of the elements in use (nested vectors and structs too)."""
        new = Array.__new__(Array)
        new.elem, new.n, new.name = self.elem, self.n, self.name
        if self.is_numeric and not self.data.flags.writeable:
            new.data = self.data[: self.n]
        else:
            new.data = self.data[: self.n].copy() if self.is_numeric else [duplicate(v) for v in self.data[: self.n]]
        new.mask = None if self.mask is None else self.mask[: self.n].copy()
        new.why, new.fill, new.read, new.origin = self.why, self.fill, self.read, self.origin
        new.texts = None if self.texts is None else list(self.texts)
        new.base, new.raw = None, self.raw
        return new

    def seen_as(self, elem: CType) -> Array:
        """Return the same memory as elements of another numeric type; untyped memory takes that type."""
        kind = numeric(elem)
        if kind is None or not self.is_numeric or (kind == self.elem.base and not self.raw):
            return self
        if self.raw and kind != "uint8":
            size = self.n // np_type(kind).itemsize
            self.elem, self.n, self.raw = elem, size, False
            self.data = np.zeros(size, np_type(kind))
            self.mask = np.ones(size, bool) if self.mask is not None else None
            return self
        self.own()
        view = Array(elem)
        usable = self.data[: self.n].nbytes // np_type(kind).itemsize
        flat = self.data[: self.n].view(np.uint8)[: usable * np_type(kind).itemsize]
        view.data, view.n, view.base, view.name = flat.view(np_type(kind)), usable, self, self.name
        if self.mask is not None or self.read is not None:
            view.mask, view.why = np.ones(usable, bool), self.why or Unk("computed on the device")
            view.data = view.data.copy()
        self.texts = self.fill = self.origin = None
        return view


class Vector:
    """A std::vector, std::array or initialiser list (``elem`` auto until it is known)."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


class Braces:
    """A brace initialiser that has not met its type yet."""

    __slots__ = ("items", "line")

    def __init__(self, items: list[V], line: int) -> None:
        self.items = items
        self.line = line


class Text:
    """A std::string (changeable), or a string literal."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value


class Ptr:
    """A pointer into a container: ``at`` counts elements, or bytes in device memory. ``ctype`` is what it points to."""

    __slots__ = ("at", "block", "ctype")

    def __init__(self, block: Any, at: Any = 0, ctype: CType | None = None) -> None:
        self.block = block
        self.at = at
        self.ctype = ctype


class Struct:
    """An instance of a struct or class."""

    __slots__ = ("fields", "kind", "last", "union")

    def __init__(self, kind: str, union: bool = False) -> None:
        self.kind = kind
        self.fields: dict[str, Cell] = {}
        self.union = union
        self.last: str | None = None  # the field of a union that was written last


class Pair:
    """A std::pair, tuple or the like: cells in order."""

    __slots__ = ("cells",)

    def __init__(self, values: list[V]) -> None:
        self.cells = [Cell(v, CType("auto")) for v in values]


class Map:
    """A std::map, unordered_map or set by Python keys."""

    __slots__ = ("elem", "items")

    def __init__(self, elem: CType) -> None:
        self.items: dict[Any, Cell] = {}
        self.elem = elem


class Smart:
    """A unique_ptr or shared_ptr; deleters only free, so they are not run."""

    __slots__ = ("ctype", "value")

    def __init__(self, value: V, ctype: CType) -> None:
        self.value = value
        self.ctype = ctype


class Closure:
    """A function: candidates for overloads, the scope a lambda captured, the object of a bound method."""

    __slots__ = ("candidates", "name", "scope", "this")

    def __init__(self, name: str, candidates: list[Any], scope: Any = None, this: Struct | None = None) -> None:
        self.name = name
        self.candidates = candidates
        self.scope = scope
        self.this = this


class Handle:
    """An opaque object: a tensor, scalar, array, list, executor, stream, file. ``data`` is what made it."""

    __slots__ = ("data", "kind", "line")

    def __init__(self, kind: str, line: int = 0, **data: Any) -> None:
        self.kind = kind
        self.line = line
        self.data = data


def duplicate(value: V) -> V:
    """Return a copy of what C++ copies by value."""
    if isinstance(value, Vector):
        return Vector(value.array.copy())
    if isinstance(value, Text):
        return Text(value.value)
    if isinstance(value, Struct):
        new = Struct(value.kind, value.union)
        new.last = value.last
        new.fields = {k: Cell(duplicate(c.value), c.ctype, c.name) for k, c in value.fields.items()}
        return new
    if isinstance(value, Pair):
        return Pair([duplicate(c.value) for c in value.cells])
    if isinstance(value, Map):
        copy = Map(value.elem)
        copy.items = {k: Cell(duplicate(c.value), c.ctype) for k, c in value.items.items()}
        return copy
    if isinstance(value, Array):  # an array inside a struct
        return value.copy()
    return value


def truth(value: V) -> bool | None:
    """Whether a condition holds; None when that is unknown. A workspace of unknown size counts as needed."""
    if isinstance(value, Num):
        return None if isinstance(value.v, np.ndarray) else bool(value.v)
    if isinstance(value, Unk):
        return True if value.tag == "workspace" else None
    if isinstance(value, Smart):
        return truth(value.value)
    if isinstance(value, Cell):
        return truth(value.value)
    if isinstance(value, Handle) and "good" in value.data:
        return bool(value.data["good"])
    return not isinstance(value, Null)
