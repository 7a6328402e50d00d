# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Floating-point operations of ``arith``, ``math`` and ``tt``.

float16, bfloat16 and the 8-bit formats are float32 arrays here, so a result is computed in float32 and rounded to its
format once: for ``+ - * /`` and ``sqrt`` that gives the correctly rounded result, float32 having more than twice the
digits. Where torch's vectorized kernel is much faster or more exact than numpy's, it is used (see `native`).
"""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["TABLE", "copysign", "fma", "round_half_away", "rsqrt"]

Array = npt.NDArray[Any]


# -- run-time helpers -------------------------------------------------------------------------------------------


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` rounded once, of float32 or float64 arrays."""
    if a.dtype == np.float32:
        return _fma32(a, b, c)
    return _fma64(a, b, c)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)  # exact: 48 bits
    total = product + c
    # rounding to float64 and then to float32 differs from rounding once only if the float64 lies exactly between
    # two float32 but the true sum does not
    halfway = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if halfway.any():
        shape = total.shape
        product, wide = np.broadcast_to(product, shape), np.broadcast_to(c, shape).astype(np.float64)
        virtual = total - product
        error = (product - (total - virtual)) + (wide - virtual)
        nudge = halfway & (error != 0) & np.isfinite(total)
        total = np.where(nudge, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return total.astype(np.float32)


_SPLIT = float(2**27 + 1)


def _split(x: Array) -> tuple[Array, Array]:
    scaled = x * _SPLIT
    high = scaled - (scaled - x)
    return high, x - high


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """Error-free product (Dekker) and sum (Knuth); right but for halfway cases and products beyond 1e300."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    virtual = total - product
    sum_error = (product - (total - virtual)) + (c - virtual)
    exact = total + (product_error + sum_error)
    return np.where(np.isfinite(exact), exact, total)


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


def power(x: Array, y: Array) -> Array:
    """``pow`` of floats; an integer exponent is taken as a float."""
    return native.apply2(torch.pow, np.ascontiguousarray(x), np.ascontiguousarray(y.astype(x.dtype, copy=False)))


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
    # the product of two narrow floats and its sum with a third are exact or nearly so in float64
    wide = env.bind("dtype_float64", np.dtype(np.float64))
    return rounded(f"(np.multiply({args[0]}, {args[1]}, dtype={wide}) + {args[2]})", element, env)


def _clamp(op: Op, args: Sequence[str], env: Environment) -> str:
    value, low, high = args
    if attribute(op, "propagateNan", 0):
        return f"np.minimum(np.maximum({value}, {low}), {high})"
    return f"np.fmin(np.fmax({value}, {low}), {high})"


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


def _torch(function: Any) -> Emit:
    name = f"torch_{function.__name__}"
    wrapped = native.unary(function)
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
    "arith.remf": _template("np.fmod({0}, {1})"),
    "arith.negf": _template("(-{0})"),
    "arith.maxnumf": _template("np.fmax({0}, {1})"),
    "arith.minnumf": _template("np.fmin({0}, {1})"),
    "arith.maximumf": _template("np.maximum({0}, {1})"),
    "arith.minimumf": _template("np.minimum({0}, {1})"),
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
    "math.sinh": _torch(torch.sinh),
    "math.cosh": _torch(torch.cosh),
    "math.asinh": _torch(torch.asinh),
    "math.acosh": _torch(torch.acosh),
    "math.atanh": _torch(torch.atanh),
    "math.erf": _torch(torch.erf),
    "math.erfc": _torch(torch.erfc),
    "math.atan2": _numpy("arctan2"),
    "math.powf": call(power, name="power"),
    "math.fpowi": _integer_power,
}
