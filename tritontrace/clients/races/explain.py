"""Conflicts as findings: one for each access site and tensor, with both sides, and words that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace.clients.races.actors import Actor, Kind
from tritontrace.clients.races.conflicts import Conflict
from tritontrace.clients.races.shadow import CHANGED, Shadow
from tritontrace.distinct import distinct, distinct_rows
from tritontrace.findings import Finding

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.launch import Launch

__all__ = ["LaneFaults", "findings_of"]

Int64s = npt.NDArray[np.int64]
Weak = tuple["events.Site", str, str]

_MOST_ELEMENTS = 1 << 22
"""Elements that a finding lists."""
_MOST_BY_PROGRAM = 1 << 22
"""Elements, over all programs together, that a finding lists program by program."""


@dataclass(slots=True, eq=False)
class LaneFaults:
    """Lanes of one store that wrote different values to one element: rows of (program, first byte, bytes)."""

    actor: Actor
    rows: list[Int64s] = field(default_factory=list)

    def add(self, rows: Int64s) -> None:
        """Adds faults; repetitions are dropped when there are many."""
        self.rows.append(rows)
        if len(self.rows) > 64:
            self.rows = [distinct_rows(np.concatenate(self.rows))]


@dataclass(slots=True, eq=False)
class _Partner:
    """One conflict seen from the site that the finding is about."""

    conflict: Conflict
    shadow: Shadow
    turned: bool
    benign: bool

    @property
    def mine(self) -> Actor:
        return self.conflict.b if self.turned else self.conflict.a

    @property
    def other(self) -> Actor:
        return self.conflict.a if self.turned else self.conflict.b

    @property
    def my_hits(self) -> Int64s:
        return self.conflict.b_hits if self.turned else self.conflict.a_hits

    @property
    def other_hits(self) -> Int64s:
        return self.conflict.a_hits if self.turned else self.conflict.b_hits

    @property
    def pairs(self) -> Int64s:
        return self.conflict.pairs[:, ::-1] if self.turned else self.conflict.pairs


def findings_of(
    launch: Launch,
    client: str,
    conflicts: Sequence[tuple[Shadow, Conflict]],
    lanes: Sequence[LaneFaults],
    weak: Sequence[Weak],
) -> list[Finding]:
    """The findings of a launch, in the order of their lines. `weak` are atomics (site, sem, scope) that order too little."""
    by_site: dict[tuple[int, str | None], list[_Partner]] = {}
    for shadow, conflict in conflicts:
        turned = _rank(conflict.b) > _rank(conflict.a)
        benign = conflict.a.kind is Kind.STORE and conflict.b.kind is Kind.STORE and _agree(shadow, conflict)
        partner = _Partner(conflict, shadow, turned, benign)
        by_site.setdefault((partner.mine.site.id, partner.mine.tensor), []).append(partner)
    out = [_finding(launch, client, partners, weak) for partners in by_site.values()]
    out += [_lane_finding(launch, client, faults) for faults in lanes]
    out.sort(key=lambda f: (f.location.file, f.location.line, f.location.column) if f.location else ("", 0, 0))
    return out


def _rank(actor: Actor) -> tuple[int, int, int]:
    """Which of two sites a finding is about: the plainer write, else the earlier line."""
    location = actor.site.location
    return int(actor.kind), -(location.line if location else 0), -(location.column if location else 0)


def _agree(shadow: Shadow, conflict: Conflict) -> bool:
    """Whether all stores to the memory in question left the same values."""
    if not shadow.noted:
        return False
    for group in distinct(np.concatenate([conflict.a_hits[:, 1], conflict.b_hits[:, 1]])).tolist():
        for first, last in conflict.groups[group].tolist():
            if (shadow.notes[first:last] & CHANGED).any():
                return False
    return True


def _finding(launch: Launch, client: str, partners: list[_Partner], weak: Sequence[Weak]) -> Finding:
    mine = partners[0].mine
    partners = sorted(partners, key=lambda p: _preference(mine, p))
    chief = partners[0]
    hits = np.concatenate([p.my_hits for p in partners])
    ids = distinct(hits[:, 0])
    elements, by_program, total = _elements(launch, mine, partners)
    finding = Finding(
        kind="race",
        message="",
        client=client,
        access=mine.access,
        tensor=mine.tensor,
        location=mine.site.location,
        call_stack=mine.site.call_stack,
        programs=_programs(launch, ids),
        elements=elements,
        elements_by_program=by_program,
        launch=launch,
        benign=all(p.benign for p in partners),
        other=_side(launch, chief),
        details={
            "element_type": mine.site.dtype,
            "element_bytes": mine.size,
            "between": " and ".join(dict.fromkeys(f"{p.other.access}/{mine.access}" for p in partners)),
            "complete": all(p.conflict.complete for p in partners),
        },
    )
    if total > len(elements):
        finding.details |= {"all_elements_listed": False, "elements_in_all": total}
    sides = _distinct([_side(launch, p) for p in partners])
    if finding.other is not None:
        finding.other["all"] = sides
    _explain(finding, partners, sides, weak)
    return finding


def _preference(mine: Actor, partner: _Partner) -> tuple[Any, ...]:
    """The partner that tells most comes first: a real fault, another site, another line."""
    other = partner.other
    location = other.site.location
    return partner.benign, other.site is mine.site, location.line if location else 0, location.column if location else 0


def _side(launch: Launch, partner: _Partner) -> dict[str, Any]:
    """The second access of a race, as `Finding.other` keeps it."""
    actor = partner.other
    pairs = partner.pairs
    return {
        "location": actor.site.location,
        "call_stack": actor.site.call_stack,
        "access": actor.access,
        "tensor": actor.tensor,
        "programs": _programs(launch, distinct(partner.other_hits[:, 0])),
        "pairs": np.stack([_programs(launch, pairs[:, 0]), _programs(launch, pairs[:, 1])], axis=1),
    }


def _distinct(sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each site: a failed and a successful compare-and-swap are the same access for whoever reads this."""
    out: dict[Any, dict[str, Any]] = {}
    for side in sides:
        key = (side["location"], side["call_stack"], side["access"], side["tensor"])
        known = out.get(key)
        if known is None:
            out[key] = dict(side)
        else:
            both = np.concatenate([known["programs"], side["programs"]])
            known["programs"] = distinct_rows(both[:, ::-1])[:, ::-1]
            known["pairs"] = distinct_rows(np.concatenate([known["pairs"], side["pairs"]]).reshape(-1, 6)).reshape(-1, 2, 3)
    return list(out.values())


