"""Triton's tensor with operators that compute at once, and Triton's semantics over it.

Every member of `tl.tensor` that takes ``_semantic`` gets the running launch's; nothing is written to `tl.tensor` itself.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import types
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.language import semantic as _semantic
from typing_extensions import override

import tritontrace
from tritontrace.engines.python import interop
from tritontrace.engines.python.handles import Handle, full
from tritontrace.engines.python.state import CURRENT, current
from tritontrace.kernels import compat, private

__all__ = ["NeedsLanesError", "Semantic", "TracedTensor", "adopt", "given", "injected", "takes_semantic"]


_FRONTEND = frozenset(module.__file__ for module in (_semantic, tl.core))
"""Code of Triton's that asks whether there is a tensor (whose functions for kernels run rewritten)."""

_SCALARS: dict[Any, dict[str, Any]] = {}
"""What Triton's tensor has for a scalar of each type, but for its value: making it anew costs more than an addition."""


_PACKAGES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (tritontrace, triton))


class NeedsLanesError(Exception):
    """A combine function branches on its values: it is to be run lane by lane. Never leaves the engine."""


def parameters(function: Any) -> Any:
    """The parameters of one of Triton's functions, or () where Python does not know them."""
    signature = getattr(function, "signature", None)
    if not isinstance(signature, inspect.Signature):
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return ()
    return signature.parameters


def takes_semantic(function: Any) -> bool:
    """True for what is called with ``_semantic``: most of Triton's builtins, marked or not."""
    return "_semantic" in parameters(function)


def injected(function: Any) -> Any:
    """`function` as a kernel calls it: with the launch's ``_semantic`` (and ``_generator`` if it takes one)."""
    generator = "_generator" in parameters(function)
    name = getattr(function, "__name__", "builtin")

    def call(*args: Any, **kwargs: Any) -> Any:
        state = CURRENT.get(None)
        if state is None:
            return interop.compared(name, *args) if name in interop.COMPARISONS else current()
        for argument in args:
            if type(argument) not in _KNOWN:
                args = tuple(map(given, args))
                break
        for argument in kwargs.values():
            if type(argument) not in _KNOWN:
                kwargs = {key: given(value) for key, value in kwargs.items()}
                break
        kwargs["_semantic"] = state.semantic
        if generator:
            kwargs["_generator"] = state.generator
        return adopt(function(*args, **kwargs))

    call.__name__ = name
    call.__wrapped__ = function  # type: ignore[attr-defined]  # as functools.wraps does
    return call


def adopt(value: Any) -> Any:
    """`value` with every plain `tl.tensor` in it made ours (`private.adopt`)."""
    return value if type(value) is TracedTensor else private.adopt(value, TracedTensor)


_Private: Any = private.value_class(tl.tensor)


