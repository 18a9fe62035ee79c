"""The command ``bench`` calls what it says on each backend. How long anything takes is nobody's assertion."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn_py import bench, cli


def test_it_times_calls_on_the_backend_that_is_asked_for(
    backend: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "numbers.json"
    assert bench.run(backend, quick=True, file=str(file)) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"backend: {backend.name}")
    assert ("nothing here is timed on an NPU" in out) == (backend.name != "npu")
    lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
    assert [line["what"].split(",")[0] for line in lines] == [
        "prepared call (op(...).bind)",
        "prepared call",
        "one-shot Executor",
    ]
    for line in lines:
        assert 0 < line["low"] <= line["median"] <= line["high"]
        assert f"{line['median']:.2f}" in out


def test_the_large_gradient_takes_turns_with_the_copy(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_LARGE", (6, 2, 8))
    made: list[list[Any]] = []
    arguments, waits = bench._arguments, Counter[str]()
    monkeypatch.setattr(bench, "_arguments", lambda *given: made.append(arguments(*given)) or made[-1])
    lines = bench._gradient(backend, lambda: waits.update(["wait"]), 3)
    assert [line.unit for line in lines] == ["ms", "ms", "x"]
    assert waits["wait"] == 2 * 2 * 3 * 2  # per body, round and turn, in the body and after it
    if backend.name != "reference":
        backend.stream().synchronize()
    x, out = (np.asarray(made[0][at]) for at in (2, -2))
    assert (x == out).all(), "the copy came last"


def test_the_command_line_has_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bench, "run", lambda backend, **options: asked.append((backend.name, options)) or 0)
    assert cli.main(["bench", "--backend", "reference", "--quick", "--json", "numbers.json"]) == 0
    assert asked == [("reference", {"quick": True, "file": "numbers.json"})]
