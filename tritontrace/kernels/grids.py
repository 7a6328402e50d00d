"""The grid of a launch: what users write for it, and the three numbers it comes to."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from tritontrace.errors import ArgumentError

if TYPE_CHECKING:
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["grid"]

_LIMIT = 2**31
"""Launchers pass an entry as a C int."""


def grid(grid: Any, bound: BoundLaunch) -> tuple[int, int, int]:
    """The three entries of a launch's grid, from a list, tuple, tensor, or a callable of the bound arguments.

    An entry may be any integer-like object (numpy, a one-element tensor). Raises `ArgumentError` for anything else, for no
    entry or more than three, and for a negative entry or one that a launcher cannot pass.
    """
    if type(grid) is tuple and len(grid) == 3 and all(type(entry) is int and 0 <= entry < _LIMIT for entry in grid):
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
