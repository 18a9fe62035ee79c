"""Backends: what serves a call. A named backend that cannot work raises; nothing ever falls back.

``"npu"`` is an installed CANN, ``"emulator"`` the CPU stand-in through the same C ABI, ``"reference"`` NumPy. One
process holds one CANN, so npu and emulator exclude each other.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from . import errors, signatures
from ._backend import Backend
from ._ffi import ffi
from .arrays import as_array
from .device_array import DeviceArray
from .runtime import AnyStream, Event, Runtime, Stream, get_runtime, product_of_soc
from .signatures import Signature

# Opening libraries, reading headers and the reference are imported when first used: `import aclnn_py` stays cheap.
if TYPE_CHECKING:
    from pathlib import Path

    from .headers import HeaderIndex
    from .reference import Operator

__all__ = ["NAMES", "Backend", "available_backends", "get_backend"]

NAMES = ("npu", "emulator", "reference")
PRODUCTS = ("A2", "A3", "950")
_STAGE_TWO = "aclnnStatus(*)(void *, uint64_t, aclOpExecutor *, aclrtStream)"


class ReferenceBackend(Backend):
    """NumPy on the host, with the statuses of a chosen product."""

    name = "reference"

    def __init__(self, product: str) -> None:
        self.product = product

    def describe(self) -> str:
        """Say in one line what this backend is."""
        return f"NumPy on the host, statuses of {self.product}"

    def has(self, api: str) -> bool:
        """Whether the reference table has an operator."""
        return api in reference_operators()

    def where(self, api: str) -> str:
        """Say where this backend has an operator from."""
        return "NumPy reference"

    def operator(self, signature: Signature) -> Operator:
        """Return the operator's entry in the reference table.

        Raises
        ------
        UnsupportedError
            The reference does not have the operator, or the product is none that it knows.
        """
        found = reference_operators().get(signature.name)
        if found is None:
            raise errors.unsupported(
                signature.name,
                "the NumPy reference does not have this operator",
                hint="backends over CANN's C API (npu, emulator) may have it; aclnn-py ops shows the reference's",
            )
        builtin = signatures.builtin(signature.name)
        if builtin is None or [p.name for p in builtin.parameters] != [p.name for p in signature.parameters]:
            raise errors.unsupported(
                signature.name,
                f"the NumPy reference knows the parameters of {builtin}, not those that were declared: {signature}",
            )
        if self.product not in PRODUCTS:
            raise errors.unsupported(
                signature.name, f"the operator exists for {', '.join(PRODUCTS)}, not {self.product}"
            )
        return found


class NativeBackend(Backend):
    """CANN's C API: an installed CANN, or the emulator.

    Attributes
    ----------
    device : int
        Device number of its arrays, streams and calls.
    runtime : Runtime
        The acl runtime of the process, for what goes beyond calls: ``runtime.device(i)``, ``DeviceBuffer(runtime, n)``,
        ``DeviceBuffer.from_handle(runtime, address, n, owner=...)`` for memory of someone else, ``HostBuffer(runtime,
        n)`` for pinned memory, ``runtime.memory_info(i)``.
    libraries : Libraries
        The opened libraries, and how each was found.
    api : object
        The functions of libascendcl and libnnopbase.
    """

    def __init__(self, name: str, runtime: Runtime, device: int) -> None:
        self.name = name
        self.runtime = runtime
        self.libraries = runtime.libraries
        self.api = runtime.libraries.api
        self.device = device
        self.product = product_of_soc(runtime.soc_name())
        self._plans: dict[str, tuple[Signature, tuple[Any, Any]]] = {}
        self._stream: Stream | None = None
        self._lock = threading.Lock()

    def describe(self) -> str:
        """Say in one line what this backend is and where it came from."""
        found = self.libraries.runtime
        return f"{self.runtime.soc_name()} ({self.product}), device {self.device}, {found.path} via {found.found_via}"

    @cached_property
    def headers(self) -> HeaderIndex:
        """The index of this CANN's operator headers, vendor packages first."""
        from . import library
        from .headers import HeaderIndex, include_directories

        report = library.discover()
        paths = [self.libraries.runtime.path, *(place.path for place in report.libraries)]
        return HeaderIndex(include_directories([*paths[1:], paths[0]], [place.path for place in report.roots]))

    def _from_headers(self, api: str) -> Signature | None:
        return self.headers.find(api)

    def headers_note(self) -> str:
        """Say that no operator headers are at hand; else nothing."""
        if self.headers.names():
            return ""
        return "; no operator headers lie beside the libraries, so only built-in and declared operators are known"

    def has(self, api: str) -> bool:
        """Whether one of the opened libraries has both stages of an operator."""
        return self.libraries.has_operator(api)

    def where(self, api: str) -> str:
        """Return the name of the library that has an operator."""
        return self.libraries.operator(api)[2].name

    def broken_headers(self) -> dict[str, str]:
        """Return the operator headers with a prototype that cannot be read, and why."""
        return self.headers.broken

    def known(self) -> dict[str, str]:
        """Return the operators whose signature is at hand, also from this CANN's headers."""
        return {**self.headers.names(), **super().known()}

    def plan(self, signature: Signature) -> tuple[Any, Any]:
        """Return both stages as callables, from the same library.

        Raises
        ------
        SymbolNotFoundError
            This CANN does not have the operator.
        """
        known, plan = self._plans.get(signature.name, (None, (None, None)))
        if known is not signature:  # new, or declared anew
            one, two, _ = self.libraries.operator(signature.name)
            plan = ffi.cast(signatures.pointer_type(signature), one), ffi.cast(_STAGE_TWO, two)
            self._plans[signature.name] = signature, plan
        return plan

    def stream(self, source: Any = None) -> AnyStream:
        """Return what a ``stream=`` argument means; None is a stream of this backend's own.

        Parameters
        ----------
        source
            None, a ``Stream``, an integer handle, or an object with ``npu_stream`` or ``__aclrt_stream__()``, which
            is read at each launch.
        """
        if source is not None:
            if type(source) is Stream and source.device == self.device:
                return source
            return self.runtime.stream(source, self.device)
        if self._stream is None or self._stream.closed:
            with self._lock:
                if self._stream is None or self._stream.closed:
                    self._stream = self.runtime.create_stream(self.device)
        return self._stream

    def create_stream(self) -> Stream:
        """Create a stream on this backend's device."""
        return self.runtime.create_stream(self.device)

    def create_event(self) -> Event:
        """Create an event on this backend's device."""
        return Event(self.runtime, self.device)

    def to_device(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        """Copy a host array of any strides to a new ``DeviceArray``; waits for the copy."""
        return DeviceArray.from_numpy(self.runtime, as_array("array", array), self.device)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Allocate an uninitialised ``DeviceArray``."""
        return DeviceArray.empty(self.runtime, shape, dtype, self.device)


_lock = threading.Lock()
_reference: dict[str, ReferenceBackend] = {}
_native: dict[tuple[str, int], NativeBackend] = {}
_warned = False


def reference_operators() -> dict[str, Operator]:
    """Return the table of the NumPy reference."""
    from .reference import OPERATORS

    return OPERATORS


# families that product_of_soc names, with a SoC of each
_FAMILIES = {"310P": "Ascend310P3", "310B": "Ascend310B1", "910A": "Ascend910A"}


def _product(value: str) -> str:
    """Normalise a product or SoC name."""
    if not isinstance(value, str):
        raise TypeError(f"product takes {', '.join(PRODUCTS)} or a SoC name, got {type(value).__name__} {value!r}")
    return value.upper() if value.upper() in _FAMILIES else product_of_soc(value)


def _open(name: str, given: str | None, device: int) -> NativeBackend:
    wanted = None if given is None else _product(given)
    with _lock:
        found = _native.get((name, device))
        if found is None:
            runtime = _emulator(given) if name == "emulator" else _runtime(name, None)
            count = runtime.device_count()
            if device >= count:
                raise ValueError(f"device is {device}, but {name} has {count} (0 to {count - 1})")
            found = _native[name, device] = NativeBackend(name, runtime, device)
    if wanted is not None and wanted != found.product:
        raise ValueError(f"product is {given}, but the {name} backend's device is {found.describe()}")
    return found


def _runtime(name: str, directory: Path | None) -> Runtime:
    from . import library

    return get_runtime(library.open_libraries(name, directory))


def _emulator(given: str | None) -> Runtime:
    """Open the emulator: strict unless ACLNN_EMULATOR_STRICT says otherwise, with the SoC asked for."""
    from . import emulator, library

    directory = None
    if not os.environ.get("ACLNN_PY_LIBRARY_PATH"):
        directory = library.loaded_emulator() or emulator.library_path()
        if directory is None:
            raise errors.LibraryNotFoundError(
                detail="the emulator is not built",
                hint="build it once: aclnn-py emulator build",
                tried=[("the emulator's cache", "no build of this version")],
            )
    runtime = _runtime("emulator", directory)
    if not runtime.initialised:
        # set in the library and not in the environment, which child processes would inherit
        if "ACLNN_EMULATOR_STRICT" not in os.environ:
            ffi.cast("void (*)(int)", runtime.libraries.symbol("aclnnEmulatorSetStrict"))(1)
        if given is not None:
            soc = _FAMILIES.get(given.upper(), given)
            set_soc = ffi.cast("int32_t (*)(const char *)", runtime.libraries.symbol("aclnnEmulatorSetSoc"))
            errors.check(set_soc(soc.encode()), "aclnnEmulatorSetSoc", detail=f"SoC {soc}")
    return runtime


def get_backend(name: str = "auto", *, product: str | None = None, device: int = 0) -> Backend:
    """Return the backend of a name; the same object for the same request.

    Parameters
    ----------
    name
        ``"npu"``, ``"emulator"``, ``"reference"``, or ``"auto"``: what ACLNN_PY_BACKEND names, else npu when a usable
        device exists, else reference (``.name`` says which).
    product
        ``"A2"``, ``"A3"``, ``"950"`` or a SoC name. On npu it must equal the device's own; on the emulator it can be
        chosen until first use; on the reference it decides the statuses. Default: ACLNN_PY_PRODUCT, else the
        device's own, ``"A2"`` on the reference.
    device
        Device number on npu and emulator.

    Raises
    ------
    LibraryNotFoundError
        No CANN, or no built emulator; lists where it looked.
    ValueError
        An unknown name or product, or a product that is not the device's.

    Examples
    --------
    >>> get_backend("reference", product="950").product
    '950'
    """
    if name == "auto":
        name = os.environ.get("ACLNN_PY_BACKEND") or "auto"
    if name == "auto":
        name = auto_name(warn=True)
    if name not in NAMES:
        raise ValueError(f"backend takes {', '.join(NAMES)} or auto, got {name!r}")
    given = product if product is not None else os.environ.get("ACLNN_PY_PRODUCT") or None
    if isinstance(device, bool) or not isinstance(device, int):
        raise TypeError(f"device takes a number, got {type(device).__name__} {device!r}")
    if device < 0:
        raise ValueError(f"device takes 0 or more, got {device}")
    if name != "reference":
        return _open(name, given, device)
    wanted = "A2" if given is None else _product(given)
    with _lock:
        return _reference.setdefault(wanted, ReferenceBackend(wanted))


def auto_name(*, warn: bool = False) -> str:
    """Return what ``"auto"`` means here, without opening or initialising anything."""
    global _warned
    from . import library

    report = library.discover()
    if report.usable and not report.emulator:
        return "npu"
    present = bool(report.devices) or any("libascendcl" in place.path.name for place in report.libraries)
    if warn and not _warned and present and not report.emulator:
        _warned = True
        reasons = "; ".join(f"{what} ({step})" for what, step in report.missing)
        warnings.warn(
            f"a CANN or an NPU is here but unusable, so the NumPy reference serves: {reasons}",
            RuntimeWarning,
            stacklevel=3,
        )
    return "reference"


def available_backends() -> tuple[str, ...]:
    """Return the names of the backends that could serve here; opens no context and initialises nothing.

    Examples
    --------
    >>> "reference" in available_backends()
    True
    """
    from . import emulator, library

    report = library.discover()
    ready = {
        "npu": report.usable and not report.emulator,
        "emulator": emulator.library_path() is not None or report.emulator,
        "reference": True,
    }
    return tuple(name for name in NAMES if ready[name])


def probe() -> list[tuple[str, object]]:
    """Return SoC, product and device count of the installed CANN for a report; does not initialise it."""
    from . import library

    try:
        api = library.open_libraries("npu").api
        soc = ffi.string(api.aclrtGetSocName() or b"").decode()
        count = ffi.new("uint32_t *")
        errors.check(api.aclrtGetDeviceCount(count), "aclrtGetDeviceCount")
    except errors.AclnnError as error:
        return [("not usable", error)]
    return [("SoC", f"{soc} ({product_of_soc(soc)})"), ("device count", count[0])]


def tensor_backend(device: int, name: str | None = None) -> NativeBackend:
    """Return the backend of torch's NPU tensors: of the CANN that this process has, which may be the emulator."""
    from . import library

    if name in (None, "auto"):
        opened = library.opened()
        name = opened.kind if opened else os.environ.get("ACLNN_PY_BACKEND")
    found = get_backend("emulator" if name == "emulator" else "npu", device=device)
    assert isinstance(found, NativeBackend)
    return found


def resolve(backend: Backend | str | None, values: Iterable[Any] = ()) -> Backend:
    """Return the backend that a ``backend=`` argument means; ``values`` are the arguments of the call.

    A tensor that lives on an NPU decides what the argument leaves open: the device, and without a name the backend.
    """
    if isinstance(backend, Backend):
        return backend
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend takes a name or a Backend, got {type(backend).__name__}")
    if backend in (None, "auto", "npu", "emulator"):
        for value in values:
            device = getattr(value, "device", None)
            if getattr(device, "type", None) == "npu":
                return tensor_backend(getattr(device, "index", None) or 0, backend)
    return get_backend() if backend is None else get_backend(backend)
