"""NumPy semantics of the operators, for hosts without an NPU and for checking arguments everywhere.

:data:`OPERATORS` maps an operator to its two stages. ``validate`` is stage one: it looks at shapes, dtypes
and attributes only and raises what CANN would answer. ``compute`` is stage two on NumPy arrays, in place.
Argument keys are the C parameter names of ``cdefs/ops``.

Behaviour was established from the kernels, tiling and pages of CANN ops-transformer 9.1; where a page and the code
differ, the code is followed. Arithmetic is float32, with one rounding to nearest even per output element.

Examples
--------
>>> import numpy as np
>>> args = {
...     "permutedTokens": np.float32([[2], [1], [3], [2]]),
...     "sortedIndices": np.int32([2, 0, 4, 1, 5, 3]),
...     "probsOptional": None,
...     "numTopk": 2,
...     "rangeOptional": [1, 5],
...     "paddedMode": False,
...     "restoreShapeOptional": None,
...     "out": np.zeros((3, 1), np.float32),
... }
>>> operator = OPERATORS["aclnnMoeTokenUnpermuteWithEp"]
>>> operator.validate(args, "A2")
16777216
>>> operator.compute(args, "A2")
>>> args["out"].ravel().tolist()
[1.0, 4.0, 3.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import core, ep, finalize, routing

__all__ = ["OPERATORS", "Operator"]


class Operator(NamedTuple):
    """The two stages of one operator.

    Attributes
    ----------
    validate : callable
        ``validate(args, product) -> int``: the workspace size in bytes, 0 when nothing would be launched.
        Tensors may be any objects with ``shape`` and ``dtype``; no data is read. Raises through ``errors.check``.
    compute : callable
        ``compute(args, product)``: writes the output arrays in place; expects validated arguments.
    """

    validate: Callable[[Mapping[str, Any], str], int]
    compute: Callable[[Mapping[str, Any], str], None]


#: Every operator the reference backend serves.
OPERATORS: dict[str, Operator] = {
    "aclnnMoeFinalizeRoutingV2Grad": Operator(finalize.validate_v2_grad, finalize.compute_v2_grad),
    "aclnnMoeFinalizeRoutingV2": Operator(finalize.validate_v2, finalize.compute_v2),
    "aclnnMoeInitRoutingV2": Operator(routing.validate_init_v2, routing.compute_init_v2),
    "aclnnMoeTokenPermuteWithEp": Operator(routing.validate_permute, routing.compute_permute),
    "aclnnMoeTokenPermuteWithEpGrad": Operator(ep.validate_permute_grad, ep.compute_permute_grad),
    "aclnnMoeTokenUnpermuteWithEp": Operator(ep.validate_unpermute, ep.compute_unpermute),
    "aclnnMoeTokenUnpermuteWithEpGrad": Operator(ep.validate_unpermute_grad, ep.compute_unpermute_grad),
    **{name: Operator(*stages) for name, stages in core.OPERATORS.items()},
}
