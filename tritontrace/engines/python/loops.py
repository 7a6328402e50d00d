"""Loops of a running program: Triton's counting, loop events, the step limit, and waits for other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import triton.language as tl

from tritontrace import events
from tritontrace.engines.ir.control import loop_bounds, trip_count
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.state import current
from tritontrace.engines.python.values import TracedTensor
from tritontrace.kernels import compat

__all__ = ["LoopRange", "StaticRange", "WhileLoop", "iterate", "python_range"]

_constexpr: Any = compat.constexpr


def python_range(*bounds: Any) -> range:
    """``range(...)`` anywhere but in the head of a ``for``: Python's own, of the numbers that scalars of the kernel hold."""
    builder = current().builder
    for bound in bounds:
        if type(bound) is TracedTensor:
            builder.branch(bound.handle)
    return range(*[bound.value if isinstance(bound, _constexpr) else bound for bound in bounds])


class LoopRange:
    """``for i in range(...)`` or ``tl.range(...)`` in a kernel: a run-time loop, whatever is known of its bounds."""

    def __init__(self, first: Any, second: Any = None, step: Any = None, **options: Any) -> None:
        self.lower: Any
        self.upper: Any
        self.lower, self.upper = (0, first) if second is None else (first, second)
        self.step = 1 if step is None else step

    def __iter__(self) -> Iterator[int]:
        """For what is no ``for`` statement."""
        return iter(python_range(self.lower, self.upper, self.step))


class StaticRange:
    """``tl.static_range(...)``: its variable is a compile-time constant."""

    def __init__(self, first: Any, second: Any = None, step: Any = None) -> None:
        lower, upper = (0, first) if second is None else (first, second)
        for bound in (lower, upper, step):
            if isinstance(bound, TracedTensor):
                raise TypeError(f"the bounds of tl.static_range must be compile-time constants, not {bound}")
        self.values = range(*(int(b) for b in (lower, upper, 1 if step is None else step)))

    def __iter__(self) -> Iterator[Any]:
        return map(_constexpr, self.values)


class _Carried:
    """The types of the variables that a loop carries: the compiler refuses one that changes."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.types: dict[str, Any] | None = None

    def check(self, variables: Any) -> None:
        """`variables` are the function's, before an iteration or after the last one."""
        if self.types is None:
            found = {name: variables.get(name) for name in self.names}
            self.types = {name: v.type for name, v in found.items() if type(v) is TracedTensor}
            return
        for name, kind in self.types.items():
            now = variables.get(name)
            if type(now) is TracedTensor and now.type != kind:
                raise TypeError(
                    f"loop-carried variable {name!r} begins as {kind} and is assigned {now.type} in the loop, which the compiler "
                    "refuses; give it one type"
                )


def iterate(source: Any, carried: tuple[str, ...]) -> Any:
    """What a ``for`` statement iterates over; `carried` are the names that its body binds."""
    if isinstance(source, LoopRange):
        return _counted(source, _Carried(carried) if carried else None)
    if isinstance(source, _constexpr):
        source = source.value
    if type(source) is range and all(-(2**63) <= bound < 2**63 for bound in (source.start, source.stop, source.step)):
        # ``r = range(n)``, ``for i in r``: Triton's compiler has no word for it, and it means what the short form means.
        return iterate(LoopRange(source.start, source.stop, source.step), carried)
    return iter(source)


def _counted(loop: LoopRange, carried: _Carried | None) -> Iterator[Any]:
    state = current()
    builder, rt, semantic = state.builder, state.rt, state.semantic
    step = loop.step.value if isinstance(loop.step, _constexpr) else loop.step
    lower, upper = loop.lower, loop.upper
    # A negative constant step is what the compiler turns round: the same count, from the other end.
    backwards = isinstance(step, int) and step < 0
    bounds = [semantic.to_tensor(b) for b in ((upper, lower, -step) if backwards else (lower, upper, step))]
    for bound in bounds:
        if not bound.dtype.is_int():
            raise TypeError(f"For loop bounds and step must all be ints, are ({', '.join(str(b.dtype) for b in bounds)})")
        if bound.type.is_block():
            raise TypeError(f"For loop bounds and step must be scalars, got {bound.type}")
    kind = semantic.integer_promote_impl(semantic.integer_promote_impl(bounds[0].dtype, bounds[1].dtype), bounds[2].dtype)
    low, high, stride = (semantic.cast(b, kind).handle.value for b in bounds)
    for bound in bounds:
        builder.branch(bound.handle)
    site = builder.sites.event("scf.for", (), "")
    frame = builder.frame
    low, high, stride = loop_bounds(frame, site, low, high, stride)
    count = int(np.asarray(trip_count(low, high, stride, not kind.is_int_signed())).max())
    element = Type((), f"i{kind.int_bitwidth}")
    dtype = low.dtype.type
    try:
        for number in range(count):
            if carried is not None:
                carried.check(sys._getframe(1).f_locals)
            builder.frame = inner = frame.inside(site.location, number)
            rt.step(inner, site.location)
            if rt.hooks.loop_iteration:
                rt.fire(rt.hooks.loop_iteration, events.Loop(rt.launch, site, inner, "for", low, high, stride, number))
            value = low + stride * dtype(number)
            if backwards:
                value = high - stride * dtype(number)
            yield TracedTensor(Handle(value, element), kind)
        if carried is not None and count:
            carried.check(sys._getframe(1).f_locals)
    finally:
        builder.frame = frame
    if rt.hooks.loop_after:
        rt.fire(rt.hooks.loop_after, events.Loop(rt.launch, site, frame, "for", low, high, stride, count))


class WhileLoop:
    """One execution of a ``while`` statement.

    An iteration that wrote nothing and read what the one before it read is waiting: the other programs get their turns.
    """

    def __init__(self) -> None:
        state = current()
        self.state = state
        self.builder = state.builder
        self.frame = state.builder.frame
        self.iteration = 0
        self.site = state.builder.sites.event("scf.while", (), "")
        self.outer_reads, self.builder.spins = self.builder.spins, []
        self.last: Any = None
        self.carried: _Carried | None = None
        self.writes = state.rt.writes
        rt = state.rt
        if rt.hooks.loop_before:
            rt.fire(rt.hooks.loop_before, events.Loop(rt.launch, self.site, self.frame, "while"))

    def again(self, condition: Any, carried: tuple[str, ...]) -> bool:
        """Called with the test of each round; True if the body is to run."""
        if carried:
            self.carried = self.carried or _Carried(carried)
            self.carried.check(sys._getframe(1).f_locals)
        if isinstance(condition, tl.condition):
            condition = condition.condition
        builder, rt, location = self.builder, self.state.rt, self.site.location
        if not condition:
            if rt.hooks.loop_after:
                rt.fire(rt.hooks.loop_after, events.Loop(rt.launch, self.site, self.frame, "while", iteration=self.iteration))
            self.leave()
            return False
        reads, builder.spins = builder.spins, []
        builder.frame = self.frame
        if reads and rt.writes == self.writes and reads == self.last:
            builder.wait(location)
        self.last, self.writes = reads, rt.writes
        builder.frame = inner = self.frame.inside(location, self.iteration)
        rt.step(inner, location)
        if rt.hooks.loop_iteration:
            rt.fire(rt.hooks.loop_iteration, events.Loop(rt.launch, self.site, inner, "while", iteration=self.iteration))
        self.iteration += 1
        return True

    def leave(self) -> None:
        """The loop is over, by its test or by ``break``."""
        self.builder.frame = self.frame
        self.builder.spins = self.outer_reads
