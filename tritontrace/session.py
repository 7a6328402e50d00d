"""Sessions: open one, and the Triton launches made inside are traced."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from typing_extensions import Self

from tritontrace import settings
from tritontrace.errors import FindingError
from tritontrace.kernels import capabilities
from tritontrace.patching import interception
from tritontrace.patching.transaction import Transaction
from tritontrace.scopes import autograd, callsite, identity
from tritontrace.scopes.identity import LOCK, Scope
from tritontrace.scopes.wrapping import around

if TYPE_CHECKING:
    from tritontrace.clients.base import Client
    from tritontrace.engines.written import TorchWatch
    from tritontrace.findings import Finding
    from tritontrace.launch import Launch

__all__ = ["Session", "propagate", "session", "suspend"]

F = TypeVar("F", bound=Callable[..., Any])
ScopeKind = Literal["context", "process"]
OnFinding = Literal["collect", "warn", "raise"]

_numbers = itertools.count(1)


def session(
    clients: Any = (),
    *,
    scope: ScopeKind = "context",
    engine: str = "ir",
    on_finding: OnFinding = "collect",
    kernels: Any = None,
    programs: Any = None,
    target: Any = None,
    strict: bool = False,
    keep: int | None = None,
    max_steps: int | None = None,
    inline_asm: Mapping[str, Callable[..., Any]] | None = None,
    prints: Any = "stderr",
    order: Any = None,
) -> Session:
    """Trace the Triton launches made inside ``with tritontrace.session(...) as session:``.

    `clients`
        What looks at the launches: names (``"tracer"``, ``"sanitizer"``, ...), `Client` classes or instances.
    `scope`
        ``"context"``: launches made in this context, that is by this thread, by asyncio tasks made inside, by
        functions wrapped with `propagate`, and by autograd's backward threads for it. Other threads are not concerned,
        also those that start with a copy of this context (``asyncio.to_thread``, threads of free-threaded Python 3.14):
        wrap what they run with `propagate`. Where several tasks of one thread have sessions open, autograd's threads see
        those of the task that entered one last. ``"process"``: launches of every thread.
    `engine`
        What executes the launches. ``"ir"``: the kernel's own IR, all programs together. ``"python"``: its Python source,
        statement by statement, for ``breakpoint()`` and arbitrary Python inside. ``"auto"``: the first, and the second for
        a kernel that the first cannot run (the reason is logged).
    `on_finding`
        ``"collect"``: findings are data, in `Session.findings`. ``"warn"``: each is also a `RuntimeWarning` at the line
        of the launch. ``"raise"``: `FindingError` after a launch with findings, once all its clients are finalized.
    `kernels`
        Trace only these: names or globs of them (``"softmax*"``, ``"package.module.kernel"``), kernel objects, or a list.
        Every other kernel runs as if no session were open.
    `programs`
        Run these programs only: their ids, as (x, y, z) or less, what is missing being 0. The others write nothing. A launch
        that another session sees too runs what any of them wants, all of it where one of them names no programs.
    `target`
        The GPU that the kernel believes in (``"cuda:90"``, ``"hip:gfx942"``); default: the current one, else ``"cuda:90"``.
    `strict`
        Raise `UntraceableLaunchError` for a launch that cannot be traced, instead of warning and running it untraced.
    `keep`
        Keep only the last `keep` launches, with their findings; default: all of them.
    `max_steps`
        End a launch whose loops take more steps than this.
    `inline_asm`
        What inline assembly computes: its text (white space does not matter) mapped to a function of numpy arrays, one for
        each operand, ``[programs or 1, *tile]`` with axes of 1 where nothing varies. Integers come as signed ones of their
        width, float16, bfloat16 and fp8 as float32. It returns an array, or a tuple of them where the assembly has several
        results, which broadcast to the tile; they are converted to the result's type. Several elements for one assembly
        instruction (``pack``) make no difference. Of several sessions the innermost one's function is taken.
    `prints`
        Where ``tl.device_print`` goes, a line for each program: ``"stderr"``, ``"stdout"``, ``"log"`` (the logger
        ``tritontrace.kernel``, at INFO), a function of the line, a text stream, or None. The first lines of a launch are
        shown; `events.Print` has all of them.

    `order`
        The order in which the programs of a grid are begun: ``"forward"``, ``"reverse"``, an integer (a random order with
        that seed), or an `Order` that also says how many of them execute in lockstep; default: as the engine likes. What
        does not depend on it is what a GPU gives; see `check_determinism`. Of several sessions the innermost one's is taken.

    The result also decorates functions (plain, async and generator functions): each call is traced, all of them into the
    one session, which the decorated function has as ``.session``.

    Raises `ValueError` or `TypeError` here, not at a launch, for anything wrong in these arguments.
    """
    return Session(
        clients,
        scope=scope,
        engine=engine,
        on_finding=on_finding,
        kernels=kernels,
        programs=programs,
        target=target,
        strict=strict,
        keep=keep,
        max_steps=max_steps,
        inline_asm=inline_asm,
        prints=prints,
        order=order,
    )


class Session:
    """What `session` returns: the launches traced, what the clients found in them, and the means to end it.

    Entered once, with ``with`` or `open`, and closed once, by the end of the ``with`` or by `close`, in any order with
    other sessions, on any thread or task, also while one of its launches runs: that launch is still recorded. After a
    `close` the end of the ``with`` statement has nothing left to do. Anything else done twice is a `RuntimeError`.

    Every method and property may be used from any thread, while launches run too. What the properties return are copies.
    """

    def __init__(
        self,
        clients: Any = (),
        *,
        scope: ScopeKind = "context",
        engine: str = "ir",
        on_finding: OnFinding = "collect",
        kernels: Any = None,
        programs: Any = None,
        target: Any = None,
        strict: bool = False,
        keep: int | None = None,
        max_steps: int | None = None,
        inline_asm: Mapping[str, Callable[..., Any]] | None = None,
        prints: Any = "stderr",
        order: Any = None,
    ) -> None:
        settings.one_of("scope", scope, ("context", "process"))
        settings.one_of("on_finding", on_finding, ("collect", "warn", "raise"))
        settings.positive("keep", keep)
        settings.positive("max_steps", max_steps)
        self.scope: ScopeKind = scope
        self.engine = settings.engine_name(engine)
        self.on_finding: OnFinding = on_finding
        self.strict = bool(strict)
        self.keep = keep
        self.max_steps = max_steps
        self.inline_asm = settings.inline_asm(inline_asm)
        self.prints = settings.prints(prints)
        self.order = settings.order(order)
        self.programs = settings.programs(programs)
        self.kernels = settings.kernels(kernels)
        self.target = settings.target_name(target)
        self.clients: tuple[Client, ...] = settings.clients(clients)
        self.number = next(_numbers)
        self._made_at = callsite.user_line()
        self._scope: Scope | None = None
        self._state: Literal["new", "open", "closed"] = "new"
        self._left = False
        self._launches: deque[Launch] = deque(maxlen=keep)
        self._count = 0
        self._dropped_findings = 0
        self._memory: list[Any] = []
        self._untraceable: set[tuple[str, str]] = set()

    # What it collected

    @property
    def launches(self) -> list[Launch]:
        """One `Launch` for each traced launch, in the order they began; with ``keep=N`` the last N."""
        with LOCK:
            return list(self._launches)

    @property
    def findings(self) -> list[Finding]:
        """What the clients found in these launches (and in the trial launches of autotuned ones)."""
        return [finding for launch in self.launches for finding in _findings(launch)]

    @property
    def dropped_launches(self) -> int:
        """How many launches ``keep=N`` has let go."""
        with LOCK:
            return self._count - len(self._launches)

    @property
    def dropped_findings(self) -> int:
        """How many findings went with them."""
        with LOCK:
            return self._dropped_findings

    @property
    def closed(self) -> bool:
        """True once it has been closed (also by a fork: a child process has no open session)."""
        return self._state == "closed" or (self._scope is not None and self._scope.closed)

    def report(self) -> str:
        """The findings and launches as text."""
        from tritontrace.reports import text

        rendered: str = text.render(self)
        return rendered

    # Memory

    def register_memory(self, *tensors: Any) -> None:
        """Name tensors that kernels reach through pointers which are not arguments (an array of ``data_ptr()``\\ s).

        They are known memory to every later launch, and kept alive until the session closes.
        """
        for tensor in tensors:
            if not (hasattr(tensor, "data_ptr") and hasattr(tensor, "untyped_storage")):
                hint = "; torch.from_numpy(array) shares an array's memory" if hasattr(tensor, "__array_interface__") else ""
                raise TypeError(f"register_memory takes tensors, not {type(tensor).__name__}{hint}")
        with LOCK:
            self._memory.extend(tensors)

    @property
    def registered_memory(self) -> tuple[Any, ...]:
        """The tensors that `register_memory` named."""
        with LOCK:
            return tuple(self._memory)

    # Opening and closing

    def open(self) -> Self:
        """Open it here, without a ``with`` statement; `close` ends it."""
        with LOCK:
            if self._state != "new":
                raise RuntimeError(f"{self} was already entered: a session is opened once; make another with session(...)")
            self._state = "open"
        try:
            self._scope = self._begin()
        except BaseException:
            self._state = "new"
            raise
        return self

    def close(self) -> None:
        """End it, from any thread. Launches that run now are still recorded; the next ones are not traced by it."""
        with LOCK:
            scope = self._scope
            if scope is None:
                raise RuntimeError(f"{self} was never entered")
            if scope.forked:
                # The parent's session, in a child: it has ended already, and nothing here is to be taken out.
                return
            if self._state != "open":
                raise RuntimeError(f"{self} is already closed")
            self._state = "closed"
        self._end(scope)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with LOCK:
            # `close()` inside the block, or on another thread, is how a session ends early; the end of the block is then
            # no mistake. A second end of the block is.
            early = self._state == "closed" and not self._left
            self._left = True
        if early and self._scope is not None:
            identity.leave(self._scope)
        else:
            self.close()

    def __call__(self, function: F) -> F:
        """Decorate a function: each of its calls is traced into this session."""
        wrapper = around(function, lambda: _Call(self))
        wrapper.session = self  # type: ignore[attr-defined]
        return wrapper

    def __repr__(self) -> str:
        names = ", ".join(_client_name(client) for client in self.clients)
        state = "closed" if self.closed else self._state
        file, line = self._made_at
        return f"<session {self.number} [{names}] scope={self.scope} {state}, made at {file}:{line}>"

    def _begin(self, join: bool = True) -> Scope:
        capabilities.ensure_supported()
        if self.scope == "context":
            autograd.ready()
        scope = Scope(
            self,
            clients=self.clients,
            engine=self.engine,
            target=self.target,
            strict=self.strict,
            kernels=self.kernels,
            programs=self.programs,
            max_steps=self.max_steps,
            inline_asm=self.inline_asm,
            prints=self.prints,
            order=self.order,
        )
        with Transaction("the opening of a session") as opening:
            opening.do(interception.install, undo=interception.remove)
            opening.do(lambda: identity.register(scope), undo=lambda: identity.close(scope))
            if self.scope == "process":
                identity.open_process(scope)
            elif join:
                identity.join(scope)
            if any(client.watches_torch for client in self.clients):
                scope.watch = watch = _watch()
                opening.do(watch.enter, undo=watch.leave)
        return scope

    def _end(self, scope: Scope) -> None:
        # First the scope, then the wrappers: a launch that comes in between finds no scope and passes.
        if identity.close(scope):
            interception.remove()
            if scope.watch is not None:
                scope.watch.leave()

    # What the launch path tells it (through its Scope)

    def record(self, launch: Launch) -> None:
        """A launch begins: it gets the next index."""
        with LOCK:
            launch.index = self._count
            self._count += 1
            if len(self._launches) == self.keep:
                self._dropped_findings += len(_findings(self._launches[0]))
            self._launches.append(launch)

    def finish(self, launch: Launch) -> FindingError | None:
        """A launch has ended, and all clients are finalized."""
        if self.on_finding == "collect":
            return None
        findings = _findings(launch)
        if not findings:
            return None
        if self.on_finding == "raise":
            return FindingError(findings)
        for finding in findings:
            callsite.warn(f"{finding.client}: {finding.message}")
        return None

    def released(self) -> None:
        """A scope of this session has closed, and its last launch has ended."""
        if self._state == "closed":
            with LOCK:
                self._memory.clear()

    def first_untraceable(self, kernel: str, reason: str) -> bool:
        """True the first time a kernel cannot be traced for a reason."""
        with LOCK:
            known = (kernel, reason) in self._untraceable
            self._untraceable.add((kernel, reason))
        return not known


class _Call:
    """One call of a decorated function: a scope of its own, so that calls overlap freely; the session is shared."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._scope: Scope | None = None

    def enter(self) -> None:
        if self._scope is None:
            self._scope = self._session._begin(join=False)
        if self._session.scope == "context":
            identity.join(self._scope)

    def exit(self) -> None:
        if self._scope is not None:
            identity.leave(self._scope)

    def end(self) -> None:
        if self._scope is not None:
            self._session._end(self._scope)


