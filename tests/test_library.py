"""Finding, opening and searching the libraries, on compiled stand-ins in directory trees."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fake_cann import ARCH, BASE, EMULATOR, FINALIZE_REFERENCE, RUNTIME, cann, library, operator, run

from aclnn_py import _discovery

OPEN = "libs = library.open_libraries()\n"
BASES = "[[lib.name, str(lib.path), lib.found_via, lib.already_loaded] for lib in (libs.runtime, libs.base)]"
PRINT = f"print(json.dumps({BASES}))\n"
# calls stage two of aclnnAdd: its answer tells the library
CALL = """
from aclnn_py._ffi import ffi
def served(name):
    one, two, lib = libs.operator(name)
    assert ffi.cast("int (*)(void)", one)() == ffi.cast("int (*)(void)", two)()
    return ffi.cast("int (*)(void)", two)(), lib.found_via
"""
FAILS = """
try:
    library.open_libraries({arguments})
except errors.AclnnError as error:
    print(json.dumps([type(error).__name__, str(error), getattr(error, "tried", None), error.hint]))
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One CANN root, compiled once; tests copy it."""
    root = tmp_path_factory.mktemp("built") / "cann"
    cann(root)
    return root


def copy(built: Path, root: Path) -> Path:
    """Copy the compiled root; return its library directory."""
    shutil.copytree(built, root, symlinks=True)
    (root / "lib64").unlink()
    (root / "lib64").symlink_to(f"{ARCH}/lib64")
    return root / ARCH / "lib64"


# -- roots


@pytest.mark.parametrize("missing", range(8))
def test_roots_come_in_the_documented_order(missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [
        *(tmp_path / name for name in ("home_path", "toolkit_home", "opp_parent")),
        *(tmp_path / "system/usr/local/Ascend" / name for name in ("cann", "ascend-toolkit/latest")),
        *(tmp_path / "home/Ascend" / name for name in ("cann", "ascend-toolkit/latest")),
    ]
    for root in roots[:missing] + roots[missing + 1 :]:
        (root / "opp").mkdir(parents=True)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(roots[0]))
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(roots[1]))
    monkeypatch.setenv("ASCEND_OPP_PATH", str(roots[2] / "opp"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(_discovery, "SYSTEM", tmp_path / "system")
    tried: list[tuple[str, str]] = []
    assert [place.path for place in _discovery.roots(tried)] == roots[:missing] + roots[missing + 1 :]
    assert len(tried) == (missing < 7)


def test_a_root_named_twice_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cann-9").mkdir()
    (tmp_path / "cann").symlink_to("cann-9")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path / "cann-9"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(_discovery, "SYSTEM", tmp_path)
    places = _discovery.roots()
    assert [place for place in places if place.path == tmp_path / "cann-9"] == [
        _discovery.Place("ASCEND_HOME_PATH", tmp_path / "cann-9")
    ]


# -- base libraries


def test_import_opens_nothing(built: Path, tmp_path: Path) -> None:
    script = """
del sys.modules["aclnn_py"]
import aclnn_py
maps = open("/proc/self/maps").read()
print(json.dumps([library.opened() is None, "libascendcl" in maps]))
"""
    assert run(script, tmp_path, {"ASCEND_HOME_PATH": built}) == [True, False]


def test_base_libraries_of_a_root(built: Path, tmp_path: Path) -> None:
    directory = (built / ARCH / "lib64").resolve()
    script = (
        OPEN
        + """
