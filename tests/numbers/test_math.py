"""`tl.exp`, `tl.sin` and the other functions of the language itself, within the distance that `docs/numbers.md` promises."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import tritontrace
from tests.numbers.common import FORMATS, apply, ulps


@triton.jit
def exp(x):
    return tl.exp(x)


@triton.jit
def exp2(x):
    return tl.exp2(x)


@triton.jit
def log(x):
    return tl.log(x)


@triton.jit
def log2(x):
    return tl.log2(x)


@triton.jit
def sin(x):
    return tl.sin(x)


@triton.jit
def cos(x):
    return tl.cos(x)


@triton.jit
def sqrt(x):
    return tl.sqrt(x)


@triton.jit
def sqrt_rn(x):
    return tl.sqrt_rn(x)


@triton.jit
def rsqrt(x):
    return tl.rsqrt(x)


@triton.jit
def erf(x):
    return tl.erf(x)


@triton.jit
def sigmoid(x):
    return tl.sigmoid(x)


@triton.jit
def floor(x):
    return tl.floor(x)


@triton.jit
def ceil(x):
    return tl.ceil(x)


@triton.jit
def div_rn(x, y):
    return tl.div_rn(x, y)


@triton.jit
def fdiv(x, y):
    return tl.fdiv(x, y)


INF, NAN = math.inf, math.nan
# function -> (reference, range, most ulps, special arguments and values)
FUNCTIONS: dict[Any, tuple[Any, tuple[float, float], float, list[tuple[float, float]]]] = {
    exp: (mp.exp, (-80, 80), 2, [(-INF, 0.0), (INF, INF), (0.0, 1.0), (1e30, INF)]),
    exp2: (lambda x: mp.mpf(2) ** x, (-120, 120), 1, [(-INF, 0.0), (INF, INF), (3.0, 8.0), (-3.0, 0.125)]),
    log: (mp.log, (1e-30, 1e30), 1, [(0.0, -INF), (-1.0, NAN), (INF, INF), (1.0, 0.0)]),
    log2: (lambda x: mp.log(x, 2), (1e-30, 1e30), 1, [(0.0, -INF), (-1.0, NAN), (8.0, 3.0)]),
    sin: (mp.sin, (-1e5, 1e5), 1, [(-0.0, -0.0), (INF, NAN)]),
    cos: (mp.cos, (-1e5, 1e5), 1, [(0.0, 1.0), (INF, NAN)]),
    sqrt: (mp.sqrt, (0, 1e30), 0.5, [(-0.0, -0.0), (-1.0, NAN), (INF, INF)]),
    sqrt_rn: (mp.sqrt, (0, 1e30), 0.5, [(-0.0, -0.0), (-1.0, NAN), (INF, INF)]),
    rsqrt: (lambda x: 1 / mp.sqrt(x), (1e-30, 1e30), 2, [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN)]),
    erf: (mp.erf, (-6, 6), 1, [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0)]),
    sigmoid: (lambda x: 1 / (1 + mp.exp(-x)), (-80, 80), 4, [(-INF, 0.0), (INF, 1.0), (0.0, 0.5)]),
    floor: (mp.floor, (-1e6, 1e6), 0, [(-0.5, -1.0), (-0.0, -0.0)]),
    ceil: (mp.ceil, (-1e6, 1e6), 0, [(-0.5, -0.0), (0.5, 1.0)]),
}


@pytest.mark.parametrize("name", ["fp32", "fp64"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions(function: Any, name: str) -> None:
    reference, (low, high), most, special = FUNCTIONS[function]
    if function is sqrt_rn and name == "fp64":
        pytest.skip("Triton has it for fp32 only")
    dtype = FORMATS[name][1]
    rng = np.random.default_rng(3)
    wide = np.exp(rng.uniform(-20, math.log(high), 200)) * (np.sign(rng.uniform(-1, 1, 200)) if low < 0 else 1)
    x = np.concatenate([rng.uniform(low, high, 200), wide]).astype(dtype)
    got = apply(function, [(x, name)], name)
    with mp.workdps(40):
        exact = [reference(mp.mpf(float(v))) for v in x]
        units = np.spacing(np.abs(np.array([float(e) for e in exact]).astype(dtype))).astype(np.float64)
        errors = np.array([float(abs(mp.mpf(float(g)) - e)) for g, e in zip(got, exact)]) / units
    worst = int(errors.argmax())
    assert errors[worst] <= most + 1e-9, f"{function.__name__}({x[worst]!r}): {errors[worst]} ulp"
    points = np.array([p for p, _ in special] + [NAN], dtype)
    values = apply(function, [(points, name)], name)
    for point, value, expected in zip(points.tolist(), values.tolist(), [v for _, v in special] + [NAN]):
        same = (
            math.isnan(value)
            if math.isnan(expected)
            else value == expected and math.copysign(1, value) == math.copysign(1, expected)
        )
        assert same, f"{function.__name__}({point}) is {value}, not {expected}"


def test_division_is_rounded_to_nearest() -> None:
    """Also `/` and `fdiv`, where a GPU's approximation may be 2 ulp away."""
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(2000).astype(np.float32) for _ in range(2))
    for function in (div_rn, fdiv):
        assert (apply(function, [(x, "fp32"), (y, "fp32")], "fp32") == x / y).all()


def test_a_lane_does_not_depend_on_its_company() -> None:
    x = np.random.default_rng(5).uniform(0.01, 9, 5000).astype(np.float32)
    for function in FUNCTIONS:
        together = apply(function, [(x, "fp32")], "fp32")
        apart = apply(function, [(x[:7], "fp32")], "fp32")
        assert (together[:7].view(np.int32) == apart.view(np.int32)).all(), function.__name__


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.softmax(tl.load(x_ptr + at)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_softmax(dtype: torch.dtype) -> None:
    x = torch.randn(64).to(dtype)
    out = torch.zeros(64, dtype=dtype)
    with tritontrace.session(target="cuda:90"):
        softmax_kernel[(1,)](x, out, N=64)
    torch.testing.assert_close(out.double(), torch.softmax(x.double(), 0), rtol=torch.finfo(dtype).eps, atol=1e-7)


@triton.jit
def narrow_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at).to(tl.float32)
    tl.store(out_ptr + at, (libdevice.tanh(x) * tl.exp(-x * x)).to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_narrow_types_are_computed_in_fp32_and_rounded_at_the_end(name: str) -> None:
    x = torch.linspace(-4, 4, 256).to(FORMATS[name][2])
    out = torch.zeros(256, dtype=FORMATS[name][2])
    with tritontrace.session(target="cuda:90"):
        narrow_kernel[(1,)](x, out, N=256)
    exact = np.tanh(x.double().numpy()) * np.exp(-(x.double().numpy() ** 2))
    got = out.float().numpy().astype(FORMATS[name][1])
    number = np.abs(exact) > 1e-4
    assert (np.abs(got.astype(np.float64) - exact)[number] <= 0.51 * np.spacing(np.abs(got)).astype(np.float64)[number]).all()
    assert ulps(np.float32([1.0]), [1.0]).tolist() == [0]
