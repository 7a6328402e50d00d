"""Every atomic with every type it takes, masked, colliding, with its returned value, order and scope."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.refusals import default_engine


@triton.jit
def updating(m_ptr, i_ptr, v_ptr, k_ptr, o_ptr, OP: tl.constexpr, USED: tl.constexpr, MASKED: tl.constexpr,
             SEM: tl.constexpr, SCOPE: tl.constexpr, B: tl.constexpr):  # fmt: skip
    lane = tl.program_id(0) * B + tl.arange(0, B)
    p = m_ptr + tl.load(i_ptr + lane)
    v = tl.load(v_ptr + lane)
    if MASKED:
        k = tl.load(k_ptr + lane)
    else:
        k = None
    if OP == "add":
        old = tl.atomic_add(p, v, mask=k, sem=SEM, scope=SCOPE)
    elif OP == "and":
        old = tl.atomic_and(p, v, mask=k, sem=SEM, scope=SCOPE)
    elif OP == "or":
        old = tl.atomic_or(p, v, mask=k, sem=SEM, scope=SCOPE)
    elif OP == "xor":
        old = tl.atomic_xor(p, v, mask=k, sem=SEM, scope=SCOPE)
    elif OP == "max":
        old = tl.atomic_max(p, v, mask=k, sem=SEM, scope=SCOPE)
    elif OP == "min":
        old = tl.atomic_min(p, v, mask=k, sem=SEM, scope=SCOPE)
    else:
        old = tl.atomic_xchg(p, v, mask=k, sem=SEM, scope=SCOPE)
    if USED:
        tl.store(o_ptr + lane, old)


NUMPY: dict[torch.dtype, Any] = {
    torch.int32: np.int32, torch.int64: np.int64, torch.uint32: np.uint32, torch.uint64: np.uint64,
    torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16, torch.float32: np.float32, torch.float64: np.float64,
}  # fmt: skip
INTEGERS = [torch.int32, torch.int64, torch.uint32, torch.uint64]
TAKES = {
    "add": [*INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64],
    "and": INTEGERS,
    "or": INTEGERS,
    "xor": INTEGERS,
    "max": [*INTEGERS, torch.float32, torch.float64],
    "min": [*INTEGERS, torch.float32, torch.float64],
    "xchg": [*INTEGERS, torch.float32, torch.float64],
}
STEPS: dict[str, Any] = {
    "add": lambda a, b: a + b, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "max": max, "min": min, "xchg": lambda a, b: b,
}  # fmt: skip


def to_torch(values: np.ndarray, kind: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(values.view(f"i{values.itemsize}")).view(kind)


def sequence(op: str, memory: np.ndarray, index: np.ndarray, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The old values of the lanes when they act one after another; changes `memory`."""
    old = np.zeros_like(values)
    kind = memory.dtype.type
    with np.errstate(over="ignore"):
        lanes = np.flatnonzero(mask)
        if op in ("max", "min") and kind not in (np.int32, np.int64, np.uint32, np.uint64):
            # Triton makes two integer atomics of it, the second of which is for the negative values.
            second = np.signbit(values[lanes])
            # In the Python engine the second program begins behind the end of the first.
            turn = lanes >= len(values) // 2 if default_engine() == "python" else np.zeros(len(lanes), bool)
            lanes = lanes[np.lexsort((second, turn))]
        for lane in lanes:
            old[lane] = memory[index[lane]]
            memory[index[lane]] = kind(STEPS[op](memory[index[lane]], values[lane]))
    return old


