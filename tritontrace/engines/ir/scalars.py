"""Run-time scalars and pointers as a kernel receives them.

A launcher turns each Python object into the bits of the parameter's type, by rules of its own: it is they that say what
``True``, ``2**40`` or ``None`` is to a parameter, and what is refused. Those of Triton's CUDA launcher are followed.
"""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

import numpy as np

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.tree import Type
from tritontrace.errors import ArgumentError

__all__ = ["scalar"]

_SIGNED = range(-(2**63), 2**63)
_UNSIGNED = range(2**64)


def scalar(value: Any, kind: Type, triton_type: str, what: str) -> Any:
    """`value` as an array ``[1]`` of the parameter's type: `kind` in the IR, `triton_type` in the signature (``"u8"``).

    Raises `ArgumentError`, which begins with `what`, for a value that a launcher refuses.
    """
    try:
        if kind.is_pointer:
            return np.array([_address(value)], np.uint64).view(np.int64)
        dtype = numerics.compute_dtype(kind.element)
        if dtype.kind in "bi":
            number = _integer(value, triton_type)
            if dtype.kind == "b":
                return np.array([bool(number & 1)])  # a kernel looks at the lowest bit only
            return np.array([number & ((1 << dtype.itemsize * 8) - 1)], f"u{dtype.itemsize}").view(dtype)
        return _real(value, kind.element, dtype)
    except _RefusedError as error:
        raise ArgumentError(f"{what} is of type {triton_type}: {error}") from None


class _RefusedError(Exception):
    pass


def _address(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, int):
        # Looked up on its own: what a data_ptr() raises is the user's, and passes.
        method = getattr(value, "data_ptr", None)
        if method is None:
            raise _RefusedError(f"a pointer must be an integer, None or have a data_ptr method, not {value!r}")
        value = method()
        if not isinstance(value, int):
            raise _RefusedError(f"its data_ptr method must return an integer, not {value!r}")
    if value not in _UNSIGNED:
        raise _RefusedError(f"the address {value} does not fit 64 bits")
    return int(value)


def _integer(value: Any, triton_type: str) -> int:
    unsigned = triton_type[0] == "u"
    try:
        # A C long is what a signed parameter gets, and then its low bits.
        number = operator.index(value)
    except TypeError as error:
        raise _RefusedError(str(error)) from None
    if number not in (_UNSIGNED if unsigned else _SIGNED):
        raise _RefusedError(f"{number} is out of range")
    return number


def _real(value: Any, element: str, dtype: np.dtype[Any]) -> Any:
    try:
        number = math.ldexp(value, 0)  # takes what a C double takes, and says so if it does not
    except (TypeError, OverflowError) as error:
        raise _RefusedError(str(error)) from None
    if element == "f16":
        try:
            return np.array(struct.unpack("<e", struct.pack("<e", number)), dtype)
        except OverflowError as error:
            raise _RefusedError(str(error)) from None
    with np.errstate(over="ignore"):
        if element == "bf16":  # cut off, not rounded
            bits = np.array([number], np.float64).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
            return bits.view(np.float32).astype(dtype)
        return numerics.round_to(np.array([number], np.float64).astype(dtype), element)
