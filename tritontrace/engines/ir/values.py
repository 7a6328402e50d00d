"""Lazy integer tiles: sums of one term per axis, and masks that are decided without being built.

A tile of addresses or indices is nearly always ``constant + per-program term + one 1-D term per axis``. Kept in that form, an
address costs a few small additions instead of one pass over ``[P, *block]``, its exact bounds are sums of the terms'
bounds, and a load becomes a strided copy. Whatever does not fit is a plain numpy array ("dense").

Dense values have a leading program axis of size P or 1, and each tile axis full or 1 (broadcast lazily).
A value is never changed once built, so caches on it may be filled by whoever comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Axis", "Compare", "Mask", "Separable", "dense", "land", "take_programs"]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_SCALE_CACHE = 16


class Axis:
    """The term of one tile axis: int64 ``[n]`` (the same for every program) or ``[P, n]``."""

    __slots__ = ("_bounds", "_scaled", "_step", "values")

    def __init__(self, values: Any, step: int | bool | None = False) -> None:
        self.values = values
        self._step = step  # False: not looked at yet
        self._bounds: Any = None
        self._scaled: dict[int, Axis] | None = None

    @property
    def step(self) -> int | None:
        """The constant difference of neighbours of a ``[n]`` term; None if there is none."""
        if self._step is False:
            v = self.values
            if v.ndim != 1:
                self._step = None
            elif len(v) == 1:
                self._step = 0
            else:
                d = int(v[1]) - int(v[0])
                self._step = d if bool((np.diff(v) == d).all()) else None
        return self._step

    def bounds(self) -> tuple[Any, Any]:
        """(smallest, largest): ints, or int64 ``[P]`` arrays for a ``[P, n]`` term."""
        if self._bounds is None:
            v = self.values
            if v.ndim == 1:
                if self._step is not False and self._step is not None:
                    first, last = int(v[0]), int(v[-1])
                    self._bounds = (first, last) if first <= last else (last, first)
                else:
                    self._bounds = (int(v.min()), int(v.max()))
            else:
                self._bounds = (v.min(axis=1), v.max(axis=1))
        return self._bounds  # type: ignore[no-any-return]

    def scale(self, factor: int) -> Axis:
        """The term times an int; remembered, because a range is scaled by the same strides again and again."""
        if factor == 1:
            return self
        cache = self._scaled
        if cache is None:
            cache = self._scaled = {}
        out = cache.get(factor)
        if out is None:
            step = self._step
            out = Axis(self.values * factor, step * factor if step is not False and step is not None else step)
            if len(cache) < _SCALE_CACHE:
                cache[factor] = out
        return out

    def plus(self, other: Axis) -> Axis:
        """The sum of two terms of one axis."""
        a, b = self._step, other._step
        known = a is not False and b is not False and a is not None and b is not None
        return Axis(self.values + other.values, a + b if known else False)  # type: ignore[operator]

    def take(self, index: Any) -> Axis:
        """The term of some of the programs."""
        return self if self.values.ndim == 1 else Axis(self.values[index])


class Separable:
    """``constant + program[P] + sum(axes)``; `bits` is the width at which the value wraps (32 or 64)."""

    __slots__ = ("_bounds", "_dense", "_fits", "_span", "_wide", "axes", "bits", "constant", "program")

    def __init__(self, constant: int, program: Any, axes: tuple[Axis | None, ...], bits: int) -> None:
        self.constant = constant
        self.program = program
        self.axes = axes
        self.bits = bits
        self._bounds: Any = None
        self._dense: Any = None
        self._fits: bool | None = None if bits == 32 else True
        self._span: tuple[int, int] | None = None  # the program term's smallest and largest
        self._wide: Separable | None = None

    @property
    def ndim(self) -> int:
        return len(self.axes) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `dense()`."""
        return (self.programs(), *(1 if a is None else a.values.shape[-1] for a in self.axes))

    def programs(self) -> int:
        """P, or 1 if the value is the same for every program."""
        if self.program is not None:
            return len(self.program)
        for a in self.axes:
            if a is not None and a.values.ndim == 2:
                return len(a.values)
        return 1

    def bounds(self) -> tuple[Any, Any]:
        """Exact (smallest, largest) over the tile before wrapping: ints or int64 ``[P]``."""
        if self._bounds is None:
            lo: Any = self.constant
            hi: Any = self.constant
            if self.program is not None:
                lo = lo + self.program
                hi = lo
            for a in self.axes:
                if a is not None:
                    x, y = a.bounds()
                    lo = lo + x
                    hi = hi + y
            self._bounds = (lo, hi)
        return self._bounds  # type: ignore[no-any-return]

    def extremes(self) -> tuple[int, int]:
        """Exact (smallest, largest) over the tile and all programs, before wrapping.

        In a loop the program term stays while the constant moves: its span is looked for once, not in every iteration.
        """
        if self._bounds is None or self._span is not None:
            lo = hi = self.constant
            for a in self.axes:
                if a is not None:
                    if a.values.ndim != 1:
                        break
                    x, y = a.bounds()
                    lo += x
                    hi += y
            else:
                p = self.program
                if p is None:
                    return lo, hi
                if self._span is None:
                    self._span = int(p.min()), int(p.max())
                return lo + self._span[0], hi + self._span[1]
        lo, hi = self.bounds()
        return (lo, hi) if isinstance(lo, int) else (int(lo.min()), int(hi.max()))

    def lows(self) -> tuple[int, int]:
        """Exact (smallest, largest) of what the programs' smallest values are."""
        low = self.extremes()[0]
        if all(a is None or a.values.ndim == 1 for a in self.axes):
            if self.program is None:
                return low, low
            if self._span is not None:
                return low, low + self._span[1] - self._span[0]
        lowest = self.minmax()[0]
        return int(lowest.min()), int(lowest.max())

    def minmax(self) -> tuple[Any, Any]:
        """`bounds` as int64 arrays ``[P]`` or ``[1]`` (the form that events promise)."""
        lo, hi = self.bounds()
        return np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))

    def fits(self) -> bool:
        """True if no lane wraps at `bits`, so that the exact sum is the value."""
        if self._fits is None:
            lo, hi = self.extremes()
            self._fits = lo >= _INT32_MIN and hi <= _INT32_MAX
        return self._fits

    def dense(self) -> Any:
        """The tile as an array of its own dtype, wrapped; axes without a term stay 1."""
        if self._dense is None:
            rank = len(self.axes)
            out: Any = None
            if self.program is not None:
                p = self.program if not self.constant else self.program + self.constant
                out = p.reshape((-1, *(1,) * rank))
            elif self.constant:
                out = np.full((1,) * (rank + 1), self.constant, np.int64)
            for i, a in enumerate(self.axes):
                if a is None:
                    continue
                v = a.values
                v = v.reshape((v.shape[0] if v.ndim == 2 else 1, *(1,) * i, v.shape[-1], *(1,) * (rank - 1 - i)))
                out = v if out is None else out + v
            if out is None:
                out = np.zeros((1,) * (rank + 1), np.int64)
            self._dense = out.astype(np.int32) if self.bits == 32 else out
        return self._dense

    def take(self, index: Any) -> Separable:
        """The value for some of the programs."""
        if self.programs() == 1:
            return self
        axes = tuple(None if a is None else a.take(index) for a in self.axes)
        return Separable(self.constant, None if self.program is None else self.program[index], axes, self.bits)

    def add_constant(self, n: int) -> Separable:
        """The value plus an int."""
        if n == 0:
            return self
        out = Separable(self.constant + n, self.program, self.axes, self.bits)
        out._span = self._span
        return out

    def scale(self, n: int, bits: int) -> Separable:
        """The value times an int, at a width of `bits`; the caller has asked `fits`."""
        if n == 1 and bits == self.bits:
            return self
        axes = tuple(None if a is None else a.scale(n) for a in self.axes)
        program = self.program if self.program is None or n == 1 else self.program * n
        out = Separable(self.constant * n, program, axes, bits)
        if n == 1:
            out._bounds = self._bounds
        if self._span is not None:
            first, last = self._span
            out._span = (first * n, last * n) if n >= 0 else (last * n, first * n)
        return out

    def wide(self) -> Separable:
        """The value at 64 bits, remembered; the caller has asked `fits`."""
        if self.bits == 64:
            return self
        if self._wide is None:
            self._wide = self.scale(1, 64)
        return self._wide

    def plus(self, other: Separable) -> Separable:
        """The sum of two values of one width."""
        axes = []
        for a, b in zip(self.axes, other.axes):
            axes.append(b if a is None else a if b is None else a.plus(b))
        p, q = self.program, other.program
        program = q if p is None else p if q is None else p + q
        out = Separable(self.constant + other.constant, program, tuple(axes), self.bits)
        if p is None or q is None:
            out._span = other._span if p is None else self._span
        return out


