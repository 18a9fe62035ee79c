"""The script for a first device: what it asks, that it tells right from wrong, and that nothing stops it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aclnn_py

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "device_check.py"
MAIN = 'if __name__ == "__main__":'
TWINS = (
    "moe_finalize_routing_v2", "moe_init_routing_v2", "moe_token_unpermute_with_ep", "moe_token_permute_with_ep",
    "moe_token_permute_with_ep_grad",
)  # fmt: skip
GRADIENTS = ("moe_finalize_routing_v2_grad", "moe_token_unpermute_with_ep_grad")
# what was only read in CANN's sources, each with words of the questions that settle it
OPEN = {
    "null range": ["WithEpGrad, a null range", "WithEpGrad, range (-1, -1)", "(forward), a null range"],
    "code of a bad shape": ["expandedX of a wrong shape", "sortedIndices of rank 2"],
    "destroying an executor that never ran": ["never ran (composite)", "never ran (generated)"],
    "repeatable after an identical plain call": ["identical call (composite)", "identical call (generated)"],
    "dropped slot with bias": ["forward mode 3, bias of a dropped slot", "gradient mode 1, the same"],
    "zero tokens": ["zero tokens: gradient, mode 0", "mode 1", "zero tokens: WithEp gradient"],
}
NEEDS_A_DEVICE = ("repeatable", "DeviceArray")  # no answer on the reference


class Ran(NamedTuple):
    status: int
    out: str
    err: str
    report: dict[str, Any]

    def answers(self) -> dict[str, str]:
        return {row["question"]: row["observed"] for row in self.report["rows"]}

    def differing(self) -> dict[str, str]:
        return {row["question"]: row["observed"] for row in self.report["rows"] if row["verdict"] == "DIFFERS"}


def run(emulator_lib: Path, target: Path, backend: str, script: Path = SCRIPT, **env: str) -> Ran:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ACLNN_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), "--backend", backend, "--json", str(target)],
        env=plain | {"ACLNN_PY_LIBRARY_PATH": str(emulator_lib), **env},
        capture_output=True, text=True, timeout=120, cwd=target.parent, check=False,
    )  # fmt: skip
    report = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    return Ran(done.returncode, done.stdout, done.stderr, report)


def altered(directory: Path, code: str) -> Path:
    """Return a copy of the script with code that its workers run too."""
    text = SCRIPT.read_text(encoding="utf-8")
    assert text.count(MAIN) == 1
    copy = directory / "altered.py"
    copy.write_text(text.replace(MAIN, f"{code}\n\n{MAIN}"), encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def check() -> Any:
    spec = importlib.util.spec_from_file_location("device_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["emulator", "reference"])
def test_all_questions_are_answered_as_expected(name: str, emulator_lib: Path, tmp_path: Path, check: Any) -> None:
    ran = run(emulator_lib, tmp_path / "out.json", name)
    assert (ran.status, ran.err) == (0, "")
    rows = ran.report["rows"]
    assert [row["question"] for row in rows] == list(check.PROBES), "each question once, none lost"
    assert ran.report["backend"] == name
    assert ran.report["product"] == "A2"
    assert ran.report["library"] == ("the emulator" if name == "emulator" else "none")
    assert ran.report["aclnn_py"] == aclnn_py.__version__
    for row in rows:
        skipped = name == "reference" and row["question"].startswith(NEEDS_A_DEVICE)
        assert row["verdict"] == ("-" if skipped else "as expected"), row
        assert row["observed"] == ("not applicable" if skipped else row["expected"])
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"{name}: ")
    assert lines[2:-1] == [f"{row['verdict']:<12} {row['question']}: {row['observed']}" for row in rows]
    assert lines[-1] == f"0 of {len(rows)} differ, 0 of them in numbers"


@pytest.mark.parametrize("topic", OPEN)
def test_an_open_question_is_asked(topic: str, check: Any) -> None:
    for words in OPEN[topic]:
        assert sum(words in question for question in check.PROBES), words


def test_a_bad_shape_may_be_561002_or_561103(check: Any) -> None:
    asked = {expected for question, (expected, _) in check.PROBES.items() if "wrong shape" in question}
    assert asked == {"561103"}
    assert check.PROBES["aclnnMoeTokenUnpermuteWithEpGrad: sortedIndices of rank 2"][0] == "561002"


def test_the_cases_cover_the_operators_in_all_modes(check: Any) -> None:
    assert [np.dtype(dtype).name for dtype in check.FLOATS] == ["float32", "float16", "bfloat16"]
    for dtype in check.FLOATS:
        cases = [*check.finalize_cases(dtype), *check.ep_cases(dtype)]
        assert {name for _, name, _, _ in cases} == {*GRADIENTS, *TWINS}
        assert all(np.asarray(args[0]).dtype == dtype for _, _, args, _ in cases)
        modes: dict[str, set[int]] = {}
        for _, name, _, keywords in cases:
            modes.setdefault(name, set()).add(keywords.get("drop_pad_mode", 0))
        assert modes["moe_finalize_routing_v2"] == {0, 1, 2, 3}
        assert modes["moe_finalize_routing_v2_grad"] == modes["moe_init_routing_v2"] == {0, 1}
        gradients = [(args, keywords) for _, name, args, keywords in cases if name == GRADIENTS[0]]
        # no scales, with scales, with bias too, in both modes
        used = {(len(args), keywords.get("drop_pad_mode", 0)) for args, keywords in gradients}
        assert used >= {(2, 0), (4, 0), (6, 0), (4, 1), (6, 1)}
        assert any(0 < keywords.get("active_num", 0) < args[1].size for args, keywords in gradients)
        assert any((args[1] == -1).any() for args, keywords in gradients if keywords.get("drop_pad_mode") == 1)
        gradients = [(args, keywords) for _, name, args, keywords in cases if name == GRADIENTS[1]]
        assert {args[3].dtype for args, _ in gradients if len(args) == 4} == set(check.FLOATS)
        assert any(len(args) == 2 for args, _ in gradients), "without probs"
        ranged = [
            (len(args[2]), args[1].size, keywords["range"]) for args, keywords in gradients if "range" in keywords
        ]
        assert any(rows == n for rows, n, _ in ranged)
        assert any(rows == end - start < n for rows, n, (start, end) in ranged)


@pytest.mark.parametrize("function", [*GRADIENTS, *TWINS])
def test_a_wrong_number_of_any_operator_is_noticed(function: str, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value of the first result of one case is wrong."""
    right, calls = getattr(aclnn_py, function), []

    def wrong(*args: Any, backend: Any, **keywords: Any) -> Any:
        result = right(*args, backend=aclnn_py.get_backend("reference"), **keywords)
        if backend is device:
            calls.append(keywords)
            if len(calls) == 2:
                first = result[0] if isinstance(result, tuple) else result
                first.flat[7] = first.flat[7] * 1.05 + 1
        return result

    device = type("Device", (), {"name": "npu", "product": "A2"})()
    monkeypatch.setattr(aclnn_py, function, wrong)
    expected, probe = check.PROBES[f"numbers of {function}"]
    text = probe(device)
    assert expected == f"equal ({len(calls)} cases)", "every case is run on the device, also after a fault"
    assert text.startswith("float32 ") and ", result 0: 1 of " in text and ";" not in text


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_difference_allows_the_last_bit_of_a_sum_only(dtype: str, check: Any) -> None:
    kind = next(kind for kind in check.FLOATS if kind.name == dtype)
    want = np.full(4, 100, kind)
    bits = want.view(np.uint32 if dtype == "float32" else np.uint16)
    last, far, nan = (bits + 1).view(kind), want.copy(), want.copy()
    far[2], nan[1] = 110, np.nan
    assert check.difference(want, want.copy(), True) == check.difference(last, want, False) == ""
    assert check.difference(last, want, True).startswith("4 of 4 values wrong")
    assert check.difference(far, want, False).startswith("1 of 4 values wrong, by up to 10")
    assert check.difference(nan, want, False).startswith("1 of 4 values wrong")
    assert "instead of" in check.difference(want[:3], want, False)
    assert "instead of" in check.difference(want.astype(np.float64), want, False)


