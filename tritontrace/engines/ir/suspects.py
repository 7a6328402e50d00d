"""Which values of a kernel may be undefined, found without running it: what masked loads without ``other`` lead to."""

from __future__ import annotations

from tritontrace.engines.ir.mixing import Ways
from tritontrace.engines.ir.ops import is_elementwise
from tritontrace.engines.ir.tree import Function, Op, Region, Value

__all__ = ["Flow", "mask_of", "other_of", "sinks"]

_MASKED = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_store"})
"""Operations on (pointer, value, mask)."""

_Guard = Value | None


def other_of(op: Op) -> Value | None:
    sizes = op.attributes.get("operandSegmentSizes") or [1, int(len(op.operands) > 1), int(len(op.operands) > 2)]
    return op.operands[-1] if sizes[2] else None


def mask_of(op: Op) -> Value | None:
    """The mask of a load, store or atomic."""
    if op.name == "tt.load":
        sizes = op.attributes.get("operandSegmentSizes") or [1, int(len(op.operands) > 1), int(len(op.operands) > 2)]
        return op.operands[1] if sizes[1] else None
    if op.name == "tt.atomic_load":
        return op.operands[1] if len(op.operands) > 1 else None
    return op.operands[2] if op.name in _MASKED and len(op.operands) > 2 else None


def _implies(mask: Value | None, guard: Value) -> bool:
    """True if every lane of `mask` is one of `guard`, for certain."""
    if mask is None:
        return False
    if mask is guard:
        return True
    owner = mask.owner
    return isinstance(owner, Op) and owner.name == "arith.andi" and any(_implies(value, guard) for value in owner.operands)


def sinks(op: Op) -> list[tuple[Value, str]]:
    """The operands of `op` that must be defined, and as what."""
    name, operands = op.name, op.operands
    if name in ("tt.load", "tt.atomic_load"):
        mask = mask_of(op)
        return [(operands[0], "address"), *([(mask, "mask")] if mask is not None else [])]
    if name in _MASKED:
        return [(operands[0], "address"), (operands[1], "value"), *((value, "mask") for value in operands[2:])]
    if name == "tt.atomic_cas":
        return [(operands[0], "address"), (operands[1], "value"), (operands[2], "value")]
    if name in ("tt.descriptor_load", "tt.descriptor_gather"):
        return [(value, "address") for value in operands[1:]]
    if name in ("tt.descriptor_store", "tt.descriptor_reduce"):
        return [(operands[1], "value"), *((value, "address") for value in operands[2:])]
    if name == "tt.descriptor_scatter":
        return [(operands[3], "value"), *((value, "address") for value in operands[1:3])]
    if name in ("scf.if", "cf.cond_br", "scf.condition"):
        return [(operands[0], "branch")]
    return [(value, "branch") for value in operands[:3]] if name == "scf.for" else []


