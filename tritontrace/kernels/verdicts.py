"""What a dry run found, kept for the next identical launch: same kernel, grid and arguments, down to the addresses.

Only verdicts that depend on nothing else are kept: no data decides what is accessed, and every pointer is an argument's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from tritontrace.kernels.execution import adopt
from tritontrace.launch import Launch
from tritontrace.scopes.identity import Scope

__all__ = ["Verdict", "keep", "key_of", "repeat"]

_MOST = 256
"""Verdicts that a scope keeps."""

_CONSTANTS = frozenset({int, float, bool, str, type(None)})
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


@dataclass(slots=True)
class Verdict:
    """The launch that it was found in, and `check`, which raises if the kernel is no longer what it was."""

    launch: Launch
    result: Any
    check: Callable[[], None]
    kernel: Any  # keeps the id that is part of the key


def key_of(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Hashable | None:
    """What a launch's verdict depends on; None for a launch whose arguments are not all tensors and plain constants."""
    if type(grid) is not tuple:
        return None
    words: list[Any] = [id(kernel), getattr(kernel, "_src", None), grid, *kwargs]
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if kind in _CONSTANTS:
            words.append(kind)
            words.append(value if kind is not float else value.hex())  # 0.0 and -0.0 are two constants
        elif kind in _TENSORS:
            words.append(_tensor_key(value, value.data_ptr()))
        elif kind.__name__ == "FakeTensor":
            words.append(_tensor_key(value, 0))
        else:
            return None
    return tuple(words)


def _tensor_key(tensor: torch.Tensor, address: int) -> Hashable:
    storage = tensor.untyped_storage()
    # A tensor without memory has only its storage object to tell it from others; equal ones alias in the same way.
    where = address or storage._cdata
    return where, storage.nbytes(), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device.type


def keep(scope: Scope, key: Hashable, verdict: Verdict) -> None:
    """Remember `verdict` for the scope's later launches."""
    verdicts = scope.verdicts
    if verdicts is None:
        verdicts = scope.verdicts = {}
    if len(verdicts) >= _MOST:
        verdicts.clear()  # launches that differ every time gain nothing anyway
    verdicts[key] = verdict


def repeat(scope: Scope, key: Hashable) -> tuple[bool, Any]:
    """(True, what the launch returns) if an identical launch is known: it is then recorded with the same findings."""
    verdicts = scope.verdicts
    verdict = None if verdicts is None else verdicts.get(key)
    if verdict is None:
        return False, None
    verdict.check()
    known = verdict.launch
    launch = Launch(
        kernel_name=known.kernel_name,
        grid=known.grid,
        target=known.target,
        engine=known.engine,
        arguments=known.arguments,
        options=known.options,
        file=known.file,
        line=known.line,
        dry=True,
    )
    adopt(launch, known)
    scope.record(launch)
    error = scope.finish(launch)
    if error is not None:
        raise error
    return True, verdict.result
