"""aclnn-py port: each construct by both engines, statuses, inputs, and the way back through the emulator."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from aclnn_py import cli
from aclnn_py.port import Ported, port, read, signatures_of
from aclnn_py.port.compare import differences
from aclnn_py.port.emit import emit
from aclnn_py.port.log import round_trip
from aclnn_py.port.model import Program
from aclnn_py.port.sources import split_page

SAMPLES = Path(__file__).parent / "data" / "samples"
PROTOTYPES = SAMPLES / "prototypes.h"
EXAMPLES = Path(__file__).parents[1] / "examples" / "c"

reads = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tree_sitter", "tree_sitter_cpp")),
    reason="tree-sitter is not installed",
)
records = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@dataclass(frozen=True)
class Expected:
    """What the port of a sample says; ``static`` only where the source is read."""

    script: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    notes: str = ""  # of the static engine
    status: int = 0  # of the static engine
    runs: bool = True  # on the emulator
    differs: str = ""  # in the record of the script from that of the sample


TABLE = {
    "add": Expected(
        ('alpha=aclnn_py.Scalar(1.2, "float32")', "out = np.zeros((2, 3), np.float32)"),
        ("self = np.array([[0.1, 1.5, -2], [3e-3, 4.0, 0.5]], np.float32)", 'print("result:", out)'),
    ),
    "arrays": Expected(
        (
            "scales=[0.1, 2.5]", "mask=[True, False, True]", 'layout="TND"', "aclnn_py.declare(",
            'weights=[aclnn_py.Scalar(0.5, "float32"), aclnn_py.Scalar(3.0, "float32")]',
        ), runs=False,
    ),
    "cases": Expected(static=("def RunCase(", "rtol=0", "atol=1e-5", "RunCase(")),
    "empty": Expected(("np.array(2.5, np.float32)", "np.zeros((0, 3), np.float32)")),
    "fills": Expected(("np.resize(np.arange(8, dtype=np.float32), (16, 32))", "np.full((16, 32), 0.5, np.float32)")),
    "formats": Expected(
        ('"NCHW"', "np.ones((2, 1, 16, 16), np.float16)", '"FRACTAL_NZ"', "shape=(16, 32)"), runs=False
    ),
    "golden": Expected(static=("np.testing.assert_array_equal(", "[[4, 5], [5, 6]]")),
    "half_patterns": Expected(("bfloat16", "[[1.0, 2.0], [0.1, -5.0]]"), ("0x3F80, 0x4000, 0x3DCD, 0xC0A0",)),
    "hccl": Expected((), notes="", status=1, runs=False),
    "in_place": Expected(('aclnn_py.op("aclnnInplaceAdd")(selfRef=', "alpha=2")),
    "int_array": Expected(("dims=[1]", "keepDims=True", 'dtype="float32"')),
    "irregular": Expected(('data["', "np.zeros((10, 20), np.float32)")),
    "long_read": Expected(notes=r"long_read\.cpp|common\.h.*: 16 bytes are read back"),
    "loop": Expected(("for dim in [0, 1]:\n    aclnn_py.op(", "dim=dim")),
    "null_optional": Expected(('aclnn_py.op("aclnnMoeFinalizeRoutingV2Grad")(\n    gradY=', "does not read back")),
    "offset": Expected(("[1:, 1:3]",), differs="strides|offset|storage"),
    "random": Expected(notes="", status=2),
    "several_calls": Expected(
        ('aclnn_py.op("aclnnExp")(self=', 'aclnn_py.op("aclnnLog")(self='),
        ('aclnn_py.op("aclnnExp")(self=x, out=middle)', "self=middle, out=out)"),
    ),
    "short_data": Expected(
        static=("np.empty(3, np.float32)", ".flat[:1] = [7]"), notes="12 bytes are copied",
        differs="1 of 3 values|2 of 3 values",
    ),
    "struct_bytes": Expected(status=2),
    "structs": Expected(("for ", '"float32")')),
    "templates": Expected(("np.int32", "1.5")),
    "tensor_list": Expected((", dim=0, out=out)", "tensors=[")),
    "transposed": Expected((".T\n",), differs="strides|storage"),
    "unique_ptr": Expected(("[[-1, 2], [-3, 4]]",)),
    "unread_file": Expected(notes="unread_file"),
    "with_ep": Expected(("rangeOptional=(0, 6)", "range is null"), differs="rangeOptional: null, recorded array"),
    "wrong_type": Expected(notes="sees the raw bytes"),
}  # fmt: skip
COMPLETE = [name for name, expected in TABLE.items() if expected.status == 0]


def ported(name: str) -> Ported:
    return port(SAMPLES / f"{name}.cpp", signature=[PROTOTYPES], data_file=f"{name}.npz")


@pytest.fixture(scope="module")
def recorded(emulator_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Program, Path]]:
    """Return what records a sample, once: the program and the emulator's log."""
    from aclnn_py.port.record import record

    prototypes = PROTOTYPES.read_text()

    @cache
    def found(name: str) -> tuple[Program, Path]:
        log = tmp_path_factory.mktemp(name) / "sample.jsonl"
        paths = [SAMPLES / f"{name}.cpp"]
        return record(paths, signature=signatures_of([prototypes]), declarations=[prototypes], log=log), log

    return found


