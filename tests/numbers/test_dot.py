"""``tl.dot`` in every type and precision: what happens to the operands, and in what the products are added up."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.numbers.common import ALL, FORMATS, FP8, array, tensor


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, out_ptr, PRECISION: tl.constexpr, OUT: tl.constexpr, ACC: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    if ACC:
        out = tl.dot(a, b, tl.load(c_ptr + at), input_precision=PRECISION, out_dtype=OUT)
    else:
        out = tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
    tl.store(out_ptr + at, out)


def dot(a: Any, b: Any, name: str, out: str, precision: str | None = None, acc: Any = None, target: str = "cuda:90") -> Any:
    n = a.shape[0]
    result = tensor(np.zeros((n, n), ALL[out][1]), out)
    start = result if acc is None else tensor(acc, out)
    with tritontrace.session(target=target):
        dot_kernel[(1,)](
            tensor(a, name), tensor(b, name), start, result, PRECISION=precision, OUT=ALL[out][0], ACC=acc is not None, N=n
        )
    return array(result, out).reshape(n, n)


EYE = np.eye(16, dtype=np.float32)


def low_bits() -> Any:
    """float32 numbers with every pattern in the bits that TF32 and bf16 lack."""
    bits = np.random.default_rng(0).integers(0x3F000000, 0x42000000, (16, 16), dtype=np.uint32)
    bits[::2, 0] = bits[::2, 0] | 0x1FFF
    bits[1::2, 0] = (bits[1::2, 0] & 0xFFFFE000) | 0x1000
    return bits.view(np.float32)


def cut(x: Any, bits: int) -> Any:
    return (x.view(np.uint32) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)).view(np.float32)


@pytest.mark.parametrize("precision", [None, "tf32"])
def test_tf32_is_the_default_and_cuts_off_low_bits(precision: str | None) -> None:
    """Triton hands float32 to the tensor core as it is, which reads 10 fraction bits and ignores the other 13."""
    x = low_bits()
    assert (dot(x, EYE, "fp32", "fp32", precision) == cut(x, 13)).all()
    assert (dot(EYE, x, "fp32", "fp32", precision) == cut(x, 13)).all()


def test_ieee_keeps_every_bit() -> None:
    x = low_bits()
    assert (dot(x, EYE, "fp32", "fp32", "ieee") == x).all()
    assert (dot(EYE, x, "fp32", "fp32", "ieee") == x).all()


def test_the_default_on_amd_is_ieee() -> None:
    x = low_bits()
    assert (dot(x, EYE, "fp32", "fp32", None, target="hip:gfx942") == x).all()


def bf16(x: Any) -> Any:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize(("precision", "parts"), [("bf16x3", 2), ("bf16x6", 3)])
def test_bf16_parts(precision: str, parts: int) -> None:
    """A product with 1 shows what is left of an operand: its first two, or three, bf16 parts."""
    x = low_bits()
    expected, rest = np.zeros_like(x), x
    for _ in range(parts):
        expected, rest = expected + bf16(rest), rest - bf16(rest)
    assert (dot(x, EYE, "fp32", "fp32", precision) == expected).all()
    assert (dot(EYE, x, "fp32", "fp32", precision) == expected).all()
    if precision == "bf16x6":
        assert (expected == x).all()  # 24 bits


def test_accuracy_falls_with_the_precision() -> None:
    """The order of errors, relative to float64: 1e-3 for tf32, 1e-5 for bf16x3, about float32's for the others."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    errors = {p: np.abs(dot(a, b, "fp32", "fp32", p) - exact).max() for p in ("tf32", "bf16x3", "tf32x3", "bf16x6", "ieee")}
    assert 2e-3 < errors["tf32"] < 5e-2
    assert 1e-5 < errors["bf16x3"] < 1e-3
    assert all(errors[p] < 2e-5 for p in ("tf32x3", "bf16x6", "ieee")), errors


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "bf16x3", "bf16x6", "ieee"])
def test_infinities_and_nan(precision: str) -> None:
    """The parts of an infinity are infinity and NaN; Triton drops the small products' NaN before the leading product."""
    x = np.ones((16, 16), np.float32)
    x[0, 0], x[1, 1], x[2, 2] = np.inf, -np.inf, np.nan
    got = dot(x, np.ones_like(x), "fp32", "fp32", precision)
    assert got[0, 0] == np.inf
    assert got[1, 0] == -np.inf
    assert np.isnan(got[2]).all()
    assert (got[3:] == 16).all()


@pytest.mark.parametrize("name", ["fp16", "bf16", *FP8])
def test_products_of_narrow_floats_are_exact_and_added_in_fp32(name: str) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((16, 16)).astype(FORMATS[name][1]) for _ in range(2))
    got = dot(a, b, name, "fp32")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    sizes = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert (np.abs(got - exact) <= 16 * 2.0**-24 * sizes).all()
    eye = np.eye(16).astype(FORMATS[name][1])
    assert (dot(a, eye, name, "fp32") == a.astype(np.float32)).all()
    ones = np.ones((16, 16)).astype(FORMATS[name][1])
    assert (dot(ones, ones, name, "fp32") == 16).all()  # also of bf16


def test_fp16_accumulator() -> None:
    """With `out_dtype` fp16 the sum is made in fp32 here and rounded to fp16 once for each dot; it overflows to infinity."""
    a = np.full((16, 16), 1.0, np.float16)
    a[:, 0] = 2048
    got = dot(a, np.ones((16, 16), np.float16), "fp16", "fp16")
    assert (got == np.float16(2048 + 15)).all()
    big = np.full((16, 16), 256, np.float16)
    assert np.isposinf(dot(big, big, "fp16", "fp16")).all()
    assert (dot(big, big, "fp16", "fp32") == 2.0**20).all()


def test_accumulator_is_added() -> None:
    rng = np.random.default_rng(3)
    acc = rng.standard_normal((16, 16)).astype(np.float32)
    x = np.ones((16, 16), np.float16)
    np.testing.assert_array_equal(dot(x, x, "fp16", "fp32", acc=acc), np.float32(16) + acc)


def test_int8_is_exact_and_wraps() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-128, 128, (32, 32)).astype(np.int8) for _ in range(2))
    assert (dot(a, b, "int8", "int32") == a.astype(np.int32) @ b.astype(np.int32)).all()
    ones = np.ones((16, 16), np.int8)
    acc = np.full((16, 16), 2**31 - 1, np.int32)
    assert (dot(ones, ones, "int8", "int32", acc=acc) == np.int32(-(2**31) + 15)).all()


def test_fp64() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((16, 16)) for _ in range(2))
    np.testing.assert_allclose(dot(a, b, "fp64", "fp64"), a @ b, rtol=1e-13)


@triton.jit
def dot_k4(a_ptr, b_ptr, out_ptr):
    m, k = tl.arange(0, 16), tl.arange(0, 4)
    a = tl.load(a_ptr + m[:, None] * 4 + k[None, :])
    b = tl.load(b_ptr + k[:, None] * 16 + m[None, :])
    tl.store(out_ptr + m[:, None] * 16 + m[None, :], tl.dot(a, b, input_precision="ieee"))


def test_a_dot_too_small_for_the_target_runs() -> None:
    a, b = torch.randn(16, 4), torch.randn(4, 16)
    out = torch.zeros(16, 16)
    with tritontrace.session(target="cuda:90"):
        dot_k4[(1,)](a, b, out)
    torch.testing.assert_close(out, a @ b)
