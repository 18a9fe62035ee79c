"""The page about torch: its code runs, and the names it uses exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[test,torch]'")

import aclnn_py  # noqa: E402
from aclnn_py.interop import torch as ours  # noqa: E402

TEXT = (Path(__file__).parents[1] / "aclnn_py/interop/README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_BACKEND", "reference")
    exec(compile(BLOCKS[number], f"aclnn_py/interop/README.md, block {number}", "exec"), {})


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("name", ours.__all__)
def test_every_function_is_listed_with_its_parameters(name: str) -> None:
    (listed,) = re.findall(rf"^\| `{name}\((.*?)\)`", TEXT, re.MULTILINE)
    refused = {"x", "alpha1", "alpha2", "v", "zero_expert_range", "copy_expert_range", "constant_expert_range"}
    parameters = inspect.signature(getattr(ours, name)).parameters
    assert [p for p in listed.split(", ") if p != "*"] == [p for p in parameters if p not in refused]


def test_functions_it_names_exist() -> None:
    for name in re.findall(r"aclnn_py\.(moe_\w+)", TEXT):
        assert hasattr(aclnn_py, name) or hasattr(torch.ops.aclnn_py, name), name
