"""Equal expressions on several lines are computed once, but what is told of their values names the right line."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import triton
import triton.language as tl

import tritontrace


def line(kernel: Any, tag: str) -> int:
    lines, start = inspect.getsourcelines(kernel.fn)
    (found,) = [start + i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {tag}")]
    return found


@triton.jit
def quotient_twice(a_ptr, b_ptr, out_ptr):
    a, b = tl.load(a_ptr), tl.load(b_ptr)
    first = a / b
    tl.store(out_ptr, first, mask=a > 5)
    second = a / b  # the one that is stored
    tl.store(out_ptr, second)


def test_a_non_finite_value_is_that_of_the_line_whose_result_is_stored() -> None:
    with tritontrace.session("numerics") as session:
        quotient_twice[(1,)](torch.ones(1), torch.zeros(1), torch.zeros(1))
    (finding,) = session.findings
    assert finding.location is not None and finding.location.line == line(quotient_twice, "the one that is stored")


@triton.jit
def narrowed_thrice(x_ptr, out_ptr):
    x = tl.load(x_ptr)
    tl.store(out_ptr, x.to(tl.float16))
    tl.store(out_ptr + 1, x.to(tl.float16))
    tl.store(out_ptr + 2, x.to(tl.float16))


def test_each_line_that_overflows_is_told() -> None:
    with tritontrace.session("numerics") as session:
        narrowed_thrice[(1,)](torch.full((1,), 1e6), torch.zeros(3, dtype=torch.float16))
    assert len({finding.location.line for finding in session.findings if finding.location is not None}) == 3
