"""Every entry of the operation table computes what the operation means, on the values where it is easy to be wrong."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.ops import ELEMENTWISE, is_elementwise, libdevice
from tritontrace.engines.ir.tree import NO_LOCATION, Op, Type, Value, parse_type
from tritontrace.errors import UnsupportedOpError


class Environment:
    """Binds names as the generated module does."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"np": np}

    def bind(self, name: str, value: Any) -> str:
        assert name not in self.names or self.names[name] is value, f"{name} bound twice"
        self.names[name] = value
        return name


def run(
    name: str, types: list[str], result: str, *arrays: Any, shapes: list[tuple[int, ...]] | None = None, **attributes: Any
) -> Any:
    """The op's value on arrays that are given in the compute dtype (a program axis of 1 is put before them)."""
    shapes = shapes or [(4,)] * len(types)
    operands = [Value(Type(shape, element), None, i) for i, (shape, element) in enumerate(zip(shapes, types, strict=True))]
    op = Op(name, operands, [], attributes, [], [], NO_LOCATION)
    out = max(shapes, key=len, default=())
    op.results.append(Value(Type(out, result), None, len(operands), op))
    env = Environment()
    args = [f"a{i}" for i in range(len(types))]
    expression = ELEMENTWISE[name](op, args, env)
    values = {a: np.asarray(v, numerics.compute_dtype(t))[None] for a, v, t in zip(args, arrays, types, strict=True)}
    before = {a: v.copy() for a, v in values.items()}
    with np.errstate(all="raise", under="ignore"), np.errstate(all="ignore"):
        value = eval(expression, {**env.names, **values})
    for a in values:
        np.testing.assert_array_equal(values[a], before[a])
    if isinstance(value, tuple):
        return tuple(v[0] for v in value)
    assert value.dtype == numerics.compute_dtype(result), expression
    return value[0]


