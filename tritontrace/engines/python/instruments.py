"""The instruments of the Python engine: which builder a launch gets."""

from __future__ import annotations

from typing import Any

from tritontrace.engines.base import ARITHMETIC, LINES, OVERFLOW, UNDEFINED
from tritontrace.engines.ir.runtime import Runtime
from tritontrace.engines.python.nonfinite import NonFiniteValues
from tritontrace.engines.python.operations import Operations
from tritontrace.engines.python.undefined import UndefinedLanes
from tritontrace.engines.python.watching import Follower, Watched

__all__ = ["MADE", "watched"]

_FOLLOWERS: dict[str, type[Follower]] = {UNDEFINED: UndefinedLanes, ARITHMETIC: NonFiniteValues}

MADE = frozenset({LINES, OVERFLOW, *_FOLLOWERS})
"""The instruments that there are; lines are told by rewritten code itself."""


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
