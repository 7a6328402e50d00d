"""What the profiler says of a launch, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritontrace.clients.profiling.machine import CompileFacts
    from tritontrace.clients.profiling.work import Roofline
    from tritontrace.source import SourceLocation

__all__ = ["PROFILE_SCHEMA_VERSION", "AccessProfile", "Contention", "LoopProfile", "Profile"]

PROFILE_SCHEMA_VERSION = 1
"""Version of the dictionaries that `Profile.to_dict` returns; raised when a key changes its meaning."""


@dataclass(frozen=True, slots=True)
class Contention:
    """How atomics of one site meet: `elements` that are hit, the `hottest` of them (index relative to the argument's data
    pointer, or None) and how often it is hit, and `conflicts`, lanes that hit what another lane of the same program's
    operation hits.
    """

    elements: int
    hottest: int | None
    most: int
    conflicts: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {name: getattr(self, name) for name in ("elements", "hottest", "most", "conflicts")}


@dataclass(frozen=True, slots=True)
class AccessProfile:
    """One access site (through one tensor) over all counted programs and iterations.

    `executions` is how often programs execute it, `lanes` the lanes of their tiles, `active_lanes` those that the masks let
    through. `sectors` sums, over the executions, the distinct 32-byte sectors that one touches, `sectors_minimum` the fewest
    that could hold its distinct bytes. `bytes_distinct` counts each byte that the site touches in the whole launch once.
    `contiguity` is the mean number of elements in a contiguous piece of one execution's addresses. `widths` maps the bytes
    that one thread moves with one compiled instruction to the number of such instructions (None for bulk copies; empty
    without a compile).
    """

    kind: str
    operation: str | None
    tensor: str | None
    location: SourceLocation | None
    call_stack: tuple[SourceLocation, ...]
    dtype: str
    element_bytes: int
    block: tuple[int, ...]
    executions: int
    lanes: int
    active_lanes: int
    sectors: int
    sectors_minimum: int
    bytes_distinct: int
    contiguity: float
    contention: Contention | None = None
    widths: Mapping[int | None, int] = field(default_factory=dict)

    @property
    def masked_lanes(self) -> int:
        """Lanes that the masks switch off."""
        return self.lanes - self.active_lanes

    @property
    def bytes_requested(self) -> int:
        """Bytes of all lanes, masked or not."""
        return self.lanes * self.element_bytes

    @property
    def bytes_useful(self) -> int:
        """Bytes of the active lanes."""
        return self.active_lanes * self.element_bytes

    @property
    def sector_ratio(self) -> float:
        """Sectors touched over the minimum: 1 is perfect, 8 is the worst for 4-byte elements."""
        return self.sectors / self.sectors_minimum if self.sectors_minimum else 1.0

    @property
    def reuse(self) -> float:
        """How often each distinct byte is accessed, on average."""
        return self.bytes_useful / self.bytes_distinct if self.bytes_distinct else 0.0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "kind": self.kind,
            "operation": self.operation,
            "tensor": self.tensor,
            "location": self.location.to_dict() if self.location else None,
            "call_stack": [frame.to_dict() for frame in self.call_stack],
            "dtype": self.dtype,
            "block": list(self.block),
            "executions": self.executions,
            "lanes": self.lanes,
            "masked_lanes": self.masked_lanes,
            "bytes_requested": self.bytes_requested,
            "bytes_useful": self.bytes_useful,
            "bytes_distinct": self.bytes_distinct,
            "sectors": self.sectors,
            "sectors_minimum": self.sectors_minimum,
            "sector_ratio": self.sector_ratio,
            "reuse": self.reuse,
            "contiguity": self.contiguity,
            "contention": None if self.contention is None else self.contention.to_dict(),
            "widths": {"bulk" if width is None else str(width): count for width, count in self.widths.items()},
        }


@dataclass(frozen=True, slots=True)
class LoopProfile:
    """One loop: how often programs enter it, and how many iterations they run, in all, at least and at most."""

    location: SourceLocation | None
    kind: str
    entries: int
    iterations: int
    least: int
    most: int

    @property
    def mean(self) -> float:
        """Iterations of an entry, on average."""
        return self.iterations / self.entries if self.entries else 0.0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "location": self.location.to_dict() if self.location else None,
            **{name: getattr(self, name) for name in ("kind", "entries", "iterations", "least", "most", "mean")},
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """One launch: `launch.records["profiler"]` holds one of these.

    `programs` is how many programs were counted (all, unless the profiler was told which). `flops` are by unit
    (`tritontrace.clients.profiling.work.UNITS`), `dot_flops` those of dots by operand type. `bytes_read` and `bytes_written`
    count each byte that is read (written) at all once, whichever sites do it; atomics do both.
    """

    kernel: str
    target: str
    programs: int
    accesses: tuple[AccessProfile, ...]
    loops: tuple[LoopProfile, ...]
    flops: Mapping[str, int]
    dot_flops: Mapping[str, int]
    bytes_read: int
    bytes_written: int
    roofline: Roofline | None = None
    compiled: CompileFacts | None = None
    hints: tuple[str, ...] = ()

    @property
    def total_flops(self) -> int:
        """The flops of all units."""
        return sum(self.flops.values())

    @property
    def bytes_requested(self) -> int:
        """Bytes of all lanes of all accesses."""
        return sum(access.bytes_requested for access in self.accesses)

    @property
    def bytes_useful(self) -> int:
        """Bytes of the active lanes of all accesses."""
        return sum(access.bytes_useful for access in self.accesses)

    @property
    def intensity(self) -> float:
        """Flops per distinct byte that is read or written: the best that caches can do."""
        moved = self.bytes_read + self.bytes_written
        return self.total_flops / moved if moved else 0.0

    @property
    def uncached_intensity(self) -> float:
        """Flops per byte of the sectors that programs touch: as if nothing one program loads were cached for another."""
        moved = 32 * sum(access.sectors for access in self.accesses)
        return self.total_flops / moved if moved else 0.0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary with ``schema_version``."""
        return {
            "schema_version": PROFILE_SCHEMA_VERSION,
            "kernel": self.kernel,
            "target": self.target,
            "programs": self.programs,
            "accesses": [access.to_dict() for access in self.accesses],
            "loops": [loop.to_dict() for loop in self.loops],
            "flops": dict(self.flops),
            "dot_flops": dict(self.dot_flops),
            "total_flops": self.total_flops,
            "bytes_requested": self.bytes_requested,
            "bytes_useful": self.bytes_useful,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "intensity": self.intensity,
            "uncached_intensity": self.uncached_intensity,
            "roofline": None if self.roofline is None else self.roofline.to_dict(),
            "compiled": None if self.compiled is None else self.compiled.to_dict(),
            "hints": list(self.hints),
        }
