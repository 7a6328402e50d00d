"""Random numbers, against Philox as its paper defines it."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.kernels import philox as reference
from tests.language.harness import Run, covers

N = tl.constexpr(64)
SEED = 0x1234_5678_9ABC


@triton.jit
def words(o_ptr, seed):
    i = tl.arange(0, N)
    tl.store(o_ptr + 0 * N + i, tl.randint(seed, i))
    tl.store(o_ptr + 1 * N + i, tl.random.randint(seed, i, n_rounds=10))
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(o_ptr + 2 * N + i, a)
    tl.store(o_ptr + 3 * N + i, b)
    a, b, c, d = tl.random.randint4x(seed, i)
    tl.store(o_ptr + 4 * N + i, c)
    tl.store(o_ptr + 5 * N + i, d)
    zero = tl.zeros([N], tl.uint32)
    counter = i.to(tl.uint32)
    a, b, c, d = tl.philox(seed, counter, zero, zero, zero)
    tl.store(o_ptr + 6 * N + i, b)
    a, b, c, d = tl.random.philox(seed, counter, zero, zero, zero, n_rounds=7)
    tl.store(o_ptr + 7 * N + i, c)
    low = (seed & 0xFFFFFFFF).to(tl.uint32) + zero
    high = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32) + zero
    a, b, c, d = tl.philox_impl(counter, zero, zero, zero, low, high)
    tl.store(o_ptr + 8 * N + i, d)
    a, b, c, d = tl.random.philox_impl(counter, zero, zero, zero, low, high, 7)
    tl.store(o_ptr + 9 * N + i, d)


@covers(
    "tl.randint tl.random.randint tl.randint4x tl.random.randint4x tl.philox tl.random.philox tl.philox_impl",
    "tl.random.philox_impl",
)
def random_words(run: Run) -> None:
    out = run.out(10, 64, dtype=torch.uint32)
    run(words, (1,), out, SEED)
    full, short = (reference.philox(SEED, np.arange(64), rounds) for rounds in (10, 7))
    run.equal(out, np.stack([*full[:1] * 2, *full[:4], full[1], short[2], full[3], short[3]]).astype(np.uint32))


@triton.jit
def numbers(o_ptr, seed):
    i = tl.arange(0, N)
    tl.store(o_ptr + 0 * N + i, tl.rand(seed, i))
    tl.store(o_ptr + 1 * N + i, tl.random.rand(seed, i))
    a, b, _c, d = tl.rand4x(seed, i)
    tl.store(o_ptr + 2 * N + i, b)
    _a, b, _c, d = tl.random.rand4x(seed, i)
    tl.store(o_ptr + 3 * N + i, d)
    tl.store(o_ptr + 4 * N + i, tl.uint_to_uniform_float(tl.randint(seed, i)))
    tl.store(o_ptr + 5 * N + i, tl.random.uint_to_uniform_float(tl.randint(seed, i)))
    tl.store(o_ptr + 6 * N + i, tl.randn(seed, i))
    tl.store(o_ptr + 7 * N + i, tl.random.randn(seed, i))
    a, b, _c, d = tl.randn4x(seed, i)
    tl.store(o_ptr + 8 * N + i, a)
    a, b, _c, d = tl.random.randn4x(seed, i)
    tl.store(o_ptr + 9 * N + i, d)
    u, v = tl.rand(seed, i), tl.rand(seed + 1, i)
    a, b = tl.pair_uniform_to_normal(u, v)
    tl.store(o_ptr + 10 * N + i, a)
    a, b = tl.random.pair_uniform_to_normal(u, v)
    tl.store(o_ptr + 11 * N + i, b)


@covers(
    "tl.rand tl.random.rand tl.rand4x tl.random.rand4x tl.uint_to_uniform_float tl.random.uint_to_uniform_float tl.randn",
    "tl.random.randn tl.randn4x tl.random.randn4x tl.pair_uniform_to_normal tl.random.pair_uniform_to_normal",
)
def random_numbers(run: Run) -> None:
    out = run.out(12, 64)
    run(numbers, (1,), out, SEED)
    uniform = [reference.uniform(words).astype(np.float64) for words in reference.philox(SEED, np.arange(64))]
    other = reference.uniform(reference.philox(SEED + 1, np.arange(64))[0]).astype(np.float64)

    def normal(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        radius = np.sqrt(-2 * np.log(np.maximum(np.float32(1e-7), u)))
        return radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)

    first, last = normal(uniform[0], uniform[1]), normal(uniform[2], uniform[3])
    wanted = [uniform[0]] * 2 + [uniform[1], uniform[3]] + [uniform[0]] * 2 + [first[0]] * 3 + [last[1]]
    wanted += list(normal(uniform[0], other))
    run.close(out, np.stack(wanted), rtol=1e-5, atol=1e-5)
