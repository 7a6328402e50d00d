"""Whether a launch gives the same whatever the order in which its programs run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace import settings
from tritontrace.clients.base import Client
from tritontrace.engines.base import Order
from tritontrace.patching.transaction import add_note

if TYPE_CHECKING:
    from tritontrace.launch import Launch

__all__ = ["Determinism", "Difference", "check_determinism"]

_MOST_ELEMENTS = 1 << 20
_BATCHES = 64
"""Batches that the default orders cut the largest grid into."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One output that depends on the order.

    `name` is the argument, ``"result"`` or a part of it, or ``"kernel:argument"`` for memory that no argument of the checked
    function has. `elements` are flat indices (int64, sorted, the first million) of the `count` elements in which the outputs
    under the two `orders`, the first pair that differs, are unlike; `values` are the first such element's, `max_difference`
    the largest distance of two (infinite where only one of them is finite).
    """

    name: str
    orders: tuple[Order, Order]
    elements: npt.NDArray[np.int64]
    count: int
    max_difference: float
    values: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "name": self.name,
            "orders": [str(order) for order in self.orders],
            "elements": [int(i) for i in self.elements],
            "count": self.count,
            "max_difference": self.max_difference,
            "values": list(self.values),
        }

    def __str__(self) -> str:
        first, second = self.orders
        where = (
            f"element {self.elements[0]}" if self.count == 1 else f"{self.count} elements, the first of them {self.elements[0]}"
        )
        return (
            f"{self.name} differs in {where}: {self.values[0]!r} in order {first}, {self.values[1]!r} in order {second}; "
            f"the largest difference is {self.max_difference:.6g}"
        )


@dataclass(frozen=True, slots=True)
class Determinism:
    """What `check_determinism` found: `differences` is empty where every order in `orders` gave the same.

    `in_lockstep` is False where the Python engine ran the launches: it runs one program after another in each order, so that
    an update that programs running together would lose is not seen.
    """

    orders: tuple[Order, ...]
    differences: tuple[Difference, ...] = ()
    launches: int = 0
    compared: tuple[str, ...] = ()
    in_lockstep: bool = True

    @property
    def deterministic(self) -> bool:
        """True if no output depends on the order."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.deterministic

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "deterministic": self.deterministic,
            "orders": [str(order) for order in self.orders],
            "launches": self.launches,
            "compared": list(self.compared),
            "in_lockstep": self.in_lockstep,
            "differences": [difference.to_dict() for difference in self.differences],
        }

    def report(self) -> str:
        """The result as text."""
        tried = f"{len(self.orders)} orders of programs ({'; '.join(map(str, self.orders))})"
        if self.deterministic:
            text = f"deterministic: {', '.join(self.compared) or 'nothing'} came out the same in {tried}\n"
            if not self.in_lockstep:
                text += (
                    "in the Python engine, which runs one program after another: updates that programs lose by running together "
                    "show with engine='ir', and to the race detector\n"
                )
            return text
        lines = [f"not deterministic, in {tried}:", *(f"  {difference}" for difference in self.differences)]
        return "\n".join(lines) + "\n"


