"""``tl.atomic_poll`` waits for other programs, and gives up in time."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.kernels import capabilities

pytestmark = pytest.mark.skipif(not capabilities.atomic_poll(), reason="this Triton has no atomic_poll")


@triton.jit
def waiting(flag_ptr, x_ptr, o_ptr, n):
    p = tl.program_id(0)
    if p == n - 1:
        tl.store(x_ptr, 42)
        tl.atomic_store(flag_ptr, 1)
    tl.atomic_poll(flag_ptr, 1)
    tl.store(o_ptr + p, tl.load(x_ptr) + p)


@pytest.mark.parametrize("clients", [[], ["tracer"]])
@pytest.mark.parametrize("programs", [1, 5, 70000])
def test_programs_wait_for_the_last_one(programs: int, clients: list[str]) -> None:
    flag, x, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(programs, dtype=torch.int32)
    with tritontrace.session(clients=clients):
        waiting[(programs,)](flag, x, out, programs)
    assert torch.equal(out, 42 + torch.arange(programs, dtype=torch.int32))


def test_a_poll_that_nobody_answers_is_a_deadlock() -> None:
    flag, x, out = (torch.zeros(4, dtype=torch.int32) for _ in range(3))
    with tritontrace.session(), pytest.raises(tritontrace.DeadlockError) as caught:
        waiting[(2,)](flag, x, out, 9)
    assert caught.value.location is not None and caught.value.location.line == waiting.starting_line_number + 6


@triton.jit
def timed(flag_ptr, o_ptr, timeout: tl.constexpr):
    i = tl.arange(0, 4)
    p = tl.program_id(0)
    if p == 1:
        tl.atomic_xchg(flag_ptr + i, 3, mask=i % 2 == 0)
    seen = tl.atomic_poll(flag_ptr + i, 3, timeout_ns=timeout)
    tl.store(o_ptr + p * 4 + i, seen.to(tl.int32))


def test_a_timeout_ends_the_wait_of_the_elements_that_miss_it() -> None:
    flag, out = torch.zeros(4, dtype=torch.int32), torch.full((2, 4), 7, dtype=torch.int32)
    with tritontrace.session():
        timed[(2,)](flag, out, timeout=1000)
    assert out.tolist() == [[1, 0, 1, 0]] * 2


@triton.jit
def passing(flag_ptr, o_ptr):
    p = tl.program_id(0)
    i = tl.arange(0, 2)
    if p == 1:
        tl.store(flag_ptr, 5)
        tl.atomic_poll(flag_ptr + 1, 5)
        tl.store(flag_ptr, 6)
    else:
        tl.atomic_poll(flag_ptr, 5)
        tl.store(flag_ptr + 1, 5)
        tl.store(o_ptr + i, tl.atomic_poll(flag_ptr + i, tl.where(i == 0, 6, 5)).to(tl.int32))


def test_two_programs_answer_each_other() -> None:
    flag, out = torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    with tritontrace.session():
        passing[(2,)](flag, out)
    assert out.tolist() == [1, 1] and flag.tolist() == [6, 5]
