"""What memory a launch may touch: `tritontrace.engines.memory`."""

from __future__ import annotations

import gc
import mmap
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import reinterpret
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace
from tritontrace.engines.live import LIVE_STORAGES, LiveStorages
from tritontrace.engines.memory import AddressSpace, Allocation, storage_of, tensors_of


def only(space: AddressSpace) -> Allocation:
    assert len(space.allocations) == 1
    return space.allocations[0]


def test_a_cpu_tensor_is_seen_without_a_copy() -> None:
    x = torch.arange(10, dtype=torch.float32)
    allocation = only(AddressSpace.for_launch([x]))
    assert (allocation.base, allocation.nbytes, allocation.device) == (x.data_ptr(), 40, "cpu")
    allocation.typed(np.float32)[3] = 99.0
    assert x[3] == 99.0
    x[4] = -1.0
    assert allocation.typed("f4")[4] == -1.0
    assert allocation.typed(np.float32) is allocation.typed(np.dtype("float32"))


def test_views_of_one_storage_share_an_allocation() -> None:
    base = torch.zeros(64)
    left, right = base.split(32)
    space = AddressSpace.for_launch([right, left[::2], base.view(8, 8).t()])
    assert only(space).base == base.data_ptr()
    assert space.find(right.data_ptr()) is only(space)


def test_neighbours_stay_apart_and_the_ends_are_exact() -> None:
    raw = torch.zeros(100, dtype=torch.uint8).numpy()
    a, b = torch.from_numpy(raw[:40]), torch.from_numpy(raw[40:60])
    space = AddressSpace.for_launch([b, a])
    assert [allocation.nbytes for allocation in space.allocations] == [40, 20]
    start = raw.ctypes.data
    assert space.known(start + 39) is space.allocations[0]
    assert space.known(start + 40) is space.allocations[1]
    assert space.known(start + 60) is None
    assert space.known(start - 1) is None
    where = space.locate(np.array([start - 1, start, start + 39, start + 40, start + 59, start + 60]))
    assert where.tolist() == [-1, 0, 0, 1, 1, -1]
    assert space.locate(np.array([start + 36, start + 37, start + 57]), size=4).tolist() == [0, -1, -1]


def test_overlapping_storages_become_one_allocation() -> None:
    raw = np.arange(100, dtype=np.uint8)
    parts = [torch.from_numpy(raw[10:20]), torch.from_numpy(raw[:50]), torch.from_numpy(raw[49:60]), torch.from_numpy(raw[60:70])]
    space = AddressSpace.for_launch(parts)
    assert [(a.base - raw.ctypes.data, a.nbytes) for a in space.allocations] == [(0, 60), (60, 10)]
    assert space.allocations[0].buffer.tolist() == list(range(60))


def test_a_short_range_after_a_long_one_does_not_shrink_it() -> None:
    raw = np.zeros(100, np.uint8)
    parts = [torch.from_numpy(raw[:80]), torch.from_numpy(raw[5:10]), torch.from_numpy(raw[70:75])]
    assert only(AddressSpace.for_launch(parts)).nbytes == 80


def test_empty_tensors_and_empty_views() -> None:
    x = torch.zeros(4)
    space = AddressSpace.for_launch([torch.empty(0), torch.empty(3, 0), x[4:], torch.tensor(1.0)])
    assert len(space.allocations) == 2  # x's storage and the 0-dim tensor's
    assert AddressSpace.for_launch([torch.empty(0)]).allocations == []
    assert AddressSpace.for_launch([]).locate(np.array([1, 2])).tolist() == [-1, -1]


def test_a_partial_last_element_is_left_out() -> None:
    allocation = only(AddressSpace.for_launch([torch.zeros(7, dtype=torch.uint8)]))
    assert len(allocation.typed(np.int32)) == 1
    assert len(allocation.typed(np.int64)) == 0


def test_tensors_of_reads_tuples_descriptors_and_wrappers() -> None:
    x, y, z = torch.zeros(8, 16), torch.zeros(4), torch.zeros(4, dtype=torch.uint8)
    nested = (x, 3, (None, [y]), TensorDescriptor.from_tensor(x, [4, 16]), reinterpret(z, torch.int8), "text")
    assert [id(t) for t in tensors_of(nested)] == [id(x), id(y), id(x), id(z)]
    assert len(AddressSpace.for_launch([nested]).allocations) == 3


