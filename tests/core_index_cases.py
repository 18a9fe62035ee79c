"""Random calls of the core operators that work along one dimension, see ``core_cases``."""

from __future__ import annotations

from typing import Any

import core_cases
import core_oracle as oracle
import numpy as np
from core_cases import Case, Source, axis_of, ranked
from core_oracle import EPS, FLOATS, INTS, NAMES, Want, kind, operand, wide

from aclnn_py import Scalar, dtypes


def _softmax(op: str, source: Source) -> Case:
    shape, name = source.shape(), source.pick(FLOATS)
    dim, axis = axis_of(source, shape)
    backward = op.endswith("Backward")
    names = ("gradOutput", "output") if backward else ("self",)
    args: dict[str, Any] = {n: source.tensor(shape, name) for n in names}
    values = [np.atleast_1d(wide(args[n])) for n in names]
    length = values[0].shape[axis]
    with np.errstate(all="ignore"):
        if backward:
            grad, output = values
            if op == "aclnnLogSoftmaxBackward":
                value = grad - np.exp(output) * grad.sum(axis, keepdims=True)
                size = np.abs(grad) + np.exp(output) * np.abs(grad).sum(axis, keepdims=True)
            else:
                value = output * (grad - (grad * output).sum(axis, keepdims=True))
                size = np.abs(output) * (np.abs(grad) + np.abs(grad * output).sum(axis, keepdims=True))
            slack = EPS * max(4, length) * size
        else:
            top = values[0].max(axis, keepdims=True, initial=-np.inf)
            powers = np.exp(values[0] - top)
            total = powers.sum(axis, keepdims=True)
            value = powers / total if op == "aclnnSoftmax" else values[0] - top - np.log(total)
            # exp multiplies the rounding error of its argument
            scale = np.abs(value) if op == "aclnnSoftmax" else 1.0
            slack = EPS * (8 + length + np.abs(values[0] - top)) * scale + 1e-37
    result = source.wider(name)
    args |= {"dim": dim, "out": source.out(shape, result)}
    return Case(op, args, {"out": Want(value.reshape(shape), name, np.reshape(slack, shape))})


def _cumsum(op: str, source: Source) -> Case:
    shape, name = source.shape(), source.pick(NAMES)
    result = source.wider(name)
    given = source.tensor(shape, name)
    dim, axis = axis_of(source, shape)
    x = np.atleast_1d(operand(given, result))
    kept = np.float64 if kind(result) == "f" else np.int64
    with np.errstate(all="ignore"):
        value = np.cumsum(x, axis, dtype=kept).reshape(shape)
        size = np.cumsum(np.abs(x), axis, dtype=kept).reshape(shape)
    slack = EPS * max(4, x.shape[axis]) * size if kind(result) == "f" else 0.0
    acl = dtypes.to_acl(dtypes.parse(result))
    args = {"self": given, "dim": dim, "dtype": acl, "out": source.out(shape, result)}
    return Case(op, args, {"out": Want(value, result, slack)})


def _sort(op: str, source: Source) -> Case:
    shape, name = source.shape(), source.pick(NAMES)
    given = source.tensor(shape, name, small=source.chance(0.5))
    dim, axis = axis_of(source, shape)
    descending = source.chance(0.5)
    values = np.atleast_1d(wide(given))
    top = op == "aclnnTopk"
    count = int(source.random.integers(values.shape[axis] + 1)) if top else values.shape[axis]
    count = max(count, 1) if not shape else count
    left = tuple(count if at == axis else n for at, n in enumerate(shape))
    order = np.zeros(left or (1,), np.int64)
    for where in np.ndindex(*(1 if at == axis else n for at, n in enumerate(values.shape))):
        line = tuple(slice(None) if at == axis else i for at, i in enumerate(where))
        if order.size:
            order[line] = ranked(values[line], descending)[:count]
    picked = np.take_along_axis(values, order, axis) if order.size else np.zeros(left or (1,))
    args: dict[str, Any] = {"self": given}
    if top:
        args |= {"k": count, "dim": dim, "largest": descending, "sorted": source.chance(0.5)}
    else:
        args |= {"stable": source.chance(0.5), "dim": dim, "descending": descending}
    args |= {"valuesOut": source.out(left, name), "indicesOut": source.out(left, "int64")}
    wants = {"valuesOut": Want(picked.reshape(left), name), "indicesOut": Want(order.reshape(left), "int64")}
    return Case(op, args, wants)


def _indices(source: Source, shape: tuple[int, ...], limit: int) -> np.ndarray:
    values = source.random.integers(0, limit, shape).astype(source.pick(["int32", "int64"]))
    return source.layout(values, repeats=True)


