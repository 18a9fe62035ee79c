"""Any operator by name: calls, lists, outputs, stubs."""

from __future__ import annotations

import ast
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aclnn_py
from aclnn_py import cli, signatures, stubs


def add(backend: Any, x: np.ndarray, y: np.ndarray, alpha: Any = 1.0) -> np.ndarray:
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    aclnn_py.op("aclnnAdd", backend=backend)(x, y, alpha, out)
    return out


def test_an_operator_is_called_in_c_order_or_by_name(backend: Any) -> None:
    x, y = np.array([[1, 2], [3, 4]], np.float32), np.array([10, 20], np.float32)
    np.testing.assert_array_equal(add(backend, x, y, 2.0), x + 2 * y)
    out = np.empty_like(x)
    aclnn_py.op("aclnnAdd")(self=x, other=y, alpha=1, out=out, backend=backend)
    np.testing.assert_array_equal(out, x + y)


def test_the_dtype_of_a_scalar_can_be_forced(backend: Any) -> None:
    x = np.array([1, 2], np.int32)
    np.testing.assert_array_equal(add(backend, x, x, aclnn_py.Scalar(3, "int32")), 4 * x)


def test_an_in_place_operator_changes_its_argument(backend: Any) -> None:
    x = np.array([1, 2, 3], np.float32)
    aclnn_py.op("aclnnInplaceAdd", backend=backend)(x, np.ones(3, np.float32), 1.0)
    assert x.tolist() == [2, 3, 4]


def test_the_same_array_may_be_input_and_output(backend: Any) -> None:
    x = np.array([1, 2, 3], np.float32)
    aclnn_py.op("aclnnMul", backend=backend)(x, x, x)
    assert x.tolist() == [1, 4, 9]


def test_lists_of_tensors_and_arrays_of_integers(backend: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.empty((4, 3), np.float32)
    aclnn_py.op("aclnnCat", backend=backend)([x, 2 * x], 0, out)
    np.testing.assert_array_equal(out, np.concatenate([x, 2 * x]))
    turned = np.empty((3, 2), np.float32)
    aclnn_py.op("aclnnPermute", backend=backend)(x, [1, 0], turned)
    np.testing.assert_array_equal(turned, x.T)


def test_an_enum_is_given_by_name_or_value(backend: Any) -> None:
    x = np.array([1.5, -2.5], np.float32)
    for dtype in ("int32", "ACL_INT32", 3, np.int32):
        out = np.empty(2, np.int32)
        aclnn_py.op("aclnnCast", backend=backend)(x, dtype, out)
        assert out.tolist() == [1, -2]


def test_refused_arguments_name_the_c_signature(backend: Any) -> None:
    call, x = aclnn_py.op("aclnnAdd", backend=backend), np.ones(2, np.float32)
    with pytest.raises(TypeError, match=r"aclnnAdd takes 4 arguments.*\n.*const aclTensor \*self"):
        call(x, x, 1.0, x, x)
    with pytest.raises(TypeError, match="'other' was given twice"):
        call(x, x, other=x)
    with pytest.raises(TypeError, match="no argument named 'nothing'"):
        call(x, x, 1.0, x, nothing=1)
    with pytest.raises(TypeError, match=r"'alpha'.*a number"):
        call(x, x, x, x)
    with pytest.raises(aclnn_py.NullptrError):
        call(x, None, 1.0, x.copy())


def test_list_ops_and_has_op_agree_with_the_backend(backend: Any) -> None:
    names = aclnn_py.list_ops(backend=backend)
    assert names == sorted(names)
    assert {"aclnnAdd", "aclnnMoeFinalizeRoutingV2Grad"} <= set(names)
    assert "aclnnMoeFinalizeRoutingV4" not in names  # declared, but no host backend computes it
    assert all(aclnn_py.has_op(name, backend=backend) for name in names)
    assert not aclnn_py.has_op("aclnnMoeFinalizeRoutingV4", backend=backend)
    assert aclnn_py.list_ops("*RoutingV2Grad", backend=backend) == ["aclnnMoeFinalizeRoutingV2Grad"]
    assert aclnn_py.list_ops("inplaceadd", backend=backend)[0] == "aclnnInplaceAdd"


def test_an_operator_that_the_backend_lacks_says_who_may_have_it() -> None:
    with pytest.raises(aclnn_py.UnsupportedError, match="npu, emulator"):
        aclnn_py.op("aclnnMoeFinalizeRoutingV4", backend="reference")(
            np.ones((2, 2), np.float32),
            np.zeros(2, np.int32),
            dropPadMode=0,
            k=1,
            out=np.ones((2, 2), np.float32),
        )


def test_an_unknown_operator_names_the_ways_out(backend: Any) -> None:
    with pytest.raises(aclnn_py.SymbolNotFoundError, match="declare"):
        aclnn_py.op("aclnnNoSuchThing", backend=backend)(1)


def test_a_name_is_needed() -> None:
    with pytest.raises(TypeError, match="C name"):
        aclnn_py.op(3)  # type: ignore[arg-type]
    assert aclnn_py.op("aclnnAddGetWorkspaceSize").name == "aclnnAdd"


def test_empty_allocates_where_the_backend_computes(backend: Any) -> None:
    out = aclnn_py.empty((2, 3), "bfloat16", backend=backend)
    assert isinstance(out, np.ndarray) == (backend.name == "reference")
    assert (out.shape, out.dtype.name) == ((2, 3), "bfloat16")
    assert aclnn_py.empty(4, backend=backend).shape == (4,)
    same = aclnn_py.empty_like(out)
    assert (type(same), same.shape, same.dtype) == (type(out), out.shape, out.dtype)
    with pytest.raises(TypeError, match="list"):
        aclnn_py.empty_like([1])


def test_a_script_with_empty_runs_on_every_backend(backend: Any) -> None:
    x = np.array([1, 2, 3], np.float32)
    out = aclnn_py.empty(3, backend=backend)
    aclnn_py.op("aclnnMuls", backend=backend)(x, 2.0, out)
    np.testing.assert_array_equal(np.asarray(out), 2 * x)


# -- prepared calls


def test_a_bound_call_runs_again_with_other_data(backend: Any) -> None:
    x, out = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    with aclnn_py.op("aclnnMuls", backend=backend).bind(x, 2.0, out) as double:
        double()
        np.testing.assert_array_equal(out, 2 * x)
        x[:] = 5  # read again by each call
        double()
        np.testing.assert_array_equal(out, np.full((2, 3), 10))
        other, into = np.full((2, 3), 7, np.float32), np.zeros((2, 3), np.float32)
        double(self=other, out=into)
        np.testing.assert_array_equal(into, 2 * other)
        np.testing.assert_array_equal(out, np.full((2, 3), 10))
    with pytest.raises(ValueError, match="closed"):
        double()


def test_a_bound_call_refuses_other_shapes_and_still_works(backend: Any) -> None:
    x, out = np.ones(3, np.float32), np.empty(3, np.float32)
    with aclnn_py.op("aclnnMuls", backend=backend).bind(x, 2.0, out) as double:
        with pytest.raises(ValueError, match="self"):
            double(self=np.ones(4, np.float32))
        double()
    np.testing.assert_array_equal(out, 2 * x)


def test_a_bound_call_belongs_to_one_thread(backend: Any) -> None:
    x, out = np.ones(3, np.float32), np.empty(3, np.float32)
    with aclnn_py.op("aclnnMuls", backend=backend).bind(x, 2.0, out) as double, ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="another thread"):
            pool.submit(double).result()
        double()
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.emulator
def test_a_bound_call_on_device_arrays_reuses_the_executor(emulator_lib: Path) -> None:
    native: Any = aclnn_py.get_backend("emulator")
    x, out = native.to_device(np.ones((5, 7), np.float32)), native.empty((5, 7), np.float32)
    with aclnn_py.op("aclnnMuls", backend=native).bind(x, 3.0, out) as triple:
        assert triple.executor.reuse == "repeatable"
        for value in range(20):
            triple(self=native.to_device(np.full((5, 7), value, np.float32)))
        np.testing.assert_array_equal(out.numpy(), np.full((5, 7), 57))


