"""Who meets whom in memory too large for notes on every element: stretches in the order of their addresses, some at a time.

Where stretches that overlap are all of one program, nothing can be wrong; the first look is at whole rows (all that a program
does in one access), and only where these overlap is each stretch of them looked at. What is held at once depends on how many
accesses there are in a part of the memory, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.log import Record, Region
from tritontrace.clients.races.pieces import Piece, Stretches, cut

__all__ = ["swept"]

Int64s = npt.NDArray[np.int64]

_STRETCHES = 1 << 20
"""Stretches that are held at once, about."""


def swept(region: Region) -> Iterator[Piece]:
    """The pieces of a region where accesses of several programs meet, one of which writes."""
    shadow = region.shadow
    lanes = [_Lanes(record) for record in region.records]
    low = min(lane.low for lane in lanes) // shadow.granule * shadow.granule
    high = max(lane.high for lane in lanes)
    total = sum(lane.total for lane in lanes)
    turns = min(-(-total // _STRETCHES), max(1, (high - low) // shadow.granule))
    width = -(-(high - low) // turns // shadow.granule) * shadow.granule
    waiting = [(start, min(high, start + width)) for start in range(low, high, width)][::-1]
    while waiting:
        start, end = waiting.pop()
        chosen = [(lane, lane.rows_in(start, end)) for lane in lanes]
        if not _crowded([lane.hulls(rows) for lane, rows in chosen], lanes):
            continue
        count = sum(lane.count(rows, start, end) for lane, rows in chosen)
        half = (end - start) // 2 // shadow.granule * shadow.granule
        if count > 2 * _STRETCHES and half:
            waiting += [(start + half, end), (start, start + half)]
            continue
        parts = [lane.stretches(rows, start, end) for lane, rows in chosen]
        keep = _meeting(parts, lanes)
        if keep is not None:
            first = [(part[0] - shadow.base) // shadow.granule for part in parts]
            last = [(part[1] - shadow.base) // shadow.granule for part in parts]
            rest = [[part[n] for part in parts] for n in range(2, 6)]
            arrays = [np.concatenate(array)[keep] for array in (first, last, *rest)]
            yield from cut([tuple(arrays)], None)


class _Lanes:
    """The accesses of a record: rows of `length` bytes at `start` plus regular and other terms."""

    def __init__(self, record: Record) -> None:
        form = record.whole()
        self.record = record
        self.form = form
        self.length, rest, _ = form.run()
        self.rest = sorted(rest, reverse=True)
        self.inner = self.length + sum(step * (count - 1) for step, count in self.rest[1:])
        self.low, self.high = form.bounds()
        self.total = record.stretches()
        below = sum(int(term.min()) for term in form.irregular)
        above = sum(int(term.max()) for term in form.irregular)
        self.below = below
        self.extent = above - below + self.length + sum(step * (count - 1) for step, count in rest)
        self.irregular = 1
        for term in form.irregular:
            self.irregular *= term.shape[-1]

    def rows_in(self, low: int, high: int) -> Int64s:
        """The rows that may reach into ``[low, high)``."""
        form = self.form
        base = form.base + self.below
        if form.row_step is not None and form.row_step > 0:
            first = max(0, -(-(low - self.extent + 1 - base) // form.row_step))
            last = min(form.rows - 1, (high - 1 - base) // form.row_step)
            return np.arange(first, last + 1)
        start = form.offsets() + base
        return np.flatnonzero((start < high) & (start + self.extent > low))

    def _starts(self, rows: Int64s) -> Int64s:
        form = self.form
        if form.row_step is not None:
            return rows * form.row_step + form.base
        return np.full(len(rows), form.base, np.int64) if form.program is None else form.program[rows] + form.base

    def hulls(self, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """(first byte, behind the last, program) of each row."""
        start = self._starts(rows) + self.below
        return start, start + self.extent, self.form.id_array[rows]

    def _outer(self, rows: Int64s, low: int, high: int) -> tuple[Int64s, Int64s]:
        """(first, number) of the steps of the widest term that may reach into ``[low, high)``."""
        if not self.rest or self.form.irregular:
            return np.zeros(len(rows), np.int64), np.full(len(rows), self.rest[0][1] if self.rest else 1, np.int64)
        step, count = self.rest[0]
        start = self._starts(rows)
        first = np.maximum(0, -((start + self.inner - 1 - low) // step))
        last = np.minimum(count - 1, (high - 1 - start) // step)
        return first, np.maximum(0, last - first + 1)

    def count(self, rows: Int64s, low: int, high: int) -> int:
        """How many stretches `stretches` looks at."""
        each = self.irregular
        for _, count in self.rest[1:]:
            each *= count
        return int(self._outer(rows, low, high)[1].sum()) * each

    def stretches(self, rows: Int64s, low: int, high: int) -> Stretches:
        """The stretches of some rows, cut off at `low` and `high`; first and last are addresses."""
        first, number = self._outer(rows, low, high)
        row = np.repeat(np.arange(len(rows)), number)
        turn = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number) + first[row]
        row = rows[row]
        at = (self._starts(row) + turn * (self.rest[0][0] if self.rest else 0))[:, None]
        for step, count in self.rest[1:]:
            at = (at[:, :, None] + np.arange(count, dtype=np.int64) * step).reshape(len(row), at.shape[1] * count)
        for term in self.form.irregular:
            wide = term[row] if term.ndim == 2 and len(term) > 1 else np.atleast_2d(term)
            at = (at[:, :, None] + wide[:, None, :]).reshape(len(row), at.shape[1] * wide.shape[1])
        begin, end = np.maximum(at, low), np.minimum(at + self.length, high)
        chosen = end > begin
        row = row[np.nonzero(chosen)[0]]
        record = self.record
        epochs = np.zeros(len(row), np.int64) if record.epochs is None else record.epochs[row].astype(np.int64)
        times = np.full(len(row), record.time) if isinstance(record.time, int) else record.time[row]
        actor = np.full(len(row), record.actor.number, np.int64)
        return begin[chosen], end[chosen], actor, self.form.id_array[row], epochs, times


def _crowded(hulls: Sequence[tuple[Int64s, Int64s, Int64s]], lanes: Sequence[_Lanes]) -> bool:
    """Whether rows of several programs overlap, one of which writes."""
    return _clusters(hulls, lanes) is not None


def _meeting(parts: Sequence[Stretches], lanes: Sequence[_Lanes]) -> Any:
    """Which stretches lie where several programs meet, one of which writes; None if there are none."""
    return _clusters([(part[0], part[1], part[3]) for part in parts], lanes)


def _clusters(parts: Sequence[tuple[Int64s, Int64s, Int64s]], lanes: Sequence[_Lanes]) -> Any:
    first, last, program = (np.concatenate(arrays) for arrays in zip(*parts))
    if not len(first):
        return None
    writes = np.repeat([lane.record.actor.kind.writes for lane in lanes], [len(part[0]) for part in parts])
    order = np.argsort(first, kind="stable")
    first, program, writes = first[order], program[order], writes[order]
    reach = np.maximum.accumulate(last[order])
    heads = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), first[1:] >= reach[:-1]]))
    several = np.minimum.reduceat(program, heads) != np.maximum.reduceat(program, heads)
    several &= np.logical_or.reduceat(writes, heads)
    if not several.any():
        return None
    chosen = np.zeros(len(first), np.bool_)
    chosen[order] = np.repeat(several, np.diff(np.append(heads, len(first))))
    return chosen