def check_determinism(
    fn: Callable[..., Any],
    /,
    *args: Any,
    orders: Iterable[Any] | None = None,
    grid: Any = None,
    session_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Determinism:
    """Runs `fn` in several orders of the programs of its launches, and compares what comes out, bit by bit.

    `fn` is a kernel, whose `grid` is then given (``kernel[grid]`` does as well), or a function that launches kernels. It is
    called once for each order, with copies of the tensors in `args` and `kwargs`; compared are these copies afterwards, what
    `fn` returns (tensors and numbers, also in tuples, lists and dictionaries), and other CPU tensors that its launches got,
    which are then given their contents back. Two NaN are the same.

    `orders` are ``"forward"``, ``"reverse"``, integers (random orders by seed) or `Order` objects, which also say how many
    programs execute in lockstep. The default tries forward, reverse and random orders, in large batches and in small ones.
    `session_options` are more arguments for the `session` that each run gets (``target=``, ``max_steps=``, ...).

    A kernel whose order is decided by itself (locks, flags) finishes in each. What an order makes fail is raised with a note
    that names it. A result without differences is no proof: the orders are a sample.

    Raises `ValueError` for fewer than two orders, and whatever `fn` raises.
    """
    call = _caller(fn, grid)
    names = _names(fn, args)
    chosen = None if orders is None else [_order(order) for order in orders]
    if chosen is not None and len(chosen) < 2:
        raise ValueError("check_determinism compares orders: give two at least")
    first = chosen[0] if chosen is not None else Order()
    runs = [_run(call, names, args, kwargs, first, session_options)]
    if chosen is None:
        batch = max(1, runs[0].largest // _BATCHES)
        chosen = [
            first,
            Order("reverse"),
            Order("random", 1),
            Order("forward", batch=batch),
            Order("reverse", batch=batch),
            Order("random", 2, batch),
        ]
    runs.extend(_run(call, names, args, kwargs, order, session_options) for order in chosen[1:])
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.outputs):
        difference = _first_difference(name, runs)
        if difference is not None:
            found.append(difference)
    in_lockstep = all(run.in_lockstep for run in runs)
    return Determinism(tuple(chosen), tuple(found), runs[0].launches, tuple(runs[0].outputs), in_lockstep)


def _order(order: Any) -> Order:
    made = settings.order(order)
    if made is None:
        raise ValueError("an order is 'forward', 'reverse', an integer or an Order, not None")
    return made


def _caller(fn: Any, grid: Any) -> Callable[..., Any]:
    if hasattr(fn, "run") and hasattr(fn, "fn"):
        if grid is None:
            raise TypeError("check_determinism(kernel, ...) needs the kernel's grid=")
        launcher: Callable[..., Any] = fn[grid]
        return lambda *args, **kwargs: _nothing(launcher(*args, **kwargs))
    if grid is None:
        return lambda *args, **kwargs: fn(*args, **kwargs)
    return lambda *args, **kwargs: fn(*args, grid=grid, **kwargs)


def _nothing(result: Any) -> None:
    """A launch returns what it compiled, which is no output."""


def _names(fn: Any, args: tuple[Any, ...]) -> list[str]:
    while hasattr(fn, "fn") and not inspect.isfunction(fn):
        fn = fn.fn
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [plain[i] if i < len(plain) else f"argument {i}" for i in range(len(args))]


@dataclass(slots=True)
class _Run:
    """What came of one order."""

    order: Order
    outputs: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    launches: int = 0
    largest: int = 1
    in_lockstep: bool = True


def _run(
    call: Callable[..., Any],
    names: list[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    order: Order,
    options: Mapping[str, Any] | None,
) -> _Run:
    import torch

    from tritontrace.kernels.copies import Copier
    from tritontrace.session import session

    copier = Copier()
    copied = [copier(value) for value in args]
    words = {name: copier(value) for name, value in kwargs.items()}
    keeper = _Keeper(frozenset(copier.storages))
    run = _Run(order)
    # Random numbers that `fn` draws are the same each time, and the caller's go on as if nothing had been drawn.
    state = torch.random.get_rng_state()
    try:
        with session([keeper], order=order, **(options or {})) as opened:
            result = call(*copied, **words)
        for name, value in [*zip(names, copied), *words.items()]:
            run.outputs.update(_tensors(name, value))
        given = set(copier.storages)
        run.outputs.update(_tensors("result", result, given))
        for name, array in keeper.contents(given):
            run.outputs[name] = array
        run.launches = len(opened.launches)
        run.in_lockstep = not any(launch.engine == "python" for launch in opened.launches)
        run.largest = max((launch.n_programs for launch in opened.launches), default=1)
    except BaseException as error:
        add_note(error, f"check_determinism: this happened in order {order}")
        raise
    finally:
        torch.random.set_rng_state(state)
        keeper.restore()
    return run


class _Keeper(Client):
    """Remembers what memory held that launches get and that no copy stands for."""

    name = "determinism"

    def __init__(self, own: frozenset[int]) -> None:
        self._own = own
        self._kept: dict[int, tuple[str, Any, npt.NDArray[np.uint8], np.dtype[Any]]] = {}

    def pre_run_callback(self, launch: Launch) -> None:
        for allocation in launch.memory.allocations if launch.memory is not None else ():
            if allocation.base in self._own or allocation.base in self._kept or not allocation.on_host:
                continue
            inside = [
                info
                for info in launch.arguments.values()
                if info.is_tensor and allocation.base <= info.storage_ptr < allocation.end
            ]
            if not inside or not allocation.writable:
                continue
            dtype = _dtype(inside[0].dtype)
            name = f"{launch.kernel_name}:{inside[0].name}"
            while any(name == known for known, *_ in self._kept.values()):
                name += "'"
            # The view keeps the storage alive.
            self._kept[allocation.base] = (name, allocation.buffer, allocation.buffer.copy(), dtype)

    def contents(self, given: set[int]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """What is there now, but for the storages in `given`; memory that nothing changed is left out."""
        for base, (name, now, _, dtype) in self._kept.items():
            if base not in given:
                whole = len(now) // dtype.itemsize * dtype.itemsize
                yield name, now[:whole].view(dtype).copy()

    def restore(self) -> None:
        """Gives all of it its contents back."""
        for _, now, before, _ in self._kept.values():
            if not np.array_equal(now, before):
                now[:] = before


def _dtype(name: str | None) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:  # one that numpy lacks: its bytes
        return np.dtype(np.uint8)


def _tensors(name: str, value: Any, given: set[int] | None = None) -> dict[str, npt.NDArray[Any]]:
    """The tensors and numbers in a value, by name; the storages that they lie in are added to `given`."""
    import torch

    if isinstance(value, torch.Tensor):
        if given is not None and value.device.type == "cpu":
            given.add(value.untyped_storage().data_ptr())
        return {name: _array(value)}
    if isinstance(value, (list, tuple)):
        out: dict[str, npt.NDArray[Any]] = {}
        for i, item in enumerate(value):
            out.update(_tensors(f"{name}[{i}]", item, given))
        return out
    if isinstance(value, Mapping):
        out = {}
        for key, item in value.items():
            out.update(_tensors(f"{name}[{key!r}]", item, given))
        return out
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out = {}
        for entry in dataclasses.fields(value):
            out.update(_tensors(f"{name}.{entry.name}", getattr(value, entry.name), given))
        return out
    if given is not None and isinstance(value, (bool, int, float)):
        return {name: np.asarray(value)}
    return {}


def _array(tensor: Any) -> npt.NDArray[Any]:
    """A tensor's values as an array of its own; types that numpy lacks as wider floats, which hold them exactly."""
    import torch

    plain = tensor.detach().cpu()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64):
        plain = plain.to(torch.float32)
    found: npt.NDArray[Any] = plain.numpy().copy()
    return found


def _first_difference(name: str, runs: list[_Run]) -> Difference | None:
    reference = runs[0].outputs.get(name)
    for run in runs[1:]:
        other = run.outputs.get(name)
        pair = (runs[0].order, run.order)
        if reference is None or other is None or reference.shape != other.shape or reference.dtype != other.dtype:
            return Difference(name, pair, np.zeros(1, np.int64), 1, float("inf"), (float("nan"), float("nan")))
        a, b = reference.reshape(-1), other.reshape(-1)
        unlike = a != b
        if a.dtype.kind in "fc":
            unlike &= ~(np.isnan(a) & np.isnan(b))
            unlike |= np.signbit(a.real) != np.signbit(b.real) if a.dtype.kind == "f" else False
            unlike &= ~(np.isnan(a) & np.isnan(b))
        elements = np.flatnonzero(unlike)
        if len(elements):
            with np.errstate(all="ignore"):
                far = np.abs(a[elements].astype(np.float64) - b[elements].astype(np.float64))
            largest = float(np.where(np.isnan(far), np.inf, far).max())
            values = (float(a[elements[0]]), float(b[elements[0]]))
            return Difference(name, pair, elements[:_MOST_ELEMENTS], len(elements), largest, values)
    return None
