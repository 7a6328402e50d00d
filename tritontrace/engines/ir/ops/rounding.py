# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Arithmetic and conversions that libdevice offers with a rounding direction: ``_rn``, ``_rz``, ``_rd``, ``_ru``.

float32 is computed in float64 rounded to odd, which keeps what a second rounding in any direction must know. float64 is
computed to nearest, and the sign of what the rounding left over says whether to step to a neighbour; where that rest
itself may be lost (near overflow and underflow) Python's fractions decide, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.ops.floats import fma, to_odd, two_sum

__all__ = ["ARITHMETIC", "float_to_float", "float_to_int", "int_to_float"]

Array = npt.NDArray[Any]

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_SMALL, _LARGE = 2.0**-900, 2.0**900  # between these no step of an error-free transformation loses anything


def _step(nearest: Array, left_over: Array, mode: str) -> Array:
    """`nearest` moved to the neighbour that `mode` asks for; `left_over` has the sign of (exact - nearest)."""
    if mode == "rn":
        return nearest
    infinity = nearest.dtype.type(np.inf)
    down = left_over < 0
    up = left_over > 0
    if mode == "rd":
        up = np.zeros_like(up)
    elif mode == "ru":
        down = np.zeros_like(down)
    else:
        down, up = down & (nearest > 0), up & (nearest < 0)
    stepped = np.where(down, np.nextafter(nearest, -infinity), nearest)
    return np.where(up, np.nextafter(nearest, infinity), stepped).astype(nearest.dtype)


def _fraction(value: Fraction, mode: str) -> float:
    """A number that is not 0 as a float64, rounded as `mode` says."""
    size = -1 if value < 0 else 1
    try:
        nearest = float(value)
        left_over = value - Fraction(nearest)
    except OverflowError:
        nearest, left_over = size * math.inf, Fraction(-size)
    if left_over > 0 and (mode == "ru" or (mode == "rz" and size < 0)):
        return math.nextafter(nearest, math.inf)
    if left_over < 0 and (mode == "rd" or (mode == "rz" and size > 0)):
        return math.nextafter(nearest, -math.inf)
    return nearest


def _directed(
    nearest: Callable[..., Array], rest: Callable[..., Array], exact: Callable[..., Fraction | None], cancels: bool = False
) -> Callable[..., Array]:
    """One operation in every direction.

    `nearest` is numpy's, `rest` gives the sign of (exact - nearest) in float64, `exact` the value as a fraction (None for
    one that is not a number). With `cancels`, a zero of two numbers that cancel is -0.0 when rounding down.
    """

    def lanes(odd: Array, result: Array, arrays: tuple[Array, ...], mode: str) -> None:
        if odd.any():
            for index in np.argwhere(odd):
                place = tuple(index)
                value = exact(*(Fraction(float(x[place])) for x in arrays))
                if value:
                    result[place] = _fraction(value, mode)

    def apply(*given: Any) -> Array:
        *operands, mode = given
        arrays = np.broadcast_arrays(*operands)
        dtype = arrays[0].dtype
        wide = [x.astype(np.float64) for x in arrays]
        first = nearest(*wide)
        if dtype == np.float32:
            result = float_to_float(to_odd(first, rest(first, *wide)), mode)
        else:
            result = np.array(_step(first, rest(first, *wide), mode))
            sizes = [np.abs(x) for x in (*wide, first)]
            finite = np.logical_and.reduce([np.isfinite(x) for x in wide])
            safe = np.logical_and.reduce([(s == 0) | ((s > _SMALL) & (s < _LARGE)) for s in sizes])
            if len(wide) == 3:
                product = np.abs(wide[0] * wide[1])
                safe &= ((product > _SMALL) & (product < _LARGE)) | (wide[0] == 0) | (wide[1] == 0)
            lanes(finite & ~(safe & (first != 0)), result, tuple(wide), mode)
        if cancels and mode == "rd":
            like = np.logical_and.reduce([~np.signbit(p) for p in _summands(*wide)])
            result = np.where((result == 0) & (first == 0) & ~like, dtype.type(-0.0), result)
        return result

    return apply


def _summands(*x: Array) -> tuple[Array, Array]:
    return (x[0], x[1]) if len(x) == 2 else (x[0] * x[1], x[2])


def _sqrt_fraction(a: Fraction) -> Fraction | None:
    return None  # a root is never near overflow or underflow


def _ratio(a: Fraction, b: Fraction) -> Fraction | None:
    return a / b if b else None


def _rest_of_fma(nearest: Array, a: Array, b: Array, c: Array) -> Array:
    product = a * b
    low = fma(a, b, -product)  # a * b == product + low, exactly
    total, left = two_sum(product, c)
    large, small = two_sum(total - nearest, left)
    small, smallest = two_sum(small, low)
    rest = large + small
    return np.where(rest == 0, smallest, rest)


_add = _directed(np.add, lambda r, a, b: two_sum(a, b)[1], lambda a, b: a + b, cancels=True)
_multiply = _directed(np.multiply, lambda r, a, b: fma(a, b, -r), lambda a, b: a * b)
_divide = _directed(np.divide, lambda r, a, b: fma(-r, b, a) * np.sign(b), _ratio)
_sqrt = _directed(np.sqrt, lambda r, a: fma(-r, r, a), _sqrt_fraction)
_fma = _directed(fma, _rest_of_fma, lambda a, b, c: a * b + c, cancels=True)


def _subtract(a: Array, b: Array, mode: str) -> Array:
    return _add(a, -b, mode)


def _reciprocal(a: Array, mode: str) -> Array:
    return _divide(np.ones_like(a), a, mode)


def _rsqrt(a: Array, mode: str) -> Array:
    """To nearest only: libdevice has no other."""
    return (1.0 / np.sqrt(a.astype(np.float64))).astype(a.dtype)


ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "rcp": _reciprocal,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "fma": _fma,
}


def float_to_float(x: Array, mode: str) -> Array:
    """float64 to float32."""
    nearest = x.astype(np.float32)
    return _step(nearest, x - nearest, mode)


def float_to_int(x: Array, element: str, mode: str, *, unsigned: bool) -> Array:
    """A float to an integer of `element`, saturating."""
    return numerics.float_to_int(_TO_INTEGER[mode](x), element, unsigned=unsigned)


def int_to_float(x: Array, element: str, mode: str, *, unsigned: bool) -> Array:
    """An integer to float32 or float64."""
    source = x.view(np.dtype(f"u{x.dtype.itemsize}")) if unsigned else x
    nearest = source.astype(numerics.compute_dtype(element))
    if mode == "rn":
        return nearest
    wide = np.uint64 if unsigned else np.int64
    top = 2.0**64 if unsigned else 2.0**63
    beyond = nearest.astype(np.float64) >= top  # rounded up to a power of two that no integer reaches
    back = np.where(beyond, 0, nearest.astype(np.float64)).astype(wide)
    own = source.astype(wide)
    left_over = np.where(beyond | (own < back), -1, np.where(own > back, 1, 0))
    return _step(nearest, left_over, mode)
