"""Histograms, by `tl.histogram` and by atomic additions at data-dependent addresses."""

from __future__ import annotations

import pytest
import torch

from examples.kernels.histogram import histogram


@pytest.mark.parametrize("scatter", [False, True], ids=["tl.histogram", "atomics"])
@pytest.mark.parametrize("n", [1, 1000, 10_000])
def test_histogram(clean, scatter, n):
    x = torch.randint(0, 64, (n,), dtype=torch.int32, generator=torch.Generator().manual_seed(n))
    with clean():
        counts = histogram(x, 64, scatter=scatter)
    assert torch.equal(counts, torch.bincount(x, minlength=64).int())


def test_all_values_in_one_bin(clean):
    x = torch.full((5000,), 3, dtype=torch.int32)
    with clean(2):
        counted, scattered = histogram(x, 8), histogram(x, 8, scatter=True)
    assert counted.tolist() == scattered.tolist() == [0, 0, 0, 5000, 0, 0, 0, 0]


def test_a_value_that_is_no_bin_is_reported():
    import tritontrace

    x = torch.tensor([1, 2, 9, 3], dtype=torch.int32)
    with tritontrace.session(clients=["sanitizer"]) as session:
        counts = histogram(x, 8, block=16, scatter=True)
    assert counts.tolist() == [0, 1, 1, 1, 0, 0, 0, 0]
    (finding,) = session.findings
    assert (finding.kind, finding.access, finding.tensor) == ("out_of_bounds", "atomic", "out_ptr")
    assert finding.elements.tolist() == [9]
    assert finding.programs.tolist() == [[0, 0, 0]]
