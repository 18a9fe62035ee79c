"""The runtime over the emulator, and its initialisation and exit over a stand-in that logs the calls."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cann import FINALIZE_REFERENCE, RUNTIME, cann, run

from aclnn_py import errors, library
from aclnn_py._ffi import ffi
from aclnn_py._pool import Pool
from aclnn_py.runtime import (
    Device,
    DeviceBuffer,
    Event,
    ForeignStream,
    HostBuffer,
    Runtime,
    get_runtime,
    product_of_soc,
)

pytestmark = pytest.mark.emulator


class Control:
    """The emulator's control functions."""

    def __init__(self, libraries: library.Libraries) -> None:
        def function(name: str, ctype: str) -> Any:
            return ffi.cast(ctype, libraries.symbol(f"aclnnEmulator{name}"))

        self._count = function("Count", "int64_t (*)(const char *)")
        self._fail = function("FailNext", "void (*)(const char *, int32_t, const char *)")
        self.strict = function("SetStrict", "void (*)(int)")
        self.reset = function("Reset", "void (*)(void)")
        self.calls = function("CallCount", "uint64_t (*)(void)")

    def count(self, what: str) -> int:
        return int(self._count(what.encode()))

    def fail(self, api: str, code: int, message: str = "EZ9999: injected") -> None:
        self._fail(api.encode(), code, message.encode())


@pytest.fixture(scope="module")
def runtime(emulator_lib: Path) -> Runtime:
    return get_runtime(library.open_libraries("emulator", emulator_lib))


@pytest.fixture
def emulator(runtime: Runtime) -> Iterator[Control]:
    """Give the controls, strict; afterwards nothing is left behind and no rule was broken."""
    control = Control(runtime.libraries)
    runtime.ensure_initialised()
    runtime.trim()
    gc.collect()
    control.reset()
    control.strict(1)
    kinds = ("device_bytes", "host_bytes", "streams")
    before = [control.count(kind) for kind in kinds]
    yield control
    runtime.trim()
    gc.collect()
    assert control.count("violations") == 0
    control.reset()
    assert [control.count(kind) for kind in kinds] == before


# -- devices


@pytest.mark.parametrize(
    ("name", "product"),
    [
        *((f"Ascend910B{n}", "A2") for n in ("1", "2", "2C", "3", "4", "4-1")),
        *((f"Ascend910_{n}", "A3") for n in (9391, 9392, 9381, 9382, 9372, 9362, 9363)),
        ("Ascend950DT_9581", "950"), ("Ascend950PR_9599", "950"), ("Ascend910_9599", "950"),
        ("Ascend910B", "910B"), ("Ascend910A", "910A"), ("Ascend910ProB", "910ProB"),
        ("Ascend310P3", "310P"), ("Ascend310B4", "310B"), ("Ascend350_1", "350_1"),
        ("ascend910_93", "A3"), ("ascend910b", "A2"), ("ascend950", "950"), ("ascend910b3", "A2"),
        ("A2", "A2"), ("a3", "A3"), ("950", "950"),
    ],
)  # fmt: skip
def test_product_of_soc(name: str, product: str) -> None:
    assert product_of_soc(name) == product


@pytest.mark.parametrize("name", ["", "A4", "H100", "Ascend"])
def test_product_of_something_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected A2, A3, 950 or a SoC name"):
        product_of_soc(name)


def test_device(runtime: Runtime, emulator: Control) -> None:
    device = runtime.device(0)
    assert runtime.device_count() >= 1
    assert device.product == product_of_soc(device.name)
    before = device.memory_info()
    assert 0 < before.free <= before.total
    with runtime.alloc(1 << 20):
        assert before.free - device.memory_info().free >= 1 << 20
    device.synchronize()
    assert device.memory_info() == before


@pytest.mark.parametrize(("index", "error"), [(-1, ValueError), (True, TypeError), ("0", TypeError)])
def test_device_number_is_checked(index: Any, error: type[Exception], runtime: Runtime) -> None:
    with pytest.raises(error, match="device: got"):
        Device(runtime, index)


def test_unknown_device_is_an_error_and_the_thread_keeps_its_own(runtime: Runtime, emulator: Control) -> None:
    with runtime.on_device(0):
        with pytest.raises(errors.AclnnError, match="aclrtSetDevice") as caught:
            runtime.alloc(8, device=63)
        assert caught.value.code == 107001
        assert runtime.current_device() == 0
        runtime.alloc(8).close()


