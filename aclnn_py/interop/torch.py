"""Differentiable operators on torch tensors, on the host and on NPUs; import it to register them with torch.

CPU tensors are served by the NumPy reference, or by the emulator where ACLNN_PY_BACKEND says so; NPU tensors in place,
on torch's current stream. The operators are ``torch.ops.aclnn_py.*``: they have shape rules for ``torch.compile``,
``torch.export`` and FakeTensor, and first derivatives. The README beside this file compares them with CANN's own torch
package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..ops import MoeFinalizeRoutingV2Grad
from . import _library as _library

__all__ = ["moe_finalize_routing", "moe_finalize_routing_grad", "moe_token_unpermute_with_ep"]


def _refuse_v4(tensors: dict[str, Any], ranges: dict[str, Sequence[int] | None]) -> None:
    given = [name for name, value in tensors.items() if value is not None]
    given += [name for name, pair in ranges.items() if pair is not None and tuple(pair) != (-1, -1)]
    if given:
        raise NotImplementedError(
            f"moe_finalize_routing: {', '.join(given)} belong to aclnnMoeFinalizeRoutingV4 (zero, copy and constant "
            "experts), for which CANN has no gradient; this function runs aclnnMoeFinalizeRoutingV2, whose gradient "
            "exists. Compute what these experts add with torch operations, and leave their slots out (index -1)"
        )


def moe_finalize_routing(
    expanded_x: Any,
    expanded_row_idx: Any,
    x1: Any = None,
    x2: Any = None,
    bias: Any = None,
    scales: Any = None,
    expert_idx: Any = None,
    *,
    drop_pad_mode: int = 0,
    k: int = 1,
    all_grads: bool = False,
    x: Any = None,
    alpha1: Any = None,
    alpha2: Any = None,
    v: Any = None,
    zero_expert_range: Sequence[int] | None = None,
    copy_expert_range: Sequence[int] | None = None,
    constant_expert_range: Sequence[int] | None = None,
) -> Any:
    """Combine expert rows per token, differentiably: ``x1 + x2 + sum_k scales * (expanded_x[row] + bias[expert])``.

    Parameters
    ----------
    expanded_x, expanded_row_idx, x1, x2, bias, scales, expert_idx, drop_pad_mode
        As in ``aclnn_py.moe_finalize_routing_v2``, as torch tensors of one device. R tokens, K slots, H hidden: the
        index is (K, R) in modes 0 and 1, (R, K) in modes 2 and 3.
    k
        K when scales is None; the scales are ones then.
    all_grads
        Compute the gradients of x1, x2 and bias as well, exactly, with torch operations. CANN has no operator for
        them: without this they are None, with a warning.
    x, alpha1, alpha2, v, zero_expert_range, copy_expert_range, constant_expert_range
        Inputs of aclnnMoeFinalizeRoutingV4, which is not differentiable; refused.

    Returns
    -------
    torch.Tensor
        (R, H), dtype of expanded_x.

    Raises
    ------
    NotImplementedError
        One of the V4 inputs.
    ValueError
        ``k`` does not fit the index or the scales.
    AclnnError
        As ``aclnn_py.moe_finalize_routing_v2``; when the operator runs, not while shapes are propagated.

    Notes
    -----
    The backward runs aclnnMoeFinalizeRoutingV2Grad, if expanded_x or scales needs a gradient. With bias, the gradient
    of a dropped slot's scale is ``sum(bias[expert] * grad_y)``, although the forward skips the slot: that is CANN's
    operator. Second derivatives raise.

    Examples
    --------
    >>> rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]], requires_grad=True)
    >>> index = torch.tensor([0, 2, 1, 3], dtype=torch.int32)  # (K, R): token 0 has rows 0 and 1
    >>> scales = torch.tensor([[1.0, 10.0], [100.0, 1000.0]])
    >>> out = moe_finalize_routing(rows, index, scales=scales)
    >>> out.tolist()
    [[21.0], [4300.0]]
    >>> out.sum().backward()
    >>> rows.grad.ravel().tolist()
    [1.0, 10.0, 100.0, 1000.0]
    """
    _refuse_v4(
        {"x": x, "alpha1": alpha1, "alpha2": alpha2, "v": v},
        {
            "zero_expert_range": zero_expert_range,
            "copy_expert_range": copy_expert_range,
            "constant_expert_range": constant_expert_range,
        },
    )
    if k < 1:
        raise ValueError(f"moe_finalize_routing: k is {k}, expected 1 or more")
    if scales is None and k > 1:
        entries = expanded_row_idx.shape[0]
        if entries % k:
            raise ValueError(
                f"moe_finalize_routing: expanded_row_idx has {entries} entries, expected a multiple of {k}"
            )
        scales = expanded_x.new_ones((entries // k, k))
    elif scales is not None and k > 1 and scales.shape[1] != k:
        raise ValueError(f"moe_finalize_routing: k is {k}, but scales has {scales.shape[1]} columns")
    return torch.ops.aclnn_py.moe_finalize_routing(
        expanded_x, expanded_row_idx, x1, x2, bias, scales, expert_idx, drop_pad_mode, all_grads
    )


def moe_finalize_routing_grad(
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
) -> MoeFinalizeRoutingV2Grad:
    """Gradients of ``moe_finalize_routing`` for the expanded rows and the scales; for use in graphs.

    The same as ``aclnn_py.moe_finalize_routing_v2_grad`` on tensors, as an operator that torch can trace.

    Parameters
    ----------
    grad_y, expanded_row_idx, expanded_x, scales, expert_idx, bias
        Tensors of one device; the index is in **(R, K)** order whatever the mode of the forward.
    drop_pad_mode, active_num, expert_num, expert_capacity
        0, or 1 with expert_num and expert_capacity.

    Returns
    -------
    MoeFinalizeRoutingV2Grad
        grad_expanded_x and grad_scales, which is None when scales is None. (``torch.ops.aclnn_py`` returns an empty
        tensor in its place.)

    Raises
    ------
    AclnnError
        As ``aclnn_py.moe_finalize_routing_v2_grad``.
    RuntimeError
        When it is differentiated in turn.

    Examples
    --------
    >>> grad_y = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> result = moe_finalize_routing_grad(grad_y, torch.tensor([1, 0], dtype=torch.int32))
    >>> result.grad_expanded_x.tolist(), result.grad_scales
    ([[3.0, 4.0], [1.0, 2.0]], None)
    """
    grad_x, grad_scales = torch.ops.aclnn_py.moe_finalize_routing_grad(
        grad_y,
        expanded_row_idx,
        expanded_x,
        scales,
        expert_idx,
        bias,
        drop_pad_mode,
        active_num,
        expert_num,
        expert_capacity,
    )
    return MoeFinalizeRoutingV2Grad(grad_x, None if scales is None else grad_scales)


def moe_token_unpermute_with_ep(
    permuted_tokens: Any,
    sorted_indices: Any,
    probs: Any = None,
    *,
    topk_num: int | None = None,
    range: Sequence[int] | None = None,
) -> Any:
    """Bring permuted tokens back and add the slots of each token, differentiably: this rank's part of the sum.

    Parameters
    ----------
    permuted_tokens, sorted_indices, probs, range
        As in ``aclnn_py.moe_token_unpermute_with_ep``, as torch tensors of one device.
    topk_num
        Slots per token; default probs.shape[1], or 1.

    Returns
    -------
    torch.Tensor
        (T, H), dtype of permuted_tokens. Over the ranks of an expert-parallel group the results add up to the whole.

    Raises
    ------
    AclnnError
        As ``aclnn_py.moe_token_unpermute_with_ep``; when the operator runs, not while shapes are propagated.

    Notes
    -----
    The backward runs aclnnMoeTokenUnpermuteWithEpGrad with the same range. A slot whose prob is exactly 0 is skipped
    by the forward and not by the gradient, which matters for rows with inf or NaN only. Second derivatives raise.

    Examples
    --------
    >>> rows = torch.tensor([[10.0], [20.0], [30.0], [40.0]])
    >>> index = torch.tensor([2, 0, 1, 3], dtype=torch.int32)
    >>> moe_token_unpermute_with_ep(rows, index, topk_num=2).tolist()
    [[40.0], [60.0]]
    >>> moe_token_unpermute_with_ep(rows[2:], index, topk_num=2, range=(2, 4)).tolist()
    [[30.0], [40.0]]
    """
    if topk_num is None:
        topk_num = 1 if probs is None else probs.shape[1]
    return torch.ops.aclnn_py.moe_token_unpermute_with_ep(permuted_tokens, sorted_indices, probs, topk_num, range)
