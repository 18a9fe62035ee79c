"""Device memory as a record of a run tells of it: which bytes were filled, and by whom."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from .model import Tensor

__all__ = ["Memory"]


class Memory:
    """What happened to device memory, by address.

    Examples
    --------
    >>> memory = Memory()
    >>> memory.allocate(64, 8)
    >>> memory.fill(64, 4)
    >>> memory.filled(64, 8, 4).tolist()
    [True, False]
    """

    def __init__(self) -> None:
        self._filled: list[tuple[int, int]] = []  # sorted, disjoint [begin, end)
        self._results: list[tuple[int, int, bool]] = []  # written by operators since; whether the record says what
        self._changes: list[tuple[int, int, int]] = []  # [begin, end) filled from outside, and when
        self._clock = 0
        self._tensors: list[tuple[int, int, Tensor]] = []  # address of the data, of the storage; the newest last

    def allocate(self, address: int, count: int) -> None:
        """Begin with new memory: nothing in it is filled."""
        self._forget(address, address + count)
        self._filled = _without(self._filled, address, address + count)
        self._tensors = [t for t in self._tensors if not address <= t[1] < address + max(count, 1)]
        self._changed(address, count)

    def fill(self, address: int, count: int) -> None:
        """Take bytes that come from the host."""
        if count <= 0:
            return
        self._forget(address, address + count)
        self._add(address, address + count)
        self._changed(address, count)

    def copy(self, to: int, source: int, count: int) -> None:
        """Take bytes from device memory: as far filled as those are."""
        filled = [(max(b, source), min(e, source + count)) for b, e in self._filled]
        self._forget(to, to + count)
        self._filled = _without(self._filled, to, to + count)
        for begin, end in filled:
            if begin < end:
                self._add(begin - source + to, end - source + to)
        self._changed(to, count)

    def write(self, address: int, count: int, *, known: bool) -> None:
        """Take bytes that an operator writes; ``known``: what is in them is in the record."""
        if count > 0:
            self._results.append((address, address + count, known))
            if known:
                self._add(address, address + count)

    def filled(self, address: int, count: int, size: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each element of ``size`` bytes whether all of it is filled."""
        out = np.zeros(count // size, bool)
        for begin, end in self._filled:
            low, high = max(begin - address, 0), min(end - address, count)
            if low < high:
                out[-(-low // size) : high // size] = True
        return out

    def version(self, address: int, count: int) -> int:
        """Return when these bytes were last filled from outside."""
        return max((when for b, e, when in self._changes if b < address + max(count, 1) and address < e), default=0)

    def written(self, address: int, count: int) -> bool:
        """Whether an operator wrote any of these bytes since they were filled."""
        return any(b < address + count and address < e for b, e, _ in self._results)

    def passively_written(self, address: int, count: int) -> bool:
        """Whether one wrote them whose results the record does not hold."""
        return any(b < address + count and address < e and not known for b, e, known in self._results)

    def place(self, address: int, storage: int, tensor: Tensor) -> None:
        """Remember a tensor that a call uses."""
        self._tensors.append((address, storage, tensor))

    def tensor_at(self, address: int, *, exact: bool = False) -> Tensor | None:
        """Return the newest tensor whose storage starts at an address, or (not ``exact``) whose data do."""
        for data, storage, tensor in reversed(self._tensors):
            if address == storage or (not exact and address == data):
                return tensor
        return None

    def _add(self, begin: int, end: int) -> None:
        joined = [(b, e) for b, e in self._filled if b <= end and begin <= e]
        kept = [(b, e) for b, e in self._filled if not (b <= end and begin <= e)]
        item = min([begin, *(b for b, _ in joined)]), max([end, *(e for _, e in joined)])
        kept.insert(bisect_right(kept, item), item)
        self._filled = kept

    def _changed(self, address: int, count: int) -> None:
        self._clock += 1
        self._changes.append((address, address + count, self._clock))

    def _forget(self, begin: int, end: int) -> None:
        """Results that are overwritten are results no more."""
        self._results = [
            (b, e, k) for first, last, k in self._results for b, e in _without([(first, last)], begin, end)
        ]


def _without(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Return disjoint spans less one of them."""
    out = []
    for b, e in spans:
        if b < begin:
            out.append((b, min(e, begin)))
        if e > end:
            out.append((max(b, end), e))
    return [(b, e) for b, e in out if b < e]
