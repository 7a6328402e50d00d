"""Known faults 18 to 24, 44 and 45: the small inputs themselves. Their whole kinds are in `tests/numbers/`."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import tritontrace


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"], target="cuda:90") as session:
        yield session
    assert session.findings == []


@triton.jit
def dot_of_ones(out_ptr, T: tl.constexpr):
    if T.primitive_bitwidth == 8:
        ones = tl.full([16, 16], 1.0, tl.float32).to(T)  # Triton 3.6 has no constants of fp8
    else:
        ones = tl.full([16, 16], 1.0, T)
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(out_ptr + at, tl.dot(ones, ones))


@pytest.mark.parametrize("dtype", [tl.bfloat16, tl.float16, tl.float8e5, tl.float8e4nv])
def test_fault_18_dot_of_ones(dtype) -> None:
    out = torch.zeros(16, 16)
    dot_of_ones[(1,)](out, T=dtype)
    assert (out == 16).all()


@triton.jit
def bf16_kernel(a_ptr, b_ptr, sum_ptr, less_ptr, total_ptr):
    at = tl.arange(0, 2)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(sum_ptr + at, a + b)
    tl.store(less_ptr + at, a < b)
    tl.store(total_ptr, tl.sum(a, 0))


def test_fault_18_bf16_arithmetic() -> None:
    total, less, fold = (
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(2, dtype=torch.bool),
        torch.zeros(1, dtype=torch.bfloat16),
    )
    bf16_kernel[(1,)](torch.tensor([2.5, 1]).bfloat16(), torch.tensor([2, 1]).bfloat16(), total, less, fold)
    assert total.tolist() == [4.5, 2]
    bf16_kernel[(1,)](torch.tensor([-5, -1]).bfloat16(), torch.tensor([-2, -3]).bfloat16(), total, less, fold)
    assert less.tolist() == [True, False]
    bf16_kernel[(1,)](torch.tensor([1, math.nan]).bfloat16(), torch.zeros(2).bfloat16(), total, less, fold)
    assert fold.isnan().all()


@triton.jit
def padded(x_ptr, out_ptr):
    desc = tl.make_tensor_descriptor(x_ptr, [4, 8], [8, 1], [8, 8], padding_option="nan")
    at = tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out_ptr + at, desc.load([0, 0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fault_19_nan_padding_of_a_descriptor(dtype) -> None:
    x, out = torch.randn(4, 8).to(dtype), torch.zeros(8, 8, dtype=dtype)
    padded[(1,)](x, out)
    assert torch.equal(out[:4], x)
    assert out[4:].isnan().all()


@triton.jit
def to_fp8(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)).to(tl.float8e5).to(tl.float32))


def test_fault_20_to_nearest_even() -> None:
    out = torch.zeros(4)
    to_fp8[(1,)](torch.tensor([1.125, 1.375, 1e4, 2.0**-17], dtype=torch.float16), out)
    assert out.tolist() == [1.0, 1.5, 10240.0, 0.0]


@triton.jit
def integers(flag_ptr, byte_ptr, n, out_ptr, N: tl.constexpr):
    flag = tl.load(flag_ptr)
    tl.store(out_ptr, (flag + flag).to(tl.int32))
    tl.store(out_ptr + 1, tl.sum(tl.full([N], 1073741824, tl.int32), 0))
    tl.store(out_ptr + 2, (~tl.load(byte_ptr)).to(tl.int32))
    tl.store(out_ptr + 3, n // 2)
    tl.store(out_ptr + 4, n % 2)


def test_fault_21_integers() -> None:
    out = torch.full((5,), 99, dtype=torch.int32)
    integers[(1,)](torch.tensor([True]), torch.tensor([7], dtype=torch.uint8), -7, out, N=128)
    assert out.tolist() == [0, 0, 248, -3, -1]


@triton.jit
def positions(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 4), mask=tl.arange(0, 4) < 3, other=float("-inf"))
    tl.store(out_ptr, tl.argmax(x, 0))
    tl.store(out_ptr + 1, tl.argmax(x, 0, tie_break_left=False))


def test_fault_22_argmax_with_nan() -> None:
    out = torch.zeros(2, dtype=torch.int32)
    positions[(1,)](torch.tensor([math.nan, 6, 8]), out)
    assert out.tolist() == [2, 2]
    positions[(1,)](torch.tensor([math.nan] * 3), out)  # a value as the combine function has it, and no error
    assert all(0 <= v < 4 for v in out.tolist())


@triton.jit
def product(a_ptr, b_ptr, out_ptr, P: tl.constexpr):
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(out_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision=P))


def test_fault_23_input_precision_is_honoured() -> None:
    """TF32 by default, as Triton has it for NVIDIA; exact fp32 where the kernel asks for it."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 64, generator=generator), torch.randn(64, 64, generator=generator)
    exact = a.double() @ b.double()
    errors = {}
    for precision in (None, "tf32", "ieee"):
        out = torch.zeros(64, 64)
        product[(1,)](a, b, out, P=precision)
        errors[precision] = (out - exact).abs().max().item()
    assert errors[None] == errors["tf32"]
    assert errors["ieee"] < 1e-4 < 2e-3 < errors["tf32"] < 5e-2


@triton.jit
def external(x_ptr, out_ptr, whole_ptr):
    at = tl.arange(0, 4)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, libdevice.tanh(x) + libdevice.asin(x) + libdevice.pow(x, x))
    tl.store(whole_ptr + at, libdevice.llrint(x * 10))


def test_fault_24_libdevice() -> None:
    x, out, whole = torch.tensor([0.1, 0.25, 0.5, 0.9]), torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    external[(1,)](x, out, whole)
    torch.testing.assert_close(out, x.tanh() + x.asin() + x**x)
    assert whole.tolist() == [1, 2, 5, 9]


@triton.jit
def masked_select(x_ptr, out_ptr, n):
    at = tl.arange(0, 8)
    inside = (at < n) and (at != 1)
    outside = not (at < n)
    value = tl.load(x_ptr + at, mask=(at < n) and not (at == 1), other=-1)
    tl.store(out_ptr + at, value, mask=inside or (outside and (at == 7)))


@pytest.mark.filterwarnings("ignore:Logical operators")
def test_fault_44_and_or_not_on_blocks() -> None:
    out = torch.full((8,), 50.0)
    masked_select[(1,)](torch.arange(5.0), out, 5)
    assert out.tolist() == [0, 50, 2, 3, 4, 50, 50, -1]


@triton.jit
def store_narrow(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)))


def test_fault_45_a_store_rounds_to_nearest_even() -> None:
    x = torch.tensor([0x3F808000, 0x3F818000, 0x3F808001, 0x3FFFFFFF], dtype=torch.int32).view(torch.float32)
    out = torch.zeros(4, dtype=torch.bfloat16)
    store_narrow[(1,)](x, out)
    assert out.view(torch.int16).tolist() == [0x3F80, 0x3F82, 0x3F81, 0x4000]
