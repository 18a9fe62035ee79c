"""Argument checks that the operators share: a status code, and a text that names what is wrong.

A check looks at ``shape`` and ``dtype`` only, so it serves arrays and device arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .. import dtypes, errors

NULLPTR = 161001
INVALID = 161002
TILING = 561002
INNER_NULLPTR = 561103

#: What stage one reports: the 16 MiB that tiling asks for, padded where the operator layer is hand-written.
WORKSPACE_COMPOSITE = 16777728
WORKSPACE_GENERATED = 16777216

FLOATS = ("float16", "bfloat16", "float32")


def size(tensor: Any) -> int:
    """Count the elements of a tensor."""
    return math.prod(tensor.shape)


class Checks:
    """The checks of one stage-one call.

    Parameters
    ----------
    api : str
        The operator.
    args : mapping
        Arguments by C parameter name.
    refused : int
        The status that this operator gives for a shape or value it refuses.
    """

    def __init__(self, api: str, args: Mapping[str, Any], refused: int) -> None:
        self.api = api
        self.args = args
        self.refused = refused

    def fail(self, code: int, name: str, got: object, expected: str) -> None:
        """Raise the error of ``code``."""
        # the text says exactly what is wrong, so the general advice for the code would only mislead
        hint = "convert the index: .astype(numpy.int32)" if "int64" in str(got) and "int32" in expected else ""
        errors.check(code, self.api, "GetWorkspaceSize", detail=f"{name}: got {got}, expected {expected}", hint=hint)

    def need(self, ok: bool, name: str, got: object, expected: str) -> None:
        """Refuse a shape or value unless ``ok``."""
        if not ok:
            self.fail(self.refused, name, got, expected)

    def present(self, *names: str) -> None:
        """Refuse null pointers."""
        for name in names:
            if self.args[name] is None:
                self.fail(NULLPTR, name, None, "a tensor")

    def one_of(self, name: str, accepted: tuple[str, ...], code: int = INVALID) -> None:
        """Refuse a dtype outside ``accepted``; an absent tensor passes."""
        tensor = self.args[name]
        if tensor is not None:
            found = dtypes.name(tensor.dtype)
            if found not in accepted:
                self.fail(code, name, f"dtype {found}", " or ".join(accepted))

    def same(self, name: str, other: str, code: int = INVALID) -> None:
        """Refuse a dtype that differs from that of ``other``; an absent tensor passes."""
        tensor = self.args[name]
        if tensor is not None:
            found, wanted = dtypes.name(tensor.dtype), dtypes.name(self.args[other].dtype)
            if found != wanted:
                self.fail(code, name, f"dtype {found}", f"{wanted}, the dtype of {other}")

    def rank(self, name: str, *accepted: int) -> None:
        """Refuse a tensor of another number of dimensions; an absent tensor passes."""
        tensor = self.args[name]
        if tensor is not None and len(tensor.shape) not in accepted:
            ranks = " or ".join(map(str, accepted))
            self.fail(self.refused, name, f"shape {tuple(tensor.shape)}", f"{ranks} dimension(s)")

    def shape(self, name: str, expected: tuple[int, ...], meaning: str) -> None:
        """Refuse any other shape; an absent tensor passes."""
        tensor = self.args[name]
        if tensor is not None and tuple(tensor.shape) != expected:
            self.fail(self.refused, name, f"shape {tuple(tensor.shape)}", f"{expected} = {meaning}")

    def in_list(self, names: tuple[str, ...], accepted: tuple[str, ...]) -> None:
        """Check dtypes as the hand-written operator layers do: a tensor without elements is not looked at."""
        for name in names:
            tensor = self.args[name]
            if tensor is not None and size(tensor):
                self.one_of(name, accepted)

    def like(self, names: tuple[str, ...], other: str) -> None:
        """Check dtypes against the list and ``other`` the same way."""
        for name in names:
            self.in_list((name,), FLOATS)
            tensor = self.args[name]
            if tensor is not None and size(tensor):
                self.same(name, other)

    def nothing_to_do(self, tokens: str, ranks: tuple[int, ...], *outputs: str) -> bool:
        """Tell whether no output has elements: nothing is launched then, and no shape is looked at.

        Except the rank of the token tensor, since outputs allocated for tokens of a wrong rank may come out empty.
        """
        if any(self.args[name] is not None and size(self.args[name]) for name in outputs):
            return False
        self.rank(tokens, *ranks)
        return True


def range_pair(checks: Checks, values: list[int] | None, length: int) -> tuple[int, int]:
    """Read ``rangeOptional``: a pair, or null, which means all of ``[0, length)``."""
    if values is None:
        return 0, length
    checks.need(len(values) == 2, "rangeOptional", f"{len(values)} value(s) {list(values)}", "2 values or null")
    return int(values[0]), int(values[1])
