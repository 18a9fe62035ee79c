"""Recording samples: compiled unchanged, run on the emulator, read back from its log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prototype_index import PrototypeIndex

from aclnn_py import signatures
from aclnn_py.port.compare import differences
from aclnn_py.port.log import round_trip
from aclnn_py.port.memory import Memory
from aclnn_py.port.model import (
    Array,
    Attribute,
    Call,
    Data,
    Print,
    Program,
    SampleError,
    Scalar,
    Sequence,
    Tensor,
    Unknown,
)
from aclnn_py.port.pages import definitions, prototypes
from aclnn_py.port.record import record

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="recording needs g++")

HELPERS = """
#include <cstdint>
#include <cstdio>
#include <vector>
#include "acl/acl.h"
{includes}
aclrtStream stream;
template <class T> void *upload(const std::vector<T> &host) {{
    void *device = nullptr;
    aclrtMalloc(&device, host.size() * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy(device, host.size() * sizeof(T), host.data(), host.size() * sizeof(T), ACL_MEMCPY_HOST_TO_DEVICE);
    return device;
}}
void *room(size_t bytes) {{
    void *device = nullptr;
    aclrtMalloc(&device, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
    return device;
}}
aclTensor *tensor(void *device, std::vector<int64_t> shape, aclDataType dtype, std::vector<int64_t> strides = {{}},
                  int64_t offset = 0, std::vector<int64_t> storage = {{}}, aclFormat format = ACL_FORMAT_ND) {{
    if (storage.empty()) storage = shape;
    return aclCreateTensor(shape.data(), shape.size(), dtype, strides.empty() ? nullptr : strides.data(), offset,
                           format, storage.data(), storage.size(), device);
}}
#define RUN(op, ...) {{                                                                     \\
    uint64_t size = 0; aclOpExecutor *executor = nullptr; void *workspace = nullptr;        \\
    if (int bad = op##GetWorkspaceSize(__VA_ARGS__, &size, &executor)) return bad % 256;    \\
    if (size > 0) aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST);                 \\
    if (op(workspace, size, executor, stream) != 0) return 2;                               \\
    aclrtSynchronizeStream(stream); }}
template <class T> std::vector<T> fetch(void *device, size_t count) {{
    std::vector<T> host(count);
    aclrtMemcpy(host.data(), count * sizeof(T), device, count * sizeof(T), ACL_MEMCPY_DEVICE_TO_HOST);
    return host;
}}
int main() {{
    aclInit(nullptr); aclrtSetDevice(0); aclrtCreateStream(&stream);
    {body}
    return 0;
}}
"""
MINE = "int aclnnMineGetWorkspaceSize({}, uint64_t *workspaceSize, aclOpExecutor **executor);"


def write(path: Path, body: str, *includes: str) -> Path:
    path.write_text(HELPERS.format(includes="\n".join(f'#include "{name}"' for name in includes), body=body))
    return path


@pytest.fixture
def recorded(tmp_path: Path, emulator_lib: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ACLNN_PY_LIBRARY_PATH", str(emulator_lib))

    def run(body: str, *includes: str, **options: Any) -> Program:
        return record([write(tmp_path / "sample.cpp", body, *includes)], **options)

    return run


def calls(program: Program) -> list[Call]:
    return [step for step in program.steps if isinstance(step, Call)]


def tensor(shape: tuple[int, ...], values: Any = None, dtype: str = "float32", **fields: Any) -> Tensor:
    kind = np.dtype(dtype)
    data = None if values is None else Data(np.asarray(values, kind))
    return Tensor("", shape, dtype, data, **fields)


NEG = """
    void *x = upload<float>({1, -2, 3}); void *out = room(12);
    RUN(aclnnNeg, tensor(x, {3}, ACL_FLOAT), tensor(out, {3}, ACL_FLOAT))
