"""Reading C prototypes, the built-in signatures, declarations, and binding of arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn_py
from aclnn_py import signatures
from aclnn_py.signatures import KINDS, Parameter, Signature, parse_prototypes

CDEFS = Path(__file__).resolve().parents[1] / "cdefs"
TAIL = "uint64_t *workspaceSize, aclOpExecutor **executor"
V2_GRAD, EP_GRAD = "aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"


@pytest.fixture(autouse=True)
def declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no declaration outlive its test."""
    monkeypatch.setattr(signatures, "_declared", {})


def one(parameters: str, *, before: str = "aclnnStatus ", name: str = "aclnnX", tail: str = TAIL) -> Signature:
    listed = ", ".join(filter(None, [parameters, tail]))
    found = list(parse_prototypes(f"{before}{name}GetWorkspaceSize({listed});"))
    assert len(found) == 1
    return found[0]


def rows(signature: Signature) -> list[tuple[str, str, str]]:
    return [(p.name, p.ctype, p.kind) for p in signature.parameters]


# -- reading


SPACINGS = ("{} x", " {}\n\t x ", "const {} x", "const\t{}  x")


@pytest.mark.parametrize(
    ("ctype", "spacing"),
    [*((c, s) for c in KINDS for s in SPACINGS), *((c, "{}x") for c in KINDS if c.endswith("*"))],
)
def test_every_kind_is_recognised_whatever_the_spacing(ctype: str, spacing: str) -> None:
    pointer = ctype.endswith("*")
    (parameter,) = one(spacing.format(ctype)).parameters
    assert (parameter.name, parameter.kind) == ("x", KINDS[ctype])
    base = ctype.removesuffix("*").strip()
    if pointer:
        const = "const " if spacing.startswith("const") else ""
        assert parameter.ctype == f"{const}{base} *", "the const of what is pointed to belongs to the type"
    else:
        assert parameter.ctype == base, "the const of a value says nothing"
    assert str(parameter) == (f"{parameter.ctype}x" if pointer else f"{parameter.ctype} x")


def test_attributes_macros_and_their_strings_are_passed_over() -> None:
    text = f"""
    /* aclnnOldGetWorkspaceSize(const aclTensor *gone, {TAIL}); */
    // aclnnGoneGetWorkspaceSize(const aclTensor *gone, {TAIL});
    #define WRAP(x) aclnnMacroGetWorkspaceSize(x, \\
        {TAIL})
    #if defined(A) && B(1, 2)
    __attribute__((deprecated("use aclnnXV2GetWorkspaceSize(a, b), or \\"c, d)\\" instead")))
    ACLNN_API __attribute__((visibility("default"))) aclnnStatus aclnnXGetWorkspaceSize(
        const aclTensor* x,   // first, (with) "quotes
        double eps /* a, b) */, const aclIntArray
        *dim, {TAIL});
    #endif
    aclnnStatus aclnnX(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);
    """
    (signature,) = parse_prototypes(text, "here.h")
    assert signature.name == "aclnnX"
    assert signature.header == "here.h"
    assert rows(signature) == [
        ("x", "const aclTensor *", "tensor"),
        ("eps", "double", "double"),
        ("dim", "const aclIntArray *", "int_array"),
    ]


@pytest.mark.parametrize("name", ["lambda", "from", "self", "is", "def", "None", "class", "workspaceSize2", "_x", "x1"])
def test_any_c_name_is_a_parameter_name(name: str) -> None:
    signature = one(f"const aclTensor *{name}, int64_t n")
    assert signature.parameters[0].name == name
    assert signature.bind((), {name: 5, "n": 1}) == [5, 1]


@pytest.mark.parametrize("tail", ["uint64_t* ws, aclOpExecutor ** ex", "uint64_t  *a,\r\naclOpExecutor* *b"])
def test_the_tail_is_known_by_its_types(tail: str) -> None:
    assert one("const aclTensor *x", tail=tail).parameters == (Parameter("x", "const aclTensor *", "tensor"),)
    assert one("", tail=tail).parameters == ()


