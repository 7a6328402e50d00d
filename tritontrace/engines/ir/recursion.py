"""A kernel function that calls itself: Triton has no recursion, and its frontend says so by a `KeyError` in its own table."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from triton.compiler.errors import CompilationError

__all__ = ["RecursiveCall", "ReturnTypes", "explain"]


class RecursiveCall(Exception):
    """A function is called that is being compiled for the same types."""


class ReturnTypes(dict[str, Any]):
    """The frontend's table of what each finished function returns; one that is asked for too early calls itself."""

    def __missing__(self, name: str) -> NoReturn:
        raise RecursiveCall(name)


def explain(error: BaseException) -> CompilationError | None:
    """The frontend's error for a recursive call, at the call and in words; None if `error` is about something else."""
    around: CompilationError | None = None
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, RecursiveCall):
            break
        if isinstance(current, CompilationError):
            around = current
        current = current.__cause__ or current.__context__
    if current is None or around is None:
        return None
    node = around.node
    call = ast.unparse(node) if isinstance(node, ast.Call) else str(current).rpartition(".")[2]
    return CompilationError(
        around.src,
        node,
        f"{call} is recursive: it calls a function that is being compiled for the same types, and Triton has no recursion. "
        "Use a loop, or let constexpr arguments end it at compile time.",
    )
