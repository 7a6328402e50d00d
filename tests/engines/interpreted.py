"""A script, not a test: kernels that are InterpretedFunctions, as TRITON_INTERPRET=1 makes them, in both engines."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=-1.0)
    tl.store(out_ptr, tl.sum(tl.where(at < n, x, 0.0)))
    tl.store(out_ptr + 1, x.max())
    tl.store(out_ptr + 2, tl.reduce(x, 0, larger))
    for i in range(3):
        tl.store(out_ptr + 3 + i, larger(i, 1).to(tl.float32))


WANTED = [21.0, 6.0, 6.0, 1.0, 1.0, 2.0]


def launch() -> list[float]:
    out = torch.zeros(6)
    kernel[(1,)](torch.arange(8.0), out, 7, BLOCK=8)
    return out.tolist()


def main() -> None:
    assert type(kernel).__name__ == "InterpretedFunction"
    watched = (tl, tl.tensor, tl.core, tl.math, tl.standard, sys.modules[__name__])
    before = [dict(vars(o)) for o in watched]
    attributes = [dict(vars(k)) for k in (kernel, larger)]
    for engine in ("python", "ir", "auto"):
        with tritontrace.session(clients=["sanitizer"], engine=engine) as session:
            assert launch() == WANTED, engine
        assert session.findings == [] and session.launches[0].completed
    assert all(dict(vars(o)) == old for o, old in zip(watched, before, strict=True))
    assert [dict(vars(k)) for k in (kernel, larger)] == attributes
    # Triton's interpreter runs it as if nothing had been. (It leaves its patches on tl.core behind, so it comes last.)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        assert launch() == WANTED
    print("right")


if __name__ == "__main__":
    main()
