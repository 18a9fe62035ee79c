"""aclnnMoeFinalizeRoutingV2 and its gradient.

The gradient reads its index in (R, K) order, as forward modes 2 and 3 do; forward modes 0 and 1 read (K, R).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import errors
from .checks import FLOATS, INNER_NULLPTR, WORKSPACE_COMPOSITE, Checks, size
from .loops import BiasRows, copy_rows, scatter_grad, weighted_sum
from .numerics import Array, Index, Rows, bits, float32, index64

_GRAD = "aclnnMoeFinalizeRoutingV2Grad"
_FORWARD = "aclnnMoeFinalizeRoutingV2"


def _grad_rows(args: Mapping[str, Any], slots: int) -> int:
    """Give the number of rows of the expanded gradient."""
    if args["dropPadMode"] == 1:
        return int(args["expertNum"]) * int(args["expertCapacity"])
    active = int(args["activeNum"])
    return active if 0 < active < slots else slots


def validate_v2_grad(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeFinalizeRoutingV2Grad; return the workspace size."""
    checks = Checks(_GRAD, args, INNER_NULLPTR)
    checks.present("gradY", "expandedRowIdx", "gradExpandedXOut", "gradScalesOut")
    checks.in_list(("gradY",), FLOATS)
    checks.in_list(("expandedRowIdx",), ("int32",))
    checks.like(("expandedXOptional",), "gradY")
    checks.in_list(("scalesOptional",), FLOATS)
    checks.in_list(("expertIdxOptional",), ("int32",))
    checks.like(("biasOptional", "gradExpandedXOut"), "gradY")
    checks.in_list(("gradScalesOut",), FLOATS)
    if checks.nothing_to_do("gradY", (2,), "gradExpandedXOut", "gradScalesOut"):
        return 0
    # the kernel is chosen by the dtypes of the required tensors, empty ones included
    checks.one_of("gradY", FLOATS, INNER_NULLPTR)
    checks.one_of("expandedRowIdx", ("int32",), INNER_NULLPTR)
    checks.same("gradExpandedXOut", "gradY", INNER_NULLPTR)
    if product == "950":
        checks.one_of("gradScalesOut", FLOATS, INNER_NULLPTR)
    else:
        checks.same("gradScalesOut", "gradY", INNER_NULLPTR)
    _check_v2_grad_shapes(checks, args, product)
    return WORKSPACE_COMPOSITE


def _check_v2_grad_shapes(checks: Checks, args: Mapping[str, Any], product: str) -> None:
    scales, bias = args["scalesOptional"], args["biasOptional"]
    mode = args["dropPadMode"]
    if scales is not None:
        checks.need(args["expandedXOptional"] is not None, "expandedXOptional", None, "a tensor, as scales is given")
        checks.need(
            bias is None or args["expertIdxOptional"] is not None,
            "expertIdxOptional",
            None,
            "a tensor, as bias is given",
        )
    checks.need(mode in (0, 1), "dropPadMode", mode, "0 or 1")
    if mode == 1:
        for name in ("expertNum", "expertCapacity"):
            checks.need(args[name] > 0, name, args[name], "a value above 0 in dropPadMode 1")
    checks.rank("gradY", 2)
    checks.rank("expandedRowIdx", 0, 1)
    tokens, width = args["gradY"].shape
    slots = size(args["expandedRowIdx"])
    rows = _grad_rows(args, slots)
    if scales is None:
        checks.need(
            tokens == slots,
            "gradY",
            f"{tokens} rows",
            f"{slots}, one per entry of expandedRowIdx (K is 1 without scales)",
        )
    else:
        _check_v2_grad_scaled(checks, args, product, slots, rows)
    if mode == 0:
        checks.shape("gradExpandedXOut", (rows, width), "(rows, H)")
    else:
        _check_padded(checks, "gradExpandedXOut", rows, width)
    if scales is not None:
        _check_slots(checks, "gradScalesOut", tokens, slots)
        checks.same("gradScalesOut", "scalesOptional", INNER_NULLPTR)


