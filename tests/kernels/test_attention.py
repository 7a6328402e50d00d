"""Causal attention, forward."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from examples.kernels.attention import causal_attention


@pytest.mark.parametrize("rows", [32, 100, 256])
def test_causal_attention(clean, randn, rows):
    q, k, v = (randn(3, rows, 32) for _ in range(3))
    with clean():
        out, lse = causal_attention(q, k, v, block=32)
    assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), rtol=1e-4, atol=1e-5)
    scores = (q @ k.mT / math.sqrt(32)).masked_fill(torch.ones(rows, rows).triu(1).bool(), -math.inf)
    assert_close(lse, scores.logsumexp(2) / math.log(2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=lambda d: str(d).removeprefix("torch."))
def test_causal_attention_in_half_precision(clean, randn, dtype):
    q, k, v = (randn(2, 64, 64, dtype=dtype) for _ in range(3))
    with clean():
        out, _ = causal_attention(q, k, v, block=32)
    want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    assert_close(out.float(), want, rtol=3e-2, atol=3e-2)
