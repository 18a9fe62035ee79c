"""What the acl and aclrt functions do to a trace: memory, copies, handles. Every call succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..model import SampleError
from . import names
from .arithmetic import bit_cast, cast
from .convert import decay, load, target
from .functions import poison
from .host_memory import copy_memory, raw_memory
from .machine import FUNCTIONS, Machine, library
from .syntax import Node
from .tensors import Snapshot, numbers_at, snapshot
from .types import CType
from .values import Array, Handle, Null, Num, Ptr, Text, Unk

__all__ = ["store"]

_OK = Num(0, "int32")


def store(pointer: Any, value: Any) -> None:
    """Write through an out parameter."""
    place = target(pointer)
    if place is not None:
        place[0].set(place[1], value)


def _device(pointer: Any) -> Handle | None:
    pointer = decay(pointer)
    return pointer.block if isinstance(pointer, Ptr) and isinstance(pointer.block, Handle) else None


def _write(memory: Handle, shot: Snapshot) -> None:
    """Put bytes into device memory; what they replace whole is dropped."""
    data = memory.data
    if shot.nbytes is not None:
        data["writes"] = [
            w
            for w in data["writes"]
            if w.nbytes is None or w.offset < shot.offset or w.offset + w.nbytes > shot.offset + shot.nbytes
        ]
        if shot.offset == 0 and shot.nbytes == data["nbytes"]:
            data["touched"] = False
            data["lost"] = None
    data["writes"].append(shot)
    data["count"] = data.get("count", 0) + 1


@library("aclInit", "aclFinalize", "aclrtSetDevice", "aclrtResetDevice", "aclrtDestroyStream", "aclrtSynchronizeStream",
         "aclrtSynchronizeStreamWithTimeout", "aclrtSetCurrentContext", "aclrtDestroyContext", "aclrtFree",
         "aclrtFreeHost",
         "aclDestroyTensor", "aclDestroyScalar", "aclDestroyIntArray", "aclDestroyFloatArray", "aclDestroyBoolArray",
         "aclDestroyTensorList", "aclDestroyScalarList", "aclDestroyAclOpExecutor", "aclrtSynchronizeDevice",
         "aclrtDestroyStreamForce", "aclnnInit", "aclnnFinalize", "aclrtDestroyEvent",
         "aclrtRecordEvent", "aclrtResetDeviceForce", "aclDestroyOpExecutor", "aclrtSynchronizeEvent",
         "aclrtSetDeviceResLimit", "aclrtSetOpExecuteTimeOut", "HcclCommDestroy", "HcclCommInitAll",
         "HcclCommInitClusterInfo", "HcclCommInitClusterInfoConfig", "HcclGetCommName", "HcclCommConfigInit",
         "aclrtResetEvent", "aclrtStreamWaitEvent", "aclrtSetOpWaitTimeout")  # fmt: skip
def _accepted(m: Machine, node: Node, values: list[Any]) -> Any:
    if node["function"].text == "HcclGetCommName":
        poison(m, values[1], m.unk("the name of an HCCL communicator", node))
    return _OK


@library("aclSetAclOpExecutorRepeatable")
def _repeatable(m: Machine, node: Node, values: list[Any]) -> Any:
    executor = decay(values[0])
    if isinstance(executor, Handle):
        executor.data["repeatable"] = True
    return _OK


@library("aclrtCreateStream", "aclrtCreateStreamWithConfig", "aclrtCreateEvent", "aclrtCreateEventWithFlag")
def _stream(m: Machine, node: Node, values: list[Any]) -> Any:
    store(values[0], Handle("stream", node.line))
    return _OK


@library("aclrtCreateContext", "aclrtGetCurrentContext")
def _context(m: Machine, node: Node, values: list[Any]) -> Any:
    store(values[0], Handle("context", node.line))
    return _OK


@library("aclrtGetDeviceCount", "aclrtGetDevice")
def _devices(m: Machine, node: Node, values: list[Any]) -> Any:
    store(values[0], Num(1 if "Count" in node["function"].text else 0))
    return _OK


@library("aclrtGetSocName")
def _soc(m: Machine, node: Node, values: list[Any]) -> Any:
    m.note("the sample asks for the product; what it does on an Ascend950 is followed", node.line)
    return Text("Ascend950PR_9599")


@library("aclGetRecentErrMsg")
def _message(m: Machine, node: Node, values: list[Any]) -> Any:
    return Text("")


@library("aclDataTypeSize")
def _type_size(m: Machine, node: Node, values: list[Any]) -> Any:
    code = values[0].v if isinstance(values[0], Num) else None
    if code not in names.DTYPES:
        return m.unk("the size of a data type", node)
    bits = names.item_bits(code)
    return Num(8 if code in (38, 39, 40, 41) else max(bits // 8, 1 if bits else 0), "uint64")


@library("aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocCached")
def _malloc(m: Machine, node: Node, values: list[Any]) -> Any:
    count = values[1] if len(values) > 1 else m.unk("a size", node)
    nbytes = int(count.v) if isinstance(count, Num) else None
    memory = Handle("device", node.line, nbytes=nbytes, writes=[], tensors=[], touched=False)
    store(values[0], Ptr(memory, 0, CType("void")))
    return _OK


@library("aclrtMallocHost")
def _malloc_host(m: Machine, node: Node, values: list[Any]) -> Any:
    store(values[0], raw_memory(m, values[1], node))
    return _OK


@library("aclrtMemset", "aclrtMemsetAsync")
def _memset(m: Machine, node: Node, values: list[Any]) -> Any:
    memory = _device(values[0])
    value, count = values[2], values[3]
    if memory is None:
        return FUNCTIONS["memset"](m, node, [values[0], value, count]) and _OK
    if isinstance(value, Num) and isinstance(count, Num) and count.v < 1 << 31:
        array = Array(CType("uint8"), int(count.v))
        array.data[:] = int(value.v) & 255
        array.fill = str(int(value.v) & 255) if value.v else "0"
        shot = snapshot(m, Ptr(array, 0), count, node.line)
        shot.offset = decay(values[0]).at
        _write(memory, shot)
    else:
        memory.data["lost"] = m.unk("memory set to something unknown", node)
    return _OK


@library("aclrtMemcpy", "aclrtMemcpyAsync")
def _memcpy(m: Machine, node: Node, values: list[Any]) -> Any:
    if len(values) < 5:
        raise SampleError(f"aclrtMemcpy takes 5 arguments, {len(values)} were given", m.file, node.line, 1)
    to, limit, source, count = values[:4]
    dst, src = _device(to), _device(source)
    if dst is not None and src is None:
        shot = snapshot(m, source, count, node.line)
        if isinstance(limit, Num) and isinstance(count, Num) and count.v > limit.v:
            m.note(f"{count.v} bytes are copied where {limit.v} are allowed", node.line)
        if (
            shot.nbytes is not None
            and dst.data["nbytes"] is not None
            and shot.nbytes > dst.data["nbytes"] - decay(to).at
        ):
            m.note(f"{shot.nbytes} bytes are copied into a device buffer of {dst.data['nbytes']}", node.line)
        shot.offset = decay(to).at
        _write(dst, shot)
    elif src is not None and dst is None:
        m.extra["read_back"](m, to, source, count, node)
    elif src is not None and dst is not None:
        if src.data["touched"]:
            dst.data["lost"] = m.unk("a copy of what the device computed", node)
        else:
            for shot in src.data["writes"]:
                _write(dst, shot)
            dst.data["lost"] = src.data.get("lost")
    elif isinstance(decay(to), Ptr):
        copy_memory(m, to, source, count, node.line)
    return _OK


# handles


def _dims(pointer: Any, count: Any) -> tuple[int, ...] | Unk:
    if not isinstance(count, Num):
        return count if isinstance(count, Unk) else Unk("a number of dimensions")
    if count.v > 64:
        return Unk("more than 64 dimensions")
    found = numbers_at(pointer, int(count.v)) if count.v else []
    for item in found:
        if not isinstance(item, Num):
            return item if isinstance(item, Unk) else Unk("a dimension")
    return tuple(int(item.v) for item in found)


@library("aclInitTensor")
def _init_tensor(m: Machine, node: Node, values: list[Any]) -> Any:
    handle = decay(values[0])
    made = _tensor(m, node, values[1:])
    if isinstance(handle, Handle):
        handle.data = {**made.data, "name": handle.data.get("name")}
    return _OK


@library("aclnnCalculateMatmulWeightSize", "aclnnCalculateMatmulWeightSizeV2")
def _weight_size(m: Machine, node: Node, values: list[Any]) -> Any:
    """Elements of a matrix in the blocked format: blocks of 16 rows, and of 16 columns for halves, 32 for bytes."""
    shape = values[0].data.get("items") if isinstance(values[0], Handle) else None
    code = values[1] if len(values) > 2 else Num(1)
    if not shape or len(shape) < 2 or not all(isinstance(s, Num) for s in shape) or not isinstance(code, Num):
        poison(m, values[-1], m.unk("the size of a blocked weight", node))
        return _OK
    count = 1
    for i, size in enumerate(shape):
        unit = 1 if i + 2 < len(shape) else 16 if i + 2 == len(shape) or code.v in (1, 27) else 32
        count *= -(-int(size.v) // unit) * unit
    store(values[-1], Num(count, "uint64"))
    return _OK


@library("aclCreateTensor")
def _tensor(m: Machine, node: Node, values: list[Any]) -> Any:
    if len(values) != 9:
        column = node.start - node.source.bytes.rfind(b"\n", 0, node.start)
        raise SampleError(f"aclCreateTensor takes 9 arguments, {len(values)} were given", m.file, node.line, column)
    shape, storage = _dims(values[0], values[1]), _dims(values[6], values[7])
    strides: Any = None if isinstance(decay(values[3]), Null) else _dims(values[3], values[1])
    handle = Handle("tensor", node.line)
    if isinstance(storage, Unk) and isinstance(decay(values[6]), Null):
        storage = ()
    bad = [p for p in (shape, storage, strides, values[2], values[4], values[5]) if isinstance(p, Unk)]
    code = values[2].v if isinstance(values[2], Num) else None
    name = names.dtype_name(code) if code is not None else None
    memory = decay(values[8])
    if bad or name is None:
        handle.data["why"] = bad[0] if bad else Unk(f"data type {code}", node.line)
        return handle
    assert isinstance(shape, tuple)
    assert isinstance(storage, tuple)
    pointer = memory if isinstance(memory, Ptr) and isinstance(memory.block, Handle) else None
    form = names.format_name(values[5].v) if isinstance(values[5], Num) else None
    contiguous = _contiguous(shape)
    handle.data.update(
        shape=shape,
        dtype=name,
        code=code,
        strides=None if strides is None or strides == contiguous or 0 in shape else strides,
        offset=int(values[4].v),
        format=form or "ND",
        storage=None if storage == shape or (not storage and not shape) else storage,
        memory=pointer.block if pointer is not None else memory,
        at=pointer.at if pointer is not None else 0,
    )
    if form is None:
        handle.data["why"] = Unk("a format", node.line)
    if pointer is not None:
        pointer.block.data["tensors"].append(handle)
    return handle


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


_CARRIERS = {0: "float32", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32", 9: "int64",
             10: "uint64", 11: "float64", 12: "bool", 1: "float16", 27: "bfloat16"}  # fmt: skip


@library("aclCreateScalar")
def _scalar(m: Machine, node: Node, values: list[Any]) -> Any:
    handle = Handle("scalar", node.line)
    code = values[1].v if isinstance(values[1], Num) else None
    value = load(values[0])
    carrier = _CARRIERS.get(code) if code is not None else None
    dtype = names.dtype_name(code) if code is not None else None
    if isinstance(value, Num) and carrier is not None and dtype is not None:
        size = {"bool": 1}.get(value.t)
        if value.t == carrier or (carrier == "bool" and size == 1):
            pass
        elif {value.t, carrier} <= {"int8", "uint8", "bool"}:
            value = cast(value, carrier)
        else:
            if carrier not in ("float16", "bfloat16") or value.t not in ("uint16", "int16"):
                m.note(f"a scalar of {dtype} is read from a variable of {value.t}: its raw bytes count", node.line)
            text = value.text
            value = bit_cast(value, carrier)
            if isinstance(value, Num):
                value.text = None if text is None or value.v != 0 else "0"
    if not isinstance(value, Num) or carrier is None:
        handle.data["why"] = value if isinstance(value, Unk) else m.unk("a scalar that is not known", node)
    handle.data.update(value=value, dtype=dtype)
    return handle


def _array(kind: str) -> Callable[[Machine, Node, list[Any]], Any]:
    def create(m: Machine, node: Node, values: list[Any]) -> Any:
        handle = Handle(kind, node.line)
        count = values[1]
        if not isinstance(count, Num):
            handle.data["why"] = m.unk("the length of an array", node)
            return handle
        handle.data["items"] = numbers_at(values[0], int(count.v)) if count.v else []
        unknown = next((i for i in handle.data["items"] if not isinstance(i, Num)), None)
        if unknown is not None:
            if isinstance(unknown, Unk) and "does not exist" in unknown.reason:
                m.note(f"an array of {count.v} items is made from fewer host values", node.line)
            handle.data["why"] = unknown if isinstance(unknown, Unk) else m.unk("an item of an array", node)
        return handle

    return create


for _name, _kind in (
    ("aclCreateIntArray", "int_array"),
    ("aclCreateFloatArray", "float_array"),
    ("aclCreateBoolArray", "bool_array"),
):
    FUNCTIONS[_name] = _array(_kind)


@library("aclCreateTensorList", "aclCreateScalarList")
def _list(m: Machine, node: Node, values: list[Any]) -> Any:
    kind = "tensor_list" if "Tensor" in node["function"].text else "scalar_list"
    handle = Handle(kind, node.line)
    if not isinstance(values[1], Num):
        handle.data["why"] = m.unk("the length of a list", node)
        return handle
    handle.data["items"] = [decay(v) for v in numbers_at(values[0], int(values[1].v))]
    return handle


@library("aclFloatToFloat16", "aclFloat16ToFloat")
def _half(m: Machine, node: Node, values: list[Any]) -> Any:
    value = values[0]
    if not isinstance(value, Num):
        if isinstance(value, Unk) and value.tag == "device":
            return Unk(value.reason, node.line, "device", ("cast", value.expr))
        return value if isinstance(value, Unk) else m.unk("a half", node)
    if isinstance(value.v, np.ndarray):
        with np.errstate(all="ignore"):
            if "FloatToFloat16" in node["function"].text:
                return Num(value.v.astype(np.float16).view(np.uint16), "uint16")
            return Num(value.v.astype(np.uint16).view(np.float16).astype(np.float32), "float32")
    if "FloatToFloat16" in node["function"].text:
        return bit_cast(cast(value, "float16"), "uint16")
    return cast(bit_cast(cast(value, "uint16"), "float16"), "float32")


@library("aclGetViewShape", "aclGetDataType", "aclGetFormat", "aclGetStorageShape", "aclGetViewStrides")
def _query(m: Machine, node: Node, values: list[Any]) -> Any:
    for value in values[1:]:
        poison(m, value, m.unk(f"{node['function'].text} is not followed", node))
    return _OK
