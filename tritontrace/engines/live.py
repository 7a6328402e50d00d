"""An index of the process's live torch storages, for pointers that no argument of a launch explains.

Kernels get such pointers from arrays of ``data_ptr()``s or from integers. The index is built by a scan of Python's
garbage collector, which takes tens of milliseconds, so it is made only when an unknown address turns up, is shared by
all launches, and holds nothing alive.
"""

from __future__ import annotations

import gc
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import torch

from tritontrace.forking import fork_safe

__all__ = ["LIVE_STORAGES", "LiveStorages"]


class LiveStorages:
    """Weak references to tensors, by the addresses of their storages.

    Any thread may call any method. A scan replaces the index as a whole, so a lookup sees either the old or the
    new one. Tensors that Python's collector does not list (held by C++ alone, or frozen with ``gc.freeze``) are not
    found; ``session.register_memory`` names them.
    """

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._index: _Index = _Index({})
        self.scans = 0
        """How often the process was scanned."""

    def lookup(self, address: int) -> torch.UntypedStorage | None:
        """The live storage that holds the byte at `address` according to the last scan, checked anew; or None."""
        return self._index.lookup(address)

    def scan(self) -> None:
        """Rebuilds the index from the tensors that are alive now."""
        with self._lock:
            self._index = _Index(_collect(gc.get_objects()))
            self.scans += 1

    def scan_young(self) -> None:
        """Adds the tensors that the collector still counts as young: well under a millisecond, and often enough.

        A launch's outputs have mostly just been made, and older tensors were found by an earlier scan.
        """
        with self._lock:
            found = self._index.alive()
            for generation in (0, 1):
                for key, references in _collect(gc.get_objects(generation=generation)).items():
                    found.setdefault(key, []).extend(references)
            self._index = _Index(found)


class _Index:
    """An immutable index: ranges by start address, with the farthest end so far, since storages may overlap."""

    __slots__ = ("_ends", "_holders", "_reach", "_starts")

    def __init__(self, found: dict[tuple[int, int], list[weakref.ref[Any]]]) -> None:
        ranges = sorted(found)
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        self._holders = [found[key] for key in ranges]
        self._reach: list[int] = []
        farthest = 0
        for end in self._ends:
            farthest = max(farthest, end)
            self._reach.append(farthest)

    def alive(self) -> dict[tuple[int, int], list[weakref.ref[Any]]]:
        """What a new index can start from: the ranges that still have a tensor, with those tensors."""
        out = {}
        for start, end, references in zip(self._starts, self._ends, self._holders, strict=True):
            left = list({id(holder): reference for reference in references if (holder := reference()) is not None}.values())
            if left:
                out[start, end] = left
        return out

    def lookup(self, address: int) -> torch.UntypedStorage | None:
        index = bisect_right(self._starts, address) - 1
        while index >= 0 and self._reach[index] > address:
            if self._ends[index] > address:
                for reference in self._holders[index]:
                    storage = _storage(reference())
                    # The storage may have been resized, freed, or given to another tensor since the scan.
                    if storage is not None and storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
                        return storage
            index -= 1
        return None


def _storage(holder: Any) -> torch.UntypedStorage | None:
    """The storage behind a tensor or storage object, or None if it has no memory to speak of."""
    if holder is None:
        return None
    try:
        if issubclass(type(holder), torch.UntypedStorage):
            storage: torch.UntypedStorage = holder
        else:
            if _is_cow(holder):
                return None  # asking for its address would make it copy
            with torch._C.DisableTorchFunctionSubclass():
                storage = holder.untyped_storage()
        if storage.device.type == "meta" or not storage.nbytes() or not storage.data_ptr():
            return None
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return storage


def _is_cow(tensor: torch.Tensor) -> bool:
    check = getattr(torch._C, "_is_cow_tensor", None)
    return bool(check is not None and check(tensor))


def _collect(candidates: Iterable[Any]) -> dict[tuple[int, int], list[weakref.ref[Any]]]:
    found: dict[tuple[int, int], list[weakref.ref[Any]]] = {}
    wanted: dict[type, bool] = {}
    for candidate in candidates:
        # type(), never isinstance: that asks `__class__`, which runs the code of foreign proxies.
        kind = type(candidate)
        is_wanted = wanted.get(kind)
        if is_wanted is None:
            is_wanted = wanted[kind] = issubclass(kind, (torch.Tensor, torch.UntypedStorage))
        if not is_wanted:
            continue
        storage = _storage(candidate)
        if storage is None:
            continue
        start = storage.data_ptr()
        try:
            reference = weakref.ref(candidate)
        except TypeError:
            continue
        found.setdefault((start, start + storage.nbytes()), []).append(reference)
    return found


LIVE_STORAGES = LiveStorages()
"""The process's index."""