def run(
    op: str, kind: torch.dtype, used: bool, masked: bool, sem: str | None = None, scope: str | None = None, spread: int = 5
) -> None:
    generator = np.random.default_rng(len(op) + spread)
    lanes = 32
    if NUMPY[kind] in (np.int32, np.int64, np.uint32, np.uint64):
        info = np.iinfo(NUMPY[kind])
        start, values = (generator.integers(info.min, info.max, n, dtype=NUMPY[kind]) for n in (spread, lanes))
    else:
        # Small multiples of a power of two: sums are exact, so that the order of the lanes does not matter.
        start, values = ((generator.integers(-8, 8, n) / 4).astype(NUMPY[kind]) for n in (spread, lanes))
    index = generator.permutation(lanes) % spread if spread < lanes else np.arange(lanes)
    mask = generator.random(lanes) < 0.6 if masked else np.ones(lanes, bool)
    wanted = start.copy()
    old = sequence(op, wanted, index, values, mask)
    memory, out = to_torch(start.copy(), kind), to_torch(np.zeros_like(values), kind)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        updating[(2,)](
            memory, torch.from_numpy(index.astype(np.int64)), to_torch(values, kind), torch.from_numpy(mask), out,
            OP=op, USED=used, MASKED=masked, SEM=sem, SCOPE=scope, B=lanes // 2,
        )  # fmt: skip
    assert not session.findings
    got = memory.view(getattr(torch, f"int{8 * start.itemsize}")).numpy().view(start.dtype)
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))
    if used:
        returned = out.view(getattr(torch, f"int{8 * start.itemsize}")).numpy().view(start.dtype)
        np.testing.assert_array_equal(returned[mask].astype(np.float64), old[mask].astype(np.float64))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(("op", "kind"), [(op, kind) for op, kinds in TAKES.items() for kind in kinds], ids=str)
def test_every_operation_and_type(op: str, kind: torch.dtype, used: bool, masked: bool) -> None:
    for spread in (1, 5, 32):
        run(op, kind, used, masked, spread=spread)


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
def test_order_and_scope_stand_in_the_event_and_change_no_value(sem: str, scope: str) -> None:
    seen: list[tuple[str, str, str]] = []

    class Reader(tritontrace.Client):
        name = "reader"

        def register_op_callback(self, op: type) -> tritontrace.OpCallbacks | None:
            if op is not tritontrace.events.Atomic:
                return None
            return tritontrace.OpCallbacks(after=lambda event: seen.append((event.operation, event.sem, event.scope)))

    with tritontrace.session(clients=[Reader()]):
        run("add", torch.int32, True, True, sem, scope)
    assert set(seen) == {("add", sem, scope)}


