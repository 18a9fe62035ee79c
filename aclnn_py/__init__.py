"""cffi binding over the CANN aclnn two-stage C API of Ascend NPUs.

Importing opens no library and initialises nothing; the first use of a backend does. Start with ``Executor`` or the
operators, and ``get_backend`` to choose what serves them.
"""

from .backends import Backend, available_backends, get_backend
from .catalog import BoundOp, Op, empty, empty_like, has_op, list_ops, op
from .descriptors import Scalar
from .device_array import DeviceArray
from .errors import (
    AclnnError,
    ContextError,
    DeviceFaultError,
    DeviceMemoryError,
    DeviceTimeoutError,
    IndexOutOfRangeError,
    InferShapeError,
    InnerNullptrError,
    InternalError,
    InvalidParameterError,
    KernelNotFoundError,
    LibraryNotFoundError,
    NullptrError,
    ParameterError,
    RefusedArgumentError,
    RuntimeCallError,
    StubLibraryError,
    SymbolNotFoundError,
    TilingError,
    UnsupportedError,
    status_name,
)
from .executor import Executor
from .formats import with_format
from .ops import (
    MoeFinalizeRoutingV2Grad,
    MoeInitRoutingV2,
    MoeTokenPermuteWithEp,
    MoeTokenPermuteWithEpGrad,
    MoeTokenUnpermuteWithEpGrad,
    column_major_row_idx,
    moe_finalize_routing_v2,
    moe_finalize_routing_v2_grad,
    moe_init_routing_v2,
    moe_token_permute_with_ep,
    moe_token_permute_with_ep_grad,
    moe_token_unpermute_with_ep,
    moe_token_unpermute_with_ep_grad,
    row_major_row_idx,
)
from .runtime import Device, DeviceBuffer, Event, HostBuffer, Stream
from .signatures import Parameter, Signature, declare, parse_header

__version__ = "0.1.0"

__all__ = [
    "AclnnError",
    "Backend",
    "BoundOp",
    "ContextError",
    "Device",
    "DeviceArray",
    "DeviceBuffer",
    "DeviceFaultError",
    "DeviceMemoryError",
    "DeviceTimeoutError",
    "Event",
    "Executor",
    "HostBuffer",
    "IndexOutOfRangeError",
    "InferShapeError",
    "InnerNullptrError",
    "InternalError",
    "InvalidParameterError",
    "KernelNotFoundError",
    "LibraryNotFoundError",
    "MoeFinalizeRoutingV2Grad",
    "MoeInitRoutingV2",
    "MoeTokenPermuteWithEp",
    "MoeTokenPermuteWithEpGrad",
    "MoeTokenUnpermuteWithEpGrad",
    "NullptrError",
    "Op",
    "Parameter",
    "ParameterError",
    "RefusedArgumentError",
    "RuntimeCallError",
    "Scalar",
    "Signature",
    "Stream",
    "StubLibraryError",
    "SymbolNotFoundError",
    "TilingError",
    "UnsupportedError",
    "available_backends",
    "column_major_row_idx",
    "declare",
    "empty",
    "empty_like",
    "get_backend",
    "has_op",
    "list_ops",
    "moe_finalize_routing_v2",
    "moe_finalize_routing_v2_grad",
    "moe_init_routing_v2",
    "moe_token_permute_with_ep",
    "moe_token_permute_with_ep_grad",
    "moe_token_unpermute_with_ep",
    "moe_token_unpermute_with_ep_grad",
    "op",
    "parse_header",
    "row_major_row_idx",
    "status_name",
    "with_format",
]
