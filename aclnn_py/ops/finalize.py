"""MoE routing with an index per (token, slot): ``MoeInitRoutingV2``, ``MoeFinalizeRoutingV2`` and its gradient.

Shapes use R tokens (rows), K experts per token, H hidden size, E experts, C capacity. Semantics: CANN's
ops-transformer sources and operator pages, newest over oldest; see the README for what was verified.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._common import OperatorCall, Output, dim

__all__ = [
    "MoeFinalizeRoutingV2Grad",
    "MoeInitRoutingV2",
    "column_major_row_idx",
    "moe_finalize_routing_v2",
    "moe_finalize_routing_v2_grad",
    "moe_init_routing_v2",
    "row_major_row_idx",
]


class MoeFinalizeRoutingV2Grad(NamedTuple):
    """Result of ``moe_finalize_routing_v2_grad``; ``grad_scales`` is None when scales is None."""

    grad_expanded_x: Any
    grad_scales: Any


class MoeInitRoutingV2(NamedTuple):
    """Result of ``moe_init_routing_v2``; the two counts are None unless their flag asks for them."""

    expanded_x: Any
    expanded_row_idx: Any
    expert_tokens_count_or_cumsum: Any
    expert_tokens_before_capacity: Any


def _relayout(idx: Any, top_k: int, name: str, to_rows: bool) -> Any:
    # a torch tensor stays one, on its device
    array = idx if hasattr(idx, "new_empty") else np.asarray(idx)
    if array.ndim != 1 or top_k < 1 or array.shape[0] % top_k:
        raise ValueError(
            f"{name}: idx has shape {array.shape}, expected (R*K,) with K = top_k = {top_k} dividing its length"
        )
    shape = (top_k, array.shape[0] // top_k) if to_rows else (array.shape[0] // top_k, top_k)
    flat = array.reshape(shape).T.flatten()
    return flat.clone() if hasattr(flat, "clone") else flat  # torch's flatten() may be a view


def row_major_row_idx(idx: Any, top_k: int) -> Any:
    """Convert a (K, R) index, as ``MoeFinalizeRoutingV2`` modes 0 and 1 read it, to the (R, K) layout.

    The gradient, and forward modes 2 and 3, read (R, K): entry ``t * K + k`` belongs to token t, slot k. The wrong
    layout runs and gives wrong numbers.

    Parameters
    ----------
    idx
        Index of shape (K*R,); entry ``k * R + t`` belongs to token t, slot k.
    top_k
        K.

    Returns
    -------
    numpy.ndarray or torch.Tensor
        A new array of shape (R*K,), same dtype; a tensor for a tensor.

    Raises
    ------
    ValueError
        ``idx`` is not one-dimensional or its length is no multiple of ``top_k``.

    Examples
    --------
    >>> row_major_row_idx(np.array([0, 1, 2, 3, 4, 5], np.int32), 3).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return _relayout(idx, top_k, "row_major_row_idx", to_rows=True)


