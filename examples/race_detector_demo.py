"""A reduction whose last program adds up what the others left, with atomics that are too weak to say when that is there.

Each program sums a slice and counts itself in; whoever counts last sums the slices' sums. On most GPUs, most of the time,
``sem="relaxed"`` gives the right total, and so it does here. The race detector says why it need not.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def total_kernel(x, partial, count, out, n, SEM: tl.constexpr, BLOCK: tl.constexpr, SLICES: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + pid, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))
    tl.debug_barrier()
    if tl.atomic_add(count, 1, sem=SEM) == tl.num_programs(0) - 1:
        slices = tl.arange(0, SLICES)
        sums = tl.load(partial + slices, mask=slices < tl.num_programs(0), other=0.0)
        tl.store(out, tl.sum(sums))


def total(x: torch.Tensor, sem: str) -> torch.Tensor:
    slices = triton.cdiv(x.numel(), 256)
    partial, out = torch.empty(slices), torch.empty(1)
    count = torch.zeros(1, dtype=torch.int32)
    total_kernel[(slices,)](x, partial, count, out, x.numel(), SEM=sem, BLOCK=256, SLICES=triton.next_power_of_2(slices))
    return out


def main() -> None:
    x = torch.arange(2000, dtype=torch.float32)
    for sem in ("relaxed", "acq_rel"):
        with tritontrace.session(clients=["race_detector"]) as session:
            out = total(x, sem)
        print(f"sem={sem!r}: the total is {'right' if out.item() == x.sum().item() else 'wrong'}")
        print(session.report())


if __name__ == "__main__":
    main()
