"""The table of emitters, and what they share.

Pure elementwise operations are in `ops.ELEMENTWISE`. An emitter gets (scope, op, lines) and adds the lines for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritontrace.engines.ir.codegen import Lines, Scope
from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.tree import Op, Type

__all__ = ["EMITTERS", "array_list", "assign", "emit", "integer", "knows", "note_block", "operation"]

EmitFunction = Callable[[Scope, Op, Lines], None]
EMITTERS: dict[str, EmitFunction] = {}
"""Operation name -> emitter."""

NOTHING = frozenset(
    {
        "gpu.barrier",
        "ttg.barrier",
        "ttg.local_barrier",
        "llvm.intr.assume",
        "nvvm.barrier0",
        # Launches run one after another: nothing to wait for, and nobody to tell.
        "tt.grid_dependency_launch_dependents",
        "tt.grid_dependency_wait",
        "tt.func",
    }
)
"""Operations that leave no trace in a lockstep execution."""


def operation(*names: str) -> Callable[[EmitFunction], EmitFunction]:
    """Register an emitter for `names`."""

    def register(function: EmitFunction) -> EmitFunction:
        for name in names:
            EMITTERS[name] = function
        return function

    return register


def knows(name: str) -> bool:
    """True if the engine can run the operation at all."""
    return name in EMITTERS or name in ELEMENTWISE or name in NOTHING


def emit(scope: Scope, op: Op, lines: Lines) -> None:
    """Write one op; raises `UnsupportedOpError` for one that nobody knows."""
    emitter = EMITTERS.get(op.name)
    if emitter is not None:
        emitter(scope, op, lines)
        return
    elementwise = ELEMENTWISE.get(op.name)
    if elementwise is not None:
        text = elementwise(op, [scope.array(v) for v in op.operands], scope.emitter)
        lines.add(f"{', '.join(scope.name(r) for r in op.results)} = {text}", op.location.location)
        for r in op.results:
            note_block(scope, r.type)
        return
    if op.name not in NOTHING:
        why = "it has no entry for this operation; to run the kernel untraced, on a GPU, leave it out with session(kernels=[...])"
        raise scope.emitter.unsupported(op, why, scope.location(op))


def note_block(scope: Scope, kind: Type) -> None:
    """Remember how large a tile is; batches are sized by the largest."""
    if kind.shape:
        size = 1
        for n in kind.shape:
            size *= n
        scope.emitter.max_block = max(scope.emitter.max_block, size)


def assign(scope: Scope, op: Op, lines: Lines, text: str) -> None:
    """Write an op with one result."""
    lines.add(f"{scope.name(op.results[0])} = {text}", op.location.location)
    scope.mark(op.results, op.name)
    note_block(scope, op.results[0].type)


def integer(op: Op, name: str, default: int = 0) -> int:
    """An integer attribute that a version may leave out."""
    value = op.attributes.get(name, default)
    return int(value)


def array_list(scope: Scope, values: Any) -> str:
    """The list expression of some values as arrays."""
    return "[" + ", ".join(scope.array(v) for v in values) + "]"
