"""Known faults 32, 33, 34, 35, 36, 37, 40: what is reported as out of bounds and what is not, and waiting for another program."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

import tritontrace


def line_of(kernel, text: str) -> int:
    """The line in this file of the only line of `kernel` that holds `text`."""
    source, first = kernel.raw_src, kernel.starting_line_number
    (index,) = [i for i, line in enumerate(source) if text in line]
    return first + index


@triton.jit
def gather_kernel(vals_ptr, bins_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    vals = tl.load(vals_ptr + lanes, mask=lanes < n, other=0)
    bins = tl.load(bins_ptr + 2 * lanes, mask=lanes < n, other=0)  # strided
    tl.store(out_ptr + lanes, vals + bins, mask=lanes < n)


def test_fault_32_a_strided_view_shorter_than_the_length() -> None:
    vals, base = torch.arange(4), torch.arange(5)
    bins = base[0::2]
    out = torch.zeros(4, dtype=torch.int64)
    with tritontrace.session(clients=["sanitizer"]) as session:
        gather_kernel[(1,)](vals, bins, out, 4, BLOCK=4)
    (finding,) = session.findings
    assert (finding.kind, finding.access, finding.tensor) == ("out_of_bounds", "load", "bins_ptr")
    assert finding.location.line == line_of(gather_kernel, "# strided")
    assert finding.location.file == __file__
    assert finding.elements.tolist() == [6]
    assert finding.programs.tolist() == [[0, 0, 0]]
    assert "6" in finding.message and "bins_ptr" in finding.message


@triton.jit
def next_pointer_kernel(x_ptr, out_ptr, K: tl.constexpr, B: tl.constexpr):
    p = x_ptr + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for _ in range(K):
        total += tl.load(p)
        p += B
    tl.store(out_ptr + tl.arange(0, B), total)


def test_fault_33_a_pointer_that_is_computed_and_never_used() -> None:
    x, out = torch.randn(32), torch.zeros(8)
    with tritontrace.session(clients=["sanitizer"]) as session:
        next_pointer_kernel[(1,)](x, out, K=4, B=8)
    assert session.findings == []
    torch.testing.assert_close(out, x.reshape(4, 8).sum(0))


@triton.jit
def index_kernel(x_ptr, index_ptr, out_ptr, B: tl.constexpr):
    lanes = tl.arange(0, B)
    tl.store(out_ptr + lanes, tl.load(x_ptr + tl.load(index_ptr + lanes)))


def test_fault_34_a_verdict_does_not_outlive_the_data() -> None:
    x, out = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    with tritontrace.session(clients=["sanitizer"]) as session:
        index_kernel[(1,)](x, torch.tensor([3, 2, 1, 0]), out, B=4)
        assert session.findings == []
        index_kernel[(1,)](x, torch.tensor([3, 9, 1, 0]), out, B=4)
    (finding,) = session.findings
    assert finding.elements.tolist() == [9]
    assert finding.launch is session.launches[1]
    assert out.tolist() == [3, 0, 1, 0]


@triton.jit
def carried_pointer_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    p = x_ptr + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for first in range(0, n, B):
        total += tl.load(p, mask=first + tl.arange(0, B) < n, other=0.0)
        p += B
    tl.store(out_ptr, tl.sum(total))


def test_fault_35_a_carried_pointer_with_a_tail_mask_is_clean() -> None:
    x, out = torch.randn(29), torch.zeros(1)
    with tritontrace.session(clients=["sanitizer"]) as session:
        carried_pointer_kernel[(1,)](x, out, 29, B=8)
    assert session.findings == []
    torch.testing.assert_close(out[0], x.sum())


@triton.jit
def triangle(x_ptr, pid, n):
    total = 0.0
    for i in range(pid + 1):
        total += tl.load(x_ptr + pid + i)  # last program: past the end
    return total


@triton.jit
def early_return_kernel(x_ptr, out_ptr, n):
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, 0.0)
    if pid == 0:
        return
    tl.store(out_ptr + pid, triangle(x_ptr, pid, n))  # the call


def test_fault_35_accesses_after_a_return_and_in_a_helpers_loop() -> None:
    x, out = torch.ones(6), torch.full((4,), -1.0)
    with tritontrace.session(clients=["sanitizer"]) as session:
        early_return_kernel[(4,)](x, out, 6)
    (finding,) = session.findings
    assert finding.tensor == "x_ptr" and finding.elements.tolist() == [6]
    assert finding.programs.tolist() == [[3, 0, 0]]
    assert finding.location.line == line_of(triangle, "# last program")
    assert finding.location.function == "triangle"
    assert [frame.line for frame in finding.call_stack] == [line_of(early_return_kernel, "# the call")]
    assert out.tolist() == [0.0, 2.0, 3.0, 3.0]


@triton.jit
def unmasked_store_kernel(out_ptr, M, N, stride, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    cols = tl.program_id(1) * B + tl.arange(0, B)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    value = tl.where(mask, 1.0, 2.0)
    tl.store(out_ptr + rows[:, None] * stride + cols[None, :], value)  # the mask is not given


def test_fault_36_every_cell_past_the_edge_and_no_other() -> None:
    """5 x 7 with tiles of 4 x 4: element r * 7 + c for rows and columns 0 .. 7, of which those from 35 on lie outside."""
    out = torch.zeros(5, 7)
    with tritontrace.session(clients=["sanitizer"]) as session:
        unmasked_store_kernel[(2, 2)](out, 5, 7, 7, B=4)
    (finding,) = session.findings
    assert (finding.access, finding.tensor) == ("store", "out_ptr")
    index = np.arange(8)[:, None] * 7 + np.arange(8)[None, :]
    assert finding.elements.tolist() == np.unique(index[index >= 35]).tolist()
    by_program = {}
    for x in range(2):
        for y in range(2):
            tile = index[4 * x : 4 * x + 4, 4 * y : 4 * y + 4]
            if (tile >= 35).any():
                by_program[x, y, 0] = np.unique(tile[tile >= 35]).tolist()
    assert {program: elements.tolist() for program, elements in finding.elements_by_program.items()} == by_program
    assert sorted(map(tuple, finding.programs.tolist())) == sorted(by_program)


@triton.jit
def wild_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    lanes = tl.program_id(0) * B + tl.arange(0, B)
    wild = tl.where(lanes < n, lanes, lanes.to(tl.int64) * 1_000_000_007_777 - 99_999)
    x = tl.load(x_ptr + wild, mask=lanes < n, other=-1.0)
    tl.store(out_ptr + wild, x + 1, mask=lanes < n)
    tl.atomic_add(out_ptr + wild, 1.0, mask=lanes < n)


def test_fault_37_masked_lanes_with_wild_addresses_are_no_finding() -> None:
    x, out = torch.randn(37), torch.zeros(37)
    with tritontrace.session(clients=["sanitizer"]) as session:
        wild_kernel[(5,)](x, out, 37, B=16)
    assert session.findings == []
    torch.testing.assert_close(out, x + 2)


@triton.jit
def one_iteration_kernel(x_ptr, out_ptr, steps, B: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.zeros([B], tl.float32)
    for i in range(steps):
        extra = tl.where((pid == 2) & (i == 3), 5, 0)
        total += tl.load(x_ptr + (pid * steps + i) * B + tl.arange(0, B) + extra)
    tl.store(out_ptr + pid * B + tl.arange(0, B), total)


def test_fault_37_one_program_in_one_iteration() -> None:
    x, out = torch.ones(3 * 4 * 8), torch.zeros(3 * 8)
    with tritontrace.session(clients=["sanitizer"]) as session:
        one_iteration_kernel[(3,)](x, out, 4, B=8)
    (finding,) = session.findings
    assert finding.programs.tolist() == [[2, 0, 0]]
    assert finding.elements.tolist() == [96, 97, 98, 99, 100]
    assert finding.iterations == ((3,),)
    assert out.tolist() == [4.0] * 19 + [3.0] * 5


@triton.jit
def spin_kernel(flag_ptr, data_ptr, out_ptr):
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag_ptr, 0) == 0:
            pass
        tl.store(out_ptr, tl.load(data_ptr))
    else:
        tl.store(data_ptr, 42)
        tl.atomic_xchg(flag_ptr, 1)


@triton.jit
def volatile_spin_kernel(flag_ptr, data_ptr, out_ptr):
    if tl.program_id(0) == 0:
        while tl.load(flag_ptr, volatile=True) == 0:
            pass
        tl.store(out_ptr, tl.load(data_ptr))
    else:
        tl.store(data_ptr, 42)
        tl.atomic_xchg(flag_ptr, 1)


def test_fault_40_a_program_that_waits_for_a_later_one_finishes() -> None:
    for kernel in (spin_kernel, volatile_spin_kernel):
        flag, data, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
        with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
            kernel[(2,)](flag, data, out)
        assert out.item() == 42
        assert session.launches[0].completed and session.findings == []
