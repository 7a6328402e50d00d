# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Arithmetic and conversions that libdevice offers with a rounding direction: ``_rn``, ``_rz``, ``_rd``, ``_ru``.

Each is computed to nearest, and the sign of what the rounding left over says whether to step to a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.ops.floats import fma

__all__ = ["ARITHMETIC", "float_to_float", "float_to_int", "int_to_float"]

Array = npt.NDArray[Any]

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


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


def _wide_fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` well enough that its sign is right when the sum is a rounding error."""
    return fma(*(np.asarray(x).astype(np.float64) for x in (a, b, c)))


def _add(a: Array, b: Array, mode: str) -> Array:
    total = a + b
    virtual = total - a
    return _step(total, (a - (total - virtual)) + (b - virtual), mode)


def _subtract(a: Array, b: Array, mode: str) -> Array:
    return _add(a, -b, mode)


def _multiply(a: Array, b: Array, mode: str) -> Array:
    product = a * b
    return _step(product, _wide_fma(a, b, -product), mode)


def _divide(a: Array, b: Array, mode: str) -> Array:
    quotient = a / b
    return _step(quotient, _wide_fma(-quotient, b, a) * np.sign(b), mode)


def _reciprocal(a: Array, mode: str) -> Array:
    return _divide(np.ones_like(a), a, mode)


def _sqrt(a: Array, mode: str) -> Array:
    root = np.sqrt(a)
    return _step(root, _wide_fma(-root, root, a), mode)


def _rsqrt(a: Array, mode: str) -> Array:
    return (1.0 / np.sqrt(a.astype(np.float64))).astype(a.dtype)


def _fma(a: Array, b: Array, c: Array, mode: str) -> Array:
    nearest = fma(a, b, c)
    if nearest.dtype == np.float32:
        exact = np.multiply(a, b, dtype=np.float64) + c
        return _step(nearest, exact - nearest, mode)
    product = a * b
    low = fma(a, b, -product)  # a * b == product + low, exactly
    return _step(nearest, (product - nearest) + c + low, mode)


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
