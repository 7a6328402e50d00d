"""The public names of ``triton.language`` that this engine does not execute, each with the reason.

``tritontrace doctor`` prints them and ``docs/language.md`` lists them. Every other public name is executed by a test that
compares it with a reference (``tests/language``), which fails for a name that is in neither place.
"""

from __future__ import annotations

from collections.abc import Mapping

import triton.language as tl

from tritontrace.kernels import capabilities

__all__ = ["REASONS", "reason", "reasons"]

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


BLOCK_POINTERS: Mapping[str, str] = {
    "tensor.advance": "removed with block pointers from this version of Triton; older ones' is executed",
    "tl.make_block_ptr": "removed from this version of Triton, which raises NotImplementedError; older ones' is executed",
}
"""What only a Triton without block pointers does not execute."""


def reason(name: str) -> str | None:
    """Why the public name (``"tl.slice"``, ``"tensor.sort"``, ``"dtype.kind"``) is not executed; None if it is."""
    found = REASONS.get(name)
    if found is None and not capabilities.block_pointers():
        found = BLOCK_POINTERS.get(name)
    return found


def reasons() -> dict[str, str]:
    """The names of the installed version that are not executed, with the reason of each."""
    return {name: why for name in (*REASONS, *BLOCK_POINTERS) if _is_installed(name) and (why := reason(name)) is not None}


def _is_installed(name: str) -> bool:
    first, *rest = name.split(".")
    owner = tl if first == "tl" else getattr(tl, first)
    for part in rest:
        owner = getattr(owner, part, None)
    return owner is not None
