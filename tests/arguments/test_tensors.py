"""Known fault 16: tensors of every dtype, shape, stride and class are read and written right, or refused with a way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import tritontrace


@triton.jit
def copy(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def copy_strided(x_ptr, out_ptr, n0, n1, n2, sx0, sx1, sx2, so0, so1, so2, B: tl.constexpr):
    i = tl.program_id(0)
    j = tl.arange(0, B)[:, None]
    k = tl.arange(0, B)[None, :]
    mask = (j < n1) & (k < n2)
    x = tl.load(x_ptr + i * sx0 + j * sx1 + k * sx2, mask=mask)
    tl.store(out_ptr + i * so0 + j * so1 + k * so2, x, mask=mask)


@triton.jit
def widen(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets).to(tl.float32))


@triton.jit
def increment(x_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + 1)


def copied(x: torch.Tensor) -> torch.Tensor:
    """`x` of three axes, through its strides, into new memory."""
    out = torch.zeros(x.shape, dtype=x.dtype)
    copy_strided[(x.shape[0],)](x, out, *x.shape, *x.stride(), *out.stride(), B=16)
    return out


# -- dtypes -------------------------------------------------------------------------------------------------------

WHOLE = [torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
REAL = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
NAMES = {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16"}
REFUSED = [
    *(torch.complex32, torch.complex64, torch.complex128),
    *(
        getattr(torch, name)
        for name in ("float8_e8m0fnu", "float4_e2m1fn_x2", "uint4", "int4", "uint7", "bits8")
        if hasattr(torch, name)
    ),
]
short = lambda dtype: str(dtype).removeprefix("torch.")


def every_byte(dtype: torch.dtype) -> torch.Tensor:
    """512 bytes as elements of `dtype`: all 256 patterns of an 8-bit one, twice; a boolean holds 0 or 1."""
    raw = torch.arange(512).to(torch.uint8)
    return (raw % 3 == 0) if dtype is torch.bool else raw.view(dtype)


@pytest.mark.parametrize("dtype", [*WHOLE, *REAL, *FP8], ids=short)
def test_every_dtype_is_moved_bit_by_bit(dtype: torch.dtype, traced: Any, bits: Any) -> None:
    x = every_byte(dtype)
    out = (
        torch.zeros(x.shape, dtype=torch.uint8).to(dtype)
        if dtype in WHOLE[:6]
        else torch.zeros(512, dtype=torch.uint8).view(dtype)
    )
    copy[(1,)](x, out, N=x.numel())
    assert bits(out) == bits(x)
    info = traced.launches[0].argument("x_ptr")
    assert (info.dtype, info.shape, info.element_bytes) == (short(dtype), tuple(x.shape), x.element_size())


@pytest.mark.parametrize("dtype", [*WHOLE, *REAL, *FP8], ids=short)
def test_every_dtype_has_torchs_values(dtype: torch.dtype, traced: Any) -> None:
    x = every_byte(dtype)[:64]
    out = torch.zeros(64)[: x.numel()]
    widen[(1,)](x, out, N=x.numel())
    torch.testing.assert_close(out, x.to(torch.float32), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", REFUSED, ids=short)
def test_dtypes_that_triton_lacks_are_refused_with_a_way_out(dtype: torch.dtype, refused: Any) -> None:
    raw = torch.zeros(64, dtype=torch.uint8)
    x = torch.zeros(4, dtype=dtype) if dtype.is_complex else raw.view(dtype)
    out = torch.full((4,), 7.0)
    way_out = r"torch\.view_as_real" if dtype.is_complex else r"view\(torch\.uint8\)"
    with pytest.raises(tritontrace.ArgumentError, match=rf"argument 'x_ptr' of kernel 'copy' is a tensor of {dtype}.*{way_out}"):
        copy[(1,)](x, out, N=4)
    with pytest.raises(tritontrace.ArgumentError, match="argument 'out_ptr'"):
        copy[(1,)](out, x, N=4)
    assert out.tolist() == [7.0] * 4


def test_the_way_out_of_complex_numbers_works(traced: Any) -> None:
    x = torch.complex(torch.arange(4.0), -torch.arange(4.0))
    out = torch.zeros_like(x)
    copy[(1,)](torch.view_as_real(x), torch.view_as_real(out), N=8)
    assert torch.equal(out, x)
    imaginary = torch.zeros(1, 1, 4)
    copy_strided[(1,)](x.imag, imaginary, 1, 1, 4, 0, 0, x.imag.stride(0), *imaginary.stride(), B=16)
    assert imaginary.flatten().tolist() == [0, -1, -2, -3]


# -- shapes and strides ---------------------------------------------------------------------------------------------

BASE = torch.arange(8 * 12 * 14, dtype=torch.float32).reshape(8, 12, 14)
VIEWS = {
    "whole": lambda base: base,
    "split": lambda base: base.split(5, dim=2)[1],
    "chunk": lambda base: base.chunk(3, dim=1)[2],
    "unbind": lambda base: base.unbind(1)[4][None],
    "narrow": lambda base: base.narrow(1, 3, 6),
    "offset": lambda base: base[2:5, 3:9, 4:11],
    "steps": lambda base: base[::3, 1::2, ::5],
    "transposed": lambda base: base.transpose(1, 2),
    "permuted": lambda base: base.permute(2, 0, 1),
    "moved": lambda base: base.movedim(0, -1),
    "diagonal": lambda base: base.diagonal(dim1=0, dim2=1)[None],
    "unfold": lambda base: base[0].unfold(1, 4, 2),
    "last element": lambda base: base[7:, 11:, 13:],
    "column": lambda base: base[:, :, 3:4],
    "strided by hand": lambda base: base.as_strided((4, 3, 5), (100, 31, 7), 17),
    "reshaped": lambda base: base.view(2, 4, 12, 14)[1],
    "real view": lambda base: torch.view_as_complex(base.view(8, 12, 7, 2)).real,
}
OVERLAPPING = {
    "expanded": lambda base: base[:1, :, :1].expand(3, 12, 6),
    "broadcast": lambda base: base[0, 0].broadcast_to(5, 4, 14),
    "windows": lambda base: base[0].unfold(1, 6, 1),
    "strided onto itself": lambda base: base.as_strided((4, 5, 6), (3, 2, 1), 11),
    "all one": lambda base: torch.tensor(5.0).expand(3, 4, 5),
}


@pytest.mark.parametrize("name", [*VIEWS, *OVERLAPPING])
def test_fault_16_a_view_is_read_right(name: str, traced: Any) -> None:
    x = {**VIEWS, **OVERLAPPING}[name](BASE.clone())
    assert torch.equal(copied(x), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn], ids=short)
@pytest.mark.parametrize("name", list(VIEWS)[:-1])
def test_fault_16_a_view_is_written_right_and_nothing_beside_it(name: str, dtype: torch.dtype, traced: Any, bits: Any) -> None:
    base = (BASE % 100).to(dtype)
    out = VIEWS[name](base)
    want = base.clone()
    x = (torch.arange(out.numel()).reshape(out.shape) % 50).to(dtype)
    want.as_strided(out.shape, out.stride(), out.storage_offset()).copy_(x)
    copy_strided[(out.shape[0],)](x, out, *out.shape, *x.stride(), *out.stride(), B=16)
    assert bits(base) == bits(want)


def test_fault_16_every_element_of_an_expanded_output_is_one_cell(traced: Any) -> None:
    cell = torch.zeros(1)
    out = cell.expand(2, 3, 4)
    copy_strided[(2,)](torch.full((2, 3, 4), 6.0), out, *out.shape, 12, 4, 1, *out.stride(), B=16)
    assert cell.item() == 6.0


def test_an_expanded_output_written_as_if_contiguous_is_a_fault() -> None:
    out = torch.zeros(1).expand(4)
    with tritontrace.session(clients=["sanitizer"]) as session:
        copy[(1,)](torch.ones(4), out, N=4)
    (finding,) = session.findings
    assert (finding.access, finding.tensor, finding.elements.tolist()) == ("store", "out_ptr", [1, 2, 3])


@st.composite
def strided(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    shape = tuple(draw(st.integers(1, 6)) for _ in range(3))
    stride = tuple(draw(st.integers(0, 25)) for _ in range(3))
    return shape, stride, draw(st.integers(0, 30))


@given(strided())
@settings(deadline=None, max_examples=60)
def test_fault_16_any_strides_are_read_right(view: tuple[tuple[int, ...], tuple[int, ...], int]) -> None:
    shape, stride, offset = view
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    x = torch.arange(float(last + 1)).as_strided(shape, stride, offset)
    with tritontrace.session(clients=["sanitizer"]) as session:
        assert torch.equal(copied(x), x)
    assert session.findings == []


@triton.jit
def backwards(x_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + (n - 1 - offsets), mask=offsets < n), mask=offsets < n)


def test_negative_strides_in_the_kernel(traced: Any) -> None:
    # torch has no tensors of negative stride; a kernel may walk backwards from the start of one all the same
    x, out = torch.arange(13.0), torch.zeros(13)
    backwards[(1,)](x, out, 13, N=16)
    assert torch.equal(out, x.flip(0))


@triton.jit
def guarded_copy(x_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


EMPTY = {
    "no elements": lambda: torch.empty(0),
    "no rows": lambda: torch.empty(0, 4),
    "no columns": lambda: torch.empty(3, 0),
    "empty slice": lambda: torch.zeros(8)[8:],
    "empty middle": lambda: torch.zeros(8)[3:3],
    "no storage": lambda: torch.zeros(8).set_(),
}


@pytest.mark.parametrize("name", list(EMPTY))
def test_fault_16_empty_tensors(name: str, traced: Any) -> None:
    x = EMPTY[name]()
    guarded_copy[(4,)](x, torch.empty(0), 0, N=8)
    guarded_copy[(4,)](torch.ones(8), x, 0, N=8)
    assert traced.launches[0].argument("x_ptr").shape == tuple(x.shape)


@pytest.mark.parametrize("name", list(EMPTY))
def test_an_element_of_an_empty_tensor_is_out_of_bounds(name: str) -> None:
    out = torch.zeros(2)
    with tritontrace.session(clients=["sanitizer"]) as session:
        guarded_copy[(1,)](EMPTY[name](), out, 2, N=8)
    (finding,) = session.findings
    assert (finding.access, finding.tensor, finding.elements.tolist()) == ("load", "x_ptr", [0, 1])


@pytest.mark.parametrize("dtype", [*WHOLE, *REAL, *FP8], ids=short)
def test_fault_16_zero_dimensional_tensors(dtype: torch.dtype, traced: Any, bits: Any) -> None:
    x = every_byte(dtype)[3].clone()
    out = torch.zeros((), dtype=torch.uint8).to(dtype) if dtype in WHOLE[:6] else torch.zeros(8, dtype=torch.uint8).view(dtype)[0]
    assert x.dim() == out.dim() == 0
    guarded_copy[(1,)](x, out, 1, N=4)
    assert bits(out) == bits(x)


# -- classes of tensors ---------------------------------------------------------------------------------------------


class Polite(torch.Tensor):
    """A subclass that passes everything on, and counts."""

    seen = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Misleading(torch.Tensor):
    """A subclass that says other things of itself than its memory does."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return torch.Size([1_000_000])

    def stride(self, *args: Any) -> Any:  # type: ignore[override]
        return (77,)


