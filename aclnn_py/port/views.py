"""A tensor of a sample as NumPy: its memory, and the view of it that the operator sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import dtypes
from .literals import LISTED, array_expression, dtype_text, nested, shape_text, texts
from .model import Data, Tensor, Unknown
from .script import Cat, Line, Node, Seq, Slot, Statement, flat

__all__ = ["Store", "define", "values_of"]


@dataclass
class Store:
    """Arrays that go to a file beside the script, by key."""

    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def keep(self, values: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str, name: str) -> Node:
        """Add an array and return the expression that reads it; types of ml_dtypes are stored as their bits."""
        stored = values.reshape(shape)
        own = values.dtype.kind == "V" or dtype_text(dtype) == dtype
        if own:
            stored = stored.view(np.uint8 if values.dtype.itemsize == 1 else np.uint16)
        key, count = name, 2
        while key in self.arrays and not np.array_equal(self.arrays[key], stored):
            key, count = f"{name}_{count}", count + 1
        self.arrays[key] = stored
        return f'data["{key}"].view({dtype})' if own else f'data["{key}"]'


Todo = Callable[[Unknown, str], "list[Statement]"]


def _canonical(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _strided(tensor: Tensor) -> bool:
    if tensor.offset:
        return True
    if tensor.strides is None or math.prod(tensor.shape) == 0:
        return False
    rows = zip(tensor.shape, tensor.strides, _canonical(tensor.shape), strict=True)
    return any(step != usual for size, step, usual in rows if size != 1)


def values_of(data: Data, size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the values of ``size`` elements, and which of them the sample defines."""
    values = np.asarray(data.values).reshape(-1)
    defined = np.ones(values.size, bool) if data.defined is None else np.asarray(data.defined, bool).reshape(-1)
    if values.size >= size:
        return values[:size], defined[:size]
    values, short = np.zeros(size, values.dtype), values
    values[: short.size] = short
    return values, np.concatenate([defined, np.zeros(size - short.size, bool)])


def _permuted(tensor: Tensor, strides: tuple[int, ...]) -> tuple[tuple[int, ...], Node] | None:
    """Return memory shape and suffix of a permuted view of contiguous memory."""
    order = sorted(range(len(strides)), key=lambda i: (-strides[i], tensor.shape[i] == 1))
    memory = tuple(tensor.shape[i] for i in order)
    usual = _canonical(memory)
    if tensor.offset or any(strides[i] != usual[k] for k, i in enumerate(order) if tensor.shape[i] != 1):
        return None
    axes = tuple(order.index(i) for i in range(len(order)))
    return memory, ".T" if axes == tuple(reversed(range(len(axes)))) else f".transpose{axes}"


def _sliced(tensor: Tensor, strides: tuple[int, ...]) -> tuple[tuple[int, ...], Node] | None:
    """Return memory shape and suffix of a rectangular part of the storage."""
    memory = tensor.storage_shape
    if memory is None or len(memory) != len(tensor.shape) or 0 in tensor.shape:
        return None
    rest, parts = tensor.offset, []
    for size, step, length, usual in zip(tensor.shape, strides, memory, _canonical(memory), strict=True):
        start, rest = divmod(rest, usual)
        stride, odd = divmod(step, usual) if size > 1 else (1, 0)
        stop = start + (size - 1) * stride + 1
        if odd or stride < 1 or stop > length:
            return None
        bounds = f"{start or ''}:{'' if stop + stride > length and stop <= length and size > 1 else stop}"
        if start == 0 and (stop == length or (size > 1 and stop + stride > length)):
            bounds = ":"
        parts.append(bounds + (f":{stride}" if stride > 1 else ""))
    while parts and parts[-1] == ":":
        parts.pop()
    return memory, f"[{', '.join(parts)}]" if parts else ""


def _appended(suffix: Node) -> Callable[[Node], Node]:
    return lambda node: Cat((node, suffix))


def _view(tensor: Tensor, length: int, itemsize: int) -> tuple[tuple[int, ...], Callable[[Node], Node]]:
    """Return the shape of the memory and how the tensor is a view of it."""
    shape = tensor.shape
    strides = tensor.strides if tensor.strides is not None else _canonical(shape)
    size = math.prod(shape)
    reach = tensor.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1 if size else 0
    for found in (_permuted(tensor, strides), _sliced(tensor, strides)):
        if found is not None and math.prod(found[0]) >= reach:
            return found[0], _appended(found[1])
    ones = tuple(1 if step == 0 else n for n, step in zip(shape, strides, strict=True))
    if tensor.offset == 0 and all(
        s in (0, u) or n == 1 for n, s, u in zip(ones, strides, _canonical(ones), strict=True)
    ):
        return ones, lambda node: Seq("np.broadcast_to(", (node, shape_text(shape)), ")")
    memory = (max(reach, length),)
    if all(step == usual or n == 1 for n, step, usual in zip(shape, strides, _canonical(shape), strict=True)):
        whole = "" if len(shape) == 1 else f".reshape{shape}"
        return memory, lambda node: Cat((node, f"[{tensor.offset}:{tensor.offset + size}]{whole}"))
    start = f"[{tensor.offset}:]" if tensor.offset else ""
    steps = str(tuple(step * itemsize for step in strides))
    return memory, lambda node: Seq("np.lib.stride_tricks.as_strided(", (Cat((node, start)), str(shape), steps), ")")


