"""``Executor``: one call of an aclnn operator, from argument check to release.

One class for all backends. What differs is behind two small strategies with the same methods: ``_HostCall`` (the NumPy
reference) here, ``DeviceCall`` (CANN's C API, also the emulator's) in ``launch.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from threading import get_ident
from types import TracebackType
from typing import Any

import numpy as np

from . import errors
from .arguments import convert, convert_tensor
from .backends import Backend, NativeBackend, ReferenceBackend, resolve
from .formats import private_format
from .launch import DeviceCall
from .signatures import Signature

__all__ = ["Executor"]


class _HostCall:
    """A call on the NumPy reference: ``run`` computes into copies, ``synchronize`` hands them over."""

    reuse = "reference"
    fills_host_arrays = True

    def __init__(self, backend: ReferenceBackend, signature: Signature, values: list[Any]) -> None:
        self._operator = backend.operator(signature)
        self._product = backend.product
        self._arguments: dict[str, Any] = {}
        self._outputs, self._parameters = signature.outputs, signature.parameters
        self._staged: dict[str, Any] = {}
        for parameter, value in zip(signature.parameters, values, strict=True):
            if parameter.kind in ("tensor", "tensor_list"):
                _on_host(signature.name, parameter.name, value)
            self._arguments[parameter.name] = value
        self.workspace_size = self._operator.validate(self._arguments, self._product)
        for name in self._outputs:
            for array in _each(self._arguments[name]):
                if not array.flags.writeable:
                    raise ValueError(f"{signature.name}: output {name!r} is read-only")

    def rebind(self, rows: Sequence[tuple[int, Any]]) -> None:
        for index, value in rows:
            self._arguments[self._parameters[index].name] = value

    def view_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._arguments[name].shape)

    def run(self) -> None:
        # copies, because a device fills NumPy outputs at synchronize(), and not at all when the block fails
        staged: dict[str, Any] = {}
        for name in self._outputs:
            value = self._arguments[name]
            if isinstance(value, tuple):
                staged[name] = tuple(np.array(array, order="C") for array in _each(value))
            elif value is not None:
                staged[name] = np.array(value, order="C")
        self._operator.compute({**self._arguments, **staged}, self._product)
        self._staged = staged

    def synchronize(self) -> None:
        staged, self._staged = self._staged, {}
        for name, value in staged.items():
            for target, source in zip(_each(self._arguments[name]), _each(value), strict=True):
                np.copyto(target, source)

    def close(self) -> None:
        self._staged = {}
        self._arguments = {}


def _each(value: Any) -> tuple[Any, ...]:
    """Return the arrays of a tensor or tensor list argument."""
    if value is None:
        return ()
    return tuple(item for item in value if item is not None) if isinstance(value, tuple) else (value,)


def _on_host(api: str, name: str, value: Any) -> None:
    for array in _each(value):
        if not isinstance(array, np.ndarray):
            raise TypeError(
                f"{api}: argument {name!r} is a {type(array).__name__}; the reference computes on NumPy arrays"
            )
        if private := private_format(array):
            detail = f"argument {name!r} has the private format {private}, whose storage order only the device knows"
            raise errors.unsupported(api, detail, hint='backend="npu" takes it')


class Executor:
    """One call of an aclnn operator: stage one at construction, stage two at ``run()``.

    Parameters
    ----------
    name
        Operator name, ``"aclnnMoeFinalizeRoutingV2Grad"`` for example.
    *args, **kwargs
        The arguments in the order of the C signature without the two tail pointers, or by C name. ``None``, or a
        pointer left out, is a null pointer. Tensors are NumPy arrays or torch CPU tensors (uploaded at each
        ``run()``; outputs are filled by ``synchronize()``), ``DeviceArray`` or torch NPU tensors (used in place).
    backend
        A name (``"npu"``, ``"emulator"``, ``"reference"``, ``"auto"``) or a ``Backend``; default ``get_backend()``.
    stream
        A ``Stream``, an integer handle, or an object with ``npu_stream`` or ``__aclrt_stream__()``. Default: the
        backend's own stream, or torch's current one with NPU tensors. Ignored by the reference, which computes in
        ``run()``.
    repeatable
        Keep the executor for many ``run()`` calls, with ``rebind()`` between them. Where CANN refuses (561000)
        each run does a fresh stage one; ``reuse`` says which.

    Raises
    ------
    TypeError, ValueError, OverflowError
        A wrong argument; names the C parameter. No C call was made.
    AclnnError
        Stage one refused; the class tells the family, the fields hold the code and CANN's text.

    Notes
    -----
    No semantic check is made here: the library's own status is what you see. An executor is used and closed on the
    thread that made it. Leaving the block after an exception leaves NumPy outputs untouched; a clean exit waits.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[1, 2], [3, 4]], np.float32)
    >>> grad, unused = np.zeros_like(x), np.zeros((2, 1), np.float32)
    >>> with Executor("aclnnMoeFinalizeRoutingV2Grad", gradY=x, expandedRowIdx=np.array([1, 0], np.int32),
    ...               dropPadMode=0, activeNum=0, expertNum=0, expertCapacity=0,
    ...               gradExpandedXOut=grad, gradScalesOut=unused, backend="reference") as ex:
    ...     ex.run()
    >>> grad.tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """

    _call: _HostCall | DeviceCall | None = None
    _thread = 0
    _repeatable = False
    _runs = 0
    _pending = False  # a run has left NumPy outputs to fill
    _values: list[Any]  # of a repeatable executor: what is bound now

    def __init__(
        self,
        name: str,
        /,
        *args: Any,
        backend: Backend | str | None = None,
        stream: Any = None,
        repeatable: bool = False,
        **kwargs: Any,
    ) -> None:
        if not isinstance(backend, Backend):
            backend = resolve(backend, (*args, *kwargs.values()))
        self.backend = backend
        self.signature = self.backend.signature(name)
        self._thread = get_ident()
        values = convert(self.signature, self.signature.bind(args, kwargs))
        if repeatable:
            self._repeatable = True
            self._values = list(values)
        if isinstance(self.backend, NativeBackend):
            self._call = DeviceCall(self.backend, self.signature, values, stream, repeatable)
        else:
            assert isinstance(self.backend, ReferenceBackend)
            self._call = _HostCall(self.backend, self.signature, values)

    def __repr__(self) -> str:
        state = "closed" if self._call is None else f"{self._runs} runs"
        return f"<Executor {self.signature.name} on {self.backend.name}, {state}>"

    def _open(self, doing: str) -> _HostCall | DeviceCall:
        if self._call is None:
            raise ValueError(f"{self.signature.name}: {doing} on a closed Executor")
        if get_ident() != self._thread:
            raise RuntimeError(
                f"{self.signature.name}: {doing} on another thread; the C executor points into the cache of the "
                "thread that made it"
            )
        return self._call

    @property
    def workspace_size(self) -> int:
        """Bytes of device workspace that stage one asked for."""
        return self._open("workspace_size").workspace_size

    @property
    def reuse(self) -> str:
        """Path of ``run()``: ``"single"``, ``"repeatable"``, ``"fresh"`` (a stage one per run), ``"reference"``."""
        return self._open("reuse").reuse

    def run(self) -> None:
        """Run stage two: enqueue the operator on the stream.

        Raises
        ------
        RuntimeError
            A second run of a plain executor (C would use freed memory), or a call from another thread.
        AclnnError
            The library's status.
        """
        call = self._call
        if call is None or get_ident() != self._thread:
            call = self._open("run()")
        if self._runs and not self._repeatable:
            raise RuntimeError(
                f"{self.signature.name}: this executor has run; CANN consumes it in the second stage. Make a new "
                "Executor, or pass repeatable=True"
            )
        self._runs += 1
        self._pending = True
        call.run()

    def view_shape(self, name: str) -> tuple[int, ...]:
        """Return the present shape of a tensor argument, by C name.

        For operators whose output shape depends on data (``aclnnNonzero``): the buffer that the caller supplies has
        the largest shape, and after ``run()`` this tells how much of it is the result.

        Raises
        ------
        TypeError
            No tensor argument of that name.
        """
        call = self._open("view_shape()")
        if name not in [p.name for p in self.signature.parameters if p.kind == "tensor"]:
            raise TypeError(f"{self.signature.name} has no tensor argument named {name!r}")
        return call.view_shape(name)

    def rebind(self, /, **changes: Any) -> None:
        """Replace tensors of a repeatable executor by C name; shape, dtype and strides stay as they were.

        Raises
        ------
        TypeError, ValueError
            Not repeatable, an unknown name, not a tensor, or another shape, dtype or strides.
        """
        call = self._open("rebind()")
        if not self._repeatable:
            raise TypeError(f"{self.signature.name}: rebind() needs repeatable=True")
        signature, bound = self.signature, self._values
        unknown = [key for key in changes if key not in signature.indices]
        if unknown:
            raise TypeError(f"{signature.name} has no argument named {', '.join(unknown)}")
        rows = [(signature.indices[key], value) for key, value in changes.items()]
        for at, (index, value) in enumerate(rows):
            if signature.kinds[index] != "tensor" or value is None or bound[index] is None:
                raise TypeError(
                    f"{self._rebinding(index)} replaces a tensor by another; attributes and nulls are fixed"
                )
            old, new = bound[index], convert_tensor(signature, index, value)
            if new.shape != old.shape or new.dtype != old.dtype:
                raise ValueError(
                    f"{self._rebinding(index)} got {new.shape} {new.dtype}, expected {old.shape} {old.dtype}"
                )
            if type(new) is not type(old):
                raise TypeError(
                    f"{self._rebinding(index)} got a {type(new).__name__}, expected a {type(old).__name__} as before"
                )
            name = signature.parameters[index].name
            if isinstance(new, np.ndarray) and name in signature.outputs and not new.flags.writeable:
                raise ValueError(f"{self._rebinding(index)}: the output is read-only")
            rows[at] = index, new
        self.fetch()  # results of earlier runs belong to the arrays that were bound then
        call.rebind(rows)
        for index, value in rows:
            bound[index] = value

    def _rebinding(self, index: int) -> str:
        return f"{self.signature.name}: rebind({self.signature.parameters[index].name}=...)"

    def synchronize(self) -> None:
        """Wait for the stream; NumPy outputs are filled now.

        Raises
        ------
        AclnnError
            A fault of this or earlier work on the stream, which CANN reports here.
        """
        call = self._open("synchronize()")
        self._pending = False
        call.synchronize()

    def fetch(self) -> None:
        """Wait and fill NumPy outputs, if a run has left any to fill; device arrays are left in flight."""
        call = self._open("fetch()")
        if self._pending and call.fills_host_arrays:
            self.synchronize()

    def close(self) -> None:
        """Release everything, once; does not wait for the stream and never raises.

        On another thread than the one that made the executor it warns and leaks the C object rather than corrupt it.
        """
        call, self._call = self._call, None
        if call is None:
            return
        if get_ident() != self._thread:
            warnings.warn(
                f"{self.signature.name}: Executor closed on another thread; its C executor is leaked",
                ResourceWarning,
                stacklevel=2,
            )
        call.close()

    def __del__(self) -> None:
        if self._call is not None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __enter__(self) -> Executor:
        if self._call is None or get_ident() != self._thread:
            self._open("with")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._call is not None and self._call.fills_host_arrays:
                self.fetch()
        finally:
            self.close()
