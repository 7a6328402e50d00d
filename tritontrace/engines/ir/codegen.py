"""From the op tree to Python source: straight-line numpy per region, one function each.

`Emitter` writes the module; a `Scope` names the values of one instance of a Triton function in it. How each operation
is written is said once, in the tables: `ops.ELEMENTWISE` for pure elementwise operations, `emitters.EMITTERS` for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import control, integers, lines, memory_ops, nonfinite, overflow, shadow64, tensors, undefined
from tritontrace.engines.ir.descriptors import Descriptor
from tritontrace.engines.ir.runtime import AsmSite, MemorySite
from tritontrace.engines.ir.tree import Block, Function, Module, Op, OpLocation, Region, Type, Value, free_values
from tritontrace.engines.ir.values import dense, land
from tritontrace.errors import UnsupportedOpError

if TYPE_CHECKING:
    from tritontrace.source import SourceLocation

__all__ = ["LAZY_OPS", "Emitter", "Lines", "Scope"]

_LAZY_ELEMENTS = ("i1", "i32", "i64")
LAZY_OPS = frozenset(
    {
        "tt.make_range",
        "tt.addptr",
        "tt.expand_dims",
        "tt.broadcast",
        "tt.trans",
        "tt.reshape",
        "arith.addi",
        "arith.subi",
        "arith.muli",
        "arith.extsi",
        "arith.cmpi",
        "arith.andi",
        "tt.call",
        "scf.for",
        "scf.if",
        "scf.while",
        "cf.block",
    }
)


class Lines:
    """Lines of source with the location of the op that each was written for."""

    __slots__ = ("entries", "indent")

    def __init__(self, indent: str = "    ") -> None:
        self.entries: list[tuple[str, SourceLocation | None]] = []
        self.indent = indent

    def add(self, text: str, location: SourceLocation | None = None) -> None:
        """Append one line at the current indentation."""
        self.entries.append((self.indent + text, location))


class Emitter:
    """The Python module of one kernel while it is written.

    `max_block` collects the largest tile, `sites` the memory operations, `accesses` those of them that really move data,
    `origins` the loads whose undefined lanes are followed, `births` the operations whose results may become non-finite.
    """

    def __init__(self, module: Module, kernel: str) -> None:
        self.module = module
        self.kernel = kernel
        self.assembly: list[AsmSite] = []
        self.globals: dict[str, Any] = {
            "np": np,
            "dense": dense,
            "Descriptor": Descriptor,
            "land": land,
            "full": integers.broadcast_to,
            "_flat": lambda v: v.reshape(v.shape[0]),
        }
        for room in (control, integers, lines, memory_ops, nonfinite, overflow, shadow64, tensors, undefined):
            for name in dir(room):
                value = getattr(room, name)
                if callable(value) and getattr(value, "__module__", None) == room.__name__:
                    self.globals[name] = value
        self.functions: list[tuple[str, SourceLocation | None]] = []
        self.sites: list[MemorySite] = []
        self.accesses: list[MemorySite] = []
        self.origins: list[MemorySite | None] = []
        self.births: list[events.Site] = []
        self.max_block = 1
        self._counter = 0
        self.calling: list[str] = []

    def fresh(self, prefix: str) -> str:
        """A name that nothing else in the module has."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def bind(self, name: str, value: Any) -> str:
        """Make `value` reachable from the generated source; returns the name it got."""
        existing = self.globals.get(name)
        if name not in self.globals or existing is value:
            self.globals[name] = value
            return name
        alias = self.fresh(name + "_")
        self.globals[alias] = value
        return alias

    def define(self, header: str, lines: Lines) -> None:
        """Add a finished function."""
        self.functions.append((header, None))
        self.functions.extend(lines.entries or [("    pass", None)])

    def unsupported(self, op: Op, why: str, location: OpLocation | None = None) -> UnsupportedOpError:
        """The error for an op that this engine cannot run."""
        place = (location or op.location).location
        return UnsupportedOpError(f"the IR engine cannot run {op.name!r}: {why}", kernel=self.kernel, location=place)


