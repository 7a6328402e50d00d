"""Tensor descriptors made in the kernel and on the host: padding, edges, types, gathers, and reductions into memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []


REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
TAKES: dict[str, list[torch.dtype]] = {
    "add": [torch.int32, torch.uint32, torch.uint64, torch.float32, torch.float16, torch.bfloat16],
    "min": [torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16, torch.bfloat16],
    "max": [torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16, torch.bfloat16],
    "and": [torch.int32, torch.uint32, torch.int64, torch.uint64],
    "or": [torch.int32, torch.uint32, torch.int64, torch.uint64],
    "xor": [torch.int32, torch.uint32, torch.int64, torch.uint64],
}
NUMPY: dict[torch.dtype, Any] = {
    torch.int32: np.int32, torch.uint32: np.uint32, torch.int64: np.int64, torch.uint64: np.uint64,
    torch.float32: np.float32, torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16,
}  # fmt: skip


@triton.jit
def reducing(d_ptr, v_ptr, m, n, OP: tl.constexpr, ON_HOST: tl.constexpr):
    if ON_HOST:
        target = d_ptr
    else:
        target = tl.make_tensor_descriptor(d_ptr, [m, n], [n, 1], [4, 16])
    value = tl.load(v_ptr + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :])
    # The tile hangs over both edges; what lies outside is not touched.
    row = m - 2 - tl.program_id(0)
    if OP == "add":
        target.atomic_add([row, n - 8], value)
    elif OP == "min":
        target.atomic_min([row, n - 8], value)
    elif OP == "max":
        target.atomic_max([row, n - 8], value)
    elif OP == "and":
        target.atomic_and([row, n - 8], value)
    elif OP == "or":
        target.atomic_or([row, n - 8], value)
    else:
        target.atomic_xor([row, n - 8], value)


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize(("op", "kind"), [(op, kind) for op, kinds in TAKES.items() for kind in kinds], ids=str)
def test_reductions_of_every_type(op: str, kind: torch.dtype, on_host: bool) -> None:
    generator = np.random.default_rng(0)
    numpy_kind = NUMPY[kind]
    if numpy_kind in (np.int32, np.uint32, np.int64, np.uint64):
        info = np.iinfo(numpy_kind)
        start, value = (generator.integers(info.min, info.max, s, dtype=numpy_kind) for s in ((6, 16), (4, 16)))
    else:
        start, value = ((generator.integers(-9, 9, s) / 4).astype(numpy_kind) for s in ((6, 16), (4, 16)))
    memory, operand = (torch.from_numpy(a.copy().view(f"i{a.itemsize}")).view(kind) for a in (start, value))
    target = TensorDescriptor.from_tensor(memory, [4, 16]) if on_host else memory
    reducing[(2,)](target, operand, 6, 16, OP=op, ON_HOST=on_host)
    wanted = start.copy()
    for row in (4, 3):
        rows = min(4, 6 - row)
        part = wanted[row : row + rows, 8:]
        wanted[row : row + rows, 8:] = REDUCTIONS[op](part, value[:rows, :8])
    got = memory.view(getattr(torch, f"int{8 * start.itemsize}")).numpy().view(numpy_kind)
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


@triton.jit
def copying(x_ptr, o_ptr, m, n, stride, PADDING: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [m, n], [stride, 1], [8, 16], padding_option=PADDING)
    tile = source.load([tl.program_id(0) * 8 - 2, tl.program_id(1) * 16 - 3])
    at = (tl.program_id(0) * 8 + tl.arange(0, 8))[:, None] * 48 + tl.program_id(1) * 16 + tl.arange(0, 16)[None, :]
    tl.store(o_ptr + at, tile)


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float64], ids=str)
def test_padding_on_all_four_sides(kind: torch.dtype, padding: str) -> None:
    x = torch.randn(21, 32, generator=torch.Generator().manual_seed(0)).to(kind)
    out = torch.ones(24, 48).to(kind)
    copying[(3, 3)](x, out, 21, 29, 32, PADDING=padding)
    wanted = torch.full((24, 48), float("nan") if padding == "nan" else 0.0)
    wanted[2:23, 3:32] = x.float()[:, :29]
    # Row 22 of the grid of tiles is the tensor's row 20, its last.
    torch.testing.assert_close(out.float(), wanted, rtol=0, atol=0, equal_nan=True)


@triton.jit
def ranks(one, five, o_ptr):
    i = tl.arange(0, 16)
    tl.store(o_ptr + i, one.load([5]))
    tile = five.load([0, 1, 0, 1, 0])
    tl.store(o_ptr + 16 + i, tl.reshape(tile, 16))
    five.store([0, 0, 0, 0, 0], tile + 1)


def test_one_and_five_axes() -> None:
    one = torch.arange(19.0)
    five = torch.arange(2.0 * 3 * 1 * 3 * 8).reshape(2, 3, 1, 3, 8)
    before = five.clone()
    out = torch.zeros(32)
    ranks[(1,)](TensorDescriptor.from_tensor(one, [16]), TensorDescriptor.from_tensor(five, [1, 2, 1, 1, 8]), out)
    assert torch.equal(out[:16], torch.cat([one[5:], torch.zeros(2)]))
    tile = before[0, 1:3, 0, 1]
    assert torch.equal(out[16:].reshape(2, 8), tile)
    wanted = before.clone()
    wanted[0, 0:2, 0, 0] = tile + 1
    assert torch.equal(five, wanted)


@triton.jit
def rows(source, target, index_ptr, y, N: tl.constexpr):
    index = tl.load(index_ptr + tl.arange(0, N))
    target.scatter(source.gather(index, y) * 2, index, y)


@pytest.mark.parametrize("kind", [torch.int32, torch.float16, torch.bfloat16, torch.float32])
def test_gather_and_scatter_skip_rows_outside(kind: torch.dtype) -> None:
    x = torch.arange(10 * 32).reshape(10, 32).to(kind)
    out = torch.zeros(10, 32).to(kind)
    index = torch.tensor([9, 0, 12, 4, 3, 100, 7, 1], dtype=torch.int32)
    source, target = (TensorDescriptor.from_tensor(t, [1, 16]) for t in (x, out))
    rows[(1,)](source, target, index, 16, N=8)
    wanted = torch.zeros_like(out)
    inside = index[index < 10].long()
    wanted[inside, 16:] = x[inside, 16:] * 2
    assert torch.equal(out, wanted)


@triton.jit
def in_a_loop(x_ptr, o_ptr, m, n, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [B, B])
    target = tl.make_tensor_descriptor(o_ptr, [m, n], [n, 1], [B, B])
    for row in range(tl.program_id(0) * B, m, tl.num_programs(0) * B):
        if row % (2 * B) == 0:
            swap = source
            column = 0
        else:
            swap = source
            column = B
        target.store([row, column], swap.load([row, column]) + row)


def test_descriptors_through_loops_and_branches() -> None:
    x = torch.zeros(64, 32)
    out = torch.full((64, 32), -1.0)
    in_a_loop[(3,)](x, out, 64, 32, B=16)
    wanted = torch.full((64, 32), -1.0)
    for row in range(0, 64, 16):
        column = 0 if row % 32 == 0 else 16
        wanted[row : row + 16, column : column + 16] = row
    assert torch.equal(out, wanted)