assert library.open_libraries() is libs
local = ctypes.CDLL(None)
assert not hasattr(local, "aclInit"), "opened with RTLD_GLOBAL"
"""
        + PRINT
    )
    assert run(script, tmp_path, {"ASCEND_HOME_PATH": built}) == [
        ["libascendcl.so", str(directory / "libascendcl.so"), "ASCEND_HOME_PATH", False],
        ["libnnopbase.so", str(directory / "libnnopbase.so"), "beside libascendcl.so", False],
    ]


def test_libacl_rt_serves_where_libascendcl_is_missing(built: Path, tmp_path: Path) -> None:
    newer, older = copy(built, tmp_path / "newer"), copy(built, tmp_path / "older")
    (newer / "libascendcl.so").rename(newer / "libacl_rt.so")
    env = {"ASCEND_HOME_PATH": tmp_path / "newer", "ASCEND_TOOLKIT_HOME": tmp_path / "older"}
    assert [entry[1] for entry in run(OPEN + PRINT, tmp_path, env)] == [
        str(newer / "libacl_rt.so"),
        str(newer / "libnnopbase.so"),
    ]
    assert older.is_dir()


def test_directory_of_the_override_comes_first(built: Path, tmp_path: Path) -> None:
    flat = copy(built, tmp_path / "other")
    env = {"ASCEND_HOME_PATH": built, "ACLNN_PY_LIBRARY_PATH": flat}
    assert [entry[1:3] for entry in run(OPEN + PRINT, tmp_path, env)] == [
        [str(flat / name), "ACLNN_PY_LIBRARY_PATH"] for name in ("libascendcl.so", "libnnopbase.so")
    ]
    env["ACLNN_PY_LIBRARY_PATH"] = tmp_path / "nothing_here"
    assert [entry[2] for entry in run(OPEN + PRINT, tmp_path, env)] == ["ASCEND_HOME_PATH", "beside libascendcl.so"]


def test_loader_path_comes_last(built: Path, tmp_path: Path) -> None:
    found = run(OPEN + PRINT, tmp_path, {"LD_LIBRARY_PATH": built / "lib64"})
    assert [entry[2] for entry in found] == ["LD_LIBRARY_PATH", "beside libascendcl.so"]
    # a directory that only the loader knows
    script = 'del os.environ["LD_LIBRARY_PATH"]\n' + OPEN + PRINT
    found = run(script, tmp_path, {"LD_LIBRARY_PATH": built / "lib64"})
    assert found[0][1:3] == [str((built / ARCH / "lib64/libascendcl.so").resolve()), "system loader"]


@pytest.mark.parametrize("loaded", ["libascendcl.so", "libacl_rt.so"])
def test_library_already_in_the_process_comes_first(loaded: str, built: Path, tmp_path: Path) -> None:
    torch = copy(built, tmp_path / "torch")
    if loaded == "libacl_rt.so":
        library(torch / "libascendcl.so", RUNTIME, soname=loaded)
        (torch / "libascendcl.so").rename(torch / loaded)
    script = f"ctypes.CDLL({str(torch / loaded)!r})\n" + OPEN + PRINT
    assert run(script, tmp_path, {"ASCEND_HOME_PATH": built}) == [
        [loaded, str(torch / loaded), "already loaded", True],
        ["libnnopbase.so", str(torch / "libnnopbase.so"), f"beside {loaded}", False],
    ]


def test_failure_lists_every_place_and_why(tmp_path: Path) -> None:
    (tmp_path / "empty/lib64").mkdir(parents=True)
    (tmp_path / "text/lib64").mkdir(parents=True)
    (tmp_path / "text/lib64/libascendcl.so").write_text("not a library, only text " * 99)
    (tmp_path / "text/set_env.sh").touch()
    env = {
        "ASCEND_HOME_PATH": tmp_path / "empty",
        "ASCEND_TOOLKIT_HOME": tmp_path / "text",
        "ACLNN_PY_LIBRARY_PATH": tmp_path / "gone",
        "ASCEND_RT_VISIBLE_DEVICES": "",
    }
    name, text, tried, hint = run(FAILS.format(arguments=""), tmp_path, env)
    assert name == "LibraryNotFoundError"
    why = dict(tried)
    assert why[f"{tmp_path}/gone (ACLNN_PY_LIBRARY_PATH)"] == "no such directory"
    assert why[f"{tmp_path}/empty/lib64 (ASCEND_HOME_PATH)"] == "no libascendcl.so or libacl_rt.so"
    assert "invalid ELF header" in why[f"{tmp_path}/text/lib64/libascendcl.so (ASCEND_TOOLKIT_HOME)"]
    assert why["ASCEND_OPP_PATH"] == "not set"
    assert why[f"{tmp_path}/usr/local/Ascend/cann (default directory)"] == "no such directory"
    assert "cannot open shared object" in why["libascendcl.so (system loader)"]
    assert f"source {tmp_path}/text/set_env.sh" in hint
    assert 'backend="reference"' in hint
    assert all(place in text for place, _ in tried)


def test_missing_driver_library_has_its_own_hint(tmp_path: Path) -> None:
    hal = library(tmp_path / "libascend_hal.so", "int halX(void) { return 0; }")
    library(tmp_path / "root/lib64/libascendcl.so", "int halX(void); int aclInit(void) { return halX(); }", hal)
    hal.unlink()
    name, _, tried, hint = run(FAILS.format(arguments=""), tmp_path, {"ASCEND_HOME_PATH": tmp_path / "root"})
    assert name == "LibraryNotFoundError"
    assert "driver" in hint
    assert any("libascend_hal.so" in why for _, why in tried)


# -- stubs


@pytest.mark.parametrize("layout", [f"{ARCH}/devlib", "runtime/lib64/stub/linux/x86_64"])
def test_stub_on_the_loader_path_is_refused(layout: str, built: Path, tmp_path: Path) -> None:
    stubs = tmp_path / "cann" / layout
    shutil.copytree(built / ARCH / "lib64", stubs)
    name, _, tried, hint = run(FAILS.format(arguments=""), tmp_path, {"LD_LIBRARY_PATH": stubs})
    assert name == "LibraryNotFoundError"
    assert "stub" in dict(tried)[f"{stubs}/libascendcl.so (LD_LIBRARY_PATH)"]
    assert "install the CANN toolkit" in hint


def test_stub_behind_a_link_is_refused_and_the_next_place_serves(built: Path, tmp_path: Path) -> None:
    stubs = tmp_path / "cann/devlib"
    shutil.copytree(built / ARCH / "lib64", stubs)
    (tmp_path / "cann/lib64").symlink_to("devlib")
    env = {"ASCEND_HOME_PATH": tmp_path / "cann", "ASCEND_TOOLKIT_HOME": built}
    found = run(OPEN + PRINT, tmp_path, env)
    assert found[0][2] == "ASCEND_TOOLKIT_HOME"


def test_stub_already_in_the_process_is_refused(built: Path, tmp_path: Path) -> None:
    stubs = tmp_path / "cann/devlib"
    shutil.copytree(built / ARCH / "lib64", stubs)
    script = f"ctypes.CDLL({str(stubs / 'libascendcl.so')!r})" + FAILS.format(arguments="")
    name, text, _, hint = run(script, tmp_path, {"ASCEND_HOME_PATH": built})
    assert name == "StubLibraryError"
    assert "100039" in text
    assert str(stubs) in text
    assert hint


# -- operators


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory, built: Path) -> tuple[Path, dict[str, object], list[Path]]:
    """Build aclnnAdd in every place that is searched, numbered in the order they are searched."""
    top = tmp_path_factory.mktemp("places")
    lib64 = copy(built, top / "cann")
    vendors = top / "cann/opp/vendors"
    relative = ["op_api/lib/libcust_opapi.so"]
    files = [
        top / "first/libcust_opapi.so",
        top / "first/libopapi_aa.so",
        top / "first/libaclnn_math.so",
        *(top / "custom" / name / relative[0] for name in ("one", "two")),
        *(vendors / name / relative[0] for name in ("beta", "alpha")),
        *(lib64 / f"libopapi_{part}.so" for part in ("cv", "math", "nn")),
        *(lib64 / f"libaclnn_{part}.so" for part in ("ops_infer", "ops_train", "math", "sparse", "fft", "rand")),
    ]
    for number, file in enumerate(files):
        library(file, operator("aclnnAdd", answer=number), soname=f"lib{number}.so")
    library(vendors / "unlisted" / relative[0], operator("aclnnAdd", "aclnnUnlisted", answer=90), soname="lib90.so")
    library(lib64 / "libopapi.so", operator("aclnnAdd", "aclnnWhole", answer=91), soname="lib91.so")
    (vendors / "config.ini").write_text("# comment\nload_priority = beta, gone,alpha  # highest first\n")
    env = {
        "ASCEND_HOME_PATH": top / "cann",
        "ACLNN_PY_LIBRARY_PATH": top / "first",
        "ASCEND_CUSTOM_OPP_PATH": f"{top / 'custom/one'}:{top / 'custom/gone'}::{top / 'custom/two'}",
    }
    return top, env, files


def test_operators_are_searched_in_order(places: tuple[Path, dict[str, object], list[Path]]) -> None:
    top, env, files = places
    script = (
        OPEN
        + CALL
        + """
