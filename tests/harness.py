"""Runs one operator call on any backend and product, in place, with the checks that every call deserves.

A backend object is bound to one product. A call for another product gets another backend object where the
backend allows that in one process (the reference), and otherwise a helper process with its own library.
"""

from __future__ import annotations

import atexit
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import oracle

import aclnn_py
from aclnn_py import dtypes, errors

PREFILL = -77
PRODUCTS = ("A2", "A3", "950")

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
BF16 = dtypes.bfloat16()
I32, I64 = np.dtype(np.int32), np.dtype(np.int64)
FLOATS = (F32, F16, BF16)

#: C parameters of each operator, in order, with a value for those that may be left out.
_GRAD_ATTRS = {"dropPadMode": 0, "activeNum": 0, "expertNum": 0, "expertCapacity": 0}
PARAMETERS: dict[str, dict[str, Any]] = {
    "aclnnMoeFinalizeRoutingV2Grad": {
        "gradY": None,
        "expandedRowIdx": None,
        "expandedXOptional": None,
        "scalesOptional": None,
        "expertIdxOptional": None,
        "biasOptional": None,
        **_GRAD_ATTRS,
        "gradExpandedXOut": None,
        "gradScalesOut": None,
    },
    "aclnnMoeTokenUnpermuteWithEpGrad": {
        "unpermutedTokensGrad": None,
        "sortedIndices": None,
        "permutedTokensOptional": None,
        "probsOptional": None,
        "paddedMode": False,
        "restoreShapeOptional": None,
        "rangeOptional": None,
        "topkNum": 1,
        "permutedTokensGradOut": None,
        "probsGradOut": None,
    },
    "aclnnMoeFinalizeRoutingV2": {
        "expandedX": None,
        "expandedRowIdx": None,
        "x1Optional": None,
        "x2Optional": None,
        "biasOptional": None,
        "scalesOptional": None,
        "expertIdxOptional": None,
        "dropPadMode": 0,
        "out": None,
    },
    "aclnnMoeTokenUnpermuteWithEp": {
        "permutedTokens": None,
        "sortedIndices": None,
        "probsOptional": None,
        "numTopk": 1,
        "rangeOptional": None,
        "paddedMode": False,
        "restoreShapeOptional": None,
        "out": None,
    },
    "aclnnMoeTokenPermuteWithEp": {
        "tokens": None,
        "indices": None,
        "probsOptional": None,
        "rangeOptional": None,
        "numOutTokens": 0,
        "paddedMode": False,
        "permuteTokensOut": None,
        "sortedIndicesOut": None,
        "permuteProbsOut": None,
    },
    "aclnnMoeTokenPermuteWithEpGrad": {
        "permutedTokensOutputGrad": None,
        "sortedIndices": None,
        "permutedProbsOutputGradOptional": None,
        "numTopk": 1,
        "rangeOptional": None,
        "paddedMode": False,
        "tokenGradOut": None,
        "probsGradOut": None,
    },
    "aclnnMoeInitRoutingV2": {
        "x": None,
        "expertIdx": None,
        "activeNumOptional": 0,
        "expertCapacityOptional": 0,
        "expertNumOptional": 0,
        "dropPadModeOptional": 0,
        "expertTokensCountOrCumsumFlagOptional": 0,
        "expertTokensBeforeCapacityFlagOptional": False,
        "expandedXOut": None,
        "expandedRowIdxOut": None,
        "expertTokensCountOrCumsumOutOptional": None,
        "expertTokensBeforeCapacityOutOptional": None,
    },
}


def is_output(name: str) -> bool:
    """Tell outputs of the C signature by their name."""
    return re.search(r"(^out|Out|OutOptional)$", name) is not None


def arguments(op: str, **given: Any) -> dict[str, Any]:
    """All C arguments of ``op`` in order, the given ones over the defaults."""
    unknown = given.keys() - PARAMETERS[op].keys()
    assert not unknown, f"{op} has no {sorted(unknown)}"
    return PARAMETERS[op] | given


def buffer(shape: Any, dtype: np.dtype = F32, fill: float = PREFILL) -> np.ndarray:
    """An output buffer whose old content is recognisable."""
    return np.full(shape, fill, dtype)


def tensor(values: Any, dtype: np.dtype = F32, shape: Any = None) -> np.ndarray:
    """Input array; ``shape`` for empty lists."""
    array = np.asarray(values, np.float64 if np.dtype(dtype).kind not in "iu" else dtype)
    array = array.astype(F32).astype(dtype) if np.dtype(dtype).kind not in "iu" else array.astype(dtype)
    return array if shape is None else array.reshape(shape)


