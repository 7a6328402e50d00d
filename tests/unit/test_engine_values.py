"""Lazy tiles behave as the arrays that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritontrace.engines.ir import integers
from tritontrace.engines.ir.values import Compare, Mask, Separable, dense, take_programs

P, M, N = 3, 4, 5
SHAPES = [(1, 1, 1), (P, 1, 1), (1, M, 1), (1, 1, N), (P, M, 1), (P, 1, N)]


@st.composite
def terms(draw: st.DrawFn, bound: int = 2**31 - 1) -> np.ndarray:
    shape = draw(st.sampled_from(SHAPES))
    size = int(np.prod(shape))
    values = draw(st.lists(st.integers(-bound - 1, bound), min_size=size, max_size=size))
    return np.array(values, np.int64).astype(np.int32).reshape(shape)


@st.composite
def expressions(draw: st.DrawFn) -> tuple[object, np.ndarray]:
    """A tile built by the lazy operations, and the same built by numpy."""
    bound = draw(st.sampled_from([7, 1000, 2**31 - 1]))
    lazy: object = draw(terms(bound))
    plain = dense(lazy)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["add", "sub", "scale"]))
        if kind == "scale":
            factor = np.array([[[draw(st.integers(-9, 9))]]], np.int32)
            lazy, plain = integers.imul(lazy, factor, 32), plain * factor
        else:
            other = draw(terms(bound))
            if kind == "add":
                lazy, plain = integers.iadd(lazy, other, 32), plain + other
            else:
                lazy, plain = integers.isub(lazy, other, 32), plain - other
    return lazy, plain


def full(value: object) -> np.ndarray:
    return np.broadcast_to(dense(value), (P, M, N))


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_sums_wrap_as_int32(pair: tuple[object, np.ndarray]) -> None:
    lazy, plain = pair
    assert dense(lazy).dtype == np.int32
    assert np.array_equal(full(lazy), np.broadcast_to(plain, (P, M, N)))


@settings(max_examples=300, deadline=None)
@given(expressions(), expressions(), st.integers(0, 5))
def test_comparisons(a: tuple[object, np.ndarray], b: tuple[object, np.ndarray], predicate: int) -> None:
    ufunc = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal][predicate]
    expected = np.broadcast_to(ufunc(a[1], b[1]), (P, M, N))
    got = integers.compare(a[0], b[0], predicate)
    if isinstance(got, Mask):
        assert got.all() == expected.all()
        assert got.none() == (not expected.any())
    assert np.array_equal(full(got), expected)
    both = integers.land(got, integers.compare(b[0], a[0], 2))
    assert np.array_equal(full(both), expected & np.broadcast_to(b[1] < a[1], (P, M, N)))


@settings(max_examples=300, deadline=None)
@given(expressions(), st.integers(0, 2**40), st.sampled_from([1, 2, 4, 8]))
def test_addresses_and_bounds(pair: tuple[object, np.ndarray], base: int, size: int) -> None:
    lazy, plain = pair
    pointer = np.array([[[base]]], np.int64)
    address = integers.addptr(pointer, lazy, size)
    expected = np.broadcast_to(base + plain.astype(np.int64) * size, (P, M, N))
    assert np.array_equal(full(address), expected)
    if isinstance(address, Separable):
        low, high = address.minmax()
        assert np.array_equal(np.broadcast_to(low, (P,)), expected.min(axis=(1, 2)))
        assert np.array_equal(np.broadcast_to(high, (P,)), expected.max(axis=(1, 2)))


@settings(max_examples=200, deadline=None)
@given(expressions(), st.lists(st.integers(0, P - 1), min_size=1, max_size=P, unique=True))
def test_shape_changes_and_program_selection(pair: tuple[object, np.ndarray], rows: list[int]) -> None:
    lazy, plain = pair
    whole = np.broadcast_to(plain, (P, M, N))
    index = np.array(sorted(rows))
    assert np.array_equal(np.broadcast_to(dense(take_programs(lazy, index)), (len(index), M, N)), whole[index])
    moved = integers.transpose(lazy, (1, 0))
    assert np.array_equal(np.broadcast_to(dense(moved), (P, N, M)), whole.transpose(0, 2, 1))
    deeper = integers.expand_dims(lazy, 1)
    assert np.array_equal(np.broadcast_to(dense(deeper), (P, M, 1, N)), whole[:, :, None])
    flat = integers.reshape(lazy, (M, N), (M * N,))
    assert np.array_equal(np.broadcast_to(dense(flat), (P, M * N)), whole.reshape(P, -1))
    wide = integers.sext(lazy, 64)
    assert dense(wide).dtype == np.int64
    assert np.array_equal(full(wide), whole)


def test_a_sum_of_two_axes_is_not_built() -> None:
    rows = np.arange(M, dtype=np.int32).reshape(1, M, 1)
    columns = np.arange(N, dtype=np.int32).reshape(1, 1, N)
    assert isinstance(integers.iadd(rows, columns, 32), Separable)
    assert isinstance(integers.addptr(np.array([[[64]]], np.int64), integers.iadd(rows, columns, 32), 4), Separable)


@pytest.mark.parametrize("predicate", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_decided_comparisons_agree_with_their_bits(predicate: str) -> None:
    ufunc = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }[predicate]
    for low in range(-3, 3):
        for high in range(low, 3):
            tile = integers.iadd(np.array([[[low]]], np.int32), np.array([[[0], [high - low]]], np.int32), 32)
            difference = tile if isinstance(tile, Separable) else Separable(low, None, (None, None), 64)
            compare = Compare(difference, predicate)
            always, never = compare.decided()
            bits = ufunc(dense(difference), 0)
            assert not (always and not bits.all())
            assert not (never and bits.any())
