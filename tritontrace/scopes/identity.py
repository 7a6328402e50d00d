"""Which sessions see a launch: scopes, the context they live in, and the end of a scope in any order.

A *scope* is one opened session as the launch path sees it. It is an identity, not a position: it ends in any order, on
any thread, once. Whoever still holds a scope that has ended skips it.

Where scopes are kept
---------------------
``scope="process"`` scopes stand in one immutable tuple, replaced under `LOCK`.
``scope="context"`` scopes stand in a `Frame`, an immutable value in one `ContextVar`. Entering and leaving put a new
frame there. A frame knows the thread that made it, its *owner*: a thread that merely starts with a copy of somebody's
context (free-threaded Python 3.14 does that, and so does ``copy_context().run`` on another thread) is not in the
scope. Three things carry a scope further: asyncio, because tasks inherit the context and stay on their thread;
`tritontrace.propagate`, which makes a frame owned by the thread it runs on; and autograd, whose threads find the frame
in torch's thread-local state (`tritontrace.scopes.autograd`). That slot belongs to a thread and not to a task, so where
several asyncio tasks of one thread have sessions open, the frame of the one that entered last travels.

Launches that run
-----------------
`hold` and `release` bracket a launch. A scope that closes in between keeps its session until the last launch that
held it is released, so a launch ends under the scopes that it began with.

Thread contract: every function here may be called by any thread at any time. Reading (`active_scopes`) takes no lock:
it reads immutable values. `LOCK` is also held around a fork, so a child never inherits it in another thread's hands.
"""

from __future__ import annotations

import fnmatch
import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tritontrace import forking
from tritontrace.errors import FindingError
from tritontrace.forking import around_fork
from tritontrace.scopes import autograd

if TYPE_CHECKING:
    from tritontrace.clients.base import Client
    from tritontrace.engines.base import Order
    from tritontrace.launch import Launch

__all__ = [
    "LOCK",
    "Carrier",
    "Frame",
    "Scope",
    "Suspension",
    "active_scopes",
    "carrier",
    "close",
    "hold",
    "join",
    "leave",
    "open_process",
    "register",
    "release",
    "resume",
    "suspend",
    "suspended",
]

LOCK = around_fork(threading.RLock())
"""Guards the registries here, the interception wrappers and every session's lists. Held for microseconds, never while a
launch runs or a client is called. Reentrant, because a finalizer may run inside it."""

_ids = itertools.count(1)


class _ThisThread(threading.local):
    """`token` is an object that stands for the current thread. Unlike a thread's ident it is never used again.

    `guest` is True on a thread that Python's `threading` did not start: only those can be autograd's. Asking once a
    thread keeps the question to torch, the dearest part of a launch that nobody watches, off the user's threads.
    """

    def __init__(self) -> None:
        self.token = object()
        self.entered: dict[Frame, None] = {}
        self._prune_at = 16
        ident = threading.get_ident()
        # Not current_thread(): that would enter a foreign thread into Python's books for ever. A dummy thread is what
        # somebody else's current_thread() made of one.
        known = [thread for thread in threading.enumerate() if thread.ident == ident]
        self.guest = not known or isinstance(known[0], threading._DummyThread)

    def add(self, frame: Frame) -> None:
        """A context of this thread is in `frame` now."""
        self.entered[frame] = None
        if len(self.entered) >= self._prune_at:
            # Contexts that were forgotten, their sessions closed elsewhere. Doubling makes that free on average.
            self.entered = {kept: None for kept in self.entered if not kept.dead()}
            self._prune_at = 2 * len(self.entered) + 16

    def newest(self) -> Frame | None:
        """The frame that was entered last, of those that still have an effect."""
        return next((frame for frame in reversed(self.entered) if not frame.dead()), None)


_this = _ThisThread()


