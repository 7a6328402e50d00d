"""Copies of a kernel's Autotuner and Heuristics layers, over the engine instead of the compiled kernel.

The user's objects are only read. Every launch gets copies of its own, so nothing that Triton keeps on a layer during a
launch (`nargs`, `best_config`, `restore_copies`) is shared between threads. A copy is an object of a subclass of the
user's class, whose ``super().run(...)`` ends here and not in Triton's code: Triton's would time with a driver, print,
and read the cache on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import triton
from triton.runtime.autotuner import Autotuner, Heuristics

from tritontrace.forking import fork_safe
from tritontrace.kernels import capabilities, compat, tuners
from tritontrace.kernels.copies import Copier
from tritontrace.kernels.weak import WeakIdentityMap

__all__ = ["Chain", "Conductor", "EngineLeaf", "Tuned", "is_layer_copy", "run_layer", "wrap_dtypes"]

CONFIG_FAILURES = (compat.OutOfResources, compat.CompileTimeAssertionFailure, compat.PTXASError)
"""What a config may fail with while it is tuned: it is then not chosen (as in Triton's `Autotuner._bench`)."""

LAUNCH_WORDS = frozenset({"grid", "warmup"})


class Conductor(Protocol):
    """The launch of the user that layer copies belong to: what they ask and tell."""

    @property
    def cache_space(self) -> str:
        """What tuned configs depend on besides the tuning key: the launch's target."""

    @property
    def compiling(self) -> bool:
        """True during the compile pass of a voted warmup: every config is wanted, nothing runs."""

    @property
    def in_trial(self) -> bool:
        """True inside a trial."""

    @property
    def dry(self) -> bool:
        """True if the launch is only analysed: hooks must not reach the user's tensors."""

    def to_analyse(self, tuned: Tuned) -> frozenset[int]:
        """The scopes with a client that wants every config analysed and has not had it for this tuning key."""

    def trial(self, config: Any, analysing: frozenset[int]) -> AbstractContextManager[bool]:
        """What the leaf runs inside is a trial of `config`; gives True if it is executed and not only compiled."""

    def configured(self, config: Any) -> AbstractContextManager[None]:
        """What the leaf runs inside is the run of the chosen `config`."""

    def chosen(self, tuner: Any, config: Any) -> None:
        """The user's `tuner` runs `config`."""

    def private_storages(self, copier: Copier) -> None:
        """Tells which memory belongs to the current trial alone."""

    def leaf(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """Runs (or only compiles) the kernel itself."""


class Tuned:
    """What is known about one tuning key: the chosen config, those it was chosen from, and for whom all were analysed."""

    __slots__ = ("analysed", "candidates", "config")

    def __init__(self, config: Any, candidates: list[Any]) -> None:
        self.config = config
        self.candidates = candidates
        self.analysed: set[int] = set()


class ConfigCache:
    """The tuned configs of one user's Autotuner, over its traced launches. Triton's own cache is not touched."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._tuned: dict[Any, Tuned] = {}

    def get(self, key: Any) -> Tuned | None:
        with self._lock:
            return self._tuned.get(key)

    def put(self, key: Any, tuned: Tuned) -> Tuned:
        """Keeps `tuned`; of two launches that tuned at once the first one's choice stays."""
        with self._lock:
            return self._tuned.setdefault(key, tuned)


_CONFIG_CACHES: WeakIdentityMap[ConfigCache] = WeakIdentityMap()


class EngineLeaf:
    """Stands where the kernel stood under its layers; anything but a launch is answered by the user's kernel."""

    def __init__(self, kernel: Any, conductor: Conductor) -> None:
        self.fn = kernel
        self._conductor = conductor

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        return self._conductor.leaf(args, kwargs, grid, warmup)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        return self.run(*wrap_dtypes(args), grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fn, name)


class _LayerCopy:
    """What marks a copy: its class derives from this, and its `_tritontrace` holds who made it and for which launch."""

    _tritontrace: _Bond


class _Bond:
    __slots__ = ("cache", "conductor", "original")

    def __init__(self, original: Any, conductor: Conductor, cache: ConfigCache | None = None) -> None:
        self.original = original
        self.conductor = conductor
        self.cache = cache


class HeuristicsCopy(_LayerCopy, Heuristics):  # type: ignore[misc]  # triton ships no types
    """Triton's Heuristics, over the next copy. Never constructed: see `_copy`."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        for name, heuristic in self.values.items():
            kwargs[name] = heuristic({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        return self.run(*wrap_dtypes(args), grid=grid, warmup=True, **kwargs)


class AutotunerCopy(_LayerCopy, Autotuner):  # type: ignore[misc]  # triton ships no types
    """An Autotuner that chooses without timing. Never constructed: see `_copy`.

    A trial runs on copies of the tensors; then the chosen config runs once, on the user's.
    """

    def run(self, *args: Any, **kwargs: Any) -> Any:
        conductor = self._tritontrace.conductor
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if kwargs.get("warmup"):
            return self._compile(args, kwargs, every=conductor.compiling)
        config, tuned_now = self._choose(args, kwargs)
        self.best_config = config
        conductor.chosen(self._tritontrace.original, config)
        if conductor.dry and self._has_hooks(config):
            args, kwargs = _copied(args, kwargs, Copier())
            self.nargs = dict(zip(self.arg_names, args, strict=False))
        if tuned_now:
            # As Triton after tuning: only a launch that has just tuned resets, and nothing is restored after it.
            self.pre_hook(self._full(kwargs, config), reset_only=True)
        if config.pre_hook is not None:
            config.pre_hook(self._full(kwargs, config))
        with conductor.configured(config):
            return self.fn.run(*args, **kwargs, **config.all_kwargs())

    def pre_hook(self, kwargs: Mapping[str, Any], reset_only: bool = False) -> None:
        """Triton's default hook before a run: `reset_to_zero`, and what `restore_value` needs."""
        for name in self.reset_to_zero:
            if kwargs[name] is not None:
                kwargs[name].zero_()
        if not reset_only:
            self.restore_copies = {name: kwargs[name].clone() for name in self.restore_value if kwargs[name] is not None}

    def post_hook(self, kwargs: Mapping[str, Any], exception: BaseException | None) -> None:
        """Triton's default hook after a run: `restore_value`."""
        for name, value in self.restore_copies.items():
            kwargs[name].copy_(value)
        self.restore_copies = {}

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        args = wrap_dtypes(args)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        compiled = []
        # The user's own warmup, as Triton does it: no tuning, no hooks, an error is an error.
        for config in self.prune_configs(kwargs):
            with self._tritontrace.conductor.configured(config):
                compiled.append(self.fn.run(*args, **{**kwargs, "warmup": True}, **config.all_kwargs()))
        return compiled

    def _full(self, kwargs: Mapping[str, Any], config: Any) -> dict[str, Any]:
        return {**(self.nargs or {}), **kwargs, **config.all_kwargs()}

    def _key(self, kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Triton's tuning key, for this launch's target."""
        named = {name: value for name, value in {**self.nargs, **kwargs}.items() if name in self.arg_names}
        key = [named[name] for name in self.keys if name in named]
        key.extend(str(value.dtype) for value in named.values() if hasattr(value, "dtype"))
        return tuple(key)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """The config to run, and whether it has been tuned right now."""
        if len(self.configs) <= 1:
            return self.configs[0], False
        bond = self._tritontrace
        assert bond.cache is not None
        key = self._key(kwargs)
        place = (bond.conductor.cache_space, key)
        tuned = bond.cache.get(place)
        if tuned is not None:
            analysing = frozenset() if bond.conductor.in_trial else bond.conductor.to_analyse(tuned)
            if analysing:
                for config in tuned.candidates:
                    self._trial(config, args, kwargs, analysing)
                tuned.analysed |= analysing
            return tuned.config, False
        candidates = list(self.prune_configs(kwargs))
        if len(candidates) == 1 and not capabilities.tunes_a_single_config():
            return bond.cache.put(place, Tuned(candidates[0], candidates)).config, False
        fresh = Tuned(None, candidates)
        analysing = bond.conductor.to_analyse(fresh)
        timings = [self._trial(config, args, kwargs, analysing) for config in candidates]
        fresh.config = candidates[timings.index(min(timings))]
        tuned = bond.cache.put(place, fresh)
        tuned.analysed |= analysing
        if not bond.conductor.in_trial:
            self._tell_listener(key, tuned.config, candidates, timings)
        return tuned.config, True

    def _tell_listener(self, key: Any, config: Any, candidates: list[Any], timings: list[float]) -> None:
        listener = triton.knobs.autotuning.listener if capabilities.tuning_listener() else None
        if listener is None:
            return
        listener(
            fn=Chain(self._tritontrace.original).leaf,
            key=key,
            best_config=config,
            configs_timings=dict(zip(candidates, ([timing] * 3 for timing in timings), strict=True)),
            duration=0.0,
            cache_hit=False,
        )

    def _trial(self, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any], analysing: frozenset[int]) -> float:
        """What `Autotuner._bench` does around one timed run, on copies; infinity for a config that cannot be used."""
        conflicts = kwargs.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned symbols."
            )
        conductor = self._tritontrace.conductor
        nargs = self.nargs
        try:
            with conductor.trial(config, analysing) as executed:
                if (executed and not conductor.dry) or self._has_hooks(config):
                    copier = Copier()
                    args, kwargs = _copied(args, kwargs, copier)
                    conductor.private_storages(copier)
                # The hooks see the very objects that the kernel gets.
                self.nargs = dict(zip(self.arg_names, args, strict=False))
                current = {**kwargs, **config.all_kwargs()}
                full = {**self.nargs, **current}
                if config.pre_hook:
                    config.pre_hook(full)
                self.pre_hook(full)
                try:
                    self.fn.run(*args, **current)
                except Exception as error:
                    self.post_hook(full, exception=error)
                    raise
                self.post_hook(full, exception=None)
        except CONFIG_FAILURES:
            return float("inf")
        finally:
            self.nargs = nargs
        return 0.0

    def _has_hooks(self, config: Any) -> bool:
        defined = self.user_defined_pre_hook or self.user_defined_post_hook
        return bool(defined or self.reset_to_zero or self.restore_value or config.pre_hook)

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any], every: bool) -> Any:
        """``run(warmup=True)``: compiles the configs (all of them in a compile pass, else one) without tuning."""
        bond = self._tritontrace
        configs = list(self.configs)
        if len(configs) > 1:
            assert bond.cache is not None
            tuned = bond.cache.get((bond.conductor.cache_space, self._key(kwargs)))
            configs = tuned.candidates if tuned is not None else list(self.prune_configs(kwargs))
            if tuned is not None and not every:
                configs = [tuned.config]
        results: list[Any] = []
        failures: list[BaseException] = []
        for config in configs:
            try:
                results.append(self._compile_one(config, args, kwargs))
            except CONFIG_FAILURES as error:
                failures.append(error)
            if results and not every:
                break
        if not results:
            raise failures[0]
        return results if every else results[0]

    def _compile_one(self, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if config.pre_hook is not None and self._tritontrace.conductor.compiling:
            # It may set what the compile depends on, such as a descriptor's block shape; on copies, as nothing runs.
            args, kwargs = _copied(args, kwargs, Copier())
            named = dict(zip(self.arg_names, args, strict=False))
            config.pre_hook({**named, **kwargs, **config.all_kwargs()})
        with self._tritontrace.conductor.configured(config):
            return self.fn.run(*args, **kwargs, **config.all_kwargs())


def _copied(args: tuple[Any, ...], kwargs: dict[str, Any], copier: Copier) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A launch's arguments with the tensors copied."""
    words = {name: value if name in LAUNCH_WORDS else copier(value) for name, value in kwargs.items()}
    return tuple(copier(value) for value in args), words


class Chain:
    """The layers of a kernel, outermost first, down to its `leaf`; `scopes` are those of the traces met on the way."""

    __slots__ = ("layers", "leaf", "scopes")

    def __init__(self, kernel: Any) -> None:
        self.layers: list[Any] = []
        self.scopes: list[Any] = []
        while True:
            while compat.unwrap(kernel) is not kernel:
                scope = getattr(kernel, "_self_scope", None)
                if scope is not None and not any(scope is known for known in self.scopes):
                    self.scopes.append(scope)
                kernel = kernel.__wrapped__
            if compat.is_function(kernel) or not hasattr(kernel, "fn") or len(self.layers) > 64:
                self.leaf = kernel
                return
            self.layers.append(kernel)
            kernel = kernel.fn

    def copies(self, conductor: Conductor) -> Any:
        """The outermost of fresh copies of all layers, over an `EngineLeaf`."""
        below: Any = EngineLeaf(self.leaf, conductor)
        for layer in reversed(self.layers):
            below = _copy(layer, below, conductor)
        return below


_COPY_CLASSES: WeakIdentityMap[type] = WeakIdentityMap()


def _copy_class(kind: type) -> type:
    base: type = AutotunerCopy if issubclass(kind, Autotuner) else HeuristicsCopy
    if kind in base.__mro__:
        return base
    members: dict[str, Any] = {"__module__": kind.__module__}
    if tuners.tunes_itself(kind):
        members["run"] = base.__dict__["run"]
    # The user's subclass keeps its say: its methods come before ours, ours before Triton's.
    return _COPY_CLASSES.get_or_create(kind, lambda: type(kind.__name__, (kind, base), members))


def _copy(original: Any, below: Any, conductor: Conductor) -> Any:
    kind = type(original)
    tuner = issubclass(kind, Autotuner)
    known = tuner or issubclass(kind, Heuristics)
    made: Any = object.__new__(_copy_class(kind) if known else kind)
    vars(made).update(vars(original))
    made.fn = below
    if tuner:
        cache = _CONFIG_CACHES.get_or_create(original, ConfigCache)
        made._tritontrace = _Bond(original, conductor, cache)
        _rebind(made)
    else:
        made._tritontrace = _Bond(original, conductor)
    return made


def _rebind(made: Any) -> None:
    """Makes an Autotuner's copy independent of the original, whose `__init__` tied closures to the original."""
    made.configs = list(made.configs)
    made.nargs = None
    made.cache = {}
    made.restore_copies = {}
    made.cache_results = False
    made.do_bench = made._do_bench = _no_benchmark

    # The default hooks are methods of the copy's class: as attributes they would tie the copy, and through it the launch's
    # tensors, into a reference cycle.
    if not made.user_defined_pre_hook:
        del made.pre_hook
    if not made.user_defined_post_hook:
        del made.post_hook


def _no_benchmark(kernel_call: Callable[[], Any], quantiles: Any = None) -> list[float]:
    """Stands in for a benchmarker where a subclass asks for one: the call is made once, and all configs are equal."""
    kernel_call()
    return [0.0, 0.0, 0.0]


def is_layer_copy(kernel: Any) -> bool:
    """True for what `Chain.copies` made."""
    return isinstance(getattr(kernel, "__dict__", {}).get("_tritontrace"), _Bond)


def run_layer(copy: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs `method` of a copy from Triton's class on, past what the user's subclass puts before it."""
    base: Any = AutotunerCopy if issubclass(type(copy), AutotunerCopy) else HeuristicsCopy
    return getattr(base, method)(copy, *args, **kwargs)


def wrap_dtypes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """As `KernelInterface.warmup`: a torch dtype stands for a tensor of it."""
    return tuple(compat.MockTensor.wrap_dtype(arg) for arg in args)
