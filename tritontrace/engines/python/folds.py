"""Reductions and scans: a combine function is run on whole tiles of left and right operands, as the IR engine runs it.

What of Triton's would write the combine region (in `tl.reduce`, `tl.associative_scan`) is called with a region whose
arguments are those tiles. So the user's combine function is called by Triton's own code and with Triton's own types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir import compute_ops, numerics, tensors
from tritontrace.engines.ir.emitters.compute import _ufunc_of
from tritontrace.engines.ir.tree import NO_LOCATION, Block, Op, Region, Type, Value
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.state import current
from tritontrace.engines.python.values import NeedsLanesError, TracedTensor

__all__ = ["combines", "folded_again", "reduction", "scan"]


class Combined:
    """What Triton's code takes for the operation whose region it fills; it has the arguments, and receives the results."""

    def __init__(self, arguments: list[Handle]) -> None:
        self.arguments = arguments

    def get_region(self, index: int) -> Combined:
        return self

    def arg(self, index: int) -> Handle:
        return self.arguments[index]


def _combine(write: Any, arguments: list[Handle]) -> list[Handle]:
    builder = current().builder
    builder.returned = None
    builder.closed += 1
    try:
        write(Combined(arguments))
    finally:
        builder.closed -= 1
    results: list[Handle] = builder.returned
    return results


def _ufunc(write: Any, element: str, kind: str) -> Any:
    """The one exact numpy function that a combine function of one value is, if it is one."""
    builder = current().builder
    scalar = Type((), element)
    arguments = [Handle(np.zeros(1, numerics.compute_dtype(element)), scalar) for _ in range(2)]
    outer, builder.recording = builder.recording, []
    try:
        results = _combine(write, arguments)
        recorded = builder.recording
    except NeedsLanesError:
        return None
    finally:
        builder.recording = outer
    if len(recorded) != 1 or len(results) != 1:
        return None
    name, operands, out = recorded[0]
    if out is not results[0] or len(operands) != 2 or any(a is not b for a, b in zip(operands, arguments)):
        return None
    values = [Value(scalar, None, number) for number in range(3)]
    op = Op(name, values[:2], values[2:], {}, [], [], NO_LOCATION)
    end = Op("tt.reduce.return", values[2:], [], {}, [], [], NO_LOCATION)
    return _ufunc_of(Region([Block(values[:2], [op, end])]), element, kind)


def _fold(inputs: Any, kind: str, axis: int, write: Any, reverse: bool) -> list[Any]:
    state = current()
    builder = state.builder
    source: Type = inputs[0].handle.type
    elements = [x.handle.type.element for x in inputs]
    values = [x.handle.value for x in inputs]
    site = builder.sites.event(f"tt.{kind}", source.shape, source.element)
    looked_at = builder.checks_overflow and source.element[0] == "i"
    ufunc = _ufunc(write, source.element, kind) if len(inputs) == 1 and not looked_at else None
    free: Any = None
    combine = ufunc
    if ufunc is None:
        free = []

        def whole(frame: Any, free: Any, *lanes: Any) -> list[Any]:
            types = [Type((), element) for element in elements] * 2
            return [r.value for r in _combine(write, [Handle(v, kind) for v, kind in zip(lanes, types)])]

        def combine(frame: Any, free: Any, *lanes: Any) -> list[Any]:
            try:
                return whole(frame, free, *lanes)
            except NeedsLanesError:
                return _lane_by_lane(whole, lanes)

    run = compute_ops.reduce_op if kind == "reduce" else compute_ops.scan_op
    return run(builder.frame, site, combine, free, values, source.shape, axis, reverse)


