"""The core operators (arithmetic, comparison, reduction, indexing and so on), of which here those that fill and copy.

Results are PyTorch's for the operator of the same name; statuses are those of CANN's hand-written operator layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from . import core_elementwise, core_index, core_matmul, core_reduce
from .core_checks import CoreChecks, Stages, Work, stages
from .core_types import convert, plain, scalar_array, store

__all__ = ["OPERATORS"]


def _constant_plan(value: int, checks: CoreChecks) -> Work:
    checks.require("selfRef")
    checks.accept(("selfRef",))
    checks.ranks(("selfRef",))

    def work() -> None:
        checks.args["selfRef"][...] = value

    return work


def _fill_plan(checks: CoreChecks) -> Work:
    checks.require("selfRef", "value")
    checks.accept(("selfRef", "value"))
    checks.ranks(("selfRef",))
    out = checks.args["selfRef"]
    return lambda: store(scalar_array(checks.args["value"], out.dtype.name), out.dtype.name, out)


def _copy_plan(checks: CoreChecks) -> Work:
    checks.require("selfRef", "src")
    checks.accept(("selfRef", "src"))
    checks.ranks(("selfRef", "src"))
    checks.shape("selfRef", checks.broadcast(("selfRef", "src")), "the broadcast shape of selfRef and src")
    out = checks.args["selfRef"]
    return lambda: store(convert(checks.args["src"], out.dtype.name), out.dtype.name, out)


def _cast_plan(checks: CoreChecks) -> Work:
    checks.require("self", "out")
    checks.accept(("self", "out"))
    result = checks.named("dtype", "out")
    checks.ranks(("self", "out"))
    checks.shape("out", tuple(checks.args["self"].shape), "the shape of self")
    return lambda: store(plain(checks.args["self"]), result, checks.args["out"])


def _arange_plan(checks: CoreChecks) -> Work:
    names = ("start", "end", "step")
    checks.require(*names, "out")
    checks.accept((*names, "out"))
    start, end, step = (float(checks.args[name].value) for name in names)
    for name, value in zip(names, (start, end, step), strict=True):
        checks.need(math.isfinite(value), name, value, "a finite number")
    checks.need(step != 0, "step", step, "a number other than 0")
    steps = (end - start) / step
    checks.need(steps >= 0, "step", step, f"one that leads from {start} to {end}")
    checks.need(steps < math.inf, "out", f"shape {tuple(checks.args['out'].shape)}", "infinitely many elements")
    count = math.ceil(steps)
    checks.shape("out", (count,), "ceil((end - start) / step)")
    out = checks.args["out"]
    return lambda: store(start + np.arange(count, dtype=np.float64) * step, out.dtype.name, out)


def _operators() -> dict[str, Stages]:
    plans: dict[str, Callable[[CoreChecks], Work]] = {
        "aclnnInplaceOne": partial(_constant_plan, 1),
        "aclnnInplaceZero": partial(_constant_plan, 0),
        "aclnnInplaceFillScalar": _fill_plan,
        "aclnnInplaceCopy": _copy_plan,
        "aclnnCast": _cast_plan,
        "aclnnArange": _arange_plan,
    }
    return {name: stages(name, plan) for name, plan in plans.items()}


#: The two stages of every core operator.
OPERATORS: dict[str, Stages] = {
    **_operators(),
    **core_elementwise.operators(),
    **core_matmul.operators(),
    **core_reduce.operators(),
    **core_index.operators(),
}
