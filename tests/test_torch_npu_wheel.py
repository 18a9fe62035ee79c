"""The public torch_npu wheel as a client of the emulator, and the operators on its tensors and streams.

Each test runs a program of its own, since a process has one CANN. The programs import torch_npu from the wheel.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(
        importlib.util.find_spec("torch_npu") is None,
        reason="torch_npu is not installed: .ci/torch_npu installs the pinned wheel and runs this file",
    ),
]

_HELPERS = """
import json, os, sys, threading, warnings
warnings.simplefilter("ignore")

def show(**values):
    print("RESULT " + json.dumps(values))

def failure(call):
    import torch
    try:
        call()
        torch.npu.synchronize()
    except RuntimeError as error:
        return str(error)
    return ""
"""


def _environment(lib: Path | None, **extra: str) -> dict[str, str]:
    """The variables of ``aclnn-py emulator env`` for a library directory; without one, a host that has no CANN."""
    dropped = ("ACLNN_", "ASCEND_", "TASK_QUEUE_", "TORCH_DEVICE_", "LD_LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    if lib is not None:
        kept |= {"LD_LIBRARY_PATH": str(lib), "ACLNN_PY_BACKEND": "emulator", "ACLNN_EMULATOR_SOC": "Ascend910B1"}
        kept["ACLNN_EMULATOR_STRICT"] = "1"
    return kept | extra


def _run(code: str, lib: Path | None, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _HELPERS + textwrap.dedent(code)]
    return subprocess.run(
        command, env=_environment(lib, **extra), capture_output=True, text=True, timeout=300, check=False
    )


def _result(code: str, lib: Path | None, **extra: str) -> dict[str, Any]:
    """What a program shows; it must end well, and under the strict emulator break no rule."""
    done = _run(code, lib, **extra)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violation" not in done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    shown: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return shown


@pytest.mark.parametrize("imports", ["import torch, torch_npu", "import torch"], ids=["import", "autoload"])
def test_devices_are_seen(emulator_lib: Path, imports: str) -> None:
    got = _result(
        f"""
        {imports}
        properties = torch.npu.get_device_properties(0)
        show(available=torch.npu.is_available(), count=torch.npu.device_count(), name=torch.npu.get_device_name(1),
             total=properties.total_memory, cores=[properties.cube_core_num, properties.vector_core_num],
             memory=torch.npu.mem_get_info(), bf16=torch.npu.is_bf16_supported())
        """,
        emulator_lib,
        ACLNN_EMULATOR_DEVICES="2",
        ACLNN_EMULATOR_MEMORY="2G",
    )
    assert got["available"] is True
    assert got["count"] == 2
    assert got["name"] == "Ascend910B1"
    assert got["total"] == 2 << 30
    assert got["cores"] == [24, 48]
    assert got["memory"][1] == 2 << 30
    assert got["bf16"] is True


def test_tensors_move_in_every_layout(emulator_lib: Path) -> None:
    got = _result(
        """
        import torch, torch_npu
        wrong = []
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int32,
                      torch.int64, torch.uint8, torch.bool):
            host = torch.arange(24).reshape(2, 3, 4).to(dtype)
            there = host.to("npu")
            views = [
                lambda t: t,
                lambda t: t[1:, ::2, 1:3],
                lambda t: t.transpose(0, 2),
                lambda t: t.permute(2, 0, 1)[1],
                lambda t: t[:, :1].expand(2, 5, 4),
                lambda t: t.reshape(-1)[5:],
                lambda t: t[..., -1],
            ]
            for at, view in enumerate(views):
                if not torch.equal(view(there).cpu(), view(host)):
                    wrong.append([str(dtype), at, "to the host"])
                if not torch.equal(view(there).contiguous().cpu(), view(host).contiguous()):
                    wrong.append([str(dtype), at, "contiguous"])
                if not torch.equal(view(host).to("npu").cpu(), view(host)):
                    wrong.append([str(dtype), at, "to the device"])
        pinned = torch.arange(1000.0).pin_memory()
        there = pinned.to("npu", non_blocking=True)
        back = there.to("cpu", non_blocking=True)
        torch.npu.synchronize()
        other = there.to("npu:1")
        target = torch.zeros(2, 3, device="npu")
        target[:, 1:] = torch.ones(2, 2)
        show(wrong=wrong, pinned=pinned.is_pinned(), back=torch.equal(back, pinned), device=str(other.device),
             other=torch.equal(other.cpu(), pinned), target=target.tolist(), text=str(there.device))
        """,
        emulator_lib,
        ACLNN_EMULATOR_DEVICES="2",
    )
    assert got["wrong"] == []
    assert got["pinned"] is True
    assert got["back"] is True
    assert (got["device"], got["text"]) == ("npu:1", "npu:0")
    assert got["other"] is True
    assert got["target"] == [[0, 1, 1], [0, 1, 1]]


@pytest.mark.parametrize("stream", ["worker", "deferred"])
def test_streams_events_and_the_allocator(emulator_lib: Path, stream: str) -> None:
    got = _result(
        """
        import torch, torch_npu
        side, start, end = torch.npu.Stream(), torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
        x = torch.arange(1000.0, device="npu")
        start.record()
        with torch.npu.stream(side):
            side.wait_event(start)
            y = x * 2
            x.record_stream(side)
            end.record()
        torch.npu.current_stream().wait_stream(side)
        z = y + 1
        end.synchronize()
        elapsed, reached = start.elapsed_time(end), end.query()
        side.synchronize()
        before = torch.npu.memory_allocated()
        held = torch.empty(1 << 20, dtype=torch.uint8, device="npu")
        during = torch.npu.memory_allocated()
        address = held.data_ptr()
        del held
        again = torch.empty(1 << 20, dtype=torch.uint8, device="npu")
        reused = again.data_ptr() == address
        del again
        reserved = torch.npu.memory_reserved()
        torch.npu.synchronize()
        torch.npu.empty_cache()
        seen = []
        thread = threading.Thread(target=lambda: seen.append((torch.ones(3, device="npu") * 4).tolist()))
        thread.start()
        thread.join()
        show(sum=float(z.sum()), elapsed=elapsed, reached=reached, idle=side.query(), before=before, during=during,
             reused=reused, reserved=reserved, left=torch.npu.memory_reserved(), seen=seen,
             handle=torch.npu.current_stream().npu_stream != side.npu_stream)
        """,
        emulator_lib,
        ACLNN_EMULATOR_STREAM=stream,
    )
    assert got["sum"] == 1000.0**2
    assert got["elapsed"] >= 0
    assert got["reached"] is True
    assert got["idle"] is True
    assert got["during"] - got["before"] == (1 << 20) + 512  # 32 bytes of padding, in units of 512
    assert got["reused"] is True
    assert got["left"] < got["reserved"]
    assert got["seen"] == [[4, 4, 4]]
    assert got["handle"] is True


#: Expressions over x (3, 4), y (4, 5), i (index), each the same on both devices up to rounding.
EXPRESSIONS = """
x + 1; 1 - x; x - x.t().t() * 2; x * x; x / (x + 3); x // 2; i % 2; x @ y; torch.bmm(x[None], y[None])
torch.addmm(y[0], x, y); F.linear(x, y.t(), y[0]); x.sum(); x.sum(1); x.mean(0, keepdim=True); x.amax(1)
x.max(); x.min(); x.argmax(1); x.cumsum(0); torch.softmax(x, 1); torch.log_softmax(x, 0); F.relu(x); F.silu(x)
F.gelu(x); torch.sigmoid(x); torch.tanh(x); x.exp(); x.abs().log(); x.abs().sqrt(); x.abs().rsqrt(); x ** 2
x.abs() ** 0.5; -x; x.floor(); x.clamp(-1, 1); x > 0; (x > 0) & (x < 1); x == x; torch.where(x > 0, x, -x)
torch.where(x > 0, x, 0.5); x.masked_fill(x > 0, 2.0); torch.isfinite(x); torch.topk(x, 2)[0]
torch.topk(x, 2)[1]; torch.sort(x, dim=1, stable=True)[1]; torch.gather(x, 0, i); x.scatter(0, i, x)
x.scatter_add(0, i, x); x.index_select(0, i[0]); x.index_add(0, i[0], x.new_ones(4, 4)); torch.cat([x, x], 1)
torch.stack([x, x]); torch.zeros_like(x); torch.ones_like(x); torch.full_like(x, 3.0)
torch.arange(5, device=x.device); x.half(); x.bfloat16(); x.int(); x.double(); x.bool()
x.clone().add_(x, alpha=-0.1); x.clone().mul_(0.5); x.clone().zero_(); x.t().contiguous()
torch.einsum("ab,cb->ac", x, x); x.to(torch.float16) * 2
"""


@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_operators_give_what_the_cpu_gives(emulator_lib: Path, queue: str) -> None:
    expressions = [part.strip() for part in EXPRESSIONS.replace("\n", ";").split(";") if part.strip()]
    got = _result(
        f"""
        import torch, torch_npu
        expressions = {expressions!r}
        torch.manual_seed(0)
        host = dict(x=torch.randn(3, 4), y=torch.randn(4, 5), i=torch.tensor([[0, 1, 2, 0], [2, 2, 0, 1]]))
        there = {{name: tensor.to("npu") for name, tensor in host.items()}}
        wrong = []
        for text in expressions:
            want, found = (eval(text, dict(torch=torch, F=torch.nn.functional, **values)) for values in (host, there))
            found = found.cpu()
            if found.dtype != want.dtype or not torch.allclose(found, want, rtol=1e-5, atol=1e-6):
                wrong.append(text)
        show(wrong=wrong, count=len(expressions))
        """,
        emulator_lib,
        TASK_QUEUE_ENABLE=queue,
    )
    assert got["count"] > 60
    assert got["wrong"] == []


def test_an_operator_that_is_missing_is_named(emulator_lib: Path) -> None:
    got = _result(
        """
        import torch, torch_npu
        x = torch.arange(6.0, device="npu")
        std = failure(lambda: torch.std(x))
        norm = failure(lambda: torch.nn.functional.layer_norm(x, (6,)))
        import aclnn_py
        aclnn_py.get_backend("emulator").empty((1,), "float32")  # its aclInit is the second one: no failure to show
        product = failure(lambda: torch.prod(x))
        show(std=std, norm=norm, product=product, after=(x + 1).tolist())
        """,
        emulator_lib,
    )
    assert "error code is 561107" in got["product"]
    assert "the emulator does not have aclnnStd" in got["std"]
    assert "the emulator does not have aclnnLayerNorm" in got["norm"]
    assert got["after"] == [1, 2, 3, 4, 5, 6]


def test_graph_capture_is_refused_by_name(emulator_lib: Path) -> None:
    got = _result(
        """
        import torch, torch_npu
        x = torch.ones(3, device="npu")
        with torch.npu.stream(torch.npu.Stream()):
            text = failure(lambda: torch.npu.NPUGraph().capture_begin())
        show(text=text, after=(x + 1).tolist())
        """,
        emulator_lib,
    )
    assert "Failed to find function acl" in got["text"]
    assert got["after"] == [2, 2, 2]


_LAYERS = """
def finalize(device, dtype, stream=None):
    generator = torch.Generator().manual_seed(1)
    tokens, slots, hidden, experts = 6, 2, 8, 4
    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(dtype).to(device)
    rows, scales = draw(tokens * slots, hidden).requires_grad_(), draw(tokens, slots).requires_grad_()
    index = torch.randperm(tokens * slots, generator=generator).to(torch.int32).to(device)
    expert = torch.randint(0, experts, (tokens, slots), generator=generator).to(torch.int32).to(device)
    bias, grad = draw(experts, hidden), draw(tokens, hidden)
    out = interop.moe_finalize_routing(rows, index, scales=scales, expert_idx=expert, bias=bias, k=slots)
    out.backward(grad)
    direct = aclnn_py.moe_finalize_routing_v2_grad(
        grad, index.reshape(slots, tokens).t().reshape(-1).contiguous(), rows.detach(), scales.detach(), expert, bias)
    return [out.detach(), rows.grad, scales.grad, direct.grad_expanded_x, direct.grad_scales]

