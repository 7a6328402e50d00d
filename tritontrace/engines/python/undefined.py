"""Undefined lanes in the Python engine: what companions mean is the IR engine's (`engines.ir.undefined`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tritontrace import events
from tritontrace.engines.ir import undefined
from tritontrace.engines.ir.definedness import DECIDED, MOST_LOADS
from tritontrace.engines.ir.locations import users_place
from tritontrace.engines.ir.mixing import MIXING
from tritontrace.engines.ir.runtime import MemorySite
from tritontrace.engines.ir.values import dense
from tritontrace.engines.python.handles import Handle
from tritontrace.engines.python.watching import Attributes, Follower, Watched

__all__ = ["ApartLanes", "UndefinedLanes"]

_THROUGH = "through"


class UndefinedLanes(Follower):
    """Masked-off lanes of loads without ``other``: one bit for each such load.

    Beside its companion a handle has, by bit, the first operation on the way to it in which lanes met others.
    """

    key = "undefined"

    def __init__(self, builder: Watched) -> None:
        super().__init__(builder)
        self.apart = ApartLanes(builder)
        self.origins: list[MemorySite | None] = []
        self._bits: dict[int, int] = {}

    def parts(self) -> list[Follower]:
        return [self.apart, self]

    def put(self, handle: Handle, companion: Any) -> None:
        super().put(handle, companion if companion is not None and companion.any() else None)

    def loaded(self, site: MemorySite, mask: Handle | None, other: Handle | None, result: Handle) -> None:
        if mask is None:
            return
        if other is not None:
            if self.get(other) is not None:
                self.put(result, undefined.undefined_unmasked(mask.value, self.get(other)))
                self.apart.put(result, undefined.undefined_unmasked(mask.value, self.apart.full(other)))
                self.passed([other], [result])
            return
        bit = self._bits.get(site.event.id)
        if bit is None:
            if len(self.origins) == MOST_LOADS:
                return
            bit = self._bits[site.event.id] = len(self.origins)
            self.origins.append(site)
        made = undefined.undefined_seed(self.builder.frame, mask.value, bit, False)
        self.put(result, made)
        self.apart.put(result, made)

    def elementwise(self, name: str, operands: list[Handle], result: Handle, attributes: Attributes) -> None:
        if not self.any_of(operands):
            return
        bits = [self.full(handle) for handle in operands]
        if name == "arith.select":
            made = undefined.undefined_select(operands[0].value, *bits)
        elif name in DECIDED:
            a, b = (handle.value for handle in operands)
            made = undefined.undefined_logic(a, b, bits[0], bits[1], DECIDED[name])
        else:
            made = undefined.undefined_any(*bits)
        self._made(name, operands, [result], made)

    def mixed(self, name: str, operands: list[Handle], results: list[Handle], attributes: Attributes) -> None:
        found = [self.full(handle) for handle in operands if self.get(handle) is not None]
        for result in results if found else ():
            alike = all(handle.type.shape == result.type.shape for handle in operands)
            made = undefined.undefined_any(*found) if alike else undefined.undefined_all(len(result.type.shape), *found)
            self._made(name, operands, [result], made)

    def folded(self, kind: str, operands: list[Handle], results: list[Handle], axis: int, reverse: bool, write: Any) -> None:
        found = [self.full(handle) for handle in operands if self.get(handle) is not None]
        if not found:
            return
        if kind == "reduce":
            made = undefined.undefined_reduce(axis, *found)
        else:
            made = undefined.undefined_scan(axis, reverse, operands[0].type.shape[axis], *found)
        self._made(f"tt.{kind}", operands, results, made)

    def dot(self, operands: list[Handle], result: Handle, precision: str) -> None:
        if self.any_of(operands):
            made = undefined.undefined_dot(*(self.full(handle) for handle in operands))
            self._made("tt.dot", operands, [result], made)

    def histogram(self, value: Handle, mask: Handle | None, result: Handle) -> None:
        used = [value] if mask is None else [value, mask]
        if self.any_of(used):
            found = [self.full(handle) for handle in used]
            if mask is not None:
                found = [undefined.undefined_kept(mask.value, *found)]
            self._made("tt.histogram", used, [result], undefined.undefined_all(1, *found))

    def used(self, site: MemorySite, operands: list[tuple[Handle | None, str]], mask: Any = None) -> None:
        for handle, role in operands:
            if handle is not None and self.get(handle) is not None:
                masked = mask if role in ("value", "address") else None
                self._sink(site.event, "value" if role == "compared" else role, handle, masked)

    def branch(self, value: Handle) -> None:
        if self.get(value) is not None:
            self._sink(self.builder.sites.event("scf.if", (), ""), "branch", value, None)

    # -- where lanes met others ----------------------------------------------------------------------------------------

    def _made(self, name: str, operands: list[Handle], results: list[Handle], made: Any) -> None:
        found = [self.apart.full(handle) for handle in operands if self.apart.get(handle) is not None]
        for result in results:
            self.put(result, made)
            if found and name not in MIXING:
                self.apart.put(result, made & undefined.undefined_any(*found))
        self.passed(operands, results, name)

    def passed(self, operands: Iterable[Handle], results: Iterable[Handle], name: str = "") -> None:
        mixer = self.builder.sites.event(name, (), "") if name in MIXING else None
        through: dict[int, events.Site] = {}
        for handle in operands:
            bits = self.get(handle)
            if bits is None:
                continue
            known = handle.companions.get(_THROUGH) or {}
            if mixer is not None:
                every = int(np.bitwise_or.reduce(bits, axis=None))
                known = {**{bit: mixer for bit in range(len(self.origins)) if every >> bit & 1}, **known}
            for bit, site in known.items():
                if bit not in through or site.id < through[bit].id:
                    through[bit] = site
        for result in results:
            if through and self.get(result) is not None:
                result.companions[_THROUGH] = through

    def _sink(self, use: events.Site, role: str, handle: Handle, mask: Any) -> None:
        bits, apart = self.get(handle), self.apart.get(handle)
        if apart is not None:
            apart = int(np.bitwise_or.reduce(np.where(True if mask is None else dense(mask), apart, 0), axis=None))
        known = handle.companions.get(_THROUGH) or {}
        through = {bit: users_place(site) for bit, site in known.items() if not apart or not apart >> bit & 1}
        undefined.undefined_sink(self.builder.frame, use, through, role, self.origins, False, bits, mask)


class ApartLanes(Follower):
    """Which undefined lanes came by themselves, having met no others; `UndefinedLanes` says which."""

    key = "apart"
    gathers = False

    def put(self, handle: Handle, companion: Any) -> None:
        super().put(handle, companion if companion is not None and companion.any() else None)
