"""The three loops behind these operators: scaled scatter with row dots, weighted sum of rows, row copy.

Each walks its slots in blocks that stay in cache, so extra memory does not grow with the tensors. The bits of a
result depend neither on the size of a block nor on the number of threads.
"""

from __future__ import annotations

import numpy as np

from .numerics import (
    Array,
    Floats,
    Index,
    Rows,
    blocks,
    last_writers,
    narrow,
    parallel,
    widen,
)

#: Bytes that the buffers of one block may take together; they stay in a core's second-level cache.
BLOCK_BYTES = 1 << 20
#: A row product is summed in pieces of this length. BLAS spreads a piece over its vector lanes, a few dozen
#: additions each, and starts no threads for so few elements; the pieces are added in float64.
PIECE = 1024


class _Block:
    """Space for one block of rows: as float32, and in the type of the tensor (the same array for float32)."""

    def __init__(self, capacity: int, like: Rows, raw: Array | None = None) -> None:
        shape = (capacity, like.width)
        self.wide: Floats = np.empty(shape, dtype=np.float32)
        self.raw: Array = self.wide
        if like.dtype != np.float32:
            self.raw = np.empty(shape, dtype=like.dtype) if raw is None else raw

    def load(self, source: Rows, rows: Index, holes: bool) -> Floats:
        """Read rows as float32; with ``holes``, negative entries read as zeros."""
        raw, wide = self.raw[: rows.size], self.wide[: rows.size]
        dropped = None
        if holes:
            dropped = rows < 0
            if dropped.all():
                wide[...] = 0
                return wide
            rows = np.where(dropped, 0, rows)
        source.take(rows, raw)
        if self.raw is not self.wide:
            widen(raw, wide)
        if dropped is not None:
            wide[dropped] = 0
        return wide

    def span(self, source: Rows, begin: int, end: int) -> Floats:
        """Give consecutive rows as float32: a view where that is possible."""
        rows = source.span(begin, end)
        if rows.dtype == np.float32 and rows.flags.c_contiguous:
            return rows
        widen(rows, self.wide[: end - begin])
        return self.wide[: end - begin]