I32 = np.array([7, -7, 2**31 - 1, -(2**31)], np.int32)


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("arith.addi", [2**31 - 1], [1], [-(2**31)]),
        ("arith.subi", [-(2**31)], [1], [2**31 - 1]),
        ("arith.muli", [2**30], [128], [0]),
        ("arith.divsi", [-7, 7, -7, 7, -8], [2, -2, -2, 2, 2], [-3, -3, 3, 3, -4]),
        ("arith.divsi", [-(2**31)], [-1], [-(2**31)]),
        ("arith.remsi", [-7, 7, -7, -8], [2, -2, -2, 2], [-1, 1, -1, 0]),
        ("arith.remsi", [5], [0], [5]),
        ("arith.divui", [-1], [2], [2**31 - 1]),
        ("arith.remui", [-1], [10], [4294967295 % 10]),
        ("arith.floordivsi", [-7, 7], [2, 2], [-4, 3]),
        ("arith.ceildivsi", [-7, 7, 8], [2, 2, 2], [-3, 4, 4]),
        ("arith.ceildivui", [7], [2], [4]),
        ("arith.shli", [1, 1, 1], [31, 32, 200], [-(2**31), 0, 0]),
        ("arith.shrsi", [-5, -5, 5], [1, 40, 40], [-3, -1, 0]),
        ("arith.shrui", [-1, -1], [28, 32], [15, 0]),
        ("arith.maxsi", [-1], [1], [1]),
        ("arith.maxui", [-1], [1], [-1]),
        ("arith.minui", [-1], [1], [1]),
        ("arith.minsi", [-1], [1], [-1]),
        ("tt.mulhiui", [-1, 3], [-1, 5], [-2, 0]),
        ("arith.xori", [5], [3], [6]),
        ("math.ipowi", [3, -2, 1, -1, 2], [4, 3, -5, -3, -1], [81, -8, 1, -1, 0]),
    ],
)
def test_integers_wrap_and_follow_c(name: str, a: list[int], b: list[int], expected: list[int]) -> None:
    shape = [(len(a),)] * 2
    assert run(name, ["i32", "i32"], "i32", a, b, shapes=shape).tolist() == expected


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
def test_integer_division_matches_c_for_every_sign(element: str) -> None:
    dtype = numerics.compute_dtype(element)
    info = np.iinfo(dtype)
    values = [info.min, info.min + 1, -100, -7, -3, -1, 1, 2, 3, 7, 100, info.max]
    a, b = (grid.ravel().astype(dtype) for grid in np.meshgrid(values, values))
    keep = ~((a == info.min) & (b == -1))
    a, b = a[keep], b[keep]
    expected = [int(math.copysign(abs(x) // abs(y), x * y)) if abs(x) >= abs(y) else 0 for x, y in zip(a.tolist(), b.tolist())]
    expected = [(abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a.tolist(), b.tolist())]
    shapes = [a.shape, b.shape]
    assert run("arith.divsi", [element] * 2, element, a, b, shapes=shapes).tolist() == expected
    rest = [x - q * y for x, q, y in zip(a.tolist(), expected, b.tolist())]
    assert run("arith.remsi", [element] * 2, element, a, b, shapes=shapes).tolist() == rest
    bits = dtype.itemsize * 8
    unsigned = [(x % 2**bits) // (y % 2**bits) for x, y in zip(a.tolist(), b.tolist())]
    got = run("arith.divui", [element] * 2, element, a, b, shapes=shapes)
    assert (got.astype(object) % 2**bits).tolist() == unsigned


@pytest.mark.parametrize(
    "name", ["arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.ceildivsi", "arith.floordivsi"]
)
def test_division_by_zero_gives_a_value(name: str) -> None:
    assert run(name, ["i32"] * 2, "i32", I32, np.zeros(4, np.int32)).shape == (4,)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("arith.addi", [False, True, True, False]),
        ("arith.subi", [False, True, True, False]),
        ("arith.muli", [False, False, False, True]),
        ("arith.maxsi", [False, False, False, True]),  # signed, true is -1
        ("arith.minsi", [False, True, True, True]),
        ("arith.maxui", [False, True, True, True]),
        ("arith.minui", [False, False, False, True]),
        ("arith.andi", [False, False, False, True]),
        ("arith.ori", [False, True, True, True]),
        ("arith.xori", [False, True, True, False]),
        ("arith.shli", [False, False, True, False]),
        ("arith.shrui", [False, False, True, False]),
        ("arith.shrsi", [False, False, True, True]),
        ("arith.divui", [False, False, False, True]),
        ("arith.remui", [False, False, True, False]),
    ],
)
def test_int1_is_one_bit(name: str, expected: list[bool]) -> None:
    a, b = [False, False, True, True], [False, True, False, True]
    assert run(name, ["i1", "i1"], "i1", a, b).tolist() == expected


def test_int1_extends_to_minus_one_or_one() -> None:
    flags = [True, False, True, False]
    assert run("arith.extsi", ["i1"], "i32", flags).tolist() == [-1, 0, -1, 0]
    assert run("arith.extui", ["i1"], "i32", flags).tolist() == [1, 0, 1, 0]
    assert run("arith.sitofp", ["i1"], "f32", flags).tolist() == [-1, 0, -1, 0]
    assert run("arith.uitofp", ["i1"], "bf16", flags).tolist() == [1, 0, 1, 0]
    assert run("arith.trunci", ["i32"], "i1", [1, 2, 3, -1]).tolist() == [True, False, True, True]


@pytest.mark.parametrize("element", ["i1", "i8", "i32", "i64"])
def test_every_integer_comparison(element: str) -> None:
    bits = 1 if element == "i1" else int(element[1:])
    numbers = [0, 1] if bits == 1 else [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    a, b = (grid.ravel() for grid in np.meshgrid(numbers, numbers))

    def signed(x: int) -> int:
        return -x if bits == 1 else x

    def unsigned(x: int) -> int:
        return x % 2**bits

    rules: list[Any] = [
        lambda x, y: x == y,
        lambda x, y: x != y,
        lambda x, y: signed(x) < signed(y),
        lambda x, y: signed(x) <= signed(y),
        lambda x, y: signed(x) > signed(y),
        lambda x, y: signed(x) >= signed(y),
        lambda x, y: unsigned(x) < unsigned(y),
        lambda x, y: unsigned(x) <= unsigned(y),
        lambda x, y: unsigned(x) > unsigned(y),
        lambda x, y: unsigned(x) >= unsigned(y),
    ]
    for predicate, rule in enumerate(rules):
        got = run("arith.cmpi", [element] * 2, "i1", a, b, shapes=[a.shape] * 2, predicate=predicate)
        assert got.tolist() == [rule(x, y) for x, y in zip(a.tolist(), b.tolist())], predicate


def test_every_float_comparison() -> None:
    numbers = [1.0, 2.0, np.nan]
    a, b = (grid.ravel() for grid in np.meshgrid(numbers, numbers))
    ordered = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 6: "!="}
    for predicate in range(16):
        got = run("arith.cmpf", ["f32"] * 2, "i1", a, b, shapes=[a.shape] * 2, predicate=predicate)
        for x, y, value in zip(a.tolist(), b.tolist(), got.tolist()):
            is_nan = math.isnan(x) or math.isnan(y)
            if predicate in (0, 15):
                expected = predicate == 15
            elif predicate == 7:
                expected = not is_nan
            elif predicate == 14:
                expected = is_nan
            else:
                unordered = predicate >= 8
                compare = ordered[predicate - 7 if unordered else predicate]
                expected = unordered if is_nan else bool(eval(f"x {compare} y"))
            assert value == expected, (predicate, x, y)


def _bf16(values: Any) -> Any:
    return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "function"),
    [("arith.addf", np.add), ("arith.subf", np.subtract), ("arith.mulf", np.multiply), ("arith.divf", np.divide)],
)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_narrow_arithmetic_is_correctly_rounded(name: str, function: Any, element: str) -> None:
    dtype = np.float16 if element == "f16" else ml_dtypes.bfloat16
    rng = np.random.default_rng(1)
    for size in (64, 5000):  # both ways to round
        a, b = (rng.standard_normal(size).astype(dtype) for _ in range(2))
        expected = function(a.astype(np.float64), b.astype(np.float64))
        expected = numerics.round_to(expected, element)
        got = run(name, [element] * 2, element, a.astype(np.float32), b.astype(np.float32), shapes=[(size,)] * 2)
        np.testing.assert_array_equal(got, expected)


