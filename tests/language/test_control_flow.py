"""Helpers, loops, branches, tuples and aggregates, as Python has them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

import tritontrace
from tests.refusals import refusal
from tritontrace.kernels import compat


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []


def launched(kernel: Any, size: int, *args: Any, programs: int = 1, **kwargs: Any) -> list[Any]:
    out = torch.full((size,), -99, dtype=torch.int32)
    kernel[(programs,)](out, *args, **kwargs)
    return out.tolist()


# -- recursion -----------------------------------------------------------------------------------------------------------


@triton.jit
def factorial(n):
    if n <= 1:
        result = 1
    else:
        result = n * factorial(n - 1)
    return result


@triton.jit
def even(n):
    if n == 0:
        result = 1
    else:
        result = odd(n - 1)
    return result


@triton.jit
def odd(n):
    if n == 0:
        result = 0
    else:
        result = even(n - 1)
    return result


@triton.jit
def direct(o_ptr, n):
    tl.store(o_ptr, factorial(n))


@triton.jit
def mutual(o_ptr, n):
    tl.store(o_ptr, even(n))


@triton.jit
def unrolled(n: tl.constexpr):
    if n <= 1:
        result: tl.constexpr = 1
    else:
        result: tl.constexpr = n * unrolled(n - 1)
    return result


@triton.jit
def at_compile_time(o_ptr, N: tl.constexpr):
    tl.store(o_ptr, unrolled(N))


@pytest.mark.parametrize("kernel", [direct, mutual])
def test_recursion_is_refused_and_says_why(kernel: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(CompilationError, match=r"is recursive.*no recursion") as caught:
        kernel[(1,)](out, 5)
    assert "- 1)" in str(caught.value)
    assert out.item() == 0


def test_recursion_over_constants_is_plain_code() -> None:
    assert launched(at_compile_time, 1, N=5) == [120]


# -- helpers -------------------------------------------------------------------------------------------------------------


@triton.jit(noinline=True)
def not_inlined(x, n):
    if n > 2:
        return x * 10
    for i in range(n):
        x += i
    if x > 100:
        return x
    return x - 1


@triton.jit
def inlined(x, n):
    if n > 2:
        return x * 10
    return not_inlined(x, n) + 1


@triton.jit
def calls(o_ptr):
    p = tl.program_id(0)
    tl.store(o_ptr + 2 * p, not_inlined(p + 99, p))
    tl.store(o_ptr + 2 * p + 1, inlined(p, p % 4))


def python_not_inlined(x: int, n: int) -> int:
    if n > 2:
        return x * 10
    x += sum(range(n))
    return x if x > 100 else x - 1


def test_helpers_with_early_returns() -> None:
    expected = []
    for p in range(6):
        inner = p * 10 if p % 4 > 2 else python_not_inlined(p, p % 4) + 1
        expected += [python_not_inlined(p + 99, p), inner]
    assert launched(calls, 12, programs=6) == expected


@triton.jit
def several(x, y):
    return x + y, x - y, (x * y, 7)


@triton.jit
def unpacking(o_ptr, a, b):
    total, difference, (product, seven) = several(a, b)
    tl.store(o_ptr + 0, total)
    tl.store(o_ptr + 1, difference)
    tl.store(o_ptr + 2, product + seven)


def test_helpers_that_return_several_values() -> None:
    assert launched(unpacking, 3, 9, 4) == [13, 5, 43]


@triton.jit
def doubled(x):
    return 2 * x


@triton.jit
def squared(x):
    return x * x


@triton.jit
def applied(o_ptr, x, F: tl.constexpr, G: tl.constexpr, USE: tl.constexpr = True):
    if USE:
        x = F(G(x))
    tl.store(o_ptr, x)


def test_functions_as_arguments() -> None:
    assert launched(applied, 1, 3, doubled, squared) == [18]
    assert launched(applied, 1, 3, F=squared, G=doubled) == [36]
    assert launched(applied, 1, 3, F=squared, G=doubled, USE=False) == [3]


FUNCTIONS = (doubled, squared)


@triton.jit
def from_a_tuple(o_ptr, x, FUNCTIONS: tl.constexpr):
    for k in tl.static_range(2):
        tl.store(o_ptr + k, FUNCTIONS[k](x))


def test_functions_in_a_tuple() -> None:
    assert launched(from_a_tuple, 2, 5, FUNCTIONS) == [10, 25]


# -- loops ---------------------------------------------------------------------------------------------------------------


@triton.jit
def loops(o_ptr, n):
    p = tl.program_id(0)
    count = 0
    x = p + 1
    while x != 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        count += 1
    tl.store(o_ptr + p, count)
    for i in range(p, n, 2):
        j = i
        while j > 0:
            count += j
            j -= 3
    tl.store(o_ptr + n + p, count)


def test_nested_loops_that_end_at_different_times() -> None:
    expected = [[], []]
    for p in range(7):
        count, x = 0, p + 1
        while x != 1:
            x = x // 2 if x % 2 == 0 else 3 * x + 1
            count += 1
        expected[0].append(count)
        for i in range(p, 7, 2):
            j = i
            while j > 0:
                count += j
                j -= 3
        expected[1].append(count)
    assert launched(loops, 14, 7, programs=7) == expected[0] + expected[1]


@triton.jit
def returning(o_ptr, n):
    p = tl.program_id(0)
    if p >= n:
        return
    tl.store(o_ptr + p, p)
    if p % 2 == 0:
        tl.store(o_ptr + p, 10 * p)
        return
    if p == 3:
        tl.store(o_ptr + p, 33)


def test_early_returns() -> None:
    assert launched(returning, 8, 5, programs=8) == [0, 1, 20, 33, 40, -99, -99, -99]


@triton.jit
def conditions(o_ptr, a, b, C: tl.constexpr):
    x = a if a > b else b
    tl.store(o_ptr + 0, x)
    if a > b and b > 0:
        tl.store(o_ptr + 1, 1)
    elif a > b or b == 2:
        tl.store(o_ptr + 1, 2)
    else:
        tl.store(o_ptr + 1, 3)
    tl.store(o_ptr + 2, 1 if C == 1 else 2)
    tl.store(o_ptr + 3, (a < b) | (not a == b))
    if C is None:
        tl.store(o_ptr + 4, 5)
    tl.store(o_ptr + 5, 1 if (a > 0) & (a < b) else 0)


@pytest.mark.parametrize(("a", "b", "c"), [(3, 1, 1), (3, -1, None), (1, 2, 1), (0, 9, 4), (4, 4, None)])
def test_conditions(a: int, b: int, c: int | None) -> None:
    second = 1 if a > b and b > 0 else 2 if a > b or b == 2 else 3
    wanted = [max(a, b), second, 1 if c == 1 else 2, int(a != b), 5 if c is None else -99, int(0 < a < b)]
    assert launched(conditions, 6, a, b, C=c) == wanted


# -- tuples and aggregates -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


@triton.jit
def swapped(pair):
    return Pair(pair.right, pair.left)


@triton.jit
def named(o_ptr, pair, n):
    for _ in range(n):
        pair = swapped(pair)
    tl.store(o_ptr + 0, pair.left)
    tl.store(o_ptr + 1, pair.right)
    tl.store(o_ptr + 2, pair[0] + len(pair))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_named_tuples_as_arguments_and_in_loops(n: int) -> None:
    left, right = (5, 8) if n % 2 == 0 else (8, 5)
    assert launched(named, 3, Pair(5, 8), n) == [left, right, left + 2]


@triton.jit
def nested(o_ptr, values, K: tl.constexpr):
    total = 0
    for k in tl.static_range(len(values)):
        total += values[k] * (k + 1)
    tl.store(o_ptr + 0, total)
    tl.store(o_ptr + 1, K[0] + K[1][1])
    a = (total, (total + 1, total + 2))
    tl.store(o_ptr + 2, a[1][1])


def test_tuples_of_tuples() -> None:
    assert launched(nested, 3, (1, 2, 3), K=(10, (20, 30))) == [14, 40, 16]


# -- compile time --------------------------------------------------------------------------------------------------------


@triton.constexpr_function
def largest_power(n):
    return 1 << (n.bit_length() - 1)


@triton.jit
def constants(o_ptr, N: tl.constexpr, name: tl.constexpr):
    P: tl.constexpr = largest_power(N)
    i = tl.arange(0, P)
    tl.store(o_ptr, tl.sum(i, 0))
    if name == "square":
        tl.store(o_ptr + 1, P * P)
    elif name == "double":
        tl.store(o_ptr + 1, P * 2)
    tl.static_assert(P <= N, "not larger")
    tl.static_assert(isinstance(P, int))


def test_constant_functions_and_strings() -> None:
    assert launched(constants, 2, N=100, name="square") == [64 * 63 // 2, 4096]
    assert launched(constants, 2, N=100, name="double") == [64 * 63 // 2, 128]


@triton.jit
def failing(o_ptr, N: tl.constexpr):
    tl.static_assert(N > 4, "N must be large")
    tl.store(o_ptr, N)


def test_static_assert_fails_with_its_message() -> None:
    with pytest.raises(refusal(), match="N must be large"):
        launched(failing, 1, N=2)
    assert launched(failing, 1, N=8) == [8]


@triton.jit
def announces_constants(out_ptr, SHAPE: tl.constexpr):
    rows: tl.constexpr
    columns: tl.constexpr
    third: tl.constexpr
    (rows, columns), third = SHAPE
    x = tl.full((rows, columns), third, dtype=tl.float32)
    rows = rows + 1  # announced for the first binding only
    tl.store(out_ptr + tl.arange(0, 4), tl.sum(x, axis=0) + rows)


@pytest.mark.skipif(not compat.SPLITS_CONSTANT_TUPLES, reason="this Triton takes no constant tuple apart")
def test_names_that_are_announced_as_constants() -> None:
    out = torch.zeros(4)
    with tritontrace.session():
        announces_constants[(1,)](out, SHAPE=((2, 4), 3))
    assert out.tolist() == [9.0] * 4


@triton.jit
def repeats_a_list(out_ptr, SHAPE: tl.constexpr):
    rank: tl.constexpr = len(SHAPE)
    x = tl.zeros([1] * rank, tl.float32)
    tl.store(out_ptr + tl.arange(0, 1), tl.reshape(x, [1] * 1) + rank)


def test_a_list_is_repeated_as_often_as_a_constant_says() -> None:
    out = torch.zeros(1)
    with tritontrace.session():
        repeats_a_list[(1,)](out, SHAPE=(2, 4, 8))
    assert out.item() == 3.0
