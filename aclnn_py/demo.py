"""The demo: both main operators on the inputs of their public samples, checked by plain Python arithmetic."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .backends import Backend
from .executor import Executor

__all__ = ["run"]

Rows = Sequence[Sequence[float]]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _expect_finalize(
    grad: Rows, index: Sequence[int], x: Rows, scales: Rows, experts: Sequence[Sequence[int]], bias: Rows
) -> tuple[list[list[float]], list[list[float]]]:
    """Apply the definition of the gradient, in double precision and without NumPy."""
    slots = len(scales[0])
    grad_x: list[list[float]] = [[] for _ in x]
    grad_scales = [[0.0] * slots for _ in scales]
    for entry, row in enumerate(index):
        token, slot = divmod(entry, slots)
        grad_x[row] = [g * scales[token][slot] for g in grad[token]]
        moved = [a + b for a, b in zip(x[row], bias[experts[token][slot]], strict=True)]
        grad_scales[token][slot] = _dot(moved, grad[token])
    return grad_x, grad_scales


def _expect_unpermute(
    grad: Rows, index: Sequence[int], permuted: Rows, probs: Rows
) -> tuple[list[list[float]], list[list[float]]]:
    slots = len(probs[0])
    rows: list[list[float]] = [[] for _ in permuted]
    probs_grad = [[0.0] * slots for _ in probs]
    for entry, row in enumerate(index):
        token, slot = divmod(entry, slots)
        rows[row] = [g * probs[token][slot] for g in grad[token]]
        probs_grad[token][slot] = _dot(permuted[row], grad[token])
    return rows, probs_grad


def _show(kind: str, arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        text = np.array2string(array, precision=6, separator=", ", prefix=" " * 32)
        print(f"  {kind:6} {name:22}  {text}")


def _check(name: str, got: np.ndarray[Any, Any], expected: list[list[float]]) -> bool:
    difference = float(np.max(np.abs(got.astype(np.float64) - np.array(expected))))
    good = difference <= 1e-6
    verdict = "ok" if good else "WRONG"
    print(f"  check  {name:22}  largest difference {difference:.1e} from a plain Python loop: {verdict}")
    return good


def _finalize(backend: Backend) -> bool:
    inputs: dict[str, Any] = {
        "gradY": np.array([[0.3816, 0.3939], [0.8474, 0.1652]], np.float32),
        "expandedRowIdx": np.array([1, 3, 0, 2], np.int32),
        "expandedX": np.array([[0.6049, 0.3315], [0.4954, 0.3284], [0.706, 0.4359], [0.6514, 0.9476]], np.float32),
        "scales": np.array([[0.4708, 0.0656], [0.9652, 0.9512]], np.float32),
        "expertIdx": np.array([[0, 1], [0, 1]], np.int32),
        "bias": np.array([[0.6452, 0.1981], [0.4159, 0.9575]], np.float32),
    }
    outputs: dict[str, Any] = {
        "gradExpandedXOut": np.zeros((4, 2), np.float32),
        "gradScalesOut": np.zeros((2, 2), np.float32),
    }
    attributes: dict[str, Any] = {"dropPadMode": 0, "activeNum": 0, "expertNum": 0, "expertCapacity": 0}
    print("aclnnMoeFinalizeRoutingV2Grad")
    _show("input", inputs)
    with Executor("aclnnMoeFinalizeRoutingV2Grad", **inputs, **attributes, **outputs, backend=backend) as ex:
        print(f"  stage one: workspace of {ex.workspace_size} bytes")
        ex.run()
    _show("output", outputs)
    expected = _expect_finalize(*(array.tolist() for array in inputs.values()))
    checks = [_check(n, a, e) for (n, a), e in zip(outputs.items(), expected, strict=True)]
    return all(checks)


def _unpermute(backend: Backend) -> bool:
    inputs: dict[str, Any] = {
        "unpermutedTokensGrad": np.ones((1, 2), np.float32),
        "sortedIndices": np.arange(3, dtype=np.int32),
        "permutedTokens": np.ones((3, 2), np.float32),
        "probs": np.ones((1, 3), np.float32),
    }
    outputs: dict[str, Any] = {
        "permutedTokensGradOut": np.zeros((3, 2), np.float32),
        "probsGradOut": np.zeros((1, 3), np.float32),
    }
    print("aclnnMoeTokenUnpermuteWithEpGrad")
    _show("input", inputs)
    # the sample passes a null range, which releases read differently: the whole range, said explicitly
    attributes: dict[str, Any] = {"paddedMode": False, "range": (0, 3), "topkNum": 3}
    with Executor("aclnnMoeTokenUnpermuteWithEpGrad", **inputs, **attributes, **outputs, backend=backend) as ex:
        print(f"  stage one: workspace of {ex.workspace_size} bytes")
        ex.run()
    _show("output", outputs)
    expected = _expect_unpermute(*(array.tolist() for array in inputs.values()))
    checks = [_check(n, a, e) for (n, a), e in zip(outputs.items(), expected, strict=True)]
    return all(checks)


def run(backend: Backend) -> int:
    """Run both operators on a backend, print inputs, outputs and the check; return the exit status.

    Examples
    --------
    >>> from aclnn_py import get_backend
    >>> run(get_backend("reference"))  # doctest: +ELLIPSIS
    backend: reference...
    0
    """
    print(f"backend: {backend.name} ({backend.describe()})")
    good = [step(backend) for step in (_finalize, _unpermute)]
    print("both operators right" if all(good) else "MISMATCH", file=sys.stdout if all(good) else sys.stderr)
    return 0 if all(good) else 1
