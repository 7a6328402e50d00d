"""What a launch did to one allocation, kept small: accesses that follow one another are put together as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.forms import Form, Terms
from tritontrace.clients.races.shadow import Shadow
from tritontrace.distinct import distinct

if TYPE_CHECKING:
    from tritontrace.clients.races.actors import Actor

__all__ = ["Record", "Region", "bundled"]

Int64s = npt.NDArray[np.int64]
Epochs = npt.NDArray[np.int32]

_BUDGET = 64 << 20
"""Bytes of records of one allocation after which they are looked through for what can be said shorter."""
_ROWS = 1 << 16
"""Rows that are put together to one record."""


class Record:
    """Accesses of one actor: `form`, and again `count - 1` times, each `step` bytes further.

    `epochs` holds, for each row, how many synchronizing operations its program had done before (None: nobody counts them).
    `time` orders accesses as the launch made them; of a program's accesses in one epoch any one's time will do.
    """

    __slots__ = ("actor", "count", "epochs", "form", "step", "time")

    def __init__(
        self, actor: Actor, time: int | Int64s, form: Form, epochs: Epochs | None, count: int = 1, step: int = 0
    ) -> None:
        self.actor = actor
        self.time = time
        self.form = form
        self.epochs = epochs
        self.count = count
        self.step = step

    @property
    def repeat(self) -> Terms:
        """The repetitions as a term (step, count)."""
        return ((self.step, self.count),) if self.count > 1 else ()

    def whole(self) -> Form:
        """One form for all repetitions."""
        return self.form if self.count == 1 else repeated(self.form, self.count, self.step)

    def stretches(self) -> int:
        """How many gapless stretches all rows have together."""
        form = self.form
        total = form.rows * self.count
        for _, count in form.run()[1]:
            total *= count
        for term in form.irregular:
            total *= term.shape[-1]
        return total

    def elements(self) -> int:
        """How many elements all rows touch together."""
        form = self.form
        total = form.rows * self.count
        for _, count in form.regular:
            total *= count
        for term in form.irregular:
            total *= term.shape[-1]
        return total

    def split(self, limit: int) -> Iterator[Record]:
        """The record in parts of about `limit` elements."""
        total = self.elements()
        if total <= limit:
            yield self
            return
        form = self.form
        per_row = total // form.rows
        rows = max(1, limit // per_row)
        turns = self.count if rows > 1 else max(1, min(self.count, limit * self.count // per_row))
        for start in range(0, form.rows, rows):
            stop = min(form.rows, start + rows)
            part = _rows(form, start, stop)
            epochs = None if self.epochs is None else self.epochs[start:stop]
            time = self.time if isinstance(self.time, int) else self.time[start:stop]
            for turn in range(0, self.count, turns):
                there = _moved(part, self.step * turn)
                yield Record(self.actor, time, there, epochs, min(turns, self.count - turn), self.step)


def _rows(form: Form, start: int, stop: int) -> Form:
    if start == 0 and stop == form.rows:
        return form
    base = form.base + (form.row_step or 0) * start
    program = None if form.program is None else form.program[start:stop]
    irregular = tuple(term[start:stop] if term.ndim == 2 else term for term in form.irregular)
    return Form(base, form.ids[start:stop], form.size, form.row_step, program, form.regular, irregular, form.repeats)


def repeated(form: Form, count: int, step: int) -> Form:
    """`form`, and again `count - 1` times, each `step` bytes further."""
    base = form.base + min(0, step) * (count - 1)
    regular = (*form.regular, (abs(step), count))
    return Form(base, form.ids, form.size, form.row_step, form.program, regular, form.irregular)


def _moved(form: Form, distance: int) -> Form:
    """`form`, `distance` bytes further."""
    if not distance:
        return form
    return Form(
        form.base + distance, form.ids, form.size, form.row_step, form.program, form.regular, form.irregular, form.repeats
    )


class _Bundle:
    """Accesses of one actor by single programs, which differ in nothing but where they begin; put together later."""

    __slots__ = ("actor", "epochs", "ids", "regular", "rows", "starts", "times")

    def __init__(self, actor: Actor, regular: Terms) -> None:
        self.actor = actor
        self.regular = regular
        self.rows = 0
        self.starts: list[Int64s] = []
        self.ids: list[Int64s] = []
        self.epochs: list[Epochs] = []
        self.times: list[int] = []

    def record(self) -> Record:
        """All of them as one record."""
        form = Form(0, np.concatenate(self.ids), self.actor.size, None, np.concatenate(self.starts), self.regular)
        times = np.repeat(np.array(self.times, np.int64), [len(part) for part in self.ids])
        return Record(self.actor, times, form, np.concatenate(self.epochs))


class Region:
    """One allocation: its `shadow`, and the `records` of the accesses that may matter (complete after `flush`)."""

    __slots__ = ("_bundles", "_last", "bytes", "limit", "records", "shadow")

    def __init__(self, shadow: Shadow) -> None:
        self.shadow = shadow
        self.records: list[Record] = []
        self._last: dict[int, Record] = {}
        self._bundles: dict[tuple[int, Terms], _Bundle] = {}
        self.bytes = 0
        self.limit = _BUDGET

    def add(
        self,
        actor: Actor,
        time: int,
        form: Form,
        epochs: Epochs | None,
        *,
        apart: bool = False,
        count: int = 1,
        step: int = 0,
    ) -> None:
        """Keeps an access that the shadow was fitted to, made `count` times, each time `step` bytes further.

        With `apart` it is not put together with others (its time matters).
        """
        last = self._last.get(actor.number)
        if last is not None and not apart and _joined(last, form, epochs, count, step):
            return
        record = Record(actor, time, form, epochs, count, step)
        if not apart:
            self._last[actor.number] = record
        if apart or epochs is None:
            self._keep(record)
        elif last is not None:
            self._file(last)

    def _keep(self, record: Record) -> None:
        self.records.append(record)
        self.bytes += record.form.nbytes + (0 if record.epochs is None else record.epochs.nbytes)
        if self.bytes > self.limit:
            self.compact()

    def _file(self, record: Record) -> None:
        """Keeps what nothing was joined to, or not any more, among its like."""
        form, epochs = record.form, record.epochs
        if epochs is None or record.count > 1 or form.irregular or not isinstance(record.time, int):
            self._keep(record)
            return
        key = record.actor.number, form.regular
        found = self._bundles.get(key)
        if found is None:
            found = self._bundles[key] = _Bundle(record.actor, form.regular)
        found.starts.append(form.offsets() + form.base)
        found.ids.append(form.id_array)
        found.epochs.append(epochs)
        found.times.append(record.time)
        found.rows += form.rows
        if found.rows > _ROWS:
            self._keep(self._bundles.pop(key).record())

    def flush(self) -> None:
        """Makes `records` complete."""
        open_ended = [record for record in self._last.values() if record.epochs is not None]  # the others are in `records`
        self._last.clear()
        for record in open_ended:
            self._file(record)
        for bundle in self._bundles.values():
            self._keep(bundle.record())
        self._bundles.clear()

    def compact(self) -> None:
        """Says again what single lanes did: each program's stretches once, side by side ones joined."""
        by_actor: dict[int, list[Record]] = {}
        kept: list[Record] = []
        for record in self.records:
            if record.stretches() * 16 <= 4 * record.form.nbytes:
                by_actor.setdefault(record.actor.number, []).append(record)
            else:
                kept.append(record)
        for records in by_actor.values():
            kept += _united(records)
        self.records = kept
        self._last = {number: record for number, record in self._last.items() if record.epochs is not None}
        self.bytes = sum(r.form.nbytes + (0 if r.epochs is None else r.epochs.nbytes) for r in kept)
        self.limit = max(_BUDGET, 2 * self.bytes)


