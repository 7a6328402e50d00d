"""Functions as flat blocks: for code whose batches must be able to split, wait, and go on each in its own time.

Two kinds of code need it: functions of several blocks (early returns), and everything around a loop that may wait for another
program. Blocks keep their values in a dictionary, the environment of a batch, so that a batch is plain data: it can be cut in
two, parked, and merged with another at the same block. Code without either stays nested Python (see `codegen`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tritontrace.engines.ir.codegen import Lines, Scope, seed_block_roots
from tritontrace.engines.ir.emitters.control import loop_site
from tritontrace.engines.ir.tree import Block, Function, Op, OpLocation, Region, Value, walk
from tritontrace.errors import UnsupportedOpError

__all__ = ["FlatBlock", "Flattener", "has_wait", "nested_call", "nested_region"]

_READS = frozenset({"tt.load", "tt.atomic_load", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_load", "tt.descriptor_gather"})


@dataclass(slots=True, eq=False)
class FlatBlock:
    """One block: `function(frame, env)` runs it and says where to go.

    `order` is its place among the blocks: batches at earlier blocks run first, so that programs that parted meet again.
    It returns an int (jump), a tuple (condition, block, block), or a list (the function's results). `live` names what the
    block needs of the environment. `waits` is None, or for the head of a loop that may wait the names whose change is progress.
    """

    index: int
    order: int = 0
    function: Any = None
    live: tuple[str, ...] = ()
    waits: tuple[str, ...] | None = None
    location: Any = None
    lines: list[tuple[str, Any]] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    defines: list[str] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)


def _callee(scope: Scope, op: Op) -> Function:
    return scope.emitter.module.functions[str(op.attributes["callee"]).lstrip("@").strip('"')]


def _region_waits(scope: Scope, region: Region, seen: tuple[str, ...] = ()) -> bool:
    for op in walk(region):
        if op.name == "scf.while" and wait_progress(scope, op) is not None:
            return True
        if op.name == "tt.call":
            function = _callee(scope, op)
            if function.name not in seen and _region_waits(scope, function.body, (*seen, function.name)):
                return True
    return False


def has_wait(scope: Scope, function: Function) -> bool:
    """True if a loop that may wait for another program can be reached from `function`."""
    return _region_waits(scope, function.body)


def _reads(scope: Scope, op: Op) -> bool:
    if op.name in _READS:
        return True
    if op.name == "tt.call":
        return any(_reads(scope, inner) for inner in walk(_callee(scope, op).body))
    return any(inner.name in _READS for region in op.regions for inner in walk(region))


def wait_progress(scope: Scope, op: Op) -> list[int] | None:
    """For a while loop whose exit depends on memory that it reads: the carried values that steer it; else None."""
    before, after = op.regions[0].block, op.regions[1].block
    inside = {id(o) for region in op.regions for o in walk(region)}
    steering: set[Value] = set()
    work = [before.ops[-1].operands[0]]
    reads = False
    # What a memory op inside the loop is given steers the loop, too: other addresses next time are progress.
    while True:
        while work:
            value = work.pop()
            if value in steering:
                continue
            steering.add(value)
            owner = value.owner
            if isinstance(owner, Op):
                if id(owner) not in inside:
                    continue
                reads = reads or _reads(scope, owner)
                work.extend(owner.operands)
                for region in owner.regions:
                    for inner in walk(region):
                        work.extend(inner.operands)
            elif value in before.arguments:
                work.append(after.ops[-1].operands[before.arguments.index(value)])
            elif value in after.arguments:
                work.append(before.ops[-1].operands[1 + after.arguments.index(value)])
        if not reads:
            return None
        return [i for i, a in enumerate(before.arguments) if a in steering]


class Flattener:
    """Writes one function, and what it calls where that must be flat, as a list of `FlatBlock`s."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.emitter = scope.emitter
        self.blocks: list[FlatBlock] = []

    def new(self) -> FlatBlock:
        """A new empty block; its index is its place in the order of execution preference."""
        block = FlatBlock(len(self.blocks))
        self.blocks.append(block)
        return block

    # -- pieces of a block -----------------------------------------------------------------------------------------------

    def _raw(self, block: FlatBlock, text: str, uses: list[str], defines: list[str], location: Any = None) -> None:
        block.lines.append((text, location))
        defined = set(block.defines)
        block.uses.update(n for n in uses if n not in defined and not n.startswith("K"))
        block.defines.extend(defines)

    def _op(self, scope: Scope, block: FlatBlock, op: Op) -> None:
        lines = Lines("")
        scope.emit_ops([op], lines)
        names = [scope.name(v) for v in op.operands if v not in scope.constants]
        for region in op.regions:
            names.extend(scope.name(v) for v in scope.free(region))
        defined = set(block.defines)
        block.uses.update(n for n in names if n not in defined)
        block.lines.extend(lines.entries)
        block.defines.extend(scope.name(r) for r in op.results if r not in scope.constants)

    def _assign(self, block: FlatBlock, targets: list[str], sources: list[str]) -> None:
        if targets:
            text = f"[{', '.join(targets)}] = [{', '.join(sources)}]"
            self._raw(block, text, sources, targets)

    def _jump(self, block: FlatBlock, target: FlatBlock) -> None:
        self._raw(block, f"return {target.index}", [], [])
        block.targets.append(target.index)

    def _branch(self, block: FlatBlock, condition: str, name: str, yes: FlatBlock, no: FlatBlock) -> None:
        self._raw(block, f"return {condition}, {yes.index}, {no.index}", [name] if name else [], [])
        block.targets += [yes.index, no.index]

    # -- control flow ----------------------------------------------------------------------------------------------------

    def body(self, scope: Scope, region: Region, entry: FlatBlock, leave: Any, loops: tuple[tuple[str, str], ...]) -> None:
        """Write a function's blocks; `leave(block, names)` writes what a ``tt.return`` does."""
        flat: dict[int, FlatBlock] = {id(region.blocks[0]): entry}
        order = _topological(region)
        for source in order:
            scope.mark(source.arguments, "cf.block")
            if id(source) not in flat:
                flat[id(source)] = self.new()
            current = self.sequence(scope, source.ops[:-1], flat[id(source)], loops)
            end = source.ops[-1]
            if end.name == "tt.return" or end.name.endswith(".return"):
                leave(current, [scope.name(v) for v in end.operands])
            elif end.name in ("cf.br", "cf.cond_br"):
                edges = []
                for successor in end.successors:
                    if id(successor.block) not in flat:
                        flat[id(successor.block)] = self.new()
                    target = flat[id(successor.block)]
                    scope.mark(successor.block.arguments, "cf.block")
                    if successor.arguments and end.name == "cf.cond_br":
                        edge = self.new()
                        self._pass(scope, edge, successor)
                        self._jump(edge, target)
                        target = edge
                    edges.append((target, successor))
                if end.name == "cf.br":
                    self._pass(scope, current, edges[0][1])
                    self._jump(current, edges[0][0])
                else:
                    condition = end.operands[0]
                    self._branch(current, scope.array(condition), scope.name(condition), edges[0][0], edges[1][0])
            else:
                raise self.emitter.unsupported(end, "unexpected end of a block", scope.location(end))

    def _pass(self, scope: Scope, block: FlatBlock, successor: Any) -> None:
        self._assign(
            block,
            [scope.name(a) for a in successor.block.arguments],
            [scope.name(v) for v in successor.arguments],
        )

    def sequence(self, scope: Scope, ops: list[Op], block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> FlatBlock:
        """Write straight-line ops, opening new blocks for what must be flat; returns the block that follows."""
        self._loops(block, loops)
        for op in ops:
            if op.name.startswith("scf.") and self._flat_region(scope, op):
                block = self._structured(scope, op, block, loops)
                self._loops(block, loops)
            elif op.name == "tt.call" and has_wait(scope, _callee(scope, op)):
                block = self._call(scope, op, block, loops)
                self._loops(block, loops)
            else:
                self._op(scope, block, op)
        return block

    def _flat_region(self, scope: Scope, op: Op) -> bool:
        if op.name == "scf.while" and wait_progress(scope, op) is not None:
            return True
        return any(_region_waits(scope, region) for region in op.regions)

    def _loops(self, block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> None:
        if loops:
            entries = ", ".join(f"({site}.location, {count})" for site, count in loops)
            self._raw(block, f"F = looped(F, ({entries},))", [count for _, count in loops], [])

    def _structured(self, scope: Scope, op: Op, block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> FlatBlock:
        scope.mark(op.results, op.name)
        for region in op.regions:
            for inner in region.blocks:
                scope.mark(inner.arguments, "cf.block")
        if op.name == "scf.if":
            return self._if(scope, op, block, loops)
        if op.name == "scf.for":
            return self._for(scope, op, block, loops)
        if op.name == "scf.while":
            return self._while(scope, op, block, loops)
        raise self.emitter.unsupported(op, "unknown structured operation", scope.location(op))

    def _if(self, scope: Scope, op: Op, block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> FlatBlock:
        results = [scope.name(r) for r in op.results]
        condition = op.operands[0]
        then = self.new()
        ends = [self._arm(scope, op.regions[0], then, results, loops)]
        has_else = len(op.regions) > 1 and bool(op.regions[1].blocks)
        if has_else:
            other = self.new()
            ends.append(self._arm(scope, op.regions[1], other, results, loops))
        after = self.new()
        for end in ends:
            self._jump(end, after)
        self._branch(block, scope.array(condition), scope.name(condition), then, other if has_else else after)
        return after

    def _arm(
        self, scope: Scope, region: Region, block: FlatBlock, results: list[str], loops: tuple[tuple[str, str], ...]
    ) -> FlatBlock:
        inner = region.block
        end = self.sequence(scope, inner.ops[:-1], block, loops)
        self._assign(end, results, [scope.name(v) for v in inner.ops[-1].operands])
        return end

    def _for(self, scope: Scope, op: Op, block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> FlatBlock:
        site = loop_site(scope, op)
        lower, upper, step, *inits = op.operands
        body_block = op.regions[0].block
        induction, *carried = body_block.arguments
        count, total = self.emitter.fresh("n"), self.emitter.fresh("t")
        names = [scope.name(a) for a in carried]
        given = [scope.name(v) for v in (lower, upper, step)]
        bounds = [self.emitter.fresh("n") for _ in given]
        text = f"{', '.join(bounds)} = loop_bounds(F, {site}, {', '.join(given)})"
        self._raw(block, text, given, bounds, op.location.location)
        text = f"{total}, {count} = trip_count({', '.join(bounds)}, {'unsignedCmp' in op.attributes}), np.zeros(1, np.int64)"
        self._raw(block, text, bounds, [total, count], op.location.location)
        self._assign(block, names, [scope.name(v) for v in inits])
        head, inside = self.new(), self.new()
        self._jump(block, head)
        first = scope.name(induction)
        kind = f"{bounds[0]}.dtype.type"
        inner_loops = (*loops, (site, count))
        self._loops(inside, inner_loops)
        self._raw(inside, f"count_step(F, {site}, 'for', {count})", [count], [], op.location.location)
        text = f"{first} = {bounds[0]} + {bounds[2]} * {count}.astype({kind})"
        self._raw(inside, text, [bounds[0], bounds[2], count], [first])
        end = self.sequence(scope, body_block.ops[:-1], inside, inner_loops)
        self._raw(end, f"{count} = {count} + 1", [count], [count])
        self._assign(end, names, [scope.name(v) for v in body_block.ops[-1].operands])
        self._jump(end, head)
        after = self.new()
        self._assign(after, [scope.name(r) for r in op.results], names)
        self._raw(head, f"_c = {count} < {total}", [count, total], [])
        self._branch(head, "_c", "", inside, after)
        return after

    def _while(self, scope: Scope, op: Op, block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> FlatBlock:
        site = loop_site(scope, op)
        before, after = op.regions[0].block, op.regions[1].block
        count = self.emitter.fresh("n")
        names = [scope.name(a) for a in before.arguments]
        self._raw(block, f"{count} = enter_while(F, {site})", [], [count], op.location.location)
        self._assign(block, names, [scope.name(v) for v in op.operands])
        head = self.new()
        self._jump(block, head)
        inner_loops = (*loops, (site, count))
        progress = wait_progress(scope, op)
        if progress is not None:
            head.waits = tuple(names[i] for i in progress)
            head.location = op.location.location
        test = self.sequence(scope, before.ops[:-1], head, inner_loops)
        condition, *forwarded = before.ops[-1].operands
        inside = self.new()
        self._assign(inside, [scope.name(a) for a in after.arguments], [scope.name(v) for v in forwarded])
        self._loops(inside, inner_loops)
        self._raw(inside, f"count_step(F, {site}, 'while', {count})", [count], [], op.location.location)
        end = self.sequence(scope, after.ops[:-1], inside, inner_loops)
        self._raw(end, f"{count} = {count} + 1", [count], [count])
        self._assign(end, names, [scope.name(v) for v in after.ops[-1].operands])
        self._jump(end, head)
        leave = self.new()
        self._assign(leave, [scope.name(r) for r in op.results], [scope.name(v) for v in forwarded])
        self._branch(test, scope.array(condition), scope.name(condition), inside, leave)
        return leave

    def _call(self, scope: Scope, op: Op, block: FlatBlock, loops: tuple[tuple[str, str], ...]) -> FlatBlock:
        function = _callee(scope, op)
        inner = instance(scope, op, function)
        scope.mark(op.results, op.name)
        self._assign(block, [inner.name(a) for a in function.arguments], [scope.name(v) for v in op.operands])
        inner.mark(function.arguments, "cf.block")
        entry = self.new()
        self._jump(block, entry)
        results = [scope.name(r) for r in op.results]
        ends: list[FlatBlock] = []

        def leave(end: FlatBlock, names: list[str]) -> None:
            self._assign(end, results, names)
            ends.append(end)

        self.body(inner, function.body, entry, leave, loops)
        self.emitter.calling.pop()
        after = self.new()
        for end in ends:
            self._jump(end, after)
        return after

    # -- finishing -------------------------------------------------------------------------------------------------------

    def finish(self, prefix: str) -> list[FlatBlock]:
        """Compute what lives across blocks and write every block's function; returns the blocks."""
        live: list[set[str]] = [set(b.uses) for b in self.blocks]
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                after: set[str] = set()
                for target in block.targets:
                    after |= live[target]
                need = block.uses | (after - set(block.defines))
                if need - live[block.index]:
                    live[block.index] |= need
                    changed = True
        for place, index in enumerate(_execution_order(self.blocks)):
            self.blocks[index].order = place
        for block in self.blocks:
            block.live = tuple(sorted(live[block.index]))
            leaving: set[str] = set()
            for target in block.targets:
                leaving |= live[target]
            lines = Lines()
            for name in sorted(block.uses):
                lines.add(f"{name} = E[{name!r}]")
            saved = [f"E[{name!r}] = {name}" for name in sorted(set(block.defines) & leaving)]
            for text, location in block.lines:
                if text.startswith("return ") and saved and block.targets:
                    for line in saved:
                        lines.add(line)
                lines.add(text, location)
            self.emitter.define(f"def {prefix}{block.index}(F, E):", lines)
        return self.blocks


def _topological(region: Region) -> list[Block]:
    """The blocks in an order in which every block comes after those that branch to it (Triton's are acyclic)."""
    seen: set[int] = set()
    order: list[Block] = []

    def visit(block: Block) -> None:
        seen.add(id(block))
        for successor in reversed(block.ops[-1].successors):
            if id(successor.block) not in seen:
                visit(successor.block)
        order.append(block)

    visit(region.blocks[0])
    return order[::-1]


def _execution_order(blocks: list[FlatBlock]) -> list[int]:
    """Reverse postorder: a block after all that lead to it, a loop's body before what follows the loop."""
    seen = {0}
    order: list[int] = []
    stack = [(0, iter(blocks[0].targets[::-1]))]
    while stack:
        index, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(blocks[target].targets[::-1])))
                break
        else:
            order.append(index)
            stack.pop()
    return order[::-1]


def instance(scope: Scope, op: Op, function: Function) -> Scope:
    """A scope for the body of `function` as called by `op`; pushes it on the stack of calls being written."""
    emitter = scope.emitter
    if function.name in emitter.calling:
        where: OpLocation = scope.location(op)
        raise UnsupportedOpError(
            f"function {function.python_name!r} calls itself; Triton kernels cannot recurse",
            kernel=emitter.kernel,
            location=where.location,
        )
    emitter.calling.append(function.name)
    inner = Scope(emitter, scope.location(op))
    inner.uses = scope.uses
    for argument, value in zip(function.arguments, op.operands):
        inner.roots[argument] = scope.root(value)
    seed_block_roots(inner, function)
    return inner


def nested_call(scope: Scope, op: Op) -> str:
    """Write a called function of several blocks as something that generated code can call: ``name(F, arguments)``."""
    from tritontrace.engines.ir.schedule import Nested

    function = _callee(scope, op)
    inner = instance(scope, op, function)
    flattener = Flattener(inner)
    entry = flattener.new()
    inner.mark(function.arguments, "cf.block")

    def leave(end: FlatBlock, names: list[str]) -> None:
        flattener._raw(end, f"return [{', '.join(names)}]", names, [])

    flattener.body(inner, function.body, entry, leave, ())
    scope.emitter.calling.pop()
    prefix = scope.emitter.fresh("g") + "_"
    blocks = flattener.finish(prefix)
    nested = Nested(blocks, [inner.name(a) for a in function.arguments], prefix)
    return scope.emitter.bind(scope.emitter.fresh("call"), nested)


def nested_region(scope: Scope, region: Region) -> tuple[str, str]:
    """Write a region of several blocks as a function ``name(F, free, *arguments)``."""
    from tritontrace.engines.ir.schedule import Nested

    flattener = Flattener(scope)
    entry = flattener.new()
    free = scope.free(region)

    def leave(end: FlatBlock, names: list[str]) -> None:
        flattener._raw(end, f"return [{', '.join(names)}]", names, [])

    flattener.body(scope, region, entry, leave, ())
    prefix = scope.emitter.fresh("g") + "_"
    blocks = flattener.finish(prefix)
    arguments = [scope.name(a) for a in region.blocks[0].arguments]
    nested = Nested(blocks, [*(scope.name(v) for v in free), *arguments], prefix)
    name = scope.emitter.bind(scope.emitter.fresh("call"), nested.as_region)
    return name, "[" + ", ".join(scope.name(v) for v in free) + "]"