@pytest.mark.parametrize(
    ("parameters", "tail", "says"),
    [
        ("const aclTensor *x", "", "does not end in"),
        ("const aclTensor *x", "uint64_t *workspaceSize", "does not end in"),
        ("const aclTensor *x", "aclOpExecutor **executor, uint64_t *workspaceSize", "does not end in"),
        ("const aclTensor *x", "uint64_t workspaceSize, aclOpExecutor **executor", "does not end in"),
        ("const aclTensor *x", "uint64_t *workspaceSize, aclOpExecutor *executor", "does not end in"),
        ("const aclTensor *", TAIL, "cannot read the parameter"),
        ("const aclTensor", TAIL, "no type or no name"),
        ("int64_t", TAIL, "cannot read the parameter"),
        ("const int64_t x[]", TAIL, "cannot read the parameter"),
        ("x,,y", TAIL, "cannot read the parameter"),
        ("...", TAIL, "cannot read the parameter"),
        ("void", "", "cannot read the parameter"),
        ("", "", "cannot read the parameter"),
    ],
)
def test_a_prototype_that_cannot_be_read_is_named(parameters: str, tail: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        one(parameters, tail=tail)
    assert "aclnnXGetWorkspaceSize" in str(caught.value)


def test_an_unclosed_list_is_refused_and_problems_can_be_collected() -> None:
    good = f"int aclnnGoodGetWorkspaceSize(const aclTensor *x, {TAIL});\n"
    bad = "int aclnnBadGetWorkspaceSize(const aclTensor *x);\n"
    with pytest.raises(ValueError, match="not closed"):
        list(parse_prototypes("int aclnnXGetWorkspaceSize(const aclTensor *x, "))
    with pytest.raises(ValueError, match="aclnnBad"):
        list(parse_prototypes(bad + good))
    problems: list[str] = []
    found = list(parse_prototypes(bad + good, "h", problems))
    assert [signature.name for signature in found] == ["aclnnGood"]
    assert len(problems) == 1
    assert "aclnnBad" in problems[0]


def test_a_default_value_is_not_taken_for_a_name() -> None:
    """C++ headers of custom operators have them: the name is not ``false``."""
    with pytest.raises(ValueError, match="aclnnX"):
        one("const aclTensor *x, bool flag = false")


def test_headers_are_read_from_files_even_with_foreign_bytes(tmp_path: Path) -> None:
    header = tmp_path / "aclnn_x.h"
    text = f"/* caf\xe9 \xff, (x */ aclnnStatus aclnnXGetWorkspaceSize(\r\n  const aclTensor *x,\r\n  {TAIL});\r\n"
    header.write_bytes(text.encode("latin-1"))
    (signature,) = aclnn_py.parse_header(header)
    assert rows(signature) == [("x", "const aclTensor *", "tensor")]
    assert signature.header == str(header)
    assert aclnn_py.parse_header(str(header)) == [signature]
    header.write_text("int aclnnXGetWorkspaceSize(const aclTensor *x);")
    with pytest.raises(ValueError, match="aclnnXGetWorkspaceSize") as caught:
        aclnn_py.parse_header(header)
    assert str(header) in str(caught.value)
    header.write_text("int f(void);\n")
    assert aclnn_py.parse_header(header) == []
    with pytest.raises(FileNotFoundError):
        aclnn_py.parse_header(tmp_path / "none.h")


names = st.from_regex(r"[a-z][A-Za-z0-9_]{0,9}", fullmatch=True)
types = st.sampled_from([*(k.replace("*", " *") for k in KINDS), "const aclTensor *", "const aclIntArray *"])


@given(st.lists(st.tuples(types, names), max_size=12, unique_by=lambda pair: pair[1]))
def test_what_is_printed_reads_back_as_the_same(pairs: list[tuple[str, str]]) -> None:
    signature = one(", ".join(f"{t}{n}" if t.endswith("*") else f"{t} {n}" for t, n in pairs))
    assert [(p.ctype, p.name) for p in signature.parameters] == pairs
    assert list(parse_prototypes(f"{signature};")) == [signature]


# -- the built-in ones


def headers() -> list[Path]:
    return sorted((CDEFS / "ops").glob("*.h"))


def test_built_in_signatures_are_those_of_the_declarations() -> None:
    parsed = {s.name: rows(s) for header in headers() for s in aclnn_py.parse_header(header)}
    assert parsed
    assert {name: rows(signature) for name, signature in signatures.known().items()} == parsed
    assert all(kind != "unknown" for row in parsed.values() for _, _, kind in row)
    for header in headers():
        for signature in aclnn_py.parse_header(header):
            assert signatures.known()[signature.name].header == f"cdefs/ops/{header.name}"


@pytest.mark.parametrize("name", sorted(signatures.known()))
def test_both_stages_are_declared_and_stage_two_is_the_common_one(name: str) -> None:
    text = " ".join(" ".join(header.read_text().split()) for header in headers())
    stage_two = r"\(\s*void \*workspace, uint64_t workspaceSize, aclOpExecutor \*executor, aclrtStream stream\s*\);"
    assert len(re.findall(rf"\baclnnStatus {name}{stage_two}", text)) == 1
    assert signatures.find(name).stage_one == f"{name}GetWorkspaceSize"
    assert len(re.findall(rf"\baclnnStatus {name}GetWorkspaceSize\(", text)) == 1


def test_parameters_of_the_two_main_operators_are_in_the_order_of_the_c_api() -> None:
    grad = signatures.find(V2_GRAD)
    assert str(grad).count(",") + 1 == 14, "stage one has 14 parameters"
    assert [p.name for p in grad.parameters] == [
        "gradY", "expandedRowIdx", "expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional",
        "dropPadMode", "activeNum", "expertNum", "expertCapacity", "gradExpandedXOut", "gradScalesOut",
    ]  # fmt: skip
    assert [p.kind for p in grad.parameters] == ["tensor"] * 6 + ["int"] * 4 + ["tensor"] * 2
    unpermute = signatures.find(EP_GRAD)
    assert str(unpermute).count(",") + 1 == 12, "stage one has 12 parameters"
    assert [(p.name, p.kind) for p in unpermute.parameters] == [
        ("unpermutedTokensGrad", "tensor"), ("sortedIndices", "tensor"), ("permutedTokensOptional", "tensor"),
        ("probsOptional", "tensor"), ("paddedMode", "bool"), ("restoreShapeOptional", "int_array"),
        ("rangeOptional", "int_array"), ("topkNum", "int"), ("permutedTokensGradOut", "tensor"),
        ("probsGradOut", "tensor"),
    ]  # fmt: skip
    assert str(unpermute).startswith(f"aclnnStatus {EP_GRAD}GetWorkspaceSize(const aclTensor *unpermutedTokensGrad, ")
    assert str(unpermute).endswith(f"const aclTensor *probsGradOut, {TAIL})")


OUTPUTS = {
    V2_GRAD: ("gradExpandedXOut", "gradScalesOut"),
    EP_GRAD: ("permutedTokensGradOut", "probsGradOut"),
    "aclnnMoeFinalizeRoutingV2": ("out",),
    "aclnnMoeFinalizeRoutingV3": ("out",),
    "aclnnMoeFinalizeRoutingV4": ("out",),
    "aclnnMoeTokenUnpermuteWithEp": ("out",),
    "aclnnMoeTokenPermuteWithEp": ("permuteTokensOut", "sortedIndicesOut", "permuteProbsOut"),
    "aclnnMoeTokenPermuteWithEpGrad": ("tokenGradOut", "probsGradOut"),
    "aclnnMoeInitRoutingV2": (
        "expandedXOut", "expandedRowIdxOut", "expertTokensCountOrCumsumOutOptional",
        "expertTokensBeforeCapacityOutOptional",
    ),
}  # fmt: skip


def test_outputs_of_the_moe_operators_are_known() -> None:
    assert {name: signatures.find(name).outputs for name in OUTPUTS} == OUTPUTS


def test_every_built_in_operator_has_an_output_and_what_c_lets_it_write_is_one() -> None:
    for name, signature in signatures.known().items():
        assert signature.outputs, f"{name} writes nothing?"
        tensors = [p for p in signature.parameters if p.kind == "tensor"]
        writable = {p.name for p in tensors if not p.ctype.startswith("const")}
        assert writable <= set(signature.outputs), name


# -- declarations


def test_a_declaration_is_found_and_comes_before_the_built_in_one() -> None:
    before = signatures.find(V2_GRAD)
    assert signatures.is_builtin(before)
    declared = aclnn_py.declare(f"int {V2_GRAD}GetWorkspaceSize(const aclTensor *x, {TAIL});")
    assert signatures.find(V2_GRAD) is signatures.known()[V2_GRAD] is declared
    assert declared.header == "declared"
    assert not signatures.is_builtin(declared)
    again = aclnn_py.declare(f"int {V2_GRAD}GetWorkspaceSize(const aclTensor *y, {TAIL});")
    assert signatures.find(V2_GRAD) is again


def test_several_prototypes_in_one_text_are_all_declared() -> None:
    text = "".join(f"int aclnn{n}GetWorkspaceSize(const aclTensor *x, {TAIL});\n" for n in "AB")
    assert aclnn_py.declare(text).name == "aclnnA"
    assert signatures.find("aclnnB").name == "aclnnB"
    assert signatures.find("aclnnC") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int aclnnX(int a);",
        f"int aclnnXGetWorkspaceSize(const aclTensro *x, {TAIL});",
        f"int aclnnXGetWorkspaceSize(const aclTensor *x aclTensor *y, {TAIL});",
        f"int aclnnXGetWorkspaceSize(bool b = true, {TAIL});",
        "int aclnnXGetWorkspaceSize(const aclTensor *x);",
    ],
)
def test_a_declaration_that_a_compiler_would_refuse_leaves_nothing_behind(text: str) -> None:
    with pytest.raises(ValueError, match=r"aclnnX|GetWorkspaceSize"):
        aclnn_py.declare(text)
    assert signatures.find("aclnnX") is None


