"""Liger-Kernel's operations, unmodified, forward and backward, against torch. Needs liger-kernel: ``make test-liger``."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import tritontrace

pytestmark = [
    pytest.mark.liger,
    pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed"),
]

Function = Callable[..., torch.Tensor]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def both_directions(
    ours: Function, reference: Function, *inputs: torch.Tensor, tolerance: float = 1e-4, grads: tuple[int, ...] | None = None
) -> tritontrace.Session:
    """Runs `ours` in a session, forward and backward, and compares output and gradients with `reference`'s.

    `grads` are the positions of the inputs that get a gradient (default: all of floating type).
    """
    if grads is None:
        grads = tuple(i for i, x in enumerate(inputs) if x.is_floating_point())

    def run(function: Function) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        leaves = [x.clone().requires_grad_(i in grads) for i, x in enumerate(inputs)]
        out = function(*leaves)
        gradient = randn(*out.shape, seed=99) if out.dim() else torch.ones(())
        return out.detach(), torch.autograd.grad(out, [leaves[i] for i in grads], gradient)

    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        got, got_grads = run(ours)
    want, want_grads = run(reference)
    assert_close(got, want, rtol=tolerance, atol=tolerance, check_dtype=False)
    for got_grad, want_grad in zip(got_grads, want_grads, strict=True):
        assert_close(got_grad, want_grad, rtol=tolerance, atol=tolerance, check_dtype=False)
    assert [f.message for f in session.findings] == []
    assert session.launches and all(launch.completed for launch in session.launches)
    return session


def test_rms_norm() -> None:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    both_directions(
        lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False), reference, randn(9, 100), randn(100, seed=1)
    )


def test_layer_norm() -> None:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    both_directions(
        lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-6),
        lambda x, w, b: F.layer_norm(x, (100,), w, b, 1e-6),
        randn(9, 100), randn(100, seed=1), randn(100, seed=2),
    )  # fmt: skip


def test_group_norm() -> None:
    from liger_kernel.ops.group_norm import LigerGroupNormFunction

    both_directions(
        lambda x, w, b: LigerGroupNormFunction.apply(x, w, b, 6, 3, 1e-6),
        lambda x, w, b: F.group_norm(x.reshape(2, 6, 20), 3, w, b, 1e-6).reshape(x.shape),
        randn(2, 6, 20), randn(6, seed=1), randn(6, seed=2),
    )  # fmt: skip


def test_swiglu() -> None:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    both_directions(LigerSiLUMulFunction.apply, lambda a, b: F.silu(a) * b, randn(5, 70), randn(5, 70, seed=1))


def test_geglu() -> None:
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    both_directions(
        LigerGELUMulFunction.apply, lambda a, b: F.gelu(a, approximate="tanh") * b, randn(5, 70), randn(5, 70, seed=1)
    )


def test_dyt_forward() -> None:
    """Forward only: Liger's backward asks the GPU for its number of processors, and has none to put there on a CPU."""
    from liger_kernel.ops.dyt import LigerDyTFunction

    x, alpha, gamma, beta = randn(6, 64), torch.tensor([0.7]), randn(64, seed=1), randn(64, seed=2)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        got = LigerDyTFunction.apply(x, alpha, gamma, beta)
    assert_close(got, gamma * torch.tanh(alpha * x) + beta, rtol=1e-4, atol=1e-4)
    assert session.findings == []


def test_softmax() -> None:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    both_directions(LigerSoftmaxFunction.apply, lambda x: x.softmax(-1), randn(7, 130))


def test_sparsemax() -> None:
    from liger_kernel.ops.sparsemax import LigerSparsemaxFunction

    def reference(x: torch.Tensor) -> torch.Tensor:
        z, _ = x.sort(dim=-1, descending=True)
        k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        cumulative = z.cumsum(-1)
        support = (1 + k * z > cumulative).sum(-1, keepdim=True)
        tau = (cumulative.gather(-1, support - 1) - 1) / support
        return (x - tau).clamp(min=0)

    both_directions(lambda x: LigerSparsemaxFunction.apply(x, -1), reference, randn(5, 40))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy(reduction: str) -> None:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    target = torch.tensor([3, 17, -100, 0, 99, 50])
    both_directions(
        lambda x: LigerCrossEntropyFunction.apply(x, target, None, -100, 0.0, 0.1, reduction)[0],
        lambda x: F.cross_entropy(x, target, ignore_index=-100, label_smoothing=0.1, reduction=reduction),
        randn(6, 100),
    )


