"""Exact widening and rounding, threads, and rows of tensors: what the operators' loops are built of.

bfloat16 travels as its bits (``uint16``), which NumPy moves and converts at full speed and without the interpreter
lock, unlike an extension dtype. Bits are told by their dtype alone: no operator here has ``uint16`` data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]

#: Below this many bytes of data a thread costs more than it saves.
_THREAD_BYTES = 1 << 21


def bits(array: Array) -> Array:
    """View bfloat16 as ``uint16``; any other array is returned as it is. Strides are kept."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def widen(source: Array, out: Floats) -> None:
    """Write a block of float32, float16 or bfloat16 bits into ``out`` as float32, exactly."""
    if source.dtype == np.uint16:
        wide = out.view(np.uint32)
        np.copyto(wide, source)
        np.left_shift(wide, 16, out=wide)
    else:
        np.copyto(out, source)


def narrow(source: Floats, out: Array, scratch: Floats) -> None:
    """Round float32 into ``out`` (float32, float16 or bfloat16 bits), to nearest even; NaN stays NaN.

    Parameters
    ----------
    source : float32
        Its content is lost.
    out : array
        Same shape, any strides.
    scratch : float32
        Space of the same shape; used for bfloat16.
    """
    if out.dtype != np.uint16:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            np.copyto(out, source, casting="same_kind")
        return
    wide, odd = source.view(np.uint32), scratch.view(np.uint32)
    # the maximum is NaN if any element is, and takes less time than a mask of all
    nans = np.isnan(source) if np.isnan(source.max(initial=-np.inf)) else None
    np.right_shift(wide, 16, out=odd)
    odd &= 1
    odd += 0x7FFF
    wide += odd
    wide >>= 16
    if nans is not None:
        # rounding could turn a NaN into an infinity or wrap it to zero
        wide[nans] = 0x7FC0
    np.copyto(out, wide, casting="same_kind")


def float32(array: Array) -> Floats:
    """Copy a small tensor to float32."""
    out = np.empty(array.shape, dtype=np.float32)
    widen(bits(array), out)
    return out


def index64(index: Array) -> Index:
    """Copy an index tensor to int64, so that no offset computed from it can overflow."""
    return np.array(index, dtype=np.int64)


def thread_count() -> int:
    """Threads to use: ``ACLNN_PY_NUM_THREADS``, or the usable CPUs up to 8.

    Raises
    ------
    ValueError
        The variable holds something other than a positive integer.
    """
    text = os.environ.get("ACLNN_PY_NUM_THREADS")
    if text is None:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cpus, 8)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"ACLNN_PY_NUM_THREADS: got {text!r}, expected a positive integer")
    return int(text)


def parallel(total: int, work_bytes: int, body: Callable[[int, int], None]) -> None:
    """Run ``body(begin, end)`` over ``range(total)``, cut into one piece a thread.

    The threads live for this call only: none is left behind for a fork to lose. ``body`` must give the same
    result however the range is cut. Overflow, NaN and underflow are results here, not warnings.
    """
    pieces = max(1, min(thread_count(), total, work_bytes // _THREAD_BYTES))

    def piece(number: int) -> None:
        with np.errstate(all="ignore"):
            body(total * number // pieces, total * (number + 1) // pieces)

    if pieces == 1:
        piece(0)
        return
    from concurrent.futures import ThreadPoolExecutor  # costs more to import than all of this package

    with ThreadPoolExecutor(pieces) as pool:
        list(pool.map(piece, range(pieces)))


class Rows:
    """The rows of a (M, H) tensor, or of a (A, B, H) tensor as A·B rows, of any strides, without a copy.

    Attributes
    ----------
    count, width : int
        Rows, and elements of a row.
    dtype : numpy.dtype
        ``uint16`` stands for bfloat16.
    """

    def __init__(self, array: Array) -> None:
        self._array = bits(array)
        self._inner = array.shape[1] if array.ndim == 3 else 0
        self.count = array.shape[0] * array.shape[1] if array.ndim == 3 else array.shape[0]
        self.width = array.shape[-1]
        self.dtype = self._array.dtype
        # ndarray.take would first copy the whole of any other array
        self._dense = self._array.flags.c_contiguous and self._array.flags.aligned
        if self._dense:
            self._array = self._array.reshape(self.count, self.width)
            self._inner = 0

    def _key(self, rows: Index) -> Any:
        return (rows // self._inner, rows % self._inner) if self._inner else rows

    def take(self, rows: Index, out: Array) -> None:
        """Copy rows, which must be within ``[0, count)``, into a dense block of the same dtype."""
        if self._dense:
            self._array.take(rows, 0, out, "clip")
        else:
            out[...] = self._array[self._key(rows)]

    def put(self, rows: Index, block: Array) -> None:
        """Copy a block of the same dtype into rows; of equal rows the last counts."""
        self._array[self._key(rows)] = block

    def span(self, begin: int, end: int) -> Array:
        """View rows of a 2-D tensor."""
        return self._array[begin:end]

    def fill_zero(self) -> None:
        """Set every row to zero."""
        self._array[...] = 0


def last_writers(rows: Index, count: int) -> npt.NDArray[np.bool_]:
    """Tell which entries of a flat index are valid, and the last of those with the same row.

    Threads may then write in any order and leave what one ascending loop would.
    """
    slots = np.flatnonzero((rows >= 0) & (rows < count))
    owner = np.full(count, -1, dtype=np.int64)
    owner[rows[slots]] = slots
    wins = np.zeros(rows.shape, dtype=np.bool_)
    wins[owner[owner >= 0]] = True
    return wins


def blocks(begin: int, end: int, step: int) -> list[tuple[int, int]]:
    """Cut a range into steps."""
    return [(at, min(at + step, end)) for at in range(begin, end, step)]
