"""Products of tiles, and functions mapped over their elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
import triton
import triton.language as tl

from tests.language.harness import Run, covers

M = tl.constexpr(16)
N = tl.constexpr(32)
K = tl.constexpr(64)


@triton.jit
def dots(a_ptr, b_ptr, c_ptr, o_ptr):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    at = m[:, None] * N + n[None, :]
    c = tl.load(c_ptr + at)
    tl.store(o_ptr + at, tl.dot(a, b, input_precision="ieee"))
    tl.store(o_ptr + M * N + at, tl.dot(a, b, c, input_precision="ieee"))
    tl.store(o_ptr + 2 * M * N + at, tl.dot(a, b, acc=c, input_precision="tf32x3", out_dtype=tl.float32))


@covers("tl.dot")
def products(run: Run) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(*shape, generator=generator) for shape in ((16, 64), (64, 32), (16, 32)))
    out = run.out(3, 16, 32)
    run(dots, (1,), a, b, c, out)
    product = a.double().numpy() @ b.double().numpy()
    run.close(out, np.stack([product, product + c.numpy(), product + c.numpy()]), rtol=1e-5, atol=1e-5)


@triton.jit
def scaled(a_ptr, sa_ptr, b_ptr, sb_ptr, o_ptr):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    g = tl.arange(0, 2)
    a = tl.load(a_ptr + m[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + n[None, :])
    sa = tl.load(sa_ptr + m[:, None] * 2 + g[None, :])
    sb = tl.load(sb_ptr + n[:, None] * 2 + g[None, :])
    tl.store(o_ptr + m[:, None] * N + n[None, :], tl.dot_scaled(a, sa, "e2m1", b, sb, "e4m3"))


@covers("tl.dot_scaled")
def scaled_products(run: Run) -> None:
    generator = np.random.default_rng(0)
    nibbles = generator.integers(0, 16, (16, 64)).astype(np.uint8)
    b = generator.normal(size=(64, 32)).astype(ml_dtypes.float8_e4m3fn)
    scales = [generator.integers(120, 135, shape).astype(np.uint8) for shape in ((16, 2), (32, 2))]
    packed = nibbles[:, ::2] | (nibbles[:, 1::2] << 4)
    out = run.out(16, 32)
    right = torch.from_numpy(b.view(np.uint8)).view(torch.float8_e4m3fn)
    run(scaled, (1,), torch.from_numpy(packed), torch.from_numpy(scales[0]), right, torch.from_numpy(scales[1]), out)
    left = nibbles.astype(np.int64)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[left & 7] * np.where(left & 8, -1, 1)
    factors = [np.repeat(2.0 ** (s.astype(np.int64) - 127), 32, 1) for s in scales]
    run.close(out, (values * factors[0]) @ (b.astype(np.float64) * factors[1].T), rtol=1e-6)


@triton.jit
def divide(a, b):
    if b == 0:
        quotient = 0
        rest = a
    else:
        quotient = a // b
        rest = a % b
    return quotient, rest


@triton.jit
def add_two(a0, a1, b0, b1):
    return a0 + b0, a1 - b1


@triton.jit
def mapped(a_ptr, b_ptr, o_ptr):
    i = tl.arange(0, N)
    a = tl.load(a_ptr + i)
    b = tl.load(b_ptr + i)
    quotient, rest = tl.map_elementwise(divide, a, b)
    tl.store(o_ptr + i, quotient)
    tl.store(o_ptr + N + i, rest)
    (both,) = tl.map_elementwise(add_two, a, b, pack=2)
    tl.store(o_ptr + 2 * N + i, both)


@covers("tl.map_elementwise")
def mapping(run: Run) -> None:
    generator = np.random.default_rng(2)
    a, b = (generator.integers(0, high, 32).astype(np.int32) for high in (100, 7))
    out = run.out(3, 32, dtype=torch.int32)
    run(mapped, (1,), torch.from_numpy(a), torch.from_numpy(b), out)
    safe = np.where(b == 0, 1, b)
    both = np.where(np.arange(32) % 2 == 0, a + b, a - b)
    run.equal(out, np.stack([np.where(b == 0, 0, a // safe), np.where(b == 0, a, a % safe), both]))
