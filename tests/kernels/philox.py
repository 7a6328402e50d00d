"""Philox 4x32-10, written from its paper (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
MASK = np.uint64(0xFFFFFFFF)


def philox(seed: int, counters: npt.NDArray[np.int64], rounds: int = 10) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words for each counter (c, 0, 0, 0) under the key made of the seed's low and high word."""
    c0 = counters.astype(np.uint64) & MASK
    c1, c2, c3 = np.zeros_like(c0), np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(rounds):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> np.uint64(32)) ^ c1 ^ np.uint64(k0), b & MASK, (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1), a & MASK
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniform(words: Words) -> npt.NDArray[np.float32]:
    """Triton's map of 32 bits to [0, 1): negative ones are mirrored, then scaled by just under 2^-31."""
    signed = words.astype(np.uint32).view(np.int32).astype(np.int64)
    signed = np.where(signed < 0, -signed - 1, signed)
    return signed.astype(np.float32) * np.float32(4.6566127342e-10)


def normal(seed: int, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Box-Muller on the first two words of each counter."""
    first, second, _, _ = philox(seed, counters)
    u1 = np.maximum(np.float32(1.0e-7), uniform(first)).astype(np.float64)
    u2 = uniform(second).astype(np.float64)
    return np.sqrt(-2.0 * np.log(u1)) * np.cos(2.0 * np.pi * u2)
