"""A client of one's own, in fifteen lines: how many elements a kernel loads from each of its tensors."""

from __future__ import annotations

from collections import Counter

import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Client, Launch, OpCallbacks, events


class LoadCounter(Client):
    name = "load_counter"

    def for_launch(self, launch: Launch) -> LoadCounter:
        fresh = LoadCounter()  # launches may run at once: each gets a counter of its own
        fresh.counts = Counter()
        return fresh

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        return OpCallbacks(before=self.count) if op is events.Load else None

    def count(self, load: events.Load) -> None:
        self.counts[load.tensor] += load.count()  # the lanes that are not masked off, over all programs of the batch

    def finalize(self) -> list[Counter[str | None]]:
        return [self.counts]  # becomes launch.records["load_counter"]


@triton.jit
def matvec_kernel(matrix, vector, out, rows, columns, TILE: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, TILE):
        at = start + tl.arange(0, TILE)
        mask = at < columns
        total += tl.sum(tl.load(matrix + row * columns + at, mask=mask, other=0.0) * tl.load(vector + at, mask=mask, other=0.0))
    tl.store(out + row, total)


def main() -> None:
    matrix, vector, out = torch.randn(30, 100), torch.randn(100), torch.empty(30)
    with tritontrace.session(clients=[LoadCounter]) as session:
        matvec_kernel[(30,)](matrix, vector, out, 30, 100, TILE=64)
    torch.testing.assert_close(out, matrix @ vector)
    (counts,) = session.launches[0].records["load_counter"]
    print("\n".join(f"{tensor}: {count} elements loaded" for tensor, count in counts.items()))


if __name__ == "__main__":
    main()
