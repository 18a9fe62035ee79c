"""How arguments, labels and tolerances are spelled in a script."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .. import dtypes
from .literals import literal, scalar_value
from .model import Attribute, Scalar
from .script import Node, Seq, Slot, flat

__all__ = ["all_exact", "attribute", "exact", "label", "quoted", "scalar", "short"]


def quoted(text: str) -> str:
    """Return a string literal in double quotes."""
    shown = repr(text)
    return shown if '"' in text else '"' + shown[1:-1].replace("\\'", "'") + '"'


def label(text: str) -> str:
    """Return what a format string says before the first number."""
    return re.split(r"\[?%", text, maxsplit=1)[0].strip().rstrip(":=").removesuffix(" is").strip()


def exact(text: str, value: Any) -> bool:
    """Whether the text gives the value itself, not one that rounds to it."""
    found = scalar_value(text)
    return found is not None and bool(np.asarray(found) == value)


def all_exact(node: Node, values: np.ndarray[Any, Any]) -> bool:
    """Whether the texts of a list give the values themselves."""
    found = scalar_value(flat(node))
    return found is not None and bool(np.array_equal(np.asarray(found).reshape(-1), values))


def short(number: float) -> str:
    """Return a tolerance."""
    return re.sub(r"e([+-])0", r"e\1", f"{number:g}")


def attribute(value: Attribute, kind: str) -> str:
    """Return the Python spelling of a value: names for dtypes and truth, not their numbers."""
    if isinstance(value.value, str):
        return quoted(value.value)
    if kind == "bool" and value.value in (0, 1):
        return str(bool(value.value))
    if kind == "dtype" and isinstance(value.value, int):
        try:
            return f'"{dtypes.name(dtypes.from_acl(value.value))}"'
        except TypeError:  # no NumPy type has that number
            return str(value.value)
    text = literal(value.text)
    return repr(value.value) if scalar_value(text) is None else text


def scalar(value: Scalar, name: str) -> Node:
    """Return a number where the binding makes the same aclScalar of it, else an explicit scalar."""
    text = literal(value.text)
    given = scalar_value(text)
    kind = dtypes.parse(value.dtype)
    with np.errstate(all="ignore"):
        same = given is not None and np.asarray(given).astype(kind) == np.asarray(value.value).astype(kind)
    if not same:
        given = value.value.item() if isinstance(value.value, np.generic) else value.value
        text = _spelled(given)
    usual = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
    if usual.get(type(given)) == value.dtype:
        return Slot(text, name)
    if kind.kind in "iu" and not isinstance(given, int):
        text = str(int(given))
    return Seq("aclnn_py.Scalar(", (Slot(text, name), Slot(f'"{value.dtype}"', f"{name}_dtype")), ")")


def _spelled(number: Any) -> str:
    if isinstance(number, float) and not np.isfinite(number):
        return "np.nan" if np.isnan(number) else "np.inf" if number > 0 else "-np.inf"
    return repr(number)
