"""Programs that take turns at the same tiles of memory: told to be in order without cutting the memory into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.actors import Actor, meet
from tritontrace.clients.races.log import Record, Region
from tritontrace.clients.races.meetings import unordered
from tritontrace.clients.races.ordering import SyncLog

__all__ = ["take_turns"]

Int64s = npt.NDArray[np.int64]


def take_turns(region: Region, actors: Sequence[Actor], sync: SyncLog, wipes: list[tuple[int, Int64s]]) -> bool:
    """Whether all accesses are surely in order, because each tile's are, one behind the other. False says nothing.

    It is for accesses that all have one shape, two of which hit either the very same bytes or none in common: as those of
    programs that add to a tile under a lock.
    """
    records = region.records
    first = records[0].form
    if any(not _alike(record, first.size, first.regular) for record in records):
        return False
    sizes = [record.form.rows for record in records]
    start = np.concatenate([record.form.offsets() + record.form.base for record in records])
    time = _rows([record.time for record in records], sizes)
    order = np.lexsort((time, start))
    start = start[order]
    gaps = start[1:] - start[:-1]
    extent = first.size + sum(step * (count - 1) for step, count in first.regular)
    if bool(((gaps > 0) & (gaps < extent)).any()):
        return False
    present = sorted({record.actor.number for record in records})
    table = np.zeros((present[-1] + 1,) * 2, np.bool_)
    for a in present:
        for b in present:
            table[a, b] = meet(actors[a], actors[b])
    writes = np.array([actor.kind.writes for actor in actors[: present[-1] + 1]])
    actor = _rows([record.actor.number for record in records], sizes)[order]
    program = np.concatenate([record.form.id_array for record in records])[order]
    epoch = _rows([0 if record.epochs is None else record.epochs for record in records], sizes)[order]
    group = np.concatenate([np.zeros(1, np.int64), np.cumsum(gaps > 0)])
    return not len(unordered(group, actor, program, epoch, table, writes, sync, wipes).i)


def _alike(record: Record, size: int, regular: object) -> bool:
    form = record.form
    return record.count == 1 and not form.irregular and form.size == size and form.regular == regular


def _rows(values: Sequence[int | npt.NDArray[np.integer[Any]]], sizes: Sequence[int]) -> Int64s:
    """One value for each row of each record."""
    if any(isinstance(value, np.ndarray) for value in values):
        parts = [np.full(size, value, np.int64) for value, size in zip(values, sizes)]
        return np.concatenate(parts)
    return np.repeat(np.array(values, np.int64), sizes)
