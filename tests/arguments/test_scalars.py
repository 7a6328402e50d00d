"""Known faults 15 and 17: numbers as kernels receive them, by Triton's types and its launcher's conversions."""

from __future__ import annotations

import ctypes
import enum
import importlib.util
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace

INF, NAN = float("inf"), float("nan")


@triton.jit
def put(out_ptr, value):
    tl.store(out_ptr, value)


@triton.jit
def method_of_eps(out_ptr, eps):
    tl.store(out_ptr, eps.to(tl.float32) * 2)


@triton.jit
def method_of_every_kind(out_ptr, n, flag, x):
    tl.store(out_ptr + 0, n.to(tl.float32) + flag.to(tl.float32) + x.to(tl.float32))
    tl.store(out_ptr + 1, n.to(tl.int64) // 2)
    tl.store(out_ptr + 2, tl.where(flag, x, -x).to(tl.float32))


@triton.jit
def promoted(out_ptr, n):
    # 2**30 * 4 wraps in 32 bits and does not in 64
    tl.store(out_ptr, n * 4)


def stored(value: Any, dtype: torch.dtype = torch.int64) -> Any:
    out = torch.zeros(1, dtype=dtype)
    put[(1,)](out, value)
    return out.item()


@pytest.mark.parametrize(
    "value", [0, 1, 2, 7, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**32 - 1, 2**32, -(2**63), 2**63 - 1]
)
def test_fault_17_integers(value: int, traced: Any) -> None:
    assert stored(value) == value


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**63 + 12345])
def test_fault_17_integers_beyond_int64_are_unsigned(value: int, traced: Any) -> None:
    assert stored(value, torch.uint64) == value
    assert stored(value) == value - 2**64
    assert traced.launches[0].argument("value").type == "u64"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**40])
def test_fault_17_integers_of_more_than_64_bits_are_refused(value: int, refused: Any) -> None:
    assert issubclass(tritontrace.ArgumentError, OverflowError)  # what Triton raises
    with pytest.raises(tritontrace.ArgumentError, match=r"too large to represent.*argument 'value' of kernel 'put'.*64 bits"):
        stored(value)


@given(st.integers(-(2**63), 2**64 - 1))
@settings(deadline=None, max_examples=50)
def test_fault_17_any_integer(value: int) -> None:
    with tritontrace.session(clients=["sanitizer"]):
        assert stored(value, torch.uint64 if value >= 2**63 else torch.int64) == value


def test_fault_17_booleans(traced: Any) -> None:
    assert stored(True) == 1 and stored(False) == 0
    assert stored(True, torch.bool) is True and stored(False, torch.bool) is False
    assert [launch.argument("value").type for launch in traced.launches] == ["u1"] * 4


def test_fault_17_the_width_of_an_integer_decides_what_wraps(traced: Any) -> None:
    out = torch.zeros(1, dtype=torch.int64)
    promoted[(1,)](out, 2**30)
    assert out.item() == 0
    promoted[(1,)](out, 2**31)
    assert out.item() == 2**33


class Whole(enum.IntEnum):
    FIVE = 5


class Sub(int):
    pass


class SubFloat(float):
    pass


def test_subclasses_of_numbers_are_numbers(traced: Any) -> None:
    assert stored(Whole.FIVE) == 5
    assert stored(Sub(7)) == 7 and stored(Sub(1)) == 1
    assert stored(SubFloat(0.5), torch.float32) == 0.5
    assert stored(np.float64(0.25), torch.float32) == 0.25  # a float to Python, so to Triton


@pytest.mark.parametrize("value", [INF, -INF, NAN, 1e-45, 1e39, -1e300, 0.1, 1 / 3, -0.0, 1.0, 16777217.0])
def test_fault_15_floats_are_fp32(value: float, traced: Any, bits: Any) -> None:
    with np.errstate(over="ignore"):
        rounded = np.float64(value).astype(np.float32)
    out = torch.zeros(1)
    put[(1,)](out, value)
    assert bits(out) == rounded.tobytes()
    wide = torch.zeros(1, dtype=torch.float64)
    put[(1,)](wide, value)
    assert bits(wide) == np.float64(rounded).tobytes()
    method_of_eps[(1,)](out, value)
    assert bits(out) == (rounded * np.float32(2)).tobytes()


def test_fault_15_arguments_have_the_methods_of_values(traced: Any) -> None:
    out = torch.zeros(3)
    method_of_every_kind[(1,)](out, 6, True, 0.5)
    assert out.tolist() == [7.5, 3.0, 0.5]
    method_of_every_kind[(1,)](out, 2**40, False, 0.5)
    assert out.tolist() == [float(2**40), float(2**39), -0.5]


# -- parameters whose annotation is their type ---------------------------------------------------------------------

