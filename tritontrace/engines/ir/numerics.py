# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Number formats: how a value of each IR element type is computed with, and how it lies in memory.

Integers are numpy's signed integers of their width (``i1`` is bool), pointers are int64 byte addresses. The 16-bit
and 8-bit floats are held as float32 and rounded to their format after each operation by one cast (arithmetic in
those dtypes themselves is several times slower, arithmetic on bit patterns is wrong). The cast is numpy's or
ml_dtypes', for large arrays torch's, which gives the same values many times faster. Every function takes and gives
arrays of any shape and never writes to its argument; a result may be its argument itself where nothing had to
change. The caller silences numpy's floating-point warnings.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.ir import native

__all__ = [
    "bits_of",
    "compute_dtype",
    "convert",
    "element_bytes",
    "float_to_int",
    "from_bits",
    "from_memory",
    "int_to_bf16",
    "memory_dtype",
    "parse_float",
    "round_bf16",
    "round_bf16_rtz",
    "round_f16",
    "round_f16_rtz",
    "round_f32_rtz",
    "round_tf32",
    "round_to",
    "to_memory",
    "unsigned_dtype",
]

Array = npt.NDArray[Any]

_LARGE = 2048  # elements from which torch's casts win over its call overhead

_F8: dict[str, Any] = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
}
_F8_MAX = {name: np.float32(ml_dtypes.finfo(dtype).max) for name, dtype in _F8.items()}

_F8_TORCH: dict[str, torch.dtype] = {
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}

_COMPUTE: dict[str, npt.DTypeLike] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float32,
    "bf16": np.float32,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
    **dict.fromkeys(_F8, np.float32),
}
_MEMORY: dict[str, npt.DTypeLike] = {
    **_COMPUTE,
    "f16": np.float16,
    "bf16": np.uint16,
    "i1": np.uint8,
    **dict.fromkeys(_F8, np.uint8),
}


@lru_cache(maxsize=512)
def compute_dtype(element: str) -> np.dtype[Any]:
    """The dtype that values of `element` are held in while they are computed with."""
    if element.startswith("ptr<"):
        return np.dtype(np.int64)
    try:
        return np.dtype(_COMPUTE[element])
    except KeyError:
        raise ValueError(f"no number format for element type {element!r}") from None


@lru_cache(maxsize=512)
def memory_dtype(element: str) -> np.dtype[Any]:
    """The dtype through which memory that holds `element` is viewed (bits for formats numpy lacks)."""
    if element.startswith("ptr<"):
        return np.dtype(np.int64)
    try:
        return np.dtype(_MEMORY[element])
    except KeyError:
        raise ValueError(f"no number format for element type {element!r}") from None


def element_bytes(element: str) -> int:
    """Bytes that one element takes in memory (``i1`` takes one)."""
    return memory_dtype(element).itemsize


def unsigned_dtype(element: str) -> np.dtype[Any]:
    """The unsigned integer dtype as wide as `element` is while computed with."""
    return np.dtype(f"u{compute_dtype(element).itemsize}")


# -- rounding ---------------------------------------------------------------------------------------------------


def round_f16(x: Array) -> Array:
    """`x` (float32 or float64) rounded to nearest even f16, as float32."""
    if x.size >= _LARGE and x.dtype == np.float32:
        return native.round_through(x, torch.float16)
    return x.astype(np.float16).astype(np.float32)


def round_bf16(x: Array) -> Array:
    """`x` (float32 or float64) rounded to nearest even bf16, as float32."""
    if x.dtype == np.float64:
        x = _odd_f32(x)
    if x.size >= _LARGE:
        return native.round_through(x, torch.bfloat16)
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def round_f16_rtz(x: Array) -> Array:
    """`x` rounded towards zero to f16, as float32: finite values never become infinite."""
    y = x.astype(np.float16)
    too_far = np.abs(y.astype(x.dtype)) > np.abs(x)
    y = np.where(too_far, np.nextafter(y, np.float16(0)), y)
    return y.astype(np.float32)


def round_bf16_rtz(x: Array) -> Array:
    """`x` rounded towards zero to bf16, as float32: finite values never become infinite."""
    if x.dtype == np.float64:
        x = _odd_f32(x)
    y = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    # a NaN whose payload lies in the low bits only would turn into an infinity
    return np.where(np.isnan(x), np.float32(np.nan), y)


def _odd_f32(x: Array) -> Array:
    """float64 `x` as float32 rounded to odd, so that a second rounding to a narrower format rounds only once."""
    y = x.astype(np.float32)
    back = y.astype(np.float64)
    bits = y.view(np.uint32)
    bits = np.where(np.abs(back) > np.abs(x), bits - np.uint32(1), bits)
    inexact = (back != x) & ~np.isnan(x)
    return (bits | inexact).astype(np.uint32).view(np.float32)


