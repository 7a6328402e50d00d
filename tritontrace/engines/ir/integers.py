"""Integer, pointer and shape operations that keep `Separable` values separable where they can.

Each function takes tiles (arrays or lazy values) and falls back to plain numpy on arrays as soon as laziness would not pay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir.values import Compare, Mask, Separable, dense, land, separable

__all__ = [
    "addptr",
    "broadcast_to",
    "compare",
    "expand_dims",
    "iadd",
    "imul",
    "isub",
    "land",
    "reshape",
    "sext",
    "splat",
    "transpose",
    "truncate",
]

_ndarray = np.ndarray
_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
_SWAPPED = ("eq", "ne", "gt", "ge", "lt", "le")
_UFUNCS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def _widens(a: Any, b: Any) -> bool:
    """True if an elementwise result of two arrays would be larger than either."""
    sa, sb = a.shape, b.shape
    if sa == sb or a.size == 1 or b.size == 1:
        return False
    n = 1
    for x, y in zip(sa, sb):
        n *= x if x >= y else y
    return bool(n > a.size and n > b.size)


def iadd(a: Any, b: Any, bits: int) -> Any:
    """``a + b`` of integer tiles that wrap at `bits`."""
    ta, tb = type(a), type(b)
    if ta is _ndarray and tb is _ndarray and not _widens(a, b):
        return a + b
    if tb is _ndarray and b.size == 1 and ta is Separable:
        return a.add_constant(int(b.reshape(-1)[0]))
    x, y = separable(a, bits), separable(b, bits)
    if x is None or y is None:
        return dense(a) + dense(b)
    return x.plus(y)


def isub(a: Any, b: Any, bits: int) -> Any:
    """``a - b`` of integer tiles that wrap at `bits`."""
    if type(a) is _ndarray and type(b) is _ndarray and not _widens(a, b):
        return a - b
    if type(b) is _ndarray and b.size == 1 and type(a) is Separable:
        return a.add_constant(-int(b.reshape(-1)[0]))
    x, y = separable(a, bits), separable(b, bits)
    if x is None or y is None or not y.fits():
        return dense(a) - dense(b)
    return x.plus(y.scale(-1, bits))


def imul(a: Any, b: Any, bits: int) -> Any:
    """``a * b`` of integer tiles that wrap at `bits`; separable when one side is one number."""
    ta, tb = type(a), type(b)
    if ta is _ndarray and tb is _ndarray:
        return a * b
    if ta is _ndarray:
        a, b = b, a
        tb = _ndarray
    if tb is _ndarray and b.size == 1 and a.fits():
        return a.scale(int(b.reshape(-1)[0]), bits)
    return dense(a) * dense(b)


def sext(value: Any, bits: int) -> Any:
    """Sign extension of an i32 tile to 64 bits."""
    if type(value) is Separable and value.fits():
        return value.scale(1, 64)
    return dense(value).astype(np.int64)


def truncate(value: Any, dtype: Any) -> Any:
    """``arith.trunci`` to i32 or narrower."""
    return dense(value).astype(dtype)


def addptr(pointer: Any, offset: Any, element_bytes: int) -> Any:
    """``tt.addptr``: byte address plus `offset` elements."""
    if type(offset) is _ndarray:
        if type(pointer) is _ndarray and not _widens(pointer, offset):
            if pointer.ndim == 1 or pointer.size > 1 or offset.size == 1:
                return pointer + offset.astype(np.int64) * element_bytes
            if sum(n != 1 for n in offset.shape[1:]) > 1:
                return pointer + offset.astype(np.int64) * element_bytes
        elif offset.size == 1 and type(pointer) is Separable:
            return pointer.add_constant(int(offset.reshape(-1)[0]) * element_bytes)
        x = separable(offset, 64)
        if x is None:
            return dense(pointer) + offset.astype(np.int64) * element_bytes
    elif offset.fits():
        x = offset
    else:
        return dense(pointer) + offset.dense().astype(np.int64) * element_bytes
    p = separable(pointer, 64)
    if p is None:
        return pointer + dense(offset).astype(np.int64) * element_bytes
    return p.plus(x.scale(element_bytes, 64))


def compare(a: Any, b: Any, predicate: int) -> Any:
    """``arith.cmpi`` with a signed predicate (0..5: eq, ne, slt, sle, sgt, sge)."""
    if type(a) is _ndarray and type(b) is _ndarray and not _widens(a, b):
        return _UFUNCS[predicate](a, b)
    if type(b) is _ndarray and b.size == 1 and type(a) is Separable and a.fits():
        return Mask((Compare(a.wide().add_constant(-int(b.reshape(-1)[0])), _PREDICATES[predicate]),))
    if type(a) is _ndarray and a.size == 1 and type(b) is Separable and b.fits():
        return Mask((Compare(b.wide().add_constant(-int(a.reshape(-1)[0])), _SWAPPED[predicate]),))
    bits = 64
    x, y = separable(a, bits), separable(b, bits)
    if x is None or y is None or not x.fits() or not y.fits():
        return _UFUNCS[predicate](dense(a), dense(b))
    return Mask((Compare(x.scale(1, 64).plus(y.scale(-1, 64)), _PREDICATES[predicate]),))


def splat(value: Any, rank: int) -> Any:
    """``tt.splat`` of a scalar ``[P|1]`` to a tile of `rank` lazy axes."""
    return value.reshape((value.shape[0], *(1,) * rank))


def expand_dims(value: Any, axis: int) -> Any:
    """``tt.expand_dims`` at tile axis `axis`."""
    kind = type(value)
    if kind is _ndarray:
        return np.expand_dims(value, axis + 1)
    if kind is Separable:
        axes = (*value.axes[:axis], None, *value.axes[axis:])
        out = Separable(value.constant, value.program, axes, value.bits)
        out._bounds, out._fits, out._span = value._bounds, value._fits, value._span
        return out
    return value.map_axes(lambda part: expand_dims(part, axis))


def transpose(value: Any, order: tuple[int, ...]) -> Any:
    """``tt.trans``: tile axis i of the result is axis ``order[i]`` of `value`."""
    kind = type(value)
    if kind is _ndarray:
        return value.transpose((0, *(i + 1 for i in order)))
    if kind is Separable:
        out = Separable(value.constant, value.program, tuple(value.axes[i] for i in order), value.bits)
        out._bounds, out._fits, out._span = value._bounds, value._fits, value._span
        return out
    return value.map_axes(lambda part: transpose(part, order))


def broadcast_to(value: Any, block: tuple[int, ...]) -> Any:
    """A dense array with every tile axis at its full size (a view)."""
    value = dense(value)
    shape = (value.shape[0], *block)
    return value if value.shape == shape else np.broadcast_to(value, shape)


def reshape(value: Any, source: tuple[int, ...], target: tuple[int, ...]) -> Any:
    """``tt.reshape`` of a tile of shape `source`."""
    if type(value) is not _ndarray and type(value) is Separable:
        # Adding or removing axes of size 1 keeps the terms apart.
        kept = [i for i, n in enumerate(source) if n != 1]
        if [source[i] for i in kept] == [n for n in target if n != 1]:
            terms = iter([value.axes[i] for i in kept])
            extra = [value.axes[i] for i, n in enumerate(source) if n == 1 and value.axes[i] is not None]
            if not extra:
                return Separable(
                    value.constant, value.program, tuple(next(terms) if n != 1 else None for n in target), value.bits
                )
    value = dense(value)
    if value.size == value.shape[0]:
        return value.reshape((value.shape[0], *(1,) * len(target)))
    full = broadcast_to(value, source)
    return full.reshape((full.shape[0], *target))
