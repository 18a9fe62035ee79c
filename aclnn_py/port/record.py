"""The second engine: compile a sample unchanged against the emulator, run it, and read what it called.

Operators that the emulator does not compute are recorded too: entry points made from their prototypes take the call and
leave the outputs as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from .. import emulator, signatures
from ..signatures import Signature
from .entries import declarations as declare_all
from .entries import entry_points
from .log import read
from .model import Call, Note, Program, SampleError, Unknown

__all__ = ["record"]

TIME_LIMIT = 60  # seconds, each of compiling and running
MEMORY_LIMIT = 8 << 30  # bytes of address space of the sample
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


class _Sample:
    """The source files of one program, the headers beside them, and what they ask for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths: list[Path] = []
        self.texts: list[str] = []
        self.code: list[str] = []  # without comments and the text of strings
        waiting = [Path(path).resolve() for path in paths]
        for path in waiting:
            if path in self.paths:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            self.paths.append(path)
            self.texts.append(text)
            self.code.append(_COMMENT.sub(_blank, text))
            waiting += [p.resolve() for name in _INCLUDE.findall(text) if (p := path.parent / name).is_file()]

    @property
    def sources(self) -> list[Path]:
        """What is compiled: the files that are no headers."""
        return [path for path in self.paths if path.suffix not in (".h", ".hh", ".hpp", ".inc")]

    def operators(self) -> dict[str, bool]:
        """Return the operators that are named, and whether one is for certain called."""
        found: dict[str, bool] = {}
        for path, code in zip(self.paths, self.code, strict=True):
            for name in re.findall(r"\b(\w+)GetWorkspaceSize\b", code):
                found[name] = found.get(name, False) or path in self.sources
            for name in re.findall(r"\baclnn[A-Z]\w*\b", code):  # a macro may add the suffix
                found.setdefault(name.removesuffix("GetWorkspaceSize"), False)
        return found

    def includes(self) -> list[str]:
        return list(dict.fromkeys(name for text in self.texts for name in _INCLUDE.findall(text)))

    def mentions(self, word: str) -> bool:
        return any(word in text for text in self.texts)

    def find(self, name: str) -> tuple[str, int, int]:
        """Return file, line and column (from 1) of a name's first mention."""
        for path, code in zip(self.paths, self.code, strict=True):
            match = re.search(rf"\b{re.escape(name)}\b", code)
            if match is not None:
                line = code.count("\n", 0, match.start()) + 1
                return str(path), line, match.start() - code.rfind("\n", 0, match.start())
        return str(self.paths[0]), 0, 0


def _blank(match: re.Match[str]) -> str:
    text = match.group()
    return '""' if text.startswith('"') else re.sub(r"[^\n]", " ", text)


def record(
    paths: Sequence[Path],
    *,
    signature: Callable[[str], Signature | None] = signatures.find,
    declarations: Sequence[str] = (),
    time_limit: float = TIME_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    log: Path | None = None,
) -> Program:
    """Run a sample on the emulator and return the calls that it made.

    Needs g++. The emulator is built when it is not yet.

    Parameters
    ----------
    paths
        The source files of one program; they are not changed, and the program runs in a directory of its own.
    signature
        Finds an operator's signature by name.
    declarations
        Texts with prototypes of further operators, which come first.
    time_limit, memory_limit
        Seconds and bytes that the sample may take; what it called until then is kept.
    log
        Where to put the emulator's record; default: nowhere.

    Returns
    -------
    Program
        Tensors are named by C parameter. What the run alone cannot tell, such as the words that a number is printed
        with, is left out. ``refused`` is set for a sample that needs HCCL.

    Raises
    ------
    SampleError
        The sample does not compile or link, or no prototype of an operator that it calls is at hand.
    FileNotFoundError
        A file, g++ or what building the emulator needs is missing.
    """
    sample = _Sample(paths)
    files = tuple(str(path) for path in paths)
    if any(name.startswith("hccl") for name in sample.includes()):
        return Program(files, refused="it needs HCCL, which joins several devices")
    texts = [*sample.texts, *declarations]
    declared = {s.name: s for text in texts for s in signatures.parse_prototypes(text, problems=[])}
    known: dict[str, Signature] = {}
    for name, called in sample.operators().items():
        found = declared.get(name) or signature(name)
        if found is not None:
            known[name] = found
        elif called:
            message = f"no prototype of {name} is at hand: give its header, its page or {name}GetWorkspaceSize(...)"
            raise SampleError(message, *sample.find(f"{name}GetWorkspaceSize"))
    libraries = _libraries()
    with tempfile.TemporaryDirectory(prefix="aclnn-record-") as directory:
        run = _Run(sample, known, libraries, Path(directory), time_limit, memory_limit)
        program = run.attempt(run.missing(), files)
        if run.gap is not None and run.missing() != set(known):
            # the emulator refused what the device may take: record without computing anything
            other = run.attempt(set(known), files)
            if _calls(other) > _calls(program):
                other.notes.append(Note("the emulator did not compute all calls, so they are recorded without results"))
                program = other
        if log is not None:
            log.write_bytes(run.log.read_bytes() if run.log.exists() else b"")
    _add_lines(program, sample)
    return program


