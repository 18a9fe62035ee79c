"""Sorting, selecting and rearranging.

A tensor without dimensions counts as one of a single element. Sums go in ascending order of the source's position,
in float32 for 16-bit floats, with one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .checks import size
from .core_checks import CoreChecks, Stages, Work, stages
from .core_types import convert, plain, scalar_array, store
from .numerics import Array, bits

_INDEX = ("int32", "int64")


def _order(values: Array, axis: int, descending: bool) -> Array:
    """Sort indices, stably; NaN counts as the largest value."""
    if not descending:
        return np.argsort(values, axis=axis, kind="stable")
    backward = np.argsort(np.flip(values, axis), axis=axis, kind="stable")
    return np.flip(values.shape[axis] - 1 - backward, axis)


def _sort_plan(top: bool, checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "valuesOut", "indicesOut")
    checks.accept(("self",))
    checks.same("valuesOut", "self")
    checks.accept(("indicesOut",), ("int64",))
    checks.ranks(("self",))
    axis = checks.axis("dim", "self")
    shape = list(args["self"].shape)
    count = shape[axis] if shape else 1
    if top:
        count = checks.whole("k", 0 if shape else 1, count)
        if shape:
            shape[axis] = count
    for name in ("valuesOut", "indicesOut"):
        checks.shape(name, tuple(shape), "the shape of self, with k along dim" if top else "the shape of self")

    def work() -> None:
        if not args["indicesOut"].size:
            return
        values = np.atleast_1d(args["self"])
        order = _order(plain(values), axis, args["largest" if top else "descending"])
        order = np.take(order, range(count), axis)
        # the bits are moved, so that nothing is rounded
        found = np.take_along_axis(bits(values), order, axis)
        bits(args["valuesOut"])[...] = found.reshape(shape)
        args["indicesOut"][...] = order.reshape(shape)

    return work


def _check_index(checks: CoreChecks, axis: int, limits: tuple[str, ...]) -> None:
    """Refuse an index of another rank than self, or one that is longer than a tensor in another dimension."""
    index = tuple(checks.args["index"].shape) or (1,)
    for name in limits:
        shape = tuple(checks.args[name].shape) or (1,)
        checks.need(len(index) == len(shape), "index", f"shape {index}", f"as many dimensions as {name} {shape}")
        fits = all(i <= n for at, (i, n) in enumerate(zip(index, shape, strict=True)) if at != axis or name == "src")
        checks.need(fits, "index", f"shape {index}", f"no longer than {name} {shape}, but for dim")


def _mesh(index: Array, axis: int) -> tuple[Array, ...]:
    """Make the index of every dimension for an index tensor along one of them."""
    return tuple(index if at == axis else grid for at, grid in enumerate(np.ogrid[tuple(map(slice, index.shape))]))


def _gather_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "index", "out")
    checks.accept(("self",))
    checks.accept(("index",), _INDEX)
    checks.same("out", "self")
    checks.ranks(("self", "index"))
    axis = checks.axis("dim", "self")
    checks.shape("out", tuple(args["index"].shape), "the shape of index")
    if size(args["index"]):
        _check_index(checks, axis, ("self",))

    def work() -> None:
        values = np.atleast_1d(bits(args["self"]))
        index = np.atleast_1d(checks.indices("index", values.shape[axis]))
        if index.size:
            bits(args["out"])[...] = values[_mesh(index, axis)].reshape(args["out"].shape)

    return work


def _indexed_shape(checks: CoreChecks, axis: int) -> tuple[int, ...]:
    """Give the shape of self with the length of index along a dimension."""
    shape, count = tuple(checks.args["self"].shape), size(checks.args["index"])
    if shape:
        return (*shape[:axis], count, *shape[axis + 1 :])
    checks.need(count == 1, "index", f"{count} elements", "1, as self has no dimension")
    return ()


def _select_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "index", "out")
    checks.accept(("self",))
    checks.accept(("index",), _INDEX)
    checks.same("out", "self")
    checks.rank("index", 0, 1)
    checks.ranks(("self",))
    axis = checks.axis("dim", "self")
    shape = _indexed_shape(checks, axis)
    checks.shape("out", shape, "the shape of self, with the length of index along dim")

    def work() -> None:
        values = np.atleast_1d(bits(args["self"]))
        index = checks.indices("index", values.shape[axis]).reshape(-1)
        bits(args["out"])[...] = np.take(values, index, axis).reshape(shape)

    return work


def _embedding_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("weight", "indices", "out")
    checks.accept(("weight",))
    checks.accept(("indices",), _INDEX)
    checks.same("out", "weight")
    checks.ranks(("weight", "indices", "out"))
    checks.rank("weight", 2)
    rows, width = args["weight"].shape
    checks.shape("out", (*args["indices"].shape, width), "the shape of indices, then the second size of weight")

    def work() -> None:
        bits(args["out"])[...] = bits(args["weight"])[checks.indices("indices", rows)]

    return work


def _scatter_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "index", "src", "out")
    checks.accept(("self",))
    checks.accept(("index",), _INDEX)
    checks.same("src", "self")
    checks.same("out", "self")
    checks.ranks(("self", "index", "src"))
    axis = checks.axis("dim", "self")
    checks.shape("out", tuple(args["self"].shape), "the shape of self")
    if size(args["index"]):
        _check_index(checks, axis, ("self", "src"))

    def work() -> None:
        total = np.array(np.atleast_1d(plain(args["self"])))
        index = np.atleast_1d(checks.indices("index", total.shape[axis]))
        if index.size:
            source = np.atleast_1d(plain(args["src"]))[tuple(map(slice, index.shape))]
            np.add.at(total, _mesh(index, axis), source)
        _finish(total, args["out"])

    return work


def _replace_plan(target: str, out: str, checks: CoreChecks) -> Work:
    args = checks.args
    checks.require(target, "index", "src", out)
    checks.accept((target,))
    checks.accept(("index",), _INDEX)
    checks.same("src", target)
    checks.same(out, target)
    checks.whole("reduce", 0, 0)  # replace; the sums are aclnnScatterAdd's
    checks.ranks((target, "index", "src"))
    axis = checks.axis("dim", target)
    checks.shape(out, tuple(args[target].shape), f"the shape of {target}")
    if size(args["index"]):
        _check_index(checks, axis, (target, "src"))

    def work() -> None:
        result = np.array(np.atleast_1d(bits(args[target])))
        index = np.atleast_1d(checks.indices("index", result.shape[axis]))
        if index.size:
            result[_mesh(index, axis)] = np.atleast_1d(bits(args["src"]))[tuple(map(slice, index.shape))]
        bits(args[out])[...] = result.reshape(args[out].shape)

    return work


def _index_add_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "index", "source", "alpha", "out")
    checks.accept(("self", "alpha"))
    checks.accept(("index",), _INDEX)
    checks.same("source", "self")
    checks.same("out", "self")
    common = checks.dtype("self")
    checks.integral_scalar("alpha", common)
    checks.rank("index", 0, 1)
    checks.ranks(("self", "source"))
    axis = checks.axis("dim", "self")
    checks.shape("out", tuple(args["self"].shape), "the shape of self")
    checks.shape("source", _indexed_shape(checks, axis), "the shape of self, with the length of index along dim")

    def work() -> None:
        total = np.array(np.atleast_1d(plain(args["self"])))
        index = checks.indices("index", total.shape[axis]).reshape(-1)
        source = np.multiply(np.atleast_1d(plain(args["source"])), scalar_array(args["alpha"], common))
        np.add.at(np.moveaxis(total, axis, 0), index, np.moveaxis(source, axis, 0))
        _finish(total, args["out"])

    return work


def _finish(total: Array, out: Array) -> None:
    store(total.reshape(out.shape), out.dtype.name, out)


def _list_checks(checks: CoreChecks) -> tuple[CoreChecks, list[str], str]:
    """Check a list of tensors but for shapes: each gets a name of its own; with the names and the common type."""
    checks.require("tensors", "out")
    tensors = checks.args["tensors"]
    names = [f"tensors[{at}]" for at in range(len(tensors))]
    inner = CoreChecks(checks.api, {**checks.args, **dict(zip(names, tensors, strict=True))})
    inner.require(*names)
    inner.need(bool(names), "tensors", "an empty list", "at least one tensor")
    inner.accept((*names, "out"))
    common = inner.promoted(names)
    inner.stores(common, "out")
    inner.ranks((*names, "out"))
    return inner, names, common


def _stack_plan(checks: CoreChecks) -> Work:
    inner, names, common = _list_checks(checks)
    first = tuple(inner.args[names[0]].shape)
    axis = inner.axis_of("dim", len(first) + 1)
    for name in names:
        inner.shape(name, first, f"the shape of {names[0]}")
    inner.shape("out", (*first[:axis], len(names), *first[axis:]), "the tensors along a new dimension")

    def work() -> None:
        store(np.stack([convert(inner.args[name], common) for name in names], axis), common, inner.args["out"])

    return work


def _cat_plan(checks: CoreChecks) -> Work:
    inner, names, common = _list_checks(checks)
    # a tensor of shape (0,) joins any others
    kept = [name for name in names if tuple(inner.args[name].shape) != (0,)] or names[:1]
    first = tuple(inner.args[kept[0]].shape)
    inner.need(len(first) > 0, kept[0], "shape ()", "at least one dimension")
    axis = inner.axis("dim", kept[0])
    total = 0
    for name in kept:
        shape = tuple(inner.args[name].shape)
        alike = len(shape) == len(first) and all(
            n == m for at, (n, m) in enumerate(zip(shape, first, strict=True)) if at != axis
        )
        inner.need(alike, name, f"shape {shape}", f"{first}, the shape of {kept[0]}, but for dim")
        total += shape[axis]
    inner.shape("out", (*first[:axis], total, *first[axis + 1 :]), "the tensors one after another")

    def work() -> None:
        parts = [convert(inner.args[name], common) for name in kept]
        store(np.concatenate(parts, axis), common, inner.args["out"])

    return work


def _permute_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "dims", "out")
    checks.accept(("self",))
    checks.same("out", "self")
    checks.ranks(("self",))
    shape = tuple(args["self"].shape)
    given: Any = list(args["dims"])
    checks.need(len(given) == len(shape), "dims", given, f"{len(shape)} dimensions, as self has")
    axes = checks.axes("dims", "self") if shape else ()
    checks.shape("out", tuple(shape[at] for at in axes), "the shape of self, permuted")

    def work() -> None:
        bits(args["out"])[...] = np.array(bits(args["self"]).transpose(axes))

    return work


def operators() -> dict[str, Stages]:
    """Give the stages of the index operators by name."""
    plans: dict[str, Callable[[CoreChecks], Work]] = {
        "aclnnSort": partial(_sort_plan, False),
        "aclnnTopk": partial(_sort_plan, True),
        "aclnnGather": _gather_plan,
        "aclnnIndexSelect": _select_plan,
        "aclnnScatterAdd": _scatter_plan,
        "aclnnScatter": partial(_replace_plan, "self", "out"),
        "aclnnInplaceScatter": partial(_replace_plan, "selfRef", "selfRef"),
        "aclnnStack": _stack_plan,
        "aclnnEmbedding": _embedding_plan,
        "aclnnIndexAdd": _index_add_plan,
        "aclnnCat": _cat_plan,
        "aclnnPermute": _permute_plan,
    }
    return {name: stages(name, plan) for name, plan in plans.items()}
