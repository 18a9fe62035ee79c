"""The emulator's control functions: fault injection, counters, violations."""

from __future__ import annotations

from typing import Any

from aclnn_py._ffi import ffi
from aclnn_py.library import Libraries

# what a caller must have released when it is done; device memory may stay in the pools
HANDLES = ("tensors", "scalars", "arrays", "lists", "executors")


class Control:
    """Calls of ``include/aclnn_emulator.h`` on the opened emulator."""

    def __init__(self, libraries: Libraries) -> None:
        def function(name: str, ctype: str) -> Any:
            return ffi.cast(ctype, libraries.symbol(f"aclnnEmulator{name}"))

        self._count = function("Count", "int64_t (*)(const char *)")
        self._fail = function("FailNext", "void (*)(const char *, int32_t, const char *)")
        self._fail_async = function("FailAsync", "void (*)(const char *, int32_t)")
        self._violation = function("Violation", "size_t (*)(char *, size_t)")
        self.fail_at = function("FailAt", "void (*)(uint64_t, int32_t)")
        self.strict = function("SetStrict", "void (*)(int)")
        self.delay = function("SetDelay", "void (*)(uint32_t)")
        self.reset = function("Reset", "void (*)(void)")
        self.calls = function("CallCount", "uint64_t (*)(void)")

    def count(self, what: str) -> int:
        return int(self._count(what.encode()))

    def handles(self) -> dict[str, int]:
        return {what: self.count(what) for what in HANDLES}

    def fail(self, api: str, code: int, message: bytes | None = b"EZ9999: injected") -> None:
        self._fail(api.encode(), code, ffi.NULL if message is None else message)

    def fail_async(self, op: str, code: int) -> None:
        self._fail_async(op.encode(), code)

    def violation(self) -> str:
        text = ffi.new("char[]", 4096)
        self._violation(text, len(text))
        return str(ffi.string(text).decode())
