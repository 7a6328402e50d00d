"""Arguments that Triton takes for pointers although they are no tensors: anything with `data_ptr()` and `dtype`.

Libraries pass such objects for what torch has no view of (negative strides, a base with an offset). What memory they mean
is asked of them, or else of the process's live tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tritontrace.engines.live import LIVE_STORAGES

__all__ = ["is_pointer_like", "memory_of", "plain", "points_elsewhere", "view_shape"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)

_NEVER = (int, float, str, tuple, list, dict, torch.Tensor, type(None))


def is_pointer_like(value: Any) -> bool:
    """True for an object that is not a tensor and that Triton would type as a pointer."""
    return not isinstance(value, _NEVER) and callable(getattr(value, "data_ptr", None)) and hasattr(value, "dtype")


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` without its class: what a subclass makes of its shape, or of any question, is not what its memory is."""
    if type(tensor) in _PLAIN:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)


def points_elsewhere(tensor: torch.Tensor) -> bool:
    """True for a tensor whose class gives another address than that of its own memory: Triton believes the class."""
    kind = type(tensor)
    if kind in _PLAIN or kind.__name__ in ("FakeTensor", "FunctionalTensor"):  # these warn when asked
        return False
    if kind.data_ptr is torch.Tensor.data_ptr and _unbound(kind.__torch_function__) in _INHERITED:
        return False
    with torch._C.DisableTorchFunctionSubclass():
        try:
            own = torch.Tensor.data_ptr(tensor)
            storage = torch.Tensor.untyped_storage(tensor)
            storage.data_ptr()
        except (RuntimeError, NotImplementedError):
            own, storage = 0, None
    try:
        address = int(tensor.data_ptr())
    except Exception:  # the author's; the launch itself meets it too, and raises it
        return False
    return address != own and not (storage is not None and _holds(storage, address))


def _unbound(method: Any) -> Any:
    return getattr(method, "__func__", method)


_INHERITED = (_unbound(torch.Tensor.__torch_function__), torch._C._disabled_torch_function_impl)


def memory_of(value: Any) -> torch.Tensor | None:
    """The whole storage that a pointer-like object points into, as uint8; None if no live tensor has the address."""
    address = int(value.data_ptr())
    storage = None
    own = None if isinstance(value, torch.Tensor) else getattr(value, "untyped_storage", None)
    if callable(own):
        storage = own()
        if not isinstance(storage, torch.UntypedStorage) or not _holds(storage, address):
            storage = None
    if storage is None:
        storage = _live(address)
    if storage is None:
        return None
    # The user's modes (fake tensors, logging) must not see this tensor.
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return flat.set_(storage, 0, (storage.nbytes(),), (1,))


def _holds(storage: torch.UntypedStorage, address: int) -> bool:
    return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()


def _live(address: int) -> torch.UntypedStorage | None:
    if not address:
        return None
    for look in (None, LIVE_STORAGES.scan_young, LIVE_STORAGES.scan):
        if look is not None:
            look()
        storage = LIVE_STORAGES.lookup(address)
        if storage is not None:
            return storage
    return None


def view_shape(value: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides (elements) that a pointer-like object says it has, or None if it speaks of none."""
    shape, strides = getattr(value, "shape", None), getattr(value, "stride", None)
    strides = strides() if callable(strides) else getattr(value, "strides", None)
    if not isinstance(shape, Sequence) or not isinstance(strides, Sequence) or len(shape) != len(strides):
        return None
    if not all(isinstance(n, int) for n in (*shape, *strides)):
        return None
    return tuple(shape), tuple(strides)
