"""The parts the reference is built of: rounding, rows of any strides, blocks, threads, memory, 64-bit offsets."""

from __future__ import annotations

import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from aclnn_py import dtypes, errors
from aclnn_py.reference import OPERATORS, loops, numerics

F32, F16, BF16, I32 = np.dtype(np.float32), np.dtype(np.float16), dtypes.bfloat16(), np.dtype(np.int32)
V2_GRAD = OPERATORS["aclnnMoeFinalizeRoutingV2Grad"]
V2 = OPERATORS["aclnnMoeFinalizeRoutingV2"]
PATTERNS = np.arange(1 << 16, dtype=np.uint16)
# one fp32 of each kind that rounding can get wrong: ties, carries, limits, subnormals, NaNs with low payload bits
EDGES = np.array(
    [0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x3FFF8000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0x7F800000,
     0x7F800001, 0x7FBFFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0xFF800000, 0, 0x80000000, 1, 0x80000001, 0x00008000,
     0x00018000, 0x007FFFFF, 0x00800000, 0x33000000, 0x33000001, 0x33800000, 0x387FC000, 0x387FE000, 0x38800000,
     0x477FEFFF, 0x477FF000, 0x477FE000, 0xC77FF000, 0x3F801000, 0x3F803000],
    dtype=np.uint32,
)  # fmt: skip


def random_floats(count: int, seed: int = 0) -> Any:
    """Float32 of all exponents, signs and kinds."""
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)


def narrowed(values: Any, dtype: np.dtype[Any], **layout: Any) -> Any:
    """Round a copy of fp32 values."""
    out = layout.get("out", np.zeros(values.shape, dtype))
    numerics.narrow(values.copy(), numerics.bits(out), np.empty_like(values))
    return out


def same_bits(a: Any, b: Any) -> bool:
    """Equal bit by bit, any NaN being equal to any NaN."""
    nan_a, nan_b = np.isnan(a.astype(F32)), np.isnan(b.astype(F32))
    word = {2: np.uint16, 4: np.uint32}[a.dtype.itemsize]
    return bool((nan_a == nan_b).all() and (a.view(word) == b.view(word))[~nan_a].all())


# -- rounding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_every_16_bit_pattern_widens_exactly_and_comes_back(dtype: np.dtype[Any]) -> None:
    source = PATTERNS.view(dtype)
    wide = np.empty(source.shape, F32)
    numerics.widen(numerics.bits(source), wide)
    with np.errstate(invalid="ignore"):
        assert same_bits(wide, source.astype(F32))
    assert same_bits(narrowed(wide, dtype), source)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("what", ["edges", "random", "ties", "finite"])
def test_rounding_is_that_of_ml_dtypes_and_numpy(dtype: np.dtype[Any], what: str) -> None:
    values = {
        "edges": EDGES.view(F32),
        "random": random_floats(1 << 18),
        # halfway between neighbours of either type
        "ties": ((np.arange(1 << 16, dtype=np.uint32) << 16) | (0x8000 if dtype == BF16 else 0x1000)).view(F32),
        "finite": np.linspace(-70000, 70000, 99991, dtype=F32),
    }[what]
    with np.errstate(all="ignore"):
        expected = values.astype(dtype)
    assert same_bits(narrowed(values, dtype), expected)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_rounding_into_a_strided_output(dtype: np.dtype[Any]) -> None:
    values = random_floats(60).reshape(6, 10)
    frame = np.zeros((20, 12), dtype)
    narrowed(values, dtype, out=frame[:10, ::-2].T)
    assert same_bits(frame[:10, ::-2].T.copy(), narrowed(values, dtype))
    assert not frame[10:].any()


def test_overflow_rounds_to_infinity_without_a_warning() -> None:
    assert narrowed(np.float32([65519, 65520, -65520, 1e-9]), F16).tolist() == [65504, np.inf, -np.inf, 0]


# -- 64-bit offsets ----------------------------------------------------------------------------------------------


def test_offsets_from_an_int32_index_do_not_overflow() -> None:
    rows = numerics.index64(np.array([299594, -1], I32))
    assert (rows * 7168).tolist() == [2147489792, -7168]