def test_known_bf16_values() -> None:
    assert run("arith.addf", ["bf16"] * 2, "bf16", [2.5, 1], [2, 1], shapes=[(2,)] * 2).tolist() == [4.5, 2]
    got = run("arith.cmpf", ["bf16"] * 2, "i1", [-5, -1], [-2, -3], shapes=[(2,)] * 2, predicate=4)
    assert got.tolist() == [True, False]
    assert run("arith.addf", ["bf16"] * 2, "bf16", [256], [1], shapes=[(1,)] * 2).tolist() == [256]


def test_max_and_min_of_nan() -> None:
    a, b = [np.nan, 1.0, np.nan, 2.0], [3.0, np.nan, np.nan, 5.0]
    np.testing.assert_array_equal(run("arith.maxnumf", ["f32"] * 2, "f32", a, b), [3, 1, np.nan, 5])
    np.testing.assert_array_equal(run("arith.minnumf", ["f32"] * 2, "f32", a, b), [3, 1, np.nan, 2])
    np.testing.assert_array_equal(run("arith.maximumf", ["f32"] * 2, "f32", a, b), [np.nan] * 3 + [5])
    np.testing.assert_array_equal(run("arith.minimumf", ["f32"] * 2, "f32", a, b), [np.nan] * 3 + [2])
    x, low, high = [np.nan, -1, 0.5, 9], [0.0] * 4, [1.0] * 4
    np.testing.assert_array_equal(run("tt.clampf", ["f32"] * 3, "f32", x, low, high, propagateNan=0), [0, 0, 0.5, 1])
    np.testing.assert_array_equal(run("tt.clampf", ["f32"] * 3, "f32", x, low, high, propagateNan=0xFFFF), [np.nan, 0, 0.5, 1])


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(4000).astype(np.float32) for _ in range(2))
    c = (-(a * b)).astype(np.float32)
    got = run("math.fma", ["f32"] * 3, "f32", a, b, c, shapes=[a.shape] * 3)
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    np.testing.assert_array_equal(got, exact.astype(np.float32))
    # 1 + 2**-24 lies halfway between two float32; the product's tiny rest decides
    a1, b1, c1 = np.float32(2**-60), np.float32(1), np.float32(1)
    assert run("math.fma", ["f32"] * 3, "f32", [a1], [b1], [c1], shapes=[(1,)] * 3)[0] == 1
    tie = [np.float32(1 + 2**-12)], [np.float32(1 + 2**-12)], [np.float32(2**-60)]
    exact_tie = (1 + 2**-12) ** 2 + 2.0**-60  # = 1 + 2**-11 + 2**-24 + 2**-60: just above the middle
    assert exact_tie == 1 + 2**-11 + 2**-24  # float64 alone loses it
    assert run("math.fma", ["f32"] * 3, "f32", *tie, shapes=[(1,)] * 3)[0] == np.float32(1 + 2**-11 + 2**-23)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("math.exp", np.exp),
        ("math.exp2", np.exp2),
        ("math.expm1", np.expm1),
        ("math.log", np.log),
        ("math.log2", np.log2),
        ("math.log10", np.log10),
        ("math.log1p", np.log1p),
        ("math.sqrt", np.sqrt),
        ("tt.precise_sqrt", np.sqrt),
        ("math.rsqrt", lambda x: 1 / np.sqrt(x)),
        ("math.cbrt", np.cbrt),
        ("math.sin", np.sin),
        ("math.cos", np.cos),
        ("math.tan", np.tan),
        ("math.asin", np.arcsin),
        ("math.acos", np.arccos),
        ("math.atan", np.arctan),
        ("math.sinh", np.sinh),
        ("math.cosh", np.cosh),
        ("math.tanh", np.tanh),
        ("math.asinh", np.arcsinh),
        ("math.acosh", np.arccosh),
        ("math.atanh", np.arctanh),
        ("math.erf", np.vectorize(math.erf)),
        ("math.erfc", np.vectorize(math.erfc)),
        ("math.floor", np.floor),
        ("math.ceil", np.ceil),
        ("math.trunc", np.trunc),
        ("math.roundeven", np.rint),
        ("math.absf", np.abs),
        ("arith.negf", np.negative),
    ],
)
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_functions_match_the_reference(name: str, reference: Any, element: str) -> None:
    x = np.array([0.0, 0.125, 0.25, 0.5, 0.75, 0.875, 1.0, 1.5, 2.5, -0.5], numerics.compute_dtype(element))
    got = run(name, [element], element, x, shapes=[x.shape]).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64))
    step = {"f16": 2**-10, "bf16": 2**-7, "f32": 4e-7, "f64": 1e-14}[element]
    np.testing.assert_allclose(got, expected, rtol=step, atol=step * 0.01)
    np.testing.assert_array_equal(numerics.round_to(got, element), got)


