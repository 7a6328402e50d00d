"""Autotuners in a session: which subclasses are tuners of their own, and what `best_config` says.

A subclass of Triton's Autotuner may replace ``run`` and hand over to Triton's with ``super()``, or never hand over: then it
is a tuner of its own (FlagGems' LibTuner is one), which would time configs on a driver and keep what it measured in a
cache of its own, on disk perhaps. A session makes no measurements, so such a ``run`` is not let run: its launches are
chosen and made as those of Triton's own Autotuner.

Triton leaves the config of the last launch on the autotuner as `best_config`, and callers read it there. A session writes
nothing to the user's objects; while one is open, a descriptor on the class answers for the launches that it traced.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from tritontrace.kernels.weak import WeakIdentityMap
from tritontrace.scopes.identity import LOCK, Scope, active_scopes

__all__ = ["best_config", "install", "remember", "remove", "tunes_itself"]

NAME = "best_config"

_chosen: WeakIdentityMap[WeakKeyDictionary[Scope, Any]] = WeakIdentityMap()


def tunes_itself(kind: type) -> bool:
    """True for a class with a ``run`` of its own, a plain method, that never hands over to one of an Autotuner's."""
    from triton.runtime.autotuner import Autotuner

    if not issubclass(kind, Autotuner):
        return False
    owner = next(base for base in kind.__mro__ if "run" in base.__dict__)
    run = owner.__dict__["run"]
    if owner is Autotuner or owner.__module__.startswith("tritontrace."):
        return False
    # Ours, while a session is open, and other people's decorators.
    run = inspect.unwrap(run)
    if type(run) is not FunctionType:
        return False
    names = set(_names(run.__code__))
    # A `super` without arguments closes over the class; with them, and by a base's name, it stands among the names.
    bases = {base.__name__ for base in owner.__mro__[1:] if issubclass(base, Autotuner)}
    return not names & ({"super", "__class__"} | bases)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def remember(scopes: Iterable[Scope], tuner: Any, config: Any) -> None:
    """A launch that `scopes` saw has run `config`."""
    by_scope = _chosen.get_or_create(tuner, WeakKeyDictionary)
    with LOCK:
        for scope in scopes:
            by_scope[scope] = config


def best_config(tuner: Any, scopes: Iterable[Scope]) -> Any:
    """The config of the last launch of `tuner` that one of `scopes` saw, the last scope first, or None."""
    by_scope = _chosen.get(tuner)
    if by_scope is None:
        return None
    with LOCK:
        found = [by_scope[scope] for scope in scopes if scope in by_scope]
    return found[-1] if found else None


class _BestConfig:
    """The attribute while sessions are open. What anybody sets is an ordinary attribute of the object, then and afterwards."""

    def __get__(self, tuner: Any, owner: Any = None) -> Any:
        if tuner is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {NAME!r}")
        config = best_config(tuner, active_scopes())
        if config is not None:
            return config
        try:
            return vars(tuner)[NAME]
        except KeyError:
            raise AttributeError(f"{type(tuner).__name__!r} object has no attribute {NAME!r}") from None

    def __set__(self, tuner: Any, config: Any) -> None:
        vars(tuner)[NAME] = config

    def __delete__(self, tuner: Any) -> None:
        try:
            del vars(tuner)[NAME]
        except KeyError:
            raise AttributeError(NAME) from None


_installed: _BestConfig | None = None


def install(autotuner: type) -> None:
    """A session opens. `LOCK` is held, as for `remove`."""
    global _installed
    if NAME not in autotuner.__dict__:
        _installed = _BestConfig()
        setattr(autotuner, NAME, _installed)


def remove(autotuner: type) -> None:
    """The last session has closed. Somebody else's attribute stays."""
    global _installed
    if _installed is not None and autotuner.__dict__.get(NAME) is _installed:
        delattr(autotuner, NAME)
    _installed = None
