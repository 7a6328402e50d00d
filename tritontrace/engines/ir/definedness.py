"""Which lanes of a value are undefined: a shadow of the kernel that follows masked loads without ``other``.

A masked-off lane of such a load holds anything. Every value that may depend on one gets a *companion*, an i64 tile of
the same shape with one bit for each such load: the bit is set where the value depends on an undefined lane of that
load. Companions are ordinary values, so loops, branches and the code generator treat them like any other. Where a
companion meets a store, an address, a mask or a branch, a *sink* tells clients what arrived.

Most kernels need none of this: a load whose value meets only stores and selections under the load's own mask is seen
to be harmless beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from tritontrace.engines.ir.companions import tile_of
from tritontrace.engines.ir.suspects import Flow, mask_of, other_of, sinks
from tritontrace.engines.ir.tree import Block, Function, Module, Op, Region, Successor, Type, Value, walk

__all__ = ["DECIDED", "MOST_LOADS", "PREFIX", "SEED", "SINK", "track"]

PREFIX = "tritontrace.undefined."
SEED = PREFIX + "seed"
SINK = PREFIX + "sink"
MOST_LOADS = 62
"""Loads of one kernel that are followed; one bit each."""

_MOVES = frozenset(
    {
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.splat",
        "tt.unsplat",
        "tt.join",
        "tt.split",
        "tt.cat",
        "ttg.convert_layout",
    }
)
"""Operations that only move lanes: a companion goes through the very same operation."""

DECIDED = {"arith.andi": 0, "arith.muli": 0, "arith.ori": -1}
"""Operations that one operand alone may decide, and the value (of an i1: False, True) with which it does."""


def track(module: Module, *, without_data: bool = False) -> int:
    """Adds companions and sinks to `module`, in place; returns how many loads are followed (0: nothing was changed).

    With `without_data` no companion depends on what the kernel loads: where data chooses between a defined and an undefined
    lane, the lane counts as defined.
    """
    flows = [Flow(function) for function in module.functions.values()]
    loads = [load for flow in flows if flow.dangerous() for load in flow.loads][:MOST_LOADS]
    if not loads:
        return 0
    for bit, load in enumerate(loads):
        load.attributes = {**load.attributes, "undefined_bit": bit}
    loading = _loading(module)
    for flow in flows:
        if flow.dangerous():
            _Writer(flow, _derived(flow.function, loading) if without_data else frozenset()).write()
    return len(loads)


class _Writer:
    """Writes the companions and sinks of one function into it."""

    def __init__(self, flow: Flow, derived: frozenset[Value]) -> None:
        self.flow = flow
        self.derived = derived
        self.tainted = flow.guards
        self.companions: dict[Value, Value] = {}
        self.zeros: dict[tuple[int, ...], Value] = {}
        self.prologue: list[Op] = []
        self.next_id = 1 + max((value.id for value in _all_values(flow.function.body)), default=0)

    def write(self) -> None:
        body = self.flow.function.body
        for block in body.blocks[1:]:
            self._extend_arguments(block, 0)
        for block in body.blocks:
            self._block(block)
        body.blocks[0].ops[:0] = self.prologue

    # -- values
    def _new(self, shape: tuple[int, ...], owner: Op | Block, index: int) -> Value:
        value = Value(Type(shape, "i64"), None, self.next_id, owner, index)
        self.next_id += 1
        return value

    def _zero(self, shape: tuple[int, ...]) -> Value:
        found = self.zeros.get(shape)
        if found is None:
            op = Op("arith.constant", [], [], {"value": np.zeros((), np.int64)}, [], [], self.prologue_location())
            op.results = [self._new(shape, op, 0)]
            self.prologue.append(op)
            found = self.zeros[shape] = op.results[0]
        return found

    def prologue_location(self) -> Any:
        return self.flow.function.body.blocks[0].ops[0].location

    def _companion(self, value: Value) -> Value:
        return self.companions.get(value) or self._zero(value.type.shape)

    def _suspect(self, value: Value) -> bool:
        return value in self.companions

    def _make(self, of: Op, name: str, operands: list[Value], shape: tuple[int, ...], **attributes: Any) -> Op:
        op = Op(name, operands, [], attributes, [], [], of.location)
        op.results = [self._new(shape, op, 0)]
        return op

    # -- blocks
    def _extend_arguments(self, block: Block, first: int) -> list[int]:
        """Companions for the suspect arguments from `first` on, appended; returns these arguments' places."""
        places = [i for i, argument in enumerate(block.arguments) if i >= first and argument in self.tainted]
        for i in places:
            argument = block.arguments[i]
            companion = self._new(argument.type.shape, block, len(block.arguments))
            block.arguments.append(companion)
            self.companions[argument] = companion
        return places

    def _block(self, block: Block) -> None:
        ops: list[Op] = []
        for op in block.ops:
            self._sink(op, ops)
            after: list[Op] = []
            if op.name == "scf.for":
                self._for(op)
            elif op.name == "scf.if":
                self._if(op)
            elif op.name == "scf.while":
                self._while(op)
            elif op.results and any(result in self.tainted for result in op.results):
                after = self._follow(op)
            ops.append(op)
            ops.extend(after)
            for successor in op.successors:
                self._extend_branch(successor)
        block.ops = ops

    def _extend_branch(self, successor: Successor) -> None:
        count = len(successor.arguments)
        extra = [
            self._companion(value)
            for value, target in zip(successor.arguments, successor.block.arguments[:count])
            if target in self.tainted
        ]
        successor.arguments = [*successor.arguments, *extra]

    def _sink(self, op: Op, ops: list[Op]) -> None:
        for value, role in sinks(op):
            if self._suspect(value) and self.flow.harms(op, value, role):
                attributes = {"of": op, "role": role, "through": self.flow.through(op, value, role)}
                tile = tile_of(op) if role == "value" else None
                if tile is not None:
                    attributes["tile"] = True
                    operands = [self.companions[value], *tile]
                else:
                    mask = mask_of(op) if role in ("value", "address") else None
                    operands = [self.companions[value], *([mask] if mask is not None else [])]
                ops.append(Op(SINK, operands, [], attributes, [], [], op.location))

    def _append_results(self, op: Op, places: Sequence[int]) -> None:
        for i in places:
            result = op.results[i]
            companion = self._new(result.type.shape, op, len(op.results))
            op.results.append(companion)
            self.companions[result] = companion

    def _for(self, op: Op) -> None:
        block = op.regions[0].block
        places = [i - 1 for i in self._extend_arguments(block, 1)]
        inits = op.operands[3:]
        op.operands = [*op.operands, *(self._companion(inits[i]) for i in places)]
        self._block(block)
        last = block.ops[-1]
        last.operands = [*last.operands, *(self._companion(last.operands[i]) for i in places)]
        self._append_results(op, places)

    def _if(self, op: Op) -> None:
        places = [i for i, result in enumerate(op.results) if result in self.tainted]
        for region in op.regions:
            if region.blocks:
                self._block(region.block)
                last = region.block.ops[-1]
                last.operands = [*last.operands, *(self._companion(last.operands[i]) for i in places)]
        self._append_results(op, places)

    def _while(self, op: Op) -> None:
        before, after = op.regions[0].block, op.regions[1].block
        carried = self._extend_arguments(before, 0)
        op.operands = [*op.operands, *(self._companion(op.operands[i]) for i in carried)]
        self._block(before)
        condition = before.ops[-1]
        passed = self._extend_arguments(after, 0)
        condition.operands = [*condition.operands, *(self._companion(condition.operands[1 + i]) for i in passed)]
        self._block(after)
        last = after.ops[-1]
        last.operands = [*last.operands, *(self._companion(last.operands[i]) for i in carried)]
        self._append_results(op, passed)

    # -- operations
    def _follow(self, op: Op) -> list[Op]:
        """The operations that compute the companions of an operation's results."""
        name = op.name
        shape = op.results[0].type.shape
        suspects = [value for value in op.operands if self._suspect(value)]
        bits = [self.companions[value] for value in suspects]
        if name == "tt.load":
            if "undefined_bit" in op.attributes:
                made = self._make(op, SEED, [op.operands[1]], shape, bit=op.attributes["undefined_bit"])
            elif mask_of(op) is not None and other_of(op) in self.companions:
                other = other_of(op)
                assert other is not None
                made = self._make(op, PREFIX + "unmasked", [op.operands[1], self.companions[other]], shape)
            else:
                return []
            self.companions[op.results[0]] = made.results[0]
            return [made]
        if not bits:
            return []
        if name in _MOVES:
            moved = Op(name, [self._companion(value) for value in op.operands], [], op.attributes, [], [], op.location)
            moved.results = [self._new(result.type.shape, moved, i) for i, result in enumerate(op.results)]
            self.companions.update(zip(op.results, moved.results, strict=True))
            return [moved]
        if name == "arith.select" and op.operands[0] in self.derived:
            condition, yes, no = (self._companion(value) for value in op.operands)
            made = self._make(op, PREFIX + "both", [condition, yes, no], shape)
        elif name in DECIDED and not self.derived.isdisjoint(op.operands):
            made = self._make(op, PREFIX + "both", [self._zero(shape), *(self._companion(v) for v in op.operands)], shape)
        elif name == "arith.select":
            condition, yes, no = op.operands
            operands = [condition, *(self._companion(value) for value in op.operands)]
            made = self._make(op, PREFIX + "select", operands, shape)
        elif name in DECIDED:
            operands = [*op.operands, *(self._companion(value) for value in op.operands)]
            made = self._make(op, PREFIX + "logic", operands, shape, decides=DECIDED[name])
        elif name == "tt.histogram" and len(op.operands) > 1:
            kept = self._make(op, PREFIX + "kept", [op.operands[1], *bits], op.operands[0].type.shape)
            made = self._make(op, PREFIX + "all", kept.results, shape)
            self.companions[op.results[0]] = made.results[0]
            return [kept, made]
        elif name == "tt.gather" and not self._suspect(op.operands[1]):
            made = Op(name, [bits[0], op.operands[1]], [], op.attributes, [], [], op.location)
            made.results = [self._new(shape, made, 0)]
        elif name in ("tt.reduce", "tt.scan"):
            extra = {"axis": op.attributes.get("axis", 0), "reverse": op.attributes.get("reverse", False)}
            made = self._make(op, PREFIX + name[3:], bits, shape, source=op.operands[0].type.shape, **extra)
        elif name == "tt.dot":
            made = self._make(op, PREFIX + "dot", [self._companion(value) for value in op.operands[:3]], shape)
        elif all(value.type.shape == shape for value in suspects):
            made = self._make(op, PREFIX + "any", bits, shape)
        else:
            made = self._make(op, PREFIX + "all", bits, shape)
        for result in op.results:
            self.companions[result] = made.results[0]
        return [made]


