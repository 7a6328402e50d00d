"""Loads and stores of a batch: bounds first, then the cheapest numpy form of the access.

An address that is a sum of regular terms becomes a strided view of the storage, one with irregular terms (gathered rows, a
permuted program order) an indexed set of such views, anything else a gather of single elements. Nothing outside the
known memory is ever touched: every path is entered only after the exact bounds of the active lanes were checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.engines.ir.values import Separable, dense

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Frame, MemorySite, Runtime
    from tritontrace.engines.memory import Allocation

__all__ = ["Region", "active_lanes", "bounds", "read", "regions", "simplify_mask", "view_of", "write"]


def simplify_mask(mask: Any) -> Any:
    """None for "every lane", else the mask."""
    if mask is None or mask.all():
        return None
    return mask


def bounds(pointer: Any) -> tuple[int, int]:
    """Smallest and largest byte address over all programs and lanes, masked or not."""
    if type(pointer) is Separable:
        return pointer.extremes()
    if pointer.size == 1:
        lo = int(pointer.reshape(-1)[0])
        return lo, lo
    return int(pointer.min()), int(pointer.max())


class _Layout:
    """Where the lanes of a separable address lie: a regular part and, if need be, an index array."""

    __slots__ = ("index", "irregular", "offset", "shape", "strides")

    def __init__(self, pointer: Separable, base: int) -> None:
        offset = pointer.constant - base
        program = pointer.program
        shape: list[int] = []
        strides: list[int] = []
        irregular: list[int] = []
        for i, axis in enumerate(pointer.axes):
            if axis is None:
                shape.append(1)
                strides.append(0)
                continue
            values = axis.values
            if values.ndim == 2:
                rows = _regular_rows(values)
                if rows is not None:
                    program = values[:, 0] if program is None else program + values[:, 0]
                    shape.append(values.shape[1])
                    strides.append(rows)
                    continue
            else:
                step = axis.step
                if step is not None:
                    offset += int(values[0])
                    shape.append(len(values))
                    strides.append(step)
                    continue
            irregular.append(i)
            shape.append(values.shape[-1])
            strides.append(0)
        program_step = 0
        programs = 1
        program_irregular = False
        if program is not None:
            programs = len(program)
            first = int(program[0])
            if programs > 1:
                program_step = int(program[1]) - first
                if programs > 2 and not bool((np.diff(program) == program_step).all()):
                    program_irregular = True
            if not program_irregular:
                offset += first
        if not irregular and not program_irregular:
            self.index: Any = None
            self.irregular: tuple[int, ...] = ()
            self.offset = offset
            self.shape = (programs, *shape)
            self.strides = (program_step, *strides)
            return
        # The index array carries the program axis always, so that the result's first axis is P or 1.
        k = len(irregular)
        index: Any = program.reshape((-1, *(1,) * k)) if program_irregular else None
        if not program_irregular and programs > 1:
            index = (np.arange(programs, dtype=np.int64) * program_step).reshape((-1, *(1,) * k))
        for j, i in enumerate(irregular):
            v = pointer.axes[i].values  # type: ignore[union-attr]
            v = v.reshape((v.shape[0] if v.ndim == 2 else 1, *(1,) * j, v.shape[-1], *(1,) * (k - 1 - j)))
            index = v if index is None else index + v
        self.index = index
        self.irregular = tuple(irregular)
        self.offset = offset
        regular = [i for i in range(len(shape)) if i not in irregular]
        self.shape = tuple(shape[i] for i in regular)
        self.strides = tuple(strides[i] for i in regular)

    def order(self) -> tuple[int, ...]:
        """The transposition from (program, irregular..., regular...) to the tile's own axis order."""
        rank = len(self.irregular) + len(self.shape)
        position: dict[int, int] = {}
        for j, i in enumerate(self.irregular):
            position[i] = 1 + j
        regular = [i for i in range(rank) if i not in self.irregular]
        for j, i in enumerate(regular):
            position[i] = 1 + len(self.irregular) + j
        return (0, *(position[i] for i in range(rank)))


def _regular_rows(values: Any) -> int | None:
    if values.shape[1] == 1:
        return 0
    step = int(values[0, 1]) - int(values[0, 0])
    return step if bool((np.diff(values, axis=1) == step).all()) else None


