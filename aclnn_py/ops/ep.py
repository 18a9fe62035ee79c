"""MoE permute and un-permute for expert parallelism: the four WithEp operators.

Shapes use T tokens, K slots per token, N = T*K, H hidden size; a rank owns the positions [s, e) of the expert order.
``sorted_indices[t * K + k]`` is the row of slot k of token t in the full expert order: the inverse of an argsort.
Semantics: CANN's ops-transformer sources and operator pages, newest over oldest; see the README.

``range`` is normalised once and always passed as 0 <= s <= e <= N, since released CANN versions disagree about every
other form (null, (-1, -1), negatives): for some, null means nothing at all.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import errors
from ..backends import ReferenceBackend
from ._common import OperatorCall, Output, dim

__all__ = [
    "MoeTokenPermuteWithEp",
    "MoeTokenPermuteWithEpGrad",
    "MoeTokenUnpermuteWithEpGrad",
    "moe_token_permute_with_ep",
    "moe_token_permute_with_ep_grad",
    "moe_token_unpermute_with_ep",
    "moe_token_unpermute_with_ep_grad",
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


class MoeTokenUnpermuteWithEpGrad(NamedTuple):
    """Result of ``moe_token_unpermute_with_ep_grad``; ``probs_grad`` is None when probs is None."""

    permuted_tokens_grad: Any
    probs_grad: Any


def _normalise(api: str, value: Sequence[int] | None, n: int) -> tuple[int, int]:
    """Return 0 <= s <= e <= n: None and (-1, -1) mean all, negatives count from the end, both are clamped."""
    if value is None:
        return 0, n
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
        raise TypeError(f"{api}: range takes two integers (start, end) or None, got {value!r}")
    if len(value) != 2:
        errors.check(561002, api, "GetWorkspaceSize", detail=f"range has {len(value)} entries, expected 2")
    try:
        start, end = (operator.index(entry) for entry in value)
    except TypeError:
        raise TypeError(f"{api}: range takes two integers (start, end) or None, got {value!r}") from None
    if (start, end) == (-1, -1):
        return 0, n
    start, end = (min(max(entry + n if entry < 0 else entry, 0), n) for entry in (start, end))
    if start > end:
        detail = f"range is {tuple(value)}, that is ({start}, {end}) of {n} indices; expected start <= end"
        errors.check(561002, api, "GetWorkspaceSize", detail=detail)
    return start, end


def _topk(probs: Any, given: int | None) -> Any:
    """Slots per token: what the caller says, else the second axis of the probs, else 1."""
    if given is not None:
        return given
    shape: Any = getattr(probs, "shape", ())
    return shape[1] if len(shape) == 2 else 1


def _tokens(probs: Any, n: int, topk: int) -> int:
    return dim(probs, 0) if probs is not None else n // topk if topk > 0 else 0


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
        topkNum=_topk(probs, topk_num),
    )
    grad, permuted, factors = (call[n] for n in ("unpermutedTokensGrad", "permutedTokensOptional", "probsOptional"))
    n = dim(call["sortedIndices"], 0)
    start, end = _normalise(call.api, range, n)
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
        numTopk=_topk(probs, num_topk),
        paddedMode=padded_mode,
        restoreShapeOptional=restore_shape,
    )
    permuted, factors = call["permutedTokens"], call["probsOptional"]
    n = dim(call["sortedIndices"], 0)
    start, end = _normalise(call.api, range, n)
    call.arguments["rangeOptional"] = (start, end)
    dtype = np.dtype(np.float32) if permuted is None else permuted.dtype
    shape = (_tokens(factors, n, call["numTopk"]), dim(permuted, 1))
    (result,) = call.allocate(out, Output("out", shape, dtype))
    if check_indices:
        call.check_domain("sortedIndices", 0, n)
    if start == end or n == 0:
        call.family.clear(result, call.backend, stream)
    else:
        call.run({"out": result})
    return call.family.result(result)


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
    start, end = _normalise(call.api, range, n)
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
    start, end = _normalise(call.api, range, n)
    call.arguments["rangeOptional"] = (start, end)
    tokens = _tokens(None, n, topk)
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
