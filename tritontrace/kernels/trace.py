"""A kernel that is always traced: a proxy that is the kernel in every other respect."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import triton
import wrapt
from triton.runtime.autotuner import Autotuner

from tritontrace.errors import TritonTraceError
from tritontrace.kernels import capabilities, compat, lifecycle, tuners
from tritontrace.kernels.layers import Chain
from tritontrace.scopes.identity import Scope, active_scopes, hold, release

if TYPE_CHECKING:
    from types import FrameType

    from tritontrace.clients.base import Client
    from tritontrace.findings import Finding
    from tritontrace.launch import Launch

__all__ = ["TritonTrace"]


class TritonTrace(wrapt.ObjectProxy):  # type: ignore[misc]  # wrapt ships no types
    """A kernel whose launches are always traced, by `clients` of its own and by the sessions that are open.

    It stands for its kernel everywhere: ``isinstance``, attributes, ``hash`` and the chain of ``.fn`` are the kernel's, and
    an attribute that is set lands on the kernel. Launch it as the kernel is launched; called as a function it raises
    `TypeError`, except from a kernel that runs in an interpreter.

    Thread contract: as for a session. Launches may run on any threads at once; each has a `Launch` of its own.
    """

    # wrapt keeps attributes of this prefix on the proxy; every other one would be the kernel's.
    _self_recorder: Any
    _self_scope: Scope

    def __init__(self, kernel: Any, recorder: Any, engine: str | None = None) -> None:
        """`recorder` keeps the launches (an unopened `Session`); use `tritontrace.trace`, which makes it.

        Without an `engine` the sessions that are open at a launch choose it.
        """
        capabilities.ensure_supported()
        super().__init__(kernel)
        reason = lifecycle.untraceable(Chain(kernel).leaf)
        if reason is not None:
            raise TypeError(f"{kernel!r} cannot be traced: {reason}")
        self._self_recorder = recorder
        self._self_scope = Scope(
            recorder,
            clients=recorder.clients,
            engine=engine or "",
            target=recorder.target,
            programs=recorder.programs,
            max_steps=recorder.max_steps,
            inline_asm=recorder.inline_asm,
            prints=recorder.prints,
        )

    # -- what it recorded -----------------------------------------------------------------------------------------

    @property
    def launches(self) -> list[Launch]:
        """The launches of this trace, in the order they began."""
        return list(self._self_recorder.launches)

    @property
    def findings(self) -> list[Finding]:
        """What its clients found in them."""
        return list(self._self_recorder.findings)

    def report(self) -> str:
        """Launches and findings as text."""
        return str(self._self_recorder.report())

    @property
    def clients(self) -> tuple[Client, ...]:
        """Its clients, without those of sessions."""
        return self._self_scope.clients

    def add_clients(self, clients: Iterable[Client]) -> None:
        """From the next launch on, `clients` see the launches of this trace too."""
        self._self_scope.clients = self._self_recorder.clients = (*self._self_scope.clients, *clients)

    # -- launching ------------------------------------------------------------------------------------------------

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launches the kernel, traced; with `warmup` it is only compiled."""
        held = hold(active_scopes())
        try:
            return lifecycle.launch(self, held, args, kwargs, grid=grid, warmup=warmup, trial=_called_by_tuner(Chain(self).leaf))
        finally:
            release(held)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compiles without running; what it returns can be launched, traced."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaf = compat.unwrap(self.__wrapped__)
        if compat.is_function(leaf) and _called_by_interpreter():
            return _interpreted(leaf)(*args, **kwargs)
        name = Chain(self).leaf.__name__
        raise TypeError(f"kernel {name!r} cannot be called; launch it with a grid, as in {name}[grid](...)")

    @property
    def arg_names(self) -> Any:
        """The kernel's own."""
        names = self.__wrapped__.arg_names
        return _WatchedNames(names, self) if compat.is_function(compat.unwrap(self.__wrapped__)) else names

    @property
    def best_config(self) -> Any:
        """The config that an autotuner's last launch has run, as Triton's Autotuner has it."""
        config = tuners.best_config(self.__wrapped__, [self._self_scope])
        return self.__wrapped__.best_config if config is None else config

    # -- being an object ------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<TritonTrace of {self.__wrapped__!r}>"

    def _self_settings(self) -> dict[str, Any]:
        recorder, scope = self._self_recorder, self._self_scope
        return {
            "clients": scope.clients,
            "target": scope.target,
            "programs": scope.programs,
            "max_steps": scope.max_steps,
            "inline_asm": scope.inline_asm,
            "prints": scope.prints,
            "on_finding": recorder.on_finding,
            "keep": recorder.keep,
        }

    def __copy__(self) -> TritonTrace:
        """A trace of the same kernel with the same clients, and launches of its own."""
        return TritonTrace(self.__wrapped__, type(self._self_recorder)(**self._self_settings()), self._self_scope.engine)

    def __deepcopy__(self, memo: dict[int, Any]) -> TritonTrace:
        """As `__copy__`: a kernel is code, which deep copies share as they share functions."""
        return self.__copy__()

    def __reduce__(self) -> Any:
        """By the kernel's name, as functions are pickled, with the clients; launches stay behind."""
        function = Chain(self).leaf.fn
        module, name = function.__module__, function.__qualname__
        try:
            found = _find(module, name)
        except (ImportError, AttributeError):
            found = None
        if found is None or Chain(found).leaf is not Chain(self).leaf:
            raise pickle.PicklingError(f"cannot pickle {self!r}: it is not found as {module}.{name}")
        if found is self:
            return _find, (module, name)
        return _trace_found, (module, name, {**self._self_settings(), "engine": self._self_scope.engine or None})

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()


