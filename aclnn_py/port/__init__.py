"""Turn C++ samples of aclnn operators into Python scripts: ``port`` here, ``aclnn-py port`` on the command line."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import signatures
from .sources import Sample, read, split_page

if TYPE_CHECKING:
    import numpy as np

    from ..signatures import Signature
    from .model import Program

__all__ = ["Ported", "Sample", "port", "read", "signatures_of"]


@dataclass(frozen=True)
class Ported:
    """The result of a port.

    Attributes
    ----------
    script : str
        Python; of a refused sample only comments.
    data : dict
        Arrays that the script reads from its data file: ``numpy.savez_compressed(file, **data)``.
    notes : tuple of str
        Faults of the sample and other remarks, with their places; they are in the script too.
    missing : tuple of str
        What was not understood, with its place: a TODO in the script.
    refused : str or None
        Why no script can do what the sample does.
    """

    script: str
    data: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the script does all that the sample does."""
        return not self.missing and self.refused is None


def signatures_of(texts: Sequence[str]) -> Callable[[str], Signature | None]:
    """Return what finds signatures: in C texts, then built in, then in the headers of an installed CANN."""
    given: dict[str, Signature] = {}
    for text in texts:
        problems: list[str] = []  # calls look like prototypes, and are none
        given.update((found.name, found) for found in signatures.parse_prototypes(text, "given", problems))
    index: list[Any] = []

    def find(name: str) -> Signature | None:
        known = given.get(name) or signatures.find(name)
        if known is not None:
            return known
        if not index:
            from .. import library
            from ..headers import HeaderIndex, include_directories

            report = library.discover()
            places = [place.path for place in report.libraries], [place.path for place in report.roots]
            index.append(HeaderIndex(include_directories(*places)))
        found: Signature | None = index[0].find(name)
        return found

    return find


def _signature_text(given: str | Path) -> str:
    """Return the C text of a header, of a documentation page, or the text itself."""
    try:
        path = Path(given)
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except (OSError, ValueError):  # a prototype is no name of a file
        text = None
    if text is None:
        if "(" not in str(given):
            raise FileNotFoundError(f"{given}: no such file, and not a prototype")
        return str(given)
    if path.suffix.lower() in (".md", ".markdown"):
        programs, rest = split_page(text)
        return "\n".join([rest, *programs])
    return text


def _traced(sample: Sample, lookup: Callable[[str], Signature | None]) -> Program:
    for module in ("tree_sitter", "tree_sitter_cpp"):
        if importlib.util.find_spec(module) is None:
            raise ImportError("reading C++ needs tree-sitter: pip install 'aclnn-py[port]'", name=module)
    from .static import trace

    return trace(sample.files, signature=lookup)


def _recorded(sample: Sample, lookup: Callable[[str], Signature | None], texts: Sequence[str]) -> Program:
    from .record import record

    if sample.paths:
        return record(sample.paths, signature=lookup, declarations=texts)
    with tempfile.TemporaryDirectory(prefix="aclnn-py-") as directory:
        paths = []
        for name, text in sample.files:
            paths.append(Path(directory, Path(name).stem).with_suffix(".cpp"))
            paths[-1].write_text(text, encoding="utf-8")
        return record(paths, signature=lookup, declarations=texts)


def port(
    *sources: str | Path | Sample,
    record: bool = False,
    signature: Sequence[str | Path] = (),
    data_file: str = "data.npz",
) -> Ported:
    """Turn one sample into a script.

    Parameters
    ----------
    *sources
        Files of the sample (one ``Sample``, C++ files, or a Markdown page with one complete C++ block); headers that
        they include in quotes are found beside them.
    record
        Compile and run the sample against the emulator and write down what it calls, instead of reading its source.
        Needs a C++ compiler and the built emulator.
    signature
        Prototypes of operators that the package does not know: C text, a header, or a documentation page.
    data_file
        Name of the file, beside the script, for arrays that are too long to write out.

    Raises
    ------
    SampleError
        The sample is not valid C++; says where. A ValueError.
    ImportError
        tree-sitter is not installed.
    FileNotFoundError, ValueError
        No such file, or nothing to port in it.

    Examples
    --------
    >>> result = port("test_aclnn_add.cpp")                              # doctest: +SKIP
    >>> print(result.script, result.notes, result.complete)              # doctest: +SKIP
    """
    from .emit import emit, place_of

    samples = [source for source in sources if isinstance(source, Sample)]
    samples += read([str(source) for source in sources if not isinstance(source, Sample)]) if len(samples) < 1 else []
    if len(samples) != 1:
        raise ValueError(f"port() takes one sample, got {len(samples)}; read() separates them")
    sample = samples[0]
    texts = [*map(_signature_text, signature), *filter(None, [sample.prototypes])]
    lookup = signatures_of(texts)
    program = _recorded(sample, lookup, texts) if record else _traced(sample, lookup)
    if not program.steps and program.refused is None:
        raise ValueError(f"{sample.title}: no call of an operator was found")
    emitted = emit(program, lookup=lookup, data_file=data_file, title=sample.title)

    def placed(text: str, file: str, first: int, last: int) -> str:
        return f"{place_of(program, file, first, last, short=False)}: {text}" if first else text

    return Ported(
        emitted.script,
        emitted.data,
        (
            *(placed(note.text, note.file, note.line, note.line) for note in program.notes),
            *(
                f"{op}: no prototype is at hand, so it is guessed; --signature takes the true one"
                for op in emitted.guessed
            ),
        ),
        tuple(placed(gap.reason, gap.file, *gap.lines) for gap in emitted.missing),
        program.refused,
    )
