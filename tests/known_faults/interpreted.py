"""A script, not a test: run with TRITON_INTERPRET=1, or with SET_AFTER_IMPORT=1 to set it after Triton was imported."""

from __future__ import annotations

import os
import sys

import torch
import triton
import triton.language as tl

if os.environ.get("SET_AFTER_IMPORT"):
    os.environ["TRITON_INTERPRET"] = "1"

import tritontrace


@triton.jit
def double(x):
    return x + x


@triton.jit
def reduce_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr, tl.sum(x))
    tl.store(out_ptr + 1, x.max())
    tl.store(out_ptr + 2, double(tl.cdiv(n, 4)).to(tl.float32))
    tl.store(out_ptr + 4 + offsets, tl.softmax(x), mask=offsets < n)


def main() -> None:
    x = torch.arange(8, dtype=torch.float32)
    out = torch.zeros(12)
    before = {o: dict(vars(o)) for o in (tl, tl.tensor, tl.core, tl.math, tl.standard, sys.modules[__name__])}
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        reduce_kernel[(1,)](x, out, 8, BLOCK=8)
    torch.testing.assert_close(out[:3], torch.tensor([28.0, 7.0, 4.0]))
    torch.testing.assert_close(out[4:], x.softmax(0))
    assert session.findings == [], session.findings
    assert len(session.launches) == 1 and session.launches[0].completed
    for o, old in before.items():
        assert vars(o).keys() == old.keys(), (o, vars(o).keys() ^ old.keys())
        assert all(vars(o)[name] is value for name, value in old.items()), o

    # Outside the session the process goes on as it was set up.
    if not os.environ.get("SET_AFTER_IMPORT"):
        plain = torch.zeros(12)
        reduce_kernel[(1,)](x, plain, 8, BLOCK=8)
        torch.testing.assert_close(plain, out)
        # ... and a kernel that the plain interpreter ran first is traced all the same (fault 6).
        short = torch.arange(4, dtype=torch.float32)
        with tritontrace.session(clients=["sanitizer"]) as session:
            reduce_kernel[(1,)](short, out, 5, BLOCK=8)
        (finding,) = session.findings
        assert finding.elements.tolist() == [4] and finding.tensor == "x_ptr"
    print("right")


if __name__ == "__main__":
    main()
