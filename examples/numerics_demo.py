"""Where an infinity comes from, an index that overflows, and what cancellation costs: the numerics client."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Numerics


@triton.jit
def exponential(x):
    return tl.exp(x)  # a softmax without the maximum taken off


@triton.jit
def softmax_kernel(scores, out, columns, TILE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, TILE)
    x = tl.load(scores + row * columns + at, mask=at < columns, other=-float("inf"))
    e = exponential(x)
    tl.store(out + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


@triton.jit
def offsets_kernel(rows, out, stride, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(rows + at) * stride)


@triton.jit
def variance_kernel(values, out, columns, TILE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, TILE)
    x = tl.load(values + row * columns + at, mask=at < columns, other=0.0)
    mean = tl.sum(x, 0) / columns
    tl.store(out + row, tl.sum(x * x, 0) / columns - mean * mean)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 50, generator=generator)
    scores[2, 7] = 100.0
    rows = torch.tensor([0, 1, 70_000, 3], dtype=torch.int32)
    values = 500 + torch.randn(4, 100, generator=generator)
    with tritontrace.session(clients=[Numerics(shadow=True)]) as session:
        softmax_kernel[(4,)](scores, torch.empty_like(scores), 50, TILE=64)
        offsets_kernel[(1,)](rows, torch.empty_like(rows), 50_000, TILE=4)
        variance_kernel[(4,)](values, torch.empty(4), 100, TILE=128)
    infinity, overflow = session.findings
    assert infinity.programs.tolist() == [[2, 0, 0]] and infinity.details["operation"] == "exp"
    assert overflow.kind == "integer_overflow" and overflow.lanes is not None and overflow.lanes.tolist() == [2]
    (precision,) = session.launches[2].records["numerics"]
    assert precision.max_relative > 1e-4
    print(session.report())


if __name__ == "__main__":
    main()
