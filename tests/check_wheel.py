"""Checks what was built: ``python tests/check_wheel.py DIST_DIR``.

DIST_DIR holds one wheel and one source distribution. The wheel must carry everything that an installed package uses,
the emulator's sources included, and nothing else; the source distribution must build into the same wheel.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    "aclnn_py/__init__.py",
    "aclnn_py/_ffi.py",
    "aclnn_py/_signatures.py",
    "aclnn_py/py.typed",
    "aclnn_py/_cdefs/types.h",
    "aclnn_py/_cdefs/base.h",
    "aclnn_py/_cdefs/ops/moe.h",
    "aclnn_py/emulator/src/CMakeLists.txt",
)
BINARY = (".so", ".a", ".o", ".pyc", ".dylib", ".pyd")
# what the installed package finds out about itself, with this wheel alone on the path
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
import aclnn_py
from aclnn_py import emulator, signatures
from pathlib import Path
root = Path(sys.argv[1])
assert Path(aclnn_py.__file__).is_relative_to(root), aclnn_py.__file__
assert emulator._cdefs() == root / "aclnn_py/_cdefs", emulator._cdefs()
read = {s.name for header in (root / "aclnn_py/_cdefs/ops").glob("*.h") for s in aclnn_py.parse_header(header)}
assert read == set(signatures.known()), read ^ set(signatures.known())
print(aclnn_py.__version__)
"""


def single(directory: Path, pattern: str) -> Path:
    """Return the one file that matches."""
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{directory} has {len(found)} files {pattern}, expected one: {[f.name for f in found]}")
    return found[0]


def sources() -> set[str]:
    """Names, as in the wheel, of the files of this checkout that an installed package uses."""
    names = set()
    for folder, target in ((ROOT / "aclnn_py", "aclnn_py"), (ROOT / "cdefs", "aclnn_py/_cdefs")):
        for path in folder.rglob("*"):
            hidden = any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden:
                names.add(f"{target}/{path.relative_to(folder).as_posix()}")
    return names - {"aclnn_py/_cdefs/build.py"}  # of no use once installed


def check_wheel(path: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    problems = []
    name, version, *tag = path.stem.split("-")
    if (name, "-".join(tag)) != ("aclnn_py", "py3-none-any"):
        problems.append(f"{path.name} is not aclnn_py-VERSION-py3-none-any.whl")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path) as archive:
        names = {entry for entry in archive.namelist() if not entry.endswith("/")}
        texts = {n: archive.read(n).decode() for n in names if n.startswith(info)}
    for missing in sorted((sources() | set(NEEDED)) - names):
        problems.append(f"{missing} is missing")
    for entry in sorted(names):
        if not entry.startswith(("aclnn_py/", f"{info}/")) or entry.endswith(BINARY) or "__pycache__" in entry:
            problems.append(f"{entry} does not belong in it")
    if not any(n.startswith(f"{info}/") and n.endswith("LICENSE") for n in texts):
        problems.append("LICENSE is missing")
    if "aclnn-py = aclnn_py.cli:main" not in texts.get(f"{info}/entry_points.txt", ""):
        problems.append("entry_points.txt has no aclnn-py")
    wheel, metadata = (Parser().parsestr(texts.get(f"{info}/{file}", "")) for file in ("WHEEL", "METADATA"))
    if (wheel["Root-Is-Purelib"], wheel.get_all("Tag")) != ("true", ["py3-none-any"]):
        problems.append(f"the wheel is not pure: {wheel.items()}")
    if metadata["Version"] != version:
        problems.append(f"METADATA says version {metadata['Version']}, the file name {version}")
    return problems or check_content(path, version)


def check_content(path: Path, version: str) -> list[str]:
    """Import the package from an unpacked wheel, where nothing of the checkout is in reach."""
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(place)
        done = subprocess.run(
            [sys.executable, "-I", "-c", PROBE, str(Path(place).resolve())],
            capture_output=True, text=True, cwd=place, check=False,
        )  # fmt: skip
    if done.returncode:
        return [f"the unpacked wheel does not work:\n{done.stderr}"]
    return [] if done.stdout.strip() == version else [f"__version__ is {done.stdout.strip()}, expected {version}"]


def check_sdist(path: Path, wheel: Path) -> list[str]:
    """Return what is wrong with a source distribution: its content, and the wheel that it builds."""
    problems = []
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("pyproject.toml", "README.md", "LICENSE", "cdefs/build.py", "cdefs/ops/moe.h", "tests/conftest.py"):
        if needed not in names:
            problems.append(f"{path.name}: {needed} is missing")
    for generated in ("aclnn_py/_ffi.py", "aclnn_py/_signatures.py"):
        if generated in names:
            problems.append(f"{path.name}: {generated} is generated and does not belong in it")
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return [*problems, f"{path.name} does not build:\n{done.stderr}"]
        with zipfile.ZipFile(single(Path(place), "*.whl")) as built, zipfile.ZipFile(wheel) as given:
            contents = [{n: z.read(n) for n in z.namelist() if not n.endswith("/RECORD")} for z in (built, given)]
    one, other = contents
    problems += [f"{n} is in one of the two wheels only" for n in sorted(one.keys() ^ other.keys())]
    problems += [f"{n} differs from the given wheel" for n in sorted(one.keys() & other.keys()) if one[n] != other[n]]
    return problems


def main() -> int:
    """Check the files; return the exit status."""
    parser = argparse.ArgumentParser(description="Check the built wheel and source distribution.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--no-sdist", action="store_true", help="look at the wheel only")
    options = parser.parse_args()
    wheel = single(options.directory, "*.whl")
    problems = check_wheel(wheel)
    if not options.no_sdist:
        problems += check_sdist(single(options.directory, "*.tar.gz"), wheel)
    for problem in problems:
        print(f"WRONG: {problem}")
    print(f"{wheel.name}: {'as it should be' if not problems else f'{len(problems)} problems'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