"""


def test_a_call_is_recorded_with_its_data_and_what_is_read_back(recorded: Any) -> None:
    program = recorded(
        """
    void *x = upload<float>({1, 2}); void *y = upload<float>({0.1f, -0.0f}); void *out = room(8);
    float alpha = 1.2f; aclScalar *scalar = aclCreateScalar(&alpha, ACL_FLOAT);
    RUN(aclnnAdd, tensor(x, {2}, ACL_FLOAT), tensor(y, {1, 2}, ACL_FLOAT), scalar, tensor(out, {1, 2}, ACL_FLOAT))
    for (float v : fetch<float>(out, 1)) printf("%f", v);
    for (float v : fetch<float>(x, 2)) printf("%f", v);
    """,
        "aclnnop/aclnn_add.h",
    )
    expected = Call(
        "aclnnAdd",
        {
            "self": tensor((2,), [1, 2]),
            "other": tensor((1, 2), [0.1, -0.0]),
            "alpha": Scalar("", "1.2", np.float32(1.2), "float32"),
            "out": tensor((1, 2)),
        },
    )
    assert differences(Program((), [expected]), program) == []
    (call,) = calls(program)
    assert list(call.arguments) == ["self", "other", "alpha", "out"]
    assert call.arguments["alpha"].text == "1.2"  # type: ignore[union-attr]
    assert call.declaration is None
    assert call.line == 0  # a macro makes the name
    prints = program.steps[1:]
    assert [(step.tensor, step.count) for step in prints if isinstance(step, Print)] == [
        (call.arguments["out"], 1), (call.arguments["self"], None)
    ]  # fmt: skip
    assert len(prints) == 2
    assert program.notes == []


def test_views_formats_and_storage(recorded: Any) -> None:
    program = recorded(
        """
    void *x = upload<int32_t>({0, 1, 2, 3, 4, 5, 6}); void *out = upload<int32_t>({7, 8, 9, 10});
    RUN(aclnnNeg, tensor(x, {2, 2}, ACL_INT32, {1, 3}, 1, {7}),
        tensor(out, {1, 2, 2, 1}, ACL_INT32, {}, 0, {1, 1, 2, 2}, ACL_FORMAT_NCHW))
    """,
        "aclnnop/aclnn_neg.h",
    )
    call = calls(program)[0]
    wanted = tensor((2, 2), range(7), "int32", strides=(1, 3), offset=1, storage_shape=(7,))
    other = tensor((1, 2, 2, 1), range(7, 11), "int32", storage_shape=(1, 1, 2, 2), format="NCHW")
    assert differences(Program((), [Call("aclnnNeg", {"self": wanted, "out": other})]), program) == []
    assert isinstance(call.arguments["out"], Tensor)
    assert call.arguments["out"].strides is None


def test_an_operator_that_the_emulator_lacks_is_recorded_from_its_prototype(recorded: Any) -> None:
    mine = MINE.format(
        "const aclTensor *x, const aclTensor *gone, const aclTensorList *many, const aclScalarList *scales, "
        "const aclIntArray *dims, const aclFloatArray *sizes, const aclBoolArray *mask, const char *mode, bool flag, "
        "float eps, double scale, aclDataType dtype, uint64_t big, int8_t small, aclTensor *out"
    )
    program = recorded(
        """
    std::vector<uint16_t> half{0x3c00, 0x3e00};
    void *x = upload(half); void *out = room(4);
    const aclTensor *members[] = {tensor(x, {2}, ACL_FLOAT16), tensor(upload<double>({0.1}), {}, ACL_DOUBLE)};
    float f = 0.1f; int64_t l = INT64_MIN;
    const aclScalar *scalars[] = {aclCreateScalar(&f, ACL_FLOAT)};
    const aclScalar *longs = aclCreateScalar(&l, ACL_INT64); (void)longs;
    int64_t dims[] = {-1, 1}; float sizes[] = {0.5f, 0.1f}; bool mask[] = {true, false};
    char mode[] = {'T', 'N', 'D', 0};
    RUN(aclnnMine, tensor(x, {2}, ACL_BF16), nullptr, aclCreateTensorList(members, 2), aclCreateScalarList(scalars, 1),
        aclCreateIntArray(dims, 2), aclCreateFloatArray(sizes, 2), aclCreateBoolArray(mask, 2), mode, true, 0.1f, 0.1,
        ACL_BF16, UINT64_MAX, -3, tensor(out, {2}, ACL_FLOAT16))
    fetch<uint16_t>(out, 2);
    """,
        "aclnnop/aclnn_mine.h",
        declarations=[mine],
    )
    assert program.notes == []
    (call,) = calls(program)
    arguments = call.arguments
    bf16 = tensor((2,), [], "float32")
    bf16.dtype = "bfloat16"
    bf16.data = Data(np.array([0x3C00, 0x3E00], np.uint16).view("bfloat16"))
    expected = {
        "x": bf16,
        "gone": None,
        "many": Sequence("", (tensor((2,), [1, 1.5], "float16"), tensor((), [0.1], "float64"))),
        "scales": Sequence("", (Scalar("", "0.1", np.float32(0.1), "float32"),)),
        "dims": Array("", (), (-1, 1)),
        "sizes": Array("", (), (0.5, 0.1)),
        "mask": Array("", (), (True, False)),
        "mode": Attribute("", "TND"),
        "flag": Attribute("", True),
        "eps": Attribute("", 0.1),
        "scale": Attribute("", 0.1),
        "dtype": Attribute("", "bfloat16"),
        "big": Attribute("", 2**64 - 1),
        "small": Attribute("", -3),
        "out": tensor((2,), None, "float16"),
    }
    assert differences(Program((), [Call("aclnnMine", expected, declaration=mine)]), program) == []
    assert list(arguments) == list(expected)
    texts = [arguments[name].text for name in ("mode", "flag", "eps", "scale", "dtype", "small")]  # type: ignore[union-attr]
    assert texts == ["'TND'", "True", "0.1", "0.1", "'bfloat16'", "-3"]
    assert arguments["sizes"].items == ("0.5", "0.1")  # type: ignore[union-attr]
    assert arguments["mask"].items == ("True", "False")  # type: ignore[union-attr]
    assert call.declaration is not None
    assert signatures.declare(call.declaration).name == "aclnnMine"
    assert isinstance(program.steps[-1], Print)


def test_what_the_sample_does_not_fill_is_not_invented(recorded: Any) -> None:
    program = recorded(
        """
    void *x = room(16); float half[] = {1, 2};
    aclrtMemcpy(x, 16, half, 8, ACL_MEMCPY_HOST_TO_DEVICE);
    void *y = room(16); aclrtMemset(y, 16, 0, 16); aclrtMemcpy(y, 16, x, 16, ACL_MEMCPY_DEVICE_TO_DEVICE);
    void *zeros = room(16); aclrtMemset(zeros, 16, 0, 16);
    RUN(aclnnMul, tensor(x, {4}, ACL_FLOAT), tensor(y, {4}, ACL_FLOAT), tensor(zeros, {4}, ACL_FLOAT))
    fetch<float>(zeros, 6);
    """,
        "aclnn_mul.h",
    )
    x, y, out = calls(program)[0].arguments.values()
    for value in (x, y):
        assert isinstance(value, Tensor)
        assert isinstance(value.data, Data)
        assert value.data.values[:2].tolist() == [1, 2]
        assert value.data.defined is not None
        assert value.data.defined.tolist() == [True, True, False, False]
    assert isinstance(out, Tensor)
    assert isinstance(out.data, Data)
    assert out.data.defined is None
    assert out.data.values.tolist() == [0] * 4
    texts = [note.text for note in program.notes]
    assert "the sample fills 2 of 4 elements of self" in texts
    assert "the sample reads 24 bytes back from out, which has 16" in texts
    assert "aclrtMemcpy: 24 bytes at src, but its allocation has 16 from there" in texts


def test_host_memory_that_is_too_short_gives_no_values(recorded: Any) -> None:
    program = recorded(
        """
    std::vector<float> host{1, 2};
    void *x = room(16); aclrtMemcpy(x, 16, host.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE);
    void *out = room(16); aclrtMemcpy(out, 8, host.data() + 1, 8, ACL_MEMCPY_HOST_TO_DEVICE);
    RUN(aclnnNeg, tensor(x, {4}, ACL_FLOAT), tensor(out, {4}, ACL_FLOAT))
    std::vector<float> back(1); aclrtMemcpy(back.data(), 16, out, 16, ACL_MEMCPY_DEVICE_TO_HOST);
    """,
        "aclnnop/aclnn_neg.h",
    )
    x, out = calls(program)[0].arguments.values()
    for value, first, count in ((x, 1, 2), (out, 2, 1)):
        assert isinstance(value, Tensor)
        assert isinstance(value.data, Data)
        assert value.data.values[0] == first
        assert value.data.defined is not None
        assert value.data.defined.tolist() == [i < count for i in range(4)]
    texts = [note.text for note in program.notes]
    assert "aclrtMemcpy: 16 bytes at src, but the host memory has 8 from there" in texts
    assert "the sample fills 2 of 4 elements of self" in texts


def test_results_that_are_used_again_stay_the_same_tensor(recorded: Any) -> None:
    program = recorded(
        """
    void *x = upload<float>({1, 2});
    RUN(aclnnInplaceNeg, tensor(x, {2}, ACL_FLOAT))
    RUN(aclnnInplaceExp, tensor(x, {2}, ACL_FLOAT))
    RUN(aclnnInplaceSqrt, tensor(x, {2, 1}, ACL_FLOAT))
    float again[] = {5, 6};
    aclrtMemcpy(x, 8, again, 8, ACL_MEMCPY_HOST_TO_DEVICE);
    RUN(aclnnInplaceNeg, tensor(x, {2}, ACL_FLOAT))
    """,
        "aclnnop/aclnn_neg.h",
        "aclnnop/aclnn_exp.h",
        "aclnnop/aclnn_sqrt.h",
    )
    first, second, view, last = (next(iter(call.arguments.values())) for call in calls(program))
    assert isinstance(first, Tensor)
    assert isinstance(first.data, Data)
    assert first.data.values.tolist() == [1, 2]
    assert second is first
    assert isinstance(view, Tensor)
    assert (view.base, view.data, view.shape) == (first, None, (2, 1))
    assert isinstance(last, Tensor)
    assert isinstance(last.data, Data)
    assert last.data.values.tolist() == [5, 6]
    assert last.base is None
    assert len({first.name, view.name, last.name}) == 3


def test_what_an_operator_that_is_not_computed_wrote_stays_unknown(recorded: Any) -> None:
    program = recorded(
        """
    void *x = upload<float>({1, 2, 3, 4});
    RUN(aclnnMine, tensor(x, {4}, ACL_FLOAT))
    RUN(aclnnInplaceNeg, tensor(x, {2, 2}, ACL_FLOAT))
    RUN(aclnnInplaceNeg, tensor((char *)x + 8, {2}, ACL_FLOAT))
    """,
        "aclnnop/aclnn_neg.h",
        "aclnnop/aclnn_mine.h",
        declarations=[MINE.format("aclTensor *x")],
    )
    mine, view, part = (next(iter(call.arguments.values())) for call in calls(program))
    assert isinstance(view, Tensor)
    assert view.base is mine
    assert isinstance(part, Tensor)
    assert isinstance(part.data, Unknown)


def test_a_call_that_the_emulator_refuses_is_recorded_all_the_same(recorded: Any) -> None:
    program = recorded(
        """
    void *x = upload<float>({1, 2, 3}); void *out = room(8);
    RUN(aclnnNeg, tensor(x, {3}, ACL_FLOAT), tensor(out, {2}, ACL_FLOAT))
    """,
        "aclnnop/aclnn_neg.h",
    )
    assert [call.op for call in calls(program)] == ["aclnnNeg"]
    assert "the emulator did not compute all calls, so they are recorded without results" in [
        note.text for note in program.notes
    ]


def test_another_operator_of_the_same_name_is_not_computed(recorded: Any) -> None:
    """Vendor packages define such: the emulator's own entry point would read arguments that are not there."""
    names = MINE.replace("Mine", "Neg").format("const aclTensor *x, aclTensor *y")
    (call,) = calls(recorded(NEG, "aclnnop/aclnn_neg.h", declarations=[names]))
    assert list(call.arguments) == ["x", "y"]
    other = MINE.replace("Mine", "Neg").format("int64_t count, const aclTensor *x")
    body = "void *x = upload<float>({1}); RUN(aclnnNeg, 3, tensor(x, {1}, ACL_FLOAT))"
    (call,) = calls(recorded(body, "aclnnop/aclnn_neg.h", declarations=[other]))
    assert isinstance(call.arguments["count"], Attribute)
    assert call.arguments["count"].value == 3


