# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Mathematical functions that libdevice has and numpy lacks, over scipy and torch.

float32 arguments are computed in float64 and rounded, so that the result is right to the last bit or nearly so. The gamma,
Bessel, inverse error and normal distribution functions are scipy's, which is imported when one of them is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.ir import native
from tritontrace.engines.ir.ops.floats import fma

__all__ = [
    "NEEDS_SCIPY",
    "bessel",
    "cospi",
    "exp10",
    "fdim",
    "ilogb",
    "jn",
    "logb",
    "norm",
    "remainder",
    "saturate",
    "sinpi",
    "yn",
]

Array = npt.NDArray[Any]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_erfc, _power = native.unary(torch.erfc), native.steady(torch.pow)


def _scipy(name: str, at_infinity: float | None = None) -> Callable[[Array], Array]:
    """A function of ``scipy.special`` in float64; `at_infinity` is its limit where scipy gives NaN."""

    def call(x: Array) -> Array:
        import scipy.special

        result = getattr(scipy.special, name)(x.astype(np.float64))
        if at_infinity is not None:
            result = np.where(np.isposinf(x), at_infinity, result)
        return result.astype(x.dtype)

    return call


def _even(function: Callable[[Array], Array], sign: int = 1) -> Callable[[Array], Array]:
    """`function` of the size of its argument, odd where `sign` is -1."""

    def call(x: Array) -> Array:
        result = function(np.abs(x))
        return np.copysign(1, x).astype(x.dtype) * result if sign < 0 else result

    return call


def _signed_bessel_j1(x: Array) -> Array:
    return np.where(np.isinf(x), np.copysign(x.dtype.type(0), x), _j1(x))


_j0, _j1 = _even(_scipy("j0", 0.0)), _scipy("j1")


def _growing(name: str) -> Callable[[Array], Array]:
    """A modified Bessel function of a size; scipy's own overflow before their values do."""
    plain, scaled = _scipy(name, math.inf), _scipy(name + "e", 0.0)

    def call(x: Array) -> Array:
        wide = x.astype(np.float64)
        half = np.exp(0.5 * wide)
        large = (wide > 700) & np.isfinite(wide)
        return np.where(large, scaled(wide) * half * half, plain(wide)).astype(x.dtype)

    return call


_i0, _i1 = _even(_growing("i0")), _even(_growing("i1"), -1)
_y0, _y1 = _scipy("y0", 0.0), _scipy("y1", 0.0)

bessel: dict[str, Callable[[Array], Array]] = {
    "j0": _j0,
    "j1": _signed_bessel_j1,
    "y0": _y0,
    "y1": _y1,
    "i0": _i0,
    "i1": _i1,
}


def _square(x: Array) -> tuple[Array, Array]:
    high = x * x
    return high, fma(x, x, -high)


def _erfcx(x: Array) -> Array:
    wide = x.astype(np.float64)
    result = _scipy("erfcx")(np.abs(wide))
    high, low = _square(np.where(wide < 0, np.maximum(wide, -28.0), 0.0))
    growing = np.exp(high)  # its argument's rounding error would cost digits
    growing = np.where(np.isinf(growing), growing, growing + growing * low)
    return np.where(wide < 0, 2 * growing - result, result).astype(x.dtype)


_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_LOW = -4.833646656726457e-17  # sqrt(1/2) - _ROOT_HALF


def _normal_distribution(x: Array) -> Array:
    wide = -x.astype(np.float64)
    argument = wide * _ROOT_HALF
    lost = fma(wide, np.float64(_ROOT_HALF), -argument) + wide * _ROOT_HALF_LOW
    slope = -2 / math.sqrt(math.pi) * np.exp(-argument * argument)
    change = np.where(np.abs(argument) < 30, slope * lost, 0.0)  # the argument's rounding error, which the tail feels
    return (0.5 * (_erfc(argument) + change)).astype(x.dtype)


NEEDS_SCIPY: dict[str, Callable[..., Array]] = {
    "tgamma": _scipy("gamma"),
    "erfcinv": lambda x: _scipy("erfcinv")(x) + x.dtype.type(0),  # of 1, +0.0
    "erfcx": _erfcx,
    "normcdf": _normal_distribution,
    "normcdfinv": _scipy("ndtri"),
    **bessel,
}
"""Functions that are there only if scipy is."""


def remainder(x: Array, y: Array) -> Array:
    """IEEE's remainder: ``x - n * y``, exact, with n the integer nearest to ``x / y`` (of two, the even one)."""
    size, step = np.abs(x), np.abs(y)
    half_range = np.finfo(x.dtype).max / 2
    rest = np.where(step <= half_range, np.fmod(size, 2 * step), size)
    # take one step off what is more than half a step, and another off what still is half: where half a step would be rounded,
    # twice the rest is not
    tiny = step < 2 * np.finfo(x.dtype).tiny
    half = step * x.dtype.type(0.5)
    above = np.where(tiny, rest + rest > step, rest > half)
    once = rest - step
    again = above & np.where(tiny, once + once >= step, once >= half)
    rest = np.where(again, once - step, np.where(above, once, rest))
    result = np.where(rest == 0, np.copysign(x.dtype.type(0), x), np.copysign(1, x).astype(x.dtype) * rest)
    result = np.where(np.isinf(y) & np.isfinite(x), x, result)
    return np.where(np.isinf(x) | (y == 0) | np.isnan(x) | np.isnan(y), x.dtype.type(np.nan), result)


