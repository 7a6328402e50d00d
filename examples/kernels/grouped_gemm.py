"""Many matrix products of different sizes in one launch: programs find their tiles, operands come as addresses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl


@triton.jit
def grouped_gemm_kernel(
    a_addresses, b_addresses, c_addresses, sizes_ptr, strides_ptr, group_size,
    ELEMENT: tl.constexpr, PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program p takes the tiles p, p + PROGRAMS, p + 2 * PROGRAMS, ... of all problems laid end to end."""
    tile = tl.program_id(0)
    problem_end = 0
    for g in range(group_size):
        m = tl.load(sizes_ptr + g * 3)
        n = tl.load(sizes_ptr + g * 3 + 1)
        k = tl.load(sizes_ptr + g * 3 + 2)
        tiles_m = tl.cdiv(m, BLOCK_M)
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tiles_m * tiles_n
        while tile >= problem_end and tile < problem_end + tiles:
            lda = tl.load(strides_ptr + g * 3)
            ldb = tl.load(strides_ptr + g * 3 + 1)
            ldc = tl.load(strides_ptr + g * 3 + 2)
            a_ptr = tl.load(a_addresses + g).to(tl.pointer_type(ELEMENT))
            b_ptr = tl.load(b_addresses + g).to(tl.pointer_type(ELEMENT))
            c_ptr = tl.load(c_addresses + g).to(tl.pointer_type(ELEMENT))
            in_problem = tile - problem_end
            rows = (in_problem // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = (in_problem % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
            ks = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + rows[:, None] * lda + ks[None, :]
            b_ptrs = b_ptr + ks[:, None] * ldb + cols[None, :]
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for first in range(0, k, BLOCK_K):
                a = tl.load(a_ptrs, mask=(rows[:, None] < m) & (ks[None, :] < k - first), other=0.0)
                b = tl.load(b_ptrs, mask=(ks[:, None] < k - first) & (cols[None, :] < n), other=0.0)
                accumulator += tl.dot(a, b, input_precision="ieee")
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * ldb
            c_ptrs = c_ptr + rows[:, None] * ldc + cols[None, :]
            tl.store(c_ptrs, accumulator.to(ELEMENT), mask=(rows[:, None] < m) & (cols[None, :] < n))
            tile += PROGRAMS
        problem_end += tiles


_ELEMENTS = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def grouped_gemm(
    group_a: Sequence[torch.Tensor], group_b: Sequence[torch.Tensor], programs: int = 16, block: int = 64
) -> list[torch.Tensor]:
    """``[a @ b for a, b in zip(group_a, group_b)]`` for row-major matrices of one type."""
    outputs = [
        torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device) for a, b in zip(group_a, group_b, strict=True)
    ]
    sizes, strides = [], []
    for a, b, c in zip(group_a, group_b, outputs, strict=True):
        sizes += [a.shape[0], b.shape[1], a.shape[1]]
        strides += [a.stride(0), b.stride(0), c.stride(0)]
    device = group_a[0].device
    addresses = [torch.tensor([t.data_ptr() for t in group], device=device) for group in (group_a, group_b, outputs)]
    grouped_gemm_kernel[(programs,)](
        *addresses,
        torch.tensor(sizes, dtype=torch.int32, device=device),
        torch.tensor(strides, dtype=torch.int32, device=device),
        len(outputs), ELEMENT=_ELEMENTS[group_a[0].dtype], PROGRAMS=programs, BLOCK_M=block, BLOCK_N=block, BLOCK_K=32,
    )  # fmt: skip
    return outputs
