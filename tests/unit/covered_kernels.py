"""Kernels whose lines a test counts; the marks behind them say what a launch of 4 programs with n=40 executes."""

import triton
import triton.language as tl


@triton.jit
def helper(x, FLAG: tl.constexpr):
    """A docstring."""
    if FLAG:  # ran
        y = x + 1  # ran
    else:
        y = x - 1  # missed
    return y  # ran


@triton.jit
def combine(a, b):
    return a + b  # ran


@triton.jit
def kernel(x_ptr, n, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)  # ran
    if pid * BLOCK >= n:  # ran
        return  # ran
    SCALE: tl.constexpr = 4  # ran
    i = pid * BLOCK + tl.arange(0, BLOCK)  # ran
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)  # ran
    x = helper(x, FLAG)  # ran
    if pid == 7:  # ran
        x = x * 2  # missed
    if pid == 0:  # ran
        x = x * SCALE  # ran
    for k in range(pid):  # ran
        x += k  # ran
    if n > 1000:  # ran
        x += tl.sum(x, 0)  # missed
    else:
        x -= tl.reduce(x, 0, combine)  # ran
    tl.store(  # ran
        x_ptr + i,
        x,
        mask=i < n,
    )
    while n < 0:  # ran
        n += 1  # missed


@triton.jit
def never(x_ptr):
    tl.store(x_ptr, 1.0)  # missed
