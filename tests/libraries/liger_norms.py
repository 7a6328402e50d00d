"""Liger-Kernel: normalizations, activations and the other operations that work row by row."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from liger_kernel.ops.attn_res import LigerAttnResFunction
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction
from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.modulated_rms_norm import LigerModulatedRMSNormFunction
from liger_kernel.ops.poly_norm import LigerPolyNormFunction
from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.sparsemax import LigerSparsemaxFunction
from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction, LigerSiLUMulFunction
from torch import Tensor

from tests.libraries.case import Case, Values, differentiable, maker

HALVES = (torch.float16, torch.bfloat16)
EPS = 1e-6


def rms(x: Tensor, eps: float = EPS) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def sparsemax(x: Tensor) -> Tensor:
    """Martins and Astudillo: the projection onto the simplex, through the sorted cumulative sum."""
    z = x.sort(dim=-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    cumulative = z.cumsum(-1)
    support = (1 + k * z > cumulative).sum(-1, keepdim=True)
    return (x - (cumulative.gather(-1, support - 1) - 1) / support).clamp(min=0)


def poly_norm(v: Values) -> Tensor:
    normed = [v["x"] ** p / (v["x"] ** (2 * p)).mean(-1, keepdim=True).add(EPS).sqrt() for p in (3, 2, 1)]
    return sum(w * n for w, n in zip(v["w"], normed, strict=True)) + v["b"]


def attn_res(v: Values) -> Tensor:
    scores = (rms(v["x"]) * v["wn"]) @ v["wq"]
    return (scores.softmax(0)[..., None] * v["x"]).sum(0)


def modulated(v: Values) -> Tensor:
    return (1 + v["scale"])[:, None] * rms(v["x"]) * v["w"] + v["shift"][:, None]


def rms_norm(offset: float = 0.0, mode: str = "llama", row_mode: bool | None = None) -> Any:
    return lambda v: LigerRMSNormFunction.apply(v["x"], v["w"], EPS, offset, mode, False, row_mode)


def embedding_inputs(generator: torch.Generator) -> Values:
    return {
        "w": torch.randn(20, 40, generator=generator),
        "i": torch.randint(0, 20, (3, 7), generator=generator),
    }


ROWS = maker(x=(9, 100), w=(100,))
AFFINE = maker(x=(9, 100), w=(100,), b=(100,))
PAIR = maker(a=(5, 70), b=(5, 70))
ADDED = maker(x=(9, 100), r=(9, 100), w=(100,))

CASES: list[Case] = [
    differentiable("rms_norm", ROWS(), rms_norm(), lambda v: rms(v["x"]) * v["w"], ["x", "w"]),
    *(
        differentiable(
            f"rms_norm {str(dtype)[6:]} ({mode})", ROWS(dtype), rms_norm(mode=mode), lambda v: rms(v["x"]) * v["w"], ["x", "w"]
        )
        for dtype in HALVES
        for mode in ("llama", "gemma")
    ),
    differentiable(
        "rms_norm, offset 1", ROWS(), rms_norm(1.0, "gemma"), lambda v: rms(v["x"]) * (1 + v["w"]), ["x", "w"]
    ),
    differentiable("rms_norm by row", ROWS(), rms_norm(row_mode=True), lambda v: rms(v["x"]) * v["w"], ["x", "w"]),
    differentiable(
        "rms_norm, many rows", maker(x=(300, 40), w=(40,))(), rms_norm(), lambda v: rms(v["x"]) * v["w"], ["x", "w"]
    ),
    differentiable(
        "rms_norm without weight", maker(x=(9, 100))(),
        lambda v: LigerRMSNormFunction.apply(v["x"], None, EPS, 0.0, "llama", False), lambda v: rms(v["x"]), ["x"],
    ),
    differentiable(
        "fused_add_rms_norm", ADDED(),
        lambda v: LigerFusedAddRMSNormFunction.apply(v["x"], v["r"], v["w"], EPS, 0.0, "llama", False),
        lambda v: (rms(v["x"] + v["r"]) * v["w"], v["x"] + v["r"]), ["x", "r", "w"],
    ),
    differentiable(
        "fused_add_rms_norm bfloat16", ADDED(torch.bfloat16),
        lambda v: LigerFusedAddRMSNormFunction.apply(v["x"], v["r"], v["w"], EPS, 0.0, "gemma", False),
        lambda v: (rms(v["x"] + v["r"]) * v["w"], v["x"] + v["r"]), ["x", "r", "w"], rtol=2e-2, atol=6e-2,
    ),
    differentiable(
        "modulated_rms_norm", maker(x=(3, 5, 64), w=(64,), scale=(3, 64), shift=(3, 64))(),
        lambda v: LigerModulatedRMSNormFunction.apply(v["x"], v["w"], v["scale"], v["shift"], EPS, 0.0, "llama", False),
        modulated, ["x", "w", "scale", "shift"],
    ),
    differentiable(
        "layer_norm", AFFINE(), lambda v: LigerLayerNormFunction.apply(v["x"], v["w"], v["b"], EPS),
        lambda v: F.layer_norm(v["x"], (100,), v["w"], v["b"], EPS), ["x", "w", "b"],
    ),
    *(
        differentiable(
            f"layer_norm {str(dtype)[6:]}", AFFINE(dtype), lambda v: LigerLayerNormFunction.apply(v["x"], v["w"], v["b"], EPS),
            lambda v: F.layer_norm(v["x"], (100,), v["w"], v["b"], EPS), ["x", "w", "b"],
            rtol=2e-2, atol=4e-2 if dtype == torch.bfloat16 else 5e-3,
        )
        for dtype in HALVES
    ),
    differentiable(
        "group_norm", maker(x=(2, 6, 20), w=(6,), b=(6,))(),
        lambda v: LigerGroupNormFunction.apply(v["x"], v["w"], v["b"], 6, 3, EPS),
        lambda v: F.group_norm(v["x"], 3, v["w"], v["b"], EPS), ["x", "w", "b"],
    ),
    differentiable(
        "poly_norm", maker(x=(7, 60), w=(3,), b=())(),
        lambda v: LigerPolyNormFunction.apply(v["x"], v["w"], v["b"], EPS, False), poly_norm, ["x", "w", "b"],
    ),
    differentiable(
        "dyt", maker(x=(6, 64), alpha=(1,), gamma=(64,), beta=(64,))(),
        lambda v: LigerDyTFunction.apply(v["x"], v["alpha"], v["gamma"], v["beta"]),
        lambda v: v["gamma"] * torch.tanh(v["alpha"] * v["x"]) + v["beta"], ["x", "alpha", "gamma", "beta"],
    ),
    differentiable(
        "dyt without beta", maker(x=(6, 64), alpha=(1,), gamma=(64,))(),
        lambda v: LigerDyTFunction.apply(v["x"], v["alpha"], v["gamma"], None),
        lambda v: v["gamma"] * torch.tanh(v["alpha"] * v["x"]), ["x", "alpha", "gamma"],
    ),
    differentiable(
        "attn_res", maker(x=(5, 2, 6, 32), wq=(32,), wn=(32,))(),
        lambda v: LigerAttnResFunction.apply(v["x"], v["wq"], v["wn"], EPS), attn_res, ["x", "wq", "wn"],
    ),
    differentiable(
        "swiglu", PAIR(), lambda v: LigerSiLUMulFunction.apply(v["a"], v["b"]), lambda v: F.silu(v["a"]) * v["b"], ["a", "b"]
    ),
    *(
        differentiable(
            f"swiglu {str(dtype)[6:]}", PAIR(dtype), lambda v: LigerSiLUMulFunction.apply(v["a"], v["b"]),
            lambda v: F.silu(v["a"]) * v["b"], ["a", "b"], rtol=2e-2, atol=2e-2 if dtype == torch.bfloat16 else 3e-3,
        )
        for dtype in HALVES
    ),
    differentiable(
        "swiglu with multipliers", PAIR(), lambda v: LigerSiLUMulFunction.apply(v["a"], v["b"], 0.5, 2.0),
        lambda v: 2 * F.silu(0.5 * v["a"]) * v["b"], ["a", "b"],
    ),
    differentiable(
        "swiglu in tiles", maker(a=(2, 20000), b=(2, 20000))(), lambda v: LigerSiLUMulFunction.apply(v["a"], v["b"]),
        lambda v: F.silu(v["a"]) * v["b"], ["a", "b"],
    ),
    differentiable(
        "swiglu, gate and up in one", maker(y=(5, 140))(), lambda v: LigerFusedGateUpSiLUMulFunction.apply(v["y"]),
        lambda v: F.silu(v["y"][:, :70]) * v["y"][:, 70:], ["y"],
    ),
    differentiable(
        "geglu", PAIR(), lambda v: LigerGELUMulFunction.apply(v["a"], v["b"]),
        lambda v: F.gelu(v["a"], approximate="tanh") * v["b"], ["a", "b"],
    ),
    differentiable(
        "geglu bfloat16", PAIR(torch.bfloat16), lambda v: LigerGELUMulFunction.apply(v["a"], v["b"]),
        lambda v: F.gelu(v["a"], approximate="tanh") * v["b"], ["a", "b"], rtol=2e-2, atol=2e-2,
    ),
    differentiable(
        "relu_squared", maker(x=(5, 70))(), lambda v: LigerReLUSquaredFunction.apply(v["x"]),
        lambda v: F.relu(v["x"]) ** 2, ["x"],
    ),
    differentiable(
        "softmax", maker(x=(7, 130))(), lambda v: LigerSoftmaxFunction.apply(v["x"]), lambda v: v["x"].softmax(-1), ["x"]
    ),
    differentiable(
        "softmax float16", maker(x=(7, 130))(torch.float16), lambda v: LigerSoftmaxFunction.apply(v["x"]),
        lambda v: v["x"].softmax(-1), ["x"],
    ),
    differentiable(
        "sparsemax", maker(x=(5, 40))(), lambda v: LigerSparsemaxFunction.apply(v["x"], -1), lambda v: sparsemax(v["x"]), ["x"]
    ),
    differentiable(
        "sparsemax over the first axis", maker(x=(33, 4))(), lambda v: LigerSparsemaxFunction.apply(v["x"], 0),
        lambda v: sparsemax(v["x"].t()).t(), ["x"],
    ),
    differentiable(
        "embedding", embedding_inputs, lambda v: LigerEmbeddingFunction.apply(v["w"], v["i"]),
        lambda v: F.embedding(v["i"], v["w"]), ["w"],
    ),
]  # fmt: skip