class suspend:
    """``with tritontrace.suspend():`` launches made inside run as if no session were open.

    It concerns this context (as ``scope="context"`` does), and the sessions open when it begins, also process-wide ones; a
    session opened inside is active. Also a decorator. Each object is used for one ``with`` at a time.
    """

    def __init__(self) -> None:
        self._suspension: identity.Suspension | None = None

    def __enter__(self) -> Self:
        if self._suspension is not None:
            raise RuntimeError("this suspend() is already entered; make another")
        self.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.exit()

    def __call__(self, function: F) -> F:
        return around(function, suspend)

    def enter(self) -> None:
        """What ``with`` does at its beginning."""
        if "torch" in sys.modules:
            autograd.ready()
        self._suspension = identity.Suspension()
        identity.suspend(self._suspension)

    def exit(self) -> None:
        """What ``with`` does at its end."""
        suspension, self._suspension = self._suspension, None
        if suspension is not None:
            identity.resume(suspension)

    def end(self) -> None:
        """Nothing is left to do."""


class _Carried:
    """One call of a propagated function."""

    def __init__(self, carrier: identity.Carrier) -> None:
        self._carrier = carrier
        self._exit: Callable[[], None] | None = None
        self._watch: TorchWatch | None = None

    def enter(self) -> None:
        self._exit = self._carrier.enter()
        if any(scope.watch is not None for scope in identity.active_scopes()):
            self._watch = _watch()
            self._watch.enter()

    def exit(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave()
        leave, self._exit = self._exit, None
        if leave is not None:
            leave()

    def end(self) -> None:
        pass


def propagate(function: F) -> F:
    """`function`, to be run on other threads: its launches are seen by the sessions that are open here and now.

    ::

        with ThreadPoolExecutor() as pool, tritontrace.session(["sanitizer"]):
            pool.map(tritontrace.propagate(work), batches)

    The result may run on many threads at once, recursively, and after a session has closed, which is then skipped. Sessions
    that are open where it runs see its launches too. Plain, async and generator functions.
    """
    carrier = identity.carrier()
    return around(function, lambda: _Carried(carrier))


def _watch() -> TorchWatch:
    from tritontrace.engines.written import TorchWatch  # it imports torch, which importing this package must not

    return TorchWatch()


def _findings(launch: Launch) -> list[Finding]:
    # With those of its trials that its run does not show as well: the launch takes them in at its end.
    return list(launch.findings)


def _client_name(client: Any) -> str:
    return str(getattr(client, "name", None) or type(client).__name__)
