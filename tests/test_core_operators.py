"""The core operators: values over dtypes, shapes and layouts, statuses, and reference against emulator."""

from __future__ import annotations

from typing import Any

import core_oracle as oracle
import harness
import numpy as np
import pytest
from core_cases import OPERATORS, Case
from core_index_cases import BUILDERS, draw

import aclnn_py
from aclnn_py import errors, reference, signatures

SEEDS = range(12)


def test_every_operator_has_cases_and_a_reference() -> None:
    assert len(OPERATORS) == 141
    assert set(BUILDERS) == set(OPERATORS)
    assert set(OPERATORS) <= set(reference.OPERATORS)


def _has(backend: Any, op: str) -> None:
    if not backend.has(op):
        pytest.skip(f"{backend.name} does not have {op}")


def _root(array: np.ndarray) -> np.ndarray:
    return array if not isinstance(array.base, np.ndarray) else array.base


def _beside(array: np.ndarray) -> np.ndarray:
    """The elements of the memory of a view that are not in the view."""
    root = _root(array)
    mark = np.zeros(root.shape, bool)
    first = (array.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // root.itemsize
    steps = tuple(s // root.itemsize for s in array.strides)
    view = np.lib.stride_tricks.as_strided(mark.reshape(-1)[first:], array.shape, steps)
    if array.size:
        view[...] = True
    return root[~mark]


def _flat(args: dict[str, Any]) -> list[np.ndarray]:
    lists = [v if isinstance(v, list) else [v] for v in args.values()]
    return [array for entries in lists for array in entries if isinstance(array, np.ndarray)]


def run(backend: Any, case: Case) -> dict[str, np.ndarray]:
    """Run a case; nothing but the outputs may change, not even beside them in memory."""
    outputs = [case.args[name] for name in case.wants]
    inputs = [a for a in _flat(case.args) if not any(a is out for out in outputs)]
    before = [_root(a).tobytes() for a in inputs]
    beside = [_beside(out).tobytes() if _root(out).flags.c_contiguous else b"" for out in outputs]
    harness.execute(backend, case.op, case.args)
    assert [_root(a).tobytes() for a in inputs] == before, f"{case.op} changed an input"
    for out, old in zip(outputs, beside, strict=True):
        assert not old or _beside(out).tobytes() == old, f"{case.op} wrote beside its output"
    return {name: case.args[name] for name in case.wants}


def shown(case: Case) -> str:
    lines = [f"{case.op}"]
    for name, value in case.args.items():
        what = f"{value.dtype} {value.shape} strides {value.strides}" if isinstance(value, np.ndarray) else repr(value)
        lines.append(f"  {name}: {what}")
    return "\n".join(lines)


@pytest.mark.parametrize("op", OPERATORS)
def test_values(backend: Any, op: str) -> None:
    _has(backend, op)
    for seed in SEEDS:
        case = draw(op, seed)
        for name, got in run(backend, case).items():
            want = case.wants[name]
            bad = oracle.mismatch(got, want)
            assert got.shape == want.values.shape or "Inplace" in op or got.size == 0
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                low, high = (np.broadcast_to(bound, got.shape)[at] for bound in want.bounds(got.dtype.name))
                raise AssertionError(f"seed {seed}: {name}{list(at)} is {got[at]!r}, not {low!r} to {high!r}\n{shown(case)}")


def _status(backend: Any, op: str, args: dict[str, Any]) -> tuple[int, str]:
    before = {n: v.tobytes() for n, v in args.items() if isinstance(v, np.ndarray)}
    try:
        harness.execute(backend, op, args)
    except errors.AclnnError as error:
        assert {n: v.tobytes() for n, v in args.items() if isinstance(v, np.ndarray)} == before, "a refused call wrote"
        return int(error.code or -1), error.detail
    return 0, ""


def _plain_case(op: str) -> Case:
    """A call with an output that has elements and no more than three dimensions."""
    for seed in range(100, 400):
        case = draw(op, seed)
        arrays = _flat(case.args)
        optional = [v for v in case.args.values() if v is None]
        if not optional and all(a.size and 0 < a.ndim < 4 for a in arrays):
            return case
    raise AssertionError(f"no plain case of {op}")


def _tensors(op: str) -> list[str]:
    return [p.name for p in signatures.find(op).parameters if p.kind.startswith("tensor")]


#: Parameters that may be null where another of them is not.
OPTIONAL = {"aclnnClamp": ("clipValueMin", "clipValueMax"), "aclnnClampTensor": ("clipValueMin", "clipValueMax")}


@pytest.mark.parametrize("op", OPERATORS)
def test_null_is_refused(backend: Any, op: str) -> None:
    _has(backend, op)
    args = _plain_case(op).args
    pointers = [p.name for p in signatures.find(op).parameters if p.ctype.endswith("*")]
    for name in pointers:
        code, detail = _status(backend, op, args | {name: None})
        if name in OPTIONAL.get(op, ()):
            assert code == 0
        else:
            assert (code, name in detail) == (161001, True), detail
    if op in OPTIONAL:
        assert _status(backend, op, args | dict.fromkeys(OPTIONAL[op]))[0] == 161001


@pytest.mark.parametrize("op", OPERATORS)
def test_dtype_outside_the_list_is_refused(backend: Any, op: str) -> None:
    _has(backend, op)
    args = _plain_case(op).args
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            other: Any = np.ones(value.shape, np.complex64)
        elif isinstance(value, aclnn_py.Scalar):
            other = aclnn_py.Scalar(1, "complex64")
        elif isinstance(value, list) and isinstance(value[0], np.ndarray):
            other = [*value, np.ones(value[0].shape, np.complex64)]
        else:
            continue
        code, detail = _status(backend, op, args | {name: other})
        assert (code, name in detail) == (161002, True), detail


@pytest.mark.parametrize("op", [op for op in OPERATORS if len(_tensors(op)) > 1 or op == "aclnnArange"])
def test_output_of_a_wrong_shape_is_refused(backend: Any, op: str) -> None:
    _has(backend, op)
    case = _plain_case(op)
    for name in case.wants:
        old = case.args[name]
        # more elements than the inputs have; in place, fewer
        shape = (*old.shape[:-1], old.shape[-1] + 7) if "Inplace" not in op or op == "aclnnInplaceAddmm" else ()
        code, detail = _status(backend, op, case.args | {name: np.zeros(shape, old.dtype)})
        assert code == 161002
        assert "shape" in detail


@pytest.mark.parametrize("op", [op for op in OPERATORS if op not in ("aclnnArange", "aclnnCat")])
def test_nine_dimensions_are_refused(backend: Any, op: str) -> None:
    _has(backend, op)
    args = dict(_plain_case(op).args)
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            args[name] = np.ones((1,) * 9, value.dtype)
    assert _status(backend, op, args)[0] == 161002


@pytest.mark.parametrize(
    "op", [o for o in OPERATORS if any(p.name == "dim" and p.kind == "int" for p in signatures.find(o).parameters)]
)
def test_dim_out_of_range_is_refused(backend: Any, op: str) -> None:
    _has(backend, op)
    args = _plain_case(op).args
    first = next(iter(args.values()))
    rank = (first[0] if isinstance(first, list) else first).ndim
    for dim in (rank, -rank - 1, 2**40):
        code, detail = _status(backend, op, args | {"dim": dim})
        assert (code, "dim" in detail) == (161002, True), detail


F4, F2, I4, I8, B1 = (np.dtype(t) for t in ("f4", "f2", "i4", "i8", "?"))


def _z(*shape: int, dtype: Any = F4) -> np.ndarray:
    return np.zeros(shape, dtype)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("aclnnAdd", {"self": _z(2), "other": _z(2), "alpha": 1, "out": _z(2, dtype=I4)}, "out"),
    ("aclnnAdd", {"self": _z(2, dtype=I4), "other": _z(2, dtype=I4), "alpha": 1.5, "out": _z(2)}, "alpha"),
    ("aclnnAdd", {"self": _z(2, 3), "other": _z(2, 2), "alpha": 1, "out": _z(2, 3)}, "other"),
    ("aclnnMul", {"self": _z(2, dtype=I4), "other": _z(2, dtype=I4), "out": _z(2, dtype=B1)}, "out"),
    ("aclnnInplaceMuls", {"selfRef": _z(2, dtype=I4), "other": 1.5}, "selfRef"),
    ("aclnnInplaceAdd", {"selfRef": _z(1, 3), "other": _z(2, 3), "alpha": 1}, "selfRef"),
    ("aclnnSub", {"self": _z(2, dtype=B1), "other": _z(2, dtype=B1), "alpha": 1, "out": _z(2)}, "self"),
    ("aclnnNeg", {"self": _z(2, dtype=B1), "out": _z(2, dtype=B1)}, "self"),
    ("aclnnDiv", {"self": _z(2, dtype=I4), "other": _z(2, dtype=I4), "out": _z(2, dtype=I4)}, "out"),
    ("aclnnPowTensorScalar", {"self": _z(2, dtype=I4), "exponent": -1, "out": _z(2, dtype=I4)}, "exponent"),
    ("aclnnBitwiseAndTensor", {"self": _z(2), "other": _z(2, dtype=I4), "out": _z(2)}, "self"),
    ("aclnnGelu", {"self": _z(2, dtype=I4), "out": _z(2)}, "self"),
    ("aclnnSWhere", {"condition": _z(2), "self": _z(2), "other": _z(2), "out": _z(2)}, "condition"),
    ("aclnnCast", {"self": _z(2), "dtype": 1, "out": _z(2)}, "dtype"),
    ("aclnnInplaceCopy", {"selfRef": _z(2, 1), "src": _z(2, 3)}, "selfRef"),
    ("aclnnInplaceCopy", {"selfRef": _z(2, 2), "src": _z(2, 3)}, "src"),
    ("aclnnArange", {"start": 0, "end": 5, "step": 0, "out": _z(5)}, "step"),
    ("aclnnArange", {"start": 0, "end": 5, "step": -1, "out": _z(5)}, "step"),
    ("aclnnArange", {"start": 0, "end": 5, "step": 2, "out": _z(2)}, "out"),
    ("aclnnMm", {"self": _z(2, 3), "mat2": _z(2, 3), "out": _z(2, 3), "cubeMathType": 0}, "mat2"),
    ("aclnnMm", {"self": _z(2, 3), "mat2": _z(3, 2), "out": _z(2, 2), "cubeMathType": 4}, "cubeMathType"),
    ("aclnnMm", {"self": _z(2, 3), "mat2": _z(3, 2), "out": _z(2, 2), "cubeMathType": -1}, "cubeMathType"),
    ("aclnnMm", {"self": _z(2, 3, dtype=I4), "mat2": _z(3, 2), "out": _z(2, 2), "cubeMathType": 0}, "self"),
    ("aclnnMm", {"self": _z(1, 2, 3), "mat2": _z(3, 2), "out": _z(2, 2), "cubeMathType": 0}, "self"),
    ("aclnnBatchMatMul", {"self": _z(2, 2, 3), "mat2": _z(1, 3, 2), "out": _z(2, 2, 2), "cubeMathType": 0}, "mat2"),
    ("aclnnSoftmax", {"self": _z(2, dtype=I4), "dim": 0, "out": _z(2)}, "self"),
    ("aclnnReduceSum", {"self": _z(2, 2), "dims": [0, -2], "keepDims": False, "dtype": 0, "out": _z(2)}, "dims"),
    ("aclnnReduceSum", {"self": _z(2, 2), "dims": [2], "keepDims": False, "dtype": 0, "out": _z(2)}, "dims"),
    ("aclnnReduceSum", {"self": _z(2, 2), "dims": [0], "keepDims": False, "dtype": 1, "out": _z(2)}, "dtype"),
    ("aclnnMean", {"self": _z(2, 2), "dim": [0], "keepDim": False, "dtype": 3, "out": _z(2, dtype=I4)}, "out"),
    ("aclnnAmax", {"self": _z(0, 2), "dim": [0], "keepDim": False, "out": _z(2)}, "self"),
    ("aclnnArgMax", {"self": _z(0, 2), "dim": 0, "keepdim": False, "out": _z(2, dtype=I8)}, "self"),
    ("aclnnArgMax", {"self": _z(2), "dim": 0, "keepdim": False, "out": np.zeros((), F4)}, "out"),
    (
        "aclnnTopk",
        {"self": _z(4), "k": 5, "dim": 0, "largest": True, "sorted": True, "valuesOut": _z(5), "indicesOut": _z(5, dtype=I8)},
        "k",
    ),
    ("aclnnGather", {"self": _z(2, 2), "dim": 0, "index": _z(2, 3, dtype=I8), "out": _z(2, 3)}, "index"),
    ("aclnnGather", {"self": _z(2, 2), "dim": 0, "index": _z(2, 2), "out": _z(2, 2)}, "index"),
    ("aclnnIndexSelect", {"self": _z(2, 2), "dim": 0, "index": _z(2, 2, dtype=I8), "out": _z(2, 2)}, "index"),
    ("aclnnScatterAdd", {"self": _z(3), "dim": 0, "index": _z(2, dtype=I8), "src": _z(1), "out": _z(3)}, "index"),
    ("aclnnScatterAdd", {"self": _z(3), "dim": 0, "index": _z(2, dtype=I8), "src": _z(2, dtype=F2), "out": _z(3)}, "src"),
    ("aclnnCat", {"tensors": [], "dim": 0, "out": _z(2)}, "tensors"),
    ("aclnnCat", {"tensors": [_z(2, 3), _z(2, 2)], "dim": 0, "out": _z(4, 3)}, "tensors"),
    ("aclnnCat", {"tensors": [_z(1), _z(1, dtype=F2)], "dim": 0, "out": _z(2, dtype=I4)}, "out"),
    ("aclnnPermute", {"self": _z(2, 3), "dims": [0, 0], "out": _z(2, 3)}, "dims"),
    ("aclnnPermute", {"self": _z(2, 3), "dims": [1], "out": _z(3, 2)}, "dims"),
]


@pytest.mark.parametrize(("op", "args", "name"), REFUSED, ids=[f"{i}-{row[0][5:]}" for i, row in enumerate(REFUSED)])
def test_wrong_arguments_are_refused(backend: Any, op: str, args: dict[str, Any], name: str) -> None:
    _has(backend, op)
    code, detail = _status(backend, op, args)
    assert (code, name in detail) == (161002, True), detail
