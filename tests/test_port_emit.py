"""The emitter: what programs become, that scripts mean what the program says, and that formatters leave them alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn_py
from aclnn_py import dtypes
from aclnn_py.port.emit import Emitted, emit
from aclnn_py.port.literals import array_expression, dtype_text, element, literal
from aclnn_py.port.model import (
    Array,
    Attribute,
    Call,
    Check,
    Data,
    Frame,
    Note,
    Print,
    Program,
    Scalar,
    Sequence,
    Tensor,
    Unknown,
)
from aclnn_py.port.script import Line, flat, script
from aclnn_py.port.views import Store, define
from aclnn_py.signatures import parse_prototypes

HEAD = "# Ported from s.cpp by aclnn-py.\nimport numpy as np\n\nimport aclnn_py\n\n"


def tensor(
    name: str, shape: tuple[int, ...], values: Any, text: str | None = None, dtype: str = "float32", **more: Any
) -> Tensor:
    data = Data(np.asarray(values, dtypes.parse(dtype)).reshape(-1), text, more.pop("note", ""))
    return Tensor(name, shape, dtype, data, **more)


def out(shape: tuple[int, ...], name: str = "out", dtype: str = "float32") -> Tensor:
    return Tensor(name, shape, dtype)


def program(*steps: Any, **more: Any) -> Program:
    return Program(("dir/s.cpp",), list(steps), **more)


def body(made: Emitted) -> str:
    assert made.script.startswith(HEAD)
    return made.script.removeprefix(HEAD)


def run(made: Emitted, tmp_path: Path) -> dict[str, Any]:
    """Run a script on the reference; return its variables."""
    path = tmp_path / "script.py"
    path.write_text(made.script)
    if made.data:
        np.savez(tmp_path / "data.npz", **made.data)
    variables: dict[str, Any] = {"__file__": str(path)}
    exec(compile(made.script, str(path), "exec"), variables)
    return variables


@pytest.fixture(autouse=True)
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_BACKEND", "reference")


def every_program() -> Iterator[tuple[str, Program]]:
    """One program of each kind, also for the formatter."""
    x = tensor("self", (2, 2), [0.1, 1, 2, 3], "[0.1, 1., 2, 3]")
    add = {"self": x, "other": x, "alpha": Scalar("alpha", "1.2", 1.2, "float32"), "out": out((2, 2))}
    yield "add", program(Call("aclnnAdd", add, 7), Print(add["out"], "result[%ld] is: %f\n"))
    x = tensor("x", (4, 256), np.full(1024, 7), "7.0f".removesuffix("f"))
    y = out((4, 256), "y")
    steps: list[Any] = []
    for dim in range(3):
        frames = (Frame("loop", "dim", 9, dim, (("dim", str(dim)),)),)
        steps += [Call("aclnnSoftmax", {"self": x, "dim": Attribute(str(dim), dim), "out": y}, 9, frames)]
        steps += [Print(y, "", None, 9, frames)]
    yield "loop", program(*steps)
    steps = []
    for case, (values, golden) in enumerate([([1, 2, 3], [-1, -2, -3]), ([4, 5], [-4, -5]), ([6], [-6])]):
        frames = (Frame("function", "RunCase", 3, case),)
        x, y = tensor("x", (len(values),), values, str(values), "int32"), out((len(values),), "y", "int32")
        expected = Data(np.asarray(golden, np.int32), str(golden))
        steps += [Call("aclnnNeg", {"self": x, "out": y}, 5, frames), Check(y, expected, frames=frames)]
    yield "function", program(*steps)
    gap = Unknown("a struct is copied into the tensor", (120, 131), "s.cpp", "memcpy(p, &head, sizeof(head));")
    yield (
        "unknown",
        program(
            Call("aclnnNeg", {"self": Tensor("head", (8,), "int8", gap), "out": (y := out((8,), "y", "int8"))}),
            Print(y),
        ),
    )
    yield "refused", program(Call("aclnnNeg", {"self": y, "out": y}), refused="it needs HCCL")
    rng = np.random.default_rng(0)
    many = {
        "big": tensor("big", (10, 20), rng.random(200)),
        "bits": tensor("bits", (10, 20), rng.random(200), dtype="bfloat16"),
        "row": tensor("row", (40,), rng.integers(0, 10**6, 40) / 8),
        "pattern": tensor("pattern", (2,), [1, 0.1], dtype="bfloat16", note="0x3F80, 0x3DCD"),
        "nz": tensor("nz", (16, 32), np.ones(512), "1", "float16", format="FRACTAL_NZ", storage_shape=(2, 1, 16, 16)),
        "view": tensor("view", (3, 2), range(6), "[0, 1, 2, 3, 4, 5]", strides=(1, 3)),
        "list": Sequence("list", (tensor("a", (2,), [1, 2]), None, tensor("b", (3,), [1, 2, 3]))),
        "scalars": Sequence("scalars", (Scalar("s", "0.5", 0.5, "float32"), Scalar("t", "2", 2, "int64"))),
        "dims": Array("dims", ("0", "-1"), (0, -1)),
        "layout": Attribute('"TND"', "TND"),
        "lambda": Attribute("0.5", 0.5),
        "mode": Unknown("mode is not known", (4, 4)),
    }
    prototype = (
        "aclnnStatus aclnnExampleGetWorkspaceSize(const aclTensor *big, const aclTensor *bits, const aclTensor *row, "
        "const aclTensor *pattern, uint64_t *workspaceSize, aclOpExecutor **executor);"
    )
    yield "many", program(Call("aclnnExample", many, 8, declaration=prototype), notes=[Note("eight", 8), Note("all")])


PROGRAMS = dict(every_program())
LONG = "test_aclnn_a_name_as_long_as_those_of_real_samples_with_several_words"


# -- exact scripts


def test_a_usual_sample_is_a_few_lines(tmp_path: Path) -> None:
    made = emit(PROGRAMS["add"])
    assert body(made) == (
        "self = np.array([[0.1, 1.0], [2, 3]], np.float32)\n"
        "out = np.zeros((2, 2), np.float32)\n"
        'aclnn_py.op("aclnnAdd")(\n    self=self,\n    other=self,\n'
        '    alpha=aclnn_py.Scalar(1.2, "float32"),\n    out=out,\n)\n'
        'print("result:", out)\n'
    )
    assert made.missing == () and made.data == {}
    assert run(made, tmp_path)["out"][1].tolist() == pytest.approx([4.4, 6.6])


def test_a_loop_stays_a_loop(tmp_path: Path) -> None:
    made = emit(PROGRAMS["loop"])
    assert body(made) == (
        "x = np.full((4, 256), 7.0, np.float32)\ny = np.zeros((4, 256), np.float32)\n\n"
        'for dim in range(3):\n    aclnn_py.op("aclnnSoftmax")(self=x, dim=dim, out=y)\n    print("y:", y)\n'
    )


def test_cases_of_a_helper_stay_a_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = emit(PROGRAMS["function"])
    assert made.script == (
        HEAD + "\ndef RunCase(x_values, y_shape, expected):\n"
        "    x = np.array(x_values, np.int32)\n"
        "    y = np.zeros(y_shape, np.int32)\n"
        '    aclnn_py.op("aclnnNeg")(self=x, out=y)\n'
        "    np.testing.assert_array_equal(y, expected)\n\n\n"
        "RunCase([1, 2, 3], 3, [-1, -2, -3])\nRunCase([4, 5], 2, [-4, -5])\nRunCase([6], 1, [-6])\n"
    ).replace("expected", "expected_y")
    run(made, tmp_path)
    wrong = made.script.replace("[-4, -5]", "[-4, 5]")
    with pytest.raises(AssertionError):
        run(Emitted(wrong, {}, ()), tmp_path)


def test_what_is_not_understood_is_a_marked_gap_that_stops_the_script(tmp_path: Path) -> None:
    made = emit(PROGRAMS["unknown"])
    assert body(made).startswith(
        "# TODO s.cpp:120-131: a struct is copied into the tensor\n#     memcpy(p, &head, sizeof(head));\n"
        'raise NotImplementedError("head: s.cpp:120-131")\nhead = np.array(..., np.int8)  # shape (8,)\n'
    )
    assert [gap.lines for gap in made.missing] == [(120, 131)]
    with pytest.raises(NotImplementedError, match=r"head: s\.cpp:120-131"):
        run(made, tmp_path)
    rest = "\n".join(line for line in made.script.splitlines() if not line.startswith("raise "))
    with pytest.raises(TypeError, match="int"):  # nor does the gap pass for zeros
        run(Emitted(rest, {}, ()), tmp_path)


def test_a_refused_sample_is_all_comments() -> None:
    lines = emit(PROGRAMS["refused"]).script.splitlines()
    assert lines[0] == "# Not ported from s.cpp: it needs HCCL"
    assert '# aclnn_py.op("aclnnNeg")(self=y, out=y)' in lines
    assert all(line.startswith("#") for line in lines)


def test_everything_else_that_a_call_can_take() -> None:
    made = emit(PROGRAMS["many"], data_file="s.npz")
    assert (
        'data = np.load(Path(__file__).with_name("s.npz"))\nbig = data["big"]\nbits = data["bits"].view(bfloat16)\n'
        in made.script
    )
    assert made.data["bits"].dtype == np.uint16
    for line in (
        "# s.cpp:8: eight",
        "# all",
        "pattern = np.array([1.0, 0.1], bfloat16)  # 0x3F80, 0x3DCD",
        'nz = aclnn_py.with_format(\n    np.ones((2, 1, 16, 16), np.float16),\n    "FRACTAL_NZ",\n    shape=(16, 32)',
        "view = np.array([[0, 1, 2], [3, 4, 5]], np.float32).T",
        "    list=[a, None, b],",
        '    scalars=[aclnn_py.Scalar(0.5, "float32"), 2],',
        "    dims=[0, -1],",
        '    layout="TND",',
        '    **{"lambda": 0.5},',
        "    mode=...,",
        "# TODO s.cpp:4: mode is not known",
        'aclnn_py.declare("""\naclnnStatus aclnnExampleGetWorkspaceSize(\n    const aclTensor *big,',
        "from ml_dtypes import bfloat16\n",
    ):
        assert line in made.script, line
    compile(made.script, "script", "exec")


