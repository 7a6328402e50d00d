"""Kernels over block pointers and tensor descriptors: shapes and strides travel with the pointer."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def block_pointer_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    col = tl.program_id(1) * BLOCK_N
    a = tl.make_block_ptr(a_ptr, (M, K), (stride_am, stride_ak), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, stride_bn), (0, col), (BLOCK_K, BLOCK_N), (1, 0))
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        left = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        right = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        accumulator += tl.dot(left, right, input_precision="ieee")
        a = tl.advance(a, (0, BLOCK_K))
        b = tl.advance(b, (BLOCK_K, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (stride_cm, stride_cn), (row, col), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(c, accumulator.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def device_descriptor_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Descriptors made in the kernel; all matrices are row-major and dense."""
    a = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    row = tl.program_id(0) * BLOCK_M
    col = tl.program_id(1) * BLOCK_N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        accumulator += tl.dot(a.load([row, k]), b.load([k, col]), input_precision="ieee")
    c.store([row, col], accumulator.to(c_ptr.dtype.element_ty))


@triton.jit
def host_descriptor_matmul_kernel(a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Descriptors made on the host and passed as arguments."""
    row = tl.program_id(0) * BLOCK_M
    col = tl.program_id(1) * BLOCK_N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        accumulator += tl.dot(a.load([row, k]), b.load([k, col]), input_precision="ieee")
    c.store([row, col], accumulator.to(c.dtype))


def block_pointer_matmul(a: torch.Tensor, b: torch.Tensor, block: int = 32) -> torch.Tensor:
    """``a @ b`` through `tl.make_block_ptr` (which Triton 3.9 no longer has)."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    block_pointer_matmul_kernel[(triton.cdiv(m, block), triton.cdiv(n, block))](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BLOCK_M=block, BLOCK_N=block, BLOCK_K=16
    )
    return c


def device_descriptor_matmul(a: torch.Tensor, b: torch.Tensor, block: int = 32) -> torch.Tensor:
    """``a @ b`` with descriptors that the kernel makes."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    device_descriptor_matmul_kernel[(triton.cdiv(m, block), triton.cdiv(n, block))](
        a, b, c, m, n, k, BLOCK_M=block, BLOCK_N=block, BLOCK_K=16
    )
    return c


def host_descriptor_matmul(a: torch.Tensor, b: torch.Tensor, block: int = 32) -> torch.Tensor:
    """``a @ b`` with descriptors made here."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    host_descriptor_matmul_kernel[(triton.cdiv(m, block), triton.cdiv(n, block))](
        TensorDescriptor.from_tensor(a, [block, 16]),
        TensorDescriptor.from_tensor(b, [16, block]),
        TensorDescriptor.from_tensor(c, [block, block]),
        k, BLOCK_M=block, BLOCK_N=block, BLOCK_K=16,
    )  # fmt: skip
    return c
