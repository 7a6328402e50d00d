"""The memory operations that generated code calls: an event if somebody listens, the access, the event's end."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import access, atomics
from tritontrace.engines.ir.descriptors import Descriptor
from tritontrace.engines.ir.runtime import Frame, MemorySite, address_form, mask_form
from tritontrace.engines.ir.values import Separable, dense

__all__ = [
    "atomic_cas",
    "atomic_load",
    "atomic_rmw",
    "atomic_store",
    "load",
    "load_tile",
    "probe",
    "probe_rows",
    "probe_tile",
    "store",
    "store_tile",
]


def _tensor(frame: Frame, site: MemorySite, pointer: Any) -> str | None:
    """The argument that an access means; None where its programs mean different ones."""
    if site.parameter is not None:
        return site.parameter
    if type(pointer) is Separable:
        first, last = pointer.lows()
    else:
        low = address_form(pointer).minmax()[0]
        first, last = int(low.min()), int(low.max())
    tensor = frame.rt.tensor_at(first)
    if tensor is not None and last != first:
        other = frame.rt.tensor_at(last)
        if other is not None and other != tensor:
            return None
    return tensor


def load(frame: Frame, site: MemorySite, pointer: Any, mask: Any = None, other: Any = None) -> Any:
    """``tt.load``; the tile in compute form."""
    mask = access.simplify_mask(mask)
    rt = frame.rt
    if not rt.on_load:
        return access.read(frame, site, pointer, mask, other)
    form = mask_form(mask)
    event = events.Load(rt.launch, site.event, frame, address_form(pointer), form, _tensor(frame, site, pointer), other)
    rt.before(event)
    replaced, value = rt.replaced(event)
    event.value = _shaped(value, site) if replaced else access.read(frame, site, pointer, mask, other)
    rt.after(event)
    return event.value


def store(frame: Frame, site: MemorySite, pointer: Any, value: Any, mask: Any = None) -> None:
    """``tt.store``."""
    mask = access.simplify_mask(mask)
    rt = frame.rt
    if not rt.on_store:
        access.write(frame, site, pointer, value, mask)
        return
    value = dense(value)
    form = mask_form(mask)
    event = events.Store(rt.launch, site.event, frame, address_form(pointer), form, _tensor(frame, site, pointer), value)
    rt.before(event)
    replaced, _ = rt.replaced(event)
    if not replaced:
        access.write(frame, site, pointer, value, mask)
    rt.after(event)


def probe(frame: Frame, site: MemorySite, kind: Any, pointer: Any, mask: Any = None, *extra: Any) -> None:
    """An access that is told and not made; `kind` is the event's class, `extra` what a class wants besides."""
    rt = frame.rt
    if not (rt.on_load if kind is events.Load else rt.on_store if kind is events.Store else rt.on_atomic):
        return
    mask = access.simplify_mask(mask)
    event = kind(rt.launch, site.event, frame, address_form(pointer), mask_form(mask), _tensor(frame, site, pointer), *extra)
    rt.before(event)
    rt.after(event)


def probe_tile(
    frame: Frame, site: MemorySite, kind: Any, descriptor: Descriptor, offsets: list[Any] | None, checked: Any, *extra: Any
) -> None:
    """`probe` of a descriptor's or block pointer's tile."""
    pointer, mask = descriptor.tile(descriptor.offsets if offsets is None else offsets, checked)
    probe(frame, site, kind, pointer, mask, *extra)


def probe_rows(frame: Frame, site: MemorySite, kind: Any, descriptor: Descriptor, rows: Any, column: Any) -> None:
    """`probe` of a descriptor's gather or scatter."""
    pointer, mask = descriptor.rows(rows, column)
    probe(frame, site, kind, pointer, mask)


def _shaped(value: Any, site: MemorySite) -> Any:
    out = np.asarray(value, site.zero.dtype)
    rank = 1 + len(site.block)
    return out.reshape((1,) * (rank - out.ndim) + out.shape) if out.ndim < rank else out


def atomic_rmw(
    frame: Frame, site: MemorySite, operation: str, pointer: Any, value: Any, mask: Any, used: bool, sem: str, scope: str
) -> Any:
    """``tt.atomic_rmw``; the old values if `used`."""
    mask = access.simplify_mask(mask)
    rt = frame.rt
    if not rt.on_atomic:
        return atomics.read_modify_write(frame, site, operation, pointer, value, mask, used)
    event = events.Atomic(
        rt.launch,
        site.event,
        frame,
        address_form(pointer),
        mask_form(mask),
        _tensor(frame, site, pointer),
        operation,
        dense(value),
        None,
        sem,
        scope,
    )
    rt.before(event)
    replaced, old = rt.replaced(event)
    event.result = (
        _shaped(old, site) if replaced else atomics.read_modify_write(frame, site, operation, pointer, value, mask, used)
    )
    rt.after(event)
    return event.result