def _derived(function: Function, loading: frozenset[str]) -> frozenset[Value]:
    """The values that depend on what the function loads, or one of the functions `loading` that it calls."""
    found: set[Value] = set()

    def visit(region: Region) -> bool:
        grew = False
        for block in region.blocks:
            for op in block.ops:
                before = len(found)
                inside = False
                for inner in op.regions:
                    inside = visit(inner) or inside
                passed: list[tuple[Value, Value]] = []
                for successor in op.successors:
                    passed.extend(zip(successor.arguments, successor.block.arguments, strict=True))
                if op.name == "scf.for":
                    body = op.regions[0].block
                    for i, result in enumerate(op.results):
                        for source in (op.operands[3 + i], body.ops[-1].operands[i]):
                            passed.extend([(source, body.arguments[1 + i]), (source, result)])
                elif op.name == "scf.while":
                    first, second = op.regions[0].block, op.regions[1].block
                    passed.extend(zip(op.operands, first.arguments, strict=True))
                    passed.extend(zip(second.ops[-1].operands, first.arguments, strict=True))
                    passed.extend(zip(first.ops[-1].operands[1:], second.arguments, strict=True))
                    passed.extend(zip(first.ops[-1].operands[1:], op.results, strict=True))
                elif op.name == "scf.if":
                    for inner in op.regions:
                        if inner.blocks:
                            passed.extend(zip(inner.block.ops[-1].operands, op.results))
                elif op.name.startswith(_DATA) or _calls(op, loading) or any(value in found for value in op.operands):
                    found.update(op.results)
                found.update(target for source, target in passed if source in found)
                if op.name in ("scf.if", "scf.for") and any(v in found for v in op.operands[: 1 if op.name == "scf.if" else 3]):
                    found.update(op.results)
                grew = grew or inside or len(found) > before
        return grew

    while visit(function.body):
        pass
    return frozenset(found)


_DATA = ("tt.load", "tt.atomic", "tt.descriptor_load", "tt.descriptor_gather")


def _loading(module: Module) -> frozenset[str]:
    """The functions that load something, or call one that does."""
    found: set[str] = set()
    grew = True
    while grew:
        before = len(found)
        for name, function in module.functions.items():
            if any(op.name.startswith(_DATA) or _calls(op, found) for op in walk(function.body)):
                found.add(name)
        grew = len(found) > before
    return frozenset(found)


def _calls(op: Op, functions: Set[str]) -> bool:
    return op.name == "tt.call" and op.attributes["callee"] in functions


def _all_values(region: Region) -> list[Value]:
    found: list[Value] = []
    for block in region.blocks:
        found.extend(block.arguments)
        for op in block.ops:
            found.extend(op.results)
            for inner in op.regions:
                found.extend(_all_values(inner))
    return found