# -- stubs


def test_stubs_are_python_and_complete() -> None:
    text = stubs.render(signatures.known().values())
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert set(functions) == set(signatures.known())
    arguments = functions["aclnnAdd"].args
    assert [a.arg for a in arguments.args] == ["self", "other", "alpha", "out"]
    assert [a.arg for a in arguments.kwonlyargs] == ["backend", "stream"]


def test_python_keywords_are_given_by_position() -> None:
    tail = "uint64_t *workspaceSize, aclOpExecutor **executor"
    text = f"int aclnnOddGetWorkspaceSize(aclTensor *self, double lambda, int64_t from, aclTensor *out, {tail});"
    (signature,) = signatures.parse_prototypes(text)
    (function,) = (n for n in ast.parse(stubs.render([signature])).body if isinstance(n, ast.FunctionDef))
    assert [a.arg for a in function.args.posonlyargs] == ["self", "lambda_", "from_"]
    assert [a.arg for a in function.args.args] == ["out"]


def test_the_stubs_pass_mypy_and_the_module_calls_operators(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is in the dev extra, not in the test extra")
    assert cli.main(["stubs", "--backend", "reference", "-o", str(tmp_path / "ours")]) == 0
    (tmp_path / "good.py").write_text("import ours\nours.aclnnMuls(self=1, other=2.0, out=3)\n")
    (tmp_path / "bad.py").write_text("import ours\nours.aclnnMuls(self=1, otter=2.0, out=3)\n")
    for name, status in (("ours.pyi", 0), ("good.py", 0), ("bad.py", 1)):
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stdout
    code = "import ours, numpy as np\nx = np.ones(2, np.float32)\nours.aclnnInplaceMuls(x, 3.0)\nprint(x)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[3. 3.]\n", done.stderr