order = []
while True:     # take away the library that served, and ask a fresh search
    libs = library.Libraries("npu")
    libs._pending = [place for place in libs._pending if not any(place.path.samefile(p) for _, _, p in order)]
    try:
        order.append((*served("aclnnAdd"), libs.operator("aclnnAdd")[2].path))
    except errors.SymbolNotFoundError as error:
        text = str(error)
        break
print(json.dumps([[n, via] for n, via, _ in order] + [text]))
"""
    )
    *order, text = run(script, top, env)
    assert [number for number, _ in order] == list(range(len(files)))
    vias = [via.split(" in ")[0] for _, via in order]
    assert (
        vias
        == ["ACLNN_PY_LIBRARY_PATH"] * 3 + ["ASCEND_CUSTOM_OPP_PATH"] * 2 + ["vendors/config.ini"] * 2 + ["CANN"] * 9
    )
    assert "custom/gone/op_api/lib/libcust_opapi.so (ASCEND_CUSTOM_OPP_PATH): no such file" in text


def test_only_listed_vendors_and_no_libopapi_beside_split_ones(
    places: tuple[Path, dict[str, object], list[Path]],
) -> None:
    top, env, files = places
    script = (
        OPEN
        + """
found = [libs.has_operator(name) for name in ("aclnnUnlisted", "aclnnWhole", "aclnnAdd")]
print(json.dumps([found, [str(entry.path) for entry in libs.libraries()[2:]]]))
"""
    )
    found, opened = run(script, top, env)
    assert found == [False, False, True]
    assert opened == [str(file) for file in files]


def test_operator_libraries_are_opened_as_the_search_reaches_them(
    places: tuple[Path, dict[str, object], list[Path]],
) -> None:
    top, env, _ = places
    script = (
        OPEN
        + """
