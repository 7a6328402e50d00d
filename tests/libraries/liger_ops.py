"""Liger-Kernel: every operation through its autograd function or loss module, against plain torch in float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from torch import Tensor

from tests.libraries.case import Case, Values, differentiable, maker


def rms_norm(v: Values) -> Tensor:
    return LigerRMSNormFunction.apply(v["x"], v["w"], 1e-6, 0.0, "llama", False)


def rms_norm_reference(v: Values) -> Tensor:
    return v["x"] * torch.rsqrt(v["x"].pow(2).mean(-1, keepdim=True) + 1e-6) * v["w"]


def swiglu(v: Values) -> Tensor:
    return LigerSiLUMulFunction.apply(v["a"], v["b"])


NORM = maker(x=(9, 100), w=(100,))
CASES: list[Case] = [
    differentiable("rms_norm", NORM(), rms_norm, rms_norm_reference, ["x", "w"]),
    differentiable("rms_norm bf16", NORM(torch.bfloat16), rms_norm, rms_norm_reference, ["x", "w"]),
    differentiable("swiglu", maker(a=(5, 70), b=(5, 70))(), swiglu, lambda v: F.silu(v["a"]) * v["b"], ["a", "b"]),
]