def _smaller(source: Source, shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return tuple(length if at == axis else int(source.random.integers(n + 1)) for at, n in enumerate(shape))


def _gather(op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    given = source.tensor(shape, name)
    dim, axis = axis_of(source, shape)
    limit = shape[axis] if shape else 1
    index = _indices(source, _smaller(source, shape, axis, int(source.random.integers(7))), limit)
    value = np.zeros(index.shape, wide(given).dtype)
    for at in np.ndindex(*index.shape):
        value[at] = wide(given)[(*at[:axis], index[at], *at[axis + 1 :])] if shape else wide(given)
    args = {"self": given, "dim": dim, "index": index, "out": source.out(index.shape, name)}
    return Case(op, args, {"out": Want(value, name)})


def _select(op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    given = source.tensor(shape, name)
    dim, axis = axis_of(source, shape)
    count = int(source.random.integers(6)) if shape else 1
    index = _indices(source, (count,), shape[axis] if shape else 1)
    left = tuple(count if at == axis else n for at, n in enumerate(shape))
    rows = [np.atleast_1d(wide(given)).take([i], axis) for i in index]
    value = np.concatenate([np.zeros((*left[:axis], 0, *left[axis + 1 :]), wide(given).dtype), *rows], axis)
    args = {"self": given, "dim": dim, "index": index, "out": source.out(left, name)}
    return Case(op, args, {"out": Want(value.reshape(left), name)})


def _accumulate(total: np.ndarray, size: np.ndarray, at: Any, value: Any) -> None:
    total[at] = (total[at] | value) if total.dtype == bool else total[at] + value
    size[at] += abs(float(value))


def _scatter(op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    given = source.tensor(shape, name)
    dim, axis = axis_of(source, shape)
    index = _indices(source, _smaller(source, shape, axis, int(source.random.integers(7))), shape[axis] if shape else 1)
    src = source.tensor(tuple(n + int(source.chance(0.3)) for n in index.shape), name)
    total, values = np.array(wide(given)), wide(src)
    size = np.array(np.abs(total), np.float64)
    with np.errstate(all="ignore"):
        for at in np.ndindex(*index.shape):
            _accumulate(total, size, (*at[:axis], index[at], *at[axis + 1 :]) if shape else (), values[at])
    args = {"self": given, "dim": dim, "index": index, "src": src, "out": source.out(shape, name)}
    return Case(op, args, {"out": Want(total, name, _slack(size, index, name))})


def _replace(op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    inplace = op == "aclnnInplaceScatter"
    given = source.out(shape, name) if inplace else source.tensor(shape, name)
    dim, axis = axis_of(source, shape)
    index = _indices(source, _smaller(source, shape, axis, int(source.random.integers(7))), shape[axis] if shape else 1)
    src = source.tensor(tuple(n + int(source.chance(0.3)) for n in index.shape), name)
    result, values = np.array(wide(given)), wide(src)
    for at in np.ndindex(*index.shape):
        result[(*at[:axis], index[at], *at[axis + 1 :]) if shape else ()] = values[at]
    args: dict[str, Any] = {"selfRef" if inplace else "self": given, "dim": dim, "index": index, "src": src}
    args |= {"reduce": 0} if inplace else {"reduce": 0, "out": source.out(shape, name)}
    return Case(op, args, {"selfRef" if inplace else "out": Want(result, name)})


def _embedding(op: str, source: Source) -> Case:
    rows, width = (int(n) for n in source.random.integers(1, 6, 2))
    weight = source.tensor((rows, width), source.pick(NAMES))
    index = _indices(source, source.shape(most=8), rows)
    value = wide(weight)[np.asarray(index, np.int64)]
    out = source.out(value.shape, weight.dtype.name)
    return Case(op, {"weight": weight, "indices": index, "out": out}, {"out": Want(value, weight.dtype.name)})


def _stack(op: str, source: Source) -> Case:
    shape = source.shape(most=8)
    names = [source.pick(NAMES) for _ in range(int(source.random.integers(1, 4)))]
    tensors = [source.tensor(shape, name) for name in names]
    name = oracle.common_type(tensors)
    at = int(source.random.integers(len(shape) + 1))
    slots = [np.expand_dims(operand(tensor, name), at) for tensor in tensors]
    value = np.concatenate(slots, at)
    dim = at - len(shape) - 1 if source.chance(0.4) else at
    args = {"tensors": tensors, "dim": dim, "out": source.out(value.shape, source.wider(name))}
    return Case(op, args, {"out": Want(value, name)})


def _index_add(op: str, source: Source) -> Case:
    shape, name = source.shape(empty=False), source.pick(NAMES)
    given = source.tensor(shape, name)
    dim, axis = axis_of(source, shape)
    count = int(source.random.integers(6)) if shape else 1
    index = _indices(source, (count,), shape[axis] if shape else 1)
    src = source.tensor(tuple(count if at == axis else n for at, n in enumerate(shape)), name)
    factors = NAMES if kind(name) == "f" else (*INTS, "bool")
    alpha = source.scalar(tuple(n for n in factors if n != "uint8"))
    total, factor = np.array(np.atleast_1d(wide(given))), operand(alpha, name)
    values = np.atleast_1d(wide(src))
    size = np.array(np.abs(total), np.float64)
    with np.errstate(all="ignore"):
        values = values & factor if name == "bool" else values * factor
        for at in np.ndindex(*values.shape):
            _accumulate(total, size, (*at[:axis], index[at[axis]], *at[axis + 1 :]), values[at])
    args = {"self": given, "dim": dim, "index": index, "source": src, "alpha": alpha, "out": source.out(shape, name)}
    return Case(op, args, {"out": Want(total.reshape(shape), name, _slack(size.reshape(shape), index, name))})


def _slack(size: np.ndarray, index: np.ndarray, name: str) -> Any:
    return EPS * max(4, index.size) * size if kind(name) == "f" else 0.0


def _cat(op: str, source: Source) -> Case:
    shape = source.shape(empty=False, most=4) or (1,)
    dim, axis = axis_of(source, shape)
    first = source.pick(NAMES)
    tensors = []
    for _ in range(int(source.random.integers(1, 5))):
        length = int(source.random.integers(4))
        name = first if source.chance(0.6) else source.pick(NAMES)
        part = (*shape[:axis], length, *shape[axis + 1 :])
        tensors.append(source.tensor((0,) if source.chance(0.1) else part, name))
    tensors.append(source.tensor(shape, first))
    name = oracle.common_type(tensors)
    parts = [operand(t, name) for t in tensors if t.shape != (0,)]
    value = np.concatenate(parts, axis)
    args = {"tensors": tensors, "dim": dim, "out": source.out(value.shape, source.wider(name))}
    return Case(op, args, {"out": Want(value, name)})


def _permute(op: str, source: Source) -> Case:
    shape, name = source.shape(), source.pick(NAMES)
    given = source.tensor(shape, name)
    order = [int(a) for a in source.random.permutation(len(shape))]
    dims = [a - len(shape) if source.chance(0.4) else a for a in order]
    value = np.transpose(wide(given), order)
    args = {"self": given, "dims": dims, "out": source.out(value.shape, name)}
    return Case(op, args, {"out": Want(value, name)})


BUILDERS = {
    **core_cases.BUILDERS,
    "aclnnSoftmax": _softmax,
    "aclnnLogSoftmax": _softmax,
    "aclnnSoftmaxBackward": _softmax,
    "aclnnLogSoftmaxBackward": _softmax,
    "aclnnScatter": _replace,
    "aclnnInplaceScatter": _replace,
    "aclnnStack": _stack,
    "aclnnEmbedding": _embedding,
    "aclnnCumsum": _cumsum,
    "aclnnSort": _sort,
    "aclnnTopk": _sort,
    "aclnnGather": _gather,
    "aclnnIndexSelect": _select,
    "aclnnScatterAdd": _scatter,
    "aclnnIndexAdd": _index_add,
    "aclnnCat": _cat,
    "aclnnPermute": _permute,
}


def draw(op: str, seed: int) -> Case:
    """The call of an operator that belongs to a seed."""
    return BUILDERS[op](op, Source(seed))


def _spoil(name: str, value: Any, source: Source) -> Any:
    """Another value for an argument, most often one that is refused."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return source.pick([-9, -2, -1, 0, 1, 2, 3, 4, 9, 12, 27])
    if source.chance(0.1):
        return None
    if isinstance(value, Scalar):
        return Scalar(1, "complex64") if source.chance(0.2) else source.scalar()
    if isinstance(value, np.ndarray):
        if name in ("index", "indices"):
            return np.zeros(source.shape(), value.dtype)
        if value.dtype.name not in NAMES:
            return value
        if source.chance(0.5):
            return source.values(source.shape(empty=name != "self"), value.dtype.name)
        other = source.pick([*NAMES, "complex64", "uint32"])
        return source.values(value.shape, other) if other in NAMES else np.zeros(value.shape, other)
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [*value, _spoil("", value[0], source)][int(source.random.integers(2)) :]
    return None if value is None else [int(i) for i in source.random.integers(-3, 3, int(source.random.integers(4)))]


def spoiled(op: str, seed: int) -> Case:
    """A call with one or two arguments replaced; indices are 0, since backends differ in what others do."""
    source = Source(seed)
    case = draw(op, seed)
    args = {n: np.zeros(v.shape, v.dtype) if n in ("index", "indices") else v for n, v in case.args.items()}
    for _ in range(1 if source.chance(0.7) else 2):
        name = source.pick(list(args))
        args[name] = _spoil(name, args[name], source)
    return Case(op, args, case.wants)
