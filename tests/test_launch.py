"""The Executor over the C ABI: lifetimes, statuses, faults at every C call, threads and exit, on the emulator."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator_control import HANDLES, Control

import aclnn_py
from aclnn_py import DeviceArray, Executor, errors
from aclnn_py._ffi import ffi
from aclnn_py.headers import HeaderIndex

pytestmark = pytest.mark.emulator

GRAD = "aclnnMoeFinalizeRoutingV2Grad"
EP_GRAD = "aclnnMoeTokenUnpermuteWithEpGrad"
ROUNDS = int(os.environ.get("ACLNN_TEST_FAULT_ROUNDS", "1000"))


@pytest.fixture(scope="module")
def native(emulator_lib: Path) -> aclnn_py.Backend:
    os.environ.setdefault("ACLNN_PY_LIBRARY_PATH", str(emulator_lib))
    return aclnn_py.get_backend("emulator")


@pytest.fixture
def control(native: Any) -> Iterator[Control]:
    """Give the controls; afterwards no handle is left, no rule was broken, and the next call works."""
    made = Control(native.libraries)
    native.runtime.ensure_initialised()
    native.runtime.trim()
    gc.collect()
    made.reset()
    made.strict(1)
    before = made.handles(), made.count("device_bytes")
    yield made
    made.reset()
    gc.collect()
    native.runtime.trim()
    assert (made.handles(), made.count("device_bytes")) == before
    assert made.count("violations") == 0, made.violation()
    data = arguments()
    call(native, data)
    check(data)
    native.runtime.trim()


def arguments(rows: int = 4, hidden: int = 3, topk: int = 2, seed: int = 0) -> dict[str, Any]:
    """Arguments of V2Grad in small integers, so that every result is exact."""
    rng = np.random.default_rng(seed)

    def small(*shape: int) -> np.ndarray:
        return rng.integers(-4, 5, shape).astype(np.float32)

    entries = rows * topk
    return {
        "gradY": small(rows, hidden),
        "expandedRowIdx": rng.permutation(entries).astype(np.int32),
        "expandedX": small(entries, hidden),
        "scales": small(rows, topk),
        "expertIdx": rng.integers(0, 3, (rows, topk)).astype(np.int32),
        "bias": small(3, hidden),
        "dropPadMode": 0,
        "activeNum": 0,
        "expertNum": 0,
        "expertCapacity": 0,
        "gradExpandedXOut": np.full((entries, hidden), -77, np.float32),
        "gradScalesOut": np.full((rows, topk), -77, np.float32),
    }


def expected(data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in data.items()}
    with Executor(GRAD, **copies, backend="reference") as ex:
        ex.run()
    return copies["gradExpandedXOut"], copies["gradScalesOut"]


def check(data: dict[str, Any]) -> None:
    grad_x, grad_scales = expected(data)
    np.testing.assert_array_equal(data["gradExpandedXOut"], grad_x)
    np.testing.assert_array_equal(data["gradScalesOut"], grad_scales)


def call(native: Any, data: dict[str, Any], **options: Any) -> None:
    with Executor(GRAD, **data, backend=native, **options) as ex:
        ex.run()


def on_device(native: Any, data: dict[str, Any]) -> dict[str, Any]:
    return {name: native.to_device(v) if isinstance(v, np.ndarray) else v for name, v in data.items()}


# -- what must stay alive, and until when


def test_numpy_outputs_are_filled_at_a_clean_exit_only(native: Any, control: Control) -> None:
    data = arguments()
    with Executor(GRAD, **data, backend=native) as ex:
        ex.run()
        assert (data["gradScalesOut"] == -77).all()
    check(data)
    data = arguments()
    with pytest.raises(KeyError), Executor(GRAD, **data, backend=native) as ex:
        ex.run()
        raise KeyError
    assert (data["gradScalesOut"] == -77).all()
    assert (data["gradExpandedXOut"] == -77).all()


def test_inputs_are_read_at_run_and_never_written(native: Any, control: Control) -> None:
    data = arguments()
    for name in ("gradY", "expandedX", "scales", "bias", "expandedRowIdx", "expertIdx"):
        data[name].setflags(write=False)
    with Executor(GRAD, **data, backend=native) as ex:
        ex.run()
    check(data)


def test_an_unlaunched_executor_is_destroyed_once(native: Any, control: Control) -> None:
    slots = control.count("executor_slots")  # failed calls of generated operators keep theirs busy for good
    for name in (GRAD, EP_GRAD):
        with make(native, name):
            assert control.count("executors") == 1
        assert control.count("executors") == 0
        assert control.count("executor_slots") == slots


def make(native: Any, name: str) -> Executor:
    if name == GRAD:
        return Executor(GRAD, **arguments(), backend=native)
    return Executor(
        EP_GRAD,
        unpermutedTokensGrad=np.ones((2, 3), np.float32),
        sortedIndices=np.arange(2, dtype=np.int32),
        paddedMode=False,
        range=(0, 2),
        topkNum=1,
        permutedTokensGradOut=np.zeros((2, 3), np.float32),
        probsGradOut=np.zeros((2, 1), np.float32),
        backend=native,
    )


def test_a_second_run_never_reaches_c(native: Any, control: Control) -> None:
    data = arguments()
    with Executor(GRAD, **data, backend=native) as ex:
        ex.run()
        calls = control.calls()
        with pytest.raises(RuntimeError, match="has run"):
            ex.run()
        assert control.calls() == calls
    check(data)


def test_device_arrays_dropped_while_the_work_is_queued_stay_alive(native: Any, control: Control) -> None:
    data = arguments(rows=64, hidden=33)
    arrays = on_device(native, data)
    control.delay(50)  # the kernel runs long after everything below has been dropped
    with Executor(GRAD, **arrays, backend=native) as ex:
        ex.run()
    out_x, out_scales = arrays["gradExpandedXOut"], arrays["gradScalesOut"]
    del arrays, ex
    gc.collect()
    noise = [native.empty((64, 33), np.float32) for _ in range(8)]  # would reuse freed memory
    grad_x, grad_scales = expected(data)
    np.testing.assert_array_equal(out_x.numpy(), grad_x)
    np.testing.assert_array_equal(out_scales.numpy(), grad_scales)
    del noise


def test_closing_buffers_while_the_work_is_queued_is_deferred(native: Any, control: Control) -> None:
    arrays = on_device(native, arguments(rows=64, hidden=33))
    control.delay(50)
    with Executor(GRAD, **arrays, backend=native) as ex:
        ex.run()
    for value in arrays.values():
        if isinstance(value, DeviceArray):
            value.buffer.close()
    native.stream().synchronize()  # a kernel on freed memory would be a violation


def test_exit_after_an_exception_leaves_queued_work_its_memory(native: Any, control: Control) -> None:
    control.delay(50)
    with pytest.raises(KeyError), Executor(GRAD, **arguments(rows=64, hidden=33), backend=native) as ex:
        ex.run()
        raise KeyError
    native.stream().synchronize()


def test_many_launches_keep_live_workspace_bounded(native: Any, control: Control) -> None:
    arrays = on_device(native, arguments())
    base = control.count("device_bytes")
    for _ in range(1000):
        with Executor(GRAD, **arrays, backend=native) as ex:
            ex.run()
    # the pool's bound is 256 MiB; a workspace is 16 MiB
    assert control.count("device_bytes") - base <= 300 << 20
    native.stream().trim()
    assert control.count("device_bytes") == base


def test_workspace_of_zero_bytes_is_a_null_pointer(native: Any, control: Control) -> None:
    data = arguments(rows=0)
    with Executor(GRAD, **data, backend=native) as ex:
        assert ex.workspace_size == 0
        ex.run()
    assert data["gradExpandedXOut"].shape == (0, 3)


def test_the_shape_that_stage_two_leaves_behind_can_be_read(native: Any, control: Control) -> None:
    """Operators whose output shape depends on data change the view of the caller's aclTensor."""
    x, out = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((2, 3), np.float32)
    with Executor("aclnnMuls", x, 2.0, out, backend=native) as ex:
        ex.run()
        assert ex.view_shape("out") == (2, 3)
        tensor, dims = ex._call._pointers[2], ffi.new("int64_t[]", [4])  # type: ignore[union-attr]
        native.api.aclInitTensor(tensor, dims, 1, 0, ffi.NULL, 0, 2, dims, 1, ffi.NULL)
        assert ex.view_shape("out") == (4,)
        with pytest.raises(TypeError, match="no tensor argument named 'other'"):
            ex.view_shape("other")


