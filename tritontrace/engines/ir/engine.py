"""The default engine: a kernel's own IR, executed in lockstep by many programs at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace.engines.base import DryForm, Order
from tritontrace.engines.ir.boxes import Box, Places, box_chunks, corner_programs, undecided_boxes
from tritontrace.engines.ir.frontend import compile_options
from tritontrace.engines.ir.program import Program, compile_program
from tritontrace.engines.ir.runtime import Frame, MemorySite, Runtime
from tritontrace.engines.ir.schedule import Scheduler
from tritontrace.engines.memory import tensors_of
from tritontrace.errors import KernelError, TritonTraceError, UnsupportedOpError
from tritontrace.forking import fork_safe
from tritontrace.kernels.weak import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tritontrace.engines.base import EngineRun
    from tritontrace.engines.memory import Allocation
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["IREngine"]

CHUNK_ELEMENTS = 1 << 18
"""Elements of the largest tile that one batch holds: fewer would cost more for each operation, more would leave the caches."""

SLICE_ELEMENTS = 1 << 20
"""The same for a slice, which holds few arrays of that size."""

_lock = fork_safe(threading.Lock())


class _Programs:
    """The programs of one kernel: by key, and by what of the key does not come from compile options."""

    def __init__(self) -> None:
        self.exact: dict[Hashable, Program] = {}
        self.alike: dict[Hashable, tuple[Program, ...]] = {}


_programs: WeakIdentityMap[_Programs] = WeakIdentityMap()


class IREngine:
    """Runs `Program`s. It keeps nothing of a launch: compiled kernels are cached per kernel object, by weak identity."""

    name = "ir"

    def prepare(
        self,
        bound: BoundLaunch,
        inline_asm: Mapping[str, Any] | None = None,
        *,
        sliced: bool = False,
        instruments: frozenset[str] = frozenset(),
    ) -> Program:
        """The compiled kernel for `bound`, from the cache or made now.

        `sliced`: only what decides its accesses. `instruments`: what is looked for besides.

        Raises Triton's errors from its frontend, `UnsupportedOpError`, and Triton's own `RuntimeError` if a global that the
        kernel was compiled with has changed since.
        """
        programs = _programs.get_or_create(bound.kernel, _Programs)
        key = (bound.key, (sliced, instruments))
        program = programs.exact.get(key)
        if program is not None:
            program.globals_check()
            program.assembly_check(inline_asm or {})
            return program
        # A tuner's configs mostly differ in options that only the later stages of a compilation read.
        alike = (bound.key_without_options(), (sliced, instruments))
        options = compile_options(bound)
        program = next((known for known in programs.alike.get(alike, ()) if known.serves(options)), None)
        if program is not None:
            program.globals_check()
        else:
            program = compile_program(bound, sliced=sliced, instruments=instruments)
        with _lock:
            program = programs.exact.setdefault(key, program)
            if program not in programs.alike.get(alike, ()):
                programs.alike[alike] = (*programs.alike.get(alike, ()), program)
        program.assembly_check(inline_asm or {})
        return program

    def dry_form(
        self,
        bound: BoundLaunch,
        storages: Mapping[str, int],
        inline_asm: Mapping[str, Any] | None = None,
        *,
        instruments: frozenset[str] = frozenset(),
    ) -> DryForm:
        """See `Engine.dry_form`."""
        program = self.prepare(bound, inline_asm, sliced=True, instruments=instruments)
        if bound.phantoms is not None:
            if instruments and self._phantom_data(program, bound) is not None:
                # Undefined lanes are followed where that takes no data.
                instruments = frozenset()
                program = self.prepare(bound, inline_asm, sliced=True)
            site = self._phantom_data(program, bound)
            if site is not None:
                raise UnsupportedOpError(
                    f"the data of {site.parameter or 'a tensor'!r} decides where the kernel accesses memory, and a fake tensor "
                    "has no data; pass a real tensor there (the others may stay fake)",
                    kernel=bound.kernel_name,
                    location=site.event.location,
                )
        return DryForm(
            executes=program.acts or self._reads_what_it_writes(program, storages),
            static=not program.reads and all(site.parameter is not None for site in program.sites),
            check=program.globals_check,
            instruments=instruments,
        )

    def _reads_what_it_writes(self, program: Program, storages: Mapping[str, int]) -> bool:
        written = {site.parameter for site in program.sites if site not in program.reads and "load" not in site.event.op}
        places = {None if name is None else storages.get(name) for name in written}
        for site in program.reads:
            read = None if site.parameter is None else storages.get(site.parameter)
            if written and (read is None or read in places or None in places):
                return True
        return False

    def _phantom_data(self, program: Program, bound: BoundLaunch) -> MemorySite | None:
        """A load of the slice that reads memory which nobody has, if there is one."""
        assert bound.phantoms is not None
        values = {leaf.name: leaf.value for leaf in bound.leaves}
        for site in program.accesses:
            name = site.parameter
            tensor = next(tensors_of(values.get(name)), None) if name is not None else None
            if tensor is None or bound.phantoms.storage(tensor) is not None:
                return site
        return None

    def run(self, run: EngineRun) -> None:
        """Execute the grid of `run`; raises what the kernel raised as `KernelError`, a client's exception as it is."""
        program = self.prepare(run.bound, run.options.get("inline_asm"), sliced=run.dry, instruments=run.instruments)
        roots: dict[str, Allocation | None] = {}
        for index in program.pointer_names():
            leaf = run.bound.leaves[index]
            info = run.launch.arguments.get(leaf.name)
            allocation = run.memory.find(info.storage_ptr) if info is not None and info.storage_bytes else None
            # A pointer of which nothing is known has no entry, one to a tensor without memory has None.
            if info is not None and info.is_tensor:
                roots[leaf.name] = allocation
        rt = Runtime(run, roots)
        arguments = program.arguments(run.bound)
        try:
            with np.errstate(all="ignore"):
                self._execute(program, rt, arguments, run, SLICE_ELEMENTS if run.dry else CHUNK_ELEMENTS)
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
        run.launch.completed = not run.dry
        if run.strict_bounds:
            rt.raise_out_of_bounds()

    def _execute(self, program: Program, rt: Runtime, arguments: list[Any], run: EngineRun, elements: int) -> None:
        size = max(1, elements // program.max_block)
        undecided = run.hooks.undecided
        cornered = program.by_corners and run.dry and run.programs is None and run.order is None
        if not cornered or undecided is None:
            self._enter(program, rt, arguments, _chunks(rt, size, run.programs, run.order))
            return

        def doubtful(box: Box) -> bool:
            frame = rt.frame(corner_programs(rt.grid, box))
            rt.corners = Places(frame.program_ids())
            self._enter(program, rt, arguments, [frame])
            rt.corners = None
            rt.steps = 0
            doubt, rt.doubt = rt.doubt, False
            return undecided() or doubt

        boxes = undecided_boxes(rt.grid, doubtful, size)
        self._enter(program, rt, arguments, (rt.frame(lanes) for lanes in box_chunks(rt.grid, boxes, size)))

    def _enter(self, program: Program, rt: Runtime, arguments: list[Any], frames: Iterable[Frame]) -> None:
        if program.entry is not None:
            entry = program.entry
            for frame in frames:
                entry(frame, *arguments)
            return
        names = program.names
        Scheduler(rt, program.blocks).run((frame, dict(zip(names, arguments))) for frame in frames)


def _chunks(rt: Runtime, size: int, programs: Any, order: Order | None) -> Iterator[Frame]:
    x, y, z = rt.grid
    wanted = None
    total = x * y * z
    if programs is not None:
        ids = sorted({a + x * (b + y * c) for a, b, c in programs if 0 <= a < x and 0 <= b < y and 0 <= c < z})
        wanted, total = np.array(ids, np.int64), len(ids)
    if order is not None:
        wanted = np.arange(total, dtype=np.int64) if wanted is None else wanted
        if order.kind == "reverse":
            wanted = wanted[::-1]
        elif order.kind == "random":
            wanted = np.random.default_rng(order.seed).permutation(wanted)
        size = size if order.batch is None else min(size, order.batch)
    for start in range(0, total, size):
        end = min(total, start + size)
        yield rt.frame(np.arange(start, end, dtype=np.int64) if wanted is None else wanted[start:end])
