"""Tiny shared libraries and directory trees that look like a CANN install, and a fresh process to try them in."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
ARCH = f"{platform.machine()}-linux"

# Calls are logged, and answers come from the environment: FAKE_aclInit=100002 makes aclInit return that.
_CALLS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int answer(const char *name, long argument) {
    const char *log = getenv("FAKE_LOG");
    char key[96];
    if (log) {
        FILE *file = fopen(log, "a");
        fprintf(file, "%s %ld\\n", name, argument);
        fclose(file);
    }
    snprintf(key, sizeof key, "FAKE_%s", name);
    return getenv(key) ? atoi(getenv(key)) : 0;
}
"""
RUNTIME = (
    _CALLS
    + """
static __thread int device = -1;
int aclInit(const char *path) { return answer("aclInit", path != 0); }
int aclFinalize(void) { return answer("aclFinalize", 0); }
int aclrtSetDevice(int id) { device = id; return answer("aclrtSetDevice", id); }
int aclrtResetDevice(int id) { return answer("aclrtResetDevice", id); }
int aclrtGetDevice(int *id) { if (device < 0) return 107002; *id = device; return 0; }
int aclrtSynchronizeDevice(void) { return answer("aclrtSynchronizeDevice", device); }
int aclrtCreateStream(void **s) { *s = malloc(8); return answer("aclrtCreateStream", 0); }
int aclrtDestroyStream(void *s) { free(s); return answer("aclrtDestroyStream", 0); }
int aclrtSynchronizeStream(void *s) { return answer("aclrtSynchronizeStream", 0); }
int aclrtCreateEvent(void **e) { *e = malloc(8); return answer("aclrtCreateEvent", 0); }
int aclrtDestroyEvent(void *e) { free(e); return answer("aclrtDestroyEvent", 0); }
int aclrtMalloc(void **p, size_t n, int policy) { *p = malloc(n); return answer("aclrtMalloc", n); }
int aclrtFree(void *p) { free(p); return answer("aclrtFree", 0); }
const char *aclrtGetSocName(void) { return "Ascend910B1"; }
const char *aclGetRecentErrMsg(void) { return getenv("FAKE_MESSAGE"); }
"""
)
FINALIZE_REFERENCE = (
    'int aclFinalizeReference(unsigned long *n) { *n = 0; return answer("aclFinalizeReference", 0); }\n'
)
EMULATOR = 'const char *aclnnEmulatorVersion(void) { return "0"; }\n'
BASE = "void *aclCreateTensor(void) { return 0; }\nint AclSetTensorAddr(void *e) { return 161001; }\n"


def library(path: Path, source: str, *links: Path, soname: str | None = None) -> Path:
    """Compile C into a shared library that has its file name as soname."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_suffix(".c")
    code.write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(path), str(code), f"-Wl,-soname,{soname or path.name}"]
    for link in links:
        command += ["-Wl,--no-as-needed", str(link), f"-Wl,-rpath,{link.parent}"]
    subprocess.run(command, check=True, timeout=60)
    code.unlink()
    return path


def operator(*names: str, answer: int = 0) -> str:
    """Write both stages of operators; ``answer`` tells which library served."""
    return "".join(
        f"int {n}GetWorkspaceSize(void) {{ return {answer}; }} int {n}(void) {{ return {answer}; }}\n" for n in names
    )


def cann(root: Path, *, runtime: str = RUNTIME, name: str = "libascendcl.so") -> Path:
    """Build a CANN root with the base libraries; return the directory of the libraries."""
    directory = root / ARCH / "lib64"
    library(directory / name, runtime)
    library(directory / "libnnopbase.so", BASE)
    (root / "lib64").symlink_to(directory)
    (root / "opp").mkdir()
    return directory


def run(
    script: str, home: Path, env: Mapping[str, object] | None = None, *, code: int = 0, flags: Sequence[str] = ()
) -> Any:
    """Run a script in a fresh process, with ``home`` for / and $HOME; return the JSON of its last line."""
    prelude = (
        "import ctypes, json, os, sys, types, warnings\n"
        # a bare package: aclnn_py/__init__.py would import NumPy in each of these processes
        f"sys.modules['aclnn_py'] = types.ModuleType('aclnn_py'); "
        f"sys.modules['aclnn_py'].__path__ = [{str(REPOSITORY / 'aclnn_py')!r}]\n"
        "from pathlib import Path\n"
        "from aclnn_py import _discovery, errors, library\n"
        f"_discovery.SYSTEM = Path({str(home)!r})\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    environment |= {key: str(value) for key, value in (env or {}).items()}
    done = subprocess.run(
        [sys.executable, *flags, "-c", prelude + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else done.stderr