def unpermute(device, dtype):
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randn(12, 8, generator=generator).to(dtype).to(device).requires_grad_()
    index = torch.randperm(12, generator=generator).to(torch.int32).to(device)
    probs = torch.rand(6, 2, generator=generator).to(dtype).to(device).requires_grad_()
    grad = torch.randn(6, 8, generator=generator).to(dtype).to(device)
    out = interop.moe_token_unpermute_with_ep(tokens, index, probs, range=(2, 9))
    out.backward(grad)
    direct = aclnn_py.moe_token_unpermute_with_ep_grad(
        grad, index, tokens.detach(), probs.detach(), range=(2, 9))
    return [out.detach(), tokens.grad, probs.grad, direct.permuted_tokens_grad, direct.probs_grad]

def worst(dtype, layer):
    here, there = layer("cpu", dtype), layer("npu", dtype)
    assert all(t.device.type == "npu" and t.dtype == dtype for t in there)
    return max(float((a.double() - b.cpu().double()).abs().max()) for a, b in zip(here, there))
"""


@pytest.mark.parametrize("first", ["torch_npu", "aclnn_py"])
def test_both_gradients_on_npu_tensors(emulator_lib: Path, first: str) -> None:
    imports = ["import torch, torch_npu", "import aclnn_py"]
    got = _result(
        "\n".join(imports if first == "torch_npu" else imports[::-1])
        + "\nfrom aclnn_py.interop import torch as interop\n"
        + _LAYERS
        + textwrap.dedent(
            """
            # a host tensor is served by the reference: float32 sums may differ in the last place
            os.environ["ACLNN_PY_BACKEND"] = "reference"
            halves = [worst(d, layer) for d in (torch.float16, torch.bfloat16) for layer in (finalize, unpermute)]
            single = [worst(torch.float32, layer) for layer in (finalize, unpermute)]
            side = torch.npu.Stream()
            with torch.npu.stream(side):
                single += [worst(torch.float32, layer) for layer in (finalize, unpermute)]
            torch.npu.set_device(1)
            single += [worst(torch.float32, layer) for layer in (finalize, unpermute)]
            show(halves=halves, single=single)
            """
        ),
        emulator_lib,
        ACLNN_EMULATOR_DEVICES="2",
    )
    assert got["halves"] == [0, 0, 0, 0]
    assert max(got["single"]) < 1e-5


def test_calls_on_views_scalars_and_given_streams(emulator_lib: Path) -> None:
    got = _result(
        """
        import torch, torch_npu
        import aclnn_py
        base = torch.arange(12.0, device="npu").reshape(3, 4)
        out = torch.empty(4, 2, device="npu")
        aclnn_py.op("aclnnAdd")(base[1:].t(), base[:2].t(), 1.0, out)
        side = torch.npu.Stream()
        x = torch.ones(1 << 16, device="npu")
        y = torch.empty_like(x)
        for _ in range(5):
            x.add_(1)  # through torch's queue, which a launch must wait for
        side.wait_stream(torch.npu.current_stream())
        with aclnn_py.Executor("aclnnMuls", x, 2.0, y, stream=side) as call:
            call.run()
        torch.npu.current_stream().wait_stream(side)
        z = y + 1
        total = float(z.sum()) / x.numel()
        try:
            aclnn_py.op("aclnnMuls")(x.requires_grad_(), 2.0, y)
            refused = ""
        except RuntimeError as error:
            refused = str(error)
        backend = aclnn_py.get_backend()
        show(out=out.tolist(), total=total, refused=refused, backend=backend.name, where=backend.describe())
        """,
        emulator_lib,
    )
    assert got["out"] == [[4, 12], [6, 14], [8, 16], [10, 18]]
    assert got["total"] == 13
    assert "requires a gradient" in got["refused"]
    assert got["backend"] == "emulator"
    assert str(emulator_lib.resolve()) in got["where"]
    assert "already loaded" in got["where"]


def test_the_emulator_may_be_in_use_before_torch_npu(emulator_lib: Path) -> None:
    got = _result(
        """
        import numpy as np
        import aclnn_py
        backend = aclnn_py.get_backend("emulator")
        array = backend.to_device(np.arange(4, dtype=np.float32))
        import torch, torch_npu
        x = torch.arange(6.0, device="npu").requires_grad_()
        (x * x).sum().backward()
        seen = []
        thread = threading.Thread(target=lambda: seen.append((torch.ones(2, device="npu") * 3).tolist()))
        thread.start()
        thread.join()
        show(grad=x.grad.tolist(), seen=seen, array=array.numpy().tolist())
        """,
        emulator_lib,
        ACLNN_PY_LIBRARY_PATH=str(emulator_lib),
    )
    assert got["grad"] == [0, 2, 4, 6, 8, 10]
    assert got["seen"] == [[3, 3]]
    assert got["array"] == [0, 1, 2, 3]


_MOE = """
import torch
import torch.nn.functional as F
import aclnn_py
from aclnn_py.interop import torch as interop

