"""Reports how the porter does on any tree of samples: ``python tests/corpus.py PATH... [--record] [--json FILE]``.

With ``--record`` each sample is also compiled and run against the emulator, and both results are compared.
``--signatures`` names directories with headers or documentation pages, for operators that the package does not know.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aclnn_py import signatures
from aclnn_py.port import model, read
from aclnn_py.port.compare import differences
from aclnn_py.port.record import record
from aclnn_py.port.sources import split_page
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
        return "complete", ["no result is read back"]
    return "complete", []


def prototypes(paths: list[Path]) -> dict[str, signatures.Signature]:
    """Signatures in the headers and pages below some directories; headers win."""
    found: dict[str, signatures.Signature] = {}
    for pattern in ("*.md", "*.h"):
        for path in (p for root in paths for p in root.rglob(pattern)):
            text = path.read_text(errors="replace")
            if pattern == "*.md":
                programs, rest = split_page(text)
                text = "\n".join([rest, *programs])
            problems: list[str] = []
            found.update((s.name, s) for s in signatures.parse_prototypes(text, path.name, problems))
    return found


def run(path: Path, lookup: Callable[[str], signatures.Signature | None], recording: bool) -> dict[str, Any]:
    """One sample: its status, reasons and notes; with ``recording``, what the emulator's record contradicts."""
    result: dict[str, Any] = {"path": str(path), "reasons": [], "notes": [], "recorded": None}
    start = time.perf_counter()
    program: model.Program | None = None
    try:
        program = trace(read([str(path)])[0].files, signature=lookup)
        result["status"], result["reasons"] = judge(program)
        result["notes"] = [f"{n.line}: {n.text}" for n in program.notes]
    except model.SampleError as error:
        result["status"], result["reasons"] = "invalid", [str(error)]
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        result["status"] = "crashed"
        result["reasons"] = [f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"]
    result["seconds"] = time.perf_counter() - start
    if recording:
        try:
            recorded = record([path], signature=lookup)
        except (model.SampleError, OSError) as error:
            result["recorded"] = f"not recorded: {str(error)[:300]}"
            return result
        result["recorded"] = judge_record(recorded)
        if program is not None:
            unlike = differences(program, recorded)
            if unlike:
                result["before"] = result["status"]
                result["status"], result["reasons"] = "disagreeing", unlike
    return result


def judge_record(program: model.Program) -> str:
    """Whether a record is complete; it cannot tell what is printed."""
    calls = any(isinstance(s, model.Call) for s in program.steps)
    return "refused" if program.refused else "complete" if calls and not unknowns(program) else "incomplete"


def _class(reason: str) -> str:
    return re.sub(r"\d[\d,]*", "N", re.sub(r"'[^']*'", "'…'", reason))[:110]


def main() -> int:
    """Run over the given trees and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="write every result to this file")
    parser.add_argument("--record", action="store_true", help="also run each sample on the emulator, and compare")
    parser.add_argument("--signatures", nargs="*", type=Path, default=[], help="directories of headers and pages")
    parser.add_argument("--every", type=int, default=1, help="take only every n-th file")
    parser.add_argument("--examples", type=int, default=2, help="files to name for each reason")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    files = list(samples(options.paths))[:: options.every]
    known = prototypes(options.signatures)

    def lookup(name: str) -> signatures.Signature | None:
        return known.get(name) or signatures.find(name)

    for i, path in enumerate(files):
        results.append(run(path, lookup, options.record))
        if sys.stderr.isatty() or i % 100 == 99:
            print(f"\r{i + 1}/{len(files)}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    counts = Counter(r["status"] for r in results)
    total = sum(r["seconds"] for r in results)
    print(f"\n{len(results)} files, {total:.1f} s: " + ", ".join(f"{k} {v}" for k, v in counts.most_common()))
    silent = sum(r["status"] == "complete" and bool(r["reasons"]) for r in results)
    print(f"of the complete ones, {silent} read no result back")
    if options.record:
        either = sum("complete" in (r["status"], r["recorded"]) for r in results)
        recorded = Counter(str(r["recorded"]).split(":")[0] for r in results)
        print(f"recorded: {dict(recorded)}; complete by either engine: {either}")
    for status in ("crashed", "disagreeing", "incomplete", "invalid", "refused"):
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
