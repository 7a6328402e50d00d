"""Distinct numbers of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["distinct", "distinct_rows"]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct values of an integer array of any shape, sorted, flat.

    ``numpy.unique`` without its optional results counts on a hash table since numpy 2.3; with a million addresses that
    takes 60 times as long as sorting them (measured: 5.1 s against 0.08 s).
    """
    ordered = np.sort(values, axis=None)
    if len(ordered) < 2:
        return ordered
    fresh = np.empty(len(ordered), np.bool_)
    fresh[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh]


def distinct_rows(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct rows of an integer array ``[N, K]``, sorted by the first column, then the second, and so on.

    ``numpy.unique(rows, axis=0)`` sorts records one by one, which takes 50 times as long.
    """
    if len(rows) < 2:
        return rows
    ordered = rows[np.lexsort(rows.T[::-1])]
    fresh = np.empty(len(ordered), np.bool_)
    fresh[0] = True
    np.any(ordered[1:] != ordered[:-1], axis=1, out=fresh[1:])
    return ordered[fresh]
