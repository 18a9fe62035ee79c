"""Reports how the porter does on any tree of samples: ``python tests/corpus.py PATH... [--record] [--json FILE]``.

Not part of the test suite: it takes minutes, and the samples are not ours.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aclnn_py import signatures
from aclnn_py.port import model
from aclnn_py.port.static import trace

_EXCLUDED = {"tests", "scripts"}


def samples(paths: list[Path]) -> Iterator[Path]:
    """Sample files below some paths: ``test_aclnn_*.cpp`` outside tests and scripts, or files given by name."""
    for path in paths:
        if path.is_file():
            yield path
            continue
        for found in sorted(path.rglob("test_aclnn_*.cpp")):
            if not _EXCLUDED & set(found.relative_to(path).parts):
                yield found


def unknowns(program: model.Program) -> list[str]:
    """Reasons for everything that was not understood."""
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, model.Unknown):
            found.append(value.reason)
        elif isinstance(value, model.Tensor):
            look(value.data)
        elif isinstance(value, model.Sequence):
            for item in value.items:
                look(item)

    for step in program.steps:
        if isinstance(step, model.Call):
            for value in step.arguments.values():
                look(value)
        elif isinstance(step, model.Unknown):
            look(step)
    return found


def judge(program: model.Program) -> tuple[str, list[str]]:
    """Status of a program and the reasons."""
    if program.refused:
        return "refused", [program.refused]
    calls = [s for s in program.steps if isinstance(s, model.Call)]
    reasons = unknowns(program)
    if not calls:
        return "incomplete", [*reasons, "no operator is called"]
    if reasons:
        return "incomplete", reasons
    if not any(isinstance(s, (model.Print, model.Check)) for s in program.steps):
        return "incomplete", ["no result is read back"]
    return "complete", []


def run(path: Path) -> dict[str, Any]:
    """One sample: its status, reasons and notes."""
    start = time.perf_counter()
    text = path.read_text(errors="replace")
    try:
        program = trace([(path.name, text)], signature=signatures.find)
        status, reasons = judge(program)
        notes = [f"{n.line}: {n.text}" for n in program.notes]
    except model.SampleError as error:
        status, reasons, notes = "invalid", [str(error)], []
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        status = "crashed"
        reasons, notes = [f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"], []
    return {"path": str(path), "status": status, "reasons": reasons, "notes": notes, "seconds": time.perf_counter() - start}


def _class(reason: str) -> str:
    return re.sub(r"\d[\d,]*", "N", re.sub(r"'[^']*'", "'…'", reason))[:110]


def main() -> int:
    """Run over the given trees and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="write every result to this file")
    parser.add_argument("--examples", type=int, default=2, help="files to name for each reason")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    files = list(samples(options.paths))
    for i, path in enumerate(files):
        results.append(run(path))
        if sys.stderr.isatty() or i % 200 == 199:
            print(f"\r{i + 1}/{len(files)}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    counts = Counter(r["status"] for r in results)
    total = sum(r["seconds"] for r in results)
    print(f"\n{len(results)} files, {total:.1f} s: " + ", ".join(f"{k} {v}" for k, v in counts.most_common()))
    for status in ("crashed", "incomplete", "invalid", "refused"):
        classes: dict[str, list[str]] = defaultdict(list)
        for r in results:
            if r["status"] == status:
                classes[_class(r["reasons"][0])].append(r["path"])
        if classes:
            print(f"\n{status}:")
        for reason, paths in sorted(classes.items(), key=lambda c: -len(c[1])):
            shown = "  ".join(p[-90:] for p in paths[: options.examples])
            print(f"  {len(paths):4}  {reason}\n          {shown}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
