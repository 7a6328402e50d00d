"""What executing code carries around: the runtime of one launch, and the frame of one batch of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.values import Mask, Separable, take_programs
from tritontrace.engines.prints import writer_for
from tritontrace.errors import KernelError, OutOfBoundsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tritontrace.engines.base import EngineRun
    from tritontrace.engines.ir.boxes import Places
    from tritontrace.launch import Launch
    from tritontrace.source import SourceLocation

__all__ = ["AsmSite", "DenseAddress", "DenseMask", "Frame", "MemorySite", "Runtime"]


class MemorySite:
    """A memory operation as the engine needs it; `event` is the part that clients see."""

    __slots__ = ("block", "decode", "dtype", "element", "encode", "event", "parameter", "size", "zero")

    def __init__(self, event: events.Site, element: str) -> None:
        self.event = event
        self.element = element
        self.block = event.block
        self.parameter = event.parameter
        self.size = numerics.element_bytes(element)
        self.dtype = numerics.memory_dtype(element)
        self.zero = np.zeros((1,) * (1 + len(self.block)), numerics.compute_dtype(element))
        self.decode: Callable[[Any], Any] = _decoder(element)
        self.encode: Callable[[Any], Any] = _encoder(element)


class AsmSite:
    """One piece of inline assembly: its normalized text, and the element types and tile of its results."""

    __slots__ = ("block", "elements", "location", "text")

    def __init__(self, text: str, elements: list[str], block: tuple[int, ...], location: SourceLocation | None) -> None:
        self.text = text
        self.elements = elements
        self.block = block
        self.location = location


def _decoder(element: str) -> Callable[[Any], Any]:
    if numerics.compute_dtype(element) == numerics.memory_dtype(element):
        return _same
    if element == "f16":
        return lambda raw: raw.astype(np.float32)
    return lambda raw: numerics.from_memory(raw, element)


def _encoder(element: str) -> Callable[[Any], Any]:
    if numerics.compute_dtype(element) == numerics.memory_dtype(element):
        return _same
    return lambda value: numerics.to_memory(value, element)


def _same(value: Any) -> Any:
    return value


class DenseAddress:
    """Materialized addresses in the form that events promise."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values

    def minmax(self) -> tuple[Any, Any]:
        v = self.values
        if v.ndim == 1:
            return v, v
        axes = tuple(range(1, v.ndim))
        return v.min(axis=axes), v.max(axis=axes)

    def dense(self) -> Any:
        return self.values