def test_fused_linear_cross_entropy() -> None:
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    target = torch.tensor([3, 17, 0, 60])
    both_directions(
        lambda x, w: LigerFusedLinearCrossEntropyFunction.apply(x, w, target)[0],
        lambda x, w: F.cross_entropy(x @ w.t(), target),
        randn(4, 32), randn(64, 32, seed=1),
    )  # fmt: skip


def test_kl_div() -> None:
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction

    target = randn(6, 90, seed=1).softmax(-1)
    both_directions(
        lambda x: LigerKLDivLossFunction.apply(x, target, "batchmean", False, 1e-10),
        lambda x: F.kl_div(x, target, reduction="batchmean"),
        randn(6, 90).log_softmax(-1),
    )


def test_jensen_shannon_divergence() -> None:
    from liger_kernel.ops.jsd import LigerJSDFunction

    target = randn(6, 90, seed=1).log_softmax(-1)

    def reference(x: torch.Tensor) -> torch.Tensor:
        mixture = torch.lerp(x.exp(), target.exp(), 0.5).log()
        kl = lambda p: F.kl_div(mixture, p, reduction="sum", log_target=True)
        return (0.5 * kl(x) + 0.5 * kl(target)) / x.shape[0]

    both_directions(lambda x: LigerJSDFunction.apply(x, target, None, 0.5, -100), reference, randn(6, 90).log_softmax(-1))


def test_total_variation_distance() -> None:
    from liger_kernel.ops.tvd import LigerTVDLossFunction

    target = randn(6, 90, seed=1).softmax(-1)
    both_directions(
        lambda x: LigerTVDLossFunction.apply(x, target, None, "batchmean", -100),
        lambda x: 0.5 * (x - target).abs().sum() / x.shape[0],
        randn(6, 90).softmax(-1),
    )


def test_rotary_embedding() -> None:
    from liger_kernel.ops.rope import LigerRopeFunction

    batch, heads, kv_heads, length, dim = 2, 4, 2, 10, 16
    angles = torch.outer(torch.arange(length).float(), 10000 ** (-torch.arange(0, dim, 2).float() / dim))
    cos, sin = (f(torch.cat([angles, angles], -1))[None] for f in (torch.cos, torch.sin))

    def rotate(x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return torch.cat([-x[..., half:], x[..., :half]], -1)

    def reference(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.cat([(x * cos[:, None] + rotate(x) * sin[:, None]).flatten() for x in (q, k)])

    def ours(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        # Liger rotates in place
        q, k = LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)
        return torch.cat([q.flatten(), k.flatten()])

    both_directions(ours, reference, randn(batch, heads, length, dim), randn(batch, kv_heads, length, dim, seed=1))


def test_fused_add_rms_norm() -> None:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    def reference(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        s = x + r
        return torch.stack([s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6) * w, s])

    def ours(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.stack(LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False))

    both_directions(ours, reference, randn(9, 100), randn(9, 100, seed=1), randn(100, seed=2))


def test_multi_token_attention_causal_masks() -> None:
    """Softmax over a causally masked square, through Liger's mask kernels."""
    from liger_kernel.ops.multi_token_attention import LigerMultiTokenAttentionFunction

    def reference(scores: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        length = scores.shape[-1]
        future = torch.ones(length, length).triu(1).bool()
        p = scores.masked_fill(future, -math.inf).softmax(-1)
        out = F.conv2d(p, weight, padding=1)
        return out.masked_fill(future, 0.0)

    both_directions(
        lambda s, w: LigerMultiTokenAttentionFunction.apply(s, w, None, 1, 1, 1, 1, False),
        reference, randn(2, 3, 12, 12), randn(3, 3, 3, 3, seed=1),
    )  # fmt: skip


def test_grpo_loss_selective_log_softmax() -> None:
    from liger_kernel.ops import grpo_loss

    if not hasattr(grpo_loss, "fused_selective_log_softmax"):
        pytest.skip("this Liger-Kernel has no fused_selective_log_softmax")
    logits, ids = randn(2, 7, 50), torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        got = grpo_loss.fused_selective_log_softmax(logits.clone(), ids, 0.9)
    want = (logits[:, :-1] / 0.9).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert session.findings == []


def test_kinds_of_arguments_are_recorded() -> None:
    """A look at what a session shows of a library's launches."""
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    session = both_directions(LigerSiLUMulFunction.apply, lambda a, b: F.silu(a) * b, randn(3, 32), randn(3, 32, seed=1))
    names: list[Any] = [launch.kernel_name for launch in session.launches]
    assert len(names) == 2 and "forward" in names[0] and "backward" in names[1]
