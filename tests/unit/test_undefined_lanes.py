"""Undefined lanes: found where they reach a store, an address, a mask or a branch, and nowhere else."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.refusals import default_engine
from tritontrace import Sanitizer
from tritontrace.kernels import capabilities


def run(kernel: Any, grid: tuple[int, ...], *args: Any, dry: bool = False, **kwargs: Any) -> list[tritontrace.Finding]:
    with tritontrace.session(clients=[Sanitizer(dry_run=dry)]) as session:
        kernel[grid](*args, **kwargs)
    assert all(finding.kind == "undefined_lane" for finding in session.findings), session.report()
    for finding in session.findings:
        assert finding.message and finding.to_dict()["use"] is not None
    return session.findings


def line(kernel: Any, tag: str) -> int:
    lines, start = inspect.getsourcelines(kernel.fn)
    (found,) = [start + i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {tag}")]
    return found


def said(finding: tritontrace.Finding) -> tuple[Any, ...]:
    assert finding.lanes is not None
    return finding.tensor, finding.details["role"], finding.programs[:, 0].tolist(), finding.lanes.tolist()


@triton.jit
def same_mask_kernel(x, y, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = at < n
    a = tl.load(x + at, mask=mask)
    b = tl.load(y + at, mask=mask)
    tl.store(out + at, tl.exp(a) * b + 1, mask=mask & (a > 0))


@triton.jit
def select_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out, tl.sum(tl.where(at < n, a, 0.0)))


@triton.jit
def narrower_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, a, mask=at < n - 1)


@triton.jit
def shape_kernel(x, out, n, TILE: tl.constexpr):
    row = tl.arange(0, TILE)[:, None]
    column = tl.arange(0, TILE)[None, :]
    a = tl.load(x + row * TILE + column, mask=row < n)
    tl.store(out + row * TILE + column, tl.trans(tl.trans(a)) + a, mask=(row < n) & (column < n))


@triton.jit
def loop_sum_kernel(x, out, n, TILE: tl.constexpr, MASKED: tl.constexpr):
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, n, TILE):
        at = start + tl.arange(0, TILE)
        a = tl.load(x + at, mask=at < n)
        if MASKED:
            a = tl.where(at < n, a, 0.0)
        total += a
    tl.store(out, tl.sum(total))  # sum


@pytest.mark.parametrize("dry", [False, True])
def test_clean(dry: bool) -> None:
    x, out = torch.ones(64), torch.zeros(64)
    assert not run(same_mask_kernel, (3,), x, x, out, 40, TILE=16, dry=dry)
    assert not run(select_kernel, (1,), x, out, 20, TILE=32, dry=dry)
    assert not run(narrower_kernel, (1,), x, out, 20, TILE=32, dry=dry)
    assert not run(shape_kernel, (1,), x, out, 5, TILE=8, dry=dry)
    assert not run(loop_sum_kernel, (1,), x, out, 40, TILE=16, MASKED=True, dry=dry)
    assert not run(loop_sum_kernel, (1,), x, out, 48, TILE=16, MASKED=False, dry=dry)  # no lane is masked off


@pytest.mark.parametrize("dry", [False, True])
def test_a_loop_carries_them(dry: bool) -> None:
    (finding,) = run(loop_sum_kernel, (1,), torch.ones(64), torch.zeros(1), 40, TILE=16, MASKED=False, dry=dry)
    assert said(finding) == ("x", "value", [0], list(range(8, 16)))
    assert finding.use is not None and finding.use.line == line(loop_sum_kernel, "sum")


@triton.jit
def spread_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)  # load
    tl.store(out + at, a)  # use


def test_only_the_programs_that_have_masked_lanes() -> None:
    (finding,) = run(spread_kernel, (4,), torch.ones(64), torch.zeros(64), 40, TILE=16)
    assert finding.location is not None and finding.location.line == line(spread_kernel, "load")
    assert finding.use is not None and finding.use.line == line(spread_kernel, "use")
    assert said(finding) == ("x", "value", [2, 3], list(range(16)))
    (finding,) = run(spread_kernel, (3,), torch.ones(64), torch.zeros(64), 40, TILE=16)
    assert said(finding) == ("x", "value", [2], list(range(8, 16)))


@triton.jit
def address_kernel(index, table, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    i = tl.load(index + at, mask=at < n)
    tl.store(out + at, tl.load(table + i))


@triton.jit
def masked_address_kernel(index, table, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    mask = at < n
    i = tl.load(index + at, mask=mask)
    tl.store(out + at, tl.load(table + i, mask=mask, other=0.0))


def test_addresses() -> None:
    index, table, out = torch.zeros(16, dtype=torch.int64), torch.ones(4), torch.zeros(16)
    (finding,) = run(address_kernel, (1,), index, table, out, 10, TILE=16)
    assert said(finding) == ("index", "address", [0], list(range(10, 16)))
    assert not run(masked_address_kernel, (1,), index, table, out, 10, TILE=16)


@triton.jit
def branch_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    if tl.max(a) > 0:
        tl.store(out, 1.0)


@triton.jit
def mask_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, 1.0, mask=a > 0)


@triton.jit
def decided_mask_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, 1.0, mask=(at < n) & (a > 0))


def test_branches_and_masks() -> None:
    x, out = torch.ones(16), torch.zeros(16)
    (finding,) = run(branch_kernel, (1,), x, out, 10, TILE=16)
    assert said(finding) == ("x", "branch", [0], list(range(10, 16)))
    (finding,) = run(mask_kernel, (1,), x, out, 10, TILE=16)
    assert said(finding) == ("x", "mask", [0], list(range(10, 16)))
    assert not run(decided_mask_kernel, (1,), x, out, 10, TILE=16)


@triton.jit
def matmul_kernel(a, b, c, k, M: tl.constexpr, K: tl.constexpr, OTHER: tl.constexpr):
    m = tl.arange(0, M)
    inner = tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + inner[None, :], mask=inner[None, :] < k, other=OTHER)
    right = tl.load(b + inner[:, None] * M + m[None, :], mask=inner[:, None] < k, other=0.0)
    tl.store(c + m[:, None] * M + m[None, :], tl.dot(left, right))


def test_a_dot_spoils_its_rows() -> None:
    a, b, c = torch.ones(16, 32), torch.ones(32, 16), torch.zeros(16, 16)
    assert not run(matmul_kernel, (1,), a, b, c, 20, M=16, K=32, OTHER=0.0)
    (finding,) = run(matmul_kernel, (1,), a, b, c, 20, M=16, K=32, OTHER=None)
    assert finding.tensor == "a" and finding.lanes is not None
    assert finding.lanes.tolist() == [row * 32 + column for row in range(16) for column in range(20, 32)]


@triton.jit
def scan_kernel(x, out, n, TILE: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.cumsum(a, reverse=REVERSE), mask=at < n)


def test_a_scan_carries_them_one_way() -> None:
    x, out = torch.ones(16), torch.zeros(16)
    assert not run(scan_kernel, (1,), x, out, 10, TILE=16, REVERSE=False)
    (finding,) = run(scan_kernel, (1,), x, out, 10, TILE=16, REVERSE=True)
    assert said(finding) == ("x", "value", [0], list(range(10, 16)))


@triton.jit
def nested_kernel(x, out, n, flag, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    step = 0
    while step < 2:
        if flag > 0:
            a = tl.where(at < n, a, 0.0)
        else:
            a = a * 2
        step += 1
    tl.store(out + at, a)


@triton.jit
def early_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    if tl.program_id(0) == 0:
        return
    a = tl.load(x + at, mask=at < n)
    if tl.program_id(0) == 1:
        return
    tl.store(out + at, a)


def test_branches_loops_and_early_returns() -> None:
    x, out = torch.ones(64), torch.zeros(64)
    assert not run(nested_kernel, (1,), x, out, 10, 1, TILE=16)
    (finding,) = run(nested_kernel, (1,), x, out, 10, 0, TILE=16)
    assert said(finding) == ("x", "value", [0], list(range(10, 16)))
    (finding,) = run(early_kernel, (4,), x, out, 10, TILE=16)
    assert said(finding) == ("x", "value", [2, 3], list(range(16)))


@triton.jit
def two_loads_kernel(x, y, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    b = tl.load(y + at, mask=at < n + 2)
    tl.atomic_add(out + at, tl.where(at < n, a, b))


def test_each_load_for_itself_and_atomics() -> None:
    x, out = torch.ones(16), torch.zeros(16)
    (finding,) = run(two_loads_kernel, (1,), x, x, out, 10, TILE=16)
    assert said(finding) == ("y", "value", [0], list(range(12, 16)))


def test_they_can_be_left_out() -> None:
    with tritontrace.session(clients=[Sanitizer(undefined=False)]) as session:
        spread_kernel[(4,)](torch.ones(64), torch.zeros(64), 40, TILE=16)
    assert not session.findings


@triton.jit
def chosen_kernel(x, choice, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(tl.load(choice + at) > 0, a, 0.0))


def test_a_choice_by_data_takes_data() -> None:
    x, out = torch.ones(16), torch.zeros(16)
    assert not run(chosen_kernel, (1,), x, torch.zeros(16), out, 10, TILE=16)
    (finding,) = run(chosen_kernel, (1,), x, torch.ones(16), out, 10, TILE=16)
    assert said(finding) == ("x", "value", [0], list(range(10, 16)))
    # a dry run does not know, unless it has to execute the kernel
    known = run(chosen_kernel, (1,), x, torch.ones(16), out, 10, TILE=16, dry=True)
    assert len(known) == (default_engine() == "python")


def test_outputs_are_those_of_a_launch_that_is_not_followed() -> None:
    x = torch.randn(64)
    outputs = []
    for undefined in (False, True):
        out = torch.zeros(64)
        with tritontrace.session(clients=[Sanitizer(undefined=undefined), "tracer"]):
            loop_sum_kernel[(1,)](x, out, 40, TILE=16, MASKED=False)
            nested_kernel[(1,)](x, out[16:], 10, 0, TILE=16)
            scan_kernel[(1,)](x, out[32:], 10, TILE=16, REVERSE=True)
        outputs.append(out)
    assert torch.equal(*outputs)


@triton.jit
def histogram_kernel(x, out, n, TILE: tl.constexpr, MASKED: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    counts = tl.histogram(a, 8, mask=at < n) if MASKED else tl.histogram(a, 8)
    tl.store(out + tl.arange(0, 8), counts)


@triton.jit
def wide_histogram_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + tl.arange(0, 8), tl.histogram(a, 8, mask=at < n + 1))


@triton.jit
def gather_kernel(x, out, n, shift, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.gather(a, at % n + shift, 0))


@triton.jit
def arithmetic_kernel(x, out, n, TILE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    inside = at < n
    if HOW == "times":
        a = a * inside
    if HOW == "and":
        a = a & tl.where(inside, -1, 0)
    if HOW == "or":
        a = a | tl.where(inside, 0, -1)
    if HOW == "plus":
        a = a + tl.where(inside, 0, 1)
    tl.store(out + at, a)


def test_operations_that_leave_lanes_out() -> None:
    x, out = torch.ones(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    assert not run(histogram_kernel, (1,), x, out, 10, TILE=16, MASKED=True)
    (finding,) = run(histogram_kernel, (1,), x, out, 10, TILE=16, MASKED=False)
    assert said(finding) == ("x", "value", [0], list(range(10, 16)))
    (finding,) = run(wide_histogram_kernel, (1,), x, out, 10, TILE=16)
    assert finding.tensor == "x"
    assert not run(gather_kernel, (1,), x, out, 10, 0, TILE=16)
    (finding,) = run(gather_kernel, (1,), x, out, 10, 1, TILE=16)
    assert finding.tensor == "x"


@pytest.mark.parametrize("how", ["times", "and", "or", "plus"])
def test_an_operand_that_decides_alone(how: str) -> None:
    x, out = torch.ones(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    found = run(arithmetic_kernel, (1,), x, out, 10, TILE=16, HOW=how)
    assert bool(found) == (how == "plus")


@triton.jit
def softmax_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    top = tl.max(a, axis=0)  # max
    e = tl.exp(a - top)
    total = tl.sum(tl.where(at < n, e, 0.0), axis=0)
    tl.store(out + at, e / total, mask=at < n)


@triton.jit
def sums_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < n)
    b = tl.load(x + at, mask=at < n, other=0.0)
    unharmed = tl.sum(b)
    total = tl.cumsum(a * 2 + unharmed, axis=0)  # scan
    tl.store(out + at, a + total)  # use


@pytest.mark.parametrize("dry", [False, True])
def test_the_use_is_where_the_lanes_meet_others(dry: bool) -> None:
    (finding,) = run(softmax_kernel, (1,), torch.ones(64), torch.zeros(64), 20, TILE=32, dry=dry)
    assert finding.use is not None and finding.use.line == line(softmax_kernel, "max")
    assert finding.use.file == __file__  # not Triton's own, in which tl.max reduces
    assert f"meets other lanes at {finding.use}" in finding.message
    # A lane that gets there by itself does that at the store.
    (finding,) = run(sums_kernel, (1,), torch.ones(64), torch.zeros(64), 20, TILE=32, dry=dry)
    assert finding.use is not None and finding.use.line == line(sums_kernel, "use")


def test_the_use_is_told_beside_numerics_for_which_equal_lines_are_not_computed_once() -> None:
    with tritontrace.session(clients=[Sanitizer(), tritontrace.Numerics()]) as session:
        softmax_kernel[(1,)](torch.ones(64), torch.zeros(64), 20, TILE=32)
    (finding,) = [finding for finding in session.findings if finding.kind == "undefined_lane"]
    assert finding.use is not None and finding.use.line == line(softmax_kernel, "max")


@triton.jit
def edge_tile_kernel(x, out, rows, loaded, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    place = tl.make_tensor_descriptor(out, shape=[rows, COLUMNS], strides=[COLUMNS, 1], block_shape=[TILE, COLUMNS])
    first = tl.program_id(0) * TILE
    at = first + tl.arange(0, TILE)[:, None]
    a = tl.load(x + at * COLUMNS + tl.arange(0, COLUMNS)[None, :], mask=at < loaded)
    place.store([first, 0], a * 2)


@triton.jit
def added_edge_tile_kernel(x, out, rows, loaded, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    place = tl.make_tensor_descriptor(out, shape=[rows, COLUMNS], strides=[COLUMNS, 1], block_shape=[TILE, COLUMNS])
    first = tl.program_id(0) * TILE
    at = first + tl.arange(0, TILE)[:, None]
    a = tl.load(x + at * COLUMNS + tl.arange(0, COLUMNS)[None, :], mask=at < loaded)
    place.atomic_add([first, 0], a)


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("kernel", [edge_tile_kernel, added_edge_tile_kernel], ids=["store", "reduce"])
def test_what_a_descriptor_leaves_out_of_its_tensor_is_not_stored(kernel: Any, dry: bool) -> None:
    def launch(rows: int, loaded: int) -> list[tritontrace.Finding]:
        x, out = torch.ones(64, 8), torch.zeros(64, 8)
        return run(kernel, (4,), x, out, rows, loaded, dry=dry, COLUMNS=8, TILE=16)

    assert launch(64, 64) == launch(50, 50) == launch(50, 60) == []
    (finding,) = launch(50, 49)
    assert said(finding)[1:] == ("value", [3], list(range(8, 16)))


@triton.jit
def scattered_rows_kernel(x, rows_ptr, out, rows, loaded, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    place = tl.make_tensor_descriptor(out, shape=[rows, COLUMNS], strides=[COLUMNS, 1], block_shape=[1, COLUMNS])
    at = tl.arange(0, TILE)
    a = tl.load(x + at[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :], mask=at[:, None] < loaded)
    place.scatter(a, tl.load(rows_ptr + at), 0)


def test_rows_that_a_scatter_drops_are_not_stored() -> None:
    x, out = torch.ones(16, 8), torch.zeros(16, 8)
    assert run(scattered_rows_kernel, (1,), x, torch.arange(16).int(), out, 12, 12, COLUMNS=8, TILE=16) == []
    (finding,) = run(scattered_rows_kernel, (1,), x, torch.arange(16).int(), out, 13, 12, COLUMNS=8, TILE=16)
    assert said(finding)[1:] == ("value", [0], list(range(96, 104)))


@pytest.mark.skipif(not capabilities.block_pointers(), reason="this Triton has no block pointers")
@pytest.mark.parametrize("check", [(0, 1), (0,)])
def test_what_a_block_pointer_leaves_out_is_not_stored(check: tuple[int, ...]) -> None:
    def launch(loaded: int) -> list[tritontrace.Finding]:
        return run(block_pointer_kernel, (4,), torch.ones(64, 8), torch.zeros(64, 8), 50, loaded, CHECK=check, COLUMNS=8, TILE=16)

    assert launch(50) == []
    (finding,) = launch(49)
    assert said(finding)[1:] == ("value", [3], list(range(8, 16)))


@triton.jit
def block_pointer_kernel(x, out, rows, loaded, CHECK: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr):
    first = tl.program_id(0) * TILE
    place = tl.make_block_ptr(out, [rows, COLUMNS], [COLUMNS, 1], [first, 0], [TILE, COLUMNS], [1, 0])
    at = first + tl.arange(0, TILE)[:, None]
    a = tl.load(x + at * COLUMNS + tl.arange(0, COLUMNS)[None, :], mask=at < loaded)
    tl.store(place, a, boundary_check=CHECK)


@triton.jit
def capped(n, most):
    if n > most:
        return most
    return n + 1


@triton.jit
def capped_and_loaded(n, most_ptr):
    most = tl.load(most_ptr)
    if n > most:
        return most
    return n + 1


@triton.jit
def helper_chooses_kernel(x, out, most, loaded_most, LOADED: tl.constexpr, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at, mask=at < 2)
    row = tl.program_id(0)
    kept = capped_and_loaded(row, loaded_most) if LOADED else capped(row, most)
    tl.store(out + row, tl.sum(tl.where(at < kept, a, 0.0)))


@pytest.mark.parametrize("dry", [False, True])
def test_what_a_helper_without_loads_computes_is_no_data(dry: bool) -> None:
    x, out, most = torch.zeros(8), torch.zeros(8), torch.full((1,), 20, dtype=torch.int32)
    (finding,) = run(helper_chooses_kernel, (8,), x, out, 20, most, dry=dry, LOADED=False, TILE=8)
    assert said(finding)[2] == [2, 3, 4, 5, 6, 7]
    found = run(helper_chooses_kernel, (8,), x, out, 20, most, dry=dry, LOADED=True, TILE=8)
    if default_engine() == "ir":
        assert len(found) == (0 if dry else 1)  # data decides, which a dry run does not look at
