"""For whoever first has an NPU: compare it with the NumPy reference, and settle what only a device can tell.

    python examples/device_check.py --backend npu --json device_check.json

Part one runs the two main operators and their twins on random data, in all dtypes and modes, against the reference.
Part two asks what was only read in CANN's sources: "expected" is what the reference and the emulator do. Each probe is
caught; they run in a process of their own, so that a crash or a broken device is a line of the table and not the end.
The exit status is 1 when a number of part one is wrong, 0 otherwise: a device that differs in part two is no mistake.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import aclnn_py
from aclnn_py import dtypes, library

V2GRAD, EPGRAD = "aclnnMoeFinalizeRoutingV2Grad", "aclnnMoeTokenUnpermuteWithEpGrad"
FLOATS = (np.dtype(np.float32), np.dtype(np.float16), dtypes.bfloat16())
FORWARD = "aclnnMoeFinalizeRoutingV2"
OLD, UNTOUCHED = -77.0, "(-77: not written)"  # what outputs hold before a call
BIT_EXACT = ("moe_finalize_routing_v2_grad", "moe_token_unpermute_with_ep_grad")
PATIENCE_S = 900  # for one process of probes
rng = np.random.default_rng(20)

# -- part one: numbers


def floats(dtype: Any, *shape: int) -> np.ndarray:
    return rng.uniform(-2, 2, shape).astype(np.float32).astype(dtype)


def experts(tokens: int, k: int, count: int) -> np.ndarray:
    return np.stack([rng.permutation(count)[:k] for _ in range(tokens)]).astype(np.int32)


def order(n: int) -> np.ndarray:
    return rng.permutation(n).astype(np.int32)


def finalize_cases(dtype: Any) -> Iterator[tuple[str, str, tuple[Any, ...], dict[str, Any]]]:
    """Yield (label, function, arguments, keywords) of the routing family."""
    r, k, h, e, c = 33, 4, 300, 8, 12
    n, scales, chosen = r * k, floats(dtype, r, k), experts(r, k, e)
    grad, bias = floats(dtype, r, h), floats(dtype, e, h)
    padded = np.where(rng.random(n) < 0.2, -1, order(e * c)[np.arange(n) % (e * c)]).astype(np.int32)
    padded[e * c :] = -1  # more slots than rows: the rest is dropped
    x, x3 = floats(dtype, n, h), floats(dtype, e, c, h)
    mode1 = {"drop_pad_mode": 1, "expert_num": e, "expert_capacity": c}
    name = "moe_finalize_routing_v2_grad"
    yield "no scales", name, (floats(dtype, n, h), order(n)), {}
    yield "scales", name, (grad, order(n), x, scales), {}
    yield "bias", name, (grad, order(n), x, scales, chosen, bias), {}
    yield "active_num", name, (grad, order(n), x[:50], scales, chosen, bias), {"active_num": 50}
    yield "mode 1", name, (grad, padded, x3, scales), mode1
    yield "mode 1, bias", name, (grad, padded, x3, scales, chosen, bias), mode1
    name = "moe_finalize_routing_v2"
    for mode in range(4):
        pad = mode in (1, 3)
        optional = {"x1": floats(dtype, r, h), "x2": floats(dtype, r, h), "scales": scales}
        if not pad:  # a dropped slot with bias is a question of part two
            optional |= {"bias": bias, "expert_idx": chosen}
        yield f"mode {mode}", name, (x3 if pad else x, padded if pad else order(n)), {"drop_pad_mode": mode, **optional}
    name = "moe_init_routing_v2"
    yield "mode 0", name, (floats(dtype, r, h), chosen), {"expert_num": e, "expert_tokens_count_or_cumsum_flag": 1}
    yield "mode 1", name, (floats(dtype, r, h), chosen), {**mode1, "expert_tokens_before_capacity_flag": True}


def ep_cases(dtype: Any) -> Iterator[tuple[str, str, tuple[Any, ...], dict[str, Any]]]:
    """Yield the same of the WithEp family."""
    t, k, h, e = 33, 4, 300, 8
    n, index, part, chosen = t * k, order(t * k), (20, 90), experts(t, k, e)
    grad, rows, probs = floats(dtype, t, h), floats(dtype, n, h), floats(dtype, t, k)
    name = "moe_token_unpermute_with_ep_grad"
    for other in FLOATS:
        yield f"{dtypes.name(other)} probs", name, (grad, index, rows, floats(other, t, k)), {}
    yield "no probs", name, (grad, index), {"topk_num": k}
    yield "range, N rows", name, (grad, index, rows, probs), {"range": part}
    yield "range, e-s rows", name, (grad, index, rows[:70], probs), {"range": part}
    for label, keywords, mine in (("range", {"range": part}, 70), ("whole", {}, n)):
        yield label, "moe_token_unpermute_with_ep", (rows[:mine], index, probs), keywords
        yield label, "moe_token_permute_with_ep", (grad, chosen, probs), keywords
        name, its_probs = "moe_token_permute_with_ep_grad", floats(dtype, mine)
        yield label, name, (rows[:mine], index, its_probs), {"num_topk": k, **keywords}


def difference(got: np.ndarray, want: np.ndarray, exact: bool) -> str:
    """Describe how two results differ; empty when they are equal but for what the order of a sum may change.

    A gradient of rows is one product rounded once: the same bits. Elsewhere up to 300 products of magnitude up to 4
    are added in float32 in any order and rounded once, except that A2 rounds the float16 forward at each step.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    ulp = {"float32": 2.0**-23, "float16": 2.0**-10}.get(want.dtype.name, 2.0**-7)
    allowed = 0 if exact else 2.0**-20 * 300 * 4 + ulp * np.abs(b) + (32 * ulp if want.dtype == np.float16 else 0)
    bad = ~(np.abs(a - b) <= allowed)
    return f"{int(bad.sum())} of {bad.size} values wrong, by up to {np.nanmax(np.abs(a - b)):.3g}" if bad.any() else ""


