"""Values as a person would write them: literals as the source has them, fills, ramps and short lists."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from .script import Cat, Node, Seq, Slot

__all__ = [
    "LISTED",
    "Literal",
    "array_expression",
    "dtype_text",
    "element",
    "literal",
    "nested",
    "scalar_value",
    "shape_text",
    "texts",
]

LISTED = 64  # elements that are written out
SHORT = 16  # elements of a ramp that are written out
KEPT = 4  # equal elements that stay as the source lists them
# what an expression may name besides literals: it is evaluated, to see that it gives the values
_NAMES = frozenset(
    (
        "abs", "arange", "array", "asarray", "astype", "concatenate", "copy", "cos", "dtype", "exp", "eye", "full",
        "inf", "linspace", "mod", "nan", "np", "ones", "pi", "ravel", "repeat", "reshape", "resize", "sin", "sqrt",
        "stack", "T", "tile", "transpose", "view", "where", "zeros", "bool_", "bfloat16", "complex64", "complex128",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64",
    )
)  # fmt: skip
_NODES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.keyword,
    ast.expr_context, ast.Subscript, ast.Slice, ast.Call,
)  # fmt: skip


def dtype_text(name: str) -> str:
    """Return how a script names an element type; types of ml_dtypes are imported by name."""
    if name == "bool":
        return "np.bool_"
    return name if name == "bfloat16" or name.startswith("float8") else f"np.{name}"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape; one axis as a number."""
    return str(shape[0]) if len(shape) == 1 else str(tuple(int(size) for size in shape))


def literal(text: str) -> str:
    """Return a number as formatters leave it: ``.5`` and ``1.`` with both digits, exponent and ``0x`` in lower case.

    Examples
    --------
    >>> literal(".5"), literal("1."), literal("1E-5"), literal("0x3c00")
    ('0.5', '1.0', '1e-5', '0x3C00')
    """
    text = text.strip()
    if re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+", text):
        sign, digits = re.split("0[xX]", text)
        return f"{sign}0x{digits.upper()}"
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        mantissa, mark, exponent = text.lower().partition("e")
        whole, dot, part = mantissa.partition(".")
        sign = "-" if whole.startswith("-") else ""
        whole = whole.lstrip("+-") or "0"
        if not dot and not mark:
            return sign + (whole.lstrip("0") or "0")
        return f"{sign}{whole}{'.' + (part or '0') if dot else ''}{mark}{exponent}"
    return text


def _same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays hold the same bits."""
    same: bool = one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return same


def element(value: Any) -> str:
    """Return the shortest text that gives an element back.

    Examples
    --------
    >>> element(np.float32(0.1)), element(np.int8(-3)), element(np.float16(1)), element(np.bool_(True))
    ('0.1', '-3', '1.0', 'True')
    """
    dtype = np.asarray(value).dtype
    if dtype.kind == "b":
        return str(bool(value))
    if dtype.kind in "iu":
        return str(int(value))
    if dtype.kind == "c":
        return f"complex({element(value.real)}, {element(value.imag)})"
    number = float(value)
    if np.isnan(number):
        return "np.nan"
    if np.isinf(number):
        return "np.inf" if number > 0 else "-np.inf"
    with np.errstate(over="ignore"):
        for digits in range(1, 18):
            text = f"{number:.{digits}g}"
            if np.asarray(float(text)).astype(dtype) == value:
                return literal(repr(float(text)))
    return repr(number)


def _allowed(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
        if not (isinstance(node, _NODES) if name is None else name in _NAMES):
            return False
    return True


def scalar_value(text: str) -> Any:
    """Return the value of a Python or NumPy expression made of literals; None when it is something else."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if not _allowed(tree):
            return None
        names: dict[str, Any] = {"np": np, "__builtins__": {}}
        if "bfloat16" in text:
            names["bfloat16"] = dtypes.bfloat16()
        with np.errstate(all="ignore"):
            return eval(compile(tree, "literal", "eval"), names)
    except Exception:  # whatever NumPy raises: the text is not used then
        return None


@dataclass(frozen=True)
class Literal:
    """How an array is written. ``node`` None: too long and irregular, so it goes to a file."""

    node: Node | None
    fill: str | None = None  # the element that all of them equal


def _parts(text: str) -> list[str] | None:
    """Return the texts of a (nested) list literal's numbers."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    source = text.strip()

    def leaves(node: ast.expr) -> list[str]:
        if isinstance(node, (ast.List, ast.Tuple)):
            return [leaf for item in node.elts for leaf in leaves(item)]
        return [literal(ast.get_source_segment(source, node) or "")]

    return leaves(tree) if isinstance(tree, (ast.List, ast.Tuple)) else None


def nested(found: list[str], shape: tuple[int, ...]) -> Node:
    """Return the elements as nested lists of a shape."""
    if not shape:
        return found[0]
    if len(shape) == 1:
        return Seq("[", tuple(found), "]", fill=True)
    step = len(found) // shape[0]
    return Seq("[", tuple(nested(found[i : i + step], shape[1:]) for i in range(0, len(found), step)), "]")


def _filled(shape: tuple[int, ...], value: Any, text: str, dtype: str, name: str) -> Node:
    size, kind = Slot(shape_text(shape), f"{name}_shape"), Slot(dtype, "dtype")
    bits = np.asarray(value)
    if bits.tobytes().strip(b"\0") == b"":
        return Seq("np.zeros(", (size, kind), ")")
    if bool(bits == 1):
        return Seq("np.ones(", (size, kind), ")")
    return Seq("np.full(", (size, Slot(text, f"{name}_value"), kind), ")")


def _ramp(values: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> Node | None:
    if values.dtype.kind not in "iuf" or values.size < 3 or not np.all(np.isfinite(values)):
        return None
    first, step = values[0].item(), values[1].item() - values[0].item()
    if step == 0 or not float(step).is_integer() or not float(first).is_integer():
        return None
    first, step = int(first), int(step)
    stop = first + step * values.size
    if not _same(np.arange(first, stop, step, dtype=values.dtype), values):
        return None
    bounds = [str(stop)] if (first, step) == (0, 1) else [str(first), str(stop)] + ([str(step)] if step != 1 else [])
    node: Node = Seq("np.arange(", (*bounds, f"dtype={dtype}"), ")")
    return node if len(shape) == 1 else Cat((node, f".reshape{shape}"))


def texts(values: np.ndarray[Any, Any]) -> list[str]:
    """Return the texts of an array's elements."""
    return _plain([element(value) for value in values])


