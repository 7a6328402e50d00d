"""The public names of ``triton.language`` that this engine does not execute, each with the reason.

``tritontrace doctor`` prints them and ``docs/language.md`` lists them. Every other public name is executed by a test that compares
it with a reference (``tests/language``), which fails for a name that is in neither place.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REASONS", "reason"]

_HOST = "for the compiler and for code on the host; inside a kernel it computes nothing"
_CUSTOM = (
    "what the compiler itself calls where a kernel casts from or to tl.float8e4b15, which is executed; its inline PTX, called by "
    "name, needs a callback (session(inline_asm=...))"
)

REASONS: Mapping[str, str] = {
    "dtype.FP_TYPES": _HOST,
    "dtype.KIND": _HOST,
    "dtype.OTHER_TYPES": _HOST,
    "dtype.SIGNEDNESS": _HOST,
    "dtype.SINT_TYPES": _HOST,
    "dtype.STANDARD_FP_TYPES": _HOST,
    "dtype.UINT_TYPES": _HOST,
    "dtype.cache_key_part": _HOST,
    "dtype.codegen_name": _HOST,
    "dtype.is_void": "Triton raises NotImplementedError",
    "dtype.kind": _HOST,
    "dtype.mangle": _HOST,
    "dtype.to_ir": _HOST,
    "dtype.with_element_ty": _HOST,
    "tensor.sort": "declared without a body: x.sort() is None in Triton; tl.sort(x) is executed",
    "tl.constexpr_type": _HOST,
    "tl.extra.cuda.convert_custom_float8_sm70": _CUSTOM,
    "tl.extra.cuda.convert_custom_float8_sm80": _CUSTOM,
    "tl.slice": "what the compiler makes of x[a:b]; slicing tuples is executed",
    "tl.void": "the type of no value",
}


def reason(name: str) -> str | None:
    """Why the public name (``"tl.slice"``, ``"tensor.sort"``, ``"dtype.kind"``) is not executed; None if it is."""
    return REASONS.get(name)
