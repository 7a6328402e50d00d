"""Programs that wait for others run on threads of the engine's: trace and profile functions follow them there."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def turns(flag, out):
    me = tl.num_programs(0) - 1 - tl.program_id(0)
    while tl.atomic_add(flag, 0) != me:
        pass
    v = tl.load(out)
    if me == 0:
        v = v + 1
    tl.store(out, v * 2)
    tl.atomic_add(flag, 1)


FIRST = turns.fn.__code__.co_firstlineno + 1


def launch() -> None:
    flag, out = (torch.zeros(1, dtype=torch.int32) for _ in range(2))
    with tritontrace.session(engine="python"):
        turns[(3,)](flag, out)
    assert out.tolist() == [8]


def test_a_trace_function_sees_every_programs_lines() -> None:
    stored: list[tuple[Any, int]] = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name != "turns":
            return None
        if event == "line" and frame.f_lineno == FIRST + 7:
            stored.append((frame.f_locals["__program__"], threading.get_ident()))
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        launch()
        assert sys.gettrace() is trace
    finally:
        sys.settrace(old)
    assert [program for program, _ in stored] == [(2, 0, 0), (1, 0, 0), (0, 0, 0)]
    assert len({thread for _, thread in stored}) == 3


@triton.jit
def free(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.atomic_xchg(lock, 0)


def test_the_body_of_a_loop_that_is_never_entered_is_not_seen() -> None:
    lines = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_code.co_name == "free":
            lines.append(frame.f_lineno - free.fn.__code__.co_firstlineno)
        return trace if frame.f_code.co_name == "free" else None

    lock = torch.zeros(1, dtype=torch.int32)
    old = sys.gettrace()
    sys.settrace(trace)
    try:
        with tritontrace.session(engine="python"):
            free[(1,)](lock)
    finally:
        sys.settrace(old)
    assert lines == [2, 4]


def test_a_profile_function_sees_every_programs_calls() -> None:
    threads = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "turns":
            threads.append(threading.get_ident())

    old = sys.getprofile()
    sys.setprofile(profile)
    try:
        launch()
    finally:
        sys.setprofile(old)
    assert len(set(threads)) == len(threads) == 3


def test_a_threads_own_trace_function_stays() -> None:
    seen: list[str] = []

    def make(name: str) -> Any:
        def trace(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code.co_name == "turns":
                seen.append(name)

        return trace

    old, before = sys.gettrace(), threading.gettrace()
    mine = make("launching")
    threading.settrace(make("hook"))
    sys.settrace(mine)
    try:
        launch()
    finally:
        sys.settrace(old)
        threading.settrace(before)  # type: ignore[arg-type]  # None is taken
    assert seen == ["launching", "hook", "hook"]


def test_coverage_counts_the_lines_of_all_programs() -> None:
    coverage = pytest.importorskip("coverage")
    if sys.gettrace() is not None:
        pytest.skip("the tests themselves are measured")
    measured = coverage.Coverage(data_file=None, include=[__file__], config_file=False)
    measured.start()
    try:
        launch()
    finally:
        measured.stop()
    lines = set(measured.get_data().lines(__file__) or ())
    assert {FIRST + n for n in range(1, 9)} <= lines, lines