def test_a_null_range_of_the_ep_operators_is_said_explicitly(tmp_path: Path) -> None:
    index = tensor("index", (6,), [2, 0, 4, 1, 5, 3], dtype="int32")
    arguments = {
        "permutedTokens": tensor("rows", (6, 2), np.ones(12)), "sortedIndices": index, "probsOptional": None,
        "numTopk": Attribute("2", 2), "rangeOptional": None, "paddedMode": Attribute("false", False),
        "restoreShapeOptional": None, "out": out((3, 2)),
    }  # fmt: skip
    made = emit(program(Call("aclnnMoeTokenUnpermuteWithEp", arguments)))
    assert "# the sample's range is null, which releases read differently: (0, 6) is everything\n" in made.script
    assert "    rangeOptional=(0, 6),\n    paddedMode=False,\n    out=out,\n" in made.script
    assert run(made, tmp_path)["out"].tolist() == [[2, 2]] * 3


def test_outputs_that_the_sample_does_not_read_are_mentioned() -> None:
    x, y = tensor("x", (2,), [1, 2]), out((2,), "y")
    middle = out((2,), "middle")
    made = emit(program(Call("aclnnNeg", {"self": x, "out": middle}), Call("aclnnNeg", {"self": middle, "out": y})))
    assert made.script.endswith("# The sample does not read back y.\n")


