"""Several devices under the public torch_npu wheel on the emulator: torch's idea of the current one is kept.

torch_npu goes back to an unused device only when work for it comes, so acl's current device may be another one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(
        importlib.util.find_spec("torch_npu") is None,
        reason="torch_npu is not installed: .ci/torch_npu installs the pinned wheel",
    ),
]

CODE = """
import json, threading, warnings
warnings.simplefilter("ignore")
import torch, torch_npu, aclnn_py
from aclnn_py.interop.torch import moe_finalize_routing

index = torch.tensor([3, 0, 1, 2], dtype=torch.int32)
tensors = torch.arange(6.0).reshape(2, 3), index, torch.arange(12.0).reshape(4, 3), torch.tensor([[1.0, 2], [3, 4]])
want = aclnn_py.moe_finalize_routing_v2_grad(*tensors, backend="reference")
seen = []


def note(result, device):
    right = all(torch.equal(got.cpu(), expected) for got, expected in zip(result, want))
    seen.append([right, str(result.grad_scales.device) == device, torch.npu.current_device()])


def call(device):
    note(aclnn_py.moe_finalize_routing_v2_grad(*(t.to(device) for t in tensors)), device)


call("npu:1")  # device 0 has no context yet
call("npu:0")
call("npu:1")
with torch.npu.device(1):
    call("npu:0")
    call("npu:1")
thread = threading.Thread(target=call, args=("npu:1",))
thread.start()
thread.join()

rows = tensors[2].to("npu:1").requires_grad_()
moe_finalize_routing(rows, index.to("npu:1"), scales=tensors[3].to("npu:1"), drop_pad_mode=2).sum().backward()
gradient = [str(rows.grad.device), rows.grad.cpu().tolist(), torch.npu.current_device()]

refused = ""
try:
    aclnn_py.moe_finalize_routing_v2_grad(tensors[0].npu(), *(t.to("npu:1") for t in tensors[1:]))
except ValueError as error:
    refused = str(error)
ours = aclnn_py.get_backend("emulator", device=1).to_device(tensors[2].numpy())  # an array beside torch's tensors
print(json.dumps([seen, gradient, refused, ours.numpy().sum().item(), torch.npu.current_device()]))
"""


def test_calls_follow_their_tensors_and_leave_the_current_device(emulator_lib: Path) -> None:
    dropped = ("ACLNN_", "ASCEND_", "TASK_QUEUE_", "TORCH_DEVICE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environment |= {"LD_LIBRARY_PATH": str(emulator_lib), "ACLNN_PY_BACKEND": "emulator", "ACLNN_EMULATOR_DEVICES": "2"}
    environment |= {"ACLNN_EMULATOR_SOC": "Ascend910B1", "ACLNN_EMULATOR_STRICT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "violation" not in done.stderr
    answer: Any = json.loads(done.stdout.splitlines()[-1])
    seen, gradient, refused, total, current = answer
    assert seen == [[True, True, 0]] * 3 + [[True, True, 1]] * 2 + [[True, True, 0]]
    assert gradient == ["npu:1", [[float(scale)] * 3 for scale in (2, 3, 4, 1)], 0]
    assert "'expandedRowIdx' is on device 1, the call on 0" in refused
    assert (total, current) == (66.0, 0)
