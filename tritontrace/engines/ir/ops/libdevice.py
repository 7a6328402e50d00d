# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""libdevice for ``tt.extern_elementwise``: NVIDIA's ``__nv_*`` and AMD's ``__ocml_*``, ``__ockl_*`` symbols.

One function serves both spellings and both precisions: it computes in the dtype of its arguments. Approximate
variants (``__nv_fast_*``) give the exact function's value.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.ir import native, numerics
from tritontrace.engines.ir.ops import floats, integers, rounding, special
from tritontrace.engines.ir.ops.table import Environment, result_element, unsupported
from tritontrace.engines.ir.tree import Op

__all__ = ["emit", "resolve"]

Array = npt.NDArray[Any]
Function = Callable[..., Array]


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _wide(x: Array, *, unsigned: bool) -> Array:
    return (_unsigned(x) if unsigned else x).astype(np.int64)


def _average(x: Array, y: Array, *, up: int = 0, unsigned: bool = False) -> Array:
    return (_wide(x, unsigned=unsigned) + _wide(y, unsigned=unsigned) + up) >> 1


def _distance(x: Array, y: Array, z: Array, *, unsigned: bool = False) -> Array:
    return np.abs(_wide(x, unsigned=unsigned) - _wide(y, unsigned=unsigned)) + z


def _multiply24(x: Array, y: Array, *, unsigned: bool = False) -> Array:
    def low(v: Array) -> Array:
        return _wide(v, unsigned=True) & 0xFFFFFF if unsigned else _wide(v, unsigned=False) << 40 >> 40

    return low(x) * low(y)


