"""Device and pinned host memory: buffers, and copies between them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import errors
from ._ffi import ffi
from ._pool import Block

if TYPE_CHECKING:
    from ._streams import AnyStream
    from .runtime import Runtime

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3  # aclrtMemcpyKind


class Closing:
    """The ``with`` statement of objects that have ``close()``."""

    def __enter__(self) -> Any:
        """Give the object itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Release; a second call does nothing."""
        raise NotImplementedError


class DeviceBuffer(Closing):
    """A range of device memory, owned or borrowed.

    Parameters
    ----------
    runtime : Runtime
        What to allocate with.
    nbytes : int
        Size; 0 allocates nothing and has the address 0.
    device : int
        Device number.

    Attributes
    ----------
    nbytes, device : int
        As given.
    owner : object
        What a borrowed buffer keeps alive; None when this object owns the memory.

    Raises
    ------
    DeviceMemoryError
        Too little memory, also after the pools of all streams were emptied.

    Notes
    -----
    A buffer that is collected or closed while parked work may still use it is freed when its streams have passed.

    Examples
    --------
    >>> buffer = DeviceBuffer(runtime, 16)                          # doctest: +SKIP
    >>> buffer.copy_from_host(np.arange(4, dtype=np.float32))       # doctest: +SKIP
    """

    runtime: Runtime
    nbytes = 0
    device = 0
    owner: Any = None
    _block: Block | None = None
    _borrowed = ffi.NULL
    _closed = True

    def __init__(self, runtime: Runtime, nbytes: int, device: int = 0) -> None:
        self.runtime = runtime
        self.nbytes = _size(nbytes, "nbytes")
        self.device = device
        self._block = Block(runtime, self.nbytes, device)
        self._closed = False

    @classmethod
    def from_handle(
        cls, runtime: Runtime, pointer: Any, nbytes: int, *, device: int = 0, owner: Any = None
    ) -> DeviceBuffer:
        """Wrap memory of someone else, which is never freed here.

        Parameters
        ----------
        pointer : int or cdata
            Device address.
        nbytes : int
            Size of the range.
        device : int
            Where it lies.
        owner : object
            Kept alive as long as the buffer, and as long as parked work needs it.
        """
        self = cls.__new__(cls)
        self.runtime = runtime
        self.nbytes = _size(nbytes, "nbytes")
        self.device = device
        self.owner = owner
        self._borrowed = ffi.cast("void *", pointer)
        if self.nbytes and not self._borrowed:
            raise ValueError(f"pointer: got 0 for a buffer of {nbytes} bytes")
        self._closed = False
        return self

    def __repr__(self) -> str:
        """Name size, place and ownership."""
        state = "closed" if self._closed else "owned" if self._block else "borrowed"
        return f"<DeviceBuffer {self.nbytes} bytes at {self.address:#x} on device {self.device}, {state}>"

    @property
    def pointer(self) -> Any:
        """Device address; NULL for zero bytes, after ``close()``, and after the device was reset."""
        return self._borrowed if self._block is None else self._block.pointer

    @property
    def address(self) -> int:
        """The pointer as an integer."""
        return int(ffi.cast("uintptr_t", self.pointer))

    @property
    def closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._closed

    def close(self) -> None:
        """Release the memory, or drop the owner; a second call does nothing."""
        kept, self._block, self.owner, self._closed = self._block or self.owner, None, None, True
        self._borrowed = ffi.NULL
        if kept is not None:
            self.runtime.defer(kept, self.device, self.nbytes)

    def copy_from_host(self, source: Any, *, offset: int = 0, stream: AnyStream | None = None) -> None:
        """Copy host memory into the buffer, at ``offset`` bytes.

        Parameters
        ----------
        source : ndarray, HostBuffer, bytes, ...
            C-contiguous.
        offset : int
            Where to write, in bytes.
        stream : Stream, optional
            Enqueue the copy there and keep ``source`` until the stream has passed; pageable memory is copied
            before this returns. Without a stream the call waits, but not for work queued on streams.
        """
        pointer, count = host_pointer(source, writable=False)
        target = self._at(offset, count, "copy_from_host")
        if count:
            arguments = (target, self.nbytes - offset, pointer, count, HOST_TO_DEVICE)
            transfer(self.runtime, "aclrtMemcpy", arguments, self.device, stream, (self._kept, source))

    def copy_to_host(self, target: Any, *, offset: int = 0, stream: AnyStream | None = None) -> None:
        """Copy from ``offset`` bytes into host memory, as much as ``target`` holds.

        Parameters
        ----------
        target : ndarray, HostBuffer, bytearray, ...
            C-contiguous and writable.
        offset : int
            Where to read, in bytes.
        stream : Stream, optional
            As in :meth:`copy_from_host`; the data is there after ``stream.synchronize()``.
        """
        pointer, count = host_pointer(target, writable=True)
        source = self._at(offset, count, "copy_to_host")
        if count:
            arguments = (pointer, count, source, count, DEVICE_TO_HOST)
            transfer(self.runtime, "aclrtMemcpy", arguments, self.device, stream, (self._kept, target))

    def copy_from(
        self,
        source: DeviceBuffer,
        nbytes: int | None = None,
        *,
        offset: int = 0,
        source_offset: int = 0,
        stream: AnyStream | None = None,
    ) -> None:
        """Copy ``nbytes`` (default: the rest of ``source``) from another buffer of the same device."""
        count = source.nbytes - source_offset if nbytes is None else _size(nbytes, "nbytes")
        origin = source._at(source_offset, count, "copy_from (source)")
        target = self._at(offset, count, "copy_from")
        if count:
            arguments = (target, self.nbytes - offset, origin, count, DEVICE_TO_DEVICE)
            transfer(self.runtime, "aclrtMemcpy", arguments, self.device, stream, (self._kept, source._kept))

    def fill(
        self, value: int = 0, nbytes: int | None = None, *, offset: int = 0, stream: AnyStream | None = None
    ) -> None:
        """Set ``nbytes`` bytes (default: the rest) to the low byte of ``value``."""
        count = self.nbytes - offset if nbytes is None else _size(nbytes, "nbytes")
        target = self._at(offset, count, "fill")
        if count:
            arguments = (target, self.nbytes - offset, value, count)
            transfer(self.runtime, "aclrtMemset", arguments, self.device, stream, self._kept)

    @property
    def _kept(self) -> Any:
        return self._block or self.owner

    def _at(self, offset: int, count: int, doing: str) -> Any:
        if self._closed or (self.nbytes and not self.pointer):
            raise ValueError(f"{doing}: the DeviceBuffer is closed")
        if offset < 0 or count < 0 or offset + count > self.nbytes:
            raise ValueError(f"{doing}: bytes {offset} to {offset + count} of a DeviceBuffer of {self.nbytes} bytes")
        return ffi.cast("char *", self.pointer) + offset


class HostBuffer(Closing):
    """Pinned host memory: copies between it and a device are really asynchronous.

    ``numpy.asarray(buffer)`` is a uint8 view that keeps the buffer alive; it must not be used after ``close()``.

    Parameters
    ----------
    runtime : Runtime
        What to allocate with.
    nbytes : int
        Size; 0 allocates nothing.
    device : int
        The device whose context allocates.

    Examples
    --------
    >>> host = HostBuffer(runtime, 16)                          # doctest: +SKIP
    >>> np.asarray(host).view(np.float32)[:] = 1                # doctest: +SKIP
    """

    nbytes = 0
    device = 0
    _block: Block | None = None

    def __init__(self, runtime: Runtime, nbytes: int, device: int = 0) -> None:
        self.runtime = runtime
        self.nbytes = _size(nbytes, "nbytes")
        self.device = device
        self._block = Block(runtime, self.nbytes, device, pinned=True)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What NumPy builds a view from."""
        if self._block is None:
            raise ValueError("the HostBuffer is closed")
        address = int(ffi.cast("uintptr_t", self._block.pointer))
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}

    def close(self) -> None:
        """Free the memory, once streams with parked work have passed. A second call does nothing."""
        block, self._block = self._block, None
        if block is not None:
            self.runtime.defer(block, self.device, self.nbytes)


