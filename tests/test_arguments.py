"""Python values to C arguments: what each kind of parameter takes, and how a refusal reads."""

from __future__ import annotations

import fractions
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn_py
from aclnn_py import Scalar, dtypes
from aclnn_py.arguments import convert
from aclnn_py.signatures import KINDS, Parameter, Signature

F32 = np.dtype(np.float32)
FLOAT_MAX = float(np.finfo(np.float32).max)
INTS = {
    "int8_t": (-128, 127),
    "int16_t": (-32768, 32767),
    "int": (-(2**31), 2**31 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    "uint8_t": (0, 255),
    "uint16_t": (0, 65535),
    "uint32_t": (0, 2**32 - 1),
    "uint64_t": (0, 2**64 - 1),
}


def put(ctype: str, value: Any) -> Any:
    """Convert one value for a parameter ``p`` of ``aclnnX``."""
    kind = KINDS.get(ctype.replace("const ", "").replace(" ", ""), "unknown")
    signature = Signature("aclnnX", (Parameter("first", "bool", "bool"), Parameter("p", ctype, kind)))
    return convert(signature, [True, value])[1]


def refused(ctype: str, value: Any, error: type[Exception] = TypeError, says: str | None = None) -> None:
    with pytest.raises(error, match=says) as caught:
        put(ctype, value)
    assert type(caught.value) is error, "the class is the documented one itself"
    assert "aclnnX" in str(caught.value), "the operator is named"
    assert "'p'" in str(caught.value), "the C parameter is named"


# -- integers


def test_the_ranges_cover_every_integer_parameter() -> None:
    assert {ctype for ctype, kind in KINDS.items() if kind == "int"} == set(INTS)


@pytest.mark.parametrize("ctype", INTS)
def test_integers_of_every_width_end_exactly_where_the_c_type_ends(ctype: str) -> None:
    low, high = INTS[ctype]
    assert put(ctype, low) == low
    assert put(ctype, high) == high
    assert type(put(ctype, high)) is int
    for beyond in (low - 1, high + 1, 10**40, -(10**40)):
        refused(ctype, beyond, OverflowError, rf"{ctype}.*{low} to {high}, got {beyond}")


@given(st.sampled_from(sorted(INTS)), st.integers())
def test_an_integer_is_taken_unchanged_or_refused(ctype: str, value: int) -> None:
    low, high = INTS[ctype]
    if low <= value <= high:
        assert put(ctype, value) == value
    else:
        refused(ctype, value, OverflowError)


class Indexable:
    def __index__(self) -> int:
        return 3

    def __repr__(self) -> str:  # the same in every test process
        return "Indexable()"


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.int64(3), Indexable()], ids=repr)
def test_integer_likes_are_integers(value: Any) -> None:
    assert put("int64_t", value) == 3
    assert type(put("int64_t", value)) is int


@pytest.mark.parametrize(
    "value",
    [True, np.True_, 3.0, np.float32(3), "3", b"3", None, [3], (3,), np.array(3), np.array([3]), 3 + 0j, Scalar(3)],
    ids=repr,
)
@pytest.mark.parametrize("ctype", ["int64_t", "uint8_t", "int"])
def test_what_is_no_integer_is_refused(ctype: str, value: Any) -> None:
    refused(ctype, value, TypeError, rf"\({ctype}\) takes an integer, got {type(value).__name__}")


# -- bool


def test_bools_are_bools_only() -> None:
    assert put("bool", True) is True
    assert put("bool", np.False_) is False
    for value in (0, 1, np.int8(1), 1.0, "True", None, [], np.array(True)):
        refused("bool", value, TypeError, "takes True or False")


# -- real numbers


@pytest.mark.parametrize("ctype", ["float", "double"])
def test_real_numbers(ctype: str) -> None:
    for value in (2, 2.0, np.int32(2), np.float16(2), np.float32(2), np.float64(2), np.longdouble(2)):
        assert put(ctype, value) == 2.0
        assert type(put(ctype, value)) is float
    assert put(ctype, float("-inf")) == float("-inf")
    assert np.isnan(put(ctype, float("nan")))
    for value in (True, np.False_, "1", None, 1j, np.array(1.0), [1.0], fractions.Fraction(1, 2)):
        refused(ctype, value, TypeError, rf"\({ctype}\) takes a real number, got {type(value).__name__}")


def test_a_float_that_float32_cannot_hold_is_refused_not_turned_into_infinity() -> None:
    assert put("float", FLOAT_MAX) == FLOAT_MAX
    assert put("float", -FLOAT_MAX) == -FLOAT_MAX
    assert put("double", 1e39) == 1e39
    for value in (1e39, -1e39, np.float64(1e300), 10**39):
        refused("float", value, OverflowError, "float32")


@pytest.mark.parametrize("ctype", ["float", "double"])
def test_an_integer_beyond_every_float_is_refused_by_name(ctype: str) -> None:
    refused(ctype, 10**400, OverflowError)