class DenseMask:
    """A materialized mask in the form that events promise."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values

    def all(self) -> bool:
        return bool(self.values.all())

    def dense(self) -> Any:
        return self.values


class Runtime:
    """One launch while it runs. One thread uses it.

    `corners` is there if the programs that run stand for all between them; then `doubt` says that they do not after all
    (see `affine.by_corners`). `writes` counts changes of memory (waiting programs are
    retried when it moves), `steps` loop iterations.
    `roots` maps a pointer parameter to the allocation that its argument lies in, or to None if the argument has no memory; a
    parameter that is not there points anywhere. `failure` is the exception that a client's hook
    raised, so that it can be told from the kernel's own. `undefined` has for each load whose undefined lanes are followed the
    programs and the mask of its last execution, `executed` the marked pieces of code that were reached.
    """

    def __init__(self, run: EngineRun, roots: dict[str, Any]) -> None:
        self.launch = run.launch
        self.hooks = run.hooks
        self.memory = run.memory
        self.grid = run.grid
        self.roots = roots
        self.strict_bounds = run.strict_bounds
        self.max_steps = run.max_steps
        self.inline_asm = run.options.get("inline_asm") or {}
        self.prints = writer_for(run.options.get("prints"))
        self._extents: list[tuple[str, int, int, int, int]] | None = None
        self.writes = 0
        self.steps = 0
        self.corners: Places | None = None
        self.doubt = False
        self.failure: BaseException | None = None
        self.undefined: dict[int, tuple[Any, Any]] = {}
        self.executed: set[int] = set()
        self.out_of_bounds: list[tuple[MemorySite, list[tuple[int, int, int]], int]] = []
        hooks = run.hooks
        self.on_load = hooks.wants(events.Load)
        self.on_store = hooks.wants(events.Store)
        self.on_atomic = hooks.wants(events.Atomic)
        self.on_dot = hooks.wants(events.Dot)
        self.on_reduce = hooks.wants(events.Reduce)
        self.on_print = hooks.wants(events.Print)
        self.on_assert = hooks.wants(events.Assert)
        self.on_work = hooks.wants(events.Work)
        self.on_loop = hooks.wants_loops
        x, y, z = run.grid
        self.sizes = tuple(np.array([n], np.int32) for n in (x, y, z))

    def frame(self, lanes: Any) -> Frame:
        """The frame of the programs with linear ids `lanes` (x runs fastest)."""
        x, y, _ = self.grid
        ids = (
            (lanes % x).astype(np.int32),
            (lanes // x % y).astype(np.int32),
            (lanes // (x * y)).astype(np.int32),
        )
        ids = tuple(v[:1] if n == 1 else v for v, n in zip(ids, self.grid))
        return Frame(self, lanes, ids, ())

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def fire(self, hooks: tuple[Callable[[Any], Any], ...], event: events.Event) -> None:
        """Call every hook with `event`, remembering whose exception it is."""
        for hook in hooks:
            try:
                hook(event)
            except BaseException as error:
                self.failure = error
                raise

    def before(self, event: events.Event) -> None:
        hooks = self.hooks.before.get(type(event))
        if hooks:
            self.fire(hooks, event)

    def after(self, event: events.Event) -> None:
        hooks = self.hooks.after.get(type(event))
        if hooks:
            self.fire(hooks, event)

    def replaced(self, event: events.Event) -> tuple[bool, Any]:
        """(True, value) if a client stands in for the operation."""
        hook = self.hooks.replace.get(type(event))
        if hook is None:
            return False, None
        try:
            return True, hook(event)
        except BaseException as error:
            self.failure = error
            raise

    # -- bounds and steps ----------------------------------------------------------------------------------------------

    def record_out_of_bounds(self, frame: Frame, site: MemorySite, addresses: Any, bad: Any) -> None:
        """Remember an access outside the known memory; the access itself was not made."""
        if not self.strict_bounds or len(self.out_of_bounds) >= 16:
            return
        bad = np.broadcast_to(bad, (frame.P, *bad.shape[1:]))
        rows = np.flatnonzero(bad.reshape(frame.P, -1).any(axis=1))
        programs = [(int(a), int(b), int(c)) for a, b, c in frame.program_ids()[rows[:8]]]
        first = int(np.broadcast_to(addresses, bad.shape)[bad][0])
        self.out_of_bounds.append((site, programs, first))

    def raise_out_of_bounds(self) -> None:
        """Raise for what `record_out_of_bounds` has seen."""
        if not self.out_of_bounds:
            return
        site, programs, address = self.out_of_bounds[0]
        event = site.event
        access = "load" if "load" in event.op or "gather" in event.op else "store" if "store" in event.op else "atomic"
        name = event.parameter
        info = self.launch.arguments.get(name) if name is not None else None
        if info is not None and info.is_tensor:
            element = (address - info.data_ptr) // max(1, site.size)
            what = f"{access} of {name}[{element}], outside its storage (shape {info.shape}, {info.storage_bytes} bytes)"
        else:
            what = (
                f"{access} at address {address:#x}, which lies in no tensor of this launch and no live tensor; "
                "if it is valid memory, name it with session.register_memory(tensor)"
            )
        raise OutOfBoundsError(
            f"out-of-bounds {what}; the access was not made. Open the session with the 'sanitizer' client for the full list",
            kernel=self.launch.kernel_name,
            location=event.location,
            programs=programs,
        )

    def step(self, frame: Frame, location: SourceLocation | None) -> None:
        """Count one loop iteration; raises `KernelError` past ``max_steps``."""
        self.steps += 1
        if self.max_steps is not None and self.steps > self.max_steps:
            raise KernelError(
                f"the launch ran more than max_steps={self.max_steps} loop iterations",
                kernel=self.launch.kernel_name,
                location=location,
                programs=[(int(a), int(b), int(c)) for a, b, c in frame.program_ids()[:4]],
            )

    def tensor_at(self, address: int) -> str | None:
        """The tensor argument whose extent, or else whose storage, holds `address`."""
        if self._extents is None:
            self._extents = _extents(self.launch)
        inside = None
        for name, storage, end, first, last in self._extents:
            if storage <= address < end:
                if first <= address < last:
                    return name
                inside = inside or name
        return inside


def _extents(launch: Launch) -> list[tuple[str, int, int, int, int]]:
    """(name, first byte of the storage, behind its last, first byte of the elements, behind their last) of tensor arguments."""
    out = []
    for name, info in launch.arguments.items():
        if info.is_tensor:
            reach = [(n - 1) * s for n, s in zip(info.shape or (), info.stride or ())]
            low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + 1
            size, start = info.element_bytes, info.data_ptr
            out.append((name, info.storage_ptr, info.storage_ptr + info.storage_bytes, start + low * size, start + high * size))
    return out


class Frame:
    """A batch of programs that execute together: `P` of them, with linear ids `lanes`.

    `ids` are int32 ``[P]`` or ``[1]`` per grid axis. `loops` are the enclosing loops, outermost first.
    """

    __slots__ = ("P", "ids", "lanes", "loops", "rt")

    def __init__(self, rt: Runtime, lanes: Any, ids: tuple[Any, ...], loops: tuple[Any, ...]) -> None:
        self.rt = rt
        self.lanes = lanes
        self.P = len(lanes)
        self.ids = ids
        self.loops = loops

    def take(self, index: Any) -> Frame:
        """The frame of some of the programs."""
        loops = tuple((where, n if isinstance(n, int) else n[index]) for where, n in self.loops)
        return Frame(self.rt, self.lanes[index], tuple(take_programs(v, index) for v in self.ids), loops)

    def inside(self, location: SourceLocation | None, iteration: Any) -> Frame:
        """The same batch, one loop deeper."""
        return Frame(self.rt, self.lanes, self.ids, (*self.loops, (location, iteration)))

    @property
    def corners(self) -> bool:
        """Whether the programs stand for all between them."""
        return self.rt.corners is not None

    def program_ids(self) -> Any:
        """int32 ``[P, 3]``."""
        out = np.empty((self.P, 3), np.int32)
        for axis, v in enumerate(self.ids):
            out[:, axis] = v
        return out

    def iterations(self) -> tuple[Any, ...]:
        """Enclosing loops, outermost first: (location, 0-based iteration)."""
        return self.loops

    def __len__(self) -> int:
        return self.P


def address_form(pointer: Any) -> Any:
    """A pointer tile in the form that events promise."""
    return pointer if type(pointer) is Separable else DenseAddress(pointer)


def mask_form(mask: Any) -> Any:
    """A mask tile in the form that events promise."""
    if mask is None or type(mask) is Mask:
        return mask
    return DenseMask(mask)
