"""Who accesses memory: a site in one of the ways that decide what it may meet without order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritontrace import events

__all__ = ["Actor", "Kind", "acquires", "kind_of_site", "meet", "releases"]


class Kind(IntEnum):
    """How an access touches memory, as other programs see it. Higher kinds are named first in a finding."""

    LOOK = 0
    """An atomic access that writes nothing: an atomic load, a compare-and-swap that failed, a volatile load."""
    ATOMIC = 1
    """An atomic access that may write, at a scope that holds between programs."""
    LOCAL_LOOK = 2
    """Like `LOOK`, but atomic within its own program only (scope ``cta``)."""
    LOAD = 3
    """A plain load."""
    LOCAL = 4
    """Like `ATOMIC`, but atomic within its own program only."""
    STORE = 5
    """A plain store."""

    @property
    def writes(self) -> bool:
        """Whether memory may change."""
        return self in (Kind.STORE, Kind.ATOMIC, Kind.LOCAL)

    @property
    def atomic(self) -> bool:
        """Whether the access is atomic for other programs."""
        return self in (Kind.LOOK, Kind.ATOMIC)


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """A site, the tensor it reaches, and its kind; `number` tells actors of one launch apart."""

    number: int
    site: events.Site
    tensor: str | None
    kind: Kind
    size: int

    @property
    def access(self) -> str:
        """``"load"``, ``"store"`` or ``"atomic"``."""
        if "atomic" in self.site.op or "reduce" in self.site.op or self.kind in (Kind.ATOMIC, Kind.LOCAL, Kind.LOCAL_LOOK):
            return "atomic"
        return "store" if self.kind is Kind.STORE else "load"


def meet(a: Actor, b: Actor) -> bool:
    """Whether accesses of `a` and `b` to one byte, by two programs without order, are a race."""
    if not (a.kind.writes or b.kind.writes):
        return False
    return not (a.kind.atomic and b.kind.atomic and a.size == b.size)


def kind_of_site(site: events.Site) -> Kind:
    """What a site may at most be, from what is known before it runs."""
    if "atomic" in site.op or "reduce" in site.op:
        local = site.attributes.get("scope") == "cta"
        if site.attributes.get("operation") == "load" or site.op == "tt.atomic_load":
            return Kind.LOCAL_LOOK if local else Kind.LOOK
        return Kind.LOCAL if local else Kind.ATOMIC
    if "load" in site.op or "gather" in site.op:
        return Kind.LOOK if site.attributes.get("volatile") else Kind.LOAD
    return Kind.STORE


def acquires(sem: str, scope: str) -> bool:
    """Whether an atomic that reads what another program released is ordered behind it."""
    return scope != "cta" and sem in ("acquire", "acq_rel")


def releases(sem: str, scope: str) -> bool:
    """Whether an atomic publishes what its program did before."""
    return scope != "cta" and sem in ("release", "acq_rel")