class TracedTensor(_Private):  # type: ignore[misc]  # made at run time
    """A block or scalar of a running program. It prints as its type and numbers; `numpy` gives them as an array."""

    handle: Any

    def __init__(self, handle: Handle, type: Any) -> None:
        known = _SCALARS.get(type) if type.__class__ is tl.dtype else None
        if known is not None:
            self.__dict__.update(known)
            self.handle = handle
            return
        super().__init__(handle, type)
        if type.__class__ is tl.dtype:
            _SCALARS[type] = {name: value for name, value in vars(self).items() if name != "handle"}

    def numpy(self) -> Any:
        """A copy of the numbers as an array of the block's shape (16- and 8-bit floats as float32, pointers as addresses)."""
        return np.array(self._numbers())

    def _numbers(self) -> Any:
        numbers = np.asarray(full(self.handle))
        if (self.dtype.is_int_unsigned() and numbers.dtype.kind == "i") or self.dtype.is_ptr():
            return numbers.view(f"u{numbers.itemsize}")  # a handle's integers have no sign
        return numbers

    def is_number(self) -> bool:
        """True for a scalar (or pointer)."""
        return not self.type.is_block() and isinstance(self.handle.value, np.ndarray)

    def number(self) -> int | float:
        """What a scalar, or a block of one lane, holds, as Python's number; a pointer is an address."""
        self._scalar()
        number: int | float = self._numbers().item()
        return number

    def _scalar(self) -> Any:
        value = self.handle.value
        if value.size != 1:
            if not self.type.is_block():
                raise NeedsLanesError
            raise ValueError(
                f"a block of shape {list(self.type.shape)} has no truth value and is no number; reduce it, or use tl.where"
            )
        return value.reshape(-1)[0]

    def __bool__(self) -> bool:
        if sys._getframe(1).f_code.co_filename in _FRONTEND:
            return True  # "if other": there, a tensor is one that was given
        value = bool(self._scalar())
        state = CURRENT.get(None)
        if state is not None and not _asked_by_pdb(sys._getframe(1)):  # a breakpoint's condition is no branch of the kernel
            state.builder.branch(self.handle)
        return value

    def __index__(self) -> int:
        if not self.dtype.is_int():
            raise TypeError(f"{self.dtype} is no integer")
        return int(self.number())

    def __int__(self) -> int:
        return int(self.number())

    def __float__(self) -> float:
        return float(self.number())

    @override
    def __repr__(self) -> str:
        if self.handle is None:
            return "<nothing>"
        name = f"{self.dtype}[{', '.join(map(str, self.type.shape))}]" if self.type.is_block() else str(self.dtype)
        if not isinstance(self.handle.value, np.ndarray):
            return f"<{name}>"
        return f"{name} {np.array2string(self._numbers(), threshold=64, edgeitems=3)}"

    __str__ = __repr__

    def __hash__(self) -> int:
        if self.is_number():
            return hash(self.number())
        raise TypeError("unhashable: a block is no key; take numbers, as tuple(x.numpy().ravel().tolist()), or id(x)")

    def __format__(self, form: str) -> str:
        if not form:
            return str(self)
        if self.is_number():
            return format(self.number(), form)
        numbers = np.array2string(self._numbers(), threshold=64, edgeitems=3, formatter={"all": lambda one: format(one, form)})
        return f"{self.dtype}[{', '.join(map(str, self.type.shape))}] {numbers}"

    def __round__(self, digits: Any = None) -> Any:
        return round(self.number(), digits)

    def __trunc__(self) -> int:
        return int(self)

    def __floor__(self) -> int:
        return math.floor(self.number())

    def __ceil__(self) -> int:
        return math.ceil(self.number())

    def __abs__(self) -> Any:
        return _absolute(self)

    def __pow__(self, other: Any) -> Any:
        raise TypeError(_NO_POWERS)

    __rpow__ = __pow__

    def __getitem__(self, index: Any) -> Any:
        if index is None or isinstance(index, _INDICES):
            return _indexed(self, index)
        shown = f"constexpr[{index}]" if isinstance(index, int) else index
        raise ValueError(f"unsupported tensor index: {shown}; x.numpy() has numbers and parts of a block")

    def __iter__(self) -> Any:
        raise TypeError("unsupported tensor index: nothing iterates over a block; x.numpy() has its numbers")

    # -- numpy: its functions give arrays, its operators in a kernel what the kernel's give --------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return interop.computed(function, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function(*interop.arrays(args), **interop.arrays(kwargs))

    def __contains__(self, item: Any) -> bool:
        raise TypeError("'in' is not defined for a block")

    @property
    def T(self) -> Any:
        """The block with its last two axes exchanged (two axes: transposed)."""
        semantic = current().semantic
        order = list(range(len(self.type.shape)))
        order[-1], order[-2] = order[-2], order[-1]
        return adopt(semantic.permute(self, tuple(order)))


class Semantic(private.subclass(compat.require(_semantic, "TritonSemantic"))):  # type: ignore[misc]  # made at run time
    """Triton's semantics over `TracedTensor`; combine functions are run, not written down (`folds`)."""

    tensor = TracedTensor

    def __init__(self, builder: Any, target: Any) -> None:
        super().__init__(builder)
        self._target = target

    def _has_native_tma(self) -> bool:
        return self._target.backend == "cuda" and int(self._target.arch) >= 90

    def binary_op_sanitize_overflow_impl(self, lhs: Any, rhs: Any, binary_op: Any) -> None:
        if not self.builder.overflow(lhs, rhs, binary_op.__name__):
            super().binary_op_sanitize_overflow_impl(lhs, rhs, binary_op)

    def to_tensor(self, x: Any, check_type: bool = True) -> Any:
        kind = type(x)
        if kind is TracedTensor:
            return x
        if kind not in _KNOWN:
            x = adopt(given(x))
        return adopt(super().to_tensor(x, check_type))

    def reduction(self, inputs: Any, axis: Any, region_builder_fn: Any) -> Any:
        from tritontrace.engines.python import folds

        return folds.reduction(self, inputs, axis, region_builder_fn)

    def associative_scan(self, inputs: Any, axis: Any, region_builder_fn: Any, reverse: bool) -> Any:
        from tritontrace.engines.python import folds

        return folds.scan(self, inputs, axis, region_builder_fn, reverse)

    # Hints for the compiler are checked as it checks them, and change no value.
    def _hint(self, x: Any, values: Any) -> Any:
        if max(1, len(x.shape)) != len(values):
            raise ValueError("Shape of input to multiple_of does not match the length of values")
        return x

    def multiple_of(self, x: Any, values: Any) -> Any:
        return self._hint(x, values)

    max_contiguous = multiple_of

    def max_constancy(self, x: Any, values: Any) -> Any:
        return self._hint(x, values)


