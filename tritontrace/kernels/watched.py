"""Globals that a kernel was compiled with, watched for changes as Triton watches them."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from tritontrace.forking import fork_safe
from tritontrace.kernels import compat

__all__ = ["GlobalsWatch", "UsedGlobal"]

UsedGlobal = tuple[str, "weakref.ref[Any]", Any, Any]
"""A global that a kernel was compiled with: its name, the function that read it (weakly: a namespace may hold the kernel
whose record this is), the object, and a copy of its value then."""


class GlobalsWatch:
    """The globals that the compilations of one kernel read, with the values they had first."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], UsedGlobal] = {}
        self._watched: tuple[UsedGlobal, ...] = ()
        self._lock = fork_safe(threading.Lock())

    def add(self, used: dict[tuple[str, int], UsedGlobal]) -> None:
        """Watch these too; `used` is by name and identity of the namespace."""
        with self._lock:
            for key, value in used.items():
                self._used.setdefault(key, value)
            self._watched = tuple(self._used.values())

    def changed(self) -> tuple[str, Any, Any] | None:
        """The first global that has another value now: (name, value then, value now)."""
        for name, reader, original, value in self._watched:
            function = reader()
            if function is None:
                continue
            now = function.__globals__.get(name)
            if now is original and _immutable(now):
                continue
            if not _same(now, value):
                return name, value, now
        return None

    def check(self) -> None:
        """Raises `RuntimeError`, in Triton's words, for a global that has changed."""
        found = self.changed()
        if found is not None:
            name, value, now = found
            raise RuntimeError(f"Global variable {name} has changed since we compiled this kernel, from {value} to {now}")


def _immutable(value: Any) -> bool:
    if type(value) is compat.constexpr:
        value = value.value
    return isinstance(value, (int, float, str, bytes, type(None)))


def _same(now: Any, value: Any) -> bool:
    try:
        return bool(now == value)
    except Exception:  # an object whose comparison fails (an array's has no truth value) is judged by identity alone
        return now is value
