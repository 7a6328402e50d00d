"""The suspect memory of an allocation in pieces that every access touches as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.log import Record, Region, bundled
from tritontrace.clients.races.windows import Window
from tritontrace.distinct import distinct

__all__ = ["Piece", "Stretches", "cut", "pieces_of"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_PART = 1 << 21
"""Elements of a record that are expanded in one step."""
_STRETCHES = 1 << 22
"""Stretches that are held at once."""
_ENTRIES = 1 << 22
"""Pairs of a stretch and a piece of memory that are held at once."""


@dataclass(slots=True, eq=False)
class Piece:
    """Groups of memory with the same accesses: entry ``i`` says that `program` accesses group `group` as `actor`.

    Entries are sorted by group and distinct in (group, actor, program, epoch). `count` is the number of groups; ``granules(g)``
    says where they are.
    """

    count: int
    left: Int64s
    right: Int64s
    edges: Int64s
    group: Int64s
    actor: Int64s
    program: Int64s
    epoch: Int64s
    time: Int64s

    def granules(self, group: int) -> Int64s:
        """The granules of a group, int64 ``[K, 2]`` of (first, behind the last)."""
        start, end = int(self.edges[group]), int(self.edges[group + 1])
        return _joined(self.left[start:end], self.right[start:end])


def pieces_of(region: Region, suspects: Bools | None) -> Iterator[Piece]:
    """The suspect granules (None: all of them) and who accesses them, in pieces small enough to hold."""
    if suspects is None:
        everything = bundled(region.records)
        yield from cut([_stretches(record, region, None, 0, region.shadow.granules) for record in everything], None)
        return
    records = bundled([record for record in region.records if _touches(record, region, suspects)])
    before = np.zeros(len(suspects) + 1, np.int64)  # suspects before each granule
    np.cumsum(suspects, out=before[1:])
    total = int(before[-1])
    held = sum(len(part[0]) for record in records for part in _runs(record, region, before, 0, len(suspects)))
    turns = max(1, -(-held // _STRETCHES))
    edges = np.searchsorted(before, [total * turn // turns for turn in range(turns)] + [total], side="left")
    edges[-1] = len(suspects)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist()):
        if high > low:
            yield from cut([_stretches(record, region, before, low, high) for record in records], before)


def _touches(record: Record, region: Region, suspects: Bools) -> bool:
    shadow = region.shadow
    for part in record.split(_PART):
        if Window(part.form, shadow.base, shadow.granule, repeat=part.repeat).read(suspects).any():
            return True
    return False


Stretches = tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int64s]
"""(first granule, granule behind the last, actor, program, epoch, time), one entry a stretch."""


def _stretches(record: Record, region: Region, before: Int64s | None, low: int, high: int) -> Stretches:
    parts = list(_runs(record, region, before, low, high))
    first, last, program, epoch, time = (np.concatenate(arrays) for arrays in zip(*parts))
    return first, last, np.full(len(first), record.actor.number, np.int64), program, epoch, time


def _runs(record: Record, region: Region, before: Int64s | None, low: int, high: int) -> Iterator[tuple[Int64s, ...]]:
    """The stretches of a record that hold suspects between `low` and `high`, cut off there."""
    base, granule = region.shadow.base, region.shadow.granule
    for part in record.split(_PART):
        form = part.whole()
        length, rest, _ = form.run()
        first = (form.starts(rest) - base) // granule
        last = np.minimum(first + length // granule, high)
        first = np.maximum(first, low)
        chosen = last > first
        if before is not None:
            chosen[chosen] = before[last[chosen]] > before[first[chosen]]
        row = np.nonzero(chosen)[0]
        epochs = np.zeros(form.rows, np.int64) if part.epochs is None else part.epochs.astype(np.int64)
        times = np.broadcast_to(np.asarray(part.time, np.int64), (form.rows,))
        yield first[chosen], last[chosen], form.id_array[row], epochs[row], times[row]


def cut(stretches: list[Stretches], before: Int64s | None) -> Iterator[Piece]:
    """Pieces of memory between any two neighbouring ends of stretches; with `before`, those of them that hold suspects."""
    first, last, actor, program, epoch, time = (np.concatenate(arrays) for arrays in zip(*stretches))
    if not len(first):
        return
    cuts = distinct(np.concatenate([first, last]))
    suspect = np.ones(len(cuts) - 1, np.bool_) if before is None else before[cuts[1:]] > before[cuts[:-1]]
    rank = np.concatenate([np.zeros(1, np.int64), np.cumsum(suspect)])  # pieces before each cut
    left, right = cuts[:-1][suspect], cuts[1:][suspect]
    start, end = rank[np.searchsorted(cuts, first)], rank[np.searchsorted(cuts, last)]
    # Accesses of one program in one epoch at one site are the same for all that follows.
    agents, agent = np.unique(program << 32 | epoch, return_inverse=True)
    kinds = int(actor.max()) + 1
    agent = agent * kinds + actor
    covered = np.zeros(len(left) + 1, np.int64)
    np.add.at(covered, start, 1)
    np.add.at(covered, end, -1)
    load = np.cumsum(np.cumsum(covered)[:-1])
    turns = max(1, -(-int(load[-1]) // _ENTRIES))
    edges = np.searchsorted(load, [int(load[-1]) * turn // turns for turn in range(1, turns)], side="right")
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(left)]):
        if high > low:
            here = np.flatnonzero((start < high) & (end > low))
            if not len(here):
                continue
            a, b = np.maximum(start[here], low) - low, np.minimum(end[here], high) - low
            yield _grouped(left[low:high], right[low:high], a, b, agent[here], time[here], agents, kinds)


def _grouped(
    left: Int64s, right: Int64s, start: Int64s, end: Int64s, agent: Int64s, time: Int64s, agents: Int64s, kinds: int
) -> Piece:
    """Puts pieces with the same accesses into one group."""
    counts = end - start
    stretch = np.repeat(np.arange(len(start)), counts)
    behind = np.cumsum(counts)
    place = np.arange(int(behind[-1])) - np.repeat(behind - counts, counts) + start[stretch]
    key, chosen = np.unique(place << 40 | agent[stretch], return_index=True)
    place, agent, time = key >> 40, key & ((1 << 40) - 1), time[stretch[chosen]]
    heads = np.flatnonzero(np.concatenate([np.ones(1, bool), place[1:] != place[:-1]]))
    # A sum of well-mixed numbers stands for the set of a piece's accesses.
    marks = np.add.reduceat(_mixed(agent), heads)
    _, lead, group_of = np.unique(marks, return_index=True, return_inverse=True)
    keep = np.isin(place, place[heads[lead]])
    number = np.full(len(left), -1, np.int64)
    number[place[heads]] = group_of
    # Empty pieces (nobody accesses them any more once cut) have no entries and no group.
    order = np.argsort(group_of, kind="stable")
    members = place[heads][order]
    edges = np.searchsorted(group_of[order], np.arange(len(lead) + 1))
    who = agents[agent[keep] // kinds]
    sort = np.argsort(number[place[keep]], kind="stable")
    return Piece(
        len(lead),
        left[members],
        right[members],
        edges,
        number[place[keep]][sort],
        (agent[keep] % kinds)[sort],
        (who >> 32)[sort],
        (who & 0xFFFFFFFF)[sort],
        time[keep][sort],
    )


def _mixed(values: Int64s) -> npt.NDArray[np.uint64]:
    """splitmix64."""
    x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def _joined(left: Int64s, right: Int64s) -> Int64s:
    """Ascending intervals with those that touch put together, int64 ``[K, 2]``."""
    fresh = np.concatenate([np.ones(1, bool), left[1:] != right[:-1]])
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(left)) - 1
    return np.column_stack([left[heads], right[tails]])
