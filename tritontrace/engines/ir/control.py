"""Structured control flow of a batch: where programs part, each side goes on with its own programs only.

A region is a function ``region(frame, free, *arguments) -> list`` of values; `free` are the values it uses from outside,
which are cut down to the active programs together with everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir.runtime import Frame
from tritontrace.engines.ir.values import Separable, dense, take_programs

__all__ = ["assemble", "enter_while", "loop_bounds", "run_for", "run_if", "run_while", "trip_count"]


def assemble(pieces: list[tuple[Any, list[Any]]], programs: int) -> list[Any]:
    """Put the results of disjoint sets of programs together: `pieces` are (programs or None for all, values)."""
    if len(pieces) == 1 and (pieces[0][0] is None or len(pieces[0][0]) == programs):
        index, values = pieces[0]
        if index is None:
            return values
    out = []
    for j in range(len(pieces[0][1])):
        first = pieces[0][1][j]
        if all(values[j] is first for _, values in pieces) and _uniform(first):
            out.append(first)
            continue
        parts = [_plain(values[j]) for _, values in pieces]
        if type(parts[0]) is not np.ndarray:
            out.append(parts[0].assemble([index for index, _ in pieces], parts, programs))
            continue
        block = np.broadcast_shapes(*[v.shape[1:] for v in parts])
        result = np.empty((programs, *block), parts[0].dtype)
        for (index, _), v in zip(pieces, parts):
            result[slice(None) if index is None else index] = v
        out.append(result)
    return out


def _uniform(value: Any) -> bool:
    if type(value) is np.ndarray:
        return bool(value.shape[0] == 1)
    return type(value) is Separable and value.programs() == 1


def _plain(value: Any) -> Any:
    return value if type(value) is np.ndarray or hasattr(value, "assemble") else dense(value)


def run_if(frame: Frame, condition: Any, then: Any, then_free: list[Any], other: Any, other_free: list[Any]) -> list[Any]:
    """``scf.if``: `other` is None where there is no else branch (and then there are no results)."""
    if condition.shape[0] == 1 or frame.P == 1:
        if condition[0]:
            return then(frame, then_free)  # type: ignore[no-any-return]
        return other(frame, other_free) if other is not None else []
    yes = np.flatnonzero(condition)
    if len(yes) == frame.P:
        return then(frame, then_free)  # type: ignore[no-any-return]
    if not len(yes):
        return other(frame, other_free) if other is not None else []
    no = np.flatnonzero(~condition)
    first = then(frame.take(yes), [take_programs(v, yes) for v in then_free])
    second = other(frame.take(no), [take_programs(v, no) for v in other_free]) if other is not None else []
    return assemble([(yes, first), (no, second)], frame.P) if first else []


def trip_count(lower: Any, upper: Any, step: Any, unsigned: bool = False) -> Any:
    """Iterations of a for loop, int64 ``[P]`` or ``[1]``; none for a step of 0 or less (``scf.for`` wants a positive one)."""
    lo = lower.astype(np.int64)
    hi = upper.astype(np.int64)
    st = step.astype(np.int64)
    if unsigned:
        bits = lower.dtype.itemsize * 8
        if bits < 64:
            lo, hi = lo & ((1 << bits) - 1), hi & ((1 << bits) - 1)
    return np.where((st > 0) & (hi > lo), (hi - lo + st - 1) // np.maximum(st, 1), 0)


def run_for(
    frame: Frame,
    body: Any,
    free: list[Any],
    lower: Any,
    upper: Any,
    step: Any,
    carried: list[Any],
    site: events.Site,
    unsigned: bool = False,
) -> list[Any]:
    """``scf.for``; programs whose trip counts differ leave one after another."""
    rt = frame.rt
    lower, upper, step = loop_bounds(frame, site, lower, upper, step)
    counts = trip_count(lower, upper, step, unsigned)
    values = carried
    shortest = int(counts.min())
    longest = int(counts.max())
    pieces: list[tuple[Any, list[Any]]] = []
    alive: Any = None
    programs = frame.P
    current = frame
    location = site.location
    kind = lower.dtype.type
    iteration = 0
    while iteration < longest:
        if iteration == shortest:
            counts = np.broadcast_to(counts, (current.P,))
            keep = np.flatnonzero(counts > iteration)
            done = np.flatnonzero(counts <= iteration)
            alive = np.arange(current.P) if alive is None else alive
            if len(done):
                pieces.append((alive[done], [take_programs(v, done) for v in values]))
                alive = alive[keep]
                values = [take_programs(v, keep) for v in values]
                free = [take_programs(v, keep) for v in free]
                lower, step = take_programs(lower, keep), take_programs(step, keep)
                current = current.take(keep)
                counts = counts[keep]
            shortest = int(counts.min())
        inner = current.inside(location, iteration)
        rt.steps += 1
        if rt.max_steps is not None:
            rt.steps -= 1
            rt.step(inner, location)
        if rt.hooks.loop_iteration:
            event = events.Loop(rt.launch, site, inner, "for", lower, upper, step, iteration)
            rt.fire(rt.hooks.loop_iteration, event)
        values = body(inner, free, lower + step * kind(iteration), *values)
        iteration += 1
    pieces.append((alive, values))
    if rt.hooks.loop_after:
        rt.fire(rt.hooks.loop_after, events.Loop(rt.launch, site, frame, "for", lower, upper, step, longest))
    return assemble(pieces, programs)


def loop_bounds(frame: Frame, site: events.Site, lower: Any, upper: Any, step: Any) -> tuple[Any, Any, Any]:
    """The bounds that a for loop is to run with: its own, unless a client who hears of it now gives others."""
    rt = frame.rt
    if not rt.on_loop:
        return lower, upper, step
    event = events.Loop(rt.launch, site, frame, "for", lower, upper, step)
    if rt.hooks.loop_before:
        rt.fire(rt.hooks.loop_before, event)
    override = rt.hooks.loop_override
    if override is not None:
        try:
            bounds = override(event)
        except BaseException as error:
            rt.failure = error
            raise
        if bounds is not None:
            a, b, c = bounds
            return tuple(np.array([n]).astype(lower.dtype) for n in (a, b, c))  # type: ignore[return-value]
    return lower, upper, step


def enter_while(frame: Frame, site: events.Site) -> Any:
    """Tells that a flat while loop begins; its count of iterations."""
    rt = frame.rt
    if rt.hooks.loop_before:
        rt.fire(rt.hooks.loop_before, events.Loop(rt.launch, site, frame, "while"))
    return np.zeros(1, np.int64)


def run_while(
    frame: Frame, before: Any, before_free: list[Any], after: Any, after_free: list[Any], carried: list[Any], site: events.Site
) -> list[Any]:
    """``scf.while``; programs that are done leave, the others go on among themselves."""
    rt = frame.rt
    programs = frame.P
    pieces: list[tuple[Any, list[Any]]] = []
    alive: Any = None
    current = frame
    values = carried
    location = site.location
    iteration = 0
    if rt.hooks.loop_before:
        rt.fire(rt.hooks.loop_before, events.Loop(rt.launch, site, frame, "while"))
    while True:
        inner = current.inside(location, iteration)
        condition, forwarded = before(inner, before_free, *values)
        if condition.shape[0] == 1 or current.P == 1:
            go_on = bool(condition[0])
        else:
            go = np.flatnonzero(condition)
            go_on = len(go) > 0
            if 0 < len(go) < current.P:
                stop = np.flatnonzero(~condition)
                alive = np.arange(current.P) if alive is None else alive
                pieces.append((alive[stop], [take_programs(v, stop) for v in forwarded]))
                alive = alive[go]
                forwarded = [take_programs(v, go) for v in forwarded]
                before_free = [take_programs(v, go) for v in before_free]
                after_free = [take_programs(v, go) for v in after_free]
                current = current.take(go)
                inner = inner.take(go)
        if not go_on:
            pieces.append((alive, forwarded))
            if rt.hooks.loop_after:
                rt.fire(rt.hooks.loop_after, events.Loop(rt.launch, site, frame, "while", iteration=iteration))
            return assemble(pieces, programs)
        rt.step(inner, location)
        if rt.hooks.loop_iteration:
            rt.fire(rt.hooks.loop_iteration, events.Loop(rt.launch, site, inner, "while", iteration=iteration))
        values = after(inner, after_free, *forwarded)
        iteration += 1
