"""Integer arithmetic in every width, signed and unsigned: it wraps, divides as C does, and shifts as PTX does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tests.numbers.common import INTEGERS, apply


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def sub(a, b):
    return a - b


@triton.jit
def mul(a, b):
    return a * b


@triton.jit
def floordiv(a, b):
    return a // b


@triton.jit
def mod(a, b):
    return a % b


@triton.jit
def shl(a, b):
    return a << b


@triton.jit
def shr(a, b):
    return a >> b


@triton.jit
def and_(a, b):
    return a & b


@triton.jit
def or_(a, b):
    return a | b


@triton.jit
def xor(a, b):
    return a ^ b


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b)


@triton.jit
def umulhi(a, b):
    return tl.umulhi(a, b)


@triton.jit
def cdiv(a, b):
    return tl.cdiv(a, b)


@triton.jit
def less(a, b):
    return a < b


@triton.jit
def at_least(a, b):
    return a >= b


@triton.jit
def where(a, b):
    return tl.where(a == b, a, b - a)


@triton.jit
def invert(a):
    return ~a


@triton.jit
def negate(a):
    return -a


@triton.jit
def absolute(a):
    return tl.abs(a)


@triton.jit
def true_divide(a, b):
    return a / b


def bits_of(name: str) -> int:
    return 8 * np.dtype(INTEGERS[name][1]).itemsize


def signed(name: str) -> bool:
    return not name.startswith("u")


def wrap(value: int, name: str) -> int:
    value %= 1 << bits_of(name)
    return value - (1 << bits_of(name)) if signed(name) and value >> (bits_of(name) - 1) else value


def c_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shift_right(a: int, b: int, name: str) -> int:
    """The amount is read as unsigned; from the width on only the sign is left."""
    return a >> min(b % (1 << bits_of(name)), bits_of(name))


RULES: dict[Any, Any] = {
    add: lambda a, b, name: a + b,
    sub: lambda a, b, name: a - b,
    mul: lambda a, b, name: a * b,
    and_: lambda a, b, name: a & b,
    or_: lambda a, b, name: a | b,
    xor: lambda a, b, name: a ^ b,
    maximum: lambda a, b, name: max(a, b),
    minimum: lambda a, b, name: min(a, b),
    floordiv: lambda a, b, name: c_quotient(a, b) if b else None,
    mod: lambda a, b, name: a - c_quotient(a, b) * b if b else None,
    shl: lambda a, b, name: a << (b % (1 << bits_of(name))) if b % (1 << bits_of(name)) < bits_of(name) else 0,
    shr: shift_right,
    where: lambda a, b, name: a if a == b else b - a,
    umulhi: lambda a, b, name: (a % 2 ** bits_of(name)) * (b % 2 ** bits_of(name)) >> bits_of(name),
    less: lambda a, b, name: a < b,
    at_least: lambda a, b, name: a >= b,
    # (a + (b - 1)) // b with every step in the type, as the library function is written
    cdiv: lambda a, b, name: c_quotient(wrap(a + wrap(b - 1, name), name), b) if b else None,
}
WITHOUT_NARROW = (umulhi,)


def edges(name: str) -> list[int]:
    bits = bits_of(name)
    small = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127]
    return [
        wrap(v, name) for v in [*small, -1, -2, -7, -100, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2 ** (bits - 1) + 1, 2**bits // 3]
    ]


def check(operation: Any, a: list[int], b: list[int], name: str) -> None:
    dtype = INTEGERS[name][1]
    rule = RULES[operation]
    expected = [rule(x, y, name) for x, y in zip(a, b)]
    out = "int1" if operation in (less, at_least) else name
    got = apply(operation, [(np.array(a, dtype), name), (np.array(b, dtype), name)], out).tolist()
    bad = [
        (x, y, g, e)
        for x, y, g, e in zip(a, b, got, expected)
        if e is not None and g != (bool(e) if out == "int1" else wrap(e, name))
    ]
    assert not bad, f"{operation.__name__} {name}: (a, b, got, expected) {bad[:5]}"


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("operation", RULES, ids=lambda f: f.__name__)
def test_edges(operation: Any, name: str) -> None:
    if operation in WITHOUT_NARROW and bits_of(name) < 32:
        pytest.skip("Triton has it for 32 and 64 bits only")
    values = edges(name)
    check(operation, [a for a in values for _ in values], values * len(values), name)


@settings(max_examples=8, deadline=None)
@given(st.data(), st.sampled_from(sorted(INTEGERS)))
def test_any_numbers(data: st.DataObject, name: str) -> None:
    info = np.iinfo(INTEGERS[name][1])
    number = st.integers(int(info.min), int(info.max))
    numbers = data.draw(st.lists(st.tuples(number, number), min_size=1, max_size=20))
    for operation in RULES:
        if not (operation in WITHOUT_NARROW and bits_of(name) < 32):
            check(operation, [n[0] for n in numbers], [n[1] for n in numbers], name)


@pytest.mark.parametrize("name", INTEGERS)
def test_division_by_zero_gives_some_value(name: str) -> None:
    """The value is not defined on a GPU either; the other lanes are right, and nothing is raised."""
    a, b = np.array([7, 7, 8], INTEGERS[name][1]), np.array([0, 2, 2], INTEGERS[name][1])
    assert apply(floordiv, [(a, name), (b, name)], name).tolist()[1:] == [3, 4]
    assert apply(mod, [(a, name), (b, name)], name).tolist()[1:] == [1, 0]


@pytest.mark.parametrize("name", INTEGERS)
def test_operations_of_one_operand(name: str) -> None:
    values = edges(name)
    data = [(np.array(values, INTEGERS[name][1]), name)]
    assert apply(invert, data, name).tolist() == [wrap(-1 - v, name) for v in values]  # of uint8: 255 - x
    assert apply(negate, data, name).tolist() == [wrap(-v, name) for v in values]
    assert apply(absolute, data, name).tolist() == [wrap(abs(v), name) for v in values]


@pytest.mark.parametrize("name", INTEGERS)
def test_true_division_is_in_fp32(name: str) -> None:
    a, b = (np.array(v, INTEGERS[name][1]) for v in ([7, 100, 1, 3], [2, 3, 3, 1]))
    got = apply(true_divide, [(a, name), (b, name)], "fp32")
    assert got.tolist() == (a.astype(np.float32) / b.astype(np.float32)).tolist()


@triton.jit
def run_time_and_constexpr(out_ptr, a, A: tl.constexpr):
    tl.store(out_ptr, a // 2)
    tl.store(out_ptr + 1, A // 2)
    tl.store(out_ptr + 2, a % 2)
    tl.store(out_ptr + 3, A % 2)


def test_division_at_run_time_and_as_constexpr() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    with tritontrace.session(target="cuda:90"):
        run_time_and_constexpr[(1,)](out, -7, -7)
    assert out.tolist() == [-3, -4, -1, 1]  # C's, then Python's


# -- one bit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (add, [0, 1, 1, 0]),  # it wraps: True + True is False
        (sub, [0, 1, 1, 0]),
        (mul, [0, 0, 0, 1]),
        (and_, [0, 0, 0, 1]),
        (or_, [0, 1, 1, 1]),
        (xor, [0, 1, 1, 0]),
        (maximum, [0, 1, 1, 1]),
        (minimum, [0, 0, 0, 1]),
        (less, [0, 1, 0, 0]),
        (at_least, [1, 0, 1, 1]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_int1(operation: Any, expected: list[int]) -> None:
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert apply(operation, [(a, "int1"), (b, "int1")], "int1").tolist() == [bool(v) for v in expected]
    assert apply(invert, [(a, "int1")], "int1").tolist() == [True, True, False, False]
    assert apply(negate, [(a, "int1")], "int1").tolist() == [False, False, True, True]


# -- sums ---------------------------------------------------------------------------------------------------------------


@triton.jit
def fold_rows(x_ptr, out_ptr, FOLD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(out_ptr + rows, FOLD(x))


@triton.jit
def sum_(x):
    return tl.sum(x, 1)


@triton.jit
def xor_sum(x):
    return tl.xor_sum(x, 1)


@triton.jit
def largest(x):
    return tl.max(x, 1)


@triton.jit
def smallest(x):
    return tl.min(x, 1)


@triton.jit
def or_all(x):
    return tl.reduce_or(x, 1)


def fold(operation: Any, x: torch.Tensor, out: torch.dtype) -> torch.Tensor:
    result = torch.zeros(x.shape[0], dtype=out)
    with tritontrace.session(target="cuda:90"):
        fold_rows[(1,)](x, result, FOLD=operation, ROWS=x.shape[0], COLUMNS=x.shape[1])
    return result


def test_integer_sums_wrap() -> None:
    x = torch.full((2, 128), 2**30, dtype=torch.int32)
    x[1, 0] = 5
    assert fold(sum_, x, torch.int32).tolist() == [0, 5 - 2**30]
    assert fold(sum_, torch.full((1, 4), 2**62, dtype=torch.int64), torch.int64).tolist() == [0]


@pytest.mark.parametrize("name", INTEGERS)
def test_reductions(name: str) -> None:
    """Sums of 8 and 16 bits are made in 32 bits, as Triton's library has it."""
    dtype = INTEGERS[name][1]
    values = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (8, 16), dtype, endpoint=True)
    x = torch.from_numpy(values.astype(f"i{values.itemsize}")).view(INTEGERS[name][2])
    wide = INTEGERS[("int32" if signed(name) else "uint32") if bits_of(name) < 32 else name]
    expected = [wrap(sum(int(v) for v in row), "int32" if bits_of(name) < 32 else name) for row in values]
    got = [
        wrap(int(v), "int32" if bits_of(name) < 32 else name)
        for v in fold(sum_, x, wide[2]).view(torch.int8).numpy().view(wide[1])
    ]
    assert got == expected
    for operation, reference in (
        (largest, np.max),
        (smallest, np.min),
        (or_all, np.bitwise_or.reduce),
        (xor_sum, np.bitwise_xor.reduce),
    ):
        got = fold(operation, x, INTEGERS[name][2]).view(torch.int8).numpy().view(dtype)
        assert got.tolist() == reference(values, axis=1).tolist(), operation.__name__


