"""The two engines on the same launches: equal outputs, bit for bit, and equal accesses up to their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, reject, settings
from triton.compiler.errors import CompilationError

import tritontrace
from examples.kernels import attention, block_pointers, dropout, histogram, layer_norm, matmul, softmax, vector_add
from tests.engines import generated
from tests.engines.comparing import Accesses, same_bits
from tritontrace.kernels import capabilities


def both(run: Callable[[], Any], values: bool = True) -> list[tuple[list[torch.Tensor], Counter[Any]]]:
    results = []
    for engine in ("ir", "python"):
        client = Accesses(values)
        with tritontrace.session(clients=[client, "sanitizer"], engine=engine) as session:
            out = run()
        assert session.findings == []
        results.append(([*out] if isinstance(out, tuple) else [out], client.seen))
    return results


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def _layer_norm() -> Any:
    x, weight, bias = rand(9, 70), rand(70), rand(70)
    y, mean, rstd = layer_norm.layer_norm_forward(x, weight, bias, 1e-5)
    return y, mean, rstd


@triton.jit
def others(x_ptr, out_ptr, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n, other=at.to(tl.float32)))
    tl.store(out_ptr + B + at, tl.load(x_ptr + at, mask=at < n, other=tl.zeros([B], tl.float32) * -1.0))


def _others() -> torch.Tensor:
    out = torch.zeros(32)
    others[(1,)](rand(16), out, 5, B=16)
    assert out[5:16].tolist() == [*range(5, 16)]
    assert out[21:].signbit().all()
    return out


EXACT: dict[str, Callable[[], Any]] = {
    "add": lambda: vector_add.add(rand(1000), rand(1000), 128),
    "add in bfloat16": lambda: vector_add.add(rand(300, dtype=torch.bfloat16), rand(300, dtype=torch.bfloat16), 64),
    "softmax": lambda: softmax.softmax(rand(7, 100)),
    "persistent softmax": lambda: softmax.occupancy_softmax(rand(11, 60)),
    "dropout": lambda: dropout.seeded_dropout(rand(500), 0.3, 17),
    "uniform numbers": lambda: dropout.random(300, 5, "rand"),
    "normal numbers": lambda: dropout.random(300, 5, "randn"),
    "histogram": lambda: histogram.histogram(torch.arange(3000, dtype=torch.int32) * 7 % 50, 64, 256),
    "histogram by atomics": lambda: histogram.histogram(torch.arange(3000, dtype=torch.int32) * 7 % 50, 64, 256, scatter=True),
    "layer norm": _layer_norm,
    "others of many values": _others,
}

# A product of stacked matrices may be summed in another order than that of one.
CLOSE: dict[str, Callable[[], Any]] = {
    "matmul": lambda: matmul.matmul(rand(70, 50), rand(50, 90)),
    "matmul in float16": lambda: matmul.matmul(rand(70, 50, dtype=torch.float16), rand(50, 90, dtype=torch.float16)),
    "split-k matmul": lambda: matmul.split_k_matmul(rand(40, 200), rand(200, 40)),
    "attention": lambda: attention.causal_attention(rand(2, 80, 32), rand(2, 80, 32), rand(2, 80, 32), 32),
    "descriptors of the kernel's": lambda: block_pointers.device_descriptor_matmul(rand(70, 64), rand(64, 48)),
    "descriptors of the host's": lambda: block_pointers.host_descriptor_matmul(rand(70, 64), rand(64, 48)),
}
if capabilities.block_pointers():
    CLOSE["block pointers"] = lambda: block_pointers.block_pointer_matmul(rand(70, 64), rand(64, 48))


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_corpus(name: str) -> None:
    (first, accesses), (second, others) = both((EXACT | CLOSE)[name], values=name in EXACT)
    for a, b in zip(first, second, strict=True):
        if name in EXACT:
            assert same_bits(a, b).all()
        else:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert accesses and accesses == others


def generated_inputs(kind: str) -> list[torch.Tensor]:
    generator = np.random.default_rng(3)
    if kind in generated.INTEGERS:
        info = np.iinfo(kind)
        values = generator.integers(info.min, info.max, 40, dtype=kind, endpoint=True)
        values[:6] = [0, 1, info.max, info.min, 2, 3]
        tensor = torch.from_numpy(values)
    else:
        numbers = generator.normal(size=40) * 3
        numbers[:6] = [0.0, -0.0, np.inf, np.nan, 1e-5, 300]
        tensor = torch.from_numpy(numbers).to(getattr(torch, kind))
    return [tensor[:20].clone(), tensor[10:].clone()]


@pytest.mark.filterwarnings("ignore:Logical operators")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=generated.kernels())
def test_generated_kernels(drawn: tuple[str, str], tmp_path: Path) -> None:
    source, kind = drawn
    kernel = generated.load(source, tmp_path)
    x, y = generated_inputs(kind)

    def run() -> torch.Tensor:
        out = torch.zeros(20, dtype=x.dtype)
        kernel[(3,)](x, y, out, 19, B=8)
        return out

    try:
        with tritontrace.session():
            run()
    except CompilationError:
        reject()  # hypothesis complains if that happens to many
    (first, accesses), (second, others) = both(run)
    assert same_bits(first[0], second[0]).all(), source
    assert accesses == others, source
