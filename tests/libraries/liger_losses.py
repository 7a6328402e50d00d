"""Liger-Kernel: losses, alone and fused with the last linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.fused_ce_tvd import LigerFusedCETVDFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.fused_linear_jsd import LigerFusedLinearJSDFunction
from liger_kernel.ops.fused_linear_kl_div import LigerFusedLinearKLDivFunction
from liger_kernel.ops.grpo_loss import GrpoLossFunction, fused_selective_log_softmax
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.tvd import LigerTVDLossFunction
from liger_kernel.ops.vocab_parallel_cross_entropy import LigerVocabParallelCEFunction
from torch import Tensor

from tests.libraries.case import Case, Values, differentiable

IGNORED = -100


def logits(dtype: torch.dtype = torch.float32, rows: int = 6, vocabulary: int = 100) -> Callable[[torch.Generator], Values]:
    """Logits and targets, one of which is ignored."""

    def inputs(generator: torch.Generator) -> Values:
        target = torch.randint(0, vocabulary, (rows,), generator=generator)
        target[2] = IGNORED
        return {
            "x": torch.randn(rows, vocabulary, generator=generator).to(dtype),
            "t": target,
            "cw": torch.rand(vocabulary, generator=generator),
            "teacher": torch.randn(rows, vocabulary, generator=generator).to(dtype),
        }

    return inputs


def linear(dtype: torch.dtype = torch.float32) -> Callable[[torch.Generator], Values]:
    """A last hidden state, the last layer's weight and bias, a teacher's, and targets."""

    def inputs(generator: torch.Generator) -> Values:
        shapes = {"x": (10, 32), "w": (64, 32), "b": (64,), "tx": (10, 48), "tw": (64, 48)}
        tensors = {k: (0.5 * torch.randn(*shape, generator=generator)).to(dtype) for k, shape in shapes.items()}
        target = torch.randint(0, 64, (10,), generator=generator)
        target[4] = IGNORED
        return tensors | {"t": target, "q": torch.randn(10, 64, generator=generator).softmax(-1)}

    return inputs


def distributions(log_input: bool, log_target: bool) -> Callable[[torch.Generator], Values]:
    def inputs(generator: torch.Generator) -> Values:
        x, t = torch.randn(6, 90, generator=generator), torch.randn(6, 90, generator=generator)
        labels = torch.tensor([3, 4, IGNORED, 0, 8, 89])
        return {
            "x": x.log_softmax(-1) if log_input else x.softmax(-1),
            "p": t.log_softmax(-1) if log_target else t.softmax(-1),
            "t": labels,
        }

    return inputs


def cross_entropy(**options: Any) -> Callable[[Values], Any]:
    names = ("lse_square_scale", "label_smoothing", "reduction", "softcap")
    defaults: Values = dict(zip(names, (0.0, 0.0, "mean", None), strict=True)) | options

    def run(v: Values) -> Any:
        weight = v["cw"] if defaults.get("weighted") else None
        z_loss = bool(defaults["lse_square_scale"])
        out = LigerCrossEntropyFunction.apply(v["x"], v["t"], weight, IGNORED, *(defaults[n] for n in names), z_loss, False, True)
        return {"loss": out[0], "predicted": out[3]}

    return run


def cross_entropy_reference(**options: Any) -> Callable[[Values], Any]:
    def run(v: Values) -> Any:
        x = v["x"]
        if cap := options.get("softcap"):
            x = cap * torch.tanh(x / cap)
        reduction = options.get("reduction", "mean")
        loss = F.cross_entropy(
            x, v["t"], v["cw"] if options.get("weighted") else None, ignore_index=IGNORED,
            label_smoothing=options.get("label_smoothing", 0.0), reduction=reduction,
        )  # fmt: skip
        kept = v["t"] != IGNORED
        if scale := options.get("lse_square_scale"):
            z = scale * x.logsumexp(-1)[kept].pow(2)
            loss = loss + (z.mean() if reduction == "mean" else z.sum())
        return {"loss": loss, "predicted": torch.where(kept, x.argmax(-1), -1)}

    return run


def ce_case(name: str, inputs: Callable[[torch.Generator], Values], tolerance: Values | None = None, **options: Any) -> Case:
    return differentiable(name, inputs, cross_entropy(**options), cross_entropy_reference(**options), ["x"], **(tolerance or {}))


def flce(v: Values) -> Any:
    return LigerFusedLinearCrossEntropyFunction.apply(v["x"], v["w"], v["t"], v["b"])[0]


def flce_reference(v: Values) -> Tensor:
    return F.cross_entropy(v["x"] @ v["w"].t() + v["b"], v["t"], ignore_index=IGNORED)


def jsd(x: Tensor, p: Tensor, beta: float, rows: Tensor) -> Tensor:
    """Of log probabilities: beta KL(p | m) + (1 - beta) KL(x | m), m the mixture; the plain KL at both ends."""
    x, p = x[rows], p[rows]
    kl = lambda a, b: (a.exp() * (a - b)).sum()
    if beta == 0:
        return kl(p, x) / len(x)
    if beta == 1:
        return kl(x, p) / len(x)
    m = (beta * p.exp() + (1 - beta) * x.exp()).log()
    return (beta * kl(p, m) + (1 - beta) * kl(x, m)) / len(x)


ALL = slice(None)


def kl_case(reduction: str, log_target: bool) -> Case:
    return differentiable(
        f"kl_div {reduction}{', log target' if log_target else ''}", distributions(True, log_target),
        lambda v: LigerKLDivLossFunction.apply(v["x"], v["p"], reduction, log_target, 1e-10),
        lambda v: F.kl_div(v["x"], v["p"], reduction=reduction, log_target=log_target), ["x"],
    )  # fmt: skip


def tvd_reference(reduction: str) -> Callable[[Values], Tensor]:
    def run(v: Values) -> Tensor:
        each = 0.5 * (v["x"] - v["p"]).abs()
        return {"sum": each.sum(), "mean": each.mean(), "batchmean": each.sum() / len(each), "none": each}[reduction]

    return run


def linear_kl(v: Values) -> Tensor:
    log_p = (v["x"] @ v["w"].t() / 2.0).log_softmax(-1)
    kept = v["t"] != IGNORED
    return F.kl_div(log_p[kept], v["q"][kept], reduction="batchmean")


def ce_tvd(v: Values) -> tuple[Tensor, Tensor]:
    kept = v["t"] != IGNORED
    tvd = 0.5 * (v["x"].softmax(-1) - v["teacher"].softmax(-1)).abs().sum(-1)
    return F.cross_entropy(v["x"], v["t"], ignore_index=IGNORED, reduction="none"), torch.where(kept, tvd, 0)


def grpo_inputs(generator: torch.Generator) -> Values:
    mask = torch.ones(3, 6)
    mask[1, 4:] = 0
    return {
        "x": torch.randn(3, 7, 50, generator=generator),
        "old": -4 + 0.3 * torch.randn(3, 6, generator=generator),
        "ref": -4 + 0.3 * torch.randn(3, 6, generator=generator),
        "ids": torch.randint(0, 50, (3, 6), generator=generator),
        "advantages": torch.tensor([1.0, -0.7, 0.4]),
        "mask": mask,
    }


def selected(v: Values, temperature: float) -> Tensor:
    return (v["x"][:, :-1] / temperature).log_softmax(-1).gather(-1, v["ids"][..., None]).squeeze(-1)


def grpo(loss_type: str, level: str, beta: float) -> Callable[[Values], Any]:
    return lambda v: GrpoLossFunction.apply(
        v["x"], v["old"], v["ref"], v["ids"], v["advantages"], v["mask"], 0.9, beta, 0.2, 0.4, False, loss_type, None, True, level
    )[0]


def grpo_reference(loss_type: str, level: str, beta: float) -> Callable[[Values], Any]:
    def run(v: Values) -> Tensor:
        log_p, mask, advantage = selected(v, 0.9), v["mask"], v["advantages"][:, None]
        log_ratio = log_p - v["old"]
        if level == "sequence":
            log_ratio = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        ratio = log_ratio.exp()
        if loss_type == "cispo":
            # Here the upper bound is taken as it is, not added to one.
            loss = -ratio.clamp(max=0.4).detach() * advantage * log_p
        else:
            loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.4) * advantage)
        if beta:
            loss = loss + beta * ((v["ref"] - log_p).exp() - (v["ref"] - log_p) - 1)
        if loss_type == "grpo":
            return ((loss * mask).sum(-1) / mask.sum(-1)).mean()
        if loss_type == "dr_grpo":
            return (loss * mask).sum() / mask.numel()
        return (loss * mask).sum() / mask.sum()

    return run


def vocab_parallel_inputs(generator: torch.Generator) -> Values:
    target = torch.randint(0, 80, (4, 3), generator=generator)
    target[1, 1] = IGNORED
    return {"x": torch.randn(4, 3, 80, generator=generator), "t": target}


def vocab_parallel_reference(v: Values) -> Tensor:
    x, target = v["x"].flatten(0, 1), v["t"].flatten()
    return F.cross_entropy(x, target, ignore_index=IGNORED, label_smoothing=0.1, reduction="none").view(4, 3)


CASES: list[Case] = [
    ce_case("cross_entropy", logits()),
    ce_case("cross_entropy sum, smoothed", logits(), reduction="sum", label_smoothing=0.1),
    ce_case("cross_entropy none", logits(), reduction="none"),
    ce_case("cross_entropy softcap", logits(), softcap=3.0),
    ce_case("cross_entropy weighted", logits(), weighted=True),
    ce_case("cross_entropy z-loss", logits(), lse_square_scale=1e-2),
    ce_case("cross_entropy bfloat16", logits(torch.bfloat16)),
    differentiable("fused_linear_cross_entropy", linear(), flce, flce_reference, ["x", "w", "b"]),
    differentiable(
        "fused_linear_cross_entropy bfloat16", linear(torch.bfloat16), flce, flce_reference, ["x", "w", "b"], rtol=3e-2, atol=3e-2
    ),
    kl_case("batchmean", False),
    kl_case("sum", True),
    kl_case("none", False),
    *(
        differentiable(
            f"jsd, beta {beta:g}", distributions(True, True),
            lambda v, beta=beta: LigerJSDFunction.apply(v["x"], v["p"], None, beta, IGNORED),
            lambda v, beta=beta: jsd(v["x"], v["p"], beta, ALL), ["x"],
        )
        for beta in (0.0, 0.3, 1.0)
    ),
    differentiable(
        "jsd with labels", distributions(True, True), lambda v: LigerJSDFunction.apply(v["x"], v["p"], v["t"], 0.5, IGNORED),
        lambda v: jsd(v["x"], v["p"], 0.5, v["t"] != IGNORED), ["x"],
    ),
    *(
        differentiable(
            f"tvd {reduction}", distributions(False, False),
            lambda v, reduction=reduction: LigerTVDLossFunction.apply(v["x"], v["p"], None, reduction, IGNORED),
            tvd_reference(reduction), ["x"],
        )
        for reduction in ("batchmean", "mean", "none")
    ),
    differentiable(
        "fused_linear_jsd", linear(),
        lambda v: LigerFusedLinearJSDFunction.apply(v["x"], v["w"], v["tx"], v["tw"], v["t"], 0.5, IGNORED, 2.0),
        lambda v: jsd(
            (v["x"] @ v["w"].t() / 2).log_softmax(-1), (v["tx"] @ v["tw"].t() / 2).log_softmax(-1), 0.5, v["t"] != IGNORED
        ),
        ["x", "w"],
    ),
    differentiable(
        "fused_linear_kl_div", linear(),
        lambda v: LigerFusedLinearKLDivFunction.apply(v["x"], v["w"], v["q"], v["t"], "batchmean", IGNORED, 2.0),
        linear_kl, ["x", "w"],
    ),
    differentiable(
        "fused_ce_tvd", logits(), lambda v: LigerFusedCETVDFunction.apply(v["x"], v["teacher"], v["t"]), ce_tvd, ["x"]
    ),
    differentiable(
        "vocab_parallel_cross_entropy", vocab_parallel_inputs,
        lambda v: LigerVocabParallelCEFunction.apply(v["x"], v["t"], None, IGNORED, 0.1, "pytorch", "global"),
        vocab_parallel_reference, ["x"],
    ),
    differentiable(
        "selective_log_softmax", grpo_inputs, lambda v: fused_selective_log_softmax(v["x"], v["ids"], 0.9, v["mask"]),
        lambda v: selected(v, 0.9) * v["mask"],
    ),
    *(
        differentiable(
            f"grpo_loss {loss_type}, {level}", grpo_inputs, grpo(loss_type, level, beta),
            grpo_reference(loss_type, level, beta), ["x"],
        )
        for loss_type, level, beta in [
            ("grpo", "token", 0.04), ("bnpo", "token", 0.0), ("dr_grpo", "token", 0.04), ("dapo", "token", 0.0),
            ("cispo", "token", 0.04), ("grpo", "sequence", 0.0),
        ]
    ),
]  # fmt: skip