def test_a_type_without_a_numpy_counterpart(recorded: Any) -> None:
    program = recorded(
        """
    void *x = upload<uint8_t>({0x21, 0x43}); void *out = room(2);
    RUN(aclnnMine, tensor(x, {4}, ACL_FLOAT4_E2M1), tensor(out, {2}, ACL_HIFLOAT8))
    """,
        "aclnnop/aclnn_mine.h",
        declarations=[MINE.format("const aclTensor *x, aclTensor *out")],
    )
    x, out = calls(program)[0].arguments.values()
    assert isinstance(x, Tensor)
    assert (x.dtype, x.shape, x.data) == ("float4_e2m1", (4,), Unknown("NumPy has no type float4_e2m1"))
    assert isinstance(out, Tensor)
    assert (out.dtype, out.data) == ("hifloat8", None)


def test_empty_tensors_and_calls_without_a_kernel(recorded: Any) -> None:
    program = recorded(
        """
    void *x = room(4);
    RUN(aclnnNeg, tensor(x, {0, 3}, ACL_FLOAT), tensor(nullptr, {0, 3}, ACL_FLOAT))
    """,
        "aclnnop/aclnn_neg.h",
    )
    (call,) = calls(program)
    assert [(t.shape, t.data) for t in call.arguments.values() if isinstance(t, Tensor)] == [((0, 3), None)] * 2


