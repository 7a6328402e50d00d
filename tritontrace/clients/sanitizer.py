"""The sanitizer: every address of every program is checked against the memory it may touch."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tritontrace import events
from tritontrace.clients.alike import alike
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.clients.bounds import active_bounds
from tritontrace.clients.corners import Corners
from tritontrace.clients.extents import Extent
from tritontrace.clients.faults import Faults
from tritontrace.clients.undefined import UndefinedLanes
from tritontrace.clients.uninitialized import UnwrittenReads
from tritontrace.distinct import distinct
from tritontrace.engines.base import UNDEFINED
from tritontrace.engines.ir.values import Separable
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace.engines.memory import AddressSpace
    from tritontrace.launch import ArgumentInfo, Launch

__all__ = ["Sanitizer"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SLAB = 1 << 20
"""Lanes that are looked at one by one at a time."""


class Sanitizer(Client):
    """Finds loads, stores and atomics outside of what they may touch; masked-off lanes are never reported.

    With ``bounds="view"`` (the default) an access through a tensor argument must hit one of the view's own elements: the
    gaps of a strided view and its neighbours in the same storage are out of bounds. With ``bounds="storage"`` the whole
    storage is allowed. A pointer whose argument is not known (one read from memory) may touch any tensor argument,
    registered memory and live torch storages.

    With ``dry_run=True`` nothing is executed and no value computed, unless another client of the launch wants that: only
    addresses, masks and control flow are followed, for every program. The arguments may be fake tensors (``FakeTensorMode``,
    ``torch.device("meta")``). Index tensors that decide addresses are really read; a kernel that computes its addresses from
    what it wrote itself, or waits for flags, is executed on copies.

    Masked-off lanes of a load without ``other`` hold anything. Where they reach a stored value, an address, a mask or a
    branch, that is a finding of the kind ``undefined_lane``; ``undefined=False`` leaves these out.

    With ``uninitialized=True`` reads of memory that nobody has written are found too (``torch.empty`` and its like, made on
    the session's thread while it is open): each such tensor is filled with a pattern when torch makes it, and what torch and
    the kernels write to it is followed byte by byte.

    The engine performs no access outside known memory: such a load gives `other` or 0, such a store writes nothing.
    """

    name = "sanitizer"
    handles_out_of_bounds = True
    """Accesses outside are reported here and need not raise `OutOfBoundsError`."""
    analyses_all_configs = True
    """A config that only the tuner would choose elsewhere may be the faulty one."""

    def __init__(
        self,
        bounds: Literal["view", "storage"] = "view",
        *,
        dry_run: bool = False,
        undefined: bool = True,
        uninitialized: bool = False,
    ) -> None:
        if bounds not in ("view", "storage"):
            raise ValueError(f"bounds must be 'view' or 'storage', not {bounds!r}")
        self.bounds = bounds
        self.dry_run = dry_run
        self.instruments = frozenset({UNDEFINED}) if undefined else frozenset()
        self.watches_torch = uninitialized
        self.repeatable = dry_run and not uninitialized and type(self) is Sanitizer
        self.by_corners = self.repeatable
        self._open = False
        self._corners: Corners | None = None
        self._launch: Launch | None = None
        self._extents: dict[str, Extent | None] = {}
        self._faults: dict[tuple[int, str | None], Faults] = {}
        self._undefined = UndefinedLanes()
        self._unwritten = UnwrittenReads()
        self._moves: dict[int, tuple[Separable, tuple[int, int]]] = {}

    def for_launch(self, launch: Launch) -> Sanitizer:
        """A fresh sanitizer with the same settings: launches may run at once."""
        fresh = copy.copy(self)  # not a call of the class: a subclass may be made differently
        fresh._launch = launch
        fresh._open, fresh._corners = False, None
        fresh._extents = {}
        fresh._faults = {}
        fresh._undefined = UndefinedLanes()
        fresh._unwritten = UnwrittenReads()
        fresh._moves = {}
        return fresh

    def pre_run_callback(self, launch: Launch) -> None:
        """Takes note of the launch whose arguments bound the accesses."""
        self._launch = launch

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens before every access."""
        if op in (events.Load, events.Store, events.Atomic):
            if not self.watches_torch:
                return OpCallbacks(before=self._check)
            if op is events.Load:
                return OpCallbacks(before=self._check_read)
            return OpCallbacks(before=self._check_read if op is events.Atomic else self._check, after=self._unwritten.wrote)
        if op is events.UndefinedUse and self.instruments:
            return OpCallbacks(before=self._use_undefined)
        return None

    def undecided(self) -> bool:
        """Whether the corners of the grid, or of a box of it, did not tell that all its programs are clean."""
        left = self._open
        self._open, self._corners = False, None
        return left

    def _use_undefined(self, event: events.UndefinedUse) -> None:
        if event.corners:
            self._open = True
        else:
            self._undefined.add(event)

    def finalize(self) -> list[Finding]:
        """One finding per access site and tensor."""
        launch = self._launch
        if launch is None:
            return []
        found = [faults.finding(launch, self.name) for faults in self._faults.values()]
        found.extend(self._undefined.findings(launch, self.name))
        found.extend(self._unwritten.findings(launch, self.name))
        self._faults = {}
        self._extents = {}
        self._moves = {}
        self._undefined, self._unwritten = UndefinedLanes(), UnwrittenReads()
        return found

    def _check_read(self, event: events.MemoryEvent) -> None:
        self._check(event)
        self._unwritten.read(event)

    def _check(self, event: events.MemoryEvent) -> None:
        if event.corners:
            self._check_corners(event)
            return
        # The site says what the pointer comes from for certain; the event's tensor may be a guess by its address.
        extent = self._extent(event.site.parameter)
        if extent is None:
            self._check_unknown(event)
            return
        size = event.element_bytes
        first, last = extent.first, extent.last
        if extent.dense and type(event.address) is Separable:
            lowest, highest = event.address.extremes()
            if lowest >= first and highest + size <= last:
                return
        low, high = event.minmax()
        if extent.dense:
            if low.min() >= first and high.max() + size <= last:
                return
            suspects = self._beyond(event, np.flatnonzero((low < first) | (high + size > last)), len(low), extent)
            if not len(suspects):
                return
        else:
            suspects = _suspects(event, extent, (low < first) | (high + size > last))
            if not len(suspects):
                return
        if len(low) != len(event):
            suspects = np.arange(len(event))
        known = self._faults.get((event.site.id, event.site.parameter))
        if known is not None and known.full and extent.dense:
            bounds = active_bounds(event, suspects)
            if bounds is not None:
                known.add_bounds(event, suspects, bounds[0], bounds[1])
                return
        # Lane by lane, a few programs at a time, one of those that do the same.
        some, members = alike(event, suspects)
        step = max(1, _SLAB // max(1, math.prod(event.block)))
        for start in range(0, len(some), step):
            rows, addresses, active = _rows(event, some[start : start + step])
            outside = extent.outside(addresses, size)
            outside = outside & active
            if outside.any():
                groups = None if members is None else members[start : start + step]
                self._record(event, rows, np.broadcast_to(addresses, outside.shape), outside, event.site.parameter, groups)

    def _check_corners(self, event: events.MemoryEvent) -> None:
        """Proves that the access is clean in all programs between these corners, or asks to see them all."""
        if self._open:
            return
        extent = self._extent(event.site.parameter)
        if extent is not None and extent.dense:
            if self._corners is None:
                self._corners = Corners(event)
            first, last = extent.first, extent.last - event.element_bytes
            reach = self._corners.reach(event, first, last)
            if reach is not None and (reach[0] > reach[1] or (first <= reach[0] and reach[1] <= last)):
                return
        self._open = True

    def _beyond(self, event: events.MemoryEvent, suspects: Int64s, known: int, extent: Extent) -> Int64s:
        """Those of `suspects` (of the `known` programs that the bounds tell apart) whose active lanes leave `extent`."""
        if event.mask is None:
            return suspects
        found = active_bounds(event, suspects if known == len(event) else None)
        if found is None:
            return suspects
        low, high, some = found
        bad = np.flatnonzero(some & ((low < extent.first) | (high + event.element_bytes > extent.last)))
        if known == len(event):
            return suspects[bad] if len(low) == len(suspects) else suspects[: len(suspects) * len(bad)]
        return np.arange(known) if len(bad) else bad

    def _check_unknown(self, event: events.MemoryEvent) -> None:
        """An access whose pointer comes from no single argument: any known memory will do."""
        known = self._moves.get(event.site.id)
        if known is not None and moved_within(event.address, known[0], known[1]):
            return
        low, high = event.minmax()
        size = event.element_bytes
        memory = self._launch.memory if self._launch is not None else None
        if memory is None:
            return
        first, last = int(low.min()), int(high.max())
        allocation = memory.known(first)
        if allocation is not None and last + size <= allocation.end:
            if type(event.address) is Separable:
                room = allocation.base - first, allocation.end - size - last
                self._moves[event.site.id] = event.address, room
            return
        # Programs may each stay in an allocation of their own (grouped kernels): then their bounds alone decide.
        home = memory.locate(low, size)
        if bool((home >= 0).all()) and np.array_equal(home, memory.locate(high, size)):
            if type(event.address) is Separable:
                starts, ends = memory.bounds()
                room = int((starts[home] - low).max()), int((ends[home] - size - high).min())
                self._moves[event.site.id] = event.address, room
            return
        if self._in_one_place(event, memory):
            return
        rows, addresses, active = _rows(event, np.arange(len(event)))
        shape = np.broadcast_shapes(addresses.shape, active.shape)
        addresses, active = np.broadcast_to(addresses, shape), np.broadcast_to(active, shape)
        outside = (memory.locate(addresses, size) < 0) & active
        if outside.any():
            # One look for each program finds nearly everything; the rest is looked for address by address.
            lowest = np.where(outside, addresses, np.iinfo(np.int64).max).reshape(len(addresses), -1).min(axis=1)
            for address in distinct(lowest[outside.reshape(len(outside), -1).any(axis=1)]).tolist():
                if memory.known(address) is None:
                    memory.find(address)
            outside = (memory.locate(addresses, size) < 0) & active
        if outside.any():
            end = 0
            for address in distinct(addresses[outside]).tolist():
                if address >= end:  # else it lies in what was just found
                    found = memory.find(address)
                    end = 0 if found is None else found.end
            outside = (memory.locate(addresses, size) < 0) & active
        if outside.any():
            # The tensor that the other lanes lie in, if they agree, is the one that was meant.
            tensor = event.tensor
            info = self._info(tensor)
            good = addresses[active & ~outside]
            if info is not None and len(good):
                start = info.storage_ptr
                meant = start <= good.min() and good.max() + size <= start + info.storage_bytes
            else:
                meant = False
            self._record(event, rows, addresses, outside, tensor if meant else None)

    @staticmethod
    def _in_one_place(event: events.MemoryEvent, memory: AddressSpace) -> bool:
        """Whether the active lanes of each program surely lie in one allocation, told from the first and the last of them.

        Memory that the launch meets here for the first time is looked for, as the access itself would.
        """
        found = active_bounds(event)
        if found is None:
            return False
        low, high, some = np.broadcast_arrays(*found)
        low, high = low[some], high[some]
        home = memory.locate(low, event.element_bytes)
        if bool((home < 0).any()):
            for address in distinct(low[home < 0]).tolist():
                if memory.known(address) is None:
                    memory.find(address)
            home = memory.locate(low, event.element_bytes)
        return bool((home >= 0).all()) and np.array_equal(home, memory.locate(high, event.element_bytes))

    def _info(self, tensor: str | None) -> ArgumentInfo | None:
        if tensor is None or self._launch is None:
            return None
        info = self._launch.arguments.get(tensor)
        return info if info is not None and info.is_tensor else None

    def _extent(self, tensor: str | None) -> Extent | None:
        if tensor is None:
            return None
        try:
            return self._extents[tensor]
        except KeyError:
            info = self._info(tensor)
            extent = None
            if info is not None:
                extent = Extent.of_view(info) if self.bounds == "view" else Extent.of_storage(info)
            self._extents[tensor] = extent
            return extent

    def _record(
        self,
        event: events.MemoryEvent,
        rows: Int64s,
        addresses: Int64s,
        outside: Bools,
        tensor: str | None,
        members: list[Int64s] | None = None,
    ) -> None:
        key = (event.site.id, tensor)
        faults = self._faults.get(key)
        if faults is None:
            faults = self._faults[key] = Faults(event, tensor, self._info(tensor), self._extent(tensor))
        faults.add(event, rows, addresses, outside, members)


def moved_within(address: Any, known: Separable, room: tuple[int, int]) -> bool:
    """Whether an address is `known`, moved by no more than `room` says: in a loop all but a constant stays the same objects."""
    return (
        type(address) is Separable
        and address.program is known.program
        and room[0] <= address.constant - known.constant <= room[1]
        and len(address.axes) == len(known.axes)
        and all(a is b for a, b in zip(address.axes, known.axes))
    )


def _suspects(event: events.MemoryEvent, extent: Extent, beyond: Bools) -> Int64s:
    """The programs (or the one that stands for all) that may hit a gap of a strided view or, as `beyond` says, leave it."""
    terms = _terms(event.address)
    gaps = None if terms is None else extent.gaps(terms, event.element_bytes)
    if gaps is None:
        return np.arange(len(beyond))
    if gaps.any() and event.mask is not None and not event.mask.all():
        gaps = gaps & event.mask.dense()
    return np.flatnonzero(beyond | gaps.any(axis=tuple(range(1, gaps.ndim))))


def _terms(form: Any) -> list[Int64s] | None:
    """The terms whose sum the addresses are, each to broadcast to ``[P, *block]``; None if they are not kept as a sum."""
    if not isinstance(form, Separable):
        return None
    rank = len(form.axes)
    program = np.asarray([form.constant] if form.program is None else form.program + form.constant, np.int64)
    terms = [program.reshape((-1,) + (1,) * rank)]
    for position, axis in enumerate(form.axes):
        if axis is not None:
            values = np.atleast_2d(axis.values)
            shape = (len(values), *(1,) * position, values.shape[1], *(1,) * (rank - 1 - position))
            terms.append(values.reshape(shape))
    return terms


def _rows(event: events.MemoryEvent, rows: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """(rows of the batch, their addresses, their active lanes) for the programs that need a closer look.

    Addresses and lanes broadcast to ``[len(rows), *block]``; only those rows are built where the form allows it.
    """
    if len(rows) == len(event):
        return rows, event.address.dense(), event.active()
    take_address = getattr(event.address, "take", None)
    mask: Any = event.mask
    if take_address is None or (mask is not None and not hasattr(mask, "take")):
        return rows, event.addresses()[rows], event.active()[rows]
    addresses = take_address(rows).dense()
    if mask is None:
        return rows, addresses, np.broadcast_to(np.True_, (len(rows), *event.block))
    return rows, addresses, np.broadcast_to(mask.take(rows).dense(), (len(rows), *event.block))
