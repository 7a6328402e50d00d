"""Companions: values that follow a kernel's own values through everything it does.

An analysis that has to know something of every value (is it undefined, where did it become infinite, what would it be in
float64) gives the values it cares for a *companion*: one more value of the IR, which loops, branches, calls and the code
generator treat like any other. `CompanionWriter` carries companions through control flow; what the companion of an
operation's result is, and where companions end, its subclasses say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tritontrace.engines.ir.tree import Block, Function, Module, Op, Region, Successor, Type, Value, walk

__all__ = [
    "MOVES",
    "TILED",
    "CompanionWriter",
    "all_values",
    "closed_functions",
    "is_block_pointer_access",
    "mask_of",
    "tile_of",
    "values_of",
]

MOVES = frozenset(
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


TILED = ("tt.descriptor_store", "tt.descriptor_reduce")
"""Operations that put a tile, as far as it lies inside a descriptor's tensor, into memory: (descriptor, value, *offsets)."""


class CompanionWriter:
    """Writes companions into one function, in place.

    `follows` says which values have one; a followed value whose companion was never written has that of `default`. Every
    function but the `entry` gets the companions of its arguments from its callers, and returns those of its results;
    `closed` ones (see `closed_functions`) are called as they are.
    """

    element = "i64"
    """The element type of companions."""

    def __init__(self, function: Function, *, entry: bool = True, closed: frozenset[str] = frozenset()) -> None:
        self.function = function
        self.closed = closed
        self.extended = not entry and function.name not in closed
        self.companions: dict[Value, Value] = {}
        self.prologue: list[Op] = []
        self._zeros: dict[tuple[int, ...], Value] = {}
        self._next = 1 + max((value.id for value in all_values(function.body)), default=0)

    # -- what subclasses say -------------------------------------------------------------------------------------------

    def follows(self, value: Value) -> bool:
        """True for a value that has a companion."""
        raise NotImplementedError

    def default(self, value: Value, ops: list[Op]) -> Value:
        """The companion of a value of which nothing is known; ops that make it go to `ops`."""
        return self.zero(value.type.shape)

    def follow(self, op: Op, ops: list[Op]) -> list[Op]:
        """The ops behind `op` that make its results' companions (put into `companions`); more before it go to `ops`."""
        raise NotImplementedError

    def sink(self, op: Op, ops: list[Op]) -> None:
        """Adds to `ops` what is to be done with companions before `op`."""

    # -- values --------------------------------------------------------------------------------------------------------

    def new(self, shape: tuple[int, ...], owner: Op | Block, index: int, element: str | None = None) -> Value:
        """A new value."""
        value = Value(Type(shape, element or self.element), None, self._next, owner, index)
        self._next += 1
        return value

    def zero(self, shape: tuple[int, ...]) -> Value:
        """The constant 0."""
        found = self._zeros.get(shape)
        if found is None:
            value = np.zeros((), np.int64 if self.element[0] == "i" else np.float64)
            location = self.function.body.blocks[0].ops[0].location
            op = Op("arith.constant", [], [], {"value": value}, [], [], location)
            op.results = [self.new(shape, op, 0)]
            self.prologue.append(op)
            found = self._zeros[shape] = op.results[0]
        return found

    def companion(self, value: Value, ops: list[Op]) -> Value:
        """The companion of a followed value."""
        found = self.companions.get(value)
        return self.default(value, ops) if found is None else found

    def make(self, at: Op, name: str, operands: list[Value], shapes: Sequence[tuple[int, ...]], **attributes: Any) -> Op:
        """A new op at the place of `at`, with a result of each shape."""
        op = Op(name, operands, [], attributes, [], [], at.location)
        op.results = [self.new(shape, op, i) for i, shape in enumerate(shapes)]
        return op

    def moved(self, op: Op, ops: list[Op]) -> Op:
        """`op`, which only moves lanes, applied to companions."""
        operands = [self.companion(value, ops) if self.follows(value) else value for value in op.operands]
        made = Op(op.name, operands, [], op.attributes, [], [], op.location)
        made.results = [self.new(result.type.shape, made, i) for i, result in enumerate(op.results)]
        self.companions.update(zip(op.results, made.results, strict=True))
        return made

    # -- the walk ------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write everything."""
        body = self.function.body
        for block in body.blocks if self.extended else body.blocks[1:]:
            self._extend_arguments(block, 0)
        for block in body.blocks:
            self._block(block)
        body.blocks[0].ops[:0] = self.prologue

    def _extend_arguments(self, block: Block, first: int) -> list[int]:
        places = [i for i, argument in enumerate(block.arguments) if i >= first and self.follows(argument)]
        for i in places:
            argument = block.arguments[i]
            companion = self.new(argument.type.shape, block, len(block.arguments))
            block.arguments.append(companion)
            self.companions[argument] = companion
        return places

    def _block(self, block: Block) -> None:
        ops: list[Op] = []
        for op in block.ops:
            self.sink(op, ops)
            after: list[Op] = []
            if op.name == "scf.for":
                self._for(op, ops)
            elif op.name == "scf.if":
                self._if(op)
            elif op.name == "scf.while":
                self._while(op, ops)
            elif op.name == "tt.call" and op.attributes["callee"] not in self.closed:
                op.operands = [*op.operands, *(self.companion(v, ops) for v in op.operands if self.follows(v))]
                self._results(op, [i for i, result in enumerate(op.results) if self.follows(result)])
            elif op.name == "tt.return" and self.extended:
                op.operands = [*op.operands, *(self.companion(v, ops) for v in op.operands if self.follows(v))]
            elif op.results and any(self.follows(result) for result in op.results) and op.name != "arith.constant":
                after = self.follow(op, ops)
            for successor in op.successors:
                self._extend_branch(successor, ops)
            ops.append(op)
            ops.extend(after)
        block.ops = ops

    def _extend_branch(self, successor: Successor, ops: list[Op]) -> None:
        extra = [
            self.companion(value, ops)
            for value, target in zip(successor.arguments, successor.block.arguments)
            if self.follows(target)
        ]
        successor.arguments = [*successor.arguments, *extra]

    def _end(self, block: Block, places: Sequence[int], first: int = 0) -> None:
        """Hand on the companions of the operands at `places` of a block's terminator, which has `first` others before them."""
        last = block.ops.pop()
        operands = [self.companion(last.operands[first + i], block.ops) for i in places]
        last.operands = [*last.operands, *operands]
        block.ops.append(last)

    def _results(self, op: Op, places: Sequence[int]) -> None:
        for i in places:
            result = op.results[i]
            companion = self.new(result.type.shape, op, len(op.results))
            op.results.append(companion)
            self.companions[result] = companion

    def _for(self, op: Op, ops: list[Op]) -> None:
        block = op.regions[0].block
        inits = op.operands[3:]
        places = [i - 1 for i in self._extend_arguments(block, 1)]
        op.operands = [*op.operands, *(self.companion(inits[i], ops) for i in places)]
        self._block(block)
        self._end(block, places)
        self._results(op, places)

    def _if(self, op: Op) -> None:
        places = [i for i, result in enumerate(op.results) if self.follows(result)]
        for region in op.regions:
            if region.blocks:
                self._block(region.block)
                self._end(region.block, places)
        self._results(op, places)

    def _while(self, op: Op, ops: list[Op]) -> None:
        before, after = op.regions[0].block, op.regions[1].block
        inits = list(op.operands)
        carried = self._extend_arguments(before, 0)
        op.operands = [*op.operands, *(self.companion(inits[i], ops) for i in carried)]
        self._block(before)
        passed = self._extend_arguments(after, 0)
        self._end(before, passed, 1)
        self._block(after)
        self._end(after, carried)
        self._results(op, passed)


