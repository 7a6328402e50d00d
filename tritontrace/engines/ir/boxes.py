"""The grid cut into boxes of programs, so that a few faulty programs of a huge grid are found without looking at the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tritontrace.engines.ir.values import Separable

__all__ = ["Box", "Places", "box_chunks", "corner_programs", "undecided_boxes"]

Int64s = npt.NDArray[np.int64]
Grid = tuple[int, int, int]
Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""For x, y and z the first program id and how many there are."""

_MOST_CHECKS = 128
_WORTH = 0.75
"""Share of the grid that may still be undecided after two cuts; if more is, most programs are faulty."""


class Places:
    """Where the corner programs of a box are, ids int ``[P, 3]``, and how numbers that they have depend on that.

    `last` is the last program of the box along each axis, counted from its first.
    """

    __slots__ = ("_known", "_places", "_units", "_zero", "last")

    def __init__(self, programs: npt.NDArray[Any]) -> None:
        places = programs.astype(np.int64)
        self._places = places = places - places.min(axis=0)
        self.last = tuple(places.max(axis=0).tolist())
        known = {tuple(place): row for row, place in enumerate(places.tolist())}
        self._zero = known[0, 0, 0]
        self._units = [known.get(unit) for unit in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
        self._known: dict[int, tuple[Any, tuple[int, tuple[int, ...]] | None]] = {}

    def affine(self, values: Any) -> tuple[int, tuple[int, ...]] | None:
        """The first program's number (of `values`, int64 ``[P]`` or ``[1]``) and what a step along each axis adds.

        None if the numbers of the corners are not affine: something wrapped on the way.
        """
        if values is None:
            return 0, (0, 0, 0)
        known = self._known.get(id(values))  # in a loop, mostly the same one each time
        if known is None:
            if len(self._known) > 256:
                self._known.clear()
            known = self._known[id(values)] = values, self._fit(values)
        return known[1]

    def bounds(self, form: Separable) -> bool:
        """Whether what `form` is at most and at least at the corners, it is in the whole box, being affine."""
        return self.affine(form.program) is not None and all(axis is None or axis.values.ndim == 1 for axis in form.axes)

    def _fit(self, values: Any) -> tuple[int, tuple[int, ...]] | None:
        if len(values) != len(self._places):
            return (int(values[0]), (0, 0, 0)) if len(values) == 1 else None
        zero = int(values[self._zero])
        slopes = [0 if row is None else int(values[row]) - zero for row in self._units]
        if any(abs(c) * (n + 1) >> 60 for c, n in zip(slopes, self.last)):
            return None
        if not bool((values - zero == self._places @ np.array(slopes, np.int64)).all()):
            return None
        return zero, tuple(slopes)


def corner_programs(grid: Grid, box: Box | None = None) -> Int64s:
    """Linear ids of the programs that are first, second or last of the box (default: of the grid) along every axis, sorted."""
    box = box or _whole(grid)
    sides = [start + np.array(sorted({0, min(1, n - 1), n - 1}), np.int64) for start, n in box]
    x, y, _ = grid
    return np.sort((sides[0][:, None, None] + x * (sides[1][None, :, None] + y * sides[2][None, None, :])).reshape(-1))


def undecided_boxes(grid: Grid, undecided: Callable[[Box], bool], enough: int) -> list[Box]:
    """Boxes that hold all programs of the grid that are not known to be clean.

    `undecided` tells of a box whether its corners leave any doubt. Boxes in doubt are cut in two, until they hold no more than
    `enough` programs together or cutting does not help.
    """
    whole = _whole(grid)
    if not undecided(whole):
        return []
    left, total, checks = [whole], _size(whole), 0
    cuts = 0
    while sum(map(_size, left)) > enough:
        parts = [part for box in left for part in _halves(box)]
        checks += len(parts)
        if checks > _MOST_CHECKS or len(parts) == len(left):
            break
        left = [part for part in parts if undecided(part)]
        cuts += 1
        if cuts >= 2 and sum(map(_size, left)) > _WORTH * total:
            return [whole]
    return left


def box_chunks(grid: Grid, boxes: list[Box], size: int) -> Iterator[Int64s]:
    """The linear ids of all programs of the boxes, at most `size` at a time; ascending in each box."""
    x, y, _ = grid
    for box in sorted(boxes, key=lambda box: tuple(start for start, _ in reversed(box))):
        (x0, nx), (y0, ny), (z0, _) = box
        for start in range(0, _size(box), size):
            place = np.arange(start, min(start + size, _size(box)), dtype=np.int64)
            yield x0 + place % nx + x * (y0 + place // nx % ny + y * (z0 + place // (nx * ny)))


def _whole(grid: Grid) -> Box:
    x, y, z = grid
    return (0, x), (0, y), (0, z)


def _size(box: Box) -> int:
    return math.prod(n for _, n in box)


def _halves(box: Box) -> list[Box]:
    """The box, cut across its longest side; itself if it is a single program."""
    axis = max(range(3), key=lambda axis: box[axis][1])
    start, n = box[axis]
    if n == 1:
        return [box]
    first, second = list(box), list(box)
    first[axis], second[axis] = (start, n // 2), (start + n // 2, n - n // 2)
    return [(first[0], first[1], first[2]), (second[0], second[1], second[2])]
