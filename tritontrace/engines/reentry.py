"""The engine computes with some of torch's functions. Who replaces those by a kernel must not have it launched in their place.

``torch.library`` lets anybody give torch's CPU functions an implementation of their own, and a library of Triton kernels may
do so for all of them. A launch from there would wait for itself: for the engine, and for locks of the library's own.
"""

from __future__ import annotations

import threading
from typing import Any

from tritontrace.errors import UntraceableLaunchError
from tritontrace.scopes.identity import base_function

__all__ = ["COMPUTING", "refuse_reentry"]


class _Computing(threading.local):
    function: Any = None


COMPUTING = _Computing()
"""`function` is the torch function that the engine is calling on this thread, or None."""


def refuse_reentry(kernel: Any) -> None:
    """Raise `UntraceableLaunchError` for a launch that happens inside the engine's own computation."""
    function = COMPUTING.function
    if function is None:
        return
    kernel = getattr(base_function(kernel), "__name__", type(kernel).__name__)
    name = f"torch.{getattr(function, '__name__', '?')}"
    raise UntraceableLaunchError(
        f"kernel {kernel!r} is launched by an implementation of {name} on the CPU, which the engine computes with: torch's own "
        "has been replaced (torch.library, flag_gems.use_gems()). Replace only what the session is about, as by "
        "use_gems(include=[...])"
    )
