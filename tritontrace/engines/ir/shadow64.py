"""The kernel's floating-point values once more, in float64: how much precision is lost on the way to memory.

Every float has a companion, an f64 tile that is computed by the very operations of the kernel from the operands' companions.
A value from memory starts with the value it has there. Control flow, addresses and masks are the kernel's own, so the
kernel executes as it would; where it stores a float, value and companion are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir.companions import (
    MOVES,
    CompanionWriter,
    closed_functions,
    mask_of,
    tile_of,
    values_of,
)
from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.tree import Block, Module, Op, Region, Type, Value
from tritontrace.engines.ir.values import dense

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Frame

__all__ = ["COMPARE", "NO_TWIN", "SAME", "WIDEN", "shadow_compare", "shadow_floats", "shadow_widen"]

COMPARE = "tritontrace.shadow.compare"
WIDEN = "tritontrace.shadow.widen"

SAME = frozenset({"arith.extf", "arith.truncf", "tt.fp_to_fp"})
NO_TWIN = frozenset(
    {"arith.bitcast", "tt.bitcast", "ub.poison", "tt.extern_elementwise", "tt.elementwise_inline_asm", "tt.dot_scaled"}
)
_FOLDS = frozenset({"tt.reduce", "tt.scan"})


def shadow_floats(module: Module, entry: str) -> None:
    """Adds companions and comparisons to `module`, in place."""
    closed = closed_functions(module)
    for name, function in module.functions.items():
        if name not in closed:
            _Writer(function, entry=name == entry, closed=closed).write()


class _Writer(CompanionWriter):
    element = "f64"

    def follows(self, value: Value) -> bool:
        return value.type.is_float

    def default(self, value: Value, ops: list[Op]) -> Value:
        # made where it is needed, which its definition dominates
        made = Op(WIDEN, [value], [], {}, [], [], self.function.body.blocks[0].ops[0].location)
        made.results = [self.new(value.type.shape, made, 0)]
        ops.append(made)
        return made.results[0]

    def follow(self, op: Op, ops: list[Op]) -> list[Op]:
        name = op.name
        if name in MOVES or name == "tt.gather":
            return [self.moved(op, ops)]
        if name in SAME:
            self.companions[op.results[0]] = self.companion(op.operands[0], ops)
            return []
        twin = None
        if name in _FOLDS:
            twin = self._fold(op, ops)
        elif name == "tt.dot" or (name in ELEMENTWISE and name not in NO_TWIN):
            twin = self._twin(op, ops)
            if name == "tt.dot":
                twin.attributes = {**op.attributes, "inputPrecision": 2}
        if twin is None:
            # the value itself, from here on
            made = []
            for result in op.results:
                if self.follows(result):
                    widened: list[Op] = []
                    self.companions[result] = self.default(result, widened)
                    made.extend(widened)
            return made
        return [twin]

    def _twin(self, op: Op, ops: list[Op]) -> Op:
        operands = [self.companion(value, ops) if self.follows(value) else value for value in op.operands]
        twin = Op(op.name, operands, [], op.attributes, [], [], op.location)
        for i, result in enumerate(op.results):
            element = None if self.follows(result) else result.type.element
            twin.results.append(self.new(result.type.shape, twin, i, element))
            if element is None:
                self.companions[result] = twin.results[i]
        return twin

    def _fold(self, op: Op, ops: list[Op]) -> Op | None:
        if len(op.regions[0].blocks) != 1:
            return None
        block = op.regions[0].block
        if any(inner.regions or (inner.name not in ELEMENTWISE and not inner.name.endswith(".return")) for inner in block.ops):
            return None
        if any(inner.name in NO_TWIN or inner.name in ("arith.constant",) for inner in block.ops):
            return None
        twin = self._twin(op, ops)
        twin.regions = [Region([self._copy(block)])]
        return twin

    def _copy(self, block: Block) -> Block:
        """A combine function with f64 in place of every float."""
        made = Block([], [], block.label)
        values: dict[Value, Value] = {}
        for argument in block.arguments:
            values[argument] = self.new(argument.type.shape, made, len(made.arguments), _wide(argument.type))
            made.arguments.append(values[argument])
        for op in block.ops:
            operands = [values.get(value, value) for value in op.operands]
            if op.name in SAME:
                values[op.results[0]] = operands[0]
                continue
            new = Op(op.name, operands, [], op.attributes, [], [], op.location)
            for i, result in enumerate(op.results):
                values[result] = self.new(result.type.shape, new, i, _wide(result.type))
                new.results.append(values[result])
            made.ops.append(new)
        return made

    def sink(self, op: Op, ops: list[Op]) -> None:
        for value in values_of(op):
            if not self.follows(value) or value not in self.companions:
                continue
            operands = [value, self.companions[value]]
            tile = tile_of(op)
            if tile is not None:
                ops.append(Op(COMPARE + "_tile", [*operands, *tile], [], {"of": op}, [], [], op.location))
                continue
            mask = mask_of(op)
            if mask is not None:
                operands.append(mask)
            ops.append(Op(COMPARE, operands, [], {"of": op}, [], [], op.location))


def _wide(kind: Type) -> str:
    return "f64" if kind.is_float else kind.element


def shadow_widen(value: Any) -> Any:
    """A value as its own companion."""
    return value.astype(np.float64)


def shadow_compare(frame: Frame, site: events.Site, value: Any, reference: Any, mask: Any = None) -> None:
    """Tells clients of a value that is about to be stored, and of its companion."""
    rt = frame.rt
    active = None if mask is None else dense(mask)
    rt.before(events.Compared(rt.launch, site, frame, value, reference, active))