before = len(libs.libraries())
libs.operator("aclnnAdd")
print(json.dumps([before, len(libs.libraries()), [name for name, _, _ in libs.describe()["libraries"]]]))
"""
    )
    assert run(script, top, env) == [2, 3, ["libascendcl.so", "libnnopbase.so", "libcust_opapi.so"]]


def test_layout_of_8_1(built: Path, tmp_path: Path) -> None:
    lib64 = copy(built, tmp_path / "cann")
    old = tmp_path / "cann" / _discovery.OPERATOR_DIRECTORY
    library(old / "libopapi.so", operator("aclnnAdd", answer=1))
    library(old / "libaclnn_rand.so", operator("aclnnAdd", "aclnnRand", answer=2))
    (lib64 / "libopapi.so").symlink_to(old / "libopapi.so")
    script = (
        OPEN
        + CALL
        + """
found = [served("aclnnAdd")[0], served("aclnnRand")[0]]
libs.has_operator("aclnnNone")
print(json.dumps([found, [name for name, _, _ in libs.describe()["libraries"][2:]]]))
"""
    )
    found, opened = run(script, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"})
    assert found == [1, 2]
    assert opened == ["libopapi.so", "libaclnn_rand.so"]  # the link and its file are one library


def test_custom_library_of_another_user_is_not_opened(built: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("giving a file to another user needs root")
    root = copy(built, tmp_path / "cann").parents[1]
    custom = library(tmp_path / "custom/op_api/lib/libcust_opapi.so", operator("aclnnAdd"))
    os.chown(custom, 12345, 12345)
    script = OPEN + 'print(json.dumps([libs.has_operator("aclnnAdd"), libs.tried]))'
    found, tried = run(script, tmp_path, {"ASCEND_HOME_PATH": root, "ASCEND_CUSTOM_OPP_PATH": tmp_path / "custom"})
    assert not found
    assert "owned by user 12345" in dict(map(tuple, tried))[f"{custom} (ASCEND_CUSTOM_OPP_PATH)"]


def test_both_stages_come_from_one_library(built: Path, tmp_path: Path) -> None:
    lib64 = copy(built, tmp_path / "cann")
    library(
        lib64 / "libopapi_a.so", "int aclnnAddGetWorkspaceSize(void) { return 1; } int aclnnMul(void) { return 1; }"
    )
    library(lib64 / "libopapi_b.so", operator("aclnnAdd", answer=2))
    script = (
        OPEN
        + CALL
        + """
