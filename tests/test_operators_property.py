"""Random calls of the seven operators against the float64 oracle.

Every example also checks, in ``harness.check``: unwritten rows keep the old content of the buffer, two runs give
the same bits, and no input changes.
"""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
import pytest
from harness import BF16, F16, F32, FLOATS, I32, I64, buffer
from hypothesis import given, settings
from hypothesis import strategies as st

HIDDEN = st.sampled_from([1, 3, 7, 33, 1025])
TOKENS = st.integers(0, 5)
TOPK = st.integers(1, 16)
LAYOUTS = ("contiguous", "fortran", "sliced", "negative", "offset", "broadcast")


class Source:
    """Draws arrays: the values from a seeded generator, what matters for coverage from hypothesis."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.special = draw(st.integers(0, 5)) == 0  # one call in six holds inf and NaN
        self.flag = lambda: draw(st.booleans())

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def layout(self, array: np.ndarray) -> np.ndarray:
        """Return an equal array in another memory layout; ``broadcast`` repeats the first row instead."""
        kind = self.pick(*LAYOUTS)
        if array.ndim == 0 or array.size == 0:
            return array
        if kind == "fortran":
            array = np.asfortranarray(array)
        elif kind == "sliced":
            wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
            wide[..., 1::2] = array
            array = wide[..., 1::2]
        elif kind == "negative":
            array = np.ascontiguousarray(array[::-1])[::-1]
        elif kind == "offset":
            longer = np.zeros((array.shape[0] + 2, *array.shape[1:]), array.dtype)
            longer[2:] = array
            array = longer[2:]
        elif kind == "broadcast" and array.ndim > 1 and array.dtype.kind not in "iu":
            array = np.broadcast_to(array[:1], array.shape)
        if self.flag():
            array = array[...]
            array.flags.writeable = False
        return array

    def floats(self, shape: tuple[int, ...], dtype: np.dtype, zeros: bool = False) -> np.ndarray:
        values = self.random.standard_normal(shape) * self.pick(1.0, 64.0, 2.0**-10)
        if self.flag():
            values = np.round(values * 4) / 4
        flat = values.reshape(-1)
        if zeros and flat.size:
            flat[self.random.integers(flat.size, size=1 + flat.size // 4)] = 0.0
        if self.special and flat.size:
            flat[self.random.integers(flat.size, size=2)] = self.pick(np.inf, -np.inf, np.nan)
        return self.layout(values.astype(F32).astype(dtype))

    def experts(self, shape: tuple[int, ...], count: int, dtype: np.dtype = I32) -> np.ndarray:
        return self.layout(self.random.integers(0, count, shape).astype(dtype))

    def permutation(self, count: int, outside: tuple[int, ...] = ()) -> np.ndarray:
        """A permutation of range(count), some of its entries replaced by values of ``outside``."""
        order = self.random.permutation(count).astype(I32)
        if outside and count and self.flag():
            holes = self.random.random(count) < self.pick(0.2, 1.0)
            order[holes] = self.random.choice(np.array(outside, I32), int(holes.sum()))
        return self.layout(order)

    def ep_range(self, n: int, *more: str) -> tuple[list[int] | None, int, int]:
        """(as given, start, end): absent, whole, empty or partial, and what else the operator normalises."""
        kind = self.pick("none", "whole", "empty", "partial", "partial", *more)
        start, end = sorted(int(v) for v in self.random.integers(0, n + 1, 2))
        if kind in ("none", "minus one"):
            return (None if kind == "none" else [-1, -1]), 0, n
        if kind == "whole":
            return [0, n], 0, n
        if kind == "clamped":
            return [start, n + 7], start, n
        if kind == "empty":
            return [start, start], start, start
        if kind == "negative" and start < end < n and [start - n, end - n] != [-1, -1]:
            return [start - n, end - n], start, end
        return [start, end], start, end


def out_of(n: int) -> tuple[int, ...]:
    return (-1, -7, n, n + 1, 2**31 - 1, -(2**31))


@st.composite
def finalize_grad_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, mode = draw(TOKENS), draw(HIDDEN), draw(st.integers(0, 1))
    with_scales = draw(st.integers(0, 4)) > 0
    k = draw(TOPK) if with_scales else 1
    rk, dtype, product = tokens * k, s.pick(*FLOATS), None
    scale_dtype = dtype
    if s.flag():
        scale_dtype, product = s.pick(*FLOATS), "950"
    active, experts, capacity = 0, 0, 0
    if mode == 0:
        active = s.pick(0, -3, rk, rk + 5, max(rk // 2, 1))
        rows = active if 0 < active < rk else rk
        row_idx, shape = s.permutation(rk, out_of(rk)), (rows, hidden)
    else:
        active, experts = s.pick(0, 1), draw(st.integers(1, 4))
        capacity = max(-(-rk // experts) + draw(st.integers(-2, 2)), 1)
        rows, shape = experts * capacity, (experts, capacity, hidden)
        slots = s.random.permutation(max(rows, rk))[:rk].astype(I32)  # unique; those >= rows are dropped
        slots[s.random.random(rk) < 0.2] = -1
        row_idx = s.layout(slots)
    bias_rows = experts if mode else draw(st.integers(1, 4))
    with_bias = with_scales and s.flag()
    args = dict(
        gradY=s.floats((tokens, hidden), dtype),
        expandedRowIdx=row_idx,
        expandedXOptional=s.floats(shape, dtype) if with_scales else None,
        scalesOptional=s.floats((tokens, k), scale_dtype, zeros=True) if with_scales else None,
        expertIdxOptional=s.experts((tokens, k), bias_rows) if with_bias else None,
        biasOptional=s.floats((bias_rows, hidden), dtype) if with_bias else None,
        dropPadMode=mode,
        activeNum=active,
        expertNum=experts,
        expertCapacity=capacity,
        gradExpandedXOut=buffer(shape, dtype),
        gradScalesOut=buffer((tokens, k), scale_dtype),
    )
    return args, product


@st.composite
def unpermute_grad_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, topk = draw(TOKENS), draw(HIDDEN), draw(TOPK)
    n = tokens * topk
    dtype, probs_dtype = s.pick(*FLOATS), s.pick(*FLOATS)
    ep, start, end = s.ep_range(n, "minus one", "negative", "clamped")
    # N rows or those of the range; the row count N only, where the range has none
    rows = s.pick(n, end - start) if end > start else n
    with_probs = s.flag()
    permuted = s.floats((rows, hidden), dtype)
    if not with_probs and rows == n and s.flag():
        permuted = None
    args = dict(
        unpermutedTokensGrad=s.floats((tokens, hidden), dtype),
        sortedIndices=s.permutation(n, out_of(n)),
        permutedTokensOptional=permuted,
        probsOptional=s.floats((tokens, topk), probs_dtype, zeros=True) if with_probs else None,
        paddedMode=False,
        restoreShapeOptional=s.pick(None, [1, 1]),
        rangeOptional=ep,
        topkNum=s.pick(topk, 1) if with_probs else topk,
        permutedTokensGradOut=buffer((rows, hidden), dtype),
        probsGradOut=buffer((tokens, topk), probs_dtype),
    )
    return args, s.pick(None, None, "A3", "950")


@st.composite
def finalize_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, mode = draw(TOKENS), draw(HIDDEN), draw(st.integers(0, 3))
    with_scales = draw(st.integers(0, 4)) > 0
    k = draw(TOPK) if with_scales else 1
    dtype, rk = s.pick(*FLOATS), tokens * k
    product = s.pick(None, "950")
    scale_dtype = s.pick(*FLOATS) if product else s.pick(dtype, F32 if dtype == BF16 else dtype)
    experts = k + draw(st.integers(0, 2))
    if mode in (0, 2):
        rows, shape = rk, (rk, hidden)
        row_idx = s.permutation(rk, out_of(rk) if product else ())
    else:
        capacity = max(-(-rk // experts), 1)
        rows, shape = experts * capacity, (experts, capacity, hidden)
        slots = s.random.permutation(rows)[:rk].astype(I32)
        slots[s.random.random(rk) < s.pick(0.0, 0.3, 1.0)] = -1
        row_idx = s.layout(slots)
    with_x1, with_bias = s.flag(), s.flag()
    with_x2 = with_x1 and s.flag()
    args = dict(
        expandedX=s.floats(shape, dtype),
        expandedRowIdx=row_idx,
        x1Optional=s.floats((tokens, hidden), dtype) if with_x1 else None,
        x2Optional=s.floats((tokens, hidden), dtype) if with_x2 else None,
        biasOptional=s.floats((experts, hidden), dtype) if with_bias else None,
        scalesOptional=s.floats((tokens, k), scale_dtype, zeros=True) if with_scales else None,
        expertIdxOptional=s.experts((tokens, k), experts) if with_bias or s.flag() else None,
        dropPadMode=mode,
        out=buffer((tokens, hidden), dtype),
    )
    return args, product


@st.composite
def unpermute_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, topk = draw(TOKENS), draw(HIDDEN), draw(TOPK)
    n, dtype, probs_dtype = tokens * topk, s.pick(*FLOATS), s.pick(*FLOATS)
    ep, start, end = s.ep_range(n)
    rows = s.pick(n, end - start) if end > start else n
    with_probs = s.flag()
    args = dict(
        permutedTokens=s.floats((rows, hidden), dtype),
        sortedIndices=s.permutation(n, out_of(n)),
        probsOptional=s.floats((tokens, topk), probs_dtype, zeros=True) if with_probs else None,
        numTopk=topk,
        rangeOptional=ep,
        paddedMode=False,
        restoreShapeOptional=None,
        out=buffer((tokens, hidden), dtype),
    )
    return args, s.pick(None, None, "A3", "950")


@st.composite
def permute_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, topk = draw(TOKENS), draw(HIDDEN), draw(TOPK)
    n, dtype = tokens * topk, s.pick(*FLOATS)
    start, end = sorted(int(v) for v in s.random.integers(0, n + 1, 2))
    ep: list[int] | None = [start, end]
    if start == end:  # a literal empty range is not defined for the C call
        ep, start, end = s.pick(None, [0, n]), 0, n
    shape = (tokens,) if topk == 1 and s.flag() else (tokens, topk)
    with_probs = s.flag()
    args = dict(
        tokens=s.floats((tokens, hidden), dtype),
        indices=s.experts(shape, draw(st.integers(1, 9)), s.pick(I32, I64)),
        probsOptional=s.floats(shape, dtype) if with_probs else None,
        rangeOptional=ep,
        numOutTokens=0,
        paddedMode=False,
        permuteTokensOut=buffer((end - start, hidden), dtype),
        sortedIndicesOut=buffer((n,), I32),
        permuteProbsOut=buffer((end - start,), dtype),
    )
    return args, s.pick(None, None, "A3", "950")


@st.composite
def permute_grad_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, topk = draw(TOKENS), draw(HIDDEN), draw(TOPK)
    n, dtype = tokens * topk, s.pick(*FLOATS)
    start, end = sorted(int(v) for v in s.random.integers(0, n + 1, 2))
    if start == end:
        start, end = 0, n
    with_probs = s.flag()
    args = dict(
        permutedTokensOutputGrad=s.floats((end - start, hidden), dtype),
        sortedIndices=s.permutation(n, out_of(n)),
        permutedProbsOutputGradOptional=s.floats((end - start,), dtype) if with_probs else None,
        numTopk=topk,
        rangeOptional=[start, end],
        paddedMode=False,
        tokenGradOut=buffer((tokens, hidden), dtype),
        probsGradOut=buffer((tokens, topk), dtype),
    )
    return args, s.pick(None, None, "A3", "950")


@st.composite
def init_routing_calls(draw: Any) -> tuple[dict[str, Any], str | None]:
    s = Source(draw)
    tokens, hidden, k, mode = draw(TOKENS), draw(HIDDEN), draw(TOPK), draw(st.integers(0, 1))
    if mode == 1:
        tokens = max(tokens, 1)
    n, dtype, product = tokens * k, s.pick(*FLOATS), s.pick(None, "950")
    experts, index_dtype, shape = draw(st.integers(1, 9)), I32, (tokens, k)
    if product:
        index_dtype = s.pick(I32, I64)
        shape = (tokens,) if k == 1 and s.flag() else shape
    active, capacity = 0, draw(st.integers(1, tokens)) if mode else s.pick(0, 3)
    if mode == 0:
        active = s.pick(0, n, n + 5, max(n // 2, 0))
    out_shape = (experts, capacity, hidden) if mode else (min(active or n, n), hidden)
    counts, before = s.pick(None, buffer((experts,), I32)), s.pick(None, buffer((experts,), I32))
    args = dict(
        x=s.floats((tokens, hidden), dtype),
        expertIdx=s.experts(shape, experts, index_dtype),
        activeNumOptional=active,
        expertCapacityOptional=capacity,
        expertNumOptional=experts,
        dropPadModeOptional=mode,
        expertTokensCountOrCumsumFlagOptional=draw(st.integers(0, 2)) if mode or counts is not None else 0,
        expertTokensBeforeCapacityFlagOptional=s.flag() if not mode or before is not None else False,
        expandedXOut=buffer(out_shape, dtype),
        expandedRowIdxOut=buffer((n,), I32),
        expertTokensCountOrCumsumOutOptional=counts,
        expertTokensBeforeCapacityOutOptional=before,
    )
    return args, product


@given(case=finalize_grad_calls())
def test_finalize_routing_v2_grad(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeFinalizeRoutingV2Grad", case[1], **case[0])


@given(case=unpermute_grad_calls())
def test_token_unpermute_with_ep_grad(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeTokenUnpermuteWithEpGrad", case[1], **case[0])


@given(case=finalize_calls())
def test_finalize_routing_v2(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeFinalizeRoutingV2", case[1], **case[0])


@given(case=unpermute_calls())
def test_token_unpermute_with_ep(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeTokenUnpermuteWithEp", case[1], **case[0])


@given(case=permute_calls())
def test_token_permute_with_ep(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeTokenPermuteWithEp", case[1], **case[0])


@given(case=permute_grad_calls())
def test_token_permute_with_ep_grad(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeTokenPermuteWithEpGrad", case[1], **case[0])


@given(case=init_routing_calls())
def test_init_routing_v2(backend: Any, case: tuple[dict[str, Any], str | None]) -> None:
    harness.check(backend, "aclnnMoeInitRoutingV2", case[1], **case[0])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=["float16", "bfloat16"])
@settings(max_examples=200)
@given(bits=st.integers(0, 2**16 - 1), scale_bits=st.integers(0, 2**16 - 1))
def test_one_product_is_rounded_once(backend: Any, dtype: np.dtype, bits: int, scale_bits: int) -> None:
    """Any two 16-bit numbers: denormals, ties, overflow, infinities and NaN included."""
    g, scale = (np.array([[word]], np.uint16).view(dtype) for word in (bits, scale_bits))
    harness.check(
        backend,
        "aclnnMoeFinalizeRoutingV2Grad",
        gradY=g,
        expandedRowIdx=np.zeros(1, I32),
        expandedXOptional=np.ones((1, 1), dtype),
        scalesOptional=scale,
        gradExpandedXOut=buffer((1, 1), dtype),
        gradScalesOut=buffer((1, 1), dtype),
    )
