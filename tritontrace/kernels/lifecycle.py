"""One traced launch, from the call of the user to its end.

The steps, in this order: a `Launch` for every scope that observes; the kernel's layers, copied (`layers`); at the leaf
the arguments are bound and the engine prepared, the clients opened and asked for their warmup vote, their hooks
registered (`patching.run`), the grid run by the engine; then every client is finalized, whatever happened, and every
scope told. The first error reaches the caller, later ones are attached to it as notes.

Everything here belongs to one launch and one thread; nothing of the user's or of Triton's is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tritontrace import engines
from tritontrace.clients.base import Client, ClientManager
from tritontrace.engines.auto import explain
from tritontrace.engines.base import DryForm, Engine
from tritontrace.engines.memory import AddressSpace
from tritontrace.engines.phantom import PhantomMemory, Phantoms
from tritontrace.engines.reentry import refuse_reentry
from tritontrace.errors import UntraceableLaunchError
from tritontrace.findings import Finding
from tritontrace.kernels import arguments, binding, compat, grids, tuners, verdicts
from tritontrace.kernels.arguments import BoundLaunch
from tritontrace.kernels.compiled import CompiledLaunch
from tritontrace.kernels.copies import Copier, PrivateMemory
from tritontrace.kernels.execution import Execution, View, adopt, describe, detached, settle
from tritontrace.kernels.hooks import call_pre_run_hooks, launch_hooks
from tritontrace.kernels.layers import Chain, Tuned, is_layer_copy, run_layer, wrap_dtypes
from tritontrace.kernels.refusals import memory_of, refuse_half_dry
from tritontrace.kernels.relaunch import Relauncher
from tritontrace.kernels.targets import Target
from tritontrace.launch import Launch
from tritontrace.patching import foreign
from tritontrace.patching.transaction import add_note
from tritontrace.patching.warmup import patch_warmup
from tritontrace.scopes.gates import active_gate
from tritontrace.scopes.identity import Scope

__all__ = ["launch", "untraceable"]


def launch(
    kernel: Any,
    scopes: Sequence[Scope],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    grid: Any = None,
    warmup: bool = False,
    entry: str | None = None,
    original: Callable[[], Any] | None = None,
    trial: bool = False,
) -> Any:
    """Runs (or with `warmup` only compiles) one launch of the user under `scopes`; returns what the user gets.

    `kernel` is the object that was launched. `entry` names the method of Triton's class that was intercepted, if one
    was (``"run"``, ``"warmup"``): a subclass's own method has then already had its turn. `original` launches untraced, for
    a launch that cannot be traced. `trial` marks a launch that Triton's own tuner makes.
    """
    if is_layer_copy(kernel):
        # A user's subclass called Triton's method by name on our copy of itself: the copy's launch is under way.
        return run_layer(kernel, entry or "run", args, _words(kwargs, grid, warmup, entry))
    foreign.note_traced_launch()
    refuse_reentry(kernel)
    key = None
    if len(scopes) == 1 and scopes[0].repeats and not warmup and not trial:
        key = verdicts.key_of(kernel, args, kwargs, grid)
        known, result = verdicts.repeat(scopes[0], key) if key is not None else (False, None)
        if known:
            return result
    chain = Chain(kernel)
    observers = [*scopes, *(scope for scope in chain.scopes if not any(scope is other for other in scopes))]
    reason = untraceable(chain.leaf)
    if reason is not None:
        return _refuse(chain.leaf, observers, reason, original)
    observers = [scope for scope in observers if scope.accepts(chain.leaf)]
    if not observers and original is not None:
        return original()
    if warmup and not chain.layers:
        gate = active_gate(chain.leaf)
        if gate is not None:
            return gate.call(args, kwargs)
    user_launch = _UserLaunch(chain, observers, args, kwargs, grid, warmup, entry, trial)
    if key is not None and len(observers) == 1 and chain.leaf is kernel:
        user_launch.verdict_key = key
    return user_launch.run()


def _words(kwargs: dict[str, Any], grid: Any, warmup: bool, entry: str | None) -> dict[str, Any]:
    """The keywords of a layer's method: `warmup` has no keyword of that name."""
    return {**kwargs, "grid": grid} if entry == "warmup" else {**kwargs, "grid": grid, "warmup": warmup}


