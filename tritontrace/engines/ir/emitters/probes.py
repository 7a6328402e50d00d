"""Accesses that are told and not made: what `slicing` leaves of loads, stores and atomics."""

from __future__ import annotations

from tritontrace import events
from tritontrace.engines.ir.atomics import RMW_NAMES
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.memory import SCOPES, SEMANTICS, checked_axes, is_block_pointer, reduce_kind
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
    if name in _LOADS:
        kind = scope.emitter.bind("Load", events.Load)
    elif name in ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter"):
        kind = scope.emitter.bind("Store", events.Store)
    elif name == "tt.descriptor_reduce":
        extra = f", {reduce_kind(integer(of, 'kind'), moved.element, pointer.type)!r}, None, None, 'relaxed', 'gpu'"
    else:
        operation_name = _ATOMICS.get(name) or RMW_NAMES[integer(of, "atomic_rmw_op")]
        sem, where = SEMANTICS.get(integer(of, "sem", 4), "acq_rel"), SCOPES.get(integer(of, "scope", 1), "gpu")
        extra = f", {operation_name!r}, None, None, {sem!r}, {where!r}"
    if name in ("tt.descriptor_gather", "tt.descriptor_scatter"):
        site = scope.site(of, moved, pointer, probe=True)
        text = f"probe_rows(F, {site}, {kind}, {scope.name(pointer)}, {scope.array(rest[0])}, {scope.array(rest[1])})"
    elif name.startswith("tt.descriptor_"):
        site = scope.site(of, moved, pointer, pointer.type.block.shape, probe=True)
        text = f"probe_tile(F, {site}, {kind}, {scope.name(pointer)}, {array_list(scope, rest)}, None{extra})"
    elif is_block_pointer(pointer.type):
        site = scope.site(of, moved, pointer, probe=True)
        text = f"probe_tile(F, {site}, {kind}, {scope.name(pointer)}, None, {checked_axes(of)}{extra})"
    else:
        site = scope.site(of, moved, pointer, probe=True)
        text = f"probe(F, {site}, {kind}, {scope.name(pointer)}, {scope.name(rest[0]) if rest else 'None'}{extra})"
    lines.add(text, op.location.location)


_ATOMICS = {"tt.atomic_cas": "cas", "tt.atomic_load": "load", "tt.atomic_store": "store"}
_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
