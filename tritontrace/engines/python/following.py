"""Followers of undefined lanes and of what is not finite; what their companions mean is the IR engine's (`engines.ir`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import nonfinite, undefined
from tritontrace.engines.ir.definedness import DECIDED, MOST_LOADS
from tritontrace.engines.ir.nonfinite import FIRST
from tritontrace.engines.ir.runtime import MemorySite
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.watching import Follower, Watched

__all__ = ["NonFiniteValues", "UndefinedLanes"]


class UndefinedLanes(Follower):
    """Masked-off lanes of loads without ``other``: one bit for each such load."""

    key = "undefined"

    def __init__(self, builder: Watched) -> None:
        super().__init__(builder)
        self.origins: list[MemorySite | None] = []
        self._bits: dict[int, int] = {}

    def put(self, handle: Handle, companion: Any) -> None:
        super().put(handle, companion if companion is not None and companion.any() else None)

    def loaded(self, site: MemorySite, mask: Handle | None, other: Handle | None, result: Handle) -> None:
        if mask is None:
            return
        if other is not None:
            if self.get(other) is not None:
                self.put(result, undefined.undefined_unmasked(mask.value, self.get(other)))
            return
        bit = self._bits.get(site.event.id)
        if bit is None:
            if len(self.origins) == MOST_LOADS:
                return
            bit = self._bits[site.event.id] = len(self.origins)
            self.origins.append(site)
        self.put(result, undefined.undefined_seed(self.builder.frame, mask.value, bit, False))

    def elementwise(self, name: str, operands: list[Handle], result: Handle) -> None:
        if not self.any_of(operands):
            return
        bits = [self.full(handle) for handle in operands]
        if name == "arith.select":
            self.put(result, undefined.undefined_select(operands[0].value, *bits))
        elif name in DECIDED:
            a, b = (handle.value for handle in operands)
            self.put(result, undefined.undefined_logic(a, b, bits[0], bits[1], DECIDED[name]))
        else:
            self.put(result, undefined.undefined_any(*bits))

    def mixed(self, name: str, operands: list[Handle], results: list[Handle]) -> None:
        found = [self.full(handle) for handle in operands if self.get(handle) is not None]
        if found:
            for result in results:
                alike = all(handle.type.shape == result.type.shape for handle in operands)
                made = undefined.undefined_any(*found) if alike else undefined.undefined_all(len(result.type.shape), *found)
                self.put(result, made)

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        found = [self.full(handle) for handle in operands if self.get(handle) is not None]
        if not found:
            return
        size = operands[0].type.shape[axis]
        for result in results:
            if kind == "reduce":
                self.put(result, undefined.undefined_reduce(axis, *found))
            else:
                self.put(result, undefined.undefined_scan(axis, reverse, size, *found))

    def dot(self, operands: list[Handle], result: Handle) -> None:
        if self.any_of(operands):
            self.put(result, undefined.undefined_dot(*(self.full(handle) for handle in operands)))

    def histogram(self, value: Handle, mask: Handle | None, result: Handle) -> None:
        used = [value] if mask is None else [value, mask]
        if self.any_of(used):
            found = [self.full(handle) for handle in used]
            if mask is not None:
                found = [undefined.undefined_kept(mask.value, *found)]
            self.put(result, undefined.undefined_all(1, *found))

    def used(self, site: MemorySite, operands: list[tuple[Handle | None, str]], mask: Any = None) -> None:
        for handle, role in operands:
            bits = None if handle is None else self.get(handle)
            if bits is not None:
                masked = mask if role in ("value", "address") else None
                role = "value" if role == "compared" else role
                undefined.undefined_sink(self.builder.frame, site.event, role, self.origins, False, bits, masked)

    def branch(self, value: Handle) -> None:
        bits = self.get(value)
        if bits is not None:
            use = self.builder.sites.event("scf.if", (), "")
            undefined.undefined_sink(self.builder.frame, use, "branch", self.origins, False, bits)


_EXACT = frozenset({"arith.extf", "arith.negf", "math.absf"})
_BITS = frozenset({"arith.bitcast", "tt.bitcast"})


class NonFiniteValues(Follower):
    """NaN and infinity: the operation that made a value so, or 0."""

    key = "nonfinite"

    def __init__(self, builder: Watched) -> None:
        super().__init__(builder)
        self.births: list[events.Site] = []
        self._codes: dict[int, int] = {}

    def put(self, handle: Handle, companion: Any) -> None:
        super().put(handle, companion if companion is not None and companion.any() else None)

    def _born_at(self, name: str, result: Handle) -> tuple[events.Site, int]:
        site = self.builder.sites.event(name, result.type.shape, result.type.element)
        code = self._codes.get(site.id)
        if code is None:
            code = self._codes[site.id] = FIRST - len(self.births)
            self.births.append(site)
        return site, code

    def _check(self, kind: Any, name: str, shown: list[Handle], floats: list[Handle], results: list[Handle], *extra: Any) -> None:
        results = [result for result in results if result.type.is_float]
        if not results or all(np.isfinite(result.value).all() for result in results):
            return
        site, code = self._born_at(name, results[0])
        values = tuple(result.value for result in results)
        operands = tuple(handle.value for handle in shown)
        companions = tuple(self.full(handle) for handle in floats)
        made = kind(self.builder.frame, site, code, values, operands, companions, *extra)
        for result, companion in zip(results, made, strict=True):
            self.put(result, companion)

    def elementwise(self, name: str, operands: list[Handle], result: Handle) -> None:
        if not result.type.is_float or name in _BITS:
            return
        if name in _EXACT:
            self.put(result, self.get(operands[0]))
        elif name == "arith.select":
            if self.any_of(operands[1:]):
                yes, no = (self.full(handle) for handle in operands[1:])
                self.put(result, nonfinite.nonfinite_select(operands[0].value, yes, no))
        else:
            floats = [handle for handle in operands if handle.type.is_float]
            self._check(nonfinite.nonfinite_lanes, name, floats or operands, floats, [result])

    def mixed(self, name: str, operands: list[Handle], results: list[Handle]) -> None:
        floats = [handle for handle in operands if handle.type.is_float]
        self._check(nonfinite.nonfinite_mixed, name, floats, floats, results)

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        floats = [handle for handle in operands if handle.type.is_float]
        shape = operands[0].type.shape
        if kind == "reduce":
            self._check(nonfinite.nonfinite_reduce, "tt.reduce", floats, floats, results, axis, shape)
        else:
            self._check(nonfinite.nonfinite_scan, "tt.scan", floats, floats, results, axis, shape, reverse)

    def dot(self, operands: list[Handle], result: Handle) -> None:
        self._check(nonfinite.nonfinite_dot, "tt.dot", operands, operands, [result])

    def used(self, site: MemorySite, operands: list[tuple[Handle | None, str]], mask: Any = None) -> None:
        for handle, role in operands:
            companion = self.get(handle) if handle is not None and role == "value" else None
            if companion is not None:
                nonfinite.nonfinite_sink(self.builder.frame, site.event, self.births, companion, mask)