def test_headers_are_made_under_the_names_that_samples_use(recorded: Any) -> None:
    program = recorded(NEG, "../../op_api/aclnn_neg.h", "aclnnop/level2/aclnn_anything.h", "aclnn_another.h")
    assert len(calls(program)) == 1


def test_the_position_of_a_fault_in_the_sample(recorded: Any, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="nonsense") as caught:
        recorded("\n   aclTensor *t = nonsense(1);", "aclnnop/aclnn_neg.h")
    assert (caught.value.line, caught.value.column) == (39, 19)
    assert caught.value.file == str(tmp_path / "sample.cpp")
    with pytest.raises(
        SampleError, match=r"no prototype of aclnnNoSuch is at hand: .*aclnnNoSuchGetWorkspaceSize\("
    ) as caught:
        recorded("\n // aclnnNeverGetWorkspaceSize\n auto f = aclnnNoSuchGetWorkspaceSize;")
    assert (caught.value.line, caught.value.column) == (40, 11)
    with pytest.raises(SampleError, match="the emulator has no aclnnHelper") as caught:
        recorded("\n extern int aclnnHelper(int);\n return aclnnHelper(1);", "aclnnop/aclnn_neg.h")
    assert caught.value.line == 39
    with pytest.raises(SampleError, match=r"aclnn/no_such\.h"):
        recorded("", "aclnn/no_such.h")


