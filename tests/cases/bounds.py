"""Accesses inside and outside of tensors. Lines with a comment ``# fault: tag`` hold the faulty access."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.cases.common import Case, Fault, Result

CASES: list[Case] = []


def case(*faults: Fault) -> Callable[[Callable[[], Sequence[Result]]], Callable[[], Sequence[Result]]]:
    """Registers a function that launches, named after itself."""

    def register(run: Callable[[], Sequence[Result]]) -> Callable[[], Sequence[Result]]:
        CASES.append(Case(run.__name__, run, faults))
        return run

    return register


@triton.jit
def scale_kernel(src, dst, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    value = tl.load(src + at, mask=at < count + 1, other=0.0)  # fault: mask one too wide
    tl.store(dst + at, value * 3, mask=at < count)


@case(Fault("mask one too wide", "load", "src", [(2, 0, 0)], [90]))
def mask_one_too_wide() -> Sequence[Result]:
    src, dst = torch.randn(90), torch.zeros(90)
    scale_kernel[(3,)](src, dst, 90, TILE=32)
    return [(dst, src * 3)]


@case()
def mask_one_too_wide_but_never_reached() -> Sequence[Result]:
    src, dst = torch.randn(97), torch.zeros(96)
    scale_kernel[(3,)](src, dst, 96, TILE=32)
    return [(dst, src[:96] * 3)]


@triton.jit
def negate_kernel(src, dst, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    value = tl.load(src + at, mask=at < count, other=0.0)
    tl.store(dst + at, -value)  # fault: unmasked tail


@case(Fault("unmasked tail", "store", "dst", [(1, 0, 0), (2, 0, 0)], [*range(40, 96)]))
def unmasked_tail() -> Sequence[Result]:
    src, dst = torch.randn(40), torch.zeros(40)
    negate_kernel[(3,)](src, dst, 40, TILE=32)
    return [(dst, -src)]


@triton.jit
def stencil_kernel(src, dst, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    live = at < count
    left = tl.load(src + at - 1, mask=live, other=0.0)  # fault: left neighbour
    right = tl.load(src + at + 1, mask=live, other=0.0)  # fault: right neighbour
    tl.store(dst + at, left + right, mask=live)


@case(
    Fault("left neighbour", "load", "src", [(0, 0, 0)], [-1]),
    Fault("right neighbour", "load", "src", [(3, 0, 0)], [50]),
)
def both_ends_of_a_stencil() -> Sequence[Result]:
    src, dst = torch.randn(50), torch.zeros(50)
    stencil_kernel[(4,)](src, dst, 50, TILE=16)
    padded = torch.nn.functional.pad(src, (1, 1))
    return [(dst, padded[:-2] + padded[2:])]


@triton.jit
def transpose_kernel(src, dst, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(src + i[:, None] * cols + j[None, :])
    tl.store(dst + j[None, :] * cols + i[:, None], tile)  # fault: stride of the source


@case(
    Fault(
        "stride of the source",
        "store",
        "dst",
        [(0, 1, 0), (1, 1, 0)],
        {
            (0, 1, 0): [8 * j + i for j in range(4, 8) for i in range(2)],
            (1, 1, 0): [8 * j + i for j in range(4, 8) for i in range(2, 4)],
        },
    )
)
def transposed_with_the_wrong_stride() -> Sequence[Result]:
    src, dst = torch.randn(4, 8), torch.zeros(8, 4)
    transpose_kernel[(2, 2)](src, dst, 4, 8, BM=2, BN=4)
    return []


@triton.jit
def row_sum_kernel(src, dst, rows, cols, BM: tl.constexpr, BN: tl.constexpr, CHECK: tl.constexpr):
    first = tl.program_id(0) * BM
    block = tl.make_block_ptr(src, (rows, cols), (cols, 1), (first, 0), (BM, BN), (1, 0))
    if CHECK == 2:
        tile = tl.load(block, boundary_check=(0, 1), padding_option="zero")
    elif CHECK == 1:
        tile = tl.load(block, boundary_check=(1,), padding_option="zero")  # fault: rows unchecked
    else:
        tile = tl.load(block)  # fault: nothing checked
    row = first + tl.arange(0, BM)
    tl.store(dst + row, tl.sum(tile, 1), mask=row < rows)


def _row_sums(check: int) -> Sequence[Result]:
    src, dst = torch.randn(7, 12), torch.zeros(7)
    row_sum_kernel[(2,)](src, dst, 7, 12, BM=4, BN=16, CHECK=check)
    return [(dst, src.sum(1))] if check else []


@case()
def block_pointer_fully_checked() -> Sequence[Result]:
    return _row_sums(2)


@case(Fault("rows unchecked", "load", "src", [(1, 0, 0)], [*range(84, 96)]))
def block_pointer_rows_unchecked() -> Sequence[Result]:
    return _row_sums(1)


@case(Fault("nothing checked", "load", "src", [(1, 0, 0)], [*range(84, 100)]))
def block_pointer_unchecked() -> Sequence[Result]:
    return _row_sums(0)


@triton.jit
def row_max_kernel(src, dst, cols, TILE: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, TILE)
    value = tl.load(src + row * cols + c, mask=c < cols, other=float("-inf"))  # fault: row too many
    tl.store(dst + row, tl.max(value, 0))  # fault: result of a row too many


@case(
    Fault("row too many", "load", "src", [(6, 0, 0), (7, 0, 0)], [*range(60, 80)]),
    Fault("result of a row too many", "store", "dst", [(6, 0, 0), (7, 0, 0)], {(6, 0, 0): [6], (7, 0, 0): [7]}),
)
def grid_too_large() -> Sequence[Result]:
    src, dst = torch.randn(6, 10), torch.zeros(6)
    row_max_kernel[(8,)](src, dst, 10, TILE=16)
    return [(dst, src.max(1).values)]


@triton.jit
def mean_kernel(src, dst, count, TILE: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, count, TILE):
        total += tl.load(src + row * count + start + tl.arange(0, TILE))  # fault: last iteration
    tl.store(dst + row, tl.sum(total, 0) / count)


@case(Fault("last iteration", "load", "src", [(2, 0, 0)], [*range(120, 128)], iterations=[(2,)]))
def only_the_last_iteration() -> Sequence[Result]:
    src, dst = torch.ones(3, 40), torch.zeros(3)
    mean_kernel[(3,)](src, dst, 40, TILE=16)
    return []


@triton.jit
def nested_kernel(src, dst, TILE: tl.constexpr):
    total = tl.zeros((TILE,), tl.float32)
    for outer in range(3):
        inner = 0
        while inner < outer + 2:
            total += tl.load(src + (outer * 3 + inner) * TILE + tl.arange(0, TILE))  # fault: in a while in a for
            inner += 1
    tl.store(dst + tl.arange(0, TILE), total)


@case(Fault("in a while in a for", "load", "src", [(0, 0, 0)], [*range(32, 40)], iterations=[(2, 2), (2, 3)]))
def nested_loops() -> Sequence[Result]:
    src, dst = torch.ones(32), torch.zeros(4)
    nested_kernel[(1,)](src, dst, TILE=4)
    return [(dst, torch.full((4,), 7.0))]


@triton.jit
def write_masked(target, at, value, count):
    tl.store(target + at, value, mask=at < count)  # fault: in the inner helper


@triton.jit
def write_twice(first, second, at, value, count):
    write_masked(first, at, value, count)
    write_masked(second, at, value, count)  # fault: outer helper


@triton.jit
def two_deep_kernel(first, second, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    write_twice(first, second, at, at * 1.0, count)


@case(Fault("in the inner helper", "store", "second", [(1, 0, 0)], [20, 21, 22, 23], called_at="outer helper"))
def two_helpers_deep() -> Sequence[Result]:
    first, second = torch.zeros(24), torch.zeros(20)
    two_deep_kernel[(2,)](first, second, 24, TILE=16)
    return [(first, torch.arange(24.0)), (second, torch.arange(20.0))]


@triton.jit
def wild_kernel(src, dst, count, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    wild = (lane - 4) * 100_000_000
    value = tl.load(src + wild, mask=(wild >= 0) & (wild < count), other=-5.0)
    tl.store(dst + lane, value)
    tl.atomic_add(dst + wild, 1.0, mask=wild == 0)


@case()
def wild_pointers_that_are_masked_off() -> Sequence[Result]:
    src, dst = torch.full((3,), 2.0), torch.zeros(8)
    wild_kernel[(1,)](src, dst, 3, TILE=8)
    return [(dst, torch.tensor([-4.0, -5, -5, -5, 2, -5, -5, -5]))]


@triton.jit
def count_kernel(values, bins, count, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    value = tl.load(values + lane, mask=lane < count, other=0)
    tl.atomic_add(bins + value * 2, 1, mask=lane < count)  # fault: bin behind the view


@case(Fault("bin behind the view", "atomic", "bins", [(0, 0, 0)], [6]))
def strided_view_with_an_index_too_many() -> Sequence[Result]:
    base = torch.zeros(5, dtype=torch.int32)
    count_kernel[(1,)](torch.tensor([0, 1, 2, 3]), base[0::2], 4, TILE=4)
    return [(base, torch.tensor([1, 0, 1, 0, 1], dtype=torch.int32))]


@triton.jit
def fill_kernel(dst, TILE: tl.constexpr):
    tl.store(dst + tl.arange(0, TILE), 1.0)  # fault: gaps


@case(Fault("gaps", "store", "dst", [(0, 0, 0)], [1, 3]))
def strided_view_taken_for_a_dense_one() -> Sequence[Result]:
    base = torch.zeros(8)
    fill_kernel[(1,)](base[::2], TILE=4)
    return []


@triton.jit
def part_kernel(dst, TILE: tl.constexpr):
    tl.store(dst + tl.arange(0, TILE), 1.0)  # fault: into the other half


@case(Fault("into the other half", "store", "dst", [(0, 0, 0)], [4, 5, 6, 7]))
def out_of_one_view_into_another() -> Sequence[Result]:
    base = torch.zeros(12)
    part_kernel[(1,)](base[4:8], TILE=8)
    return [(base[:8], torch.tensor([0.0] * 4 + [1.0] * 4))]


@triton.jit
def ahead_kernel(src, dst, steps, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    pointer = src + lane
    total = tl.zeros((TILE,), tl.float32)
    for _ in range(steps):
        total += tl.load(pointer)
        pointer += TILE
    tl.store(dst + lane, total)


@case()
def pointer_moved_ahead_but_not_used() -> Sequence[Result]:
    src, dst = torch.randn(32), torch.zeros(8)
    ahead_kernel[(1,)](src, dst, 4, TILE=8)
    return [(dst, src.view(4, 8).sum(0))]


@triton.jit
def carried_kernel(src, dst, count, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    pointer = src + lane
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, count, TILE):
        total += tl.load(pointer, mask=lane < count - start, other=0.0)
        pointer += TILE
    tl.store(dst + lane, total)


@case()
def carried_pointer_with_a_tail_mask() -> Sequence[Result]:
    src, dst = torch.randn(29), torch.zeros(8)
    carried_kernel[(1,)](src, dst, 29, TILE=8)
    return [(dst, torch.nn.functional.pad(src, (0, 3)).view(4, 8).sum(0))]


@triton.jit
def gather_kernel(index, table, dst, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    tl.store(dst + lane, tl.load(table + tl.load(index + lane)))  # fault: index from memory


def _gather(index: list[int]) -> torch.Tensor:
    dst = torch.zeros(4)
    gather_kernel[(1,)](torch.tensor(index), torch.arange(10.0, 14.0), dst, TILE=4)
    return dst


@case(Fault("index from memory", "load", "table", [(0, 0, 0)], [9]))
def good_indices_first_then_a_bad_one() -> Sequence[Result]:
    good = _gather([3, 0, 1, 2])
    bad = _gather([3, 0, 9, 2])
    return [(good, torch.tensor([13.0, 10, 11, 12])), (bad, torch.tensor([13.0, 10, 0, 12]))]


@triton.jit
def fold(src, dst, steps):
    pid = tl.program_id(0)
    total = 0.0
    for i in range(pid + steps):
        total += tl.load(src + i)  # fault: loop by program id in a helper
    tl.store(dst + pid, total)


@triton.jit
def early_kernel(src, dst, steps):
    if tl.program_id(0) == 0:
        return
    fold(src, dst, steps)


@case(Fault("loop by program id in a helper", "load", "src", [(3, 0, 0)], [4], iterations=[(4,)]))
def after_an_early_return() -> Sequence[Result]:
    src, dst = torch.ones(4), torch.zeros(4)
    early_kernel[(4,)](src, dst, 2)
    return [(dst, torch.tensor([0.0, 3, 4, 4]))]


@triton.jit
def forgotten_mask_kernel(src, dst, rows, cols, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    live = (i < rows) & (j < cols)
    tile = tl.load(src + i * cols + j, mask=live, other=0.0)
    tl.store(dst + i * cols + j, tile)  # fault: mask forgotten


@case(
    Fault(
        "mask forgotten",
        "store",
        "dst",
        [(1, 0, 0), (1, 1, 0)],
        {
            (1, 0, 0): [i * 7 + j for i in range(5, 8) for j in range(4)],
            (1, 1, 0): [i * 7 + j for i in range(4, 8) for j in range(4, 8) if i * 7 + j >= 35],
        },
    )
)
def mask_computed_but_not_given() -> Sequence[Result]:
    forgotten_mask_kernel[(2, 2)](torch.randn(5, 7), torch.zeros(5, 7), 5, 7, BM=4, BN=4)
    return []


@triton.jit
def described_kernel(src, dst, rows, cols, claimed, BM: tl.constexpr, BN: tl.constexpr):
    desc = tl.make_tensor_descriptor(src, shape=[claimed, cols], strides=[cols, 1], block_shape=[BM, BN])
    tile = desc.load([0, 0])  # fault: claimed shape
    tl.store(dst, tl.sum(tile))


def _described(claimed: int) -> Sequence[Result]:
    src, dst = torch.randn(5, 12), torch.zeros(1)
    described_kernel[(1,)](src, dst, 5, 12, claimed, BM=8, BN=16)
    return [(dst[0], src.sum())]


@case()
def descriptor_with_a_padded_tail() -> Sequence[Result]:
    return _described(5)


@case(Fault("claimed shape", "load", "src", [(0, 0, 0)], [*range(60, 72)]))
def descriptor_that_claims_a_row_too_many() -> Sequence[Result]:
    return _described(6)


@triton.jit
def host_described_kernel(desc, dst, BM: tl.constexpr):
    tile = desc.load([tl.program_id(0) * BM, 0])
    desc.store([tl.program_id(0) * BM, 0], tile + 1)
    tl.store(dst + tl.program_id(0), tl.sum(tile))


@case()
def host_descriptor_with_a_padded_tail() -> Sequence[Result]:
    src, dst = torch.ones(6, 16), torch.zeros(2)
    host_described_kernel[(2,)](TensorDescriptor.from_tensor(src, [4, 16]), dst, BM=4)
    return [(dst, torch.tensor([64.0, 32.0])), (src, torch.full((6, 16), 2.0))]


@triton.jit
def tuple_kernel(tensors, count, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(tensors[0] + at, 1.0, mask=at < count)
    tl.store(tensors[1] + at, 2.0, mask=at < count)  # fault: second of a tuple


@case(Fault("second of a tuple", "store", "tensors.1", [(0, 0, 0)], [6, 7, 8]))
def tensors_in_a_tuple() -> Sequence[Result]:
    first, second = torch.zeros(9), torch.zeros(6)
    tuple_kernel[(1,)]((first, second), 9, TILE=16)
    return [(first, torch.ones(9)), (second, torch.full((6,), 2.0))]


@triton.jit
def indirect_kernel(pointers, sizes, TILE: tl.constexpr):
    pid = tl.program_id(0)
    target = tl.load(pointers + pid).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, TILE)
    tl.store(target + at, pid + 1.0, mask=at < tl.load(sizes + pid))


@case()
def pointers_from_memory() -> Sequence[Result]:
    first, second = torch.zeros(5), torch.zeros(8)
    indirect_kernel[(2,)](torch.tensor([first.data_ptr(), second.data_ptr()]), torch.tensor([5, 8]), TILE=8)
    return [(first, torch.ones(5)), (second, torch.full((8,), 2.0))]


@triton.jit
def pick_kernel(left, right, dst, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    chosen = tl.where(lane % 2 == 0, left + lane, right + lane)
    tl.store(dst + lane, tl.load(chosen))


@case()
def lanes_that_point_to_two_tensors() -> Sequence[Result]:
    left, right, dst = torch.zeros(8), torch.ones(8), torch.zeros(8)
    pick_kernel[(1,)](left, right, dst, TILE=8)
    return [(dst, torch.tensor([0.0, 1.0] * 4))]
