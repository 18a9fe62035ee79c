"""The producers: aclnnMoeInitRoutingV2 and aclnnMoeTokenPermuteWithEp sort slots by expert and copy their tokens.

Both sort stably, so slots of one expert keep their order; entry i of the index they give says where slot i went.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aclnn_py.reference.checks import (
    FLOATS,
    INNER_NULLPTR,
    TILING,
    WORKSPACE_COMPOSITE,
    WORKSPACE_GENERATED,
    Checks,
    range_pair,
    size,
)
from aclnn_py.reference.loops import copy_rows
from aclnn_py.reference.numerics import Index, Rows, bits, index64

_INIT = "aclnnMoeInitRoutingV2"
_PERMUTE = "aclnnMoeTokenPermuteWithEp"
_COUNTS = "expertTokensCountOrCumsumOutOptional"
_BEFORE = "expertTokensBeforeCapacityOutOptional"


def _active_rows(args: Mapping[str, Any], slots: int) -> int:
    """Give the rows of expandedX in mode 0; 950 reads a negative activeNum from the end, the others refuse it."""
    active = int(args["activeNumOptional"])
    return max(0, min(slots, active if active > 0 else active + slots))


def validate_init_v2(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeInitRoutingV2; return the workspace size."""
    checks = Checks(_INIT, args, INNER_NULLPTR)
    checks.present("x", "expertIdx", "expandedXOut", "expandedRowIdxOut")
    checks.in_list(("x",), FLOATS)
    checks.in_list(("expertIdx",), ("int32", "int64") if product == "950" else ("int32",))
    checks.like(("expandedXOut",), "x")
    checks.in_list(("expandedRowIdxOut", _COUNTS, _BEFORE), ("int32",))
    if checks.all_empty("expandedXOut", "expandedRowIdxOut", _COUNTS, _BEFORE):
        return 0
    checks.rank("x", 2)
    checks.rank("expertIdx", *((1, 2) if product == "950" else (2,)))
    tokens, width = args["x"].shape
    ids = args["expertIdx"]
    checks.need(ids.shape[0] == tokens, "expertIdx", f"shape {tuple(ids.shape)}", f"{tokens} rows, as x has")
    _check_init_attributes(checks, args, product, tokens)
    slots, experts, capacity = size(ids), args["expertNumOptional"], args["expertCapacityOptional"]
    if args["dropPadModeOptional"] == 1:
        checks.shape("expandedXOut", (experts, capacity, width), "(expertNum, expertCapacity, H)")
    else:
        checks.shape("expandedXOut", (_active_rows(args, slots), width), "(min(activeNum, R * K), or R * K; H)")
    checks.shape("expandedRowIdxOut", (slots,), "(R * K)")
    name = _counted(args)
    if name:
        checks.need(args[name] is not None, name, None, "a tensor, as its flag is set")
        checks.shape(name, (experts,), "(expertNum)")
    return WORKSPACE_COMPOSITE


def _check_init_attributes(checks: Checks, args: Mapping[str, Any], product: str, tokens: int) -> None:
    experts, capacity = args["expertNumOptional"], args["expertCapacityOptional"]
    mode, flag = args["dropPadModeOptional"], args["expertTokensCountOrCumsumFlagOptional"]
    checks.need(capacity >= 0, "expertCapacityOptional", capacity, "0 or more")
    checks.need(experts >= 0, "expertNumOptional", experts, "0 or more")
    checks.need(mode in (0, 1), "dropPadModeOptional", mode, "0 or 1")
    if mode == 1:
        checks.need(capacity > 0, "expertCapacityOptional", capacity, "a value above 0 in dropPadMode 1")
        checks.need(experts > 0, "expertNumOptional", experts, "a value above 0 in dropPadMode 1")
        checks.need(capacity <= tokens, "expertCapacityOptional", capacity, f"at most {tokens}, the rows of x")
    checks.need(flag in (0, 1, 2), "expertTokensCountOrCumsumFlagOptional", flag, "0, 1 or 2")
    checks.need(flag == 0 or experts > 0, "expertNumOptional", experts, "a value above 0, as counts are asked for")
    active = args["activeNumOptional"]
    checks.need(product == "950" or active >= 0, "activeNumOptional", active, "0 or more")


def _counted(args: Mapping[str, Any]) -> str | None:
    """Name the count output that is written: the first in mode 0, the second in mode 1, each if its flag is set."""
    if args["dropPadModeOptional"] == 1:
        return _BEFORE if args["expertTokensBeforeCapacityFlagOptional"] else None
    return _COUNTS if args["expertTokensCountOrCumsumFlagOptional"] else None


def _inverse(order: Index) -> Index:
    """Invert a permutation."""
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return place


