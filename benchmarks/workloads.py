"""What is measured: one entry for each workload, with inputs made from a fixed seed and a reference from torch.

Nothing here knows which peer runs it: the peer is the state of the process (`worker.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from examples.kernels.attention import causal_attention
from examples.kernels.grouped_gemm import grouped_gemm
from examples.kernels.histogram import histogram
from examples.kernels.layer_norm import layer_norm_backward, layer_norm_forward
from examples.kernels.matmul import matmul
from examples.kernels.softmax import softmax
from examples.kernels.vector_add import add

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Workload:
    """`run` is what is timed; `reference` gives what it must return, within `tolerance` (absolute and relative)."""

    name: str
    inputs: Callable[[], Inputs]
    run: Callable[..., Any]
    reference: Callable[..., Any]
    tolerance: float = 1e-4


def _tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor in nested tuples and lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in _tensors(item)] if isinstance(value, (tuple, list)) else []


def input_bytes(inputs: Inputs) -> int:
    """The memory that the inputs take."""
    return sum(t.numel() * t.element_size() for t in _tensors(inputs))


def mismatch(workload: Workload, inputs: Inputs, output: Any) -> str | None:
    """None if `output` is right, else what differs."""
    got, want = _tensors(output), _tensors(workload.reference(*inputs))
    for index, (g, w) in enumerate(zip(got, want, strict=True)):
        if not torch.allclose(g.double(), w.double(), rtol=workload.tolerance, atol=workload.tolerance):
            return f"output {index} differs from torch by up to {(g.double() - w.double()).abs().max().item():.3g}"
    return None


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _layer_norm_inputs(rows: int, cols: int) -> Inputs:
    return _random(rows, cols), 1 + 0.1 * _random(cols, seed=1), 0.1 * _random(cols, seed=2)


def _layer_norm_reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    mean = x.mean(1)
    rstd = (x.var(1, unbiased=False) + 1e-5).rsqrt()
    return torch.nn.functional.layer_norm(x, (x.shape[1],), w, b), mean, rstd


def _backward_inputs(rows: int, cols: int) -> Inputs:
    x, w, b = _layer_norm_inputs(rows, cols)
    _, mean, rstd = _layer_norm_reference(x, w, b)
    return _random(rows, cols, seed=3), x, w, mean, rstd


def _backward_reference(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Any:
    x, w, b = x.clone().requires_grad_(), w.clone().requires_grad_(), torch.zeros_like(w).requires_grad_()
    return torch.autograd.grad(torch.nn.functional.layer_norm(x, (x.shape[1],), w, b), (x, w, b), dy)


def _attention_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _group(sizes: Sequence[tuple[int, int, int]]) -> Inputs:
    a = [_random(m, k, seed=i) / math.sqrt(k) for i, (m, n, k) in enumerate(sizes)]
    b = [_random(k, n, seed=100 + i) for i, (m, n, k) in enumerate(sizes)]
    return a, b


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "vector add 1M",
        lambda: (_random(1 << 20), _random(1 << 20, seed=1)),
        add,
        torch.add,
    ),
    Workload(
        "softmax 4096x1024",
        lambda: (_random(4096, 1024),),
        softmax,
        lambda x: x.softmax(1),
    ),
    Workload(
        "matmul 512^3",
        lambda: (_random(512, 512), _random(512, 512, seed=1)),
        matmul,
        torch.matmul,
        tolerance=1e-3,
    ),
    Workload(
        "layernorm 4096x1024",
        lambda: _layer_norm_inputs(4096, 1024),
        layer_norm_forward,
        _layer_norm_reference,
    ),
    Workload(
        "causal attention 8x512x64",
        lambda: tuple(_random(8, 512, 64, seed=i) for i in range(3)),
        lambda q, k, v: causal_attention(q, k, v)[0],
        _attention_reference,
    ),
    Workload(
        "grouped GEMM",
        lambda: _group([(512, 512, 256), (256, 256, 256), (128, 384, 512), (64, 64, 128)]),
        grouped_gemm,
        lambda a, b: [x @ y for x, y in zip(a, b, strict=True)],
        tolerance=1e-3,
    ),
    Workload(
        "histogram 1M",
        lambda: (torch.randint(0, 256, (1 << 20,), dtype=torch.int32, generator=torch.Generator().manual_seed(0)), 256),
        histogram,
        lambda x, bins: torch.bincount(x, minlength=bins).int(),
    ),
    Workload(
        "layernorm backward, locks",
        lambda: _backward_inputs(1024, 1024),
        layer_norm_backward,
        _backward_reference,
        tolerance=1e-3,
    ),
)


def by_name(name: str) -> Workload:
    """The workload `name`; `KeyError` lists what there is."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise KeyError(f"no workload {name!r}; there are {[w.name for w in WORKLOADS]}")