def test_a_lane_does_not_depend_on_its_company() -> None:
    x = np.random.default_rng(3).standard_normal(10000).astype(np.float32)
    for name in ("math.exp", "math.exp2", "math.sin", "math.log", "math.erf", "math.tanh"):
        together = run(name, ["f32"], "f32", np.abs(x), shapes=[x.shape])
        apart = run(name, ["f32"], "f32", np.abs(x[::7]), shapes=[x[::7].shape])
        np.testing.assert_array_equal(together[::7], apart, err_msg=name)


def test_float_to_int_saturates_as_ptx_does() -> None:
    x = [np.nan, np.inf, -np.inf, 2.9]
    assert run("arith.fptosi", ["f32"], "i32", x).tolist() == [0, 2**31 - 1, -(2**31), 2]
    assert run("arith.fptoui", ["f32"], "i32", x).tolist() == [0, -1, 0, 2]
    assert run("arith.fptosi", ["f32"], "i64", x).tolist() == [-(2**63), 2**63 - 1, -(2**63), 2]
    assert run("arith.fptosi", ["f64"], "i32", x).tolist() == [-(2**31), 2**31 - 1, -(2**31), 2]
    assert run("arith.fptosi", ["f32"], "i16", [1e6, -1e6, -2.9, 3.5]).tolist() == [32767, -32768, -2, 3]
    assert run("arith.fptosi", ["f32"], "i8", [100, -100, -2.9, 3.5]).tolist() == [100, -100, -2, 3]
    assert run("arith.fptoui", ["f32"], "i8", [200, 255, 0.5, 3.5]).tolist() == [-56, -1, 0, 3]
    big = run("arith.fptoui", ["f64"], "i64", [2.0**63, 2.0**64, 1.8e19, -1.0])
    assert (big.astype(object) % 2**64).tolist() == [2**63, 2**64 - 1, int(1.8e19), 0]


