"""Any operator by name: ``op``, ``has_op``, ``list_ops``."""

from __future__ import annotations

import fnmatch
from typing import Any

from .backends import Backend, resolve
from .executor import Executor
from .signatures import Signature

__all__ = ["Op", "has_op", "list_ops", "op"]


class Op:
    """An operator that can be called; made by ``op(name)``.

    Attributes
    ----------
    name : str
        ``"aclnnAdd"``, for example.
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

    def __call__(self, *args: Any, backend: Backend | str | None = None, stream: Any = None, **kwargs: Any) -> None:
        """Call the operator: arguments in C order or by C name, outputs among them.

        NumPy outputs are filled when this returns; device arrays are written asynchronously. Parameters and errors
        are those of ``Executor``.
        """
        chosen = self._backend if backend is None else backend
        with Executor(self.name, *args, backend=chosen, stream=stream, **kwargs) as executor:
            executor.run()


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
    wanted = (pattern if any(c in pattern for c in "*?[") else f"*{pattern}*").lower()
    names = sorted(name for name in chosen.known() if fnmatch.fnmatchcase(name.lower(), wanted))
    return [name for name in names if chosen.has(name)]
