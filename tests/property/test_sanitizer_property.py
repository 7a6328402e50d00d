"""The sanitizer against plain enumeration: random kernels, grids and views, executing and dry, with and without faults.

Few kernels with many runtime parameters, so that launching, and not compiling, takes the time. Parameters are not
specialized; `model` functions compute the same addresses lane by lane, with the wrapping of 32-bit integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import tritontrace
from tritontrace import Sanitizer

Program = tuple[int, int, int]
Faults = dict[tuple[str, str], dict[Program, list[int]]]

ROWS, COLS = 4, 8
_FORMS = ("a", "b", "c", "d", "e", "form")
_PLACES = ("base", "sp", "si", "sj", "sk", "first", "count", "step", "m0", "m1", "n0", "n1", "by_program")
_NAMES = (*_FORMS, *_PLACES, "shift")


@triton.jit
def place(a, b, c, d, e, form):
    """A number of the program, in one of several forms."""
    p, q, r = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    line = p * a + q * b + r * c
    if form == 0:
        at = line
    elif form == 1:
        at = line // d
    elif form == 2:
        at = line % d
    elif form == 3:
        at = tl.minimum(line, e)
    elif form == 4:
        at = tl.maximum(line - e, q)
    elif form == 5:
        at = tl.where(p < e, line, q - r)
    elif form == 6:
        # The grouped order of a matrix product.
        size = tl.maximum(tl.minimum(d - p // d, 3), 1)
        at = p // d + p % d % size + q // size
    else:
        at = (line - e) // d + (line - e) % d
    return at


@triton.jit(do_not_specialize=list(_NAMES))
def tile_kernel(
    x, out, a, b, c, d, e, form, base, sp, si, sj, sk, first, count, step, m0, m1, n0, n1, by_program, shift,
    MASK: tl.constexpr, CARRY: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    at = place(a, b, c, d, e, form)
    if at == shift:
        return
    i = tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLS)[None, :]
    start = base + at * sp + i * si + j * sj
    source, target = x + start, out + start
    last = first + count
    if by_program != 0:
        last = first + tl.minimum(tl.maximum(at, 0), count)
    for k in range(first, last, step):
        if CARRY == 0:
            source, target = x + (start + k * sk), out + (start + k * sk)
        if MASK == 0:
            value = tl.load(source)
            tl.store(target, value)
        elif MASK == 1:
            live = (i + at * m0 < n0) & (j + k * m1 < n1)
            value = tl.load(source, mask=live, other=0)
            tl.store(target, value, mask=live)
        elif MASK == 2:
            live = (start + k * sk >= n0) & (start + k * sk < n1)
            value = tl.load(source, mask=live, other=0)
            tl.store(target, value, mask=live)
        else:
            live = ((i < n0) | (j * m1 == n1)) & (k != m0)
            value = tl.load(source, mask=live, other=0)
            tl.store(target, value, mask=live)
        if CARRY == 1:
            source += sk
            target += sk


@triton.jit(do_not_specialize=list(_NAMES))
def gather_kernel(
    x, out, index, a, b, c, d, e, form, base, sp, si, sj, sk, first, count, step, m0, m1, n0, n1, by_program, shift,
    entries: tl.constexpr, MASK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    at = place(a, b, c, d, e, form)
    i = tl.arange(0, ROWS)
    j = tl.arange(0, COLS)[None, :]
    which = (at * m0 + i) % entries
    which = tl.where(which < 0, which + entries, which)
    row = tl.load(index + which)
    row = row[:, None]
    trips = tl.load(index + which * 0 + 0).to(tl.int32)
    limit = tl.minimum(tl.maximum(tl.max(trips, 0), 0), count)
    for k in range(limit):
        offset = row * si + j * sj + (base + k * sk)
        if MASK == 0:
            tl.store(out + offset, tl.load(x + offset))
        else:
            live = (row >= n0) & (j * m1 < n1)
            tl.store(out + offset, tl.load(x + offset, mask=live, other=0), mask=live)


@dataclass(frozen=True)
class View:
    """A view of a storage of its own."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    before: int
    after: int

    def reach(self) -> int:
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    def size(self) -> int:
        return self.before + self.reach() + self.after

    def tensor(self, device: str) -> torch.Tensor:
        whole = torch.zeros(self.size(), dtype=torch.int32, device=device)
        return torch.as_strided(whole, self.shape, self.stride, self.before)

    def allowed(self, bounds: str) -> np.ndarray:
        """The elements that may be touched, counted from the view's first."""
        if bounds == "storage":
            return np.arange(-self.before, self.size() - self.before)
        own = {sum(i * s for i, s in zip(at, self.stride, strict=True)) for at in product(*map(range, self.shape))}
        return np.array(sorted(own))


