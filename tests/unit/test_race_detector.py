"""The race detector's findings as data and as words, its options, and what it keeps in memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit.made_events import HERE, Addresses, Programs, launch_of
from tritontrace import events
from tritontrace.clients.race_detector import RaceDetector
from tritontrace.clients.races.ordering import _Replay
from tritontrace.engines.ir.values import Axis, Separable


@triton.jit
def meet_kernel(out, value, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = (tl.program_id(0) + 3 * tl.program_id(1)) * STEP + tl.arange(0, BLOCK)
    tl.store(out + at, tl.program_id(0) * value)


@triton.jit
def read_kernel(x, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(out + pid, tl.sum(tl.load(x + tl.arange(0, BLOCK))))
    tl.store(x + BLOCK + pid, 0.0)


def meet(client: Any = "race_detector", value: int = 1, step: int = 6, grid: tuple[int, ...] = (3, 2)) -> tritontrace.Session:
    with tritontrace.session(clients=[client]) as session:
        meet_kernel[grid](torch.zeros(64, dtype=torch.int32), value, STEP=step, BLOCK=8)
    return session


def test_a_finding_is_data() -> None:
    session = meet()
    (finding,) = session.findings
    assert (finding.kind, finding.client, finding.access, finding.tensor) == ("race", "race_detector", "store", "out")
    assert finding.programs.dtype == np.int32 and finding.elements.dtype == np.int64
    # Neighbours in (x, y) share two elements each: 6 and 7, 12 and 13, ...
    assert finding.programs.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0]]
    assert finding.elements.tolist() == [6, 7, 12, 13, 18, 19, 24, 25, 30, 31]
    assert finding.elements_by_program[0, 1, 0].tolist() == [18, 19, 24, 25]
    assert finding.launch is session.launches[0] and not finding.benign
    assert finding.other is not None
    assert finding.other["location"] == finding.location and finding.other["access"] == "store"
    order = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0)]
    pairs = [tuple(map(tuple, pair)) for pair in finding.other["pairs"].tolist()]
    assert {mine for mine, _ in pairs} == set(order)
    assert all(abs(order.index(mine) - order.index(other)) == 1 for mine, other in pairs)
    record = json.loads(json.dumps(finding.to_dict()))
    assert record["other"]["location"]["line"] == finding.location.line if finding.location else False
    assert record["other"]["programs"] == record["programs"] and len(record["other"]["all"]) == 1
    assert record["other"]["pairs"][0][0] in record["programs"]
    assert record["details"]["complete"] is True


def test_what_a_finding_says() -> None:
    (finding,) = meet().findings
    assert finding.message.startswith("race on out[6] and 9 more elements in meet_kernel at ")
    assert "store by program (0, 0, 0), and the same store by program (1, 0, 0)" in finding.message
    assert "no release and acquire by atomics orders the two programs" in finding.message
    assert "atomic_add" in finding.details["remedy"] and "acquire" in finding.details["remedy"]
    report = meet().report()
    for part in ("race store of out", "against", "why", "remedy", "6 programs of 6"):
        assert part in report


def test_equal_values_are_benign_and_may_be_left_out() -> None:
    (finding,) = meet(value=0).findings
    assert finding.benign and finding.message.startswith("benign race on out[6]")
    assert meet(RaceDetector(benign=False), value=0).findings == []
    assert len(meet(RaceDetector(benign=False), value=1).findings) == 1


def test_one_program_races_with_nobody() -> None:
    assert meet(grid=(1,)).findings == []
    assert meet(step=8).findings == []


def test_launches_are_ordered() -> None:
    x = torch.zeros(64, dtype=torch.int32)
    with tritontrace.session(clients=["race_detector"]) as session:
        for _ in range(2):
            meet_kernel[(3,)](x, 1, STEP=8, BLOCK=8)
    assert session.findings == [] and len(session.launches) == 2


def test_each_session_gets_its_own_finding() -> None:
    with tritontrace.session(clients=["race_detector"]) as outer, tritontrace.session(clients=["race_detector"]) as inner:
        meet_kernel[(2,)](torch.zeros(64, dtype=torch.int32), 1, STEP=6, BLOCK=8)
    (a,), (b,) = outer.findings, inner.findings
    assert a is not b and a.launch is outer.launches[0] and b.launch is inner.launches[0]


def test_a_dry_run_on_tensors_without_memory() -> None:
    with tritontrace.session(clients=[RaceDetector(dry_run=True)]) as session:
        meet_kernel[(3,)](torch.empty(64, dtype=torch.int32, device="meta"), 0, STEP=6, BLOCK=8)
        meet_kernel[(3,)](torch.empty(64, dtype=torch.int32, device="meta"), 0, STEP=8, BLOCK=8)
    assert [launch.dry for launch in session.launches] == [True, True]
    (finding,) = session.findings
    assert finding.elements.tolist() == [6, 7, 12, 13] and not finding.benign  # nothing is known of values
    with tritontrace.session(clients=[RaceDetector(dry_run=True)]) as session:
        x = torch.zeros(64, dtype=torch.int32)
        meet_kernel[(3,)](x, 1, STEP=6, BLOCK=8)
    assert len(session.findings) == 1 and not x.any()


def test_memory_that_is_only_read_is_not_watched() -> None:
    class Peek(RaceDetector):
        records = -1

        def finalize(self) -> list[Any]:
            assert self._watch is not None
            self._watch.flush()
            Peek.records = sum(len(region.records) for region in self._watch.places.regions.values())
            return super().finalize()

    with tritontrace.session(clients=[Peek()]) as session:
        meet_kernel[(3,)](torch.zeros(64, dtype=torch.int32), 1, STEP=8, BLOCK=8)
        assert Peek.records == 1
        # Two arguments of one storage: the loads of the one may meet the stores of the other.
        both = torch.zeros(64)
        read_kernel[(4,)](both, torch.zeros(4), BLOCK=32)
    assert session.findings == [] and Peek.records == 3


def test_batches_and_iterations_are_put_together() -> None:
    """A launch of a billion accesses, told event by event: a handful of records."""
    rows, tile, turns = 512, 1024, 64
    launch = launch_of(grid=rows * 32, x=torch.empty(1 << 20))
    client = RaceDetector().for_launch(launch)
    client.pre_run_callback(launch)
    load = client.register_op_callback(events.Load)
    assert load is not None and load.before is not None
    site = events.Site(1, "tt.load", HERE, block=(tile,), parameter="x")
    base = launch.argument("x").data_ptr
    lanes = Axis(np.arange(tile, dtype=np.int64) * 4)
    for batch in range(32):
        for turn in range(turns):
            address = Separable(base + 4096 * turn, np.zeros(rows, np.int64), (lanes,), 64)
            load.before(events.Load(launch, site, Programs(batch * rows, rows), address, None, "x"))
    assert client._watch is not None
    client._watch.flush()
    (region,) = client._watch.places.regions.values()
    assert len(region.records) <= 32 and region.bytes < 100_000
    assert sum(record.elements() for record in region.records) == rows * 32 * turns * tile
    assert client.finalize() == []


def test_single_lanes_are_said_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data-dependent accesses, again and again to a small tensor: what is kept is bounded by the tensor."""
    monkeypatch.setattr("tritontrace.clients.races.log._BUDGET", 1 << 20)
    launch = launch_of(grid=8, x=torch.empty(1 << 10))
    client = RaceDetector().for_launch(launch)
    client.pre_run_callback(launch)
    load, store = (client.register_op_callback(kind) for kind in (events.Load, events.Store))
    assert load is not None and load.before is not None and store is not None and store.before is not None
    site = events.Site(1, "tt.load", HERE, block=(64, 64), parameter="x")
    base = launch.argument("x").data_ptr
    random = np.random.default_rng(0)
    most = 0
    for _ in range(100):
        at = base + 4 * random.integers(0, 1000, (8, 64, 64))
        load.before(events.Load(launch, site, Programs(0, 8), Addresses(at), None, "x"))
        assert client._watch is not None
        client._watch.flush()
        (region,) = client._watch.places.regions.values()
        most = max(most, region.bytes)
    assert most < 4 << 20
    one = events.Site(2, "tt.store", HERE, block=(), parameter="x")
    store.before(events.Store(launch, one, Programs(3, 1), Addresses([base + 4 * 1001]), None, "x", np.zeros(1)))
    store.before(events.Store(launch, one, Programs(3, 1), Addresses([base + 4 * 17]), None, "x", np.zeros(1)))
    (finding,) = client.finalize()
    assert finding.elements.tolist() == [17] and finding.programs[:, 0].tolist() == [3]
    assert finding.other is not None and finding.other["programs"][:, 0].tolist() == [0, 1, 2, 4, 5, 6, 7]


