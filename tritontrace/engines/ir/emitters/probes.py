"""Accesses that are told and not made: what `slicing` leaves of loads, stores and atomics."""

from __future__ import annotations

from tritontrace import events
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.memory import checked_axes, fixed_attributes, is_block_pointer, reduce_kind
from tritontrace.engines.ir.emitters.registry import array_list, integer, operation
from tritontrace.engines.ir.slicing import PROBE
from tritontrace.engines.ir.tree import Op


@operation(PROBE)
def _probe(scope: Scope, op: Op, lines: Lines) -> None:
    of: Op = op.attributes["of"]
    pointer, *rest = op.operands
    name = of.name
    loads = name in _LOADS or name == "tt.atomic_load"
    moved = of.results[0].type if loads else of.operands[-1 if name == "tt.descriptor_scatter" else 1].type
    kind = scope.emitter.bind("Atomic", events.Atomic)
    extra = ""
    fixed = fixed_attributes(of, op.attributes["used"])
    if name in _LOADS:
        kind = scope.emitter.bind("Load", events.Load)
    elif name in ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter"):
        kind = scope.emitter.bind("Store", events.Store)
    elif name == "tt.descriptor_reduce":
        how = reduce_kind(integer(of, "kind"), moved.element, pointer.type)
        fixed = {"operation": how, "sem": "relaxed", "scope": "gpu", "used": False}
    if kind == "Atomic":
        extra = f", {fixed['operation']!r}, None, None, {fixed['sem']!r}, {fixed['scope']!r}"
    if name in ("tt.descriptor_gather", "tt.descriptor_scatter"):
        site = scope.site(of, moved, pointer, probe=True, **fixed)
        text = f"probe_rows(F, {site}, {kind}, {scope.name(pointer)}, {scope.array(rest[0])}, {scope.array(rest[1])})"
    elif name.startswith("tt.descriptor_"):
        site = scope.site(of, moved, pointer, pointer.type.block.shape, probe=True, **fixed)
        text = f"probe_tile(F, {site}, {kind}, {scope.name(pointer)}, {array_list(scope, rest)}, None{extra})"
    elif is_block_pointer(pointer.type):
        site = scope.site(of, moved, pointer, probe=True, **fixed)
        text = f"probe_tile(F, {site}, {kind}, {scope.name(pointer)}, None, {checked_axes(of)}{extra})"
    else:
        site = scope.site(of, moved, pointer, probe=True, **fixed)
        text = f"probe(F, {site}, {kind}, {scope.name(pointer)}, {scope.name(rest[0]) if rest else 'None'}{extra})"
    lines.add(text, op.location.location)


_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
