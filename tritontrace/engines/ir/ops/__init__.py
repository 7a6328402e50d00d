"""The table of pure elementwise operations: one entry an operation, from its IR name to the numpy source for it.

``ELEMENTWISE[op.name](op, args, env)`` returns one Python expression. `args` are the names of the operands' arrays
(never expressions); each array has a leading program axis and broadcasts lazily, and so may the result. An
operation with several results gives an expression for a tuple. Helpers come from `env.bind`. No expression ever
writes to an operand, but it may *be* an operand (``extf`` from bf16 is the identity), so whoever changes arrays in
place must own them. Numpy's floating-point warnings must be off while the code runs.

`emit` raises `UnsupportedOpError` where it can tell that an operation cannot be run (an unknown libdevice symbol).
"""

from __future__ import annotations

from tritontrace.engines.ir.ops.conversions import TABLE as CONVERSIONS
from tritontrace.engines.ir.ops.floats import TABLE as FLOATS
from tritontrace.engines.ir.ops.integers import TABLE as INTEGERS
from tritontrace.engines.ir.ops.libdevice import emit as emit_external
from tritontrace.engines.ir.ops.table import Emit, Environment
from tritontrace.engines.ir.tree import Op

__all__ = ["ELEMENTWISE", "Emit", "Environment", "is_elementwise"]

ELEMENTWISE: dict[str, Emit] = {
    **INTEGERS,
    **FLOATS,
    **CONVERSIONS,
    "tt.extern_elementwise": emit_external,
}


def is_elementwise(op: Op) -> bool:
    """True if `op` is pure and elementwise: it may be dropped, shared or moved."""
    if op.name == "tt.extern_elementwise":
        return bool(op.attributes.get("pure", True))
    return op.name in ELEMENTWISE
