"""The value and status cases of data/golden.json: two gradient operators, computed outside this project."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import numpy as np
import oracle
import pytest
from harness import BF16, F16, F32, I32, I64, buffer, idx, tensor

from aclnn_py import errors

GOLDEN = json.loads(Path(__file__).with_name("data").joinpath("golden.json").read_text(encoding="utf-8"))
FINALIZE, UNPERMUTE = "aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"
DTYPES = {"float32": F32, "float16": F16, "bfloat16": BF16, "int32": I32}
PRODUCT = {"910b": "A2", "910_93": "A3", "950": "950"}
OPTIONAL = ("expandedX", "scales", "expertIdx", "bias", "permutedTokens", "probs", "restoreShape", "range")

VALUE_CASES = [
    pytest.param(case, PRODUCT[product], id=f"{case['name']}-{PRODUCT[product]}")
    for case in GOLDEN["cases"]
    for product in case["products"]
]


def c_name(name: str) -> str:
    return name + "Optional" if name in OPTIONAL else name


def golden_call(case: dict[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {c_name(k): v for k, v in case["attrs"].items()}
    for name, values in case["inputs"].items():
        dtype = DTYPES[case["dtypes"][name]]
        args[c_name(name)] = None if values is None else tensor(values, dtype, case["input_shapes"][name])
    for name, output in case["outputs"].items():
        args[name + "Out"] = buffer(output["shape"], DTYPES[case["dtypes"][name]], GOLDEN["prefill"])
    return harness.arguments(case["op"], **args)


@pytest.mark.parametrize(("case", "product"), VALUE_CASES)
def test_value_case(backend: Any, case: dict[str, Any], product: str) -> None:
    args = golden_call(case)
    if case["status"]:
        assert harness.status_of(backend, case["op"], args, product)[0] == case["status"]
        return
    harness.call(backend, case["op"], args, product)
    for name, output in case["outputs"].items():
        actual, shape = args[name + "Out"], output["shape"]
        values = np.array(output["value"], np.float64).reshape(shape)  # "inf" and "nan" parse as floats
        expected = values.astype(F32).astype(actual.dtype)
        assert (oracle.wide(expected) == values).all(), "golden values must be exact in their dtype"
        rows = output.get("unwritten_flat_rows", output.get("unwritten_rows", []))
        unwritten = np.zeros(shape, bool)
        unwritten.reshape(-1, shape[-1])[rows] = True
        unwritten |= not output.get("written", True)
        assert (actual[unwritten] == GOLDEN["prefill"]).all(), f"{name}: wrote what the kernel leaves alone"
        if case["bit_exact"]:
            assert oracle.same_bits(actual, expected).all(), f"{name}: {actual.tolist()} != {expected.tolist()}"
        else:
            np.testing.assert_allclose(oracle.wide(actual), values, **case["tolerance"])


@pytest.mark.parametrize(
    "case", [c for c in GOLDEN["cases"] if not c["status"]], ids=[c["name"] for c in GOLDEN["cases"] if not c["status"]]
)
def test_the_oracle_agrees(case: dict[str, Any]) -> None:
    """The oracle of the other tests gives the golden values too, so both rest on the same facts."""
    args = golden_call(case)
    for name, expected in oracle.expect(case["op"], args).items():
        out = args[name]
        golden = np.array(case["outputs"][name.removesuffix("Out")]["value"], np.float64).reshape(out.shape)
        bad = oracle.mismatches(golden.astype(F32).astype(out.dtype), expected, out)
        assert not bad.any(), f"{case['name']} {name} at {np.argwhere(bad).tolist()}"


def finalize_call() -> dict[str, Any]:
    """R=3, K=2, H=4, E=3 with scales and bias, mode 0."""
    x, y = np.arange(24.0).reshape(6, 4), np.arange(12.0).reshape(3, 4)
    return dict(
        gradY=tensor(y),
        expandedRowIdx=idx([2, 0, 5, 1, 3, 4]),
        expandedXOptional=tensor(x),
        scalesOptional=tensor(np.ones((3, 2))),
        expertIdxOptional=idx([[0, 2], [1, 0], [2, 1]]),
        biasOptional=tensor(y),
        gradExpandedXOut=buffer((6, 4)),
        gradScalesOut=buffer((3, 2)),
    )


def unpermute_call() -> dict[str, Any]:
    """T=3, topK=2, H=4, N=6 with permutedTokens and probs."""
    return dict(
        unpermutedTokensGrad=tensor(np.arange(12.0).reshape(3, 4)),
        sortedIndices=idx([2, 0, 4, 1, 5, 3]),
        permutedTokensOptional=tensor(np.arange(24.0).reshape(6, 4)),
        probsOptional=tensor(np.ones((3, 2))),
        rangeOptional=[0, 6],
        topkNum=2,
        permutedTokensGradOut=buffer((6, 4)),
        probsGradOut=buffer((3, 2)),
    )


def mode1(**changes: Any) -> dict[str, Any]:
    return (
        dict(
            dropPadMode=1,
            expertNum=3,
            expertCapacity=2,
            expandedRowIdx=idx([0, -1, 2, 1, -1, 4]),
            expandedXOptional=tensor(np.ones((3, 2, 4))),
            gradExpandedXOut=buffer((3, 2, 4)),
        )
        | changes
    )


def k1(**changes: Any) -> dict[str, Any]:
    """No scales: K = 1, so three indices for three tokens."""
    none = dict.fromkeys(("expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional"))
    return (
        none
        | dict(expandedRowIdx=idx([2, 0, 1]), gradExpandedXOut=buffer((3, 4)), gradScalesOut=buffer((3, 1)))
        | changes
    )


ONES = np.ones
HALF = dict(
    gradY=tensor(ONES((3, 4)), F16),
    expandedXOptional=tensor(ONES((6, 4)), F16),
    biasOptional=tensor(ONES((3, 4)), F16),
    gradExpandedXOut=buffer((6, 4), F16),
)
Change = Callable[[], dict[str, Any]]
# what golden.json perturbs -> how; a list of changes means: each of them alone
CHANGES: dict[tuple[str, str], Change | list[Change]] = {
    (FINALIZE, "expandedRowIdx null"): lambda: dict(expandedRowIdx=None),
    (FINALIZE, "gradExpandedXOut null"): lambda: dict(gradExpandedXOut=None),
    (FINALIZE, "gradScalesOut null while scales null"): lambda: k1(gradScalesOut=None),
    (FINALIZE, "gradY int8 (non-empty)"): lambda: dict(gradY=np.ones((3, 4), np.int8)),
    (FINALIZE, "expandedX dtype != gradY (even if scales null)"): [
        lambda: dict(expandedXOptional=tensor(ONES((6, 4)), F16)),
        lambda: k1(expandedXOptional=tensor(ONES((3, 4)), F16)),
    ],
    (FINALIZE, "expertIdx int64"): lambda: dict(expertIdxOptional=idx([[0, 2], [1, 0], [2, 1]], I64)),
    (FINALIZE, "gradExpandedXOut dtype != gradY"): lambda: dict(gradExpandedXOut=buffer((6, 4), F16)),
    (FINALIZE, "scales int32"): lambda: dict(scalesOptional=np.ones((3, 2), I32)),
    (FINALIZE, "A2/A3: scales fp32 with gradY fp16, gradScalesOut fp32"): lambda: HALF,
    (FINALIZE, "A2/A3: scales null, gradScalesOut dtype != gradY"): lambda: k1(gradScalesOut=buffer((3, 1), F16)),
    (FINALIZE, "dropPadMode 2"): lambda: dict(dropPadMode=2),
    (FINALIZE, "dropPadMode -1"): lambda: dict(dropPadMode=-1),
    (FINALIZE, "dropPadMode 1 with expertCapacity 0"): lambda: mode1(expertCapacity=0),
    (FINALIZE, "gradY rank 3"): lambda: dict(gradY=tensor(ONES((3, 4, 1)))),
    (FINALIZE, "scales without expandedX"): lambda: dict(expandedXOptional=None),
    (FINALIZE, "bias without expertIdx (scales given)"): lambda: dict(expertIdxOptional=None),
    (FINALIZE, "expandedX rank 2 in mode 1"): lambda: mode1(expandedXOptional=tensor(ONES((6, 4)))),
    (FINALIZE, "expandedX dim0 != min(activeNum, R*K)"): [
        lambda: dict(activeNum=4, gradExpandedXOut=buffer((4, 4))),
        lambda: dict(expandedXOptional=tensor(ONES((7, 4)))),
    ],
    (FINALIZE, "scales dim0 != R"): lambda: dict(scalesOptional=tensor(ONES((2, 3)))),
    (FINALIZE, "scales numel != R*K"): lambda: dict(scalesOptional=tensor(ONES((3, 3)))),
    (FINALIZE, "expertIdx dim0 != R"): lambda: dict(expertIdxOptional=idx([[0, 1, 2], [2, 1, 0]])),
    (FINALIZE, "bias dim1 != H"): lambda: dict(biasOptional=tensor(ONES((3, 5)))),
    (FINALIZE, "scales null and gradY dim0 != expandedRowIdx dim0"): lambda: k1(
        expandedRowIdx=idx([0, 1, 2, 3, 4, 5]), gradExpandedXOut=buffer((6, 4))
    ),
    (FINALIZE, "gradExpandedXOut dim0 wrong (mode 0)"): lambda: dict(gradExpandedXOut=buffer((5, 4))),
    (FINALIZE, "gradScalesOut rank 1 (scales given)"): lambda: dict(gradScalesOut=buffer((6,))),
    (FINALIZE, "gradScalesOut numel wrong (scales given)"): lambda: dict(gradScalesOut=buffer((3, 1))),
    (FINALIZE, "gradScalesOut any shape, scales null"): [
        lambda: k1(gradScalesOut=buffer((1,))),
        lambda: k1(gradScalesOut=buffer((2, 3, 4))),
        lambda: k1(gradScalesOut=buffer((0,))),
    ],
    (UNPERMUTE, "sortedIndices null"): lambda: dict(sortedIndices=None),
    (UNPERMUTE, "permutedTokensGradOut null"): lambda: dict(permutedTokensGradOut=None),
    (UNPERMUTE, "unpermutedTokensGrad int8"): lambda: dict(unpermutedTokensGrad=np.ones((3, 4), np.int8)),
    (UNPERMUTE, "sortedIndices int64"): lambda: dict(sortedIndices=idx([2, 0, 4, 1, 5, 3], I64)),
    (UNPERMUTE, "probsGradOut int32"): lambda: dict(probsGradOut=buffer((3, 2), I32)),
    (UNPERMUTE, "probs dtype != probsGradOut dtype"): lambda: dict(probsOptional=tensor(ONES((3, 2)), F16)),
    (UNPERMUTE, "permutedTokens dtype != unpermutedTokensGrad"): lambda: dict(
        permutedTokensOptional=tensor(ONES((6, 4)), BF16)
    ),
    (UNPERMUTE, "sortedIndices rank 2"): lambda: dict(sortedIndices=idx([[2, 0, 4], [1, 5, 3]])),
    (UNPERMUTE, "topkNum 0, probs null"): lambda: dict(probsOptional=None, topkNum=0),
    (UNPERMUTE, "topkNum -1, probs null"): lambda: dict(probsOptional=None, topkNum=-1),
    (UNPERMUTE, "range length 1 or 3"): [lambda: dict(rangeOptional=[0]), lambda: dict(rangeOptional=[0, 3, 6])],
    (UNPERMUTE, "range {3,3}"): lambda: dict(rangeOptional=[3, 3]),
    (UNPERMUTE, "unpermutedTokensGrad rank 3"): lambda: dict(unpermutedTokensGrad=tensor(ONES((3, 4, 1)))),
    (UNPERMUTE, "probs rank 1"): lambda: dict(probsOptional=tensor(ONES(6))),
    (UNPERMUTE, "sortedIndices dim0 != tokens_num*topK"): lambda: dict(sortedIndices=idx([2, 0, 4, 1, 3])),
    (UNPERMUTE, "permutedTokens rank 3"): lambda: dict(permutedTokensOptional=tensor(ONES((6, 4, 1)))),
    (UNPERMUTE, "permutedTokens dim0 neither N nor end-start"): lambda: dict(
        rangeOptional=[1, 5], permutedTokensOptional=tensor(ONES((5, 4))), permutedTokensGradOut=buffer((5, 4))
    ),
    (UNPERMUTE, "permutedTokensGradOut shape wrong"): [
        lambda: dict(permutedTokensGradOut=buffer((5, 4))),
        lambda: dict(permutedTokensGradOut=buffer((6, 5))),
        lambda: dict(permutedTokensGradOut=buffer((24,))),
    ],
    (UNPERMUTE, "hidden 0 with probs given (probsGradOut non-empty)"): lambda: dict(
        unpermutedTokensGrad=tensor(ONES((3, 0))),
        permutedTokensOptional=tensor(ONES((6, 0))),
        permutedTokensGradOut=buffer((6, 0)),
    ),
    (UNPERMUTE, "tokens_num 0 (all outputs empty)"): lambda: dict(
        unpermutedTokensGrad=tensor(ONES((0, 4))),
        sortedIndices=idx([]),
        rangeOptional=None,
        permutedTokensOptional=tensor(ONES((0, 4))),
        probsOptional=tensor(ONES((0, 2))),
        permutedTokensGradOut=buffer((0, 4)),
        probsGradOut=buffer((0, 2)),
    ),
}
#: cases about pointers that the Executor owns: they exist at the C boundary only
C_POINTERS = ("workspaceSize null", "executor null", "workspaceSize>0 and workspace null")
STATUS_CASES = [
    pytest.param(case, change, id=f"{case['op'].removeprefix('aclnnMoe')}-{case['what']}-{position}")
    for case in GOLDEN["status_cases"]
    if case["what"] not in C_POINTERS
    for change_or_list in [CHANGES[case["op"], case["what"]]]
    for position, change in enumerate(change_or_list if isinstance(change_or_list, list) else [change_or_list])
]
EXCEPTIONS = {
    161001: errors.NullptrError,
    161002: errors.InvalidParameterError,
    561002: errors.TilingError,
    561103: errors.InnerNullptrError,
}


def test_every_status_case_is_covered() -> None:
    known = set(CHANGES) | {(op, what) for op in (FINALIZE, UNPERMUTE) for what in C_POINTERS}
    assert len(GOLDEN["status_cases"]) == 54
    assert {(c["op"], c["what"]) for c in GOLDEN["status_cases"]} <= known


@pytest.mark.parametrize(("case", "change"), STATUS_CASES)
def test_status_case(backend: Any, case: dict[str, Any], change: Change) -> None:
    op = case["op"]
    build = finalize_call if op == FINALIZE else unpermute_call
    product = "A3" if case["what"].startswith("A2/A3") else None
    code, error = harness.status_of(backend, op, harness.valid_call(op, build, **change()), product)
    assert code == case["host"], str(error)
    if code:
        assert type(error) is EXCEPTIONS[code]


POINTER_CASES = [
    pytest.param(case, id=f"{case['op'].removeprefix('aclnnMoe')}-{case['what']}-stage{case['stage']}")
    for case in GOLDEN["status_cases"]
    if case["what"] in C_POINTERS
]


@pytest.mark.parametrize("case", POINTER_CASES)
def test_status_of_pointers_that_the_executor_owns(backend: Any, case: dict[str, Any]) -> None:
    """Straight calls of both stages with one null too many; the tensors are those of a valid call."""
    if backend.name == "reference":
        pytest.skip("the reference has no C pointers: run with --backends emulator")
    from aclnn_py._ffi import ffi
    from aclnn_py.descriptors import BY_VALUE, make

    op = case["op"]
    signature = backend.signature(op)
    args = harness.valid_call(op, finalize_call if op == FINALIZE else unpermute_call)
    stage_one, stage_two = backend.plan(signature)
    owners, pointers = [], []
    with backend.runtime.on_device(backend.device):
        for parameter in signature.parameters:
            value = args[parameter.name]
            if isinstance(value, np.ndarray):
                value = backend.to_device(value)
            owner = None if value is None or parameter.kind in BY_VALUE else make(backend.api, parameter.kind, value)
            owners.append((value, owner))
            pointers.append(ffi.NULL if value is None else value if owner is None else owner.pointer)
        size, executor = ffi.new("uint64_t *"), ffi.new("aclOpExecutor **")
        if case["stage"] == 1:
            size_or_null = ffi.NULL if case["what"] == "workspaceSize null" else size
            code = stage_one(*pointers, size_or_null, ffi.NULL if case["what"] == "executor null" else executor)
            assert executor[0] == ffi.NULL
        else:
            assert stage_one(*pointers, size, executor) == 0
            assert size[0] > 0
            stream = backend.create_stream()
            if case["what"] == "executor null":
                code = stage_two(ffi.NULL, 0, ffi.NULL, stream.handle)
                assert backend.api.aclDestroyAclOpExecutor(executor[0]) == 0
            else:
                code = stage_two(ffi.NULL, size[0], executor[0], stream.handle)
            stream.close()
        for _, owner in owners:
            if owner is not None:
                owner.close()
    assert code == case["host"] == 161001


@pytest.mark.parametrize("op", [FINALIZE, UNPERMUTE])
def test_the_unperturbed_calls_succeed(backend: Any, op: str) -> None:
    """Otherwise the status cases above could fail for a reason of their own."""
    build = finalize_call if op == FINALIZE else unpermute_call
    harness.check(backend, op, **build())
    if op == FINALIZE:
        harness.check(backend, op, **(build() | k1()))
        harness.check(backend, op, **(build() | mode1()))
