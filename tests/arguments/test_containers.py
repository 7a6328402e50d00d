"""Known fault 16: tuples, named tuples and variadic parameters of tensors, numbers, descriptors and functions."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace
from tritontrace.kernels.capabilities import keyword_only_parameters, variadic_kernels

Point = namedtuple("Point", "x y")


class Job(NamedTuple):
    src: Any
    dst: Any
    scale: Any
    bias: Any = None


@triton.jit
def weighted_sum(tensors, weights, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for i in tl.static_range(len(tensors)):
        total += tl.load(tensors[i] + offsets) * weights[i]
    tl.store(out_ptr + offsets, total)


@triton.jit
def scale_all(tensors, N: tl.constexpr):
    offsets = tl.arange(0, N)
    for i in tl.static_range(len(tensors)):
        tl.store(tensors[i] + offsets, tl.load(tensors[i] + offsets) * (i + 2))


@triton.jit
def nested(tree, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    a, (b, (c, k)) = tree
    tl.store(out_ptr + offsets, tl.load(a + offsets) * k + tl.load(b + offsets) - tl.load(c + offsets))


@triton.jit
def named(job, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(job.src + offsets) * job.scale
    if job.bias is not None:
        x += tl.load(job.bias + offsets)
    tl.store(job.dst + offsets, x)


@triton.jit
def length(items, out_ptr):
    tl.store(out_ptr, len(items))


def test_fault_16_tuples_of_tensors_of_several_dtypes(traced: Any) -> None:
    tensors = tuple(
        (torch.arange(8) + i).to(dtype) for i, dtype in enumerate((torch.float32, torch.bfloat16, torch.int8, torch.float64))
    )
    weights = (2, 1, 0.5, 3)  # the 1 is compiled in, the others are not
    out = torch.zeros(8)
    weighted_sum[(1,)](tensors, weights, out, N=8)
    assert torch.equal(out, sum(x.float() * w for x, w in zip(tensors, weights, strict=True)))
    launch = traced.launches[0]
    assert [launch.argument(f"tensors.{i}").type for i in range(4)] == ["*fp32", "*bf16", "*i8", "*fp64"]
    assert [launch.argument(f"weights.{i}").type for i in range(4)] == ["i32", "constexpr", "fp32", "i32"]


def test_fault_16_tensors_in_tuples_are_written(traced: Any) -> None:
    tensors = (torch.ones(8), torch.ones(8), torch.ones(20)[5:13])
    scale_all[(1,)](tensors, N=8)
    assert [float(x.sum()) for x in tensors] == [16.0, 24.0, 32.0]


def test_fault_16_one_tensor_twice_in_a_tuple(traced: Any) -> None:
    x = torch.ones(8)
    scale_all[(1,)]((x, x), N=8)
    assert x.tolist() == [6.0] * 8


@pytest.mark.parametrize("k", [1, 3, 2.5, True])
@pytest.mark.parametrize("make", [lambda a, b, c, k: (a, (b, (c, k))), lambda a, b, c, k: Point(a, Point(b, Point(c, k)))])
def test_fault_16_nested_tuples(make: Any, k: Any, traced: Any) -> None:
    a, b, c = torch.arange(8.0), torch.ones(8), torch.full((8,), 0.5)
    out = torch.zeros(8)
    nested[(1,)](make(a, b, c, k), out, N=8)
    assert torch.equal(out, a * k + b - c)
    assert traced.launches[0].argument("tree.1.1.0").shape == (8,)


@pytest.mark.parametrize("scale", [1, 2, 0.5])
@pytest.mark.parametrize("biased", [False, True])
def test_fault_16_named_tuples_have_their_names(scale: Any, biased: bool, traced: Any) -> None:
    src, dst = torch.arange(8.0), torch.zeros(8)
    bias = torch.ones(8) if biased else None
    named[(1,)](Job(src, dst, scale, bias), N=8)
    assert torch.equal(dst, src * scale + (1 if biased else 0))


def test_empty_tuples(traced: Any) -> None:
    out = torch.full((1,), 9, dtype=torch.int32)
    length[(1,)]((), out)
    assert out.item() == 0
    zeros = torch.ones(8)
    weighted_sum[(1,)]((), (), zeros, N=8)
    assert zeros.tolist() == [0.0] * 8


def test_lists_are_refused_as_triton_refuses_them(refused: Any) -> None:
    x, out = torch.ones(8), torch.full((8,), 5.0)
    with pytest.raises(tritontrace.ArgumentError, match=r"argument 'tensors' of kernel 'weighted_sum'.*pass tuple"):
        weighted_sum[(1,)]([x], (1.0,), out, N=8)
    with pytest.raises(tritontrace.ArgumentError, match=r"argument 'tree.1' of kernel 'nested'.*pass tuple"):
        nested[(1,)]((x, [x, (x, 1)]), out, N=8)
    assert out.tolist() == [5.0] * 8


def test_a_bad_value_deep_in_a_tuple_is_named(refused: Any) -> None:
    x = torch.ones(8)
    with pytest.raises(
        tritontrace.ArgumentError, match=r"argument 'tree.1.1.0' of kernel 'nested' is a tensor of torch.complex64"
    ):
        nested[(1,)]((x, (x, (torch.zeros(8, dtype=torch.complex64), 2))), x, N=8)
    with pytest.raises(tritontrace.ArgumentError, match=r"meta device.*argument 'tree.1.0' of kernel 'nested'"):
        nested[(1,)]((x, (torch.zeros(8, device="meta"), (x, 2))), x, N=8)


@triton.jit
def move_tiles(descriptors, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    descriptors[1].store([row, col], descriptors[0].load([row, col]) + 1)


def test_fault_16_tuples_of_descriptors(traced: Any) -> None:
    x, out = torch.arange(20.0 * 24).reshape(20, 24), torch.zeros(20, 24)
    both = tuple(TensorDescriptor.from_tensor(tensor, [8, 16]) for tensor in (x, out))
    move_tiles[(3, 2)](both, ROWS=8, COLS=16)
    assert torch.equal(out, x + 1)


@triton.jit
def plus_one(x):
    return x + 1


@triton.jit
def doubled(x):
    return x * 2


@triton.jit
def chain(functions, x_ptr, out_ptr):
    x = tl.load(x_ptr)
    for i in tl.static_range(len(functions)):
        x = functions[i](x)
    tl.store(out_ptr, x)


def test_tuples_of_functions(traced: Any) -> None:
    out = torch.zeros(1)
    for functions, want in (((plus_one, doubled), 8.0), ((doubled, plus_one), 7.0), ((doubled,) * 3, 24.0), ((), 3.0)):
        chain[(1,)](functions, torch.tensor(3.0), out)
        assert out.item() == want
    assert plus_one.hash is None and doubled.hash is None  # an argument is not asked for its cache key


leaf = st.sampled_from(["tensor", "number"])  # None and 1 are compile-time values, which have no dtype to ask
pairs = st.lists(leaf, min_size=1, max_size=3).map(tuple)
trees = st.lists(
    st.one_of(leaf, pairs, st.lists(st.one_of(leaf, pairs), min_size=1, max_size=2).map(tuple)), min_size=1, max_size=3
)


@triton.jit
def leaf_value(item, scale):
    if item.dtype.is_ptr():
        return tl.load(item)
    else:
        return item * scale


@triton.jit
def total_of(tree, scale, out_ptr):
    # no helper that calls itself: 3.6 takes a tuple inside a tuple for the outer one
    total = 0.0
    for i in tl.static_range(len(tree)):
        if isinstance(tree[i], tl.tuple):
            for j in tl.static_range(len(tree[i])):
                if isinstance(tree[i][j], tl.tuple):
                    for k in tl.static_range(len(tree[i][j])):
                        total += leaf_value(tree[i][j][k], scale)
                else:
                    total += leaf_value(tree[i][j], scale)
        else:
            total += leaf_value(tree[i], scale)
    tl.store(out_ptr, total)


# -- variadic and keyword-only parameters ---------------------------------------------------------------------------

variadic = pytest.mark.skipif(not variadic_kernels(), reason="this Triton binds no *args")
keyword_only = pytest.mark.skipif(not keyword_only_parameters(), reason="this Triton's frontend has no keyword-only parameters")


@triton.jit
def gather_all(out_ptr, *sources):
    for i in tl.static_range(len(sources)):
        tl.store(out_ptr + i, tl.load(sources[i]) + i)


@triton.jit
def gather_scaled(out_ptr, *sources, SCALE: tl.constexpr, shift=0):
    for i in tl.static_range(len(sources)):
        tl.store(out_ptr + i, tl.load(sources[i]) * SCALE + shift)


@triton.jit
def keywords(x_ptr, *, out_ptr, N: tl.constexpr = 4, scale=2.0):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * scale)


@variadic
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_variadic_parameters(count: int, traced: Any) -> None:
    out = torch.full((8,), -1.0)
    gather_all[(1,)](out, *(torch.tensor(10.0 * i) for i in range(count)))
    assert out[:count].tolist() == [11.0 * i for i in range(count)]
    assert out[count:].tolist() == [-1.0] * (8 - count)


@variadic
def test_a_bad_value_among_variadic_arguments_is_named(refused: Any) -> None:
    with pytest.raises(tritontrace.ArgumentError, match=r"argument 'sources.1' of kernel 'gather_all'.*pass int"):
        import numpy as np

        gather_all[(1,)](torch.zeros(4), torch.zeros(1), np.int64(4))


@keyword_only
def test_keyword_only_parameters(traced: Any) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    keywords[(1,)](x, out_ptr=out)
    assert out.tolist() == [0, 2, 4, 6, 0, 0, 0, 0]
    keywords[(1,)](out_ptr=out, scale=3, N=8, x_ptr=x)
    assert torch.equal(out, 3 * x)
    gather_scaled[(1,)](out, x, x[1:], SCALE=5, shift=1)
    assert out[:2].tolist() == [1, 6]


@keyword_only
def test_keyword_only_parameters_in_sessions_inside_sessions(traced: Any) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    with tritontrace.session(clients=["tracer"]) as inner, tritontrace.session(clients=["sanitizer"]) as innermost:
        compiled = keywords[(1,)](x, out_ptr=out, N=8)
        compiled[(1,)](x, out_ptr=out, N=8)
    assert torch.equal(out, 2 * x)
    assert [len(session.launches) for session in (traced, inner, innermost)] == [2, 2, 2]


@keyword_only
def test_keyword_only_parameters_are_demanded(refused: Any) -> None:
    with pytest.raises(TypeError, match=r"keywords\(\) missing 1 required keyword-only argument: 'out_ptr'"):
        keywords[(1,)](torch.zeros(4))
    with pytest.raises(TypeError, match=r"keywords\(\) takes 1 positional argument but 2 were given"):
        keywords[(1,)](torch.zeros(4), torch.zeros(4))


@pytest.mark.skipif(keyword_only_parameters(), reason="this Triton's frontend has keyword-only parameters")
def test_keyword_only_parameters_are_refused_where_triton_refuses_them(refused: Any) -> None:
    out = torch.full((4,), 5.0)
    with pytest.raises(Exception, match="out_ptr"):
        keywords[(1,)](torch.zeros(4), out_ptr=out)
    assert out.tolist() == [5.0] * 4


def size_of(shape: Any) -> float:
    if isinstance(shape, tuple):
        return sum(map(size_of, shape))
    return {"tensor": 0.5, "number": 14.0}[shape]


def filled(shape: Any) -> Any:
    if isinstance(shape, tuple):
        return tuple(map(filled, shape))
    return {"tensor": torch.tensor(0.5), "number": 7.0}[shape]


@given(trees.map(tuple))
@settings(deadline=None, max_examples=25)
def test_fault_16_trees_of_anything(tree: Any) -> None:
    out = torch.zeros(1)
    with tritontrace.session(clients=["sanitizer"]) as session:
        total_of[(1,)](filled(tree), 2.0, out)
    assert out.item() == size_of(tree) and session.findings == []


@triton.jit
def longest_of(AXES: tl.constexpr):
    return len(AXES)


@triton.jit
def reads_a_constant_tuple(out_ptr, AXES: tl.constexpr):
    for i in tl.static_range(len(AXES)):
        tl.store(out_ptr + i, AXES[i])
    tl.store(out_ptr + len(AXES), longest_of(AXES))
    block: tl.constexpr = (AXES[0], 4)
    tl.store(out_ptr + 4 + tl.arange(0, 4), tl.sum(tl.full(block, 1.0, tl.float32), axis=0))


def test_a_tuple_as_a_compile_time_argument() -> None:
    out = torch.zeros(8)
    with tritontrace.session():
        reads_a_constant_tuple[(1,)](out, AXES=(2, 8, 5))
    assert out.tolist() == [2, 8, 5, 3, 2, 2, 2, 2]
