"""Where programs of one launch use a value at different lines, a finding tells the use of the program that it names."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit.test_undefined_lanes import line, run
from tritontrace import Numerics


@triton.jit
def uses_by_program_kernel(x, out, n, TILE: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    if program == 1:
        tl.store(out + TILE + at, a)  # second
    else:
        tl.store(out + program * TILE + at, a)  # others


@triton.jit
def uses_in_turn_kernel(x, out, n, TILE: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n - program)
    for i in range(2 - program):
        tl.store(out + program * TILE + at, a, mask=at < n - i)  # only the second program's last lane
    tl.store(out + program * TILE + at, a)  # all


def test_the_use_is_one_of_the_program_that_is_named() -> None:
    (finding,) = run(uses_by_program_kernel, (3,), torch.ones(16), torch.zeros(48), 10, TILE=16)
    second, others = line(uses_by_program_kernel, "second"), line(uses_by_program_kernel, "others")
    assert finding.use is not None and finding.use.line == others
    assert f":{others}, by program (0, 0, 0) and 1 more (and 1 more elsewhere);" in finding.message
    uses = finding.details["uses"].split("; ")
    assert len(uses) == 2 and uses[0].endswith(f":{others}") and uses[1].endswith(f":{second}")
    assert finding.programs[:, 0].tolist() == [0, 1, 2]
    (finding,) = run(uses_in_turn_kernel, (3,), torch.ones(16), torch.zeros(48), 10, TILE=16)
    assert finding.use is not None and finding.use.line == line(uses_in_turn_kernel, "all")
    assert "lanes 8 to 15 hold is stored" in finding.message and "by program (0, 0, 0) and 2 more;" in finding.message


@triton.jit
def non_finite_kernel(x, out, TILE: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, TILE)
    a = 1 / tl.load(x + at)
    if program == 1:
        tl.store(out + TILE + at, a + 1)  # second
    else:
        tl.store(out + program * TILE + at, a)  # others


def test_a_non_finite_value_reaches_the_store_of_the_program_that_is_named() -> None:
    with tritontrace.session(clients=[Numerics()]) as session:
        non_finite_kernel[(3,)](torch.zeros(16), torch.zeros(48), TILE=16)
    (finding,) = session.findings
    second, others = line(non_finite_kernel, "second"), line(non_finite_kernel, "others")
    assert finding.use is not None and finding.use.line == others
    assert "program (0, 0, 0) and 2 more" in finding.message and finding.message.endswith(f":{others}")
    assert [int(use.rpartition(":")[2]) for use in finding.details["uses"].split("; ")] == [second, others]