def test_samples_of_several_devices_are_refused(recorded: Any) -> None:
    program = recorded(NEG, "hccl/hccl.h")
    assert program.refused is not None
    assert "HCCL" in program.refused
    assert program.steps == []


def test_what_was_called_before_a_crash_or_the_time_limit_is_kept(recorded: Any) -> None:
    program = recorded(
        NEG + "raise(11);" + NEG.replace("x", "z").replace("out", "o"), "signal.h", "aclnnop/aclnn_neg.h"
    )
    assert len(calls(program)) == 1
    assert program.steps[-1].reason == "the sample ended by signal 11: later calls may be missing"
    program = recorded(NEG + "for (;;) pause();", "unistd.h", "aclnnop/aclnn_neg.h", time_limit=3)
    assert len(calls(program)) == 1
    assert program.steps[-1].reason == "the sample was stopped after 3 s: later calls may be missing"
    program = recorded(NEG + "return 7;", "aclnnop/aclnn_neg.h")
    assert program.steps[-1].reason == "the sample ended with status 7 on the emulator: later calls may be missing"


def test_a_sample_without_calls_says_so(recorded: Any) -> None:
    assert [note.text for note in recorded("").notes] == ["the sample called no operator"]


def test_a_sample_that_asks_for_a_product_gets_it(recorded: Any) -> None:
    gate = 'if (strstr(aclrtGetSocName(), "Ascend950") == nullptr) return 0;'
    program = recorded(gate + NEG, "string.h", "aclnnop/aclnn_neg.h")
    assert len(calls(program)) == 1
    assert [n.text for n in program.notes] == ["recorded as on an Ascend950, which the sample asks for"]


