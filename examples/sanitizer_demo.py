"""The sanitizer on three faults that no value gives away at these sizes: a missing mask, checked without any memory;
lanes that a mask switched off and that are used all the same; and memory that is read before anybody wrote it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Sanitizer


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_tile = a_ptr + rows[:, None] * K + inner[None, :]
    b_tile = b_ptr + inner[:, None] * N + cols[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(a_tile, mask=rows[:, None] < M, other=0.0)  # the fault: K need not be a multiple of BK
        b = tl.load(b_tile, mask=cols[None, :] < N, other=0.0)
        total = tl.dot(a, b, total)
        a_tile += BK
        b_tile += BK * N
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def row_max_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)  # the fault: no other=float("-inf")
    tl.store(out_ptr + row, tl.max(x, axis=0))


@triton.jit
def column_sum_kernel(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=inside, other=0.0)
    tl.atomic_add(out_ptr + cols, tl.sum(x, axis=0), mask=cols < n_cols)


def main() -> None:
    # Tensors of the meta device have shapes and no memory: 6 GB of operands are checked here, and nothing is multiplied.
    m, n, k = 32768, 16384, 8200
    a, b, c = (torch.empty(*shape, dtype=torch.float16, device="meta") for shape in ((m, k), (k, n), (m, n)))
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        matmul_kernel[(m // 128, n // 128)](a, b, c, m, n, k, BM=128, BN=128, BK=64)
    print(session.report())

    x = torch.rand(60, 100)
    with tritontrace.session(clients=[Sanitizer(uninitialized=True)]) as session:
        row_max_kernel[(60,)](x, torch.empty(60), 100, BLOCK=128)
        sums = torch.empty(100)  # the fault: torch.zeros
        column_sum_kernel[(4,)](x, sums, 60, 100, ROWS=16, COLS=128)
    print(session.report())


if __name__ == "__main__":
    main()
