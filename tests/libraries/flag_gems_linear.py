"""FlagGems: products of matrices and vectors, attention, convolution, pooling, resampling."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from flag_gems import fused, ops
from torch import Tensor

from tests.libraries.case import Case, Values, differentiable
from tests.libraries.flag_gems_cases import backward, forward, integers, normal, together

MATRICES = normal(a=(50, 70), b=(70, 33))
HALVES = normal(torch.float16, a=(50, 72), b=(72, 32))
BATCH = normal(a=(3, 20, 34), b=(3, 34, 17))

PRODUCTS = [
    forward("mm", MATRICES, lambda v: ops.mm(v["a"], v["b"]), lambda v: v["a"] @ v["b"]),
    forward("mm fp16", HALVES, lambda v: ops.mm(v["a"], v["b"]), lambda v: v["a"] @ v["b"], atol=2e-2),
    forward(
        "mm of a transposed matrix",
        normal(a=(70, 50), b=(33, 70)),
        lambda v: ops.mm(v["a"].T, v["b"].T),
        lambda v: v["a"].T @ v["b"].T,
    ),
    forward("mm with its own transpose", normal(a=(50, 70)), lambda v: ops.mm(v["a"], v["a"].T), lambda v: v["a"] @ v["a"].T),
    forward("bmm", BATCH, lambda v: ops.bmm(v["a"], v["b"]), lambda v: v["a"] @ v["b"]),
    forward(
        "addmm",
        together(MATRICES, normal(c=(33,))),
        lambda v: ops.addmm(v["c"], v["a"], v["b"], beta=0.5, alpha=2.0),
        lambda v: 0.5 * v["c"] + 2 * v["a"] @ v["b"],
    ),
    differentiable(
        "baddbmm",
        together(BATCH, normal(c=(3, 20, 17))),
        lambda v: ops.baddbmm(v["c"], v["a"], v["b"], beta=0.5, alpha=2.0),
        lambda v: 0.5 * v["c"] + 2 * v["a"] @ v["b"],
        ["a", "b", "c"],
    ),
    forward("mv", normal(a=(50, 70), b=(70,)), lambda v: ops.mv(v["a"], v["b"]), lambda v: v["a"] @ v["b"]),
    forward(
        "addmv",
        normal(a=(50, 70), b=(70,), c=(50,)),
        lambda v: ops.addmv(v["c"], v["a"], v["b"], beta=0.5, alpha=2.0),
        lambda v: 0.5 * v["c"] + 2 * v["a"] @ v["b"],
    ),
    forward(
        "addr",
        normal(a=(50,), b=(70,), c=(50, 70)),
        lambda v: ops.addr(v["c"], v["a"], v["b"], beta=0.5, alpha=2.0),
        lambda v: 0.5 * v["c"] + 2 * torch.outer(v["a"], v["b"]),
    ),
    forward("dot", normal(a=(5000,), b=(5000,)), lambda v: ops.dot(v["a"], v["b"]), lambda v: v["a"] @ v["b"], rtol=1e-3),
    forward("vdot", normal(a=(500,), b=(500,)), lambda v: ops.vdot(v["a"], v["b"]), lambda v: v["a"] @ v["b"]),
    differentiable(
        "outer",
        normal(a=(50,), b=(33,)),
        lambda v: fused.outer(v["a"], v["b"]),
        lambda v: torch.outer(v["a"], v["b"]),
        ["a", "b"],
    ),
    forward("kron", normal(a=(5, 7), b=(6, 4)), lambda v: ops.kron(v["a"], v["b"]), lambda v: torch.kron(v["a"], v["b"])),
]


def heads(length: int, key_length: int, kv_heads: int = 4, dtype: torch.dtype = torch.float16) -> Any:
    return normal(dtype, q=(2, 4, length, 64), k=(2, kv_heads, key_length, 64), v=(2, kv_heads, key_length, 64))


def attention(name: str, inputs: Any, wrt: list[str] = ["q", "k", "v"], masked: bool = False, **words: Any) -> Case:  # noqa: B006
    options = {key: words.pop(key) for key in ("finding", "slow") if key in words}

    def ours(v: Values) -> Tensor:
        return ops.scaled_dot_product_attention(v["q"], v["k"], v["v"], v["mask"] if masked else None, **words)

    def reference(v: Values) -> Tensor:
        return F.scaled_dot_product_attention(v["q"], v["k"], v["v"], v["mask"] if masked else None, **words)

    return differentiable(f"attention {name}", inputs, ours, reference, wrt, atol=2e-2, rtol=2e-2, **options)


UNMASKED = (
    "the backward kernel loads dO without a mask, in blocks that start behind the last row (the values are then not used); of "
    "some tuned configs it also leaves rows of dQ unwritten, at lengths above 64"
)
ATTENTION = [
    # Without a causal mask the backward function is wrong: it computes the causal one's gradients.
    attention("forward", heads(64, 64), []),
    attention("forward of odd lengths", heads(77, 101), []),
    attention("causal", heads(64, 64), is_causal=True, finding=UNMASKED, slow=True),
    attention("bf16 causal", heads(64, 64, dtype=torch.bfloat16), is_causal=True, finding=UNMASKED, slow=True),
    attention("grouped", heads(64, 64, kv_heads=2), is_causal=True, enable_gqa=True, finding=UNMASKED, slow=True),
    # A finite mask comes out wrong: it is added to scores that are already in units of log 2.
    attention(
        "masked forward",
        together(heads(64, 64), lambda g: {"mask": torch.randint(0, 2, (2, 4, 64, 64), generator=g).half() * -6e4}),
        [],
        masked=True,
    ),
]


def convolution(name: str, function: Any, reference: Any, inputs: Any, **words: Any) -> Case:
    return differentiable(
        name,
        inputs,
        lambda v: function(v["x"], v["w"], v["b"], **words),
        lambda v: reference(v["x"], v["w"], v["b"], **words),
        ["x", "w", "b"],
    )


CONVOLUTION = [
    convolution("conv1d", ops.conv1d, F.conv1d, normal(x=(2, 6, 31), w=(8, 6, 3), b=(8,)), padding=1, stride=2),
    convolution("conv2d", ops.conv2d, F.conv2d, normal(x=(2, 6, 13, 11), w=(8, 6, 3, 3), b=(8,)), padding=1),
    convolution(
        "conv2d strided, dilated", ops.conv2d, F.conv2d, normal(x=(2, 6, 13, 11), w=(8, 6, 3, 3), b=(8,)), stride=2, dilation=2
    ),
    convolution("conv2d grouped", ops.conv2d, F.conv2d, normal(x=(2, 6, 13, 11), w=(8, 3, 3, 3), b=(8,)), padding=1, groups=2),
    forward(
        "conv3d",
        normal(x=(2, 4, 6, 7, 8), w=(5, 4, 3, 3, 3), b=(5,)),
        lambda v: ops.conv3d(v["x"], v["w"], v["b"], padding=1),
        lambda v: F.conv3d(v["x"], v["w"], v["b"], padding=1),
    ),
    forward(
        "conv_depthwise2d",
        normal(x=(2, 6, 13, 11), w=(6, 1, 3, 3), b=(6,)),
        lambda v: ops._conv_depthwise2d(v["x"], v["w"], (3, 3), v["b"], 1, 1, 1),
        lambda v: F.conv2d(v["x"], v["w"], v["b"], padding=1, groups=6),
    ),
]


def max_pool(v: Values) -> dict[str, Tensor]:
    out, index = ops.max_pool2d_with_indices(v["x"], 3, 2, 1)
    return {"out": out, "index": index, "dx": ops.max_pool2d_backward(v["grad"], v["x"], index, 3, 2, 1, 1, False)}


def max_pool_reference(v: Values) -> dict[str, Tensor]:
    out, index = F.max_pool2d(v["x"], 3, 2, 1, return_indices=True)
    return {"out": out, "index": index}


IMAGE = normal(x=(2, 5, 14, 11))
POOLING = [
    backward("max_pool2d", normal(x=(2, 5, 14, 12), grad=(2, 5, 7, 6)), max_pool, max_pool_reference, ["x"]),
    backward(
        "avg_pool2d",
        normal(x=(2, 5, 14, 12), grad=(2, 5, 7, 6)),
        lambda v: {
            "out": ops.avg_pool2d(v["x"], 3, 2, 1),
            "dx": ops.avg_pool2d_backward(v["grad"], v["x"], 3, 2, 1, False, True, None),
        },
        lambda v: F.avg_pool2d(v["x"], 3, 2, 1),
        ["x"],
    ),
    forward(
        "upsample_nearest1d",
        normal(x=(2, 5, 14)),
        lambda v: ops.upsample_nearest1d(v["x"], (29,)),
        lambda v: F.interpolate(v["x"], 29),
    ),
    forward(
        "upsample_nearest2d", IMAGE, lambda v: ops.upsample_nearest2d(v["x"], (29, 33)), lambda v: F.interpolate(v["x"], (29, 33))
    ),
    forward(
        "upsample_linear1d",
        normal(x=(2, 5, 14)),
        lambda v: ops.upsample_linear1d(v["x"], (29,), False),
        lambda v: F.interpolate(v["x"], 29, mode="linear"),
    ),
    forward(
        "upsample_bicubic2d_aa",
        IMAGE,
        lambda v: ops._upsample_bicubic2d_aa(v["x"], (7, 8), False),
        lambda v: F.interpolate(v["x"], (7, 8), mode="bicubic", antialias=True),
    ),
]


def rotary_reference(v: Values) -> tuple[Tensor, Tensor]:
    cos, sin = (v[n][v["position"]][:, :, None].repeat(1, 1, 1, 2) for n in ("cos", "sin"))

    def rotate(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    return rotate(v["q"]), rotate(v["k"])


FUSED = [
    forward(
        "apply_rotary_pos_emb",
        together(normal(q=(2, 9, 4, 32), k=(2, 9, 2, 32), cos=(50, 16), sin=(50, 16)), integers(0, 50, position=(2, 9))),
        lambda v: fused.apply_rotary_pos_emb(v["q"], v["k"], v["cos"], v["sin"], v["position"]),
        rotary_reference,
    ),
    differentiable(
        "silu_and_mul",
        normal(a=(9, 100), b=(9, 100)),
        lambda v: fused.silu_and_mul(v["a"], v["b"]),
        lambda v: F.silu(v["a"]) * v["b"],
        ["a", "b"],
    ),
    differentiable(
        "gelu_and_mul",
        normal(a=(9, 100), b=(9, 100)),
        lambda v: fused.gelu_and_mul(v["a"], v["b"], "tanh"),
        lambda v: F.gelu(v["a"], approximate="tanh") * v["b"],
        ["a", "b"],
    ),
    forward(
        "topk_softmax",
        normal(x=(40, 16)),
        lambda v: topk_softmax(v["x"]),
        lambda v: tuple(torch.softmax(v["x"], -1).topk(3)),
    ),
]


def topk_softmax(x: Tensor) -> tuple[Tensor, Tensor]:
    weights, index = torch.empty(40, 3), torch.empty(40, 3, dtype=torch.int32)
    fused.topk_softmax(weights, index, torch.empty(40, 3, dtype=torch.int32), x)
    return weights, index


CASES: list[Case] = [*PRODUCTS, *ATTENTION, *CONVOLUTION, *POOLING, *FUSED]
