"""Device memory and what lies in it: how the bytes a sample copies become the data of its tensors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from aclnn_py import dtypes

from ..model import Data, Tensor, Unknown
from . import names
from .convert import decay, target
from .machine import Machine
from .types import CType, numeric
from .values import Array, Cell, Handle, Null, Num, Ptr, Struct, Text, Unk

__all__ = ["Snapshot", "data_of", "numbers_at", "snapshot", "tensor_of"]

_NUMBER = re.compile(r"-?(0[xXbB][0-9a-fA-F]+|[0-9.]+([eE][-+]?[0-9]+)?|np\.\w+)|True|False")
MAX_BYTES = 1 << 29
# dtypes whose values are given as bit patterns in integers of the same size
_PATTERNS = {"float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "hifloat8"}


class Snapshot:
    """Host bytes at the moment they were copied: ``array`` holds them, or ``why`` says that they are not known."""

    __slots__ = ("array", "line", "nbytes", "offset", "why")

    def __init__(self, array: Array | None, nbytes: int | None, line: int, why: Unk | None = None) -> None:
        self.array, self.nbytes, self.line, self.why = array, nbytes, line, why
        self.offset = 0


def _flatten(array: Array) -> Array | None:
    """Return a nested C array as one."""
    if array.elem.base != "carray":
        return array if array.is_numeric else _members(array)
    parts = [_flatten(item) for item in array.data]
    if not parts or any(p is None for p in parts):
        return None
    first = parts[0]
    assert first is not None
    flat = Array(first.elem, sum(p.n for p in parts if p is not None))
    at = 0
    for part in parts:
        assert part is not None
        flat.data[at : at + part.n] = part.items()
        if part.mask is not None:
            flat.forget(part.why or Unk("not initialised"), at, at + part.n)
        at += part.n
    return flat


def _members(array: Array) -> Array | None:
    """Structs of numbers of one type, such as a real and an imaginary part, as those numbers."""
    kinds = set()
    values: list[Any] = []
    for item in array.data:
        if not isinstance(item, Struct) or item.union:
            return None
        for cell in item.fields.values():
            kinds.add(numeric(cell.ctype))
            values.append(cell.value)
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not all(isinstance(v, Num) for v in values):
        return None
    flat = Array(CType(kind), len(values), array.name)
    flat.data[:] = [v.v for v in values]
    flat.texts = [v.text for v in values]
    return flat


def snapshot(m: Machine, source: Any, count: Any, line: int) -> Snapshot:
    """Return what a copy from host memory takes; a copy longer than its source is noted."""
    source = decay(source)
    nbytes = int(count.v) if isinstance(count, Num) else None
    if isinstance(source, Unk):
        return Snapshot(None, nbytes, line, source)
    if isinstance(source, Text):
        array = Array(CType("uint8"), len(source.value.encode()) + 1)
        array.data[:-1] = np.frombuffer(source.value.encode(), np.uint8)
        return Snapshot(array, nbytes, line)
    if isinstance(source, Ptr) and isinstance(source.block, Array):
        array_or_none = _flatten(source.block)
        if source.block.elem.base == "vector" and nbytes is not None:
            m.note("vectors are copied, not their elements: what the device gets are pointers", line)
            return Snapshot(Array(CType("uint8"), 0), nbytes, line)
        if array_or_none is None:
            return Snapshot(None, nbytes, line, Unk("an array of objects", line))
        array = array_or_none
        if not source.block.is_numeric and source.at:
            return Snapshot(None, nbytes, line, Unk("part of an array of objects", line))
        at = source.at
        have = (array.n - at) * array.data.itemsize
        if nbytes is None:
            return Snapshot(
                None, None, line, count if isinstance(count, Unk) else Unk("a copy of unknown length", line)
            )
        if nbytes > have:
            name = f"'{array.name}'" if array.name else "the host array"
            m.note(
                f"{nbytes} bytes are copied from {name}, which has {have}: the rest is whatever lies behind it", line
            )
        part = array.copy() if at == 0 else _tail(array, at)
        return Snapshot(part, nbytes, line)
    if isinstance(source, Ptr) and isinstance(source.block, Cell):
        value = source.block.value
        if isinstance(value, Num) and nbytes is not None:
            array = Array(CType(value.t), 1)
            array.data[0] = value.v
            array.texts = [value.text]
            if nbytes > array.data.itemsize:
                m.note(f"{nbytes} bytes are copied from a variable of {array.data.itemsize}", line)
            return Snapshot(array, nbytes, line)
        if isinstance(value, Struct):
            return Snapshot(None, nbytes, line, Unk(f"the bytes of a struct {value.kind}", line))
        if isinstance(value, Unk):
            return Snapshot(None, nbytes, line, value)
    if isinstance(source, Null):
        return Snapshot(None, nbytes, line, Unk("a copy from a null pointer", line))
    return Snapshot(None, nbytes, line, Unk("host memory that cannot be followed", line))


def _tail(array: Array, at: int) -> Array:
    from .library import slice_of

    part = slice_of(array, at, array.n)
    part.name = array.name
    return part


def numbers_at(pointer: Any, count: int) -> list[Any]:
    """Return the numbers that a pointer points to (Unk where they are not known)."""
    pointer = decay(pointer)
    if isinstance(pointer, Unk):
        return [pointer] * count
    out = []
    for i in range(count):
        place = target(Ptr(pointer.block, pointer.at + i, pointer.ctype)) if isinstance(pointer, Ptr) else None
        out.append(place[0].get(place[1]) if place is not None else Unk("memory that cannot be followed"))
    return out


def tensor_of(m: Machine, handle: Handle, name: str) -> Tensor | Unknown:
    """Return the model's tensor of a handle, with the data that its memory holds now."""
    data = handle.data
    why: Unk | None = data.get("why")
    if why is not None:
        return m.unknown(f"tensor '{name}': {why.reason}", why.line or handle.line, handle.line)
    memory = data["memory"]
    version = memory.data.get("count", 0) if isinstance(memory, Handle) else 0
    if "model" in data and data["version"] == version:
        return data["model"]  # type: ignore[no-any-return]
    tensor = Tensor(
        name=data.get("name") or name,
        shape=data["shape"],
        dtype=data["dtype"],
        strides=data["strides"],
        offset=data["offset"],
        storage_shape=data["storage"],
        format=data["format"],
        line=handle.line,
    )
    tensor.name = name
    tensor.data = data_of(m, handle)
    if isinstance(memory, Handle):
        first = memory.data.setdefault("first", {}).get(data["at"])
        if first is not None and first[0] is not tensor and first[1] == version:
            tensor.base = first[0]
        else:
            memory.data["first"][data["at"]] = (tensor, version)
    data["model"], data["version"] = tensor, version
    return tensor


