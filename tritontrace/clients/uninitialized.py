"""Reads of memory that nobody has written since torch made it: ``torch.empty`` and what came of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tritontrace.clients.faults import Faults
from tritontrace.engines.written import WRITTEN, Shadow

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.engines.memory import Allocation
    from tritontrace.findings import Finding
    from tritontrace.launch import Launch

__all__ = ["UnwrittenReads"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SLAB = 1 << 20
"""Lanes that are looked at at a time."""


class UnwrittenReads:
    """Checks the reads of one launch, and takes note of what it writes.

    A batch of programs counts as executed one program after another: of several that add to one fresh element, the first one
    reads what nobody wrote.
    """

    def __init__(self) -> None:
        self._faults: dict[tuple[int, str | None], Faults] = {}
        self._touched: dict[int, Shadow] = {}

    def read(self, event: events.MemoryEvent) -> None:
        """Before a load or an atomic operation."""
        if getattr(event, "operation", None) == "xchg":
            return  # what it finds is mostly thrown away
        found = self._shadow(event)
        if found is None:
            return
        shadow, allocation = found
        assert shadow.written is not None
        low, high = event.minmax()
        start, end = int(low.min()) - shadow.address, int(high.max()) + event.element_bytes - shadow.address
        if bool(shadow.written[max(0, start) : max(0, end)].all()):
            return
        size = event.element_bytes
        skip = shadow.address - allocation.base
        memory = allocation.buffer[skip : skip + shadow.nbytes]
        addresses, active = event.addresses(), event.active()
        step = max(1, _SLAB // max(1, math.prod(event.block)))
        for first in range(0, len(event), step):
            rows = np.arange(first, min(len(event), first + step))
            offsets = addresses[rows] - shadow.address
            valid = active[rows] & (offsets >= 0) & (offsets + size <= shadow.nbytes)
            missing = shadow.unwritten(np.where(valid, offsets, 0), size, memory) & valid
            if event.access == "atomic":
                missing = _first_of_each(offsets, missing)
            if missing.any():
                self._record(event, rows, addresses[rows], missing)
            if event.access == "atomic":
                shadow.mark(offsets[valid], size)

    def wrote(self, event: events.MemoryEvent) -> None:
        """After a store or an atomic operation."""
        found = self._shadow(event)
        if found is None:
            return
        shadow, _ = found
        addresses, active = event.addresses(), event.active()
        size = event.element_bytes
        step = max(1, _SLAB // max(1, math.prod(event.block)))
        for first in range(0, len(event), step):
            offsets = addresses[first : first + step] - shadow.address
            valid = active[first : first + step] & (offsets >= 0) & (offsets + size <= shadow.nbytes)
            shadow.mark(offsets[valid], size)

    def findings(self, launch: Launch, client: str) -> list[Finding]:
        """What was found; flags that have nothing more to say are dropped."""
        for shadow in self._touched.values():
            shadow.settle()
        return [faults.finding(launch, client, "uninitialized") for faults in self._faults.values()]

    def _shadow(self, event: events.MemoryEvent) -> tuple[Shadow, Allocation] | None:
        memory = event.launch.memory
        if memory is None:
            return None
        info = None if event.site.parameter is None else event.launch.arguments.get(event.site.parameter)
        if info is not None and info.is_tensor:
            address, nbytes = info.storage_ptr, info.storage_bytes
            allocation = memory.known(address)
        else:
            allocation = memory.known(int(event.minmax()[0].min()))
            if allocation is None:
                return None
            address, nbytes = allocation.base, allocation.nbytes
        shadow = WRITTEN.find(address, nbytes)
        if shadow is None or allocation is None:
            return None
        self._touched[address] = shadow
        return shadow, allocation

    def _record(self, event: events.MemoryEvent, rows: Int64s, addresses: Int64s, missing: Bools) -> None:
        key = (event.site.id, event.tensor)
        faults = self._faults.get(key)
        if faults is None:
            info = None if event.tensor is None else event.launch.arguments.get(event.tensor)
            faults = self._faults[key] = Faults(event, event.tensor, info, None)
        faults.add(event, rows, addresses, missing)


def _first_of_each(offsets: Int64s, lanes: Bools) -> Bools:
    """`lanes` with only the first of those that share an offset, in program order."""
    flat = np.flatnonzero(lanes)
    _, first = np.unique(np.broadcast_to(offsets, lanes.shape).reshape(-1)[flat], return_index=True)
    out = np.zeros(lanes.size, np.bool_)
    out[flat[first]] = True
    return out.reshape(lanes.shape)
