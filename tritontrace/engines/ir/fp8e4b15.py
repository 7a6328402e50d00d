"""Conversions of Triton's fp8e4b15 as plain integer operations.

The format has no type in MLIR: its values are bytes, and Triton's CUDA backend converts them by inline PTX (other backends
not at all). The same steps are written here with operations that any engine has, so that the values are those of that PTX:
to fp16 exact; from fp16 saturating at 1.75 and rounding a tie away from zero; from wider types through fp16 towards zero.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from tritontrace.kernels import private

__all__ = ["convert"]

_LARGEST = 0x3F00  # 1.75 in fp16, the largest finite value of the format


def convert(value: Any, dst_ty: Any, fp_downcast_rounding: Any = None, _semantic: Any = None) -> Any:
    """What a backend's ``convert_custom_types`` does: `value` from or to fp8e4b15."""
    return _widen(value, dst_ty, _semantic) if value.type.scalar.is_fp8e4b15() else _narrow(value, _semantic)


def _widen(value: Any, dst_ty: Any, semantic: Any) -> Any:
    # The bias is fp16's: sign to the top, exponent and mantissa to where fp16 has the low four exponent bits.
    bits = value.to(tl.uint8, bitcast=True, _semantic=semantic).to(tl.uint16, _semantic=semantic)
    sign = bits.__and__(0x80, _semantic=semantic).__lshift__(8, _semantic=semantic)
    rest = bits.__and__(0x7F, _semantic=semantic).__lshift__(7, _semantic=semantic)
    half = sign.__or__(rest, _semantic=semantic).to(tl.float16, bitcast=True, _semantic=semantic)
    return half.to(dst_ty.scalar, _semantic=semantic)


def _narrow(value: Any, semantic: Any) -> Any:
    if not value.type.scalar.is_fp16():
        value = value.to(tl.float32, _semantic=semantic).to(tl.float16, fp_downcast_rounding="rtz", _semantic=semantic)
    bits = value.to(tl.uint16, bitcast=True, _semantic=semantic)
    size = bits.__and__(0x7FFF, _semantic=semantic)
    # A NaN has larger bits than any number, so it saturates too, as PTX's min does.
    small = size.__lt__(_LARGEST, _semantic=semantic)
    size = private.module(tl).where(small, size, _LARGEST, _semantic=semantic).to(tl.uint16, _semantic=semantic)
    rounded = semantic.add(size.__lshift__(1, _semantic=semantic), 0x80, False)
    sign = bits.__and__(0x8000, _semantic=semantic)
    byte = rounded.__or__(sign, _semantic=semantic).__rshift__(8, _semantic=semantic).to(tl.uint8, _semantic=semantic)
    return byte.to(tl.float8e4b15, bitcast=True, _semantic=semantic)
