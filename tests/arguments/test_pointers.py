"""Pointers that are no tensors: integers, arrays of addresses, wrapped tensors, and objects that have a `data_ptr`."""

# No `from __future__ import annotations`: it would put "*fp32" into another pair of quotes, which Triton does not take off.
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import MockTensor

import tritontrace


@triton.jit
def copy(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def load_from_integer(address, out_ptr, N: tl.constexpr, dtype: tl.constexpr):
    offsets = tl.arange(0, N)
    pointer = address.to(tl.int64).to(tl.pointer_type(dtype))  # a low address is given as an int32
    tl.store(out_ptr + offsets, tl.load(pointer + offsets))


@triton.jit
def store_to_integer(x_ptr, address, N: tl.constexpr, dtype: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(address.to(tl.int64).to(tl.pointer_type(dtype)) + offsets, tl.load(x_ptr + offsets))


@triton.jit
def annotated(x_ptr: "*fp32", out_ptr: "*fp32", N: tl.constexpr):  # noqa: F722
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def annotated_option(x_ptr, bias_ptr: "*fp32", out_ptr, N: tl.constexpr):  # noqa: F722
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    if bias_ptr.to(tl.int64) != 0:
        x += tl.load(bias_ptr + offsets)
    tl.store(out_ptr + offsets, x)


@triton.jit
def address_of(x_ptr, out_ptr):
    tl.store(out_ptr, x_ptr.to(tl.int64))


@triton.jit
def grouped(addresses_ptr, groups, N: tl.constexpr):
    group = tl.program_id(0)
    offsets = tl.arange(0, N)
    source = tl.load(addresses_ptr + group).to(tl.pointer_type(tl.float32))
    target = tl.load(addresses_ptr + groups + group).to(tl.pointer_type(tl.float32))
    tl.store(target + offsets, tl.load(source + offsets) * 2)


@triton.jit
def chased(addresses_ptr, out_ptr, depth):
    pointer = tl.load(addresses_ptr).to(tl.pointer_type(tl.int64))
    for _ in range(depth):
        pointer = tl.load(pointer).to(tl.pointer_type(tl.int64))
    tl.store(out_ptr, tl.load(pointer))


def test_addresses_as_integers(traced: Any) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    load_from_integer[(1,)](x.data_ptr(), out, N=8, dtype=tl.float32)
    assert torch.equal(out, x)
    store_to_integer[(1,)](x + 1, out.data_ptr(), N=8, dtype=tl.float32)
    assert torch.equal(out, x + 1)
    load_from_integer[(1,)](x[2:].data_ptr(), out, N=4, dtype=tl.float32)
    assert out[:4].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.bfloat16, torch.int64, torch.float64], ids=str)
def test_addresses_as_integers_of_every_width(dtype: torch.dtype, traced: Any) -> None:
    x, out = torch.arange(8).to(dtype), torch.zeros(8, dtype=dtype)
    kind = getattr(tl, str(dtype).removeprefix("torch."))
    load_from_integer[(1,)](x.data_ptr(), out, N=8, dtype=kind)
    assert torch.equal(out, x)


def test_addresses_of_annotated_pointers(traced: Any) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    annotated[(1,)](x.data_ptr(), out, N=8)
    assert torch.equal(out, x)
    annotated[(1,)](x + 1, out.data_ptr(), N=8)
    assert torch.equal(out, x + 1)
    annotated_option[(1,)](x, None, out, N=8)  # None is the null pointer
    assert torch.equal(out, x)
    annotated_option[(1,)](x, torch.ones(8), out, N=8)
    assert torch.equal(out, x + 1)


@pytest.mark.parametrize("value", [2.5, np.int64(5), "text", (1,), -1, 2**64])
def test_what_is_no_pointer_is_refused(value: Any, refused: Any) -> None:
    out = torch.full((8,), 5.0)
    with pytest.raises(tritontrace.ArgumentError, match="argument 'x_ptr' of kernel 'annotated'"):
        annotated[(1,)](value, out, N=8)
    assert out.tolist() == [5.0] * 8


