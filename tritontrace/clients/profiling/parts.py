"""One access of a batch of programs, taken apart into sets of programs whose addresses look alike.

An address is a sum of one term per tile axis, and a mask nearly always looks at one axis at a time. Then the programs whose
masks let the same positions through access the same arrangement of bytes, each from a base of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.bounds import axis_lanes
from tritontrace.clients.profiling.shapes import Term, arrange
from tritontrace.distinct import distinct
from tritontrace.engines.ir.values import Axis, Mask, Separable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Part", "Rows", "separable_parts", "whole_part"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MOST_PATTERNS = 16
"""Different rows of an irregular axis that are looked at one by one; more are looked at all at once."""


@dataclass(slots=True)
class Part:
    """Programs that access `length` bytes from each sum of `terms`, counted from an address in `bases` of their own.

    Each base stands for `weight` programs; each program has `lanes` active lanes.
    """

    bases: Int64s
    terms: tuple[Term, ...]
    length: int
    lanes: int
    weight: int


@dataclass(slots=True)
class Rows:
    """Programs whose runs of `length` bytes start at addresses of their own: `starts` is ``[p, R]``; `lanes` and `weight`
    are as in `Part`."""

    starts: Int64s
    length: int
    lanes: int
    weight: int


class _AxisLanes:
    """One tile axis: its offsets and, for each program, which set of them is active."""

    __slots__ = ("count", "labels", "patterns")

    def __init__(self, count: int) -> None:
        self.count = count
        self.labels: Any = None  # per program, or None where all are alike
        self.patterns: list[Any] = [None]  # active positions: None (all), (first, end), or a bool array

    def of(self, label: int) -> int:
        """Active positions of a pattern."""
        pattern = self.patterns[label]
        if pattern is None:
            return self.count
        return pattern[1] - pattern[0] if isinstance(pattern, tuple) else int(np.count_nonzero(pattern))


def separable_parts(pointer: Separable, mask: Mask | None, block: tuple[int, ...], programs: int, size: int) -> Any:
    """The parts of an access (`Part` and `Rows`), or None if the mask does not look at one axis at a time."""
    rank = len(block)
    valid: list[Bools | None] | None = [None] * rank
    some: Bools | None = None
    if mask is not None:
        valid, some = axis_lanes(mask, rank) or (None, None)
    if valid is None:
        return None
    return _Parts(pointer, block, programs, size).split(valid, some)


def whole_part(axes: tuple[Axis | None, ...], bases: Int64s, block: tuple[int, ...], size: int, weight: int) -> Part:
    """Unmasked accesses from each of `bases` along `axes`, none of which differs from program to program."""
    shift = 0
    terms: list[Term] = []
    for axis in axes:
        if axis is not None:
            start, term = _term(axis, None)
            shift += start
            terms.append(term)
    outer, length, more = arrange(terms, size)
    return Part(bases + (shift + more), outer, length, math.prod(block), weight)


class _Parts:
    def __init__(self, pointer: Separable, block: tuple[int, ...], programs: int, size: int) -> None:
        self.block = block
        self.programs = programs
        self.size = size
        base: Any = np.asarray(pointer.constant, np.int64).reshape(1)
        if pointer.program is not None:
            base = base + pointer.program
        self.base = base
        self.axes: list[Axis | None] = []
        self.varying: dict[int, Int64s] = {}
        for position, axis in enumerate(pointer.axes):
            if axis is not None and axis.values.ndim == 2:
                axis = self._common(position, axis.values)
            self.axes.append(axis)

    def _common(self, position: int, values: Int64s) -> Axis | None:
        """The term of an axis that differs from program to program, where it does so by a constant only."""
        first = values[:, 0]
        relative = values - first[:, None]
        if len(values) == 1 or not (relative[1:] != relative[0]).any():
            self.base = self.base + first
            return Axis(relative[0])
        self.varying[position] = values
        return None

    def split(self, valid: list[Bools | None], some: Bools | None) -> Iterator[Part | Rows]:
        rows: Any = None if some is None or (len(some) == 1 and some[0]) else np.flatnonzero(some)
        if some is not None and len(some) == 1 and not some[0]:
            return
        lanes = [_lanes(n, mask) for n, mask in zip(self.block, valid)]
        labels: Any = None
        for axis in lanes:
            if axis.labels is not None:
                labels = axis.labels if labels is None else labels * len(axis.patterns) + axis.labels
        if rows is not None and not len(rows):
            return
        if labels is None:
            yield from self._part(lanes, rows, rows)
            return
        if rows is not None:
            labels = labels[rows]
        for label in distinct(labels).tolist():
            chosen = np.flatnonzero(labels == label)
            chosen = chosen if rows is None else rows[chosen]
            yield from self._part(lanes, chosen, chosen)

    def _part(self, lanes: list[_AxisLanes], rows: Any, chosen: Any) -> Iterator[Part | Rows]:
        """The programs `rows` (None: all), which have the same pattern on every axis."""
        programs = self.programs if rows is None else len(rows)
        which = 0 if chosen is None else int(chosen[0])
        base = self.base
        if rows is not None and len(base) > 1:
            base = base[rows]
        count = 1
        terms: list[Term] = []
        irregular: list[Int64s] = []
        for position, (axis, active) in enumerate(zip(self.axes, lanes, strict=True)):
            label = 0 if active.labels is None else int(active.labels[which])
            count *= active.of(label)
            if not count:
                return
            pattern = active.patterns[label]
            values = self.varying.get(position)
            if values is not None:
                values = values if rows is None else values[rows]
                irregular.append(_cut(values, pattern))
            elif axis is not None:
                start, term = _term(axis, pattern)
                base = base + start
                terms.append(term)
        weight = programs if len(base) == 1 and not irregular else 1
        if not irregular:
            outer, length, shift = arrange(terms, self.size)
            yield Part(base + shift if shift else base, outer, length, count, weight)
            return
        yield from self._irregular(base, terms, irregular, programs, count)

    def _irregular(
        self, base: Int64s, terms: list[Term], irregular: list[Int64s], programs: int, count: int
    ) -> Iterator[Part | Rows]:
        relative = [values - values[:, :1] for values in irregular]
        for values in irregular:
            base = base + values[:, 0]
        base = np.broadcast_to(base, (programs,))
        keys = np.ascontiguousarray(np.concatenate(relative, axis=1))
        if len(keys) > 2 * _MOST_PATTERNS and len(np.unique(keys[: 2 * _MOST_PATTERNS], axis=0)) > _MOST_PATTERNS:
            patterns = None
        else:
            patterns, labels = np.unique(keys, axis=0, return_inverse=True)
            labels = labels.reshape(-1)
        if patterns is not None and len(patterns) <= _MOST_PATTERNS:
            cuts = np.cumsum([values.shape[1] for values in irregular])[:-1]
            for label, row in enumerate(patterns):
                own = [_simplest(np.ascontiguousarray(piece)) for piece in np.split(row, cuts)]
                outer, length, shift = arrange([*terms, *own], self.size)
                yield Part(base[labels == label] + shift, outer, length, count, 1)
            return
        outer, length, shift = arrange(terms, self.size)
        starts = (base + shift).reshape(-1, 1)
        for term in (*outer, *relative):
            values = np.arange(term[1], dtype=np.int64) * term[0] if isinstance(term, tuple) else term
            values = values if values.ndim == 2 else values[None]
            starts = (starts[:, :, None] + values[:, None, :]).reshape(programs, -1)
        yield Rows(starts, length, count, 1)


def _lanes(count: int, valid: Bools | None) -> _AxisLanes:
    """The patterns of an axis's active positions (bool ``[P|1, n]``; None for all)."""
    out = _AxisLanes(count)
    if valid is None:
        return out
    if valid.shape[1] != count:
        valid = np.broadcast_to(valid, (len(valid), count))
    if len(valid) == 1:
        out.patterns = [_pattern(valid[0])]
        return out
    counts = np.count_nonzero(valid, axis=1)
    if counts.min() == count:
        return out
    if bool((valid[:, :-1] >= valid[:, 1:]).all()):  # the first so many, in every program
        found, labels = np.unique(counts, return_inverse=True)
        out.patterns = [None if n == count else (0, n) for n in found.tolist()]
        out.labels = labels.reshape(-1)
        return out
    packed = np.packbits(valid, axis=1)
    rows = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, index, labels = np.unique(rows, return_index=True, return_inverse=True)
    out.patterns = [_pattern(valid[i]) for i in index.tolist()]
    out.labels = labels.reshape(-1)
    return out


def _pattern(valid: Bools) -> Any:
    active = np.flatnonzero(valid)
    if len(active) == len(valid):
        return None
    if not len(active):
        return (0, 0)
    first, end = int(active[0]), int(active[-1]) + 1
    return (first, end) if end - first == len(active) else valid


def _cut(values: Int64s, pattern: Any) -> Int64s:
    if pattern is None:
        return values
    return values[:, pattern[0] : pattern[1]] if isinstance(pattern, tuple) else values[:, pattern]


def _term(axis: Axis, pattern: Any) -> tuple[int, Term]:
    """(the first active offset, the term from there on)."""
    values, step = axis.values, axis.step
    if len(values) == 1:
        return int(values[0]), (0, 1)
    if pattern is None or isinstance(pattern, tuple):
        first, end = pattern or (0, len(values))
        start = int(values[first])
        if step is not None:
            return start, (step, end - first)
        values = values[first:end]
    else:
        values = values[pattern]
        start = int(values[0])
    return start, _simplest(values - start)


def _simplest(offsets: Int64s) -> Term:
    if len(offsets) == 1:
        return (0, 1)
    step = int(offsets[1])
    return (step, len(offsets)) if bool((np.diff(offsets) == step).all()) else offsets