def separable(value: Any, bits: int) -> Separable | None:
    """A dense array in separable form, or None if it varies along two tile axes."""
    if type(value) is Separable:
        return value
    shape = value.shape
    axis = -1
    for i in range(1, len(shape)):
        if shape[i] != 1:
            if axis >= 0:
                return None
            axis = i - 1
    rank = len(shape) - 1
    out: Separable
    if axis < 0:
        if shape[0] == 1:
            out = Separable(int(value.reshape(-1)[0]), None, (None,) * rank, bits)
        else:
            out = Separable(0, value.reshape(-1).astype(np.int64), (None,) * rank, bits)
    else:
        flat = value.reshape(-1) if shape[0] == 1 else value.reshape(shape[0], -1)
        axes: list[Axis | None] = [None] * rank
        axes[axis] = Axis(flat.astype(np.int64))
        out = Separable(0, None, tuple(axes), bits)
    out._dense = value
    return out


def dense(value: Any) -> Any:
    """The numpy array of any tile."""
    return value if type(value) is np.ndarray else value.dense()


def take_programs(value: Any, index: Any) -> Any:
    """`value` for the programs `index` of its batch (values that are the same for all stay as they are)."""
    if type(value) is np.ndarray:
        return value if value.shape[0] == 1 else value[index]
    return value.take(index)


