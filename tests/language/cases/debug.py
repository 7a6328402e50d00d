"""Printing, asserting, and inline assembly by callback."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.language.harness import Run, covers

N = tl.constexpr(8)


@triton.jit
def printing(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.device_print("x is", x)
    tl.store(o_ptr + i, x)


@covers("tl.device_print")
def prints(run: Run) -> None:
    seen: list[np.ndarray] = []

    class Reader(tritontrace.Client):
        name = "reader"

        def register_op_callback(self, op: type) -> tritontrace.OpCallbacks | None:
            if op is not tritontrace.events.Print:
                return None
            return tritontrace.OpCallbacks(after=lambda event: seen.append(np.array(event.values[0])))

    x = torch.arange(8.0)
    out = run.out(8)
    with tritontrace.session(clients=[Reader()]):
        run(printing, (1,), x, out)
    run.equal(out, x)
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in seen]), x.numpy())


@triton.jit
def asserting(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, x)
    tl.device_assert(x >= 0, "x must not be negative")
    tl.store(o_ptr + N + i, x)


@covers("tl.device_assert")
def asserts(run: Run) -> None:
    x = torch.arange(8.0)
    out = run.out(16)
    run(asserting, (1,), x, out, debug=True)
    run.equal(out, torch.cat([x, x]))
    with pytest.raises(tritontrace.KernelError, match="x must not be negative"), tritontrace.session():
        asserting[(1,)](-x, out, debug=True)


@triton.jit
def assembly(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    both = tl.inline_asm_elementwise("lop3.b32 $0, $1, $2, 0, 0x3c;", "=r,r,r", [x, y], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(o_ptr + i, both)


@covers("tl.inline_asm_elementwise")
def inline_assembly(run: Run) -> None:
    x, y = torch.arange(8, dtype=torch.int32), torch.full((8,), 5, dtype=torch.int32)
    out = run.out(8, dtype=torch.int32)
    run(assembly, (1,), x, y, out, session={"inline_asm": {"lop3.b32 $0, $1, $2, 0, 0x3c;": lambda a, b: a ^ b}})
    run.equal(out, x ^ y)


@triton.jit
def cuda_clock(o_ptr):
    tl.extra.cuda.gdc_wait()
    start = tl.extra.cuda.globaltimer()
    tl.store(o_ptr, tl.extra.cuda.smid())
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(o_ptr + 1, tl.extra.cuda.globaltimer() - start >= 0)
    tl.store(o_ptr + 2, start > 0)


@triton.jit
def hip_clock(o_ptr):
    start = tl.extra.hip.memrealtime()
    tl.store(o_ptr + 0, tl.extra.hip.memrealtime() - start >= 0)
    tl.store(o_ptr + 1, start > 0)


@covers("tl.extra.cuda.globaltimer tl.extra.cuda.smid tl.extra.cuda.gdc_wait tl.extra.cuda.gdc_launch_dependents")
def what_a_gpu_knows(run: Run) -> None:
    out = run.out(3, dtype=torch.int64)
    run(cuda_clock, (1,), out, target="cuda:90")
    run.equal(out, [0, 1, 1])


@triton.jit
def hip_processor(o_ptr):
    tl.store(o_ptr, tl.extra.hip.smid())


@covers("tl.extra.hip.smid", needs=("tl.extra.hip.smid",))
def an_amd_gpu_s_processor(run: Run) -> None:
    for target in ("hip:gfx942", "hip:gfx1201"):
        out = run.out(1, dtype=torch.int64)
        run(hip_processor, (1,), out, target=target)
        run.equal(out, [0])


@covers("tl.extra.hip tl.extra.hip.memrealtime")
def what_an_amd_gpu_knows(run: Run) -> None:
    for target in ("hip:gfx942", "hip:gfx1100", "hip:gfx1201"):
        out = run.out(2, dtype=torch.int64)
        run(hip_clock, (1,), out, target=target)
        run.equal(out, [1, 1])
