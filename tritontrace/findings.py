"""What clients find, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tritontrace.launch import Launch
    from tritontrace.source import SourceLocation

__all__ = ["FINDING_SCHEMA_VERSION", "KINDS", "Finding"]

FINDING_SCHEMA_VERSION = 1
"""Version of the dictionaries that `Finding.to_dict` returns; raised when a key changes its meaning."""

KINDS = (
    "out_of_bounds",
    "race",
    "undefined_lane",
    "uninitialized",
    "non_finite",
    "integer_overflow",
    "deadlock",
    "assertion",
    "would_not_compile",
)
"""Every value that `Finding.kind` takes."""


@dataclass(slots=True, eq=False)
class Finding:
    """One fault: one per (kind, access site, tensor), with every program that commits it.

    `programs` is int32 ``[N, 3]`` without repetition, in launch order. `elements` is int64 ``[M]``, sorted, without
    repetition: indices relative to the argument's data pointer, in elements of the pointer's type.
    `elements_by_program` gives them program by program; it is empty where that would be more than four million. Of more than
    four million elements those that were met first (of a race: the lowest) are listed, and ``details["all_elements_listed"]`` is
    False; `programs` and the first and last address in `details` are of all. `iterations` lists, for accesses inside loops, the
    0-based iterations (outermost loop first) in which the fault happened.
    """

    kind: str
    message: str
    client: str
    access: str | None = None
    tensor: str | None = None
    location: SourceLocation | None = None
    call_stack: tuple[SourceLocation, ...] = ()
    programs: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 3), np.int32))
    elements: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    elements_by_program: dict[tuple[int, int, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    iterations: tuple[tuple[int, ...], ...] = ()
    launch: Launch | None = field(default=None, repr=False)
    benign: bool = False
    other: dict[str, Any] | None = None
    use: SourceLocation | None = None
    lanes: npt.NDArray[np.int64] | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary with ``schema_version``; the launch is named by kernel and index."""
        out: dict[str, Any] = {
            "schema_version": FINDING_SCHEMA_VERSION,
            "kind": self.kind,
            "message": self.message,
            "client": self.client,
            "access": self.access,
            "tensor": self.tensor,
            "location": self.location.to_dict() if self.location else None,
            "call_stack": [frame.to_dict() for frame in self.call_stack],
            "programs": [[int(i) for i in row] for row in self.programs],
            "elements": [int(i) for i in self.elements],
            "iterations": [list(entry) for entry in self.iterations],
            "benign": self.benign,
            "use": self.use.to_dict() if self.use else None,
            "lanes": None if self.lanes is None else [int(i) for i in self.lanes],
            "launch": None if self.launch is None else {"kernel": self.launch.kernel_name, "index": self.launch.index},
        }
        if self.other is not None:
            out["other"] = _side_to_dict(self.other)
        else:
            out["other"] = None
        out["details"] = {key: value for key, value in self.details.items() if isinstance(value, (int, float, str, bool))}
        return out


def _side_to_dict(side: dict[str, Any]) -> dict[str, Any]:
    """The second access of a race; more keys (`access`, `tensor`, `call_stack`, `pairs`, `all`) where the client gave them."""
    location = side.get("location")
    out: dict[str, Any] = {
        "location": location.to_dict() if location is not None else None,
        "programs": [[int(i) for i in row] for row in side.get("programs", ())],
    }
    for key in ("access", "tensor"):
        if key in side:
            out[key] = side[key]
    if "call_stack" in side:
        out["call_stack"] = [frame.to_dict() for frame in side["call_stack"]]
    if "pairs" in side:
        out["pairs"] = [[[int(i) for i in program] for program in pair] for pair in side["pairs"]]
    if "all" in side:
        out["all"] = [_side_to_dict(other) for other in side["all"]]
    return out
