# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Floating-point operations of ``arith``, ``math`` and ``tt``.

float16, bfloat16 and the 8-bit formats are float32 arrays here, so a result is computed in float32 and rounded to its
format once: for ``+ - * /`` and ``sqrt`` that gives the correctly rounded result, float32 having more than twice the
digits. Where torch's vectorized kernel is much faster or more exact than numpy's, it is used (see `native`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.ir import native
from tritontrace.engines.ir.ops.table import (
    Emit,
    Environment,
    attribute,
    call,
    elements,
    infix,
    result_element,
    rounded,
    unsupported,
)
from tritontrace.engines.ir.tree import Op

__all__ = [
    "TABLE",
    "copysign",
    "cosh",
    "fma",
    "maximum",
    "maximum_number",
    "minimum",
    "minimum_number",
    "odd_sum",
    "round_half_away",
    "rsqrt",
    "sinh",
    "to_odd",
    "two_sum",
]

Array = npt.NDArray[Any]


# -- run-time helpers -------------------------------------------------------------------------------------------


def maximum_number(a: Array, b: Array) -> Array:
    """The larger one, a number before a NaN; ``+0.0 > -0.0``, as PTX's ``max`` has it (numpy gives either)."""
    return _signed_zeros(np.fmax(a, b), a, b, np.bitwise_and)


def minimum_number(a: Array, b: Array) -> Array:
    """The smaller one, a number before a NaN; ``-0.0 < +0.0``."""
    return _signed_zeros(np.fmin(a, b), a, b, np.bitwise_or)


def maximum(a: Array, b: Array) -> Array:
    """The larger one, NaN if either is; ``+0.0 > -0.0``."""
    return _signed_zeros(np.maximum(a, b), a, b, np.bitwise_and)


def minimum(a: Array, b: Array) -> Array:
    """The smaller one, NaN if either is; ``-0.0 < +0.0``."""
    return _signed_zeros(np.minimum(a, b), a, b, np.bitwise_or)


def _signed_zeros(result: Array, a: Array, b: Array, signs: Any) -> Array:
    if result.all():
        return result
    zeros = (a == b) & (result == 0)
    if zeros.any():
        integer = np.dtype(f"i{a.dtype.itemsize}")
        both = np.asarray(signs(a.view(integer), b.view(integer))).view(a.dtype)
        result = np.where(zeros, both, result)
    return result


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` rounded once, of float32 or float64 arrays."""
    return _fma32(a, b, c) if a.dtype == np.float32 else _fma64(a, b, c)


def fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of values of up to 24 bits, as float64 rounded to odd: rounding it to float32 or narrower rounds once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact: 48 bits
    return odd_sum(product, c.astype(np.float64))


def _fma32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    # rounding to float64 and then to float32 differs from rounding once only if the float64 lies exactly between two
    # float32 but the true sum does not; among float32's subnormals the middles lie elsewhere
    low = total.view(np.int64) & 0x1FFFFFFF
    doubtful = (low == 0x10000000) | (np.abs(total) < 2.0**-125)
    if doubtful.any():
        total = odd_sum(product, np.broadcast_to(c, total.shape).astype(np.float64))
    return total.astype(np.float32)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(a + b rounded, what the rounding left over), exact where nothing overflows."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def odd_sum(a: Array, b: Array) -> Array:
    """``a + b`` of float64 rounded to odd: towards zero, with the last bit set if anything was lost."""
    return to_odd(*two_sum(a, b))


def to_odd(nearest: Array, left_over: Array) -> Array:
    """float64 `nearest` rounded to odd instead; `left_over` has the sign of (exact - nearest)."""
    bits = nearest.view(np.int64)
    inexact = ((left_over < 0) | (left_over > 0)) & np.isfinite(nearest)  # of x / inf the rest is NaN
    towards_zero = inexact & ((left_over < 0) == (nearest > 0))
    return np.where(inexact, (bits - towards_zero) | 1, bits).view(np.float64)


_SPLIT = float(2**27 + 1)


def _split(x: Array) -> tuple[Array, Array]:
    scaled = x * _SPLIT
    high = scaled - (scaled - x)
    return high, x - high


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """An exact product (Dekker), then a sum of three whose small part is rounded to odd (Boldo and Melquiond)."""
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    small, smallest = two_sum(c, product_error)
    large, middle = two_sum(product, small)
    result = large + odd_sum(smallest, middle)
    # where a step may overflow or lose bits to underflow (and a, b, c are finite), Python's integers decide
    sizes = np.abs(product)
    safe = (sizes > 2.0**-900) & (sizes < 2.0**996) & (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990) & (np.abs(c) < 2.0**996)
    safe &= ((np.abs(result) > 2.0**-900) | (result == 0)) & ((np.abs(c) > 2.0**-900) | (c == 0))
    plain = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    result = np.where(plain, result, product + c)
    odd = plain & ~safe
    if odd.any():
        result[odd] = [_exact_fma(*three) for three in zip(a[odd].tolist(), b[odd].tolist(), c[odd].tolist())]
    return result


def _exact_fma(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if c == 0 else 0.0  # the sign of a zero: of two zeros, or of a number and its opposite
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def rsqrt(x: Array) -> Array:
    """``1 / sqrt(x)``."""
    return x.dtype.type(1) / np.sqrt(x)


def round_half_away(x: Array) -> Array:
    """C's ``round``: to the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), np.copysign(whole, x))


def copysign(x: Array, y: Array) -> Array:
    """`x` with the sign of `y`."""
    return np.copysign(x, y)


def constant_bool(a: Array, b: Array, value: bool) -> Array:
    """A comparison that is always true or always false."""
    return np.full(np.broadcast_shapes(a.shape, b.shape), value)


_power = native.steady(torch.pow)


def power(x: Array, y: Array) -> Array:
    """``pow`` of floats; an integer exponent is taken as a float."""
    return _power(x, y.astype(x.dtype, copy=False))


def sinh(x: Array) -> Array:
    """The hyperbolic sine, up to the largest argument whose value is finite (torch's overflows before)."""
    return np.sinh(x.astype(np.float64)).astype(x.dtype)


def cosh(x: Array) -> Array:
    """The hyperbolic cosine, up to the largest argument whose value is finite."""
    return np.cosh(x.astype(np.float64)).astype(x.dtype)


def is_normal(x: Array) -> Array:
    """True for finite numbers that are neither 0 nor subnormal."""
    return np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)


# -- entries ----------------------------------------------------------------------------------------------------

# arith.cmpf's predicates in the order of their numbers; an unordered one is the negation of the opposite ordered one
_COMPARISONS = {
    1: "({0} == {1})",
    2: "({0} > {1})",
    3: "({0} >= {1})",
    4: "({0} < {1})",
    5: "({0} <= {1})",
    6: "(({0} < {1}) | ({0} > {1}))",
    7: "(({0} == {0}) & ({1} == {1}))",
    8: "(~(({0} < {1}) | ({0} > {1})))",
    9: "(~({0} <= {1}))",
    10: "(~({0} < {1}))",
    11: "(~({0} >= {1}))",
    12: "(~({0} > {1}))",
    13: "({0} != {1})",
    14: "(({0} != {0}) | ({1} != {1}))",
}


def _compare(op: Op, args: Sequence[str], env: Environment) -> str:
    predicate = attribute(op, "predicate", 0)
    template = _COMPARISONS.get(predicate)
    if template is None:
        return f"{env.bind('constant_bool', constant_bool)}({args[0]}, {args[1]}, {predicate == 15})"
    return template.format(*args)


def _fma(op: Op, args: Sequence[str], env: Environment) -> str:
    element = result_element(op)
    if element in ("f32", "f64"):
        return f"{env.bind('fma', fma)}({', '.join(args)})"
    return rounded(f"{env.bind('fma_narrow', fma_narrow)}({', '.join(args)})", element, env)


def _extremum(function: Callable[..., Any], ufunc: str) -> Emit:
    """An entry for a minimum or maximum. Equal zeros of unlike signs are the slow part, and a constant rules them out."""

    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        for arg, operand in zip(args, op.operands):
            owner = operand.owner
            value = owner.attributes.get("value") if isinstance(owner, Op) and owner.name == "arith.constant" else None
            if not isinstance(value, np.ndarray):
                continue
            if value.all():
                return f"np.{ufunc}({args[0]}, {args[1]})"
            if "max" in ufunc and not value.any() and not np.signbit(value).any():
                return f"(np.{ufunc}({args[0]}, {args[1]}) + {arg})"  # adding +0.0 makes every zero positive
        return f"{env.bind(function.__name__, function)}({args[0]}, {args[1]})"

    return emit


def _clamp(op: Op, args: Sequence[str], env: Environment) -> str:
    value, low, high = args
    propagate = attribute(op, "propagateNan", 0)
    larger, smaller = (maximum, minimum) if propagate else (maximum_number, minimum_number)
    return f"{env.bind(smaller.__name__, smaller)}({env.bind(larger.__name__, larger)}({value}, {low}), {high})"


def _template(template: str) -> Emit:
    """An entry whose result needs no rounding."""

    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        return template.format(*args)

    return emit


def _numpy(name: str) -> Emit:
    """An entry for a numpy function whose result must be rounded."""

    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        return rounded(f"np.{name}({', '.join(args)})", result_element(op), env)

    return emit


_UNSTEADY = (torch.exp2, torch.atanh)


def _torch(function: Any) -> Emit:
    name = f"torch_{function.__name__}"
    wrapped = (native.steady if function in _UNSTEADY else native.unary)(function)
    return call(wrapped, name=name)


def _integer_power(op: Op, args: Sequence[str], env: Environment) -> str:
    if elements(op)[1] not in ("i8", "i16", "i32"):
        raise unsupported(op, f"an exponent of type {elements(op)[1]}")
    return rounded(f"{env.bind('power', power)}({args[0]}, {args[1]})", result_element(op), env)


TABLE: dict[str, Emit] = {
    "arith.addf": infix("+"),
    "arith.subf": infix("-"),
    "arith.mulf": infix("*"),
    "arith.divf": infix("/"),
    "tt.precise_divf": infix("/"),
    "tt.approx_divf": infix("/"),
    "arith.remf": _template("np.fmod({0}, {1})"),
    "arith.negf": _template("(-{0})"),
    "arith.maxnumf": _extremum(maximum_number, "fmax"),
    "arith.minnumf": _extremum(minimum_number, "fmin"),
    "arith.maximumf": _extremum(maximum, "maximum"),
    "arith.minimumf": _extremum(minimum, "minimum"),
    "arith.cmpf": _compare,
    "tt.clampf": _clamp,
    "math.fma": _fma,
    "math.absf": _template("np.abs({0})"),
    "math.floor": _template("np.floor({0})"),
    "math.ceil": _template("np.ceil({0})"),
    "math.trunc": _template("np.trunc({0})"),
    "math.roundeven": _template("np.rint({0})"),
    "math.round": call(round_half_away, exact=True),
    "math.copysign": _template("np.copysign({0}, {1})"),
    "math.isnan": _template("np.isnan({0})"),
    "math.isinf": _template("np.isinf({0})"),
    "math.isfinite": _template("np.isfinite({0})"),
    "math.isnormal": call(is_normal, exact=True),
    "math.sqrt": _numpy("sqrt"),
    "tt.precise_sqrt": _numpy("sqrt"),
    "math.rsqrt": call(rsqrt),
    "math.cbrt": _numpy("cbrt"),
    "math.exp": _numpy("exp"),
    "math.tanh": _numpy("tanh"),
    "math.exp2": _torch(torch.exp2),
    "math.expm1": _torch(torch.expm1),
    "math.log": _torch(torch.log),
    "math.log2": _torch(torch.log2),
    "math.log10": _torch(torch.log10),
    "math.log1p": _torch(torch.log1p),
    "math.sin": _torch(torch.sin),
    "math.cos": _torch(torch.cos),
    "math.tan": _torch(torch.tan),
    "math.asin": _torch(torch.asin),
    "math.acos": _torch(torch.acos),
    "math.atan": _torch(torch.atan),
    "math.sinh": call(sinh),
    "math.cosh": call(cosh),
    "math.asinh": _torch(torch.asinh),
    "math.acosh": _torch(torch.acosh),
    "math.atanh": _torch(torch.atanh),
    "math.erf": _torch(torch.erf),
    "math.erfc": _torch(torch.erfc),
    "math.atan2": _numpy("arctan2"),
    "math.powf": call(power, name="power"),
    "math.fpowi": _integer_power,
}
