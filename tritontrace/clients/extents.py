"""Which bytes belong to a tensor argument, so that an access can be checked against exactly those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tritontrace.distinct import distinct

if TYPE_CHECKING:
    from tritontrace.launch import ArgumentInfo

__all__ = ["Extent"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Extent:
    """The bytes ``[first, last)`` of one argument, and which of them are elements.

    `first` is the address of the first byte, `last` the address behind the last one. `dense` is True where every byte between
    them belongs to the view: then the two addresses decide. Otherwise the view has gaps (a column of a matrix, every
    second element), and an address must be that of an element.
    """

    __slots__ = ("_base", "_levels", "_offsets", "_run", "dense", "element_bytes", "first", "last")

    def __init__(self, data_ptr: int, shape: tuple[int, ...], stride: tuple[int, ...], element_bytes: int) -> None:
        # From the lowest element on: a view may run backwards, which torch's own never do.
        data_ptr += (
            sum((size - 1) * step for size, step in zip(shape, stride, strict=True) if size > 1 and step < 0) * element_bytes
        )
        self.first = self._base = data_ptr
        self.element_bytes = element_bytes
        # Offsets are sums of index * stride. From the smallest stride up: the first terms cover a gapless run of elements;
        # the others either repeat what came before at a distance ("nested", decided by division), or interleave.
        terms = sorted((abs(step), size) for size, step in zip(shape, stride, strict=True) if size > 1 and step != 0)
        span = run = 1
        levels: list[tuple[int, int]] = []
        nested = True
        for step, size in terms:
            if not levels and step <= span:
                run += (size - 1) * step
            else:
                nested = nested and step >= span
                levels.append((step, span))
            span += (size - 1) * step
        self._run = run
        self._levels = tuple(reversed(levels))
        self._offsets: Int64s | None = None
        if 0 in shape:
            span = 0
            self._levels = ()
        elif not nested:
            self._offsets = _all_offsets(terms)
        self.dense = not self._levels
        self.last = data_ptr + span * element_bytes

    @classmethod
    def of_view(cls, info: ArgumentInfo) -> Extent:
        """The elements that the argument's own shape and strides reach, as far as its storage has them.

        A descriptor may claim a shape that its tensor does not have, and a storage may have been resized.
        """
        if info.shape is None:
            return cls.of_storage(info)
        extent = cls(info.data_ptr, info.shape or (), info.stride or (), info.element_bytes)
        extent.first = max(extent.first, info.storage_ptr)
        extent.last = min(extent.last, info.storage_ptr + info.storage_bytes)
        return extent

    @classmethod
    def of_storage(cls, info: ArgumentInfo) -> Extent:
        """Everything in the storage that the argument lies in."""
        return cls(info.storage_ptr, (info.storage_bytes,), (1,), 1)

    def outside(self, addresses: Int64s, size: int) -> Bools:
        """Whether an access of `size` bytes at each address touches any byte that is not the argument's."""
        result: Bools = (addresses < self.first) | (addresses + size > self.last)
        if self.dense:
            return result
        offsets = addresses - self._base
        width = self.element_bytes
        last = (offsets + (size - 1)) // width
        element = offsets // width
        # An access may be wider than an element, or straddle two: every element that it touches must be there.
        for _ in range((size - 1) // width + 2):
            result |= ~self._has(element)
            if (element >= last).all():
                break
            element = np.minimum(element + 1, last)
        return result

    def gaps(self, terms: list[Int64s], size: int) -> Bools | None:
        """Which lanes of a strided view lie in its gaps, for addresses that are sums of `terms`; None for "look closer".

        Terms are int64 arrays that broadcast to ``[P, *block]``, and so is the result; it stays as small as the terms
        allow. It is right for lanes between `first` and `last`.
        """
        found: Bools = np.zeros((1,) * terms[0].ndim, np.bool_)
        if self.dense:
            return found
        if self._offsets is not None or size > self.element_bytes:
            return None
        terms = [terms[0] - self._base, *terms[1:]]
        for step, span in self._levels:
            # Where the terms' remainders together stay below the step, no lane carries over into the next repetition, and
            # the remainder of the sum is the sum of the remainders.
            terms = [_collapsed(term % (step * self.element_bytes)) for term in terms]
            if sum(int(term.max()) for term in terms) >= step * self.element_bytes:
                return None
            found = found | (sum(terms) + size > span * self.element_bytes)
        return found

    def _has(self, element: Int64s) -> Bools:
        """Whether each element offset is one of the view's (only those between first and last matter)."""
        if self._offsets is not None:
            index = np.searchsorted(self._offsets, element)
            found: Bools = self._offsets[np.minimum(index, len(self._offsets) - 1)] == element
            return found
        rest = element
        good = np.ones(element.shape, np.bool_)
        for step, span in self._levels:
            rest = rest % step
            good &= rest < span
        return good & (rest < self._run)


def _collapsed(term: Int64s) -> Int64s:
    """The term as a single entry, if all its entries are the same."""
    if term.size > 1:
        one = term[(slice(0, 1),) * term.ndim]
        if (term == one).all():
            return one
    return term


def _all_offsets(terms: list[tuple[int, int]]) -> Int64s:
    """Every offset of a view whose dimensions interleave (``as_strided`` at its wildest), sorted."""
    offsets = np.zeros(1, np.int64)
    for step, size in terms:
        offsets = distinct(offsets[:, None] + np.arange(size, dtype=np.int64) * step)
    return offsets
