"""The one table of element types: NumPy dtype, aclDataType and torch name, exact both ways.

``ml_dtypes`` supplies bfloat16 and the 8-bit floats to NumPy; it is imported when such a type is first asked
for, never before. Types without an exact NumPy counterpart (HiFloat8, the packed 4- and 6-bit types) are left out.
Enum values follow ``cdefs/types.h``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["acl_name", "bfloat16", "from_acl", "name", "parse", "to_acl", "torch_name"]

# NumPy name, aclDataType name, value, torch name, comes from ml_dtypes
_TABLE: tuple[tuple[str, str, int, str, bool], ...] = (
    ("float32", "ACL_FLOAT", 0, "float32", False),
    ("float16", "ACL_FLOAT16", 1, "float16", False),
    ("int8", "ACL_INT8", 2, "int8", False),
    ("int32", "ACL_INT32", 3, "int32", False),
    ("uint8", "ACL_UINT8", 4, "uint8", False),
    ("int16", "ACL_INT16", 6, "int16", False),
    ("uint16", "ACL_UINT16", 7, "uint16", False),
    ("uint32", "ACL_UINT32", 8, "uint32", False),
    ("int64", "ACL_INT64", 9, "int64", False),
    ("uint64", "ACL_UINT64", 10, "uint64", False),
    ("float64", "ACL_DOUBLE", 11, "float64", False),
    ("bool", "ACL_BOOL", 12, "bool", False),
    ("complex64", "ACL_COMPLEX64", 16, "complex64", False),
    ("complex128", "ACL_COMPLEX128", 17, "complex128", False),
    ("bfloat16", "ACL_BF16", 27, "bfloat16", True),
    ("float8_e5m2", "ACL_FLOAT8_E5M2", 35, "float8_e5m2", True),
    ("float8_e4m3fn", "ACL_FLOAT8_E4M3FN", 36, "float8_e4m3fn", True),
    ("float8_e8m0fnu", "ACL_FLOAT8_E8M0", 37, "float8_e8m0fnu", True),
)
_BY_NAME = {row[0]: row for row in _TABLE}
_BY_ACL = {row[2]: row for row in _TABLE}
_BY_ALIAS = {alias: row for row in _TABLE for alias in (row[0], row[1])}


def _ml_dtype(numpy_name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(f"{numpy_name} needs ml_dtypes: pip install ml_dtypes") from error
    if not hasattr(ml_dtypes, numpy_name):
        raise ImportError(f"{numpy_name} needs a newer ml_dtypes than {ml_dtypes.__version__}")
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, numpy_name))
    return dtype


@cache
def _numpy(numpy_name: str) -> np.dtype[Any]:
    return _ml_dtype(numpy_name) if _BY_NAME[numpy_name][4] else np.dtype(numpy_name)


def bfloat16() -> np.dtype[Any]:
    """Return the NumPy dtype of bfloat16 (from ml_dtypes).

    Raises
    ------
    ImportError
        ml_dtypes is not installed.

    Examples
    --------
    >>> bfloat16().itemsize
    2
    """
    return _numpy("bfloat16")


def _row(dtype: np.dtype[Any]) -> tuple[str, str, int, str, bool]:
    row = _BY_NAME.get(dtype.name)
    # an extension dtype of the same name from elsewhere is not the type of the table
    if row is None or (row[4] and not dtype.type.__module__.startswith("ml_dtypes")):
        raise TypeError(f"dtype {dtype} has no aclDataType; known: {', '.join(_BY_NAME)}")
    if not dtype.isnative:
        raise TypeError(
            f"dtype {dtype.str} has non-native byte order; convert with .astype({dtype.newbyteorder('=').str!r})"
        )
    return row


# np.dtype objects are few and hashable; the cache turns the checks into one lookup on the call path
@cache
def to_acl(dtype: np.dtype[Any]) -> int:
    """Return the aclDataType value of a NumPy dtype.

    Raises
    ------
    TypeError
        The dtype has no aclDataType, or has non-native byte order.

    Examples
    --------
    >>> to_acl(np.dtype("float16"))
    1
    """
    return _row(dtype)[2]


def from_acl(value: int) -> np.dtype[Any]:
    """Return the NumPy dtype of an aclDataType value.

    Raises
    ------
    TypeError
        The type has no exact NumPy counterpart.
    ImportError
        The type needs ml_dtypes, which is missing.

    Examples
    --------
    >>> from_acl(3)
    dtype('int32')
    """
    if value not in _BY_ACL:
        raise TypeError(f"aclDataType {value} has no exact NumPy counterpart")
    return _numpy(_BY_ACL[value][0])


def name(dtype: np.dtype[Any]) -> str:
    """Return the short name of a dtype for messages, ``"bfloat16"`` for example.

    Examples
    --------
    >>> name(np.dtype(np.float32))
    'float32'
    """
    return dtype.name if dtype.isnative else f"{dtype.name} ({dtype.str}, non-native byte order)"


def acl_name(dtype: np.dtype[Any]) -> str:
    """Return the C enum name of a NumPy dtype.

    Examples
    --------
    >>> acl_name(np.dtype("float32"))
    'ACL_FLOAT'
    """
    return _row(dtype)[1]


def torch_name(dtype: np.dtype[Any]) -> str:
    """Return the attribute of ``torch`` that names the same type.

    Examples
    --------
    >>> torch_name(np.dtype("int32"))
    'int32'
    """
    return _row(dtype)[3]


def parse(spec: Any) -> np.dtype[Any]:
    """Return the NumPy dtype that a dtype-like, a name such as ``"bfloat16"`` or ``"ACL_BF16"`` means.

    Raises
    ------
    TypeError
        Nothing of that name, or it has no aclDataType.

    Examples
    --------
    >>> parse("ACL_FLOAT")
    dtype('float32')
    """
    if spec is None:  # NumPy reads it as float64
        raise TypeError("a dtype is needed, got None")
    if isinstance(spec, str) and spec in _BY_ALIAS:
        return _numpy(_BY_ALIAS[spec][0])
    dtype: np.dtype[Any] = np.dtype(spec)
    _row(dtype)
    return dtype
