"""What devices can do at most, by target: published peaks, and the resources that limit occupancy.

Peaks are dense (no sparsity) and at boost clock, as the vendors publish them:

- cuda:70, V100 SXM2: NVIDIA V100 datasheet (15.7 TFLOPS fp32, 7.8 fp64, 125 tensor, 900 GB/s).
- cuda:75, T4: NVIDIA T4 datasheet (8.1 TFLOPS fp32, 65 fp16 tensor, 130 TOPS int8, 320 GB/s).
- cuda:80, A100 SXM 80 GB: NVIDIA A100 datasheet (19.5 TFLOPS fp32, 9.7 fp64, 156 tf32, 312 fp16/bf16, 624 TOPS int8, 19.5
  fp64 tensor, 2039 GB/s).
- cuda:86, A10: NVIDIA A10 datasheet (31.2 TFLOPS fp32, 62.5 tf32, 125 fp16/bf16, 250 TOPS int8, 600 GB/s).
- cuda:89, L40S: NVIDIA L40S datasheet (91.6 TFLOPS fp32, 183 tf32, 362 fp16/bf16, 733 fp8, 733 TOPS int8, 864 GB/s).
- cuda:90, H100 SXM: NVIDIA H100 datasheet, halves of the figures "with sparsity" (67 TFLOPS fp32, 34 fp64, 67 fp64 tensor,
  494.5 tf32, 989.5 fp16/bf16, 1979 fp8 and int8, 3.35 TB/s).
- cuda:100, B200: NVIDIA HGX B200 datasheet, one eighth of the board and half of the figures "with sparsity" (75 TFLOPS fp32,
  37 fp64 and fp64 tensor, 1100 tf32, 2250 fp16/bf16, 4500 fp8 and int8, 9000 fp4, 7.7 TB/s).
- hip:gfx90a, one of the two dies of an MI250X: AMD MI250X data sheet, halves (23.95 TFLOPS fp32 and fp64 vector, 47.9 fp32
  and fp64 matrix, 191.5 fp16/bf16 and TOPS int8, 1.6 TB/s).
- hip:gfx942, MI300X: AMD MI300X data sheet (163.4 TFLOPS fp32, 81.7 fp64, 163.4 fp64 matrix, 653.7 tf32, 1307.4 fp16/bf16,
  2614.9 fp8 and int8, 5.3 TB/s).
- hip:gfx950, MI355X: AMD MI355X data sheet (157.3 TFLOPS fp32, 78.6 fp64 vector and matrix, 2516.6 fp16/bf16, 5033.2 fp8 and
  int8, 10066 fp4, 8 TB/s).

Special functions have no published peak. On CUDA it is derived from the throughput table of the CUDA C++ programming guide: 16
results a clock and multiprocessor beside 64 (7.0, 7.5, 8.0) or 128 (others) fp32 multiply-adds, so 1/8 or 1/16 of the fp32
flops. On AMD transcendental instructions run at a quarter of the rate of fp32 multiply-adds of one issue: 1/16 of the
packed fp32 peak (gfx942, gfx950), 1/8 of the plain one (gfx90a).

Occupancy limits: the table of technical specifications per compute capability in the CUDA C++ programming guide; for AMD, the
CDNA instruction set guides (512 vector registers a lane and SIMD, 8 waves a SIMD, 4 SIMDs a compute unit) and 64 KiB of LDS
(160 KiB on gfx950).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DEVICES", "Device", "Occupancy", "device_for", "occupancy"]

_T, _G = 1e12, 1e9


@dataclass(frozen=True)
class Device:
    """Peaks of one device: `bandwidth` in bytes a second, the rest in operations a second.

    `tensor` is by Triton's operand type. `warps`, `blocks`, `registers` and `shared` are per multiprocessor (compute unit),
    `reserved` the shared memory that each block takes besides its own; AMD's `registers` are per lane and SIMD.
    """

    name: str
    bandwidth: float
    fp32: float
    fp64: float
    special: float
    tensor: Mapping[str, float]
    warps: int
    blocks: int
    registers: int
    shared: int
    reserved: int = 0
    warp_size: int = 32


def _cuda(
    name: str,
    bandwidth: float,
    fp32: float,
    fp64: float,
    tensor: dict[str, float],
    *,
    special: int = 16,
    warps: int,
    blocks: int,
    shared: int,
    reserved: int = 1,
) -> Device:
    peaks = {kind: peak * _T for kind, peak in tensor.items()}
    sizes = (warps, blocks, 65536, shared * 1024, reserved * 1024)
    return Device(name, bandwidth * _G, fp32 * _T, fp64 * _T, fp32 * _T / special, peaks, *sizes)


def _amd(
    name: str, bandwidth: float, fp32: float, fp64: float, tensor: dict[str, float], *, special: int = 16, shared: int = 64
) -> Device:
    peaks = {kind: peak * _T for kind, peak in tensor.items()}
    return Device(
        name, bandwidth * _G, fp32 * _T, fp64 * _T, fp32 * _T / special, peaks, 32, 32, 512, shared * 1024, warp_size=64
    )


DEVICES: dict[str, Device] = {
    "cuda:70": _cuda("V100 SXM2", 900, 15.7, 7.8, {"fp16": 125}, special=8, warps=64, blocks=32, shared=96, reserved=0),
    "cuda:75": _cuda("T4", 320, 8.1, 0.25, {"fp16": 65, "i8": 130}, special=8, warps=32, blocks=16, shared=64, reserved=0),
    "cuda:80": _cuda(
        "A100 SXM 80GB",
        2039,
        19.5,
        9.7,
        {"fp64": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "i8": 624},
        special=8,
        warps=64,
        blocks=32,
        shared=164,
    ),
    "cuda:86": _cuda(
        "A10", 600, 31.2, 0.49, {"tf32": 62.5, "fp16": 125, "bf16": 125, "i8": 250}, warps=48, blocks=16, shared=100
    ),
    "cuda:89": _cuda(
        "L40S",
        864,
        91.6,
        1.43,
        {"tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733, "i8": 733},
        warps=48,
        blocks=24,
        shared=100,
    ),
    "cuda:90": _cuda(
        "H100 SXM",
        3350,
        67,
        34,
        {"fp64": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979, "i8": 1979},
        warps=64,
        blocks=32,
        shared=228,
    ),
    "cuda:100": _cuda(
        "B200",
        7700,
        75,
        37,
        {"fp64": 37, "tf32": 1100, "fp16": 2250, "bf16": 2250, "fp8": 4500, "i8": 4500, "fp4": 9000},
        warps=64,
        blocks=32,
        shared=228,
    ),
    "hip:gfx90a": _amd(
        "MI250X (one die)", 1638, 23.95, 23.95, {"fp64": 47.9, "fp32": 47.9, "fp16": 191.5, "bf16": 191.5, "i8": 191.5}, special=8
    ),
    "hip:gfx942": _amd(
        "MI300X",
        5300,
        163.4,
        81.7,
        {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "i8": 2614.9},
    ),
    "hip:gfx950": _amd(
        "MI355X",
        8000,
        157.3,
        78.6,
        {"fp64": 78.6, "fp32": 157.3, "fp16": 2516.6, "bf16": 2516.6, "fp8": 5033.2, "i8": 5033.2, "fp4": 10066},
        shared=160,
    ),
}
"""Target -> a device of that architecture."""


def device_for(target: str) -> Device | None:
    """The device that stands for `target`, or None if nothing is known of it."""
    return DEVICES.get(target)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many warps of a kernel fit on one multiprocessor (compute unit), and what keeps it from more.

    `limits` are the programs (thread blocks) that each resource has room for; `limited_by` names the smallest.
    """

    warps: int
    max_warps: int
    programs: int
    limited_by: str
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def fraction(self) -> float:
        """Resident warps over the most that there can be."""
        return self.warps / self.max_warps

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {
            "warps": self.warps,
            "max_warps": self.max_warps,
            "programs": self.programs,
            "limited_by": self.limited_by,
            "limits": dict(self.limits),
            "fraction": self.fraction,
        }


def occupancy(target: str, *, num_warps: int, registers: int, shared: int) -> Occupancy | None:
    """The occupancy limit of a kernel with so many warps, registers a thread and bytes of shared memory a program.

    Registers are allotted in units of 256 to a warp on CUDA, of 8 a lane on AMD.
    """
    device = device_for(target)
    if device is None:
        return None
    limits = {"warps": device.warps // num_warps, "programs": device.blocks}
    if registers and device.warp_size == 32:
        per_warp = -(-registers * 32 // 256) * 256
        limits["registers"] = device.registers // per_warp // num_warps
    elif registers:
        # Waves of one program are spread over the four SIMDs.
        per_simd = min(device.warps // 4, device.registers // (-(-registers // 8) * 8))
        limits["registers"] = per_simd * 4 // num_warps
    if shared:
        limits["shared memory"] = device.shared // (shared + device.reserved)
    name = min(limits, key=lambda key: limits[key])
    return Occupancy(limits[name] * num_warps, device.warps, limits[name], name, limits)
