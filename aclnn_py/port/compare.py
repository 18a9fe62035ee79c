"""Where two readings of one sample disagree: what the static engine found against what the recorder saw.

Only claims are compared. An ``Unknown`` claims nothing, and a tensor with fewer values than elements claims those
values alone, so neither is a difference. The flat values of a tensor are those of its memory, from the start of the
storage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes, signatures
from .model import LAST_BIT, Array, Attribute, Call, Data, Program, Scalar, Sequence, Tensor, Unknown, Value

__all__ = ["differences"]


def differences(static: Program, recorded: Program) -> list[str]:
    """Return what the static program claims and the recorded one contradicts, one line each.

    Parameters
    ----------
    static, recorded
        The same sample, read and run. Only calls are compared: a run cannot see what is printed or checked.

    Returns
    -------
    list of str
        Empty when nothing is contradicted. Values are compared bit for bit, NaNs as equal.

    Examples
    --------
    >>> here = Program(("a.cpp",), [Call("aclnnNeg", {"self": Tensor("self", (2,), "float32")})])
    >>> there = Program(("a.cpp",), [Call("aclnnNeg", {"self": Tensor("self", (3,), "float32")})])
    >>> differences(here, there)
    ['call 1 aclnnNeg, self: shape (2,), recorded (3,)']
    """
    return list(_differences(static, recorded))


@dataclass(frozen=True)
class _Pairs:
    """Tensors that were compared, and whether the static engine says that the last bit may differ."""

    seen: set[tuple[int, int]]
    rounded: bool


def _differences(static: Program, recorded: Program) -> Iterator[str]:
    if static.refused is not None or recorded.refused is not None:
        return
    mine = [step for step in static.steps if isinstance(step, Call)]
    theirs = [step for step in recorded.steps if isinstance(step, Call)]
    gaps = any(isinstance(step, Unknown) for step in static.steps)
    cut = any(isinstance(step, Unknown) for step in recorded.steps)  # the run ended before the sample did
    pairs = _Pairs(set(), any(LAST_BIT in note.text for note in static.notes))
    position = 0
    for number, call in enumerate(mine, 1):
        found = position
        while gaps and found < len(theirs) and theirs[found].op != call.op:
            found += 1
        if found == len(theirs) and cut:
            return
        if found == len(theirs) or theirs[found].op != call.op:
            got = theirs[found].op if found < len(theirs) else "no further call"
            yield f"call {number} {call.op}: recorded is {got}"
            return
        for text in _call(call, theirs[found], pairs):
            yield f"call {number} {call.op}, {text}"
        position = found + 1
    if position < len(theirs) and not gaps:
        yield f"recorded is a further call, {theirs[position].op}"


def _call(mine: Call, theirs: Call, pairs: _Pairs) -> Iterator[str]:
    ctypes = _ctypes(mine) or _ctypes(theirs)
    for name in dict.fromkeys([*mine.arguments, *theirs.arguments]):
        ours = mine.arguments.get(name)
        for text in _value(ours, theirs.arguments.get(name), ctypes.get(name, ""), pairs):
            yield f"{name}: {text}"


def _ctypes(call: Call) -> dict[str, str]:
    """Return the C types of a call's parameters, as far as a prototype is at hand."""
    signature = signatures.find(call.op)
    if call.declaration is not None:
        declared = {s.name: s for s in signatures.parse_prototypes(call.declaration, problems=[])}
        signature = declared.get(call.op, signature)
    return {} if signature is None else {p.name: p.ctype for p in signature.parameters}


def _value(mine: Value, theirs: Value, ctype: str, pairs: _Pairs) -> Iterator[str]:
    if isinstance(mine, Unknown) or isinstance(theirs, Unknown):
        return
    if mine is None or theirs is None:
        if mine is not theirs:
            yield f"{_kind(mine)}, recorded {_kind(theirs)}"
    elif isinstance(mine, Tensor) and isinstance(theirs, Tensor):
        yield from _tensor(mine, theirs, pairs)
    elif isinstance(mine, Scalar) and isinstance(theirs, Scalar):
        if mine.dtype != theirs.dtype:
            yield f"dtype {mine.dtype}, recorded {theirs.dtype}"
        elif not _same_number(mine.value, theirs.value, mine.dtype):
            yield f"value {mine.value!r}, recorded {theirs.value!r}"
    elif isinstance(mine, Attribute) and isinstance(theirs, Attribute):
        if not _same_attribute(mine.value, theirs.value, ctype):
            yield f"{mine.value!r}, recorded {theirs.value!r}"
    elif isinstance(mine, Array) and isinstance(theirs, Array):
        dtype = "float32" if any(isinstance(v, float) for v in (*mine.values, *theirs.values)) else "int64"
        pairwise = zip(mine.values, theirs.values, strict=False)
        if len(mine.values) != len(theirs.values) or not all(_same_number(a, b, dtype) for a, b in pairwise):
            yield f"{list(mine.values)}, recorded {list(theirs.values)}"
    elif isinstance(mine, Sequence) and isinstance(theirs, Sequence):
        if len(mine.items) != len(theirs.items):
            yield f"{len(mine.items)} elements, recorded {len(theirs.items)}"
            return
        for index, (ours, other) in enumerate(zip(mine.items, theirs.items, strict=True)):
            for text in _value(ours, other, "", pairs):
                yield f"[{index}] {text}"
    else:
        yield f"{_kind(mine)}, recorded {_kind(theirs)}"


