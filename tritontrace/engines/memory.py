"""The memory that one launch may touch: the storages of its tensors, and what is found for stray pointers.

Addresses are the byte addresses that the kernel sees (``tensor.data_ptr()``). The bytes lie in host memory: for a
CPU tensor they are the tensor's own, without a copy; a GPU storage is copied in when it is first needed, and copied
back at the end if the launch completed and wrote to it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.live import LIVE_STORAGES
from tritontrace.engines.pointers import is_pointer_like, memory_of, points_elsewhere
from tritontrace.errors import ArgumentError
from tritontrace.kernels.compat import TensorDescriptor, TensorWrapper

__all__ = ["AddressSpace", "Allocation", "storage_of", "tensors_of"]

Bytes = npt.NDArray[np.uint8]


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Every torch tensor that a launch argument carries: itself, or inside tuples, lists, descriptors, wrappers.

    For another object that Triton takes for a pointer, a tensor over the memory that it points into.
    """
    if isinstance(value, torch.Tensor):
        if points_elsewhere(value):
            memory = memory_of(value)
            if memory is not None:
                yield memory
        else:
            yield value
    elif isinstance(value, (TensorWrapper, TensorDescriptor)):
        yield from tensors_of(value.base)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif is_pointer_like(value):
        memory = memory_of(value)
        if memory is not None:
            yield memory


def storage_of(tensor: torch.Tensor) -> tuple[torch.UntypedStorage, int, int]:
    """The storage of `tensor`, its first byte's address and its size in bytes.

    Raises `ArgumentError` for a tensor without memory of its own (meta, fake, sparse, wrapper subclasses).
    """
    # A subclass may redefine what attributes mean; a kernel gets the raw memory.
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_meta:
            raise _no_memory(tensor, f"it lies on the meta device and has no memory; {_MAKE_ONE}")
        if type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):  # asking these for an address warns or aborts
            raise _no_memory(tensor, f"it has no memory of its own; {_MAKE_ONE}")
        try:
            pointer = tensor.data_ptr()  # first: it gives a copy-on-write tensor the storage that it will keep
            storage = tensor.untyped_storage()
            address, nbytes = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError) as error:
            way_out = "a copy (tensor.clone()) has one" if type(tensor) is torch.Tensor else "pass the tensors that it is made of"
            raise _no_memory(tensor, f"it has no storage ({error}); {way_out}") from error
        if nbytes and address == 0 and pointer == 0 and tensor.numel() > 0:
            raise _no_memory(tensor, "it wraps other tensors and has no memory of its own; pass those")
    return storage, address, nbytes if address else 0


_MAKE_ONE = "pass a real one (torch.empty_like(tensor, device='cpu')); Sanitizer(dry_run=True) and kernel.warmup need no memory"


def _no_memory(tensor: torch.Tensor, reason: str) -> ArgumentError:
    dtype = str(tensor.dtype).removeprefix("torch.")
    described = f"a {type(tensor).__name__} of shape {tuple(tensor.shape)} and dtype {dtype}"
    return ArgumentError(f"a kernel cannot run on {described}: {reason}")


class _HostBytes:
    """Exposes raw host memory to numpy, and keeps its owner alive for as long as an array looks at it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self.owner = owner


class _Part:
    """A stretch of one storage: `nbytes` from `address`, `skip` bytes behind the storage's start."""

    __slots__ = ("address", "nbytes", "skip", "storage")

    def __init__(self, storage: torch.UntypedStorage, address: int, nbytes: int, skip: int = 0) -> None:
        self.storage = storage
        self.address = address
        self.nbytes = nbytes
        self.skip = skip

    def device_bytes(self) -> torch.Tensor:
        """The stretch as a uint8 tensor on the storage's device, sharing its memory."""
        flat = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return flat.set_(self.storage, self.skip, (self.nbytes,), (1,))


