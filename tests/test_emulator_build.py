"""The built emulator as its users meet it: the README's commands, CMake samples, and its environment variables."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aclnn_py import emulator

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = sorted((ROOT / "examples" / "c").glob("*.cpp"))
pytestmark = pytest.mark.emulator


def plain_environment(**env: object) -> dict[str, str]:
    """This environment without what would choose another library or another behaviour."""
    own = ("ACLNN_", "ASCEND_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    for name in ("CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH"):
        kept.pop(name, None)
    return kept | {name: str(value) for name, value in env.items()}


def run(command: list[str], env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


# -- the command line, and the README's way to compile a sample


@pytest.fixture
def installed(emulator_lib: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build in a cache of its own, whose path needs quoting; returns the cache's root."""
    cache = tmp_path / "it's a cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    target = emulator._target()
    target.mkdir()
    (target / "lib").symlink_to(emulator_lib.resolve())
    (target / "include").symlink_to(emulator_lib.resolve().parent / "include")
    assert emulator.library_path() == target / "lib"
    return cache


def shell(script: str, cwd: Path, **env: object) -> subprocess.CompletedProcess[str]:
    """Run a script in which aclnn-py is this checkout's."""
    command = f'aclnn-py() {{ {sys.executable} -W error -m aclnn_py "$@"; }}\n{script}'
    return run(["bash", "-euo", "pipefail", "-c", command], plain_environment(**env), cwd)


def test_path_and_include_are_those_of_the_build(installed: Path, tmp_path: Path) -> None:
    done = shell("aclnn-py emulator build; aclnn-py emulator path; aclnn-py emulator path --include", tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), "nothing is built a second time"
    built, libraries, include = map(Path, done.stdout.splitlines())
    assert built == libraries == emulator._target() / "lib"
    assert libraries.is_relative_to(installed)
    assert (libraries / "libascendcl.so").exists()
    assert include == libraries.parent / "include"
    assert (include / "aclnnop" / "aclnn_moe_finalize_routing_v2_grad.h").exists()


def test_env_keeps_what_a_shell_had_and_survives_quoting(installed: Path, tmp_path: Path) -> None:
    script = """
eval "$(aclnn-py emulator env)"
printf '%s\\n' "$LD_LIBRARY_PATH" "$LIBRARY_PATH" "$CPATH" "$ACLNN_PY_BACKEND"
aclnn-py demo
"""
    done = shell(script, tmp_path, LD_LIBRARY_PATH="/before:/and more")
    assert (done.returncode, done.stderr) == (0, "")
    target = emulator._target()
    assert done.stdout.splitlines()[:4] == [
        f"{target}/lib:/before:/and more", f"{target}/lib",
        f"{target}/include:{target}/include/aclnn:{target}/include/aclnnop", "emulator",
    ]  # fmt: skip
    assert done.stdout.splitlines()[4].startswith("backend: emulator ("), "a plain call gets the emulator"


def test_before_a_build_there_is_a_message(tmp_path: Path) -> None:
    for command in ("path", "path --include", "env"):
        done = shell(f"aclnn-py emulator {command}", tmp_path, XDG_CACHE_HOME=tmp_path / "empty")
        assert done.returncode == 1, command
        assert done.stdout == ""
        assert "the emulator is not built: aclnn-py emulator build" in done.stderr
        assert "Traceback" not in done.stderr


