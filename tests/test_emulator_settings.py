"""The emulator's environment variables: a value that it does not know is reported once, and ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.emulator

SCRIPT = """
import numpy as np, aclnn_py
backend = aclnn_py.get_backend("emulator")
add = aclnn_py.op("aclnnAdd", backend=backend)
for _ in range(3):
    out = np.zeros(2, np.float32)
    add(np.ones(2, np.float32), np.ones(2, np.float32), 1.0, out)
    assert out.tolist() == [2, 2]
print(backend.product, backend.runtime.device_count())
"""


def run(library: Path, **settings: str) -> tuple[str, str]:
    """Run three calls, and return what was printed and what stderr got."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ACLNN_EMULATOR_", "ASCEND_"))}
    env |= {"ACLNN_PY_LIBRARY_PATH": str(library), **settings}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("name", "values", "accepted"),
    [
        ("CANN", ["foo", "80", "7.0"], "host, 8 or 9"),
        ("DEVICES", ["x", "-1", "65", "1.5", "2x", "nan"], "0 to 64"),
        ("STREAM", ["bar"], "worker or deferred"),
        ("SOC", ["nonsense", "Ascend"], "A2, A3, 950"),
        ("MEMORY", ["abc", "0", "4GB", "inf"], "a number of bytes"),
        ("THREADS", ["-1", "0", "many"], "1 to 256"),
    ],
)
def test_unknown_value_is_reported_once(name: str, values: list[str], accepted: str, emulator_lib: Path) -> None:
    for value in values:
        printed, said = run(emulator_lib, **{f"ACLNN_EMULATOR_{name}": value})
        assert said.startswith(f"aclnn emulator: ACLNN_EMULATOR_{name}={value} is ignored; accepted: {accepted}")
        assert said.count("\n") == 1
        assert printed == "A2 1"  # as without it


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "A2 1"),
        (dict.fromkeys(("CANN", "DEVICES", "STREAM", "SOC", "MEMORY", "THREADS"), ""), "A2 1"),
        ({"CANN": "9.1", "DEVICES": "2", "STREAM": "deferred", "SOC": "A3", "MEMORY": "512M", "THREADS": "2"}, "A3 2"),
        ({"CANN": "8", "DEVICES": "64", "STREAM": "Worker", "SOC": "950", "MEMORY": "67108864"}, "950 64"),
        ({"CANN": "8.1.RC1", "SOC": "Ascend910_9391", "MEMORY": "1.5g", "THREADS": "256"}, "A3 1"),
        ({"CANN": "host", "SOC": "Ascend910B3"}, "A2 1"),
    ],
)
def test_known_values_are_silent(settings: dict[str, str], expected: str, emulator_lib: Path) -> None:
    given = {f"ACLNN_EMULATOR_{name}": value for name, value in settings.items()}
    assert run(emulator_lib, **given) == (expected, "")
