"""Find, open and search CANN's shared libraries, or those of the emulator.

This is the only module that touches a dlopen handle. Nothing is opened at import. Libraries are opened by
absolute path, lazily bound and local (RTLD_GLOBAL makes symbols of different packages shadow each other and
ends in double frees at exit), and stay open for the life of the process.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import _discovery, errors
from ._discovery import Place, Report, discover
from ._ffi import ffi

__all__ = ["FoundLibrary", "Libraries", "Report", "discover", "open_libraries", "opened"]

_FLAGS = os.RTLD_LAZY | os.RTLD_LOCAL
_PROBES = (b"aclInit", b"aclCreateTensor")
_libc = ffi.dlopen(None)


@dataclass(frozen=True)
class FoundLibrary:
    """One opened library.

    Attributes
    ----------
    name, path : str, Path
        The file, symbolic links resolved.
    handle : cdata
        What dlopen returned.
    found_via : str
        The rule that found it: a variable's name, ``"already loaded"``, ``"default directory"``, ...
    already_loaded : bool
        It was in the process before this package asked for it.
    """

    name: str
    path: Path
    handle: Any
    found_via: str
    already_loaded: bool = False


class _Api:
    """The functions of ``cdefs/base.h``, looked up at first use: a missing one harms only who needs it."""

    def __init__(self, find: Callable[[str], Any], libraries: Callable[[], list[str]]) -> None:
        self._find = find
        self._libraries = libraries

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = self._find(name)
        if function is None:
            raise errors.SymbolNotFoundError(
                symbol=name, libraries=self._libraries(), hint="this CANN release does not have the function"
            )
        setattr(self, name, function)
        return function


class Libraries:
    """The opened libraries of one CANN; made by :func:`open_libraries`.

    Attributes
    ----------
    kind : str
        ``"npu"`` or ``"emulator"``, as asked for.
    emulator : bool
        Whether the runtime opened is the emulator (with kind ``"npu"`` when ACLNN_PY_LIBRARY_PATH says so).
    runtime, base : FoundLibrary
        libascendcl.so (or libacl_rt.so) and libnnopbase.so.
    api : object
        The functions of both as attributes: ``libraries.api.aclrtMalloc(...)``. One that this release lacks
        raises SymbolNotFoundError at its first use.
    tried : list of (str, str)
        Places that did not serve, and why.
    """

    def __init__(self, kind: str, directory: Path | None = None) -> None:
        if kind not in ("npu", "emulator"):
            raise ValueError(f'kind: got {kind!r}, expected "npu" or "emulator"')
        self.kind = kind
        self.directory = directory
        self.tried: list[tuple[str, str]] = []
        self._lock = threading.RLock()
        self._symbols: dict[str, Any] = {}
        self._operators: dict[str, tuple[Any, Any, FoundLibrary]] = {}
        self._custom_path = os.environ.get(_discovery.CUSTOM_PATH)
        self._warned = False
        first = _discovery.override(directory)
        self.runtime = self._open_base(_discovery.RUNTIME, first, None)
        self.emulator = bool(_dlsym(self.runtime.handle, _discovery.EMULATOR_SYMBOL))
        self.base = self._open_base(_discovery.BASE, first, self.runtime.path)
        self._bound = [ffi.dlopen(library.handle) for library in (self.runtime, self.base)]
        self.api = _Api(self._function, self._names)
        self._opened: list[FoundLibrary] = []
        self._pending = (
            _discovery.emulator_files(self.runtime.path)
            if self.emulator
            else _discovery.operator_files(first, self.runtime.path, self.tried)
        )

    def __repr__(self) -> str:
        """Name what is open and where."""
        return f"<Libraries {'emulator' if self.emulator else 'CANN'} in {self.runtime.path.parent}>"

    def _open_base(self, names: tuple[str, ...], first: list[Place], runtime: Path | None) -> FoundLibrary:
        loaded = _already_loaded(names)
        if loaded is not None:
            _discovery.refuse_stub(loaded.path, loaded.found_via)
            self._refuse_other(loaded, names, first)
            return loaded
        only_first = self.kind == "emulator"
        if only_first and not first:
            self.tried.append((_discovery.LIBRARY_PATH, "not set, and no directory was given"))
        places = first if only_first else _discovery.base_places(first, runtime, self.tried)
        for place in _discovery.base_files(names, places, self.tried):
            if only_first and runtime is None and not _discovery.is_emulator(place.path):
                self.tried.append((str(place.path), f"not the emulator: no {_discovery.EMULATOR_SYMBOL}"))
                continue
            library = self._open(place)
            if library is not None:
                return library
        library = None if only_first or self._stub_tried() else self._open_by_name(names)
        if library is None:
            raise _discovery.not_found(self.kind, names, self.tried)
        return library

    def _open(self, place: Place) -> FoundLibrary | None:
        handle = _libc.dlopen(os.fsencode(place.path), _FLAGS)
        if not handle:
            self.tried.append((f"{place.path} ({place.via})", _dlerror()))
            return None
        return FoundLibrary(place.path.name, place.path, handle, place.via)

    def _open_by_name(self, names: tuple[str, ...]) -> FoundLibrary | None:
        """Ask the loader itself; only then can the path be known, so this comes last."""
        for name in names:
            handle = _libc.dlopen(name.encode(), _FLAGS)
            if handle:
                library = FoundLibrary(name, _loaded_path(handle, name), handle, "system loader")
                _discovery.refuse_stub(library.path, library.found_via)
                return library
            self.tried.append((f"{name} (system loader)", _dlerror()))
        return None

    def _stub_tried(self) -> bool:
        return any(why == _discovery.STUB_REASON for _, why in self.tried)

    def _refuse_other(self, loaded: FoundLibrary, names: tuple[str, ...], first: list[Place]) -> None:
        """Refuse a library that another package loaded when a different file is asked for."""
        files = [place.path / name for place in first for name in names]
        files = [path.resolve() for path in files if path.exists()]
        emulated = names != _discovery.RUNTIME or _discovery.is_emulator(loaded.path)
        if (files and loaded.path not in files) or (self.kind == "emulator" and not emulated):
            raise _discovery.conflict(
                loaded.path, loaded.found_via, f"{self.kind} in {files[0].parent}" if files else self.kind
            )

    def serves(self, kind: str, directory: Path | None) -> bool:
        """Whether these libraries are what another request would open."""
        wanted = _discovery.override(directory)
        files = {(place.path / name).resolve() for place in wanted for name in _discovery.RUNTIME}
        if directory is not None or (self.emulator and kind == "npu" and self.kind != "npu"):
            return self.runtime.path in files
        return kind == self.kind or (kind == "emulator" and self.emulator)

    def libraries(self) -> list[FoundLibrary]:
        """List the libraries open now; operator libraries are opened when a lookup reaches them."""
        return [self.runtime, self.base, *self._opened]

    def describe(self) -> dict[str, Any]:
        """Give names, paths and how each was found, for a report."""
        return {
            "kind": self.kind,
            "emulator": self.emulator,
            "libraries": [(entry.name, str(entry.path), entry.found_via) for entry in self.libraries()],
            "tried": list(self.tried),
        }

    def symbol(self, name: str) -> Any:
        """Give the address of any exported function as a ``void *``; raise SymbolNotFoundError."""
        found = self._symbols.get(name)
        if found is None:
            with self._lock:
                found = next(filter(None, (_dlsym(lib.handle, name) for lib in self._search(True))), None)
            if not found:
                raise errors.SymbolNotFoundError(symbol=name, libraries=self._names())
            self._symbols[name] = found
        return found

    def has_symbol(self, name: str) -> bool:
        """Whether any library exports a function of this name."""
        with suppress(errors.SymbolNotFoundError):
            return bool(self.symbol(name))
        return False

    def operator(self, name: str) -> tuple[Any, Any, FoundLibrary]:
        """Find both stages of an operator, in the first library that has them.

        Returns
        -------
        stage_one, stage_two : cdata
            Addresses of ``<name>GetWorkspaceSize`` and ``<name>``, as ``void *``.
        library : FoundLibrary
            The one library that both come from.

        Raises
        ------
        SymbolNotFoundError
            No library has both; says which has one of them, and lists all that were searched.
        """
        found = self._operators.get(name)
        if found is None:
            with self._lock:
                found = self._operators[name] = self._find_operator(name)
        return found

    def has_operator(self, name: str) -> bool:
        """Whether a library has both stages of an operator."""
        with suppress(errors.SymbolNotFoundError):
            return bool(self.operator(name))
        return False

    def optional(self, name: str) -> Any:
        """Give a function of ``cdefs/base.h`` that only some releases have, or None."""
        try:
            return getattr(self.api, name)
        except errors.SymbolNotFoundError:
            return None

    def _function(self, name: str) -> Any:
        # aclSet...TensorAddr has a twin in upper case, which some releases export alone
        spellings = [name]
        if name.startswith("aclSet") and name.endswith("TensorAddr"):
            spellings.append("A" + name[1:])
        for spelling in spellings:
            for library in self._bound:
                try:
                    return getattr(library, spelling)
                except (AttributeError, ffi.error):
                    continue
        return None

    def _find_operator(self, name: str) -> tuple[Any, Any, FoundLibrary]:
        stages = (f"{name}GetWorkspaceSize", name)
        halves = []
        for library in self._search(False):
            found = [_dlsym(library.handle, stage) for stage in stages]
            if all(found):
                owners = [_owner(address) for address in found]
                if owners[0] == owners[1]:  # dlsym also looks in what the library depends on
                    return found[0], found[1], _actual(library, owners[0])
                halves.append(f"{owners[0]} has {stages[0]} but {owners[1]} has {stages[1]}")
            elif any(found):
                has, lacks = stages if found[0] else reversed(stages)
                halves.append(f"{library.path} has {has} but not {lacks}")
        detail = "; ".join([f"no library has both stages of {name}", *halves])
        failed = [f"{place}: {why}" for place, why in self.tried if "opapi" in place or "aclnn_" in place]
        raise errors.SymbolNotFoundError(
            detail="\n".join([f"{detail}. Searched: {', '.join(self._names())}", *failed]),
            symbol=name,
            libraries=self._names(),
            hint="installs differ in the operators they have; aclnn_py.list_ops() lists the known names",
        )

    def _search(self, with_base: bool) -> Iterator[FoundLibrary]:
        """Yield libraries in search order; opens each operator library when the search first reaches it."""
        self.warn_if_changed()
        if with_base:
            yield self.runtime
            yield self.base
        yield from list(self._opened)
        while self._pending:
            library = self._open(self._pending.pop(0))
            if library is not None:
                self._opened.append(library)
                yield library

    def _names(self) -> list[str]:
        return [str(library.path) for library in self.libraries()]

    def warn_if_changed(self) -> None:
        """Warn, once, that a change of ASCEND_CUSTOM_OPP_PATH comes too late."""
        now = os.environ.get(_discovery.CUSTOM_PATH)
        if now != self._custom_path and not self._warned:
            self._warned = True
            message = f"{_discovery.CUSTOM_PATH} changed after CANN was opened: no effect in this process"
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def delete_array(self, pointer: Any) -> None:
        """Delete an array that an ``aclGet...`` function made with ``new[]``, by the ``delete[]`` that it uses."""
        address = _dlsym(self.base.handle, "_ZdaPv")
        if address:
            ffi.cast("void (*)(void *)", address)(pointer)

    def recent_message(self) -> str:
        """Copy CANN's text of the last error on this thread; reading drains it. Empty when there is none."""
        text = self.api.aclGetRecentErrMsg()
        return str(ffi.string(text).decode("utf-8", errors="replace")) if text else ""


