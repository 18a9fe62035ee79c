"""All benchmarks in one table, each number against its bar.

    python tests/bench_all.py [--build DIR] [--quick] [--json FILE]

Builds the emulator and ``tests/c/bench_calls.cpp`` with CMake, in ``--build`` (kept and built upon) or in a temporary
directory, runs ``bench_calls.py``, ``bench_reference.py`` and ``bench_floor.py``, and prints Markdown. Takes some
minutes and about 4 GB.
Nothing here is timed on an NPU: the emulator is a functional stand-in. A missed bar is said, and is no failure of the
command: a busy machine can do that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_reference import Line, machine

HERE = Path(__file__).resolve().parent


def build(directory: Path) -> None:
    """Build the C side and the emulator that it and Python use."""
    cmake = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
    if cmake is None:
        raise SystemExit("building the emulator needs CMake (3.18 or newer) and a C++17 compiler")
    for command in (
        [cmake, "-S", HERE.parent, "-B", directory, "-DCMAKE_BUILD_TYPE=Release"],
        [cmake, "--build", directory, "--target", "bench_calls", "--parallel", str(os.cpu_count() or 1)],
    ):
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}")


def measure(script: str, *options: str) -> list[Line]:
    """Run one of the benchmarks; give its lines."""
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "lines.json"
        command = [sys.executable, str(HERE / script), *options, "--json", str(file)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if not file.exists():  # its status alone may say that a bar was missed
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
        lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
    return [Line(**{name: line[name] for name in Line._fields}) for line in lines]


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(lines: list[Line], judge: bool) -> str:
    rows = ["| what | threads | median (min – max) |", "|---|---|---|"]
    if judge:
        rows = [f"{row}{more}" for row, more in zip(rows, (" bar | met? |", "---|---|"), strict=True)]
    for line in lines:
        values = f"{number(line.median)} ({number(line.low)} – {number(line.high)}) {line.unit}"
        verdict = f" {line.limit} | {'yes' if line.held else '**missed**'} |" if judge else ""
        rows.append(f"| {line.what} | {line.threads} | {values} |{verdict}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, metavar="DIR", help="build here and keep it; default: a temporary place")
    parser.add_argument("--quick", action="store_true", help="few rounds, no large kernel, small reference shapes")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    calls = ["--rounds", "3", "--calls", "100", "--no-kernel"] if options.quick else []
    reference = ["--small", "--repeat", "3"] if options.quick else []
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.build or Path(temporary)
        print("building, then timing: some minutes", file=sys.stderr, flush=True)
        build(directory)
        lines = measure("bench_calls.py", "--build", str(directory), *calls)
        lines += measure("bench_reference.py", *reference)
        floor = measure("bench_floor.py", "--build", str(directory), *(["--rounds", "2"] if options.quick else []))
    bars = [line for line in lines if line.bar is not None]
    others = [line for line in lines if line.bar is None]
    print(f"Measured on {machine()}; nothing was timed on an NPU.\n")
    if options.quick:
        print("Quick: small shapes and few rounds, so the verdicts say little.\n")
    print(table(bars, judge=True))
    print("\nWithout a bar: absolute times, and how they grow.\n")
    print(table(others, judge=False))
    print("\nWhere the time goes: the C calls alone, and the passes of the reference.\n")
    print(table(floor, judge=False))
    if not any("torch" in line.what for line in lines):
        print("\ntorch is not installed here: no comparison with index_select and cumsum")
    print(f"\n{sum(line.held for line in bars)} of {len(bars)} bars met")
    if options.json:
        rows = [line._asdict() | {"held": line.held} for line in [*lines, *floor]]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine(), "quick": options.quick, "lines": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
