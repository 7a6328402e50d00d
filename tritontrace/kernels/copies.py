"""Copies of launch arguments, for runs whose side effects must not reach the user's tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from tritontrace.engines.memory import AddressSpace, Allocation, storage_of
from tritontrace.kernels.compat import TensorDescriptor, TensorWrapper

__all__ = ["Copier", "PrivateMemory"]


class Copier:
    """Copies arguments so that they keep their relations: an object twice is one copy, views of a storage share a copy.

    Tensors (also inside tuples, lists and descriptors) get memory of their own; anything else is passed on as it is.
    `storages` holds the addresses of the copies' storages.
    """

    def __init__(self) -> None:
        self.storages: set[int] = set()
        self._storages: dict[tuple[str, int], torch.UntypedStorage] = {}
        self._made: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        made = self._copy(value)
        if made is not value:
            # Beside the copy, the original: an id means something only while its object lives.
            self._made[id(value)] = (value, made)
        return made

    def _copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, TensorWrapper):
            return TensorWrapper(self(value.base), value.dtype)
        if isinstance(value, TensorDescriptor):
            # Not through the constructor: it checks alignment, which the copy's base need not have.
            made = copy.copy(value)
            made.base = self(value.base)
            # A config's hook may change these in place.
            made.shape, made.strides, made.block_shape = list(value.shape), list(value.strides), list(value.block_shape)
            return made
        if isinstance(value, tuple):
            items = [self(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, list):
            return [self(item) for item in value]
        return value

    def _tensor(self, tensor: torch.Tensor) -> Any:
        try:
            storage, address, nbytes = storage_of(tensor)
        except TypeError:
            return tensor  # it has no memory; the launch itself says so
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            key = (str(storage.device), address if nbytes else id(tensor))
            private = self._storages.get(key)
            if private is None:
                clone: Callable[[], torch.UntypedStorage] = storage.clone  # torch gives it no types
                private = self._storages[key] = clone()
                self.storages.add(private.data_ptr())
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            return flat.set_(private, tensor.storage_offset(), tensor.size(), tensor.stride())


class PrivateMemory(AddressSpace):
    """The address space of a trial: memory that is not the trial's own is worked on in a copy that is thrown away.

    A kernel may reach other tensors than its arguments (arrays of ``data_ptr()``s, registered memory); a trial must not
    write to them.
    """

    own: frozenset[int] | None = None

    @classmethod
    def for_trial(cls, tensors: Any, registered: Any, own: frozenset[int]) -> PrivateMemory:
        """Like `for_launch`; `own` are the addresses of the storages that belong to the trial."""
        space = cls.for_launch(tensors, registered)
        assert isinstance(space, PrivateMemory)
        space.own = own
        for allocation in space.allocations:
            space._protect(allocation)
        return space

    def _insert(self, parts: Any, end: int) -> Allocation:
        allocation = super()._insert(parts, end)
        self._protect(allocation)
        return allocation

    def _protect(self, allocation: Allocation) -> None:
        # Whatever is not on the host is copied in, and copied back only from a completed launch, which a trial is not.
        if self.own is not None and allocation.base not in self.own and allocation.on_host:
            allocation.device = f"copy of {allocation.device}"

    def finish(self, completed: bool) -> None:
        super().finish(False)