def _kind(value: Value) -> str:
    return "null" if value is None else type(value).__name__.lower()


def _same_number(mine: Any, theirs: Any, dtype: str) -> bool:
    """Whether two numbers are the same value of a dtype; those that NumPy has no type for must be equal."""
    try:
        kind = dtypes.parse(dtype)
    except TypeError:
        return bool(mine == theirs)
    with np.errstate(all="ignore"):
        try:
            left, right = np.asarray(mine).astype(kind), np.asarray(theirs).astype(kind)
        except (TypeError, ValueError):
            return bool(mine == theirs)
    same = left.tobytes() == right.tobytes() or (left != left and right != right)
    return bool(same)


def _same_attribute(mine: Any, theirs: Any, ctype: str) -> bool:
    words = ctype.replace("const", "").split()
    if "aclDataType" in words:
        return bool(_dtype_number(mine) == _dtype_number(theirs))
    if isinstance(mine, (bytes, str)) or isinstance(theirs, (bytes, str)):
        return bool(mine == theirs)
    if isinstance(mine, float) or isinstance(theirs, float):
        return _same_number(mine, theirs, "float32" if "float" in words else "float64")
    return int(mine) == int(theirs)


def _dtype_number(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return dtypes.to_acl(dtypes.parse(value))
        except TypeError:
            return value
    return value


def _geometry(tensor: Tensor) -> dict[str, Any]:
    """Return what is compared of a tensor besides its data, with the defaults filled in."""
    contiguous = tuple(math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape)))
    return {
        "shape": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "strides": contiguous if tensor.strides is None or 0 in tensor.shape else tuple(tensor.strides),
        "offset": tensor.offset,
        "storage shape": tuple(tensor.shape if tensor.storage_shape is None else tensor.storage_shape),
        "format": tensor.format,
    }


def _tensor(mine: Tensor, theirs: Tensor, pairs: _Pairs) -> Iterator[str]:
    here, there = _geometry(mine), _geometry(theirs)
    wrong = [key for key in here if here[key] != there[key]]
    if "shape" in wrong:
        wrong = ["shape"]  # the rest follows from it
    yield from (f"{key} {here[key]}, recorded {there[key]}" for key in wrong)
    # a pair that was compared before, or a view of an earlier tensor, now holds what an operator made of it
    if not wrong and mine.base is None and (id(mine), id(theirs)) not in pairs.seen and math.prod(mine.shape) > 0:
        yield from _data(mine, theirs, pairs.rounded)
    pairs.seen.add((id(mine), id(theirs)))


def _data(mine: Tensor, theirs: Tensor, rounded: bool) -> Iterator[str]:
    if isinstance(mine.data, Unknown) or isinstance(theirs.data, Unknown):
        return
    if mine.data is None or theirs.data is None:
        if mine.data is not theirs.data:
            yield f"{_filled(mine.data)}, recorded {_filled(theirs.data)}"
        return
    try:
        dtype = dtypes.parse(mine.dtype)
    except TypeError:
        return  # no NumPy type, so no values to compare
    ours, other = mine.data.values.astype(dtype).ravel(), theirs.data.values.astype(dtype).ravel()
    if len(ours) > len(other):
        yield f"{len(ours)} values, recorded {len(other)}"
    count = min(len(ours), len(other))
    ours, other = ours[:count], other[:count]
    with np.errstate(all="ignore"):
        if dtype == np.bool_:  # a byte is true or not
            unlike = (ours.view(np.uint8) != 0) != (other.view(np.uint8) != 0)
        else:
            raw = np.dtype((np.void, dtype.itemsize))
            unlike = (ours.view(raw) != other.view(raw)) & ~((ours != ours) & (other != other))  # NaNs
        if rounded and dtype in (np.float32, np.float64):
            unlike &= ~np.isclose(ours, other, rtol=4 * np.finfo(dtype).eps, atol=0)
    for data in (mine.data, theirs.data):
        if data.defined is not None:
            unlike &= data.defined.ravel()[:count]
    wrong = np.flatnonzero(unlike)
    if len(wrong):
        at = int(wrong[0])
        yield f"{len(wrong)} of {count} values, the first at {at}: {ours[at]}, recorded {other[at]}"


def _filled(data: Data | None) -> str:
    return "not filled" if data is None else "filled"