def _windows(layout: _Layout, buffer: Any, dtype: Any, size: int) -> tuple[Any, Any]:
    """(all windows of the regular part, index of the wanted ones)."""
    index = layout.index
    lo = int(index.min())
    hi = int(index.max())
    relative = index - lo
    unit = size if size == 1 or not int(np.bitwise_or.reduce(relative, axis=None)) & (size - 1) else 1
    count = (hi - lo) // unit + 1
    windows = np.ndarray((count, *layout.shape), dtype, buffer, layout.offset + lo, (unit, *layout.strides))
    return windows, relative if unit == 1 else relative // unit


def _gather(pointer: Separable, allocation: Allocation, dtype: Any, size: int) -> tuple[Any, bool]:
    """The addressed elements as an array over the axes that matter, and whether it still is a view of memory."""
    layout = _Layout(pointer, allocation.base)
    if layout.index is None:
        return np.ndarray(layout.shape, dtype, allocation.buffer, layout.offset, layout.strides), True
    windows, index = _windows(layout, allocation.buffer, dtype, size)
    out = windows[index]
    order = layout.order()
    return (out if order == tuple(range(len(order))) else out.transpose(order)), False


def view_of(pointer: Separable, allocation: Allocation, dtype: Any, size: int) -> Any:
    """A writable strided view of exactly the addressed elements, or None if the address is not regular or repeats."""
    layout = _Layout(pointer, allocation.base)
    if layout.index is not None or not _injective(layout.shape, layout.strides, size):
        return None
    return np.ndarray(layout.shape, dtype, allocation.buffer, layout.offset, layout.strides)


def _injective(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    extent = size
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, shape) if n > 1):
        if stride < extent:
            return False
        extent += stride * (n - 1)
    return True


def _elements(allocation: Allocation, dtype: Any, size: int, offsets: Any) -> tuple[Any, Any]:
    """(array to index, index) for byte offsets into an allocation, aligned or not."""
    if size == 1:
        return allocation.typed(dtype), offsets
    if int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1) or allocation.base & (size - 1):
        count = max(0, allocation.nbytes - size + 1)
        return np.ndarray((count,), dtype, allocation.buffer, 0, (1,)), offsets
    return allocation.typed(dtype), offsets // size


class Region:
    """The lanes of one access that lie in one allocation: `lanes` is a bool array like the addresses, or None for all."""

    __slots__ = ("allocation", "lanes")

    def __init__(self, allocation: Allocation, lanes: Any) -> None:
        self.allocation = allocation
        self.lanes = lanes


def regions(frame: Frame, site: MemorySite, pointer: Any, mask: Any) -> tuple[list[Region], Any, bool]:
    """Split an access by the memory it may touch.

    Returns (regions, dense addresses or None, whole). `whole` means: one allocation holds every lane, masked or not, and the
    addresses were not built. Lanes that lie nowhere are in no region and have been recorded on the runtime.
    """
    rt = frame.rt
    lo, hi = bounds(pointer)
    size = site.size
    parameter = site.parameter
    rooted = parameter in rt.roots
    allocation = rt.roots[parameter] if parameter is not None and rooted else None
    if not rooted:
        allocation = rt.memory.find(lo)
    if allocation is not None and allocation.base <= lo and hi + size <= allocation.base + allocation.nbytes:
        return [Region(allocation, None)], None, True
    addresses = dense(pointer)
    if mask is None:
        active = None
    else:
        active = dense(mask)
        shape = np.broadcast_shapes(addresses.shape, active.shape)
        addresses = np.broadcast_to(addresses, shape)
        active = np.broadcast_to(active, shape)
        if not active.any():
            return [], addresses, False
    if rooted:
        found: list[Region] = []
        if allocation is not None:
            inside = (addresses >= allocation.base) & (addresses <= allocation.base + allocation.nbytes - size)
            if active is not None:
                inside &= active
            found.append(Region(allocation, inside))
            bad = ~inside if active is None else active & ~inside
        else:
            bad = np.ones(addresses.shape, bool) if active is None else active
    else:
        found, bad = _search(rt, addresses, active, size)
    if bad.any():
        rt.record_out_of_bounds(frame, site, addresses, bad)
    return found, addresses, False


def _search(rt: Runtime, addresses: Any, active: Any, size: int) -> tuple[list[Region], Any]:
    """Regions of pointers whose origin is not known, found address by address."""
    remaining = np.ones(addresses.shape, bool) if active is None else active.copy()
    bad = np.zeros(addresses.shape, bool)
    found: list[Region] = []
    while True:
        left = np.flatnonzero(remaining)
        if not len(left):
            return found, bad
        address = int(addresses.reshape(-1)[left[0]])
        allocation = rt.memory.find(address)
        if allocation is None or address + size > allocation.base + allocation.nbytes:
            hit = remaining & (addresses == address)
            bad |= hit
        else:
            hit = remaining & (addresses >= allocation.base) & (addresses <= allocation.base + allocation.nbytes - size)
            found.append(Region(allocation, hit))
        remaining &= ~hit