def compare(backend: Any, cases: Callable[[Any], Any], function: str) -> str:
    """Run every case of one operator on the backend and on the reference."""
    count, faults = 0, []
    for dtype in FLOATS:
        for label, name, args, keywords in cases(dtype):
            if name != function:
                continue
            count += 1
            got = getattr(aclnn_py, name)(*args, **keywords, backend=backend)
            reference = aclnn_py.get_backend("reference", product=backend.product)
            want = getattr(aclnn_py, name)(*args, **keywords, backend=reference)
            pairs = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
            for position, (one, other) in enumerate(pairs):
                text = "" if one is None else difference(one, other, name in BIT_EXACT and position == 0)
                faults += [f"{dtypes.name(dtype)} {label}, result {position}: {text}"] * bool(text)
    return "; ".join(faults) or f"equal ({count} cases)"


# -- part two: questions, each with the answer of the reference and the emulator

PROBES: dict[str, tuple[str, Callable[[Any], str | None]]] = {}  # question: (expected, probe)


def asks(*questions: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Register a probe for its questions: (question, expected answer, further arguments of the probe)."""

    def register(probe: Any) -> Any:
        for question, expected, *args in questions:
            PROBES[question] = expected, lambda backend, args=args: probe(backend, *args)
        return probe

    return register


for _function, _cases in (
    ("moe_finalize_routing_v2_grad", finalize_cases),
    ("moe_finalize_routing_v2", finalize_cases),
    ("moe_init_routing_v2", finalize_cases),
    ("moe_token_unpermute_with_ep_grad", ep_cases),
    ("moe_token_unpermute_with_ep", ep_cases),
    ("moe_token_permute_with_ep", ep_cases),
    ("moe_token_permute_with_ep_grad", ep_cases),
):
    _count = 3 * sum(name == _function for _, name, _, _ in _cases(np.float32))
    asks((f"numbers of {_function}", f"equal ({_count} cases)", _cases, _function))(compare)


def v2grad(h: int, **changes: Any) -> dict[str, Any]:
    """Arguments of a valid call: 2 tokens, 2 slots, all ones. ``h`` tells calls apart in CANN's cache."""
    arguments = {
        "gradY": np.ones((2, h), np.float32), "expandedRowIdx": np.array([1, 3, 0, 2], np.int32),
        "expandedX": np.ones((4, h), np.float32), "scales": np.ones((2, 2), np.float32),
        "dropPadMode": 0, "activeNum": 0, "expertNum": 0, "expertCapacity": 0,
        "gradExpandedXOut": np.full((4, h), OLD, np.float32), "gradScalesOut": np.full((2, 2), OLD, np.float32),
    }  # fmt: skip
    return arguments | changes


def epgrad(h: int, **changes: Any) -> dict[str, Any]:
    arguments = {
        "unpermutedTokensGrad": np.ones((2, h), np.float32), "sortedIndices": np.array([1, 3, 0, 2], np.int32),
        "permutedTokens": np.ones((4, h), np.float32), "probs": np.ones((2, 2), np.float32),
        "paddedMode": False, "range": (0, 4), "topkNum": 2,
        "permutedTokensGradOut": np.full((4, h), OLD, np.float32), "probsGradOut": np.full((2, 2), OLD, np.float32),
    }  # fmt: skip
    return arguments | changes


def run(backend: Any, op: str, arguments: dict[str, Any]) -> int:
    """Run one call without the checks of the operators; return the workspace size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the ranges asked about here are those that get a warning
        with aclnn_py.Executor(op, **arguments, backend=backend) as executor:
            size = executor.workspace_size
            executor.run()
    return size


def written(array: np.ndarray) -> str:
    untouched = array == OLD
    if untouched.any():
        return "not written" if untouched.all() else "partly written"
    return f"written: {array.ravel()[:4]}"


@asks(
    (f"stage one: workspace of {V2GRAD}", "16777728", V2GRAD, v2grad(16)),
    (f"stage one: workspace of {EPGRAD}", "16777216", EPGRAD, epgrad(16)),
)
def workspace(backend: Any, op: str, arguments: dict[str, Any]) -> str:
    return str(run(backend, op, arguments))


@asks(
    (f"{EPGRAD}, a null range", "whole range", None),
    (f"{EPGRAD}, range (-1, -1)", "whole range", (-1, -1)),
)
def null_range(backend: Any, value: Any) -> str:
    call = epgrad(17, range=value)
    run(backend, EPGRAD, call)
    rows, probs = call["permutedTokensGradOut"], call["probsGradOut"]
    if (rows == 1).all() and (probs == 17).all():
        return "whole range"
    empty = (rows == OLD).all() and (probs == 0).all()
    return "empty range" if empty else f"rows {rows[:, 0].tolist()}, probs {probs.tolist()}"


@asks(("aclnnMoeTokenUnpermuteWithEp (forward), a null range", "whole range"))
def null_range_forward(backend: Any) -> str:
    out = np.full((2, 18), OLD, np.float32)
    call = {"permutedTokens": np.ones((4, 18), np.float32), "sortedIndices": np.array([1, 3, 0, 2], np.int32),
            "probs": np.ones((2, 2), np.float32), "numTopk": 2, "paddedMode": False, "out": out}  # fmt: skip
    run(backend, "aclnnMoeTokenUnpermuteWithEp", call)
    return {2.0: "whole range", 0.0: "empty range"}.get(float(out[0, 0]), written(out))


@asks(
    (f"{V2GRAD}: expandedX of a wrong shape", "561103", V2GRAD, v2grad(19, expandedX=np.ones((3, 19), np.float32))),
    (f"{V2GRAD}: dropPadMode 2", "561103", V2GRAD, v2grad(19, dropPadMode=2)),
    (f"{V2GRAD}: int64 index", "161002", V2GRAD, v2grad(19, expandedRowIdx=np.arange(4))),
    (f"{V2GRAD}: null gradScalesOut", "161001", V2GRAD, v2grad(19, gradScalesOut=None)),
    (f"{EPGRAD}: sortedIndices of rank 2", "561002", EPGRAD, epgrad(19, sortedIndices=np.zeros((2, 2), np.int32))),
    (f"{EPGRAD}: range (3, 1)", "561002", EPGRAD, epgrad(19, range=(3, 1))),
    (f"{EPGRAD}: range of three numbers", "561002", EPGRAD, epgrad(19, range=(0, 4, 4))),
    (f"{EPGRAD}: paddedMode true", "561002", EPGRAD, epgrad(19, paddedMode=True)),
    (f"{EPGRAD}: int64 index", "161002", EPGRAD, epgrad(19, sortedIndices=np.arange(4))),
    (f"{EPGRAD}: null probsGradOut", "161001", EPGRAD, epgrad(19, probsGradOut=None)),
)
def refusal(backend: Any, op: str, arguments: dict[str, Any]) -> str:
    """Only stage one: what an accepted bad call does in stage two is anybody's guess."""
    try:
        aclnn_py.Executor(op, **arguments, backend=backend).close()
    except aclnn_py.AclnnError as error:
        return str(error.code) if error.detail else f"{error.code}, without a text"
    return "accepted"


@asks(
    ("destroying an executor that never ran (composite)", "no complaint", V2GRAD, v2grad(20)),
    ("destroying an executor that never ran (generated)", "no complaint", EPGRAD, epgrad(20)),
)
def destroy_unused(backend: Any, op: str, arguments: dict[str, Any]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        aclnn_py.Executor(op, **arguments, backend=backend).close()
    run(backend, op, arguments)  # and the next identical call must work
    return "; ".join(str(warning.message) for warning in caught) or "no complaint"


@asks(
    ("repeatable executor, first call (composite)", "repeatable, right numbers", V2GRAD, v2grad(21), False),
    ("repeatable executor, first call (generated)", "repeatable, right numbers", EPGRAD, epgrad(21), False),
    ("repeatable after a plain identical call (composite)", "fresh, right numbers", V2GRAD, v2grad(22), True),
    ("repeatable after a plain identical call (generated)", "repeatable, right numbers", EPGRAD, epgrad(22), True),
)
def repeatable(backend: Any, op: str, arguments: dict[str, Any], plain_first: bool) -> str | None:
    if backend.name == "reference":
        return None
    if plain_first:
        run(backend, op, arguments)
    first, output = next(iter(arguments)), next(name for name in arguments if name.endswith("Out"))
    twice = np.full_like(arguments[first], 2)
    with aclnn_py.Executor(op, **arguments, backend=backend, repeatable=True) as executor:
        executor.run()
        executor.synchronize()
        right = bool((arguments[output] == 1).all())
        executor.rebind(**{first: twice})
        executor.run()
        executor.synchronize()
        right = right and bool((arguments[output] == 2).all())
        return f"{executor.reuse}, {'right' if right else 'WRONG'} numbers"


@asks(
    ("zero tokens: gradient, mode 0", "success, workspace 0", V2GRAD, 0),
    ("zero tokens: gradient, mode 1", "success, written: [0. 0. 0. 0.]", V2GRAD, 1),
    ("zero tokens: WithEp gradient", "success, workspace 0", EPGRAD, 0),
)
def zero_tokens(backend: Any, op: str, mode: int) -> str:
    none, flat, index = np.ones((0, 27), np.float32), np.ones((0, 2), np.float32), np.ones(0, np.int32)
    if op == EPGRAD:
        call = epgrad(27, unpermutedTokensGrad=none, sortedIndices=index, permutedTokens=none, probs=flat,
                      range=(0, 0), permutedTokensGradOut=none.copy(), probsGradOut=flat.copy())  # fmt: skip
    else:
        rows = np.full((2, 2, 27), OLD, np.float32) if mode else none.copy()
        call = v2grad(27, gradY=none, expandedRowIdx=index, expandedX=rows.copy(), scales=flat, dropPadMode=mode,
                      expertNum=2, expertCapacity=2, gradExpandedXOut=rows, gradScalesOut=flat.copy())  # fmt: skip
    size = run(backend, op, call)
    return f"success, {written(rows) if mode else f'workspace {size}'}"


@asks(("DeviceArray, own stream, no waiting in between", "right numbers"))
def device_arrays(backend: Any) -> str | None:
    if backend.name == "reference":
        return None
    call = {name: backend.to_device(v) if isinstance(v, np.ndarray) else v for name, v in v2grad(29).items()}
    with backend.create_stream() as stream:
        for _ in range(20):
            with aclnn_py.Executor(V2GRAD, **call, backend=backend, stream=stream) as executor:
                executor.run()
        stream.synchronize()
    right = (call["gradExpandedXOut"].numpy() == 1).all() and (call["gradScalesOut"].numpy() == 29).all()
    return "right numbers" if right else "WRONG numbers"


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


DROPPED = {
    "expandedRowIdx": ints(1, -1, 0, 2), "expandedX": ones(2, 2, 24), "expertIdx": ints((0, 1), (0, 1)),
    "bias": 10 * ones(2, 24), "dropPadMode": 1, "expertNum": 2, "expertCapacity": 2,
    "gradExpandedXOut": OLD * ones(2, 2, 24),
}  # fmt: skip
DROPPED_FORWARD = {
    "expandedX": ones(2, 1, 23), "expandedRowIdx": ints(0, -1), "bias": 10 * ones(2, 23), "scales": ones(1, 2),
    "expertIdx": ints((0, 1)), "dropPadMode": 3, "out": OLD * ones(1, 23),
}  # fmt: skip
HALF = {name: 2 * value.astype(np.float16) for name, value in v2grad(28).items() if getattr(value, "ndim", 0) == 2}
NO_SCALES = {"gradY": ones(4, 25), "expandedX": None, "scales": None, "gradScalesOut": OLD * ones(4, 1)}
UNNAMED = {"expandedRowIdx": ints(1, -1, 0, 2)}  # outside the documented domain: the last of all


@asks(
    ("forward mode 3, bias of a dropped slot (11: skipped, 21: kept)", "11.0", FORWARD, DROPPED_FORWARD, "out"),
    ("gradient mode 1, the same (0: skipped, 240: kept)", "240.0", V2GRAD, v2grad(24, **DROPPED), "gradScalesOut", 1),
    ("float16 overflow", "inf", V2GRAD, v2grad(28, **HALF | {"gradY": HALF["gradY"] * 3e4}), "gradExpandedXOut"),
    (f"no scales: gradScalesOut {UNTOUCHED}", "-77.0", V2GRAD, v2grad(25, **NO_SCALES), "gradScalesOut"),
    (f"no probs: probsGradOut {UNTOUCHED}", "-77.0", EPGRAD, epgrad(25, probs=None), "probsGradOut"),
    (f"a row outside the range {UNTOUCHED}", "-77.0", EPGRAD, epgrad(3, range=(1, 3)), "permutedTokensGradOut", 6),
    (f"mode 0, a row that no index names {UNTOUCHED}", "-77.0", V2GRAD, v2grad(1, **UNNAMED), "gradExpandedXOut", 3),
)
def element(backend: Any, op: str, call: dict[str, Any], output: str, at: int = 0) -> str:
    run(backend, op, call)
    return str(float(call[output].ravel()[at]))


# -- the machinery


def worker(backend_name: str, names: list[str]) -> None:
    """Run probes and print one JSON object a line, each as soon as it is known."""
    try:
        backend = aclnn_py.get_backend(backend_name)
    except aclnn_py.AclnnError as error:
        sys.exit(f"{error}\naclnn-py info tells more")
    host = {"backend": backend.name, "product": backend.product, "what": backend.describe(), "library": "none"}
    if backend.name != "reference":  # "npu" may be asked for where only the emulator is on the path
        release = library.discover().version or "of unknown release"
        host["library"] = "the emulator" if backend.libraries.emulator else f"CANN {release}"
    print(json.dumps(host | {"aclnn_py": aclnn_py.__version__, "numpy": np.__version__}), flush=True)
    for name in names:
        fault = None
        try:
            answer = PROBES[name][1](backend)
            observed = "not applicable" if answer is None else answer
        except Exception as error:
            fault, observed = error, f"{type(error).__name__}: {error}"
        print(json.dumps({"probe": name, "observed": observed}), flush=True)
        if isinstance(fault, (aclnn_py.DeviceFaultError, aclnn_py.DeviceTimeoutError)):
            return  # this context may be unusable: the rest runs in a new process


def supervise(backend_name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the description of the backend and what each probe observed; a new process for each crash."""
    host: dict[str, Any] = {}
    observed: dict[str, str] = {}
    left = list(PROBES)
    while left:
        command = [sys.executable, __file__, "--backend", backend_name, "--worker", json.dumps(left)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        before = len(left)
        with process:
            for line in process.stdout or ():
                if line.startswith('{"backend"'):
                    host = json.loads(line)
                elif line.startswith('{"probe"'):
                    row = json.loads(line)
                    observed[row["probe"]] = row["observed"]
                    left.remove(row["probe"])
        patience.cancel()
        if not host:
            return {}, {}
        if left and (process.returncode or len(left) == before):
            observed[left.pop(0)] = f"the process ended with status {process.returncode}"
    return host, observed


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare a device with the reference, and settle open questions.")
    parser.add_argument("--backend", default="npu", choices=("npu", "emulator", "reference"))
    parser.add_argument("--json", metavar="FILE", help="also write the answers as JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.backend, json.loads(options.worker))
        return 0
    host, observed = supervise(options.backend)
    if not host:
        return 2  # the worker has said why
    print(f"{host['backend']}: {host['what']}\nlibrary: {host['library']}")
    rows = []
    for question, (expected, _) in PROBES.items():
        answer = observed[question]
        verdict = "-" if answer == "not applicable" else "as expected" if answer == expected else "DIFFERS"
        rows.append({"question": question, "expected": expected, "observed": answer, "verdict": verdict})
        print(f"{verdict:<12} {question}: {answer}".replace("\n", f"\n{'':15}"))
        if verdict == "DIFFERS":
            print(f"{'':15}expected: {expected}")
    wrong = [row for row in rows if row["verdict"] == "DIFFERS" and row["question"].startswith("numbers of")]
    print(f"{sum(row['verdict'] == 'DIFFERS' for row in rows)} of {len(rows)} differ, {len(wrong)} of them in numbers")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**host, "rows": rows}, file, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
