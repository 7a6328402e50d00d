"""``engine="python"``: a kernel's own source, one program after another; clients, memory and numbers are the IR engine's."""

from __future__ import annotations

import bdb
import inspect
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tritontrace.engines.base import LINES, UNDEFINED, DryForm
from tritontrace.engines.ir import fp8e4b15
from tritontrace.engines.ir.frontend import compile_options, globals_watch
from tritontrace.engines.ir.program import _descriptor
from tritontrace.engines.ir.runtime import Runtime
from tritontrace.engines.ir.scalars import scalar
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python import sites
from tritontrace.engines.python.binding import Generator
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.instruments import watched
from tritontrace.engines.python.language import LANGUAGE, constant
from tritontrace.engines.python.operations import Operations
from tritontrace.engines.python.rewriting import PROGRAM, rewritten
from tritontrace.engines.python.schedule import Programs
from tritontrace.engines.python.state import CURRENT, State
from tritontrace.engines.python.stepping import follow
from tritontrace.engines.python.values import Semantic, TracedTensor, adopt
from tritontrace.errors import KernelError, TritonTraceError, UnsupportedOpError, UntraceableLaunchError
from tritontrace.kernels import compat, private
from tritontrace.kernels.targets import backend_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritontrace.engines.base import EngineRun
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["PythonEngine"]


class PythonEngine:
    """Steps through Python source. Rewritten functions are kept per function; of a launch nothing is kept."""

    name = "python"

    def prepare(
        self,
        bound: BoundLaunch,
        inline_asm: Mapping[str, Any] | None = None,
        *,
        instruments: frozenset[str] = frozenset(),
    ) -> Any:
        """The rewritten kernel; raises what the target's options raise, and `UnsupportedOpError` for source without a def."""
        if compat.is_gluon(bound.kernel):
            raise UntraceableLaunchError(f"kernel {bound.kernel_name!r} is written in Gluon, which has a language of its own")
        compile_options(bound)
        globals_watch(bound.kernel).check()
        return rewritten(bound.kernel, LANGUAGE, LINES in instruments)

    def dry_form(
        self,
        bound: BoundLaunch,
        storages: Mapping[str, int],
        inline_asm: Mapping[str, Any] | None = None,
        *,
        instruments: frozenset[str] = frozenset(),
    ) -> DryForm:
        """Only executing Python tells what it accesses."""
        self.prepare(bound, inline_asm)
        if bound.phantoms is not None and any(
            bound.phantoms.storage(leaf.value) is not None for leaf in bound.leaves if hasattr(leaf.value, "untyped_storage")
        ):
            raise UnsupportedOpError(
                "the Python engine executes a kernel to know its accesses, and a fake tensor has no data; pass "
                "real tensors, or leave out what only Python can run and use engine='ir'",
                kernel=bound.kernel_name,
            )
        # the others look at values, which a dry run does not show
        return DryForm(executes=True, static=False, check=lambda: None, instruments=instruments & {UNDEFINED})

    def run(self, run: EngineRun) -> None:
        """Execute the selected programs; raises what the kernel raised as `KernelError`, a client's exception as it is."""
        kernel = self.prepare(run.bound, instruments=run.instruments)
        rt = Runtime(run, _roots(run))
        bound = run.bound
        backend = backend_for(bound.target)
        options = compile_options(bound)
        functions = {
            **backend.get_codegen_implementation(options),
            "min_dot_size": lambda lhs, rhs: (1, 1, 1),
            "convert_custom_types": fp8e4b15.convert,
        }
        builder = watched(rt, options, functions, backend.get_module_map(), run.instruments)
        semantic = Semantic(builder, bound.target)
        state = State(builder, semantic, Generator(), rt, bound.target, lines=LINES in run.instruments)
        token = CURRENT.set(state)
        try:
            with np.errstate(all="ignore"):
                arguments = _arguments(bound, semantic)
                self._execute(kernel, rt, builder, arguments, run.programs)
        finally:
            CURRENT.reset(token)
            globals_watch(bound.kernel).add(state.used_globals)
        run.launch.completed = not run.dry
        if run.strict_bounds:
            rt.raise_out_of_bounds()

    def _execute(self, kernel: Any, rt: Runtime, builder: Operations, arguments: dict[str, Any], programs: Any) -> None:
        name = rt.launch.kernel_name
        x, y, _ = rt.grid

        def run_one(lane: int) -> None:
            if sys.gettrace() is not None:
                follow()
            builder.frame = rt.frame(np.array([lane], np.int64))
            builder.spins = None
            ids = builder.program = (lane % x, lane // x % y, lane // (x * y))
            try:
                with np.errstate(all="ignore"):  # it belongs to a thread, and each has its own
                    _call(kernel, {n: _fresh(v) for n, v in arguments.items()} | {PROGRAM: ids})
            except (TritonTraceError, bdb.BdbQuit):  # whoever quits the debugger wants no kernel error
                raise
            except Exception as error:
                if error is rt.failure or type(error).__module__ == "pdb":  # its command "restart"
                    raise
                location = _location(error)
                error.__traceback__ = _kernel_traceback(error)
                raise KernelError(
                    f"the kernel failed: {type(error).__name__}: {error}",
                    kernel=name,
                    location=location,
                    programs=[ids],
                ) from error

        def wait(location: Any, timed: bool = False) -> None:
            kept = builder.frame, builder.spins, builder.program
            order.wait(builder.program, location, timed)
            builder.frame, builder.spins, builder.program = kept

        order = Programs(_lanes(rt.grid, programs), run_one, lambda: rt.writes, name)
        builder.wait = wait
        order.run()


def _call(kernel: Any, arguments: dict[str, Any]) -> None:
    """The frame at which the search for the kernel's frames ends."""
    code = kernel.__code__
    if code.co_flags & inspect.CO_VARARGS:
        rest = arguments.pop(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        leading = [arguments.pop(name) for name in code.co_varnames[: code.co_argcount]]
        kernel(*leading, *rest, **arguments)
    else:
        kernel(**arguments)


sites.set_boundary(_call.__code__)


def _lanes(grid: tuple[int, int, int], programs: Any) -> Iterator[int]:
    x, y, z = grid
    if programs is None:
        return iter(range(x * y * z))
    return iter(sorted({a + x * (b + y * c) for a, b, c in programs if 0 <= a < x and 0 <= b < y and 0 <= c < z}))


def _roots(run: EngineRun) -> dict[str, Any]:
    roots: dict[str, Any] = {}
    for leaf in run.bound.leaves:
        info = run.launch.arguments.get(leaf.name)
        if info is not None and info.is_tensor:
            roots[leaf.name] = run.memory.find(info.storage_ptr) if info.storage_bytes else None
    return roots


def _location(error: BaseException) -> Any:
    """The innermost line of the kernel or a helper that the error went through."""
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if sites.is_kernel_code(frame.f_code):
            found = frame
    if found is None:
        return None
    place = sites.locate(found)
    last = next(line for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))) if frame is found)
    return type(place)(place.file, last, place.column if last == place.line else 0, place.function)


