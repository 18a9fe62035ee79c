"""Argument checks of the core operators, and the two stages that each of their plans makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from .. import dtypes, errors
from .checks import INVALID, NULLPTR, Checks
from .core_types import ACCEPTED, castable, category, promote, promote_scalar
from .numerics import Array

#: Writes the outputs.
Work = Callable[[], None]
#: Stage one and stage two.
Stages = tuple[Callable[[Mapping[str, Any], str], int], Callable[[Mapping[str, Any], str], None]]

_MAX_RANK = 8


def is_tensor(value: Any) -> bool:
    """Tell a tensor from a scalar; both have a dtype."""
    return hasattr(value, "shape")


class CoreChecks(Checks):
    """The checks of one call: null pointers first, then dtypes, then shapes."""

    def __init__(self, api: str, args: Mapping[str, Any]) -> None:
        super().__init__(api, args, INVALID)

    def require(self, *names: str) -> None:
        """Refuse null pointers to anything."""
        for name in names:
            if self.args[name] is None:
                self.fail(NULLPTR, name, None, "a value that is not null")

    def accept(self, names: Iterable[str], accepted: tuple[str, ...] = ACCEPTED) -> None:
        """Refuse tensors and scalars of a dtype outside ``accepted``."""
        for name in names:
            self.one_of(name, accepted)

    def dtype(self, name: str) -> str:
        """Name the dtype of a tensor or scalar."""
        return dtypes.name(self.args[name].dtype)

    def promoted(self, names: Iterable[str]) -> str:
        """Give the common type of tensors and scalars, null ones left out."""
        given = [name for name in names if self.args[name] is not None]
        tensors = [self.dtype(name) for name in given if is_tensor(self.args[name])]
        scalars = [self.dtype(name) for name in given if not is_tensor(self.args[name])]
        return reduce(promote_scalar, scalars, reduce(promote, tensors))

    def stores(self, result: str, out: str) -> None:
        """Refuse an output that the result cannot be cast to."""
        found = self.dtype(out)
        self.need(castable(result, found), out, f"dtype {found}", f"one that {result}, the result's, can be cast to")

    def integral_scalar(self, name: str, result: str) -> None:
        """Refuse a floating factor where the result is not floating."""
        found = self.dtype(name)
        self.need(category(found) < 2 or category(result) == 2, name, f"dtype {found}", f"an integer, for {result}")

    def named(self, name: str, out: str) -> str:
        """Read an aclDataType argument, which must be that of the output."""
        found = self.dtype(out)
        value = int(self.args[name])
        self.need(value == dtypes.to_acl(self.args[out].dtype), name, value, f"that of {out}, which is {found}")
        return found

    def ranks(self, names: Iterable[str]) -> None:
        """Refuse tensors of more than eight dimensions."""
        for name in names:
            value = self.args[name]
            if is_tensor(value) and len(value.shape) > _MAX_RANK:
                self.fail(INVALID, name, f"{len(value.shape)} dimensions", f"at most {_MAX_RANK}")

    def broadcast(self, names: Iterable[str]) -> tuple[int, ...]:
        """Give the common shape of tensors; refuse those that have none."""
        common: tuple[int, ...] = ()
        for name in names:
            value = self.args[name]
            if not is_tensor(value):
                continue
            try:
                common = np.broadcast_shapes(common, tuple(value.shape))
            except ValueError:
                self.fail(INVALID, name, f"shape {tuple(value.shape)}", f"one that broadcasts with {common}")
        return common

    def axis(self, name: str, tensor: str) -> int:
        """Read a dimension of a tensor; one without dimensions counts as having one."""
        rank = max(1, len(self.args[tensor].shape))
        return self.axis_of(name, rank)

    def axis_of(self, name: str, rank: int) -> int:
        """Read a dimension of something of that rank."""
        return self._axis(name, int(self.args[name]), rank)

    def axes(self, name: str, tensor: str) -> tuple[int, ...]:
        """Read a list of dimensions; an empty list means all."""
        rank = max(1, len(self.args[tensor].shape))
        found = tuple(self._axis(name, int(value), rank) for value in self.args[name])
        self.need(len(set(found)) == len(found), name, list(self.args[name]), "each dimension once")
        return found or tuple(range(rank))

    def _axis(self, name: str, value: int, rank: int) -> int:
        self.need(-rank <= value < rank, name, value, f"{-rank} to {rank - 1}")
        return value % rank

    def whole(self, name: str, low: int, high: int) -> int:
        """Read an integer within bounds."""
        value = int(self.args[name])
        self.need(low <= value <= high, name, value, f"{low} to {high}")
        return value

    def indices(self, name: str, count: int) -> Array:
        """Read an index tensor; nothing is written when an entry is outside ``[0, count)``."""
        index: Array = np.array(self.args[name], dtype=np.int64)
        bad = (index < 0) | (index >= count)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            raise errors.IndexOutOfRangeError(
                INVALID, self.api, "run", f"{name}{list(at)}: got {index[at]}, expected 0 to {count - 1}"
            )
        return index


def stages(api: str, plan: Callable[[CoreChecks], Work]) -> Stages:
    """Make the two stages of an operator of a plan, which checks the arguments and returns the work to do.

    None of these operators asks for workspace. Overflow, NaN and division by zero are results, not warnings.
    """

    def validate(args: Mapping[str, Any], product: str) -> int:
        plan(CoreChecks(api, args))
        return 0

    def compute(args: Mapping[str, Any], product: str) -> None:
        work = plan(CoreChecks(api, args))
        with np.errstate(all="ignore"):
            work()

    return validate, compute