def test_several_files_make_one_program(tmp_path: Path, recorded: Any, emulator_lib: Path) -> None:
    (tmp_path / "more.cpp").write_text("int more() { return 3; }")
    path = write(tmp_path / "main.cpp", "extern int more(); if (more() != 3) return 1;" + NEG, "aclnnop/aclnn_neg.h")
    program = record([path, tmp_path / "more.cpp"])
    assert len(calls(program)) == 1
    assert program.files == (str(path), str(tmp_path / "more.cpp"))


def test_headers_beside_a_sample_are_read_too(tmp_path: Path, recorded: Any) -> None:
    (tmp_path / "mine.h").write_text(MINE.format("const aclTensor *x"))
    (tmp_path / "calls.h").write_text("#define CALL(t) RUN(aclnnMine, t)\n#define OTHER(t) RUN(aclnnInplaceNeg, t)\n")
    program = recorded(
        "void *x = upload<float>({1}); CALL(tensor(x, {1}, ACL_FLOAT)) OTHER(tensor(x, {1}, ACL_FLOAT))",
        "aclnnop/aclnn_mine.h",
        "calls.h",
        "mine.h",
    )
    assert [call.op for call in calls(program)] == ["aclnnMine", "aclnnInplaceNeg"]


SCRIPT = """
import numpy as np, aclnn_py
x, y, out = np.array([1, 2], np.float32), np.array([0.5, {value}], np.float32), np.empty(2, np.float32)
add = aclnn_py.op("aclnnAdd", backend="emulator")
add(self=x, other=y, alpha=1.0, out=out)
add(self=out, other=y, alpha=1.0, out=x)
"""


