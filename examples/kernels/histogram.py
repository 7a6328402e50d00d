"""Histograms: counted per tile and merged with atomics, or one atomic addition for each value."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n_elements, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts with `tl.histogram`; the lanes past the end are masked out of the count."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    counts = tl.histogram(x, BINS, mask=mask)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), counts)


@triton.jit
def scatter_histogram_kernel(x_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(out_ptr + x, 1, mask=mask)


def histogram(x: torch.Tensor, bins: int, block: int = 1024, scatter: bool = False) -> torch.Tensor:
    """int32 counts of the values 0 .. bins - 1 of an int32 vector; `bins` a power of two."""
    out = torch.zeros(bins, dtype=torch.int32, device=x.device)
    grid = (triton.cdiv(x.numel(), block),)
    if scatter:
        scatter_histogram_kernel[grid](x, out, x.numel(), BLOCK=block)
    else:
        histogram_kernel[grid](x, out, x.numel(), BINS=bins, BLOCK=block)
    return out
