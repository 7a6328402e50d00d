"""From the log of one allocation to the accesses that conflict: exact, and element by element only where it must be.

First every granule gets an owner: the program that stores to it. Where all accesses to a granule are its owner's, nothing
can be wrong, and that is nearly always so. Only what is left (the *suspects*) is looked at program by program: as
stretches of memory, cut where any of them begins or ends, so that each piece is touched as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.actors import Actor, Kind
from tritontrace.clients.races.log import Record, Region
from tritontrace.clients.races.meetings import Meeting, meetings
from tritontrace.clients.races.ordering import SyncLog
from tritontrace.clients.races.pieces import pieces_of
from tritontrace.clients.races.sweep import swept
from tritontrace.clients.races.turns import take_turns
from tritontrace.clients.races.windows import Window
from tritontrace.distinct import distinct, distinct_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Conflict", "conflicts_of", "wipes_of"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_PART = 1 << 22
"""Elements that are looked at in one step."""
_FEW = 1 << 12
"""Stretches that are always taken as they are."""


@dataclass(slots=True, eq=False)
class Conflict:
    """Accesses of `a` and of `b` that meet without order.

    `a_hits` and `b_hits` are int64 ``[N, 2]``: (program, group), where ``groups[group]`` are granules, int64 ``[K, 2]`` of
    (first, behind the last). `pairs` are programs (of a, of b) that meet, at least one for each program of `a` and of `b`.
    `complete` is False if there may be more programs.
    """

    a: Actor
    b: Actor
    groups: dict[int, Int64s]
    a_hits: Int64s
    b_hits: Int64s
    pairs: Int64s
    complete: bool = True


def conflicts_of(
    region: Region, actors: Sequence[Actor], sync: SyncLog | None, wipes: Callable[[], list[tuple[int, Int64s]]]
) -> list[Conflict]:
    """All conflicts in one allocation; `wipes` gives what `SyncLog.ordered` needs to know of plain stores, if it is asked."""
    if not _may_conflict(region) or (sync is not None and take_turns(region, actors, sync, wipes())):
        return []
    suspects = None
    if region.shadow.noted and _fragmented(region):
        suspects = _suspects(region)
        if not suspects.any():
            return []
    stores = wipes() if sync is not None else []
    groups: dict[int, Int64s] = {}
    behind = 0
    found: dict[tuple[int, int], list[Meeting]] = {}
    for piece in pieces_of(region, suspects) if region.shadow.noted else swept(region):
        for meeting in meetings(piece, actors, sync, stores):
            for group in distinct(np.concatenate([meeting.a_hits[:, 1], meeting.b_hits[:, 1]])).tolist():
                groups[behind + group] = piece.granules(group)
            meeting.a_hits[:, 1] += behind
            if meeting.b_hits is not meeting.a_hits:
                meeting.b_hits[:, 1] += behind
            found.setdefault((meeting.a, meeting.b), []).append(meeting)
        behind += piece.count
    return [
        Conflict(
            actors[a],
            actors[b],
            groups,
            np.concatenate([m.a_hits for m in parts]),
            np.concatenate([m.b_hits for m in parts]),
            distinct_rows(np.concatenate([m.pairs for m in parts])),
            all(m.complete for m in parts),
        )
        for (a, b), parts in found.items()
    ]


def wipes_of(region: Region, sync: SyncLog) -> list[tuple[int, Int64s]]:
    """(time, addresses) of plain stores to addresses that are synchronized on."""
    known = sync.addresses()
    shadow = region.shadow
    known = known[(known >= shadow.base) & (known < shadow.base + shadow.nbytes)]
    if not len(known):
        return []
    width = max((record.actor.size for record in region.records if record.actor.kind is not Kind.STORE), default=1)
    out = []
    for record in region.records:
        if record.actor.kind is Kind.STORE:
            form = record.whole()
            length, rest, _ = form.run()
            rows = form.starts(rest)
            times = np.broadcast_to(record.time, (form.rows,))
            for time in distinct(times).tolist():
                starts = np.sort(rows[times == time], axis=None)
                at = np.searchsorted(starts, known + width) - 1
                hit = (at >= 0) & (starts[np.maximum(at, 0)] + length > known)
                if hit.any():
                    out.append((time, known[hit]))
    return out


# -- suspects ----------------------------------------------------------------------------------------------------------


def _may_conflict(region: Region) -> bool:
    """Whether the kinds of access that were made, and where stores went, leave anything to look for."""
    shadow = region.shadow
    kinds = _kinds(region)
    writes = {kind for kind in kinds if kind.writes}
    if not writes or (writes == {Kind.ATOMIC} and kinds <= {Kind.ATOMIC, Kind.LOOK} and not _mixed(region)):
        return False
    if writes != {Kind.STORE} or shadow.stored_twice:
        return True
    # Every granule was stored to once; only what else touches one of those can matter.
    others = _parts(region, lambda kind: kind is not Kind.STORE)
    return any(shadow.stored(part.whole(), _window(part, region)) for part in others)


def _kinds(region: Region) -> set[Kind]:
    return {record.actor.kind for record in region.records}


def _mixed(region: Region) -> bool:
    """Whether atomics of several sizes are there."""
    return len({record.actor.size for record in region.records if record.actor.kind.atomic}) > 1


def _fragmented(region: Region) -> bool:
    """Whether there are so many stretches that it pays to look first which granules matter at all."""
    stretches = sum(record.stretches() for record in region.records)
    return stretches > _FEW and stretches * 8 > sum(record.elements() for record in region.records)


def _suspects(region: Region) -> Bools:
    """Which granules are touched by two programs in a way that needs an order."""
    shadow = region.shadow
    kinds, mixed = _kinds(region), _mixed(region)
    suspects = np.zeros(shadow.granules, np.bool_)
    owner = np.zeros(shadow.granules, np.int32)  # 1 + the program whose plain (or local) writes hit the granule
    guests: Any = None  # the same of atomics; -1 for several programs
    for part in _parts(region, lambda kind: kind in (Kind.STORE, Kind.LOCAL)):
        _claim(part, region, owner, suspects)
    if Kind.ATOMIC in kinds:
        guests = np.zeros(shadow.granules, np.int32)
        for part in _parts(region, lambda kind: kind is Kind.ATOMIC):
            _visit(part, region, owner, suspects)
            _join(part, region, guests)
    if mixed:
        suspects |= guests == -1
    for part in _parts(region, lambda kind: not kind.writes):
        _visit(part, region, owner, suspects)
        if guests is not None and (mixed or part.actor.kind is not Kind.LOOK):
            _visit(part, region, guests, suspects)
    return suspects


def _parts(region: Region, chosen: Callable[[Kind], bool]) -> Iterator[Record]:
    for record in region.records:
        if chosen(record.actor.kind):
            yield from record.split(_PART)


def _window(part: Record, region: Region) -> Window:
    return Window(part.form, region.shadow.base, region.shadow.granule, repeat=part.repeat)


def _together(part: Record, window: Window) -> bool:
    """Whether all of several programs touch the very same granules."""
    return part.form.rows > 1 and window.rows == 1


def _claim(part: Record, region: Region, owner: Any, suspects: Bools) -> None:
    window = _window(part, region)
    mine = window.by_row((part.form.id_array + 1).astype(np.int32))
    if _together(part, window):
        window.write(owner, mine[0])
        suspects[window.positions()] = True
        return
    before = window.read(owner)
    strange = (before != 0) & (before != mine)
    if part.form.rows > 1 or strange.any():
        window.write(owner, mine)
        strange = strange | (window.read(owner) != mine)
    else:
        window.write(owner, mine)
    _mark(window, strange, suspects)


def _visit(part: Record, region: Region, owner: Any, suspects: Bools) -> None:
    window = _window(part, region)
    mine = window.by_row((part.form.id_array + 1).astype(np.int32))
    there = window.read(owner)
    _mark(window, (there != 0) & (there != mine), suspects)


def _join(part: Record, region: Region, guests: Any) -> None:
    window = _window(part, region)
    mine = window.by_row((part.form.id_array + 1).astype(np.int32))
    if _together(part, window):
        window.write(guests, -1)
        return
    there = window.read(guests)
    window.write(guests, np.where((there == 0) | (there == mine), mine, -1))
    several = window.read(guests) != mine
    if several.any():
        guests[_positions(window, several)] = -1


def _mark(window: Window, strange: Bools, suspects: Bools) -> None:
    if strange.any():
        suspects[_positions(window, strange)] = True


def _positions(window: Window, chosen: Bools) -> Int64s:
    positions = window.positions()
    shape = np.broadcast_shapes(positions.shape, chosen.shape)
    found: Int64s = np.broadcast_to(positions, shape)[np.broadcast_to(chosen, shape)]
    return found
