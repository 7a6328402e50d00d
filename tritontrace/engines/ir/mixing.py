"""On which way a masked-off lane reaches a place where it does harm: through which operation that mixes lanes."""

from __future__ import annotations

from collections import deque

from tritontrace.engines.ir.tree import Op, Value

__all__ = ["MIXING", "Ways"]

MIXING = frozenset({"tt.reduce", "tt.scan", "tt.dot", "tt.dot_scaled", "tt.histogram", "tt.gather"})
"""Operations in which lanes meet others."""


class Ways:
    """Which values are made from which others, and by what."""

    def __init__(self) -> None:
        self._targets: dict[Value, dict[Value, Op | None]] = {}

    def add(self, source: Value, target: Value, op: Op | None = None) -> None:
        """`target` is made from `source`, by `op` or by being passed on."""
        self._targets.setdefault(source, {})[target] = op

    def between(self, start: Value, end: Value) -> tuple[bool, Op | None]:
        """(whether a lane can get from `start` to `end` by itself, the first operation that mixes lanes on another way)."""
        apart, mixers = self._reached([start], across=False)
        for target in sorted(mixers, key=lambda value: value.id):
            if end in self._reached([target], across=True)[0]:
                return end in apart, mixers[target]
        return end in apart, None

    def _reached(self, starts: list[Value], across: bool) -> tuple[dict[Value, None], dict[Value, Op]]:
        """(what is made from `starts`, what operations that mix lanes make of that); `across` goes through these as well."""
        reached: dict[Value, None] = dict.fromkeys(starts)
        mixers: dict[Value, Op] = {}
        waiting = deque(starts)
        while waiting:
            for target, op in self._targets.get(waiting.popleft(), {}).items():
                if op is not None and op.name in MIXING:
                    mixers[target] = op
                    if not across:
                        continue
                if target not in reached:
                    reached[target] = None
                    waiting.append(target)
        return reached, mixers
