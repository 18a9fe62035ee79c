"""What a sample does with its results: copies back, prints, comparisons with goldens."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from aclnn_py import dtypes

from ..model import Check, Data, Frame, Print, Tensor, Unknown
from .convert import decay
from .functions import poison
from .machine import Machine, library
from .syntax import Node
from .tensors import elements, tensor_of
from .types import CType, numeric
from .values import Array, Cell, Handle, Num, Ptr, Text, Unk, Vector, np_type

__all__ = ["compared", "finish", "printed", "read_back", "same", "stream"]


class Read:
    """Elements of a host array that were copied back from a tensor."""

    def __init__(self, tensor: Tensor | None, first: int, low: int, high: int, line: int) -> None:
        self.tensor, self.first, self.low, self.high, self.line = tensor, first, low, high, line
        self.frames: tuple[Frame, ...] = ()
        self.position = 0
        self.used = False
        self.prints: dict[tuple[Any, ...], Print] = {}
        self.checks: dict[int, Golden] = {}
        self.host = ""


class Golden:
    """A comparison of elements with expected ones, as it is met."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.expected: dict[int, float] = {}
        self.tolerances: dict[int, float] = {}
        self.cast = False


def read_back(m: Machine, to: Any, source: Any, count: Any, node: Node) -> None:
    """Return a copy from the device to the host."""
    to, source = decay(to), decay(source)
    memory: Handle = source.block
    nbytes = int(count.v) if isinstance(count, Num) else None
    have = memory.data["nbytes"]
    if nbytes is not None and have is not None and nbytes > have - source.at:
        m.note(f"{nbytes} bytes are read back from a device buffer of {have - source.at}", node.line)
    handle = memory.data.get("last")
    tensors = [t for t in memory.data["tensors"] if "why" not in t.data]
    fitting = [t for t in tensors if t.data["at"] == source.at]
    if handle not in fitting and fitting:
        handle = fitting[-1]
    if handle is None and tensors:
        handle = tensors[-1]
    block = to.block if isinstance(to, Ptr) else None
    size = (
        block.data.itemsize
        if isinstance(block, Array) and block.is_numeric
        else block.ctype.size
        if isinstance(block, Cell)
        else None
    )
    tensor: Any = tensor_of(m, handle, handle.data.get("named") or "out") if handle is not None else None
    if isinstance(tensor, Unknown):
        tensor = None
    if isinstance(block, Array) and block.raw:
        block.mask = None
    at = int(to.at) if isinstance(block, Array) else 0
    n = nbytes // size if nbytes is not None and size else (block.n - at if isinstance(block, Array) else 1)
    if isinstance(block, Array) and n > block.n - at:
        m.note(f"{nbytes} bytes are read back into a host array of {block.n * (size or 1)}", node.line)
    if handle is not None and nbytes is not None:
        whole = elements(handle) * _itemsize(handle)
        if nbytes > whole:
            m.note(f"{nbytes} bytes are read back from a tensor of {whole}", node.line)
    read = Read(tensor, 0, at, at + n, node.line)
    read.frames = m.frames()
    read.position = len(m.program.steps)
    m.reads.append(read)
    why = Unk("computed on the device", node.line)
    if isinstance(block, Array) and block.is_numeric:
        read.host = block.elem.base
        block.texts = block.fill = block.origin = None
        block.read = read
    elif isinstance(block, Cell):
        read.host = block.ctype.base
        block.value = Unk("computed on the device", node.line, "device", ("dev", read, 0))
    elif to is not None:
        poison(m, to, why)


def _itemsize(handle: Handle) -> int:
    try:
        return dtypes.parse(handle.data["dtype"]).itemsize
    except (TypeError, ValueError, ImportError):
        return 1


def _leaf(expr: tuple[Any, ...]) -> tuple[Any, Any] | None:
    """Return the first read element in an expression."""
    if not expr:
        return None
    if expr[0] == "dev":
        return expr[1], expr[2]
    for part in expr[1:]:
        if isinstance(part, tuple):
            found = _leaf(part)
            if found is not None:
                return found
    return None


# printing