def elements(handle: Handle) -> int:
    """Elements of the storage that a tensor reaches."""
    data = handle.data
    shape = data["storage"] if data["storage"] is not None else data["shape"]
    n = int(np.prod(shape, dtype=np.int64)) if shape else 1
    strides = data["strides"]
    if strides is not None and all(s > 0 for s in data["shape"]):
        n = max(n, data["offset"] + 1 + sum((s - 1) * t for s, t in zip(data["shape"], strides, strict=True)))
    return n


def data_of(m: Machine, handle: Handle) -> Data | Unknown | None:
    """Return the host values that a tensor's memory was filled with; None when the sample does not fill it."""
    data = handle.data
    memory, n, line = data["memory"], elements(handle), handle.line
    if not isinstance(memory, Handle):
        return None if isinstance(memory, Null) or n == 0 else m.unknown("the memory cannot be followed", line)
    bits = names.item_bits(data["code"])
    need = (n * bits + 7) // 8
    have = memory.data["nbytes"]
    if have is not None and have - data["at"] < need:
        m.note(f"a tensor of {need} bytes lies in a device buffer of {max(have - data['at'], 0)}", line)
    lost = memory.data.get("lost")
    if lost is not None:
        return m.unknown(lost.reason, lost.line or line)
    writes = [
        w
        for w in memory.data["writes"]
        if w.nbytes is None or (w.offset < data["at"] + need and w.offset + w.nbytes > data["at"])
    ]
    if not writes:
        return None
    last = writes[-1]
    if need > MAX_BYTES and not (last.array is not None and last.array.fill is not None and len(writes) == 1):
        m.note(f"a tensor of {need:,} bytes is larger than the memory of most machines", line)
        return m.unknown(f"{need:,} bytes of data", line)
    if last.why is not None and len(writes) == 1:
        return m.unknown(last.why.reason, last.why.line or last.line, last.line)
    if any(w.why is not None or w.nbytes is None for w in writes):
        bad = next(w for w in writes if w.why is not None or w.nbytes is None)
        return m.unknown(bad.why.reason if bad.why is not None else "a copy of unknown length", bad.line)
    return _compose(m, handle, writes, need, n)