def column_major_row_idx(idx: Any, top_k: int) -> Any:
    """Convert an (R, K) index to the (K, R) layout of ``MoeFinalizeRoutingV2`` modes 0 and 1.

    The inverse of ``row_major_row_idx``, with the same parameters and errors.

    Examples
    --------
    >>> column_major_row_idx(np.array([0, 2, 4, 1, 3, 5], np.int32), 3).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    return _relayout(idx, top_k, "column_major_row_idx", to_rows=False)


def moe_finalize_routing_v2_grad(
    grad_y: Any,
    expanded_row_idx: Any,
    expanded_x: Any = None,
    scales: Any = None,
    expert_idx: Any = None,
    bias: Any = None,
    *,
    drop_pad_mode: int = 0,
    active_num: int = 0,
    expert_num: int = 0,
    expert_capacity: int = 0,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> MoeFinalizeRoutingV2Grad:
    """Gradients of ``MoeFinalizeRoutingV2`` for the expanded rows and the scales.

    For entry i of the index, token t = i // K, slot k = i % K, row r = expanded_row_idx[i]:
    ``grad_expanded_x[r] = grad_y[t] * scales[t, k]`` and
    ``grad_scales[t, k] = sum((expanded_x[r] + bias[expert_idx[t, k]]) * grad_y[t])``, in float32, rounded once.
    A row outside [0, M) is dropped: nothing is written for it, and its grad_scales keeps only the bias term.

    Parameters
    ----------
    grad_y
        (R, H) float32, float16 or bfloat16.
    expanded_row_idx
        (R*K,) int32 in **row-major (R, K)** order; forward modes 0 and 1 use (K, R), see ``row_major_row_idx``.
        Mode 0: [0, R*K), unique. Mode 1: [-1, E*C), only -1 (dropped) may repeat.
    expanded_x
        (M, H) in mode 0, (E, C, H) in mode 1, dtype of grad_y; needed with scales. M is R*K, or active_num when
        0 < active_num < R*K.
    scales
        (R, K), dtype of grad_y (any of the three on 950). None means K = 1 and no grad_scales; for K > 1 without
        scales pass ones.
    expert_idx
        (R, K) int32 in [0, E); needed with bias.
    bias
        (E, H), dtype of grad_y.
    drop_pad_mode
        0 (dropless, pairs with forward modes 0 and 2) or 1 (drop and pad, forward modes 1 and 3).
    active_num
        Mode 0: rows that take part; 0 means all.
    expert_num, expert_capacity
        Mode 1: E and C.
    out
        Tuple (grad_expanded_x, grad_scales) of arrays to write into, None to allocate. In mode 0, rows that no
        index names keep their content; allocated ones are zero.
    check_indices
        Refuse indices outside the documented domain (reads the data, synchronises).
    backend, stream
        See ``Executor``.

    Returns
    -------
    MoeFinalizeRoutingV2Grad
        grad_expanded_x with the shape of expanded_x, grad_scales (R, K) with the dtype of scales, or None.

    Raises
    ------
    NullptrError, InvalidParameterError, InnerNullptrError
        A missing tensor (161001), a dtype (161002), a shape or attribute (561103).
    IndexOutOfRangeError
        With check_indices, or for an expert number outside bias.
    TypeError, ValueError
        Not an array, or an unsuitable ``out``.

    Examples
    --------
    >>> grad_y = np.array([[1, 2], [3, 4]], np.float32)
    >>> idx = np.array([3, 0, 1, 2], np.int32)
    >>> x = np.arange(8, dtype=np.float32).reshape(4, 2)
    >>> scales = np.array([[0.5, 2], [1, 4]], np.float32)
    >>> grad_x, grad_scales = moe_finalize_routing_v2_grad(grad_y, idx, x, scales, backend="reference")
    >>> grad_x.tolist()
    [[2.0, 4.0], [3.0, 4.0], [12.0, 16.0], [0.5, 1.0]]
    >>> grad_scales.tolist()
    [[20.0, 2.0], [18.0, 32.0]]
    """
    call = OperatorCall(
        "aclnnMoeFinalizeRoutingV2Grad",
        backend,
        stream,
        gradY=grad_y,
        expandedRowIdx=expanded_row_idx,
        expandedXOptional=expanded_x,
        scalesOptional=scales,
        expertIdxOptional=expert_idx,
        biasOptional=bias,
        dropPadMode=drop_pad_mode,
        activeNum=active_num,
        expertNum=expert_num,
        expertCapacity=expert_capacity,
    )
    grad, index, factors = call["gradY"], call["expandedRowIdx"], call["scalesOptional"]
    entries, hidden = dim(index, 0), dim(grad, 1)
    if drop_pad_mode == 1:
        shape: tuple[int, ...] = (max(call["expertNum"], 0), max(call["expertCapacity"], 0), hidden)
        rows, lowest = shape[0] * shape[1], -1
    else:
        rows = call["activeNum"] if 0 < call["activeNum"] < entries else entries
        shape, lowest = (rows, hidden), 0
    token_dtype = np.dtype(np.float32) if grad is None else grad.dtype
    outputs = (
        Output("gradExpandedXOut", shape, token_dtype),
        # C wants the second gradient even without scales: a dummy of the token dtype then
        Output("gradScalesOut", (dim(grad, 0), 1), token_dtype, returned=False)
        if factors is None
        else Output("gradScalesOut", tuple(factors.shape), factors.dtype),
    )
    grad_x, grad_scales = call.allocate(out, *outputs)
    if check_indices:
        call.check_domain("expandedRowIdx", lowest, rows if drop_pad_mode == 1 else entries)
    if factors is not None:
        call.check_experts("biasOptional", "expertIdxOptional", check_indices)
    call.run({"gradExpandedXOut": grad_x, "gradScalesOut": grad_scales})
    return MoeFinalizeRoutingV2Grad(
        call.family.result(grad_x), None if factors is None else call.family.result(grad_scales)
    )


def moe_finalize_routing_v2(
    expanded_x: Any,
    expanded_row_idx: Any,
    x1: Any = None,
    x2: Any = None,
    bias: Any = None,
    scales: Any = None,
    expert_idx: Any = None,
    *,
    drop_pad_mode: int = 0,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> Any:
    """Combine expert rows per token: ``x1 + x2 + sum_k scales * (expanded_x[row] + bias[expert])``.

    Parameters
    ----------
    expanded_x
        (rows, H) in modes 0 and 2, (E, C, H) in modes 1 and 3; float32, float16 or bfloat16.
    expanded_row_idx
        (R*K,) int32: **(K, R) order in modes 0 and 1, (R, K) order in modes 2 and 3**. -1 (dropped) in modes 1
        and 3 skips the whole term, bias included.
    x1, x2
        (R, H) added to the result; x2 needs x1.
    bias
        (E, H), dtype of expanded_x; needs expert_idx.
    scales
        (R, K); on A2 and A3 dtype of expanded_x, or float32 with bfloat16 tokens. None means K = 1 and a factor 1.
    expert_idx
        (R, K) int32 in [0, E).
    drop_pad_mode
        0 to 3.
    out
        (R, H) array to write into.
    check_indices
        Refuse indices outside the documented domain (reads the data, synchronises).
    backend, stream
        See ``Executor``.

    Returns
    -------
    array
        (R, H), dtype of expanded_x.

    Raises
    ------
    NullptrError, InvalidParameterError, InnerNullptrError
        A missing tensor (161001), a dtype (161002), a shape or attribute (561103).
    IndexOutOfRangeError
        With check_indices, or for an expert number outside bias.

    Examples
    --------
    >>> x = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    >>> scales = np.array([[1, 10], [100, 1000]], np.float32)
    >>> idx = np.array([0, 1, 2, 3], np.int32)
    >>> moe_finalize_routing_v2(x, idx, scales=scales, drop_pad_mode=2, backend="reference").tolist()
    [[21.0], [4300.0]]
    """
    call = OperatorCall(
        "aclnnMoeFinalizeRoutingV2",
        backend,
        stream,
        expandedX=expanded_x,
        expandedRowIdx=expanded_row_idx,
        x1Optional=x1,
        x2Optional=x2,
        biasOptional=bias,
        scalesOptional=scales,
        expertIdxOptional=expert_idx,
        dropPadMode=drop_pad_mode,
    )
    x, index, factors = call["expandedX"], call["expandedRowIdx"], call["scalesOptional"]
    tokens = dim(index, 0) if factors is None else dim(factors, 0)
    hidden = x.shape[-1] if x is not None and x.shape else 0
    dtype = np.dtype(np.float32) if x is None else x.dtype
    (result,) = call.allocate(out, Output("out", (tokens, hidden), dtype))
    if check_indices:
        padded = drop_pad_mode in (1, 3)
        rows = dim(x, 0) * dim(x, 1) if padded else dim(x, 0)
        call.check_domain("expandedRowIdx", -1 if padded else 0, rows)
    call.check_experts("biasOptional", "expertIdxOptional", check_indices)
    call.run({"out": result})
    return call.family.result(result)


def moe_init_routing_v2(
    x: Any,
    expert_idx: Any,
    *,
    active_num: int = 0,
    expert_capacity: int = 0,
    expert_num: int = 0,
    drop_pad_mode: int = 0,
    expert_tokens_count_or_cumsum_flag: int = 0,
    expert_tokens_before_capacity_flag: bool = False,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> MoeInitRoutingV2:
    """Sort (token, slot) pairs by expert and expand the tokens into that order.

    Parameters
    ----------
    x
        (R, H) float32, float16 or bfloat16.
    expert_idx
        (R, K) int32, expert of each slot (950 also accepts int64 and (R,) for K = 1).
    active_num
        Mode 0: rows of expanded_x; 0 means all R*K.
    expert_capacity, expert_num
        C and E. Mode 1 needs both; E is needed for the counts.
    drop_pad_mode
        0: expanded_x is (min(active_num, R*K), H). 1: (E, C, H), slots over capacity dropped (-1), free ones zero.
    expert_tokens_count_or_cumsum_flag
        Mode 0: 1 returns the running totals per expert, 2 the counts, int32 (E,).
    expert_tokens_before_capacity_flag
        Mode 1: return the counts before dropping, int32 (E,).
    out
        Tuple of four in result order, None to allocate.
    check_indices
        Refuse expert numbers outside [0, E) (reads the data, synchronises); needs expert_num.
    backend, stream
        See ``Executor``.

    Returns
    -------
    MoeInitRoutingV2
        expanded_x; expanded_row_idx (R*K,) int32 in (R, K) order, the layout that forward modes 2 and 3 and the
        gradient read; the two counts or None.

    Raises
    ------
    NullptrError, InvalidParameterError, InnerNullptrError
        A missing tensor (161001), a dtype (161002), a shape or attribute (561103).

    Examples
    --------
    >>> x = np.array([[1.0], [2.0]], np.float32)
    >>> experts = np.array([[1, 0], [0, 1]], np.int32)
    >>> routed = moe_init_routing_v2(x, experts, backend="reference")
    >>> routed.expanded_x.ravel().tolist(), routed.expanded_row_idx.tolist()
    ([1.0, 2.0, 1.0, 2.0], [2, 0, 1, 3])
    """
    call = OperatorCall(
        "aclnnMoeInitRoutingV2",
        backend,
        stream,
        x=x,
        expertIdx=expert_idx,
        activeNumOptional=active_num,
        expertCapacityOptional=expert_capacity,
        expertNumOptional=expert_num,
        dropPadModeOptional=drop_pad_mode,
        expertTokensCountOrCumsumFlagOptional=expert_tokens_count_or_cumsum_flag,
        expertTokensBeforeCapacityFlagOptional=expert_tokens_before_capacity_flag,
    )
    tokens, experts = call["x"], call["expertIdx"]
    entries = int(np.prod(experts.shape)) if experts is not None else 0
    count = max(call["expertNumOptional"], 0)
    if drop_pad_mode == 1:
        shape: tuple[int, ...] = (count, max(call["expertCapacityOptional"], 0), dim(tokens, 1))
    else:
        active = call["activeNumOptional"]
        shape = (min(active, entries) if active > 0 else entries, dim(tokens, 1))
    int32 = np.dtype(np.int32)
    dtype = np.dtype(np.float32) if tokens is None else tokens.dtype
    with_counts = drop_pad_mode != 1 and call["expertTokensCountOrCumsumFlagOptional"] != 0
    with_before = drop_pad_mode == 1 and call["expertTokensBeforeCapacityFlagOptional"]
    # the count outputs are optional in C, but samples always pass both: dummies of the documented shape
    arrays = call.allocate(
        out,
        Output("expandedXOut", shape, dtype),
        Output("expandedRowIdxOut", (entries,), int32),
        Output("expertTokensCountOrCumsumOutOptional", (count,), int32, returned=with_counts),
        Output("expertTokensBeforeCapacityOutOptional", (count,), int32, returned=with_before),
    )
    if check_indices:
        if count == 0 and entries:
            raise ValueError(f"{call.api}: check_indices needs expert_num, the number of experts; got {expert_num}")
        call.check_domain("expertIdx", 0, count)
    call.run(
        dict(
            zip(
                (
                    "expandedXOut",
                    "expandedRowIdxOut",
                    "expertTokensCountOrCumsumOutOptional",
                    "expertTokensBeforeCapacityOutOptional",
                ),
                arrays,
                strict=True,
            )
        )
    )
    expanded, index, counts, before = map(call.family.result, arrays)
    return MoeInitRoutingV2(expanded, index, counts if with_counts else None, before if with_before else None)
