"""The sanitizer on events made by hand: exactly the bad lanes, merged into one finding per site and tensor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit.made_events import HERE, access, launch_of
from tritontrace import events
from tritontrace.clients import faults
from tritontrace.clients.extents import Extent
from tritontrace.clients.sanitizer import Sanitizer, _terms
from tritontrace.engines.ir.values import Axis, Separable
from tritontrace.engines.live import LIVE_STORAGES
from tritontrace.findings import Finding
from tritontrace.launch import Launch


def check(launch: Launch, *made: Any, bounds: Any = "view") -> list[Finding]:
    """The findings of a fresh sanitizer after these events."""
    sanitizer = Sanitizer(bounds=bounds).for_launch(launch)
    sanitizer.pre_run_callback(launch)
    for event in made:
        callbacks = sanitizer.register_op_callback(type(event))
        assert callbacks is not None and callbacks.before is not None
        callbacks.before(event)
    return sanitizer.finalize()


def at(tensor: torch.Tensor, elements: Any) -> Any:
    return np.asarray(elements, np.int64) * tensor.element_size() + tensor.data_ptr()


def tile(count: int, block: int) -> Any:
    return np.arange(count * block).reshape(count, block)


def test_inside_is_clean_and_the_addresses_are_not_built() -> None:
    x = torch.zeros(64)
    launch = launch_of(x=x)
    event = access(events.Load, launch, at(x, tile(4, 16)))
    assert check(launch, event) == []
    assert event.address.built == 0


def test_the_first_bad_element_the_last_good_one() -> None:
    x = torch.zeros(60)
    launch = launch_of(x=x)
    (finding,) = check(launch, access(events.Store, launch, at(x, tile(4, 16))))
    assert (finding.kind, finding.access, finding.tensor, finding.client) == ("out_of_bounds", "store", "x", "sanitizer")
    assert finding.programs.tolist() == [[3, 0, 0]] and finding.programs.dtype == np.int32
    assert finding.elements.tolist() == [60, 61, 62, 63] and finding.elements.dtype == np.int64
    assert finding.elements_by_program[3, 0, 0].tolist() == [60, 61, 62, 63]
    assert finding.lanes is not None and finding.lanes.tolist() == [12, 13, 14, 15]
    assert finding.location == HERE and finding.launch is launch
    assert finding.details["bytes_after"] == 16 and finding.details["bytes_before"] == 0
    assert "elements 60 to 63" in finding.message and "'x'" in finding.message
    assert finding.to_dict()["elements"] == [60, 61, 62, 63]


@triton.jit
def fill_kernel(dst, value, TILE: tl.constexpr):
    tl.store(dst + tl.arange(0, TILE), value)


def test_the_message_about_gaps_counts_what_was_hit() -> None:
    wide = torch.zeros(16)
    with tritontrace.session("sanitizer") as session:
        fill_kernel[(1,)](wide[::2], 1.0, TILE=8)
    (finding,) = session.findings
    assert "4 elements from 1 to 7, in the gaps of a strided view, by program" in finding.message


def test_masked_off_lanes_are_never_reported() -> None:
    x = torch.zeros(10)
    launch = launch_of(x=x)
    wild = np.array([[0, 1 << 40, -(1 << 40), 9]])
    assert check(launch, access(events.Load, launch, at(x, wild), mask=[[True, False, False, True]])) == []
    (finding,) = check(launch, access(events.Load, launch, at(x, wild), mask=[[True, False, True, True]]))
    assert finding.elements.tolist() == [-(1 << 40)]
    assert finding.details["masked"] is True


def test_a_mask_that_all_programs_share_and_addresses_that_all_share() -> None:
    x = torch.zeros(10)
    launch = launch_of(x=x)
    event = access(events.Load, launch, at(x, tile(3, 4)), mask=[[True, True, True, False]])
    (finding,) = check(launch, event)
    assert (finding.programs.tolist(), finding.elements.tolist()) == ([[2, 0, 0]], [10])
    event = access(events.Load, launch, at(x, [[8, 9, 10]]), mask=[[True] * 3, [True, True, False], [True] * 3])
    event.batch = access(events.Load, launch, at(x, tile(3, 3))).batch
    (finding,) = check(launch, event)
    assert (finding.programs[:, 0].tolist(), finding.elements.tolist()) == ([0, 2], [10])


def test_negative_elements() -> None:
    x = torch.zeros(20)[8:]
    launch = launch_of(x=x)
    (finding,) = check(launch, access(events.Load, launch, at(x, [[-2, -1, 0, 1]])))
    assert finding.elements.tolist() == [-2, -1]
    assert finding.details["bytes_before"] == 8
    assert finding.details["inside_storage"] is True
    assert check(launch, access(events.Load, launch, at(x, [[-2, -1, 0, 1]])), bounds="storage") == []


def test_batches_iterations_and_programs_merge_into_one_finding() -> None:
    x = torch.zeros(8)
    launch = launch_of(x=x)
    made = [
        access(events.Load, launch, at(x, tile(2, 4) + 4 * i), first=2 * batch, iterations=(i,))
        for batch in (1, 0)
        for i in range(3)
    ]
    (finding,) = check(launch, *made)
    assert finding.programs[:, 0].tolist() == [0, 1, 2, 3]
    assert finding.elements.tolist() == list(range(8, 16))
    assert finding.iterations == ((1,), (2,))
    assert finding.elements_by_program[0, 0, 0].tolist() == [8, 9, 10, 11]
    assert finding.details["accesses"] == 2 * (4 + 8)


def test_iterations_that_differ_by_program() -> None:
    x = torch.zeros(4)
    launch = launch_of(x=x)
    event = access(events.Load, launch, at(x, [[4], [0], [5]]), iterations=(7, np.array([1, 2, 3])))
    (finding,) = check(launch, event)
    assert finding.iterations == ((7, 1), (7, 3))


def test_one_finding_for_each_site_and_each_tensor() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    launch = launch_of(x=x, y=y)
    found = check(
        launch,
        access(events.Load, launch, at(x, [[4]]), site=0),
        access(events.Store, launch, at(y, [[5]]), site=1, tensor="y"),
        access(events.Atomic, launch, at(x, [[6]]), site=2),
        access(events.Load, launch, at(y, [[7]]), site=0, tensor="y"),
    )
    assert [(f.access, f.tensor, f.elements.tolist()) for f in found] == [
        ("load", "x", [4]),
        ("store", "y", [5]),
        ("atomic", "x", [6]),
        ("load", "y", [7]),
    ]


def test_the_gaps_of_a_strided_view_are_outside() -> None:
    base = torch.zeros(5)
    bins = base[0::2]
    launch = launch_of(x=bins)
    (finding,) = check(launch, access(events.Load, launch, at(bins, [[0, 2, 4, 6]])))
    assert finding.elements.tolist() == [6] and finding.lanes is not None and finding.lanes.tolist() == [3]
    (finding,) = check(launch, access(events.Load, launch, at(bins, [[0, 1, 2, 3]])))
    assert finding.elements.tolist() == [1, 3]
    assert "gaps" in finding.message
    assert check(launch, access(events.Load, launch, at(bins, [[0, 1, 2, 3]])), bounds="storage") == []


def test_aliased_arguments_are_told_apart_by_provenance() -> None:
    base = torch.zeros(20)
    left, right = base[:10], base[10:]
    launch = launch_of(left=left, right=right)
    elements = at(base, [[8, 9, 10, 11]])
    (finding,) = check(launch, access(events.Store, launch, elements, tensor="left"))
    assert (finding.tensor, finding.elements.tolist()) == ("left", [10, 11])
    assert finding.details["neighbour"] == "right"
    (finding,) = check(launch, access(events.Store, launch, elements, tensor="right"))
    assert (finding.tensor, finding.elements.tolist()) == ("right", [-2, -1])


def test_an_access_that_sticks_out_by_a_byte() -> None:
    x = torch.zeros(8, dtype=torch.uint8)
    launch = launch_of(x=x)
    wide = x.data_ptr() + np.array([[0, 4, 5]])
    (finding,) = check(launch, access(events.Load, launch, wide, bits=32))
    assert finding.details["bytes_after"] == 1
    assert finding.lanes is not None and finding.lanes.tolist() == [2]


def test_an_empty_tensor_has_no_element() -> None:
    empty = torch.empty(0)
    launch = launch_of(x=empty)
    (finding,) = check(launch, access(events.Load, launch, np.array([[0, 4]])))
    assert finding.elements.tolist() == [0, 1]


def test_a_claimed_shape_does_not_reach_beyond_the_storage() -> None:
    x = torch.zeros(4, 4)
    launch = launch_of(x=x)
    launch.arguments["x"] = dataclasses.replace(launch.arguments["x"], shape=(6, 2), stride=(4, 1))
    (finding,) = check(launch, access(events.Load, launch, at(x, [[0, 1, 2, 12, 13, 16, 20]])))
    assert finding.elements.tolist() == [2, 16, 20]
    launch.arguments["x"] = dataclasses.replace(launch.arguments["x"], shape=(5, 4), stride=(4, 1))
    (finding,) = check(launch, access(events.Load, launch, at(x, [[15, 16]])))
    assert finding.elements.tolist() == [16]


def test_a_scalar_access() -> None:
    x = torch.zeros(2)
    launch = launch_of(x=x)
    (finding,) = check(launch, access(events.Store, launch, at(x, [0, 1, 2])))
    assert (finding.programs.tolist(), finding.elements.tolist()) == ([[2, 0, 0]], [2])


def test_pointers_from_nowhere_may_touch_any_known_memory() -> None:
    x, y, live = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    launch = launch_of(x=x, y=y)
    reach = np.stack([at(x, [0, 1, 3]), at(live, [0, 1, 3])])
    assert check(launch, access(events.Load, launch, reach, tensor=None)) == []
    before = LIVE_STORAGES.scans
    (finding,) = check(launch, access(events.Load, launch, np.array([[16, 32, x.data_ptr()]]), tensor=None))
    assert LIVE_STORAGES.scans - before <= 1
    assert finding.tensor is None and finding.details["accesses"] == 2
    assert "session.register_memory" in finding.message
    assert len(live) == 4


def test_a_guessed_tensor_is_not_held_against_the_access() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    launch = launch_of(x=x, y=y)
    both = np.concatenate([at(x, [0, 1]), at(y, [2, 3])])[None]
    assert check(launch, access(events.Load, launch, both, guess=True)) == []
    # one tensor is meant when all good lanes lie in it
    (finding,) = check(launch, access(events.Load, launch, at(x, [[0, 1, 1 << 40]]), guess=True))
    assert (finding.tensor, finding.elements.tolist()) == ("x", [1 << 40])
    wild = np.concatenate([at(x, [0, 1 << 40]), at(y, [2])])[None]
    (finding,) = check(launch, access(events.Load, launch, wild, guess=True))
    assert finding.tensor is None


def test_each_launch_has_its_own_sanitizer() -> None:
    x = torch.zeros(4)
    opened = Sanitizer(bounds="storage")
    one, two = opened.for_launch(launch_of(x=x)), opened.for_launch(launch_of(x=x))
    assert one is not two and one is not opened and one.bounds == "storage"
    assert opened.handles_out_of_bounds and opened.finalize() == []


def test_unknown_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="'view' or 'storage'"):
        Sanitizer(bounds="tensor")  # type: ignore[arg-type]


VIEWS = {
    "matrix": torch.zeros(4, 5),
    "transposed": torch.zeros(4, 5).t(),
    "column": torch.zeros(4, 5)[:, 1],
    "columns": torch.zeros(4, 7)[:, 2:5],
    "every other row": torch.zeros(9, 3)[::2],
    "every third of every other": torch.zeros(9, 10)[::2, ::3],
    "permuted part": torch.zeros(3, 4, 6)[:, 1:3, ::2].permute(2, 0, 1),
    "expanded": torch.zeros(3, 1).expand(3, 4),
    "expanded scalar": torch.zeros(1).expand(6),
    "windows": torch.zeros(12).unfold(0, 4, 2),
    "windows with gaps": torch.zeros(20).as_strided((3, 2), (7, 3)),
    "interleaved": torch.zeros(40).as_strided((3, 4), (5, 7)),
    "interleaved deeply": torch.zeros(200).as_strided((3, 2, 4), (11, 6, 17)),
    "one element": torch.zeros(9)[4:5],
    "no dimension": torch.tensor(1.0),
    "single row of many": torch.zeros(1, 5).as_strided((1, 5), (1000, 1)),
    "empty": torch.zeros(3, 0, 4),
}


@pytest.mark.parametrize("name", VIEWS)
def test_extents_agree_with_enumeration(name: str) -> None:
    view = VIEWS[name]
    offsets = {0}
    for size, step in zip(view.shape, view.stride(), strict=True):
        offsets = {o + i * step for o in offsets for i in range(size)}
    size = view.element_size()
    base = 4096
    touched = {base + o * size + byte for o in offsets for byte in range(size)}
    extent = Extent(base, tuple(view.shape), tuple(view.stride()), size)
    addresses = np.arange(base - 12, base + 220 * size)
    for width in (1, 2, 4, 8, 16):
        expected = [not all(int(a) + byte in touched for byte in range(width)) for a in addresses]
        assert extent.outside(addresses, width).tolist() == expected, f"{name}, {width} bytes"
    if touched:
        assert (extent.first, extent.last) == (base, max(touched) + 1)
        assert extent.dense == (len(touched) == extent.last - extent.first)


def test_sums_of_terms_are_judged_like_their_addresses() -> None:
    random = np.random.default_rng(0)
    judged = 0
    for _ in range(400):
        shape = tuple(int(n) for n in random.integers(1, 5, 3))
        inner, middle = int(random.integers(1, 4)), int(random.integers(1, 9))
        base = torch.zeros(shape[0] * shape[1] * 60 * 4)
        view = base.as_strided(shape, (shape[1] * middle * 4 + int(random.integers(0, 9)), middle * 4, inner), 8)
        launch = launch_of(x=view)
        sizes = tuple(int(n) for n in random.integers(1, 5, 2))
        step = view.stride()
        axes = tuple(
            Axis(np.arange(n, dtype=np.int64) * 4 * int(random.choice([step[1], step[2], inner, 1])), False) for n in sizes
        )
        program = 4 * random.integers(0, 3, 3) * int(random.choice([step[0], step[1], 1]))
        address = Separable(view.data_ptr(), program.astype(np.int64), axes, 64)
        bits = int(random.choice([32, 32, 16, 64]))
        mask = random.random((3, *sizes)) < 0.7 if random.random() < 0.5 else None
        event = access(events.Load, launch, np.broadcast_to(address.dense(), (3, *sizes)), bits=bits, mask=mask)
        exact = check(launch, event)
        event.address = address
        extent = Extent.of_view(launch.arguments["x"])
        low, high = address.minmax()
        if low.min() >= extent.first and high.max() + bits // 8 <= extent.last and not extent.dense:
            gaps = extent.gaps(_terms(address) or [], bits // 8)
            judged += gaps is not None
        separable = check(launch, event)
        assert [f.to_dict() for f in separable] == [f.to_dict() for f in exact]
    assert judged > 20


@triton.jit
def tiles_kernel(x_ptr, y_ptr, n, stride, STEPS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    for step in range(STEPS):
        at = rows[:, None] * stride + step * COLS + tl.arange(0, COLS)[None, :]
        tl.store(y_ptr + rows[:, None] * stride + cols[None, :], tl.load(x_ptr + at), mask=cols[None, :] < n)


def _faulty_tiles() -> Finding:
    # 96 elements, of which rows of 32 are read in steps of 16: programs (1, *) leave it in their last row, in both steps.
    with tritontrace.session(clients=["sanitizer"]) as session:
        tiles_kernel[(2, 3)](torch.zeros(96), torch.zeros(200), 32, 32, STEPS=2, ROWS=2, COLS=16)
    (finding,) = session.findings
    assert finding.tensor == "x_ptr" and finding.iterations == ((0,), (1,))
    assert [tuple(p) for p in finding.programs.tolist()] == [(1, 0, 0), (1, 1, 0), (1, 2, 0)]
    assert (finding.details["bytes_before"], finding.details["bytes_after"]) == (0, 4 * 32)
    return finding


def test_programs_that_do_the_same_are_all_named() -> None:
    finding = _faulty_tiles()
    assert finding.elements.tolist() == list(range(96, 128)) and finding.details["accesses"] == 3 * 32
    assert {p: e.tolist() for p, e in finding.elements_by_program.items()} == {(1, y, 0): list(range(96, 128)) for y in range(3)}
    assert "all_elements_listed" not in finding.details


def test_far_too_many_elements_by_program_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_MOST_PAIRS", 40)
    finding = _faulty_tiles()
    assert finding.elements_by_program == {} and finding.elements.tolist() == list(range(96, 128))
    assert "all_elements_listed" not in finding.details


def test_far_too_many_elements_are_not_all_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_MOST_PAIRS", 4)
    monkeypatch.setattr(faults, "_MOST_ELEMENTS", 8)
    monkeypatch.setattr(faults, "_COMPACT_ABOVE", 8)
    finding = _faulty_tiles()
    assert finding.elements_by_program == {} and finding.details["all_elements_listed"] is False
    assert finding.elements.tolist() == list(range(96, 112))


@triton.jit
def shrinking_kernel(x_ptr, n):
    rows = tl.arange(0, 8)[:, None]
    tl.store(x_ptr + rows * 4 + tl.arange(0, 4)[None, :], 1.0, mask=(tl.program_id(0) + rows < n) & (rows >= 0))


@pytest.mark.parametrize("dry_run", [False, True])
def test_programs_that_differ_by_their_masks_alone(dry_run: bool) -> None:
    with tritontrace.session(clients=[Sanitizer(dry_run=dry_run)]) as session:
        shrinking_kernel[(6,)](torch.zeros(10), 10)
    (finding,) = session.findings
    rows = {p: range(10, 4 * min(8, 10 - p)) for p in range(6)}
    assert {p[0]: e.tolist() for p, e in finding.elements_by_program.items()} == {p: list(e) for p, e in rows.items()}
