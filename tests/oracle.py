"""What the seven operators must give, by plain loops in float64: written to be read, not to be fast.

Each function takes the arguments of the C call by name (NumPy arrays, ints, bools, lists) and returns
``{output name: Expected}``. Nothing here is shared with the package under test.

fp32 products are exact in float64, so one rounding to fp32 gives what an fp32 multiplication gives, and
sums carry their own allowance for the order of summation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Args = Mapping[str, Any]

#: fp32 summation in any order: 2^-20 of the sum of magnitudes, as documented for these operators.
SUM_SLACK = 2.0**-20
#: one fp32 denormal step for each term: products may underflow.
TINY = 2.0**-149


class Expected(NamedTuple):
    """One output: its value, where it is written, and how far a correct sum may be off before rounding."""

    value: np.ndarray  # the final bits (slack None) or the exact value in float64
    written: np.ndarray  # bool, shape of the output; False keeps what the buffer held
    slack: np.ndarray | None = None


def to_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round float64 values as the kernels do: the fp32 result, then once to the output type."""
    with np.errstate(all="ignore"):
        return np.asarray(values, np.float64).astype(np.float32).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    """Exact float64 copy."""
    with np.errstate(all="ignore"):
        return np.array(np.asarray(array).astype(np.float32), np.float64)


def untouched(out: np.ndarray) -> Expected:
    return Expected(np.zeros(out.shape, out.dtype), np.zeros(out.shape, bool))


def normalise_range(pair: Any, n: int) -> tuple[int, int]:
    """(start, end) inside [0, n]: None and (-1, -1) mean everything, negatives wrap once, then clamp.

    That is the rule of the un-permute gradient. The other three take a pair literally, and are only called here with
    pairs that it leaves alone.
    """
    if pair is None or list(pair) == [-1, -1]:
        return 0, n
    start, end = (min(max(v + n if v < 0 else v, 0), n) for v in pair)
    return start, end


def finalize_routing_grad(args: Args) -> dict[str, Expected]:
    grad_y, row_idx = args["gradY"], args["expandedRowIdx"]
    expanded_x, scales = args["expandedXOptional"], args["scalesOptional"]
    expert_idx, bias = args["expertIdxOptional"], args["biasOptional"]
    out_x, out_scales = args["gradExpandedXOut"], args["gradScalesOut"]
    rk, hidden = row_idx.shape[0], grad_y.shape[1]
    k = scales.shape[1] if scales is not None else 1
    rows = rk
    if args["dropPadMode"] == 0 and 0 < args["activeNum"] < rk:
        rows = args["activeNum"]
    if args["dropPadMode"] == 1:
        rows = args["expertNum"] * args["expertCapacity"]

    value = np.zeros((rows, hidden), out_x.dtype)
    written = np.full((rows, hidden), args["dropPadMode"] == 1)  # mode 1 is zero-filled first
    sums, slack = np.zeros(out_scales.shape), np.zeros(out_scales.shape)
    x_rows = None if expanded_x is None else wide(expanded_x).reshape(rows, hidden)
    with np.errstate(all="ignore"):
        for i in range(rk):
            t, slot, r = i // k, i % k, int(row_idx[i])
            valid = 0 <= r < rows
            if scales is None:
                if valid:
                    value[r], written[r] = grad_y[t], True
                continue
            g = wide(grad_y[t])
            if valid:
                value[r] = to_dtype(g * float(scales[t, slot]), out_x.dtype)
                written[r] = True
            a = np.zeros(hidden)
            if valid:
                a = a + x_rows[r]
            if bias is not None:
                a = a + wide(bias[expert_idx[t, slot]])
            if valid or bias is not None:  # otherwise literally zero, even when g holds NaN
                sums[t, slot] = np.sum(a * g)
                slack[t, slot] = SUM_SLACK * np.sum(np.abs(a * g)) + hidden * TINY
    grad_scales = untouched(out_scales)
    if scales is not None:
        grad_scales = Expected(sums, np.ones(sums.shape, bool), slack)
    return {
        "gradExpandedXOut": Expected(value.reshape(out_x.shape), written.reshape(out_x.shape)),
        "gradScalesOut": grad_scales,
    }


def token_unpermute_grad(args: Args) -> dict[str, Expected]:
    grad, indices = args["unpermutedTokensGrad"], args["sortedIndices"]
    permuted, probs = args["permutedTokensOptional"], args["probsOptional"]
    out_tokens, out_probs = args["permutedTokensGradOut"], args["probsGradOut"]
    n, hidden = indices.shape[0], grad.shape[1]
    topk = probs.shape[1] if probs is not None else args["topkNum"]
    start, end = normalise_range(args["rangeOptional"], n)

    value, written = np.zeros(out_tokens.shape, out_tokens.dtype), np.zeros(out_tokens.shape, bool)
    sums, slack = np.zeros(out_probs.shape), np.zeros(out_probs.shape)
    with np.errstate(all="ignore"):
        for i in range(n):
            t, slot, q = i // topk, i % topk, int(indices[i])
            ok = start <= q < end
            if probs is None:
                if ok:
                    value[q - start], written[q - start] = grad[t], True
                continue
            g = wide(grad[t])
            x = wide(permuted[q - start]) if ok else np.zeros(hidden)
            sums[t, slot] = np.sum(x * g)  # 0 * inf is really evaluated when not ok
            slack[t, slot] = SUM_SLACK * np.sum(np.abs(x * g)) + hidden * TINY
            if ok:
                value[q - start] = to_dtype(g * float(probs[t, slot]), out_tokens.dtype)
                written[q - start] = True
    probs_grad = untouched(out_probs)
    if probs is not None:
        probs_grad = Expected(sums, np.ones(sums.shape, bool), slack)
    return {"permutedTokensGradOut": Expected(value, written), "probsGradOut": probs_grad}


