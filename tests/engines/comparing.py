"""Two engines on one launch: what each leaves in memory, bit for bit, and what each tells of accesses, up to order.

`Comparing` is an engine that stands for the IR engine (``pytest --engine both``). Before it runs a launch there, it runs it
twice on copies of the launch's memory, in either engine, and notes every `difference`.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import tritontrace
from tests.engine_exceptions import Compared
from tests.engines.instruments import Told
from tritontrace.engines.base import Engine, EngineRun, LaunchHooks, Order
from tritontrace.events import Atomic, Load, Store
from tritontrace.kernels.copies import PrivateMemory

__all__ = ["Accesses", "Comparing", "Copies", "same_bits"]

MOST_PROGRAMS = 256
"""Of a larger grid, these many programs are compared: first, last, and some between."""


class Accesses(tritontrace.Client):
    """Every access of every program: what, where in the source, in which tensor, at which addresses under which mask.

    `values`: and what is read or written there.
    """

    name = "accesses"

    def __init__(self, values: bool = True) -> None:
        self.values = values
        self.seen: Counter[Any] = Counter()
        self.shown: dict[Any, Any] = {}

    def register_op_callback(self, op: type) -> Any:
        return tritontrace.OpCallbacks(after=self.note) if op in (Load, Store, Atomic) else None

    def hooks(self) -> LaunchHooks:
        """As an engine wants them."""
        return LaunchHooks(after=dict.fromkeys((Load, Store, Atomic), (self.note,)))

    def note(self, event: Any) -> None:
        places = tuple([call.line for call in event.call_stack] + [event.location.line if event.location else 0])
        addresses, active = event.addresses(), event.active()
        operation = getattr(event, "operation", "")
        common = (event.access, operation, places, event.element_bytes)
        known = event.site.parameter is not None
        values = _values(event) if self.values else None
        for row, program in enumerate(event.programs.tolist()):
            lanes = active[row]
            # the programs of one event may mean different tensors
            tensor = event.tensor if known else event.batch.rt.tensor_at(int(addresses[row].min()))
            # and so that two launches with tensors of their own can be compared, too:
            places_in = addresses[row][lanes] - (0 if tensor is None else event.launch.argument(tensor).data_ptr)
            key = (*common, tensor, tuple(program), lanes.shape, _digest(lanes), _digest(places_in))
            self.seen[(*key, _digest(values[row][lanes]) if values is not None else 0)] += 1
            if len(self.seen) < 5000:  # enough to show the first difference by
                self.shown.setdefault(key, (places_in[:8].tolist(), int(lanes.sum())))


def _values(event: Any) -> Any:
    value = event.value if event.access != "atomic" else None
    if value is None:
        return None
    value = np.broadcast_to(value, event.shape)
    if value.dtype.kind != "f":
        return value
    # Which NaN an operation gives is nobody's promise.
    return np.where(np.isnan(value), value.dtype.type(np.nan), value)


def _digest(array: Any) -> bytes:
    data = np.ascontiguousarray(array).tobytes()
    return data if len(data) <= 16 else hashlib.blake2b(data, digest_size=16).digest()


class Copies(PrivateMemory):
    """The memory of a launch as it is now, copied; under the same addresses."""

    @classmethod
    def of(cls, space: Any) -> Copies:
        made = cls()
        made.own = frozenset()
        for allocation in space.allocations:
            one = copy.copy(allocation)
            one._buffer = allocation.buffer.copy()
            one._typed, one.written = {}, False
            one._writable = allocation.writable
            one.device = f"copy of {allocation.device}"
            made.allocations.append(one)
            made._bases.append(one.base)
        return made


class Comparing:
    """Runs launches in `first`, after comparing it with `second`; `expected` says what need not be equal now."""

    def __init__(self, first: Engine, second: Engine, instruments: frozenset[str] = frozenset()) -> None:
        self.first = first
        self.instruments = instruments
        self.second = second
        self.expected = Compared()
        self.differences: list[str] = []
        self.compared = 0
        self.skipped: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._inside = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.first, name)

    def run(self, run: EngineRun) -> None:
        reason = "a launch made by one that is compared" if getattr(self._inside, "busy", False) else _why_not(run)
        if self.expected.nothing is not None:
            reason = self.expected.nothing
        if reason is not None:
            with self._lock:
                self.skipped[reason] += 1
            return self.first.run(run)
        self._inside.busy = True
        told: list[Told] = []
        try:
            found = self._copies(run)
            if self.instruments and self.expected.order is None and all(outcome.error is None for outcome in found):
                told = self._told(run)
        finally:
            self._inside.busy = False
        error: BaseException | None = None
        try:
            self.first.run(run)
        except BaseException as raised:  # raised below
            error = raised
        differences = self._differences(run, error, *found)
        with self._lock:
            self.compared += 1
            self.differences.extend(f"{_described(run)}: {text}" for text in differences)
            if told:
                self.differences.extend(f"{_described(run)}: {text}" for text in told[0].differences(told[1]))
        if error is not None:
            raise error
        return None

    def _copies(self, run: EngineRun) -> list[_Outcome]:
        made = []
        for engine in (self.first, self.second):
            client = Accesses(self.expected.close is None)
            again = self._again(run, client.hooks())
            error: BaseException | None = None
            try:
                engine.run(again)
            except Exception as raised:
                error = raised
            made.append(_Outcome(client.seen, client.shown, again.memory, error))
        return made

    def _told(self, run: EngineRun) -> list[Told]:
        made = []
        for engine in (self.first, self.second):
            told = Told()
            engine.run(self._again(run, told.hooks(), self.instruments))
            made.append(told)
        return made

    def _again(self, run: EngineRun, hooks: LaunchHooks, instruments: frozenset[str] = frozenset()) -> EngineRun:
        """`run` on a copy of its memory, for nobody but `hooks`."""
        launch, memory = copy.copy(run.launch), Copies.of(run.memory)
        launch.memory = memory
        return dataclasses.replace(
            run,
            launch=launch,
            hooks=hooks,
            memory=memory,
            programs=_selected(run),
            instruments=instruments,
            options={**run.options, "prints": ()},
            # one program after another, as in the Python engine
            order=run.order if self.expected.order is None else Order("forward", batch=1),
        )

    def _differences(self, run: EngineRun, error: BaseException | None, one: _Outcome, two: _Outcome) -> Iterator[str]:
        if type(one.error) is not type(two.error):
            yield f"one engine raises {one.error!r}, the other {two.error!r}"
            return
        if one.error is not None:
            return  # what stands before the place that fails has been done in one, and in part in the other
        yield from _memory(run, one.memory, two.memory, self.expected)
        clients = run.hooks.replace or run.hooks.loop_override is not None
        if error is None and not clients and _selected(run) is run.programs and self.expected.order is None:
            for text in _memory(run, one.memory, run.memory, self.expected):
                yield f"with and without listeners, {text}"
        if one.seen != two.seen and self.expected.waits is None:
            yield _events(one.seen, two.seen, {**one.shown, **two.shown})


@dataclasses.dataclass(frozen=True)
class _Outcome:
    seen: Counter[Any]
    shown: dict[Any, Any]
    memory: Any
    error: BaseException | None


def _why_not(run: EngineRun) -> str | None:
    if run.dry:
        return "a dry run executes nothing"
    if run.order is not None and (run.order.kind != "forward" or run.order.batch not in (None, 1)):
        return "an order of programs that one engine only has"
    return None


def _selected(run: EngineRun) -> Any:
    x, y, z = run.grid
    if run.programs is not None or x * y * z <= MOST_PROGRAMS:
        return run.programs
    lanes = sorted({int(n) for n in np.linspace(0, x * y * z - 1, MOST_PROGRAMS)})
    return [(n % x, n // x % y, n // (x * y)) for n in lanes]


def _described(run: EngineRun) -> str:
    launch = run.launch
    return f"launch {launch.index} of {launch.kernel_name}{list(launch.grid)} ({launch.file}:{launch.line})"


# -- memory ---------------------------------------------------------------------------------------------------------------


def _memory(run: EngineRun, one: Any, two: Any, expected: Compared) -> Iterator[str]:
    for allocation in one.allocations:
        other = two.known(allocation.base)
        if other is None:
            if allocation.written:
                yield f"the memory at {allocation.base:#x} was written by one engine and never seen by the other"
            continue
        a, b = allocation.buffer, other.buffer
        if len(a) != len(b) or not np.array_equal(a, b):
            yield from _tensors(run, allocation, a, b, expected)


def _tensors(run: EngineRun, allocation: Any, a: Any, b: Any, expected: Compared) -> Iterator[str]:
    same = a == b
    names = []
    for name, info in run.launch.arguments.items():
        if not info.is_tensor or not allocation.base <= info.storage_ptr < allocation.end or info.dtype is None:
            continue
        names.append(name)
        dtype = getattr(torch, info.dtype)
        size = dtype.itemsize
        start = (info.data_ptr - allocation.base) % size
        count = (len(a) - start) // size
        if not count:
            continue
        left, right = (torch.from_numpy(v[start : start + count * size].copy()).view(dtype) for v in (a, b))
        equal = same_bits(left, right) if expected.close is None else _close(left, right, *expected.close)
        same[start : start + count * size] |= np.repeat(equal.numpy(), size)
        if not equal.all() and dtype.is_floating_point == any(c in info.type for c in ("fp", "bf")):
            at = int(torch.nonzero(~equal.reshape(-1))[0, 0])
            element = at - (info.data_ptr - allocation.base - start) // size
            yield (
                f"{name}[{element}] is {left[at].item()!r} in one engine and {right[at].item()!r} in the other "
                f"({int((~equal).sum())} elements differ)"
            )
            return
    if not same.all():
        at = int(np.flatnonzero(~same)[0])
        yield f"byte {at} of the memory of {', '.join(names) or 'no argument'} is {a[at]} in one engine, {b[at]} in the other"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one type have the same bits, or NaN both (which NaN is nobody's promise)."""
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
        return same_bits(a, b).all(dim=-1)
    integer = getattr(torch, f"int{a.element_size() * 8}")
    equal = a.view(integer) == b.view(integer)
    return equal | (a.isnan() & b.isnan()) if a.is_floating_point() else equal


def _close(a: torch.Tensor, b: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    return torch.isclose(a.double(), b.double(), rtol=rtol, atol=atol, equal_nan=True)


# -- events ---------------------------------------------------------------------------------------------------------------


def _events(one: Counter[Any], two: Counter[Any], shown: dict[Any, Any]) -> str:
    first, second = one - two, two - one
    texts = []
    for side, more in (("only in the IR engine", first), ("only in the Python engine", second)):
        for key, count in sorted(more.items(), key=lambda item: (item[0][5][::-1], item[0][2]))[:1]:
            access, operation, places, size, tensor, program, block, *_ = key
            where, lanes = shown.get(key[:-1], ("?", "?"))
            what = f"{access} {operation}".rstrip()
            texts.append(
                f"{what} of {tensor} at line {places[-1]} by program {program}, block {block}, {size} bytes a lane, "
                f"{lanes} lanes, first at bytes {where} ({count} such, {sum(more.values())} in all) {side}"
            )
    return "accesses differ: " + "; ".join(texts)
