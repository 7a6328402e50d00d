"""Programs that meet in memory, with and without order. Lines with a comment ``# fault: tag`` hold an access of a race."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl

from tests.cases.common import Case, Fault, Result

CASES: list[Case] = []


def case(*faults: Fault) -> Callable[[Callable[[], Sequence[Result]]], Callable[[], Sequence[Result]]]:
    """Registers a function that launches, named after itself."""

    def register(run: Callable[[], Sequence[Result]]) -> Callable[[], Sequence[Result]]:
        CASES.append(Case(run.__name__, run, faults))
        return run

    return register


def race(
    at: str, access: str, tensor: str | None, programs: Sequence[int], elements: Sequence[int], other: str, **more: object
) -> Fault:
    """A race between programs of a one-dimensional grid; `other` is the tag of the second access."""
    with_zeros = [(p, 0, 0) for p in programs]
    return Fault(at, access, tensor, with_zeros, elements, kind="race", other_at=other, **more)  # type: ignore[arg-type]


# -- plain accesses ----------------------------------------------------------------------------------------------------


@triton.jit
def shifted_kernel(x, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    right = tl.load(x + at + 1, mask=at + 1 < count, other=0.0)  # fault: reads the neighbour's first
    tl.store(x + at, right, mask=at < count)  # fault: in place


@case(race("in place", "store", "x", [1, 2], [16, 32], "reads the neighbour's first"))
def shift_in_place() -> Sequence[Result]:
    x = torch.arange(40.0)
    shifted_kernel[(3,)](x, 40, TILE=16)
    return []


@case()
def shift_in_place_by_one_program() -> Sequence[Result]:
    x = torch.arange(40.0)
    shifted_kernel[(1,)](x, 40, TILE=64)
    return [(x, torch.cat([torch.arange(1.0, 40.0), torch.zeros(1)]))]


@triton.jit
def in_place_kernel(x, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = x + row[:, None] * columns + column[None, :]
    live = (row[:, None] < rows) & (column[None, :] < columns)
    tl.store(at, tl.load(at, mask=live) * 2, mask=live)


@case()
def tiles_in_place() -> Sequence[Result]:
    x = torch.randn(37, 53)
    want = x * 2
    in_place_kernel[(5, 7)](x, 37, 53, ROWS=8, COLUMNS=8)
    return [(x, want)]


@triton.jit
def rotary_kernel(x, HALF: tl.constexpr):
    at = x + tl.program_id(0) * 2 * HALF + 2 * tl.arange(0, HALF)
    even, odd = tl.load(at), tl.load(at + 1)
    tl.store(at, -odd)
    tl.store(at + 1, even)


@case()
def interleaved_in_place() -> Sequence[Result]:
    x = torch.randn(6, 32)
    want = torch.stack([-x[:, 1::2], x[:, ::2]], 2).reshape(6, 32)
    rotary_kernel[(6,)](x, HALF=16)
    return [(x, want)]


@triton.jit
def wide_kernel(x, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(x + at, at.to(tl.int8))


@case()
def neighbouring_bytes() -> Sequence[Result]:
    x = torch.zeros(64, dtype=torch.int8)
    wide_kernel[(16,)](x, TILE=4)
    return [(x, torch.arange(64, dtype=torch.int8))]


@triton.jit
def two_widths_kernel(x, TILE: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(x.to(tl.pointer_type(tl.int32), bitcast=True) + tl.arange(0, TILE), 7)  # fault: four bytes each
    else:
        tl.store(x + TILE * 4 - 2 + tl.arange(0, 4), 9)  # fault: single bytes


@case(race("four bytes each", "store", "x", [0], [7], "single bytes"))
def half_of_an_element() -> Sequence[Result]:
    x = torch.zeros(64, dtype=torch.int8)
    two_widths_kernel[(2,)](x, TILE=8)
    return []


@triton.jit
def row_mean_kernel(x, means, columns, TILE: tl.constexpr):
    row = tl.program_id(0)
    values = tl.load(x + row * columns + tl.arange(0, TILE), mask=tl.arange(0, TILE) < columns, other=0.0)
    tl.store(means + row, tl.sum(values, 0) / columns)  # fault: once for each block of columns


@case(
    Fault(
        "once for each block of columns",
        "store",
        "means",
        [(x, y, 0) for y in range(3) for x in range(4)],
        [0, 1, 2, 3],
        kind="race",
        other_at="once for each block of columns",
        benign=True,
    )
)
def the_same_mean_from_several_programs() -> Sequence[Result]:
    x, means = torch.randn(4, 20), torch.zeros(4)
    row_mean_kernel[(4, 3)](x, means, 20, TILE=32)
    return [(means, x.mean(1))]


@triton.jit
def maybe_differing_kernel(flag, value):
    tl.store(flag, 1 + (tl.program_id(0) // 5) * value)  # fault: one program of six differs


@case(race("one program of six differs", "store", "flag", range(6), [0], "one program of six differs"))
def nearly_benign() -> Sequence[Result]:
    flag = torch.zeros(1, dtype=torch.int32)
    maybe_differing_kernel[(6,)](flag, 1)
    return []


@case(race("one program of six differs", "store", "flag", range(6), [0], "one program of six differs", benign=True))
def benign_over_what_was_there() -> Sequence[Result]:
    flag = torch.full((1,), 5, dtype=torch.int32)
    maybe_differing_kernel[(6,)](flag, 0)
    return [(flag, torch.ones(1, dtype=torch.int32))]


@triton.jit
def lanes_kernel(x, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    tl.store(x + tl.program_id(0) * TILE + lane // 2, lane)  # fault: two lanes, one element


@case(
    Fault(
        "two lanes, one element",
        "store",
        "x",
        [(0, 0, 0), (1, 0, 0)],
        {(0, 0, 0): range(4), (1, 0, 0): range(8, 12)},
        kind="race",
        other_at="two lanes, one element",
    )
)
def lanes_of_one_store() -> Sequence[Result]:
    x = torch.zeros(16, dtype=torch.int32)
    lanes_kernel[(2,)](x, TILE=8)
    return []


@triton.jit
def scatter_kernel(index, x, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(x + tl.load(index + at), at)  # fault: scattered


@case()
def scatter_of_a_permutation() -> Sequence[Result]:
    index = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    x = torch.zeros(64, dtype=torch.int32)
    scatter_kernel[(8,)](index, x, TILE=8)
    return [(x[index], torch.arange(64, dtype=torch.int32))]


@case(race("scattered", "store", "x", [0, 7], [5], "scattered"))
def scatter_that_repeats() -> Sequence[Result]:
    index = torch.arange(64)
    index[63] = 5
    scatter_kernel[(8,)](index, torch.zeros(64, dtype=torch.int32), TILE=8)
    return []


@triton.jit
def strided_kernel(x, out, rows, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at * rows + tl.program_id(0), tl.load(x + tl.program_id(0) * TILE + at))


@case()
def transposed_store() -> Sequence[Result]:
    x, out = torch.randn(12, 16), torch.zeros(16, 12)
    strided_kernel[(12,)](x, out, 12, TILE=16)
    return [(out, x.t())]


# -- atomics -----------------------------------------------------------------------------------------------------------


@triton.jit
def split_kernel(x, out, columns, SPLIT: tl.constexpr, TILE: tl.constexpr, ATOMIC: tl.constexpr):
    row, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    values = tl.load(x + row * columns + part * TILE + tl.arange(0, TILE))
    total = tl.sum(values, 0)
    if ATOMIC:
        tl.atomic_add(out + row, total, sem="relaxed")
    else:
        tl.store(out + row, tl.load(out + row) + total)  # fault: split without atomics


@case()
def split_sum_with_atomics() -> Sequence[Result]:
    x, out = torch.randn(3, 64), torch.zeros(3)
    split_kernel[(12,)](x, out, 64, SPLIT=4, TILE=16, ATOMIC=True)
    return [(out, x.sum(1))]


@case(race("split without atomics", "store", "out", range(12), [0, 1, 2], "split without atomics"))
def split_sum_with_plain_stores() -> Sequence[Result]:
    split_kernel[(12,)](torch.randn(3, 64), torch.zeros(3), 64, SPLIT=4, TILE=16, ATOMIC=False)
    return []


@triton.jit
def zeroing_kernel(out, WHO: tl.constexpr):
    if tl.program_id(0) == WHO:
        tl.store(out, 0)  # fault: zeroed among additions
    tl.atomic_add(out, 1)  # fault: added


@case(race("zeroed among additions", "store", "out", [2], [0], "added"))
def zeroed_by_one_of_those_who_add() -> Sequence[Result]:
    zeroing_kernel[(4,)](torch.zeros(1, dtype=torch.int32), WHO=2)
    return []


@triton.jit
def peeking_kernel(count, out):
    tl.atomic_add(count, 1)  # fault: counted
    tl.store(out + tl.program_id(0), tl.load(count))  # fault: peeked


@case(race("peeked", "load", "count", range(4), [0], "counted"))
def plain_read_of_an_atomic_counter() -> Sequence[Result]:
    peeking_kernel[(4,)](torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32))
    return []


@triton.jit
def own_scope_kernel(count):
    tl.atomic_add(count, 1, scope="cta")  # fault: atomic for itself only


@case(race("atomic for itself only", "atomic", "count", range(3), [0], "atomic for itself only"))
def additions_at_the_scope_of_a_program() -> Sequence[Result]:
    own_scope_kernel[(3,)](torch.zeros(1, dtype=torch.int32))
    return []


# -- order -------------------------------------------------------------------------------------------------------------


@triton.jit
def lock_kernel(x, total, lock, TAKE: tl.constexpr, GIVE: tl.constexpr, SCOPE: tl.constexpr, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    value = tl.load(x + tl.program_id(0) * TILE + lane)
    while tl.atomic_cas(lock, 0, 1, sem=TAKE, scope=SCOPE) == 1:  # fault: taking the lock
        pass
    before = tl.load(total + lane)  # fault: read under the lock
    tl.store(total + lane, before + value)  # fault: written under the lock
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=GIVE, scope=SCOPE)  # fault: the lock itself


def _locked(take: str, give: str, scope: str = "gpu") -> Sequence[Result]:
    x, total = torch.randn(5, 8), torch.zeros(8)
    lock_kernel[(5,)](x, total, torch.zeros(1, dtype=torch.int32), TAKE=take, GIVE=give, SCOPE=scope, TILE=8)
    return [(total, x.sum(0))]


_UNDER_THE_LOCK = race("written under the lock", "store", "total", range(5), range(8), "read under the lock")


@case()
def a_lock() -> Sequence[Result]:
    return _locked("acq_rel", "acq_rel")


@case()
def a_lock_of_acquire_and_release() -> Sequence[Result]:
    return _locked("acquire", "release")


@case()
def a_lock_of_the_whole_system() -> Sequence[Result]:
    return _locked("acquire", "release", "sys")


@case(_UNDER_THE_LOCK)
def a_lock_taken_relaxed() -> Sequence[Result]:
    return _locked("relaxed", "release")


@case(_UNDER_THE_LOCK)
def a_lock_given_back_relaxed() -> Sequence[Result]:
    return _locked("acquire", "relaxed")


@case(
    _UNDER_THE_LOCK,
    race("taking the lock", "atomic", "lock", range(5), [0], "the lock itself"),
    race("the lock itself", "atomic", "lock", range(5), [0], "taking the lock"),
)
def a_lock_at_the_scope_of_a_program() -> Sequence[Result]:
    return _locked("acquire", "release", "cta")


@triton.jit
def last_block_kernel(x, partial, count, out, SEM: tl.constexpr, TILE: tl.constexpr, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(partial + pid, tl.sum(tl.load(x + pid * TILE + tl.arange(0, TILE)), 0))  # fault: partial sum
    tl.debug_barrier()
    if tl.atomic_add(count, 1, sem=SEM) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PROGRAMS)), 0))  # fault: the last one reads


def _last_block(sem: str) -> Sequence[Result]:
    x, out = torch.randn(8, 16), torch.zeros(1)
    count = torch.zeros(1, dtype=torch.int32)
    last_block_kernel[(8,)](x, torch.zeros(8), count, out, SEM=sem, TILE=16, PROGRAMS=8)
    return [(out, x.sum().reshape(1))]


@case()
def the_last_block_reduces() -> Sequence[Result]:
    return _last_block("acq_rel")


@case(race("partial sum", "store", "partial", range(7), range(7), "the last one reads"))
def the_last_block_reduces_after_relaxed_atomics() -> Sequence[Result]:
    return _last_block("relaxed")


@case(race("partial sum", "store", "partial", range(7), range(7), "the last one reads"))
def the_last_block_does_not_acquire() -> Sequence[Result]:
    return _last_block("release")


@case(race("partial sum", "store", "partial", range(7), range(7), "the last one reads"))
def the_others_do_not_release() -> Sequence[Result]:
    return _last_block("acquire")


@triton.jit
def flag_kernel(data, flag, out, KIND: tl.constexpr):
    if tl.program_id(0) == 1:
        tl.store(data, 42)  # fault: data sent
        if KIND == "atomic":
            tl.atomic_xchg(flag, 1, sem="release")
        elif KIND == "relaxed":
            tl.atomic_xchg(flag, 1, sem="relaxed")
        else:
            tl.store(flag, 1)  # fault: flag set
    else:
        if KIND == "plain":
            while tl.load(flag) == 0:  # fault: flag awaited
                pass
        elif KIND == "volatile":
            while tl.load(flag, volatile=True) == 0:  # fault: flag awaited by a volatile load
                pass
        else:
            while tl.atomic_add(flag, 0, sem="acquire") == 0:
                pass
        tl.store(out, tl.load(data))  # fault: data received


def _flagged(kind: str) -> Sequence[Result]:
    data, flag, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    flag_kernel[(2,)](data, flag, out, KIND=kind)
    return [(out, torch.full((1,), 42, dtype=torch.int32))]


_SENT = race("data sent", "store", "data", [1], [0], "data received")


@case()
def a_flag() -> Sequence[Result]:
    return _flagged("atomic")


@case(_SENT)
def a_flag_set_relaxed() -> Sequence[Result]:
    return _flagged("relaxed")


@case(_SENT, race("flag set", "store", "flag", [1], [0], "flag awaited"))
def a_plain_flag() -> Sequence[Result]:
    return _flagged("plain")


@case(_SENT, race("flag set", "store", "flag", [1], [0], "flag awaited by a volatile load"))
def a_plain_flag_awaited_by_volatile_loads() -> Sequence[Result]:
    return _flagged("volatile")


@triton.jit
def barrier_kernel(x, count, out, PROGRAMS: tl.constexpr, SEM: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(x + pid, pid + 1)  # fault: before the barrier
    tl.atomic_add(count, 1, sem=SEM)
    while tl.atomic_add(count, 0, sem=SEM) < PROGRAMS:
        pass
    tl.store(out + pid, tl.load(x + (pid + 1) % PROGRAMS))  # fault: behind the barrier


def _barrier(sem: str) -> Sequence[Result]:
    x, out = torch.zeros(6, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    barrier_kernel[(6,)](x, torch.zeros(1, dtype=torch.int32), out, PROGRAMS=6, SEM=sem)
    return [(out, torch.tensor([2, 3, 4, 5, 6, 1], dtype=torch.int32))]


@case()
def a_barrier_of_the_grid() -> Sequence[Result]:
    return _barrier("acq_rel")


@case(race("before the barrier", "store", "x", range(6), range(6), "behind the barrier"))
def a_barrier_of_relaxed_atomics() -> Sequence[Result]:
    return _barrier("relaxed")


@triton.jit
def unawaited_kernel(x, count, out, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(x + pid, pid + 1)  # fault: before nothing
    tl.atomic_add(count, 1)  # nobody looks at the result: it puts no program behind another
    tl.store(out + pid, tl.load(x + (pid + 1) % PROGRAMS))  # fault: behind nothing


@case(race("before nothing", "store", "x", range(6), range(6), "behind nothing"))
def an_atomic_that_nobody_waits_for() -> Sequence[Result]:
    x, out = torch.zeros(6, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    unawaited_kernel[(6,)](x, torch.zeros(1, dtype=torch.int32), out, PROGRAMS=6)
    return []


@triton.jit
def semaphore_kernel(x, total, turn, TILE: tl.constexpr, GIVE: tl.constexpr):
    """Programs add up in the order of their ids, one after another."""
    pid = tl.program_id(0)
    lane = tl.arange(0, TILE)
    value = tl.load(x + pid * TILE + lane)
    while tl.atomic_add(turn, 0, sem="acquire") != pid:
        pass
    tl.store(total + lane, tl.load(total + lane) + value)  # fault: in turn
    tl.atomic_add(turn, 1, sem=GIVE)


@case()
def a_semaphore() -> Sequence[Result]:
    x, total = torch.randn(6, 8), torch.zeros(8)
    semaphore_kernel[(6,)](x, total, torch.zeros(1, dtype=torch.int32), TILE=8, GIVE="release")
    return [(total, x.sum(0))]


@case(race("in turn", "store", "total", range(6), range(8), "in turn"))
def a_semaphore_passed_on_relaxed() -> Sequence[Result]:
    x, total = torch.randn(6, 8), torch.zeros(8)
    semaphore_kernel[(6,)](x, total, torch.zeros(1, dtype=torch.int32), TILE=8, GIVE="relaxed")
    return []


@triton.jit
def unlock_kernel(x, total, lock, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    value = tl.load(x + tl.program_id(0) * TILE + lane)
    while tl.atomic_cas(lock, 0, 1) == 1:  # fault: taken by an atomic
        pass
    before = tl.load(total + lane)  # fault: read before a plain unlock
    tl.store(total + lane, before + value)  # fault: written before a plain unlock
    tl.store(lock, 0)  # fault: given back by a store


@case(
    race("written before a plain unlock", "store", "total", range(4), range(8), "read before a plain unlock"),
    race("given back by a store", "store", "lock", range(4), [0], "taken by an atomic"),
)
def a_lock_given_back_by_a_plain_store() -> Sequence[Result]:
    x, total = torch.randn(4, 8), torch.zeros(8)
    unlock_kernel[(4,)](x, total, torch.zeros(1, dtype=torch.int32), TILE=8)
    return []


@triton.jit
def helper_store(pointer, value):
    tl.store(pointer, value)  # fault: inside a helper


@triton.jit
def calling_kernel(out):
    helper_store(out, tl.program_id(0))  # fault: the helper is called


@case(race("inside a helper", "store", "out", [0, 1, 2], [0], "inside a helper", called_at="the helper is called"))
def in_a_helper() -> Sequence[Result]:
    calling_kernel[(3,)](torch.zeros(1, dtype=torch.int32))
    return []


@triton.jit
def list_kernel(lists, out, TILE: tl.constexpr):
    """Tensors by their addresses: each program its own, but the last two share one."""
    pid = tl.program_id(0)
    target = tl.load(lists + pid).to(tl.pointer_type(tl.float32))
    tl.store(target + tl.arange(0, TILE), pid.to(tl.float32))  # fault: through a stored pointer
    tl.store(out + pid, 1.0)


@case(race("through a stored pointer", "store", None, [2, 3], [], "through a stored pointer"))
def through_stored_pointers() -> Sequence[Result]:
    tensors = [torch.zeros(8) for _ in range(3)]
    lists = torch.tensor([t.data_ptr() for t in (*tensors, tensors[2])])
    out = torch.zeros(4)
    list_kernel[(4,)](lists, out, TILE=8)
    return [(tensors[0], torch.zeros(8)), (tensors[1], torch.ones(8)), (out, torch.ones(4))]