def atomic_cas(frame: Frame, site: MemorySite, pointer: Any, compare: Any, value: Any, sem: str, scope: str) -> Any:
    """``tt.atomic_cas``; the old values."""
    rt = frame.rt
    if not rt.on_atomic:
        return atomics.compare_and_swap(frame, site, pointer, compare, value)
    event = events.Atomic(
        rt.launch,
        site.event,
        frame,
        address_form(pointer),
        None,
        _tensor(frame, site, pointer),
        "cas",
        dense(value),
        dense(compare),
        sem,
        scope,
    )
    rt.before(event)
    replaced, old = rt.replaced(event)
    event.result = _shaped(old, site) if replaced else atomics.compare_and_swap(frame, site, pointer, compare, value)
    rt.after(event)
    return event.result


def atomic_load(frame: Frame, site: MemorySite, pointer: Any, mask: Any, sem: str, scope: str) -> Any:
    """``tt.atomic_load``; masked lanes read 0."""
    mask = access.simplify_mask(mask)
    rt = frame.rt
    if not rt.on_atomic:
        return access.read(frame, site, pointer, mask, None)
    form, tensor = mask_form(mask), _tensor(frame, site, pointer)
    event = events.Atomic(rt.launch, site.event, frame, address_form(pointer), form, tensor, "load", None, None, sem, scope)
    rt.before(event)
    replaced, value = rt.replaced(event)
    event.result = _shaped(value, site) if replaced else access.read(frame, site, pointer, mask, None)
    rt.after(event)
    return event.result


def atomic_store(frame: Frame, site: MemorySite, pointer: Any, value: Any, mask: Any, sem: str, scope: str) -> None:
    """``tt.atomic_store``."""
    mask = access.simplify_mask(mask)
    rt = frame.rt
    if not rt.on_atomic:
        access.write(frame, site, pointer, value, mask)
        return
    value = dense(value)
    form, tensor = mask_form(mask), _tensor(frame, site, pointer)
    event = events.Atomic(rt.launch, site.event, frame, address_form(pointer), form, tensor, "store", value, None, sem, scope)
    rt.before(event)
    if not rt.replaced(event)[0]:
        access.write(frame, site, pointer, value, mask)
    rt.after(event)


def load_tile(
    frame: Frame,
    site: MemorySite,
    descriptor: Descriptor,
    offsets: list[Any] | None,
    checked: tuple[int, ...] | None,
    padding: str | None,
) -> Any:
    """A descriptor's or block pointer's tile; what the mask hides is filled with the padding."""
    pointer, mask = descriptor.tile(descriptor.offsets if offsets is None else offsets, checked)
    return load(frame, site, pointer, mask, _padding(site, descriptor.padding if padding is None else padding))


def load_rows(frame: Frame, site: MemorySite, descriptor: Descriptor, rows: Any, column: Any) -> Any:
    """``tt.descriptor_gather``."""
    pointer, mask = descriptor.rows(rows, column)
    return load(frame, site, pointer, mask, _padding(site, descriptor.padding))


def store_rows(frame: Frame, site: MemorySite, descriptor: Descriptor, rows: Any, column: Any, value: Any) -> None:
    """``tt.descriptor_scatter``."""
    pointer, mask = descriptor.rows(rows, column)
    store(frame, site, pointer, value, mask)


def _padding(site: MemorySite, padding: str) -> Any:
    if padding == "nan" and site.zero.dtype.kind == "f":
        return np.full_like(site.zero, np.nan)
    return site.zero


def store_tile(
    frame: Frame, site: MemorySite, descriptor: Descriptor, offsets: list[Any] | None, value: Any, checked: tuple[int, ...] | None
) -> None:
    """Store a descriptor's or block pointer's tile."""
    pointer, mask = descriptor.tile(descriptor.offsets if offsets is None else offsets, checked)
    store(frame, site, pointer, value, mask)


def reduce_tile(frame: Frame, site: MemorySite, descriptor: Descriptor, offsets: list[Any], value: Any, operation: str) -> None:
    """``tt.descriptor_reduce``: an atomic operation on every element of the tile inside the tensor."""
    pointer, mask = descriptor.tile(offsets)
    atomic_rmw(frame, site, operation, pointer, value, mask, False, "relaxed", "gpu")