def _reverse_bits(x: Array) -> Array:
    u = _unsigned(x)
    bits = np.unpackbits(np.ascontiguousarray(u)[..., None].view(np.uint8), axis=-1, bitorder="little")
    packed = np.packbits(bits[..., ::-1], axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(x.dtype)[..., 0]


def _find_first_set(x: Array) -> Array:
    return np.where(x == 0, 0, integers.trailing_zeros(x) + 1)


def _byte_permute(x: Array, y: Array, selector: Array) -> Array:
    both = _unsigned(x).astype(np.uint64) | (_unsigned(y).astype(np.uint64) << np.uint64(32))
    chosen = _unsigned(selector).astype(np.uint64)
    result = np.zeros(np.broadcast_shapes(both.shape, chosen.shape), np.uint64)
    for place in range(4):
        index = (chosen >> np.uint64(4 * place)) & np.uint64(7)
        result |= ((both >> (index * np.uint64(8))) & np.uint64(0xFF)) << np.uint64(8 * place)
    return result.astype(np.uint32).view(np.int32)


def _high_word(x: Array) -> Array:
    return (x.view(np.int64) >> 32).astype(np.int32)


def _low_word(x: Array) -> Array:
    return x.view(np.int64).astype(np.int32)


def _from_words(high: Array, low: Array) -> Array:
    return ((high.astype(np.int64) << 32) | _wide(low, unsigned=True)).view(np.float64)


def _reciprocal_high(x: Array) -> Array:
    """The reciprocal to the nearest value that has bits in its upper word only; PTX's is an approximation of it."""
    bits = (1.0 / x).view(np.int64)
    bits = np.where(np.isfinite(x) & (x != 0), bits + np.int64(0x80000000), bits)
    return (bits & ~np.int64(0xFFFFFFFF)).view(np.float64)


def _as(dtype: npt.DTypeLike) -> Function:
    return lambda x: x.view(dtype)


def _to_int64(rounded: Function) -> Function:
    return lambda x: numerics.float_to_int(rounded(x), "i64")


def _reciprocal_of(function: Function) -> Function:
    """In double precision: two roundings in single precision are more than what some machines' functions leave room for."""
    return lambda *x: (1.0 / function(*(v.astype(np.float64) for v in x))).astype(x[0].dtype)


_t = native.unary

_FUNCTIONS: dict[str, Function] = {
    # powers, exponentials, logarithms
    "sqrt": np.sqrt,
    "rsqrt": floats.rsqrt,
    "cbrt": np.cbrt,
    "rcbrt": _reciprocal_of(np.cbrt),
    "hypot": special.norm,
    "rhypot": _reciprocal_of(special.norm),
    "norm3d": special.norm,
    "norm4d": special.norm,
    "rnorm3d": _reciprocal_of(special.norm),
    "rnorm4d": _reciprocal_of(special.norm),
    "pow": floats.power,
    "powi": floats.power,
    "pown": floats.power,
    "powr": floats.power,
    "exp": np.exp,
    "exp2": native.steady(torch.exp2),
    "exp10": special.exp10,
    "expm1": _t(torch.expm1),
    "log": _t(torch.log),
    "log2": _t(torch.log2),
    "log10": _t(torch.log10),
    "log1p": _t(torch.log1p),
    "logb": special.logb,
    "ilogb": special.ilogb,
    "ldexp": np.ldexp,
    "scalbn": np.ldexp,
    # trigonometry
    "sin": _t(torch.sin),
    "cos": _t(torch.cos),
    "tan": _t(torch.tan),
    "sinpi": special.sinpi,
    "cospi": special.cospi,
    "asin": _t(torch.asin),
    "acos": _t(torch.acos),
    "atan": _t(torch.atan),
    "atan2": np.arctan2,
    "sinh": floats.sinh,
    "cosh": floats.cosh,
    "tanh": np.tanh,
    "asinh": _t(torch.asinh),
    "acosh": _t(torch.acosh),
    "atanh": native.steady(torch.atanh),
    # error function, gamma, Bessel
    "erf": _t(torch.erf),
    "erfc": _t(torch.erfc),
    "erfinv": _t(torch.erfinv),
    "lgamma": _t(torch.lgamma),
    **special.NEEDS_SCIPY,
    "ncdf": special.NEEDS_SCIPY["normcdf"],
    "ncdfinv": special.NEEDS_SCIPY["normcdfinv"],
    "cyl_bessel_i0": special.bessel["i0"],
    "cyl_bessel_i1": special.bessel["i1"],
    "jn": special.jn,
    "yn": special.yn,
    # rounding, sign, comparison
    "abs": np.abs,
    "fabs": np.abs,
    "iabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": floats.round_half_away,
    "llrint": _to_int64(np.rint),
    "llround": _to_int64(floats.round_half_away),
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "fmod": np.fmod,
    "remainder": special.remainder,
    "fdim": special.fdim,
    "fmax": floats.maximum_number,
    "fmin": floats.minimum_number,
    "fma": floats.fma,
    "saturate": special.saturate,
    "fdivide": np.divide,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "finite": np.isfinite,
    "signbit": np.signbit,
    # integers and bits
    "clz": integers.leading_zeros,
    "popc": integers.popcount,
    "popcount": integers.popcount,
    "ffs": _find_first_set,
    "brev": _reverse_bits,
    "byte_perm": _byte_permute,
    "mulhi": integers.high_signed,
    "mul64hi": integers.high_signed,
    "umulhi": integers.high_unsigned,
    "umul64hi": integers.high_unsigned,
    "mul24": _multiply24,
    "umul24": partial(_multiply24, unsigned=True),
    "sad": _distance,
    "usad": partial(_distance, unsigned=True),
    "hadd": _average,
    "rhadd": partial(_average, up=1),
    "uhadd": partial(_average, unsigned=True),
    "urhadd": partial(_average, up=1, unsigned=True),
    "float_as_int": _as(np.int32),
    "float_as_uint": _as(np.int32),
    "int_as_float": _as(np.float32),
    "uint_as_float": _as(np.float32),
    "double_as_longlong": _as(np.int64),
    "longlong_as_double": _as(np.float64),
    "double2hiint": _high_word,
    "double2loint": _low_word,
    "hiloint2double": _from_words,
    "rcp64h": _reciprocal_high,
}

_SCIPY = frozenset({*special.NEEDS_SCIPY.values(), special.jn, special.yn})

# symbol -> plain name; the rest of a symbol's decoration says the precision, which the arguments know
_PREFIXES = ("__nv_fast_", "__nv_", "__ocml_native_", "__ocml_", "__ockl_", "__triton_hip_fast_", "__triton_hip_")
_DIRECTED = re.compile(r"([fd]?)(add|sub|mul|div|rcp|sqrt|rsqrt|fma)f?_(rn|rz|rd|ru)$")
_CONVERSION = re.compile(r"(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_(rn|rz|rd|ru)$")
_ELEMENTS = {"float": "f32", "double": "f64", "int": "i32", "uint": "i32", "ll": "i64", "ull": "i64"}


def resolve(symbol: str) -> Function | None:
    """The numpy function for a device library's symbol, or None."""
    for prefix in _PREFIXES:
        if symbol.startswith(prefix):
            name = symbol[len(prefix) :]
            break
    else:
        return None
    directed = _DIRECTED.fullmatch(name)
    if directed:
        function = rounding.ARITHMETIC[directed.group(2)]
        mode = directed.group(3)
        return lambda *x: function(*x, mode)
    conversion = _CONVERSION.fullmatch(name)
    if conversion:
        return _conversion(*conversion.groups())
    plain = re.sub(r"_[fuis](16|32|64)$", "", name)
    candidates = [plain]
    for ending in ("ll", "f", "d"):  # clzll, sinf, isnand
        if plain.endswith(ending):
            candidates.append(plain[: -len(ending)])
    if plain.startswith("ll"):
        candidates.append(plain[2:])
    for candidate in candidates:
        if candidate in _FUNCTIONS:
            return _FUNCTIONS[candidate]
    return None


def _conversion(source: str, target: str, mode: str) -> Function:
    element = _ELEMENTS[target]
    if target in ("float", "double"):
        if source == "double":
            return lambda x: rounding.float_to_float(x, mode)
        return lambda x: rounding.int_to_float(x, element, mode, unsigned=source.startswith("u"))
    return lambda x: rounding.float_to_int(x, element, mode, unsigned=target.startswith("u"))


@lru_cache(maxsize=1024)
def _bound(symbol: str, element: str) -> Function | None:
    """`resolve`'s function with its result in the dtype that the op declares; one object per symbol and type."""
    function = resolve(symbol)
    if function is None:
        return None
    dtype = numerics.compute_dtype(element)

    def call(*arrays: Array) -> Array:
        return np.asarray(function(*arrays)).astype(dtype, copy=False)

    return call


def emit(op: Op, args: Sequence[str], env: Environment) -> str:
    """The entry of ``tt.extern_elementwise``."""
    symbol = str(op.attributes.get("symbol", ""))
    function = _bound(symbol, result_element(op))
    if function is None:
        near = difflib.get_close_matches(re.sub(r"^__[a-z]+_|_f(32|64)$", "", symbol), _FUNCTIONS, 3)
        hint = f"; known are for instance {', '.join(near)}" if near else ""
        raise unsupported(op, f"no Python version of the external function {symbol!r}{hint}")
    if resolve(symbol) in _SCIPY and importlib.util.find_spec("scipy") is None:
        raise unsupported(op, f"{symbol!r} is computed with scipy, which is not installed: pip install 'tritontrace[libdevice]'")
    return f"{env.bind('extern_' + re.sub(r'[^A-Za-z0-9_]', '_', symbol), function)}({', '.join(args)})"
