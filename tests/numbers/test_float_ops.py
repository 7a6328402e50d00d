"""Arithmetic, comparison and selection in every float type: one rounding each, NaN and signed-zero rules, subnormals kept."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.numbers.common import FORMATS, FP8, WIDE, apply, every, same
from tests.numbers.test_conversions import nearest, round_once


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def sub(a, b):
    return a - b


@triton.jit
def mul(a, b):
    return a * b


@triton.jit
def div(a, b):
    return a / b


@triton.jit
def mod(a, b):
    return a % b


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b)


@triton.jit
def maximum_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fma(a, b, c):
    return tl.fma(a, b, c)


@triton.jit
def clamp(a, b, c):
    return tl.clamp(a, b, c)


@triton.jit
def clamp_nan(a, b, c):
    return tl.clamp(a, b, c, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def negative(a):
    return -a


@triton.jit
def absolute(a):
    return tl.abs(a)


@triton.jit
def relu(a):
    return tl.maximum(a, 0.0)


@triton.jit
def cut_above(a):
    return tl.minimum(a, 0.0)


@triton.jit
def at_least_tiny(a):
    return tl.maximum(a, 1e-6)


EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.5,
    -2.5,
    3.0,
    7.0,
    -7.0,
    np.inf,
    -np.inf,
    np.nan,
    65504.0,
    1e-45,
    -1e-45,
    6e-8,
    1e-40,
    3.4e38,
    1e308,
    5e-324,
]


def pairs(name: str, n: int = 3000) -> tuple[Any, Any]:
    """All pairs of edge values, then bits at random and pairs that nearly cancel."""
    dtype = np.dtype(FORMATS[name][1])
    rng = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        edges = np.array(EDGES).astype(dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(edges, edges))
    integer = np.dtype(f"u{dtype.itemsize}")
    random = [rng.integers(0, 2**63, n, dtype=np.uint64).astype(integer).view(dtype) for _ in range(2)]
    near = (rng.standard_normal(n) * 10).astype(dtype)
    other = near * dtype.type(-1) + (rng.standard_normal(n) * 0.05).astype(dtype)
    return np.concatenate([a, random[0], near]), np.concatenate([b, random[1], other])


EXACT = {add: np.add, sub: np.subtract, mul: np.multiply}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("operation", EXACT, ids=lambda f: f.__name__)
def test_arithmetic_is_rounded_once(operation: Any, name: str) -> None:
    a, b = pairs(name)
    with np.errstate(all="ignore"):
        if name == "fp64":
            expected = EXACT[operation](a, b)
        else:  # float64 holds the product of two float32 exactly, and their sum so closely that rounding again is harmless
            expected = round_once(EXACT[operation](a.astype(np.float64), b.astype(np.float64)), FORMATS[name][1])
    same(apply(operation, [(a, name), (b, name)], name), expected)


@pytest.mark.parametrize("name", WIDE)
def test_division_and_remainder(name: str) -> None:
    """16-bit operands are divided in fp32, as Triton has it; the remainder is C's ``fmod``."""
    a, b = pairs(name)
    work = np.float64 if name == "fp64" else np.float32
    with np.errstate(all="ignore"):
        quotient, rest = a.astype(work) / b.astype(work), np.fmod(a.astype(work), b.astype(work))
        dtype = FORMATS[name][1]
        same(apply(div, [(a, name), (b, name)], name), round_once(quotient.astype(np.float64), dtype))
        same(apply(mod, [(a, name), (b, name)], name), round_once(rest.astype(np.float64), dtype))


def larger(x: float, y: float, propagate: bool) -> float:
    """PTX's ``max``: a number rather than a NaN (or NaN with ``.NaN``), and +0.0 above -0.0."""
    if math.isnan(x) or math.isnan(y):
        return math.nan if propagate or (math.isnan(x) and math.isnan(y)) else (y if math.isnan(x) else x)
    return max((x, math.copysign(1, x)), (y, math.copysign(1, y)))[0]


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("size", [400, 5000])
def test_minimum_and_maximum(name: str, size: int) -> None:
    a, b = (x[:size] for x in pairs(name, 4600))
    for propagate, largest, smallest in ((False, maximum, minimum), (True, maximum_nan, minimum_nan)):
        expected = np.array([larger(float(x), float(y), propagate) for x, y in zip(a, b)]).astype(FORMATS[name][1])
        same(apply(largest, [(a, name), (b, name)], name), expected, "max")
        expected = np.array([-larger(-float(x), -float(y), propagate) for x, y in zip(a, b)]).astype(FORMATS[name][1])
        same(apply(smallest, [(a, name), (b, name)], name), expected, "min")


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_extremes_with_a_constant(name: str) -> None:
    x = np.array([*EDGES[:12], -1e-7, 1e-7] * 400).astype(FORMATS[name][1])
    wide = x.astype(np.float64)
    for operation, limit, sign in ((relu, 0.0, 1), (cut_above, 0.0, -1), (at_least_tiny, float(np.float32(1e-6)), 1)):
        expected = np.array([sign * larger(sign * v, sign * limit, False) for v in wide])
        same(apply(operation, [(x, name)], name), round_once(expected, FORMATS[name][1]), operation.__name__)


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "fp64"])
def test_clamp(name: str) -> None:
    """The smaller of (the larger of x and the lower limit) and the upper limit, with NaN as asked for."""
    low, high = [-1.0, -0.0, 0.0, np.nan, 2.0], [1.0, 0.0, -0.0, np.nan, 1.5]
    grid = np.array([(x, lo, hi) for x in EDGES[:12] for lo in low for hi in high])
    x, lo, hi = (grid[:, i].astype(FORMATS[name][1]) for i in range(3))
    for operation, propagate in ((clamp, False), (clamp_nan, True)):
        expected = [-larger(-larger(float(a), float(b), propagate), -float(c), propagate) for a, b, c in zip(x, lo, hi)]
        same(apply(operation, [(x, name), (lo, name), (hi, name)], name), np.array(expected).astype(FORMATS[name][1]))