def folded_again(operands: list[Handle], kind: str, axis: int, write: Any, reverse: bool) -> list[Any]:
    """What a reduction or scan gives for other values, which no client is told of."""
    frame = current().builder.frame
    source = operands[0].type
    types = [Type((), handle.type.element) for handle in operands] * 2
    values = [handle.value for handle in operands]

    def combine(frame: Any, free: Any, *lanes: Any) -> list[Any]:
        return [r.value for r in _combine(write, [Handle(v, kind) for v, kind in zip(lanes, types)])]

    ufunc = _ufunc(write, source.element, kind) if len(operands) == 1 else None
    if kind == "reduce":
        if ufunc is not None:
            return [tensors.ufunc_reduce(ufunc, values[0], source.shape, axis)]
        return tensors.map_reduce(frame, combine, [], values, source.shape, axis)
    if ufunc is not None:
        return [tensors.ufunc_scan(ufunc, values[0], source.shape, axis, reverse)]
    return tensors.map_scan(frame, combine, [], values, source.shape, axis, reverse)


def combines(operands: list[Handle], write: Any) -> list[tuple[str, Type]]:
    """The elementwise operations of one call of a combine function, with the types of their results; none are known of one
    that branches."""
    builder = current().builder
    kinds = [Type((), handle.type.element) for handle in operands] * 2
    outer, builder.recording = builder.recording, []
    try:
        _combine(write, [Handle(np.zeros(1, numerics.compute_dtype(kind.element)), kind) for kind in kinds])
        return [(name, out.type) for name, _, out in builder.recording]
    except NeedsLanesError:
        return []
    finally:
        builder.recording = outer


def _lane_by_lane(whole: Any, lanes: Any) -> list[Any]:
    shape = np.broadcast_shapes(*(v.shape for v in lanes))
    flat = [np.broadcast_to(v, shape).reshape(-1) for v in lanes]
    rows = [whole(None, None, *[v[i : i + 1] for v in flat]) for i in range(len(flat[0]))]
    return [np.concatenate([row[j].reshape(-1)[:1] for row in rows]).reshape(shape) for j in range(len(rows[0]))]


def reduction(semantic: Any, inputs: Any, axis: Any, write: Any) -> Any:
    """``tt.reduce``, with the checks of Triton's `reduction`."""
    inputs = tuple(getattr(inputs, "values", inputs))
    if axis is None:
        inputs = tuple(semantic.reshape(t, [t.numel.value], can_reorder=True) for t in inputs)
        axis = 0
    shape = inputs[0].type.shape
    if axis >= len(shape):
        raise AssertionError(f"reduction axis must be < inputs rank ({len(shape)})")
    if any(t.type.shape != shape for t in inputs):
        raise AssertionError("all reduction inputs must have the same shape")
    kept = [n for i, n in enumerate(shape) if i != axis]
    return _results(semantic, inputs, "reduce", axis, write, False, kept)


def scan(semantic: Any, inputs: Any, axis: int, write: Any, reverse: bool) -> Any:
    """``tt.scan``, with the checks of Triton's `associative_scan`."""
    inputs = tuple(getattr(inputs, "values", inputs))
    shape = inputs[0].type.shape
    if not -len(shape) <= axis < len(shape):
        raise AssertionError(f"scan axis {axis} must be < inputs rank ({len(shape)})")
    if any(t.type.shape != shape for t in inputs):
        raise AssertionError("all scan inputs must have the same shape")
    return _results(semantic, inputs, "scan", axis % len(shape), write, bool(reverse), list(shape))


def _results(semantic: Any, inputs: Any, kind: str, axis: int, write: Any, reverse: bool, shape: list[int]) -> Any:
    values = _fold(inputs, kind, axis, write, reverse)
    results = tuple(_wrapped(semantic, value, x, shape) for value, x in zip(values, inputs))
    semantic.builder.folded(kind, [x.handle for x in inputs], [r.handle for r in results], axis, reverse, write)
    return results


def _wrapped(semantic: Any, value: Any, source: Any, shape: list[int]) -> TracedTensor:
    handle = Handle(np.asarray(value), Type(tuple(shape), source.handle.type.element))
    if not shape:
        handle.value = handle.value.reshape(-1)[:1] if handle.value.size == 1 else handle.value
    tensor: TracedTensor = semantic.wrap_tensor(handle, source.type.scalar, shape)
    return tensor
