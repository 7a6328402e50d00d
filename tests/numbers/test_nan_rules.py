"""NaN, ties and signed zeros in reductions and scans, as the compiled combine functions have them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tests.numbers.common import FORMATS, WIDE, array, same, tensor
from tests.numbers.test_float_ops import larger


@triton.jit
def rows_kernel(x_ptr, out_ptr, OP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SCAN: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    x = OP(tl.load(x_ptr + at))
    if SCAN:
        tl.store(out_ptr + at, x)
    else:
        tl.store(out_ptr + rows, x)


def run(operation: Any, values: Any, name: str, out: str | None = None, scan: bool = False) -> Any:
    rows, columns = values.shape
    out_name = out or name
    kind = {"int32": torch.int32}.get(out_name) or FORMATS[out_name][2]
    result = torch.zeros(values.size if scan else rows, dtype=kind)
    with tritontrace.session(target="cuda:90"):
        rows_kernel[(1,)](tensor(values, name), result, OP=operation, ROWS=rows, COLUMNS=columns, SCAN=scan)
    got = result.numpy() if out_name == "int32" else array(result, out_name)
    return got.reshape(values.shape) if scan else got


@triton.jit
def max_(x):
    return tl.max(x, 1)


@triton.jit
def min_(x):
    return tl.min(x, 1)


@triton.jit
def sum_(x):
    return tl.sum(x, 1)


@triton.jit
def argmax_left(x):
    return tl.argmax(x, 1)


@triton.jit
def argmax_any(x):
    return tl.argmax(x, 1, tie_break_left=False)


@triton.jit
def argmin_left(x):
    return tl.argmin(x, 1)


@triton.jit
def argmin_any(x):
    return tl.argmin(x, 1, tie_break_left=False)


@triton.jit
def maximum_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum_number(a, b):
    return tl.maximum(a, b)


@triton.jit
def reduce_max_nan(x):
    return tl.reduce(x, 1, maximum_nan)


@triton.jit
def reduce_min_nan(x):
    return tl.reduce(x, 1, minimum_nan)


@triton.jit
def scan_max(x):
    return tl.associative_scan(x, 1, maximum_number)


@triton.jit
def scan_max_nan(x):
    return tl.associative_scan(x, 1, maximum_nan)


@triton.jit
def scan_max_back(x):
    return tl.associative_scan(x, 1, maximum_number, reverse=True)


@triton.jit
def cumsum(x):
    return tl.cumsum(x, 1)


NAN = math.nan
ROWS = [list(p) for p in itertools.product([NAN, 0.0, -0.0, 2.0], repeat=4)]


@pytest.mark.parametrize("name", WIDE)
def test_max_and_min_of_every_row(name: str) -> None:
    """Every row of four out of NaN, both zeros and 2. NaN only if all are; with propagation if any is."""
    values = np.array(ROWS).astype(FORMATS[name][1])
    operations = [(max_, False, 1), (min_, False, -1)]
    if name != "bf16":  # Triton widens bf16 in `tl.maximum`, which a combine function may not
        operations += [(reduce_max_nan, True, 1), (reduce_min_nan, True, -1)]
    for operation, propagate, sign in operations:
        expected = []
        for row in values.astype(np.float64):
            best = sign * row[0]
            for value in row[1:]:
                best = larger(best, sign * value, propagate)
            expected.append(sign * best)
        same(run(operation, values, name), np.array(expected).astype(FORMATS[name][1]), operation.__name__)


@pytest.mark.parametrize("name", ["fp32", "fp16"])
def test_scans_of_every_row(name: str) -> None:
    values = np.array(ROWS).astype(FORMATS[name][1])
    for operation, propagate, back in ((scan_max, False, False), (scan_max_nan, True, False), (scan_max_back, False, True)):
        expected = []
        for row in values.astype(np.float64):
            ordered = row[::-1] if back else row
            found = list(itertools.accumulate(ordered.tolist(), lambda x, y: larger(x, y, propagate)))
            expected.append(found[::-1] if back else found)
        same(run(operation, values, name, scan=True).ravel(), np.array(expected).ravel().astype(FORMATS[name][1]))


@pytest.mark.parametrize("name", WIDE)
def test_a_nan_makes_every_sum_nan(name: str) -> None:
    values = np.ones((4, 16)).astype(FORMATS[name][1])
    values[1, 3] = NAN
    values[2, :2] = [np.inf, -np.inf]
    got = run(sum_, values, name).astype(np.float64)
    assert got[[0, 3]].tolist() == [16, 16]
    assert np.isnan(got[1:3]).all()
    scanned = run(cumsum, values, name, scan=True).astype(np.float64)
    assert scanned[1, :3].tolist() == [1, 2, 3]
    assert np.isnan(scanned[1, 3:]).all()


@pytest.mark.parametrize("name", WIDE)
def test_a_sum_of_negative_zeros_is_one(name: str) -> None:
    values = np.array([[-0.0] * 8, [-0.0] * 7 + [0.0]]).astype(FORMATS[name][1])
    assert np.signbit(run(sum_, values, name).astype(np.float64)).tolist() == [True, False]


def combined(row: list[float], sign: int, tie_left: bool) -> int:
    """Triton's combine function over neighbours, level by level: the left one wins if it is larger, or equal and told to."""
    items = [(sign * v, i) for i, v in enumerate(row)]
    while len(items) > 1:
        fresh = []
        for (v1, i1), (v2, i2) in zip(items[::2], items[1::2]):
            wins = v1 > v2 or (tie_left and v1 == v2 and i1 < i2)
            fresh.append((v1, i1) if wins else (v2, i2))
        items = fresh
    return items[0][1]


