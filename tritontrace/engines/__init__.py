"""Engines: what executes the grid of a traced launch."""

from __future__ import annotations

import functools

from tritontrace.engines.base import Engine, EngineRun, LaunchHooks

__all__ = ["Engine", "EngineRun", "LaunchHooks", "get", "names"]


def names() -> tuple[str, ...]:
    """The engines that `get` knows."""
    return ("ir", "python", "auto")


@functools.cache
def get(name: str) -> Engine:
    """The engine called `name`; one instance serves the process. Raises `ValueError` that lists the known names."""
    if name == "ir":
        from tritontrace.engines.ir.engine import IREngine

        return IREngine()
    if name == "python":
        from tritontrace.engines.python.engine import PythonEngine

        return PythonEngine()
    if name == "auto":
        from tritontrace.engines.auto import AutoEngine

        return AutoEngine()
    raise ValueError(f"unknown engine {name!r}; the engines are {', '.join(map(repr, names()))}")
