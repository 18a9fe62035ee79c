"""The emulator's record of a run (``ACLNN_EMULATOR_RECORD``) as a program, and two records against each other."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import dtypes, signatures
from ..signatures import Parameter, Signature
from .compare import differences
from .memory import Memory
from .model import Array, Attribute, Call, Data, Note, Print, Program, Scalar, Sequence, Tensor, Unknown, Value

__all__ = ["read", "round_trip"]


def read(
    path: Path,
    *,
    signature: Callable[[str], Signature | None] = signatures.find,
    passive: Collection[str] = (),
    files: tuple[str, ...] = (),
    snapshots: bool = False,
) -> Program:
    """Turn a record into the calls that were made and the tensors that were read back.

    Parameters
    ----------
    path
        The file; a last line that was cut off is left out.
    signature
        Tells the kinds that the record does not: bools, dtypes, ``float``.
    passive
        Operators whose entry points only record: what they write is not in the record.
    files
        The sample's, for the program.
    snapshots
        Make every tensor of every call anew, with its content at that time. Otherwise a tensor that is used again, its
        memory not filled anew in between, stays the same object with the data that it had first.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    reader = _Reader(signature, frozenset(passive), snapshots)
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                reader.line(json.loads(line))
    return Program(files, reader.steps, reader.notes)


def round_trip(sample: Path, script: Path) -> list[str]:
    """Return how the calls of a script's record differ from those of the sample's record.

    What the sample leaves unfilled may hold anything in the script, and a number that the script passes as Python's own
    (float64, int64) is compared in the dtype of the sample's scalar.
    """
    wanted, got = read(sample, snapshots=True), read(script, snapshots=True)
    for tensor in (item for item in _items(wanted) if isinstance(item, Tensor)):
        if tensor.data is None:
            tensor.data = Unknown("not filled")
    scalars = ([item for item in _items(program) if isinstance(item, Scalar)] for program in (wanted, got))
    for mine, theirs in zip(*scalars, strict=False):
        if theirs.dtype in ("float64", "int64"):
            theirs.dtype = mine.dtype
    return differences(wanted, got)


def _items(program: Program) -> Iterator[Value]:
    """Yield the arguments of all calls, the elements of lists one by one."""
    for step in program.steps:
        for value in step.arguments.values() if isinstance(step, Call) else ():
            yield from value.items if isinstance(value, Sequence) else (value,)


@cache
def formats() -> dict[int, str]:
    """Return the short names of aclFormat's values: 2 is ``ND``."""
    from .._ffi import ffi

    elements = ffi.typeof("aclFormat").elements
    return {value: name.removeprefix("ACL_").removeprefix("FORMAT_") for value, name in elements.items()}


def _numpy(dtype: str) -> np.dtype[Any] | None:
    try:
        return dtypes.parse(dtype)
    except (TypeError, ImportError):
        return None


def _float_text(value: float, single: bool) -> str:
    """Return the shortest text that gives the same float or double."""
    if not math.isfinite(value):
        return f'float("{value}")'
    return str(np.float32(value)) if single else repr(value)