def test_another_release_is_reported_and_no_failure(emulator_lib: Path, tmp_path: Path) -> None:
    ran = run(emulator_lib, tmp_path / "out.json", "emulator", ACLNN_EMULATOR_CANN="8")
    assert (ran.status, ran.err) == (0, "")
    assert ran.differing() == {
        "aclnnMoeTokenUnpermuteWithEpGrad, a null range": "empty range",
        "aclnnMoeTokenUnpermuteWithEpGrad, range (-1, -1)": "empty range",
        "aclnnMoeTokenUnpermuteWithEp (forward), a null range": "empty range",
        "aclnnMoeFinalizeRoutingV2Grad: expandedX of a wrong shape": "561002",
        "aclnnMoeFinalizeRoutingV2Grad: dropPadMode 2": "561002",
        "aclnnMoeTokenUnpermuteWithEpGrad: paddedMode true": "accepted",
    }
    lines = ran.out.splitlines()
    at = lines.index("DIFFERS      aclnnMoeTokenUnpermuteWithEpGrad, a null range: empty range")
    assert lines[at + 1].strip() == "expected: whole range"
    assert lines[-1].startswith("6 of ") and lines[-1].endswith(" differ, 0 of them in numbers")


def test_wrong_numbers_are_the_exit_status(emulator_lib: Path, tmp_path: Path) -> None:
    code = """
_right = aclnn_py.moe_token_permute_with_ep_grad


def _wrong(*args, backend, **keywords):
    result = _right(*args, backend=backend, **keywords)
    if backend.name == "emulator":
        result[0][0] += 1
    return result


aclnn_py.moe_token_permute_with_ep_grad = _wrong
"""
    ran = run(emulator_lib, tmp_path / "out.json", "emulator", altered(tmp_path, code))
    assert ran.status == 1
    assert list(ran.differing()) == ["numbers of moe_token_permute_with_ep_grad"]
    assert ran.out.endswith("differ, 1 of them in numbers\n")