@triton.jit
def swapping(m_ptr, e_ptr, v_ptr, o_ptr, SEM: tl.constexpr, B: tl.constexpr):
    lane = tl.arange(0, B)
    old = tl.atomic_cas(m_ptr + lane // 2, tl.load(e_ptr + lane), tl.load(v_ptr + lane), sem=SEM)
    tl.store(o_ptr + lane, old)


@pytest.mark.parametrize(
    "kind", [torch.int16, torch.uint16, *INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_compare_and_swap(kind: torch.dtype) -> None:
    numpy_kind = {torch.int16: np.int16, torch.uint16: np.uint16, **NUMPY}[kind]
    generator = np.random.default_rng(0)
    start, expected, values = (generator.integers(0, 3, n).astype(numpy_kind) for n in (8, 16, 16))
    memory = start.copy()
    old = np.zeros_like(values)
    for lane in range(16):
        old[lane] = memory[lane // 2]
        if memory[lane // 2] == expected[lane]:
            memory[lane // 2] = values[lane]
    got, out = to_torch(start.copy(), kind), to_torch(np.zeros_like(values), kind)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        swapping[(1,)](got, to_torch(expected, kind), to_torch(values, kind), out, SEM="acq_rel", B=16)
    assert not session.findings
    assert torch.equal(got, to_torch(memory, kind)) and torch.equal(out, to_torch(old, kind))


@triton.jit
def scalars(m_ptr, o_ptr):
    p = tl.program_id(0)
    tl.store(o_ptr + 0 * 8 + p, tl.atomic_add(m_ptr, p + 1))
    tl.store(o_ptr + 1 * 8 + p, tl.atomic_max(m_ptr + 1, p))
    tl.store(o_ptr + 2 * 8 + p, tl.atomic_xchg(m_ptr + 2, p, mask=p != 3))
    tl.store(o_ptr + 3 * 8 + p, tl.atomic_cas(m_ptr + 3, p, p + 1))


def test_one_address_for_all_programs() -> None:
    memory, out = torch.zeros(4, dtype=torch.int32), torch.zeros(4, 8, dtype=torch.int32)
    with tritontrace.session():
        scalars[(8,)](memory, out)
    assert memory.tolist() == [36, 7, 7, 8]
    assert sorted(out[0].tolist()) == [0, 1, 3, 6, 10, 15, 21, 28]
    assert out[1].tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    assert out[2].tolist()[:3] == [0, 0, 1] and out[2].tolist()[4:] == [2, 4, 5, 6]
    assert out[3].tolist() == list(range(8))


SPECIAL = [-np.inf, -2.0, -1e-310, -0.0, 0.0, 1e-310, 1.5, np.inf, np.nan, -np.nan]


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
def test_extremes_of_special_floats(op: str, kind: torch.dtype) -> None:
    """Every special value against every other: what was there is returned bit for bit, and the total order decides."""
    numbers = np.array(SPECIAL, NUMPY[kind])
    numbers[3], numbers[-1] = -numbers[4], np.copysign(numbers[-2], -1)
    lanes = 128
    start, values = (np.zeros(lanes, numbers.dtype) for _ in range(2))
    start[: len(numbers) ** 2] = np.repeat(numbers, len(numbers))
    values[: len(numbers) ** 2] = np.tile(numbers, len(numbers))
    memory, out = to_torch(start.copy(), kind), to_torch(np.zeros_like(values), kind)
    with tritontrace.session():
        updating[(2,)](
            memory, torch.arange(lanes), to_torch(values, kind), torch.ones(lanes, dtype=torch.bool), out,
            OP=op, USED=True, MASKED=False, SEM=None, SCOPE=None, B=lanes // 2,
        )  # fmt: skip
    bits = getattr(torch, f"int{8 * start.itemsize}")

    def order(floats: np.ndarray) -> np.ndarray:
        """Integers in the order of the floats: -nan, -inf, ..., -0, 0, ..., inf, nan."""
        whole = floats.view(f"i{floats.itemsize}")
        return np.where(whole < 0, ~whole ^ np.iinfo(whole.dtype).min, whole)

    np.testing.assert_array_equal(out.view(bits).numpy(), start.view(f"i{start.itemsize}"))
    wanted = np.where((order(values) > order(start)) == (op == "max"), values, start)
    np.testing.assert_array_equal(memory.view(bits).numpy(), wanted.view(f"i{start.itemsize}"))


@triton.jit
def bitwise_on_floats(x_ptr, old_ptr, value, KIND: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.full((N,), value, x_ptr.dtype.element_ty)
    if KIND == 0:
        old = tl.atomic_and(x_ptr + i // 2, v)
    elif KIND == 1:
        old = tl.atomic_or(x_ptr + i // 2, v)
    else:
        old = tl.atomic_xor(x_ptr + i // 2, v)
    tl.store(old_ptr + i, old)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_bitwise_atomics_of_floats_work_on_the_bits(kind: int, dtype: torch.dtype) -> None:
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    x, old = torch.tensor([1.5, -3.0], dtype=dtype), torch.zeros(4, dtype=dtype)
    one = (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)[kind]
    value = torch.tensor(2.5, dtype=dtype).view(bits)
    once = one(x.view(bits), value)
    with tritontrace.session():
        bitwise_on_floats[(1,)](given := x.clone(), old, 2.5, KIND=kind, N=4)
    assert torch.equal(given.view(bits), one(once, value))
    assert torch.equal(old.view(bits), torch.stack([x.view(bits), once], 1).reshape(-1))
