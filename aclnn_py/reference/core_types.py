"""Element types of the core operators: promotion, conversion and rounding, by the rules of PyTorch.

The rules are tables here, since those of NumPy differ from them and between NumPy 1 and 2. Values are held in a
plain NumPy dtype: float32 stands for float16 and bfloat16, which hold a subset of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .. import dtypes
from .numerics import Array, bits, float32, narrow

HALVES = ("float16", "bfloat16")
FLOATING = ("float32", *HALVES, "float64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGRAL = (*SIGNED, "uint8")
NUMERIC = (*FLOATING, *INTEGRAL)
ACCEPTED = (*NUMERIC, "bool")


def category(name: str) -> int:
    """Rank the kinds: 0 bool, 1 integer, 2 floating."""
    return 2 if name in FLOATING else int(name in INTEGRAL)


@cache
def promote(one: str, other: str) -> str:
    """Give the type of an operation on two tensors."""
    pair = {one, other}
    if len(pair) == 1:
        return one
    if category(one) != category(other):
        return max(one, other, key=category)
    if category(one) == 2:
        return "float64" if "float64" in pair else "float32"
    if "uint8" in pair:
        return "int16" if "int8" in pair else max(one, other, key=SIGNED.__contains__)
    return max(one, other, key=SIGNED.index)


def promote_scalar(tensor: str, scalar: str) -> str:
    """Give the type of an operation of a tensor and a scalar, whose width does not count."""
    if category(scalar) <= category(tensor):
        return tensor
    return "int64" if category(scalar) == 1 else "float32"


def castable(source: str, target: str) -> bool:
    """Whether a result may be stored in an output: not floating in integer, nothing but bool in bool."""
    return category(source) <= category(target)


def plain(array: Array) -> Array:
    """Widen float16 and bfloat16; any other array is returned as it is."""
    if array.dtype.name not in HALVES:
        return array
    # NumPy 1 computes with arrays of no dimension by the rules of scalars
    return float32(np.atleast_1d(array)).reshape(array.shape)


def _to_integer(values: Array, dtype: Any) -> Array:
    # CANN leaves open what becomes of NaN and of what does not fit, as NumPy does: 0 and the nearest end here
    info = np.iinfo(dtype)
    low, end = float(info.min), 2.0 ** (info.bits - (info.min < 0))  # exact in every type
    inside = (values >= low) & (values < end)
    found = np.where(inside, values, 0).astype(dtype)
    return np.where(values >= end, info.max, np.where(values < low, info.min, found)).astype(dtype)


def to_dtype(values: Array, name: str) -> Array:
    """Convert plain values to a dtype: floats to integers toward zero, to a 16-bit float by way of float32."""
    dtype = dtypes.parse(name)
    if name in INTEGRAL and values.dtype.kind == "f":
        return _to_integer(values, dtype)
    if name not in HALVES:
        return values.astype(dtype, copy=False)
    wide = np.array(values, dtype=np.float32, order="C", ndmin=1)
    out = np.empty(wide.shape, dtype)
    narrow(wide, bits(out), np.empty_like(wide))
    return out.reshape(values.shape)


def convert(array: Array, name: str) -> Array:
    """Convert a tensor to plain values that type ``name`` can hold."""
    return plain(array if array.dtype.name == name else to_dtype(plain(array), name))


def scalar_array(scalar: Any, name: str) -> Array:
    """Convert a scalar argument to a plain value of type ``name``, as an array of no dimension."""
    return convert(np.asarray(scalar.value, scalar.dtype), name)


def store(values: Array, name: str, out: Array) -> None:
    """Round a result to its type ``name``, convert it to that of ``out`` and write it there."""
    result = to_dtype(np.asarray(values), name)
    if result.dtype != out.dtype:
        result = to_dtype(plain(result), out.dtype.name)
    bits(out)[...] = bits(result)
