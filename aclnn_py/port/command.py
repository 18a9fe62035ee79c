"""The command ``aclnn-py port``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import Sample

__all__ = ["add", "run"]

REFUSED, INCOMPLETE = 1, 2


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "port",
        help="turn a C++ sample into a Python script",
        epilog="exit status: 0 the script is complete; 1 refused, or not valid C++; 2 the script has TODOs",
    )
    parser.add_argument("sources", nargs="+", metavar="SAMPLE", help="C++ files or Markdown pages; - is standard input")
    parser.add_argument("-o", "--output", type=Path, help="file to write; a directory when there are several samples")
    parser.add_argument(
        "--record", action="store_true", help="compile and run it against the emulator, and write down what it calls"
    )
    parser.add_argument(
        "--signature", action="append", default=[], metavar="TEXT",
        help="prototype of an operator that is not built in: C text, a header, or a documentation page",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Port the samples; return the exit status."""
    from . import read

    samples = read(options.sources)
    output: Path | None = options.output
    if output is not None and len(samples) > 1 and not output.is_dir():
        raise ValueError(f"{len(samples)} samples need a directory: {output} is none")
    statuses: list[int] = []
    names: set[str] = set()
    for sample in samples:
        path = output
        if output is not None and output.is_dir():
            path = _free(output, Path(sample.title).stem, names)
        statuses.append(_port(sample, path, options))
    return REFUSED if REFUSED in statuses else max(statuses, default=0)


def _free(directory: Path, stem: str, names: set[str]) -> Path:
    """Return a name for a script; a page has several samples of one name."""
    name, count = stem, 2
    while name in names:
        name, count = f"{stem}_{count}", count + 1
    names.add(name)
    return directory / f"{name}.py"


def _port(sample: Sample, path: Path | None, options: argparse.Namespace) -> int:
    from . import port
    from .model import SampleError

    data_file = f"{Path(sample.title).stem}.npz" if path is None else path.with_suffix(".npz").name
    try:
        result = port(sample, record=options.record, signature=options.signature, data_file=data_file)
    except (SampleError, ImportError) as error:
        print(f"aclnn-py port: {error}", file=sys.stderr)
        return REFUSED
    for note in result.notes:
        print(f"{note} (warning)", file=sys.stderr)
    for gap in () if result.refused else result.missing:
        print(f"{gap} (not understood: a TODO in the script)", file=sys.stderr)
    if result.data and path is None:
        print(
            f"aclnn-py port: {', '.join(result.data)} of {sample.title} are too long for the script and go to a file "
            "beside it: name the script with -o",
            file=sys.stderr,
        )
        return REFUSED
    if path is None:
        print(result.script, end="")
    else:
        import numpy as np

        path.write_text(result.script, encoding="utf-8")
        if result.data:
            arrays: dict[str, Any] = result.data
            np.savez_compressed(path.with_suffix(".npz"), **arrays)
    if result.refused:
        print(f"aclnn-py port: {sample.title}: refused: {result.refused}", file=sys.stderr)
        return REFUSED
    if result.missing and not options.record:
        print("aclnn-py port: with a C++ compiler, --record finds what reading the source does not", file=sys.stderr)
    return INCOMPLETE if result.missing else 0
