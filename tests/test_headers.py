"""Operator signatures from header trees: every oddity seen in real ones, the index and its cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aclnn_py import signatures
from aclnn_py.headers import HeaderIndex, file_names, include_directories

TAIL = "uint64_t *workspaceSize, aclOpExecutor **executor"
STAGE_TWO = "(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);\n"

ODDITIES = {
    "aclnn_plain.h": "ACLNN_API aclnnStatus aclnnPlainGetWorkspaceSize(const aclTensor* self, aclTensor* out,"
    f"{TAIL});\n"
    f"ACLNN_API aclnnStatus aclnnPlain{STAGE_TWO}",
    "aclnn_visible.h": '__attribute__((visibility("default"))) aclnnStatus\naclnnVisibleGetWorkspaceSize(\n'
    f"    const aclTensor *x,\n    int64_t   dim,\n    {TAIL});\n",
    "aclnn_spaced.h": '__attribute__ ((visibility ("default"))) aclnnStatus aclnnSpacedGetWorkspaceSize ('
    f"const bool flag,{TAIL});",
    "aclnn_old.h": '__attribute__((deprecated("aclnnOldGetWorkspaceSize(a, b) will go (soon), " "use aclnnNew, '
    f'please"))) __attribute__((visibility("default"))) aclnnStatus aclnnOldGetWorkspaceSize(aclTensor *x, {TAIL});',
    "aclnn_message.h": 'ACL_DEPRECATED_MESSAGE("call aclnnB, not aclnnMessageGetWorkspaceSize(x)")\n'
    f"ACLNN_API aclnnStatus aclnnMessageGetWorkspaceSize(const aclScalar *alpha, {TAIL});",
    "aclnn_comments.h": "/* aclnnCommentsGetWorkspaceSize(a, b) draws:\n graph LR; A[(`x`)] --> B((y))\n*/\n"
    "aclnnStatus aclnnCommentsGetWorkspaceSize(\n    const aclTensor *query, // the query (B, S, H)\n"
    f"    const aclIntArray *lengths, /* optional, may be ( null */\n    double scale, {TAIL});",
    "aclnn_extern.h": f"extern aclnnStatus aclnnExternGetWorkspaceSize(char *layout, const float eps, {TAIL});",
    "aclnn_keywords.h": "aclnnStatus aclnnKeywordsGetWorkspaceSize(const aclTensor *self, double lambda, int64_t from, "
    f"aclTensor *out, {TAIL});",
    "aclnn_inner.h": f"aclnnStatus InnerThingGetWorkspaceSize(const aclTensorList *xs, aclDataType dtype, {TAIL});",
    "acl_stft.h": f"aclnnStatus aclStftGetWorkspaceSize(const aclTensor *x, bool onesided, {TAIL});",
    "aclnn_no_stage_two.h": f"aclnnStatus aclnnNoStageTwoGetWorkspaceSize(const aclBoolArray *mask, {TAIL});",
    "aclnn_stage_two.h": f"aclnnStatus aclnnStageTwoGetWorkspaceSize(const aclTensor *x, {TAIL});\n"
    "aclnnStatus aclnnStageTwo(void *ws, const uint64_t size, aclOpExecutor *e, const aclrtStream stream, int extra);",
    **{
        f"aclnn_guard_{letter.lower()}.h": "#ifndef SAME_GUARD\n#define SAME_GUARD\n"
        f"aclnnStatus aclnnGuard{letter}GetWorkspaceSize(const aclTensor *x, {TAIL});\n#endif"
        for letter in "AB"
    },
    "aclnn_macro.h": "#define DECLARE(x) \\\n  aclnnStatus x##GetWorkspaceSize(int)\n"
    f"aclnnStatus aclnnMacroGetWorkspaceSize(uint32_t n, {TAIL});",
    "acldvpp_convert.h": "acldvppStatus acldvppConvertGetWorkspaceSize(const aclTensor *self, "
    f"acldvppConvertMode mode, aclTensor *out, {TAIL});",
    "aclnn_helpers.h": "aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *shape, uint64_t *size);\n"
    f"aclnnStatus aclnnHelpersGetWorkspaceSize(int8_t cubeMathType, {TAIL});",
}
EXPECTED = {
    "aclnnPlain": ["const aclTensor *self", "aclTensor *out"],
    "aclnnVisible": ["const aclTensor *x", "int64_t dim"],
    "aclnnSpaced": ["bool flag"],
    "aclnnOld": ["aclTensor *x"],
    "aclnnMessage": ["const aclScalar *alpha"],
    "aclnnComments": ["const aclTensor *query", "const aclIntArray *lengths", "double scale"],
    "aclnnExtern": ["char *layout", "float eps"],
    "aclnnKeywords": ["const aclTensor *self", "double lambda", "int64_t from", "aclTensor *out"],
    "InnerThing": ["const aclTensorList *xs", "aclDataType dtype"],
    "aclStft": ["const aclTensor *x", "bool onesided"],
    "aclnnNoStageTwo": ["const aclBoolArray *mask"],
    "aclnnStageTwo": ["const aclTensor *x"],
    "aclnnGuardA": ["const aclTensor *x"],
    "aclnnGuardB": ["const aclTensor *x"],
    "aclnnMacro": ["uint32_t n"],
    "acldvppConvert": ["const aclTensor *self", "acldvppConvertMode mode", "aclTensor *out"],
    "aclnnHelpers": ["int8_t cubeMathType"],
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "include" / "aclnnop"
    folder.mkdir(parents=True)
    for name, text in ODDITIES.items():
        (folder / name).write_bytes(b"/* \xd5\xe2\xca\xc7 not UTF-8 */\n#include <string>\n" + text.encode())
    return tmp_path / "include"


def test_every_oddity_is_read(tree: Path) -> None:
    index = HeaderIndex([tree])
    assert set(index.names()) == set(EXPECTED)
    assert {name: [str(p) for p in index.find(name).parameters] for name in EXPECTED} == EXPECTED
    assert index.broken == {}


def test_one_operator_reads_one_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: read.append(self.name) or original(self, *a, **k))
    assert HeaderIndex([tree]).find("aclnnPlain") is not None
    assert read == ["aclnn_plain.h"]


def test_variants_are_found_in_the_header_of_their_base(tmp_path: Path) -> None:
    (tmp_path / "aclnnop").mkdir()
    text = "".join(
        f"aclnnStatus {name}GetWorkspaceSize(aclTensor *x, {TAIL});\n" for name in ("aclnnAdds", "aclnnInplaceAdd")
    )
    (tmp_path / "aclnnop" / "aclnn_add.h").write_text(text)
    for name in ("aclnnAdds", "aclnnInplaceAdd"):
        assert "aclnn_add.h" in file_names(name)
        assert HeaderIndex([tmp_path]).find(name).header.endswith("aclnn_add.h")


def test_a_broken_header_hides_no_other_and_is_reported(tree: Path) -> None:
    bad = tree / "aclnnop" / "aclnn_a_bad.h"
    bad.write_text(
        f"aclnnStatus aclnnDefaultGetWorkspaceSize(bool x = false, {TAIL});\n"
        f"aclnnStatus aclnnFineGetWorkspaceSize(bool x, {TAIL});\naclnnStatus aclnnTailGetWorkspaceSize(bool x);\n"
        "aclnnStatus aclnnOpenGetWorkspaceSize(bool x"
    )
    index = HeaderIndex([tree])
    assert set(index.names()) == {*EXPECTED, "aclnnFine"}
    (reason,) = index.broken.values()
    assert all(part in reason for part in ("aclnnDefault", "aclnnTail", "aclnnOpen"))
    assert HeaderIndex([tree]).names() == index.names()  # from the cache
    again = HeaderIndex([tree])
    again.names()
    assert again.broken == index.broken


def test_cffi_is_the_judge_of_a_type(tree: Path) -> None:
    (tree / "aclnnop" / "aclnn_strange.h").write_text(
        f"aclnnStatus aclnnStrangeGetWorkspaceSize(const SomeType *x, {TAIL});"
    )
    index = HeaderIndex([tree])
    assert index.find("aclnnStrange") is None
    assert "SomeType" in next(iter(index.broken.values()))


def test_the_first_directory_and_the_upper_folder_win(tmp_path: Path) -> None:
    def header(path: Path, ctype: str) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "aclnn_twice.h").write_text(f"aclnnStatus aclnnTwiceGetWorkspaceSize({ctype} n, {TAIL});")

    header(tmp_path / "vendor" / "aclnnop", "int8_t")
    header(tmp_path / "cann" / "aclnnop", "int32_t")
    header(tmp_path / "cann" / "aclnnop" / "level2", "int64_t")
    assert HeaderIndex([tmp_path / "vendor", tmp_path / "cann"]).find("aclnnTwice").parameters[0].ctype == "int8_t"
    index = HeaderIndex([tmp_path / "cann"])
    index.names()
    assert index.find("aclnnTwice").parameters[0].ctype == "int32_t"


def test_a_changed_added_or_removed_header_is_noticed(tree: Path) -> None:
    HeaderIndex([tree]).names()
    path = tree / "aclnnop" / "aclnn_plain.h"
    path.write_text(f"aclnnStatus aclnnRenamedGetWorkspaceSize(const aclTensor *x, {TAIL});")
    (tree / "aclnnop" / "aclnn_macro.h").unlink()
    (tree / "aclnnop" / "aclnn_new.h").write_text(f"aclnnStatus aclnnNewGetWorkspaceSize(aclTensor *x, {TAIL});")
    names = HeaderIndex([tree]).names()
    assert "aclnnRenamed" in names
    assert "aclnnNew" in names
    assert not {"aclnnPlain", "aclnnMacro"} & set(names)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": [1]}', "\0\0"])
def test_a_spoiled_cache_is_as_good_as_none(tree: Path, own_cache: Path, content: str) -> None:
    expected = HeaderIndex([tree]).names()
    (file,) = (own_cache / "aclnn-py").glob("headers-*.json")
    file.write_text(content)
    assert HeaderIndex([tree]).names() == expected
    assert set(json.loads(file.read_text())) == {str(tree / "aclnnop" / name) for name in ODDITIES}


def test_without_a_place_for_the_cache_it_works_all_the_same(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")  # a directory below it cannot be made, also not by root
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert set(HeaderIndex([tree]).names()) == set(EXPECTED)


def test_concurrent_writers_leave_a_whole_cache(tree: Path, own_cache: Path) -> None:
    found: list[set[str]] = []
    threads = [threading.Thread(target=lambda: found.append(set(HeaderIndex([tree]).names()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [set(EXPECTED)] * 8
    (file,) = (own_cache / "aclnn-py").iterdir()
    assert len(json.loads(file.read_text())) == len(ODDITIES)


def test_include_directories_of_each_layout(tmp_path: Path) -> None:
    layout = {
        "vendor/op_api/lib/libcust_opapi.so": "vendor/op_api/include",
        "cann/lib64/libopapi_math.so": "cann/include",
        "old/op_api/lib/linux/x86_64/libopapi.so": "old/op_api/include",
    }
    for include in layout.values():
        (tmp_path / include).mkdir(parents=True)
    (tmp_path / "root" / "opp" / "include").mkdir(parents=True)
    found = include_directories([tmp_path / path for path in layout], [tmp_path / "root"])
    assert found == [*(tmp_path / path for path in layout.values()), tmp_path / "root/opp/include"]


def test_own_declarations_survive_the_way_through_headers() -> None:
    root = Path(signatures.__file__).parents[1]
    cdefs = root / "cdefs" if (root / "cdefs").is_dir() else Path(signatures.__file__).parent / "_cdefs"
    index = HeaderIndex([cdefs / "ops"])
    for name, ours in signatures.known().items():
        if ours.header.startswith("cdefs"):
            assert index.find(name).parameters == ours.parameters


def run_cli(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aclnn_py", *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)


def test_check_passes_on_equal_headers_and_fails_on_a_real_difference(tmp_path: Path) -> None:
    folder = tmp_path / "aclnnop"
    folder.mkdir()
    ours = signatures.builtin("aclnnMoeTokenPermuteWithEpGrad")
    path = folder / "aclnn_moe_token_permute_with_ep_grad.h"
    path.write_text(f"{ours};")
    same = run_cli("check", "--include", str(tmp_path))
    assert (same.returncode, same.stderr) == (0, "")
    assert "1 of" in same.stdout

    path.write_text(f"{ours};".replace("numTopk", "topkNum"))
    renamed = run_cli("check", "--include", str(tmp_path))
    assert renamed.returncode == 0
    assert "numTopk is topkNum there" in renamed.stdout

    path.write_text(f"{ours};".replace("int64_t numTopk", "int32_t numTopk"))
    different = run_cli("check", "--include", str(tmp_path))
    assert different.returncode == 1
    assert "DIFFERENT aclnnMoeTokenPermuteWithEpGrad" in different.stdout
    assert "int32_t numTopk" in different.stdout


def test_check_with_no_headers_says_so(tmp_path: Path) -> None:
    nothing = run_cli("check", "--include", str(tmp_path))
    assert nothing.returncode == 1
    assert "--include" in nothing.stderr
