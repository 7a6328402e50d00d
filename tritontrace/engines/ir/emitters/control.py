"""Regions, loops, branches and calls."""

from __future__ import annotations

from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.registry import operation
from tritontrace.engines.ir.tree import Op


@operation("scf.yield", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")
def _yield(scope: Scope, op: Op, lines: Lines) -> None:
    lines.add("return [" + ", ".join(scope.name(v) for v in op.operands) + "]", op.location.location)


@operation("scf.condition")
def _condition(scope: Scope, op: Op, lines: Lines) -> None:
    values = ", ".join(scope.name(v) for v in op.operands[1:])
    lines.add(f"return {scope.array(op.operands[0])}, [{values}]", op.location.location)


def loop_site(scope: Scope, op: Op) -> str:
    """Bind the event site of a loop."""
    site = scope.event_site(op, scope.location(op), (), "")
    return scope.emitter.bind(f"L{site.id}", site)


@operation("scf.for")
def _for(scope: Scope, op: Op, lines: Lines) -> None:
    name, free = scope.region(op.regions[0], "loop", op.location.location)
    lower, upper, step, *inits = op.operands
    carried = "[" + ", ".join(scope.name(v) for v in inits) + "]"
    unsigned = "unsignedCmp" in op.attributes
    target = scope.results(op)
    bounds = f"{scope.name(lower)}, {scope.name(upper)}, {scope.name(step)}"
    lines.add(
        f"{target}run_for(F, {name}, {free}, {bounds}, {carried}, {loop_site(scope, op)}, {unsigned})", op.location.location
    )


@operation("scf.if")
def _if(scope: Scope, op: Op, lines: Lines) -> None:
    then, then_free = scope.region(op.regions[0], "then")
    other, other_free = "None", "None"
    if len(op.regions) > 1 and op.regions[1].blocks:
        other, other_free = scope.region(op.regions[1], "other")
    target = scope.results(op)
    condition = scope.array(op.operands[0])
    lines.add(f"{target}run_if(F, {condition}, {then}, {then_free}, {other}, {other_free})", op.location.location)


@operation("scf.while")
def _while(scope: Scope, op: Op, lines: Lines) -> None:
    before, before_free = scope.region(op.regions[0], "test")
    after, after_free = scope.region(op.regions[1], "loop")
    carried = "[" + ", ".join(scope.name(v) for v in op.operands) + "]"
    target = scope.results(op)
    text = f"{target}run_while(F, {before}, {before_free}, {after}, {after_free}, {carried}, {loop_site(scope, op)})"
    lines.add(text, op.location.location)


@operation("tt.call")
def _call(scope: Scope, op: Op, lines: Lines) -> None:
    from tritontrace.engines.ir.flatten import nested_call

    name = nested_call(scope, op)
    arguments = "[" + ", ".join(scope.name(v) for v in op.operands) + "]"
    lines.add(f"{scope.results(op)}{name}(F, {arguments})", op.location.location)
