"""From the addresses of a form to the entries of an array that has one entry for each granule of an allocation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.forms import Form, Terms, stretches

__all__ = ["Window"]

Int64s = npt.NDArray[np.int64]


@lru_cache(1024)
def _layout(size: int, terms: Terms, granule: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides in granules) of elements of `size` bytes at sums of `terms`, without gaps that are none."""
    length, rest, _ = stretches(size, terms)
    shape = tuple(count for _, count in rest)
    strides = tuple(step // granule for step, _ in rest)
    return ((*shape, length // granule), (*strides, 1)) if length > granule else (shape, strides)


class Window:
    """The granules of a form: a strided view where its terms are regular, an indexed set of such views otherwise.

    What `read` returns has a first axis of the form's rows, or of 1 where all rows touch the same or (`anonymous`) rows
    need not be told apart. Steps that leave no gap are put together, so an entry may stand for several lanes.
    """

    __slots__ = ("index", "offset", "shape", "strides")

    def __init__(self, form: Form, origin: int, granule: int, *, anonymous: bool = False, repeat: Terms = ()) -> None:
        offset = form.base - origin
        terms = form.regular
        row_step, rows = form.row_step, form.rows
        program, irregular = form.program, form.irregular
        if repeat:
            ((step, count),) = repeat
            offset += min(0, step) * (count - 1)
            terms = (*terms, (abs(step), count))
        if row_step is not None and anonymous:
            offset += min(0, row_step) * (rows - 1)
            terms = (*terms, (abs(row_step), rows))
            row_step = None
        self.offset = offset // granule
        shape, strides = _layout(form.size, terms, granule)
        index: Any = None
        if program is not None or irregular:
            per_row = program is not None or row_step is not None
            index = form.offsets() // granule if per_row else np.zeros(1, np.int64)
            for term in irregular:
                wide = np.atleast_2d(term) // granule
                index = index.reshape(len(index), -1, 1) + wide[:, None, :]
                index = index.reshape(len(index), -1)
        elif row_step is not None:
            shape, strides = (rows, *shape), (row_step // granule, *strides)
        else:
            shape, strides = (1, *shape), (0, *strides)
        self.index = index
        self.shape = shape
        self.strides = strides

    @property
    def rows(self) -> int:
        """The first axis of what `read` returns."""
        return self.shape[0] if self.index is None else len(self.index)

    def _windows(self, array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64s]:
        low, high = int(self.index.min()), int(self.index.max())
        width = array.itemsize
        strides = (width, *(step * width for step in self.strides))
        shape = (high - low + 1, *self.shape)
        return np.ndarray(shape, array.dtype, array, (self.offset + low) * width, strides), self.index - low

    def read(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The entries: a view if the form is regular, else a copy."""
        if self.index is None:
            width = array.itemsize
            strides = tuple(step * width for step in self.strides)
            view: npt.NDArray[Any] = np.ndarray(self.shape, array.dtype, array, self.offset * width, strides)
            return view
        windows, index = self._windows(array)
        found: npt.NDArray[Any] = windows[index]
        return found

    def write(self, array: npt.NDArray[Any], value: Any) -> None:
        """Sets the entries to `value`, broadcast to what `read` returns."""
        if self.index is None:
            self.read(array)[...] = value
            return
        windows, index = self._windows(array)
        windows[index] = value

    def by_row(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A per-row array, shaped to broadcast against what `read` returns."""
        rank = len(self.shape) + (self.index.ndim if self.index is not None else 0)
        return rows.reshape((-1,) + (1,) * (rank - 1))

    def positions(self) -> Int64s:
        """The granules' numbers, shaped like what `read` returns."""
        out: Any = np.full((1,), self.offset, np.int64) if self.index is None else self.index + self.offset
        for step, count in zip(self.strides, self.shape):
            out = out[..., None] + np.arange(count, dtype=np.int64) * step
        found: Int64s = out[0] if self.index is None else out
        return found
