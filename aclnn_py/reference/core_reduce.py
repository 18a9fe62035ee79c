"""Reductions, scans and softmax.

Sums of floats are kept in float64 and rounded once, which is within any order of a float32 sum; integers in int64.
A tensor without dimensions counts as one of a single element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .checks import size
from .core_checks import CoreChecks, Stages, Work, stages
from .core_types import ACCEPTED, FLOATING, category, convert, plain, store
from .numerics import Array


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    """Give the shape that is left of a tensor."""
    if keep:
        return tuple(1 if at in axes else length for at, length in enumerate(shape))
    return tuple(length for at, length in enumerate(shape) if at not in axes)


def _sum_type(name: str) -> Any:
    return np.float64 if category(name) == 2 else np.int64


def _sum_plan(
    function: Callable[..., Any], dims: str, keep: str, accepted: tuple[str, ...], checks: CoreChecks
) -> Work:
    args = checks.args
    checks.require("self", dims, "out")
    checks.accept(("self",))
    checks.accept(("out",), accepted)
    result = checks.named("dtype", "out")
    checks.stores(checks.dtype("self"), "out")
    checks.ranks(("self", "out"))
    axes = checks.axes(dims, "self")
    shape = _reduced(tuple(args["self"].shape), axes, args[keep])
    checks.shape("out", shape, "the shape that is left of self")

    def work() -> None:
        values = np.atleast_1d(convert(args["self"], result))
        store(function(values, axis=axes, dtype=_sum_type(result)).reshape(shape), result, args["out"])

    return work


def _mean(values: Array, axis: tuple[int, ...], dtype: Any) -> Any:
    # np.mean warns of an empty axis by another way than floating-point errors
    return np.sum(values, axis=axis, dtype=dtype) / np.prod([values.shape[at] for at in axis], dtype=np.float64)


def _extreme_plan(function: Callable[..., Any], checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "dim", "out")
    checks.accept(("self", "out"))
    checks.same("out", "self")
    checks.ranks(("self", "out"))
    axes = checks.axes("dim", "self")
    _check_extreme(checks, axes, "keepDim")

    def work() -> None:
        out = args["out"]
        if out.size:
            values = function(np.atleast_1d(plain(args["self"])), axis=axes)
            store(values.reshape(out.shape), out.dtype.name, out)

    return work


def _check_extreme(checks: CoreChecks, axes: tuple[int, ...], keep: str) -> None:
    """Check the shape of the output, and that there is an element to take for each of its own."""
    shape = tuple(checks.args["self"].shape)
    checks.shape("out", _reduced(shape, axes, checks.args[keep]), "the shape that is left of self")
    checks.need(size(checks.args["self"]) > 0 or not size(checks.args["out"]), "self", f"shape {shape}", "an element")


def _whole_extreme_plan(function: Callable[..., Any], checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "out")
    checks.accept(("self", "out"))
    checks.same("out", "self")
    checks.ranks(("self", "out"))
    checks.shape("out", (), "one element")
    checks.need(size(args["self"]) > 0, "self", f"shape {tuple(args['self'].shape)}", "an element")
    return lambda: store(function(plain(args["self"])), args["out"].dtype.name, args["out"])


def _position_plan(function: Callable[..., Any], checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "out")
    checks.accept(("self",))
    checks.accept(("out",), ("int64", "int32"))
    checks.ranks(("self", "out"))
    axis = checks.axis("dim", "self")
    _check_extreme(checks, (axis,), "keepdim")

    def work() -> None:
        out = args["out"]
        if out.size:
            store(function(np.atleast_1d(plain(args["self"])), axis=axis).reshape(out.shape), "int64", out)

    return work


def _truth_plan(function: Callable[..., Any], checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "dim", "out")
    checks.accept(("self",))
    checks.accept(("out",), ("bool", "uint8"))
    checks.ranks(("self", "out"))
    axes = checks.axes("dim", "self")
    shape = _reduced(tuple(args["self"].shape), axes, args["keepdim"])
    checks.shape("out", shape, "the shape that is left of self")

    def work() -> None:
        store(function(np.atleast_1d(plain(args["self"])) != 0, axis=axes).reshape(shape), "bool", args["out"])

    return work


def _extreme_and_position_plan(value: Callable[..., Any], position: Callable[..., Any], checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "out", "indices")
    checks.accept(("self", "out"))
    checks.accept(("indices",), ("int64", "int32"))
    checks.same("out", "self")
    checks.ranks(("self", "out", "indices"))
    axis = checks.axis("dim", "self")
    _check_extreme(checks, (axis,), "keepdim")
    checks.shape("indices", tuple(args["out"].shape), "the shape of out")

    def work() -> None:
        if args["out"].size:
            values = np.atleast_1d(plain(args["self"]))
            places = position(values, axis=axis).reshape(args["out"].shape)
            store(value(values, axis=axis).reshape(args["out"].shape), args["out"].dtype.name, args["out"])
            store(places, "int64", args["indices"])

    return work


def _cumsum_plan(checks: CoreChecks) -> Work:
    args = checks.args
    checks.require("self", "out")
    checks.accept(("self", "out"))
    result = checks.named("dtype", "out")
    checks.stores(checks.dtype("self"), "out")
    checks.ranks(("self", "out"))
    axis = checks.axis("dim", "self")
    checks.shape("out", tuple(args["self"].shape), "the shape of self")

    def work() -> None:
        values = np.atleast_1d(convert(args["self"], result))
        total = np.cumsum(values, axis=axis, dtype=_sum_type(result))
        store(total.reshape(args["out"].shape), result, args["out"])

    return work


def _softmax_plan(function: Callable[..., Any], inputs: tuple[str, ...], checks: CoreChecks) -> Work:
    args = checks.args
    checks.require(*inputs, "out")
    checks.accept(inputs, FLOATING)
    checks.accept(("out",))
    common = checks.promoted(inputs)
    checks.stores(common, "out")
    checks.ranks((*inputs, "out"))
    axis = checks.axis("dim", inputs[0])
    for name in (*inputs[1:], "out"):
        checks.shape(name, tuple(args[inputs[0]].shape), f"the shape of {inputs[0]}")

    def work() -> None:
        out = args["out"]
        if out.size:
            wide = [np.atleast_1d(convert(args[name], common)).astype(np.float64) for name in inputs]
            store(function(*wide, axis=axis).reshape(out.shape), common, out)

    return work


def _softmax(x: Array, axis: int) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _log_softmax(x: Array, axis: int) -> Any:
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def _softmax_backward(grad: Array, output: Array, axis: int) -> Any:
    return output * (grad - (grad * output).sum(axis=axis, keepdims=True))


def _log_softmax_backward(grad: Array, output: Array, axis: int) -> Any:
    return grad - np.exp(output) * grad.sum(axis=axis, keepdims=True)


def operators() -> dict[str, Stages]:
    """Give the stages of the reductions by name."""
    plans: dict[str, Callable[[CoreChecks], Work]] = {
        "aclnnReduceSum": partial(_sum_plan, np.sum, "dims", "keepDims", ACCEPTED),
        "aclnnMean": partial(_sum_plan, _mean, "dim", "keepDim", FLOATING),
        "aclnnAmax": partial(_extreme_plan, np.amax),
        "aclnnAmin": partial(_extreme_plan, np.amin),
        "aclnnAny": partial(_truth_plan, np.any),
        "aclnnAll": partial(_truth_plan, np.all),
        "aclnnMaxDim": partial(_extreme_and_position_plan, np.amax, np.argmax),
        "aclnnMinDim": partial(_extreme_and_position_plan, np.amin, np.argmin),
        "aclnnMax": partial(_whole_extreme_plan, np.amax),
        "aclnnMin": partial(_whole_extreme_plan, np.amin),
        "aclnnLogSoftmaxBackward": partial(_softmax_plan, _log_softmax_backward, ("gradOutput", "output")),
        "aclnnArgMax": partial(_position_plan, np.argmax),
        "aclnnArgMin": partial(_position_plan, np.argmin),
        "aclnnCumsum": _cumsum_plan,
        "aclnnSoftmax": partial(_softmax_plan, _softmax, ("self",)),
        "aclnnLogSoftmax": partial(_softmax_plan, _log_softmax, ("self",)),
        "aclnnSoftmaxBackward": partial(_softmax_plan, _softmax_backward, ("gradOutput", "output")),
    }
    return {name: stages(name, plan) for name, plan in plans.items()}
