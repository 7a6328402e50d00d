"""A session from its arguments to its end, on real launches."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.findings import Finding
from tritontrace.scopes import identity

N = 40


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def unmasked(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def through_table(table, out, B: tl.constexpr):
    pointer = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, B), tl.load(pointer + tl.arange(0, B)))


def run_add(n: int = N) -> None:
    x = torch.arange(n, dtype=torch.float32)
    out = torch.zeros(n)
    add[(triton.cdiv(n, 16),)](x, x, out, n, B=16)
    assert torch.equal(out, 2 * x)


def run_wrong(size: int = 30) -> None:
    out = torch.zeros(size)
    unmasked[(2,)](torch.ones(32), out, B=16)
    assert torch.equal(out, torch.ones(size))


class Watcher(tritontrace.Client):
    """Reports a finding for each launch, and waits inside it where told to."""

    name = "watcher"

    def __init__(self, inside: Callable[[], None] | None = None, report: bool = False) -> None:
        self.inside = inside
        self.report = report
        self.finalized = 0

    def pre_run_callback(self, launch: tritontrace.Launch) -> None:
        if self.inside is not None:
            self.inside()

    def finalize(self) -> list[Any]:
        self.finalized += 1
        return [Finding(kind="race", message="a finding", client=self.name)] if self.report else []


# One session, several, and their launches


def test_launches_inside_are_recorded_and_outside_they_are_not() -> None:
    with tritontrace.session() as session:
        run_add()
        run_add(20)
    assert [(launch.kernel_name, launch.index, launch.grid) for launch in session.launches] == [
        ("add", 0, (3, 1, 1)),
        ("add", 1, (2, 1, 1)),
    ]
    assert all(launch.completed for launch in session.launches)
    # No driver here: untraced, Triton itself refuses.
    with pytest.raises(RuntimeError, match="active drivers"):
        run_add()
    assert len(session.launches) == 2


def test_every_session_has_a_launch_of_its_own_of_one_run() -> None:
    runs = []
    with tritontrace.session([Watcher(lambda: runs.append(1))]) as outer:
        run_add()
        with tritontrace.session() as inner, tritontrace.session(scope="process") as everywhere:
            run_add()
        run_add()
    assert len(runs) == 3
    assert [len(s.launches) for s in (outer, inner, everywhere)] == [3, 1, 1]
    assert len({id(launch) for s in (outer, inner, everywhere) for launch in s.launches}) == 5
    assert inner.launches[0].index == 0 and outer.launches[1].index == 1


def test_suspend_leaves_the_launch_to_triton() -> None:
    with tritontrace.session() as session, tritontrace.session(scope="process") as everywhere:
        with tritontrace.suspend(), pytest.raises(RuntimeError, match="active drivers"):
            run_add()
        run_add()
    assert len(session.launches) == len(everywhere.launches) == 1


def test_a_process_session_sees_every_thread() -> None:
    with tritontrace.session(scope="process") as session, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run_add(), range(20)))
    assert len(session.launches) == 20 and sorted(launch.index for launch in session.launches) == list(range(20))


def test_threads_with_sessions_of_their_own() -> None:
    start = threading.Barrier(6)

    def work(_: int) -> int:
        start.wait()
        count = 0
        for _ in range(10):
            with tritontrace.session(["tracer"]) as session:
                run_add()
                run_add()
            count += len(session.launches)
        return count

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [20] * 6


def test_a_session_that_closes_while_its_launch_runs() -> None:
    running, closed = threading.Event(), threading.Event()

    def inside() -> None:
        running.set()
        closed.wait()

    watcher = Watcher(inside, report=True)
    session = tritontrace.session([watcher])

    def work() -> None:
        session.open()
        run_add()
        with pytest.raises(RuntimeError, match="active drivers"):
            run_add()  # it has closed, and nobody traces this one

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    session.close()
    assert len(session.launches) == 1 and not session.launches[0].completed
    assert identity.active_scopes() == ()
    closed.set()
    thread.join()
    assert [launch.completed for launch in session.launches] == [True]
    assert len(session.findings) == watcher.finalized == 1


def test_sessions_closed_from_other_threads_in_every_order_while_launches_run() -> None:
    for order in [(0, 1, 2), (2, 0, 1), (1, 2, 0)]:
        ready, go = threading.Barrier(4), threading.Event()
        sessions: list[tritontrace.Session] = []

        def wait(ready: threading.Barrier = ready, go: threading.Event = go) -> None:
            ready.wait()
            go.wait()

        def work(session: tritontrace.Session) -> None:
            session.open()
            run_add()

        sessions = [tritontrace.session([Watcher(wait)]) for _ in range(3)]
        threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        ready.wait()
        for index in order:
            sessions[index].close()
        go.set()
        for thread in threads:
            thread.join()
        assert [[launch.completed for launch in session.launches] for session in sessions] == [[True]] * 3


# Opening and closing, once


def test_entering_twice_names_the_session() -> None:
    session = tritontrace.session(["tracer"])
    with session, pytest.raises(RuntimeError, match=rf"session {session.number} \[tracer\].*already entered"):
        session.open()
    with pytest.raises(RuntimeError, match=rf"session {session.number} .*{__file__}.*already entered"):
        session.open()


def test_closing_twice_names_the_session() -> None:
    with tritontrace.session() as session:
        pass
    for again in (session.close, lambda: session.__exit__(None, None, None)):
        with pytest.raises(RuntimeError, match=f"session {session.number} .*already closed"):
            again()
    with pytest.raises(RuntimeError, match="never entered"):
        tritontrace.session().close()
    opened = tritontrace.session().open()
    opened.close()
    with pytest.raises(RuntimeError, match=f"session {opened.number} .*already closed"):
        opened.close()


def test_closing_early_inside_the_block_is_no_error_but_once() -> None:
    with tritontrace.session() as session:
        session.close()
        with pytest.raises(RuntimeError, match="already closed"):
            session.close()
        with pytest.raises(RuntimeError, match="active drivers"):
            run_add()
    with pytest.raises(RuntimeError, match="already closed"):
        session.__exit__(None, None, None)
    assert session.closed and identity.active_scopes() == ()


@pytest.mark.usefixtures("switch_everywhere")
def test_one_of_many_closing_threads_wins() -> None:
    for _ in range(30):
        session = tritontrace.session().open()
        start = threading.Barrier(4)
        outcomes: list[str] = []

        def close(session: tritontrace.Session = session, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                session.close()
                outcomes.append("closed")
            except RuntimeError:
                outcomes.append("late")

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["closed", "late", "late", "late"]


def test_an_error_in_the_block_closes_and_passes() -> None:
    with pytest.raises(ZeroDivisionError), tritontrace.session() as session:
        raise ZeroDivisionError
    assert session.closed and identity.active_scopes() == ()


# Arguments


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        ({"clients": ["sanitiser"]}, ValueError, "sanitizer.*tracer|nearest is 'sanitizer'"),
        ({"clients": [3]}, TypeError, "client"),
        ({"scope": "thread"}, ValueError, "'context', 'process', not 'thread'"),
        ({"engine": "cuda"}, ValueError, "'ir'"),
        ({"engine": 3}, TypeError, "engine"),
        ({"on_finding": "exit"}, ValueError, "'collect', 'warn', 'raise'"),
        ({"target": "gpu"}, ValueError, "gpu"),
        ({"keep": 0}, ValueError, "keep"),
        ({"keep": True}, ValueError, "keep"),
        ({"programs": [(0, 1, 2, 3)]}, ValueError, "programs="),
        ({"programs": [(0, -1)]}, ValueError, "programs="),
        ({"programs": ["x"]}, ValueError, "programs="),
        ({"max_steps": -1}, ValueError, "max_steps"),
        ({"kernels": [3]}, TypeError, "kernels="),
    ],
)
def test_a_wrong_argument_is_refused_at_once(words: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        tritontrace.session(**words)
    assert identity.active_scopes() == ()


def test_clients_by_name_class_instance_and_alone() -> None:
    watcher = Watcher()
    session = tritontrace.session(["sanitizer", tritontrace.Tracer, watcher])
    assert [client.name for client in session.clients] == ["sanitizer", "tracer", "watcher"]
    assert session.clients[2] is watcher
    assert [client.name for client in tritontrace.session("tracer").clients] == ["tracer"]


def test_target_stands_in_the_launch() -> None:
    with tritontrace.session(target="hip:gfx942") as session:
        run_add()
    assert session.target == "hip:gfx942" == session.launches[0].target


def test_kernels_limits_what_is_traced() -> None:
    with tritontrace.session(kernels=add) as session:
        run_add()
        with pytest.raises(RuntimeError, match="active drivers"):
            run_wrong(32)
    assert [launch.kernel_name for launch in session.launches] == ["add"]


@triton.jit
def endless(x):
    i = 0
    while i >= 0:
        i = i & 1
    tl.store(x, i)


def test_max_steps_ends_a_loop_that_does_not_end() -> None:
    with tritontrace.session(max_steps=100) as session, pytest.raises(tritontrace.KernelError, match="max_steps=100"):
        endless[(1,)](torch.zeros(1, dtype=torch.int32))
    assert not session.launches[0].completed


# Findings


def test_findings_are_collected() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tritontrace.session(["sanitizer"]) as session:
            run_wrong()
            run_add()
    assert [finding.kind for finding in session.findings] == ["out_of_bounds"]
    assert session.findings == session.launches[0].findings
    assert "out" in session.report()


def test_findings_warn_at_the_line_of_the_launch() -> None:
    with (
        pytest.warns(RuntimeWarning, match="sanitizer: ") as caught,
        tritontrace.session("sanitizer", on_finding="warn") as session,
    ):
        run_wrong()
    assert [warning.filename for warning in caught] == [__file__]
    lines, first = inspect.getsourcelines(run_wrong)
    assert first <= caught[0].lineno < first + len(lines)
    assert len(session.findings) == 1


def test_findings_raise_after_the_launch_when_all_are_finalized() -> None:
    first, last = Watcher(report=True), Watcher(report=True)
    with tritontrace.session([first], on_finding="raise") as session, tritontrace.session([last]) as other:
        with pytest.raises(tritontrace.FindingError, match="a finding") as caught:
            run_add()
    assert first.finalized == last.finalized == 1
    assert caught.value.findings == tuple(session.findings) and len(session.findings) == 1
    assert session.launches[0].completed and len(other.findings) == 1


# Memory and retention


def test_keep_keeps_the_last_launches() -> None:
    with tritontrace.session([Watcher(report=True)], keep=2) as session:
        for size in (16, 20, 24, 28):
            run_add(size)
    assert [launch.index for launch in session.launches] == [2, 3]
    assert len(session.findings) == 2
    assert (session.dropped_launches, session.dropped_findings) == (2, 2)


def test_a_session_keeps_no_tensor_alive() -> None:
    with tritontrace.session(["sanitizer"]) as session:
        x = torch.ones(32)
        out = torch.zeros(30)
        unmasked[(2,)](x, out, B=16)
        gone = [weakref.ref(x), weakref.ref(out)]
        del x, out
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
    assert len(session.findings) == 1


def test_registered_memory() -> None:
    data = torch.arange(16, dtype=torch.float32)
    table = torch.tensor([data.data_ptr()])
    out = torch.zeros(16)
    with tritontrace.session(["sanitizer"]) as session:
        session.register_memory(data)
        assert session.registered_memory[0] is data
        through_table[(1,)](table, out, B=16)
        with pytest.raises(TypeError, match="tensors, not int"):
            session.register_memory(5)
    assert torch.equal(out, data) and session.findings == []
    assert session.registered_memory == ()  # nothing is kept once it has closed


def test_what_the_properties_return_is_a_copy() -> None:
    with tritontrace.session() as session:
        run_add()
    session.launches.clear()
    assert len(session.launches) == 1


# Decorators


def test_a_decorated_function_is_traced_at_each_call() -> None:
    session = tritontrace.session(["sanitizer"])

    @session
    def work(size: int, *, again: bool = False) -> str:
        """Its documentation."""
        run_add(size)
        if again:
            work(size)  # one session sees one launch once, also from two calls deep
        return "done"

    assert work.__name__ == "work" and work.__doc__ == "Its documentation." and work.session is session
    assert str(inspect.signature(work)).startswith("(size")
    assert work(20) == work(20, again=True) == "done"
    assert [launch.index for launch in session.launches] == [0, 1, 2]
    assert identity.active_scopes() == ()
    with pytest.raises(RuntimeError, match="active drivers"):
        run_add()


def test_a_decorated_function_on_many_threads_at_once() -> None:
    start = threading.Barrier(6)

    @tritontrace.session(["tracer"])
    def work(_: int) -> None:
        start.wait()
        run_add()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))
    assert len(work.session.launches) == 12


def test_a_decorated_function_raises_through() -> None:
    @tritontrace.session()
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert identity.active_scopes() == ()


def test_a_decorated_coroutine() -> None:
    @tritontrace.session()
    async def work() -> None:
        run_add()
        await asyncio.sleep(0)
        run_add()

    async def main() -> None:
        assert inspect.iscoroutinefunction(work)
        await asyncio.gather(*[work() for _ in range(5)])
        assert identity.active_scopes() == ()
        await work()
        assert identity.active_scopes() == ()

    asyncio.run(main())
    assert len(work.session.launches) == 12


def test_a_decorated_generator_is_traced_between_its_yields_only() -> None:
    # Its body runs in its consumer's context: a session simply opened in it would trace the consumer too.
    ended = []

    @tritontrace.session()
    def steps(count: int) -> Iterator[int]:
        try:
            for index in range(count):
                run_add()
                got = yield index
                assert got is None or got == "sent"
        except KeyError:
            run_add()
            yield -1
        finally:
            run_add()
            ended.append(True)

    session = steps.session
    for index in steps(2):
        assert identity.active_scopes() == () and len(session.launches) == index + 1
    assert len(session.launches) == 3 and ended == [True]

    generator = steps(5)
    assert next(generator) == 0 and generator.send("sent") == 1
    assert generator.throw(KeyError()) == -1
    generator.close()
    assert ended == [True, True] and len(session.launches) == 3 + 2 + 1 + 1
    unfinished = steps(5)
    next(unfinished)
    del unfinished
    gc.collect()
    assert ended == [True] * 3 and identity._open == {}


def test_a_decorated_async_generator() -> None:
    @tritontrace.session()
    async def steps(count: int) -> AsyncIterator[int]:
        for index in range(count):
            run_add()
            await asyncio.sleep(0)
            yield index

    async def main() -> None:
        async for _ in steps(3):
            assert identity.active_scopes() == ()
        ended = steps(3)
        assert await ended.__anext__() == 0
        await ended.aclose()

    asyncio.run(main())
    assert len(steps.session.launches) == 4 and identity._open == {}


def test_only_functions_are_decorated() -> None:
    with pytest.raises(TypeError, match="functions"):
        tritontrace.session()(int)
    with pytest.raises(TypeError, match="functions"):
        tritontrace.session()(3)  # type: ignore[type-var]


def test_repr_says_what_it_is() -> None:
    session = tritontrace.session(["tracer"], scope="process")
    assert repr(session).startswith(f"<session {session.number} [tracer] scope=process new, made at {__file__}:")
    with session:
        assert " open, " in repr(session)
    assert " closed, " in repr(session)


# Kernels from outside


def test_a_kernel_that_was_compiled_outside_is_launched_traced() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "B": "constexpr"}
    compiled = triton.compile(ASTSource(add, types, {(4,): 16}), target=GPUTarget("cuda", 90, 32))
    x, out = torch.arange(N, dtype=torch.float32), torch.zeros(N)
    with tritontrace.session(["sanitizer"]) as session:
        launch = compiled[(3, 1, 1)]
        launch(x, x, out, N, 16)
    assert torch.equal(out, 2 * x)
    assert [(launch.kernel_name, launch.grid, launch.completed) for launch in session.launches] == [("add", (3, 1, 1), True)]
    assert session.launches[0].options["num_warps"] == 4
    with pytest.raises(RuntimeError, match="active drivers"):
        launch(x, x, out, N, 16)


def test_under_tritons_interpreter(tmp_path: Path) -> None:
    # TRITON_INTERPRET before the import: kernels, and helpers of the language, are then Triton's InterpretedFunction.
    script = tmp_path / "interpreted.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch, triton, triton.language as tl, tritontrace
            from triton.runtime.interpreter import InterpretedFunction

            @triton.jit
            def total(x, out, B: tl.constexpr):
                tl.store(out, tl.sum(tl.load(x + tl.arange(0, B)), 0))

            def run():
                out = torch.zeros(1)
                total[(1,)](torch.ones(16), out, B=16)
                assert out.item() == 16

            assert isinstance(total, InterpretedFunction)
            before = dict(vars(InterpretedFunction))
            with tritontrace.session(["sanitizer"]) as session:
                run()
                with tritontrace.suspend():
                    run()  # Triton's interpreter
            run()
            assert len(session.launches) == 1 and session.launches[0].completed
            assert all(vars(InterpretedFunction)[name] is value for name, value in before.items())
            """
        )
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(tritontrace.__file__).parents[1])}
    subprocess.run([sys.executable, str(script)], check=True, env=environment, timeout=300)
