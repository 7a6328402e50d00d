"""The tracer: the sequence of memory and compute events of a launch."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tritontrace import events
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.source import SourceLocation

if TYPE_CHECKING:
    from os import PathLike

    from tritontrace.launch import Launch

__all__ = ["TRACE_SCHEMA_VERSION", "Trace", "TraceRecord", "Tracer"]

TRACE_SCHEMA_VERSION = 1
"""Version of the files that `Trace.save` writes; raised when a field changes its meaning."""

_ARRAYS = ("programs", "addresses", "mask", "value")

_TRACED: dict[type[events.Event], str] = {
    events.Load: "load",
    events.Store: "store",
    events.Atomic: "atomic",
    events.Dot: "dot",
    events.Reduce: "reduce",
    events.Print: "print",
    events.Assert: "assert",
}
"""What is traced, and the names it goes by."""


@dataclass(slots=True, eq=False)
class TraceRecord:
    """One operation executed by one batch of programs.

    `op` is ``"load"``, ``"store"``, ``"atomic"``, ``"dot"``, ``"reduce"``, ``"print"`` or ``"assert"``; `detail` the kind of
    atomic or reduction, or the text of a print or an assert. `n_programs` is how many (selected) programs executed it together,
    `iterations` the 0-based iterations of the enclosing loops, outermost first (None where the programs stand in
    different ones). `masked` tells that some lanes were off.

    With ``Tracer(values=True)``: `programs` int32 ``[P, 3]``; for an access `addresses` (int64, bytes), `mask` (bool) and
    `value`, each ``[P, *block]``; for a dot or a reduction `value` is the (first) result. Otherwise they are None.
    """

    op: str
    location: SourceLocation | None
    call_stack: tuple[SourceLocation, ...]
    tensor: str | None
    dtype: str
    block: tuple[int, ...]
    n_programs: int
    masked: bool
    iterations: tuple[int | None, ...]
    detail: str | None = None
    programs: npt.NDArray[np.int32] | None = None
    addresses: npt.NDArray[np.int64] | None = None
    mask: npt.NDArray[np.bool_] | None = None
    value: npt.NDArray[Any] | None = None

    def for_program(self, program: tuple[int, int, int]) -> dict[str, npt.NDArray[Any]]:
        """The addresses, mask and value of one program; raises `KeyError` if it is not in the record, or has no values."""
        if self.programs is None:
            raise KeyError("this trace has no values; trace with Tracer(values=True)")
        rows = np.flatnonzero((self.programs == np.asarray(program)).all(axis=1))
        if not len(rows):
            raise KeyError(f"program {program} is not in this record")
        arrays = {"addresses": self.addresses, "mask": self.mask, "value": self.value}
        return {name: array[rows[0]] for name, array in arrays.items() if array is not None}


class Trace(list[TraceRecord]):
    """The records of one launch in execution order; a list that can be saved."""

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the records to `path` as a numpy archive (``.npz``), whatever the name ends in."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        entries = []
        for index, record in enumerate(self):
            entries.append(_entry(record))
            for name in _ARRAYS:
                array = getattr(record, name)
                if array is not None:
                    arrays[f"{index}.{name}"] = array
        text = json.dumps({"schema_version": TRACE_SCHEMA_VERSION, "records": entries})
        arrays["trace"] = np.frombuffer(text.encode(), np.uint8)
        with Path(path).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """Reads what `save` wrote. Raises `ValueError` for a file that is no trace, or of a newer version."""
        with np.load(Path(path), allow_pickle=False) as archive:
            if "trace" not in archive:
                raise ValueError(f"{path} is not a saved trace")
            header = json.loads(archive["trace"].tobytes().decode())
            if header["schema_version"] > TRACE_SCHEMA_VERSION:
                raise ValueError(f"{path} was written by a newer version (schema {header['schema_version']})")
            arrays: dict[int, dict[str, npt.NDArray[Any]]] = {}
            for key in archive.files:
                if key != "trace":
                    index, name = key.split(".")
                    arrays.setdefault(int(index), {})[name] = archive[key]
        return cls(_record(entry, arrays.get(index, {})) for index, entry in enumerate(header["records"]))


class Tracer(Client):
    """Records the memory and compute events of every launch: `Launch.records` ``["tracer"]`` holds its `TraceRecord`s.

    By default a record is a summary: nothing is copied, and the cost does not depend on the size of the tiles. With
    ``values=True`` every record carries addresses, masks and values. `programs`, an iterable of (x, y, z), restricts the trace to
    these programs (missing entries count as 0); an event without any of them is left out.
    """

    name = "tracer"

    def __init__(self, *, values: bool = False, programs: Iterable[tuple[int, ...]] | None = None) -> None:
        self.values = values
        self.programs = None if programs is None else tuple(_full_id(program) for program in programs)
        self._wanted = None if self.programs is None else np.array(self.programs, np.int32).reshape(-1, 3)
        self._trace = Trace()

    def for_launch(self, launch: Launch) -> Tracer:
        """A fresh tracer with the same settings: launches may run at once."""
        fresh = copy.copy(self)  # not a call of the class: a subclass may be made differently
        fresh._trace = Trace()
        return fresh

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens after every traced operation, when its result is there."""
        name = _TRACED.get(op)
        return None if name is None else OpCallbacks(after=lambda event: self._add(name, event))

    def finalize(self) -> Trace:
        """The launch's records in execution order."""
        trace, self._trace = self._trace, Trace()
        return trace

    @staticmethod
    def save(records: Launch | Iterable[TraceRecord], path: str | PathLike[str]) -> None:
        """Writes the trace of a launch (or the records) to `path`; see `Trace.save`."""
        Trace(records if isinstance(records, Iterable) else records.records.get(Tracer.name, ())).save(path)

    @staticmethod
    def load(path: str | PathLike[str]) -> Trace:
        """Reads what `save` wrote; see `Trace.load`."""
        return Trace.load(path)

    def _add(self, name: str, event: events.Event) -> None:
        rows = None
        if self._wanted is not None:
            rows = np.flatnonzero((event.programs[:, None, :] == self._wanted[None]).all(axis=2).any(axis=1))
            if not len(rows):
                return
        site = event.site
        record = TraceRecord(
            name,
            site.location,
            site.call_stack,
            None,
            site.dtype,
            site.block,
            len(event) if rows is None else len(rows),
            False,
            _counters(event.iterations),
        )
        if isinstance(event, events.MemoryEvent):
            record.tensor = event.tensor
            record.masked = event.mask is not None and not event.mask.all()
            if isinstance(event, events.Atomic):
                record.detail = event.operation
        elif isinstance(event, events.Reduce):
            record.detail = event.kind
        elif isinstance(event, (events.Print, events.Assert)):
            record.detail = event.prefix if isinstance(event, events.Print) else event.message
        if self.values:
            _fill(record, event, slice(None) if rows is None else rows)
        self._trace.append(record)


