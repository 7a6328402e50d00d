"""Nothing public in ``triton.language`` may go unexecuted, or be left out without a reason that users can read."""

from __future__ import annotations

from functools import cache

import pytest

from tests.language import cases
from tests.language.harness import CASES, Case

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


def test_no_name_has_two_cases_of_the_same_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