class Scope:
    """The values of one instance of a function: their names in the source, and where their pointers come from.

    A Triton function that is called from two places is written twice, so that each instance has its own sites, with their own
    call stack (`caller`) and provenance (`roots`).
    """

    def __init__(self, emitter: Emitter, caller: OpLocation | None = None) -> None:
        self.emitter = emitter
        self.caller = caller
        self.names: dict[Value, str] = {}
        self.constants: set[Value] = set()
        self.lazy: set[Value] = set()
        self.roots: dict[Value, str | None] = {}
        self.uses: dict[Value, int] = {}
        self.prefix = emitter.fresh("s") + "_" if caller is not None else "v"

    # -- names ---------------------------------------------------------------------------------------------------------

    def name(self, value: Value) -> str:
        """The value's variable, lazy or not."""
        found = self.names.get(value)
        if found is None:
            found = self.names[value] = f"{self.prefix}{value.id}"
        return found

    def array(self, value: Value) -> str:
        """An expression for the value as a numpy array."""
        name = self.name(value)
        return f"dense({name})" if value in self.lazy else name

    def full(self, value: Value) -> str:
        """An expression for the value as a numpy array with all of its tile axes."""
        return f"full({self.name(value)}, {value.type.shape})"

    def constant(self, value: Value, array: Any) -> None:
        """Name `value` as a global that no region has to carry."""
        name = self.emitter.fresh("K")
        self.emitter.globals[name] = array
        self.names[value] = name
        self.constants.add(value)

    def location(self, op: Op) -> OpLocation:
        """The op's location, with the calls that lead to this instance."""
        return op.location if self.caller is None else op.location.called_from(self.caller)

    def mark(self, values: Iterable[Value], op_name: str) -> None:
        """Note which results may be lazy."""
        if op_name in LAZY_OPS:
            for value in values:
                kind = value.type
                if kind.shape and (kind.element in _LAZY_ELEMENTS or kind.is_pointer):
                    self.lazy.add(value)

    # -- provenance ----------------------------------------------------------------------------------------------------

    def root(self, value: Value, depth: int = 0) -> str | None:
        """The pointer parameter that `value` is computed from, or None if it is not one for certain."""
        if value in self.roots:
            return self.roots[value]
        if depth > 400:
            return None
        self.roots[value] = None  # for cycles
        found = self._root(value, depth + 1)
        self.roots[value] = found
        return found

    def _root(self, value: Value, depth: int) -> str | None:
        owner = value.owner
        if isinstance(owner, Op):
            name = owner.name
            if name in _POINTER_STEPS:
                return self.root(owner.operands[0], depth)
            if name == "arith.select":
                return self._same(owner.operands[1:3], depth)
            if name == "scf.for":
                return self.root(owner.regions[0].block.arguments[1 + value.index], depth)
            if name == "scf.if":
                yields = [region.block.ops[-1].operands[value.index] for region in owner.regions if region.blocks]
                return self._same(yields, depth)
            if name == "scf.while":
                return self.root(owner.regions[0].block.ops[-1].operands[1 + value.index], depth)
            return None
        return None

    def _same(self, values: list[Value], depth: int) -> str | None:
        roots = {self.root(v, depth) for v in values}
        return roots.pop() if len(roots) == 1 else None

    # -- emission ------------------------------------------------------------------------------------------------------

    def emit_ops(self, ops: Iterable[Op], lines: Lines) -> None:
        """Write a straight line of ops."""
        from tritontrace.engines.ir.emitters import emit

        for op in ops:
            emit(self, op, lines)

    def free(self, region: Region) -> list[Value]:
        """The values that a region must be handed: what it uses from outside, constants excepted."""
        return [v for v in free_values(region) if v not in self.constants]

    def region(self, region: Region, kind: str, location: SourceLocation | None = None) -> tuple[str, str]:
        """Write a region as a function; returns (its name, the list expression of its free values)."""
        block = region.block
        self.mark(block.arguments, "cf.block")
        free = self.free(region)
        lines = Lines()
        if free:
            lines.add(f"[{', '.join(self.name(v) for v in free)}] = free", location)
        self.emit_ops(block.ops, lines)
        name = self.emitter.fresh(kind)
        arguments = "".join(", " + self.name(a) for a in block.arguments)
        self.emitter.define(f"def {name}(F, free{arguments}):", lines)
        return name, "[" + ", ".join(self.name(v) for v in free if v not in self.constants) + "]"

    def results(self, op: Op) -> str:
        """The assignment target for an op that gives a list of results (empty for none)."""
        self.mark(op.results, op.name)
        return f"[{', '.join(self.name(r) for r in op.results)}] = " if op.results else ""

    def site(
        self,
        op: Op,
        kind: Type,
        pointer: Value | None,
        block: tuple[int, ...] | None = None,
        probe: bool = False,
        **attributes: Any,
    ) -> str:
        """A `MemorySite` for a memory op that moves elements of `kind`; returns its name. A `probe` moves none.

        `attributes` go into the events' `Site`.
        """
        emitter = self.emitter
        where = self.location(op)
        element = kind.element
        shape = kind.shape if block is None else block
        event = self.event_site(op, where, shape, element)
        event.parameter = self.root(pointer) if pointer is not None else None
        event.attributes.update(attributes)
        site = MemorySite(event, element)
        emitter.sites.append(site)
        if not probe:
            emitter.accesses.append(site)
        bit = op.attributes.get("undefined_bit")
        if bit is not None:
            emitter.origins.extend([None] * (bit + 1 - len(emitter.origins)))
            emitter.origins[bit] = site
        return emitter.bind(f"S{event.id}", site)

    def event_site(self, op: Op, where: OpLocation, block: tuple[int, ...], element: str) -> events.Site:
        """The part of a site that clients see."""
        from tritontrace.engines.ir import numerics

        emitter = self.emitter
        emitter.max_block = max(emitter.max_block, int(np.prod(block, dtype=np.int64)) if block else 1)
        known = element.startswith("ptr<") or not element or element[0] in "fib"
        return events.Site(
            id=int(emitter.fresh("")),
            op=op.name,
            location=where.location,
            call_stack=where.call_stack,
            block=block,
            dtype=triton_dtype(element),
            element_bits=numerics.element_bytes(element) * 8 if element and known else 32,
            variable=where.variable,
        )


