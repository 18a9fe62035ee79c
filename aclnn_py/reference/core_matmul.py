"""Matrix products: float32 sums, one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .core_checks import CoreChecks, Stages, Work, stages
from .core_types import HALVES, convert, scalar_array, store

_TYPES = ("float32", *HALVES)


def _check(checks: CoreChecks, tensors: tuple[str, ...], scalars: tuple[str, ...], out: str) -> str:
    """Check all but shapes; return the type of the product."""
    checks.require(*tensors, *scalars, out)
    checks.accept((*tensors, out), _TYPES)
    checks.accept(scalars)
    checks.whole("cubeMathType", 0, 3)
    checks.ranks((*tensors, out))
    return checks.promoted(tensors)


def _product_shape(checks: CoreChecks, left: str, right: str) -> tuple[int, ...]:
    """Give the shape of a product as torch.matmul does: a vector is a row on the left, a column on the right."""
    one, two = (tuple(checks.args[name].shape) for name in (left, right))
    checks.need(len(one) > 0, left, "shape ()", "at least one dimension")
    checks.need(len(two) > 0, right, "shape ()", "at least one dimension")
    inner = two[-2] if len(two) > 1 else two[0]
    checks.need(one[-1] == inner, right, f"shape {two}", f"{one[-1]} rows, the columns of {left} {one}")
    try:
        batch = np.broadcast_shapes(one[:-2], two[:-2])
    except ValueError:
        checks.need(False, right, f"shape {two}", f"batches that broadcast with {left} {one}")
    return (*batch, *one[-2:-1], *(two[-1:] if len(two) > 1 else ()))


def _matmul_plan(rank: int, checks: CoreChecks) -> Work:
    args = checks.args
    common = _check(checks, ("self", "mat2"), (), "out")
    if rank:
        checks.rank("self", rank)
        checks.rank("mat2", rank)
    if rank == 3:
        checks.need(
            args["self"].shape[0] == args["mat2"].shape[0],
            "mat2",
            f"{args['mat2'].shape[0]} matrices",
            f"{args['self'].shape[0]}, as self has",
        )
    checks.shape("out", _product_shape(checks, "self", "mat2"), "the shape of the product")

    def work() -> None:
        store(np.matmul(convert(args["self"], common), convert(args["mat2"], common)), common, args["out"])

    return work


def _addmm_plan(self: str, out: str, checks: CoreChecks) -> Work:
    args = checks.args
    common = _check(checks, (self, "mat1", "mat2"), ("beta", "alpha"), out)
    checks.rank("mat1", 2)
    checks.rank("mat2", 2)
    shape = _product_shape(checks, "mat1", "mat2")
    checks.shape(out, shape, "the shape of the product")
    given = tuple(args[self].shape)
    fits = len(given) <= 2 and all(n in (1, m) for n, m in zip(given[::-1], shape[::-1], strict=False))
    checks.need(fits, self, f"shape {given}", f"one that broadcasts to {shape}")

    def work() -> None:
        alpha, beta = (scalar_array(args[name], "float32") for name in ("alpha", "beta"))
        total = alpha * np.matmul(convert(args["mat1"], common), convert(args["mat2"], common))
        # with beta 0 not even a NaN of self counts
        if beta != 0:
            total = beta * convert(args[self], common) + total
        store(total, common, args[out])

    return work


def operators() -> dict[str, Stages]:
    """Give the stages of the matrix products by name."""
    plans: dict[str, Callable[[CoreChecks], Work]] = {
        "aclnnMatmul": partial(_matmul_plan, 0),
        "aclnnMm": partial(_matmul_plan, 2),
        "aclnnBatchMatMul": partial(_matmul_plan, 3),
        "aclnnAddmm": partial(_addmm_plan, "self", "out"),
        "aclnnInplaceAddmm": partial(_addmm_plan, "selfRef", "selfRef"),
    }
    return {name: stages(name, plan) for name, plan in plans.items()}
