"""What the sanitizers are measured on: kernels of the kinds that triton-viz's own sanitizer benchmark has, and launches of them.

Nothing here imports a sanitizer: the same module is loaded in the environment of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, m, n, k, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * sam + inner[None, :] * sak
    right = b + inner[:, None] * sbk + cols[None, :] * sbn
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        x = tl.load(left, mask=inner[None, :] < k - step, other=0.0)
        y = tl.load(right, mask=inner[:, None] < k - step, other=0.0)
        total += tl.dot(x, y)
        left += BK * sak
        right += BK * sbk
    tl.store(c + rows[:, None] * scm + cols[None, :] * scn, total, mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def gemm_kernel(
    a, b, c, m, n, k, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(0)
    down = tl.cdiv(m, BM)
    across = tl.cdiv(n, BN)
    band = GROUP * across
    first = pid // band * GROUP
    height = tl.minimum(down - first, GROUP)
    row = first + pid % band % height
    col = pid % band // height
    rows = (row * BM + tl.arange(0, BM)) % m
    cols = (col * BN + tl.arange(0, BN)) % n
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        at = step * BK + inner
        x = tl.load(a + rows[:, None] * sam + at[None, :], mask=at[None, :] < k, other=0.0)
        y = tl.load(b + at[:, None] * sbk + cols[None, :], mask=at[:, None] < k, other=0.0)
        total += tl.dot(x, y)
    rows = row * BM + tl.arange(0, BM)
    cols = col * BN + tl.arange(0, BN)
    tl.store(c + rows[:, None] * scm + cols[None, :], total, mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def indirect_kernel(index, table, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = at < n
    where = tl.load(index + at, mask=live, other=0)
    tl.store(out + at, tl.load(table + where, mask=live, other=0.0), mask=live)


@triton.jit
def nested_kernel(x, out, rows, cols, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    base = tl.program_id(0) * rows * cols
    for row in range(rows):
        for col in range(0, cols, TILE):
            at = base + row * cols + col + lanes
            live = col + lanes < cols
            tl.store(out + at, tl.load(x + at, mask=live, other=0.0) * 2, mask=live)


@triton.jit
def block_pointer_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    col = tl.program_id(1) * BN
    left = tl.make_block_ptr(a, (m, k), (k, 1), (row, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (k, n), (n, 1), (0, col), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        x = tl.load(left, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(right, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(x, y)
        left = tl.advance(left, (0, BK))
        right = tl.advance(right, (BK, 0))
    target = tl.make_block_ptr(c, (m, n), (n, 1), (row, col), (BM, BN), (1, 0))
    tl.store(target, total, boundary_check=(0, 1))


@triton.jit
def jensen_shannon_kernel(x, y, loss, grad, cols, weight, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    for start in range(0, cols, TILE):
        at = start + tl.arange(0, TILE)
        live = at < cols
        p = tl.load(x + row + at, mask=live, other=float("-inf"))
        q = tl.load(y + row + at, mask=live, other=float("-inf"))
        ep = tl.exp(p)
        eq = tl.exp(q)
        mean = weight * ep + (1 - weight) * eq
        log_mean = tl.log(mean)
        tl.store(loss + row + at, weight * ep * (p - log_mean) + (1 - weight) * eq * (q - log_mean), mask=live)
        tl.store(grad + row + at, weight * ep * (p - log_mean), mask=live)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, mean, rstd, cols, eps, TILE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, TILE)
    live = at < cols
    values = tl.load(x + row * cols + at, mask=live, other=0.0)
    center = tl.sum(values, 0) / cols
    apart = tl.where(live, values - center, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / cols + eps)
    tl.store(mean + row, center)
    tl.store(rstd + row, scale)
    w = tl.load(weight + at, mask=live, other=0.0)
    b = tl.load(bias + at, mask=live, other=0.0)
    tl.store(out + row * cols + at, apart * scale * w + b, mask=live)


@triton.jit
def swiglu_kernel(gate, up, out, cols, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    at = tl.arange(0, TILE)
    live = at < cols
    g = tl.load(gate + row + at, mask=live, other=0.0)
    u = tl.load(up + row + at, mask=live, other=0.0)
    tl.store(out + row + at, g * tl.sigmoid(g) * u, mask=live)


@triton.jit
def cross_entropy_kernel(logits, target, loss, cols, ignored, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    wanted = tl.load(target + row)
    logits += row * cols
    if wanted == ignored:
        for start in range(0, cols, TILE):
            at = start + tl.arange(0, TILE)
            tl.store(logits + at, 0.0, mask=at < cols)
        return
    own = tl.load(logits + wanted)
    top = float("-inf")
    total = 0.0
    for start in range(0, cols, TILE):
        at = start + tl.arange(0, TILE)
        part = tl.load(logits + at, mask=at < cols, other=float("-inf"))
        higher = tl.maximum(top, tl.max(part, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(part - higher), 0)
        top = higher
    for start in range(0, cols, TILE):
        at = start + tl.arange(0, TILE)
        part = tl.load(logits + at, mask=at < cols, other=float("-inf"))
        tl.store(logits + at, tl.exp(part - top) / total, mask=at < cols)
    tl.store(loss + row, top + tl.log(total) - own)


@triton.jit
def add_kernel(x, y, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = at < n
    tl.store(out + at, tl.load(x + at, mask=live, other=0.0) + tl.load(y + at, mask=live, other=0.0), mask=live)


@triton.jit
def histogram_kernel(x, counts, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = at < n
    tl.atomic_add(counts + tl.load(x + at, mask=live, other=0), 1, mask=live, sem="relaxed")


Make = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Sanitized:
    """One launch: `arguments(make, size)` are its tensors and numbers, tensors by `make(shape)`; those in `real` hold data.

    `warm` is another size with the same program: it is launched first, so that no measured launch has to build it.
    `short` names the tensor that loses its last element where a fault is planted.
    """

    name: str
    kernel: Any
    size: tuple[int, ...]
    warm: tuple[int, ...]
    grid: Callable[..., tuple[int, ...]]
    arguments: Callable[..., dict[str, Any]]
    constants: dict[str, int]
    short: str
    target: float = 4.0
    beside: bool = True
    """Whether executing it takes seconds at most."""

    def values(self, size: tuple[int, ...], device: str, fault: bool = False) -> dict[str, Any]:
        """The launch's arguments; data that decides an address is always real."""

        def make(*shape: int) -> torch.Tensor:
            if device == "meta":
                return torch.empty(shape, device="meta")
            return torch.rand(shape, generator=torch.Generator().manual_seed(0))

        values = self.arguments(make, *size)
        if fault:
            values[self.short] = values[self.short].reshape(-1)[:-1]
        return values


