"""Known fault 17: every argument has the type that Triton itself gives it.

The reference is Triton's own binder, made from the kernel's own parameters, on the same values. Where it refuses a value,
so do we; where it gives types and compile-time values, ours are equal.
"""

from __future__ import annotations

import importlib.util
import math
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace
from tritontrace.kernels.arguments import bind
from tritontrace.kernels.targets import Target

TARGETS = {"cuda:90": GPUTarget("cuda", 90, 32), "hip:gfx942": GPUTarget("hip", "gfx942", 64)}
DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)


class Pair(NamedTuple):
    first: Any
    second: Any


@triton.jit
def one(value):
    pass


@triton.jit
def helper(x):
    return x


def tritons(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: str = "cuda:90") -> tuple[Any, Any]:
    """(signature, compile-time values by path) as Triton's own launch would have them."""
    backend = make_backend(TARGETS[target])
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = binder(*args, **kwargs)
    options = {**kwargs, "debug": False, "enable_fp_fusion": True}
    _, signature, constants, _ = kernel._pack_args(backend, options, bound, specialization, options)
    return signature, constants


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or (type(a) is type(b) and bool(a == b))


def check(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, target: str = "cuda:90") -> str | None:
    """Both agree on the launch; the text of the refusal, or None where both take it."""
    kwargs = kwargs or {}
    try:
        signature, constants = tritons(kernel, args, kwargs, target)
    except (TypeError, OverflowError, KeyError) as error:
        expected = KeyError if "unrecognised" in str(error) else (tritontrace.ArgumentError, TypeError)
        with pytest.raises(expected) as refused:
            bind(kernel, args, kwargs, Target.parse(target))
        assert "kernel" in str(refused.value) or kernel.__name__ in str(refused.value)
        return str(refused.value)
    ours = bind(kernel, args, kwargs, Target.parse(target))
    assert ours.signature == signature
    assert list(ours.constexprs) == list(constants)
    assert all(same(ours.constexprs[path], constants[path]) for path in constants)
    return None


EDGES = sorted(
    {sign * (2**bits + step) for bits in (0, 7, 8, 15, 16, 31, 32, 53, 62, 63, 64) for step in (-1, 0, 1) for sign in (1, -1)}
)


@pytest.mark.parametrize("target", list(TARGETS))
def test_integers_at_every_edge(target: str) -> None:
    refused = [value for value in EDGES if check(one, (value,), target=target) is not None]
    assert refused == [value for value in EDGES if not -(2**63) <= value < 2**64]


@given(st.one_of(st.integers(-(2**66), 2**66), st.sampled_from(EDGES), st.booleans(), st.floats(), st.none()))
@example(True)
@example(1)
@example(2**63)
@example(float("nan"))
@settings(deadline=None)
def test_numbers(value: Any) -> None:
    check(one, (value,))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_tensors_of_every_dtype(dtype: torch.dtype) -> None:
    raw = torch.zeros(64, dtype=torch.uint8)
    try:
        tensor = torch.zeros(4, dtype=dtype) if dtype.is_complex else raw.view(dtype)
    except RuntimeError as error:  # quantized dtypes have no view
        pytest.skip(f"torch makes no such tensor: {error}")
    text = check(one, (tensor,))
    if text is not None:
        assert str(dtype) in text and "pass" in text


OTHERS = {
    "string": "text",
    "bytes": b"text",
    "complex": 1j,
    "list": [1, 2],
    "list in a tuple": (1, [2]),
    "dict": {},
    "set": {1},
    "object": object(),
    "array": np.zeros(3),
    "torch dtype": torch.float32,
    "triton dtype": tl.float32,
    "wrapped": triton.reinterpret(torch.zeros(4, dtype=torch.int8), tl.float8e4b15),
    "wrapped twice": triton.reinterpret(triton.reinterpret(torch.zeros(4, dtype=torch.int8), tl.float8e5), tl.float8e4nv),
    "function": helper,
    "functions": (helper, 3, (helper,)),
    "constexpr": tl.constexpr(7),
    "constexprs": (tl.constexpr(7), tl.constexpr("x"), 2),
    "named tuple": Pair(1, Pair(torch.zeros(2), 2.5)),
    "empty tuple": (),
    "nested empty": ((), ((),)),
    "descriptor": TensorDescriptor.from_tensor(torch.zeros(16, 16), [8, 4]),
    "descriptors": (TensorDescriptor.from_tensor(torch.zeros(16, 16, dtype=torch.int32), [8, 4]), 1),
    "parameter": torch.nn.Parameter(torch.zeros(3)),
    "module": types,
    **{
        f"numpy {kind.__name__}": kind(3)
        for kind in (np.int8, np.uint16, np.int64, np.uint64, np.float16, np.float32, np.float64)
    },
    "numpy bool": np.bool_(True),
}