_small = st.integers(-3, 6)
_tiny = st.integers(0, 2)
_wild = st.one_of(st.integers(-40, 60), st.sampled_from([1 << 20, -(1 << 28), (1 << 30) + 7, -(1 << 31)]))
_stride = st.one_of(st.sampled_from([0, 1, 1, 2, 8]), _small, _wild)
_views = st.integers(1, 3).flatmap(
    lambda rank: st.builds(
        View,
        st.tuples(*[st.integers(1, (200, 20, 8)[rank - 1])] * rank),
        st.tuples(*[st.one_of(st.sampled_from([0, 1, 1, 8]), st.integers(1, 40))] * rank),
        st.integers(0, 9),
        st.integers(0, 9),
    )
)
_grids = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 2))


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, int]:
    """The runtime parameters; the most are small, so that clean launches and thin faults occur too."""
    given = {"a": draw(_tiny), "b": draw(_small), "c": draw(_tiny), "d": draw(st.integers(1, 5)), "e": draw(_small)}
    given |= {"form": draw(st.integers(0, 7)), "base": draw(st.one_of(st.just(0), st.integers(-10, 60)))}
    given |= {name: draw(_stride) for name in ("sp", "si", "sj", "sk")}
    given |= {"first": draw(_small), "count": draw(st.integers(0, 6)), "step": draw(st.integers(1, 3))}
    given |= {"m0": draw(_small), "m1": draw(_small), "n0": draw(st.integers(-5, 9)), "n1": draw(st.integers(-2, 90))}
    return given | {"by_program": draw(st.integers(0, 1)), "shift": draw(st.integers(-2, 12))}


def wrap(value: Any) -> Any:
    """The 32-bit integer that 64-bit arithmetic's result is an overflow of."""
    return np.asarray(value, np.int64).astype(np.int32).astype(np.int64)


