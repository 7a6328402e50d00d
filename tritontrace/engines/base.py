"""What an engine is, and what it is given: the contract between a launch and whatever executes its grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.engines.memory import AddressSpace
    from tritontrace.kernels.arguments import BoundLaunch
    from tritontrace.launch import Launch

__all__ = [
    "ARITHMETIC",
    "LINES",
    "OPERATIONS",
    "OVERFLOW",
    "SHADOW",
    "UNDEFINED",
    "DryForm",
    "Engine",
    "EngineRun",
    "LaunchHooks",
    "Order",
]

Hook = Callable[[Any], Any]

UNDEFINED = "undefined"
"""An instrument: follow undefined lanes (`events.UndefinedUse`)."""

OPERATIONS = "operations"
"""An instrument: tell what is computed (`events.Work`)."""

ARITHMETIC = "arithmetic"
"""An instrument: look at every floating-point result (`events.NonFinite`), and follow what is not finite
(`events.NonFiniteUse`)."""

OVERFLOW = "overflow"
"""An instrument: check signed integer arithmetic (`events.IntegerOverflow`)."""

SHADOW = "shadow"
"""An instrument: compute everything in float64, too, and compare what is stored (`events.Compared`)."""

LINES = "lines"
"""An instrument: tell which statements of the source are executed (`events.Executed`)."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which the programs of a grid are begun, and how many of them execute in lockstep.

    `kind` is ``"forward"``, ``"reverse"`` or ``"random"`` (by `seed`); `batch` None leaves the size of a batch to the engine.
    """

    kind: str = "forward"
    seed: int = 0
    batch: int | None = None

    def __str__(self) -> str:
        kind = f"random({self.seed})" if self.kind == "random" else self.kind
        together = "" if self.batch is None else ", one by one" if self.batch == 1 else f", {self.batch} at a time"
        return kind + together


@dataclass(slots=True)
class LaunchHooks:
    """Every client's hooks for one launch, resolved to flat tuples (empty when nobody listens).

    Keys of `before`, `after` and `replace` are event classes (`events.Load`, ...). A `replace` hook gets the
    event and returns what stands in for the operation's result: a value broadcastable to ``[P, *block]`` for
    `Load` and `Dot` (a tuple for `Reduce`); for `Store`, `Print` and `Assert` it returns nothing and the operation
    is not performed; for `Atomic` it returns the old value and memory is not changed. `before` and `after` are
    called around it all the same.

    `loop_override` gets a `Loop` event and returns None (the loop runs as written) or, for a ``for`` loop, a
    triple (lower, upper, step) of ints that stands in for the loop's bounds.
    """

    before: dict[type[events.Event], tuple[Hook, ...]] = field(default_factory=dict)
    after: dict[type[events.Event], tuple[Hook, ...]] = field(default_factory=dict)
    replace: dict[type[events.Event], Hook] = field(default_factory=dict)
    loop_before: tuple[Hook, ...] = ()
    loop_iteration: tuple[Hook, ...] = ()
    loop_after: tuple[Hook, ...] = ()
    loop_override: Hook | None = None
    undecided: Callable[[], bool] | None = None
    """Given where the corners of the grid may do (`Client.by_corners`): whether the other programs are wanted after them.
    Asked once after the corners of the grid, and of each box that it is then cut into."""

    def wants(self, event_class: type[events.Event]) -> bool:
        """True if any hook listens to this class of events."""
        return event_class in self.before or event_class in self.after or event_class in self.replace

    @property
    def wants_loops(self) -> bool:
        """True if any loop hook is there."""
        return bool(self.loop_before or self.loop_iteration or self.loop_after or self.loop_override)


@dataclass(slots=True)
class EngineRun:
    """One execution of a grid: everything that belongs to it and to no other launch.

    `dry`: tell of every access and make none, but those whose data decides what is accessed.
    `instruments`: what to look for besides (`UNDEFINED`, ...).
    `order`: the order of the programs; None is the engine's own.
    `strict_bounds`: raise `OutOfBoundsError` at the end if an access left the known memory (no sanitizer listens).
    """

    launch: Launch
    bound: BoundLaunch
    grid: tuple[int, int, int]
    hooks: LaunchHooks
    memory: AddressSpace
    strict_bounds: bool = True
    max_steps: int | None = None
    programs: Any = None
    dry: bool = False
    instruments: frozenset[str] = frozenset()
    order: Order | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DryForm:
    """What it takes to know a kernel's accesses without executing it.

    `executes`: only executing it tells (flags, data that it writes itself). `static`: they depend on nothing but the
    arguments and the grid; `check` raises if the kernel is no longer what it was. `instruments` are
    those of the asked ones that can be had.
    """

    executes: bool
    static: bool
    check: Callable[[], None]
    instruments: frozenset[str] = frozenset()


class Engine(Protocol):
    """Executes launches. One instance serves the whole process and every thread at once."""

    name: str

    def prepare(
        self, bound: BoundLaunch, inline_asm: Mapping[str, Any] | None = None, *, instruments: frozenset[str] = frozenset()
    ) -> Any:
        """Compile (or find in the cache) what `run` needs; raises before anything was written to memory.

        `inline_asm` maps the text of inline assembly to a Python callback of numpy arrays.
        """

    def dry_form(
        self,
        bound: BoundLaunch,
        storages: Mapping[str, int],
        inline_asm: Mapping[str, Any] | None = None,
        *,
        instruments: frozenset[str] = frozenset(),
    ) -> DryForm:
        """Prepare a dry run, and say what it takes.

        `storages` gives the storage address of every tensor argument, `inline_asm` is as in `prepare`. Raises
        `UnsupportedOpError` if data of a tensor that has none (`bound.phantoms`) is needed.
        """

    def run(self, run: EngineRun) -> None:
        """Execute every program of the grid and send the events; sets `run.launch.completed`."""