def _joined(last: Record, form: Form, epochs: Epochs | None, count: int, step: int) -> bool:
    """Puts `form`, `count` times, together with the actor's last record, if the two make a progression."""
    old = last.form
    if not old.same_shape(form):
        return False
    if old.rows == form.rows and _same(old.ids, form.ids):
        if (epochs is None) != (last.epochs is None):
            return False
        if epochs is not None and last.epochs is not None and not np.array_equal(epochs, last.epochs):
            return False
        distance = _distance(old, form)
        return distance is not None and _progress(last, distance, count, step)
    if last.count > 1 or count > 1 or epochs is not None or last.epochs is not None:
        return False
    return _continued(old, form)


def _progress(last: Record, distance: int, count: int, step: int) -> bool:
    """Joins what begins `distance` behind `last` and is made `count` times."""
    if last.count == 1:
        if count == 1:
            if distance:
                last.step, last.count = distance, 2
        elif not distance:
            last.step, last.count = step, count
        elif distance == step:
            last.step, last.count = step, count + 1
        else:
            return False
        return True
    if count > 1 and step != last.step:
        return False
    turn, rest = divmod(distance, last.step)
    if rest or not 0 <= turn <= last.count:
        return False
    last.count = max(last.count, turn + count)
    return True


def _same(a: Int64s | range, b: Int64s | range) -> bool:
    """Whether two sets of ids, of one length, are the same."""
    if a is b:
        return True
    if isinstance(a, range) or isinstance(b, range):
        return isinstance(a, range) and isinstance(b, range) and a == b
    return bool(a[0] == b[0]) and np.array_equal(a, b)


