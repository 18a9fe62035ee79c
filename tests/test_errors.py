import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor

import pytest

from aclnn_py import _status, errors
from aclnn_py.errors import AclnnError, check, status_name

# The tree: class -> (base of this package, built-in base or None).
TREE = {
    "ParameterError": ("AclnnError", ValueError),
    "NullptrError": ("ParameterError", ValueError),
    "InvalidParameterError": ("ParameterError", ValueError),
    "IndexOutOfRangeError": ("ParameterError", IndexError),
    "InternalError": ("AclnnError", None),
    "InferShapeError": ("InternalError", None),
    "RefusedArgumentError": ("InternalError", ValueError),
    "TilingError": ("RefusedArgumentError", ValueError),
    "InnerNullptrError": ("RefusedArgumentError", ValueError),
    "KernelNotFoundError": ("InternalError", LookupError),
    "RuntimeCallError": ("AclnnError", None),
    "ContextError": ("RuntimeCallError", None),
    "DeviceTimeoutError": ("RuntimeCallError", TimeoutError),
    "DeviceFaultError": ("RuntimeCallError", None),
    "DeviceMemoryError": ("RuntimeCallError", MemoryError),
    "UnsupportedError": ("RuntimeCallError", NotImplementedError),
    "StubLibraryError": ("RuntimeCallError", None),
    "LibraryNotFoundError": ("AclnnError", ImportError),
    "SymbolNotFoundError": ("AclnnError", AttributeError),
}

CODES = {
    161001: "NullptrError",
    161002: "InvalidParameterError",
    161999: "ParameterError",
    361001: "RuntimeCallError",
    561000: "InternalError",
    561001: "InferShapeError",
    561002: "TilingError",
    561003: "KernelNotFoundError",
    561101: "InternalError",
    561103: "InnerNullptrError",
    561107: "KernelNotFoundError",
    561108: "KernelNotFoundError",
    561109: "InternalError",
    561112: "KernelNotFoundError",
    561201: "InternalError",
    561777: "InternalError",
    100000: "RuntimeCallError",
    100002: "RuntimeCallError",
    100039: "StubLibraryError",
    107000: "RuntimeCallError",
    107001: "RuntimeCallError",
    107002: "ContextError",
    107003: "ContextError",
    107019: "DeviceTimeoutError",
    107020: "DeviceTimeoutError",
    107888: "RuntimeCallError",
    200000: "DeviceMemoryError",
    200001: "UnsupportedError",
    200006: "UnsupportedError",
    207000: "UnsupportedError",
    207001: "DeviceMemoryError",
    207018: "DeviceMemoryError",
    207019: "RuntimeCallError",
    207020: "DeviceTimeoutError",
    507011: "DeviceFaultError",
    507035: "DeviceFaultError",
    507045: "DeviceFaultError",
    507046: "DeviceTimeoutError",
    507047: "DeviceTimeoutError",
    507048: "DeviceFaultError",
    507899: "DeviceFaultError",
    507999: "DeviceFaultError",
    500000: "RuntimeCallError",
    508000: "RuntimeCallError",
    1: "RuntimeCallError",
    -1: "RuntimeCallError",
}


@pytest.fixture
def set_reader():
    """Register a reader for one test, and put back the one that was there."""
    before = errors._message_reader
    yield errors.set_message_reader
    errors.set_message_reader(before)


@pytest.fixture
def reader(set_reader):
    """Register a reader that hands out each text of this list once, as CANN does."""
    texts = []
    set_reader(lambda: texts.pop(0) if texts else "")
    return texts


def raised(code, api="aclnnAdd", stage="", **kwargs):
    with pytest.raises(AclnnError) as caught:
        check(code, api, stage, **kwargs)
    return caught.value