_UFUNC = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _decide(predicate: str, lo: Any, hi: Any) -> tuple[bool, bool]:
    """(always, never) of ``x predicate 0`` for x in ``[lo, hi]``."""
    if predicate == "lt":
        return hi < 0, lo >= 0
    if predicate == "le":
        return hi <= 0, lo > 0
    if predicate == "gt":
        return lo > 0, hi <= 0
    if predicate == "ge":
        return lo >= 0, hi < 0
    equal, apart = lo == 0 and hi == 0, lo > 0 or hi < 0
    return (equal, apart) if predicate == "eq" else (apart, equal)


class Compare:
    """``difference predicate 0`` over a separable difference (exact in 64 bits)."""

    __slots__ = ("_decided", "_dense", "difference", "predicate")

    def __init__(self, difference: Separable, predicate: str) -> None:
        self.difference = difference
        self.predicate = predicate
        self._dense: Any = None
        self._decided: tuple[bool, bool] | None = None

    def decided(self) -> tuple[bool, bool]:
        """(true on every lane, false on every lane), from the bounds alone; exact for separable terms' extremes."""
        if self._decided is None:
            lo, hi = self.difference.extremes()
            self._decided = _decide(self.predicate, lo, hi)
        return self._decided

    def dense(self) -> Any:
        """bool array over the axes that matter."""
        if self._dense is None:
            always, never = self.decided()
            if always or never:
                self._dense = np.full((1,) * self.difference.ndim, always)
            else:
                self._dense = _UFUNC[self.predicate](self.difference.dense(), 0)
        return self._dense

    def take(self, index: Any) -> Compare:
        return Compare(self.difference.take(index), self.predicate)


class Mask:
    """A conjunction of comparisons and arrays, built only when somebody needs the bits."""

    __slots__ = ("_all", "_dense", "_none", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._dense: Any = None
        self._all: bool | None = None
        self._none: bool | None = None

    @property
    def ndim(self) -> int:
        part = self.parts[0]
        return int(part.difference.ndim if type(part) is Compare else part.ndim)

    def all(self) -> bool:
        """True when every lane of every program is active."""
        if self._all is None:
            out = True
            for part in self.parts:
                if type(part) is Compare:
                    always, never = part.decided()
                    if never or not (always or bool(part.dense().all())):
                        out = False
                        break
                elif not bool(part.all()):
                    out = False
                    break
            self._all = out
        return self._all

    def none(self) -> bool:
        """True when no lane of any program is active."""
        if self._none is None:
            out = False
            for part in self.parts:
                if type(part) is Compare and part.decided()[1]:
                    out = True
                    break
            self._none = out or not bool(self.dense().any())
        return self._none

    def dense(self) -> Any:
        """bool array over the axes that matter."""
        if self._dense is None:
            out: Any = None
            for part in self.parts:
                if type(part) is Compare:
                    if part.decided()[0]:
                        continue
                    part = part.dense()
                out = part if out is None else out & part
            self._dense = out if out is not None else np.full((1,) * self.ndim, True)
        return self._dense

    def take(self, index: Any) -> Mask:
        return Mask(tuple(p.take(index) if type(p) is Compare else p if p.shape[0] == 1 else p[index] for p in self.parts))

    def map_axes(self, move: Any) -> Mask:
        """The mask with its tile axes rearranged by `move`, a function of a dense array or a Separable."""
        return Mask(tuple(Compare(move(p.difference), p.predicate) if type(p) is Compare else move(p) for p in self.parts))


def land(a: Any, b: Any) -> Any:
    """``a & b`` of two i1 tiles; stays lazy where building it would widen it."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        if a.shape == b.shape or a.size == 1 or b.size == 1:
            return a & b
        return Mask((a, b))
    return Mask((a.parts if type(a) is Mask else (a,)) + (b.parts if type(b) is Mask else (b,)))
