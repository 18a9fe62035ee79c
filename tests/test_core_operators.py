"""The core operators: values over dtypes, shapes and layouts, statuses, and reference against emulator."""

from __future__ import annotations

from typing import Any

import core_oracle as oracle
import harness
import numpy as np
import pytest
from core_cases import OPERATORS, Case
from core_index_cases import BUILDERS, draw, spoiled

import aclnn_py
from aclnn_py import dtypes, errors, reference, signatures

SEEDS = range(12)


def test_every_operator_has_cases_and_a_reference() -> None:
    assert len(OPERATORS) == 165
    assert set(BUILDERS) == set(OPERATORS)
    assert set(OPERATORS) <= set(reference.OPERATORS)


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
    for seed in SEEDS:
        case = draw(op, seed)
        for name, got in run(backend, case).items():
            want = case.wants[name]
            bad = oracle.mismatch(got, want)
            assert got.shape == want.values.shape or "Inplace" in op or got.size == 0
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                low, high = (np.broadcast_to(bound, got.shape)[at] for bound in want.bounds(got.dtype.name))
                found = f"{name}{list(at)} is {got[at]!r}, not {low!r} to {high!r}"
                raise AssertionError(f"seed {seed}: {found}\n{shown(case)}")


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
        whole = case.args["out"] if op in ("aclnnMax", "aclnnMin") else None  # their output has no dimension
        if not optional and all(a.size and (a is whole or 0 < a.ndim < 4) for a in arrays):
            return case
    raise AssertionError(f"no plain case of {op}")


def _tensors(op: str) -> list[str]:
    return [p.name for p in signatures.find(op).parameters if p.kind.startswith("tensor")]


#: Parameters that may be null where another of them is not.
OPTIONAL = {"aclnnClamp": ("clipValueMin", "clipValueMax"), "aclnnClampTensor": ("clipValueMin", "clipValueMax")}


@pytest.mark.parametrize("op", OPERATORS)
def test_null_is_refused(backend: Any, op: str) -> None:
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
    case = _plain_case(op)
    for name in case.wants:
        old = case.args[name]
        # more elements than the inputs have; in place, fewer
        shape = (*old.shape[:-1], sum(old.shape[-1:]) + 7) if "Inplace" not in op or op == "aclnnInplaceAddmm" else ()
        if op == "aclnnInplaceScatter":
            shape = (*old.shape, 1)
        code, detail = _status(backend, op, case.args | {name: np.zeros(shape, old.dtype)})
        assert code == 161002
        assert "shape" in detail


@pytest.mark.parametrize("op", [op for op in OPERATORS if op not in ("aclnnArange", "aclnnCat")])
def test_nine_dimensions_are_refused(backend: Any, op: str) -> None:
    args = dict(_plain_case(op).args)
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            args[name] = np.ones((1,) * 9, value.dtype)
    assert _status(backend, op, args)[0] == 161002


@pytest.mark.parametrize(
    "op", [o for o in OPERATORS if any(p.name == "dim" and p.kind == "int" for p in signatures.find(o).parameters)]
)
def test_dim_out_of_range_is_refused(backend: Any, op: str) -> None:
    args = _plain_case(op).args
    first = next(iter(args.values()))
    rank = (first[0] if isinstance(first, list) else first).ndim + (op == "aclnnStack")
    for dim in (rank, -rank - 1, 2**40):
        code, detail = _status(backend, op, args | {"dim": dim})
        assert (code, "dim" in detail) == (161002, True), detail


F4, F2, I4, I8, B1 = (np.dtype(t) for t in ("f4", "f2", "i4", "i8", "?"))


def _z(*shape: int, dtype: Any = F4) -> np.ndarray:
    return np.zeros(shape, dtype)


