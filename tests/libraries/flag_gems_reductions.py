"""FlagGems: reductions and scans, softmax, normalization, losses."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from flag_gems import fused, ops
from torch import Tensor

from tests.libraries.case import Case, Values, differentiable
from tests.libraries.flag_gems_cases import Inputs, backward, forward, integers, mapped, normal, together

X = normal(x=(33, 70))
CUBE = normal(x=(7, 33, 18))
BOOLS = mapped(integers(0, 9, x=(33, 70)), lambda x: x > 0)
TIES = mapped(integers(0, 9, x=(33, 70)), Tensor.float)
LARGE = normal(x=(9000,))


def reduction(name: str, ours: Any, reference: Any, inputs: Inputs = X, **options: Any) -> Case:
    return forward(name, inputs, lambda v: ours(v["x"]), lambda v: reference(v["x"]), **options)


REDUCTIONS = [
    reduction("sum", ops.sum, torch.sum),
    reduction("sum of 9000", ops.sum, torch.sum, LARGE),
    reduction("sum bf16", ops.sum, torch.sum, normal(torch.bfloat16, x=(33, 70)), atol=0.3),
    reduction("sum int32", ops.sum, torch.sum, integers(-9, 9, torch.int32, x=(33, 70))),
    reduction("sum_dim inner", lambda x: ops.sum_dim(x, [1]), lambda x: x.sum(1)),
    reduction("sum_dim middle", lambda x: ops.sum_dim(x, [1], keepdim=True), lambda x: x.sum(1, keepdim=True), CUBE),
    reduction("sum_dim two", lambda x: ops.sum_dim(x, [0, 2]), lambda x: x.sum((0, 2)), CUBE),
    reduction("mean", ops.mean, torch.mean),
    reduction("mean_dim", lambda x: ops.mean_dim(x, [1]), lambda x: x.mean(1), CUBE),
    reduction("amax", lambda x: ops.amax(x, [1]), lambda x: x.amax(1)),
    reduction("aminmax", lambda x: ops.aminmax(x, dim=1), lambda x: tuple(torch.aminmax(x, dim=1))),
    reduction("max", ops.max, torch.max),
    reduction("max_dim", lambda x: tuple(ops.max_dim(x, 1)), lambda x: tuple(x.max(1)), CUBE),
    reduction("min", ops.min, torch.min),
    reduction("min_dim", lambda x: tuple(ops.min_dim(x, 1)), lambda x: tuple(x.min(1))),
    reduction("argmax", ops.argmax, torch.argmax),
    # Not over the middle axis of 33: its heuristic gives Triton's arange a length that is no power of two.
    reduction("argmax dim", lambda x: ops.argmax(x, 1), lambda x: x.argmax(1)),
    reduction("argmax middle", lambda x: ops.argmax(x, 1), lambda x: x.argmax(1), normal(x=(7, 32, 18))),
    # Rows of 70 come out wrong: the kernel for the last axis has no mask and reads on into the next row.
    reduction("argmin dim", lambda x: ops.argmin(x, 1), lambda x: x.argmin(1), normal(x=(32, 64))),
    reduction("argmin middle", lambda x: ops.argmin(x, 1), lambda x: x.argmin(1), CUBE),
    reduction("prod", ops.prod, torch.prod, mapped(X, lambda x: 1 + x / 50)),
    reduction("prod_dim", lambda x: ops.prod_dim(x, 1), lambda x: x.prod(1)),
    reduction("all", ops.all, torch.all, BOOLS),
    reduction("all_dim", lambda x: ops.all_dim(x, 1), lambda x: x.all(1), BOOLS),
    reduction("any", ops.any, torch.any, BOOLS),
    reduction("any_dim", lambda x: ops.any_dim(x, 0), lambda x: x.any(0), mapped(BOOLS, torch.logical_not)),
    reduction("count_nonzero", ops.count_nonzero, torch.count_nonzero, TIES),
    reduction("std", lambda x: ops.std(x, 1), lambda x: x.std(1)),
    reduction("var_mean", lambda x: tuple(ops.var_mean(x, [1])), lambda x: tuple(torch.var_mean(x, [1]))),
    *(
        reduction(
            f"vector_norm {p}", lambda x, p=p: ops.vector_norm(x, p, [1]), lambda x, p=p: torch.linalg.vector_norm(x, p, [1])
        )
        for p in (0, 1, 2, 3, float("inf"), -float("inf"))
    ),
    reduction("trace", ops.trace, torch.trace, normal(x=(30, 41))),
    reduction("cumsum", lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
    reduction("cumsum outer", lambda x: ops.cumsum(x, 0), lambda x: x.cumsum(0)),
    reduction("cumsum of 9000", lambda x: ops.cumsum(x, 0), lambda x: x.cumsum(0), LARGE, atol=1e-3),
    reduction("cumsum int32", lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), integers(-9, 9, torch.int32, x=(33, 70))),
    reduction(
        "normed_cumsum",
        lambda x: ops.normed_cumsum(x, -1),
        lambda x: x.cumsum(-1) / x.sum(-1, keepdim=True),
        mapped(X, Tensor.abs),
    ),
    reduction("cummax", lambda x: tuple(ops.cummax(x, 1)), lambda x: tuple(x.cummax(1))),
    reduction("cummin", lambda x: tuple(ops.cummin(x, 1)), lambda x: tuple(x.cummin(1))),
    reduction("cummax of ties", lambda x: tuple(ops.cummax(x, 1)), lambda x: tuple(x.cummax(1)), TIES),
    forward(
        "quantile",
        together(X, q=torch.tensor([0.1, 0.5, 0.77])),
        lambda v: ops.quantile(v["x"], v["q"], 1),
        lambda v: torch.quantile(v["x"], v["q"], 1),
    ),
    reduction("bincount", fused.bincount, torch.bincount, integers(0, 21, x=(500,))),
]

SOFTMAX = [
    *(
        backward(
            f"{name} dim {dim}{' ' + str(dtype)[6:] if dtype != torch.float32 else ''}",
            normal(dtype, x=(9, 33, 17), grad=(9, 33, 17)),
            lambda v, dim=dim, ours=ours, back=back: {
                "out": (y := ours(v["x"], dim)),
                "dx": back(v["grad"], y, dim, v["x"].dtype),
            },
            lambda v, dim=dim, reference=reference: reference(v["x"], dim),
            ["x"],
        )
        for name, ours, back, reference in (
            ("softmax", ops.softmax, ops.softmax_backward, torch.softmax),
            ("log_softmax", ops.log_softmax, ops.log_softmax_backward, torch.log_softmax),
        )
        for dim, dtype in ((-1, torch.float32), (1, torch.float32), (-1, torch.float16))
    ),
    backward(
        "softmax of long rows",
        normal(x=(2, 40000), grad=(2, 40000)),
        lambda v: {"out": (y := ops.softmax(v["x"], 1)), "dx": ops.softmax_backward(v["grad"], y, 1, v["x"].dtype)},
        lambda v: torch.softmax(v["x"], 1),
        ["x"],
    ),
    backward(
        "scaled_softmax",
        normal(torch.float16, x=(2, 3, 16, 40), grad=(2, 3, 16, 40)),
        lambda v: {
            "out": (y := ops.scaled_softmax_forward(v["x"], 0.3)),
            "dx": ops.scaled_softmax_backward(v["grad"], y, 0.3),
        },
        lambda v: torch.softmax(v["x"] * 0.3, -1),
        ["x"],
    ),
]


def layer_norm(v: Values) -> dict[str, Tensor]:
    shape = v["w"].shape
    out, mean, rstd = ops.layer_norm(v["x"], shape, v["w"], v["b"], 1e-5)
    dx, dw, db = ops.layer_norm_backward(v["grad"], v["x"], shape, mean, rstd, v["w"], v["b"], [True, True, True])
    return {"out": out, "dx": dx, "dw": dw, "db": db}


def group_norm(v: Values) -> dict[str, Tensor]:
    n, c, hw = 3, 8, 35
    out, mean, rstd = ops.group_norm(v["x"], v["w"], v["b"], n, c, hw, 4)
    dx, dw, db = ops.group_norm_backward(v["grad"], v["x"], mean, rstd, v["w"], n, c, hw, 4, [True, True, True])
    return {"out": out, "dx": dx, "dw": dw, "db": db}


def batch_norm(v: Values) -> dict[str, Tensor]:
    mean, var = torch.zeros(12), torch.ones(12)
    out, save_mean, save_inv = ops.batch_norm(v["x"], v["w"], v["b"], mean, var, True, 0.1, 1e-5)
    dx, dw, db = ops.batch_norm_backward(
        v["grad"], v["x"], v["w"], mean, var, save_mean, save_inv, True, 1e-5, [True, True, True]
    )
    return {"out": out, "mean": mean, "var": var, "dx": dx, "dw": dw, "db": db}


def batch_norm_reference(v: Values) -> dict[str, Tensor]:
    mean, var = torch.zeros(12).double(), torch.ones(12).double()
    out = F.batch_norm(v["x"], mean, var, v["w"], v["b"], True, 0.1, 1e-5)
    return {"out": out, "mean": mean, "var": var}


def rms_reference(v: Values) -> Tensor:
    return F.rms_norm(v["x"], v["w"].shape, v["w"], 1e-5)


NORMS = [
    backward(
        "layer_norm",
        normal(x=(9, 100), w=(100,), b=(100,), grad=(9, 100)),
        layer_norm,
        lambda v: F.layer_norm(v["x"], v["w"].shape, v["w"], v["b"], 1e-5),
        ["x", "w", "b"],
    ),
    backward(
        "layer_norm of long rows",
        normal(x=(3, 9000), w=(9000,), b=(9000,), grad=(3, 9000)),
        layer_norm,
        lambda v: F.layer_norm(v["x"], v["w"].shape, v["w"], v["b"], 1e-5),
        ["x", "w", "b"],
    ),
    backward(
        # Groups of three channels come out wrong: the kernel masks channels by their total and not by the group's.
        "group_norm",
        normal(x=(3, 8, 5, 7), w=(8,), b=(8,), grad=(3, 8, 5, 7)),
        group_norm,
        lambda v: F.group_norm(v["x"], 4, v["w"], v["b"]),
        ["x", "w", "b"],
    ),
    backward(
        "batch_norm",
        normal(x=(5, 12, 6, 7), w=(12,), b=(12,), grad=(5, 12, 6, 7)),
        batch_norm,
        batch_norm_reference,
        ["x", "w", "b"],
    ),
    differentiable(
        "rms_norm", normal(x=(9, 100), w=(100,)), lambda v: ops.rms_norm(v["x"], (100,), v["w"]), rms_reference, ["x", "w"]
    ),
    differentiable(
        "rms_norm bf16",
        normal(torch.bfloat16, x=(9, 100), w=(100,)),
        lambda v: ops.rms_norm(v["x"], (100,), v["w"]),
        rms_reference,
        ["x", "w"],
        atol=5e-2,
    ),
    differentiable(
        "instance_norm",
        normal(x=(3, 5, 64), w=(5,), b=(5,)),
        lambda v: fused.instance_norm(v["x"], v["w"], v["b"], use_input_stats=True),
        lambda v: F.instance_norm(v["x"], None, None, v["w"], v["b"]),
        ["x", "w", "b"],
    ),
    forward(
        "skip_layer_norm",
        normal(x=(9, 100), r=(9, 100), w=(100,), b=(100,)),
        lambda v: fused.skip_layer_norm(v["x"], v["r"], (100,), v["w"], v["b"]),
        lambda v: F.layer_norm(v["x"] + v["r"], (100,), v["w"], v["b"]),
    ),
    forward(
        "fused_add_rms_norm",
        normal(x=(9, 100), r=(9, 100), w=(100,)),
        lambda v: fused.fused_add_rms_norm(v["x"].clone(), v["r"].clone(), (100,), v["w"]),
        lambda v: (rms_reference(v | {"x": v["x"] + v["r"]}), v["x"] + v["r"]),
    ),
    differentiable(
        "weight_norm",
        normal(v=(9, 100), g=(9, 1)),
        lambda v: fused.weight_norm(v["v"], v["g"], 0),
        lambda v: torch._weight_norm(v["v"], v["g"], 0),
        ["v", "g"],
    ),
]

CLASSES = together(normal(x=(40, 23)), integers(0, 23, target=(40,)), mapped(normal(w=(23,)), Tensor.abs))


def cross_entropy(name: str, **options: Any) -> Case:
    weighted = options.pop("weighted", False)
    return differentiable(
        f"cross_entropy {name}",
        CLASSES,
        lambda v: fused.cross_entropy_loss(v["x"], v["target"], v["w"] if weighted else None, **options),
        lambda v: F.cross_entropy(v["x"], v["target"], v["w"] if weighted else None, **options),
        ["x"],
    )


def nll(reduction: int) -> Case:
    def run(v: Values) -> dict[str, Tensor]:
        out, total = ops.nll_loss_forward(v["x"], v["target"], v["w"], reduction)
        dx = ops.nll_loss_backward(v["grad"], v["x"], v["target"], v["w"], reduction, -100, total)
        return {"out": out, "dx": dx}

    how = ("none", "mean", "sum")[reduction]
    inputs = together(CLASSES, normal(grad=(40,)) if reduction == 0 else lambda g: {"grad": torch.tensor(1.7)})
    return backward(f"nll_loss {how}", inputs, run, lambda v: F.nll_loss(v["x"], v["target"], v["w"], reduction=how), ["x"])


XY = normal(x=(33, 70), y=(33, 70))
LOSSES = [
    cross_entropy("mean"),
    cross_entropy("weighted sum", weighted=True, reduction="sum"),
    cross_entropy("none", reduction="none"),
    cross_entropy("smoothed", label_smoothing=0.1),
    differentiable(
        "cross_entropy of probabilities",
        together(normal(x=(40, 23)), lambda g: {"target": torch.rand(40, 23, generator=g)}),
        lambda v: fused.cross_entropy_loss(v["x"], v["target"]),
        lambda v: F.cross_entropy(v["x"], v["target"]),
        ["x"],
    ),
    *map(nll, range(3)),
    forward("mse_loss", XY, lambda v: ops.mse_loss(v["x"], v["y"]), lambda v: F.mse_loss(v["x"], v["y"])),
]

CASES: list[Case] = [*REDUCTIONS, *SOFTMAX, *NORMS, *LOSSES]
