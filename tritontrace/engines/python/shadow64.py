"""Everything once more in float64, in the Python engine: what `engines.ir.shadow64` writes into the IR, on handles."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritontrace.engines.ir import tensors
from tritontrace.engines.ir.ops import ELEMENTWISE
from tritontrace.engines.ir.runtime import MemorySite
from tritontrace.engines.ir.shadow64 import NO_TWIN, SAME, shadow_compare
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python import folds
from tritontrace.engines.python.elementwise import evaluator
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.values import NeedsLanesError
from tritontrace.engines.python.watching import Attributes, Follower, NoTwinError

__all__ = ["Shadow64"]


class Shadow64(Follower):
    """What each float would be. A value without a companion is what it is from here on; a scalar, splat or not, is a constant."""

    key = "shadow"
    element = "f64"

    def default(self, handle: Handle) -> Any:
        return np.asarray(handle.value, np.float64)

    def moves(self, operands: Any) -> bool:
        return any(handle.type.is_float for handle in operands) and self.any_of(operands)

    def elementwise(self, name: str, operands: list[Handle], result: Handle, attributes: Attributes) -> None:
        if not result.type.is_float or name in NO_TWIN or name not in ELEMENTWISE:
            return
        if name in SAME:
            self.put(result, self.full(operands[0]))
            return
        kinds = tuple([_wide(handle.type) for handle in operands])
        function = evaluator(name, kinds, _wide(result.type), tuple(attributes.items()))
        values = [self.full(handle) if handle.type.is_float else handle.value for handle in operands]
        self.put(result, np.asarray(function(*values)))

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        if not any(handle.type.is_float for handle in operands):
            return
        wide = [Handle(self.full(v), _wide(v.type)) if v.type.is_float else v for v in operands]
        self.builder.twin = True
        try:
            made = folds.folded_again(wide, kind, axis, write, reverse)
        except (NoTwinError, NeedsLanesError):
            return
        finally:
            self.builder.twin = False
        for result, companion in zip(results, made, strict=True):
            if result.type.is_float:
                self.put(result, np.asarray(companion).reshape(result.value.shape))

    def loaded(self, site: MemorySite, mask: Handle | None, other: Handle | None, result: Handle) -> None:
        if result.type.is_float:
            self.put(result, self.default(result))

    def dot(self, operands: list[Handle], result: Handle, precision: str) -> None:
        if result.type.is_float:
            a, b, c = (self.full(handle) for handle in operands)
            shapes = operands[0].type.shape, operands[1].type.shape
            self.put(result, tensors.dot(a, b, c, *shapes, "f64", ("f64", "f64"), "ieee"))

    def used(self, site: MemorySite, operands: list[tuple[Handle | None, str]], mask: Any = None) -> None:
        for handle, role in operands:
            if handle is None or role != "value" or not handle.type.is_float:
                continue
            if self.get(handle) is not None or handle.value.size > 1:
                shadow_compare(self.builder.frame, site.event, handle.value, self.full(handle), mask)


def _wide(kind: Type) -> Type:
    return Type(kind.shape, "f64") if kind.is_float else kind