_TOP = {"dim": 0, "largest": True, "sorted": True}
_SCATTER = {"self": _z(3), "dim": 0, "index": _z(2, dtype=I8), "out": _z(3)}

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
    ("aclnnArange", {"start": 0, "end": 1e308, "step": 1e-308, "out": _z(2)}, "out"),
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
    ("aclnnTopk", {"self": _z(4), "k": 5, **_TOP, "valuesOut": _z(5), "indicesOut": _z(5, dtype=I8)}, "k"),
    ("aclnnTopk", {"self": _z(4), "k": -1, **_TOP, "valuesOut": _z(0), "indicesOut": _z(0, dtype=I8)}, "k"),
    ("aclnnGather", {"self": _z(2, 2), "dim": 0, "index": _z(2, 3, dtype=I8), "out": _z(2, 3)}, "index"),
    ("aclnnGather", {"self": _z(2, 2), "dim": 0, "index": _z(2, 2), "out": _z(2, 2)}, "index"),
    ("aclnnIndexSelect", {"self": _z(2, 2), "dim": 0, "index": _z(2, 2, dtype=I8), "out": _z(2, 2)}, "index"),
    ("aclnnScatterAdd", {**_SCATTER, "src": _z(1)}, "index"),
    ("aclnnScatterAdd", {**_SCATTER, "src": _z(2, dtype=F2)}, "src"),
    ("aclnnCat", {"tensors": [], "dim": 0, "out": _z(2)}, "tensors"),
    ("aclnnCat", {"tensors": [_z(2, 3), _z(2, 2)], "dim": 0, "out": _z(4, 3)}, "tensors"),
    ("aclnnCat", {"tensors": [_z(1), _z(1, dtype=F2)], "dim": 0, "out": _z(2, dtype=I4)}, "out"),
    ("aclnnPermute", {"self": _z(2, 3), "dims": [0, 0], "out": _z(2, 3)}, "dims"),
    ("aclnnPermute", {"self": _z(2, 3), "dims": [1], "out": _z(3, 2)}, "dims"),
]


@pytest.mark.parametrize(("op", "args", "name"), REFUSED, ids=[f"{i}-{row[0][5:]}" for i, row in enumerate(REFUSED)])
def test_wrong_arguments_are_refused(backend: Any, op: str, args: dict[str, Any], name: str) -> None:
    code, detail = _status(backend, op, args)
    assert (code, name in detail) == (161002, True), detail


@pytest.mark.parametrize("k", [0, 2])
def test_topk_of_a_tensor_without_dimensions_takes_its_one_element(backend: Any, k: int) -> None:
    args = {"self": np.array(5, F4), "k": k, **_TOP, "valuesOut": _z(), "indicesOut": np.array(7)}
    code, detail = _status(backend, "aclnnTopk", args)
    assert (code, "k" in detail, "1 to 1" in detail) == (161002, True, True), detail
    harness.execute(backend, "aclnnTopk", args | {"k": 1})
    assert (args["valuesOut"], args["indicesOut"]) == (5, 0)


# -- special values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", oracle.INTS)
@pytest.mark.parametrize("source", oracle.FLOATS)
def test_floats_outside_an_integer_type_saturate(backend: Any, source: str, target: str) -> None:
    low, high = int(np.iinfo(target).min), int(np.iinfo(target).max)
    large = 2.0 ** (8 * np.dtype(target).itemsize)
    rows = [
        (np.nan, 0),
        (np.inf, high),
        (-np.inf, low),
        (large, high),
        (-large, low),
        (large / (1 if target == "uint8" else 2), high),  # the first that does not fit
        (float(low), low),
        (low - 0.75, low),
        (2.75, 2),
        (-2.75, max(low, -2)),
        (-0.75, 0),
        (-0.0, 0),
    ]
    given, want = oracle.cast(np.array([row[0] for row in rows]), source), [row[1] for row in rows]

    def out(size: int) -> np.ndarray:
        return np.full(size, 77, target)

    args: dict[str, Any] = {"self": given, "dtype": dtypes.to_acl(np.dtype(target)), "out": out(len(rows))}
    harness.execute(backend, "aclnnCast", args)
    assert args["out"].tolist() == want
    spread = np.repeat(given, 2)[::2]
    args = {"selfRef": out(2 * len(rows))[1::2], "src": spread}
    harness.execute(backend, "aclnnInplaceCopy", args)
    assert args["selfRef"].tolist() == want
    for value, expected in zip(given, want, strict=True):
        args = {"selfRef": out(3), "value": aclnn_py.Scalar(float(value), source)}
        harness.execute(backend, "aclnnInplaceFillScalar", args)
        assert args["selfRef"].tolist() == [expected] * 3


def test_arange_saturates(backend: Any) -> None:
    out = np.zeros(4, np.int8)
    args = {name: aclnn_py.Scalar(v) for name, v in {"start": -200, "end": 200, "step": 100}.items()}
    harness.execute(backend, "aclnnArange", {**args, "out": out})
    assert out.tolist() == [-128, -100, 0, 100]


