"""The slice of a kernel that decides where memory is accessed: addresses, masks and control flow, and nothing else.

Every load, store and atomic becomes a *probe*: an operation that tells clients of the access and performs none. What
only computes values is dead then and goes. A load whose value decides an address, a mask or a branch stays a load: its
data is really needed.
"""

from __future__ import annotations

from tritontrace.engines.ir.definedness import SINK
from tritontrace.engines.ir.liveness import STRUCTURED, Liveness
from tritontrace.engines.ir.tree import Function, Module, Op, Region, Value, walk

__all__ = ["PROBE", "slice_accesses", "widest"]

PROBE = "tritontrace.probe"
"""An access that is told and not made. Its operands are the pointer and the mask, or a descriptor and its offsets;
its attribute ``of`` is the `Op` that it stands for."""

_LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
_STORES = frozenset({"tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter"})
_ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_store"})
_SILENT = frozenset({"tt.print", "tt.assert"})


def slice_accesses(module: Module) -> None:
    """Cuts `module` (optimized; nobody else's) down to its accesses, in place."""
    silent = _without_accesses(module)
    for function in module.functions.values():
        probes: dict[Op, Op] = {}
        used = {value for op in walk(function.body) for value in op.operands}
        used.update(value for op in walk(function.body) for successor in op.successors for value in successor.arguments)
        _insert_probes(function.body, probes, used)
        kept = _Slice(function, silent).run()
        # An access that is really made tells of itself.
        _drop(function.body, {probe for access, probe in probes.items() if access in kept})


def _insert_probes(region: Region, probes: dict[Op, Op], used: set[Value]) -> None:
    for block in region.blocks:
        ops: list[Op] = []
        for op in block.ops:
            if op.name in _LOADS or op.name in _STORES or op.name in _ATOMICS:
                known = {"of": op, "used": any(result in used for result in op.results)}
                probe = Op(PROBE, _places(op), [], known, [], [], op.location)
                probes[op] = probe
                ops.append(probe)
                if op.name in _STORES:
                    continue
            elif op.name in _SILENT:
                continue
            for inner in op.regions:
                _insert_probes(inner, probes, used)
            ops.append(op)
        block.ops = ops


def _places(op: Op) -> list[Value]:
    """The operands that say where `op` accesses memory."""
    name, operands = op.name, op.operands
    if name == "tt.load":
        sizes = op.attributes.get("operandSegmentSizes") or [1, int(len(operands) > 1), int(len(operands) > 2)]
        return operands[: 1 + int(sizes[1])]
    if name in ("tt.store", "tt.atomic_rmw", "tt.atomic_store"):
        return [operands[0], *operands[2:3]]
    if name == "tt.atomic_cas":
        return operands[:1]
    if name in ("tt.descriptor_store", "tt.descriptor_reduce"):
        return [operands[0], *operands[2:]]
    return operands[:3] if name == "tt.descriptor_scatter" else list(operands)


def _without_accesses(module: Module) -> frozenset[str]:
    """The functions that access no memory, neither themselves nor through what they call."""
    called: dict[str, set[str]] = {}
    accessing: set[str] = set()
    for name, function in module.functions.items():
        called[name] = set()
        for op in walk(function.body):
            if op.name == "tt.call":
                called[name].add(op.attributes["callee"])
            elif op.name in _LOADS or op.name in _STORES or op.name in _ATOMICS:
                accessing.add(name)
    grown = True
    while grown:
        more = {name for name, callees in called.items() if name not in accessing and not callees.isdisjoint(accessing)}
        accessing |= more
        grown = bool(more)
    return frozenset(called) - accessing


def _drop(region: Region, unwanted: set[Op]) -> None:
    for block in region.blocks:
        block.ops = [op for op in block.ops if op not in unwanted]
        for op in block.ops:
            for inner in op.regions:
                _drop(inner, unwanted)


class _Slice(Liveness):
    """Liveness in which only probes and control flow are wanted for their own sake."""

    def __init__(self, function: Function, silent: frozenset[str]) -> None:
        super().__init__(function, self._only_computes)
        self.silent = silent

    def _only_computes(self, op: Op) -> bool:
        """True for an operation that matters by its results alone."""
        if op.name in (PROBE, SINK) or op.successors or op.name in STRUCTURED:
            return False
        if op.name == "tt.call":
            return op.attributes["callee"] in self.silent
        return bool(op.results)

    def mark_roots(self, region: Region, parent: Op | None) -> None:
        if parent is not None and parent.name not in STRUCTURED and self._only_computes(parent):
            self._note(region, parent)  # a combine function is kept by the op that it belongs to
            return
        super().mark_roots(region, parent)

    def _note(self, region: Region, parent: Op) -> None:
        for block in region.blocks:
            self.parent_of[block] = parent
            for op in block.ops:
                self.block_of[op] = block
                for inner in op.regions:
                    self._note(inner, op)

    def keep(self, op: Op) -> None:
        if op in self.kept:
            return
        super().keep(op)
        if op.name not in STRUCTURED:
            for region in op.regions:
                for block in region.blocks:
                    for inner in block.ops:
                        self.keep(inner)


_AXIS_WISE = frozenset({"tt.broadcast", "ttg.convert_layout"})


def widest(module: Module, lazy: frozenset[str]) -> int:
    """Elements of the largest array that executing a slice builds for one program.

    Tiles that the engine keeps as sums of one term per axis (results of the operations in `lazy`, of integer or pointer
    type) count as their longest axis; others as the axes along which they really vary.
    """
    largest = 1
    axes: dict[Value, frozenset[int]] = {}

    def visit(region: Region) -> None:
        nonlocal largest
        for block in region.blocks:
            for argument in block.arguments:
                axes[argument] = frozenset(range(len(argument.type.shape)))
                largest = max(largest, *argument.type.shape, 1)
            for op in block.ops:
                for inner in op.regions:
                    visit(inner)
                for result in op.results:
                    shape = result.type.shape
                    varying = axes[result] = _varying(op, result, axes)
                    kept_lazy = op.name in lazy and not result.type.is_float
                    sizes = [shape[i] for i in varying]
                    if kept_lazy or op.name in _AXIS_WISE:
                        largest = max(largest, *sizes, 1)
                    else:
                        product = 1
                        for size in sizes:
                            product *= size
                        largest = max(largest, product)

    for function in module.functions.values():
        visit(function.body)
    return largest


def _varying(op: Op, result: Value, axes: dict[Value, frozenset[int]]) -> frozenset[int]:
    """The axes along which `result` differs."""
    rank = len(result.type.shape)
    name = op.name
    if name == "tt.splat" or not rank:
        return frozenset()
    if name == "arith.constant":
        value = op.attributes.get("value")
        return frozenset() if getattr(value, "size", 0) == 1 else frozenset(range(rank))
    if name == "tt.expand_dims" and op.operands[0] in axes:
        at = int(op.attributes.get("axis", 0))
        return frozenset(i if i < at else i + 1 for i in axes[op.operands[0]])
    operands = [value for value in op.operands if value.type.shape]
    same = operands and all(value.type.shape == result.type.shape for value in operands)
    if name == "tt.broadcast" or (same and not op.regions and name not in ("tt.gather", "tt.reshape", "tt.trans", "tt.cat")):
        return frozenset().union(*(axes.get(value, frozenset(range(rank))) for value in operands))
    return frozenset(range(rank))
