"""Matrix products: grouped order, split-k, many at once, through block pointers and descriptors."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from examples.kernels import block_pointers
from examples.kernels.grouped_gemm import grouped_gemm
from examples.kernels.matmul import matmul, split_k_matmul
from tritontrace.kernels import capabilities

TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
by_dtype = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=lambda d: str(d).removeprefix("torch."))
has_block_pointers = pytest.mark.skipif(not capabilities.block_pointers(), reason="this Triton has no block pointers")


def check(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Against the exact product of the same inputs, rounded once."""
    tolerance = TOLERANCE[a.dtype]
    assert_close(got.double(), (a.double() @ b.double()), rtol=tolerance, atol=tolerance)


@by_dtype
@pytest.mark.parametrize("sizes", [(64, 64, 64), (130, 70, 90), (512, 96, 33)])
def test_matmul_in_grouped_order(clean, randn, dtype, sizes):
    m, n, k = sizes
    a, b = randn(m, k, dtype=dtype), randn(k, n, dtype=dtype)
    with clean():
        out = matmul(a, b)
    assert out.dtype == dtype
    check(out, a, b)


def test_matmul_of_transposed_operands(clean, randn):
    a, b = randn(80, 100).t(), randn(50, 80).t()
    with clean():
        out = matmul(a, b)
    check(out, a, b)


def test_matmul_with_activation(clean, randn):
    a, b = randn(70, 40), randn(40, 70)
    with clean():
        out = matmul(a, b, "leaky_relu")
    assert_close(out, torch.nn.functional.leaky_relu(a @ b), rtol=1e-4, atol=1e-4)


def test_matmul_in_tf32_rounds_its_operands(clean, randn):
    a, b = randn(64, 64), randn(64, 64)
    with clean(2):
        exact, rounded = matmul(a, b), matmul(a, b, precision="tf32")
    check(exact, a, b)
    # ten explicit mantissa bits: errors of this order and not of fp32's
    error = (rounded.double() - a.double() @ b.double()).abs().max().item()
    assert 1e-4 < error < 5e-2


@pytest.mark.parametrize("split_k", [1, 3, 4])
def test_split_k_with_atomic_additions(clean, randn, split_k):
    a, b = randn(50, 200), randn(200, 70)
    with clean():
        out = split_k_matmul(a, b, split_k)
    check(out, a, b)


@by_dtype
def test_grouped_gemm_finds_its_operands_by_address(clean, randn, dtype):
    sizes = [(40, 50, 30), (100, 64, 70), (16, 16, 16), (1, 200, 65)]
    group_a = [randn(m, k, dtype=dtype) for m, n, k in sizes]
    group_b = [randn(k, n, dtype=dtype) for m, n, k in sizes]
    with clean():
        outputs = grouped_gemm(group_a, group_b, programs=5, block=32)
    for out, a, b in zip(outputs, group_a, group_b, strict=True):
        check(out, a, b)


@has_block_pointers
@pytest.mark.filterwarnings("ignore:tl.make_block_ptr")
@by_dtype
def test_block_pointers_with_boundary_checks(clean, randn, dtype):
    a, b = randn(70, 50, dtype=dtype), randn(50, 90, dtype=dtype)
    with clean():
        out = block_pointers.block_pointer_matmul(a, b)
    check(out, a, b)


@by_dtype
def test_descriptors_made_in_the_kernel(clean, randn, dtype):
    a, b = randn(70, 48, dtype=dtype), randn(48, 96, dtype=dtype)
    with clean():
        out = block_pointers.device_descriptor_matmul(a, b)
    check(out, a, b)


@by_dtype
def test_descriptors_made_on_the_host(clean, randn, dtype):
    a, b = randn(70, 48, dtype=dtype), randn(48, 96, dtype=dtype)
    with clean():
        out = block_pointers.host_descriptor_matmul(a, b)
    check(out, a, b)
