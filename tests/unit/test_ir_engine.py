"""The IR engine on small kernels: memory paths, control flow, waiting, errors, and what memory holds afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.engines.ir.engine import IREngine
from tritontrace.kernels.arguments import bind
from tritontrace.kernels.targets import Target


def traced(kernel, grid, *args, clients=("tracer",), **kwargs):
    options = {k: kwargs.pop(k) for k in ("programs", "max_steps") if k in kwargs}
    with tritontrace.session(clients=list(clients), **options) as session:
        kernel[grid](*args, **kwargs)
    return session.launches[0]


# -- memory ------------------------------------------------------------------------------------------------------------


@triton.jit
def copy_2d(x_ptr, y_ptr, rows_ptr, M, N, sxm, sxn, sym, syn, BM: tl.constexpr, BN: tl.constexpr, GATHER: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (m[:, None] < M) & (n[None, :] < N)
    source = m
    if GATHER:
        source = tl.load(rows_ptr + m, mask=m < M, other=0)
    x = tl.load(x_ptr + source[:, None] * sxm + n[None, :] * sxn, mask=mask, other=-1.0)
    tl.store(y_ptr + m[:, None] * sym + n[None, :] * syn, x, mask=mask)


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t().contiguous().t(),
    "column slice": lambda t: torch.cat([t, t], 1)[:, : t.shape[1]],
    "every second row": lambda t: torch.repeat_interleave(t, 2, 0)[::2],
    "expanded": lambda t: t[:1].expand(*t.shape),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gather", [False, True])
def test_tiles_of_any_layout(dtype, layout, gather):
    base = (torch.randn(37, 29) * 9).to(dtype)
    x = LAYOUTS[layout](base)
    y = torch.zeros(37, 29, dtype=dtype)
    rows = torch.randperm(37).to(torch.int32)
    args = (x, y, rows, 37, 29, *x.stride(), *y.stride())
    launch = traced(copy_2d, (5, 2), *args, BM=8, BN=16, GATHER=gather, clients=("tracer", "sanitizer"))
    assert torch.equal(y, x[rows.long()] if gather else x)
    assert launch.completed and launch.findings == []


@triton.jit
def backwards(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y_ptr + n - 1 - i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def test_negative_strides():
    x, y = torch.randn(27), torch.zeros(27)
    traced(backwards, (1,), x, y, 27, B=32)
    assert torch.equal(y, x.flip(0))


@triton.jit
def one_cell(out_ptr, B: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, B) * 0, tl.program_id(0) * B + tl.arange(0, B))


def test_the_last_program_and_lane_win():
    out = torch.zeros(1, dtype=torch.int32)
    traced(one_cell, (7,), out, B=16)
    assert out.item() == 7 * 16 - 1


@triton.jit
def misaligned(bytes_ptr, out_ptr, B: tl.constexpr):
    p = (bytes_ptr + 1).to(tl.pointer_type(tl.int32))
    tl.store(out_ptr + tl.arange(0, B), tl.load(p + tl.arange(0, B)))


def test_misaligned_pointers():
    raw = torch.randint(0, 256, (33,), dtype=torch.uint8)
    out = torch.zeros(8, dtype=torch.int32)
    traced(misaligned, (1,), raw, out, B=8)
    assert out.tolist() == np.frombuffer(raw.numpy()[1:].tobytes(), np.int32).tolist()


@triton.jit
def through_table(table_ptr, out_ptr, B: tl.constexpr):
    pid = tl.program_id(0)
    p = tl.load(table_ptr + pid).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + pid * B + tl.arange(0, B), tl.load(p + tl.arange(0, B)))


def test_pointers_from_memory():
    parts = [torch.randn(8) for _ in range(5)]
    table = torch.tensor([p.data_ptr() for p in parts])
    out = torch.zeros(40)
    with tritontrace.session(clients=["sanitizer"]) as session:
        session.register_memory(parts[0])
        through_table[(5,)](table, out, B=8)
    assert torch.equal(out, torch.cat(parts))
    assert session.findings == []


# -- atomics -----------------------------------------------------------------------------------------------------------


@triton.jit
def tickets(counter_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    old = tl.atomic_add(counter_ptr + (i % 2), 1)
    tl.store(out_ptr + tl.program_id(0) * B + i, old)


def test_returned_values_of_contended_adds_are_distinct():
    counter, out = torch.zeros(2, dtype=torch.int32), torch.zeros(80, dtype=torch.int32)
    traced(tickets, (10,), counter, out, B=8)
    assert counter.tolist() == [40, 40]
    assert sorted(out[0::2].tolist()) == list(range(40)) == sorted(out[1::2].tolist())


@triton.jit
def rmw(p_ptr, v_ptr, old_ptr, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(v_ptr + i, mask=i < n, other=0)
    if OP == "max":
        old = tl.atomic_max(p_ptr + i % 3, v, mask=i < n)
    elif OP == "min":
        old = tl.atomic_min(p_ptr + i % 3, v, mask=i < n)
    elif OP == "and":
        old = tl.atomic_and(p_ptr + i % 3, v, mask=i < n)
    elif OP == "or":
        old = tl.atomic_or(p_ptr + i % 3, v, mask=i < n)
    elif OP == "xor":
        old = tl.atomic_xor(p_ptr + i % 3, v, mask=i < n)
    elif OP == "xchg":
        old = tl.atomic_xchg(p_ptr + i % 3, v, mask=i < n)
    else:
        old = tl.atomic_add(p_ptr + i % 3, v, mask=i < n)
    tl.store(old_ptr + i, old, mask=i < n)


@pytest.mark.parametrize("op", ["max", "min", "and", "or", "xor", "xchg", "add"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32])
def test_each_lane_sees_the_one_before(op, dtype):
    n = 45
    v = torch.randint(0, 2**31 - 1, (n,)).to(dtype)
    p = torch.randint(0, 2**31 - 1, (3,)).to(dtype)
    expected, olds = [int(x) for x in p.tolist()], []
    function = {
        "max": max,
        "min": min,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "xchg": lambda a, b: b,
        "add": lambda a, b: a + b,
    }[op]
    bits = torch.iinfo(dtype).bits
    for i, x in enumerate(v.tolist()):
        olds.append(expected[i % 3])
        expected[i % 3] = function(expected[i % 3], x)
    wrap = (lambda a: a % 2**bits) if dtype == torch.uint32 else (lambda a: (a + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))
    old = torch.zeros(n, dtype=dtype)
    traced(rmw, (3,), p, v, old, n, OP=op, B=16)
    assert p.tolist() == [wrap(x) for x in expected]
    assert old.tolist() == [wrap(x) for x in olds]


# -- control flow ------------------------------------------------------------------------------------------------------


@triton.jit
def collatz(x_ptr, o_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    v = tl.load(x_ptr + pid)
    steps = 0
    while v != 1:
        if v % 2 == 0:
            v = v // 2
        else:
            v = 3 * v + 1
        steps += 1
    tl.store(o_ptr + pid, steps)


def test_programs_part_and_meet_again():
    def reference(v: int) -> int:
        steps = 0
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        return steps

    x = torch.arange(1, 60, dtype=torch.int32)
    o = torch.zeros(59, dtype=torch.int32)
    traced(collatz, (70,), x, o, 59)
    assert o.tolist() == [reference(v) for v in x.tolist()]


@triton.jit
def chase(next_ptr, o_ptr):
    pid = tl.program_id(0)
    p = pid
    n = 0
    while tl.load(next_ptr + p) != p:
        p = tl.load(next_ptr + p)
        n += 1
    tl.store(o_ptr + pid, n)


def test_a_linked_list_is_no_wait():
    n = 700
    following = torch.clamp(torch.arange(n) - 1, min=0).to(torch.int32)
    o = torch.zeros(n, dtype=torch.int32)
    traced(chase, (n,), following, o)
    assert o.tolist() == list(range(n))


@triton.jit(noinline=True)
def own_number():
    return tl.program_id(0) + 1


@triton.jit
def names_itself_late(next_ptr, o_ptr, wrong):
    p = tl.program_id(0)
    while tl.load(next_ptr + p) != p:
        p = tl.load(next_ptr + p)
    tl.store(o_ptr + tl.program_id(0), own_number())
    tl.store(o_ptr + wrong, 1)


@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_programs_that_meet_again_after_a_loop_are_themselves(n: int) -> None:
    # each leaves the loop alone, and batches of one program are then merged
    following = torch.clamp(torch.arange(n) - 1, min=0).to(torch.int32)
    o = torch.zeros(n, dtype=torch.int32)
    with tritontrace.session(clients=["sanitizer"]) as session:
        names_itself_late[(n,)](following, o, n)
    assert o.tolist() == list(range(1, n + 1))
    (finding,) = session.findings
    assert finding.programs[:, 0].tolist() == list(range(n))


@triton.jit
def classify(v, limit):
    if v > limit:
        return 2
    if v < -limit:
        return 0
    return 1


@triton.jit
def use_helper(x_ptr, o_ptr, n):
    pid = tl.program_id(0)
    total = 0
    for i in range(n):
        total = total * 3 + classify(tl.load(x_ptr + (pid + i) % 8), i)
    tl.store(o_ptr + pid, total)


def test_helpers_with_early_returns_inside_loops():
    x = torch.tensor([-5, -2, -1, 0, 1, 2, 5, 9], dtype=torch.int32)
    o = torch.zeros(8, dtype=torch.int32)
    traced(use_helper, (8,), x, o, 4)
    for pid in range(8):
        total = 0
        for i in range(4):
            v = int(x[(pid + i) % 8])
            total = total * 3 + (2 if v > i else 0 if v < -i else 1)
        assert o[pid] == total


@triton.jit
def ragged(x_ptr, bounds_ptr, o_ptr):
    pid = tl.program_id(0)
    total = 0.0
    for i in range(tl.load(bounds_ptr + pid), tl.load(bounds_ptr + pid + 1)):
        total += tl.load(x_ptr + i)
    tl.store(o_ptr + pid, total)


def test_trip_counts_that_differ():
    lengths = [3, 0, 7, 1, 0, 12]
    x = torch.arange(float(sum(lengths)))
    bounds = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)
    o = torch.zeros(6)
    traced(ragged, (6,), x, bounds, o)
    assert o.tolist() == [float(part.sum()) for part in torch.split(x, lengths)]


# -- waiting -----------------------------------------------------------------------------------------------------------


@triton.jit
def wait_for_the_last(flag_ptr, o_ptr):
    pid = tl.program_id(0)
    if pid == tl.num_programs(0) - 1:
        tl.atomic_xchg(flag_ptr, 1)
    else:
        while tl.atomic_add(flag_ptr, 0) == 0:
            pass
    tl.store(o_ptr + pid, pid)


@pytest.mark.parametrize("n", [2, 3, 200_000])
def test_waiting_for_a_later_program(n):
    flag, o = torch.zeros(1, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
    traced(wait_for_the_last, (n,), flag, o)
    assert torch.equal(o, torch.arange(n, dtype=torch.int32))


@triton.jit
def baton(flag_ptr, o_ptr, n):
    pid = tl.program_id(0)
    turn = n - 1 - pid
    spins = 0
    while tl.load(flag_ptr, volatile=True) != turn:
        spins += 1
    tl.store(o_ptr + turn, pid)
    tl.store(flag_ptr, turn + 1)


def test_programs_in_an_order_that_they_choose():
    n = 50
    flag, o = torch.zeros(1, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
    traced(baton, (n,), flag, o, n)
    assert o.tolist() == list(range(n - 1, -1, -1))


@triton.jit
def acquire(lock_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass


@triton.jit
def locked_in_a_loop(acc_ptr, lock_ptr, rounds, B: tl.constexpr):
    pid = tl.program_id(0)
    for r in range(rounds):
        which = (pid + r) % 3
        acquire(lock_ptr + which)
        here = acc_ptr + which * B + tl.arange(0, B)
        tl.store(here, tl.load(here) + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock_ptr + which, 0)


def test_locks_in_helpers_in_loops():
    acc, lock = torch.zeros(3, 16, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    traced(locked_in_a_loop, (20,), acc, lock, 6, B=16)
    assert (acc == 40).all() and not lock.any()


@triton.jit
def nobody_comes(flag_ptr, o_ptr):
    tl.store(o_ptr + tl.program_id(0), 1)
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass


def test_a_deadlock_is_named():
    flag, o = torch.zeros(1, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    with tritontrace.session(clients=["tracer"]) as session, pytest.raises(tritontrace.DeadlockError) as caught:
        nobody_comes[(3,)](flag, o)
    assert caught.value.kernel == "nobody_comes"
    assert caught.value.location.line == nobody_comes.starting_line_number + 3
    assert set(caught.value.programs) == {(0, 0, 0), (1, 0, 0), (2, 0, 0)}
    assert o.tolist() == [1, 1, 1]  # as executed
    assert not session.launches[0].completed


@triton.jit
def endless(o_ptr):
    i = 0
    while i >= 0:
        i = (i + 1) % 5
    tl.store(o_ptr, i)


def test_max_steps_ends_an_endless_loop():
    with tritontrace.session(clients=["tracer"], max_steps=1000), pytest.raises(tritontrace.KernelError, match="max_steps"):
        endless[(1,)](torch.zeros(1, dtype=torch.int32))


# -- bounds and errors -------------------------------------------------------------------------------------------------


@triton.jit
def past_the_end(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i) + 1)


def test_an_access_outside_is_not_made():
    memory = torch.full((64,), 7.0)
    x, o = torch.arange(10.0), torch.zeros(6)
    with tritontrace.session(clients=["tracer"]) as session, pytest.raises(tritontrace.OutOfBoundsError) as caught:
        past_the_end[(1,)](x, o, B=16)
    assert "x_ptr" in str(caught.value) and "sanitizer" in str(caught.value)
    assert session.launches[0].completed
    assert o.tolist() == [1, 2, 3, 4, 5, 6]
    assert (memory == 7).all()
    with tritontrace.session(clients=["sanitizer"]) as session:
        past_the_end[(1,)](x, o, B=16)
    assert {f.access for f in session.findings} == {"load", "store"}


@triton.jit
def asm_kernel(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, 1.0)
    y = tl.inline_asm_elementwise("mul.f32 $0, $1, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o_ptr + i, y)


def test_an_unsupported_operation_is_refused_before_anything_is_written():
    o = torch.zeros(8)
    with tritontrace.session(clients=["tracer"]), pytest.raises(tritontrace.UnsupportedOpError, match=r"mul\.f32") as caught:
        asm_kernel[(1,)](torch.ones(8), o, B=8)
    assert caught.value.location.line == asm_kernel.starting_line_number + 5
    assert not o.any()


def test_selected_programs_only():
    x, o = torch.randn(64, 16), torch.zeros(64, 16)
    rows = torch.zeros(64, dtype=torch.int32)
    traced(copy_2d, (64, 1), x, o, rows, 64, 16, 16, 1, 16, 1, BM=1, BN=16, GATHER=False, programs=[(3, 0, 0), (9, 0, 0)])
    assert o.any(dim=1).nonzero().reshape(-1).tolist() == [3, 9]


@triton.jit
def checked(x_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.device_assert(tl.load(x_ptr + i) > 0, "must be positive")


def test_device_assert_names_the_programs():
    x = torch.ones(32)
    x[20] = -1
    with tritontrace.session(clients=["tracer"]), pytest.raises(tritontrace.KernelError, match="must be positive") as caught:
        checked[(4,)](x, B=8, debug=True)
    assert caught.value.programs == ((2, 0, 0),)
    assert isinstance(caught.value.__cause__, AssertionError)
    traced(checked, (4,), x, B=8)  # without debug the assert is not compiled in


# -- pointers that change tensor ---------------------------------------------------------------------------------------


@triton.jit
def ping_pong(a_ptr, b_ptr, n, TILES: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    source, target = a_ptr, b_ptr
    if TILES:
        source, target = a_ptr + i, b_ptr + i
        i = i * 0
    for _ in range(n):
        tl.store(target + i, tl.load(source + i) * 2)
        held = source
        source = target
        target = held
    tl.store(source + i, tl.load(source + i) + 100)


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("clients", [("tracer",), ("sanitizer",)])
def test_buffers_that_change_places_in_a_loop(tiles, n, clients):
    a, b = torch.ones(8), torch.zeros(8)
    launch = traced(ping_pong, (1,), a, b, n, TILES=tiles, B=8, clients=clients)
    source, target = 1.0, 0.0
    for _ in range(n):
        source, target = source * 2, source
    source += 100
    want = (source, target) if n % 2 == 0 else (target, source)
    assert (a[0].item(), b[0].item()) == want
    assert (a == a[0]).all() and (b == b[0]).all()
    assert launch.findings == []


# -- what is compiled once ---------------------------------------------------------------------------------------------


@triton.jit
def doubled(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i))


@triton.jit
def width_of_a_program(x_ptr):
    tl.store(x_ptr, tl.extra.cuda.num_threads())


def prepared(kernel, *args, target=None, **kwargs):
    return IREngine().prepare(bind(kernel, args, kwargs, target or Target("cuda", 90, 32)))


def test_configs_that_differ_only_for_later_stages_share_one_program():
    x = torch.ones(16)
    first = prepared(doubled, x, B=16, num_warps=4)
    assert prepared(doubled, x, B=16, num_warps=8, num_stages=5) is first
    assert prepared(doubled, x, B=16) is first
    assert prepared(doubled, x, B=8, num_warps=4) is not first
    assert prepared(doubled, x.double(), B=16, num_warps=4) is not first
    assert prepared(doubled, x, B=16, num_warps=4, target=Target("hip", "gfx942", 64)) is not first


def test_a_kernel_that_reads_an_option_is_compiled_for_each_value():
    x = torch.zeros(1, dtype=torch.int32)
    for warps in (4, 8, 4, 1):
        traced(width_of_a_program, (1,), x, num_warps=warps, num_stages=warps)
        assert x.item() == 32 * warps
    y = torch.ones(16, dtype=torch.int32)
    checked = prepared(doubled, y, B=16, sanitize_overflow=True)
    assert prepared(doubled, y, B=16, sanitize_overflow=True, num_warps=8) is checked
    assert prepared(doubled, y, B=16, sanitize_overflow=False) is not checked


def test_a_bad_option_is_refused_even_where_a_program_would_serve():
    x = torch.ones(16)
    prepared(doubled, x, B=16)
    with pytest.raises(AssertionError, match="num_warps must be a power of 2"):
        prepared(doubled, x, B=16, num_warps=3)
