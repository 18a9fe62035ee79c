"""DeviceArray: views against NumPy, copies, and the descriptor that CANN gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aclnn_py
from aclnn_py import DeviceArray, DeviceBuffer, dtypes
from aclnn_py._ffi import ffi

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def native(emulator_lib: Path) -> Any:
    os.environ.setdefault("ACLNN_PY_LIBRARY_PATH", str(emulator_lib))
    return aclnn_py.get_backend("emulator")


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index of NumPy, with positive steps."""
    key: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        bound = st.none() | st.integers(-size - 1, size + 1)
        entries = [st.builds(slice, bound, bound, st.none() | st.integers(1, 3))]
        if size:
            entries.append(st.integers(-size, size - 1))
        key.append(draw(st.one_of(entries)))
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.booleans()):
        key.append(Ellipsis)
    return tuple(key)


@given(data=st.data(), shape=st.lists(st.integers(0, 5), max_size=4).map(tuple))
def test_views_are_those_of_numpy(native: Any, data: st.DataObject, shape: tuple[int, ...]) -> None:
    host = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    array = native.to_device(host)
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()) and host.ndim:
            axes = data.draw(st.permutations(range(host.ndim)))
            host, array = host.transpose(axes), array.transpose(*axes)
        else:
            key = data.draw(keys(host.shape))
            host, array = host[key], array[key]
            if not isinstance(host, np.ndarray):
                host = np.asarray(host)
    assert array.shape == host.shape
    assert array.size == host.size
    np.testing.assert_array_equal(array.numpy(), host)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32", "bool", "float64", "uint8"])
def test_a_round_trip_keeps_every_bit(native: Any, name: str) -> None:
    dtype = dtypes.parse(name)
    host = np.random.default_rng(0).integers(0, 2 if name == "bool" else 256, 3 * dtype.itemsize, np.uint8).view(dtype)
    back = native.to_device(host).numpy()
    assert back.dtype == dtype
    assert back.tobytes() == host.tobytes()


@pytest.mark.parametrize("view", ["[::-1]", ".T", "[:, ::2]", "[1:]"])
def test_host_arrays_of_any_strides_are_copied_right(native: Any, view: str) -> None:
    host = eval(f"base{view}", {"base": np.arange(24, dtype=np.float32).reshape(4, 6)})
    np.testing.assert_array_equal(native.to_device(host).numpy(), host)
    broadcast = np.broadcast_to(np.float32(3), (2, 5))
    np.testing.assert_array_equal(native.to_device(broadcast).numpy(), broadcast)


def test_an_empty_array_allocates_nothing(native: Any) -> None:
    array = native.to_device(np.empty((0, 4), np.float16))
    assert array.buffer.address == 0
    assert array.numpy().shape == (0, 4)


def test_the_descriptor_counts_elements_from_the_storage_base(native: Any) -> None:
    whole = native.to_device(np.zeros((4, 6), np.float16))
    dims, ndim, dtype, strides, offset, fmt, storage, rank, pointer = whole[1:3, ::2].T.descriptor
    assert (list(dims[0:ndim]), list(strides[0:ndim]), offset) == ([3, 2], [2, 6], 6)
    assert (list(storage[0:rank]), dtype, fmt) == ([24], 1, 2)
    assert pointer == whole.buffer.pointer
    dims, ndim, *_, storage, rank, _ = whole.descriptor
    assert list(storage[0:rank]) == [4, 6]


def test_axes_of_length_one_get_canonical_strides(native: Any) -> None:
    whole = native.to_device(np.zeros((4, 6), np.float32))
    assert whole[:1].T[::1].strides == (1, 1)
    assert whole[0:1].contiguous
    assert whole[None].strides == (24, 6, 1)


def test_bad_shapes_and_views_are_refused(native: Any) -> None:
    buffer = DeviceBuffer(native.runtime, 64)
    with pytest.raises(ValueError, match="26 axes"):
        DeviceArray(buffer, (1,) * 26, np.float32)
    with pytest.raises(ValueError, match="do not fit"):
        DeviceArray(buffer, (17,), np.float32)
    with pytest.raises(ValueError, match="do not fit"):
        DeviceArray(buffer, (2,), np.float32, strides=(16,))
    with pytest.raises(ValueError, match="strides"):
        DeviceArray(buffer, (2,), np.float32, strides=(-1,), offset=1)
    with pytest.raises(ValueError, match="sizes of 0 or more"):
        DeviceArray(buffer, (-1,), np.float32)
    with pytest.raises(TypeError, match="aclDataType"):
        DeviceArray(buffer, (1,), np.dtype("S4"))
    array = DeviceArray(buffer, (4, 4), np.float32)
    with pytest.raises(ValueError, match="step is -1"):
        array[::-1]
    with pytest.raises(IndexError, match="index 4 is out of range for axis 0"):
        array[4]
    with pytest.raises(IndexError, match="too many indices"):
        array[0, 0, 0]
    with pytest.raises(TypeError, match="float"):
        array[1.0]
    with pytest.raises(ValueError, match="permutation"):
        array.transpose(0, 0)
    with pytest.raises(ValueError, match="cannot view"):
        array.T.reshape(16)
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        _ = array.descriptor


def test_sizes_beyond_32_bits_are_python_integers(native: Any) -> None:
    borrowed = DeviceBuffer.from_handle(native.runtime, ffi.cast("void *", 4096), 300_000 * 7168 * 4)
    array = DeviceArray(borrowed, (300_000, 7168), np.float32)
    assert array.nbytes == 8_601_600_000
    assert array[299_594].offset == 2_147_489_792


def test_reading_waits_for_the_stream(native: Any) -> None:
    x = native.to_device(np.ones((64, 32), np.float32))
    index = native.to_device(np.arange(64, dtype=np.int32))
    with native.create_stream() as stream:
        result = aclnn_py.moe_finalize_routing_v2_grad(x, index, stream=stream, backend=native)
        np.testing.assert_array_equal(result.grad_expanded_x.numpy(stream), np.ones((64, 32), np.float32))
