"""The profiler's counts of one access site against brute force: every lane looked at one by one."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tritontrace import events
from tritontrace.clients.profiling.sites import SiteCounter
from tritontrace.clients.profiling.touched import Places
from tritontrace.engines.ir.runtime import address_form, mask_form
from tritontrace.engines.ir.values import Axis, Compare, Mask, Separable
from tritontrace.engines.memory import AddressSpace

STORAGE = torch.zeros(1 << 14, dtype=torch.uint8)
PLACES = Places()
PLACES.look(AddressSpace.for_launch([STORAGE]))
BASE = STORAGE.data_ptr()
MIDDLE = BASE + (1 << 13)
FIGURES = ("executions", "lanes", "active", "sectors", "sectors_needed", "distinct", "pieces")


class Batch:
    def __init__(self, programs: int) -> None:
        self.programs = programs

    def __len__(self) -> int:
        return self.programs


def made(kind: type[events.MemoryEvent], pointer: Any, mask: Any, block: tuple[int, ...], programs: int, size: int) -> Any:
    site = events.Site(1, "tt.load", None, block=block, element_bits=size * 8)
    return kind(types.SimpleNamespace(), site, Batch(programs), address_form(pointer), mask_form(mask), "x")  # type: ignore[arg-type]


def brute(history: list[Any], size: int) -> dict[str, Any]:
    """The same figures from sets of bytes, program by program."""
    out: dict[str, Any] = dict.fromkeys(FIGURES, 0)
    touched: set[int] = set()
    hits: dict[int, int] = {}
    for event in history:
        addresses, active = event.addresses(), event.active()
        for program in range(len(event)):
            lanes = addresses[program].reshape(-1)
            on = lanes[active[program].reshape(-1)].tolist()
            own = sorted({a + i for a in on for i in range(size)})
            out["executions"] += 1
            out["lanes"] += lanes.size
            out["active"] += len(on)
            out["sectors"] += len({byte // 32 for byte in own})
            out["sectors_needed"] += -(-len(own) // 32)
            out["distinct"] += len(own)
            out["pieces"] += sum(1 for i, byte in enumerate(own) if i == 0 or own[i - 1] != byte - 1)
            touched.update(byte for byte in own if BASE <= byte < BASE + STORAGE.numel())
            for address in on:
                hits[address] = hits.get(address, 0) + 1
    out["touched"] = len(touched)
    out["hits"] = sorted(hits.values())
    return out


def counted(counter: SiteCounter) -> dict[str, Any]:
    counter.flush()
    out = {name: getattr(counter, name) for name in FIGURES}
    out["touched"] = sum(touched.bytes() for touched in counter.touched.values())
    return out


def offsets(draw: Any, n: int, programs: int, size: int) -> Axis | None:
    """One axis: none, regular, irregular, or different from program to program."""
    kind = draw(st.sampled_from(["none", "regular", "regular", "irregular", "shifted", "wrapped", "random"]))
    if kind == "none":
        return None
    unit = draw(st.sampled_from([1, size, size, size, 4 * size, 32, 48]))
    step = draw(st.sampled_from([1, 1, 1, 2, 3, -1, 0, 8])) * unit
    regular = np.arange(n, dtype=np.int64) * step
    if kind == "regular":
        return Axis(regular)
    if kind == "irregular":
        return Axis(np.array(draw(st.lists(st.integers(-20, 20), min_size=n, max_size=n)), np.int64) * unit)
    start = np.array(draw(st.lists(st.integers(-5, 5), min_size=programs, max_size=programs)), np.int64)[:, None]
    if kind == "shifted":
        return Axis(regular[None] + start * unit)
    if kind == "wrapped":
        return Axis((np.arange(n)[None] + start) % 5 * unit)
    seed = draw(st.integers(0, 2**32 - 1))
    return Axis(np.random.default_rng(seed).integers(-20, 20, (programs, n)) * unit)


def conditions(draw: Any, block: tuple[int, ...], programs: int) -> Mask | None:
    parts: list[Any] = []
    rank = len(block)
    for kind in draw(st.lists(st.sampled_from(["edge", "edge by program", "holes", "program", "diagonal", "lanes"]), max_size=3)):
        axis = draw(st.integers(0, rank - 1))
        shape = [1] * (rank + 1)
        shape[axis + 1] = block[axis]
        at = np.arange(block[axis]).reshape(shape)
        limits = draw(st.lists(st.integers(-1, max(block) + 1), min_size=programs, max_size=programs))
        per_program = np.array(limits).reshape(-1, *(1,) * rank)
        if kind == "edge":
            axes: list[Axis | None] = [None] * rank
            axes[axis] = Axis(np.arange(block[axis], dtype=np.int64))
            parts.append(Compare(Separable(-limits[0], None, tuple(axes), 64), draw(st.sampled_from(["lt", "ge", "ne"]))))
        elif kind == "edge by program":
            parts.append(at < per_program)
        elif kind == "holes":
            parts.append((at + per_program) % 3 != 0)
        elif kind == "program":
            parts.append(per_program > 0)
        elif kind == "diagonal" and rank == 2:
            parts.append(np.arange(block[0])[None, :, None] + per_program >= np.arange(block[1])[None, None, :])
        else:
            seed = draw(st.integers(0, 2**32 - 1))
            parts.append(np.random.default_rng(seed).random((programs, *block)) < 0.6)
    return Mask(tuple(parts)) if parts else None


@st.composite
def accesses(draw: Any) -> tuple[list[Any], int]:
    """A few events of one site; the addresses stay in the storage, most of the time."""
    size = draw(st.sampled_from([1, 2, 4, 8]))
    rank = draw(st.integers(1, 3))
    block = tuple(draw(st.sampled_from([1, 2, 4, 8, 16])) for _ in range(rank))
    dense = draw(st.booleans())
    history = []
    for _ in range(draw(st.integers(1, 3))):
        programs = draw(st.integers(1, 5))
        axes = tuple(offsets(draw, n, programs, size) for n in block)
        center = draw(st.sampled_from([MIDDLE, MIDDLE, MIDDLE + size, MIDDLE + 1, BASE, BASE + STORAGE.numel() - 8]))
        program = None
        if draw(st.booleans()):
            stride = draw(st.sampled_from([0, size, 8 * size, 128, 100, -64]))
            program = np.arange(programs, dtype=np.int64) * stride
            if draw(st.booleans()):
                program = program[::-1].copy() ** 2 % 1000
        pointer: Any = Separable(center, program, axes, 64)
        if dense:
            pointer = pointer.dense()
        history.append(made(events.Load, pointer, conditions(draw, block, programs), block, programs, size))
    return history, size


@settings(deadline=None, max_examples=400)
@given(accesses())
def test_every_count_equals_brute_force(case: tuple[list[Any], int]) -> None:
    history, size = case
    counter = SiteCounter(history[0], PLACES)
    for event in history:
        counter.add(event)
    want = brute(history, size)
    del want["hits"]
    assert counted(counter) == want


@settings(deadline=None, max_examples=100)
@given(accesses(), st.data())
def test_counting_some_programs_is_counting_an_event_of_only_these(case: tuple[list[Any], int], data: st.DataObject) -> None:
    history, size = case
    event = history[0]
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(event) - 1), min_size=1))))
    counter = SiteCounter(event, PLACES)
    counter.add(event, rows)

    addresses, active = event.addresses()[rows], event.active()[rows]
    only = made(events.Load, addresses, Mask((active,)), event.block, len(rows), size)
    want = brute([only], size)
    del want["hits"]
    assert counted(counter) == want


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 40), min_size=8, max_size=8), min_size=1, max_size=4), st.booleans())
def test_contention_counts_every_hit_of_every_element(elements: list[list[int]], masked: bool) -> None:
    addresses = BASE + 4 * np.array(elements, np.int64)
    mask = Mask((addresses % 3 != 0,)) if masked else None
    event = made(events.Atomic, addresses, mask, (8,), len(elements), 4)
    counter = SiteCounter(event, PLACES)
    counter.add(event)
    counter.add(event)

    counts = counter.contention.get(BASE, np.zeros(0, np.int64))
    assert sorted(counts[counts > 0].tolist()) == brute([event, event], 4)["hits"]
