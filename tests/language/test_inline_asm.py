"""Inline assembly: a session's callbacks compute it; without one the launch is refused before anything is written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace

ASM = tl.constexpr("mad.f32   $0, $1, $2, $1;")


@triton.jit
def one_result(x_ptr, y_ptr, o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o_ptr + i, 1.0)
    r = tl.inline_asm_elementwise(ASM, "=f,f,f", [tl.load(x_ptr + i), tl.load(y_ptr)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o_ptr + i, r)


def launch(callbacks: Any, programs: int = 3) -> torch.Tensor:
    x, y, out = torch.arange(4.0 * programs), torch.tensor([10.0]), torch.zeros(4 * programs)
    with tritontrace.session(clients=["sanitizer"], inline_asm=callbacks):
        one_result[(programs,)](x, y, out, B=4)
    return out


def test_a_callback_computes_it_whatever_the_white_space() -> None:
    out = launch({"mad.f32 $0, $1,\n  $2, $1;": lambda x, y: x * y + x})
    assert torch.equal(out, 11 * torch.arange(12.0))


def test_each_session_has_callbacks_of_its_own_and_the_innermost_is_taken() -> None:
    assert torch.equal(launch({ASM.value: lambda x, y: x + 1}), torch.arange(12.0) + 1)
    assert torch.equal(launch({ASM.value: lambda x, y: x + 2}), torch.arange(12.0) + 2)
    with tritontrace.session(inline_asm={ASM.value: lambda x, y: x + 3}):
        assert torch.equal(launch({}), torch.arange(12.0) + 3)
        assert torch.equal(launch({ASM.value: lambda x, y: x + 4}), torch.arange(12.0) + 4)


def test_without_one_nothing_is_written_also_when_the_kernel_is_known() -> None:
    launch({ASM.value: lambda x, y: x})
    x, out = torch.ones(4), torch.zeros(4)
    with tritontrace.session() as session, pytest.raises(tritontrace.UnsupportedOpError) as caught:
        one_result[(1,)](x, x, out, B=4)
    message = str(caught.value)
    assert "mad.f32 $0, $1, $2, $1;" in message and "inline_asm=" in message and "test_inline_asm.py" in message
    assert caught.value.location is not None and caught.value.location.line == one_result.starting_line_number + 4
    assert not out.any() and not session.launches[0].completed


def test_a_trace_takes_them_too() -> None:
    out = torch.zeros(4)
    traced = tritontrace.trace(one_result, inline_asm={ASM.value: lambda x, y: x - y})
    traced[(1,)](torch.ones(4), torch.ones(4), out, B=4)
    assert torch.equal(out, torch.zeros(4))
    assert len(traced.launches) == 1 and traced.launches[0].completed


@triton.jit
def two_results(x_ptr, lo_ptr, hi_ptr, h_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    lo, hi = tl.inline_asm_elementwise(
        "split $0, $1, $2;", "=r,=r,r", [tl.load(x_ptr + i)], dtype=(tl.uint8, tl.int32), is_pure=False, pack=4
    )
    tl.store(lo_ptr + i, lo)
    tl.store(hi_ptr + i, hi)
    h = tl.inline_asm_elementwise("half $0, $1;", "=h,r", [hi], dtype=tl.bfloat16, is_pure=True, pack=2)
    tl.store(h_ptr + i, h)


def test_several_results_are_converted_to_their_types() -> None:
    x = torch.tensor([0x1FF, 0x234, -1, 1_000_003], dtype=torch.int32)
    lo, hi, half = torch.zeros(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.bfloat16)
    callbacks = {"split $0, $1, $2;": lambda x: (x & 0xFF, x >> 8), "half $0, $1;": lambda x: x + 0.1}
    with tritontrace.session(inline_asm=callbacks):
        two_results[(1,)](x, lo, hi, half, B=4)
    a = x.numpy()
    np.testing.assert_array_equal(lo.numpy(), (a & 255).astype(np.uint8))
    np.testing.assert_array_equal(hi.numpy(), a >> 8)
    wanted = ((a >> 8) + 0.1).astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(half.float().numpy(), wanted)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, y: (x, y), "gave 2 results, not 1"),
        (lambda x, y: np.zeros(3), "shape"),
        (lambda x, y: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_callback_that_is_wrong_is_named(function: Any, words: str) -> None:
    with pytest.raises(tritontrace.KernelError, match=words) as caught:
        launch({ASM.value: function})
    assert caught.value.location is not None and caught.value.location.line == one_result.starting_line_number + 4


@pytest.mark.parametrize("bad", [["mad"], {"mad": 3}, {3: print}, "mad"])
def test_callbacks_of_a_wrong_form_are_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="inline_asm"):
        tritontrace.session(inline_asm=bad)


def test_two_programs_may_answer_differently() -> None:
    seen = []

    def callback(x: Any, y: Any) -> Any:
        seen.append((x.shape, y.shape))
        return np.maximum(x, 5)

    out = launch({ASM.value: callback})
    assert torch.equal(out, torch.arange(12.0).clamp(min=5))
    assert seen == [((3, 4), (1, 1))]