def test_the_table_has_every_sample() -> None:
    assert {path.stem for path in SAMPLES.glob("*.cpp")} == {*TABLE, "invalid_arguments", "invalid_syntax"}


# -- constructs


@reads
@pytest.mark.parametrize("name", TABLE)
def test_what_the_source_says(name: str) -> None:
    result, expected = ported(name), TABLE[name]
    for text in (*expected.script, *expected.static):
        assert text in result.script
    assert (1 if result.refused else 2 if result.missing else 0) == expected.status
    notes = "\n".join(result.notes)
    assert re.search(expected.notes, notes) if expected.notes else notes == ""


@reads
def test_most_scripts_are_short() -> None:
    lengths = [len([line for line in ported(n).script.splitlines() if line]) for n in COMPLETE]
    assert sorted(lengths)[len(lengths) // 2] <= 15
    assert max(lengths) <= 30


@records
@pytest.mark.emulator
@pytest.mark.parametrize("name", COMPLETE)
def test_what_the_run_says(name: str, recorded: Callable[[str], tuple[Program, Path]]) -> None:
    program, _ = recorded(name)
    result = emit(program, lookup=signatures_of([PROTOTYPES.read_text()]))
    for text in TABLE[name].script:
        assert text in result.script
    assert result.missing == ()
    assert program.refused is None


# -- the way back


@records
@pytest.mark.emulator
@pytest.mark.parametrize("engine", [pytest.param("static", marks=reads), "record"])
@pytest.mark.parametrize("name", [name for name in COMPLETE if TABLE[name].runs])
def test_the_script_calls_what_the_sample_calls(
    name: str, engine: str, recorded: Callable[[str], tuple[Program, Path]], emulator_lib: Path, tmp_path: Path
) -> None:
    program, log = recorded(name)
    result = ported(name) if engine == "static" else emit(program, data_file=f"{name}.npz")
    script, again = tmp_path / f"{name}.py", tmp_path / "script.jsonl"
    script.write_text(result.script)
    if result.data:
        np.savez(tmp_path / f"{name}.npz", **result.data)
    variables = {
        **os.environ, "ACLNN_PY_BACKEND": "emulator", "ACLNN_PY_LIBRARY_PATH": str(emulator_lib),
        "ACLNN_EMULATOR_RECORD": str(again),
    }  # fmt: skip
    done = subprocess.run([sys.executable, str(script)], env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = round_trip(log, again)
    if TABLE[name].differs:
        found = [text for text in found if not re.search(TABLE[name].differs, text)]
    assert found == []


@reads
@records
@pytest.mark.emulator
@pytest.mark.parametrize("name", [name for name, expected in TABLE.items() if expected.status != 1])
def test_both_engines_agree(name: str, recorded: Callable[[str], tuple[Program, Path]]) -> None:
    from aclnn_py.port.static import trace

    (sample,) = read([str(SAMPLES / f"{name}.cpp")])
    static = trace(sample.files, signature=signatures_of([PROTOTYPES.read_text()]))
    assert differences(static, recorded(name)[0]) == []


# -- the command


def command(*arguments: object) -> int:
    return cli.main(["port", *map(str, arguments)])


@reads
def test_the_script_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(SAMPLES / "add.cpp") == 0
    captured = capsys.readouterr()
    assert captured.out == ported("add").script
    assert captured.err == ""


@reads
def test_the_script_and_its_data_go_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "made.py"
    assert command(SAMPLES / "irregular.cpp", "-o", script) == 0
    assert capsys.readouterr().out == ""
    assert 'with_name("made.npz")' in script.read_text()
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "ACLNN_PY_BACKEND": "reference"}, capture_output=True,
        text=True, timeout=120, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "-10." in done.stdout.split("\n")[0]


@reads
def test_data_need_a_named_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(SAMPLES / "irregular.cpp") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "name the script with -o" in captured.err


@reads
def test_an_incomplete_port_is_told_and_stops_where_it_ends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(SAMPLES / "random.cpp", "-o", tmp_path / "random_input.py") == 2
    assert re.search(r"random\.cpp:\d+(-\d+)?: .*TODO in the script", capsys.readouterr().err)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "random_input.py")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert re.search(r"NotImplementedError: x: random\.cpp:\d+", done.stderr)


