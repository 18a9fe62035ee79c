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
    bits,
    blocks,
    float32,
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


class BiasRows:
    """Adds the bias of each slot's expert to a block of rows.

    Parameters
    ----------
    bias : (E, H)
        Used where it is when dense float32; of anything else the experts named are widened once.
    experts : int64 (T, K)
        All within ``[0, E)``.
    """

    def __init__(self, bias: Array, experts: Index) -> None:
        if bias.dtype == np.float32 and bias.flags.c_contiguous and bias.flags.aligned:
            self._table, self.which = bias, experts
        else:
            used, which = np.unique(experts, return_inverse=True)
            self._table = float32(bits(bias)[used])
            self.which = which.reshape(experts.shape)

    def add(self, which: Index, target: Floats, scratch: Floats) -> None:
        """Add row ``which[i]`` of the table to ``target[i]``; ``scratch`` is space of the target's shape."""
        # one gathered copy, not a NumPy call a row: threads would take turns for the interpreter lock
        self._table.take(which, 0, scratch, "clip")
        target += scratch


class _Block:
    """Space for one block of rows: as float32, and in the type of the tensor (the same array for float32)."""

    def __init__(self, capacity: int, like: Rows) -> None:
        shape = (capacity, like.width)
        self.wide: Floats = np.empty(shape, dtype=np.float32)
        self.raw: Array = self.wide if like.dtype == np.float32 else np.empty(shape, dtype=like.dtype)

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


def pieces(width: int) -> int:
    """Give the number of pieces a row of ``width`` is summed in."""
    return -(-width // PIECE)


def row_dots(left: Floats, right: Floats, out: Floats) -> None:
    """Sum ``left[t, k] * right[t]`` over the last axis, piece by piece, into ``out[t, k, piece]``.

    Shapes are (T, K, H), (T, H) and (T, K, pieces(H)). One sum does not depend on the others, nor on T or K.
    """
    tokens, slots, width = left.shape
    whole, rest = divmod(width, PIECE)
    cut = whole * PIECE
    # row times column is one BLAS dot; a matrix product would add in an order that depends on its shape
    if whole:
        rows = left[:, :, :cut].reshape(tokens, slots, whole, 1, PIECE)
        columns = right[:, :cut].reshape(tokens, 1, whole, PIECE, 1)
        np.matmul(rows, columns, out=out[:, :, :whole, None, None])
    if rest:
        np.matmul(left[:, :, None, cut:], right[:, None, cut:, None], out=out[:, :, whole:, None])


def add_pieces(parts: Floats) -> Floats:
    """Add the pieces of :func:`row_dots`; return (T, K)."""
    with np.errstate(all="ignore"):
        total: Floats = parts.sum(axis=2, dtype=np.float64).astype(np.float32)
    return total


def scatter_grad(
    grad: Rows,
    rows: Index,
    scales: Floats,
    x: Rows,
    bias: BiasRows | None,
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
    bias : BiasRows or None
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
    parts = np.empty((tokens, slots, pieces(width)), dtype=np.float32)
    # values and the scratch space of bias and of rounding; for 16 bits also the raw form
    scratched = bias is not None or out.dtype != np.float32
    step = _step(rows.size, width, 4 * (1 + scratched) + (out.dtype != np.float32) * 2)
    # slots of one token in equal blocks, or as many tokens as fit
    slot_step, token_step = -(-slots // -(-slots // step)), max(1, step // slots)

    def body(begin: int, end: int) -> None:
        values = _Block(slot_step * token_step, x)
        scratch = np.empty_like(values.wide) if scratched else values.wide
        grads = _Block(token_step, grad)
        for t0, t1 in blocks(begin, end, token_step):
            g = grads.span(grad, t0, t1)
            for k0, k1 in blocks(0, slots, slot_step):
                at = (slice(t0, t1), slice(k0, k1))
                r = rows[at].reshape(-1)
                a = values.load(x, r, holes)
                if bias:
                    bias.add(bias.which[at].reshape(-1), a, scratch[: r.size])
                cube = a.reshape(t1 - t0, k1 - k0, width)
                row_dots(cube, g, parts[at])
                np.multiply(g[:, None, :], scales[at][:, :, None], out=cube)
                block = values.raw[: r.size]
                if values.raw is not values.wide:
                    narrow(a, block, scratch[: r.size])
                if all_win:
                    out.put(r, block)
                else:
                    won = wins[at].reshape(-1)
                    out.put(r[won], block[won])

    parallel(tokens, rows.size * width * out.dtype.itemsize, body)
    sums = add_pieces(parts)
    if dropped_is_zero and not bias:
        sums[rows < 0] = 0
    narrow(sums, dots, np.empty_like(sums))


def weighted_sum(
    x: Rows,
    rows: Index,
    scales: Floats | None,
    bias: BiasRows | None,
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
    bias : BiasRows or None
    start : tuple of Rows
        Summands of shape (T, H).
    """
    tokens, slots = rows.shape
    holes = bool((rows < 0).any())
    step = _step(tokens, out.width, 8 + 4 * (bias is not None) + (out.dtype != np.float32) * 2)

    def body(begin: int, end: int) -> None:
        values = _Block(step, x)
        total = np.empty((step, out.width), dtype=np.float32)
        scratch = total if bias is None else np.empty_like(total)
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
                    bias.add(bias.which[kept, k], term, scratch[: len(term)])
                if scales is not None:
                    term *= scales[kept, k][:, None]
                if isinstance(kept, slice):
                    acc += term
                else:
                    acc[kept - t0] += term
            narrow(acc, out.span(t0, t1), values.wide[: t1 - t0])

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
