"""How far what a kernel stores is from the same computation in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tritontrace import events
    from tritontrace.source import SourceLocation

__all__ = ["Comparison", "Precision"]

_SMALLEST = {"fp64": 2.0**-1022, "fp16": 2.0**-14, "fp8e4nv": 2.0**-6, "fp8e5": 2.0**-14}


@dataclass(frozen=True, slots=True)
class Precision:
    """The relative error of what one store wrote, over all its executions in one launch.

    `max_relative` and `mean_relative` are of ``|value - reference| / |reference|`` over `count` lanes that were stored and
    finite in both (a reference below the smallest normal number of the type counts as that number). `program`, `lane`,
    `value` and `reference` say where the largest one is. `disagreeing` lanes were finite in one of them only (or of unlike
    infinities). `dtype` is the stored type.
    """

    location: SourceLocation | None
    call_stack: tuple[SourceLocation, ...]
    tensor: str | None
    dtype: str
    count: int
    max_relative: float
    mean_relative: float
    program: tuple[int, int, int] | None
    lane: int | None
    value: float
    reference: float
    disagreeing: int = 0

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "location": self.location.to_dict() if self.location else None,
            "call_stack": [frame.to_dict() for frame in self.call_stack],
            "tensor": self.tensor,
            "dtype": self.dtype,
            "count": self.count,
            "max_relative": self.max_relative,
            "mean_relative": self.mean_relative,
            "program": None if self.program is None else list(self.program),
            "lane": self.lane,
            "value": self.value,
            "reference": self.reference,
            "disagreeing": self.disagreeing,
        }

    def describe(self) -> str:
        """One line of text."""
        place = f"{self.location}" if self.location is not None else "?"
        text = f"{place}: store of {self.tensor} ({self.dtype}), relative error at most {self.max_relative:.3g}, "
        text += f"{self.mean_relative:.3g} on average over {self.count} values"
        if self.program is not None and self.max_relative:
            text += f"; worst in lane {self.lane} of program {self.program}: {self.value!r} for {self.reference!r}"
        if self.disagreeing:
            text += f"; {self.disagreeing} values are finite in only one of them"
        return text


class Comparison:
    """Gathers the comparisons of one store."""

    def __init__(self, site: events.Site) -> None:
        self.site = site
        self.count = 0
        self.total = 0.0
        self.disagreeing = 0
        self.worst: tuple[float, tuple[int, int, int] | None, int | None, float, float] = (0.0, None, None, 0.0, 0.0)

    def add(self, event: events.Compared) -> None:
        """Takes note of one execution."""
        shape = (len(event), *event.site.block)
        value = np.broadcast_to(event.value, shape).astype(np.float64)
        reference = np.broadcast_to(event.reference, shape)
        active = np.broadcast_to(True if event.active is None else event.active, shape)
        finite = np.isfinite(value) & np.isfinite(reference) & active
        alike = finite | (np.isnan(value) & np.isnan(reference)) | (value == reference)
        self.disagreeing += int(np.count_nonzero(active & ~alike))
        number = int(np.count_nonzero(finite))
        if not number:
            return
        floor = _SMALLEST.get(self.site.dtype, 2.0**-126)
        error = np.where(finite, np.abs(value - reference) / np.maximum(np.abs(reference), floor), 0.0)
        self.count += number
        self.total += float(error.sum())
        flat = int(error.argmax())
        largest = float(error.reshape(-1)[flat])
        if largest > self.worst[0] or self.worst[1] is None:
            row, lane = divmod(flat, max(1, int(np.prod(shape[1:], dtype=np.int64))))
            x, y, z = (int(i) for i in event.programs[row])
            self.worst = (largest, (x, y, z), lane, float(value.reshape(-1)[flat]), float(reference.reshape(-1)[flat]))

    def precision(self) -> Precision:
        """The result."""
        largest, program, lane, value, reference = self.worst
        return Precision(
            location=self.site.location,
            call_stack=self.site.call_stack,
            tensor=self.site.parameter,
            dtype=self.site.dtype,
            count=self.count,
            max_relative=largest,
            mean_relative=self.total / self.count if self.count else 0.0,
            program=program,
            lane=lane,
            value=value,
            reference=reference,
            disagreeing=self.disagreeing,
        )
