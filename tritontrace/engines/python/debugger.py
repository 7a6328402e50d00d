"""``breakpoint()`` in a kernel: pdb, whose stack has the kernel's frames and the user's only."""

from __future__ import annotations

import builtins
import os
import pdb
import sys
from types import FrameType
from typing import Any

from tritontrace.engines.python import stepping
from tritontrace.engines.python.state import current

__all__ = ["breakpoint_of", "stop"]


class KernelPdb(pdb.Pdb):
    """pdb without the frames between those of the user's, so that ``w``, ``u`` and ``d`` go from kernel line to kernel line."""

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """The stack that pdb shows, and where in it `f` stands."""
        stack, index = super().get_stack(f, t)
        at = stack[index][0]
        shown = [
            (frame, line) for frame, line in stack if frame is at or not (stepping.hidden(frame) or stepping.beneath_all(frame))
        ]
        return shown, next(i for i, (frame, _) in enumerate(shown) if frame is at)


def breakpoint_of(function: Any) -> Any:
    """What to call for ``breakpoint`` or ``pdb.set_trace``: `function` itself, unless it would start a plain pdb now."""
    chosen = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    if function is builtins.breakpoint and (sys.breakpointhook is not sys.__breakpointhook__ or chosen != "pdb.set_trace"):
        return function
    if getattr(pdb.set_trace, "__module__", None) != "pdb":  # somebody (pytest) has put another one there
        return function
    return stop


def stop(*, header: str | None = None) -> None:
    """Stop in the caller, a kernel, in the debugger that runs already or in one of the launch's own."""
    frame = sys._getframe(1)
    trace = sys.gettrace()
    debugger: Any = getattr(getattr(trace, "trace", trace), "__self__", None)
    if not isinstance(debugger, pdb.Pdb):
        state = current()
        if state.debugger is None:
            state.debugger = KernelPdb()
        debugger = state.debugger
    if header is not None:
        debugger.message(header)
    debugger.set_trace(frame)
    # from here on a function's call would be stepped into, but for a builtin's
    trace = sys.gettrace()
    sys.settrace(None)
    stepping.follow_with(trace, frame)
