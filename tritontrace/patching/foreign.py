"""Launchers that are not Triton's: whether what they launch ends in a launch of Triton's, which is traced, or is reported.

A kernel class that Triton does not define, with a ``run`` of its own, may do anything. It is let run, and what happens on
this thread meanwhile tells: a traced launch inside, by whatever way it came, is the launch that was meant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tritontrace.engines.reentry import refuse_reentry
from tritontrace.errors import UntraceableLaunchError
from tritontrace.scopes import callsite, identity
from tritontrace.scopes.identity import Scope, hold, release

__all__ = ["launched", "note_traced_launch", "refuse"]

_here = threading.local()
"""`seen`: a launch has been traced on this thread since the innermost foreign launcher was entered."""


def note_traced_launch() -> None:
    """A launch is traced on this thread."""
    _here.seen = True


def launched(
    wrapped: Callable[..., Any], kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scopes: tuple[Scope, ...]
) -> Any:
    """A launcher that is not Triton's. It may end in one of Triton's own, which is then traced, so it runs first."""
    from tritontrace.kernels.layers import is_layer_copy

    if is_layer_copy(kernel):
        # Our copy of a user's subclass of Triton's Autotuner or Heuristics, inside a traced launch.
        return wrapped(*args, **kwargs)
    refuse_reentry(kernel)  # before it may take a lock of its own
    held = hold(tuple(scope for scope in scopes if scope.accepts(kernel)))
    outer = getattr(_here, "seen", False)
    name = getattr(identity.base_function(kernel), "__name__", type(kernel).__name__)
    reason = f"it is launched by {type(kernel).__module__}.{type(kernel).__qualname__}, not by Triton's JITFunction"
    try:
        if held and not _may_end_in_triton(kernel):
            refuse(name, reason, held)
            return wrapped(*args, **kwargs)
        _here.seen = False
        result = wrapped(*args, **kwargs)
        if held and not _here.seen:
            refuse(name, reason, held)
        return result
    finally:
        _here.seen = outer or getattr(_here, "seen", False)
        release(held)


def _may_end_in_triton(kernel: Any) -> bool:
    """True if it is, or has beneath it, a kernel of Triton's, whose own launch would be traced."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    for _ in range(64):
        if isinstance(kernel, (JITFunction, InterpretedFunction, Autotuner, Heuristics)):
            return True
        kernel = getattr(kernel, "fn", None)
        if kernel is None:
            return False
    return False


def refuse(kernel: str, reason: str, scopes: tuple[Scope, ...]) -> None:
    """Say that a launch cannot be traced: raise for a strict session, warn once in each other one."""
    if any(scope.strict for scope in scopes):
        raise UntraceableLaunchError(f"the launch of kernel {kernel!r} cannot be traced: {reason}")
    fresh = [scope for scope in scopes if scope.session is not None and scope.session.first_untraceable(kernel, reason)]
    if fresh:
        callsite.warn(f"the launch of kernel {kernel!r} is not traced: {reason}; it runs as if no session were open")
