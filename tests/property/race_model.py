"""Random launches as events over real memory, and all their races by brute force: every byte, every pair, vector clocks.

The model shares nothing with the detector but the events themselves. It says in the plainest way what a race is:
two accesses of different programs to one byte, at least one a write, not both atomic at a scope that holds
between programs and of one size, neither happening before the other.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch

from tests.unit.made_events import info
from tritontrace import events
from tritontrace.engines.ir.runtime import DenseAddress, DenseMask
from tritontrace.engines.ir.values import Axis, Compare, Mask, Separable
from tritontrace.engines.memory import AddressSpace
from tritontrace.launch import Launch
from tritontrace.source import SourceLocation

FILE = "model.py"


class Batch:
    """Some programs, by linear id, as an engine hands them over."""

    def __init__(self, lanes: np.ndarray, grid: tuple[int, int, int]) -> None:
        self.lanes = lanes
        self.grid = grid

    def program_ids(self) -> np.ndarray:
        x, y, _ = self.grid
        return np.column_stack([self.lanes % x, self.lanes // x % y, self.lanes // (x * y)]).astype(np.int32)

    def iterations(self) -> tuple[Any, ...]:
        return ()

    def __len__(self) -> int:
        return len(self.lanes)


@dataclass
class Op:
    """A site of the drawn kernel."""

    site: events.Site
    kind: str  # load, store, volatile, or an atomic operation
    size: int
    sem: str = "acq_rel"
    scope: str = "gpu"
    used: bool = True


@dataclass
class Access:
    """One lane's access: what the brute force compares."""

    op: Op
    program: int
    first: int
    kind: str  # LOAD, STORE, ATOMIC, LOOK, LOCAL, LOCAL_LOOK
    tick: int
    clock: dict[int, int]


RANK = {"LOOK": 0, "ATOMIC": 1, "LOCAL_LOOK": 2, "LOAD": 3, "LOCAL": 4, "STORE": 5}


