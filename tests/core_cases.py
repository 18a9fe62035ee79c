"""Random calls of every core operator, each with the answer of the oracle.

A case is drawn from a seed: dtypes, shapes that broadcast, memory layouts, special values. Outputs may be strided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import core_oracle as oracle
import numpy as np
from core_oracle import EPS, FLOATS, INTS, NAMES, Want, castable, kind, operand, wide

from aclnn_py import Scalar, dtypes, signatures
from aclnn_py._signatures import SIGNATURES

OPERATORS = tuple(row[0] for row in SIGNATURES if not row[1].endswith("moe.h"))
SHAPES = [(), (1,), (6,), (3, 5), (2, 1, 4), (2, 3, 4), (0,), (3, 0), (2, 2, 1, 2, 1, 1, 1, 3)]
MATMUL = ("float32", "float16", "bfloat16")


@dataclass
class Case:
    op: str
    args: dict[str, Any]
    wants: dict[str, Want]


class Source:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.special = self.chance(0.25)

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def shape(self, empty: bool = True, most: int = 9) -> tuple[int, ...]:
        return self.pick([s for s in SHAPES if len(s) < most and (empty or 0 not in s)])

    def part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``."""
        kept = tuple(1 if self.chance(0.3) else n for n in shape)
        return kept[int(self.random.integers(len(kept) + 1)) :] if self.chance(0.4) else kept

    def values(self, shape: tuple[int, ...], name: str, small: bool = False) -> np.ndarray:
        if name == "bool":
            return np.asarray(self.random.random(shape) < 0.5)
        if kind(name) == "i":
            info = np.iinfo(name)
            low, high = (max(info.min, -4), 5) if small or self.chance(0.5) else (info.min, info.max)
            return np.asarray(self.random.integers(low, high, shape, dtype=name))
        values = np.asarray(self.random.standard_normal(shape)) * (1 if small else self.pick([1.0, 4.0, 0.01]))
        if self.chance(0.3):
            values = np.round(values * 2) / 2
        if self.special and values.size:
            at = self.random.integers(values.size, size=2)
            values.reshape(-1)[at] = self.random.choice([np.inf, -np.inf, np.nan, -0.0, 0.0], 2)
        return np.asarray(oracle.cast(values, name))

    def tensor(self, shape: tuple[int, ...], name: str, small: bool = False) -> np.ndarray:
        array = self.values(shape, name, small)
        return self.layout(array, repeats=True)

    def layout(self, array: np.ndarray, repeats: bool = False) -> np.ndarray:
        """The same values in another memory layout; ``repeats`` allows stride 0, which changes them."""
        choice = int(self.random.integers(6))
        if array.ndim == 0:
            return array
        if choice == 1:
            return np.asfortranarray(array)
        if choice == 2:
            big = self.values((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype.name)
            big[..., 1::2] = array
            return big[..., 1::2]
        if choice == 3:
            return np.ascontiguousarray(array[::-1])[::-1]
        if choice == 4 and repeats and array.shape[0]:
            return np.broadcast_to(np.array(array[:1]), array.shape)
        return array

    def out(self, shape: tuple[int, ...], name: str) -> np.ndarray:
        return self.layout(self.values(shape, name))

    def wider(self, name: str) -> str:
        """A type that ``name`` can be cast to, most often itself."""
        return name if self.chance(0.6) else self.pick([n for n in NAMES if castable(name, n)])

    def scalar(self, options: tuple[str, ...] = NAMES) -> Scalar:
        name = self.pick(options)
        if kind(name) == "i":
            low = 0 if name == "uint8" else -3
            return Scalar(int(self.random.integers(low, 4)), name)
        if name == "bool":
            return Scalar(self.chance(0.5))
        return Scalar(float(self.pick([0.0, 0.5, -1.25, 2.0, 0.1, 3.7, -0.3])), name)


def _elementwise(op: str, source: Source) -> Case:
    signature = signatures.find(op)
    out = signature.outputs[0]
    base = oracle.base_name(op)
    _, rule, accepted = oracle.ELEMENTWISE[base]
    names = [p for p in signature.parameters if p.name != out or "Inplace" in op]
    shape = source.shape()
    while True:
        args: dict[str, Any] = {}
        for at, parameter in enumerate(names):
            if parameter.name == "alpha":
                continue
            dtype = source.pick(NAMES if rule == "b" or source.chance(0.3) else accepted)
            if at and source.chance(0.5) and isinstance(args[names[0].name], np.ndarray):
                dtype = args[names[0].name].dtype.name
            if parameter.kind == "scalar":
                args[parameter.name] = source.scalar()
            else:
                within = shape if at == 0 and ("Inplace" in op or source.chance(0.7)) else source.part(shape)
                small = base == "Pow" or kind(dtype) == "f"
                drawn = source.values(within, dtype, small)
                args[parameter.name] = source.layout(drawn, repeats=not (at == 0 and "Inplace" in op))
        if base == "Clamp" and source.chance(0.3):
            args[source.pick(["clipValueMin", "clipValueMax"])] = None
        common = oracle.common_type(list(args.values()))
        if common not in accepted:
            continue
        result = "bool" if rule == "b" else "float32" if rule == "f" and kind(common) != "f" else common
        negative = op.endswith("PowTensorScalar") and kind(common) == "i" and args["exponent"].value < 0
        if not negative and ("Inplace" not in op or castable(result, args[out].dtype.name)):
            break
    if any(p.name == "alpha" for p in names):
        factors = NAMES if kind(common) == "f" else (*INTS, "bool")
        args["alpha"] = source.scalar(tuple(n for n in factors if n != "uint8"))
    if "Inplace" not in op:
        full = np.broadcast_shapes(*(v.shape for v in args.values() if isinstance(v, np.ndarray)))
        args[out] = source.out(full, source.wider(result))
    args = {p.name: args[p.name] for p in signature.parameters}
    return Case(op, args, {out: oracle.elementwise(op, args, out)})


def _where(op: str, source: Source) -> Case:
    shape = source.shape()
    types = [source.pick(NAMES)] * 2 if source.chance(0.5) else [source.pick(NAMES), source.pick(NAMES)]
    chosen = source.tensor(source.part(shape), source.pick(["bool", "uint8"]), small=True)
    one, two = (source.tensor(source.part(shape), t) for t in types)
    name = oracle.common_type([one, two])
    full = np.broadcast_shapes(chosen.shape, one.shape, two.shape)
    args = {"condition": chosen, "self": one, "other": two, "out": source.out(full, source.wider(name))}
    return Case(op, args, {"out": Want(np.where(chosen != 0, operand(one, name), operand(two, name)), name)})


def _masked_fill(op: str, source: Source) -> Case:
    shape = source.shape()
    out = source.out(shape, source.pick(NAMES))
    name = out.dtype.name
    mask = source.tensor(source.part(shape), source.pick(["bool", "uint8"]), small=True)
    value = source.scalar(NAMES if kind(name) == "f" else (*INTS, "bool"))
    filled = np.where(np.broadcast_to(mask, shape) != 0, operand(value, name), wide(out))
    return Case(op, {"selfRef": out, "mask": mask, "value": value}, {"selfRef": Want(filled, name)})


def _constant(value: int, op: str, source: Source) -> Case:
    out = source.out(source.shape(), source.pick(NAMES))
    return Case(op, {"selfRef": out}, {"selfRef": Want(np.full(out.shape, value), out.dtype.name)})


def _fill(op: str, source: Source) -> Case:
    out, value = source.out(source.shape(), source.pick(NAMES)), source.scalar()
    filled = np.full(out.shape, operand(value, out.dtype.name))
    return Case(op, {"selfRef": out, "value": value}, {"selfRef": Want(filled, out.dtype.name)})


def _of_any_size(source: Source, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Also floats that no integer type holds."""
    if kind(name) != "f":
        return source.tensor(shape, name)
    values = wide(source.values(shape, name)) * 2.0 ** source.pick([2, 6, 14, 30, 62])
    return source.layout(oracle.cast(values, name), repeats=True)


def _copy(op: str, source: Source) -> Case:
    shape = source.shape()
    out = source.out(shape, source.pick(NAMES))
    src = _of_any_size(source, source.part(shape), source.pick(NAMES))
    values = np.broadcast_to(operand(src, out.dtype.name), shape)
    return Case(op, {"selfRef": out, "src": src}, {"selfRef": Want(values, out.dtype.name)})


def _cast(op: str, source: Source) -> Case:
    shape, target = source.shape(), source.pick(NAMES)
    given = _of_any_size(source, shape, source.pick(NAMES))
    args = {"self": given, "dtype": dtypes.to_acl(dtypes.parse(target)), "out": source.out(shape, target)}
    return Case(op, args, {"out": Want(operand(given, target), target)})


def _arange(op: str, source: Source) -> Case:
    target = source.pick([n for n in NAMES if n != "bool"])
    count = int(source.random.integers(0, 9))
    start, step = source.pick([0, -5, 3, 0.5]), source.pick([1, 2, -3, 0.25])

    def number(value: float) -> Scalar:
        name = source.pick(["float32", "float64", *(["int32", "int64"] if value == int(value) else [])])
        return Scalar(int(value) if kind(name) == "i" else value, name)

    end = start + count * step - (step / 2 if count and source.chance(0.3) else 0)
    args = {"start": number(start), "end": number(end), "step": number(step), "out": source.out((count,), target)}
    return Case(op, args, {"out": Want(start + np.arange(count) * float(step), target)})


def _matmul(op: str, source: Source) -> Case:
    n, k, m = (int(v) for v in source.random.integers(1, 20, 3))
    k = 0 if source.chance(0.1) else k
    if op == "aclnnMm":
        one, two = (n, k), (k, m)
    elif op == "aclnnBatchMatMul":
        one, two = (2, n, k), (2, k, m)
    else:
        one = source.pick([(k,), (n, k), (2, 1, n, k), (3, n, k)])
        two = source.pick([(k,), (k, m), (3, k, m), (1, k, m)])
    left, right = (source.tensor(s, source.pick(MATMUL), small=True) for s in (one, two))
    return _product(op, {"self": left, "mat2": right}, source)


def _product(op: str, args: dict[str, Any], source: Source) -> Case:
    one, two = list(args.values())
    name = oracle.common_type([one, two])
    x, y = operand(one, name), operand(two, name)
    with np.errstate(all="ignore"):
        value = np.asarray(x @ y)
        slack = EPS * max(4, one.shape[-1]) * np.asarray(np.abs(x) @ np.abs(y))
    args |= {"out": source.out(value.shape, source.pick(MATMUL)), "cubeMathType": source.pick([0, 1, 2, 3])}
    return Case(op, args, {"out": Want(value, name, slack)})


def _addmm(op: str, source: Source) -> Case:
    n, k, m = (int(v) for v in source.random.integers(1, 20, 3))
    target = "self" if op == "aclnnAddmm" else "selfRef"
    left, right = (source.tensor(s, source.pick(MATMUL), small=True) for s in ((n, k), (k, m)))
    shape = source.part((n, m)) if op == "aclnnAddmm" else (n, m)
    bias = source.layout(source.values(shape, source.pick(MATMUL)))
    beta, alpha = (source.scalar(("float32", "int64")) for _ in "ba")
    name = oracle.common_type([bias, left, right])
    x, y, z = operand(left, name), operand(right, name), operand(bias, name)
    with np.errstate(all="ignore"):
        b, a = (float(s.value) for s in (beta, alpha))
        kept = b * z if b else np.zeros(z.shape)
        value = kept + a * (x @ y)
        slack = EPS * (max(4, k) * np.abs(a) * (np.abs(x) @ np.abs(y)) + 2 * np.abs(kept))
    args: dict[str, Any] = {target: bias, "mat1": left, "mat2": right, "beta": beta, "alpha": alpha}
    if op == "aclnnAddmm":
        args["out"] = source.out(value.shape, source.pick(MATMUL))
    return Case(op, args | {"cubeMathType": 0}, {"out" if "out" in args else target: Want(value, name, slack)})


def _axes(source: Source, shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    rank = max(1, len(shape))
    chosen = [int(a) for a in source.random.permutation(rank)[: int(source.random.integers(rank + 1))]]
    return [a - rank if source.chance(0.4) else a for a in chosen], tuple(chosen or range(rank))


def _left(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    return tuple(1 if at in axes else n for at, n in enumerate(shape) if keep or at not in axes)


def _sum(mean: bool, dims_name: str, keep_name: str, op: str, source: Source) -> Case:
    shape, name = source.shape(), source.pick(NAMES)
    result = source.wider(name)
    if mean and kind(result) != "f":
        result = source.pick(FLOATS)
    given = source.tensor(shape, name)
    dims, axes = _axes(source, shape)
    keep = source.chance(0.5)
    x = np.atleast_1d(operand(given, result))
    with np.errstate(all="ignore"):
        value = np.sum(x, axis=axes) if kind(result) == "f" else np.sum(x, axis=axes, dtype=np.int64)
        size = np.abs(x).sum(axis=axes) if kind(result) == "f" else 0.0
        count = int(np.prod([x.shape[a] for a in axes]))
        if mean:
            value, size = value / np.float64(count), size / np.float64(count)
    left = _left(shape, axes, keep)
    args = {
        "self": given,
        dims_name: dims,
        keep_name: keep,
        "dtype": dtypes.to_acl(dtypes.parse(result)),
        "out": source.out(left, result),
    }
    slack = np.reshape(EPS * max(4, count) * size, left) if kind(result) == "f" else 0.0
    return Case(op, args, {"out": Want(value.reshape(left), result, slack)})


def _extreme(sign: int, op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    given = source.tensor(shape, name)
    dims, axes = _axes(source, shape)
    keep = source.chance(0.5)
    x = np.atleast_1d(wide(given))
    value = x.max(axis=axes) if sign > 0 else x.min(axis=axes)
    left = _left(shape, axes, keep)
    args = {"self": given, "dim": dims, "keepDim": keep, "out": source.out(left, name)}
    return Case(op, args, {"out": Want(value.reshape(left), name)})


def _whole_extreme(sign: int, op: str, source: Source) -> Case:
    name = source.pick(NAMES)
    given = source.tensor(source.shape(empty=False), name)
    ordered = np.sort(wide(given), axis=None)  # NaN last
    value = ordered[-1] if sign > 0 or ordered[-1] != ordered[-1] else ordered[0]
    return Case(op, {"self": given, "out": source.out((), name)}, {"out": Want(np.asarray(value), name)})


def axis_of(source: Source, shape: tuple[int, ...]) -> tuple[int, int]:
    """A dimension as passed, maybe negative, and as counted from 0."""
    rank = max(1, len(shape))
    axis = int(source.random.integers(rank))
    return (axis - rank if source.chance(0.4) else axis), axis


def ranked(values: np.ndarray, descending: bool) -> list[int]:
    """Positions of a vector in stable order, NaN as the largest."""

    def before(at: int) -> Any:
        value = values[at]
        return (bool(value != value), 0 if value != value else value)

    order = sorted(range(len(values)), key=before)
    if not descending:
        return order
    groups: list[list[int]] = []
    for at in order:  # runs of equal values keep their order
        if groups and before(groups[-1][0]) == before(at):
            groups[-1].append(at)
        else:
            groups.append([at])
    return [at for group in reversed(groups) for at in group]


def _position(sign: int, op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    given = source.tensor(shape, name, small=source.chance(0.5))
    dim, axis = axis_of(source, shape)
    keep = source.chance(0.5)

    def first(vector: np.ndarray) -> int:
        nans = [i for i, v in enumerate(vector) if v != v]
        ordered = ranked(vector, descending=sign > 0)
        return nans[0] if nans else ordered[0]

    value = np.apply_along_axis(first, axis, np.atleast_1d(wide(given)))
    left = _left(shape, (axis,), keep)
    args = {"self": given, "dim": dim, "keepdim": keep, "out": source.out(left, source.pick(["int64", "int32"]))}
    return Case(op, args, {"out": Want(np.reshape(value, left).astype(np.int64), "int64")})


def _truth(every: bool, op: str, source: Source) -> Case:
    shape, name = source.shape(), source.pick(NAMES)
    given = source.tensor(shape, name, small=True)
    dims, axes = _axes(source, shape)
    keep = source.chance(0.5)
    zero = np.atleast_1d(wide(given) == 0)
    value = zero.sum(axes) == 0 if every else (~zero).sum(axes) > 0
    left = _left(shape, axes, keep)
    args = {"self": given, "dim": dims, "keepdim": keep, "out": source.out(left, source.pick(["bool", "uint8"]))}
    return Case(op, args, {"out": Want(np.reshape(value, left), "bool")})


def _extreme_and_position(sign: int, op: str, source: Source) -> Case:
    case = _position(sign, op, source)
    given, place = case.args["self"], case.wants["out"]
    axis, values = case.args["dim"] % max(1, given.ndim), np.atleast_1d(wide(given))
    at = place.values.reshape(_left(values.shape, (axis,), True))
    picked = np.take_along_axis(values, at, axis)
    args = {name: case.args[name] for name in ("self", "dim", "keepdim")}
    args |= {"out": source.out(place.values.shape, given.dtype.name), "indices": case.args["out"]}
    value = Want(picked.reshape(place.values.shape), given.dtype.name)
    return Case(op, args, {"out": value, "indices": place})


BUILDERS: dict[str, Callable[[str, Source], Case]] = {
    **{op: _elementwise for op in OPERATORS if oracle.base_name(op) in oracle.ELEMENTWISE},
    "aclnnSWhere": _where,
    "aclnnInplaceMaskedFillScalar": _masked_fill,
    "aclnnInplaceOne": partial(_constant, 1),
    "aclnnInplaceZero": partial(_constant, 0),
    "aclnnInplaceFillScalar": _fill,
    "aclnnInplaceCopy": _copy,
    "aclnnCast": _cast,
    "aclnnArange": _arange,
    "aclnnMatmul": _matmul,
    "aclnnMm": _matmul,
    "aclnnBatchMatMul": _matmul,
    "aclnnAddmm": _addmm,
    "aclnnInplaceAddmm": _addmm,
    "aclnnReduceSum": partial(_sum, False, "dims", "keepDims"),
    "aclnnMean": partial(_sum, True, "dim", "keepDim"),
    "aclnnAmax": partial(_extreme, 1),
    "aclnnAmin": partial(_extreme, -1),
    "aclnnAny": partial(_truth, False),
    "aclnnAll": partial(_truth, True),
    "aclnnMaxDim": partial(_extreme_and_position, 1),
    "aclnnMinDim": partial(_extreme_and_position, -1),
    "aclnnMax": partial(_whole_extreme, 1),
    "aclnnMin": partial(_whole_extreme, -1),
    "aclnnArgMax": partial(_position, 1),
    "aclnnArgMin": partial(_position, -1),
}
