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
STAGE_TWO = "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"
KERNEL = "V2Grad kernel through the C ABI, fp32 R=2048 K=8 H=4096 with bias"

IMPORT = "import numpy, time; t = time.perf_counter(); import aclnn_py; print(time.perf_counter() - t)"

# In a process of its own: nothing is known of the operators but what the headers say.
HEADERS = """
import json, shutil, sys, time
from pathlib import Path
import numpy as np
import aclnn_py
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
    found = HeaderIndex(backend.headers.directories).names()
    assert len(found) > 1000, len(found)


backend = aclnn_py.get_backend("emulator")
x, out = backend.to_device(np.ones(4, np.float32)), backend.empty((4,), np.float32)
start = timed(lambda: aclnn_py.op("aclnnAdd", backend=backend)(x, x, 1.0, out))
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


def child(*command: str | Path, **variables: str) -> Any:
    """Run a program; return the JSON that it prints."""
    done = subprocess.run(
        list(map(str, command)), env=os.environ | variables, check=True, stdout=subprocess.PIPE, text=True, timeout=600
    )
    return json.loads(done.stdout)


def per_call(calls: int, body: Callable[[], object], wait: Callable[[], object]) -> float:
    """Give the median of the batches, in microseconds a call."""
    times = []
    for batch in range(BATCHES + 1):
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        if batch:
            times.append(1e6 * (time.perf_counter() - begin) / calls)
        wait()
    return statistics.median(times)


def arrays(tokens: int) -> list[np.ndarray[Any, Any]]:
    """Make the eight tensors of a V2Grad call with two slots, two experts and a width of two."""
    rng = np.random.default_rng(7)
    rows = 2 * tokens

    def floats(*shape: int) -> np.ndarray[Any, Any]:
        return rng.random(shape, dtype=np.float32) - np.float32(0.5)

    return [
        floats(tokens, 2),
        rng.permutation(rows).astype(np.int32),
        floats(rows, 2),
        floats(tokens, 2),
        np.arange(rows, dtype=np.int32).reshape(tokens, 2) % 2,
        floats(2, 2),
        np.zeros((rows, 2), np.float32),
        np.zeros((tokens, 2), np.float32),
    ]


def call_arguments(tensors: list[Any]) -> list[Any]:
    return [*tensors[:6], 0, 0, 0, 0, *tensors[6:]]


def one_shot(name: str, arguments: list[Any], backend: Any, stream: Any) -> Callable[[], None]:
    def body() -> None:
        with Executor(name, *arguments, backend=backend, stream=stream) as executor:
            executor.run()

    return body


def bench_import(repeat: int) -> list[Line]:
    times = [1e3 * child(sys.executable, "-c", IMPORT) for _ in range(repeat + 1)]
    return [Line.of("import aclnn_py beyond import numpy", times[1:], "ms", 15.0)]


def bench_calls(program: Path, libraries: Path, rounds: int, calls: int) -> list[Line]:
    backend = aclnn_py.get_backend("emulator")
    small = call_arguments([backend.to_device(array) for array in arrays(2)])
    cells = backend.to_device(np.ones(2, np.float32))
    cats = {n: ["aclnnCat", [[cells] * n, 0, backend.empty((2 * n,), np.float32)]] for n in CAT_SIZES}
    library = Library(libraries)
    baseline = [Tensor(library, array) for array in arrays(2)]
    baseline_arguments = call_arguments(baseline)

    def in_ctypes() -> None:
        with Call(library, *baseline_arguments) as call:
            call.run()

    found: dict[str, list[float]] = {}
    with backend.create_stream() as stream:
        kept = Executor(NAME, *small, backend=backend, stream=stream, repeatable=True)  # before the op cache knows it
        assert kept.reuse == "repeatable", kept.reuse
        bodies = {"run": kept.run, "one": one_shot(NAME, small, backend, stream)}
        bodies |= prepared_calls(small, backend, stream)
        bodies |= {f"cat {n}": one_shot(name, arguments, backend, stream) for n, (name, arguments) in cats.items()}
        with kept:
            for _ in range(rounds):
                native = child(program, "calls", str(BATCHES), str(calls))
                c = {"run": native["repeatable"], "one": native["one_shot"]}
                c |= {f"cat {n}": native["cat"][str(n)] for n in CAT_SIZES}
                now = {f"C {key}": statistics.median(times) for key, times in c.items()}
                now |= {key: per_call(calls, body, stream.synchronize) for key, body in bodies.items()}
                now["ctypes"] = per_call(calls, in_ctypes, library.synchronize)
                now |= {f"above {key}": now[key] - now[f"C {key}"] for key in c}
                now["ratio"] = now["one"] / now["ctypes"]
                for key, value in now.items():
                    found.setdefault(key, []).append(value)
    for tensor in baseline:
        tensor.close()
    library.close()
    rows: list[tuple[str, str, str, float | None]] = [
        ("one-shot Executor, 8 device arrays: above C", "above one", "µs", 25.0),
        ("one-shot Executor: time of the same in ctypes", "ratio", "x", 1.0),
        ("repeatable run(): above C", "above run", "µs", 3.0),
        ("one-shot call: Executor", "one", "µs", None),
        ("one-shot call: ctypes", "ctypes", "µs", None),
        ("one-shot call: C", "C one", "µs", None),
        ("repeatable run: Executor", "run", "µs", None),
        ("repeatable run: C", "C run", "µs", None),
        ("prepared call", "bind", "µs", None),
        *((f"one-shot aclnnCat of {n} tensors: above C", f"above cat {n}", "µs", None) for n in CAT_SIZES),
    ]
    return [Line.of(what, found[key], unit, bar) for what, key, unit, bar in rows if key in found]


def prepared_calls(arguments: list[Any], backend: Any, stream: Any) -> dict[str, Callable[[], object]]:
    """Give the calls of ``op(name).bind(...)``, where there is one."""
    bind = getattr(aclnn_py.op(NAME, backend=backend), "bind", None)
    return {} if bind is None else {"bind": bind(*arguments, stream=stream)}


def bench_scaling(rounds: int, calls: int) -> list[Line]:
    """Measure one-shot calls over the number of tokens and of Python threads."""
    backend = aclnn_py.get_backend("emulator")
    lines = []
    for tokens in (2, 256, 4096):
        arguments = call_arguments([backend.to_device(array) for array in arrays(tokens)])
        with backend.create_stream() as stream:
            body = one_shot(NAME, arguments, backend, stream)
            times = [per_call(calls, body, stream.synchronize) for _ in range(rounds)]
        lines.append(Line.of(f"one-shot Executor, R={tokens}", times, "µs"))
    for count in (1, 2, 4):
        times = [threaded(backend, count, calls) for _ in range(rounds)]
        lines.append(Line.of("one-shot Executor, calls of all threads", times, "µs", threads=count))
    return lines


def threaded(backend: Any, count: int, calls: int) -> float:
    """Give the microseconds a call when every thread calls on a stream of its own."""
    barrier = threading.Barrier(count)

    def work() -> tuple[float, float]:
        arguments = call_arguments([backend.to_device(array) for array in arrays(2)])
        with backend.create_stream() as stream:
            body = one_shot(NAME, arguments, backend, stream)
            body()
            barrier.wait(60)
            begin = time.perf_counter()
            for _ in range(calls):
                body()
            return begin, time.perf_counter()

    with ThreadPoolExecutor(count) as pool:
        begins, ends = zip(*pool.map(lambda _: work(), range(count)), strict=True)
    return 1e6 * (max(ends) - min(begins)) / (calls * count)


def header(names: list[str], parameters: str) -> str:
    """Write a header of the length and manner of CANN's."""
    text = ["/*\n" + " * Licence and notice, as long as such a text is.\n" * 12 + " */", "#pragma once"]
    for name in names:
        remark = "".join(f" * @param {p.split()[-1]}: dtypes, formats and shapes.\n" for p in parameters.split(","))
        tail = "uint64_t *workspaceSize, aclOpExecutor **executor"
        text.append(f"/**\n * @brief First stage of {name}.\n{remark} */")
        text.append(
            f'__attribute__((visibility("default"))) aclnnStatus {name}GetWorkspaceSize(\n    {parameters}, {tail});'
        )
        text.append(f'__attribute__((visibility("default"))) aclnnStatus {name}(\n    {STAGE_TWO});')
    return "\n".join(text)


