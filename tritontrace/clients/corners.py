"""Whether an access stays inside for every program of a grid, or of a box of it, told from the programs at its corners.

The address is affine in the program ids and the lanes, and so are both sides of the mask's comparisons. How far the
active lanes reach is then a small linear program: the largest of ``o + sum(c[k] * x[k])`` over a box, under
``sum(a[k] * x[k]) <= b`` for each comparison. With one constraint it is solved by filling the variables in the order of
``c[k] / a[k]`` (Dantzig's rule for the fractional knapsack, 1957). Constraints with variables of their own are independent of
each other; of those that share some, the one that bounds best is used. The bound holds for fractions of programs and lanes
as well, so it may be too wide; it is never too narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.engines.ir.boxes import Places
from tritontrace.engines.ir.values import Compare, Mask, Separable

if TYPE_CHECKING:
    from tritontrace import events

__all__ = ["Corners"]

_Linear = tuple[int, tuple[int, ...]]
"""The number for all variables 0, and the coefficients: of the three program ids, then of the tile's axes."""


class Corners:
    """A box of programs of one launch, by its corners (`engines.ir.boxes.corner_programs`)."""

    __slots__ = ("_places",)

    def __init__(self, event: events.MemoryEvent) -> None:
        self._places = Places(event.programs)

    def reach(self, event: events.MemoryEvent, first: int, last: int) -> tuple[int, int] | None:
        """No more than the smallest and no less than the largest address of an active lane, over all programs of the box.

        Lanes that are off may count where all addresses are within `first` and `last`. (0, -1) if there is no active lane; None
        where the address is of another form.
        """
        address: Any = event.address
        if type(address) is not Separable:
            if event.block:
                return None
            address = Separable(0, np.asarray(address.dense(), np.int64).reshape(-1), (), 64)
        if self._places.bounds(address):
            lowest, highest = address.extremes()
            if first <= lowest and highest <= last:
                return lowest, highest
        target = self._linear(address, event.block)
        if target is None:
            return None
        constant, slopes = target
        box = (*self._places.last, *(n - 1 for n in event.block))
        mask: Any = event.mask
        constraints = []
        for part in mask.parts if type(mask) is Mask else ():
            # Whatever is left out here lets more lanes through; what holds in the whole box would only hide the others.
            side = self._at_most(part, event.block) if type(part) is Compare else None
            if side is not None and side[0] + sum(a * u for a, u in zip(side[1], box) if a > 0) > 0:
                constraints.append(side)
        high = _largest(slopes, box, tuple(constraints))
        low = _largest(tuple(-c for c in slopes), box, tuple(constraints))
        return (0, -1) if high is None or low is None else (constant - low, constant + high)

    def _linear(self, form: Separable, block: tuple[int, ...]) -> _Linear | None:
        along = self._places.affine(form.program)
        if along is None:
            return None
        start, slopes = form.constant + along[0], along[1]
        lanes: list[int] = []
        for axis, n in zip(form.axes, block, strict=True):
            if axis is None:
                lanes.append(0)
                continue
            step = axis.step
            if step is None:
                return None
            start += int(axis.values[0])
            lanes.append(step if n > 1 else 0)
        return start, (*slopes, *lanes)

    def _at_most(self, part: Compare, block: tuple[int, ...]) -> _Linear | None:
        """A comparison as ``linear <= 0``."""
        difference = self._linear(part.difference, block) if part.predicate in ("lt", "le", "gt", "ge") else None
        if difference is None:
            return None
        constant, slopes = difference
        if part.predicate[0] == "g":
            constant, slopes = -constant, tuple(-c for c in slopes)
        return constant + (part.predicate[1] == "t"), slopes


def _groups(constraints: Iterable[_Linear]) -> list[tuple[set[int], list[_Linear]]]:
    """The constraints by the variables that they share."""
    groups: list[tuple[set[int], list[_Linear]]] = []
    for constraint in constraints:
        variables = {k for k, a in enumerate(constraint[1]) if a}
        members = [constraint]
        for group in [g for g in groups if g[0] & variables]:
            groups.remove(group)
            variables |= group[0]
            members = group[1] + members
        groups.append((variables, members))
    return groups


@lru_cache(maxsize=1024)
def _largest(slopes: tuple[int, ...], box: tuple[int, ...], constraints: tuple[_Linear, ...]) -> int | None:
    """No less than the largest ``sum(slopes * x)``; None if the constraints contradict each other or the box."""
    total = 0
    free = set(range(len(box)))
    for variables, members in _groups(constraints):
        free -= variables
        bounds = [_one(slopes, box, variables, constraint) for constraint in members]
        if None in bounds:
            return None
        total += min(bound for bound in bounds if bound is not None)
    return total + sum(max(0, slopes[k]) * box[k] for k in free)


def _one(slopes: Sequence[int], box: Sequence[int], variables: set[int], constraint: _Linear) -> int | None:
    """The same for the terms of `variables` under one constraint."""
    room = -constraint[0]
    total = 0
    fill: list[tuple[Fraction, int, int]] = []
    for k in variables:
        a, c, u = constraint[1][k], slopes[k], box[k]
        if a < 0:  # count from the other end
            room -= a * u
            total += c * u
            a, c = -a, -c
        if a == 0:
            total += max(0, c) * u
        elif c > 0:
            fill.append((Fraction(c, a), a, u))
    if room < 0:
        return None
    most = Fraction(total)
    for ratio, a, u in sorted(fill, reverse=True):
        taken = min(room, a * u)
        most += ratio * taken
        room -= taken
    return most.numerator // most.denominator  # the target is an integer wherever all variables are
