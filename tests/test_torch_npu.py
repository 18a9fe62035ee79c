"""NPU tensors: what their descriptors say, and calls on a stand-in for torch_npu over the emulator's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[test,torch]'")

from aclnn_py.interop import npu  # noqa: E402

# -- descriptors: metadata only, so CPU tensors tell them as well


def test_a_view_is_described_by_its_storage() -> None:
    whole = torch.arange(24, dtype=torch.float16).reshape(4, 6)
    view = whole[1:, 2::2]
    layout = npu.describe(view)
    assert layout.address == whole.data_ptr() != view.data_ptr()
    assert (layout.offset, layout.strides, layout.shape) == (8, (6, 2), (3, 2))
    assert (layout.storage, layout.nbytes, layout.dtype.name) == ((24,), 48, "float16")
    assert npu.describe(whole.t()).strides == (1, 6)
    assert npu.describe(whole.view(torch.int8)).storage == (48,)
    assert npu.describe(whole.bfloat16()).dtype.name == "bfloat16"


@pytest.mark.parametrize(("ndim", "number"), [(0, 2), (1, 2), (2, 2), (3, 47), (4, 0), (5, 30), (6, 2)])
def test_formats_are_those_that_torch_npu_passes(ndim: int, number: int) -> None:
    assert npu.describe(torch.ones((1,) * ndim)).format == number


def test_empty_and_scalar_tensors_have_a_layout() -> None:
    empty = npu.describe(torch.empty(0, 3))
    assert (empty.shape, empty.storage, empty.nbytes) == ((0, 3), (0,), 0)
    scalar = npu.describe(torch.tensor(3.0))
    assert (scalar.shape, scalar.strides, scalar.storage) == ((), (), (1,))


@pytest.mark.parametrize("number", [2, 0, 1, 30])
def test_plain_formats_pass(number: int) -> None:
    npu.refuse_private_format("x", number)


@pytest.mark.parametrize("number", [3, 4, 29, 33])
def test_private_formats_are_refused_with_the_cast(number: int) -> None:
    with pytest.raises(TypeError, match=rf"x has the private storage format {number}.*npu_format_cast\(t, 2\)"):
        npu.refuse_private_format("x", number)


# -- calls: each piece of code says something, in one process for all

CASE = """
grad, index = torch.arange(6.0).reshape(2, 3), torch.tensor([3, 0, 1, 2]).int()
x, scales = torch.arange(12.0).reshape(4, 3), torch.tensor([[1.0, 2], [3, 4]])
host = aclnn_py.moe_finalize_routing_v2_grad(grad, index, x, scales, backend="reference")
inputs = [to_npu(t) for t in (grad, index, x, scales)]
log.clear()
"""
CODE: dict[str, str] = {}


CODE["an_operator_works_in_place_on_the_current_stream"] = """
result = aclnn_py.moe_finalize_routing_v2_grad(*inputs)
said = list(log)
view = to_npu(x.t().contiguous()).t()
again = aclnn_py.moe_finalize_routing_v2_grad(*inputs[:2], view, to_npu(torch.cat([scales, scales]))[2:])
say([said, type(result.grad_scales).__name__] + [
    torch.equal(got.cpu(), want) for out in (result, again) for got, want in zip(out, host)])
"""


def test_an_operator_works_in_place_on_the_current_stream(said: Any) -> None:
    said, kind, *equal = said["an_operator_works_in_place_on_the_current_stream"]
    assert kind == "Tensor"
    assert equal == [True] * 4
    # outputs by torch, then the handle (which drains torch's queue), then workspace; nothing waits, nothing is kept
    assert said == ["zeros on main", "zeros on main", "npu_stream", "empty on main"]


CODE["another_stream_gets_its_own_memory_and_a_record"] = """
seen = []
for stream in (side, side.npu_stream, side.stream):
    log.clear()
    result = aclnn_py.moe_finalize_routing_v2_grad(*inputs, stream=stream)
    said = [entry for entry in log if entry != "npu_stream"]
    with torch.npu.stream(side):
        seen.append([said, torch.equal(result.grad_scales.cpu(), host.grad_scales)])