def test_int_to_float_rounds_once() -> None:
    # 2**24 + 2**16 + 1 is above the middle of two bf16; through float32 it would be the middle
    n = 2**24 + 2**16 + 1
    assert run("arith.sitofp", ["i32"], "bf16", [n], shapes=[(1,)])[0] == 2**24 + 2**17
    assert run("arith.sitofp", ["i32"], "f16", [65519, 65520, -3, 2049]).tolist() == [65504, np.inf, -3, 2048]
    assert run("arith.uitofp", ["i32"], "f32", [-1, 0, 1, 2]).tolist() == [2.0**32, 0, 1, 2]


def test_bit_casts() -> None:
    assert run("arith.bitcast", ["f32"], "i32", [1.0] * 4).tolist() == [0x3F800000] * 4
    assert run("arith.bitcast", ["i32"], "f32", [0x3F800000] * 4).tolist() == [1.0] * 4
    assert run("tt.bitcast", ["f16"], "i16", [1.0] * 4).tolist() == [0x3C00] * 4
    assert run("tt.bitcast", ["i16"], "bf16", [0x3F80] * 4).tolist() == [1.0] * 4
    assert run("tt.bitcast", ["bf16"], "f16", [1.0] * 4).tolist() == [np.uint16(0x3F80).view(np.float16)] * 4
    assert run("tt.bitcast", ["i8"], "f8E4M3FN", [0x38] * 4).tolist() == [1.0] * 4
    assert run("tt.bitcast", ["f8E5M2"], "i8", [1.0] * 4).tolist() == [0x3C] * 4
    assert run("tt.bitcast", ["ptr<f32>"], "ptr<i8>", [4096] * 4).tolist() == [4096] * 4
    assert run("tt.ptr_to_int", ["ptr<f32>"], "i64", [4096] * 4).tolist() == [4096] * 4
    assert run("tt.int_to_ptr", ["i64"], "ptr<f32>", [4096] * 4).tolist() == [4096] * 4


def test_float_conversions_round_and_saturate() -> None:
    assert run("tt.fp_to_fp", ["f32"], "f8E4M3FN", [500, 0.1, 1, -500], rounding=1).tolist() == [448, 0.1015625, 1, -448]
    assert run("tt.fp_to_fp", ["f32"], "f8E5M2", [1e6, 1.125, 1, 2], rounding=1).tolist() == [57344, 1.0, 1, 2]
    assert run("tt.fp_to_fp", ["f16"], "f8E5M2", [1.125, 1.375, 1, 2], rounding=1).tolist() == [1.0, 1.5, 1, 2]
    assert run("tt.fp_to_fp", ["f32"], "bf16", [1.007], shapes=[(1,)], rounding=0).tolist() == [1.0]
    assert run("tt.fp_to_fp", ["f32"], "bf16", [1.007], shapes=[(1,)], rounding=1).tolist() == [1.0078125]
    assert run("tt.fp_to_fp", ["f8E4M3FN"], "bf16", [448] * 4).tolist() == [448] * 4
    assert run("arith.truncf", ["f64"], "f32", [0.1] * 4).tolist() == [np.float32(0.1)] * 4
    assert run("arith.extf", ["bf16"], "f64", [1.5] * 4).tolist() == [1.5] * 4