def _asked_by_pdb(caller: Any) -> bool:
    return caller.f_globals.get("__name__") in ("pdb", "bdb")


def _comparison(name: str, function: Any) -> Any:
    """``==`` or ``!=`` of any two objects, where Python expects that it never fails.

    pdb's ``display`` asks with ``!=`` whether a value has changed, and takes the answer as a truth value: it gets one, of the
    bits, so that a NaN has not changed. Elsewhere what can be no tensor (None, a string) is unequal, as Python has it; in a
    kernel the compiler's error stays: there, operators are called by this library.
    """
    number = (bool, int, float, np.generic, compat.constexpr, tl.core.base_value)

    def compare(self: Any, other: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if not caller.f_code.co_filename.startswith(_PACKAGES):
            if _asked_by_pdb(caller):
                return _same(self, other) is (name == "__eq__")
            if not isinstance(other, number) and not hasattr(other, "__array__"):
                return NotImplemented
        return function(self, other, **kwargs)

    compare.__name__ = name
    return compare


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or a.type != b.type or not all(isinstance(x.handle.value, np.ndarray) for x in (a, b)):
        return a is b
    return bool(full(a.handle).tobytes() == full(b.handle).tobytes())


_KNOWN = frozenset({TracedTensor, compat.constexpr, tl.tuple, tl.dtype, int, float, bool, str, type(None), tuple, list, slice})
"""Kinds of arguments that need no look."""


def given(value: Any) -> Any:
    """A value of numpy's as the kernel's: one number as Python's, an array as a block."""
    kind = type(value)
    if isinstance(value, tl.core.base_value):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        if not value.shape:
            return value.item()
        handle, dtype = interop.block(value)
        return TracedTensor(handle, tl.block_type(dtype, list(value.shape)))
    if hasattr(value, "data_ptr") and hasattr(value, "numpy"):
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no value of a kernel; t.numpy() is one, where its shape fits")
    return value


def _jit_member(function: Any) -> Any:
    def member(self: Any, *args: Any, **kwargs: Any) -> Any:
        from tritontrace.engines.python.binding import bind

        return bind(function)(self, *args, **kwargs)

    member.__name__ = getattr(function, "__name__", "member")
    return member


def _forwarded(function: Any) -> Any:
    """The InterpretedFunction that a member forwards to under ``TRITON_INTERPRET=1``, or None."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inner = cell.cell_contents
        except ValueError:
            continue
        if compat.is_function(inner):
            return inner
    return None


def _add_members() -> None:
    for name in dir(_Private):
        if name in vars(TracedTensor) and name not in ("__contains__",):
            continue
        member = inspect.getattr_static(_Private, name)
        inner = member if compat.is_function(member) else _forwarded(member)
        if inner is not None:
            setattr(TracedTensor, name, _jit_member(inner))
        elif isinstance(member, types.FunctionType) and takes_semantic(member):
            call = injected(member)
            setattr(TracedTensor, name, _comparison(name, call) if name in ("__eq__", "__ne__") else call)


_add_members()
_indexed: Any = injected(_Private.__getitem__)
_absolute: Any = injected(private.module(tl.core).abs) if hasattr(tl.core, "abs") else injected(private.module(tl.math).abs)
_INDICES: Any = (tuple, slice, compat.constexpr, tl.tuple, tl.slice)
_NO_POWERS = (
    "Triton has no ** for values of a kernel, and a number bound to a name is one: "
    "write x * x, tl.exp2(x), or name: tl.constexpr = 3"
)
