"""Build and locate the CPU emulator of CANN's shared libraries.

The emulator's C++ sources travel in the package; CMake builds them once per version into the user's cache. It is a
functional stand-in for hosts without an NPU, never a performance model. Its environment variables are listed in the
README; its control functions in ``include/aclnn_emulator.h``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

__all__ = ["build", "environment", "include_path", "library_path"]

# Modules that only a build needs are imported where they are used: `import aclnn_py` stays cheap.

_PACKAGE = Path(__file__).resolve().parent
_TOOLS_HINT = "Debian and Ubuntu: apt-get install cmake g++; anywhere: pip install cmake, and a C++17 compiler"


def _cdefs() -> Path:
    """Find the C declarations: in the wheel beside the package, in an editable install those of the checkout."""
    installed = _PACKAGE.parent / "_cdefs"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "cdefs"


@cache
def _fingerprint() -> str:
    """Hash of everything the build reads, so that a new version or an edited source is built anew."""
    import hashlib

    digest = hashlib.sha256(os.environ.get("CXX", "").encode())
    for root in (_PACKAGE / "src", _PACKAGE / "include", _cdefs()):
        for file in sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cpp", ".txt", ".in", ".cmake"}):
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _cache_root() -> Path:
    import tempfile

    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(base).expanduser() / "aclnn-py"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    root = Path(tempfile.gettempdir()) / f"aclnn-py-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():  # a shared /tmp: never load libraries somebody else put there
        raise PermissionError(f"{root} belongs to another user; set XDG_CACHE_HOME to a directory of your own")
    return root


def _target() -> Path:
    return _cache_root() / f"emulator-{_fingerprint()}"


def library_path() -> Path | None:
    """Return the directory of the built emulator's libraries, or None before ``build()``.

    Examples
    --------
    >>> path = library_path()
    >>> path is None or (path / "libascendcl.so").exists()
    True
    """
    libraries = _target() / "lib"
    return libraries if (libraries / "libopapi.so").exists() else None


def include_path() -> Path | None:
    """Return the include tree for C and C++ samples (``acl/acl.h``, ``aclnnop/...``), or None before ``build()``."""
    libraries = library_path()
    return None if libraries is None else libraries.parent / "include"


def environment() -> dict[str, str]:
    """Return the variables that make programs, and this package, use the built emulator.

    Raises
    ------
    FileNotFoundError
        It has not been built.
    """
    libraries = library_path()
    if libraries is None:
        raise FileNotFoundError("the emulator is not built: aclnn-py emulator build")
    return {
        "ACLNN_PY_BACKEND": "emulator",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(libraries), os.environ.get("LD_LIBRARY_PATH")])),
        "LIBRARY_PATH": str(libraries),
        "CPATH": os.pathsep.join(str(libraries.parent / "include" / part) for part in ("", "aclnn", "aclnnop")),
    }


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One build at a time, also across processes."""
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(*, force: bool = False, verbose: bool = False) -> Path:
    """Build the emulator unless it is built; return the directory of its libraries.

    Parameters
    ----------
    force
        Build again.
    verbose
        Show the compiler's output; otherwise progress lines on stderr.

    Raises
    ------
    FileNotFoundError
        CMake or a C++ compiler is missing; says how to get them.
    RuntimeError
        The build failed; holds the end of the compiler's output.
    """
    import shutil
    import tempfile

    done = library_path()
    if done is not None and not force:
        return done
    if _tool("cmake") is None:
        raise FileNotFoundError(f"building the emulator needs CMake (3.18 or newer). {_TOOLS_HINT}")
    if shutil.which(os.environ.get("CXX") or "c++") is None and shutil.which("g++") is None:
        raise FileNotFoundError(f"building the emulator needs a C++17 compiler. {_TOOLS_HINT}")
    target = _target()
    with _locked(target.with_suffix(".lock")):
        done = library_path()
        if done is not None and not force:
            return done
        work = Path(tempfile.mkdtemp(prefix="build-", dir=target.parent))
        try:
            _cmake(work, verbose)
            product = work / "product"
            product.mkdir()
            for part in ("lib", "include"):
                shutil.copytree(work / part, product / part, symlinks=True)
            if target.exists():
                shutil.rmtree(target)
            product.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target / "lib"


def _tool(name: str) -> str | None:
    """Find a program on PATH or, as pip installs it, beside this interpreter."""
    import shutil

    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def _cmake(work: Path, verbose: bool) -> None:
    cmake, ninja = _tool("cmake") or "cmake", _tool("ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    configure = [cmake, "-S", str(_PACKAGE / "src"), "-B", str(work), *generator]
    configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DACLNN_CDEFS_DIR={_cdefs()}"]
    compile_ = [cmake, "--build", str(work), "--parallel", str(os.cpu_count() or 1)]
    print("building the CPU emulator (once per version, about a minute)", file=sys.stderr, flush=True)
    start = time.monotonic()
    for command in (configure, compile_):
        _run(command, verbose)
    print(f"built in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def _run(command: list[str], verbose: bool) -> None:
    import subprocess

    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if verbose or line.startswith("["):  # "[3/20] Building ..." or "[ 15%] Building ..."
                print(f"  {line.rstrip()[:100]}", file=sys.stderr, flush=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} failed:\n{''.join(lines[-30:])}")
