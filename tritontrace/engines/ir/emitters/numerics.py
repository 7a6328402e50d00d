"""The checks that numerical analyses add: `nonfinite`, `overflow`, `shadow64`, and the marks of `lines`."""

from __future__ import annotations

from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.memory import as_tile, inside, tile_shape
from tritontrace.engines.ir.emitters.registry import assign, integer, operation
from tritontrace.engines.ir.lines import LINES_OP
from tritontrace.engines.ir.nonfinite import FIRST, NONFINITE
from tritontrace.engines.ir.overflow import OVERFLOW_OP
from tritontrace.engines.ir.shadow64 import COMPARE, WIDEN
from tritontrace.engines.ir.tree import Op


def _tuple(scope: Scope, values: list[object]) -> str:
    return "(" + "".join(f"{scope.array(value)}, " for value in values) + ")"  # type: ignore[arg-type]


@operation(*(NONFINITE + kind for kind in ("lanes", "reduce", "scan", "dot", "mixed")))
def _check(scope: Scope, op: Op, lines: Lines) -> None:
    of: Op = op.attributes["of"]
    results, shown = op.attributes["counts"]
    kind = op.name.removeprefix(NONFINITE)
    block = of.results[0].type.shape
    site = scope.event_site(of, scope.location(of), block, of.results[0].type.element)
    births = scope.emitter.births
    code = FIRST - len(births)
    births.append(site)
    bound = scope.emitter.bind(f"B{site.id}", site)
    parts = (op.operands[:results], op.operands[results : results + shown], op.operands[results + shown :])
    extra = ""
    if kind in ("reduce", "scan"):
        extra = f", {integer(of, 'axis')}, {of.operands[0].type.shape}"
        if kind == "scan":
            extra += f", {bool(of.attributes.get('reverse', False))}"
    target = ", ".join(scope.name(r) for r in op.results)
    arrays = ", ".join(_tuple(scope, list(part)) for part in parts)
    lines.add(f"[{target}] = nonfinite_{kind}(F, {bound}, {code}, {arrays}{extra})", op.location.location)


@operation(NONFINITE + "select")
def _select(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"nonfinite_select({', '.join(scope.array(value) for value in op.operands)})")


@operation(NONFINITE + "sink")
def _sink(scope: Scope, op: Op, lines: Lines) -> None:
    of: Op = op.attributes["of"]
    site = scope.event_site(of, scope.location(of), op.operands[0].type.shape, "")
    site.parameter = scope.root(of.operands[0])
    use = scope.emitter.bind(f"U{site.id}", site)
    births = scope.emitter.bind("BIRTHS", scope.emitter.births)
    text = f"nonfinite_sink(F, {use}, {births}, {', '.join(scope.array(value) for value in op.operands)})"
    lines.add(text, op.location.location)


@operation(NONFINITE + "sink_tile", COMPARE + "_tile")
def _sink_tile(scope: Scope, op: Op, lines: Lines) -> None:
    of: Op = op.attributes["of"]
    count = 1 if op.name.startswith(NONFINITE) else 2
    values, tile = op.operands[:count], op.operands[count:]
    shape = tile_shape(of)
    arrays = ", ".join(as_tile(scope, value, shape) for value in values)
    site = scope.event_site(
        of, scope.location(of), shape, of.operands[3 if of.name == "tt.descriptor_scatter" else 1].type.element
    )
    use = scope.emitter.bind(f"U{site.id}", site)
    site.parameter = scope.root(tile[0])
    if count == 1:
        births = scope.emitter.bind("BIRTHS", scope.emitter.births)
        text = f"nonfinite_sink(F, {use}, {births}, {arrays}, {inside(scope, of, tile)})"
    else:
        text = f"shadow_compare(F, {use}, {arrays}, {inside(scope, of, tile)})"
    lines.add(text, op.location.location)


@operation(COMPARE)
def _compare(scope: Scope, op: Op, lines: Lines) -> None:
    of: Op = op.attributes["of"]
    value = op.operands[0].type
    site = scope.event_site(of, scope.location(of), value.shape, value.element)
    site.parameter = scope.root(of.operands[0])
    use = scope.emitter.bind(f"U{site.id}", site)
    text = f"shadow_compare(F, {use}, {', '.join(scope.array(v) for v in op.operands)})"
    lines.add(text, op.location.location)


@operation(WIDEN)
def _widen(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"shadow_widen({scope.array(op.operands[0])})")


@operation(OVERFLOW_OP)
def _overflow(scope: Scope, op: Op, lines: Lines) -> None:
    left, right = op.operands
    site = scope.event_site(op, scope.location(op), left.type.shape, "")
    bound = scope.emitter.bind(f"V{site.id}", site)
    names = f"{scope.name(left)}, {scope.name(right)}, {op.attributes['operation']!r}, {op.attributes['bits']}"
    lines.add(f"overflow_op(F, {bound}, {names})", op.location.location)


@operation(LINES_OP)
def _lines(scope: Scope, op: Op, lines: Lines) -> None:
    site = scope.event_site(op, scope.location(op), (), "")
    site.attributes = {"statements": op.attributes["statements"]}
    lines.add(f"executed(F, {scope.emitter.bind(f'X{site.id}', site)})", op.location.location)