say(seen)
"""


def test_another_stream_gets_its_own_memory_and_a_record(said: Any) -> None:
    (torch_stream, right), *others = said["another_stream_gets_its_own_memory_and_a_record"]
    assert right
    assert torch_stream == ["zeros on side", "zeros on side", "empty on side"] + ["record_stream side"] * 6
    for calls, right in others:  # a handle and a Stream of ours: torch is told by its ExternalStream
        assert right
        assert calls == ["zeros on external"] * 2 + ["empty on side"] + ["record_stream side"] * 6


CODE["the_handle_is_read_for_every_run"] = """
a, b, out = to_npu(torch.ones(4)), to_npu(torch.full((4,), 2.0)), to_npu(torch.zeros(4))
with aclnn_py.Executor("aclnnAdd", a, b, 1.0, out, repeatable=True) as ex:
    seen = []
    for stream in (main, main, side):
        log.clear()
        with torch.npu.stream(stream):
            ex.run()
            seen.append([log.count("npu_stream"), out.cpu().tolist()])
    ex.rebind(other=to_npu(torch.full((4,), 5.0)))
    ex.run()
    seen.append(out.cpu().tolist())
bound = aclnn_py.op("aclnnMuls").bind(a, 3.0, out)
bound(); bound(self=b)
seen.append(out.cpu().tolist())
bound.close()
say(seen)
"""


def test_the_handle_is_read_for_every_run(said: Any) -> None:
    *runs, added, bound = said["the_handle_is_read_for_every_run"]
    assert [count for count, _ in runs] == [1, 1, 1]
    assert all(values == [3.0] * 4 for _, values in runs)
    assert added == [6.0] * 4
    assert bound == [6.0] * 4


CODE["padding_copying_and_clearing_stay_with_torch"] = """
probs, order = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([3, 0, 1, 2]).int()
on = [to_npu(t) for t in (grad, order)]
rows, weights = to_npu(x[1:3].clone()), to_npu(probs)
got = aclnn_py.moe_token_unpermute_with_ep_grad(*on, rows, weights, range=(1, 3))
want = aclnn_py.moe_token_unpermute_with_ep_grad(grad, order, x[1:3], probs, range=(1, 3), backend="reference")
empty = aclnn_py.moe_token_unpermute_with_ep_grad(*on, to_npu(x), weights, range=(2, 2), out=(None, to_npu(probs)))
outs = to_npu(torch.ones(4, 3)), to_npu(torch.ones(2, 2))
kept = aclnn_py.moe_finalize_routing_v2_grad(*inputs, out=outs)
say([torch.equal(g.cpu(), w) for g, w in zip(got, want)]
    + [not empty.probs_grad.cpu().any().item(), kept.grad_scales is outs[1]]
    + [torch.equal(outs[0].cpu(), host.grad_expanded_x)])
