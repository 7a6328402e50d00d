"""Which accesses of a piece of memory meet without order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.actors import Actor, meet
from tritontrace.clients.races.ordering import SyncLog
from tritontrace.clients.races.pieces import Piece
from tritontrace.distinct import distinct, distinct_rows

__all__ = ["Meeting", "meetings", "unordered"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Wipes = list[tuple[int, Int64s]]

_PAIRS = 1 << 10
"""Pairs of accesses above which chains of accesses are looked at first: if these are in order, everything is."""
_MOST_PAIRS = 1 << 21
"""Pairs of accesses that are asked one by one whether they are ordered; with more, not every program is named."""


@dataclass(slots=True, eq=False)
class Meeting:
    """Actors `a` <= `b`; hits are int64 ``[N, 2]`` (program, group), `pairs` int64 ``[M, 2]`` (program of a, program of b)."""

    a: int
    b: int
    a_hits: Int64s
    b_hits: Int64s
    pairs: Int64s
    complete: bool = True


def meetings(piece: Piece, actors: Sequence[Actor], sync: SyncLog | None, wipes: Wipes) -> Iterator[Meeting]:
    """Every pair of actors that meet in the piece."""
    present = distinct(piece.actor)
    table = np.zeros((int(present[-1]) + 1,) * 2, np.bool_)
    for a in present:
        for b in present:
            table[a, b] = meet(actors[a], actors[b])
    if sync is None:
        yield from _without_order(piece, present, table)
    else:
        writes = np.array([actor.kind.writes for actor in actors])
        yield from _with_order(piece, table, writes[: len(table)], sync, wipes)


# -- nobody synchronizes ----------------------------------------------------------------------------------------------


class _Members:
    """The programs of one actor, by group: distinct (group, program), and how many, the first and the last of each group."""

    def __init__(self, piece: Piece, actor: int, groups: int) -> None:
        mine = piece.actor == actor
        both = distinct(piece.group[mine] << 32 | piece.program[mine])
        self.group, self.program = both >> 32, both & 0xFFFFFFFF
        self.count = np.bincount(self.group, minlength=groups)
        self.first = np.full(groups, -1, np.int64)
        self.last = np.full(groups, -1, np.int64)
        self.first[self.group[::-1]] = self.program[::-1]
        self.last[self.group] = self.program

    def against(self, other: _Members) -> tuple[Int64s, Int64s]:
        """(those of us who meet a program of `other`, (program, group); for each of them such a program)."""
        group, program = self.group, self.program
        first = other.first[group]
        partner = np.where(first == program, other.last[group], first)
        chosen = (other.count[group] > 0) & (partner != program)
        return np.column_stack([program[chosen], group[chosen]]), partner[chosen]


def _without_order(piece: Piece, present: Int64s, table: Bools) -> Iterator[Meeting]:
    members = {int(actor): _Members(piece, int(actor), piece.count) for actor in present}
    for a in members:
        for b in members:
            if a <= b and table[a, b]:
                a_hits, partners = members[a].against(members[b])
                if len(a_hits):
                    b_hits, others = members[b].against(members[a])
                    there = np.column_stack([a_hits[:, 0], partners])
                    back = np.column_stack([others, b_hits[:, 0]])
                    pairs = distinct_rows(np.concatenate([there, back]))
                    yield Meeting(a, b, a_hits, b_hits, _few(pairs))


def _few(pairs: Int64s) -> Int64s:
    """One pair for each program on the left, and one for each on the right that is not there yet."""
    _, left = np.unique(pairs[:, 0], return_index=True)
    rest = pairs[~np.isin(pairs[:, 1], pairs[left, 1])]
    _, right = np.unique(rest[:, 1], return_index=True)
    return np.concatenate([pairs[left], rest[right]])


# -- somebody synchronizes --------------------------------------------------------------------------------------------


def _with_order(piece: Piece, table: Bools, writes: Bools, sync: SyncLog, wipes: Wipes) -> Iterator[Meeting]:
    order = np.lexsort((piece.time, piece.group))
    found = unordered(
        piece.group[order], piece.actor[order], piece.program[order], piece.epoch[order], table, writes, sync, wipes
    )
    group, actor, program = found.group, found.actor, found.program
    turned = actor[found.i] > actor[found.j]
    i, j = np.where(turned, found.j, found.i), np.where(turned, found.i, found.j)
    kinds = actor[i] * len(table) + actor[j]
    for kind in distinct(kinds).tolist():
        a, b = divmod(kind, len(table))
        mine = kinds == kind
        left = np.column_stack([program[i[mine]], group[i[mine]]])
        right = np.column_stack([program[j[mine]], group[j[mine]]])
        pairs = np.column_stack([left[:, 0], right[:, 0]])
        if a == b:
            left = right = np.concatenate([left, right])
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
        a_hits, b_hits = distinct_rows(left), distinct_rows(right)
        yield Meeting(a, b, a_hits, b_hits, _few(distinct_rows(pairs)), found.complete)


@dataclass(slots=True, eq=False)
class Unordered:
    """Pairs ``(i, j)`` of accesses that meet without order, as positions in the other arrays, and whether these are all."""

    group: Int64s
    actor: Int64s
    program: Int64s
    i: Int64s
    j: Int64s
    complete: bool


def unordered(
    group: Int64s, actor: Int64s, program: Int64s, epoch: Int64s, table: Bools, writes: Bools, sync: SyncLog, wipes: Wipes
) -> Unordered:
    """Which accesses meet without order; they are given sorted by group, and in each group by time.

    ``table[a, b]`` says whether two actors meet at all, ``writes[a]`` whether one writes.
    """
    complete = True
    if _pair_count(group) > _PAIRS:
        # Atomics write and yet do not meet each other: the last one does not speak for those before it.
        loose = writes & ~table.diagonal()
        calm = loose | ~(writes | (table & loose).any(axis=1))
        if loose[actor].any() and not (table & loose & loose[:, None]).any():
            # Memory that only atomics touch, as a lock's, needs no order.
            plain = np.bincount(group, ~calm[actor])[group] > 0
            group, actor, program, epoch = group[plain], actor[plain], program[plain], epoch[plain]
        # Where each access is ordered behind the last write and before the next one, all are ordered.
        i, j = _neighbours(group, actor, program, table)
        bad = ~sync.ordered(program[i], epoch[i], program[j], epoch[j], wipes)
        marked = np.zeros(int(group[-1]) + 1 if len(group) else 0, np.bool_)
        marked[group[i[bad]]] = True
        marked[group[loose[actor]]] = True
        suspicious = marked[group]
        group, actor, program, epoch = group[suspicious], actor[suspicious], program[suspicious], epoch[suspicious]
        if len(group) and _pair_count(group) > _MOST_PAIRS:
            complete = False
            i, j = _neighbours(group, actor, program, table)
    if complete:
        i, j = _pairs(group)
        apart = (program[i] != program[j]) & table[actor[i], actor[j]]
        i, j = i[apart], j[apart]
    bad = ~sync.ordered(program[i], epoch[i], program[j], epoch[j], wipes)
    return Unordered(group, actor, program, i[bad], j[bad], complete)


def _pair_count(group: Int64s) -> int:
    sizes = np.bincount(group)
    return int((sizes * (sizes - 1) // 2).sum())


def _pairs(group: Int64s) -> tuple[Int64s, Int64s]:
    """All i < j of one group (`group` is sorted)."""
    ends = np.searchsorted(group, group, side="right")
    counts = ends - np.arange(len(group)) - 1
    i = np.repeat(np.arange(len(group)), counts)
    behind = np.cumsum(counts)
    j = i + 1 + np.arange(len(i)) - np.repeat(behind - counts, counts)
    return i, j


def _neighbours(group: Int64s, actor: Int64s, program: Int64s, table: Bools) -> tuple[Int64s, Int64s]:
    """Each access with the last write before it, and with the next write behind it (`group` and time are sorted)."""
    number = np.arange(len(group))
    writes = table.diagonal()[actor]
    last = np.maximum.accumulate(np.where(writes, number, -1))
    last = np.concatenate([[-1], last[:-1]])
    following = np.minimum.accumulate(np.where(writes, number, len(group))[::-1])[::-1]
    following = np.concatenate([following[1:], [len(group)]])
    i = np.concatenate([last, number])
    j = np.concatenate([number, following])
    good = (i >= 0) & (j < len(group))
    i, j = i[good], j[good]
    good = (group[i] == group[j]) & (program[i] != program[j]) & table[actor[i], actor[j]]
    both = distinct(i[good] << 32 | j[good])
    return both >> 32, both & 0xFFFFFFFF