def _check_v2_grad_scaled(checks: Checks, args: Mapping[str, Any], product: str, slots: int, rows: int) -> None:
    tokens, width = args["gradY"].shape
    bias = args["biasOptional"]
    checks.rank("expandedXOptional", 3 if args["dropPadMode"] == 1 else 2)
    checks.rank("scalesOptional", 2)
    if args["dropPadMode"] == 1:
        _check_padded(checks, "expandedXOptional", rows, width)
    else:
        checks.shape("expandedXOptional", (rows, width), "(rows, H)")
    _check_slots(checks, "scalesOptional", tokens, slots)
    if bias is not None:
        _check_slots(checks, "expertIdxOptional", tokens, slots)
        checks.rank("biasOptional", 2)
        experts = bias.shape[0]
        checks.need(experts > 0, "biasOptional", "0 rows", "a row per expert")
        checks.need(
            args["dropPadMode"] == 0 or experts == args["expertNum"],
            "biasOptional",
            f"{experts} rows",
            f"expertNum = {args['expertNum']}",
        )
        checks.shape("biasOptional", (experts, width), "(E, H)")
    if product == "950":
        checks.one_of("scalesOptional", FLOATS, INNER_NULLPTR)
    else:
        checks.same("scalesOptional", "gradY", INNER_NULLPTR)
    checks.same("expandedXOptional", "gradY", INNER_NULLPTR)
    if bias is not None:
        checks.one_of("expertIdxOptional", ("int32",), INNER_NULLPTR)
        checks.same("biasOptional", "gradY", INNER_NULLPTR)


def _check_padded(checks: Checks, name: str, rows: int, width: int) -> None:
    """Check an (E, C, H) tensor; only the product E * C is looked at."""
    checks.rank(name, 3)
    shape = tuple(checks.args[name].shape)
    checks.need(
        shape[0] * shape[1] == rows and shape[2] == width,
        name,
        f"shape {shape}",
        f"expertNum * expertCapacity = {rows} rows of {width}",
    )


def _check_slots(checks: Checks, name: str, tokens: int, slots: int) -> None:
    """Check a (R, K) tensor against R and R * K."""
    checks.rank(name, 2)
    shape = tuple(checks.args[name].shape)
    checks.need(
        shape[0] == tokens and shape[0] * shape[1] == slots,
        name,
        f"shape {shape}",
        f"{tokens} rows and {slots} elements, as gradY and expandedRowIdx have",
    )


def check_experts(api: str, experts: Index, kept: Array | None, count: int) -> None:
    """Refuse the first expert index outside bias; ``kept`` limits the test to the slots that are read."""
    bad = (experts < 0) | (experts >= count)
    if kept is not None:
        bad &= kept
    if bad.any():
        token, slot = np.argwhere(bad)[0]
        raise errors.IndexOutOfRangeError(
            161002,
            api,
            "run",
            f"expertIdxOptional[{token}, {slot}]: got {experts[token, slot]}, expected 0 to {count - 1}, a row of bias",
        )