def _compose(m: Machine, handle: Handle, writes: list[Snapshot], need: int, n: int) -> Data | Unknown:
    data = handle.data
    dtype, at = data["dtype"], data["at"]
    only = writes[0]
    array = only.array
    plain = array is not None and array.mask is None and array.read is None and only.nbytes is not None
    if len(writes) == 1 and only.offset == at and plain:
        assert array is not None
        assert only.nbytes is not None
        if min(only.nbytes, array.items().nbytes) >= need:
            size, item = array.data.itemsize, names.item_bits(data["code"]) // 8
            if not array.data.flags.writeable and item and item % size == 0:  # one value for all
                one = _decode(array.data[: item // size].copy().view(np.uint8), dtype, 1)
                result = Data(np.broadcast_to(one[:1], (n,)))
            else:
                result = Data(_decode(np.ascontiguousarray(array.items()).view(np.uint8)[:need], dtype, n))
            _describe(m, handle, result, only, n)
            return result
    raw = np.zeros(need, np.uint8)
    known = np.zeros(need, bool)
    for write in writes:
        array = write.array
        assert array is not None
        assert write.nbytes is not None
        if array.read is not None:
            return m.unknown("data that the device computed are copied back to it", write.line)
        if array.mask is not None and array.mask[: array.n].any():
            masked = array.mask[: array.n]
            used = -(-write.nbytes // array.data.itemsize)
            if masked[:used].any():
                why = array.why
                return m.unknown(
                    why.reason if why is not None else "not initialised",
                    why.line if why is not None and why.line else write.line,
                    write.line,
                )
        size = min(write.nbytes, array.n * array.data.itemsize)
        low, high = max(write.offset - at, 0), min(write.offset + size - at, need)
        skip = at + low - write.offset
        if high > low:
            raw[low:high] = np.ascontiguousarray(array.items()).view(np.uint8)[skip : skip + high - low]
            known[low:high] = True
    values = _decode(raw, dtype, n)
    result = Data(values)
    if not known.all():
        size = max(names.item_bits(data["code"]) // 8, 1)
        whole = known[: len(values) * size].reshape(-1, size).all(1)
        result.defined = None if whole.all() else np.asarray(whole)
    whole_write = writes[-1]
    if len(writes) == 1 and whole_write.offset == at and whole_write.array is not None:
        _describe(m, handle, result, whole_write, n)
    return result


def _decode(raw: np.ndarray[Any, Any], dtype: str, n: int) -> np.ndarray[Any, Any]:
    try:
        kind = dtypes.parse(dtype)
    except (TypeError, ValueError, ImportError):
        return raw  # a packed or exotic type: its bytes
    if dtype == "bool":
        return raw[:n].view(np.bool_)  # bytes other than 0 and 1 stay as they are
    return raw[: n * kind.itemsize].view(kind)


def _describe(m: Machine, handle: Handle, result: Data, write: Snapshot, n: int) -> None:
    """How the source wrote the data, and what is wrong with them."""
    array, dtype = write.array, handle.data["dtype"]
    assert array is not None
    host, size = array.elem.base, array.data.itemsize
    try:
        item = dtypes.parse(dtype).itemsize
    except (TypeError, ValueError, ImportError):
        return
    same = host == dtype or (item == size == 1 and {host, dtype} <= {"int8", "uint8", "bool"})
    if same or (item == size and host.startswith(("int", "uint")) and dtype.startswith(("int", "uint"))):
        texts = [t for t in (array.texts or ())[:n] if t is not None and _NUMBER.fullmatch(t)]
        if array.texts is not None and len(texts) == n and result.defined is None:
            result.text = "[" + ", ".join(texts) + "]"
        elif array.fill is not None and result.defined is None and _NUMBER.fullmatch(array.fill):
            result.text = array.fill
        elif array.origin is not None:
            result.text = array.origin
        return
    if not result.values.size or not array.items().any():
        return
    if size == item and host.startswith(("int", "uint")) and dtype in _PATTERNS:
        written = array.texts
        shown = [
            (written[i] if written is not None and written[i] else hex(int(array.data[i]) & ((1 << 8 * size) - 1)))
            for i in range(min(8, array.n, n))
        ]
        if array.fill is not None:
            shown = [array.fill if array.fill.startswith("0x") else hex(int(array.data[0]) & ((1 << 8 * size) - 1))]
        result.note = (
            "bits " + ", ".join(str(s) for s in shown) + (", …" if array.fill is None and min(array.n, n) > 8 else "")
        )
        return
    if size == 1 and array.n == n * item:
        return  # a buffer of bytes that was packed for the tensor
    m.note(f"host data of {_host_name(host)} for a tensor of {dtype}: the operator sees the raw bytes", write.line)


def _host_name(kind: str) -> str:
    return {"float32": "float", "float64": "double", "int32": "int"}.get(kind, f"{kind}_t" if "int" in kind else kind)
