"""A kernel's specialization, compiled to Python: the source, its functions, and how arguments become values."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.engines import asm
from tritontrace.engines.base import ARITHMETIC, LINES, OPERATIONS, OVERFLOW, SHADOW, UNDEFINED
from tritontrace.engines.ir import compute_ops, numerics, scaled, schedule
from tritontrace.engines.ir.affine import by_corners
from tritontrace.engines.ir.codegen import LAZY_OPS, Emitter, Lines, Scope, seed_block_roots
from tritontrace.engines.ir.definedness import track
from tritontrace.engines.ir.descriptors import Descriptor
from tritontrace.engines.ir.flatten import FlatBlock, Flattener, has_wait
from tritontrace.engines.ir.frontend import Lowered, Slot, lower
from tritontrace.engines.ir.lines import mark_lines
from tritontrace.engines.ir.nonfinite import follow_nonfinite
from tritontrace.engines.ir.optimizer import optimize
from tritontrace.engines.ir.overflow import check_overflow
from tritontrace.engines.ir.parser import parse
from tritontrace.engines.ir.polls import expand_polls
from tritontrace.engines.ir.runtime import AsmSite, MemorySite
from tritontrace.engines.ir.scalars import scalar
from tritontrace.engines.ir.shadow64 import shadow_floats
from tritontrace.engines.ir.slicing import slice_accesses, widest
from tritontrace.engines.ir.tallies import count_operations
from tritontrace.engines.ir.tree import Function, Module, Type, Value, walk
from tritontrace.engines.memory import tensors_of
from tritontrace.errors import UnsupportedOpError

if TYPE_CHECKING:
    from tritontrace.engines.phantom import Phantoms
    from tritontrace.kernels.arguments import BoundLaunch
    from tritontrace.source import SourceLocation

__all__ = ["Program", "compile_program"]

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class Program:
    """What `compile_program` made. `entry` runs nested code; `blocks` is set instead where the kernel is flat.

    `names` are the entry arguments' names in the environment of flat code. `locations[i]` is the kernel line that line
    ``i + 1`` of `source` was written for. `max_block` is the number of elements of the largest tile.
    `sites` are its memory operations, `accesses` those that are really made. In a slice, `reads` are the loads whose data
    decides addresses, masks or control flow, and `acts` is True if an atomic's result does, so that nothing less than
    executing the kernel tells what it accesses.
    `by_corners`: the corners of the grid tell of all its accesses (`affine.by_corners`).
    `options` are the compile options that the lowering depended on.
    """

    kernel_name: str
    file: str
    source: str
    locations: list[SourceLocation | None]
    entry: Callable[..., Any] | None
    blocks: list[FlatBlock]
    names: list[str]
    types: list[Type]
    slots: tuple[Slot, ...]
    max_block: int
    globals_check: Callable[[], None]
    sites: list[MemorySite]
    accesses: list[MemorySite]
    reads: list[MemorySite]
    acts: bool
    options: dict[str, Any]
    assembly: list[AsmSite]
    by_corners: bool = False

    def serves(self, options: Any) -> bool:
        """Whether lowering with `options` would give this very program, all else being equal."""
        return all(getattr(options, name, None) == value for name, value in self.options.items())

    def arguments(self, bound: BoundLaunch) -> list[Any]:
        """The entry function's arguments as values of one program for all (``[1]`` arrays, descriptors)."""
        out = []
        for kind, (index, part) in zip(self.types, self.slots, strict=True):
            leaf = bound.leaves[index]
            if part == "value":
                made_up = _made_up(leaf.value, bound.phantoms) if kind.is_pointer else None
                value = leaf.value if made_up is None else made_up
                out.append(scalar(value, kind, leaf.type, f"argument {leaf.name!r} of kernel {bound.kernel_name!r}"))
            elif part == "desc":
                out.append(_descriptor(leaf.value, kind, bound.phantoms))
            else:
                assert isinstance(part, tuple)  # the only other form of a slot
                where, axis = part
                values = leaf.value.shape if where == "shape" else leaf.value.strides
                out.append(scalar(int(values[axis]), kind, "i64", f"the {where} of {leaf.name!r}"))
        return out

    def assembly_check(self, callbacks: Mapping[str, Callable[..., Any]]) -> None:
        """Raises `UnsupportedOpError` for the first inline assembly that nobody can run."""
        for site in self.assembly:
            if asm.find(site.text, callbacks) is None:
                raise UnsupportedOpError(
                    f"the IR engine cannot run 'tt.elementwise_inline_asm': inline assembly {site.text!r} has no Python "
                    "callback; give one with session(inline_asm={text: function})",
                    kernel=self.kernel_name,
                    location=site.location,
                )

    def pointer_names(self) -> set[int]:
        """Indices of the leaves that point to memory."""
        return {index for kind, (index, part) in zip(self.types, self.slots) if kind.is_pointer or part == "desc"}

    def locate(self, error: BaseException) -> SourceLocation | None:
        """The kernel line that was executing when `error` was raised."""
        found = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == self.file and 0 < line <= len(self.locations):
                found = self.locations[line - 1] or found
        return found


def _made_up(value: Any, phantoms: Phantoms | None) -> int | None:
    """The address that stands for a tensor without memory; None for what has an address of its own."""
    if phantoms is None:
        return None
    return next((phantoms.address(tensor) for tensor in tensors_of(value)), None)


