"""Forward and backward fit together: adjoint identities and expert-parallel partitions, exact in small integers.

The gradients are derivatives of the forwards, so <gradY, forward(X + dX) - forward(X)> == <gradX, dX>. Every number
here is a small integer and every sum stays below 2^8, so the identities hold to the bit in all three dtypes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from harness import BF16, F16, F32, I32
from hypothesis import given, settings
from hypothesis import strategies as st

import aclnn_py

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=["float32", "float16", "bfloat16"])


def dot(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.sum(left.astype(np.float64) * right.astype(np.float64)))


class Step(NamedTuple):
    """One routed layer in small integers: T tokens, K experts of E for each."""

    random: np.random.Generator
    dtype: np.dtype
    experts: int
    routing: np.ndarray  # (T, K) int32
    tokens: np.ndarray
    scales: np.ndarray
    grad: np.ndarray

    @classmethod
    def draw(cls, seed: int, dtype: np.dtype) -> Step:
        random = np.random.default_rng(seed)
        experts, topk, count, hidden = (int(random.integers(1, top)) for top in (5, 4, 5, 4))
        topk = min(topk, experts)
        routing = np.array([random.permutation(experts)[:topk] for _ in range(count)], I32)
        step = cls(random, dtype, experts, routing, *[np.zeros(0)] * 3)
        return step._replace(
            tokens=step.small(count, hidden), scales=step.small(count, topk), grad=step.small(count, hidden)
        )

    def small(self, *shape: int) -> np.ndarray:
        return self.random.integers(-2, 3, shape).astype(self.dtype)


@DTYPES
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("mode", [0, 1], ids=["dropless", "drop-pad"])
@settings(max_examples=25)
@given(seed=SEEDS, column_major=st.booleans())
def test_finalize_gradient_is_the_adjoint_of_the_forward(
    backend: Any, mode: int, with_bias: bool, dtype: np.dtype, seed: int, column_major: bool
) -> None:
    step = Step.draw(seed, dtype)
    count, topk = step.routing.shape
    capacity = int(step.random.integers(1, count + 1)) if mode else 0
    x, row_idx, _, _ = aclnn_py.moe_init_routing_v2(
        step.tokens,
        step.routing,
        expert_capacity=capacity,
        expert_num=step.experts,
        drop_pad_mode=mode,
        backend=backend,
    )
    x = x * np.asarray(step.random.integers(1, 3), dtype)  # the experts
    bias = step.small(step.experts, x.shape[-1]) if with_bias else None
    expert_idx = step.routing if with_bias else None

    def forward(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
        # grad mode 0 and 1 pair with forward modes 2 and 3, and with 0 and 1 through the other index layout
        index = aclnn_py.column_major_row_idx(row_idx, topk) if column_major else row_idx
        return aclnn_py.moe_finalize_routing_v2(
            rows,
            index,
            bias=bias,
            scales=scales,
            expert_idx=expert_idx,
            drop_pad_mode=mode + (0 if column_major else 2),
            backend=backend,
        )

    grad_x, grad_scales = aclnn_py.moe_finalize_routing_v2_grad(
        step.grad,
        row_idx,
        x,
        step.scales,
        expert_idx,
        bias,
        drop_pad_mode=mode,
        expert_num=step.experts,
        expert_capacity=capacity,
        backend=backend,
    )
    base = forward(x, step.scales).astype(np.float64)
    move = step.small(*x.shape)
    assert dot(step.grad, forward(x + move, step.scales) - base) == dot(grad_x, move)
    if not with_bias or (row_idx >= 0).all():  # a dropped slot keeps its bias in the gradient only
        turn = step.small(count, topk)
        assert dot(step.grad, forward(x, step.scales + turn) - base) == dot(grad_scales, turn)
    if not with_bias:
        assert dot(grad_scales, step.scales) == dot(grad_x, x)


@settings(max_examples=40)
@given(seed=SEEDS, top_k=st.integers(1, 6), count=st.integers(0, 6))
def test_index_layouts_convert_both_ways(seed: int, top_k: int, count: int) -> None:
    rows = np.random.default_rng(seed).permutation(count * top_k).astype(I32)
    columns = aclnn_py.column_major_row_idx(rows, top_k)
    assert columns.tolist() == [rows[t * top_k + k] for k in range(top_k) for t in range(count)]
    assert aclnn_py.row_major_row_idx(columns, top_k).tolist() == rows.tolist()


def cut(random: np.random.Generator, n: int) -> list[tuple[int, int]]:
    """Disjoint ranges that cover [0, n), some of them empty."""
    edges = sorted([0, *(int(v) for v in random.integers(0, n + 1, random.integers(0, 4))), n])
    return list(pairwise(edges))


@DTYPES
@pytest.mark.parametrize("with_probs", [False, True], ids=["no-probs", "probs"])
@pytest.mark.parametrize("full_rows", [False, True], ids=["own-rows", "all-rows"])
@settings(max_examples=20)
@given(seed=SEEDS)
def test_expert_parallel_ranges_add_up_to_the_whole(
    backend: Any, full_rows: bool, with_probs: bool, dtype: np.dtype, seed: int
) -> None:
    step = Step.draw(seed, dtype)
    count, topk = step.routing.shape
    n = count * topk
    probs = step.scales if with_probs else None
    names = {"backend": backend}
    factor = np.asarray(step.random.integers(1, 3), dtype)  # the experts

    everything, order, all_probs = aclnn_py.moe_token_permute_with_ep(step.tokens, step.routing, probs, **names)
    experts_out = everything * factor
    whole = aclnn_py.moe_token_unpermute_with_ep(experts_out, order, probs, num_topk=topk, **names)
    whole_grad, whole_probs = aclnn_py.moe_token_unpermute_with_ep_grad(
        step.grad, order, experts_out, probs, topk_num=topk, **names
    )
    upstream = step.small(*everything.shape)
    upstream_probs = step.small(n) if with_probs else None
    tokens_grad, tokens_probs = aclnn_py.moe_token_permute_with_ep_grad(
        upstream, order, upstream_probs, num_topk=topk, **names
    )

    sums = dict.fromkeys(("out", "probs", "tokens", "permuted probs"), 0.0)
    pieces, grads = [], []
    for start, end in cut(step.random, n):
        pair = {"range": (start, end), **names}
        part, sorted_indices, part_probs = aclnn_py.moe_token_permute_with_ep(step.tokens, step.routing, probs, **pair)
        assert part.shape == (end - start, step.tokens.shape[1])
        assert sorted_indices.tolist() == order.tolist(), "the index covers all slots, whatever the range"
        if with_probs:
            assert part_probs.tolist() == all_probs[start:end].tolist()
        pieces.append(part)
        rows = experts_out[start:end]
        if full_rows:
            rows = np.concatenate([rows, np.full((n - len(rows), rows.shape[1]), 99, dtype)])
        out = aclnn_py.moe_token_unpermute_with_ep(rows, order, probs, num_topk=topk, **pair)
        grad, probs_grad = aclnn_py.moe_token_unpermute_with_ep_grad(
            step.grad, order, rows, probs, topk_num=topk, **pair
        )
        assert grad.shape == rows.shape
        assert not grad[end - start :].astype(np.float64).any(), "rows beyond the range stay zero"
        grads.append(grad[: end - start])
        back, back_probs = aclnn_py.moe_token_permute_with_ep_grad(
            upstream[start:end],
            order,
            None if upstream_probs is None else upstream_probs[start:end],
            num_topk=topk,
            **pair,
        )
        sums["out"] += out.astype(np.float64)
        sums["tokens"] += back.astype(np.float64)
        if with_probs:
            sums["probs"] += probs_grad.astype(np.float64)
            sums["permuted probs"] += back_probs.astype(np.float64)
        else:
            assert probs_grad is None
            assert back_probs is None

    assert np.concatenate(pieces).tolist() == everything.tolist()
    assert np.concatenate(grads).tolist() == whole_grad.tolist()
    np.testing.assert_array_equal(sums["out"], whole.astype(np.float64))
    np.testing.assert_array_equal(sums["tokens"], tokens_grad.astype(np.float64))
    if with_probs:
        np.testing.assert_array_equal(sums["probs"], whole_probs.astype(np.float64))
        np.testing.assert_array_equal(sums["permuted probs"], tokens_probs.astype(np.float64))


@DTYPES
@settings(max_examples=25)
@given(seed=SEEDS, partial=st.booleans())
def test_ep_gradients_are_adjoints_of_their_forwards(backend: Any, dtype: np.dtype, seed: int, partial: bool) -> None:
    step = Step.draw(seed, dtype)
    count, topk = step.routing.shape
    n = count * topk
    start, end = sorted(int(v) for v in step.random.integers(0, n + 1, 2)) if partial else (0, n)
    names = {"range": (start, end), "backend": backend}
    scales = np.where(step.scales.astype(np.float64) == 0, 1, step.scales.astype(np.float64)).astype(dtype)
    x, order, _ = aclnn_py.moe_token_permute_with_ep(step.tokens, step.routing, scales, **names)

    def forward(rows: np.ndarray, probs: np.ndarray) -> np.ndarray:
        out = aclnn_py.moe_token_unpermute_with_ep(rows, order, probs, num_topk=topk, **names)
        return out.astype(np.float64)

    grad_x, grad_probs = aclnn_py.moe_token_unpermute_with_ep_grad(step.grad, order, x, scales, topk_num=topk, **names)
    move, turn = step.small(*x.shape), step.small(count, topk)
    assert dot(step.grad, forward(x + move, scales) - forward(x, scales)) == dot(grad_x, move)
    assert dot(step.grad, forward(x, scales + turn) - forward(x, scales)) == dot(grad_probs, turn)
    assert dot(grad_probs, scales) == dot(grad_x, x)

    # the permute is linear: its gradient is its transpose
    upstream, upstream_probs = step.small(*x.shape), step.small(end - start)
    token_grad, probs_grad = aclnn_py.moe_token_permute_with_ep_grad(
        upstream, order, upstream_probs, num_topk=topk, **names
    )
    _, _, permuted_probs = aclnn_py.moe_token_permute_with_ep(step.tokens, step.routing, scales, **names)
    assert dot(upstream, x) == dot(token_grad, step.tokens)
    assert dot(upstream_probs, permuted_probs) == dot(probs_grad, scales)


@pytest.mark.parametrize("active", [1, 3, 5])
def test_active_num_truncates_forward_rows_and_gradient_alike(backend: Any, active: int) -> None:
    """InitRoutingV2 keeps ``active`` rows but all indices; the gradient drops the indices beyond them."""
    routing, tokens = np.array([[1, 2], [0, 1], [0, 2]], I32), np.array([[1.0], [2.0], [4.0]], F32)
    x, row_idx, _, _ = aclnn_py.moe_init_routing_v2(tokens, routing, active_num=active, backend=backend)
    scales, grad = np.array([[1.0, 2], [3, 4], [5, 6]], F32), np.array([[1.0], [10], [100]], F32)
    grad_x, grad_scales = aclnn_py.moe_finalize_routing_v2_grad(
        grad, row_idx, x, scales, active_num=active, backend=backend
    )
    flat = [(t, k) for t in range(3) for k in range(2)]
    by_row = {int(row_idx[i]): i for i in range(6)}
    assert grad_x[:, 0].tolist() == [grad[flat[by_row[r]][0], 0] * scales[flat[by_row[r]]] for r in range(active)]
    expected = [[tokens[t, 0] * grad[t, 0] * (row_idx[2 * t + k] < active) for k in range(2)] for t in range(3)]
    assert grad_scales.tolist() == expected
