"""Conversions between number formats, bit casts, pointer casts and poison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.ops.table import Emit, Environment, cast, elements, result_element, rounded
from tritontrace.engines.ir.tree import Op

__all__ = ["TABLE"]

_TOWARD_ZERO = 3  # arith's rounding mode attribute


def _float_to_float(op: Op, args: Sequence[str], env: Environment, mode: str) -> str:
    source, target = elements(op)[0], result_element(op)
    probe = np.zeros(1, numerics.compute_dtype(source))
    if numerics.convert(probe, source, target, mode) is probe:
        return args[0]  # exact and held in the same dtype
    if target == "f64" or (target == "f32" and mode == "rtne"):
        return cast(args[0], target, env)
    if mode == "rtne" and target in ("f16", "bf16"):
        return rounded(args[0], target, env)
    return f"{env.bind('round_to', numerics.round_to)}({args[0]}, {target!r}, {mode!r})"


def _extend(op: Op, args: Sequence[str], env: Environment) -> str:
    return _float_to_float(op, args, env, "rtne")


def _truncate(op: Op, args: Sequence[str], env: Environment) -> str:
    mode = "rtz" if op.attributes.get("roundingmode") == _TOWARD_ZERO else "rtne"
    return _float_to_float(op, args, env, mode)


def _convert(op: Op, args: Sequence[str], env: Environment) -> str:
    # Triton's RoundingMode: 0 is towards zero, 1 to nearest even; absent when the conversion widens
    mode = "rtz" if op.attributes.get("rounding", 1) == 0 else "rtne"
    return _float_to_float(op, args, env, mode)


def _int_to_float(unsigned: bool) -> Emit:
    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        source, target = elements(op)[0], result_element(op)
        value = args[0]
        if unsigned and source != "i1":
            dtype = numerics.unsigned_dtype(source)
            value = f"{value}.view({env.bind(f'dtype_{dtype.name}', dtype)})"
        if target == "bf16" and source in ("i64", "index"):
            return f"{env.bind('int_to_bf16', numerics.int_to_bf16)}({value})"
        # bf16 has float32's range, so a large integer must not be rounded to float32 first; for the other narrow
        # formats float32 is exact wherever they do not overflow
        exact = "f64" if target == "bf16" and source == "i32" else target
        value = cast(value, exact, env)
        if source == "i1" and not unsigned:
            value = f"(-{value})"
        return rounded(value, target, env)

    return emit


def _float_to_int(unsigned: bool) -> Emit:
    def emit(op: Op, args: Sequence[str], env: Environment) -> str:
        helper = env.bind("float_to_int", numerics.float_to_int)
        return f"{helper}({args[0]}, {result_element(op)!r}{', unsigned=True' if unsigned else ''})"

    return emit


def _bitcast(op: Op, args: Sequence[str], env: Environment) -> str:
    source, target = elements(op)[0], result_element(op)
    plain = ("f32", "f64")
    from_float, to_float = _is_float(source), _is_float(target)
    if source == target or not (from_float or to_float):
        return args[0]  # integers and pointers of one width share a representation
    value = args[0]
    if from_float and source not in plain:
        value = f"{env.bind('bits_of', numerics.bits_of)}({value}, {source!r})"
    if to_float and target not in plain:
        return f"{env.bind('from_bits', numerics.from_bits)}({value}, {target!r})"
    dtype = numerics.compute_dtype(target)
    return f"{value}.view({env.bind(f'dtype_{dtype.name}', dtype)})"


def _is_float(element: str) -> bool:
    return element[0] in "fb" and not element.startswith("ptr")


def _identity(op: Op, args: Sequence[str], env: Environment) -> str:
    return args[0]


def _poison(op: Op, args: Sequence[str], env: Environment) -> str:
    """Any value will do; zeros read best in a report."""
    kind = op.results[0].type
    try:
        dtype = numerics.compute_dtype(kind.element)
    except ValueError:
        return "None"  # a descriptor or a token that nothing may use
    zero = np.zeros((1,) * (1 + len(kind.shape)), dtype)
    zero.flags.writeable = False
    return env.bind(f"poison_{dtype.name}_{zero.ndim}", zero)


TABLE: dict[str, Emit] = {
    "arith.extf": _extend,
    "arith.truncf": _truncate,
    "tt.fp_to_fp": _convert,
    "arith.sitofp": _int_to_float(False),
    "arith.uitofp": _int_to_float(True),
    "arith.fptosi": _float_to_int(False),
    "arith.fptoui": _float_to_int(True),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.ptr_to_int": _identity,
    "tt.int_to_ptr": _identity,
    "ub.poison": _poison,
}
