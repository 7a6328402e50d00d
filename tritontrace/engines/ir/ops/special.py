# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Mathematical functions that libdevice has and numpy lacks, over torch's and Python's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.ir import native

__all__ = [
    "cospi",
    "erfcinv",
    "exp10",
    "fdim",
    "gamma",
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
_ndtri = native.unary(torch.special.ndtri)
_j0, _j1 = native.unary(torch.special.bessel_j0), native.unary(torch.special.bessel_j1)
_y0, _y1 = native.unary(torch.special.bessel_y0), native.unary(torch.special.bessel_y1)


def elementwise(function: Callable[..., float]) -> Callable[..., Array]:
    """A numpy version of a slow scalar function of floats; errors of Python's give NaN."""

    def scalar(*values: float) -> float:
        try:
            return function(*values)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    wrapped = np.frompyfunc(scalar, function.__code__.co_argcount if hasattr(function, "__code__") else 1, 1)

    def call(*arrays: Array) -> Array:
        result: Array = np.asarray(wrapped(*arrays)).astype(arrays[0].dtype)
        return result

    return call


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return math.gamma(x)


def _remainder(x: float, y: float) -> float:
    return math.remainder(x, y)


gamma = elementwise(_gamma)
remainder = elementwise(_remainder)


def exp10(x: Array) -> Array:
    """``10 ** x``."""
    return native.apply2(torch.pow, torch.tensor(10.0).numpy().astype(x.dtype), np.ascontiguousarray(x))


def sinpi(x: Array) -> Array:
    """``sin(pi x)``, exactly 0 and +-1 where it should be."""
    turn = np.fmod(x.astype(np.float64), 2.0)  # exact
    value = np.sin(np.pi * turn)
    value = np.where(turn == np.rint(turn), np.copysign(0.0, x), value)
    return value.astype(x.dtype)


def cospi(x: Array) -> Array:
    """``cos(pi x)``, exactly 0 and +-1 where it should be."""
    turn = np.fmod(np.abs(x.astype(np.float64)), 2.0)
    value = np.where((turn == 0.5) | (turn == 1.5), 0.0, np.cos(np.pi * turn))
    return value.astype(x.dtype)


def erfcinv(x: Array) -> Array:
    """The inverse of ``erfc``."""
    return (-_ndtri(x.astype(np.float64) / 2) / math.sqrt(2)).astype(x.dtype)


def saturate(x: Array) -> Array:
    """`x` clamped to [0, 1]; NaN gives 0."""
    return np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1))


def fdim(x: Array, y: Array) -> Array:
    """``max(x - y, 0)``; NaN if either is."""
    return np.where(np.isnan(x) | np.isnan(y), x + y, np.where(x > y, x - y, 0)).astype(x.dtype)


def norm(*parts: Array) -> Array:
    """The Euclidean length, without overflow in between for float32."""
    dtype = parts[0].dtype
    if dtype == np.float32:
        return np.sqrt(sum(part.astype(np.float64) ** 2 for part in parts)).astype(np.float32)
    result = np.hypot(parts[0], parts[1])
    for part in parts[2:]:
        result = np.hypot(result, part)
    return result


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
    """Bessel function of the first kind of integer order."""
    return _per_order(n, x, _jn_one)


def yn(n: Array, x: Array) -> Array:
    """Bessel function of the second kind of integer order."""
    return _per_order(n, x, _yn_one)


def _per_order(n: Array, x: Array, function: Callable[[int, Array], Array]) -> Array:
    n, wide = np.broadcast_arrays(n, x.astype(np.float64))
    result = np.empty(wide.shape)
    for order in np.unique(n):
        here = n == order
        result[here] = function(int(order), wide[here])
    return result.astype(x.dtype)


def _recur(order: int, x: Array, first: Array, second: Array) -> Array:
    """The three-term recurrence upwards, stable while the order is below ``abs(x)`` (always, for Y)."""
    if order == 0:
        return first
    for k in range(1, order):
        first, second = second, 2 * k / x * second - first
    return second


def _jn_one(order: int, x: Array) -> Array:
    if order < 0:
        return (-1) ** order * _jn_one(-order, x)
    result = _recur(order, x, _j0(x), _j1(x))
    small = np.abs(x) < order
    if small.any():
        # Bessel's integral; the trapezoidal rule converges exponentially on a period
        points = 4 * order + 64
        angle = np.arange(points) * (2 * np.pi / points)
        inner = x[small]
        result[small] = np.cos(order * angle[None] - inner[:, None] * np.sin(angle)[None]).mean(axis=1)
    return result


def _yn_one(order: int, x: Array) -> Array:
    if order < 0:
        return (-1) ** order * _yn_one(-order, x)
    return _recur(order, x, _y0(x), _y1(x))
