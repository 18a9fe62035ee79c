"""Every class of error: provoked where that needs no broken device, otherwise made from its code.

ACLNN_PY_BACKEND chooses the backend.
"""

import os
import tempfile
from unittest import mock

import numpy as np

import aclnn_py
from aclnn_py import errors
from aclnn_py import moe_finalize_routing_v2_grad as grad
from aclnn_py import moe_token_unpermute_with_ep_grad as ep_grad

X, SCALES = np.ones((4, 2), np.float32), np.ones((2, 2), np.float32)
INDEX = np.array([0, 1, 2, 3], np.int32)


def expect(kind, also, call):
    """Run a call that must fail with ``kind``, which is also a ``also``, and print what a user sees."""
    caught = None
    try:
        call()
    except Exception as error:
        caught = error
    assert type(caught) is kind, f"expected {kind.__name__}, got {caught!r}"
    assert isinstance(caught, also)
    print(f"\n{kind.__name__}, also a {also.__name__}\n  " + str(caught).replace("\n", "\n  "))
    return caught


def missing_emulator():
    with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, {"ACLNN_PY_LIBRARY_PATH": ""}):
        os.environ["XDG_CACHE_HOME"] = empty  # a cache without an emulator in it
        aclnn_py.get_backend("emulator")


def main() -> None:
    assert expect(aclnn_py.LibraryNotFoundError, ImportError, missing_emulator).tried

    on = {"backend": aclnn_py.get_backend()}
    print("\nbackend:", on["backend"].name)
    # the operators check before any C call, so these are the same on every backend
    error = expect(aclnn_py.NullptrError, ValueError, lambda: grad(None, INDEX, **on))
    assert (error.code, error.name) == (161001, "ACLNN_ERR_PARAM_NULLPTR")
    expect(aclnn_py.InvalidParameterError, ValueError, lambda: grad(X, INDEX.astype(np.int64), **on))
    # what CANN says to a shape or value that it refuses, by operator and release; RefusedArgumentError catches both
    error = expect(aclnn_py.InnerNullptrError, ValueError, lambda: grad(X[:2], INDEX, X[:3], SCALES, **on))
    assert isinstance(error, aclnn_py.RefusedArgumentError)
    error = expect(aclnn_py.TilingError, ValueError, lambda: ep_grad(X, INDEX, range=(3, 1), **on))
    assert isinstance(error, aclnn_py.RefusedArgumentError)
    beyond = np.array([0, 1, 7, 3], np.int32)  # without check_indices this slot counts as dropped
    error = expect(aclnn_py.IndexOutOfRangeError, IndexError, lambda: ep_grad(X, beyond, check_indices=True, **on))
    assert "[2] is 7" in error.detail
    # what this SoC or this CANN does not have
    other = aclnn_py.get_backend("reference", product="Ascend310P3")
    expect(aclnn_py.UnsupportedError, NotImplementedError, lambda: grad(X, INDEX, backend=other))
    expect(aclnn_py.SymbolNotFoundError, AttributeError, lambda: aclnn_py.Executor("aclnnNoSuchOperator", **on))
    # a mistake in Python never reaches C: Python's own classes, which name the C parameter
    assert "activeNum" in str(expect(TypeError, TypeError, lambda: grad(X, INDEX, active_num=1.5, **on)))
    assert "activeNum" in str(expect(OverflowError, ArithmeticError, lambda: grad(X, INDEX, active_num=2**63, **on)))

    print("\n-- these need a device in trouble: the class and the advice of a code, as check() raises it")
    for code, api, kind, also in (
        (561000, "aclnnAdd", aclnn_py.InternalError, RuntimeError),
        (561001, "aclnnAdd", aclnn_py.InferShapeError, RuntimeError),
        (561112, "aclnnAdd", aclnn_py.KernelNotFoundError, LookupError),
        (361001, "aclnnAdd", aclnn_py.RuntimeCallError, RuntimeError),
        (107002, "aclrtMalloc", aclnn_py.ContextError, RuntimeError),
        (507046, "aclrtSynchronizeStreamWithTimeout", aclnn_py.DeviceTimeoutError, TimeoutError),
        (507015, "aclrtSynchronizeStream", aclnn_py.DeviceFaultError, RuntimeError),
        (207001, "aclrtMalloc", aclnn_py.DeviceMemoryError, MemoryError),
        (100039, "aclInit", aclnn_py.StubLibraryError, RuntimeError),
    ):
        expect(kind, also, lambda code=code, api=api: errors.check(code, api, detail=""))


if __name__ == "__main__":
    main()
