"""The exact first and last address that a masked access really touches, without building it lane by lane.

An address is a sum of one term per tile axis, and a mask is nearly always a conjunction of comparisons that look at one
axis each. Then the active lanes are a product of one set of positions per axis, and the smallest active address is the
sum of each axis's smallest active term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir.values import Axis, Compare, Mask, Separable

if TYPE_CHECKING:
    from tritontrace import events

__all__ = ["active_bounds", "axis_lanes"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NONE_LOW, _NONE_HIGH = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def active_bounds(event: events.MemoryEvent, rows: Int64s | None = None) -> tuple[Int64s, Int64s, Bools] | None:
    """(lowest, highest, any): per program, the first and last byte address of its active lanes, and if it has any.

    Arrays are ``[len(rows)]``, or ``[1]`` if all programs are alike; `rows` defaults to the whole batch. Where `any` is False the
    addresses mean nothing. None if the address or the mask is not in a form that allows it.
    """
    pointer: Any = event.address
    mask: Any = event.mask
    if type(pointer) is not Separable:
        return None
    if mask is not None and type(mask) is not Mask:
        return None
    if rows is not None and len(rows) < len(event):
        pointer = pointer.take(rows)
        mask = None if mask is None else mask.take(rows)
    low: Any = np.asarray(pointer.constant, np.int64).reshape(1)
    if pointer.program is not None:
        low = low + pointer.program
    high = low
    lanes = axis_lanes(mask, len(pointer.axes)) if mask is not None else ([None] * len(pointer.axes), None)
    if lanes is None:
        return None
    by_axis, some = lanes
    alive: Any = np.ones(1, np.bool_) if some is None else some
    for axis, valid in zip(pointer.axes, by_axis, strict=True):
        if valid is not None:
            alive = alive & valid.any(axis=1)
        if axis is None:
            continue
        least, most = _term_bounds(axis, valid)
        low, high = low + least, high + most
    return np.atleast_1d(low), np.atleast_1d(high), np.atleast_1d(alive)


def _term_bounds(axis: Axis, valid: Bools | None) -> tuple[Any, Any]:
    if valid is None:
        return axis.bounds()
    values = np.atleast_2d(axis.values)
    if values.shape[1] == 1 or valid.shape[1] == 1:
        return values.min(axis=1), values.max(axis=1)
    least = np.where(valid, values, _NONE_LOW).min(axis=1)
    most = np.where(valid, values, _NONE_HIGH).max(axis=1)
    # Where nothing is valid the sum would overflow; the program counts as inactive anyway.
    none = ~valid.any(axis=1)
    if none.any():
        least, most = np.where(none, 0, least), np.where(none, 0, most)
    return least, most


def axis_lanes(mask: Mask, rank: int) -> tuple[list[Bools | None], Bools | None] | None:
    """(positions of every axis that the mask lets through ``[P|1, n]``, programs that it lets through) or None."""
    by_axis: list[Bools | None] = [None] * rank
    some: Bools | None = None
    for part in mask.parts:
        if type(part) is Compare:
            if part.decided()[0]:
                continue
            part = part.dense()
        wide = [i for i, n in enumerate(part.shape[1:]) if n != 1]
        if len(wide) > 1:
            return None
        if not wide:
            flat = part.reshape(-1)
            some = flat if some is None else some & flat
            continue
        at = wide[0]
        flat = part.reshape(part.shape[0], -1)
        known = by_axis[at]
        by_axis[at] = flat if known is None else known & flat
    return by_axis, some
