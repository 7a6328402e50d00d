"""Numerics: the operation that makes a NaN or an infinity, integers that wrap, precision against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tritontrace
from tritontrace import Numerics


@triton.jit
def divide(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    y = tl.load(y_ptr + i, mask=mask, other=0.0)
    r = x / y
    tl.store(out_ptr + i, r, mask=mask)


@triton.jit
def helper(x):
    return tl.exp(x)


@triton.jit
def through_helper(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    e = helper(x)
    s = tl.sum(e, 0)
    tl.store(out_ptr + i, e / s)


@triton.jit
def early(x_ptr, out_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    x = tl.load(x_ptr + pid)
    if x < 0:
        y = tl.sqrt(x)
    else:
        y = x
    acc = 0.0
    for _ in range(pid):
        acc += y
    tl.store(out_ptr + pid, acc)


@triton.jit
def chosen(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.where(x > 0, tl.log(x), 0.0))


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + i[:, None] * K + k + i[None, :])
        b = tl.load(b_ptr + (k + i[:, None]) * BLOCK + i[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + i[:, None] * BLOCK + i[None, :], acc)


@triton.jit
def narrow(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, (x * 2).to(tl.float16))


@triton.jit
def cancelling(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    mean = tl.sum(x, 0) / n
    square = tl.sum(x * x, 0) / n
    tl.store(out_ptr, square - mean * mean)


@triton.jit
def affine(x_ptr, out_ptr, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x * scale + 1)


@triton.jit
def asserting(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.device_assert(x > 100, "never true")
    tl.store(out_ptr + i, x + 1)


def run(kernel, grid, *args, client=None, **kwargs):
    with tritontrace.session([client or Numerics()]) as session:
        kernel[grid](*args, **kwargs)
    return session


def line_of(kernel, text):
    source = kernel.fn.__code__
    import inspect

    lines, start = inspect.getsourcelines(kernel.fn)
    assert source.co_firstlineno == start
    return start + next(n for n, line in enumerate(lines) if text in line)


def test_a_division_by_zero_is_found_where_it_is_stored() -> None:
    x, y, out = torch.ones(20), torch.ones(20), torch.empty(20)
    y[5] = 0
    (finding,) = run(divide, (2,), x, y, out, 20, BLOCK=16).findings
    assert finding.kind == "non_finite"
    assert finding.location.line == line_of(divide, "r = x / y")
    assert finding.use.line == line_of(divide, "tl.store")
    # the second program's masked-off lanes are 0/0 and are nobody's concern
    assert finding.programs.tolist() == [[0, 0, 0]]
    assert finding.lanes.tolist() == [5]
    assert finding.details["operands"] == "1.0, 0.0" and finding.details["result"] == "inf"
    assert finding.details["first"] is True and finding.tensor == "out_ptr"
    assert torch.isinf(out[5]) and torch.isfinite(out).sum() == 19


def test_without_reaching_the_masked_off_lanes_are_told() -> None:
    x, y, out = torch.ones(20), torch.ones(20), torch.empty(20)
    assert run(divide, (2,), x, y, out, 20, BLOCK=16).findings == []
    (finding,) = run(divide, (2,), x, y, out, 20, client=Numerics(reaching=False), BLOCK=16).findings
    assert finding.programs.tolist() == [[1, 0, 0]] and finding.lanes.tolist() == list(range(4, 16))
    assert finding.details["result"] == "nan"


def test_values_that_came_non_finite_from_memory_are_no_finding() -> None:
    x, y, out = torch.full((16,), float("nan")), torch.ones(16), torch.empty(16)
    x[3] = float("inf")
    assert run(divide, (1,), x, y, out, 16, BLOCK=16).findings == []


def test_the_first_operation_is_named_through_a_helper_and_a_reduction() -> None:
    x, out = torch.zeros(16), torch.empty(16)
    x[7] = 1000.0
    (finding,) = run(through_helper, (1,), x, out, BLOCK=16).findings
    # exp makes the infinity; inf / inf only hands it on
    assert finding.location.line == line_of(helper, "tl.exp")
    assert [frame.line for frame in finding.call_stack] == [line_of(through_helper, "helper(x)")]
    assert "1000.0" in finding.details["operands"]


def test_branches_loops_and_early_returns_are_followed() -> None:
    x, out = torch.tensor([-1.0, 2.0, -3.0, 4.0]), torch.zeros(4)
    (finding,) = run(early, (6,), x, out, 4).findings
    assert finding.location.line == line_of(early, "tl.sqrt")
    # program 0 makes a NaN, too, but its loop does not run: it stores 0
    assert finding.programs.tolist() == [[2, 0, 0]]
    assert np.isnan(out[2].item()) and out[0] == 0


def test_a_selection_that_drops_the_infinity_is_clean() -> None:
    x, out = torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.empty(4)
    assert run(chosen, (1,), x, out, BLOCK=4).findings == []


def test_a_dot_and_a_conversion() -> None:
    a, b, c = torch.ones(16, 32), torch.ones(32, 16), torch.empty(16, 16)
    a[3, 20], b[20, 2] = 1e30, 1e30
    (finding,) = run(matmul, (1,), a, b, c, 32, BLOCK=16).findings
    assert finding.details["operation"] == "dot" and finding.lanes.tolist() == [3 * 16 + 2]
    assert finding.iterations == ((1,),)
    out = torch.empty(4, dtype=torch.float16)
    (finding,) = run(narrow, (1,), torch.tensor([1.0, 40000.0, 2.0, 3.0]), out, BLOCK=4).findings
    assert finding.details["operation"] == "conversion" and finding.lanes.tolist() == [1]


def test_integer_overflow() -> None:
    x = torch.tensor([1, 2, 2**30, 5, 0, 0, 0, -(2**30)], dtype=torch.int32)
    out = torch.empty_like(x)
    (finding,) = run(affine, (2,), x, out, 3, BLOCK=4).findings
    assert finding.kind == "integer_overflow"
    assert finding.programs.tolist() == [[0, 0, 0], [1, 0, 0]] and finding.lanes.tolist() == [2, 3]
    assert finding.details["operands"] == f"{2**30}, 3" and finding.details["result"] == str(3 * 2**30)
    assert finding.location.line == line_of(affine, "x * scale")
    # it wraps as it would, and nobody looks where nobody is asked to
    assert out[2].item() == (3 * 2**30 + 1) - 2**32
    assert run(affine, (2,), x, out, 3, client=Numerics(overflow=False), BLOCK=4).findings == []
    wide = x.to(torch.int64)
    assert run(affine, (2,), wide, torch.empty_like(wide), 3, BLOCK=4).findings == []


def test_unsigned_arithmetic_may_wrap() -> None:
    x = torch.full((4,), 2**32 - 1, dtype=torch.int64).to(torch.uint32)
    assert run(affine, (1,), x, torch.empty_like(x), 3, BLOCK=4).findings == []


def test_the_kernels_own_assertions_are_as_the_launch_says() -> None:
    x, out = torch.zeros(4, dtype=torch.int32), torch.empty(4, dtype=torch.int32)
    run(asserting, (1,), x, out, BLOCK=4)
    assert out.tolist() == [1, 1, 1, 1]
    with pytest.raises(tritontrace.KernelError, match="never true"):
        run(asserting, (1,), x, out, BLOCK=4, debug=True)


def test_the_shadow_run_tells_the_error_of_a_cancellation() -> None:
    x = 1000 + torch.rand(64, generator=torch.Generator().manual_seed(1))
    out = torch.empty(1)
    session = run(cancelling, (1,), x, out, 50, client=Numerics(shadow=True), BLOCK=64)
    (record,) = session.launches[0].records["numerics"]
    exact = x[:50].double().var(unbiased=False).item()
    assert record.reference == pytest.approx(exact, rel=1e-6)
    assert record.value == out.item()
    assert record.max_relative == pytest.approx(abs(out.item() - exact) / exact, rel=1e-4)
    assert record.max_relative > 1e-3 and record.count == 1 and record.tensor == "out_ptr"
    assert "relative error" in session.report()


def test_the_shadow_of_an_exact_kernel_agrees() -> None:
    a, b, c = torch.randint(0, 9, (16, 32)).float(), torch.randint(0, 9, (32, 16)).float(), torch.empty(16, 16)
    session = run(matmul, (1,), a, b, c, 32, client=Numerics(shadow=True), BLOCK=16)
    (record,) = session.launches[0].records["numerics"]
    assert record.max_relative == 0.0 and record.count == 256
    torch.testing.assert_close(c, a @ b)


floats = st.sampled_from([0.0, 1.0, -2.0, 1e30, -1e30, float("inf"), float("nan")])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=40))
def test_division_agrees_with_brute_force(pairs: list[tuple[float, float]]) -> None:
    n = len(pairs)
    x, y = (torch.tensor(column) for column in zip(*pairs))
    out = torch.empty(n)
    findings = run(divide, (triton.cdiv(n, 16),), x, y, out, n, BLOCK=16).findings
    a, b = x.numpy(), y.numpy()
    with np.errstate(all="ignore"):
        q = a / b
    made = (np.isnan(q) & ~np.isnan(a) & ~np.isnan(b)) | (np.isinf(q) & np.isfinite(a) & np.isfinite(b))
    where = np.flatnonzero(made)
    assert [f.programs[:, 0].tolist() for f in findings] == ([sorted({int(i) // 16 for i in where})] if len(where) else [])
    if findings:
        assert findings[0].lanes.tolist() == sorted({int(i) % 16 for i in where})


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8, max_size=8), st.integers(-(2**31), 2**31 - 1))
def test_overflow_agrees_with_brute_force(values: list[int], scale: int) -> None:
    x = torch.tensor(values, dtype=torch.int32)
    findings = run(affine, (1,), x, torch.empty_like(x), scale, BLOCK=8).findings
    wrap = lambda v: (v + 2**31) % 2**32 - 2**31
    products = [v * scale for v in values]
    wanted = {}
    if scale != 1:
        wanted["*"] = [i for i, p in enumerate(products) if p != wrap(p)]
    wanted["+"] = [i for i, p in enumerate(products) if wrap(p) == 2**31 - 1]
    assert {f.details["operation"]: f.lanes.tolist() for f in findings} == {k: v for k, v in wanted.items() if v}


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def folds(x_ptr, out_ptr, BLOCK: tl.constexpr):
    row, lane = tl.arange(0, 2), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row[:, None] * BLOCK + lane[None, :])
    tl.store(out_ptr + row, tl.sum(x, axis=1))
    tl.store(out_ptr + row, tl.reduce(x, 1, times))
    tl.store(out_ptr + row[:, None] * BLOCK + lane[None, :], tl.cumsum(x, axis=1))


def test_overflow_inside_what_a_reduction_combines_with() -> None:
    x = torch.tensor([[1, 2, 3, 4], [2**30, 2**30, 1, 0]], dtype=torch.int32)
    sum_, product, scanned = run(folds, (1,), x, torch.empty_like(x), BLOCK=4).findings
    lines = [finding.call_stack[0].line for finding in (sum_, product, scanned)]
    assert lines == [line_of(folds, text) for text in ("tl.sum", "tl.reduce", "tl.cumsum")]
    assert sum_.details["operands"] == f"{2**30}, {2**30}" and sum_.details["result"] == str(2**31)
    assert product.location.line == line_of(times, "a * b") and product.details["result"] == str(2**60)


@triton.jit
def beyond_the_edge(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    out = tl.make_tensor_descriptor(out_ptr, [n], [1], [BLOCK])
    out.atomic_add([0], 1 / tl.load(x_ptr + tl.arange(0, BLOCK)))


def test_what_a_descriptor_leaves_out_is_not_stored() -> None:
    x = torch.tensor([1.0, 2.0, 0.0, 4.0, 1.0, 1.0, 1.0, 1.0])
    assert run(beyond_the_edge, (1,), x, torch.zeros(4), 2, BLOCK=8).findings == []
    (finding,) = run(beyond_the_edge, (1,), x, torch.zeros(4), 4, BLOCK=8).findings
    assert finding.lanes.tolist() == [2]
    session = run(beyond_the_edge, (1,), x, torch.zeros(4), 2, client=Numerics(shadow=True), BLOCK=8)
    (record,) = session.launches[0].records["numerics"]
    assert (record.count, record.disagreeing) == (2, 0)


@triton.jit
def quotients_to_rows(x_ptr, out_ptr, rows, TILE: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, TILE)
    x = tl.load(x_ptr + i[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    out = tl.make_tensor_descriptor(out_ptr, [rows, COLUMNS], [COLUMNS, 1], [1, COLUMNS])
    out.scatter(1 / x, i, 0)


def test_rows_that_a_scatter_drops_are_not_stored() -> None:
    x, out = torch.ones(16, 8), torch.zeros(16, 8)
    x[12] = 0
    assert run(quotients_to_rows, (1,), x, out, 12, TILE=16, COLUMNS=8).findings == []
    found = run(quotients_to_rows, (1,), x, out, 13, TILE=16, COLUMNS=8).findings
    assert [finding.kind for finding in found] == ["non_finite"]
