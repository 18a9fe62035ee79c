"""torch tensors as operator arguments: which are accepted, and CPU tensors as NumPy arrays that share their memory."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from .. import arrays, dtypes

__all__ = ["TensorFamily", "TensorView", "numpy_dtype", "refuse", "torch_dtype"]

# torch lends memory of these to NumPy only as integers of the same size
_CARRIERS = {1: "uint8", 2: "int16"}


class TensorView(np.ndarray):
    """NumPy's view of a torch CPU tensor; ``tensor`` is None in views and copies of it."""

    tensor: Any = None


@cache
def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a torch dtype.

    Raises
    ------
    TypeError
        It has no aclDataType.
    """
    try:
        return dtypes.parse(str(dtype).removeprefix("torch."))
    except TypeError:
        raise TypeError(f"dtype {dtype} has no aclDataType that NumPy can hold") from None


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the torch dtype of a NumPy dtype."""
    import torch

    return getattr(torch, dtypes.torch_name(dtype))


def refuse(where: str, tensor: Any) -> None:
    """Raise for a tensor that no operator can use in place.

    Raises
    ------
    TypeError
        Not strided memory of a device that is served, a dtype without aclDataType, or bits that are still to apply.
    RuntimeError
        It requires a gradient, which the call would lose.
    """
    import torch

    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(
            f"{where} is a {type(tensor).__name__}, a tensor without memory of its own; the operators of "
            "aclnn_py.interop.torch propagate shapes, and a DTensor has .to_local()"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"{where} is a sparse tensor ({tensor.layout}); pass .to_dense()")
    if tensor.is_quantized:
        raise TypeError(f"{where} is a quantized tensor ({tensor.dtype}); pass .dequantize() or .int_repr()")
    if tensor.device.type not in ("cpu", "npu"):
        raise TypeError(f"{where} is on device {str(tensor.device)!r}; accepted are 'cpu' and 'npu'")
    if tensor.is_conj():
        raise TypeError(f"{where} is conjugated lazily; pass .resolve_conj()")
    if tensor.is_neg():
        raise TypeError(f"{where} is negated lazily; pass .resolve_neg()")
    try:
        numpy_dtype(tensor.dtype)
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from None
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{where} requires a gradient, and this call is not recorded by autograd; use .detach() or "
            "torch.no_grad(), or the differentiable operators of aclnn_py.interop.torch"
        )


def _view(where: str, tensor: Any) -> TensorView:
    import torch

    dtype = numpy_dtype(tensor.dtype)
    plain = tensor.detach()
    try:
        if dtype.type.__module__.startswith("ml_dtypes"):
            memory = plain.view(getattr(torch, _CARRIERS[dtype.itemsize])).numpy().view(dtype)
        else:
            memory = plain.numpy()
    except (RuntimeError, TypeError) as error:  # a wrapper of torch.func, for example
        raise TypeError(f"{where} is a tensor whose memory NumPy cannot see: {error}") from None
    view: TensorView = memory.view(TensorView)
    view.tensor = tensor
    return view


class CpuFamily(arrays.NumpyFamily):
    """Torch CPU tensors, through NumPy views of their memory."""

    def convert(self, where: str, value: Any) -> Any:
        """Accept CPU tensors and their views."""
        found = value if isinstance(value, TensorView) else arrays.as_array(where, value)
        if not isinstance(found, TensorView):
            raise TypeError(f"{where} takes a torch CPU tensor, as the other arguments are, got {type(value).__name__}")
        return found

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any], backend: Any, stream: Any) -> Any:
        """Return the view of a new zero-filled tensor."""
        import torch

        return _view("output", torch.zeros(shape, dtype=torch_dtype(dtype)))

    def result(self, array: Any) -> Any:
        """Return the tensor."""
        return array.tensor


class TensorFamily(arrays.NumpyFamily):
    """Any torch tensor: what stands for it has the family of its device."""

    def convert(self, where: str, value: Any) -> Any:
        """Check the tensor and wrap it."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(
            value, torch.Tensor
        ):  # a dtype, a device, or a type that only looks like one
            raise TypeError(f"{where} takes an array, got {type(value).__name__}")
        refuse(where, value)
        if value.device.type == "cpu":
            return _view(where, value)
        from . import npu

        return npu.wrap(where, value)


arrays.register("torch", TensorFamily())
arrays.register(__name__, CpuFamily())
