"""The operators in ``torch.library``: schemas, implementations, shapes and gradients, under ``torch.ops.aclnn_py``.

One implementation serves every device: the operators themselves look at where the tensors are. The schemas allow no
optional result, so a gradient that does not exist is an empty tensor here.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, NoReturn

import torch

from ..ops import finalize, unpermute

_NO_GRADIENT = (
    "the gradients of x1, x2 and bias do not exist in CANN and will be None: pass all_grads=True to compute them with "
    "torch operations, or add x1 and x2 outside of the operator"
)


def _backend(tensor: Any) -> str | None:
    """Return what serves a tensor: its NPU, or on the host the reference unless the emulator is asked for."""
    if tensor.device.type == "npu":
        return None
    return "emulator" if os.environ.get("ACLNN_PY_BACKEND") == "emulator" else "reference"


def _twice(ctx: Any, *grads: Any) -> NoReturn:
    raise RuntimeError(
        "double backward: CANN has no operator for the gradient of a gradient of MoeFinalizeRoutingV2 or "
        "MoeTokenUnpermuteWithEp; write the layer with torch operations where second derivatives are needed"
    )


_ROWS = torch.contiguous_format


def _second(result: Any, like: Any) -> tuple[Any, Any]:
    first, second = result
    return first, like.new_empty(0) if second is None else second


# -- MoeFinalizeRoutingV2


def _finalize(
    expanded_x: Any,
    expanded_row_idx: Any,
    x1: Any,
    x2: Any,
    bias: Any,
    scales: Any,
    expert_idx: Any,
    drop_pad_mode: int,
    all_grads: bool,
) -> Any:
    """Run aclnnMoeFinalizeRoutingV2."""
    return finalize.moe_finalize_routing_v2(
        expanded_x,
        expanded_row_idx,
        x1,
        x2,
        bias,
        scales,
        expert_idx,
        drop_pad_mode=drop_pad_mode,
        backend=_backend(expanded_x),
    )


def _finalize_fake(
    expanded_x: Any,
    expanded_row_idx: Any,
    x1: Any,
    x2: Any,
    bias: Any,
    scales: Any,
    expert_idx: Any,
    drop_pad_mode: int,
    all_grads: bool,
) -> Any:
    tokens = expanded_row_idx.shape[0] if scales is None else scales.shape[0]
    return expanded_x.new_empty((tokens, expanded_x.shape[-1]))


def _finalize_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    expanded_x, index, _, _, bias, scales, expert_idx, ctx.mode, ctx.all_grads = inputs
    ctx.shape = expanded_x.shape
    ctx.save_for_backward(None if scales is None else expanded_x, index, bias, scales, expert_idx)


def _finalize_backward(ctx: Any, grad_y: Any) -> tuple[Any, ...]:
    expanded_x, index, bias, scales, expert_idx = ctx.saved_tensors
    wants_x, _, wants_x1, wants_x2, wants_bias, wants_scales, *_ = ctx.needs_input_grad
    # the gradient of a sum has strides of 0, which CANN may refuse
    grad_y = grad_y.contiguous()
    slots = 1 if scales is None else scales.shape[1]
    if ctx.mode < 2 and slots > 1:  # the gradient reads (R, K), as modes 2 and 3 do
        index = index.reshape(slots, -1).t().reshape(-1)
    grad_x = grad_scales = grad_x1 = grad_x2 = grad_bias = None
    if wants_x or wants_scales:
        grad_x, grad_scales = _routed_grad(ctx, grad_y, index, expanded_x, scales, expert_idx, bias)
    if (wants_x1 or wants_x2 or wants_bias) and not ctx.all_grads:
        warnings.warn(_NO_GRADIENT, UserWarning, stacklevel=1)
    elif ctx.all_grads:
        grad_x1, grad_x2 = (grad_y if wants else None for wants in (wants_x1, wants_x2))
        grad_bias = _bias_grad(ctx, grad_y, index, bias, scales, expert_idx) if wants_bias else None
    return (
        grad_x if wants_x else None,
        None,
        grad_x1,
        grad_x2,
        grad_bias,
        grad_scales if wants_scales else None,
        None,
        None,
        None,
    )


def _routed_grad(
    ctx: Any, grad_y: Any, index: Any, expanded_x: Any, scales: Any, expert_idx: Any, bias: Any
) -> tuple[Any, Any]:
    sizes = (0, ctx.shape[0], ctx.shape[1]) if ctx.mode % 2 else (ctx.shape[0], 0, 0)
    mixed = scales is not None and scales.dtype != grad_y.dtype
    tensors = [grad_y, expanded_x, scales, bias]
    if mixed:  # bfloat16 tokens with float32 scales: the gradient takes one dtype, and float32 holds both
        tensors = [None if tensor is None else tensor.float() for tensor in tensors]
    grad, rows, factors, offsets = tensors
    grad_x, grad_scales = torch.ops.aclnn_py.moe_finalize_routing_grad(
        grad, index, rows, factors, expert_idx, offsets, ctx.mode % 2, *sizes
    )
    return (grad_x.to(grad_y.dtype), grad_scales.to(scales.dtype)) if mixed else (grad_x, grad_scales)


def _bias_grad(ctx: Any, grad_y: Any, index: Any, bias: Any, scales: Any, expert_idx: Any) -> Any:
    """Sum grad_y per expert, weighted by the scales of the slots that the forward did not drop."""
    rows = ctx.shape[0] * ctx.shape[1] if ctx.mode % 2 else ctx.shape[0]
    index = index.reshape(expert_idx.shape)
    kept = (index >= 0) & (index < rows)
    weights = kept.float() if scales is None else torch.where(kept, scales.float(), 0.0)
    experts = torch.where(kept, expert_idx, 0).long()
    tokens = torch.arange(grad_y.shape[0], device=grad_y.device)[:, None].expand(expert_idx.shape)
    share = weights.new_zeros((bias.shape[0], grad_y.shape[0])).index_put((experts, tokens), weights, accumulate=True)
    return (share @ grad_y.float()).to(bias.dtype)


def _finalize_grad(
    grad_y: Any,
    expanded_row_idx: Any,
    expanded_x: Any,
    scales: Any,
    expert_idx: Any,
    bias: Any,
    drop_pad_mode: int,
    active_num: int,
    expert_num: int,
    expert_capacity: int,
) -> Any:
    """Run aclnnMoeFinalizeRoutingV2Grad."""
    result = finalize.moe_finalize_routing_v2_grad(
        grad_y,
        expanded_row_idx,
        expanded_x,
        scales,
        expert_idx,
        bias,
        drop_pad_mode=drop_pad_mode,
        active_num=active_num,
        expert_num=expert_num,
        expert_capacity=expert_capacity,
        backend=_backend(grad_y),
    )
    return _second(result, grad_y)


def _finalize_grad_fake(
    grad_y: Any,
    expanded_row_idx: Any,
    expanded_x: Any,
    scales: Any,
    expert_idx: Any,
    bias: Any,
    drop_pad_mode: int,
    active_num: Any,
    expert_num: Any,
    expert_capacity: Any,
) -> Any:
    entries, hidden = expanded_row_idx.shape[0], grad_y.shape[1]
    if drop_pad_mode == 1:
        shape: tuple[Any, ...] = (expert_num, expert_capacity, hidden)
    else:
        shape = (torch.sym_min(active_num, entries) if active_num > 0 else entries, hidden)
    grad_scales = grad_y.new_empty(0) if scales is None else torch.empty_like(scales, memory_format=_ROWS)
    return grad_y.new_empty(shape), grad_scales


# -- MoeTokenUnpermuteWithEp


def _unpermute(permuted_tokens: Any, sorted_indices: Any, probs: Any, topk_num: int, range: Any) -> Any:
    """Run aclnnMoeTokenUnpermuteWithEp."""
    return unpermute.moe_token_unpermute_with_ep(
        permuted_tokens, sorted_indices, probs, num_topk=topk_num, range=range, backend=_backend(permuted_tokens)
    )


def _unpermute_fake(permuted_tokens: Any, sorted_indices: Any, probs: Any, topk_num: Any, range: Any) -> Any:
    tokens = sorted_indices.shape[0] // topk_num if probs is None else probs.shape[0]
    return permuted_tokens.new_empty((tokens, permuted_tokens.shape[1]))


def _unpermute_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    permuted_tokens, sorted_indices, probs, ctx.topk, ctx.range = inputs
    ctx.rows = permuted_tokens.shape[0]
    ctx.save_for_backward(None if probs is None else permuted_tokens, sorted_indices, probs)


def _unpermute_backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    permuted_tokens, sorted_indices, probs = ctx.saved_tensors
    wants_tokens, _, wants_probs, *_ = ctx.needs_input_grad
    if not (wants_tokens or wants_probs):
        return (None,) * 5
    tokens_grad, probs_grad = torch.ops.aclnn_py.moe_token_unpermute_with_ep_grad(
        grad.contiguous(), sorted_indices, permuted_tokens, probs, ctx.topk, ctx.range
    )
    tokens_grad = tokens_grad[: ctx.rows]  # N rows without permuted_tokens, which may have had fewer
    return tokens_grad if wants_tokens else None, None, probs_grad if wants_probs else None, None, None


def _unpermute_grad(
    unpermuted_tokens_grad: Any, sorted_indices: Any, permuted_tokens: Any, probs: Any, topk_num: int, range: Any
) -> Any:
    """Run aclnnMoeTokenUnpermuteWithEpGrad."""
    result = unpermute.moe_token_unpermute_with_ep_grad(
        unpermuted_tokens_grad,
        sorted_indices,
        permuted_tokens,
        probs,
        topk_num=topk_num,
        range=range,
        backend=_backend(unpermuted_tokens_grad),
    )
    return _second(result, unpermuted_tokens_grad)


def _unpermute_grad_fake(
    unpermuted_tokens_grad: Any, sorted_indices: Any, permuted_tokens: Any, probs: Any, topk_num: Any, range: Any
) -> Any:
    grad = unpermuted_tokens_grad
    rows = sorted_indices.shape[0] if permuted_tokens is None else permuted_tokens.shape[0]
    probs_grad = grad.new_empty(0) if probs is None else torch.empty_like(probs, memory_format=_ROWS)
    return grad.new_empty((rows, grad.shape[1])), probs_grad


# -- registration


def _register(name: str, schema: str, run: Any, shapes: Any, backward: Any, context: Any = None) -> None:
    made = torch.library.custom_op(f"aclnn_py::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(shapes)
    made.register_autograd(backward, setup_context=context)


_register(
    "moe_finalize_routing",
    "(Tensor expanded_x, Tensor expanded_row_idx, Tensor? x1, Tensor? x2, Tensor? bias, Tensor? scales, "
    "Tensor? expert_idx, int drop_pad_mode, bool all_grads) -> Tensor",
    _finalize,
    _finalize_fake,
    _finalize_backward,
    _finalize_context,
)
_register(
    "moe_finalize_routing_grad",
    "(Tensor grad_y, Tensor expanded_row_idx, Tensor? expanded_x, Tensor? scales, Tensor? expert_idx, Tensor? bias, "
    "int drop_pad_mode, SymInt active_num, SymInt expert_num, SymInt expert_capacity) -> (Tensor, Tensor)",
    _finalize_grad,
    _finalize_grad_fake,
    _twice,
)
_register(
    "moe_token_unpermute_with_ep",
    "(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs, SymInt topk_num, SymInt[]? range) -> Tensor",
    _unpermute,
    _unpermute_fake,
    _unpermute_backward,
    _unpermute_context,
)
_register(
    "moe_token_unpermute_with_ep_grad",
    "(Tensor unpermuted_tokens_grad, Tensor sorted_indices, Tensor? permuted_tokens, Tensor? probs, SymInt topk_num, "
    "SymInt[]? range) -> (Tensor, Tensor)",
    _unpermute_grad,
    _unpermute_grad_fake,
    _twice,
)