try:
    libs.operator("aclnnMul")
except errors.SymbolNotFoundError as error:
    assert isinstance(error, AttributeError)
    print(json.dumps([served("aclnnAdd")[0], str(error), error.symbol, error.libraries]))
"""
    )
    number, text, symbol, libraries = run(script, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"})
    assert number == 2
    assert f"{lib64 / 'libopapi_a.so'} has aclnnMul but not aclnnMulGetWorkspaceSize" in text
    assert symbol == "aclnnMul"
    assert [Path(path).name for path in libraries] == [
        "libascendcl.so",
        "libnnopbase.so",
        "libopapi_a.so",
        "libopapi_b.so",
    ]


def test_stages_split_over_a_dependency_are_refused(built: Path, tmp_path: Path) -> None:
    # dlsym looks in dependencies too: both names are found through libopapi_a.so, in two files
    lib64 = copy(built, tmp_path / "cann")
    other = library(tmp_path / "deps/libdep.so", "int aclnnAdd(void) { return 1; }\n" + operator("aclnnSub", answer=3))
    library(lib64 / "libopapi_a.so", "int aclnnAddGetWorkspaceSize(void) { return 1; }", other)
    script = (
        OPEN
        + """
try:
    libs.operator("aclnnAdd")
except errors.SymbolNotFoundError as error:
    found = libs.operator("aclnnSub")[2]
    print(json.dumps([str(error), str(found.path), found.found_via]))
"""
    )
    text, path, via = run(script, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"})
    assert f"{other} has aclnnAdd" in text
    assert path == str(other)
    assert via.endswith(f"needed by {lib64 / 'libopapi_a.so'}")


def test_operator_library_that_does_not_load_is_named(built: Path, tmp_path: Path) -> None:
    lib64 = copy(built, tmp_path / "cann")
    (lib64 / "libopapi_a.so").write_text("only text " * 99)
    library(lib64 / "libopapi_b.so", operator("aclnnAdd", answer=2))
    script = (
        OPEN
        + CALL
        + """
try:
    libs.operator("aclnnNone")
except errors.SymbolNotFoundError as error:
    print(json.dumps([served("aclnnAdd")[0], str(error)]))
"""
    )
    number, text = run(script, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"})
    assert number == 2
    assert "libopapi_a.so" in text
    assert "invalid ELF header" in text


# -- functions


def test_functions_are_looked_up_at_use(built: Path, tmp_path: Path) -> None:
    script = (
        OPEN
        + """
from aclnn_py._ffi import ffi
report = [libs.optional("aclFinalizeReference") is None, libs.api.aclrtSetDevice(3)]
try:
    libs.api.aclrtMemset(ffi.NULL, 0, 0, 0)
except errors.SymbolNotFoundError as error:
    report += [error.symbol, libs.runtime.path.name in str(error), libs.api.aclrtGetDevice(ffi.new("int32_t *"))]
