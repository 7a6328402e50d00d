"""``engine="auto"``: what of the compiler's refusals the Python engine takes over, and how that is said."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace

SEEN: list[Any] = []
BY_NAME: dict[str, Any] = {}
NUMBER = 3


class Tally:
    count = 0


TALLY = Tally()


def keep(value: Any) -> None:
    SEEN.append(value)


@triton.jit
def appends_to_a_global(x):
    SEEN.append(tl.load(x))
    tl.store(x, 1.0)


@triton.jit
def sets_an_item_of_a_global(x):
    BY_NAME["x"] = tl.load(x)
    tl.store(x, 1.0)


@triton.jit
def sets_an_attribute_of_a_global(x):
    TALLY.count = TALLY.count + 1
    tl.store(x, 1.0)


@triton.jit
def calls_plain_python(x):
    keep(tl.load(x))
    tl.store(x, 1.0)


@triton.jit
def appending(v):
    SEEN.append(v)
    return v + 1


@triton.jit
def appends_in_a_helper(x):
    tl.store(x, appending(tl.load(x)))


@triton.jit
def looks_into_a_tuple(x, MODE: tl.constexpr):
    if MODE in (1, 2):
        tl.store(x, 1.0)


@triton.jit
def calls_a_builtin(x):
    for i, v in enumerate([1.0]):
        tl.store(x + i, v)


def closing_over(mine: list[Any]) -> Any:
    @triton.jit
    def appends_to_a_closures(x):
        mine.append(tl.load(x))
        tl.store(x, 1.0)

    return appends_to_a_closures


CASES = [
    (appends_to_a_global, {}, "appends_to_a_global", "global variable SEEN"),
    (sets_an_item_of_a_global, {}, "sets_an_item_of_a_global", "__setitem__"),
    (sets_an_attribute_of_a_global, {}, "sets_an_attribute_of_a_global", "TALLY|Attribute assignment"),
    (calls_plain_python, {}, "calls_plain_python", "global variable keep"),
    (appends_in_a_helper, {}, "appending", "in appending: .*global variable SEEN"),
    (looks_into_a_tuple, {"MODE": 2}, "looks_into_a_tuple", "'In'"),
    (calls_a_builtin, {}, "calls_a_builtin", "enumerate is not defined"),
    (closing_over([]), {}, "appends_to_a_closures", "global variable mine"),
]


def _line_of_body(name: str) -> int:
    with open(__file__, encoding="utf-8") as source:
        return next(n for n, line in enumerate(source, 1) if f"def {name}(" in line) + 1


@pytest.mark.parametrize(("kernel", "arguments", "where", "why"), CASES, ids=[case[2] for case in CASES])
def test_what_only_python_can_run_runs_and_says_where_and_why(
    kernel: Any, arguments: dict[str, Any], where: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.zeros(1)
    caplog.set_level(logging.DEBUG, "tritontrace.engines.auto")
    with tritontrace.session(engine="auto"):
        for _ in range(3):
            x.zero_()
            kernel[(1,)](x, **arguments)
            assert x.item() == 1.0
    first, *others = [record for record in caplog.records if record.name == "tritontrace.engines.auto"]
    assert f"test_auto.py:{_line_of_body(where)}" in first.getMessage()
    assert re.search(why, first.getMessage())
    assert [record.levelno for record in (first, *others)] == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    with tritontrace.session(engine="ir"), pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](x, **arguments)
    if hasattr(caught.value, "__notes__"):
        assert any("engine='python'" in note for note in caught.value.__notes__)


@triton.jit
def reads_a_number(x):
    tl.store(x, 1.0)
    tl.store(x, NUMBER)


@triton.jit
def sets_an_item_of_a_block(x):
    v = tl.load(x + tl.arange(0, 2))
    tl.store(x, 1.0)
    v[0] = 1.0


@triton.jit
def misspells(x):
    tl.store(x, 1.0)
    tl.store(x, undefined_name)  # noqa: F821


@pytest.mark.parametrize("kernel", [reads_a_number, sets_an_item_of_a_block, misspells], ids=lambda k: k.__name__)
def test_what_no_engine_runs_stays_refused_before_anything_is_written(kernel: Any) -> None:
    x = torch.zeros(2)
    with tritontrace.session(engine="auto"), pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](x)
    assert x.tolist() == [0.0, 0.0]
    assert not any("engine='python'" in note for note in getattr(caught.value, "__notes__", ()))


def test_a_report_says_what_is_wrong_in_a_helper(caplog: pytest.LogCaptureFixture) -> None:
    with tritontrace.session(engine="ir") as session, pytest.raises(triton.CompilationError):
        appends_in_a_helper[(1,)](torch.zeros(1))
    told = session.report() if sys.version_info >= (3, 11) else caplog.text  # 3.10 has no notes
    assert f"test_auto.py:{_line_of_body('appending')} in appending: Cannot access global variable SEEN" in told
