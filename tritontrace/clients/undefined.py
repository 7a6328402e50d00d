"""Findings about undefined lanes: masked-off lanes of a load without ``other`` that a kernel goes on to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.distinct import distinct
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.launch import Launch
    from tritontrace.source import SourceLocation

__all__ = ["UndefinedLanes"]

_ROLES = {
    "value": "is stored",
    "address": "decides an address",
    "mask": "decides a mask",
    "branch": "decides a branch",
}


class UndefinedLanes:
    """Collects `events.UndefinedUse` of one launch; one finding for each load, with the first use and a list of all.

    The use is where the lanes first meet others (a reduction, say), or where they arrive by themselves.
    """

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}

    def add(self, event: events.UndefinedUse) -> None:
        """Takes note of one use."""
        load = self._loads.get(event.site.id)
        if load is None:
            load = self._loads[event.site.id] = _Load(event)
        load.add(event)

    def findings(self, launch: Launch, client: str) -> list[Finding]:
        """What was found."""
        return [load.finding(launch, client) for load in self._loads.values()]


class _Load:
    def __init__(self, event: events.UndefinedUse) -> None:
        self.site = event.site
        self.use = event.use
        self.role = event.role
        self.through = event.through
        self.uses: dict[str, None] = {}
        self.programs: list[npt.NDArray[np.int32]] = []
        self.lanes: list[npt.NDArray[np.int64]] = []

    def add(self, event: events.UndefinedUse) -> None:
        self.uses[_arrival(event.through, event.role, event.use)] = None
        self.programs.append(event.programs[event.rows])
        self.lanes.append(event.lanes)

    def finding(self, launch: Launch, client: str) -> Finding:
        rows = np.unique(np.concatenate(self.programs)[:, ::-1], axis=0)[:, ::-1]  # in launch order: x runs fastest
        programs = np.ascontiguousarray(rows)
        lanes = distinct(np.concatenate(self.lanes))
        tensor = self.site.parameter
        details: dict[str, Any] = {"role": self.role, "uses": "; ".join(self.uses), "element_type": self.site.dtype}
        more = f" and {len(programs) - 1} more" if len(programs) > 1 else ""
        which = f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]} to {lanes[-1]}" if len(lanes) else "lanes"
        where = f" at {self.site.location}" if self.site.location is not None else ""
        return Finding(
            kind="undefined_lane",
            message=(
                f"undefined lanes in {launch.kernel_name}{where}: the masked load of {tensor!r} has no other=, and what {which} "
                f"hold {_arrival(self.through, self.role, self.use)}, by program {tuple(int(i) for i in programs[0])}{more}; "
                "give the load an other= or mask the use"
            ),
            client=client,
            access="load",
            tensor=tensor,
            location=self.site.location,
            call_stack=self.site.call_stack,
            programs=programs,
            launch=launch,
            use=self.through or self.use.location,
            lanes=lanes,
            details=details,
        )


def _arrival(through: SourceLocation | None, role: str, use: events.Site) -> str:
    mixed = f"meets other lanes at {through} and " if through is not None else ""
    return f"{mixed}{_ROLES[role]} at {use.location}"
