"""Operator signatures: built in, declared by the user, or read from C headers.

An aclnn operator has two C functions; only the first, ``<name>GetWorkspaceSize``, varies. A ``Signature`` is that
function's parameter list without the two tail pointers (``uint64_t *workspaceSize, aclOpExecutor **executor``).
Parsing is text only: no preprocessor, no compiler. Only the standard library and ``errors`` are needed here, since
the build hook runs this module to generate ``_signatures.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Parameter", "Signature", "declare", "find", "known", "parse_header", "parse_prototypes"]

# C type without const and spaces -> kind, which decides how a Python value is converted
KINDS = {
    "aclTensor*": "tensor",
    "aclTensorList*": "tensor_list",
    "aclScalar*": "scalar",
    "aclScalarList*": "scalar_list",
    "aclIntArray*": "int_array",
    "aclFloatArray*": "float_array",
    "aclBoolArray*": "bool_array",
    "char*": "string",
    "bool": "bool",
    "float": "float",
    "double": "double",
    "int": "int",
    "int8_t": "int",
    "int16_t": "int",
    "int32_t": "int",
    "int64_t": "int",
    "uint8_t": "int",
    "uint16_t": "int",
    "uint32_t": "int",
    "uint64_t": "int",
    "aclDataType": "dtype",
    "aclFormat": "enum",
    "acldvppConvertMode": "enum",
}
TAIL = ("uint64_t *", "aclOpExecutor **")
_TAIL_TEXT = "uint64_t *workspaceSize, aclOpExecutor **executor"


class Parameter(NamedTuple):
    """One parameter of an operator: C name, C type and kind (a value of ``KINDS``)."""

    name: str
    ctype: str
    kind: str

    @property
    def optional(self) -> bool:
        """Whether the name says that null is accepted (CANN's convention: it ends in ``Optional``)."""
        return self.name.endswith("Optional")

    def __str__(self) -> str:
        return f"{self.ctype}{self.name}" if self.ctype.endswith("*") else f"{self.ctype} {self.name}"


class Signature:
    """The parameters of an operator in C order, without the two tail pointers.

    Examples
    --------
    >>> find("aclnnMoeFinalizeRoutingV2").parameters[0].name
    'expandedX'
    """

    # no dataclass: making one takes a tenth of what importing the package may take
    def __init__(self, name: str, parameters: tuple[Parameter, ...], header: str = "") -> None:
        self.__dict__.update(name=name, parameters=parameters, header=header)

    name: str
    parameters: tuple[Parameter, ...]
    header: str

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Signature is immutable: {name!r} cannot be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signature):
            return NotImplemented
        return (self.name, self.parameters, self.header) == (other.name, other.parameters, other.header)

    def __hash__(self) -> int:
        return hash((self.name, self.parameters, self.header))

    def __repr__(self) -> str:
        return f"Signature(name={self.name!r}, parameters={self.parameters!r}, header={self.header!r})"

    @property
    def stage_one(self) -> str:
        """Name of the C function that checks the arguments and reports the workspace size."""
        return f"{self.name}GetWorkspaceSize"

    def __str__(self) -> str:
        text = ", ".join([*map(str, self.parameters), _TAIL_TEXT])
        return f"aclnnStatus {self.stage_one}({text})"

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the parameters that the operator writes, by CANN's naming: ``out``, ``result``, ``…Out``, ``…Ref``.

        C types do not tell (most outputs are declared ``const aclTensor *``); exact for the built-in operators.
        """
        tensors = [p.name for p in self.parameters if p.kind.startswith("tensor")]
        written = [name for name in tensors if _is_output(name) or (self.name, name) in _ALSO_WRITTEN]
        if not written and "Inplace" in self.name:
            written = tensors[:1]
        return tuple(written)

    @cached_property
    def tensor_slots(self) -> dict[str, tuple[bool, int]]:
        """Per tensor parameter: whether it is an output, and its position among the inputs or outputs.

        Null tensors count too: it is the position that CANN's ``aclSet...TensorAddr`` takes (opbase: the IR index).
        """
        tensors = [p.name for p in self.parameters if p.kind == "tensor"]
        written = set(self.outputs)
        sides = [[n for n in tensors if n not in written], [n for n in tensors if n in written]]
        return {name: (bool(side), at) for side in (0, 1) for at, name in enumerate(sides[side])}

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each parameter, a value of ``KINDS``."""
        return tuple(p.kind for p in self.parameters)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Put positional and named arguments into C order; what is left out is ``None`` (a null pointer).

        A name may leave out its ``Optional`` suffix.

        Raises
        ------
        TypeError
            Too many arguments, an unknown or repeated name, or a missing one that has no null value.
        """
        parameters = self.parameters
        if len(args) == len(parameters) and not kwargs:
            return list(args)
        if len(args) > len(parameters):
            raise TypeError(
                f"{self.name} takes {len(parameters)} arguments, {len(args)} were given\n  C signature: {self}"
            )
        values = [*args] + [_MISSING] * (len(parameters) - len(args))
        unknown = []
        for key, value in kwargs.items():
            index = self.indices.get(key)
            if index is None:
                unknown.append(repr(key))
            elif values[index] is not _MISSING:
                raise TypeError(f"{self.name}: argument {key!r} was given twice\n  C signature: {self}")
            else:
                values[index] = value
        if unknown:
            raise TypeError(f"{self.name} has no argument named {', '.join(unknown)}\n  C signature: {self}")
        for index, value in enumerate(values):
            if value is _MISSING:
                parameter = parameters[index]
                if not parameter.ctype.endswith("*"):
                    raise TypeError(
                        f"{self.name}: argument {parameter.name!r} ({parameter.ctype}) is missing\n"
                        f"  C signature: {self}"
                    )
                values[index] = None
        return values

    @cached_property
    def indices(self) -> dict[str, int]:
        """Position of each parameter by its name, with and without its ``Optional`` suffix."""
        short = {p.name.removesuffix("Optional"): i for i, p in enumerate(self.parameters)}
        return {**short, **{p.name: i for i, p in enumerate(self.parameters)}}


_MISSING: Any = object()


# outputs of built-in operators that their names do not tell
_ALSO_WRITTEN = {("aclnnMaxDim", "indices"), ("aclnnMinDim", "indices")}


def _is_output(name: str) -> bool:
    return re.search(r"(^out|^result|^gradInput|Out|Ref)(Optional)?\d*$", name) is not None


# comments go, strings become empty (deprecation texts hold names, commas and parentheses)
_NOISE = r'(?s)//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
_DIRECTIVE = r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"
_STAGE_ONE = r"\b([A-Za-z_]\w*)GetWorkspaceSize\s*\("


def _normalise(declaration: str) -> tuple[str, str]:
    """Split ``const aclTensor* x`` into its C type (``const aclTensor *``) and name."""
    match = re.fullmatch(r"\s*(.+?)\s*\b([A-Za-z_]\w*)\s*", declaration, re.DOTALL)
    if match is None:
        raise ValueError(f"cannot read the parameter {declaration.strip()!r}")
    words = " ".join(match.group(1).replace("*", " * ").split())
    stars = words.count("*")
    words = words.replace("*", "").strip()
    if not stars:
        words = re.sub(r"\bconst\b", "", words)
    ctype = " ".join(words.split())
    if not ctype:
        raise ValueError(f"parameter {declaration.strip()!r} has no type or no name")
    if not re.fullmatch(r"[A-Za-z_][\w ]*", ctype):  # a default value, an array, an attribute
        raise ValueError(f"cannot read the parameter {declaration.strip()!r}")
    return (f"{ctype} {'*' * stars}" if stars else ctype), match.group(2)


def _parameter(declaration: str) -> Parameter:
    ctype, name = _normalise(declaration)
    key = re.sub(r"\bconst\b|\s", "", ctype)
    return Parameter(name, ctype, KINDS.get(key, "unknown"))


def _closing(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position
    raise ValueError("the parameter list is not closed")


def _parameters(text: str, start: int) -> tuple[Parameter, ...]:
    """Read the parameter list whose first character is at ``start``, and check and drop its tail."""
    parameters = [_parameter(part) for part in text[start : _closing(text, start - 1)].split(",")]
    if tuple(p.ctype for p in parameters[-2:]) != TAIL:
        raise ValueError(f"does not end in ({_TAIL_TEXT})")
    return tuple(parameters[:-2])


def parse_prototypes(text: str, header: str = "", problems: list[str] | None = None) -> Iterator[Signature]:
    """Yield the signature of every ``…GetWorkspaceSize`` prototype in a C text.

    Parameters
    ----------
    text, header
        C source, and where it comes from.
    problems
        Collects prototypes that cannot be read, or that do not end in the two tail pointers; None raises instead.

    Raises
    ------
    ValueError
        A prototype cannot be read and ``problems`` is None.

    Examples
    --------
    >>> text = "int aclnnXGetWorkspaceSize(const aclTensor *x, uint64_t *workspaceSize, aclOpExecutor **executor);"
    >>> [str(p) for p in next(parse_prototypes(text)).parameters]
    ['const aclTensor *x']
    """
    text = re.sub(_NOISE, lambda match: '""' if match.group().startswith('"') else " ", text)
    text = re.sub(_DIRECTIVE, "", text)
    for match in re.finditer(_STAGE_ONE, text):
        name = match.group(1)
        try:
            yield Signature(name, _parameters(text, match.end()), header)
        except ValueError as error:
            message = f"{name}GetWorkspaceSize: {error}"
            if problems is None:
                raise ValueError(message) from None
            problems.append(message)


def parse_header(path: str | Path) -> list[Signature]:
    """Return the signatures of all two-stage operators that a C header declares.

    Parameters
    ----------
    path
        A header file; bytes that are not UTF-8 are replaced (they occur in comments).

    Raises
    ------
    ValueError
        A prototype in it cannot be read; the message names the file and the function.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".h") as file:
    ...     _ = file.write("int aclnnXGetWorkspaceSize(int64_t n, uint64_t *workspaceSize, aclOpExecutor **executor);")
    ...     file.flush()
    ...     print(parse_header(file.name)[0].parameters[0])
    int64_t n
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        return list(parse_prototypes(text, str(path)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


_builtin: dict[str, Signature] = {}
_declared: dict[str, Signature] = {}


def _builtins() -> dict[str, Signature]:
    if not _builtin:
        from ._signatures import SIGNATURES

        for name, header, parameters in SIGNATURES:
            rows = tuple(Parameter(n, t, KINDS[re.sub(r"\bconst\b|\s", "", t)]) for n, t in parameters)
            _builtin[name] = Signature(name, rows, header)
    return _builtin


def declare(prototype: str) -> Signature:
    """Add operators from the text of their ``…GetWorkspaceSize`` prototypes; return the first.

    A declaration takes precedence over a built-in signature of the same name.

    Raises
    ------
    ValueError
        No prototype in the text, or one that a C compiler would refuse.

    Examples
    --------
    >>> declare("aclnnStatus aclnnMineGetWorkspaceSize(const aclTensor *x, const aclTensor *out,"
    ...         " uint64_t *workspaceSize, aclOpExecutor **executor);").name
    'aclnnMine'
    """
    found = list(parse_prototypes(prototype, "declared"))
    if not found:
        raise ValueError("declare() needs the prototype of a ...GetWorkspaceSize function")
    for signature in found:
        pointer_type(signature)  # cffi is the judge that it is well-formed
        names = [parameter.name for parameter in signature.parameters]
        if len(set(names)) < len(names):
            raise ValueError(f"{signature.stage_one}: two parameters have the same name: {', '.join(names)}")
    _declared.update({signature.name: signature for signature in found})
    return found[0]


def pointer_type(signature: Signature) -> Any:
    """Return the cffi function-pointer type of the operator's first stage.

    Raises
    ------
    ValueError
        cffi cannot read the prototype.
    """
    from ._ffi import ffi

    # C enums are ints; one that only another package declares (acldvppConvertMode) has no name here
    ctypes = ["int" if p.kind == "enum" else p.ctype for p in signature.parameters]
    text = ", ".join([*ctypes, *TAIL])
    try:
        return ffi.typeof(f"aclnnStatus(*)({text})")
    except Exception as error:
        raise ValueError(f"{signature.stage_one}: {error}") from None


def known() -> dict[str, Signature]:
    """Return every signature at hand by operator name: declared ones over built-in ones."""
    return {**_builtins(), **_declared}


def builtin(name: str) -> Signature | None:
    """Return the signature that ``cdefs/ops`` declares, whatever ``declare`` has added."""
    return _builtins().get(name)


def is_builtin(signature: Signature) -> bool:
    """Whether the signature comes from ``cdefs/ops``, whose parameter names tell outputs from inputs for certain."""
    return _builtins().get(signature.name) is signature


def find(name: str) -> Signature | None:
    """Return the signature of an operator, or None when no declaration of it is at hand.

    Examples
    --------
    >>> find("aclnnNoSuchOperator") is None
    True
    """
    return _declared.get(name) or _builtin.get(name) or _builtins().get(name)
