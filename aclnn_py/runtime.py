"""The acl runtime of this process: initialisation and exit, devices per thread, and what is made on a device.

Devices, streams, events and buffers have modules of their own; import all of them from here.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from . import errors
from ._device import Device, MemoryInfo, OnDevice, product_of_soc, restore_torch, switch_torch, torch_npu
from ._events import Event
from ._ffi import ffi
from ._memory import DeviceBuffer, HostBuffer, transfer
from ._pool import Block
from ._streams import AnyStream, ForeignStream, Stream

if TYPE_CHECKING:
    from .library import Libraries

__all__ = [
    "AnyStream",
    "Block",
    "Device",
    "DeviceBuffer",
    "Event",
    "ForeignStream",
    "HostBuffer",
    "MemoryInfo",
    "Runtime",
    "Stream",
    "get_runtime",
    "product_of_soc",
    "transfer",
]

_ALREADY_INITIALISED, _ALREADY_FINALISED, _NO_CONTEXT = 100002, 100037, 107002
_OUT_OF_MEMORY = (200000, 207001, 207018)
_HBM = 1  # aclrtMemAttr
_HUGE_FIRST = 0  # aclrtMemMallocPolicy
_modules = sys.modules  # looked up at every launch


class _Thread(threading.local):
    device: int | None = None  # what this thread's context is known to be


class Runtime:
    """The acl runtime over the opened libraries; one per process, made by :func:`get_runtime`.

    It initialises at the first use that needs it, and finalises in an atexit handler.

    Attributes
    ----------
    libraries : Libraries
        What it calls.
    api : object
        ``libraries.api``.
    alive : bool
        Whether C calls may be made: initialised, not finalised, and not in a forked child.
    """

    def __init__(self, libraries: Libraries) -> None:
        self.alive = False
        self.libraries = libraries
        self.api = libraries.api
        self._pid: int | None = None
        self._closed = False
        self._owner = False
        self._shared = False
        self._lock = threading.RLock()
        self._local = _Thread()
        self._sets: dict[int, int] = {}
        self._live = tuple(weakref.WeakSet[Any]() for _ in range(3))  # by rank: memory, events, streams
        self._streams: dict[tuple[int, int], Stream] = {}  # by handle: streams that someone else owns
        self._own: weakref.WeakValueDictionary[tuple[int, int], Stream] = weakref.WeakValueDictionary()
        self._before_exit: list[Callable[[], None]] = []

    # -- initialisation and exit

    @property
    def initialised(self) -> bool:
        """Whether ``aclInit`` was called."""
        return self._pid is not None

    def ensure_initialised(self) -> None:
        """Initialise acl if nobody has; where torch_npu is imported, it goes first.

        Raises
        ------
        AclnnError
            ``aclInit`` failed, the process is exiting, or it is a forked child of one that had initialised.
        """
        if self._closed:
            raise errors.AclnnError(None, detail="the acl runtime of this process is finalised")
        if self.alive:
            return
        if self._pid is not None:
            raise errors.AclnnError(
                None,
                detail=f"process {os.getpid()} was forked from {self._pid} after acl was initialised there; "
                "a device cannot be used in it",
                hint='start workers with multiprocessing.get_context("spawn")',
            )
        with self._lock:
            if self._pid is not None:
                return
            npu = torch_npu()
            if npu is not None:
                npu.init()
            code = self.api.aclInit(ffi.NULL)
            if code not in (0, _ALREADY_INITIALISED):
                errors.check(code, "aclInit")
            self._owner = code == 0
            self._shared = code != 0
            atexit.register(self._at_exit)
            os.register_at_fork(after_in_child=self._forked)
            self._pid, self.alive = os.getpid(), True

    def _forked(self) -> None:
        self.alive = False

    def before_exit(self, callback: Callable[[], None]) -> None:
        """Call something at exit, before memory, streams and devices are released."""
        self._before_exit.append(callback)

    def _at_exit(self) -> None:
        """Release everything in CANN's order: executors, memory, events, streams, devices, acl."""
        if not self.alive:
            return
        for callback in self._before_exit:
            try:
                callback()
            except Exception as error:
                warnings.warn(f"at exit: {error}", RuntimeWarning, stacklevel=1)
        for device in list(self._sets):
            with self.cleanup(device) as api:
                if api:
                    self.warn_on(api.aclrtSynchronizeDevice(), "aclrtSynchronizeDevice at exit")
        self._close_all(None)
        if not self._other_users():  # a device that torch_npu still uses is not ours to reset
            for device in list(self._sets):
                self._reset(device)
        self._closed, self.alive = True, False
        reference = self.libraries.optional("aclFinalizeReference")
        if reference is not None:
            code = reference(ffi.new("uint64_t *"))
            if code != _ALREADY_FINALISED:
                self.warn_on(code, "aclFinalizeReference")
        elif self._owner:  # aclFinalize ignores the other users of acl
            self.warn_on(self.api.aclFinalize(), "aclFinalize")

    def watch(self, thing: Any) -> None:
        """Remember, weakly, what must be closed before the device is reset."""
        with self._lock:
            self._live[thing.rank].add(thing)

    def _watched(self, rank: int, device: int | None) -> list[Any]:
        with self._lock:
            return [thing for thing in self._live[rank] if device in (None, thing.device)]

    def _close_all(self, device: int | None) -> None:
        for rank in range(len(self._live)):
            for thing in self._watched(rank, device):
                thing.close()

    def _reset(self, device: int) -> None:
        with self._lock:
            count = self._sets.pop(device, 0)
            self._local = _Thread()  # every thread forgets what it knew
        for _ in range(count):
            self.warn_on(self.api.aclrtResetDevice(device), "aclrtResetDevice")

    def reset_device(self, device: int) -> None:
        """Wait for a device, release all that was made on it here, and give it back."""
        with self.cleanup(device) as api:
            if api:  # a device that has failed is reset all the same
                self.warn_on(api.aclrtSynchronizeDevice(), "aclrtSynchronizeDevice before a reset")
        self._close_all(device)
        for key in [key for key in self._streams if key[0] == device]:
            del self._streams[key]
        self._reset(device)

    @contextmanager
    def cleanup(self, device: int) -> Iterator[Any]:
        """Give the API for a release on a device, or None when no call may be made; failing is a warning."""
        previous = api = None
        if self.alive:
            try:
                previous = self.switch(device)
                api = self.api
            except RuntimeError as error:  # AclnnError is one, and torch's errors are
                warnings.warn(f"could not release: {error}", RuntimeWarning, stacklevel=3)
        try:
            yield api
        finally:
            if previous is not None:
                self.restore(previous)

    def warn_on(self, code: int, api: str) -> None:
        """Warn of a failed release: cleaning up must not raise over the error that led to it."""
        if code:
            message = f"{api} failed: {code} {errors.status_name(code)}: {self.libraries.recent_message()}"
            warnings.warn(message.rstrip(": "), RuntimeWarning, stacklevel=3)

    # -- devices and threads

    def _other_users(self) -> bool:
        return self._shared or "torch_npu" in _modules

    def switch(self, device: int) -> int | None:
        """Make a device current on this thread.

        Returns
        -------
        int or None
            The device that was current and has to be switched back to; None when nothing changed or the thread
            had none.
        """
        local = self._local
        current = local.device
        others = self._shared or "torch_npu" in _modules
        if current == device and self.alive and not others:
            return None
        self.ensure_initialised()
        if torch_npu() is not None:
            local.device = device
            return switch_torch(self, device)
        if current is None or others:  # another package may have set it
            current = self.current_device()
        if current != device:
            # unknown while it changes: a collection in between may come here too
            local.device = None
            errors.check(self.api.aclrtSetDevice(device), "aclrtSetDevice", f"device {device}")
            with self._lock:
                self._sets[device] = self._sets.get(device, 0) + 1
        local.device = device
        return None if current == device else current

    def restore(self, device: int) -> None:
        """Switch back; failing is a warning, since raising would lose what the caller has just made."""
        try:
            if not restore_torch(device):
                self.switch(device)
        except RuntimeError as error:
            warnings.warn(f"device {device} could not be restored: {error}", RuntimeWarning, stacklevel=3)

    def current_device(self) -> int | None:
        """Give the device of this thread, or None when it has none."""
        self.ensure_initialised()
        out = ffi.new("int32_t *")
        code = self.api.aclrtGetDevice(out)
        if code == _NO_CONTEXT:
            return None
        errors.check(code, "aclrtGetDevice")
        return int(out[0])

    def on_device(self, device: int) -> OnDevice:
        """Make a device current in a ``with`` block; the previous one comes back, also after an exception."""
        return OnDevice(self, device)

    def device_count(self) -> int:
        """Count the devices that this process may use."""
        self.ensure_initialised()
        out = ffi.new("uint32_t *")
        errors.check(self.api.aclrtGetDeviceCount(out), "aclrtGetDeviceCount")
        return int(out[0])

    def soc_name(self) -> str:
        """Give the SoC name, ``"Ascend910B1"``; empty when the driver does not tell."""
        self.ensure_initialised()
        name = self.api.aclrtGetSocName()
        return str(ffi.string(name).decode("utf-8", errors="replace")) if name else ""

    def device(self, index: int = 0) -> Device:
        """Give a device by number."""
        return Device(self, index)

    def synchronize_device(self, device: int) -> None:
        """Wait for all streams of a device."""
        with self.on_device(device):
            errors.check(self.api.aclrtSynchronizeDevice(), "aclrtSynchronizeDevice", "synchronize")

    def memory_info(self, device: int) -> MemoryInfo:
        """Give free and total memory of a device."""
        out = ffi.new("size_t[2]")
        with self.on_device(device):
            errors.check(self.api.aclrtGetMemInfo(_HBM, out, out + 1), "aclrtGetMemInfo")
        return MemoryInfo(int(out[0]), int(out[1]))

    # -- streams

    def create_stream(self, device: int = 0) -> Stream:
        """Create a stream; close it when done."""
        out = ffi.new("aclrtStream *")
        with self.on_device(device):
            errors.check(self.api.aclrtCreateStream(out), "aclrtCreateStream")
        stream = Stream(self, device, out[0], owned=True)
        self._own[device, int(ffi.cast("uintptr_t", out[0]))] = stream
        return stream

    def default_stream(self, device: int = 0) -> Stream:
        """Give the default stream of a device; always the same object."""
        return self.stream_of(0, device)

    def stream_of(self, handle: int, device: int = 0) -> Stream:
        """Give the stream of a handle that someone else made; the same object for the same handle."""
        if isinstance(handle, bool) or not isinstance(handle, int):
            raise TypeError(f"stream: got a handle of type {type(handle).__name__}, expected an int")
        own = self._own.get((device, handle))
        if own is not None and not own.closed:
            return own  # a handle that came back, through an object with __aclrt_stream__() for example
        stream = self._streams.get((device, handle))
        if stream is None:
            with self._lock:
                stream = self._streams.get((device, handle))
                if stream is None:
                    stream = Stream(self, device, ffi.cast("aclrtStream", handle), owned=False)
                    self._streams[device, handle] = stream
        return stream

    def stream(self, source: Any = None, device: int = 0) -> AnyStream:
        """Turn what a ``stream=`` argument may be into a stream.

        Parameters
        ----------
        source : None, Stream, int or object
            None for the default stream; an integer handle; an object with ``__aclrt_stream__()`` or
            ``npu_stream``, read at each launch.
        device : int
            The device it belongs to; a Stream of another device is refused.
        """
        if source is None:
            return self.default_stream(device)
        if isinstance(source, (Stream, ForeignStream)):
            if source.device != device:
                raise ValueError(f"stream: it belongs to device {source.device}, expected device {device}")
            return source
        if isinstance(source, int):
            return self.stream_of(source, device)
        if hasattr(source, "__aclrt_stream__") or hasattr(source, "npu_stream"):
            return ForeignStream(self, device, source)
        raise TypeError(
            f"stream: got {type(source).__name__}, expected None, a Stream, an int handle, or an object with "
            "npu_stream or __aclrt_stream__()"
        )

    # -- memory

    def alloc(self, nbytes: int, device: int = 0) -> DeviceBuffer:
        """Allocate device memory."""
        return DeviceBuffer(self, nbytes, device)

    def alloc_host(self, nbytes: int, device: int = 0) -> HostBuffer:
        """Allocate pinned host memory."""
        return HostBuffer(self, nbytes, device)

    def streams(self, device: int | None = None) -> list[Stream]:
        """List the streams known here, of one device or of all."""
        return self._watched(Stream.rank, device)

    def trim(self, device: int | None = None) -> None:
        """Wait for the streams and free what their pools keep; goes on after a failing stream."""
        for stream in self.streams(device):
            with suppress(errors.AclnnError):
                stream.trim()

    def malloc(self, nbytes: int, device: int, *, pinned: bool = False) -> Any:
        """Allocate; when device memory is short, once more after emptying the pools. Give a ``void *``."""
        out = ffi.new("void **")
        with self.on_device(device):
            if pinned:
                errors.check(self.api.aclrtMallocHost(out, nbytes), "aclrtMallocHost")
                return out[0]
            code = self.api.aclrtMalloc(out, nbytes, _HUGE_FIRST)
            if code in _OUT_OF_MEMORY:
                self.trim(device)
                code = self.api.aclrtMalloc(out, nbytes, _HUGE_FIRST)
            if code in _OUT_OF_MEMORY:
                detail = f"{nbytes} bytes on device {device}. {self.libraries.recent_message()}"
                errors.check(code, "aclrtMalloc", detail=detail.rstrip())
            errors.check(code, "aclrtMalloc")
        return out[0]

    def defer(self, kept: Any, device: int, nbytes: int) -> None:
        """Leave what is being closed to the streams of its device that still have parked work."""
        if self.alive:
            for stream in self.streams(device):
                if stream.busy:
                    stream.park((kept,), nbytes)


_runtime: Runtime | None = None
_runtime_lock = threading.Lock()


def get_runtime(libraries: Libraries) -> Runtime:
    """Give the runtime over the opened libraries: one per process. Initialises nothing."""
    global _runtime
    with _runtime_lock:
        if _runtime is None:
            _runtime = Runtime(libraries)
        return _runtime
