"""Whether a launch depends on the order of its programs: `check_determinism` on a histogram and on two sums."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tritontrace import check_determinism


@triton.jit
def histogram_kernel(values, counts, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    bins = tl.load(values + at, mask=at < n, other=0)
    tl.atomic_add(counts + bins, 1, mask=at < n)


@triton.jit
def sum_kernel(values, total, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.atomic_add(total, tl.sum(tl.load(values + at, mask=at < n, other=0.0), 0))


@triton.jit
def forgotten_atomic_kernel(values, total, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    part = tl.sum(tl.load(values + at, mask=at < n, other=0.0), 0)
    tl.store(total, tl.load(total) + part)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    bins = torch.randint(0, 8, (1000,), generator=generator, dtype=torch.int32)
    values = torch.randn(1000, generator=generator)
    grid = (triton.cdiv(1000, 32),)
    integers = check_determinism(histogram_kernel, bins, torch.zeros(8, dtype=torch.int32), 1000, TILE=32, grid=grid)
    floats = check_determinism(sum_kernel, values, torch.zeros(1), 1000, TILE=32, grid=grid)
    race = check_determinism(forgotten_atomic_kernel, values, torch.zeros(1), 1000, TILE=32, grid=grid)
    assert integers.deterministic and not floats.deterministic and not race.deterministic
    assert floats.differences[0].max_difference < 1e-4 < race.differences[0].max_difference
    for name, found in (("histogram", integers), ("sum", floats), ("forgotten atomic", race)):
        print(f"{name}: {found.report()}")


if __name__ == "__main__":
    main()
