"""What a sample does, in the order it does it: both engines fill this, the emitter writes a script from it.

Nothing here is invented: what an engine does not understand is an ``Unknown`` with the source lines, never a zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "LAST_BIT",
    "Array",
    "Attribute",
    "Call",
    "Check",
    "Data",
    "Frame",
    "Note",
    "Print",
    "Program",
    "SampleError",
    "Scalar",
    "Sequence",
    "Tensor",
    "Unknown",
    "Value",
]


LAST_BIT = "the last bit is as the C library rounds"


class SampleError(ValueError):
    """The sample is not valid C++; ``line`` and ``column`` (from 1) say where.

    Examples
    --------
    >>> str(SampleError("aclCreateTensor takes 9 arguments, 5 were given", "add.cpp", 42, 7))
    'add.cpp:42:7: aclCreateTensor takes 9 arguments, 5 were given'
    """

    def __init__(self, message: str, file: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(f"{file}:{line}:{column}: {message}")
        self.message, self.file, self.line, self.column = message, file, line, column

    def __reduce__(self) -> tuple[type[SampleError], tuple[str, str, int, int]]:
        return SampleError, (self.message, self.file, self.line, self.column)


@dataclass(frozen=True)
class Note:
    """A fault of the sample, or something the reader of the script should know: shown on stderr and in the script."""

    text: str
    line: int = 0
    file: str = ""


@dataclass(frozen=True)
class Unknown:
    """Something that was not understood; the script gets a TODO that names the lines."""

    reason: str
    lines: tuple[int, int] = (0, 0)
    file: str = ""
    source: str = ""


@dataclass(frozen=True)
class Frame:
    """One loop or function that a step was met in. ``index`` numbers its iterations or calls from 0."""

    kind: str  # "loop" or "function"
    name: str  # the function's name, or the loop's variable
    line: int
    index: int
    values: tuple[tuple[str, str], ...] = ()  # loop variables as (name, Python text) of this iteration


@dataclass(eq=False)
class Data:
    """Host values of a tensor, flat, in the element type of the tensor's dtype (bf16 and fp16 already decoded).

    ``text`` is how the source wrote them, as a Python or NumPy expression of the flat array or of one element that
    fills it (literals as written: ``0.1``, not ``0.10000000149``); None lets the emitter choose from the values.
    ``note`` is a comment to keep beside it, such as the original bit patterns.
    """

    values: np.ndarray[Any, Any]
    text: str | None = None
    note: str = ""
    defined: np.ndarray[Any, np.dtype[np.bool_]] | None = None  # elements that the sample defines; None: all


@dataclass(eq=False)
class Tensor:
    """A tensor of the sample. ``data`` None: memory that the sample does not fill."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # name in aclnn_py.dtypes, "bfloat16"
    data: Data | Unknown | None = None
    strides: tuple[int, ...] | None = None  # elements; None: contiguous
    offset: int = 0
    storage_shape: tuple[int, ...] | None = None  # None: as the view
    format: str = "ND"
    line: int = 0
    base: Tensor | None = None  # an earlier tensor over the same device memory, whose results this one sees


@dataclass(eq=False)
class Scalar:
    """An aclScalar: the literal as written, its value and dtype."""

    name: str
    text: str
    value: Any
    dtype: str
    line: int = 0


@dataclass(eq=False)
class Attribute:
    """A number, bool, string, dtype or enum that is passed by value; ``text`` is the Python spelling."""

    text: str
    value: Any
    line: int = 0


@dataclass(eq=False)
class Array:
    """An aclIntArray, aclFloatArray or aclBoolArray: the items as Python text."""

    name: str
    items: tuple[str, ...]
    values: tuple[Any, ...]
    line: int = 0


@dataclass(eq=False)
class Sequence:
    """An aclTensorList or aclScalarList."""

    name: str
    items: tuple[Tensor | Scalar | Unknown | None, ...]
    line: int = 0


Value: TypeAlias = Tensor | Scalar | Attribute | Array | Sequence | Unknown | None


@dataclass(eq=False)
class Call:
    """One operator call: arguments by C parameter name in C order; None is a null pointer."""

    op: str  # "aclnnAdd"
    arguments: dict[str, Value]
    line: int = 0
    frames: tuple[Frame, ...] = ()
    declaration: str | None = None  # a prototype to declare when no built-in signature has the operator


@dataclass(eq=False)
class Print:
    """The sample prints a tensor that it read back. ``label`` is its own text, ``count`` how many elements."""

    tensor: Tensor
    label: str = ""
    count: int | None = None
    line: int = 0
    frames: tuple[Frame, ...] = ()


@dataclass(eq=False)
class Check:
    """The sample compares a tensor with a golden; tolerance zero means equal."""

    tensor: Tensor
    expected: Data | Unknown
    rtol: float = 0.0
    atol: float = 0.0
    line: int = 0
    frames: tuple[Frame, ...] = ()


@dataclass(eq=False)
class Program:
    """Everything that was found in one sample."""

    files: tuple[str, ...]
    steps: list[Call | Print | Check | Unknown] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    refused: str | None = None  # why no script can be written (HCCL)
