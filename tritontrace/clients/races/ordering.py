"""What happens before what: the order that acquire and release atomics make between programs.

While a launch runs, only a log is kept: which program did which synchronizing operation on which address. Each such
operation is an *epoch* of its program, and so is the time between two of them; order between accesses of two programs is
order between their epochs. When accesses are found that need an order, the log is played back with vector clocks
for the programs in question.

The rules: a release publishes everything its program did before, at the address of the atomic; read-modify-writes that follow
keep what was published there (any ordering, any program); a plain store or an atomic store wipes it; an acquire takes over what
is published where it reads. A result that the kernel does not use acquires nothing: the kernel cannot know whom it
came behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.handoffs import Handoffs
from tritontrace.distinct import distinct

__all__ = ["Entry", "SyncLog"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CLOCK_BYTES = 64 << 20
_MOST_KEYS = 1 << 62
"""Programs times places times epochs, so that one number can stand for one of each."""


class Entry:
    """Operations of one event, in the order in which memory saw them."""

    __slots__ = ("acquire", "addresses", "epochs", "programs", "release", "store", "time", "wrote")

    def __init__(
        self,
        time: int,
        programs: Any,
        addresses: Int64s,
        epochs: Any,
        acquire: bool,
        release: bool,
        store: bool,
        wrote: Bools | None,
    ) -> None:
        self.time = time
        self.programs = programs
        self.addresses = addresses
        self.epochs = epochs
        self.acquire = acquire
        self.release = release
        self.store = store
        self.wrote = wrote


class SyncLog:
    """The synchronizing operations of a launch of `programs` programs."""

    def __init__(self, programs: int) -> None:
        self.epoch: npt.NDArray[np.int32] = np.zeros(programs, np.int32)
        """The epoch that each program is in: even between synchronizing operations, odd in one."""
        self.version = 0
        """Goes up with every change of `epoch`."""
        self.entries: list[Entry] = []
        self.acquired = False
        self._touched: npt.NDArray[np.int32] = np.zeros(programs, np.int32)
        self._scratch: npt.NDArray[np.int32] = np.zeros(programs, np.int32)
        self._last: dict[int, int] = {}
        self._wiped = -1
        self._addresses: tuple[int, Int64s] | None = None
        self._replay: tuple[int, Any, _Replay] | None = None

    def touch(self, programs: Any, time: int) -> None:
        """Notes that these programs made an access that may need an order."""
        self._touched[programs] = time

    def wipe(self, time: int) -> None:
        """Notes that a plain store may have wiped what was published."""
        self._wiped = time

    def enter(self, programs: Int64s) -> None:
        """These programs begin a synchronizing operation; `add` ends it."""
        self.version += 1
        self.epoch[programs] += 1  # once for each program, however many lanes it has

    def add(
        self,
        site: int,
        time: int,
        programs: Int64s,
        addresses: Int64s,
        *,
        acquire: bool,
        release: bool,
        store: bool = False,
        wrote: Bools | None = None,
        retries: bool = False,
    ) -> None:
        """Logs one event's lanes in memory order. `wrote` says which wrote to memory (None: all).

        `retries`: looks of waiting programs may be forgotten once they look again, because the looks themselves need no order.
        """
        self.acquired = self.acquired or acquire
        if retries:
            self._drop_retries(site, programs, addresses)
        entry = Entry(time, programs.astype(np.int32), addresses, self.epoch[programs], acquire, release, store, wrote)
        self.version += 1
        self.epoch[programs] += 1
        if store:
            self._wiped = time
        self._last[site] = len(self.entries)
        self.entries.append(entry)
        self._touched[programs] = time

    def _drop_retries(self, site: int, programs: Int64s, addresses: Int64s) -> None:
        """Forgets waiting looks that are now repeated: programs that spin do nothing in between, so the last look tells all."""
        index = self._last.get(site)
        if index is None:
            return
        last = self.entries[index]
        if last.wrote is None or last.store or last.time <= self._wiped or last.wrote.all():
            return
        at = self._scratch
        at[last.programs] = -1
        at[programs] = np.arange(len(programs), dtype=np.int32)
        place = at[last.programs]
        fits = (place >= 0) & ~last.wrote & (self._touched[last.programs] == last.time)
        if not fits.any() or len(distinct(last.programs)) != len(last.programs):
            return
        fits &= addresses[place] == last.addresses
        keep = ~fits
        last.programs, last.addresses, last.epochs = last.programs[keep], last.addresses[keep], last.epochs[keep]
        last.wrote = last.wrote[keep]

    def addresses(self) -> Int64s:
        """Every address that an operation synchronized on, sorted."""
        if self._addresses is None or self._addresses[0] != len(self.entries):
            parts = [np.zeros(0, np.int64), *(entry.addresses for entry in self.entries)]
            self._addresses = len(self.entries), distinct(np.concatenate(parts))
        return self._addresses[1]

    def ordered(
        self,
        source: Int64s,
        source_epoch: Int64s,
        target: Int64s,
        target_epoch: Int64s,
        wipes: list[tuple[int, Int64s]],
    ) -> Bools:
        """For each query, whether what `source` did in its epoch happened before what `target` did in its own.

        `wipes` are (time, addresses) of plain stores to addresses that are synchronized on.
        """
        out = np.zeros(len(source), np.bool_)
        if not self.acquired or not len(source):
            return out
        if self._replay is None or self._replay[0] != len(self.entries) or self._replay[1] is not wipes:
            live = [entry for entry in self.entries if len(entry.programs)]
            self._replay = len(self.entries), wipes, _Replay(len(self.epoch), live, self.addresses(), wipes)
        return self._replay[2].ordered(source, source_epoch, target, target_epoch)


class _Replay:
    """The log with programs and addresses numbered from 0, ready to be looked through and played back."""

    def __init__(self, programs: int, entries: list[Entry], locations: Int64s, wipes: list[tuple[int, Int64s]]) -> None:
        every = np.concatenate([entry.programs for entry in entries])
        there = np.zeros(programs, np.bool_)
        there[every] = True
        self.members = np.flatnonzero(there)
        self.numbers = np.where(there, np.cumsum(there) - 1, -1)
        self.count = len(locations)
        self.entries = entries
        edges = np.cumsum([len(entry.programs) for entry in entries])[:-1]
        row = self.numbers[every]
        place = np.searchsorted(locations, np.concatenate([entry.addresses for entry in entries]))
        self.rows, self.places = np.split(row, edges), np.split(place, edges)
        self.wipes = [(time, np.searchsorted(locations, addresses)) for time, addresses in sorted(wipes, key=lambda w: w[0])]
        self.epochs = np.concatenate([entry.epochs for entry in entries]).astype(np.int64)
        self.row = row
        self._span = int(self.epochs.max()) + 2
        self._order: Any = None
        self._sets: Int64s | None = None
        self._history: Any = None
        fits = len(self.members) * self.count * self._span < _MOST_KEYS
        self._handoffs = Handoffs(entries, self.rows, self.places, self.wipes) if fits else None

    def ordered(self, source: Int64s, source_epoch: Int64s, target: Int64s, target_epoch: Int64s) -> Bools:
        """For each query, whether the first happened before the second."""
        out = np.zeros(len(source), np.bool_)
        of, row = self.numbers[source], self.numbers[target]
        asked = np.flatnonzero((of >= 0) & (row >= 0))
        of, row = of[asked], row[asked]
        if self._handoffs is not None and len(asked):
            before, behind = source_epoch[asked], target_epoch[asked]
            sure = self._handoffs.sure(of, before, row, behind)
            out[asked] = sure
            rest = np.flatnonzero(~sure & self._handoffs.possible(of, before, row, behind))
            asked, of, row = asked[rest], of[rest], row[rest]
        if len(asked):
            self._answer(out, asked, of, source_epoch, row, target_epoch)
        return out

    def _sort(self) -> None:
        """Sorts the lanes of all entries by program and epoch."""
        number = np.repeat(np.arange(len(self.entries)), [len(row) for row in self.rows])
        order = np.lexsort((self.epochs, self.row))
        self._keys = self.row[order] * self._span + self.epochs[order]
        self._numbers = number[order]
        self._order = order

    def _when(self, row: Int64s, epoch: Int64s) -> Int64s:
        """The number of the first entry behind a program's epoch (the number of entries if there is none)."""
        key = row * self._span + np.minimum(epoch + 1, self._span - 1)
        at = np.searchsorted(self._keys, key)
        end = np.searchsorted(self._keys, (row + 1) * self._span)
        return np.where(at < end, self._numbers[np.minimum(at, len(self._numbers) - 1)], len(self.entries))

    def _lane(self, row: Int64s, epoch: Int64s) -> Int64s:
        """A program's last operation up to an epoch, as a position among the lanes of all entries; -1 if there is none."""
        at = np.searchsorted(self._keys, row * self._span + np.minimum(epoch + 1, self._span - 1)) - 1
        good = (at >= 0) & (self._keys[np.maximum(at, 0)] // self._span == row)
        return np.where(good, self._order[np.maximum(at, 0)], -1)

    def _answer(self, out: Bools, asked: Int64s, of: Int64s, source_epoch: Int64s, row: Int64s, target_epoch: Int64s) -> None:
        """Fills in the queries `asked` from clocks; `of` and `row` are the programs' numbers."""
        if self._order is None:
            self._sort()
            self._sets = _sets(self.rows, self.places, len(self.members), self.count)
        assert self._sets is not None
        sets = self._sets
        together = sets[row] == sets[of]
        asked, row, of = asked[together], row[together], of[together]
        if not len(asked):
            return
        if self._history is None:
            self._remember(sets)
        if self._history:
            column, clocks = self._history
            lane = self._lane(row, target_epoch[asked])
            out[asked] = (lane >= 0) & (clocks[lane, column[of]] > source_epoch[asked])
            return
        column, widest = _columns(sets, distinct(of))
        width = max(1, _CLOCK_BYTES // (4 * (len(self.members) + self.count)))
        due = self._when(row, target_epoch[asked])
        for start in range(0, widest, width):
            mine = np.flatnonzero((column[of] >= start) & (column[of] < start + width))
            here = np.where((column >= start) & (column < start + width), column - start, -1)
            limit = min(width, widest - start)
            out[asked[mine]] = self._run(here, limit, row[mine], here[of[mine]], source_epoch[asked[mine]], due[mine])

    def _run(self, column: Int64s, width: int, row: Int64s, where: Int64s, epoch: Int64s, due: Int64s) -> Bools:
        """Plays the log back; answers whether `row` knows more than `epoch` in the column `where` when it is `due`."""
        order = np.argsort(due, kind="stable")
        edges = np.searchsorted(due[order], np.arange(len(self.entries) + 2))
        out = np.zeros(len(row), np.bool_)
        for number, clocks in self._play(column, width):
            asked = order[edges[number] : edges[number + 1]]
            out[asked] = clocks[row[asked], where[asked]] > epoch[asked]
        return out

    def _play(self, column: Int64s, width: int) -> Iterator[tuple[int, Any]]:
        """The clocks ``[members, width]`` as they are before each entry, and at the end."""
        clocks = np.zeros((len(self.members), width), np.int32)
        published = np.zeros((self.count, width), np.int32)
        wipes = iter(self.wipes)
        wipe = next(wipes, None)
        for number, entry in enumerate(self.entries):
            yield number, clocks
            while wipe is not None and wipe[0] < entry.time:
                published[wipe[1]] = 0
                wipe = next(wipes, None)
            _apply(entry, self.rows[number], self.places[number], clocks, published, column)
        yield len(self.entries), clocks

    def _remember(self, sets: Int64s) -> None:
        """Keeps every program's clock after each of its operations, if that is not too much."""
        column, width = _columns(sets, np.arange(len(self.members)))
        self._history = ()
        if (len(self._order) + len(self.members) + self.count) * width * 4 <= _CLOCK_BYTES:
            parts = [clocks[self.rows[number - 1]] for number, clocks in self._play(column, width) if number]
            self._history = column, np.concatenate(parts)


def _columns(sets: Int64s, sources: Int64s) -> tuple[Int64s, int]:
    """A column for each source, counted in its own set (-1 for who has none), and the number of columns.

    Programs that share no address, not even through others, know nothing of each other: each set of programs that do has
    columns of its own, so that clocks are as wide as the largest set and not as the launch.
    """
    order = sources[np.argsort(sets[sources], kind="stable")]
    heads = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), sets[order][1:] != sets[order][:-1]]))
    sizes = np.diff(np.append(heads, len(order)))
    column = np.full(len(sets), -1, np.int64)
    column[order] = np.arange(len(order)) - np.repeat(heads, sizes)
    return column, int(sizes.max())