def test_undefined_elements_are_left_undefined(tmp_path: Path) -> None:
    data = Data(np.float32([7, 0, 0]), defined=np.array([True, False, False]))
    made = emit(program(Call("aclnnNeg", {"self": Tensor("x", (3,), "float32", data), "out": out((3,))})))
    assert "x = np.empty(3, np.float32)\nx.flat[:1] = [7]\n" in made.script
    assert run(made, tmp_path)["x"][0] == 7


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        (Scalar("s", "2.0", 2.0, "float64"), "2.0"),
        (Scalar("s", "2", 2, "int64"), "2"),
        (Scalar("s", "True", True, "bool"), "True"),
        (Scalar("s", "2", 2, "float32"), 'aclnn_py.Scalar(2, "float32")'),
        (Scalar("s", "1.f", 1.0, "float32"), 'aclnn_py.Scalar(1.0, "float32")'),  # a text that is not Python
        (Scalar("s", "0.1", 0.25, "float64"), "0.25"),  # a text that says something else
        (Scalar("s", "1e5", 1e5, "float16"), 'aclnn_py.Scalar(1e5, "float16")'),
        (Scalar("s", "-inf", -np.inf, "float32"), 'aclnn_py.Scalar(-np.inf, "float32")'),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_scalars_make_the_same_aclscalar(scalar: Scalar, text: str, tmp_path: Path) -> None:
    x = tensor("x", (1,), [1])
    assert f"other={text}," in emit(program(Call("aclnnMuls", {"self": x, "other": scalar, "out": x}))).script.replace(
        ", out=x)", ","
    ).replace("\n", "").replace("    ", "")
    made = eval(text, {"aclnn_py": aclnn_py, "np": np})
    made = made if isinstance(made, aclnn_py.Scalar) else aclnn_py.Scalar(made)
    assert made.dtype == dtypes.parse(scalar.dtype)
    assert made.value == np.asarray(scalar.value).astype(made.dtype)


