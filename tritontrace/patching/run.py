"""Registering every client's hooks for one launch: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tritontrace import events
from tritontrace.clients.base import ClientManager, LoopCallbacks, Member, OpCallbacks
from tritontrace.engines.base import LaunchHooks
from tritontrace.errors import HookConflictError
from tritontrace.patching.transaction import Transaction

__all__ = ["EVENT_CLASSES", "patch_run"]

EVENT_CLASSES: tuple[type[events.Event], ...] = (
    events.Load,
    events.Store,
    events.Atomic,
    events.Dot,
    events.Reduce,
    events.Loop,
    events.Print,
    events.Assert,
    events.UndefinedUse,
    events.Work,
    events.NonFinite,
    events.NonFiniteUse,
    events.IntegerOverflow,
    events.Compared,
    events.Executed,
)
"""Every event class that clients are asked about."""

Hook = Callable[[Any], Any]
OVERRIDE_LOOP = "override loop"


@contextmanager
def patch_run(manager: ClientManager, kernel: str | None = None) -> Iterator[LaunchHooks]:
    """Asks every client for its hooks and gives the `LaunchHooks` of this launch; empties them at the exit.

    Raises `HookConflictError` if two clients claim one exclusive hook, and whatever a client raises while it
    registers; then no hook stays anywhere.
    """
    hooks = LaunchHooks()
    registration = _Registration(kernel, own_launch=len({id(member.launch) for member in manager.members}) > 1)
    with Transaction("the hooks of a launch") as installed:
        installed.on_undo(lambda: _empty(hooks))
        for member in manager.members:
            registration.register(member)
        registration.install(hooks)
        hooks.undecided = manager.by_corners()
    try:
        yield hooks
    finally:
        installed.undo()


def _empty(hooks: LaunchHooks) -> None:
    hooks.before, hooks.after, hooks.replace = {}, {}, {}
    hooks.loop_before = hooks.loop_iteration = hooks.loop_after = ()
    hooks.loop_override = hooks.undecided = None


class _Registration:
    """Collects hooks; nothing of them is visible to an engine before `install`."""

    def __init__(self, kernel: str | None, own_launch: bool) -> None:
        self.kernel = kernel
        self.own_launch = own_launch
        self.before: dict[type[events.Event], list[Hook]] = {}
        self.after: dict[type[events.Event], list[Hook]] = {}
        self.replace: dict[type[events.Event], Hook] = {}
        self.loop_before: list[Hook] = []
        self.loop_iteration: list[Hook] = []
        self.loop_after: list[Hook] = []
        self.loop_override: Hook | None = None
        self.claims: dict[str, Member] = {}

    def register(self, member: Member) -> None:
        for op in EVENT_CLASSES:
            callbacks = member.call("register_op_callback", op)
            if callbacks is None:
                continue
            if not isinstance(callbacks, OpCallbacks):
                raise TypeError(_wrong(member, "register_op_callback", "OpCallbacks", callbacks))
            if op is events.Loop:
                # A loop is an operation like others: replacing it is the claim that `LoopCallbacks.override` makes.
                self._loop(member, LoopCallbacks(callbacks.before, None, callbacks.after, callbacks.replace))
                continue
            if callbacks.before is not None:
                self.before.setdefault(op, []).append(self._hook(member, callbacks.before))
            if callbacks.after is not None:
                self.after.setdefault(op, []).append(self._hook(member, callbacks.after))
            if callbacks.replace is not None:
                self._claim(f"replace {op.__name__}", member)
                self.replace[op] = self._hook(member, callbacks.replace)
        loops = member.call("register_for_loop_callback")
        if loops is not None:
            if not isinstance(loops, LoopCallbacks):
                raise TypeError(_wrong(member, "register_for_loop_callback", "LoopCallbacks", loops))
            self._loop(member, loops)

    def _loop(self, member: Member, loops: LoopCallbacks) -> None:
        if loops.override is not None:
            self._claim(OVERRIDE_LOOP, member)
            self.loop_override = self._hook(member, loops.override)
        for callback, hooks in (
            (loops.before, self.loop_before),
            (loops.iteration, self.loop_iteration),
            (loops.after, self.loop_after),
        ):
            if callback is not None:
                hooks.append(self._hook(member, callback))

    def _hook(self, member: Member, callback: Hook) -> Hook:
        return member.hook(callback, own_launch=self.own_launch)

    def _claim(self, hook: str, member: Member) -> None:
        other = self.claims.setdefault(hook, member)
        # One client may claim a loop by both of its registering methods; the later one counts.
        if other is not member:
            raise HookConflictError(hook, (other.name, member.name), self.kernel)

    def install(self, hooks: LaunchHooks) -> None:
        hooks.before = {op: tuple(found) for op, found in self.before.items()}
        hooks.after = {op: tuple(found) for op, found in self.after.items()}
        hooks.replace = dict(self.replace)
        hooks.loop_before = tuple(self.loop_before)
        hooks.loop_iteration = tuple(self.loop_iteration)
        hooks.loop_after = tuple(self.loop_after)
        hooks.loop_override = self.loop_override


def _wrong(member: Member, method: str, wanted: str, got: object) -> str:
    return f"client {member.name!r}: {method} must return {wanted} or None, not {type(got).__name__}"
