"""Choosing what serves a call: by name, by variable, by what is installed; never another than asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclnn_py
from aclnn_py import _discovery, backends, emulator, errors, signatures
from aclnn_py._ffi import ffi
from aclnn_py.backends import Backend


@pytest.fixture(autouse=True)
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with nothing installed, whatever this one has; returns its root directory."""
    for name in (
        "ACLNN_PY_BACKEND", "ACLNN_PY_PRODUCT", "ACLNN_PY_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME",
        "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "ASCEND_RT_VISIBLE_DEVICES", "LD_LIBRARY_PATH",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_discovery, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(backends, "_warned", False)
    monkeypatch.setattr(backends, "_native", {})
    return tmp_path / "system"


# -- by name


def test_the_reference_needs_nothing() -> None:
    backend = aclnn_py.get_backend("reference")
    assert isinstance(backend, Backend)
    assert (backend.name, backend.product) == ("reference", "A2")
    assert "NumPy" in backend.describe()
    assert "A2" in backend.describe()
    assert backend.name in repr(backend)


def test_the_same_request_gives_the_same_object() -> None:
    assert aclnn_py.get_backend("reference") is aclnn_py.get_backend("reference", product="A2")
    assert aclnn_py.get_backend("reference") is aclnn_py.get_backend("reference", product="Ascend910B1")
    assert aclnn_py.get_backend("reference", product="A3") is not aclnn_py.get_backend("reference")


@pytest.mark.parametrize("name", ["gpu", "", "NPU", "cpu", "numpy", "Reference"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="npu, emulator, reference or auto"):
        aclnn_py.get_backend(name)


@pytest.mark.parametrize("value", [3, b"reference", ["reference"], np.zeros(1)], ids=str)
def test_what_is_no_backend_is_a_type_error(value: Any) -> None:
    x, index = np.ones((1, 1), np.float32), np.zeros(1, np.int32)
    with pytest.raises(TypeError, match="backend takes a name or a Backend"):
        aclnn_py.moe_finalize_routing_v2_grad(x, index, backend=value)
    with pytest.raises(TypeError, match="backend takes a name or a Backend"):
        aclnn_py.Executor("aclnnMoeFinalizeRoutingV2Grad", backend=value)


def elsewhere(code: str, system: Path, **variables: str) -> Any:
    """Run code in a process that has opened no library, on the same bare host; return what it sets ``result`` to."""
    prelude = f"""
import json, numpy as np, aclnn_py
from pathlib import Path
from aclnn_py import _discovery, errors
_discovery.SYSTEM = Path({str(system)!r})
x, index = np.ones((1, 1), np.float32), np.zeros(1, np.int32)
"""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", f"{prelude}{code}\nprint(json.dumps(result))"],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["npu", "emulator"])
def test_a_named_backend_that_is_missing_raises_with_places_and_advice(name: str, bare_host: Path) -> None:
    code = f"""
result = []
for _ in range(2):
    try:
        aclnn_py.get_backend({name!r})
    except errors.LibraryNotFoundError as error:
        result.append([isinstance(error, ImportError), error.tried, error.hint, str(error)])
"""
    first, second = elsewhere(code, bare_host)
    assert first == second, "the second answer is the first"
    is_import_error, tried, hint, text = first
    assert is_import_error
    assert tried, "it says where it looked"
    for place, why in tried:
        assert place in text
        assert why in text
    assert hint in text
    assert ("set_env.sh" if name == "npu" else "aclnn-py emulator build") in hint
    if name == "npu":
        assert "reference" in hint, "and what would work here"
        assert any(str(bare_host) in place for place, _ in tried)


@pytest.mark.parametrize("name", ["npu", "emulator"])
def test_nothing_falls_back_silently(name: str, bare_host: Path) -> None:
    code = """
result = []
named = {} if "ACLNN_PY_BACKEND" in os.environ else dict(backend=NAME)
for call in (
    lambda: aclnn_py.moe_finalize_routing_v2_grad(x, index, **named),
    lambda: aclnn_py.Executor("aclnnMoeFinalizeRoutingV2Grad", x, index, **named),
    lambda: aclnn_py.get_backend(*named.values()),
):
    try:
        call()
    except errors.LibraryNotFoundError:
        result.append("refused")
result.append(aclnn_py.moe_finalize_routing_v2_grad(x, index, backend="reference").grad_expanded_x.tolist())
"""
    code = f"import os\nNAME = {name!r}\n{code}"
    expected = ["refused"] * 3 + [[[1.0]]]
    assert elsewhere(code, bare_host) == expected
    assert elsewhere(code, bare_host, ACLNN_PY_BACKEND=name) == expected


# -- by variable


def test_the_variables_are_defaults_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_BACKEND", "reference")
    monkeypatch.setenv("ACLNN_PY_PRODUCT", "950")
    assert (aclnn_py.get_backend().name, aclnn_py.get_backend().product) == ("reference", "950")
    assert aclnn_py.get_backend("reference").product == "950"
    assert aclnn_py.get_backend(product="A3").product == "A3", "the argument comes first"
    monkeypatch.setenv("ACLNN_PY_BACKEND", "emulator")
    assert aclnn_py.get_backend("reference").name == "reference", "the argument comes first"
    for name in ("ACLNN_PY_BACKEND", "ACLNN_PY_PRODUCT"):
        monkeypatch.setenv(name, "")
    assert (aclnn_py.get_backend().name, aclnn_py.get_backend().product) == ("reference", "A2"), "empty is not set"
    monkeypatch.setenv("ACLNN_PY_BACKEND", "auto")
    assert aclnn_py.get_backend().name == "reference"


@pytest.mark.parametrize(("variable", "says"), [("ACLNN_PY_BACKEND", "backend"), ("ACLNN_PY_PRODUCT", "product")])
def test_a_wrong_variable_is_refused(variable: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "nonsense")
    with pytest.raises(ValueError, match=rf"{says}.*'nonsense'"):
        aclnn_py.get_backend()


def test_the_product_of_the_variable_decides_the_statuses(monkeypatch: pytest.MonkeyPatch) -> None:
    x, scales = np.ones((1, 2), np.float16), np.ones((1, 1), np.float32)
    args = (x, np.zeros(1, np.int32), x, scales)
    with pytest.raises(errors.InnerNullptrError, match="float16"):
        aclnn_py.moe_finalize_routing_v2_grad(*args, backend="reference")
    monkeypatch.setenv("ACLNN_PY_PRODUCT", "950")
    assert aclnn_py.moe_finalize_routing_v2_grad(*args, backend="reference").grad_scales.dtype == np.float32


# -- products


@pytest.mark.parametrize(
    ("soc", "product"),
    [
        ("A2", "A2"), ("a3", "A3"), ("950", "950"), ("Ascend910B1", "A2"), ("Ascend910B4-1", "A2"),
        ("ascend910b", "A2"), ("Ascend910_9391", "A3"), ("ascend910_93", "A3"), ("Ascend950PR_9599", "950"),
        ("ascend910_95", "950"), ("Ascend310P3", "310P"), ("Ascend310B4", "310B"), ("Ascend910A", "910A"),
    ],
)  # fmt: skip
def test_products_by_soc_name(soc: str, product: str) -> None:
    assert aclnn_py.get_backend("reference", product=soc).product == product


@pytest.mark.parametrize("product", ["A9", "", "Nvidia", "Ascend", "A2 "])
def test_an_unknown_product_is_refused(product: str) -> None:
    with pytest.raises(ValueError, match=r"product: got .*A2, A3, 950 or a SoC name"):
        aclnn_py.get_backend("reference", product=product)


def test_another_soc_family_is_known_but_no_operator_is_there() -> None:
    backend = aclnn_py.get_backend("reference", product="Ascend310P3")
    x, index = np.ones((1, 1), np.float32), np.zeros(1, np.int32)
    with pytest.raises(errors.UnsupportedError, match=r"A2, A3, 950.*310P") as caught:
        aclnn_py.moe_finalize_routing_v2_grad(x, index, backend=backend)
    assert caught.value.code == 207000


# -- auto, and what is here


def test_auto_is_the_reference_on_a_bare_host_and_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert aclnn_py.get_backend().name == "reference"
        assert aclnn_py.get_backend("auto").name == "reference"
    assert aclnn_py.available_backends() == ("reference",)


def test_auto_warns_once_of_an_npu_that_cannot_be_used(bare_host: Path) -> None:
    (bare_host / "dev").mkdir(parents=True)
    (bare_host / "dev/davinci0").touch()
    with pytest.warns(RuntimeWarning, match=r"NumPy reference serves.*CANN toolkit") as caught:
        assert aclnn_py.get_backend().name == "reference"
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert aclnn_py.get_backend().name == "reference"
        assert aclnn_py.available_backends() == ("reference",)


def test_auto_warns_of_a_cann_that_cannot_be_used(bare_host: Path) -> None:
    lib = bare_host / "usr/local/Ascend/cann/lib64"
    lib.mkdir(parents=True)
    for name in ("libascendcl.so", "libnnopbase.so", "libopapi.so"):
        (lib / name).write_text("not a library")
    with pytest.warns(RuntimeWarning, match="NumPy reference serves"):
        assert aclnn_py.get_backend().name == "reference"
    code = """
try:
    aclnn_py.get_backend("npu")
except errors.LibraryNotFoundError as error:
    result = str(error)
"""
    assert str(lib) in elsewhere(code, bare_host)


def test_a_warning_is_not_given_for_what_was_asked_for(bare_host: Path) -> None:
    (bare_host / "dev").mkdir(parents=True)
    (bare_host / "dev/davinci0").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert aclnn_py.get_backend("reference").name == "reference"


def test_a_built_emulator_is_available_but_never_automatic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "library_path", lambda: tmp_path)
    assert aclnn_py.available_backends() == ("emulator", "reference")
    assert aclnn_py.get_backend().name == "reference"


def test_asking_what_is_available_initialises_nothing() -> None:
    code = """
import json, aclnn_py
available = aclnn_py.available_backends()
aclnn_py.get_backend("reference")
from aclnn_py import library, runtime
with open("/proc/self/maps") as maps:
    opened = [name for name in ("libascendcl", "libnnopbase", "libopapi") if name in maps.read()]
print(json.dumps([available, opened]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    available, opened = json.loads(done.stdout)
    assert "reference" in available
    assert opened == []


# -- signatures through a backend


def test_a_backend_gives_signatures_and_refuses_unknown_ones() -> None:
    backend = aclnn_py.get_backend("reference")
    assert backend.signature("aclnnMoeInitRoutingV2").parameters[0].name == "x"
    with pytest.raises(errors.SymbolNotFoundError, match="aclnnNo") as caught:
        backend.signature("aclnnNo")
    assert caught.value.symbol == "aclnnNoGetWorkspaceSize"


def test_a_new_declaration_replaces_what_was_prepared_for_the_old_one(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stage one must never be called through the type of an earlier signature."""
    if backend.name == "reference":
        pytest.skip("the reference calls no C function")
    monkeypatch.setattr(signatures, "_declared", {})
    name = "aclnnMoeFinalizeRoutingV2"
    before = signatures.find(name)
    assert ffi.typeof(backend.plan(before)[0]) is signatures.pointer_type(before)
    declared = aclnn_py.declare(f"int {name}GetWorkspaceSize(double x, uint64_t *size, aclOpExecutor **executor);")
    assert signatures.pointer_type(declared) is not signatures.pointer_type(before)
    assert ffi.typeof(backend.plan(declared)[0]) is signatures.pointer_type(declared)
    monkeypatch.undo()
    assert ffi.typeof(backend.plan(before)[0]) is signatures.pointer_type(before)


# -- devices and products


@pytest.mark.parametrize("name", ["reference", "emulator"])
@pytest.mark.parametrize(("device", "error"), [(-1, ValueError), ("0", TypeError), (True, TypeError), (1.0, TypeError)])
def test_a_device_is_a_number_of_0_or_more(name: str, device: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="device takes"):
        aclnn_py.get_backend(name, device=device)


def test_a_product_is_a_name() -> None:
    with pytest.raises(TypeError, match="product takes"):
        aclnn_py.get_backend("reference", product=950)  # type: ignore[arg-type]


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("given", "soc", "product"),
    [
        ("A3", "Ascend910_93", "A3"),
        ("950", "Ascend950", "950"),
        ("Ascend910B3", "Ascend910B3", "A2"),
        ("310P", "Ascend310P3", "310P"),
        ("Ascend310P1", "Ascend310P1", "310P"),
    ],
)
def test_the_emulator_takes_any_product_until_its_first_use(
    emulator_lib: Path, given: str, soc: str, product: str
) -> None:
    code = f"""
import os, aclnn_py
before = dict(os.environ)
backend = aclnn_py.get_backend("emulator", product={given!r})
assert os.environ == before, "child processes would inherit it"
print(backend.runtime.soc_name(), backend.product)
"""
    env = {**os.environ, "ACLNN_PY_LIBRARY_PATH": str(emulator_lib)}
    for name in ("ACLNN_EMULATOR_SOC", "ACLNN_PY_PRODUCT"):
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    name, found = done.stdout.split()
    assert name.startswith(soc)
    assert found == product