report.append(libs.api.aclSetTensorAddr(ffi.NULL, 0, ffi.NULL, ffi.NULL))       # upper case only
report += [libs.has_symbol("aclInit"), libs.has_symbol("aclCreateTensor"), libs.has_symbol("aclnnNone")]
print(json.dumps(report))
"""
    )
    report = run(script, tmp_path, {"ASCEND_HOME_PATH": built})
    assert report == [True, 0, "aclrtMemset", True, 0, 161001, True, True, False]


def test_lower_case_spelling_is_preferred(built: Path, tmp_path: Path) -> None:
    lib64 = copy(built, tmp_path / "cann")
    library(lib64 / "libnnopbase.so", BASE + "int aclSetTensorAddr(void *e) { return 7; }")
    library(lib64 / "libascendcl.so", RUNTIME + FINALIZE_REFERENCE)
    script = (
        OPEN
        + """
from aclnn_py._ffi import ffi
code = libs.api.aclSetTensorAddr(ffi.NULL, 0, ffi.NULL, ffi.NULL)
print(json.dumps([code, libs.optional("aclFinalizeReference") is None]))
"""
    )
    assert run(script, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"}) == [7, False]


def test_message_of_cann_reaches_the_error(built: Path, tmp_path: Path) -> None:
    script = (
        OPEN
        + """
details = []
for text in ("EZ9999: \\udcff bad\\n", None):
    libc = ctypes.CDLL(None)
    libc.unsetenv(b"FAKE_MESSAGE") if text is None else libc.setenv(b"FAKE_MESSAGE", os.fsencode(text), 1)
    try:
        errors.check(107002, "aclrtMalloc")
    except errors.ContextError as error:
        details.append(error.detail)
print(json.dumps(details))
"""
    )
    assert run(script, tmp_path, {"ASCEND_HOME_PATH": built}) == ["EZ9999: \ufffd bad\n", ""]


# -- one CANN per process


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a directory that looks like the emulator's."""
    directory = tmp_path_factory.mktemp("emulator")
    library(directory / "libascendcl.so", RUNTIME + EMULATOR)
    library(directory / "libnnopbase.so", BASE)
    library(directory / "libopapi.so", operator("aclnnAdd", answer=50))
    (directory / "libopapi_math.so").symlink_to("libopapi.so")
    (directory / "libacl_rt.so").symlink_to("libascendcl.so")
    return directory


def test_emulator_has_its_own_operators_only(emulator: Path, built: Path, tmp_path: Path) -> None:
    lib64 = copy(built, tmp_path / "cann")
    library(lib64 / "libopapi_math.so", operator("aclnnAdd", "aclnnSub", answer=1))
    library(tmp_path / "custom/op_api/lib/libcust_opapi.so", operator("aclnnSub", answer=2))
    script = (
        f"libs = library.open_libraries('emulator', Path({str(emulator)!r}))\n"
        + CALL
        + """
print(json.dumps([served("aclnnAdd")[0], libs.has_operator("aclnnSub"), libs.emulator, len(libs.libraries())]))
"""
    )
    env = {"ASCEND_HOME_PATH": tmp_path / "cann", "ASCEND_CUSTOM_OPP_PATH": tmp_path / "custom"}
    assert run(script, tmp_path, env) == [50, False, True, 3]
    # asked for as "npu", through the variable: the same, and it is reported
    env["ACLNN_PY_LIBRARY_PATH"] = emulator
    script = (
        OPEN
        + CALL
        + """
other = library.open_libraries("emulator")
print(json.dumps([served("aclnnAdd")[0], libs.has_operator("aclnnSub"), libs.describe()["emulator"], libs is other]))
"""
    )
    assert run(script, tmp_path, env) == [50, False, True, True]


