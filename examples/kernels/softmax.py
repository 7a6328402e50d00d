"""Row softmax that keeps a whole row on chip."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(in_ptr + row * in_row_stride + cols, mask=mask, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(out_ptr + row * out_row_stride + cols, e / tl.sum(e, axis=0), mask=mask)


@triton.jit
def persistent_softmax_kernel(
    out_ptr, in_ptr, in_row_stride, out_row_stride, n_rows, n_cols, BLOCK: tl.constexpr, num_stages: tl.constexpr
):
    """The same with fewer programs than rows; `num_stages` is a parameter that is named like a compile option."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=num_stages):
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(in_ptr + row * in_row_stride + cols, mask=mask, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_row_stride + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis of a matrix: one program per row."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](out, x, x.stride(0), out.stride(0), cols, BLOCK=triton.next_power_of_2(cols))
    return out


def occupancy_softmax(x: torch.Tensor, processors: int = 4, registers: int = 65536) -> torch.Tensor:
    """Softmax whose grid is computed from the compiled kernel's use of registers: warm up, look, launch the result."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    arguments = (out, x, x.stride(0), out.stride(0), rows, cols)
    compiled = persistent_softmax_kernel.warmup(*arguments, BLOCK=block, num_stages=2, num_warps=8, grid=(1,))
    warps = compiled.metadata.num_warps
    per_program = max(1, compiled.n_regs or 32) * 32 * warps
    programs = min(rows, processors * max(1, registers // per_program))
    compiled[(programs, 1, 1)](*arguments, block, 2)
    return out
