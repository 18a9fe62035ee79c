"""What a call costs beyond the same calls in C, on the CPU emulator: import, calls, scaling, headers, the kernel.

    cmake -S . -B build && cmake --build build --target bench_calls
    python tests/bench_calls.py --build build [--rounds N] [--calls N] [--stream worker] [--no-kernel] [--json FILE]

``tests/c/bench_calls.cpp`` makes the calls in C, ``tests/bench_ctypes_baseline.py`` in ctypes. They and Python take
turns, round by round, on the same build of the emulator (strict, one thread); a line is the median of the rounds, with
the smallest and largest beside it. Tensors are tiny device arrays, and waiting for the stream is outside of the timed
batches. By default the emulator's streams are deferred, so that its kernels do not run beside what is timed: on a
device they would not either. ``--stream worker`` has them run on a thread at the same time. Exits 1 when a bar is
missed; a busy machine can do that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from bench_ctypes_baseline import NAME, Call, Library, Tensor
from bench_reference import Line, machine, save, show

import aclnn_py
from aclnn_py import Executor
from aclnn_py.headers import file_names

BATCHES = 5
CAT_SIZES = (1, 2, 4, 8, 16)
UNARY = ("aclnnSqrt", "aclnnExp", "aclnnSin", "aclnnCos", "aclnnTanh", "aclnnSilu", "aclnnGelu", "aclnnAbs")
KERNEL = "V2Grad emulator kernel, fp32 R=2048 K=8 H=4096"

IMPORT = (
    "import time; a = time.perf_counter(); import numpy; b = time.perf_counter(); import aclnn_py; "
    "print([b - a, time.perf_counter() - b])"
)

# in a process of its own that knows of the operators only what the headers say
HEADERS = """
import json, shutil, sys, time
from pathlib import Path
import numpy as np, aclnn_py
from aclnn_py import signatures
from aclnn_py.headers import HeaderIndex

cache, repeat, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
for name in names:
    signatures._builtins().pop(name)


def timed(body):
    begin = time.perf_counter()
    body()
    return 1e3 * (time.perf_counter() - begin)


def index():
    assert len(HeaderIndex(backend.headers.directories).names()) >= 1000 + len(names)


backend = aclnn_py.get_backend("emulator")
x, out = backend.to_device(np.ones(4, np.float32)), backend.empty((4,), np.float32)
aclnn_py.op("aclnnAdd", backend=backend)(x, x, 1.0, out)  # opens libraries, device and stream
first = [timed(lambda: aclnn_py.op(name, backend=backend)(x, out)) for name in names]
backend.stream().synchronize()
assert all(str(cache.parent) in backend.signature(name).header for name in names)
cold, cached = [], []
for _ in range(repeat):
    shutil.rmtree(cache, ignore_errors=True)
    cold.append(timed(index))
    cached.append(timed(index))
print(json.dumps({"first": first[0], "next": first[1:], "cold": cold, "cached": cached}))
"""


def child(*command: object, **variables: str) -> Any:
    """Run a program; return the JSON that it prints."""
    return json.loads(subprocess.check_output(list(map(str, command)), env=os.environ | variables, timeout=600))


def per_call(calls: int, wait: Callable[[], None], bodies: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Give the median of the batches of each body, in microseconds a call; the bodies take turns, batch by batch."""
    times: dict[str, list[float]] = {key: [] for key in bodies}
    for batch in range(BATCHES + 1):
        for key, body in bodies.items():
            begin = time.perf_counter()
            for _ in range(calls):
                body()
            if batch:
                times[key].append(1e6 * (time.perf_counter() - begin) / calls)
            wait()
    return {key: statistics.median(spent) for key, spent in times.items()}


def call_arguments(tokens: int, convert: Callable[[np.ndarray[Any, Any]], Any]) -> list[Any]:
    """Make a V2Grad call with two slots, two experts, a width of two and all eight tensors."""
    rng, rows = np.random.default_rng(7), 2 * tokens
    order, experts = rng.permutation(rows).astype(np.int32), np.arange(rows, dtype=np.int32).reshape(tokens, 2) % 2
    y, x, scales, bias = (rng.random((n, 2), dtype=np.float32) for n in (tokens, rows, tokens, 2))
    inputs, outputs = (y, order, x, scales, experts, bias), (np.zeros_like(x), np.zeros_like(scales))
    return [*map(convert, inputs), 0, 0, 0, 0, *map(convert, outputs)]


def one_shot(name: str, arguments: list[Any], backend: Any, stream: Any) -> Callable[[], None]:
    def body() -> None:
        with Executor(name, *arguments, backend=backend, stream=stream) as executor:
            executor.run()

    return body