class Scope:
    """One opened session, as the launch path knows it.

    `owner` is the token of the thread that opened it. `session` is whatever records for it: it has `record(launch)`,
    `finish(launch)`, and `released()`, which tells it that the scope lets go of it. That happens when the scope has closed
    and no launch holds it any more, so that a forgotten context, a stashed frame or a pending asyncio handle keeps no
    session and no client alive.
    """

    __slots__ = (
        "__weakref__",
        "_running",
        "clients",
        "closed",
        "engine",
        "forked",
        "id",
        "inline_asm",
        "kernels",
        "max_steps",
        "order",
        "owner",
        "prints",
        "programs",
        "repeats",
        "session",
        "strict",
        "target",
        "verdicts",
        "watch",
    )

    def __init__(
        self,
        session: Any = None,
        *,
        clients: Iterable[Client] = (),
        engine: str = "ir",
        target: str | None = None,
        strict: bool = False,
        kernels: tuple[Any, ...] | None = None,
        programs: Any = None,
        max_steps: int | None = None,
        inline_asm: Mapping[str, Any] | None = None,
        prints: Any = "stderr",
        order: Order | None = None,
    ) -> None:
        self.id = next(_ids)
        self.session = session
        self.clients: tuple[Client, ...] = tuple(clients)
        self.engine = engine
        self.target = target
        self.strict = strict
        self.kernels = kernels
        self.programs = programs
        self.max_steps = max_steps
        self.order = order
        self.repeats = bool(self.clients) and all(client.repeatable for client in self.clients)
        self.verdicts: dict[Hashable, Any] | None = None
        self.inline_asm: Mapping[str, Any] = inline_asm or {}
        self.prints = prints
        self.watch: Any = None
        self.closed = False
        self.forked = False
        self.owner: object = _this.token
        self._running = 0

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Scope {self.id} {state} of {self.session!r}>"

    def record(self, launch: Launch) -> None:
        """A launch of the user begins: the session appends it and gives it its index."""
        session = self.session
        if session is not None:
            session.record(launch)

    def finish(self, launch: Launch) -> FindingError | None:
        """A launch has ended and every client is finalized; returns what ``on_finding="raise"`` wants raised."""
        session = self.session
        if session is None:
            return None
        error: FindingError | None = session.finish(launch)
        return error

    def accepts(self, kernel: object) -> bool:
        """False if ``kernels=`` leaves this kernel out. `kernel` is the kernel, whatever its layers, or its name."""
        if self.kernels is None:
            return True
        function = kernel if isinstance(kernel, str) else base_function(kernel)
        names = _names(function)
        for wanted in self.kernels:
            if isinstance(wanted, str):
                if any(fnmatch.fnmatchcase(name, wanted) for name in names):
                    return True
            elif isinstance(function, str):
                if function in _names(wanted):
                    return True
            elif wanted is function:
                return True
        return False


def base_function(kernel: object) -> object:
    """The Python function under every layer of `kernel` (decorators, JITFunction, trace), or the innermost object."""
    seen = 0
    # The bound is for objects whose `.fn` leads back to themselves.
    while not hasattr(kernel, "__code__") and seen < 64:
        inner = getattr(kernel, "fn", None)
        if inner is None:
            break
        kernel, seen = inner, seen + 1
    return kernel


def _names(function: object) -> tuple[str, ...]:
    if isinstance(function, str):
        return (function,)
    name = getattr(function, "__name__", None) or type(function).__name__
    qualified = getattr(function, "__qualname__", name)
    module = getattr(function, "__module__", "")
    return (name, qualified, f"{module}.{qualified}", f"{module}.{name}")


class Suspension:
    """Hides every scope older than itself from the context it stands in. Identity rules as for a `Scope`."""

    __slots__ = ("closed", "id")

    def __init__(self, id: int | None = None) -> None:
        self.id = next(_ids) if id is None else id
        self.closed = False


class Frame:
    """What one context has entered: immutable, replaced as a whole.

    `scopes` may hold one scope several times (a propagated function that calls itself): leaving takes one away.
    `inherited` is a frame of another thread for which this one works (autograd).
    """

    __slots__ = ("inherited", "owner", "scopes", "suspensions")

    def __init__(
        self,
        scopes: tuple[Scope, ...],
        suspensions: tuple[Suspension, ...],
        inherited: Frame | None,
    ) -> None:
        self.owner = _this.token
        self.scopes = scopes
        self.suspensions = suspensions
        self.inherited = inherited

    def floor(self) -> int:
        """Scopes up to this id are hidden."""
        floor = 0 if self.inherited is None else self.inherited.floor()
        for suspension in self.suspensions:
            if not suspension.closed and suspension.id > floor:
                floor = suspension.id
        return floor

    def everything(self) -> tuple[Scope, ...]:
        """Own scopes and those of the thread it works for, live or not."""
        return self.scopes if self.inherited is None else self.inherited.everything() + self.scopes

    def dead(self) -> bool:
        """True if nothing in it has an effect any more."""
        return all(s.closed for s in self.everything()) and self.floor() == 0


