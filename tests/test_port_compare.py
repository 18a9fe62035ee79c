"""Comparing what was read of a sample with what was recorded of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn_py.port.compare import differences
from aclnn_py.port.model import (
    LAST_BIT,
    Array,
    Attribute,
    Call,
    Data,
    Note,
    Program,
    Scalar,
    Sequence,
    Tensor,
    Unknown,
    Value,
)

F32 = np.float32


def filled(values: Any = (1, 2), dtype: str = "float32", **fields: Any) -> Tensor:
    array = np.asarray(values, F32 if dtype == "float32" else dtype)
    return Tensor("self", fields.pop("shape", (len(array),)), dtype, Data(array), **fields)


def program(*calls: Any) -> Program:
    return Program(("a.cpp",), list(calls))


def one(value: Value, op: str = "aclnnNeg", name: str = "self", declaration: str | None = None) -> Program:
    return program(Call(op, {name: value}, declaration=declaration))


@pytest.mark.parametrize(
    ("mine", "theirs", "text"),
    [
        (filled(), filled([1, 3]), "1 of 2 values, the first at 1: 2.0, recorded 3.0"),
        (filled([0.0, 2]), filled([-0.0, 2]), "1 of 2 values, the first at 0: 0.0, recorded -0.0"),
        (filled(), filled([1, 2], "int32"), "dtype float32, recorded int32"),
        (filled(), filled(shape=(2, 1)), "shape (2,), recorded (2, 1)"),
        (filled(), filled(strides=(2,)), "strides (1,), recorded (2,)"),
        (filled(), filled(offset=1), "offset 0, recorded 1"),
        (filled(), filled(storage_shape=(4,)), "storage shape (2,), recorded (4,)"),
        (filled(), filled(format="NCHW"), "format ND, recorded NCHW"),
        (filled(), Tensor("self", (2,), "float32"), "filled, recorded not filled"),
        (Tensor("self", (2,), "float32"), filled(), "not filled, recorded filled"),
        (filled([1, 2, 3], shape=(3,)), filled([1, 2], shape=(3,)), "3 values, recorded 2"),
        (None, filled(), "null, recorded tensor"),
        (Attribute("1", 1), filled(), "attribute, recorded tensor"),
        (Attribute("1", 1), Attribute("2", 2), "1, recorded 2"),
        (Attribute("'a'", "a"), Attribute("'b'", "b"), "'a', recorded 'b'"),
        (Scalar("s", "1", 1.0, "float32"), Scalar("s", "1", 1.5, "float32"), "value 1.0, recorded 1.5"),
        (Scalar("s", "1", 1.0, "float32"), Scalar("s", "1", 1, "int32"), "dtype float32, recorded int32"),
        (Array("d", ("1",), (1,)), Array("d", ("1", "2"), (1, 2)), "[1], recorded [1, 2]"),
        (Array("d", ("1",), (1,)), Array("d", ("2",), (2,)), "[1], recorded [2]"),
        (Sequence("l", (filled(),)), Sequence("l", ()), "1 elements, recorded 0"),
        (Sequence("l", (filled(),)), Sequence("l", (None,)), "[0] tensor, recorded null"),
        (
            Sequence("l", (filled(),)), Sequence("l", (filled([1, 9]),)),
            "[0] 1 of 2 values, the first at 1: 2.0, recorded 9.0",
        ),
    ],
)  # fmt: skip
def test_a_contradiction_is_named_with_its_argument(mine: Value, theirs: Value, text: str) -> None:
    assert differences(one(mine), one(theirs)) == [f"call 1 aclnnNeg, self: {text}"]


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (filled(), filled(strides=(1,), storage_shape=(2,))),
        (filled([np.nan, 1]), filled([-np.nan, 1])),
        (filled([1], shape=(2,)), filled([1, 2])),  # the sample's own array is too short; what follows is not known
        (Tensor("self", (2,), "float32", Data(np.zeros(2, F32), defined=np.zeros(2, bool))), filled()),
        (Tensor("self", (2,), "float32", Unknown("rand()")), filled()),
        (Unknown("a struct"), filled()),
        (Sequence("l", (Unknown("a struct"), filled())), Sequence("l", (filled(), filled()))),
        (Scalar("s", "0.1", 0.1, "float32"), Scalar("s", "0.1", float(F32(0.1)), "float32")),
        (Tensor("self", (0,), "float32"), filled([], shape=(0,))),
        (Tensor("self", (0, 0), "float32"), Tensor("self", (0, 0), "float32", strides=(0, 0))),
        (None, None),
        (Attribute("True", True), Attribute("1", 1)),
        (Array("d", ("0.1",), (0.1,)), Array("d", ("0.1",), (float(F32(0.1)),))),
    ],
)
def test_what_is_not_claimed_or_the_same_is_no_difference(mine: Value, theirs: Value) -> None:
    assert differences(one(mine), one(theirs)) == []


def test_attributes_are_compared_in_their_c_type() -> None:
    text = "int aclnnX{}GetWorkspaceSize({} a, uint64_t *workspaceSize, aclOpExecutor **executor);"
    mine, theirs = Attribute("0.1", 0.1), Attribute("0.1", float(F32(0.1)))
    for ctype, expected in (("float", 0), ("double", 1)):
        declaration = text.format(ctype, ctype)
        left, right = (one(value, f"aclnnX{ctype}", "a", declaration) for value in (mine, theirs))
        assert len(differences(left, right)) == expected
    left, right = (one(Attribute("", value), "aclnnCast", "dtype") for value in ("float32", 0))
    assert differences(left, right) == []
    assert differences(one(Attribute("", "float16"), "aclnnCast", "dtype"), right) != []


def test_calls_are_compared_in_order_and_number() -> None:
    neg, exp = Call("aclnnNeg", {}), Call("aclnnExp", {})
    assert differences(program(neg, exp), program(exp, neg)) == ["call 1 aclnnNeg: recorded is aclnnExp"]
    assert differences(program(neg), program(neg, exp)) == ["recorded is a further call, aclnnExp"]
    assert differences(program(neg, exp), program(neg)) == ["call 2 aclnnExp: recorded is no further call"]


def test_a_run_that_ended_early_contradicts_no_later_call() -> None:
    neg, exp, end = Call("aclnnNeg", {}), Call("aclnnExp", {}), Unknown("stopped")
    assert differences(program(neg, exp), program(neg, end)) == []
    assert differences(program(neg, exp), program(exp, end)) == ["call 1 aclnnNeg: recorded is aclnnExp"]


def test_a_step_that_was_not_understood_may_stand_for_any_calls() -> None:
    neg, exp, gap = Call("aclnnNeg", {}), Call("aclnnExp", {}), Unknown("a lambda")
    assert differences(program(gap, exp), program(neg, neg, exp, neg)) == []
    assert differences(program(gap, exp), program(neg)) == ["call 1 aclnnExp: recorded is no further call"]


def test_a_tensor_met_again_holds_what_an_operator_made_of_it() -> None:
    here, there = filled(), filled()
    again, other = Call("aclnnExp", {"self": here}), Call("aclnnExp", {"self": there})
    assert (
        differences(program(Call("aclnnNeg", {"self": here}), again), program(Call("aclnnNeg", {"self": there}), other))
        == []
    )
    # but a different tensor in the recording has to hold the same values
    fresh = Call("aclnnExp", {"self": filled([7, 8])})
    assert (
        differences(program(Call("aclnnNeg", {"self": here}), again), program(Call("aclnnNeg", {"self": there}), fresh))
        != []
    )


def test_a_last_bit_counts_unless_it_is_said_to_be_the_librarys() -> None:
    here, there = one(filled([1, 2])), one(filled([1, np.nextafter(np.float32(2), np.float32(3))]))
    assert differences(here, there) != []
    here.notes.append(Note(f"sin in single precision: {LAST_BIT}"))
    assert differences(here, there) == []
    assert differences(here, one(filled([1, 2.001]))) != []


def test_bytes_of_a_bool_are_true_or_not() -> None:
    raw = Tensor("self", (2,), "bool", data=Data(np.array([5, 0], np.uint8).view(np.bool_)))
    assert differences(one(raw), one(Tensor("self", (2,), "bool", data=Data(np.array([True, False]))))) == []
    assert differences(one(raw), one(Tensor("self", (2,), "bool", data=Data(np.array([True, True]))))) != []


def test_refused_samples_are_not_compared() -> None:
    refused = Program(("a.cpp",), refused="needs HCCL")
    assert differences(refused, one(filled())) == differences(one(filled()), refused) == []
