"""Which bytes each program of a batch touches, as sums of few terms, so that nobody has to build all addresses.

A `Form` says: row ``r`` (the program ``ids[r]``) touches ``size`` bytes from every address
``base + program[r] + regular steps + irregular terms``. Masks are folded in: an axis loses its masked-off part, programs
that are off altogether lose their row, and only programs that are partly on are taken lane by lane (as runs of lanes).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.distinct import distinct
from tritontrace.engines.ir.values import Compare, Mask, Separable

if TYPE_CHECKING:
    from tritontrace import events

__all__ = ["Form", "Shapes", "Terms", "forms_of", "merge_runs", "stretches"]

Int64s = npt.NDArray[np.int64]
Terms = tuple[tuple[int, int], ...]
Rows = Int64s | range
"""Linear program ids: a range where they follow each other."""

_MOST_SHAPES = 1 << 10
_MOST_LENGTHS = 6
"""Different lengths of runs that are kept as runs; with more of them, lanes are kept one by one."""


@lru_cache(1024)
def stretches(size: int, regular: Terms) -> tuple[int, Terms, bool]:
    """For elements of `size` bytes at sums of `regular` terms: what `Form.run` gives."""
    length = size
    rest: list[tuple[int, int]] = []
    overlap = False
    for step, count in sorted(regular):
        if step <= length:
            overlap = overlap or step < length
            length += step * (count - 1)
        elif rest and rest[-1][0] == step:
            overlap = True
            rest[-1] = (step, rest[-1][1] + count - 1)
        else:
            rest.append((step, count))
    return length, tuple(rest), overlap


class Form:
    """Addresses of some programs, all lanes active.

    `ids` are the linear ids of the programs, one a row. A row's own offset is ``row_step * r`` if `row_step` is not None, else
    ``program[r]``, else (both None) 0. `regular` are terms (step, count) with positive steps, `irregular` arrays ``[n]`` or
    ``[R, n]``. `repeats` are the tile axes along which the address stays the same.
    """

    __slots__ = ("base", "ids", "irregular", "known", "program", "regular", "repeats", "row_step", "size")

    def __init__(
        self,
        base: int,
        ids: Rows,
        size: int,
        row_step: int | None = None,
        program: Int64s | None = None,
        regular: Terms = (),
        irregular: tuple[Int64s, ...] = (),
        repeats: tuple[int, ...] = (),
    ) -> None:
        self.base = base
        self.ids = ids
        self.size = size
        self.row_step = row_step
        self.program = program
        self.regular = regular
        self.irregular = irregular
        self.repeats = repeats
        self.known: tuple[int, int] | None = None
        """What `bounds` gives, if somebody has found it already."""

    @property
    def rows(self) -> int:
        """The number of programs."""
        return len(self.ids)

    @property
    def id_array(self) -> Int64s:
        """The linear ids as an array."""
        ids = self.ids
        return np.arange(ids.start, ids.stop, dtype=np.int64) if isinstance(ids, range) else ids

    @property
    def nbytes(self) -> int:
        """Roughly what the form keeps in memory."""
        total = 300 if isinstance(self.ids, range) else 300 + self.ids.nbytes
        total += self.program.nbytes if self.program is not None else 0
        return total + sum(term.nbytes for term in self.irregular)

    def first(self) -> int:
        """The address of one lane."""
        start = self.base + (0 if self.program is None else int(self.program[0]))
        return start + sum(int(term.reshape(-1)[0]) for term in self.irregular)

    def bounds(self) -> tuple[int, int]:
        """A byte that is not behind the first one, and one that is behind the last, over all rows."""
        if self.known is not None:
            return self.known
        low = high = self.base
        if self.row_step is not None:
            reach = self.row_step * (self.rows - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        elif self.program is not None:
            low, high = low + int(self.program.min()), high + int(self.program.max())
        for step, count in self.regular:
            high += step * (count - 1)
        for term in self.irregular:
            low, high = low + int(term.min()), high + int(term.max())
        return low, high + self.size

    def alignment(self, origin: int) -> int:
        """Addresses relative to `origin`, and the size, are multiples of this power of two (at most 64)."""
        bits = (self.base - origin) | self.size | 64
        if self.row_step is not None:
            bits |= self.row_step
        elif self.program is not None:
            bits |= int(np.bitwise_or.reduce(self.program))
        for step, _ in self.regular:
            bits |= step
        for term in self.irregular:
            bits |= int(np.bitwise_or.reduce(term, axis=None))
        return bits & -bits

    def offsets(self) -> Int64s:
        """Each row's own offset, int64 ``[R]``."""
        if self.row_step is not None:
            return np.arange(self.rows, dtype=np.int64) * self.row_step
        return np.zeros(self.rows, np.int64) if self.program is None else self.program

    def take(self, rows: Int64s) -> Form:
        """The form of some of the rows."""
        program = None if self.row_step is None and self.program is None else self.offsets()[rows]
        irregular = tuple(term[rows] if term.ndim == 2 else term for term in self.irregular)
        return Form(self.base, self.id_array[rows], self.size, None, program, self.regular, irregular, self.repeats)

    def run(self) -> tuple[int, Terms, bool]:
        """(length in bytes of the gapless stretches, the regular terms that lead from one to the next, lanes overlap)."""
        return stretches(self.size, self.regular)

    def starts(self, rest: Terms) -> Int64s:
        """The first address of every stretch, int64 ``[R, stretches of a row]``."""
        out = (self.offsets() + self.base)[:, None]
        for step, count in rest:
            out = (out[:, :, None] + np.arange(count, dtype=np.int64) * step).reshape(self.rows, -1)
        for term in self.irregular:
            out = (out[:, :, None] + np.atleast_2d(term)[:, None, :]).reshape(self.rows, -1)
        return out

    def addresses(self) -> Int64s:
        """Every element's address, int64 ``[R, elements of a row]``."""
        return self.starts(self.regular)

    def same_shape(self, other: Form) -> bool:
        """Whether both differ in nothing but `base`, programs and rows' offsets."""
        return (
            self.size == other.size
            and self.regular == other.regular
            and len(self.irregular) == len(other.irregular)
            and all(a is b or np.array_equal(a, b) for a, b in zip(self.irregular, other.irregular))
        )