def example(name):
    """One filled-in error of each class."""
    extra = {
        "LibraryNotFoundError": {"tried": [("/opt/a", "no such file"), ("/opt/b", "not an ELF file")]},
        "SymbolNotFoundError": {"symbol": "aclnnX", "libraries": ["/opt/libopapi.so"]},
    }.get(name, {})
    return getattr(errors, name)(207001, "aclnnAdd", "run", "EZ9999: text", "free something", **extra)


def fields(error):
    names = ("code", "name", "api", "stage", "detail", "hint", "tried", "symbol", "libraries")
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def fields_in_child(pickled):
    error = pickle.loads(pickled)
    return type(error).__name__, str(error), fields(error), pickle.dumps(error)


# ---------------------------------------------------------------- the tables


def test_the_table_has_every_pair_of_the_headers_once():
    acl = [pair for pair in _status.PAIRS if pair[1].startswith("ACL_")]
    aclnn = [pair for pair in _status.PAIRS if pair[1].startswith("ACLNN_ERR_")]
    assert len(acl) == 255
    assert len(aclnn) == 28
    assert len(acl) + len(aclnn) == len(_status.PAIRS) == len(set(_status.PAIRS))
    by_thousands = {}
    for code, _ in acl:
        by_thousands[code // 1000] = by_thousands.get(code // 1000, 0) + 1
    assert by_thousands == {
        0: 2, 100: 46, 107: 48, 145: 20, 148: 8, 200: 8, 207: 22, 245: 3, 300: 1, 345: 3, 500: 6, 507: 76,
        545: 12,
    }  # fmt: skip


def test_only_documented_numbers_have_two_names_and_only_one_name_two_numbers():
    double = {code: names for code, names in _status.NAMES.items() if len(names) > 1}
    assert sorted(double) == [0, 107045, 561105]
    numbers = {}
    for code, name in _status.PAIRS:
        numbers.setdefault(name, []).append(code)
    moved = {name: codes for name, codes in numbers.items() if len(codes) > 1}
    assert moved == {"ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING": [107045, 107046]}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (100000, "ACL_ERROR_INVALID_PARAM"),
        (100002, "ACL_ERROR_REPEAT_INITIALIZE"),
        (100039, "ACL_ERROR_COMPILING_STUB_MODE"),
        (107002, "ACL_ERROR_RT_CONTEXT_NULL"),
        (107032, "ACL_ERROR_STREAM_CAPTURE_CONFLICT"),
        (145022, "ACL_ERROR_GE_DATATYPE_INVALID"),
        (207018, "ACL_ERROR_RT_DEVICE_OOM"),
        (507035, "ACL_ERROR_RT_VECTOR_CORE_EXCEPTION"),
        (545602, "ACL_ERROR_GE_REDEPLOYING"),
        (161001, "ACLNN_ERR_PARAM_NULLPTR"),
        (161002, "ACLNN_ERR_PARAM_INVALID"),
        (361001, "ACLNN_ERR_RUNTIME_ERROR"),
        (561000, "ACLNN_ERR_INNER"),
        (561001, "ACLNN_ERR_INNER_INFERSHAPE_ERROR"),
        (561002, "ACLNN_ERR_INNER_TILING_ERROR"),
        (561003, "ACLNN_ERR_INNER_FIND_KERNEL_ERROR"),
        (561103, "ACLNN_ERR_INNER_NULLPTR"),
        (561112, "ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND"),
        (561119, "ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID"),
    ],
)
def test_status_name_is_the_vendor_macro(code, name):
    assert status_name(code) == name


def test_status_name_of_two_names_and_of_none():
    assert status_name(107045) == ("ACL_ERROR_RT_STREAM_NOT_SUPPORT_OPERA / ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING")
    assert status_name(561105) == "ACLNN_ERR_INNER_KEY_CONFILICT / ACLNN_ERR_INNER_KEY_CONFLICT"
    assert status_name(0) == "ACL_SUCCESS / ACL_ERROR_NONE"
    assert status_name(987654) == "unknown (987654)"
    assert status_name(-3) == "unknown (-3)"


