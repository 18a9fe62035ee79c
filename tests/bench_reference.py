"""Time and memory of the reference gradient against its bars, as ratios within one run.

    python tests/bench_reference.py [--small] [--repeat N] [--json FILE]

Every line compares the reference with something else on the same arrays, the two taking turns: ``np.copyto`` of the
same bytes, plain fancy indexing in NumPy, and, where torch is installed, index_select and cumsum in torch on the CPU.
Ratios are medians, with the smallest and largest beside them. Extra memory is what tracemalloc sees at its peak.
Lines without a bar show how time and memory grow with the number of tokens R.
Exits 1 when a bar is missed; a busy machine can do that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aclnn_py import dtypes
from aclnn_py.reference import OPERATORS

GRAD = OPERATORS["aclnnMoeFinalizeRoutingV2Grad"]
MIB = 1 << 20


class Line(NamedTuple):
    """One measurement: ``bar``, if any, bounds ``median`` from above, or from below where ``at_least``."""

    what: str
    threads: int
    median: float
    low: float
    high: float
    bar: float | None = None
    at_least: bool = False
    unit: str = "x"

    @classmethod
    def of(cls, what: str, values: list[float], unit: str, bar: float | None = None, threads: int = 1) -> Line:
        return cls(what, threads, statistics.median(values), min(values), max(values), bar, unit=unit)

    @property
    def held(self) -> bool:
        return self.bar is None or (self.median >= self.bar if self.at_least else self.median <= self.bar)

    @property
    def limit(self) -> str:
        return "" if self.bar is None else f"{'≥' if self.at_least else '≤'} {self.bar:g} {self.unit}"


def show(lines: list[Line], judge: bool = True) -> None:
    """Print lines as a table; ``judge`` says whether each is within its bar."""
    print(f"{'':66}{'threads':>8}{'median':>10}{'spread':>20}  bar")
    for line in lines:
        spread = f"{line.low:.2f} - {line.high:.2f} {line.unit}"
        verdict = "" if not judge or line.bar is None else "  held" if line.held else "  MISSED"
        print(f"{line.what:66}{line.threads:>8}{line.median:>10.2f}{spread:>20}  {line.limit}{verdict}")


def save(file: str, lines: list[Line]) -> None:
    """Write lines as JSON."""
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"machine": machine(), "lines": [line._asdict() | {"held": line.held} for line in lines]}, out)


def arguments(tokens: int, slots: int, hidden: int, dtype: np.dtype[Any], experts: int = 64) -> dict[str, Any]:
    """Make a full call in mode 0, with bias and outputs."""
    rng = np.random.default_rng(20260101)

    def floats(*shape: int) -> Any:
        wide = rng.random(shape, dtype=np.float32)
        wide -= 0.5
        if dtype == np.float32:
            return wide
        return (wide.view(np.uint32) >> 16).astype(np.uint16).view(dtype)

    rows = tokens * slots
    return {
        "gradY": floats(tokens, hidden),
        "expandedRowIdx": rng.permutation(rows).astype(np.int32),
        "expandedXOptional": floats(rows, hidden),
        "scalesOptional": floats(tokens, slots),
        "expertIdxOptional": rng.integers(0, experts, (tokens, slots), dtype=np.int32),
        "biasOptional": floats(experts, hidden),
        "dropPadMode": 0,
        "activeNum": 0,
        "expertNum": 0,
        "expertCapacity": 0,
        "gradExpandedXOut": np.zeros((rows, hidden), dtype),
        "gradScalesOut": np.zeros((tokens, slots), dtype),
    }


def naive(args: dict[str, Any]) -> None:
    """Compute the same with whole-tensor fancy indexing and casts."""
    index = args["expandedRowIdx"]
    dtype, (tokens, slots) = args["gradY"].dtype, args["scalesOptional"].shape
    grad = args["gradY"].astype(np.float32)
    scales = args["scalesOptional"].astype(np.float32)
    scaled = (grad[:, None, :] * scales[:, :, None]).reshape(tokens * slots, -1)
    args["gradExpandedXOut"][index] = scaled.astype(dtype)
    x = args["expandedXOptional"][index].astype(np.float32)
    x += args["biasOptional"][args["expertIdxOptional"].reshape(-1)].astype(np.float32)
    x = x.reshape(tokens, slots, -1)
    args["gradScalesOut"][...] = (x * grad[:, None, :]).sum(-1).astype(dtype)


def torch_oracle(args: dict[str, Any]) -> Callable[[], None] | None:
    """Compute the same with index_select and a sequential (cumsum) reduction in torch; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    t = {name: torch.from_numpy(value) for name, value in args.items() if isinstance(value, np.ndarray)}
    index = t["expandedRowIdx"].long()
    slots = t["scalesOptional"].shape[1]

    def run() -> None:
        grad = t["gradY"].repeat_interleave(slots, 0)
        inverse = torch.empty_like(index)
        inverse[index] = torch.arange(index.numel())
        scaled = grad * t["scalesOptional"].reshape(-1, 1)
        t["gradExpandedXOut"].copy_(scaled.index_select(0, inverse))
        x = t["expandedXOptional"].index_select(0, index)
        x = x + t["biasOptional"].index_select(0, t["expertIdxOptional"].reshape(-1).long())
        dots = torch.cumsum(x * grad, -1)[:, -1]
        t["gradScalesOut"].copy_(dots.reshape(-1, slots))

    return run


