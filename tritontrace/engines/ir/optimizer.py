"""The small optimizer between parser and code generator.

The frontend's raw module is executed, because Triton's own passes drop or merge memory accesses. This wins back what
they would have gained, and touches only pure operations: calls of single-block functions are inlined (their ops keep
the call stack), equal pure ops are shared, constants folded, pure ops hoisted out of loops, and unused pure ops
removed. Memory operations, prints, asserts, dots, reductions and scans are neither dropped, merged nor moved, because
each of them is an event that clients see.

A function is rebuilt in one pass over its ops (`_Builder`), then `liveness` removes what is unused.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir.cfg import Graph
from tritontrace.engines.ir.folding import fold, identity
from tritontrace.engines.ir.liveness import remove_dead
from tritontrace.engines.ir.ops import is_elementwise
from tritontrace.engines.ir.tree import Block, Function, Module, Op, OpLocation, Region, Successor, Value

__all__ = ["is_pure", "optimize"]

# pure operations besides the elementwise ones: equal ones may be shared, and they may move out of loops
_SHAREABLE = frozenset(
    {
        "tt.splat",
        "tt.unsplat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.join",
        "tt.split",
        "tt.cat",
        "tt.make_range",
        "tt.addptr",
        "tt.get_program_id",
        "tt.get_num_programs",
        "ttg.convert_layout",
    }
)
# pure, but left where it stands: block pointers belong to the memory ops that use them
_UNUSED_ONLY = frozenset({"tt.make_tensor_ptr", "tt.advance", "arith.constant"})
# attributes that say nothing about the value
_IRRELEVANT = frozenset({"fastmath", "overflowFlags", "allow_reorder", "efficient_layout"})
# a loop shows only after folding that it never changes a value; each round goes one loop further out
_ROUNDS = 4
_LOOPS = frozenset({"scf.for", "scf.while"})
# the regions that may use what is known outside
_OPEN = frozenset({"scf.for", "scf.while", "scf.if"})


def is_pure(op: Op) -> bool:
    """True if `op` may be removed when its results are unused."""
    return op.name in _SHAREABLE or op.name in _UNUSED_ONLY or is_elementwise(op)


def optimize(module: Module, entry: str, *, by_place: bool = False) -> Module:
    """The functions that `entry` needs, optimized; `module` is not changed.

    `by_place`: equal operations on floats are computed once only if they stand in the same place of the source. Masks stay
    shared: that two of them are equal is what `suspects` goes by.

    Calls of functions with one block are gone; functions with several are still called, by the same name.

    Raises:
        KeyError: `entry`, or a function that is called, is not in `module`.
    """
    optimizer = _Optimizer(module, by_place)
    main = optimizer.function(entry)
    functions = {entry: main}
    todo = [main]
    while todo:
        for op in _calls(todo.pop().body):
            name = op.attributes["callee"]
            if name not in functions:
                functions[name] = optimizer.function(name)
                todo.append(functions[name])
    return Module(functions)


def _calls(region: Region) -> list[Op]:
    found = []
    for block in region.blocks:
        for op in block.ops:
            if op.name == "tt.call":
                found.append(op)
            for inner in op.regions:
                found.extend(_calls(inner))
    return found


class _Optimizer:
    def __init__(self, module: Module, by_place: bool) -> None:
        self.module = module
        self.by_place = by_place
        self.done: dict[str, Function] = {}
        self.active: list[str] = []

    def function(self, name: str) -> Function:
        """The optimized function; every function is optimized once, and inlined in that form."""
        found = self.done.get(name)
        if found is None:
            self.active.append(name)
            found = self.module.functions[name]
            for _ in range(_ROUNDS):
                builder = _Builder(self, found)
                found = builder.build()
                remove_dead(found, is_pure)
                if not builder.again:
                    break
            self.active.pop()
            self.done[name] = found
        return found

    def inlinable(self, name: str) -> Function | None:
        """The function `name` if its body can stand where it is called."""
        if name in self.active or name not in self.module.functions:
            return None
        function = self.function(name)
        return function if len(function.body.blocks) == 1 else None


class _Frame:
    """A block under construction, and what is known in it.

    Ops that depend on nothing inside move out of a `loop` frame. Nothing is shared into a `sealed` one: a combine
    function is recognized by its shape, and keeps its own constants.
    """

    __slots__ = ("known", "loop", "ops", "sealed")

    def __init__(self, ops: list[Op], *, loop: bool = False, sealed: bool = False) -> None:
        self.ops = ops
        self.known: dict[Hashable, list[Value]] = {}
        self.loop = loop
        self.sealed = sealed


class _Builder:
    """Rebuilds one function. `values` maps the old values to the new ones, `level` a new value to its frame."""

    def __init__(self, optimizer: _Optimizer, function: Function) -> None:
        self.optimizer = optimizer
        self.source = function
        self.values: dict[Value, Value] = {}
        self.instead: dict[Value, Value] = {}
        self.constants: dict[Value, npt.NDArray[Any]] = {}
        self.level: dict[Value, int] = {}
        self.frames: list[_Frame] = []
        self.next_id = 0
        self.again = False  # another round would find more
        self.caller: OpLocation | None = None
        self.locations: dict[OpLocation, OpLocation] = {}

    def build(self) -> Function:
        source = self.source
        body = self.region(source.body, loop=False, sealed=False)
        return Function(source.name, source.result_types, body, source.attributes, source.location, source.python_name)

    # -- blocks
    def region(self, region: Region, *, loop: bool, sealed: bool) -> Region:
        if not region.blocks:
            return Region([])
        if len(region.blocks) == 1:  # no graph to look at
            old = region.blocks[0]
            new = Block([], [], old.label)
            self.frames.append(_Frame(new.ops, loop=loop, sealed=sealed))
            self.block(old, new)
            self.frames.pop()
            return Region([new])
        graph = Graph(region.blocks[0])
        self.instead.update(graph.instead)
        built = [Block([], [], block.label) for block in graph.blocks]
        above = graph.dominators()
        outer = self.frames
        chains: list[list[_Frame]] = []
        for i, old in enumerate(graph.blocks):
            # a block sees what its dominators know; only the first may be in a loop frame (it then is the only one)
            frame = _Frame(built[i].ops, loop=loop and i == 0, sealed=sealed and i == 0)
            chain = [*(outer if i == 0 else chains[above[i]]), frame]
            chains.append(chain)
            self.frames = chain
            self.block(old, built[i])
            for op in built[i].ops[-1:]:
                op.successors = [
                    Successor(built[graph.index[successor.block]], successor.arguments) for successor in op.successors
                ]
        self.frames = outer
        return Region(built)

    def block(self, old: Block, new: Block) -> None:
        level = len(self.frames) - 1
        for value in old.arguments:
            argument = Value(value.type, value.name, self.next_id, new, len(new.arguments))
            self.next_id += 1
            new.arguments.append(argument)
            self.values[value] = argument
            self.level[argument] = level
        for op in old.ops:
            self.op(op)

    # -- ops
    def value(self, old: Value) -> Value:
        new = self.values.get(old)
        if new is None:
            new = self.values[old] = self.value(self.instead[old])
        return new

    def location(self, op: Op) -> OpLocation:
        if self.caller is None:
            return op.location
        found = self.locations.get(op.location)
        if found is None:
            found = self.locations[op.location] = op.location.called_from(self.caller)
        return found

    def place(self, op: Op) -> Any:
        """Equal for operations of one place in the source, reached by the same calls."""
        location = self.location(op)
        return location.location, location.call_stack

    def op(self, op: Op) -> None:
        operands = [self.value(value) for value in op.operands]
        name = op.name
        if name == "arith.constant":
            self.constant(op, op.attributes["value"], op.attributes)
            return
        if name == "tt.call":
            callee = self.optimizer.inlinable(op.attributes["callee"])
            if callee is not None:
                self.inline(op, callee, operands)
                return
        if len(op.results) == 1 and not op.regions:
            folded = fold(op, operands, self.constants)
            if folded is not None:
                self.constant(op, folded, {"value": folded})
                return
            same = identity(op, operands, self.constants)
            if same is not None:
                self.values[op.results[0]] = same
                return
        if name in _SHAREABLE or is_elementwise(op):
            self.pure(op, operands)
            return
        if name == "scf.for":
            op, operands = self.without_invariants(op, operands)
        regions = []
        for region in op.regions:
            regions.append(self.region(region, loop=name in _LOOPS, sealed=name not in _OPEN))
        # the targets of the successors are the old blocks still; `region` puts the new ones in
        successors = [Successor(s.block, [self.value(v) for v in s.arguments]) for s in op.successors]
        new = Op(name, operands, [], op.attributes, regions, successors, self.location(op))
        self.results(op, new, len(self.frames) - 1)
        self.frames[-1].ops.append(new)
        if name == "scf.for":
            block = regions[0].block
            passed = zip(block.ops[-1].operands, block.arguments[1:], strict=True)
            self.again = self.again or any(value is argument for value, argument in passed)

    def without_invariants(self, op: Op, operands: list[Value]) -> tuple[Op, list[Value]]:
        """A ``scf.for`` without the values that it carries but never changes (a block pointer's strides)."""
        block = op.regions[0].block
        yielded = block.ops[-1].operands
        changing = [i for i, value in enumerate(yielded) if value is not block.arguments[1 + i]]
        if len(changing) == len(yielded):
            return op, operands
        for i, value in enumerate(yielded):
            if value is block.arguments[1 + i]:
                self.values[value] = self.values[op.results[i]] = operands[3 + i]
        last = block.ops[-1]
        passed = Op(last.name, [yielded[i] for i in changing], [], last.attributes, [], [], last.location)
        arguments = [block.arguments[0], *(block.arguments[1 + i] for i in changing)]
        body = Region([Block(arguments, [*block.ops[:-1], passed], block.label)])
        results = [op.results[i] for i in changing]
        kept = operands[:3] + [operands[3 + i] for i in changing]
        return Op(op.name, op.operands, results, op.attributes, [body], [], op.location), kept

    def results(self, old: Op, new: Op, level: int) -> None:
        for value in old.results:
            result = Value(value.type, value.name, self.next_id, new, len(new.results))
            self.next_id += 1
            new.results.append(result)
            self.values[value] = result
            self.level[result] = level

    def find(self, key: Hashable) -> list[Value] | None:
        for frame in reversed(self.frames):
            found = frame.known.get(key)
            if found is not None:
                return found
            if frame.sealed:
                return None
        return None

    def target(self, operands: Sequence[Value]) -> int:
        """The outermost frame, behind loops only, in which all operands are known."""
        needed = -1
        for value in operands:
            level = self.level[value]
            if level > needed:
                needed = level
        target = len(self.frames) - 1
        while target > needed and self.frames[target].loop:
            target -= 1
        return target

    def pure(self, op: Op, operands: list[Value]) -> None:
        place = self.place(op) if self.optimizer.by_place and any(result.type.is_float for result in op.results) else None
        key = (op.name, *operands, id(op.results[0].type), *_frozen(op.attributes), place)
        known = self.find(key)
        if known is not None:
            for old, value in zip(op.results, known, strict=True):
                self.values[old] = value
            return
        target = self.target(operands)
        new = Op(op.name, operands, [], op.attributes, [], [], self.location(op))
        self.results(op, new, target)
        frame = self.frames[target]
        frame.ops.append(new)
        frame.known[key] = new.results

    def constant(self, op: Op, value: npt.NDArray[Any], attributes: dict[str, Any]) -> None:
        kind = op.results[0].type
        key = (id(kind), value.shape, value.tobytes())
        known = self.find(key)
        if known is not None:
            self.values[op.results[0]] = known[0]
            return
        target = self.target(())
        new = Op("arith.constant", [], [], attributes, [], [], self.location(op))
        self.results(op, new, target)
        self.constants[new.results[0]] = value
        frame = self.frames[target]
        frame.ops.append(new)
        frame.known[key] = new.results

    def inline(self, call: Op, callee: Function, operands: list[Value]) -> None:
        block = callee.body.blocks[0]
        self.values.update(zip(block.arguments, operands, strict=True))
        outer_caller, outer_locations = self.caller, self.locations
        # the callee is optimized already, so there is no call in it to inline and locations nest one deep only
        self.caller, self.locations = self.location(call), {}
        for op in block.ops[:-1]:
            self.op(op)
        self.caller, self.locations = outer_caller, outer_locations
        for result, value in zip(call.results, block.ops[-1].operands, strict=True):
            self.values[result] = self.value(value)


def _frozen(attributes: dict[str, Any]) -> list[Hashable]:
    """What of an op's attributes bears on its value, hashable."""
    found: list[Hashable] = []
    for name, value in attributes.items():
        if name in _IRRELEVANT:
            continue
        found.append(name)
        if isinstance(value, list):
            found.append(tuple(map(str, value)))
        elif isinstance(value, np.ndarray):
            found.append((value.dtype.str, value.shape, value.tobytes()))
        else:
            found.append(value if isinstance(value, Hashable) else repr(value))
    return found