@dataclass
class Model:
    """A drawn launch: `run(client)` makes its events and changes memory; afterwards `expected()` knows its races."""

    random: Random
    sizes: tuple[int, ...] = (4,)
    kinds: tuple[str, ...] = ("load", "store")
    sync: bool = False
    peers: bool = True
    grid: tuple[int, int, int] = (4, 1, 1)
    length: int = 24
    accesses: list[Access] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        self.programs = self.grid[0] * self.grid[1] * self.grid[2]
        self.tensor = torch.zeros(self.length * 4, dtype=torch.uint8)
        self.flags = torch.zeros(4, dtype=torch.int32)
        infos = {name: info(name, t, "*i32") for name, t in (("x", self.tensor), ("flags", self.flags))}
        self.launch = Launch("model", grid=self.grid, arguments=infos)
        self.launch.memory = AddressSpace.for_launch([self.tensor, self.flags])
        self.bytes = {"x": self.tensor.numpy(), "flags": self.flags.numpy().view(np.uint8)}
        self.base = {"x": self.tensor.data_ptr(), "flags": self.flags.data_ptr()}
        self.clocks = [defaultdict(int, {p: 1}) for p in range(self.programs)]
        self.published: dict[int, dict[int, int]] = {}
        self.stored: set[int] = set()
        self.changed: set[int] = set()
        self.lane_faults: set[tuple[int, int, int]] = set()
        self.aligned = True
        self.ops = [self._op(i, "x", random.choice(self.kinds)) for i in range(random.randint(1, 5))]
        if self.sync:
            flags = ("cas", "xchg", "add", "aload", "astore", "add", "cas")
            more = [self._op(10 + i, "flags", random.choice(flags)) for i in range(random.randint(1, 4))]
            if random.random() < 0.3:
                more.append(self._op(20, "flags", random.choice(("store", "load", "volatile"))))
            self.ops += more
        if self.peers:
            all_sites = tuple(op.site for op in self.ops)
            for op in self.ops:
                op.site.peers = all_sites

    def _op(self, number: int, tensor: str, kind: str) -> Op:
        random = self.random
        size = 4 if tensor == "flags" else random.choice(self.sizes)
        atomic = kind not in ("load", "store", "volatile")
        names = {"load": "tt.load", "volatile": "tt.load", "store": "tt.store", "cas": "tt.atomic_cas"}
        name = names.get(kind, {"aload": "tt.atomic_load", "astore": "tt.atomic_store"}.get(kind, "tt.atomic_rmw"))
        block: tuple[int, ...] = () if tensor == "flags" else random.choice(((), (), (4,), (3,), (2, 4), (2, 2)))
        sem = random.choice(("acq_rel", "acq_rel", "acquire", "release", "relaxed"))
        scope = random.choice(("gpu", "gpu", "gpu", "sys", "cta"))
        used = kind in ("cas", "aload") or (kind != "astore" and random.random() < 0.7)
        attributes: dict[str, Any] = {"volatile": kind == "volatile"} if name == "tt.load" else {}
        if atomic:
            attributes = {"operation": _operation(kind), "sem": sem, "scope": scope, "used": used}
        parameter = tensor if random.random() < 0.8 else None
        site = events.Site(
            id=number,
            op=name,
            location=SourceLocation(FILE, number + 1, 1, "model"),
            block=block,
            dtype="i32" if size == 4 else "i8" if size == 1 else "i16",
            element_bits=8 * size,
            parameter=parameter,
            attributes=attributes,
        )
        op = Op(site, kind, size, sem, scope, used)
        op.tensor = tensor  # type: ignore[attr-defined]
        return op

    # -- drawing -----------------------------------------------------------------------------------------------------

    def run(self, client: Any, count: int) -> None:
        """Draws and performs `count` events."""
        hooks = {kind: client.register_op_callback(kind) for kind in (events.Load, events.Store, events.Atomic)}
        for _ in range(count):
            op = self.random.choice(self.ops)
            lanes = self._lanes()
            repeat = self.random.choice((1, 1, 1, 2, 3)) if op.kind in ("load", "store") else 1
            address, mask = self._address(op, len(lanes)), self._mask(op, len(lanes))
            shift = self.random.choice((0, op.size, 4 * op.size))
            for turn in range(repeat):
                moved = address
                if turn and isinstance(address, Separable):
                    moved = address.add_constant(shift * turn)
                self._in_batches(op, lanes, moved, mask, hooks)

    def _in_batches(self, op: Op, lanes: np.ndarray, address: Any, mask: Any, hooks: Any) -> None:
        """One event, or one for the first programs and one for the others."""
        cut = self.random.randrange(len(lanes)) if self.random.random() < 0.3 else 0
        for rows in (np.arange(cut), np.arange(cut, len(lanes))):
            if len(rows):
                self._perform(op, lanes[rows], _taken(address, rows), _taken(mask, rows), hooks)

    def _lanes(self) -> np.ndarray:
        random = self.random
        if random.random() < 0.5:
            start = random.randrange(self.programs)
            return np.arange(start, random.randint(start + 1, self.programs), dtype=np.int64)
        chosen = random.sample(range(self.programs), random.randint(1, self.programs))
        return np.array(sorted(chosen) if random.random() < 0.7 else chosen, np.int64)

    def _address(self, op: Op, rows: int) -> Any:
        random, size = self.random, op.size
        base = self.base[op.tensor]  # type: ignore[attr-defined]
        room = len(self.bytes[op.tensor]) // size  # type: ignore[attr-defined]
        block = op.site.block
        if op.tensor == "flags":  # type: ignore[attr-defined]
            one, several = random.randrange(room), [random.randrange(room) for _ in range(rows)]
            at = np.full(rows, one) if random.random() < 0.7 else np.array(several)
            return DenseAddress(base + size * at.astype(np.int64))
        if random.random() < 0.3:
            some = [random.randrange(room) for _ in range(int(np.prod((rows, *block))))]
            return DenseAddress(base + size * np.array(some, np.int64).reshape(rows, *block))
        program: Any = None
        choice = random.random()
        span = int(np.prod(block)) if block else 1
        if choice < 0.5:
            program = np.arange(rows, dtype=np.int64) * size * random.choice((span, span, 1, 2, 0, span + 1, -span))
        elif choice < 0.8:
            program = size * np.array([random.randrange(max(1, room - span)) for _ in range(rows)], np.int64)
        axes: list[Any] = []
        stride = 1
        for n in reversed(block):
            pick = random.random()
            if pick < 0.6:
                step = size * random.choice((stride, stride, stride * 2, 1, -1, 0))
                axes.append(Axis(np.arange(n, dtype=np.int64) * step))
            elif pick < 0.75:
                axes.append(None)
            elif pick < 0.9:
                axes.append(Axis(size * np.array([random.randrange(room // 2) for _ in range(n)], np.int64)))
            else:
                some = [[random.randrange(room // 2) for _ in range(n)] for _ in range(rows)]
                axes.append(Axis(size * np.array(some, np.int64)))
            stride *= n
        constant = base + size * random.randrange(max(1, room // 2))
        if random.random() < 0.15 and size > 1:
            constant += random.randrange(1, size)  # not aligned
        return Separable(constant, program, tuple(reversed(axes)), 64)

    def _mask(self, op: Op, rows: int) -> Any:
        random, block = self.random, op.site.block
        if op.kind == "cas" or random.random() < 0.5:
            return None
        rank = len(block)
        parts: list[Any] = []
        for _ in range(random.randint(1, 2)):
            pick = random.random()
            if pick < 0.3:
                shape = (random.choice((1, rows)), *(random.choice((1, n)) for n in block))
                parts.append(np.array([random.random() < 0.7 for _ in range(int(np.prod(shape)))]).reshape(shape))
                continue
            axes = [Axis(np.arange(n, dtype=np.int64)) if random.random() < 0.6 else None for n in block]
            program = np.arange(rows, dtype=np.int64) * random.randint(-2, 2) if random.random() < 0.5 else None
            difference = Separable(-random.randint(0, 4), program, tuple(axes), 64)
            parts.append(Compare(difference, random.choice(("lt", "le", "gt", "ge", "eq", "ne"))))
        mask = Mask(tuple(parts))
        if random.random() < 0.3:
            return DenseMask(np.broadcast_to(mask.dense(), (rows, *block)).copy() if rank or rows else mask.dense())
        return None if mask.all() else mask

    # -- performing --------------------------------------------------------------------------------------------------

    def _perform(self, op: Op, lanes: np.ndarray, address: Any, mask: Any, hooks: Any) -> None:
        batch = Batch(lanes, self.grid)
        random = self.random
        shape = (len(lanes), *op.site.block)
        dtype = {1: np.int8, 2: np.int16, 4: np.int32}[op.size]
        narrow = tuple(n if random.random() < 0.6 else 1 for n in shape)
        low = random.choice((1, 3))
        value = np.array([random.randrange(low) for _ in range(int(np.prod(narrow)))], dtype).reshape(narrow)
        known = op.tensor  # type: ignore[attr-defined]
        if op.kind in ("load", "volatile"):
            event: Any = events.Load(self.launch, op.site, batch, address, mask, known)
        elif op.kind == "store":
            event = events.Store(self.launch, op.site, batch, address, mask, known, value)
        else:
            compare = np.zeros(shape, dtype) if op.kind == "cas" else None
            event = events.Atomic(
                self.launch, op.site, batch, address, mask, known, _operation(op.kind), value, compare, op.sem, op.scope
            )
        hook = hooks[type(event)]
        if hook.before:
            hook.before(event)
        self._execute(op, event, shape, np.broadcast_to(value, shape))
        if hook.after:
            hook.after(event)

    def _execute(self, op: Op, event: Any, shape: tuple[int, ...], value: np.ndarray) -> None:
        addresses, active = event.addresses(), event.active()
        base, memory = self.base[op.tensor], self.bytes[op.tensor]  # type: ignore[attr-defined]
        ids = event.batch.lanes
        result = np.zeros(shape, value.dtype)
        made: list[tuple[int, int, Any, bool]] = []  # program, offset, value, wrote
        before = memory.copy()
        for index in itertools.product(*map(range, shape)):
            at = int(addresses[index]) - base
            if not active[index] or at < 0 or at + op.size > len(memory):
                continue
            cell = memory[at : at + op.size].view(value.dtype)
            old, new = cell[0].copy(), value[index]
            wrote = op.kind not in ("load", "volatile", "aload") and not (op.kind == "cas" and old != 0)
            if wrote:
                cell[0] = old + new if op.kind == "add" else new
            result[index] = old
            made.append((int(ids[index[0]]), at, new, wrote))
            self.aligned = self.aligned and at % op.size == 0
        if isinstance(event, events.Atomic):
            event.result = result if op.used else None
        self._agree(op, made, before, memory, base)
        self._order(op, made, base)

    def _agree(self, op: Op, made: list[Any], before: np.ndarray, memory: np.ndarray, base: int) -> None:
        """Where stores of the launch do not agree: a store found what an earlier one left, and changed it."""
        if op.kind != "store":
            return
        cells: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        covered: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        for program, at, new, _ in made:
            cells[at][program].add(int(new))
            for byte in range(at, at + op.size):
                covered[byte].add((at, program, int(new)))
        for byte, who in covered.items():
            starts = {at for at, _, _ in who}
            if len({new for _, _, new in who}) > 1 or len(starts) > 1:
                self.changed.add(base + byte)
            if base + byte in self.stored and before[byte] != memory[byte]:
                self.changed.add(base + byte)
            by_program: dict[int, set[tuple[int, int]]] = defaultdict(set)
            for at, program, new in who:
                by_program[program].add((at, new))
            for program, several in by_program.items():
                if len(several) > 1:
                    self.lane_faults.add((op.site.id, program, byte))
        self.stored |= {base + byte for byte in covered}

    def _order(self, op: Op, made: list[Any], base: int) -> None:
        """One event in the happens-before order, then its accesses with the clocks that they see."""
        atomic = op.kind not in ("load", "store", "volatile")
        local = op.scope == "cta"
        acquire = atomic and not local and op.sem in ("acquire", "acq_rel") and op.used
        release = atomic and not local and op.sem in ("release", "acq_rel") and op.kind != "aload"
        now = {program: dict(self.clocks[program]) for program, *_ in made}
        seen = {program: dict(clock) for program, clock in now.items()}
        for program, at, _, wrote in made:
            there = self.published.get(base + at, {})
            if op.kind == "store":
                for other in list(self.published):
                    if other < base + at + op.size and base + at < other + 4:
                        del self.published[other]
            elif atomic:
                if acquire:
                    _join(seen[program], there)
                if op.kind == "astore":
                    self.published[base + at] = dict(now[program]) if release else {}
                elif wrote and release:
                    out = dict(there)
                    _join(out, now[program])
                    self.published[base + at] = out
        for program, clock in seen.items():
            _join(self.clocks[program], clock)
        for program, at, _, wrote in made:
            if atomic:
                kind = ("LOCAL" if wrote else "LOCAL_LOOK") if local else ("ATOMIC" if wrote else "LOOK")
            else:
                kind = {"load": "LOAD", "store": "STORE", "volatile": "LOOK"}[op.kind]
            clock = self.clocks[program]
            self.accesses.append(Access(op, program, base + at, kind, clock[program], dict(clock)))
        for program in seen:
            if release:
                self.clocks[program][program] += 1

    # -- the truth ---------------------------------------------------------------------------------------------------

    def races(self) -> list[tuple[Access, Access, int]]:
        """All pairs of accesses that are races, with each byte that they share: the plainer write first."""
        by_byte: dict[int, list[Access]] = defaultdict(list)
        for access in self.accesses:
            for byte in range(access.first, access.first + access.op.size):
                by_byte[byte].append(access)
        found = []
        for byte, here in by_byte.items():
            for a, b in itertools.combinations(here, 2):
                if a.program != b.program and meet(a, b) and not b.clock.get(a.program, 0) >= a.tick:
                    key = [(RANK[z.kind], -z.op.site.id) for z in (a, b)]
                    found.append((b, a, byte) if key[1] > key[0] else (a, b, byte))
        return found

    def expected(self) -> dict[tuple[int, str], dict[str, Any]]:
        """What must be found: by (site, tensor) its programs, elements, elements by program, and the other sides."""
        out: dict[tuple[int, str], dict[str, Any]] = {}
        for a, b, byte in self.races():
            tensor = a.op.tensor  # type: ignore[attr-defined]
            entry = out.setdefault(
                (a.op.site.id, tensor),
                {"programs": set(), "elements": defaultdict(set), "sides": defaultdict(set), "benign": True, "pairs": set()},
            )
            element = (byte - self.base[tensor]) // a.op.size
            entry["programs"].add(a.program)
            entry["elements"][a.program].add(element)
            entry["sides"][b.op.site.id].add(b.program)
            entry["pairs"].add((b.op.site.id, a.program, b.program))
            stores = a.kind == b.kind == "STORE"
            entry["benign"] &= stores and byte not in self.changed
            if a.op is b.op and a.kind == b.kind:
                entry["programs"].add(b.program)
                entry["elements"][b.program].add(element)
                entry["sides"][b.op.site.id].add(a.program)
                entry["pairs"].add((b.op.site.id, b.program, a.program))
        return out


def meet(a: Access, b: Access) -> bool:
    writes = {"STORE", "ATOMIC", "LOCAL"}
    if a.kind not in writes and b.kind not in writes:
        return False
    strong = {"ATOMIC", "LOOK"}
    return not (a.kind in strong and b.kind in strong and a.op.size == b.op.size)


def _join(into: dict[int, int], other: dict[int, int]) -> None:
    for program, tick in other.items():
        into[program] = max(into.get(program, 0), tick)


def _taken(form: Any, rows: np.ndarray) -> Any:
    if isinstance(form, (DenseAddress, DenseMask)):
        return type(form)(form.values if len(form.values) == 1 else form.values[rows])
    return None if form is None else form.take(rows)


def _operation(kind: str) -> str:
    return {"aload": "load", "astore": "store"}.get(kind, kind)
