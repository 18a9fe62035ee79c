"""What all backends have in common; get one through ``backends.get_backend``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import errors, signatures
from .device_array import DeviceArray
from .runtime import Event, Stream
from .signatures import Signature


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
                hint=f"aclnn-py ops lists the known ones; aclnn_py.declare(prototype) adds one{self.headers_note()}",
                symbol=f"{api}GetWorkspaceSize",
            )
        return found

    def headers_note(self) -> str:
        """Say that no operator headers are at hand, where there could be some; else nothing."""
        return ""

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
