"""The counts of one access site, summed over all programs and iterations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.clients.profiling.parts import Part, Rows, separable_parts
from tritontrace.clients.profiling.pending import Pending
from tritontrace.clients.profiling.shapes import Runs, measure, runs_of
from tritontrace.clients.profiling.touched import Places, Touched
from tritontrace.distinct import distinct
from tritontrace.engines.ir.runtime import DenseAddress
from tritontrace.engines.ir.values import Mask, Separable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritontrace import events

__all__ = ["SiteCounter"]

_SLAB = 1 << 18
"""Lanes that are looked at one by one at a time."""


class SiteCounter:
    """What the programs of a launch did at one load, store or atomic, through one tensor.

    `executions` counts programs times iterations, `active` the lanes that the masks let through. `sectors` are the 32-byte
    sectors that each execution touches, `sectors_needed` the fewest that could hold the bytes it touches, `distinct` these
    bytes, `pieces` the contiguous pieces that they make up; all summed over executions.
    """

    __slots__ = (
        "_cache",
        "_pending",
        "_places",
        "active",
        "contention",
        "distinct",
        "element_bytes",
        "executions",
        "kind",
        "masked",
        "operation",
        "pieces",
        "sectors",
        "sectors_needed",
        "site",
        "tensor",
        "touched",
    )

    def __init__(self, event: events.MemoryEvent, places: Places) -> None:
        self.site = event.site
        self.kind = event.access
        self.operation: str | None = getattr(event, "operation", None)
        self.tensor = event.tensor
        self.element_bytes = event.element_bytes
        self.executions = self.active = 0
        self.sectors = self.sectors_needed = self.distinct = self.pieces = 0
        self.masked = False
        self.touched: dict[int, Touched] = {}
        self.contention: dict[int, Any] = {}  # base of the memory -> accesses of each element, for atomics
        self._places = places
        self._cache: dict[Any, Runs] = {}
        self._pending = Pending()

    def add(self, event: events.MemoryEvent, rows: Any = None) -> None:
        """Counts one event, or the programs `rows` of it."""
        pointer: Any = event.address
        mask: Any = event.mask
        programs = len(event.batch)
        if rows is not None:
            pointer, mask, programs = _take(pointer, rows), _take(mask, rows), len(rows)
        self.executions += programs
        if mask is None:
            pending = self._pending
            if pending.takes(pointer) and (self.kind != "atomic" or type(pointer) is DenseAddress):
                if pending.full or not pending.put(pointer, programs):
                    self.flush()
                    pending.put(pointer, programs)
                return
        else:
            self.masked = True
        if type(pointer) is Separable and (mask is None or type(mask) is Mask):
            parts = separable_parts(pointer, mask, self.site.block, programs, self.element_bytes)
            if parts is not None and self.kind == "atomic":
                parts = self._injective(list(parts))
            if parts is not None:
                self._add_parts(parts)
                return
        self._add_dense(pointer.dense(), None if mask is None else mask.dense(), programs)

    def flush(self) -> None:
        """Counts what was put aside; the figures are complete then."""
        parts = list(self._pending.parts(self.site.block, self.element_bytes))
        if self.kind == "atomic":
            self._injective(parts)  # they are of scalars
        self._add_parts(parts)

    @property
    def lanes(self) -> int:
        """The lanes of the tiles of all executions."""
        return self.executions * math.prod(self.site.block)

    def _add_parts(self, parts: Iterable[Part | Rows]) -> None:
        for part in parts:
            if isinstance(part, Part):
                self._add_part(part)
            else:
                self._add_rows(part.starts, part.length, part.lanes * part.weight, part.weight)

    def _injective(self, parts: list[Part | Rows]) -> list[Part | Rows] | None:
        """`parts`, if in each of them every lane of a program has an element of its own; counts their hits then."""
        hits: list[tuple[Any, Any]] = []
        for part in parts:
            if not isinstance(part, Part):
                return None
            runs = runs_of(self._cache, part.terms, part.length)
            if part.lanes * self.element_bytes != runs.distinct:
                return None
            bases, counts = np.unique(part.bases, return_counts=True)
            elements = (runs.starts[:, None] + np.arange(0, runs.length, self.element_bytes)).reshape(-1)
            for count in np.unique(counts).tolist():
                hits.append(((bases[counts == count][:, None] + elements).reshape(-1), count * part.weight))
        for addresses, weight in hits:
            self._contend(addresses, weight)
        return parts

    def _add_part(self, part: Part) -> None:
        runs = runs_of(self._cache, part.terms, part.length)
        bases, weight = part.bases, part.weight
        programs = len(bases) * weight
        self.active += part.lanes * programs
        self.distinct += runs.distinct * programs
        self.pieces += runs.pieces * programs
        self.sectors_needed += runs.sectors_needed * programs
        self.sectors += runs.total_sectors(bases) * weight
        low, high = int(bases.min()) + runs.low, int(bases.max()) + runs.high
        touched = self._place(low, high)
        if touched is not None:
            touched.add(bases, runs)
        else:
            # Each program may stay in an allocation of its own (grouped kernels).
            home = self._places.locate(bases + runs.low, runs.high - runs.low)
            for index in distinct(home).tolist():
                own = bases[home == index]
                touched = self._home(index) if index >= 0 else None
                if touched is not None:
                    touched.add(own, runs)
                else:
                    self._touch_each((own[:, None] + runs.starts).reshape(-1), runs.length)

    def _add_rows(self, starts: Any, length: int, active: int, weight: int) -> None:
        """Runs of `length` bytes at `starts` ``[p, R]``, each row of which stands for `weight` programs."""
        self.active += active * len(starts)
        low, high = int(starts.min()), int(starts.max())
        origin = low & ~31
        relative = starts - origin
        if high - origin < 2**31 - length:
            relative = relative.astype(np.int32)
        sectors, distinct, pieces = measure(relative, length)
        self.sectors += int(sectors.sum()) * weight
        self.distinct += int(distinct.sum()) * weight
        self.pieces += int(pieces.sum()) * weight
        self.sectors_needed += int((-(-distinct // 32)).sum()) * weight
        touched = self._place(low, high + length)
        if touched is not None:
            touched.add_each(starts.reshape(-1), length)
        else:
            self._touch_each(starts.reshape(-1), length)

    def _add_dense(self, addresses: Any, mask: Any, programs: int) -> None:
        shape = addresses.shape if mask is None else np.broadcast_shapes(addresses.shape, mask.shape)
        repeats = math.prod(self.site.block) // math.prod(shape[1:])  # lanes that share an address and a mask bit
        weight = programs // shape[0]
        lanes = math.prod(shape[1:])
        addresses = np.broadcast_to(addresses, shape)
        mask = None if mask is None else np.broadcast_to(mask, shape)
        step = max(1, _SLAB // lanes)
        for first in range(0, shape[0], step):
            starts = addresses[first : first + step].reshape(-1, lanes)
            if mask is None:
                active = lanes * repeats * weight
                if self.kind == "atomic":
                    self._contend(starts.reshape(-1), repeats * weight)
            else:
                active = 0
                lit = mask[first : first + step].reshape(-1, lanes)
                some = np.flatnonzero(lit.any(axis=1))
                if not len(some):
                    continue
                starts, lit = starts[some], lit[some]
                self.active += int(np.count_nonzero(lit)) * repeats * weight
                if self.kind == "atomic":
                    self._contend(starts[lit], repeats * weight)
                # A masked-off lane takes the place of the first active one, which changes no set of addresses.
                starts = np.where(lit, starts, np.take_along_axis(starts, lit.argmax(axis=1)[:, None], axis=1))
            self._add_rows(starts, self.element_bytes, active, weight)

    def _contend(self, addresses: Any, weight: int) -> None:
        """Counts how often each element is met by an atomic."""
        low, high = int(addresses.min()), int(addresses.max()) + self.element_bytes
        touched = self._place(low, high)
        if touched is None:
            return  # outside of known memory nothing is made
        counts = self.contention.get(touched.base)
        if counts is None:
            counts = self.contention[touched.base] = np.zeros(-(-touched.nbytes // self.element_bytes), np.int64)
        index = (addresses - touched.base) // self.element_bytes
        first, last = int(index.min()), int(index.max())
        if last - first < 8 * len(index) + 64:
            counts[first : last + 1] += np.bincount(index - first) * weight
        else:
            np.add.at(counts, index, weight)

    def _place(self, low: int, high: int) -> Touched | None:
        """The flags of the memory that holds all of ``[low, high)``, or None if no single one does."""
        for touched in self.touched.values():
            if touched.base <= low and high <= touched.base + touched.nbytes:
                return touched
        piece = self._places.around(low, high)
        if piece is None:
            return None
        found = self.touched[piece[0]] = Touched(*piece)
        return found

    def _touch_each(self, starts: Any, length: int) -> None:
        """Flags runs that lie in several allocations, or partly in none; what lies in none is left out."""
        home = self._places.locate(starts, length)
        lost = starts[home < 0]
        if len(lost) and length > 1:  # a run may leave its memory half-way
            self._touch_each((lost[:, None] + np.arange(length)).reshape(-1), 1)
        for index in distinct(home[home >= 0]).tolist():
            touched = self._home(index)
            if touched is not None:
                touched.add_each(starts[home == index], length)

    def _home(self, index: int) -> Touched | None:
        """The flags of the allocation with this index."""
        base, nbytes = self._places.piece(index)
        return self._place(base, base + nbytes)


def _take(value: Any, rows: Any) -> Any:
    """An address or a mask for some of the programs."""
    if value is None:
        return None
    if hasattr(value, "take"):
        return value.take(rows)
    array = value.values
    return type(value)(array if len(array) == 1 else array[rows])
