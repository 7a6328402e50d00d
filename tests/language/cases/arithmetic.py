"""Operators and elementwise functions, against numpy, scipy and torch."""

from __future__ import annotations

import numpy as np
import scipy.special
import torch
import triton
import triton.language as tl

from tests.language.harness import Run, covers

N = tl.constexpr(16)


def floats(low: float = -4.0, high: float = 4.0) -> torch.Tensor:
    """16 floats from low to high, none of them special."""
    return torch.linspace(low, high, 16, dtype=torch.float32) + 0.013


def integers(seed: int = 0) -> torch.Tensor:
    """16 ints, both signs, no zero."""
    values = np.random.default_rng(seed).integers(-1000, 1000, 16).astype(np.int32)
    return torch.from_numpy(np.where(values == 0, 7, values))


@triton.jit
def float_operators(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(o_ptr + 0 * N + i, x + y)
    tl.store(o_ptr + 1 * N + i, x - y)
    tl.store(o_ptr + 2 * N + i, x * y)
    tl.store(o_ptr + 3 * N + i, x / y)
    tl.store(o_ptr + 4 * N + i, x % y)
    tl.store(o_ptr + 5 * N + i, 2.0 + x)
    tl.store(o_ptr + 6 * N + i, 2.0 - x)
    tl.store(o_ptr + 7 * N + i, 2.0 * x)
    tl.store(o_ptr + 8 * N + i, 2.0 / x)
    tl.store(o_ptr + 9 * N + i, 2.0 % x)
    tl.store(o_ptr + 10 * N + i, -x)
    tl.store(o_ptr + 11 * N + i, x)


@covers(
    "tensor.__add__ tensor.__sub__ tensor.__mul__ tensor.__truediv__ tensor.__mod__ tensor.__radd__ tensor.__rsub__",
    "tensor.__rmul__ tensor.__rtruediv__ tensor.__rmod__ tensor.__neg__",
)
def operators_of_floats(run: Run) -> None:
    x, y = floats(), floats(3, -2)
    a, b = x.numpy(), y.numpy()
    out = run.out(12, 16)
    run(float_operators, (1,), x, y, out)
    two = np.float32(2)
    wanted = [a + b, a - b, a * b, a / b, np.fmod(a, b), two + a, two - a, two * a, two / a, np.fmod(two, a), -a, a]
    run.close(out, np.stack(wanted))


@triton.jit
def integer_operators(x_ptr, y_ptr, s_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    s = tl.load(s_ptr + i)
    tl.store(o_ptr + 0 * N + i, x // y)
    tl.store(o_ptr + 1 * N + i, x % y)
    tl.store(o_ptr + 2 * N + i, x & y)
    tl.store(o_ptr + 3 * N + i, x | y)
    tl.store(o_ptr + 4 * N + i, x ^ y)
    tl.store(o_ptr + 5 * N + i, x << s)
    tl.store(o_ptr + 6 * N + i, x >> s)
    tl.store(o_ptr + 7 * N + i, ~x)
    tl.store(o_ptr + 8 * N + i, 1000 // y)
    tl.store(o_ptr + 9 * N + i, 1000 % y)
    tl.store(o_ptr + 10 * N + i, 12 & y)
    tl.store(o_ptr + 11 * N + i, 12 | y)
    tl.store(o_ptr + 12 * N + i, 12 ^ y)
    tl.store(o_ptr + 13 * N + i, 3 << s)
    tl.store(o_ptr + 14 * N + i, -9999 >> s)


@covers(
    "tensor.__floordiv__ tensor.__and__ tensor.__or__ tensor.__xor__ tensor.__lshift__ tensor.__rshift__ tensor.__invert__",
    "tensor.__rfloordiv__ tensor.__rmod__ tensor.__rand__ tensor.__ror__ tensor.__rxor__ tensor.__rlshift__ tensor.__rrshift__",
)
def operators_of_integers(run: Run) -> None:
    x, y = integers(1), integers(2)
    s = torch.arange(16, dtype=torch.int32)
    a, b, c = x.numpy(), y.numpy(), s.numpy()
    out = run.out(15, 16, dtype=torch.int32)
    run(integer_operators, (1,), x, y, s, out)
    thousand = np.full(16, 1000)
    wanted = [np.trunc(a / b), np.fmod(a, b), a & b, a | b, a ^ b, a << c, a >> c, ~a]
    wanted += [np.trunc(thousand / b), np.fmod(thousand, b), 12 & b, 12 | b, 12 ^ b, 3 << c, -9999 >> c]
    run.equal(out, np.stack([np.asarray(w).astype(np.int32) for w in wanted]))


@triton.jit
def comparisons(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(o_ptr + 0 * N + i, x < y)
    tl.store(o_ptr + 1 * N + i, x <= y)
    tl.store(o_ptr + 2 * N + i, x > y)
    tl.store(o_ptr + 3 * N + i, x >= y)
    tl.store(o_ptr + 4 * N + i, x == y)
    tl.store(o_ptr + 5 * N + i, x != y)
    tl.store(o_ptr + 6 * N + i, 1 < x)
    tl.store(o_ptr + 7 * N + i, 1 <= x)
    tl.store(o_ptr + 8 * N + i, 1 > x)
    tl.store(o_ptr + 9 * N + i, 1 >= x)
    tl.store(o_ptr + 10 * N + i, 1 == x)
    tl.store(o_ptr + 11 * N + i, 1 != x)
    p = x > 0
    q = y > 0
    tl.store(o_ptr + 12 * N + i, p and q)
    tl.store(o_ptr + 13 * N + i, p or q)
    tl.store(o_ptr + 14 * N + i, p.logical_and(q))
    tl.store(o_ptr + 15 * N + i, p.logical_or(q))
    tl.store(o_ptr + 16 * N + i, not p)


@covers(
    "tensor.__lt__ tensor.__le__ tensor.__gt__ tensor.__ge__ tensor.__eq__ tensor.__ne__ tensor.__rlt__ tensor.__rle__",
    "tensor.__rgt__ tensor.__rge__ tensor.__req__ tensor.__rne__ tensor.logical_and tensor.logical_or tensor.__not__",
)
def comparing_and_logic(run: Run) -> None:
    x = torch.tensor([1, 2, 3, -1, 0, 1, -5, 9, 1, 0, 2, 2, -2, 4, 1, 7], dtype=torch.int32)
    y = torch.tensor([2, 2, 1, -1, 0, 3, 5, -9, 1, 1, -2, 2, 2, 0, 1, -7], dtype=torch.int32)
    out = run.out(17, 16, dtype=torch.bool)
    run(comparisons, (1,), x, y, out)
    a, b = x.numpy(), y.numpy()
    p, q = a > 0, b > 0
    wanted = [a < b, a <= b, a > b, a >= b, a == b, a != b, a > 1, a >= 1, a < 1, a <= 1, a == 1, a != 1]
    wanted += [p & q, p | q, p & q, p | q, ~p]
    run.equal(out, np.stack(wanted))


@triton.jit
def math_functions(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    p = tl.math.abs(x) + 0.25
    tl.store(o_ptr + 0 * N + i, tl.math.exp(x))
    tl.store(o_ptr + 1 * N + i, tl.math.exp2(x))
    tl.store(o_ptr + 2 * N + i, tl.math.log(p))
    tl.store(o_ptr + 3 * N + i, tl.math.log2(p))
    tl.store(o_ptr + 4 * N + i, tl.math.sin(x))
    tl.store(o_ptr + 5 * N + i, tl.math.cos(x))
    tl.store(o_ptr + 6 * N + i, tl.math.sqrt(p))
    tl.store(o_ptr + 7 * N + i, tl.math.sqrt_rn(p))
    tl.store(o_ptr + 8 * N + i, tl.math.rsqrt(p))
    tl.store(o_ptr + 9 * N + i, tl.math.erf(x))
    tl.store(o_ptr + 10 * N + i, tl.math.floor(x))
    tl.store(o_ptr + 11 * N + i, tl.math.ceil(x))
    tl.store(o_ptr + 12 * N + i, tl.math.fma(x, p, x))
    tl.store(o_ptr + 13 * N + i, tl.math.div_rn(x, p))
    tl.store(o_ptr + 14 * N + i, tl.math.fdiv(x, p, ieee_rounding=False))
    tl.store(o_ptr + 15 * N + i, tl.math.fdiv(x, p, ieee_rounding=True))
    tl.store(o_ptr + 16 * N + i, p)


@triton.jit
def tl_functions(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    p = tl.abs(x) + 0.25
    tl.store(o_ptr + 0 * N + i, tl.exp(x))
    tl.store(o_ptr + 1 * N + i, tl.exp2(x))
    tl.store(o_ptr + 2 * N + i, tl.log(p))
    tl.store(o_ptr + 3 * N + i, tl.log2(p))
    tl.store(o_ptr + 4 * N + i, tl.sin(x))
    tl.store(o_ptr + 5 * N + i, tl.cos(x))
    tl.store(o_ptr + 6 * N + i, tl.sqrt(p))
    tl.store(o_ptr + 7 * N + i, tl.sqrt_rn(p))
    tl.store(o_ptr + 8 * N + i, tl.rsqrt(p))
    tl.store(o_ptr + 9 * N + i, tl.erf(x))
    tl.store(o_ptr + 10 * N + i, tl.floor(x))
    tl.store(o_ptr + 11 * N + i, tl.ceil(x))
    tl.store(o_ptr + 12 * N + i, tl.fma(x, p, x))
    tl.store(o_ptr + 13 * N + i, tl.div_rn(x, p))
    tl.store(o_ptr + 14 * N + i, tl.fdiv(x, p, ieee_rounding=False))
    tl.store(o_ptr + 15 * N + i, tl.fdiv(x, p, ieee_rounding=True))
    tl.store(o_ptr + 16 * N + i, p)


@triton.jit
def member_functions(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    p = x.abs() + 0.25
    tl.store(o_ptr + 0 * N + i, x.exp())
    tl.store(o_ptr + 1 * N + i, x.exp2())
    tl.store(o_ptr + 2 * N + i, p.log())
    tl.store(o_ptr + 3 * N + i, p.log2())
    tl.store(o_ptr + 4 * N + i, x.sin())
    tl.store(o_ptr + 5 * N + i, x.cos())
    tl.store(o_ptr + 6 * N + i, p.sqrt())
    tl.store(o_ptr + 7 * N + i, p.sqrt_rn())
    tl.store(o_ptr + 8 * N + i, p.rsqrt())
    tl.store(o_ptr + 9 * N + i, x.erf())
    tl.store(o_ptr + 10 * N + i, x.floor())
    tl.store(o_ptr + 11 * N + i, x.ceil())
    tl.store(o_ptr + 12 * N + i, tl.fma(x, p, x))
    tl.store(o_ptr + 13 * N + i, x / p)
    tl.store(o_ptr + 14 * N + i, x / p)
    tl.store(o_ptr + 15 * N + i, x / p)
    tl.store(o_ptr + 16 * N + i, p)


@covers(
    "tl.math.abs tl.math.exp tl.math.exp2 tl.math.log tl.math.log2 tl.math.sin tl.math.cos tl.math.sqrt tl.math.sqrt_rn",
    "tl.math.rsqrt tl.math.erf tl.math.floor tl.math.ceil tl.math.fma tl.math.div_rn tl.math.fdiv",
    "tl.abs tl.exp tl.exp2 tl.log tl.log2 tl.sin tl.cos tl.sqrt tl.sqrt_rn tl.rsqrt tl.erf tl.floor tl.ceil tl.fma tl.div_rn",
    "tl.fdiv tensor.abs tensor.exp tensor.exp2 tensor.log tensor.log2 tensor.sin tensor.cos tensor.sqrt tensor.sqrt_rn",
    "tensor.rsqrt tensor.erf tensor.floor tensor.ceil tl.math",
)
def functions_of_floats(run: Run) -> None:
    x = floats()
    a = x.double().numpy()
    p = np.abs(a) + 0.25
    wanted = [np.exp(a), np.exp2(a), np.log(p), np.log2(p), np.sin(a), np.cos(a), np.sqrt(p), np.sqrt(p), 1 / np.sqrt(p)]
    wanted += [scipy.special.erf(a), np.floor(a), np.ceil(a), a * p + a, a / p, a / p, a / p, p]
    for kernel in (math_functions, tl_functions, member_functions):
        out = run.out(17, 16)
        run(kernel, (1,), x, out)
        run.close(out, np.stack(wanted), rtol=3e-7, atol=3e-7)


@triton.jit
def integer_functions(x_ptr, y_ptr, o_ptr, h_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(o_ptr + 0 * N + i, tl.cdiv(tl.abs(x), tl.abs(y)))
    tl.store(o_ptr + 1 * N + i, tl.abs(x).cdiv(tl.abs(y)))
    tl.store(o_ptr + 2 * N + i, tl.standard.cdiv(tl.abs(x), tl.abs(y)))
    tl.store(o_ptr + 3 * N + i, tl.minimum(x, y))
    tl.store(o_ptr + 4 * N + i, tl.maximum(x, y))
    tl.store(o_ptr + 5 * N + i, tl.add(x, y))
    tl.store(o_ptr + 6 * N + i, tl.sub(x, y))
    tl.store(o_ptr + 7 * N + i, tl.mul(x, y))
    tl.store(o_ptr + 8 * N + i, tl.where(x > y, x, y - 1))
    u = x.to(tl.uint32, bitcast=True)
    v = y.to(tl.uint32, bitcast=True)
    tl.store(h_ptr + i, tl.umulhi(u, v))
    tl.store(h_ptr + N + i, tl.math.umulhi(u, v))


@covers("tl.cdiv tensor.cdiv tl.standard.cdiv tl.minimum tl.maximum tl.add tl.sub tl.mul tl.where tl.umulhi tl.math.umulhi")
def functions_of_integers(run: Run) -> None:
    x, y = integers(3), integers(4)
    a, b = x.numpy().astype(np.int64), y.numpy().astype(np.int64)
    out, high = run.out(9, 16, dtype=torch.int32), run.out(2, 16, dtype=torch.uint32)
    run(integer_functions, (1,), x, y, out, high)
    divided = -(-np.abs(a) // np.abs(b))
    wanted = [divided] * 3 + [np.minimum(a, b), np.maximum(a, b), a + b, a - b, a * b, np.where(a > b, a, b - 1)]
    run.equal(out, np.stack(wanted))
    product = [(int(p) % 2**32) * (int(q) % 2**32) >> 32 for p, q in zip(a, b, strict=True)]
    run.equal(high, np.array([product, product], np.uint32))


@triton.jit
def nan_functions(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(o_ptr + 0 * N + i, tl.minimum(x, y))
    tl.store(o_ptr + 1 * N + i, tl.maximum(x, y))
    tl.store(o_ptr + 2 * N + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o_ptr + 3 * N + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o_ptr + 4 * N + i, tl.clamp(x, -1.0, 1.0))
    tl.store(o_ptr + 5 * N + i, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o_ptr + 6 * N + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.NONE))


@covers("tl.PropagateNan tl.minimum tl.maximum tl.clamp")
def nans_in_min_and_max(run: Run) -> None:
    nan = float("nan")
    x = torch.tensor([1, nan, 2, nan, -3, 0.5, 9, -9] * 2, dtype=torch.float32)
    y = torch.tensor([nan, 1, 3, nan, 4, -0.5, 9, 1] * 2, dtype=torch.float32)
    a, b = x.numpy(), y.numpy()
    out = run.out(7, 16)
    run(nan_functions, (1,), x, y, out)
    clamped = np.fmin(np.fmax(a, -1), 1)
    wanted = [np.fmin(a, b), np.fmax(a, b), np.minimum(a, b), np.maximum(a, b), clamped, np.clip(a, -1, 1), np.fmin(a, b)]
    # Without propagation a NaN goes to either bound on a GPU: max(NaN, -1) is -1 there and here.
    run.equal(out, np.stack(wanted))


@triton.jit
def standard_elementwise(x_ptr, o_ptr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + 0 * N + i, tl.sigmoid(x))
    tl.store(o_ptr + 1 * N + i, x.sigmoid())
    tl.store(o_ptr + 2 * N + i, tl.standard.sigmoid(x))
    tl.store(o_ptr + 3 * N + i, tl.softmax(x))
    tl.store(o_ptr + 4 * N + i, x.softmax())
    tl.store(o_ptr + 5 * N + i, tl.standard.softmax(x, 0))
    tl.store(o_ptr + 6 * N + i, tl.softmax(x, 0, ieee_rounding=True))


@covers("tl.sigmoid tensor.sigmoid tl.standard.sigmoid tl.softmax tensor.softmax tl.standard.softmax")
def sigmoid_and_softmax(run: Run) -> None:
    x = floats()
    out = run.out(7, 16)
    run(standard_elementwise, (1,), x, out)
    sigmoid, softmax = scipy.special.expit(x.double().numpy()), scipy.special.softmax(x.double().numpy())
    run.close(out, np.stack([sigmoid] * 3 + [softmax] * 4))
