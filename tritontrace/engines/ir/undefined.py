"""The companions of `definedness` while a kernel runs: int64 tiles with one bit for each load that is followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir.values import Compare, Mask, dense

if TYPE_CHECKING:
    from tritontrace.engines.ir.boxes import Places
    from tritontrace.engines.ir.runtime import Frame, MemorySite
    from tritontrace.source import SourceLocation

__all__ = [
    "undefined_all",
    "undefined_any",
    "undefined_both",
    "undefined_dot",
    "undefined_kept",
    "undefined_logic",
    "undefined_reduce",
    "undefined_scan",
    "undefined_seed",
    "undefined_select",
    "undefined_sink",
    "undefined_unmasked",
]


def undefined_seed(frame: Frame, mask: Any, bit: int, by_program: bool) -> Any:
    """The companion of a masked load without ``other``; `by_program` is that of `affine.by_corners`."""
    active = dense(mask)
    rt = frame.rt
    rt.undefined[bit] = (frame.lanes, active)
    if by_program and rt.corners is not None and not _surely_on(mask, rt.corners):
        rt.doubt = True
    return np.where(active, 0, np.int64(1) << bit)


def _surely_on(mask: Any, corners: Places) -> bool:
    """Whether every lane is on in all programs between those at the corners."""
    for part in mask.parts if type(mask) is Mask else (mask,):
        if type(part) is not Compare:
            if len(part) > 1 or not part.all():
                return False
        elif part.predicate not in ("lt", "le", "gt", "ge") or not corners.bounds(part.difference) or not part.decided()[0]:
            return False
    return True


def undefined_unmasked(mask: Any, other: Any) -> Any:
    """The companion of a masked load whose ``other`` is suspect."""
    return np.where(dense(mask), 0, other)


def undefined_any(*bits: Any) -> Any:
    """Lane by lane: undefined where any operand is."""
    out = bits[0]
    for more in bits[1:]:
        out = out | more
    return out


def undefined_all(rank: int, *bits: Any) -> Any:
    """An operation that mixes lanes in a way that is not followed: every lane depends on every one."""
    total = np.zeros((1,), np.int64)
    for tile in bits:
        total = total | np.bitwise_or.reduce(tile.reshape(tile.shape[0], -1), axis=1)
    return total.reshape((-1,) + (1,) * rank)


def undefined_select(condition: Any, unknown: Any, yes: Any, no: Any) -> Any:
    """``tl.where``: the lane that is chosen counts, and whether the choice is known."""
    return unknown | np.where(dense(condition), yes, no)


def undefined_both(unknown: Any, a: Any, b: Any) -> Any:
    """A choice that depends on data: undefined for certain only where either outcome is."""
    return unknown | np.where((a != 0) & (b != 0), a | b, 0)


def undefined_kept(mask: Any, *bits: Any) -> Any:
    """The lanes that an operation's own mask lets through."""
    return np.where(dense(mask), undefined_any(*bits), 0)


def undefined_logic(a: Any, b: Any, bits_a: Any, bits_b: Any, decides: int) -> Any:
    """``&``, ``*`` or ``|``: a defined operand of the value `decides` (of conditions: False, True) makes the other one moot."""
    decided = ((bits_a == 0) & _is(a, decides)) | ((bits_b == 0) & _is(b, decides))
    return np.where(decided, 0, bits_a | bits_b)


def _is(value: Any, number: int) -> Any:
    value = dense(value)
    return value == bool(number) if value.dtype == np.bool_ else value == number


def undefined_reduce(axis: int, *bits: Any) -> Any:
    """A reduction: undefined where any lane along the axis is."""
    return undefined_any(*(np.bitwise_or.reduce(tile, axis=1 + axis) for tile in bits))


def undefined_scan(axis: int, reverse: bool, size: int, *bits: Any) -> Any:
    """A scan: undefined from the first such lane on."""
    tile = undefined_any(*bits)
    shape = list(tile.shape)
    shape[1 + axis] = size
    tile = np.broadcast_to(tile, shape)
    if reverse:
        return np.flip(np.bitwise_or.accumulate(np.flip(tile, 1 + axis), axis=1 + axis), 1 + axis)
    return np.bitwise_or.accumulate(tile, axis=1 + axis)


def undefined_dot(a: Any, b: Any, accumulator: Any) -> Any:
    """A dot: an undefined lane spoils its row or its column (nothing times it is surely 0)."""
    return np.bitwise_or.reduce(a, axis=-1, keepdims=True) | np.bitwise_or.reduce(b, axis=-2, keepdims=True) | accumulator


def undefined_sink(
    frame: Frame,
    use: events.Site,
    through: dict[int, SourceLocation | None],
    role: str,
    origins: list[MemorySite | None],
    by_program: bool,
    bits: Any,
    mask: Any = None,
) -> None:
    """Tells clients of the undefined lanes that arrive where they do harm; `through` has by load what mixed lanes on the way."""
    rt = frame.rt
    if not bits.any():
        return
    if by_program and rt.corners is not None:
        rt.doubt = True
        return
    if mask is not None:
        bits = np.where(dense(mask), bits, 0)
    arrived = int(np.bitwise_or.reduce(bits, axis=None))
    for bit, origin in enumerate(origins):
        if not arrived >> bit & 1 or origin is None:
            continue
        hit = (bits >> bit & 1).astype(np.bool_)
        rows = np.flatnonzero(np.broadcast_to(hit.reshape(len(hit), -1).any(axis=1), (frame.P,)))
        lanes = _lanes(frame, rows, origin, hit, bit)
        rt.before(events.UndefinedUse(rt.launch, origin.event, frame, use, role, rows, lanes, through.get(bit)))


def _lanes(frame: Frame, rows: Any, origin: MemorySite, hit: Any, bit: int) -> Any:
    """The flat lanes of the load that are undefined in the programs `rows`; fewer where the use shows which ones."""
    programs, active = frame.rt.undefined[bit]
    if len(active) > 1:
        active = active[np.isin(programs, frame.lanes[rows])]
    off = np.broadcast_to(~active, (len(active), *origin.block)).reshape(len(active), -1).any(axis=0)
    if hit.ndim == 1 + len(origin.block) and all(n in (1, size) for n, size in zip(hit.shape[1:], origin.block)):
        seen = np.broadcast_to(hit.any(axis=0), origin.block).reshape(-1) & off
        off = seen if seen.any() else off
    return np.flatnonzero(off)