class Allocation:
    """One contiguous range of known memory: ``base <= address < base + nbytes``.

    `base` is the address that the kernel sees, `device` torch's name of where the memory is. Storages that overlap (two
    tensors made from one foreign buffer) form one allocation, so a byte never has two copies. `written` is set by
    `open_for_write`, which the engine calls before its first store.
    """

    __slots__ = ("_buffer", "_parts", "_typed", "_writable", "base", "device", "nbytes", "written")

    def __init__(self, base: int, nbytes: int, device: str, parts: list[_Part]) -> None:
        self.base = base
        self.nbytes = nbytes
        self.device = device
        self.written = False
        self._parts = parts
        self._buffer: Bytes | None = None
        self._typed: dict[np.dtype[Any], npt.NDArray[Any]] = {}
        self._writable: bool | None = None

    @property
    def end(self) -> int:
        """The address of the first byte behind the allocation."""
        return self.base + self.nbytes

    @property
    def on_host(self) -> bool:
        """True if the engine works on the tensor's own bytes (CPU), False for a copy of device memory."""
        return self.device == "cpu"

    @property
    def buffer(self) -> Bytes:
        """uint8 ``[nbytes]`` over host memory (device memory is copied in at the first use)."""
        if self._buffer is None:
            self._buffer = self._view_host() if self.on_host else self._copy_in()
        return self._buffer

    def typed(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The memory as elements of `dtype` from `base` on (a last, partial element is left out).

        Address `a` is element ``(a - base) // itemsize`` only where ``(a - base) % itemsize == 0``; see `gather`.
        """
        key = np.dtype(dtype)
        array = self._typed.get(key)
        if array is None:
            whole = self.nbytes // key.itemsize * key.itemsize
            array = self._typed[key] = self.buffer[:whole].view(key)
        return array

    def gather(self, addresses: npt.NDArray[np.int64], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The values at byte `addresses` of any alignment, all of whose bytes lie inside (the slow, general path)."""
        kind = np.dtype(dtype)
        positions = (addresses - self.base)[..., None] + np.arange(kind.itemsize)
        values: npt.NDArray[Any] = self.buffer[positions].view(kind)[..., 0]
        return values

    def scatter(self, addresses: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
        """Writes `values` to byte `addresses` of any alignment, all of whose bytes lie inside; later lanes win."""
        size = values.dtype.itemsize
        positions = (addresses - self.base)[..., None] + np.arange(size)
        self.buffer[positions] = np.ascontiguousarray(values)[..., None].view(np.uint8)

    @property
    def writable(self) -> bool:
        """False for pages that the process may not write (a read-only file mapping); asked once, then kept."""
        if self._writable is None:
            self._writable = not self.on_host or _pages_writable(self.base, self.nbytes)
        return self._writable

    def open_for_write(self) -> None:
        """Marks the memory as written; the engine calls it before each store.

        Raises `PermissionError`, and marks nothing, if it is read-only: a store would end the process.
        """
        if not self.written:
            if not self.writable:
                raise PermissionError(f"the memory at {self.base:#x} is a read-only mapping; the kernel stores to it")
            self.written = True

    def _view_host(self) -> Bytes:
        return np.asarray(_HostBytes(self.base, self.nbytes, tuple(part.storage for part in self._parts)))

    def _copy_in(self) -> Bytes:
        host = np.empty(self.nbytes, np.uint8)
        for part in self._parts:
            start = part.address - self.base
            torch.from_numpy(host[start : start + part.nbytes]).copy_(part.device_bytes())
        return host

    def _copy_back(self) -> None:
        if self._buffer is None:
            return
        for part in self._parts:
            start = part.address - self.base
            part.device_bytes().copy_(torch.from_numpy(self._buffer[start : start + part.nbytes]))

    def _finish(self, completed: bool) -> None:
        if completed and self.written and not self.on_host:
            self._copy_back()
        self._typed.clear()
        self._buffer = None
        self._parts = []

    def __repr__(self) -> str:
        return f"Allocation(base={self.base:#x}, nbytes={self.nbytes}, device={self.device!r})"


class AddressSpace:
    """Everything that the pointers of one launch can reach. It belongs to that launch: one thread uses it.

    `allocations` is sorted by address and free of overlaps; it grows when `find` discovers a live storage.
    """

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._bases: list[int] = []
        self._arrays: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        self._scanned = False
        self._finished = False

    @classmethod
    def for_launch(cls, tensors: Iterable[Any], registered: Iterable[Any] = ()) -> AddressSpace:
        """The address space of a launch with these arguments (anything `tensors_of` reads) and registered tensors.

        Tensors that share a storage share an `Allocation`. Raises `ArgumentError` for a tensor that has no memory.
        """
        space = cls()
        parts: dict[tuple[int, int], _Part] = {}
        for source in (tensors, registered):
            for value in source:
                for tensor in tensors_of(value):
                    storage, address, nbytes = storage_of(tensor)
                    if nbytes:
                        parts.setdefault((address, nbytes), _Part(storage, address, nbytes))
        if parts:
            space._build(sorted(parts.values(), key=lambda part: (part.address, -part.nbytes)))
        return space

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds the byte at `address`, or None.

        An address outside the launch's own memory is looked for among all live torch storages; the process is
        scanned for them at most once per launch. What is found is kept alive until `finish`.
        """
        address = int(address)
        found = self.known(address)
        if found is not None:
            return found
        storage = LIVE_STORAGES.lookup(address)
        if storage is None and not self._scanned:
            LIVE_STORAGES.scan_young()
            storage = LIVE_STORAGES.lookup(address)
        if storage is None and not self._scanned:
            self._scanned = True
            LIVE_STORAGES.scan()
            storage = LIVE_STORAGES.lookup(address)
        return None if storage is None else self._adopt(address, storage)

    def known(self, address: int) -> Allocation | None:
        """Like `find`, but without looking further than the allocations that are there."""
        index = bisect_right(self._bases, address) - 1
        if index >= 0:
            allocation = self.allocations[index]
            if address < allocation.base + allocation.nbytes:
                return allocation
        return None

    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First and past-the-end address of every allocation, int64 ``[len(allocations)]`` each, ascending."""
        if self._arrays is None:
            starts = np.array(self._bases, np.int64)
            ends = np.array([allocation.end for allocation in self.allocations], np.int64)
            self._arrays = starts, ends
        return self._arrays

    def locate(self, addresses: npt.NDArray[np.int64], size: int = 1) -> npt.NDArray[np.int64]:
        """For each address, the index in `allocations` of the one that holds all its `size` bytes, or -1.

        Looks only at the allocations that are there; `find` one of the unknown addresses to look further.
        """
        starts, ends = self.bounds()
        if not len(starts):
            return np.full(addresses.shape, -1, np.int64)
        index = np.searchsorted(starts, addresses, side="right") - 1
        inside = (index >= 0) & (addresses + size <= ends[np.maximum(index, 0)])
        return np.where(inside, index, -1)

    def finish(self, completed: bool) -> None:
        """Ends the launch: copies written device storages back if it `completed`; lets go of every tensor."""
        if self._finished:
            return
        self._finished = True
        allocations, self.allocations, self._bases, self._arrays = self.allocations, [], [], None
        for allocation in allocations:
            allocation._finish(completed)

    def _build(self, parts: list[_Part]) -> None:
        """Fills the space from parts in ascending order, joining those that overlap."""
        group = [parts[0]]
        end = parts[0].address + parts[0].nbytes
        for part in parts[1:]:
            if part.address < end:
                group.append(part)
            else:
                self._insert(group, end)
                group = [part]
            end = max(end, part.address + part.nbytes) if len(group) > 1 else part.address + part.nbytes
        self._insert(group, end)

    def _insert(self, parts: list[_Part], end: int) -> Allocation:
        base = parts[0].address
        device = parts[0].storage.device
        # Spelling a device takes longer than all the rest here.
        allocation = Allocation(base, end - base, "cpu" if device.type == "cpu" else str(device), parts)
        index = bisect_right(self._bases, base)
        self.allocations.insert(index, allocation)
        self._bases.insert(index, base)
        self._arrays = None
        return allocation

    def _adopt(self, address: int, storage: torch.UntypedStorage) -> Allocation:
        """Adds the piece of a found storage around `address` that no allocation covers yet."""
        start = storage.data_ptr()
        first, end = start, start + storage.nbytes()
        index = bisect_right(self._bases, address)
        if index > 0:
            first = max(first, self.allocations[index - 1].end)
        if index < len(self.allocations):
            end = min(end, self.allocations[index].base)
        return self._insert([_Part(storage, first, end - first, first - start)], end)


_MADV_POPULATE_WRITE = 23
"""Linux 5.14: fault a page in for writing; fails, instead of killing the process, where it may not be written."""


def _pages_writable(address: int, nbytes: int) -> bool:
    """Whether the process may write the pages from `address` on (True where the system cannot say)."""
    if not nbytes:
        return True
    page = address - address % mmap.PAGESIZE
    if _libc_madvise is not None and _libc_madvise(page, mmap.PAGESIZE, _MADV_POPULATE_WRITE) == 0:
        return True
    # Older kernels know no such advice, and some mappings refuse it: read the page's rights instead.
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                span, rights = line.split(" ", 2)[:2]
                low, high = span.split("-")
                if int(low, 16) <= address < int(high, 16):
                    return "w" in rights
    except OSError:
        return True
    return True


def _find_madvise() -> Any:
    if os.name != "posix":
        return None
    try:
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    madvise.restype = ctypes.c_int
    return madvise


_libc_madvise = _find_madvise()
