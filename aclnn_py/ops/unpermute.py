"""MoE un-permute for expert parallelism: ``MoeTokenUnpermuteWithEp`` and its gradient.

Shapes use T tokens, K slots per token, N = T*K, H hidden size; a rank owns the positions [s, e) of the expert order.
``sorted_indices[t * K + k]`` is the row of slot k of token t in the full expert order: the inverse of an argsort.
Semantics: CANN's ops-transformer sources and operator pages, newest over oldest; see the README.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..backends import ReferenceBackend
from ._common import OperatorCall, Output, dim
from ._ep import normalise, token_count, topk_of

__all__ = ["MoeTokenUnpermuteWithEpGrad", "moe_token_unpermute_with_ep", "moe_token_unpermute_with_ep_grad"]


class MoeTokenUnpermuteWithEpGrad(NamedTuple):
    """Result of ``moe_token_unpermute_with_ep_grad``; ``probs_grad`` is None when probs is None."""

    permuted_tokens_grad: Any
    probs_grad: Any


def moe_token_unpermute_with_ep_grad(
    unpermuted_tokens_grad: Any,
    sorted_indices: Any,
    permuted_tokens: Any = None,
    probs: Any = None,
    *,
    topk_num: int | None = None,
    range: Sequence[int] | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> MoeTokenUnpermuteWithEpGrad:
    """Gradients of ``moe_token_unpermute_with_ep`` for the permuted tokens and the probs.

    With q = sorted_indices[t * K + k] and s <= q < e:
    ``permuted_tokens_grad[q - s] = unpermuted_tokens_grad[t] * probs[t, k]`` and
    ``probs_grad[t, k] = sum(permuted_tokens[q - s] * unpermuted_tokens_grad[t])``, in float32, rounded once; outside
    the range probs_grad is 0. Without probs the row is copied bit for bit.

    Parameters
    ----------
    unpermuted_tokens_grad
        (T, H) float32, float16 or bfloat16.
    sorted_indices
        (N,) int32 in [0, N).
    permuted_tokens
        (N, H) or (e - s, H), same dtype; needed with probs.
    probs
        (T, K) float32, float16 or bfloat16, independent of the token dtype.
    topk_num
        K when probs is None (default 1); with probs, K is probs.shape[1].
    range
        (start, end) of the positions this rank owns; None and (-1, -1) mean all of [0, N).
    padded_mode
        Only False is supported by the operator.
    restore_shape
        Ignored by the operator.
    out
        Tuple (permuted_tokens_grad, probs_grad) to write into, None to allocate. Rows that no index in range names
        keep their content; allocated ones are zero.
    check_indices
        Refuse indices outside [0, N) (reads the data, synchronises).
    backend, stream
        See ``Executor``.

    Returns
    -------
    MoeTokenUnpermuteWithEpGrad
        permuted_tokens_grad with as many rows as permuted_tokens (N when that is None); probs_grad (T, K) with the
        dtype of probs, or None.

    Raises
    ------
    NullptrError, InvalidParameterError, TilingError
        A missing tensor (161001), a dtype (161002), a shape, range or attribute (561002).
    IndexOutOfRangeError
        With check_indices.

    Examples
    --------
    >>> grad = np.array([[1, 1]], np.float32)
    >>> ones = np.ones((3, 2), np.float32)
    >>> result = moe_token_unpermute_with_ep_grad(
    ...     grad, np.arange(3, dtype=np.int32), ones, np.ones((1, 3), np.float32), backend="reference")
    >>> result.permuted_tokens_grad.tolist(), result.probs_grad.tolist()
    ([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], [[2.0, 2.0, 2.0]])
    """
    call = OperatorCall(
        "aclnnMoeTokenUnpermuteWithEpGrad",
        backend,
        stream,
        unpermutedTokensGrad=unpermuted_tokens_grad,
        sortedIndices=sorted_indices,
        permutedTokensOptional=permuted_tokens,
        probsOptional=probs,
        paddedMode=padded_mode,
        restoreShapeOptional=restore_shape,
        topkNum=topk_of(probs, topk_num),
    )
    grad, permuted, factors = (call[n] for n in ("unpermutedTokensGrad", "permutedTokensOptional", "probsOptional"))
    n = dim(call["sortedIndices"], 0)
    start, end = normalise(call.api, range, n)
    call.arguments["rangeOptional"] = (start, end)
    rows = n if permuted is None else dim(permuted, 0)
    dtype = np.dtype(np.float32) if grad is None else grad.dtype
    outputs = (
        Output("permutedTokensGradOut", (rows, dim(grad, 1)), dtype),
        # C wants the second gradient even without probs: a dummy of the token dtype then
        Output("probsGradOut", (dim(grad, 0), max(call["topkNum"], 0)), dtype, returned=False)
        if factors is None
        else Output("probsGradOut", tuple(factors.shape), factors.dtype),
    )
    tokens_grad, probs_grad = call.allocate(out, *outputs)
    if check_indices:
        call.check_domain("sortedIndices", 0, n)
    family = call.family
    if start == end or n == 0:
        family.clear(probs_grad, call.backend, stream)  # always written by the operator; rows are not
    elif isinstance(call.backend, ReferenceBackend) or rows == n:
        call.run({"permutedTokensGradOut": tokens_grad, "probsGradOut": probs_grad})
    else:
        # the newest tiling insists on N rows, whatever the range
        wide = family.pad_rows(tokens_grad, n, call.backend, stream)
        padded = family.pad_rows(permuted, n, call.backend, stream)
        call.run({"permutedTokensGradOut": wide, "probsGradOut": probs_grad}, permutedTokensOptional=padded)
        family.copy(tokens_grad, wide[:rows], call.backend, stream)
    return MoeTokenUnpermuteWithEpGrad(
        family.result(tokens_grad), None if factors is None else family.result(probs_grad)
    )


def moe_token_unpermute_with_ep(
    permuted_tokens: Any,
    sorted_indices: Any,
    probs: Any = None,
    *,
    num_topk: int | None = None,
    range: Sequence[int] | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> Any:
    """Bring permuted tokens back and add the slots of each token: this rank's part of the sum.

    ``out[t] = sum_k permuted_tokens[q - s] * probs[t, k]`` over the slots with s <= q < e, in float32 in k order,
    rounded once. A slot whose prob is exactly 0 is skipped (0 * NaN contributes nothing).

    Parameters
    ----------
    permuted_tokens
        (N, H) or (e - s, H) float32, float16 or bfloat16.
    sorted_indices
        (N,) int32 in [0, N).
    probs
        (T, K) float32, float16 or bfloat16, independent of the token dtype; None means ones.
    num_topk
        K; default probs.shape[1], or 1.
    range
        (start, end) of the positions this rank owns; None and (-1, -1) mean all of [0, N).
    padded_mode, restore_shape
        Ignored by the operator.
    out
        (T, H) array to write into.
    check_indices
        Refuse indices outside [0, N) (reads the data, synchronises).
    backend, stream
        See ``Executor``.

    Returns
    -------
    array
        (T, H), dtype of permuted_tokens.

    Raises
    ------
    NullptrError, InvalidParameterError, TilingError
        A missing tensor (161001), a dtype (161002), a shape, range or attribute (561002).

    Examples
    --------
    >>> rows = np.array([[10.0], [20.0], [30.0]], np.float32)
    >>> moe_token_unpermute_with_ep(rows, np.array([2, 0, 1], np.int32), backend="reference").ravel().tolist()
    [30.0, 10.0, 20.0]
    """
    call = OperatorCall(
        "aclnnMoeTokenUnpermuteWithEp",
        backend,
        stream,
        permutedTokens=permuted_tokens,
        sortedIndices=sorted_indices,
        probsOptional=probs,
        numTopk=topk_of(probs, num_topk),
        paddedMode=padded_mode,
        restoreShapeOptional=restore_shape,
    )
    permuted, factors = call["permutedTokens"], call["probsOptional"]
    n = dim(call["sortedIndices"], 0)
    start, end = normalise(call.api, range, n)
    call.arguments["rangeOptional"] = (start, end)
    dtype = np.dtype(np.float32) if permuted is None else permuted.dtype
    shape = (token_count(factors, n, call["numTopk"]), dim(permuted, 1))
    (result,) = call.allocate(out, Output("out", shape, dtype))
    if check_indices:
        call.check_domain("sortedIndices", 0, n)
    if start == end or n == 0:
        call.family.clear(result, call.backend, stream)
    else:
        call.run({"out": result})
    return call.family.result(result)
