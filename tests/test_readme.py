"""Every Python block of the README runs, where it says that it does; commands it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aclnn_py import cli

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def run(block: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", block]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "number", range(len(BLOCKS)), ids=lambda n: f"{n}-torch" if BLOCKS[n].startswith("# needs torch") else str(n)
)
def test_a_block_runs(number: int, emulator_lib: Path) -> None:
    block = BLOCKS[number]
    if block.startswith("# needs torch"):
        pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[test,torch]'")
    needs = block.startswith("# needs") and not block.startswith("# needs torch")
    assert not needs or block.startswith("# needs the emulator"), "every block can be run here"
    done = run(block, ACLNN_PY_BACKEND="reference") if not needs else None
    assert done is None or done.returncode == 0, done.stderr
    done = run(block, ACLNN_PY_BACKEND="emulator", ACLNN_PY_LIBRARY_PATH=str(emulator_lib))
    assert done.returncode == 0, done.stderr


def test_there_are_blocks_for_every_reader() -> None:
    assert len(BLOCKS) >= 6
    assert any(block.startswith("# needs the emulator") for block in BLOCKS)


def test_the_two_commands_are_marked_for_the_checks() -> None:
    for mark, last in (("demo", "aclnn-py demo --backend reference"), ("tests", "pytest -n auto")):
        (block,) = re.findall(rf"<!-- {mark} -->\n```sh\n(.*?)```", TEXT, re.DOTALL)
        assert block.splitlines()[0] == "python3 -m venv .venv"
        assert block.rstrip().endswith(last)


def test_commands_that_it_names_exist() -> None:
    parser = cli._parser()
    known = next(action.choices for action in parser._actions if action.choices and "info" in action.choices)
    named = set(re.findall(r"`aclnn-py ([a-z]+)", TEXT)) | set(re.findall(r"bin/aclnn-py ([a-z]+)", TEXT))
    assert named <= set(known)
    assert {"info", "demo", "ops", "show", "stubs", "check", "emulator"} <= named