def _descriptor(value: Any, kind: Type, phantoms: Phantoms | None) -> Descriptor:
    block = kind.block
    padding = "nan" if getattr(value, "padding", "zero") == "nan" else "zero"
    shape = [np.array([int(n)]) for n in value.shape]
    strides = [np.array([int(n)]) for n in value.strides]
    made_up = _made_up(value.base, phantoms)
    base = np.array([value.base.data_ptr() if made_up is None else made_up], np.uint64).view(np.int64)
    return Descriptor(base, shape, strides, block.shape, numerics.element_bytes(block.element), padding)


def compile_program(bound: BoundLaunch, *, sliced: bool = False, instruments: frozenset[str] = frozenset()) -> Program:
    """Lower, parse, optimize and write the kernel of `bound`.

    `sliced`: only the slice of it that decides its accesses. `instruments`: what is looked for besides.

    Raises Triton's own errors from the frontend and `UnsupportedOpError` for an operation that the engine lacks.
    """
    if sliced:
        instruments &= {UNDEFINED}  # the others look at values, which a slice has not
    lowered = lower(bound, lines=LINES in instruments, overflow=OVERFLOW in instruments)
    module = parse(lowered.text)
    if LINES in instruments:
        mark_lines(module)
    if OVERFLOW in instruments:
        check_overflow(module, keep_asserts=bound.debug)
    # What is told of a value names the line that made it.
    module = optimize(expand_polls(module), lowered.entry, by_place=bool(instruments & {ARITHMETIC, SHADOW}))
    if OPERATIONS in instruments:
        count_operations(module)  # of the kernel, before anything is added to it
    # In this order: none of them is to follow another one's companions.
    if UNDEFINED in instruments:
        track(module, without_data=sliced)
    if ARITHMETIC in instruments:
        follow_nonfinite(module, lowered.entry)
    if SHADOW in instruments:
        shadow_floats(module, lowered.entry)
    if not sliced:
        return _write(bound, lowered, module)
    slice_accesses(module)
    cornered = by_corners(module.functions[lowered.entry])
    program = _write(bound, lowered, module)
    program.max_block = widest(module, LAZY_OPS)
    program.by_corners = cornered
    return program


def _write(bound: BoundLaunch, lowered: Lowered, module: Module) -> Program:
    function = module.functions[lowered.entry]
    emitter = Emitter(module, bound.kernel_name)
    for room in (compute_ops, scaled, schedule):
        for name in room.__all__:
            emitter.globals[name] = getattr(room, name)
    scope = Scope(emitter)
    scope.uses = _count_uses(module)
    for argument, (index, _) in zip(function.arguments, lowered.slots):
        kind = argument.type
        if kind.is_pointer or kind.element.startswith("tensordesc"):
            scope.roots[argument] = bound.leaves[index].name
    seed_block_roots(scope, function)
    emitter.calling.append(function.name)
    flat = len(function.body.blocks) > 1 or has_wait(scope, function)
    blocks: list[FlatBlock] = []
    if flat:
        blocks = _flat(scope, function)
    else:
        lines = Lines()
        scope.emit_ops(function.body.block.ops, lines)
        arguments = "".join(", " + scope.name(a) for a in function.arguments)
        emitter.define(f"def entry(F{arguments}):", lines)
    source = "\n".join(text for text, _ in emitter.functions) + "\n"
    file = f"<tritontrace {bound.kernel_name} #{next(_numbers)}>"
    exec(compile(source, file, "exec"), emitter.globals)
    for value in list(emitter.globals.values()):
        nested = value if isinstance(value, schedule.Nested) else getattr(value, "__self__", None)
        if isinstance(nested, schedule.Nested):
            nested.link(emitter.globals)
    for block in blocks:
        block.function = emitter.globals[f"b{block.index}"]
    peers = tuple(site.event for site in emitter.sites)
    for peer in peers:
        peer.peers = peers
    return Program(
        kernel_name=bound.kernel_name,
        file=file,
        source=source,
        locations=[location for _, location in emitter.functions],
        entry=None if flat else emitter.globals["entry"],
        blocks=blocks,
        names=[scope.name(a) for a in function.arguments],
        types=[a.type for a in function.arguments],
        slots=lowered.slots,
        max_block=emitter.max_block,
        globals_check=lowered.globals_check,
        sites=emitter.sites,
        accesses=emitter.accesses,
        reads=[site for site in emitter.accesses if "load" in site.event.op or "gather" in site.event.op],
        acts=any("atomic" in site.event.op for site in emitter.accesses),
        options=lowered.options,
        assembly=emitter.assembly,
    )


def _flat(scope: Scope, function: Function) -> list[FlatBlock]:
    flattener = Flattener(scope)
    entry = flattener.new()

    def leave(end: FlatBlock, names: list[str]) -> None:
        flattener._raw(end, "return []", [], [])

    flattener.body(scope, function.body, entry, leave, ())
    return flattener.finish("b")


def _count_uses(module: Module) -> dict[Value, int]:
    uses: dict[Value, int] = {}
    for function in module.functions.values():
        for op in walk(function.body):
            for value in op.operands:
                uses[value] = uses.get(value, 0) + 1
            for successor in op.successors:
                for value in successor.arguments:
                    uses[value] = uses.get(value, 0) + 1
    return uses