@given(st.floats())
def test_doubles_pass_bit_for_bit(value: float) -> None:
    assert np.float64(put("double", value)).tobytes() == np.float64(value).tobytes()


# -- strings


def test_strings() -> None:
    assert put("const char *", "abc") == b"abc"
    assert put("char *", b"\xff") == b"\xff"
    assert put("const char *", "héß") == "héß".encode()
    assert put("const char *", "") == b""
    assert put("const char *", None) is None
    for value in ("a\0b", b"\0", "\0"):
        refused("const char *", value, ValueError, "NUL")
    for value in (3, ["a"], np.array(["a"]), bytearray(b"a")):
        refused("const char *", value, TypeError, "takes a string")


# -- arrays of numbers


def test_integer_arrays() -> None:
    for value in ([1, 2], (1, 2), np.array([1, 2], np.int8), range(1, 3), iter([1, 2]), [np.int64(1), Indexable()]):
        got = put("const aclIntArray *", value)
        assert got in ((1, 2), (1, 3))
        assert isinstance(got, tuple)
        assert all(type(item) is int for item in got)
    assert put("const aclIntArray *", []) == (), "empty is not null"
    assert put("const aclIntArray *", None) is None
    assert put("const aclIntArray *", [2**63 - 1, -(2**63)]) == (2**63 - 1, -(2**63))
    refused("const aclIntArray *", [0, 2**63], OverflowError)
    for value in (3, "12", b"12", np.array([[1]]), np.array(1), [1.0], [1, None], [True], ["1"], np.ones(2)):
        refused("const aclIntArray *", value, TypeError)


def test_float_and_bool_arrays() -> None:
    assert put("const aclFloatArray *", [1, 2.5, np.float32(3)]) == (1.0, 2.5, 3.0)
    assert put("const aclFloatArray *", np.array([0.5], np.float16)) == (0.5,)
    assert put("const aclFloatArray *", None) is None
    refused("const aclFloatArray *", [1e39], OverflowError)
    for value in ([True], ["1"], [None], 1.0, "1"):
        refused("const aclFloatArray *", value, TypeError)
    assert put("const aclBoolArray *", [True, np.False_]) == (True, False)
    assert put("const aclBoolArray *", np.array([True])) == (True,)
    for value in ([1], [None], True, "no"):
        refused("const aclBoolArray *", value, TypeError)


# -- dtypes and enums


def test_dtype_parameters() -> None:
    for value in (np.float16, np.dtype("float16"), "float16", "ACL_FLOAT16", 1, np.int64(1)):
        assert put("aclDataType", value) == 1
    assert put("aclDataType", "bfloat16") == put("aclDataType", dtypes.bfloat16()) == 27
    assert put("aclDataType", -1) == -1, "numbers pass as they are: the library knows more types than NumPy"
    for value in (True, 1.0, "nonsense", ">f4", "i4,i4", "U3", object()):
        refused("aclDataType", value, TypeError, "takes a dtype")
    refused("aclDataType", 2**31, OverflowError)


def test_none_is_no_dtype() -> None:
    refused("aclDataType", None, TypeError, "takes a dtype")


def test_enum_parameters() -> None:
    assert put("aclFormat", "ACL_FORMAT_ND") == put("aclFormat", 2) == put("aclFormat", np.int8(2)) == 2
    for value in ("ND", "", True, 2.0, None, "no such name"):
        refused("aclFormat", value, TypeError)
    refused("aclFormat", 2**31, OverflowError)


@pytest.mark.parametrize("value", ["aclrtMalloc", "aclTensor"])
def test_the_name_of_something_else_is_no_enumerator(value: str) -> None:
    refused("aclFormat", value, TypeError)


# -- scalars


def test_scalars_carry_the_dtype_that_was_meant() -> None:
    for value, dtype in [
        (True, "bool"),
        (3, "int64"),
        (1.5, "float64"),
        (1j, "complex128"),
        (np.float32(1.5), "float32"),
        (np.uint8(3), "uint8"),
        (np.complex64(1j), "complex64"),
    ]:
        scalar = put("const aclScalar *", value)
        assert scalar.value == value
        assert dtypes.name(scalar.dtype) == dtype
        assert scalar.value.dtype == scalar.dtype
    given_one = Scalar(2, "float16")
    assert put("const aclScalar *", given_one) is given_one
    assert put("const aclScalar *", None) is None
    for value in ("1", [1], np.array(1), np.array([1]), object(), np.str_("a"), np.datetime64(0, "s")):
        refused("const aclScalar *", value, TypeError, "takes a number")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**40])
def test_an_integer_that_no_int64_scalar_holds_is_refused_by_name(value: int) -> None:
    refused("const aclScalar *", value, OverflowError)


