"""libdevice's integer functions, conversions and roundings with a direction, by Python's integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numbers import libdevice_kernels as kernels
from tests.numbers.common import ALL, FORMATS, INTEGERS
from tests.numbers.test_libdevice import ONE, PAIRS, TWO, generic  # noqa: F401  (a fixture)
from tritontrace.engines.ir.ops import libdevice

INF, NAN = math.inf, math.nan


def wrap(value: int, name: str) -> int:
    bits = 8 * np.dtype(INTEGERS[name][1]).itemsize
    value %= 1 << bits
    return value - (1 << bits) if not name.startswith("u") and value >> (bits - 1) else value


def _high(a: int, b: int, bits: int) -> int:
    return a * b >> bits


def _low24(v: int, signed: bool) -> int:
    v &= 0xFFFFFF
    return v - (1 << 24) if signed and v >> 23 else v


def _permuted(x: int, y: int, s: int) -> int:
    both = (x % 2**32) | (y % 2**32) << 32
    return sum((both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i for i in range(4))


def bits_of(kind: str) -> int:
    return int(kind.lstrip("uint"))


# name -> rule of (numbers, kinds of the operands)
INTEGER: dict[str, Callable[..., int]] = {
    "clz": lambda v, k: bits_of(k[0]) - (v[0] % 2 ** bits_of(k[0])).bit_length(),
    "popc": lambda v, k: (v[0] % 2 ** bits_of(k[0])).bit_count(),
    "ffs": lambda v, k: (v[0] & -v[0]).bit_length(),
    "brev": lambda v, k: int(f"{v[0] % 2 ** bits_of(k[0]):0{bits_of(k[0])}b}"[::-1], 2),
    "byte_perm": lambda v, k: _permuted(*v),
    "mulhi": lambda v, k: v[0] * v[1] >> bits_of(k[0]),
    "mul24": lambda v, k: _low24(v[0], k[0][0] == "i") * _low24(v[1], k[0][0] == "i"),
    "sad": lambda v, k: abs(v[0] - v[1]) + v[2],
    "hadd": lambda v, k: (v[0] + v[1]) >> 1,
    "rhadd": lambda v, k: (v[0] + v[1] + 1) >> 1,
    "abs": lambda v, k: abs(v[0]),
}


@pytest.mark.parametrize("name", sorted(INTEGER))
def test_integer_functions(generic: Any, name: str) -> None:  # noqa: F811
    for operands, result in kernels.CUDA[name]:
        if operands[0].startswith("fp"):
            continue
        width = bits_of(operands[0])
        rng = np.random.default_rng(5)
        edges = [0, 1, -1, 2, 7, 255, 2**23, 2**24 - 1, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 2, 0x7531]
        columns = []
        for kind in operands:
            numbers = [*edges, *(int(v) for v in rng.integers(0, 2**63, 60))]
            rng.shuffle(numbers)
            columns.append([wrap(v, kind) for v in numbers])
        arrays = [np.array(c, INTEGERS[k][1]) for c, k in zip(columns, operands)]
        got = kernels.call(generic, name, (operands, result), *arrays).tolist()
        expected = [wrap(INTEGER[name](row, operands), result) for row in zip(*columns)]
        assert got == expected, (name, operands)


ROUND: dict[str, Callable[[Fraction], int]] = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}
TO_INTEGER = {f"{s}2{t}_{m}": (s, t, m) for s in ("float", "double") for t in ("int", "uint", "ll", "ull") for m in ROUND}
KINDS = {"float": "fp32", "double": "fp64", "int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64"}


@pytest.mark.parametrize("name", sorted(TO_INTEGER))
def test_float_to_integer_in_every_direction(generic: Any, name: str) -> None:  # noqa: F811
    if name not in kernels.CUDA:
        pytest.skip("libdevice has not this one")
    source, target, mode = TO_INTEGER[name]
    limits = np.iinfo(INTEGERS[KINDS[target]][1])
    x = [
        0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.49999997,
        2.0**31,
        2.0**31 - 0.5,
        2.0**32,
        -(2.0**31) - 0.5,
        2.0**63,
        2.0**64,
        1e30,
        -1e30,
        INF,
        -INF,
    ]
    arrays = np.array([*x, *(np.random.default_rng(0).standard_normal(50) * 1e5)], FORMATS[KINDS[source]][1])
    got = kernels.call(generic, name, kernels.CUDA[name][0], arrays)
    for value, number in zip(arrays.tolist(), got.tolist()):
        exact = (limits.max if value > 0 else limits.min) if math.isinf(value) else ROUND[mode](Fraction(value))
        clamped = min(max(exact, int(limits.min)), int(limits.max))
        assert number % 2**64 % 2 ** bits_of(KINDS[target]) == clamped % 2 ** bits_of(KINDS[target]), (name, value)


def directed(value: Fraction, dtype: Any, mode: str) -> float:
    """An exact number in the format, rounded in a direction; searched from numpy's rounding to nearest, one step either way."""
    info = np.finfo(dtype)
    if mode == "rn":
        try:
            wide = float(value)  # rounds once
        except OverflowError:
            return INF if value > 0 else -INF
        if dtype == np.float64:
            return wide
    top = Fraction(float(info.max))
    start = dtype(float(min(max(value, -top), top)))
    near = sorted({float(start), float(np.nextafter(start, dtype(INF))), float(np.nextafter(start, dtype(-INF)))})
    below = [v for v in near if (v == -INF or (v != INF and Fraction(v) <= value))]
    above = [v for v in near if (v == INF or (v != -INF and Fraction(v) >= value))]
    low, high = max(below), min(above)
    if mode == "rd":
        return low
    if mode == "ru":
        return high
    if mode == "rz":
        return low if value > 0 else high
    if math.isinf(low) or math.isinf(high):  # nearest: beyond the largest value by half a step it is infinite
        step = top - Fraction(float(np.nextafter(info.max, dtype(0))))
        return math.copysign(INF if abs(value) >= top + step / 2 else float(info.max), 1 if value > 0 else -1)
    if low == high:
        return low
    left, right = value - Fraction(low), Fraction(high) - value
    if left != right:
        return low if left < right else high
    return low if not int(dtype(low).view(f"i{dtype(0).itemsize}")) & 1 else high


