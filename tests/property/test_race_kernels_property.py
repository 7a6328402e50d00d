"""Real kernels with drawn strides, offsets, masks and index tensors: the race detector against counting on fingers."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace


@triton.jit
def drawn_kernel(
    x, index, out, row, lane, turn, shift, limit, back, first, turns, GATHER: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.int32)
    for i in range(turns):
        at = first + pid * row + tl.arange(0, BLOCK) * lane + i * turn
        if GATHER:
            at = tl.load(index + pid * BLOCK + tl.arange(0, BLOCK))
        total += tl.load(x + at + back, mask=at < limit, other=0)
        if ADD:
            tl.atomic_add(x + at + shift, total + pid, mask=at < limit)
        else:
            tl.store(x + at + shift, total + pid, mask=at < limit)
    tl.store(out + pid * BLOCK + tl.arange(0, BLOCK), total)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=True))
def test_drawn_kernels(random: Random) -> None:
    programs, block, turns = random.randint(1, 6), random.choice((1, 4, 8)), random.randint(1, 3)
    row = random.choice((block, block, block * turns, 1, 0, block + 1, block - 1))
    lane = random.choice((1, 1, 2, programs, 0))
    turn = random.choice((0, block, 1, programs * block))
    shift, back, limit = random.choice((0, 0, 1, 3)), random.choice((0, 0, 1)), random.randint(1, 120)
    gather, add = random.random() < 0.4, random.random() < 0.3
    index = torch.tensor([random.randrange(100) for _ in range(programs * block)])
    x = torch.zeros(400, dtype=torch.int32)
    out = torch.zeros(programs * block, dtype=torch.int32)
    with tritontrace.session(clients=["race_detector"]) as session:
        drawn_kernel[(programs,)](
            x, index, out, row, lane, turn, shift, limit, back, 5, turns, GATHER=gather, ADD=add, BLOCK=block
        )
    reads: dict[int, set[int]] = defaultdict(set)
    writes: dict[int, set[int]] = defaultdict(set)
    for pid in range(programs):
        for i in range(turns):
            for k in range(block):
                at = int(index[pid * block + k]) if gather else 5 + pid * row + k * lane + i * turn
                if at < limit:
                    reads[at + back].add(pid)
                    writes[at + shift].add(pid)
    apart = {e: {(a, b) for a in writes[e] for b in reads[e] if a != b} for e in writes}
    stores = {e for e in writes if len(writes[e]) > 1 and not add}
    loads = {e for e in apart if apart[e]}
    races = [f for f in session.findings if not f.details.get("same_program")]
    assert len(races) == (1 if stores or loads else 0)
    if races:
        (race,) = races
        assert race.tensor == "x" and race.access == ("load" if add else "store")
        assert set(race.elements.tolist()) == stores | loads
        writers = {p for e in stores for p in writes[e]} | {a for e in loads for a, _ in apart[e]}
        readers = {b for e in loads for _, b in apart[e]}
        assert set(race.programs[:, 0].tolist()) == (readers if add else writers)
        assert race.other is not None
        sides = {side["access"]: set(side["programs"][:, 0].tolist()) for side in race.other["all"]}
        if add:
            assert sides == {"atomic": writers}
        else:
            assert sides.get("load", set()) == readers
            assert sides.get("store", set()) == {p for e in stores for p in writes[e]}
