"""Which allocation an access lies in, for pointers that come from an argument and for those that come from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.forms import Form, merge_runs
from tritontrace.clients.races.log import Region
from tritontrace.clients.races.shadow import Shadow

if TYPE_CHECKING:
    from tritontrace.engines.memory import Allocation
    from tritontrace.launch import ArgumentInfo, Launch

__all__ = ["Places"]

Int64s = npt.NDArray[np.int64]


class Places:
    """The regions of a launch, made when an access first needs them."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.regions: dict[int, Region] = {}

    def key(self, parameter: str | None) -> int | None:
        """The first address of the allocation that an argument lies in; None if that is not known, -1 if there is none."""
        info = self.launch.arguments.get(parameter) if parameter is not None else None
        if info is None or not info.is_tensor:
            return None
        if not info.storage_bytes:
            return -1
        memory = self.launch.memory
        found = memory.known(info.storage_ptr) if memory is not None else None
        return info.storage_ptr if found is None else found.base

    def of_argument(self, parameter: str | None) -> Region | None:
        """The region of an argument's memory."""
        key = self.key(parameter)
        if key is None or key < 0 or parameter is None:
            return None
        memory = self.launch.memory
        known = None if memory is None else memory.known(key)
        if known is not None:
            return self._region(known.base, known.nbytes, known)
        info = self.launch.arguments[parameter]
        return self._region(info.storage_ptr, info.storage_bytes, None)

    def place(self, form: Form) -> list[tuple[Region, Form]]:
        """`form` by the regions that its accesses lie in; what lies nowhere is left out, for it is not made."""
        low, high = form.bounds()
        one = self._at(low)
        if one is not None and high <= one.shadow.base + one.shadow.nbytes:
            return [(one, form)]
        length, rest, _ = form.run()
        starts = form.starts(rest)
        firsts, lasts = starts.min(axis=1), starts.max(axis=1) + (length - 1)
        homes = [self._at(address) for address in firsts.tolist()]
        whole: dict[int, list[int]] = {}
        torn = []
        for row, (home, last) in enumerate(zip(homes, lasts.tolist())):
            if home is not None and last < home.shadow.base + home.shadow.nbytes:
                whole.setdefault(home.shadow.base, []).append(row)
            else:
                torn.append(row)
        out = [(self.regions[base], form.take(np.array(rows))) for base, rows in whole.items()]
        if torn:
            out += self._by_lane(form.take(np.array(torn)))
        return out

    def known(self, region: Region | None, addresses: Int64s, size: int) -> npt.NDArray[np.bool_]:
        """Which of these accesses lie in memory that is known (the others are not made)."""
        if region is not None:
            shadow = region.shadow
            inside: npt.NDArray[np.bool_] = (addresses >= shadow.base) & (addresses + size <= shadow.base + shadow.nbytes)
            return inside
        some, which = np.unique(addresses, return_inverse=True)
        homes = [self._at(address) for address in some.tolist()]
        good = [home is not None and a + size <= home.shadow.base + home.shadow.nbytes for a, home in zip(some.tolist(), homes)]
        return np.array(good, np.bool_)[which]

    def _by_lane(self, form: Form) -> list[tuple[Region, Form]]:
        addresses = form.addresses()
        ids = np.repeat(form.id_array, addresses.shape[1])
        flat = addresses.reshape(-1)
        left = np.ones(len(flat), np.bool_)
        out: list[tuple[Region, Form]] = []
        while left.any():
            region = self._at(int(flat[np.argmax(left)]))
            if region is None:
                left &= flat != flat[np.argmax(left)]
                continue
            base, end = region.shadow.base, region.shadow.base + region.shadow.nbytes
            mine = left & (flat >= base) & (flat < end)
            left &= ~mine
            mine &= flat + form.size <= end
            out += [(region, part) for part in merge_runs(flat[mine], ids[mine], form.size)]
        return out

    def _at(self, address: int) -> Region | None:
        memory = self.launch.memory
        if memory is not None:
            allocation = memory.find(address)
            return None if allocation is None else self._region(allocation.base, allocation.nbytes, allocation)
        for info in self.launch.arguments.values():
            if info.is_tensor and info.storage_ptr <= address < info.storage_ptr + info.storage_bytes:
                return self._region(info.storage_ptr, info.storage_bytes, None)
        return None

    def _region(self, base: int, nbytes: int, allocation: Allocation | None) -> Region:
        region = self.regions.get(base)
        if region is None:
            exists = allocation is not None and allocation.device != "meta"
            region = self.regions[base] = Region(Shadow(base, nbytes, allocation if exists else None))
        return region

    def tensor(self, address: int) -> str | None:
        """The argument whose own elements, or else whose storage, lie at `address`."""
        inside: ArgumentInfo | None = None
        for info in self.launch.arguments.values():
            if info.is_tensor and info.storage_ptr <= address < info.storage_ptr + info.storage_bytes:
                reach = [(n - 1) * s for n, s in zip(info.shape or (), info.stride or ())]
                low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + 1
                if low * info.element_bytes <= address - info.data_ptr < high * info.element_bytes:
                    return info.name
                inside = inside or info
        return None if inside is None else inside.name
