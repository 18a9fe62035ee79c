"""The table of element types, both ways, and when ml_dtypes is needed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from aclnn_py import dtypes
from aclnn_py._ffi import ffi

# NumPy name, C enum name, value, torch name; worked out from the C enum, not from the module
TABLE = [
    ("float32", "ACL_FLOAT", 0, "float32"),
    ("float16", "ACL_FLOAT16", 1, "float16"),
    ("int8", "ACL_INT8", 2, "int8"),
    ("int32", "ACL_INT32", 3, "int32"),
    ("uint8", "ACL_UINT8", 4, "uint8"),
    ("int16", "ACL_INT16", 6, "int16"),
    ("uint16", "ACL_UINT16", 7, "uint16"),
    ("uint32", "ACL_UINT32", 8, "uint32"),
    ("int64", "ACL_INT64", 9, "int64"),
    ("uint64", "ACL_UINT64", 10, "uint64"),
    ("float64", "ACL_DOUBLE", 11, "float64"),
    ("bool", "ACL_BOOL", 12, "bool"),
    ("complex64", "ACL_COMPLEX64", 16, "complex64"),
    ("complex128", "ACL_COMPLEX128", 17, "complex128"),
    ("bfloat16", "ACL_BF16", 27, "bfloat16"),
    ("float8_e5m2", "ACL_FLOAT8_E5M2", 35, "float8_e5m2"),
    ("float8_e4m3fn", "ACL_FLOAT8_E4M3FN", 36, "float8_e4m3fn"),
    ("float8_e8m0fnu", "ACL_FLOAT8_E8M0", 37, "float8_e8m0fnu"),
]
IDS = [row[0] for row in TABLE]


def dtype_of(name: str) -> np.dtype[Any]:
    if name.startswith(("bfloat", "float8")):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        if not hasattr(ml_dtypes, name):
            pytest.skip(f"ml_dtypes {ml_dtypes.__version__} has no {name}")
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


@pytest.mark.parametrize(("name", "acl", "value", "torch"), TABLE, ids=IDS)
def test_every_row_holds_both_ways(name: str, acl: str, value: int, torch: str) -> None:
    dtype = dtype_of(name)
    assert ffi.integer_const(acl) == value, "the C declarations disagree"
    assert dtypes.to_acl(dtype) == value
    assert dtypes.from_acl(value) == dtype
    assert dtypes.from_acl(value).isnative
    assert dtypes.acl_name(dtype) == acl
    assert dtypes.torch_name(dtype) == torch
    assert dtypes.name(dtype) == name
    assert dtypes.parse(name) == dtypes.parse(acl) == dtypes.parse(dtype) == dtypes.parse(dtype.type) == dtype


def test_nothing_outside_the_table_has_a_counterpart() -> None:
    known = {row[2] for row in TABLE}
    for value in set(range(-2, 64)) - known:
        with pytest.raises(TypeError, match=str(value)):
            dtypes.from_acl(value)


@pytest.mark.parametrize(("name", "itemsize"), [("float32", 4), ("float16", 2), ("int32", 4), ("bool", 1)])
def test_byte_order_of_another_machine_is_refused_with_the_conversion(name: str, itemsize: int) -> None:
    foreign = np.dtype(name).newbyteorder(">")
    if itemsize == 1:  # a single byte has no order
        assert dtypes.to_acl(foreign) == 12
        return
    for function in (dtypes.to_acl, dtypes.acl_name, dtypes.torch_name, dtypes.parse):
        with pytest.raises(TypeError, match=r"non-native byte order.*astype") as caught:
            function(foreign)
        assert np.dtype(name).str in str(caught.value)
    assert "non-native" in dtypes.name(foreign)


def test_explicit_native_order_and_the_c_names_of_one_type_are_the_same() -> None:
    native = "<" if sys.byteorder == "little" else ">"
    assert dtypes.to_acl(np.dtype(f"{native}f4")) == 0
    longs = [np.dtype("q"), np.dtype("l")] if np.dtype("l").itemsize == 8 else [np.dtype("q")]
    assert {dtypes.to_acl(dtype) for dtype in longs} == {9}


@pytest.mark.parametrize("spec", ["datetime64[s]", "U3", "S3", "V4", "O", "g", "i4,i4", "timedelta64[ms]"])
def test_dtypes_without_an_acl_type_are_refused(spec: str) -> None:
    dtype = np.dtype(spec)
    if dtype.name in IDS:  # long double is double on some machines
        pytest.skip(f"{spec} is {dtype.name} here")
    for function in (dtypes.to_acl, dtypes.acl_name, dtypes.torch_name, dtypes.parse):
        with pytest.raises(TypeError, match=r"no aclDataType.*float32"):
            function(dtype)


@pytest.mark.parametrize("spec", ["float33", "ACL_FLOAT9", "ACL_STRING", "", None, 3, [1], 1.5])
def test_what_names_no_dtype_is_refused(spec: Any) -> None:
    """None too: NumPy reads it as float64, and nobody means that."""
    with pytest.raises(TypeError):
        dtypes.parse(spec)


def test_a_lookalike_of_bfloat16_is_not_taken_for_it() -> None:
    """A structured or custom dtype of the same width must not pass as bfloat16, nor the raw words of one."""
    assert dtypes.to_acl(np.dtype(np.uint16)) == 7
    with pytest.raises(TypeError):
        dtypes.to_acl(np.dtype([("bfloat16", np.uint16)]))
    assert dtypes.bfloat16() != np.dtype(np.uint16)
    one_two_three = np.array([1, 2, 3], dtypes.bfloat16())
    assert one_two_three.view(np.uint16).tolist() == [16256, 16384, 16448]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ml_dtypes_is_imported_only_for_its_types() -> None:
    code = """