def test_more_pairs_than_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAIRS", "_MOST_PAIRS"):
        monkeypatch.setattr(f"tritontrace.clients.races.meetings.{name}", 3)
    with tritontrace.session(clients=["race_detector"]) as session:
        crowd_kernel[(9,)](*(torch.zeros(1, dtype=torch.int32) for _ in range(2)))
    (finding,) = session.findings
    assert finding.details["complete"] is False and len(finding.programs) > 1


@triton.jit
def crowd_kernel(x, flag):
    pid = tl.program_id(0)
    if tl.atomic_add(flag, 0) == 0:
        tl.store(x, pid)


def test_far_too_many_elements_by_program_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritontrace.clients.races.explain._MOST_BY_PROGRAM", 10)
    (finding,) = meet().findings
    assert finding.elements_by_program == {} and len(finding.elements) == 10 and len(finding.programs) == 6


@triton.jit
def turns_kernel(lock, seen, x, BLOCK: tl.constexpr, RELEASE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.store(seen, tl.load(seen) + 1)
    tl.store(x + at, tl.load(x + at) + 1.0)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=RELEASE)


def test_a_lock_that_goes_from_hand_to_hand_needs_no_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Replay, "_play", None)

    def run(release: str) -> list[Any]:
        lock, seen, x = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(64)
        with tritontrace.session(clients=["race_detector"]) as session:
            turns_kernel[(40,)](lock, seen, x, BLOCK=64, RELEASE=release)
        assert x.eq(40).all() and seen.item() == 40
        return session.findings

    assert run("release") == []
    assert {finding.tensor for finding in run("relaxed")} == {"seen", "x"}  # nobody releases