def _matrices(make: Make, m: int, n: int, k: int) -> dict[str, Any]:
    return {"a": make(m, k), "b": make(k, n), "c": make(m, n), "m": m, "n": n, "k": k}


def _integers(low: int, high: int, count: int) -> torch.Tensor:
    return torch.randint(low, high, (count,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)


_TILES = {"BM": 64, "BN": 64, "BK": 32}


def _tiled(m: int, n: int, k: int) -> tuple[int, int]:
    return triton.cdiv(m, 64), triton.cdiv(n, 64)


CASES: tuple[Sanitized, ...] = (
    Sanitized(
        "matmul 4096^3",
        matmul_kernel,
        (4096, 4096, 4096),
        (512, 512, 512),
        _tiled,
        lambda make, m, n, k: _matrices(make, m, n, k) | {"sam": k, "sak": 1, "sbk": n, "sbn": 1, "scm": n, "scn": 1},
        _TILES,
        short="c",
        target=25.0,
        beside=False,
    ),
    Sanitized(
        "gemm 1024^3, grouped order",
        gemm_kernel,
        (1024, 1024, 1024),
        (512, 512, 512),
        lambda m, n, k: (triton.cdiv(m, 64) * triton.cdiv(n, 64),),
        lambda make, m, n, k: _matrices(make, m, n, k) | {"sam": k, "sbk": n, "scm": n},
        _TILES | {"GROUP": 8},
        short="b",
    ),
    Sanitized(
        "indirect load 16384",
        indirect_kernel,
        (16384,),
        (2048,),
        lambda n: (triton.cdiv(n, 1024),),
        lambda make, n: {"index": _integers(0, n, n), "table": make(n), "out": make(n), "n": n},
        {"TILE": 1024},
        short="out",
    ),
    Sanitized(
        "nested loops 64x64x1024",
        nested_kernel,
        (64, 64, 1024),
        (32, 32, 512),
        lambda p, rows, cols: (p,),
        lambda make, p, rows, cols: {"x": make(p, rows, cols), "out": make(p, rows, cols), "rows": rows, "cols": cols},
        {"TILE": 128},
        short="x",
    ),
    Sanitized(
        "block pointers 1024^3",
        block_pointer_kernel,
        (1024, 1024, 1024),
        (512, 512, 512),
        _tiled,
        _matrices,
        _TILES,
        short="a",
    ),
    Sanitized(
        "jensen-shannon 256x8192",
        jensen_shannon_kernel,
        (256, 8192),
        (64, 4096),
        lambda rows, cols: (rows,),
        lambda make, rows, cols: {name: make(rows, cols) for name in ("x", "y", "loss", "grad")} | {"cols": cols, "weight": 0.25},
        {"TILE": 1024},
        short="grad",
    ),
    Sanitized(
        "layer norm 4096x1000",
        layer_norm_kernel,
        (4096, 1000),
        (64, 1000),
        lambda rows, cols: (rows,),
        lambda make, rows, cols: {
            "x": make(rows, cols), "weight": make(cols), "bias": make(cols), "out": make(rows, cols),
            "mean": make(rows), "rstd": make(rows), "cols": cols, "eps": 1e-5,
        },
        {"TILE": 1024},
        short="rstd",
    ),
    Sanitized(
        "swiglu 4096x1000",
        swiglu_kernel,
        (4096, 1000),
        (64, 1000),
        lambda rows, cols: (rows,),
        lambda make, rows, cols: {name: make(rows, cols) for name in ("gate", "up", "out")} | {"cols": cols},
        {"TILE": 1024},
        short="up",
    ),
    Sanitized(
        "cross entropy 256x8192",
        cross_entropy_kernel,
        (256, 8192),
        (64, 4096),
        lambda rows, cols: (rows,),
        lambda make, rows, cols: {
            "logits": make(rows, cols), "target": _integers(0, cols, rows), "loss": make(rows), "cols": cols, "ignored": -100,
        },
        {"TILE": 1024},
        short="loss",
    ),
)


def by_name(name: str) -> Sanitized:
    """The case `name`."""
    return next(case for case in CASES if case.name == name)
