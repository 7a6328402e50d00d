"""Clients on one launch: each sees everything, none changes what the kernel computes, and a finding never ends the process."""

from __future__ import annotations

import warnings

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import events
from tritontrace.clients.tracer import Tracer, TraceRecord


@triton.jit
def double_kernel(src, dst, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(dst + at, tl.load(src + at, mask=at < count, other=0.0) * 2, mask=at < count + 1)


class Counter(tritontrace.Client):
    name = "counter"

    def __init__(self) -> None:
        self.lanes = 0

    def for_launch(self, launch: tritontrace.Launch) -> Counter:
        return Counter()

    def register_op_callback(self, op: type[events.Event]) -> tritontrace.OpCallbacks | None:
        return tritontrace.OpCallbacks(before=self._count) if op in (events.Load, events.Store) else None

    def _count(self, event: events.MemoryEvent) -> None:
        self.lanes += event.count()

    def finalize(self) -> list[int]:
        return [self.lanes]


def launch(room: int = 1000) -> torch.Tensor:
    src, dst = torch.arange(1000.0), torch.zeros(room)
    double_kernel[(8,)](src, dst, 1000, TILE=128)
    torch.testing.assert_close(dst[:1000], src * 2)
    return dst


def programs(records: list[TraceRecord]) -> int:
    return sum(record.n_programs for record in records)


@pytest.mark.parametrize(
    "order", [("tracer", "sanitizer", Counter), (Counter, "tracer", "sanitizer"), ("sanitizer", Counter, "tracer")]
)
def test_fault_41_every_client_sees_every_access(order: tuple[object, ...]) -> None:
    with tritontrace.session(clients=order) as session:
        launch(1001)
    (one,) = session.launches
    assert one.records["counter"] == [1000 + 1001]
    for op in ("load", "store"):
        assert programs([record for record in one.records["tracer"] if record.op == op]) == 8
    assert session.findings == [] and one.records["sanitizer"] == []


def test_fault_41_also_across_sessions() -> None:
    with tritontrace.session(clients=["tracer"]) as outer, tritontrace.session(clients=[Counter, "sanitizer"]) as inner:
        launch(1000)
    assert programs(outer.launches[0].records["tracer"]) == 16
    assert inner.launches[0].records["counter"] == [2001]
    (finding,) = inner.findings
    assert finding.elements.tolist() == [1000] and finding.launch is inner.launches[0]
    assert outer.findings == []


def test_a_selection_of_one_tracer_leaves_the_others_alone() -> None:
    few = Tracer(programs=[(7,)], values=True)
    few.name = "few"
    with tritontrace.session(clients=[few, "tracer", "sanitizer"]) as session:
        launch(1000)
    (one,) = session.launches
    assert programs(one.records["few"]) == 2 and programs(one.records["tracer"]) == 16
    load = next(record for record in one.records["few"] if record.op == "load")
    assert load.value is not None and load.mask is not None
    assert load.value[load.mask].tolist() == [float(i) for i in range(896, 1000)]
    assert len(session.findings) == 1


def test_fault_43_a_finding_is_data_a_warning_or_an_exception() -> None:
    with tritontrace.session(clients=["sanitizer"]) as session:
        launch(1000)
    (finding,) = session.findings
    assert (finding.kind, finding.tensor) == ("out_of_bounds", "dst")
    with (
        pytest.warns(RuntimeWarning, match="out-of-bounds store of 'dst'"),
        tritontrace.session(["sanitizer"], on_finding="warn"),
    ):
        launch(1000)
    with pytest.raises(tritontrace.FindingError, match="out-of-bounds store of 'dst'") as caught:
        with tritontrace.session(["sanitizer"], on_finding="raise") as session:
            launch(1000)
    assert [f.kind for f in caught.value.findings] == ["out_of_bounds"]
    assert session.launches[0].completed
    with warnings.catch_warnings(), tritontrace.session(["sanitizer"], on_finding="raise"):
        warnings.simplefilter("error")
        launch(1001)


def test_a_traced_kernel_run_again_gets_a_trace_of_its_own() -> None:
    with tritontrace.session(clients=["tracer"]) as session:
        for _ in range(3):
            launch(1001)
    assert [programs(one.records["tracer"]) for one in session.launches] == [16, 16, 16]


def test_sanitizer_bounds_by_storage() -> None:
    base = torch.zeros(1100)
    src = torch.arange(1000.0)
    for bounds, findings in (("view", 1), ("storage", 0)):
        with tritontrace.session(clients=[tritontrace.Sanitizer(bounds=bounds)]) as session:  # type: ignore[arg-type]
            double_kernel[(8,)](src, base[:1000], 1000, TILE=128)
        assert len(session.findings) == findings
