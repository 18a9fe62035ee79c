"""A stand-in for torch_npu in a process of its own: tensors whose memory is the emulator's, and one stream.

It shows what the package asks of torch and in which order; that torch_npu answers so is another test's business.
"""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from typing import Any

import numpy as np
import torch

import aclnn_py
from aclnn_py.interop import tensors

backend: Any = aclnn_py.get_backend("emulator")
runtime = backend.runtime
api = runtime.api
log: list[str] = []
private: dict[int, int] = {}  # id of a tensor -> storage format


class Queue:
    """torch's view of a stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    @property
    def npu_stream(self) -> int:
        """Reading it drains torch's task queue."""
        log.append("npu_stream")
        return int(self.stream.__aclrt_stream__())


main, side = Queue(backend.create_stream()), Queue(backend.create_stream())
current = [main]


class Place:
    """What torch.device says of an NPU, which this torch does not know."""

    type = "npu"

    def __init__(self, index: int) -> None:
        self.index = index

    def __str__(self) -> str:
        return f"npu:{self.index}"


class Tensor(torch.Tensor):
    """Metadata of a CPU tensor over device memory; work is done at once on the current stream."""

    buffer: Any
    key: Any

    @property
    def device(self) -> Any:
        return Place(self.buffer.device)

    def untyped_storage(self) -> Any:
        return types.SimpleNamespace(data_ptr=lambda: self.buffer.address, nbytes=lambda: self.buffer.nbytes)

    def data_ptr(self) -> int:
        return int(self.buffer.address + self.storage_offset() * self.element_size())

    def detach(self) -> Tensor:
        return self

    def __getitem__(self, key: Any) -> Tensor:
        return dress(self.as_subclass(torch.Tensor)[key], self.buffer, self.key)

    def t(self) -> Tensor:
        return dress(self.as_subclass(torch.Tensor).t(), self.buffer, self.key)

    def _array(self) -> Any:
        dtype = tensors.numpy_dtype(self.dtype)
        return aclnn_py.DeviceArray(self.buffer, tuple(self.shape), dtype, self.stride(), self.storage_offset())

    def cpu(self) -> torch.Tensor:
        current[0].stream.synchronize()
        return torch.from_numpy(self._array().numpy(current[0].stream).copy())

    def zero_(self) -> Tensor:
        log.append("zero_")
        return self.copy_(torch.zeros(self.shape, dtype=self.dtype))

    def copy_(self, source: Any) -> Tensor:
        host = source.cpu() if isinstance(source, Tensor) else source
        flat = np.empty(self.buffer.nbytes // self.element_size(), tensors.numpy_dtype(self.dtype))
        current[0].stream.synchronize()
        self.buffer.copy_to_host(flat)
        steps = [step * self.element_size() for step in self.stride()]
        np.lib.stride_tricks.as_strided(flat[self.storage_offset() :], self.shape, steps)[...] = host.numpy()
        self.buffer.copy_from_host(flat)
        return self

    def record_stream(self, stream: Any) -> None:
        log.append(f"record_stream {'side' if stream is side else 'external'}")


class Key:
    """What the tensors over one piece of memory share: it is free when the last one goes."""


def dress(tensor: torch.Tensor, buffer: Any, key: Key | None = None) -> Tensor:
    made: Tensor = torch.Tensor._make_subclass(Tensor, tensor)
    made.buffer, made.key = buffer, key or Key()
    return made


buffers: list[Any] = []
_free: dict[tuple[int, int], list[Any]] = {}


def to_npu(tensor: torch.Tensor) -> Tensor:
    """A copy on the device; memory comes from a cache of the current stream, as torch's does."""
    nbytes = tensor.numel() * tensor.element_size()
    free = _free.setdefault((id(current[0]), nbytes), [])
    if not free:
        buffers.append(aclnn_py.DeviceBuffer(runtime, nbytes))
        free.append(buffers[-1])
    made = dress(tensor.clone(), free.pop())
    weakref.finalize(made.key, free.append, made.buffer)
    return made.copy_(tensor)


def _allocating(make: Any, name: str) -> Any:
    def allocate(*shape: Any, device: Any = None, **kwargs: Any) -> Any:
        if not str(device).startswith("npu"):
            return make(*shape, device=device, **kwargs)
        log.append(f"{name} on {'main' if current[0] is main else 'side' if current[0] is side else 'external'}")
        return to_npu(make(*shape, **kwargs))

    return allocate


@contextlib.contextmanager
def _stream(stream: Any) -> Any:
    before, current[0] = current[0], stream
    try:
        yield
    finally:
        current[0] = before


def _external(handle: int, device: Any = None) -> Queue:
    return Queue(runtime.stream_of(handle, device))


def install() -> None:
    """Put torch_npu and torch.npu in their places."""
    module = types.ModuleType("torch_npu")
    module.get_npu_format = lambda tensor: private.get(id(tensor), 2)  # type: ignore[attr-defined]
    sys.modules["torch_npu"] = module
    torch.npu = types.SimpleNamespace(  # type: ignore[attr-defined]
        init=lambda: log.append("init"),
        current_device=lambda: runtime.current_device() or 0,
        set_device=lambda index: log.append("set_device") or api.aclrtSetDevice(index),
        current_stream=lambda device=None: current[0],
        stream=_stream,
        ExternalStream=_external,
    )
    torch.empty = _allocating(torch.empty, "empty")
    torch.zeros = _allocating(torch.zeros, "zeros")


install()
