"""Things remembered about somebody else's object, for as long as that object lives.

A kernel must not be used as a dictionary key: hashing a JITFunction computes its cache key and writes it to the object.
It is identified by ``id`` instead, and the entry goes when the object goes, so that an id that is used again finds nothing.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tritontrace.forking import fork_safe

__all__ = ["WeakIdentityMap", "identity_token"]

V = TypeVar("V")


class WeakIdentityMap(Generic[V]):
    """Object -> value by identity; safe to use from several threads, and it neither hashes nor compares the objects."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}
        # Reentrant: a garbage collection inside a locked section may run the callback on this very thread.
        self._lock = fork_safe(threading.RLock())

    def get(self, owner: Any) -> V | None:
        """The value of `owner`, or None."""
        entry = self._entries.get(id(owner))
        return entry[1] if entry is not None and entry[0]() is owner else None

    def get_or_create(self, owner: Any, create: Callable[[], V]) -> V:
        """The value of `owner`, made by `create` if there is none; of two threads that race, both get the first one's."""
        value = self.get(owner)
        if value is not None:
            return value
        made = create()
        key = id(owner)

        def forget(dead: weakref.ref[Any]) -> None:
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None and entry[0] is dead:
                    del self._entries[key]

        with self._lock:
            value = self.get(owner)
            if value is None:
                self._entries[key] = (weakref.ref(owner, forget), made)
                value = made
        return value

    def __len__(self) -> int:
        return len(self._entries)


_tokens: WeakIdentityMap[int] = WeakIdentityMap()
_numbers = itertools.count(1)


def identity_token(owner: Any) -> int:
    """A number that stands for this object and never for another one of this process."""
    return _tokens.get_or_create(owner, lambda: next(_numbers))
