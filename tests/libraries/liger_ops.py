"""Liger-Kernel: every operation through its autograd function, against plain torch in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from liger_kernel.ops.experimental.mm_int8int2 import matmul, pack_weights
from liger_kernel.ops.fused_moe import LigerFusedMoEFunction
from liger_kernel.ops.fused_neighborhood_attention import LigerFusedNeighborhoodAttentionFunction
from liger_kernel.ops.llama4_rope import LigerLlama4RopeFunction
from liger_kernel.ops.mhc import LigerMHCCoeffsFunction, LigerMHCPostResFunction, LigerMHCPreFunction
from liger_kernel.ops.mlp import gemm_swiglu, swiglu_backward_dGU, swiglu_backward_dI
from liger_kernel.ops.multi_token_attention import LigerMultiTokenAttentionFunction
from liger_kernel.ops.qwen2vl_mrope import LigerQwen2VLMRopeFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.ops.tiled_mlp import apply_tiled_mlp
from torch import Tensor

from tests.libraries import liger_losses, liger_norms
from tests.libraries.case import Case, Values, differentiable, maker
from tests.libraries.liger_norms import rms, sparsemax

#: What a tensor-core product of float32 operands is worth: ten bits of each.
TF32: dict[str, Any] = {"rtol": 5e-3, "atol": 5e-3}


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def angles(*shape: int, dim: int) -> Tensor:
    """Rotary angles for positions of `shape`, each frequency twice."""
    frequencies = 10000 ** (-torch.arange(0, dim, 2).float() / dim)
    positions = torch.arange(torch.Size(shape).numel()).float().reshape(shape)
    half = positions[..., None] * frequencies
    return torch.cat([half, half], -1)


def rope_inputs(dtype: torch.dtype = torch.float32, width: int = 16) -> Any:
    angle = angles(1, 10, dim=width)
    return maker(q=(2, 4, 10, 16), k=(2, 2, 10, 16))(dtype, cos=angle.cos().to(dtype), sin=angle.sin().to(dtype))


def rope(v: Values) -> Any:
    # Liger rotates in place
    return LigerRopeFunction.apply(v["q"].clone(), v["k"].clone(), v["cos"], v["sin"])


def rope_reference(v: Values) -> Any:
    width = v["cos"].shape[-1]

    def turn(x: Tensor) -> Tensor:
        x, rest = x[..., :width], x[..., width:]
        return torch.cat([x * v["cos"][:, None] + rotate_half(x) * v["sin"][:, None], rest], -1)

    return turn(v["q"]), turn(v["k"])


def mrope(v: Values) -> Any:
    return LigerQwen2VLMRopeFunction.apply(v["q"].clone(), v["k"].clone(), v["cos"], v["sin"], [2, 3, 3])


def mrope_reference(v: Values) -> Any:
    """The three position axes (time, height, width) own 2, 3 and 3 of the eight frequencies."""
    pick = lambda table: torch.cat([part[i % 3] for i, part in enumerate(table.split([2, 3, 3] * 2, -1))], -1)[:, None]
    cos, sin = pick(v["cos"]), pick(v["sin"])
    return tuple(x * cos + rotate_half(x) * sin for x in (v["q"], v["k"]))


def llama4_reference(v: Values) -> Any:
    def turn(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * v["cis"].to(torch.complex128)[:, None]).flatten(-2)

    return turn(v["q"]), turn(v["k"])


def attention_mask(length: int) -> Tensor:
    return torch.ones(length, length).triu(1).bool()


def multi_token(v: Values, activation: Any) -> Tensor:
    future = attention_mask(v["s"].shape[-1])
    # A large negative number in place of -inf keeps sparsemax's cumulative sums finite.
    p = activation(v["s"].masked_fill(future, -1e9))
    return F.conv2d(p, v["w"], v["b"], padding=1).masked_fill(future, 0.0)


def neighborhood(v: Values) -> Tensor:
    """Attention to the positions at most three dilated steps away."""
    length, (kernel, dilation) = v["q"].shape[-2], v["window"]
    distance = (torch.arange(length)[:, None] - torch.arange(length)[None, :]).abs()
    allowed = (distance <= kernel // 2 * dilation) & (distance % dilation == 0)
    scores = v["q"] @ v["k"].transpose(-1, -2) / v["q"].shape[-1] ** 0.5
    return scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ v["v"]


def moe_inputs(dtype: torch.dtype) -> Any:
    def inputs(generator: torch.Generator) -> Values:
        experts, tokens, hidden, inner = 4, 12, 32, 48
        score, index = torch.rand(tokens, experts, generator=generator).topk(2, -1)
        return {
            "x": torch.randn(tokens, hidden, generator=generator).to(dtype),
            "up": (0.2 * torch.randn(experts, 2 * inner, hidden, generator=generator)).to(dtype),
            "down": (0.2 * torch.randn(experts, hidden, inner, generator=generator)).to(dtype),
            "index": index.int(),
            "weight": score.to(dtype),
        }

    return inputs


def moe_reference(v: Values) -> Tensor:
    rows = []
    for x, experts, weights in zip(v["x"], v["index"].tolist(), v["weight"], strict=True):
        outs = []
        for e in experts:
            gate, up = (v["up"][e] @ x).chunk(2)
            outs.append(v["down"][e] @ (F.silu(gate) * up))
        rows.append((torch.stack(outs) * weights[:, None]).sum(0))
    return torch.stack(rows)


MHC_SCALARS = {"rms_eps": 1e-6, "pre_eps": 0.0, "sinkhorn_eps": 1e-6, "post_mult": 2.0}


def mhc_inputs(dtype: torch.dtype, streams: int, channels: int) -> Any:
    def inputs(generator: torch.Generator) -> Values:
        width = streams * streams + 2 * streams
        return {
            "x": torch.randn(5, streams, channels, generator=generator).to(dtype),
            "phi": (0.1 * torch.randn(streams * channels, width, generator=generator)).to(dtype),
            "b": torch.randn(width, generator=generator),
            **{f"a_{name}": torch.rand((), generator=generator) for name in ("pre", "post", "res")},
        }

    return inputs


def mhc_coefficients(v: Values) -> Any:
    scales = (v["a_pre"], v["a_post"], v["a_res"])
    pre, post, res = LigerMHCCoeffsFunction.apply(v["x"], v["phi"], v["b"], *scales, True, 4, *MHC_SCALARS.values())
    return {"pre": pre, "post": post, "res": res}


def mhc_coefficients_reference(v: Values) -> Any:
    streams, eps = v["x"].shape[-2], 1e-6
    mixed = rms(v["x"].flatten(-2)) @ v["phi"]
    parts = [streams, streams, streams * streams]
    scales, biases = (v["a_pre"], v["a_post"], v["a_res"]), v["b"].split(parts)
    pre, post, res = (m * a + b for m, a, b in zip(mixed.split(parts, -1), scales, biases, strict=True))
    m = res.unflatten(-1, (streams, streams)).softmax(-1) + eps
    m = m / (m.sum(-2, keepdim=True) + eps)
    for _ in range(3):
        m = m / (m.sum(-1, keepdim=True) + eps)
        m = m / (m.sum(-2, keepdim=True) + eps)
    return {"pre": pre.sigmoid(), "post": 2 * post.sigmoid(), "res": m}


def tiled_mlp(v: Values) -> Tensor:
    """The shards' SwiGLU runs through Triton; the linear layers are torch's."""
    forward = lambda module, x: LigerSiLUMulFunction.apply(x @ module.gate.t(), x @ module.up.t()) @ module.down.t()
    return apply_tiled_mlp(forward, SimpleNamespace(**{k: v[k] for k in ("gate", "up", "down")}), v["x"], num_shards=3)


def fused_mlp(v: Values) -> Values:
    """The kernels of LigerMLPFunction by themselves: it asks for GPU tensors. The backward reads the tuner's best_config."""
    inner = len(v["gate"])
    activations, config = gemm_swiglu(v["x"], v["gate"], v["up"], 1.0)
    hidden, gate, up = (part.clone() for part in activations.split(inner, -1))
    swiglu_backward_dGU(v["dout"], v["down"], activations, config, 1.0, 1.0)
    _, d_gate, d_up = (part.clone() for part in activations.split(inner, -1))
    dx = swiglu_backward_dI(v["gate"], v["up"], activations)
    return {"hidden": hidden, "gate": gate, "up": up, "d_gate": d_gate, "d_up": d_up, "dx": dx}


