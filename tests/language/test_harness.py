"""A case cannot claim what it does not do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.language.harness import Case, Run


def new_kernel() -> Any:
    """A kernel that was never compiled: what is compiled already is not looked up again."""

    @triton.jit
    def plain(x_ptr, o_ptr, FLAG: tl.constexpr):
        # tl.cos in a comment, "tl.cos" in a string, and in code that is not compiled:
        if FLAG:
            x = tl.cos(tl.load(x_ptr))
        else:
            x = tl.sin(tl.load(x_ptr))
        tl.static_assert(True, "tl.cos")
        tl.store(o_ptr, x)

    return plain


def check(flag: bool, expected: float, names: str = "tl.cos", out_from: float = 77.0) -> None:
    def run(run: Run) -> None:
        out = run.inout(torch.tensor([out_from]))
        run(new_kernel(), (1,), torch.zeros(1), out, FLAG=flag)
        run.equal(out, [expected])

    Case("made", frozenset(names.split()), run).check()


def test_a_case_that_does_what_it_says_passes() -> None:
    check(True, 1.0)
    check(False, 0.0, "tl.sin tl.load tl.store")


def test_a_name_in_code_that_is_not_compiled_does_not_count() -> None:
    with pytest.raises(AssertionError, match=r"claims names that its kernels do not use.*tl\.cos"):
        check(False, 0.0)


def test_a_name_of_another_spelling_does_not_count() -> None:
    with pytest.raises(AssertionError, match=r"tl\.math\.cos"):
        check(True, 1.0, "tl.cos tl.math.cos")


def test_a_wrong_value_is_noticed() -> None:
    with pytest.raises(AssertionError, match="Mismatched"):
        check(True, 0.5)


def test_a_comparison_that_holds_without_the_launch_is_no_comparison() -> None:
    with pytest.raises(AssertionError, match="without the launch"):
        check(True, 1.0, out_from=1.0)


def test_a_case_must_compare() -> None:
    def run(run: Run) -> None:
        run(new_kernel(), (1,), torch.zeros(1), run.out(1), FLAG=True)

    with pytest.raises(AssertionError, match="compares nothing"):
        Case("made", frozenset(["tl.cos"]), run).check()


@triton.jit
def outside(x_ptr, o_ptr):
    tl.store(o_ptr + tl.arange(0, 2), tl.cos(tl.load(x_ptr + tl.arange(0, 2))))


def test_an_access_out_of_bounds_fails_the_case() -> None:
    with pytest.raises(AssertionError, match="out-of-bounds"):
        Case("made", frozenset(), lambda run: run(outside, (1,), torch.zeros(1), run.out(2))).check()
