"""The tracer on events made by hand: one record per event, values only when asked for, files that come back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.made_events import HERE, Programs, access, launch_of
from tritontrace import events
from tritontrace.clients.tracer import Trace, Tracer
from tritontrace.launch import Launch


def trace(tracer: Tracer, launch: Launch, *made: Any) -> Trace:
    opened = tracer.for_launch(launch)
    opened.pre_run_callback(launch)
    for event in made:
        callbacks = opened.register_op_callback(type(event))
        assert callbacks is not None and callbacks.after is not None
        callbacks.after(event)
    return opened.finalize()


def some_events(launch: Launch) -> list[Any]:
    base = launch.argument("x").data_ptr
    addresses = base + 4 * np.arange(8).reshape(2, 4)
    loaded = access(events.Load, launch, addresses, mask=[[True] * 4, [True, True, False, False]], iterations=(3,))
    loaded.value = np.arange(8, dtype=np.float32).reshape(2, 4)
    added = access(events.Atomic, launch, addresses, operation="fadd", value=np.float32(1), site=1, stack=(HERE,))
    added.result = loaded.value
    summed = events.Reduce(launch, loaded.site, Programs(0, 2), (loaded.value,), 0)
    summed.results = (loaded.value.sum(axis=1),)
    multiplied = events.Dot(launch, loaded.site, Programs(0, 2), None, None, None)
    multiplied.result = np.ones((1, 4, 4), np.float32)
    stored = access(events.Store, launch, addresses, value=np.float32(2), iterations=(np.array([0, 1]),))
    return [loaded, added, summed, multiplied, stored]


def test_a_summary_names_each_event_in_order_and_builds_nothing() -> None:
    launch = launch_of(x=torch.zeros(8))
    made = some_events(launch)
    records = trace(Tracer(), launch, *made)
    assert [record.op for record in records] == ["load", "atomic", "reduce", "dot", "store"]
    assert [record.detail for record in records] == [None, "fadd", "reduce", None, None]
    assert [record.tensor for record in records] == ["x", "x", None, None, "x"]
    assert [record.masked for record in records] == [True, False, False, False, False]
    assert [record.iterations for record in records] == [(3,), (), (), (), (None,)]
    assert records[1].call_stack == (HERE,) and records[0].location == HERE
    assert all(record.n_programs == 2 for record in records)
    assert all(record.addresses is None and record.value is None and record.programs is None for record in records)
    assert made[0].address.built == 0


def test_values_are_copies_of_what_each_program_saw() -> None:
    launch = launch_of(x=torch.zeros(8))
    made = some_events(launch)
    load, atomic, reduction, dot, store = trace(Tracer(values=True), launch, *made)
    made[0].value[:] = -1
    assert load.value is not None and load.value.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert load.mask is not None and load.mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert load.addresses is not None
    assert (load.addresses - launch.argument("x").data_ptr).ravel().tolist() == list(range(0, 32, 4))
    assert atomic.value is not None and atomic.value.shape == (2, 4)
    assert reduction.value is not None and reduction.value.tolist() == [6.0, 22.0]
    assert dot.value is not None and dot.value.shape == (2, 4, 4)
    assert store.value is not None and store.value.tolist() == [[2.0] * 4] * 2
    one = load.for_program((1, 0, 0))
    assert one["value"].tolist() == [4, 5, 6, 7] and one["mask"].tolist() == [True, True, False, False]
    with pytest.raises(KeyError, match="not in this record"):
        load.for_program((9, 0, 0))


def test_only_the_selected_programs() -> None:
    launch = launch_of(x=torch.zeros(8))
    base = launch.argument("x").data_ptr
    early = access(events.Store, launch, [[base], [base + 4]], value=np.array([[1], [2]]))
    late = access(events.Store, launch, [[base + 8], [base + 12]], value=np.array([[3], [4]]), first=2)
    records = trace(Tracer(values=True, programs=[(3,), (2, 0, 0)]), launch, early, late)
    assert len(records) == 1 and records[0].n_programs == 2
    (record,) = trace(Tracer(values=True, programs=[(1,)]), launch, early, late)
    assert record.programs is not None and record.programs.tolist() == [[1, 0, 0]]
    assert record.value is not None and record.value.tolist() == [[2]]
    (summary,) = trace(Tracer(programs=[(1,)]), launch, early, late)
    assert summary.n_programs == 1
    with pytest.raises(ValueError, match="one to three"):
        Tracer(programs=[(1, 2, 3, 4)])
    assert trace(Tracer(programs=[]), launch, early) == []


def test_save_and_load(tmp_path: Path) -> None:
    launch = launch_of(x=torch.zeros(8))
    for tracer in (Tracer(), Tracer(values=True)):
        records = trace(tracer, launch, *some_events(launch))
        launch.records["tracer"] = list(records)
        path = tmp_path / "trace.bin"
        Tracer.save(launch, path)
        again = Tracer.load(path)
        assert len(again) == len(records)
        for a, b in zip(again, records, strict=True):
            arrays = ("programs", "addresses", "mask", "value")
            for name in (field.name for field in dataclasses.fields(a) if field.name not in arrays):
                assert getattr(a, name) == getattr(b, name)
            for name in arrays:
                one, other = getattr(a, name), getattr(b, name)
                assert (one is None) == (other is None)
                if one is not None:
                    assert one.dtype == other.dtype and np.array_equal(one, other)


def test_a_foreign_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, a=np.zeros(3))
    with pytest.raises(ValueError, match="not a saved trace"):
        Trace.load(path)


def test_launches_do_not_share_records() -> None:
    launch = launch_of(x=torch.zeros(8))
    tracer = Tracer(values=True, programs=[(0,)])
    one, two = tracer.for_launch(launch), tracer.for_launch(launch)
    assert one is not two and one.values and one.programs == ((0, 0, 0),)
    callbacks = one.register_op_callback(events.Load)
    assert callbacks is not None and callbacks.after is not None
    callbacks.after(some_events(launch)[0])
    assert len(one.finalize()) == 1
    assert two.finalize() == [] and tracer.finalize() == []


def test_loops_are_not_operations() -> None:
    assert Tracer().register_op_callback(events.Loop) is None
    assert Tracer().register_op_callback(events.MemoryEvent) is None