def hankel(rows: int, width: int, dtype: np.dtype[Any] = F32) -> Any:
    """Rows that overlap in memory: row r is base[r : r + width]; more than 2**31 elements fit in a megabyte."""
    base = (np.arange(rows + width) % 251).astype(dtype)
    return as_strided(base, (rows, width), (dtype.itemsize, dtype.itemsize), writeable=False)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_rows_beyond_two_to_the_31_elements_are_read(dtype: np.dtype[Any]) -> None:
    x, index = hankel(300_000, 7168, dtype), np.array([299_999, 0, 299_594, 7], I32)
    assert x.size > 1 << 31
    out = np.zeros((4, 7168), dtype)
    args = dict.fromkeys(("x1Optional", "x2Optional", "biasOptional", "scalesOptional", "expertIdxOptional"))
    args |= {"expandedX": x, "expandedRowIdx": index, "dropPadMode": 2, "out": out}
    assert V2.validate(args, "950") > 0
    V2.compute(args, "950")
    for row, target in zip(index, out, strict=True):
        assert (target.astype(F32) == (np.arange(row, row + 7168) % 251)).all()


@pytest.mark.slow
def test_gradient_with_inputs_and_output_beyond_two_to_the_31_elements() -> None:
    tokens, slots, hidden = 37_500, 8, 7168
    rows = tokens * slots
    grad = np.broadcast_to(np.ones((1, hidden), F32), (tokens, hidden))
    memory = np.zeros(hidden, F32)
    args = grad_args(
        gradY=grad,
        expandedRowIdx=np.arange(rows, dtype=I32)[::-1],
        expandedXOptional=hankel(rows, hidden),
        scalesOptional=np.broadcast_to(F32.type(3), (tokens, slots)),
        gradExpandedXOut=as_strided(memory, (rows, hidden), (0, 4)),
        gradScalesOut=np.zeros((tokens, slots), F32),
    )
    V2_GRAD.validate(args, "A2")
    V2_GRAD.compute(args, "A2")
    prefix = np.concatenate([[0], np.cumsum(np.arange(rows + hidden) % 251)])
    expected = (prefix[hidden:] - prefix[:-hidden])[:rows][::-1].reshape(tokens, slots)
    assert (args["gradScalesOut"] == expected).all()
    assert (memory == 3).all()


# -- rows of any strides -----------------------------------------------------------------------------------------

