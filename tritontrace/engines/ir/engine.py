"""The default engine: a kernel's own IR, executed in lockstep by many programs at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.engines.ir.program import Program, compile_program
from tritontrace.engines.ir.runtime import Frame, Runtime
from tritontrace.engines.ir.schedule import Scheduler
from tritontrace.errors import KernelError, TritonTraceError
from tritontrace.forking import fork_safe
from tritontrace.kernels.weak import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tritontrace.engines.base import EngineRun
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["IREngine"]

CHUNK_ELEMENTS = 1 << 16
"""Elements of the largest tile that one batch holds: a few values of this size fit in a core's caches."""

_programs: WeakIdentityMap[dict[Hashable, Program]] = WeakIdentityMap()
_lock = fork_safe(threading.Lock())


class IREngine:
    """Runs `Program`s. It keeps nothing of a launch: compiled kernels are cached per kernel object, by weak identity."""

    name = "ir"

    def prepare(self, bound: BoundLaunch, inline_asm: Mapping[str, Any] | None = None) -> Program:
        """The compiled kernel for `bound`, from the cache or made now.

        Raises Triton's errors from its frontend, `UnsupportedOpError`, and Triton's own `RuntimeError` if a global that the
        kernel was compiled with has changed since.
        """
        programs = _programs.get_or_create(bound.kernel, dict)
        key: Hashable = bound.key
        if inline_asm:
            key = (key, tuple(sorted((text, id(function)) for text, function in inline_asm.items())))
        program = programs.get(key)
        if program is None:
            program = compile_program(bound, inline_asm)
            with _lock:
                program = programs.setdefault(key, program)
        else:
            program.globals_check()
        return program

    def run(self, run: EngineRun) -> None:
        """Execute the grid of `run`; raises what the kernel raised as `KernelError`, a client's exception as it is."""
        program = self.prepare(run.bound, run.options.get("inline_asm"))
        roots = {}
        for index in program.pointer_names():
            leaf = run.bound.leaves[index]
            info = run.launch.arguments.get(leaf.name)
            allocation = run.memory.find(info.storage_ptr) if info is not None and info.storage_bytes else None
            if allocation is not None:
                roots[leaf.name] = allocation
        rt = Runtime(run, roots)
        arguments = program.arguments(run.bound)
        try:
            with np.errstate(all="ignore"):
                self._execute(program, rt, arguments, run.programs)
        except TritonTraceError:
            raise
        except Exception as error:
            if error is rt.failure:
                raise
            raise KernelError(
                f"the kernel failed: {type(error).__name__}: {error}",
                kernel=run.launch.kernel_name,
                location=program.locate(error),
            ) from error
        run.launch.completed = True
        if run.strict_bounds:
            rt.raise_out_of_bounds()

    def _execute(self, program: Program, rt: Runtime, arguments: list[Any], programs: Any) -> None:
        frames = _chunks(rt, program.max_block, programs)
        if program.entry is not None:
            entry = program.entry
            for frame in frames:
                entry(frame, *arguments)
            return
        names = program.names
        Scheduler(rt, program.blocks).run((frame, dict(zip(names, arguments))) for frame in frames)


def _chunks(rt: Runtime, max_block: int, programs: Any) -> Iterator[Frame]:
    x, y, z = rt.grid
    if programs is None:
        total = x * y * z
        size = max(1, CHUNK_ELEMENTS // max_block)
        for start in range(0, total, size):
            yield rt.frame(np.arange(start, min(total, start + size), dtype=np.int64))
        return
    wanted = sorted({a + x * (b + y * c) for a, b, c in programs if 0 <= a < x and 0 <= b < y and 0 <= c < z})
    if wanted:
        size = max(1, CHUNK_ELEMENTS // max_block)
        for start in range(0, len(wanted), size):
            yield rt.frame(np.array(wanted[start : start + size], np.int64))
