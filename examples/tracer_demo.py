"""The tracer on an embedding lookup with a scale from a second table: what is loaded and stored in which order, and for
one program the elements and values. No client of one's own is needed to see why a row comes out wrong.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Tracer


@triton.jit
def embedding_kernel(ids, table, scales, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    token = tl.load(ids + row)
    scale = tl.load(scales + token)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < width
        values = tl.load(table + token * width + at, mask=inside)
        tl.store(out + row * width + at, values * scale, mask=inside)


def main() -> None:
    ids, scales = torch.tensor([3, 0, 3, 1]), torch.tensor([1.0, 0.5, 2.0, 0.25])
    table, out = torch.arange(4 * 6, dtype=torch.float32).reshape(4, 6), torch.empty(4, 6)
    with tritontrace.session(clients=[Tracer(values=True)]) as session:
        embedding_kernel[(4,)](ids, table, scales, out, 6, BLOCK=4)

    (launch,) = session.launches
    program = (2, 0, 0)
    print(f"{launch.kernel_name}, program {program} of {launch.grid}:")
    for record in launch.records["tracer"]:
        if record.op not in ("load", "store"):
            continue
        info, here = launch.arguments[record.tensor], record.for_program(program)
        elements = (here["addresses"] - info.data_ptr) // info.element_bytes
        lanes = here["mask"] if "mask" in here else slice(None)
        loop = f", iteration {record.iterations[0]}" if record.iterations else ""
        what = f"{record.op} {record.tensor}{elements[lanes].tolist()} = {here['value'][lanes].tolist()}"
        print(f"  line {record.location.line}{loop}: {what}")


if __name__ == "__main__":
    main()
