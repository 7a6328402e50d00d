"""What a forked child process needs: locks that nobody holds, and state that says nothing of the parent.

A child has one thread, the one that forked. A lock that another thread held at that moment would stay locked for ever.
Modules put their locks through `fork_safe`; the session layer registers what else is to happen. Nothing is registered with
the operating system before the first session opens or the first traced kernel is launched: importing changes nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["around_fork", "ensure", "fork_safe", "in_child"]

L = TypeVar("L")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held: list[Any] = []
_child_callbacks: list[Callable[[], None]] = []
# Reentrant: a garbage collection inside it may make a lock.
_own = threading.RLock()
_registered = False


def fork_safe(lock: L) -> L:
    """`lock` (a `threading.Lock` or `RLock`), which will be free in a forked child, whoever held it in the parent.

    For locks that guard single steps: what its holder was doing is not undone. A lock that the forking thread itself
    holds (a client that forks) stays held, if it is reentrant; holding a plain one while forking is a mistake.
    """
    with _own:
        _locks.add(lock)
    return lock


def around_fork(lock: L) -> L:
    """`lock`, taken before every fork and released after it in both processes: what it guards is whole in the child."""
    _held.append(lock)
    return lock


def in_child(callback: Callable[[], None]) -> None:
    """Call `callback` in every forked child, in the order of registering; its locks are free by then."""
    if callback not in _child_callbacks:
        _child_callbacks.append(callback)


def ensure() -> None:
    """Be there at the next fork."""
    global _registered
    if _registered:
        return
    with _own:
        if not _registered:
            os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
            _registered = True


def _before() -> None:
    for lock in _held:
        lock.acquire()


def _after() -> None:
    for lock in reversed(_held):
        lock.release()


def _after_in_child() -> None:
    try:
        _own._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does it, since Python 3.9
        for lock in list(_locks):
            owned = getattr(lock, "_is_owned", None)
            if owned is None or not owned():
                lock._at_fork_reinit()
        for callback in _child_callbacks:
            callback()
    finally:
        _after()
