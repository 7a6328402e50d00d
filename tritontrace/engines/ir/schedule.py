"""Which batch runs next: splitting at divergent branches, merging where programs meet again, waiting without blocking.

A batch is plain data (block, frame, environment). The one at the earliest block runs first and takes along every other batch of
its chunk that stands at the same block, so programs that parted at a branch go on together behind it. A batch that comes round a
loop that may wait, without progress, is parked: it is tried again once memory has changed. When all that is left is parked
and has been tried since the last write, nobody can ever go on: `DeadlockError`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir.control import assemble
from tritontrace.engines.ir.flatten import FlatBlock
from tritontrace.engines.ir.runtime import Frame, Runtime
from tritontrace.engines.ir.values import dense, take_programs
from tritontrace.errors import DeadlockError

__all__ = ["Nested", "Scheduler", "count_step", "looped"]

_PATIENCE = 256
"""Rounds of a loop that makes progress before others get a turn."""

_MEMBERS = "@"
"""The environment's entry for the positions of a nested call's programs in its caller's batch."""


def looped(frame: Frame, loops: tuple[tuple[Any, Any], ...]) -> Frame:
    """The frame of a flat block inside loops: (location, iterations ``[P|1]``) each."""
    entries = tuple((where, int(n[0]) if len(n) == 1 else n) for where, n in loops)
    return Frame(frame.rt, frame.lanes, frame.ids, entries)


def count_step(frame: Frame, site: events.Site, kind: str, iteration: Any) -> None:
    """Account for one iteration of a flat loop and tell who listens."""
    rt = frame.rt
    rt.step(frame, site.location)
    if rt.hooks.loop_iteration:
        shown = int(iteration[0]) if len(iteration) == 1 else iteration
        rt.fire(rt.hooks.loop_iteration, events.Loop(rt.launch, site, frame, kind, iteration=shown))


class _Batch:
    __slots__ = ("block", "chunk", "env", "frame", "patience", "progressed", "seen", "tried")

    def __init__(self, block: FlatBlock, frame: Frame, env: dict[str, Any], chunk: int) -> None:
        self.block = block
        self.frame = frame
        self.env = env
        self.chunk = chunk
        self.patience = _PATIENCE
        self.tried = -1  # writes to memory when the waiting loop was last entered
        self.progressed = False
        self.seen: tuple[Any, ...] | None = None

    def take(self, index: Any, block: FlatBlock) -> _Batch:
        env = {name: take_programs(self.env[name], index) for name in block.live if name in self.env}
        if _MEMBERS in self.env:
            env[_MEMBERS] = self.env[_MEMBERS][index]
        out = _Batch(block, self.frame.take(index), env, self.chunk)
        out.tried, out.patience = self.tried, self.patience
        out.seen = None if self.seen is None else tuple(take_programs(v, index) for v in self.seen)
        return out


def _merge(batches: list[_Batch]) -> _Batch:
    first = batches[0]
    if len(batches) == 1:
        return first
    edges = np.cumsum([0, *(b.frame.P for b in batches)])
    slots = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    total = int(edges[-1])
    names = [n for n in first.block.live if all(n in b.env for b in batches)]
    values = assemble([(slot, [b.env[n] for n in names]) for slot, b in zip(slots, batches)], total)
    env = dict(zip(names, values))
    if _MEMBERS in first.env:
        env[_MEMBERS] = np.concatenate([b.env[_MEMBERS] for b in batches])
    frame = first.frame
    ids = tuple(
        axis[0]
        if all(len(a) == 1 and a[0] == axis[0][0] for a in axis)  # batches of one program have ids of their own
        else np.concatenate([np.broadcast_to(a, (b.frame.P,)) for a, b in zip(axis, batches)])
        for axis in zip(*(b.frame.ids for b in batches))
    )
    merged = Frame(frame.rt, np.concatenate([b.frame.lanes for b in batches]), ids, frame.loops)
    return _Batch(first.block, merged, env, first.chunk)


