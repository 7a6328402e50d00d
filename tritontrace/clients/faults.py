"""Faults of one kind at one access site, gathered over batches and iterations, and the finding that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.extents import Extent
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.launch import ArgumentInfo, Launch

__all__ = ["Faults"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_COMPACT_ABOVE = 1 << 20
"""Rows of (program, element) after which repetitions are dropped, so that a faulty loop does not fill the memory."""


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

    def finding(self, launch: Launch, client: str, kind: str = "out_of_bounds") -> Finding:
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


def _unwritten(finding: Finding, kernel: str, where: str, who: str) -> str:
    what = f"of {finding.tensor!r} " if finding.tensor is not None else ""
    if len(finding.elements):
        first, last = int(finding.elements[0]), int(finding.elements[-1])
        which = f"element {first}" if first == last else f"elements {first} to {last}"
    else:
        which = f"address {finding.details['first_address']:#x}"
    verb = "adds to" if finding.access == "atomic" else "reads"
    return (
        f"uninitialized {finding.access} {what}in {kernel}{where}: {verb} {which}, which nobody has written since torch.empty "
        f"made the memory, by {who}; fill it first (torch.zeros)"
    )
