"""What the package says of itself, and the generated files; ``check_wheel.py`` looks into the built wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import aclnn_py

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest itself needs it there
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
CHECK = ROOT / "tests/check_wheel.py"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_the_same_everywhere(project: Any) -> None:
    assert project["project"]["version"] == aclnn_py.__version__ == metadata.version("aclnn-py")
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z]+\d+)?", aclnn_py.__version__)


def test_the_metadata_says_what_is_needed(project: Any) -> None:
    info = metadata.metadata("aclnn-py")
    assert info["Requires-Python"] == project["project"]["requires-python"] == ">=3.10"
    assert info["License-Expression"] == "Apache-2.0"
    needed = {re.match(r"[\w.-]+", line).group(): line for line in metadata.requires("aclnn-py") or ()}
    always = {name.lower().replace("-", "_") for name, line in needed.items() if "extra" not in line}
    assert always == {"cffi", "numpy", "ml_dtypes"}
    assert ">=1.26" in needed["numpy"], "1.26 and 2.x both work"
    assert "<" not in needed["numpy"].split(";")[0]
    assert {"test", "dev"} <= set(info.get_all("Provides-Extra") or ())


def test_the_console_script_is_the_command_line() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="aclnn-py")
    from aclnn_py import cli

    assert script.load() is cli.main


def test_licence_and_type_marker_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "aclnn_py/py.typed").is_file()


def test_generated_files_stay_out_of_the_repository() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    for name in ("aclnn_py/_ffi.py", "aclnn_py/_signatures.py"):
        assert any(name.endswith(line.lstrip("/")) for line in ignored), name


# -- the build hook

STANDIN = """
import sys, types
for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin",
             "hatchling.builders.hooks.plugin.interface"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["hatchling.builders.hooks.plugin.interface"].BuildHookInterface = object
sys.modules["numpy"] = None  # absent where wheels are built
sys.path.insert(0, sys.argv[1] + "/cdefs")
import build
from pathlib import Path
build.generate(Path(sys.argv[1]))
assert "aclnn_py" not in sys.modules
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree in which the hook has run, with cffi only."""
    root = tmp_path_factory.mktemp("generated")
    shutil.copytree(ROOT / "cdefs", root / "cdefs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        ROOT / "aclnn_py", root / "aclnn_py",
        ignore=shutil.ignore_patterns("__pycache__", "_ffi.py", "_signatures.py", "emulator"),
    )  # fmt: skip
    subprocess.run([sys.executable, "-W", "error", "-c", STANDIN, str(root)], check=True, timeout=60)
    return root / "aclnn_py"


def test_the_hook_generates_what_the_package_uses(generated: Path) -> None:
    name = "_signatures.py"
    assert (generated / name).read_text() == (ROOT / "aclnn_py" / name).read_text(), "install again: pip install -e ."
    space: dict[str, Any] = {}
    exec((generated / "_ffi.py").read_text(), space)
    ffi = space["ffi"]
    assert ffi.integer_const("ACL_BF16") == 27
    assert ffi.sizeof("aclDataType") == 4
    assert ffi.typeof("aclOpExecutor *").kind == "pointer"
    from aclnn_py._ffi import ffi as used

    assert ffi.list_types() == used.list_types(), "install again: pip install -e ."


def test_a_change_of_the_declarations_reaches_the_signatures(generated: Path) -> None:
    root = generated.parent
    header = root / "cdefs/ops/mine.h"
    header.write_text(
        "aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x, uint64_t *workspaceSize, aclOpExecutor **executor);"
    )
    try:
        subprocess.run([sys.executable, "-c", STANDIN, str(root)], check=True, timeout=60)
        assert (
            "('aclnnMine', 'cdefs/ops/mine.h', [('x', 'const aclTensor *')])"
            in (generated / "_signatures.py").read_text()
        )
        header.write_text("aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x);")
        done = subprocess.run(
            [sys.executable, "-c", STANDIN, str(root)], timeout=60, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "mine.h" in done.stderr
    finally:
        header.unlink()


# -- check_wheel.py itself can fail


def wheel(
    directory: Path, *, leave_out: str = "", add: dict[str, str] | None = None, tag: str = "py3-none-any"
) -> None:
    """Write something like the wheel of this checkout."""
    directory.mkdir(exist_ok=True)
    version = aclnn_py.__version__
    info = f"aclnn_py-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.4\nName: aclnn-py\nVersion: {version}\nRequires-Python: >=3.10\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[console_scripts]\naclnn-py = aclnn_py.cli:main\n",
        f"{info}/RECORD": "",
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_text(),
    }
    for source, target in ((ROOT / "aclnn_py", "aclnn_py"), (ROOT / "cdefs", "aclnn_py/_cdefs")):
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{target}/{path.relative_to(source).as_posix()}"] = path.read_text(encoding="utf-8")
    with zipfile.ZipFile(directory / f"aclnn_py-{version}-{tag}.whl", "w") as archive:
        for name, text in {**files, **(add or {})}.items():
            if not leave_out or leave_out not in name:
                archive.writestr(name, text)


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), str(directory), "--no-sdist"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_wheel_check_passes_a_good_wheel(tmp_path: Path) -> None:
    wheel(tmp_path / "dist")
    done = check(tmp_path / "dist")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "broken",
    [
        dict(leave_out="aclnn_py/_ffi.py"),
        dict(leave_out="aclnn_py/_signatures.py"),
        dict(leave_out="py.typed"),
        dict(leave_out="_cdefs/ops/moe.h"),
        dict(leave_out="_cdefs/types.h"),
        dict(leave_out="emulator/src/CMakeLists.txt"),
        dict(leave_out="emulator/src/stream.cpp"),
        dict(leave_out="reference/loops.py"),
        dict(leave_out="LICENSE"),
        dict(leave_out="entry_points"),
        dict(add={"tests/test_x.py": ""}),
        dict(add={"aclnn_py/libopapi.so": ""}),
        dict(add={"aclnn_py/__pycache__/cli.cpython-311.pyc": ""}),
        dict(add={"examples/demo.py": ""}),
        dict(tag="cp311-cp311-linux_x86_64"),
    ],
    ids=str,
)
def test_the_wheel_check_finds(tmp_path: Path, broken: dict[str, Any]) -> None:
    wheel(tmp_path / "dist", **broken)
    done = check(tmp_path / "dist")
    assert done.returncode == 1, done.stdout
    word = broken.get("leave_out") or broken.get("tag") or next(iter(broken["add"]))
    assert word in done.stdout + done.stderr


def test_the_wheel_check_wants_exactly_one_wheel(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    assert check(tmp_path / "dist").returncode == 1
    wheel(tmp_path / "dist")
    (tmp_path / "dist/aclnn_py-0.0.0-py3-none-any.whl").touch()
    assert check(tmp_path / "dist").returncode == 1
