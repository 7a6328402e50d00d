"""Integers, pointers and masks that may stay lazy (see `values`)."""

from __future__ import annotations

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.registry import EMITTERS, EmitFunction, assign, integer, note_block, operation
from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.tree import Op


def _lazy_integer(function: str) -> EmitFunction:
    def emitter(scope: Scope, op: Op, lines: Lines) -> None:
        kind = op.results[0].type
        if kind.shape and kind.element in ("i32", "i64"):
            a, b = op.operands
            assign(scope, op, lines, f"{function}({scope.name(a)}, {scope.name(b)}, {kind.element[1:]})")
        else:
            text = ELEMENTWISE[op.name](op, [scope.array(v) for v in op.operands], scope.emitter)
            lines.add(f"{scope.name(op.results[0])} = {text}", op.location.location)

    return emitter


EMITTERS["arith.addi"] = _lazy_integer("iadd")
EMITTERS["arith.subi"] = _lazy_integer("isub")
EMITTERS["arith.muli"] = _lazy_integer("imul")


def _plain(scope: Scope, op: Op, lines: Lines) -> None:
    text = ELEMENTWISE[op.name](op, [scope.array(v) for v in op.operands], scope.emitter)
    lines.add(f"{scope.name(op.results[0])} = {text}", op.location.location)
    note_block(scope, op.results[0].type)


@operation("arith.extsi")
def _extsi(scope: Scope, op: Op, lines: Lines) -> None:
    kind = op.results[0].type
    if kind.shape and kind.element == "i64" and op.operands[0].type.element == "i32":
        assign(scope, op, lines, f"sext({scope.name(op.operands[0])}, 64)")
    else:
        _plain(scope, op, lines)


@operation("arith.cmpi")
def _cmpi(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    predicate = integer(op, "predicate")
    if a.type.shape and predicate < 6 and a.type.element in ("i32", "i64"):
        assign(scope, op, lines, f"compare({scope.name(a)}, {scope.name(b)}, {predicate})")
    else:
        _plain(scope, op, lines)


@operation("arith.andi")
def _andi(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    if a.type.shape and a.type.element == "i1":
        assign(scope, op, lines, f"land({scope.name(a)}, {scope.name(b)})")
    else:
        _plain(scope, op, lines)


@operation("tt.addptr")
def _addptr(scope: Scope, op: Op, lines: Lines) -> None:
    pointer, offset = op.operands
    kind = op.results[0].type
    size = numerics.element_bytes(kind.pointee.element)
    if kind.shape:
        assign(scope, op, lines, f"addptr({scope.name(pointer)}, {scope.name(offset)}, {size})")
    else:
        assign(scope, op, lines, f"{scope.name(pointer)} + {scope.name(offset)}.astype(np.int64) * {size}")
