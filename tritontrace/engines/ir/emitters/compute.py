"""Dot, reduce, scan, print, assert and inline assembly."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.asm import normalized
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.registry import array_list, assign, integer, note_block, operation
from tritontrace.engines.ir.runtime import AsmSite
from tritontrace.engines.ir.scaled import Operand
from tritontrace.engines.ir.tallies import TALLY
from tritontrace.engines.ir.tree import Op, Region, walk

_PRECISIONS = {0: "tf32", 1: "tf32x3", 2: "ieee", 3: "bf16x3", 4: "bf16x6"}


@operation("tt.dot")
def _dot(scope: Scope, op: Op, lines: Lines) -> None:
    a, b, c = op.operands
    precision = op.attributes.get("inputPrecision", 0)
    name = precision if isinstance(precision, str) and not precision.isdigit() else _PRECISIONS.get(int(precision), "ieee")
    where = scope.location(op)
    site = scope.event_site(op, where, op.results[0].type.shape, op.results[0].type.element)
    bound = scope.emitter.bind(f"D{site.id}", site)
    elements = (a.type.element, b.type.element)
    text = (
        f"dot_op(F, {bound}, {scope.array(a)}, {scope.array(b)}, {scope.array(c)}, {a.type.shape}, {b.type.shape}, "
        f"{op.results[0].type.element!r}, {elements}, {name!r})"
    )
    assign(scope, op, lines, text)


_E2M1 = 4
"""Triton's ScaleDotElemType of two values in a byte."""


@operation("tt.dot_scaled")
def _dot_scaled(scope: Scope, op: Op, lines: Lines) -> None:
    a, b, c = op.operands[:3]
    sizes = op.attributes.get("operandSegmentSizes") or [1, 1, 1, int(len(op.operands) > 3), int(len(op.operands) > 4)]
    scales = list(op.operands[3:])
    a_scale = scales.pop(0) if sizes[3] else None
    b_scale = scales.pop(0) if sizes[4] else None
    where = scope.location(op)
    kind = op.results[0].type
    site = scope.event_site(op, where, kind.shape, kind.element)
    bound = scope.emitter.bind(f"D{site.id}", site)
    names = []
    # K is the last axis of the left operand and the last but one of the right one.
    for side, value, scale, along_k in (("a", a, a_scale, 1), ("b", b, b_scale, 0)):
        packed_axis = None
        if integer(op, f"{side}_elem_type") == _E2M1:
            packed = bool(op.attributes.get("lhs_k_pack" if side == "a" else "rhs_k_pack", True))
            packed_axis = along_k if packed else 1 - along_k
        shape, element = ((), "") if scale is None else (scale.type.shape, scale.type.element)
        operand = Operand(value.type.shape, packed_axis, along_k, shape, element)
        names.append(scope.emitter.bind(scope.emitter.fresh("M"), operand))
    given = ["None" if v is None else scope.array(v) for v in (a, b, c, a_scale, b_scale)]
    assign(scope, op, lines, f"dot_scaled_op(F, {bound}, {', '.join(names + given)}, {kind.element!r})")


_EXACT = {
    "arith.addi": np.add,
    "arith.addf": np.add,
    "arith.muli": np.multiply,
    "arith.mulf": np.multiply,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}


_EXTREMA = ("arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf")


def _ufunc_of(region: Region, element: str, kind: str) -> Any:
    """The numpy function that a combine region is, or None."""
    block = region.block
    if len(block.ops) != 2 or len(block.arguments) != 2:
        return None
    op, end = block.ops
    if end.operands != op.results or op.operands != block.arguments:
        return None
    if op.name in ("arith.addf", "arith.mulf") and element not in ("f32", "f64"):
        return None  # narrow floats round at every step
    if op.name in _EXTREMA and kind == "scan":
        return None  # numpy does not order zeros by sign; of a reduction's result that is put right afterwards
    if element == "i1" and op.name in ("arith.addi", "arith.muli"):
        return np.bitwise_xor if op.name == "arith.addi" else np.bitwise_and
    return _EXACT.get(op.name)


def _scalar_function(scope: Scope, region: Region, kind: str) -> tuple[str, str]:
    """Write the function of scalars that a reduction, a scan or a map holds; (its name, its free values)."""
    if len(region.blocks) == 1:
        return scope.region(region, kind)
    from tritontrace.engines.ir.flatten import nested_region

    return nested_region(scope, region)


def _branches(region: Region) -> bool:
    """True if lanes may take different ways through the region: it cannot be run on whole tiles then."""
    return len(region.blocks) > 1 or any(op.regions or op.name == "tt.call" for op in walk(region))


