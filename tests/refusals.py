"""How a kernel is refused that Triton's compiler would not take: by the compiler itself, or where the Python engine meets it."""

from __future__ import annotations

from triton.compiler.errors import CompilationError

import tritontrace

__all__ = ["default_engine", "refusal"]


def default_engine() -> str:
    """The engine of sessions that name none: ``--engine`` chooses it for a run of the tests."""
    return str((tritontrace.session.__kwdefaults__ or {})["engine"])


def refusal() -> type[Exception]:
    """What a launch raises that the compiler refuses. The Python engine meets the same error of Triton's at a line."""
    return tritontrace.KernelError if default_engine() == "python" else CompilationError
