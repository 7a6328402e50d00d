"""Conversions between all number formats, in every rounding mode that Triton offers.

The rules are those of the instructions that Triton emits for ``cuda:90`` (`test_lowering` holds the two together):
to fp8 ``cvt.rn.satfinite`` (beyond the largest finite value, infinities included, it is that value; NaN stays NaN), from fp32
to fp8e5 towards zero ``cvt.rz.f16.f32`` and the upper byte of that, else ``cvt.rn`` or ``cvt.rz`` with overflow to infinity.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tests.numbers.common import ALL, FORMATS, FP8, INTEGERS, WIDE, array, cast, every, same
from tests.refusals import refusal

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    500,
    464,
    465,
    1e6,
    -1e6,
    57344,
    61439.9,
    61440,
    65504,
    65519.99,
    65520,
    3.4e38,
    1e-45,
]
SPECIAL += [-1e-45, 1e-40, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 2.0**-17, 2.0**-10, 448, 240, 248, 1.75, 1.875, 300.0]


def fraction_bits(name: str) -> int:
    return ml_dtypes.finfo(FORMATS[name][1]).nmant


def sample(source: str, target: str) -> Any:
    """Values of a wide format: special ones, any bits, and the middles between two values of `target`, with both neighbours."""
    dtype = np.dtype(FORMATS[source][1])
    rng = np.random.default_rng(0)
    integer = np.dtype(f"u{dtype.itemsize}")
    top = 8 * dtype.itemsize - 1
    bits = rng.integers(0, 2**top, 6000).astype(integer) | (rng.integers(0, 2, 6000).astype(integer) << integer.type(top))
    scaled = (rng.standard_normal(6000) * np.exp2(rng.integers(-30, 18, 6000).astype(np.float64))).astype(dtype)
    low = integer.type(fraction_bits(source) - fraction_bits(target))
    middle = scaled.view(integer) >> low << low | (integer.type(1) << (low - integer.type(1)))
    around = [(middle + integer.type(d)).view(dtype) for d in (0, 1)] + [(middle - integer.type(1)).view(dtype)]
    with np.errstate(over="ignore"):
        return np.concatenate([np.array(SPECIAL).astype(dtype), bits.view(dtype), scaled, *around])


def nearest(values: Any, target: str) -> Any:
    """To nearest even. fp8 saturates first; what ml_dtypes would round twice (fp64) goes through its exact path."""
    dtype = FORMATS[target][1]
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        if target in FP8:
            top = float(ml_dtypes.finfo(dtype).max)
            wide = np.clip(wide, -top, top)
        return round_once(wide, dtype)


def round_once(wide: Any, dtype: Any) -> Any:
    """float64 to `dtype`, by scaling to integers: exact, and independent of both numpy's and ml_dtypes' casts."""
    dtype = np.dtype(dtype)
    if dtype == np.float64:
        return wide
    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(np.where(np.isfinite(wide) & (wide != 0), wide, 1.0))
    step = np.maximum(exponent - 1, info.minexp) - info.nmant
    with np.errstate(all="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(wide, -step)), step)  # rint: to nearest even
        over = np.abs(rounded) > float(info.max)
        rounded = np.where(np.isfinite(wide), np.where(over, np.copysign(np.inf, wide), rounded), wide)
        return rounded.astype(dtype)


def towards_zero(values: Any, target: str) -> Any:
    """Truncated. Finite values stay finite; an infinity stays one where the format has it, else it is the largest value."""
    dtype = np.dtype(FORMATS[target][1])
    info = ml_dtypes.finfo(dtype)
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    _, exponent = np.frexp(np.where(np.isfinite(wide) & (wide != 0), wide, 1.0))
    step = np.maximum(exponent - 1, info.minexp) - info.nmant
    with np.errstate(all="ignore"):
        cut = np.ldexp(np.trunc(np.ldexp(wide, -step)), step)
        cut = np.clip(cut, -float(info.max), float(info.max))
        has_infinity = target in (*WIDE, "fp8e5")
        infinite = wide if has_infinity else np.clip(wide, -float(info.max), float(info.max))
        return np.where(np.isfinite(wide), cut, infinite).astype(dtype)


PAIRS = [(a, b) for a in FORMATS for b in FORMATS if a != b]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda p: p)
def test_to_nearest_even(source: str, target: str) -> None:
    small = np.dtype(FORMATS[source][1]).itemsize <= 2
    values = every(source) if small else sample(source, target if fraction_bits(source) > fraction_bits(target) else "bf16")
    same(cast(values, source, target), nearest(values, target), f"{source} to {target}")


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda p: p)
def test_rounding_modes_by_name(source: str, target: str) -> None:
    """``rtne`` is the default; ``rtz`` truncates; both are refused, by Triton's frontend, for what does not narrow."""
    narrows = np.dtype(FORMATS[source][1]).itemsize > np.dtype(FORMATS[target][1]).itemsize
    if not narrows:
        with pytest.raises(refusal(), match="truncating"):
            cast(every(source) if source not in ("fp64", "fp32") else np.zeros(4, FORMATS[source][1]), source, target, "rtz")
        return
    values = every(source) if np.dtype(FORMATS[source][1]).itemsize <= 2 else sample(source, target)
    same(cast(values, source, target, "rtne"), nearest(values, target), "rtne")
    same(cast(values, source, target, "rtz"), towards_zero(values, target), "rtz")


