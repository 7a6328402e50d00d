"""``session(programs=...)``: which programs run, and that nobody takes a part of a grid for the whole."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def unmasked(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


def run_four() -> None:
    unmasked[(4,)](torch.ones(64), torch.zeros(64), B=16)


def test_programs_limits_what_runs_unless_another_session_wants_all() -> None:
    def launch() -> list[int]:
        x, out = torch.ones(64), torch.zeros(64)
        unmasked[(4,)](x, out, B=16)
        return out[::16].int().tolist()

    with tritontrace.session(programs=iter([1, (3,), (9, 9, 9)])) as session:
        assert session.programs == ((1, 0, 0), (3, 0, 0), (9, 9, 9))
        assert launch() == launch() == [0, 1, 0, 1]
        with tritontrace.session(programs=[(0, 0, 0)]):
            assert launch() == [1, 1, 0, 1]
        with tritontrace.session():
            assert launch() == [1, 1, 1, 1]


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_report_says_that_only_some_programs_ran(engine: str) -> None:
    with tritontrace.session("sanitizer", engine=engine, programs=[3, (1,), (1, 0, 0), (9, 9, 9)]) as session:
        run_four()
    (launch,) = session.launches
    assert launch.programs == ((1, 0, 0), (3, 0, 0)) and launch.completed
    assert launch.to_dict()["programs"] == [[1, 0, 0], [3, 0, 0]]
    assert "only part of unmasked[4, 1, 1], launch 0 ran: programs (1, 0, 0), (3, 0, 0) of 4" in session.report()


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_grid_without_any_of_the_programs_is_told(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tritontrace")
    with tritontrace.session("sanitizer", engine=engine, programs=[(9, 0, 0)]) as session:
        run_four()
    assert session.launches[0].programs == ()
    assert "ran: no program of 4" in session.report()
    assert "'unmasked'" in caplog.text and "programs=" in caplog.text


def test_all_of_a_grid_is_no_part_of_it() -> None:
    with tritontrace.session("sanitizer", programs=range(4)) as session:
        run_four()
    assert len(session.launches[0].programs or ()) == 4 and "only part" not in session.report()
    with tritontrace.session("sanitizer") as session:
        run_four()
    assert session.launches[0].programs is None and "only part" not in session.report()


def test_programs_of_a_grid_are_in_its_order() -> None:
    with tritontrace.session(programs=[(1, 0, 1), (0, 1, 0), (1, 0, 0)]) as session:
        unmasked[(2, 2, 2)](torch.ones(64), torch.zeros(64), B=16)
    assert session.launches[0].programs == ((1, 0, 0), (0, 1, 0), (1, 0, 1))


@pytest.mark.parametrize(
    ("programs", "what"),
    [((3, 0, 0), r"programs=\[\(3, 0, 0\)\]"), ([], "no program"), (3, "list of program ids"), ("3", "list of program ids")],
)
def test_what_names_no_programs_is_refused(programs: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        tritontrace.session(programs=programs)


@triton.jit
def awaits_the_last(flag):
    if tl.program_id(0) == 3:
        tl.atomic_xchg(flag, 1)
    else:
        while tl.atomic_add(flag, 0) == 0:
            pass


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes of exceptions came with Python 3.11")
@pytest.mark.parametrize("engine", ["ir", "python"])
def test_who_waits_for_a_program_that_was_left_out_is_told(engine: str) -> None:
    with tritontrace.session(engine=engine, programs=[0]), pytest.raises(tritontrace.DeadlockError) as caught:
        awaits_the_last[(4,)](torch.zeros(1, dtype=torch.int32))
    assert any("programs=" in note for note in caught.value.__notes__)
