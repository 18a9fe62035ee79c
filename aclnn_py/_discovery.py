"""Where CANN's files are: roots, layouts and search order as tables and small steps. Opens no library.

The order follows torch_npu, so that both resolve an operator to the same library; within one directory the
split libraries are sorted by name. ``library.py`` opens what these steps find; :func:`discover` reports it.
"""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from . import errors

LIBRARY_PATH = "ACLNN_PY_LIBRARY_PATH"
CUSTOM_PATH = "ASCEND_CUSTOM_OPP_PATH"
VISIBLE_DEVICES = "ASCEND_RT_VISIBLE_DEVICES"

RUNTIME = ("libascendcl.so", "libacl_rt.so")
BASE = ("libnnopbase.so",)
CUSTOM = "libcust_opapi.so"
# libopapi.so must not be used together with the libraries it was split into
SPLIT, WHOLE = "libopapi_*.so", "libopapi.so"
OLD = tuple(f"libaclnn_{part}.so" for part in ("ops_infer", "ops_train", "math", "sparse", "fft", "rand"))

SYSTEM = Path("/")
ARCH = platform.machine()
ROOT_VARIABLES = (("ASCEND_HOME_PATH", "."), ("ASCEND_TOOLKIT_HOME", "."), ("ASCEND_OPP_PATH", ".."))
INSTALL_DIRECTORIES = ("cann", "ascend-toolkit/latest")
LIBRARY_DIRECTORIES = ("lib64", f"{ARCH}-linux/lib64")
OPERATOR_DIRECTORY = f"opp/built-in/op_impl/ai_core/tbe/op_api/lib/linux/{ARCH}"
VERSION_FILES = ("version.info", "share/info/*/version.info", "*/version.info", "*-linux/*install.info")
STUB_DIRECTORIES = {"devlib", "stub"}
EMULATOR_SYMBOL = "aclnnEmulatorVersion"

STUB_REASON = "a link-time stub (devlib or stub in its path), which cannot run anything"
REFERENCE_HINT = 'backend="reference" runs on any host'


class Place(NamedTuple):
    """A directory or file to look at, and the rule that named it."""

    via: str
    path: Path


@dataclass(frozen=True)
class Report:
    """What is installed, found without opening a library or touching a device.

    Attributes
    ----------
    roots : list of (str, Path)
        CANN roots that exist, best first, with the rule that names each.
    libraries : list of (str, Path)
        Files that would be opened, in search order, each with the rule that found it.
    tried : list of (str, str)
        Places that did not serve, and why.
    version : str
        CANN's release, as its ``version.info`` gives it; empty when unknown.
    driver, driver_version : Path or None, str
        The directory of the driver's libraries.
    devices : list of str
        ``/dev/davinci0`` and so on.
    visible_devices : str or None
        ``ASCEND_RT_VISIBLE_DEVICES``; empty hides every device.
    emulator : bool
        The runtime library found is the CPU emulator.
    missing : list of (str, str)
        What an NPU backend still needs, and the command or step that gives it.
    """

    roots: list[Place] = field(default_factory=list)
    libraries: list[Place] = field(default_factory=list)
    tried: list[tuple[str, str]] = field(default_factory=list)
    version: str = ""
    driver: Path | None = None
    driver_version: str = ""
    devices: list[str] = field(default_factory=list)
    visible_devices: str | None = None
    emulator: bool = False
    missing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether nothing is missing that can be seen from outside."""
        return not self.missing


def listed(variable: str) -> list[Path]:
    """Split a ``:``-separated variable into absolute paths."""
    return [Path(p).absolute() for p in os.environ.get(variable, "").split(":") if p.strip()]


def roots(tried: list[tuple[str, str]] | None = None) -> list[Place]:
    """List the CANN roots that exist, best first, each once; note the others in ``tried``."""
    tried = [] if tried is None else tried
    places = []
    for variable, step in ROOT_VARIABLES:
        value = os.environ.get(variable)
        if value:
            places.append(Place(variable, Path(value, step)))
        else:
            tried.append((variable, "not set"))
    for parent in (SYSTEM / "usr/local/Ascend", Path(os.environ.get("HOME", "/nonexistent"), "Ascend")):
        places += [Place("default directory", parent / name) for name in INSTALL_DIRECTORIES]
    tried += [(f"{path} ({via})", "no such directory") for via, path in places if not path.is_dir()]
    return _unique(Place(via, path.resolve()) for via, path in places if path.is_dir())


def override(directory: Path | None = None) -> list[Place]:
    """Give the directories searched before all others."""
    if directory is not None:
        return [Place("directory given", directory.absolute())]
    return [Place(LIBRARY_PATH, path) for path in listed(LIBRARY_PATH)]


def base_places(first: list[Place], runtime: Path | None, tried: list[tuple[str, str]]) -> list[Place]:
    """List the directories for the base libraries; libnnopbase is looked for beside the runtime library."""
    places = list(first)
    if runtime is not None:
        places.append(Place(f"beside {runtime.name}", runtime.parent))
    for via, root in roots(tried):
        places += [Place(via, root / sub) for sub in LIBRARY_DIRECTORIES]
    return places + [Place("LD_LIBRARY_PATH", path) for path in listed("LD_LIBRARY_PATH")]


def base_files(names: tuple[str, ...], places: list[Place], tried: list[tuple[str, str]]) -> Iterator[Place]:
    """Yield the files of a runtime library that exist and may be opened; note the others in ``tried``."""
    seen = set()
    for via, directory in places:
        files = [directory / name for name in names if (directory / name).exists()]
        if not files and directory not in seen:
            why = f"no {' or '.join(names)}" if directory.is_dir() else "no such directory"
            tried.append((f"{directory} ({via})", why))
        seen.add(directory)
        for file in files:
            path = file.resolve()
            if is_stub(path):
                tried.append((f"{path} ({via})", STUB_REASON))
            elif path not in seen:
                seen.add(path)
                yield Place(via, path)


def operator_files(first: list[Place], runtime: Path, tried: list[tuple[str, str]]) -> list[Place]:
    """List CANN's operator libraries in search order, each file once."""
    files = [file for place in first for file in _in_directory(place)]
    for root in listed(CUSTOM_PATH):
        files += _custom(CUSTOM_PATH, root, tried)
    home = _root_of(runtime)
    opp = Path(os.environ["ASCEND_OPP_PATH"]) if os.environ.get("ASCEND_OPP_PATH") else home and home / "opp"
    if opp:
        for vendor in _vendors(opp / "vendors/config.ini"):
            files += _custom("vendors/config.ini", opp / "vendors" / vendor, tried)
    directories = [runtime.parent] if home is None else [home / sub for sub in LIBRARY_DIRECTORIES]
    built_in = [file for sub in directories for file in _in_directory(Place(f"CANN in {home or sub}", sub))]
    if home is not None and not any(file.path.match(SPLIT) for file in built_in):
        built_in += _in_directory(Place(f"CANN in {home}", home / OPERATOR_DIRECTORY))
    return _unique(Place(via, path.resolve()) for via, path in files + built_in)


