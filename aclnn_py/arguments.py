"""Python values to operator arguments: one check per kind of C parameter, the same on every backend.

Each check returns a value that needs no further look: an array, a Python number, a tuple or ``None`` (null).
A refusal names the operator, the C parameter, what came and what is accepted, before any C call.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import dtypes
from .arrays import as_array
from .descriptors import Scalar
from .device_array import DeviceArray
from .signatures import Parameter, Signature

__all__ = ["convert", "convert_tensor", "warn_open_range"]

INT_RANGES = {
    "int8_t": (-(2**7), 2**7 - 1),
    "int16_t": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    "uint8_t": (0, 2**8 - 1),
    "uint16_t": (0, 2**16 - 1),
    "uint32_t": (0, 2**32 - 1),
    "uint64_t": (0, 2**64 - 1),
}
FLOAT_MAX = float(np.finfo(np.float32).max)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "(too long to show)"
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _refuse(where: str, parameter: Parameter, value: Any, accepted: str) -> TypeError:
    return TypeError(f"{where}: argument {parameter.name!r} ({parameter.ctype}) takes {accepted}, got {_shown(value)}")


def _bool(where: str, parameter: Parameter, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _refuse(where, parameter, value, "True or False")
    return bool(value)


def _integer(where: str, parameter: Parameter, value: Any, ctype: str) -> int:
    if isinstance(value, (bool, np.bool_, np.ndarray)):
        raise _refuse(where, parameter, value, "an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise _refuse(where, parameter, value, "an integer") from None
    low, high = INT_RANGES[ctype]
    if not low <= number <= high:
        raise OverflowError(
            f"{where}: argument {parameter.name!r} ({parameter.ctype}) takes {low} to {high}, got {number}"
        )
    return number


def _int(where: str, parameter: Parameter, value: Any) -> int:
    if type(value) is int and -(2**31) <= value < 2**31 and parameter.ctype == "int64_t":
        return value  # nearly every integer argument
    return _integer(where, parameter, value, parameter.ctype)


def _real(where: str, parameter: Parameter, value: Any, single: bool) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise _refuse(where, parameter, value, "a real number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    beyond = math.isinf(number) and not (isinstance(value, (float, np.floating)) and np.isinf(value))
    if beyond or (single and math.isfinite(number) and abs(number) > FLOAT_MAX):
        width = "float32" if single else "float64"
        raise OverflowError(
            f"{where}: argument {parameter.name!r} ({parameter.ctype}) takes {width} values, got {_shown(value)}"
        )
    return number


def _float(where: str, parameter: Parameter, value: Any) -> float:
    return _real(where, parameter, value, single=True)


def _double(where: str, parameter: Parameter, value: Any) -> float:
    return _real(where, parameter, value, single=False)


def _string(where: str, parameter: Parameter, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, (str, bytes)):
        raise _refuse(where, parameter, value, "a string")
    try:
        text = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise _refuse(where, parameter, value, "a string that UTF-8 can hold") from None
    if b"\0" in text:
        raise ValueError(f"{where}: argument {parameter.name!r} ({parameter.ctype}) must not contain NUL characters")
    return text


def _dtype(where: str, parameter: Parameter, value: Any) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return _integer(where, parameter, value, "int32_t")
    try:
        return dtypes.to_acl(dtypes.parse(value))
    except TypeError:
        raise _refuse(where, parameter, value, "a dtype, its name or its aclDataType number") from None


def _enum(where: str, parameter: Parameter, value: Any) -> int:
    if isinstance(value, str):
        from ._ffi import ffi

        try:
            return int(ffi.integer_const(value))
        except (AttributeError, ffi.error):
            raise _refuse(where, parameter, value, f"a name or number of {parameter.ctype}") from None
    return _integer(where, parameter, value, "int32_t")


def _items(
    where: str, parameter: Parameter, value: Any, item: Callable[[Any], Any], accepted: str
) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) != 1:
        raise _refuse(where, parameter, value, f"a sequence of {accepted}, or None")
    return tuple(item(entry) for entry in value)


def _int_array(where: str, parameter: Parameter, value: Any) -> tuple[int, ...] | None:
    return _items(where, parameter, value, lambda x: _integer(where, parameter, x, "int64_t"), "integers")


def _float_array(where: str, parameter: Parameter, value: Any) -> tuple[float, ...] | None:
    return _items(where, parameter, value, lambda x: _real(where, parameter, x, True), "real numbers")


def _bool_array(where: str, parameter: Parameter, value: Any) -> tuple[bool, ...] | None:
    return _items(where, parameter, value, lambda x: _bool(where, parameter, x), "bools")


def _tensor(where: str, parameter: Parameter, value: Any) -> Any:
    return None if value is None else as_array(f"{where}: argument {parameter.name!r}", value)


def _tensor_list(where: str, parameter: Parameter, value: Any) -> tuple[Any, ...] | None:
    if hasattr(value, "shape"):  # iterating over the rows of an array is never what the caller meant
        raise _refuse(where, parameter, value, "a list of arrays, or None")
    return _items(where, parameter, value, lambda x: _tensor(where, parameter, x), "arrays")


def _scalar(where: str, parameter: Parameter, value: Any) -> Scalar | None:
    if value is None or isinstance(value, Scalar):
        return value
    try:
        return Scalar(value)
    except TypeError:
        raise _refuse(where, parameter, value, "a number, aclnn_py.Scalar(value, dtype) or None") from None
    except OverflowError:
        raise OverflowError(
            f"{where}: argument {parameter.name!r} ({parameter.ctype}) takes integers of 64 bits, got {_shown(value)}"
        ) from None


def _scalar_list(where: str, parameter: Parameter, value: Any) -> tuple[Scalar, ...] | None:
    return _items(where, parameter, value, lambda x: _scalar(where, parameter, x), "numbers")


def _unknown(where: str, parameter: Parameter, value: Any) -> Any:
    raise TypeError(f"{where}: no conversion to C type {parameter.ctype!r} of {parameter.name!r}")


_CONVERTERS: dict[str, Callable[[str, Parameter, Any], Any]] = {
    "tensor": _tensor,
    "tensor_list": _tensor_list,
    "scalar": _scalar,
    "scalar_list": _scalar_list,
    "int_array": _int_array,
    "float_array": _float_array,
    "bool_array": _bool_array,
    "string": _string,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "double": _double,
    "dtype": _dtype,
    "enum": _enum,
    "unknown": _unknown,
}


def convert(signature: Signature, values: Iterable[Any]) -> list[Any]:
    """Check and convert the values of a call, given in C order.

    Raises
    ------
    TypeError
        A value of the wrong type, or a parameter of a C type that is not supported; names the C parameter.
    ValueError, OverflowError
        A value that the C type cannot hold.
    """
    name = signature.name
    try:
        # a device array is what the array registry would return; most arguments are one
        return [
            value if type(value) is DeviceArray and kind == "tensor" else _CONVERTERS[kind](name, p, value)
            for p, kind, value in zip(signature.parameters, signature.kinds, values, strict=True)
        ]
    except TypeError as error:  # perhaps an argument in the wrong place
        raise TypeError(f"{error}\n  C signature: {signature}") from None


def convert_tensor(signature: Signature, index: int, value: Any) -> Any:
    """Check and convert one tensor of a call, given the position of its parameter."""
    if type(value) is DeviceArray:
        return value
    parameter = signature.parameters[index]
    try:
        return _tensor(signature.name, parameter, value)
    except TypeError as error:
        raise TypeError(f"{error}\n  C signature: {signature}") from None


_warned_range = False


def warn_open_range(signature: Signature, values: list[Any]) -> None:
    """Warn once of a range that released versions read differently; said here, since the C call shows nothing."""
    global _warned_range
    if _warned_range:
        return
    for parameter, value in zip(signature.parameters, values, strict=True):
        if parameter.name == "rangeOptional" and value in (None, (-1, -1)):
            _warned_range = True
            warnings.warn(
                f"{signature.name}: a null or (-1, -1) range means everything in the newest sources, but nothing in "
                "the un-permute operators of CANN 8.x and 9.1; pass (0, N)",
                RuntimeWarning,
                stacklevel=5,
            )
