"""Pythonic operators: they check, allocate outputs and name arguments; one module per family."""

from .finalize import (
    MoeFinalizeRoutingV2Grad,
    MoeInitRoutingV2,
    column_major_row_idx,
    moe_finalize_routing_v2,
    moe_finalize_routing_v2_grad,
    moe_init_routing_v2,
    row_major_row_idx,
)
from .permute import (
    MoeTokenPermuteWithEp,
    MoeTokenPermuteWithEpGrad,
    moe_token_permute_with_ep,
    moe_token_permute_with_ep_grad,
)
from .unpermute import (
    MoeTokenUnpermuteWithEpGrad,
    moe_token_unpermute_with_ep,
    moe_token_unpermute_with_ep_grad,
)

__all__ = [
    "MoeFinalizeRoutingV2Grad",
    "MoeInitRoutingV2",
    "MoeTokenPermuteWithEp",
    "MoeTokenPermuteWithEpGrad",
    "MoeTokenUnpermuteWithEpGrad",
    "column_major_row_idx",
    "moe_finalize_routing_v2",
    "moe_finalize_routing_v2_grad",
    "moe_init_routing_v2",
    "moe_token_permute_with_ep",
    "moe_token_permute_with_ep_grad",
    "moe_token_unpermute_with_ep",
    "moe_token_unpermute_with_ep_grad",
    "row_major_row_idx",
]
