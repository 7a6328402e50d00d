"""FlagGems: its functions, called as ATen's are, against plain torch in float64. See `flag_gems_setup` for the import."""

from __future__ import annotations

from dataclasses import replace

from tests.libraries import flag_gems_index, flag_gems_linear, flag_gems_pointwise, flag_gems_random, flag_gems_reductions
from tests.libraries.case import Case

_SOFTMAX = [f"{name} {how}" for name in ("softmax", "log_softmax") for how in ("dim -1", "dim 1", "dim -1 float16")]
_CONVOLUTION = ("conv1d", "conv2d", "conv2d strided, dilated", "conv2d grouped", "conv3d", "conv_depthwise2d")
#: All of one kind: masked loads without ``other=`` whose masked lanes Triton leaves undefined, and which count all the same.
#: Today's backends put zeros there, so the results are right.
UNDEFINED = {
    "cumsum outer": "the sum of a block",
    **dict.fromkeys([*_SOFTMAX, "softmax of long rows"], "the backward's sum over a row"),
    **dict.fromkeys(["layer_norm", "layer_norm of long rows", "instance_norm"], "the backward's sums over rows and columns"),
    "batch_norm": "the backward's sums of a channel",
    "weight_norm": "the norm of a row, forward and backward",
    "bmm": "the products over K",
    "baddbmm": "the products over K, forward and backward",
    "vdot": "the sum of a block",
    **dict.fromkeys(_CONVOLUTION, "the products with padding and missing channels"),
    "unique": "the running count behind the last element",
    "unique of 9000": "the count of a block",
}


def annotated(case: Case) -> Case:
    where = UNDEFINED.get(case.name)
    return case if where is None else replace(case, finding=f"undefined lanes of masked loads without `other=` enter {where}")


CASES: list[Case] = [
    annotated(case)
    for module in (flag_gems_pointwise, flag_gems_reductions, flag_gems_linear, flag_gems_index, flag_gems_random)
    for case in module.CASES
]
assert UNDEFINED.keys() <= {case.name for case in CASES}
