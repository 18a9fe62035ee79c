"""The life of one call: two stages, what fills outputs and when, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aclnn_py
from aclnn_py import Executor, errors, signatures
from aclnn_py.reference import OPERATORS

V2_GRAD, EP_GRAD = "aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"
ATTRIBUTES = dict(dropPadMode=0, activeNum=0, expertNum=0, expertCapacity=0)
FILL = -77


def arguments() -> dict[str, Any]:
    """A call without scales: the rows of gradY go to the places that the index names."""
    return dict(
        gradY=np.array([[1, 2], [3, 4]], np.float32),
        expandedRowIdx=np.array([1, 0], np.int32),
        **ATTRIBUTES,
        gradExpandedXOut=np.full((2, 2), FILL, np.float32),
        gradScalesOut=np.full((2, 1), FILL, np.float32),
    )


RESULT = [[3, 4], [1, 2]]


def works(backend: Any) -> None:
    """A whole good call: nothing that went wrong before may linger."""
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT


def on_another_thread(function: Callable[[], Any]) -> Any:
    """Run a function elsewhere; return its exception or result."""
    result: list[Any] = []

    def body() -> None:
        try:
            result.append(function())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    return result[0]


# -- the usual way


def test_a_block_runs_both_stages_and_fills_the_outputs(backend: Any) -> None:
    args = arguments()
    before = {name: value.copy() for name, value in args.items() if isinstance(value, np.ndarray)}
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        assert isinstance(ex, Executor)
        assert isinstance(ex.workspace_size, int)
        assert ex.workspace_size >= 0
        assert (args["gradExpandedXOut"] == FILL).all(), "stage one computes nothing"
        assert ex.run() is None
    assert args["gradExpandedXOut"].tolist() == RESULT
    for name in ("gradY", "expandedRowIdx"):
        assert np.array_equal(args[name], before[name]), "inputs are never modified"


def test_positions_and_names_give_the_same_call(backend: Any) -> None:
    args = arguments()
    positional = [args.get(p.name) for p in signatures.find(V2_GRAD).parameters]
    assert len(positional) == 12
    with Executor(V2_GRAD, *positional, backend=backend) as ex:
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT
    mixed = arguments()
    rest = {k: v for k, v in mixed.items() if k not in ("gradY", "expandedRowIdx")}
    with Executor(V2_GRAD, mixed["gradY"], mixed["expandedRowIdx"], **rest, backend=backend) as ex:
        ex.run()
    assert mixed["gradExpandedXOut"].tolist() == RESULT


def test_optional_suffixes_may_be_left_out(backend: Any) -> None:
    outputs = {}
    for suffix in ("", "Optional"):
        x = np.arange(4, dtype=np.float32).reshape(2, 2)
        optional = {f"expandedX{suffix}": x, f"scales{suffix}": np.array([[2], [3]], np.float32)}
        args = arguments()
        with Executor(V2_GRAD, **args, **optional, backend=backend) as ex:
            ex.run()
        outputs[suffix] = args["gradExpandedXOut"].tolist(), args["gradScalesOut"].tolist()
    assert outputs[""] == outputs["Optional"] == ([[9, 12], [2, 4]], [[8], [4]])


def test_the_backend_may_be_a_name(backend: Any) -> None:
    with Executor(V2_GRAD, **arguments(), backend=backend.name) as ex:
        assert ex.backend.name == backend.name
        assert ex.signature is signatures.find(V2_GRAD)
        assert V2_GRAD in repr(ex)
        assert backend.name in repr(ex)
    assert "closed" in repr(ex)


def test_outputs_are_filled_when_waiting_not_before(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
        assert (args["gradExpandedXOut"] == FILL).all()
        ex.synchronize()
        assert args["gradExpandedXOut"].tolist() == RESULT
        args["gradExpandedXOut"][...] = 5
        ex.synchronize()
        assert (args["gradExpandedXOut"] == 5).all(), "nothing is written twice"
    assert (args["gradExpandedXOut"] == 5).all()


def test_it_works_without_a_block(backend: Any) -> None:
    args = arguments()
    ex = Executor(V2_GRAD, **args, backend=backend)
    ex.run()
    ex.synchronize()
    ex.close()
    assert args["gradExpandedXOut"].tolist() == RESULT
    unfinished = arguments()
    ex = Executor(V2_GRAD, **unfinished, backend=backend)
    ex.run()
    ex.close()
    assert (unfinished["gradExpandedXOut"] == FILL).all(), "close() does not wait"


def test_a_block_without_a_run_changes_nothing(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        assert ex.workspace_size >= 0
    assert (args["gradExpandedXOut"] == FILL).all()


def test_old_content_of_outputs_is_what_the_kernel_starts_from(backend: Any) -> None:
    args = arguments()
    args["expandedRowIdx"][:] = [1, 5]  # 5 names no row
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        args["gradExpandedXOut"][0] = 8  # after stage one, before the run: uploaded at run()
        ex.run()
    assert args["gradExpandedXOut"].tolist() == [[8, 8], [1, 2]]


def test_inputs_are_read_at_run(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        args["gradY"][...] = 6
        ex.run()
        args["gradY"][...] = 0
    assert args["gradExpandedXOut"].tolist() == [[6, 6], [6, 6]]


def test_outputs_of_any_strides_are_filled(backend: Any) -> None:
    args = arguments()
    wide = np.full((4, 6), FILL, np.float32)
    args["gradExpandedXOut"] = wide[::-2, 1::3]
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT
    assert (wide == FILL).sum() == wide.size - 4, "nothing beside the output is touched"


def test_equal_calls_give_equal_bits(backend: Any) -> None:
    random = np.random.default_rng(5)
    grad, x = (random.standard_normal(shape).astype(np.float16) for shape in ((5, 33), (15, 33)))
    scales, index = random.standard_normal((5, 3)).astype(np.float16), random.permutation(15).astype(np.int32)
    seen = set()
    for _ in range(3):
        outputs = np.zeros((15, 33), np.float16), np.zeros((5, 3), np.float16)
        with Executor(V2_GRAD, grad, index, x, scales, None, None, 0, 0, 0, 0, *outputs, backend=backend) as ex:
            ex.run()
        seen.add(outputs[0].tobytes() + outputs[1].tobytes())
    assert len(seen) == 1


# -- once only


def test_a_second_run_is_refused_and_leaves_the_results(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
        with pytest.raises(RuntimeError, match="repeatable=True") as caught:
            ex.run()
        assert V2_GRAD in str(caught.value)
        assert not isinstance(caught.value, errors.AclnnError), "it never reached the library"
        ex.synchronize()
        with pytest.raises(RuntimeError, match="repeatable=True"):
            ex.run()
        assert args["gradExpandedXOut"].tolist() == RESULT
    assert args["gradExpandedXOut"].tolist() == RESULT
    works(backend)


def test_a_closed_executor_is_of_no_use_and_closes_again(backend: Any) -> None:
    with Executor(V2_GRAD, **arguments(), backend=backend) as ex:
        ex.run()
    assert ex.close() is None
    ex.close()
    for use in (ex.run, ex.synchronize, ex.__enter__, lambda: ex.workspace_size, lambda: ex.reuse, ex.rebind):
        with pytest.raises(ValueError, match=rf"{V2_GRAD}: .* on a closed Executor"):
            use()
    works(backend)


# -- leaving by an exception


def run_and_fail(executor: Executor, *steps: Callable[[Executor], None]) -> None:
    with executor as ex:
        ex.run()
        for step in steps:
            step(ex)
        raise KeyError("mine")


def test_leaving_by_an_exception_leaves_outputs_untouched(backend: Any) -> None:
    args = arguments()
    ex = Executor(V2_GRAD, **args, backend=backend)
    with pytest.raises(KeyError, match="mine"):
        run_and_fail(ex)
    assert (args["gradExpandedXOut"] == FILL).all()
    assert (args["gradScalesOut"] == FILL).all()
    with pytest.raises(ValueError, match="closed"):
        ex.run()
    works(backend)


def test_what_was_synchronized_before_the_exception_stays(backend: Any) -> None:
    args = arguments()
    with pytest.raises(KeyError, match="mine"):
        run_and_fail(Executor(V2_GRAD, **args, backend=backend), Executor.synchronize)
    assert args["gradExpandedXOut"].tolist() == RESULT


def test_a_run_that_fails_leaves_outputs_untouched(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend.name != "reference":
        pytest.skip("a failing kernel of the C library is the launch tests' business")
    operator = OPERATORS[V2_GRAD]

    def fails(args: Any, product: str) -> None:
        operator.compute(args, product)
        raise MemoryError("no room")

    monkeypatch.setitem(OPERATORS, V2_GRAD, operator._replace(compute=fails))
    args = arguments()
    with pytest.raises(MemoryError), Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
    assert (args["gradExpandedXOut"] == FILL).all()
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex, pytest.raises(MemoryError):
        ex.run()
    assert (args["gradExpandedXOut"] == FILL).all()
    monkeypatch.undo()
    works(backend)


# -- refusals at stage one


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (dict(gradY=None), errors.NullptrError),
        (dict(expandedRowIdx=None), errors.NullptrError),
        (dict(gradScalesOut=None), errors.NullptrError),
        (dict(gradY=np.zeros((2, 2))), errors.InvalidParameterError),
        (dict(expandedRowIdx=np.zeros(2, np.int64)), errors.InvalidParameterError),
        (dict(dropPadMode=2), errors.InnerNullptrError),
        (dict(gradExpandedXOut=np.full((3, 2), FILL, np.float32)), errors.InnerNullptrError),
    ],
)
def test_stage_one_shows_the_status_of_the_library(backend: Any, change: Any, error: Any) -> None:
    args = {**arguments(), **change}
    with pytest.raises(error) as caught:
        Executor(V2_GRAD, **args, backend=backend)
    assert caught.value.api == V2_GRAD
    assert caught.value.stage == "GetWorkspaceSize"
    assert caught.value.code in (161001, 161002, 561103)
    if args["gradExpandedXOut"] is not None:
        assert (args["gradExpandedXOut"] == FILL).all()
    works(backend)


def test_a_read_only_output_is_refused_and_a_read_only_input_is_not(backend: Any) -> None:
    args = arguments()
    for name in ("gradY", "expandedRowIdx"):
        args[name].flags.writeable = False
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT
    for name in ("gradExpandedXOut", "gradScalesOut"):
        args = arguments()
        args[name].flags.writeable = False
        with pytest.raises(ValueError, match=rf"{V2_GRAD}.*{name}.*read-only"):
            Executor(V2_GRAD, **args, backend=backend)
    works(backend)


def test_wrong_calls_are_type_errors_that_show_the_signature(backend: Any) -> None:
    args = arguments()
    for more, says in [
        (dict(gradYOptional=args["gradY"]), "no argument named 'gradYOptional'"),
        (dict(workspaceSize=3), "no argument named 'workspaceSize'"),
        (dict(dropPadMode=None), "dropPadMode"),
    ]:
        with pytest.raises(TypeError, match=says):
            Executor(V2_GRAD, **{**args, **more}, backend=backend)
    del args["dropPadMode"]
    with pytest.raises(TypeError, match=rf"(?s)'dropPadMode' \(int64_t\) is missing.*{V2_GRAD}GetWorkspaceSize\("):
        Executor(V2_GRAD, **args, backend=backend)
    with pytest.raises(TypeError, match="takes 12 arguments, 13 were given"):
        Executor(V2_GRAD, *[None] * 13, backend=backend)
    works(backend)


def test_an_unknown_operator_is_named_with_what_to_do(backend: Any) -> None:
    with pytest.raises(errors.SymbolNotFoundError, match="aclnnNoSuchThing") as caught:
        Executor("aclnnNoSuchThing", 1, 2, backend=backend)
    assert caught.value.symbol == "aclnnNoSuchThingGetWorkspaceSize"
    assert "declare" in caught.value.hint
    assert isinstance(caught.value, AttributeError)


def test_a_known_operator_that_the_reference_lacks_is_unsupported() -> None:
    plain = dict(bool=False, float=0.0, double=0.0, int=0, dtype="float32", enum=0)
    for name in sorted(set(signatures.known()) - set(OPERATORS)):
        values = [plain.get(parameter.kind) for parameter in signatures.find(name).parameters]
        with pytest.raises(errors.UnsupportedError, match=name) as caught:
            Executor(name, *values, backend="reference")
        assert "reference" in caught.value.detail


def test_an_operator_of_another_product_is_unsupported() -> None:
    other = aclnn_py.get_backend("reference", product="Ascend310P3")
    with pytest.raises(errors.UnsupportedError, match="310P") as caught:
        Executor(V2_GRAD, **arguments(), backend=other)
    assert all(product in str(caught.value) for product in ("A2", "A3", "950"))


def test_a_declared_signature_that_the_reference_cannot_serve_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The declaration comes first, also over a built-in operator; its arguments are not those of the table."""
    monkeypatch.setattr(signatures, "_declared", {})
    aclnn_py.declare(
        f"int {V2_GRAD}GetWorkspaceSize(const aclTensor *x, const aclTensor *out, uint64_t *n, aclOpExecutor **e);"
    )
    x = np.zeros((2, 2), np.float32)
    with pytest.raises((errors.AclnnError, TypeError), match=V2_GRAD):
        Executor(V2_GRAD, x, x.copy(), backend="reference")