def test_tensors_without_memory_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with pytest.raises(TypeError, match=r"shape \(2, 3\).*meta device"):
        AddressSpace.for_launch([torch.empty(2, 3, device="meta")])
    with FakeTensorMode():
        fake = torch.empty(5)
    with pytest.raises(TypeError, match="FakeTensor of shape"):
        AddressSpace.for_launch([fake])
    with pytest.raises(TypeError, match="no storage"):
        AddressSpace.for_launch([torch.zeros(3, 3).to_sparse()])


def test_subclasses_are_read_as_their_raw_memory() -> None:
    class Shouting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(f"{func} was dispatched")

    plain = torch.zeros(4)
    loud = plain.as_subclass(Shouting)
    assert only(AddressSpace.for_launch([torch.nn.Parameter(plain)])).base == plain.data_ptr()
    assert only(AddressSpace.for_launch([loud])).base == plain.data_ptr()


def test_misaligned_access_through_gather_and_scatter() -> None:
    x = torch.zeros(17, dtype=torch.uint8)
    allocation = only(AddressSpace.for_launch([x]))
    at = np.array([[1, 5], [9, 13]], np.int64) + allocation.base
    values = np.array([[1, -2], [3, 1 << 30]], np.int32)
    allocation.scatter(at, values)
    assert (allocation.gather(at, np.int32) == values).all()
    assert x[1] == 1 and x[0] == 0


def test_unknown_addresses_are_found_among_live_tensors_and_held() -> None:
    argument, other = torch.zeros(4), torch.arange(6, dtype=torch.int64)
    space = AddressSpace.for_launch([argument])
    found = space.find(other.data_ptr() + 47)
    assert found is not None and found.typed(np.int64).tolist() == [0, 1, 2, 3, 4, 5]
    assert space.find(other.data_ptr()) is found
    assert len(space.allocations) == 2 and space.bounds()[0].tolist() == sorted(space.bounds()[0].tolist())
    address = other.data_ptr()
    del other
    gc.collect()
    again = space.find(address)
    assert again is found and again.typed(np.int64)[5] == 5


def test_the_process_is_scanned_at_most_once_per_launch() -> None:
    x = torch.zeros(4)
    space = AddressSpace.for_launch([x])
    before = LIVE_STORAGES.scans
    assert space.find(1) is None
    assert space.find(2) is None
    assert LIVE_STORAGES.scans - before == 1
    assert space.find(x.data_ptr()) is not None


def test_a_tensor_just_made_is_found_among_the_young_ones() -> None:
    space = AddressSpace.for_launch([torch.zeros(4)])
    gc.collect()
    before = LIVE_STORAGES.scans
    x, y = torch.zeros(1000), torch.zeros(1000)
    assert space.find(x.data_ptr() + 40) is not None
    assert space.find(y.data_ptr()) is not None
    assert LIVE_STORAGES.scans == before


def test_a_young_scan_keeps_what_was_known_and_lives() -> None:
    live = LiveStorages()
    old, gone = torch.zeros(1000), torch.zeros(1000)
    live.scan()
    address = gone.data_ptr()
    del gone
    gc.collect()
    young = torch.zeros(500)
    live.scan_young()
    for x in (old, young):
        found = live.lookup(x.data_ptr())
        assert found is not None and found.data_ptr() == x.data_ptr()
    assert young.data_ptr() <= address < young.data_ptr() + 2000 or live.lookup(address) is None


def test_a_freed_storage_is_not_found_again() -> None:
    live = LiveStorages()
    x = torch.zeros(1000)
    live.scan()
    address = x.data_ptr()
    assert live.lookup(address) is not None
    x.untyped_storage().resize_(0)
    assert live.lookup(address) is None
    keeper = torch.zeros(8)
    live.scan()
    kept = keeper.data_ptr()
    assert live.lookup(kept) is not None
    del keeper
    gc.collect()
    assert live.lookup(kept) is None