ARG = [(argmax_left, 1, True), (argmax_any, 1, False), (argmin_left, -1, True), (argmin_any, -1, False)]


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize(("operation", "sign", "tie_left"), ARG, ids=lambda v: getattr(v, "__name__", ""))
def test_arguments_of_extremes(operation: Any, sign: int, tie_left: bool, name: str) -> None:
    """No comparison with a NaN is true, so the later lane wins: [nan, 6, 8] has its maximum at 2, all NaN at the end."""
    values = np.array(ROWS).astype(FORMATS[name][1])
    expected = [combined(row, sign, tie_left) for row in values.astype(np.float64).tolist()]
    assert run(operation, values, name, "int32").tolist() == expected


def test_argmax_by_hand() -> None:
    values = np.float32([[NAN, 6, 8, -np.inf], [NAN] * 4, [1, 3, 3, 2], [5, 5, 5, 5]])
    assert run(argmax_left, values, "fp32", "int32").tolist() == [2, 3, 1, 0]
    assert run(argmax_any, values, "fp32", "int32").tolist()[:2] == [2, 3]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from([NAN, 1.0, 2.0, 3.0, -np.inf, np.inf]), min_size=8, max_size=8), min_size=4, max_size=4))
def test_arguments_of_extremes_of_any_row(rows: list[list[float]]) -> None:
    values = np.array(rows, np.float32)
    for operation, sign, tie_left in ARG:
        assert run(operation, values, "fp32", "int32").tolist() == [combined(row, sign, tie_left) for row in values.tolist()]


def test_bf16_sums_round_at_every_step() -> None:
    """[1, nan, 2, 3] is NaN; 256 ones and a 256: each addition is a bf16 one, so the order decides, and no step is exact."""
    bf16 = FORMATS["bf16"][1]
    assert np.isnan(run(sum_, np.array([[1, NAN, 2, 3]]).astype(bf16), "bf16").astype(float)).all()
    assert run(sum_, np.full((1, 128), 1 / 3).astype(bf16), "bf16").astype(float).tolist() == [42.75]  # halves are exact to add