@pytest.mark.parametrize("size", [4, 8192])
@pytest.mark.parametrize("element", ["i1", "i8", "i16", "i32", "i64", "bf16", "f32", "f64", "ptr<f32>"])
def test_select(size: int, element: str) -> None:
    rng = np.random.default_rng(4)
    dtype = numerics.compute_dtype(element)
    a, b = (rng.integers(-100, 100, size).astype(dtype) for _ in range(2))
    for condition in (rng.random(size) < 0.5, np.ones(size, bool), np.zeros(size, bool)):
        got = run("arith.select", ["i1", element, element], element, condition, a, b, shapes=[(size,)] * 3)
        np.testing.assert_array_equal(got, np.where(condition, a, b))


def test_select_broadcasts_lazily_and_takes_a_scalar_condition() -> None:
    condition = np.random.default_rng(5).random((64, 128)) < 0.5
    a, b = np.arange(128, dtype=np.float32)[None], np.float32([[7]])
    shapes = [(64, 128)] * 3
    got = run("arith.select", ["i1", "f32", "f32"], "f32", condition, a, b, shapes=shapes)
    np.testing.assert_array_equal(got, np.where(condition, a, b))
    got = run("arith.select", ["i1", "f32", "f32"], "f32", True, a, a + 1, shapes=[(), (1, 128), (1, 128)])
    np.testing.assert_array_equal(got, a)


def test_wide_products() -> None:
    values = [0, 1, -1, 2**63 - 1, -(2**63), 0x123456789ABCDEF]
    a, b = (grid.ravel().astype(np.int64) for grid in np.meshgrid(values, values))
    shapes = [a.shape] * 2
    low, high = run("arith.mulsi_extended", ["i64"] * 2, "i64", a, b, shapes=shapes)
    for x, y, got_low, got_high in zip(a.tolist(), b.tolist(), low.tolist(), high.tolist()):
        assert got_high * 2**64 + got_low % 2**64 == x * y
    low, high = run("arith.mului_extended", ["i64"] * 2, "i64", a, b, shapes=shapes)
    for x, y, got_low, got_high in zip(a.tolist(), b.tolist(), low.tolist(), high.tolist()):
        assert (got_high % 2**64) * 2**64 + got_low % 2**64 == (x % 2**64) * (y % 2**64)


def test_bit_counts() -> None:
    x = [0, 1, 12, -1]
    assert run("math.ctpop", ["i32"], "i32", x).tolist() == [0, 1, 2, 32]
    assert run("math.ctlz", ["i32"], "i32", x).tolist() == [32, 31, 28, 0]
    assert run("math.cttz", ["i32"], "i32", x).tolist() == [32, 0, 2, 0]
    assert run("math.absi", ["i32"], "i32", [-5, 5, 0, -(2**31)]).tolist() == [5, 5, 0, -(2**31)]


def test_poison_is_a_value() -> None:
    op = Op("ub.poison", [], [], {}, [], [], NO_LOCATION)
    op.results.append(Value(parse_type("tensor<4x8xf32>"), None, 0, op))
    env = Environment()
    value = env.names[ELEMENTWISE["ub.poison"](op, [], env)]
    assert value.shape == (1, 1, 1)
    assert value.dtype == np.float32


def test_impure_externals_are_not_elementwise() -> None:
    op = Op("tt.extern_elementwise", [], [], {"symbol": "__nv_sinf", "pure": False}, [], [], NO_LOCATION)
    assert not is_elementwise(op)
    op.attributes["pure"] = True
    assert is_elementwise(op)