class Flow:
    """Which values of a function may be undefined, found without running it.

    `guards` maps such a value to the mask outside of which alone it can be undefined, or to None if there is no such mask.
    `loads` are the loads that it starts from.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.guards: dict[Value, _Guard] = {}
        self.loads: list[Op] = []
        self.ways = Ways()
        self.changed = True
        while self.changed:
            self.changed = False
            self._region(function.body)

    def dangerous(self) -> bool:
        """True if an undefined lane may arrive where it does harm."""
        return bool(self.loads) and self._harm(self.function.body)

    def harms(self, op: Op, value: Value, role: str) -> bool:
        """True if `value` of `op`, in the role of a sink, may be undefined where that matters."""
        if value not in self.guards:
            return False
        guard = self.guards[value]
        return role == "branch" or guard is None or role == "mask" or not _implies(mask_of(op), guard)

    def through(self, op: Op, value: Value, role: str) -> dict[int, Op]:
        """By load (its bit) the operation that mixes its lanes on their harmful way to `value` of `op`."""
        found = {}
        for load in self.loads:
            apart, mixer = self.ways.between(load.results[0], value)
            mask = mask_of(load)
            harmless = mask is not None and role in ("value", "address") and _implies(mask_of(op), mask)
            if mixer is not None and (harmless or not apart) and "undefined_bit" in load.attributes:
                found[load.attributes["undefined_bit"]] = mixer
        return found

    def _harm(self, region: Region) -> bool:
        for block in region.blocks:
            for op in block.ops:
                if any(self.harms(op, value, role) for value, role in sinks(op)):
                    return True
                if any(self._harm(inner) for inner in op.regions):
                    return True
        return False

    def _mark(self, value: Value, guard: _Guard) -> None:
        if value not in self.guards:
            self.guards[value] = guard
            self.changed = True
        elif self.guards[value] is not None and self.guards[value] is not guard:
            self.guards[value] = None
            self.changed = True

    def _pass(self, source: Value, target: Value) -> None:
        if source in self.guards:
            self.ways.add(source, target)
            # A mask that is made inside a region means another thing in every iteration.
            self._mark(target, None)

    def _region(self, region: Region) -> None:
        for block in region.blocks:
            for op in block.ops:
                self._op(op)
                for successor in op.successors:
                    for source, target in zip(successor.arguments, successor.block.arguments, strict=True):
                        self._pass(source, target)

    def _op(self, op: Op) -> None:
        name = op.name
        if name == "tt.load":
            other, mask = other_of(op), mask_of(op)
            if mask is not None and other is None:
                if op not in self.loads:
                    self.loads.append(op)
                self._mark(op.results[0], mask)
            elif other is not None and other in self.guards:
                self.ways.add(other, op.results[0])
                self._mark(op.results[0], None)
            return
        if name == "scf.for":
            block = op.regions[0].block
            self._region(op.regions[0])
            for i, result in enumerate(op.results):
                argument, sent = block.arguments[1 + i], block.ops[-1].operands[i]
                for source in (op.operands[3 + i], sent):
                    self._pass(source, argument)
                self._pass(argument, result)
            return
        if name == "scf.if":
            for region in op.regions:
                self._region(region)
                if region.blocks:
                    for source, result in zip(region.block.ops[-1].operands, op.results):
                        self._pass(source, result)
            return
        if name == "scf.while":
            before, after = op.regions[0].block, op.regions[1].block
            for region in op.regions:
                self._region(region)
            for source, argument in zip(op.operands, before.arguments, strict=True):
                self._pass(source, argument)
            for source, argument, result in zip(before.ops[-1].operands[1:], after.arguments, op.results, strict=True):
                self._pass(source, argument)
                self._pass(source, result)
            for source, argument in zip(after.ops[-1].operands, before.arguments, strict=True):
                self._pass(source, argument)
            return
        suspects = [value for value in op.operands if value in self.guards]
        if not suspects or not op.results or name.startswith(("tt.atomic", "tt.descriptor")) or name == "tt.call":
            return
        for value in suspects:
            for result in op.results:
                self.ways.add(value, result, op)
        if name == "arith.select":
            self._select(op)
            return
        if name == "tt.histogram" and len(op.operands) > 1 and op.operands[1] not in self.guards:
            guard = self.guards[op.operands[0]]
            if guard is not None and _implies(op.operands[1], guard):
                return  # counts only what is defined
        guards = {self.guards[value] for value in suspects}
        same = len(guards) == 1 and (is_elementwise(op) or name == "tt.addptr")
        for result in op.results:
            self._mark(result, guards.copy().pop() if same else None)

    def _select(self, op: Op) -> None:
        condition, yes, no = op.operands
        guards = []
        for value in (condition, yes, no):
            if value in self.guards:
                guard = self.guards[value]
                if value is yes and guard is not None and condition not in self.guards and _implies(condition, guard):
                    continue  # chosen only where it is defined
                guards.append(guard)
        if guards:
            same = all(guard is guards[0] for guard in guards)
            self._mark(op.results[0], guards[0] if same else None)
