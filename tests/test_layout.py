"""The shape of the package: who may import whom, what an import costs, and documentation that runs."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import aclnn_py

PACKAGE = Path(aclnn_py.__file__).resolve().parent
GENERATED = {"aclnn_py._ffi", "aclnn_py._signatures"}
LARGEST = 420  # lines

# Imports go down this list, or stay within one line of it; the first matching prefix counts.
LAYERS = [
    ("interop", "port", "cli", "demo", "bench", "stubs", "__main__"),
    ("ops", "catalog"),
    ("executor", "launch"),
    ("backends", "_backend", "arguments"),
    ("descriptors", "device_array", "arrays", "formats"),
    ("runtime", "_device", "_memory", "_pool", "_streams", "_events"),
    ("library", "_discovery", "signatures", "headers"),
    ("errors", "dtypes", "_status", "_ffi", "_signatures"),
]
# beside the layers: these stand on little, and few may stand on them
REFERENCE_SEES = {"errors", "dtypes", "reference"}
REFERENCE_IS_SEEN_BY = {"reference", "backends", "ops", "cli"}
THIRD_PARTY = {
    "": {"numpy", "_cffi_backend"},
    "dtypes": {"numpy", "ml_dtypes"},
    "interop": {"numpy", "ml_dtypes", "torch", "torch_npu"},
    "port": {"numpy", "tree_sitter", "tree_sitter_c", "tree_sitter_cpp"},
}
# may be imported inside functions only
LAZY = {"ml_dtypes", "torch", "torch_npu", "tree_sitter", "tree_sitter_c", "tree_sitter_cpp"}
# but for these, which are imported by those who want torch
WANTS_TORCH = {"aclnn_py.interop.torch", "aclnn_py.interop._library"}


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("aclnn_py", *path.relative_to(PACKAGE).with_suffix("").parts)
        if "_cdefs" not in parts and "src" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def part_of(module: str) -> str:
    """Name below the package: ``ops`` for ``aclnn_py.ops.ep``."""
    return module.split(".")[1] if "." in module else ""


def rank(part: str) -> int | None:
    return next((-i for i, layer in enumerate(LAYERS) if part in layer), None)


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[tuple[str, bool]]:
    """Yield (full name, whether it happens when the module is imported) of everything a module imports."""
    is_package = modules()[module].name == "__init__.py"

    def walk(node: ast.AST, at_import: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, at_import
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    parents = module.split(".")
                    parents = parents[: len(parents) - child.level + is_package]
                    base = ".".join([*parents, *filter(None, [base])])
                for alias in child.names:
                    full = f"{base}.{alias.name}"
                    yield (full if full in modules() else base), at_import
            else:
                nested = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from walk(child, at_import and not nested)

    yield from walk(tree(module), True)


def ours(module: str) -> Iterator[tuple[str, bool]]:
    return ((name, early) for name, early in imports(module) if name.split(".")[0] == "aclnn_py")


# -- arrows


def test_every_module_has_its_place() -> None:
    known = {name for layer in LAYERS for name in layer} | {"", "reference", "emulator"}
    assert {part_of(module) for module in modules()} <= known


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_go_one_way(module: str) -> None:
    mine = rank(part_of(module))
    for name, _ in ours(module):
        part = part_of(name)
        if part == "reference":
            assert part_of(module) in REFERENCE_IS_SEEN_BY, f"{module} imports {name}"
        elif part_of(module) == "reference":
            assert part in REFERENCE_SEES, f"{module} imports {name}"
        elif part == "":
            assert part_of(module) in ("cli", "demo"), f"{module} imports the package itself"
        elif mine is not None and part != "emulator":
            theirs = rank(part)
            assert theirs is not None
            assert theirs <= mine, f"{module} imports {name}, which stands above it"


def test_no_two_modules_import_each_other() -> None:
    graph = {module: {name for name, early in ours(module) if early and name != module} for module in modules()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path, module])
        if module not in done:
            for name in sorted(graph.get(module, ())):
                visit(name, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_emulator_package_needs_nothing_of_ours() -> None:
    """It is used before any library is opened, also by the build of C samples."""
    assert list(ours("aclnn_py.emulator")) == []


def test_signatures_needs_only_the_standard_library() -> None:
    """The build hook runs it where NumPy is not installed."""
    early = {name.split(".")[0] for name, at_import in imports("aclnn_py.signatures") if at_import}
    assert early <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("module", sorted(modules()))
def test_third_party_packages_stay_where_they_belong(module: str) -> None:
    allowed = THIRD_PARTY.get(part_of(module), THIRD_PARTY[""])
    for name, early in imports(module):
        top = name.split(".")[0]
        if top == "aclnn_py" or top in sys.stdlib_module_names:
            continue
        assert top in allowed, f"{module} imports {name}"
        assert not (early and top in LAZY - ({"torch"} if module in WANTS_TORCH else set())), f"{module} imports {name}"


# -- one seam each


def mentioned(module: str) -> set[str]:
    """Names that the code of a module uses, strings and comments aside."""
    return {node.attr for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)} | {
        node.id for node in ast.walk(tree(module)) if isinstance(node, ast.Name)
    }


@pytest.mark.parametrize("module", sorted(set(modules()) - GENERATED))
def test_only_the_library_module_touches_dynamic_loading(module: str) -> None:
    touched = mentioned(module) & {"dlopen", "dlsym", "dlclose", "dladdr", "CDLL", "cdll", "LoadLibrary"}
    touched |= {name for name, _ in imports(module) if name.startswith("ctypes")}
    assert not touched or part_of(module) in ("library", "_discovery"), touched


@pytest.mark.parametrize("module", sorted(set(modules()) - GENERATED))
def test_only_check_turns_a_code_into_an_exception(module: str) -> None:
    """An exception made by hand with a code would miss the class of that code and its hint."""
    if part_of(module) == "errors":
        return
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name = ast.unparse(node.exc.func).split(".")[-1]
            code = node.exc.args[0]
            if isinstance(code, ast.Constant) and isinstance(code.value, int):
                # 161002 has another class in general; this one is ours
                assert name == "IndexOutOfRangeError", f"{module}:{node.lineno} raises {name} with a code"


@pytest.mark.parametrize("module", sorted(set(modules()) - GENERATED))
def test_modules_stay_small(module: str) -> None:
    assert len(modules()[module].read_text(encoding="utf-8").splitlines()) <= LARGEST


# -- what an import costs


def run(code: str, variables: dict[str, str] | None = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=120, check=False, env=variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_opens_no_library_and_loads_nothing_heavy() -> None:
    heavy, opened, threads, changed = run("""
