"""What hooks receive: one typed event for one operation and one batch of programs.

An event is cheap until asked. Nothing below materializes an array before a method that says so is called,
and what one client asks for costs the other clients nothing: results are cached on the event.

Shapes: `P` is the number of programs of the batch, `*block` the shape of the operation's tile (empty for a
scalar operation). Arrays that a method returns may be read-only views; copy before you write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tritontrace.launch import Launch
    from tritontrace.source import SourceLocation

__all__ = [
    "AddressForm",
    "Assert",
    "Atomic",
    "Batch",
    "Compared",
    "Dot",
    "Event",
    "Executed",
    "IntegerOverflow",
    "Load",
    "Loop",
    "MaskForm",
    "MemoryEvent",
    "NonFinite",
    "NonFiniteUse",
    "Print",
    "Reduce",
    "Site",
    "Store",
    "UndefinedUse",
    "Work",
]


@dataclass(slots=True, eq=False)
class Site:
    """The static part of an operation: one per operation of the traced kernel, shared by all its events.

    `id` is unique within one specialization of a kernel; `op` is the IR operation (``"tt.load"``);
    `block` the tile shape; `element_bits` the width of one element in memory; `dtype` Triton's element type
    (``"fp32"``, ``"bf16"``, ``"i1"``, ``"*fp32"``); `variable` the Python variable that the result was bound to;
    `call_stack` the calls that lead here through helpers, outermost first, without `location` itself.
    """

    id: int
    op: str
    location: SourceLocation | None
    call_stack: tuple[SourceLocation, ...] = ()
    block: tuple[int, ...] = ()
    dtype: str = ""
    element_bits: int = 32
    variable: str | None = None
    parameter: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    peers: tuple[Site, ...] = field(default=(), repr=False)


class Batch(Protocol):
    """The programs that execute an operation together."""

    def program_ids(self) -> npt.NDArray[np.int32]:
        """int32 ``[P, 3]``: the (x, y, z) program ids of the batch, in execution order."""

    def iterations(self) -> tuple[tuple[SourceLocation | None, Any], ...]:
        """Enclosing loops, outermost first: (location of the loop, 0-based iteration: int or int64 ``[P]``)."""

    def __len__(self) -> int: ...


class AddressForm(Protocol):
    """Byte addresses of a batch in the form that the engine keeps them."""

    def minmax(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Smallest and largest byte address per program, ``[P]`` or ``[1]`` each, over all lanes (masked too)."""

    def dense(self) -> npt.NDArray[np.int64]:
        """Every byte address, int64, broadcastable to ``[P, *block]``."""


class MaskForm(Protocol):
    """A mask in the form that the engine keeps it (``None`` stands for "no mask": every lane)."""

    def all(self) -> bool:
        """True when every lane of every program is active."""

    def dense(self) -> npt.NDArray[np.bool_]:
        """bool, broadcastable to ``[P, *block]``."""


class Event:
    """One operation executed by one batch of programs of one launch."""

    __slots__ = ("_programs", "batch", "launch", "site")

    def __init__(self, launch: Launch, site: Site, batch: Batch) -> None:
        self.launch = launch
        self.site = site
        self.batch = batch
        self._programs: npt.NDArray[np.int32] | None = None

    @property
    def location(self) -> SourceLocation | None:
        """The source line of the operation (innermost function)."""
        return self.site.location

    @property
    def call_stack(self) -> tuple[SourceLocation, ...]:
        """The calls through helpers that lead to `location`, outermost first."""
        return self.site.call_stack

    @property
    def programs(self) -> npt.NDArray[np.int32]:
        """int32 ``[P, 3]``: the programs of the batch."""
        if self._programs is None:
            self._programs = self.batch.program_ids()
        return self._programs

    @property
    def iterations(self) -> tuple[tuple[SourceLocation | None, Any], ...]:
        """Enclosing loops, outermost first: (location, 0-based iteration: an int or int64 ``[P]``)."""
        return self.batch.iterations()

    @property
    def corners(self) -> bool:
        """True if the programs of the batch are those at the corners of a grid, and stand for all (`Client.by_corners`)."""
        return bool(getattr(self.batch, "corners", False))

    def __len__(self) -> int:
        return len(self.batch)


