"""Programs whose access is the same, lane by lane: only one of them need be looked at.

In a grid of tiles all programs of a row load the same tile of one operand. When their access is looked at lane by lane,
because it leaves its tensor, that saves all but one of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.engines.ir.values import Compare, Mask, Separable

if TYPE_CHECKING:
    from tritontrace import events

__all__ = ["alike"]

Int64s = npt.NDArray[np.int64]

_WORTH = 4
"""Lanes of a tile for each byte that tells programs apart, below which looking at every program costs no more."""


def alike(event: events.MemoryEvent, rows: Int64s) -> tuple[Int64s, list[Int64s] | None]:
    """(representatives, members): some of the programs `rows`, in their order, and for each all of `rows` that are like it.

    Two programs are alike if they access the same addresses through the same lanes. There are no members where nothing
    is known, and everyone represents itself.
    """
    pointer: Any = event.address
    mask: Any = event.mask
    if len(rows) < 2 or type(pointer) is not Separable or not (mask is None or type(mask) is Mask):
        return rows, None
    columns: list[Any] = []
    if pointer.program is not None:
        columns.append(pointer.program[rows])
    columns.extend(axis.values[rows] for axis in pointer.axes if axis is not None and axis.values.ndim == 2)
    for part in () if mask is None else mask.parts:
        if type(part) is Compare:
            if part.decided()[0]:
                continue
            part = part.dense()
        if part.shape[0] > 1:
            columns.append(part[rows].reshape(len(rows), -1))
    if not columns:
        return rows[:1], [rows]
    views = [np.ascontiguousarray(c).reshape(len(rows), -1).view(np.uint8) for c in columns]
    width = sum(view.shape[1] for view in views)
    if math.prod(event.block) < _WORTH * width:
        return rows, None
    if len(columns) == 1 and columns[0].ndim == 1:
        _, first, label = np.unique(columns[0], return_index=True, return_inverse=True)
    else:
        keys = np.ascontiguousarray(np.concatenate(views, axis=1)).view(np.dtype((np.void, width))).reshape(-1)
        _, first, label = np.unique(keys, return_index=True, return_inverse=True)
    by_label = np.argsort(label.reshape(-1), kind="stable")
    members = np.split(rows[by_label], np.cumsum(np.bincount(label.reshape(-1)))[:-1])
    order = np.argsort(first)
    return rows[first[order]], [members[i] for i in order.tolist()]