def readme_block() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Quick start: a C or C++ sample without an NPU\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(aclnn-py emulator build.*?)^```", section, re.DOTALL | re.MULTILINE)
    return block


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_readme_compiles_and_runs_a_sample(sample: Path, installed: Path, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("the README's command needs g++, which is not on PATH")
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(sample, work / "sample.cpp")
    shutil.copy(sample.parent / "sample.h", work)
    block = readme_block()
    assert "g++ " in block and block.rstrip().endswith("./sample")
    done = shell(block, work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no warning, no violation, no second build"
    assert re.search(r"^workspace: 1677\d{4} bytes$", done.stdout, re.MULTILINE)


# -- CMake with an installed CANN


def cmake() -> str:
    found = emulator._tool("cmake")
    if found is None:
        pytest.skip("needs CMake, which is neither on PATH nor beside this Python: pip install cmake")
    return found


def configure(tmp_path: Path, root: Path) -> subprocess.CompletedProcess[str]:
    ninja = emulator._tool("ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    options = [f"-DASCEND_HOME_PATH={root}", "-DACLNN_BUILD_TESTS=OFF", *generator]
    return run([cmake(), "-S", str(ROOT), "-B", str(tmp_path / "build"), *options], plain_environment(), tmp_path)


@pytest.mark.parametrize("release", ["8", "9"])
def test_cmake_builds_the_samples_with_a_cann(release: str, emulator_lib: Path, tmp_path: Path) -> None:
    root = tmp_path / "cann"
    libraries = root / "lib64"
    libraries.mkdir(parents=True)
    (root / "include").symlink_to(emulator_lib.resolve().parent / "include")
    # CANN 8 has one operator library, CANN 9 one for each of its repositories
    only = {"libopapi.so", "libnnopbase.so", "libascendcl.so"} if release == "8" else None
    for file in emulator_lib.glob("lib*.so"):
        if only is None or file.name in only:
            (libraries / file.name).symlink_to(file.resolve())
    done = configure(tmp_path, root)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [sample.stem for sample in SAMPLES]
    build = [cmake(), "--build", str(tmp_path / "build"), "--parallel", "2", "--target", *names]
    done = run(build, plain_environment(), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "build" / "lib" / "libascendcl.so").exists(), "the emulator is not needed for it"
    for name in names:
        program = str(tmp_path / "build" / name)
        linked = run(["ldd", program], plain_environment(), tmp_path).stdout
        assert f"libopapi.so => {libraries}/libopapi.so" in linked
        assert f"libascendcl.so => {libraries}/libascendcl.so" in linked
        done = run([program], plain_environment(), tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "workspace: 1677" in done.stdout


def test_cmake_refuses_a_root_without_cann(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = configure(tmp_path, tmp_path / "empty")
    assert done.returncode != 0
    assert "ascendcl" in done.stderr, "it names the library that it looked for"


# -- environment variables of the emulator, each in a process of its own

PRELUDE = """
import json
import numpy as np
import aclnn_py
from aclnn_py._ffi import ffi
backend = aclnn_py.get_backend("emulator")
def count(what):
    symbol = backend.libraries.symbol("aclnnEmulatorCount")
    return int(ffi.cast("int64_t (*)(const char *)", symbol)(what.encode()))
grad, index = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([1, 3, 0, 2], np.int32)
rows, scales = np.ones((4, 4), np.float32), np.array([[2, 3], [4, 5]], np.float32)
"""
# gradient of row index[i] is grad[i // 2] * scales.flat[i]; of scales, the sum of a row of grad
GRAD_ROWS = [[16, 20, 24, 28], [0, 2, 4, 6], [20, 25, 30, 35], [0, 3, 6, 9]]
GRAD_SCALES = [[6, 6], [22, 22]]


def python(code: str, emulator_lib: Path, cwd: Path, **env: object) -> subprocess.CompletedProcess[str]:
    environment = plain_environment(ACLNN_PY_LIBRARY_PATH=emulator_lib, **env)
    return run([sys.executable, "-W", "error", "-c", PRELUDE + code], environment, cwd)


def test_a_recording_has_arguments_and_data_before_and_after(emulator_lib: Path, tmp_path: Path) -> None:
    code = """
out = np.full((4, 4), -7, np.float32), np.full((2, 2), -7, np.float32)
aclnn_py.moe_finalize_routing_v2_grad(grad, index, rows, scales, out=out, backend=backend)
aclnn_py.moe_token_unpermute_with_ep_grad(grad, index, rows, scales, range=(1, 3), backend=backend)
print(out[1].tolist())
"""
    done = python(code, emulator_lib, tmp_path, ACLNN_EMULATOR_RECORD=tmp_path / "calls.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == GRAD_SCALES
    lines = list(map(json.loads, (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()))
    first, second = (line for line in lines if "op" in line)
    events = [line for line in lines if "op" not in line]
    assert {line["event"] for line in events} >= {"allocate", "copy"}, "between calls, what happens to device memory"
    assert [first["op"], second["op"]] == ["aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"]
    assert first["status"] == second["status"] == 0
    assert first["workspace"] == 16777728
    values = {item["name"]: item["value"] for item in first["args"]}
    assert list(values)[:4] == ["gradY", "expandedRowIdx", "expandedXOptional", "scalesOptional"], "in C order"
    assert values["biasOptional"] is None
    assert values["dropPadMode"] == 0
    assert (values["gradY"]["dtype"], values["gradY"]["shape"]) == ("float32", [2, 4])
    assert values["gradY"]["strides"] == [4, 1]
    assert values["gradY"]["data"] == list(range(8))
    assert values["expandedRowIdx"]["data"] == [1, 3, 0, 2]
    assert values["gradScalesOut"]["data"] == [-7] * 4, "before the call"
    assert first["written"]["gradScalesOut"]["data"] == [6, 6, 22, 22]
    assert first["written"]["gradExpandedXOut"]["data"] == [value for row in GRAD_ROWS for value in row]
    assert set(first["written"]) == {"gradScalesOut", "gradExpandedXOut"}
    assert {item["name"]: item["value"] for item in second["args"]}["rangeOptional"] == [1, 3]


def test_nothing_is_recorded_unasked(emulator_lib: Path, tmp_path: Path) -> None:
    done = python("aclnn_py.moe_finalize_routing_v2_grad(grad, index, rows, scales)", emulator_lib, tmp_path,
                  ACLNN_PY_BACKEND="emulator")  # fmt: skip
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])


@pytest.mark.parametrize("mode", ["deferred", ""])
def test_a_deferred_stream_runs_only_when_waited_for(mode: str, emulator_lib: Path, tmp_path: Path) -> None:
    code = """
import time
arrays = [backend.to_device(array) for array in (grad, index, rows, scales)]
out = backend.to_device(np.full((4, 4), -7, np.float32)), backend.to_device(np.full((2, 2), -7, np.float32))
def peek():  # the memory itself: numpy() would wait
    return np.frombuffer(ffi.buffer(out[1].buffer.pointer, 16), np.float32).reshape(2, 2).tolist()
with backend.create_stream() as stream:
    names = "gradY", "expandedRowIdx", "expandedX", "scales"
    outputs = {"gradExpandedXOut": out[0], "gradScalesOut": out[1]}
    numbers = dict.fromkeys(("dropPadMode", "activeNum", "expertNum", "expertCapacity"), 0)
    call = aclnn_py.Executor("aclnnMoeFinalizeRoutingV2Grad", **dict(zip(names, arrays)), **numbers, **outputs,
                             backend=backend, stream=stream)
    before = count("launches")
    call.run()
    end = time.monotonic() + DEADLINE
    while count("launches") == before and time.monotonic() < end:
        time.sleep(0.01)
    early = [count("launches") - before, peek()]
    stream.synchronize()
    print(json.dumps([early, [count("launches") - before, peek()], out[0].numpy().tolist()]))
    call.close()
"""
    code = code.replace("DEADLINE", "0.3" if mode else "60")
    done = python(code, emulator_lib, tmp_path, ACLNN_EMULATOR_STREAM=mode)
    assert (done.returncode, done.stderr) == (0, "")
    early, late, whole = json.loads(done.stdout)
    assert early[0] == (0 if mode else 1)
    if mode:
        assert early[1] == [[-7, -7], [-7, -7]], "not there before synchronize"
    assert late == [1, GRAD_SCALES]
    assert whole == GRAD_ROWS


@pytest.mark.parametrize("strict", ["0", "1", None])
def test_tolerant_mode_reports_once_and_goes_on(strict: str | None, emulator_lib: Path, tmp_path: Path) -> None:
    code = """
backend.runtime.ensure_initialised()
seen = []
for _ in range(3):
    array = backend.api.aclCreateIntArray(ffi.new("int64_t[]", [1, 2]), 2)
    seen += [backend.api.aclDestroyIntArray(array), backend.api.aclDestroyIntArray(array)]
scales_grad = aclnn_py.moe_finalize_routing_v2_grad(grad, index, rows, scales, backend=backend)[1]
print(json.dumps([seen, count("violations"), scales_grad.tolist()]))
"""
    done = python(code, emulator_lib, tmp_path, **({} if strict is None else {"ACLNN_EMULATOR_STRICT": strict}))
    assert done.returncode == 0, done.stderr
    second = 0 if strict == "0" else 161002  # strict is the default from Python
    assert json.loads(done.stdout) == [[0, second] * 3, 3, GRAD_SCALES]
    (line,) = done.stderr.splitlines()
    assert line.startswith("aclnn emulator: violation: aclDestroyIntArray: ")
    assert "already destroyed" in line


def test_memory_is_limited(emulator_lib: Path, tmp_path: Path) -> None:
    code = """
free = backend.runtime.memory_info(0)
kept = backend.empty((1 << 20,), np.uint8)
try:
    backend.empty((3 << 20,), np.uint8)
except aclnn_py.DeviceMemoryError as error:
    print(json.dumps([free.total, error.code, isinstance(error, MemoryError), str(error)]))
kept.buffer.close()
backend.empty((3 << 20,), np.uint8)
"""
    done = python(code, emulator_lib, tmp_path, ACLNN_EMULATOR_MEMORY="3500K")
    assert (done.returncode, done.stderr) == (0, ""), "what is freed can be had again"
    total, code_, is_memory_error, text = json.loads(done.stdout)
    assert (total, code_, is_memory_error) == (3500 << 10, 207001, True)
    assert str(3 << 20) in text and "device 0" in text


def test_number_of_devices(emulator_lib: Path, tmp_path: Path) -> None:
    code = """
last = aclnn_py.get_backend("emulator", device=2)
answer = aclnn_py.moe_finalize_routing_v2_grad(grad, index, rows, scales, backend=last)[1].tolist()
try:
    aclnn_py.get_backend("emulator", device=3)
except ValueError as error:
    print(json.dumps([backend.runtime.device_count(), answer, str(error)]))
"""
    done = python(code, emulator_lib, tmp_path, ACLNN_EMULATOR_DEVICES=3)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [3, GRAD_SCALES, "device is 3, but emulator has 3 (0 to 2)"]


@pytest.mark.parametrize(
    ("given", "soc", "product"),
    [
        (None, "Ascend910B1", "A2"), ("A3", "Ascend910_9391", "A3"), ("950", "Ascend950PR_9589", "950"),
        ("Ascend910B3", "Ascend910B3", "A2"), ("Ascend310P3", "Ascend310P3", "310P"),
    ],
)  # fmt: skip
def test_the_soc_is_the_one_asked_for(
    given: str | None, soc: str, product: str, emulator_lib: Path, tmp_path: Path
) -> None:
    code = """
try:
    answer = aclnn_py.moe_finalize_routing_v2_grad(grad, index, rows, scales, backend=backend)[1].tolist()
except aclnn_py.AclnnError as error:
    answer = error.code
print(json.dumps([backend.runtime.soc_name(), backend.product, answer]))
"""
    done = python(code, emulator_lib, tmp_path, **({} if given is None else {"ACLNN_EMULATOR_SOC": given}))
    assert (done.returncode, done.stderr) == (0, "")
    refused = product == "310P"  # another family: the operator does not exist for it
    assert json.loads(done.stdout) == [soc, product, 207000 if refused else GRAD_SCALES]
