"""Loads, stores, atomics, block pointers and descriptors."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.language.harness import Run, covers

N = tl.constexpr(16)


@triton.jit
def loads_and_stores(x_ptr, o_ptr, n):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n, other=5.0, cache_modifier=".ca", eviction_policy="evict_last", volatile=False)
    tl.store(o_ptr + i, x, mask=i < 12, cache_modifier=".wb", eviction_policy="evict_first")
    p = o_ptr + N + i
    p.store(x * 2, mask=i > 3)
    tl.store(o_ptr + 2 * N, tl.load(x_ptr + 3, volatile=True) + tl.load(x_ptr, mask=n > 100, other=9.0))
    tl.store(o_ptr + 2 * N + 1, 4.0, mask=n > 100)


@covers("tl.load tl.store tensor.store tl.arange")
def masked_loads_and_stores(run: Run) -> None:
    x = torch.arange(1.0, 17)
    out = run.out(3, 16)
    run(loads_and_stores, (1,), x, out, 9)
    loaded = np.where(np.arange(16) < 9, x.numpy(), 5)
    wanted = np.full((3, 16), 77.0)
    wanted[0, :12], wanted[1, 4:], wanted[2, 0] = loaded[:12], 2 * loaded[4:], 4 + 9
    run.equal(out, wanted)


@triton.jit
def atomic_functions(m_ptr, old_ptr, v_ptr, n):
    i = tl.arange(0, N)
    v = tl.load(v_ptr + i)
    k = i < n
    tl.store(old_ptr + 0 * N + i, tl.atomic_add(m_ptr + 0 * N + i, v, mask=k))
    tl.store(old_ptr + 1 * N + i, tl.atomic_and(m_ptr + 1 * N + i, v, mask=k))
    tl.store(old_ptr + 2 * N + i, tl.atomic_or(m_ptr + 2 * N + i, v, mask=k))
    tl.store(old_ptr + 3 * N + i, tl.atomic_xor(m_ptr + 3 * N + i, v, mask=k))
    tl.store(old_ptr + 4 * N + i, tl.atomic_max(m_ptr + 4 * N + i, v, mask=k))
    tl.store(old_ptr + 5 * N + i, tl.atomic_min(m_ptr + 5 * N + i, v, mask=k))
    tl.store(old_ptr + 6 * N + i, tl.atomic_xchg(m_ptr + 6 * N + i, v, mask=k))
    tl.store(old_ptr + 7 * N + i, tl.atomic_cas(m_ptr + 7 * N + i, tl.full([N], 6, tl.int32), v))


@triton.jit
def atomic_members(m_ptr, old_ptr, v_ptr, n):
    i = tl.arange(0, N)
    v = tl.load(v_ptr + i)
    k = i < n
    p = m_ptr + i
    tl.store(old_ptr + 0 * N + i, p.atomic_add(v, k))
    tl.store(old_ptr + 1 * N + i, (p + N).atomic_and(v, k))
    tl.store(old_ptr + 2 * N + i, (p + 2 * N).atomic_or(v, k))
    tl.store(old_ptr + 3 * N + i, (p + 3 * N).atomic_xor(v, k))
    tl.store(old_ptr + 4 * N + i, (p + 4 * N).atomic_max(v, k))
    tl.store(old_ptr + 5 * N + i, (p + 5 * N).atomic_min(v, k))
    tl.store(old_ptr + 6 * N + i, (p + 6 * N).atomic_xchg(v, k))
    tl.store(old_ptr + 7 * N + i, (p + 7 * N).atomic_cas(tl.full([N], 6, tl.int32), v))


ATOMICS = "atomic_add atomic_and atomic_or atomic_xor atomic_max atomic_min atomic_xchg atomic_cas".split()


@covers(*(f"tl.{name} tensor.{name}" for name in ATOMICS))
def atomics(run: Run) -> None:
    generator = np.random.default_rng(3)
    start = generator.integers(0, 9, (8, 16)).astype(np.int32)
    values = generator.integers(-9, 9, 16).astype(np.int32)
    active = np.arange(16) < 11
    new = [start[0] + values, start[1] & values, start[2] | values, start[3] ^ values]
    new += [np.maximum(start[4], values), np.minimum(start[5], values), values, np.where(start[7] == 6, values, start[7])]
    wanted = np.where(active, np.stack(new), start)
    wanted[7] = new[7]
    for kernel in (atomic_functions, atomic_members):
        memory, old = run.inout(torch.from_numpy(start.copy())), run.out(8, 16, dtype=torch.int32)
        run(kernel, (1,), memory, old, torch.from_numpy(values), 11)
        run.equal(memory, wanted)
        # What a masked lane returns is not defined; only the others are compared.
        cut = run.inout(torch.full((7, 11), 77, dtype=torch.int32))
        cut.copy_(old[:7, :11])
        run.equal(cut, start[:7, :11])
        last = run.out(16, dtype=torch.int32)
        last.copy_(old[7])
        run.equal(last, start[7])


@triton.jit
def load_store_atomics(x_ptr, o_ptr, flag_ptr, n):
    i = tl.arange(0, N)
    tl.atomic_store(o_ptr + i, tl.atomic_load(x_ptr + i, sem="relaxed", scope="sys"), mask=i < n, sem="release", scope="gpu")
    (o_ptr + N + i).atomic_store((x_ptr + i).atomic_load(mask=i < 16) + 1)
    tl.store(o_ptr + 2 * N + i, tl.atomic_poll(flag_ptr + i, 3, timeout_ns=0).to(tl.int32))
    tl.store(o_ptr + 3 * N, (flag_ptr + 1).atomic_poll(3).to(tl.int32))


@covers(
    "tl.atomic_load tl.atomic_store tl.atomic_poll tensor.atomic_load tensor.atomic_store tensor.atomic_poll",
    needs=("tl.atomic_load",),
)
def atomic_loads_stores_and_polls(run: Run) -> None:
    x = torch.arange(16, dtype=torch.int32)
    flags = torch.tensor([3, 3, 1, 3] * 4, dtype=torch.int32)
    out = run.out(4, 16, dtype=torch.int32)
    run(load_store_atomics, (1,), x, out, flags, 10)
    wanted = np.full((4, 16), 77)
    wanted[0, :10], wanted[1], wanted[2], wanted[3, 0] = np.arange(10), np.arange(16) + 1, flags.numpy() == 3, 1
    run.equal(out, wanted)


@triton.jit
def block_pointers(x_ptr, o_ptr, m, n):
    source = tl.make_block_ptr(x_ptr, shape=(m, n), strides=(n, 1), offsets=(0, 0), block_shape=(8, 4), order=(1, 0))
    target = tl.make_block_ptr(o_ptr, (m, n), (n, 1), (0, 4), (8, 4), (1, 0))
    source = tl.advance(source, (0, 4))
    tl.store(target, tl.load(source, boundary_check=(0, 1), padding_option="zero") + 1, boundary_check=(0, 1))


@triton.jit
def advance_member(x_ptr, o_ptr, m, n):
    source = tl.make_block_ptr(x_ptr, (m, n), (n, 1), (0, 0), (8, 4), (1, 0)).advance((0, 4))
    target = tl.make_block_ptr(o_ptr, (m, n), (n, 1), (0, 4), (8, 4), (1, 0))
    tl.store(target, tl.load(source, boundary_check=(0, 1), padding_option="nan") + 1, boundary_check=(0, 1))


@covers("tl.make_block_ptr tl.advance tensor.advance", needs=("tl.advance",))
def blocks(run: Run) -> None:
    x = torch.arange(7 * 6.0).reshape(7, 6)
    wanted = torch.full((7, 6), 77.0)
    wanted[:, 4:] = x[:, 4:] + 1
    for kernel in (block_pointers, advance_member):
        out = run.out(7, 6)
        run(kernel, (1,), x, out, 7, 6)
        run.equal(out, wanted)


@triton.jit
def descriptors(x_ptr, o_ptr, m, n):
    source = tl.make_tensor_descriptor(x_ptr, shape=[m, n], strides=[n, 1], block_shape=[4, 8], padding_option="nan")
    target = tl.make_tensor_descriptor(o_ptr, [m, n], [n, 1], [4, 8])
    for row in range(0, m, 4):
        tl.store_tensor_descriptor(target, [row, 0], tl.load_tensor_descriptor(source, [row, 0]) + 1)
        target.store([row, 8], source.load([row, 8]) * 2)


@covers(
    "tl.make_tensor_descriptor tl.load_tensor_descriptor tl.store_tensor_descriptor tensor_descriptor.load",
    "tensor_descriptor.store",
)
def device_descriptors(run: Run) -> None:
    x = torch.arange(10 * 12.0).reshape(10, 12)
    out = run.out(10, 12)
    run(descriptors, (1,), x, out, 10, 12)
    run.equal(out, torch.cat([x[:, :8] + 1, x[:, 8:] * 2], 1))


@triton.jit
def descriptor_rows(source, target, rows_ptr, o_ptr):
    rows = tl.load(rows_ptr + tl.arange(0, 8))
    tile = source.gather(rows, 8)
    target.scatter(tile + 1, rows, 8)
    tl.static_assert(source.dtype == tl.float32)
    tl.static_assert(source.block_shape[1] == 8)
    tl.static_assert(source.block_type.shape[1] == 8)
    tl.store(o_ptr + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], tile)


@covers(
    "tensor_descriptor.gather tensor_descriptor.scatter tensor_descriptor.dtype tensor_descriptor.block_shape",
    "tensor_descriptor.block_type tl.static_assert",
)
def gathering_descriptors(run: Run) -> None:
    x = torch.arange(20 * 16.0).reshape(20, 16)
    out, tile = run.out(20, 16), run.out(8, 8)
    rows = torch.tensor([3, 17, 0, 5, 19, 8, 9, 1], dtype=torch.int32)
    host = [TensorDescriptor.from_tensor(t, [1, 8]) for t in (x, out)]
    run(descriptor_rows, (1,), *host, rows, tile)
    wanted = torch.full((20, 16), 77.0)
    wanted[rows.long(), 8:] = x[rows.long(), 8:] + 1
    run.equal(out, wanted)
    run.equal(tile, x[rows.long(), 8:])


@triton.jit
def descriptor_atomics(add, least, most, both, either, other, v_ptr):
    v = tl.load(v_ptr + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
    add.atomic_add([1, 0], v)
    least.atomic_min([1, 0], v)
    most.atomic_max([1, 0], v)
    both.atomic_and([1, 0], v)
    either.atomic_or([1, 0], v)
    other.atomic_xor([1, 0], v)


@covers(
    "tensor_descriptor.atomic_add tensor_descriptor.atomic_min tensor_descriptor.atomic_max tensor_descriptor.atomic_and",
    "tensor_descriptor.atomic_or tensor_descriptor.atomic_xor",
)
def reducing_descriptors(run: Run) -> None:
    generator = np.random.default_rng(1)
    values = generator.integers(0, 100, (4, 8)).astype(np.int32)
    start = generator.integers(0, 100, (6, 8, 4 * 2)).astype(np.int32)
    tensors = [run.inout(torch.from_numpy(part.copy())) for part in start]
    run(descriptor_atomics, (1,), *(TensorDescriptor.from_tensor(t, [4, 8]) for t in tensors), torch.from_numpy(values))
    combine = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    for tensor, part, function in zip(tensors, start, combine, strict=True):
        wanted = part.copy()
        wanted[1:5] = function(part[1:5], values)
        run.equal(tensor, wanted)