@library("printf", "fprintf", "puts", "LOG", "fputs", "putchar", "perror")
def _printf(m: Machine, node: Node, values: list[Any]) -> Any:
    if node["function"].text.endswith("fprintf"):
        values = values[1:]
    return printed(m, node, values)


@library("snprintf", "sprintf", "snprintf_s", "sprintf_s")
def _snprintf(m: Machine, node: Node, values: list[Any]) -> Any:
    poison(m, values[0], m.unk("formatted text", node))
    return Num(0)


def _label(text: str) -> str:
    text = text.split("%")[0].strip().rstrip("[(").strip()
    return re.sub(r"\s*(is|:|=)$", "", text).strip()


def printed(m: Machine, node: Node, values: list[Any]) -> Any:
    """Return a printf: when it shows an element that was read back, the script prints the tensor."""
    label = next((v.value for v in values if isinstance(v, Text)), "")
    for value in values:
        if isinstance(value, Unk) and value.tag == "device":
            found = _leaf(value.expr)
            if found is not None:
                _print(m, found[0], label, node)
                break
    return Num(0)


def _print(m: Machine, read: Read, label: str, node: Node) -> None:
    if read.tensor is None:
        read.used = True
        return
    key = (node.start, node.source.name)
    step = read.prints.get(key)
    if step is None:
        step = Print(read.tensor, _label(label), 0, node.line, read.frames)
        read.prints[key] = step
        if not any(
            isinstance(s, Print) and s.line == step.line and s.tensor is step.tensor and s.frames == step.frames
            for s in m.program.steps
        ):
            m.emit(step)
    step.count = (step.count or 0) + 1
    read.used = True


def stream(m: Machine, a: Any, b: Any, node: Node) -> Any:
    """``std::cout << x``."""
    if isinstance(a, Handle):
        if isinstance(b, Text):
            a.data["text"] = b.value if b.value.strip(" ,:=\n[]") else a.data.get("text", "")
        if isinstance(b, Unk) and b.tag == "device" and a.kind != "file":
            found = _leaf(b.expr)
            if found is not None:
                _print(m, found[0], a.data.get("text", ""), node)
    return a


# goldens


def compared(m: Machine, op: str, a: Any, b: Any, node: Node, result: Unk) -> None:
    """Return a comparison with an unknown operand: with a golden when the other side is known."""
    if isinstance(a, Vector) or isinstance(b, Vector):
        if isinstance(a, Vector) and isinstance(b, Vector):
            outcome = same(m, Ptr(a.array, 0), Ptr(b.array, 0), a.array.n, node)
            result.tag, result.expr, result.reason = outcome.tag, outcome.expr, outcome.reason
        return
    left = a.expr if isinstance(a, Unk) and a.tag == "device" else ("num", a) if isinstance(a, Num) else None
    right = b.expr if isinstance(b, Unk) and b.tag == "device" else ("num", b) if isinstance(b, Num) else None
    if left is None or right is None:
        return
    if right[0] != "num":
        left, right = right, left
    if right[0] != "num":
        return
    number = right[1]
    if isinstance(number.v, np.ndarray):
        return
    if left[0] == "abs":
        difference = _inside(left[1])
        if difference is not None:
            read, index, converted, expected = difference
            _golden(m, read, node, converted, index, expected, float(number.v))
    elif op in ("==", "!="):
        leaf, converted = _direct(left)
        if leaf is not None:
            _golden(m, leaf[0], node, converted, leaf[1], number, 0.0)


def _direct(expr: tuple[Any, ...]) -> tuple[tuple[Any, Any] | None, bool]:
    """Return a read element itself, or converted to float."""
    converted = False
    while expr and expr[0] == "cast":
        expr, converted = expr[1], True
    return ((expr[1], expr[2]), converted) if expr and expr[0] == "dev" else (None, converted)


def _inside(expr: tuple[Any, ...]) -> tuple[Any, Any, bool, Num] | None:
    """Read, index, whether converted, and expected value of ``actual - expected``."""
    while expr and expr[0] == "cast":
        expr = expr[1]
    if not expr or expr[0] != "-" or len(expr) != 3:
        return None
    x, y = expr[1], expr[2]
    if x[0] == "num":
        x, y = y, x
    leaf, converted = _direct(x)
    return (leaf[0], leaf[1], converted, y[1]) if leaf is not None and y[0] == "num" else None


