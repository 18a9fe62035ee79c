"""Any operator by name: ``op``, ``has_op``, ``list_ops``."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import dtypes
from .backends import Backend, ReferenceBackend, resolve
from .device_array import DeviceArray
from .executor import Executor
from .signatures import Signature

__all__ = ["BoundOp", "Op", "empty", "empty_like", "has_op", "list_ops", "op"]


class Op:
    """An operator that can be called; made by ``op(name)``.

    Attributes
    ----------
    name : str
        ``"aclnnAdd"``, for example.

    Examples
    --------
    >>> Op("aclnnMoeFinalizeRoutingV2").signature.outputs
    ('out',)
    """

    def __init__(self, name: str, backend: Backend | str | None = None) -> None:
        self.name = name
        self._backend = backend

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    @property
    def signature(self) -> Signature:
        """Name, parameters (name, C type, kind) and header.

        Raises
        ------
        SymbolNotFoundError
            No declaration of the operator is at hand.
        """
        return resolve(self._backend).signature(self.name)

    def __call__(self, /, *args: Any, backend: Backend | str | None = None, stream: Any = None, **kwargs: Any) -> None:
        """Call the operator: arguments in C order or by C name, outputs among them.

        NumPy outputs are filled when this returns; device arrays are written asynchronously. Parameters and errors
        are those of ``Executor``.
        """
        chosen = self._backend if backend is None else backend
        with Executor(self.name, *args, backend=chosen, stream=stream, **kwargs) as executor:
            executor.run()

    def bind(self, /, *args: Any, backend: Backend | str | None = None, stream: Any = None, **kwargs: Any) -> BoundOp:
        """Prepare a call for a loop: checks, descriptors and stage one are done once, here.

        Takes what a call takes. Close the result, or use it in a ``with`` block.
        """
        chosen = self._backend if backend is None else backend
        return BoundOp(Executor(self.name, *args, backend=chosen, stream=stream, repeatable=True, **kwargs))


class BoundOp:
    """An operator with its arguments, for a loop over the same shapes with new data; made by ``Op.bind``.

    Calling it runs the operator; keyword arguments replace tensors by C name first. NumPy outputs are filled when the
    call returns, device arrays are written asynchronously. It belongs to the thread that made it, keeps its arrays
    alive until it is closed, and is a context manager.

    Attributes
    ----------
    executor : Executor
        The repeatable executor behind it; ``executor.reuse`` says whether CANN reuses it.

    Examples
    --------
    >>> import numpy as np
    >>> x, out = np.ones(3, np.float32), np.empty(3, np.float32)
    >>> with op("aclnnMuls", backend="reference").bind(x, 2.0, out) as double:
    ...     double()
    ...     print(out)
    ...     double(self=np.arange(3, dtype=np.float32))
    ...     print(out)
    [2. 2. 2.]
    [0. 2. 4.]
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def __repr__(self) -> str:
        return f"<BoundOp {self.executor!r}>"

    def __call__(self, /, **changes: Any) -> None:
        """Run, after replacing the tensors that are given by C name; errors are those of ``Executor``."""
        executor = self.executor
        if changes:
            executor.rebind(**changes)
        executor.run()
        executor.fetch()

    def close(self) -> None:
        """Release the executor; a second call does nothing."""
        self.executor.close()

    def __enter__(self) -> BoundOp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def op(name: str, *, backend: Backend | str | None = None) -> Op:
    """Return an operator by its C name; nothing is looked up before it is used.

    Parameters
    ----------
    name
        Without the ``GetWorkspaceSize`` suffix.
    backend
        What calls of it use by default.

    Examples
    --------
    >>> import numpy as np
    >>> x, index, out = np.ones((2, 1), np.float32), np.array([1, 0], np.int32), np.zeros((2, 1), np.float32)
    >>> op("aclnnMoeFinalizeRoutingV2", backend="reference")(x, index, dropPadMode=2, out=out)
    >>> out.ravel().tolist()
    [1.0, 1.0]
    """
    if not isinstance(name, str):
        raise TypeError(f"op takes the C name of an operator, got {type(name).__name__}")
    return Op(name.removesuffix("GetWorkspaceSize"), backend)


def has_op(name: str, *, backend: Backend | str | None = None) -> bool:
    """Whether a backend has an operator: both stages in the opened libraries, or an entry in the reference.

    Examples
    --------
    >>> has_op("aclnnMoeFinalizeRoutingV2Grad", backend="reference"), has_op("aclnnNoSuch", backend="reference")
    (True, False)
    """
    return resolve(backend).has(name)


def list_ops(pattern: str = "*", *, backend: Backend | str | None = None) -> list[str]:
    """Return the operators that a backend has and whose signature is at hand, sorted.

    Parameters
    ----------
    pattern
        A glob over names, upper and lower case alike; without a wildcard, part of a name.

    Examples
    --------
    >>> list_ops("unpermute", backend="reference")
    ['aclnnMoeTokenUnpermuteWithEp', 'aclnnMoeTokenUnpermuteWithEpGrad']
    """
    chosen = resolve(backend)
    return [name for name in matching(pattern, chosen.known()) if chosen.has(name)]


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a glob or a part of a name matches, sorted."""
    wanted = (pattern if any(c in pattern for c in "*?[") else f"*{pattern}*").lower()
    return sorted(name for name in names if fnmatch.fnmatchcase(name.lower(), wanted))


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32, *, backend: Backend | str | None = None) -> Any:
    """Allocate an uninitialised output where the backend computes.

    Parameters
    ----------
    shape
        Sizes; an integer means one axis.
    dtype
        dtype-like or name, ``"bfloat16"`` for example.
    backend
        Default: ``get_backend()``.

    Returns
    -------
    DeviceArray or numpy.ndarray
        A device array on npu and emulator, a NumPy array on the reference; ``numpy.asarray`` reads both.

    Examples
    --------
    >>> empty((2, 3), "float16", backend="reference").dtype
    dtype('float16')
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    chosen = resolve(backend)
    if isinstance(chosen, ReferenceBackend):
        return np.empty(sizes, dtypes.parse(dtype))
    return chosen.empty(sizes, dtype)


def empty_like(array: Any) -> Any:
    """Allocate an uninitialised output of the same kind, shape and dtype as an array, C-contiguous.

    Examples
    --------
    >>> empty_like(np.zeros((2, 3), np.int32)).shape
    (2, 3)
    """
    if isinstance(array, DeviceArray):
        return DeviceArray.empty(array.buffer.runtime, array.shape, array.dtype, array.buffer.device)
    if hasattr(array, "new_empty"):  # a torch tensor
        return array.new_empty(array.shape)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"empty_like takes an array, got {type(array).__name__}")
    return np.empty(array.shape, array.dtype)
