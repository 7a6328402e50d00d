"""Layer normalization, whose backward adds weight gradients under locks."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from examples.kernels.layer_norm import LayerNorm, layer_norm_backward, layer_norm_forward


@pytest.mark.parametrize("shape", [(1, 1), (20, 100), (33, 512)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=lambda d: str(d).removeprefix("torch."))
def test_forward(clean, randn, shape, dtype):
    x, w, b = randn(*shape, dtype=dtype), randn(shape[1], dtype=dtype), randn(shape[1], dtype=dtype)
    with clean():
        y, mean, rstd = layer_norm_forward(x, w, b)
    want = torch.nn.functional.layer_norm(x.float(), (shape[1],), w.float(), b.float())
    tolerance = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    assert_close(y.float(), want, rtol=tolerance, atol=tolerance)
    assert_close(mean, x.float().mean(1), rtol=1e-4, atol=1e-5)
    assert_close(rstd, (x.float().var(1, unbiased=False) + 1e-5).rsqrt(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 7, 64])
def test_backward_with_locks(clean, randn, groups):
    """With one group every program waits for the same lock; with 64 most groups have one program."""
    x, w, dy = randn(50, 100), randn(100), randn(50, 100)
    mean, rstd = x.mean(1), (x.var(1, unbiased=False) + 1e-5).rsqrt()
    with clean(2):
        got = layer_norm_backward(dy, x, w, mean, rstd, groups=groups)
    x.requires_grad_()
    w.requires_grad_()
    b = torch.zeros(100, requires_grad=True)
    want = torch.autograd.grad(torch.nn.functional.layer_norm(x, (100,), w, b), (x, w, b), dy)
    assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_both_directions_through_autograd(clean, randn):
    x, w, b = (randn(*s).requires_grad_() for s in ((20, 96), (96,), (96,)))
    dy = randn(20, 96)
    with clean(3):
        y = LayerNorm.apply(x, w, b, 1e-5)
        got = torch.autograd.grad(y, (x, w, b), dy)
    want_y = torch.nn.functional.layer_norm(x, (96,), w, b)
    assert_close(y, want_y)
    assert_close(got, torch.autograd.grad(want_y, (x, w, b), dy), rtol=1e-4, atol=1e-4)