_POINTER_STEPS = frozenset(
    {
        "tt.addptr",
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.bitcast",
        "tt.unsplat",
        "tt.make_tensor_ptr",
        "tt.advance",
        "tt.make_tensor_descriptor",
    }
)

_TRITON_NAMES = {
    "f16": "fp16",
    "f32": "fp32",
    "f64": "fp64",
    "f8E4M3FN": "fp8e4nv",
    "f8E5M2": "fp8e5",
    "f8E4M3FNUZ": "fp8e4b8",
    "f8E5M2FNUZ": "fp8e5b16",
    "f8E4M3B11FNUZ": "fp8e4b15",
}


def triton_dtype(element: str) -> str:
    """Triton's name of an IR element type: ``"f32"`` is ``"fp32"``, ``"ptr<f32>"`` is ``"*fp32"``."""
    if element.startswith("ptr<"):
        return "*" + triton_dtype(element[4:-1])
    return _TRITON_NAMES.get(element, element)


def seed_block_roots(scope: Scope, function: Function) -> None:
    """Find which loop-carried pointers stay in one tensor, and give them its root; the others get none.

    Each is first taken to stay where it starts; one whose loop hands it another tensor's pointer (two buffers that change
    places) loses its root, and what depended on it is judged again, until nothing changes.
    """
    fixed = dict(scope.roots)
    carried: list[tuple[Value, list[Value]]] = []
    for block in function.body.blocks:
        _collect_carried(block, carried)
    assumed: dict[Value, str | None] = {}
    for argument, sources in carried:
        scope.roots = {**fixed, **assumed}
        assumed[argument] = scope.root(sources[0])
    changed = True
    while changed:
        changed = False
        scope.roots = {**fixed, **assumed}
        for argument, sources in carried:
            root = assumed[argument]
            if root is not None and any(scope.root(source) != root for source in sources):
                assumed[argument] = None
                changed = True


def _collect_carried(block: Block, carried: list[tuple[Value, list[Value]]]) -> None:
    for op in block.ops:
        if op.name == "scf.for":
            body = op.regions[0].block
            for argument, init, sent in zip(body.arguments[1:], op.operands[3:], body.ops[-1].operands):
                carried.append((argument, [init, sent]))
        elif op.name == "scf.while":
            before, after = op.regions[0].block, op.regions[1].block
            for argument, init, sent in zip(before.arguments, op.operands, after.ops[-1].operands):
                carried.append((argument, [init, sent]))
            for argument, sent in zip(after.arguments, before.ops[-1].operands[1:]):
                carried.append((argument, [sent]))
        for region in op.regions:
            for inner in region.blocks:
                _collect_carried(inner, carried)