@operation("tt.reduce", "tt.scan")
def _reduce(scope: Scope, op: Op, lines: Lines) -> None:
    axis = integer(op, "axis")
    source = op.operands[0].type
    kind = op.name[3:]
    reverse = bool(op.attributes.get("reverse", False))
    where = scope.location(op)
    site = scope.event_site(op, where, source.shape, source.element)
    bound = scope.emitter.bind(f"R{site.id}", site)
    ufunc = _ufunc_of(op.regions[0], source.element, kind) if len(op.operands) == 1 else None
    target = "[" + ", ".join(scope.name(r) for r in op.results) + "]"
    inputs = array_list(scope, op.operands)
    if ufunc is not None:
        name = scope.emitter.bind("np_" + ufunc.__name__, ufunc)
        combine, free = name, "None"
    else:
        combine, free = _scalar_function(scope, op.regions[0], kind)
        if _branches(op.regions[0]):
            combine = f"lanewise({combine})"
    text = f"{target} = {kind}_op(F, {bound}, {combine}, {free}, {inputs}, {source.shape}, {axis}, {reverse})"
    lines.add(text, op.location.location)


@operation("tt.map_elementwise")
def _map_elementwise(scope: Scope, op: Op, lines: Lines) -> None:
    region = op.regions[0]
    pack = integer(op, "pack", 1)
    results = ", ".join(scope.name(r) for r in op.results)
    name, free = _scalar_function(scope, region, "map")
    shape = op.operands[0].type.shape
    lines.add(f"[{results}] = map_op(F, {name}, {free}, {array_list(scope, op.operands)}, {shape}, {pack})", op.location.location)


@operation("tritontrace.not_all")
def _not_all(scope: Scope, op: Op, lines: Lines) -> None:
    value = op.operands[0]
    rank = len(value.type.shape)
    text = f"~{scope.array(value)}.all(axis={tuple(range(1, rank + 1))})" if rank else f"~{scope.array(value)}"
    assign(scope, op, lines, text)


@operation("tt.print")
def _print(scope: Scope, op: Op, lines: Lines) -> None:
    where = scope.location(op)
    site = scope.event_site(op, where, op.operands[0].type.shape if op.operands else (), "")
    bound = scope.emitter.bind(f"P{site.id}", site)
    prefix = str(op.attributes.get("prefix", ""))
    hexadecimal = bool(op.attributes.get("hex", False))
    signed = op.attributes.get("isSigned") or []
    kinds = []
    for k, value in enumerate(op.operands):
        element = value.type.element
        unsigned = element[0] == "i" and element != "i1" and k < len(signed) and not int(signed[k])
        kinds.append("pointer" if value.type.is_pointer else "unsigned" if unsigned else "")
    lines.add(f"print_op(F, {bound}, {prefix!r}, {array_list(scope, op.operands)}, {kinds}, {hexadecimal})", op.location.location)


@operation("tt.assert")
def _assert(scope: Scope, op: Op, lines: Lines) -> None:
    where = scope.location(op)
    condition = op.operands[0]
    site = scope.event_site(op, where, condition.type.shape, "i1")
    bound = scope.emitter.bind(f"A{site.id}", site)
    mask = scope.array(op.operands[1]) if len(op.operands) > 1 else "None"
    message = str(op.attributes.get("message", ""))
    lines.add(f"assert_op(F, {bound}, {scope.array(condition)}, {message!r}, {mask})", op.location.location)


@operation("tt.elementwise_inline_asm")
def _inline_asm(scope: Scope, op: Op, lines: Lines) -> None:
    # Who computes it is asked at each launch: sessions bring functions of their own.
    kinds = [r.type for r in op.results]
    block = kinds[0].shape if kinds else ()
    text = normalized(str(op.attributes.get("asm_string", "")))
    site = AsmSite(text, [kind.element for kind in kinds], block, scope.location(op).location)
    scope.emitter.assembly.append(site)
    for kind in kinds:
        note_block(scope, kind)
    name = scope.emitter.bind(scope.emitter.fresh("asm"), site)
    target = "[" + ", ".join(scope.name(r) for r in op.results) + "] = " if kinds else ""
    arguments = "".join(", " + scope.array(v) for v in op.operands)
    lines.add(f"{target}asm_op(F, {name}{arguments})", op.location.location)


@operation(TALLY)
def _tally(scope: Scope, op: Op, lines: Lines) -> None:
    site = scope.event_site(op, scope.location(op), (), "")
    site.attributes["operations"] = op.attributes["operations"]
    lines.add(f"work_op(F, {scope.emitter.bind(f'W{site.id}', site)})", op.location.location)
