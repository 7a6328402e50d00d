"""Elementwise operations, computed by the table that the IR engine writes its code from: the number rules are the same ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.tree import NO_LOCATION, Op, Type, Value
from tritontrace.errors import UnsupportedOpError

__all__ = ["COMPARISONS", "NAMES", "evaluator"]

Attributes = tuple[tuple[str, Any], ...]

_CMPI = ("EQ", "NE", "SLT", "SLE", "SGT", "SGE", "ULT", "ULE", "UGT", "UGE")
_CMPF = ("", "OEQ", "OGT", "OGE", "OLT", "OLE", "ONE", "ORD", "UEQ", "UGT", "UGE", "ULT", "ULE", "UNE", "UNO")

NAMES: dict[str, str] = {
    "add": "arith.addi",
    "sub": "arith.subi",
    "mul": "arith.muli",
    "sdiv": "arith.divsi",
    "udiv": "arith.divui",
    "srem": "arith.remsi",
    "urem": "arith.remui",
    "and": "arith.andi",
    "or": "arith.ori",
    "xor": "arith.xori",
    "shl": "arith.shli",
    "lshr": "arith.shrui",
    "ashr": "arith.shrsi",
    "maxsi": "arith.maxsi",
    "minsi": "arith.minsi",
    "maxui": "arith.maxui",
    "minui": "arith.minui",
    "fadd": "arith.addf",
    "fsub": "arith.subf",
    "fmul": "arith.mulf",
    "fdiv": "arith.divf",
    "frem": "arith.remf",
    "fneg": "arith.negf",
    "maxnumf": "arith.maxnumf",
    "minnumf": "arith.minnumf",
    "maximumf": "arith.maximumf",
    "minimumf": "arith.minimumf",
    "precise_divf": "tt.precise_divf",
    "approx_divf": "tt.approx_divf",
    "precise_sqrt": "tt.precise_sqrt",
    "umulhi": "tt.mulhiui",
    "fma": "math.fma",
    "iabs": "math.absi",
    "fabs": "math.absf",
    **{name: f"math.{name}" for name in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil")},
}
"""``create_<key>`` of Triton's builder makes this operation, whose result has the type of its first operand."""

COMPARISONS: dict[str, tuple[str, int]] = {
    **{f"icmp{name}": ("arith.cmpi", number) for number, name in enumerate(_CMPI)},
    **{f"fcmp{name}": ("arith.cmpf", number) for number, name in enumerate(_CMPF) if name},
}
"""The comparisons among the builder's methods, with their predicates' numbers."""


class _Names:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {"np": np}

    def bind(self, name: str, value: Any) -> str:
        known = self.names.setdefault(name, value)
        if known is value:
            return name
        fresh = f"{name}_{len(self.names)}"
        self.names[fresh] = value
        return fresh


@lru_cache(maxsize=8192)
def evaluator(name: str, operands: tuple[Type, ...], result: Type, attributes: Attributes = ()) -> Callable[..., Any]:
    """The function of arrays that `name` is for operands of these types; it may return an operand, and changes none.

    Raises `UnsupportedOpError` for what no engine computes (an unknown libdevice symbol).
    """
    emit = ELEMENTWISE.get(name)
    if emit is None:
        raise UnsupportedOpError(f"the Python engine has no elementwise operation {name!r}")
    values = [Value(kind, None, number) for number, kind in enumerate(operands)]
    op = Op(name, values, [Value(result, None, len(values))], dict(attributes), [], [], NO_LOCATION)
    env = _Names()
    arguments = [f"a{number}" for number in range(len(operands))]
    source = f"lambda {', '.join(arguments)}: {emit(op, arguments, env)}"
    function: Callable[..., Any] = eval(compile(source, f"<tritontrace {name}>", "eval"), env.names)
    return function
