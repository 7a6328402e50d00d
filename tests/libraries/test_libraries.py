"""Operations of well-known Triton libraries, unmodified, forward and backward, equal to float64 torch references.

Each library has an environment of its own (``make test-libraries``); what is not installed is not collected.
"""

from __future__ import annotations

import pytest

import tritontrace
from tests.libraries.case import Case
from tests.libraries.registry import LIBRARIES

pytestmark = pytest.mark.libraries


def installed_cases() -> list[object]:
    return [
        pytest.param(case, id=f"{key}-{case.name}", marks=[pytest.mark.slow] if case.slow else [])
        for key, library in LIBRARIES.items()
        if library.installed
        for case in library.load()
    ]


@pytest.mark.parametrize("case", installed_cases())
def test_equals_its_reference(case: Case) -> None:
    values = case.make_inputs()
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        got = case.run(values)
    case.check(got, case.reference(case.make_inputs()))
    assert session.launches, "no kernel was traced: the library did not use Triton here"
    assert all(launch.completed for launch in session.launches)
    messages = [finding.message for finding in session.findings]
    if case.finding is None:
        assert messages == []
    else:
        assert messages, f"expected a finding: {case.finding}"
