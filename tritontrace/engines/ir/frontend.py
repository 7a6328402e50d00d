"""From a bound launch to the text of the kernel's own IR, by Triton's frontend run on shadows.

The module is the raw one that the frontend makes: Triton's passes drop accesses (even its inliner deletes a dead load),
and an engine that reports accesses must see them all. It is printed in MLIR's generic form, which one small parser can
read. MLIR prints that form for a module that does not verify, so a function with an empty block is added at the end; it
has no name that the kernel could use, and readers drop it (`UNTERMINATED`).

What the options of the target would refuse is allowed here, because the question is what the kernel computes:
every fp8 type, and a `tl.dot` of any size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tritontrace.engines.ir import fp8e4b15, generator, recursion, shadows
from tritontrace.engines.ir.generator import ast_to_ttir
from tritontrace.engines.ir.shadows import ShadowWorld
from tritontrace.errors import UntraceableLaunchError
from tritontrace.kernels import building, compat, private
from tritontrace.kernels.arguments import BoundLaunch
from tritontrace.kernels.targets import backend_for
from tritontrace.kernels.watched import GlobalsWatch
from tritontrace.kernels.weak import WeakIdentityMap

__all__ = ["UNTERMINATED", "Lowered", "Slot", "globals_watch", "lower"]

UNTERMINATED = "__tritontrace_unterminated"
"""Name of the function without a terminator that makes MLIR print the generic form."""

_FP8 = ("fp8e4b15", "fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")

# 3.9 warns where this is left to its default; it has no say in the frontend.
_UNASKED = {"enable_fp_fusion": True}

# with both, the frontend asserts that integer arithmetic stays in range
_OVERFLOW_OPTIONS = ("sanitize_overflow", "debug")

Part = str | tuple[str, int]
Slot = tuple[int, Part]
"""Where an argument of the entry function comes from: (index into ``bound.leaves``, part).

The part is ``"value"`` for a tensor (its address) or a scalar. A host `TensorDescriptor` takes several arguments, in this
order: ``"desc"`` (the ``!tt.tensordesc`` itself), ``("shape", i)`` (i32) for each dimension, ``("stride", i)`` (i64, elements)
for each dimension.
"""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel's IR for one specialization. `globals_check` raises if a global it was made from has changed since.

    `options` are the compile options that the frontend read, with their values. Most kernels read none that a tuner varies
    (``num_warps``, ``num_stages``), so that configs which differ only there have one IR.
    """

    text: str
    entry: str
    slots: tuple[Slot, ...]
    globals_check: Callable[[], None]
    options: dict[str, Any]


class _WatchedOptions:
    """Compile options that remember which of them were asked for."""

    def __init__(self, options: Any, asked: dict[str, Any]) -> None:
        self._options = options
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._options, name)
        self._asked[name] = value
        return value


_watches: WeakIdentityMap[GlobalsWatch] = WeakIdentityMap()


def globals_watch(kernel: Any) -> GlobalsWatch:
    """The watch on the globals that `kernel` has read in any engine: `add` notes some, `check` raises if one has changed."""
    return _watches.get_or_create(kernel, GlobalsWatch)


def compile_options(bound: BoundLaunch) -> Any:
    """All options of `bound`'s compilation; raises what Triton raises for one that the target does not allow."""
    return _permissive(backend_for(bound.target).parse_options({**_UNASKED, **bound.compile_options()}))


def lower(bound: BoundLaunch, *, lines: bool = False, overflow: bool = False) -> Lowered:
    """The IR of `bound`'s kernel for its specialization. Safe on many threads; the text is the same on each.

    Raises Triton's own `CompilationError` for a kernel that its frontend refuses, and `RuntimeError`, as Triton does, where a
    global that an earlier lowering of the kernel used has another value now.

    `lines` leaves a mark in the text wherever a statement of the source begins (see `lines`), `overflow` an assertion
    behind integer arithmetic (see `overflow`; the kernel's own assertions are there then, too).
    """
    if compat.is_gluon(bound.kernel):
        raise UntraceableLaunchError(f"kernel {bound.kernel_name!r} is written in Gluon, which has an IR of its own")
    backend = backend_for(bound.target)
    world = ShadowWorld(bound.target, lines=lines)
    watch = globals_watch(bound.kernel)
    watch.check()
    function = world.shadow(bound.kernel)
    asked: dict[str, Any] = {}
    chosen = compile_options(bound)
    if overflow:
        chosen = copy.copy(chosen)  # the classes are frozen
        for name in _OVERFLOW_OPTIONS:
            object.__setattr__(chosen, name, True)
    options = _WatchedOptions(chosen, asked)
    codegen_functions = {
        **backend.get_codegen_implementation(options),
        "min_dot_size": lambda lhs, rhs: (1, 1, 1),
        "convert_custom_types": fp8e4b15.convert,
    }
    constants = {path: world.shadow(value) for path, value in bound.constexprs.items()}
    source = compat.ASTSource(function, dict(bound.signature), constants, {})
    context = compat.ir.context()
    compat.ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = ast_to_ttir(
            function,
            source,
            context=context,
            options=options,
            codegen_fns=codegen_functions,
            module_map=backend.get_module_map(),
        )
    except Exception as error:
        # As Triton's own compile does: the frames inside its frontend, and inside ours, say nothing about the kernel.
        _drop_own_frames(error)
        compat.filter_traceback(error)
        recursive = recursion.explain(error)
        if recursive is not None:
            raise recursive from error
        raise
    if overflow:
        asked.update({name: getattr(compile_options(bound), name) for name in _OVERFLOW_OPTIONS})
    entry = module.get_entry_func_name()
    text = _generic_text(module, context)
    watch.add(world.used_globals)
    return Lowered(text, entry, _slots(bound), watch.check, asked)


_OWN = (shadows.__file__, generator.__file__, building.__file__, private.__file__)


def _drop_own_frames(error: BaseException) -> None:
    for chained in (error.__cause__, error.__context__):
        if chained is not None:
            _drop_own_frames(chained)
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename not in _OWN:
            frames.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for frame in reversed(frames):
        frame.tb_next = kept
        kept = frame
    error.__traceback__ = kept


def _permissive(options: Any) -> Any:
    # The options classes are frozen and compute fields when made; a copy with the field set keeps those as they are.
    allowed = copy.copy(options)
    object.__setattr__(allowed, "supported_fp8_dtypes", tuple(sorted({*options.supported_fp8_dtypes, *_FP8})))
    return allowed


def _generic_text(module: Any, context: Any) -> str:
    builder = compat.ir.builder(context)
    function = builder.get_or_insert_function(module, UNTERMINATED, builder.get_function_ty([], []), "private", False)
    module.push_back(function)
    function.add_entry_block()
    text: str = module.str()
    return text


def _slots(bound: BoundLaunch) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    for index, leaf in enumerate(bound.leaves):
        if leaf.type.startswith("tensordesc"):
            rank = leaf.type.partition("[")[2].partition("]")[0].count(",") + 1
            slots.append((index, "desc"))
            slots.extend((index, ("shape", axis)) for axis in range(rank))
            slots.extend((index, ("stride", axis)) for axis in range(rank))
        else:
            slots.append((index, "value"))
    return tuple(slots)