def test_the_scan_runs_no_foreign_code() -> None:
    class Proxy:
        @property
        def __class__(self) -> type:
            raise AssertionError("asked a proxy for its class")

    proxies = [Proxy() for _ in range(3)]
    LiveStorages().scan()
    assert len(proxies) == 3


def test_registered_memory_is_known_without_a_scan() -> None:
    x, registered = torch.zeros(4), torch.zeros(9)
    before = LIVE_STORAGES.scans
    space = AddressSpace.for_launch([x], [registered])
    assert space.find(registered.data_ptr()) is not None
    assert LIVE_STORAGES.scans == before


def test_a_found_storage_does_not_overlap_the_known_ones() -> None:
    raw = np.zeros(100, np.uint8)
    argument, whole = torch.from_numpy(raw[20:40]), torch.from_numpy(raw)
    space = AddressSpace.for_launch([argument])
    start = raw.ctypes.data
    low, high = space.find(start + 3), space.find(start + 77)
    assert low is not None and (low.base - start, low.nbytes) == (0, 20)
    assert high is not None and (high.base - start, high.nbytes) == (40, 60)
    assert len(whole) == 100


def test_finish_lets_go_of_the_tensors() -> None:
    x = torch.zeros(16)
    reference = weakref.ref(x)
    space = AddressSpace.for_launch([x])
    only(space).typed(np.float32)[0] = 1
    space.finish(True)
    space.finish(True)
    del x
    gc.collect()
    assert reference() is None
    assert space.allocations == []


def read_only(folder: Path) -> torch.Tensor:
    path = folder / "weights.bin"
    path.write_bytes(bytes(8192))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says, once, that one should not write to it
        return torch.frombuffer(mapped, dtype=torch.float32)


def test_read_only_pages_are_refused_and_the_rest_is_not(tmp_path: Path) -> None:
    frozen = read_only(tmp_path)
    allocation = only(AddressSpace.for_launch([frozen]))
    assert allocation.typed(np.float32)[7] == 0
    assert not allocation.writable
    with pytest.raises(PermissionError, match="read-only"):
        allocation.open_for_write()
    assert not allocation.written
    usual = only(AddressSpace.for_launch([torch.zeros(3)]))
    usual.open_for_write()
    assert usual.written


def test_storage_of_a_view_is_the_whole_storage() -> None:
    base = torch.zeros(10, dtype=torch.float16)
    _, address, nbytes = storage_of(base[3:5])
    assert (address, nbytes) == (base.data_ptr(), 20)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_storages_come_in_when_needed_and_go_back_when_written() -> None:
    x, y = torch.arange(8, device="cuda", dtype=torch.float32), torch.zeros(8, device="cuda")
    for completed, expected in ((False, 0.0), (True, 5.0)):
        space = AddressSpace.for_launch([x[2:], y])
        reader, writer = space.find(x.data_ptr()), space.find(y.data_ptr())
        assert reader is not None and writer is not None and not writer.on_host
        assert reader.typed(np.float32).tolist() == list(range(8))
        reader.typed(np.float32)[0] = 77.0  # not marked as written: does not go back
        writer.open_for_write()
        writer.typed(np.float32)[3] = 5.0
        space.finish(completed)
        assert y[3].item() == expected
        assert x[0].item() == 0.0


@triton.jit
def set_kernel(dst, COUNT, TILE: tl.constexpr, ATOMIC: tl.constexpr):
    at = tl.arange(0, TILE)
    if ATOMIC:
        tl.atomic_add(dst + at, 1.0)
    else:
        tl.store(dst + at, 1.0, mask=at < COUNT)


@pytest.mark.parametrize("atomic", [False, True])
def test_a_store_to_read_only_memory_is_an_error_not_a_crash(tmp_path: Path, atomic: bool) -> None:
    frozen = read_only(tmp_path)
    with tritontrace.session(clients=["sanitizer"]) as session, pytest.raises(Exception, match="read-only") as caught:
        set_kernel[(1,)](frozen, 15, TILE=16, ATOMIC=atomic)
    assert isinstance(caught.value, (tritontrace.KernelError, PermissionError))
    assert not session.launches[0].completed
    with tritontrace.session(clients=["sanitizer"]) as session:
        set_kernel[(1,)](frozen, 0, TILE=16, ATOMIC=False)
    assert session.findings == []