@pytest.mark.parametrize(("value", "same"), [("0.25", True), ("0.5", False)])
def test_the_record_of_a_script_against_that_of_its_sample(
    recorded: Any, tmp_path: Path, emulator_lib: Path, value: str, same: bool
) -> None:
    recorded(
        """
    void *x = upload<float>({1, 2}); void *y = upload<float>({0.5f, 0.25f}); void *out = room(8);
    float one = 1; aclScalar *scalar = aclCreateScalar(&one, ACL_FLOAT);
    aclTensor *a = tensor(x, {2}, ACL_FLOAT), *b = tensor(y, {2}, ACL_FLOAT), *c = tensor(out, {2}, ACL_FLOAT);
    RUN(aclnnAdd, a, b, scalar, c)
    RUN(aclnnAdd, c, b, scalar, a)
    """,
        "aclnnop/aclnn_add.h",
        log=tmp_path / "sample.jsonl",
    )
    (tmp_path / "script.py").write_text(SCRIPT.format(value=value))
    variables = {**os.environ, "ACLNN_EMULATOR_RECORD": str(tmp_path / "script.jsonl")}
    subprocess.run([sys.executable, str(tmp_path / "script.py")], env=variables, check=True, timeout=120)
    found = round_trip(tmp_path / "sample.jsonl", tmp_path / "script.jsonl")
    if same:
        assert found == []
    else:
        assert found[0] == "call 1 aclnnAdd, other: 1 of 2 values, the first at 1: 0.25, recorded 0.5"


# -- documentation pages


@pytest.mark.parametrize(
    "text",
    [
        "```cpp\naclnnStatus aclnnMineGetWorkspaceSize(\n  const aclTensor* x,  // in\n  double eps,\n"
        "  uint64_t* workspaceSize,\n  aclOpExecutor** executor)\n```",
        "- `aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x, double eps, uint64_t *workspaceSize, "
        "aclOpExecutor **executor)`",
        "aclnnStatus&nbsp;aclnnMineGetWorkspaceSize(const aclTensor \\*x, double eps, uint64\\_t \\*workspaceSize, "
        "aclOpExecutor \\*\\*executor)",
        "<code>aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x,<br>double eps, uint64_t *workspaceSize,"
        "<br>aclOpExecutor **executor)</code>",
        "aclnnMineGetWorkspaceSize(const aclTensor *x, double eps，uint64_t *workspaceSize, aclOpExecutor **executor）",
    ],
)
def test_prototypes_on_pages(text: str) -> None:
    page = f"# aclnnMine\nCall aclnnMineGetWorkspaceSize first.\n{text}\n```cpp\n"
    page += "auto ret = aclnnMineGetWorkspaceSize(x, 0.1, &workspaceSize, &executor);\n```\n"
    (found,) = prototypes(page)
    (signature,) = signatures.parse_prototypes(found)
    assert [str(p) for p in signature.parameters] == ["const aclTensor *x", "double eps"]


def test_prototypes_of_operator_definitions() -> None:
    """The rules of CANN's generator; 100 of the 109 generated headers of CANN 8.1 at hand follow from them."""
    code = """
    // class Gone : public OpDef { this->Input("no"); this->Output("no"); }
    class Mine : public OpDef { public: explicit Mine(const char *name) : OpDef(name) {
        this->Input("x_cache").ParamType(REQUIRED).DataType({ge::DT_FLOAT}); /* a comment; with a semicolon */
        this->Input("weights").ParamType(DYNAMIC);
        this->Input("bias").ParamType(OPTIONAL);
        this->Input("group_list").ParamType(OPTIONAL).DataType({ge::DT_INT64}).ValueDepend(OPTIONAL);
        this->Input("alpha").ParamType(REQUIRED).Scalar();
        this->Attr("top_k").AttrType(REQUIRED).Int();
        this->Attr("mode").AttrType(OPTIONAL).String("a;b");
        this->Attr("eps").AttrType(OPTIONAL).Float(1e-5);
        this->Attr("dims").AttrType(OPTIONAL).ListInt({1, 2});
        this->Output("x_cache").ParamType(REQUIRED);
        this->Output("row_idx").ParamType(REQUIRED);
        this->Output("scales").ParamType(OPTIONAL);
    } };
    class Other : public OpDef { explicit Other(const char *name) : OpDef(name) {
        this->Input("x").ParamType(DYNAMIC); this->Output("y").ParamType(DYNAMIC);
    } };
    class Strange : public OpDef { this->Input("x"); this->Attr("a").ListListInt({}); this->Output("y"); };
    """
    mine, other = (next(signatures.parse_prototypes(text)) for text in definitions(code))
    assert mine.name == "aclnnMine"
    assert [str(p) for p in mine.parameters] == [
        "aclTensor *xCacheRef", "const aclTensorList *weights", "const aclTensor *biasOptional",
        "const aclIntArray *groupListOptional", "const aclScalar *alpha", "int64_t topK", "char *modeOptional",
        "double eps", "const aclIntArray *dimsOptional", "const aclTensor *rowIdxOut",
        "const aclTensor *scalesOutOptional",
    ]  # fmt: skip
    assert [str(p) for p in other.parameters] == ["const aclTensorList *x", "const aclTensorList *out"]


