"""Known faults 13, 16, 48, 51: arguments, grids, and the kernel as an object that other code handles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import tritontrace


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []


@triton.jit
def copy_matrix_kernel(x_ptr, out_ptr, rows, cols, stride_xm, stride_xn, stride_om, stride_on, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + offsets * stride_xn, mask=offsets < cols)
    tl.store(out_ptr + row * stride_om + offsets * stride_on, x, mask=offsets < cols)


def copy_matrix(x: torch.Tensor, out: torch.Tensor) -> None:
    copy_matrix_kernel[(x.shape[0],)](x, out, *x.shape, *x.stride(), *out.stride(), BLOCK=16)


def views() -> dict[str, torch.Tensor]:
    base = torch.arange(400, dtype=torch.float32).reshape(20, 20)
    return {
        "split": torch.split(base, 7, dim=1)[1],
        "offset": base[3:9, 5:15],
        "transposed": base.t()[2:6, :8],
        "every second": base[::2, 1::3],
        "expanded": base[:1, :8].expand(5, 8),
        "as_strided": base.as_strided((4, 6), (50, 3), 17),
        "last row": base[19:],
    }


@pytest.mark.parametrize("name", list(views()))
def test_fault_16_views_are_read_right(name: str) -> None:
    x = views()[name]
    x = x[:, :16]
    out = torch.zeros(x.shape)
    copy_matrix(x, out)
    assert torch.equal(out, x)


@pytest.mark.parametrize("name", [n for n in views() if n != "expanded"])
def test_fault_16_views_are_written_right(name: str) -> None:
    out = views()[name][:, :16]
    want_base = out._base.clone() if out._base is not None else out.clone()
    x = -torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape)
    copy_matrix(x, out)
    assert torch.equal(out, x)
    # nothing beside the view was written
    want_base.as_strided(out.shape, out.stride(), out.storage_offset()).copy_(x)
    assert out._base is None or torch.equal(out._base, want_base)


@triton.jit
def widen_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets).to(tl.float32))


def test_fault_16_reinterpreted_tensor() -> None:
    x = torch.randn(16).to(torch.float8_e5m2)
    out = torch.zeros(16)
    widen_kernel[(1,)](triton.reinterpret(x.view(torch.int8), tl.float8e5), out, BLOCK=16)
    assert torch.equal(out, x.float())


@triton.jit
def add_scalar_kernel(x_ptr, s_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(s_ptr), mask=mask)


def test_fault_16_zero_dimensional_tensors_and_a_tensor_in_the_grid() -> None:
    x, s = torch.randn(40), torch.tensor(2.5)
    out = torch.zeros(40)
    add_scalar_kernel[(torch.tensor(3),)](x, s, out, 40, BLOCK=16)
    assert torch.equal(out, x + 2.5)


def test_fault_16_empty_tensors() -> None:
    x, s = torch.empty(0), torch.tensor(1.0)
    out = torch.empty(0)
    add_scalar_kernel[(1,)](x, s, out, 0, BLOCK=16)


@triton.jit
def optional_kernel(x_ptr, bias_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + offsets)
    tl.store(out_ptr + offsets, x)


def test_fault_16_none_arguments() -> None:
    x, bias = torch.randn(8), torch.randn(8)
    out = torch.zeros(8)
    optional_kernel[(1,)](x, None, out, BLOCK=8)
    assert torch.equal(out, x)
    optional_kernel[(1,)](x, bias, out, BLOCK=8)
    assert torch.equal(out, x + bias)


@triton.jit
def descriptor_copy_kernel(x, out, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col = tl.program_id(0) * ROWS, tl.program_id(1) * COLS
    out.store([row, col], x.load([row, col]) * 2)


def test_fault_16_host_descriptors_over_views() -> None:
    base = torch.arange(40 * 40, dtype=torch.float32).reshape(40, 40)
    x, out = base[4:24, 8:28], torch.zeros(20, 20)
    descriptors = TensorDescriptor.from_tensor(x, [8, 16]), TensorDescriptor.from_tensor(out, [8, 16])
    descriptor_copy_kernel[(3, 2)](*descriptors, ROWS=8, COLS=16)
    assert torch.equal(out, 2 * x)


@triton.jit
def tuple_kernel(tensors, out_ptr, scales, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(len(tensors)):
        total += tl.load(tensors[i] + offsets) * scales[i]
    tl.store(out_ptr + offsets, total)


def test_fault_16_tuples_of_tensors() -> None:
    tensors = tuple(torch.randn(8) for _ in range(3))
    out = torch.zeros(8)
    tuple_kernel[(1,)](tensors, out, (1.0, 2, 0.5), BLOCK=8)
    torch.testing.assert_close(out, tensors[0] + 2 * tensors[1] + 0.5 * tensors[2])


@triton.jit
def count_kernel(out_ptr, B: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    tl.store(out_ptr + x + nx * (y + ny * z), nx * 10_000 + ny * 100 + nz)


GRIDS = {
    "list": ([4], (4, 1, 1)),
    "tuple": ((3, 2), (3, 2, 1)),
    "three": ((2, 3, 2), (2, 3, 2)),
    "numpy": ((np.int64(3), np.int32(2)), (3, 2, 1)),
    "callable": (lambda meta: (meta["B"], 2), (4, 2, 1)),
    "callable that gives a list": (lambda meta: [meta["B"]], (4, 1, 1)),
}


@pytest.mark.parametrize("name", list(GRIDS))
def test_fault_48_forms_of_a_grid(name: str, traced) -> None:
    grid, (nx, ny, nz) = GRIDS[name]
    out = torch.zeros(nx * ny * nz + 4, dtype=torch.int32)
    count_kernel[grid](out, B=4)
    assert out[:-4].tolist() == [nx * 10_000 + ny * 100 + nz] * (nx * ny * nz)
    assert out[-4:].tolist() == [0] * 4
    assert traced.launches[0].grid == (nx, ny, nz)


@pytest.mark.parametrize("grid", [(0,), (3, 0), (0, 2, 2), lambda meta: (0,)], ids=["x", "y", "x of three", "callable"])
def test_fault_48_an_empty_grid_runs_nothing(grid, traced) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    count_kernel[grid](out, B=4)
    assert out.tolist() == [0] * 4
    assert [launch.completed for launch in traced.launches] == [True]
    assert traced.launches[0].n_programs == 0


def to_jit_function(kernel):
    """What libraries do to reach the JITFunction under decorators."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def heuristic_kernel(out_ptr, n, EVEN: tl.constexpr):
    tl.store(out_ptr, 1 if EVEN else 2)


