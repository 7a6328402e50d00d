"""Accesses through pointers that were loaded: each program's bounds decide where they can, lanes where they cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.clients import sanitizer


@triton.jit
def store_far_kernel(addresses, counts, step, TILE: tl.constexpr):
    program = tl.program_id(0)
    pointer = tl.load(addresses + program).to(tl.pointer_type(tl.float32))
    lanes = tl.arange(0, TILE)
    tl.store(pointer + lanes * step, 1.0, mask=lanes < tl.load(counts + program))


def run(addresses: list[int], counts: list[int], step: int = 1, tile: int = 16) -> tritontrace.Session:
    tables = [torch.tensor(values, dtype=torch.int64) for values in (addresses, counts)]
    with tritontrace.session("sanitizer") as session:
        store_far_kernel[(len(addresses),)](*tables, step, TILE=tile)
    return session


@pytest.mark.parametrize("seed", range(20))
def test_programs_that_point_nowhere_are_found_exactly(seed: int) -> None:
    random = np.random.default_rng(seed)
    tensors, addresses, counts = [], [], []
    nowhere: dict[int, int] = {}
    for program in range(int(random.integers(1, 12))):
        count = int(random.integers(0, 17))
        if random.random() < 0.3:
            address = 4096 * (program + 1)  # nothing is mapped down there
            if count:
                nowhere[program] = count
        else:
            tensors.append(torch.zeros(16 if random.random() < 0.3 else max(count, 1)))
            address = tensors[-1].data_ptr()
        addresses.append(address)
        counts.append(count)
    written = sum(counts) - sum(nowhere.values())

    session = run(addresses, counts)

    assert sum(int(tensor.sum()) for tensor in tensors) == written
    assert bool(session.findings) == bool(nowhere)
    for finding in session.findings:
        assert finding.kind == "out_of_bounds" and finding.tensor is None
        assert finding.programs[:, 0].tolist() == sorted(nowhere)
        assert finding.details["accesses"] == sum(nowhere.values())


def test_lanes_in_two_tensors_are_no_fault() -> None:
    x, y = sorted((torch.zeros(4), torch.zeros(4)), key=torch.Tensor.data_ptr)
    between = (y.data_ptr() - x.data_ptr()) // 4
    assert not run([x.data_ptr()], [2], between, tile=2).findings
    assert x[0] == 1 and y[0] == 1
    # The first lane is in memory, the last one is not: no bounds may hide that.
    down = (4096 - x.data_ptr()) // 4
    (finding,) = run([x.data_ptr()], [2], down, tile=2).findings
    assert finding.details["accesses"] == 1


def test_memory_met_for_the_first_time_is_looked_for_without_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    def lanes(*_: object) -> None:
        raise AssertionError("the lanes were looked at one by one")

    monkeypatch.setattr(sanitizer, "_rows", lanes)
    tensors = [torch.zeros(8) for _ in range(5)]
    assert not run([tensor.data_ptr() for tensor in tensors], [8, 3, 0, 5, 8]).findings
    assert [int(tensor.sum()) for tensor in tensors] == [8, 3, 0, 5, 8]
