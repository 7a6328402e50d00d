"""Known fault 48: every way to write a grid, and every wrong one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace


@triton.jit
def census(out_ptr, n, B: tl.constexpr = 4):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    tl.atomic_add(out_ptr + x + nx * (y + ny * z), nx * 10_000 + ny * 100 + nz)


class Callable:
    def __init__(self, *entries: int) -> None:
        self.entries = entries

    def __call__(self, meta: dict[str, Any]) -> tuple[int, ...]:
        return self.entries


def method_grid(meta: dict[str, Any], times: int) -> tuple[int, ...]:
    return (meta["B"] * times, 2)


GRIDS: dict[str, tuple[Any, tuple[int, int, int]]] = {
    "one": ((3,), (3, 1, 1)),
    "two": ((3, 2), (3, 2, 1)),
    "three": ((2, 3, 2), (2, 3, 2)),
    "list of one": ([3], (3, 1, 1)),
    "list of three": ([2, 3, 2], (2, 3, 2)),
    "numpy int32": ((np.int32(3),), (3, 1, 1)),
    "numpy int64 and int": ((np.int64(3), 2), (3, 2, 1)),
    "numpy uint8": ((np.uint8(3),), (3, 1, 1)),
    "array": (np.array([3, 2]), (3, 2, 1)),
    "tensors": ((torch.tensor(3), torch.tensor([2])), (3, 2, 1)),
    "tensor": (torch.tensor([3, 2]), (3, 2, 1)),
    "size": (torch.Size([3, 2]), (3, 2, 1)),
    "range": (range(2, 4), (2, 3, 1)),
    "constexpr": ((tl.constexpr(3),), (3, 1, 1)),
    "boolean": ((True, 3), (1, 3, 1)),
    "lambda": (lambda meta: (meta["B"], 2), (4, 2, 1)),
    "lambda of a list": (lambda meta: [meta["B"]], (4, 1, 1)),
    "lambda of numpy": (lambda meta: (np.int64(meta["B"]),), (4, 1, 1)),
    "lambda of cdiv": (lambda meta: (triton.cdiv(meta["n"], meta["B"]),), (3, 1, 1)),
    "lambda of a tensor": (lambda meta: (meta["out_ptr"].numel() // 10,), (4, 1, 1)),
    "lambda without a use": (lambda meta: (2, 2, 2), (2, 2, 2)),
    "partial": (functools.partial(method_grid, times=2), (8, 2, 1)),
    "object": (Callable(2, 3), (2, 3, 1)),
}


@pytest.mark.parametrize("name", list(GRIDS))
@pytest.mark.parametrize("how", ["item", "run", "trace", "compiled"])
def test_fault_48_forms_of_a_grid(name: str, how: str, traced: Any) -> None:
    grid, (nx, ny, nz) = GRIDS[name]
    out = torch.zeros(40, dtype=torch.int32)
    if how == "item":
        census[grid](out, 10)
    elif how == "run":
        census.run(out, 10, grid=grid, warmup=False)
    elif how == "trace":
        tritontrace.trace(census, clients=["tracer"])[grid](out, 10)
    else:
        census.warmup(out, 10, grid=(1,))[grid](out, 10, 4)
    assert out.tolist() == [nx * 10_000 + ny * 100 + nz] * (nx * ny * nz) + [0] * (40 - nx * ny * nz)
    assert traced.launches[-1].grid == (nx, ny, nz)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.sampled_from([tuple, list, np.array, torch.tensor]))
@settings(deadline=None, max_examples=40)
def test_fault_48_any_grid(entries: list[int], form: Any) -> None:
    nx, ny, nz = [*entries, 1, 1][:3]
    out = torch.zeros(40, dtype=torch.int32)
    with tritontrace.session(clients=["sanitizer"]) as session:
        census[form(entries)](out, 10)
    assert out.sum() == nx * ny * nz * (nx * 10_000 + ny * 100 + nz)
    assert session.launches[0].completed and session.launches[0].n_programs == nx * ny * nz


WRONG: dict[str, Any] = {
    "no entry": (),
    "empty list": [],
    "four": (1, 1, 1, 1),
    "negative": (-1,),
    "negative beside an empty one": (0, -2),
    "float": (2.0,),
    "numpy float": (np.float64(2),),
    "float array": np.array([2.0]),
    "float tensor": torch.tensor([2.0]),
    "tensor of two in one entry": (torch.tensor([2, 2]),),
    "scalar tensor": torch.tensor(2),
    "meta tensor": (torch.tensor(2, device="meta"),),
    "none inside": (2, None),
    "text": "2",
    "texts": ("2",),
    "bytes": b"2",
    "integer": 2,
    "dictionary": {0: 2},
    "set": {2},
    "iterator": iter((2, 2)),
    "more than an int": (2**31,),
    "more along y than CUDA takes": (1, 65536),
    "more along z than CUDA takes": (1, 1, 65536),
    "nested": ((2,),),
    "lambda of an int": lambda meta: 2,
    "lambda of none": lambda meta: None,
    "lambda of floats": lambda meta: (meta["n"] / meta["B"],),
    "lambda of a lambda": lambda meta: lambda meta: (1,),
}


@pytest.mark.parametrize("name", list(WRONG))
@pytest.mark.parametrize("how", ["item", "run", "trace"])
def test_wrong_grids_are_refused_before_anything_ran(name: str, how: str, refused: Any) -> None:
    out = torch.zeros(40, dtype=torch.int32)
    with pytest.raises(tritontrace.ArgumentError, match="the grid of kernel 'census'") as caught:
        if how == "item":
            census[WRONG[name]](out, 10)
        elif how == "run":
            census.run(out, 10, grid=WRONG[name], warmup=False)
        else:
            tritontrace.trace(census, clients=["tracer"])[WRONG[name]](out, 10)
    assert isinstance(caught.value, (TypeError, ValueError)) and len(str(caught.value)) < 400
    assert not out.any()


def test_a_missing_grid_is_refused(refused: Any) -> None:
    out = torch.zeros(40, dtype=torch.int32)
    for launch in (
        lambda: census.run(out, 10, warmup=False),
        lambda: census[None](out, 10),
        lambda: census.run(out, 10, grid=None),
    ):
        with pytest.raises(TypeError, match="grid"):
            launch()
    with pytest.raises(TypeError, match="grid"):
        census.warmup(out, 10)
    assert not out.any()


def test_what_a_callable_raises_reaches_the_user_as_it_is(refused: Any) -> None:
    out = torch.zeros(40, dtype=torch.int32)
    with pytest.raises(KeyError, match="BLOCK"):
        census[lambda meta: (meta["BLOCK"],)](out, 10)
    with pytest.raises(KeyError, match="num_warps"):  # an option is no parameter: as in Triton's own launch
        census[lambda meta: (meta["num_warps"],)](out, 10, num_warps=8)
    with pytest.raises(ZeroDivisionError):
        census[lambda meta: (1 // 0,)](out, 10)
    with pytest.raises(TypeError, match="positional argument"):
        census[lambda: (1,)](out, 10)
    assert not out.any()


def test_a_callable_cannot_change_the_launch(traced: Any) -> None:
    def grid(meta: dict[str, Any]) -> tuple[int]:
        meta["n"] = 0
        meta.clear()
        return (2,)

    out = torch.zeros(40, dtype=torch.int32)
    census[grid](out, 10)
    assert traced.launches[0].argument("n").value == 10 and out[:2].tolist() == [20_101] * 2


@triton.autotune([triton.Config({"B": 2}), triton.Config({"B": 2}, num_warps=2)], key=["n"])
@triton.heuristics({"EXTRA": lambda args: args["B"] * 3})
@triton.jit
def tuned(out_ptr, n, B: tl.constexpr, EXTRA: tl.constexpr):
    tl.atomic_add(out_ptr + tl.program_id(0), EXTRA)


def test_a_callable_sees_what_tuners_and_heuristics_choose(traced: Any) -> None:
    out = torch.zeros(16, dtype=torch.int32)
    tuned[lambda meta: (meta["n"] // meta["B"] + meta["EXTRA"],)](out, 8)
    assert out.tolist() == [6] * 10 + [0] * 6


@triton.jit
def nothing(out_ptr):
    pass


@pytest.mark.parametrize("grid", [(65536,), (1, 65535), (1, 1, 65535), (0, 65536), (1, 65536, 0)])
def test_the_largest_grids_of_cuda(grid: tuple[int, ...]) -> None:
    with tritontrace.session(clients=["sanitizer"], target="cuda:90") as session:
        nothing[grid](torch.zeros(1))
    assert session.launches[0].completed


def test_another_gpu_takes_more_along_y() -> None:
    with tritontrace.session(clients=["sanitizer"], target="hip:gfx942") as session:
        nothing[(1, 65536)](torch.zeros(1))
    assert session.launches[0].completed