def fused_mlp_reference(v: Values) -> Values:
    gate, up = v["x"] @ v["gate"].t(), v["x"] @ v["up"].t()
    d_hidden, s = v["dout"] @ v["down"], gate.sigmoid()
    d_gate, d_up = d_hidden * up * (s + gate * s * (1 - s)), d_hidden * F.silu(gate)
    dx = d_gate @ v["gate"] + d_up @ v["up"]
    return {"hidden": F.silu(gate) * up, "gate": gate, "up": up, "d_gate": d_gate, "d_up": d_up, "dx": dx}


def mlp_inputs(generator: torch.Generator) -> Values:
    shapes = {"x": (2, 40, 64), "gate": (96, 64), "up": (96, 64), "down": (64, 96), "dout": (2, 40, 64)}
    return {name: (0.3 * torch.randn(*shape, generator=generator)).half() for name, shape in shapes.items()}


def int2_inputs(generator: torch.Generator) -> Values:
    return {
        "a": torch.randint(-128, 127, (64, 256), generator=generator, dtype=torch.int8),
        "w": torch.randint(-1, 2, (256, 48), generator=generator, dtype=torch.int8),
    }


WINDOW = maker(q=(1, 2, 20, 16), k=(1, 2, 20, 16), v=(1, 2, 20, 16))
MHC_POST = maker(x=(5, 4, 40), f=(5, 40), post=(5, 4), res=(5, 4, 4))