def _distance(old: Form, new: Form) -> int | None:
    """How far `new` is from `old` if every row has moved by the same distance."""
    distance = new.base - old.base
    if old.program is None and new.program is None:
        return distance if old.row_step == new.row_step else None
    if old.program is new.program:
        return distance
    way = new.offsets() - old.offsets()
    first = int(way[0])
    return distance + first if bool((way == first).all()) else None


def _continued(old: Form, new: Form) -> bool:
    """Appends the rows of `new` to `old`, if ids and addresses go on regularly."""
    a, b = old.ids, new.ids
    if not (isinstance(a, range) and isinstance(b, range)) or a.stop != b.start:
        return False
    if old.program is not None or new.program is not None or any(term.ndim == 2 for term in old.irregular):
        return False
    step = new.base - old.base if len(a) == 1 else (old.row_step or 0)
    if (len(b) > 1 and (new.row_step or 0) != step) or new.base != old.base + step * len(a):
        return False
    old.ids = range(a.start, b.stop)
    old.row_step = step or None
    old.known = None
    return True


def bundled(records: list[Record]) -> list[Record]:
    """The same accesses in fewer records: those of one actor that differ in nothing but where their rows are."""
    alike: dict[object, list[Record]] = {}
    for record in records:
        form = record.form
        single = record.count == 1 and not form.irregular
        key = (record.actor.number, form.size, form.regular, record.epochs is None) if single else id(record)
        alike.setdefault(key, []).append(record)
    return [group[0] if len(group) == 1 else _bundle(group) for group in alike.values()]


def _bundle(records: list[Record]) -> Record:
    first = records[0]
    program = np.concatenate([record.form.offsets() + record.form.base for record in records])
    ids = np.concatenate([record.form.id_array for record in records])
    times = np.concatenate([np.broadcast_to(record.time, (record.form.rows,)) for record in records])
    epochs = [record.epochs for record in records if record.epochs is not None]
    form = Form(0, ids, first.form.size, None, program, first.form.regular)
    return Record(first.actor, times, form, np.concatenate(epochs) if epochs else None)


def _united(records: list[Record]) -> list[Record]:
    """The records of one actor as records of distinct stretches: sorted, and joined where a program's touch."""
    starts, lengths, ids, epochs, times = [], [], [], [], []
    for record in records:
        form = record.form
        run, rest, _ = form.run()
        rows = form.starts(rest)
        for turn in range(record.count):
            starts.append((rows + record.step * turn).reshape(-1))
            lengths.append(np.full(rows.size, run, np.int64))
            ids.append(np.repeat(form.id_array, rows.shape[1]))
            times.append(np.repeat(np.broadcast_to(record.time, (form.rows,)), rows.shape[1]))
            if record.epochs is not None:
                epochs.append(np.repeat(record.epochs, rows.shape[1]))
    start, length, who, when = (np.concatenate(part) for part in (starts, lengths, ids, times))
    epoch = np.concatenate(epochs) if epochs else np.zeros(len(start), np.int32)
    order = np.lexsort((start, epoch, who))
    start, end, who, epoch, when = start[order], (start + length)[order], who[order], epoch[order], when[order]
    fresh = np.ones(len(start), bool)
    same = (who[1:] == who[:-1]) & (epoch[1:] == epoch[:-1])
    # Within one program and epoch, ends may lie anywhere: the furthest so far decides whether the next stretch touches.
    owner = np.cumsum(np.concatenate([np.zeros(1, np.int64), ~same]))
    room = int(end.max() - start.min()) + 1
    reach = np.maximum.accumulate(end - start.min() + owner * room) - owner * room + start.min()
    fresh[1:] = ~same | (start[1:] > reach[:-1])
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(start)) - 1
    start, end, who, epoch = start[heads], reach[tails], who[heads], epoch[heads]
    when = np.minimum.reduceat(when, heads)
    size = records[0].form.size
    out = []
    for span in distinct(end - start).tolist():
        chosen = np.flatnonzero(end - start == span)
        unit = size if span % size == 0 else 1
        form = Form(0, who[chosen], unit, None, start[chosen], ((unit, span // unit),))
        out.append(Record(records[0].actor, when[chosen], form, epoch[chosen] if epochs else None))
    return out
