"""What the four operators for expert parallelism share: the range of a rank, and counting tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from ._common import dim


def normalise(api: str, value: Sequence[int] | None, n: int) -> tuple[int, int]:
    """Return 0 <= s <= e <= n: None and (-1, -1) mean all, negatives count from the end, both are clamped.

    This is the one form that is passed on: released CANN versions disagree about every other (null, (-1, -1),
    negatives); for some, null means nothing at all.
    """
    if value is None:
        return 0, n
    if not isinstance(value, (list, tuple, np.ndarray)) or np.ndim(value) != 1:
        raise TypeError(f"{api}: range takes two integers (start, end) or None, got {value!r}")
    if len(value) != 2:
        errors.check(561002, api, "GetWorkspaceSize", detail=f"range has {len(value)} entries, expected 2")
    if any(isinstance(entry, (bool, np.bool_)) or not isinstance(entry, (int, np.integer)) for entry in value):
        raise TypeError(f"{api}: range takes two integers (start, end) or None, got {value!r}")
    start, end = (int(entry) for entry in value)
    if (start, end) == (-1, -1):
        return 0, n
    start, end = (min(max(entry + n if entry < 0 else entry, 0), n) for entry in (start, end))
    if start > end:
        detail = f"range is {tuple(value)}, that is ({start}, {end}) of {n} indices; expected start <= end"
        errors.check(561002, api, "GetWorkspaceSize", detail=detail)
    return start, end


def topk_of(probs: Any, given: int | None) -> Any:
    """Slots per token: what the caller says, else the second axis of the probs, else 1."""
    if given is not None:
        return given
    shape: Any = getattr(probs, "shape", ())
    return shape[1] if len(shape) == 2 else 1


def token_count(probs: Any, n: int, topk: int) -> int:
    """Count the tokens behind n indices; a topk that does not fit gives a count that validate refuses."""
    if probs is not None:
        return dim(probs, 0)
    return -(-n // topk) if topk > 0 else n
