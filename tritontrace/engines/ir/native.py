# mypy: disable-error-code="no-any-return"
# numpy's operators on arrays of any dtype are typed Any.
"""Array functions that torch's vectorized CPU kernels do several times faster, or more exactly, than numpy.

Measured on 128k float32 elements, one thread: rounding to f16 1320 -> 55 us, to bf16 405 -> 76 us, exp2 600 -> 119,
log1p 2450 -> 225, erf (numpy has none) 310 us. Functions whose last bit differs between numpy and torch always go
one way, whatever the size, so that a lane's value never depends on how many lanes it is computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tritontrace.engines.reentry import COMPUTING

__all__ = ["apply", "from_float16", "round_through", "steady", "to_float16", "unary"]

Array = npt.NDArray[Any]
Tensor = torch.Tensor


def _tensor(x: Array) -> Tensor:
    # torch takes neither read-only memory (it warns) nor negative strides
    if not x.flags.writeable or (not x.flags.forc and min(x.strides) < 0):
        x = x.copy()
    return torch.from_numpy(x)


def _modes_active() -> bool:
    """True if the user has a torch mode open (fake tensors, a default device), which must not see our arrays."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def _apply(function: Callable[..., Tensor], arrays: Sequence[Array]) -> Array:
    COMPUTING.function = function
    try:
        if _modes_active():
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                return function(*map(_tensor, arrays)).numpy()
        return function(*map(_tensor, arrays)).numpy()
    finally:
        COMPUTING.function = None


def apply(function: Callable[[Tensor], Tensor], x: Array) -> Array:
    """`function` of torch on a numpy array."""
    return _apply(function, (x,))


def unary(function: Callable[[Tensor], Tensor]) -> Callable[[Array], Array]:
    """A numpy-to-numpy version of a torch function of one argument.

    The argument is made contiguous: torch computes strided inputs with other code, whose last bit may differ.
    """

    def call(x: Array) -> Array:
        return apply(function, np.ascontiguousarray(x))

    return call


_LANES = 64  # a multiple of every vector length of torch's kernels
_ALONE = 511 * _LANES  # torch cuts nothing smaller than 32768 elements into parts for its threads


def steady(function: Callable[..., Tensor]) -> Callable[..., Array]:
    """As `unary`, for one or more arguments of one dtype, where torch computes the last few elements of a part by other code.

    (`exp2`, `pow`, `sinh`, `cosh`, `atanh`: a remainder that fills no vector goes through the C library, whose last bit may
    differ.) Here there is no such remainder, so that a value depends on the arguments alone.
    """

    def call(*arrays: Array) -> Array:
        if len(arrays) > 1:
            arrays = tuple(np.broadcast_arrays(*arrays))
        shape, size = arrays[0].shape, arrays[0].size
        flat = [np.ascontiguousarray(x).reshape(-1) for x in arrays]
        if size % _LANES:
            whole = -size % _LANES
            flat = [np.concatenate([x, np.ones(whole, x.dtype)]) for x in flat]
        step = _ALONE if len(flat[0]) > _ALONE and torch.get_num_threads() > 1 else max(len(flat[0]), 1)
        parts = [_apply(function, [x[i : i + step] for x in flat]) for i in range(0, len(flat[0]), step)]
        result = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else flat[0]
        return result[:size].reshape(shape)

    return call


def round_through(x: Array, dtype: torch.dtype) -> Array:
    """float32 `x` rounded to nearest even of torch's `dtype` and back."""
    return apply(lambda t: t.to(dtype).to(torch.float32), x)


def to_float16(x: Array) -> Array:
    """float32 `x` as numpy float16."""
    return apply(lambda t: t.to(torch.float16), x)


def from_float16(x: Array) -> Array:
    """numpy float16 `x` as float32."""
    return apply(lambda t: t.to(torch.float32), x)
