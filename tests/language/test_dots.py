"""``tl.dot`` with every type of operand and result, batched, accumulating; its numbers are tested in ``tests/numbers``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.refusals import refusal


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, o_ptr, BATCH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
               ACC: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr):  # fmt: skip
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    if BATCH == 0:
        ai = m[:, None] * K + k[None, :]
        bi = k[:, None] * N + n[None, :]
        ci = m[:, None] * N + n[None, :]
    else:
        z = tl.arange(0, BATCH)[:, None, None]
        ai = z * M * K + m[None, :, None] * K + k[None, None, :]
        bi = z * K * N + k[None, :, None] * N + n[None, None, :]
        ci = z * M * N + m[None, :, None] * N + n[None, None, :]
    p = tl.program_id(0)
    a = tl.load(a_ptr + p * M * K + ai)
    b = tl.load(b_ptr + bi)
    if ACC:
        c = tl.load(c_ptr + ci)
        r = tl.dot(a, b, acc=c, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=OUT)
    else:
        r = tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=OUT)
    tl.store(o_ptr + p * M * N + ci, r)


FLOATS = {
    "float16": (torch.float16, tl.float32, torch.float32),
    "float16 to float16": (torch.float16, tl.float16, torch.float16),
    "bfloat16": (torch.bfloat16, tl.float32, torch.float32),
    "float32": (torch.float32, tl.float32, torch.float32),
    "float64": (torch.float64, tl.float64, torch.float64),
    "e4m3": (torch.float8_e4m3fn, tl.float32, torch.float32),
    "e5m2": (torch.float8_e5m2, tl.float32, torch.float32),
    "e4m3 fnuz": (torch.float8_e4m3fnuz, tl.float32, torch.float32),
    "e5m2 fnuz": (torch.float8_e5m2fnuz, tl.float32, torch.float32),
    "int8": (torch.int8, tl.int32, torch.int32),
}


def run(kind: str, batch: int = 0, acc: bool = False, precision: str | None = "ieee", imprecise: int | None = None,
        shape: tuple[int, int, int] = (16, 32, 64), programs: int = 1, target: str = "cuda:90") -> None:  # fmt: skip
    operand, out_kind, result = FLOATS[kind]
    m, n, k = shape
    generator = np.random.default_rng(m + n)
    lead = (batch,) if batch else ()
    # Small whole numbers: every product and sum is exact in every type of result.
    a, b = (torch.from_numpy(generator.integers(-3, 4, s)) for s in ((*(lead or (programs,)), m, k), (*lead, k, n)))
    c = torch.from_numpy(generator.integers(-9, 9, (*lead, m, n)))
    out = torch.full((*(lead or (programs,)), m, n), 77).to(result)
    with tritontrace.session(clients=["tracer", "sanitizer"], target=target) as session:
        dot_kernel[(programs,)](
            a.to(operand), b.to(operand), c.to(result), out, BATCH=batch, M=m, N=n, K=k, ACC=acc, OUT=out_kind,
            PRECISION=precision, IMPRECISE=imprecise,
        )  # fmt: skip
    assert not session.findings
    assert torch.equal(out.long(), a @ b + (c if acc else 0))


@pytest.mark.parametrize("acc", [False, True])
@pytest.mark.parametrize("kind", list(FLOATS))
def test_every_type_of_operand(kind: str, acc: bool) -> None:
    run(kind, acc=acc)


@pytest.mark.parametrize("acc", [False, True])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "int8", "e5m2"])
def test_batches(kind: str, acc: bool) -> None:
    run(kind, batch=4, acc=acc, shape=(16, 16, 32))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 16, 4), (16, 1, 128), (128, 8, 2), (64, 64, 16)])
def test_every_size(shape: tuple[int, int, int]) -> None:
    run("float32", shape=shape, acc=True)
    run("int8", shape=shape)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6", None])
def test_small_whole_numbers_are_exact_in_every_precision(precision: str | None) -> None:
    run("float32", precision=precision, acc=True)


def test_a_limit_of_imprecise_sums_changes_nothing() -> None:
    run("e4m3", imprecise=32, acc=True)
    run("e4m3", imprecise=0)


def test_one_right_operand_for_many_programs() -> None:
    run("float16", programs=7)
    run("float32", programs=7, acc=True)


def test_the_other_vendor() -> None:
    run("e4m3 fnuz", target="hip:gfx942")
    run("float16", target="hip:gfx942", acc=True)


@triton.jit
def mixed_kernel(a_ptr, b_ptr, o_ptr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    tl.store(o_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


def test_two_kinds_of_fp8() -> None:
    generator = np.random.default_rng(0)
    a, b = (torch.from_numpy(generator.integers(-3, 4, (16, 16))) for _ in range(2))
    out = torch.zeros(16, 16)
    with tritontrace.session():
        mixed_kernel[(1,)](a.to(torch.float8_e4m3fn), b.to(torch.float8_e5m2), out)
    assert torch.equal(out.long(), a @ b)


@triton.jit
def transposed_kernel(a_ptr, o_ptr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    a = tl.load(a_ptr + at)
    acc = tl.zeros([16, 16], tl.float32)
    for _ in range(3):
        acc += tl.dot(a, tl.trans(a), input_precision="ieee")
        acc = tl.dot(a, a.T, acc, input_precision="ieee")
    tl.store(o_ptr + at, acc)


def test_products_with_a_transposed_tile_in_a_loop() -> None:
    a = torch.from_numpy(np.random.default_rng(0).integers(-3, 4, (16, 16))).float()
    out = torch.zeros(16, 16)
    with tritontrace.session():
        transposed_kernel[(1,)](a, out)
    assert torch.equal(out, 6 * a @ a.T)


def test_the_types_of_operands_must_fit() -> None:
    x: Any = torch.zeros(16, 16)
    with tritontrace.session(), pytest.raises(refusal()):
        mixed_kernel[(1,)](x, x.half(), torch.zeros(16, 16))


@triton.jit
def operand_layouts_kernel(a_ptr, b_ptr, straight_ptr, turned_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    own = tl.program_id(0) * N * N + at
    a = tl.load(a_ptr + own)
    tl.store(straight_ptr + own, tl.dot(a, tl.load(b_ptr + at), input_precision="ieee"))
    again = tl.trans(tl.load(b_ptr + i[None, :] * N + i[:, None]))
    tl.store(turned_ptr + own, tl.dot(a, again, input_precision="ieee"))


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_product_does_not_depend_on_other_programs_or_on_how_an_operand_came(engine: str) -> None:
    a, b = torch.randn(5, 32, 32), torch.randn(32, 32)
    straight, turned, alone = torch.zeros_like(a), torch.zeros_like(a), torch.zeros_like(a)
    with tritontrace.session(engine=engine):
        operand_layouts_kernel[(5,)](a, b, straight, turned, N=32)
        for p in range(5):
            operand_layouts_kernel[(1,)](a[p], b, alone[p], turned[p].clone(), N=32)
    assert torch.equal(straight, alone)
    assert torch.equal(straight, turned)
