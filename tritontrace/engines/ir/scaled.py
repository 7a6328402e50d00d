"""Matrix products of microscaling operands (``tt.dot_scaled``): narrow floats, a scale for each group along K.

The value of an element is exact: its own times its group's scale, e8m0 scales being powers of two (0 is 2^-127, 255 is NaN,
as the OCP MX specification has them). Products are summed in float64 and rounded once, together with the accumulator. A target
without such an instruction multiplies in bfloat16 instead: it may round operands, flush the scale 0 and, with ``fast_math``,
miss the NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.integers import broadcast_to
from tritontrace.engines.ir.runtime import Frame
from tritontrace.engines.ir.tensors import matmul
from tritontrace.engines.ir.values import dense

__all__ = ["Operand", "dot_scaled_op"]

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
_E8M0 = np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan)


class Operand:
    """What is known about one side when the kernel is compiled.

    `block` is the operand's own shape, `packed_axis` the axis (0 or 1 of its last two) along which two e2m1 share a byte, or
    None; `along_k` the position of K among the last two axes; `scale_block` and `scale_element` describe its scale, and are
    ``()`` and ``""`` without one.
    """

    __slots__ = ("along_k", "block", "packed_axis", "scale_block", "scale_element")

    def __init__(
        self, block: tuple[int, ...], packed_axis: int | None, along_k: int, scale_block: tuple[int, ...], scale_element: str
    ) -> None:
        self.block = block
        self.packed_axis = packed_axis
        self.along_k = along_k
        self.scale_block = scale_block
        self.scale_element = scale_element

    def values(self, raw: Any, scale: Any) -> Any:
        """float64 ``[P|1, (B,) rows, columns]``: decoded, unpacked and scaled."""
        raw = broadcast_to(raw, self.block)
        value = raw.astype(np.float64) if self.packed_axis is None else _unpack(raw, raw.ndim - 2 + self.packed_axis)
        if not self.scale_block:
            return value
        scale = broadcast_to(scale, self.scale_block)
        factors = _E8M0[scale.view(np.uint8)] if self.scale_element == "i8" else scale.astype(np.float64)
        size = value.shape[value.ndim - 2 + self.along_k]
        factors = np.repeat(factors, size // self.scale_block[-1], axis=-1)
        return value * (factors if self.along_k == 1 else factors.swapaxes(-1, -2))


def _unpack(raw: Any, axis: int) -> Any:
    """Two values from each byte, the one in the low bits first."""
    bits = raw.view(np.uint8)
    pairs = np.stack([_E2M1[bits & 15], _E2M1[bits >> 4]], axis=axis + 1)
    return pairs.reshape(*bits.shape[:axis], 2 * bits.shape[axis], *bits.shape[axis + 1 :])


def dot_scaled_op(
    frame: Frame,
    site: events.Site,
    left: Operand,
    right: Operand,
    a: Any,
    b: Any,
    c: Any,
    a_scale: Any,
    b_scale: Any,
    element: str,
) -> Any:
    """``tt.dot_scaled``; clients get a `Dot` event with the scaled operands as float64."""
    rt = frame.rt
    x, y = left.values(a, a_scale), right.values(b, b_scale)
    if not rt.on_dot:
        return _product(x, y, c, element)
    event = events.Dot(rt.launch, site, frame, x, y, c, "scaled")
    rt.before(event)
    replaced, value = rt.replaced(event)
    event.result = np.asarray(value) if replaced else _product(x, y, c, element)
    rt.after(event)
    return event.result


def _product(x: Any, y: Any, c: Any, element: str) -> Any:
    total = matmul(x, y) + dense(c)
    return numerics.round_to(total.astype(numerics.compute_dtype(element)), element)
