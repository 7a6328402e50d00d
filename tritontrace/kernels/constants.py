"""Compile-time values of a launch: what tells two of them apart, and functions among them, which must not be hashed."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable
from typing import Any

import torch

from tritontrace.kernels import compat
from tritontrace.kernels.weak import identity_token

__all__ = ["constant_key", "hide_functions", "option_key", "reveal_functions", "tuple_key"]


class _FakeStandIn:
    """Takes a fake tensor's place there: Triton asks for the address, and a fake tensor warns when it is asked."""

    __slots__ = ("dtype", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype

    def data_ptr(self) -> int:
        return 0


class _StandIn(compat.JITCallable):  # type: ignore[misc]  # Triton's classes are untyped
    """Takes a function's place while arguments are specialized: Triton asks every JITFunction for its cache key there,
    and computing one writes to the function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    @property
    def cache_key(self) -> str:
        return f"function:{identity_token(self.function)}"

    __hash__ = object.__hash__


def hide_functions(value: Any) -> Any:
    """`value` with a stand-in for every function and every fake tensor in it."""
    if isinstance(value, torch.Tensor):
        return _FakeStandIn(value) if type(value).__name__ == "FakeTensor" else value
    if isinstance(value, (tuple, list)):
        items = [hide_functions(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(type(value), "_fields") else type(value)(items)
    bare = compat.unwrap(value)
    if compat.is_function(bare):
        return _StandIn(bare)
    if type(value) is compat.constexpr:
        inner = hide_functions(value.value)
        return value if inner is value.value else compat.constexpr(inner)
    return value


def reveal_functions(value: Any) -> Any:
    """The inverse of `hide_functions`."""
    if type(value) is _StandIn:
        return value.function
    if type(value) is _FakeStandIn:
        return value.tensor
    if isinstance(value, (tuple, list)):
        items = [reveal_functions(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(type(value), "_fields") else type(value)(items)
    if type(value) is compat.constexpr:
        inner = reveal_functions(value.value)
        return value if inner is value.value else compat.constexpr(inner)
    return value


def constant_key(value: Any) -> Hashable:
    """A hashable that is equal for two compile-time values exactly if they compile to the same.

    Like Triton's own key it goes by the values' equality, and raises `TypeError` for one that has no hash.
    """
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        # True == 1 and both hash alike: the type must stand beside the value.
        return (kind, value)
    if kind is compat.constexpr:
        return constant_key(value.value)
    if isinstance(value, float):
        return (kind, value.hex())  # -0.0 and 0.0 are equal but compile differently, and nan is not equal to itself
    if isinstance(value, tuple):
        return (kind, tuple(map(constant_key, value)))
    if kind is _StandIn:
        return (kind, identity_token(value.function))
    if isinstance(value, torch.Tensor):
        return (kind, identity_token(value))
    equality: Any = kind.__eq__
    identity: Any = kind.__hash__
    if equality is object.__eq__ and identity is object.__hash__:
        # It is equal to itself alone. A token says so without keeping it alive, and its address may be used again.
        try:
            weakref.ref(value)
        except TypeError:
            return (kind, value)
        return (kind, identity_token(value))
    if dataclasses.is_dataclass(value) and kind.__hash__ is not None:
        # Field by field, because a field may be a function.
        fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
        return (kind, tuple(constant_key(hide_functions(field)) for field in fields))
    hash(value)
    return (kind, value)


def option_key(value: Any) -> Hashable:
    """`constant_key` of a compile option, which Triton takes by its text and which may be a list or a dict."""
    try:
        return constant_key(value)
    except TypeError:
        return (type(value), repr(value))


def tuple_key(kinds: Any, values: Any) -> Hashable:
    """The compile-time values inside a tuple argument of these `kinds` (Triton's types)."""
    return (
        type(values),
        tuple(
            constant_key(value) if kind == "constexpr" else None if type(kind) is str else tuple_key(kind, value)
            for kind, value in zip(kinds, values, strict=True)
        ),
    )