def test_scalars_of_a_chosen_dtype() -> None:
    assert Scalar(1.5, "float32").value.dtype == F32
    assert Scalar(3, np.float16).value == 3
    assert Scalar(200, "uint8").value == 200
    bf16 = Scalar(1, "ACL_BF16")
    assert bf16.value.view(np.uint16) == 16256
    assert repr(Scalar(1.5, "float32")) == "Scalar(1.5, 'float32')"
    assert repr(bf16) == "Scalar(1.0, 'bfloat16')"
    for value, dtype in [(200, "int8"), (-1, "uint8"), (2**64, "uint64"), (2**63, "int64")]:
        with pytest.raises(OverflowError, match="does not fit"):
            Scalar(value, dtype)
    for value, dtype in [(1.0, "int32"), (True, "float33"), ("1", None), (None, "int32"), (1, "U3"), (1, ">i4")]:
        with pytest.raises(TypeError):
            Scalar(value, dtype)


def test_scalar_lists() -> None:
    one, null = put("const aclScalarList *", [1, None])
    assert (one.value, null) == (1, None)
    for value in (1, "12", [[1]], ["a"]):
        refused("const aclScalarList *", value, TypeError)


# -- tensors


class TorchLike:
    """As close to a tensor of another package as duck typing gets."""

    __module__ = "torch"
    shape = (2,)
    dtype = F32

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("must not be converted silently")


NOT_ARRAYS = [
    [1.0, 2.0],
    (1.0,),
    1.0,
    np.float32(1),
    "abc",
    memoryview(b"abcd"),
    np.ma.masked_array(np.zeros(2, F32), [True, False]),
    TorchLike(),
]


@pytest.mark.parametrize("value", NOT_ARRAYS, ids=lambda value: type(value).__name__)
def test_tensors_are_arrays_and_nothing_is_converted_silently(value: Any) -> None:
    refused("const aclTensor *", value, TypeError, f"takes an array.*{type(value).__name__}")
    refused("const aclTensorList *", [np.zeros(2, F32), value], TypeError, "takes an array")


def test_arrays_pass_as_they_are() -> None:
    class Sub(np.ndarray):
        pass

    for array in (
        np.zeros((0, 3), F32),
        np.ones((4, 6), F32)[::-2, ::3],
        np.broadcast_to(np.zeros(1, np.int32), (3, 5)),
        np.array(1, np.float16),
        np.zeros(3, np.int8).view(Sub),
    ):
        assert put("const aclTensor *", array) is array
    assert put("const aclTensor *", None) is None
    first, null = put("const aclTensorList *", [np.zeros(2, F32), None])
    assert (first.shape, null) == ((2,), None)
    assert put("const aclTensorList *", []) == ()
    assert put("const aclTensorList *", None) is None


def test_an_array_is_not_a_list_of_its_rows() -> None:
    refused("const aclTensorList *", np.zeros((2, 2), F32), TypeError, "a list of arrays")


@pytest.mark.parametrize("dtype", [">f4", "U1", "O", "datetime64[s]", [("a", "f4")]], ids=str)
def test_array_dtypes_without_an_acl_type_are_refused(dtype: Any) -> None:
    refused("const aclTensor *", np.zeros(2, dtype), TypeError, "dtype")


# -- the whole call


def test_a_parameter_of_an_unsupported_type_is_named() -> None:
    with pytest.raises(TypeError, match=r"aclnnX.*aclrtStream.*'p'"):
        put("aclrtStream", 3)


def test_every_kind_has_a_conversion() -> None:
    good = {
        "tensor": np.zeros(1, F32), "tensor_list": [], "scalar": 1, "scalar_list": [], "int_array": [],
        "float_array": [], "bool_array": [], "string": "", "bool": True, "float": 1.0, "double": 1.0, "int": 1,
        "dtype": "float32", "enum": 2,
    }  # fmt: skip
    assert set(good) == set(KINDS.values())
    for ctype, kind in KINDS.items():
        put(ctype, good[kind])


def test_a_wrong_argument_of_an_executor_names_its_parameter_before_anything_happens(backend: Any) -> None:
    x, index = np.ones((2, 2), F32), np.array([0, 1], np.int32)
    good = dict(
        gradY=x, expandedRowIdx=index, dropPadMode=0, activeNum=0, expertNum=0, expertCapacity=0,
        gradExpandedXOut=np.zeros((2, 2), F32), gradScalesOut=np.zeros((2, 1), F32),
    )  # fmt: skip
    name = "aclnnMoeFinalizeRoutingV2Grad"
    for key, value, error in [
        ("gradY", x.tolist(), TypeError),
        ("expandedRowIdx", np.ma.array(index), TypeError),
        ("dropPadMode", 0.0, TypeError),
        ("activeNum", True, TypeError),
        ("expertNum", "0", TypeError),
        ("expertCapacity", 2**63, OverflowError),
        ("gradExpandedXOut", TorchLike(), TypeError),
    ]:
        with pytest.raises(error, match=key) as caught:
            aclnn_py.Executor(name, **{**good, key: value}, backend=backend)
        assert name in str(caught.value)
    with aclnn_py.Executor(name, **good, backend=backend) as ex:
        ex.run()
    assert good["gradExpandedXOut"].tolist() == [[1, 1], [1, 1]]
