"""Where the time goes in the two rows of the benchmarks that are bound from below: one-shot calls, and the reference.

    python tests/bench_floor.py --build build [--rounds N] [--json FILE]

A one-shot call is split into the bare C calls through cffi, which any caller of this interface makes (a descriptor per
tensor, both stages, a destroy per descriptor), and what the checks and the bookkeeping add. The reference gradient is
split into its NumPy passes over one block of rows: each on one thread, and on two threads at once, where a pass of a
few microseconds waits for the interpreter lock as long as it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_reference import Line, machine, save, show

BATCH = 40


def call_floor(rounds: int) -> list[Line]:
    """Split a one-shot call of eight small device arrays, on the emulator with deferred streams."""
    from bench_calls import NAME, call_arguments, one_shot

    import aclnn_py
    from aclnn_py._ffi import ffi
    from aclnn_py.arguments import convert

    backend = aclnn_py.get_backend("emulator")
    signature = backend.signature(NAME)
    arguments = call_arguments(2, backend.to_device)
    tensors = [a for a in arguments if not isinstance(a, int)]
    described = [t.descriptor for t in tensors]
    create, destroy = backend.api.aclCreateTensor, backend.api.aclDestroyTensor
    stage_one, stage_two = backend.plan(signature)
    size, executor = ffi.new("uint64_t *"), ffi.new("aclOpExecutor **")
    with backend.create_stream() as stream:
        workspace = stream.acquire(32 << 20)

        def descriptors() -> None:
            for pointer in [create(*one) for one in described]:
                destroy(pointer)

        def bare() -> None:
            pointers = [create(*one) for one in described]
            executor[0] = ffi.NULL
            if stage_one(*pointers[:6], 0, 0, 0, 0, *pointers[6:], size, executor) or stage_two(
                workspace.pointer, size[0], executor[0], stream.handle
            ):
                raise RuntimeError("the bare call failed")
            for pointer in pointers:
                destroy(pointer)

        bodies: dict[str, Callable[[], object]] = {
            "one-shot: eight descriptors made and destroyed, bare cffi": descriptors,
            "one-shot: all C calls, bare cffi (the floor)": bare,
            "one-shot: checks and conversion of the arguments": lambda: convert(signature, arguments),
            "one-shot: Executor": one_shot(NAME, arguments, backend, stream),
        }
        found: dict[str, list[float]] = {what: [] for what in bodies}
        for number in range(rounds * 10 + 1):
            for what, body in bodies.items():
                begin = time.perf_counter()
                for _ in range(BATCH):
                    body()
                if number:
                    found[what].append(1e6 * (time.perf_counter() - begin) / BATCH)
            stream.synchronize()
        stream.release(workspace)
    return [Line.of(what, values, "µs") for what, values in found.items()]


def passes(dtype: str, rows: int, width: int) -> dict[str, Callable[[], object]]:
    """Give the passes of the gradient over one block, on buffers of their own."""
    rng = np.random.default_rng(0)
    raw = np.uint16 if dtype == "bfloat16" else np.float32
    source = rng.random((64 * rows, width), np.float32).astype(raw)
    target, table = np.zeros_like(source), rng.random((64, width), np.float32)
    index, experts = rng.permutation(64 * rows)[:rows], rng.integers(0, 64, rows)
    wide, scratch = (rng.random((rows, width), np.float32) for _ in range(2))
    block = wide if raw is np.float32 else np.empty((rows, width), raw)
    grad, scales = rng.random((1, width), np.float32), rng.random((rows, 1), np.float32)
    pieces = width // 1024
    left, right = wide.reshape(rows, pieces, 1, 1024), grad.reshape(1, pieces, 1024, 1)
    dots = np.empty((rows, pieces, 1, 1), np.float32)
    integers, odd = wide.view(np.uint32), scratch.view(np.uint32)
    steps: dict[str, Callable[[], object]] = {
        "gather rows": lambda: source.take(index, 0, block, "clip"),
        "gather bias": lambda: table.take(experts, 0, scratch, "clip"),
        "add bias": lambda: np.add(wide, scratch, out=wide),
        "row dots": lambda: np.matmul(left, right, out=dots),
        "multiply": lambda: np.multiply(grad, scales, out=wide),
        "scatter rows": lambda: target.__setitem__(index, block),
    }
    if raw is np.uint16:
        steps |= {
            "widen: copy": lambda: np.copyto(integers, block),
            "widen: shift": lambda: np.left_shift(odd, 16, out=odd),
            "round: look for NaN": lambda: wide.max(initial=-np.inf),
            "round: 5 integer passes, each": lambda: np.add(odd, 1, out=odd),
            "round: copy": lambda: np.copyto(block, integers, casting="same_kind"),
        }
    return steps


def together(bodies: list[Callable[[], object]], calls: int) -> float:
    """Give microseconds for a call, with each body called on a thread of its own."""

    def work(body: Callable[[], object]) -> None:
        for _ in range(calls):
            body()

    workers = [threading.Thread(target=work, args=(body,)) for body in bodies]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 1e6 * (time.perf_counter() - begin) / calls


def reference_floor(rounds: int) -> list[Line]:
    """Time each pass on one thread, and on two at once (2 x one thread's time: no gain from the second)."""
    lines = []
    for dtype, rows, width in (("float32", 24, 4096), ("bfloat16", 10, 7168)):
        each = [passes(dtype, rows, width) for _ in range(2)]
        for name in each[0]:
            bodies = [own[name] for own in each]
            for threads in (1, 2):
                values = [together(bodies[:threads], 100) for _ in range(rounds)]
                what = f"reference, {dtype}, a block of {rows} x {width}: {name}"
                lines.append(Line.of(what, values, "µs", threads=threads))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"), help="where CMake built the emulator")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ["ACLNN_PY_LIBRARY_PATH"] = str(options.build.resolve() / "lib")
    os.environ |= {"ACLNN_EMULATOR_STREAM": "deferred", "ACLNN_EMULATOR_THREADS": "1", "ACLNN_EMULATOR_STRICT": "1"}
    print(machine())
    lines = call_floor(options.rounds) + reference_floor(options.rounds)
    one, two = ([line for line in lines if line.threads == n and "block" in line.what] for n in (1, 2))
    gains = [2 * a.median / b.median for a, b in zip(one, two, strict=True)]
    lines.append(Line.of("reference: what two threads gain over one, median of the passes", gains, "x", threads=2))
    show(lines)
    if options.json:
        save(options.json, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
