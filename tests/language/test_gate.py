"""Nothing public in ``triton.language`` may go unexecuted, or be left out without a reason that users can read."""

from __future__ import annotations

from functools import cache

import pytest

from tests.language import cases
from tests.language.harness import CASES, Case, cases_of, installed
from tritontrace.engines.ir import unsupported

assert cases


@cache
def outcome(case: Case) -> Exception | None:
    """What running the case raised, once per process."""
    try:
        case.check()
    except Exception as error:  # whatever it is, it is this case's result
        return error
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    if not case.possible:
        pytest.skip("this version of Triton has none of it")
    error = outcome(case)
    if error is not None:
        raise error


def _executed(name: str) -> bool:
    return any(case.possible and outcome(case) is None for case in cases_of(name))


@pytest.mark.parametrize("name", sorted(installed()))
def test_every_public_name_is_executed_or_has_a_reason(name: str) -> None:
    reason = unsupported.reason(name)
    if reason is not None:
        assert not cases_of(name), f"{name} is executed; its reason is out of date: {reason}"
        return
    assert cases_of(name), f"no case executes {name}, and no reason says why"
    assert _executed(name), f"the cases of {name} fail"


def test_no_name_has_two_cases_of_the_same_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