def _plain(found: list[str]) -> list[str]:
    """Write whole numbers of a float array without their ``.0``."""
    if all(re.fullmatch(r"-?\d+\.0", text) for text in found):
        return [text[:-2] if text != "-0.0" else text for text in found]
    return found


def _listed(found: list[str], shape: tuple[int, ...], dtype: str, name: str) -> Node:
    return Seq("np.array(", (Slot(nested(found, shape), f"{name}_values"), Slot(dtype, "dtype")), ")")


def array_expression(
    values: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str, text: str | None, name: str
) -> Literal:
    """Return the expression of an array: as the source wrote it if that gives the same bits, else from the values.

    Parameters
    ----------
    values, shape
        The elements, flat, and the shape of the result.
    dtype
        Text of the element type.
    text
        An expression of the flat array or of the one element that fills it, or None.
    name
        Name of the tensor, for names of what differs between cases.

    Examples
    --------
    >>> from aclnn_py.port.script import flat
    >>> flat(array_expression(np.float32([0.1, 0.2]), (1, 2), "np.float32", "[.1, .2]", "x").node)
    'np.array([[0.1, 0.2]], np.float32)'
    >>> flat(array_expression(np.zeros(6, np.int8), (2, 3), "np.int8", None, "x").node)
    'np.zeros((2, 3), np.int8)'
    """
    size = values.size
    if size == 0:
        return Literal(_filled(shape, np.zeros((), values.dtype), "0", dtype, name))
    parts = whole = None
    if text is not None:
        parts = _parts(text)
        found = scalar_value(text)
        if found is not None:
            with np.errstate(all="ignore"):
                whole = _as(found, values.dtype)
        if whole is None or not _same(_spread(whole, values.shape), values):
            parts = text = whole = None
    if size == 1 and parts is None and text is not None:
        parts = [literal(text)]
    same = _same(values, np.broadcast_to(values[:1], values.shape).copy())
    if same and (size > KEPT or parts is None or not values.tobytes().strip(b"\0")) and shape:
        one = parts[0] if parts else literal(text) if text is not None and whole is not None and whole.size == 1 else ""
        one = one or texts(values[:1])[0]
        return Literal(_filled(shape, values[0], one, dtype, name), one)
    if parts is not None and size <= LISTED:
        return Literal(_listed(parts, shape, dtype, name))
    if text is not None and whole is not None and parts is None and whole.size == size:
        return Literal(_written(text, found, whole, shape, dtype))
    if size > SHORT:
        ramp = _ramp(values, shape, dtype)
        if ramp is not None:
            return Literal(ramp)
    if size > LISTED:
        return Literal(_repeated(values, shape, dtype, name))
    return Literal(_listed(texts(values), shape, dtype, name))


def _spread(whole: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    flat_array = whole.reshape(-1)
    return np.resize(flat_array, shape) if flat_array.size == 1 else flat_array


def _as(found: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    try:
        return np.asarray(found).astype(dtype) if np.asarray(found).dtype != dtype else np.asarray(found)
    except (TypeError, ValueError, OverflowError):
        return None


def _written(text: str, found: Any, whole: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> Node:
    """Return the source's own expression, with the conversions that it needs."""
    text = text.strip()
    array = np.asarray(found)
    if array.dtype != whole.dtype:
        safe = re.fullmatch(r"(np\.[\w.]+\(.*\)|\(.*\))(\[.*\])?", text)
        text = f"{text if safe else f'({text})'}.astype({dtype})"
    if array.shape != shape:
        text = f"{text}.reshape{shape}" if len(shape) != 1 else f"{text}.reshape(-1)"
    return text


def _repeated(values: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str, name: str) -> Node | None:
    """Return a short pattern that fills the array by repetition, if there is one."""
    for period in range(2, min(LISTED, values.size // 2) + 1):
        pattern = values[:period]
        if _same(np.resize(pattern, values.shape), values):
            inner = _ramp(pattern, (period,), dtype)
            if inner is None:
                inner = _listed(texts(pattern), (period,), dtype, name)
            return Seq("np.resize(", (inner, shape_text(shape)), ")")
    run = int(np.argmax(values != values[0]))
    if run > 1 and values.size % run == 0 and _same(np.repeat(values[::run], run), values):
        heads = values[::run]
        inner = _ramp(heads, (heads.size,), dtype)
        if inner is None and heads.size <= LISTED:
            inner = _listed(texts(heads), (heads.size,), dtype, name)
        if inner is not None:
            node: Node = Seq("np.repeat(", (inner, str(run)), ")")
            return node if len(shape) == 1 else Cat((node, f".reshape{shape}"))
    return None
