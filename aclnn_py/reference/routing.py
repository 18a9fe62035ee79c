"""aclnnMoeInitRoutingV2 and aclnnMoeTokenPermuteWithEp: sort slots by expert and copy their tokens.

The sort is stable: slots of one expert keep their order. Entry i of the index they give says where slot i went.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import (
    FLOATS,
    INNER_NULLPTR,
    TILING,
    WORKSPACE_COMPOSITE,
    WORKSPACE_GENERATED,
    Checks,
    range_pair,
    size,
)
from .loops import copy_rows
from .numerics import Index, Rows, bits, index64

_INIT = "aclnnMoeInitRoutingV2"
_PERMUTE = "aclnnMoeTokenPermuteWithEp"
_COUNTS = "expertTokensCountOrCumsumOutOptional"
_BEFORE = "expertTokensBeforeCapacityOutOptional"


def _active_rows(args: Mapping[str, Any], slots: int) -> int:
    """Give the rows of expandedX in mode 0; 950 counts a negative activeNum from the end, others refuse it."""
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
    if checks.nothing_to_do("x", (2,), "expandedXOut", "expandedRowIdxOut", _COUNTS, _BEFORE):
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
    """Name the count output that is written: one belongs to each mode, and has a flag."""
    if args["dropPadModeOptional"] == 1:
        return _BEFORE if args["expertTokensBeforeCapacityFlagOptional"] else None
    return _COUNTS if args["expertTokensCountOrCumsumFlagOptional"] else None


def _slots(index: Any) -> int:
    """Give the slots of a token; an index of one dimension has one."""
    return int(index.shape[1]) if len(index.shape) == 2 else 1


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
        running = name == _COUNTS and args["expertTokensCountOrCumsumFlagOptional"] == 1
        args[name][...] = np.cumsum(counts) if running else counts
    if args["dropPadModeOptional"] == 1:
        capacity = int(args["expertCapacityOptional"])
        first = np.cumsum(counts) - counts + np.count_nonzero(ids < 0)
        rank = place - first[np.where(known, ids, 0)]
        # ids outside [0, expertNum) are not in the domain; they are dropped like slots beyond the capacity
        place = np.where(known & (rank < capacity), ids * capacity + rank, -1)
        out[...] = 0
    index_out[...] = place
    # in mode 0 the index keeps places beyond activeNum; there are no rows for them
    rows = Rows(out)
    tokens = np.arange(ids.size) // _slots(args["expertIdx"])
    copy_rows(Rows(args["x"]), tokens, rows, np.where(place < rows.count, place, -1))


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
    if checks.nothing_to_do("tokens", (2,), "permuteTokensOut", "sortedIndicesOut", "permuteProbsOut"):
        return 0
    checks.need(not args["paddedMode"], "paddedMode", args["paddedMode"], "False")
    checks.rank("tokens", 2)
    checks.rank("indices", 1, 2)
    tokens, width = args["tokens"].shape
    shape = tuple(args["indices"].shape)
    checks.need(shape[0] == tokens, "indices", f"shape {shape}", f"{tokens} rows, as tokens has")
    checks.shape("probsOptional", shape, "the shape of indices")
    top_k = _slots(args["indices"])
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
    copy_rows(Rows(args["tokens"]), chosen // _slots(args["indices"]), Rows(out), np.arange(end - start))
    if probs is not None:
        bits(args["permuteProbsOut"])[...] = bits(probs).reshape(-1)[chosen]