def _step(total: int, width: int, bytes_each: int) -> int:
    """Give how many rows of ``width`` a block takes, at ``bytes_each`` an element over all buffers."""
    return max(1, min(total, BLOCK_BYTES // (bytes_each * max(width, 1))))


def row_dots(left: Floats, right: Floats, out: Floats) -> None:
    """Sum ``left[t, k] * right[t]`` over the last axis into ``out[t, k]``.

    Shapes are (T, K, H), (T, H) and (T, K). One sum does not depend on the others, nor on T or K.
    """
    tokens, slots, width = left.shape
    count, rest = divmod(width, PIECE)
    cut = count * PIECE
    parts = np.empty((tokens, slots, count + (rest > 0)), dtype=np.float32)
    # row times column is one BLAS dot; a matrix product would add in an order that depends on its shape
    if count:
        pieces = left[:, :, :cut].reshape(tokens, slots, count, 1, PIECE)
        columns = right[:, :cut].reshape(tokens, 1, count, PIECE, 1)
        np.matmul(pieces, columns, out=parts[:, :, :count, None, None])
    if rest:
        np.matmul(left[:, :, None, cut:], right[:, None, cut:, None], out=parts[:, :, count:, None])
    if parts.shape[2] == 1:
        out[...] = parts[:, :, 0]
    else:
        out[...] = parts.sum(axis=2, dtype=np.float64)


def scatter_grad(
    grad: Rows,
    rows: Index,
    scales: Floats,
    x: Rows,
    bias: tuple[Rows, Index] | None,
    out: Rows,
    dots: Array,
    dropped_is_zero: bool,
) -> None:
    """Scatter scaled gradients, and take the dot of each with what was scaled.

    For every slot (t, k) with row r: ``out[r] = round(grad[t] * scales[t, k])`` and
    ``dots[t, k] = round(sum((x[r] + bias[expert]) * grad[t]))``. A negative row writes nothing, reads zeros.

    Parameters
    ----------
    grad : Rows
        (T, H).
    rows : int64 (T, K)
        Row of each slot, negative where dropped.
    scales : float32 (T, K)
    x, out : Rows
    bias : (Rows, int64 (T, K)) or None
        Bias and the expert of each slot.
    dots : (T, K)
        Written; bits where bfloat16.
    dropped_is_zero : bool
        Whether a dropped slot without bias has dot 0, or 0 times the gradient, NaN included.
    """
    tokens, slots = rows.shape
    if not rows.size:
        return
    width = grad.width
    wins = last_writers(rows.reshape(-1), out.count).reshape(rows.shape)
    holes, all_win = bool((rows < 0).any()), bool(wins.all())
    sums = np.empty(rows.shape, dtype=np.float32)
    # values, bias, and the 16-bit form and scratch of the rounding
    step = _step(rows.size, width, 8 if out.dtype == np.float32 else 10)
    slot_step, token_step = min(slots, step), max(1, step // slots)

    def body(begin: int, end: int) -> None:
        values = _Block(slot_step * token_step, x)
        other = _Block(slot_step * token_step, x, values.raw)
        grads = _Block(token_step, grad)
        for t0, t1 in blocks(begin, end, token_step):
            g = grads.span(grad, t0, t1)
            for k0, k1 in blocks(0, slots, slot_step):
                at = (slice(t0, t1), slice(k0, k1))
                r = rows[at].reshape(-1)
                a = values.load(x, r, holes)
                if bias:
                    a += other.load(bias[0], bias[1][at].reshape(-1), False)
                cube = a.reshape(t1 - t0, k1 - k0, width)
                row_dots(cube, g, sums[at])
                np.multiply(g[:, None, :], scales[at][:, :, None], out=cube)
                block = values.raw[: r.size]
                if values.raw is not values.wide:
                    narrow(a, block, other.wide[: r.size])
                if all_win:
                    out.put(r, block)
                else:
                    won = wins[at].reshape(-1)
                    out.put(r[won], block[won])
        if dropped_is_zero and not bias:
            sums[begin:end][rows[begin:end] < 0] = 0

    parallel(tokens, rows.size * width * out.dtype.itemsize, body)
    narrow(sums, dots, np.empty_like(sums))


def weighted_sum(
    x: Rows,
    rows: Index,
    scales: Floats | None,
    bias: tuple[Rows, Index] | None,
    start: tuple[Rows, ...],
    out: Rows,
) -> None:
    """Sum rows per token: ``out[t] = round(sum(start)[t] + sum_k scales[t, k] * (x[rows[t, k]] + bias[expert]))``.

    Terms are added in order of k in float32; a negative row leaves its whole term out.

    Parameters
    ----------
    x, out : Rows
    rows : int64 (T, K)
    scales : float32 (T, K) or None
        None means 1.
    bias : (Rows, int64 (T, K)) or None
    start : tuple of Rows
        Summands of shape (T, H).
    """
    tokens, slots = rows.shape
    holes = bool((rows < 0).any())
    step = _step(tokens, out.width, 12)

    def body(begin: int, end: int) -> None:
        values = _Block(step, x)
        other = _Block(step, x, values.raw)
        total = np.empty((step, out.width), dtype=np.float32)
        for t0, t1 in blocks(begin, end, step):
            acc = total[: t1 - t0]
            acc[...] = 0
            for number, part in enumerate(start):
                # the first replaces the zeros, so that a negative zero stays one
                np.add(acc if number else -0.0, values.span(part, t0, t1), out=acc)
            for k in range(slots):
                kept: Index | slice = slice(t0, t1)
                if holes:
                    kept = t0 + np.flatnonzero(rows[t0:t1, k] >= 0)
                term = values.load(x, rows[kept, k], False)
                if bias:
                    term += other.load(bias[0], bias[1][kept, k], False)
                if scales is not None:
                    term *= scales[kept, k][:, None]
                if isinstance(kept, slice):
                    acc += term
                else:
                    acc[kept - t0] += term
            narrow(acc, out.span(t0, t1), other.wide[: t1 - t0])

    parallel(tokens, (rows.size + tokens) * out.width * out.dtype.itemsize, body)


def copy_rows(source: Rows, from_rows: Index, out: Rows, to_rows: Index) -> None:
    """Copy row ``from_rows[i]`` bit by bit to ``to_rows[i]``; a negative target is skipped, the last i counts."""
    wins = last_writers(to_rows, out.count)
    if not wins.all():
        from_rows, to_rows = from_rows[wins], to_rows[wins]
    step = _step(to_rows.size, out.width, 2 * out.dtype.itemsize)

    def body(begin: int, end: int) -> None:
        block = np.empty((step, out.width), dtype=out.dtype)
        for i0, i1 in blocks(begin, end, step):
            source.take(from_rows[i0:i1], block[: i1 - i0])
            out.put(to_rows[i0:i1], block[: i1 - i0])

    parallel(to_rows.size, to_rows.size * out.width * out.dtype.itemsize, body)
