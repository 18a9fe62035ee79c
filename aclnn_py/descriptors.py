"""Typed owners of the C descriptors: aclTensor, aclScalar, arrays and lists.

One owner each, destroyed once. A list destroys its elements, so they are handed over to it (``detach``). ``None``
stands for a null pointer; an empty array is a descriptor of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import dtypes, errors
from ._ffi import ffi

__all__ = ["BY_VALUE", "Descriptor", "Scalar", "make", "view_shape"]


class Scalar:
    """A number with the dtype that its aclScalar shall have.

    Parameters
    ----------
    value
        A Python or NumPy number.
    dtype
        dtype-like or name; default: that of a NumPy number, else bool, int64, float64 or complex128. CANN accepts
        these for tensors of any dtype.

    Raises
    ------
    TypeError
        Not a number, or a dtype without an aclDataType.
    OverflowError
        The value does not fit the dtype.

    Examples
    --------
    >>> Scalar(1.5, "float32")
    Scalar(1.5, 'float32')
    """

    __slots__ = ("dtype", "value")

    def __init__(self, value: Any, dtype: Any = None) -> None:
        if isinstance(value, np.generic):
            default: Any = value.dtype
        elif isinstance(value, bool):
            default = np.bool_
        elif isinstance(value, int):
            default = np.int64
        elif isinstance(value, float):
            default = np.float64
        elif isinstance(value, complex):
            default = np.complex128
        else:
            raise TypeError(f"Scalar takes a number, got {type(value).__name__}")
        self.dtype = dtypes.parse(default if dtype is None else dtype)
        self.value = np.asarray(value, self.dtype)[()] if dtype is None else self._cast(value)

    def _cast(self, value: Any) -> Any:
        if self.dtype.kind in "iu" and not isinstance(value, (int, np.integer)):
            raise TypeError(f"Scalar of dtype {dtypes.name(self.dtype)} takes an integer, got {value!r}")
        if self.dtype.kind in "iu":
            info = np.iinfo(self.dtype)
            if not info.min <= int(value) <= info.max:
                raise OverflowError(f"Scalar {value!r} does not fit {dtypes.name(self.dtype)}")
        with np.errstate(over="ignore"):  # a float too large becomes inf, as in C
            return np.asarray(value).astype(self.dtype)[()]

    def __repr__(self) -> str:
        value = self.value.item() if self.dtype.kind != "V" else float(self.value)
        return f"Scalar({value!r}, {dtypes.name(self.dtype)!r})"


class Descriptor:
    """Owner of one C object: ``pointer`` is valid until ``close()`` or, in a list, until the list closes."""

    __slots__ = ("_destroy", "elements", "pointer")

    def __init__(self, what: str, pointer: Any, destroy: Callable[[Any], int], elements: Any = ()) -> None:
        if not pointer:
            raise errors.AclnnError(None, what, detail=f"{what} returned NULL")
        self.pointer = pointer
        self._destroy: Callable[[Any], int] | None = destroy
        self.elements = elements  # Descriptors that a list has taken over, for their pointers

    def close(self) -> None:
        """Destroy the C object; later calls do nothing."""
        destroy, self._destroy = self._destroy, None
        if destroy is not None:
            destroy(self.pointer)

    def detach(self) -> Any:
        """Give the C object away; the new owner destroys it."""
        self._destroy = None
        return self.pointer


def _tensor(api: Any, array: Any) -> Descriptor:
    return Descriptor("aclCreateTensor", api.aclCreateTensor(*array.descriptor), api.aclDestroyTensor)


def _scalar(api: Any, scalar: Scalar) -> Descriptor:
    data = ffi.from_buffer(np.atleast_1d(np.asarray(scalar.value, scalar.dtype)).view(np.uint8))
    pointer = api.aclCreateScalar(ffi.cast("void *", data), dtypes.to_acl(scalar.dtype))
    return Descriptor("aclCreateScalar", pointer, api.aclDestroyScalar)


def _array(create: str, destroy: str, ctype: str) -> Callable[[Any, Any], Descriptor]:
    def make_array(api: Any, values: Any) -> Descriptor:
        data = ffi.new(ctype, values) if values else ffi.NULL
        return Descriptor(create, getattr(api, create)(data, len(values)), getattr(api, destroy))

    return make_array


def _list(
    create: str, destroy: str, ctype: str, element: Callable[[Any, Any], Descriptor]
) -> Callable[[Any, Any], Descriptor]:
    def make_list(api: Any, values: Any) -> Descriptor:
        elements: list[Descriptor | None] = []
        try:
            for value in values:
                elements.append(None if value is None else element(api, value))
            pointers = [ffi.NULL if item is None else item.pointer for item in elements]
            data = ffi.new(ctype, pointers) if pointers else ffi.NULL
            made = Descriptor(create, getattr(api, create)(data, len(pointers)), getattr(api, destroy), elements)
        except BaseException:
            for item in elements:
                if item is not None:
                    item.close()
            raise
        for item in elements:  # aclDestroy...List destroys every element
            if item is not None:
                item.detach()
        return made

    return make_list


_MAKERS: dict[str, Callable[[Any, Any], Descriptor]] = {
    "tensor": _tensor,
    "scalar": _scalar,
    "int_array": _array("aclCreateIntArray", "aclDestroyIntArray", "int64_t[]"),
    "float_array": _array("aclCreateFloatArray", "aclDestroyFloatArray", "float[]"),
    "bool_array": _array("aclCreateBoolArray", "aclDestroyBoolArray", "bool[]"),
    "tensor_list": _list("aclCreateTensorList", "aclDestroyTensorList", "aclTensor *[]", _tensor),
    "scalar_list": _list("aclCreateScalarList", "aclDestroyScalarList", "aclScalar *[]", _scalar),
}


#: Kinds that are passed as they are, without a C object.
BY_VALUE = frozenset({"bool", "int", "float", "double", "string", "dtype", "enum"})


def make(api: Any, kind: str, value: Any) -> Descriptor:
    """Create the C object of an argument.

    Parameters
    ----------
    api
        The functions of the opened libraries.
    kind
        Kind of the parameter, see ``signatures.KINDS``; not one of ``BY_VALUE``.
    value
        A converted argument, not None: a device array, a ``Scalar``, a tuple of either or of numbers.

    Raises
    ------
    AclnnError
        The library returned NULL.
    """
    return _MAKERS[kind](api, value)


def view_shape(libraries: Any, tensor: Any) -> tuple[int, ...]:
    """Return the present shape of an aclTensor.

    Raises
    ------
    AclnnError
        The library refused.
    """
    dims, count = ffi.new("int64_t **"), ffi.new("uint64_t *")
    errors.check(libraries.api.aclGetViewShape(tensor, dims, count), "aclGetViewShape")
    shape = tuple(ffi.unpack(dims[0], count[0])) if count[0] else ()
    libraries.delete_array(dims[0])
    return shape
