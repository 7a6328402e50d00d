"""Gates: what a scope puts on somebody else's object without writing to the object.

A gate is kept in a side table, under the identity of the scope that put it there. So scopes that overlap can take
their gates away in any order and on any thread, and ``vars(object)`` is the same before, during and after.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tritontrace.forking import fork_safe

__all__ = ["Gate", "GateStack", "active_gate", "close_gate", "open_gate"]


class Gate:
    """One gate of one scope on one object: `call` is what calls from inside the scope get instead.

    Gates are compared by identity. `open` is True until the gate has been taken away.
    """

    __slots__ = ("__weakref__", "call", "open", "owner", "target_id")

    def __init__(self, owner: object, target_id: int, call: Callable[..., Any]) -> None:
        self.owner = owner
        self.target_id = target_id
        self.call = call
        self.open = True

    def __repr__(self) -> str:
        return f"<Gate of {self.owner!r} ({'open' if self.open else 'closed'})>"


class GateStack:
    """The gates on one object, oldest first. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._gates: tuple[Gate, ...] = ()

    def push(self, gate: Gate) -> None:
        """Puts a gate on top."""
        with self._lock:
            self._gates = (*self._gates, gate)

    def remove(self, gate: Gate) -> bool:
        """Takes this gate out, wherever it stands; returns False if it is not there (any more)."""
        with self._lock:
            kept = tuple(other for other in self._gates if other is not gate)
            found = len(kept) != len(self._gates)
            self._gates = kept
        gate.open = False
        return found

    def newest(self, accept: Callable[[Gate], bool]) -> Gate | None:
        """The newest gate that `accept` takes, or None."""
        return next((gate for gate in reversed(self._gates) if accept(gate)), None)

    def __len__(self) -> int:
        return len(self._gates)


_STACKS: dict[int, tuple[weakref.ref[Any], GateStack]] = {}
_STACKS_LOCK = fork_safe(threading.Lock())
_ENTERED: ContextVar[tuple[Gate, ...]] = ContextVar("tritontrace_entered_gates", default=())
"""The gates that this context has gone through. It may name closed gates (an exit can happen in another context), and
tasks inherit it; whether a gate still acts is answered by its stack."""


def open_gate(target: Any, owner: object, call: Callable[..., Any]) -> Gate:
    """Puts a gate of the scope `owner` on `target`; from now on it acts for calls from this context."""
    key = id(target)
    gate = Gate(owner, key, call)
    with _STACKS_LOCK:
        entry = _STACKS.get(key)
        if entry is None or entry[0]() is not target:
            entry = _STACKS[key] = (weakref.ref(target), GateStack())
        entry[1].push(gate)
    _ENTERED.set((*(old for old in _ENTERED.get() if old.open), gate))
    return gate


def close_gate(gate: Gate) -> None:
    """Takes the gate away, wherever it stands and on whichever thread; a second time does nothing."""
    with _STACKS_LOCK:
        entry = _STACKS.get(gate.target_id)
        if entry is not None:
            entry[1].remove(gate)
            if not len(entry[1]):
                del _STACKS[gate.target_id]
    gate.open = False
    entered = _ENTERED.get()
    if gate in entered:
        _ENTERED.set(tuple(other for other in entered if other is not gate))


def active_gate(target: Any) -> Gate | None:
    """The newest open gate on `target` that this context went through; None for everybody else's calls."""
    entered = _ENTERED.get()
    if not entered:
        return None
    with _STACKS_LOCK:
        entry = _STACKS.get(id(target))
        if entry is None or entry[0]() is not target:
            return None
        return entry[1].newest(lambda gate: any(gate is mine for mine in entered))


def gates_on(target: Any) -> int:
    """How many gates stand on `target`."""
    with _STACKS_LOCK:
        entry = _STACKS.get(id(target))
        return len(entry[1]) if entry is not None and entry[0]() is target else 0
