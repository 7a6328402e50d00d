"""Where NaN and infinity come from, and where they get to: a shadow of the kernel's floating-point values.

Every float has a companion, an i64 tile that is 0 where the value is finite or came that way from memory, and otherwise
names the operation that made it non-finite: the one furthest up in the program where several did. Operations that only
move lanes move companions; the others get a check behind them, which is one test of all lanes as long as nothing happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir.companions import (
    MOVES,
    CompanionWriter,
    closed_functions,
    mask_of,
    tile_of,
    values_of,
)
from tritontrace.engines.ir.ops import is_elementwise
from tritontrace.engines.ir.tree import Module, Op, Value
from tritontrace.engines.ir.values import dense

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Frame

__all__ = [
    "FIRST",
    "NONFINITE",
    "follow_nonfinite",
    "nonfinite_dot",
    "nonfinite_lanes",
    "nonfinite_mixed",
    "nonfinite_reduce",
    "nonfinite_scan",
    "nonfinite_select",
    "nonfinite_sink",
]

NONFINITE = "tritontrace.nonfinite."
FIRST = 1 << 40
"""The companion of the first operation; later ones count down, so that the larger one of two came first."""

_EXACT = frozenset({"arith.extf", "arith.negf", "math.absf"})
_FROM_MEMORY = ("tt.load", "tt.atomic", "tt.descriptor_load", "tt.descriptor_gather")
_BITS = frozenset({"arith.bitcast", "tt.bitcast"})


def follow_nonfinite(module: Module, entry: str) -> None:
    """Adds companions, checks and sinks to `module`, in place."""
    closed = closed_functions(module)
    for name, function in module.functions.items():
        if name not in closed:
            _Writer(function, entry=name == entry, closed=closed).write()


class _Writer(CompanionWriter):
    def follows(self, value: Value) -> bool:
        return value.type.is_float

    def follow(self, op: Op, ops: list[Op]) -> list[Op]:
        name = op.name
        floats = [value for value in op.operands if self.follows(value)]
        if name in MOVES:
            return [self.moved(op, ops)]
        if name in _EXACT:
            self.companions[op.results[0]] = self.companion(op.operands[0], ops)
            return []
        if name.startswith(_FROM_MEMORY) or name in _BITS or name == "ub.poison":
            return []
        if name == "arith.select":
            operands = [op.operands[0], *(self.companion(value, ops) for value in op.operands[1:])]
            made = self.make(op, NONFINITE + "select", operands, [op.results[0].type.shape])
        elif name == "tt.gather":
            return [self.moved(op, ops)]
        else:
            results = [result for result in op.results if self.follows(result)]
            companions = [self.companion(value, ops) for value in floats]
            kind = {"tt.dot": "dot", "tt.reduce": "reduce", "tt.scan": "scan"}.get(name)
            if kind is None:
                alike = is_elementwise(op) and all(value.type.shape == results[0].type.shape for value in op.operands)
                kind = "lanes" if alike else "mixed"
            shown = list(op.operands) if kind == "lanes" and not floats else floats
            if kind == "dot":
                shown, companions = op.operands[:3], [self.companion(value, ops) for value in op.operands[:3]]
            made = self.make(
                op,
                NONFINITE + kind,
                [*results, *shown, *companions],
                [result.type.shape for result in results],
                of=op,
                counts=(len(results), len(shown)),
            )
            self.companions.update(zip(results, made.results, strict=True))
            return [made]
        self.companions[op.results[0]] = made.results[0]
        return [made]

    def sink(self, op: Op, ops: list[Op]) -> None:
        for value in values_of(op):
            found = self.companions.get(value)
            if found is None:
                continue
            operands = [found]
            tile = tile_of(op)
            if tile is not None:
                ops.append(Op(NONFINITE + "sink_tile", [found, *tile], [], {"of": op}, [], [], op.location))
                continue
            mask = mask_of(op)
            if mask is not None:
                operands.append(mask)
            ops.append(Op(NONFINITE + "sink", operands, [], {"of": op}, [], [], op.location))


# -- while a kernel runs ------------------------------------------------------------------------------------------

_NONE = [np.zeros((1,) * n, np.int64) for n in range(12)]


def _plain(companions: tuple[Any, ...]) -> bool:
    return not any(companion.any() for companion in companions)


def _announce(frame: Frame, site: events.Site, born: Any, operands: tuple[Any, ...], result: Any) -> None:
    rt = frame.rt
    rt.before(events.NonFinite(rt.launch, site, frame, born, operands, result))


def _largest(companions: tuple[Any, ...]) -> Any:
    out = companions[0] if companions else _NONE[0]
    for more in companions[1:]:
        out = np.maximum(out, more)
    return out


def _floats(operands: tuple[Any, ...]) -> list[Any]:
    return [v for v in operands if type(v) is np.ndarray and v.dtype.kind == "f"]


def nonfinite_lanes(
    frame: Frame, site: events.Site, code: int, results: tuple[Any, ...], operands: tuple[Any, ...], companions: tuple[Any, ...]
) -> Any:
    """The companions of an elementwise operation's results."""
    out = []
    for result in results:
        finite = np.isfinite(result)
        if finite.all():
            out.append(_NONE[result.ndim])
            continue
        floats = _floats(operands)
        clean: Any = np.True_
        for v in floats:
            clean = clean & np.isfinite(v)
        # a NaN of infinities is new, too, as long as no operation here made those
        known = _largest(companions)
        if floats:
            no_nan: Any = np.True_
            for v in floats:
                no_nan = no_nan & ~np.isnan(v)
            clean = np.where(np.isnan(result), no_nan & (known == 0), clean)
        born = ~finite & clean
        if born.any():
            _announce(frame, site, born, operands, result)
        out.append(np.where(finite, 0, np.where(born, code, known)))
    return out


