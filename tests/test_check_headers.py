import os
import shutil
from pathlib import Path

import check_headers
import pytest

ACL_H = """
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef int aclError;
typedef void *aclrtStream;
typedef void *aclrtEvent;
typedef enum { ACL_FLOAT = 0, ACL_FLOAT16, ACL_BF16 = 27 } aclDataType;
typedef enum aclrtMemMallocPolicy {
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEM_MALLOC_HUGE_ONLY
} aclrtMemMallocPolicy;
typedef struct aclCANNPackageVersion {
    char version[128];
    char majorVersion[64];
    char minorVersion[64];
    char releaseVersion[64];
    char patchVersion[64];
    char reserved[128];
} aclCANNPackageVersion;
static const int ACL_SUCCESS = 0;
static const int ACL_ERROR_RT_CONTEXT_NULL = 107002;
static const int ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING = 107046;
/* aclrtFree(void *) and ACL_INT8 occur in a comment only */
aclError aclInit(const char *path);
aclError aclrtMalloc(void **pointer, size_t bytes, aclrtMemMallocPolicy policy);
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
const char *aclrtGetSocName();
size_t aclDataTypeSize(aclDataType dataType);
#ifdef __cplusplus
}
#endif
"""

ACL_META_H = """
#pragma once
#include "acl/acl.h"
#include <cstdint>
typedef int32_t aclnnStatus;
typedef struct aclIntArray aclIntArray;
extern "C" {
aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size);
aclnnStatus aclDestroyIntArray(const aclIntArray *array);
}
#define ACLNN_ERR_PARAM_INVALID 161002
"""


def tree(tmp_path, old="", new=""):
    """Write the headers, with one text replaced in them."""
    for name, text in (("acl/acl.h", ACL_H), ("aclnn/acl_meta.h", ACL_META_H)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(old, new) if old else text)
    assert not old or old in ACL_H + ACL_META_H
    return tmp_path


def test_agreeing_headers_pass_and_are_counted(tmp_path, capsys):
    include = tree(tmp_path)
    report = check_headers.check(include)
    assert report.errors == ""
    assert report.ok
    assert sorted(report.checked["prototypes"]) == [
        "aclCreateIntArray",
        "aclDataTypeSize",
        "aclDestroyIntArray",
        "aclInit",
        "aclrtGetSocName",
        "aclrtMalloc",
        "aclrtStreamWaitEvent",
    ]
    assert "aclrtFree" in report.absent["prototypes"], "a comment is no declaration"
    assert set(report.checked["types and enum values"]) == {
        "ACL_FLOAT", "ACL_FLOAT16", "ACL_BF16", "ACL_MEM_MALLOC_HUGE_FIRST", "ACL_MEM_MALLOC_HUGE_ONLY",
        "aclCANNPackageVersion", "aclError", "aclnnStatus", "aclrtStream", "aclrtEvent", "aclDataType",
        "aclrtMemMallocPolicy",
    }  # fmt: skip
    assert "ACL_INT8" in report.absent["types and enum values"]
    assert set(report.checked["status codes"]) == {
        "ACL_SUCCESS", "ACL_ERROR_RT_CONTEXT_NULL", "ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING",
        "ACLNN_ERR_PARAM_INVALID",
    }  # fmt: skip
    for kind in report.checked:
        assert not set(report.checked[kind]) & set(report.absent[kind])
    assert check_headers.main(["--include", str(include)]) == 0
    absent = len(report.absent["prototypes"])
    assert f"prototypes: 7 checked, {absent} not in these headers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("aclrtMalloc(void **pointer, size_t bytes", "aclrtMalloc(void **pointer, int bytes", "aclrtMalloc"),
        ("aclInit(const char *path)", "aclInit(char *path)", "aclInit"),
        ("aclrtStream stream, aclrtEvent event", "aclrtStream stream", "aclrtStreamWaitEvent"),
        ("size_t aclDataTypeSize", "int aclDataTypeSize", "aclDataTypeSize"),
        ("const int64_t *value, uint64_t size", "const int64_t *value, int64_t size", "aclCreateIntArray"),
        ("const int64_t *value, uint64_t size", "const int32_t *value, uint64_t size", "aclCreateIntArray"),
        ('extern "C" {\naclInt', 'extern "C++" {\naclInt', "aclCreateIntArray"),
        ("typedef int aclError", "typedef long aclError", "aclError is int"),
        ("typedef void *aclrtStream", "typedef struct S *aclrtStream", "aclrtStream is void *"),
        ("typedef enum {", "typedef enum : int64_t {", "aclDataType has 4 bytes"),
        ("ACL_BF16 = 27", "ACL_BF16 = 28", "ACL_BF16 is 27"),
        ("ACL_FLOAT16,", "ACL_FLOAT16 = 2,", "ACL_FLOAT16 is 1"),
        ("char releaseVersion[64]", "char releaseVersion[32]", "layout of aclCANNPackageVersion"),
        ("char patchVersion[64];", "char patchVersion[64]; char more[8];", "layout of aclCANNPackageVersion"),
        ("CONTEXT_NULL = 107002", "CONTEXT_NULL = 107003", "ACL_ERROR_RT_CONTEXT_NULL is"),
        ("CAPTURING = 107046", "CAPTURING = 107044", "ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING is"),
    ],
)
def test_a_mismatch_fails_with_the_compilers_message(tmp_path, capsys, old, new, named):
    include = tree(tmp_path, old, new)
    assert check_headers.main(["--include", str(include)]) == 1
    captured = capsys.readouterr()
    assert named in captured.err
    assert "prototypes: " in captured.out


