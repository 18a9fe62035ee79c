"""Streams: queues of device work, with the workspace and the objects that their work needs."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import errors
from ._events import RECORDED, Event, timeout
from ._ffi import ffi
from ._memory import Closing
from ._pool import Block, Pool

if TYPE_CHECKING:
    from .runtime import Runtime

_COMPLETE = 0  # aclrtStreamStatus

# Parked objects are sealed with an event in batches, by count or by bytes: an event per launch would cost more
# than the launch's own bookkeeping.
_BATCH = 32
_BATCH_BYTES = 16 << 20


class Stream(Closing):
    """A queue of device work, with the workspace pool and the objects that its queued work needs.

    Made by ``Runtime.create_stream`` (own), ``Runtime.default_stream`` and ``Runtime.stream`` (a handle of someone
    else's stream, which is never destroyed here). Work of two streams is not ordered; use an :class:`Event`.

    Parameters
    ----------
    runtime : Runtime
        What it belongs to.
    device : int
        Device number.
    handle : cdata
        ``aclrtStream``; NULL is the default stream of the device's context.
    owned : bool
        Whether ``close()`` destroys the handle.

    Examples
    --------
    >>> with runtime.create_stream() as stream:         # doctest: +SKIP
    ...     stream.synchronize()
    """

    rank = 2
    owned = False
    _closed = True

    def __init__(self, runtime: Runtime, device: int, handle: Any, *, owned: bool) -> None:
        self.runtime = runtime
        self.device = device
        self.handle = handle
        self.pool = Pool()
        self._lock = threading.RLock()
        self._parked: list[Any] = []
        self._parked_bytes = 0
        self._sealed: deque[tuple[Any, list[Any]]] = deque()  # (event, or None: wait for it; objects)
        self._spare: list[Any] = []  # events for reuse
        self._syncing = 0
        self.owned = owned
        self._closed = False
        runtime.watch(self)

    def __repr__(self) -> str:
        """Name handle, device and ownership."""
        state = "closed" if self._closed else "own" if self.owned else "foreign" if self.handle else "default"
        return f"<Stream {int(ffi.cast('uintptr_t', self.handle)):#x} on device {self.device}, {state}>"

    def __aclrt_stream__(self) -> int:
        """Give the handle to other packages."""
        return int(ffi.cast("uintptr_t", self.resolve().handle))

    @property
    def closed(self) -> bool:
        """Whether the stream was closed."""
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether objects are parked here that the stream may still need."""
        return bool(self._parked or self._sealed or self._syncing)

    def resolve(self) -> Stream:
        """Give the stream to launch on now: itself, if it is open."""
        if self._closed:
            raise ValueError("the Stream is closed")
        return self

    def acquire(self, nbytes: int) -> Block:
        """Take workspace for work that will be queued here.

        Parameters
        ----------
        nbytes : int
            Least size; 0 gives a block whose pointer is NULL.

        Returns
        -------
        Block
            ``.pointer`` and ``.nbytes``; give it to :meth:`release` once the work is queued.
        """
        try:  # nearly always: the same call as before
            return self.pool.ready[nbytes].pop()
        except (KeyError, IndexError):
            block = self.pool.take(nbytes)
        if block is None:
            if not nbytes:
                return Block(self.runtime, 0, self.device)
            block = Block(self.runtime, Pool.rounded(nbytes), self.device)
            for evicted in self.pool.adopt(nbytes, block):
                self.park(evicted, evicted.nbytes)
        return block

    def release(self, block: Block) -> None:
        """Give workspace back; only work queued here later gets it."""
        if block.home is not None and not self._closed:
            block.home.append(block)
        elif block.nbytes:
            self.park(block, block.nbytes)

    def park(self, objects: Any, nbytes: int = 0) -> None:
        """Keep objects alive until the stream has passed everything queued so far.

        They are dropped by a later call on this stream, at the latest by :meth:`synchronize` or :meth:`close`.

        Parameters
        ----------
        objects : object
            Anything; usually a tuple.
        nbytes : int
            Roughly the device memory they hold: much of it is looked after sooner.
        """
        if self._closed:
            return  # close() has waited
        parked = self._parked
        parked.append(objects)
        self._parked_bytes += nbytes
        if len(parked) >= _BATCH or self._parked_bytes >= _BATCH_BYTES:
            self._look_after()

    def _look_after(self) -> None:
        with self._lock:
            dropped = self._passed()
            self._seal()
        del dropped  # outside the lock: it frees memory

    def _seal(self) -> None:
        """Record an event behind what is parked. Failing is no harm: synchronize() and close() drop it all.

        park() takes no lock. Who still appends to the old list has launched before it was replaced, and so before
        the event is recorded.
        """
        api = self.runtime.api
        with suppress(errors.AclnnError), self.runtime.on_device(self.device):
            if not self._spare:
                out = ffi.new("aclrtEvent *")
                if api.aclrtCreateEvent(out):
                    return
                self._spare.append(out[0])
            parked, self._parked, self._parked_bytes = self._parked, [], 0
            if api.aclrtRecordEvent(self._spare[-1], self.handle) == 0:
                self._sealed.append((self._spare.pop(), parked))
            else:
                self._parked.extend(parked)

    def _passed(self) -> list[Any]:
        """Take out the objects of every event that the stream has passed."""
        dropped: list[Any] = []
        status = ffi.new("aclrtEventRecordedStatus *")
        while self._sealed and self._sealed[0][0] is not None:
            code = self.runtime.api.aclrtQueryEventStatus(self._sealed[0][0], status)
            if code or status[0] != RECORDED:
                break
            event, objects = self._sealed.popleft()
            self._spare.append(event)
            dropped.append(objects)
        return dropped

    def reclaim(self) -> None:
        """Drop the parked objects that the stream has passed, without waiting."""
        with self._lock, self.runtime.on_device(self.device):
            dropped = self._passed()
            if self._parked:
                self._seal()
        del dropped

    def synchronize(self, timeout_ms: int | None = None) -> None:
        """Wait for the work queued here, and drop what was parked for it.

        Parameters
        ----------
        timeout_ms : int, optional
            Milliseconds; None waits for ever.

        Raises
        ------
        DeviceTimeoutError
            The time is over; the work goes on.
        DeviceFaultError
            Work queued earlier failed on the device.
        """
        limit, runtime, handle = timeout(timeout_ms), self.runtime, self.resolve().handle
        with self._lock:
            waiting = [*self._sealed, (None, self._parked)] if self._parked else list(self._sealed)
            self._sealed, self._parked, self._parked_bytes = deque(), [], 0
            self._syncing += 1
        code, previous = -1, None
        try:
            previous = runtime.switch(self.device)
            if limit < 0:
                code = runtime.api.aclrtSynchronizeStream(handle)
            else:
                code = runtime.api.aclrtSynchronizeStreamWithTimeout(handle, limit)
            if code:
                name = "aclrtSynchronizeStream" + ("WithTimeout" if limit >= 0 else "")
                errors.check(code, name, "synchronize")
        finally:
            if previous is not None:
                runtime.restore(previous)
            with self._lock:
                self._syncing -= 1
                if code:
                    self._sealed.extendleft(reversed(waiting))
                else:
                    self._spare.extend(event for event, _ in waiting if event is not None)

    def query(self) -> bool:
        """Tell whether all work queued here is done."""
        status = ffi.new("aclrtStreamStatus *")
        with self.runtime.on_device(self.device):
            errors.check(self.runtime.api.aclrtStreamQuery(self.resolve().handle, status), "aclrtStreamQuery")
        return bool(status[0] == _COMPLETE)

    def wait_event(self, event: Event) -> None:
        """Make work queued here later wait for an event of another stream."""
        with self.runtime.on_device(self.device):
            code = self.runtime.api.aclrtStreamWaitEvent(self.resolve().handle, event._open("wait_event"))
            errors.check(code, "aclrtStreamWaitEvent")
        self.park((event,))

    def trim(self) -> None:
        """Wait for the stream, then free its workspace pool and everything parked."""
        blocks = self.pool.detach()  # those that come back while waiting are newer than the wait
        try:
            if blocks or self.busy:
                self.synchronize()
        except errors.AclnnError:
            for block in blocks:  # a new pool takes them in
                self.pool.adopt(block.nbytes, block)
                self.release(block)
            raise
        for block in blocks:
            block.close()

    def close(self) -> None:
        """Wait for an own stream and destroy it; free pool and parked objects. Warns, never raises.

        The default stream and streams of others are only trimmed, and stay usable.
        """
        if self._closed:
            return
        self._closed = self.owned
        with self.runtime.cleanup(self.device) as api:
            if api:
                if self.owned or self.busy or self.pool.cached:
                    code = api.aclrtSynchronizeStream(self.handle)
                    self.runtime.warn_on(code, "aclrtSynchronizeStream at close")
                events = [*self._spare, *(event for event, _ in self._sealed if event is not None)]
                for event in events:
                    self.runtime.warn_on(api.aclrtDestroyEvent(event), "aclrtDestroyEvent")
                if self.owned:
                    self.runtime.warn_on(api.aclrtDestroyStream(self.handle), "aclrtDestroyStream")
        with self._lock:
            self._spare.clear()
            blocks = self.pool.detach()
            dropped = [*self._sealed, self._parked]
            self._sealed, self._parked, self._parked_bytes = deque(), [], 0
        for block in blocks:
            block.close()
        del dropped

    def __del__(self) -> None:
        """Close what the owner forgot to close."""
        if self.owned and not self._closed:
            if self.runtime.alive:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self.close()


class ForeignStream:
    """A stream of another package, told by an object whose handle is read at each launch.

    Reading it has an effect: torch_npu drains its task queue then, which is what orders a launch after torch's.

    Parameters
    ----------
    runtime : Runtime
        What launches on it.
    device : int
        Device number.
    source : object
        Has ``__aclrt_stream__()`` or ``npu_stream``.
    """

    def __init__(self, runtime: Runtime, device: int, source: Any) -> None:
        self.runtime = runtime
        self.device = device
        self.source = source

    def resolve(self) -> Stream:
        """Read the handle and give the stream to launch on now."""
        protocol = getattr(self.source, "__aclrt_stream__", None)
        handle = self.source.npu_stream if protocol is None else protocol()
        return self.runtime.stream_of(handle, self.device)

    @property
    def handle(self) -> Any:
        """The ``aclrtStream``, read now."""
        return self.resolve().handle

    def synchronize(self, timeout_ms: int | None = None) -> None:
        """Wait for its work; see :meth:`Stream.synchronize`."""
        self.resolve().synchronize(timeout_ms)

    def query(self) -> bool:
        """Tell whether all its work is done."""
        return self.resolve().query()

    def wait_event(self, event: Event) -> None:
        """Make later work wait for an event."""
        self.resolve().wait_event(event)

    def trim(self) -> None:
        """Wait, then free what is kept for it."""
        self.resolve().trim()

    def close(self) -> None:
        """Do nothing: the stream is someone else's."""


AnyStream = Stream | ForeignStream
