"""How each structural, memory and tile operation is written: one entry an operation.

Pure elementwise operations are in `ops.ELEMENTWISE`. An emitter gets (scope, op, lines) and adds the lines for it.
"""

from __future__ import annotations

from tritontrace.engines.ir.emitters import compute, control, indices, memory, numerics, probes, shapes, undefined
from tritontrace.engines.ir.emitters.registry import EMITTERS, emit, knows

__all__ = ["EMITTERS", "compute", "control", "emit", "indices", "knows", "memory", "numerics", "probes", "shapes", "undefined"]
