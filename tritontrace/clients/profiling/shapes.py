"""What one access of one program touches, as runs of bytes: 32-byte sectors, distinct bytes, contiguous pieces.

A tile of addresses is a set of *runs*: equally long pieces of contiguous bytes. What they touch depends on where the runs
lie relative to each other and on the address of the first modulo 32, and on nothing else. So it is worked out once for
each arrangement of runs, and an access of a thousand programs is a look at a table.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SECTOR", "Runs", "Term", "arrange", "measure", "runs_of"]

SECTOR = 32
"""Bytes of a sector: the least that a GPU moves between its caches and memory."""

Int64s = npt.NDArray[np.int64]

Term = tuple[int, int] | Int64s
"""One axis of a tile: (byte step, count) where it is regular, else byte offsets that start at 0."""


def measure(starts: Any, length: int) -> tuple[Int64s, Int64s, Int64s]:
    """(sectors, distinct bytes, contiguous pieces) of each row of runs ``[P, R]`` that are `length` bytes long."""
    if starts.shape[1] > 1:
        steps = np.diff(starts, axis=1)
        if steps.min() < 0:
            starts = np.sort(starts, axis=1)
            steps = np.diff(starts, axis=1)
        distinct = np.minimum(steps, length).sum(axis=1, dtype=np.int64) + length
        pieces = np.count_nonzero(steps > length, axis=1) + 1
    else:
        distinct = np.full(len(starts), length, np.int64)
        pieces = np.ones(len(starts), np.int64)
    last = (starts + (length - 1)) >> 5
    # The first sector of a run is not counted again if the run before it has touched it.
    before = (starts >> 5) - 1
    sectors = (last[:, 0] - before[:, 0]).astype(np.int64)
    if starts.shape[1] > 1:
        sectors += (last[:, 1:] - np.maximum(before[:, 1:], last[:, :-1])).sum(axis=1, dtype=np.int64)
    return sectors, distinct, pieces


class Runs:
    """An arrangement of runs: `starts` (bytes, from 0) of pieces that are `length` bytes long.

    `terms` are the axes that the starts are the sum of; everything lies in ``[low, high)``.
    """

    __slots__ = ("_sectors", "_starts", "alignment", "distinct", "high", "length", "low", "pieces", "sectors_needed", "terms")

    def __init__(self, terms: tuple[Term, ...], length: int) -> None:
        self.terms = terms
        self.length = length
        starts = np.sort(_outer(terms))
        _, distinct, pieces = measure(starts[None], length)
        self.distinct = int(distinct[0])
        self.low, self.high = int(starts[0]), int(starts[-1]) + length
        self.pieces = int(pieces[0])
        self.sectors_needed = -(-self.distinct // SECTOR)
        # All starts and the length are multiples of this, a power of two, when the first start is.
        bits = length | int(np.bitwise_or.reduce(starts))
        self.alignment = bits & -bits
        self._starts: Int64s | None = starts if len(starts) <= 4096 else None
        self._sectors: dict[int, int] = {}

    @property
    def starts(self) -> Int64s:
        """Every start, sorted; int64 ``[R]``."""
        return self._starts if self._starts is not None else np.sort(_outer(self.terms))

    def sectors(self, residue: int) -> int:
        """Sectors that are touched if the first run begins at `residue` modulo 32."""
        found = self._sectors.get(residue)
        if found is None:
            found = self._sectors[residue] = int(measure(self.starts[None] + residue, self.length)[0][0])
        return found

    def total_sectors(self, bases: Any) -> int:
        """Sectors of one program for each address in `bases`."""
        if len(bases) == 1:
            return self.sectors(int(bases[0]) & (SECTOR - 1))
        residues = bases & (SECTOR - 1)
        if not residues.any():
            return self.sectors(0) * len(bases)
        counts = np.bincount(residues, minlength=SECTOR)
        return sum(self.sectors(residue) * int(counts[residue]) for residue in np.flatnonzero(counts).tolist())


def _outer(terms: tuple[Term, ...]) -> Int64s:
    out = np.zeros(1, np.int64)
    for term in terms:
        values = np.arange(term[1], dtype=np.int64) * term[0] if isinstance(term, tuple) else term
        out = (out[:, None] + values[None, :]).reshape(-1)
    return out


def arrange(terms: list[Term], size: int) -> tuple[tuple[Term, ...], int, int]:
    """(axes of the starts, length of a run, shift of the first start) for elements of `size` bytes at the sum of `terms`.

    Axes along which bytes follow each other become part of the runs; axes that repeat addresses go.
    """
    shift = 0
    regular: list[tuple[int, int]] = []
    rest: list[Term] = []
    for term in terms:
        if not isinstance(term, tuple):
            rest.append(term)
            continue
        step, count = term
        if count == 1 or step == 0:
            continue
        if step < 0:
            shift += step * (count - 1)
            step = -step
        regular.append((step, count))
    regular.sort()
    length = size
    outer: list[Term] = []
    for step, count in regular:
        if step <= length:  # touching or overlapping: still one piece
            length += step * (count - 1)
        else:
            outer.append((step, count))
    return (*outer, *rest), length, shift


_ARRANGEMENTS: dict[Any, Runs] = {}
"""Arrangements that were met lately, by their axes: they are facts about numbers, the same in all launches."""
_MOST_ARRANGEMENTS = 512
_MOST_KEPT = 1 << 12
"""Starts of an arrangement that is kept beyond its launch."""


def runs_of(cache: dict[Any, Runs], terms: tuple[Term, ...], length: int) -> Runs:
    """The arrangement of runs at the sums of `terms`, from `cache` (that of a launch) or an earlier launch, or made now."""
    key = (length, *(term if isinstance(term, tuple) else term.tobytes() for term in terms))
    found = cache.get(key)
    if found is None:
        if len(cache) >= 4096:
            cache.clear()
        found = _ARRANGEMENTS.get(key)
        if found is None:
            found = Runs(terms, length)
            if all(isinstance(term, tuple) for term in terms) and math.prod(count for _, count in terms) <= _MOST_KEPT:
                if len(_ARRANGEMENTS) >= _MOST_ARRANGEMENTS:
                    _ARRANGEMENTS.clear()
                _ARRANGEMENTS[key] = found
        cache[key] = found
    return found
