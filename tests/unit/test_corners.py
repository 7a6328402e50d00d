"""Dry runs that look at the corners of the grid only: what that proves, and what it must leave to all programs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tritontrace import Sanitizer
from tritontrace.clients.base import ClientManager
from tritontrace.clients.corners import Corners
from tritontrace.engines.ir import engine
from tritontrace.engines.ir.boxes import box_chunks, corner_programs, undecided_boxes
from tritontrace.engines.ir.engine import IREngine
from tritontrace.engines.ir.values import Axis, Compare, Mask, Separable


class _Event:
    """What `Corners` asks an event for."""

    def __init__(self, grid: tuple[int, int, int], block: tuple[int, ...], programs: Any, address: Any, mask: Any) -> None:
        self.launch = type("Launch", (), {"grid": grid})
        self.block, self.programs, self.address, self.mask = block, programs, address, mask


def _form(programs: Any, slopes: tuple[int, ...], lanes: tuple[int, ...], constant: int, block: tuple[int, ...]) -> Separable:
    axes = tuple(Axis(np.arange(n, dtype=np.int64) * step) if step else None for n, step in zip(block, lanes))
    return Separable(constant, programs @ np.array(slopes, np.int64), axes, 64)


def _ids(grid: tuple[int, int, int], linear: Any) -> Any:
    x, y, _ = grid
    return np.column_stack([linear % x, linear // x % y, linear // (x * y)]).astype(np.int64)


small = st.integers(-3, 3)
slopes = st.tuples(small, small, small)
side = st.tuples(slopes, st.tuples(small, small), st.integers(-9, 9), st.sampled_from(["lt", "le", "gt", "ge", "eq"]))


@settings(max_examples=600, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3)),
    block=st.sampled_from([(4,), (1,), (2, 3)]),
    target=st.tuples(slopes, st.tuples(small, small), st.integers(-9, 9)),
    sides=st.lists(side, max_size=3),
)
def test_reach_is_never_too_narrow(grid: Any, block: Any, target: Any, sides: Any) -> None:
    def event(linear: Any) -> Any:
        programs = _ids(grid, linear)
        parts = tuple(Compare(_form(programs, *side[:3], block), side[3]) for side in sides)
        return _Event(grid, block, programs, _form(programs, *target, block), Mask(parts) if parts else None)

    corners = event(corner_programs(grid))
    reach = Corners(corners).reach(corners, 1, 0)
    everything = event(np.arange(np.prod(grid)))
    addresses = np.broadcast_to(everything.address.dense(), (np.prod(grid), *block))
    active = addresses[np.broadcast_to(everything.mask.dense(), addresses.shape)] if sides else addresses
    assert reach is not None
    if active.size:
        assert reach[0] <= active.min() and active.max() <= reach[1]
        if not sides:
            assert reach == (active.min(), active.max())


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_the_bound_of_a_masked_vector_is_exact(n: int) -> None:
    grid = (5, 1, 1)
    programs = _ids(grid, corner_programs(grid))
    index = _form(programs, (256, 0, 0), (1,), -n, (256,))
    event: Any = _Event(grid, (256,), programs, _form(programs, (1024, 0, 0), (4,), 64, (256,)), Mask((Compare(index, "lt"),)))
    assert Corners(event).reach(event, 1, 0) == (64, 64 + 4 * (n - 1))


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def tiles_kernel(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    x_row = x_ptr + rows[:, None] * N + tl.arange(0, BN)[None, :]
    for start in range(0, N, BN):
        inside = (rows[:, None] < M) & (start + tl.arange(0, BN)[None, :] < N)
        tl.store(y_ptr + rows[:, None] * N + start + tl.arange(0, BN)[None, :], tl.load(x_row, mask=inside), mask=inside)
        x_row += BN


@triton.jit
def grouped_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = (pid // 4 + pid % 4 * (tl.num_programs(0) // 4)) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def branching_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    if pid == 3:
        tl.store(y_ptr + at + n, tl.load(x_ptr + at))


@triton.jit
def wrapping_kernel(x_ptr, y_ptr, step, BLOCK: tl.constexpr):
    # 32 bits hold neither 2 * step nor 3 * step, and 4 * step is 0 again.
    tl.store(y_ptr + tl.program_id(0) * step, tl.load(x_ptr + tl.arange(0, BLOCK)).to(tl.float32).sum())


@triton.jit
def opposite_kernel(x_ptr, y_ptr, step, BLOCK: tl.constexpr):
    # Each term wraps; their sum does so in one program only.
    pid = tl.program_id(0)
    tl.store(y_ptr + (pid * step).to(tl.int64) + (-pid * step).to(tl.int64) + tl.arange(0, BLOCK), 1.0)


@triton.jit
def equal_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + pid * BLOCK + at + n, 1.0, mask=(pid * BLOCK + at) == n)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of programs of each batch that runs."""
    batches: list[int] = []
    enter = IREngine._enter

    def counting(self: Any, program: Any, rt: Any, arguments: Any, frames: Any) -> None:
        def count() -> Any:
            for frame in frames:
                batches.append(len(frame))
                yield frame

        enter(self, program, rt, arguments, count())

    monkeypatch.setattr(IREngine, "_enter", counting)
    return batches