class OnlyWhatTritonAsks(torch.Tensor):
    """A subclass that lets nothing through but the two questions that Triton asks."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (torch.Tensor.data_ptr, torch.Tensor.dtype.__get__):
            raise AssertionError(f"asked for {func}")
        return super().__torch_function__(func, types, args, kwargs or {})


class Elsewhere(torch.Tensor):
    """A subclass whose kernels work on another tensor's memory."""

    other: torch.Tensor

    def data_ptr(self) -> int:
        return self.other.data_ptr()


@pytest.mark.parametrize("kind", [Polite, Misleading, OnlyWhatTritonAsks])
def test_subclasses_are_their_memory(kind: Any, traced: Any) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    copy[(1,)](x.as_subclass(kind), out, N=8)
    assert torch.equal(out, x)
    copy[(1,)](torch.ones(8), out.as_subclass(kind), N=8)
    assert out.tolist() == [1.0] * 8


def test_what_a_subclass_raises_reaches_the_user_as_it_is(refused: Any) -> None:
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        copy[(1,)](torch.zeros(8).as_subclass(Refusing), torch.zeros(8), N=8)


def test_an_overridden_data_ptr_is_asked_as_triton_asks_it(traced: Any) -> None:
    x, out = torch.zeros(8).as_subclass(Elsewhere), torch.zeros(8)
    x.other = torch.arange(8.0)
    copy[(1,)](x, out, N=8)
    assert torch.equal(out, torch.arange(8.0))


