"""Running one grid under its clients: what a launch of the user and each of its trials have in common."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tritontrace.clients.base import Client, ClientManager
from tritontrace.engines.base import Engine, EngineRun, Order
from tritontrace.engines.memory import AddressSpace
from tritontrace.errors import DeadlockError, KernelError
from tritontrace.findings import Finding
from tritontrace.kernels import arguments, grids
from tritontrace.kernels.arguments import BoundLaunch
from tritontrace.launch import Launch
from tritontrace.patching.run import patch_run
from tritontrace.patching.transaction import add_note
from tritontrace.scopes.identity import Scope

__all__ = ["Execution", "View", "adopt", "describe", "detached", "settle"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class View:
    """How one scope sees a launch: its own `Launch`, and the clients that it brings."""

    scope: Scope
    launch: Launch
    clients: tuple[Client, ...]


def describe(views: Sequence[View], bound: BoundLaunch, grid: tuple[int, int, int], config: dict[str, Any] | None) -> None:
    """Fills the Launch of every view; each gets dictionaries of its own."""
    infos = arguments.argument_infos(bound)
    for view in views:
        launch = view.launch
        launch.kernel_name = bound.kernel_name
        launch.grid = grid
        launch.arguments = dict(infos)
        launch.options = dict(bound.options)
        launch.config = None if config is None else dict(config)


@dataclass(slots=True)
class Execution:
    """One run of a grid: the clients of all `views` observe it, and none of them is left unfinalized.

    `memory` makes the address space; `around` (Triton's launch hooks) is entered around the grid. A `dry` run only tells of
    the accesses.
    """

    views: Sequence[View]
    bound: BoundLaunch
    grid: tuple[int, int, int]
    engine: Engine
    memory: Callable[[], AddressSpace]
    around: Callable[[], AbstractContextManager[None]]
    max_steps: int | None = None
    programs: Any = None
    strict_bounds: bool = True
    dry: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    instruments: frozenset[str] = frozenset()
    order: Order | None = None

    def run(self, prelude: Callable[[ClientManager], None] | None = None) -> None:
        """Opens the clients, calls `prelude` (the warmup vote), runs the grid, finalizes; raises the first error."""
        manager = ClientManager()
        raised: BaseException | None = None
        memory: AddressSpace | None = None
        if self.programs is not None:
            self._select()
        try:
            if 0 not in self.grid:
                memory = self.memory()  # first: a tensor without memory is refused before anybody is told of a run
            for view in self.views:
                manager.add(view.clients, view.launch)
            if prelude is not None:
                prelude(manager)
            with patch_run(manager, self.bound.kernel_name) as hooks:
                for view in self.views:
                    view.launch.memory = memory
                manager.pre_run()
                with self.around():
                    self._run_grid(hooks, memory)
                manager.post_run()
        except BaseException as error:  # raised below, once every client is finalized
            raised = error
            if isinstance(error, DeadlockError) and self.programs is not None:
                add_note(error, "the session's programs= left programs out; one of them may be what is waited for")
        if memory is not None:
            memory.finish(False)  # nothing to do unless the grid was never begun
            for view in self.views:
                view.launch.memory = None
        outcome = settle(manager, raised)
        if outcome is not None:
            try:
                raise outcome
            finally:
                del raised, outcome  # else this frame and the traceback keep each other alive

    def _select(self) -> None:
        self.programs = grids.selected(self.grid, self.programs)
        for view in self.views:
            view.launch.programs = self.programs
        if not self.programs and 0 not in self.grid:
            name = self.bound.kernel_name
            _log.warning("nothing of the launch of %r ran: none of the session's programs= is in its grid %s", name, self.grid)

    def _run_grid(self, hooks: Any, memory: AddressSpace | None) -> None:
        launches = [view.launch for view in self.views]
        if memory is None:
            # An empty grid has run to its end.
            for launch in launches:
                launch.completed = True
            return
        first = launches[0]
        try:
            self.engine.run(
                EngineRun(
                    launch=first,
                    bound=self.bound,
                    grid=self.grid,
                    hooks=hooks,
                    memory=memory,
                    strict_bounds=self.strict_bounds,
                    max_steps=self.max_steps,
                    programs=self.programs,
                    dry=self.dry,
                    options=self.options,
                    instruments=self.instruments,
                    order=self.order,
                )
            )
        finally:
            for launch in launches:
                launch.completed = first.completed
                launch.memory = None
            memory.finish(first.completed)


def adopt(launch: Launch, known: Launch) -> None:
    """Gives `launch` what clients found in one that was the same for them."""
    launch.completed = known.completed
    launch.dry = known.dry
    launch.programs = known.programs
    for name, records in known.records.items():
        mine = launch.records[name] = []
        for record in records:
            if isinstance(record, Finding):
                record = copy.copy(record)
                record.launch = launch
                launch.findings.append(record)
            mine.append(record)


def settle(manager: ClientManager, raised: BaseException | None) -> BaseException | None:
    """Finalizes every client and returns the error that the caller is to get: what was `raised`, else the first failure.

    An engine reports what goes wrong inside a kernel as `KernelError`; where that was a client's own exception, the
    client's exception is the error.
    """
    error = raised
    if isinstance(raised, KernelError) and manager.is_from_client(raised.__cause__):
        error = raised.__cause__
    try:
        manager.finalize(error)
    except BaseException as failure:  # returned to be raised
        error = failure
    # What a client raised holds the frames of the launch, and these its tensors.
    manager.failures.clear()
    return error


def detached(error: BaseException | None, depth: int = 8) -> BaseException | None:
    """`error` without its traceback, for keeping: the frames of a traceback hold the launch's tensors alive."""
    if error is None or depth == 0:
        return None
    kept = type(error).__new__(type(error), *error.args)
    kept.args = error.args
    kept.__dict__.update(error.__dict__)
    kept.__cause__ = detached(error.__cause__, depth - 1)
    return kept
