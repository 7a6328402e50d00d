"""Constants, program ids and changes of shape."""

from __future__ import annotations

import numpy as np

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.emitters.registry import assign, integer, note_block, operation
from tritontrace.engines.ir.tree import Op
from tritontrace.engines.ir.values import Axis, Separable


@operation("arith.constant")
def _constant(scope: Scope, op: Op, lines: Lines) -> None:
    kind = op.results[0].type
    value = np.asarray(op.attributes["value"], numerics.compute_dtype(kind.element))
    if value.size == 1:
        value = value.reshape((1,) * (1 + len(kind.shape)))
    else:
        value = value.reshape((1, *kind.shape))
    scope.constant(op.results[0], value)


@operation("ub.poison")
def _poison(scope: Scope, op: Op, lines: Lines) -> None:
    kind = op.results[0].type
    dtype = np.int64 if kind.is_pointer else numerics.compute_dtype(kind.element)
    scope.constant(op.results[0], np.zeros((1,) * (1 + len(kind.shape)), dtype))


@operation("tt.make_range")
def _make_range(scope: Scope, op: Op, lines: Lines) -> None:
    start, end = integer(op, "start"), integer(op, "end")
    axis = Axis(np.arange(start, end, dtype=np.int64), 1)
    scope.constant(op.results[0], Separable(0, None, (axis,), 32))
    scope.lazy.add(op.results[0])
    note_block(scope, op.results[0].type)


@operation("tt.get_program_id")
def _program_id(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"F.ids[{integer(op, 'axis')}]")


@operation("tt.get_num_programs")
def _num_programs(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"F.rt.sizes[{integer(op, 'axis')}]")


@operation("tt.splat")
def _splat(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"splat({scope.array(op.operands[0])}, {len(op.results[0].type.shape)})")


@operation("tt.unsplat")
def _unsplat(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"_flat({scope.array(op.operands[0])})")


@operation("tt.broadcast", "ttg.convert_layout")
def _broadcast(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, scope.name(op.operands[0]))
    if op.operands[0] in scope.lazy:
        scope.lazy.add(op.results[0])


@operation("tt.expand_dims")
def _expand_dims(scope: Scope, op: Op, lines: Lines) -> None:
    assign(scope, op, lines, f"expand_dims({scope.name(op.operands[0])}, {integer(op, 'axis')})")


@operation("tt.trans")
def _trans(scope: Scope, op: Op, lines: Lines) -> None:
    order = tuple(int(i) for i in op.attributes["order"])
    assign(scope, op, lines, f"transpose({scope.name(op.operands[0])}, {order})")


@operation("tt.reshape")
def _reshape(scope: Scope, op: Op, lines: Lines) -> None:
    source = op.operands[0]
    assign(scope, op, lines, f"reshape({scope.name(source)}, {source.type.shape}, {op.results[0].type.shape})")


@operation("tt.join")
def _join(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    assign(scope, op, lines, f"join({scope.array(a)}, {scope.array(b)}, {a.type.shape})")


@operation("tt.split")
def _split(scope: Scope, op: Op, lines: Lines) -> None:
    source = op.operands[0]
    target = ", ".join(scope.name(r) for r in op.results)
    lines.add(f"{target} = split({scope.array(source)}, {source.type.shape})", op.location.location)


@operation("tt.cat")
def _cat(scope: Scope, op: Op, lines: Lines) -> None:
    a, b = op.operands
    assign(scope, op, lines, f"cat({scope.array(a)}, {scope.array(b)}, {a.type.shape}, {b.type.shape})")


@operation("tt.gather")
def _gather(scope: Scope, op: Op, lines: Lines) -> None:
    source, index = op.operands
    text = f"gather({scope.array(source)}, {scope.array(index)}, {source.type.shape}, {index.type.shape}, {integer(op, 'axis')})"
    assign(scope, op, lines, text)


@operation("tt.histogram")
def _histogram(scope: Scope, op: Op, lines: Lines) -> None:
    source = op.operands[0]
    mask = scope.name(op.operands[1]) if len(op.operands) > 1 else "None"
    kind = op.results[0].type
    dtype = scope.emitter.bind("np_" + numerics.compute_dtype(kind.element).name, numerics.compute_dtype(kind.element))
    assign(scope, op, lines, f"histogram({scope.array(source)}, {mask}, {source.type.shape}, {kind.shape[0]}, {dtype})")
