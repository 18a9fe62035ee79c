"""What every Pythonic operator does: check, allocate outputs, run, hand back.

The checks are the reference's ``validate`` (metadata only) on every backend, before any C call: released CANN
versions check little and some crash on bad input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes, errors
from ..arguments import convert
from ..arrays import Family, family_of, overlap
from ..backends import PRODUCTS, Backend, ReferenceBackend, reference_operators, resolve
from ..executor import Executor


class Meta(NamedTuple):
    """Shape and dtype of a tensor that need not exist yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Output(NamedTuple):
    """One output: its C parameter, what it looks like, and whether the caller sees it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    returned: bool = True


def dim(tensor: Any, axis: int) -> int:
    """Size of an axis, 0 where the tensor is absent or of lower rank (validate then says so)."""
    return tensor.shape[axis] if tensor is not None and len(tensor.shape) > axis else 0


class OperatorCall:
    """One call of a first-class operator on one backend."""

    def __init__(self, api: str, backend: Backend | str | None, stream: Any, **arguments: Any) -> None:
        self.api = api
        self.backend = resolve(backend, arguments.values())
        self.stream = stream
        if self.backend.product not in PRODUCTS:
            raise errors.unsupported(api, f"{api} exists for {', '.join(PRODUCTS)}; this is {self.backend.product}")
        signature = self.backend.signature(api)
        names = [parameter.name for parameter in signature.parameters]
        values = convert(signature, signature.bind((), arguments))
        self.arguments: dict[str, Any] = dict(zip(names, values, strict=True))
        self.tensors = {
            p.name: self.arguments[p.name]
            for p in signature.parameters
            if p.kind == "tensor" and self.arguments[p.name] is not None
        }
        self.family: Family = family_of(api, self.tensors)
        if isinstance(self.backend, ReferenceBackend) and not self.family.on_host:
            raise TypeError(f"{api}: the reference computes on arrays of the host, and these are on a device")
        self.reference = reference_operators()[api]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def validate(self, *outputs: Output) -> None:
        """Raise what a call with these outputs would be refused with."""
        placeholders = {o.name: Meta(tuple(max(d, 0) for d in o.shape), o.dtype) for o in outputs}
        self.reference.validate({**self.arguments, **placeholders}, self.backend.product)

    def allocate(self, out: Any, *outputs: Output, validated: bool = False) -> list[Any]:
        """Validate, then return the output arrays: the caller's, or zero-filled new ones."""
        if not validated:
            self.validate(*outputs)
        given = self._given(out, outputs)
        arrays: list[Any] = []
        for output, array in zip(outputs, given, strict=True):
            if array is None:
                array = self.family.zeros(output.shape, output.dtype, self.backend, self.stream)
            else:
                self._check_out(output, array, arrays)
            arrays.append(array)
        return arrays

    def _given(self, out: Any, outputs: tuple[Output, ...]) -> list[Any]:
        if out is None:
            return [None] * len(outputs)
        given = list(out) if isinstance(out, tuple) else [out]
        if len(given) != len(outputs):
            names = ", ".join(o.name for o in outputs)
            raise TypeError(f"{self.api}: out takes a tuple of {len(outputs)} ({names}), None to allocate")
        for output, array in zip(outputs, given, strict=True):
            if array is not None and not output.returned:
                raise ValueError(f"{self.api}: out for {output.name!r} must be None: this call has no such result")
        return [None if a is None else self.family.convert(f"{self.api}: out", a) for a in given]

    def _check_out(self, output: Output, array: Any, earlier: list[Any]) -> None:
        where = f"{self.api}: out for {output.name!r}"
        if tuple(array.shape) != output.shape:
            raise ValueError(f"{where} has shape {tuple(array.shape)}, expected {output.shape}")
        if array.dtype != output.dtype:
            raise TypeError(f"{where} has dtype {dtypes.name(array.dtype)}, expected {dtypes.name(output.dtype)}")
        if not self.family.writable(array):
            raise ValueError(f"{where} is read-only")
        if not self.family.contiguous(array):
            raise ValueError(f"{where} is not C-contiguous")
        for name, tensor in self.tensors.items():
            if overlap(array, tensor):
                raise ValueError(f"{where} overlaps the input {name!r}")
        if any(overlap(array, other) for other in earlier):
            raise ValueError(f"{where} overlaps another output")

    def check_domain(self, name: str, low: int, high: int) -> None:
        """Refuse the first entry of an index tensor outside ``[low, high)``; reads the data (synchronises)."""
        values = self.family.host(self.arguments[name])
        bad = (values < low) | (values >= high)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            position = where[0] if len(where) == 1 else where
            raise errors.IndexOutOfRangeError(
                161002,
                self.api,
                detail=f"{name}[{position}] is {int(values[where])}, expected {low} <= index < {high}",
            )

    def check_experts(self, bias: str, experts: str, requested: bool) -> None:
        """Refuse expert numbers that would read outside bias: always on the host, on request for device arrays."""
        if self.arguments[bias] is not None and (requested or self.family.on_host):
            self.check_domain(experts, 0, dim(self.arguments[bias], 0))

    def run(self, arrays: Mapping[str, Any], **changes: Any) -> None:
        """Run with these outputs; ``changes`` replace arguments. Nothing to write means no C call."""
        if all(0 in array.shape for array in arrays.values()):
            return
        arguments = {**self.arguments, **changes, **arrays}
        if isinstance(self.backend, ReferenceBackend):
            self.reference.compute(arguments, self.backend.product)
            return
        with Executor(self.api, backend=self.backend, stream=self.stream, **arguments) as executor:
            executor.run()