LAYOUTS = {
    "dense": lambda: np.arange(24.0, dtype=F32).reshape(6, 4),
    "reversed": lambda: np.arange(24.0, dtype=F32).reshape(6, 4)[::-1, ::-1],
    "columns": lambda: np.arange(48.0, dtype=F32).reshape(6, 8)[:, 1::2],
    "transposed": lambda: np.arange(24.0, dtype=F32).reshape(4, 6).T,
    "unaligned": lambda: np.zeros(97, np.uint8)[1:].view(F32).reshape(6, 4),
    "three": lambda: np.arange(24.0, dtype=F32).reshape(3, 2, 4),
    "three, swapped": lambda: np.arange(24.0, dtype=F32).reshape(2, 3, 4).swapaxes(0, 1),
    "three, half": lambda: np.arange(48.0, dtype=F32).reshape(3, 4, 4)[:, ::2],
    "bfloat16": lambda: np.arange(48.0, dtype=F32).astype(BF16).reshape(6, 8)[:, ::-2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_taken_and_put_in_any_layout(layout: str) -> None:
    array = LAYOUTS[layout]()
    plain = array.reshape(6, 4).copy()
    rows, index = numerics.Rows(array), np.array([5, 0, 0, 3])
    assert (rows.count, rows.width) == (6, 4)
    block = np.empty((4, 4), rows.dtype)
    rows.take(index, block)
    assert (block == numerics.bits(plain)[index]).all()
    new = block[::-1] * rows.dtype.type(1) + rows.dtype.type(1)
    rows.put(np.array([1, 2, 4, 4]), new)
    numerics.bits(plain)[[1, 2, 4]] = new[[0, 1, 3]]
    assert (array.reshape(6, 4) == plain).all()
    rows.fill_zero()
    assert not array.any()


def test_last_writer_of_a_row_wins() -> None:
    wins = numerics.last_writers(np.array([2, 0, 2, -1, 7, 0, 3, -9]), 4)
    assert wins.tolist() == [False, False, True, False, False, True, True, False]


# -- sums --------------------------------------------------------------------------------------------------------


def row_dots(left: Any, right: Any) -> Any:
    parts = np.empty((*left.shape[:2], loops.pieces(left.shape[2])), F32)
    loops.row_dots(left, right, parts)
    return loops.add_pieces(parts)


@pytest.mark.parametrize("hidden", [1, 3, 33, 1024, 1025, 4096, 7168])
@pytest.mark.parametrize("data", ["random", "positive", "constant"])
def test_row_dots_keep_the_promised_error(hidden: int, data: str) -> None:
    rng = np.random.default_rng(hidden)
    a, g = rng.standard_normal((3, 4, hidden), F32), rng.standard_normal((3, hidden), F32)
    if data == "positive":
        a, g = abs(a), abs(g)
    elif data == "constant":
        a, g = np.full_like(a, 0.1), np.full_like(g, 1 / 3)
    products = a.astype(np.float64) * g[:, None, :]
    assert (abs(row_dots(a, g) - products.sum(-1)) <= 2.0**-20 * abs(products).sum(-1)).all()


@pytest.mark.parametrize("hidden", [5, 1500, 4096])
def test_row_dots_do_not_depend_on_their_neighbours(hidden: int) -> None:
    rng = np.random.default_rng(1)
    a, g = rng.standard_normal((6, 5, hidden), F32), rng.standard_normal((6, hidden), F32)
    whole = row_dots(a, g)
    for t in range(6):
        for k in range(5):
            assert whole[t, k] == row_dots(a[t : t + 1, k : k + 1], g[t : t + 1])[0, 0]


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("hidden", [7, 1024])
def test_bias_rows_are_added_exactly_from_any_layout(dtype: np.dtype[Any], hidden: int) -> None:
    table = np.random.default_rng(2).standard_normal((5, hidden), F32).astype(dtype)
    which = np.array([[4, 0], [4, 2]])
    expected = 1 + table[which].astype(F32).reshape(4, hidden)
    for bias in (table, np.asfortranarray(table), np.repeat(table, 2, 0)[::2]):
        rows = loops.BiasRows(bias, which)
        target = np.ones((4, hidden), F32)
        rows.add(rows.which.reshape(-1), target, np.full_like(target, np.nan))
        assert (target == expected).all()


# -- blocks, threads, memory -------------------------------------------------------------------------------------


def grad_args(**changes: Any) -> dict[str, Any]:
    """Complete the arguments of the gradient."""
    absent = dict.fromkeys(("expandedXOptional", "scalesOptional", "expertIdxOptional", "biasOptional"))
    return absent | dict.fromkeys(("dropPadMode", "activeNum", "expertNum", "expertCapacity"), 0) | changes


def grad_case(tokens: int, slots: int, hidden: int, dtype: np.dtype[Any], seed: int = 0) -> dict[str, Any]:
    """Random arguments with repeated and dropped rows, an eighth each."""
    rng = np.random.default_rng(seed)
    rows = tokens * slots

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape, F32).astype(dtype)

    index = rng.permutation(rows).astype(I32)
    index[rng.integers(0, rows, rows // 8)] = index[rng.integers(0, rows, rows // 8)]
    index[rng.integers(0, rows, rows // 8)] = -1
    return grad_args(
        gradY=floats(tokens, hidden),
        expandedRowIdx=index,
        expandedXOptional=floats(rows, hidden),
        scalesOptional=floats(tokens, slots),
        expertIdxOptional=rng.integers(0, 3, (tokens, slots)).astype(I32),
        biasOptional=floats(3, hidden),
        gradExpandedXOut=np.full((rows, hidden), 7, dtype),
        gradScalesOut=np.full((tokens, slots), 7, dtype),
    )


def result(args: dict[str, Any]) -> list[bytes]:
    """Run on fresh outputs; give their bytes."""
    outputs = {name: args[name].copy() for name in ("gradExpandedXOut", "gradScalesOut")}
    V2_GRAD.compute(args | outputs, "A2")
    return [array.tobytes() for array in outputs.values()]


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("scaled", [True, False])
def test_bits_do_not_depend_on_threads_or_blocks(
    dtype: np.dtype[Any], scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = grad_case(24, 6, 37, dtype) if scaled else grad_case(144, 1, 37, dtype)
    if not scaled:
        args["scalesOptional"] = None
    monkeypatch.setenv("ACLNN_PY_NUM_THREADS", "1")
    expected = result(args)
    monkeypatch.setattr(numerics, "_THREAD_BYTES", 1)
    for threads in (2, 3, 8):
        monkeypatch.setenv("ACLNN_PY_NUM_THREADS", str(threads))
        # from one slot a block, with the slots of a token apart, to several tokens a block
        for block_bytes in (1, 37 * 8 * 4, 1 << 14):
            monkeypatch.setattr(loops, "BLOCK_BYTES", block_bytes)
            assert result(args) == expected


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_forward_bits_do_not_depend_on_threads_or_blocks(dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = grad_case(24, 6, 37, dtype)
    args = {name: given[name] for name in ("scalesOptional", "expertIdxOptional", "biasOptional", "expandedRowIdx")}
    args |= {"expandedX": given["expandedXOptional"], "x1Optional": given["gradY"], "x2Optional": given["gradY"]}
    args["dropPadMode"] = 0
    results = []
    monkeypatch.setattr(numerics, "_THREAD_BYTES", 1)
    for threads, block_bytes in (("1", 1 << 20), ("2", 1), ("5", 37 * 12 * 7)):
        monkeypatch.setenv("ACLNN_PY_NUM_THREADS", threads)
        monkeypatch.setattr(loops, "BLOCK_BYTES", block_bytes)
        V2.compute(args | {"out": (out := np.zeros((24, 37), dtype))}, "A2")
        results.append(out.tobytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("layout", ["dense", "strided"])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_extra_memory_is_bounded(dtype: np.dtype[Any], layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_NUM_THREADS", "2")
    args = grad_case(512, 8, 2048, dtype)
    if layout == "strided":
        for name in ("gradY", "expandedXOptional", "biasOptional"):
            args[name] = args[name][::-1, ::-1]
    tracemalloc.start()
    try:
        V2_GRAD.compute(args, "A2")
        extra = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # a float32 copy of one (R * K, H) tensor takes 32 MiB
    assert extra < 6 << 20


def test_threads_end_with_the_call_and_hand_on_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACLNN_PY_NUM_THREADS", "3")
    before, seen = threading.active_count(), []

    def body(begin: int, end: int) -> None:
        seen.append((begin, end, threading.current_thread() is threading.main_thread()))
        if end == 10:
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        numerics.parallel(10, 1 << 30, body)
    assert sorted(seen) == [(0, 3, False), (3, 6, False), (6, 10, False)]
    assert threading.active_count() == before
    numerics.parallel(9, 100, lambda begin, end: seen.append((begin, end, True)))
    assert seen[-1] == (0, 9, True)


def test_thread_count_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACLNN_PY_NUM_THREADS", raising=False)
    assert 1 <= numerics.thread_count() <= 8
    monkeypatch.setenv("ACLNN_PY_NUM_THREADS", "12")
    assert numerics.thread_count() == 12
    for wrong in ("0", "-1", "two", ""):
        monkeypatch.setenv("ACLNN_PY_NUM_THREADS", wrong)
        with pytest.raises(ValueError, match="ACLNN_PY_NUM_THREADS"):
            numerics.thread_count()


# -- guards ------------------------------------------------------------------------------------------------------


def test_an_expert_outside_bias_is_refused_before_anything_is_written() -> None:
    args = grad_case(4, 2, 3, F32) | {"dropPadMode": 1, "expertNum": 3, "expertCapacity": 3}
    args |= {"expandedXOptional": np.ones((3, 3, 3), F32), "gradExpandedXOut": np.full((3, 3, 3), 7, F32)}
    args["expertIdxOptional"][2, 1] = 3
    args["expertIdxOptional"][3, 0] = -1
    V2_GRAD.validate(args, "A2")
    with pytest.raises(errors.IndexOutOfRangeError, match=r"expertIdxOptional\[2, 1\]: got 3, .* 0 to 2") as caught:
        V2_GRAD.compute(args, "A2")
    assert caught.value.code == 161002
    assert (args["gradExpandedXOut"] == 7).all()
    assert (args["gradScalesOut"] == 7).all()


def test_the_forward_ignores_the_expert_of_a_dropped_slot() -> None:
    args: dict[str, Any] = dict.fromkeys(("x1Optional", "x2Optional", "scalesOptional"))
    args |= {
        "expandedX": np.ones((2, 1, 2), F32), "expandedRowIdx": np.array([1, -1], I32), "dropPadMode": 3,
        "biasOptional": np.full((2, 2), 4, F32), "expertIdxOptional": np.array([[1], [-1]], I32),
        "out": np.full((2, 2), 7, F32),
    }  # fmt: skip
    V2.validate(args, "A2")
    V2.compute(args, "A2")
    assert args["out"].tolist() == [[5, 5], [0, 0]]
    args["expertIdxOptional"][0, 0] = 2
    with pytest.raises(errors.IndexOutOfRangeError, match=r"expertIdxOptional\[0, 0\]"):
        V2.compute(args, "A2")


def test_float32_needs_no_ml_dtypes() -> None:
    code = "import sys, aclnn_py.reference; sys.exit('ml_dtypes' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert ml_dtypes.bfloat16 is BF16.type
