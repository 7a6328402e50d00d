"""Wrong arguments: the error is Triton's own or says more, names kernel and argument, and nothing was changed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.refusals import refusal


@triton.jit
def fill(x_ptr, out_ptr, n, BLOCK: tl.constexpr, scale=2.0):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n, other=0.0) * scale)


@triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


X, OUT = torch.ones(8), torch.full((8,), 5.0)

CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception] | None, str]] = {
    "missing one": ((X, OUT), {"BLOCK": 8}, TypeError, r"fill\(\) missing 1 required positional argument: 'n'"),
    "missing all": ((), {}, TypeError, r"fill\(\) missing 4 required positional arguments"),
    "missing constant": ((X, OUT, 3), {}, TypeError, r"fill\(\) missing 1 required positional argument: 'BLOCK'"),
    "too many": ((X, OUT, 3, 8, 1.0, 7), {}, TypeError, r"fill\(\) takes from 4 to 5 positional arguments but 6 were given"),
    "twice": ((X, OUT, 3, 8), {"n": 4}, TypeError, r"fill\(\) got multiple values for argument 'n'"),
    "unexpected": ((X, OUT, 3, 8), {"unknown": 1}, KeyError, "Keyword argument unknown was specified but unrecognised.*fill"),
    "misspelt option": (
        (X, OUT, 3, 8),
        {"num_warp": 4},
        KeyError,
        "Keyword argument num_warp was specified but unrecognised.*fill",
    ),
    "two grids": ((X, OUT, 3, 8), {"grid": (2,)}, TypeError, "multiple values for keyword argument 'grid'"),
    "warmup": ((X, OUT, 3, 8), {"warmup": True}, TypeError, "multiple values for keyword argument 'warmup'"),
    "device": ((X, OUT, 3, 8), {"device": 0}, tritontrace.ArgumentError, "device option is deprecated.*fill"),
    "stream": ((X, OUT, 3, 8), {"stream": 0}, tritontrace.ArgumentError, "stream option is deprecated.*fill"),
    "device_type": ((X, OUT, 3, 8), {"device_type": "cuda"}, tritontrace.ArgumentError, "device_type option is deprecated.*fill"),
    "warps of three": ((X, OUT, 3, 8), {"num_warps": 3}, AssertionError, "num_warps must be a power of 2"),
    "no warps": ((X, OUT, 3, 8), {"num_warps": 0}, AssertionError, "num_warps must be a power of 2"),
    "text for a tensor": (("x", OUT, 3, 8), {}, tritontrace.ArgumentError, "argument 'x_ptr' of kernel 'fill'.*constexpr"),
    "object for a number": (
        (X, OUT, object(), 8),
        {},
        tritontrace.ArgumentError,
        "argument 'n' of kernel 'fill'.*a kernel takes",
    ),
    "bad keyword value": ((X, OUT), {"n": {}, "BLOCK": 8}, tritontrace.ArgumentError, "argument 'n' of kernel 'fill'"),
    "two bad ones": (("x", OUT, {}, 8), {}, tritontrace.ArgumentError, "argument 'x_ptr' of kernel 'fill'"),
    "none for a tensor": ((None, OUT, 3, 8), {}, None, "NoneType"),
    "number for a tensor": ((3, OUT, 3, 8), {}, None, "Unsupported ptr type"),
    "float for a tensor": ((3.5, OUT, 3, 8), {}, None, "Unsupported ptr type"),
    "tensor for a number": ((X, OUT, X, 8), {}, None, "pointer<fp32>"),
    "block of seven": ((X, OUT, 3, 7), {}, None, "power of 2"),
    "block of none": ((X, OUT, 3, None), {}, None, "arange"),
}


@pytest.mark.parametrize("name", list(CASES))
def test_wrong_arguments(name: str, refused: Any) -> None:
    args, kwargs, error, message = CASES[name]
    with pytest.raises(error or refusal(), match=message):
        fill[(1,)](*args, **kwargs)
    assert OUT.tolist() == [5.0] * 8 and X.tolist() == [1.0] * 8


@pytest.mark.parametrize("name", list(CASES))
def test_wrong_arguments_of_a_traced_kernel(name: str) -> None:
    args, kwargs, error, message = CASES[name]
    traced = tritontrace.trace(fill, clients=["sanitizer"])
    message = message.replace("multiple values for keyword argument 'grid'", "grid").replace(
        "multiple values for keyword argument 'warmup'", "warmup"
    )
    with pytest.raises(error, match=message):
        traced[(1,)](*args, **kwargs)
    assert OUT.tolist() == [5.0] * 8 and not any(launch.completed for launch in traced.launches)


def test_a_default_value_that_no_kernel_takes_is_named(refused: Any) -> None:
    @triton.jit
    def bad_default(out_ptr, mode="sum"):
        tl.store(out_ptr, 1.0)

    with pytest.raises(
        tritontrace.ArgumentError, match=r"argument 'mode' of kernel 'bad_default'.*declare the parameter as tl\.constexpr"
    ):
        bad_default[(1,)](OUT)


def test_wrong_arguments_of_a_tuned_kernel_touch_nothing(refused: Any) -> None:
    with pytest.raises(tritontrace.ArgumentError, match="argument 'x_ptr' of kernel 'tuned'"):
        tuned[(1,)](torch.zeros(8, dtype=torch.complex64), OUT, 8)
    with pytest.raises(tritontrace.ArgumentError, match="argument 'x_ptr' of kernel 'tuned'"):
        tuned[(1,)](torch.zeros(8, device="meta"), OUT, 8)
    with pytest.raises(TypeError, match="'n'"):
        tuned[(1,)](X, OUT)
    assert OUT.tolist() == [5.0] * 8


def test_after_a_refusal_the_same_kernel_runs(traced: Any) -> None:
    out = torch.zeros(8)
    with pytest.raises(tritontrace.ArgumentError):
        fill[(1,)]("x", out, 3, 8)
    with pytest.raises(TypeError):
        fill[(1,)](X, out, 3)
    fill[(1,)](X, out, 3, 8)
    assert out.tolist() == [2.0] * 3 + [0.0] * 5
    assert [launch.completed for launch in traced.launches] == [False, False, True]


def test_a_refusal_reaches_no_client() -> None:
    seen: list[str] = []

    class Watching(tritontrace.Client):
        name = "watching"

        def pre_run_callback(self, launch: Any) -> None:
            seen.append("run")

    with tritontrace.session(clients=[Watching]):
        with pytest.raises(tritontrace.ArgumentError):
            fill[(1,)](torch.zeros(8, device="meta"), OUT, 3, 8)
        with pytest.raises(tritontrace.ArgumentError):
            fill[(-1,)](X, OUT, 3, 8)
        assert seen == []
        fill[(1,)](X, torch.zeros(8), 3, 8)
    assert seen == ["run"]


def test_an_argument_error_is_what_callers_of_triton_catch() -> None:
    error = tritontrace.ArgumentError("text")
    assert isinstance(error, (tritontrace.TritonTraceError)) and isinstance(error, TypeError) and isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == "text"
