"""The public names of the installed ``triton.language``, spelled as a kernel spells them."""

from __future__ import annotations

import types
from typing import Any, TypeVar

import triton.language as tl
from triton.language import extra
from triton.language.extra import cuda, hip, libdevice

__all__ = ["MODULES", "operators", "public_names"]

MODULES: dict[str, types.ModuleType] = {
    "tl": tl,
    "tl.math": tl.math,
    "tl.random": tl.random,
    "tl.standard": tl.standard,
    "tl.target_info": tl.target_info,
    "tl.extra.cuda": cuda,
    "tl.extra.hip": hip,
    "tl.extra.libdevice": libdevice,
    "tl.extra.cuda.libdevice": cuda.libdevice,
    "tl.extra.hip.libdevice": hip.libdevice,
}
"""Prefix -> module."""

CLASSES: dict[str, Any] = {"tensor": tl.tensor, "tensor_descriptor": tl.tensor_descriptor, "dtype": tl.dtype, "tuple": tl.tuple}
"""Prefix -> class of values inside a kernel."""


def _of_module(module: types.ModuleType) -> set[str]:
    named = getattr(module, "__all__", None)
    if named is not None:
        return set(named)
    # A module without __all__ has what it defines; what it imports belongs to another one.
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, (types.ModuleType, type, TypeVar))
        and getattr(value, "__module__", None) == module.__name__
    }


def operators() -> set[str]:
    """The operators of `tl.tensor`: special methods that the compiler calls with its own semantic object."""
    found = set()
    for name, value in vars(tl.tensor).items():
        code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
        if not name.startswith("__") or code is None:
            continue
        if "_semantic" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            found.add(f"tensor.{name}")
    return found


def public_names() -> list[str]:
    """All of them, sorted: ``tl.sum``, ``tl.math.exp``, ``tensor.sum``, ``tensor.__add__``, ``tl.extra.hip.smid``, ..."""
    names = {f"{prefix}.{name}" for prefix, module in MODULES.items() for name in _of_module(module)}
    names |= {f"{prefix}.{name}" for prefix, kind in CLASSES.items() for name in dir(kind) if not name.startswith("_")}
    names |= operators()
    names |= {f"tl.extra.{name}" for name in vars(extra) if name in ("libdevice", "cuda", "hip")}
    return sorted(names)
