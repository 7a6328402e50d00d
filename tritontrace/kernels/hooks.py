"""Triton's own launch hooks, for launches that Triton does not make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import triton

from tritontrace.kernels import compat
from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["call_pre_run_hooks", "launch_hooks"]


def call_pre_run_hooks(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Calls what ``kernel.add_pre_run_hook`` added, with the arguments that the kernel's own class gives."""
    hooks = kernel.pre_run_hooks
    if not hooks:
        return
    if issubclass(type(kernel), compat.JITFunction):
        debug = kwargs.get("debug", kernel.debug) or triton.knobs.runtime.debug
        given = {**kwargs, "debug": debug, "instrumentation_mode": triton.knobs.compilation.instrumentation_mode}
    else:
        given = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    for hook in list(hooks):
        hook(*args, **given)


@contextmanager
def launch_hooks(kernel: Any, bound: BoundLaunch, grid: tuple[int, int, int], metadata: Callable[[], Any]) -> Iterator[None]:
    """Fires ``knobs.runtime.launch_enter_hook`` before and ``launch_exit_hook`` after, also when the kernel failed.

    Both get Triton's lazy dictionary of launch metadata; `metadata` (a compile) is asked only if a hook looks into it
    and the kernel has a `launch_metadata` function.
    """
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    if not (_listens(enter) or _listens(leave)):
        yield
        return
    described = compat.LazyDict({"name": bound.kernel_name, "function": None, "stream": None})
    describe = getattr(kernel, "launch_metadata", None)
    if describe is not None:
        described.add(lambda: describe(grid, metadata(), dict(bound.values)), ())
    if enter is not None:
        enter(described)
    try:
        yield
    finally:
        if leave is not None:
            leave(described)


def _listens(hook: Any) -> bool:
    return hook is not None and bool(getattr(hook, "calls", True))
