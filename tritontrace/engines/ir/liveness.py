"""Removal of what nothing uses: pure operations, and the loop-carried values and results that feed only themselves.

An operation that is not known to be pure is a root, with everything that decides whether it runs. Loads are roots:
an unused load still reads memory, and must still be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tritontrace.engines.ir.tree import Block, Function, Op, Region, Value

__all__ = ["STRUCTURED", "Liveness", "remove_dead"]

STRUCTURED = frozenset({"scf.for", "scf.if", "scf.while"})
_T = TypeVar("_T")


def remove_dead(function: Function, removable: Callable[[Op], bool]) -> None:
    """Take out of `function`, in place, the ops that are `removable` (pure) and whose results nothing live uses."""
    Liveness(function, removable).run()


def _terminator(region: Region) -> Op:
    return region.block.ops[-1]


class Liveness:
    """What of a function is needed; `run` takes the rest out, in place, and returns the operations that stay."""

    def __init__(self, function: Function, removable: Callable[[Op], bool]) -> None:
        self.function = function
        self.removable = removable
        self.live: set[Value] = set()
        self.kept: set[Op] = set()
        self.work: list[Value] = []
        self.block_of: dict[Op, Block] = {}
        self.parent_of: dict[Block, Op | None] = {}
        self.incoming: dict[Block, list[list[Value]]] = {}  # block -> what each branch to it passes

    def run(self) -> set[Op]:
        for argument in self.function.arguments:
            self.live.add(argument)
        self.mark_roots(self.function.body, None)
        while self.work:
            self.follow(self.work.pop())
        self.sweep(self.function.body, None)
        return self.kept

    # -- marking
    def use(self, value: Value) -> None:
        if value not in self.live:
            self.live.add(value)
            self.work.append(value)

    def mark_roots(self, region: Region, parent: Op | None) -> None:
        # a structured region's terminator only passes values on; they live if what they are passed to lives
        structured = parent is not None and parent.name in STRUCTURED
        for block in region.blocks:
            self.parent_of[block] = parent
            last = block.ops[-1] if structured else None
            for op in block.ops:
                self.block_of[op] = block
                for successor in op.successors:
                    self.incoming.setdefault(successor.block, []).append(successor.arguments)
                for inner in op.regions:
                    self.mark_roots(inner, op)
                if op is not last and op.name not in STRUCTURED and not self.removable(op):
                    self.keep(op)

    def keep(self, op: Op) -> None:
        """`op` must run, and so must whatever it is nested in."""
        if op in self.kept:
            return
        self.kept.add(op)
        if op.name == "scf.if":
            self.use(op.operands[0])
        elif op.name == "scf.for":
            for bound in op.operands[:3]:
                self.use(bound)
        elif op.name == "scf.while":
            self.use(_terminator(op.regions[0]).operands[0])
        else:
            for value in op.operands:
                self.use(value)
        parent = self.parent_of[self.block_of[op]]
        if parent is not None:
            self.keep(parent)

    def follow(self, value: Value) -> None:
        """Mark what `value` is made of."""
        owner = value.owner
        index = value.index
        if isinstance(owner, Op):
            self.keep(owner)
            if owner.name == "scf.for":
                self.tie(owner, index)
            elif owner.name == "scf.if":
                for region in owner.regions:
                    if region.blocks:
                        self.use(_terminator(region).operands[index])
            elif owner.name == "scf.while":
                self.use(_terminator(owner.regions[0]).operands[1 + index])
            return
        if owner is None:
            return
        parent = self.parent_of[owner]
        if parent is None or parent.name not in STRUCTURED:
            for arguments in self.incoming.get(owner, ()):
                self.use(arguments[index])
            return
        self.keep(parent)
        if parent.name == "scf.for":
            if index > 0:  # 0 is the loop's variable
                self.tie(parent, index - 1)
        elif owner is parent.regions[0].block:
            self.use(parent.operands[index])
            self.use(_terminator(parent.regions[1]).operands[index])
        else:
            self.use(_terminator(parent.regions[0]).operands[1 + index])

    def tie(self, loop: Op, index: int) -> None:
        """A value that a ``scf.for`` carries: initial value, block argument, yielded value and result live together."""
        block = loop.regions[0].block
        self.use(loop.operands[3 + index])
        self.use(block.arguments[1 + index])
        self.use(block.ops[-1].operands[index])
        self.use(loop.results[index])

    # -- sweeping
    def sweep(self, region: Region, parent: Op | None) -> None:
        structured = parent is not None and parent.name in STRUCTURED
        for block in region.blocks:
            last = block.ops[-1] if structured else None
            kept = [op for op in block.ops if op in self.kept or op is last]
            block.ops = kept
            for op in kept:
                self.prune(op)
                for successor in op.successors:
                    target = successor.block.arguments
                    successor.arguments = [v for v, a in zip(successor.arguments, target, strict=True) if a in self.live]
                for inner in op.regions:
                    self.sweep(inner, op)
        if not structured and len(region.blocks) > 1:
            # after the branches, which are filtered by the arguments as they were
            for block in region.blocks[1:]:
                block.arguments = self.renumbered([a for a in block.arguments if a in self.live])

    def prune(self, op: Op) -> None:
        """Take the dead carried values and results out of a structured op."""
        if op.name not in STRUCTURED:
            return
        if op.name == "scf.if":
            alive = [i for i, result in enumerate(op.results) if result in self.live]
            if len(alive) < len(op.results):
                op.results = self.renumbered(_at(op.results, alive))
                for region in op.regions:
                    if region.blocks:
                        last = _terminator(region)
                        last.operands = _at(last.operands, alive)
        elif op.name == "scf.for":
            alive = [i for i, result in enumerate(op.results) if result in self.live]
            if len(alive) < len(op.results):
                block = op.regions[0].block
                op.operands = op.operands[:3] + _at(op.operands[3:], alive)
                op.results = self.renumbered(_at(op.results, alive))
                block.arguments = self.renumbered(block.arguments[:1] + _at(block.arguments[1:], alive))
                block.ops[-1].operands = _at(block.ops[-1].operands, alive)
        else:
            self.prune_while(op)

    def prune_while(self, op: Op) -> None:
        before, after = op.regions[0].block, op.regions[1].block
        alive = [i for i, argument in enumerate(before.arguments) if argument in self.live]
        if len(alive) < len(before.arguments):
            op.operands = _at(op.operands, alive)
            before.arguments = self.renumbered(_at(before.arguments, alive))
            after.ops[-1].operands = _at(after.ops[-1].operands, alive)
        passed = [i for i, result in enumerate(op.results) if result in self.live or after.arguments[i] in self.live]
        if len(passed) < len(op.results):
            condition = before.ops[-1]
            condition.operands = condition.operands[:1] + _at(condition.operands[1:], passed)
            op.results = self.renumbered(_at(op.results, passed))
            after.arguments = self.renumbered(_at(after.arguments, passed))

    @staticmethod
    def renumbered(values: list[Value]) -> list[Value]:
        for index, value in enumerate(values):
            value.index = index
        return values


def _at(items: Sequence[_T], indices: list[int]) -> list[_T]:
    return [items[i] for i in indices]
