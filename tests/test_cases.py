"""Kernels with a known truth under the sanitizer: exactly their faults are reported, and the outputs are right."""

from __future__ import annotations

import pytest
import torch

import tritontrace
from tests.cases import bounds, races
from tests.cases.common import Case, check
from tritontrace.kernels import capabilities

CASES = [case for case in bounds.CASES if capabilities.block_pointers() or "block_pointer" not in case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bounds(case: Case) -> None:
    with tritontrace.session(clients=["sanitizer"]) as session:
        results = case.run()
    check(case, bounds.__file__, session.findings)
    for actual, expected in results:
        torch.testing.assert_close(actual, expected)
    assert session.report()
    for launch in session.launches:
        assert launch.completed and launch.error is None
        assert all(finding.launch is launch for finding in launch.findings)


@pytest.mark.parametrize("case", [case for case in CASES if not case.faults], ids=lambda case: case.name)
def test_clean_cases_run_without_a_sanitizer(case: Case) -> None:
    with tritontrace.session(clients=["tracer"]):
        results = case.run()
    for actual, expected in results:
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.faults], ids=lambda case: case.name)
def test_faulty_cases_raise_without_a_sanitizer(case: Case) -> None:
    inside_storage = case.name in ("strided_view_taken_for_a_dense_one", "out_of_one_view_into_another")
    with tritontrace.session(clients=["tracer"]):
        if inside_storage:
            case.run()
        else:
            with pytest.raises(tritontrace.OutOfBoundsError):
                case.run()


@pytest.mark.parametrize("case", races.CASES, ids=lambda case: case.name)
def test_races(case: Case) -> None:
    with tritontrace.session(clients=["race_detector", "sanitizer"]) as session:
        results = case.run()
    check(case, races.__file__, session.findings)
    for actual, expected in results:
        torch.testing.assert_close(actual, expected)
    assert session.report()
    for finding in session.findings:
        assert finding.client == "race_detector" and finding.launch is session.launches[0]
        assert finding.message.startswith(("race ", "benign race "))