def test_meanings_and_hints_belong_to_listed_codes():
    assert set(_status.MEANINGS) <= set(_status.NAMES)
    assert set(_status.HINTS) <= set(_status.MEANINGS), "a code with advice also needs a meaning"


# ---------------------------------------------------------------- classes


def test_the_module_has_exactly_the_classes_of_the_tree():
    found = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, AclnnError)}
    assert found == {*TREE, "AclnnError"}
    assert AclnnError.__bases__ == (RuntimeError,)


@pytest.mark.parametrize("name", TREE)
def test_class_relations(name):
    base, builtin = TREE[name]
    cls = getattr(errors, name)
    assert cls.__bases__[0] is getattr(errors, base)
    families = (ValueError, IndexError, LookupError, OSError, MemoryError, NotImplementedError, ImportError,
                AttributeError)  # fmt: skip
    expected = {family for family in families if builtin and issubclass(builtin, family)}
    if issubclass(cls, errors.ParameterError):
        expected.add(ValueError)
    assert {family for family in families if issubclass(cls, family)} == expected
    assert builtin is None or issubclass(cls, builtin)


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_code_to_class(code, name):
    error = raised(code, "aclrtX", "run", detail="text")
    assert type(error).__name__ == name
    assert (error.code, error.name, error.api, error.stage) == (code, status_name(code), "aclrtX", "run")


def test_every_listed_code_raises_and_names_itself():
    for code, name in _status.PAIRS:
        if code:
            message = str(raised(code, "aclrtX", detail=""))
            assert str(code) in message
            assert name in message


def test_zero_is_no_error_and_reads_no_message(reader):
    reader.append("stale")
    assert check(0, "aclInit") is None
    assert reader == ["stale"]


@pytest.mark.parametrize("name", [*TREE, "AclnnError"])
def test_every_class_can_be_built_copied_and_pickled(name):
    error = example(name)
    error.add_note("a note") if hasattr(error, "add_note") else None
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert fields(other) == fields(error)
        assert getattr(other, "__notes__", None) == getattr(error, "__notes__", None)
    assert error.args == (str(error),)
    assert type(error).__name__ in repr(error)
    assert "EZ9999: text" in "".join(traceback.format_exception(type(error), error, None))


def test_errors_cross_a_spawned_process():
    made = [example(name) for name in [*TREE, "AclnnError"]]
    # unlike a Pool, this executor does not wait for ever where the child cannot import or unpickle
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(fields_in_child, [pickle.dumps(error) for error in made], timeout=60))
    for error, (name, message, values, back) in zip(made, results, strict=True):
        assert (name, message, values) == (type(error).__name__, str(error), fields(error))
        assert fields(pickle.loads(back)) == fields(error)


def test_library_not_found_lists_what_was_tried_before_the_hint():
    error = errors.LibraryNotFoundError(
        detail="no libascendcl.so", hint="source set_env.sh", tried=[("/opt/a", "no such file")]
    )
    assert error.tried == [("/opt/a", "no such file")]
    assert error.code is None
    assert error.name == ""
    assert str(error) == "no libascendcl.so\n  tried /opt/a: no such file\nhint: source set_env.sh"


def test_symbol_not_found_names_the_symbol_and_the_libraries():
    error = errors.SymbolNotFoundError(symbol="aclnnX", libraries=["/opt/libopapi.so", "/opt/libx.so"])
    assert str(error) == "aclnnX is in none of: /opt/libopapi.so, /opt/libx.so"
    assert (error.symbol, error.libraries) == ("aclnnX", ["/opt/libopapi.so", "/opt/libx.so"])
    assert "no library is open" in str(errors.SymbolNotFoundError(symbol="aclnnX"))
    # as an AttributeError it serves getattr's default
    holder = type("Holder", (), {"__getattr__": lambda self, name: (_ for _ in ()).throw(error)})()
    assert getattr(holder, "missing", 5) == 5