def _dry(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> list[Any]:
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        kernel[grid](*arguments, **constants)
    return [(f.kind, f.tensor, f.programs.tolist(), f.elements.tolist(), f.details.get("accesses")) for f in session.findings]


def _meta(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def test_clean_launches_take_the_corners_alone(seen: list[int]) -> None:
    n = 1_000_003
    assert _dry(add_kernel, (triton.cdiv(n, 16),), _meta(n), _meta(n), n, BLOCK=16) == []
    assert seen == [3]
    seen.clear()
    assert _dry(tiles_kernel, (3001,), _meta(12001, 50), _meta(12001, 50), 12001, 50, BM=4, BN=16) == []
    assert seen == [3]


@pytest.mark.parametrize(
    ("kernel", "grid", "sizes", "n"),
    [
        (add_kernel, (9,), (143, 144), 144),
        (grouped_kernel, (12,), (96, 96), 96),
        (branching_kernel, (9,), (72, 72), 40),
        (branching_kernel, (9,), (72, 71), 41),
        (wrapping_kernel, (5,), (8, 100), 1 << 30),
        (opposite_kernel, (5,), (8, 8), 1 << 30),
        (opposite_kernel, (3,), (8, 8), 1 << 30),
        (equal_kernel, (9,), (8, 80), 40),
    ],
)
def test_the_corners_never_hide_a_fault(kernel: Any, grid: Any, sizes: Any, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (*(_meta(size) for size in sizes), n)
    found = _dry(kernel, grid, *arguments, BLOCK=8)
    monkeypatch.setattr(ClientManager, "by_corners", lambda self: None)
    assert found == _dry(kernel, grid, *arguments, BLOCK=8)


@pytest.mark.parametrize("short", list(itertools.product([0, 1], [0, 1])))
def test_tiles_one_element_short(short: tuple[int, int], seen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (_meta(30 * 50 - short[0]), _meta(30 * 50 - short[1]), 30, 50)
    found = _dry(tiles_kernel, (8,), *arguments, BM=4, BN=16)
    assert [f[1] for f in found] == [name for name, missing in zip(("x_ptr", "y_ptr"), short) if missing]
    assert seen == ([3] if not any(short) else [3, 8])
    monkeypatch.setattr(ClientManager, "by_corners", lambda self: None)
    assert sorted(found) == sorted(_dry(tiles_kernel, (8,), *arguments, BM=4, BN=16))


@triton.jit
def row_sums_kernel(x_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(sums_ptr + row, tl.sum(tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)))


def test_scalar_accesses(seen: list[int]) -> None:
    assert _dry(row_sums_kernel, (50,), _meta(50, 30), _meta(50), 30, BLOCK=32) == []
    assert seen == [3]
    (found,) = _dry(row_sums_kernel, (50,), _meta(50, 30), _meta(49), 30, BLOCK=32)
    assert found[:3] == ("out_of_bounds", "sums_ptr", [[49, 0, 0]])


def test_undefined_lanes_are_looked_for_in_all_programs(seen: list[int]) -> None:
    (found,) = _dry_undefined()
    assert found.kind == "undefined_lane" and len(found.programs) == 4
    assert sum(seen) >= 4


@triton.jit
def undefined_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + at, tl.load(x_ptr + at, mask=at < n))


def _dry_undefined() -> list[Any]:
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        undefined_kernel[(4,)](_meta(5), _meta(32), 5, BLOCK=8)
    return list(session.findings)


def test_other_clients_still_see_every_program(seen: list[int]) -> None:
    class Seeing(tritontrace.Client):
        name = "seeing"
        dry_run = True

    with tritontrace.session(clients=[Sanitizer(dry_run=True), Seeing()]):
        add_kernel[(9,)](_meta(144), _meta(144), 144, BLOCK=16)
    assert seen == [9]


def test_one_faulty_program_of_millions_is_found_without_looking_at_all(seen: list[int]) -> None:
    n = (1 << 22) * 16
    (found,) = _dry(add_kernel, (1 << 22,), _meta(n), _meta(n - 3), n, BLOCK=16)
    assert found[1:4] == ("y_ptr", [[(1 << 22) - 1, 0, 0]], [n - 3, n - 2, n - 1])
    assert sum(seen) < 1 << 18


@triton.jit
def plane_kernel(x_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.program_id(1) * stride + at, tl.load(x_ptr + tl.program_id(2) + at))


@settings(max_examples=100, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5)),
    short=st.tuples(st.integers(-2, 30), st.integers(-2, 90)),
    stride=st.integers(-3, 40),
    chunk=st.sampled_from([1, 4, 32, 256]),
)
def test_boxes_of_the_grid_hide_no_fault(grid: Any, short: Any, stride: int, chunk: int) -> None:
    x, y, z = grid
    arguments = (_meta(max(0, x * 4 + z - 1 - short[0])), _meta(max(0, x * 4 + (y - 1) * max(0, stride) - short[1])), stride)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SLICE_ELEMENTS", chunk)
        found = _dry(plane_kernel, grid, *arguments, BLOCK=4)
        patch.setattr(ClientManager, "by_corners", lambda self: None)
        everywhere = _dry(plane_kernel, grid, *arguments, BLOCK=4)
    assert sorted(found) == sorted(everywhere)
    faulty = max(0, x * 4 + z - 1 - arguments[0].numel())
    assert bool(faulty) == any(f[1] == "x_ptr" for f in found)


@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (5, 6, 3)])
@pytest.mark.parametrize("enough", [1, 5])
def test_every_program_in_doubt_is_in_one_box(grid: Any, enough: int) -> None:
    everyone = _ids(grid, np.arange(np.prod(grid)))
    for bad in everyone.tolist():

        def doubtful(box: Any) -> bool:
            return all(start <= i < start + n for i, (start, n) in zip(bad, box))

        boxes = undecided_boxes(grid, doubtful, enough)
        programs = np.concatenate(list(box_chunks(grid, boxes, 2)))
        assert bad in _ids(grid, programs).tolist()
        assert len(programs) == len(set(programs.tolist())) <= enough
    whole = np.concatenate(list(box_chunks(grid, undecided_boxes(grid, lambda box: True, 1), 4)))
    assert whole.tolist() == list(range(len(everyone)))
    assert undecided_boxes(grid, lambda box: False, 1) == []


