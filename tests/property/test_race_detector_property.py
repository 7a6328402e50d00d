"""The race detector against brute force: thousands of drawn launches, no disagreement."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.race_model import Model
from tritontrace.clients.race_detector import RaceDetector
from tritontrace.clients.races.shadow import Shadow

GRIDS = ((4, 1, 1), (2, 3, 1), (2, 1, 2), (7, 1, 1))


def check(random: Random, noted: bool = True, **options: Any) -> None:
    model = Model(random, grid=random.choice(GRIDS), **options)
    client = RaceDetector().for_launch(model.launch)
    client.pre_run_callback(model.launch)
    model.run(client, random.randint(1, 10))
    findings = client.finalize()
    x, y, _ = model.grid

    def linear(programs: Any) -> list[int]:
        return [int(i + x * (j + y * k)) for i, j, k in np.asarray(programs).tolist()]

    lanes = [f for f in findings if f.details.get("same_program")]
    races = [f for f in findings if not f.details.get("same_program")]
    expected = model.expected()
    assert {(f.location.line - 1, f.tensor) for f in races} == set(expected)
    assert len(races) == len(expected)
    for finding in races:
        want = expected[finding.location.line - 1, finding.tensor]
        assert linear(finding.programs) == sorted(want["programs"])
        by_program = finding.elements_by_program
        assert {p: set(e.tolist()) for p, e in zip(linear(list(by_program)), by_program.values())} == want["elements"]
        assert set(finding.elements.tolist()) == set().union(*want["elements"].values())
        sides = {side["location"].line - 1: side for side in finding.other["all"]}
        assert {line: set(linear(side["programs"])) for line, side in sides.items()} == want["sides"]
        for line, side in sides.items():
            pairs = {(line, a, b) for a, b in zip(linear(side["pairs"][:, 0]), linear(side["pairs"][:, 1]))}
            assert pairs <= want["pairs"]
            assert {b for _, _, b in pairs} == want["sides"][line]
        if noted and model.aligned and options.get("sizes", (4,)) == (4,):  # else values agree by granules, not bytes
            assert finding.benign == want["benign"]
        assert finding.details["complete"]
        finding.to_dict()
    faults = {
        (f.location.line - 1, p, e)
        for f in lanes
        for p, es in zip(linear(list(f.elements_by_program)), f.elements_by_program.values())
        for e in es.tolist()
    }
    sizes = {op.site.id: op.size for op in model.ops}
    assert faults == {(site, program, byte // sizes[site]) for site, program, byte in model.lane_faults}


def law(examples: int) -> Any:
    def decorate(function: Any) -> Any:
        suppressed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
        return settings(max_examples=examples, deadline=None, suppress_health_check=suppressed)(
            given(st.randoms(use_true_random=True))(function)
        )

    return decorate


@law(600)
def test_plain_loads_and_stores(random: Random) -> None:
    check(random, peers=random.random() < 0.5)


@law(300)
def test_elements_of_several_sizes(random: Random) -> None:
    check(random, sizes=(1, 2, 4), peers=random.random() < 0.5)


@law(300)
def test_atomics_among_plain_accesses(random: Random) -> None:
    check(random, kinds=("load", "store", "volatile", "add", "cas", "xchg", "astore"), peers=random.random() < 0.5)


@law(600)
def test_order_by_acquire_and_release(random: Random) -> None:
    check(random, sync=True, peers=random.random() < 0.7)


@law(300)
def test_everything_together(random: Random) -> None:
    kinds = ("load", "store", "volatile", "add", "cas", "xchg", "aload", "astore")
    check(random, kinds=kinds, sizes=(1, 4), sync=True, peers=random.random() < 0.5)


LIMITS = {
    "log": {"_BUDGET": 600},
    "conflicts": {"_PART": 5, "_FEW": 0},
    "pieces": {"_PART": 5, "_STRETCHES": 4, "_ENTRIES": 3},
    "meetings": {"_PAIRS": 0},
    "ordering": {"_CLOCK_BYTES": 40, "_MOST_KEYS": 0},
}
"""Limits that no drawn launch would reach otherwise: whatever is done in parts, or is said again shorter, gives the same."""


@law(400)
def test_in_small_parts(random: Random) -> None:
    kinds = ("load", "store", "store", "add", "cas", "aload", "astore")
    with pytest.MonkeyPatch.context() as patch:
        for room, limits in LIMITS.items():
            for name, value in limits.items():
                patch.setattr(f"tritontrace.clients.races.{room}.{name}", value)
        check(random, kinds=kinds, sizes=random.choice(((4,), (1, 4))), sync=random.random() < 0.5, peers=random.random() < 0.5)


@law(400)
def test_memory_too_large_for_notes(random: Random) -> None:
    kinds = ("load", "store", "store", "volatile", "add", "cas", "astore")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shadow, "noted", False)
        patch.setattr("tritontrace.clients.races.sweep._STRETCHES", random.choice((2, 7, 1000)))
        sizes = random.choice(((4,), (1, 4)))
        check(random, False, kinds=kinds, sizes=sizes, sync=random.random() < 0.3, peers=random.random() < 0.5)


@pytest.mark.slow
@law(2000)
def test_everything_together_for_longer(random: Random) -> None:
    kinds = ("load", "store", "volatile", "add", "cas", "xchg", "aload", "astore")
    check(random, kinds=kinds, sizes=random.choice(((4,), (1, 4))), sync=random.random() < 0.7, peers=random.random() < 0.5)
