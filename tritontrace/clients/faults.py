"""Faults of one kind at one access site, gathered over batches and iterations, and the finding that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.extents import Extent
from tritontrace.distinct import distinct
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.launch import ArgumentInfo, Launch

__all__ = ["Faults"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_COMPACT_ABOVE = 1 << 20
"""Rows of (program, element) after which repetitions are dropped, so that a faulty loop does not fill the memory."""

_MOST_PAIRS = 1 << 22
"""Pairs of a program and an element above which a finding does not list elements program by program."""

_MOST_ELEMENTS = 1 << 22
"""Elements that a finding lists at most."""


class Faults:
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
        self.by_program = True
        """Whether it is (still) known which program hit which element."""
        self.complete = True
        """Whether all elements are (still) listed."""
        self._programs: list[Int64s] = []
        self._elements: list[Int64s] = []
        self._noted = 0
        self._lanes: list[Int64s] = []
        self._iterations: dict[tuple[int, ...], None] = {}

    def add(
        self, event: events.MemoryEvent, rows: Int64s, addresses: Int64s, outside: Bools, members: list[Int64s] | None = None
    ) -> None:
        """Adds the lanes `outside` (``[R, *block]``) of the batch's programs `rows`.

        `members` has for each of `rows` all programs of the batch (itself among them) that do the same.
        """
        self.masked = self.masked or event.mask is not None
        where = np.nonzero(outside)
        bad = addresses[where]
        low, high = int(bad.min()), int(bad.max())
        self.lowest = min(self.lowest, low) if self.count else low
        self.highest = max(self.highest, high) if self.count else high
        lanes = np.ravel_multi_index(where[1:], outside.shape[1:]) if outside.ndim > 1 else np.zeros(1, np.int64)
        self._lanes.append(distinct(lanes))
        guilty, per_row = np.unique(where[0], return_counts=True)
        if members is None:
            programs = self._linear(event, rows)
            self.count += len(bad)
            everyone = rows[guilty]
            if self.by_program:
                self._list(*_distinct(programs[where[0]], bad))
        else:
            groups = [members[row] for row in guilty.tolist()]
            sizes = np.array([len(group) for group in groups], np.int64)
            self.count += int(sizes @ per_row)
            everyone = np.concatenate(groups)
            if self.by_program:
                sets = np.split(*_groups(*_distinct(where[0], bad)))
                pairs = sum(len(group) * len(found) for group, found in zip(groups, sets, strict=True))
                if pairs > _MOST_PAIRS:
                    self._list_no_more()
                else:
                    linear = [self._linear(event, group) for group in groups]
                    self._list(
                        np.concatenate([np.repeat(group, len(found)) for group, found in zip(linear, sets, strict=True)]),
                        np.concatenate([np.tile(found, len(group)) for group, found in zip(groups, sets, strict=True)]),
                    )
        if not self.by_program:
            self._note(self._linear(event, everyone), bad)
        for step in _iterations(event, everyone):
            self._iterations[step] = None

    @property
    def full(self) -> bool:
        """No further element would be listed: `add_bounds` tells as much as `add`."""
        return not self.complete

    def add_bounds(self, event: events.MemoryEvent, rows: Int64s, low: Int64s, high: Int64s) -> None:
        """Adds programs `rows`, each of which leaves the extent somewhere between the addresses `low` and `high` (inclusive)."""
        assert self.extent is not None
        size = self.size
        beyond = high + size > self.extent.last
        self.lowest = min(self.lowest, int(np.where(low < self.extent.first, low, self.lowest).min()))
        self.highest = max(self.highest, int(np.where(beyond, high, self.highest).max()))
        self._note(self._linear(event, rows), np.zeros(0, np.int64))
        for step in _iterations(event, rows):
            self._iterations[step] = None

    def _linear(self, event: events.MemoryEvent, rows: Int64s) -> Int64s:
        x, y, z = event.programs[rows].astype(np.int64).T
        return x + self._grid[0] * (y + self._grid[1] * z)  # type: ignore[no-any-return]

    def _list(self, programs: Int64s, bad: Int64s) -> None:
        self._pairs.append((programs, bad))
        self._rows += len(programs)
        if self._rows > _COMPACT_ABOVE:
            merged = self._merged()
            self._pairs = [merged]
            # What is left are distinct faults; look for repetitions again only when they may have doubled.
            self._rows = len(merged[0]) // 2
            self._lanes = [distinct(np.concatenate(self._lanes))]
            if len(merged[0]) > _MOST_PAIRS:
                self._list_no_more()

    def _list_no_more(self) -> None:
        """From here on programs and elements are known apart from each other."""
        self.by_program = False
        for programs, bad in self._pairs:
            self._note(programs, bad)
        self._pairs = []

    def _note(self, programs: Int64s, bad: Int64s) -> None:
        self._programs.append(distinct(programs))
        if self.complete:
            self._elements.append(distinct(bad))
        self._noted += len(self._programs[-1]) + len(bad)
        if self._noted > _COMPACT_ABOVE:
            self._programs = [distinct(np.concatenate(self._programs))]
            self._elements = [distinct(np.concatenate(self._elements))]
            self._lanes = [distinct(np.concatenate(self._lanes))]
            self._noted = len(self._programs[0]) // 2
            self.complete = self.complete and len(self._elements[0]) <= _MOST_ELEMENTS

    def _merged(self) -> tuple[Int64s, Int64s]:
        if len(self._pairs) == 1:
            return _distinct(*self._pairs[0])
        return _distinct(np.concatenate([a for a, _ in self._pairs]), np.concatenate([b for _, b in self._pairs]))

    def _found(self) -> tuple[Int64s, Int64s, list[Int64s] | None]:
        """(programs, bad addresses, the addresses of each of the programs if they are known), sorted, without repetition."""
        if self.by_program:
            linear, bad = self._merged()
            bad, starts = _groups(linear, bad)
            return linear[np.r_[0, starts]], distinct(bad), np.split(bad, starts)
        return distinct(np.concatenate(self._programs)), distinct(np.concatenate(self._elements)), None

    def finding(self, launch: Launch, client: str, kind: str = "out_of_bounds") -> Finding:
        """The finding that says it all."""
        which, bad, each = self._found()
        x, y, _ = self._grid
        programs = np.column_stack([which % x, which // x % y, which // (x * y)]).astype(np.int32)
        elements = np.zeros(0, np.int64)
        by_program: dict[tuple[int, int, int], Int64s] = {}
        if self.info is not None:
            elements = distinct(np.floor_divide(bad - self.base, self.size))
            for row, group in zip(programs.tolist(), each or ()):
                by_program[row[0], row[1], row[2]] = distinct(np.floor_divide(group - self.base, self.size))
        details = self._details(launch)
        finding = Finding(
            kind=kind,
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
            lanes=distinct(np.concatenate(self._lanes)),
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
        if not self.complete:
            details["all_elements_listed"] = False
            del details["accesses"]  # they are counted only as long as their elements are looked at
        if self.extent is not None:
            first, last = self.extent.first, self.extent.last
            details["bytes_before"] = max(0, first - self.lowest)
            details["bytes_after"] = max(0, self.highest + self.size - last)
            details["gaps"] = not self.extent.dense
            # Added to a wrapped offset, 2**32 elements lead back into the tensor only if it has that many.
            straight = self.lowest + (self.size << 32)
            if self.lowest < first and first <= straight and straight + self.size <= last:
                details["wrapped"] = (self.lowest - self.base) // self.size + (1 << 32)
        if self.info is not None:
            start = self.info.storage_ptr
            inside = start <= self.lowest and self.highest + self.size <= start + self.info.storage_bytes
            details["inside_storage"] = inside
        neighbour = None if self.extent is None else _neighbour(launch, self.tensor, self.lowest, self.highest)
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


def _groups(keys: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
    """`values` and where, after the first, another of the sorted `keys` begins: what `numpy.split` takes."""
    return values, np.flatnonzero(keys[1:] != keys[:-1]) + 1


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
    if finding.kind == "uninitialized":
        return _unwritten(finding, kernel, where, who)
    if finding.tensor is None or not len(finding.elements):
        span = f"address {details['first_address']:#x}"
        return (
            f"out-of-bounds {finding.access} in {kernel}{where}: {span} is in no known memory, by {who}; "
            "name memory that the kernel reaches through stored pointers with session.register_memory"
        )
    which = _which(finding.elements)
    far = []
    if details.get("bytes_before"):
        far.append(f"{details['bytes_before']} bytes before the start")
    if details.get("bytes_after"):
        far.append(f"{details['bytes_after']} bytes past the end")
    place = f"up to {' and '.join(far)}" if far else "in the gaps of a strided view"
    wrapped = details.get("wrapped")
    if wrapped is not None:
        who += f"; the offset wrapped at 32 bits, element {wrapped} was meant: make one factor tl.int64 before multiplying"
    return f"out-of-bounds {finding.access} of {finding.tensor!r} in {kernel}{where}: {which}, {place}, by {who}"


def _which(elements: Int64s) -> str:
    """Sorted indices in words: ``element 3``, ``elements 3 to 9``, ``4 elements from 3 to 9``."""
    first, last = int(elements[0]), int(elements[-1])
    if first == last:
        return f"element {first}"
    whole = last - first + 1 == len(elements)
    return f"elements {first} to {last}" if whole else f"{len(elements)} elements from {first} to {last}"


def _unwritten(finding: Finding, kernel: str, where: str, who: str) -> str:
    what = f"of {finding.tensor!r} " if finding.tensor is not None else ""
    if len(finding.elements):
        which = _which(finding.elements)
    else:
        which = f"address {finding.details['first_address']:#x}"
    verb = "adds to" if finding.access == "atomic" else "reads"
    return (
        f"uninitialized {finding.access} {what}in {kernel}{where}: {verb} {which}, which nobody has written since torch.empty "
        f"made the memory, by {who}; fill it first (torch.zeros)"
    )
