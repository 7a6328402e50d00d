"""Vector addition and softmax."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from examples.kernels.softmax import occupancy_softmax, softmax
from examples.kernels.vector_add import add

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8]


@pytest.mark.parametrize("n", [1, 1023, 1024, 98432])
def test_vector_add(clean, randn, n):
    x, y = randn(n), randn(n)
    with clean() as session:
        out = add(x, y)
    assert_close(out, x + y, rtol=0, atol=0)
    assert session.launches[0].grid == (-(-n // 1024), 1, 1)
    assert session.launches[0].kernel_name == "add_kernel"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_vector_add_rounds_and_wraps_like_its_type(clean, randn, dtype):
    x, y = (100 * randn(5000)).to(dtype), (100 * randn(5000)).to(dtype)
    with clean():
        out = add(x, y)
    assert_close(out, x + y, rtol=0, atol=0)


def test_inputs_are_untouched(clean, randn):
    x, y = randn(3000), randn(3000)
    before = x.clone(), y.clone()
    with clean():
        add(x, y)
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@pytest.mark.parametrize("shape", [(1, 1), (7, 100), (64, 781), (33, 1024)])
def test_fused_softmax(clean, randn, shape):
    x = randn(*shape)
    with clean():
        out = softmax(x)
    assert_close(out, x.softmax(1))


def test_fused_softmax_of_a_strided_matrix(clean, randn):
    x = randn(20, 300)[:, 50:150]
    with clean():
        out = softmax(x)
    assert_close(out, x.softmax(1))


def test_softmax_with_infinities(clean):
    x = torch.tensor([[1.0, -float("inf"), 2.0], [-float("inf"), -float("inf"), 0.0]])
    with clean():
        out = softmax(x)
    assert_close(out, x.softmax(1))


def test_softmax_that_warms_up_and_launches_what_it_got(randn):
    """The tutorial's way: the grid depends on the registers of the compiled kernel, which is then launched itself."""
    import tritontrace

    x = randn(57, 781)
    with tritontrace.session(clients=["tracer", "sanitizer"], target="cuda:90") as session:
        out = occupancy_softmax(x)
    assert_close(out, x.softmax(1))
    assert session.findings == []
    ran = [launch for launch in session.launches if not launch.warmup]
    assert len(ran) == 1 and ran[0].completed
    assert ran[0].kernel_name == "persistent_softmax_kernel"
