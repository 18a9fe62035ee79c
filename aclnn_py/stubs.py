"""Typed stubs for the operators of an install, so that an editor completes parameter names."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from pathlib import Path

from .signatures import Parameter, Signature

__all__ = ["MODULE", "render", "write"]

#: The module that a stub belongs to: every attribute is the operator of that name.
MODULE = '''"""Every installed aclnn operator as a function; typed by the stub beside this file."""

import aclnn_py


def __getattr__(name):
    if not name.startswith("acl"):
        raise AttributeError(name)
    return aclnn_py.op(name)
'''

_HEAD = """# Written by `aclnn-py stubs`: the operators of one install. Write it again after a change of CANN.
from collections.abc import Sequence
from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # numpy.ndarray or aclnn_py.DeviceArray
Scalar: TypeAlias = Any  # a number or aclnn_py.Scalar
"""

_TYPES = {
    "tensor": "Tensor",
    "tensor_list": "Sequence[Tensor]",
    "scalar": "Scalar",
    "scalar_list": "Sequence[Scalar]",
    "int_array": "Sequence[int]",
    "float_array": "Sequence[float]",
    "bool_array": "Sequence[bool]",
    "string": "str | bytes",
    "bool": "bool",
    "int": "int",
    "float": "float",
    "double": "float",
    "dtype": "Any",
    "enum": "str | int",
}


def _annotation(parameter: Parameter) -> str:
    text = _TYPES.get(parameter.kind, "Any")
    return f"{text} | None" if parameter.ctype.endswith("*") and text != "Any" else text


def _function(signature: Signature) -> str:
    # A null pointer may be left out by name; Python wants defaults from the first such parameter on.
    # Names that are Python keywords can only be given by position: theirs and all before them.
    last_keyword = max(
        (i for i, parameter in enumerate(signature.parameters) if keyword.iskeyword(parameter.name)), default=-1
    )
    parts: list[str] = []
    defaults = False
    for index, parameter in enumerate(signature.parameters):
        defaults = defaults or parameter.optional
        name = parameter.name + "_" if keyword.iskeyword(parameter.name) else parameter.name
        parts.append(f"{name}: {_annotation(parameter)}" + (" = ..." if defaults else ""))
        if index == last_keyword:
            parts.append("/")
    parts += ["*", "backend: Any = ...", "stream: Any = ..."]
    return f"def {signature.name}({', '.join(parts)}) -> None: ..."


def render(signatures: Iterable[Signature]) -> str:
    """Return the text of a stub file with one function per operator.

    Examples
    --------
    >>> from aclnn_py.signatures import find
    >>> print(render([find("aclnnRelu")]).splitlines()[-1])
    def aclnnRelu(self: Tensor | None, out: Tensor | None, *, backend: Any = ..., stream: Any = ...) -> None: ...
    """
    functions = [_function(signature) for signature in sorted(signatures, key=lambda s: s.name)]
    return _HEAD + "\n" + "\n".join(functions) + "\n"


def write(path: Path, signatures: Iterable[Signature]) -> None:
    """Write a module and its stub: ``path`` with the suffixes ``.py`` and ``.pyi``."""
    path.with_suffix(".pyi").write_text(render(signatures), encoding="utf-8")
    path.with_suffix(".py").write_text(MODULE, encoding="utf-8")