INF, NAN = np.inf, np.nan
#: Base, exponent and result, as C defines pow.
POWERS = [
    *((base, 0.0, 1.0) for base in (0.0, -0.0, INF, -INF, NAN, -2.0)),
    *((base, NAN, NAN) for base in (0.0, -0.0, INF, -INF, NAN, -2.0, 2.0)),
    *((NAN, exponent, NAN) for exponent in (1.0, 0.5, -1.0, INF, 2.0)),
    *((1.0, exponent, 1.0) for exponent in (NAN, INF, -INF, 0.5, -3.0)),
    *((-1.0, exponent, 1.0) for exponent in (INF, -INF, 2.0)),
    *((-0.0, e, r) for e, r in [(0.5, 0.0), (3.0, -0.0), (2.0, 0.0), (1.0, -0.0), (1.5, 0.0), (INF, 0.0)]),
    *((-0.0, e, r) for e, r in [(-0.5, INF), (-3.0, -INF), (-2.0, INF), (-1.0, -INF), (-INF, INF)]),
    *((0.0, e, r) for e, r in [(0.5, 0.0), (3.0, 0.0), (-0.5, INF), (-1.0, INF), (INF, 0.0), (-INF, INF)]),
    *((-INF, e, r) for e, r in [(0.5, INF), (3.0, -INF), (2.0, INF), (1.0, -INF), (1.5, INF), (INF, INF)]),
    *((-INF, e, r) for e, r in [(-0.5, 0.0), (-3.0, -0.0), (-2.0, 0.0), (-1.0, -0.0), (-INF, 0.0)]),
    *((INF, e, r) for e, r in [(0.5, INF), (3.0, INF), (-0.5, 0.0), (-1.0, 0.0), (INF, INF), (-INF, 0.0)]),
    *((-2.0, e, r) for e, r in [(3.0, -8.0), (2.0, 4.0), (-3.0, -0.125), (0.5, NAN), (-1.5, NAN), (INF, INF)]),
    *((4.0, e, r) for e, r in [(0.5, 2.0), (-0.5, 0.5), (1.5, 8.0), (INF, INF), (-INF, 0.0)]),
]


@pytest.mark.parametrize("dtype", oracle.FLOATS)
def test_pow_of_special_values(backend: Any, dtype: str) -> None:
    columns = [oracle.cast(np.array(column), dtype) for column in zip(*POWERS, strict=True)]
    bases, exponents, want = columns
    calls = [("aclnnPowTensorTensor", {"self": bases, "exponent": exponents, "out": np.zeros_like(want)}, want)]
    calls += [("aclnnInplacePowTensorTensor", {"self": bases.copy(), "exponent": exponents}, want)]
    for row, (base, exponent, _) in enumerate(POWERS):
        for at in (slice(row, row + 1), np.repeat(row, 3)):
            few, scalar = np.zeros_like(want[at]), aclnn_py.Scalar(exponent)
            one = {"self": aclnn_py.Scalar(base), "exponent": exponents[at], "out": few}
            two = {"self": bases[at], "exponent": scalar, "out": few.copy()}
            calls += [("aclnnPowScalarTensor", one, want[at]), ("aclnnPowTensorScalar", two, want[at])]
            calls += [("aclnnInplacePowTensorScalar", {"self": bases[at].copy(), "exponent": scalar}, want[at])]
    for op, args, expected in calls:
        harness.execute(backend, op, args)
        got = args.get("out", args["self"])
        # the text tells -0.0 from 0.0, and NaN equals itself
        assert str(got.astype(np.float64).tolist()) == str(expected.astype(np.float64).tolist()), shown(
            Case(op, args, {})
        )


# -- memory that operands share ------------------------------------------------------------------------


def _views(backend: Any, base: np.ndarray, keys: list[Any], operate: Any) -> np.ndarray:
    """Run on views of one buffer, truly in place, and return the buffer."""
    if backend.name == "reference":
        for api, args in operate([base[key] for key in keys]):
            operator = reference.OPERATORS[api]
            operator.validate(args, backend.product)
            operator.compute(args, backend.product)
        return base
    memory = backend.to_device(base)
    for api, args in operate([memory[key] for key in keys]):
        harness.execute(backend, api, args)
    return memory.numpy()