def test_int1_sums_count() -> None:
    """A sum of booleans is made in int32 by Triton's library, so that it counts."""
    x = torch.tensor([[True, True, False, True], [False] * 4])
    assert fold(sum_, x, torch.int32).tolist() == [3, 0]
    assert fold(largest, x, torch.int32).tolist() == [1, 0]


# -- packed 4-bit floats ------------------------------------------------------------------------------------------------


@triton.jit
def unpack_e2m1(x_ptr, out_ptr, N: tl.constexpr):
    packed = tl.load(x_ptr + tl.arange(0, N))
    codes = tl.interleave(packed & 15, packed >> 4)
    sign, exponent, fraction = codes >> 3, (codes >> 1) & 3, (codes & 1).to(tl.float32)
    size = tl.where(exponent == 0, fraction * 0.5, (1 + fraction * 0.5) * tl.exp2(exponent.to(tl.float32) - 1))
    tl.store(out_ptr + tl.arange(0, 2 * N), tl.where(sign != 0, size * -1.0, size))


def test_fp4_unpacked_by_hand() -> None:
    """All 256 bytes of two e2m1 numbers, the low nibble first."""
    import ml_dtypes

    out = torch.zeros(512)
    with tritontrace.session(target="cuda:90"):
        unpack_e2m1[(1,)](torch.arange(256, dtype=torch.int32).to(torch.uint8), out, N=256)
    codes = np.arange(256, dtype=np.uint8)
    nibbles = np.stack([codes & 15, codes >> 4], axis=1).ravel()
    expected = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert (out.numpy().view(np.uint32) == expected.view(np.uint32)).all()
