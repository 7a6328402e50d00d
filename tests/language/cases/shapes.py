"""Making, reshaping, joining and picking."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.language.harness import Run, covers

M = tl.constexpr(4)
N = tl.constexpr(8)


@triton.jit
def made(o_ptr):
    i = tl.arange(0, N)
    tl.store(o_ptr + 0 * N + i, tl.full([N], 3, tl.float32))
    tl.store(o_ptr + 1 * N + i, tl.full((N,), 2.5, dtype=tl.float32))
    tl.store(o_ptr + 2 * N + i, tl.zeros([N], dtype=tl.float32))
    tl.store(o_ptr + 3 * N + i, tl.standard.zeros((N,), tl.float32))
    tl.store(o_ptr + 4 * N + i, tl.zeros_like(i))
    tl.store(o_ptr + 5 * N + i, tl.standard.zeros_like(i))
    tl.store(o_ptr + 6 * N + i, tl.arange(8, 16))
    one, _ = tl.broadcast(tl.full([1], 4, tl.float32), tl.zeros([N], tl.float32))
    tl.store(o_ptr + 7 * N + i, one)
    tl.store(o_ptr + 8 * N + i, tl.broadcast_to(tl.full([1], 6, tl.float32), [N]))
    tl.store(o_ptr + 9 * N + i, tl.full([1], 7, tl.float32).broadcast_to(N))


@covers(
    "tl.full tl.zeros tl.standard.zeros tl.zeros_like tl.standard.zeros_like tl.arange tl.broadcast tl.broadcast_to",
    "tensor.broadcast_to",
)
def making(run: Run) -> None:
    out = run.out(10, 8)
    run(made, (1,), out)
    rows = [3, 2.5, 0, 0, 0, 0, None, 4, 6, 7]
    run.equal(out, np.stack([np.arange(8.0, 16) if v is None else np.full(8, v) for v in rows]))


@triton.jit
def moved(x_ptr, o_ptr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    turned = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + at)
    S: tl.constexpr = M * N
    tl.store(o_ptr + 0 * S + turned, tl.trans(x))
    tl.store(o_ptr + 1 * S + turned, x.T)
    tl.store(o_ptr + 2 * S + turned, x.trans(1, 0))
    tl.store(o_ptr + 3 * S + turned, tl.permute(x, (1, 0)))
    tl.store(o_ptr + 4 * S + turned, x.permute(1, 0))
    tl.store(o_ptr + 5 * S + turned, tl.reshape(x, (N, M)))
    tl.store(o_ptr + 6 * S + turned, x.reshape(N, M))
    tl.store(o_ptr + 7 * S + turned, tl.view(x, (N, M)))
    tl.store(o_ptr + 8 * S + turned, x.view(N, M))
    flat = tl.arange(0, S)
    tl.store(o_ptr + 9 * S + flat, tl.ravel(x))
    tl.store(o_ptr + 10 * S + flat, x.ravel())
    tl.store(o_ptr + 11 * S + flat, tl.standard.ravel(x))
    tl.store(o_ptr + 12 * S + at, tl.expand_dims(tl.sum(x, 1), 1) + x)
    tl.store(o_ptr + 13 * S + at, x.sum(0).expand_dims(0) + x)
    tl.store(o_ptr + 14 * S + at, tl.sum(x, 0)[None, :] + x)
    tl.static_assert(x.shape[0] == M)
    tl.static_assert(x.type.is_block())
    tl.static_assert(x.numel == S)


@covers(
    "tl.trans tensor.T tensor.trans tl.permute tensor.permute tl.reshape tensor.reshape tl.view tensor.view tl.ravel",
    "tensor.ravel tl.standard.ravel tl.expand_dims tensor.expand_dims tensor.__getitem__ tl.static_assert",
)
def moving(run: Run) -> None:
    x = torch.arange(32.0).reshape(4, 8)
    out = run.out(15, 32)
    run(moved, (1,), x, out)
    a = x.numpy()
    columns = a.sum(0, keepdims=True) + a
    wanted = [a.T] * 5 + [a] * 7 + [a.sum(1, keepdims=True) + a, columns, columns]
    run.equal(out, np.stack([np.ascontiguousarray(w).ravel() for w in wanted]))


@triton.jit
def dims(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    wide = tl.unsqueeze(x, 0)
    tl.static_assert(wide.shape[0] == 1)
    tl.store(o_ptr + i, tl.squeeze(wide, 0))
    tl.store(o_ptr + N + i, tl.standard.squeeze(tl.standard.unsqueeze(x, 1), 1) * 2)


@covers("tl.squeeze tl.unsqueeze tl.standard.squeeze tl.standard.unsqueeze", needs=("tl.squeeze",))
def squeezing(run: Run) -> None:
    x = torch.arange(8.0)
    out = run.out(2, 8)
    run(dims, (1,), x, out)
    run.equal(out, torch.stack([x, 2 * x]))


@triton.jit
def put_together(x_ptr, y_ptr, o_ptr, s_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    pair = tl.arange(0, 2 * N)
    joined = tl.join(x, y)
    tl.store(o_ptr + 0 * 2 * N + pair, joined.reshape(2 * N))
    tl.store(o_ptr + 1 * 2 * N + pair, tl.join(x, y).reshape(2 * N))
    tl.store(o_ptr + 2 * 2 * N + pair, tl.interleave(x, y))
    tl.store(o_ptr + 3 * 2 * N + pair, tl.standard.interleave(y, x))
    tl.store(o_ptr + 4 * 2 * N + pair, tl.cat(x, y, can_reorder=True))
    first, second = tl.split(joined)
    tl.store(s_ptr + i, first)
    tl.store(s_ptr + N + i, second)
    first, second = joined.split()
    tl.store(s_ptr + 2 * N + i, second)


@covers("tl.join tl.interleave tl.standard.interleave tl.cat tl.split tensor.split")
def joining(run: Run) -> None:
    x, y = torch.arange(8.0), torch.arange(8.0) + 100
    out, parts = run.out(5, 16), run.out(3, 8)
    run(put_together, (1,), x, y, out, parts)
    woven, other = torch.stack([x, y], 1).ravel(), torch.stack([y, x], 1).ravel()
    run.equal(out, torch.stack([woven, woven, woven, other, torch.cat([x, y])]))
    run.equal(parts, torch.stack([x, y, y]))


@triton.jit
def picked(x_ptr, k_ptr, o_ptr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    k = tl.load(k_ptr + at)
    tl.store(o_ptr + at, tl.gather(x, k, 1))
    tl.store(o_ptr + M * N + at, x.gather(k % 4, 0))


@covers("tl.gather tensor.gather")
def gathering(run: Run) -> None:
    x = torch.arange(32.0).reshape(4, 8)
    k = torch.randint(0, 8, (4, 8), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    out = run.out(2, 4, 8)
    run(picked, (1,), x, k, out)
    run.equal(out, torch.stack([torch.gather(x, 1, k.long()), torch.gather(x, 0, k.long() % 4)]))


@triton.jit
def swizzled(o_ptr):
    i = tl.arange(0, N)
    size = tl.arange(0, 4)
    a, b = tl.swizzle2d(i // 4, i % 4, 2, 4, 2)
    c, d = tl.standard.swizzle2d(i // 2, i % 2, 4, 2, 3)
    tl.store(o_ptr + 0 * N + i, a)
    tl.store(o_ptr + 1 * N + i, b)
    tl.store(o_ptr + 2 * N + i, c)
    tl.store(o_ptr + 3 * N + i, d + size.sum() * 0)


@covers("tl.swizzle2d tl.standard.swizzle2d")
def swizzling(run: Run) -> None:
    out = run.out(4, 8, dtype=torch.int32)
    run(swizzled, (1,), out)

    def reference(rows: int, columns: int, group: int) -> list[np.ndarray]:
        # Groups of `group` rows are walked column by column.
        order = [(r, c) for g in range(0, rows, group) for c in range(columns) for r in range(g, min(g + group, rows))]
        return [np.array([r for r, _ in order]), np.array([c for _, c in order])]

    run.equal(out, np.stack([*reference(2, 4, 2), *reference(4, 2, 3)]))


@triton.jit
def one_element(x_ptr, o_ptr):
    x = tl.load(x_ptr + tl.arange(0, 1))
    tl.store(o_ptr, x.item() + 1)


@covers("tensor.item")
def the_only_element(run: Run) -> None:
    out = run.out(1)
    run(one_element, (1,), torch.tensor([41.0]), out)
    run.equal(out, [42.0])
