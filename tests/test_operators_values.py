"""Value cases worked by hand in small exact numbers: what each forward operator computes, and every rule of it.

The property tests compare with the oracle; the numbers here were written down without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import numpy as np
import oracle
import pytest
from harness import BF16, F16, F32, I32, I64, buffer, idx, tensor

INF, NAN, KEPT = float("inf"), float("nan"), float(harness.PREFILL)
Case = Callable[[], tuple[dict[str, Any], dict[str, Any]]]


def run(backend: Any, op: str, case: Case, product: str | None = None) -> None:
    """Run an (arguments, expected outputs) pair and compare the bits."""
    given, expected = case()
    args = harness.arguments(op, **given)
    harness.call(backend, op, args, product)
    for name, values in expected.items():
        want = tensor(values, args[name].dtype, args[name].shape)
        assert oracle.same_bits(args[name], want).all() or (
            np.isnan(want).any() and np.array_equal(args[name], want, equal_nan=True)
        ), f"{name}: {args[name].tolist()} != {want.tolist()}"


def parametrise(cases: dict[str, Case | tuple[Case, str]]) -> Any:
    return pytest.mark.parametrize(
        ("case", "product"),
        [c if isinstance(c, tuple) else (c, None) for c in cases.values()],
        ids=[name.replace(" ", "-") for name in cases],
    )


# -- aclnnMoeFinalizeRoutingV2: R = 2, K = 2, H = 2 unless said otherwise -----------------------------------

X = [[1, 2], [10, 20], [100, 200], [1000, 2000]]
SCALES = [[1, 2], [3, 0.5]]


def finalize(expected: Any, dtype: np.dtype = F32, mode: int = 0, out_shape: Any = (2, 2), **given: Any) -> Any:
    scale_dtype = given.pop("scale_dtype", dtype)
    base = dict(expandedX=X, x1Optional=None, x2Optional=None, biasOptional=None, scalesOptional=SCALES)
    floats = {k: v for k, v in (base | given).items() if k not in ("expandedRowIdx", "expertIdxOptional")}
    args = {k: None if v is None else tensor(v, scale_dtype if k[0] == "s" else dtype) for k, v in floats.items()}
    args |= {k: idx(given[k]) for k in ("expandedRowIdx", "expertIdxOptional") if k in given}
    args |= dict(dropPadMode=mode, out=buffer(out_shape, dtype))
    return args, {"out": expected}


ECH = [[[1, 2], [10, 20]], [[100, 200], [1000, 2000]]]  # E = 2, C = 2
EXPERTS = [[0, 1], [1, 0]]
BIAS = [[1, -1], [4, 8]]
FINALIZE: dict[str, Case | tuple[Case, str]] = {
    # token 0 takes idx[0] = 0 and idx[2] = 2: 1*(1,2) + 2*(100,200); token 1 takes 1 and 3
    "mode 0 reads the index by columns": lambda: finalize([[201, 402], [530, 1060]], expandedRowIdx=[0, 1, 2, 3]),
    # token 0 takes idx[0], idx[1]: 1*(1,2) + 2*(10,20); token 1 takes rows 2 and 3
    "mode 2 reads the index by rows": lambda: finalize([[21, 42], [800, 1600]], mode=2, expandedRowIdx=[0, 1, 2, 3]),
    "mode 1 drops minus one": lambda: finalize(
        [[201, 402], [30, 60]], mode=1, expandedX=ECH, expandedRowIdx=[0, 1, 2, -1]
    ),
    "mode 3 drops minus one": lambda: finalize(
        [[1, 2], [800, 1600]], mode=3, expandedX=ECH, expandedRowIdx=[0, -1, 2, 3]
    ),
    "all slots dropped leave x1 alone": lambda: finalize(
        [[7, 8], [9, 10]], mode=3, expandedX=ECH, expandedRowIdx=[-1] * 4, x1Optional=[[7, 8], [9, 10]]
    ),
    "all slots dropped without x1 write zeros": lambda: finalize(
        [[0, 0], [0, 0]], mode=1, expandedX=ECH, expandedRowIdx=[-1] * 4
    ),
    "x1 is added": lambda: finalize(
        [[22, 44], [803, 1604]], mode=2, expandedRowIdx=[0, 1, 2, 3], x1Optional=[[1, 2], [3, 4]]
    ),
    "x1 and x2 are added": lambda: finalize(
        [[122, 244], [1103, 2004]],
        mode=2,
        expandedRowIdx=[0, 1, 2, 3],
        x1Optional=[[1, 2], [3, 4]],
        x2Optional=[[100, 200], [300, 400]],
    ),
    # token 0: 1*((1,2)+(1,-1)) + 2*((10,20)+(4,8)); token 1: 3*((100,200)+(4,8)) + .5*((1000,2000)+(1,-1))
    "bias is taken by expert and scaled": lambda: finalize(
        [[30, 57], [812.5, 1623.5]], mode=2, expandedRowIdx=[0, 1, 2, 3], biasOptional=BIAS, expertIdxOptional=EXPERTS
    ),
    "a dropped slot loses its bias too": lambda: finalize(
        [[2, 1], [812.5, 1623.5]],
        mode=3,
        expandedX=ECH,
        expandedRowIdx=[0, -1, 2, 3],
        biasOptional=BIAS,
        expertIdxOptional=EXPERTS,
    ),
    "expertIdx without bias changes nothing": lambda: finalize(
        [[21, 42], [800, 1600]], mode=2, expandedRowIdx=[0, 1, 2, 3], expertIdxOptional=EXPERTS
    ),
    "without scales K is one and the weight is one": lambda: finalize(
        [[10, 20], [1000, 2000], [1, 2], [100, 200]], out_shape=(4, 2), scalesOptional=None, expandedRowIdx=[1, 3, 0, 2]
    ),
    "repeated rows are read again": lambda: finalize([[3, 6], [3.5, 7]], mode=2, expandedRowIdx=[0, 0, 0, 0]),
    "950 drops any index outside in mode 2": (
        lambda: finalize([[1, 2], [0, 0]], mode=2, expandedRowIdx=[0, 4, -1, -(2**31)]),
        "950",
    ),
    "950 drops rows beyond E*C in mode 3": (
        lambda: finalize([[20, 40], [300, 600]], mode=3, expandedX=ECH, expandedRowIdx=[4, 1, 2, 99]),
        "950",
    ),
    "950 takes other scales dtypes": (
        lambda: finalize([[21, 42], [800, 1600]], F16, 2, expandedRowIdx=[0, 1, 2, 3], scale_dtype=BF16),
        "950",
    ),
    "fp16 is summed in fp32": lambda: finalize(
        # 2048 + 1 + 1: step by step in fp16 the ones vanish
        [[2050]],
        F16,
        2,
        (1, 1),
        expandedX=[[2048], [1], [1]],
        scalesOptional=[[1, 1, 1]],
        expandedRowIdx=[0, 1, 2],
    ),
    "fp16 overflow is infinity": lambda: finalize(
        [[INF], [-INF]], F16, 2, (2, 1), expandedX=[[60000], [-60000]], scalesOptional=[[2], [2]], expandedRowIdx=[0, 1]
    ),
    "intermediate sums may leave the fp16 range": lambda: finalize(
        [[8]], F16, 2, (1, 1), expandedX=[[60000], [60000], [8]], scalesOptional=[[2, -2, 1]], expandedRowIdx=[0, 1, 2]
    ),
}


@parametrise(FINALIZE)
def test_finalize_routing_v2(backend: Any, case: Case, product: str | None) -> None:
    run(backend, "aclnnMoeFinalizeRoutingV2", case, product)


@pytest.mark.parametrize("product", ["A2", "950"])
def test_fp32_scales_are_not_rounded_to_the_token_type(backend: Any, product: str) -> None:
    """1 + 2^-8 - 2^-16 is 1 in bf16; times 129 in fp32 it is 129.502, and bf16 has steps of 1 there."""
    given, expected = finalize(
        [[130]],
        BF16,
        2,
        (1, 1),
        expandedX=[[129]],
        scalesOptional=[[1 + 2**-8 - 2**-16]],
        expandedRowIdx=[0],
        scale_dtype=F32,
    )
    assert float(given["scalesOptional"].astype(BF16)[0, 0]) == 1
    run(backend, "aclnnMoeFinalizeRoutingV2", lambda: (given, expected), product)


def test_finalize_routing_v2_public_sample(backend: Any) -> None:
    tokens, skip = np.arange(12.0).reshape(3, 4) + 0.1, np.arange(12.0).reshape(3, 4) + 0.2
    args = harness.arguments(
        "aclnnMoeFinalizeRoutingV2",
        expandedX=tensor(np.concatenate([tokens, tokens])),
        expandedRowIdx=idx([2, 1, 4, 3, 0, 5]),
        x1Optional=tensor(skip),
        x2Optional=tensor(skip),
        biasOptional=tensor([[0.2, 0.4, 0.2, 0.4]] * 2),
        scalesOptional=tensor([[1.3, 1.6], [1.2, 1.8], [1.2, 2.3]]),
        expertIdxOptional=idx([[0, 1]] * 3),
        dropPadMode=0,
        out=buffer((3, 4)),
    )
    harness.call(backend, "aclnnMoeFinalizeRoutingV2", args)
    expected = [[11.67, 17.15, 21.47, 26.95], [14.1, 19.7, 24.1, 29.7], [40.65, 46.85, 51.65, 57.85]]
    np.testing.assert_allclose(args["out"], expected, rtol=1e-6)


# -- aclnnMoeTokenUnpermuteWithEp: T = 3, topK = 2, H = 2, N = 6 --------------------------------------------

PERMUTED = [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [6, 60]]
SORTED = [2, 0, 4, 1, 5, 3]
PROBS = [[1, 0.5], [0.25, -2], [3, 4]]


def unpermute(expected: Any, dtype: np.dtype = F32, probs_dtype: np.dtype | None = None, **given: Any) -> Any:
    base = dict(permutedTokens=PERMUTED, sortedIndices=SORTED, probsOptional=PROBS, numTopk=2, rangeOptional=[0, 6])
    args = base | given
    args["permutedTokens"] = tensor(args["permutedTokens"], dtype)
    args["sortedIndices"] = idx(args["sortedIndices"])
    if args["probsOptional"] is not None:
        args["probsOptional"] = tensor(args["probsOptional"], probs_dtype or dtype)
    args["out"] = buffer(np.shape(expected), dtype)
    return args, {"out": expected}


WHOLE = [[3.5, 35], [-2.75, -27.5], [34, 340]]
PART = [[2, 20], [-1, -10], [12, 120]]  # with range 1..5 and its own four rows 1..4
PART_ROWS = [[1, 10], [2, 20], [3, 30], [4, 40]]
UNPERMUTE: dict[str, Case | tuple[Case, str]] = {
    # token 0: 1*row 2 + .5*row 0; token 1: .25*row 4 - 2*row 1; token 2: 3*row 5 + 4*row 3
    "whole range": lambda: unpermute(WHOLE),
    "null range is the whole range": lambda: unpermute(WHOLE, rangeOptional=None),
    "minus one twice is taken literally, so empty": lambda: unpermute([[0, 0]] * 3, rangeOptional=[-1, -1]),
    # slots 0, 2, 3, 5 lie in the range and read rows 1, 3, 0, 2: 1*(2,20); .25*(4,40) - 2*(1,10); 4*(3,30)
    "partial range reads row q - start": lambda: unpermute(
        [[2, 20], [-1, -10], [12, 120]], rangeOptional=[1, 5], permutedTokens=PART_ROWS
    ),
    "partial range with N rows uses the first e - s": lambda: unpermute(PART, rangeOptional=[1, 5]),
    "range may end beyond N": lambda: unpermute(
        [[1, 10], [0.75, 7.5], [20, 200]], rangeOptional=[2, 99], permutedTokens=PART_ROWS
    ),
    "empty range writes zeros": lambda: unpermute([[0, 0]] * 3, rangeOptional=[3, 3]),
    "without probs rows are summed": lambda: unpermute([[4, 40], [7, 70], [10, 100]], probsOptional=None),
    "without probs the range still holds": lambda: unpermute(
        [[2, 20], [5, 50], [3, 30]], probsOptional=None, rangeOptional=[1, 5], permutedTokens=PART_ROWS
    ),
    "topK one is a gather": lambda: unpermute(
        [[3, 30], [1, 10], [2, 20]],
        probsOptional=None,
        numTopk=1,
        sortedIndices=[2, 0, 1],
        rangeOptional=[0, 3],
        permutedTokens=PERMUTED[:3],
    ),
    "indices outside are dropped": lambda: unpermute(
        [[1.5, 15], [0, 0], [3, 30]], sortedIndices=[0, 0, -1, 6, 0, -(2**31)], probsOptional=[[1, 0.5], [7, 7], [3, 4]]
    ),
    "a zero weight hides NaN and infinity": lambda: unpermute(
        [[1, 10], [0, 0], [4, 40]],
        permutedTokens=[[NAN, INF], [1, 10], [NAN, NAN], [INF, INF], [1, 10], [NAN, 0]],
        sortedIndices=[1, 0, 2, 3, 4, 5],
        probsOptional=[[1, 0], [0, 0], [4, -0.0]],
    ),
    "probs may have another dtype, unrounded": lambda: unpermute(
        [[130]],
        BF16,
        F32,
        permutedTokens=[[129]],
        sortedIndices=[0],
        probsOptional=[[1 + 2**-8 - 2**-16]],
        numTopk=1,
        rangeOptional=[0, 1],
    ),
    "fp16 is summed in fp32": lambda: unpermute(
        [[2050]],
        F16,
        permutedTokens=[[2048], [1], [1]],
        sortedIndices=[0, 1, 2],
        probsOptional=None,
        numTopk=3,
        rangeOptional=[0, 3],
    ),
    "fp16 overflow is infinity": lambda: unpermute(
        [[INF]], F16, permutedTokens=[[40000], [40000]], sortedIndices=[0, 1], probsOptional=None, rangeOptional=[0, 2]
    ),
    "the public sample": lambda: unpermute(
        [[1, 1], [4, 4], [3, 3]],
        permutedTokens=[[2, 2], [1, 1], [3, 3], [2, 2]],
        probsOptional=np.ones((3, 2)),
        rangeOptional=[1, 5],
    ),
}


@parametrise(UNPERMUTE)
def test_token_unpermute_with_ep(backend: Any, case: Case, product: str | None) -> None:
    run(backend, "aclnnMoeTokenUnpermuteWithEp", case, product)


# -- aclnnMoeTokenPermuteWithEp: T = 3, topK = 2, N = 6 ------------------------------------------------------

TOKENS = [[1, 10], [2, 20], [3, 30]]
CHOICE = [[1, 2], [3, 1], [2, 3]]  # slots by expert: 0, 3 | 1, 4 | 2, 5
LANDED = [0, 2, 4, 1, 3, 5]
WEIGHTS = [[1, 2], [3, 4], [5, 6]]


def permute(tokens: Any, landed: Any, probs: Any, dtype: np.dtype = F32, **given: Any) -> Any:
    base = dict(indices=CHOICE, probsOptional=WEIGHTS, rangeOptional=[0, 6])
    index_dtype, x = given.pop("index_dtype", I32), given.pop("x", TOKENS)
    args = base | given
    args["tokens"] = tensor(x, dtype)
    args["indices"] = idx(args["indices"], index_dtype)
    if args["probsOptional"] is not None:
        args["probsOptional"] = tensor(args["probsOptional"], dtype)
    args["permuteTokensOut"] = buffer(np.shape(tokens), dtype)
    args["sortedIndicesOut"] = buffer((len(landed),), I32)
    args["permuteProbsOut"] = buffer((len(tokens),), dtype)
    return args, {"permuteTokensOut": tokens, "sortedIndicesOut": landed, "permuteProbsOut": probs}


BY_EXPERT = [[1, 10], [2, 20], [1, 10], [3, 30], [2, 20], [3, 30]]
PERMUTE: dict[str, Case | tuple[Case, str]] = {
    "whole range": lambda: permute(BY_EXPERT, LANDED, [1, 4, 2, 5, 3, 6]),
    "null range is the whole range": lambda: permute(BY_EXPERT, LANDED, [1, 4, 2, 5, 3, 6], rangeOptional=None),
    "partial range keeps its rows, and all indices": lambda: permute(
        BY_EXPERT[1:5], LANDED, [4, 2, 5, 3], rangeOptional=[1, 5]
    ),
    "range from zero": lambda: permute(BY_EXPERT[:2], LANDED, [1, 4], rangeOptional=[0, 2]),
    "range to the end": lambda: permute(BY_EXPERT[5:], LANDED, [6], rangeOptional=[5, 6]),
    "numOutTokens does not decide beside a range": lambda: permute(
        BY_EXPERT[1:5], LANDED, [4, 2, 5, 3], rangeOptional=[1, 5], numOutTokens=2
    ),
    "without probs their output is left alone": lambda: permute(BY_EXPERT, LANDED, [KEPT] * 6, probsOptional=None),
    "equal experts keep their order": lambda: permute(
        [[1, 10], [1, 10], [2, 20], [2, 20], [3, 30], [3, 30]],
        [0, 1, 2, 3, 4, 5],
        [1, 2, 3, 4, 5, 6],
        indices=[[7, 7], [7, 7], [7, 7]],
    ),
    "descending experts reverse the order": lambda: permute(
        [[3, 30], [3, 30], [2, 20], [2, 20], [1, 10], [1, 10]],
        [5, 4, 3, 2, 1, 0],
        [6, 5, 4, 3, 2, 1],
        indices=[[5, 4], [3, 2], [1, 0]],
    ),
    "one-dimensional indices mean topK one": lambda: permute(
        [[2, 20], [3, 30], [1, 10]],
        [2, 0, 1],
        [2, 3, 1],
        indices=[9, 0, 4],
        probsOptional=[1, 2, 3],
        rangeOptional=[0, 3],
    ),
    "int64 indices": lambda: permute(BY_EXPERT, LANDED, [1, 4, 2, 5, 3, 6], index_dtype=I64),
    "bf16 tokens are copied": lambda: permute(BY_EXPERT, LANDED, [1, 4, 2, 5, 3, 6], BF16),
    "fp16 infinities are copied": lambda: permute(
        [[INF], [-INF]],
        [1, 0],
        [2, 1],
        F16,
        x=[[-INF], [INF]],
        indices=[[1], [0]],
        probsOptional=[[1], [2]],
        rangeOptional=[0, 2],
    ),
}


@parametrise(PERMUTE)
def test_token_permute_with_ep(backend: Any, case: Case, product: str | None) -> None:
    run(backend, "aclnnMoeTokenPermuteWithEp", case, product)


def test_token_permute_with_ep_public_sample(backend: Any) -> None:
    args = harness.arguments(
        "aclnnMoeTokenPermuteWithEp",
        tokens=tensor([[0.1] * 4, [0.2] * 4, [0.3] * 4]),
        indices=idx(CHOICE),
        probsOptional=tensor([[0.5, 0.3], [0.4, 0.2], [0.5, 0.4]]),
        rangeOptional=[1, 5],
        numOutTokens=4,
        permuteTokensOut=buffer((4, 4)),
        sortedIndicesOut=buffer((6,), I32),
        permuteProbsOut=buffer((4,)),
    )
    harness.call(backend, "aclnnMoeTokenPermuteWithEp", args)
    assert args["sortedIndicesOut"].tolist() == LANDED
    assert args["permuteTokensOut"].tolist() == tensor([[0.2] * 4, [0.1] * 4, [0.3] * 4, [0.2] * 4]).tolist()
    assert args["permuteProbsOut"].tolist() == tensor([0.2, 0.3, 0.5, 0.4]).tolist()


# -- aclnnMoeTokenPermuteWithEpGrad --------------------------------------------------------------------------

PROB_GRADS = [1, 2, 3, 4, 5, 6]


def permute_grad(tokens: Any, probs: Any, dtype: np.dtype = F32, **given: Any) -> Any:
    base = dict(
        permutedTokensOutputGrad=PERMUTED,
        sortedIndices=LANDED,
        permutedProbsOutputGradOptional=PROB_GRADS,
        numTopk=2,
        rangeOptional=[0, 6],
    )
    args = base | given
    args["sortedIndices"] = idx(args["sortedIndices"])
    for name in ("permutedTokensOutputGrad", "permutedProbsOutputGradOptional"):
        args[name] = None if args[name] is None else tensor(args[name], dtype)
    args["tokenGradOut"] = buffer(np.shape(tokens), dtype)
    args["probsGradOut"] = buffer(np.shape(probs), dtype)
    return args, {"tokenGradOut": tokens, "probsGradOut": probs}


PERMUTE_GRAD: dict[str, Case | tuple[Case, str]] = {
    # token 0: rows 0 and 2; token 1: rows 4 and 1; token 2: rows 3 and 5
    "whole range": lambda: permute_grad([[4, 40], [7, 70], [10, 100]], [[1, 3], [5, 2], [4, 6]]),
    # slots landing on 1..4 read rows 0..3: token 0 row 1; token 1 rows 3 and 0; token 2 row 2
    "partial range reads row q - start": lambda: permute_grad(
        [[2, 20], [5, 50], [3, 30]],
        [[0, 2], [4, 1], [3, 0]],
        rangeOptional=[1, 5],
        permutedTokensOutputGrad=PART_ROWS,
        permutedProbsOutputGradOptional=[1, 2, 3, 4],
    ),
    "outside the range everything is zero": lambda: permute_grad(
        [[0, 0], [1, 10], [0, 0]],
        [[0, 0], [0, 1], [0, 0]],
        rangeOptional=[1, 2],
        permutedTokensOutputGrad=PERMUTED[:1],
        permutedProbsOutputGradOptional=[1],
    ),
    "range from zero": lambda: permute_grad(
        [[1, 10], [2, 20], [0, 0]],
        [[1, 0], [0, 2], [0, 0]],
        rangeOptional=[0, 2],
        permutedTokensOutputGrad=PERMUTED[:2],
        permutedProbsOutputGradOptional=[1, 2],
    ),
    "range to the end": lambda: permute_grad(
        [[0, 0], [0, 0], [1, 10]],
        [[0, 0], [0, 0], [0, 9]],
        rangeOptional=[5, 6],
        permutedTokensOutputGrad=PERMUTED[:1],
        permutedProbsOutputGradOptional=[9],
    ),
    "without probs their gradient is left alone": lambda: permute_grad(
        [[4, 40], [7, 70], [10, 100]], [[KEPT] * 2] * 3, permutedProbsOutputGradOptional=None
    ),
    "topK one is a gather": lambda: permute_grad(
        [[2, 20], [3, 30], [1, 10]],
        [[2], [3], [1]],
        numTopk=1,
        sortedIndices=[1, 2, 0],
        rangeOptional=[0, 3],
        permutedTokensOutputGrad=PERMUTED[:3],
        permutedProbsOutputGradOptional=[1, 2, 3],
    ),
    "all of a row in topK": lambda: permute_grad(
        [[21, 210]], [[1, 2, 3, 4, 5, 6]], numTopk=6, sortedIndices=[0, 1, 2, 3, 4, 5]
    ),
    "indices outside are dropped": lambda: permute_grad(
        [[1, 10], [0, 0], [6, 60]], [[1, 0], [0, 0], [0, 6]], sortedIndices=[0, -1, 6, 99, -(2**31), 5]
    ),
    "fp16 is summed in fp32": lambda: permute_grad(
        [[2050]],
        [[1, 2, 3]],
        F16,
        numTopk=3,
        sortedIndices=[0, 1, 2],
        rangeOptional=[0, 3],
        permutedTokensOutputGrad=[[2048], [1], [1]],
        permutedProbsOutputGradOptional=[1, 2, 3],
    ),
    "fp16 overflow is infinity": lambda: permute_grad(
        [[INF]],
        [[1, 2]],
        F16,
        sortedIndices=[0, 1],
        rangeOptional=[0, 2],
        permutedTokensOutputGrad=[[40000], [40000]],
        permutedProbsOutputGradOptional=[1, 2],
    ),
    "bf16 rounds once, to even": lambda: permute_grad(
        # 256 + 1 = 257 lies between 256 and 258
        [[256]],
        [[1, 2]],
        BF16,
        sortedIndices=[0, 1],
        rangeOptional=[0, 2],
        permutedTokensOutputGrad=[[256], [1]],
        permutedProbsOutputGradOptional=[1, 2],
    ),
    "NaN reaches its token only": lambda: permute_grad(
        [[NAN, 1], [5, 5]],
        [[1, 2], [3, 4]],
        sortedIndices=[0, 1, 2, 3],
        rangeOptional=[0, 4],
        permutedTokensOutputGrad=[[NAN, 1], [0, 0], [2, 2], [3, 3]],
        permutedProbsOutputGradOptional=[1, 2, 3, 4],
    ),
    "rows beyond the range are not read": lambda: permute_grad(
        [[2, 20], [5, 50], [3, 30]],
        [[0, 2], [4, 1], [3, 0]],
        rangeOptional=[1, 5],
        permutedTokensOutputGrad=[*PART_ROWS, *[[NAN, NAN]] * 2],
        permutedProbsOutputGradOptional=[1, 2, 3, 4, NAN, NAN],
    ),
    "the public sample": lambda: permute_grad(
        [[1, 1], [4, 4], [3, 3]],
        [[0.5, 0], [0.4, 0.2], [0, 0.4]],
        BF16,
        sortedIndices=SORTED,
        rangeOptional=[1, 5],
        permutedTokensOutputGrad=[[2, 2], [1, 1], [3, 3], [2, 2]],
        permutedProbsOutputGradOptional=[0.2, 0.5, 0.4, 0.4],
    ),
}


@parametrise(PERMUTE_GRAD)
def test_token_permute_with_ep_grad(backend: Any, case: Case, product: str | None) -> None:
    run(backend, "aclnnMoeTokenPermuteWithEpGrad", case, product)


# -- aclnnMoeInitRoutingV2: R = 3, K = 2, E = 3 --------------------------------------------------------------

ROUTED = [[1, 2], [0, 1], [0, 2]]  # by expert: slots 2, 4 | 0, 3 | 1, 5
FLAT = [2, 4, 0, 3, 1, 5]
GATHERED = [[2, 20], [3, 30], [1, 10], [2, 20], [1, 10], [3, 30]]


def init(rows: Any, row_idx: Any, counts: Any = None, before: Any = None, dtype: np.dtype = F32, **given: Any) -> Any:
    names = {
        "active": "activeNum",
        "capacity": "expertCapacity",
        "mode": "dropPadMode",
        "count_flag": "expertTokensCountOrCumsumFlag",
        "before_flag": "expertTokensBeforeCapacityFlag",
        "experts": "expertNum",
    }
    args: dict[str, Any] = {"expertNumOptional": 3}
    index_dtype, x, routed = given.pop("index_dtype", I32), given.pop("x", TOKENS), given.pop("routed", ROUTED)
    args |= {names[k] + "Optional": v for k, v in given.items()}
    args |= dict(x=tensor(x, dtype), expertIdx=idx(routed, index_dtype))
    expected = {"expandedXOut": rows, "expandedRowIdxOut": row_idx}
    args |= dict(expandedXOut=buffer(np.shape(rows), dtype), expandedRowIdxOut=buffer((len(row_idx),), I32))
    for name, values in (("CountOrCumsum", counts), ("BeforeCapacity", before)):
        if values is not None:
            args[f"expertTokens{name}OutOptional"] = buffer((len(values),), I32)
            expected[f"expertTokens{name}OutOptional"] = values
    return args, expected


PADDED = [[[2, 20], [3, 30]], [[1, 10], [2, 20]], [[1, 10], [3, 30]]]
UNUSED = [harness.PREFILL] * 3
ROW_0 = [0, 0]
INIT: dict[str, Case | tuple[Case, str]] = {
    # expertIdx flattened: 1 2 0 1 0 2; sorted slots: 2 4 0 3 1 5, so slot 0 lands on 2, slot 1 on 4, ...
    "mode 0 sorts by expert, stable": lambda: init(GATHERED, [2, 4, 0, 3, 1, 5]),
    "mode 0 counts": lambda: init(GATHERED, FLAT, [2, 2, 2], count_flag=2),
    "mode 0 running counts": lambda: init(GATHERED, FLAT, [2, 4, 6], count_flag=1),
    "mode 0 without the flag leaves the counts alone": lambda: init(GATHERED, FLAT, UNUSED, count_flag=0),
    "mode 0 never writes the counts before capacity": lambda: init(GATHERED, FLAT, None, UNUSED, before_flag=True),
    "experts without tokens count zero": lambda: init(
        GATHERED, [2, 4, 0, 3, 1, 5], [0, 2, 0, 2, 2], count_flag=2, experts=5, routed=[[3, 4], [1, 3], [1, 4]]
    ),
    "activeNum cuts the rows, not the index": lambda: init(GATHERED[:4], FLAT, active=4),
    "activeNum beyond R*K changes nothing": lambda: init(GATHERED, FLAT, active=7),
    "activeNum does not change the counts": lambda: init(GATHERED[:1], FLAT, [2, 4, 6], count_flag=1, active=1),
    "mode 1, the public sample's routing": lambda: init(PADDED, [2, 4, 0, 3, 1, 5], mode=1, capacity=2),
    "mode 1 drops what is over capacity": lambda: init(
        [[[2, 20]], [[1, 10]], [[1, 10]]], [1, 2, 0, -1, -1, -1], mode=1, capacity=1
    ),
    "mode 1 pads with zeros": lambda: init(
        [[[2, 20], [3, 30], ROW_0], [[1, 10], [2, 20], ROW_0], [[1, 10], [3, 30], ROW_0]],
        [3, 6, 0, 4, 1, 7],
        mode=1,
        capacity=3,
    ),
    "mode 1 zeroes experts without tokens": lambda: init(
        [[ROW_0, ROW_0], [[1, 10], [1, 10]], [ROW_0, ROW_0]],
        [2, 3, -1, -1, -1, -1],
        mode=1,
        capacity=2,
        routed=[[1, 1], [1, 1], [1, 1]],
    ),
    "mode 1 counts before capacity": lambda: init(
        [[[2, 20]], [[1, 10]], [[1, 10]]], [1, 2, 0, -1, -1, -1], None, [2, 2, 2], mode=1, capacity=1, before_flag=True
    ),
    "mode 1 without the flag leaves them alone": lambda: init(
        PADDED, FLAT, None, UNUSED, mode=1, capacity=2, before_flag=False
    ),
    "mode 1 never writes the other counts": lambda: init(PADDED, FLAT, UNUSED, mode=1, capacity=2, count_flag=1),
    "mode 1 ignores activeNum": lambda: init(PADDED, FLAT, mode=1, capacity=2, active=1),
    "bf16 rows are copied": lambda: init(GATHERED, FLAT, dtype=BF16),
    "fp16 infinities are copied": lambda: init(
        [[INF], [-INF]], [1, 0], dtype=F16, x=[[-INF], [INF]], routed=[[1], [0]]
    ),
    "950 takes int64 experts": (lambda: init(GATHERED, FLAT, index_dtype=I64), "950"),
    "950 takes one-dimensional experts": (
        lambda: init([[2, 20], [3, 30], [1, 10]], [2, 0, 1], [1, 2, 3], count_flag=1, routed=[2, 0, 1]),
        "950",
    ),
}


@parametrise(INIT)
def test_init_routing_v2(backend: Any, case: Case, product: str | None) -> None:
    run(backend, "aclnnMoeInitRoutingV2", case, product)


def test_init_routing_v2_public_sample(backend: Any) -> None:
    args = harness.arguments(
        "aclnnMoeInitRoutingV2",
        x=tensor([[0.1] * 4, [0.2] * 4, [0.3] * 4]),
        expertIdx=idx(ROUTED),
        activeNumOptional=1,
        expertCapacityOptional=2,
        expertNumOptional=3,
        dropPadModeOptional=1,
        expandedXOut=buffer((3, 2, 4)),
        expandedRowIdxOut=buffer((6,), I32),
    )
    harness.call(backend, "aclnnMoeInitRoutingV2", args)
    assert args["expandedRowIdxOut"].tolist() == [2, 4, 0, 3, 1, 5]
    rows = tensor([[0.2] * 4, [0.3] * 4, [0.1] * 4, [0.2] * 4, [0.1] * 4, [0.3] * 4]).reshape(3, 2, 4)
    assert oracle.same_bits(args["expandedXOut"], rows).all()


# -- degenerate sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 2])
def test_finalize_without_tokens_succeeds(backend: Any, mode: int) -> None:
    given, _ = finalize([], mode=mode, expandedX=np.zeros((0, 2)), scalesOptional=np.zeros((0, 2)), expandedRowIdx=[])
    harness.check(backend, "aclnnMoeFinalizeRoutingV2", **(given | dict(out=buffer((0, 2)))))


def test_gradient_with_no_hidden_elements_has_zero_scale_gradients(backend: Any) -> None:
    outputs = harness.check(
        backend,
        "aclnnMoeFinalizeRoutingV2Grad",
        gradY=tensor(np.zeros((2, 0))),
        expandedRowIdx=idx([0, 1]),
        expandedXOptional=tensor(np.zeros((2, 0))),
        scalesOptional=tensor(np.ones((2, 1))),
        gradExpandedXOut=buffer((2, 0)),
        gradScalesOut=buffer((2, 1)),
    )
    assert outputs["gradScalesOut"].tolist() == [[0], [0]]


def test_init_routing_without_tokens_counts_zero(backend: Any) -> None:
    given, expected = init(np.zeros((0, 2)), [], [0, 0, 0], x=np.zeros((0, 2)), routed=np.zeros((0, 2)), count_flag=1)
    run(backend, "aclnnMoeInitRoutingV2", lambda: (given, expected))
