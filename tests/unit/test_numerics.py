"""Number formats: every 16-bit input, and what happens at the edges."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tritontrace.engines.ir import native, numerics

F8: dict[str, Any] = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
}
NARROW: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, **F8}
ALL = np.arange(65536, dtype=np.uint16)


@pytest.fixture(autouse=True)
def _silent() -> Any:
    with np.errstate(all="ignore"):
        yield


def same(got: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


@pytest.mark.parametrize("element", sorted(NARROW))
def test_memory_round_trip(element: str) -> None:
    raw = ALL.astype(np.uint8)[:256] if element in F8 else ALL
    raw = raw.view(numerics.memory_dtype(element))
    values = numerics.from_memory(raw, element)
    assert values.dtype == np.float32
    same(values, raw.view(NARROW[element]).astype(np.float32))
    back = numerics.to_memory(values, element)
    assert back.dtype == numerics.memory_dtype(element)
    number = ~np.isnan(values)
    assert (back.view(f"u{back.dtype.itemsize}") == raw.view(f"u{raw.dtype.itemsize}"))[number].all()
    finite = np.isfinite(values) | (element not in F8)  # an infinity saturates when it is converted to 8 bits
    same(numerics.round_to(values, element)[finite & number], values[finite & number])


@pytest.mark.parametrize("element", sorted(F8))
@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("size", [65536, 512])
def test_every_16_bit_value_to_8_bits(element: str, source: str, size: int) -> None:
    values = numerics.from_memory(ALL.view(numerics.memory_dtype(source)), source)
    top = float(ml_dtypes.finfo(F8[element]).max)
    expected = np.clip(values, -top, top).astype(F8[element]).astype(np.float32)
    got = np.concatenate([numerics.convert(part, source, element) for part in np.split(values, 65536 // size)])
    same(got, expected)
    assert np.isnan(got[np.isnan(values)]).all()
    assert not np.isnan(got[~np.isnan(values)]).any()


def test_saturation() -> None:
    x = np.float32([500, -1e6, np.inf, -np.inf, np.nan, 464, 465])
    same(numerics.convert(x, "f32", "f8E4M3FN"), [448, -448, 448, -448, np.nan, 448, 448])
    same(numerics.convert(np.float32([1e6, np.inf]), "f32", "f8E5M2"), [57344, 57344])
    # f16 and bf16 do not saturate
    same(numerics.convert(np.float32([65519, 65520, 1e6]), "f32", "f16"), [65504, np.inf, np.inf])


@pytest.mark.parametrize("size", [100, 4096])
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_rounding_to_nearest_even(element: str, size: int) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, size, dtype=np.uint32)
    bits[: size // 2] = (bits[: size // 2] & 0xFFFF0000) | 0x8000  # halfway for bf16
    x = bits.view(np.float32)
    same(numerics.round_to(x, element), x.astype(NARROW[element]).astype(np.float32))
    for view in (x[::-1], x[::2], x.reshape(2, -1).T, np.broadcast_to(x[:4], (3, 4))):
        same(numerics.round_to(view, element), view.astype(NARROW[element]).astype(np.float32))


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_rounding_towards_zero(element: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(1000), [1e38, -1e38, 65519, 65536, np.inf, -np.inf, np.nan, 0.0, 1e-30, -1e-7]])
    x = x.astype(np.float32)
    got = numerics.round_to(x, element, "rtz")
    number = np.isfinite(x)
    assert (np.abs(got[number]) <= np.abs(x[number])).all()
    assert np.isfinite(got[number]).all()
    same(got[~number], x[~number])
    exact = got[number].astype(NARROW[element])
    same(exact, got[number])
    away = np.nextafter(exact, np.where(x[number] >= 0, np.inf, -np.inf).astype(exact.dtype)).astype(np.float64)
    assert (np.abs(away) > np.abs(x[number].astype(np.float64))).all()


def test_a_nan_with_low_payload_stays_nan() -> None:
    x = np.array([0x7F800001, 0xFFFF0001], np.uint32).view(np.float32)
    for mode in ("rtne", "rtz"):
        assert np.isnan(numerics.round_to(x, "bf16", mode)).all()
        assert np.isnan(numerics.round_to(x, "f16", mode)).all()
        assert np.isnan(numerics.from_memory(numerics.to_memory(numerics.round_to(x, "bf16", mode), "bf16"), "bf16")).all()


def test_float64_is_rounded_once() -> None:
    just_above = 1 + 2.0**-8 + 2.0**-40  # the middle of two bf16, and a bit; float32 would lose the bit
    same(numerics.round_to(np.array([just_above]), "bf16"), [1 + 2.0**-7])
    just_below = 1 + 3 * 2.0**-8 - 2.0**-40
    same(numerics.round_to(np.array([just_below]), "bf16"), [1 + 2.0**-7])
    same(numerics.round_to(np.array([1 + 2.0**-11 + 2.0**-40]), "f16"), [1 + 2.0**-10])
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e300, -1e300, 3.4e38])
    same(numerics.round_to(x, "bf16"), [np.inf, -np.inf, np.nan, 0, -0.0, np.inf, -np.inf, np.inf])
    same(numerics.round_to(x, "f8E5M2"), [57344, -57344, np.nan, 0, -0.0, 57344, -57344, 57344])


def test_widening_is_the_identity() -> None:
    x = np.float32([1.5])
    assert numerics.convert(x, "bf16", "f32") is x
    assert numerics.convert(x, "f8E4M3FN", "bf16") is x
    assert numerics.convert(x, "f8E5M2", "f16") is x
    assert numerics.convert(x, "f16", "f64").dtype == np.float64


@pytest.mark.parametrize("element", sorted(F8))
def test_f16_and_bf16_hold_the_8_bit_values_that_need_no_rounding(element: str) -> None:
    values = numerics.from_memory(np.arange(256, dtype=np.uint8), element)
    for target in ("f16", "bf16"):
        same(numerics.convert(values, element, target), numerics.round_to(values, target))


def test_tf32() -> None:
    x = np.float32([1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-11), np.inf, np.nan, 1 + 3 * 2**-11])
    same(numerics.round_tf32(x), [1 + 2**-10, 1 + 2**-10, 1, -(1 + 2**-10), np.inf, np.nan, 1 + 2**-9])
    same(numerics.round_tf32(x, "rtz"), [1 + 2**-10, 1, 1, -1, np.inf, np.nan, 1 + 2**-10])
    same(numerics.round_to(x, "tf32"), numerics.round_tf32(x))
    low_nan = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(numerics.round_tf32(low_nan, "rtz")).all()


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_to_int(element: str, unsigned: bool, dtype: Any) -> None:
    bits = max(int(element[1:]), 16)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    edges = [0.5, -0.5, 1.99, -1.99, 127, 128, 255, -129, 2.0**15, 2.0**16, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e30, -1e30]
    edges += [-(2.0**31), -(2.0**63), 2.0**31 - 128, 2.0**63 - 2.0**40, np.inf, -np.inf]
    x = np.array(edges, dtype)
    got = numerics.float_to_int(x, element, unsigned=unsigned)
    assert got.dtype == numerics.compute_dtype(element)
    width = int(element[1:])
    for value, integer in zip(x.tolist(), got.tolist(), strict=True):
        exact = high if value == np.inf else low if value == -np.inf else int(Fraction(value).__trunc__())
        clamped = min(max(exact, low), high)
        assert integer % 2**width == clamped % 2**width, value


def test_float_to_int_of_nan() -> None:
    nan = np.float32([np.nan])
    assert numerics.float_to_int(nan, "i32").tolist() == [0]
    assert numerics.float_to_int(nan, "i32", unsigned=True).tolist() == [0]
    assert numerics.float_to_int(nan, "i64").tolist() == [-(2**63)]
    assert numerics.float_to_int(nan.astype(np.float64), "i32").tolist() == [-(2**31)]


def test_dtypes_and_sizes() -> None:
    assert numerics.compute_dtype("ptr<f32>") == np.int64
    assert numerics.compute_dtype("bf16") == np.float32
    assert numerics.memory_dtype("bf16") == np.uint16
    assert [numerics.element_bytes(e) for e in ("i1", "f8E5M2", "bf16", "f32", "f64", "ptr<i8>")] == [1, 1, 2, 4, 8, 8]
    for function in (numerics.compute_dtype, numerics.memory_dtype):
        with pytest.raises(ValueError, match="i7"):
            function("i7")
    with pytest.raises(ValueError, match="not a floating"):
        numerics.round_to(np.zeros(1, np.float32), "i32")


def test_i1_in_memory() -> None:
    raw = np.array([0, 1, 2, 255], np.uint8)
    assert numerics.from_memory(raw, "i1").tolist() == [False, True, True, True]
    assert numerics.to_memory(np.array([True, False]), "i1").tolist() == [1, 0]


def test_arguments_are_never_written() -> None:
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    x.flags.writeable = False
    for element in NARROW:
        values = numerics.round_to(x, element)
        numerics.to_memory(values, element)
        numerics.from_bits(numerics.bits_of(values, element), element)
    numerics.round_tf32(x)
    numerics.float_to_int(x, "i32")


def test_torch_modes_of_the_user_do_not_see_our_arrays() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = np.linspace(-3, 3, 5000, dtype=np.float32)
    expected = numerics.round_to(x, "bf16")
    erf = native.unary(torch.erf)
    wanted = erf(x)
    with FakeTensorMode():
        same(numerics.round_to(x, "bf16"), expected)
        same(erf(x), wanted)
    with torch.device("meta"):
        same(erf(x), wanted)
    with torch.inference_mode():
        same(erf(x), wanted)
