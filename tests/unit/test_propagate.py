"""`tritontrace.propagate`: sessions follow a function to other threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.scopes import autograd, identity


@triton.jit
def double(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) * 2)


def launch() -> None:
    x = torch.ones(16)
    double[(1,)](x, B=16)
    assert bool((x == 2).all())


def seen() -> set[tritontrace.Session]:
    return {scope.session for scope in identity.active_scopes()}


def test_a_pool_is_outside_unless_propagated() -> None:
    with ThreadPoolExecutor(4) as pool, tritontrace.session() as session:
        assert pool.submit(seen).result() == set()
        work = tritontrace.propagate(launch)
        for future in [pool.submit(work) for _ in range(20)]:
            future.result()
        assert pool.submit(seen).result() == set()  # nothing stays on the pool's threads
        assert pool.submit(autograd.fetch).result() is None
    assert len(session.launches) == 20


def test_a_thread() -> None:
    with tritontrace.session() as session:
        thread = threading.Thread(target=tritontrace.propagate(launch))
        thread.start()
        thread.join()
    assert len(session.launches) == 1


def test_many_threads_are_inside_at_once() -> None:
    # All of them are inside when the barrier opens. `contextvars.copy_context().run` cannot do that: a second thread that
    # enters the same Context gets "cannot enter context: ... is already entered".
    for _ in range(20):
        inside = threading.Barrier(8)

        def look(inside: threading.Barrier = inside) -> set[tritontrace.Session]:
            inside.wait()
            found = seen()
            inside.wait()
            return found

        with ThreadPoolExecutor(8) as pool, tritontrace.session() as session:
            work = tritontrace.propagate(look)
            found = [future.result() for future in [pool.submit(work) for _ in range(8)]]
            assert found == [{session}] * 8

            context = contextvars.copy_context()
            with pytest.raises(RuntimeError, match="already entered"):
                context.run(context.run, seen)


def test_recursion_and_calls_where_it_was_made() -> None:
    with tritontrace.session() as session:

        def work(depth: int) -> None:
            assert seen() == {session}
            if depth:
                again(depth - 1)
                work(0)
            # Leaving the inner call took out one entry, not this call's.
            assert seen() == {session}

        again = tritontrace.propagate(work)
        again(3)
        assert seen() == {session}
        with ThreadPoolExecutor(1) as pool:
            pool.submit(again, 3).result()
            assert pool.submit(seen).result() == set()
        launch()
        assert len(session.launches) == 1


def test_after_the_close_it_runs_untraced() -> None:
    with tritontrace.session() as session:
        work = tritontrace.propagate(seen)
    assert work() == set()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == set()
    with pytest.raises(RuntimeError, match="active drivers"):
        tritontrace.propagate(launch)()
    assert session.launches == []


def test_one_of_two_sessions_closed() -> None:
    with tritontrace.session() as outer:
        with tritontrace.session() as inner:
            work = tritontrace.propagate(seen)
            assert work() == {outer, inner}
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(work).result() == {outer}


def test_a_session_that_closes_while_the_function_runs() -> None:
    inside, closed = threading.Event(), threading.Event()

    def work() -> tuple[Any, Any]:
        before = seen()
        inside.set()
        closed.wait()
        return before, seen()

    session = tritontrace.session().open()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(tritontrace.propagate(work))
        inside.wait()
        session.close()
        closed.set()
        assert future.result() == ({session}, set())
        assert pool.submit(seen).result() == set()


def test_sessions_of_the_thread_it_runs_on_see_its_launches_too() -> None:
    def elsewhere(work: Any) -> None:
        with tritontrace.session() as own:
            assert work() == {own, carried}
            assert seen() == {own}

    with ThreadPoolExecutor(1) as pool, tritontrace.session() as carried:
        pool.submit(elsewhere, tritontrace.propagate(seen)).result()


def test_a_session_opened_inside_stays_open_outside() -> None:
    def opens() -> tritontrace.Session:
        return tritontrace.session().open()

    with tritontrace.session() as carried:
        inner = tritontrace.propagate(opens)()
        assert seen() == {carried, inner}
        inner.close()


def test_suspension_is_carried() -> None:
    with ThreadPoolExecutor(1) as pool, tritontrace.session(scope="process") as everywhere, tritontrace.session() as session:
        with tritontrace.suspend():
            work = tritontrace.propagate(seen)
            assert work() == set()
            # A process scope is everywhere, but this function belongs to the suspended region.
            assert pool.submit(work).result() == set()
            assert pool.submit(seen).result() == {everywhere}
        assert pool.submit(work).result() == set()  # whenever it runs
        made_before = tritontrace.propagate(seen)
        with tritontrace.suspend():
            assert made_before() == set()  # the innermost region here
        assert pool.submit(made_before).result() == {everywhere, session}


def test_generators_are_inside_between_their_yields_only() -> None:
    def steps() -> Iterator[set[tritontrace.Session]]:
        yield seen()
        yield seen()

    with tritontrace.session() as session:
        generator = tritontrace.propagate(steps)()

        def consume() -> list[set[tritontrace.Session]]:
            found = []
            for inside in generator:
                found += [inside, seen()]
            return found

        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(consume).result() == [{session}, set()] * 2


def test_coroutines_and_async_generators() -> None:
    async def work() -> set[tritontrace.Session]:
        await asyncio.sleep(0)
        return seen()

    async def steps() -> AsyncIterator[set[tritontrace.Session]]:
        await asyncio.sleep(0)
        yield seen()

    async def main(function: Any, generator: Any) -> list[set[tritontrace.Session]]:
        return [await function(), *[found async for found in generator()], seen()]

    with tritontrace.session() as session, ThreadPoolExecutor(1) as pool:
        carried = tritontrace.propagate(work), tritontrace.propagate(steps)
        assert inspect.iscoroutinefunction(carried[0]) and inspect.isasyncgenfunction(carried[1])
        assert pool.submit(lambda: asyncio.run(main(*carried))).result() == [{session}, {session}, set()]


def test_to_thread_needs_it() -> None:
    async def main() -> tuple[Any, Any]:
        return await asyncio.to_thread(seen), await asyncio.to_thread(tritontrace.propagate(seen))

    with tritontrace.session() as session:
        assert asyncio.run(main()) == (set(), {session})


def test_it_keeps_what_the_function_is() -> None:
    def work(a: int, b: int = 2) -> int:
        """Documentation."""
        return a + b

    carried = tritontrace.propagate(work)
    assert carried(1, b=3) == 4 and carried.__name__ == "work" and carried.__doc__ == "Documentation."
    assert inspect.signature(carried) == inspect.signature(work)
    assert tritontrace.propagate(functools.partial(work, 1))() == 3
    with pytest.raises(TypeError, match="functions"):
        tritontrace.propagate(3)  # type: ignore[type-var]


def test_an_exception_takes_the_scopes_out() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with tritontrace.session(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.submit(tritontrace.propagate(fails)).result()
        assert pool.submit(seen).result() == set()
        assert pool.submit(autograd.fetch).result() is None


def test_backward_of_a_propagated_function() -> None:
    # Its thread's own backward threads find the scopes as well: the slot is set on the thread it runs on.
    def forward_and_backward() -> None:
        class Nested(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
                ctx.depth = depth
                return x * 1

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> Any:
                if ctx.depth == 0:
                    launch()
                else:
                    with torch.enable_grad():
                        x = torch.ones(1, requires_grad=True)
                        Nested.apply(x, ctx.depth - 1).sum().backward()
                return gradient, None

        x = torch.ones(1, requires_grad=True)
        Nested.apply(x, 70).sum().backward()

    with tritontrace.session() as session, ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(tritontrace.propagate(forward_and_backward)) for _ in range(4)]:
            future.result()
    assert len(session.launches) == 4
