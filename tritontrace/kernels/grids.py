"""The grid of a launch: what users write for it, and the three numbers it comes to."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from tritontrace.errors import ArgumentError

if TYPE_CHECKING:
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["grid", "selected"]

_LIMIT = 2**31
"""Launchers pass an entry as a C int."""
_CUDA_LIMIT = 65535
"""Largest y and z of a grid on every NVIDIA GPU (CUDA C++ Programming Guide, table of technical specifications)."""


def grid(grid: Any, bound: BoundLaunch, backend: str = "") -> tuple[int, int, int]:
    """The three entries of a launch's grid, from a list, tuple, tensor, or a callable of the bound arguments.

    An entry may be any integer-like object (numpy, a one-element tensor). Raises `ArgumentError` for anything else, for no
    entry or more than three, and for a negative entry or one that a launcher (of `backend`, ``"cuda"``, say) cannot pass.
    """
    most = _CUDA_LIMIT if backend == "cuda" else _LIMIT - 1
    if type(grid) is tuple and len(grid) == 3 and all(type(entry) is int and 0 <= entry <= _CUDA_LIMIT for entry in grid):
        return grid
    if callable(grid):
        # A dictionary of its own: what the callable does to it must not reach the launch.
        grid = grid(dict(bound.values))
    entries = _entries(grid)
    if entries is None:
        raise ArgumentError(f"the grid of kernel {bound.kernel_name!r} must be one to three integers, not {_shown(grid)}")
    if not 1 <= len(entries) <= 3:
        count = len(entries)
        raise ArgumentError(
            f"the grid of kernel {bound.kernel_name!r} must have one to three entries, not {count}: {_shown(grid)}"
        )
    if min(entries) < 0:
        raise ArgumentError(f"the grid of kernel {bound.kernel_name!r} has a negative entry: {_shown(grid)}")
    if max(entries) >= _LIMIT:
        raise ArgumentError(f"the grid of kernel {bound.kernel_name!r} has an entry of 2**31 or more: {_shown(grid)}")
    x, y, z = [*entries, 1, 1][:3]
    if max(y, z) > most and x * y * z:  # Triton does not launch an empty grid
        raise ArgumentError(
            f"the grid of kernel {bound.kernel_name!r} has {y if y > most else z} programs along {'y' if y > most else 'z'}, but "
            f"CUDA takes at most {most} along y and z (2**31 - 1 along x); put the longest axis first, or fold two axes into x"
        )
    return x, y, z


def _entries(grid: Any) -> list[int] | None:
    if isinstance(grid, (str, bytes, Mapping, Set)):
        return None
    try:
        return [operator.index(grid[i]) for i in range(len(grid))]
    except (TypeError, RuntimeError, NotImplementedError):  # the latter two from tensors that have no value to give
        return None


def _shown(grid: Any) -> str:
    text = repr(grid)
    return text if len(text) <= 200 else f"{text[:200]}..."


def selected(shape: tuple[int, int, int], programs: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """The `programs` that a grid has, each once, in the order in which a grid is run (x fastest)."""
    found = {program for program in programs if all(0 <= n < size for n, size in zip(program, shape, strict=True))}
    return tuple(sorted(found, key=lambda program: program[::-1]))
