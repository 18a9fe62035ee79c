"""``DeviceArray``: shape, dtype, strides and offset over device memory; views share it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import arrays, dtypes
from ._ffi import ffi
from .runtime import DeviceBuffer, Runtime

__all__ = ["DeviceArray"]

MAX_DIMS = 25  # capacity of aclTensor, which does not check it
FORMAT_ND = 2


def _canonical(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a C-contiguous array, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class DeviceArray:
    """An n-dimensional array in device memory.

    Parameters
    ----------
    buffer
        The memory; kept alive by the array and its views.
    shape
        Sizes, at most 25 axes.
    dtype
        dtype-like; must have an aclDataType.
    strides
        In **elements**, not bytes; default C-contiguous. Zero is allowed, negative is not (CANN's tensors count
        forward from their offset).
    offset
        First element, in elements from the start of the buffer.

    Attributes
    ----------
    format : int
        aclFormat that operators see; ND unless ``with_format`` made the array.
    storage_shape : tuple of int or None
        Shape of the memory where it is another than the array's; set by ``with_format``.

    Raises
    ------
    ValueError
        More than 25 axes, negative sizes or strides, or elements outside the buffer.

    Notes
    -----
    Launches use it in place and do not wait. Operators write to it asynchronously; ``numpy()`` waits.

    Examples
    --------
    >>> backend = aclnn_py.get_backend("emulator")                       # doctest: +SKIP
    >>> x = backend.to_device(np.eye(3, dtype=np.float32))               # doctest: +SKIP
    >>> x[1:].numpy()                                                    # doctest: +SKIP
    """

    __slots__ = ("_descriptor", "buffer", "dtype", "format", "offset", "shape", "storage_shape", "strides")

    def __init__(
        self,
        buffer: DeviceBuffer,
        shape: tuple[int, ...],
        dtype: Any,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.buffer = buffer
        self.shape = tuple(int(size) for size in shape)
        self.dtype = dtypes.parse(dtype)
        if len(self.shape) > MAX_DIMS:
            raise ValueError(f"shape has {len(self.shape)} axes, a tensor takes at most {MAX_DIMS}")
        if any(size < 0 for size in self.shape):
            raise ValueError(f"shape is {self.shape}, expected sizes of 0 or more")
        canonical = _canonical(self.shape)
        if strides is None:
            strides = canonical
        if len(strides) != len(self.shape) or any(step < 0 for step in strides):
            raise ValueError(f"strides are {tuple(strides)}, expected {len(self.shape)} of 0 or more (in elements)")
        # an axis of length 1 has no step; the canonical one keeps CANN from copying a contiguous tensor
        self.strides = tuple(
            fixed if size == 1 else int(step) for size, step, fixed in zip(self.shape, strides, canonical, strict=True)
        )
        self.offset = int(offset)
        last = self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        if self.size and (self.offset < 0 or (last + 1) * self.dtype.itemsize > buffer.nbytes):
            raise ValueError(
                f"elements {self.offset} to {last} of dtype {dtypes.name(self.dtype)} do not fit a buffer of "
                f"{buffer.nbytes} bytes"
            )
        self._descriptor: tuple[Any, ...] | None = None
        self.format = FORMAT_ND  # this and the next are set by with_format
        self.storage_shape: tuple[int, ...] | None = None  # None: the array's own, or flat for a view

    @classmethod
    def empty(cls, runtime: Runtime, shape: tuple[int, ...], dtype: Any, device: int = 0) -> DeviceArray:
        """Allocate an uninitialised C-contiguous array; an integer shape means one axis."""
        kind = dtypes.parse(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(size < 0 for size in shape) or math.prod(shape) * kind.itemsize >= 1 << 63:
            raise ValueError(f"shape is {shape}, expected sizes of 0 or more that fit a device")
        return cls(DeviceBuffer(runtime, math.prod(shape) * kind.itemsize, device), shape, kind)

    @classmethod
    def from_numpy(cls, runtime: Runtime, array: np.ndarray[Any, Any], device: int = 0) -> DeviceArray:
        """Copy a host array of any strides to a new C-contiguous device array; waits for the copy."""
        made = cls.empty(runtime, array.shape, array.dtype, device)
        made.buffer.copy_from_host(np.ascontiguousarray(array))
        return made

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps."""
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return self.size == 0 or self.strides == _canonical(self.shape)

    @property
    def T(self) -> DeviceArray:
        """The transpose, a view."""
        return self.transpose()

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {dtypes.name(self.dtype)} on device {self.buffer.device}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d DeviceArray")
        return self.shape[0]

    def _view(self, shape: list[int], strides: list[int], offset: int) -> DeviceArray:
        return DeviceArray(self.buffer, tuple(shape), self.dtype, tuple(strides), offset)

    def transpose(self, *axes: int) -> DeviceArray:
        """Return a view with the axes permuted; without arguments, reversed."""
        order = axes or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes are {axes}, expected a permutation of {tuple(range(self.ndim))}")
        return self._view([self.shape[i] for i in order], [self.strides[i] for i in order], self.offset)

    def __getitem__(self, key: Any) -> DeviceArray:
        """Return a view: integers, slices with a positive step, ``...`` and ``None``."""
        keys = key if isinstance(key, tuple) else (key,)
        wanted = sum(1 for k in keys if k is not None and k is not Ellipsis)
        if wanted > self.ndim or sum(k is Ellipsis for k in keys) > 1:
            raise IndexError(f"too many indices for a DeviceArray of shape {self.shape}: {key!r}")
        if Ellipsis not in keys:
            keys = (*keys, Ellipsis)
        shape: list[int] = []
        strides: list[int] = []
        offset, axis = self.offset, 0
        for entry in keys:
            if entry is None:
                shape.append(1)
                strides.append(1)
            elif entry is Ellipsis:
                count = self.ndim - wanted
                shape += self.shape[axis : axis + count]
                strides += self.strides[axis : axis + count]
                axis += count
            elif isinstance(entry, slice):
                start, stop, step = entry.indices(self.shape[axis])
                if step < 0:
                    raise ValueError(f"slice step is {step}: device tensors count forward; copy on the host instead")
                length = len(range(start, stop, step))
                offset += start * self.strides[axis] if length else 0
                shape.append(length)
                strides.append(self.strides[axis] * step)
                axis += 1
            elif isinstance(entry, (int, np.integer)) and not isinstance(entry, bool):
                size = self.shape[axis]
                if not -size <= entry < size:
                    raise IndexError(f"index {entry} is out of range for axis {axis} of size {size}")
                offset += int(entry) % size * self.strides[axis]
                axis += 1
            else:
                raise TypeError(f"a DeviceArray takes integers, slices, ... and None, got {type(entry).__name__}")
        return self._view(shape, strides, offset)

    def reshape(self, *shape: Any) -> DeviceArray:
        """Return a view of another shape (one size may be -1, as in NumPy); only of a contiguous array."""
        if len(shape) == 1 and isinstance(shape[0], tuple):
            shape = shape[0]
        if shape.count(-1) == 1:
            rest = -math.prod(shape)
            shape = tuple(self.size // rest if size == -1 and rest else size for size in shape)
        if not self.contiguous or math.prod(shape) != self.size:
            raise ValueError(f"cannot view {self!r} with strides {self.strides} as {shape}")
        return DeviceArray(self.buffer, shape, self.dtype, None, self.offset)

    def numpy(self, stream: Any = None) -> np.ndarray[Any, Any]:
        """Copy to the host: waits for ``stream``, or for all streams of the device when none is given."""
        runtime, device = self.buffer.runtime, self.buffer.device
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        if stream is None:
            runtime.synchronize_device(device)
        else:
            runtime.stream(stream, device).synchronize()
        reach = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True)) + 1
        flat = np.empty(reach, self.dtype)
        self.buffer.copy_to_host(flat, offset=self.offset * self.dtype.itemsize)
        if self.contiguous:
            return flat.reshape(self.shape)
        steps = [step * self.dtype.itemsize for step in self.strides]
        return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, self.shape, steps))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Copy to the host for ``numpy.asarray``; waits for the device."""
        if copy is False:
            raise ValueError("a DeviceArray cannot be seen from the host without a copy")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype, copy=False)

    @property
    def descriptor(self) -> tuple[Any, ...]:
        """The arguments of aclCreateTensor: storage base, element offset and element strides.

        A whole contiguous buffer has its own shape as storage shape, as CANN's samples do; a view has the flat
        storage that torch_npu passes.
        """
        # every launch comes here for every tensor: the checks of buffer.pointer, without its calls
        buffer = self.buffer
        block = buffer._block
        if (block is None or not block.pointer) and not buffer._borrowed and buffer.nbytes:
            raise ValueError(f"{self!r}: its memory is closed")  # also after a reset of the device
        return self._descriptor or self._describe()

    def _describe(self) -> tuple[Any, ...]:
        dims, strides = ffi.new("int64_t[]", self.shape), ffi.new("int64_t[]", self.strides)
        whole = self.offset == 0 and self.contiguous and self.storage_shape is None
        storage = self.shape if whole else self.storage_shape or (self.buffer.nbytes // self.dtype.itemsize,)
        self._descriptor = (
            dims,
            self.ndim,
            dtypes.to_acl(self.dtype),
            strides,
            self.offset,
            self.format,
            dims if whole else ffi.new("int64_t[]", storage),
            len(storage),
            self.buffer.pointer,
        )
        return self._descriptor


def extent(array: DeviceArray) -> tuple[int, int]:
    """Return the device address range that the elements span."""
    base = array.buffer.address + array.offset * array.dtype.itemsize
    if array.size == 0:
        return base, base
    reach = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)) + 1
    return base, base + reach * array.dtype.itemsize


class DeviceFamily:
    """Device arrays at the boundary."""

    on_host = False

    def convert(self, where: str, value: Any) -> Any:
        """Accept DeviceArray objects."""
        if not isinstance(value, DeviceArray):
            raise TypeError(f"{where} takes an array, got {type(value).__name__}")
        return value

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any], backend: Any, stream: Any) -> Any:
        """Return a new array, zeroed in stream order."""
        made = DeviceArray.empty(backend.runtime, shape, dtype, backend.device)
        self._fill(made, backend.stream(stream))
        return made

    def _fill(self, array: DeviceArray, stream: Any) -> None:
        array.buffer.fill(0, array.nbytes, offset=array.offset * array.dtype.itemsize, stream=stream)

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the elements, after waiting for the device."""
        return np.asarray(array.numpy())

    def clear(self, array: Any, backend: Any, stream: Any) -> None:
        """Zero a contiguous array in stream order."""
        self._fill(array, backend.stream(stream))

    def copy(self, target: Any, source: Any, backend: Any, stream: Any) -> None:
        """Copy a contiguous array in stream order."""
        if target.size:
            item = target.dtype.itemsize
            target.buffer.copy_from(
                source.buffer,
                target.nbytes,
                offset=target.offset * item,
                source_offset=source.offset * item,
                stream=backend.stream(stream),
            )

    def pad_rows(self, array: Any, rows: int, backend: Any, stream: Any) -> Any:
        """Return a new array of ``rows`` rows that starts with those of ``array``; the rest is zero."""
        padded = self.zeros((rows, *array.shape[1:]), array.dtype, backend, stream)
        if array.contiguous:
            self.copy(padded[: array.shape[0]], array, backend, stream)
        else:  # a device copy of a strided view needs an operator of its own: through the host
            padded.buffer.copy_from_host(array.numpy())
        return padded

    def writable(self, array: Any) -> bool:
        """Device memory is always writable."""
        return True

    def contiguous(self, array: Any) -> bool:
        """Whether the elements lie in C order without gaps."""
        return bool(array.contiguous)

    def extent(self, array: Any) -> tuple[int, int]:
        """Return the device address range."""
        return extent(array)

    def result(self, array: Any) -> Any:
        """Return the array itself."""
        return array


arrays.register("aclnn_py", DeviceFamily())
