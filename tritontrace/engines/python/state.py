"""The launch that the running code belongs to, in a context variable: rewritten functions are shared by all launches."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Runtime
    from tritontrace.engines.python.operations import Operations
    from tritontrace.kernels.targets import Target

__all__ = ["CURRENT", "State", "current"]


@dataclass(slots=True, eq=False)
class State:
    """One launch while it runs: `semantic`, `generator` are what Triton's builtins take as ``_semantic``, ``_generator``.

    `used_globals` are the constants of modules that it has read (see `engines.ir.shadows`). With `lines` it tells of the
    statements that it executes; `executed` are those that it has told of. `debugger` is ``breakpoint()``'s.
    """

    builder: Operations
    semantic: Any
    generator: Any
    rt: Runtime
    target: Target
    used_globals: dict[Any, Any] = field(default_factory=dict)
    lines: bool = False
    executed: set[tuple[str, int, bool]] = field(default_factory=set)
    debugger: Any = None


CURRENT: ContextVar[State] = ContextVar("tritontrace_python_engine")


def current() -> State:
    """The running launch; `RuntimeError` where there is none (a value that was kept after its launch)."""
    state = CURRENT.get(None)
    if state is None:
        raise RuntimeError(
            "a value of a traced kernel computes only in a launch; print it, compare it, or keep int(x), float(x) or x.numpy()"
        )
    return state