WIDTHS = {"i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64}
WIDTHS |= {"u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
FLOATS = ("fp16", "bf16", "fp32", "fp64")


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module of kernels ``put_<type>(out_ptr, value)``."""
    path = Path(tmp_path_factory.mktemp("typed")) / "typed_kernels.py"
    lines = ["import triton", "import triton.language as tl"]
    for kind in (*WIDTHS, *FLOATS, "i1", "u1"):
        lines += ["@triton.jit", f'def put_{kind}(out_ptr, value: "{kind}"):', "    tl.store(out_ptr, value)"]
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("typed_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put_as(typed: Any, kind: str, value: Any, dtype: torch.dtype) -> torch.Tensor:
    out = torch.zeros(1, dtype=dtype)
    getattr(typed, f"put_{kind}")[(1,)](out, value)
    return out


@pytest.mark.parametrize("kind", list(WIDTHS))
def test_an_annotated_integer_keeps_its_low_bits(typed: Any, kind: str, traced: Any) -> None:
    unsigned = kind[0] == "u"
    for value in (
        0,
        2,
        127,
        128,
        255,
        256,
        2**15,
        2**16 + 5,
        2**31,
        2**40 + 3,
        2**63 - 1,
        *((2**63, 2**64 - 1) if unsigned else (-1, -129, -(2**63))),
    ):
        got = put_as(typed, kind, value, torch.uint64 if unsigned else torch.int64).item()
        assert got == WIDTHS[kind](value).value, value


@pytest.mark.parametrize("kind", [k for k in WIDTHS if k[0] == "i"])
def test_an_annotated_one_is_still_compiled_in(typed: Any, kind: str, traced: Any) -> None:
    assert put_as(typed, kind, 1, torch.int64).item() == 1


@pytest.mark.parametrize("kind", list(WIDTHS))
def test_an_annotated_integer_refuses_what_a_launcher_refuses(typed: Any, kind: str, refused: Any) -> None:
    wrong = [2.5, torch.zeros(1), (-1 if kind[0] == "u" else 2**63)]
    for value in wrong:
        with pytest.raises(tritontrace.ArgumentError, match=rf"argument 'value' of kernel 'put_{kind}' is of type {kind}"):
            put_as(typed, kind, value, torch.int64)


@pytest.mark.parametrize("kind", ["i1", "u1"])
def test_an_annotated_bit_is_the_lowest(typed: Any, kind: str, traced: Any) -> None:
    # ld.param.b8 and `and 1`, as Triton's PTX has it
    assert [put_as(typed, kind, value, torch.int32).item() & 1 for value in (0, 2, 3, 254, 255, True)] == [0, 0, 1, 0, 1, 1]


def half(value: float) -> float:
    return float(struct.unpack("<e", struct.pack("<e", value))[0])


def truncated(value: float) -> float:
    raw = struct.unpack("<I", struct.pack("<f", value))[0] & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", raw))[0])


FLOAT_RULES = {
    "fp16": half,
    "bf16": truncated,  # the launcher cuts the lower half of the fp32 off
    "fp32": lambda value: float(np.float32(value)),
    "fp64": float,
}
VALUES = [0.0, -0.0, 1.0, 0.1, -2.7, 1 / 3, 65504.0, 1e-7, 6e-8, INF, -INF, 3, True, np.float64(0.3)]


@pytest.mark.parametrize("kind", FLOATS)
def test_an_annotated_float_is_rounded_as_the_launcher_rounds(typed: Any, kind: str, traced: Any) -> None:
    for value in VALUES:
        got = put_as(typed, kind, value, torch.float64).item()
        assert struct.pack("<d", got) == struct.pack("<d", FLOAT_RULES[kind](value)), value
    assert np.isnan(put_as(typed, kind, NAN, torch.float64).item())
    # 65504 is the largest fp16; a tensor of one element has a float to give
    assert put_as(typed, kind, torch.tensor(2.5), torch.float64).item() == 2.5


@pytest.mark.parametrize("kind", FLOATS)
def test_an_annotated_float_refuses_what_is_none(typed: Any, kind: str, refused: Any) -> None:
    for value in ("2.5", None, (1.0,), 10**400, *((65520.0, 1e6) if kind == "fp16" else ())):
        with pytest.raises(tritontrace.ArgumentError, match=rf"argument 'value' of kernel 'put_{kind}' is of type {kind}"):
            put_as(typed, kind, value, torch.float64)


@given(st.floats(width=32, allow_nan=False))
@settings(deadline=None, max_examples=60)
def test_any_float_as_bf16(typed: Any, value: float) -> None:
    with tritontrace.session(clients=["sanitizer"]):
        assert put_as(typed, "bf16", value, torch.float64).item() == truncated(value)


# -- numpy's and torch's numbers ------------------------------------------------------------------------------------

NUMPY = [
    kind(3) for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32)
]


@pytest.mark.parametrize("value", [*NUMPY, np.bool_(True), np.int32(1)], ids=lambda v: type(v).__name__)
def test_numpy_scalars_are_refused_as_triton_refuses_them(value: Any, refused: Any) -> None:
    # Triton's own words, and the way out that they lack
    with pytest.raises(
        tritontrace.ArgumentError,
        match=r"failed to specialize argument.*'value' of kernel 'put'\); .*pass (int|float|bool)\(value\)",
    ):
        stored(value)


def test_the_way_out_for_numpy_scalars_works(traced: Any) -> None:
    for value in NUMPY:
        assert stored(value.item(), torch.float64) == 3


@triton.jit
def add_loaded(out_ptr, x_ptr):
    tl.store(out_ptr, tl.load(x_ptr) + 1)


def test_a_tensor_of_one_element_is_a_pointer_not_a_number(traced: Any) -> None:
    out = torch.zeros(())
    add_loaded[(1,)](out, torch.tensor(2.5))
    assert out.item() == 3.5
    assert traced.launches[0].argument("x_ptr").type == "*fp32"
