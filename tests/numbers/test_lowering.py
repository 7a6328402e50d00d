"""The instructions that Triton emits for ``cuda:90``, from which this package takes its rules, are still those.

Nothing is executed here; the kernels are compiled offline. If one of these fails with a newer Triton, the rule in
`docs/numbers.md` that names the instruction has to be looked at again.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.numbers.common import ALL

TARGET = GPUTarget("cuda", 90, 32)
POINTEES = {
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint32": "u32",
    "uint64": "u64",
    "int1": "i1",
}


@triton.jit
def convert(x_ptr, out_ptr, TO: tl.constexpr, ROUNDING: tl.constexpr):
    offsets = tl.arange(0, 1024)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets).to(TO, fp_downcast_rounding=ROUNDING))


@triton.jit
def combine(x_ptr, y_ptr, out_ptr, OP: tl.constexpr):
    offsets = tl.arange(0, 1024)
    tl.store(out_ptr + offsets, OP(tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)))


@triton.jit
def matmul(x_ptr, y_ptr, out_ptr, PRECISION: tl.constexpr, OUT: tl.constexpr):
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    out = tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at), input_precision=PRECISION, out_dtype=OUT)
    tl.store(out_ptr + at, out)


def ptx(kernel: Any, pointers: list[str], **constants: Any) -> str:
    """The PTX of `kernel`, whose first parameters are pointers to these types."""
    names = list(kernel.arg_names)
    signature = {name: "*" + POINTEES.get(kind, kind) for name, kind in zip(names, pointers)}
    signature |= dict.fromkeys(constants, "constexpr")
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=values)
    return str(triton.compile(source, target=TARGET, options={"enable_fp_fusion": True}).asm["ptx"])


@pytest.mark.parametrize(
    ("source", "target", "rounding", "instruction"),
    [
        ("fp32", "fp8e5", None, "cvt.rn.satfinite.e5m2x2.f32"),
        ("fp32", "fp8e4nv", None, "cvt.rn.satfinite.e4m3x2.f32"),
        ("fp16", "fp8e5", None, "cvt.rn.satfinite.e5m2x2.f16x2"),
        ("fp16", "fp8e4nv", None, "cvt.rn.satfinite.e4m3x2.f16x2"),
        ("bf16", "fp8e4nv", None, "cvt.rn.satfinite.e4m3x2.f32"),
        ("fp32", "fp8e5", "rtz", "cvt.rz.f16.f32"),
        ("fp32", "fp16", "rtz", "cvt.rz.f16.f32"),
        ("fp32", "bf16", "rtz", "cvt.rz.bf16"),
        ("fp32", "bf16", None, "cvt.rn.bf16"),
        ("fp64", "fp16", None, "cvt.rn.f16.f64"),
        ("fp32", "int8", None, "cvt.rzi.s16.f32"),
        ("fp32", "uint8", None, "cvt.rzi.u16.f32"),
        ("fp32", "int32", None, "cvt.rzi.s32.f32"),
        ("fp32", "uint64", None, "cvt.rzi.u64.f32"),
        ("int64", "fp16", None, "cvt.rn.f16.s64"),
        ("int64", "bf16", None, "cvt.rn.bf16.s64"),
    ],
)
def test_conversions(source: str, target: str, rounding: str | None, instruction: str) -> None:
    assert instruction in ptx(convert, [source, target], TO=ALL[target][0], ROUNDING=rounding)


@triton.jit
def largest(a, b):
    return tl.maximum(a, b)


@triton.jit
def largest_or_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def quotient(a, b):
    return a / b


@triton.jit
def total(a, b):
    return a + b


@pytest.mark.parametrize(
    ("operation", "kind", "instruction"),
    [
        (largest, "fp32", r"max\.f32"),
        (largest, "bf16", r"max\.(bf16|f32)"),
        (largest_or_nan, "fp32", r"max\.NaN\.f32"),
        (quotient, "fp32", r"div\.full\.f32"),
        (total, "fp32", r"add\.(rn\.)?f32"),  # and not .ftz: subnormal numbers are kept
    ],
)
def test_operations(operation: Any, kind: str, instruction: str) -> None:
    text = ptx(combine, [kind] * 3, OP=operation)
    assert re.search(instruction, text)
    assert "ftz" not in text


@pytest.mark.parametrize(
    ("precision", "has", "has_not"),
    [
        (None, "tf32.tf32", "cvt.rna"),  # the default is tf32, and nothing rounds the operands: the tensor core cuts them off
        ("tf32", "tf32.tf32", "cvt.rna"),
        ("tf32x3", "cvt.rna.tf32", "bf16"),
        ("ieee", "fma.rn.f32", "mma"),
    ],
)
def test_precision_of_dot(precision: str | None, has: str, has_not: str) -> None:
    text = ptx(matmul, ["fp32"] * 3, PRECISION=precision, OUT=tl.float32)
    assert has in text
    assert has_not not in text
