"""Flops: which operations count, on which unit, and how long the units take at their peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritontrace.clients.profiling.devices import Device, device_for

__all__ = ["UNITS", "Roofline", "classify", "roofline"]

UNITS = ("tensor_core", "fp32", "fp64", "special")
"""Where flops are counted: dots on tensor cores; plain arithmetic up to 32 bits; in 64 bits; and what GPUs compute with special
function units or several instructions (divisions, roots, exponentials, logarithms, libdevice)."""

_ONE = {
    f"arith.{name}" for name in ("addf", "subf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf")
}  # an operation, a flop
_FREE = {"math.absf", "math.copysign", "math.isnan", "math.isinf", "math.isfinite", "math.isnormal"} | {
    f"math.{name}" for name in ("floor", "ceil", "trunc", "round", "roundeven", "absi", "ctlz", "ctpop", "cttz", "ipowi")
}
_SPECIAL = {"arith.divf", "arith.remf", "tt.precise_divf", "tt.approx_divf", "tt.precise_sqrt"}
_FLOATS = {"fp64", "fp32", "fp16", "bf16"}


def classify(operation: str, element: str) -> tuple[str, int] | None:
    """(unit, flops of one scalar operation), or None for what is no floating-point arithmetic.

    Comparisons, selections, conversions, sign changes, rounding to integers and everything on integers are no flops; a
    multiply-add is two, a maximum or minimum is one. Dots of integers count like others.
    """
    if operation in ("tt.dot", "tt.dot_scaled"):
        return ("fp32" if element == "fp32" else "tensor_core"), 2
    if operation == "tt.clampf":
        return _plain(element), 2
    if operation == "math.fma":
        return _plain(element), 2
    if operation in _ONE:
        return _plain(element), 1
    if operation in _SPECIAL or (operation.startswith("math.") and operation not in _FREE):
        return "special", 1
    if operation.startswith("tt.extern_elementwise") and element in _FLOATS:
        return "special", 1
    return None


def _plain(element: str) -> str:
    return "fp64" if element == "fp64" else "fp32"


@dataclass(frozen=True, slots=True)
class Roofline:
    """Where a launch stands under the roofline of one device.

    `intensity` is flops per byte that must cross the memory bus at least once; `ridge` the intensity at which the units that
    are used take as long as memory. `seconds` has the least time of each: ``"memory"`` (every distinct byte once) and the
    units, at their peaks. `bound` is the longest; `attainable` flops a second if nothing else costs.
    """

    target: str
    device: str
    intensity: float
    ridge: float
    bound: str
    attainable: float
    seconds: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "target": self.target,
            "device": self.device,
            "intensity": self.intensity,
            "ridge": self.ridge,
            "bound": self.bound,
            "attainable_flops": self.attainable,
            "seconds": dict(self.seconds),
        }


def roofline(target: str, flops: Mapping[str, int], dots: Mapping[str, int], distinct_bytes: int) -> Roofline | None:
    """The position of a launch with these flops by unit, tensor-core flops by operand type, and bytes; None for a target
    of which nothing is known, and for a launch that does nothing."""
    device = device_for(target)
    total = sum(flops.values())
    if device is None or not (total or distinct_bytes):
        return None
    seconds = {"memory": distinct_bytes / device.bandwidth}
    tensor = sum(count / _tensor_peak(device, element) for element, count in dots.items())
    if tensor:
        seconds["tensor_core"] = tensor
    for unit, peak in (("fp32", device.fp32), ("fp64", device.fp64), ("special", device.special)):
        if flops.get(unit):
            seconds[unit] = flops[unit] / peak
    bound = max(seconds, key=lambda name: seconds[name])
    compute = max((value for name, value in seconds.items() if name != "memory"), default=0.0)
    return Roofline(
        target,
        device.name,
        total / distinct_bytes if distinct_bytes else float("inf"),
        total / compute / device.bandwidth if compute else 0.0,
        bound,
        total / seconds[bound] if seconds[bound] else 0.0,
        seconds,
    )


def _tensor_peak(device: Device, element: str) -> float:
    """The peak for dots of `element`; for a type that the device has no units for, that of the type it is widened to."""
    name = element
    if name.startswith("fp8"):
        name = "fp8"
    elif name in ("tf32x3", "bf16x3", "bf16x6"):
        # Each multiplication is made of three or six narrower ones.
        times = int(name[-1])
        return _tensor_peak(device, name[:4]) / times
    elif name in ("i1", "i8"):
        name = "i8"
    for known in (name, *_WIDER.get(name, ())):
        if known in device.tensor:
            return device.tensor[known]
    return device.fp64 if name == "fp64" else device.fp32


_WIDER = {"fp4": ("fp8", "fp16"), "fp8": ("fp16",), "bf16": ("fp16",), "tf32": ("fp32",), "i8": ("fp16",)}