def bench_import(repeat: int) -> list[Line]:  # with byte code, which the first run may have to write
    pairs = [child(sys.executable, "-c", IMPORT, PYTHONDONTWRITEBYTECODE="") for _ in range(repeat + 1)][1:]
    return [
        Line.of("import aclnn_py beyond import numpy", [1e3 * ours for _, ours in pairs], "ms", 15.0),
        Line.of("import numpy", [1e3 * numpy for numpy, _ in pairs], "ms"),
    ]


def bench_calls(program: Path, libraries: Path, rounds: int, calls: int) -> list[Line]:
    backend = aclnn_py.get_backend("emulator")
    small = call_arguments(2, backend.to_device)
    cells = backend.to_device(np.ones(2, np.float32))
    cats = {n: [[cells] * n, 0, backend.empty((2 * n,), np.float32)] for n in CAT_SIZES}
    library = Library(libraries)
    baseline = call_arguments(2, lambda array: Tensor(library, array))

    def in_ctypes() -> None:
        with Call(library, *baseline) as call:
            call.run()

    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        stream = stack.enter_context(backend.create_stream())
        # the repeatable ones first: a call that the op cache knows cannot be made repeatable
        kept = stack.enter_context(Executor(NAME, *small, backend=backend, stream=stream, repeatable=True))
        bound = stack.enter_context(aclnn_py.op(NAME, backend=backend).bind(*small, stream=stream))
        assert kept.reuse == bound.executor.reuse == "repeatable"
        turns = cycle([small[0], backend.empty((2, 2), np.float32)])
        bodies = {"run": kept.run, "one": one_shot(NAME, small, backend, stream), "ctypes": in_ctypes, "bound": bound}
        bodies["rebound"] = lambda: bound(gradY=next(turns))
        bodies |= {f"cat {n}": one_shot("aclnnCat", arguments, backend, stream) for n, arguments in cats.items()}

        def wait() -> None:
            stream.synchronize()
            library.synchronize()

        for _ in range(rounds):
            native = child(program, "calls", BATCHES, calls)
            c = {"run": native["repeatable"], "one": native["one_shot"]}
            c |= {f"cat {n}": native["cat"][str(n)] for n in CAT_SIZES}
            now = {f"C {key}": statistics.median(times) for key, times in c.items()}
            now |= per_call(calls, wait, bodies)
            now |= {f"above {key}": now[key] - now[f"C {key}"] for key in c}
            now["ratio"] = now["one"] / now["ctypes"]
            for key, value in now.items():
                found.setdefault(key, []).append(value)
    for tensor in (value for value in baseline if isinstance(value, Tensor)):
        tensor.close()
    library.close()
    rows: list[tuple[str, str, str, float | None]] = [
        ("one-shot Executor, 8 device arrays: above C", "above one", "µs", 25.0),
        ("one-shot Executor: times the same in ctypes", "ratio", "x", 1.0),
        ("repeatable run(): above C", "above run", "µs", 3.0),
        ("one-shot call: Executor", "one", "µs", None),
        ("one-shot call: ctypes", "ctypes", "µs", None),
        ("one-shot call: C", "C one", "µs", None),
        ("repeatable run: Executor", "run", "µs", None),
        ("repeatable run: C", "C run", "µs", None),
        ("prepared call (bind)", "bound", "µs", None),
        ("prepared call, one tensor replaced", "rebound", "µs", None),
        *((f"one-shot aclnnCat of {n} tensors: above C", f"above cat {n}", "µs", None) for n in CAT_SIZES),
    ]
    return [Line.of(what, found[key], unit, bar) for what, key, unit, bar in rows]


def bench_scaling(rounds: int, calls: int) -> list[Line]:
    """Measure one-shot calls over the number of tokens and of Python threads."""
    backend = aclnn_py.get_backend("emulator")
    with backend.create_stream() as stream:
        bodies = {
            f"one-shot Executor, R={tokens}": one_shot(NAME, call_arguments(tokens, backend.to_device), backend, stream)
            for tokens in (2, 64, 1024)
        }
        found = [per_call(calls, stream.synchronize, bodies) for _ in range(rounds)]
    lines = [Line.of(what, [times[what] for times in found], "µs") for what in bodies]
    for count in (1, 2, 4):
        times = [threaded(backend, count, calls) for _ in range(rounds)]
        lines.append(Line.of("one-shot Executor, calls of all threads", times, "µs", threads=count))
    return lines


