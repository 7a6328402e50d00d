"""Operations on whole tiles: dot, reduce, scan, gather, histogram and the shape changes that need real data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.integers import broadcast_to
from tritontrace.engines.ir.values import dense

__all__ = ["cat", "dot", "gather", "histogram", "join", "map_reduce", "map_scan", "matmul", "split", "ufunc_reduce", "ufunc_scan"]


def dot(
    a: Any,
    b: Any,
    c: Any,
    a_block: tuple[int, ...],
    b_block: tuple[int, ...],
    element: str,
    operands: tuple[str, str],
    precision: str,
) -> Any:
    """``tt.dot``: ``[P|1, (B,) M, K] @ [P|1, (B,) K, N] + c`` in the accumulator's type.

    float32 operands are read as TF32, their low bits cut off, where the kernel asks for it (Triton's default on CUDA), as
    tensor cores read them; ``ieee`` keeps full precision, ``tf32x3``, ``bf16x3`` and ``bf16x6`` add up products of narrower
    parts as Triton's pass does. Integer dots are exact and wrap. Products of narrow floats are exact in float32.
    """
    a, b = broadcast_to(a, a_block), broadcast_to(b, b_block)
    if operands == ("f32", "f32"):
        if precision == "tf32":
            a, b = numerics.round_to(a, "tf32", "rtz"), numerics.round_to(b, "tf32", "rtz")
        elif precision in _PARTS:
            return _accumulated(_in_parts(a, b, precision), dense(c))
    if element[0] == "i":
        kind = numerics.compute_dtype(element)
        # float64 holds every sum of int8 products exactly and goes through BLAS.
        small = all(o in ("i8", "i1") for o in operands) and a_block[-1] <= 1 << 20
        work: Any = np.float64 if small else np.int64
        out = np.matmul(a.astype(work), b.astype(work))
        return (out.astype(np.int64) + dense(c)).astype(kind)
    kind = numerics.compute_dtype(element)
    if a.dtype != kind:
        a, b = a.astype(kind), b.astype(kind)
    out = _accumulated(matmul(a, b), dense(c))
    return numerics.round_to(out, element) if element in ("f16", "bf16") else out


def _accumulated(out: Any, c: Any) -> Any:
    if c.size == 1 and not c.any():
        pass
    elif out.shape[0] >= c.shape[0] and out.flags.writeable:
        out += c
    else:
        out = out + c
    return out


# precision -> (format of the parts, which parts are multiplied, smallest products first; part 0 holds the leading bits)
_PARTS: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "tf32x3": ("tf32", ((1, 0), (0, 1), (0, 0))),
    "bf16x3": ("bf16", ((1, 0), (0, 1), (0, 0))),
    "bf16x6": ("bf16", ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0))),
}


def _in_parts(a: Any, b: Any, precision: str) -> Any:
    """A float32 product as a sum of products of narrower floats."""
    element, products = _PARTS[precision]
    count = 1 + max(i for i, _ in products)
    lefts, rights = _split_float(a, element, count), _split_float(b, element, count)
    total: Any = None
    for i, j in products:
        if total is not None and (i, j) == (0, 0):
            # of inf * 1.0 the small parts make inf * 0.0; only the leading product says what is not finite
            total = np.where(np.isnan(total), np.float32(0), total)
        product = matmul(lefts[i], rights[j])
        total = product if total is None else total + product
    return total


def _split_float(x: Any, element: str, count: int) -> list[Any]:
    parts = []
    for _ in range(count):
        parts.append(numerics.round_to(x, element))
        x = x - parts[-1]
    return parts


def matmul(a: Any, b: Any) -> Any:
    """Products of stacked matrices, of which each depends on its two operands alone, to the last bit.

    A BLAS adds up in another order for another height (one tall product for many programs that share `b` would be up to a
    tenth faster) and, with AVX-512, for an operand that lies transposed.
    """
    return np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


def ufunc_reduce(ufunc: Any, value: Any, block: tuple[int, ...], axis: int) -> Any:
    """A reduction whose combine function is one exact numpy function."""
    value = dense(value)
    n = block[axis]
    if value.shape[axis + 1] != n:
        value = broadcast_to(value, block) if n > 1 else value
    if ufunc is np.add and value.dtype.kind == "f":
        return ufunc.reduce(value, axis=axis + 1, dtype=value.dtype, initial=value.dtype.type(-0.0))  # +0.0 would hide a -0.0
    result = ufunc.reduce(value, axis=axis + 1, dtype=value.dtype)
    if ufunc in _EXTREMA and value.dtype.kind == "f":
        zero = result == 0
        if zero.any():
            result = np.where(zero, _extreme_zero(ufunc, value, axis + 1), result)
    return result


_EXTREMA = (np.fmax, np.fmin, np.maximum, np.minimum)


def _extreme_zero(ufunc: Any, value: Any, axis: int) -> Any:
    """The zero that is the largest (or smallest) element: ``+0.0 > -0.0``, which numpy does not know."""
    negative = np.signbit(value)
    if ufunc in (np.fmax, np.maximum):
        sign = (negative | (value != 0)).all(axis=axis)
    else:
        sign = (negative & (value == 0)).any(axis=axis)
    return np.where(sign, value.dtype.type(-0.0), value.dtype.type(0.0))


def ufunc_scan(ufunc: Any, value: Any, block: tuple[int, ...], axis: int, reverse: bool) -> Any:
    """A scan whose combine function is one exact numpy function."""
    value = broadcast_to(value, block)
    if reverse:
        return np.flip(ufunc.accumulate(np.flip(value, axis + 1), axis=axis + 1, dtype=value.dtype), axis + 1)
    return ufunc.accumulate(value, axis=axis + 1, dtype=value.dtype)


def _cut(value: Any, axis: int, part: slice) -> Any:
    return value[(slice(None),) * axis + (part,)]


def map_reduce(frame: Any, combine: Any, free: list[Any], values: list[Any], block: tuple[int, ...], axis: int) -> list[Any]:
    """A reduction by any combine function: neighbours are combined pairwise, level by level, so order is kept."""
    xs = [broadcast_to(v, block) for v in values]
    at = axis + 1
    n = block[axis]
    while n > 1:
        even = n // 2 * 2
        left = [_cut(x, at, slice(0, even, 2)) for x in xs]
        right = [_cut(x, at, slice(1, even, 2)) for x in xs]
        combined = [dense(v) for v in combine(frame, free, *left, *right)]
        combined = [np.broadcast_to(v, np.broadcast_shapes(v.shape, left[0].shape)) for v in combined]
        if n % 2:
            tails = [_cut(x, at, slice(n - 1, n)) for x in xs]
            combined = [
                np.concatenate(
                    [
                        np.broadcast_to(c, (max(len(c), len(t)), *c.shape[1:])),
                        np.broadcast_to(t, (max(len(c), len(t)), *t.shape[1:])),
                    ],
                    at,
                )
                for c, t in zip(combined, tails)
            ]
        xs = combined
        n = n // 2 + n % 2
    return [x[(slice(None),) * at + (0,)] for x in xs]


def map_scan(
    frame: Any, combine: Any, free: list[Any], values: list[Any], block: tuple[int, ...], axis: int, reverse: bool
) -> list[Any]:
    """An inclusive scan by any associative combine function (log2 n rounds of distance 1, 2, 4, ...)."""
    at = axis + 1
    xs = [np.array(broadcast_to(v, block)) for v in values]
    if reverse:
        xs = [np.flip(x, at) for x in xs]
    n = block[axis]
    distance = 1
    while distance < n:
        left = [_cut(x, at, slice(0, n - distance)) for x in xs]
        right = [_cut(x, at, slice(distance, n)) for x in xs]
        combined = [dense(v) for v in combine(frame, free, *left, *right)]
        fresh = []
        for x, c in zip(xs, combined):
            programs = max(x.shape[0], c.shape[0])
            y = np.array(np.broadcast_to(x, (programs, *x.shape[1:])))
            _cut(y, at, slice(distance, n))[...] = c
            fresh.append(y)
        xs = fresh
        distance *= 2
    return [np.flip(x, at) for x in xs] if reverse else xs


def gather(source: Any, index: Any, source_block: tuple[int, ...], index_block: tuple[int, ...], axis: int) -> Any:
    """``tt.gather`` along `axis`."""
    source, index = broadcast_to(source, source_block), broadcast_to(index, index_block)
    programs = max(source.shape[0], index.shape[0])
    source = np.broadcast_to(source, (programs, *source.shape[1:]))
    index = np.broadcast_to(index, (programs, *index.shape[1:]))
    # An index outside the tile is undefined on a GPU; clip it so that it can do no harm here.
    return np.take_along_axis(source, np.clip(index, 0, source_block[axis] - 1).astype(np.int64), axis + 1)


def histogram(value: Any, mask: Any, block: tuple[int, ...], bins: int, kind: Any) -> Any:
    """``tt.histogram``: counts of 0..bins-1 per program; values outside count nowhere."""
    value = broadcast_to(value, block)
    programs = value.shape[0] if mask is None else max(value.shape[0], dense(mask).shape[0])
    value = np.broadcast_to(value, (programs, *block)).reshape(programs, -1)
    inside = (value >= 0) & (value < bins)
    if mask is not None:
        inside &= np.broadcast_to(dense(mask), (programs, *block)).reshape(programs, -1)
    slots = value.astype(np.int64) + (np.arange(programs, dtype=np.int64) * bins)[:, None]
    counts = np.bincount(slots[inside], minlength=programs * bins)
    return counts.reshape(programs, bins).astype(kind)


def join(a: Any, b: Any, block: tuple[int, ...]) -> Any:
    """``tt.join``: a new last axis of two."""
    a, b = broadcast_to(a, block), broadcast_to(b, block)
    programs = max(a.shape[0], b.shape[0])
    return np.stack([np.broadcast_to(a, (programs, *block)), np.broadcast_to(b, (programs, *block))], -1)


def split(value: Any, block: tuple[int, ...]) -> tuple[Any, Any]:
    """``tt.split``: the two halves of the last axis of two."""
    value = broadcast_to(value, block)
    return value[..., 0], value[..., 1]


def cat(a: Any, b: Any, a_block: tuple[int, ...], b_block: tuple[int, ...]) -> Any:
    """``tt.cat`` along the first axis."""
    a, b = broadcast_to(a, a_block), broadcast_to(b, b_block)
    programs = max(a.shape[0], b.shape[0])
    return np.concatenate([np.broadcast_to(a, (programs, *a_block)), np.broadcast_to(b, (programs, *b_block))], 1)