@reads
def test_hccl_is_refused_with_the_call_as_a_comment(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(SAMPLES / "hccl.cpp", "--signature", PROTOTYPES) == 1
    captured = capsys.readouterr()
    assert "refused: it needs HCCL" in captured.err
    assert '# aclnn_py.op("aclnnAllGatherMatmul")(' in captured.out
    assert all(line.startswith("#") for line in captured.out.splitlines())


@pytest.mark.parametrize(("name", "line"), [("invalid_arguments", 11), ("invalid_syntax", 8)])
@pytest.mark.parametrize("engine", [pytest.param("static", marks=reads), pytest.param("record", marks=records)])
def test_invalid_cpp_gives_the_place(name: str, line: int, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--record"] if engine == "record" else []
    assert command(SAMPLES / f"{name}.cpp", *options) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(rf"{name}\.cpp:{line}:\d+: ", captured.err)


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(tmp_path / "no.cpp") == 1
    assert f"{tmp_path}/no.cpp: no such file" in capsys.readouterr().err
    assert command(tmp_path) == 1
    assert "a directory, not a file" in capsys.readouterr().err


def test_without_tree_sitter_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "tree_sitter" in name else real(name))
    assert command(SAMPLES / "add.cpp") == 1
    assert "pip install 'aclnn-py[port]'" in capsys.readouterr().err


@reads
@pytest.mark.parametrize("page", ["README.md", "docs/porting.md"])
def test_the_documentation_shows_what_the_command_prints(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[1]
    text = (root / page).read_text(encoding="utf-8")
    shown = re.findall(r"^<!-- ported: (\S+) -->\n```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert shown
    for name, script in shown:
        assert command(root / name) == 0
        assert capsys.readouterr().out == script


# -- inputs


@reads
def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open(SAMPLES / "add.cpp") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert command("-") == 0
    assert capsys.readouterr().out.startswith("# Ported from stdin by aclnn-py.\n")


PAGE = """# aclnnExampleNegate

```Cpp
aclnnStatus aclnnExampleNegateGetWorkspaceSize(
    const aclTensor *x, const aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor)
```

## Sample

  ```Cpp
{sample}
  ```

```sh
bash build.sh
```
"""


@reads
def test_a_page_gives_sample_and_prototype(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (SAMPLES / "add.cpp").read_text()
    text = re.sub(
        r"aclnnAddGetWorkspaceSize\(self, other, alpha, out", "aclnnExampleNegateGetWorkspaceSize(self, out", text
    )
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(sample=text.replace("aclnnAdd(", "aclnnExampleNegate(")))
    assert command(page) == 0
    script = capsys.readouterr().out
    assert "aclnn_py.declare(" in script
    assert 'aclnn_py.op("aclnnExampleNegate")(x=self, out=out)\n' in script


def test_lines_of_a_page_keep_their_numbers() -> None:
    (program,), rest = split_page(PAGE.format(sample="int main() { aclnnXGetWorkspaceSize(a); }"))
    assert program.splitlines().index("int main() { aclnnXGetWorkspaceSize(a); }") == PAGE.splitlines().index(
        "{sample}"
    )
    assert "aclnnExampleNegateGetWorkspaceSize" in rest
    assert "build.sh" not in rest


def test_a_page_without_a_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n\n```cpp\nint f();\n```\n")
    assert command(page) == 1
    assert "page.md: no C++ block with a main function" in capsys.readouterr().err


def test_headers_in_quotes_are_read_first() -> None:
    (sample,) = read([str(EXAMPLES / "token_unpermute_with_ep_grad.cpp")])
    assert [Path(name).name for name, _ in sample.files] == ["sample.h", "token_unpermute_with_ep_grad.cpp"]
    assert sample.title == "token_unpermute_with_ep_grad.cpp"


@reads
def test_several_samples_need_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = SAMPLES / "add.cpp", SAMPLES / "random.cpp"
    assert command(*both, "-o", tmp_path / "one.py") == 1
    assert "2 samples need a directory" in capsys.readouterr().err
    assert command(*both, "-o", tmp_path) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["add.py", "random.py"]


def test_one_main_among_several_files_is_one_program(tmp_path: Path) -> None:
    (tmp_path / "helper.cpp").write_text("int helper() { return 1; }\n")
    (tmp_path / "main.cpp").write_text("int helper();\nint main() { return helper(); }\n")
    (sample,) = read([str(tmp_path / "main.cpp"), str(tmp_path / "helper.cpp")])
    assert {Path(name).name for name, _ in sample.files} == {"helper.cpp", "main.cpp"}
    assert len(sample.paths) == 2
