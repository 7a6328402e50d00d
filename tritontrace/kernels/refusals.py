"""Why Triton does not take an argument, and what to pass instead: the errors of binding, in words for the caller.

Triton's own binder names neither the argument nor the kernel, and says ``'complex64'`` where a dtype is meant. An error that
is not about a value (a property of the user's that raised) is passed on as it is, with a note that names the argument.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from tritontrace.engines.memory import tensors_of
from tritontrace.engines.phantom import is_phantom
from tritontrace.errors import ArgumentError
from tritontrace.kernels import compat
from tritontrace.kernels.constants import hide_functions
from tritontrace.patching.transaction import add_note

if TYPE_CHECKING:
    from tritontrace.clients.base import Client
    from tritontrace.kernels.arguments import BoundLaunch

__all__ = ["explained", "memory_of", "refuse_half_dry"]

S = TypeVar("S")

# How Triton begins what it says about a value itself.
_ABOUT_A_VALUE = ("failed to specialize argument", "integer to be specialized", "an integer is required", "can't convert")


def explained(
    error: Exception, kernel: str, params: Sequence[Any], backend: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """What to raise for an `error` of Triton's generated binder: a better one, or the same."""
    text = str(error)
    if "dynamic_func()" in text:  # a missing, surplus or doubled argument, in Python's words
        return TypeError(text.replace("dynamic_func()", f"{kernel}()"))
    for name, value in _given(params, args, kwargs):
        for path, item in _items(name, value):
            try:
                compat.specialize(backend, hide_functions(item), False, True, False)
            except Exception:  # whatever it was, it is what the binder met
                return _about(error, text, path, item, kernel)
    return error


def _given(params: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The run-time arguments of a launch by name: those given, and the defaults of the others."""
    left = list(args)
    for param in params:
        kind = param._param.kind
        if kind is kind.VAR_POSITIONAL:
            name, value = param.name, tuple(left)
            left = []
        elif left:
            name, value = param.name, left.pop(0)
        elif param.name in kwargs:
            name, value = param.name, kwargs[param.name]
        elif param.has_default:
            name, value = param.name, param.default
        else:
            continue
        if not param.is_constexpr:
            yield name, value


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _items(f"{name}.{index}", item)
    yield name, value


def _about(error: Exception, text: str, path: str, value: Any, kernel: str) -> Exception:
    where = f"argument {path!r} of kernel {kernel!r}"
    if isinstance(value, torch.Tensor):
        reason = _no_type(value, error) or _no_storage(value, text)
        if reason is not None:
            return ArgumentError(f"{where} is {reason}")
    if text.startswith(_ABOUT_A_VALUE):
        way_out = _way_out(value) if text.startswith(_ABOUT_A_VALUE[:2]) else ""
        return ArgumentError(f"{text} ({where}){'; ' if way_out else ''}{way_out}")
    add_note(error, f"while Triton looked at {where}")
    return error


def _no_type(tensor: torch.Tensor, error: Exception) -> str | None:
    """For a tensor of a dtype that Triton has no type for."""
    if not isinstance(error, KeyError):
        return None
    dtype = tensor.dtype
    described = f"a tensor of {dtype}, for which Triton has no type"
    if dtype.is_complex:
        return f"{described}; pass torch.view_as_real(tensor), or its .real and .imag with their strides"
    if tensor.is_quantized:
        return f"{described}; pass tensor.int_repr(), and scale and zero point as arguments of their own"
    return f"{described}; pass its bytes, tensor.view(torch.uint8), and let the kernel unpack them"


def _no_storage(tensor: torch.Tensor, text: str) -> str | None:
    """For a tensor whose elements lie in no memory of its own."""
    if tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        return (
            f"a tensor of layout {layout}, which is several tensors or none; pass those that it is made of, or tensor.to_dense()"
        )
    if tensor.is_nested:
        return "a nested tensor; pass its .values() and .offsets()"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return (
            "inside a torch.func transform (vmap, grad, ...) and has no memory there; make the launch an operator of its own "
            "(torch.library.custom_op) with a rule for the transform"
        )
    if "storage" in text or "data pointer" in text:
        return f"a {type(tensor).__name__} without memory of its own ({text.strip()}); pass a copy of it (tensor.clone())"
    return None


def _way_out(value: Any) -> str:
    if isinstance(value, (np.integer, np.bool_)):
        return "Triton takes Python's numbers: pass int(value)" if not isinstance(value, np.bool_) else "pass bool(value)"
    if isinstance(value, np.floating):
        return "Triton takes Python's numbers: pass float(value)"
    if isinstance(value, np.ndarray):
        return "pass torch.from_numpy(array), which shares its memory"
    if isinstance(value, list):
        return "Triton takes tuples: pass tuple(value)"
    if isinstance(value, int):
        return "an integer argument has at most 64 bits"
    if isinstance(value, (enum.Enum, str, bytes, torch.dtype, compat.dtype)):
        return "declare the parameter as tl.constexpr"
    return "a kernel takes tensors, numbers, None, tuples of these, tensor descriptors and functions; or tl.constexpr parameters"


def refuse_half_dry(bound: BoundLaunch, clients: Sequence[Sequence[Client]]) -> None:
    """Refuses tensors without memory where a dry run was asked for by some clients, but others of the launch prevent it.

    `clients` has those of each session. Nothing is refused if nobody asked for a dry run.
    """
    if not any(client.dry_run for group in clients for client in group):
        return
    phantom = next((leaf.name for leaf in bound.leaves if any(map(is_phantom, tensors_of(leaf.value)))), None)
    if phantom is None:
        return
    others = sorted({client.name for group in clients for client in group if not client.dry_run})
    who = f"the client{'s' if len(others) > 1 else ''} {', '.join(map(repr, others))}" if others else "an enclosing session"
    raise ArgumentError(
        f"argument {phantom!r} of kernel {bound.kernel_name!r} has no memory, and the launch cannot be a dry run, because {who} "
        f"{'want' if len(others) > 1 else 'wants'} it executed; open a session with dry_run clients alone, or pass real tensors"
    )


def memory_of(bound: BoundLaunch, build: Callable[[list[Any]], S]) -> S:
    """What `build` makes of the values of a launch; where it refuses a tensor, the error names the argument."""
    try:
        return build([leaf.value for leaf in bound.leaves])
    except ArgumentError as error:
        for leaf in bound.leaves:
            for tensor in tensors_of(leaf.value):
                try:
                    build([tensor])
                except ArgumentError as own:
                    raise ArgumentError(f"{own} (argument {leaf.name!r} of kernel {bound.kernel_name!r})") from None
        raise error
