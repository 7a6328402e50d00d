"""Known fault 16: host tensor descriptors of every dtype, over views, with padding, in tails, and with atomic reductions."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace

WHOLE = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
REAL = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2, torch.float8_e4m3fn]
short = lambda dtype: str(dtype).removeprefix("torch.")


@triton.jit
def copy_tiles(x, out, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    out.store([row, col], x.load([row, col]))


@triton.jit
def copy_line(x, out, N: tl.constexpr):
    out.store([tl.program_id(0) * N], x.load([tl.program_id(0) * N]))


@triton.jit
def copy_cube(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.program_id(0) * A, tl.program_id(1) * B, tl.program_id(2) * C
    out.store([a, b, c], x.load([a, b, c]))


@triton.jit
def load_tile(x, out_ptr, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    tile = x.load([row, col])
    tl.store(out_ptr + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :], tile.to(tl.float32))


@triton.jit
def shape_of(x, out_ptr):
    tl.store(out_ptr + 0, x.shape[0])
    tl.store(out_ptr + 1, x.shape[1])
    tl.store(out_ptr + 2, x.strides[0])
    tl.store(out_ptr + 3, x.strides[1])


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype in WHOLE:
        count = int(np.prod(shape)) * dtype.itemsize
        return torch.randint(0, 256, (count,), generator=generator, dtype=torch.uint8).view(dtype).reshape(shape)
    return (torch.rand(shape, generator=generator) * 50 - 25).to(dtype)


def described(tensor: torch.Tensor, block: list[int], **more: Any) -> TensorDescriptor:
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block, **more)


@pytest.mark.parametrize("dtype", [*WHOLE, *REAL], ids=short)
def test_fault_16_descriptors_of_every_dtype(dtype: torch.dtype, traced: Any, bits: Any) -> None:
    x, out = random((20, 48), dtype), torch.zeros(20 * 48 * dtype.itemsize, dtype=torch.uint8).view(dtype).reshape(20, 48)
    copy_tiles[(3, 2)](described(x, [8, 32]), described(out, [8, 32]), ROWS=8, COLS=32)
    assert bits(out) == bits(x)


@pytest.mark.parametrize("dtype", [*WHOLE, *REAL], ids=short)
def test_descriptors_of_every_dtype_have_its_values(dtype: torch.dtype, traced: Any) -> None:
    x, out = random((16, 32), dtype), torch.zeros(8, 32)
    load_tile[(1,)](described(x, [8, 32]), out, 4, 0, ROWS=8, COLS=32)
    assert torch.equal(out, x[4:12].to(torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.uint8], ids=short)
def test_descriptors_of_one_and_three_axes(dtype: torch.dtype, traced: Any) -> None:
    x = random((5, 6, 32), dtype)
    out = torch.zeros_like(x)
    copy_cube[(3, 2, 2)](described(x, [2, 4, 16]), described(out, [2, 4, 16]), A=2, B=4, C=16)
    assert torch.equal(out, x)
    line, out = x.flatten(), torch.zeros(x.numel(), dtype=dtype)
    copy_line[(4,)](described(line, [256]), described(out, [256]), N=256)
    assert torch.equal(out, line)


def test_fault_16_descriptors_over_views_touch_nothing_else(traced: Any) -> None:
    base = torch.arange(40.0 * 40).reshape(40, 40)
    target = torch.full((40, 40), -1.0)
    x, out = base[4:24, 8:28], target[10:30, 12:32]
    copy_tiles[(3, 2)](described(x, [8, 16]), described(out, [8, 16]), ROWS=8, COLS=16)
    want = torch.full((40, 40), -1.0)
    want[10:30, 12:32] = x
    assert torch.equal(target, want)
    info = traced.launches[0].argument("x")
    assert (info.shape, info.stride, info.type) == ((20, 20), (40, 1), "tensordesc<fp32[8, 16]>")


def test_a_descriptor_tells_its_shape(traced: Any) -> None:
    out = torch.zeros(4, dtype=torch.int64)
    shape_of[(1,)](described(torch.zeros(24, 80)[:20, :40], [8, 16]), out)
    assert out.tolist() == [20, 40, 80, 1]


@pytest.mark.skipif("padding" not in inspect.signature(TensorDescriptor).parameters, reason="this Triton has no padding")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=short)
def test_fault_19_padding(dtype: torch.dtype, traced: Any) -> None:
    x, out = torch.arange(4 * 8).reshape(4, 8).to(dtype), torch.zeros(8, 16)
    load_tile[(1,)](described(x, [8, 16], padding="nan"), out, 0, 0, ROWS=8, COLS=16)
    assert torch.equal(out[:4, :8], x.float())
    assert int(out.isnan().sum()) == 8 * 16 - 4 * 8
    load_tile[(1,)](described(x, [8, 16], padding="zero"), out, 0, 0, ROWS=8, COLS=16)
    assert out.sum() == x.float().sum() and not out.isnan().any()


@given(st.integers(-12, 24), st.integers(-20, 40))
@settings(deadline=None, max_examples=40)
def test_tiles_that_reach_over_every_edge(row: int, col: int) -> None:
    x, out = torch.arange(1.0, 20 * 24 + 1).reshape(20, 24), torch.full((8, 16), -1.0)
    with tritontrace.session(clients=["sanitizer"]) as session:
        load_tile[(1,)](described(x, [8, 16]), out, row, col, ROWS=8, COLS=16)
    padded = torch.nn.functional.pad(x, (64, 64, 64, 64))
    assert torch.equal(out, padded[64 + row : 72 + row, 64 + col : 80 + col])
    assert session.findings == []


def test_a_descriptor_that_promises_more_than_there_is() -> None:
    x, out = torch.zeros(100), torch.zeros(256)
    with tritontrace.session(clients=["sanitizer"]) as session:
        copy_line[(1,)](TensorDescriptor(x, [200], [1], [256]), described(out, [256]), N=256)
    (finding,) = session.findings
    assert finding.access == "load" and finding.tensor == "x"


def test_a_descriptor_without_memory_is_refused(refused: Any) -> None:
    x = torch.zeros(16, 32, device="meta")
    with pytest.raises(tritontrace.ArgumentError, match=r"meta device.*argument 'x' of kernel 'copy_tiles'"):
        copy_tiles[(1,)](described(x, [8, 32]), described(torch.zeros(16, 32), [8, 32]), ROWS=8, COLS=32)


# -- atomic reductions through a descriptor -----------------------------------------------------------------------


@triton.jit
def reduce_tile(out, x, KIND: tl.constexpr):
    tile = x.load([0, 0])
    if KIND == "add":
        out.atomic_add([0, 0], tile)
    elif KIND == "min":
        out.atomic_min([0, 0], tile)
    elif KIND == "max":
        out.atomic_max([0, 0], tile)
    elif KIND == "and":
        out.atomic_and([0, 0], tile)
    elif KIND == "or":
        out.atomic_or([0, 0], tile)
    else:
        out.atomic_xor([0, 0], tile)


NUMPY = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
SUPPORTED = [
    *(("add", dtype) for dtype in (torch.int32, torch.uint32, torch.uint64, torch.float32, torch.float16)),
    *(
        (kind, dtype)
        for kind in ("min", "max", "and", "or", "xor")
        for dtype in (torch.int32, torch.uint32, torch.int64, torch.uint64)
    ),
    *((kind, torch.float16) for kind in ("min", "max")),
]


@pytest.mark.parametrize(("kind", "dtype"), SUPPORTED, ids=lambda v: v if isinstance(v, str) else short(v))
def test_reductions_know_the_sign_of_an_integer(kind: str, dtype: torch.dtype, traced: Any) -> None:
    x, out = random((8, 16), dtype), random((8, 16), dtype, seed=4)
    with np.errstate(over="ignore"):
        want = NUMPY[kind](out.numpy(), x.numpy())
    reduce_tile[(1,)](described(out, [8, 16]), described(x, [8, 16]), KIND=kind)
    np.testing.assert_array_equal(out.numpy(), want)