def extern(symbol: str, types: list[str], result: str, *arrays: Any) -> Any:
    shapes = [(np.size(arrays[0]),)] * len(types)
    return run("tt.extern_elementwise", types, result, *arrays, shapes=shapes, symbol=symbol, pure=True)


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("tanh", math.tanh),
        ("asin", math.asin),
        ("sinh", math.sinh),
        ("exp2", lambda x: 2**x),
        ("log1p", math.log1p),
        ("erf", math.erf),
        ("erfc", math.erfc),
        ("lgamma", math.lgamma),
        ("cbrt", lambda x: x ** (1 / 3)),
        ("rsqrt", lambda x: x**-0.5),
        ("log2", math.log2),
        ("expm1", math.expm1),
        ("rint", lambda x: float(round(x))),
    ],
)
def test_libdevice_functions_under_both_spellings(name: str, reference: Any, precision: str) -> None:
    x = np.array([0.125, 0.5, 0.75, 0.9])
    expected = [reference(v) for v in x]
    tolerance = 1e-6 if precision == "f32" else 1e-13
    nvidia = f"__nv_{name}{'f' if precision == 'f32' else ''}"
    np.testing.assert_allclose(extern(nvidia, [precision], precision, x), expected, rtol=tolerance)
    np.testing.assert_allclose(extern(f"__ocml_{name}_{precision}", [precision], precision, x), expected, rtol=tolerance)


def test_more_of_libdevice() -> None:
    assert extern("__nv_powf", ["f32"] * 2, "f32", [2.0, -2.0], [10.0, 3.0]).tolist() == [1024, -8]
    assert extern("__nv_powif", ["f32", "i32"], "f32", [2.0, -2.0], [10, -1]).tolist() == [1024, -0.5]
    assert extern("__nv_llrintf", ["f32"], "i64", [2.5, -3.5]).tolist() == [2, -4]
    assert extern("__nv_llround", ["f64"], "i64", [2.5, -3.5]).tolist() == [3, -4]
    assert extern("__nv_isnanf", ["f32"], "i32", [np.nan, 1.0]).tolist() == [1, 0]
    assert extern("__nv_fmodf", ["f32"] * 2, "f32", [-7.0], [3.0]).tolist() == [-1]
    assert extern("__nv_remainder", ["f64"] * 2, "f64", [7.0], [4.0]).tolist() == [-1]
    assert extern("__nv_ffs", ["i32"], "i32", [0, 8, 1]).tolist() == [0, 4, 1]
    assert extern("__nv_clzll", ["i64"], "i32", [1, 0]).tolist() == [63, 64]
    assert extern("__nv_brev", ["i32"], "i32", [1, -(2**31)]).tolist() == [-(2**31), 1]
    assert extern("__nv_byte_perm", ["i32"] * 3, "i32", [0x03020100], [0x07060504], [0x7531]).tolist() == [0x07050301]
    assert extern("__nv_umulhi", ["i32"] * 2, "i32", [-1], [-1]).tolist() == [-2]
    assert extern("__nv_mulhi", ["i32"] * 2, "i32", [-1], [5]).tolist() == [-1]
    assert extern("__nv_hadd", ["i32"] * 2, "i32", [2**31 - 1], [2**31 - 1]).tolist() == [2**31 - 1]
    assert extern("__nv_sad", ["i32"] * 3, "i32", [3], [10], [1]).tolist() == [8]
    assert extern("__nv_ilogbf", ["f32"], "i32", [8.0, 0.0, np.inf]).tolist() == [3, -(2**31), 2**31 - 1]
    assert extern("__nv_ldexpf", ["f32", "i32"], "f32", [1.5], [4]).tolist() == [24]
    assert extern("__nv_float_as_int", ["f32"], "i32", [1.0]).tolist() == [0x3F800000]
    assert extern("__nv_double2hiint", ["f64"], "i32", [1.0]).tolist() == [0x3FF00000]
    assert extern("__nv_hiloint2double", ["i32"] * 2, "f64", [0x3FF00000], [0]).tolist() == [1.0]
    assert extern("__nv_saturatef", ["f32"], "f32", [np.nan, 2.0, -1.0]).tolist() == [0, 1, 0]
    np.testing.assert_allclose(extern("__nv_norm3df", ["f32"] * 3, "f32", [2e30], [3e30], [6e30]), [7e30], rtol=1e-6)
    assert extern("__nv_sinpif", ["f32"], "f32", [1.0, 0.5]).tolist() == [0, 1]
    assert extern("__nv_cospi", ["f64"], "f64", [0.5, 1.0]).tolist() == [0, -1]
    np.testing.assert_allclose(extern("__nv_jnf", ["i32", "f32"], "f32", [2, 3], [1.0, 5.0]), [0.1149035, 0.3648312], rtol=1e-6)
    np.testing.assert_allclose(extern("__nv_yn", ["i32", "f64"], "f64", [2], [1.0]), [-1.6506826068], rtol=1e-9)
    np.testing.assert_allclose(extern("__nv_erfcinv", ["f64"], "f64", [0.5]), [0.476936276204], rtol=1e-9)
    np.testing.assert_allclose(extern("__nv_tgamma", ["f64"], "f64", [5.0, 0.5]), [24, math.sqrt(math.pi)], rtol=1e-12)
    np.testing.assert_allclose(extern("__nv_exp10f", ["f32"], "f32", [2.0]), [100], rtol=1e-6)