@pytest.mark.parametrize(
    ("header", "old", "new", "named"),
    [
        ("base.h", "Malloc(void **devPtr, size_t size", "Malloc(void **devPtr, int size", "aclrtMalloc"),
        ("base.h", "const char *aclrtGetSocName(void)", "char *aclrtGetSocName(void)", "aclrtGetSocName"),
        ("types.h", "ACL_BF16 = 27", "ACL_BF16 = 26", "ACL_BF16 is 26"),
        ("types.h", "char reserved[128]", "char reserved[64]", "layout of aclCANNPackageVersion"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_of_ours_fails(tmp_path, header, old, new, named):
    cdefs = tmp_path / "cdefs"
    shutil.copytree(check_headers.CDEFS, cdefs)
    text = (cdefs / header).read_text(encoding="utf-8")
    assert old in text
    (cdefs / header).write_text(text.replace(old, new), encoding="utf-8")
    report = check_headers.check(tree(tmp_path / "include"), cdefs)
    assert not report.ok
    assert named in report.errors


def test_nothing_to_compare_is_a_failure(tmp_path, capsys):
    assert check_headers.main(["--include", str(tmp_path)]) == 1
    assert "nothing to compare" in capsys.readouterr().err


def test_headers_that_do_not_compile_are_a_failure(tmp_path, capsys):
    include = tree(tmp_path, "#include <cstdint>", '#include "not_here.h"')
    assert check_headers.main(["--include", str(include)]) == 1
    assert "not_here.h" in capsys.readouterr().err


def test_everything_of_ours_is_looked_for():
    prototypes = check_headers.prototypes(check_headers.CDEFS / "base.h")
    text = (check_headers.CDEFS / "base.h").read_text(encoding="utf-8")
    assert len(prototypes) == text.count(";")
    assert prototypes["aclInit"] == "aclError aclInit(const char *configPath);"
    values = check_headers.type_assertions(check_headers.CDEFS / "types.h")
    text = check_headers.plain(check_headers.CDEFS / "types.h")
    opaque = {"aclOpExecutor", "aclTensor", "aclScalar", "aclIntArray", "aclFloatArray", "aclBoolArray",
              "aclTensorList", "aclScalarList"}  # fmt: skip
    assert not set(values) & opaque
    assert len(values) == text.count(" = ") + text.count("typedef ") - len(opaque)


@pytest.mark.skipif(
    "ACLNN_PY_WHEEL_INCLUDE" not in os.environ,
    reason="ACLNN_PY_WHEEL_INCLUDE does not name the include directory of an unpacked torch_npu wheel",
)
def test_the_headers_of_the_wheel_agree():
    report = check_headers.check(Path(os.environ["ACLNN_PY_WHEEL_INCLUDE"]))
    assert report.errors == ""
    assert len(report.checked["prototypes"]) >= 60
    assert len(report.checked["types and enum values"]) >= 130
    assert len(report.checked["status codes"]) >= 250