def test_saturation() -> None:
    """The edges by hand. 464 is the middle of 448 and the 480 that e4m3fn lacks; 61440 the middle of 57344 and 65536."""
    x = np.float32([500, -1e6, np.inf, -np.inf, 464, 465, 3.4e38])
    assert cast(x, "fp32", "fp8e4nv").astype(float).tolist() == [448, -448, 448, -448, 448, 448, 448]
    x = np.float32([1e6, 61439, 61440, 65519.99, -np.inf])
    assert cast(x, "fp32", "fp8e5").astype(float).tolist() == [57344, 57344, 57344, 57344, -57344]
    assert cast(np.float32([1e6, 65519.99, np.inf, -np.inf]), "fp32", "fp8e5", "rtz").astype(float).tolist() == [
        57344,
        57344,
        np.inf,
        -np.inf,
    ]
    assert cast(np.float32([65519, 65520, 1e6]), "fp32", "fp16").astype(float).tolist() == [65504, np.inf, np.inf]
    assert cast(np.float32([65519, 65520, 1e6]), "fp32", "fp16", "rtz").astype(float).tolist() == [65504, 65504, 65504]
    assert np.isnan(cast(np.float32([np.nan]), "fp32", "fp8e4nv").astype(float))
    assert cast(np.float32([1.125, 1.375, -1.125]), "fp32", "fp8e5").astype(float).tolist() == [1.0, 1.5, -1.0]  # ties to even


def test_fp32_to_bf16_on_store_rounds_to_nearest_even() -> None:
    """Half of all values would be an ulp off if the low half were cut."""
    bits = np.uint32([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x7F800001])
    got = cast(bits.view(np.float32), "fp32", "bf16").view(np.uint16)
    assert got[:5].tolist() == [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80]
    assert got[5] & 0x7F80 == 0x7F80 and got[5] & 0x7F  # a NaN whose payload is in the low half stays a NaN


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=64), min_size=1, max_size=50), st.sampled_from(["fp32", "fp16", "bf16", *FP8]))
def test_fp64_is_rounded_once(numbers: list[float], target: str) -> None:
    values = np.array(numbers)
    same(cast(values, "fp64", target), nearest(values, target))
    same(cast(values, "fp64", target, "rtz"), towards_zero(values, target))


# -- fp8e4b15: a byte to torch, numpy and the pointer that is given; the kernel casts the bits ------------------------------


@triton.jit
def e4b15_kernel(x_ptr, out_ptr, TO: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    if x.dtype == tl.uint8:
        tl.store(out_ptr + offsets, x.to(tl.float8e4b15, bitcast=True).to(TO))
    else:
        tl.store(out_ptr + offsets, x.to(tl.float8e4b15).to(tl.uint8, bitcast=True))


def e4b15(byte: int) -> float:
    """Sign, four exponent bits of bias 15, three fraction bits; no infinity and no NaN."""
    exponent, fraction = byte >> 3 & 15, byte & 7
    size = fraction * 2.0**-17 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 15)
    return -size if byte & 0x80 else size


@pytest.mark.parametrize("target", WIDE)
def test_fp8e4b15_widens_exactly(target: str) -> None:
    bytes_ = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    out = torch.zeros(256, dtype=FORMATS[target][2])
    with tritontrace.session(target="cuda:90"):
        e4b15_kernel[(1,)](bytes_, out, TO=FORMATS[target][0], N=256)
    assert out.double().tolist() == [e4b15(b) for b in range(256)]


