"""The companions that `definedness` adds."""

from __future__ import annotations

from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.definedness import PREFIX
from tritontrace.engines.ir.emitters.memory import as_tile, inside, tile_shape
from tritontrace.engines.ir.emitters.registry import assign, integer, operation
from tritontrace.engines.ir.locations import users_place
from tritontrace.engines.ir.tree import Op


def _arrays(scope: Scope, op: Op) -> str:
    return ", ".join(scope.array(value) for value in op.operands)


@operation(PREFIX + "seed")
def _seed(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"undefined_seed(F, {_arrays(scope, op)}, {integer(op, 'bit')}, {_by_program(op)})")


@operation(PREFIX + "unmasked", PREFIX + "any", PREFIX + "both", PREFIX + "kept", PREFIX + "select", PREFIX + "dot")
def _plain(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"undefined_{op.name.removeprefix(PREFIX)}({_arrays(scope, op)})")


@operation(PREFIX + "all")
def _all(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"undefined_all({len(op.results[0].type.shape)}, {_arrays(scope, op)})")


@operation(PREFIX + "logic")
def _logic(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"undefined_logic({_arrays(scope, op)}, {op.attributes['decides']})")


@operation(PREFIX + "reduce")
def _reduce(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"undefined_reduce({integer(op, 'axis')}, {_arrays(scope, op)})")


@operation(PREFIX + "scan")
def _scan(scope: Scope, op: Op, lines: Lines) -> None:
    axis = integer(op, "axis")
    size = op.attributes["source"][axis]
    assign(scope, op, lines, f"undefined_scan({axis}, {bool(op.attributes['reverse'])}, {size}, {_arrays(scope, op)})")


@operation(PREFIX + "sink")
def _sink(scope: Scope, op: Op, lines: Lines) -> None:
    of: Op = op.attributes["of"]
    site = scope.event_site(of, scope.location(of), (), "")
    use = scope.emitter.bind(f"U{site.id}", site)
    origins = scope.emitter.bind("ORIGINS", scope.emitter.origins)
    mixers = {bit: users_place(scope.location(mixer)) for bit, mixer in op.attributes["through"].items()}
    through = scope.emitter.bind(f"U{site.id}T", mixers)
    if op.attributes.get("tile"):
        arrays = f"{as_tile(scope, op.operands[0], tile_shape(of))}, {inside(scope, of, op.operands[1:])}"
    else:
        arrays = _arrays(scope, op)
    lines.add(
        f"undefined_sink(F, {use}, {through}, {op.attributes['role']!r}, {origins}, {_by_program(op)}, {arrays})",
        op.location.location,
    )


def _by_program(op: Op) -> bool:
    return bool(op.attributes.get("by_program"))
