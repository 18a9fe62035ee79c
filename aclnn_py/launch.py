"""One call of an operator through the C API: descriptors, both stages, and what must stay alive until when.

The rules (a composite executor points to the caller's aclTensors and into its thread's cache):

* descriptors live until the executor is gone: stage two reads them, and may write a view shape back to them;
* data and workspace live until the stream has passed: they are parked on it;
* a failed stage one leaves nothing to destroy, whatever it wrote to ``*executor``;
* stage two consumes a plain executor whatever it returns; one that never got there is destroyed once, on its thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from . import errors
from ._ffi import ffi
from .arguments import warn_open_range
from .backends import NativeBackend
from .descriptors import BY_VALUE, Descriptor, make, view_shape
from .device_array import DeviceArray
from .formats import device_copy, format_of, storage_of
from .runtime import Block, Stream
from .signatures import Signature, is_builtin

_UNREPEATABLE = 561000
_OFF = frozenset((b"", b"0", b"false", b"no", b"off"))
_BLOCKING, _BLOCKING_OF_CANN = b"ACLNN_PY_LAUNCH_BLOCKING", b"ASCEND_LAUNCH_BLOCKING"
# read at every launch: CPython's own dictionary of the environment, since a miss through its wrapper takes 1 µs
_environment: Mapping[bytes, bytes] = getattr(os.environb, "_data", os.environb)
_LARGEST_WORKSPACE = 1 << 62  # beyond any device; a broken library must not overflow the allocator's arithmetic


class _OutParameters(threading.local):
    def __init__(self) -> None:
        self.pair = ffi.new("uint64_t *"), ffi.new("aclOpExecutor **")


_out = _OutParameters()


def launch_blocking() -> bool:
    """Whether every run waits, so that a fault names its operator."""
    ours, cann = _environment.get(_BLOCKING), _environment.get(_BLOCKING_OF_CANN)
    if ours is None and cann is None:  # the path of nearly every call
        return False
    return any(value is not None and value.lower() not in _OFF for value in (ours, cann))


class _HostTensor:
    """A NumPy argument and its device copy."""

    __slots__ = ("array", "device", "output")

    def __init__(self, array: np.ndarray[Any, Any], device: DeviceArray, output: bool) -> None:
        self.array = array
        self.device = device
        self.output = output


class DeviceCall:
    """The C side of one Executor."""

    reuse = "single"
    workspace_size = 0
    fills_host_arrays = False
    _repeatable = False
    _executor: Any = None
    _in_flight = False
    _queue: Stream | None = None  # what the last run was queued on: a foreign stream may change its handle
    _block: Block | None = None  # workspace that a repeatable executor keeps
    _descriptors: list[Descriptor] | None = None  # of all kinds but tensors
    _pointers: Sequence[Any] = ()
    _buffers: Sequence[Any] = ()  # what the stream needs: the memory of all tensors
    _nbytes = 0

    def __init__(
        self, backend: NativeBackend, signature: Signature, values: list[Any], stream: Any, repeatable: bool
    ) -> None:
        self.device = backend.device
        if repeatable:
            self.reuse, self._repeatable = "fresh", True
        self._api = backend.api
        self._runtime = backend.runtime
        self._signature = signature
        self._name = signature.name
        self._given = stream
        self._stream: Any = None if stream is None else backend.stream(stream)
        self._thread = threading.get_ident()
        self._blocking = launch_blocking()
        self._hosts: dict[tuple[Any, ...], _HostTensor] = {}
        self._values = values
        self._tensors: list[Any] = []  # aclTensor pointers of tensor arguments; the commonest kind, so no owner each
        self._plan = backend.plan(signature)
        if "WithEp" in signature.name:
            warn_open_range(signature, values)
        previous = self._runtime.switch(self.device)
        try:
            self._describe()
            if self._stream is None:
                self._stream = backend.stream()
            self._stage_one()
        except BaseException:
            self.close()
            raise
        finally:
            if previous is not None:
                self._runtime.restore(previous)
        _live.add(self)
        if not _at_exit:
            _at_exit.append(_close_all)
            self._runtime.before_exit(_close_all)

    @cached_property
    def _outputs(self) -> tuple[str, ...] | None:
        """Names of what is written; None when unknown: C types do not tell, so every writable array is fetched."""
        return self._signature.outputs if is_builtin(self._signature) else None

    # -- arguments

    def _place(self, name: str, value: Any) -> Any:
        """Return the device array of a tensor argument: itself, or the copy that a NumPy array gets."""
        if isinstance(value, np.ndarray):
            return self._host_tensor(name, value).device
        if isinstance(value, DeviceArray) and (
            value.buffer.runtime is not self._runtime or value.buffer.device != self.device
        ):
            raise ValueError(
                f"{self._name}: argument {name!r} is on device {value.buffer.device}, the call on {self.device}"
            )
        queue = getattr(value, "queue", None)
        if queue is not None:
            self._stream = queue(self._given)  # an array of another package: on that package's streams
        return value

    def _host_tensor(self, name: str, array: np.ndarray[Any, Any]) -> _HostTensor:
        """Allocate the device copy; arguments that are the same memory share it, as they would on a device."""
        writable = array.flags.writeable
        output = writable if self._outputs is None else name in self._outputs
        if output and not writable:
            raise ValueError(f"{self._name}: output {name!r} is read-only")
        key = (array.ctypes.data, array.shape, array.strides, array.dtype, format_of(array))
        host = self._hosts.get(key) if array.size else None
        if host is None:
            host = _HostTensor(storage_of(array), device_copy(self._runtime, array, self.device), output)
            self._hosts[key if array.size else (id(host),)] = host
        host.output = host.output or output
        self.fills_host_arrays |= output
        return host

    def _describe(self) -> None:
        """Place all arguments on the device and create their C objects."""
        pointers: list[Any] = []
        values = self._values
        create, tensors = self._api.aclCreateTensor, self._tensors
        runtime, device = self._runtime, self.device
        buffers: list[Any] = []
        nbytes = 0
        for index, kind in enumerate(self._signature.kinds):
            value = values[index]
            if value is None:
                pointers.append(ffi.NULL)
            elif kind == "tensor":
                buffer = value.buffer if type(value) is DeviceArray else None
                if buffer is None or buffer.runtime is not runtime or buffer.device != device:
                    value = values[index] = self._place(self._signature.parameters[index].name, value)
                    buffer = value.buffer
                buffers.append(buffer)
                nbytes += buffer.nbytes
                block = buffer._block  # what value.descriptor looks at, without its call
                made = value._descriptor if block is not None and block.runtime is not None else None
                pointer = create(*(made or value.descriptor))
                if not pointer:
                    name = self._signature.parameters[index].name
                    raise errors.AclnnError(None, "aclCreateTensor", detail=f"NULL for {name!r}, {value!r}")
                tensors.append(pointer)
                pointers.append(pointer)
            elif kind in BY_VALUE:
                # a string is a private copy: some prototypes take char *, not const char *
                pointers.append(ffi.new("char[]", value) if kind == "string" else value)
            else:
                if kind == "tensor_list":
                    name = self._signature.parameters[index].name
                    values[index] = value = tuple(self._place(name, item) for item in value)
                    buffers += [item.buffer for item in value if item is not None]
                descriptor = make(self._api, kind, value)
                if self._descriptors is None:
                    self._descriptors = []
                self._descriptors.append(descriptor)
                pointers.append(descriptor.pointer)
        self._pointers, self._buffers, self._nbytes = pointers, buffers, nbytes

    # -- the two stages

    def _stage_one(self) -> None:
        size, executor = _out.pair
        executor[0] = ffi.NULL
        code = self._plan[0](*self._pointers, size, executor)
        if code:
            errors.check(code, self._name, "GetWorkspaceSize")
        self._executor = executor[0]
        self.workspace_size = size[0]
        if self._repeatable:
            # at once and on this thread: it snapshots what this thread's last stage one left behind
            code = self._api.aclSetAclOpExecutorRepeatable(self._executor)
            if code not in (0, _UNREPEATABLE):
                errors.check(code, self._name, "aclSetAclOpExecutorRepeatable")
            self.reuse = "fresh" if code else "repeatable"
            self._repeatable = code == 0

    def run(self) -> None:
        """Upload NumPy arguments and enqueue the operator."""
        if self.workspace_size > _LARGEST_WORKSPACE:
            detail = f"stage one asked for a workspace of {self.workspace_size} bytes"
            errors.check(207001, self._name, "workspace", detail=detail)
        previous = self._runtime.switch(self.device)
        try:
            queue = self._stream.resolve()
            if self._executor is None:  # not repeatable: stage two consumed the last one
                if not self._pointers:  # a rebind failed half-way
                    self._drop_descriptors()
                    self._describe()
                self._stage_one()
            if self._hosts:
                if self._queue is not None and self._in_flight:
                    self._queue.synchronize()  # a blocking copy is not ordered after what the stream still does
                self._upload()
            if self._queue is None:
                self._queue = queue
            elif self._queue is not queue:
                self._move_to(queue)
            if self.reuse == "repeatable":
                self._run_again(queue)
            else:
                self._run_once(queue)
            if self._blocking:
                self._wait("run (blocking)")
        finally:
            if previous is not None:
                self._runtime.restore(previous)

    def _move_to(self, queue: Stream) -> None:
        """Run on another stream from now on; a repeatable executor may run only once at a time."""
        assert self._queue is not None
        before, self._queue = self._queue, queue
        if self._block is not None:
            before.synchronize()
            before.release(self._block)
            self._block = None

    def _run_once(self, queue: Stream) -> None:
        block = queue.acquire(self.workspace_size)
        executor, self._executor = self._executor, None
        try:
            code = self._plan[1](block.pointer, self.workspace_size, executor, queue.handle)
            if code:
                errors.check(code, self._name, "run")
        finally:
            # also after a failure: some of it may have been enqueued
            self._in_flight = True
            queue.release(block)
            queue.park(self._buffers, self._nbytes)

    def _run_again(self, queue: Stream) -> None:
        """Run a repeatable executor: what it uses stays with it, and is parked when it is replaced or closed."""
        if self._block is None:
            self._block = queue.acquire(self.workspace_size)
        self._in_flight = True
        code = self._plan[1](self._block.pointer, self.workspace_size, self._executor, queue.handle)
        if code:
            errors.check(code, self._name, "run")

    def _upload(self) -> None:
        for host in self._hosts.values():
            host.device.buffer.copy_from_host(np.ascontiguousarray(host.array))

    def _wait(self, stage: str) -> None:
        try:
            (self._queue or self._stream).synchronize()
        except errors.AclnnError as error:
            if error.code is None:
                raise
            detail = f"{error.detail}\nan asynchronous fault, of this or of earlier work on the stream".lstrip("\n")
            if stage == "synchronize":
                detail += f"; first seen when waiting after {self._name}"
            errors.check(error.code, self._name, stage, detail=detail)

    def synchronize(self) -> None:
        """Wait for the stream and fill NumPy outputs: all of them or, if fetching fails, none."""
        self._wait("synchronize")
        if not self._in_flight:
            return
        self._in_flight = False
        fetched = []
        for host in self._hosts.values():
            if host.output:
                result = np.empty(host.array.shape, host.array.dtype)
                host.device.buffer.copy_to_host(result)
                fetched.append((host.array, result))
        # Of arrays that share memory, one that the operator did not change must not undo another's result.
        if self._outputs is None and len(fetched) > 1:
            fetched = [pair for pair in fetched if pair[0].tobytes() != pair[1].tobytes()]
        for array, result in fetched:
            np.copyto(array, result)

    def view_shape(self, name: str) -> tuple[int, ...]:
        """Read a tensor's present shape: operators whose output shape depends on data set it in stage two."""
        index = [parameter.name for parameter in self._signature.parameters].index(name)
        return view_shape(self._runtime.libraries, self._pointers[index])

    def rebind(self, rows: Sequence[tuple[int, Any]]) -> None:
        """Replace tensors, by position, by others of the same kind, shape and dtype (checked by the caller)."""
        for index, new in rows:
            old = self._values[index]
            if format_of(new) != format_of(old):
                name = self._signature.parameters[index].name
                raise ValueError(f"{self._name}: rebind({name}=...) needs the same format and storage shape")
            if isinstance(new, DeviceArray) and (
                new.strides != old.strides or new.offset != old.offset or new.buffer.nbytes != old.buffer.nbytes
            ):
                name = self._signature.parameters[index].name
                raise ValueError(f"{self._name}: rebind({name}=...) needs the same strides, offset and buffer size")
        previous = self._runtime.switch(self.device)
        try:
            for index, new in rows:
                self._rebind(index, new)
        finally:
            if previous is not None:
                self._runtime.restore(previous)

    def _rebind(self, index: int, value: Any) -> None:
        old = self._values[index]
        if self._in_flight and self._queue is not None:
            self._queue.park(old.buffer, old.buffer.nbytes)  # the stream may still need what goes
        if isinstance(value, np.ndarray) and sum(item is old for item in self._values) == 1:
            for key, host in list(self._hosts.items()):
                if host.device is old:  # same device copy, other content
                    self._hosts[key] = _HostTensor(storage_of(value), old, host.output)
            return
        if isinstance(value, np.ndarray) or self.reuse != "repeatable" or self._outputs is None:
            self._values[index] = value
            self._replace_executor()
            return
        if value.buffer.runtime is not self._runtime or value.buffer.device != self.device:
            self._place(self._signature.parameters[index].name, value)
        written, position = self._signature.tensor_slots[self._signature.parameters[index].name]
        setter = self._api.aclSetOutputTensorAddr if written else self._api.aclSetInputTensorAddr
        code = setter(self._executor, position, self._pointers[index], value.buffer.pointer)
        if code:
            errors.check(code, self._name, "rebind")
        self._values[index] = value

    def _replace_executor(self) -> None:
        """Start over with the present arguments: for executors whose addresses are fixed at stage one."""
        self._destroy_executor()
        self._drop_descriptors()
        self._describe()
        self._stage_one()

    # -- release

    def _drop_descriptors(self) -> None:
        tensors, self._tensors = self._tensors, []
        self._pointers = ()
        destroy = self._api.aclDestroyTensor
        for pointer in tensors:
            destroy(pointer)
        if self._descriptors:
            descriptors, self._descriptors = self._descriptors, None
            for descriptor in descriptors:
                descriptor.close()

    def _destroy_executor(self) -> None:
        executor, self._executor = self._executor, None
        if executor is None:
            return
        if threading.get_ident() != self._thread:
            return  # it points into the cache of its own thread, which may have ended: leaked, not corrupted
        with self._runtime.cleanup(self.device) as api:
            if api:
                self._runtime.warn_on(api.aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor")

    def close(self) -> None:
        """Release everything once; never raises and does not wait for the stream."""
        _live.discard(self)
        block, self._block = self._block, None
        if block is not None:  # of a repeatable executor: the stream may still need it, and the data
            with contextlib.suppress(errors.AclnnError, ValueError):  # a stream that was closed has waited
                queue = self._queue or self._stream.resolve()
                queue.release(block)
                arrays = (item for v in self._values for item in (v if type(v) is tuple else (v,)))
                queue.park([item.buffer for item in arrays if isinstance(item, DeviceArray)], self._nbytes)
        if self._executor is not None:
            self._destroy_executor()
        self._drop_descriptors()
        if self._hosts:
            hosts, self._hosts = self._hosts, {}
            for device in {id(host.device): host.device for host in hosts.values()}.values():
                device.buffer.close()  # left to the stream while that is busy
        self._values = []
        self._buffers = ()


# what is still open at exit goes before the memory, streams and devices that it uses
_live: set[DeviceCall] = set()
_at_exit: list[object] = []


def _close_all() -> None:
    for call in list(_live):
        call.close()