def read(frame: Frame, site: MemorySite, pointer: Any, mask: Any, other: Any) -> Any:
    """The loaded tile in compute form; lanes that are masked off or out of bounds get `other`, or 0."""
    found, addresses, whole = regions(frame, site, pointer, mask)
    if whole:
        allocation = found[0].allocation
        if type(pointer) is Separable:
            raw, is_view = _gather(pointer, allocation, site.dtype, site.size)
        else:
            array, index = _elements(allocation, site.dtype, site.size, pointer - allocation.base)
            raw, is_view = array.take(index), False
        value = site.decode(raw)
        if is_view and value is raw:
            value = raw.copy()
        if mask is None:
            return value
        return np.where(dense(mask), value, site.zero if other is None else dense(other))
    result: Any = site.zero if other is None else dense(other)
    for region in found:
        offsets = np.where(region.lanes, addresses - region.allocation.base, 0)
        if region.allocation.nbytes < site.size:
            continue
        array, index = _elements(region.allocation, site.dtype, site.size, offsets)
        result = np.where(region.lanes, site.decode(array.take(index)), result)
    return result


def active_lanes(frame: Frame, site: MemorySite, pointer: Any, mask: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """(addresses, active or None, *values) at the full shape ``(P, *block)``, for lane-by-lane work."""
    shape = (frame.P, *site.block)
    addresses = np.broadcast_to(dense(pointer), shape)
    active = None if mask is None else np.broadcast_to(dense(mask), shape)
    return (addresses, active, *(np.broadcast_to(v, shape) for v in values))


def write(frame: Frame, site: MemorySite, pointer: Any, value: Any, mask: Any) -> None:
    """Store a tile; where lanes or programs hit one address, the last in program and lane order stays."""
    rt = frame.rt
    raw = site.encode(dense(value))
    found, addresses, whole = regions(frame, site, pointer, mask)
    if not found:
        return
    rt.writes += 1
    if whole:
        allocation = found[0].allocation
        if not allocation.written:
            if mask is not None and not dense(mask).any():
                return  # nothing is stored: read-only memory is no fault then
            allocation.open_for_write()
        if type(pointer) is Separable and _covers(pointer, raw, mask, site.block, frame.P):
            layout = _Layout(pointer, allocation.base)
            if layout.index is None:
                if _injective(layout.shape, layout.strides, site.size):
                    view = np.ndarray(layout.shape, site.dtype, allocation.buffer, layout.offset, layout.strides)
                    if mask is None:
                        view[...] = raw
                    else:
                        np.copyto(view, raw, where=dense(mask))
                    return
            elif mask is None and _injective(layout.shape, layout.strides, site.size):
                windows, index = _windows(layout, allocation.buffer, site.dtype, site.size)
                order = layout.order()
                target = np.broadcast_to(raw, (pointer.programs(), *pointer.shape[1:]))
                windows[index] = target if order == tuple(range(len(order))) else target.transpose(order)
                return
        elif type(pointer) is not Separable and mask is None and pointer.shape == raw.shape:
            array, index = _elements(allocation, site.dtype, site.size, pointer - allocation.base)
            array[index] = raw
            return
        full = active_lanes(frame, site, pointer, mask, (raw,))
        _scatter(site, allocation, full[0], full[1], full[2])
        return
    full_shape = (frame.P, *site.block)
    addresses = np.broadcast_to(addresses, full_shape)
    raw = np.broadcast_to(raw, full_shape)
    for region in found:
        region.allocation.open_for_write()
        _scatter(site, region.allocation, addresses, np.broadcast_to(region.lanes, full_shape), raw)


def _scatter(site: MemorySite, allocation: Allocation, addresses: Any, lanes: Any, raw: Any) -> None:
    if lanes is not None:
        addresses = addresses[lanes]
        raw = raw[lanes]
        if not addresses.size:
            return
    array, index = _elements(allocation, site.dtype, site.size, addresses - allocation.base)
    array[index] = raw


def _covers(pointer: Separable, raw: Any, mask: Any, block: tuple[int, ...], programs: int) -> bool:
    """True if every lane that differs in value or mask also differs in its address terms."""
    shape = pointer.shape
    if shape == (programs, *block):
        return True
    masked = None if mask is None else dense(mask).shape
    return not any(n == 1 and (raw.shape[i] != 1 or (masked is not None and masked[i] != 1)) for i, n in enumerate(shape))