@triton.jit
def loose_kernel(x_ptr, y_ptr, n, m, k, a, b, STEPS: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK)
    for i in range(STEPS):
        x = tl.load(x_ptr + at + i, mask=(at + i * a < n) & (columns < k))
        if SUM:
            x = tl.sum(x) + at * 0.0
        tl.store(y_ptr + at + i + tl.program_id(1) * b, x, mask=(at + tl.program_id(1) * b < m) & (columns < k))


@settings(max_examples=150, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 9), st.integers(1, 4)),
    n=st.integers(0, 80),
    m=st.integers(0, 80),
    k=st.integers(3, 8),
    slopes=st.tuples(st.integers(-2, 2), st.integers(-2, 6)),
    total=st.booleans(),
    chunk=st.sampled_from([8, 64, 512]),
)
def test_undefined_lanes_that_depend_on_the_program(
    grid: Any, n: int, m: int, k: int, slopes: Any, total: bool, chunk: int
) -> None:
    arguments = (_meta(80), _meta(100), n, m, k, *slopes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SLICE_ELEMENTS", chunk)
        found = _dry(loose_kernel, grid, *arguments, STEPS=2, BLOCK=8, SUM=total)
        patch.setattr(ClientManager, "by_corners", lambda self: None)
        everywhere = _dry(loose_kernel, grid, *arguments, STEPS=2, BLOCK=8, SUM=total)
    assert sorted(found) == sorted(everywhere)


@pytest.mark.parametrize("n", [1 << 22, (1 << 22) - 3])
def test_a_masked_load_without_other_takes_the_corners_too(n: int, seen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SLICE_ELEMENTS", 1 << 10)
    size = (1 << 22) + 8
    found = _dry(loose_kernel, (1 << 19,), _meta(size), _meta(size), n, n, 8, 0, 0, STEPS=1, BLOCK=8, SUM=True)
    assert [f[:3] for f in found] == ([] if n % 8 == 0 else [("undefined_lane", "x_ptr", [[(1 << 19) - 1, 0, 0]])])
    assert sum(seen) < 1000 and (seen == [3]) == (n % 8 == 0)
