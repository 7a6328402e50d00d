"""check_determinism: what depends on the order of programs."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Order, check_determinism


@triton.jit
def last_wins(out_ptr):
    tl.store(out_ptr, tl.program_id(0))


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(x, 0))


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def shift(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(x_ptr + i, x, mask=i < n)


@triton.jit
def locked(lock_ptr, out_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def starving(flag_ptr, out_ptr):
    pid = tl.program_id(0)
    if pid == 0:
        while tl.atomic_add(flag_ptr, 0) == 0:
            pass
    tl.store(out_ptr + pid, 1)


def test_programs_that_write_one_place() -> None:
    out = torch.full((2,), 9, dtype=torch.int32)
    found = check_determinism(last_wins, out, grid=(8,))
    (difference,) = found.differences
    assert not found and difference.name == "out_ptr"
    assert difference.elements.tolist() == [0] and difference.count == 1
    assert difference.values == (7.0, 0.0) and difference.max_difference == 7.0
    assert [str(order) for order in difference.orders] == ["forward", "reverse"]
    assert out.tolist() == [9, 9]
    assert found.to_dict()["differences"][0]["name"] == "out_ptr"
    assert "differs in element 0" in found.report()


def test_sums_of_floats_and_of_integers() -> None:
    x = torch.tensor([1e8, 1.0, -1e8, 1.0] * 16)
    (difference,) = check_determinism(total, x, torch.zeros(1), 64, BLOCK=1, grid=(64,)).differences
    assert difference.name == "out_ptr"
    n = torch.arange(64, dtype=torch.int32)
    assert check_determinism(total, n, torch.zeros(1, dtype=torch.int32), 64, BLOCK=1, grid=(64,)).deterministic


def test_a_clean_kernel() -> None:
    x = torch.randn(100)
    x[3] = float("nan")
    found = check_determinism(double[(7,)], x, torch.zeros(100), 100, BLOCK=16)
    assert found.deterministic and len(found.orders) == 6 and len(found.compared) == 2


def test_a_race_of_reads_and_writes_shows_in_small_batches() -> None:
    x = torch.arange(64.0)
    (difference,) = check_determinism(shift, x, 64, BLOCK=16, grid=(4,)).differences
    # what crosses from one program to the next
    assert difference.elements.tolist() == [15, 31, 47]
    assert torch.equal(x, torch.arange(64.0))


def test_locks_finish_in_every_order() -> None:
    found = check_determinism(locked, torch.zeros(1, dtype=torch.int32), torch.zeros(1), grid=(20,))
    assert found.deterministic


def test_a_function_with_memory_of_its_own() -> None:
    x, kept = torch.arange(64.0), torch.zeros(1, dtype=torch.int32)

    def work():
        out = torch.empty(64)
        double[(4,)](x, out, 64, BLOCK=16)
        last_wins[(4,)](kept)
        noise = torch.rand(3)
        return {"out": out, "sum": float(out.sum()), "noise": noise}

    found = check_determinism(work)
    assert [difference.name for difference in found.differences] == ["last_wins:out_ptr"]
    assert kept.item() == 0 and found.launches == 2
    assert "result['out']" in found.compared


def test_orders_that_are_asked_for() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    found = check_determinism(last_wins, out, grid=(8,), orders=["forward", 3, Order("reverse", batch=2)])
    assert [str(order) for order in found.orders] == ["forward", "random(3)", "reverse, 2 at a time"]
    with pytest.raises(ValueError, match="two at least"):
        check_determinism(last_wins, out, grid=(8,), orders=["forward"])
    with pytest.raises(ValueError, match="order must be one of"):
        check_determinism(last_wins, out, grid=(8,), orders=["forward", "sideways"])
    with pytest.raises(TypeError, match="grid="):
        check_determinism(last_wins, out)


def test_an_error_names_the_order() -> None:
    with pytest.raises(tritontrace.DeadlockError) as caught:
        check_determinism(starving, torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32), grid=(4,))
    if hasattr(caught.value, "__notes__"):
        assert any("order forward" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("order", ["reverse", 5, Order("random", 1, 3), Order("forward", batch=1)])
def test_a_session_in_another_order_gives_the_same(order: object) -> None:
    x, out = torch.randn(100), torch.zeros(100)
    with tritontrace.session(order=order):
        double[(7,)](x, out, 100, BLOCK=16)
    assert torch.equal(out, x * 2)


@triton.jit
def loses_updates(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + 1)


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_result_of_the_python_engine_says_that_programs_ran_alone(engine: str) -> None:
    found = check_determinism(loses_updates, torch.zeros(8), grid=(4,), B=8, session_options={"engine": engine})
    assert found.in_lockstep is (engine == "ir") and found.to_dict()["in_lockstep"] is found.in_lockstep
    assert found.deterministic is (engine == "python")
    assert ("one program after another" in found.report()) is (engine == "python")
