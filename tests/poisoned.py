"""A plugin for pytest (``-p tests.poisoned``): what Triton's interpreter replaces raises as soon as anybody calls it.

It stands for the worst moment of a process in which that interpreter runs on another thread, for ever. Everything is replaced
that the interpreter replaces, by functions that look like its own to whoever looks for those. But for `tl.dtype.to_ir`, which is
the interpreter's own, as the types are shared; what prints, for pytest's sake; and `static_print`, which it replaces by Python's
`print`.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

import tests.language.recorder  # noqa: F401 - looks into triton.language at import
import tritontrace.engines.ir.frontend
import tritontrace.engines.python.engine  # noqa: F401 - taken before the interpreter runs
from tests.language.harness import installed


class PoisonError(Exception):
    """Something of the process's `triton.language` was called."""


def _raising(value: Any, name: str) -> Any:
    if isinstance(value, functools.partial):
        return functools.partial(_raising(value.func, name), **value.keywords)
    if isinstance(value, property):
        return property(_raising(value.fget, name))

    def called(*args: Any, member: Any = None, **kwargs: Any) -> Any:
        raise PoisonError(name)

    called.__kwdefaults__ = value.__kwdefaults__
    called.__module__, called.__qualname__, called.__name__ = value.__module__, value.__qualname__, value.__name__
    return called


def poison() -> int:
    """Puts the raising functions in place, and returns how many."""
    scope = interpreter._patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    changed = {(id(owner), name): (owner, name) for owner, name, _ in scope._changes}
    for owner, name in changed.values():
        if (owner, name) != (tl.dtype, "to_ir") and name not in ("__repr__", "__str__", "static_print"):
            setattr(owner, name, _raising(getattr(owner, name), f"{owner.__name__}.{name}"))
    return len(changed)


def pytest_configure(config: Any) -> None:
    installed()  # the public names are Triton's own, and not what has taken their place
    poison()