def _find(module: str, name: str) -> Any:
    __import__(module)
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _trace_found(module: str, name: str, settings: dict[str, Any]) -> TritonTrace:
    from tritontrace.tracing import trace  # unpickling enters from outside, through the public door

    traced: TritonTrace = trace(_find(module, name), **settings)
    return traced


def _frames(frame: FrameType | None) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _called_by_tuner(leaf: Any) -> bool:
    """True if Triton's own tuner, over this trace, benchmarks the launch.

    There is nothing to ask but the stack: the tuner calls `run` for its trials as for everything else.
    """
    for frame in _frames(sys._getframe(1)):
        if frame.f_code.co_name == "_bench":
            tuner = frame.f_locals.get("self")
            if isinstance(tuner, Autotuner) and Chain(tuner).leaf is leaf:
                return True
    return False


def _called_by_interpreter() -> bool:
    """True if the call comes from a kernel that Triton's interpreter runs, on this thread."""
    module = sys.modules.get("triton.runtime.interpreter")
    if module is None:
        return False
    for frame in _frames(sys._getframe(1)):
        if frame.f_code.co_name == "__call__" and isinstance(frame.f_locals.get("self"), module.GridExecutor):
            return True
    return False


def _interpreted(leaf: Any) -> Any:
    """`leaf` as Triton's interpreter calls helpers."""
    interpreted = compat.interpreted_function_class()
    assert interpreted is not None
    if issubclass(type(leaf), interpreted):
        return leaf
    # Rewriting makes Triton construct a JITFunction, which takes the user's place in a registry of Triton's.
    registry = compat.function_registry()
    key = f"{leaf.fn.__module__}:{leaf.fn.__qualname__}"
    mine = registry.get(key)
    made = interpreted(leaf.fn)
    made.rewrite()
    if mine is not None:
        registry[key] = mine
    return made


class _WatchedNames(list[str]):
    """Argument names, as an Autotuner that is put over a trace keeps them.

    Outside of a session that tuner is Triton's own. Where there is no driver it fails with an error that does not say
    what to do; this is the last thing of ours that it looks at before.
    """

    def __init__(self, names: Iterable[str], trace: TritonTrace) -> None:
        super().__init__(names)
        self._kernel = Chain(trace).leaf.__name__

    def __contains__(self, name: object) -> bool:
        tuner = _tuner_in_run(sys._getframe(1))
        if tuner is not None and _will_benchmark(tuner) and not _driver_is_there():
            raise TritonTraceError(
                f"kernel {self._kernel!r} is traced under its autotuner, and Triton's tuner needs a GPU driver, of which there "
                "is none here: trace over the decorator (tritontrace.trace of the autotuned kernel), or open a session"
            )
        return super().__contains__(name)

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _tuner_in_run(caller: FrameType) -> Any:
    """The Autotuner whose `run`, Triton's own, is what calls; else None."""
    for frame in _frames(caller):
        if frame.f_globals.get("__name__") != Autotuner.__module__:
            return None
        if frame.f_code.co_name == "run":
            tuner = frame.f_locals.get("self")
            return tuner if isinstance(tuner, Autotuner) else None
    return None


def _will_benchmark(tuner: Any) -> bool:
    # Pruning may leave one config, which needs no benchmark: then Triton's own error has to do.
    pruned = tuner.early_config_prune or tuner.perf_model
    return not (tuner.cache or pruned or tuner._do_bench is not None or "do_bench" in vars(tuner))


def _driver_is_there() -> bool:
    try:
        return triton.runtime.driver.active is not None
    except Exception:  # each backend's probe fails in its own way
        return False
