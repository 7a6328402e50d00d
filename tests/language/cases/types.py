"""Types: casts to each of them, the questions that a dtype answers, constants, tuples."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.language.harness import Run, covers

N = tl.constexpr(16)


@triton.jit
def cast_integers(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + 0 * N + i, x.to(tl.int8).to(tl.int64))
    tl.store(o_ptr + 1 * N + i, x.to(tl.int16).to(tl.int64))
    tl.store(o_ptr + 2 * N + i, tl.cast(x, tl.int32).to(tl.int64))
    tl.store(o_ptr + 3 * N + i, x.cast(tl.int64))
    tl.store(o_ptr + 4 * N + i, x.to(tl.uint8).to(tl.int64))
    tl.store(o_ptr + 5 * N + i, x.to(tl.uint16).to(tl.int64))
    tl.store(o_ptr + 6 * N + i, x.to(tl.uint32).to(tl.int64))
    tl.store(o_ptr + 7 * N + i, x.to(tl.uint64).to(tl.int64))
    tl.store(o_ptr + 8 * N + i, x.to(tl.int1).to(tl.int64))


@covers(
    "tl.int8 tl.int16 tl.int32 tl.int64 tl.uint8 tl.uint16 tl.uint32 tl.uint64 tl.int1 tl.cast tensor.to tensor.cast",
)
def casts_of_integers(run: Run) -> None:
    values = np.random.default_rng(0).integers(-(2**62), 2**62, 16)
    values[:4] = [0, -1, 255, 2**32]
    out = run.out(9, 16, dtype=torch.int64)
    run(cast_integers, (1,), torch.from_numpy(values), out)
    kinds = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
    run.equal(out, np.stack([values.astype(kind).astype(np.int64) for kind in kinds] + [(values != 0).astype(np.int64)]))


@triton.jit
def cast_floats(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + 0 * N + i, x.to(tl.float16).to(tl.float64))
    tl.store(o_ptr + 1 * N + i, x.to(tl.bfloat16).to(tl.float64))
    tl.store(o_ptr + 2 * N + i, x.to(tl.float32).to(tl.float64))
    tl.store(o_ptr + 3 * N + i, x.to(tl.float64))
    tl.store(o_ptr + 4 * N + i, x.to(tl.float32).to(tl.float8e4nv).to(tl.float32).to(tl.float64))
    tl.store(o_ptr + 5 * N + i, x.to(tl.float32).to(tl.float8e5).to(tl.float32).to(tl.float64))
    tl.store(o_ptr + 6 * N + i, x.to(tl.float32).to(tl.float8e4b8).to(tl.float32).to(tl.float64))
    tl.store(o_ptr + 7 * N + i, x.to(tl.float32).to(tl.float8e5b16).to(tl.float32).to(tl.float64))
    tl.store(o_ptr + 8 * N + i, x.to(tl.float32).to(tl.float8e4b15).to(tl.float32).to(tl.float64))


@covers(
    "tl.float16 tl.bfloat16 tl.float32 tl.float64 tl.float8e4nv tl.float8e5 tl.float8e4b8 tl.float8e5b16 tl.float8e4b15",
)
def casts_of_floats(run: Run) -> None:
    # Multiples of 1/4 below 1.75 are exact in e4b15 too, whose range ends there.
    values = np.array([0.0, 0.25, -0.5, 0.75, 1.0, -1.25, 1.5, 1.75, -1.75, 0.125, -0.375, 0.625, 0.875, -1.125, 1.375, 0.0625])
    exact = torch.from_numpy(values)
    out = run.out(9, 16, dtype=torch.float64)
    run(cast_floats, (1,), exact, out)
    wanted = [values.astype(kind).astype(np.float64) for kind in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
    narrow = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, None)
    for kind in narrow:
        wanted.append(values if kind is None else values.astype(np.float32).astype(kind).astype(np.float64))
    run.equal(out, np.stack(wanted))


@triton.jit
def roundings(x_ptr, near_ptr, zero_ptr, bits_ptr, f_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(near_ptr + i, tl.cast(x, tl.float16, fp_downcast_rounding="rtne"))
    tl.store(zero_ptr + i, x.to(tl.float16, fp_downcast_rounding="rtz"))
    bits = x.to(tl.int32, bitcast=True)
    tl.store(bits_ptr + i, bits)
    tl.store(f_ptr + i, tl.cast(bits + 1, tl.float32, bitcast=True))


@covers("tl.cast tensor.to")
def rounding_and_bitcast(run: Run) -> None:
    x = torch.randn(16, generator=torch.Generator().manual_seed(1)) * 3
    a = x.numpy()
    near, zero = run.out(16, dtype=torch.float16), run.out(16, dtype=torch.float16)
    bits, above = run.out(16, dtype=torch.int32), run.out(16)
    run(roundings, (1,), x, near, zero, bits, above)
    rounded = a.astype(np.float16)
    down = np.where(np.abs(rounded.astype(np.float32)) > np.abs(a), np.nextafter(rounded, np.float16(0)), rounded)
    run.equal(near, rounded)
    run.equal(zero, down)
    run.equal(bits, a.view(np.int32))
    run.equal(above, (a.view(np.int32) + 1).view(np.float32))


@triton.jit
def answers(x_ptr, o_ptr, KIND: tl.constexpr):
    t = x_ptr.dtype.element_ty
    tl.store(o_ptr + 0, t.is_fp8() + 0)
    tl.store(o_ptr + 1, t.is_fp8e4nv() + 0)
    tl.store(o_ptr + 2, t.is_fp8e4b8() + 0)
    tl.store(o_ptr + 3, t.is_fp8e4b15() + 0)
    tl.store(o_ptr + 4, t.is_fp8e5() + 0)
    tl.store(o_ptr + 5, t.is_fp8e5b16() + 0)
    tl.store(o_ptr + 6, t.is_fp16() + 0)
    tl.store(o_ptr + 7, t.is_bf16() + 0)
    tl.store(o_ptr + 8, t.is_fp32() + 0)
    tl.store(o_ptr + 9, t.is_fp64() + 0)
    tl.store(o_ptr + 10, t.is_int1() + 0)
    tl.store(o_ptr + 11, t.is_int8() + 0)
    tl.store(o_ptr + 12, t.is_int16() + 0)
    tl.store(o_ptr + 13, t.is_int32() + 0)
    tl.store(o_ptr + 14, t.is_int64() + 0)
    tl.store(o_ptr + 15, t.is_uint8() + 0)
    tl.store(o_ptr + 16, t.is_uint16() + 0)
    tl.store(o_ptr + 17, t.is_uint32() + 0)
    tl.store(o_ptr + 18, t.is_uint64() + 0)
    tl.store(o_ptr + 19, t.is_floating() + 0)
    tl.store(o_ptr + 20, t.is_standard_floating() + 0)
    tl.store(o_ptr + 21, t.is_int_signed() + 0)
    tl.store(o_ptr + 22, t.is_int_unsigned() + 0)
    tl.store(o_ptr + 23, t.is_int() + 0)
    tl.store(o_ptr + 24, t.is_bool() + 0)
    tl.store(o_ptr + 25, t.is_block() + 0)
    tl.store(o_ptr + 26, t.is_ptr() + 0)
    tl.store(o_ptr + 27, x_ptr.dtype.is_ptr() + 0)
    tl.store(o_ptr + 28, t.is_const() + 0)
    tl.store(o_ptr + 29, (t.scalar == t) + 0)
    tl.store(o_ptr + 30, (t == KIND) + 0)


QUESTIONS = (
    "is_fp8 is_fp8e4nv is_fp8e4b8 is_fp8e4b15 is_fp8e5 is_fp8e5b16 is_fp16 is_bf16 is_fp32 is_fp64 is_int1 is_int8 is_int16 "
    "is_int32 is_int64 is_uint8 is_uint16 is_uint32 is_uint64 is_floating is_standard_floating is_int_signed is_int_unsigned "
    "is_int is_bool"
).split()

KINDS = {
    torch.float8_e4m3fn: (tl.float8e4nv, "is_fp8 is_fp8e4nv is_floating"),
    torch.float8_e4m3fnuz: (tl.float8e4b8, "is_fp8 is_fp8e4b8 is_floating"),
    torch.float8_e5m2: (tl.float8e5, "is_fp8 is_fp8e5 is_floating"),
    torch.float8_e5m2fnuz: (tl.float8e5b16, "is_fp8 is_fp8e5b16 is_floating"),
    torch.float16: (tl.float16, "is_fp16 is_floating is_standard_floating"),
    torch.bfloat16: (tl.bfloat16, "is_bf16 is_floating is_standard_floating"),
    torch.float32: (tl.float32, "is_fp32 is_floating is_standard_floating"),
    torch.float64: (tl.float64, "is_fp64 is_floating is_standard_floating"),
    torch.bool: (tl.int1, "is_int1 is_int is_bool is_int_unsigned"),
    torch.int8: (tl.int8, "is_int8 is_int is_int_signed"),
    torch.int16: (tl.int16, "is_int16 is_int is_int_signed"),
    torch.int32: (tl.int32, "is_int32 is_int is_int_signed"),
    torch.int64: (tl.int64, "is_int64 is_int is_int_signed"),
    torch.uint8: (tl.uint8, "is_uint8 is_int is_int_unsigned"),
    torch.uint16: (tl.uint16, "is_uint16 is_int is_int_unsigned"),
    torch.uint32: (tl.uint32, "is_uint32 is_int is_int_unsigned"),
    torch.uint64: (tl.uint64, "is_uint64 is_int is_int_unsigned"),
}


@covers(
    " ".join(f"dtype.{question}" for question in QUESTIONS),
    "dtype.is_block dtype.is_ptr dtype.is_const dtype.scalar tensor.dtype",
)
def what_a_dtype_answers(run: Run) -> None:
    for kind, (triton_kind, yes) in KINDS.items():
        out = run.out(31, dtype=torch.int32)
        run(answers, (1,), torch.zeros(4).to(kind), out, KIND=triton_kind)
        first = [int(question in yes.split()) for question in QUESTIONS]
        run.equal(out, [*first, 0, 0, 1, 0, 1, 1])


@triton.jit
def limits(x_ptr, o_ptr):
    t = x_ptr.dtype.element_ty
    tl.store(o_ptr + 0, t.get_int_max_value())
    tl.store(o_ptr + 1, t.get_int_min_value())
    tl.store(o_ptr + 2, tl.dtype.is_dtype("int8") + 0)
    tl.store(o_ptr + 3, t.primitive_bitwidth)


@covers("dtype.get_int_max_value dtype.get_int_min_value dtype.is_dtype tl.dtype")
def limits_of_integers(run: Run) -> None:
    for kind in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32):
        out = run.out(4, dtype=torch.int64)
        run(limits, (1,), torch.zeros(1).to(kind), out)
        info = torch.iinfo(kind)
        run.equal(out, [info.max, info.min, 1, info.bits])


@triton.jit
def classes(x_ptr: tl.const, descriptor, o_ptr, K: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + 0 * N + i, x)
    if isinstance(x, tl.tensor) and isinstance(x.type, tl.block_type):
        tl.store(o_ptr + 1 * N + i, x + 1)
    if isinstance(descriptor, tl.tensor_descriptor) and isinstance(x_ptr.type, tl.pointer_type):
        tl.store(o_ptr + 2 * N + i, descriptor.load([0]) + 2)
    if isinstance(x, tl.tensor_descriptor) or isinstance(i, tl.pointer_type):
        tl.store(o_ptr + 3 * N + i, x)
    tl.store(o_ptr + 4 * N + i, x + K)


@covers("tl.tensor tl.block_type tl.pointer_type tl.tensor_descriptor tl.const tl.constexpr")
def classes_of_values(run: Run) -> None:
    x = torch.arange(16.0)
    out = run.out(5, 16)
    run(classes, (1,), x, TensorDescriptor.from_tensor(x, [16]), out, K=4)
    run.equal(out, torch.stack([x, x + 1, x + 2, torch.full_like(x, 77), x + 4]))