def transfer(
    runtime: Runtime,
    name: str,
    arguments: tuple[Any, ...],
    device: int,
    stream: AnyStream | None = None,
    kept: Any = None,
) -> None:
    """Call ``aclrtMemcpy`` or ``aclrtMemset`` on a device, or its ``Async`` form on a stream.

    Parameters
    ----------
    name : str
        The C function without ``Async``.
    arguments : tuple
        Its C arguments without the stream.
    device : int
        Made current for the call.
    stream : Stream, optional
        Where to enqueue; None waits, but not for work queued on streams.
    kept : object
        Parked on the stream.
    """
    with runtime.on_device(device):
        if stream is None:
            errors.check(getattr(runtime.api, name)(*arguments), name)
            return
        queue = stream.resolve()
        errors.check(getattr(runtime.api, name + "Async")(*arguments, queue.handle), name + "Async")
        queue.park(kept)


def host_pointer(array: Any, *, writable: bool) -> tuple[Any, int]:
    """Give address and size of C-contiguous host memory.

    NumPy arrays go through their own interface: those of ml_dtypes have no buffer protocol.
    """
    interface = getattr(array, "__array_interface__", None)
    if interface is None:
        view = ffi.from_buffer(array, require_writable=writable)
        return view, len(view)
    flags = getattr(array, "flags", None)  # the interface may give strides of a contiguous array
    if not (interface.get("strides") is None if flags is None else flags.c_contiguous):
        raise ValueError(f"the host array must be C-contiguous; strides are {interface['strides']}")
    address, read_only = interface["data"]
    if writable and read_only:
        raise ValueError("the host array is read-only")
    return ffi.cast("void *", address), array.nbytes


def _size(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: got {type(value).__name__}, expected an int")
    if value < 0:
        raise ValueError(f"{name}: got {value}, expected 0 or more")
    return value
