"""Philox, bit for bit: against a reference written from its paper, and against the Random123 distribution's vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tests.kernels.philox import philox, uniform

M32 = 0xFFFFFFFF


@triton.jit
def philox_kernel(out_ptr, seed, c0, c1, c2, c3, ROUNDS: tl.constexpr):
    at = tl.arange(0, 4)
    zero = at * 0
    a, b, c, d = tl.philox(seed, zero + c0, zero + c1, zero + c2, zero + c3, n_rounds=ROUNDS)
    tl.store(out_ptr + at, tl.where(at == 0, a, tl.where(at == 1, b, tl.where(at == 2, c, d))))


def general_philox(key: int, counter: list[int], rounds: int = 10) -> list[int]:
    """Philox 4x32 of any counter, with Python's integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & M32, key >> 32 & M32
    for _ in range(rounds):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & M32, (a >> 32) ^ c3 ^ k1, a & M32
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return [c0, c1, c2, c3]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def run_philox(key: int, counter: list[int], rounds: int = 10) -> list[int]:
    out = torch.zeros(4, dtype=torch.int32)
    with tritontrace.session(target="cuda:90"):
        philox_kernel[(1,)](out, signed(key, 64), *(signed(c, 32) for c in counter), ROUNDS=rounds)
    return [v & M32 for v in out.tolist()]


# key, counter and result of the known-answer tests for philox4x32 with 10 rounds
VECTORS = [
    (0, [0, 0, 0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (2**64 - 1, [M32] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        0x299F31D0_A4093822,
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("key", "counter", "result"), VECTORS, ids=["zeros", "ones", "pi"])
def test_published_vectors(key: int, counter: list[int], result: list[int]) -> None:
    assert general_philox(key, counter) == result
    assert run_philox(key, counter) == result


@settings(max_examples=20, deadline=None)
@given(st.integers(2**40, 2**63 - 1), st.lists(st.integers(0, M32), min_size=4, max_size=4), st.sampled_from([7, 10]))
def test_any_key_and_counter(key: int, counter: list[int], rounds: int) -> None:
    assert run_philox(key, counter, rounds) == general_philox(key, counter, rounds)


@triton.jit
def four_kernel(out_ptr, seed, N: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, N)
    if KIND == "randint4x":
        a, b, c, d = tl.randint4x(seed, at)
    elif KIND == "rand4x":
        a, b, c, d = tl.rand4x(seed, at)
    else:
        a, b, c, d = tl.randn4x(seed, at)
    tl.store(out_ptr + at, a)
    tl.store(out_ptr + N + at, b)
    tl.store(out_ptr + 2 * N + at, c)
    tl.store(out_ptr + 3 * N + at, d)


@triton.jit
def one_kernel(out_ptr, seed, N: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, N)
    if KIND == "randint":
        tl.store(out_ptr + at, tl.randint(seed, at))
    elif KIND == "rand":
        tl.store(out_ptr + at, tl.rand(seed, at))
    else:
        tl.store(out_ptr + at, tl.randn(seed, at))


def run(kernel: Any, kind: str, seed: int, n: int, dtype: torch.dtype) -> Any:
    out = torch.zeros(n * (4 if kernel is four_kernel else 1), dtype=dtype)
    with tritontrace.session(target="cuda:90"):
        kernel[(1,)](out, seed, N=n, KIND=kind)
    return out.reshape(4, n).numpy() if kernel is four_kernel else out.numpy()


SEEDS = [0, 1, 123, 2**31 - 1, 2**32, 2**40 + 17, 2**63 - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_integers_and_uniform_numbers_are_exact(seed: int) -> None:
    words = philox(seed, np.arange(512))
    got = run(four_kernel, "randint4x", seed, 512, torch.int32)
    assert (got.view(np.uint32) == np.stack(words)).all()
    assert (run(one_kernel, "randint", seed, 512, torch.int32).view(np.uint32) == words[0]).all()
    floats = run(four_kernel, "rand4x", seed, 512, torch.float32)
    assert (floats == np.stack([uniform(w) for w in words])).all()
    assert (run(one_kernel, "rand", seed, 512, torch.float32) == uniform(words[0])).all()
    assert floats.min() >= 0
    assert floats.max() < 1


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_normal_numbers(seed: int) -> None:
    """Box and Muller's transform of two uniform numbers; its logarithm and cosine are within an ulp or so."""
    u = [uniform(w).astype(np.float64) for w in philox(seed, np.arange(512))]
    expected = []
    for first, second in ((u[0], u[1]), (u[2], u[3])):
        radius = np.sqrt(-2 * np.log(np.maximum(np.float32(1e-7), first)))
        expected += [radius * np.cos(2 * np.pi * second), radius * np.sin(2 * np.pi * second)]
    got = run(four_kernel, "randn4x", seed, 512, torch.float32)
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-5, atol=3e-6)
    np.testing.assert_allclose(run(one_kernel, "randn", seed, 512, torch.float32), expected[0], rtol=1e-5, atol=3e-6)


@triton.jit
def uniform_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.random.uint_to_uniform_float(tl.load(x_ptr + at)))


def test_uniform_floats_of_edge_words() -> None:
    """Negative words are mirrored, and the scale is just under 2**-31, so that 1 is never reached."""
    words = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**31 + 1, 12345, 2**24 + 1], np.uint32)
    out = torch.zeros(8)
    with tritontrace.session(target="cuda:90"):
        uniform_kernel[(1,)](torch.from_numpy(words.view(np.int32)), out, N=8)
    assert (out.numpy() == uniform(words.astype(np.uint64))).all()
    assert out.max().item() < 1