def _in_directory(place: Place) -> list[Place]:
    split = sorted(place.path.glob(SPLIT))
    names = [place.path / CUSTOM, *(split or [place.path / WHOLE]), *(place.path / name for name in OLD)]
    return [Place(place.via, path) for path in names if path.exists()]


def _custom(via: str, root: Path, tried: list[tuple[str, str]]) -> list[Place]:
    path = root / "op_api/lib" / CUSTOM
    if not path.exists():
        tried.append((f"{path} ({via})", "no such file"))
        return []
    owner = path.stat().st_uid
    if owner not in (0, os.geteuid()):  # torch_npu's rule: do not run another user's code
        tried.append((f"{path} ({via})", f"owned by user {owner}, who is neither you nor root"))
        return []
    return [Place(via, path)]


def _vendors(config: Path) -> list[str]:
    """Read load_priority, highest first; vendor directories that it does not name are not used."""
    for line in _lines(config):
        key, _, value = line.partition("#")[0].partition("=")
        if key.strip() == "load_priority":
            return [name.strip() for name in value.split(",") if name.strip()]
    return []


def _root_of(runtime: Path) -> Path | None:
    """Find the CANN root that a runtime library belongs to."""
    for _, root in roots():
        if any((root / sub).resolve() == runtime.parent for sub in LIBRARY_DIRECTORIES):
            return root
    return next((parent for parent in runtime.parents[:4] if (parent / "opp").is_dir()), None)


def is_stub(path: Path) -> bool:
    """Whether a resolved path is that of a link-time stub."""
    return not STUB_DIRECTORIES.isdisjoint(path.parts)