@pytest.mark.parametrize("source", ["fp16", "fp32"])
def test_to_fp8e4b15(source: str) -> None:
    """The PTX: fp32 first to fp16 towards zero; then clamped to 1.75, and half a unit is added to the size and the rest cut."""
    x = torch.cat([torch.linspace(-2, 2, 8000), torch.tensor([0.0, -0.0, 1e-5, 1e-7, 500, -500, float("inf"), float("nan")])])
    x = torch.cat([x, x.new_tensor([(e4b15(b) + e4b15(b + 1)) / 2 for b in range(126)])]).to(FORMATS[source][2])
    x = torch.cat([x, x.new_zeros(16384 - len(x))])
    out = torch.zeros(len(x), dtype=torch.uint8)
    with tritontrace.session(target="cuda:90"):
        e4b15_kernel[(1,)](x, out, TO=tl.float16, N=len(x))
    half = towards_zero(array(x, source), "fp16") if source == "fp32" else array(x, source)
    bits = half.view(np.uint16).astype(np.int64)
    size = np.minimum(bits & 0x7FFF, 0x3F00)
    expected = ((bits >> 8) & 0x80) | ((size * 2 + 0x80) >> 8)
    assert out.tolist() == expected.tolist()


# -- integers -----------------------------------------------------------------------------------------------------------


def integer_limits(name: str) -> tuple[int, int]:
    info = np.iinfo(INTEGERS[name][1])
    return int(info.min), int(info.max)


def ptx_integer(value: float, name: str, source: str) -> int:
    """``cvt.rzi``: truncated and clamped to the type; NaN is 0, or only the top bit if a side has 64 bits.

    There is no 8-bit form: the compiler converts to 16 bits and drops the upper byte, so 300.0 becomes 44.
    """
    bits = np.dtype(INTEGERS[name][1]).itemsize * 8
    signed = not name.startswith("u")
    wide = max(bits, 16)
    low, high = (-(2 ** (wide - 1)), 2 ** (wide - 1) - 1) if signed else (0, 2**wide - 1)
    if np.isnan(value):
        result = 0 if source != "fp64" and wide != 64 else (low if signed else 2 ** (wide - 1))
    elif np.isinf(value):
        result = high if value > 0 else low
    else:
        result = min(max(int(value), low), high)
    result %= 2**bits
    return result - 2**bits if signed and result >= 2 ** (bits - 1) else result


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", WIDE)
def test_float_to_integer(source: str, target: str) -> None:
    if source in ("fp16", "bf16"):
        values = every(source)
    else:
        low, high = integer_limits(target)
        edges = [
            low,
            high,
            2.0**7,
            2.0**8,
            300.0,
            -1.0,
            -0.5,
            0.5,
            255.5,
            2.0**15,
            -(2.0**15) - 1,
            2.0**16,
            2.0**31,
            2.0**32,
            2.0**63,
            2.0**64,
        ]
        edges += [np.inf, -np.inf, np.nan, 1e300, -1e300, 2.0**63 - 2.0**40, 2.0**64 - 2.0**41]
        rng = np.random.default_rng(1)
        with np.errstate(over="ignore"):
            values = np.concatenate([edges, rng.standard_normal(500) * 2.0 ** rng.integers(0, 66, 500)]).astype(
                FORMATS[source][1]
            )
        values = np.concatenate([values, np.nextafter(values, np.array(-np.inf, values.dtype))])
    expected = np.array([ptx_integer(float(v), target, source) for v in values], dtype=object)
    np.testing.assert_array_equal(cast(values, source, target).astype(object), expected)


@pytest.mark.parametrize("source", [*INTEGERS, "int1"])
@pytest.mark.parametrize("target", WIDE)
def test_integer_to_float_rounds_once(source: str, target: str) -> None:
    dtype = ALL[source][1]
    if source == "int1":
        values = np.array([False, True])
    elif np.dtype(dtype).itemsize <= 2:
        values = every(source)
    else:
        bits = np.dtype(dtype).itemsize * 8
        rng = np.random.default_rng(2)
        raw = [int(v) for v in rng.integers(0, 2**63, 400)]
        shifted = [v >> int(s) for v, s in zip(raw, rng.integers(0, 60, 400))]
        # around the middle of two values of every target: the last bit decides
        middles = [(1 << k) + (1 << (k - m - 1)) + d for m in (7, 10, 23, 52) for k in range(m + 2, bits - 1) for d in (-1, 0, 1)]
        numbers = [
            0,
            1,
            -1,
            2 ** (bits - 1) - 1,
            2 ** (bits - 1),
            2**bits - 1,
            65519,
            65520,
            *shifted,
            *middles,
            *(-v for v in middles),
        ]
        values = np.array([v % 2**bits for v in numbers], f"u{bits // 8}").view(dtype)
    expected = [integer_as(int(v), target) for v in values]
    got = cast(values, source, target)
    assert [float(g) for g in got] == expected


