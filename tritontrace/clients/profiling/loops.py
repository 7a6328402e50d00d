"""Trip counts of one loop, from the programs that begin each of its iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.clients.profiling.profile import LoopProfile

if TYPE_CHECKING:
    from tritontrace import events

__all__ = ["LoopCounter"]


class LoopCounter:
    """`begun[k]` is how many programs begin iteration k, so `begun[k] - begun[k + 1]` of them run k + 1 iterations."""

    __slots__ = ("begun", "entries", "kind", "site")

    def __init__(self, event: events.Loop) -> None:
        self.site = event.site
        self.kind = event.kind
        self.entries = 0
        self.begun: dict[int, int] = {}

    def enter(self, programs: int) -> None:
        """So many programs come to the loop."""
        self.entries += programs

    def iterate(self, iteration: Any, programs: int, rows: Any = None) -> None:
        """A batch (or the `rows` of it) begins an iteration: an int, or one for each program of the batch."""
        begun = self.begun
        if isinstance(iteration, int):
            count = programs if rows is None else len(rows)
            if count:
                begun[iteration] = begun.get(iteration, 0) + count
            return
        values, counts = np.unique(iteration if rows is None else iteration[rows], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            begun[value] = begun.get(value, 0) + count

    def profile(self) -> LoopProfile:
        """The counts as data."""
        most = max(self.begun, default=-1) + 1
        least = next((k for k in range(most) if self.begun.get(k, 0) < self.entries), most)
        return LoopProfile(self.site.location, self.kind, self.entries, sum(self.begun.values()), least, most)