def untraceable(leaf: Any) -> str | None:
    """Why a kernel without its layers cannot be traced, or None."""
    if compat.is_gluon(leaf):
        return "it is a Gluon kernel"
    if not compat.is_function(leaf) or issubclass(type(leaf), compat.ConstexprFunction):
        return f"{type(leaf).__module__}.{type(leaf).__qualname__} is not what triton.jit makes"
    return None


def _refuse(leaf: Any, observers: Sequence[Scope], reason: str, original: Callable[[], Any] | None) -> Any:
    """A launch that cannot be traced: said once, or an error where a session is strict or there is no other way to run."""
    name = getattr(leaf, "__name__", None) or type(leaf).__name__
    if original is None:
        raise UntraceableLaunchError(f"the launch of kernel {name!r} cannot be traced: {reason}")
    foreign.refuse(name, reason, tuple(observers))
    return original()


@dataclass(slots=True)
class _Trial:
    """One trial of a config: whether it is executed and for which scopes, and the memory that is its own."""

    analysing: frozenset[int]
    executed: bool
    own: set[int] = field(default_factory=set)


class _UserLaunch:
    """One launch of the user: what its layers, its trials and its run share. It is the layers' `Conductor`."""

    def __init__(
        self,
        chain: Chain,
        scopes: Sequence[Scope],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        warmup: bool,
        entry: str | None,
        trial: bool,
    ) -> None:
        self.chain = chain
        self.kernel = chain.leaf
        self.scopes = tuple(scopes)
        self.clients: tuple[tuple[Client, ...], ...] = tuple(scope.clients for scope in scopes)
        everyone = [client for clients in self.clients for client in clients]
        self.instruments = frozenset().union(*(client.instruments for client in everyone))
        self.dry = bool(everyone) and all(client.dry_run for client in everyone) and all(self.clients)
        self.args = args
        self.kwargs = kwargs
        self.grid = grid
        self.warmup = warmup
        self.entry = entry
        self.is_trial = trial
        self.target = Target.parse(next((scope.target for scope in reversed(scopes) if scope.target is not None), None))
        # The innermost scope chooses; a trace that names no engine leaves it to the sessions.
        self.engine_name = next((scope.engine for scope in reversed(scopes) if scope.engine), "ir")
        self.engine: Engine = engines.get(self.engine_name)
        # The innermost scope's function for a piece of assembly is taken.
        self.inline_asm = {text: function for scope in scopes for text, function in scope.inline_asm.items()}
        self.views: list[View] = []
        self._spare: list[View] = []
        self._trials: list[_Trial] = []
        self._configs: list[Any] = []
        self._compiled: list[Any] | None = None
        self.verdict_key: Hashable | None = None
        self._analysed: dict[Any, list[View]] = {}
        self._warm: tuple[ClientManager, list[Any]] | None = None

    # -- the launch as a whole ------------------------------------------------------------------------------------

    def run(self) -> Any:
        """The whole launch; every scope's Launch is recorded at the start and finished at the end."""
        error: BaseException | None = None
        result = None
        self._spare = self._record()
        try:
            result = self._call()
        except BaseException as raised:  # raised again once every scope is told
            error = raised
            explain(error, self.engine_name, self.kernel)
        if self._warm is not None:
            error = settle(self._warm[0], error)
        error = self._finish(error)
        if error is not None:
            try:
                raise error
            finally:
                del error  # else this frame and the traceback keep each other, and the launch's tensors, alive
        return result

    def _call(self) -> Any:
        if not self.chain.layers:
            args = wrap_dtypes(self.args) if self.warmup else self.args
            return self.leaf(args, dict(self.kwargs), self.grid, self.warmup)
        top = self.chain.copies(self)
        entry = self.entry
        if entry is None:
            method = "warmup" if self.warmup else "run"
            return getattr(top, method)(*self.args, **_words(self.kwargs, self.grid, self.warmup, method))
        return run_layer(top, entry, self.args, _words(self.kwargs, self.grid, self.warmup, entry))

    def _record(self) -> list[View]:
        function = self.kernel.fn
        line = getattr(self.kernel, "def_file_line_number", None) or function.__code__.co_firstlineno
        made = []
        for scope, clients in zip(self.scopes, self.clients, strict=True):
            launch = Launch(
                kernel_name=function.__name__,
                target=str(self.target),
                engine=self.engine_name,
                file=function.__code__.co_filename,
                line=line,
                trial=self.is_trial,
                warmup=self.warmup,
            )
            scope.record(launch)
            made.append(View(scope, launch, clients))
        self.views.extend(made)
        return made

    def _take(self) -> list[View]:
        """The views for a run of the kernel: those recorded at the start, or new ones if a foreign layer runs it again."""
        spare, self._spare = self._spare, []
        return spare if spare or not self.views else self._record()

    def _finish(self, error: BaseException | None) -> BaseException | None:
        """Tells every scope; returns what the caller is to get: the launch's own error, else the first scope's."""
        for view in self.views:
            _adopt_trial_findings(view.launch)
        kept = detached(error)
        first = error
        for view in self.views:
            launch = view.launch
            if launch.error is None:
                launch.error = kept
            try:
                failure: BaseException | None = view.scope.finish(launch)
            except BaseException as raised:  # the other scopes must be told; it is returned
                failure = raised
            if first is None:
                first = failure
            elif failure is not None:
                add_note(first, f"also: {type(failure).__name__}: {failure}")
        return first

    # -- what the layers ask --------------------------------------------------------------------------------------

    @property
    def cache_space(self) -> str:
        return str(self.target)

    @property
    def compiling(self) -> bool:
        return self._compiled is not None

    @property
    def in_trial(self) -> bool:
        return self.is_trial or bool(self._trials)

    def to_analyse(self, tuned: Tuned) -> frozenset[int]:
        return frozenset(
            scope.id
            for scope, clients in zip(self.scopes, self.clients, strict=True)
            if scope.id not in tuned.analysed and any(client.analyses_all_configs for client in clients)
        )

    @contextmanager
    def trial(self, config: Any, analysing: frozenset[int]) -> Iterator[bool]:
        executed = bool(analysing) and all(outer.executed for outer in self._trials)
        self._trials.append(_Trial(analysing, executed))
        try:
            with self.configured(config):
                yield executed
        finally:
            self._trials.pop()

    @contextmanager
    def configured(self, config: Any) -> Iterator[None]:
        self._configs.append(config)
        try:
            yield
        finally:
            self._configs.pop()

    def chosen(self, tuner: Any, config: Any) -> None:
        if not self.in_trial:
            tuners.remember(self.scopes, tuner, config)

    def private_storages(self, copier: Copier) -> None:
        self._trials[-1].own |= copier.storages

    def leaf(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        bound = arguments.bind(self.kernel, args, kwargs, self.target)
        if self._compiled is not None:
            self._compiled.append(binding.real_compile(self.kernel, bound, self.target))
            return self._compiled[-1]
        if self._trials:
            return self._try(bound, grid)
        if not self.is_trial and not self.dry:
            call_pre_run_hooks(self.kernel, args, kwargs)
        return self._warm_up(bound) if warmup else self._run(bound, grid)

    # -- the leaf -------------------------------------------------------------------------------------------------

    def _run(self, bound: BoundLaunch, grid: Any) -> CompiledLaunch:
        """The run of the user's launch, on the user's memory."""
        views = self._take()
        shape = grids.grid(grid, bound, self.target.backend)
        if self.dry:
            form = self._analyse(views, bound, shape)
            compiled = self._result(bound)
            if form.static and self.verdict_key is not None:
                verdict = verdicts.Verdict(views[0].launch, compiled, form.check, self.kernel)
                verdicts.keep(self.scopes[0], self.verdict_key, verdict)
            return compiled
        refuse_half_dry(bound, self.clients)
        describe(views, bound, shape, self._config())
        compiled = self._result(bound)
        self.engine.prepare(bound, self.inline_asm, instruments=self.instruments)

        def around() -> AbstractContextManager[None]:
            if self.is_trial:
                return nullcontext()
            return launch_hooks(self.kernel, bound, shape, lambda: compiled.metadata)

        def memory() -> AddressSpace:
            return memory_of(bound, lambda values: AddressSpace.for_launch(values, self._registered()))

        self._execution(views, bound, shape, memory, around).run(lambda manager: self._vote(manager, views))
        return compiled

    def _analyse(self, views: Sequence[View], bound: BoundLaunch, shape: tuple[int, int, int]) -> DryForm:
        """A dry run: clients are told of every access; the user's memory is at most read."""
        phantoms = Phantoms(_values(bound))
        bound.phantoms = phantoms or None
        describe(views, bound, shape, self._config())
        for view in views:
            view.launch.dry = True
        storages = {name: info.storage_ptr for name, info in views[0].launch.arguments.items() if info.is_tensor}
        form = self.engine.dry_form(bound, storages, self.inline_asm, instruments=self.instruments)

        def memory() -> AddressSpace:
            if not form.executes:
                return memory_of(bound, lambda values: PhantomMemory.for_dry_run(values, self._registered(), phantoms))
            return memory_of(bound, lambda values: PrivateMemory.for_trial(values, self._registered(), frozenset()))

        execution = self._execution(views, bound, shape, memory, nullcontext)
        execution.dry = not form.executes
        execution.instruments = form.instruments
        execution.run(lambda manager: self._vote(manager, views))
        for view in views:
            view.launch.completed = False  # on the user's memory nothing has run
        return form

    def _try(self, bound: BoundLaunch, grid: Any) -> CompiledLaunch:
        """A trial: a Launch of its own below every scope's Launch, on memory of its own, for the clients that ask."""
        trial = self._trials[-1]
        views = []
        for view in self.views[: len(self.scopes)]:
            asking = tuple(client for client in view.clients if client.analyses_all_configs)
            own = Launch(
                kernel_name=bound.kernel_name,
                index=len(view.launch.trials),
                target=view.launch.target,
                engine=view.launch.engine,
                file=view.launch.file,
                line=view.launch.line,
                trial=True,
            )
            view.launch.trials.append(own)
            views.append(View(view.scope, own, asking if view.scope.id in trial.analysing else ()))
        try:
            shape = grids.grid(grid, bound, self.target.backend)
            if self.dry:
                if trial.executed:
                    self._analyse(views, bound, shape)
                return self._result(bound)
            describe(views, bound, shape, self._config())
            program = self.engine.prepare(bound, self.inline_asm, instruments=self.instruments)
            if trial.executed:
                alike = self._analysed.setdefault((id(program), shape, trial.analysing), views)
                if alike is not views:
                    # Another config gave the same program: what differs is of no concern to an engine.
                    for view, known in zip(views, alike, strict=True):
                        adopt(view.launch, known.launch)
                    return self._result(bound)
                own_memory = frozenset().union(*(outer.own for outer in self._trials))

                def memory() -> AddressSpace:
                    return memory_of(bound, lambda values: PrivateMemory.for_trial(values, self._registered(), own_memory))

                self._execution(views, bound, shape, memory, nullcontext).run()
        except BaseException as error:
            kept = detached(error)
            for view in views:
                view.launch.error = kept
            raise
        return self._result(bound)

    def _warm_up(self, bound: BoundLaunch) -> CompiledLaunch:
        """The user's own ``warmup``: nothing runs; clients may still want, and then get, the real compile."""
        if self._warm is None:
            views = self._take()
            describe(views, bound, (1, 1, 1), self._config())
            manager = ClientManager()
            self._warm = (manager, [])
            for view in views:
                manager.add(view.clients, view.launch)
            with self._gate():
                self._warm[1].extend(manager.pre_warmup(self.kernel))
        manager, voters = self._warm
        if voters:
            self._tell(manager, voters, self.views, [binding.real_compile(self.kernel, bound, self.target)])
        else:
            self.engine.prepare(bound, self.inline_asm, instruments=self.instruments)
        return self._result(bound)

    def _execution(
        self,
        views: Sequence[View],
        bound: BoundLaunch,
        shape: tuple[int, int, int],
        memory: Callable[[], AddressSpace],
        around: Callable[[], AbstractContextManager[None]],
    ) -> Execution:
        steps = [scope.max_steps for scope in self.scopes if scope.max_steps is not None]
        selections: list[Any] = [None if scope.programs is None else list(scope.programs) for scope in self.scopes]
        return Execution(
            views=views,
            bound=bound,
            grid=shape,
            engine=self.engine,
            memory=memory,
            around=around,
            max_steps=min(steps, default=None),
            # One run serves all scopes: what one of them wants to see must run.
            programs=None if not selections or None in selections else [program for some in selections for program in some],
            instruments=self.instruments,
            order=next((scope.order for scope in reversed(self.scopes) if scope.order is not None), None),
            strict_bounds=not any(client.handles_out_of_bounds for clients in self.clients for client in clients),
            options={"inline_asm": self.inline_asm, "prints": tuple(scope.prints for scope in self.scopes)},
        )

    def _registered(self) -> list[Any]:
        """Tensors that the sessions were told of (``session.register_memory``)."""
        found: list[Any] = []
        for scope in self.scopes:
            found.extend(getattr(scope.session, "registered_memory", ()))
        return found

    def _config(self) -> dict[str, Any] | None:
        """The keywords of the configs in force, or None without an autotuner."""
        if not self._configs:
            return None
        merged: dict[str, Any] = {}
        for config in self._configs:
            merged.update(config.kwargs)
        return merged

    # -- the warmup vote ------------------------------------------------------------------------------------------

    def _gate(self) -> AbstractContextManager[None]:
        return patch_warmup(self.kernel, self.scopes, self._compile_now)

    def _compile_now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``jit_fn.warmup(...)`` inside the vote: the real compile, and no launch of its own."""
        bound = arguments.bind(self.kernel, wrap_dtypes(args), kwargs, self.target)
        return binding.real_compile(self.kernel, bound, self.target)

    def _vote(self, manager: ClientManager, views: Sequence[View]) -> None:
        with self._gate():
            voters = manager.pre_warmup(self.kernel)
            if voters:
                self._tell(manager, voters, views, self._compile_all())

    def _compile_all(self) -> list[Any]:
        """Compiles the kernel once for each config, through fresh copies of the layers (heuristics give constants)."""
        compiled: list[Any] = []
        self._compiled = compiled
        try:
            if self.chain.layers:
                top = self.chain.copies(self)
                words = _words(self.kwargs, self.grid, True, "run")
                if self.entry is None:
                    top.run(*self.args, **words)
                else:
                    run_layer(top, "run", self.args, words)
            else:
                self.leaf(self.args, dict(self.kwargs), self.grid, True)
        finally:
            self._compiled = None
        return compiled

    def _tell(self, manager: ClientManager, voters: Any, views: Sequence[View], compiled: Sequence[Any]) -> None:
        for view in views:
            view.launch.compiled.extend(compiled)
        manager.post_warmup(voters, self.kernel, compiled)

    # -- what the user gets ---------------------------------------------------------------------------------------

    def _result(self, bound: BoundLaunch) -> CompiledLaunch:
        return CompiledLaunch(bound, Relauncher(self.kernel, tuple(self.chain.scopes), bound, launch))


def _values(bound: BoundLaunch) -> list[Any]:
    return [leaf.value for leaf in bound.leaves]


def _adopt_trial_findings(launch: Launch) -> None:
    """A fault of a config that was only tried is a fault of the launch too, unless its run shows the same one."""
    known = {_fault(finding) for finding in launch.findings}
    for trial in launch.trials:
        for finding in trial.findings:
            fault = _fault(finding)
            if fault not in known:
                known.add(fault)
                launch.findings.append(finding)


def _fault(finding: Finding) -> tuple[Any, ...]:
    return (finding.client, finding.kind, finding.access, finding.tensor, finding.location, finding.call_stack)
