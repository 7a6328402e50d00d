"""Known faults 47 and 49: compile-time arguments of every kind, and what tells two of them apart."""

from __future__ import annotations

import dataclasses
import enum
import gc
import math
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import compute_cache_key

import tritontrace
from tests.refusals import refusal
from tritontrace.kernels.arguments import bind
from tritontrace.kernels.targets import Target


class Mode(enum.Enum):
    SUM = 1
    MAX = 2


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Text(str, enum.Enum):
    A = "a"
    B = "b"


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@dataclasses.dataclass(frozen=True)
class Config:
    size: int
    eps: float = 0.5
    function: Any = None


@triton.jit
def equal(out_ptr, value: tl.constexpr, other: tl.constexpr):
    if value == other:
        tl.store(out_ptr, 1)
    else:
        tl.store(out_ptr, 2)


def compares_equal(value: Any, other: Any) -> bool:
    out = torch.zeros(1, dtype=torch.int32)
    equal[(1,)](out, value, other)
    return {1: True, 2: False}[out.item()]


PAIRS = [
    (1, 1),
    (1, 2),
    (-7, -7),
    (2**70, 2**70),
    (1.5, 1.5),
    (0.0, -0.0),
    (math.nan, math.nan),
    (math.inf, math.inf),
    (True, True),
    (True, False),
    (None, None),
    (None, 0),
    ("", ""),
    ("sum", "sum"),
    ("sum", "max"),
    (b"x", b"x"),
    ((1, 2), (1, 2)),
    ((1, (2, "x")), (1, (2, "y"))),
    ((), ()),
    (Mode.SUM, Mode.SUM),
    (Mode.SUM, Mode.MAX),
    (Number.ONE, Number.ONE),
    (Number.TWO, 2),
    (Text.A, Text.A),
    (Text.A, Text.B),
    (Flags.A | Flags.B, Flags.B | Flags.A),
    (torch.float32, torch.float32),
    (torch.float32, torch.float16),
    (tl.float32, tl.float32),
    (tl.float32, tl.float16),
    (tl.bfloat16, tl.bfloat16),
    (int, int),
    (int, float),
    (np.float32, np.float32),
    (torch.device("cpu"), torch.device("cpu")),
    (frozenset({1}), frozenset({1})),
    (range(3), range(3)),
    (Config(4), Config(4)),
    (Config(4), Config(5)),
    (1j, 1j),
    (Ellipsis, Ellipsis),
]


@pytest.mark.parametrize(("value", "other"), PAIRS, ids=lambda value: str(value)[:20])
def test_python_objects_as_constants(value: Any, other: Any, traced: Any) -> None:
    # the frontend evaluates the comparison in Python
    assert compares_equal(value, other) is bool(value == other)
    assert compares_equal(tl.constexpr(value), other) is bool(value == other)


@triton.jit
def by_keyword(out_ptr, mode: tl.constexpr = "sum", n: tl.constexpr = 3, dtype: tl.constexpr = tl.float32):
    value = n if mode == "sum" else n * n
    tl.store(out_ptr, tl.full([], value, dtype))


@pytest.mark.parametrize(
    ("kwargs", "want"),
    [({}, 3), ({"mode": "square"}, 9), ({"n": 5, "mode": "square"}, 25), ({"dtype": tl.float16}, 3), ({"n": tl.constexpr(4)}, 4)],
)
def test_keywords_and_defaults(kwargs: Any, want: float, traced: Any) -> None:
    out = torch.zeros(1)
    by_keyword[(1,)](out, **kwargs)
    assert out.item() == want


@triton.jit
def annotated_by_text(out_ptr, a: "tl.constexpr", b: "triton.language.constexpr", c: "constexpr"):  # noqa: F821, UP037
    tl.store(out_ptr + tl.arange(0, a), b + c)


def test_fault_47_annotations_that_are_texts(traced: Any) -> None:
    # this module has `from __future__ import annotations` besides
    out = torch.zeros(8, dtype=torch.int32)
    annotated_by_text[(1,)](out, 8, 30, 4)
    assert out.tolist() == [34] * 8
    assert [traced.launches[0].argument(name).type for name in "abc"] == ["constexpr"] * 3


