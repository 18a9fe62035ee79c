"""The algorithms of the standard library over ranges of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import binary, cast
from .convert import convert, decay
from .library import call_back, span
from .machine import Machine, library
from .syntax import Node
from .values import (
    Array,
    Num,
    Ptr,
    Unk,
    duplicate,
    np_type,
    truth,
)

__all__ = ["fill"]


def fill(m: Machine, array: Array, low: int, high: int, value: Any) -> None:
    """Set elements to one value."""
    value = convert(m, value, array.elem)
    if array.is_numeric and isinstance(value, Num):
        if array.read is not None:
            array.forget(Unk("computed on the device"))
        array.texts = array.origin = None
        array.fill = value.text if (low, high) == (0, array.n) else None
        array.own()
        array.data[low:high] = value.v
        if array.mask is not None:
            array.mask[low:high] = False
    elif array.is_numeric:
        array.forget(value if isinstance(value, Unk) else Unk("a fill value"), low, high)
    else:
        for i in range(low, high):
            array.data[i] = duplicate(value)


@library("fill", "fill_n", "iota", "copy", "copy_n", "generate", "transform", "reverse", "sort", "for_each",
         "generate_n",
         "shuffle", "replace")  # fmt: skip
def _algorithm(m: Machine, node: Node, values: list[Any]) -> Any:
    name = node["function"].text.split("::")[-1]
    first = decay(values[0])
    if name.endswith("_n") and isinstance(first, Ptr) and isinstance(values[1], Num):
        values = [first, Ptr(first.block, first.at + int(values[1].v), first.ctype), *values[2:]]
    found = span(values[0], values[1]) if len(values) > 1 else None
    if found is None:
        for value in values:
            if isinstance(decay(value), Ptr):
                m.extra["poison"](m, value, m.unk(name, node))
        return None
    array, low, high = found
    if name in ("fill", "fill_n"):
        fill(m, array, low, high, values[2])
    elif name == "iota" and isinstance(values[2], Num) and array.is_numeric:
        start = cast(values[2], array.elem.base)
        array.forget(Unk(""))
        array.mask = array.why = None
        array.own()
        array.data[low:high] = (np.arange(high - low) + start.v).astype(np_type(array.elem.base))
    elif name in ("copy", "copy_n") and isinstance(decay(values[2]), Ptr):
        to = decay(values[2])
        for i in range(low, high):
            if isinstance(to.block, Array):
                to.block.set(to.at + i - low, convert(m, array.get(i), to.block.elem))
    elif name in ("generate", "for_each", "generate_n") and high - low <= 100_000:
        for i in range(low, high):
            if name == "for_each":
                call_back(m, values[2], [array.get(i)], node)
            else:
                got = convert(m, call_back(m, values[2], [], node), array.elem)
                array.set(i, got)
    elif name == "transform" and len(values) == 4 and isinstance(decay(values[2]), Ptr) and high - low <= 100_000:
        to = decay(values[2])
        for i in range(low, high):
            to.block.set(to.at + i - low, convert(m, call_back(m, values[3], [array.get(i)], node), to.block.elem))
    elif name == "reverse" and array.is_numeric and array.mask is None and array.read is None:
        texts = array.texts
        array.own()
        array.data[low:high] = array.data[low:high][::-1].copy()
        array.texts = texts[:low] + texts[low:high][::-1] + texts[high:] if texts is not None else None
        array.origin = None
    elif name == "sort" and len(values) == 2 and array.is_numeric and array.mask is None and array.read is None:
        array.own()
        array.data[low:high] = np.sort(array.data[low:high])
        array.texts = array.origin = None
    else:
        array.forget(m.unk(name, node), low, high)
    return None


@library(
    "accumulate", "max_element", "min_element", "all_of", "any_of", "find", "count", "distance", "equal", "none_of"
)
def _reduce(m: Machine, node: Node, values: list[Any]) -> Any:
    name = node["function"].text.split("::")[-1]
    found = span(values[0], values[1]) if len(values) > 1 else None
    if found is None:
        return m.unk(name, node)
    array, low, high = found
    if name == "distance":
        return Num(high - low, "int64")
    if name == "accumulate" and high - low <= 100_000:
        total = values[2]
        for i in range(low, high):
            item = array.get(i)
            total = (
                call_back(m, values[3], [total, item], node)
                if len(values) > 3
                else cast(binary("+", total, item), values[2].t)
            )
        return total
    if (
        name in ("max_element", "min_element")
        and array.is_numeric
        and array.mask is None
        and array.read is None
        and high > low
    ):
        at = int((np.argmax if name[1] == "a" else np.argmin)(array.data[low:high]))
        return Ptr(array, low + at, array.elem)
    if name in ("all_of", "any_of", "none_of") and high - low <= 10_000:
        got = [truth(call_back(m, values[2], [array.get(i)], node)) for i in range(low, high)]
        if None not in got:
            return Num({"all_of": all(got), "any_of": any(got), "none_of": not any(got)}[name], "bool")
    if name == "equal" and isinstance(decay(values[2]), Ptr):
        return m.extra["same"](m, values[0], values[2], high - low, node)
    return m.unk(name, node)