@pytest.mark.parametrize("kernel", [count_kernel, heuristic_kernel], ids=["jit", "heuristics"])
def test_fault_13_walking_down_to_the_jit_function_ends(kernel) -> None:
    traced = tritontrace.trace(kernel, clients=["tracer"])
    found = to_jit_function(traced)
    assert isinstance(found, JITFunction)
    assert found.fn is to_jit_function(kernel).fn
    again = tritontrace.trace(traced, clients=["sanitizer"])
    assert isinstance(to_jit_function(again), JITFunction)


def test_fault_51_a_traced_kernel_is_a_jit_function() -> None:
    traced = tritontrace.trace(count_kernel, clients=["tracer"])
    assert isinstance(traced, JITFunction)
    assert traced.signature == count_kernel.signature
    assert traced.arg_names == ["out_ptr", "B"]
    assert traced.cache_key == count_kernel.cache_key
    assert traced.src == count_kernel.src
    assert traced.params[1].is_constexpr


@pytest.mark.parametrize("how", ["launch", "warmup"])
def test_fault_51_what_a_launch_returns_is_a_compiled_kernel(how: str) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    if how == "launch":
        compiled = count_kernel[(4,)](out, B=4, num_warps=2)
    else:
        compiled = count_kernel.warmup(out, B=4, num_warps=2, grid=(4,))
        assert out.tolist() == [0] * 4
        compiled[(4, 1, 1)](out, 4)
    assert out.tolist() == [40_101] * 4
    assert compiled.metadata.num_warps == 2
    assert "count_kernel" in compiled.asm["ttir"]
    assert ".entry" in compiled.asm["ptx"]
    assert compiled.n_regs > 0 and compiled.n_spills == 0