def _calls(program: Program) -> int:
    return sum(isinstance(step, Call) for step in program.steps)


def _add_lines(program: Program, sample: _Sample) -> None:
    """Name the line of a call whose operator the sample mentions once."""
    for step in program.steps:
        if isinstance(step, Call):
            name = f"{step.op}GetWorkspaceSize"
            if sum(len(re.findall(rf"\b{name}\b", code)) for code in sample.code) == 1:
                step.line = sample.find(name)[1]


def _libraries() -> Path:
    """Return the directory of the emulator's libraries: where the user points, or built now."""
    given = os.environ.get("ACLNN_PY_LIBRARY_PATH")
    if given and (Path(given) / "../include/aclnn_emulator.h").exists():
        return Path(given).resolve()
    return emulator.build()


class _Run:
    """One sample in a directory of its own."""

    def __init__(
        self, sample: _Sample, known: dict[str, Signature], libraries: Path, work: Path, seconds: float, memory: int
    ) -> None:
        self.sample, self.known, self.libraries, self.work = sample, known, libraries, work
        self.seconds, self.memory = seconds, memory
        self.log = work / "record.jsonl"
        self.gap: Unknown | None = None  # what is not recorded of the last run
        self._write_headers()

    def missing(self) -> set[str]:
        """Return the operators that the emulator does not compute, or under this name computes another one."""
        have = _exported(self.libraries / "libopapi.so")
        out = set()
        for name, given in self.known.items():
            own = signatures.builtin(name)
            same = own is not None and _types(own) == _types(given)
            if not same or f"{name}GetWorkspaceSize" not in have:
                out.add(name)
        return out

    def _write_headers(self) -> None:
        """Declare the sample's operators in every operator header that it includes, whatever its name."""
        # deep, so that "../../op_api/aclnn_x.h" stays inside
        self.include = self.work / "a/b/c/d/e/include"
        (self.include / "aclnnop").mkdir(parents=True)
        (self.include / "sample_operators.h").write_text(declare_all(self.known.values()))
        theirs = self.libraries.parent / "include"
        for name in self.sample.includes():
            base = Path(name).name
            own = (theirs / name).exists() and not name.startswith("aclnnop/")
            if not re.match(r"(acl|aclnn)_\w+\.h(pp)?$", base) or own or name.startswith(("acl/", "aclnn/")):
                continue
            target = Path(os.path.normpath(self.include / "aclnnop" / name if "/" not in name else self.include / name))
            if name.startswith(".."):
                target = Path(os.path.normpath(self.include / "aclnnop" / name))
            if self.work in target.parents:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text("#include <sample_operators.h>\n")

    def attempt(self, passive: set[str], files: tuple[str, ...]) -> Program:
        """Compile and run the sample; operators of ``passive`` only record."""
        program = self._compile(passive)
        notes = self._execute(program)
        if not self.log.exists():
            self.log.touch()
        found = read(self.log, signature=self.known.get, passive=passive, files=files)
        found.notes += notes
        if self.gap is not None:
            found.steps.append(self.gap)
        if not _calls(found):
            found.notes.append(Note("the sample called no operator"))
        return found

    def _compile(self, passive: set[str]) -> Path:
        program, entries = self.work / "sample", self.work / "entries.cpp"
        entries.write_text(entry_points(signature for name, signature in self.known.items() if name in passive))
        theirs = self.libraries.parent / "include"
        folders = [self.include, self.include / "aclnnop", theirs, theirs / "aclnn", theirs / "aclnnop"]
        command = ["g++", "-std=gnu++17", "-O0", "-w", "-fmax-errors=1", "-fdiagnostics-color=never"]
        command += [f"-I{folder}" for folder in folders]
        command += [*map(str, self.sample.sources), str(entries), "-o", str(program), f"-L{self.libraries}"]
        command += ["-lopapi", "-lnnopbase", "-lascendcl", "-lpthread", f"-Wl,-rpath,{self.libraries}"]
        try:
            done = subprocess.run(
                command, cwd=self.work, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT * 2,
                env={**os.environ, "LC_ALL": "C"}, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise FileNotFoundError("recording a sample needs g++: apt-get install g++") from None
        except subprocess.TimeoutExpired:
            raise SampleError("g++ takes too long", str(self.sample.paths[0])) from None
        if done.returncode:
            raise self._fault(done.stderr)
        return program

    def _fault(self, text: str) -> SampleError:
        """Turn the compiler's or linker's output into its first complaint about the sample."""
        missing = re.search(r"undefined reference to [`'](\w+)", text)
        if missing is not None and not re.search(r":\d+: (?:fatal )?error: ", text):
            name = missing.group(1)
            return SampleError(f"the emulator has no {name}", *self.sample.find(name))
        own = {str(path) for path in self.sample.paths}
        places = re.findall(
            r"^(.+?):(\d+):(\d+): (?:fatal )?(?:error|required from here|required from)?:? ?(.*)$", text, re.M
        )
        message = re.search(r" error: (.*)$", text, re.M)
        said = message.group(1) if message is not None else text.strip()[:200]
        for file, line, column, _ in places:
            if file in own:
                return SampleError(said, file, int(line), int(column))
        return SampleError(said, str(self.sample.paths[0]))

    def _execute(self, program: Path) -> list[Note]:
        self.log.unlink(missing_ok=True)
        place = self.work / "run"
        place.mkdir(exist_ok=True)
        settings = {"ACLNN_EMULATOR_RECORD": str(self.log), "ACLNN_EMULATOR_STRICT": "0", "ACLNN_EMULATOR_DEVICES": "8"}
        notes = []
        if self.sample.mentions("aclrtGetSocName") and self.sample.mentions("Ascend950"):
            settings["ACLNN_EMULATOR_SOC"] = "950"
            notes.append(Note("recorded as on an Ascend950, which the sample asks for"))
        variables = {k: v for k, v in os.environ.items() if not k.startswith("ACLNN_EMULATOR_")}
        limit = f'ulimit -v {self.memory >> 10}; ulimit -c 0; exec "$0"'
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", limit, str(program)], cwd=place, env={**variables, **settings},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=self.seconds, check=False,
            )  # fmt: skip
            status, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as error:
            status, said = None, (error.stderr or b"").decode(errors="replace")
        broken = re.findall(r"^aclnn emulator: violation: (.*)$", said, re.MULTILINE)
        notes += [Note(re.sub(r" 0x[0-9a-f]+", "", text)) for text in broken]  # addresses differ from run to run
        how = ""
        if status is None:
            how = f"was stopped after {self.seconds:g} s"
        elif status:
            how = f"ended by signal {-status}" if status < 0 else f"ended with status {status} on the emulator"
        self.gap = Unknown(f"the sample {how}: later calls may be missing") if how else None
        return notes


def _types(signature: Signature) -> list[str]:
    return [parameter.ctype.replace("const ", "") for parameter in signature.parameters]


@cache
def _exported(library: Path) -> set[str]:
    """Return the operators' functions that a library exports, from its strings: their names stand there whole."""
    return {m.decode() for m in re.findall(rb"\b\w+GetWorkspaceSize\b", library.read_bytes())}