ARITHMETIC: dict[str, tuple[int, Callable[..., Fraction | None]]] = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "div": (2, lambda a, b: a / b if b else None),
    "rcp": (1, lambda a: 1 / a if a else None),
    "fma": (3, lambda a, b, c: a * b + c),
}
FORM = [f"{operation}_{mode}" for operation in ARITHMETIC for mode in ROUND]


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from(FORM), st.sampled_from(["fp32", "fp64"]))
def test_arithmetic_in_every_direction(data: st.DataObject, name: str, kind: str) -> None:
    operation, mode = name.split("_")
    count, exact = ARITHMETIC[operation]
    dtype = FORMATS[kind][1]
    number = st.floats(width=32 if kind == "fp32" else 64, allow_nan=False, allow_infinity=False)
    near = st.floats(0.5, 2, width=32 if kind == "fp32" else 64)
    rows = data.draw(st.lists(st.tuples(*[st.one_of(number, near)] * count), min_size=1, max_size=8))
    arrays = [np.array(column, dtype) for column in zip(*rows)]
    symbol = {"fma": f"__nv_fma{'f' if kind == 'fp32' else ''}_{mode}"}.get(
        operation, f"__nv_{'f' if kind == 'fp32' else 'd'}{operation}_{mode}"
    )
    function = libdevice.resolve(symbol)
    assert function is not None
    with np.errstate(all="ignore"):
        got = function(*arrays)
    for row, value in zip(zip(*(a.tolist() for a in arrays)), got.tolist()):
        fraction = exact(*map(Fraction, row))
        if fraction is None:
            continue
        if fraction == 0:
            assert value == 0
            continue
        assert value == directed(fraction, dtype, mode), (symbol, row)


@pytest.mark.parametrize("name", FORM + [f"sqrt_{mode}" for mode in ROUND])
def test_every_direction_through_a_kernel(generic: Any, name: str) -> None:  # noqa: F811
    operation, mode = name.split("_")
    for signature in kernels.CUDA[name]:
        dtype = FORMATS[signature[1]][1]
        arrays = [np.array(v, dtype) for v in ([3.0, 7.0, 1.0], [7.0, 3.0, 10.0], [0.1, 2.0, 1e-3])][: len(signature[0])]
        got = kernels.call(generic, name, signature, *arrays).tolist()
        for value, row in zip(got, zip(*(a.tolist() for a in arrays))):
            if operation == "sqrt":
                low = math.isqrt(int(Fraction(row[0]) * 2**240))
                exact = Fraction(low, 2**120) if Fraction(low, 2**120) ** 2 == Fraction(row[0]) else Fraction(2 * low + 1, 2**121)
            else:
                exact = ARITHMETIC[operation][1](*map(Fraction, row))
                assert exact is not None
            assert value == directed(exact, dtype, mode), (name, row)


