"""Classes of several values (``triton.language.core._aggregate``).

No ``from __future__ import annotations`` here: Triton 3.6 wants the fields' annotations as objects.
"""

import pytest
import torch
import triton
import triton.language as tl

import tritontrace


@tl.core._aggregate
class Accumulator:
    total: tl.tensor
    count: tl.tensor
    STEP: tl.constexpr

    @triton.constexpr_function
    def __init__(self, total, count, STEP):
        self.total = total
        self.count = count
        self.STEP = tl.constexpr(STEP)

    @triton.jit
    def add(self, value):
        return Accumulator(self.total + value * self.STEP, self.count + 1, self.STEP)

    @triton.jit
    def mean(self):
        return self.total // self.count


@triton.jit
def aggregated(o_ptr, n):
    acc = Accumulator(n * 0, n * 0, 10)
    for i in range(n):
        acc = acc.add(i)
    if n > 3:
        acc = acc.add(1000)
    tl.store(o_ptr + 0, acc.total)
    tl.store(o_ptr + 1, acc.count)
    tl.store(o_ptr + 2, acc.mean())


@pytest.mark.parametrize("n", [2, 5])
def test_aggregates_in_loops_and_branches(n: int) -> None:
    total, count = 10 * sum(range(n)), n
    if n > 3:
        total, count = total + 10000, count + 1
    out = torch.zeros(3, dtype=torch.int32)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        aggregated[(1,)](out, n)
    assert out.tolist() == [total, count, total // count] and not session.findings