def _golden(m: Machine, read: Read, node: Node, converted: bool, index: Any, expected: Num, tolerance: float) -> None:
    if read.tensor is None or isinstance(expected.v, np.ndarray) or isinstance(index, np.ndarray):
        return
    read.used = True
    key = node.start
    golden = read.checks.get(key)
    if golden is None:
        check = Check(read.tensor, Unknown("not complete", (node.line, node.line)), 0.0, 0.0, node.line, read.frames)
        golden = read.checks[key] = Golden(check)
        golden.cast = converted
        m.emit(check)
    golden.expected[index - read.low] = expected.v
    golden.tolerances[index - read.low] = tolerance


def same(m: Machine, a: Any, b: Any, n: int, node: Node) -> Unk:
    """Whether two ranges are equal, when one was read back: a check of all its elements."""
    a, b = decay(a), decay(b)
    result = m.unk("a comparison", node)
    if not (isinstance(a, Ptr) and isinstance(b, Ptr) and isinstance(a.block, Array) and isinstance(b.block, Array)):
        return result
    if a.block.read is None:
        a, b = b, a
    read, other = a.block.read, b.block
    if read is None:
        return result
    result.tag, result.expr = "device", ("lost",)
    if other.read is None and other.mask is None and other.is_numeric:
        for i in range(min(n, other.n - b.at)):
            value = other.get(b.at + i)
            _golden(m, read, node, False, a.at + i, value, 0.0)
    return result


@library("memcmp")
def _memcmp(m: Machine, node: Node, values: list[Any]) -> Any:
    a = decay(values[0])
    size = a.block.data.itemsize if isinstance(a, Ptr) and isinstance(a.block, Array) and a.block.is_numeric else 1
    n = int(values[2].v) // size if isinstance(values[2], Num) else 0
    return same(m, values[0], values[1], n, node)


def finish(m: Machine) -> None:
    """Complete the checks, and print what was read back without being shown."""
    late: list[tuple[int, Print]] = []
    for read in m.reads:
        for step in read.prints.values():
            if step.count is not None and step.count >= read.high - read.low:
                step.count = None
        for golden in read.checks.values():
            _complete(read, golden)
        if not read.used and read.tensor is not None:
            late.append((read.position, Print(read.tensor, "", None, read.line, read.frames)))
    for position, step in reversed(late):
        m.program.steps.insert(position, step)


def _complete(read: Read, golden: Golden) -> None:
    check = golden.check
    tensor = check.tensor
    n = max(golden.expected) + 1
    try:
        kind = dtypes.parse(tensor.dtype)
    except (TypeError, ValueError, ImportError):
        check.expected = Unknown(f"a comparison in {tensor.dtype}", (check.line, check.line))
        return
    bits = read.host.startswith(("int", "uint")) and tensor.dtype in ("float16", "bfloat16") and not golden.cast
    if (
        not bits and read.host != tensor.dtype and np_type(read.host).itemsize != kind.itemsize
        if numeric(CType(read.host))
        else True
    ):
        check.expected = Unknown(f"a comparison of {tensor.dtype} read as {read.host}", (check.line, check.line))
        return
    values = np.zeros(n, kind)
    defined = np.zeros(n, bool)
    for index, value in golden.expected.items():
        with np.errstate(all="ignore"):
            values[index] = np.array([value], np.int64).astype(np.uint16).view(kind)[0] if bits else value
        defined[index] = True
    check.expected = Data(values, defined=None if defined.all() else defined)
    tolerances = set(golden.tolerances.values())
    if len(tolerances) == 1:
        check.atol = tolerances.pop()
    else:
        ratios = {round(t / abs(golden.expected[i]), 9) for i, t in golden.tolerances.items() if golden.expected[i]}
        check.rtol = ratios.pop() if len(ratios) == 1 else 0.0
        check.atol = 0.0 if check.rtol else max(tolerances)