def test_cann_is_not_taken_for_the_emulator(built: Path, tmp_path: Path) -> None:
    script = FAILS.format(arguments=f"'emulator', Path({str(built / 'lib64')!r})")
    name, text, _, hint = run(script + 'assert "libascendcl" not in open("/proc/self/maps").read()', tmp_path)
    assert name == "LibraryNotFoundError"
    assert "not the emulator" in text
    assert "aclnn-py emulator build" in hint


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("'npu'", "'emulator', EMULATOR"),
        ("'emulator', EMULATOR", "'npu'"),
        ("'emulator', EMULATOR", "'emulator', OTHER"),
        ("'npu'", "'npu', OTHER"),
    ],
)
def test_second_cann_is_refused(first: str, second: str, emulator: Path, built: Path, tmp_path: Path) -> None:
    other = shutil.copytree(emulator, tmp_path / "other", symlinks=True)
    script = f"EMULATOR, OTHER = Path({str(emulator)!r}), Path({str(other)!r})\n"
    script += f"libs = library.open_libraries({first})\n" + FAILS.format(arguments=second)
    script += f"assert library.open_libraries({first}) is libs is library.opened()"
    name, text, *_ = run(script, tmp_path, {"ASCEND_HOME_PATH": built})
    assert name == "AclnnError"
    assert str((built if first == "'npu'" else emulator).resolve()) in text
    assert "one process holds one CANN" in text


@pytest.mark.parametrize("variable", [False, True])
def test_emulator_is_refused_beside_a_cann_that_another_package_loaded(
    variable: bool, emulator: Path, built: Path, tmp_path: Path
) -> None:
    loaded = built / ARCH / "lib64/libascendcl.so"
    arguments = "'npu'" if variable else f"'emulator', Path({str(emulator)!r})"
    script = f"ctypes.CDLL({str(loaded)!r})\n" + FAILS.format(arguments=arguments)
    name, text, *_ = run(script, tmp_path, {"ACLNN_PY_LIBRARY_PATH": emulator} if variable else {})
    assert name == "AclnnError"
    assert f"already holds the CANN {loaded.resolve()}" in text


def test_changing_the_custom_path_afterwards_warns_once(built: Path, tmp_path: Path) -> None:
    script = (
        OPEN
        + """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    libs.has_operator("aclnnAdd")
    before = len(caught)
    os.environ["ASCEND_CUSTOM_OPP_PATH"] = "/else"
    for _ in range(3):
        libs.has_operator("aclnnAdd")
        library.open_libraries()
print(json.dumps([before, [str(w.message) for w in caught]]))
"""
    )
    before, messages = run(script, tmp_path, {"ASCEND_HOME_PATH": built})
    assert before == 0
    assert len(messages) == 1
    assert "ASCEND_CUSTOM_OPP_PATH" in messages[0]