def test_a_wild_address_is_reported_and_not_touched() -> None:
    out = torch.full((4,), 5.0)
    for address in (0, 8, 12345, 2**47 - 64, 2**63, 2**64 - 64):
        with tritontrace.session(clients=["sanitizer"]) as session:
            annotated[(1,)](address, out, N=4)
        (finding,) = session.findings
        assert finding.access == "load" and finding.lanes.tolist() == [0, 1, 2, 3]
        assert out.tolist() == [0.0] * 4
    with tritontrace.session() as session, pytest.raises(tritontrace.OutOfBoundsError, match="register_memory"):
        load_from_integer[(1,)](2**40, out, N=4, dtype=tl.float32)


def test_a_kernel_sees_the_address_that_python_sees(traced: Any) -> None:
    base, out = torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    for x in (base, base[7:], base.view(8, 8).t(), triton.reinterpret(base, tl.int32), torch.zeros(0)):
        address_of[(1,)](x, out)
        assert out.item() == x.data_ptr()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64], ids=str)
def test_arrays_of_addresses(dtype: torch.dtype, traced: Any) -> None:
    sources = [torch.arange(8.0) + 10 * i for i in range(5)]
    targets = [torch.zeros(8) for _ in range(5)]
    addresses = torch.tensor([tensor.data_ptr() for tensor in sources + targets], dtype=dtype)
    grouped[(5,)](addresses, 5, N=8)
    for source, target in zip(sources, targets, strict=True):
        assert torch.equal(target, 2 * source)


def test_arrays_of_addresses_of_registered_memory() -> None:
    source, target = np.arange(8, dtype=np.float32), np.zeros(8, dtype=np.float32)  # memory that torch does not know
    addresses = torch.tensor([source.ctypes.data, target.ctypes.data])
    with tritontrace.session(clients=["sanitizer"]) as session:
        grouped[(1,)](addresses, 1, N=8)
        assert target.tolist() == [0.0] * 8 and {finding.access for finding in session.findings} == {"load", "store"}
    with tritontrace.session(clients=["sanitizer"]) as session:
        with pytest.raises(TypeError, match="from_numpy"):
            session.register_memory(source)
        session.register_memory(torch.from_numpy(source), torch.from_numpy(target))
        grouped[(1,)](addresses, 1, N=8)
    assert session.findings == [] and np.array_equal(target, 2 * source)


def test_pointers_to_pointers(traced: Any) -> None:
    value = torch.tensor([1234])
    chain = [value]
    for _ in range(3):
        chain.append(torch.tensor([chain[-1].data_ptr()]))
    out = torch.zeros(1, dtype=torch.int64)
    chased[(1,)](chain[3], out, 2)
    assert out.item() == 1234
    chased[(1,)](chain[3], out, 1)
    assert out.item() == value.data_ptr()


# -- objects that point ---------------------------------------------------------------------------------------------


class Pointer:
    """What Triton asks of a pointer: an address and a dtype."""

    def __init__(self, tensor: Any, dtype: Any = None) -> None:
        self.tensor = tensor
        self.dtype = dtype or tensor.dtype

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()

    def __repr__(self) -> str:
        raise AssertionError("nobody needs to print it")


class Array:
    """The same over memory that torch knows nothing of."""

    dtype = torch.float32

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return self.array.ctypes.data


def test_objects_with_a_data_ptr(traced: Any) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    copy[(1,)](Pointer(x), out, N=8)
    assert torch.equal(out, x)
    copy[(1,)](x + 1, Pointer(out), N=8)
    assert torch.equal(out, x + 1)
    copy[(1,)](Pointer(x.view(torch.int32), tl.float32), out, N=8)
    assert torch.equal(out, x)
    copy[(1,)](Pointer(x[3:]), out, N=4)
    assert out[:4].tolist() == [3, 4, 5, 6]


@pytest.mark.filterwarnings("ignore:TypedStorage:UserWarning")
def test_a_storage_is_a_pointer(traced: Any) -> None:
    storage = torch.FloatStorage([float(i) for i in range(8)])
    out = torch.zeros(8)
    copy[(1,)](storage, out, N=8)
    assert out.tolist() == list(range(8))


def test_an_object_that_points_outside_is_reported() -> None:
    x, out = torch.arange(8.0), torch.full((16,), 5.0)
    with tritontrace.session(clients=["sanitizer"]) as session:
        copy[(1,)](Pointer(x), out, N=16)
    assert [finding.access for finding in session.findings] == ["load"]
    assert session.findings[0].lanes.tolist() == list(range(8, 16))
    assert out.tolist() == [*x.tolist(), *[0.0] * 8]