@triton.jit
def comparisons(a, b):
    bits = (a < b).to(tl.int32) + 2 * (a <= b).to(tl.int32) + 4 * (a > b).to(tl.int32) + 8 * (a >= b).to(tl.int32)
    return bits + 16 * (a == b).to(tl.int32) + 32 * (a != b).to(tl.int32)


@pytest.mark.parametrize("name", [*WIDE])
def test_comparisons(name: str) -> None:
    """Of NaN all are false but ``!=``; the two zeros are equal; bf16 [-5, -1] < [-2, -3] is [true, false]."""
    a, b = pairs(name, 500)
    with np.errstate(invalid="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
    expected = (x < y) + 2 * (x <= y) + 4 * (x > y) + 8 * (x >= y) + 16 * (x == y) + 32 * (x != y)
    assert apply(comparisons, [(a, name), (b, name)], "int32").tolist() == expected.tolist()
    a, b = (np.array(v).astype(FORMATS[name][1]) for v in ([-5, -1], [-2, -3]))
    assert (apply(comparisons, [(a, name), (b, name)], "int32") & 1).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_sign_changes_touch_nothing_else(name: str) -> None:
    x = every(name)
    bits = x.view(np.uint16)
    with np.errstate(invalid="ignore"):
        number = ~np.isnan(x.astype(np.float64))
    got = apply(negative, [(x, name)], name).view(np.uint16)
    subtracts = got[0] == 0  # Triton 3.6 makes -x as 0 - x, which keeps +0.0
    number &= (bits & 0x7FFF != 0) | (not subtracts)
    assert (got == bits ^ 0x8000)[number].all()
    assert (apply(absolute, [(x, name)], name).view(np.uint16) == bits & 0x7FFF)[~np.isnan(got.view(x.dtype).astype(float))].all()


def test_known_bf16_values() -> None:
    dtype = FORMATS["bf16"][1]
    a, b = np.array([2.5, 1, 256]).astype(dtype), np.array([2, 1, 1]).astype(dtype)
    assert apply(add, [(a, "bf16"), (b, "bf16")], "bf16").astype(float).tolist() == [4.5, 2, 256]


@pytest.mark.parametrize("name", WIDE)
def test_subnormal_numbers_are_kept(name: str) -> None:
    """No instruction that Triton emits for these has ``.ftz``."""
    dtype = np.dtype(FORMATS[name][1])
    tiny = np.arange(1, 9, dtype=f"u{dtype.itemsize}").view(dtype)
    one, zero = np.ones(8).astype(dtype), np.zeros(8).astype(dtype)
    same(apply(mul, [(tiny, name), (one, name)], name), tiny)
    same(apply(add, [(tiny, name), (zero, name)], name), tiny)
    least = np.full(8, float(ml_dtypes.finfo(dtype).tiny)).astype(dtype)
    half = (one.astype(np.float64) / 2).astype(dtype)
    assert (apply(mul, [(least, name), (half, name)], name).astype(np.float64) == float(ml_dtypes.finfo(dtype).tiny) / 2).all()


def exact_fma(a: float, b: float, c: float, name: str) -> float:
    """Rounded once to the format, by fractions."""
    if not all(map(math.isfinite, (a, b, c))):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value == 0:
        return a * b + c if c == 0 or a == 0 or b == 0 else 0.0
    info = ml_dtypes.finfo(FORMATS[name][1])
    size = abs(value)
    exponent = math.floor(math.log2(size.numerator) - math.log2(size.denominator))
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    while Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, int(info.minexp)) - info.nmant)
    rounded = round(size / step) * step  # of fractions, to even
    result = math.inf if rounded > Fraction(float(info.max)) else float(rounded)
    return -result if value < 0 else result


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(WIDE))
def test_fma_rounds_once(data: st.DataObject, name: str) -> None:
    dtype = np.dtype(FORMATS[name][1])
    width = 8 * dtype.itemsize
    bits = st.integers(0, 2**width - 1)
    near = st.integers(2 ** (width - 2) - 2 ** (width // 4), 2 ** (width - 2))  # sizes around 2 and below
    numbers = data.draw(st.lists(st.tuples(*[st.one_of(bits, near)] * 3), min_size=1, max_size=12))
    a, b, c = (np.array([n[i] for n in numbers], f"u{dtype.itemsize}").view(dtype) for i in range(3))
    with np.errstate(all="ignore"):
        c = np.where(np.arange(len(c)) % 2 == 0, c, (-(a.astype(np.float64) * b.astype(np.float64))).astype(dtype))  # cancels
        expected = np.array([exact_fma(float(x), float(y), float(z), name) for x, y, z in zip(a, b, c)]).astype(dtype)
    same(apply(fma, [(a, name), (b, name), (c, name)], name), expected)


def test_fma_in_the_middle_of_two_values() -> None:
    """The product lies exactly between two results, and an addend far too small for float64 decides."""
    bf16 = FORMATS["bf16"][1]
    a, b, c = (np.array([v], bf16) for v in (9.0, 29.0, 2.0**-100))  # 261 is the middle of 260 (even) and 262
    assert apply(fma, [(a, "bf16"), (b, "bf16"), (c, "bf16")], "bf16").astype(float).tolist() == [262]
    assert apply(fma, [(a, "bf16"), (b, "bf16"), (-c, "bf16")], "bf16").astype(float).tolist() == [260]
    p, q, tiny = np.float64([1 + 2.0**-26]), np.float64([1 + 2.0**-27]), np.float64([2.0**-110])  # p * q ends in 2**-53
    assert apply(fma, [(p, "fp64"), (q, "fp64"), (tiny, "fp64")], "fp64")[0] == 1 + 2.0**-26 + 2.0**-27 + 2.0**-52
    assert apply(fma, [(p, "fp64"), (q, "fp64"), (-tiny, "fp64")], "fp64")[0] == 1 + 2.0**-26 + 2.0**-27
    y = np.float32([1 + 2.0**-12])
    assert apply(fma, [(y, "fp32"), (y, "fp32"), (np.float32([2.0**-60]), "fp32")], "fp32")[0] == np.float32(
        1 + 2.0**-11 + 2.0**-23
    )


@triton.jit
def selected(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def logical(a, b):
    return ((a > 0) and (b > 0)).to(tl.int32) + 2 * ((a > 0) or (b > 0)).to(tl.int32) + 4 * (not (a > 0)).to(tl.int32)


def test_and_or_not_are_elementwise() -> None:
    a, b = np.float32([1, 1, -1, -1]), np.float32([1, -1, 1, -1])
    assert apply(logical, [(a, "fp32"), (b, "fp32")], "int32").tolist() == [3, 2, 6, 4]


@pytest.mark.parametrize("name", WIDE)
def test_where_returns_an_operand_unchanged(name: str) -> None:
    a, b = pairs(name, 1000)
    with np.errstate(invalid="ignore"):
        expected = np.where(a.astype(np.float64) > b.astype(np.float64), a, b)
    same(apply(selected, [(a, name), (b, name)], name), expected)


@triton.jit
def through_fp16(a, b):
    return (a.to(tl.float16) * b.to(tl.float16)).to(a.dtype)


@triton.jit
def through_fp32(a, b):
    return (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)


@pytest.mark.parametrize("name", FP8)
def test_fp8_is_stored_and_computed_in_wider_types(name: str) -> None:
    """All 65536 pairs. Triton's compiler has no fp8 arithmetic of its own; kernels widen, compute, and convert back."""
    a, b = (grid.ravel() for grid in np.meshgrid(every(name), every(name)))
    with np.errstate(all="ignore"):
        half = (a.astype(np.float16) * b.astype(np.float16)).astype(np.float16)
        same(apply(through_fp16, [(a, name), (b, name)], name), nearest(half, name), "fp16")
        total = a.astype(np.float32) + b.astype(np.float32)
        same(apply(through_fp32, [(a, name), (b, name)], name), nearest(total, name), "fp32")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=64))
@example([(0.0, -0.0), (-0.0, 0.0), (float("nan"), 1.0)])
def test_fp32_arithmetic_of_any_numbers(numbers: list[tuple[float, float]]) -> None:
    a, b = (np.array([n[i] for n in numbers], np.float32) for i in range(2))
    with np.errstate(all="ignore"):
        for operation, reference in EXACT.items():
            same(apply(operation, [(a, "fp32"), (b, "fp32")], "fp32"), reference(a, b), operation.__name__)
