"""What a client is, and the manager that calls the clients of one launch.

Thread contract: launches of one session can run at once on several threads. `Client.for_launch` gives a launch an
object of its own to call; whatever it returns, one client object is only ever called by one thread at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tritontrace.findings import Finding
from tritontrace.forking import fork_safe
from tritontrace.kernels.weak import WeakIdentityMap
from tritontrace.patching.transaction import add_note

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.launch import Launch

__all__ = ["Client", "ClientManager", "LoopCallbacks", "Member", "OpCallbacks", "client_name"]


@dataclass(frozen=True, slots=True)
class OpCallbacks:
    """What a client wants to hear about one kind of operation; each callback gets the event.

    `before` is called before the operation runs, `after` when its result is known (`Load.value`, `Dot.result`, ...).
    `replace` is exclusive and stands in for the operation: it returns the operation's value, broadcastable to
    ``[P, *block]`` (a tuple of them for `Reduce`); see `tritontrace.engines.base.LaunchHooks` for the other kinds.
    """

    before: Callable[[Any], Any] | None = None
    after: Callable[[Any], Any] | None = None
    replace: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class LoopCallbacks:
    """What a client wants to hear about loops; each callback gets a `Loop` event.

    `override` is exclusive: it returns None (the loop runs as written) or, for a ``for`` loop, the triple
    (lower, upper, step) of ints to run instead.
    """

    before: Callable[[events.Loop], Any] | None = None
    iteration: Callable[[events.Loop], Any] | None = None
    after: Callable[[events.Loop], Any] | None = None
    override: Callable[[events.Loop], tuple[int, int, int] | None] | None = None


class Client:
    """Base of every client: all methods are optional, only `name` must be set. No ``super().__init__()`` is needed.

    In the order of one launch: `for_launch`, then on what it returned `pre_warmup_callback` (and, if it voted for a
    real compile, `post_warmup_callback` once for each compiled config), `register_op_callback` for every event class,
    `register_for_loop_callback`, `pre_run_callback`, the hooks, `post_run_callback` if the grid ran to its end, and
    exactly one `finalize`, however the launch ended. An exception from any of them reaches whoever launched, unchanged.
    """

    name: str

    handles_out_of_bounds: ClassVar[bool] = False
    """True if the client reports accesses outside of the known memory; otherwise such a launch raises at its end."""

    dry_run: bool = False
    """True if the client wants no execution: where all clients of a launch do, it is told of every access and none is made.

    Arguments may then be fake tensors (of torch's ``FakeTensorMode``, or on the meta device), and nothing is written. Events
    carry no values. What decides an access by data (an index tensor) is really read."""

    instruments: frozenset[str] = frozenset()
    """What else the engine is to look for, which costs time and so must be asked for: names from `tritontrace.engines.base`
    (`UNDEFINED` for `events.UndefinedUse`, `OPERATIONS` for `events.Work`)."""

    watches_torch: bool = False
    """True to have torch's operations watched while the session is open, so that `tritontrace.engines.written` knows which
    memory was never written."""

    repeatable: bool = False
    """True if what the client finds in a dry run depends on nothing but the launch's arguments: an identical launch then
    gets the same findings without being analysed again."""

    by_corners: bool = False
    """True if the client can tell from the programs at the corners of the grid what it wants to know of all, where accesses are
    affine in the program ids. In a dry run in which all clients can, the events of these programs come first, with
    `Event.corners` set, and no others come unless one of the clients is still `undecided`: then the grid is cut into boxes, the
    events of their corners come, and at last those of all programs of the boxes that leave somebody undecided."""

    analyses_all_configs: ClassVar[bool] = False
    """True to have every config of an autotuned kernel run under this client (on copies of the tensors)."""

    def for_launch(self, launch: Launch) -> Client:
        """The object that the rest of this launch is to be reported to; called once per launch.

        The default, `self`, is called by several launches at once, one call at a time. Return a fresh object to keep
        the launches of several threads apart without waiting.
        """
        return self

    def pre_warmup_callback(self, jit_fn: Any, launch: Launch) -> bool:
        """Whether this client wants `jit_fn` (the user's own object) really compiled for the launch's target."""
        return False

    def post_warmup_callback(self, jit_fn: Any, compiled: Any) -> None:
        """Gets Triton's compiled kernel if this client voted for it: once per config, at every launch."""

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """The callbacks for one event class (`events.Load`, ...), or None; asked for every class at every launch."""
        return None

    def register_for_loop_callback(self) -> LoopCallbacks | None:
        """The callbacks for loops, or None."""
        return None

    def pre_run_callback(self, launch: Launch) -> None:
        """Called right before the grid runs."""

    def post_run_callback(self, launch: Launch) -> None:
        """Called when every program of the grid has run to its end."""

    def undecided(self) -> bool:
        """Whether the events of all programs are wanted (see `by_corners`).

        Asked once after the events of the corners of the grid, or of a box of it; what comes next belongs to another box.
        """
        return True

    def finalize(self) -> list[Any]:
        """The records of this launch: they become ``launch.records[name]``; each `Finding` also a launch's finding."""
        return []


def client_name(client: Any) -> str:
    """The client's `name`, or its class's where it has none."""
    return str(getattr(client, "name", None) or type(client).__name__)


_LOCKS: WeakIdentityMap[threading.RLock] = WeakIdentityMap()
"""One lock per client object, by identity: clients may define equality, and nothing is written to them. Re-entrant,
because a hook may launch a kernel itself."""


def _lock_of(client: Any) -> threading.RLock:
    return _LOCKS.get_or_create(client, lambda: fork_safe(threading.RLock()))


class Member:
    """One client in one launch: `client` is what `for_launch` returned, `launch` the Launch of the client's scope."""

    __slots__ = ("client", "failures", "finalized", "launch", "lock", "name")

    def __init__(self, client: Client, launch: Launch, failures: list[BaseException]) -> None:
        self.client = client
        self.launch = launch
        self.name = client_name(client)
        self.lock = _lock_of(client)
        self.failures = failures
        self.finalized = False

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the client under the client's lock; what it raises is remembered as a client's error."""
        try:
            with self.lock:
                return getattr(self.client, method)(*arguments)
        except BaseException as error:
            self.failures.append(error)
            raise

    def hook(self, callback: Callable[[Any], Any], *, own_launch: bool) -> Callable[[Any], Any]:
        """`callback` as the engine may call it: under the lock, its error remembered.

        With `own_launch`, the event names this member's Launch while the callback runs: an event is made once for
        the launches of all scopes.
        """
        lock, failures, launch = self.lock, self.failures, self.launch

        def call(event: Any) -> Any:
            try:
                with lock:
                    if own_launch:
                        event.launch = launch
                    return callback(event)
            except BaseException as error:
                failures.append(error)
                raise

        return call

    def finalize(self) -> None:
        """Ends the client's launch and files its records; does nothing the second time."""
        if self.finalized:
            return
        self.finalized = True
        records = self.call("finalize")
        if records is not None and not isinstance(records, Iterable):
            raise TypeError(f"client {self.name!r}: finalize must return a list of records, not {records!r}")
        kept = list(records) if records is not None else []
        self.launch.records.setdefault(self.name, []).extend(kept)
        for record in kept:
            if isinstance(record, Finding):
                if record.launch is None:
                    record.launch = self.launch
                if not any(record is known for known in self.launch.findings):
                    self.launch.findings.append(record)


class ClientManager:
    """The clients of one launch, of all the scopes that observe it. It belongs to that launch.

    `add` opens them (`Client.for_launch`); whatever happens then, `finalize` reaches each of them exactly once.
    """

    def __init__(self, clients: Iterable[Client] = (), launch: Launch | None = None) -> None:
        self.members: list[Member] = []
        self.failures: list[BaseException] = []
        if launch is not None:
            self.add(clients, launch)
        elif tuple(clients):
            raise TypeError("ClientManager needs the Launch that its clients are to observe")

    def add(self, clients: Iterable[Client], launch: Launch) -> None:
        """Opens `clients` for `launch`; when one fails to open, those before it still get their `finalize`."""
        for client in clients:
            try:
                with _lock_of(client):
                    opened = client.for_launch(launch)
            except BaseException as error:
                self.failures.append(error)
                raise
            if not isinstance(opened, Client):
                raise TypeError(f"client {client_name(client)!r}: for_launch must return a Client, not {type(opened).__name__}")
            self.members.append(Member(opened, launch, self.failures))

    def pre_warmup(self, jit_fn: Any) -> list[Member]:
        """Asks every client whether it wants a real compile, also after one of them raised; returns the voters."""
        voters: list[Member] = []

        def ask(member: Member) -> None:
            if member.call("pre_warmup_callback", jit_fn, member.launch):
                voters.append(member)

        _each(self.members, ask, "asking", "for its warmup vote")
        return voters

    def post_warmup(self, voters: Sequence[Member], jit_fn: Any, compiled: Sequence[Any]) -> None:
        """Tells every voter of every compiled config, also after another voter raised."""

        def tell(member: Member) -> None:
            for kernel in compiled:
                member.call("post_warmup_callback", jit_fn, kernel)

        _each(voters, tell, "telling", "of its compile")

    def pre_run(self) -> None:
        """Tells every client that the grid is about to run; the first that raises ends the launch."""
        for member in self.members:
            member.call("pre_run_callback", member.launch)

    def post_run(self) -> None:
        """Tells every client that the grid has run, also after one of them raised."""
        _each(self.members, lambda member: member.call("post_run_callback", member.launch), "telling", "of the end")

    def by_corners(self) -> Callable[[], bool] | None:
        """What tells whether any client is undecided after the corners' events; None if not all can do with these."""
        if not self.members or not all(member.client.by_corners for member in self.members):
            return None

        def undecided() -> bool:
            answers = [member.call("undecided") for member in self.members]  # of all: each is to begin anew
            return any(answers)

        return undecided

    def is_from_client(self, error: BaseException | None) -> bool:
        """True if one of the clients raised exactly this exception."""
        return any(failure is error for failure in self.failures)

    def finalize(self, error: BaseException | None = None) -> None:
        """Finalizes every client, even if one raises, and then raises the first failure; later ones are its notes.

        With `error` (what already ended the launch) nothing is raised: all failures become notes of `error`.
        """
        _each(self.members, Member.finalize, "finalizing", "", error)


def _each(
    members: Sequence[Member],
    action: Callable[[Member], Any],
    verb: str,
    what: str,
    error: BaseException | None = None,
) -> None:
    """Does `action` for every member; raises the first failure, unless there is an `error` already, with the rest as notes."""
    first = error
    for member in members:
        try:
            action(member)
        except BaseException as failure:  # the others must be reached; it is raised below
            if first is None:
                first = failure
            elif failure is not first:
                where = " ".join(part for part in (verb, f"client {member.name!r}", what) if part)
                add_note(first, f"while {where}: {type(failure).__name__}: {failure}")
    if error is None and first is not None:
        raise first