def bench_headers(libraries: Path, repeat: int) -> list[Line]:
    """Measure an install that has the emulator's libraries and about a thousand generated headers."""
    many = ", ".join(f"const aclTensor *x{i}Optional" for i in range(6)) + ", int64_t n, const aclTensor *out"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        shutil.copytree(libraries, root / "lib64", symlinks=True)
        folder = root / "include" / "aclnnop"
        folder.mkdir(parents=True)
        for number in range(1000):
            text = header([f"aclnnBench{kind}{number}" for kind in ("", "Inplace", "V2")], many)
            (folder / f"aclnn_bench{number}.h").write_text(text)
        for name in UNARY:
            (folder / file_names(name)[0]).write_text(header([name], "const aclTensor *self, aclTensor *out"))
        variables = {"ACLNN_PY_LIBRARY_PATH": str(root / "lib64"), "XDG_CACHE_HOME": str(root / "cache")}
        command = (sys.executable, "-c", HEADERS, root / "cache", "2", *UNARY)
        runs = [child(*command, **variables) for _ in range(repeat)]
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
        variables = {"ACLNN_EMULATOR_THREADS": str(threads), "ACLNN_EMULATOR_STREAM": ""}
        found = child(program, "kernel", str(repeat), **variables)
        ratios = [k / c for k, c in zip(found["kernel"], found["copy"], strict=True)]
        lines.append(Line.of(f"{KERNEL}: time of a copy", ratios, "x", 1.5, threads))
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
