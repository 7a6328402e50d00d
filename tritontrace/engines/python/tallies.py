"""What a kernel computes, counted in the Python engine: by the rules of `engines.ir.tallies`, when it is done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tritontrace import events
from tritontrace.engines.ir.codegen import triton_dtype
from tritontrace.engines.ir.runtime import MemorySite
from tritontrace.engines.ir.tallies import SCALED_FORMATS
from tritontrace.engines.ir.tree import Type
from tritontrace.engines.python import folds
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.watching import Attributes, Follower

__all__ = ["Tallies"]


class Tallies(Follower):
    """Tells of every operation.

    Its companions are ``"dot"`` for one that begins with zeros (what is added to it is a part of it), and ``"value"`` for a
    number that looks like a constant and is none.
    """

    key = "tallies"
    inside_maps = True

    def moves(self, operands: Any) -> bool:
        return False

    def _tell(self, name: str, counts: dict[tuple[str, str], int]) -> None:
        if counts:
            builder = self.builder
            site = builder.sites.event(f"tritontrace.tally {name}", tuple(counts.values()), "")
            site.attributes = {"operations": counts}
            builder.rt.before(events.Work(builder.rt.launch, site, builder.frame))

    def elementwise(self, name: str, operands: list[Handle], result: Handle, attributes: Attributes) -> None:
        if name == "tt.addptr":
            return
        self._computed([result])
        if name in ("arith.addf", "arith.addi") and any(self.get(handle) == "dot" for handle in operands):
            return
        if name == "arith.subf" and self._zero(operands[0]):
            return
        if name == "tt.extern_elementwise":
            name = f"{name}:{attributes['symbol']}"
        self._tell(name, {(name, triton_dtype(result.type.element)): math.prod(result.type.shape)})

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        self._computed(results)
        shape = operands[0].type.shape
        times = math.prod(shape) // shape[axis] * (shape[axis] - 1)
        counts: Counter[tuple[str, str]] = Counter()
        for name, made in folds.combines(operands, write):
            counts[name, triton_dtype(made.element)] += times
        self._tell(f"tt.{kind}", {key: count for key, count in counts.items() if count})

    def dot(self, operands: list[Handle], result: Handle, precision: str) -> None:
        self._computed([result])
        a, b = operands[0].type, operands[1].type
        element = triton_dtype(a.element)
        if a.element == "f32" and precision != "ieee":
            element = precision
        self._tell("tt.dot", {("tt.dot", element): math.prod(a.shape) * b.shape[-1]})
        if self._zero(operands[2]):
            self.put(result, "dot")

    def mixed(self, name: str, operands: list[Handle], results: list[Handle], attributes: Attributes) -> None:
        self._computed(results)
        if name == "tt.dot_scaled":
            a: Type = operands[0].type
            packed = 2 if attributes["format"] == "E2M1" and attributes["packed"] else 1
            count = math.prod(results[0].type.shape) * a.shape[-1] * packed
            self._tell(name, {(name, SCALED_FORMATS[attributes["format"]]): count})

    def passed(self, operands: Iterable[Handle], results: Iterable[Handle], name: str = "") -> None:
        if any(self.get(handle) is not None for handle in operands):
            for result in results:
                self.put(result, "value")

    def loaded(self, site: MemorySite, mask: Handle | None, other: Handle | None, result: Handle) -> None:
        self._computed([result])

    def _computed(self, results: Iterable[Handle]) -> None:
        for result in results:
            if getattr(result.value, "size", 0) == 1:
                self.put(result, "value")

    def _zero(self, handle: Handle) -> bool:
        """True for a constant of zeros."""
        return bool(self.get(handle) is None and handle.value.size == 1 and not handle.value.any())
