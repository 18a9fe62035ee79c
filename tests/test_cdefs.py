import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import cffi
import pytest

CDEFS = Path(__file__).resolve().parent.parent / "cdefs"
BASE = ["types.h", "base.h"]
OPS = sorted(path.relative_to(CDEFS).as_posix() for path in (CDEFS / "ops").glob("*.h"))
FIRST_STAGE_TAIL = ["uint64_t*workspaceSize", "aclOpExecutor**executor"]
SECOND_STAGE = ["void*workspace", "uint64_t workspaceSize", "aclOpExecutor*executor", "aclrtStream stream"]
SEVEN = {
    "aclnnMoeFinalizeRoutingV2Grad": 14,
    "aclnnMoeTokenUnpermuteWithEpGrad": 12,
    "aclnnMoeFinalizeRoutingV2": 11,
    "aclnnMoeTokenUnpermuteWithEp": 10,
    "aclnnMoeTokenPermuteWithEp": 11,
    "aclnnMoeTokenPermuteWithEpGrad": 10,
    "aclnnMoeInitRoutingV2": 14,
}


@pytest.fixture(scope="module")
def build():
    """The build hook, loaded from its file: cdefs is not a package."""
    pytest.importorskip("hatchling", reason="hatchling, which the build hook needs, is not installed")
    spec = importlib.util.spec_from_file_location("cdefs_build", CDEFS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions():
    """Return operator function -> parameters, spaces around ``*`` dropped."""
    found = {}
    for header in OPS:
        text = re.sub(r"/\*.*?\*/", " ", (CDEFS / header).read_text(encoding="utf-8"), flags=re.DOTALL)
        for name, parameters in re.findall(r"^aclnnStatus (\w+)\(([^)]*)\);", text, re.MULTILINE):
            assert name not in found, f"{name} is declared twice"
            found[name] = [re.sub(r"\s*\*\s*", "*", " ".join(p.split())) for p in parameters.split(",")]
    return found


@pytest.mark.parametrize(("compiler", "language", "standard"), [("gcc", "c", "c11"), ("g++", "c++", "c++17")])
@pytest.mark.parametrize("headers", [*([name] for name in [*BASE, *OPS]), [*BASE, *OPS, *BASE]], ids=str)
def test_a_compiler_reads_the_headers_without_a_warning(compiler, language, standard, headers):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = "".join(f'#include "{name}"\n' for name in headers)
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{CDEFS}"]
    done = subprocess.run(
        [compiler, *flags, f"-std={standard}", "-x", language, "-"],
        input=source + "int main(void) { return 0; }\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_enums_and_structures_have_the_abi_size(build):
    ffi = cffi.FFI()
    text = build.for_cffi((CDEFS / "types.h").read_text(encoding="utf-8"))
    ffi.cdef(text)
    enums = re.findall(r"typedef enum (\w+)", text)
    assert len(enums) >= 14
    assert {ffi.sizeof(name) for name in enums} == {4}
    assert ffi.sizeof("aclCANNPackageVersion") == 512
    assert (ffi.sizeof("aclError"), ffi.sizeof("aclnnStatus"), ffi.sizeof("aclFloat16")) == (4, 4, 2)
    assert (ffi.sizeof("aclrtStream"), ffi.sizeof("aclrtEvent")) == (8, 8)
    values = ffi.typeof("aclDataType").relements
    assert [values[f"ACL_{name}"] for name in ("FLOAT", "FLOAT16", "INT32", "BF16")] == [0, 1, 3, 27]
    kinds = ffi.typeof("aclrtMemcpyKind").relements
    assert (kinds["ACL_MEMCPY_HOST_TO_DEVICE"], kinds["ACL_MEMCPY_DEVICE_TO_HOST"]) == (1, 2)
    with pytest.raises(ValueError, match="unknown size"):
        ffi.sizeof("aclTensor")  # handles stay opaque


def test_cffi_reads_every_header(build):
    ffi = cffi.FFI()
    for name in [*BASE, *OPS]:
        ffi.cdef(build.for_cffi((CDEFS / name).read_text(encoding="utf-8")))
    ffi.cdef(build.LIBC)
    ffi.set_source("unused_name", None)  # ABI mode accepts these declarations
    text = "".join(build.for_cffi((CDEFS / name).read_text(encoding="utf-8")) for name in [*BASE, *OPS])
    assert "#" not in text
    assert 'extern "C"' not in text
    run = ffi.typeof("aclnnStatus(*)(void *, uint64_t, aclOpExecutor *, aclrtStream)")
    assert [argument.cname for argument in run.args] == ["void *", "uint64_t", "aclOpExecutor *", "void *"]


def test_base_has_no_function_twice_and_marks_the_optional_ones(build):
    text = (CDEFS / "base.h").read_text(encoding="utf-8")
    names = re.findall(r"^[\w *]+?\b(\w+)\(", build.for_cffi(text), re.MULTILINE)
    assert len(names) == len(set(names)) > 100
    required, _, optional = text.partition("/* optional */")
    assert "aclGetRecentErrMsg(" in required
    assert "aclrtMalloc(" in required
    assert "aclFinalizeReference(" in optional


def test_both_stages_of_each_operator_are_declared():
    found = functions()
    first = {name.removesuffix("GetWorkspaceSize") for name in found if name.endswith("GetWorkspaceSize")}
    second = {name for name in found if not name.endswith("GetWorkspaceSize")}
    assert first == second
    assert set(SEVEN) <= second
    text = "".join((CDEFS / name).read_text(encoding="utf-8") for name in OPS)
    assert text.count(";") == len(found), "every declaration was understood"


@pytest.mark.parametrize("name", sorted(n for n in functions() if not n.endswith("GetWorkspaceSize")))
def test_the_stages_have_the_fixed_parameters(name):
    found = functions()
    assert found[name] == SECOND_STAGE
    assert found[name + "GetWorkspaceSize"][-2:] == FIRST_STAGE_TAIL
    assert len(found[name + "GetWorkspaceSize"]) > 2
    names = [re.split(r"[ *]", parameter)[-1] for parameter in found[name + "GetWorkspaceSize"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "count"), SEVEN.items())
def test_number_of_parameters_of_stage_one(name, count):
    assert len(functions()[name + "GetWorkspaceSize"]) == count


def test_attributes_of_the_same_type_are_in_cann_order():
    names = {
        key: [re.split(r"[ *]", parameter)[-1] for parameter in parameters] for key, parameters in functions().items()
    }
    assert names["aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize"][:12] == [
        "gradY", "expandedRowIdx", "expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional",
        "dropPadMode", "activeNum", "expertNum", "expertCapacity", "gradExpandedXOut", "gradScalesOut",
    ]  # fmt: skip
    assert names["aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize"][:10] == [
        "unpermutedTokensGrad", "sortedIndices", "permutedTokensOptional", "probsOptional", "paddedMode",
        "restoreShapeOptional", "rangeOptional", "topkNum", "permutedTokensGradOut", "probsGradOut",
    ]  # fmt: skip