def closed_functions(module: Module) -> frozenset[str]:
    """The functions that a reduction, a scan or a map calls (in)directly: they see no companions."""
    found: set[str] = set()
    todo = [
        region
        for function in module.functions.values()
        for op in walk(function.body)
        if op.name in ("tt.reduce", "tt.scan", "tt.map_elementwise")
        for region in op.regions
    ]
    while todo:
        for op in walk(todo.pop()):
            if op.name == "tt.call" and op.attributes["callee"] not in found:
                found.add(op.attributes["callee"])
                todo.append(module.functions[op.attributes["callee"]].body)
    return frozenset(found)


def all_values(region: Region) -> list[Value]:
    """Every value that a region defines."""
    found: list[Value] = []
    for block in region.blocks:
        found.extend(block.arguments)
        for op in block.ops:
            found.extend(op.results)
            for inner in op.regions:
                found.extend(all_values(inner))
    return found


def mask_of(op: Op) -> Value | None:
    """The mask of a store or atomic operation."""
    masked = op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_store")
    return op.operands[2] if masked and len(op.operands) > 2 and not is_block_pointer_access(op) else None


def is_block_pointer_access(op: Op) -> bool:
    """True for an access through a block pointer."""
    return op.operands[0].type.element.startswith("ptr<tensor")


def tile_of(op: Op) -> list[Value] | None:
    """What says which part of a tile an operation stores, where that is what lies inside a tensor: (descriptor, *offsets).

    A block pointer has its offsets itself.
    """
    if op.name in TILED:
        return [op.operands[0], *op.operands[2:]]
    if op.name == "tt.descriptor_scatter":
        return op.operands[:3]
    return op.operands[:1] if is_block_pointer_access(op) else None


def values_of(op: Op) -> list[Value]:
    """The values that an operation puts into memory."""
    if op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_store", "tt.descriptor_store", "tt.descriptor_reduce"):
        return [op.operands[1]]
    if op.name == "tt.atomic_cas":
        return [op.operands[2]]
    return [op.operands[3]] if op.name == "tt.descriptor_scatter" else []