def test_foreign_memory_has_to_be_named() -> None:
    array, out = np.arange(8, dtype=np.float32), torch.zeros(8)
    with tritontrace.session(clients=["sanitizer"]) as session:
        copy[(1,)](Array(array), out, N=8)
    (finding,) = session.findings
    assert "register_memory" in finding.message and out.tolist() == [0.0] * 8
    with tritontrace.session(clients=["sanitizer"]) as session:
        session.register_memory(torch.from_numpy(array))
        copy[(1,)](Array(array), out, N=8)
    assert session.findings == [] and out.tolist() == array.tolist()


def test_what_an_object_raises_reaches_the_user_as_it_is(refused: Any) -> None:
    class Broken(Pointer):
        def data_ptr(self) -> int:
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        copy[(1,)](Broken(torch.zeros(8)), torch.zeros(8), N=8)


@pytest.mark.parametrize("address", ["0x10", 2.5, None, -1])
def test_an_address_that_is_none_is_refused(address: Any, refused: Any) -> None:
    class Odd(Pointer):
        def data_ptr(self) -> Any:
            return address

    with pytest.raises((tritontrace.ArgumentError, TypeError), match="argument 'x_ptr' of kernel 'copy'"):
        copy[(1,)](Odd(torch.zeros(8)), torch.zeros(8), N=8)


def test_a_mock_tensor_is_the_null_pointer() -> None:
    with tritontrace.session(clients=["sanitizer"]) as session:
        copy[(1,)](MockTensor(torch.float32), torch.zeros(8), N=8)
    assert [finding.details["first_address"] for finding in session.findings] == [0]


# -- reinterpreted tensors --------------------------------------------------------------------------------------------

SAME_WIDTH = [
    (torch.int8, tl.float8e5, torch.float8_e5m2),
    (torch.uint8, tl.float8e4nv, torch.float8_e4m3fn),
    (torch.int8, tl.uint8, torch.uint8),
    (torch.float8_e5m2, tl.int8, torch.int8),
    (torch.int16, tl.bfloat16, torch.bfloat16),
    (torch.uint16, tl.float16, torch.float16),
    (torch.float32, tl.int32, torch.int32),
    (torch.int64, tl.float64, torch.float64),
]


@triton.jit
def widen(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets).to(tl.float64))


@pytest.mark.parametrize(("torch_dtype", "triton_dtype", "meant"), SAME_WIDTH, ids=lambda d: str(d).removeprefix("torch."))
def test_fault_16_reinterpreted_tensors(torch_dtype: Any, triton_dtype: Any, meant: Any, traced: Any, bits: Any) -> None:
    raw = (torch.arange(64) * 37 % 256).to(torch.uint8)
    x = raw.view(torch_dtype)
    wrapped = triton.reinterpret(x, triton_dtype)
    n = x.numel()
    out = torch.zeros(n, dtype=torch.float64)
    widen[(1,)](wrapped, out, N=n)
    torch.testing.assert_close(out, x.view(meant).to(torch.float64), rtol=0, atol=0, equal_nan=True)
    target = torch.zeros(64, dtype=torch.uint8)
    copy[(1,)](wrapped, triton.reinterpret(target.view(torch_dtype), triton_dtype), N=n)
    assert bits(target) == bits(raw)


def test_fault_16_reinterpreted_twice_and_back(traced: Any) -> None:
    x, out = torch.arange(8, dtype=torch.int8), torch.zeros(8)
    twice = triton.reinterpret(triton.reinterpret(x, tl.float8e5), tl.float8e4nv)
    widen[(1,)](twice, out, N=8)
    assert torch.equal(out, x.view(torch.float8_e4m3fn).float())
    assert triton.reinterpret(twice, torch.int8) is x
    info = traced.launches[0].argument("x_ptr")
    assert (info.dtype, info.type, info.shape) == ("fp8e4nv", "*fp8e4nv", (8,))


def test_a_wrapped_view_is_bounded_by_its_view() -> None:
    base = torch.arange(32, dtype=torch.int8)
    out = torch.zeros(16)
    with tritontrace.session(clients=["sanitizer"]) as session:
        widen[(1,)](triton.reinterpret(base[4:12], tl.uint8), out, N=16)
    (finding,) = session.findings
    assert (finding.tensor, finding.elements.tolist()) == ("x_ptr", list(range(8, 16)))
