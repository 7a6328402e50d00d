"""FlagGems: random numbers. What is drawn is compared with its distribution, and a seed with itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
import torch
from flag_gems import ops
from torch import Tensor

from tests.libraries.case import Case, Results
from tests.libraries.flag_gems_cases import Inputs
from tests.libraries.flag_gems_setup import PHILOX

COUNT = 8000


def nothing(g: torch.Generator) -> dict[str, Any]:
    return {}


def drawn(name: str, draw: Callable[[], Tensor], distribution: Any) -> Case:
    """Draws COUNT numbers. "misfit" is 1 if Kolmogorov's and Smirnov's test rejects them at one in a million."""

    def run(values: dict[str, Any]) -> Results:
        PHILOX.manual_seed(7)
        first, second = draw(), draw()
        PHILOX.manual_seed(7)
        again = draw()
        both = torch.cat([first, second]).double().numpy()
        misfit = scipy.stats.kstest(both, distribution.cdf).pvalue < 1e-6
        return {
            "misfit": torch.tensor(misfit),
            "repeats with the seed": torch.tensor(torch.equal(first, again)),
            "goes on after a draw": torch.tensor(not torch.equal(first, second)),
        }

    expected = {"misfit": False, "repeats with the seed": True, "goes on after a draw": True}
    return Case(name, nothing, run, lambda values: {key: torch.tensor(value) for key, value in expected.items()})


class FastExponential:
    """What exponential_ promises to draw from, with its own logarithm: four terms of a series that goes up to log 2."""

    def __init__(self, rate: float) -> None:
        mantissa, exponent = np.frexp((np.arange(1 << 20) + 0.5) / (1 << 20))
        m = 2 * mantissa - 1
        self.values = np.sort(-(m * (1 + m * (-0.5 + m * (1 / 3 - m * 0.25))) + (exponent - 1) * np.log(2)) / rate)

    def cdf(self, x: Any) -> Any:
        return np.searchsorted(self.values, x) / len(self.values)


def empty() -> Tensor:
    return torch.empty(COUNT)


def counted(name: str, run: Callable[[], Results], expected: Results, inputs: Inputs = nothing, **options: Any) -> Case:
    def seeded(values: dict[str, Any]) -> Results:
        PHILOX.manual_seed(7)
        return run()

    return Case(name, inputs, seeded, lambda values: expected, **options)


def dropout() -> Results:
    x = torch.ones(COUNT)
    out, mask = ops.dropout(x, 0.3, True)
    grad = ops.dropout_backward(x * 2, mask, 1 / 0.7)
    return {"kept": mask.double().mean(), "out is the kept ones, scaled": out - mask / 0.7, "gradient": grad - 2 * mask / 0.7}


def bernoulli() -> Results:
    value = ops.bernoulli_(empty(), 0.3)
    return {"mean": value.double().mean(), "neither": ((value != 0) & (value != 1)).sum().double()}


def randperm() -> Results:
    value = ops.randperm(3000, device="cpu")
    return {"sorted": value.sort()[0], "moved": (value == torch.arange(3000)).sum() < 20}


def multinomial() -> Results:
    drawn = ops.multinomial(torch.tensor([0.1, 0.2, 0.0, 0.7]), COUNT, True)
    return {"shares": torch.bincount(drawn, minlength=4).double() / COUNT}


ZEROS = torch.zeros(COUNT)
CASES: list[Case] = [
    drawn("rand", lambda: ops.rand((COUNT,), device="cpu"), scipy.stats.uniform()),
    drawn("randn", lambda: ops.randn((COUNT,), device="cpu"), scipy.stats.norm()),
    drawn("rand_like", lambda: ops.rand_like(empty()), scipy.stats.uniform()),
    drawn("randn_like", lambda: ops.randn_like(empty()), scipy.stats.norm()),
    drawn("uniform_", lambda: ops.uniform_(empty(), -2.0, 5.0), scipy.stats.uniform(-2, 7)),
    drawn("exponential_", lambda: ops.exponential_(empty(), 1.7), FastExponential(1.7)),
    drawn("normal tensor", lambda: ops.normal_tensor_float(torch.full((COUNT,), 3.0), 2.0), scipy.stats.norm(3, 2)),
    drawn("normal_", lambda: ops.normal_(empty(), 3.0, 2.0), scipy.stats.norm(3, 2)),
    counted(
        "dropout",
        dropout,
        {"kept": torch.tensor(0.7).double(), "out is the kept ones, scaled": ZEROS, "gradient": ZEROS},
        atol=0.03,
    ),
    counted("bernoulli_", bernoulli, {"mean": torch.tensor(0.3).double(), "neither": torch.tensor(0.0).double()}, atol=0.03),
    counted("randperm", randperm, {"sorted": torch.arange(3000), "moved": torch.tensor(True)}),
    counted("multinomial", multinomial, {"shares": torch.tensor([0.1, 0.2, 0, 0.7]).double()}, atol=0.03),
]