def test_an_error_without_code_says_what_failed():
    error = AclnnError(None, "aclnnAdd", "run", "the executor was already run", "make a new one")
    assert str(error).splitlines() == [
        "aclnnAdd (run) failed",
        "the executor was already run",
        "hint: make a new one",
    ]
    assert str(AclnnError(None)) == "AclnnError"


# ---------------------------------------------------------------- messages


def test_the_first_line_names_operator_stage_code_and_macro():
    error = raised(561002, "aclnnMoeFinalizeRoutingV2Grad", "GetWorkspaceSize", detail="EZ9999: count is 128")
    first, second, third = str(error).splitlines()
    assert first.startswith(
        "aclnnMoeFinalizeRoutingV2Grad (GetWorkspaceSize) failed: 561002 ACLNN_ERR_INNER_TILING_ERROR ("
    )
    assert second == "EZ9999: count is 128"
    assert third.startswith("hint: ")
    assert str(raised(107001, "aclrtSetDevice")).startswith(
        "aclrtSetDevice failed: 107001 ACL_ERROR_RT_INVALID_DEVICEID"
    )
    assert str(raised(999, "")).startswith("a CANN call failed: 999 unknown (999)")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (100002, ["torch_npu", "aclFinalize", "already initialised"]),
        (100039, ["LD_LIBRARY_PATH", "stub", "link"]),
        (107000, ["device memory", "host memory"]),
        (107001, ["ASCEND_RT_VISIBLE_DEVICES"]),
        (107002, ["no device is set on this thread", "aclrtSetDevice"]),
        (107003, ["stream", "device"]),
        (107017, ["destroyed"]),
        (107019, ["ACLNN_PY_LAUNCH_BLOCKING=1"]),
        (107020, ["ACLNN_PY_LAUNCH_BLOCKING=1"]),
        (161001, ["None", "lacks this operator", "SoC"]),
        (200000, ["memory"]),
        (207001, ["npu-smi", "out of device memory"]),
        (207018, ["npu-smi", "out of device memory"]),
        (207020, ["timeout"]),
        (200001, ["SoC", "CANN release"]),
        (200006, ["SoC", "CANN release"]),
        (207000, ["SoC", "CANN release"]),
        (361001, ["runtime call"]),
        (507015, ["asynchronous", "first seen here", "ACLNN_PY_LAUNCH_BLOCKING=1", "new process"]),
        (507035, ["asynchronous", "first seen here", "ACLNN_PY_LAUNCH_BLOCKING=1", "new process"]),
        (507777, ["asynchronous", "ACLNN_PY_LAUNCH_BLOCKING=1"]),
        (507046, ["timeout", "ACLNN_PY_LAUNCH_BLOCKING=1"]),
        (507054, ["ECC", "npu-smi"]),
        (507899, ["driver"]),
        (561000, ["aclSetAclOpExecutorRepeatable"]),
        (561003, ["ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "set_env.sh", "SoC", "CANN version"]),
        (561103, ["shape", "value is refused", "ASCEND_OPP_PATH", "kernel package", "SoC"]),
        (561107, ["ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "set_env.sh"]),
        (561112, ["ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "set_env.sh", "SoC"]),
        (561777, ["plog"]),
    ],
)
def test_the_message_says_what_to_do_next(code, words):
    error = raised(code, "aclnnX", "run", detail="")
    assert error.hint
    assert str(error).splitlines()[-1] == f"hint: {error.hint}"
    for word in words:
        assert word in str(error)


def test_hints_that_would_mislead_are_absent():
    assert "ASCEND_OPP_PATH" not in raised(561002).hint, "a tiling refusal is not a packaging fault"
    assert "shape" not in raised(561112).hint, "a missing package is not the user's shape"
    assert "asynchronous" not in raised(107000).hint
    assert raised(107045).hint == "", "no advice rather than a guess"


def test_the_caller_may_give_its_own_hint_or_none():
    assert raised(161001, hint="bias has no default here").hint == "bias has no default here"
    error = raised(161001, hint="")
    assert error.hint == ""
    assert "hint" not in str(error)


def test_a_text_of_20_kb_is_kept_whole_and_shown_in_part():
    text = "EZ9999: first line\n" + "\n".join(f"frame {i} of a long trace" for i in range(900))
    assert len(text) > 20_000
    error = raised(561002, detail=text)
    assert error.detail == text
    shown = str(error)
    assert len(shown.splitlines()) < 24
    assert shown.splitlines()[1] == "EZ9999: first line"
    assert "frame 899" not in shown
    assert shown.splitlines()[-2].endswith("more characters in .detail]")
    assert shown.splitlines()[-1].startswith("hint: ")
    one_line = raised(561002, detail="x" * 20_000)
    assert len(str(one_line)) < 3000
    assert one_line.detail == "x" * 20_000
    assert "[... 18400 more characters in .detail]" in str(one_line)


def test_a_text_that_fits_is_shown_whole():
    text = "\n".join(f"line {i}" for i in range(12))
    assert text in str(raised(561002, detail=text + "\n"))
    assert "more characters" not in str(raised(561002, detail=text + "\n"))


# ---------------------------------------------------------------- the reader


def test_cann_text_is_read_once_and_not_carried_over(reader):
    reader.append("text A")
    first = raised(561002)
    check(0, "aclnnAdd")
    second = raised(561002)
    assert first.detail == "text A"
    assert second.detail == ""
    assert "text A" not in str(second)
    assert status_name(561002) in str(second), "readable without a text"


def test_the_reader_runs_on_the_failing_thread(set_reader):
    seen = []
    caught = []

    def read():
        seen.append(threading.get_ident())
        return "text"

    def work():
        try:
            check(107002, "aclrtMalloc")
        except AclnnError as error:
            caught.append((error, threading.get_ident()))

    set_reader(read)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    error, ident = caught.pop()
    assert seen == [ident]
    assert error.detail == "text"


def test_a_given_detail_replaces_the_reader(reader):
    reader.append("CANN's text")
    assert raised(161002, detail="gradY: float64 is not accepted").detail == "gradY: float64 is not accepted"
    assert reader == ["CANN's text"]


@pytest.mark.parametrize("answer", [None, ""])
def test_no_text_is_readable(set_reader, answer):
    set_reader(lambda: answer)
    error = raised(107002, "aclrtMalloc", hint="")
    assert error.detail == ""
    assert str(error) == ("aclrtMalloc failed: 107002 ACL_ERROR_RT_CONTEXT_NULL (no device is set on this thread)")


def test_a_failing_reader_does_not_hide_the_error(set_reader):
    def broken():
        raise OSError("library is gone")

    set_reader(broken)
    error = raised(207001, "aclrtMalloc")
    assert isinstance(error, errors.DeviceMemoryError)
    assert "library is gone" in error.detail


def test_the_reader_comes_before_anything_else(set_reader, monkeypatch):
    order = []

    class Hints(dict):
        def get(self, code, default=None):
            order.append("hint")

    monkeypatch.setattr(_status, "HINTS", Hints())
    set_reader(lambda: order.append("text") or "text")
    raised(107002, "aclrtMalloc")
    assert order == ["text", "hint"]


# ---------------------------------------------------------------- a bare environment


def test_importing_errors_needs_only_the_standard_library():
    script = """
import sys, types
package = types.ModuleType("aclnn_py")
package.__path__ = [sys.argv[1]]
sys.modules["aclnn_py"] = package
import aclnn_py.errors
others = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sorted(name for name in others if name in {"numpy", "cffi", "ml_dtypes", "torch"}))
try:
    aclnn_py.errors.check(561103, "aclnnX", "run")
except aclnn_py.errors.InnerNullptrError as error:
    print(error.name)
"""
    package = errors.__file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-S", "-c", script, package], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["[]", "ACLNN_ERR_INNER_NULLPTR"], done.stderr
