"""All or nothing: several steps that are undone, in reverse, when a later one fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

__all__ = ["Transaction", "add_note"]

_log = logging.getLogger("tritontrace")
_T = TypeVar("_T")


def add_note(error: BaseException, note: str) -> None:
    """Attach `note` to `error`; on Python 3.10, which has no notes, it goes to the log instead."""
    attach = getattr(error, "add_note", None)
    if attach is None:
        _log.error("%s: %s: %s", type(error).__name__, error, note)
    else:
        attach(note)


class Transaction:
    """Steps with their undo, as one unit.

    ::

        with Transaction("hooks of 'softmax'") as installed:
            for client in clients:
                installed.do(lambda: register(client), undo=lambda: unregister(client))
        ...
        installed.undo()

    Inside the ``with`` block an exception of any kind (also KeyboardInterrupt) undoes the steps done so far in reverse
    order and then reaches the caller unchanged. When the block ends well the steps stay, and `undo` takes them out
    later, once. Every undo is called even when another one fails; one failure never hides another: beside a first
    error the failures of undoing are attached to it as notes.

    Not shared between threads: it belongs to the thread that installs.
    """

    def __init__(self, name: str = "transaction") -> None:
        self.name = name
        self._undo: list[Callable[[], object]] = []

    def do(self, step: Callable[[], _T], undo: Callable[[], object]) -> _T:
        """Run `step` and return what it returned; `undo` is remembered once it has succeeded."""
        result = step()
        self._undo.append(undo)
        return result

    def on_undo(self, undo: Callable[[], object]) -> None:
        """Remember `undo` for a step that has just been done, or that cleans up after itself half done."""
        self._undo.append(undo)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            for failure in self._unwind():
                add_note(error, f"while undoing {self.name}: {type(failure).__name__}: {failure}")

    def undo(self) -> None:
        """Take out every step, last first. Raises the first failure after all were called, the others as its notes."""
        failures = self._unwind()
        if failures:
            first, *others = failures
            for failure in others:
                add_note(first, f"also, while undoing {self.name}: {type(failure).__name__}: {failure}")
            raise first

    def __len__(self) -> int:
        return len(self._undo)

    def _unwind(self) -> list[BaseException]:
        failures: list[BaseException] = []
        while self._undo:
            # Popped before it is called: an undo that fails is not tried again by a second `undo()`.
            undo = self._undo.pop()
            try:
                undo()
            except BaseException as failure:
                failures.append(failure)
        return failures