def test_a_sample_gets_the_prototype_that_stands_nearest(tmp_path: Path) -> None:
    plain, own = MINE.format("const aclTensor *x"), MINE.format("const aclTensor *y")
    for place, text in {
        "repo/math/mine/docs/aclnnMine.md": f"```cpp\n{plain}\n```",
        "repo/math/mine/op_api/aclnn_mine.h": plain,
        "repo/experimental/math/mine/op_host/mine_def.cpp":
            'class Mine : public OpDef { this->Input("z"); this->Output("z"); };',
        "other/experimental/math/mine/docs/aclnnMine.md": own,
    }.items():  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    index = PrototypeIndex([tmp_path])
    for sample, name in {
        "repo/math/mine/examples/a.cpp": "x",
        "repo/math/else/examples/a.cpp": "x",
        "repo/experimental/math/mine/examples/a.cpp": "zRef",
        "other/experimental/math/mine/examples/a.cpp": "y",
    }.items():
        found = index.near(tmp_path / sample)("aclnnMine")
        assert found is not None
        assert found.parameters[0].name == name, sample
    assert index.near(tmp_path)("aclnnNeg") == signatures.find("aclnnNeg")
    assert index.near(tmp_path)("aclnnNoSuch") is None


# -- the memory that a record tells of


def spans(memory: Memory, address: int, count: int) -> list[bool]:
    return memory.filled(address, count, 1).tolist()


def test_memory_knows_which_bytes_are_filled() -> None:
    memory = Memory()
    memory.allocate(100, 8)
    memory.fill(101, 2)
    memory.fill(105, 1)
    assert spans(memory, 100, 8) == [False, True, True, False, False, True, False, False]
    memory.fill(103, 2)  # joins its neighbours
    assert memory.filled(100, 8, 2).tolist() == [False, True, True, False], "an element is filled when all of it is"
    memory.allocate(200, 8)
    memory.copy(200, 100, 8)
    assert spans(memory, 200, 8) == [False, True, True, True, True, True, False, False]
    memory.allocate(300, 2)
    memory.copy(202, 300, 2)
    assert spans(memory, 200, 8) == [False, True, False, False, True, True, False, False]
    memory.allocate(200, 4)  # the address is used anew
    assert spans(memory, 200, 8) == [False, False, False, False, True, True, False, False]


def test_memory_knows_what_operators_wrote_until_it_is_filled_again() -> None:
    memory, tensor_ = Memory(), Tensor("x", (2,), "float32")
    memory.allocate(100, 8)
    before = memory.version(100, 8)
    memory.place(100, 100, tensor_)
    memory.write(100, 4, known=True)
    memory.write(104, 4, known=False)
    assert spans(memory, 100, 8) == [True] * 4 + [False] * 4
    assert memory.written(102, 1)
    assert memory.passively_written(100, 8)
    assert not memory.passively_written(100, 4)
    assert memory.version(100, 8) == before, "a result is no change from outside"
    memory.fill(104, 4)
    assert not memory.passively_written(100, 8)
    assert memory.version(100, 8) > before
    assert memory.version(100, 4) == before
    assert memory.tensor_at(100) is tensor_
    memory.allocate(96, 8)
    assert memory.tensor_at(100) is None