def round_f32_rtz(x: Array) -> Array:
    """`x` (float32 or float64) rounded towards zero to float32: finite values never become infinite."""
    if x.dtype == np.float32:
        return x
    y = x.astype(np.float32)
    return np.where(np.abs(y.astype(np.float64)) > np.abs(x), np.nextafter(y, np.float32(0)), y)


@lru_cache(maxsize=16)
def _f8_sizes(element: str) -> Array:
    """The finite values of an 8-bit format that are not negative, ascending."""
    sizes = _f8_table(element)[:128]
    return sizes[np.isfinite(sizes)]


def _truncate_f8(x: Array, element: str) -> Array:
    # Triton goes through fp16 towards zero and drops its low byte: an infinity stays one where the format has it
    sizes = _f8_sizes(element)
    size = np.abs(x)
    number = ~np.isnan(x)
    y = sizes[np.searchsorted(sizes, np.where(number, size, 0), side="right") - 1]
    if element == "f8E5M2":
        y = np.where(np.isinf(x), size, y)
    if not element.endswith("UZ"):
        y = np.copysign(y, x)
    else:
        y = np.where(x < 0, 0 - y, y)  # these have no negative zero
    return np.where(number, y, x)


def _round_f8(x: Array, element: str, mode: str) -> Array:
    # Triton's conversions saturate (`satfinite`), infinities included; ml_dtypes would give NaN or infinity
    top = _F8_MAX[element]
    if x.dtype == np.float64:
        x = _odd_f32(x)
    if mode == "rtz":
        return _truncate_f8(x, element)
    x = np.clip(x, -top, top)
    if x.size >= _LARGE and element in _F8_TORCH:
        return native.round_through(x, _F8_TORCH[element])
    return x.astype(_F8[element]).astype(np.float32)


def round_to(x: Array, element: str, mode: str = "rtne") -> Array:
    """`x` (any float array) rounded to `element`, in its compute dtype. `mode`: ``"rtne"`` or ``"rtz"``."""
    if element == "f32":
        if mode == "rtz":
            return round_f32_rtz(x)
        return x if x.dtype == np.float32 else x.astype(np.float32)
    if element == "f64":
        return x if x.dtype == np.float64 else x.astype(np.float64)
    if element == "f16":
        return round_f16_rtz(x) if mode == "rtz" else round_f16(x)
    if element == "bf16":
        return round_bf16_rtz(x) if mode == "rtz" else round_bf16(x)
    if element in _F8:
        return _round_f8(x, element, mode)
    if element == "tf32":
        return round_tf32(x, "rtz" if mode == "rtz" else "rna")
    raise ValueError(f"{element!r} is not a floating-point element type")


def round_tf32(x: Array, mode: str = "rna") -> Array:
    """float32 `x` with TF32's 10 fraction bits.

    `mode`: ``"rna"``, to nearest with ties away from zero, as ``cvt.rna.tf32.f32`` does; ``"rtz"``, truncated, as
    tensor cores read plain float32 operands.
    """
    bits = x.view(np.uint32)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    rounded = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    finite = np.isfinite(x)
    return rounded if finite.all() else np.where(finite, rounded, x)


def convert(x: Array, source: str, target: str, mode: str = "rtne") -> Array:
    """A value of float element `source` converted to float element `target`; widening is exact."""
    if source == target or (target == "f32" and source != "f64"):
        return x
    if target == "bf16" and source in _F8:
        return x  # bf16 holds every value of the 8-bit formats
    if target == "f16" and source in ("f8E5M2", "f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ"):
        return x
    return round_to(x, target, mode)


def int_to_bf16(x: Array) -> Array:
    """64-bit integers rounded once to bf16, as float32."""
    one = x.dtype.type(1)
    # beyond 53 bits float64 would round first: keep the upper bits, the last of them set if a lower one was
    upper = (x >> x.dtype.type(11)) << x.dtype.type(11)
    sticky = upper | ((upper != x).astype(x.dtype) << x.dtype.type(11))
    large = (x >= one << x.dtype.type(53)) | ((x < 0) & (x <= -(one << x.dtype.type(53))) if x.dtype.kind == "i" else False)
    return round_bf16(np.where(large, sticky, x).astype(np.float64))


