"""C sources for operators that the emulator does not compute: their declarations, and entry points that record."""

from __future__ import annotations

from collections.abc import Iterable

from ..signatures import Signature

__all__ = ["declarations", "entry_points"]

# kind of a parameter -> its letter and the C type that it travels in, see aclnn_emulator.h
_LETTERS = {
    "tensor": "t", "tensor_list": "l", "scalar": "s", "scalar_list": "S", "int_array": "I", "float_array": "F",
    "bool_array": "B", "string": "c", "float": "d", "double": "d",
}  # fmt: skip
_STAGE_TWO = "(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream)"


def declarations(signatures: Iterable[Signature]) -> str:
    """Return a C++ header that declares both stages of operators.

    Examples
    --------
    >>> from aclnn_py.signatures import find
    >>> "aclnnStatus aclnnNegGetWorkspaceSize(const aclTensor *self" in declarations([find("aclnnNeg")])
    True
    """
    # CANN's own headers bring these along, and samples rely on it
    lines = ["#pragma once", "#include <array>", "#include <cstdint>", "#include <string>"]
    lines += ["#include <aclnn/aclnn_base.h>", "#include <aclnn/weight_size.h>", "", 'extern "C" {']
    for signature in signatures:
        lines += [f"{_prototype(signature)};", f"aclnnStatus {signature.name}{_STAGE_TWO};"]
    return "\n".join([*lines, "}", ""])


def entry_points(signatures: Iterable[Signature]) -> str:
    """Return C++ that defines both stages of operators: a call is recorded, its outputs are left as they are.

    Raises
    ------
    ValueError
        A parameter has a type that cannot be recorded.
    """
    lines = ["#include <aclnn/aclnn_base.h>", "#include <aclnn_emulator.h>", "", 'extern "C" {']
    for signature in signatures:
        names = ",".join(p.name for p in signature.parameters)
        letters = "".join(_LETTERS.get(p.kind, "i") for p in signature.parameters)
        values = "".join(
            f", {_passed(p.name, letter)}" for p, letter in zip(signature.parameters, letters, strict=True)
        )
        unknown = [p for p in signature.parameters if p.kind == "unknown"]
        if unknown:
            raise ValueError(f"{signature.stage_one}: the type of {str(unknown[0])!r} cannot be recorded")
        lines += [
            f"{_prototype(signature)} {{",
            f'    return aclnnEmulatorStageOne("{signature.name}", "{names}", "{letters}", '
            f"workspaceSize, executor{values});",
            "}",
            f"aclnnStatus {signature.name}{_STAGE_TWO} {{",
            f'    return aclnnEmulatorStageTwo("{signature.name}", workspace, workspaceSize, executor, stream);',
            "}",
        ]
    return "\n".join([*lines, "}", ""])


def _prototype(signature: Signature) -> str:
    # an enum that only another package declares travels as an int
    text = str(signature)
    return text.replace("acldvppConvertMode ", "int ")


def _passed(name: str, letter: str) -> str:
    return {"i": f"static_cast<long long>({name})", "d": f"static_cast<double>({name})"}.get(letter, name)
