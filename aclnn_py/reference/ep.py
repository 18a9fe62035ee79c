"""aclnnMoeTokenUnpermuteWithEp, its gradient, and the gradient of aclnnMoeTokenPermuteWithEp.

``sortedIndices[i]`` is where slot i (of token i // K) stands in expert order. A rank serves the positions of its
range ``[s, e)``; its row for a position is ``position - s``, with and without probs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import FLOATS, INVALID, TILING, WORKSPACE_GENERATED, Checks, range_pair, size
from .loops import copy_rows, scatter_grad, weighted_sum
from .numerics import Index, Rows, bits, float32, index64

_UNPERMUTE_GRAD = "aclnnMoeTokenUnpermuteWithEpGrad"
_UNPERMUTE = "aclnnMoeTokenUnpermuteWithEp"
_PERMUTE_GRAD = "aclnnMoeTokenPermuteWithEpGrad"
_MAX_TOPK = 512


def _grad_range(checks: Checks, values: list[int] | None, length: int) -> tuple[int, int]:
    """Normalise the range of the unpermute gradient: null and {-1, -1} mean all, -n counts from the end."""
    start, end = range_pair(checks, values, length)
    if (start, end) == (-1, -1):
        return 0, length
    start, end = (min(max(at + length if at < 0 else at, 0), length) for at in (start, end))
    checks.need(start <= end, "rangeOptional", f"{list(values or ())}, which is [{start}, {end})", "start <= end")
    return start, end


def validate_unpermute_grad(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeTokenUnpermuteWithEpGrad; return the workspace size."""
    checks = Checks(_UNPERMUTE_GRAD, args, TILING)
    checks.present("unpermutedTokensGrad", "sortedIndices", "permutedTokensGradOut", "probsGradOut")
    checks.one_of("unpermutedTokensGrad", FLOATS)
    checks.one_of("sortedIndices", ("int32",))
    checks.same("permutedTokensGradOut", "unpermutedTokensGrad")
    checks.one_of("probsGradOut", FLOATS)
    # released packages choose the kernel by probsGradOut and would misread such probs
    checks.one_of("probsOptional", FLOATS)
    checks.same("probsOptional", "probsGradOut")
    if checks.nothing_to_do("unpermutedTokensGrad", (2,), "permutedTokensGradOut", "probsGradOut"):
        return 0
    probs, permuted = args["probsOptional"], args["permutedTokensOptional"]
    checks.same("permutedTokensOptional", "unpermutedTokensGrad", TILING)
    checks.rank("unpermutedTokensGrad", 2)
    tokens, width = args["unpermutedTokensGrad"].shape
    checks.need(not args["paddedMode"], "paddedMode", args["paddedMode"], "False")
    checks.rank("sortedIndices", 1)
    checks.rank("probsOptional", 2)
    top_k = args["topkNum"] if probs is None else probs.shape[1]
    checks.need(
        1 <= top_k <= _MAX_TOPK,
        "topkNum" if probs is None else "probsOptional",
        f"topK {top_k}",
        f"1 to {_MAX_TOPK}",
    )
    checks.shape("probsOptional", (tokens, top_k), "(tokens, topK)")
    length = tokens * top_k
    checks.shape("sortedIndices", (length,), "(tokens * topK)")
    checks.need(tokens > 0 and width > 0, "unpermutedTokensGrad", f"shape {(tokens, width)}", "no empty dimension")
    checks.need(probs is None or permuted is not None, "permutedTokensOptional", None, "a tensor, as probs is given")
    start, end = _grad_range(checks, args["rangeOptional"], length)
    rows = length
    if permuted is not None:
        checks.rank("permutedTokensOptional", 2)
        rows = permuted.shape[0]
        checks.need(
            rows in (length, end - start) and permuted.shape[1] == width,
            "permutedTokensOptional",
            f"shape {tuple(permuted.shape)}",
            f"{length} rows (tokens * topK) or {end - start} (length of the range), of {width}",
        )
    checks.shape("permutedTokensGradOut", (rows, width), "(rows of permutedTokens, or tokens * topK without it; H)")
    # without probs the output is not written, and its shape is nobody's concern
    if probs is not None:
        checks.shape("probsGradOut", (tokens, top_k), "(tokens, topK)")
    return WORKSPACE_GENERATED