def towards_zero(a: int, b: int) -> int:
    return -(-a // b) if a < 0 else a // b


def model_place(program: Program, g: dict[str, int]) -> int:
    p, q, r = program
    line, d, e = p * g["a"] + q * g["b"] + r * g["c"], g["d"], g["e"]
    rest = line - d * towards_zero(line, d)
    moved = line - e
    size = max(min(d - p // d, 3), 1)
    forms = [line, towards_zero(line, d), rest, min(line, e), max(line - e, q), line if p < e else q - r]
    forms += [p // d + p % d % size + q // size, towards_zero(moved, d) + moved - d * towards_zero(moved, d)]
    return forms[g["form"]]


I, J = np.arange(ROWS)[:, None], np.arange(COLS)[None, :]
Lanes = list[tuple[Program, np.ndarray]]


def model_tiles(grid: Program, g: dict[str, int], mask: int, carry: int) -> Lanes:
    """The active lanes' elements, for every program and iteration."""
    out = []
    for program in product(*map(range, grid)):
        at = model_place(program, g)
        if at == g["shift"]:
            continue
        start = g["base"] + at * g["sp"] + I * g["si"] + J * g["sj"]
        trips = min(max(at, 0), g["count"]) if g["by_program"] else g["count"]
        for turn, k in enumerate(range(g["first"], g["first"] + trips, g["step"])):
            index = wrap(start + k * g["sk"])
            where = wrap(start) + turn * g["sk"] if carry else index
            live = np.ones(where.shape, bool)
            if mask == 1:
                live = (I + at * g["m0"] < g["n0"]) & (J + k * g["m1"] < g["n1"])
            elif mask == 2:
                live = (index >= g["n0"]) & (index < g["n1"])
            elif mask == 3:
                live = ((I < g["n0"]) | (J * g["m1"] == g["n1"])) & (k != g["m0"])
            out.append((program, where[live]))
    return out


def model_gathers(grid: Program, g: dict[str, int], mask: int, index: np.ndarray) -> Lanes:
    out = []
    limit = min(max(int(index[0]), 0), g["count"])
    for program in product(*map(range, grid)):
        at = model_place(program, g)
        row = index[(at * g["m0"] + I) % len(index)]
        for k in range(limit):
            where = row * g["si"] + wrap(J * g["sj"]) + wrap(g["base"] + k * g["sk"])
            live = (row >= g["n0"]) & (J * g["m1"] < g["n1"]) if mask else np.ones(where.shape, bool)
            out.append((program, where[live]))
    return out


def expected(lanes: Lanes, views: dict[str, View], bounds: str) -> Faults:
    out: Faults = {}
    for access, name in (("load", "x"), ("store", "out")):
        allowed = views[name].allowed(bounds)
        bad: dict[Program, set[int]] = {}
        for program, elements in lanes:
            outside = elements[~np.isin(elements, allowed)]
            if len(outside):
                bad.setdefault(program, set()).update(outside.tolist())
        if bad:
            out[access, name] = {program: sorted(elements) for program, elements in sorted(bad.items())}
    return out


def found(session: Any) -> Faults:
    out: Faults = {}
    for finding in session.findings:
        key = finding.access, finding.tensor
        assert finding.kind == "out_of_bounds" and key not in out
        out[key] = {tuple(map(int, p)): v.tolist() for p, v in sorted(finding.elements_by_program.items())}
        assert [tuple(row) for row in finding.programs.tolist()] == sorted(out[key], key=lambda p: p[::-1])
        assert finding.elements.tolist() == sorted(set().union(*out[key].values()))
    return out


def compare(kernel: Any, grid: Program, views: dict[str, View], bounds: str, want: Faults, **arguments: Any) -> None:
    event("clean" if not want else "faulty")
    for dry in (False, True):
        tensors = {name: view.tensor("meta" if dry else "cpu") for name, view in views.items()}
        with tritontrace.session(clients=[Sanitizer(bounds, dry_run=dry)]) as session:
            kernel[grid](**tensors, **arguments, ROWS=ROWS, COLS=COLS)
        assert found(session) == want, f"dry={dry}"


_where = {"x": _views, "out": _views}
_bounds = st.sampled_from(["view", "view", "storage"])
_spare = st.sampled_from([None, None, -1, 0, 1])


def tightened(views: dict[str, View], lanes: Lanes, spare: int | None) -> dict[str, View]:
    """`views` with dense ones in their place that end `spare` elements behind the last that is touched.

    Views that have nothing to do with the kernel are missed by far or not at all; here one element decides.
    """
    touched = [int(elements.max()) for _, elements in lanes if elements.size]
    length = max(touched, default=0) + 1 + (spare or 0)
    if spare is None or not 0 < length < 100_000:
        return views
    return {name: View((length,), (1,), view.before, view.after) for name, view in views.items()}


def check_tiles(
    grid: Program, views: dict[str, View], g: dict[str, int], mask: int, carry: int, bounds: str, spare: int | None
) -> None:
    lanes = model_tiles(grid, g, mask, carry)
    views = tightened(views, lanes, spare)
    want = expected(lanes, views, bounds)
    compare(tile_kernel, grid, views, bounds, want, **g, MASK=mask, CARRY=carry)


def check_gathers(
    grid: Program, views: dict[str, View], g: dict[str, int], mask: int, index: list[int], bounds: str, spare: int | None
) -> None:
    data = torch.tensor((index * 8)[:8], dtype=torch.int64)
    lanes = model_gathers(grid, g, mask, data.numpy())
    views = tightened(views, lanes, spare)
    want = expected(lanes, views, bounds)
    compare(gather_kernel, grid, views, bounds, want, **g, index=data, entries=8, MASK=mask)


tiles = given(
    grid=_grids,
    views=st.fixed_dictionaries(_where),
    g=numbers(),
    mask=st.integers(0, 3),
    carry=st.integers(0, 1),
    bounds=_bounds,
    spare=_spare,
)
gathers = given(
    grid=_grids,
    views=st.fixed_dictionaries(_where),
    g=numbers(),
    mask=st.integers(0, 1),
    index=st.lists(st.one_of(st.integers(0, 12), st.integers(-20, 300)), min_size=1, max_size=8),
    bounds=_bounds,
    spare=_spare,
)
common: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=250, derandomize=True, **common)
@tiles
def test_tiles(**drawn: Any) -> None:
    check_tiles(**drawn)


@settings(max_examples=100, derandomize=True, **common)
@gathers
def test_gathers(**drawn: Any) -> None:
    check_gathers(**drawn)


@pytest.mark.slow
@settings(max_examples=3000, **common)
@tiles
def test_many_tiles(**drawn: Any) -> None:
    check_tiles(**drawn)


@pytest.mark.slow
@settings(max_examples=1000, **common)
@gathers
def test_many_gathers(**drawn: Any) -> None:
    check_gathers(**drawn)
