"""NPU tensors of torch_npu as operator arguments: used in place, on torch's streams, with torch's memory.

The rules are torch_npu's own: an aclTensor has the address of the *storage*, the element offset and strides of the
view, and a flat storage shape; the handle of the current stream is read for every launch, because reading it drains
torch's task queue; memory that torch allocated on the launch stream may be freed as soon as the launch is queued.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import arrays
from .._ffi import ffi
from ..backends import tensor_backend
from ..device_array import DeviceArray, extent
from ..runtime import DeviceBuffer, ForeignStream, Runtime, Stream
from .tensors import numpy_dtype, torch_dtype

__all__ = ["Layout", "NpuArray", "describe", "format_of", "wrap"]

ND = 2
#: What torch_npu passes for tensors without a private format, by the number of axes.
_FORMATS = {3: 47, 4: 0, 5: 30}  # NCL, NCHW, NCDHW
#: Formats whose storage is the plain strided one: ND, NCHW, NHWC, NCDHW.
_BASE_FORMATS = (2, 0, 1, 30)


class Layout(NamedTuple):
    """What the descriptor of a tensor says; offset, strides and storage in elements."""

    address: int
    nbytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: tuple[int, ...]
    format: int
    dtype: np.dtype[Any]
    device: int


def format_of(ndim: int) -> int:
    """Return the aclFormat of a tensor with plain storage.

    Examples
    --------
    >>> [format_of(n) for n in (1, 2, 3, 4, 5)]
    [2, 2, 47, 0, 30]
    """
    return _FORMATS.get(ndim, ND)


def describe(tensor: Any) -> Layout:
    """Return the layout of a strided tensor; asks its metadata only."""
    storage, dtype = tensor.untyped_storage(), numpy_dtype(tensor.dtype)
    nbytes = storage.nbytes()
    return Layout(
        address=storage.data_ptr(),
        nbytes=nbytes,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        offset=tensor.storage_offset(),
        storage=(nbytes // dtype.itemsize,),
        format=format_of(len(tensor.shape)),
        dtype=dtype,
        device=tensor.device.index or 0,
    )


def refuse_private_format(where: str, number: int) -> None:
    """Raise for a storage format whose real shape torch_npu does not tell."""
    if number not in _BASE_FORMATS:
        raise TypeError(
            f"{where} has the private storage format {number}; pass torch_npu.npu_format_cast(t, 2), or switch private "
            "formats off with torch.npu.config.allow_internal_format = False"
        )


class TorchBuffer(DeviceBuffer):
    """Memory of a tensor, its ``owner``."""


class NpuArray(DeviceArray):
    """An NPU tensor as the calls see it."""

    __slots__ = ("layout", "tensor")

    def __init__(self, runtime: Runtime, tensor: Any) -> None:
        self.layout = layout = describe(tensor)
        self.tensor = tensor
        buffer = TorchBuffer.from_handle(runtime, layout.address, layout.nbytes, device=layout.device, owner=tensor)
        super().__init__(buffer, layout.shape, layout.dtype, layout.strides, layout.offset)
        self.format, self.storage_shape = layout.format, layout.storage

    def __getitem__(self, key: Any) -> DeviceArray:
        """Return the view that torch makes of the same key."""
        return NpuArray(self.buffer.runtime, self.tensor.detach()[key])

    def numpy(self, stream: Any = None) -> np.ndarray[Any, Any]:
        """Copy to the host; waits for torch's current stream."""
        view = arrays.as_array("tensor", self.tensor.detach().cpu())
        return np.array(view, copy=True)

    def queue(self, stream: Any) -> ForeignStream:
        """Return what a call with this tensor is launched on: ``stream``, or torch's current one when None."""
        return TorchStream(self.buffer.runtime, self.buffer.device, stream)


class _Workspace:
    """Workspace from torch's caching allocator; dropping it after the launch is safe on the launch stream."""

    home = None

    def __init__(self, nbytes: int, device: int) -> None:
        import torch

        self.nbytes = nbytes
        self.tensor = torch.empty(nbytes, dtype=torch.uint8, device=f"npu:{device}") if nbytes else None
        self.pointer = ffi.NULL if self.tensor is None else ffi.cast("void *", self.tensor.data_ptr())