def compute_unpermute_grad(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeTokenUnpermuteWithEpGrad in place."""
    grad_out, probs_out, probs = args["permutedTokensGradOut"], args["probsGradOut"], args["probsOptional"]
    if not grad_out.size and not probs_out.size:
        return
    positions = index64(args["sortedIndices"])
    start, end = _grad_range(Checks(_UNPERMUTE_GRAD, args, TILING), args["rangeOptional"], positions.size)
    rows = np.where((positions >= start) & (positions < end), positions - start, -1)
    grad, out = Rows(args["unpermutedTokensGrad"]), Rows(grad_out)
    if probs is None:
        copy_rows(grad, np.arange(positions.size) // args["topkNum"], out, rows)
        return
    scatter_grad(
        grad,
        rows.reshape(probs.shape),
        float32(probs),
        Rows(args["permutedTokensOptional"]),
        None,
        out,
        bits(probs_out),
        dropped_is_zero=False,
    )


def _raw_range(checks: Checks, length: int) -> tuple[int, int]:
    """Read the range of the two summing operators.

    Their tiling takes the pair as it is: negatives and values beyond the end are not normalised, start >= end
    is empty. Null reaches it as {0, 0}, empty too; the pages mean the whole range, and so it is here.
    """
    return range_pair(checks, checks.args["rangeOptional"], length)


def _need_rows(checks: Checks, name: str, start: int, end: int, length: int) -> None:
    """Refuse a tensor with fewer rows than the range reads; the kernels would read outside it."""
    needed = min(end, length) - start if start < end and end > 0 and start < length else 0
    rows = checks.args[name].shape[0]
    checks.need(rows >= needed, name, f"{rows} rows", f"at least {needed}, as the range [{start}, {end}) reads")


def _slot_rows(positions: Index, start: int, end: int, count: int) -> Index:
    """Turn positions into rows of the permuted tensor, -1 outside the range or the tensor."""
    rows = positions - start
    return np.where((positions >= start) & (positions < end) & (rows < count), rows, -1)


def validate_unpermute(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeTokenUnpermuteWithEp; return the workspace size."""
    checks = Checks(_UNPERMUTE, args, TILING)
    checks.present("permutedTokens", "sortedIndices", "out")
    checks.one_of("permutedTokens", FLOATS)
    checks.one_of("sortedIndices", ("int32",))
    checks.same("out", "permutedTokens")
    checks.one_of("probsOptional", FLOATS)
    if checks.nothing_to_do("permutedTokens", (2,), "out"):
        return 0
    top_k, probs = args["numTopk"], args["probsOptional"]
    checks.need(top_k >= 1, "numTopk", top_k, "at least 1")
    checks.rank("permutedTokens", 2)
    checks.rank("sortedIndices", 1)
    checks.rank("probsOptional", 2)
    length = size(args["sortedIndices"])
    tokens = length // top_k
    if probs is not None:
        tokens = probs.shape[0]
        checks.need(probs.shape[1] == top_k, "probsOptional", f"{probs.shape[1]} columns", f"numTopk = {top_k}")
    checks.shape("sortedIndices", (tokens * top_k,), "(tokens * numTopk)")
    checks.need(probs is None or top_k <= _MAX_TOPK, "numTopk", top_k, f"at most {_MAX_TOPK}")
    start, end = _raw_range(checks, length)
    _need_rows(checks, "permutedTokens", start, end, length)
    checks.shape("out", (tokens, args["permutedTokens"].shape[1]), "(tokens, H)")
    return WORKSPACE_GENERATED


def compute_unpermute(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeTokenUnpermuteWithEp in place."""
    out, probs = args["out"], args["probsOptional"]
    if not out.size:
        return
    x, positions = Rows(args["permutedTokens"]), index64(args["sortedIndices"])
    start, end = _raw_range(Checks(_UNPERMUTE, args, TILING), positions.size)
    rows = _slot_rows(positions, start, end, x.count).reshape(out.shape[0], args["numTopk"])
    scales = None if probs is None else float32(probs)
    if scales is not None:
        # a weight of exactly 0 skips its row, NaN and inf included; the gradient does not
        rows[scales == 0] = -1
    weighted_sum(x, rows, scales, None, (), Rows(out))


def validate_permute_grad(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeTokenPermuteWithEpGrad; return the workspace size."""
    checks = Checks(_PERMUTE_GRAD, args, TILING)
    checks.present("permutedTokensOutputGrad", "sortedIndices", "tokenGradOut", "probsGradOut")
    checks.one_of("permutedTokensOutputGrad", FLOATS)
    checks.one_of("sortedIndices", ("int32",))
    for name in ("permutedProbsOutputGradOptional", "tokenGradOut", "probsGradOut"):
        checks.same(name, "permutedTokensOutputGrad", INVALID)
    if checks.nothing_to_do("permutedTokensOutputGrad", (2,), "tokenGradOut", "probsGradOut"):
        return 0
    top_k = args["numTopk"]
    checks.need(top_k >= 1, "numTopk", top_k, "at least 1")
    checks.rank("permutedTokensOutputGrad", 2)
    checks.rank("permutedProbsOutputGradOptional", 1)
    checks.rank("sortedIndices", 1)
    length, width = size(args["sortedIndices"]), args["permutedTokensOutputGrad"].shape[1]
    tokens = length // top_k
    checks.shape("sortedIndices", (tokens * top_k,), "(tokens * numTopk)")
    start, end = _raw_range(checks, length)
    _need_rows(checks, "permutedTokensOutputGrad", start, end, length)
    checks.shape("tokenGradOut", (tokens, width), "(tokens, H)")
    if args["permutedProbsOutputGradOptional"] is not None:
        _need_rows(checks, "permutedProbsOutputGradOptional", start, end, length)
        shape = tuple(args["probsGradOut"].shape)
        # probs of one slot a token may be 1-D in the forward, and so may their gradient
        checks.need(
            shape in ((tokens, top_k), (length,)),
            "probsGradOut",
            f"shape {shape}",
            f"{(tokens, top_k)} = (tokens, numTopk)",
        )
    return WORKSPACE_GENERATED


def compute_permute_grad(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeTokenPermuteWithEpGrad in place."""
    out, probs_out, probs = (
        args["tokenGradOut"],
        args["probsGradOut"],
        args["permutedProbsOutputGradOptional"],
    )
    if not out.size and not probs_out.size:
        return
    x, positions = Rows(args["permutedTokensOutputGrad"]), index64(args["sortedIndices"])
    start, end = _raw_range(Checks(_PERMUTE_GRAD, args, TILING), positions.size)
    rows = _slot_rows(positions, start, end, x.count).reshape(out.shape[0], args["numTopk"])
    weighted_sum(x, rows, None, None, (), Rows(out))
    if probs is not None:
        rows = _slot_rows(positions, start, end, probs.shape[0])
        grad = np.zeros(rows.shape, dtype=bits(probs).dtype)
        grad[rows >= 0] = bits(probs)[rows[rows >= 0]]
        bits(probs_out)[...] = grad.reshape(probs_out.shape)
