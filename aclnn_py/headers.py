"""Operator signatures from the C headers of an install: indexed once, parsed one file at a time.

The index says which header declares which operator. It is cached per set of directories and kept valid by each file's
size and modification time. A prototype that cannot be read is reported in ``broken`` and hides no other.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .signatures import Signature, parse_prototypes, pointer_type

__all__ = ["HeaderIndex"]

# below an include directory, in order of precedence: level2 repeats most of the headers above it
FOLDERS = ("aclnnop", "aclnnop/level2", "acldvppop", "aclnn", ".")


def file_names(operator: str) -> list[str]:
    """Return the headers that may declare an operator by CANN's custom, most likely first.

    Variants live with their base: aclnnInplaceAdds in aclnn_add.h.

    Examples
    --------
    >>> file_names("aclnnInplaceEqScalar")
    ['aclnn_inplace_eq_scalar.h', 'aclnn_eq_scalar.h', 'aclnn_eq.h']
    """
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", operator)
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", words).lower()
    base = words.replace("_inplace_", "_", 1)
    names = [words, base]
    if base.endswith("s"):
        names.append(base[:-1])
    while base.count("_") > 1:
        base = base.rpartition("_")[0]
        names.append(base)
    return [f"{name}.h" for name in dict.fromkeys(names)]


class HeaderIndex:
    """The operators that the headers below some include directories declare.

    Parameters
    ----------
    directories
        Include directories, highest priority first (vendor packages before CANN).

    Attributes
    ----------
    broken : dict of str to str
        Headers with a prototype that cannot be read, and why.

    Examples
    --------
    >>> HeaderIndex([]).names()
    {}
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self.directories = list(dict.fromkeys(directories))
        self.broken: dict[str, str] = {}
        self._signatures: dict[str, Signature] = {}
        self._names: dict[str, str] | None = None

    def find(self, name: str) -> Signature | None:
        """Return the signature of an operator, or None; reads one file where its name follows CANN's custom."""
        if name not in self._signatures:
            if self._names is None:
                for file in file_names(name):
                    for folder in self._folders():
                        if (folder / file).is_file() and name in self._parse(str(folder / file)):
                            return self._judged(name)
            path = self.names().get(name)
            if path is not None and name not in self._signatures:
                self._parse(path)
        return self._judged(name)

    def _judged(self, name: str) -> Signature | None:
        """Return the signature if cffi, the judge of prototypes, finds it well-formed."""
        signature = self._signatures.get(name)
        if signature is not None:
            try:
                pointer_type(signature)
            except ValueError as error:
                self.broken[signature.header] = str(error)
                return None
        return signature

    def names(self) -> dict[str, str]:
        """Return every operator and the path of the header that declares it."""
        if self._names is None:
            self._names = self._index()
        return self._names

    def _folders(self) -> list[Path]:
        folders = [directory / folder for directory in self.directories for folder in FOLDERS]
        return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]

    def _parse(self, path: str) -> list[str]:
        """Read one header; return the names it declares."""
        problems: list[str] = []
        names = []
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            for signature in parse_prototypes(text, path, problems):
                names.append(signature.name)
                self._signatures.setdefault(signature.name, signature)
        except OSError as error:
            problems.append(str(error))
        if problems:
            self.broken[path] = "; ".join(problems)
        return names

    def _index(self) -> dict[str, str]:
        cache = _cache_file(self.directories)
        known = _load(cache)
        rows: dict[str, Any] = {}
        names: dict[str, str] = {}
        for path, stamp in self._files():
            row = known.get(path)
            if row is None or row[:2] != stamp:
                row = [*stamp, self._parse(path), self.broken.get(path, "")]
            elif row[3]:
                self.broken[path] = row[3]
            rows[path] = row
            for name in row[2]:
                names.setdefault(name, path)
        if rows != known:
            _store(cache, rows)
        return names

    def _files(self) -> Iterator[tuple[str, list[int]]]:
        for folder in self._folders():
            with os.scandir(folder) as entries:
                headers = sorted((e for e in entries if e.name.endswith(".h")), key=lambda e: e.name)
            for entry in headers:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    yield entry.path, [status.st_size, status.st_mtime_ns]


def _cache_file(directories: list[Path]) -> Path:
    import hashlib

    key = hashlib.sha256("\n".join(map(str, directories)).encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "aclnn-py" / f"headers-1-{key}.json"  # 1: the format


def _load(path: Path) -> dict[str, Any]:
    """Read a cache file; anything unreadable is as good as none."""
    import json

    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        sound = isinstance(rows, dict) and all(isinstance(row, list) and len(row) == 4 for row in rows.values())
    except (OSError, ValueError):
        return {}
    return rows if sound else {}


def _store(path: Path, rows: dict[str, Any]) -> None:
    """Replace the cache file in one step, so that concurrent readers see the old or the new one."""
    import json
    import tempfile

    with contextlib.suppress(OSError):  # a read-only home: index again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(rows, file)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)


def include_directories(libraries: Iterable[Path], roots: Iterable[Path] = ()) -> list[Path]:
    """Return the include directories that belong to libraries, in their order, then those of install roots.

    A vendor's ``op_api/lib/libcust_opapi.so`` has ``op_api/include``, CANN's ``lib64`` has ``include`` beside it, and
    the older ``op_api/lib/linux/<arch>`` lies two folders deeper.
    """
    found = [parent / "include" for path in libraries for parent in path.parents[1:4]]
    found += [root / part for root in roots for part in ("include", "opp/include")]
    return [path for path in dict.fromkeys(found) if path.is_dir()]
