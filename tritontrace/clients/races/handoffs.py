"""Orders that can be told without clocks: one program released where the other acquired, and nothing came in between.
And orders that cannot be, because the one program does not release any more, or the other has not acquired.

Nearly every order that a right kernel makes is of this kind (a lock that goes from hand to hand, a counter of arrivals, a
flag), so that the log of a launch need not be played back with vector clocks to see that it is clean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tritontrace.clients.races.ordering import Entry

__all__ = ["Handoffs"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Handoffs:
    """The synchronizing operations of a launch, place by place in the order in which memory saw them.

    `rows` and `places` hold, for each entry, the numbers of its programs and of its addresses; `wipes` are (time, places) of
    plain stores there.
    """

    def __init__(
        self, entries: Sequence[Entry], rows: Sequence[Int64s], places: Sequence[Int64s], wipes: Sequence[tuple[int, Int64s]]
    ) -> None:
        sizes = [len(row) for row in rows]
        row, place = np.concatenate(rows), np.concatenate(places)
        epoch = np.concatenate([entry.epochs for entry in entries]).astype(np.int64)
        turn = np.repeat(np.arange(len(entries)) * 2 + 1, sizes)
        acquires = np.repeat([entry.acquire and not entry.store for entry in entries], sizes)
        releases = np.repeat([entry.release for entry in entries], sizes)
        for start, entry in zip(np.cumsum([0, *sizes[:-1]]).tolist(), entries):
            if entry.wrote is not None and entry.release:
                releases[start : start + len(entry.wrote)] &= entry.wrote
        stores = np.repeat([entry.store for entry in entries], sizes)
        if wipes:
            times = np.array([entry.time for entry in entries])
            there = [len(at) for _, at in wipes]
            place = np.concatenate([place, *(at for _, at in wipes)])
            behind = np.searchsorted(times, [time for time, _ in wipes], side="right")
            turn = np.concatenate([turn, np.repeat(behind * 2, there)])
            stores = np.concatenate([stores, np.ones(sum(there), np.bool_)])
        # Where each operation stands among all, and how often what is published was replaced up to there.
        order = np.lexsort((turn, place))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        replaced = np.cumsum(stores[order])[rank]
        self._span = int(epoch.max()) + 2
        self._places = int(place.max()) + 1
        acquiring, releasing = np.flatnonzero(acquires), np.flatnonzero(releases)
        self._first = np.full(int(row.max()) + 1, self._span, np.int64)
        np.minimum.at(self._first, row[acquiring], epoch[acquiring])
        self._final = np.full(len(self._first), -1, np.int64)
        np.maximum.at(self._final, row[releasing], epoch[releasing])
        keys = row[acquiring] * self._span + epoch[acquiring]
        by_key = np.argsort(keys, kind="stable")
        self._acquired = keys[by_key]
        chosen = acquiring[by_key]
        self._there, self._at, self._seen = place[chosen], rank[chosen], replaced[chosen]
        keys = (row[releasing] * self._places + place[releasing]) * self._span + epoch[releasing]
        by_key = np.argsort(keys, kind="stable")
        self._released = keys[by_key]
        chosen = releasing[by_key]
        self._from, self._left = rank[chosen], replaced[chosen]

    def possible(self, source: Int64s, source_epoch: Int64s, target: Int64s, target_epoch: Int64s) -> Bools:
        """Whether `source` releases anything at or behind its epoch, and `target` acquires anything up to its own."""
        out: Bools = (self._final[source] >= source_epoch) & (self._first[target] <= target_epoch)
        return out

    def sure(self, source: Int64s, source_epoch: Int64s, target: Int64s, target_epoch: Int64s) -> Bools:
        """Whether `target`'s last acquire up to its epoch surely saw what `source` released at or behind its own.

        Programs are given by their numbers. False says nothing.
        """
        out = np.zeros(len(source), np.bool_)
        if not len(self._acquired) or not len(self._released):
            return out
        last = self._span - 1
        got = np.searchsorted(self._acquired, target * self._span + np.minimum(target_epoch, last), side="right") - 1
        good = (got >= 0) & (self._acquired[np.maximum(got, 0)] // self._span == target) & (source_epoch < last)
        asked = np.flatnonzero(good)
        got = got[asked]
        giver = source[asked] * self._places + self._there[got]
        gave = np.searchsorted(self._released, giver * self._span + source_epoch[asked])
        inside = np.minimum(gave, len(self._released) - 1)
        good = (gave < len(self._released)) & (self._released[inside] // self._span == giver)
        good &= (self._from[inside] < self._at[got]) & (self._left[inside] == self._seen[got])
        out[asked[good]] = True
        return out
