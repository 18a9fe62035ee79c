"""MoE permute for expert parallelism: ``MoeTokenPermuteWithEp`` and its gradient.

Shapes use T tokens, K slots per token, N = T*K, H hidden size; a rank owns the positions [s, e) of the expert order.
``sorted_indices[t * K + k]`` is the row of slot k of token t in the full expert order: the inverse of an argsort.
Semantics: CANN's ops-transformer sources and operator pages, newest over oldest; see the README.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._common import OperatorCall, Output, dim
from ._ep import normalise, token_count

__all__ = [
    "MoeTokenPermuteWithEp",
    "MoeTokenPermuteWithEpGrad",
    "moe_token_permute_with_ep",
    "moe_token_permute_with_ep_grad",
]

INT32 = np.dtype(np.int32)


class MoeTokenPermuteWithEp(NamedTuple):
    """Result of ``moe_token_permute_with_ep``; ``permute_probs`` is None when probs is None."""

    permute_tokens: Any
    sorted_indices: Any
    permute_probs: Any


class MoeTokenPermuteWithEpGrad(NamedTuple):
    """Result of ``moe_token_permute_with_ep_grad``; ``probs_grad`` is None without a gradient of the probs."""

    token_grad: Any
    probs_grad: Any


def moe_token_permute_with_ep(
    tokens: Any,
    indices: Any,
    probs: Any = None,
    *,
    range: Sequence[int] | None = None,
    num_out_tokens: int = 0,
    padded_mode: bool = False,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> MoeTokenPermuteWithEp:
    """Sort the slots of all tokens by expert and copy out the positions that this rank owns.

    Parameters
    ----------
    tokens
        (T, H) float32, float16 or bfloat16.
    indices
        (T, K) or (T,) expert of each slot, int32 or int64.
    probs
        (T, K) carried along, or None.
    range
        (start, end) of the positions to copy; None and (-1, -1) mean all of [0, N).
    num_out_tokens
        Passed on; with a range it does not decide anything.
    padded_mode
        Only False is supported by the operator.
    out
        Tuple of three in result order, None to allocate.
    check_indices
        Refuse negative expert numbers (reads the data, synchronises).
    backend, stream
        See ``Executor``.

    Returns
    -------
    MoeTokenPermuteWithEp
        permute_tokens (e - s, H); sorted_indices (N,) int32, for all of N whatever the range; permute_probs
        (e - s,) or None.

    Raises
    ------
    NullptrError, InvalidParameterError, TilingError
        A missing tensor (161001), a dtype (161002), a shape, range or attribute (561002).

    Examples
    --------
    >>> tokens = np.array([[1.0], [2.0]], np.float32)
    >>> moved = moe_token_permute_with_ep(tokens, np.array([[1, 0], [0, 1]], np.int32), backend="reference")
    >>> moved.permute_tokens.ravel().tolist(), moved.sorted_indices.tolist()
    ([1.0, 2.0, 1.0, 2.0], [2, 0, 1, 3])
    """
    call = OperatorCall(
        "aclnnMoeTokenPermuteWithEp",
        backend,
        stream,
        tokens=tokens,
        indices=indices,
        probsOptional=probs,
        numOutTokens=num_out_tokens,
        paddedMode=padded_mode,
    )
    source, experts, factors = call["tokens"], call["indices"], call["probsOptional"]
    n = int(np.prod(experts.shape)) if experts is not None else 0
    start, end = normalise(call.api, range, n)
    empty = start == end
    # An empty range means "everything" to this operator: run it over all, for the indices, and keep no row.
    call.arguments["rangeOptional"] = (0, n) if empty else (start, end)
    dtype = np.dtype(np.float32) if source is None else source.dtype
    probs_dtype = dtype if factors is None else factors.dtype

    def outputs(rows: int) -> tuple[Output, ...]:
        return (
            Output("permuteTokensOut", (rows, dim(source, 1)), dtype),
            Output("sortedIndicesOut", (n,), INT32),
            Output("permuteProbsOut", (rows,), probs_dtype, returned=factors is not None),
        )

    call.validate(*outputs(n if empty else end - start))
    if check_indices:
        call.check_domain("indices", 0, 2**31)
    arrays = call.allocate(out, *outputs(end - start), validated=True)
    names = [output.name for output in outputs(0)]
    targets = list(arrays)
    if empty:
        targets[0], targets[2] = (
            call.family.zeros(output.shape, output.dtype, call.backend, stream) for output in outputs(n)[::2]
        )
    call.run(dict(zip(names, targets, strict=True)))
    permuted, index, permuted_probs = map(call.family.result, arrays)
    return MoeTokenPermuteWithEp(permuted, index, None if factors is None else permuted_probs)


def moe_token_permute_with_ep_grad(
    permuted_tokens_output_grad: Any,
    sorted_indices: Any,
    permuted_probs_output_grad: Any = None,
    *,
    num_topk: int = 1,
    range: Sequence[int] | None = None,
    padded_mode: bool = False,
    out: Any = None,
    check_indices: bool = False,
    backend: Any = None,
    stream: Any = None,
) -> MoeTokenPermuteWithEpGrad:
    """Gradients of ``moe_token_permute_with_ep`` for the tokens and the probs: this rank's part.

    ``token_grad[t]`` is the sum over the slots in range of ``permuted_tokens_output_grad[q - s]`` (float32, rounded
    once); ``probs_grad`` is ``permuted_probs_output_grad[q - s]`` in range and 0 outside.

    Parameters
    ----------
    permuted_tokens_output_grad
        (e - s, H) or (N, H) float32, float16 or bfloat16.
    sorted_indices
        (N,) int32 in [0, N).
    permuted_probs_output_grad
        (e - s,) or (N,), or None.
    num_topk
        K.
    range
        (start, end) of the positions this rank owns; None and (-1, -1) mean all of [0, N).
    padded_mode
        Only False is supported by the operator.
    out
        Tuple (token_grad, probs_grad), None to allocate.
    check_indices
        Refuse indices outside [0, N) (reads the data, synchronises).
    backend, stream
        See ``Executor``.

    Returns
    -------
    MoeTokenPermuteWithEpGrad
        token_grad (T, H); probs_grad (T, K) or None.

    Raises
    ------
    NullptrError, InvalidParameterError, TilingError
        A missing tensor (161001), a dtype (161002), a shape, range or attribute (561002).

    Examples
    --------
    >>> rows = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    >>> index = np.array([2, 0, 1, 3], np.int32)
    >>> moe_token_permute_with_ep_grad(rows, index, num_topk=2, backend="reference").token_grad.ravel().tolist()
    [4.0, 6.0]
    """
    call = OperatorCall(
        "aclnnMoeTokenPermuteWithEpGrad",
        backend,
        stream,
        permutedTokensOutputGrad=permuted_tokens_output_grad,
        sortedIndices=sorted_indices,
        permutedProbsOutputGradOptional=permuted_probs_output_grad,
        numTopk=num_topk,
        paddedMode=padded_mode,
    )
    grad, probs_out_grad = call["permutedTokensOutputGrad"], call["permutedProbsOutputGradOptional"]
    n, topk = dim(call["sortedIndices"], 0), call["numTopk"]
    start, end = normalise(call.api, range, n)
    call.arguments["rangeOptional"] = (start, end)
    tokens = token_count(None, n, topk)
    dtype = np.dtype(np.float32) if grad is None else grad.dtype
    probs_dtype = dtype if probs_out_grad is None else probs_out_grad.dtype
    token_grad, probs_grad = call.allocate(
        out,
        Output("tokenGradOut", (tokens, dim(grad, 1)), dtype),
        Output("probsGradOut", (tokens, max(topk, 0)), probs_dtype, returned=probs_out_grad is not None),
    )
    if check_indices:
        call.check_domain("sortedIndices", 0, n)
    if start == end or n == 0:
        call.family.clear(token_grad, call.backend, stream)
        call.family.clear(probs_grad, call.backend, stream)
    else:
        call.run({"tokenGradOut": token_grad, "probsGradOut": probs_grad})
    return MoeTokenPermuteWithEpGrad(
        call.family.result(token_grad), None if probs_out_grad is None else call.family.result(probs_grad)
    )
