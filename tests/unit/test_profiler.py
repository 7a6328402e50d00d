"""The profiler's counts on whole launches, against closed forms."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from examples.kernels.attention import causal_attention
from examples.kernels.histogram import histogram
from examples.kernels.matmul import matmul
from examples.kernels.softmax import softmax
from tritontrace.clients.profiling.devices import DEVICES
from tritontrace.clients.profiling.profile import AccessProfile, Profile
from tritontrace.clients.profiling.work import classify, roofline
from tritontrace.reports.data import as_dict


def profile(run: Any, **options: Any) -> Profile:
    """The profile of the one launch that `run` makes."""
    options.setdefault("compile", False)
    with tritontrace.session(tritontrace.Profiler(**options)) as session:
        run()
    (launch,) = session.launches
    (found,) = launch.records["profiler"]
    return found


def access(found: Profile, kind: str, tensor: str) -> AccessProfile:
    (one,) = [entry for entry in found.accesses if entry.kind == kind and entry.tensor == tensor]
    return one


# -- closed forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, unit", [(torch.float16, "tensor_core"), (torch.float32, "fp32")])
def test_matmul(dtype: torch.dtype, unit: str) -> None:
    m, n, k, tile, size = 192, 128, 256, 64, dtype.itemsize
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    found = profile(lambda: matmul(a, b, block=tile, block_k=32))

    assert found.flops == {unit: 2 * m * n * k}
    assert found.bytes_useful == found.bytes_requested == size * (m * k * (n // tile) + k * n * (m // tile) + m * n)
    assert found.bytes_read == size * (m * k + k * n)
    assert found.bytes_written == size * m * n
    assert found.intensity == 2 * m * n * k / (size * (m * k + k * n + m * n))
    of_a = access(found, "load", "a_ptr")
    assert (of_a.reuse, of_a.sector_ratio, of_a.contiguity) == (n // tile, 1.0, 32.0)
    assert of_a.executions == (m // tile) * (n // tile) * (k // 32)
    (loop,) = found.loops
    assert (loop.entries, loop.least, loop.most, loop.iterations) == ((m // tile) * (n // tile), 8, 8, 8 * 6)


def test_matmul_whose_accumulation_is_written_as_an_addition_has_the_same_flops() -> None:
    a, c = torch.randn(64, 64), torch.empty(64, 64)
    found = profile(lambda: sum_of_dots_kernel[(1,)](a, c, 64, TILE=32))
    assert found.flops == {"tensor_core": 2 * 64 * 32 * 32}
    assert found.dot_flops == {"tf32": 2 * 64 * 32 * 32}


@triton.jit
def sum_of_dots_kernel(a, c, k, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, k, TILE):
        x = tl.load(a + at[:, None] * 64 + (start + at)[None, :])
        total += tl.dot(x, x, input_precision="tf32")
    tl.store(c + at[:, None] * 64 + at[None, :], total)


@pytest.mark.parametrize("rows, cols", [(37, 781), (64, 1024), (3, 5)])
def test_softmax(rows: int, cols: int) -> None:
    x = torch.randn(rows, cols)
    found = profile(lambda: softmax(x))

    block = triton.next_power_of_2(cols)
    # a maximum, a difference and a sum; an exponential and a quotient
    assert found.flops == {"fp32": rows * ((block - 1) + block + (block - 1)), "special": rows * 2 * block}
    assert found.bytes_requested == 2 * 4 * rows * block
    assert found.bytes_useful == 2 * 4 * rows * cols
    assert found.bytes_read == found.bytes_written == 4 * rows * cols
    load = access(found, "load", "in_ptr")
    assert load.masked_lanes == rows * (block - cols)
    first = [4 * cols * row + x.data_ptr() for row in range(rows)]
    assert load.sectors == sum((start + 4 * cols - 1) // 32 - start // 32 + 1 for start in first)
    assert load.sectors_minimum == rows * math.ceil(4 * cols / 32)
    assert load.contiguity == cols
    assert found.loops == ()


@pytest.mark.parametrize("dtype, unit", [(torch.float16, "tensor_core"), (torch.float32, "fp32")])
def test_attention(dtype: torch.dtype, unit: str) -> None:
    heads, rows, dim, block, size = 3, 192, 64, 64, dtype.itemsize
    q, k, v = (torch.randn(heads, rows, dim).to(dtype) for _ in range(3))
    found = profile(lambda: causal_attention(q, k, v, block=block))

    keys = block // 2
    tiles = rows // block
    steps = heads * sum(2 * tile + 2 for tile in range(tiles))  # key tiles up to the diagonal, over all programs
    programs = heads * tiles
    dots = steps * 4 * block * keys * dim
    # Per step: scale, running maximum, difference, sum (one for each score), rescaling of the accumulator and the sum.
    plain = steps * (4 * block * keys + block * dim + 2 * block) + programs * (block + 1)
    special = steps * (block * keys + block) + programs * (block * dim + block)
    want = {"fp32": plain, "special": special}
    want[unit] = want.get(unit, 0) + dots
    assert found.flops == want

    assert sum(a.bytes_useful for a in found.accesses if a.tensor == "q_ptr") == size * heads * rows * dim
    for tensor in ("k_ptr", "v_ptr"):
        assert sum(a.bytes_useful for a in found.accesses if a.tensor == tensor) == size * steps * keys * dim
    assert found.bytes_read == 3 * size * heads * rows * dim
    assert found.bytes_written == size * heads * rows * dim + 4 * heads * rows  # the result and the log-sum-exp
    left, diagonal = found.loops
    assert (left.entries, left.least, left.most) == (programs, 0, 2 * (tiles - 1))
    assert (diagonal.entries, diagonal.least, diagonal.most) == (programs, 2, 2)
    assert left.iterations + diagonal.iterations == steps


# -- accesses ----------------------------------------------------------------------------------------------------------


@triton.jit
def column_kernel(x, out, n, stride, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at * stride, mask=at < n), mask=at < n)


def test_a_column_touches_a_sector_for_each_element() -> None:
    x, out = torch.randn(500, 16), torch.empty(500)
    found = profile(lambda: column_kernel[(8,)](x, out, 500, 16, TILE=64))
    column = access(found, "load", "x")
    assert (column.sectors, column.contiguity) == (500, 1.0)
    assert column.sectors_minimum == 7 * 8 + math.ceil(52 * 4 / 32)  # seven whole tiles and 52 elements
    assert column.bytes_distinct == 4 * 500
    assert any("32-byte sectors" in hint and "loads x" in hint for hint in found.hints)


@triton.jit
def broadcast_kernel(table, out, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    value = tl.load(table + (at // TILE)[:, None] + (at * 0)[None, :])
    tl.store(out + tl.program_id(0) * TILE * TILE + at[:, None] * TILE + at[None, :], value)


def test_lanes_that_share_an_address_are_useful_bytes_but_one_element() -> None:
    table, out = torch.ones(1), torch.empty(4, 16, 16)
    one = access(profile(lambda: broadcast_kernel[(4,)](table, out, TILE=16)), "load", "table")
    assert (one.bytes_useful, one.bytes_distinct, one.reuse) == (4 * 4 * 256, 4, 4 * 256)
    assert (one.sectors, one.sectors_minimum, one.sector_ratio) == (4, 4, 1.0)


@triton.jit
def shifted_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    left = tl.load(x + at - 1, mask=(at > 0) & (at < n), other=0.0)
    right = tl.load(x + at + 1, mask=at < n - 1, other=0.0)
    tl.store(out + at, left + right, mask=at < n)


def test_bytes_that_two_sites_read_count_once() -> None:
    x, out = torch.randn(1000), torch.empty(1000)
    found = profile(lambda: shifted_kernel[(8,)](x, out, 1000, TILE=128))
    assert sum(a.bytes_useful for a in found.accesses if a.kind == "load") == 2 * 4 * 999
    assert found.bytes_read == 4 * 1000


@triton.jit
def gather_kernel(index, x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + tl.load(index + at, mask=at < n, other=0), mask=at < n), mask=at < n)


def test_addresses_from_data() -> None:
    index = torch.randint(0, 4000, (1000,), generator=torch.Generator().manual_seed(3))
    x, out = torch.randn(4000), torch.empty(1000)
    one = access(profile(lambda: gather_kernel[(8,)](index, x, out, 1000, TILE=128)), "load", "x")
    tiles = [index[start : start + 128] + x.data_ptr() // 4 for start in range(0, 1000, 128)]
    assert one.sectors == sum(len((tile // 8).unique()) for tile in tiles)
    assert one.sectors_minimum == sum(math.ceil(len(tile.unique()) / 8) for tile in tiles)
    assert one.bytes_distinct == 4 * len(index.unique())


@triton.jit
def pointers_kernel(table, out, n, TILE: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, TILE)
    source = tl.load(table + program).to(tl.pointer_type(tl.float32))
    tl.store(out + program * TILE + at, tl.load(source + at, mask=at < n), mask=at < n)


def test_pointers_that_were_read_from_memory() -> None:
    tensors = [torch.randn(64) for _ in range(5)]
    table, out = torch.tensor([t.data_ptr() for t in tensors]), torch.empty(5, 64)
    found = profile(lambda: pointers_kernel[(5,)](table, out, 50, TILE=64))
    through = [a for a in found.accesses if a.kind == "load" and a.tensor not in ("table",)]
    assert sum(a.bytes_useful for a in through) == sum(a.bytes_distinct for a in through) == 5 * 50 * 4
    assert found.bytes_read == 5 * 8 + 5 * 50 * 4


def test_contention_of_a_histogram() -> None:
    x = torch.randint(0, 7, (2000,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    counts = torch.bincount(x)
    found = profile(lambda: histogram(x, 8, block=256, scatter=True))
    one = access(found, "atomic", "out_ptr")
    assert one.operation == "add" and one.contention is not None
    assert one.active_lanes == 2000
    assert one.contention.elements == 7
    assert one.contention.most == int(counts.max()) and one.contention.hottest == int(counts.argmax())
    tiles = [x[start : start + 256] for start in range(0, 2000, 256)]
    assert one.contention.conflicts == sum(len(tile) - len(tile.unique()) for tile in tiles)
    assert found.bytes_written == 4 * 7


# -- loops and control flow --------------------------------------------------------------------------------------------


@triton.jit
def ragged_kernel(lengths, out):
    program = tl.program_id(0)
    total = 0.0
    for i in range(tl.load(lengths + program)):
        total += i * 1.5
    left = tl.load(lengths + program)
    while left > 1:
        left = left // 2
        total += 1.0
    tl.store(out + program, total)


@triton.jit
def early_kernel(lengths, out):
    program = tl.program_id(0)
    n = tl.load(lengths + program)
    if n == 0:
        return
    total = 0.0
    for i in range(n):
        total += i * 1.5
    while n > 1:
        n = n // 2
        total += 1.0
    tl.store(out + program, total)


@pytest.mark.parametrize("kernel, lengths", [(ragged_kernel, [5, 0, 3, 9, 1, 1]), (early_kernel, [5, 0, 3, 9, 0, 1])])
def test_trip_counts_and_work_follow_the_programs(kernel: Any, lengths: list[int]) -> None:
    sizes, out = torch.tensor(lengths, dtype=torch.int32), torch.zeros(6)
    found = profile(lambda: kernel[(6,)](sizes, out))
    inside = [n for n in lengths if n or kernel is ragged_kernel]
    halvings = [max(0, n.bit_length() - 1) for n in inside]
    first, second = found.loops
    assert (first.kind, first.entries, first.iterations) == ("for", len(inside), sum(lengths))
    assert (first.least, first.most) == (min(inside), max(inside))
    assert (second.kind, second.entries, second.iterations) == ("while", len(inside), sum(halvings))
    assert (second.least, second.most) == (min(halvings), max(halvings))
    assert found.flops == {"fp32": 2 * sum(lengths) + sum(halvings)}


# -- what flops are ----------------------------------------------------------------------------------------------------


@triton.jit
def units_kernel(x, y, out, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    a = tl.load(x + at)
    b = tl.fma(a, a, a) - tl.abs(-a)  # 3: a multiply-add is two, signs are free
    b = tl.maximum(b, a) + tl.sqrt(a) / 3.0  # 2, and 2 special
    c = tl.where(a > b, tl.floor(b), a.to(tl.int32).to(tl.float32))  # none
    d = tl.load(y + at)
    tl.store(out + at, c + tl.exp(b) + (d * d + d).to(tl.float32))  # 2 and 1 special; 2 in 64 bits


def test_units() -> None:
    x, y, out = torch.rand(64), torch.rand(64, dtype=torch.float64), torch.empty(64)
    assert profile(lambda: units_kernel[(1,)](x, y, out, TILE=64)).flops == {"fp32": 64 * 7, "special": 64 * 3, "fp64": 64 * 2}


def test_classification() -> None:
    assert classify("tt.dot", "fp16") == ("tensor_core", 2)
    assert classify("tt.dot", "fp32") == ("fp32", 2)
    assert classify("tt.extern_elementwise:__nv_erff", "fp32") == ("special", 1)
    assert classify("arith.addi", "i32") is None
    assert classify("arith.cmpf", "i1") is None


def test_roofline_is_the_longest_of_the_least_times() -> None:
    h100 = DEVICES["cuda:90"]
    dots = 1 << 40
    found = roofline("cuda:90", {"tensor_core": dots, "fp32": 1000}, {"fp16": dots}, 1 << 30)
    assert found is not None and found.bound == "tensor_core"
    assert found.seconds["tensor_core"] == dots / 989.5e12
    assert found.seconds["memory"] == (1 << 30) / h100.bandwidth
    assert found.attainable == pytest.approx(989.5e12, rel=1e-6)
    memory = roofline("cuda:90", {"fp32": 1000}, {}, 1 << 30)
    assert memory is not None and memory.bound == "memory"
    assert memory.ridge == pytest.approx(67e12 / 3350e9)
    # A type without units of its own runs in a wider one; three products make one of tf32x3.
    eight = roofline("cuda:80", {"tensor_core": 312}, {"fp8e4nv": 312}, 1)
    assert eight is not None and eight.seconds["tensor_core"] == pytest.approx(1e-12)
    three = roofline("cuda:90", {"tensor_core": 2}, {"tf32x3": 2}, 1)
    assert three is not None and three.seconds["tensor_core"] == pytest.approx(6 / 494.5e12)
    assert roofline("cuda:61", {"fp32": 1}, {}, 1) is None


# -- the client --------------------------------------------------------------------------------------------------------


def test_counting_some_programs_runs_all() -> None:
    x = torch.randn(1000, 128)
    out: list[torch.Tensor] = []
    found = profile(lambda: out.append(softmax(x)), programs=[(3,), (999,), (5, 0), (5, 0, 0), (4000,)])
    torch.testing.assert_close(out[0], x.softmax(1))
    assert found.programs == 3
    assert found.flops == {"fp32": 3 * (127 + 128 + 127), "special": 3 * 256}
    assert found.bytes_read == 3 * 128 * 4
    with pytest.raises(ValueError, match="one to three"):
        tritontrace.Profiler(programs=[()])


def test_to_dict_is_json_and_the_report_shows_the_lines() -> None:
    with tritontrace.session([tritontrace.Profiler(compile=False, target="cuda:80"), "sanitizer", "tracer"]) as session:
        softmax(torch.randn(8, 100))
    (launch,) = session.launches
    (found,) = launch.records["profiler"]
    data = json.loads(json.dumps(found.to_dict()))
    assert data["schema_version"] == 1 and data["kernel"] == "softmax_kernel" and data["roofline"]["device"] == "A100 SXM 80GB"
    assert data["accesses"][0]["bytes_useful"] == 8 * 100 * 4
    assert as_dict(session)["profiles"] == [{"launch": 0, **data}]
    text = session.report()
    assert "profile of softmax_kernel[8, 1, 1], launch 0, for cuda:80" in text
    assert "load in_ptr fp32" in text and "22%" in text and "bound by" in text
    assert "22% of the lanes" not in text  # too few to speak of


def test_a_launch_that_fails_still_has_the_profile_of_what_ran() -> None:
    x, out = torch.randn(100), torch.empty(100)
    with pytest.raises(tritontrace.OutOfBoundsError), tritontrace.session(tritontrace.Profiler(compile=False)) as session:
        column_kernel[(1,)](x, out, 128, 1, TILE=128)
    (found,) = session.launches[0].records["profiler"]
    # What lies outside is asked for but not accessed.
    one = access(found, "load", "x")
    assert (one.bytes_useful, one.bytes_distinct) == (4 * 128, 4 * 100)


def test_launches_on_several_threads_are_counted_apart() -> None:
    with tritontrace.session(tritontrace.Profiler(compile=False)) as session:
        run = tritontrace.propagate(lambda rows: softmax(torch.randn(rows, 64)))
        threads = [threading.Thread(target=run, args=(rows,)) for rows in (1, 20, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read = {launch.grid[0]: launch.records["profiler"][0].bytes_read for launch in session.launches}
    assert read == {rows: rows * 64 * 4 for rows in (1, 20, 300)}