class Shapes:
    """What is the same in all the accesses that share their axes: found once for each set of axes.

    A loop moves a tile's pointers by constants, and a lock gives programs in ever new order: the axes stay the same objects.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[Any, _Shape | None]] = {}

    def of(self, address: Any) -> _Shape | None:
        """The shape of an address, None if it has to be looked at on its own."""
        if type(address) is not Separable:
            return None
        axes = address.axes
        key = tuple([id(axis) for axis in axes])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            # The axes are kept, so that no other objects get their ids.
            found = self._known[key] = axes, _shape(axes)
        return found[1]


def forms_of(event: events.MemoryEvent, ids: Rows, shapes: Shapes | None = None) -> list[Form]:
    """The forms of an access by the programs `ids` (one for each row of the batch); empty if no lane is on."""
    if event.mask is None and shapes is not None:
        shape = shapes.of(event.address)
        if shape is not None:
            return [shape.form(event.address, ids, event.element_bytes)]
    terms = _terms(event)
    if event.mask is None:
        return [_form(terms, ids, event.element_bytes, {}, None)] if terms is not None else _lanes(event, ids, None)
    state = _MaskState(event)
    for part in event.mask.parts if isinstance(event.mask, Mask) else (event.mask.dense(),):
        state.add(part)
        if state.nothing:
            return []
    if state.rows is None and terms is not None:
        return [_form(terms, ids, event.element_bytes, state.keep, None)]
    rows = np.full(len(event), 2, np.int8) if state.rows is None else state.rows
    whole = np.flatnonzero(rows == 2)
    out: list[Form] = []
    if terms is None:
        return _lanes(event, ids, np.flatnonzero(rows > 0))
    if len(whole):
        out.append(_form(terms, ids, event.element_bytes, state.keep, whole))
    partly = np.flatnonzero(rows == 1)
    if len(partly):
        out += _lanes(event, ids, partly)
    return out


class _Shape:
    """The terms of some axes, none of which differs between programs: `base` is what they add to every address."""

    __slots__ = ("base", "irregular", "regular", "repeats")

    def __init__(self, base: int, regular: Terms, irregular: tuple[Int64s, ...], repeats: tuple[int, ...]) -> None:
        self.base = base
        self.regular = regular
        self.irregular = irregular
        self.repeats = repeats

    def form(self, address: Any, ids: Rows, size: int) -> Form:
        """The form of an access without a mask."""
        base, program = address.constant + self.base, address.program
        base, row_step, program = _rows_of(base, program, ids)
        form = Form(base, ids, size, row_step, program, self.regular, self.irregular, self.repeats)
        if program is not None or self.irregular:
            low, high = address.extremes()  # which others may have asked for
            form.known = low, high + size
        return form


def _shape(axes: tuple[Any, ...]) -> _Shape | None:
    if any(axis is not None and axis.values.ndim == 2 for axis in axes):
        return None
    form = _form((0, None, list(axes)), range(1), 1, {}, None)
    return _Shape(form.base, form.regular, form.irregular, form.repeats)


_Terms = tuple[int, Any, list[Any]]
"""(constant, per-program array ``[P]`` or None, one array ``[n]``/``[P, n]`` or None per tile axis)."""


def _terms(event: events.MemoryEvent) -> _Terms | None:
    form: Any = event.address
    if isinstance(form, Separable):
        return form.constant, form.program, [None if axis is None else axis for axis in form.axes]
    values = form.dense()
    varying = [axis for axis in range(1, values.ndim) if values.shape[axis] > 1]
    axes: list[Any] = [None] * len(event.block)
    if not varying:
        flat = values.reshape(-1)
        return (int(flat[0]), None, axes) if len(flat) == 1 else (0, flat, axes)
    if len(varying) > 1:
        return None
    flat = values.reshape(values.shape[0], -1)
    axes[varying[0] - 1 - (values.ndim - 1 - len(axes))] = flat[0] if len(flat) == 1 else flat
    return 0, None, axes


def _form(terms: _Terms, ids: Rows, size: int, keep: dict[int, Any], rows: Int64s | None) -> Form:
    base, program, axes = terms
    regular: list[tuple[int, int]] = []
    irregular: list[Int64s] = []
    if rows is not None:
        ids = (np.arange(ids.start, ids.stop, dtype=np.int64) if isinstance(ids, range) else ids)[rows]
        program = None if program is None else program[rows]
    repeats: list[int] = []
    for number, axis in enumerate(axes):
        if axis is None:
            repeats.append(number)
            continue
        values = axis if isinstance(axis, np.ndarray) else axis.values
        if values.ndim == 2 and rows is not None:
            values = values[rows]
        kept = keep.get(number)
        if kept is not None:
            values = values[..., kept]
        if values.shape[-1] == 1 or values.ndim == 2:
            if values.ndim == 1:
                base += int(values[0])
                continue
            first = values[:, 0]
            step = _row_step(values)
            if step is None:
                irregular.append(values)
                continue
            program = first if program is None else program + first
            count = values.shape[1]
        else:
            step = axis.step if kept is None and not isinstance(axis, np.ndarray) else _step(values)
            if step is None:
                irregular.append(values)
                continue
            base += int(values[0])
            count = len(values)
        if step < 0:
            base += step * (count - 1)
            step = -step
        if step == 0:
            if count > 1:
                repeats.append(number)
        else:
            regular.append((step, count))
    base, row_step, program = _rows_of(base, program, ids)
    return Form(base, ids, size, row_step, program, tuple(sorted(regular)), tuple(irregular), tuple(repeats))


def _rows_of(base: int, program: Any, ids: Rows) -> tuple[int, int | None, Any]:
    """(base, step from row to row, offsets of the rows) of an access: of the latter two one at most is needed."""
    step = None if program is None else _step(program)
    if step is None:
        return base, None, program
    return base + int(program[0]), None if step == 0 or len(ids) == 1 else step, None


def _step(values: Int64s) -> int | None:
    if len(values) == 1:
        return 0
    step = int(values[1]) - int(values[0])
    reach = step * (len(values) - 1)
    if len(values) == 2 or (int(values[-1]) - int(values[0]) == reach and bool((values[1:] - values[:-1] == step).all())):
        return step
    return None


def _row_step(values: Int64s) -> int | None:
    if values.shape[1] == 1:
        return 0
    step = int(values[0, 1]) - int(values[0, 0])
    return step if bool((np.diff(values, axis=1) == step).all()) else None


class _MaskState:
    """What the parts of a conjunction leave: of each axis, and of each program."""

    def __init__(self, event: events.MemoryEvent) -> None:
        self.block = event.block
        self.count = len(event)
        self.keep: dict[int, Any] = {}
        self.rows: Any = None
        """None for "every program whole", else int8 ``[P]``: 2 whole, 1 partly, 0 not at all."""
        self.nothing = False

    def add(self, part: Any) -> None:
        if isinstance(part, Compare):
            always, never = part.decided()
            if always:
                return
            if never:
                self.nothing = True
                return
            difference = part.difference
            if difference.programs() > 1:
                self._limit(*_by_row(part.predicate, *difference.bounds()))
                return
            part = part.dense()
        varying = [axis for axis in range(1, part.ndim) if part.shape[axis] > 1]
        if part.shape[0] == 1 and len(varying) == 1:
            axis = varying[0] - 1 - (part.ndim - 1 - len(self.block))
            kept = part.reshape(-1)
            kept = kept & self.keep[axis] if axis in self.keep else kept
            if not kept.all():
                self.keep[axis] = kept
                self.nothing = not kept.any()
            return
        flat = part.reshape(part.shape[0], -1)
        self._limit(flat.all(axis=1), ~flat.any(axis=1))

    def _limit(self, always: Any, never: Any) -> None:
        if bool(np.all(always)):
            return
        state = np.where(never, 0, np.where(always, 2, 1)).astype(np.int8)
        state = np.broadcast_to(state, (self.count,))
        self.rows = state if self.rows is None else np.minimum(self.rows, state)
        self.nothing = self.nothing or not self.rows.any()


def _by_row(predicate: str, low: Any, high: Any) -> tuple[Any, Any]:
    """(true on every lane, false on every lane) of ``x predicate 0`` for each row's x in ``[low, high]``."""
    if predicate == "lt":
        return high < 0, low >= 0
    if predicate == "le":
        return high <= 0, low > 0
    if predicate == "gt":
        return low > 0, high <= 0
    if predicate == "ge":
        return low >= 0, high < 0
    equal, apart = (low == 0) & (high == 0), (low > 0) | (high < 0)
    return (equal, apart) if predicate == "eq" else (apart, equal)


