"""One byte of notes for each granule of an allocation: what was stored there already, and whether stores agreed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.forms import Form, Terms
from tritontrace.clients.races.windows import Window
from tritontrace.distinct import distinct_rows

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.engines.memory import Allocation

__all__ = ["CHANGED", "STORED", "Collision", "Rewrite", "Shadow", "collide", "lanes_distinct"]

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

STORED = 1
"""A plain store wrote the granule."""
CHANGED = 2
"""A later store left another value there than it found: the stores do not agree."""


_MOST_NOTES = 1 << 28
"""Granules of memory without content of which notes are kept."""
_MOST_ASCENDING = 1 << 10
"""Stores that are kept as they are."""


class Shadow:
    """The notes on one allocation. As long as each store lies behind all stores before it, only their places are kept; the
    array is made at the first one that does not, and its pages only where stores go.

    A granule is the largest power of two of bytes that every access so far is aligned to: usually one element.
    """

    __slots__ = ("_ascending", "_notes", "_top", "allocation", "base", "granule", "nbytes", "stored_twice")

    def __init__(self, base: int, nbytes: int, allocation: Allocation | None) -> None:
        self.base = base
        self.nbytes = nbytes
        self.allocation = allocation
        """The memory itself, or None where there is none to compare with (then stores never agree)."""
        self.granule = 64
        self._notes: Bytes | None = None
        self._ascending: list[tuple[int, int, Form | None]] = []  # (first byte, behind the last, None for all of these)
        self._top = base
        self.stored_twice = False

    @property
    def granules(self) -> int:
        """The number of granules."""
        return -(-self.nbytes // self.granule)

    @property
    def noted(self) -> bool:
        """Whether there are notes: not on large memory that does not exist, of which they would be all that exists."""
        return self.allocation is not None or self.granules <= _MOST_NOTES

    @property
    def notes(self) -> Bytes:
        """uint8 ``[granules]``."""
        if self._notes is None:
            self._notes = np.zeros(self.granules, np.uint8)
            for low, high, form in self._ascending:
                if form is None:
                    self._notes[(low - self.base) // self.granule : (high - self.base) // self.granule] = STORED
                else:
                    Window(form, self.base, self.granule, anonymous=True).write(self._notes, STORED)
            self._ascending.clear()
        return self._notes

    def stored(self, form: Form, window: Window) -> bool:
        """Whether something was stored to where `form` (as a `window`) leads."""
        if self._notes is None:
            low, high = form.bounds()
            if not any(first < high and low < last for first, last, _ in self._ascending):
                return False
        if not self.noted:
            return True
        return bool(window.read(self.notes).any())

    def fit(self, form: Form) -> None:
        """Makes granules small enough for `form`."""
        needed = form.alignment(self.base)
        if needed < self.granule:
            if self._notes is not None:
                self._notes = np.repeat(self._notes, self.granule // needed)[: -(-self.nbytes // needed)]
            self.granule = needed

    def holds(self, low: int, high: int) -> bool:
        """Whether all of ``[low, high)`` lies in the allocation."""
        return low >= self.base and high <= self.base + self.nbytes

    def clip(self, form: Form) -> list[Form]:
        """`form` without what lies outside of the allocation: those accesses are not made."""
        low, high = form.bounds()
        if self.holds(low, high):
            return [form]
        if high <= self.base or low >= self.base + self.nbytes:
            return []
        addresses = form.addresses()
        inside = (addresses >= self.base) & (addresses + form.size <= self.base + self.nbytes)
        rows, lanes = np.nonzero(inside)
        if not len(rows):
            return []
        return [Form(0, form.id_array[rows], form.size, None, addresses[rows, lanes])]

    def store(self, forms: list[Form], real: bool) -> list[Rewrite]:
        """Notes a store; where memory was stored to before, what `settle` needs once the store is made (if it is, `real`)."""
        if self._notes is None and self._goes_up(forms):
            return []
        if not self.noted:
            self.stored_twice = True  # for all that is known
            return []
        notes = self.notes
        windows = [Window(form, self.base, self.granule, anonymous=True) for form in forms]
        again: list[Rewrite] = []
        views = [window.read(notes) for window in windows]
        states = [(int(found.min()), int(found.max())) if found.size else (0, 0) for found in views]
        for window, found, (least, most) in zip(windows, views, states):
            if not most:
                continue
            self.stored_twice = True
            if least == STORED | CHANGED or not (found == STORED).any():
                continue  # nothing to learn any more: as where every holder of a lock stores to the same place
            content = self._content(window) if real else None
            # Where values are not known, stores never agree.
            again.append(Rewrite(self, window, found.copy(), content))
        for window, (least, most) in zip(windows, states):
            if not most:
                window.write(notes, STORED)
            elif least != STORED | CHANGED:
                window.write(notes, window.read(notes) | STORED)
        return again

    def _goes_up(self, forms: list[Form]) -> bool:
        """Whether a store lies behind all those before it; it is kept then."""
        if len(self._ascending) > _MOST_ASCENDING or min(form.bounds()[0] for form in forms) < self._top:
            return False
        for form in forms:
            low, high = form.bounds()
            self._top = max(self._top, high)
            length, rest, _ = form.run()
            gapless = not rest and not form.irregular and form.program is None
            if not gapless or (form.rows > 1 and abs(form.row_step or 0) not in (0, length)):
                self._ascending.append((low, high, form))
            elif self._ascending and self._ascending[-1][1:] == (low, None):
                self._ascending[-1] = self._ascending[-1][0], high, None
            else:
                self._ascending.append((low, high, None))
        return True

    def settle(self, rewrite: Rewrite) -> None:
        """Called after the store: notes where it changed what an earlier store had left."""
        window = rewrite.window
        stored = rewrite.found & STORED
        if rewrite.before is not None:
            stored &= self._content(window) != rewrite.before
        window.write(self.notes, window.read(self.notes) | stored * np.uint8(CHANGED))

    def note(self, collision: Collision) -> None:
        """Notes where lanes of one store met, and where they differed."""
        self.stored_twice = self.stored_twice or bool(len(collision.twice))
        if self.noted:
            self.notes[collision.changed] |= np.uint8(CHANGED)

    def _content(self, window: Window) -> npt.NDArray[Any] | None:
        if self.allocation is None:
            return None
        kind = np.dtype(f"u{self.granule}")  # a granule is no larger than the element that is stored
        whole = self.nbytes // self.granule * self.granule  # no access reaches a last, partial granule
        return np.array(window.read(self.allocation.buffer[:whole].view(kind)))


class Rewrite:
    """A store to memory of `shadow` that was stored to before: where, the notes it found, the content before it."""

    __slots__ = ("before", "found", "shadow", "window")

    def __init__(self, shadow: Shadow, window: Window, found: Bytes, before: npt.NDArray[Any] | None) -> None:
        self.shadow = shadow
        self.window = window
        self.found = found
        self.before = before


def lanes_distinct(forms: list[Form]) -> bool:
    """Whether no two lanes, of one program or of two, touch a common byte (lanes along `repeats` count as one)."""
    if len(forms) == 1:
        return _distinct(forms[0])
    starts, ends = [], []
    for form in forms:
        length, rest, overlap = form.run()
        if overlap:
            return False
        first = form.starts(rest).reshape(-1)
        starts.append(first)
        ends.append(first + length)
    first, last = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(first)
    return bool((first[order][1:] >= last[order][:-1]).all())


def _distinct(form: Form) -> bool:
    length, rest, overlap = form.run()
    if overlap:
        return False
    if form.program is None and form.row_step is None and form.rows > 1 and not any(t.ndim == 2 for t in form.irregular):
        return False
    if form.program is None and not form.irregular and _nested(length, rest, form.row_step, form.rows):
        return True
    starts = np.sort(form.starts(rest), axis=None)
    return bool((starts[1:] - starts[:-1] >= length).all())


@lru_cache(1024)
def _nested(length: int, rest: Terms, row_step: int | None, rows: int) -> bool:
    """Whether each term steps over all that smaller terms reach: a certain sign that no two lanes meet."""
    extent = length
    for step, count in sorted([*rest, (abs(row_step), rows)] if row_step is not None else rest):
        if step < extent:
            return False
        extent += step * (count - 1)
    return True


class Collision:
    """Lanes of one store that hit common bytes.

    `twice` and `changed` are granules, `faults` rows (program, first byte, bytes).
    """

    __slots__ = ("changed", "faults", "twice")

    def __init__(self, twice: Int64s, changed: Int64s, faults: Int64s) -> None:
        self.twice = twice
        self.changed = changed
        self.faults = faults


def collide_as_one(event: events.Store, form: Form, shadow: Shadow) -> Collision | None:
    """What `collide` tells of programs all of which store to the very same places, lane by lane; None for any other store."""
    if form.rows < 2 or form.program is not None or form.row_step is not None or form.repeats or form.rows != len(event):
        return None
    if event.mask is not None or any(term.ndim == 2 for term in form.irregular):
        return None
    length, rest, overlap = form.run()
    if overlap or form.irregular or not _nested(length, rest, None, 1):
        return None
    nothing = np.zeros(0, np.int64)
    some = nothing  # where they differ
    if shadow.noted:
        addresses = np.broadcast_to(event.address.dense()[:1], (1, *event.block)).reshape(-1)
        if event.value is not None:
            values = np.broadcast_to(np.asarray(event.value), event.shape).reshape(form.rows, -1)
            values = values.view(f"u{values.itemsize}") if values.dtype.kind in "fiu" else values
            addresses = addresses[(values != values[:1]).any(axis=0)]
        some = _granules(addresses, event.element_bytes, shadow)
    return Collision(np.zeros(1, np.int64), some, nothing.reshape(0, 3))


def collide(event: events.Store, ids: Int64s, shadow: Shadow) -> Collision | None:
    """Looks at the lanes of one store one by one; None if no two of them meet.

    `faults` are the programs of which two lanes write different values to one element.
    """
    active = event.active()
    addresses = event.addresses()[active]
    size = event.element_bytes
    inside = (addresses >= shadow.base) & (addresses + size <= shadow.base + shadow.nbytes)
    rows = np.nonzero(active)[0]
    value = event.value
    if value is None:
        values = np.arange(len(addresses))  # not known: every lane differs
    else:
        values = np.broadcast_to(np.asarray(value), event.shape)[active]
        values = values.view(f"u{values.itemsize}") if values.dtype.kind in "fiu" else values
    if not inside.all():
        addresses, rows, values = addresses[inside], rows[inside], values[inside]
    if len(addresses) < 2:
        return None
    order = np.argsort(addresses, kind="stable")
    addresses, rows, values = addresses[order], rows[order], values[order]
    gaps = np.diff(addresses)
    if bool((gaps >= size).all()):
        return None
    programs = ids[rows]
    # Lanes whose elements overlap only in part are compared byte by byte, and never count as equal.
    cluster = np.concatenate([np.zeros(1, np.int64), np.cumsum(gaps >= size)])
    torn = np.zeros(cluster[-1] + 1, bool)
    torn[cluster[1:][(gaps > 0) & (gaps < size)]] = True
    torn_lanes = torn[cluster]
    parts = []
    if not torn_lanes.all():
        clean = ~torn_lanes
        parts.append(_meetings(addresses[clean], programs[clean], values[clean], size, shadow))
    if torn_lanes.any():
        spread = np.arange(size, dtype=np.int64)
        addresses = (addresses[torn_lanes][:, None] + spread).reshape(-1)
        programs = np.repeat(programs[torn_lanes], size)
        order = np.argsort(addresses, kind="stable")
        parts.append(_meetings(addresses[order], programs[order], np.arange(len(order)), 1, shadow))
    twice, changed, faults = (np.concatenate(arrays) for arrays in zip(*parts))
    return Collision(twice, changed, faults)


def _meetings(
    addresses: Int64s, programs: Int64s, values: npt.NDArray[Any], size: int, shadow: Shadow
) -> tuple[Int64s, Int64s, Int64s]:
    """The parts of a `Collision` for lanes sorted by address, of which those that meet have the same address."""
    first = np.concatenate([np.ones(1, bool), np.diff(addresses) > 0])
    group = np.cumsum(first) - 1
    several = np.bincount(group) > 1
    lead = np.flatnonzero(first)
    apart = np.zeros(len(lead), bool)
    apart[group[values != values[lead[group]]]] = True
    return (
        _granules(addresses[lead[several]], size, shadow),
        _granules(addresses[lead[apart]], size, shadow),
        _faults(addresses, programs, values, apart[group], size),
    )


def _granules(addresses: Int64s, size: int, shadow: Shadow) -> Int64s:
    if size <= shadow.granule:
        return (addresses - shadow.base) // shadow.granule
    spread = np.arange(size // shadow.granule, dtype=np.int64)
    return ((addresses - shadow.base)[:, None] // shadow.granule + spread).reshape(-1)


def _faults(addresses: Int64s, programs: Int64s, values: npt.NDArray[Any], apart: npt.NDArray[np.bool_], size: int) -> Int64s:
    """(program, first byte, bytes) where lanes of one program differ in value, int64 ``[N, 3]``."""
    addresses, programs, values = addresses[apart], programs[apart], values[apart]
    order = np.lexsort((addresses, programs))
    addresses, programs, values = addresses[order], programs[order], values[order]
    same = (addresses[1:] == addresses[:-1]) & (programs[1:] == programs[:-1]) & (values[1:] != values[:-1])
    hits = np.flatnonzero(same)
    rows = np.column_stack([programs[hits], addresses[hits], np.full(len(hits), size)])
    return distinct_rows(rows)