@triton.jit
def helper_with_constants(x, N: tl.constexpr, SCALE: tl.constexpr = 2):
    tl.static_assert(N.value == 8)
    HALF: tl.constexpr = N.value // 2
    return x * SCALE.value + HALF.value


@triton.jit
def uses_value(out_ptr, N: tl.constexpr, mode: tl.constexpr, nothing: tl.constexpr):
    LOCAL: tl.constexpr = N * 2
    tl.static_assert(LOCAL.value == 16)
    tl.static_assert(mode.value == "x")
    tl.static_assert(nothing.value is None)
    tl.store(out_ptr + tl.arange(0, N.value), helper_with_constants(tl.arange(0, N), N))


def test_fault_49_constants_have_a_value(traced: Any) -> None:
    out = torch.zeros(8, dtype=torch.int32)
    uses_value[(1,)](out, 8, "x", None)
    assert out.tolist() == [2 * i + 4 for i in range(8)]


@triton.jit
def cast_to(out_ptr, x_ptr, dtype: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr).to(dtype))


DTYPES = {
    tl.int1: 1.0,
    tl.int8: 3.0,
    tl.int16: 3.0,
    tl.int32: 3.0,
    tl.int64: 3.0,
    tl.uint8: 3.0,
    tl.uint64: 3.0,
    tl.float8e5: 3.5,
    tl.float8e4nv: 3.75,
    tl.float16: 3.69921875,
    tl.bfloat16: 3.703125,
    tl.float32: float(np.float32(3.7)),
    tl.float64: float(np.float32(3.7)),
}


@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
def test_tritons_dtypes(dtype: Any, traced: Any) -> None:
    out = torch.zeros(1, dtype=torch.float64)
    cast_to[(1,)](out, torch.tensor([3.7]), dtype)
    assert out.item() == DTYPES[dtype]


@triton.jit
def by_torch_dtype(out_ptr, dtype: tl.constexpr):
    if dtype == torch.float16:
        tl.store(out_ptr, 16)
    elif dtype == torch.bfloat16:
        tl.store(out_ptr, 17)
    else:
        tl.store(out_ptr, 0)


def test_torchs_dtypes(traced: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    seen = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float16):
        # a global that is no constant may not be read in a kernel, but a module's attribute may
        by_torch_dtype[(1,)](out, dtype)
        seen.append(out.item())
    assert seen == [16, 17, 0, 16]


@triton.jit
def square(x):
    return x * x


@triton.jit
def negated(x):
    return -x


def plain(n):
    return n + 1


@triton.constexpr_function
def tenfold(n):
    return n * 10


@triton.jit
def apply(out_ptr, x_ptr, function: tl.constexpr):
    tl.store(out_ptr, function(tl.load(x_ptr)))


@triton.jit
def apply_all(out_ptr, x_ptr, functions: tl.constexpr):
    x = tl.load(x_ptr)
    for i in tl.static_range(len(functions)):
        x = functions[i](x)
    tl.store(out_ptr, x)


@triton.jit
def apply_to_constant(out_ptr, function: tl.constexpr, n: tl.constexpr):
    tl.store(out_ptr, function(n))


@pytest.mark.parametrize(
    ("function", "want"),
    [(square, 9.0), (negated, -3.0), (tl.exp2, 8.0), (tl.abs, 3.0), (lambda x: x, 3.0)],
    ids=["jit", "another", "builtin", "jit of the library", "lambda"],
)
def test_functions(function: Any, want: float, traced: Any) -> None:
    out = torch.zeros(1)
    apply[(1,)](out, torch.tensor(3.0), function)
    assert out.item() == want


def test_functions_of_constants(traced: Any) -> None:
    out = torch.zeros(1)
    for function, want in ((tenfold, 40), (plain, 5), (tenfold, 40)):
        apply_to_constant[(1,)](out, function, 4)
        assert out.item() == want