def _kernel_traceback(error: BaseException) -> Any:
    """The traceback from the kernel's own first frame on: how the engine got there says nothing about the kernel."""
    entry = error.__traceback__
    while entry is not None and not sites.is_kernel_code(entry.tb_frame.f_code):
        entry = entry.tb_next
    return entry or error.__traceback__


# -- arguments ------------------------------------------------------------------------------------------------------------


def _arguments(bound: BoundLaunch, semantic: Any) -> dict[str, Any]:
    leaves = iter(bound.leaves)
    out = {}
    for name, value in bound.values.items():
        out[name] = _argument(bound.signature[name], value, leaves, bound, semantic)
    return out


def _argument(kind: Any, value: Any, leaves: Iterator[Any], bound: BoundLaunch, semantic: Any) -> Any:
    if not isinstance(kind, str):
        items = [_argument(k, v, leaves, bound, semantic) for k, v in zip(kind, value)]
        fields = getattr(type(value), "_fields", None)
        return tl.tuple(items, None if fields is None else tl.core.tuple_type([i.type for i in items], fields))
    if kind == "constexpr":
        return constant(value)
    leaf = next(leaves)
    ty = private.module(tl).str_to_ty(kind, None)
    if kind.startswith("tensordesc"):
        return _host_descriptor(ty, leaf, semantic)
    element = ty.to_ir(semantic.builder)
    array = scalar(leaf.value, element, leaf.type, f"argument {leaf.name!r} of kernel {bound.kernel_name!r}")
    return TracedTensor(Handle(array, element, leaf.name if element.is_pointer else None), ty)


def _host_descriptor(ty: Any, leaf: Any, semantic: Any) -> Any:
    builder = semantic.builder
    value = leaf.value
    block = ty.block_type
    type_ = builder.create_tensor_descriptor_type(block.to_ir(builder), block.element_ty.is_int_signed())
    handles = [Handle(_descriptor(value, type_, None), type_, leaf.name)]
    handles += [Handle(np.array([int(n)], np.int32), Type((), "i32")) for n in value.shape]
    handles += [Handle(np.array([int(n)], np.int64), Type((), "i64")) for n in value.strides]
    made, _ = ty._unflatten_ir(handles, 0)
    return adopt(made)


def _fresh(value: Any) -> Any:
    """An argument for one program: tuples are the program's own, as it may assign to their items."""
    return tl.tuple(list(value.values), value.type) if isinstance(value, tl.tuple) else value
