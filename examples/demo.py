"""``make demo``: a row-sum kernel with a planted fault, run under the sanitizer on the CPU.

The kernel is a plain Triton kernel. Its mask says ``<=`` where it must say ``<``, so each row's program reads one
element past its row: into the next row for all rows but the last (inside the tensor, hence a wrong sum that nothing
reports), and past the end of the tensor in the last row. That last access is what the sanitizer names.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols <= n_cols, other=0.0)  # the fault: <= for <
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def main() -> None:
    x = torch.arange(6 * 100, dtype=torch.float32).reshape(6, 100)
    out = torch.empty(6)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        row_sum_kernel[(6,)](x, out, 100, BLOCK=128)

    print(session.report())
    wrong = (out != x.sum(1)).nonzero().flatten().tolist()
    print(f"row sums that differ from torch's: rows {wrong}; findings: {len(session.findings)}")


if __name__ == "__main__":
    main()