def compute_init_v2(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeInitRoutingV2 in place."""
    out, index_out = args["expandedXOut"], args["expandedRowIdxOut"]
    name = _counted(args)
    if not out.size and not index_out.size and (name is None or not args[name].size):
        return
    ids = index64(args["expertIdx"]).reshape(-1)
    order = np.argsort(ids, kind="stable")
    place = _inverse(order)
    experts = int(args["expertNumOptional"])
    known = (ids >= 0) & (ids < experts)
    counts = np.bincount(ids[known], minlength=experts)
    if name:
        args[name][...] = (
            np.cumsum(counts) if args["expertTokensCountOrCumsumFlagOptional"] == 1 and name == _COUNTS else counts
        )
    if args["dropPadModeOptional"] == 1:
        capacity = int(args["expertCapacityOptional"])
        first = np.cumsum(counts) - counts + np.count_nonzero(ids < 0)
        rank = place - first[np.where(known, ids, 0)]
        # expert ids outside [0, expertNum) are outside the domain; they are dropped like slots beyond the capacity
        place = np.where(known & (rank < capacity), ids * capacity + rank, -1)
        out[...] = 0
    index_out[...] = place
    rows = Rows(out)
    slots_per_token = ids.size // args["x"].shape[0] if args["x"].shape[0] else 1
    # in mode 0 the index keeps places beyond activeNum; their rows do not exist
    copy_rows(
        Rows(args["x"]),
        np.arange(ids.size) // max(1, slots_per_token),
        rows,
        np.where(place < rows.count, place, -1),
    )


def _permute_range(checks: Checks, values: list[int] | None, length: int) -> tuple[int, int]:
    """Read the range of the permute operator: null and any pair of equal values mean all rows."""
    start, end = range_pair(checks, values, length)
    for at in (start, end):
        checks.need(0 <= at <= length, "rangeOptional", [start, end], f"values of 0 to {length}")
    if start == end:
        return 0, length
    checks.need(start < end, "rangeOptional", [start, end], "start <= end")
    return start, end


def validate_permute(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeTokenPermuteWithEp; return the workspace size."""
    checks = Checks(_PERMUTE, args, TILING)
    checks.present("tokens", "indices", "permuteTokensOut", "sortedIndicesOut", "permuteProbsOut")
    checks.one_of("tokens", FLOATS)
    checks.one_of("indices", ("int32", "int64"))
    for name in ("probsOptional", "permuteTokensOut", "permuteProbsOut"):
        checks.same(name, "tokens")
    checks.one_of("sortedIndicesOut", ("int32",))
    if checks.all_empty("permuteTokensOut", "sortedIndicesOut", "permuteProbsOut"):
        return 0
    checks.need(not args["paddedMode"], "paddedMode", args["paddedMode"], "False")
    checks.rank("tokens", 2)
    checks.rank("indices", 1, 2)
    tokens, width = args["tokens"].shape
    shape = tuple(args["indices"].shape)
    checks.need(shape[0] == tokens, "indices", f"shape {shape}", f"{tokens} rows, as tokens has")
    checks.shape("probsOptional", shape, "the shape of indices")
    top_k = shape[1] if len(shape) == 2 else 1
    checks.need(1 <= top_k <= 512, "indices", f"topK {top_k}", "1 to 512")
    length = size(args["indices"])
    checks.need(length < 16777215, "indices", f"{length} elements", "fewer than 16777215")
    start, end = _permute_range(checks, args["rangeOptional"], length)
    checks.shape("sortedIndicesOut", (length,), "(tokens * topK)")
    # numOutTokens has no part in it: a null range reaches tiling as {0, 0}, never as absent
    checks.shape("permuteTokensOut", (end - start, width), "(length of the range, H)")
    if args["probsOptional"] is not None:
        checks.shape("permuteProbsOut", (end - start,), "(length of the range)")
    return WORKSPACE_GENERATED


def compute_permute(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeTokenPermuteWithEp in place."""
    out, index_out, probs = args["permuteTokensOut"], args["sortedIndicesOut"], args["probsOptional"]
    if not out.size and not index_out.size and not args["permuteProbsOut"].size:
        return
    ids = index64(args["indices"]).reshape(-1)
    order = np.argsort(ids, kind="stable")
    index_out[...] = _inverse(order)
    start, end = _permute_range(Checks(_PERMUTE, args, TILING), args["rangeOptional"], ids.size)
    chosen = order[start:end]
    top_k = args["indices"].shape[1] if args["indices"].ndim == 2 else 1
    copy_rows(Rows(args["tokens"]), chosen // top_k, Rows(out), np.arange(end - start))
    if probs is not None:
        bits(args["permuteProbsOut"])[...] = bits(probs).reshape(-1)[chosen]
