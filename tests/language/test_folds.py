"""Reductions, scans, sorting and mapping: user functions over several values, reversed, along each axis, in each type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []


# -- several values ------------------------------------------------------------------------------------------------------


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    delta = mean_b - mean_a
    part = tl.where(n == 0, 0.0, n_b / n)
    return mean_a + delta * part, m2_a + m2_b + delta * delta * n_a * part, n


@triton.jit
def statistics(x_ptr, o_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + at)
    zero = tl.zeros([ROWS, COLUMNS], tl.float32)
    mean, m2, n = tl.reduce((x, zero, zero + 1), AXIS, welford, keep_dims=KEEP)
    if KEEP:
        mean = tl.reshape(mean, mean.numel)
        m2 = tl.reshape(m2, m2.numel)
        n = tl.reshape(n, n.numel)
    i = tl.arange(0, mean.numel)
    tl.store(o_ptr + i, mean)
    tl.store(o_ptr + mean.numel + i, m2 / n)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_reduction_of_three_values(axis: int, keep: bool) -> None:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(2, x.shape[1 - axis])
    statistics[(1,)](x, out, ROWS=16, COLUMNS=8, AXIS=axis, KEEP=keep)
    a = x.double().numpy()
    np.testing.assert_allclose(out.numpy(), np.stack([a.mean(axis), a.var(axis)]), rtol=1e-5, atol=1e-6)


@triton.jit
def segments(flag_a, sum_a, flag_b, sum_b):
    return flag_a | flag_b, tl.where(flag_b != 0, sum_b, sum_a + sum_b)


@triton.jit
def segmented(f_ptr, x_ptr, o_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    _, total = tl.associative_scan((tl.load(f_ptr + at), tl.load(x_ptr + at)), AXIS, segments, reverse=REVERSE)
    tl.store(o_ptr + at, total)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_of_two_values_of_two_types(axis: int, reverse: bool) -> None:
    generator = np.random.default_rng(1)
    flags, x = generator.integers(0, 2, (16, 8)).astype(np.int32), generator.integers(-9, 9, (16, 8)).astype(np.float32)
    out = torch.zeros(16, 8)
    segmented[(1,)](torch.from_numpy(flags), torch.from_numpy(x), out, ROWS=16, COLUMNS=8, AXIS=axis, REVERSE=reverse)
    wanted = np.zeros((16, 8))
    f, v, w = (np.moveaxis(t, axis, 0)[:: -1 if reverse else 1] for t in (flags, x, wanted))
    for k in range(len(v)):
        w[k] = np.where(f[k] != 0, v[k], v[k] + (w[k - 1] if k else 0))
    np.testing.assert_array_equal(out.numpy(), wanted)


@triton.jit
def branching(a, b):
    if a > b:
        r = a
    elif a < b:
        r = b
    else:
        r = a
    return r


@triton.jit
def returning(a, b):
    if a > b:
        return a
    return b


@triton.jit
def looping(a, b):
    # The greatest common divisor.
    while b != 0:
        a, b = b, a % b
    return a


@triton.jit
def per_program(x):
    if tl.program_id(0) > 1:
        return x * 10
    return x


@triton.jit
def early(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    p = tl.program_id(0)
    x = tl.load(x_ptr + p * N + i)
    tl.store(o_ptr + p * 2 * N + i, tl.associative_scan(x, 0, returning))
    tl.store(o_ptr + p * 2 * N + N + i, tl.associative_scan(x, 0, looping, reverse=True))
    shared = tl.map_elementwise(per_program, tl.full([N], 3, tl.int32))
    tl.store(o_ptr + tl.num_programs(0) * 2 * N + p * N + i, shared)


def test_functions_with_loops_and_early_returns() -> None:
    x = np.random.default_rng(3).integers(1, 60, (3, 16)).astype(np.int32)
    out = torch.zeros(3 * 2 * 16 + 3 * 16, dtype=torch.int32)
    early[(3,)](torch.from_numpy(x), out, N=16)
    got = out[:96].reshape(3, 2, 16).numpy()
    np.testing.assert_array_equal(got[:, 0], np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(got[:, 1], np.gcd.accumulate(x[:, ::-1], 1)[:, ::-1])
    np.testing.assert_array_equal(out[96:].reshape(3, 16).numpy(), np.repeat([[3], [3], [30]], 16, 1))


@triton.jit
def ordered(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr, tl.reduce(x, 0, branching))
    tl.store(o_ptr + 1, tl.reduce(tl.reshape(x, 2, N // 2), 1, branching).sum(0))
    tl.store(o_ptr + 2, tl.reduce(x, None, branching))


def test_a_function_with_branches() -> None:
    x = torch.tensor([3, 9, -1, 4, 12, 7, 0, 2], dtype=torch.int32)
    out = torch.zeros(3, dtype=torch.int32)
    ordered[(1,)](x, out, N=8)
    assert out.tolist() == [12, 9 + 12, 12]


@triton.jit
def compose(a0, b0, a1, b1):
    return a1 * a0, a1 * b0 + b1


@triton.jit
def affine(a_ptr, b_ptr, o_ptr, N: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.associative_scan((tl.load(a_ptr + i), tl.load(b_ptr + i)), 0, compose, reverse=REVERSE)
    tl.store(o_ptr + i, a * 7 + b)
    a, b = tl.reduce((tl.load(a_ptr + i), tl.load(b_ptr + i)), 0, compose)
    tl.store(o_ptr + tl.num_programs(0) * N + tl.program_id(0), a * 7 + b)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 2, 16, 64])
def test_functions_that_do_not_commute_keep_the_order(size: int, reverse: bool) -> None:
    generator = np.random.default_rng(size)
    a, b = (generator.integers(-3, 4, (3, size)).astype(np.int32) for _ in range(2))
    out = torch.zeros(3 * size + 3, dtype=torch.int32)
    affine[(3,)](torch.from_numpy(a), torch.from_numpy(b), out, N=size, REVERSE=reverse)
    wanted = np.zeros((3, size), np.int32)
    end = np.zeros(3, np.int32)
    for p in range(3):
        for store in ("scan", "reduce"):
            x = np.int32(7)
            columns = range(size)[:: -1 if reverse and store == "scan" else 1]
            for k in columns:
                x = np.int32((int(a[p, k]) * int(x) + int(b[p, k]) + 2**31) % 2**32 - 2**31)
                if store == "scan":
                    wanted[p, k] = x
            end[p] = x
    np.testing.assert_array_equal(out[: 3 * size].reshape(3, size).numpy(), wanted)
    np.testing.assert_array_equal(out[3 * size :].numpy(), end)


# -- sorting -------------------------------------------------------------------------------------------------------------


@triton.jit
def sorting(x_ptr, o_ptr, t_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, DOWN: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(o_ptr + at, tl.sort(x, descending=DOWN))
    tl.store(t_ptr + tl.arange(0, ROWS)[:, None] * K + tl.arange(0, K)[None, :], tl.topk(x, K))


KINDS: dict[torch.dtype, Any] = {
    torch.int8: np.int8, torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32, torch.uint32: np.uint32,
    torch.int64: np.int64, torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16, torch.float32: np.float32,
    torch.float64: np.float64,
}  # fmt: skip


@pytest.mark.parametrize("kind", list(KINDS), ids=str)
def test_sort_and_topk_in_every_type(kind: torch.dtype) -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(size=(4, 32)) * 50
    a = np.abs(values).astype(KINDS[kind]) if kind in (torch.uint8, torch.uint32) else values.astype(KINDS[kind])
    x = torch.from_numpy(a.view(f"i{a.itemsize}")).view(kind)
    for down in (False, True):
        out, top = torch.zeros_like(x), torch.zeros(4, 8).to(kind)
        sorting[(1,)](x, out, top, ROWS=4, COLUMNS=32, K=8, DOWN=down)
        wanted = np.sort(a.astype(np.float64), 1)
        np.testing.assert_array_equal(out.double().numpy(), wanted[:, ::-1] if down else wanted)
        np.testing.assert_array_equal(top.double().numpy(), wanted[:, ::-1][:, :8])


# -- mapping -------------------------------------------------------------------------------------------------------------


@triton.jit
def collatz(x, limit):
    steps = 0
    while (x > 1) & (steps < limit):
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps, x


@triton.jit
def pairs(a0, a1, b0, b1):
    low = a0 if a0 < a1 else a1
    return low, low + b0, b1 * 2, b1 * 3


@triton.jit
def mapped(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    steps, last = tl.map_elementwise(collatz, x, tl.full([N], 9, tl.int32))
    base = o_ptr + tl.program_id(0) * 4 * N + tl.arange(0, N)
    tl.store(base, steps)
    tl.store(base + N, last)
    first, second = tl.map_elementwise(pairs, x, x + 100, pack=2)
    tl.store(base + 2 * N, first)
    tl.store(base + 3 * N, second)


def test_functions_with_loops_mapped_over_elements() -> None:
    x = np.arange(64, dtype=np.int32).reshape(4, 16) + 1
    out = torch.zeros(4, 4, 16, dtype=torch.int32)
    mapped[(4,)](torch.from_numpy(x), out, N=16)

    def reference(n: int) -> tuple[int, int]:
        steps = 0
        while n > 1 and steps < 9:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps, n

    wanted = np.zeros((4, 4, 16), np.int32)
    for p in range(4):
        for k in range(16):
            wanted[p, 0, k], wanted[p, 1, k] = reference(int(x[p, k]))
        even, odd = x[p, ::2], x[p, 1::2]
        low = np.minimum(even, odd)
        wanted[p, 2, ::2], wanted[p, 2, 1::2] = low, low + even + 100
        wanted[p, 3, ::2], wanted[p, 3, 1::2] = 2 * (odd + 100), 3 * (odd + 100)
    np.testing.assert_array_equal(out.numpy(), wanted)


# -- shapes --------------------------------------------------------------------------------------------------------------


@triton.jit
def high_rank(x_ptr, o_ptr, D: tl.constexpr):
    i = tl.arange(0, 2)[:, None, None, None] * 64 + tl.arange(0, 4)[None, :, None, None] * 16
    i = i + tl.arange(0, 2)[None, None, :, None] * 8 + tl.arange(0, 8)[None, None, None, :]
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, tl.cumsum(x, D))
    total = tl.sum(x, D, keep_dims=True)
    tl.store(o_ptr + 128 + i, total + tl.zeros([2, 4, 2, 8], x.dtype))
    tl.store(o_ptr + 256 + i, tl.flip(x, D))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_four_axes(axis: int) -> None:
    x = torch.randint(-9, 9, (2, 4, 2, 8), generator=torch.Generator().manual_seed(axis + 1), dtype=torch.int32)
    out = torch.zeros(3, 2, 4, 2, 8, dtype=torch.int32)
    high_rank[(1,)](x, out, D=axis)
    assert torch.equal(out[0], x.cumsum(axis).int())
    assert torch.equal(out[1], x.sum(axis, keepdim=True).expand_as(x).int())
    assert torch.equal(out[2], x.flip(axis))


@triton.jit
def masked_histogram(x_ptr, k_ptr, o_ptr, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    counts = tl.histogram(tl.load(x_ptr + i), BINS, mask=tl.load(k_ptr + i))
    tl.store(o_ptr + tl.program_id(0) * BINS + tl.arange(0, BINS), counts)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint32])
def test_histogram_per_program_with_a_mask(kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 16, (5, 64), generator=generator)
    mask = torch.rand(5, 64, generator=generator) < 0.5
    out = torch.zeros(5, 16, dtype=torch.int32)
    masked_histogram[(5,)](x.to(kind), mask, out, N=64, BINS=16)
    assert torch.equal(out, torch.stack([torch.bincount(row[m], minlength=16) for row, m in zip(x, mask, strict=True)]).int())
