"""Launching again what a launch or a warmup returned: ``compiled[grid](*args)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tritontrace.kernels import compat
from tritontrace.scopes.identity import Scope, active_scopes, hold, release

if TYPE_CHECKING:
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["Relauncher"]


class Relauncher:
    """Launches the kernel again, by `launch` of `lifecycle`, with what was compiled in. It holds no tensor."""

    def __init__(self, kernel: Any, scopes: tuple[Scope, ...], bound: BoundLaunch, launch: Callable[..., Any]) -> None:
        self.kernel = kernel
        self.scopes = scopes
        self.launch = launch
        self.options = dict(bound.options)
        # More than what is declared so (every None is compiled in, too), but no tensor.
        self.constants = {name: bound.values[name] for name, kind in bound.signature.items() if kind == "constexpr"}

    def __call__(self, grid: Any) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            positional, words = self._arguments(args, kwargs)
            scopes = hold(active_scopes())
            try:
                observers = [*scopes, *self.scopes]
                if not observers:
                    return self.kernel.run(*positional, grid=grid, warmup=False, **words)
                return self.launch(self.kernel, observers, tuple(positional), words, grid=grid)
            finally:
                release(scopes)

        return run

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The launch's arguments, by position as far as that goes: Triton refuses some names as keywords."""
        parameters = list(inspect.signature(self.kernel.fn).parameters.values())
        declared = [compat.KernelParam(number, parameter, False, False) for number, parameter in enumerate(parameters)]
        fixed = {param.name: self.constants[param.name] for param in declared if param.is_constexpr}
        # Triton's compiled kernels take every parameter, or leave out those that are compiled in.
        everything = len(args) >= len(declared)
        left = list(args)
        given = {**fixed, **kwargs}
        positional: list[Any] = []
        in_order = True
        for param, parameter in zip(declared, parameters):
            name = param.name
            if parameter.kind is parameter.VAR_POSITIONAL:
                if in_order:
                    positional += left
                    left = []
                in_order = False
                continue
            if left and (everything or name not in fixed):
                given[name] = left.pop(0)
            in_order = in_order and name in given and parameter.kind is not parameter.KEYWORD_ONLY
            if in_order:
                positional.append(given.pop(name))
        names = {param.name for param in declared}
        options = {name: value for name, value in self.options.items() if name not in names}
        # What is left over is one argument too many, which the launch itself says.
        return positional + left, {**options, **given}
