"""Which bytes of a piece of memory were touched: one flag for each granule, as coarse as the accesses allow.

Tiles mostly begin and end on multiples of a large power of two, and then a flag stands for hundreds of bytes. The first
access that does not fit makes the granules smaller, for good. The result is exact either way. A page of flags that nobody
sets takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.profiling.shapes import Runs, Term
from tritontrace.distinct import distinct

if TYPE_CHECKING:
    from tritontrace.engines.memory import AddressSpace

__all__ = ["Places", "Touched", "union_bytes"]

_COARSEST = 4096
_SLAB = 1 << 20


class Places:
    """The pieces of memory of a launch. They are still known here when the launch has let go of its memory."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts = self._ends = np.zeros(0, np.int64)

    def look(self, memory: AddressSpace | None) -> None:
        """Takes note of the memory that there is now: a launch may find more while it runs."""
        if memory is not None:
            starts, ends = memory.bounds()
            if len(starts):
                self._starts, self._ends = starts, ends

    def around(self, low: int, high: int) -> tuple[int, int] | None:
        """(first byte, size) of the piece that holds all of ``[low, high)``."""
        index = int(np.searchsorted(self._starts, low, side="right")) - 1
        return self.piece(index) if index >= 0 and high <= self._ends[index] else None

    def piece(self, index: int) -> tuple[int, int]:
        """(first byte, size) of a piece."""
        start = int(self._starts[index])
        return start, int(self._ends[index]) - start

    def locate(self, addresses: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
        """For each address the index of the piece that holds all its `size` bytes, or -1."""
        if not len(self._starts):
            return np.full(addresses.shape, -1, np.int64)
        index = np.searchsorted(self._starts, addresses, side="right") - 1
        return np.where((index >= 0) & (addresses + size <= self._ends[np.maximum(index, 0)]), index, -1)


class Touched:
    """The touched bytes of memory ``[base, base + nbytes)``; what lies outside is left out."""

    __slots__ = ("base", "flags", "granule", "nbytes")

    def __init__(self, base: int, nbytes: int) -> None:
        self.base = base
        self.nbytes = nbytes
        self.granule = _COARSEST
        self.flags = np.zeros(-(-nbytes // _COARSEST), np.bool_)

    def bytes(self) -> int:
        """The number of distinct bytes that were touched."""
        return int(np.count_nonzero(self.flags)) * self.granule

    def refined(self, granule: int) -> npt.NDArray[np.bool_]:
        """The flags at a smaller granule."""
        if granule == self.granule:
            return self.flags
        return np.repeat(self.flags, self.granule // granule)[: -(-self.nbytes // granule)]

    def add(self, bases: Any, runs: Runs) -> None:
        """`runs` from each of the addresses `bases` (int64 ``[p]``), all inside."""
        first = bases - self.base
        bits = int(np.bitwise_or.reduce(first)) | runs.alignment
        granule = self._fit(bits & -bits)
        length = runs.length // granule
        first = first // granule
        if length == 1 and not runs.terms:
            self.flags[first] = True
            return
        if self._add_view(first, runs.terms, length, granule):
            return
        if length > 1 and all(isinstance(term, tuple) for term in runs.terms):
            first = distinct(first)
            if not runs.terms or length * len(runs.starts) >= 64 * len(first) or length >= 16:
                for base in first:
                    self._add_view(base.reshape(1), runs.terms, length, granule)
                return
        self._set((first[:, None] + (runs.starts // granule)[None, :]).reshape(-1), length)

    def add_each(self, starts: Any, length: int) -> None:
        """Runs of `length` bytes from each address in `starts` (int64, flat)."""
        first = starts - self.base
        if not len(first):
            return
        if int(first.min()) < 0 or int(first.max()) + length > self.nbytes:
            first = first[(first >= 0) & (first + length <= self.nbytes)]
            if not len(first):
                return
        bits = int(np.bitwise_or.reduce(first)) | length
        granule = self._fit(bits & -bits)
        self._set(first // granule, length // granule)

    def _fit(self, granule: int) -> int:
        if granule < self.granule:
            self.flags = self.refined(granule)
            self.granule = granule
        return self.granule

    def _add_view(self, first: Any, terms: tuple[Term, ...], length: int, granule: int) -> bool:
        step = 0
        if len(first) > 1:
            step = int(first[1]) - int(first[0])
            if len(first) > 2 and not bool((np.diff(first) == step).all()):
                return False
        shape, strides = [len(first)], [step]
        for term in terms:
            if not isinstance(term, tuple):
                return False
            shape.append(term[1])
            strides.append(term[0] // granule)
        view = np.ndarray((*shape, length), np.bool_, self.flags, int(first[0]), (*strides, 1))
        view[...] = True
        return True

    def _set(self, first: Any, length: int) -> None:
        if length == 1:
            self.flags[first] = True
            return
        lanes = np.arange(length)
        step = max(1, _SLAB // length)
        for start in range(0, len(first), step):
            self.flags[first[start : start + step, None] + lanes] = True


def union_bytes(maps: Iterable[Mapping[int, Touched]]) -> int:
    """The bytes that are flagged in any of some sites' maps (base of a piece of memory -> its flags)."""
    by_base: dict[int, list[Touched]] = {}
    for touched in maps:
        for base, flags in touched.items():
            by_base.setdefault(base, []).append(flags)
    total = 0
    for group in by_base.values():
        if len(group) == 1:
            total += group[0].bytes()
            continue
        granule = min(touched.granule for touched in group)
        any_of_them = group[0].refined(granule)
        for other in group[1:]:
            any_of_them = any_of_them | other.refined(granule)
        total += int(np.count_nonzero(any_of_them)) * granule
    return total
