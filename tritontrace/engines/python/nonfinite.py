"""NaN and infinity in the Python engine: the same checks as in the IR engine (`engines.ir.nonfinite`), on handles."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import nonfinite
from tritontrace.engines.ir.nonfinite import FIRST
from tritontrace.engines.ir.runtime import MemorySite
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.watching import Attributes, Follower, Watched

__all__ = ["NonFiniteValues"]

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

    def elementwise(self, name: str, operands: list[Handle], result: Handle, attributes: Attributes) -> None:
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

    def mixed(self, name: str, operands: list[Handle], results: list[Handle], attributes: Attributes) -> None:
        floats = [handle for handle in operands if handle.type.is_float]
        self._check(nonfinite.nonfinite_mixed, name, floats, floats, results)

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        floats = [handle for handle in operands if handle.type.is_float]
        shape = operands[0].type.shape
        if kind == "reduce":
            self._check(nonfinite.nonfinite_reduce, "tt.reduce", floats, floats, results, axis, shape)
        else:
            self._check(nonfinite.nonfinite_scan, "tt.scan", floats, floats, results, axis, shape, reverse)

    def dot(self, operands: list[Handle], result: Handle, precision: str) -> None:
        self._check(nonfinite.nonfinite_dot, "tt.dot", operands, operands, [result])

    def used(self, site: MemorySite, operands: list[tuple[Handle | None, str]], mask: Any = None) -> None:
        for handle, role in operands:
            companion = self.get(handle) if handle is not None and role == "value" else None
            if companion is not None:
                nonfinite.nonfinite_sink(self.builder.frame, site.event, self.births, companion, mask)
