"""The profiler: what a launch moves and computes, counted exactly, and what the compiler made of the kernel."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.clients.base import Client, LoopCallbacks, OpCallbacks
from tritontrace.clients.profiling.hints import hints
from tritontrace.clients.profiling.loops import LoopCounter
from tritontrace.clients.profiling.machine import CompileFacts, facts_of
from tritontrace.clients.profiling.profile import AccessProfile, Contention, Profile
from tritontrace.clients.profiling.sites import SiteCounter
from tritontrace.clients.profiling.touched import Places, union_bytes
from tritontrace.clients.profiling.work import classify, roofline
from tritontrace.distinct import distinct
from tritontrace.engines.base import OPERATIONS

if TYPE_CHECKING:
    from tritontrace.launch import Launch

__all__ = ["Profiler"]


class Profiler(Client):
    """Counts what every program of a launch loads, stores and computes: ``launch.records["profiler"]`` is one `Profile`.

    Counting is exact, over all programs and iterations. `programs`, an iterable of (x, y, z) (missing entries count as 0),
    restricts what is counted to these; all programs run. `target` names the device for the roofline (``"cuda:90"``); by
    default it is the launch's target.

    With ``compile=True`` (the default) the kernel is really compiled for the launch's target, without a device where there is
    none, and the profile has registers, spills, shared memory, the occupancy limit, the width of every memory instruction by
    source line, and the use of tensor cores. A kernel that does not compile raises Triton's error then.
    """

    name = "profiler"
    instruments = frozenset({OPERATIONS})

    def __init__(
        self, *, programs: Iterable[tuple[int, ...]] | None = None, target: str | None = None, compile: bool = True
    ) -> None:
        self.programs = None if programs is None else tuple(_full_id(program) for program in programs)
        self.target = target
        self.compile = compile
        self._launch: Launch | None = None
        self._begin()

    def _begin(self) -> None:
        self._sites: dict[tuple[int, str | None], SiteCounter] = {}
        self._loops: dict[int, LoopCounter] = {}
        self._work: dict[int, tuple[Mapping[tuple[str, str], int], list[int]]] = {}
        self._compiled: list[CompileFacts] = []
        self._rows: tuple[Any, Any] | None = None
        self._wanted: Any = None
        self._places = Places()

    def for_launch(self, launch: Launch) -> Profiler:
        """A fresh profiler with the same settings: launches may run at once."""
        fresh = copy.copy(self)  # not a call of the class: a subclass may be made differently
        fresh._launch = launch
        fresh._begin()
        return fresh

    def pre_warmup_callback(self, jit_fn: Any, launch: Launch) -> bool:
        """Votes for a real compile unless told not to."""
        self._launch = launch
        return self.compile

    def post_warmup_callback(self, jit_fn: Any, compiled: Any) -> None:
        """Reads the compiled kernel."""
        self._compiled.append(facts_of(compiled, self._launch.target if self._launch is not None else ""))

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens after every access, when the memory it is in is known, and to what is computed."""
        if op in (events.Load, events.Store, events.Atomic):
            return OpCallbacks(after=self._access)
        if op is events.Work:
            return OpCallbacks(before=self._compute)
        return None

    def register_for_loop_callback(self) -> LoopCallbacks | None:
        """Listens when a loop begins and at every iteration."""
        return LoopCallbacks(before=self._enter, iteration=self._iterate)

    def pre_run_callback(self, launch: Launch) -> None:
        """Takes note of the launch and its grid."""
        self._launch = launch
        if self.programs is not None:
            x, y, _ = launch.grid
            inside = [p for p in self.programs if all(0 <= i < n for i, n in zip(p, launch.grid, strict=True))]
            self._wanted = distinct(np.array([a + x * (b + y * c) for a, b, c in inside], np.int64))

    # -- events --------------------------------------------------------------------------------------------------------

    def _chosen(self, event: events.Event) -> Any:
        """The rows of the event's batch that are counted: None for all."""
        if self._wanted is None or self._launch is None:
            return None
        # One batch runs many operations.
        if self._rows is not None and self._rows[0] is event.batch:
            return self._rows[1]
        x, y, _ = self._launch.grid
        ids = event.batch.program_ids().astype(np.int64)
        rows = np.flatnonzero(np.isin(ids[:, 0] + x * (ids[:, 1] + y * ids[:, 2]), self._wanted))
        chosen = None if len(rows) == len(ids) else rows
        self._rows = event.batch, chosen
        return chosen

    def _access(self, event: events.MemoryEvent) -> None:
        rows = self._chosen(event)
        if rows is not None and not len(rows):
            return
        key = (event.site.id, event.tensor)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = SiteCounter(event, self._places)
        self._places.look(self._launch.memory if self._launch is not None else None)
        site.add(event, rows)

    def _compute(self, event: events.Work) -> None:
        rows = self._chosen(event)
        found = self._work.get(event.site.id)
        if found is None:
            found = self._work[event.site.id] = event.operations, [0]
        found[1][0] += len(event.batch) if rows is None else len(rows)

    def _loop(self, event: events.Loop) -> LoopCounter:
        found = self._loops.get(event.site.id)
        if found is None:
            found = self._loops[event.site.id] = LoopCounter(event)
        return found

    def _enter(self, event: events.Loop) -> None:
        rows = self._chosen(event)
        self._loop(event).enter(len(event.batch) if rows is None else len(rows))

    def _iterate(self, event: events.Loop) -> None:
        rows = self._chosen(event)
        self._loop(event).iterate(event.iteration, len(event.batch), rows)

    # -- the end -------------------------------------------------------------------------------------------------------

    def finalize(self) -> list[Profile]:
        """The launch's profile; none if nothing of it ran."""
        launch = self._launch
        ran = bool(self._sites or self._work or self._loops)
        if launch is None or not (ran or launch.completed):
            self._begin()
            return []
        for site in self._sites.values():
            site.flush()
        compiled = _chosen_config(self._compiled, launch.config)
        flops, dots = self._flops()
        accesses = tuple(_access_profile(site, compiled, launch) for site in self._sites.values())
        read = union_bytes(site.touched for site in self._sites.values() if site.kind != "store")
        written = union_bytes(site.touched for site in self._sites.values() if site.kind != "load")
        target = self.target or launch.target
        profile = Profile(
            kernel=launch.kernel_name,
            target=target,
            programs=launch.n_programs if self._wanted is None else len(self._wanted),
            accesses=accesses,
            loops=tuple(loop.profile() for loop in self._loops.values()),
            flops=flops,
            dot_flops=dots,
            bytes_read=read,
            bytes_written=written,
            roofline=roofline(target, flops, dots, read + written),
            compiled=compiled,
            hints=hints(accesses, compiled, flops, launch.arguments),
        )
        self._begin()
        return [profile]

    def _flops(self) -> tuple[dict[str, int], dict[str, int]]:
        """(flops by unit, tensor-core flops by operand type)."""
        flops: Counter[str] = Counter()
        dots: Counter[str] = Counter()
        for operations, (executions,) in self._work.values():
            for (operation, element), count in operations.items():
                found = classify(operation, element)
                if found is None or not executions:
                    continue
                unit, each = found
                flops[unit] += count * each * executions
                if unit == "tensor_core":
                    dots[element] += count * each * executions
        return dict(flops), dict(dots)