def test_no_semantic_check_is_made_for_the_caller(backend: Any) -> None:
    """Indices outside the rows are data, here as on a device."""
    args = arguments()
    args["expandedRowIdx"][:] = [-5, 1]
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        ex.run()
    assert args["gradExpandedXOut"].tolist() == [[FILL, FILL], [3, 4]]


# -- threads


def test_use_on_another_thread_is_refused(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        for use in (ex.run, ex.synchronize, lambda: ex.workspace_size, ex.__enter__, ex.rebind):
            error = on_another_thread(use)
            assert isinstance(error, RuntimeError)
            assert "another thread" in str(error)
            assert V2_GRAD in str(error)
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT


def test_closing_on_another_thread_warns_and_is_final(backend: Any) -> None:
    args = arguments()
    ex = Executor(V2_GRAD, **args, backend=backend)
    ex.run()

    def close() -> Any:
        with pytest.warns(ResourceWarning, match=rf"{V2_GRAD}.*another thread") as caught:
            ex.close()
        return len(caught)

    assert on_another_thread(close) == 1
    ex.close()
    with pytest.raises(ValueError, match="closed"):
        ex.run()
    assert (args["gradExpandedXOut"] == FILL).all()
    works(backend)


def test_each_thread_may_have_its_own(backend: Any) -> None:
    def call() -> Any:
        args = arguments()
        with Executor(V2_GRAD, **args, backend=backend) as ex:
            ex.run()
        return args["gradExpandedXOut"].tolist()

    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(call())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [RESULT] * 4


# -- repeatable


def test_a_repeatable_executor_runs_again_with_other_arrays(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, repeatable=True, backend=backend) as ex:
        assert ex.reuse in ("repeatable", "fresh", "reference")
        for factor in (1, 2, 3):
            fresh = np.full((2, 2), FILL, np.float32)
            ex.rebind(gradY=np.full((2, 2), factor, np.float32), gradExpandedXOut=fresh)
            ex.run()
            assert (fresh == FILL).all()
            ex.synchronize()
            assert (fresh == factor).all()
        ex.rebind(expandedRowIdx=np.array([0, 7], np.int32))
        fresh[...] = FILL
        ex.run()
        ex.synchronize()
        assert fresh.tolist() == [[3, 3], [FILL, FILL]]
    assert (args["gradExpandedXOut"] == FILL).all(), "an array that was replaced is left alone"


def test_runs_without_rebinding_repeat_the_call(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, repeatable=True, backend=backend) as ex:
        ex.run()
        ex.run()
        args["gradY"][...] = 9
        ex.run()
    assert (args["gradExpandedXOut"] == 9).all()


def test_rebind_takes_names_with_and_without_optional(backend: Any) -> None:
    args = arguments()
    scales = np.ones((2, 1), np.float32)
    x = np.zeros((2, 2), np.float32)
    with Executor(V2_GRAD, **args, expandedX=x, scales=scales, repeatable=True, backend=backend) as ex:
        for key, factor in (("scales", 2), ("scalesOptional", 3)):
            ex.rebind(**{key: np.full((2, 1), factor, np.float32)})
            ex.run()
            ex.synchronize()
            assert args["gradExpandedXOut"].tolist() == (np.array(RESULT) * factor).tolist()


WRONG_REBINDS = {
    "unknown name": (lambda: dict(nope=np.zeros(1, np.float32)), TypeError, "nope"),
    "list": (lambda: dict(gradY=[[1, 2], [3, 4]]), TypeError, "gradY"),
    "attribute": (lambda: dict(dropPadMode=1), TypeError, "dropPadMode"),
    "null": (lambda: dict(gradY=None), TypeError, "gradY"),
    "was null": (lambda: dict(scales=np.zeros((2, 1), np.float32)), TypeError, "scales"),
    "shape": (lambda: dict(gradY=np.zeros((2, 3), np.float32)), ValueError, "gradY"),
    "dtype": (lambda: dict(gradY=np.zeros((2, 2), np.float16)), ValueError, "gradY"),
    "read-only output": (lambda: dict(gradExpandedXOut=frozen()), ValueError, "gradExpandedXOut.*read-only"),
}


def frozen() -> np.ndarray[Any, Any]:
    array = np.full((2, 2), FILL, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("case", WRONG_REBINDS)
def test_a_wrong_rebind_is_refused_and_changes_nothing(backend: Any, case: str) -> None:
    changes, error, says = WRONG_REBINDS[case]
    args = arguments()
    with Executor(V2_GRAD, **args, repeatable=True, backend=backend) as ex:
        with pytest.raises(error, match=says):
            ex.rebind(**changes())
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT


def test_rebind_needs_a_repeatable_executor(backend: Any) -> None:
    args = arguments()
    with Executor(V2_GRAD, **args, backend=backend) as ex:
        with pytest.raises(TypeError, match="repeatable=True"):
            ex.rebind(gradY=args["gradY"].copy())
        ex.run()
    assert args["gradExpandedXOut"].tolist() == RESULT


# -- the other main operator


def test_the_unpermute_gradient_through_the_executor(backend: Any) -> None:
    grad, index = np.array([[1, 2], [3, 4]], np.float32), np.array([2, 0, 1, 3], np.int32)
    permuted, probs = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([[1, 10], [100, 1000]], np.float32)
    outputs = np.full((4, 2), FILL, np.float32), np.full((2, 2), FILL, np.float32)
    with Executor(
        EP_GRAD, grad, index, permuted, probs, False, None, np.array([1, 3]), 2, *outputs, backend=backend
    ) as ex:
        assert ex.workspace_size > 0
        ex.run()
    assert outputs[0].tolist() == [[300, 400], [1, 2], [FILL, FILL], [FILL, FILL]]
    assert outputs[1].tolist() == [[8, 0], [4, 0]]