_current: ContextVar[Frame | None] = ContextVar("tritontrace.frame", default=None)
_process: tuple[Scope, ...] = ()
_open: dict[int, Scope] = {}


def _own_frame() -> Frame | None:
    frame = _current.get()
    # A context copied to another thread is not membership: see "owner" above.
    return frame if frame is not None and frame.owner is _this.token else None


def _visible_frame() -> Frame | None:
    """The frame that decides here: this thread's own, or that of the thread for which autograd made this one work."""
    frame = _own_frame()
    return _foreign_frame() if frame is None and _this.guest and _open else frame


def active_scopes() -> tuple[Scope, ...]:
    """The scopes that see a launch made here and now, oldest first; empty almost always, and then cheap."""
    process = _process
    # First what nearly every launch on a thread without a session comes to; the rest would find the same, slower.
    if not process and _current.get() is None and not _this.guest:
        return ()
    frame = _visible_frame()
    if frame is None:
        if not process:
            return ()
        candidates, floor = process, 0
    else:
        candidates, floor = frame.everything() + process, frame.floor()
    found = {scope.id: scope for scope in candidates if not scope.closed and scope.id > floor}
    if len(found) < 2:
        return tuple(found.values())
    # A decorated function that calls itself has a scope for each call, all of one session: it sees a launch once.
    sessions: set[int] = set()
    out = []
    for _, scope in sorted(found.items()):
        key = id(scope) if scope.session is None else id(scope.session)
        if key not in sessions:
            sessions.add(key)
            out.append(scope)
    return tuple(out)


def suspended() -> bool:
    """True inside ``with tritontrace.suspend():``."""
    frame = _visible_frame()
    return frame is not None and frame.floor() > 0


def _set_frame(base: Frame | None, scopes: tuple[Scope, ...], suspensions: tuple[Suspension, ...]) -> None:
    """Replace this context's frame `base`, leaving out what has ended (also entries that ended on other threads)."""
    scopes = tuple([scope for scope in scopes if not scope.closed])  # a list, being half the price of a generator
    if suspensions:
        suspensions = tuple([suspension for suspension in suspensions if not suspension.closed])
    if base is not None:
        _this.entered.pop(base, None)
    if scopes or suspensions:
        inherited = base.inherited if base is not None else _foreign_frame()
        frame = Frame(scopes, suspensions, inherited)
        _this.add(frame)
        _current.set(frame)
        autograd.put(frame)
    else:
        _current.set(None)
        # Only what this context put there is taken out: another task may have written to the slot since.
        if base is not None and autograd.fetch() is base:
            autograd.put(_this.newest() or base.inherited)


def _foreign_frame() -> Frame | None:
    """The frame, in this thread's autograd slot, of the thread for which it works."""
    # On the owner's own thread the slot says nothing: an empty context there (another task) is empty on purpose.
    stashed = autograd.fetch()
    return stashed if isinstance(stashed, Frame) and stashed.owner is not _this.token else None


def register(scope: Scope) -> None:
    """A scope opens: it becomes known to the fork handler. `join` or `open_process` make it active."""
    forking.ensure()
    with LOCK:
        _open[scope.id] = scope


def open_process(scope: Scope) -> None:
    """Make a registered scope active for every thread."""
    global _process
    with LOCK:
        _process = (*_process, scope)


def join(scope: Scope) -> None:
    """Enter a registered scope in this context (again, if it is in it already: `leave` as often)."""
    base = _own_frame()
    _set_frame(base, (*(base.scopes if base else ()), scope), base.suspensions if base else ())


