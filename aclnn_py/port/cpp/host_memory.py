"""Host memory: copies, fills and allocations, byte by byte where types differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import binary, bit_cast, cast
from .convert import decay, default, string_of, target
from .functions import poison
from .library import MAX_ELEMENTS, slice_of
from .machine import Machine, library
from .syntax import Node
from .types import CType, numeric
from .values import (
    Array,
    Cell,
    Num,
    Ptr,
    Text,
    Unk,
    np_type,
)

__all__ = ["copy_memory", "raw_memory"]


def copy_memory(m: Machine, to: Any, source: Any, count: Any, line: int) -> None:
    """Memcpy between host objects; bytes that cannot be followed become unknown."""
    to, source = decay(to), decay(source)
    why = Unk("a copy of bytes", line)
    if isinstance(source, Unk):
        why = source
    if isinstance(to, Ptr) and isinstance(to.block, Cell) and isinstance(source, Ptr):
        kind, place = numeric(to.block.ctype), target(source)
        if kind and place is not None and isinstance(count, Num):
            value = place[0].get(place[1])
            size = np_type(kind).itemsize
            same = isinstance(value, Num) and np_type(value.t).itemsize >= size
            to.block.set(
                0, bit_cast(value, kind) if int(count.v) == size and same else value if isinstance(value, Unk) else why
            )
            return
    if not isinstance(to, Ptr) or not isinstance(to.block, Array):
        poison(m, to, why)
        return
    block = to.block
    if isinstance(source, Text) and block.is_numeric and isinstance(count, Num):
        raw = source.value.encode() + b"\0"
        if int(count.v) > 1 << 19 and to.at + len(raw) > block.n:
            m.note(f"a string of {len(raw)} bytes is copied into an array of {block.n}", line)
            block.resize(to.at + len(raw))
        for i in range(min(int(count.v), len(raw))):
            block.set(to.at + i, Num(raw[i] - 256 if raw[i] > 127 else raw[i], "int8"))
        return
    place = target(source)
    if not isinstance(count, Num) or place is None or not block.is_numeric:
        poison(m, to, why)
        return
    n = int(count.v)
    origin, at = place
    size = block.data.itemsize
    if isinstance(origin, Array) and origin.is_numeric and origin.elem.base == block.elem.base:
        part = slice_of(origin, at, min(at + n // size, origin.n))
        _paste(block, to.at, part)
    elif (
        isinstance(origin, Array)
        and origin.is_numeric
        and origin.mask is None
        and origin.read is None
        and n % size == 0
    ):
        raw_bytes = origin.items()[at:].tobytes()[:n]
        part = Array(block.elem, len(raw_bytes) // size)
        part.data[:] = np.frombuffer(raw_bytes[: part.n * size], block.data.dtype)
        _paste(block, to.at, part)
    elif isinstance(origin, Cell) and isinstance(origin.value, Num) and n == size:
        block.set(to.at, bit_cast(origin.value, block.elem.base))
    elif (
        isinstance(origin, Cell)
        and isinstance(origin.value, Num)
        and size == 1
        and n <= np_type(origin.value.t).itemsize
    ):
        raw = np.array([origin.value.v], np_type(origin.value.t)).tobytes()[:n]
        for i, byte in enumerate(raw):
            block.set(to.at + i, cast(Num(byte, "uint8"), block.elem.base))
    else:
        value = origin.value if isinstance(origin, Cell) else None
        poison(m, to, value if isinstance(value, Unk) else why)


def _paste(block: Array, at: int, part: Array) -> None:
    block.own()
    high = min(at + part.n, block.n)
    n = max(high - at, 0)
    if at == 0 and n == block.n:
        block.texts, block.fill, block.read, block.origin = part.texts, part.fill, part.read, part.origin
        block.mask = None if part.mask is None else part.mask[:n].copy()
        block.why = part.why
    else:
        block.texts = block.fill = block.origin = None
        if part.read is not None or part.mask is not None:
            block.forget(part.why or Unk("computed on the device"), at, high)
        elif block.mask is not None:
            block.mask[at:high] = False
    block.data[at:high] = part.data[:n]


@library("memcpy", "memmove", "strcpy", "strncpy")
def _memcpy(m: Machine, node: Node, values: list[Any]) -> Any:
    count: Any = values[2] if len(values) > 2 else Num(1 << 20)
    if "str" in node["function"].text:
        text = string_of(values[1])
        values[1] = Text(text) if text is not None else m.unk("a string", node)
    copy_memory(m, values[0], values[1], count, node.line)
    return values[0]


@library("memcpy_s", "strcpy_s", "strncpy_s", "memmove_s")
def _memcpy_s(m: Machine, node: Node, values: list[Any]) -> Any:
    copy_memory(m, values[0], values[2], values[3] if len(values) > 3 else Num(1 << 20), node.line)
    return Num(0)


@library("memset", "memset_s")
def _memset(m: Machine, node: Node, values: list[Any]) -> Any:
    to = decay(values[0])
    value, count = (values[1], values[2]) if "_s" not in node["function"].text else (values[2], values[3])
    if not (
        isinstance(to, Ptr)
        and isinstance(to.block, Array)
        and to.block.is_numeric
        and isinstance(value, Num)
        and isinstance(count, Num)
    ):
        poison(m, to, Unk("memset", node.line))
        if isinstance(to, Ptr) and isinstance(to.block, Cell) and isinstance(value, Num) and value.v == 0:
            to.block.value = default(m, to.block.ctype, True)
        return values[0]
    block = to.block
    n = int(count.v) // block.data.itemsize
    part = Array(block.elem, n)
    part.data[:] = np.frombuffer(bytes([int(value.v) & 255]) * (n * block.data.itemsize), block.data.dtype)
    part.fill = "0" if value.v == 0 else None
    if block.read is not None:
        block.forget(Unk("computed on the device"))
    _paste(block, to.at, part)
    return values[0]


@library("malloc", "calloc", "realloc", "aligned_alloc")
def _malloc(m: Machine, node: Node, values: list[Any]) -> Any:
    count = values[0] if len(values) == 1 else binary("*", values[0], values[1])
    return raw_memory(m, count, node, "calloc" in node["function"].text)


def raw_memory(m: Machine, count: Any, node: Node, zero: bool = False) -> Any:
    """Host memory without a type yet."""
    if not isinstance(count, Num) or int(count.v) > MAX_ELEMENTS * 8:
        return m.unk("memory of unknown size", node)
    array = Array(CType("uint8"), int(count.v))
    array.raw = True
    if not zero:
        array.forget(Unk("memory that was not initialised", node.line))
    return Ptr(array, 0, CType("void"))
