"""Array kinds at the boundary: which Python objects are tensors, and how each kind is allocated and read.

One registry, keyed by the module of a type or its top-level package, so that a kind is known without importing it.
NumPy arrays are registered here, ``DeviceArray`` in ``device_array.py``; interop packages add theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from . import dtypes

__all__ = ["Family", "as_array", "family_of", "overlap", "register"]


class Family(Protocol):
    """What the operators need of one kind of array. Streams and backends are those of the call."""

    on_host: bool

    def convert(self, where: str, value: Any) -> Any:
        """Return the array that stands for ``value`` or raise TypeError."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any], backend: Any, stream: Any) -> Any:
        """Return a new zero-filled array."""

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the elements as a NumPy array (waits for the device)."""

    def clear(self, array: Any, backend: Any, stream: Any) -> None:
        """Set all elements to zero."""

    def copy(self, target: Any, source: Any, backend: Any, stream: Any) -> None:
        """Copy elements; same shape and dtype."""

    def pad_rows(self, array: Any, rows: int, backend: Any, stream: Any) -> Any:
        """Return a new array of ``rows`` rows that starts with those of ``array``; the rest is zero."""

    def writable(self, array: Any) -> bool:
        """Whether outputs can be written to the array."""

    def contiguous(self, array: Any) -> bool:
        """Whether the array is C-contiguous."""

    def extent(self, array: Any) -> tuple[int, int]:
        """Return the address range [first, last + 1) that the elements span."""

    def result(self, array: Any) -> Any:
        """Return what the caller gets for an output."""


class NumpyFamily:
    """Arrays in host memory."""

    on_host = True

    def convert(self, where: str, value: Any) -> Any:
        """Accept ndarrays whose dtype has an aclDataType and native byte order.

        Masked arrays would lose their mask, and a matrix stays two-dimensional whatever is done to it.
        """
        if not isinstance(value, np.ndarray) or isinstance(value, (np.ma.MaskedArray, np.matrix)):
            raise TypeError(f"{where} takes an array, got {type(value).__name__}")
        try:
            dtypes.to_acl(value.dtype)
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        return value

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any], backend: Any, stream: Any) -> Any:
        """Return a new zero-filled ndarray."""
        return np.zeros(shape, dtype)

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return np.asarray(array)

    def clear(self, array: Any, backend: Any, stream: Any) -> None:
        """Set all elements to zero."""
        array[...] = 0

    def copy(self, target: Any, source: Any, backend: Any, stream: Any) -> None:
        """Copy elements."""
        np.copyto(target, source)

    def pad_rows(self, array: Any, rows: int, backend: Any, stream: Any) -> Any:
        """Return a copy with zero rows added."""
        padded = np.zeros((rows, *array.shape[1:]), array.dtype)
        padded[: array.shape[0]] = array
        return padded

    def writable(self, array: Any) -> bool:
        """Return the writeable flag."""
        return bool(array.flags.writeable)

    def contiguous(self, array: Any) -> bool:
        """Return the C_CONTIGUOUS flag."""
        return bool(array.flags.c_contiguous)

    def extent(self, array: Any) -> tuple[int, int]:
        """Return the byte bounds."""
        return _byte_bounds(array)

    def result(self, array: Any) -> Any:
        """Return the array itself."""
        return array


def _byte_bounds(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    address = array.ctypes.data
    if array.size == 0:
        return address, address
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = address + sum(step for step in steps if step < 0)
    return low, address + sum(step for step in steps if step > 0) + array.itemsize


NUMPY = NumpyFamily()
_families: dict[str, Family] = {"numpy": NUMPY}
# kinds whose module registers itself when it is imported
_LAZY: dict[str, str] = {"torch": ".interop.tensors"}


def register(module: str, family: Family) -> None:
    """Add a kind of array: ``module`` is the module, or the top-level package, in which its type lives."""
    _families[module] = family


def _family(where: str, value: Any) -> Family:
    for base in type(value).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _LAZY and package not in _families:
            import_module(_LAZY[package], __package__)
        for key in (base.__module__, package):
            if key in _families:
                return _families[key]
    known = "numpy.ndarray, DeviceArray or torch.Tensor"
    raise TypeError(f"{where} takes an array ({known}), got {type(value).__name__}")


def as_array(where: str, value: Any) -> Any:
    """Return the array that stands for a tensor argument.

    Raises
    ------
    TypeError
        Not an array of a known kind (lists are not converted silently), or its dtype has no aclDataType.
    """
    return _family(where, value).convert(where, value)


def _kind(value: Any) -> str:
    """Name what the caller passed."""
    tensor = getattr(value, "tensor", None)
    return type(value).__name__ if tensor is None else f"torch tensor on {tensor.device}"


def family_of(api: str, tensors: Mapping[str, Any]) -> Family:
    """Return the kind that all tensors of a call share; NumPy when there are none.

    Raises
    ------
    TypeError
        Tensors of different kinds in one call.
    """
    found: Family = _families["numpy"]
    first = ""
    for name, value in tensors.items():
        family = _family(f"{api}: argument {name!r}", value)
        if first and family is not found:
            raise TypeError(
                f"{api}: arguments {first!r} ({_kind(tensors[first])}) and {name!r} ({_kind(value)}) are arrays of "
                "different kinds; use one kind in a call"
            )
        found, first = family, first or name
    return found


def overlap(one: Any, other: Any) -> bool:
    """Whether two arrays of the same kind share memory; when in doubt, yes."""
    family = _family("overlap", one)
    low, high = family.extent(one)
    other_low, other_high = family.extent(other)
    if high <= other_low or other_high <= low:
        return False
    if family.on_host:
        try:
            return bool(np.shares_memory(one, other, max_work=10_000))  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True
    return True
