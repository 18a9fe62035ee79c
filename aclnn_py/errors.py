"""Exceptions for CANN's status codes, and :func:`check`, the one place that turns a code into one of them.

The numbers and names come from CANN's public headers (see ``_status.py``); which code means what follows the
operator pages and the behaviour of the released libraries. Only the standard library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aclnn_py import _status

# How much of CANN's text a message shows; all of it is in ``AclnnError.detail``.
_SHOWN_LINES = 12
_SHOWN_CHARACTERS = 1600


class AclnnError(RuntimeError):
    """A failed call, or a fault this package found before making one.

    Parameters
    ----------
    code : int or None
        CANN's status code; None where no CANN call was involved.
    api : str
        The operator or C function, for example ``"aclnnMoeFinalizeRoutingV2Grad"``.
    stage : str
        ``"GetWorkspaceSize"``, ``"run"``, ``"synchronize"``; empty for a plain acl call.
    detail : str
        CANN's own text, or what was found: the argument, what came, what is accepted.
    hint : str
        What to do next.

    Attributes
    ----------
    name : str
        CANN's macro name of the code, as :func:`status_name` gives it; empty without a code.

    Examples
    --------
    >>> error = AclnnError(107002, "aclrtMalloc")
    >>> error.name
    'ACL_ERROR_RT_CONTEXT_NULL'
    >>> print(error)
    aclrtMalloc failed: 107002 ACL_ERROR_RT_CONTEXT_NULL (no device is set on this thread)
    """

    code: int | None
    name: str
    api: str
    stage: str
    detail: str
    hint: str

    def __init__(self, code: int | None, api: str = "", stage: str = "", detail: str = "", hint: str = "") -> None:
        self.code = code
        self.name = "" if code is None else status_name(code)
        self.api = api
        self.stage = stage
        self.detail = detail
        self.hint = hint
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        """Lay the message out: what failed, the text, then the hint."""
        where = f"{self.api} ({self.stage})" if self.api and self.stage else self.api or self.stage
        lines = []
        if self.code is not None:
            meaning = _status.MEANINGS.get(self.code)
            lines.append(f"{where or 'a CANN call'} failed: {self.code} {self.name}")
            if meaning:
                lines[0] += f" ({meaning})"
        elif where:
            lines.append(f"{where} failed")
        lines += _first_part(self.detail)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return lines or [type(self).__name__]

    def __str__(self) -> str:
        """Give the message; OSError, a base of some classes, would print fields of its own."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with all fields; subclasses of ImportError and AttributeError store name apart."""
        return _rebuild, (type(self), self.args, {**self.__dict__, "name": self.name})


class ParameterError(AclnnError, ValueError):
    """The call's arguments are refused (161xxx)."""


class NullptrError(ParameterError):
    """161001: a required tensor is None, or the package lacks the operator or this SoC."""


class InvalidParameterError(ParameterError):
    """161002: a shape, dtype, format or value is refused."""


class IndexOutOfRangeError(ParameterError, IndexError):
    """An entry of an index tensor is outside its domain (``check_indices=True``); code 161002."""


class InternalError(AclnnError):
    """An error inside the aclnn library (561xxx)."""


class InferShapeError(InternalError):
    """561001: the output shape could not be inferred."""


class RefusedArgumentError(InternalError, ValueError):
    """What CANN answers to a shape or value it refuses: one of two codes, by release."""


class TilingError(RefusedArgumentError):
    """561002: the operator refuses these shapes or values."""


class InnerNullptrError(RefusedArgumentError):
    """561103: a shape or value is refused, or the kernel package is missing."""


class KernelNotFoundError(InternalError, LookupError):
    """561003, 561107, 561108, 561112: no kernel of this operator for this SoC."""


class RuntimeCallError(AclnnError):
    """A runtime call failed (361001 and every code without a class of its own)."""


class ContextError(RuntimeCallError):
    """107002, 107003: no device on this thread, or a stream of another context."""


class DeviceTimeoutError(RuntimeCallError, TimeoutError):
    """107019, 107020, 207020, 507046, 507047: waiting took longer than the timeout."""

    def __new__(cls, *args: Any, **kwargs: Any) -> DeviceTimeoutError:
        """Allocate by TimeoutError, whose memory layout is larger than that of RuntimeError."""
        return TimeoutError.__new__(cls)


class DeviceFaultError(RuntimeCallError):
    """507xxx: the device, a kernel on it or the driver failed, possibly in earlier queued work."""


class DeviceMemoryError(RuntimeCallError, MemoryError):
    """200000, 207001, 207018: out of memory."""


class UnsupportedError(RuntimeCallError, NotImplementedError):
    """207000, 200001, 200006: this SoC or CANN release does not support the call."""


class StubLibraryError(RuntimeCallError):
    """100039: the loaded library is a link-time stub."""


