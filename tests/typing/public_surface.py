"""How the public names are used, as a type checker sees it: `make types` reads it. It is never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import tritontrace
from tritontrace import Client, Finding, Launch, LoopCallbacks, OpCallbacks, Profiler, Sanitizer, Session, Tracer, events


def sessions(kernel: Any, grid: tuple[int, ...]) -> None:
    with tritontrace.session(clients=["sanitizer", Tracer, Sanitizer(dry_run=True)], on_finding="raise", keep=4) as session:
        assert_type(session, Session)
        kernel[grid]()
    assert_type(session.launches, list[Launch])
    assert_type(session.findings, list[Finding])
    assert_type(session.report(), str)
    with tritontrace.suspend():
        kernel[grid]()
    tritontrace.session(on_finding="sometimes")  # type: ignore[arg-type]
    tritontrace.session(scope="thread")  # type: ignore[arg-type]
    Sanitizer(bounds="tensor")  # type: ignore[arg-type]
    Profiler(programs=[(0,), (1, 2)], target="cuda:90", compile=False)
    Profiler(programs=3)  # type: ignore[arg-type]


@tritontrace.session(clients=["sanitizer"])
def decorated(size: int) -> float:
    return float(size)


assert_type(decorated(3), float)


def work(batch: list[int]) -> int:
    return len(batch)


carried: Callable[[list[int]], int] = tritontrace.propagate(work)


class Wide(Client):
    name = "wide"

    def for_launch(self, launch: Launch) -> Wide:
        return Wide()

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        return OpCallbacks(before=self.seen)

    def register_for_loop_callback(self) -> LoopCallbacks | None:
        return LoopCallbacks(iteration=self.turn)

    def turn(self, loop: events.Loop) -> None:
        assert_type(loop.location, "tritontrace.SourceLocation | None")

    def seen(self, event: events.MemoryEvent) -> None:
        assert_type(event.addresses(), npt.NDArray[np.int64])
        assert_type(event.active(), npt.NDArray[np.bool_])
        assert_type(event.count(), int)
        assert_type(event.programs, npt.NDArray[np.int32])
        assert_type(event.tensor, "str | None")

    def finalize(self) -> list[Finding]:
        return [Finding(kind="race", message="", client=self.name)]


def reading(finding: Finding) -> None:
    assert_type(finding.programs, npt.NDArray[np.int32])
    assert_type(finding.to_dict(), dict[str, Any])
    if finding.location is not None:
        assert_type(finding.location.line, int)