def integer_as(value: int, target: str) -> float:
    """An integer rounded once to a float format, with Python's integers only."""
    if value == 0:
        return 0.0
    info = ml_dtypes.finfo(FORMATS[target][1])
    size = abs(value)
    extra = max(size.bit_length() - 1 - info.nmant, 0)
    quotient, rest = size >> extra, size & ((1 << extra) - 1)
    half = 1 << (extra - 1) if extra else 0
    if extra and (rest > half or (rest == half and quotient & 1)):
        quotient += 1
    rounded = quotient << extra
    result = np.inf if rounded > int(float(info.max)) else float(rounded)
    return -result if value < 0 else result


@pytest.mark.parametrize("source", [*INTEGERS, "int1"])
@pytest.mark.parametrize("target", INTEGERS)
def test_integer_to_integer_keeps_the_low_bits(source: str, target: str) -> None:
    dtype = ALL[source][1]
    if source == "int1":
        values = np.array([False, True])
    else:
        bits = np.dtype(dtype).itemsize * 8
        numbers = [0, 1, -1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 127, 128, 255, 256, 32768, 65535, 2**31, 2**32 - 1]
        values = np.array([v % 2**bits for v in numbers], f"u{bits // 8}").view(dtype)
    width = np.dtype(INTEGERS[target][1]).itemsize * 8
    got = [int(v) % 2**width for v in cast(values, source, target)]
    assert got == [int(v) % 2**width for v in values]


@pytest.mark.parametrize("source", [*WIDE, *INTEGERS])
def test_to_int1_is_not_zero(source: str) -> None:
    values = np.array([0, 1, 2, 100], ALL[source][1])
    if source in WIDE:
        values = np.array([0.0, -0.0, 0.25, 1e-7, np.nan, np.inf, -2.0], ALL[source][1])
        assert cast(values, source, "int1").tolist() == [False, False, True, True, True, True, True]
    else:
        assert cast(values, source, "int1").tolist() == [False, True, True, True]


# -- bit casts ----------------------------------------------------------------------------------------------------------

SAME_WIDTH = [("fp64", "int64"), ("fp32", "int32"), ("fp32", "uint32"), ("fp16", "int16"), ("bf16", "uint16"), ("fp16", "bf16")]
SAME_WIDTH += [(name, "uint8") for name in FP8] + [("fp8e5", "fp8e4nv"), ("uint8", "int8")]


@pytest.mark.parametrize(("source", "target"), SAME_WIDTH + [(b, a) for a, b in SAME_WIDTH], ids=lambda p: p)
def test_bit_casts_keep_every_bit(source: str, target: str) -> None:
    """NaNs with any payload too, signalling ones included: packed data is often cast through a float type."""
    dtype = np.dtype(ALL[source][1])
    if dtype.itemsize <= 2:
        values = every(source)
    else:
        integer = f"u{dtype.itemsize}"
        top = 0x7F800001 if dtype.itemsize == 4 else 0x7FF0000000000001
        rng = np.random.default_rng(3)
        raw = rng.integers(0, 2**31, 100).astype(integer)
        values = np.concatenate([raw, np.array([top, top | (1 << (8 * dtype.itemsize - 1)), 0, 1], integer)]).view(dtype)
    got = cast(values, source, target, bitcast=True)
    unsigned = f"u{dtype.itemsize}"
    assert (got.view(unsigned) == values.view(unsigned)).all()


@pytest.mark.parametrize("name", [*FORMATS, *INTEGERS])
def test_a_copy_keeps_every_bit(name: str) -> None:
    dtype = np.dtype(ALL[name][1])
    values = (
        every(name) if dtype.itemsize <= 2 else np.array([0x7F800001, 0xFFC12345, 1, 2**31], f"u{dtype.itemsize}").view(dtype)
    )
    got = cast(values, name, name)
    assert (got.view(f"u{dtype.itemsize}") == values.view(f"u{dtype.itemsize}")).all()
