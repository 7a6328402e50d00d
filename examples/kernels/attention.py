"""Causal attention, forward, with the online softmax (one pass over keys and values)."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl


@triton.jit
def attend(
    acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, start, end, rows, n_keys, scale,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The online softmax over the keys start .. end."""
    for first in range(start, end, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptrs + first * stride_kn, mask=keys[None, :] < n_keys, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        keep = keys[None, :] < n_keys
        if CAUSAL:
            keep = keep & (rows[:, None] >= keys[None, :])
        scores = tl.where(keep, scores, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        v = tl.load(v_ptrs + first * stride_vn, mask=keys[:, None] < n_keys, other=0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        l_i = l_i * alpha + tl.sum(p, axis=1)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,
    stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn, stride_oh, stride_om,
    n_rows, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    keys = tl.arange(0, BLOCK_N)
    q = tl.load(q_ptr + head * stride_qh + rows[:, None] * stride_qm + dims[None, :], mask=rows[:, None] < n_rows, other=0.0)
    k_ptrs = k_ptr + head * stride_kh + dims[:, None] + keys[None, :] * stride_kn
    v_ptrs = v_ptr + head * stride_vh + keys[:, None] * stride_vn + dims[None, :]
    m_i = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    scale *= 1.4426950408889634  # 1 / ln 2: powers of two are cheaper than powers of e
    # Whole tiles left of the diagonal need no mask; the tiles on it do.
    diagonal = tile * BLOCK_M
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, 0, diagonal, rows, n_rows, scale, BLOCK_N, False
    )
    end = min(diagonal + BLOCK_M, n_rows)
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, stride_kn, stride_vn, diagonal, end, rows, n_rows, scale, BLOCK_N, True
    )
    acc = acc / l_i[:, None]
    tl.store(lse_ptr + head * n_rows + rows, m_i + tl.log2(l_i), mask=rows < n_rows)
    tl.store(
        out_ptr + head * stride_oh + rows[:, None] * stride_om + dims[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=rows[:, None] < n_rows,
    )


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log2-sum-exp) of ``[heads, rows, head_dim]`` tensors whose last axis is contiguous."""
    heads, rows, dim = q.shape
    out = torch.empty_like(q)
    lse = torch.empty((heads, rows), dtype=torch.float32, device=q.device)
    attention_kernel[(triton.cdiv(rows, block), heads)](
        q, k, v, out, lse,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1), out.stride(0), out.stride(1),
        rows, 1 / math.sqrt(dim), HEAD_DIM=dim, BLOCK_M=block, BLOCK_N=block // 2,
    )  # fmt: skip
    return out, lse
