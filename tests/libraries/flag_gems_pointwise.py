"""FlagGems: operations on each element by itself. Most are generated as source files by its `pointwise_dynamic`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from flag_gems import fused, ops
from flag_gems.ops.bitwise_left_shift import bitwise_left_shift_kernel
from flag_gems.ops.bitwise_right_shift import bitwise_right_shift_kernel
from flag_gems.ops.where import where_inner
from torch import Tensor

from tests.libraries.case import Case, Values
from tests.libraries.flag_gems_cases import Inputs, backward, forward, integers, mapped, normal, together

SHAPE = (33, 70)
X = normal(x=SHAPE)
GRAD = normal(x=SHAPE, grad=SHAPE)
ABOVE_ZERO = mapped(X, lambda x: x.abs() + 0.1)
ABOVE_ONE = mapped(X, lambda x: x.abs() + 1.1)
INSIDE_ONE = mapped(X, lambda x: x.tanh() * 0.98)
PROBABILITY = mapped(X, lambda x: x.sigmoid())
ROUND = mapped(X, lambda x: x * 5)
SPECIAL = mapped(
    X, lambda x: torch.where(x > 1, torch.inf, torch.where(x < -1, -torch.inf, torch.where(x.abs() < 0.2, torch.nan, x)))
)
INTS = integers(-1000, 1000, torch.int32, x=SHAPE, y=SHAPE)
BOOLS = integers(0, 2, torch.bool, x=SHAPE, y=SHAPE)

Unary = Callable[[Tensor], Tensor]


def unary(name: str, ours: Unary, reference: Unary, inputs: Inputs = X) -> Case:
    return forward(name, inputs, lambda v: ours(v["x"]), lambda v: reference(v["x"]))


def in_place(name: str, ours: Unary, reference: Unary, inputs: Inputs = X) -> Case:
    """`ours` writes to its argument and returns it; both are compared."""

    def run(v: Values) -> dict[str, Tensor]:
        x = v["x"].clone()
        return {"out": ours(x), "x": x}

    return forward(name, inputs, run, lambda v: {"out": reference(v["x"]), "x": reference(v["x"])})


UNARY = [
    unary("abs", ops.abs, torch.abs),
    unary("acos", ops.acos, torch.acos, INSIDE_ONE),
    unary("angle", ops.angle, torch.angle),
    unary("atan", ops.atan, torch.atan),
    unary("ceil", ops.ceil, torch.ceil, ROUND),
    unary("cos", ops.cos, torch.cos, ROUND),
    unary("cosh", ops.cosh, torch.cosh),
    unary("erf", ops.erf, torch.erf),
    unary("exp", ops.exp, torch.exp),
    unary("exp2", ops.exp2, torch.exp2),
    unary("expm1", ops.expm1, torch.expm1),
    unary("hardsigmoid", ops.hardsigmoid, F.hardsigmoid, ROUND),
    unary("i0", ops.i0, torch.special.i0),
    unary("log", ops.log, torch.log, ABOVE_ZERO),
    unary("log10", ops.log10, torch.log10, ABOVE_ZERO),
    unary("log_sigmoid", ops.log_sigmoid, F.logsigmoid),
    unary("logit", ops.logit, torch.logit, PROBABILITY),
    unary("neg", ops.neg, torch.neg),
    unary("reciprocal", ops.reciprocal, torch.reciprocal, ABOVE_ZERO),
    unary("relu", ops.relu, torch.relu),
    unary("relu6", ops.relu6, F.relu6, ROUND),
    unary("round", ops.round, torch.round, ROUND),
    unary("rsqrt", ops.rsqrt, torch.rsqrt, ABOVE_ZERO),
    unary("selu", ops.selu, F.selu),
    unary("sin", ops.sin, torch.sin, ROUND),
    unary("softplus", ops.softplus, F.softplus),
    unary("softshrink", ops.softshrink, F.softshrink),
    unary("sqrt", ops.sqrt, torch.sqrt, ABOVE_ZERO),
    unary("square", ops.square, torch.square),
    unary("tan", ops.tan, torch.tan),
    unary("celu", ops.celu, F.celu),
    unary("signbit", ops.signbit, torch.signbit),
    unary("isfinite", ops.isfinite, torch.isfinite, SPECIAL),
    unary("isinf", ops.isinf, torch.isinf, SPECIAL),
    unary("isnan", ops.isnan, torch.isnan, SPECIAL),
    unary("isneginf", ops.isneginf, torch.isneginf, SPECIAL),
    unary("nan_to_num", lambda x: ops.nan_to_num(x, 1.5, 7.0, -7.0), lambda x: torch.nan_to_num(x, 1.5, 7.0, -7.0), SPECIAL),
    unary("bitwise_not", ops.bitwise_not, torch.bitwise_not, INTS),
    unary("logical_not", ops.logical_not, torch.logical_not, BOOLS),
    unary("clamp", lambda x: ops.clamp(x, -0.5, 1.0), lambda x: x.clamp(-0.5, 1.0)),
    unary("pow tensor scalar", lambda x: ops.pow_tensor_scalar(x, 3.0), lambda x: x**3),
    unary("pow scalar tensor", lambda x: ops.pow_scalar(2.5, x), lambda x: torch.pow(2.5, x)),
    unary("exp of a transposed tensor", ops.exp, torch.exp, mapped(X, lambda x: x.T)),
    unary("exp of every other column", ops.exp, torch.exp, mapped(X, lambda x: x[:, ::2])),
    unary("exp of an expanded row", ops.exp, torch.exp, mapped(X, lambda x: x[:1].expand(20, -1))),
    unary("sin bf16", ops.sin, torch.sin, normal(torch.bfloat16, x=SHAPE)),
    unary("exp fp16", ops.exp, torch.exp, normal(torch.float16, x=SHAPE)),
    unary("sqrt fp64", ops.sqrt, torch.sqrt, mapped(ABOVE_ZERO, Tensor.double)),
    in_place("asinh_", ops.asinh_, torch.asinh),
    in_place("arctanh_", ops.arctanh_, torch.arctanh, INSIDE_ONE),
    in_place("digamma_", ops.digamma_, torch.digamma, ABOVE_ONE),
    in_place("floor_", ops.floor_, torch.floor, ROUND),
    in_place("hardswish_", ops.hardswish_, F.hardswish, ROUND),
    in_place("log1p_", ops.log1p_, torch.log1p, ABOVE_ZERO),
    in_place("sgn_", ops.sgn_, torch.sgn),
    in_place("sinh_", ops.sinh_, torch.sinh),
    in_place("exp_", ops.exp_, torch.exp),
    in_place("relu_", ops.relu_, torch.relu),
]

XY = normal(x=SHAPE, y=SHAPE)
BROADCAST = normal(x=(33, 1, 7), y=(1, 11, 7))


def binary(name: str, ours: Callable[..., Tensor], reference: Callable[..., Tensor], inputs: Inputs = XY) -> Case:
    return forward(name, inputs, lambda v: ours(v["x"], v["y"]), lambda v: reference(v["x"], v["y"]))


BINARY = [
    binary("add", ops.add, torch.add),
    binary("add of broadcast tensors", ops.add, torch.add, BROADCAST),
    binary("add with alpha", lambda x, y: ops.add(x, y, alpha=2.5), lambda x, y: x + 2.5 * y),
    binary("add bf16", ops.add, torch.add, normal(torch.bfloat16, x=SHAPE, y=SHAPE)),
    binary("sub", ops.sub, torch.sub),
    binary("mul", ops.mul, torch.mul, BROADCAST),
    binary("true_divide", ops.true_divide, torch.true_divide),
    binary("floor_divide", ops.floor_divide, torch.floor_divide),
    binary("floor_divide int32", ops.floor_divide, torch.floor_divide, mapped(INTS, lambda x: torch.where(x == 0, 7, x))),
    binary(
        "div_mode trunc",
        lambda x, y: ops.div_mode(x, y, rounding_mode="trunc"),
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    ),
    binary("remainder", ops.remainder, torch.remainder),
    binary("remainder int32", ops.remainder, torch.remainder, mapped(INTS, lambda x: torch.where(x == 0, 7, x))),
    binary("atan2", ops.atan2, torch.atan2),
    binary("copysign", ops.copysign, torch.copysign),
    binary("fmin", ops.fmin, torch.fmin, normal(x=SHAPE, y=SHAPE)),
    binary("hypot", ops.hypot, torch.hypot),
    binary("logaddexp", ops.logaddexp, torch.logaddexp),
    binary("maximum", ops.maximum, torch.maximum),
    binary("minimum", ops.minimum, torch.minimum),
    binary(
        "polar",
        lambda x, y: torch.view_as_real(ops.polar(x, y)),
        lambda x, y: torch.view_as_real(torch.polar(x, y)),
        mapped(XY, Tensor.abs),
    ),
    binary("pow tensor tensor", ops.pow_tensor_tensor, torch.pow, mapped(XY, lambda x: x.abs() + 0.1)),
    binary("eq", ops.eq, torch.eq, integers(0, 3, torch.int32, x=SHAPE, y=SHAPE)),
    binary("ne", ops.ne, torch.ne, integers(0, 3, torch.int32, x=SHAPE, y=SHAPE)),
    binary("lt", ops.lt, torch.lt),
    binary("le", ops.le, torch.le),
    binary("gt", ops.gt, torch.gt),
    binary("ge", ops.ge, torch.ge),
    binary("isclose", ops.isclose, torch.isclose, mapped(XY, lambda x: x.round())),
    binary("logical_and", ops.logical_and, torch.logical_and, BOOLS),
    binary("logical_or", ops.logical_or, torch.logical_or, BOOLS),
    binary("logical_xor", ops.logical_xor, torch.logical_xor, BOOLS),
    binary("bitwise_and", ops.bitwise_and_tensor, torch.bitwise_and, INTS),
    binary("bitwise_or", ops.bitwise_or_tensor, torch.bitwise_or, INTS),
    binary(
        "bitwise_left_shift", bitwise_left_shift_kernel, torch.bitwise_left_shift, integers(0, 15, torch.int32, x=SHAPE, y=SHAPE)
    ),
    binary(
        "bitwise_right_shift",
        bitwise_right_shift_kernel,
        torch.bitwise_right_shift,
        integers(0, 15, torch.int32, x=SHAPE, y=SHAPE),
    ),
    binary("lerp", lambda x, y: ops.lerp_scalar(x, y, 0.3), lambda x, y: torch.lerp(x, y, 0.3)),
]

XYZ = normal(x=SHAPE, y=SHAPE, z=SHAPE)
MORE = [
    forward("addcmul", XYZ, lambda v: ops.addcmul(v["x"], v["y"], v["z"], value=0.7), lambda v: v["x"] + 0.7 * v["y"] * v["z"]),
    forward(
        "addcdiv",
        mapped(XYZ, lambda x: x.abs() + 0.5),
        lambda v: ops.addcdiv(v["x"], v["y"], v["z"], value=0.7),
        lambda v: v["x"] + 0.7 * v["y"] / v["z"],
    ),
    forward("lerp tensor", XYZ, lambda v: ops.lerp_tensor(v["x"], v["y"], v["z"]), lambda v: torch.lerp(v["x"], v["y"], v["z"])),
    forward(
        "where",
        together(XY, integers(0, 2, torch.bool, c=SHAPE)),
        lambda v: where_inner(v["c"], v["x"], v["y"]),
        lambda v: torch.where(v["c"], v["x"], v["y"]),
    ),
    forward(
        "masked_fill",
        together(X, integers(0, 2, torch.bool, m=SHAPE)),
        lambda v: ops.masked_fill(v["x"], v["m"], 3.5),
        lambda v: v["x"].masked_fill(v["m"], 3.5),
    ),
]

BACKWARD = [
    backward(
        "sigmoid",
        GRAD,
        lambda v: {"out": (y := ops.sigmoid(v["x"])), "dx": ops.sigmoid_backward(v["grad"], y)},
        lambda v: torch.sigmoid(v["x"]),
        ["x"],
    ),
    backward(
        "tanh",
        GRAD,
        lambda v: {"out": (y := ops.tanh(v["x"])), "dx": ops.tanh_backward(v["grad"], y)},
        lambda v: torch.tanh(v["x"]),
        ["x"],
    ),
    backward(
        "silu",
        GRAD,
        lambda v: {"out": ops.silu(v["x"]), "dx": ops.silu_backward(v["grad"], v["x"])},
        lambda v: F.silu(v["x"]),
        ["x"],
    ),
    backward(
        "silu bf16",
        normal(torch.bfloat16, x=SHAPE, grad=SHAPE),
        lambda v: {"out": ops.silu(v["x"]), "dx": ops.silu_backward(v["grad"], v["x"])},
        lambda v: F.silu(v["x"]),
        ["x"],
    ),
    *(
        backward(
            f"gelu {how}",
            GRAD,
            lambda v, how=how: {
                "out": ops.gelu(v["x"], approximate=how),
                "dx": ops.gelu_backward(v["grad"], v["x"], approximate=how),
            },
            lambda v, how=how: F.gelu(v["x"], approximate=how),
            ["x"],
        )
        for how in ("none", "tanh")
    ),
    backward(
        "elu",
        GRAD,
        lambda v: {
            "out": ops.elu(v["x"], 1.3),
            "dx": ops.elu_backward(v["grad"], 1.3, 1.0, 1.0, False, v["x"]),
        },
        lambda v: F.elu(v["x"], 1.3),
        ["x"],
    ),
    backward(
        "threshold",
        GRAD,
        lambda v: {"out": ops.threshold(v["x"], 0.3, -2.0), "dx": ops.threshold_backward(v["grad"], v["x"], 0.3)},
        lambda v: F.threshold(v["x"], 0.3, -2.0),
        ["x"],
    ),
    backward(
        "glu",
        normal(x=(9, 34), grad=(9, 17)),
        lambda v: {"out": ops.glu(v["x"], -1), "dx": ops.glu_backward(v["grad"], v["x"], -1)},
        lambda v: F.glu(v["x"], -1),
        ["x"],
    ),
    backward(
        "geglu",
        normal(x=(9, 34), grad=(9, 17)),
        lambda v: {"out": fused.geglu(v["x"]), "dx": fused.dgeglu(v["grad"], v["x"])},
        lambda v: F.gelu(v["x"][..., :17], approximate="tanh") * v["x"][..., 17:],
        ["x"],
    ),
    backward(
        "reglu",
        normal(x=(9, 34), grad=(9, 17)),
        lambda v: {"out": fused.reglu(v["x"]), "dx": fused.dreglu(v["grad"], v["x"])},
        lambda v: F.relu(v["x"][..., :17]) * v["x"][..., 17:],
        ["x"],
    ),
]

CASES: list[Case] = [*UNARY, *BINARY, *MORE, *BACKWARD]