def threaded(backend: Any, count: int, calls: int) -> float:
    """Give the microseconds a call when every thread calls on a stream of its own."""
    barrier = threading.Barrier(count)

    def work() -> tuple[float, float]:
        with backend.create_stream() as stream:
            body = one_shot(NAME, call_arguments(2, backend.to_device), backend, stream)
            body()
            barrier.wait(60)
            begin = time.perf_counter()
            for _ in range(calls):
                body()
            return begin, time.perf_counter()

    with ThreadPoolExecutor(count) as pool:
        begins, ends = zip(*pool.map(lambda _: work(), range(count)), strict=True)
    return 1e6 * (max(ends) - min(begins)) / (calls * count)


def header(name: str, parameters: str) -> str:
    """Write a header of the length and manner of CANN's."""
    remarks = "".join(f" * @param {p.split()[-1]}: its dtypes, formats and shapes.\n" for p in parameters.split(","))
    notice = "// Licence and notice, as long as such a text is.\n" * 12 + "#pragma once\n"
    tail, visible = "uint64_t *workspaceSize, aclOpExecutor **executor", '__attribute__((visibility("default")))'
    return (
        f"{notice}/**\n * @brief First stage of {name}.\n{remarks} */\n{visible} aclnnStatus {name}GetWorkspaceSize(\n"
        f"    {parameters},\n    {tail});\n/**\n * @brief Second stage.\n */\n{visible} aclnnStatus {name}(\n"
        "    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);\n"
    )


def bench_headers(libraries: Path, repeat: int) -> list[Line]:
    """Measure an install that has the emulator's libraries and a thousand generated headers."""
    many = ", ".join(f"const aclTensor *x{i}Optional" for i in range(6)) + ", int64_t n, const aclTensor *out"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        shutil.copytree(libraries, root / "lib64", symlinks=True)
        folder = root / "include" / "aclnnop"
        folder.mkdir(parents=True)
        for number in range(1000):
            (folder / f"aclnn_bench{number}.h").write_text(header(f"aclnnBench{number}", many))
        for name in UNARY:
            (folder / file_names(name)[0]).write_text(header(name, "const aclTensor *self, aclTensor *out"))
        place = {"ACLNN_PY_LIBRARY_PATH": str(root / "lib64"), "XDG_CACHE_HOME": str(root / "cache")}
        runs = [child(sys.executable, "-c", HEADERS, root / "cache", "2", *UNARY, **place) for _ in range(repeat)]
    cold, cached, later = ([t for run in runs for t in run[key]] for key in ("cold", "cached", "next"))
    return [
        Line.of("1,000 headers indexed", cold, "ms", 500.0),
        Line.of("first call of an operator that only the headers declare", [run["first"] for run in runs], "ms", 5.0),
        Line.of("first call of a further such operator", later, "ms"),
        Line.of("1,000 headers, index read from its cache", cached, "ms"),
    ]


def bench_kernel(program: Path, repeat: int) -> list[Line]:
    lines = []
    for threads in (1, 2):
        found = child(program, "kernel", repeat, ACLNN_EMULATOR_THREADS=str(threads), ACLNN_EMULATOR_STREAM="")
        ratios = [k / c for k, c in zip(found["kernel"], found["copy"], strict=True)]
        lines.append(Line.of(f"{KERNEL}: times a copy", ratios, "x", 1.5, threads))
        lines.append(Line.of(f"{KERNEL}", found["kernel"], "ms", threads=threads))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"), help="where CMake built bench_calls")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=200, help="in a batch")
    parser.add_argument("--stream", choices=("deferred", "worker"), default="deferred")
    parser.add_argument("--no-kernel", action="store_true", help="leave out the large kernel")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    program, libraries = (options.build.resolve() / part for part in ("bench_calls", "lib"))
    if not program.exists():
        parser.error(f"{program} is missing: cmake -S . -B {options.build} && cmake --build {options.build}")
    # all before the emulator is opened; its programs inherit it
    os.environ["ACLNN_PY_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"] = str(libraries)
    os.environ |= {"ACLNN_EMULATOR_STREAM": options.stream, "ACLNN_EMULATOR_THREADS": "1", "ACLNN_EMULATOR_STRICT": "1"}
    print(f"{machine()}; emulator streams: {options.stream}")
    lines = bench_import(max(10, options.rounds))
    lines += bench_calls(program, libraries, options.rounds, options.calls)
    lines += bench_scaling(options.rounds, options.calls)
    lines += bench_headers(libraries, options.rounds)
    if not options.no_kernel:
        lines += bench_kernel(program, max(7, options.rounds))
    show(lines)
    if options.json:
        save(options.json, lines)
    return 0 if all(line.held for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
