"""Backends: what serves a call. A named backend that cannot work raises; nothing ever falls back.

``"npu"`` is an installed CANN, ``"emulator"`` the CPU stand-in through the same C ABI, ``"reference"`` NumPy. One
process holds one CANN, so npu and emulator exclude each other.
"""

from __future__ import annotations

import os
import threading
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import emulator, errors, library, signatures
from ._ffi import ffi
from .arrays import as_array
from .device_array import DeviceArray
from .headers import HeaderIndex, include_directories
from .reference import OPERATORS, Operator
from .runtime import AnyStream, Event, Runtime, Stream, get_runtime, product_of_soc
from .signatures import Signature

__all__ = ["NAMES", "Backend", "available_backends", "get_backend"]

NAMES = ("npu", "emulator", "reference")
PRODUCTS = ("A2", "A3", "950")
_STAGE_TWO = "aclnnStatus(*)(void *, uint64_t, aclOpExecutor *, aclrtStream)"


class Backend:
    """What serves a call; made by ``get_backend``.

    Attributes
    ----------
    name : str
        ``"npu"``, ``"emulator"`` or ``"reference"``.
    product : str
        ``"A2"``, ``"A3"``, ``"950"``, or the family of another SoC (``"310P"``).
    """

    name: str
    product: str

    def describe(self) -> str:
        """Say in one line what this backend is and where it came from."""
        raise NotImplementedError

    def signature(self, api: str) -> Signature:
        """Return the signature of an operator.

        Raises
        ------
        SymbolNotFoundError
            No declaration of that operator is at hand.
        """
        found = signatures.find(api) or self._from_headers(api)
        if found is None:
            raise errors.SymbolNotFoundError(
                detail=f"no signature of {api!r} is at hand",
                hint="aclnn-py ops lists the known ones; aclnn_py.declare(prototype) adds one",
                symbol=f"{api}GetWorkspaceSize",
            )
        return found

    def _from_headers(self, api: str) -> Signature | None:
        return None

    def to_device(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        """Copy a host array of any strides to a new ``DeviceArray``; waits for the copy.

        Raises
        ------
        UnsupportedError
            This backend has no device memory: the reference works on NumPy arrays in place.
        """
        raise self._no_device("device arrays")

    def empty(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Allocate an uninitialised ``DeviceArray``; see ``to_device``."""
        raise self._no_device("device arrays")

    def create_stream(self) -> Stream:
        """Create a stream on this backend's device; close it, or use it in a ``with`` block."""
        raise self._no_device("streams")

    def create_event(self) -> Event:
        """Create an event on this backend's device."""
        raise self._no_device("events")

    def _no_device(self, what: str) -> errors.UnsupportedError:
        detail = f"the {self.name} backend has no {what}: it works on NumPy arrays, in place and at once"
        return errors.unsupported("", detail, hint='backend="npu" or backend="emulator" has them')

    def has(self, api: str) -> bool:
        """Whether this backend can run an operator."""
        raise NotImplementedError

    def where(self, api: str) -> str:
        """Say where this backend has an operator from."""
        raise NotImplementedError

    def broken_headers(self) -> dict[str, str]:
        """Return the operator headers with a prototype that cannot be read, and why."""
        return {}

    def known(self) -> dict[str, str]:
        """Return the operators whose signature is at hand, with the header or file that declares each."""
        return {name: signature.header for name, signature in signatures.known().items()}

    def __repr__(self) -> str:
        return f"<Backend {self.name}: {self.describe()}>"


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
        return api in OPERATORS

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
        found = OPERATORS.get(signature.name)
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
    """CANN's C API: an installed CANN, or the emulator."""

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
        report = library.discover()
        paths = [self.libraries.runtime.path, *(place.path for place in report.libraries)]
        return HeaderIndex(include_directories([*paths[1:], paths[0]], [place.path for place in report.roots]))

    def _from_headers(self, api: str) -> Signature | None:
        return self.headers.find(api)

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


def _product(value: str) -> str:
    """Normalise a product or SoC name."""
    try:
        return product_of_soc(value)
    except ValueError:
        if value.upper() in {"310P", "310B", "910A"}:  # families that product_of_soc names
            return value.upper()
        raise


def _open(name: str, product: str | None, device: int) -> NativeBackend:
    with _lock:
        found = _native.get((name, device))
        if found is None:
            directory: Path | None = None
            if name == "emulator":
                if not os.environ.get("ACLNN_PY_LIBRARY_PATH"):
                    directory = emulator.library_path()
                    if directory is None:
                        raise errors.LibraryNotFoundError(
                            detail="the emulator is not built",
                            hint="build it once: aclnn-py emulator build",
                            tried=[("the emulator's cache", "no build of this version")],
                        )
                os.environ.setdefault("ACLNN_EMULATOR_STRICT", "1")  # before the library reads it
                if product is not None:
                    os.environ.setdefault("ACLNN_EMULATOR_SOC", _SOC_OF.get(product, product))
            runtime = get_runtime(library.open_libraries(name, directory))
            found = _native[name, device] = NativeBackend(name, runtime, device)
    if product is not None and product != found.product:
        raise ValueError(f"product is {product}, but the {name} backend's device is {found.describe()}")
    return found


_SOC_OF = {"A2": "Ascend910B1", "A3": "Ascend910_9391", "950": "Ascend950PR_9589"}


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
    wanted = None if given is None else _product(given)
    if name != "reference":
        return _open(name, wanted, device)
    with _lock:
        return _reference.setdefault(wanted or "A2", ReferenceBackend(wanted or "A2"))


def auto_name(*, warn: bool = False) -> str:
    """Return what ``"auto"`` means here, without opening or initialising anything."""
    global _warned
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
    report = library.discover()
    ready = {
        "npu": report.usable and not report.emulator,
        "emulator": emulator.library_path() is not None or report.emulator,
        "reference": True,
    }
    return tuple(name for name in NAMES if ready[name])


def probe() -> list[tuple[str, object]]:
    """Return SoC, product and device count of the installed CANN for a report; does not initialise it."""
    try:
        api = library.open_libraries("npu").api
        soc = ffi.string(api.aclrtGetSocName() or b"").decode()
        count = ffi.new("uint32_t *")
        errors.check(api.aclrtGetDeviceCount(count), "aclrtGetDeviceCount")
    except errors.AclnnError as error:
        return [("not usable", error)]
    return [("SoC", f"{soc} ({product_of_soc(soc)})"), ("device count", count[0])]


def resolve(backend: Backend | str | None) -> Backend:
    """Return the backend that a ``backend=`` argument means."""
    if isinstance(backend, Backend):
        return backend
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend takes a name or a Backend, got {type(backend).__name__}")
    return get_backend() if backend is None else get_backend(backend)