def compute_v2_grad(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeFinalizeRoutingV2Grad in place."""
    grad_x, grad_scales = args["gradExpandedXOut"], args["gradScalesOut"]
    if not grad_x.size and not grad_scales.size:
        return
    index = index64(args["expandedRowIdx"]).reshape(-1)
    rows = _grad_rows(args, index.size)
    index[(index < 0) | (index >= rows)] = -1
    scales, bias = args["scalesOptional"], args["biasOptional"]
    with_bias = None
    if scales is not None and bias is not None:
        experts = index64(args["expertIdxOptional"]).reshape(scales.shape)
        check_experts(_GRAD, experts, None, bias.shape[0])
        with_bias = BiasRows(bias, experts)
    out, grad = Rows(grad_x), Rows(args["gradY"])
    # mode 1 clears the padding; mode 0 leaves rows that no index names as they were
    if args["dropPadMode"] == 1:
        out.fill_zero()
    if scales is None:
        copy_rows(grad, np.arange(index.size), out, index)
        return
    scatter_grad(
        grad,
        index.reshape(scales.shape),
        float32(scales),
        Rows(args["expandedXOptional"]),
        with_bias,
        out,
        bits(grad_scales),
        dropped_is_zero=True,
    )


def validate_v2(args: Mapping[str, Any], product: str) -> int:
    """Check the arguments of aclnnMoeFinalizeRoutingV2; return the workspace size."""
    checks = Checks(_FORWARD, args, INNER_NULLPTR)
    # A2 and A3 packages skip these two groups and crash or misread; hosts refuse on every product
    checks.present("expandedX", "expandedRowIdx", "out")
    checks.in_list(("expandedX",), FLOATS)
    checks.in_list(("expandedRowIdx",), ("int32",))
    checks.like(("x1Optional", "x2Optional", "biasOptional"), "expandedX")
    checks.in_list(("scalesOptional",), FLOATS)
    checks.in_list(("expertIdxOptional",), ("int32",))
    checks.like(("out",), "expandedX")
    if checks.nothing_to_do("expandedX", (2, 3), "out"):
        return 0
    mode = args["dropPadMode"]
    checks.need(mode in (0, 1, 2, 3), "dropPadMode", mode, "0, 1, 2 or 3")
    checks.rank("expandedRowIdx", 1)
    checks.rank("scalesOptional", 2)
    scales, bias = args["scalesOptional"], args["biasOptional"]
    slots = 1 if scales is None else scales.shape[1]
    checks.need(slots > 0, "scalesOptional", "K = 0", "at least one slot a token")
    checks.rank("expandedX", 3 if mode % 2 else 2)
    total, width = size(args["expandedRowIdx"]), args["expandedX"].shape[-1]
    tokens = total // slots
    checks.need(total == tokens * slots, "expandedRowIdx", f"{total} elements", f"a multiple of K = {slots}")
    # 950 takes any number of rows, in the other modes all products do
    if product != "950" and mode in (0, 2):
        checks.shape("expandedX", (total, width), "(R * K, H)")
    checks.shape("x1Optional", (tokens, width), "(R, H)")
    checks.need(
        args["x2Optional"] is None or args["x1Optional"] is not None,
        "x1Optional",
        None,
        "a tensor, as x2 is given",
    )
    checks.shape("x2Optional", (tokens, width), "(R, H)")
    if bias is not None:
        checks.need(args["expertIdxOptional"] is not None, "expertIdxOptional", None, "a tensor, as bias is given")
        checks.rank("biasOptional", 2)
        experts = args["expandedX"].shape[0] if mode % 2 else bias.shape[0]
        checks.shape("biasOptional", (experts, width), "(E, H)")
        checks.need(experts >= slots, "biasOptional", f"{experts} rows", f"at least K = {slots}")
    checks.shape("expertIdxOptional", (tokens, slots), "(R, K)")
    checks.shape("scalesOptional", (tokens, slots), "(R, K)")
    checks.shape("out", (tokens, width), "(R, H)")
    if scales is not None and product != "950" and _mixed(args["expandedX"], scales):
        checks.same("scalesOptional", "expandedX", INNER_NULLPTR)
    return WORKSPACE_COMPOSITE


def _mixed(tokens: Any, scales: Any) -> bool:
    """Tell whether this is another pair than bfloat16 with float32 scales, the one A2 and A3 can mix."""
    return (tokens.dtype.name, scales.dtype.name) != ("bfloat16", "float32")


def compute_v2(args: Mapping[str, Any], product: str) -> None:
    """Compute aclnnMoeFinalizeRoutingV2 in place."""
    out = args["out"]
    if not out.size:
        return
    scales, bias = args["scalesOptional"], args["biasOptional"]
    tokens, slots = out.shape[0], 1 if scales is None else scales.shape[1]
    index = index64(args["expandedRowIdx"])
    index = index.reshape(slots, tokens).T if args["dropPadMode"] < 2 else index.reshape(tokens, slots)
    x = Rows(args["expandedX"])
    # a dropped slot loses its whole term, bias included; on A2 and A3 an index outside the domain of modes 0 and 2
    # gives stale data, here every mode drops it, as 950 does
    index = np.where((index >= 0) & (index < x.count), index, -1)
    with_bias = None
    if bias is not None:
        experts = index64(args["expertIdxOptional"])
        check_experts(_FORWARD, experts, index >= 0, bias.shape[0])
        with_bias = BiasRows(bias, np.where(index >= 0, experts, 0))
    start = tuple(Rows(args[name]) for name in ("x1Optional", "x2Optional") if args[name] is not None)
    weighted_sum(x, index, None if scales is None else float32(scales), with_bias, start, Rows(out))
