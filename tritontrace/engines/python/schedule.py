"""The order of programs: one after another, until one waits for what another one is still to do.

A program is ordinary Python on a stack, and a stack cannot be put aside. So a program that waits keeps its thread and hands
on the baton: a new thread runs the programs that have not begun, then those that wait get their turns in order. Exactly one
thread runs at any time. A launch in which nobody waits uses no thread but the caller's.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tritontrace.engines.python.stepping import Tracing
from tritontrace.errors import DeadlockError
from tritontrace.source import SourceLocation

__all__ = ["Programs"]


class _StoppedError(BaseException):
    """Ends a waiting program whose launch has failed elsewhere. Never leaves the engine."""


class _Waiter:
    __slots__ = ("go", "location", "program", "timed", "writes")

    def __init__(self, program: tuple[int, int, int], location: SourceLocation | None, writes: int, timed: bool) -> None:
        self.timed = timed
        self.go = threading.Event()
        self.program = program
        self.location = location
        self.writes = writes


class Programs:
    """Runs the programs of one launch. `run_one` executes one of `pending`; `writes` counts changes of memory."""

    def __init__(self, pending: Iterator[Any], run_one: Callable[[Any], None], writes: Callable[[], int], kernel: str) -> None:
        self.pending = pending
        self.next: list[Any] = []
        self.run_one = run_one
        self.writes = writes
        self.kernel = kernel
        self.waiting: deque[_Waiter] = deque()
        self.error: BaseException | None = None
        self.running = 1
        self.done = threading.Event()
        self.threads: list[threading.Thread] = []
        self.tracing: Tracing | None = None
        """What the program was traced with that has run last, once the turn has gone to another thread."""

    def run(self) -> None:
        """Every program, to its end; raises the first error."""
        self._runner()
        self.done.wait()
        for thread in self.threads:
            thread.join()
        if self.tracing is not None:
            self.tracing.go_on()
        if self.error is not None:
            raise self.error

    def _runner(self) -> None:
        try:
            while self.error is None:
                program = self._begin()
                if program is None:
                    break
                self.run_one(program)
        except _StoppedError:
            pass
        except BaseException as error:  # raised by `run`, on the thread of the launch
            if self.error is None:
                self.error = error
                self._hand_on_tracing()
        else:
            self._hand_on_tracing()
        self.running -= 1
        self._pass_on()

    def _hand_on_tracing(self) -> None:
        if self.threads:
            self.tracing = Tracing()
            self.tracing.leave()

    def _begin(self) -> Any:
        """The next program that has not begun, or None."""
        return self.next.pop() if self.next else next(self.pending, None)

    def _pass_on(self) -> None:
        """Give the baton to the program that has waited longest; the last one out says so."""
        if self.waiting:
            self.waiting.popleft().go.set()
        elif self.running == 0:
            self.done.set()

    def wait(self, program: tuple[int, int, int], location: SourceLocation | None, timed: bool = False) -> None:
        """Let the others run; returns when it is this program's turn again. A `timed` wait ends by itself."""
        me = _Waiter(program, location, self.writes(), timed)
        more = self._begin()
        if more is None and all(w.writes == me.writes for w in self.waiting):
            stuck = [*self.waiting, me]
            if not any(w.timed for w in stuck) and self._retried(stuck):
                raise DeadlockError(
                    "every program that is left waits for memory that nobody will write",
                    kernel=self.kernel,
                    location=location,
                    programs=[w.program for w in stuck],
                )
        if more is None and not self.waiting:
            return
        self.tracing = Tracing()
        if more is not None:
            self.next = [more]
            self.waiting.append(me)
            self.running += 1
            from tritontrace.session import propagate  # it needs the engines

            context = contextvars.copy_context()
            # A program's own code may launch kernels, which the sessions of this launch see on whatever thread it runs.
            begun = propagate(self._begun)
            thread = threading.Thread(target=context.run, args=(begun,), name=f"tritontrace {self.kernel}", daemon=True)
            self.threads.append(thread)
            thread.start()
        else:
            self.waiting.append(me)
            self.waiting.popleft().go.set()
        me.go.wait()
        if self.error is not None:
            self.tracing.leave()  # a debugger has nothing to see of the other programs' end
            raise _StoppedError
        self.tracing.go_on()

    def _begun(self) -> None:
        """A thread of ours: it runs the programs that have not begun."""
        if self.tracing is not None:
            self.tracing.begin()
        self._runner()

    _retries: tuple[int, int] = (-1, 0)

    def _retried(self, stuck: list[_Waiter]) -> bool:
        """True once each of the waiting programs has looked twice since memory was last written to."""
        writes, rounds = self._retries
        rounds = rounds + 1 if writes == stuck[0].writes else 0
        self._retries = (stuck[0].writes, rounds)
        return rounds > 2 * len(stuck)
