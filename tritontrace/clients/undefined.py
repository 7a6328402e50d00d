"""Findings about undefined lanes: masked-off lanes of a load without ``other`` that a kernel goes on to use."""

from __future__ import annotations

from dataclasses import dataclass
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
    """Collects `events.UndefinedUse` of one launch; one finding for each load, with a list of all uses.

    The finding's own use is the first one of the program that it names, the first in launch order that has any. A use is
    where the lanes first meet others (a reduction, say), or where they arrive by themselves.
    """

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}

    def add(self, event: events.UndefinedUse) -> None:
        """Takes note of one use."""
        load = self._loads.get(event.site.id)
        if load is None:
            load = self._loads[event.site.id] = _Load(event.site)
        load.add(event)

    def findings(self, launch: Launch, client: str) -> list[Finding]:
        """What was found."""
        return [load.finding(launch, client) for load in self._loads.values()]


@dataclass(frozen=True, slots=True)
class _Use:
    """Where lanes arrived, and in which programs and lanes that was."""

    role: str
    through: SourceLocation | None
    use: events.Site
    programs: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.int64]

    @property
    def place(self) -> tuple[str, str, str]:
        return self.role, str(self.through), str(self.use.location)

    def __str__(self) -> str:
        mixed = f"meets other lanes at {self.through} and " if self.through is not None else ""
        return f"{mixed}{_ROLES[self.role]} at {self.use.location}"


class _Load:
    def __init__(self, site: events.Site) -> None:
        self.site = site
        self.uses: list[_Use] = []  # a program's own in the order in which it came to them

    def add(self, event: events.UndefinedUse) -> None:
        self.uses.append(_Use(event.role, event.through, event.use, event.programs[event.rows], event.lanes))

    def finding(self, launch: Launch, client: str) -> Finding:
        programs = _in_launch_order(self.uses)
        first = next(use for use in self.uses if (use.programs == programs[0]).all(axis=1).any())
        there = [use for use in self.uses if use.place == first.place]
        others = {str(use): use for use in self.uses if use.place != first.place}
        tensor = self.site.parameter
        details: dict[str, Any] = {
            "role": first.role,
            "uses": "; ".join([str(first), *sorted(others, key=lambda text: _line(others[text]))]),
            "element_type": self.site.dtype,
        }
        lanes = _lanes(there)
        which = f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]} to {lanes[-1]}" if len(lanes) else "lanes"
        by = len(_in_launch_order(there))
        more = f" and {by - 1} more" if by > 1 else ""
        elsewhere = f" (and {len(programs) - by} more elsewhere)" if by < len(programs) else ""
        where = f" at {self.site.location}" if self.site.location is not None else ""
        return Finding(
            kind="undefined_lane",
            message=(
                f"undefined lanes in {launch.kernel_name}{where}: the masked load of {tensor!r} has no other=, and what {which} "
                f"hold {first}, by program {tuple(int(i) for i in programs[0])}{more}{elsewhere}; "
                "give the load an other= or mask the use"
            ),
            client=client,
            access="load",
            tensor=tensor,
            location=self.site.location,
            call_stack=self.site.call_stack,
            programs=programs,
            launch=launch,
            use=first.through or first.use.location,
            lanes=_lanes(self.uses),
            details=details,
        )


def _in_launch_order(uses: list[_Use]) -> npt.NDArray[np.int32]:
    """Their programs, x running fastest."""
    rows = np.unique(np.concatenate([use.programs for use in uses])[:, ::-1], axis=0)[:, ::-1]
    return np.ascontiguousarray(rows)


def _lanes(uses: list[_Use]) -> npt.NDArray[np.int64]:
    return distinct(np.concatenate([use.lanes for use in uses]))


def _line(use: _Use) -> int:
    return use.use.location.line if use.use.location is not None else 0
