"""Atomic read-modify-writes of a batch, as if its programs and lanes came one after another in order.

Lanes that hit one address must see each other's results where the old value is used. Addresses that occur once are done
together; repeated ones by prefix sums or shifting where the operation allows it, else in rounds: the k-th lane of every
address together.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.engines.ir.access import _elements, active_lanes, regions, view_of
from tritontrace.engines.ir.values import Separable, dense
from tritontrace.forking import fork_safe

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Frame, MemorySite

__all__ = ["RMW_NAMES", "compare_and_swap", "read_modify_write"]

RMW_NAMES = {
    1: "and",
    2: "or",
    3: "xor",
    4: "add",
    5: "fadd",
    6: "max",
    7: "min",
    8: "umax",
    9: "umin",
    10: "xchg",
}
"""Triton's RMWOp enumeration, the same on 3.6, 3.8 and 3.9."""

_UFUNCS: dict[str, Any] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "fadd": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "umax": np.maximum,
    "umin": np.minimum,
}


_LOCK = fork_safe(threading.RLock())
"""Launches on several threads may have one tensor: an atomic of the one must not come between the halves of another's."""


def read_modify_write(frame: Frame, site: MemorySite, operation: str, pointer: Any, value: Any, mask: Any, used: bool) -> Any:
    """One atomic operation of every active lane; the old values ``(P, *block)`` if `used`, else None."""
    with _LOCK:
        return _read_modify_write(frame, site, operation, pointer, value, mask, used)


def _read_modify_write(frame: Frame, site: MemorySite, operation: str, pointer: Any, value: Any, mask: Any, used: bool) -> Any:
    value = dense(value)
    rt = frame.rt
    plain = site.encode(site.zero).dtype == site.zero.dtype  # held as it lies in memory
    if not used and mask is None and plain and operation in ("add", "fadd") and type(pointer) is Separable:
        found, _, whole = regions(frame, site, pointer, mask)
        if whole and pointer.shape == (frame.P, *site.block):
            view = view_of(pointer, found[0].allocation, site.dtype, site.size)
            if view is not None:
                found[0].allocation.open_for_write()
                np.add(view, value, out=view)
                rt.writes += 1
                return None
    old = np.zeros((frame.P, *site.block), site.zero.dtype) if used else None
    for allocation, index, lanes, (operands,) in _pieces(frame, site, pointer, mask, (value,)):
        allocation.open_for_write()
        array, at = _elements(allocation, site.dtype, site.size, index)
        before = _apply(rt, site, operation, array, at, operands, used, plain)
        if old is not None:
            if lanes is None:
                old[...] = before.reshape(old.shape)
            else:
                old[lanes] = before
    return old


def compare_and_swap(frame: Frame, site: MemorySite, pointer: Any, compare: Any, value: Any) -> Any:
    """``tt.atomic_cas`` of every lane; the old values ``(P, *block)``. Equality is of bits, as the hardware compares."""
    with _LOCK:
        return _compare_and_swap(frame, site, pointer, compare, value)


def _compare_and_swap(frame: Frame, site: MemorySite, pointer: Any, compare: Any, value: Any) -> Any:
    old = np.zeros((frame.P, *site.block), site.zero.dtype)
    for allocation, index, lanes, (expected, wanted) in _pieces(frame, site, pointer, None, (dense(compare), dense(value))):
        allocation.open_for_write()
        array, at = _elements(allocation, site.dtype, site.size, index)
        bits = np.dtype(f"u{site.size}")
        memory = array.view(bits) if array.flags.aligned else array
        expected, wanted = site.encode(expected).view(bits), site.encode(wanted).view(bits)
        before = np.empty(at.shape, memory.dtype)
        if len(at) > 1 and _uniform(expected) and _uniform(wanted) and expected[0] != wanted[0]:
            first, inverse = _first_of_each(at)
            seen = memory[at[first]].view(bits).copy()
            frame.rt.writes += _swap(memory, at, first, expected, wanted, before, bits)
            won = seen == expected[0]
            before[...] = np.where(won, wanted[0], seen)[inverse].view(before.dtype)
            before[first] = seen.view(before.dtype)
        else:
            for select in _rounds(at):
                frame.rt.writes += _swap(memory, at, select, expected, wanted, before, bits)
        decoded = site.decode(before.view(site.dtype))
        if lanes is None:
            old[...] = decoded.reshape(old.shape)
        else:
            old[lanes] = decoded
    return old


def _swap(memory: Any, at: Any, select: Any, expected: Any, wanted: Any, before: Any, bits: Any) -> bool:
    """Compare and swap of lanes with distinct addresses; fills `before`, returns whether memory changed."""
    seen = memory[at[select]].view(bits)
    before[select] = seen.view(before.dtype)
    hit = seen == expected[select]
    if not hit.any():
        return False
    here = np.flatnonzero(hit) if isinstance(select, slice) else select[hit]
    memory[at[here]] = wanted[here].view(memory.dtype)
    return bool((wanted[here] != seen[hit]).any())


