"""``pytest --engine both``: what it sees and what it lets pass, with engines that go wrong on purpose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.engine_exceptions import Compared
from tests.engines.comparing import Comparing
from tritontrace import engines
from tritontrace.engines.base import EngineRun


@triton.jit
def double(x_ptr, y_ptr, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2, mask=at < n)


@triton.jit
def through_pointers(p_ptr):
    tl.store(tl.load(p_ptr).to(tl.pointer_type(tl.float32)), 5.0)


@triton.jit
def ticket(count_ptr, out_ptr):
    if tl.program_id(0) == 0:
        tl.store(out_ptr, tl.load(count_ptr))
    tl.atomic_add(count_ptr, 1)
    if tl.program_id(0) == 0:
        tl.store(out_ptr + 1, tl.load(count_ptr))


class Wrong:
    """The Python engine, and then `spoil`."""

    def __init__(self, spoil: Any = lambda run: None, skip: int | None = None) -> None:
        self.spoil = spoil
        self.skip = skip

    def run(self, run: EngineRun) -> None:
        if self.skip is not None:
            run.programs = [(n, 0, 0) for n in range(run.grid[0]) if n != self.skip]
        engines.get("python").run(run)
        self.spoil(run)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Any:
    plain = engines.get
    ir = getattr(plain("ir"), "first", plain("ir"))  # these tests, too, may run under --engine both

    def launch(second: Any, run: Any, expected: Compared | None = None) -> Comparing:
        engine = Comparing(ir, second)
        engine.expected = expected or Compared()
        monkeypatch.setattr(engines, "get", lambda name: engine if name == "ir" else plain(name))
        with tritontrace.session(engine="ir"):
            run()
        monkeypatch.setattr(engines, "get", plain)
        return engine

    return launch


def _double() -> None:
    x, y = torch.arange(10.0), torch.zeros(10)
    double[(3,)](x, y, 10, B=4)
    assert y.tolist() == (x * 2).tolist()


def test_engines_that_agree(compared: Any) -> None:
    engine = compared(engines.get("python"), _double)
    assert (engine.compared, engine.differences) == (1, [])


def test_a_byte_that_differs_is_named(compared: Any) -> None:
    def spoil(run: EngineRun) -> None:
        run.memory.find(run.launch.argument("y_ptr").data_ptr).typed("f4")[7] = 3

    engine = compared(Wrong(spoil), _double)
    (text,) = engine.differences
    assert "launch 0 of double[3, 1, 1]" in text and "y_ptr[7] is 14.0 in one engine and 3.0 in the other" in text


def test_an_access_that_is_missing_is_named(compared: Any) -> None:
    # the third program stores what is there already
    def run() -> None:
        double[(3,)](torch.zeros(10), torch.zeros(10), 10, B=4)

    (text,) = compared(Wrong(skip=2), run).differences
    line = double.fn.__code__.co_firstlineno + 3
    assert f"load of x_ptr at line {line} by program (2, 0, 0), block (4,), 4 bytes a lane, 2 lanes" in text
    assert "first at bytes [32, 36]" in text
    assert "2 in all) only in the IR engine" in text


def test_an_error_of_one_engine_is_a_difference(compared: Any) -> None:
    def fail(run: EngineRun) -> None:
        raise ValueError("no")

    (text,) = compared(Wrong(fail), _double).differences
    assert "one engine raises None, the other ValueError('no')" in text


def test_memory_behind_pointers_in_memory_is_a_copy_too(compared: Any) -> None:
    seen = []

    def spoil(run: EngineRun) -> None:
        run.memory.find(target.data_ptr()).typed("f4")[0] = 1
        seen.append(target.tolist())

    target = torch.zeros(2)
    table = torch.tensor([target.data_ptr()])
    engine = compared(Wrong(spoil), lambda: through_pointers[(1,)](table))
    assert seen == [[0.0, 0.0]] and target.tolist() == [5.0, 0.0]
    (text,) = engine.differences
    assert "of the memory of no argument" in text


def test_the_order_of_programs_is_let_pass_where_it_is_listed_only(compared: Any) -> None:
    def run() -> None:
        ticket[(4,)](torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32))

    assert "out_ptr[1] is 4 in one engine and 1 in the other" in compared(engines.get("python"), run).differences[0]
    assert compared(engines.get("python"), run, Compared(order="it reads a counter")).differences == []


def test_values_may_be_close_where_that_is_listed(compared: Any) -> None:
    def spoil(run: EngineRun) -> None:
        run.memory.find(run.launch.argument("y_ptr").data_ptr).typed("f4")[7] = 14.001

    assert compared(Wrong(spoil), _double).differences
    assert not compared(Wrong(spoil), _double, Compared(close=(1e-3, 0))).differences
    assert compared(Wrong(spoil), _double, Compared(close=(1e-5, 0))).differences
