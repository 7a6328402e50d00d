"""Tensor descriptors and block pointers: a base, a shape, strides, and the tile they move.

Addresses and masks that come from them are separable by construction, and become ordinary loads and stores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir.control import assemble
from tritontrace.engines.ir.values import Axis, Compare, Mask, Separable, take_programs

__all__ = ["Descriptor"]


class Descriptor:
    """One descriptor or block pointer of a batch.

    `base` is int64 ``[P|1]`` (bytes), `shape`, `strides` (elements) and `offsets` lists of int64 ``[P|1]``; `block` the tile;
    `padding` ``"zero"`` or ``"nan"``. It behaves as a value of the engine: `take` and `assemble` follow the programs.
    """

    __slots__ = ("base", "block", "offsets", "padding", "shape", "size", "strides")

    def __init__(
        self,
        base: Any,
        shape: list[Any],
        strides: list[Any],
        block: tuple[int, ...],
        size: int,
        padding: str,
        offsets: Any = None,
    ) -> None:
        self.base = base
        self.shape = [s.astype(np.int64) for s in shape]
        self.strides = [s.astype(np.int64) for s in strides]
        self.block = block
        self.size = size
        self.padding = padding
        zero = np.zeros(1, np.int64)
        self.offsets = [zero] * len(block) if offsets is None else [o.astype(np.int64) for o in offsets]

    def _parts(self) -> list[Any]:
        return [self.base, *self.shape, *self.strides, *self.offsets]

    def _rebuild(self, parts: list[Any]) -> Descriptor:
        n = len(self.block)
        return Descriptor(
            parts[0], parts[1 : n + 1], parts[n + 1 : 2 * n + 1], self.block, self.size, self.padding, parts[2 * n + 1 :]
        )

    def take(self, index: Any) -> Descriptor:
        """The descriptors of some of the programs."""
        return self._rebuild([take_programs(p, index) for p in self._parts()])

    def assemble(self, indices: list[Any], pieces: list[Descriptor], programs: int) -> Descriptor:
        """One descriptor out of disjoint sets of programs."""
        return self._rebuild(assemble([(i, piece._parts()) for i, piece in zip(indices, pieces)], programs))

    def advanced(self, offsets: list[Any]) -> Descriptor:
        """A block pointer moved by `offsets` elements per axis (``tl.advance``)."""
        moved = [a + b.astype(np.int64) for a, b in zip(self.offsets, offsets)]
        return Descriptor(self.base, self.shape, self.strides, self.block, self.size, self.padding, moved)

    def tile(self, offsets: list[Any], checked: tuple[int, ...] | None = None) -> tuple[Separable, Mask | None]:
        """(addresses, mask) of the tile at `offsets`; only the axes in `checked` (default all) are masked."""
        indices = [_range(o.astype(np.int64), n, i, len(self.block)) for i, (o, n) in enumerate(zip(offsets, self.block))]
        return self._addresses(indices), self._mask(indices, range(len(self.block)) if checked is None else checked)

    def rows(self, rows: Any, column: Any) -> tuple[Separable, Mask | None]:
        """(addresses, mask) of a gather or scatter: one row of the tile per entry of `rows` ``[P|1, n]``."""
        values = rows.astype(np.int64)
        first = Separable(0, None, (Axis(values[0] if len(values) == 1 else values), None), 64)
        indices = [first, _range(column.astype(np.int64), self.block[-1], 1, 2)]
        return self._addresses(indices), self._mask(indices, (0, 1))

    def _addresses(self, indices: list[Separable]) -> Separable:
        rank = len(indices)
        base = self.base
        constant, program = (int(base[0]), None) if len(base) == 1 else (0, base)
        out = Separable(constant, program, (None,) * rank, 64)
        for index, stride in zip(indices, self.strides):
            out = out.plus(_times(index, stride * self.size))
        return out

    def _mask(self, indices: list[Separable], axes: Any) -> Mask | None:
        parts: list[Any] = []
        for i in axes:
            size = self.shape[i]
            minus = Separable(-int(size[0]), None, (None,) * len(indices), 64)
            if len(size) != 1:
                minus = Separable(0, -size, (None,) * len(indices), 64)
            parts.append(Compare(indices[i], "ge"))
            parts.append(Compare(indices[i].plus(minus), "lt"))
        return Mask(tuple(parts)) if parts else None


def _range(offset: Any, n: int, axis: int, rank: int) -> Separable:
    axes: list[Axis | None] = [None] * rank
    axes[axis] = Axis(np.arange(n, dtype=np.int64), 1)
    if len(offset) == 1:
        return Separable(int(offset[0]), None, tuple(axes), 64)
    return Separable(0, offset, tuple(axes), 64)


def _times(index: Separable, stride: Any) -> Separable:
    if len(stride) == 1:
        return index.scale(int(stride[0]), 64)
    program = (index.program if index.program is not None else 0) + index.constant
    axes: list[Axis | None] = []
    for a in index.axes:
        if a is None:
            axes.append(None)
        else:
            values = a.values if a.values.ndim == 2 else a.values[None]
            axes.append(Axis(values * stride[:, None]))
    return Separable(0, program * stride, tuple(axes), 64)