def test_crashes_and_device_faults_are_lines_of_the_table(emulator_lib: Path, tmp_path: Path) -> None:
    code = """
import os


def _fault(backend):
    raise aclnn_py.DeviceFaultError(507015, "aclrtSynchronizeStream")


def _process(backend):
    return str(os.getpid())


_asked = {"crash": ("-", lambda backend: os.abort()), "plain": ("-", lambda backend: 1 / 0)}
_asked |= {"process 1": ("-", _process), "fault": ("-", _fault), "process 2": ("-", _process)}
PROBES = {**_asked, **dict(list(PROBES.items())[-2:])}
"""
    ran = run(emulator_lib, tmp_path / "out.json", "emulator", altered(tmp_path, code))
    assert ran.status == 0, ran.err
    seen = ran.answers()
    assert seen["crash"] == "the process ended with status -6"
    assert seen["plain"] == "ZeroDivisionError: division by zero"
    assert seen["fault"].startswith("DeviceFaultError: ") and "507015" in seen["fault"]
    assert seen["process 1"] != seen["process 2"], "a context with a fault is not used again"
    assert [row["verdict"] for row in ran.report["rows"][-2:]] == ["as expected"] * 2


def test_the_emulator_never_passes_for_a_device(emulator_lib: Path, tmp_path: Path) -> None:
    code = "PROBES = dict(list(PROBES.items())[-1:])"
    ran = run(emulator_lib, tmp_path / "out.json", "npu", altered(tmp_path, code))
    assert ran.status == 0, ran.err
    assert (ran.report["backend"], ran.report["library"]) == ("npu", "the emulator")
    assert ran.out.splitlines()[1] == "library: the emulator"


def test_without_the_library_it_says_why_and_writes_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "nothing"
    empty.mkdir()
    ran = run(empty, tmp_path / "out.json", "emulator")
    assert ran.status == 2
    assert ran.out == "" and ran.report == {}
    assert "LibraryNotFoundError" not in ran.err, "a message, not a traceback"
    assert str(empty) in ran.err and ran.err.endswith("aclnn-py info tells more\n")