class MemoryEvent(Event):
    """An access to global memory: `Load`, `Store` or `Atomic`."""

    __slots__ = ("_active", "_addresses", "address", "mask", "tensor")
    access = "memory"

    def __init__(
        self, launch: Launch, site: Site, batch: Batch, address: AddressForm, mask: MaskForm | None, tensor: str | None
    ) -> None:
        super().__init__(launch, site, batch)
        self.address = address
        self.mask = mask
        self.tensor = tensor
        """The kernel argument whose memory is meant (the pointer's provenance), or None if it is not known."""
        self._addresses: npt.NDArray[np.int64] | None = None
        self._active: npt.NDArray[np.bool_] | None = None

    @property
    def block(self) -> tuple[int, ...]:
        """Tile shape; ``()`` for a scalar access."""
        return self.site.block

    @property
    def dtype(self) -> str:
        """Triton's name of the element type, as in ``"fp32"``."""
        return self.site.dtype

    @property
    def element_bytes(self) -> int:
        """Bytes one lane touches (an ``i1`` takes one byte)."""
        return max(1, self.site.element_bits // 8)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(P, *block)``."""
        return (len(self.batch), *self.site.block)

    def minmax(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Smallest and largest byte address per program, ``[P]`` or ``[1]``, masked-off lanes included."""
        return self.address.minmax()

    def addresses(self) -> npt.NDArray[np.int64]:
        """int64 ``[P, *block]`` byte addresses (materialized once, then shared; masked-off lanes included)."""
        if self._addresses is None:
            self._addresses = np.broadcast_to(self.address.dense(), self.shape)
        return self._addresses

    def active(self) -> npt.NDArray[np.bool_]:
        """bool ``[P, *block]``: the lanes that perform the access."""
        if self._active is None:
            if self.mask is None or self.mask.all():
                self._active = np.broadcast_to(np.True_, self.shape)
            else:
                self._active = np.broadcast_to(self.mask.dense(), self.shape)
        return self._active

    def count(self) -> int:
        """The number of lanes that perform the access, over all programs of the batch."""
        if self.mask is None or self.mask.all():
            return int(np.prod(self.shape, dtype=np.int64))
        return int(np.count_nonzero(self.active()))

    def offsets(self) -> npt.NDArray[np.int64]:
        """int64 ``[P, *block]``: element indices relative to the argument's data pointer.

        Raises `ValueError` if the pointer's argument is not known (`tensor` is None).
        """
        if self.tensor is None:
            raise ValueError("the pointer of this access does not come from one kernel argument")
        base = self.launch.argument(self.tensor).data_ptr
        return np.floor_divide(self.addresses() - base, self.element_bytes)

    def for_program(self, program: tuple[int, int, int]) -> dict[str, Any]:
        """Addresses, mask and value of one program: a dict with ``addresses``, ``mask`` and what `_values` adds.

        Raises `KeyError` if the program is not in the batch.
        """
        hits = np.flatnonzero((self.programs == np.asarray(program, np.int32)).all(axis=1))
        if not len(hits):
            raise KeyError(f"program {program} is not in this batch")
        row = int(hits[0])
        out: dict[str, Any] = {"addresses": self.addresses()[row], "mask": self.active()[row]}
        for name, value in self._values().items():
            if isinstance(value, np.ndarray):
                out[name] = np.broadcast_to(value, self.shape)[row]
        return out

    def _values(self) -> dict[str, Any]:
        return {}


class Load(MemoryEvent):
    """``tl.load``; `value` is set when the `after` hook is called: broadcastable to ``[P, *block]``.

    `other` is the value of masked-off lanes, or None where the kernel gave none (they are undefined; the
    engine gives 0).
    """

    __slots__ = ("other", "value")
    access = "load"

    def __init__(
        self,
        launch: Launch,
        site: Site,
        batch: Batch,
        address: AddressForm,
        mask: MaskForm | None,
        tensor: str | None,
        other: Any = None,
    ) -> None:
        super().__init__(launch, site, batch, address, mask, tensor)
        self.other = other
        self.value: Any = None

    def _values(self) -> dict[str, Any]:
        return {"value": self.value}


class Store(MemoryEvent):
    """``tl.store`` of `value` (broadcastable to ``[P, *block]``)."""

    __slots__ = ("value",)
    access = "store"

    def __init__(
        self,
        launch: Launch,
        site: Site,
        batch: Batch,
        address: AddressForm,
        mask: MaskForm | None,
        tensor: str | None,
        value: Any = None,
    ) -> None:
        super().__init__(launch, site, batch, address, mask, tensor)
        self.value = value

    def _values(self) -> dict[str, Any]:
        return {"value": self.value}


class Atomic(MemoryEvent):
    """An atomic read-modify-write, load or store.

    `operation` is one of add, fadd, and, or, xor, xchg, max, min, umax, umin, cas, load, store. `value` is the operand (None
    for a load), `compare` the expected value of a cas, `result` the old value (set for `after` hooks; None where the kernel
    does not use it, and for a store). `sem` is ``"acq_rel"``, ``"acquire"``, ``"release"`` or ``"relaxed"``; `scope` ``"gpu"``,
    ``"cta"`` or ``"sys"``.
    """

    __slots__ = ("compare", "operation", "result", "scope", "sem", "value")
    access = "atomic"

    def __init__(
        self,
        launch: Launch,
        site: Site,
        batch: Batch,
        address: AddressForm,
        mask: MaskForm | None,
        tensor: str | None,
        operation: str = "add",
        value: Any = None,
        compare: Any = None,
        sem: str = "acq_rel",
        scope: str = "gpu",
    ) -> None:
        super().__init__(launch, site, batch, address, mask, tensor)
        self.operation = operation
        self.value = value
        self.compare = compare
        self.sem = sem
        self.scope = scope
        self.result: Any = None

    def _values(self) -> dict[str, Any]:
        return {"value": self.value, "result": self.result}


class Dot(Event):
    """``tl.dot``: `a` ``[P|1, (B,) M, K]``, `b` ``[P|1, (B,) K, N]``, `accumulator`, and `result` for `after` hooks.

    Of ``tl.dot_scaled`` it has the scaled operands, as float64; `input_precision` is ``"scaled"`` then.
    """

    __slots__ = ("a", "accumulator", "b", "input_precision", "result")

    def __init__(
        self, launch: Launch, site: Site, batch: Batch, a: Any, b: Any, accumulator: Any, input_precision: str = "ieee"
    ) -> None:
        super().__init__(launch, site, batch)
        self.a = a
        self.b = b
        self.accumulator = accumulator
        self.input_precision = input_precision
        self.result: Any = None


class Reduce(Event):
    """A reduction or scan over `axis` of `inputs`; `kind` is ``"reduce"`` or ``"scan"``; `results` for `after` hooks."""

    __slots__ = ("axis", "inputs", "kind", "results")

    def __init__(
        self, launch: Launch, site: Site, batch: Batch, inputs: tuple[Any, ...], axis: int, kind: str = "reduce"
    ) -> None:
        super().__init__(launch, site, batch)
        self.inputs = inputs
        self.axis = axis
        self.kind = kind
        self.results: tuple[Any, ...] = ()


class Loop(Event):
    """A ``for`` or ``while`` loop.

    `kind` is ``"for"`` or ``"while"``. In `before`: `lower`, `upper`, `step` (arrays ``[P]`` or ``[1]``; None for a while
    loop). In `iteration`: `iteration` counts from 0 (an int, or int64 ``[P]`` where programs stand in different ones).
    In `after`: `iteration` is the number of iterations that the batch as a whole ran.
    """

    __slots__ = ("iteration", "kind", "lower", "step", "upper")

    def __init__(
        self,
        launch: Launch,
        site: Site,
        batch: Batch,
        kind: str = "for",
        lower: Any = None,
        upper: Any = None,
        step: Any = None,
        iteration: Any = 0,
    ) -> None:
        super().__init__(launch, site, batch)
        self.kind = kind
        self.lower = lower
        self.upper = upper
        self.step = step
        self.iteration = iteration


class Print(Event):
    """``tl.device_print``: `prefix` and the `values` (arrays broadcastable to ``[P, *block]``)."""

    __slots__ = ("hex", "prefix", "values")

    def __init__(self, launch: Launch, site: Site, batch: Batch, prefix: str, values: tuple[Any, ...], hex: bool = False) -> None:
        super().__init__(launch, site, batch)
        self.prefix = prefix
        self.values = values
        self.hex = hex


class Assert(Event):
    """``tl.device_assert``: `condition` (bool, broadcastable to ``[P, *block]``) and its `message`."""

    __slots__ = ("condition", "message")

    def __init__(self, launch: Launch, site: Site, batch: Batch, condition: Any, message: str) -> None:
        super().__init__(launch, site, batch)
        self.condition = condition
        self.message = message


class UndefinedUse(Event):
    """An undefined lane, of a masked load without ``other``, arrives where it does harm (`before` hooks only).

    `site` is the load's; `use` the operation that it arrives at; `role` what it is there: ``"value"`` (it is stored),
    ``"address"``, ``"mask"`` or ``"branch"``. `rows` int64 ``[R]`` are the programs of the batch that do it,
    `lanes` int64 ``[L]`` the flat lanes of the load's tile that are undefined in them. `through` is where the kernel mixes them
    with others on the way (a reduction, a scan, a dot), if it does.
    """

    __slots__ = ("lanes", "role", "rows", "through", "use")

    def __init__(
        self,
        launch: Launch,
        site: Site,
        batch: Batch,
        use: Site,
        role: str,
        rows: npt.NDArray[np.int64],
        lanes: npt.NDArray[np.int64],
        through: SourceLocation | None = None,
    ) -> None:
        super().__init__(launch, site, batch)
        self.use = use
        self.through = through
        self.role = role
        self.rows = rows
        self.lanes = lanes


class Work(Event):
    """A straight line of operations was executed by a batch of programs (`before` hooks only; a client asks for it with
    `tritontrace.engines.base.OPERATIONS`).

    `operations` says what one program computes in it: (IR operation, Triton's element type of the result) -> scalar
    operations, masked lanes included. Of ``"tt.dot"`` it counts multiply-adds, by the type of the operands (``"fp16"``,
    ``"tf32"`` for fp32 operands that are multiplied as TF32); a reduction is counted as what it combines with.
    """

    __slots__ = ()

    @property
    def operations(self) -> Mapping[tuple[str, str], int]:
        """(IR operation, element type) -> scalar operations of one program."""
        found: Mapping[tuple[str, str], int] = self.site.attributes["operations"]
        return found


class NonFinite(Event):
    """An operation made a NaN of operands that are none, or an infinity of finite ones (`before` hooks only).

    `lanes` is bool, broadcastable to ``[P, *block]``: where it did. `operands` and `result` broadcast to the same shape
    for an elementwise operation; a dot has its operands as `Dot` has them, a reduction its inputs. Narrow floats come as float32.
    """

    __slots__ = ("lanes", "operands", "result")

    def __init__(
        self, launch: Launch, site: Site, batch: Batch, lanes: npt.NDArray[np.bool_], operands: tuple[Any, ...], result: Any
    ) -> None:
        super().__init__(launch, site, batch)
        self.lanes = lanes
        self.operands = operands
        self.result = result


class NonFiniteUse(Event):
    """A value that an operation made non-finite, or one that was computed from it, is put into memory (`before` hooks only).

    `site` is that operation's; `use` the store's or atomic operation's; `lanes` is bool, broadcastable to
    ``[P, *block]`` of the store's block: the lanes that are written so.
    """

    __slots__ = ("lanes", "use")

    def __init__(self, launch: Launch, site: Site, batch: Batch, use: Site, lanes: npt.NDArray[np.bool_]) -> None:
        super().__init__(launch, site, batch)
        self.use = use
        self.lanes = lanes


class IntegerOverflow(Event):
    """A signed addition, subtraction or multiplication left the range of its type and wrapped (`before` hooks only).

    `lanes` is bool, broadcastable to ``[P, *block]``; `operands` are the two operands as int64; `operation` is ``"add"``,
    ``"sub"`` or ``"mul"``, `dtype` the type whose range was left (``"int32"``).
    """

    __slots__ = ("dtype", "lanes", "operands", "operation")

    def __init__(
        self,
        launch: Launch,
        site: Site,
        batch: Batch,
        lanes: npt.NDArray[np.bool_],
        operands: tuple[Any, Any],
        operation: str,
        dtype: str,
    ) -> None:
        super().__init__(launch, site, batch)
        self.lanes = lanes
        self.operands = operands
        self.operation = operation
        self.dtype = dtype


class Compared(Event):
    """A floating-point value is about to be stored; `reference` is what it would be, computed in float64 (`before` hooks only).

    `value`, `reference` and `active` (bool, or None: all) are broadcastable to ``[P, *block]``.
    """

    __slots__ = ("active", "reference", "value")

    def __init__(self, launch: Launch, site: Site, batch: Batch, value: Any, reference: Any, active: Any) -> None:
        super().__init__(launch, site, batch)
        self.value = value
        self.reference = reference
        self.active = active


class Executed(Event):
    """A piece of straight-line code was executed for the first time in this launch (`before` hooks only).

    `statements` are (file, line, taken): a statement that starts at that line, or, where `taken` is False, an ``if`` there
    without an ``else`` whose condition was false.
    """

    __slots__ = ("statements",)

    def __init__(self, launch: Launch, site: Site, batch: Batch, statements: tuple[tuple[str, int, bool], ...]) -> None:
        super().__init__(launch, site, batch)
        self.statements = statements
