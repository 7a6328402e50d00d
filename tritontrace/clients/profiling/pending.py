"""Unmasked accesses of one site that look alike, put aside and counted together.

In a loop the pointer of an access moves by a constant and its terms stay the very same objects; from batch to batch only the
term of the program differs. Putting these aside costs a fraction of counting each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tritontrace.clients.profiling.parts import Part, Rows, separable_parts, whole_part
from tritontrace.engines.ir.runtime import DenseAddress
from tritontrace.engines.ir.values import Axis, Separable

__all__ = ["Pending"]

_MOST_EVENTS = 512
_MOST_PROGRAMS = 1 << 15


class Pending:
    """Accesses whose tile axes are the same, so far. `full` asks for `parts`, which empties it."""

    __slots__ = ("_axes", "_constants", "_flat", "_program", "_programs", "_scalars", "_terms", "_total", "full")

    def __init__(self) -> None:
        self.full = False
        self._clear()

    def _clear(self) -> None:
        self._axes: tuple[Axis | None, ...] | None = None
        self._flat = True  # no axis differs from program to program
        self._program: Any = None
        self._programs = 0
        self._constants: list[int] = []
        self._terms: list[tuple[int, Any, int]] = []  # (constant, program term, programs)
        self._scalars: list[tuple[Any, int]] = []
        self._total = 0
        self.full = False

    @staticmethod
    def takes(pointer: Any) -> bool:
        """True for addresses that can be put aside: sums of terms, and those of scalars."""
        return type(pointer) is Separable or (type(pointer) is DenseAddress and pointer.values.ndim == 1)

    def put(self, pointer: Any, programs: int) -> bool:
        """Puts an access aside; False if it is not like those that are there, and these must go first."""
        if type(pointer) is DenseAddress:  # all accesses of a site have the same rank
            self._scalars.append((pointer.values, programs // len(pointer.values)))
        elif self._axes is None:
            self._start(pointer, programs)
        elif not self._alike(pointer.axes):
            return False
        elif self._flat:
            self._terms.append((pointer.constant, pointer.program, programs))
        elif pointer.program is self._program and programs == self._programs:
            self._constants.append(pointer.constant)
        else:
            return False
        self._total += programs
        self.full = self._total >= _MOST_PROGRAMS or len(self._terms) + len(self._constants) + len(self._scalars) >= _MOST_EVENTS
        return True

    def _start(self, pointer: Separable, programs: int) -> None:
        self._axes = pointer.axes
        self._flat = all(axis is None or axis.values.ndim == 1 for axis in pointer.axes)
        if self._flat:
            self._terms.append((pointer.constant, pointer.program, programs))
        else:
            self._program, self._programs = pointer.program, programs
            self._constants.append(pointer.constant)

    def _alike(self, axes: tuple[Axis | None, ...]) -> bool:
        if axes is self._axes:
            return True
        assert self._axes is not None  # the caller has looked
        return all(a is b or _equal(a, b) for a, b in zip(axes, self._axes, strict=True))

    def parts(self, block: tuple[int, ...], size: int) -> Iterator[Part | Rows]:
        """What was put aside, as parts."""
        axes, terms, constants, scalars = self._axes, self._terms, self._constants, self._scalars
        program, programs = self._program, self._programs
        self._clear()
        if scalars:
            yield from _scalar_parts(scalars, size)
        elif axes is not None and terms:
            varying = [constant + term for constant, term, _ in terms if term is not None]
            if varying:
                yield whole_part(axes, np.concatenate(varying), block, size, 1)
            alike: dict[int, list[int]] = {}
            for constant, term, count in terms:
                if term is None:
                    alike.setdefault(count, []).append(constant)
            for count, same in alike.items():
                yield whole_part(axes, np.array(same, np.int64), block, size, count)
        elif axes is not None:
            first = constants[0]
            moves = np.array(constants, np.int64) - first
            for part in separable_parts(Separable(first, program, axes, 64), None, block, programs, size):
                if isinstance(part, Part):
                    part.bases = (part.bases[None, :] + moves[:, None]).reshape(-1)
                    yield part
                    continue
                step = max(1, (1 << 18) // part.starts.size)
                for start in range(0, len(moves), step):
                    moved = part.starts[None] + moves[start : start + step, None, None]
                    yield Rows(moved.reshape(-1, part.starts.shape[1]), part.length, part.lanes, part.weight)


def _scalar_parts(scalars: list[tuple[Any, int]], size: int) -> Iterator[Part]:
    by_weight: dict[int, list[Any]] = {}
    for values, weight in scalars:
        by_weight.setdefault(weight, []).append(values)
    for weight, arrays in by_weight.items():
        yield Part(np.concatenate(arrays), (), size, 1, weight)


def _equal(a: Axis | None, b: Axis | None) -> bool:
    """True for two regular terms with the same values."""
    if a is None or b is None:
        return False
    v, w = a.values, b.values
    return v.ndim == 1 == w.ndim and len(v) == len(w) and v[0] == w[0] and a.step is not None and a.step == b.step
