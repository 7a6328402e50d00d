"""Tile operations that generated code calls and that clients may watch: dot, reduce, scan, print, assert."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines import asm
from tritontrace.engines.ir import numerics, tensors
from tritontrace.engines.ir.integers import broadcast_to
from tritontrace.engines.ir.runtime import AsmSite, Frame
from tritontrace.engines.ir.values import dense
from tritontrace.errors import KernelError, UnsupportedOpError

__all__ = ["asm_op", "assert_op", "dot_op", "lanewise", "map_op", "print_op", "reduce_op", "scan_op", "work_op"]


def dot_op(
    frame: Frame,
    site: events.Site,
    a: Any,
    b: Any,
    c: Any,
    a_block: tuple[int, ...],
    b_block: tuple[int, ...],
    element: str,
    operands: tuple[str, str],
    precision: str,
) -> Any:
    """``tt.dot``."""
    rt = frame.rt
    if not rt.on_dot:
        return tensors.dot(a, b, c, a_block, b_block, element, operands, precision)
    event = events.Dot(rt.launch, site, frame, a, b, c, precision)
    rt.before(event)
    replaced, value = rt.replaced(event)
    event.result = np.asarray(value) if replaced else tensors.dot(a, b, c, a_block, b_block, element, operands, precision)
    rt.after(event)
    return event.result


def _fold(
    frame: Frame, kind: str, combine: Any, free: Any, values: list[Any], block: tuple[int, ...], axis: int, reverse: bool
) -> list[Any]:
    if free is None:
        if kind == "reduce":
            return [tensors.ufunc_reduce(combine, values[0], block, axis)]
        return [tensors.ufunc_scan(combine, values[0], block, axis, reverse)]
    if kind == "reduce":
        return tensors.map_reduce(frame, combine, free, values, block, axis)
    return tensors.map_scan(frame, combine, free, values, block, axis, reverse)


def _watched(
    frame: Frame,
    site: events.Site,
    kind: str,
    combine: Any,
    free: Any,
    values: list[Any],
    block: tuple[int, ...],
    axis: int,
    reverse: bool,
) -> list[Any]:
    rt = frame.rt
    if not rt.on_reduce:
        return _fold(frame, kind, combine, free, values, block, axis, reverse)
    event = events.Reduce(rt.launch, site, frame, tuple(values), axis, kind)
    rt.before(event)
    replaced, value = rt.replaced(event)
    if replaced:
        event.results = tuple(np.asarray(v) for v in (value if isinstance(value, tuple) else (value,)))
    else:
        event.results = tuple(_fold(frame, kind, combine, free, values, block, axis, reverse))
    rt.after(event)
    return list(event.results)


def reduce_op(
    frame: Frame, site: events.Site, combine: Any, free: Any, values: list[Any], block: tuple[int, ...], axis: int, reverse: bool
) -> list[Any]:
    """``tt.reduce``."""
    return _watched(frame, site, "reduce", combine, free, values, block, axis, reverse)


def scan_op(
    frame: Frame, site: events.Site, combine: Any, free: Any, values: list[Any], block: tuple[int, ...], axis: int, reverse: bool
) -> list[Any]:
    """``tt.scan``."""
    return _watched(frame, site, "scan", combine, free, values, block, axis, reverse)


def lanewise(function: Any) -> Any:
    """A function of scalars with branches, for tiles: every lane goes its own way, as if it were a program."""

    def run(frame: Frame, free: list[Any], *values: Any) -> list[Any]:
        arrays = [dense(v) for v in values]
        shape = (frame.P, *np.broadcast_shapes(*(v.shape[1:] for v in arrays)))
        return [r.reshape(shape) for r in _per_lane(frame, function, free, [np.broadcast_to(v, shape) for v in arrays])]

    return run


def _per_lane(frame: Frame, function: Any, free: list[Any], values: list[Any]) -> list[Any]:
    """``[P * lanes]`` results of a scalar function of arrays ``[P, ...]``, with a frame of a program for each lane."""
    flat = [np.ascontiguousarray(v).reshape(-1) for v in values]
    owner = np.repeat(np.arange(frame.P), len(flat[0]) // frame.P)
    outside = [v if v.shape[0] == 1 else v[owner] for v in (dense(f) for f in free)]
    return [np.broadcast_to(dense(r), owner.shape) for r in function(frame.take(owner), outside, *flat)]


def map_op(frame: Frame, function: Any, free: Any, values: list[Any], block: tuple[int, ...], pack: int) -> list[Any]:
    """``tt.map_elementwise``: a scalar function of `pack` neighbours, run for every lane as if it were a program."""
    arguments: list[Any] = []
    for v in values:
        packed = np.broadcast_to(broadcast_to(v, block), (frame.P, *block)).reshape(frame.P, -1, pack)
        arguments.extend(packed[..., k] for k in range(pack))
    raw = _per_lane(frame, function, free, arguments)
    return [np.stack(raw[j : j + pack], axis=1).reshape(frame.P, *block) for j in range(0, len(raw), pack)]


def print_op(frame: Frame, site: events.Site, prefix: str, values: list[Any], kinds: list[str], hexadecimal: bool) -> None:
    """``tl.device_print``: one event, and a line of text for each program, as far as a launch's prints are shown."""
    rt = frame.rt
    values = [v.view(f"u{v.dtype.itemsize}") if kind else v for v, kind in zip(values, kinds)]
    event = events.Print(rt.launch, site, frame, prefix, tuple(values), hexadecimal)
    if rt.on_print:
        rt.before(event)
        if rt.replaced(event)[0]:
            rt.after(event)
            return
    if rt.prints.left > 0:
        shown_as_hex = [hexadecimal or kind == "pointer" for kind in kinds]
        rt.prints.write(_printed(frame, site, prefix, values, shown_as_hex))
    if rt.on_print:
        rt.after(event)


