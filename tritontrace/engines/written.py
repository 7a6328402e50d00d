"""Which bytes of a ``torch.empty`` have been written since: by torch, or by a kernel.

While a session asks for it, a dispatch mode of torch watches the thread that opened the session. A tensor that torch
makes without filling it is filled with a pattern, and its storage gets a *shadow*, one flag per byte. In-place operations and
kernels set the flags. Bytes that somebody else has written (numpy, another thread) no longer hold the pattern, so a byte
counts as unwritten only if both say so.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tritontrace.forking import fork_safe

__all__ = ["WRITTEN", "Shadow", "TorchWatch"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_UNFILLED = frozenset(
    {
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::empty_permuted",
        "aten::new_empty",
        "aten::new_empty_strided",
    }
)

_PERIOD = 251
"""The pattern repeats after so many bytes: a prime, so that elements of no width all look alike."""


def _pattern(nbytes: int) -> npt.NDArray[np.uint8]:
    one = np.random.default_rng(0x7E57).integers(1, 256, _PERIOD, dtype=np.uint8)
    return np.resize(one, nbytes)


class Shadow:
    """The flags of one storage: `written` bool ``[nbytes]``, or None once every byte has been written."""

    __slots__ = ("_alive", "address", "nbytes", "written")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._alive: Any = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch gives it no types
        self.address = storage.data_ptr()
        self.nbytes = storage.nbytes()
        self.written: Bools | None = np.zeros(self.nbytes, np.bool_)

    def alive(self) -> bool:
        """False once the storage is gone, and its memory perhaps another's."""
        return not self._alive.expired()

    def mark(self, offsets: Int64s, size: int) -> None:
        """Sets the flags of `size` bytes from each of the byte `offsets` on."""
        if self.written is not None:
            for byte in range(size):
                self.written[offsets + byte] = True

    def mark_view(self, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], size: int) -> None:
        """Sets the flags of the elements of a view; `offset` and `stride` in elements of `size` bytes."""
        if self.written is None or 0 in shape:
            return
        flags = np.lib.stride_tricks.as_strided(
            self.written[offset * size :], (*shape, size), (*(step * size for step in stride), 1), writeable=True
        )
        flags[...] = True

    def unwritten(self, offsets: Int64s, size: int, memory: npt.NDArray[np.uint8]) -> Bools:
        """For each byte offset whether any of the `size` bytes there was never written; `memory` is the storage's bytes."""
        out = np.zeros(offsets.shape, np.bool_)
        if self.written is None:
            return out
        untouched = np.ones(offsets.shape, np.bool_)
        pattern = _pattern(_PERIOD)
        for byte in range(size):
            at = offsets + byte
            missing = ~self.written[at]
            out |= missing
            untouched &= ~missing | (memory[at] == pattern[at % _PERIOD])
        return out & untouched

    def settle(self) -> None:
        """Lets go of the flags if there is nothing left to find."""
        if self.written is not None and bool(self.written.all()):
            self.written = None


class _Written:
    """All shadows of the process, by the storage's address. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._shadows: dict[int, Shadow] = {}
        self._prune_at = 64

    def find(self, address: int, nbytes: int) -> Shadow | None:
        """The shadow of the storage at `address`, if it may have unwritten bytes."""
        shadow = self._shadows.get(address)
        if shadow is None or shadow.written is None or shadow.nbytes != nbytes or not shadow.alive():
            return None
        return shadow

    def created(self, tensor: torch.Tensor) -> None:
        """A tensor that torch has made without filling it."""
        if tensor.is_meta or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
        flat.copy_(torch.from_numpy(_pattern(storage.nbytes())))
        with self._lock:
            if len(self._shadows) >= self._prune_at:
                self._shadows = {at: kept for at, kept in self._shadows.items() if kept.alive() and kept.written is not None}
                self._prune_at = 2 * len(self._shadows) + 64
            self._shadows[storage.data_ptr()] = Shadow(storage)

    def written(self, tensor: torch.Tensor) -> None:
        """A tensor that torch has written to."""
        if tensor.is_meta or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        shadow = self.find(storage.data_ptr(), storage.nbytes())
        if shadow is not None:
            shadow.mark_view(int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.element_size())


WRITTEN = _Written()
"""The process's shadows."""


class TorchWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells `WRITTEN` what one thread's torch operations make and write, from `enter` to `leave`.

    Modes are a stack per thread, and a session may close in any order and on any thread: `leave` takes this one out wherever it
    stands; from another thread it can only be switched off, and then goes when its own thread enters or leaves the next one.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._thread = threading.get_ident()
        self._on = True

    def enter(self) -> None:
        """Watch this thread from now on."""
        self._sweep()
        # Not by `with`: that also sets flags of the whole process, which a mode that ends out of order would leave wrong.
        torch._C._push_on_torch_dispatch_stack(self)

    def leave(self) -> None:
        """Watch no longer."""
        self._on = False
        if threading.get_ident() == self._thread:
            self._sweep()

    @staticmethod
    def _sweep() -> None:
        """Takes the watches that are switched off out of this thread's stack; what other libraries put there stays."""
        depth = torch._C._len_torch_dispatch_stack()
        stack = [torch._C._get_dispatch_stack_at(i) for i in range(depth)]
        first = next((i for i, mode in enumerate(stack) if type(mode) is TorchWatch and not mode._on), None)
        if first is None:
            return
        for _ in range(depth - first):
            torch._C._pop_torch_dispatch_stack(None)
        for mode in stack[first:]:
            if type(mode) is not TorchWatch or mode._on:
                torch._C._push_on_torch_dispatch_stack(mode)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._on:
            schema = func._schema
            if schema.name in _UNFILLED:
                if isinstance(out, torch.Tensor):
                    WRITTEN.created(out)
            elif schema.is_mutable:
                _note_writes(schema, args, kwargs or {})
        return out


def _note_writes(schema: Any, args: Any, kwargs: dict[str, Any]) -> None:
    for position, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is None or not alias.is_write:
            continue
        value = kwargs.get(argument.name) if position >= len(args) else args[position]
        for tensor in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(tensor, torch.Tensor):
                WRITTEN.written(tensor)
