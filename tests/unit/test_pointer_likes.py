"""Arguments that are no tensors and that Triton takes for pointers: anything with ``data_ptr()`` and ``dtype``."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import tritontrace
from tritontrace.clients.extents import Extent


class Pointer:
    """The least that Triton asks for."""

    def __init__(self, tensor, offset=0, dtype=None):
        self._keep, self.dtype = tensor, dtype or tensor.dtype
        self._address = tensor.data_ptr() + offset * self.dtype.itemsize

    def data_ptr(self):
        return self._address


class View(Pointer):
    """As FlagGems' StridedBuffer: a view of its own, which torch may not have."""

    def __init__(self, tensor, shape, strides, offset=0, dtype=None):
        super().__init__(tensor, offset, dtype)
        self.shape, self._strides = shape, strides

    def stride(self):
        return self._strides

    def untyped_storage(self):
        return self._keep.untyped_storage()


@triton.jit
def add_one(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n) + 1, mask=i < n)


N = 40
CLIENTS = [[], ["tracer"], ["sanitizer"]]


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("offset", [0, 3])
def test_a_bare_pointer_reaches_the_tensor_that_it_points_into(clients, offset):
    x, out = torch.randn(N + 3), torch.zeros(N + 3)
    with tritontrace.session(clients=clients) as session:
        add_one[(3,)](Pointer(x, offset), Pointer(out, offset), 1, N, BLOCK=16)
    assert torch.equal(out[offset : offset + N], x[offset : offset + N] + 1) and not out[:offset].any()
    assert session.findings == [] and session.launches[0].completed
    info = session.launches[0].argument("x")
    assert info.is_tensor and info.data_ptr == x.data_ptr() + 4 * offset and info.storage_bytes == 4 * (N + 3)
    assert (info.shape, info.dtype, info.element_bytes) == (None, "float32", 4)
    assert info.to_dict() == {"name": "x", "type": "*fp32", "shape": None, "stride": None, "dtype": "float32", "device": "cpu"}


def test_a_bare_pointer_is_bounded_by_its_storage():
    x, out = torch.randn(N), torch.zeros(N)
    with tritontrace.session(clients=["sanitizer"]) as session:
        add_one[(3,)](Pointer(x, 8), out, -1, 16, BLOCK=16)
    (finding,) = session.findings
    assert finding.tensor == "x" and finding.elements.tolist() == list(range(-15, -8))
    assert torch.equal(out[:9], x[:9].flip(0) + 1)
    assert "a pointer without a shape" in str(session.report())
    with pytest.raises(tritontrace.OutOfBoundsError, match=r"load of x\[-9\]"), tritontrace.session():
        add_one[(3,)](Pointer(x, 8), out, -1, 16, BLOCK=16)


@pytest.mark.parametrize("clients", CLIENTS)
def test_a_view_that_runs_backwards(clients):
    x, out = torch.randn(N), torch.zeros(N)
    with tritontrace.session(clients=clients) as session:
        add_one[(3,)](View(x, (N,), (-1,), N - 1), View(out, (N,), (1,)), -1, N, BLOCK=16)
    assert torch.equal(out, x.flip(0) + 1) and session.findings == []


def test_what_lies_outside_of_the_view_is_found():
    x, out = torch.randn(N), torch.zeros(N)
    with tritontrace.session(clients=["sanitizer"]) as session:
        add_one[(1,)](View(x, (4,), (-2,), 10), View(out, (8,), (1,)), -1, 8, BLOCK=8)
    (finding,) = session.findings
    assert finding.tensor == "x" and finding.elements.tolist() == [-7, -5, -3, -1]


@pytest.mark.parametrize("clients", CLIENTS)
def test_another_type_than_the_tensors(clients):
    x, out = torch.randint(0, 2, (N,)).bool(), torch.zeros(N, dtype=torch.int8)
    with tritontrace.session(clients=clients):
        add_one[(3,)](View(x, (N,), (1,), dtype=torch.int8), Pointer(out), 1, N, BLOCK=16)
    assert torch.equal(out, x.to(torch.int8) + 1)


@pytest.mark.parametrize("clients", [[], ["sanitizer"]])
def test_an_address_that_is_nobodys_is_reported(clients):
    class Wild:
        dtype = torch.float32

        def data_ptr(self):
            return 64

    out = torch.zeros(N)
    if clients:
        with tritontrace.session(clients=clients) as session:
            add_one[(1,)](Wild(), out, 1, 8, BLOCK=8)
        (finding,) = session.findings
        assert finding.access == "load" and "in no known memory" in finding.message
    else:
        with pytest.raises(tritontrace.OutOfBoundsError, match="lies in no tensor of this launch"), tritontrace.session():
            add_one[(1,)](Wild(), out, 1, 8, BLOCK=8)


def test_trials_write_to_no_memory_of_the_users():
    x, out = torch.zeros(N), torch.zeros(N)
    tuned = triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])(add_one)
    with tritontrace.session(clients=["sanitizer"]) as session:
        tuned[(3,)](Pointer(x), Pointer(x), 1, N)
        assert len(session.launches[0].trials) == 2
        tuned[(3,)](View(x, (N,), (1,)), View(out, (N,), (1,)), 1, N)
    assert torch.equal(x, torch.ones(N)) and torch.equal(out, torch.full((N,), 2.0)) and session.findings == []


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-7, 7)), max_size=3), st.sampled_from([1, 2, 4]))
def test_the_extent_of_a_view_with_any_strides(dims, width):
    shape, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    offsets = np.zeros(1, np.int64)
    for n, s in dims:
        offsets = (offsets[:, None] + np.arange(n) * s).ravel()
    extent = Extent(1000, shape, strides, width)
    low, high = offsets.min(), offsets.max()
    assert (extent.first, extent.last) == (1000 + low * width, 1000 + (high + 1) * width)
    probe = np.arange(low - 3, high + 4)
    assert np.array_equal(extent.outside(1000 + probe * width, width), ~np.isin(probe, offsets))


def test_the_users_torch_modes_see_nothing_of_it():
    seen = []

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x, out = torch.randn(N), torch.zeros(N)
    with tritontrace.session(clients=["sanitizer"]), Dispatched(), torch.device("meta"):
        add_one[(3,)](Pointer(x), View(out, (N,), (1,)), 1, N, BLOCK=16)
    assert seen == [] and torch.equal(out, x + 1)