def test_traced_functions_and_tuples_of_functions(traced: Any) -> None:
    out = torch.zeros(1)
    apply[(1,)](out, torch.tensor(3.0), tritontrace.trace(negated, clients=["tracer"]))
    assert out.item() == -3.0
    for functions, want in (((square, negated), -9.0), ((negated, square), 9.0), ((), 3.0), ((square,) * 3, 6561.0)):
        apply_all[(1,)](out, torch.tensor(3.0), functions)
        assert out.item() == want
    assert square.hash is None and negated.hash is None


# -- what tells two constants apart -----------------------------------------------------------------------------------


def key(value: Any) -> Any:
    return bind(equal, (torch.zeros(1), value, 0), {}, Target.parse("cuda:90")).key


DIFFERENT = [
    *(1, True, 1.0, "1", b"1", Number.ONE, None, 0, False, 0.0, -0.0, math.nan, (1,), (True,), (1.0,), ((1,),), (), "None"),
    *(Mode.SUM, Mode.MAX, Text.A, "a", torch.float32, tl.float32, torch.float16, "float32", square, negated, plain, (square,)),
    *(
        int,
        float,
        np.float64(1.0),
        Config(1),
        Config(2),
        Config(1, -0.0),
        Config(1, 0.0),
        Config(1, 0.5, square),
        Config(1, 0.5, negated),
    ),
]


def test_constants_that_compile_differently_have_keys_of_their_own() -> None:
    keys = [key(value) for value in DIFFERENT]
    for i, one in enumerate(keys):
        assert [j for j, other in enumerate(keys) if other == one] == [i], DIFFERENT[i]
    assert [key(value) for value in DIFFERENT] == keys


def test_equal_constants_share_a_key() -> None:
    assert key(tl.constexpr(4)) == key(4)
    assert key((tl.constexpr(4), "x")) == key((4, "x"))
    assert key(Config(3, 0.25)) == key(Config(3, 0.25))
    assert key(tritontrace.trace(square, clients=[])) == key(square)


class Same:
    """Two of these look alike and are not equal."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Same()"


@triton.jit
def attribute(out_ptr, thing: tl.constexpr):
    tl.store(out_ptr, thing.value.value)


def test_objects_that_only_look_alike_are_not_mixed_up(traced: Any) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    seen = []
    for value in range(2, 12):
        attribute[(1,)](out, Same(value))  # made and dropped: an address is likely used again
        seen.append(out.item())
    assert seen == list(range(2, 12))


def test_a_constant_is_not_kept_alive() -> None:
    import weakref

    thing = Same(3)
    reference = weakref.ref(thing)
    assert key(thing) == key(thing)
    del thing
    gc.collect()
    assert reference() is None


def test_two_classes_of_one_name_are_not_mixed_up(traced: Any) -> None:
    def make(value: int) -> Any:
        class Level(enum.Enum):
            LOW = value

        return Level.LOW

    out = torch.zeros(1, dtype=torch.int32)
    for value in (5, 6, 7):
        attribute[(1,)](out, make(value))
        assert out.item() == value


@pytest.mark.parametrize(
    "value", [[1, 2], {"a": 1}, {1}, np.zeros(2), (1, [2]), Config(1, 0.5, [])], ids=lambda v: type(v).__name__
)
def test_constants_without_a_hash_are_refused_as_triton_refuses_them(value: Any, refused: Any) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        compute_cache_key({}, [("constexpr", value)], {})
    with pytest.raises(tritontrace.ArgumentError, match=r"unhashable type.*compile-time argument 'value' of kernel 'equal'"):
        compares_equal(value, 0)


def test_a_wrong_constant_is_the_compilers_error(refused: Any) -> None:
    out = torch.full((8,), 5.0)
    for value in (7, 8.0, "8", None, torch.tensor(8)):
        with pytest.raises(refusal(), match="arange"):
            annotated_by_text[(1,)](out, value, 1, 2)
    assert out.tolist() == [5.0] * 8
