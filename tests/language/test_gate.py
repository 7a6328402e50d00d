"""Nothing public in ``triton.language`` may go unexecuted, or be left out without a reason that users can read."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.language import cases
from tests.language.harness import CASES, Case, cases_of, installed
from tritontrace import cli
from tritontrace.engines.ir import unsupported

assert cases.__all__  # importing the package is what makes the cases known


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
        assert not _executed(name), f"{name} is executed; its reason is out of date: {reason}"
        return
    assert cases_of(name), f"no case executes {name}, and no reason says why"
    assert _executed(name), f"the cases of {name} fail"


def test_every_reason_is_for_a_public_name() -> None:
    assert set(unsupported.reasons()) <= installed()
    assert all(name in unsupported.reasons() for name in installed() if unsupported.reason(name))


def test_doctor_prints_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name, why in unsupported.reasons().items():
        assert any(line.split(None, 1) == [name, why] for line in out.splitlines()), name


def test_the_documentation_lists_the_same_reasons() -> None:
    text = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    listed = {name.strip().strip("`"): why.strip() for name, why in rows}
    assert listed == {**unsupported.REASONS, **unsupported.BLOCK_POINTERS}


def test_no_name_has_two_cases_of_the_same_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
