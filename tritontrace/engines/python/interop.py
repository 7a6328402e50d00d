"""Between a kernel's values and the rest of Python: numpy's arrays, and what a value can do when its launch is over."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import triton.language as tl

from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.state import CURRENT

__all__ = ["COMPARISONS", "arrays", "block", "compared", "computed"]

COMPARISONS: dict[str, Any] = {f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}

_OPERATORS: dict[Any, Any] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}

_DTYPES: dict[str, tuple[Any, str]] = {
    "bool": (tl.int1, "i1"),
    **{f"{sign}int{bits}": (getattr(tl, f"{sign}int{bits}"), f"i{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": (tl.float16, "f16"),
    "float32": (tl.float32, "f32"),
    "float64": (tl.float64, "f64"),
}


def block(array: Any) -> tuple[Handle, Any]:
    """The handle of a block with the numbers of `array`, and the type of its elements."""
    known = _DTYPES.get(array.dtype.name)
    if known is None:
        raise TypeError(f"an array of {array.dtype} is no block: Triton has no such type")
    if any(side & side - 1 or not side for side in array.shape):
        raise ValueError(f"an array of shape {list(array.shape)} is no block: the sides of one are powers of two; pad it")
    dtype, element = known
    numbers = np.ascontiguousarray(array)
    held = numerics.compute_dtype(element)
    numbers = numbers.view(held) if numbers.dtype.kind == "u" else numbers.astype(held)
    return Handle(np.array(numbers[None]), Type(tuple(array.shape), element)), dtype


def arrays(value: Any) -> Any:
    """`value` with the kernel's values in it as numpy's."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(map(arrays, value))
    if kind is dict:
        return {key: arrays(item) for key, item in value.items()}
    return value.numpy() if isinstance(value, tl.tensor) else value


def computed(function: Any, method: str, inputs: Any, options: Any) -> Any:
    """``numpy.function(*inputs)``, where one of `inputs` is a kernel's value."""
    apply = _OPERATORS.get(function)
    if apply is not None and method == "__call__" and not options and CURRENT.get(None) is not None:
        first, second = inputs
        # What reaches this is ``array + x``: the kernel's own operator has an array on the right.
        if isinstance(first, (np.generic, np.ndarray)) and isinstance(second, tl.tensor):
            if not first.shape:
                return apply(first.item(), second)
            handle, dtype = block(first)
            return apply(type(second)(handle, tl.block_type(dtype, list(first.shape))), second)
    return getattr(function, method)(*arrays(inputs), **arrays(options))


def compared(name: str, a: Any, b: Any) -> Any:
    """The comparison `name` of values whose launch is over: of numbers as Python's, of blocks as numpy's."""
    return COMPARISONS[name](_held(a), _held(b))


def _held(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        numbers = value.numpy()
        return numbers if numbers.shape else numbers.item()
    return getattr(value, "value", value) if isinstance(value, tl.constexpr) else value
