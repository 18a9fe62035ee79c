"""The command line: what it prints, where, and its exit status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclnn_py
from aclnn_py import _discovery, backends, cli, demo, reference, signatures

VARIABLES = (
    "ACLNN_PY_BACKEND", "ACLNN_PY_PRODUCT", "ACLNN_PY_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME",
    "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "ASCEND_RT_VISIBLE_DEVICES", "LD_LIBRARY_PATH",
)  # fmt: skip
V2_GRAD, EP_GRAD = "aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"
# every family, every kind of parameter; the built-in list is long
OPERATORS_SHOWN = {name for name in signatures.known() if name.startswith("aclnnMoe")} | {
    name for i, name in enumerate(sorted(signatures.known())) if i % 10 == 0
}


@pytest.fixture
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with nothing installed, whatever this one has."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_discovery, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(backends, "_warned", False)
    monkeypatch.setattr(backends, "_native", {})
    return tmp_path / "system"


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def run(bare_host: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: str) -> Ran:
        try:
            status = cli.main(list(arguments))
        except SystemExit as done:  # argparse's own way out
            status = int(done.code or 0)
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return call


def elsewhere(system: Path, *arguments: str) -> Ran:
    """Run the program in a process that has opened no library, on the same bare host."""
    code = f"""
import sys
from pathlib import Path
from aclnn_py import _discovery, cli
_discovery.SYSTEM = Path({str(system)!r})
sys.exit(cli.main({list(arguments)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return Ran(done.returncode, done.stdout, done.stderr)


# -- info


def test_info_on_a_bare_host_says_what_is_missing_and_what_to_do(run: Any) -> None:
    ran = run("info")
    assert (ran.status, ran.err) == (0, "")
    assert aclnn_py.__version__ in ran.out
    assert np.__version__ in ran.out
    assert re.search(r"reference +ready", ran.out)
    assert re.search(r"emulator +not built: aclnn-py emulator build", ran.out)
    assert re.search(r"npu +missing: .*libascendcl", ran.out)
    assert re.search(r"auto would use +reference", ran.out)
    assert re.search(r"ASCEND_HOME_PATH +\(not set\)", ran.out)
    assert re.search(r"devices +none", ran.out)
    steps = ran.out.split("\nnext\n")[1]
    assert "set_env.sh" in steps
    assert "aclnn-py demo --backend reference" in steps
    assert "no such directory" in ran.out, "it says where it looked"


def test_info_shows_what_is_there(run: Any, bare_host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare_host / "dev").mkdir(parents=True)
    (bare_host / "dev/davinci0").touch()
    root = bare_host / "usr/local/Ascend/cann"
    (root / "lib64").mkdir(parents=True)
    (root / "version.info").write_text("Version=9.1.0\n")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("ACLNN_PY_PRODUCT", "A3")
    ran = run("info")
    assert ran.status == 0
    assert re.search(r"devices +/dev/davinci0", ran.out)
    assert re.search(rf"root +{root} ", ran.out)
    assert re.search(r"version +9\.1\.0", ran.out)
    assert re.search(r"ASCEND_RT_VISIBLE_DEVICES +0", ran.out)
    assert re.search(r"ACLNN_PY_PRODUCT +A3", ran.out)


@pytest.mark.parametrize("name", ["emulator", "npu", "reference"])
def test_info_says_which_backend_a_plain_call_would_get(run: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_BACKEND", name)
    ran = run("info")
    assert ran.status == 0
    assert re.search(rf"auto would use +{name}", ran.out), "the variable names it"


def test_info_survives_a_wrong_variable(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_BACKEND", "nonsense")
    monkeypatch.setenv("ACLNN_PY_PRODUCT", "nonsense")
    ran = run("info")
    assert ran.status == 0
    assert "nonsense" in ran.out


# -- demo


def test_demo_shows_inputs_outputs_and_an_independent_check(run: Any) -> None:
    ran = run("demo")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("backend: reference")
    for word in (V2_GRAD, EP_GRAD, "gradY", "expandedRowIdx", "unpermutedTokensGrad", "gradScalesOut", "workspace"):
        assert word in ran.out
    for number in ("0.81791", "0.179657", "0.025033", "0.642641", "1.157701", "1.146825", "1.180888"):
        assert number in ran.out, "the numbers of the public sample"
    assert re.search(r"probsGradOut +\[\[2\., 2\., 2\.\]\]", ran.out)
    assert ran.out.count(": ok") == 4
    assert "both operators right" in ran.out
    assert run("demo", "--backend", "reference").out == ran.out


@pytest.mark.parametrize("name", [V2_GRAD, EP_GRAD])
@pytest.mark.parametrize("wrong", ["one element", "nothing written", "not a number"])
def test_demo_fails_when_the_backend_computes_wrong(
    run: Any, name: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = reference.OPERATORS[name]

    def compute(args: Any, product: str) -> None:
        if wrong == "nothing written":
            return
        operator.compute(args, product)
        output = args[signatures.find(name).outputs[1]]
        output[0, 0] = float("nan") if wrong == "not a number" else output[0, 0] + 1e-4

    monkeypatch.setitem(reference.OPERATORS, name, operator._replace(compute=compute))
    ran = run("demo", "--backend", "reference")
    assert ran.status == 1
    assert "WRONG" in ran.out
    assert "MISMATCH" in ran.err
    assert "both operators right" not in ran.out


def test_demo_runs_on_the_backend_that_is_asked_for(backend: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run(backend) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"backend: {backend.name}")
    assert "both operators right" in out


@pytest.mark.parametrize(("name", "advice"), [("npu", "set_env.sh"), ("emulator", "aclnn-py emulator build")])
def test_demo_on_a_missing_backend_fails_with_advice(bare_host: Path, name: str, advice: str) -> None:
    ran = elsewhere(bare_host, "demo", "--backend", name)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("aclnn-py demo: ")
    assert advice in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ACLNN_PY_BACKEND", "nonsense", "nonsense"),
        ("ACLNN_PY_PRODUCT", "nonsense", "nonsense"),
        ("ACLNN_PY_PRODUCT", "Ascend310P3", "310P"),
        ("ACLNN_PY_BACKEND", "npu", "set_env.sh"),
    ],
)
def test_a_wrong_variable_is_a_message_not_a_traceback(
    bare_host: Path, variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    ran = elsewhere(bare_host, "demo")
    assert ran.status == 1
    assert ran.err.startswith("aclnn-py demo: ")
    assert says in ran.err


# -- ops and show


def listed(ran: Ran) -> list[str]:
    return [line.split()[0] for line in ran.out.splitlines()]


def test_ops_lists_operators_where_they_are_and_where_declared(run: Any) -> None:
    ran = run("ops")
    assert (ran.status, ran.err) == (0, "")
    assert listed(ran) == sorted(signatures.known())
    for line in ran.out.splitlines():
        name = line.split()[0]
        assert line.endswith(signatures.known()[name].header)
        assert ("not in the reference" in line) == (name not in reference.OPERATORS)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("unpermute", ["aclnnMoeTokenUnpermuteWithEp", EP_GRAD]),
        ("*V2Grad", [V2_GRAD]),
        ("aclnnmoeinitrouting??", ["aclnnMoeInitRoutingV2"]),
        ("RoutingV[34]", []),
        ("*RoutingV[34]", ["aclnnMoeFinalizeRoutingV3", "aclnnMoeFinalizeRoutingV4"]),
        ("nothing like it", []),
    ],
)
def test_ops_takes_part_of_a_name_or_a_glob(run: Any, pattern: str, expected: list[str]) -> None:
    ran = run("ops", pattern)
    assert listed(ran) == expected
    assert ran.status == (0 if expected else 1)
    assert (repr(pattern) in ran.err) == (not expected)


@pytest.mark.parametrize("name", sorted(OPERATORS_SHOWN))
def test_show_gives_every_parameter_and_a_call_that_compiles(run: Any, name: str) -> None:
    ran = run("show", name)
    assert (ran.status, ran.err) == (0, "")
    signature = signatures.known()[name]
    table, call = ran.out.split("\n\n", 1)
    rows = table.splitlines()
    assert rows[0].startswith(name)
    assert signature.header in rows[0]
    for parameter, row in zip(signature.parameters, rows[1:], strict=True):
        assert row.split()[0] == parameter.name
        assert parameter.ctype in row
        notes = row.split(parameter.ctype, 1)[1]
        assert ("output" in notes or "in place" in notes) == (parameter.name in signature.outputs)
        assert ("may be None" in notes) == (parameter.name.endswith("Optional") and parameter.ctype.endswith("*"))
    compile(call, "shown", "exec")
    places = [re.search(rf'\b{parameter.name}(=|": )', call) for parameter in signature.parameters]
    assert all(places), "every parameter is in the call"
    starts = [place.start() for place in places if place]
    assert starts == sorted(starts), "in C order"


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("MoeFinalizeRoutingV2Grad", V2_GRAD),
        ("aclnnmoefinalizeroutingv2grad", V2_GRAD),
        ("aclnnMoeFinalizeRoutingV2Gard", V2_GRAD),
        ("aclnnMoeTokenUnpermuteWithEpGrd", EP_GRAD),
        ("aclnnZzzz", "aclnn-py ops"),
    ],
)
def test_show_of_an_unknown_operator_suggests(run: Any, name: str, suggestion: str) -> None:
    ran = run("show", name)
    assert (ran.status, ran.out) == (1, "")
    assert repr(name) in ran.err
    assert suggestion in ran.err


# -- emulator


@pytest.mark.parametrize("arguments", [["path"], ["path", "--include"], ["env"]])
def test_an_emulator_that_is_not_built_is_said_to_be_so(run: Any, arguments: list[str]) -> None:
    ran = run("emulator", *arguments)
    assert (ran.status, ran.out) == (1, "")
    assert "aclnn-py emulator build" in ran.err


@pytest.mark.parametrize("missing", ["cmake", "compiler"])
def test_building_without_the_tools_says_how_to_get_them(
    run: Any, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    if missing == "compiler":
        (tools / "cmake").write_text("#!/bin/sh\nexit 9\n")
        (tools / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("CXX", raising=False)
    # pip installs cmake beside the interpreter, where it is looked for too
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    ran = run("emulator", "build")
    assert ran.status == 1
    assert ("CMake" if missing == "cmake" else "C++17 compiler") in ran.err
    assert "apt-get install cmake g++" in ran.err


def test_a_failed_build_shows_its_output_and_leaves_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("cmake", "#!/bin/sh\necho broken for a reason\nexit 9\n"), ("c++", "#!/bin/sh\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    ran = run("emulator", "build")
    assert ran.status == 1
    assert "broken for a reason" in ran.err
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []
    assert run("emulator", "path").status == 1


# -- the program itself


def test_usage(run: Any) -> None:
    assert run().status == 2
    assert run("nonsense").status == 2
    assert run("demo", "--backend", "gpu").status == 2
    ran = run("--version")
    assert (ran.status, ran.out) == (0, f"aclnn-py {aclnn_py.__version__}\n")
    ran = run("--help")
    assert ran.status == 0
    for command in ("info", "demo", "ops", "show", "emulator"):
        assert command in ran.out


def clean_environment() -> dict[str, str]:
    dropped = {*VARIABLES, "PYTHONUNBUFFERED"}
    return {key: value for key, value in os.environ.items() if key not in dropped}


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "aclnn_py", "demo", "--backend", "reference"],
        capture_output=True, text=True, timeout=60, env=clean_environment(),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "both operators right" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "aclnn_py", "show", "aclnnNo"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("command", [["ops"], ["demo", "--backend", "reference"]])
def test_a_reader_that_has_gone_is_no_error(command: list[str], unbuffered: bool) -> None:
    environment = clean_environment()
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "aclnn_py", *command],
        stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=environment,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 0
