"""A forked child has no session open and Triton's own classes, whatever the parent was doing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
    import os, sys, threading, traceback
    import torch, triton, triton.language as tl
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction, KernelInterface
    import tritontrace
    from tritontrace.patching import interception
    from tritontrace.scopes import autograd, identity

    classes = (JITFunction, Autotuner, Heuristics, KernelInterface)
    before = [dict(vars(owner)) for owner in classes]

    def untouched():
        return all(list(old) == list(vars(owner)) and all(old[n] is vars(owner)[n] for n in old)
                   for owner, old in zip(classes, before))

    @triton.jit
    def double(x, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(x + i, tl.load(x + i) * 2)

    def launch():
        x = torch.ones(16)
        double[(1,)](x, B=16)
        assert bool((x == 2).all())

    def in_child(work):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        # A child that deadlocks is killed by its own alarm.
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
"""


def run(code: str, tmp_path: Path) -> None:
    """Run in a process of its own: forking a test process that has threads is the test's business only here."""
    script = tmp_path / "script.py"  # a file, because triton.jit reads the source
    script.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(code))
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path, timeout=600, env=_environment())


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("scope", ["context", "process"])
def test_the_child_starts_without_scopes(scope: str, tmp_path: Path) -> None:
    run(
        f"""
        with tritontrace.session(scope={scope!r}) as session, tritontrace.suspend():
            pass
        with tritontrace.session(scope={scope!r}) as session:
            launch()

            def child():
                assert identity.active_scopes() == () and session.closed
                assert autograd.fetch() is None
                assert untouched() and interception._sessions == 0
                assert len(session.launches) == 1
                # A session of the child's own works, and leaves the classes alone.
                with tritontrace.session() as own:
                    launch()
                assert len(own.launches) == 1 and len(session.launches) == 1 and untouched()
                session.close()  # the parent's, which has ended here: nothing to do

            in_child(child)
            assert not untouched() and not session.closed
            launch()
        assert len(session.launches) == 2 and untouched()
        """,
        tmp_path,
    )


def test_the_child_may_leave_the_with_block_it_was_born_in(tmp_path: Path) -> None:
    run(
        """
        @tritontrace.session()
        def decorated():
            return os.fork()

        with tritontrace.session() as outer, tritontrace.suspend():
            with tritontrace.session() as session:
                child = decorated()
        assert untouched() and identity.active_scopes() == ()
        with tritontrace.session() as again:
            launch()
        assert len(again.launches) == 1 and untouched()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        tmp_path,
    )


def test_copies_of_the_context_are_outside_too(tmp_path: Path) -> None:
    run(
        """
        import contextvars
        with tritontrace.session() as session:
            context = contextvars.copy_context()
            carried = tritontrace.propagate(identity.active_scopes)

            def child():
                assert context.run(identity.active_scopes) == () == carried()

            in_child(child)
        """,
        tmp_path,
    )


def test_forks_while_other_threads_open_close_and_launch(tmp_path: Path) -> None:
    # Without taking LOCK before the fork, a child is now and then born with it held by a thread that it does not have,
    # and waits for ever at its first session (its alarm then ends it).
    run(
        """
        import signal
        stop = threading.Event()
        with tritontrace.session():
            launch()  # compiled once, so that the threads below are quick

        def busy(launches):
            while not stop.is_set():
                with tritontrace.session(scope="process"):
                    if launches:
                        held = identity.hold(identity.active_scopes())
                        identity.release(held)

        threads = [threading.Thread(target=busy, args=(n % 2,)) for n in range(4)]
        for thread in threads:
            thread.start()

        def child():
            signal.alarm(60)
            assert identity.active_scopes() == () and untouched()
            with tritontrace.session() as own:
                assert [scope.session for scope in identity.active_scopes()] == [own]
            assert untouched()

        for _ in range(100):
            in_child(child)
        stop.set()
        for thread in threads:
            thread.join()
        assert untouched()
        """,
        tmp_path,
    )


def test_multiprocessing_with_fork(tmp_path: Path) -> None:
    run(
        """
        import multiprocessing

        def work(_):
            scopes = len(identity.active_scopes())
            with tritontrace.session() as own:
                launch()
            return scopes, len(own.launches)

        with tritontrace.session(scope="process") as session:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(work, range(4)) == [(0, 1)] * 4
            assert session.launches == []
        """,
        tmp_path,
    )


def test_a_launch_that_forks_ends_under_its_scopes_in_both(tmp_path: Path) -> None:
    run(
        """
        class Forks(tritontrace.Client):
            name = "forks"
            child = None

            def pre_run_callback(self, launch):
                self.child = os.fork()

        client = Forks()
        with tritontrace.session([client]) as session:
            launch()
            assert len(session.launches) == 1 and session.launches[0].completed
            if client.child:
                assert session.closed is False
        if client.child == 0:
            assert untouched()
            os._exit(0)
        assert os.waitpid(client.child, 0)[1] == 0
        """,
        tmp_path,
    )
