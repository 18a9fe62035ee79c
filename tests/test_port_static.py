"""The static engine: every construct that samples use, and that what is not understood stays unknown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn_py import signatures
from aclnn_py.port.model import (
    LAST_BIT,
    Array,
    Attribute,
    Call,
    Check,
    Data,
    Print,
    Program,
    SampleError,
    Scalar,
    Tensor,
    Unknown,
)

pytest.importorskip("tree_sitter", reason="tree-sitter is not installed (extra port)")
pytest.importorskip("tree_sitter_cpp", reason="tree-sitter-cpp is not installed (extra port)")

from aclnn_py.port.cpp.macros import prepare
from aclnn_py.port.static import trace

PRELUDE = r"""
#include <vector>
#include "acl/acl.h"
#define CHECK_RET(cond, expr) do { if (!(cond)) { expr; } } while (0)
#define LOG_PRINT(message, ...) do { printf(message, ##__VA_ARGS__); } while (0)
int64_t Count(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
}
template <typename T>
int Make(const std::vector<T>& host, const std::vector<int64_t>& shape, void** memory, aclDataType type,
         aclTensor** t) {
    auto size = Count(shape) * sizeof(T);
    auto ret = aclrtMalloc(memory, size, ACL_MEM_MALLOC_HUGE_FIRST);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclrtMalloc failed. %d\n", ret); return ret);
    ret = aclrtMemcpy(*memory, size, host.data(), size, ACL_MEMCPY_HOST_TO_DEVICE);
    CHECK_RET(ret == ACL_SUCCESS, return ret);
    std::vector<int64_t> strides(shape.size(), 1);
    for (int64_t i = shape.size() - 2; i >= 0; i--) strides[i] = shape[i + 1] * strides[i + 1];
    *t = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, shape.data(), shape.size(),
                         *memory);
    return 0;
}
"""
CALL = """
    uint64_t size = 0; aclOpExecutor* ex; void* work = nullptr;
    auto status = aclnnAbsGetWorkspaceSize(x, out, &size, &ex);
    CHECK_RET(status == ACL_SUCCESS, return status);
    if (size > 0) { aclrtMalloc(&work, size, ACL_MEM_MALLOC_HUGE_FIRST); }
    aclnnAbs(work, size, ex, stream);
