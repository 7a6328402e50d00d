"""One program of a row-wise kernel, stepped through: Python inside the kernel looks at its values where a sum goes wrong.

The third row holds an infinity. Where it turns into a NaN a ``breakpoint()`` would stop in pdb, on the kernel's own line, with
the blocks as local variables; here the kernel notes them in a list instead, so that the example runs without a keyboard.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import tritontrace

SEEN: list[Any] = []


@triton.jit
def shifted_sum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    shifted = tl.exp(x - tl.max(x, axis=0))
    total = tl.sum(shifted, axis=0)
    if total != total:  # Python's if, on this program's number: breakpoint() works here, and so does any function
        SEEN.append((__program__, x, shifted))  # noqa: F821 - every kernel has its program's ids in this name
    tl.store(out_ptr + row, total)


def main() -> None:
    x, out = torch.zeros(4, 5), torch.zeros(4)
    x[2, 1] = float("inf")
    with tritontrace.session(engine="python"):
        shifted_sum_kernel[(4,)](x, out, 5, BLOCK=8)
    print(f"sums of the rows: {out.tolist()}")
    for program, block, shifted in SEEN:
        print(f"program {program}")
        print(f"  x       = {block}")
        print(f"  shifted = {shifted}")

    # The same program alone, with the infinity taken out; the others write nothing.
    x[2, 1] = 0.0
    out.fill_(-1.0)
    with tritontrace.session(engine="python", programs=[(2, 0, 0)]):
        shifted_sum_kernel[(4,)](x, out, 5, BLOCK=8)
    print(f"program 2 alone: {out.tolist()}")


if __name__ == "__main__":
    main()
