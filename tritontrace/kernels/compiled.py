"""What a traced launch returns: something to use as Triton's compiled kernel, compiled only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritontrace.kernels.arguments import BoundLaunch
from tritontrace.kernels.binding import CompileRequest, OfflineKernel, real_compile
from tritontrace.kernels.compat import CompiledKernel
from tritontrace.kernels.targets import Target

__all__ = ["CompiledLaunch", "compile_offline"]


def compile_offline(jit_fn: Any, bound: BoundLaunch, target: Target | None = None) -> OfflineKernel:
    """`jit_fn` compiled for the launch's target (or another one) without a driver; see `binding.real_compile`."""
    return real_compile(jit_fn, bound, target)


class CompiledLaunch(CompiledKernel):  # type: ignore[misc]  # Triton's classes are untyped
    """The compiled kernel of a traced launch or warmup.

    It has what Triton's has (`metadata`, `asm`, `n_regs`, `n_spills`, `src`, `hash`, `name`, `kernel`, ...); the first
    question about any of them compiles, offline, for the launch's target. ``compiled[grid](*args)`` is a traced launch.
    It keeps no tensor of its launch alive.
    """

    # Not loaded on a device, which Triton's own loader may do all the same where there is one.
    module: Any = None
    function: Any = None

    def __init__(self, bound: BoundLaunch, run_callable: Callable[[Any], Callable[..., Any]]) -> None:
        """`run_callable(grid)` returns what launches the kernel, traced, with the arguments it is given."""
        self._request = CompileRequest.of(bound)
        self._run_callable = run_callable
        self._compiled: OfflineKernel | None = None

    def __del__(self) -> None:
        unload = getattr(super(), "__del__", None)
        if self.module is not None and unload is not None:
            unload()

    def __getattr__(self, name: str) -> Any:
        # Python's own probes (copying, pickling) must not start a compile.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.compiled, name)

    @property
    def compiled(self) -> OfflineKernel:
        """The kernel compiled for the launch's target; Triton's own errors if it does not compile."""
        if self._compiled is None:
            self._compiled = real_compile(self._request.kernel, self._request)
        return self._compiled

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch = self._run_callable(grid)

        def runner(*args: Any, stream: Any = None, **kwargs: Any) -> Any:
            return launch(*args, **kwargs)

        return runner

    def __repr__(self) -> str:
        return f"<CompiledLaunch of {self._request.kernel_name!r} for {self._request.target}>"
