"""The gate on a kernel's ``warmup`` while the clients of a launch vote for, and get, a real compile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tritontrace.scopes.gates import close_gate, open_gate

__all__ = ["patch_warmup"]


@contextmanager
def patch_warmup(jit_fn: Any, owners: Iterable[object], compile_now: Callable[..., Any]) -> Iterator[None]:
    """Inside, ``jit_fn.warmup(...)`` called by the clients of the scopes `owners` compiles for real.

    Without the gate such a call would itself be a traced launch, whose clients are asked for their vote, and so on.
    `compile_now` gets the arguments of the call. One gate is opened for each owner and taken away at the exit, in
    whatever order and on whatever thread scopes end; nothing is written to `jit_fn`.
    """
    with ExitStack() as gates:
        for owner in owners:
            gates.callback(close_gate, open_gate(jit_fn, owner, compile_now))
        yield