@triton.jit
def every_element_kernel(x, TILES, STEP: tl.constexpr, TILE: tl.constexpr):
    lane = tl.arange(0, TILE).to(tl.int64)
    for tile in range(TILES):
        at = x + (tl.program_id(0).to(tl.int64) * STEP + tile) * TILE + lane
        tl.store(at, tl.load(at) + 1)


@triton.jit
def tiles_kernel(x, COLUMNS, TILE: tl.constexpr):
    lane = tl.arange(0, TILE).to(tl.int64)
    at = (tl.program_id(0) * TILE + lane[:, None]) * COLUMNS + tl.program_id(1) * TILE + lane[None, :]
    tl.store(x + at, tl.load(x + at) + 1)


def peak(run: Any) -> int:
    """The most bytes that numpy and Python held at once, above what there was."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_dry_run_over_fifty_gigabytes_keeps_no_notes_on_them() -> None:
    n, tile = 12_500_000_000, 1 << 18
    x = torch.empty(n, device="meta")
    found: list[Any] = []

    def run(step: int) -> None:
        with tritontrace.session(clients=[RaceDetector(dry_run=True)]) as session:
            every_element_kernel[(n // tile // 100,)](x, 10, STEP=step, TILE=tile)
        found[:] = session.findings

    run(100)  # what is built once is no part of it
    assert peak(lambda: run(100)) < 50 << 20 and found == []
    assert peak(lambda: run(9)) < 400 << 20  # each program shares a tile with the next one
    (loads_and_stores,) = found
    details = loads_and_stores.details
    programs = n // tile // 100
    assert len(loads_and_stores.programs) == programs
    assert details["elements_in_all"] == (programs - 1) * tile and details["all_elements_listed"] is False
    assert len(loads_and_stores.elements) == 1 << 22 and loads_and_stores.elements[0] == 9 * tile
    assert f"x[{9 * tile}] and {(programs - 1) * tile - 1} more elements" in loads_and_stores.message


def test_a_dry_run_over_tiles_of_a_large_matrix() -> None:
    x = torch.empty((1 << 15) * (1 << 15), device="meta")

    def run(columns: int) -> list[Any]:
        with tritontrace.session(clients=[RaceDetector(dry_run=True)]) as session:
            tiles_kernel[(128, 128)](x, columns, TILE=256)
        return session.findings

    found: list[Any] = []
    assert run(1 << 15) == []
    assert peak(lambda: found.extend(run((1 << 15) - 1))) < 600 << 20
    (finding,) = found
    # The last of each row's elements is the first of the next one's: of programs at the two ends of a row of tiles.
    assert {int(y) for y in finding.programs[:, 1]} == {0, 127}
    assert finding.elements[0] == (1 << 15) - 1 and finding.details.get("elements_in_all", len(finding.elements)) == (1 << 15) - 1


@triton.jit
def counted_kernel(x, count, TILE: tl.constexpr):
    arrived = tl.atomic_add(count, 1)
    tl.store(x + tl.arange(0, TILE), arrived)


def test_many_programs_that_all_meet_are_told_without_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Replay, "_play", None)
    with tritontrace.session(clients=["race_detector"]) as session:
        counted_kernel[(3000,)](torch.zeros(8, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), TILE=8)
    (finding,) = session.findings
    assert len(finding.programs) == 3000 and finding.details["complete"] is False  # 36 million pairs of accesses
    assert finding.elements.tolist() == list(range(8))


@triton.jit
def tally_kernel(bins, counts, weights, TILE: tl.constexpr):
    bin_of = tl.load(bins + tl.program_id(0) * TILE + tl.arange(0, TILE))
    tl.store(counts + bin_of, tl.load(counts + bin_of) + 1)


@triton.jit
def smooth_kernel(x, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE) + 1
    tl.store(x + at, (tl.load(x + at - 1) + tl.load(x + at + 1)) * 0.5)


@triton.jit
def loose_turns_kernel(lock, total):
    while tl.atomic_cas(lock, 0, 1, sem="relaxed") == 1:
        pass
    tl.store(total, tl.load(total) + 1)
    tl.atomic_xchg(lock, 0, sem="relaxed")


def test_what_to_do_depends_on_what_the_programs_do() -> None:
    def remedy(launch: Any, *arguments: Any) -> str:
        with tritontrace.session(clients=["race_detector"]) as session:
            launch(*arguments)
        (finding,) = [f for f in session.findings if not f.details.get("same_program")]
        return str(finding.details["remedy"])

    zeros = torch.zeros(64, dtype=torch.int32)
    bins = torch.arange(16, dtype=torch.int32) % 8
    assert "tl.atomic_add" in remedy(lambda: tally_kernel[(2,)](bins, zeros, zeros, TILE=8))
    # Programs that read what their neighbours write: nothing to add to.
    smoothing = remedy(lambda: smooth_kernel[(4,)](torch.zeros(64), TILE=8))
    assert "atomic_add" not in smoothing and "release" in smoothing
    # There is a lock already, which orders too little: it, and not the counter, is at fault.
    assert "atomic_add" not in remedy(lambda: loose_turns_kernel[(3,)](*torch.zeros((2, 1), dtype=torch.int32)))
    both_store = remedy(lambda: meet_kernel[(3,)](zeros, 1, STEP=6, BLOCK=8))
    assert "elements of its own" in both_store