class LibraryNotFoundError(AclnnError, ImportError):
    """No usable CANN library was found.

    Attributes
    ----------
    tried : list of (place, why)
        Each place that was looked at, and why it did not serve.
    """

    # ImportError and AttributeError declare ``name`` too
    name: str
    tried: list[tuple[str, str]]

    def __init__(
        self,
        code: int | None = None,
        api: str = "",
        stage: str = "",
        detail: str = "",
        hint: str = "",
        *,
        tried: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.tried = [(str(place), str(why)) for place, why in tried]
        super().__init__(code, api, stage, detail, hint)

    def _lines(self) -> list[str]:
        lines = super()._lines()
        at = len(lines) - bool(self.hint)
        return lines[:at] + [f"  tried {place}: {why}" for place, why in self.tried] + lines[at:]


class SymbolNotFoundError(AclnnError, AttributeError):
    """The opened libraries do not have a function.

    Attributes
    ----------
    symbol : str
        The C function that was looked for.
    libraries : list of str
        The libraries that were searched.
    """

    name: str
    symbol: str
    libraries: list[str]

    def __init__(
        self,
        code: int | None = None,
        api: str = "",
        stage: str = "",
        detail: str = "",
        hint: str = "",
        *,
        symbol: str = "",
        libraries: Iterable[str] = (),
    ) -> None:
        self.symbol = symbol
        self.libraries = [str(library) for library in libraries]
        if symbol and not detail:
            detail = f"{symbol} is in none of: {', '.join(self.libraries) or '(no library is open)'}"
        super().__init__(code, api, stage, detail, hint)


_CLASSES: dict[int, type[AclnnError]] = {
    161001: NullptrError,
    161002: InvalidParameterError,
    561001: InferShapeError,
    561002: TilingError,
    561103: InnerNullptrError,
    100039: StubLibraryError,
    **dict.fromkeys((561003, 561107, 561108, 561112), KernelNotFoundError),
    **dict.fromkeys((107002, 107003), ContextError),
    **dict.fromkeys((107019, 107020, 207020, 507046, 507047), DeviceTimeoutError),
    **dict.fromkeys((200000, 207001, 207018), DeviceMemoryError),
    **dict.fromkeys((207000, 200001, 200006), UnsupportedError),
}

# code // 1000, for codes without a class of their own, known or not
_FAMILIES: dict[int, type[AclnnError]] = {161: ParameterError, 561: InternalError, 507: DeviceFaultError}

_message_reader: Callable[[], str] | None = None


def set_message_reader(reader: Callable[[], str] | None) -> None:
    """Register what reads CANN's text of the last error on the calling thread; None for no reader.

    Parameters
    ----------
    reader : callable
        Returns the text of ``aclGetRecentErrMsg``, copied, or ``""`` where there is none.
    """
    global _message_reader
    _message_reader = reader


def check(code: int, api: str, stage: str = "", *, detail: str | None = None, hint: str | None = None) -> None:
    """Raise the exception of a status code; return for 0.

    Parameters
    ----------
    code : int
        What the call returned; an aclnn call may return an aclError too.
    api, stage : str
        What was called, as in :class:`AclnnError`.
    detail : str, optional
        The text; by default CANN's own, read at once, before any other call can replace it.
    hint : str, optional
        What to do next; by default the advice this package has for the code.

    Raises
    ------
    AclnnError
        The subclass of the code, or of its family where the code is not known.

    Examples
    --------
    >>> check(0, "aclrtSetDevice")
    >>> try:
    ...     check(561002, "aclnnAdd", "GetWorkspaceSize", detail="self has 9 dimensions, at most 8 accepted")
    ... except TilingError as error:
    ...     print(error.detail)
    self has 9 dimensions, at most 8 accepted
    """
    if code == 0:
        return
    if detail is None:
        detail = _read_message()
    if hint is None:
        hint = _status.HINTS.get(code) or _status.FAMILY_HINTS.get(code // 1000, "")
    kind = _CLASSES.get(code) or _FAMILIES.get(code // 1000, RuntimeCallError)
    raise kind(code, api, stage, detail, hint)


def unsupported(api: str, detail: str, hint: str = "") -> UnsupportedError:
    """Make the error of something that this package, rather than CANN, does not have; the caller raises it."""
    return UnsupportedError(207000, api, detail=detail, hint=hint)


def status_name(code: int) -> str:
    """Give CANN's macro name of a status code.

    Parameters
    ----------
    code : int
        An aclError or aclnnStatus.

    Returns
    -------
    str
        The name; both, joined by `` / ``, where releases differ; ``"unknown (N)"`` for other numbers.

    Examples
    --------
    >>> status_name(561002), status_name(107002), status_name(42)
    ('ACLNN_ERR_INNER_TILING_ERROR', 'ACL_ERROR_RT_CONTEXT_NULL', 'unknown (42)')
    """
    names = _status.NAMES.get(code)
    return " / ".join(names) if names else f"unknown ({code})"


def _read_message() -> str:
    """Read CANN's text; a reader that fails must not hide the error it was asked about."""
    if _message_reader is None:
        return ""
    try:
        return _message_reader() or ""
    except Exception as error:
        return f"(CANN's message could not be read: {error})"


def _first_part(text: str) -> list[str]:
    """Cut a long text to what fits on a screen, and say how much is left out."""
    text = text.strip()
    shown = "\n".join(text[:_SHOWN_CHARACTERS].splitlines()[:_SHOWN_LINES]).rstrip()
    lines = shown.splitlines()
    if len(shown) < len(text):
        lines.append(f"[... {len(text) - len(shown)} more characters in .detail]")
    return lines


def _rebuild(cls: type[AclnnError], args: tuple[Any, ...], fields: dict[str, Any]) -> AclnnError:
    """Make an unpickled or copied error, past the different constructors of the subclasses."""
    error = cls.__new__(cls)
    error.args = args
    for key, value in fields.items():
        setattr(error, key, value)
    return error
