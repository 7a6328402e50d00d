"""Known faults 9, 10, 11, 14, 15, 46, 47, 49: names, parameters and Python inside a kernel, as the compiler takes them."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.language import arange, load, store
from triton.language.math import exp

import tritontrace
from tests.refusals import refusal


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []


def test_fault_9_kernel_and_helper_inside_a_function() -> None:
    @triton.jit
    def twice(x):
        return x * 2

    @triton.jit
    def kernel(x_ptr, out_ptr):
        offsets = tl.arange(0, 8)
        tl.store(out_ptr + offsets, twice(tl.load(x_ptr + offsets)))

    x = torch.randn(8)
    out = torch.empty(8)
    kernel[(1,)](x, out)
    assert torch.equal(out, 2 * x)


def test_fault_10_a_local_constexpr_is_captured() -> None:
    S = tl.constexpr(3)

    @triton.jit
    def kernel(x_ptr, out_ptr):
        offsets = tl.arange(0, 8)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * S)

    x = torch.arange(8)
    out = torch.empty_like(x)
    kernel[(1,)](x, out)
    assert torch.equal(out, 3 * x)


@triton.jit
def bare_names_kernel(x_ptr, out_ptr):
    offsets = arange(0, 8)
    store(out_ptr + offsets, exp(load(x_ptr + offsets)))


def test_fault_11_names_imported_from_the_language() -> None:
    x = torch.randn(8)
    out = torch.empty(8)
    bare_names_kernel[(1,)](x, out)
    torch.testing.assert_close(out, x.exp())


@triton.jit
def meta_names_kernel(out_ptr, grid, num_stages: tl.constexpr, num_warps: tl.constexpr):
    tl.store(out_ptr, grid)
    tl.store(out_ptr + 1, num_stages)
    tl.store(out_ptr + 2, num_warps)


def test_fault_14_parameters_named_like_options(traced) -> None:
    out = torch.zeros(3, dtype=torch.int32)
    meta_names_kernel[(1,)](out, 7, num_stages=2, num_warps=8)
    assert out.tolist() == [7, 2, 8]
    meta_names_kernel[(1,)](out, 9, 3, 4)
    assert out.tolist() == [9, 3, 4]
    assert traced.launches[0].options.get("num_warps") == 8


@triton.jit
def float_argument_kernel(x_ptr, out_ptr, eps, n):
    offsets = tl.arange(0, 8)
    x = tl.load(x_ptr + offsets) / n.to(tl.float32)
    tl.store(out_ptr + offsets, x + eps.to(tl.float32))


def test_fault_15_scalar_arguments_have_methods() -> None:
    x = torch.randn(8)
    out = torch.empty(8)
    float_argument_kernel[(1,)](x, out, 0.1, 5)
    assert torch.equal(out, x / 5.0 + torch.tensor(0.1, dtype=torch.float32))


@triton.jit
def loop_variable_kernel(out_ptr, n, step: tl.constexpr):
    for i in range(n):
        wide = i.to(tl.int64) * 1_000_000_007
        tl.store(out_ptr + i, wide * 1_000)
    for j in range(n, 2 * n, step):
        tl.store(out_ptr + j, j.to(tl.int64))
    for k in tl.static_range(2):
        tl.store(out_ptr + 2 * n + k, k + 1)


def test_fault_46_loop_variables_are_tensors() -> None:
    out = torch.full((12,), -1, dtype=torch.int64)
    loop_variable_kernel[(1,)](out, 5, 2)
    assert out[:5].tolist() == [i * 1_000_000_007_000 for i in range(5)]
    assert out[5:].tolist() == [5, -1, 7, -1, 9, 1, 2]


@triton.jit
def changing_type_kernel(out_ptr, n):
    x = 0
    for _ in range(n):
        x = x + 0.5
    tl.store(out_ptr, x)


def test_fault_46_a_carried_variable_keeps_its_type() -> None:
    out = torch.full((1,), 5.0)
    with pytest.raises(refusal(), match="x"):
        changing_type_kernel[(1,)](out, 3)
    assert out.item() == 5.0


@triton.jit
def string_annotation_kernel(out_ptr, B: "tl.constexpr"):  # noqa: UP037
    tl.store(out_ptr + tl.arange(0, B), B)


@triton.jit
def postponed_annotation_kernel(out_ptr, B: tl.constexpr):  # this module postpones the evaluation of annotations
    tl.store(out_ptr + tl.arange(0, B), B)


@pytest.mark.parametrize("kernel", [string_annotation_kernel, postponed_annotation_kernel], ids=["string", "postponed"])
def test_fault_47_annotations_as_strings(kernel) -> None:
    out = torch.zeros(16, dtype=torch.int32)
    kernel[(1,)](out, B=16)
    assert out.tolist() == [16] * 16


@triton.jit
def helper_with_constexpr(x, SCALE: tl.constexpr):
    K: tl.constexpr = SCALE * 2
    return x * SCALE.value + K.value


@triton.jit
def constexpr_value_kernel(out_ptr, B: tl.constexpr):
    offsets = tl.arange(0, B.value)
    tl.store(out_ptr + offsets, helper_with_constexpr(offsets, 10))


def test_fault_49_constexprs_have_a_value() -> None:
    out = torch.zeros(8, dtype=torch.int32)
    constexpr_value_kernel[(1,)](out, B=8)
    assert out.tolist() == [10 * i + 20 for i in range(8)]
