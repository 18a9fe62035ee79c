"""Enumerators of the C API that samples use, and the Python names they get."""

from __future__ import annotations

from .values import Num

__all__ = ["DTYPES", "FORMATS", "constant", "dtype_name", "format_name", "item_bits"]

# aclDataType: value -> (enumerator, Python name, bits of one element)
DTYPES: dict[int, tuple[str, str, int]] = {
    0: ("ACL_FLOAT", "float32", 32), 1: ("ACL_FLOAT16", "float16", 16), 2: ("ACL_INT8", "int8", 8),
    3: ("ACL_INT32", "int32", 32), 4: ("ACL_UINT8", "uint8", 8), 6: ("ACL_INT16", "int16", 16),
    7: ("ACL_UINT16", "uint16", 16), 8: ("ACL_UINT32", "uint32", 32), 9: ("ACL_INT64", "int64", 64),
    10: ("ACL_UINT64", "uint64", 64), 11: ("ACL_DOUBLE", "float64", 64), 12: ("ACL_BOOL", "bool", 8),
    13: ("ACL_STRING", "string", 0), 16: ("ACL_COMPLEX64", "complex64", 64), 17: ("ACL_COMPLEX128", "complex128", 128),
    27: ("ACL_BF16", "bfloat16", 16), 29: ("ACL_INT4", "int4", 4), 30: ("ACL_UINT1", "uint1", 1),
    33: ("ACL_COMPLEX32", "complex32", 32), 34: ("ACL_HIFLOAT8", "hifloat8", 8),
    35: ("ACL_FLOAT8_E5M2", "float8_e5m2", 8), 36: ("ACL_FLOAT8_E4M3FN", "float8_e4m3fn", 8),
    37: ("ACL_FLOAT8_E8M0", "float8_e8m0fnu", 8), 38: ("ACL_FLOAT6_E3M2", "float6_e3m2", 6),
    39: ("ACL_FLOAT6_E2M3", "float6_e2m3", 6), 40: ("ACL_FLOAT4_E2M1", "float4_e2m1", 4),
    41: ("ACL_FLOAT4_E1M2", "float4_e1m2", 4),
}  # fmt: skip
FORMATS: dict[int, str] = {
    -1: "UNDEFINED", 0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 12: "NC1HWC0_C04", 16: "HWCN",
    27: "NDHWC", 29: "FRACTAL_NZ", 30: "NCDHW", 32: "NDC1HWC0", 33: "FRACTAL_Z_3D", 35: "NC", 47: "NCL",
    50: "FRACTAL_NZ_C0_16", 51: "FRACTAL_NZ_C0_32", 52: "FRACTAL_NZ_C0_2", 53: "FRACTAL_NZ_C0_4",
    54: "FRACTAL_NZ_C0_8",
}  # fmt: skip
_OTHERS = {
    "ACL_SUCCESS": 0, "ACLNN_SUCCESS": 0, "ACL_ERROR_NONE": 0, "OK": 0, "HCCL_SUCCESS": 0, "ACL_DT_UNDEFINED": -1,
    "ACL_MEMCPY_HOST_TO_HOST": 0, "ACL_MEMCPY_HOST_TO_DEVICE": 1, "ACL_MEMCPY_DEVICE_TO_HOST": 2,
    "ACL_MEMCPY_DEVICE_TO_DEVICE": 3, "ACL_MEMCPY_DEFAULT": 4, "ACL_MEM_MALLOC_HUGE_FIRST": 0,
    "ACL_MEM_MALLOC_HUGE_ONLY": 1, "ACL_MEM_MALLOC_NORMAL_ONLY": 2, "ACL_DEVICE": 0, "ACL_HOST": 1, "EOK": 0,
    "ACL_FRACTAL_Z_3D": 33, "ACLNN_ERR_PARAM_NULLPTR": 161001, "ACLNN_ERR_PARAM_INVALID": 161002, "true_": 1,
}  # fmt: skip
_CONSTANTS = {
    **{row[0]: Num(value, "int32", row[0]) for value, row in DTYPES.items()},
    **{f"ACL_FORMAT_{name}": Num(value, "int32", f"ACL_FORMAT_{name}") for value, name in FORMATS.items()},
    **{name: Num(value, "int32", name) for name, value in _OTHERS.items()},
}


def constant(name: str) -> Num | None:
    """Return the enumerator of that name; all error codes are some non-zero number, since calls succeed here."""
    found = _CONSTANTS.get(name)
    if found is None and name.startswith(("ACL_ERROR_", "ACLNN_ERR_")):
        return Num(500000, "int32", name)
    return found


def dtype_name(value: int) -> str | None:
    """Python name of an aclDataType, ``bfloat16``."""
    row = DTYPES.get(value)
    return row[1] if row is not None else None


def format_name(value: int) -> str | None:
    """Name of an aclFormat without its prefix."""
    return FORMATS.get(value)


def item_bits(value: int) -> int:
    """Bits of one element of an aclDataType."""
    return DTYPES[value][2]
