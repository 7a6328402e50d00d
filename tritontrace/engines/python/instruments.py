"""The instruments of the Python engine: which builder a launch gets. (Lines are told by rewritten code itself.)"""

from __future__ import annotations

from typing import Any

from tritontrace.engines.base import ARITHMETIC, OPERATIONS, OVERFLOW, SHADOW, UNDEFINED
from tritontrace.engines.ir.runtime import Runtime
from tritontrace.engines.python.nonfinite import NonFiniteValues
from tritontrace.engines.python.operations import Operations
from tritontrace.engines.python.shadow64 import Shadow64
from tritontrace.engines.python.tallies import Tallies
from tritontrace.engines.python.undefined import UndefinedLanes
from tritontrace.engines.python.watching import Follower, Watched

__all__ = ["watched"]

_FOLLOWERS: dict[str, type[Follower]] = {
    UNDEFINED: UndefinedLanes,
    ARITHMETIC: NonFiniteValues,
    SHADOW: Shadow64,
    OPERATIONS: Tallies,
}


def watched(
    runtime: Runtime, options: Any, codegen_functions: dict[str, Any], module_map: dict[str, Any], instruments: frozenset[str]
) -> Operations:
    """A launch's builder, which follows what `instruments` ask for."""
    followers = [follower for name, follower in _FOLLOWERS.items() if name in instruments]
    if not followers and OVERFLOW not in instruments:
        return Operations(runtime, options, codegen_functions, module_map)
    builder = Watched(runtime, options, codegen_functions, module_map)
    builder.followers = [part for follower in followers for part in follower(builder).parts()]
    builder.checks_overflow = OVERFLOW in instruments
    return builder
