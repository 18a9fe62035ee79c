"""Every example runs as the script that a user runs, on each backend, without a warning."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
# what an example is for must show in what it prints
SHOWS = {
    "asynchronous": ["launches"],
    "finalize_routing_grad": ["grad_scales", "checks passed"],
    "token_unpermute_with_ep_grad": ["probs_grad", "rank"],
    "device_check": ["as expected", "0 of them in numbers"],
    "moe_layer": ["plain torch", "checks passed"],
    "expert_parallel": ["4 process(es)", "no tokens", "bit for bit", "checks passed"],
    "error_handling": ["NullptrError", "TilingError", "IndexOutOfRangeError", "LibraryNotFoundError", "hint:"],
}

NEED_TORCH = ("moe_layer", "expert_parallel")


def test_the_promised_examples_are_there() -> None:
    assert set(SHOWS) <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(backend: Any, example: Path, tmp_path: Path) -> None:
    if example.stem in NEED_TORCH and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install -e '.[test,torch]'")
    arguments = ["--backend", backend.name] if "--backend" in example.read_text(encoding="utf-8") else []
    environment = {**os.environ, "ACLNN_PY_BACKEND": backend.name}
    environment.pop("ACLNN_PY_PRODUCT", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), *arguments],
        capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()
    for word in SHOWS.get(example.stem, ()):
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
