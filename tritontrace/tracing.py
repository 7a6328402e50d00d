"""`trace`: one kernel, always traced, with or without a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

from tritontrace.clients import registry
from tritontrace.kernels.trace import TritonTrace
from tritontrace.session import Session

__all__ = ["trace"]

OnFinding = Literal["collect", "warn", "raise"]


@overload
def trace(
    kernel: None = None,
    clients: Any = (),
    *,
    engine: str | None = None,
    target: Any = None,
    on_finding: OnFinding = "collect",
    programs: Any = None,
    keep: int | None = None,
    max_steps: int | None = None,
    inline_asm: Mapping[str, Callable[..., Any]] | None = None,
    prints: Any = "stderr",
) -> Callable[[Any], TritonTrace]: ...


@overload
def trace(
    kernel: Any,
    clients: Any = (),
    *,
    engine: str | None = None,
    target: Any = None,
    on_finding: OnFinding = "collect",
    programs: Any = None,
    keep: int | None = None,
    max_steps: int | None = None,
    inline_asm: Mapping[str, Callable[..., Any]] | None = None,
    prints: Any = "stderr",
) -> TritonTrace: ...


def trace(
    kernel: Any = None,
    clients: Any = (),
    *,
    engine: str | None = None,
    target: Any = None,
    on_finding: OnFinding = "collect",
    programs: Any = None,
    keep: int | None = None,
    max_steps: int | None = None,
    inline_asm: Mapping[str, Callable[..., Any]] | None = None,
    prints: Any = "stderr",
) -> Any:
    """`kernel`, always traced by `clients`: what `session` does for every kernel, for this one and without a scope.

    ::

        traced = tritontrace.trace(kernel, clients=["sanitizer"])
        traced[grid](...)
        traced.launches, traced.findings

    Also a decorator, over or under ``@triton.autotune`` and ``@triton.heuristics``. *Over* them every launch is traced.
    *Under* ``@triton.autotune`` the tuner is Triton's own outside of a session: it times, it needs a driver, and its
    trials are launches marked `Launch.trial`.

    A trace that is traced again gets the further clients; the settings it has stay. Sessions that are open see its
    launches too. The keywords are those of `session`; without `engine` an open session's is used. Raises `TypeError` for
    what is not a kernel that ``triton.jit`` made, with or without Triton's layers over it.
    """
    settings = {
        "target": target,
        "on_finding": on_finding,
        "programs": programs,
        "keep": keep,
        "max_steps": max_steps,
        "inline_asm": inline_asm,
        "prints": prints,
    }
    if kernel is None:
        return lambda kernel: trace(kernel, clients, engine=engine, **settings)
    # By its real class: a proxy claims to be of its kernel's.
    if issubclass(type(kernel), TritonTrace):
        kernel.add_clients(registry.resolve(clients))
        return kernel
    recorder = Session(clients, **settings) if engine is None else Session(clients, engine=engine, **settings)
    return TritonTrace(kernel, recorder, engine)