@pytest.mark.parametrize("dtype", [harness.F32, harness.BF16, harness.I32, np.dtype(np.int8)])
@pytest.mark.parametrize(
    "keys",
    [
        (np.s_[::2, 1::2], np.s_[1::2, ::2], np.s_[::2, 1::2]),  # the output is an operand
        (np.s_[1:, :], np.s_[:-1, :], np.s_[1:, :]),  # and overlaps the other
        (np.s_[:3, :3], np.s_[1:, 1:4], np.s_[:3, 1:4]),  # overlaps both
    ],
)
def test_operands_share_a_buffer(backend: Any, dtype: np.dtype, keys: tuple[Any, ...]) -> None:
    base = np.arange(24).reshape(4, 6).astype(dtype)
    expected = base.copy()
    one, two = expected[keys[0]].copy(), expected[keys[1]].copy()
    expected[keys[2]] = one + two * 2

    def operate(views: list[Any]) -> list[Any]:
        return [("aclnnAdd", {"self": views[0], "other": views[1], "alpha": aclnn_py.Scalar(2), "out": views[2]})]

    got = _views(backend, base, list(keys), operate)
    assert got.astype(np.float64).tolist() == expected.astype(np.float64).tolist()


def test_chain_in_place_on_a_view(backend: Any) -> None:
    base = np.ones((3, 4), np.float16)

    def operate(views: list[Any]) -> list[Any]:
        return [
            ("aclnnInplaceFillScalar", {"selfRef": views[0], "value": aclnn_py.Scalar(3)}),
            ("aclnnInplaceMuls", {"selfRef": views[0], "other": aclnn_py.Scalar(-0.5)}),
            ("aclnnInplaceRelu", {"selfRef": views[1]}),
        ]

    got = _views(backend, base, [np.s_[:, 1], np.s_[1:, :]], operate)
    assert got.tolist() == [[1, -1.5, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1]]


# -- indices outside their domain ----------------------------------------------------------------------

_INDEXED = [
    ("aclnnGather", {"self": _z(3), "dim": 0, "index": np.array([0, 3]), "out": np.full(2, 7, F4)}),
    ("aclnnIndexSelect", {"self": _z(3), "dim": 0, "index": np.array([-1, 1]), "out": np.full(2, 7, F4)}),
    ("aclnnScatterAdd", {"self": _z(3), "dim": 0, "index": np.array([5]), "src": _z(1), "out": np.full(3, 7, F4)}),
    (
        "aclnnIndexAdd",
        {"self": _z(3), "dim": 0, "index": np.array([1, 3]), "source": _z(2), "alpha": 1, "out": np.full(3, 7, F4)},
    ),
]


@pytest.mark.parametrize(("op", "args"), _INDEXED, ids=[row[0] for row in _INDEXED])
def test_reference_refuses_an_index_outside(op: str, args: dict[str, Any]) -> None:
    with pytest.raises(errors.IndexOutOfRangeError, match=r"index.*expected 0 to 2"):
        harness.execute(aclnn_py.get_backend("reference"), op, args)
    assert (args["out"] == 7).all()


# -- reference against emulator ------------------------------------------------------------------------


def _outcome(backend: Any, op: str, args: dict[str, Any], outputs: list[str]) -> tuple[int, list[np.ndarray]]:
    args = args | {name: np.array(args[name]) for name in outputs if args[name] is not None}
    code, _ = _status(backend, op, args)
    return code, [args[name] for name in outputs] if code == 0 else []


def _agree(one: np.ndarray, two: np.ndarray) -> bool:
    if one.dtype.kind in "iub":
        return bool((one == two).all())
    digits = {"bfloat16": 7, "float16": 10}.get(one.dtype.name, 18)
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), two.astype(np.float64)
        size = np.abs(a[np.isfinite(a)]).max(initial=0)
    return np.allclose(a, b, rtol=2.0 ** (1 - digits), atol=2.0**-18 * size, equal_nan=True)


@pytest.mark.parametrize("op", OPERATORS)
def test_reference_and_emulator_answer_alike(pytestconfig: pytest.Config, op: str) -> None:
    """Calls of which a part is replaced at random: the same status, and the same result where there is one."""
    if set(pytestconfig.getoption("--backends").split(",")) != {"reference", "emulator"}:
        pytest.skip("compares the two backends: needs --backends reference,emulator")
    pair = [aclnn_py.get_backend(name) for name in ("reference", "emulator")]
    refused = 0
    for seed in range(500, 530):
        case = spoiled(op, seed)
        answers = [_outcome(backend, op, case.args, list(case.wants)) for backend in pair]
        assert answers[0][0] == answers[1][0], f"seed {seed}: {answers[0][0]}, {answers[1][0]}\n{shown(case)}"
        refused += answers[0][0] != 0
        for one, two in zip(answers[0][1], answers[1][1], strict=True):
            assert _agree(one, two), f"seed {seed}: {one} and {two}\n{shown(case)}"
    assert 0 < refused < 30
