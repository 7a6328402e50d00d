"""A forked child has no session open and Triton's own classes, whatever the parent was doing."""

from __future__ import annotations

import contextvars
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction, KernelInterface

import tritontrace
from tritontrace import forking
from tritontrace.patching import interception
from tritontrace.scopes import autograd, identity

# Python warns of any fork with threads about; forking with threads about is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

CLASSES = (JITFunction, Autotuner, Heuristics, KernelInterface)


@triton.jit
def double(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) * 2)


def launch() -> None:
    x = torch.ones(16)
    double[(1,)](x, B=16)
    assert bool((x == 2).all())


def finish_child(work: Callable[[], Any]) -> None:
    """In a child: `work`, and the end of the process. A child that hangs is ended by its alarm."""
    code = 1
    try:
        signal.alarm(120)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait_for(child: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # what failed is in the captured output


def in_child(work: Callable[[], Any]) -> None:
    """Fork, and do `work` in the child; fails if that fails."""
    child = os.fork()
    if child == 0:
        finish_child(work)
    wait_for(child)


class Classes:
    def __init__(self) -> None:
        self._before = [dict(vars(owner)) for owner in CLASSES]

    def untouched(self) -> bool:
        return all(
            list(old) == list(vars(owner)) and all(old[name] is vars(owner)[name] for name in old)
            for owner, old in zip(CLASSES, self._before, strict=True)
        )


@pytest.fixture
def classes() -> Iterator[Classes]:
    launched = Classes()
    yield launched
    assert launched.untouched() and identity.active_scopes() == ()


@pytest.mark.parametrize("scope", ["context", "process"])
def test_the_child_starts_without_scopes(scope: Any, classes: Classes) -> None:
    with tritontrace.session(scope=scope) as session:
        launch()

        def child() -> None:
            assert identity.active_scopes() == () and session.closed
            assert autograd.fetch() is None
            assert classes.untouched() and interception._sessions == 0
            assert len(session.launches) == 1
            # A session of the child's own works, and leaves the classes alone.
            with tritontrace.session() as own:
                launch()
            assert len(own.launches) == 1 and len(session.launches) == 1 and classes.untouched()
            session.close()  # the parent's, which has ended here: nothing to do

        in_child(child)
        assert not classes.untouched() and not session.closed
        launch()
    assert len(session.launches) == 2


def test_the_child_may_leave_the_blocks_it_was_born_in(classes: Classes) -> None:
    @tritontrace.session()
    def decorated() -> int:
        return os.fork()

    with tritontrace.session(), tritontrace.suspend(), tritontrace.session():
        child = decorated()

    def after() -> None:
        assert classes.untouched() and identity.active_scopes() == ()
        with tritontrace.session() as again:
            launch()
        assert len(again.launches) == 1 and classes.untouched()

    if child == 0:
        finish_child(after)
    after()
    wait_for(child)


def test_copies_of_the_context_are_outside_too(classes: Classes) -> None:
    # They cannot be reached from the fork handler; the scopes in them are closed.
    with tritontrace.session() as session:
        context = contextvars.copy_context()
        carried = tritontrace.propagate(identity.active_scopes)

        def child() -> None:
            assert context.run(identity.active_scopes) == () == carried()

        in_child(child)
        assert [scope.session for scope in carried()] == [session]


def test_forks_while_other_threads_open_and_close(classes: Classes) -> None:
    # Without taking LOCK before the fork, a child is now and then born with it held by a thread that it does not have,
    # and waits for ever at its first session (its alarm then ends it).
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with tritontrace.session(scope="process"):
                identity.release(identity.hold(identity.active_scopes()))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()

    def child() -> None:
        assert identity.active_scopes() == () and classes.untouched()
        with tritontrace.session() as own:
            assert [scope.session for scope in identity.active_scopes()] == [own]
        assert classes.untouched()

    try:
        for _ in range(60):
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_forks_while_other_threads_launch(classes: Classes) -> None:
    # Every lock that a launch takes must be free in the child: it launches, also a kernel that it has to compile.
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with tritontrace.session(["sanitizer"]):
                launch()

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        fresh = triton.jit(double.fn)
        with tritontrace.session(["sanitizer"]) as own:
            launch()
            fresh[(1,)](torch.ones(8), B=8)
        assert len(own.launches) == 2 and own.findings == []

    try:
        for _ in range(20):
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_locks_that_other_threads_hold_are_free_in_the_child() -> None:
    locks: list[Any] = [forking.fork_safe(threading.Lock()), forking.fork_safe(threading.RLock())]
    mine: Any = forking.fork_safe(threading.RLock())
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locks[0], locks[1]:
            held.set()
            done.wait()

    def child() -> None:
        for lock in locks:
            with lock:
                pass
        assert mine._is_owned()  # the forking thread is still inside

    with tritontrace.session():  # forking is looked after from here on
        pass
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with mine:
        in_child(child)
    assert not locks[0].acquire(blocking=False) and not locks[1].acquire(blocking=False)
    done.set()
    thread.join()


def test_every_lock_of_the_package_is_free_in_a_child() -> None:
    # A lock that nobody told `forking` of is one that a child can be born with, locked by a thread that it does not have.
    launch_once = tritontrace.session(["tracer", "sanitizer"])
    with launch_once:
        launch()
    kinds = (type(threading.Lock()), type(threading.RLock()))
    known = [*forking._locks, *forking._held, forking._own]
    unknown = []
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "tritontrace"]:
        for holder in [module, *vars(module).values()]:
            ours = type(holder).__module__.partition(".")[0] == "tritontrace" or holder is module
            for name, value in (getattr(holder, "__dict__", None) or {}).items() if ours else ():
                if isinstance(value, kinds) and not any(value is lock for lock in known):
                    unknown.append(f"{module.__name__}: {name}")
    assert unknown == []


def worker(_: int) -> tuple[int, int]:
    scopes = len(identity.active_scopes())
    with tritontrace.session() as own:
        launch()
    return scopes, len(own.launches)


def test_multiprocessing_with_fork(classes: Classes) -> None:
    with tritontrace.session(scope="process") as session:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(worker, range(4)) == [(0, 1)] * 4
        assert session.launches == []


def test_a_launch_that_forks_ends_under_its_scopes_in_both(classes: Classes) -> None:
    class Forks(tritontrace.Client):
        name = "forks"
        child = -1

        def pre_run_callback(self, launch: tritontrace.Launch) -> None:
            self.child = os.fork()

    client = Forks()
    with tritontrace.session([client]) as session:
        launch()

    def after() -> None:
        assert len(session.launches) == 1 and session.launches[0].completed
        assert classes.untouched() and session.closed

    if client.child == 0:
        finish_child(after)
    after()
    wait_for(client.child)
