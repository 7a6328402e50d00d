"""Parsing of Python source on many threads.

CPython 3.11 counts the depth of the tree that it builds in one place for all threads, and gives up with a `SystemError` if
another thread has come in between. Ours wait for each other; somebody else's (Triton's interpreter, a compile) may still come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tritontrace.forking import fork_safe

__all__ = ["undisturbed"]

T = TypeVar("T")

_LOCK = fork_safe(threading.RLock())


def undisturbed(parse: Callable[[], T]) -> T:
    """What `parse` returns, which parses or compiles source; it may be called again."""
    for attempt in range(3, -1, -1):
        try:
            with _LOCK:
                return parse()
        except SystemError:
            if not attempt:
                raise
    raise AssertionError("unreachable")