def _lanes(event: events.MemoryEvent, ids: Rows, rows: Int64s | None) -> list[Form]:
    """The active lanes of some rows, one by one, put together to runs."""
    ids = np.arange(ids.start, ids.stop, dtype=np.int64) if isinstance(ids, range) else ids
    count = len(event)
    address: Any = event.address
    mask: Any = event.mask
    if rows is None:
        rows = np.arange(count)
    if len(rows) < count and hasattr(address, "take"):
        addresses = address.take(rows).dense()
    else:
        addresses = event.addresses()[rows]
    shape = (len(rows), *event.block)
    addresses = np.broadcast_to(addresses, shape)
    if mask is None or mask.all():
        where = np.repeat(np.arange(len(rows)), int(np.prod(event.block, dtype=np.int64)))
        picked = addresses.reshape(-1)
    else:
        active = mask.take(rows).dense() if len(rows) < count and hasattr(mask, "take") else event.active()[rows]
        active = np.broadcast_to(active, shape)
        where = np.nonzero(active)[0]
        picked = addresses[active]
    return merge_runs(np.ascontiguousarray(picked), ids[rows[where]], event.element_bytes)


def merge_runs(addresses: Int64s, ids: Int64s, size: int) -> list[Form]:
    """Forms for lanes given one by one, where neighbours of one program that lie side by side make a run."""
    if not len(addresses):
        return []
    breaks = np.flatnonzero((np.diff(addresses) != size) | (np.diff(ids) != 0)) + 1
    if len(breaks) * 2 < len(addresses):
        starts = np.concatenate([np.zeros(1, np.int64), breaks])
        lengths = np.diff(np.append(starts, len(addresses)))
        kinds = distinct(lengths)
        if len(kinds) <= _MOST_LENGTHS:
            out = []
            for length in kinds.tolist():
                chosen = starts[lengths == length]
                regular = ((size, length),) if length > 1 else ()
                out.append(Form(0, ids[chosen], size, None, addresses[chosen], regular))
            return out
    return [Form(0, ids, size, None, addresses)]
