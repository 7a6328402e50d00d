"""A launch's profile as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tritontrace.clients.profiling.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritontrace.clients.profiling.machine import CompileFacts
    from tritontrace.clients.profiling.profile import AccessProfile
    from tritontrace.launch import Launch

__all__ = ["profiles"]

_MOST = 10
"""Launches that are shown before the rest is only counted."""


def profiles(launches: Sequence[Launch]) -> list[Any]:
    """What rich prints for the profiles of some launches; empty if there are none."""
    records = ((launch, record) for launch in launches for record in launch.records.get("profiler", ()))
    found = [(launch, record) for launch, record in records if isinstance(record, Profile)]
    parts: list[Any] = []
    for launch, profile in found[:_MOST]:
        parts += [Text(), _profile(launch, profile)]
    if len(found) > _MOST:
        parts += [Text(), Text(f"  and {len(found) - _MOST} more profiles: see launch.records['profiler']")]
    return parts


def _profile(launch: Launch, profile: Profile) -> Group:
    title = f"profile of {profile.kernel}[{', '.join(map(str, launch.grid))}], launch {launch.index}, for {profile.target}"
    parts: list[Any] = [Rule(Text(title, "bold"), align="left", characters="─")]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(launch, profile):
        facts.add_row(name, value)
    parts.append(Padding(facts, (0, 0, 0, 2)))
    if profile.accesses:
        parts.append(Padding(_accesses(profile.accesses), (1, 0, 0, 2)))
    if profile.hints:
        parts.append(Text("  hints", "dim"))
        parts += [Padding(Text(f"- {hint}"), (0, 0, 0, 4)) for hint in profile.hints]
    return Group(*parts)


def _facts(launch: Launch, profile: Profile) -> Iterator[tuple[str, str]]:
    if profile.programs != launch.n_programs:
        yield "counted", f"{profile.programs} of {launch.n_programs} programs"
    yield (
        "bytes",
        f"{_size(profile.bytes_requested)} requested, {_size(profile.bytes_useful)} useful; distinct: "
        f"{_size(profile.bytes_read)} read, {_size(profile.bytes_written)} written",
    )
    units = ", ".join(f"{_number(count)} {unit.replace('_', ' ')}" for unit, count in profile.flops.items())
    yield "flops", f"{_number(profile.total_flops)}: {units}" if units else "none"
    if units:
        yield "intensity", f"{profile.intensity:.3g} flops per distinct byte, {profile.uncached_intensity:.3g} without any cache"
    roof = profile.roofline
    if roof is not None:
        times = ", ".join(f"{name.replace('_', ' ')} {_time(value)}" for name, value in roof.seconds.items())
        ridge = f" (ridge at {roof.ridge:.3g})" if units else ""
        bound = f"bound by {roof.bound.replace('_', ' ')} on {roof.device}{ridge}"
        yield "roofline", f"{bound}; least times: {times}"
    for loop in profile.loops:
        where = f"line {loop.location.line}" if loop.location else "a loop"
        trips = str(loop.least) if loop.least == loop.most else f"{loop.least} to {loop.most} (mean {loop.mean:.3g})"
        yield "loop", f"{where}: {trips} iterations, entered {loop.entries} times"
    if profile.compiled is not None:
        yield from _machine(profile.compiled, profile.target)


def _machine(facts: CompileFacts, target: str) -> Iterator[tuple[str, str]]:
    elsewhere = "" if facts.target == target else f" (for {facts.target}, the session's target)"
    yield (
        "compiled",
        f"{facts.registers} registers, {facts.spills} spilled, {_size(facts.shared)} shared memory, {facts.num_warps} warps"
        + elsewhere,
    )
    limit = facts.occupancy
    if limit is not None:
        yield (
            "occupancy",
            f"{limit.warps} of {limit.max_warps} warps ({100 * limit.fraction:.0f}%), {limit.programs} programs at once, "
            f"limited by {limit.limited_by}",
        )
    if facts.tensor_core:
        yield "tensor cores", ", ".join(f"{count} x {name}" for name, count in facts.tensor_core.items())
    if facts.target.startswith("hip:"):
        total = sum(access.count for access in facts.accesses)
        yield "buffer ops", f"{facts.buffer_instructions} of {total} memory instructions"


def _accesses(accesses: tuple[AccessProfile, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("line", justify="right")
    table.add_column("access")
    for name in ("useful", "masked", "sectors", "reuse", "run", "a thread"):
        table.add_column(name, justify="right")
    for access in accesses:
        masked = 100 * access.masked_lanes / access.lanes if access.lanes else 0.0
        verb = access.kind if access.operation is None else f"atomic {access.operation}"
        table.add_row(
            str(access.location.line) if access.location else "",
            f"{verb} {access.tensor or '?'} {access.dtype}",
            _size(access.bytes_useful),
            f"{masked:.0f}%",
            f"{access.sector_ratio:.2f}x",
            f"{access.reuse:.3g}",
            f"{access.contiguity:.4g}",
            _widths(access),
        )
    return table


def _widths(access: AccessProfile) -> str:
    sizes = sorted(width for width in access.widths if width is not None)
    names = [*(f"{size}" for size in sizes), *(["tile"] if None in access.widths else [])]
    return "/".join(names) + (" B" if sizes else "")


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def _number(count: float) -> str:
    for unit in ("", "K", "M", "G", "T"):
        if count < 1000:
            return f"{count:.4g}{unit}"
        count /= 1000
    return f"{count:.4g}P"


def _time(seconds: float) -> str:
    for unit in ("s", "ms", "us"):
        if seconds >= 1:
            return f"{seconds:.3g} {unit}"
        seconds *= 1000
    return f"{seconds:.3g} ns"
