"""Known fault 16 and around it: what memory arguments share, where it comes from, and what becomes of it between launches."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace


@triton.jit
def increment(x_ptr, n, N: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


@triton.jit
def copy(x_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def add(a_ptr, b_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(a_ptr + offsets, mask=mask) + tl.load(b_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def prefix(x_ptr, n):
    # reads what it has just written through the same pointer
    for i in range(1, n):
        tl.store(x_ptr + i, tl.load(x_ptr + i) + tl.load(x_ptr + i - 1))


@triton.jit
def prefix_through_two(x_ptr, same_ptr, n):
    # the same through two pointers, the second one element further
    for i in range(n - 1):
        tl.store(same_ptr + i, tl.load(same_ptr + i) + tl.load(x_ptr + i))


# -- aliases --------------------------------------------------------------------------------------------------------


def test_one_tensor_as_input_and_output(traced: Any) -> None:
    x = torch.arange(10.0)
    copy[(1,)](x, x, 10, N=16)
    assert torch.equal(x, torch.arange(10.0))
    add[(1,)](x, x, x, 10, N=16)
    assert torch.equal(x, 2 * torch.arange(10.0))
    increment[(2,)](x, 10, N=8)
    assert torch.equal(x, 2 * torch.arange(10.0) + 1)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
@settings(deadline=None, max_examples=40)
def test_a_tile_is_read_whole_before_it_is_written_over(a: int, b: int, out: int) -> None:
    storage = torch.arange(32.0)
    want = storage.clone()
    want[out : out + 16] = (storage[a : a + 16] + storage[b : b + 16]).clone()
    with tritontrace.session(clients=["sanitizer"]) as session:
        add[(1,)](storage[a:], storage[b:], storage[out:], 16, N=16)
    assert torch.equal(storage, want) and session.findings == []


def test_a_loop_sees_what_it_has_written(traced: Any) -> None:
    x = torch.ones(20, dtype=torch.int64)
    prefix[(1,)](x, 20)
    assert x.tolist() == list(range(1, 21))
    y = torch.ones(20, dtype=torch.int64)
    prefix_through_two[(1,)](y, y[1:], 20)
    assert y.tolist() == list(range(1, 21))


def test_two_views_of_one_storage(traced: Any) -> None:
    storage = torch.arange(20.0)
    copy[(1,)](storage[10:], storage[:10], 10, N=16)
    assert storage.tolist() == [*range(10, 20), *range(10, 20)]
    both = storage.view(torch.int32), storage
    copy[(1,)](both[0][:4], both[0][16:], 4, N=4)
    assert storage[16:].tolist() == [10, 11, 12, 13]


def test_views_of_other_dtypes_over_one_storage(traced: Any) -> None:
    words = torch.arange(8, dtype=torch.int32)
    halves = words.view(torch.int16)
    increment[(1,)](halves[1::2].contiguous(), 8, N=8)  # a copy: nothing happens to words
    assert words.tolist() == list(range(8))
    increment[(1,)](words.view(torch.uint8), 32, N=32)
    assert words.view(torch.uint8).tolist() == [
        b + 1 if i % 4 == 0 else 1 for i, b in enumerate(torch.arange(8).repeat_interleave(4))
    ]


def test_tensors_of_numpys_that_overlap(traced: Any) -> None:
    # two storages to torch, one memory
    array = np.arange(20, dtype=np.float32)
    low, high = torch.from_numpy(array[:12]), torch.from_numpy(array[8:])
    add[(1,)](low, high, high, 12, N=16)
    want = np.arange(20, dtype=np.float32)
    want[8:] = np.arange(12) + np.arange(8, 20)
    assert np.array_equal(array, want)


# -- where memory comes from -------------------------------------------------------------------------------------------


def test_memory_of_numpy(traced: Any) -> None:
    array = np.arange(10, dtype=np.float32)
    increment[(2,)](torch.from_numpy(array), 10, N=8)
    assert np.array_equal(array, np.arange(10) + 1)


def test_a_field_of_numpys_records_has_gaps() -> None:
    records = np.zeros(6, dtype=[("a", "f4"), ("b", "i4")])
    field = torch.from_numpy(records["a"])
    assert field.stride() == (2,)
    with tritontrace.session(clients=["sanitizer"]) as session:
        increment[(1,)](field, 6, N=8)  # as if contiguous: it hits the other field
    assert [finding.elements.tolist() for finding in session.findings] == [[1, 3, 5]] * 2


def test_a_read_only_array_is_memory_like_any_other(traced: Any) -> None:
    # torch shares it with a warning and forgets that it was read-only; its pages may be written
    array = np.arange(8, dtype=np.float32)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.from_numpy(array)
    out = torch.zeros(8)
    copy[(1,)](x, out, 8, N=8)
    assert out.tolist() == list(range(8))


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5])
def test_memory_of_buffers_aligned_or_not(offset: int, traced: Any) -> None:
    raw = bytearray(64 + offset)
    x = torch.from_numpy(np.frombuffer(raw, dtype=np.uint8)[offset:].view(np.float32))
    increment[(1,)](x, 16, N=16)
    increment[(3,)](x, 10, N=4)
    assert np.frombuffer(bytes(raw[offset:]), dtype=np.float32).tolist() == [2.0] * 10 + [1.0] * 6
    assert bytes(raw[:offset]) == bytes(offset)


def mapped(path: Path, mode: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(np.memmap(path, dtype=np.float32, mode=mode))


def test_mapped_files(tmp_path: Path, traced: Any) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(8192))
    increment[(1,)](mapped(path, "r+"), 16, N=16)
    assert np.fromfile(path, np.float32)[:17].tolist() == [1.0] * 16 + [0.0]
    private = mapped(path, "c")
    increment[(1,)](private, 16, N=16)
    assert private[:2].tolist() == [2.0, 2.0] and np.fromfile(path, np.float32)[0] == 1.0
    shared = torch.from_file(str(path), shared=True, size=16)
    increment[(1,)](shared, 16, N=16)
    assert np.fromfile(path, np.float32)[0] == 2.0
    out = torch.zeros(16)
    copy[(1,)](mapped(path, "r"), out, 16, N=16)
    assert out.tolist() == [2.0] * 16


@pytest.mark.parametrize("clients", [[], ["tracer"], ["sanitizer"]], ids=str)
def test_a_store_to_a_read_only_mapping_is_an_error_not_a_crash(tmp_path: Path, clients: list[str]) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(8192))
    x = mapped(path, "r")
    with tritontrace.session(clients=clients) as session, pytest.raises(tritontrace.KernelError, match="read-only mapping"):
        increment[(1,)](x, 16, N=16)
    assert not session.launches[0].completed and path.read_bytes() == bytes(8192)


def test_anonymous_and_shared_mappings(traced: Any) -> None:
    for flags in (mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS):
        memory = mmap.mmap(-1, 4096, flags=flags)
        x = torch.frombuffer(memory, dtype=torch.float32)
        increment[(1,)](x, 16, N=16)
        assert np.frombuffer(memory, np.float32)[:17].tolist() == [1.0] * 16 + [0.0]


def child(x: torch.Tensor) -> None:
    with tritontrace.session(clients=["sanitizer"]):
        increment[(1,)](x, 16, N=16)


def test_memory_shared_with_another_process(traced: Any) -> None:
    x = torch.zeros(16).share_memory_()
    increment[(1,)](x, 16, N=16)
    process = multiprocessing.get_context("fork").Process(target=child, args=(x,))
    process.start()
    process.join()
    assert process.exitcode == 0 and x.tolist() == [2.0] * 16


def test_memory_through_dlpack(traced: Any) -> None:
    array = np.arange(8, dtype=np.float32)
    increment[(1,)](torch.from_dlpack(array), 8, N=8)
    assert array.tolist() == list(range(1, 9))


def test_copy_on_write(traced: Any) -> None:
    x = torch.arange(8.0)
    lazy = torch._lazy_clone(x)
    increment[(1,)](lazy, 8, N=8)
    assert x.tolist() == list(range(8)) and lazy.tolist() == list(range(1, 9))
    lazy = torch._lazy_clone(x)
    increment[(1,)](x, 8, N=8)
    assert x.tolist() == list(range(1, 9)) and lazy.tolist() == list(range(8))


# -- between launches ---------------------------------------------------------------------------------------------------


def test_a_tensor_that_grows_and_shrinks(traced: Any) -> None:
    x = torch.zeros(8)
    increment[(1,)](x, 8, N=8)
    x.resize_(100_000)
    x.zero_()
    increment[(98,)](x, 100_000, N=1024)
    assert torch.equal(x, torch.ones(100_000))
    x.resize_(4)
    increment[(1,)](x, 4, N=8)
    assert x.tolist() == [2.0] * 4


def test_a_storage_that_was_freed_or_cut() -> None:
    x, out = torch.ones(8), torch.full((8,), 5.0)
    for nbytes, outside in ((16, [4, 5, 6, 7]), (0, list(range(8)))):
        x.untyped_storage().resize_(nbytes)
        with tritontrace.session(clients=["sanitizer"]) as session:
            copy[(1,)](x, out, 8, N=8)
        (finding,) = session.findings
        assert (finding.tensor, finding.elements.tolist()) == ("x_ptr", outside)
    assert out.tolist() == [0.0] * 8


def test_a_tensor_that_gets_other_memory(traced: Any) -> None:
    x = torch.zeros(8)
    for _ in range(3):
        x.data = torch.full((8,), 3.0)
        increment[(1,)](x, 8, N=8)
        assert x.tolist() == [4.0] * 8
        x.set_(torch.arange(8.0))
        increment[(1,)](x, 8, N=8)
        assert x.tolist() == list(range(1, 9))


def test_nothing_is_kept_alive_between_launches(traced: Any) -> None:
    x = torch.zeros(8)
    reference = weakref.ref(x.untyped_storage())
    tensor = weakref.ref(x)
    compiled = increment[(1,)](x, 8, N=8)
    del x
    gc.collect()
    assert tensor() is None and reference() is None
    y = torch.zeros(8)
    compiled[(1,)](y, 8, 8)
    assert y.tolist() == [1.0] * 8


def test_memory_at_one_address_again(traced: Any) -> None:
    # the allocator gives the freed block to the next tensor: nothing of the first may be remembered
    for i in range(20):
        x = torch.full((64 + i % 3,), float(i))
        increment[(1,)](x, x.numel(), N=128)
        assert x.tolist() == [i + 1.0] * x.numel()
        del x


def test_autograd_sees_the_values_that_a_kernel_wrote(traced: Any) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            add[(1,)](x, x, out, 8, N=8)
            return out

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(grad)
            grad = grad.expand(8).contiguous()
            add[(1,)](grad, grad, out, 8, N=8)
            return out

    x = torch.arange(8.0, requires_grad=True)
    (Twice.apply(x) * torch.arange(8.0)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0 * i for i in range(8)]
    assert len(traced.launches) == 2