def nonfinite_select(condition: Any, yes: Any, no: Any) -> Any:
    """``tl.where``."""
    if not yes.any() and not no.any():
        return yes if yes.ndim >= no.ndim else no
    condition = dense(condition)
    missing = max(yes.ndim, no.ndim) - condition.ndim
    return np.where(condition.reshape(condition.shape + (1,) * missing), yes, no)


def _along(axis: int, values: list[Any], shape: tuple[int, ...], function: Any) -> Any:
    out: Any = None
    for v in values:
        one = function(np.broadcast_to(v, (v.shape[0], *shape)), 1 + axis)
        out = one if out is None else np.maximum(out, one)
    return out


def nonfinite_reduce(
    frame: Frame,
    site: events.Site,
    code: int,
    results: tuple[Any, ...],
    operands: tuple[Any, ...],
    companions: tuple[Any, ...],
    axis: int,
    shape: tuple[int, ...],
) -> Any:
    """The companions of a reduction's results."""

    def spread(v: Any, axis: int) -> Any:
        return v.max(axis=axis)

    return _folded(frame, site, code, results, operands, companions, axis, shape, spread)


def nonfinite_scan(
    frame: Frame,
    site: events.Site,
    code: int,
    results: tuple[Any, ...],
    operands: tuple[Any, ...],
    companions: tuple[Any, ...],
    axis: int,
    shape: tuple[int, ...],
    reverse: bool,
) -> Any:
    """The companions of a scan's results."""

    def spread(v: Any, axis: int) -> Any:
        if reverse:
            return np.flip(np.maximum.accumulate(np.flip(v, axis), axis=axis), axis)
        return np.maximum.accumulate(v, axis=axis)

    return _folded(frame, site, code, results, operands, companions, axis, shape, spread)


def _folded(
    frame: Frame,
    site: events.Site,
    code: int,
    results: tuple[Any, ...],
    operands: tuple[Any, ...],
    companions: tuple[Any, ...],
    axis: int,
    shape: tuple[int, ...],
    spread: Any,
) -> Any:
    out = []
    for result in results:
        finite = np.isfinite(result)
        if finite.all():
            out.append(_NONE[result.ndim])
            continue
        dirty = _along(axis, [~np.isfinite(v) for v in _floats(operands)], shape, spread)
        known = _along(axis, list(companions), shape, spread)
        born = ~finite & ~dirty
        # infinities of both signs from memory make a NaN here
        nan = _along(axis, [np.isnan(v) for v in _floats(operands)], shape, spread)
        born = born | (np.isnan(result) & ~nan & (known == 0))
        if born.any():
            _announce(frame, site, born, operands, result)
        out.append(np.where(finite, 0, np.where(born, code, known)))
    return out


def nonfinite_dot(
    frame: Frame, site: events.Site, code: int, results: tuple[Any, ...], operands: tuple[Any, ...], companions: tuple[Any, ...]
) -> Any:
    """The companion of a dot's result."""
    (result,) = results
    if result.dtype.kind != "f":
        return [_NONE[result.ndim]]
    finite = np.isfinite(result)
    if finite.all():
        return [_NONE[result.ndim]]

    def spread(a: Any, b: Any, c: Any) -> Any:
        return np.maximum(np.maximum(a.max(axis=-1, keepdims=True), b.max(axis=-2, keepdims=True)), c)

    dirty = spread(*(~np.isfinite(v) for v in operands))
    nan = spread(*(np.isnan(v) for v in operands))
    known = spread(*companions)
    born = (~finite & ~dirty) | (np.isnan(result) & ~nan & (known == 0))
    if born.any():
        _announce(frame, site, born, operands, result)
    return [np.where(finite, 0, np.where(born, code, known))]


def nonfinite_mixed(
    frame: Frame, site: events.Site, code: int, results: tuple[Any, ...], operands: tuple[Any, ...], companions: tuple[Any, ...]
) -> Any:
    """The companions of an operation any lane of whose results may depend on any lane of its operands."""
    out = []
    for result in results:
        finite = np.isfinite(result)
        if finite.all():
            out.append(_NONE[result.ndim])
            continue
        dirty: Any = np.zeros(1, np.bool_)
        known: Any = np.zeros(1, np.int64)
        for v in _floats(operands):
            dirty = dirty | ~np.isfinite(v).reshape(v.shape[0], -1).all(axis=1)
        for v in companions:
            known = np.maximum(known, v.reshape(v.shape[0], -1).max(axis=1))
        tail = (1,) * (result.ndim - 1)
        born = ~finite & ~dirty.reshape(-1, *tail)
        if born.any():
            _announce(frame, site, born, operands, result)
        out.append(np.where(finite, 0, np.where(born, code, known.reshape(-1, *tail))))
    return out


def nonfinite_sink(frame: Frame, use: events.Site, births: list[events.Site], companion: Any, mask: Any = None) -> None:
    """Tells clients which operations' non-finite values are stored, by which programs."""
    if not companion.any():
        return
    if mask is not None:
        active = dense(mask)
        missing = companion.ndim - active.ndim
        companion = np.where(active.reshape(active.shape + (1,) * missing) if missing > 0 else active, companion, 0)
    rt = frame.rt
    for code in np.unique(companion):
        if code:
            rt.before(events.NonFiniteUse(rt.launch, births[FIRST - int(code)], frame, use, companion == code))
