"""What calls cost on a backend, and how long the main gradient takes beside a copy of its bytes: ``aclnn-py bench``.

The numbers belong to the machine they were taken on. Those of the reference and the emulator say nothing about a
device; the comparisons with C, ctypes and torch are in ``tests/bench_all.py`` of the repository.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .backends import Backend, NativeBackend
from .catalog import op
from .executor import Executor
from .ops import moe_finalize_routing_v2_grad

__all__ = ["Timing", "run"]

_GRAD = "aclnnMoeFinalizeRoutingV2Grad"
_SMALL, _LARGE = (2, 2, 2), (2048, 8, 4096)  # tokens, slots, width


class Timing(NamedTuple):
    """One line: median, smallest and largest of the rounds, in ``unit``.

    Examples
    --------
    >>> Timing.of("a call", [3.0, 1.0, 2.0], "µs")
    Timing(what='a call', median=2.0, low=1.0, high=3.0, unit='µs')
    """

    what: str
    median: float
    low: float
    high: float
    unit: str

    @classmethod
    def of(cls, what: str, values: list[float], unit: str) -> Timing:
        """Summarise the values of all rounds."""
        return cls(what, statistics.median(values), min(values), max(values), unit)


def _arguments(backend: Backend, shape: tuple[int, int, int]) -> list[Any]:
    """Make a V2Grad call in mode 0 with all eight tensors, where the backend computes."""
    tokens, slots, width = shape
    rng, rows = np.random.default_rng(0), tokens * slots
    y, x, scales, bias = (
        rng.random((n, w), np.float32) for n, w in ((tokens, width), (rows, width), (tokens, slots), (slots, width))
    )
    order = rng.permutation(rows).astype(np.int32)
    experts = (np.arange(rows, dtype=np.int32) % slots).reshape(tokens, slots)
    inputs, outputs = (y, order, x, scales, experts, bias), (np.zeros_like(x), np.zeros_like(scales))
    place: Callable[[Any], Any] = backend.to_device if isinstance(backend, NativeBackend) else lambda array: array
    return [*map(place, inputs), 0, 0, 0, 0, *map(place, outputs)]


def _timed(rounds: int, calls: int, wait: Callable[[], None], body: Callable[[], object]) -> list[float]:
    """Give microseconds a call, a value per round after one untimed; the wait is outside of what is timed."""
    values = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        values.append(1e6 * (time.perf_counter() - begin) / calls)
        wait()
    return values[1:]


def _calls(backend: Backend, wait: Callable[[], None], rounds: int) -> list[Timing]:
    arguments = _arguments(backend, _SMALL)

    def one_shot() -> None:
        with Executor(_GRAD, *arguments, backend=backend) as executor:
            executor.run()

    # the prepared one first: CANN does not make a call repeatable that its cache knows
    with op(_GRAD, backend=backend).bind(*arguments) as prepared:
        lines: list[tuple[str, Callable[[], object]]] = [
            ("prepared call (op(...).bind), small tensors", prepared),
            ("prepared call, one tensor replaced", lambda: prepared(gradY=arguments[0])),
            ("one-shot Executor, 8 small tensors", one_shot),
        ]
        return [Timing.of(what, _timed(rounds, 100, wait, body), "µs") for what, body in lines]


def _gradient(backend: Backend, wait: Callable[[], None], rounds: int) -> list[Timing]:
    arguments = _arguments(backend, _LARGE)
    x, out = arguments[2], arguments[-2]

    def copy() -> None:
        if isinstance(backend, NativeBackend):
            out.buffer.copy_from(x.buffer, stream=backend.stream())
        else:
            np.copyto(out, x)
        wait()

    def gradient() -> None:
        moe_finalize_routing_v2_grad(*arguments[:6], out=(out, arguments[-1]), backend=backend)
        wait()

    bodies = {"gradient": gradient, "copy": copy}
    spent: dict[str, list[float]] = {name: [] for name in bodies}
    for _ in range(rounds):  # taking turns
        for name, body in bodies.items():
            spent[name] += [t / 1e3 for t in _timed(1, 1, wait, body)]
    size = "float32, R={} K={} H={}".format(*_LARGE)
    ratios = [a / b for a, b in zip(spent["gradient"], spent["copy"], strict=True)]
    return [
        Timing.of(f"{_GRAD}, {size}", spent["gradient"], "ms"),
        Timing.of("copy of its expanded tokens (268 MB)", spent["copy"], "ms"),
        Timing.of("the gradient in copies", ratios, "x"),
    ]


def run(backend: Backend, *, quick: bool = False, file: str | None = None) -> int:
    """Time calls on a backend, print a table, write JSON if asked; return the exit status.

    Parameters
    ----------
    backend
        What to time.
    quick
        Few rounds, and only the calls.
    file
        Where to write the numbers as JSON.

    Examples
    --------
    >>> from aclnn_py import get_backend
    >>> run(get_backend("reference"), quick=True)  # doctest: +ELLIPSIS
    backend: reference...
    0
    """
    rounds = 3 if quick else 9
    print(f"backend: {backend.name} ({backend.describe()})")
    if backend.name != "npu":
        print("nothing here is timed on an NPU")

    def wait() -> None:
        if isinstance(backend, NativeBackend):
            backend.stream().synchronize()

    lines = _calls(backend, wait, rounds)
    if not quick:
        print("timing: some seconds", file=sys.stderr, flush=True)
        lines += _gradient(backend, wait, rounds)
    for line in lines:
        print(f"  {line.what:66} {line.median:9.2f} {line.unit}   ({line.low:.2f} - {line.high:.2f})")
    if file is not None:
        with open(file, "w", encoding="utf-8") as out:
            json.dump({"backend": backend.describe(), "lines": [line._asdict() for line in lines]}, out, indent=1)
    return 0