def finalize_routing(args: Args) -> dict[str, Expected]:
    expanded_x, row_idx = args["expandedX"], args["expandedRowIdx"]
    bias, scales, expert_idx = args["biasOptional"], args["scalesOptional"], args["expertIdxOptional"]
    _out, mode = args["out"], args["dropPadMode"]
    hidden = expanded_x.shape[-1]
    x_rows = wide(expanded_x).reshape(-1, hidden)
    k = scales.shape[1] if scales is not None else 1
    tokens = row_idx.shape[0] // k
    sums, slack = np.zeros((tokens, hidden)), np.zeros((tokens, hidden))
    with np.errstate(all="ignore"):
        for t in range(tokens):
            for name in ("x1Optional", "x2Optional"):
                if args[name] is not None:
                    sums[t] += wide(args[name][t])
                    slack[t] += np.abs(wide(args[name][t]))
            for slot in range(k):
                r = int(row_idx[slot * tokens + t] if mode in (0, 1) else row_idx[t * k + slot])
                if not 0 <= r < x_rows.shape[0]:
                    continue  # dropped: the whole term goes, bias included
                s = 1.0 if scales is None else float(scales[t, slot])
                a, size = x_rows[r], np.abs(x_rows[r])
                if bias is not None:
                    b = wide(bias[expert_idx[t, slot]])
                    a, size = a + b, size + np.abs(b)
                sums[t] += s * a
                slack[t] += np.abs(s) * size
    return {"out": Expected(sums, np.ones(sums.shape, bool), SUM_SLACK * slack + (2 * k + 2) * TINY)}


