"""Events: marks in streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from ._ffi import ffi
from ._memory import Closing

if TYPE_CHECKING:
    from ._streams import AnyStream
    from .runtime import Runtime

TIME_LINE = 0x8  # event flag: needed for elapsed time
RECORDED = 1  # aclrtEventRecordedStatus; the stream has passed the event


def timeout(milliseconds: int | None) -> int:
    if milliseconds is None:
        return -1
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int) or milliseconds < 0:
        raise ValueError(f"timeout_ms: got {milliseconds!r}, expected None or an int of 0 or more")
    return milliseconds


class Event(Closing):
    """A mark in a stream.

    Parameters
    ----------
    runtime : Runtime
        What to create it with.
    device : int
        Device number.
    flags : int, optional
        Event flags; then elapsed time needs TIME_LINE (0x8) among them. Default: a plain event, which has it.

    Examples
    --------
    >>> start, end = Event(runtime), Event(runtime)             # doctest: +SKIP
    >>> start.record(stream); end.record(stream); end.synchronize()     # doctest: +SKIP
    >>> start.elapsed_time_ms(end)                              # doctest: +SKIP
    """

    rank = 1
    handle = ffi.NULL

    def __init__(self, runtime: Runtime, device: int = 0, flags: int | None = None) -> None:
        self.runtime = runtime
        self.device = device
        self.flags = flags
        out = ffi.new("aclrtEvent *")
        with runtime.on_device(device):
            if flags is None:
                errors.check(runtime.api.aclrtCreateEvent(out), "aclrtCreateEvent")
            else:
                errors.check(runtime.api.aclrtCreateEventWithFlag(out, flags), "aclrtCreateEventWithFlag")
        self.handle = out[0]
        runtime.watch(self)

    def _open(self, doing: str) -> Any:
        if not self.handle:
            raise ValueError(f"{doing}: the Event is closed")
        return self.handle

    def record(self, stream: AnyStream) -> None:
        """Mark the present end of a stream's work."""
        stream = stream.resolve()
        with self.runtime.on_device(self.device):
            code = self.runtime.api.aclrtRecordEvent(self._open("record"), stream.handle)
            errors.check(code, "aclrtRecordEvent")

    def query(self) -> bool:
        """Tell whether the stream has passed the mark."""
        status = ffi.new("aclrtEventRecordedStatus *")
        with self.runtime.on_device(self.device):
            code = self.runtime.api.aclrtQueryEventStatus(self._open("query"), status)
            errors.check(code, "aclrtQueryEventStatus")
        return bool(status[0] == RECORDED)

    def synchronize(self, timeout_ms: int | None = None) -> None:
        """Wait until the stream has passed the mark.

        Raises
        ------
        DeviceTimeoutError
            After ``timeout_ms`` milliseconds; None waits for ever.
        """
        limit, api = timeout(timeout_ms), self.runtime.api
        with self.runtime.on_device(self.device):
            if limit < 0:
                errors.check(api.aclrtSynchronizeEvent(self._open("synchronize")), "aclrtSynchronizeEvent")
            else:
                code = api.aclrtSynchronizeEventWithTimeout(self._open("synchronize"), limit)
                errors.check(code, "aclrtSynchronizeEventWithTimeout")

    def elapsed_time_ms(self, end: Event) -> float:
        """Give the milliseconds from this mark to ``end``; both must have been passed.

        Raises
        ------
        ValueError
            An event was created with flags that lack TIME_LINE.
        AclnnError
            An event was not recorded or not passed.
        """
        for name, event in (("start", self), ("end", end)):
            if event.flags is not None and not event.flags & TIME_LINE:
                raise ValueError(f"{name} event: flags {event.flags:#x} lack TIME_LINE ({TIME_LINE:#x})")
        out = ffi.new("float *")
        with self.runtime.on_device(self.device):
            code = self.runtime.api.aclrtEventElapsedTime(out, self._open("elapsed time"), end._open("elapsed time"))
            errors.check(code, "aclrtEventElapsedTime")
        return float(out[0])

    def close(self) -> None:
        """Destroy the event; a second call does nothing."""
        handle, self.handle = self.handle, ffi.NULL
        if handle:
            with self.runtime.cleanup(self.device) as api:
                if api:
                    self.runtime.warn_on(api.aclrtDestroyEvent(handle), "aclrtDestroyEvent")

    __del__ = close