import json, os, sys, threading
import numpy
before = dict(os.environ)
import aclnn_py
heavy = [name for name in ("ml_dtypes", "torch", "torch_npu", "cffi", "pycparser", "hypothesis", "pytest",
                           "tree_sitter", "aclnn_py.cli", "aclnn_py.demo", "aclnn_py._signatures", "aclnn_py.interop",
                           "aclnn_py.port") if name in sys.modules]
with open("/proc/self/maps") as maps:
    text = maps.read()
opened = [name for name in ("libascendcl", "libnnopbase", "libopapi", "libacl_rt") if name in text]
print(json.dumps([heavy, opened, threading.active_count(), before != dict(os.environ)]))
""")
    assert heavy == []
    assert opened == []
    assert threads == 1
    assert not changed


def test_importing_works_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken installs are met when a backend is asked for; a torch that cannot be imported is never met."""
    (tmp_path / "torch.py").write_text("raise ImportError('libhccl.so is missing')")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libascendcl.so").write_text("not a library")
    for name, value in {
        "PYTHONPATH": str(tmp_path), "ASCEND_HOME_PATH": str(tmp_path / "empty"), "ASCEND_OPP_PATH": "",
        "ASCEND_RT_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": str(tmp_path / "lib"), "ACLNN_PY_BACKEND": "nonsense",
        "ACLNN_PY_PRODUCT": "nonsense", "ACLNN_PY_LIBRARY_PATH": str(tmp_path / "lib"), "HOME": "/nonexistent",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert run("""
import json, numpy as np, aclnn_py
x, index = np.ones((1, 1), np.float32), np.zeros(1, np.int32)
backend = aclnn_py.get_backend("reference", product="A2")
print(json.dumps(aclnn_py.moe_finalize_routing_v2_grad(x, index, backend=backend).grad_expanded_x.tolist()))
""") == [[1.0]]


def test_reloading_and_leaving_are_clean() -> None:
    assert run("import importlib, json, aclnn_py; importlib.reload(aclnn_py); print(json.dumps(aclnn_py.__all__[:1]))")


# -- public names


def public() -> list[str]:
    return sorted(aclnn_py.__all__)


def test_all_is_complete_sorted_and_exists() -> None:
    assert list(aclnn_py.__all__) == sorted(set(aclnn_py.__all__))
    defined = {
        name for name, value in vars(aclnn_py).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }  # fmt: skip
    assert defined == set(aclnn_py.__all__)
    star: dict[str, Any] = {}
    exec("from aclnn_py import *", star)
    assert set(aclnn_py.__all__) <= set(star)


def test_the_promised_names_are_public() -> None:
    promised = {
        "AclnnError", "Backend", "DeviceArray", "Executor", "MoeFinalizeRoutingV2Grad", "MoeTokenUnpermuteWithEpGrad",
        "available_backends", "column_major_row_idx", "declare", "get_backend", "moe_finalize_routing_v2",
        "moe_finalize_routing_v2_grad", "moe_init_routing_v2", "moe_token_permute_with_ep",
        "moe_token_permute_with_ep_grad", "moe_token_unpermute_with_ep", "moe_token_unpermute_with_ep_grad",
        "parse_header", "row_major_row_idx", "status_name",
    }  # fmt: skip
    assert promised <= set(aclnn_py.__all__)


@pytest.mark.parametrize("name", public())
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(aclnn_py, name)
    text = thing.__doc__ or ""
    assert text.strip(), f"{name} has no docstring"
    assert not text.startswith(f"{name}("), "a generated docstring says nothing"
    needs_example = inspect.isfunction(thing) or (
        inspect.isclass(thing) and not issubclass(thing, (Exception, tuple)) and name not in ("Backend", "Parameter")
    )
    if needs_example:
        assert ">>> " in text, f"{name} has no example"


@pytest.mark.parametrize("name", [n for n in public() if inspect.isfunction(getattr(aclnn_py, n))])
def test_the_example_of_a_function_runs(name: str) -> None:
    """Not all of its lines may be skipped."""
    examples = doctest.DocTestParser().get_examples(getattr(aclnn_py, name).__doc__)
    assert any(doctest.SKIP not in example.options for example in examples)


DOCUMENTED = sorted(set(modules()) - {"aclnn_py.__main__"} - GENERATED)
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def doctests() -> dict[str, str]:
    """Run the examples of all modules in a process that has opened no library; return the report of each."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("ACLNN_", "ASCEND_"))}
    code = f"""
import contextlib, doctest, importlib, io, json, numpy, aclnn_py
reports = {{}}
for name in {[name for name in DOCUMENTED if HAS_TORCH or name not in WANTS_TORCH]!r}:
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        doctest.testmod(importlib.import_module(name), extraglobs={{"np": numpy, "aclnn_py": aclnn_py}})
    reports[name] = report.getvalue()
print(json.dumps(reports))
"""
    return dict(run(code, variables))


@pytest.mark.parametrize("module", DOCUMENTED)
def test_examples_in_docstrings_give_what_they_say(module: str, doctests: dict[str, str]) -> None:
    if module in WANTS_TORCH and not HAS_TORCH:
        pytest.skip("torch is not installed")
    assert doctests[module] == ""