def _pieces(frame: Frame, site: MemorySite, pointer: Any, mask: Any, values: tuple[Any, ...]) -> Any:
    """(allocation, byte offsets, lanes or None, values) per region, the arrays flat and in program and lane order."""
    found, _, whole = regions(frame, site, pointer, mask)
    if not found:
        return
    addresses, active, *wide = active_lanes(frame, site, pointer, mask, values)
    for region in found:
        base = region.allocation.base
        lanes: Any = active if whole else np.broadcast_to(region.lanes, addresses.shape)
        if lanes is None:
            yield region.allocation, (addresses - base).reshape(-1), None, [np.ascontiguousarray(v).reshape(-1) for v in wide]
        else:
            picked = addresses[lanes] - base
            if len(picked):
                yield region.allocation, picked, lanes, [v[lanes] for v in wide]


def _apply(rt: Any, site: MemorySite, operation: str, array: Any, at: Any, operands: Any, used: bool, plain: bool) -> Any:
    allocation_changed = True
    bitwise = operation in ("and", "or", "xor") and site.dtype.kind not in "iub"  # of a float: on its bits, as on a GPU
    unsigned = bitwise or operation in ("umax", "umin")
    if unsigned:
        kind = np.dtype(f"u{site.size}")
        array, operands = array.view(kind), (site.encode(operands) if bitwise else operands).view(kind)
    result: Any = None
    if operation == "xchg":
        result = _exchange(site, array, at, operands, used)
        if used:
            stored = site.encode(operands)
            allocation_changed = bool((stored.view(f"u{site.size}") != site.encode(result).view(f"u{site.size}")).any())
    elif not used and plain:
        _UFUNCS[operation].at(array, at, operands)
    elif operation == "add" and used and _repeats(at):
        result = _running_sum(array, at, operands)
        allocation_changed = bool(operands.any())  # adding 0 is how kernels read atomically
    else:
        ufunc = _UFUNCS[operation]
        result = np.empty(at.shape, operands.dtype)
        allocation_changed = not used
        for select in _rounds(at):
            seen = array[at[select]] if unsigned else site.decode(array[at[select]])
            new = ufunc(seen, operands[select])
            stored = new if unsigned else site.encode(new)
            result[select] = seen
            allocation_changed = allocation_changed or bool((new != seen).any())
            array[at[select]] = stored
    if allocation_changed:
        rt.writes += 1
    if result is not None and unsigned:
        found = result.view(site.dtype)
        return site.decode(found) if bitwise else found
    return result


def _exchange(site: MemorySite, array: Any, at: Any, operands: Any, used: bool) -> Any:
    stored = site.encode(operands)
    if not used:
        array[at] = stored
        return None
    if not _repeats(at):
        before = site.decode(array[at])
        array[at] = stored
        return before
    order = np.argsort(at, kind="stable")
    group = at[order]
    starts = np.ones(len(group), bool)
    starts[1:] = group[1:] != group[:-1]
    raw = np.empty(len(at), site.dtype)
    ordered = stored[order]
    shifted = np.empty_like(ordered)
    shifted[1:] = ordered[:-1]
    shifted[starts] = array[group[starts]]
    raw[order] = shifted
    array[at] = stored
    return site.decode(raw)


def _running_sum(array: Any, at: Any, operands: Any) -> Any:
    """Integer adds with repeated addresses: old value plus the sum of the lanes before (exact: integers wrap)."""
    if operands.dtype.kind == "f":
        return _float_sum(array, at, operands)
    order = np.argsort(at, kind="stable")
    group = at[order]
    ordered = operands[order]
    starts = np.ones(len(group), bool)
    starts[1:] = group[1:] != group[:-1]
    total = np.cumsum(ordered, dtype=ordered.dtype)
    before = total - ordered
    first = np.flatnonzero(starts)
    which = np.cumsum(starts) - 1
    before = before - before[first][which] + array[group]
    out = np.empty_like(before)
    out[order] = before
    np.add.at(array, at, operands)
    return out


def _float_sum(array: Any, at: Any, operands: Any) -> Any:
    out = np.empty(at.shape, operands.dtype)
    for select in _rounds(at):
        seen = array[at[select]]
        out[select] = seen
        array[at[select]] = seen + operands[select]
    return out


def _repeats(at: Any) -> bool:
    if len(at) < 2:
        return False
    ordered = np.sort(at)
    return bool((ordered[1:] == ordered[:-1]).any())


def _uniform(values: Any) -> bool:
    return bool((values == values[0]).all())


def _first_of_each(at: Any) -> tuple[Any, Any]:
    """(position of the first lane of every distinct address, index of each lane's address among them)."""
    _, first, inverse = np.unique(at, return_index=True, return_inverse=True)
    return first, inverse


def _rounds(at: Any) -> Any:
    """Selections of lanes with distinct addresses that keep the lanes of one address in order."""
    if not _repeats(at):
        yield slice(None)
        return
    order = np.argsort(at, kind="stable")
    group = at[order]
    starts = np.ones(len(group), bool)
    starts[1:] = group[1:] != group[:-1]
    first = np.flatnonzero(starts)
    rank = np.arange(len(group)) - first[np.cumsum(starts) - 1]
    by_rank = np.argsort(rank, kind="stable")
    edges = np.flatnonzero(np.diff(rank[by_rank])) + 1
    yield from np.split(order[by_rank], edges)