class _Reader:
    def __init__(self, find: Callable[[str], Signature | None], passive: frozenset[str], snapshots: bool) -> None:
        self.find, self.passive, self.snapshots = find, passive, snapshots
        self.steps: list[Call | Print | Any] = []
        self.notes: list[Note] = []
        self.memory = Memory()
        self._tensors: dict[tuple[Any, ...], tuple[Tensor, int]] = {}  # by place and shape, with the memory's version
        self._printed: set[int] = set()
        self._names: dict[str, int] = {}

    def line(self, row: dict[str, Any]) -> None:
        event = row.get("event")
        if event is None:
            self._call(row)
        elif event == "allocate":
            self.memory.allocate(int(row["address"], 16), row["bytes"])
        elif event == "fill":
            self._filled(row["to"], row["bytes"])
        else:
            self._filled(row["to"], row["bytes"], row["from"])
            if row["from"] is not None and row["to"] is None:
                self._read_back(int(row["from"], 16), row["bytes"])

    def _filled(self, to: str | None, count: int, source: str | None = None) -> None:
        """Bytes from the host count as filled; those from device memory do as far as they were filled there."""
        if to is None:
            return
        if source is None:
            self.memory.fill(int(to, 16), count)
        else:
            self.memory.copy(int(to, 16), int(source, 16), count)

    def _read_back(self, address: int, count: int) -> None:
        tensor = self.memory.tensor_at(address)
        if tensor is None:
            return
        dtype = _numpy(tensor.dtype)
        size = dtype.itemsize if dtype is not None else 1
        held = math.prod(tensor.storage_shape or tensor.shape) * size
        if count > held and dtype is not None:
            text = f"the sample reads {count} bytes back from {tensor.name}, which has {held}"
            if all(note.text != text for note in self.notes):
                self.notes.append(Note(text))
        if id(tensor) not in self._printed:
            self._printed.add(id(tensor))
            self.steps.append(Print(tensor, count=count // size if dtype is not None and count < held else None))

    # -- calls

    def _call(self, row: dict[str, Any]) -> None:
        name = row["op"]
        signature = self.find(name)
        parameters: tuple[Parameter | None, ...] = signature.parameters if signature is not None else ()
        if len(parameters) != len(row["args"]):
            parameters = (None,) * len(row["args"])
        arguments: dict[str, Value] = {}
        for argument, parameter in zip(row["args"], parameters, strict=True):
            title = parameter.name if parameter is not None else argument["name"]  # a prototype may name it otherwise
            arguments[title] = self._value(argument, title, parameter)
        declaration = None
        if signature is not None and signatures.builtin(name) is None:
            declaration = f"{signature};"
        self.steps.append(Call(name, arguments, declaration=declaration))
        if row.get("status"):
            self.notes.append(Note(f"{name}: the emulator's kernel failed with status {row['status']}"))
        for value in arguments.values():
            for tensor in value.items if isinstance(value, Sequence) else (value,):
                self._printed.discard(id(tensor))  # it may be read back anew
        for argument in row["args"]:
            if argument["kind"] == "tensor" and argument["value"] is not None:
                self._result(row, argument["name"], argument["value"])
            for index, item in enumerate(argument["value"] or () if argument["kind"] == "tensors" else ()):
                if item is not None:
                    self._result(row, f"{argument['name']}[{index}]", item)

    def _result(self, row: dict[str, Any], name: str, tensor: dict[str, Any]) -> None:
        """Note what a call may have written: nothing in C says which tensors those are."""
        written = name in row["written"]
        if written or row["op"] in self.passive:
            self.memory.write(*_extent(tensor), known=written)

    def _value(self, argument: dict[str, Any], name: str, parameter: Parameter | None) -> Value:
        kind, value = argument["kind"], argument["value"]
        if value is None:
            return None
        if kind == "tensor":
            return self._tensor(value, name)
        if kind == "tensors":
            items = (None if one is None else self._tensor(one, name) for one in value)
            return Sequence(name, tuple(items))
        if kind == "scalar":
            return _scalar(value, name)
        if kind == "scalars":
            return Sequence(name, tuple(_scalar(one, name) for one in value))
        if kind == "floats":
            return Array(name, tuple(_float_text(float(v), True) for v in value), tuple(map(float, value)))
        if kind == "bools":
            return Array(name, tuple(str(bool(v)) for v in value), tuple(map(bool, value)))
        if kind == "ints":
            return Array(name, tuple(map(str, value)), tuple(value))
        return _attribute(kind, value, parameter)

    def _tensor(self, row: dict[str, Any], name: str) -> Tensor:
        address = int(row["address"], 16) if row["address"].startswith("0x") else 0
        first, count = _extent(row)
        version = self.memory.version(first, count)
        key = (
            address,
            *(json.dumps(row[part]) for part in ("dtype", "shape", "strides", "offset", "storage", "format")),
        )
        known = self._tensors.get(key)
        if known is not None and known[1] == version and not self.snapshots:
            return known[0]
        shape, storage = tuple(row["shape"]), tuple(row["storage"])
        contiguous = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        number = self._names[name] = self._names.get(name, 0) + 1
        tensor = Tensor(
            name if number == 1 or self.snapshots else f"{name}_{number}",
            shape,
            row["dtype"] if _numpy(row["dtype"]) is not None else row["dtype"].removesuffix("fn"),  # as acl names it
            strides=None if row["strides"] == contiguous or 0 in shape else tuple(row["strides"]),
            offset=row["offset"],
            storage_shape=None if storage == shape else storage,
            format=formats().get(row["format"], str(row["format"])),
        )
        if not self.snapshots and self.memory.written(first, count):
            tensor.base = self.memory.tensor_at(address, exact=True)
        if tensor.base is None:
            self._fill(tensor, row, address)
        self._tensors[key] = tensor, version
        self.memory.place(first if count else address, address, tensor)
        return tensor

    def _fill(self, tensor: Tensor, row: dict[str, Any], address: int) -> None:
        """Set the data of a tensor from its record: as much of it as was filled."""
        if math.prod(tensor.shape) == 0:
            return
        dtype = _numpy(tensor.dtype)
        start = address + (0 if "memory" in row else tensor.offset * (dtype.itemsize if dtype is not None else 0))
        if dtype is None:
            first, count = _extent(row)
            if self.memory.filled(first, count, count).any():
                tensor.data = Unknown(f"NumPy has no type {tensor.dtype}")
            return
        if "memory" not in row and (tensor.strides is not None or tensor.offset):
            tensor.data = Unknown("the device memory is smaller than the tensor")
            return
        values = _values(row, dtype)
        defined = self.memory.filled(start, values.size * dtype.itemsize, dtype.itemsize)
        if self.memory.passively_written(start, values.size * dtype.itemsize):
            tensor.data = Unknown("written by an operator that the emulator does not compute")
        elif defined.any():
            tensor.data = Data(values, defined=None if defined.all() else defined)
            if not defined.all():
                self.notes.append(
                    Note(f"the sample fills {int(defined.sum())} of {defined.size} elements of {tensor.name}")
                )


def _extent(row: dict[str, Any]) -> tuple[int, int]:
    """Return the address of the first byte that a view touches and how many it spans."""
    address = int(row["address"], 16) if row["address"].startswith("0x") else 0
    dtype = _numpy(row["dtype"])
    bits = dtype.itemsize * 8 if dtype is not None else _BITS.get(row["dtype"], 8)
    if 0 in row["shape"]:
        return address, 0
    reach = [(size - 1) * stride for size, stride in zip(row["shape"], row["strides"], strict=True)]
    low = row["offset"] + sum(r for r in reach if r < 0)
    high = row["offset"] + sum(r for r in reach if r > 0) + 1
    return address + low * bits // 8, ((high - low) * bits + 7) // 8


_BITS = {"int4": 4, "uint1": 1, "complex32": 32, "float4_e2m1fn": 4, "float4_e1m2fn": 4}


def _values(row: dict[str, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the recorded elements, flat: those of the memory where they differ from the view's."""
    text = row.get("memory", row.get("base64"))
    if text is not None:
        raw = base64.b64decode(text)
        return np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)
    if dtype.kind in "iub":
        return np.array(row["data"], "uint64" if dtype == np.uint64 else "int64").astype(dtype)
    return np.array([float(value) for value in row["data"]], np.float64).astype(dtype)


def _scalar(row: dict[str, Any], name: str) -> Scalar:
    dtype, value = row["dtype"], float(row["value"])
    kind = _numpy(dtype)
    if kind is not None and kind.kind in "iu":
        number = row["integer"] % 2**64 if dtype == "uint64" else row["integer"]
        return Scalar(name, str(number), number, dtype)
    if dtype == "bool":
        return Scalar(name, str(bool(row["integer"])), bool(row["integer"]), dtype)
    if kind is not None and kind.kind == "c":
        pair = complex(value, float(row["imag"]))
        return Scalar(name, repr(pair), pair, dtype)
    return Scalar(name, _float_text(value, dtype != "float64"), value, dtype)


def _attribute(kind: str, value: Any, parameter: Parameter | None) -> Attribute:
    declared = parameter.kind if parameter is not None else kind
    if kind == "string":
        text = value.encode("latin-1").decode("utf-8", errors="replace")
        return Attribute(repr(text), text)
    if kind == "double":
        number = float(value)
        return Attribute(_float_text(number, declared == "float"), number)
    if declared == "bool":
        return Attribute(str(bool(value)), bool(value))
    if declared == "dtype":
        try:
            name = dtypes.from_acl(value).name
        except (TypeError, ImportError):
            return Attribute(str(value), value)
        return Attribute(repr(name), name)
    if parameter is not None and "uint64_t" in parameter.ctype:
        value %= 2**64
    return Attribute(str(value), value)
