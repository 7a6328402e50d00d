"""What stands where Triton's compiler has an SSA value: an array, its IR type, and the pointer argument it comes from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir.tree import Type

__all__ = ["Handle", "block_of", "constant", "full"]


class Handle:
    """One value of the running program.

    `value` is an array ``[1, *block]`` in the engine's compute form (`engines.ir.numerics`), in which a broadcast axis may have
    length 1; for a descriptor or a block pointer it is a `Descriptor`. `root` names the pointer argument that a pointer
    certainly comes from, or is None. `companions` is there only where values are followed (`watching`).
    """

    __slots__ = ("companions", "root", "type", "value")

    companions: dict[str, Any]

    def __init__(self, value: Any, type: Type, root: str | None = None) -> None:
        self.value = value
        self.type = type
        self.root = root

    def get_type(self) -> Type:
        """The IR type, under the name that Triton's values have for it."""
        return self.type

    # What Triton's frontend notes for its compiler changes no value.
    def set_attr(self, name: str, value: Any) -> None:
        """An attribute for the compiler; ignored."""

    def set_loc(self, location: Any) -> None:
        """A location for the compiler; ignored, the running frame has it."""

    def get_loc(self) -> None:
        """No location."""


def constant(value: Any, type: Type, dtype: Any) -> Handle:
    """The scalar `value`, which must be one of `dtype`."""
    return Handle(np.array([value], dtype), type)


def block_of(handle: Handle) -> tuple[int, ...]:
    """The tile that a handle's lanes form; inside a combine function that is the array's, not the (scalar) type's."""
    return handle.type.shape if handle.type.shape else tuple(handle.value.shape[1:])


def full(handle: Handle) -> Any:
    """The value at its full shape ``block``, without the program axis."""
    shape = block_of(handle)
    return np.broadcast_to(handle.value, (1, *shape))[0] if shape else handle.value.reshape(-1)[0]
