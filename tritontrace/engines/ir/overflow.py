"""Signed integer arithmetic that leaves its type's range.

With Triton's option ``sanitize_overflow`` the frontend itself computes additions, subtractions and multiplications of up to
32 bits once more in 64 bits and asserts that the result fits. Those assertions become checks that tell and do not raise. The
signs that say which range is meant are known to the frontend alone. Unsigned arithmetic, which hashes and generators
of random numbers wrap on purpose, is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir.tree import Module, Op, Region, Value
from tritontrace.engines.ir.values import dense

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Frame

__all__ = ["OVERFLOW_OP", "check_overflow", "overflow_op"]

OVERFLOW_OP = "tritontrace.overflow"
_MESSAGE = re.compile(r"int(\d+) overflow detected for operation (add|sub|mul)")
_OPERATIONS = frozenset({"arith.addi", "arith.subi", "arith.muli"})


def check_overflow(module: Module, *, keep_asserts: bool) -> None:
    """Turns the frontend's assertions about overflow into checks, in place; the kernel's own ones stay if `keep_asserts`."""
    for function in module.functions.values():
        _region(function.body, keep_asserts)


def _region(region: Region, keep_asserts: bool) -> None:
    for block in region.blocks:
        ops: list[Op] = []
        for op in block.ops:
            for inner in op.regions:
                _region(inner, keep_asserts)
            if op.name != "tt.assert":
                ops.append(op)
                continue
            found = _MESSAGE.fullmatch(str(op.attributes.get("message", "")).strip('"'))
            operands = _operands(op.operands[0]) if found else None
            if found is None or operands is None:
                if keep_asserts and found is None:
                    ops.append(op)
                continue
            if not all(_signed(value) for value in operands):
                continue
            attributes = {"bits": int(found.group(1)), "operation": found.group(2)}
            # What the frontend computed in 64 bits is needed no more, and the optimizer drops it.
            narrow = [_narrow(value) for value in operands]
            ops.append(Op(OVERFLOW_OP, narrow, [], attributes, [], [], op.location))
        block.ops = ops


def _operands(condition: Value) -> list[Value] | None:
    """The operands, in 64 bits, of the operation whose result `condition` compares with the range."""
    todo, seen = [condition], 0
    while todo and seen < 32:
        seen += 1
        owner = todo.pop(0).owner
        if isinstance(owner, Op):
            if owner.name in _OPERATIONS and owner.results[0].type.element == "i64":
                return list(owner.operands)
            todo.extend(owner.operands)
    return None


def _narrow(value: Value) -> Value:
    owner = value.owner
    return owner.operands[0] if isinstance(owner, Op) and owner.name == "arith.extsi" else value


def _signed(value: Value) -> bool:
    owner = value.owner
    while isinstance(owner, Op) and owner.name in ("tt.splat", "tt.broadcast", "tt.expand_dims"):
        owner = owner.operands[0].owner
    return not (isinstance(owner, Op) and owner.name == "arith.extui")


_EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def overflow_op(frame: Frame, site: events.Site, left: Any, right: Any, operation: str, bits: int) -> None:
    """One check; tells clients of the lanes whose result does not fit in `bits`."""
    left, right = dense(left).astype(np.int64), dense(right).astype(np.int64)
    exact = _EXACT[operation](left, right)
    limit = 1 << (bits - 1)
    if exact.min() >= -limit and exact.max() < limit:
        return
    rt = frame.rt
    lanes = (exact < -limit) | (exact >= limit)
    if lanes.ndim > 1 + len(site.block):
        # In a combine function, partial results stand where a lane is expected: the first one that does not fit is told.
        first = lanes.reshape(len(lanes), -1).argmax(axis=1)
        rows = np.arange(len(lanes))
        left, right, lanes = (np.broadcast_to(v, lanes.shape).reshape(len(lanes), -1)[rows, first] for v in (left, right, lanes))
    rt.before(events.IntegerOverflow(rt.launch, site, frame, lanes, (left, right), operation, f"int{bits}"))