def _printed(frame: Frame, site: events.Site, prefix: str, values: list[Any], as_hex: list[bool]) -> Iterator[str]:
    place = f"{site.location.function or frame.rt.launch.kernel_name}:{site.location.line} " if site.location else ""
    for row, program in enumerate(frame.program_ids()):
        shown = []
        for value, hexadecimal in zip(values, as_hex):
            one = value[0 if value.shape[0] == 1 else row]
            shown.append(_lanes(np.broadcast_to(one, site.block) if site.block else np.asarray(one), hexadecimal))
        yield f"{place}pid ({program[0]}, {program[1]}, {program[2]}){prefix}{' '.join(shown)}"


_SHOWN = 64
"""Lanes of a tile above which only the ends of each axis are printed."""


def _lanes(value: Any, hexadecimal: bool) -> str:
    bits = value.dtype.itemsize * 8
    formatter: Any = None
    if hexadecimal:
        formatter = {
            "int_kind": lambda n: f"0x{int(n) & ((1 << bits) - 1):0{bits // 4}x}",
            "float_kind": lambda x: float(x).hex(),
        }
    return np.array2string(value, formatter=formatter, threshold=_SHOWN, edgeitems=3, max_line_width=1000)


def assert_op(frame: Frame, site: events.Site, condition: Any, message: str, mask: Any) -> None:
    """``tl.device_assert`` (in the module only where debug is on); raises `KernelError` naming line and programs."""
    rt = frame.rt
    if mask is not None:
        condition = condition | ~dense(mask)
    event = events.Assert(rt.launch, site, frame, condition, message)
    if rt.on_assert:
        rt.before(event)
        if rt.replaced(event)[0]:
            rt.after(event)
            return
    if not condition.all():
        rows = np.broadcast_to(condition.reshape(condition.shape[0], -1).all(axis=1), (frame.P,))
        bad = [(int(a), int(b), int(c)) for a, b, c in frame.program_ids()[~rows]]
        cause = AssertionError(message)
        raise KernelError(
            f"device_assert failed: {message}", kernel=rt.launch.kernel_name, location=site.location, programs=bad
        ) from cause
    if rt.on_assert:
        rt.after(event)


def asm_op(frame: Frame, site: AsmSite, *values: Any) -> list[Any]:
    """Inline assembly through a Python callback of numpy arrays (see `session`)."""
    callback = asm.find(site.text, frame.rt.inline_asm)
    if callback is None:  # `Program.assembly_check` has asked
        raise UnsupportedOpError(f"inline assembly {site.text!r} has no Python callback", location=site.location)
    out = callback(*values)
    results = out if isinstance(out, (tuple, list)) else (out,)
    if len(results) != len(site.elements):
        raise ValueError(f"the callback for inline assembly {site.text!r} gave {len(results)} results, not {len(site.elements)}")
    return [_asm_result(frame, site, np.asarray(result), element) for result, element in zip(results, site.elements)]


def _asm_result(frame: Frame, site: AsmSite, result: Any, element: str) -> Any:
    full = (frame.P, *site.block)
    rank = len(full)
    if result.ndim < rank:
        result = result.reshape((1,) * (rank - result.ndim) + result.shape)
    if result.ndim != rank or any(n not in (1, m) for n, m in zip(result.shape, full)):
        raise ValueError(
            f"the callback for inline assembly {site.text!r} gave an array of shape {result.shape}, which does not broadcast to "
            f"{full} (programs, then the tile)"
        )
    kind = numerics.compute_dtype(element)
    if kind.kind == "i" and result.dtype.kind in "iu":
        return result.astype(f"u{kind.itemsize}").view(kind)
    return numerics.round_to(result.astype(kind), element) if kind.kind == "f" else result.astype(kind)


def work_op(frame: Frame, site: events.Site) -> None:
    """Tells that a straight line of operations is executed."""
    rt = frame.rt
    if rt.on_work:
        rt.before(events.Work(rt.launch, site, frame))