def test_every_thread_gets_its_device(runtime: Runtime, emulator: Control) -> None:
    def work(number: int) -> int:
        with runtime.create_stream() as stream, runtime.alloc(8) as buffer:
            buffer.fill(number, stream=stream)
            out = np.zeros(8, np.uint8)
            buffer.copy_to_host(out, stream=stream)
            stream.synchronize()
        return int(out.sum())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(20))) == [8 * n for n in range(20)]


def test_release_on_a_thread_without_device(runtime: Runtime, emulator: Control) -> None:
    things: list[Any] = [runtime.alloc(100), runtime.alloc_host(100), runtime.create_stream()]
    thread = threading.Thread(target=lambda: [thing.close() for thing in things])
    thread.start()
    thread.join()
    assert emulator.count("device_bytes") == 0


# -- memory


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.int32).reshape(3, 4),
        np.arange(6).astype(ml_dtypes.bfloat16),
        np.float16(2.5).reshape(()),
        np.zeros((0, 4), np.float32),
        b"raw bytes",
    ],
)
@pytest.mark.parametrize("queued", [False, True])
def test_round_trip(array: Any, queued: bool, runtime: Runtime, emulator: Control) -> None:
    nbytes = len(array) if isinstance(array, bytes) else array.nbytes
    stream = runtime.default_stream() if queued else None
    with runtime.alloc(nbytes + 3) as buffer:
        buffer.fill(0xFF, stream=stream)
        buffer.copy_from_host(array, offset=2, stream=stream)
        out = np.zeros(nbytes + 3, np.uint8)
        buffer.copy_to_host(out, stream=stream)
        if stream:
            stream.synchronize()
    raw = array if isinstance(array, bytes) else array.tobytes()
    assert out.tobytes() == b"\xff\xff" + raw + b"\xff"


def test_copy_between_buffers(runtime: Runtime, emulator: Control) -> None:
    with runtime.alloc(8) as one, runtime.alloc(6) as two:
        one.copy_from_host(np.arange(8, dtype=np.uint8))
        two.fill(9)
        two.copy_from(one, 3, offset=2, source_offset=4)
        one.copy_from(two, offset=1)
        out = np.zeros(8, np.uint8)
        one.copy_to_host(out)
    assert out.tolist() == [0, 9, 9, 4, 5, 6, 9, 7]


def test_zero_bytes_make_no_call(runtime: Runtime, emulator: Control) -> None:
    runtime.default_stream()
    calls = emulator.calls()
    with runtime.alloc(0) as buffer:
        assert buffer.address == 0
        buffer.copy_from_host(np.zeros((0, 4)))
        buffer.copy_to_host(np.zeros((3, 0)), stream=runtime.default_stream())
        buffer.fill()
        buffer.copy_from(buffer)
    HostBuffer(runtime, 0).close()
    assert emulator.calls() == calls