def _alias(tensor: Tensor, base: Tensor, base_name: str) -> Node:
    """Return a tensor over the memory of an earlier one."""
    node: Node = base_name
    if tensor.dtype != base.dtype:
        node = f"{node}.view({dtype_text(tensor.dtype)})"
    if _strided(tensor):
        memory, view = _view(tensor, math.prod(base.shape), dtypes.parse(tensor.dtype).itemsize)
        if memory != base.shape or tensor.dtype != base.dtype:
            node = Cat((node, f".reshape({shape_text(memory)})"))
        return view(node)
    if tensor.shape != base.shape:
        size = math.prod(tensor.shape)
        part = f".ravel()[:{size}]" if size < math.prod(base.shape) else ""
        node = (
            f"{flat(node)}{part}"
            if part and len(tensor.shape) == 1
            else f"{flat(node)}{part}.reshape({shape_text(tensor.shape)})"
        )
    return node


def define(tensor: Tensor, name: str, store: Store, todo: Todo, base_name: str = "") -> list[Statement]:
    """Return the statements that make a tensor.

    Parameters
    ----------
    tensor, name
        The tensor and its name in the script.
    store
        Takes arrays that are too long to write out.
    todo
        Makes the statements for what is not understood.
    base_name
        Name of ``tensor.base`` in the script.
    """
    dtype, shape = dtype_text(tensor.dtype), tensor.shape
    try:
        kind = dtypes.parse(tensor.dtype)
    except TypeError:
        lines = (tensor.line, tensor.line)
        return _gap(tensor, name, todo(Unknown(f"{tensor.dtype} has no NumPy element type", lines), name), "np.int8")
    if tensor.base is not None and base_name:
        return [Line(_formatted(tensor, _alias(tensor, tensor.base, base_name), shape), name)]
    if isinstance(tensor.data, Unknown):
        return _gap(tensor, name, todo(tensor.data, name), dtype)
    memory: tuple[int, ...] = shape
    view: Callable[[Node], Node] | None = None
    length = 0 if tensor.data is None else tensor.data.values.size
    if _strided(tensor):
        memory, view = _view(tensor, length, kind.itemsize)
    elif tensor.storage_shape is not None and tensor.format != "ND":
        memory = tensor.storage_shape
    comments: tuple[str, ...] = ()
    extra: list[Statement] = []
    if tensor.data is None:
        node: Node = Seq("np.zeros(", (Slot(shape_text(memory), f"{name}_shape"), Slot(dtype, "dtype")), ")")
    else:
        comments = (tensor.data.note,) if tensor.data.note else ()
        values, defined = values_of(tensor.data, math.prod(memory))
        values = values.astype(kind, copy=False)
        text = tensor.data.text if length == values.size else None
        if defined.all():
            found = array_expression(values, memory, dtype, text, name).node
            node = store.keep(values, memory, dtype, name) if found is None else found
        else:
            node, extra = _partly(values, defined, memory, dtype, name, store)
            comments += ("not all elements are defined in the sample",)
    if view is not None and extra:
        return [Line(node, name, comments, True), *extra, Line(_formatted(tensor, view(name), memory), name)]
    if extra:
        last = _formatted(tensor, name, memory)
        return [Line(node, name, comments, True), *extra, *([Line(last, name)] if last != name else [])]
    return [Line(_formatted(tensor, view(node) if view else node, memory), name, comments)]


def _gap(tensor: Tensor, name: str, todo: list[Statement], dtype: str) -> list[Statement]:
    return [*todo, Line(f"np.array(..., {dtype})", name, (f"shape {tuple(tensor.shape)}",))]


def _partly(
    values: np.ndarray[Any, Any],
    defined: np.ndarray[Any, Any],
    memory: tuple[int, ...],
    dtype: str,
    name: str,
    store: Store,
) -> tuple[Node, list[Statement]]:
    """Leave undefined what the sample leaves undefined."""
    node = Seq("np.empty(", (Slot(shape_text(memory), f"{name}_shape"), Slot(dtype, "dtype")), ")")
    if not defined.any():
        return node, []
    count = int(defined.sum())
    known = texts(values[defined]) if count <= LISTED else None
    node_of_known: Node = (
        Seq("[", tuple(known), "]", fill=True) if known else _long(values[defined], dtype, name, store)
    )
    first = bool(defined[:count].all())
    where: Node = (
        f"{name}.flat[:{count}]"
        if first
        else Cat((f"{name}.flat[", nested([str(i) for i in np.flatnonzero(defined)], (count,)), "]"))
    )
    return node, [Line(node_of_known, flat(where))]


def _long(values: np.ndarray[Any, Any], dtype: str, name: str, store: Store) -> Node:
    found = array_expression(values, values.shape, dtype, None, name).node
    return store.keep(values, values.shape, dtype, name) if found is None else found


def _formatted(tensor: Tensor, node: Node, memory: tuple[int, ...]) -> Node:
    if tensor.format == "ND":
        return node
    inside = memory != tensor.shape and not _strided(tensor)
    shape: tuple[Node, ...] = (f"shape={tuple(tensor.shape)}",) if inside else ()
    return Seq("aclnn_py.with_format(", (node, f'"{tensor.format}"', *shape), ")")