def test_infinities_overflow_and_zeros_in_every_direction(generic: Any) -> None:  # noqa: F811
    top = float(np.finfo(np.float64).max)
    a, b = np.array([top, -top, INF, 1.0, 0.0]), np.array([top, -top, -INF, -1.0, -0.0])
    signature = (("fp64", "fp64"), "fp64")
    results = {mode: kernels.call(generic, f"add_{mode}", signature, a, b).tolist() for mode in ROUND}
    assert results["rn"][:2] == [INF, -INF]
    assert results["rz"][:2] == [top, -top]
    assert results["rd"][:2] == [top, -INF]
    assert results["ru"][:2] == [INF, -top]
    assert all(math.isnan(r[2]) for r in results.values())
    infinite = np.array([1.0, -2.0, INF, 0.0]), np.array([INF, INF, 2.0, -INF])
    for kind in ("fp32", "fp64"):
        x, y = (v.astype(FORMATS[kind][1]) for v in infinite)
        for mode in ROUND:
            got = kernels.call(generic, f"div_{mode}", ((kind, kind), kind), x, y)
            assert got.tolist() == [0.0, -0.0, INF, -0.0]
            assert np.signbit(got).tolist() == [False, True, False, True]
    for mode, r in results.items():  # 1 + -1 and 0 + -0
        assert [math.copysign(1, v) for v in r[3:]] == ([-1, -1] if mode == "rd" else [1, 1]), mode


@pytest.mark.parametrize("source", ["int", "uint", "ll", "ull"])
@pytest.mark.parametrize("target", ["float", "double"])
def test_integer_to_float_in_every_direction(generic: Any, source: str, target: str) -> None:  # noqa: F811
    kind = KINDS[source]
    dtype = FORMATS[KINDS[target]][1]
    width = bits_of(kind)
    numbers = [
        wrap(v, kind)
        for v in (0, 1, -1, 2**24 + 1, -(2**24) - 1, 2**24 + 3, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1, 2**53 + 1)
    ]
    for mode in ROUND:
        name = f"{source}2{target}_{mode}"
        if name not in kernels.CUDA:
            continue
        got = kernels.call(generic, name, kernels.CUDA[name][0], np.array(numbers, INTEGERS[kind][1])).tolist()
        assert got == [directed(Fraction(v), dtype, mode) if v else 0.0 for v in numbers], name


@pytest.mark.parametrize("mode", ROUND)
def test_double_to_float(generic: Any, mode: str) -> None:  # noqa: F811
    x = np.array([0.1, -0.1, 1e300, -1e300, 1e-46, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 3.4028235677973366e38])
    got = kernels.call(generic, f"double2float_{mode}", (("fp64",), "fp32"), x).tolist()
    assert got == [directed(Fraction(v), np.float32, mode) for v in x.tolist()]