def test_directed_rounding() -> None:
    one, tiny = [1.0, -1.0], [2.0**-40, -(2.0**-40)]
    up, down = float(np.nextafter(np.float32(1), np.float32(2))), float(np.nextafter(np.float32(1), np.float32(0)))
    assert extern("__nv_fadd_rn", ["f32"] * 2, "f32", one, tiny).tolist() == [1, -1]
    assert extern("__nv_fadd_ru", ["f32"] * 2, "f32", one, tiny).tolist() == [up, -1]
    assert extern("__nv_fadd_rd", ["f32"] * 2, "f32", one, tiny).tolist() == [1, -up]
    assert extern("__nv_fadd_rz", ["f32"] * 2, "f32", one, tiny).tolist() == [1, -1]
    assert extern("__nv_fsub_rz", ["f32"] * 2, "f32", one, tiny).tolist() == [down, -down]
    third = [1.0, -1.0], [3.0, 3.0]
    low, high = extern("__nv_fdiv_rd", ["f32"] * 2, "f32", *third), extern("__nv_fdiv_ru", ["f32"] * 2, "f32", *third)
    assert all(low < high)
    assert float(low[0]) < 1 / 3 < float(high[0])
    assert extern("__nv_float2int_ru", ["f32"], "i32", [2.1, -2.1]).tolist() == [3, -2]
    assert extern("__nv_float2uint_rd", ["f32"], "i32", [2.9, -2.1]).tolist() == [2, 0]
    n = 2**24 + 1
    assert extern("__nv_int2float_rd", ["i32"], "f32", [n, -n]).tolist() == [2**24, -(2**24) - 2]
    assert extern("__nv_int2float_ru", ["i32"], "f32", [n, -n]).tolist() == [2**24 + 2, -(2**24)]
    assert extern("__nv_ull2float_rz", ["i64"], "f32", [-1]).tolist() == [float(np.nextafter(np.float32(2**64), np.float32(0)))]
    assert extern("__nv_double2float_rz", ["f64"], "f32", [1e300, 0.1]).tolist()[0] == float(np.finfo(np.float32).max)


def test_an_unknown_external_function_is_named() -> None:
    with pytest.raises(UnsupportedOpError, match="__nv_sinhy"):
        extern("__nv_sinhy", ["f32"], "f32", [1.0])


def test_the_libdevice_table_covers_what_triton_declares() -> None:
    import re
    from pathlib import Path

    import triton.language.extra as extra

    missing = []
    for file in Path(extra.__path__[0]).glob("*/libdevice.py"):
        for symbol in re.findall(r'"(__[a-z]+_\w+)"', file.read_text()):
            if libdevice.resolve(symbol) is None:
                missing.append(symbol)
    assert not missing