def test_one_bad_prototype_declares_none_of_the_text() -> None:
    good, bad = (f"int aclnn{n}GetWorkspaceSize(const {t} *x, {TAIL});" for n, t in (("A", "aclTensor"), ("B", "nope")))
    with pytest.raises(ValueError, match="aclnnB"):
        aclnn_py.declare(good + bad)
    assert signatures.find("aclnnA") is None


# -- binding

BIND = f"""int aclnnBGetWorkspaceSize(
    const aclTensor *self, const aclTensor *maskOptional, double lambda, bool from, {TAIL});"""


@pytest.fixture
def bound() -> Signature:
    return next(parse_prototypes(BIND))


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1, 2, 3, 4), {}, [1, 2, 3, 4]),
        ((), {"from": 4, "lambda": 3, "maskOptional": 2, "self": 1}, [1, 2, 3, 4]),
        ((), {"from": 4, "lambda": 3, "mask": 2, "self": 1}, [1, 2, 3, 4]),
        ((1,), {"lambda": 3, "from": 4}, [1, None, 3, 4]),
        ((1, 2), {"lambda": 3, "from": 4}, [1, 2, 3, 4]),
        ((), {"lambda": 0, "from": False}, [None, None, 0, False]),
        ((None, None, None, None), {}, [None] * 4),
    ],
)
def test_arguments_are_put_into_c_order(bound: Signature, args: Any, kwargs: Any, expected: list[Any]) -> None:
    assert bound.bind(args, kwargs) == expected


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((1, 2, 3, 4, 5), {}, "takes 4 arguments, 5 were given"),
        ((1, 2, 3), {}, r"'from' \(bool\) is missing"),
        ((1, 2), {"from": 4}, r"'lambda' \(double\) is missing"),
        ((1, 2, 3, 4), {"self": 1}, "'self' was given twice"),
        ((1, 2, 3, 4), {"mask": 1}, "'mask' was given twice"),
        ((1, 2, 3, 4), {"maskOptional": 1}, "'maskOptional' was given twice"),
        ((1,), {"mask": 1, "maskOptional": 1, "lambda": 3, "from": 4}, "'maskOptional' was given twice"),
        ((1, 2, 3, 4), {"nope": 1}, "no argument named 'nope'"),
        ((1,), {"lambda": 3, "from": 4, "Mask": 1}, "no argument named 'Mask'"),
        ((1,), {"lambda": 3, "from": 4, "selfOptional": 1}, "no argument named 'selfOptional'"),
        ((1,), {"lambda": 3, "from": 4, "workspaceSize": 1}, "no argument named 'workspaceSize'"),
    ],
)
def test_wrong_calls_name_the_argument_and_show_the_c_signature(
    bound: Signature, args: Any, kwargs: Any, says: str
) -> None:
    with pytest.raises(TypeError, match=says) as caught:
        bound.bind(args, kwargs)
    assert f"C signature: {bound}" in str(caught.value)
    assert "aclnnB" in str(caught.value)


def test_optional_is_told_by_the_name() -> None:
    grad = signatures.find(V2_GRAD)
    assert [p.name for p in grad.parameters if p.optional] == [
        "expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional",
    ]  # fmt: skip


def test_a_signature_is_immutable_and_hashable() -> None:
    text = "aclnnStatus aclnnNegGetWorkspaceSize(const aclTensor *self, aclTensor *out, {});"
    text = text.format("uint64_t *workspaceSize, aclOpExecutor **executor")
    (one,), (other,) = parse_prototypes(text), parse_prototypes(text)
    assert one is not other
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(AttributeError, match="'name' cannot be set"):
        one.name = "aclnnOther"
    assert one == other
