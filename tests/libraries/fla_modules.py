"""flash-linear-attention: norms, short convolutions, activations, losses, and the utilities that its token mixers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from fla.modules.activations import logsigmoid, sigmoid, sigmoidglu, swiglu, swish
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.fused_cross_entropy.ops import cross_entropy_loss
from fla.modules.fused_kl_div import FusedKLDivLoss
from fla.modules.fused_linear_cross_entropy import FusedLinearCrossEntropyLoss
from fla.modules.norm.fused_norm_gate import layer_norm_gated, rms_norm_gated
from fla.modules.norm.l2norm import l2norm
from fla.modules.norm.layernorm import group_norm, layer_norm, rms_norm
from fla.modules.rotary import rotary_embedding
from fla.modules.token_shift import token_shift
from fla.ops.utils import (
    addmm,
    chunk_global_cumsum,
    chunk_local_cumsum,
    logsumexp_fwd,
    matmul,
    mean_pooling,
    softmax_bwd,
    softmax_fwd,
    solve_tril,
)
from torch import Tensor

from tests.libraries.case import Case, Values, differentiable, maker

LENGTHS = torch.tensor([0, 15, 79, 100])
IGNORED = -100


def split(x: Tensor, cu: Tensor | None) -> list[Tensor]:
    """The sequences of [B, T, ...]: the batch entries, or what `cu` cuts the only one into."""
    return list(x) if cu is None else list(x[0].split(cu.diff().tolist()))


def join(parts: list[Tensor], cu: Tensor | None) -> Tensor:
    return torch.stack(parts) if cu is None else torch.cat(parts)[None]


def each(function: Callable[[Tensor], Tensor], x: Tensor, cu: Tensor | None) -> Tensor:
    return join([function(part) for part in split(x, cu)], cu)


def rms(x: Tensor, eps: float = 1e-5) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def convolution(v: Values) -> Tensor:
    width = v["w"].shape[-1]

    def one(x: Tensor) -> Tensor:
        padded = F.pad(x.t(), (width - 1, 0))
        return F.silu(F.conv1d(padded[None], v["w"][:, None], v.get("b"), groups=len(v["w"]))[0].t())

    out = each(one, v["x"], v.get("cu"))
    return out + v["r"] if "r" in v else out


def short_convolution(v: Values) -> Tensor:
    return causal_conv1d(
        v["x"], v["w"], v.get("b"), v.get("r"), activation="silu", backend="triton", cu_seqlens=v.get("cu")
    )[0]


def shifted(v: Values) -> Tensor:
    """The token before, minus the token."""
    return each(lambda x: F.pad(x, (0, 0, 1, 0))[:-1] - x, v["x"], v.get("cu"))


def rotated(v: Values, interleaved: bool) -> Tensor:
    x, cos, sin = v["x"], v["cos"][:, None], v["sin"][:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    left, right = a * cos - b * sin, a * sin + b * cos
    return torch.stack([left, right], -1).flatten(-2) if interleaved else torch.cat([left, right], -1)


def running(x: Tensor, reverse: bool) -> Tensor:
    return x.flip(0).cumsum(0).flip(0) if reverse else x.cumsum(0)


def sums(v: Values, reverse: bool, chunk: int) -> Tensor:
    def one(x: Tensor) -> Tensor:
        return running(x, reverse) if not chunk else torch.cat([running(part, reverse) for part in x.split(chunk)])

    return each(one, v["x"], v.get("cu"))


def sum_case(name: str, shape: tuple[int, ...], reverse: bool = False, chunk: int = 0, cu: Tensor | None = None) -> Case:
    options: dict[str, Any] = {"reverse": reverse} | ({} if cu is None else {"cu_seqlens": cu})
    if not chunk:
        ours = lambda v: chunk_global_cumsum(v["x"], **options)
    else:
        ours = lambda v: chunk_local_cumsum(v["x"], chunk_size=chunk, **options)
    others = {} if cu is None else {"cu": cu}
    return differentiable(name, maker(x=shape)(**others), ours, lambda v: sums(v, reverse, chunk))


def triangles(generator: torch.Generator, tokens: int = 70, block: int = 32) -> Values:
    """Strictly lower triangular blocks of [1, T, 2, block], the last one cut."""
    a = 0.3 * torch.randn(1, tokens, 2, block, generator=generator)
    rows = torch.arange(tokens) % block
    return {"a": a * (torch.arange(block)[None] < rows[:, None])[None, :, None]}


def inverses(v: Values) -> Tensor:
    a, block = v["a"][0].transpose(0, 1), v["a"].shape[-1]
    parts = []
    for part in a.split(block, 1):
        n = part.shape[1]
        inverse = torch.linalg.inv(torch.eye(n, dtype=a.dtype) + part[..., :n])
        parts.append(F.pad(inverse, (0, block - n)))
    return torch.cat(parts, 1).transpose(0, 1)[None]


def classes(generator: torch.Generator) -> Values:
    target = torch.randint(0, 90, (12,), generator=generator)
    target[3] = IGNORED
    shapes = {"x": (12, 32), "w": (90, 32), "b": (90,), "tx": (12, 24), "tw": (90, 24), "logits": (12, 90)}
    return {n: 0.5 * torch.randn(*shape, generator=generator) for n, shape in shapes.items()} | {"t": target}


def kl(v: Values) -> Tensor:
    return F.kl_div((v["x"] @ v["w"].t()).log_softmax(-1), (v["tx"] @ v["tw"].t()).softmax(-1), reduction="batchmean")


def rotary_inputs(generator: torch.Generator) -> Values:
    angle = torch.outer(torch.arange(20.0), 10000 ** (-torch.arange(8) / 8))
    return {"x": torch.randn(2, 20, 3, 16, generator=generator), "cos": angle.cos(), "sin": angle.sin()}


ROWS = maker(x=(37, 60), w=(60,), b=(60,))
GATED = maker(x=(37, 64), g=(37, 64), w=(64,), b=(64,))
CONV = maker(x=(2, 80, 24), w=(24, 4), b=(24,))
PAIR = maker(x=(5, 70), y=(5, 70))

CASES: list[Case] = [
    differentiable(
        "layer_norm", ROWS(), lambda v: layer_norm(v["x"], v["w"], v["b"]),
        lambda v: F.layer_norm(v["x"], (60,), v["w"], v["b"], 1e-5), ["x", "w", "b"],
    ),
    differentiable(
        "layer_norm bfloat16", ROWS(torch.bfloat16), lambda v: layer_norm(v["x"], v["w"], v["b"]),
        lambda v: F.layer_norm(v["x"], (60,), v["w"], v["b"], 1e-5), ["x", "w", "b"], rtol=2e-2, atol=6e-2,
    ),
    differentiable(
        "layer_norm with residual", maker(x=(37, 60), w=(60,), b=(60,), r=(37, 60))(),
        lambda v: layer_norm(v["x"], v["w"], v["b"], residual=v["r"], prenorm=True),
        lambda v: (F.layer_norm(v["x"] + v["r"], (60,), v["w"], v["b"], 1e-5), v["x"] + v["r"]), ["x", "w", "b", "r"],
    ),
    differentiable(
        "rms_norm", ROWS(), lambda v: rms_norm(v["x"], v["w"], v["b"]), lambda v: rms(v["x"]) * v["w"] + v["b"], ["x", "w", "b"]
    ),
    differentiable(
        "group_norm", maker(x=(2, 9, 64), w=(64,), b=(64,))(), lambda v: group_norm(v["x"], v["w"], v["b"], num_groups=4),
        lambda v: F.group_norm(v["x"].flatten(0, 1), 4, v["w"], v["b"], 1e-5).view_as(v["x"]), ["x", "w", "b"],
    ),
    differentiable(
        "layer_norm_gated", GATED(), lambda v: layer_norm_gated(v["x"], v["g"], v["w"], v["b"]),
        lambda v: F.layer_norm(v["x"], (64,), v["w"], v["b"], 1e-6) * F.silu(v["g"]), ["x", "g", "w", "b"],
    ),
    differentiable(
        "rms_norm_gated", GATED(), lambda v: rms_norm_gated(v["x"], v["g"], v["w"], v["b"], activation="sigmoid"),
        lambda v: (rms(v["x"], 1e-6) * v["w"] + v["b"]) * v["g"].sigmoid(), ["x", "g", "w", "b"],
    ),
    differentiable(
        "l2norm", maker(x=(37, 60))(), lambda v: l2norm(v["x"]),
        lambda v: v["x"] / (v["x"].pow(2).sum(-1, keepdim=True) + 1e-6).sqrt(), ["x"],
    ),
    differentiable("short convolution", CONV(), short_convolution, convolution, ["x", "w", "b"]),
    differentiable(
        "short convolution with residual", maker(x=(2, 80, 24), w=(24, 3), r=(2, 80, 24))(), short_convolution, convolution,
        ["x", "w", "r"],
    ),
    differentiable(
        "short convolution, varlen", maker(x=(1, 100, 24), w=(24, 4), b=(24,))(cu=LENGTHS), short_convolution, convolution,
        ["x", "w", "b"],
    ),
    differentiable(
        "short convolution bfloat16", CONV(torch.bfloat16), short_convolution, convolution, ["x", "w", "b"], rtol=2e-2, atol=8e-2
    ),
    differentiable("token_shift", maker(x=(2, 50, 24))(), lambda v: token_shift(v["x"]), shifted, ["x"]),
    differentiable(
        "token_shift, varlen", maker(x=(1, 100, 24))(cu=LENGTHS), lambda v: token_shift(v["x"], v["cu"]), shifted, ["x"]
    ),
    *(
        differentiable(
            f"rotary_embedding{', interleaved' if interleaved else ''}", rotary_inputs,
            lambda v, interleaved=interleaved: rotary_embedding(v["x"], v["cos"], v["sin"], interleaved=interleaved),
            lambda v, interleaved=interleaved: rotated(v, interleaved), ["x"],
        )
        for interleaved in (False, True)
    ),
    differentiable("swish", maker(x=(5, 70))(), lambda v: swish(v["x"]), lambda v: F.silu(v["x"]), ["x"]),
    differentiable("sigmoid", maker(x=(5, 70))(), lambda v: sigmoid(v["x"]), lambda v: v["x"].sigmoid(), ["x"]),
    differentiable(
        "logsigmoid", maker(x=(5, 70))(), lambda v: logsigmoid(v["x"], 2.0), lambda v: F.logsigmoid(v["x"]) / 2, ["x"]
    ),
    differentiable("swiglu", PAIR(), lambda v: swiglu(v["x"], v["y"]), lambda v: F.silu(v["x"]) * v["y"], ["x", "y"]),
    differentiable(
        "sigmoidglu", PAIR(), lambda v: sigmoidglu(v["x"], v["y"]), lambda v: v["x"].sigmoid() * v["y"], ["x", "y"]
    ),
    differentiable(
        "cross_entropy", classes, lambda v: cross_entropy_loss(v["logits"], v["t"], label_smoothing=0.1)[0],
        lambda v: F.cross_entropy(v["logits"], v["t"], label_smoothing=0.1, reduction="none"), ["logits"],
    ),
    differentiable(
        "fused_linear_cross_entropy", classes,
        lambda v: FusedLinearCrossEntropyLoss(num_chunks=2)(v["x"], v["t"], v["w"], v["b"]),
        lambda v: F.cross_entropy(v["x"] @ v["w"].t() + v["b"], v["t"]), ["x", "w", "b"],
    ),
    differentiable(
        "fused_kl_div", classes, lambda v: FusedKLDivLoss()(v["x"], v["tx"], v["w"], v["tw"]), kl, ["x", "w"]
    ),
    sum_case("cumsum of scalars", (2, 100, 3)),
    sum_case("cumsum of scalars, reverse, varlen", (1, 100, 3), reverse=True, cu=LENGTHS),
    sum_case("cumsum of vectors", (2, 100, 3, 20)),
    sum_case("cumsum of vectors, reverse, varlen", (1, 100, 3, 20), reverse=True, cu=LENGTHS),
    sum_case("cumsum in chunks", (2, 100, 3), chunk=32),
    sum_case("cumsum in chunks, vectors, reverse", (2, 100, 3, 20), reverse=True, chunk=16),
    sum_case("cumsum in chunks, varlen", (1, 100, 3), chunk=32, cu=LENGTHS),
    differentiable(
        "mean_pooling", maker(x=(2, 96, 3, 20))(), lambda v: mean_pooling(v["x"], 32),
        lambda v: v["x"].unflatten(1, (3, 32)).mean(2), ["x"],
    ),
    differentiable("softmax forward", maker(x=(9, 60))(), lambda v: softmax_fwd(v["x"]), lambda v: v["x"].softmax(-1)),
    differentiable(
        "softmax backward", lambda g: {"p": torch.randn(9, 60, generator=g).softmax(-1), "dp": torch.randn(9, 60, generator=g)},
        lambda v: softmax_bwd(v["p"], v["dp"]), lambda v: v["p"] * (v["dp"] - (v["p"] * v["dp"]).sum(-1, keepdim=True)),
    ),
    differentiable("logsumexp", maker(x=(9, 60))(), lambda v: logsumexp_fwd(v["x"]), lambda v: v["x"].logsumexp(-1)),
    *(
        differentiable(
            f"solve_tril {block}", lambda g, block=block: triangles(g, 70, block), lambda v: solve_tril(v["a"]), inverses,
            rtol=5e-3, atol=5e-3,
        )
        for block in (16, 32, 64)
    ),
    differentiable("matmul", maker(a=(40, 50), b=(50, 30))(), lambda v: matmul(v["a"], v["b"]), lambda v: v["a"] @ v["b"]),
    differentiable(
        "addmm", maker(x=(40, 30), a=(40, 50), b=(50, 30))(), lambda v: addmm(v["x"], v["a"], v["b"]),
        lambda v: v["x"] + v["a"] @ v["b"],
    ),
]  # fmt: skip