class TorchQueue(Stream):
    """A stream that torch knows: workspace is torch's, and torch looks after the memory of its tensors.

    ``other`` is its torch object when it is another than the current stream: memory that was allocated on the
    current one must be recorded for it.
    """

    other: Any = None

    def acquire(self, nbytes: int) -> Any:
        """Take workspace from torch's allocator."""
        with _switched(self.other):
            return _Workspace(nbytes, self.device)

    def release(self, block: Any) -> None:
        """Do nothing: the memory goes back to torch with the last reference."""

    def park(self, objects: Any, nbytes: int = 0) -> None:
        """Keep what is not torch's until the stream has passed."""
        things = objects if isinstance(objects, (list, tuple)) else [objects]
        rest = [thing for thing in things if not isinstance(thing, TorchBuffer)]
        if self.other is not None:
            for thing in things:
                if isinstance(thing, TorchBuffer) and thing.owner is not None:
                    thing.owner.record_stream(self.other)
        if rest:
            super().park(rest, sum(getattr(thing, "nbytes", 0) for thing in rest))


_queues: dict[tuple[int, int, bool], TorchQueue] = {}


class TorchStream(ForeignStream):
    """torch's current stream, or a stream given by the caller; the handle is read at each launch."""

    def resolve(self) -> Stream:
        """Read the handle, which drains torch's task queue, and give the stream to launch on now."""
        import torch

        current = torch.npu.current_stream(self.device).npu_stream
        handle = current if self.source is None else _handle(self.source)
        other = handle != current
        queue = _queues.get((self.device, handle, other))
        if queue is None:
            queue = TorchQueue(self.runtime, self.device, ffi.cast("aclrtStream", handle), owned=False)
            queue.other = _torch_stream(self.source, self.device) if other else None
            _queues[self.device, handle, other] = queue
        return queue


def _handle(stream: Any) -> int:
    """Read the handle of what a ``stream=`` argument may be."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "npu_stream"):
        return int(stream.npu_stream)
    if hasattr(stream, "__aclrt_stream__"):
        return int(stream.__aclrt_stream__())
    raise TypeError(
        f"stream: got {type(stream).__name__}, expected None, torch.npu.Stream, a Stream, an int handle, or an object "
        "with npu_stream or __aclrt_stream__()"
    )


def _torch_stream(stream: Any, device: int) -> Any:
    import torch

    return stream if hasattr(stream, "npu_stream") else torch.npu.ExternalStream(_handle(stream), device=device)


def _switched(stream: Any) -> AbstractContextManager[Any]:
    """Make a torch stream current in a block; None leaves the current one."""
    import torch

    return nullcontext() if stream is None else torch.npu.stream(stream)


def _on(stream: Any, device: int) -> AbstractContextManager[Any]:
    """Let torch's work in a block go to a call's stream, so that it is ordered with the launch."""
    return _switched(None if stream is None else _torch_stream(stream, device))


def wrap(where: str, tensor: Any) -> NpuArray:
    """Return the array of an NPU tensor.

    Raises
    ------
    TypeError
        A private storage format.
    """
    import torch_npu

    refuse_private_format(where, torch_npu.get_npu_format(tensor))
    return NpuArray(tensor_backend(tensor.device.index or 0).runtime, tensor)


class NpuFamily:
    """NPU tensors at the boundary: torch allocates, fills and copies, on the stream of the call."""

    on_host = False

    def convert(self, where: str, value: Any) -> Any:
        """Accept NPU tensors and their arrays."""
        found = value if isinstance(value, NpuArray) else arrays.as_array(where, value)
        if not isinstance(found, NpuArray):
            raise TypeError(f"{where} takes an NPU tensor, as the other arguments are, got {type(value).__name__}")
        return found

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any], backend: Any, stream: Any) -> Any:
        """Return a new zero-filled tensor's array."""
        import torch

        with _on(stream, backend.device):
            made = torch.zeros(shape, dtype=torch_dtype(dtype), device=f"npu:{backend.device}")
        return NpuArray(backend.runtime, made)

    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the elements, after waiting for the device."""
        return np.asarray(array.numpy())

    def clear(self, array: Any, backend: Any, stream: Any) -> None:
        """Set all elements to zero."""
        with _on(stream, backend.device):
            array.tensor.zero_()

    def copy(self, target: Any, source: Any, backend: Any, stream: Any) -> None:
        """Copy elements."""
        with _on(stream, backend.device):
            target.tensor.copy_(source.tensor)

    def pad_rows(self, array: Any, rows: int, backend: Any, stream: Any) -> Any:
        """Return a new array of ``rows`` rows that starts with those of ``array``; the rest is zero."""
        padded = self.zeros((rows, *array.shape[1:]), array.dtype, backend, stream)
        with _on(stream, backend.device):
            padded.tensor[: array.shape[0]].copy_(array.tensor.detach())
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
        """Return the tensor."""
        return array.tensor


arrays.register(__name__, NpuFamily())
