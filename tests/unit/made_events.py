"""Launches and events built by hand, in the plainest form that the protocols of `tritontrace.events` allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tritontrace import events
from tritontrace.engines.memory import AddressSpace
from tritontrace.launch import ArgumentInfo, Launch
from tritontrace.source import SourceLocation

HERE = SourceLocation(__file__, 5, 1, "kernel")


class Programs:
    """A batch of one-dimensional programs, inside loops at the given iterations."""

    def __init__(self, first: int, count: int, iterations: tuple[Any, ...] = ()) -> None:
        self._ids = np.zeros((count, 3), np.int32)
        self._ids[:, 0] = np.arange(first, first + count)
        self._iterations = tuple((HERE, i) for i in iterations)

    def program_ids(self) -> Any:
        return self._ids

    def iterations(self) -> tuple[tuple[SourceLocation | None, Any], ...]:
        return self._iterations

    def __len__(self) -> int:
        return len(self._ids)


class Addresses:
    """Plain arrays of addresses; counts how often they were asked for."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array, np.int64)
        self.built = 0

    def minmax(self) -> Any:
        flat = self.array.reshape(len(self.array), -1)
        return flat.min(axis=1), flat.max(axis=1)

    def dense(self) -> Any:
        self.built += 1
        return self.array


class Lanes:
    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array, np.bool_)

    def all(self) -> bool:
        return bool(self.array.all())

    def dense(self) -> Any:
        return self.array


def info(name: str, tensor: torch.Tensor, kind: str = "*fp32") -> ArgumentInfo:
    storage = tensor.untyped_storage()
    return ArgumentInfo(
        name=name,
        type=kind,
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        data_ptr=tensor.data_ptr(),
        storage_ptr=storage.data_ptr(),
        storage_bytes=storage.nbytes(),
        element_bytes=tensor.element_size(),
    )


def launch_of(grid: int = 4, **tensors: torch.Tensor) -> Launch:
    launch = Launch("kernel", grid=(grid, 1, 1), arguments={name: info(name, t) for name, t in tensors.items()})
    launch.memory = AddressSpace.for_launch(tensors.values())
    return launch


def access(
    kind: type[events.MemoryEvent],
    launch: Launch,
    addresses: Any,
    *,
    tensor: str | None = "x",
    mask: Any = None,
    first: int = 0,
    iterations: tuple[Any, ...] = (),
    site: int = 0,
    bits: int = 32,
    stack: tuple[SourceLocation, ...] = (),
    guess: bool = False,
    **more: Any,
) -> Any:
    """An access with `addresses` ``[P, *block]``; with `guess` the engine is not sure of the tensor."""
    form = Addresses(addresses)
    made = events.Site(
        id=site,
        op="tt.access",
        location=HERE,
        call_stack=stack,
        block=form.array.shape[1:],
        dtype="fp32",
        element_bits=bits,
        parameter=None if guess else tensor,
    )
    lanes = None if mask is None else Lanes(mask)
    return kind(launch, made, Programs(first, len(form.array), iterations), form, lanes, tensor, **more)