def test_threads_find_the_same_operator(built: Path, tmp_path: Path) -> None:
    lib64 = copy(built, tmp_path / "cann")
    for number in range(6):
        library(lib64 / f"libopapi_{number}.so", operator(f"aclnnOp{number}", answer=number))
    script = (
        OPEN
        + CALL
        + """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda n: served(f"aclnnOp{n % 6}")[0], range(48)))
print(json.dumps([found == [n % 6 for n in range(48)], len(libs.libraries())]))
"""
    )
    assert run(script, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"}) == [True, 8]


def test_wrong_kind_is_refused() -> None:
    from aclnn_py.library import Libraries

    with pytest.raises(ValueError, match="kind: got 'gpu'"):
        Libraries("gpu")


# -- discover


def system(tmp_path: Path, *, devices: int = 2, driver: str = "usr/local/Ascend") -> None:
    """Lay out driver and devices under tmp_path."""
    (tmp_path / "dev").mkdir()
    for number in range(devices):
        (tmp_path / f"dev/davinci{number}").touch()
    (tmp_path / "dev/davinci_manager").touch()
    home = tmp_path / driver / "driver"
    (home / "lib64/driver").mkdir(parents=True)
    (home / "lib64/driver/libascend_hal.so").touch()
    (home / "version.info").write_text("Version=24.1.rc2\n")


DISCOVER = """
report = library.discover()
assert "libascendcl" not in open("/proc/self/maps").read()
assert library.opened() is None
print(json.dumps({"libraries": [[p.via, str(p.path)] for p in report.libraries], "version": report.version,
    "driver": str(report.driver), "driver_version": report.driver_version, "devices": report.devices,
    "visible": report.visible_devices, "missing": report.missing, "usable": report.usable,
    "emulator": report.emulator}))
"""


def test_discover_reports_a_complete_install(built: Path, tmp_path: Path) -> None:
    system(tmp_path)
    lib64 = copy(built, tmp_path / "cann")
    library(lib64 / "libopapi_math.so", operator("aclnnAdd"))
    (tmp_path / "cann/version.info").write_text("Version=7.7.0.1.238\nversion_dir=8.1.RC1\n")
    report = run(DISCOVER, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann", "ASCEND_RT_VISIBLE_DEVICES": "0,1"})
    assert report == {
        "libraries": [
            ["ASCEND_HOME_PATH", str(lib64 / "libascendcl.so")],
            ["beside libascendcl.so", str(lib64 / "libnnopbase.so")],
            [f"CANN in {tmp_path}/cann", str(lib64 / "libopapi_math.so")],
        ],
        "version": "8.1.RC1",
        "driver": f"{tmp_path}/usr/local/Ascend/driver",
        "driver_version": "24.1.rc2",
        "devices": ["/dev/davinci0", "/dev/davinci1"],
        "visible": "0,1",
        "missing": [],
        "usable": True,
        "emulator": False,
    }


@pytest.mark.parametrize("file", ["version.info", "share/info/runtime/version.info", "runtime/version.info"])
def test_discover_reads_the_version_files(file: str, built: Path, tmp_path: Path) -> None:
    copy(built, tmp_path / "cann")
    (tmp_path / "cann" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cann" / file).write_text("Version=9.0.0\n")
    assert run(DISCOVER, tmp_path, {"ASCEND_HOME_PATH": tmp_path / "cann"})["version"] == "9.0.0"


def test_discover_finds_the_driver_where_the_installer_put_it(tmp_path: Path) -> None:
    system(tmp_path, driver="opt/npu")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ascend_install.info").write_text("UserName=x\nDriver_Install_Path_Param=/opt/npu\n")
    report = run(DISCOVER, tmp_path)
    assert report["driver"] == f"{tmp_path}/opt/npu/driver"
    assert not any("driver" in what for what, _ in report["missing"])


def test_discover_names_what_is_missing_and_the_command(built: Path, tmp_path: Path) -> None:
    missing = dict(map(tuple, run(DISCOVER, tmp_path)["missing"]))
    assert "libascendcl.so not found" in missing
    assert "libnnopbase.so not found" in missing
    assert "libopapi_*.so not found" in missing
    assert "docker run --device /dev/davinci0" in missing["no /dev/davinci device"]
    assert "NPU driver not found" in missing

    copy(built, tmp_path / "usr/local/Ascend/ascend-toolkit/latest")
    script = tmp_path / "usr/local/Ascend/ascend-toolkit/set_env.sh"
    script.touch()
    report = run(DISCOVER, tmp_path, {"ASCEND_RT_VISIBLE_DEVICES": ""})
    missing = dict(map(tuple, report["missing"]))
    assert missing["ASCEND_HOME_PATH is not set; libnnopbase needs it"] == f"source {script}"
    assert missing["ASCEND_RT_VISIBLE_DEVICES is empty, which hides every device"] == "unset ASCEND_RT_VISIBLE_DEVICES"
    assert not report["usable"]


def test_discover_knows_the_emulator(emulator: Path, tmp_path: Path) -> None:
    report = run(DISCOVER, tmp_path, {"ACLNN_PY_LIBRARY_PATH": emulator})
    assert report["emulator"]
    assert report["missing"] == []
    assert [Path(path).name for _, path in report["libraries"]] == ["libascendcl.so", "libnnopbase.so", "libopapi.so"]
