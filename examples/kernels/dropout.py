"""Dropout whose mask is made from a seed by counter-based random numbers (Philox), never stored."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def seeded_dropout_kernel(x_ptr, out_ptr, n_elements, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def random_kernel(out_ptr, seed, n_elements, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Fills `out` with what the generator that KIND names gives for the element's index."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if KIND == "randint":
        value = tl.randint(seed, offsets)
    elif KIND == "rand":
        value = tl.rand(seed, offsets)
    else:
        value = tl.randn(seed, offsets)
    tl.store(out_ptr + offsets, value, mask=offsets < n_elements)


def seeded_dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """`x` with a share `p` of its elements set to zero and the others scaled to keep the mean."""
    out = torch.empty_like(x)
    n = x.numel()
    seeded_dropout_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, p, seed, BLOCK=256)
    return out


def random(n: int, seed: int, kind: str) -> torch.Tensor:
    """`n` random numbers of `kind` ``"randint"`` (int32 bits), ``"rand"`` or ``"randn"``."""
    out = torch.empty(n, dtype=torch.int32 if kind == "randint" else torch.float32)
    random_kernel[(triton.cdiv(n, 256),)](out, seed, n, KIND=kind, BLOCK=256)
    return out