def _full_id(program: tuple[int, ...]) -> tuple[int, int, int]:
    if not 1 <= len(program) <= 3:
        raise ValueError(f"a program is named by one to three indices, not {program!r}")
    x, y, z = (*(int(i) for i in program), 0, 0)[:3]
    return x, y, z


def _chosen_config(compiled: list[CompileFacts], config: Mapping[str, Any] | None) -> CompileFacts | None:
    """The facts of the config that ran (an autotuned kernel is compiled once for each)."""
    if not compiled:
        return None

    def fits(facts: CompileFacts) -> bool:
        known = {**facts.constants, "num_warps": facts.num_warps, "num_stages": facts.num_stages}
        return all(known.get(name, value) == value for name, value in (config or {}).items())

    return next(filter(fits, compiled), compiled[0])


def _access_profile(site: SiteCounter, compiled: CompileFacts | None, launch: Launch) -> AccessProfile:
    location = site.site.location
    widths: dict[int | None, int] = {}
    if compiled is not None and location is not None:
        widths = compiled.widths(site.kind, location.file, location.line, location.column)
    return AccessProfile(
        kind=site.kind,
        operation=site.operation,
        tensor=site.tensor,
        location=location,
        call_stack=site.site.call_stack,
        dtype=site.site.dtype,
        element_bytes=site.element_bytes,
        block=site.site.block,
        executions=site.executions,
        lanes=site.lanes,
        active_lanes=site.active,
        sectors=site.sectors,
        sectors_minimum=site.sectors_needed,
        bytes_distinct=sum(touched.bytes() for touched in site.touched.values()),
        contiguity=site.distinct / site.element_bytes / site.pieces if site.pieces else 0.0,
        contention=_contention(site, launch) if site.kind == "atomic" else None,
        widths=widths,
    )


def _contention(site: SiteCounter, launch: Launch) -> Contention:
    elements = most = 0
    hottest: int | None = None
    info = launch.arguments.get(site.tensor) if site.tensor is not None else None
    for base, counts in site.contention.items():
        elements += int(np.count_nonzero(counts))
        top = int(counts.argmax())
        if counts[top] > most:
            most = int(counts[top])
            address = base + top * site.element_bytes
            hottest = None if info is None or not info.is_tensor else (address - info.data_ptr) // site.element_bytes
    return Contention(elements, hottest, most, site.active - site.distinct // site.element_bytes)