def _programs(launch: Launch, ids: Int64s) -> npt.NDArray[np.int32]:
    x, y, _ = launch.grid
    return np.column_stack([ids % x, ids // x % y, ids // (x * y)]).astype(np.int32)


def _elements(launch: Launch, actor: Actor, partners: list[_Partner]) -> tuple[Int64s, dict[tuple[int, int, int], Int64s], int]:
    """(elements, elements by program, how many there are) in elements of the access, relative to the argument's data pointer."""
    info = launch.arguments.get(actor.tensor) if actor.tensor is not None else None
    if info is None or not info.is_tensor:
        return np.zeros(0, np.int64), {}, 0
    spans: list[dict[int, Int64s]] = []  # of each partner, group -> (first element, behind the last)
    size = 0
    for partner in partners:
        shadow = partner.shadow
        mine: dict[int, Int64s] = {}
        groups, counts = np.unique(partner.my_hits[:, 1], return_counts=True)
        for group, count in zip(groups.tolist(), counts.tolist()):
            bytes_of = partner.conflict.groups[group] * shadow.granule + (shadow.base - info.data_ptr)
            span = mine[group] = np.column_stack([bytes_of[:, 0] // actor.size, -(-bytes_of[:, 1] // actor.size)])
            size += int((span[:, 1] - span[:, 0]).sum()) * count
        spans.append(mine)
    listed, total = _listed(np.concatenate([span for mine in spans for span in mine.values()]))
    if size > _MOST_BY_PROGRAM:
        return listed, {}, total
    by_program: dict[int, set[tuple[int, int]]] = {}
    for number, partner in enumerate(partners):
        for program, group in partner.my_hits.tolist():
            by_program.setdefault(program, set()).add((number, group))
    ids = np.array(sorted(by_program), np.int64)
    out: dict[tuple[int, int, int], Int64s] = {}
    shared: dict[frozenset[tuple[int, int]], Int64s] = {}
    for program, row in zip(ids.tolist(), _programs(launch, ids).tolist()):
        keys = frozenset(by_program[program])
        if keys not in shared:
            shared[keys] = distinct(np.concatenate([_ranges(*spans[number][group].T) for number, group in keys]))
        out[row[0], row[1], row[2]] = shared[keys]
    return listed, out, total


def _listed(spans: Int64s) -> tuple[Int64s, int]:
    """(the first `_MOST_ELEMENTS` elements of some spans, how many there are in all)."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    heads = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), spans[1:, 0] > reach[:-1]]))
    first, last = spans[heads, 0], reach[np.append(heads[1:], len(spans)) - 1]
    behind = np.cumsum(last - first)
    total = int(behind[-1])
    if total > _MOST_ELEMENTS:
        some = int(np.searchsorted(behind, _MOST_ELEMENTS)) + 1
        first, last = first[:some], last[:some].copy()
        last[-1] -= int(behind[some - 1]) - _MOST_ELEMENTS
    return _ranges(first, last), total


def _ranges(first: Int64s, last: Int64s) -> Int64s:
    counts = last - first
    behind = np.cumsum(counts)
    out: Int64s = np.arange(int(behind[-1])) - np.repeat(behind - counts, counts) + np.repeat(first, counts)
    return out


def _lane_finding(launch: Launch, client: str, faults: LaneFaults) -> Finding:
    rows = distinct_rows(np.concatenate(faults.rows))
    actor = faults.actor
    info = launch.arguments.get(actor.tensor) if actor.tensor is not None else None
    base = info.data_ptr if info is not None else 0
    ids, starts = np.unique(rows[:, 0], return_index=True)
    programs = _programs(launch, ids)
    first, last = (rows[:, 1] - base) // actor.size, -(-(rows[:, 1] + rows[:, 2] - base) // actor.size)
    known = info is not None and info.is_tensor
    parts = zip(np.split(first, starts[1:]), np.split(last, starts[1:]))
    by_program = {(int(p[0]), int(p[1]), int(p[2])): distinct(_ranges(*part)) for p, part in zip(programs, parts)}
    finding = Finding(
        kind="race",
        message="",
        client=client,
        access=actor.access,
        tensor=actor.tensor,
        location=actor.site.location,
        call_stack=actor.site.call_stack,
        programs=programs,
        elements=distinct(_ranges(first, last)) if known else np.zeros(0, np.int64),
        elements_by_program=by_program if known else {},
        launch=launch,
        other={
            "location": actor.site.location,
            "call_stack": actor.site.call_stack,
            "access": actor.access,
            "tensor": actor.tensor,
            "programs": programs,
            "pairs": np.stack([programs, programs], axis=1),
        },
        details={
            "element_type": actor.site.dtype,
            "element_bytes": actor.size,
            "between": "lanes of one store",
            "same_program": True,
            "complete": True,
        },
    )
    finding.details["pair"] = f"lanes of one store by program {_name(programs[0])}{_more(len(programs))}"
    finding.details["why"] = "they write different values to the same element, and any one of them may stay"
    finding.details["remedy"] = "mask all lanes but one, reduce the values first, or use an atomic"
    finding.message = _sentence(finding)
    return finding


# -- words -------------------------------------------------------------------------------------------------------------


_COUNTER = (
    "use tl.atomic_add (or the tl.atomic_* that fits), which loads, changes and stores as one; or take turns by acquire and "
    "release atomics"
)
"""What to do about programs that load an element, change it, and store it."""


def _reads_what_it_writes(partner: _Partner) -> bool:
    """Whether stores race with loads of the same elements by programs that store there themselves: a counter, a sum."""
    if (partner.mine.kind, partner.other.kind) != (Kind.STORE, Kind.LOAD) or partner.benign:
        return False
    stores, loads = (hits[:, 0] << 32 | hits[:, 1] for hits in (partner.my_hits, partner.other_hits))
    return bool(np.isin(loads, stores).all())


def _explain(finding: Finding, partners: list[_Partner], sides: list[dict[str, Any]], weak: Sequence[Weak]) -> None:
    """Fills in the message and its parts: who meets, why nothing orders them, what to do."""
    chief = partners[0]
    mine, other = chief.mine, chief.other
    assert finding.launch is not None
    left, right = (_name(_programs(finding.launch, ids)[0]) for ids in (chief.pairs[:1, 0], chief.pairs[:1, 1]))
    first, second = _verb(mine), _verb(other)
    if other.site is mine.site:
        pair = f"{first} by program {left}, and the same {second} by program {right}"
    else:
        pair = f"{first} by program {left}, and {second} by program {right} at {_line(other)}"
    lines = {side["location"].line for side in sides if side["location"] not in (None, other.site.location)}
    if lines:
        pair += f" (also against line{'s' if len(lines) > 1 else ''} {', '.join(map(str, sorted(lines)))})"
    finding.details["pair"] = pair
    if finding.benign:
        finding.details["why"] = "nothing orders them, but all store the same value"
        finding.details["remedy"] = "let one program store it, to be safe"
    else:
        finding.details["why"] = _why(chief, weak)
        counts = not weak and any(_reads_what_it_writes(partner) for partner in partners)
        finding.details["remedy"] = _COUNTER if counts else _advice(mine.kind, other.kind)
    finding.message = _sentence(finding)


def _sentence(finding: Finding) -> str:
    details = finding.details
    text = f"race on {_what(finding)}{_where(finding)}: {details['pair']}: {details['why']}; {details['remedy']}"
    return f"benign {text}" if finding.benign else text


def _verb(actor: Actor) -> str:
    if actor.kind is Kind.LOOK and actor.access == "load":
        return "volatile load"
    return actor.access


def _why(chief: _Partner, weak: Sequence[Weak]) -> str:
    for actor in (chief.mine, chief.other):
        if actor.kind in (Kind.LOCAL, Kind.LOCAL_LOOK):
            return "an atomic of scope 'cta' is atomic only within its own program"
    if chief.mine.kind.atomic and chief.other.kind.atomic:
        return "atomics of different sizes are not atomic towards each other"
    text = "no release and acquire by atomics orders the two programs"
    # An atomic that is too weak, on other memory than the race itself, may have been meant to order it.
    for site, sem, scope in weak:
        how = "sem='relaxed'" if sem == "relaxed" else f"scope={scope!r}"
        line = f" at line {site.location.line}" if site.location else ""
        return f"{text} (the atomic{line} has {how}, which orders nothing between programs)"
    return text


def _advice(mine: Kind, other: Kind) -> str:
    kinds = {mine, other}
    if kinds & {Kind.LOCAL, Kind.LOCAL_LOOK}:
        return "use scope='gpu'"
    if mine is Kind.STORE and other is Kind.STORE:
        return (
            "give each program elements of its own (by an index or a mask), use tl.atomic_add and its like, or take turns "
            "by acquire and release atomics"
        )
    if mine is Kind.STORE and other is Kind.LOAD:
        return (
            "let the storing program release behind its store (an atomic with sem='release') what the other acquires before "
            "its load (sem='acquire'), or keep them apart by an index or a mask"
        )
    if Kind.LOAD in kinds:
        return "read by an atomic too (tl.atomic_add of 0), or behind an acquire that sees the other program's release"
    if kinds <= {Kind.ATOMIC, Kind.LOOK}:
        return "use one element size for all atomics on this memory"
    return "store by an atomic too (tl.atomic_xchg, with sem='release' if it announces something)"


def _what(finding: Finding) -> str:
    name = finding.tensor or "memory of no argument"
    if not len(finding.elements):
        return name
    rest = finding.details.get("elements_in_all", len(finding.elements)) - 1
    more = f" and {rest} more element{'s' if rest > 1 else ''}" if rest else ""
    return f"{name}[{int(finding.elements[0])}]{more}"


def _where(finding: Finding) -> str:
    kernel = finding.launch.kernel_name if finding.launch is not None else "?"
    return f" in {kernel}" + (f" at {finding.location}" if finding.location is not None else "")


def _line(actor: Actor) -> str:
    location = actor.site.location
    return "an unknown line" if location is None else f"line {location.line}"


def _name(program: npt.NDArray[np.int32]) -> str:
    return str(tuple(int(i) for i in program))


def _more(count: int) -> str:
    return f" (and of {count - 1} more)" if count > 1 else ""
