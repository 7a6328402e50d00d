"""The same cases on a GPU's memory: what the launch needs is copied in, what it wrote goes back."""

from __future__ import annotations

import pytest
import torch
import triton

import tritontrace
from tests.cases import bounds
from tests.cases.common import Case, check
from tritontrace.kernels import capabilities

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CASES = [case for case in bounds.CASES if capabilities.block_pointers() or "block_pointer" not in case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_traced(case: Case) -> None:
    with torch.device("cuda"), tritontrace.session(clients=["sanitizer", "tracer"]) as session:
        results = case.run()
    check(case, bounds.__file__, session.findings)
    for actual, expected in results:
        assert actual.is_cuda
        torch.testing.assert_close(actual, expected)
    for launch in session.launches:
        assert any(info.device == "cuda:0" for info in launch.arguments.values())


@pytest.mark.parametrize("case", [case for case in CASES if not case.faults], ids=lambda case: case.name)
def test_untraced(case: Case) -> None:
    """The truth of the clean cases, as the GPU itself sees it, also after the classes were patched and restored."""
    # Triton itself cannot make a descriptor on the device without one; a traced launch needs none.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    with tritontrace.session(clients=["tracer"]) as session, tritontrace.suspend(), torch.device("cuda"):
        inside = case.run()
    with torch.device("cuda"):
        outside = case.run()
    assert session.launches == []
    for actual, expected in [*inside, *outside]:
        torch.testing.assert_close(actual, expected)
