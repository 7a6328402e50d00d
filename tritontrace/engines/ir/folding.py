"""Constant folding and identities of pure operations.

Only what makes generated code shorter is here: integer arithmetic on constants (scalars and splats), casts of
constants, shape changes of splats, and operations that return an operand.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.tree import Op, Value

__all__ = ["fold", "identity"]

Constant = npt.NDArray[Any]
Constants = dict[Value, Constant]

_SHAPE_OPS = frozenset({"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.unsplat"})


def _truncated(a: int, b: int) -> int | None:
    if b == 0:
        return None
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int | None:
    quotient = _truncated(a, b)
    return None if quotient is None else a - quotient * b


_SIGNED: dict[str, Callable[[int, int], int | None]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.divsi": _truncated,
    "arith.remsi": _remainder,
    "arith.maxsi": max,
    "arith.minsi": min,
}
_UNSIGNED: dict[str, Callable[[int, int], int | None]] = {
    "arith.divui": lambda a, b: a // b if b else None,
    "arith.remui": lambda a, b: a % b if b else None,
    "arith.maxui": max,
    "arith.minui": min,
    "arith.shli": lambda a, b: a << b if b < 64 else None,
    "arith.shrui": lambda a, b: a >> b,
}
_PREDICATES: tuple[Callable[[int, int], bool], ...] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
_BINARY = frozenset({*_SIGNED, *_UNSIGNED, "arith.cmpi"})
_CASTS = frozenset({"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.sitofp", "arith.uitofp"})
_FLOAT_CASTS = frozenset({"arith.extf", "arith.truncf"})
_FOLDABLE = _BINARY | _CASTS | _FLOAT_CASTS | _SHAPE_OPS


def _bits(element: str) -> int:
    return 1 if element == "i1" else numerics.compute_dtype(element).itemsize * 8


def _signed(value: Constant, element: str) -> int:
    return -int(value) if element == "i1" else int(value)


def _unsigned(value: Constant, element: str) -> int:
    return int(value) % (1 << _bits(element))


def _wrapped(value: int, element: str) -> Constant:
    bits = _bits(element)
    value %= 1 << bits
    if bits == 1:
        return np.array(bool(value))
    return np.array(value - (1 << bits) if value >> (bits - 1) else value, numerics.compute_dtype(element))


def fold(op: Op, operands: Sequence[Value], constants: Constants) -> Constant | None:
    """The value of `op` (an array of shape ``()``) if its operands are constant scalars or splats."""
    name = op.name
    if name not in _FOLDABLE or len(op.results) != 1:
        return None
    values = []
    for operand in operands:
        value = constants.get(operand)
        if value is None or value.ndim:
            return None
        values.append(value)
    if name in _SHAPE_OPS:
        return values[0]
    source, target = operands[0].type.element, op.results[0].type.element
    result: Constant | None
    if name in _FLOAT_CASTS:
        if "roundingmode" in op.attributes:
            return None
        result = np.asarray(numerics.convert(values[0], source, target))
    elif not operands[0].type.is_integer:
        return None
    elif name in _CASTS:
        result = _cast(name, values[0], source, target)
    else:
        result = _binary(op, values, source, target)
    if result is not None and result.flags.owndata:
        result.flags.writeable = False
    return result


def _cast(name: str, value: Constant, source: str, target: str) -> Constant:
    whole = _unsigned(value, source) if name in ("arith.extui", "arith.uitofp") else _signed(value, source)
    if name not in ("arith.sitofp", "arith.uitofp"):
        return _wrapped(whole, target)
    if abs(whole) >> 53 and target in ("f32", "bf16"):  # float64 would round it a first time
        exact = np.array(np.int64(whole) if whole < 2**63 else np.uint64(whole))
        return exact.astype(np.float32) if target == "f32" else np.asarray(numerics.int_to_bf16(exact))
    return np.asarray(numerics.round_to(np.array(float(whole)), target))


def _binary(op: Op, values: list[Constant], source: str, target: str) -> Constant | None:
    name = op.name
    if name == "arith.cmpi":
        predicate = int(op.attributes.get("predicate", 0))
        number = _unsigned if predicate >= 6 else _signed
        return np.array(_PREDICATES[predicate](number(values[0], source), number(values[1], source)))
    number = _signed if name in _SIGNED else _unsigned
    whole = (_SIGNED.get(name) or _UNSIGNED[name])(number(values[0], source), number(values[1], source))
    return None if whole is None else _wrapped(whole, target)


def identity(op: Op, operands: Sequence[Value], constants: Constants) -> Value | None:
    """The operand that `op` returns unchanged, if it does."""
    name = op.name
    if name in ("arith.bitcast", "tt.bitcast", "tt.broadcast", "tt.reshape", "ttg.convert_layout", "arith.index_cast"):
        return operands[0] if operands[0].type == op.results[0].type else None
    rule = _NEUTRAL.get(name)
    if rule is None:
        return None
    right = constants.get(operands[1])
    if right is not None and right.ndim == 0 and int(right) == _neutral(rule, operands[1].type.element):
        return operands[0]
    if name in _COMMUTATIVE:
        left = constants.get(operands[0])
        if left is not None and left.ndim == 0 and int(left) == _neutral(rule, operands[0].type.element):
            return operands[1]
    return None


_NEUTRAL = {
    "arith.addi": 0,
    "arith.subi": 0,
    "arith.ori": 0,
    "arith.xori": 0,
    "arith.muli": 1,
    "arith.divsi": 1,
    "arith.divui": 1,
    "arith.andi": -1,
    "tt.addptr": 0,
}
_COMMUTATIVE = frozenset({"arith.addi", "arith.ori", "arith.xori", "arith.muli", "arith.andi"})


def _neutral(rule: int, element: str) -> int:
    # of i1, constants are bool: all bits set is True
    return 1 if element == "i1" and rule == -1 else rule