import sys, numpy as np
import aclnn_py
from aclnn_py import dtypes
dtypes.to_acl(np.dtype("float16")), dtypes.from_acl(3), dtypes.parse("ACL_FLOAT"), dtypes.name(np.dtype("f4"))
x = np.ones((2, 2), np.float32)
aclnn_py.moe_finalize_routing_v2_grad(x, np.array([0, 1], np.int32), backend="reference")
print("ml_dtypes" in sys.modules, end=" ")
dtypes.bfloat16()
print("ml_dtypes" in sys.modules)
"""
    assert run(code).split() == ["False", "True"]


def test_without_ml_dtypes_only_its_types_are_missing_and_the_error_says_what_to_install() -> None:
    code = """
import sys, numpy as np
sys.modules["ml_dtypes"] = None
import aclnn_py
from aclnn_py import dtypes
x = np.ones((2, 2), np.float32)
result = aclnn_py.moe_finalize_routing_v2_grad(x, np.array([0, 1], np.int32), backend="reference")
print(result.grad_expanded_x.tolist())
calls = [(dtypes.parse, "bfloat16"), (dtypes.from_acl, 27), (dtypes.from_acl, 35)]
for call, *args in [(dtypes.bfloat16,), *calls]:
    try:
        call(*args)
    except ImportError as error:
        print(error)
"""
    lines = run(code).splitlines()
    assert lines[0] == "[[1.0, 1.0], [1.0, 1.0]]"
    assert len(lines) == 5
    assert all("pip install ml_dtypes" in line for line in lines[1:])
    assert "bfloat16" in lines[1]
    assert "float8_e5m2" in lines[4]


def test_an_old_ml_dtypes_is_named() -> None:
    code = """
import sys, types
old = types.ModuleType("ml_dtypes"); old.__version__ = "0.0.1"
sys.modules["ml_dtypes"] = old
from aclnn_py import dtypes
try:
    dtypes.from_acl(37)
except ImportError as error:
    print(error)
"""
    assert "newer ml_dtypes than 0.0.1" in run(code)