def token_unpermute(args: Args) -> dict[str, Expected]:
    permuted, indices, probs = args["permutedTokens"], args["sortedIndices"], args["probsOptional"]
    topk = probs.shape[1] if probs is not None else args["numTopk"]
    n, hidden = indices.shape[0], permuted.shape[1]
    start, end = normalise_range(args["rangeOptional"], n)
    sums, slack = np.zeros((n // topk, hidden)), np.zeros((n // topk, hidden))
    with np.errstate(all="ignore"):
        for i in range(n):
            t, slot, q = i // topk, i % topk, int(indices[i])
            p = 1.0 if probs is None else float(probs[t, slot])
            if not start <= q < end or p == 0:
                continue  # a weight of exactly zero skips the term, so 0 * inf adds nothing
            term = p * wide(permuted[q - start])
            sums[t] += term
            slack[t] += np.abs(term)
    return {"out": Expected(sums, np.ones(sums.shape, bool), SUM_SLACK * slack + topk * TINY)}


def token_permute(args: Args) -> dict[str, Expected]:
    tokens, indices, probs = args["tokens"], args["indices"], args["probsOptional"]
    out_tokens, out_probs = args["permuteTokensOut"], args["permuteProbsOut"]
    flat = [int(e) for e in np.ravel(indices)]
    topk = indices.shape[1] if indices.ndim == 2 else 1
    start, end = normalise_range(args["rangeOptional"], len(flat))
    order = sorted(range(len(flat)), key=lambda i: flat[i])  # stable
    where = np.zeros(len(flat), np.int32)
    value, prob_value = np.zeros(out_tokens.shape, out_tokens.dtype), np.zeros(out_probs.shape, out_probs.dtype)
    for p, i in enumerate(order):
        where[i] = p
        if start <= p < end:
            value[p - start] = tokens[i // topk]
            if probs is not None:
                prob_value[p - start] = np.ravel(probs)[i]
    result = {
        "permuteTokensOut": Expected(value, np.ones(value.shape, bool)),
        "sortedIndicesOut": Expected(where, np.ones(where.shape, bool)),
        "permuteProbsOut": untouched(out_probs),
    }
    if probs is not None:
        result["permuteProbsOut"] = Expected(prob_value, np.ones(prob_value.shape, bool))
    return result


def token_permute_grad(args: Args) -> dict[str, Expected]:
    grad, indices = args["permutedTokensOutputGrad"], args["sortedIndices"]
    probs_in, out_probs = args["permutedProbsOutputGradOptional"], args["probsGradOut"]
    n, topk, hidden = indices.shape[0], args["numTopk"], grad.shape[1]
    start, end = normalise_range(args["rangeOptional"], n)
    sums, slack = np.zeros((n // topk, hidden)), np.zeros((n // topk, hidden))
    prob_value = np.zeros(out_probs.shape, out_probs.dtype)
    with np.errstate(all="ignore"):
        for i in range(n):
            t, slot, q = i // topk, i % topk, int(indices[i])
            if start <= q < end:
                sums[t] += wide(grad[q - start])
                slack[t] += np.abs(wide(grad[q - start]))
                if probs_in is not None:
                    prob_value[t, slot] = probs_in[q - start]
    probs_grad = untouched(out_probs)
    if probs_in is not None:
        probs_grad = Expected(prob_value, np.ones(prob_value.shape, bool))
    return {
        "tokenGradOut": Expected(sums, np.ones(sums.shape, bool), SUM_SLACK * slack + topk * TINY),
        "probsGradOut": probs_grad,
    }


def init_routing(args: Args) -> dict[str, Expected]:
    x, expert_idx, out_x = args["x"], args["expertIdx"], args["expandedXOut"]
    experts, capacity = args["expertNumOptional"], args["expertCapacityOptional"]
    drop = args["dropPadModeOptional"] == 1
    k = expert_idx.shape[1] if expert_idx.ndim == 2 else 1
    flat = [int(e) for e in np.ravel(expert_idx)]
    hidden, rows = x.shape[1], int(np.prod(out_x.shape[:-1]))
    value, row_idx = np.zeros((rows, hidden), out_x.dtype), np.zeros(len(flat), np.int32)
    seen: dict[int, int] = {}
    for p, i in enumerate(sorted(range(len(flat)), key=lambda i: flat[i])):
        expert = flat[i]
        rank = seen.get(expert, 0)
        seen[expert] = rank + 1
        slot = p
        if drop:
            slot = expert * capacity + rank if rank < capacity else -1
        row_idx[i] = slot
        if 0 <= slot < rows:
            value[slot] = x[i // k]
    counts = np.array([seen.get(e, 0) for e in range(experts)], np.int32)
    result = {
        "expandedXOut": Expected(value.reshape(out_x.shape), np.ones(out_x.shape, bool)),
        "expandedRowIdxOut": Expected(row_idx, np.ones(row_idx.shape, bool)),
    }
    flag = args["expertTokensCountOrCumsumFlagOptional"]
    for name, wanted, data in (
        ("expertTokensCountOrCumsumOutOptional", not drop and flag != 0, counts.cumsum() if flag == 1 else counts),
        ("expertTokensBeforeCapacityOutOptional", drop and args["expertTokensBeforeCapacityFlagOptional"], counts),
    ):
        out = args[name]
        if out is not None:
            result[name] = Expected(data.astype(np.int32), np.ones(out.shape, bool)) if wanted else untouched(out)
    return result


ORACLES: dict[str, Callable[[Args], dict[str, Expected]]] = {
    "aclnnMoeFinalizeRoutingV2Grad": finalize_routing_grad,
    "aclnnMoeTokenUnpermuteWithEpGrad": token_unpermute_grad,
    "aclnnMoeFinalizeRoutingV2": finalize_routing,
    "aclnnMoeTokenUnpermuteWithEp": token_unpermute,
    "aclnnMoeTokenPermuteWithEp": token_permute,
    "aclnnMoeTokenPermuteWithEpGrad": token_permute_grad,
    "aclnnMoeInitRoutingV2": init_routing,
}


def expect(op: str, args: Args) -> dict[str, Expected]:
    """Expected outputs of one call. Evaluate it before the call: the outputs in ``args`` give shapes only."""
    return ORACLES[op](args)


def same_bits(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Elementwise equality of bit patterns (so -0.0 differs from 0.0 and a NaN equals itself)."""
    assert left.dtype == right.dtype and left.shape == right.shape, (left.dtype, right.dtype, left.shape, right.shape)
    word = np.dtype(f"u{left.dtype.itemsize}")
    as_words = (np.ascontiguousarray(a).reshape(-1).view(word).reshape(a.shape) for a in (left, right))
    return np.equal(*as_words)


def mismatches(actual: np.ndarray, expected: Expected, prefill: np.ndarray) -> np.ndarray:
    """Positions where ``actual`` is wrong. ``prefill`` is what the buffer held before the call.

    Sums compare as values: anything from round(exact - slack) to round(exact + slack), infinities only with
    themselves, NaN with NaN, and a zero of either sign. Everything else compares bit by bit, NaN with NaN.
    """
    keep = ~expected.written
    wrong = keep & ~same_bits(actual, prefill)
    if expected.slack is None:
        right = same_bits(actual, expected.value.astype(actual.dtype))
        if actual.dtype.kind not in "iu":
            right |= np.isnan(wide(actual)) & np.isnan(wide(expected.value))
        return wrong | (expected.written & ~right)
    with np.errstate(all="ignore"):
        exact = expected.value
        slack = np.where(np.isfinite(exact) & np.isfinite(expected.slack), expected.slack, 0.0)
        low, high = (wide(to_dtype(exact + side * slack, actual.dtype)) for side in (-1, 1))
        got = wide(actual)
        right = ((low <= got) & (got <= high)) | (np.isnan(got) & np.isnan(exact))
    return wrong | (expected.written & ~right)
