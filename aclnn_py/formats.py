"""Arrays with a format and a storage shape of their own, for operators that ask for more than ND."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import arrays
from ._ffi import ffi
from .device_array import FORMAT_ND, DeviceArray
from .runtime import Runtime

__all__ = ["FormattedArray", "device_copy", "format_of", "private_format", "storage_of", "with_format"]

# the elements lie in C order of the shape, whatever the axes are called
_PLAIN = frozenset(("ND", "NCHW", "NHWC", "HWCN", "NDHWC", "NCDHW", "NC", "NCL"))


class FormattedArray(np.ndarray[Any, Any]):
    """A NumPy array with a format; slices of it and results of arithmetic are ND again."""

    format: int = FORMAT_ND
    storage: np.ndarray[Any, Any] | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.format, self.storage = FORMAT_ND, None


def _number(name: str) -> int:
    if isinstance(name, str):
        try:
            return int(ffi.integer_const(f"ACL_FORMAT_{name.removeprefix('ACL_FORMAT_')}"))
        except (AttributeError, ffi.error):
            pass
    raise ValueError(f"format takes a name of aclFormat such as 'NCHW' or 'FRACTAL_NZ', got {name!r}")


def with_format(array: Any, format: str, *, shape: tuple[int, ...] | None = None) -> Any:
    """Return a view of an array that operators see with a format, and with a shape other than that of its storage.

    Parameters
    ----------
    array
        A NumPy array or a ``DeviceArray``: the elements as they lie in memory. Its shape is the storage shape.
    format
        Name of an aclFormat: ``"NCHW"``, ``"NCDHW"``, ``"FRACTAL_NZ"``, with or without ``ACL_FORMAT_``.
    shape
        Shape of the tensor, where it differs from the storage shape; it has at most as many elements. The array must
        be contiguous then.

    Returns
    -------
    numpy.ndarray or DeviceArray
        Shares the memory of ``array``. Operators take it like any other array. Slices of it are ND.

    Raises
    ------
    TypeError
        Another kind of array.
    ValueError
        No such format, or a shape that the storage cannot hold.

    Notes
    -----
    The npu and emulator backends pass both on to aclCreateTensor. The reference reads plain formats (NCHW, NHWC, NCDHW
    and the like) as ND, and refuses private ones (FRACTAL_NZ, NC1HWC0), whose storage order it does not know.

    Examples
    --------
    >>> image = with_format(np.zeros((1, 3, 4, 4), np.float32), "NCHW")
    >>> weight = with_format(np.ones((2, 1, 16, 16), np.float16), "FRACTAL_NZ", shape=(16, 32))
    >>> image.shape, weight.shape
    ((1, 3, 4, 4), (16, 32))
    """
    number = _number(format)
    if not isinstance(array, (np.ndarray, DeviceArray)):
        raise TypeError(f"with_format takes a NumPy array or a DeviceArray, got {type(array).__name__}")
    if shape is not None:
        contiguous = array.contiguous if isinstance(array, DeviceArray) else array.flags.c_contiguous
        if not contiguous or math.prod(shape) > array.size or min(shape, default=0) < 0:
            raise ValueError(f"a tensor of shape {shape} does not fit a storage of shape {array.shape}")
    if isinstance(array, DeviceArray):
        if shape is None:
            made = DeviceArray(array.buffer, array.shape, array.dtype, array.strides, array.offset)
        else:
            made = DeviceArray(array.buffer, shape, array.dtype, None, array.offset)
            made.storage_shape = array.shape
        made.format = number
        return made
    plain = np.asarray(array)
    view = plain if shape is None else plain.reshape(-1)[: math.prod(shape)].reshape(shape)
    formatted = view.view(FormattedArray)
    formatted.format, formatted.storage = number, None if shape is None else plain
    return formatted


def storage_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return all memory that belongs to a NumPy argument: of a formatted array, its storage."""
    storage = array.storage if isinstance(array, FormattedArray) else None
    return array if storage is None else storage


def format_of(array: Any) -> tuple[int, tuple[int, ...] | None]:
    """Return the aclFormat of an array and its storage shape; None: the shape of the tensor."""
    if isinstance(array, DeviceArray):
        return array.format, array.storage_shape
    if isinstance(array, FormattedArray):
        return array.format, None if array.storage is None else array.storage.shape
    return FORMAT_ND, None


def device_copy(runtime: Runtime, array: np.ndarray[Any, Any], device: int) -> DeviceArray:
    """Allocate what a NumPy argument gets on the device, with the argument's format."""
    made = DeviceArray.empty(runtime, storage_of(array).shape, array.dtype, device)
    number, storage = format_of(array)
    if number == FORMAT_ND and storage is None:
        return made
    if storage is not None:
        made = DeviceArray(made.buffer, array.shape, array.dtype)
        made.storage_shape = storage
    made.format = number
    return made


def private_format(array: Any) -> str | None:
    """Return the name of a format whose storage order is the device's own business; None for plain formats."""
    number, storage = format_of(array)
    if number == FORMAT_ND and storage is None:
        return None
    name: str = ffi.string(ffi.cast("aclFormat", number)).removeprefix("ACL_FORMAT_")
    return None if name in _PLAIN else name


arrays.register(__name__, arrays.NUMPY)  # FormattedArray is NumPy's, whatever module it lives in