_lock = threading.Lock()
_current: Libraries | None = None


def open_libraries(kind: str = "npu", directory: Path | None = None) -> Libraries:
    """Open CANN, or the emulator; later calls give the same object.

    Parameters
    ----------
    kind : str
        ``"npu"``: an installed CANN, or what ACLNN_PY_LIBRARY_PATH names. ``"emulator"``: the emulator in
        ``directory`` or ACLNN_PY_LIBRARY_PATH.
    directory : Path, optional
        Searched before all other places (emulator: the only place).

    Returns
    -------
    Libraries
        One per process.

    Raises
    ------
    LibraryNotFoundError
        Nothing usable; ``.tried`` lists every place and why.
    StubLibraryError
        The process already holds a link-time stub.
    AclnnError
        The process already holds another CANN.

    Examples
    --------
    >>> try:
    ...     open_libraries("emulator", Path("/nonexistent"))
    ... except errors.LibraryNotFoundError as error:
    ...     print(error.tried[0])
    ('/nonexistent (directory given)', 'no such directory')
    """
    global _current
    with _lock:
        if _current is None:
            _current = Libraries(kind, directory)
            errors.set_message_reader(_current.recent_message)
        elif not _current.serves(kind, directory):
            runtime = _current.runtime
            wanted = f"{kind} in {directory}" if directory else kind
            raise _discovery.conflict(runtime.path, runtime.found_via, wanted)
        _current.warn_if_changed()
        return _current


