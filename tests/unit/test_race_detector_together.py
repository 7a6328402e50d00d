"""The race detector beside other clients and sessions, and in launches that end early."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import RaceDetector, Sanitizer, events
from tritontrace.clients.base import Client, OpCallbacks


@triton.jit
def shifted_kernel(x, y, n, STEP: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0) * STEP + tl.arange(0, TILE)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0) + tl.program_id(0), mask=at < n)


@triton.jit(debug=True)
def asserting_kernel(y, worst, STEP: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0) * STEP + tl.arange(0, TILE)
    tl.store(y + at, tl.program_id(0))
    tl.device_assert(tl.program_id(0) != worst, "the worst program")
    tl.store(y + at, tl.program_id(0))


@triton.jit
def extremes_kernel(x, high, low, TILE: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * TILE + tl.arange(0, TILE))
    tl.atomic_max(high, tl.max(values))
    tl.atomic_min(low + tl.arange(0, TILE) % 4, values)


class Raising(Client):
    """Raises at the first event that it is told of, before or after the operation, as long as it is `angry`."""

    name = "raising"

    def __init__(self, when: str, op: type[events.Event]) -> None:
        self.when = when
        self.op = op
        self.angry = True

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        return OpCallbacks(**{self.when: self._meet}) if op is self.op else None

    def _meet(self, event: events.Event) -> None:
        if self.angry:
            raise RuntimeError("no more of this")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_dry_run_with_a_dry_sanitizer(device: str) -> None:
    def run(n: int, step: int, times: int = 1) -> list[tuple[str, str, str | None, int]]:
        x, y = (torch.zeros(64, device=device) for _ in range(2))
        with tritontrace.session(clients=[RaceDetector(dry_run=True), Sanitizer(dry_run=True)]) as session:
            for _ in range(times):
                shifted_kernel[(9,)](x, y, n, STEP=step, TILE=8)
        assert all(launch.dry for launch in session.launches)
        assert device == "meta" or not y.any()
        return [(f.client, f.kind, f.access, len(f.elements)) for f in session.findings]

    assert run(64, 8) == []
    race = ("race_detector", "race", "store", 8)  # the last lane of each program but one is the next one's first
    assert run(64, 7) == [race] and run(64, 7, times=3) == [race] * 3
    outside = [("sanitizer", "out_of_bounds", access, 8) for access in ("load", "store")]
    assert run(72, 8) == outside
    assert run(72, 8, times=2) == outside * 2


@pytest.mark.parametrize("outer_is_dry", [True, False])
def test_sessions_in_each_other_of_which_one_would_be_dry(outer_is_dry: bool) -> None:
    x, y = torch.ones(64), torch.zeros(64)
    with tritontrace.session(clients=[RaceDetector(dry_run=outer_is_dry)]) as outer:
        with tritontrace.session(clients=[RaceDetector(dry_run=not outer_is_dry)]) as inner:
            shifted_kernel[(8,)](x, y, 64, STEP=7, TILE=8)
        shifted_kernel[(8,)](x, y, 64, STEP=7, TILE=8)
    assert y.any()
    (both,) = inner.launches
    assert not both.dry and [launch.dry for launch in outer.launches] == [False, outer_is_dry]
    (one,) = inner.findings
    first, second = outer.findings
    for finding in (one, first, second):
        assert finding.elements.tolist() == list(range(7, 56, 7)) and not finding.benign
    assert one.launch is both and first.launch is outer.launches[0] and second.launch is outer.launches[1]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("op", [events.Load, events.Store], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_a_launch_that_a_client_ends_leaves_nothing_behind(when: str, op: type[events.Event], first: bool) -> None:
    x, y, detector, raising = torch.ones(64), torch.zeros(64), RaceDetector(), Raising(when, op)
    clients: list[Any] = [raising, detector] if first else [detector, raising]
    with tritontrace.session(clients=clients) as session:
        with pytest.raises(RuntimeError, match="no more of this"):
            shifted_kernel[(8,)](x, y, 64, STEP=7, TILE=8)
        raising.angry = False
        seen = len(session.findings)
        shifted_kernel[(8,)](x, y, 64, STEP=8, TILE=8)
        assert len(session.findings) == seen  # what the first launch stored is no business of the second
        shifted_kernel[(8,)](x, y, 64, STEP=7, TILE=8)
    assert [finding.launch for finding in session.findings[seen:]] == [session.launches[2]]
    assert [launch.completed for launch in session.launches] == [False, True, True] and detector._watch is None


def test_a_launch_that_an_assertion_ends_tells_what_it_saw_and_leaves_nothing_behind() -> None:
    y = torch.zeros(64, dtype=torch.int32)
    with tritontrace.session(clients=["race_detector"]) as session:
        with pytest.raises(tritontrace.KernelError, match="the worst program"):
            asserting_kernel[(8,)](y, 5, STEP=7, TILE=8)
        (finding,) = session.findings
        assert finding.elements.tolist() == list(range(7, 56, 7)) and not finding.benign
        asserting_kernel[(8,)](y, 99, STEP=8, TILE=8)
    assert session.findings == [finding]


def test_extremes_of_floats_by_many_programs_are_clean() -> None:
    x = torch.randn(1024, generator=torch.Generator().manual_seed(0))
    high, low = torch.full((1,), -torch.inf), torch.full((4,), torch.inf)
    with tritontrace.session(clients=["race_detector"]) as session:
        extremes_kernel[(64,)](x, high, low, TILE=16)
    assert session.findings == []
    assert high.item() == x.max().item() and torch.equal(low, x.reshape(-1, 4).amin(0))
