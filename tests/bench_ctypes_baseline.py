"""One-shot aclnnMoeFinalizeRoutingV2Grad in plain ctypes: what ``tests/bench_calls.py`` compares the Executor with.

What a careful engineer writes without this package: prototypes set once, out-parameters and descriptor arguments
reused, the checks that an Executor makes (kinds, ranges, place and state of tensors, thread, single use), CANN's error
text read at once, data kept until the stream has passed, everything released once on every path. Pinned: it is a
yardstick, so a change needs a reason outside of the numbers.

    python tests/bench_ctypes_baseline.py      # shows that it computes
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

NAME = "aclnnMoeFinalizeRoutingV2Grad"
TENSORS = ("gradY", "expandedRowIdx", "expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional",
           "gradExpandedXOut", "gradScalesOut")  # fmt: skip
NUMBERS = ("dropPadMode", "activeNum", "expertNum", "expertCapacity")
ACL_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.int32): 3, np.dtype(np.int64): 9}
PARKED = 256  # launches whose data is kept before a wait lets go of it

void_p, int64, uint64, int32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_int32


class Library:
    """The C functions with their prototypes, a stream of device 0 and its workspace."""

    def __init__(self, directory: Path) -> None:
        acl, base, op = (
            ctypes.CDLL(str(directory / f"lib{part}.so"), ctypes.RTLD_GLOBAL)
            for part in ("ascendcl", "nnopbase", "opapi")
        )

        def function(library: Any, name: str, *types: Any, result: Any = int32) -> Any:
            found = getattr(library, name)
            found.argtypes, found.restype = types, result
            return found

        self.message = function(acl, "aclGetRecentErrMsg", result=ctypes.c_char_p)
        self.malloc = function(acl, "aclrtMalloc", ctypes.POINTER(void_p), ctypes.c_size_t, int32)
        self.free = function(acl, "aclrtFree", void_p)
        self.memcpy = function(acl, "aclrtMemcpy", void_p, ctypes.c_size_t, void_p, ctypes.c_size_t, int32)
        self.wait = function(acl, "aclrtSynchronizeStream", void_p)
        self.create_tensor = function(base, "aclCreateTensor", void_p, uint64, int32, void_p, int64, int32, void_p,
                                      uint64, void_p, result=void_p)  # fmt: skip
        self.destroy_tensor = function(base, "aclDestroyTensor", void_p)
        self.destroy_executor = function(base, "aclDestroyAclOpExecutor", void_p)
        self.one = function(op, f"{NAME}GetWorkspaceSize", *[void_p] * 6, *[int64] * 4, *[void_p] * 4)
        self.two = function(op, NAME, void_p, uint64, void_p, void_p)
        self.init = function(acl, "aclInit", ctypes.c_char_p)
        self.set_device = function(acl, "aclrtSetDevice", int32)
        self.create_stream = function(acl, "aclrtCreateStream", ctypes.POINTER(void_p))
        self.destroy_stream = function(acl, "aclrtDestroyStream", void_p)
        self.reset_device = function(acl, "aclrtResetDevice", int32)

        code = self.init(None)
        if code not in (0, 100002):  # already initialised: it may share the process with others
            self.check(code, "aclInit")
        self.check(self.set_device(0), "aclrtSetDevice")
        self.device = 0
        self.local = threading.local()
        stream = void_p()
        self.check(self.create_stream(ctypes.byref(stream)), "aclrtCreateStream")
        self.stream = stream.value
        self.workspace: int | None = None
        self.workspace_bytes = 0
        self.parked: list[Any] = []

    def check(self, code: int, api: str) -> None:
        if code:
            text = self.message()
            raise RuntimeError(f"{api}: status {code}: {'' if text is None else text.decode(errors='replace')}")

    def out_parameters(self) -> tuple[Any, Any, Any, Any]:
        """Size, executor, and references to them: one set a thread."""
        try:
            return self.local.out  # type: ignore[no-any-return]
        except AttributeError:
            size, executor = uint64(), void_p()
            self.local.out = size, executor, ctypes.byref(size), ctypes.byref(executor)
            return self.local.out  # type: ignore[no-any-return]

    def allocate(self, nbytes: int) -> int:
        pointer = void_p()
        self.check(self.malloc(ctypes.byref(pointer), nbytes, 0), "aclrtMalloc")
        return pointer.value or 0

    def need_workspace(self, nbytes: int) -> int | None:
        if nbytes > self.workspace_bytes:
            self.synchronize()
            if self.workspace is not None:
                self.check(self.free(self.workspace), "aclrtFree")
                self.workspace, self.workspace_bytes = None, 0
            self.workspace, self.workspace_bytes = self.allocate(nbytes), nbytes
        return self.workspace

    def park(self, objects: Any) -> None:
        if len(self.parked) >= PARKED:
            self.synchronize()
        self.parked.append(objects)

    def synchronize(self) -> None:
        self.check(self.wait(self.stream), "aclrtSynchronizeStream")
        self.parked.clear()

    def close(self) -> None:
        self.synchronize()
        if self.workspace is not None:
            self.check(self.free(self.workspace), "aclrtFree")
        self.check(self.destroy_stream(self.stream), "aclrtDestroyStream")
        self.check(self.reset_device(0), "aclrtResetDevice")


class Tensor:
    """Shape and dtype over device memory, with the arguments of aclCreateTensor ready."""

    __slots__ = ("arguments", "closed", "device", "dtype", "kept", "library", "pointer", "shape")

    def __init__(self, library: Library, array: np.ndarray[Any, Any]) -> None:
        host = np.ascontiguousarray(array)
        if host.dtype not in ACL_TYPES:
            raise TypeError(f"a tensor takes {', '.join(map(str, ACL_TYPES))}, got {host.dtype}")
        self.library, self.shape, self.dtype, self.device = library, host.shape, host.dtype, library.device
        self.pointer = library.allocate(host.nbytes)
        self.closed = False
        library.check(library.memcpy(self.pointer, host.nbytes, host.ctypes.data, host.nbytes, 1), "aclrtMemcpy")
        vector = int64 * host.ndim
        self.kept = vector(*host.shape), vector(*[step // host.itemsize for step in host.strides])
        dims, strides = map(ctypes.addressof, self.kept)  # integers convert faster than arrays
        self.arguments = (dims, host.ndim, ACL_TYPES[host.dtype], strides, 0, 2, dims, host.ndim, self.pointer)

    def numpy(self) -> np.ndarray[Any, Any]:
        self.library.synchronize()
        host = np.empty(self.shape, self.dtype)
        self.library.check(
            self.library.memcpy(host.ctypes.data, host.nbytes, self.pointer, host.nbytes, 2), "aclrtMemcpy"
        )
        return host

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.library.check(self.library.free(self.pointer), "aclrtFree")


class Call:
    """One call: stage one at construction, stage two at ``run()``."""

    def __init__(self, library: Library, *args: Any) -> None:
        self.library, self.thread = library, threading.get_ident()
        self.tensors: list[int] = []
        self.executor: int | None = None
        self.ran = False
        self.open = True
        if len(args) != 12:
            raise TypeError(f"{NAME} takes 12 arguments, got {len(args)}")
        operands = (*args[:6], *args[10:])
        for name, tensor in zip(TENSORS, operands, strict=True):
            if tensor is None:
                continue
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{NAME}: argument {name!r} takes a Tensor or None, got {type(tensor).__name__}")
            if tensor.closed or tensor.device != library.device or tensor.library is not library:
                raise ValueError(f"{NAME}: argument {name!r} is closed, or on another device")
        for name, number in zip(NUMBERS, args[6:10], strict=True):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(f"{NAME}: argument {name!r} takes an integer, got {type(number).__name__}")
            if not -(2**63) <= number < 2**63:
                raise OverflowError(f"{NAME}: argument {name!r} takes 64 bits, got {number}")
        self.operands = operands
        try:
            pointers: list[int | None] = []
            for tensor in operands:
                handle = None
                if tensor is not None:
                    handle = library.create_tensor(*tensor.arguments)
                    if not handle:
                        library.check(561103, "aclCreateTensor")
                    self.tensors.append(handle)
                pointers.append(handle)
            size, executor, size_at, executor_at = library.out_parameters()
            executor.value = None
            code = library.one(*pointers[:6], *args[6:10], *pointers[6:], size_at, executor_at)
            if code:  # nothing to destroy then, whatever was written
                library.check(code, f"{NAME}GetWorkspaceSize")
            self.executor, self.workspace_size = executor.value, size.value
        except BaseException:
            self.close()
            raise

    def run(self) -> None:
        library = self.library
        if not self.open or self.ran:
            raise RuntimeError(f"{NAME}: this call has run or is closed")
        if threading.get_ident() != self.thread:
            raise RuntimeError(f"{NAME}: run() on another thread")
        self.ran = True
        workspace = library.need_workspace(self.workspace_size)
        executor, self.executor = self.executor, None  # stage two consumes it, whatever it returns
        try:
            code = library.two(workspace, self.workspace_size, executor, library.stream)
            if code:
                library.check(code, NAME)
        finally:
            library.park(self.operands)
        off, get = ("", "0"), os.environ.get
        if get("ACLNN_PY_LAUNCH_BLOCKING", "0") not in off or get("ASCEND_LAUNCH_BLOCKING", "0") not in off:
            library.synchronize()

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        executor, self.executor = self.executor, None
        if executor is not None and threading.get_ident() == self.thread:
            self.library.destroy_executor(executor)
        tensors, self.tensors = self.tensors, []
        for tensor in tensors:
            self.library.destroy_tensor(tensor)

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.open:
            self.close()


def main() -> None:
    from aclnn_py import emulator

    given = os.environ.get("ACLNN_PY_LIBRARY_PATH")
    library = Library(Path(given) if given else emulator.build())
    floats, ints = np.float32, np.int32
    arrays = (
        np.array([[1, 2], [3, 4]], floats), np.array([1, 3, 0, 2], ints), np.ones((4, 2), floats),
        np.array([[1, 2], [3, 4]], floats), np.zeros((2, 2), ints), np.zeros((2, 2), floats),
        np.zeros((4, 2), floats), np.zeros((2, 2), floats),
    )  # fmt: skip
    tensors = [Tensor(library, array) for array in arrays]
    with Call(library, *tensors[:6], 0, 0, 0, 0, *tensors[6:]) as call:
        call.run()
    print(tensors[6].numpy(), tensors[7].numpy(), sep="\n")
    for tensor in tensors:
        tensor.close()
    library.close()


if __name__ == "__main__":
    main()
