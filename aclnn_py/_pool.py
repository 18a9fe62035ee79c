"""Allocations, and the workspace pool of a stream."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ._ffi import ffi

if TYPE_CHECKING:
    from .runtime import Runtime


class Block:
    """One allocation of device or pinned host memory, freed once: by :meth:`close`, or with its last reference.

    Whoever must keep memory until a stream has passed keeps the block.
    """

    rank = 0  # released before events and streams
    runtime: Runtime | None = None
    pointer = ffi.NULL
    nbytes = 0
    device = 0
    pinned = False
    home: list[Block] | None = None  # where its pool keeps it

    def __init__(self, runtime: Runtime, nbytes: int, device: int, *, pinned: bool = False) -> None:
        if nbytes:
            self.pointer = runtime.malloc(nbytes, device, pinned=pinned)
            self.runtime = runtime
            runtime.watch(self)
        self.nbytes = nbytes
        self.device = device
        self.pinned = pinned

    def close(self) -> None:
        """Free the memory at once; streams must have passed it."""
        runtime, self.runtime = self.runtime, None
        pointer, self.pointer = self.pointer, ffi.NULL
        if runtime is not None:
            with runtime.cleanup(self.device) as api:
                if api and self.pinned:
                    runtime.warn_on(api.aclrtFreeHost(pointer), "aclrtFreeHost")
                elif api:
                    runtime.warn_on(api.aclrtFree(pointer), "aclrtFree")

    __del__ = close


class Pool:
    """Workspace blocks of one stream, reused only by later work on it.

    Taking and giving back a block that exists needs no lock: it is one list operation. Sizes are rounded up to one
    of eight steps per power of two, so that similar calls share blocks and at most an eighth is wasted.
    """

    limit = 256 << 20  # bytes of blocks, lent or free; others are freed as soon as the stream has passed them

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.RLock()
        self._by_size: dict[int, list[Block]] = {}
        self.ready: dict[int, list[Block]] = {}  # the same lists, by the number asked for

    @property
    def cached(self) -> int:
        """Bytes of the blocks that wait for reuse."""
        return sum(block.nbytes for free in list(self._by_size.values()) for block in list(free))

    @staticmethod
    def rounded(nbytes: int) -> int:
        """Round up to a size of the pool; at least 512 bytes."""
        shift = max((nbytes - 1).bit_length() - 4, 9)
        return ((nbytes - 1 >> shift) + 1) << shift

    def take(self, nbytes: int) -> Block | None:
        """Take a block that is free, or None; the next request for this number finds its list in ``ready``."""
        free = self._by_size.get(self.rounded(nbytes))
        if free is None:
            return None
        if len(self.ready) > 1000:
            self.ready.clear()
        self.ready[nbytes] = free
        try:
            return free.pop()
        except IndexError:
            return None

    def adopt(self, nbytes: int, block: Block) -> list[Block]:
        """Make a new block one of the pool's, if the limit lets it; give the free blocks that had to go for it."""
        evicted: list[Block] = []
        with self._lock:
            if self.total + block.nbytes > self.limit >= block.nbytes:
                evicted = self.detach()
            if self.total + block.nbytes <= self.limit:
                self.total += block.nbytes
                block.home = self._by_size.setdefault(block.nbytes, [])
                self.ready[nbytes] = block.home
        return evicted

    def detach(self) -> list[Block]:
        """Take out every block that is free."""
        blocks = []
        with self._lock:
            for free in self._by_size.values():
                while free:
                    block = free.pop()
                    block.home = None
                    self.total -= block.nbytes
                    blocks.append(block)
        return blocks