def float_to_int(x: Array, element: str, *, unsigned: bool = False) -> Array:
    """`x` (a float value as computed with, float32 or float64) truncated to integer `element`, as PTX's ``cvt.rzi``.

    Values outside saturate. NaN gives 0, or, when either side has 64 bits, the sign bit alone. There is no 8-bit
    conversion on GPUs: the compiler converts to 16 bits and drops the upper half.
    """
    if element == "i1":
        return float_to_int(x, "i16", unsigned=unsigned).astype(np.uint16) % 2 == 1
    dtype = compute_dtype(element)
    bits = max(dtype.itemsize * 8, 16)
    wide = bits == 64 or x.dtype == np.float64
    if not unsigned and bits == 32 and not wide:
        # the common case in one pass: both x86 (INT_MIN) and Arm (saturated) leave no doubt about what needs a fix
        y = x.astype(np.int32)
        if y.size == 0 or (int(y.min()) > -(2**31) and int(y.max()) < 2**31 - 1 and not np.isnan(x).any()):
            return y
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    exact = x.astype(np.float64)
    work = np.dtype(f"u{bits // 8}" if unsigned else f"i{bits // 8}")
    # float64 has no 2**63 - 1 or 2**64 - 1, so compare against the power of two above
    over = exact >= float(high + 1)
    under = exact <= float(low)
    nan = np.isnan(exact)
    inside = np.where(over | under | nan, 0.0, exact)
    if bits == 64 and unsigned:
        upper = inside >= 2.0**63
        y = np.where(upper, inside - 2.0**63, inside).astype(np.int64).view(np.uint64)
        y = np.where(upper, y | np.uint64(2**63), y)
    else:
        y = inside.astype(np.int64).astype(work)
    y = np.where(over, work.type(high), y)
    y = np.where(under, work.type(low), y)
    if wide:
        y = np.where(nan, np.array(1 << (bits - 1), f"u{bits // 8}").view(work)[()], y)
    return y.astype(work).view(f"i{bits // 8}").astype(dtype)


# -- memory and bits --------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _f8_table(element: str) -> Array:
    table: Array = np.arange(256, dtype=np.uint8).view(_F8[element]).astype(np.float32)
    if element == "f8E5M2":  # its NaNs differ in their bits, and bits are copied and cast
        nan = np.flatnonzero(np.isnan(table)).astype(np.uint32)
        table[nan] = ((nan & 0x80) << 24 | 0x7F800000 | (nan & 3) << 21).view(np.float32)
    table.flags.writeable = False
    return table


def _has_nan(x: Array) -> bool:
    """True if float32 `x`, whose squares do not overflow or which may be infinite, has a NaN; 5 times as fast as isnan."""
    flat = x.reshape(-1)
    return bool(np.isnan(np.dot(flat, flat)))


def _from_f16(raw: Array) -> Array:
    x = native.from_float16(raw) if raw.size >= _LARGE else raw.astype(np.float32)
    if _has_nan(x):  # the processor sets the quiet bit; memory that is copied or cast to integers must keep its bits
        bits = raw.view(np.uint16).astype(np.uint32)
        nan = (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13
        x = np.where(np.isnan(x), nan.view(np.float32), x)
    return x


def _to_f16(x: Array) -> Array:
    half = native.to_float16(x) if x.size >= _LARGE else x.astype(np.float16)
    if _has_nan(x):
        bits = x.view(np.uint32)
        payload = (bits >> 13) & 0x3FF
        nan = (bits >> 16) & 0x8000 | 0x7C00 | np.where(payload, payload, 0x200)
        half = np.where(np.isnan(x), nan.astype(np.uint16).view(np.float16), half)
    return half


def from_memory(raw: Array, element: str) -> Array:
    """What lies in memory (an array of `memory_dtype(element)`) as values to compute with."""
    if element == "bf16":
        return np.left_shift(raw, 16, dtype=np.uint32).view(np.float32)
    if element == "f16":
        return _from_f16(raw)
    if element in _F8:
        return _f8_table(element).take(raw)
    if element == "i1":
        return raw != 0
    return raw


def to_memory(x: Array, element: str) -> Array:
    """Values of `element` (already rounded to it) as they lie in memory, an array of `memory_dtype(element)`."""
    if element == "bf16":
        return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if element == "f16":
        return _to_f16(x)
    if element in _F8:
        raw = x.astype(_F8[element]).view(np.uint8)
        if element == "f8E5M2" and _has_nan(x):
            bits = x.view(np.uint32)
            payload = (bits >> 21) & 3
            nan = ((bits >> 24) & 0x80) | 0x7C | np.where(payload, payload, 2)
            raw = np.where(np.isnan(x), nan, raw).astype(np.uint8)
        return raw
    if element == "i1":
        return x.view(np.uint8)
    return x


def bits_of(x: Array, element: str) -> Array:
    """The bit patterns of values of `element`, as signed integers of the element's width."""
    if element == "i1" or element == "index" or element[0] in "ip":
        return x
    raw = to_memory(x, element)
    return raw.view(f"i{raw.dtype.itemsize}")


def from_bits(bits: Array, element: str) -> Array:
    """Values of `element` from their bit patterns (integers of the element's width)."""
    if element == "i1" or element == "index" or element[0] in "ip":
        return bits
    return from_memory(bits.view(memory_dtype(element)), element)


def parse_float(text: str, element: str) -> Array:
    """The value that a float literal of MLIR's text stands for (decimal, or the bits in hex), shape ``()``."""
    if text.startswith(("0x", "0X")):
        raw = np.array(int(text, 16), f"u{element_bytes(element)}")
        return np.asarray(from_memory(raw.view(memory_dtype(element)), element))
    return np.asarray(round_to(np.array(float(text), np.float64), element))