def opened() -> Libraries | None:
    """Give the libraries this process has opened through this package, or None."""
    return _current


def _already_loaded(names: tuple[str, ...]) -> FoundLibrary | None:
    for name in names:
        handle = _libc.dlopen(name.encode(), _FLAGS | os.RTLD_NOLOAD)
        if handle:
            return FoundLibrary(name, _loaded_path(handle, name), handle, "already loaded", True)
    _dlerror()
    return None


def loaded_emulator() -> Path | None:
    """Give the directory of an emulator that another package, such as torch_npu, has loaded; else None."""
    loaded = _already_loaded(_discovery.RUNTIME)
    return loaded.path.parent if loaded is not None and _discovery.is_emulator(loaded.path) else None


def _loaded_path(handle: Any, name: str) -> Path:
    """Give the file behind a handle. A probe may lie in a dependency of it: then the maps tell."""
    owners = [_owner(address) for address in (_libc.dlsym(handle, probe) for probe in _PROBES) if address]
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        mapped = (Path(line.split(maxsplit=5)[5].strip()) for line in maps if name in line)
        candidates = [*owners, *mapped]
    return next((path for path in candidates if path.name.startswith(name)), (owners or [Path(name)])[0])


def _owner(address: Any) -> Path:
    """Give the file that an address lies in."""
    info = ffi.new("Dl_info *")
    if not _libc.dladdr(address, info) or not info.dli_fname:
        return Path()
    return Path(os.fsdecode(ffi.string(info.dli_fname))).resolve()


def _actual(library: FoundLibrary, owner: Path) -> FoundLibrary:
    if owner == library.path:
        return library
    return replace(library, name=owner.name, path=owner, found_via=f"{library.found_via}, needed by {library.path}")


def _dlsym(handle: Any, name: str) -> Any:
    """Give an address, or None."""
    return _libc.dlsym(handle, name.encode()) or None


def _dlerror() -> str:
    text = _libc.dlerror()
    return ffi.string(text).decode("utf-8", errors="replace") if text else "no reason given"