"""


def test_padding_copying_and_clearing_stay_with_torch(said: Any) -> None:
    assert said["padding_copying_and_clearing_stay_with_torch"] == [True] * 5


CODE["what_an_npu_tensor_is_refused_for"] = """
def refused(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
odd = to_npu(torch.ones(4)); npu.private[id(odd)] = 29
plain, out = to_npu(torch.ones(4)), to_npu(torch.ones(4))
neg = aclnn_py.op("aclnnNeg")
say([
    refused(lambda: neg(odd, out)),
    refused(lambda: aclnn_py.moe_finalize_routing_v2_grad(*inputs, backend="reference")),
    refused(lambda: neg(plain, out, backend="reference")),
    refused(lambda: aclnn_py.moe_finalize_routing_v2_grad(*inputs[:3], scales)),
    refused(lambda: aclnn_py.moe_finalize_routing_v2_grad(*inputs, out=(torch.zeros(4, 3), None))),
    refused(lambda: aclnn_py.moe_finalize_routing_v2_grad(*inputs, out=(inputs[2], None))),
    refused(lambda: neg(plain, out, stream="main")),
])
"""


def test_what_an_npu_tensor_is_refused_for(said: Any) -> None:
    private, reference, reference_op, mixed, out, overlap, stream = said["what_an_npu_tensor_is_refused_for"]
    assert private.startswith("TypeError: aclnnNeg: argument 'self' has the private storage format 29")
    assert reference.startswith("TypeError") and "the reference computes on arrays of the host" in reference
    assert reference_op.startswith("TypeError") and "the reference computes on NumPy arrays" in reference_op
    assert "torch tensor on npu" in mixed and "torch tensor on cpu" in mixed and "different kinds" in mixed
    assert "takes an NPU tensor" in out
    assert "overlaps the input 'expandedXOptional'" in overlap
    assert stream.startswith("TypeError: stream")


CODE["the_differentiable_operators_take_them_too"] = """
from aclnn_py.interop import _library
out = _library._finalize(inputs[2], inputs[1], None, None, None, inputs[3], None, 2, False)
grads = _library._finalize_grad(inputs[0], inputs[1], inputs[2], inputs[3], None, None, 0, 4, 0, 0)
want = aclnn_py.moe_finalize_routing_v2(x, index, scales=scales, drop_pad_mode=2, backend="reference")
say([torch.equal(out.cpu(), want), torch.equal(grads[0].cpu(), host.grad_expanded_x)])
"""


def test_the_differentiable_operators_take_them_too(said: Any) -> None:
    """Below the dispatcher, whose key for NPUs the stand-in does not have."""
    assert said["the_differentiable_operators_take_them_too"] == [True, True]


CODE["a_thread_gets_its_device_from_torch"] = """
import threading
found = []
def work():
    result = aclnn_py.moe_finalize_routing_v2_grad(*inputs)
    found.append(torch.equal(result.grad_scales.cpu(), host.grad_scales))
thread = threading.Thread(target=work)
thread.start(); thread.join()
say([found, "set_device" in log])
"""


def test_a_thread_gets_its_device_from_torch(said: Any) -> None:
    """torch remembers per thread which device it has set; a change behind its back would mislead it."""
    assert said["a_thread_gets_its_device_from_torch"] == [[True], True]


CODE["nothing_is_left_behind"] = """
def work():
    for _ in range(30):
        aclnn_py.moe_finalize_routing_v2_grad(*inputs)
    return len(npu.buffers), main.stream.busy, main.stream.pool.cached
say([work(), work()])
"""


def test_nothing_is_left_behind(said: Any) -> None:
    """Memory goes back to torch with the call: nothing is parked, no pool of ours grows, torch's cache stays."""
    first, second = said["nothing_is_left_behind"]
    assert first == second
    assert first[1:] == [False, 0]


@pytest.fixture(scope="module")
def said(emulator_lib: Path) -> Any:
    """What the pieces said; torch is imported once, which takes most of the time."""
    environment = {**os.environ, "ACLNN_PY_LIBRARY_PATH": str(emulator_lib), "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("ACLNN_PY_BACKEND", None)
    script = f"""
import json, traceback, torch, aclnn_py, torch_stand_in as npu
said = {{}}
for name, code in json.loads({json.dumps(json.dumps(CODE))}).items():
    scope = dict(torch=torch, aclnn_py=aclnn_py, npu=npu, log=npu.log, main=npu.main, side=npu.side, to_npu=npu.to_npu)
    try:
        exec({CASE!r} + code, {{**scope, "say": lambda value: said.__setitem__(name, value)}})
    except Exception:
        said[name] = traceback.format_exc()
print(json.dumps(said))
"""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)
