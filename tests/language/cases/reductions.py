"""Reductions, scans, sorting, counting."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.language.harness import Run, covers

M = tl.constexpr(8)
N = tl.constexpr(16)


def tile(seed: int = 0) -> torch.Tensor:
    """8 x 16 floats without ties."""
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))


@triton.jit
def add_function(a, b):
    return a + b


@triton.jit
def reduced(x_ptr, o_ptr, k_ptr):
    i = tl.arange(0, M)
    x = tl.load(x_ptr + i[:, None] * N + tl.arange(0, N)[None, :])
    k = tl.load(k_ptr + i[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(o_ptr + 0 * M + i, tl.sum(x, 1))
    tl.store(o_ptr + 1 * M + i, x.sum(axis=1))
    tl.store(o_ptr + 2 * M + i, tl.standard.sum(x, axis=1, keep_dims=True).reshape(M))
    tl.store(o_ptr + 3 * M + i, tl.max(x, 1))
    tl.store(o_ptr + 4 * M + i, x.max(1))
    tl.store(o_ptr + 5 * M + i, tl.standard.max(x, 1))
    tl.store(o_ptr + 6 * M + i, tl.min(x, 1))
    tl.store(o_ptr + 7 * M + i, x.min(1))
    tl.store(o_ptr + 8 * M + i, tl.standard.min(x, 1))
    tl.store(o_ptr + 9 * M + i, tl.argmax(x, 1))
    tl.store(o_ptr + 10 * M + i, x.argmax(1))
    tl.store(o_ptr + 11 * M + i, tl.standard.argmax(x, 1, tie_break_left=False))
    tl.store(o_ptr + 12 * M + i, tl.argmin(x, 1))
    tl.store(o_ptr + 13 * M + i, x.argmin(1))
    tl.store(o_ptr + 14 * M + i, tl.standard.argmin(x, 1, tie_break_left=False))
    tl.store(o_ptr + 15 * M + i, tl.xor_sum(k, 1))
    tl.store(o_ptr + 16 * M + i, k.xor_sum(1))
    tl.store(o_ptr + 17 * M + i, tl.standard.xor_sum(k, 1))
    tl.store(o_ptr + 18 * M + i, tl.reduce_or(k, 1))
    tl.store(o_ptr + 19 * M + i, k.reduce_or(1))
    tl.store(o_ptr + 20 * M + i, tl.standard.reduce_or(k, 1))
    tl.store(o_ptr + 21 * M + i, tl.reduce(x, 1, add_function))
    tl.store(o_ptr + 22 * M + i, x.reduce(1, add_function, keep_dims=False))
    tl.store(o_ptr + 23 * M + i, tl.sum(x) + tl.zeros([M], tl.float32))
    value, index = tl.max(x, 1, return_indices=True)
    tl.store(o_ptr + 24 * M + i, value)
    tl.store(o_ptr + 25 * M + i, index)
    value, index = tl.min(x, 1, return_indices=True, return_indices_tie_break_left=False)
    tl.store(o_ptr + 26 * M + i, value)
    tl.store(o_ptr + 27 * M + i, index)


NAMES = "sum max min argmax argmin xor_sum reduce_or".split()


@covers(*(f"tl.{name} tensor.{name} tl.standard.{name}" for name in NAMES), "tl.reduce tensor.reduce tl.zeros tensor.reshape")
def reductions(run: Run) -> None:
    x = tile()
    k = torch.randint(0, 1000, (8, 16), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    out = run.out(28, 8)
    run(reduced, (1,), x, out, k)
    a, b = x.double().numpy(), k.numpy()
    xor, joined = np.bitwise_xor.reduce(b, 1), np.bitwise_or.reduce(b, 1)
    wanted = [a.sum(1)] * 3 + [a.max(1)] * 3 + [a.min(1)] * 3 + [a.argmax(1)] * 3 + [a.argmin(1)] * 3 + [xor] * 3 + [joined] * 3
    wanted += [a.sum(1)] * 2 + [np.full(8, a.sum()), a.max(1), a.argmax(1), a.min(1), a.argmin(1)]
    run.close(out, np.stack(wanted), rtol=1e-5, atol=1e-5)


@triton.jit
def first_order(a0, a1, b0, b1):
    return a0 * b0, a1 * b0 + b1


@triton.jit
def scanned(x_ptr, y_ptr, o_ptr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    y = tl.load(y_ptr + at)
    tl.store(o_ptr + 0 * M * N + at, tl.cumsum(x, 1))
    tl.store(o_ptr + 1 * M * N + at, x.cumsum(0))
    tl.store(o_ptr + 2 * M * N + at, tl.standard.cumsum(x, 1, reverse=True))
    tl.store(o_ptr + 3 * M * N + at, tl.cumprod(x, 1))
    tl.store(o_ptr + 4 * M * N + at, x.cumprod(0))
    tl.store(o_ptr + 5 * M * N + at, tl.standard.cumprod(x, 1, reverse=True))
    tl.store(o_ptr + 6 * M * N + at, tl.associative_scan(x, 1, add_function))
    tl.store(o_ptr + 7 * M * N + at, x.associative_scan(0, add_function, reverse=True))
    a, b = tl.associative_scan((x, y), 1, first_order)
    tl.store(o_ptr + 8 * M * N + at, a)
    tl.store(o_ptr + 9 * M * N + at, b)
    a, b = tl.associative_scan((x, y), 1, first_order, reverse=True)
    tl.store(o_ptr + 10 * M * N + at, b)


@covers(
    "tl.cumsum tensor.cumsum tl.standard.cumsum tl.cumprod tensor.cumprod tl.standard.cumprod tl.associative_scan",
    "tensor.associative_scan",
)
def scans(run: Run) -> None:
    x, y = tile(2), tile(3)
    out = run.out(11, 8, 16)
    run(scanned, (1,), x, y, out)
    a, b = x.double().numpy(), y.double().numpy()

    def states(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        state, all_states = np.zeros(8), []
        for column in range(16):
            state = state * a[:, column] + b[:, column]
            all_states.append(state)
        return np.stack(all_states, 1)

    wanted = [a.cumsum(1), a.cumsum(0), a[:, ::-1].cumsum(1)[:, ::-1], a.cumprod(1), a.cumprod(0)]
    wanted += [a[:, ::-1].cumprod(1)[:, ::-1], a.cumsum(1), a[::-1].cumsum(0)[::-1], a.cumprod(1), states(a, b)]
    wanted += [states(a[:, ::-1], b[:, ::-1])[:, ::-1]]
    run.close(out, np.stack(wanted), rtol=1e-4, atol=1e-5)


@triton.jit
def sorted_rows(x_ptr, o_ptr, t_ptr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(o_ptr + 0 * M * N + at, tl.sort(x))
    tl.store(o_ptr + 1 * M * N + at, tl.sort(x, descending=True))
    tl.store(o_ptr + 2 * M * N + at, tl.standard.sort(x, 1, descending=False))
    tl.store(o_ptr + 3 * M * N + at, tl.standard.sort_impl(x, descending=True))
    tl.store(o_ptr + 4 * M * N + at, tl.flip(x, 1))
    tl.store(o_ptr + 5 * M * N + at, x.flip(0))
    tl.store(o_ptr + 6 * M * N + at, tl.standard.flip(x, -1))
    # Two sorted halves that fall and rise: what a merge takes.
    half = tl.arange(0, N)[None, :]
    bitonic = tl.where(half < 8, half * 2, 31 - 2 * half).to(tl.float32) + tl.zeros([M, N], tl.float32)
    tl.store(o_ptr + 7 * M * N + at, tl.bitonic_merge(bitonic))
    tl.store(o_ptr + 8 * M * N + at, tl.standard.bitonic_merge(bitonic, 1, True))
    top = tl.arange(0, M)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(t_ptr + top, tl.topk(x, 4))
    tl.store(t_ptr + M * 4 + top, tl.standard.topk(x, 4, 1))


@covers(
    "tl.sort tl.standard.sort tl.standard.sort_impl tl.flip tensor.flip tl.standard.flip tl.bitonic_merge",
    "tl.standard.bitonic_merge tl.topk tl.standard.topk",
)
def sorting(run: Run) -> None:
    x = tile(4)
    out, top = run.out(9, 8, 16), run.out(2, 8, 4)
    run(sorted_rows, (1,), x, out, top)
    a = x.numpy()
    up, down, ramp = np.sort(a, 1), np.sort(a, 1)[:, ::-1], np.broadcast_to(np.arange(16.0), (8, 16))
    run.equal(out, np.stack([up, down, up, down, a[:, ::-1], a[::-1], a[:, ::-1], ramp, ramp[:, ::-1]]))
    run.equal(top, np.stack([down[:, :4]] * 2))


@triton.jit
def counted(x_ptr, o_ptr, n):
    i = tl.arange(0, 64)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + tl.arange(0, 8), tl.histogram(x, 8))
    tl.store(o_ptr + 8 + tl.arange(0, 8), x.histogram(8, mask=i < n))


@covers("tl.histogram tensor.histogram")
def histograms(run: Run) -> None:
    x = torch.randint(0, 8, (64,), generator=torch.Generator().manual_seed(5), dtype=torch.int32)
    out = run.out(2, 8, dtype=torch.int32)
    run(counted, (1,), x, out, 37)
    run.equal(out, np.stack([np.bincount(x.numpy(), minlength=8), np.bincount(x.numpy()[:37], minlength=8)]))