def take_turns(repeat: int, *bodies: Callable[[], None]) -> list[list[float]]:
    """Time each body ``repeat`` times after one untimed round."""
    times: list[list[float]] = [[] for _ in bodies]
    for number in range(repeat + 1):
        for body, spent in zip(bodies, times, strict=True):
            begin = time.perf_counter()
            body()
            if number:
                spent.append(time.perf_counter() - begin)
    return times


def compare(what: str, threads: int, over: list[float], under: list[float], bar: float, at_least: bool) -> Line:
    """Divide times pairwise."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return Line(what, threads, statistics.median(ratios), min(ratios), max(ratios), bar, at_least)


def peak(body: Callable[[], None]) -> int:
    """Give the most bytes a call holds beyond what there was."""
    tracemalloc.start()
    body()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def bench_float32(shape: tuple[int, int, int], repeat: int) -> list[Line]:
    args = arguments(*shape, np.dtype(np.float32))
    out, x = args["gradExpandedXOut"], args["expandedXOptional"]
    outputs = out.nbytes + args["gradScalesOut"].nbytes
    lines = []
    for threads, bar in ((1, 5.0), (2, 4.0)):
        os.environ["ACLNN_PY_NUM_THREADS"] = str(threads)
        copy, grad = take_turns(repeat, lambda: np.copyto(out, x), lambda: GRAD.compute(args, "A2"))
        lines.append(
            compare("V2Grad reference, fp32: times np.copyto of the same bytes", threads, grad, copy, bar, False)
        )
        extra = 100 * peak(lambda: GRAD.compute(args, "A2")) / outputs
        lines.append(Line.of("V2Grad reference, fp32: extra memory over the outputs", [extra], "%", 5.0, threads))
    oracle = torch_oracle(args)
    if oracle is None:
        print("torch is not installed: no comparison with index_select and cumsum", file=sys.stderr)
    else:
        slow, grad = take_turns(max(2, repeat // 3), oracle, lambda: GRAD.compute(args, "A2"))
        lines.append(
            compare("V2Grad reference, fp32: faster than torch index_select + cumsum", 2, slow, grad, 15.0, True)
        )
    return lines


def bench_bfloat16(shape: tuple[int, int, int], repeat: int) -> list[Line]:
    args = arguments(*shape, dtypes.bfloat16())
    lines = []
    for threads in (1, 2):
        os.environ["ACLNN_PY_NUM_THREADS"] = str(threads)
        slow, grad = take_turns(max(2, repeat // 3), lambda: naive(args), lambda: GRAD.compute(args, "A2"))
        lines.append(compare("V2Grad reference, bf16: faster than fancy indexing", threads, slow, grad, 3.0, True))
        extra = peak(lambda: GRAD.compute(args, "A2")) / MIB
        lines.append(Line.of("V2Grad reference, bf16: extra memory", [extra], "MiB", 64.0, threads))
    return lines


def bench_scaling(shape: tuple[int, int, int], repeat: int) -> list[Line]:
    """Time and extra memory of the bf16 gradient over R, up to the given one."""
    lines = []
    for tokens in (shape[0] // 16, shape[0] // 4, shape[0]):
        args = arguments(tokens, *shape[1:], dtypes.bfloat16())
        times = take_turns(repeat, lambda args=args: GRAD.compute(args, "A2"))[0]  # type: ignore[misc]
        lines.append(
            Line.of(
                f"V2Grad reference, bf16: time a token, R={tokens}", [1e6 * t / tokens for t in times], "µs", threads=2
            )
        )
        extra = peak(lambda args=args: GRAD.compute(args, "A2")) / MIB  # type: ignore[misc]
        lines.append(Line.of(f"V2Grad reference, bf16: extra memory, R={tokens}", [extra], "MiB", threads=2))
    return lines


def machine() -> str:
    """Name the machine, as far as it says."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} CPUs, Python {platform.python_version()}, NumPy {np.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small shapes: shows that it runs, says nothing of bars")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    fp32, bf16 = ((64, 8, 512), (64, 8, 512)) if options.small else ((2048, 8, 4096), (4096, 8, 7168))
    scaling = (fp32[0], *bf16[1:])
    print(machine())
    lines = bench_float32(fp32, options.repeat) + bench_bfloat16(bf16, options.repeat)
    lines += bench_scaling(scaling, max(2, options.repeat // 3))
    print(f"(R, K, H): fp32 {fp32}, bf16 {bf16}, over R {scaling}\n")
    show(lines, judge=not options.small)
    if options.json:
        save(options.json, lines)
    return 0 if options.small or all(line.held for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