def test_ranges_are_checked_before_any_call(runtime: Runtime, emulator: Control) -> None:
    with runtime.alloc(8) as buffer:
        for call in (
            lambda: buffer.copy_from_host(np.zeros(9, np.uint8)),
            lambda: buffer.copy_from_host(np.zeros(8, np.uint8), offset=1),
            lambda: buffer.copy_to_host(np.zeros(3, np.float32)),
            lambda: buffer.fill(0, 9),
            lambda: buffer.fill(0, offset=-1),
            lambda: buffer.copy_from(buffer, source_offset=9),
        ):
            with pytest.raises(ValueError, match="of a DeviceBuffer of 8 bytes"):
                call()
        with pytest.raises(ValueError, match="C-contiguous"):
            buffer.copy_from_host(np.zeros((2, 8), np.uint8)[:, ::2])
        read_only = np.zeros(8, np.uint8)
        read_only.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            buffer.copy_to_host(read_only)
        buffer.copy_from_host(read_only)
    for nbytes, error in ((-1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="nbytes: got"):
            runtime.alloc(nbytes)  # type: ignore[arg-type]


def test_closed_buffer_is_refused_and_close_is_idempotent(runtime: Runtime, emulator: Control) -> None:
    buffer = runtime.alloc(8)
    buffer.close()
    buffer.close()
    assert buffer.closed
    assert buffer.address == 0
    with pytest.raises(ValueError, match="closed"):
        buffer.fill()
    assert emulator.count("device_bytes") == 0


def test_dropped_buffer_is_freed(runtime: Runtime, emulator: Control) -> None:
    buffer = runtime.alloc(64)
    assert emulator.count("device_bytes") >= 64
    del buffer
    assert emulator.count("device_bytes") == 0


def test_borrowed_buffer_keeps_its_owner_and_frees_nothing(runtime: Runtime, emulator: Control) -> None:
    owner = runtime.alloc(16)
    alive = weakref.ref(owner)
    borrowed = DeviceBuffer.from_handle(runtime, owner.address + 4, 8, owner=owner)
    owner.fill(1)
    borrowed.fill(7)
    out = np.zeros(16, np.uint8)
    owner.copy_to_host(out)
    assert out.tolist() == [1] * 4 + [7] * 8 + [1] * 4
    del owner
    assert alive() is not None
    borrowed.close()
    assert alive() is None
    with pytest.raises(ValueError, match="pointer: got 0"):
        DeviceBuffer.from_handle(runtime, 0, 8)


def test_host_buffer_is_an_array(runtime: Runtime, emulator: Control) -> None:
    view = np.asarray(HostBuffer(runtime, 32)).view(np.float32)
    gc.collect()
    view[:] = np.arange(8)  # the view keeps the memory
    assert emulator.count("host_bytes") >= 32
    with runtime.create_stream() as stream, runtime.alloc(32) as buffer:
        host = HostBuffer(runtime, 32)
        buffer.copy_from_host(view, stream=stream)
        buffer.copy_to_host(host, stream=stream)
        stream.synchronize()
        assert np.asarray(host).view(np.float32).tolist() == list(range(8))
    host.close()
    with pytest.raises(ValueError, match="closed"):
        np.asarray(host)


def test_memory_is_tried_again_after_emptying_the_pools(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as stream:
        stream.release(stream.acquire(4096))
        emulator.fail("aclrtMalloc", 207001)
        runtime.alloc(8).close()
        assert stream.pool.cached == 0
        emulator.fail("aclrtMalloc", 207018)
        emulator.fail("aclrtMalloc", 207018, "EL0004: out of memory")
        with pytest.raises(errors.DeviceMemoryError, match="12345 bytes on device 0") as caught:
            runtime.alloc(12345)
        assert "EL0004" in caught.value.detail
        runtime.alloc(12345).close()


@pytest.mark.parametrize("nbytes", [1 << 50, (1 << 64) - 1])
def test_absurd_size_is_a_memory_error_with_the_number(nbytes: int, runtime: Runtime, emulator: Control) -> None:
    with pytest.raises(errors.DeviceMemoryError, match=str(nbytes)):
        runtime.alloc(nbytes)


@pytest.mark.parametrize(
    ("api", "make"),
    [
        ("aclrtMalloc", lambda rt: rt.alloc(8)),
        ("aclrtMallocHost", lambda rt: rt.alloc_host(8)),
        ("aclrtCreateStream", lambda rt: rt.create_stream()),
        ("aclrtCreateEvent", lambda rt: Event(rt)),
        ("aclrtCreateEventWithFlag", lambda rt: Event(rt, flags=8)),
    ],
)
def test_failed_constructor_leaves_nothing(api: str, make: Any, runtime: Runtime, emulator: Control) -> None:
    before = emulator.count("events")
    emulator.fail(api, 507899, "EZ9999: injected")
    with pytest.raises(errors.DeviceFaultError, match="injected") as caught:
        make(runtime)
    assert caught.value.api == api
    del caught
    gc.collect()
    assert emulator.count("events") == before
    make(runtime).close()


@pytest.mark.parametrize(
    ("api", "make"),
    [
        ("aclrtFree", lambda rt: rt.alloc(8)),
        ("aclrtFreeHost", lambda rt: rt.alloc_host(8)),
        ("aclrtDestroyStream", lambda rt: rt.create_stream()),
        ("aclrtSynchronizeStream", lambda rt: rt.create_stream()),
        ("aclrtDestroyEvent", lambda rt: Event(rt)),
    ],
)
def test_failing_release_warns_once_and_never_raises(api: str, make: Any, runtime: Runtime, emulator: Control) -> None:
    thing = make(runtime)
    emulator.fail(api, 507899)
    with pytest.warns(RuntimeWarning, match=f"{api}.* failed: 507899 .*injected"):
        thing.close()
    thing.close()


# -- streams


def test_stream(runtime: Runtime, emulator: Control) -> None:
    before = emulator.count("streams")
    with runtime.create_stream() as stream:
        assert emulator.count("streams") == before + 1
        stream.synchronize()
        stream.synchronize(timeout_ms=1000)
        assert stream.query()
        assert "own" in repr(stream)
    assert stream.closed
    stream.close()
    for call in (stream.synchronize, stream.query, stream.resolve):
        with pytest.raises(ValueError, match="closed"):
            call()
    for timeout in (-1, 1.5, True):
        with pytest.raises(ValueError, match="timeout_ms: got"):
            runtime.default_stream().synchronize(timeout)  # type: ignore[arg-type]


def test_forgotten_stream_warns_and_is_destroyed(runtime: Runtime, emulator: Control) -> None:
    before = emulator.count("streams")
    stream = runtime.create_stream()
    stream.release(stream.acquire(100))
    with pytest.warns(ResourceWarning, match="was not closed"):
        del stream
    assert emulator.count("streams") == before
    assert emulator.count("device_bytes") == 0


def test_default_stream_stays_usable_after_close(runtime: Runtime, emulator: Control) -> None:
    stream = runtime.default_stream()
    assert runtime.stream() is stream is runtime.stream(0)
    stream.release(stream.acquire(100))
    stream.close()
    assert stream.pool.cached == 0
    stream.synchronize()


class Thing:
    """Something with a weak reference."""


def test_parked_objects_live_until_the_stream_has_passed(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as stream:
        thing = Thing()
        alive = weakref.ref(thing)
        stream.park((thing,))
        del thing
        gc.collect()
        assert alive() is not None
        assert stream.busy
        stream.synchronize()
        assert alive() is None
        assert not stream.busy


def test_parking_is_bounded_without_synchronising(runtime: Runtime, emulator: Control) -> None:
    events = emulator.count("events")
    with runtime.create_stream() as stream:
        alive: list[weakref.ref[Thing]] = []
        for number in range(1000):
            thing = Thing()
            alive.append(weakref.ref(thing))
            stream.park((thing,))
            del thing
            if number % 32 == 31:
                while not stream.query():
                    pass
        assert sum(ref() is not None for ref in alive) <= 96
        assert emulator.count("events") - events <= 4
        big = Thing()
        alive = [weakref.ref(big)]
        stream.park((big,), 1 << 30)  # much memory is looked after at once
        del big
        while not stream.query():
            pass
        stream.reclaim()
        assert alive[0]() is None
    assert emulator.count("events") == events


@pytest.mark.parametrize("api", ["aclrtCreateEvent", "aclrtRecordEvent", "aclrtQueryEventStatus"])
def test_failing_event_loses_no_parked_object(api: str, runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as stream:
        thing = Thing()
        alive = weakref.ref(thing)
        if api != "aclrtQueryEventStatus":
            emulator.fail(api, 507899)
        stream.park((thing,), 1 << 30)  # so much memory calls for an event at once
        del thing
        if api == "aclrtQueryEventStatus":
            emulator.fail(api, 507899)
            stream.park(())
            stream.reclaim()
        assert alive() is not None
        stream.synchronize()
        assert alive() is None


def test_failing_wait_keeps_what_is_parked(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as stream:
        thing = Thing()
        alive = weakref.ref(thing)
        stream.park((thing,), 1 << 30)
        stream.park((thing,))
        del thing
        emulator.fail("aclrtSynchronizeStream", 507015, "EZ9999: aicore")
        with pytest.raises(errors.DeviceFaultError, match="aicore") as caught:
            stream.synchronize()
        assert caught.value.stage == "synchronize"
        emulator.fail("aclrtSynchronizeStreamWithTimeout", 507046)
        with pytest.raises(TimeoutError) as late:
            stream.synchronize(5)
        assert isinstance(late.value, errors.DeviceTimeoutError)
        del caught, late
        gc.collect()
        assert alive() is not None
        stream.synchronize()
        assert alive() is None


def test_workspace_is_reused_on_its_stream_only(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as one, runtime.create_stream() as two:
        block = one.acquire(1000)
        assert block.nbytes >= 1000
        pointer = block.pointer
        one.release(block)
        other = two.acquire(1000)
        assert other.pointer != pointer
        again = one.acquire(1001)
        assert again.pointer == pointer
        third = one.acquire(1000)
        assert third.pointer != pointer
        for stream, held in ((two, other), (one, again), (one, third)):
            stream.release(held)
        assert one.acquire(0).pointer == ffi.NULL
        one.trim()
        assert one.pool.cached == 0
        assert two.pool.cached == other.nbytes
    assert emulator.count("device_bytes") == 0


def test_pool_is_bounded(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as stream:
        stream.pool.limit = 10_000
        blocks = [stream.acquire(1000 * n) for n in range(1, 9)]
        for block in blocks:
            stream.release(block)
        del block, blocks
        assert 0 < stream.pool.cached <= 10_000
        stream.synchronize()
        assert emulator.count("device_bytes") <= 10_000 + 64 * 8
        stream.release(stream.acquire(9000))  # other sizes make room
        assert stream.pool.cached == Pool.rounded(9000)
        stream.release(stream.acquire(20_000))  # too large to keep
        stream.synchronize()
        assert stream.pool.cached == stream.pool.total == Pool.rounded(9000)


@pytest.mark.parametrize("nbytes", [1, 512, 513, 1000, 4096, 4097, 100_000, (1 << 30) + 1])
def test_pool_sizes(nbytes: int) -> None:
    size = Pool.rounded(nbytes)
    assert 0 <= size - nbytes <= max(511, nbytes / 8)
    assert size % 512 == 0
    assert Pool.rounded(size) == size


def test_failing_trim_keeps_the_pool(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as stream:
        stream.release(stream.acquire(1000))
        cached = stream.pool.cached
        emulator.fail("aclrtSynchronizeStream", 507015)
        with pytest.raises(errors.DeviceFaultError):
            stream.trim()
        assert stream.pool.cached == cached
        stream.trim()
        assert stream.pool.cached == 0


def test_block_given_back_after_close_is_freed(runtime: Runtime, emulator: Control) -> None:
    stream = runtime.create_stream()
    block = stream.acquire(1000)
    stream.close()
    stream.release(block)
    del block
    assert emulator.count("device_bytes") == 0


def test_foreign_handle_is_read_at_each_launch(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as one, runtime.create_stream() as two:
        reads = []

        class Torch:
            @property
            def npu_stream(self) -> int:
                reads.append(1)
                return (one if len(reads) < 4 else two).__aclrt_stream__()

        foreign = runtime.stream(Torch())
        assert isinstance(foreign, ForeignStream)
        first = foreign.resolve()
        before = len(reads)
        assert foreign.resolve() is first
        assert len(reads) == before + 1
        assert first.handle == one.handle
        reads += [1] * 4
        assert foreign.handle == two.handle
        with runtime.alloc(8) as buffer:
            buffer.fill(3, stream=foreign)
            foreign.synchronize()
            assert foreign.query()
        foreign.trim()
        foreign.close()
        two.synchronize()  # not destroyed


def test_what_a_stream_argument_may_be(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as own:
        handle = own.__aclrt_stream__()
        assert runtime.stream(own) is own
        assert runtime.stream(handle) is own  # a handle that came back
        protocol = SimpleNamespace(__aclrt_stream__=lambda: handle)
        assert runtime.stream(protocol).handle == own.handle
        with pytest.raises(ValueError, match="belongs to device 0, expected device 1"):
            runtime.stream(own, device=1)
    for wrong in ("0", 1.0, True, object()):
        with pytest.raises(TypeError, match="stream: got"):
            runtime.stream(wrong)
    with pytest.raises(TypeError, match="handle of type str"):
        runtime.stream(SimpleNamespace(npu_stream="1")).resolve()


def test_a_stream_of_someone_else_is_never_destroyed_here(runtime: Runtime, emulator: Control) -> None:
    made = ffi.new("aclrtStream *")
    runtime.ensure_initialised()
    with runtime.on_device(0):
        assert runtime.api.aclrtCreateStream(made) == 0
        handle = int(ffi.cast("uintptr_t", made[0]))
        stream = runtime.stream(handle)
        assert runtime.stream(handle) is stream
        stream.close()
        stream.synchronize()
        assert runtime.api.aclrtDestroyStream(made[0]) == 0


# -- events


def test_event(runtime: Runtime, emulator: Control) -> None:
    with runtime.create_stream() as one, runtime.create_stream() as two, runtime.alloc(1 << 20) as buffer:
        start, end = Event(runtime), Event(runtime, flags=0x8)
        start.record(one)
        buffer.fill(1, stream=one)
        end.record(one)
        two.wait_event(end)
        buffer.fill(2, stream=two)
        end.synchronize()
        end.synchronize(timeout_ms=1000)
        assert end.query()
        assert start.elapsed_time_ms(end) >= 0
        two.synchronize()
        out = np.zeros(1, np.uint8)
        buffer.copy_to_host(out)
        assert out[0] == 2
        untimed = Event(runtime, flags=1)
        with pytest.raises(ValueError, match="end event: flags 0x1 lack TIME_LINE"):
            start.elapsed_time_ms(untimed)
        for event in (start, end, untimed):
            event.close()
            event.close()
        for call in (end.query, end.synchronize, lambda: end.record(one), lambda: one.wait_event(end)):
            with pytest.raises(ValueError, match="Event is closed"):
                call()


def test_elapsed_time_of_an_event_never_recorded(runtime: Runtime, emulator: Control) -> None:
    with Event(runtime) as start, Event(runtime) as end, pytest.raises(errors.AclnnError) as caught:
        start.elapsed_time_ms(end)
    assert caught.value.api == "aclrtEventElapsedTime"
    emulator.reset()  # strict mode counts it


# -- processes of their own

PRELUDE = """
import gc, threading
import numpy as np
from aclnn_py._ffi import ffi
from aclnn_py.runtime import get_runtime, Event, DeviceBuffer, Stream
libs = library.open_libraries({arguments})
rt = get_runtime(libs)
def count(what):
    return int(ffi.cast("int64_t (*)(const char *)", libs.symbol("aclnnEmulatorCount"))(what.encode()))
"""


def emulated(emulator_lib: Path, home: Path, script: str, **env: object) -> Any:
    """Run a script over the emulator, strict."""
    return run(
        PRELUDE.format(arguments=f"'emulator', Path({str(emulator_lib)!r})") + script,
        home,
        {"ACLNN_EMULATOR_STRICT": 1, **env},
        flags=("-W", "error", "-X", "dev"),
    )


def test_device_is_switched_and_restored(emulator_lib: Path, tmp_path: Path) -> None:
    script = """
seen = [rt.device_count(), rt.current_device()]
def look():
    out = ffi.new("int32_t *")
    libs.api.aclrtGetDevice(out)
    return out[0]
with rt.on_device(1):
    seen.append(look())
    with rt.on_device(0):
        seen.append(look())
    seen.append(look())
    try:
        with rt.on_device(0):
            raise KeyError
    except KeyError:
        seen.append(look())
    with rt.create_stream(0) as stream, rt.alloc(1 << 20, 0) as buffer:
        seen.append(look())
        seen.append(rt.memory_info(0) != rt.memory_info(1))
        buffer.fill(stream=stream)
    seen.append(look())
assert count("violations") == 0
print(json.dumps(seen))
"""
    seen = emulated(emulator_lib, tmp_path, script, ACLNN_EMULATOR_DEVICES=2)
    assert seen == [2, None, 1, 0, 1, 1, 1, True, 1]


def test_threads_on_two_devices(emulator_lib: Path, tmp_path: Path) -> None:
    script = """
from concurrent.futures import ThreadPoolExecutor
def work(n):
    device = n % 2
    with rt.create_stream(device) as stream, rt.alloc(64, device) as buffer:
        for value in range(20):
            block = stream.acquire(1000 + value)
            buffer.fill(n, stream=stream)
            out = np.zeros(64, np.uint8)
            buffer.copy_to_host(out, stream=stream)
            stream.release(block)
            stream.synchronize()
            assert (out == n).all()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(work, range(64)))
print(json.dumps([count(what) for what in ("device_bytes", "streams", "events", "violations")]))
"""
    assert emulated(emulator_lib, tmp_path, script, ACLNN_EMULATOR_DEVICES=2) == [0, 0, 0, 0]


@pytest.mark.parametrize("release", ["del buffer", "buffer.close()", "buffer.close(); del buffer"])
@pytest.mark.parametrize("make", ["rt.alloc(1 << 20)", "DeviceBuffer.from_handle(rt, o.address, 1 << 20, owner=o)"])
def test_memory_is_freed_when_the_stream_has_passed(
    release: str, make: str, emulator_lib: Path, tmp_path: Path
) -> None:
    script = f"""
stream = rt.create_stream()
host = np.ones(1 << 20, np.uint8)
o = rt.alloc(1 << 20)
buffer = {make}
if "owner" not in {make!r}: o.close()
buffer.copy_from_host(host)
# as an operator is launched: the buffer itself is parked
assert libs.api.aclrtMemsetAsync(buffer.pointer, 1 << 20, 3, 1 << 20, stream.handle) == 0
stream.park((buffer,))
del o
{release}
gc.collect()
queued = count("device_bytes")
stream.synchronize()
gc.collect()
done = count("device_bytes")
stream.close()
print(json.dumps([queued >= 1 << 20, done, count("violations")]))
"""
    assert emulated(emulator_lib, tmp_path, script, ACLNN_EMULATOR_STREAM="deferred") == [True, 0, 0]


def test_reset_device_releases_everything(emulator_lib: Path, tmp_path: Path) -> None:
    script = """
stream, event, buffer, host = rt.create_stream(), Event(rt), rt.alloc(100), rt.alloc_host(100)
stream.release(stream.acquire(1000))
rt.default_stream().release(rt.default_stream().acquire(1000))
buffer.fill(stream=stream)
thread = threading.Thread(target=lambda: rt.alloc(8).close()); thread.start(); thread.join()
rt.device(0).reset()
left = [count(what) for what in ("device_bytes", "host_bytes", "streams", "events")]
try:
    buffer.fill()
except ValueError as error:
    left.append(str(error))
assert rt.current_device() is None
with rt.create_stream() as again, rt.alloc(8) as small:
    small.fill(stream=again)
    again.synchronize()
print(json.dumps([*left, buffer.address, count("violations")]))
"""
    assert emulated(emulator_lib, tmp_path, script) == [0, 0, 0, 0, "fill: the DeviceBuffer is closed", 0, 0]


@pytest.mark.parametrize("order", ["", "sys.modules.clear()", "threading.Thread(target=later).start()", "sys.exit(0)"])
def test_exit_with_live_objects_is_clean(order: str, emulator_lib: Path, tmp_path: Path) -> None:
    script = f"""
import time
stream, event, buffer = rt.create_stream(), Event(rt), rt.alloc(1 << 20)
cycle = [rt.create_stream(), rt.alloc(8)]; cycle.append(cycle)
buffer.copy_from_host(np.ones(1 << 20, np.uint8), stream=stream)
event.record(stream)
def later():
    time.sleep(0.3)
    rt.alloc(8)
{order}
"""
    assert emulated(emulator_lib, tmp_path, script, ACLNN_EMULATOR_STREAM="deferred") == ""  # nothing on stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("plain") / "cann"
    cann(root)
    return root


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("newer") / "cann"
    cann(root, runtime=RUNTIME + FINALIZE_REFERENCE)
    return root


def logged(root: Path, home: Path, script: str, code: int = 0, **env: object) -> tuple[list[str], str]:
    """Run a script over the logging stand-in; return its calls and what it wrote to stderr."""
    log = home / "calls"
    log.unlink(missing_ok=True)
    stderr = run(
        PRELUDE.format(arguments="") + script, home, {"ASCEND_HOME_PATH": root, "FAKE_LOG": log, **env}, code=code
    )
    return log.read_text().splitlines() if log.exists() else [], stderr


@pytest.mark.parametrize(
    ("which", "env", "finalisers"),
    [
        ("plain", {}, ["aclFinalize 0"]),
        ("plain", {"FAKE_aclInit": 100002}, []),  # aclFinalize would end it for the others
        ("newer", {}, ["aclFinalizeReference 0"]),
        ("newer", {"FAKE_aclInit": 100002}, ["aclFinalizeReference 0"]),
        ("newer", {"FAKE_aclFinalizeReference": 100037}, ["aclFinalizeReference 0"]),
    ],
)
def test_finalising(
    which: str, env: dict[str, object], finalisers: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    calls, stderr = logged(
        request.getfixturevalue(which), tmp_path, "rt.alloc(8).close(); rt.ensure_initialised()", **env
    )
    assert calls[0] == "aclInit 0"
    assert [call for call in calls if "Init" in call] == ["aclInit 0"]
    assert [call for call in calls if "Finalize" in call] == finalisers
    assert stderr == ""


def test_failing_finaliser_only_warns(plain: Path, tmp_path: Path) -> None:
    calls, stderr = logged(plain, tmp_path, "rt.alloc(8).close()", FAKE_aclFinalize=507899)
    assert calls[-1] == "aclFinalize 0"
    assert "RuntimeWarning: aclFinalize failed: 507899" in stderr


def test_exit_order(plain: Path, tmp_path: Path) -> None:
    script = """
stream, event = rt.create_stream(1), Event(rt, 1)
buffer = rt.alloc(24, 1)
rt.before_exit(lambda: libs.api.aclrtSetDevice(77))
threading.Thread(target=lambda: rt.switch(1)).start()
"""
    calls, stderr = logged(plain, tmp_path, script)
    assert calls == [
        "aclInit 0", "aclrtSetDevice 1", "aclrtCreateStream 0", "aclrtCreateEvent 0", "aclrtMalloc 24",
        "aclrtSetDevice 1", "aclrtSetDevice 77", "aclrtSynchronizeDevice 77", "aclrtFree 0", "aclrtDestroyEvent 0",
        "aclrtSynchronizeStream 0", "aclrtDestroyStream 0", "aclrtResetDevice 1", "aclrtResetDevice 1", "aclFinalize 0",
    ]  # fmt: skip
    assert stderr == ""


def test_failing_init_is_an_error_and_is_tried_again(plain: Path, tmp_path: Path) -> None:
    script = """
for _ in range(2):
    try:
        rt.alloc(8)
    except errors.AclnnError as error:
        assert error.code == 500000 and error.api == "aclInit", error
        assert not rt.initialised
    else:
        raise SystemExit("no error")
"""
    calls, stderr = logged(plain, tmp_path, script, FAKE_aclInit=500000)
    assert calls == ["aclInit 0", "aclInit 0"]
    assert stderr == ""


def test_stub_code_is_mapped(plain: Path, tmp_path: Path) -> None:
    script = """
try:
    rt.alloc(8)
except errors.StubLibraryError as error:
    assert error.code == 100039
else:
    raise SystemExit("no error")
"""
    assert logged(plain, tmp_path, script, FAKE_aclInit=100039) == (["aclInit 0"], "")


def test_looking_initialises_nothing(plain: Path, tmp_path: Path) -> None:
    script = """
library.discover()
libs.has_operator("aclnnAdd"), libs.describe(), rt.streams(), rt.default_stream(), rt.device(0), repr(rt.stream(3))
assert not rt.initialised
"""
    assert logged(plain, tmp_path, script) == ([], "")


def test_no_stray_context_on_another_device(plain: Path, tmp_path: Path) -> None:
    script = """
with rt.create_stream(3) as stream:
    rt.alloc(8, 3).close()
thread = threading.Thread(target=lambda: rt.alloc(8, 3).close()); thread.start(); thread.join()
"""
    calls, _ = logged(plain, tmp_path, script)
    assert {call for call in calls if call.startswith("aclrtSetDevice")} == {"aclrtSetDevice 3"}
    assert [call for call in calls if call.startswith("aclrtSetDevice")] == ["aclrtSetDevice 3"] * 2


def test_device_that_another_package_has_set_comes_back(plain: Path, tmp_path: Path) -> None:
    script = """
rt.alloc(8, 0).close()
libs.api.aclrtSetDevice(5)          # torch.npu.set_device(5), behind our back
rt.alloc(8, 0).close()
out = ffi.new("int32_t *"); libs.api.aclrtGetDevice(out)
assert out[0] == 5, out[0]
"""
    calls, stderr = logged(plain, tmp_path, script, FAKE_aclInit=100002)
    assert stderr == ""
    assert not any(call.startswith("aclrtResetDevice") for call in calls)  # the other one still uses the devices


def test_torch_npu_initialises_first(plain: Path, tmp_path: Path) -> None:
    script = """
import types
torch = types.ModuleType("torch")
torch.npu = types.SimpleNamespace(
    init=lambda: libs.api.aclInit(ffi.cast("char *", 1)),
    current_device=lambda: 0,
    set_device=lambda index: libs.api.aclrtSetDevice(index),
)
sys.modules["torch"], sys.modules["torch_npu"] = torch, types.ModuleType("torch_npu")
rt.alloc(8).close()
"""
    calls, stderr = logged(plain, tmp_path, script)
    assert calls[:2] == ["aclInit 1", "aclInit 0"]
    assert not any(call.startswith("aclrtResetDevice") for call in calls)
    assert stderr == ""


def test_forked_child_is_refused_and_makes_no_call(plain: Path, tmp_path: Path) -> None:
    script = """
stream, buffer = rt.create_stream(), rt.alloc(8)
size = os.stat(os.environ["FAKE_LOG"]).st_size
child = os.fork()
if child == 0:
    status = 1
    try:
        rt.alloc(8)
    except errors.AclnnError as error:
        status = 0 if "forked" in str(error) and "spawn" in error.hint else 2
    for thing in (stream.query, stream.synchronize, buffer.fill, rt.device_count, rt.create_stream):
        try:
            thing()
            status = 3
        except errors.AclnnError:
            pass
    stream.close(); buffer.close()
    if os.stat(os.environ["FAKE_LOG"]).st_size != size:
        status = 4
    sys.exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stream.close()
"""
    calls, stderr = logged(plain, tmp_path, script)
    assert calls.count("aclFinalize 0") == 1
    assert stderr == ""


def test_fork_before_the_first_call_is_fine(plain: Path, tmp_path: Path) -> None:
    script = """
child = os.fork()
rt.alloc(8).close()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    calls, stderr = logged(plain, tmp_path, script)
    assert calls.count("aclInit 0") == 2
    assert stderr == ""


def test_nothing_works_after_exit_handlers(plain: Path, tmp_path: Path) -> None:
    script = """
import atexit
def late():                     # registered first: runs last
    buffer.close()
    try:
        rt.alloc(8)
    except errors.AclnnError as error:
        assert "finalised" in str(error)
        print(json.dumps("refused"))
atexit.register(late)
buffer = rt.alloc(8)
"""
    calls, answer = logged(plain, tmp_path, script)
    assert answer == "refused"
    assert calls.count("aclrtFree 0") == 1
    assert calls[-1] == "aclFinalize 0"
