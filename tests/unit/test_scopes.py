"""Which scopes see a launch, in what context, on which thread, and after which exits.

`identity.active_scopes()` is what the launch path asks, so the tests ask it too.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import queue
import random
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import tritontrace
from tritontrace.scopes import autograd, identity

REPEATS = 50


def seen() -> set[tritontrace.Session]:
    """The sessions that would see a launch made here and now."""
    return {scope.session for scope in identity.active_scopes()}


def on_thread(work: Callable[[], Any]) -> Any:
    """What `work` gives on a new thread; its exception comes here."""
    answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((True, work()))
        except BaseException as error:
            answers.put((False, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    good, value = answers.get()
    if not good:
        raise value
    return value


@contextmanager
def raising_threads() -> Iterator[Callable[..., None]]:
    """Start threads; at the end all are joined and the first exception of any is raised."""
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []

    def start(work: Callable[..., Any], *args: Any) -> None:
        def run() -> None:
            try:
                work(*args)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        threads.append(thread)
        thread.start()

    try:
        yield start
    finally:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    assert identity.active_scopes() == ()
    assert identity._open == {} and identity._process == ()
    # What was closed on another thread cannot be taken out of this one's context and slot: it is dead, and pruned later.
    assert autograd.fetch() is None or autograd.fetch().dead()
    with tritontrace.session():
        pass
    assert autograd.fetch() is None and identity._current.get() is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("kinds", list(itertools.product(["context", "process"], repeat=3)))
def test_exits_in_any_order(order: tuple[int, ...], kinds: tuple[Any, ...]) -> None:
    # A stack (ContextVar.reset with tokens, or popping the last) fails every order but (2, 1, 0).
    sessions = [tritontrace.session(scope=kind).open() for kind in kinds]
    left = set(sessions)
    assert seen() == left
    for index in order:
        sessions[index].close()
        left.discard(sessions[index])
        assert seen() == left


def test_oldest_first_whatever_the_kind() -> None:
    with tritontrace.session() as a, tritontrace.session(scope="process") as b, tritontrace.session() as c:
        assert [scope.session for scope in identity.active_scopes()] == [a, b, c]


def test_exits_on_other_threads_in_every_order() -> None:
    for order in itertools.permutations(range(3)):
        sessions = [tritontrace.session().open() for _ in range(3)]
        left = set(sessions)
        for index in order:
            on_thread(sessions[index].close)
            left.discard(sessions[index])
            assert seen() == left


def test_a_thread_is_not_in_somebody_elses_scope() -> None:
    with tritontrace.session() as mine:
        assert on_thread(seen) == set()

        def other() -> None:
            with tritontrace.session() as theirs:
                assert seen() == {theirs}

        on_thread(other)
        assert seen() == {mine}


def test_a_process_scope_is_everywhere() -> None:
    with tritontrace.session(scope="process") as session:
        assert on_thread(seen) == {session} == seen()
        assert contextvars.Context().run(seen) == {session}
    assert on_thread(seen) == set()


@pytest.mark.usefixtures("switch_everywhere")
def test_many_threads_open_and_close_each_others_sessions() -> None:
    # Sessions are handed round, so that most are closed on a thread that did not open them, while others open and close.
    # Without LOCK around the registries two process scopes that open at once lose one of them (last writer wins).
    handed: queue.SimpleQueue[tritontrace.Session] = queue.SimpleQueue()
    start = threading.Barrier(8)
    unseen: list[str] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        start.wait()
        for _ in range(REPEATS):
            session = tritontrace.session(scope=choose.choice(["context", "process"])).open()
            if session not in seen():
                unseen.append(repr(session))
            handed.put(session)
            handed.get(timeout=60).close()  # the time is for a neighbour that died

    with raising_threads() as run:
        for seed in range(8):
            run(work, seed)
    # A session may be closed by a neighbour before its own thread looks; a thread then simply does not see it.
    assert all("closed" in text for text in unseen)
    assert identity._open == {} and identity._process == ()
    # This thread's context was never touched, and none of the threads' entries can reach it.
    assert seen() == set()


def test_dead_entries_are_pruned_at_the_next_opening() -> None:
    first = tritontrace.session().open()
    on_thread(first.close)
    frame = identity._current.get()
    assert frame is not None and len(frame.scopes) == 1  # it cannot be taken out from another thread
    with tritontrace.session():
        frame = identity._current.get()
        assert frame is not None and len(frame.scopes) == 1
    assert identity._current.get() is None


def test_a_closed_scope_drops_its_session() -> None:
    session = tritontrace.session().open()
    context = contextvars.copy_context()  # keeps the scope
    gone = weakref.ref(session)
    session.close()
    del session
    gc.collect()
    assert gone() is None
    assert context.run(seen) == set()


def test_a_held_scope_keeps_its_session_until_it_is_released() -> None:
    session = tritontrace.session().open()
    held = identity.hold(identity.active_scopes())
    gone = weakref.ref(session)
    session.close()
    assert seen() == set()
    del session
    gc.collect()
    scope = held[0]
    assert scope.session is gone() is not None
    assert identity.hold(held) == ()  # no launch begins under a closed scope
    identity.release(held)
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("switch_everywhere")
def test_hold_and_close_race() -> None:
    # Either the launch is in (and finds the session until it is released) or it is out; never in without a session.
    # With the check for `closed` and the counting not under one lock, `session` is None now and then.
    for _ in range(4 * REPEATS):
        session = tritontrace.session(scope="process").open()
        scopes = identity.active_scopes()
        start = threading.Barrier(2)

        def launch(scopes: Any = scopes, start: threading.Barrier = start, session: Any = session) -> None:
            start.wait()
            while held := identity.hold(scopes):
                try:
                    assert held[0].session is session
                finally:
                    identity.release(held)

        def end(start: threading.Barrier = start, session: Any = session) -> None:
            start.wait()
            session.close()

        with raising_threads() as run:
            run(launch)
            run(end)
        assert scopes[0].session is None


# Contexts


def test_a_thread_that_inherits_the_context_is_not_in_the_scope() -> None:
    # Free-threaded Python 3.14 starts every thread this way. Without the frame's owner, the thread would see `session`.
    with tritontrace.session() as session:
        context = contextvars.copy_context()
        assert on_thread(lambda: context.run(seen)) == set()
        assert contextvars.copy_context().run(seen) == {session}  # on its own thread it is

        def opens_its_own() -> None:
            with tritontrace.session() as own:
                assert seen() == {own}
            assert seen() == set()

        on_thread(lambda: contextvars.copy_context().run(opens_its_own))
        on_thread(lambda: context.run(opens_its_own))


def test_a_thread_with_a_dead_owners_number_is_not_the_owner() -> None:
    # Thread idents are used again at once; an owner told by its ident would let these threads in.
    kept: list[tuple[int, contextvars.Context, tritontrace.Session]] = []

    def leave_open() -> None:
        session = tritontrace.session().open()
        kept.append((threading.get_ident(), contextvars.copy_context(), session))

    reused = 0
    for _ in range(REPEATS):
        on_thread(leave_open)
        ident, context, session = kept[-1]

        def same_number() -> int:
            assert context.run(seen) == set()
            return threading.get_ident()

        reused += on_thread(same_number) == ident
        session.close()
    assert reused  # or this tested nothing


def test_tasks_inside_are_in_the_scope_and_siblings_are_not() -> None:
    async def child(session: tritontrace.Session) -> None:
        assert seen() == {session}
        await asyncio.sleep(0)
        assert seen() == {session}

    async def one() -> None:
        with tritontrace.session() as session:
            await asyncio.gather(child(session), asyncio.create_task(child(session)))
            await asyncio.sleep(0)
            assert seen() == {session}

    async def main() -> None:
        await asyncio.gather(*[one() for _ in range(20)])
        assert seen() == set()

    asyncio.run(main())


def test_exit_in_another_task() -> None:
    async def main() -> None:
        first, second = tritontrace.session().open(), tritontrace.session().open()

        async def end() -> None:
            assert seen() == {first, second}
            first.close()
            assert seen() == {second}

        await asyncio.create_task(end())
        assert seen() == {second}
        second.close()
        assert seen() == set()

    asyncio.run(main())


# Suspension


def test_suspend_hides_every_session_that_is_open() -> None:
    with tritontrace.session() as mine, tritontrace.session(scope="process") as everywhere:
        with tritontrace.suspend():
            assert seen() == set() and identity.suspended()
            assert on_thread(seen) == {everywhere}
            with tritontrace.session() as inner:
                assert seen() == {inner}
                with tritontrace.suspend():
                    assert seen() == set()
            assert seen() == set()
        assert seen() == {mine, everywhere} and not identity.suspended()


def test_a_session_that_opens_inside_suspend_survives_it() -> None:
    outer = tritontrace.session().open()
    suspension = tritontrace.suspend()
    with suspension:
        inner = tritontrace.session().open()
    assert seen() == {outer, inner}
    outer.close()
    assert seen() == {inner}
    inner.close()


def test_suspensions_end_in_any_order() -> None:
    with tritontrace.session() as session:
        first, second = tritontrace.suspend(), tritontrace.suspend()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert seen() == set()
        second.__exit__(None, None, None)
        assert seen() == {session}
        with pytest.raises(RuntimeError, match="already entered"), first, first:
            pass


def test_suspend_decorates() -> None:
    @tritontrace.suspend()
    def look() -> set[tritontrace.Session]:
        return seen()

    @tritontrace.suspend()
    def each() -> Iterator[set[tritontrace.Session]]:
        yield seen()
        yield seen()

    with tritontrace.session() as session:
        assert look() == set()
        for inside in each():
            assert inside == set()
            assert seen() == {session}


def test_suspend_ended_on_another_thread() -> None:
    with tritontrace.session() as session:
        suspension = tritontrace.suspend()
        suspension.__enter__()
        on_thread(lambda: suspension.__exit__(None, None, None))
        assert seen() == {session}


# Autograd


def backward_elsewhere(look: Callable[[], Any]) -> Any:
    """Call `look` from a backward function that torch runs on a thread of its own: reentrant backward nested too deep."""
    answers: list[Any] = []
    caller = threading.get_ident()

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            if ctx.depth == 0:
                assert threading.get_ident() != caller
                answers.append(look())
            else:
                with torch.enable_grad():
                    x = torch.ones(1, requires_grad=True)
                    Nested.apply(x, ctx.depth - 1).sum().backward()
            return gradient, None

    x = torch.ones(1, requires_grad=True)
    Nested.apply(x, 70).sum().backward()
    return answers[0]


def test_a_backward_thread_is_in_the_scope_of_the_thread_it_works_for() -> None:
    with tritontrace.session() as first:
        assert backward_elsewhere(seen) == {first}
        with tritontrace.session() as second:
            assert backward_elsewhere(seen) == {first, second}
            with tritontrace.suspend():
                assert backward_elsewhere(seen) == set()
        assert backward_elsewhere(seen) == {first}
    assert backward_elsewhere(seen) == set()


def test_backward_threads_of_two_threads_are_kept_apart() -> None:
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(5):
            with tritontrace.session() as session:
                assert backward_elsewhere(seen) == {session}
            assert backward_elsewhere(seen) == set()

    with raising_threads() as run:
        for _ in range(4):
            run(work)


def test_a_closed_scope_is_skipped_on_a_backward_thread() -> None:
    session = tritontrace.session().open()

    def close_and_look() -> set[tritontrace.Session]:
        session.close()
        return seen()

    assert backward_elsewhere(close_and_look) == set()
    assert seen() == set()


def test_a_session_opened_on_a_backward_thread_joins_those_it_works_for() -> None:
    def nested() -> None:
        with tritontrace.session() as inner:
            assert seen() == {outer, inner}
        assert seen() == {outer}

    with tritontrace.session() as outer:
        backward_elsewhere(nested)
        assert backward_elsewhere(seen) == {outer}


def test_the_slot_is_not_read_on_the_owners_own_thread() -> None:
    # Another context on this thread is outside the session, although torch's thread-local slot is the thread's.
    with tritontrace.session() as session:
        assert contextvars.Context().run(seen) == set()
        assert seen() == {session}


def test_the_slot_holds_again_what_it_held() -> None:
    with tritontrace.session():
        before = autograd.fetch()
        with tritontrace.session():
            assert autograd.fetch() is not before
        again = autograd.fetch()
        assert again.scopes == before.scopes
    assert autograd.fetch() is None


def test_tasks_hand_the_slot_over() -> None:
    # The slot is the thread's: the last entered task's scopes travel, and its exit gives the other's back.
    async def main() -> None:
        async def inner() -> None:
            with tritontrace.session() as second:
                assert backward_elsewhere(seen) == {second}

        with tritontrace.session() as first:
            await asyncio.get_running_loop().create_task(inner(), context=contextvars.Context())  # type: ignore[call-arg]
            assert backward_elsewhere(seen) == {first}

    if hasattr(asyncio, "Runner"):  # create_task(context=) is as new as it
        asyncio.run(main())


def test_the_slot_does_not_pile_up_what_tasks_leave() -> None:
    # A thousand tasks, each open until after the next has opened: there is always one open, and never more than two.
    async def main() -> None:
        last: tritontrace.Session | None = None

        async def one(before: tritontrace.Session | None) -> tritontrace.Session:
            session = tritontrace.session().open()
            if before is not None:
                before.close()  # in another context than its own
            return session

        for _ in range(1000):
            last = await asyncio.create_task(one(last))
        assert last is not None
        last.close()

    asyncio.run(main())
    assert len(identity._this.entered) < 40
    kept = [value for value in gc.get_objects() if type(value) is identity.Frame]
    assert len(kept) < 60


def test_torch_without_the_slot_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_looked": False, "_has": None, "_get": None, "_put": None, "_remove": None}.items():
        monkeypatch.setattr(autograd, name, value)
    monkeypatch.delattr(torch._C, "_stash_obj_in_tls")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            with tritontrace.session() as session:
                assert seen() == {session}
                assert autograd.fetch() is None
    assert [w.category for w in caught] == [RuntimeWarning]
    assert 'scope="process"' in str(caught[0].message)


# Which kernels


def test_accepts_by_name_glob_and_object() -> None:
    def add() -> None: ...

    class Kernel:
        fn = add

    class Layer:
        fn = Kernel

    def accepts(kernels: Any, kernel: object) -> bool:
        with tritontrace.session(kernels=kernels):
            return identity.active_scopes()[0].accepts(kernel)

    assert accepts(None, Kernel)
    assert accepts("add", Layer) and accepts("a*", Layer) and accepts("*.add", Layer) and accepts(["x", "add"], "add")
    assert accepts(f"{__name__}*add", Layer)
    assert not accepts("sub*", Layer)
    assert accepts(Layer, Kernel) and accepts([Kernel], Layer) and accepts(add, Layer) and accepts(Layer, "add")
    assert not accepts([], Kernel)

    def other() -> None: ...

    other.__name__ = other.__qualname__ = "add"
    assert not accepts(Layer, other)  # a kernel object is that kernel, not its name
