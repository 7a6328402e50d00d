"""The sanitizer: every address of every program is checked against the memory it may touch."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tritontrace import events
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.clients.bounds import active_bounds
from tritontrace.clients.extents import Extent
from tritontrace.clients.undefined import UndefinedLanes
from tritontrace.engines.ir.values import Separable
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace.launch import ArgumentInfo, Launch

__all__ = ["Sanitizer"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SLAB = 1 << 20
"""Lanes that are looked at one by one at a time."""

_COMPACT_ABOVE = 1 << 20
"""Rows of (program, element) after which repetitions are dropped, so that a faulty loop does not fill the memory."""


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

    The engine performs no access outside known memory: such a load gives `other` or 0, such a store writes nothing.
    """

    name = "sanitizer"
    handles_out_of_bounds = True
    """Accesses outside are reported here and need not raise `OutOfBoundsError`."""
    analyses_all_configs = True
    """A config that only the tuner would choose elsewhere may be the faulty one."""

    def __init__(self, bounds: Literal["view", "storage"] = "view", *, dry_run: bool = False, undefined: bool = True) -> None:
        if bounds not in ("view", "storage"):
            raise ValueError(f"bounds must be 'view' or 'storage', not {bounds!r}")
        self.bounds = bounds
        self.dry_run = dry_run
        self.wants_undefined = undefined
        self.repeatable = dry_run and type(self) is Sanitizer
        self._launch: Launch | None = None
        self._extents: dict[str, Extent | None] = {}
        self._faults: dict[tuple[int, str | None], _Faults] = {}
        self._undefined = UndefinedLanes()

    def for_launch(self, launch: Launch) -> Sanitizer:
        """A fresh sanitizer with the same settings: launches may run at once."""
        fresh = copy.copy(self)  # not a call of the class: a subclass may be made differently
        fresh._launch = launch
        fresh._extents = {}
        fresh._faults = {}
        fresh._undefined = UndefinedLanes()
        return fresh

    def pre_run_callback(self, launch: Launch) -> None:
        """Takes note of the launch whose arguments bound the accesses."""
        self._launch = launch

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens before every access."""
        if op in (events.Load, events.Store, events.Atomic):
            return OpCallbacks(before=self._check)
        if op is events.UndefinedUse and self.wants_undefined:
            return OpCallbacks(before=self._undefined.add)
        return None

    def finalize(self) -> list[Finding]:
        """One finding per access site and tensor."""
        launch = self._launch
        if launch is None:
            return []
        found = [faults.finding(launch, self.name) for faults in self._faults.values()]
        found.extend(self._undefined.findings(launch, self.name))
        self._faults = {}
        self._extents = {}
        self._undefined = UndefinedLanes()
        return found

    def _check(self, event: events.MemoryEvent) -> None:
        # The site says what the pointer comes from for certain; the event's tensor may be a guess by its address.
        extent = self._extent(event.site.parameter)
        if extent is None:
            self._check_unknown(event)
            return
        low, high = event.minmax()
        size = event.element_bytes
        first, last = extent.first, extent.last
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
        # Lane by lane, a few programs at a time.
        step = max(1, _SLAB // max(1, math.prod(event.block)))
        for start in range(0, len(suspects), step):
            rows, addresses, active = _rows(event, suspects[start : start + step])
            outside = extent.outside(addresses, size)
            outside = outside & active
            if outside.any():
                self._record(event, rows, np.broadcast_to(addresses, outside.shape), outside, event.site.parameter)

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
        low, high = event.minmax()
        size = event.element_bytes
        memory = self._launch.memory if self._launch is not None else None
        if memory is None:
            return
        first, last = int(low.min()), int(high.max())
        allocation = memory.known(first)
        if allocation is not None and last + size <= allocation.end:
            return
        # Programs may each stay in an allocation of their own (grouped kernels): then their bounds alone decide.
        home = memory.locate(low, size)
        if bool((home >= 0).all()) and np.array_equal(home, memory.locate(high, size)):
            return
        rows, addresses, active = _rows(event, np.arange(len(event)))
        shape = np.broadcast_shapes(addresses.shape, active.shape)
        addresses, active = np.broadcast_to(addresses, shape), np.broadcast_to(active, shape)
        outside = (memory.locate(addresses, size) < 0) & active
        if outside.any():
            # One look for each program finds nearly everything; the rest is looked for address by address.
            lowest = np.where(outside, addresses, np.iinfo(np.int64).max).reshape(len(addresses), -1).min(axis=1)
            for address in np.unique(lowest[outside.reshape(len(outside), -1).any(axis=1)]).tolist():
                if memory.known(address) is None:
                    memory.find(address)
            outside = (memory.locate(addresses, size) < 0) & active
        if outside.any():
            end = 0
            for address in np.unique(addresses[outside]).tolist():
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

    def _record(self, event: events.MemoryEvent, rows: Int64s, addresses: Int64s, outside: Bools, tensor: str | None) -> None:
        key = (event.site.id, tensor)
        faults = self._faults.get(key)
        if faults is None:
            faults = self._faults[key] = _Faults(event, tensor, self._info(tensor), self._extent(tensor))
        faults.add(event, rows, addresses, outside)


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


class _Faults:
    """What went wrong at one access site through one tensor, gathered over batches and iterations."""

    def __init__(self, event: events.MemoryEvent, tensor: str | None, info: ArgumentInfo | None, extent: Extent | None) -> None:
        self.site = event.site
        self.access = event.access
        self.tensor = tensor
        self.size = event.element_bytes
        self.base = info.data_ptr if info is not None else 0
        self.info = info
        self.extent = extent
        self.masked = event.mask is not None
        self.count = 0
        self.lowest = self.highest = 0
        self._grid = event.launch.grid
        self._pairs: list[tuple[Int64s, Int64s]] = []
        self._rows = 0
        self._lanes: list[Int64s] = []
        self._iterations: dict[tuple[int, ...], None] = {}

    def add(self, event: events.MemoryEvent, rows: Int64s, addresses: Int64s, outside: Bools) -> None:
        """Adds the lanes `outside` (``[R, *block]``) of the batch's programs `rows`."""
        where = np.nonzero(outside)
        bad = addresses[where]
        low, high = int(bad.min()), int(bad.max())
        self.lowest = min(self.lowest, low) if self.count else low
        self.highest = max(self.highest, high) if self.count else high
        self.count += len(bad)
        x, y, z = event.programs[rows].astype(np.int64).T
        programs = x + self._grid[0] * (y + self._grid[1] * z)
        pairs = _distinct(programs[where[0]], bad)
        self._pairs.append(pairs)
        self._rows += len(pairs[0])
        lanes = np.ravel_multi_index(where[1:], outside.shape[1:]) if outside.ndim > 1 else np.zeros(1, np.int64)
        self._lanes.append(np.unique(lanes))
        if self._rows > _COMPACT_ABOVE:
            self._compact()
        for step in _iterations(event, rows[np.unique(where[0])]):
            self._iterations[step] = None

    def _compact(self) -> None:
        merged = self._merged()
        self._pairs = [merged]
        # What is left are distinct faults; look for repetitions again only when they may have doubled.
        self._rows = len(merged[0]) // 2
        self._lanes = [np.unique(np.concatenate(self._lanes))]

    def _merged(self) -> tuple[Int64s, Int64s]:
        if len(self._pairs) == 1:
            return self._pairs[0]
        return _distinct(np.concatenate([a for a, _ in self._pairs]), np.concatenate([b for _, b in self._pairs]))

    def finding(self, launch: Launch, client: str) -> Finding:
        """The finding that says it all."""
        linear, bad = self._merged()
        starts = np.flatnonzero(np.r_[True, linear[1:] != linear[:-1]])
        which = linear[starts]
        x, y, _ = self._grid
        programs = np.column_stack([which % x, which // x % y, which // (x * y)]).astype(np.int32)
        elements = np.zeros(0, np.int64)
        by_program: dict[tuple[int, int, int], Int64s] = {}
        if self.info is not None:
            indices = np.floor_divide(bad - self.base, self.size)
            elements = np.unique(indices)
            for row, group in zip(programs, np.split(indices, starts[1:]), strict=True):
                by_program[int(row[0]), int(row[1]), int(row[2])] = np.unique(group)
        details = self._details(launch)
        finding = Finding(
            kind="out_of_bounds",
            message="",
            client=client,
            access=self.access,
            tensor=self.tensor,
            location=self.site.location,
            call_stack=self.site.call_stack,
            programs=programs,
            elements=elements,
            elements_by_program=by_program,
            iterations=tuple(self._iterations),
            launch=launch,
            lanes=np.unique(np.concatenate(self._lanes)),
            details=details,
        )
        finding.message = _message(finding)
        return finding

    def _details(self, launch: Launch) -> dict[str, Any]:
        details: dict[str, Any] = {
            "accesses": self.count,
            "element_type": self.site.dtype,
            "element_bytes": self.size,
            "masked": self.masked,
            "first_address": self.lowest,
            "last_address": self.highest,
        }
        if self.extent is not None:
            first, last = self.extent.first, self.extent.last
            details["bytes_before"] = max(0, first - self.lowest)
            details["bytes_after"] = max(0, self.highest + self.size - last)
            details["gaps"] = not self.extent.dense
        if self.info is not None:
            start = self.info.storage_ptr
            inside = start <= self.lowest and self.highest + self.size <= start + self.info.storage_bytes
            details["inside_storage"] = inside
        neighbour = _neighbour(launch, self.tensor, self.lowest, self.highest)
        if neighbour is not None:
            details["neighbour"] = neighbour
        return details


def _distinct(programs: Int64s, addresses: Int64s) -> tuple[Int64s, Int64s]:
    """The pairs (program, address) without repetition, sorted."""
    low = int(addresses.min())
    span = int(addresses.max()) - low + 1
    if (int(programs.max()) + 1) * span < 1 << 62:
        keys = programs * span + (addresses - low)  # as one number a pair is sorted a hundred times faster
        keys.sort()
        keys = keys[np.r_[True, keys[1:] != keys[:-1]]]
        return keys // span, keys % span + low
    order = np.lexsort((addresses, programs))
    programs, addresses = programs[order], addresses[order]
    fresh = np.r_[True, (programs[1:] != programs[:-1]) | (addresses[1:] != addresses[:-1])]
    return programs[fresh], addresses[fresh]


def _iterations(event: events.MemoryEvent, rows: Int64s) -> list[tuple[int, ...]]:
    """The enclosing loops' iterations of these programs of the batch, outermost loop first, without repetition."""
    counters = [counter for _, counter in event.iterations]
    if not counters:
        return []
    if all(isinstance(counter, int) for counter in counters):
        return [tuple(counters)]
    columns = [np.broadcast_to(np.asarray(counter, np.int64), (len(event),))[rows] for counter in counters]
    return [tuple(int(i) for i in row) for row in np.unique(np.column_stack(columns), axis=0)]


def _neighbour(launch: Launch, tensor: str | None, lowest: int, highest: int) -> str | None:
    """The first other tensor argument whose memory a stray access hit at its lower or upper end."""
    for address in (highest, lowest):
        for name, info in launch.arguments.items():
            if name != tensor and info.is_tensor and info.data_ptr:
                extent = Extent.of_view(info)
                if extent.first <= address < extent.last:
                    return name
    return None


def _message(finding: Finding) -> str:
    """One line: what, where, which element, how far outside, by whom."""
    kernel = finding.launch.kernel_name if finding.launch is not None else "?"
    details = finding.details
    where = f" at {finding.location}" if finding.location is not None else ""
    n = len(finding.programs)
    who = f"program {tuple(int(i) for i in finding.programs[0])}" + (f" and {n - 1} more" if n > 1 else "")
    if finding.tensor is None or not len(finding.elements):
        span = f"address {details['first_address']:#x}"
        return (
            f"out-of-bounds {finding.access} in {kernel}{where}: {span} is in no known memory, by {who}; "
            "name memory that the kernel reaches through stored pointers with session.register_memory"
        )
    first, last = int(finding.elements[0]), int(finding.elements[-1])
    which = f"element {first}" if first == last else f"elements {first} to {last}"
    far = []
    if details.get("bytes_before"):
        far.append(f"{details['bytes_before']} bytes before the start")
    if details.get("bytes_after"):
        far.append(f"{details['bytes_after']} bytes past the end")
    if not far:
        far.append("in the gaps of a strided view")
    return (
        f"out-of-bounds {finding.access} of {finding.tensor!r} in {kernel}{where}: {which}, up to {' and '.join(far)}, by {who}"
    )
