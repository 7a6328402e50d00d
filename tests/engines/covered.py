"""A script, not a test: runs a kernel in the Python engine under coverage.py and prints which of its lines were executed."""

from __future__ import annotations

import coverage
import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def kernel(x_ptr, BIG: tl.constexpr):
    x = tl.load(x_ptr)
    if BIG:
        x = x * 100
    else:
        x = x + 1
    tl.store(x_ptr, x)


def main() -> None:
    measured = coverage.Coverage(data_file=None, include=[__file__], config_file=False)
    measured.start()
    with tritontrace.session(engine="python"):
        kernel[(1,)](torch.ones(1), BIG=False)
    measured.stop()
    with open(__file__) as file:
        lines = file.read().splitlines()
    for number in sorted(measured.get_data().lines(__file__) or ()):
        print(lines[number - 1].strip())


if __name__ == "__main__":
    main()