CASES: list[Case] = [
    *liger_norms.CASES,
    *liger_losses.CASES,
    differentiable("rope", rope_inputs(), rope, rope_reference, ["q", "k"]),
    differentiable("rope bfloat16", rope_inputs(torch.bfloat16), rope, rope_reference, ["q", "k"], rtol=2e-2, atol=3e-2),
    differentiable("rope of half the head", rope_inputs(width=8), rope, rope_reference, ["q", "k"]),
    differentiable(
        "qwen2vl_mrope",
        maker(q=(2, 4, 10, 16), k=(2, 2, 10, 16))(cos=angles(3, 2, 10, dim=16).cos(), sin=angles(3, 2, 10, dim=16).sin()),
        mrope, mrope_reference, ["q", "k"],
    ),
    differentiable(
        "llama4_rope", maker(q=(2, 10, 4, 16), k=(2, 10, 2, 16))(cis=torch.polar(torch.ones(10, 8), angles(10, dim=16)[:, :8])),
        lambda v: LigerLlama4RopeFunction.apply(v["q"].clone(), v["k"].clone(), v["cis"]), llama4_reference, ["q", "k"],
    ),
    differentiable(
        "multi_token_attention", maker(s=(2, 3, 12, 12), w=(3, 3, 3, 3), b=(3,))(),
        lambda v: LigerMultiTokenAttentionFunction.apply(v["s"], v["w"], v["b"], 1, 1, 1, 1, False),
        lambda v: multi_token(v, lambda s: s.softmax(-1)), ["s", "w", "b"],
    ),
    differentiable(
        "multi_token_attention, sparse", maker(s=(2, 3, 12, 12), w=(3, 3, 3, 3), b=(3,))(),
        lambda v: LigerMultiTokenAttentionFunction.apply(v["s"], v["w"], v["b"], 1, 1, 1, 1, True),
        lambda v: multi_token(v, sparsemax), ["s", "w", "b"],
    ),
    *(
        differentiable(
            f"fused_neighborhood_attention {kernel}x{dilation}", WINDOW(window=(kernel, dilation)),
            lambda v: LigerFusedNeighborhoodAttentionFunction.apply(v["q"], v["k"], v["v"], *v["window"]),
            neighborhood, ["q", "k", "v"], **TF32,
        )
        for kernel, dilation in [(7, 1), (5, 2)]
    ),
    differentiable(
        "fused_moe", moe_inputs(torch.float32),
        lambda v: LigerFusedMoEFunction.apply(v["x"], v["up"], v["down"], v["index"], v["weight"]),
        moe_reference, ["x", "up", "down", "weight"], slow=True, rtol=2e-2, atol=2e-2,
    ),
    differentiable(
        "fused_moe bfloat16", moe_inputs(torch.bfloat16),
        lambda v: LigerFusedMoEFunction.apply(v["x"], v["up"], v["down"], v["index"], v["weight"]),
        moe_reference, ["x", "up", "down", "weight"], slow=True, rtol=5e-2, atol=5e-2,
    ),
    differentiable(
        "mhc_coeffs", mhc_inputs(torch.float32, 4, 24), mhc_coefficients, mhc_coefficients_reference,
        ["x", "phi", "b", "a_pre", "a_post", "a_res"], **TF32,
    ),
    differentiable(
        "mhc_coeffs bfloat16", mhc_inputs(torch.bfloat16, 2, 40), mhc_coefficients, mhc_coefficients_reference,
        ["x", "phi", "b", "a_pre", "a_post", "a_res"], rtol=2e-2, atol=2e-2,
    ),
    differentiable(
        "mhc_pre", maker(x=(5, 4, 40), h=(5, 4))(), lambda v: LigerMHCPreFunction.apply(v["x"], v["h"]),
        lambda v: (v["x"] * v["h"][..., None]).sum(-2), ["x", "h"],
    ),
    differentiable(
        "mhc_post_res", MHC_POST(), lambda v: LigerMHCPostResFunction.apply(v["x"], v["f"], v["post"], v["res"]),
        lambda v: v["res"] @ v["x"] + v["post"][..., None] * v["f"][:, None], ["x", "f", "post", "res"],
    ),
    differentiable(
        "tiled_mlp", maker(x=(2, 9, 16), gate=(24, 16), up=(24, 16), down=(16, 24))(), tiled_mlp,
        lambda v: (F.silu(v["x"] @ v["gate"].t()) * (v["x"] @ v["up"].t())) @ v["down"].t(), ["x"],
    ),
    differentiable("mlp float16", mlp_inputs, fused_mlp, fused_mlp_reference, rtol=1e-2, atol=1e-2),
    differentiable(
        "mm_int8int2", int2_inputs, lambda v: matmul(v["a"], pack_weights(v["w"].clone(), 2)),
        lambda v: (v["a"].long() @ v["w"].long()).int(),
    ),
]  # fmt: skip