def test_without_operator_headers_it_says_what_is_known(
    native: Any, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(native.__dict__, "headers", HeaderIndex([]))
    with pytest.raises(aclnn_py.SymbolNotFoundError, match="no operator headers lie beside the libraries"):
        native.signature("aclnnNoSuchThing")
    assert native.signature("aclnnAdd").parameters[0].name == "self"


# -- stage one and its failures


@pytest.mark.parametrize("name", [GRAD, EP_GRAD])
def test_after_a_failed_stage_one_nothing_is_called(native: Any, control: Control, name: str) -> None:
    control.fail(f"{name}GetWorkspaceSize", 561002, b"EZ9999: expert count is 128")
    calls = control.calls()
    with pytest.raises(aclnn_py.TilingError, match="expert count is 128") as caught:
        make(native, name)
    assert caught.value.code == 561002
    assert caught.value.api == name
    assert caught.value.stage == "GetWorkspaceSize"
    # one creation, one destruction per descriptor, the failed call: nothing else reached C but buffers
    assert control.count("executors") == 0
    assert control.calls() > calls


@pytest.mark.parametrize(
    ("message", "detail"), [(None, ""), (b"bad \xff byte", "bad \ufffd byte"), (b"x" * 20_000, "x" * 20_000)]
)
def test_any_error_text_survives(native: Any, control: Control, message: bytes | None, detail: str) -> None:
    control.fail(f"{GRAD}GetWorkspaceSize", 161002, message)
    with pytest.raises(aclnn_py.InvalidParameterError) as caught:
        make(native, GRAD)
    assert caught.value.detail == detail
    assert "161002" in str(caught.value)


def test_error_text_of_an_earlier_failure_is_not_carried_over(native: Any, control: Control) -> None:
    control.fail(f"{GRAD}GetWorkspaceSize", 161002, b"text A")
    with pytest.raises(aclnn_py.InvalidParameterError, match="text A"):
        make(native, GRAD)
    make(native, GRAD).close()
    control.fail(f"{GRAD}GetWorkspaceSize", 161002, None)
    with pytest.raises(aclnn_py.InvalidParameterError) as caught:
        make(native, GRAD)
    assert "text A" not in str(caught.value)


def test_a_failed_stage_two_consumes_the_executor(native: Any, control: Control) -> None:
    data = arguments()
    control.fail(GRAD, 361001, b"launch failed")
    with (
        pytest.raises(aclnn_py.RuntimeCallError, match="launch failed") as caught,
        Executor(GRAD, **data, backend=native) as ex,
    ):
        ex.run()
    assert caught.value.stage == "run"
    assert (data["gradScalesOut"] == -77).all()


def test_an_absurd_workspace_is_a_memory_error_with_the_number(native: Any, control: Control) -> None:
    ex = make(native, GRAD)
    ex._call.workspace_size = 1 << 40  # type: ignore[union-attr]
    with ex, pytest.raises(aclnn_py.DeviceMemoryError, match=str(1 << 40)):
        ex.run()
    ex = make(native, GRAD)
    ex._call.workspace_size = 1 << 63  # type: ignore[union-attr]
    with ex, pytest.raises(aclnn_py.DeviceMemoryError, match=str(1 << 63)):
        ex.run()


def test_an_asynchronous_fault_is_said_to_be_one(native: Any, control: Control) -> None:
    data = arguments()
    control.fail_async(GRAD, 507035)
    with pytest.raises(aclnn_py.DeviceFaultError) as caught, Executor(GRAD, **data, backend=native) as ex:
        ex.run()  # the fault is not known yet
    assert caught.value.stage == "synchronize"
    assert "asynchronous" in str(caught.value)
    assert (data["gradScalesOut"] == -77).all()


def test_blocking_mode_names_the_operator_that_failed(
    native: Any, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACLNN_PY_LAUNCH_BLOCKING", "1")
    control.fail_async(GRAD, 507035)
    first = make(native, EP_GRAD)
    with first:
        first.run()
    ex = Executor(GRAD, **arguments(), backend=native)
    with ex, pytest.raises(aclnn_py.DeviceFaultError) as caught:
        ex.run()
    assert (caught.value.api, caught.value.stage) == (GRAD, "run (blocking)")


# -- a failure at every C call in turn


def test_a_failure_at_each_call_leaves_nothing_behind(native: Any, control: Control) -> None:
    """Fail the first C call of a run, then the second, ...; handles and bytes are as before after each."""
    data = arguments()
    start = control.calls()
    call(native, data)
    total = control.calls() - start
    native.runtime.trim()
    handles, size = control.handles(), control.count("device_bytes")
    failures = 0
    for round_ in range(ROUNDS):
        nth = round_ % total + 1
        control.fail_at(nth, 507899)
        before = data["gradScalesOut"].copy()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a failing release warns
                call(native, data)
        except errors.AclnnError:
            failures += 1
            np.testing.assert_array_equal(data["gradScalesOut"], before)
        assert control.count("violations") == 0, f"at call {nth}: {control.violation()}"
        control.reset()
        assert control.handles() == handles, f"after a failure at call {nth} of {total}"
    assert failures > ROUNDS // 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        native.runtime.trim()
    assert control.count("device_bytes") == size
    call(native, data)
    check(data)


# -- repeatable executors


def test_repeatable_runs_again_with_other_data(native: Any, control: Control) -> None:
    data = arguments(rows=5, hidden=7)
    arrays = on_device(native, data)
    with Executor(GRAD, **arrays, backend=native, repeatable=True) as ex:
        assert ex.reuse == "repeatable"
        ex.run()
        other = arguments(rows=5, hidden=7, seed=1)
        ex.rebind(gradY=native.to_device(other["gradY"]), expandedX=native.to_device(other["expandedX"]))
        out = native.empty(arrays["gradScalesOut"].shape, np.float32)
        ex.rebind(gradScalesOut=out)
        ex.run()
        ex.synchronize()
    other["expandedRowIdx"], other["scales"] = data["expandedRowIdx"], data["scales"]
    other["expertIdx"], other["bias"] = data["expertIdx"], data["bias"]
    np.testing.assert_array_equal(out.numpy(), expected(other)[1])
    np.testing.assert_array_equal(arrays["gradScalesOut"].numpy(), expected(data)[1])


def test_a_cache_hit_cannot_be_repeated_and_falls_back(native: Any, control: Control) -> None:
    data = arguments(rows=6, hidden=5)
    arrays = on_device(native, data)
    call(native, arrays)  # the same call again is a cache hit, which CANN refuses to make repeatable
    with Executor(GRAD, **arrays, backend=native, repeatable=True) as ex:
        assert ex.reuse == "fresh"
        for seed in (2, 3):
            other = arguments(rows=6, hidden=5, seed=seed)
            ex.rebind(gradY=native.to_device(other["gradY"]))
            ex.run()
            ex.synchronize()
            np.testing.assert_array_equal(
                arrays["gradScalesOut"].numpy(), expected({**data, "gradY": other["gradY"]})[1]
            )


def test_numpy_arguments_are_uploaded_only_after_the_run_before(native: Any, control: Control) -> None:
    data = arguments(rows=8, hidden=5)
    second = np.full(16, -1, np.int32)
    second[3] = 2
    control.delay(30)  # the first kernel would write its rows over the second upload
    with Executor(GRAD, **data, backend=native, repeatable=True) as ex:
        ex.run()
        data["expandedRowIdx"][:] = second
        ex.run()
    check_data = {**data, "expandedRowIdx": second, "gradExpandedXOut": np.full((16, 5), -77, np.float32)}
    np.testing.assert_array_equal(data["gradExpandedXOut"], expected(check_data)[0])


def test_rebinding_one_of_two_aliases_leaves_the_other(native: Any, control: Control) -> None:
    for backend in ("reference", native):
        x, y = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
        out = np.zeros(3, np.float32)
        with Executor("aclnnAdd", x, x, 1, out, backend=backend, repeatable=True) as ex:
            ex.run()
            ex.rebind(other=y)
            ex.run()
        assert out.tolist() == [11, 22, 33]
        assert x.tolist() == [1, 2, 3]


def test_rebinding_an_output_keeps_the_result_of_the_run_before(native: Any, control: Control) -> None:
    for backend in ("reference", native):
        x, first, second = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
        with Executor("aclnnMuls", x, 2.0, first, backend=backend, repeatable=True) as ex:
            ex.run()
            ex.rebind(self=x + 1, out=second)
            ex.run()
        assert (first.tolist(), second.tolist()) == ([2, 4, 6], [4, 6, 8])


def test_a_failed_rebind_keeps_what_the_executor_uses_alive(native: Any, control: Control) -> None:
    arrays = on_device(native, arguments(rows=9, hidden=5))
    with Executor(GRAD, **arrays, backend=native, repeatable=True) as ex:
        control.fail("aclSetInputTensorAddr", 561103)
        with pytest.raises(aclnn_py.InnerNullptrError):
            ex.rebind(gradY=native.empty((9, 5), np.float32))
        control.delay(30)
        ex.run()
        del arrays["gradY"]
        gc.collect()
    native.stream().synchronize()  # a kernel on freed memory would be a violation


def test_rebinding_one_alias_keeps_the_memory_of_the_other_alive(native: Any, control: Control) -> None:
    x, out = native.to_device(np.full((8, 8), 3, np.float32)), native.empty((8, 8), np.float32)
    y = native.to_device(np.full((8, 8), 4, np.float32))
    with Executor("aclnnAdd", x, x, 1, out, backend=native, repeatable=True) as ex:
        ex.rebind(other=y)
        control.delay(30)
        ex.run()
    del x, y
    gc.collect()
    np.testing.assert_array_equal(out.numpy(), np.full((8, 8), 7))  # freed memory would be a violation


def test_a_rebind_that_fails_half_way_can_be_repaired(native: Any, control: Control) -> None:
    data = arguments(rows=11, hidden=6)
    arrays = on_device(native, data)
    call(native, arrays)  # makes the next one a cache hit: rebinding starts over
    other = native.to_device(np.ones((11, 6), np.float32))
    with Executor(GRAD, **arrays, backend=native, repeatable=True) as ex:
        assert ex.reuse == "fresh"
        control.fail("aclCreateTensor", 207001)
        with pytest.raises(errors.AclnnError, match="aclCreateTensor"):
            ex.rebind(gradY=other)
        ex.run()  # describes everything anew instead of using what was destroyed
        ex.synchronize()
    changed = {**data, "gradY": np.ones((11, 6), np.float32)}
    np.testing.assert_array_equal(arrays["gradScalesOut"].numpy(), expected(changed)[1])


class MovingStream:
    """A foreign stream whose handle changes, as a current stream does."""

    def __init__(self, *streams: Any) -> None:
        self.streams = list(streams)

    def __aclrt_stream__(self) -> int:
        return int(ffi.cast("uintptr_t", self.streams.pop(0).handle))


def test_results_are_waited_for_on_the_stream_of_the_run(native: Any, control: Control) -> None:
    with native.create_stream() as first, native.create_stream() as second:
        data = arguments()
        control.delay(30)
        with Executor(GRAD, **data, backend=native, stream=MovingStream(first, second, second)) as ex:
            ex.run()
        check(data)


def test_a_repeatable_executor_moves_between_streams_one_run_at_a_time(native: Any, control: Control) -> None:
    arrays = on_device(native, arguments(rows=10, hidden=4))
    with native.create_stream() as first, native.create_stream() as second:
        moving = MovingStream(first, second, first)
        with Executor(GRAD, **arrays, backend=native, stream=moving, repeatable=True) as ex:
            assert ex.reuse == "repeatable"
            control.delay(20)
            ex.run()
            ex.run()
            assert first.query(), "the second run waits for the first"
            ex.run()
            ex.synchronize()
    assert control.count("launches") >= 3


def test_memory_of_a_reset_device_never_reaches_c(native: Any, control: Control) -> None:
    array = native.to_device(np.ones((2, 2), np.float32))
    _ = array.descriptor
    array.buffer._block.close()  # what a reset of the device does
    with pytest.raises(ValueError, match="memory is closed"):
        Executor("aclnnMuls", array, 2.0, array, backend=native)


def test_rebind_refuses_what_the_executor_cannot_take(native: Any, control: Control) -> None:
    arrays = on_device(native, arguments(rows=7))
    with Executor(GRAD, **arrays, backend=native, repeatable=True) as ex:
        with pytest.raises(ValueError, match="gradY"):
            ex.rebind(gradY=native.empty((9, 3), np.float32))
        with pytest.raises(ValueError, match="strides"):
            ex.rebind(gradY=native.empty((3, 7), np.float32).T)
        with pytest.raises(TypeError, match="gradY"):
            ex.rebind(gradY=np.zeros((7, 3), np.float32))
        with pytest.raises(TypeError, match="noSuch"):
            ex.rebind(noSuch=arrays["gradY"])
        ex.run()
    with Executor(GRAD, **arrays, backend=native) as ex, pytest.raises(TypeError, match="repeatable"):
        ex.rebind(gradY=arrays["gradY"])


def test_a_device_that_is_not_there_is_refused(native: Any) -> None:
    with pytest.raises(ValueError, match="device is 99, but emulator has"):
        aclnn_py.get_backend("emulator", device=99)


# -- threads


def test_another_thread_may_not_run_it_and_closing_there_leaks_with_a_warning(native: Any, control: Control) -> None:
    ex = make(native, GRAD)
    caught: list[BaseException] = []

    def use() -> None:
        try:
            ex.run()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert isinstance(caught[0], RuntimeError)
    ex.close()

    leaked = make(native, GRAD)
    pointer = leaked._call._executor  # type: ignore[union-attr]
    with pytest.warns(ResourceWarning, match="another thread"), ThreadPoolExecutor(1) as pool:
        pool.submit(leaked.close).result()
    assert control.count("executors") == 1
    native.api.aclDestroyAclOpExecutor(pointer)  # on the thread that made it
    assert control.count("executors") == 0


def test_eight_threads_on_two_devices(emulator_lib: Path) -> None:
    code = """
        import threading, numpy as np, aclnn_py
        from concurrent.futures import ThreadPoolExecutor
        import test_launch as t
        def work(i):
            backend = aclnn_py.get_backend("emulator", device=i % 2)
            with backend.create_stream() as stream:
                for k in range(50):
                    data = t.arguments(rows=3 + k % 5, seed=i)
                    t.call(backend, data, stream=stream)
                    t.check(data)
            assert backend.runtime.current_device() == i % 2
            return threading.get_ident()
        with ThreadPoolExecutor(8) as pool:
            assert len(list(pool.map(work, range(8)))) == 8
        control = t.Control(aclnn_py.get_backend("emulator").libraries)
        aclnn_py.get_backend("emulator").runtime.trim()
        assert control.handles() == dict.fromkeys(t.HANDLES, 0), control.handles()
        assert control.count("violations") == 0, control.violation()
        print("done")
    """
    assert run_python(code, emulator_lib, ACLNN_EMULATOR_DEVICES="2") == "done\n"


# -- interpreter exit


def run_python(code: str, emulator_lib: Path, **env: str) -> str:
    """Run code in a fresh interpreter; anything on stderr (a warning, an emulator report) fails."""
    lines = code.splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    environment = {**os.environ, "ACLNN_PY_LIBRARY_PATH": str(emulator_lib), "ACLNN_PY_BACKEND": "emulator", **env}
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    result = subprocess.run(
        [sys.executable, "-W", "always", "-c", "\n".join(line[margin:] for line in lines)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


ODD_ENDS = {
    "arrays still alive": "x = backend.to_device(np.ones(3, np.float32)); import builtins; builtins.kept = x",
    "a stream still open": "import builtins; builtins.kept = backend.create_stream()",
    "work still queued": "a = t.on_device(backend, t.arguments()); t.call(backend, a)",
    "a cycle holds arrays": "c = [backend.to_device(np.ones(3, np.float32))]; c.append(c)",
    "a thread used the device": "import threading\n"
    "w = threading.Thread(target=lambda: t.call(backend, t.arguments()))\nw.start(); w.join()",
    "sys.exit": "t.call(backend, t.arguments()); sys.exit(0)",
    "nothing was called": "",
}


@pytest.mark.parametrize("end", ODD_ENDS)
def test_the_interpreter_exits_cleanly(emulator_lib: Path, end: str) -> None:
    code = f"import sys, numpy as np, aclnn_py, test_launch as t\nbackend = aclnn_py.get_backend()\n{ODD_ENDS[end]}"
    run_python(code, emulator_lib)


# -- the range of the WithEp operators


@pytest.mark.parametrize("given", [None, (-1, -1)])
def test_an_open_range_warns_once(emulator_lib: Path, given: Any) -> None:
    code = f"""
        import warnings, numpy as np, aclnn_py
        def run():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with aclnn_py.Executor("{EP_GRAD}", unpermutedTokensGrad=np.ones((2, 3), np.float32),
                        sortedIndices=np.arange(2, dtype=np.int32), paddedMode=False, range={given}, topkNum=1,
                        permutedTokensGradOut=np.zeros((2, 3), np.float32),
                        probsGradOut=np.zeros((2, 1), np.float32)) as ex:
                    ex.run()
            return [str(w.message) for w in caught]
        first, second = run(), run()
        assert len(first) == 1 and "pass (0, N)" in first[0], first
        assert second == [], second
    """
    run_python(code, emulator_lib)


def test_handle_kinds_are_known_to_the_emulator(native: Any, control: Control) -> None:
    assert all(control.count(what) >= 0 for what in HANDLES)
    assert control.count("no such kind") == -1