"""


def run(body: str, before: str = "", signature: Any = signatures.find) -> Program:
    """Trace a program whose main has that body."""
    text = f"{PRELUDE}{before}\nint main() {{ aclrtStream stream; aclrtCreateStream(&stream);\n{body}\nreturn 0; }}\n"
    return trace([("s.cpp", text)], signature=signature)


def on(host: str, type_: str = "ACL_FLOAT", shape: str = "{4}", before: str = "", after: str = "") -> Program:
    """Trace aclnnAbs of one tensor, whose host vector ``h`` is made by the given statements."""
    body = f"""
    std::vector<int64_t> shape = {shape}; void* xm = nullptr; void* om = nullptr;
    aclTensor* x = nullptr; aclTensor* out = nullptr;
    {host}
    Make(h, shape, &xm, {type_}, &x);
    std::vector<float> zeros(Count(shape), 0);
    Make(zeros, shape, &om, ACL_FLOAT, &out);
    {CALL}
    {after}"""
    return run(body, before)


def calls(program: Program) -> list[Call]:
    return [s for s in program.steps if isinstance(s, Call)]


def data(program: Program, name: str = "self") -> Data:
    tensor = calls(program)[0].arguments[name]
    assert isinstance(tensor, Tensor)
    assert isinstance(tensor.data, Data), tensor.data
    return tensor.data


def missing(program: Program, name: str = "self") -> Unknown:
    tensor = calls(program)[0].arguments[name]
    assert isinstance(tensor, Tensor)
    assert isinstance(tensor.data, Unknown), tensor.data
    return tensor.data


def test_literals_keep_their_text() -> None:
    found = data(on("std::vector<float> h = {0.1, -2.f, 3, 1e-3};"))
    assert found.text == "[0.1, -2.0, 3, 1e-3]"
    assert found.values.dtype == np.float32
    assert found.values[0] == np.float32(0.1)


@pytest.mark.parametrize(
    ("host", "values"),
    [
        ("std::vector<float> h(4, 1.5f);", [1.5] * 4),
        ("std::vector<float> h(4);", [0] * 4),
        ("std::vector<float> h; for (int i = 0; i < 4; ++i) h.push_back(i * 0.5f);", [0, 0.5, 1, 1.5]),
        ("std::vector<float> h(4); std::fill(h.begin(), h.end(), 2.0f);", [2] * 4),
        ("std::vector<float> h(4); std::iota(h.begin(), h.end(), 3);", [3, 4, 5, 6]),
        ("float a[4] = {1, 2}; std::vector<float> h(a, a + 4);", [1, 2, 0, 0]),
        ("std::vector<float> h(4); for (auto& v : h) { v = 7 % 4; }", [3] * 4),
        (
            "std::vector<float> h(4); float* p = h.data(); for (int i = 0; i < 4; i++) *(p + i) = 10 / (i + 1);",
            [10, 5, 3, 2],
        ),
        ("std::vector<float> h(4); int i = 0; while (true) { if (i == 4) break; h[i] = -i; i++; }", [0, -1, -2, -3]),
        (
            "std::vector<float> h(4, 1); uint32_t bits = 0x40490fdb; memcpy(&h[2], &bits, 4);",
            [1, 1, np.float32(np.pi), 1],
        ),
        ("std::vector<float> h = {1, 2, 3, 4}; auto f = [&](int k) { h[k] = 9; }; f(1);", [1, 9, 3, 4]),
        ("std::vector<float> h = {1, 2, 3, 4}; auto f = [&h](int k) { h[k] = 9; }; f(1);", [1, 9, 3, 4]),
        (
            "std::vector<float> h = {1, 2, 3, 4}; float k = 5; auto f = [k]() { return k; }; k = 6; h[0] = f();",
            [5, 2, 3, 4],
        ),
        ("std::vector<float> h(0); for (int i = 0; i < 4; i++) { h.push_back(i + 1); }", [1, 2, 3, 4]),
        (
            "std::vector<float> h(4);"
            "switch (h.size()) { case 3: h[0] = 1; break; case 4: h[1] = 2; default: h[2] = 3; }",
            [0, 2, 3, 0],
        ),
    ],
)
def test_host_data(host: str, values: list[float]) -> None:
    assert data(on(host)).values.tolist() == values


def test_unsigned_arithmetic_wraps_as_in_c() -> None:
    host = "std::vector<int32_t> h = {static_cast<int32_t>(0u - 1), (int8_t)200, 7 / -2, -7 % 3};"
    assert data(on(host, "ACL_INT32")).values.tolist() == [-1, -56, -3, -1]


def test_long_loops_are_done_at_once() -> None:
    host = "std::vector<float> h(1000000); for (size_t i = 0; i < h.size(); ++i) { h[i] = (i % 7) * 0.5f; }"
    values = data(on(host, shape="{1000, 1000}")).values
    assert values.shape == (1_000_000,)
    np.testing.assert_array_equal(values, (np.arange(1_000_000) % 7 * np.float32(0.5)).astype(np.float32))


def test_a_converter_is_run_in_a_long_loop() -> None:
    before = """
    uint16_t ToHalf(float v) { uint32_t b; memcpy(&b, &v, 4); if (b == 0) return 0;
        return ((b >> 16) & 0x8000) | ((((b >> 23) & 0xff) - 112) << 10) | ((b >> 13) & 0x3ff); }"""
    host = "std::vector<uint16_t> h(50000); for (int i = 0; i < 50000; i++) { h[i] = ToHalf((i % 3) * 0.5f); }"
    values = data(on(host, "ACL_FLOAT16", "{50000}", before)).values
    assert values.dtype == np.float16
    assert values[:4].tolist() == [0, 0.5, 1, 0]


def test_bytes_are_packed_in_a_long_loop() -> None:
    host = """std::vector<uint8_t> h(400000); std::vector<float> some = {1, 2, 3}; bool half = false;
    for (int64_t i = 0; i < 100000; i++) { float v = some[i % some.size()] * 0.5f;
        if (half) { h[i] = 1; } else { memcpy(h.data() + i * 4, &v, 4); } }"""
    body = f"""{host} std::vector<int64_t> shape = {{100000}}; void* m;
    aclrtMalloc(&m, 400000, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy(m, 400000, h.data(), 400000, ACL_MEMCPY_HOST_TO_DEVICE); uint64_t s; aclOpExecutor* e;
    aclTensor* x = aclCreateTensor(shape.data(), 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), 1, m);
    aclnnAbsGetWorkspaceSize(x, x, &s, &e); aclnnAbs(nullptr, s, e, stream);"""
    program = run(body)
    assert data(program).values.tolist() == [(i % 3 + 1) * 0.5 for i in range(100_000)]
    assert program.notes == []


def test_functions_compute_in_the_type_that_the_language_chooses() -> None:
    """sqrt(float) is the C function of double, std::sqrt the one of float; both alike in long loops."""
    one = np.float32(1)
    single, double = one / np.sqrt(np.float32(6)), np.float32(1 / np.sqrt(6.0))
    assert single != double
    assert data(on("std::vector<float> h(4, 1.0f / std::sqrt(6.0f));")).values[0] == single
    assert data(on("std::vector<float> h(4, 1.0f / sqrt(6.0f));")).values[0] == double
    assert data(on("std::vector<float> h(4, 1.0f / sqrtf(6.0));")).values[0] == single
    assert data(on("using namespace std; vector<float> h(4, 1.0f / sqrt(6.0f));")).values[0] == single
    loop = "std::vector<double> h(300); for (int i = 0; i < 300; i++) h[i] = exp(i * 0.01);"
    assert data(on(loop, "ACL_DOUBLE", "{300}")).values.tolist() == [math.exp(i * 0.01) for i in range(300)]


def test_a_last_bit_that_is_the_librarys_is_noted() -> None:
    program = on("std::vector<float> h(300); for (int i = 0; i < 300; i++) h[i] = std::sin(i * 0.01f);", shape="{300}")
    angles = (np.arange(300, dtype=np.float32) * np.float32(0.01)).astype(np.float64)
    assert (data(program).values == np.sin(angles).astype(np.float32)).all()
    assert any(LAST_BIT in note.text for note in program.notes)
    exact = on("std::vector<float> h(4, std::pow(2.0f, 5.0f) + std::sqrt(2.0f));")
    assert not any(LAST_BIT in note.text for note in exact.notes)


def test_bit_patterns_are_decoded() -> None:
    found = data(on("std::vector<uint16_t> h = {0x3C00, 0xC000, 0, 0x7BFF};", "ACL_FLOAT16"))
    assert found.values.tolist() == [1, -2, 0, 65504]
    assert "0x3C00" in found.note
    assert data(on("std::vector<int16_t> h = {0x3f80, 0x4000, 0, 0x4040};", "ACL_BF16")).values.tolist() == [1, 2, 0, 3]


# what is not known stays unknown


@pytest.mark.parametrize(
    "host",
    [
        "std::vector<float> h(4); for (auto& v : h) v = rand() % 10;",
        "std::vector<float> h(4); std::mt19937 g(1); std::normal_distribution<float> d; for (auto& v : h) v = d(g);",
        'std::vector<float> h(4); std::ifstream in("x.bin"); in.read((char*)h.data(), 16);',
        "std::vector<float> h(4); FillIt(h.data(), 4);",
        "std::vector<float> h(4); FillIt(h);",
        "std::vector<float> h(4); float k = 1; Find(k); h[0] = k;",
        'std::vector<float> h(4); std::ifstream in("x.txt"); in >> h[0];',
        "std::vector<float> h = {{{1, 2, 3, 4}}};",
        "float a[4]; std::vector<float> h(a, a + 4);",
        "std::vector<float> h(4); float z; h[1] = z;",
        "struct S { int a; void* p; } s; std::vector<float> h(4); memcpy(h.data(), &s, sizeof(float) * 4);",
        "std::vector<float> h(4); if (rand() > 3) { h[0] = 1; } else { h[0] = 2; }",
        "std::vector<float> h(4, 1); h[2] += unknown_function(3);",
        "std::vector<float> h(4, 1); float v = 2; if (rand()) { memcpy(h.data() + 1, &v, 4); }",
        "std::vector<float> h(4, 1); auto put = [&h](float v) { h[0] = v; }; if (rand()) { put(3); }",
        "std::vector<float> h(4, 1); if (rand()) { h.push_back(1); }",
    ],
)
def test_unknown_data(host: str) -> None:
    found = missing(on(host))
    assert found.reason
    assert found.lines[0] > 0


def test_a_list_is_inserted() -> None:
    host = "std::vector<float> h; for (int i = 0; i < 2; i++) h.insert(h.end(), {1.5f, 2.5f});"
    assert data(on(host)).values.tolist() == [1.5, 2.5, 1.5, 2.5]


def test_specialisations_are_not_mistaken_for_each_other() -> None:
    before = """template <typename T> float Of() { return 1; }
    template <> float Of<double>() { return 2; }
    template <typename T> struct Traits { using U = float; };
    template <> struct Traits<double> { using U = int16_t; };"""
    assert "specialisation" in missing(on("std::vector<float> h(4, Of<double>());", before=before)).reason
    missing(on("std::vector<float> h(4, sizeof(Traits<float>::U));", before=before))


def test_an_unknown_attribute() -> None:
    program = run("aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e; int64_t k = rand();\n"
                  "aclnnTopkGetWorkspaceSize(x, k, 0, true, true, x, x, &s, &e);\n"
                  "aclnnTopk(nullptr, s, e, stream);")  # fmt: skip
    arguments = calls(program)[0].arguments
    assert isinstance(arguments["k"], Unknown)
    assert arguments["self"] is None


def test_a_call_under_an_unknown_condition() -> None:
    program = run("aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e;\n"
                  "if (rand() % 2) { aclnnAbsGetWorkspaceSize(x, x, &s, &e); }")  # fmt: skip
    assert [type(s) for s in program.steps] == [Unknown]


# faults of samples


def test_short_host_data_are_noted() -> None:
    program = on("std::vector<float> h = {5};")
    found = data(program)
    assert found.defined is not None
    assert found.defined.tolist() == [True, False, False, False]
    assert any("16 bytes are copied from 'h'" in n.text for n in program.notes)


def test_vectors_copied_in_place_of_their_elements() -> None:
    program = on("std::vector<std::vector<int8_t>> h = {{{1, 2}}, {{3, 4}}};", "ACL_INT8")
    defined = data(program).defined
    assert defined is not None
    assert not defined.any()
    assert any("what the device gets are pointers" in note.text for note in program.notes)


def test_wrong_element_type_is_noted() -> None:
    program = on("std::vector<float> h = {1, 2, 3, 4};", "ACL_FLOAT16")
    assert data(program).values.tolist() == np.array([1, 2], np.float32).view(np.float16).tolist()
    assert any("the operator sees the raw bytes" in n.text for n in program.notes)


def test_many_equal_values_of_the_wrong_type() -> None:
    found = data(on("std::vector<float> h(2000000, 1.0f);", "ACL_FLOAT16", "{2000000}")).values
    assert found[:4].tolist() == [0, 1.875, 0, 1.875]
    assert found.shape == (2_000_000,)
    assert data(on("std::vector<uint16_t> h(2000000, 0x3C00);", "ACL_FLOAT16", "{2000000}")).values[-1] == 1


def test_a_read_back_longer_than_the_tensor_is_noted() -> None:
    after = "std::vector<double> r(4); aclrtMemcpy(r.data(), 32, om, 32, ACL_MEMCPY_DEVICE_TO_HOST);"
    assert any("32 bytes are read back" in n.text for n in on("std::vector<float> h(4);", after=after).notes)


def test_more_data_than_memory() -> None:
    program = on("std::vector<float> h(Count(shape));", shape="{100000, 100000}")
    assert any("memory of most machines" in n.text for n in program.notes)
    assert missing(program)


# arguments


def test_scalars_arrays_and_attributes() -> None:
    program = run("""
    float alpha = 1.2f; aclScalar* a = aclCreateScalar(&alpha, ACL_FLOAT);
    std::vector<int64_t> d = {0, -1}; aclIntArray* dims = aclCreateIntArray(d.data(), d.size());
    aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e;
    aclnnAddGetWorkspaceSize(x, x, a, x, &s, &e); aclnnAdd(nullptr, s, e, stream);
    aclnnReduceSumGetWorkspaceSize(x, dims, true, ACL_BF16, x, &s, &e); aclnnReduceSum(nullptr, s, e, stream);""")
    add, reduce_sum = calls(program)
    scalar = add.arguments["alpha"]
    assert isinstance(scalar, Scalar)
    assert (scalar.text, scalar.dtype) == ("1.2", "float32")
    values = list(reduce_sum.arguments.values())
    assert isinstance(values[1], Array)
    assert values[1].values == (0, -1)
    assert [v.text for v in values[2:4] if isinstance(v, Attribute)] == ["True", "bfloat16"]


def test_strings_and_an_operator_without_signature() -> None:
    before = 'const std::string kMode = "none";'
    program = run(
        """
    char mode[] = {'T', 'N', 'D', 0}; aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e; double scale = 0.5;
    aclnnMineGetWorkspaceSize(x, mode, kMode.c_str(), scale, &s, &e); aclnnMine(nullptr, s, e, stream);""",
        before,
    )
    call = calls(program)[0]
    assert {k: v.value for k, v in call.arguments.items() if isinstance(v, Attribute)} == {
        "mode": "TND", "kMode": "none", "scale": 0.5,
    }  # fmt: skip
    assert call.declaration is not None
    assert "const aclTensor *x, const char *mode, const char *kMode, double scale," in call.declaration


def test_views_storage_and_format() -> None:
    program = run("""
    int64_t view[] = {3, 2}; int64_t strides[] = {1, 4}; int64_t storage[] = {2, 4};
    void* m; aclrtMalloc(&m, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclTensor* x = aclCreateTensor(view, 2, ACL_FLOAT, strides, 1, ACL_FORMAT_FRACTAL_NZ, storage, 2, m);
    aclTensor* y = aclCreateTensor(nullptr, 0, ACL_INT32, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
    uint64_t s; aclOpExecutor* e; aclnnAbsGetWorkspaceSize(x, y, &s, &e); aclnnAbs(nullptr, s, e, stream);""")
    x, y = calls(program)[0].arguments.values()
    assert isinstance(x, Tensor)
    assert isinstance(y, Tensor)
    assert (x.shape, x.strides, x.offset, x.storage_shape, x.format) == ((3, 2), (1, 4), 1, (2, 4), "FRACTAL_NZ")
    assert x.data is None
    assert (y.shape, y.strides) == ((), None)


def test_smart_pointers_structs_and_out_parameters() -> None:
    program = run(
        """
    Case c{{2, 2}, ACL_FLOAT}; TensorPtr x(nullptr, &aclDestroyTensor); DeviceMemPtr m(nullptr, &aclrtFree);
    std::vector<float> h = {1, 2, 3, 4}; Wrap(h, c, m, x);
    uint64_t s; aclOpExecutor* e;
    aclnnAbsGetWorkspaceSize(x.get(), x.get(), &s, &e); aclnnAbs(nullptr, s, e, stream);""",
        """
    using DeviceMemPtr = std::unique_ptr<void, decltype(&aclrtFree)>;
    using TensorPtr = std::unique_ptr<aclTensor, decltype(&aclDestroyTensor)>;
    struct Case { std::vector<int64_t> shape; aclDataType type = ACL_INT8; };
    void Wrap(const std::vector<float>& h, const Case& c, DeviceMemPtr& m, TensorPtr& x) {
        void* raw = nullptr; aclTensor* t = nullptr; Make(h, c.shape, &raw, c.type, &t); m.reset(raw); x.reset(t); }""",
    )
    assert data(program).values.tolist() == [1, 2, 3, 4]
    x, y = calls(program)[0].arguments.values()
    assert x is y


# order, frames, results


def test_loops_and_functions_are_frames() -> None:
    program = run(
        "for (int64_t mode = 0; mode < 3; mode++) { One(stream, mode); }",
        """
    int One(aclrtStream stream, int64_t mode) { aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e;
        aclnnAbsGetWorkspaceSize(x, x, &s, &e); return aclnnAbs(nullptr, s, e, stream); }""",
    )
    frames = [c.frames for c in calls(program)]
    assert [[(f.kind, f.name, f.index) for f in fs] for fs in frames] == [
        [("loop", "mode", i), ("function", "One", 0)] for i in range(3)
    ]
    assert [fs[0].values for fs in frames] == [(("mode", str(i)),) for i in range(3)]


def test_results_printed_by_a_helper() -> None:
    before = """
    void Show(std::vector<int64_t>& shape, void** memory) { std::vector<float> r(Count(shape), 0);
        aclrtMemcpy(r.data(), r.size() * sizeof(r[0]), *memory, r.size() * sizeof(r[0]), ACL_MEMCPY_DEVICE_TO_HOST);
        for (int64_t i = 0; i < 3; i++) { LOG_PRINT("out[%ld] is: %f\\n", i, r[i]); } }"""
    program = on("std::vector<float> h(4, 1);", before=before, after="Show(shape, &om);")
    printed = program.steps[-1]
    assert isinstance(printed, Print)
    assert (printed.tensor.name, printed.label, printed.count, printed.frames) == ("out", "out", 3, ())


def test_a_read_back_that_is_not_shown_is_printed() -> None:
    after = "std::vector<float> r(4); aclrtMemcpy(r.data(), 16, om, 16, ACL_MEMCPY_DEVICE_TO_HOST);"
    assert isinstance(on("std::vector<float> h(4, 1);", after=after).steps[-1], Print)


@pytest.mark.parametrize(
    ("check", "atol"),
    [
        (
            "for (int i = 0; i < 4; i++) { if (std::fabs(r[i] - g[i]) > 1e-3f) { ok = false; } }",
            float(np.float32(1e-3)),
        ),
        ("for (int i = 0; i < 4; i++) { if (r[i] != g[i]) return 1; }", 0.0),
        ("ok = memcmp(r.data(), g.data(), 16) == 0;", 0.0),
        ("ok = r == g;", 0.0),
    ],
)
def test_goldens_become_checks(check: str, atol: float) -> None:
    after = f"""std::vector<float> r(4), g = {{1, 2, 3, 4}}; bool ok = true;
    aclrtMemcpy(r.data(), 16, om, 16, ACL_MEMCPY_DEVICE_TO_HOST); {check} if (!ok) {{ return 1; }}"""
    found = on("std::vector<float> h = {-1, 2, -3, 4};", after=after).steps[-1]
    assert isinstance(found, Check)
    assert isinstance(found.expected, Data)
    assert found.expected.values.tolist() == [1, 2, 3, 4]
    assert found.atol == atol


@pytest.mark.parametrize(("repeatable", "launches"), [("aclSetAclOpExecutorRepeatable(e);", 3), ("", 1)])
def test_an_executor_is_launched_again(repeatable: str, launches: int) -> None:
    program = run(f"""aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e; aclnnAbsGetWorkspaceSize(x, x, &s, &e);
    {repeatable} for (int i = 0; i < 3; i++) aclnnAbs(nullptr, s, e, stream);""")
    assert len(calls(program)) == launches
    assert any("not repeatable" in note.text for note in program.notes) == (launches == 1)


def test_the_number_of_cases_in_a_table() -> None:
    cases = """struct Case { const char* name; int64_t n; float x; };
    static const Case cases[] = {{"a", 1, 2.0f}, {"b", 3, 4.0f}, {"c", 5, 6.0f}};"""
    host = "std::vector<float> h(sizeof(cases) / sizeof(cases[0]), 1); h.push_back(sizeof cases / sizeof *cases);"
    program = on(host, before=cases)
    assert data(program).values.tolist() == [1, 1, 1, 3]


def test_new_host_data_make_a_new_tensor() -> None:
    again = """h[0] = 8; aclrtMemcpy(xm, 16, h.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE);
    aclnnAbsGetWorkspaceSize(x, out, &size, &ex); aclnnAbs(work, size, ex, stream);"""
    first, second = calls(on("std::vector<float> h(4, 1);", after=again))
    assert first.arguments["self"] is not second.arguments["self"]
    assert data(Program((), [second])).values.tolist() == [8, 1, 1, 1]
    assert first.arguments["out"] is second.arguments["out"]


# refusals and invalid C++


def test_headers_with_guards_are_read() -> None:
    header = "#ifndef UTIL_H\n#define UTIL_H\ninline int64_t Dim() { return 3; }\n#endif\n"
    body = "aclTensor* x = nullptr; uint64_t s; aclOpExecutor* e;"
    body += "aclnnArgMaxGetWorkspaceSize(x, Dim(), false, x, &s, &e); aclnnArgMax(nullptr, s, e, nullptr);"
    program = trace([("util.h", header), ("s.cpp", f"int main() {{ {body} }}")], signature=lambda op: None)
    assert [v.value for v in calls(program)[0].arguments.values() if isinstance(v, Attribute)] == [3, False]


def test_hccl_is_refused() -> None:
    program = run('HcclComm comm; HcclGetCommName(comm, nullptr);')  # fmt: skip
    assert program.refused is not None
    assert "HCCL" in program.refused


def test_invalid_programs_say_where() -> None:
    with pytest.raises(SampleError) as found:
        trace([("bad.cpp", "int main() {\n  aclTensor* t = aclCreateTensor(1, 2);\n}\n")], signature=signatures.find)
    assert (found.value.file, found.value.line) == ("bad.cpp", 2)
    with pytest.raises(SampleError, match="no main"):
        trace([("none.cpp", "int f() { return 0; }")], signature=signatures.find)


def test_macros_keep_positions() -> None:
    text = '#define CHECK(c, r) if (!(c)) { r; }\nint f() { CHECK(g(1, 2) == 0, LOG("a,)"); return 1); }\n'
    prepared = prepare(text)
    assert len(prepared.text) == len(text)
    assert "CHECK(g(1, 2) == 0" in prepared.text
    assert "return 1" not in prepared.text
    assert list(prepared.blanked.values()) == [' LOG("a,)"); return 1']


@pytest.mark.parametrize(
    "read",
    [
        "std::ifstream in(PATH); if (in) in.read((char*)h.data(), 16);",
        'FILE* in = fopen(PATH, "rb"); if (in != nullptr) fread(h.data(), 4, 4, in);',
    ],
)
def test_a_file_that_is_not_shipped_is_said_and_one_that_is_there_is_not_guessed(read: str, tmp_path: Path) -> None:
    host = "std::vector<float> h(4, 7.f); " + read.replace("PATH", f'"{tmp_path / "x.bin"}"')
    found = on(host)
    assert data(found).values.tolist() == [7, 7, 7, 7]
    assert any("x.bin' does not lie beside the sample" in note.text for note in found.notes)
    (tmp_path / "x.bin").write_bytes(bytes(16))
    (call,) = (step for step in on(host).steps if isinstance(step, Call))
    tensor = call.arguments["self"]
    assert isinstance(tensor, Tensor)
    assert isinstance(tensor.data, Unknown)
