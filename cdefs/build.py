"""Build hook: turn the C declarations of this directory into ``aclnn_py/_ffi.py`` and ``_signatures.py``.

``_ffi.py`` is cffi's out-of-line ABI mode (no compiler); ``_signatures.py`` holds the operator prototypes
as plain data. Both are generated files: in the wheel, not in the repository.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from pathlib import Path
from typing import Any

import cffi
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# libc, through which library.py opens libraries and looks symbols up
LIBC = """
void *dlopen(const char *path, int flags);
void *dlsym(void *handle, const char *symbol);
char *dlerror(void);
typedef struct { const char *dli_fname; void *dli_fbase; const char *dli_sname; void *dli_saddr; } Dl_info;
int dladdr(const void *address, Dl_info *info);
"""


def for_cffi(text: str) -> str:
    """Drop what cffi cannot read: preprocessor lines and the C++ guards."""
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def generate(root: Path) -> None:
    """Write ``_ffi.py`` and ``_signatures.py`` into ``root/aclnn_py``."""
    cdefs, package = root / "cdefs", root / "aclnn_py"
    ffi = cffi.FFI()
    for name in ("types.h", "base.h"):
        ffi.cdef(for_cffi((cdefs / name).read_text(encoding="utf-8")))
    ffi.cdef(LIBC)
    ffi.set_source("aclnn_py._ffi", None)
    ffi.emit_python_code(str(package / "_ffi.py"))

    # signatures.py needs only the standard library and errors.py; a bare package object keeps
    # aclnn_py/__init__.py (NumPy) out of the build environment.
    saved = sys.modules.get("aclnn_py")
    bare = types.ModuleType("aclnn_py")
    bare.__path__ = [str(package)]
    sys.modules["aclnn_py"] = bare
    try:
        signatures = importlib.import_module("aclnn_py.signatures")
        lines = ['"""Built-in operator signatures, generated from cdefs/ops."""', "", "SIGNATURES = ("]
        for header in sorted((cdefs / "ops").glob("*.h")):
            for signature in signatures.parse_header(header):
                parameters = [(p.name, p.ctype) for p in signature.parameters]
                lines.append(f"    ({signature.name!r}, {f'cdefs/ops/{header.name}'!r}, {parameters!r}),")
        lines += [")", ""]
    finally:
        for name in [n for n in sys.modules if n == "aclnn_py" or n.startswith("aclnn_py.")]:
            del sys.modules[name]
        if saved is not None:
            sys.modules["aclnn_py"] = saved
    (package / "_signatures.py").write_text("\n".join(lines), encoding="utf-8")


class CdefsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel (or an editable install) is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate for wheels; an sdist carries the sources instead."""
        if self.target_name == "wheel":
            generate(Path(self.root))