def leave(scope: Scope) -> None:
    """Take one entry of `scope` out of this context, wherever it stands; nothing happens where it is not."""
    base = _own_frame()
    if base is None:
        return
    scopes = list(base.scopes)
    if scope in scopes:
        # The last one: with several entries of one scope it makes no difference which.
        del scopes[len(scopes) - 1 - scopes[::-1].index(scope)]
    _set_frame(base, tuple(scopes), base.suspensions)


def suspend(suspension: Suspension) -> None:
    """Enter a suspension in this context."""
    base = _own_frame()
    _set_frame(base, base.scopes if base else (), (*(base.suspensions if base else ()), suspension))


def resume(suspension: Suspension) -> None:
    """End a suspension; on whatever thread that happens, it has no effect any more."""
    suspension.closed = True
    base = _own_frame()
    if base is not None:
        _set_frame(base, base.scopes, base.suspensions)


def close(scope: Scope) -> bool:
    """End a scope everywhere; False if it had ended already. Its session stays with the launches that hold it."""
    global _process
    with LOCK:
        if scope.closed:
            return False
        scope.closed = True
        del _open[scope.id]
        if scope in _process:
            _process = tuple(other for other in _process if other is not scope)
        _drop_if_idle(scope)
    base = _own_frame()
    if base is not None and scope in base.scopes:
        _set_frame(base, base.scopes, base.suspensions)
    return True


def _drop_if_idle(scope: Scope) -> None:
    if scope._running == 0:
        session, scope.session, scope.clients = scope.session, None, ()
        scope.kernels = scope.programs = scope.verdicts = None
        if session is not None:
            session.released()


def hold(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Keep these scopes for the launch that begins now; those that have closed meanwhile are left out."""
    held = []
    forking.ensure()
    with LOCK:
        for scope in scopes:
            if not scope.closed:
                scope._running += 1
                held.append(scope)
    return tuple(held)


def release(scopes: Iterable[Scope]) -> None:
    """End what `hold` began."""
    with LOCK:
        for scope in scopes:
            scope._running -= 1
            if scope.closed:
                _drop_if_idle(scope)


class Carrier:
    """The scopes of one context at one moment, to be entered elsewhere: by many threads at once, and recursively.

    It holds scopes and not a Context, because a Context can be entered by one thread at a time only.
    """

    __slots__ = ("_hidden_up_to", "_scopes")

    def __init__(self, scopes: tuple[Scope, ...], hidden_up_to: int) -> None:
        self._scopes = scopes
        self._hidden_up_to = hidden_up_to

    def enter(self) -> Callable[[], None]:
        """Add the carried scopes that are still open to this context; the result takes them out again."""
        scopes = tuple(scope for scope in self._scopes if not scope.closed)
        # A function propagated inside suspend() stays suspended: the suspension is copied, since its own may end first.
        suspension = Suspension(self._hidden_up_to) if self._hidden_up_to else None
        if not scopes and suspension is None:
            return _nothing
        base = _own_frame()
        _set_frame(
            base,
            (base.scopes if base else ()) + scopes,
            (base.suspensions if base else ()) + (() if suspension is None else (suspension,)),
        )

        def exit() -> None:
            if suspension is not None:
                resume(suspension)
            for scope in scopes:
                leave(scope)

        return exit


def _nothing() -> None:
    pass


def carrier() -> Carrier:
    """What `propagate` takes along from here: context scopes only, since process scopes are everywhere anyway."""
    frame = _visible_frame()
    if frame is None:
        return Carrier((), 0)
    floor = frame.floor()
    unique = dict.fromkeys(scope for scope in frame.everything() if not scope.closed and scope.id > floor)
    return Carrier(tuple(unique), floor)


def _after_fork() -> None:
    """In a forked child: nothing is active. The parent's sessions go on in the parent, with launches of the parent."""
    global _process
    for scope in _open.values():
        # Also for the copies of contexts that cannot be reached from here: a closed scope is skipped everywhere.
        scope.closed = scope.forked = True
        # A launch that this very thread is in ends under its scopes; other threads' launches do not exist here.
        _drop_if_idle(scope)
    _open.clear()
    _process = ()
    _current.set(None)
    _this.entered.clear()
    autograd.put(None)


forking.in_child(_after_fork)