def exp10(x: Array) -> Array:
    """``10 ** x``."""
    return _power(np.full(x.shape, 10, x.dtype), x)


def _quarters(x: Array) -> tuple[Array, Array, Array]:
    """(which quarter of a turn, sine and cosine within it) of pi times a size."""
    turn = np.fmod(np.abs(x.astype(np.float64)), 2.0)  # exact, as is what follows
    quarter = np.rint(2 * turn)
    angle = np.pi * (turn - 0.5 * quarter)
    return np.where(np.isnan(quarter), 0, quarter).astype(np.int64) % 4, np.sin(angle), np.cos(angle)


def sinpi(x: Array) -> Array:
    """``sin(pi x)``, exactly 0 and +-1 where it should be; of an integer, 0 with its sign."""
    quarter, sine, cosine = _quarters(x)
    value = np.choose(quarter, [sine, cosine, -sine, -cosine]) * np.copysign(1, x)
    return np.where(value == 0, np.copysign(0.0, x), value).astype(x.dtype)


def cospi(x: Array) -> Array:
    """``cos(pi x)``, exactly +0 and +-1 where it should be."""
    quarter, sine, cosine = _quarters(x)
    return (np.choose(quarter, [cosine, -sine, -cosine, sine]) + 0.0).astype(x.dtype)


def saturate(x: Array) -> Array:
    """`x` clamped to [0, 1]; NaN gives 0."""
    return np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1)) + x.dtype.type(0)


def fdim(x: Array, y: Array) -> Array:
    """``max(x - y, 0)``; NaN if either is."""
    return np.where(np.isnan(x) | np.isnan(y), x + y, np.where(x > y, x - y, 0)).astype(x.dtype)


def norm(*parts: Array) -> Array:
    """The Euclidean length, without overflow in between; infinite if any part is."""
    dtype = parts[0].dtype
    if dtype == np.float32:
        length = np.sqrt(sum(part.astype(np.float64) ** 2 for part in parts)).astype(np.float32)
    else:
        length = np.hypot(parts[0], parts[1])
        for part in parts[2:]:
            length = np.hypot(length, part)
    infinite = np.logical_or.reduce(np.broadcast_arrays(*(np.isinf(part) for part in parts)))
    return np.where(infinite, dtype.type(np.inf), length)


def logb(x: Array) -> Array:
    """The exponent of `x` as a float."""
    exponent = (np.frexp(x)[1] - 1).astype(x.dtype)
    exponent = np.where(x == 0, -np.inf, exponent)
    return np.where(np.isfinite(x), exponent, np.abs(x)).astype(x.dtype)


def ilogb(x: Array) -> Array:
    """The exponent of `x` as int32; CUDA's values for 0, NaN (INT_MIN) and infinity (INT_MAX)."""
    exponent = np.frexp(x)[1].astype(np.int32) - np.int32(1)
    exponent = np.where((x == 0) | np.isnan(x), _INT_MIN, exponent)
    return np.where(np.isinf(x), _INT_MAX, exponent).astype(np.int32)


def jn(n: Array, x: Array) -> Array:
    """Bessel function of the first kind of integer order; NaN for a negative order, as CUDA's."""
    return _per_order(n, x, _jn_one)


def yn(n: Array, x: Array) -> Array:
    """Bessel function of the second kind of integer order; NaN for a negative order, as CUDA's."""
    return _per_order(n, x, _yn_one)


def _per_order(n: Array, x: Array, function: Callable[[int, Array], Array]) -> Array:
    n, wide = np.broadcast_arrays(n, x.astype(np.float64))
    result = np.empty(wide.shape)
    for order in np.unique(n):
        here = n == order
        result[here] = function(int(order), wide[here]) if order >= 0 else np.nan
    return result.astype(x.dtype)


def _jn_one(order: int, x: Array) -> Array:
    import scipy.special

    if order < 2:
        return bessel[f"j{order}"](x)
    # the three-term recurrence is stable upwards as long as the order stays below abs(x), and 10 times as fast as jv
    size = np.abs(x)
    first, second = _j0(size), _j1(size)
    for k in range(1, order):
        first, second = second, 2 * k / size * second - first
    near = size <= order
    if near.any():
        second[near] = scipy.special.jv(order, size[near])
    second = np.where(np.isinf(size), 0.0, second)
    return np.where(x < 0, -second, second) if order % 2 else second


def _yn_one(order: int, x: Array) -> Array:
    import scipy.special

    return np.where(np.isposinf(x), 0.0, scipy.special.yn(order, x))