@pytest.mark.parametrize("target", list(TARGETS))
@pytest.mark.parametrize("name", list(OTHERS))
def test_other_objects(name: str, target: str) -> None:
    check(one, (OTHERS[name],), target=target)


leaves = st.one_of(st.sampled_from([0, 1, 2, True, None, 2**31, 2.5, "no"]), st.builds(lambda: torch.zeros(2)))
trees = st.recursive(leaves, lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.builds(Pair, inner, inner)))


@given(trees)
@settings(deadline=None)
def test_tuples_of_anything(value: Any) -> None:
    check(one, (value,))


ANNOTATIONS = [
    *(f'"{kind}"' for kind in ("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64")),
    *(
        f"tl.{kind}"
        for kind in ("int1", "int8", "int32", "int64", "uint8", "uint64", "float16", "bfloat16", "float32", "float64")
    ),
    *('"*fp32"', '"*i8"', '"*u64"', '"*kfp32"', "tl.pi32_t", "tl.const", '"tl.const"', "int", "float", "bool", "object", "None"),
    *("tl.constexpr", '"tl.constexpr"', '"constexpr"', "torch.Tensor", '"something of the author\'s"'),
]
GIVEN = [0, 1, 2, -1, 2**40, 2**63, True, None, 2.5, torch.zeros(2), torch.zeros(2, dtype=torch.int8), (1, 2), "text"]


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module with one kernel for each annotation."""
    path = Path(tmp_path_factory.mktemp("annotated")) / "annotated.py"
    lines = ["import torch", "import triton", "import triton.language as tl"]
    for number, annotation in enumerate(ANNOTATIONS):
        lines += ["@triton.jit", f"def kernel_{number}(value: {annotation}):", "    pass"]
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("annotated", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("number", range(len(ANNOTATIONS)), ids=lambda n: ANNOTATIONS[n].strip('"'))
def test_annotations(annotated: Any, number: int) -> None:
    kernel = getattr(annotated, f"kernel_{number}")
    for value in GIVEN:
        check(kernel, (value,))


@triton.jit(do_not_specialize=["named", 3])
def unspecialized(x, named, y, numbered, z=1, flag: tl.constexpr = None):
    pass


@triton.jit(do_not_specialize_on_alignment=["n"])
def unaligned(n, m):
    pass


def test_parameters_that_are_not_specialized() -> None:
    for value in (0, 1, 16, None, True, torch.zeros(1)):
        check(unspecialized, (value, value, value, value))
        check(unspecialized, (value,), {"numbered": value, "y": value, "named": value, "z": value, "flag": value})
        check(unaligned, (value, value))
    bound = bind(unspecialized, (1, 1, 1, 1), {}, Target.parse("cuda:90"))
    assert bound.signature == {
        "x": "constexpr",
        "named": "i32",
        "y": "constexpr",
        "numbered": "i32",
        "z": "constexpr",
        "flag": "constexpr",
    }


def test_a_parameter_that_is_not_specialized_has_one_program_for_all_its_values() -> None:
    def key(value: Any, kernel: Any) -> Any:
        return bind(kernel, (2, value, 2, value), {}, Target.parse("cuda:90")).key

    assert key(1, unspecialized) == key(16, unspecialized) == key(3, unspecialized) != key(2**40, unspecialized)
    assert bind(unaligned, (16, 3), {}, Target.parse("cuda:90")).key == bind(unaligned, (5, 3), {}, Target.parse("cuda:90")).key


@triton.jit
def defaults(a, b=2, c: tl.constexpr = "sum", d=None, e=1, f=2.5, g: tl.constexpr = tl.float32):
    pass


@given(
    st.lists(st.sampled_from([0, 1, 2.5, None, True]), max_size=8),
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([0, 1, 7.5, None]), max_size=4),
)
@settings(deadline=None)
def test_positions_keywords_and_defaults(args: list[Any], kwargs: dict[str, Any]) -> None:
    check(defaults, tuple(args), kwargs)
