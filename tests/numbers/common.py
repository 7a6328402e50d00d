"""What the tests of numbers share: formats, kernels that apply one function to every element, and ways to look at results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
import triton
import triton.language as tl

import tritontrace

# Triton's name -> (triton.language dtype, numpy or ml_dtypes dtype, torch dtype that has these bits)
FORMATS: dict[str, tuple[Any, Any, Any]] = {
    "fp64": (tl.float64, np.float64, torch.float64),
    "fp32": (tl.float32, np.float32, torch.float32),
    "fp16": (tl.float16, np.float16, torch.float16),
    "bf16": (tl.bfloat16, ml_dtypes.bfloat16, torch.bfloat16),
    "fp8e5": (tl.float8e5, ml_dtypes.float8_e5m2, torch.float8_e5m2),
    "fp8e4nv": (tl.float8e4nv, ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
    "fp8e4b8": (tl.float8e4b8, ml_dtypes.float8_e4m3fnuz, torch.float8_e4m3fnuz),
    "fp8e5b16": (tl.float8e5b16, ml_dtypes.float8_e5m2fnuz, torch.float8_e5m2fnuz),
}
INTEGERS: dict[str, tuple[Any, Any, Any]] = {
    "int8": (tl.int8, np.int8, torch.int8),
    "uint8": (tl.uint8, np.uint8, torch.uint8),
    "int16": (tl.int16, np.int16, torch.int16),
    "uint16": (tl.uint16, np.uint16, torch.uint16),
    "int32": (tl.int32, np.int32, torch.int32),
    "uint32": (tl.uint32, np.uint32, torch.uint32),
    "int64": (tl.int64, np.int64, torch.int64),
    "uint64": (tl.uint64, np.uint64, torch.uint64),
}
ALL = {**FORMATS, **INTEGERS, "int1": (tl.int1, np.bool_, torch.bool)}
FP8 = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
WIDE = ("fp64", "fp32", "fp16", "bf16")


@triton.jit
def unary_kernel(x_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, OP(tl.load(x_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def binary_kernel(x_ptr, y_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    result = OP(tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask))
    tl.store(out_ptr + offsets, result, mask=mask)


@triton.jit
def ternary_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x, y, z = tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask), tl.load(z_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, OP(x, y, z), mask=mask)


@triton.jit
def cast_kernel(x_ptr, out_ptr, n, TO: tl.constexpr, ROUNDING: tl.constexpr, BITCAST: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x.to(TO, fp_downcast_rounding=ROUNDING, bitcast=BITCAST), mask=mask)


def tensor(array: Any, name: str) -> torch.Tensor:
    """A tensor of Triton's dtype `name` with the values of a numpy (or ml_dtypes) array of that dtype."""
    array = np.ascontiguousarray(array)
    if name == "int1":
        return torch.from_numpy(array.astype(np.bool_))
    raw = torch.from_numpy(array.view(f"u{array.dtype.itemsize}").copy())
    return raw.view(ALL[name][2])


def array(value: torch.Tensor, name: str) -> Any:
    """The tensor as an array of the numpy (or ml_dtypes) dtype of `name`."""
    if name == "int1":
        return value.numpy()
    width = value.element_size()
    bits = value.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]).numpy()
    return bits.view(ALL[name][1])


def launch(kernel: Any, inputs: list[tuple[Any, str]], out: str, target: str = "cuda:90", **options: Any) -> Any:
    """`kernel` over arrays of one length; the result as an array of `out`'s dtype."""
    n = np.size(inputs[0][0])
    tensors = [tensor(values, name) for values, name in inputs]
    result = tensor(np.zeros(n, ALL[out][1]), out)
    block = min(triton.next_power_of_2(max(n, 1)), 4096)
    with tritontrace.session(target=target):
        kernel[(triton.cdiv(n, block),)](*tensors, result, n, BLOCK=block, **options)
    return array(result, out)


def apply(op: Any, inputs: list[tuple[Any, str]], out: str) -> Any:
    """The JIT function `op` of one, two or three arrays."""
    kernel = (unary_kernel, binary_kernel, ternary_kernel)[len(inputs) - 1]
    return launch(kernel, inputs, out, OP=op)


def cast(values: Any, source: str, target: str, rounding: str | None = None, bitcast: bool = False) -> Any:
    """``x.to(target)`` in a kernel."""
    return launch(cast_kernel, [(values, source)], target, TO=ALL[target][0], ROUNDING=rounding, BITCAST=bitcast)


def every(name: str) -> Any:
    """Every value of a format of at most 16 bits."""
    dtype = np.dtype(ALL[name][1])
    return np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)


def same(got: Any, expected: Any, message: str = "") -> None:
    """Equal bits, but for NaNs, which only have to be NaNs in both."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    with np.errstate(invalid="ignore"):
        wide_got, wide_expected = got.astype(np.float64), expected.astype(np.float64)
    both = np.isnan(wide_got) & np.isnan(wide_expected)
    kind = f"u{got.dtype.itemsize}"
    wrong = np.flatnonzero((got.view(kind) != expected.view(kind)) & ~both)
    shown = [(int(i), got[i], expected[i]) for i in wrong[:5]]
    assert not wrong.size, f"{message} {wrong.size} differ, (index, got, expected): {shown}"


def ulps(got: Any, expected: Any) -> Any:
    """How many units of the last place of the correctly rounded result each value is away; 0 where both are not finite alike.

    `expected`: float64 (for float32 results) or a sequence of exact numbers that `float` takes.
    """
    dtype = got.dtype.type
    exact = np.asarray(expected, np.float64)
    rounded = exact.astype(dtype)
    finite = np.isfinite(rounded) & np.isfinite(got)
    alike = np.where(np.isnan(rounded), np.isnan(got), rounded == got)
    unit = np.spacing(np.abs(np.where(finite, rounded, 1)).astype(dtype)).astype(np.float64)
    off = np.abs(np.where(finite, got, 0).astype(np.float64) - np.where(finite, exact, 0)) / unit
    edge = np.abs(np.where(np.isfinite(got), got, 0)) >= np.finfo(dtype).max * 0.999  # overflow may begin an ulp earlier or later
    return np.where(finite, off, np.where(alike | (edge & np.isinf(rounded)), 0, np.inf))