def _counters(iterations: tuple[tuple[SourceLocation | None, Any], ...]) -> tuple[int | None, ...]:
    return tuple([counter if isinstance(counter, int) else None for _, counter in iterations]) if iterations else ()


def _full_id(program: tuple[int, ...]) -> tuple[int, int, int]:
    if not 1 <= len(program) <= 3:
        raise ValueError(f"a program is named by one to three indices, not {program!r}")
    x, y, z = (*(int(i) for i in program), 0, 0)[:3]
    return x, y, z


def _fill(record: TraceRecord, event: events.Event, rows: Any) -> None:
    """Copies what the event holds for `rows` of its batch (the engine reuses nothing, but views would keep tensors alive)."""
    record.programs = event.programs[rows].copy()
    value: Any = None
    if isinstance(event, events.MemoryEvent):
        record.addresses = event.addresses()[rows].copy()
        record.mask = event.active()[rows].copy()
        value = event.result if isinstance(event, events.Atomic) else getattr(event, "value", None)
    elif isinstance(event, events.Dot):
        value = event.result
    elif isinstance(event, events.Reduce):
        value = event.results[0] if event.results else None
    elif isinstance(event, events.Print):
        value = event.values[0] if event.values else None
    elif isinstance(event, events.Assert):
        value = event.condition
    if value is None:
        return
    array = np.asarray(value.dense() if hasattr(value, "dense") else value)
    if isinstance(event, events.MemoryEvent):
        array = np.broadcast_to(array, event.shape)
    elif array.ndim == 0 or array.shape[0] != len(event):
        array = np.broadcast_to(array, (len(event), *array.shape[1:]))
    record.value = array[rows].copy()


def _entry(record: TraceRecord) -> dict[str, Any]:
    return {
        "op": record.op,
        "location": record.location.to_dict() if record.location else None,
        "call_stack": [frame.to_dict() for frame in record.call_stack],
        "tensor": record.tensor,
        "dtype": record.dtype,
        "block": list(record.block),
        "n_programs": record.n_programs,
        "masked": record.masked,
        "iterations": list(record.iterations),
        "detail": record.detail,
    }


def _record(entry: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> TraceRecord:
    return TraceRecord(
        op=entry["op"],
        location=SourceLocation(**entry["location"]) if entry["location"] else None,
        call_stack=tuple(SourceLocation(**frame) for frame in entry["call_stack"]),
        tensor=entry["tensor"],
        dtype=entry["dtype"],
        block=tuple(entry["block"]),
        n_programs=entry["n_programs"],
        masked=entry["masked"],
        iterations=tuple(entry["iterations"]),
        detail=entry["detail"],
        **{name: arrays.get(name) for name in _ARRAYS},
    )
