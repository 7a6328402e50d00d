"""Numerics: where NaN and infinity come from, integers that overflow, precision that is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace import events
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.clients.precision import Comparison, Precision
from tritontrace.engines.base import ARITHMETIC, OVERFLOW, SHADOW
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace.launch import Launch

__all__ = ["Numerics", "Precision"]

_MOST_LANES = 1 << 20
"""(program, lane) pairs that are kept for one operation; of programs behind them the first lane is."""

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Numerics(Client):
    """Finds the first operation that makes a NaN or an infinity out of finite operands, and signed integer overflow.

    `reaching`
        Report an operation only for programs in which what it made, or what was computed from that, is stored (by a store or
        an atomic operation, in a lane that its mask lets through). False: wherever it happens.
    `overflow`
        Look for additions, subtractions and multiplications of signed integers that wrap (``"integer_overflow"``).
    `shadow`
        Compute everything in float64, too, and give a `Precision` for each store of floats: ``launch.records["numerics"]``.

    Findings are ``"non_finite"`` and ``"integer_overflow"``; their `details` have ``operation``, ``operands`` (of the first
    lane), ``result``, ``lane`` and ``first`` (whether it is the first one in the programs' order).
    """

    name = "numerics"

    def __init__(self, *, reaching: bool = True, overflow: bool = True, shadow: bool = False) -> None:
        self.reaching = reaching
        self.overflow = overflow
        self.shadow = shadow
        self.instruments = frozenset(
            {ARITHMETIC, *([OVERFLOW] if overflow else []), *([SHADOW] if shadow else [])},
        )
        self._launch: Launch | None = None
        self._made: dict[int, _Site] = {}
        self._wrapped: dict[int, _Site] = {}
        self._compared: dict[int, Comparison] = {}

    def for_launch(self, launch: Launch) -> Numerics:
        """A client of its own for each launch."""
        own = type(self)(reaching=self.reaching, overflow=self.overflow, shadow=self.shadow)
        own._launch = launch
        return own

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens to what the instruments tell."""
        hooks: dict[type[events.Event], Callable[[Any], None]] = {
            events.NonFinite: self._non_finite,
            events.NonFiniteUse: self._use,
            events.IntegerOverflow: self._overflow,
            events.Compared: self._compare,
        }
        hook = hooks.get(op)
        if hook is None or (op is events.IntegerOverflow and not self.overflow) or (op is events.Compared and not self.shadow):
            return None
        return OpCallbacks(before=hook)

    def finalize(self) -> list[Any]:
        """The findings, and a `Precision` for each store."""
        launch = self._launch
        if launch is None:
            return []
        found = [site.finding(launch, self.name, self.reaching) for site in self._made.values()]
        findings = [finding for finding in found if finding is not None]
        for i, finding in enumerate(findings):
            finding.details["first"] = i == 0
        overflows = [site.finding(launch, self.name, False) for site in self._wrapped.values()]
        return [*findings, *overflows, *(comparison.precision() for comparison in self._compared.values())]

    def _non_finite(self, event: events.NonFinite) -> None:
        site = self._made.get(event.site.id)
        if site is None:
            site = self._made[event.site.id] = _Site(event.site, "non_finite", _words(event.site))
        site.add(event, event.lanes, event.operands, event.result)

    def _use(self, event: events.NonFiniteUse) -> None:
        self._made[event.site.id].reach(event)

    def _overflow(self, event: events.IntegerOverflow) -> None:
        site = self._wrapped.get(event.site.id)
        if site is None:
            site = self._wrapped[event.site.id] = _Site(event.site, "integer_overflow", event.operation, event.dtype)
        left, right = event.operands
        exact = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[event.operation](left, right)
        site.add(event, event.lanes, (left, right), exact)

    def _compare(self, event: events.Compared) -> None:
        found = self._compared.get(event.site.id)
        if found is None:
            found = self._compared[event.site.id] = Comparison(event.site)
        found.add(event)


_NAMES = {
    "addf": "+",
    "subf": "-",
    "mulf": "*",
    "divf": "/",
    "precise_divf": "/",
    "approx_divf": "/",
    "remf": "%",
    "truncf": "conversion",
    "fp_to_fp": "conversion",
    "sitofp": "conversion",
    "uitofp": "conversion",
    "add": "+",
    "sub": "-",
    "mul": "*",
}


def _words(site: events.Site) -> str:
    return site.op.rpartition(".")[2]


@dataclass(slots=True)
class _First:
    """What one program did first: its place in the grid, the lane, the operands and the result there."""

    program: tuple[int, int, int]
    lane: int
    operands: str
    result: str


class _Site:
    """One operation: in which programs and lanes it happened, and in which of them it matters."""

    def __init__(self, site: events.Site, kind: str, operation: str, dtype: str = "") -> None:
        self.site = site
        self.kind = kind
        self.operation = operation
        self.dtype = dtype
        self.firsts: dict[tuple[int, int, int], list[_First]] = {}
        self.lanes: dict[tuple[int, int, int], set[int]] = {}
        self.reached: dict[tuple[int, int, int], set[int] | None] = {}
        self.uses: dict[str, int] = {}  # where, and the line of that
        self.first_uses: dict[tuple[int, int, int], events.Site] = {}
        self.kept = 0
        self.iterations: dict[tuple[int, ...], None] = {}

    def add(self, event: events.Event, lanes: Bools, operands: tuple[Any, ...], result: Any) -> None:
        programs = len(event)
        block = result.shape[1:] if self.kind == "non_finite" and self.operation in ("reduce", "scan", "dot") else self.site.block
        full = np.broadcast_to(lanes, (programs, *block)).reshape(programs, -1)
        rows = np.flatnonzero(full.any(axis=1))
        ids = event.programs
        counts = [n for _, n in event.iterations]
        for row in rows:
            program = (int(ids[row, 0]), int(ids[row, 1]), int(ids[row, 2]))
            hit = np.flatnonzero(full[row])
            known = self.lanes.setdefault(program, set())
            firsts = self.firsts.setdefault(program, [])
            if self.kept < _MOST_LANES:
                new = [int(lane) for lane in hit if int(lane) not in known]
                known.update(new)
                self.kept += len(new)
            shown = new if self.kept < _MOST_LANES else [int(hit[0])] if not firsts else []
            if len(self.iterations) < 64 and counts:
                self.iterations[tuple(int(n if isinstance(n, int) else n[row]) for n in counts)] = None
            # the values of every lane in the first programs, and of one lane in the others
            for lane in shown if len(self.firsts) <= 8 and len(firsts) < 64 else shown[:1] if not firsts else []:
                firsts.append(_First(program, lane, *self._values(int(row), lane, block, operands, result)))

    def _values(self, row: int, lane: int, block: tuple[int, ...], operands: tuple[Any, ...], result: Any) -> tuple[str, str]:
        where = np.unravel_index(lane, block) if block else ()

        def at(value: Any) -> Any:
            value = value[row if value.shape[0] > 1 else 0]
            return value[tuple(i if n > 1 else 0 for i, n in zip(where, value.shape))]

        made = str(at(np.asarray(result)))
        if self.operation == "dot":
            a, b, c = (np.asarray(v)[row if len(v) > 1 else 0] for v in operands)
            i, j = int(where[-2]), int(where[-1])
            left = a[..., i if a.shape[-2] > 1 else 0, :]
            right = b[..., :, j if b.shape[-1] > 1 else 0]
            return f"a row with |a| up to {np.abs(left).max()}, a column with |b| up to {np.abs(right).max()}, {at(c)}", made
        if self.operation in ("reduce", "scan") or any(np.asarray(v).ndim != 1 + len(block) for v in operands):
            parts = [np.asarray(v)[row if len(v) > 1 else 0] for v in operands]
            return ", ".join(f"values from {part.min()} to {part.max()}" for part in parts), made
        return ", ".join(str(at(np.asarray(v))) for v in operands), made

    def reach(self, event: events.NonFiniteUse) -> None:
        lanes = np.broadcast_to(event.lanes, (len(event), *event.use.block)).reshape(len(event), -1)
        same = event.use.block == self.site.block and self.operation not in ("reduce", "scan", "dot")
        ids = event.programs
        for row in np.flatnonzero(lanes.any(axis=1)):
            program = (int(ids[row, 0]), int(ids[row, 1]), int(ids[row, 2]))
            self.first_uses.setdefault(program, event.use)
            if not same:
                self.reached[program] = None
            else:
                known = self.reached.setdefault(program, set())
                if known is not None:
                    known.update(int(lane) for lane in np.flatnonzero(lanes[row]))
        self.uses[str(event.use.location)] = event.use.location.line if event.use.location is not None else 0

    def finding(self, launch: Launch, client: str, reaching: bool) -> Finding | None:
        shown: dict[tuple[int, int, int], set[int]] = {}
        for program, lanes in self.lanes.items():
            if not reaching:
                shown[program] = lanes
            elif program in self.reached:
                stored = self.reached[program]
                shown[program] = (lanes & stored if stored is not None else lanes) or lanes
        if not shown:
            return None
        order = sorted(shown, key=lambda p: p[::-1])  # in launch order: x runs fastest
        programs = np.array(order, np.int32).reshape(-1, 3)
        chosen = order[0]
        known = self.firsts.get(chosen, [])
        first = min([f for f in known if f.lane in shown[chosen]] or known, key=lambda f: f.lane)
        shown_lanes = np.array(sorted(set().union(*shown.values())), np.int64)
        name = _NAMES.get(self.operation, self.operation)
        use = self.first_uses.get(chosen)
        details: dict[str, Any] = {
            "operation": name,
            "operands": first.operands,
            "result": first.result,
            "lane": first.lane,
            "program": str(chosen),
            "element_type": self.dtype or self.site.dtype,
            "uses": "; ".join(sorted(self.uses, key=lambda text: self.uses[text])),
        }
        more = f" and {len(programs) - 1} more" if len(programs) > 1 else ""
        where = f" at {self.site.location}" if self.site.location is not None else ""
        by = f"in lane {first.lane} of program {chosen}{more}"
        if self.kind == "non_finite":
            reaches = f", which reaches the store at {use.location}" if use is not None else ""
            message = f"{name}{where} makes {first.result} of ({first.operands}) {by}{reaches}"
        else:
            message = f"{self.dtype} overflow{where}: {name} of ({first.operands}) is {first.result} {by}"
        return Finding(
            kind=self.kind,
            message=message,
            client=client,
            tensor=use.parameter if use is not None else None,
            location=self.site.location,
            call_stack=self.site.call_stack,
            programs=programs,
            iterations=tuple(sorted(self.iterations)),
            launch=launch,
            use=use.location if use is not None else None,
            lanes=shown_lanes,
            details=details,
        )