class Scheduler:
    """Runs flat blocks to their end for every frame that `frames` yields (one chunk each, begun as late as possible)."""

    def __init__(self, rt: Runtime, blocks: list[FlatBlock]) -> None:
        self.rt = rt
        self.blocks = blocks
        self.ready: list[_Batch] = []
        self.waiting: deque[_Batch] = deque()
        self.results: list[tuple[Any, list[Any]]] = []

    def run(self, frames: Iterator[tuple[Frame, dict[str, Any]]]) -> None:
        """Run everything; raises `DeadlockError` if the rest waits for ever."""
        chunk = 0
        while True:
            batch = self._next()
            if batch is None:
                begun = next(frames, None)
                if begun is not None:
                    self.ready.append(_Batch(self.blocks[0], begun[0], begun[1], chunk))
                    chunk += 1
                    continue
                if self.waiting:
                    self._deadlock()
                return
            self._advance(batch)

    def _next(self) -> _Batch | None:
        if self.ready:
            best = min(self.ready, key=lambda b: (b.chunk, b.block.order))
            same = [b for b in self.ready if b.block is best.block and b.chunk == best.chunk]
            self.ready = [b for b in self.ready if not (b.block is best.block and b.chunk == best.chunk)]
            return _merge(same)
        for _ in range(len(self.waiting)):
            batch = self.waiting.popleft()
            if batch.progressed or batch.tried != self.rt.writes:
                return batch
            self.waiting.append(batch)
        return None

    def _advance(self, batch: _Batch) -> None:
        """Run one batch until it splits, ends, parks, or has company to wait for."""
        while True:
            block = batch.block
            if block.waits is not None:
                batch.tried = self.rt.writes
                batch.seen = tuple(batch.env[n] for n in block.waits)
            outcome = block.function(batch.frame, batch.env)
            kind = type(outcome)
            if kind is list:
                self.results.append((batch.env.get(_MEMBERS), outcome))
                return
            if kind is int:
                target = self.blocks[outcome]
            else:
                condition, yes, no = outcome
                condition = dense(condition).reshape(-1)
                if len(condition) == 1 or batch.frame.P == 1:
                    target = self.blocks[yes if condition[0] else no]
                else:
                    go = np.flatnonzero(condition)
                    if len(go) == len(condition):
                        target = self.blocks[yes]
                    elif not len(go):
                        target = self.blocks[no]
                    else:
                        self.ready.append(batch.take(go, self.blocks[yes]))
                        self.ready.append(batch.take(np.flatnonzero(~condition), self.blocks[no]))
                        return
            batch.block = target
            comes_round = target.waits is not None and batch.seen is not None and target.order <= block.order
            if comes_round and self._park(batch, target):
                return
            if self.ready:
                self.ready.append(batch)
                return

    def _park(self, batch: _Batch, head: FlatBlock) -> bool:
        """Decide at the end of a waiting loop's round; True if the batch was parked."""
        seen = batch.seen or ()
        progressed = any(not _same(old, batch.env[name]) for old, name in zip(seen, head.waits or ()))
        if progressed and batch.patience > 0:
            batch.patience -= 1
            return False
        batch.patience = _PATIENCE
        batch.progressed = progressed
        self.waiting.append(batch)
        return True

    def _deadlock(self) -> None:
        batch = self.waiting[0]
        programs = [(int(a), int(b), int(c)) for w in self.waiting for a, b, c in w.frame.program_ids()[:16]]
        raise DeadlockError(
            "the kernel waits for ever: every program that is left waits for memory that no program will write any more",
            kernel=self.rt.launch.kernel_name,
            location=batch.block.location,
            programs=programs,
        )


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    a, b = dense(old), dense(new)
    return (
        bool(np.array_equal(np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)), b))
        if a.shape != b.shape
        else bool((a == b).all() or np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    )


class Nested:
    """A function of several blocks, called from nested code: all its programs come back before the call returns."""

    def __init__(self, blocks: list[FlatBlock], arguments: list[str], prefix: str) -> None:
        self.blocks = blocks
        self.arguments = arguments
        self.prefix = prefix

    def link(self, functions: dict[str, Any]) -> None:
        """Attach the compiled functions."""
        for block in self.blocks:
            block.function = functions[f"{self.prefix}{block.index}"]

    def __call__(self, frame: Frame, values: list[Any]) -> list[Any]:
        scheduler = Scheduler(frame.rt, self.blocks)
        env = dict(zip(self.arguments, values))
        env[_MEMBERS] = np.arange(frame.P)
        scheduler.run(iter([(frame, env)]))
        return assemble(scheduler.results, frame.P) if scheduler.results and scheduler.results[0][1] else []

    def as_region(self, frame: Frame, free: list[Any], *values: Any) -> list[Any]:
        """Call it as a region."""
        return self(frame, [*free, *values])
