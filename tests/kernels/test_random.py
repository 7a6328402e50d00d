"""Counter-based random numbers and the dropout made of them, against a Philox of our own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from examples.kernels.dropout import random, seeded_dropout
from tests.kernels.philox import normal, philox, uniform

SEEDS = [0, 1, 123, 2**31 - 1, 2**31 + 5, 2**40 + 17]


def test_the_reference_gives_the_published_vectors():
    """The known-answer vectors of the Random123 distribution for philox4x32-10 with zero counter and key."""
    words = [int(w[0]) for w in philox(0, np.zeros(1, np.int64))]
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", SEEDS)
def test_randint(clean, seed):
    with clean():
        got = random(1000, seed, "randint")
    want = philox(seed, np.arange(1000))[0].astype(np.uint32).view(np.int32)
    assert torch.equal(got, torch.from_numpy(want))


@pytest.mark.parametrize("seed", SEEDS)
def test_rand(clean, seed):
    with clean():
        got = random(1000, seed, "rand")
    assert torch.equal(got, torch.from_numpy(uniform(philox(seed, np.arange(1000))[0])))


def test_randn(clean):
    with clean():
        got = random(1000, 42, "randn")
    assert_close(got, torch.from_numpy(normal(42, np.arange(1000))).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.75])
def test_seeded_dropout(clean, randn, p):
    x = randn(3000)
    with clean(2):
        out, again = seeded_dropout(x, p, seed=123), seeded_dropout(x, p, seed=123)
    keep = torch.from_numpy(uniform(philox(123, np.arange(3000))[0])) > np.float32(p)
    assert_close(out, torch.where(keep, x / (1 - p), 0.0))
    assert torch.equal(out, again)


def test_another_seed_drops_others(clean, randn):
    x = randn(3000)
    with clean(2):
        first, second = seeded_dropout(x, 0.5, seed=1), seeded_dropout(x, 0.5, seed=2)
    assert not torch.equal(first == 0, second == 0)