def test_goldens_become_checks(tmp_path: Path) -> None:
    x, y = tensor("x", (2, 2), [1, 2, 3, 4]), out((2, 2), "y")
    half = out((2, 2), "half", "bfloat16")
    near = Check(y, Data(np.float32([-1, -2, -3, -4.001]), "[-1, -2, -3, -4.001]"), 0.0, 1e-2)
    same = Check(half, Data(np.array([-1] * 4, ml_dtypes.bfloat16), "-1"), 0.0, 8.0)
    calls = [
        Call("aclnnNeg", {"self": x, "out": y}),
        Call("aclnnCast", {"self": y, "dtype": Attribute('"bfloat16"', 27), "out": half}),
    ]
    made = emit(program(*calls, near, same, Check(y, Data(np.float32([-1, -2]), None))))
    assert "np.testing.assert_allclose(y, [[-1, -2], [-3, -4.001]], rtol=0, atol=0.01)\n" in made.script
    assert "np.testing.assert_allclose(half, -1, rtol=0, atol=8)\n" in made.script
    assert "np.testing.assert_array_equal(y.ravel()[:2], [-1, -2])\n" in made.script
    run(made, tmp_path)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        (Attribute("ACL_BF16", 27), '"bfloat16"'),
        (Attribute("0", 0), '"float32"'),
        (Attribute('"float16"', 1), '"float16"'),
        (Attribute("ACL_HIFLOAT8", 34), "34"),
    ],
)
def test_dtypes_go_by_name(attribute: Attribute, text: str) -> None:
    x = tensor("x", (1,), [1])
    made = emit(program(Call("aclnnCast", {"self": x, "dtype": attribute, "out": x}), Print(x)))
    assert f'aclnn_py.op("aclnnCast")(self=x, dtype={text}, out=x)\n' in made.script


def test_a_label_that_several_tensors_share_tells_nothing() -> None:
    x, y, z = tensor("x", (1,), [1]), out((1,), "y"), out((1,), "z")
    calls = Call("aclnnNeg", {"self": x, "out": y}), Call("aclnnNeg", {"self": y, "out": z})
    same = emit(program(*calls, Print(y, "result[%ld] is: %f\n"), Print(z, "result[%ld] is: %f\n"))).script
    assert same.endswith('print("y:", y)\nprint("z:", z)\n')
    apart = emit(program(*calls, Print(y, "first = %f\n", 1), Print(z, 'say "z": '))).script
    assert apart.endswith("""print("first:", y)\nprint('say "z":', z)\n""")


def test_a_guessed_prototype_is_marked() -> None:
    tail = "uint64_t *workspaceSize, aclOpExecutor **executor"
    prototype = f"aclnnStatus aclnnExampleGetWorkspaceSize(const aclTensor *x, {tail})"
    call = Call("aclnnExample", {"x": tensor("x", (1,), [1])}, declaration=prototype)
    made = emit(program(call))
    assert made.guessed == ("aclnnExample",)
    assert "# Guessed from the sample: CANN's header has the true types and names.\naclnn_py.declare(" in made.script
    (known,) = parse_prototypes(prototype)
    made = emit(program(call), lookup=lambda name: known)
    assert made.guessed == ()
    assert "Guessed" not in made.script and "aclnn_py.declare(" in made.script


# -- names and places


def test_names_are_reused_and_told_apart(tmp_path: Path) -> None:
    first, second = tensor("x", (1,), [1]), tensor("x", (1,), [2])
    a, b, c = out((1,), "a[0]"), out((1,), "range"), out((1,), "lambda")
    made = emit(program(
        Call("aclnnNeg", {"self": first, "out": a}), Call("aclnnNeg", {"self": second, "out": b}),
        Call("aclnnAdd", {"self": first, "other": second, "alpha": Scalar("s", "1", 1, "int64"), "out": c}),
        Call("aclnnNeg", {"self": tensor("x", (1,), [3]), "out": out((1,), "a_0")}),
    ))  # fmt: skip
    values = run(made, tmp_path)
    assert values["lambda_"].tolist() == [3] and values["range_"].tolist() == [-2]
    assert values["x"].tolist() == [3] and values["a_0"].tolist() == [-3]