# what these give is a matter of one line each: (arguments, results)
PLAIN: dict[str, list[tuple[tuple[Any, ...], Any]]] = {
    "floor": [((-0.5,), -1.0), ((-0.0,), -0.0), ((INF,), INF)],
    "ceil": [((-0.5,), -0.0), ((0.2,), 1.0)],
    "trunc": [((-1.9,), -1.0), ((1.9,), 1.0)],
    "rint": [((0.5,), 0.0), ((1.5,), 2.0), ((-2.5,), -2.0)],
    "nearbyint": [((0.5,), 0.0), ((1.5,), 2.0)],
    "round": [((0.5,), 1.0), ((-2.5,), -3.0), ((0.49999997,), 0.0), ((8388609.0,), 8388609.0), ((-0.2,), -0.0)],
    "llrint": [((2.5,), 2), ((-3.5,), -4)],
    "llround": [((2.5,), 3), ((-3.5,), -4)],
    "abs": [((-0.0,), 0.0), ((-INF,), INF)],
    "isnan": [((NAN,), 1), ((1.0,), 0)],
    "isinf": [((-INF,), 1), ((NAN,), 0)],
    "finitef": [((1.0,), 1), ((INF,), 0), ((NAN,), 0)],
    "isfinited": [((1.0,), 1), ((INF,), 0), ((NAN,), 0)],
    "signbit": [((-0.0,), 1), ((1.0,), 0)],
    "saturatef": [((NAN,), 0.0), ((2.0,), 1.0), ((-1.0,), 0.0), ((0.25,), 0.25)],
    "logb": [((8.0,), 3.0), ((0.0,), -INF), ((-INF,), INF), ((0.75,), -1.0)],
    "ilogb": [((8.0,), 3), ((0.0,), -(2**31)), ((NAN,), -(2**31)), ((INF,), 2**31 - 1)],
    "float_as_int": [((1.0,), 0x3F800000), ((-0.0,), -(2**31))],
    "float_as_uint": [((1.0,), 0x3F800000)],
    "int_as_float": [((0x3F800000,), 1.0)],
    "uint_as_float": [((0xBF800000,), -1.0)],
    "longlong_as_double": [((0x3FF0000000000000,), 1.0)],
    "double_as_longlong": [((1.0,), 0x3FF0000000000000)],
    "double2hiint": [((-1.0,), 0xBFF00000 - 2**32)],
    "double2loint": [((1.0 + 2.0**-52,), 1)],
    "hiloint2double": [((0x3FF00000, -1), 1.0 + (2**32 - 1) * 2.0**-52)],
    "rsqrt_rn": [((4.0,), 0.5)],
    "fma": [((2.0, 3.0, 4.0), 10.0)],
    "rcp64h": [((2.0,), 0.5), ((INF,), 0.0), ((0.0,), INF)],
    "fast_tanhf": [((0.0,), 0.0)],
}


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_plain_functions(generic: Any, name: str) -> None:  # noqa: F811
    if name not in kernels.CUDA:
        pytest.skip("not in this Triton for this target")
    for operands, result in kernels.CUDA[name]:
        if name == "abs" and operands[0].startswith("int"):
            continue
        columns = list(zip(*(arguments for arguments, _ in PLAIN[name])))
        got = kernels.call(generic, name, (operands, result), *(np.array(c, ALL[k][1]) for c, k in zip(columns, operands)))
        expected = np.array([value for _, value in PLAIN[name]]).astype(ALL[result][1])
        np.testing.assert_array_equal(got, expected, err_msg=f"{name} {operands}")
        if result.startswith("fp"):
            assert (np.signbit(got) == np.signbit(expected)).all(), name


def test_every_declared_function_is_tested() -> None:
    """A function that a newer Triton declares must be added to one of the tables of this page or of `test_libdevice`."""
    directions = {*FORM, *TO_INTEGER, *(f"sqrt_{m}" for m in ROUND), *(f"double2float_{m}" for m in ROUND)}
    directions |= {f"{s}2{t}_{m}" for s in ("int", "uint", "ll", "ull") for t in ("float", "double") for m in ROUND}
    tested = {*INTEGER, *PLAIN, *directions, *ONE, *TWO, *PAIRS, "jn", "yn", "ldexp", "scalbn"}
    assert len(kernels.CUDA) > 150
    assert sorted({*kernels.CUDA, *kernels.HIP} - tested) == []


# -- the other spellings ------------------------------------------------------------------------------------------------


def arguments_for(signature: kernels.Signature, name: str) -> list[Any]:
    rng = np.random.default_rng(1)
    floats = rng.uniform(0.05, 0.95, 8)
    if name in ("acosh",):
        floats += 1
    return [floats.astype(ALL[k][1]) if k.startswith("fp") else np.arange(1, 9, dtype=ALL[k][1]) for k in signature[0]]


@pytest.mark.parametrize("spelling", [pytest.param("cuda", marks=pytest.mark.slow), "hip"])
def test_other_spellings_give_the_same_values(tmp_path: Any, spelling: str) -> None:
    """`tl.extra.cuda.libdevice`, and `tl.extra.hip.libdevice` for an AMD target, against the table itself."""
    module = kernels.write(tmp_path, spelling)
    target = "hip:gfx942" if spelling == "hip" else "cuda:90"
    symbols = kernels.symbols(kernels.hip if spelling == "hip" else kernels.cuda)
    for name, signatures in (kernels.HIP if spelling == "hip" else kernels.CUDA).items():
        signature = signatures[0]
        arrays = arguments_for(signature, name)
        got = kernels.call(module, name, signature, *arrays, target=target)
        function = libdevice.resolve(symbols[name, signature[0]])
        assert function is not None
        signed = [a.view(f"i{a.itemsize}") if a.dtype.kind == "u" else a for a in arrays]
        expected = np.asarray(function(*signed)).astype(got.dtype if got.dtype.kind == "f" else np.int64)
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=name)