class Layer(torch.nn.Module):
    def __init__(self, hidden=8, inner=12, experts=4, slots=2):
        super().__init__()
        self.experts, self.slots = experts, slots
        self.router = torch.nn.Linear(hidden, experts, bias=False)
        self.up = torch.nn.Parameter(torch.randn(experts, hidden, inner) * 0.3)
        self.down = torch.nn.Parameter(torch.randn(experts, inner, hidden) * 0.3)

    def forward(self, x):
        probs = torch.softmax(self.router(x), -1)
        weights, chosen = torch.topk(probs, self.slots, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        flat = chosen.t().reshape(-1)  # slot by slot, as the index of the operator's mode 0
        order = torch.sort(flat, stable=True)[1]
        rows = x.index_select(0, order % x.shape[0])
        counts = torch.bincount(flat.cpu(), minlength=self.experts).tolist()
        parts, start = [], 0
        for expert, count in enumerate(counts):
            hidden = getattr(F, ACTIVATION)(rows[start : start + count] @ self.up[expert])
            parts.append(hidden @ self.down[expert])
            start += count
        place = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=x.device))
        return interop.moe_finalize_routing(torch.cat(parts), place.to(torch.int32), scales=weights, k=self.slots)

def train(device):
    torch.manual_seed(0)
    layer = Layer().to(device)
    x, target = torch.randn(16, 8).to(device), torch.randn(16, 8).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, foreach=False)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = ((layer(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_moe_layer_trains_as_on_the_cpu(emulator_lib: Path, activation: str) -> None:
    code = f"ACTIVATION = {activation!r}\n" + _MOE
    here = _result(code + '\nshow(losses=train("cpu"))', None, TORCH_DEVICE_BACKEND_AUTOLOAD="0")["losses"]
    there = _result("import torch, torch_npu\n" + code + '\nshow(losses=train("npu"))', emulator_lib)["losses"]
    assert here[3] < here[0]
    assert there == pytest.approx(here, rel=1e-5)


def test_the_example_of_a_layer_runs_unchanged(emulator_lib: Path) -> None:
    example = Path(__file__).resolve().parent.parent / "examples" / "moe_layer.py"
    code = f"""
    import runpy
    sys.argv = ["moe_layer.py", "--device", "npu", "--steps", "12"]
    runpy.run_path({str(example)!r}, run_name="__main__")
    show(backend=sys.modules["aclnn_py"].get_backend().name)
    """
    assert _result(code, emulator_lib) == {"backend": "emulator"}


def test_a_host_without_cann_is_told_what_to_do() -> None:
    info = subprocess.run(
        [sys.executable, "-m", "aclnn_py", "info"], env=_environment(None), capture_output=True, text=True, check=False
    )
    assert info.returncode == 0, info.stderr
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in info.stdout
    code = """
    import numpy as np
    import torch
    import aclnn_py
    grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    result = aclnn_py.moe_finalize_routing_v2_grad(grad, torch.tensor([1, 0], dtype=torch.int32))
    show(grad=result.grad_expanded_x.tolist(), npu="torch_npu" in sys.modules, backend=aclnn_py.get_backend().name)
    """
    # without the variable, torch itself looks for CANN and fails
    assert "libhccl.so" in _run(code, None).stderr
    got = _result(code, None, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert got == {"grad": [[3.0, 4.0], [1.0, 2.0]], "npu": False, "backend": "reference"}
