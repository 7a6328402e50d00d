"""The sanitizer against brute force, on masks and indices that are no plain comparisons and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tritontrace import Sanitizer

MASKS, INDICES = 15, 6


@triton.jit
def odd_kernel(x, out, n, step, first, MASK: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * step + tl.arange(0, BLOCK) + first
    if MASK == 0:
        mask = i.to(tl.uint32) < (n + pid * 0).to(tl.uint32)
    elif MASK == 1:
        mask = ~(i >= n)
    elif MASK == 2:
        mask = tl.reshape(tl.trans(tl.reshape(i < n, (BLOCK // 4, 4))), (BLOCK,))
    elif MASK == 3:
        mask = (i < n) ^ (i < first)
    elif MASK == 4:
        mask = (i < n) | (i == 3)
    elif MASK == 5:
        mask = (i < n) == (pid < 3)
    elif MASK == 6:
        mask = tl.where(pid % 2 == 0, i < n, i >= first)
    elif MASK == 7:
        mask = (i % 7 != 3) & (i // 3 < n)
    elif MASK == 8:
        mask = (pid != 2) & (i < n)
    elif MASK == 9:
        mask = (tl.load(x + pid) > 0) & (i < n)
    elif MASK == 10:
        mask = tl.flip(i < n, 0)
    elif MASK == 11:
        mask = (i.to(tl.int8) < n) & (i * i < 3 * n)
    elif MASK == 12:
        mask = (i ^ 1) < n
    elif MASK == 13:
        mask = (i >> 1) < n
    else:
        mask = ((i & 7) < 5) & (tl.cdiv(i, 2) < n)
    at = i
    if INDEX == 1:
        at = tl.where(mask, i, 0)
    elif INDEX == 2:
        at = tl.reshape(tl.trans(tl.reshape(i, (BLOCK // 4, 4))), (BLOCK,))
    elif INDEX == 3:
        at = tl.maximum(tl.minimum(i, n), -2)
    elif INDEX == 4:
        at = i.to(tl.uint8).to(tl.int32)
    elif INDEX == 5:
        at = i ^ 3
    tl.store(out + at, tl.load(x + at, mask=mask, other=0), mask=mask)


def lanes(mask: int, i: Any, n: int, first: int, pid: int, x: Any) -> Any:
    """The mask of one program, in numpy; Triton's // and % round towards zero."""
    plain = i < n
    return [
        lambda: i % 2**32 < n % 2**32,
        lambda: plain,
        lambda: plain.reshape(-1, 4).T.reshape(-1),
        lambda: plain ^ (i < first),
        lambda: plain | (i == 3),
        lambda: plain == (pid < 3),
        lambda: plain if pid % 2 == 0 else i >= first,
        lambda: (np.fmod(i, 7) != 3) & (np.trunc(i / 3) < n),
        lambda: plain & (pid != 2),
        lambda: plain & bool(x[pid] > 0),
        lambda: plain[::-1],
        lambda: (i.astype(np.int8) < n) & (i * i < 3 * n),
        lambda: (i ^ 1) < n,
        lambda: (i >> 1) < n,
        lambda: ((i & 7) < 5) & (np.trunc((i + 1) / 2) < n),
    ][mask]()


def elements(index: int, i: Any, n: int, mask: Any) -> Any:
    return [
        lambda: i,
        lambda: np.where(mask, i, 0),
        lambda: i.reshape(-1, 4).T.reshape(-1),
        lambda: np.maximum(np.minimum(i, n), -2),
        lambda: i.astype(np.uint8).astype(np.int64),
        lambda: i ^ 3,
    ][index]()


def check(mask: int, index: int, grid: int, block: int, step: int, first: int, n: int, short: tuple[int, int], seed: int) -> None:
    size = max(1, grid * max(abs(step), 1) + block + first)
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (max(grid, size - short[0]),), dtype=torch.int32, generator=numbers)
    out = torch.zeros(max(1, size - short[1]), dtype=torch.int32)
    expected: dict[tuple[str, int], list[int]] = {}
    for pid in range(grid):
        i = (pid * step + np.arange(block) + first).astype(np.int64)
        on = lanes(mask, i, n, first, pid, x.numpy())
        at = elements(index, i, n, on)[on]
        for name, tensor in (("x", x), ("out", out)):
            outside = sorted(set(at[(at < 0) | (at >= len(tensor))].tolist()))
            if outside:
                expected[name, pid] = outside
    for dry in (True, False):
        with tritontrace.session(clients=[Sanitizer(dry_run=dry)]) as session:
            odd_kernel[(grid,)](x.clone(), out, n, step, first, MASK=mask, INDEX=index, BLOCK=block)
        found: dict[tuple[str, int], set[int]] = {}
        for finding in session.findings:
            if finding.kind == "out_of_bounds":
                for (pid, _, _), which in finding.elements_by_program.items():
                    found.setdefault((str(finding.tensor), pid), set()).update(which.tolist())
        assert {key: sorted(which) for key, which in found.items()} == expected, f"dry_run={dry}"


launches = st.fixed_dictionaries(
    {
        "mask": st.integers(0, MASKS - 1),
        "index": st.integers(0, INDICES - 1),
        "grid": st.sampled_from([1, 2, 5, 9, 40]),
        "block": st.sampled_from([4, 8, 16]),
        "step": st.sampled_from([0, 1, 4, 8, 15, 16, -8, 48]),
        "first": st.sampled_from([0, 0, 1, -3, 10]),
        "n": st.integers(0, 400),
        "short": st.tuples(st.sampled_from([0, 1, 8]), st.sampled_from([0, 1, 2])),
        "seed": st.integers(0, 3),
    }
)


@settings(max_examples=60, deadline=None)
@given(launches)
def test_odd_masks(launch: dict[str, Any]) -> None:
    check(**launch)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(launches)
def test_many_odd_masks(launch: dict[str, Any]) -> None:
    check(**launch)
