"""The thread-local slot through which torch hands our scopes to autograd's backward threads.

Autograd runs backward functions on threads of its own (one per device; on the CPU also once reentrant backward calls
nest too deep). No Python context reaches them, but torch copies the C++ thread-local state of the thread that called
``backward()`` to them, and that state has room for Python objects under a string key. What is put there is found again
on every thread that works for this one, for as long as it does.

This module only moves an object; what it means is `tritontrace.scopes.identity`'s affair. Nothing of torch is touched
before the first session opens.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["fetch", "put", "ready"]

_KEY = "tritontrace.scopes"

_has: Callable[[str], bool] | None = None
_get: Callable[[str], Any] | None = None
_put: Callable[[str, Any], None] | None = None
_remove: Callable[[str], None] | None = None
_looked = False


def ready() -> bool:
    """Look the slot up in torch (once); False, after one warning in the process, where this torch has none."""
    global _has, _get, _put, _remove, _looked
    if not _looked:
        import torch

        core = torch._C
        try:
            has, get, put_in = core._is_key_in_tls, core._get_obj_in_tls, core._stash_obj_in_tls
        except AttributeError:
            warnings.warn(
                "this torch cannot hand Python objects to autograd's threads (it has no torch._C._stash_obj_in_tls): "
                'kernels launched by a backward pass on such a thread are seen only by sessions with scope="process"',
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            # Older versions cannot take a key out again; there the slot is set to None instead.
            _remove = getattr(core, "_remove_obj_from_tls", None)
            _has, _get, _put = has, get, holding(put_in, _remove)
        _looked = True
    return _put is not None


def holding(put_in: Callable[[str, Any], None], remove: Callable[[str], None] | None) -> Callable[[str, Any], None]:
    """`put_in` so that the slot holds a reference of its own to what is put there.

    torch 2.11 takes none and lets go of one all the same when the slot is overwritten (measured; 2.13 is right): the object
    is then freed under whoever has it. There a reference is made for the slot to let go of.
    """
    probe = object()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(probe))  # what a torch that takes none lets go of
    before = sys.getrefcount(probe)
    put_in(_KEY, probe)
    holds = sys.getrefcount(probe) > before

    def put_with_reference(key: str, value: Any) -> None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        put_in(key, value)

    if holds:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(probe))
    safe = put_in if holds else put_with_reference
    if remove is not None:
        remove(_KEY)
    else:
        safe(_KEY, None)
    return safe


def fetch() -> Any:
    """What lies in this thread's slot, or None. Costs about 0.1 µs; never asks torch for anything it lacks."""
    if _has is None or _get is None or not _has(_KEY):
        return None
    return _get(_KEY)


def put(value: Any) -> None:
    """Set this thread's slot; None empties it."""
    if _put is None:
        return
    if value is None and _remove is not None:
        if _has is not None and _has(_KEY):
            _remove(_KEY)
        return
    _put(_KEY, value)
