"""Formats and storage shapes: what aclCreateTensor gets, and what each backend makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclnn_py

NCHW, FRACTAL_NZ, ND = 0, 29, 2

SCRIPT = """
import numpy as np
import aclnn_py

image = aclnn_py.with_format(np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2), "NCHW")
weight = np.arange(64, dtype=np.float32).reshape(1, 2, 4, 8)
nz = aclnn_py.with_format(weight, "FRACTAL_NZ", shape=(5, 7))
out = np.zeros((1, 2, 2, 2), np.float32)
aclnn_py.op("aclnnAbs")(image, out)
aclnn_py.op("aclnnAbs")(nz, out_nz := np.zeros((5, 7), np.float32))
aclnn_py.op("aclnnInplaceRelu")(nz)
backend = aclnn_py.get_backend()
there = aclnn_py.with_format(backend.to_device(weight), "ACL_FORMAT_FRACTAL_NZ", shape=(5, 7))
aclnn_py.op("aclnnAbs")(there, backend.empty((5, 7), np.float32))
aclnn_py.op("aclnnAbs")(there[:2], backend.empty((2, 7), np.float32))
backend.stream().synchronize()
print(out.ravel().tolist())
"""


@pytest.mark.emulator
def test_the_c_api_gets_format_and_storage_shape(emulator_lib: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    variables = {
        **os.environ, "ACLNN_PY_BACKEND": "emulator", "ACLNN_PY_LIBRARY_PATH": str(emulator_lib),
        "ACLNN_EMULATOR_RECORD": str(log),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [float(i) for i in range(8)]

    calls = [call for call in map(json.loads, log.read_text().splitlines()) if "args" in call]

    def first(call: dict[str, Any]) -> tuple[Any, ...]:
        value = call["args"][0]["value"]
        return value["format"], value["shape"], value["storage"], value["data"][:2]

    assert [first(call) for call in calls] == [
        (NCHW, [1, 2, 2, 2], [1, 2, 2, 2], [0, 1]),
        (FRACTAL_NZ, [5, 7], [1, 2, 4, 8], [0, 1]),
        (FRACTAL_NZ, [5, 7], [1, 2, 4, 8], [0, 1]),
        (FRACTAL_NZ, [5, 7], [1, 2, 4, 8], [0, 1]),
        (ND, [2, 7], [2, 7], [0, 1]),
    ]


def test_the_view_shares_the_memory_of_its_storage() -> None:
    storage = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = aclnn_py.with_format(storage, "FRACTAL_NZ", shape=(5,))
    storage[0, 1] = 9
    assert view.tolist() == [0, 9, 2, 3, 4]
    view[:2] = 7
    assert storage[0, :2].tolist() == [7, 7]


def test_the_reference_reads_plain_formats_as_they_are_and_refuses_private_ones() -> None:
    x, out = np.full((1, 1, 2, 2), -2, np.float32), np.zeros((1, 1, 2, 2), np.float32)
    absolute = aclnn_py.op("aclnnAbs", backend="reference")
    absolute(aclnn_py.with_format(x, "NCHW"), out)
    assert out.tolist() == [[[[2, 2], [2, 2]]]]
    private = aclnn_py.with_format(x, "FRACTAL_NZ")
    with pytest.raises(aclnn_py.UnsupportedError, match=r"'self'.*FRACTAL_NZ"):
        absolute(private, out)
    absolute(private[...], out)  # a slice is ND again


@pytest.mark.parametrize(
    ("array", "name", "shape", "message"),
    [
        (np.zeros(4), "NCHW2", None, "aclFormat"),
        (np.zeros(4), 0, None, "aclFormat"),
        (np.zeros(4), "FRACTAL_NZ", (5,), r"\(5,\) does not fit a storage of shape \(4,\)"),
        (np.zeros((4, 4)).T[:2], "FRACTAL_NZ", (3,), "does not fit"),
    ],
)
def test_refusals(array: Any, name: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aclnn_py.with_format(array, name, shape=shape)


def test_lists_have_no_format() -> None:
    with pytest.raises(TypeError, match="with_format takes a NumPy array or a DeviceArray, got list"):
        aclnn_py.with_format([1], "NCHW")
