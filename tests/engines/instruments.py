"""What instruments tell of one launch, in a form in which two engines can be compared: by line and program, not by batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.clients.profiling.work import classify
from tritontrace.engines.base import ARITHMETIC, LINES, OPERATIONS, OVERFLOW, SHADOW, UNDEFINED, LaunchHooks

__all__ = ["ALL", "Told"]

ALL = frozenset({UNDEFINED, OPERATIONS, ARITHMETIC, OVERFLOW, SHADOW, LINES})


class Told:
    """`lanes` has for each (what, where, program) the lanes, `flops` the floating-point operations by unit."""

    def __init__(self) -> None:
        self.lanes: defaultdict[Any, set[int]] = defaultdict(set)
        self.flops: Counter[Any] = Counter()

    def hooks(self) -> LaunchHooks:
        """As an engine wants them."""
        return LaunchHooks(
            before={
                events.Executed: (self._executed,),
                events.UndefinedUse: (self._undefined,),
                events.NonFinite: (self._made,),
                events.NonFiniteUse: (self._stored,),
                events.IntegerOverflow: (self._overflow,),
                events.Compared: (self._compared,),
                events.Work: (self._work,),
            }
        )

    def differences(self, other: Told) -> list[str]:
        """What `other`, the Python engine's, tells differently."""
        found = []
        for key in sorted(self.lanes.keys() | other.lanes.keys(), key=repr):
            one, two = self.lanes.get(key), other.lanes.get(key)
            if key[0] == "reference" and (one is None or two is None):
                continue  # of constants, some stores are left out
            if one != two:
                found.append(f"{key}: {_shown(one)} in one engine, {_shown(two)} in the other")
        missing = self.flops - other.flops  # the IR engine leaves out what nobody uses
        if missing:
            found.append(f"flops: {dict(missing)} in one engine only")
        return found

    def _add(self, event: Any, lanes: Any, block: tuple[int, ...], *key: Any) -> None:
        full = np.broadcast_to(lanes, (len(event), *block)).reshape(len(event), -1)
        for row in np.flatnonzero(full.any(axis=1)):
            self.lanes[(*key, tuple(event.programs[row].tolist()))].update(np.flatnonzero(full[row]).tolist())

    def _executed(self, event: events.Executed) -> None:
        for statement in event.statements:
            self.lanes[("executed", *statement)].add(0)

    def _undefined(self, event: events.UndefinedUse) -> None:
        through = event.through and event.through.line
        key = ("undefined", _line(event.site), "through", through, event.role, _line(event.use))
        for program in event.programs[event.rows].tolist():
            self.lanes[(*key, tuple(program))].add(0)
        self.lanes[key].update(event.lanes.tolist())  # of all programs

    def _made(self, event: events.NonFinite) -> None:
        self._add(event, event.lanes, event.result.shape[1:], "made", event.site.op, _line(event.site))

    def _stored(self, event: events.NonFiniteUse) -> None:
        self._add(event, event.lanes, event.use.block, "stored", _line(event.site), _line(event.use))

    def _overflow(self, event: events.IntegerOverflow) -> None:
        self._add(event, event.lanes, event.site.block, "overflow", event.operation, event.dtype, _line(event.site))

    def _compared(self, event: events.Compared) -> None:
        shape = (len(event), *event.site.block)
        active = np.broadcast_to(True if event.active is None else event.active, shape)
        reference = np.where(np.isnan(event.reference), np.nan, event.reference)
        for row, values in enumerate(np.broadcast_to(reference, shape)):
            key = ("reference", _line(event.site), tuple(event.programs[row].tolist()))
            self.lanes[key].add(hash(values[active[row]].tobytes()))

    def _work(self, event: events.Work) -> None:
        for (operation, element), count in event.operations.items():
            kind = classify(operation, element)
            if kind is not None:
                self.flops[kind[0]] += kind[1] * count * len(event)


def _line(site: Any) -> int:
    return site.location.line if site.location is not None else 0


def _shown(lanes: set[int] | None) -> str:
    if lanes is None:
        return "nothing"
    return f"lanes {sorted(lanes)[:4]}{'...' if len(lanes) > 4 else ''}"
