"""Addresses for tensors that have no memory: fake tensors and those on torch's meta device.

A dry run accesses nothing, so any address will do that keeps storages apart. The distances between them are larger than
any storage, so a stray address never lands in a neighbour by accident.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tritontrace.engines.memory import AddressSpace, Allocation, tensors_of

__all__ = ["PhantomMemory", "Phantoms", "is_phantom"]

_FIRST = 1 << 56
"""Above every address that a process or a GPU hands out today."""
_APART = 1 << 46


def is_phantom(tensor: torch.Tensor) -> bool:
    """True for a tensor of which shape, strides and dtype are all there is."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.is_meta or type(tensor).__name__ == "FakeTensor"


class Phantoms:
    """The made-up storages of one launch: tensors that share a storage share its address."""

    __slots__ = ("_storages",)

    def __init__(self, values: Iterable[Any]) -> None:
        self._storages: dict[int, tuple[int, int]] = {}
        for value in values:
            for tensor in tensors_of(value):
                if is_phantom(tensor):
                    storage = _storage(tensor)
                    if storage._cdata not in self._storages:
                        self._storages[storage._cdata] = _FIRST + len(self._storages) * _APART, int(storage.nbytes())

    def __bool__(self) -> bool:
        return bool(self._storages)

    def storage(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """(address, bytes) of a phantom's storage; None for a tensor that has memory."""
        return self._storages.get(_storage(tensor)._cdata) if self._storages and is_phantom(tensor) else None

    def address(self, tensor: torch.Tensor) -> int | None:
        """The address of a phantom's first element; None for a tensor that has memory."""
        found = self.storage(tensor)
        if found is None:
            return None
        with torch._C.DisableTorchFunctionSubclass():
            return found[0] + int(tensor.storage_offset()) * tensor.element_size()

    def ranges(self) -> list[tuple[int, int]]:
        """(address, bytes) of every made-up storage, ascending."""
        return list(self._storages.values())


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    with torch._C.DisableTorchFunctionSubclass():
        storage: torch.UntypedStorage = tensor.untyped_storage()
        return storage


class PhantomMemory(AddressSpace):
    """The address space of a dry run: real storages are read where data decides an address, phantoms are only known."""

    @classmethod
    def for_dry_run(cls, values: Iterable[Any], registered: Iterable[Any], phantoms: Phantoms) -> PhantomMemory:
        """The space of a launch with these arguments."""
        given = [tensor for value in values for tensor in tensors_of(value) if not is_phantom(tensor)]
        space = cls.for_launch(given, registered)
        for address, nbytes in phantoms.ranges():
            if nbytes:
                space._bases.append(address)
                space.allocations.append(Allocation(address, nbytes, "meta", []))
        return space  # type: ignore[return-value]  # for_launch makes an object of the class that it is called on