def idx(values: Any, dtype: np.dtype = I32) -> np.ndarray:
    return np.asarray(values, dtype)


def execute(backend: Any, op: str, args: Mapping[str, Any]) -> None:
    """One call through the public Executor, without its advice about ranges that releases read differently."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*range means everything", category=RuntimeWarning)
        with aclnn_py.Executor(op, **args, backend=backend) as executor:
            executor.run()


# -- other products ------------------------------------------------------------------------------------


class _Worker:
    """A process of its own for one backend, product and CANN release; requests and answers are pickled."""

    def __init__(self, backend: str, product: str, release: str | None = None) -> None:
        env = {k: v for k, v in os.environ.items() if k != "ACLNN_EMULATOR_SOC"}  # the product decides it
        if release is not None:
            env["ACLNN_EMULATOR_CANN"] = release
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        self._process = subprocess.Popen(
            [sys.executable, __file__, backend, product], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        atexit.register(self.close)

    def ask(self, op: str, args: dict[str, Any]) -> tuple[BaseException | None, dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((op, args), self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(timeout=30)


@cache
def worker(backend: str, product: str, release: str | None = None) -> _Worker:
    """One helper process for each backend, product and release."""
    return _Worker(backend, product, release)


@cache
def _reference(product: str) -> Any:
    return aclnn_py.get_backend("reference", product=product)


def _execute_for(backend: Any, product: str | None, op: str, args: dict[str, Any]) -> None:
    if product is None or product == backend.product:
        execute(backend, op, args)
    elif backend.name == "reference":
        execute(_reference(product), op, args)
    else:
        error, answer = worker(backend.name, product).ask(op, args)
        if error is not None:
            raise error
        for name, value in answer.items():
            np.copyto(args[name], value)


def call(backend: Any, op: str, args: dict[str, Any], product: str | None = None) -> None:
    """Run ``op``; outputs are filled in place, and nothing else may change, not even beside a view."""
    watched = []
    for name, value in args.items():
        if isinstance(value, np.ndarray) and not is_output(name):
            root = value if value.base is None or not isinstance(value.base, np.ndarray) else value.base
            watched.append((name, root, root.tobytes()))
    _execute_for(backend, product, op, args)
    for name, root, before in watched:
        assert root.tobytes() == before, f"{op} changed its input {name}"


def check(backend: Any, op: str, product: str | None = None, **given: Any) -> dict[str, np.ndarray]:
    """Run a call against the oracle, twice, and return its outputs by C name."""
    args = arguments(op, **given)
    outputs = {name: value for name, value in args.items() if is_output(name) and value is not None}
    before = {name: value.copy() for name, value in outputs.items()}
    expected = oracle.expect(op, args)
    call(backend, op, args, product)
    first = {name: value.copy() for name, value in outputs.items()}
    for name, want in expected.items():
        bad = oracle.mismatches(first[name], want, before[name])
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise AssertionError(
                f"{op} {name}{list(at)} = {first[name][at]!r}, expected "
                f"{want.value[at] if want.written[at] else before[name][at]!r} "
                f"({int(bad.sum())} of {bad.size} wrong, written={bool(want.written[at])})"
            )
        np.copyto(outputs[name], before[name])
    call(backend, op, args, product)
    for name in expected:
        assert oracle.same_bits(outputs[name], first[name]).all(), f"{op} {name}: two runs differ"
    return outputs


def status_of(backend: Any, op: str, args: dict[str, Any], product: str | None = None) -> tuple[int, Any]:
    """(status code, exception or None) of a call; outputs of a refused call must stay as they were."""
    before = {n: v.copy() for n, v in args.items() if is_output(n) and isinstance(v, np.ndarray)}
    try:
        call(backend, op, args, product)
    except errors.AclnnError as error:
        for name, value in before.items():
            assert oracle.same_bits(args[name], value).all(), f"refused call wrote {name}"
        assert error.api.startswith(op), error.api
        return int(error.code or -1), error
    return 0, None


def valid_call(op: str, build: Callable[[], dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A fresh valid call with some arguments replaced."""
    return arguments(op, **(build() | changes))


def _serve(backend_name: str, product: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but answers on the pipe
    backend = aclnn_py.get_backend(backend_name, product=product)
    while True:
        try:
            op, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        error: BaseException | None = None
        try:
            execute(backend, op, args)
        except Exception as caught:
            error = caught
        outputs = {n: v for n, v in args.items() if is_output(n) and isinstance(v, np.ndarray)}
        pickle.dump((error, {} if error else outputs), answers)
        answers.flush()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