def test_a_tensor_of_several_iterations_is_made_once(tmp_path: Path) -> None:
    x = tensor("x", (2,), [1, 1])
    steps = []
    for i in range(3):
        frames = (Frame("loop", "i", 4, i),)
        steps.append(
            Call(
                "aclnnInplaceAdds",
                {"selfRef": x, "other": Scalar("s", str(i), i, "int64"), "alpha": Scalar("s", "1", 1, "int64")},
                5,
                frames,
            )
        )
    made = emit(program(*steps, Print(x)))
    assert made.script.count("np.ones(") == made.script.count("aclnn_py.op(") == 1
    assert run(made, tmp_path)["x"].tolist() == [4, 4]


def test_equal_arrays_stay_apart(tmp_path: Path) -> None:
    """Whole right-hand sides that differ alike must not become one array for two names."""
    steps = []
    for i, (form, size) in enumerate([([1, 2, 3], 3), ([0] * 9, 9)]):
        frames = (Frame("function", "run", 4, i),)
        x, y = tensor("x", (size,), form), tensor("y", (size,), form)
        steps += [
            Call("aclnnNeg", {"self": x, "out": y}, 5, frames),
            Print(x, "", None, 6, frames),
            Print(y, "", None, 6, frames),
        ]
    made = emit(program(*steps))
    assert "y = x" not in made.script
    run(made, tmp_path)


def test_iterations_that_differ_in_more_than_values_are_written_out() -> None:
    x = tensor("x", (2,), [1, 2])
    steps = [
        Call("aclnnNeg", {"self": x, "out": x}, 5, (Frame("loop", "i", 4, 0),)),
        Call("aclnnAbs", {"self": x, "out": x}, 6, (Frame("loop", "i", 4, 1),)),
        Call("aclnnAbs", {"self": x, "out": x}, 6, (Frame("loop", "i", 4, 2),)),
    ]
    assert (
        body(emit(program(*steps, Print(x))))
        .removesuffix('\nprint("x:", x)\n')
        .endswith(
            'aclnn_py.op("aclnnNeg")(self=x, out=x)\n\nfor _ in range(2):\n    aclnn_py.op("aclnnAbs")(self=x, out=x)\n'
        )
    )


def test_nested_loops() -> None:
    x = tensor("x", (2, 2), [1, 2, 3, 4])
    steps = []
    for i in range(2):
        for k, dim in enumerate((1, 0)):
            frames = (Frame("loop", "i", 3, i), Frame("loop", "dim", 4, k, (("dim", str(dim)),)))
            arguments = {"self": x, "dim": Attribute(str(dim), dim), "out": x}
            steps.append(Call("aclnnSoftmax", arguments, 6, frames))
    assert (
        body(emit(program(*steps, Print(x))))
        .removesuffix('\nprint("x:", x)\n')
        .endswith(
            'for _ in range(2):\n    for dim in [1, 0]:\n        aclnn_py.op("aclnnSoftmax")(self=x, dim=dim, out=x)\n'
        )
    )


# -- values


