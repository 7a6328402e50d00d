"""An access that is made again and again, each time a step further: as long as it goes on, a counter goes up and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritontrace.engines.ir.values import Separable

if TYPE_CHECKING:
    from tritontrace.clients.races.forms import Form
    from tritontrace.clients.races.log import Region

__all__ = ["Repeats"]


class Repeats:
    """What one site did last: `placed` says where the first access lies, `count` how many there are, `step` bytes apart.

    A loop moves a pointer by adding constants to it; all its other terms stay the same objects, and that is what is asked. Each
    part stays in its own memory. `version` is that of the programs' epochs, which are `epochs` then.
    """

    __slots__ = ("_room", "address", "count", "epochs", "ids", "placed", "step", "time", "version")

    def __init__(self, address: Any, placed: list[tuple[Region, Form]], ids: Any, time: int, version: int, epochs: Any) -> None:
        self.address = address
        self.placed = placed
        below, above = -(1 << 63), 1 << 63
        for region, form in placed:
            low, high = form.bounds()
            below = max(below, region.shadow.base - low)
            above = min(above, region.shadow.base + region.shadow.nbytes - high)
        self._room = below, above
        self.ids = ids
        self.time = time
        self.version = version
        self.epochs = epochs
        self.count = 1
        self.step = 0

    def goes_on(self, address: Any, ids: Any, version: int) -> bool:
        """Whether an access of all lanes at `address` is one more, which is counted then."""
        first = self.address
        if ids is not self.ids or version != self.version or type(address) is not Separable:
            return False
        if address.program is not first.program or not _same(address.axes, first.axes):
            return False
        distance = address.constant - first.constant
        if not self._room[0] <= distance <= self._room[1]:
            return False
        if self.count == 1:
            if distance:
                self.step, self.count = distance, 2
            return True
        turn, rest = divmod(distance, self.step)
        if rest or not 0 <= turn <= self.count:
            return False
        self.count = max(self.count, turn + 1)
        return True


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return a is b or (len(a) == len(b) and all(x is y for x, y in zip(a, b)))