def is_emulator(path: Path) -> bool:
    """Whether a library file is this package's emulator, told without opening it as a library."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(EMULATOR_SYMBOL.encode()) >= 0
    except (OSError, ValueError):  # ValueError: an empty file
        return False


def not_found(kind: str, names: tuple[str, ...], tried: list[tuple[str, str]]) -> errors.LibraryNotFoundError:
    """Make the error that lists every place tried, with the next step for this host."""
    if kind == "emulator":
        hint = f"build it: aclnn-py emulator build; {REFERENCE_HINT}"
    elif any("libascend_hal" in why for _, why in tried):
        hint = f"install the NPU driver, or mount it into the container; {REFERENCE_HINT}"
    else:
        hint = install_hint()
    whose = " of the emulator" if kind == "emulator" else ""
    detail = f"no usable {' or '.join(names)}{whose} was found"
    return errors.LibraryNotFoundError(detail=detail, hint=hint, tried=tried)


def conflict(loaded: Path, via: str, wanted: str) -> errors.AclnnError:
    """Make the error of asking for a second CANN."""
    what = "the emulator" if is_emulator(loaded) else "the CANN"
    return errors.AclnnError(
        None,
        detail=f"{wanted} was asked for, but this process already holds {what} {loaded} ({via}); "
        "one process holds one CANN",
        hint="use the other one in a process of its own",
    )


def refuse_stub(loaded: Path, via: str) -> None:
    """Raise StubLibraryError for a stub that the process holds already."""
    if is_stub(loaded):
        errors.check(100039, loaded.name, detail=f"{loaded} ({via}) is {STUB_REASON}", hint=install_hint())


def install_hint() -> str:
    """Say what to do when no CANN is found: its own set_env.sh where one lies around."""
    script = _set_env(roots())
    if script:
        return f"run: source {script} (before Python starts); {REFERENCE_HINT}"
    return f"install the CANN toolkit and source its set_env.sh before Python starts; {REFERENCE_HINT}"


def _set_env(places: list[Place]) -> Path | None:
    scripts = (directory / "set_env.sh" for _, root in places for directory in (root, root.parent))
    return next((script for script in scripts if script.is_file()), None)


def discover() -> Report:
    """Look for CANN, its driver and devices; opens no library and initialises nothing.

    Returns
    -------
    Report
        What was found and what is missing.

    Examples
    --------
    >>> report = discover()
    >>> report.usable == (not report.missing)
    True
    """
    tried: list[tuple[str, str]] = []
    places, first = roots(), override()
    runtime = next(base_files(RUNTIME, base_places(first, None, tried), tried), None)
    emulator = runtime is not None and is_emulator(runtime.path)
    base = next(base_files(BASE, base_places(first, runtime and runtime.path, []), tried), None)
    operators: list[Place] = []
    if runtime is not None:
        operators = emulator_files(runtime.path) if emulator else operator_files(first, runtime.path, tried)
    driver = _driver()
    report = Report(
        roots=places,
        libraries=_unique(place for place in (runtime, base, *operators) if place),
        tried=tried,
        version=_version(_root_of(runtime.path) if runtime else places[0].path if places else None),
        driver=driver,
        driver_version=_field(driver / "version.info", "Version") if driver else "",
        devices=sorted(f"/{path.relative_to(SYSTEM)}" for path in (SYSTEM / "dev").glob("davinci[0-9]*")),
        visible_devices=os.environ.get(VISIBLE_DEVICES),
        emulator=emulator,
    )
    report.missing.extend(_missing(report, runtime, base, bool(operators)))
    return report


def emulator_files(runtime: Path) -> list[Place]:
    """List the emulator's operator libraries: its own only, as CANN's would not link against it."""
    # the old names hold what it lacks: entry points for torch_npu, which fail
    found = (place for place in _in_directory(Place("the emulator", runtime.parent)) if place.path.name not in OLD)
    return _unique(Place(via, path.resolve()) for via, path in found)


def _missing(report: Report, runtime: Place | None, base: Place | None, operators: bool) -> Iterator[tuple[str, str]]:
    script = _set_env(report.roots)
    source = f"source {script}" if script else "install the CANN toolkit, then source its set_env.sh"
    libraries = ((runtime, RUNTIME[0]), (base, BASE[0]), (operators, SPLIT))
    for found, name in libraries:
        if not found:
            yield f"{name} not found", source
    if report.emulator:
        return
    if runtime and not os.environ.get("ASCEND_HOME_PATH"):
        yield "ASCEND_HOME_PATH is not set; libnnopbase needs it", source
    if report.driver is None:
        yield (
            "NPU driver not found",
            "install the NPU driver; in a container, mount it: docker run -v /usr/local/Ascend/driver:"
            "/usr/local/Ascend/driver",
        )
    if not report.devices:
        yield (
            "no /dev/davinci device",
            "use a host with an NPU; in a container, pass it: docker run --device /dev/davinci0 "
            "--device /dev/davinci_manager",
        )
    if report.visible_devices is not None and not report.visible_devices.strip():
        yield f"{VISIBLE_DEVICES} is empty, which hides every device", f"unset {VISIBLE_DEVICES}"


def _driver() -> Path | None:
    parent = _field(SYSTEM / "etc/ascend_install.info", "Driver_Install_Path_Param")
    driver = SYSTEM / (parent or "usr/local/Ascend").lstrip("/") / "driver"
    found = (driver / sub / "libascend_hal.so" for sub in ("lib64", "lib64/common", "lib64/driver"))
    return driver if any(path.exists() for path in found) else None


def _version(root: Path | None) -> str:
    """Read the release of a root: version_dir (8.1.RC1) says more to a user than Version (7.7.0.1.238)."""
    files = [file for pattern in VERSION_FILES for file in sorted(root.glob(pattern))] if root else []
    for key in ("version_dir", "version", "Version"):
        for file in files:
            if value := _field(file, key):
                return value
    return ""


def _field(file: Path, key: str) -> str:
    pairs = (line.partition("=") for line in _lines(file))
    return next((value.strip().strip('"') for name, _, value in pairs if name.strip() == key), "")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _unique(places: Iterable[Place]) -> list[Place]:
    """Keep the first place of each path: several link names of one file are one library."""
    first: dict[Path, Place] = {}
    for place in places:
        first.setdefault(place.path, place)
    return list(first.values())