@st.composite
def arrays(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], str]:
    """Arrays of any content: random bits, fills, ramps, patterns, runs."""
    name = draw(
        st.sampled_from(["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint16", "bool", "complex64"])
    )
    kind = dtypes.parse(name)
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    size = int(np.prod(shape, dtype=int))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    form = draw(st.sampled_from(["bits", "fill", "ramp", "pattern", "runs", "round", "zeros"]))
    if form == "bits":
        values = (
            np.frombuffer(rng.bytes(size * kind.itemsize), kind).copy() if name != "bool" else rng.random(size) < 0.5
        )
    elif form == "ramp":
        values = (np.arange(size) * draw(st.integers(-3, 3)) + draw(st.integers(-3, 3))).astype(kind)
    else:
        base = {"fill": np.full(size, 0.7), "pattern": np.resize(rng.random(5), size), "zeros": np.zeros(size)}
        base |= {"runs": np.repeat(rng.random(size // 10 + 1), 10)[:size], "round": rng.integers(-9, 9, size) / 4}
        values = base[form].astype(kind)
    return values.reshape(shape), name


@given(case=arrays())
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_an_expression_gives_the_bits_back(case: tuple[np.ndarray[Any, Any], str]) -> None:
    values, name = case
    node = array_expression(values.reshape(-1), values.shape, dtype_text(name), None, "x").node
    if node is None:
        assert values.size > 64
        return
    text = script([[Line(node, "x")]])
    found: dict[str, Any] = {"np": np, "bfloat16": ml_dtypes.bfloat16}
    exec(text, found)
    assert found["x"].dtype == values.dtype and found["x"].shape == values.shape
    nan = np.isnan(values) if values.dtype.kind in "fcV" else np.zeros(values.shape, bool)
    assert np.asarray(found["x"])[~nan].tobytes() == values[~nan].tobytes()


@given(data=st.data())
def test_a_view_is_the_memory_that_the_sample_describes(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    storage = None
    if data.draw(st.booleans()):
        order = data.draw(st.permutations(range(len(shape))))
        usual = np.zeros([shape[i] for i in order], np.int8).strides
        strides = tuple(int(usual[order.index(i)]) for i in range(len(shape)))
    else:
        strides = tuple(data.draw(st.integers(0, 9)) for _ in shape)
    offset = data.draw(st.integers(0, 5))
    size = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 + data.draw(st.integers(0, 3))
    if data.draw(st.booleans()):
        storage = (size,)
    memory = np.arange(1, size + 1, dtype=np.int32)
    t = Tensor("x", shape, "int32", Data(memory), strides, offset, storage)
    made = define(t, "x", Store(), lambda unknown, what: [])
    found: dict[str, Any] = {"np": np}
    exec(script([made]), found)
    wanted = np.lib.stride_tricks.as_strided(memory[offset:], shape, [s * 4 for s in strides])
    np.testing.assert_array_equal(found["x"], wanted)


@pytest.mark.parametrize(
    ("strides", "offset", "storage", "text"),
    [
        ((1, 3), 0, (2, 3), ".T"),
        ((8, 1), 5, (4, 8), "[:3, 5:7]"),
        ((8, 2), 8, (4, 8), "[1:, :3:2]"),
        ((16, 4), 1, (6, 8), "[::2, 1::4]"),
        ((0, 1), 0, None, "broadcast_to("),
        ((2, 1), 4, None, "[4:10].reshape(3, 2)"),
        ((1, 1), 0, None, "as_strided("),
    ],
)
def test_views_are_written_as_a_person_would(strides: Any, offset: int, storage: Any, text: str) -> None:
    t = Tensor("x", (3, 2), "float32", Data(np.arange(48, dtype=np.float32)), strides, offset, storage)
    if storage is not None:
        t.data = Data(np.arange(np.prod(storage), dtype=np.float32))
    assert text in script([define(t, "x", Store(), lambda unknown, what: [])])


def test_literals_stay_as_the_source_has_them() -> None:
    values = np.float32([0.1, 2e-3, 1, 16])
    node = array_expression(values, (4,), "np.float32", "[.1, 2.0E-3, 1., 0x10]", "x").node
    assert node is not None and flat(node) == "np.array([0.1, 2.0e-3, 1.0, 0x10], np.float32)"
    node = array_expression(values, (4,), "np.float32", "[.1, 2.0E-3, 1., 17]", "x").node  # not these values
    assert node is not None and flat(node) == "np.array([0.1, 0.002, 1.0, 16.0], np.float32)"
    node = array_expression(np.float32(np.arange(100) % 7), (100,), "np.float32", "np.arange(100) % 7", "x").node
    assert node is not None and flat(node) == "(np.arange(100) % 7).astype(np.float32)"


def test_the_text_of_a_source_cannot_do_anything() -> None:
    node = array_expression(np.int8([1, 2]), (2,), "np.int8", "__import__('os').system('false')", "x").node
    assert node is not None and flat(node) == "np.array([1, 2], np.int8)"


@pytest.mark.parametrize(
    ("text", "wanted"), [("1.", "1.0"), (".5", "0.5"), ("-3", "-3"), ("0X1f", "0x1F"), ("007", "7")]
)
def test_literals_are_valid_python(text: str, wanted: str) -> None:
    assert literal(text) == wanted


def test_elements_have_the_shortest_text() -> None:
    found = [element(v) for v in (np.float32(1e-7), np.float64(1) / 3, np.float16(65504), ml_dtypes.bfloat16(3.14))]
    assert found == ["1e-07", "0.3333333333333333", "65500.0", "3.14"]


# -- format


@pytest.mark.parametrize("width", [88, 120])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_formatters_leave_the_scripts_alone(name: str, width: int) -> None:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", "--line-length", str(width), "-"]
    text = emit(replace(PROGRAMS[name], files=(f"{LONG}.cpp",)), data_file=f"{LONG}.npz").script
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
