"""The profiler on a transpose, plain and through a tile: where the bytes go, and what the compiler made of it.

Both kernels give the same result. The first lets neighbouring lanes write to different rows: each 4-byte store touches a
32-byte sector of its own. The second reads and writes along rows and turns the tile around in between.
No GPU is needed: the kernels are compiled for an H100, and the roofline is that device's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def plain_transpose_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(out_ptr + cols * n_rows + row, x, mask=cols < n_cols)


@triton.jit
def tiled_transpose_kernel(x_ptr, out_ptr, n_rows, n_cols, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=inside)
    tl.store(out_ptr + cols[:, None] * n_rows + rows[None, :], tl.trans(x), mask=tl.trans(inside))


def main() -> None:
    x = torch.arange(512 * 384, dtype=torch.float32).reshape(512, 384)
    plain, tiled = torch.empty(384, 512), torch.empty(384, 512)
    with tritontrace.session(clients=["profiler"], target="cuda:90") as session:
        plain_transpose_kernel[(512, 3)](x, plain, 512, 384, BLOCK=128)
        tiled_transpose_kernel[(8, 6)](x, tiled, 512, 384, TILE=64)

    print(session.report())
    for launch in session.launches:
        (profile,) = launch.records["profiler"]
        moved = 32 * sum(access.sectors for access in profile.accesses)
        print(f"{launch.kernel_name}: {profile.bytes_useful} useful bytes in {moved} bytes of sectors")
    print("both right:", torch.equal(plain, x.T) and torch.equal(tiled, x.T))


if __name__ == "__main__":
    main()
