"""The real functions of libdevice, in fp32 and fp64, against mpmath: over good ranges, and at their special values."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from tests.numbers import libdevice_kernels as kernels
from tests.numbers.common import FORMATS, ulps
from tritontrace.errors import UnsupportedOpError

Real = Callable[..., Any]


@pytest.fixture(scope="module")
def generic(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kernels.write(tmp_path_factory.mktemp("libdevice"), "generic")


def _root3(x: Any) -> Any:
    return mp.sign(x) * mp.cbrt(abs(x))


def _normal_quantile(p: Any) -> Any:
    return mp.sqrt(2) * mp.erfinv(2 * p - 1)


def _log_gamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x)))


INF, NAN = math.inf, math.nan
# name -> (reference, range, (argument, value) at the edges)
ONE: dict[str, tuple[Real, tuple[float, float], list[tuple[float, float]]]] = {
    "sqrt": (mp.sqrt, (0, 1e9), [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN)]),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), (1e-9, 1e9), [(0.0, INF), (INF, 0.0), (-1.0, NAN)]),
    "cbrt": (_root3, (-1e9, 1e9), [(-0.0, -0.0), (-INF, -INF), (-8.0, -2.0)]),
    "rcbrt": (lambda x: 1 / _root3(x), (-1e9, 1e9), [(0.0, INF), (-0.0, -INF), (INF, 0.0)]),
    "exp": (mp.exp, (-80, 80), [(INF, INF), (-INF, 0.0), (0.0, 1.0)]),
    "exp2": (lambda x: mp.mpf(2) ** x, (-120, 120), [(INF, INF), (-INF, 0.0), (3.0, 8.0)]),
    "exp10": (lambda x: mp.mpf(10) ** x, (-37, 37), [(INF, INF), (-INF, 0.0), (0.0, 1.0)]),
    "expm1": (mp.expm1, (-20, 80), [(INF, INF), (-INF, -1.0), (-0.0, -0.0)]),
    "log": (mp.log, (1e-30, 1e30), [(0.0, -INF), (INF, INF), (-1.0, NAN), (1.0, 0.0)]),
    "log2": (lambda x: mp.log(x, 2), (1e-30, 1e30), [(0.0, -INF), (INF, INF), (-1.0, NAN), (8.0, 3.0)]),
    "log10": (mp.log10, (1e-30, 1e30), [(0.0, -INF), (INF, INF), (-1.0, NAN), (1.0, 0.0)]),
    "log1p": (mp.log1p, (-0.999, 1e5), [(-1.0, -INF), (-0.0, -0.0), (INF, INF), (-2.0, NAN)]),
    "sin": (mp.sin, (-1e4, 1e4), [(-0.0, -0.0), (INF, NAN)]),
    "cos": (mp.cos, (-1e4, 1e4), [(0.0, 1.0), (INF, NAN)]),
    "tan": (mp.tan, (-1e4, 1e4), [(-0.0, -0.0), (INF, NAN)]),
    "sinpi": (mp.sinpi, (-100, 100), [(-0.0, -0.0), (1.0, 0.0), (-2.0, -0.0), (0.5, 1.0), (1.5, -1.0), (INF, NAN)]),
    "cospi": (mp.cospi, (-100, 100), [(0.0, 1.0), (1.0, -1.0), (0.5, 0.0), (1.5, 0.0), (-INF, NAN)]),
    "asin": (mp.asin, (-1, 1), [(-0.0, -0.0), (2.0, NAN)]),
    "acos": (mp.acos, (-1, 1), [(1.0, 0.0), (2.0, NAN)]),
    "atan": (mp.atan, (-1e4, 1e4), [(-0.0, -0.0)]),
    "sinh": (mp.sinh, (-80, 80), [(-0.0, -0.0), (-INF, -INF)]),
    "cosh": (mp.cosh, (-80, 80), [(0.0, 1.0), (-INF, INF)]),
    "tanh": (mp.tanh, (-20, 20), [(-0.0, -0.0), (INF, 1.0), (-INF, -1.0)]),
    "asinh": (mp.asinh, (-1e5, 1e5), [(-0.0, -0.0), (-INF, -INF)]),
    "acosh": (mp.acosh, (1, 1e5), [(1.0, 0.0), (0.5, NAN), (INF, INF)]),
    "atanh": (mp.atanh, (-0.9999, 0.9999), [(-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN)]),
    "erf": (mp.erf, (-6, 6), [(-0.0, -0.0), (INF, 1.0), (-INF, -1.0)]),
    "erfc": (mp.erfc, (-6, 9), [(INF, 0.0), (-INF, 2.0)]),
    "erfinv": (mp.erfinv, (-0.9999, 0.9999), [(1.0, INF), (-1.0, -INF), (2.0, NAN), (-0.0, -0.0)]),
    "erfcinv": (lambda x: mp.erfinv(1 - x), (1e-6, 1.9999), [(1.0, 0.0), (0.0, INF), (2.0, -INF), (3.0, NAN)]),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), (-6, 50), [(INF, 0.0), (-INF, INF)]),
    "normcdf": (lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, (-9, 9), [(INF, 1.0), (-INF, 0.0), (0.0, 0.5)]),
    "normcdfinv": (_normal_quantile, (1e-6, 0.9999), [(0.0, -INF), (1.0, INF), (2.0, NAN)]),
    "lgamma": (_log_gamma, (-20, 100), [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF)]),
    "tgamma": (mp.gamma, (-20, 33), [(0.0, INF), (-0.0, -INF), (-3.0, NAN), (INF, INF), (-INF, NAN), (5.0, 24.0)]),
    "j0": (lambda x: mp.besselj(0, x), (-50, 50), [(0.0, 1.0), (INF, 0.0), (-INF, 0.0)]),
    "j1": (lambda x: mp.besselj(1, x), (-50, 50), [(-0.0, -0.0), (INF, 0.0)]),
    "y0": (lambda x: mp.bessely(0, x), (1e-3, 50), [(0.0, -INF), (-1.0, NAN), (INF, 0.0)]),
    "y1": (lambda x: mp.bessely(1, x), (1e-3, 50), [(0.0, -INF), (-1.0, NAN), (INF, 0.0)]),
    "cyl_bessel_i0": (lambda x: mp.besseli(0, x), (-40, 40), [(0.0, 1.0), (INF, INF), (-INF, INF)]),
    "cyl_bessel_i1": (lambda x: mp.besseli(1, x), (-40, 40), [(-0.0, -0.0), (INF, INF), (-INF, -INF)]),
}
FAST = {
    "fast_sinf": "sin",
    "fast_cosf": "cos",
    "fast_tanf": "tan",
    "fast_logf": "log",
    "fast_log2f": "log2",
    "fast_log10f": "log10",
}
FAST |= {"fast_expf": "exp", "fast_exp10f": "exp10"}
ONE |= {fast: ONE[exact] for fast, exact in FAST.items()}

# Bessel functions near their zeros are right to an absolute error, as CUDA's are.
ABSOLUTE = {"j0": 1e-15, "j1": 1e-15, "y0": 1e-15, "y1": 1e-15}
ULPS = 8.0
LOOSE = {"cyl_bessel_i1": 16.0}


def numbers(low: float, high: float, dtype: Any, n: int = 120) -> Any:
    """Evenly in the range, and evenly in the exponent."""
    rng = np.random.default_rng(11)
    even = rng.uniform(low, high, n)
    sizes = np.exp(rng.uniform(-15, math.log(max(abs(low), abs(high))), n)) * np.sign(rng.uniform(low, high, n))
    x = np.concatenate([even, sizes])
    return x[(x >= low) & (x <= high)].astype(dtype)


def floats(name: str) -> list[tuple[kernels.Signature, Any]]:
    return [(s, FORMATS[s[0][-1]][1]) for s in kernels.CUDA[name] if s[0][-1] in ("fp32", "fp64")]


@pytest.mark.parametrize("name", sorted(ONE))
def test_functions_of_one_argument(generic: Any, name: str) -> None:
    if name not in kernels.CUDA:
        pytest.skip("not in this Triton")
    reference, (low, high), edges = ONE[name]
    with mp.workdps(40):
        for signature, dtype in floats(name):
            x = numbers(low, high, dtype)
            got = kernels.call(generic, name, signature, x)
            assert got.dtype == dtype
            exact = [reference(mp.mpf(float(v))) for v in x]
            errors = np.array([float(abs(mp.mpf(float(g)) - e)) for g, e in zip(got, exact)])
            units = np.spacing(np.abs(np.array([float(e) for e in exact]).astype(dtype))).astype(np.float64)
            allowed = np.maximum(LOOSE.get(name, ULPS) * units if dtype == np.float64 else 2 * units, ABSOLUTE.get(name, 0.0))
            worst = int((errors / units).argmax())
            assert (errors <= allowed).all(), f"{name}({x[worst]!r}) is {got[worst]!r}, not {exact[worst]}"
            check_edges(generic, name, signature, dtype, edges)


def check_edges(module: Any, name: str, signature: kernels.Signature, dtype: Any, edges: list[tuple[float, float]]) -> None:
    points = [*(x for x, _ in edges), NAN]  # a NaN gives a NaN everywhere
    got = kernels.call(module, name, signature, np.array(points, dtype))
    for point, value, expected in zip(points, got.tolist(), [*(y for _, y in edges), NAN]):
        same = (
            math.isnan(value)
            if math.isnan(expected)
            else (value == expected and math.copysign(1, value) == math.copysign(1, expected))
        )
        assert same, f"{name}({point}) is {value}, not {expected}"


def _fmod(x: Any, y: Any) -> Any:
    return mp.sign(x) * mp.fmod(abs(x), abs(y))


def _remainder(x: Any, y: Any) -> Any:
    return x - y * mp.nint(x / y)


# name -> (reference, whether it is exact, ranges)
TWO: dict[str, tuple[Real, bool, list[tuple[float, float]]]] = {
    "pow": (lambda x, y: mp.power(x, y), False, [(1e-3, 100), (-15, 15)]),
    "fast_powf": (lambda x, y: mp.power(x, y), False, [(1e-3, 100), (-15, 15)]),
    "atan2": (mp.atan2, False, [(-50, 50), (-50, 50)]),
    "hypot": (mp.hypot, False, [(-50, 50), (-50, 50)]),
    "rhypot": (lambda x, y: 1 / mp.hypot(x, y), False, [(-50, 50), (-50, 50)]),
    "norm3d": (lambda *v: mp.norm(v), False, [(-50, 50)] * 3),
    "rnorm3d": (lambda *v: 1 / mp.norm(v), False, [(-50, 50)] * 3),
    "norm4d": (lambda *v: mp.norm(v), False, [(-50, 50)] * 4),
    "rnorm4d": (lambda *v: 1 / mp.norm(v), False, [(-50, 50)] * 4),
    "fmod": (_fmod, True, [(-1e4, 1e4), (0.1, 9)]),
    "remainder": (_remainder, True, [(-1e4, 1e4), (0.1, 9)]),
    "fdim": (lambda x, y: max(x - y, mp.mpf(0)), False, [(-50, 50), (-50, 50)]),
    "fast_dividef": (lambda x, y: x / y, False, [(-50, 50), (0.1, 50)]),
}


@pytest.mark.parametrize("name", sorted(TWO))
def test_functions_of_several_arguments(generic: Any, name: str) -> None:
    if name not in kernels.CUDA:
        pytest.skip("not in this Triton")
    reference, exact, ranges = TWO[name]
    rng = np.random.default_rng(12)
    with mp.workdps(40):
        for signature, dtype in floats(name):
            if signature[0][-1] != signature[0][0]:
                continue  # an integer exponent has its own test
            arguments = [rng.uniform(low, high, 150).astype(dtype) for low, high in ranges]
            got = kernels.call(generic, name, signature, *arguments)
            expected = [reference(*(mp.mpf(float(v)) for v in row)) for row in zip(*arguments)]
            errors = np.array([float(abs(mp.mpf(float(g)) - e)) for g, e in zip(got, expected)])
            units = np.spacing(np.abs(np.array([float(e) for e in expected]).astype(dtype))).astype(np.float64)
            assert (errors <= (0 if exact else (ULPS if dtype == np.float64 else 2) * units)).all(), name


PAIRS: dict[str, list[tuple[float, float, float]]] = {
    "pow": [
        (0.0, 0.0, 1.0),
        (NAN, 0.0, 1.0),
        (1.0, NAN, 1.0),
        (-2.0, 3.0, -8.0),
        (-2.0, 0.5, NAN),
        (0.0, -1.0, INF),
        (-0.0, -3.0, -INF),
    ],
    "atan2": [(0.0, -0.0, math.pi), (-0.0, 1.0, -0.0), (0.0, 0.0, 0.0)],
    "hypot": [(INF, NAN, INF), (NAN, 1.0, NAN), (3.0, 4.0, 5.0)],
    "rhypot": [(INF, NAN, 0.0), (0.0, 0.0, INF)],
    "fmod": [(-7.0, 3.0, -1.0), (5.0, INF, 5.0), (INF, 1.0, NAN), (1.0, 0.0, NAN), (-6.0, 3.0, -0.0)],
    "remainder": [
        (7.0, 4.0, -1.0),
        (6.0, 4.0, -2.0),
        (2.0, 4.0, 2.0),
        (-6.0, 3.0, -0.0),
        (5.0, INF, 5.0),
        (INF, 1.0, NAN),
        (1.0, 0.0, NAN),
    ],
    "fdim": [(INF, INF, 0.0), (1.0, 3.0, 0.0), (NAN, 1.0, NAN)],
    "copysign": [(1.0, -0.0, -1.0), (-3.0, 2.0, 3.0), (-INF, 1.0, INF)],
    "nextafter": [(1.0, 1.0, 1.0), (0.0, -0.0, -0.0), (INF, INF, INF), (1.0, NAN, NAN)],
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_special_pairs(generic: Any, name: str) -> None:
    for signature, dtype in floats(name):
        if signature[0][0] != signature[0][1]:
            continue
        x, y, expected = (np.array(column, dtype) for column in zip(*PAIRS[name]))
        got = kernels.call(generic, name, signature, x, y)
        np.testing.assert_array_equal(got, expected, err_msg=name)
        number = ~np.isnan(expected)
        assert (np.signbit(got) == np.signbit(expected))[number].all(), name


def test_remainder_is_exact(generic: Any) -> None:
    """All pairs of awkward sizes against Python's, which is IEEE's."""
    sizes = [5e-324, 1e-310, 2.3e-308, 1e-300, 0.1, 1.0, 1.5, 3.0, 1e16, 1e300, 8.9e307, 1.7e308]
    x, y = (grid.ravel() for grid in np.meshgrid([*sizes, *(-s for s in sizes)], sizes))
    got = kernels.call(generic, "remainder", (("fp64", "fp64"), "fp64"), x, y)
    expected = [math.remainder(a, b) for a, b in zip(x.tolist(), y.tolist())]
    assert got.tolist() == expected
    small = x.astype(np.float32), y.astype(np.float32)
    use = np.isfinite(small[0]) & (small[1] != 0) & np.isfinite(small[1])
    got = kernels.call(generic, "remainder", (("fp32", "fp32"), "fp32"), small[0][use], small[1][use])
    assert got.tolist() == [math.remainder(a, b) for a, b in zip(small[0][use].tolist(), small[1][use].tolist())]


def test_bessel_functions_of_integer_order(generic: Any) -> None:
    orders = np.array([0, 1, 2, 3, 5, 10, 40] * 12, np.int32)
    x = np.repeat([0.1, 0.5, 1.0, 2.5, 5.0, 9.75, 10.5, 20.0, 33.25, 41.0, 49.5, 80.0], 7)
    for name, function in (("jn", mp.besselj), ("yn", mp.bessely)):
        for kind in ("fp32", "fp64"):
            got = kernels.call(generic, name, (("int32", kind), kind), orders, x.astype(FORMATS[kind][1])).astype(np.float64)
            exact = np.array([float(function(int(n), mp.mpf(float(v)))) for n, v in zip(orders, x.astype(FORMATS[kind][1]))])
            with np.errstate(over="ignore"):
                exact = exact.astype(FORMATS[kind][1]).astype(np.float64)
            error = 1e-6 if kind == "fp32" else 1e-12
            np.testing.assert_allclose(got, exact, rtol=error, atol=error * 1e-2, err_msg=f"{name} {kind}")
    edge = np.array([-1, 0, 2, 3, 2, 3], np.int32), np.array([1.0, INF, INF, -2.5, -2.5, NAN])
    got = kernels.call(generic, "jn", (("int32", "fp64"), "fp64"), *edge)
    np.testing.assert_allclose(got, [NAN, 0, 0, -float(mp.besselj(3, 2.5)), float(mp.besselj(2, 2.5)), NAN], rtol=1e-12)
    edge = np.array([-1, 0, 2, 3, 2], np.int32), np.array([1.0, INF, 0.0, -2.5, NAN])
    np.testing.assert_array_equal(kernels.call(generic, "yn", (("int32", "fp64"), "fp64"), *edge), [NAN, 0, -INF, NAN, NAN])


@pytest.mark.parametrize("kind", ["fp32", "fp64"])
def test_integer_exponents(generic: Any, kind: str) -> None:
    dtype = FORMATS[kind][1]
    x, n = (grid.ravel() for grid in np.meshgrid(np.array([2.0, -2.0, 0.5, 1.1, -0.0, 0.0], dtype), np.arange(-9, 10)))
    got = kernels.call(generic, "pow", ((kind, "int32"), kind), x, n.astype(np.int32))
    with np.errstate(all="ignore"):
        assert ulps(got, x.astype(np.float64) ** n).max() <= 2
    for name in ("ldexp", "scalbn"):
        x = np.array([1.5, -1.5, 1.0, 3.0, 0.0, INF, 1.0], dtype)
        n = np.array([4, -3, 5000, -5000, 7, -2, -140], np.int32)
        got = kernels.call(generic, name, ((kind, "int32"), kind), x, n)
        assert got.tolist() == [24.0, -0.1875, INF, 0.0, 0.0, INF, float(dtype(2.0**-140))]


def test_growing_functions_reach_the_largest_finite_value(generic: Any) -> None:
    """Arguments that many libraries already call infinite: the values are just below the largest number of the format."""
    for kind, x in (("fp32", [89.0129, -89.0129]), ("fp64", [709.9149, 710.4])):
        arguments = np.array(x, FORMATS[kind][1])
        for name, function in (("sinh", mp.sinh), ("cosh", mp.cosh)):
            got = kernels.call(generic, name, ((kind,), kind), arguments)
            exact = [float(function(mp.mpf(float(v)))) for v in arguments]
            assert ulps(got, exact).max() <= 2, name
    x = np.array([710.75, -712.5])
    for name, order in (("cyl_bessel_i0", 0), ("cyl_bessel_i1", 1)):
        got = kernels.call(generic, name, (("fp64",), "fp64"), x)
        exact = [float(mp.besseli(order, mp.mpf(v))) for v in x.tolist()]
        np.testing.assert_allclose(got, exact, rtol=1e-12, err_msg=name)


def test_without_scipy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "scipy" else find(name, *rest))
    fresh = kernels.write(tmp_path, "cuda")  # kernels that no other test has lowered
    signature = (("fp64",), "fp64")
    for name in ("j0", "tgamma", "normcdf"):
        with pytest.raises(UnsupportedOpError, match=r"tritontrace\[libdevice\]"):
            kernels.call(fresh, name, signature, np.array([0.5]))
    assert kernels.call(fresh, "sqrt", signature, np.array([0.25])).tolist() == [0.5]