def _sets(rows: list[Int64s], places: list[Int64s], members: int, locations: int) -> Int64s:
    """A number for each member, the same for members that a chain of common addresses connects."""
    pairs = distinct(np.concatenate([row * locations + place for row, place in zip(rows, places)]))
    row, place = pairs // locations, pairs % locations
    label = np.arange(members, dtype=np.int64)
    while True:
        there = np.full(locations, members, np.int64)
        np.minimum.at(there, place, label[row])
        fresh = label.copy()
        np.minimum.at(fresh, row, there[place])
        fresh = fresh[fresh]  # a label is a member, whose own label may have become smaller
        if np.array_equal(fresh, label):
            return label
        label = fresh


def _apply(entry: Entry, rows: Int64s, places: Int64s, clocks: Any, published: Any, column: Int64s) -> None:
    """One event: its lanes take over what is published, and publish, address by address in memory order."""
    own = clocks[rows]
    mine = column[rows]
    known = np.flatnonzero(mine >= 0)
    own[known, mine[known]] = entry.epochs[known] + 1  # what is published covers the operation itself
    given = own if entry.release else np.zeros_like(own)
    if entry.wrote is not None:
        given = np.where(entry.wrote[:, None], given, 0)
    for lanes in _rounds(places):
        if isinstance(lanes, tuple):  # many lanes, one address
            (chosen,) = lanes
            place = places[chosen[0]]
            if entry.store:
                published[place] = given[chosen[-1]]
                continue
            chain = np.maximum.accumulate(np.concatenate([published[place][None], given[chosen]]))
            if entry.acquire:
                own[chosen] = np.maximum(own[chosen], chain[:-1])
            published[place] = chain[-1]
            continue
        at = places[lanes]
        if entry.store:
            published[at] = given[lanes]
            continue
        before = published[at]
        if entry.acquire:
            own[lanes] = np.maximum(own[lanes], before)
        published[at] = np.maximum(before, given[lanes])
    if len(distinct(rows)) == len(rows):
        clocks[rows] = own
    else:
        np.maximum.at(clocks, rows, own)


def _rounds(places: Int64s) -> Any:
    """Lanes in groups that keep each address's order: arrays of distinct addresses, or a tuple (lanes of one address,)."""
    if len(places) < 2:
        yield np.arange(len(places))
        return
    order = np.argsort(places, kind="stable")
    group = places[order]
    starts = np.flatnonzero(np.concatenate([np.ones(1, bool), group[1:] != group[:-1]]))
    if len(starts) == len(places):
        yield np.arange(len(places))
        return
    sizes = np.diff(np.append(starts, len(places)))
    if len(starts) <= sizes.max():
        for start, size in zip(starts.tolist(), sizes.tolist()):
            yield (order[start : start + size],)
        return
    rank = np.arange(len(places)) - np.repeat(starts, sizes)
    for turn in range(int(sizes.max())):
        yield order[rank == turn]