def test_parameters_buffers_and_tensors_that_require_grad(traced: Any) -> None:
    weight = torch.nn.Parameter(torch.arange(8.0))
    out = torch.zeros(8, requires_grad=True)
    copy[(1,)](weight, out, N=8)
    assert torch.equal(out, weight) and out.requires_grad and out.grad_fn is None
    increment[(1,)](weight, N=8)
    assert torch.equal(weight.data, torch.arange(8.0) + 1)
    halfway = weight * 2
    copy[(1,)](halfway, out, N=8)
    assert torch.equal(out, halfway) and halfway.grad_fn is not None
    with torch.inference_mode():
        frozen = torch.arange(8.0)
        increment[(1,)](frozen, N=8)
        assert torch.equal(frozen, torch.arange(8.0) + 1)


def test_bits_that_torch_keeps_beside_the_memory_do_not_reach_a_kernel(traced: Any) -> None:
    # as on a GPU: a kernel gets the address, and lazy negation or conjugation is not there
    negated = torch._neg_view(torch.arange(8.0))
    out = torch.zeros(8)
    copy[(1,)](negated, out, N=8)
    assert negated[3] == -3 and torch.equal(out, torch.arange(8.0))


class Wrapper(torch.Tensor):
    """A wrapper subclass: a tensor without memory around another one."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.zeros(8)


WITHOUT_MEMORY = {
    "meta": (lambda: torch.zeros(8, device="meta"), "meta device.*empty_like"),
    "fake": (fake, "FakeTensor.*empty_like"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "layout sparse_coo.*to_dense"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "layout sparse_csr.*to_dense"),
    "wrapper": (lambda: Wrapper(torch.zeros(8)), "Wrapper.*pass the tensors that it is made of"),
    "zero": (lambda: torch._efficientzerotensor(8), "clone"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.zeros(8), 0.1, 0, torch.quint8), "int_repr"),
}


@pytest.mark.filterwarnings(
    "ignore:Sparse:UserWarning", "ignore:torch.quantize:UserWarning", "ignore:.*quantiz.*:DeprecationWarning"
)
@pytest.mark.parametrize("side", ["x_ptr", "out_ptr"])
@pytest.mark.parametrize("name", list(WITHOUT_MEMORY))
def test_tensors_without_memory_are_refused_with_a_way_out(name: str, side: str, refused: Any) -> None:
    make, way_out = WITHOUT_MEMORY[name]
    real = torch.full((8,), 3.0)
    arguments = (make(), real) if side == "x_ptr" else (real, make())
    with pytest.raises(tritontrace.ArgumentError, match=way_out) as caught:
        copy[(1,)](*arguments, N=8)
    assert f"argument {side!r} of kernel 'copy'" in str(caught.value)
    assert real.tolist() == [3.0] * 8


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_tensors_inside_a_transform_are_refused_with_a_way_out(transform: str, refused: Any) -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        copy[(1,)](x, torch.zeros(8), N=8)
        return x.sum()

    function = torch.func.vmap(launch) if transform == "vmap" else torch.func.grad(launch)
    with pytest.raises(tritontrace.ArgumentError, match=r"torch\.func transform.*custom_op"):
        function(torch.zeros(2, 8) if transform == "vmap" else torch.zeros(8))


def test_nothing_is_refused_that_is_not_touched(traced: Any) -> None:
    # an empty grid and a warmup need no memory
    copy[(0,)](torch.zeros(8, device="meta"), torch.zeros(8), N=8)
    compiled = copy.warmup(torch.zeros(8, device="meta"), torch.float32, N=8, grid=(1,))
    assert "copy" in compiled.asm["ttir"]
