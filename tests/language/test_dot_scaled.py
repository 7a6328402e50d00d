"""``tl.dot_scaled`` over its formats, scales, packings and shapes, against float64 products of ml_dtypes values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.kernels import capabilities


@triton.jit
def scaled_kernel(
    a_ptr, sa_ptr, b_ptr, sb_ptr, c_ptr, o_ptr,
    A: tl.constexpr, B: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A_M: tl.constexpr, A_K: tl.constexpr, B_K: tl.constexpr, B_N: tl.constexpr, GROUP: tl.constexpr,
    A_SCALED: tl.constexpr, B_SCALED: tl.constexpr, ACC: tl.constexpr,
    FAST: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0)
    a = tl.load(a_ptr + p * A_M * A_K + tl.arange(0, A_M)[:, None] * A_K + tl.arange(0, A_K)[None, :])
    b = tl.load(b_ptr + tl.arange(0, B_K)[:, None] * B_N + tl.arange(0, B_N)[None, :])
    g = tl.arange(0, K // GROUP)[None, :]
    if A_SCALED:
        sa = tl.load(sa_ptr + tl.arange(0, M)[:, None] * (K // GROUP) + g)
    else:
        sa = None
    if B_SCALED:
        sb = tl.load(sb_ptr + tl.arange(0, N)[:, None] * (K // GROUP) + g)
    else:
        sb = None
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    if ACC:
        c = tl.load(c_ptr + at)
        r = tl.dot_scaled(a, sa, A, b, sb, B, acc=c, fast_math=FAST, lhs_k_pack=A_PACK, rhs_k_pack=B_PACK)
    else:
        r = tl.dot_scaled(a, sa, A, b, sb, B, fast_math=FAST, lhs_k_pack=A_PACK, rhs_k_pack=B_PACK)
    tl.store(o_ptr + p * M * N + at, r)


FORMATS: dict[str, tuple[Any, torch.dtype]] = {
    "e4m3": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
    "e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2),
    "bf16": (ml_dtypes.bfloat16, torch.bfloat16),
    "fp16": (np.float16, torch.float16),
}


# ml_dtypes has the format too: four bits, of which it takes the low ones of a byte.
E2M1 = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def operand(kind: str, shape: tuple[int, ...], axis: int, seed: int) -> tuple[np.ndarray, torch.Tensor]:
    """(values in float64 of `shape`, the tensor that holds them; e2m1 packed along `axis`)."""
    generator = np.random.default_rng(seed)
    if kind == "e2m1":
        codes = generator.integers(0, 16, shape).astype(np.uint8)
        values = E2M1[codes]
        low = np.take(codes, range(0, shape[axis], 2), axis)
        high = np.take(codes, range(1, shape[axis], 2), axis)
        return values, torch.from_numpy(np.ascontiguousarray(low | (high << 4)))
    numpy_kind, torch_kind = FORMATS[kind]
    rounded = generator.normal(size=shape).astype(numpy_kind)
    raw = torch.from_numpy(rounded.view(f"i{rounded.itemsize}")).view(torch_kind)
    return rounded.astype(np.float64), raw


def run(
    a_kind: str,
    b_kind: str,
    *,
    scaled: tuple[bool, bool] = (True, True),
    acc: bool = False,
    fast: bool = False,
    pack: tuple[bool, bool] = (True, True),
    group: int = 32,
    scale_kind: torch.dtype = torch.uint8,
    programs: int = 1,
    as_bytes: bool = False,
    scales: tuple[int, int] = (115, 140),
) -> tuple[np.ndarray, np.ndarray]:
    """(what the kernel gives, what it should give)."""
    m, n, k = 16, 32, 64
    a, a_raw = operand(a_kind, (programs * m, k), 1 if pack[0] else 0, 1)
    b, b_raw = operand(b_kind, (k, n), 0 if pack[1] else 1, 2)
    if as_bytes:
        a_raw = a_raw.view(torch.uint8 if a_raw.element_size() == 1 else torch.uint16)
    generator = np.random.default_rng(3)
    factors, raw = [], []
    for rows in (m, n):
        if scale_kind is torch.uint8:
            codes = generator.integers(*scales, (rows, k // group)).astype(np.uint8)
            factors.append(np.where(codes == 255, np.nan, 2.0 ** (codes.astype(int) - 127)))
            raw.append(torch.from_numpy(codes))
        else:
            rounded = generator.uniform(0.5, 2, (rows, k // group)).astype(ml_dtypes.float8_e4m3fn)
            factors.append(rounded.astype(np.float64))
            raw.append(torch.from_numpy(rounded.view(np.uint8)).view(scale_kind))
    c = generator.normal(size=(m, n)).astype(np.float32)
    out = torch.full((programs * m, n), 77.0)
    a_shape = (m, a_raw.shape[1]) if pack[0] else (m // 2, k)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        scaled_kernel[(programs,)](
            a_raw, raw[0], b_raw, raw[1], torch.from_numpy(c), out, A=a_kind, B=b_kind, M=m, N=n, K=k,
            A_M=a_shape[0], A_K=a_shape[1], B_K=b_raw.shape[0], B_N=b_raw.shape[1], GROUP=group,
            A_SCALED=scaled[0], B_SCALED=scaled[1], ACC=acc, FAST=fast, A_PACK=pack[0], B_PACK=pack[1],
        )  # fmt: skip
    assert not session.findings
    left = a.reshape(programs, m, k) * (np.repeat(factors[0], group, 1) if scaled[0] else 1)
    right = b * (np.repeat(factors[1], group, 1).T if scaled[1] else 1)
    return out.numpy(), (left @ right + (c if acc else 0)).reshape(programs * m, n)


def close(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("b_kind", ["e2m1", *FORMATS])
@pytest.mark.parametrize("a_kind", ["e2m1", *FORMATS])
def test_every_pair_of_formats(a_kind: str, b_kind: str) -> None:
    close(*run(a_kind, b_kind))


@pytest.mark.parametrize("scaled", [(True, False), (False, True), (False, False)])
def test_scales_may_be_missing(scaled: tuple[bool, bool]) -> None:
    close(*run("e4m3", "bf16", scaled=scaled))
    close(*run("e2m1", "e5m2", scaled=scaled))


def test_the_accumulator_is_added_and_fast_math_changes_nothing_else() -> None:
    close(*run("e5m2", "e4m3", acc=True))
    close(*run("e5m2", "e4m3", acc=True, fast=True))


@pytest.mark.parametrize("pack", [(False, True), (True, False), (False, False)])
def test_e2m1_packed_along_the_other_axis(pack: tuple[bool, bool]) -> None:
    close(*run("e2m1", "e2m1", pack=pack))


def test_one_operand_for_many_programs() -> None:
    close(*run("e2m1", "e4m3", programs=5))


def test_narrow_floats_as_bytes() -> None:
    close(*run("e4m3", "e5m2", as_bytes=True))
    close(*run("bf16", "e5m2", as_bytes=True))


def test_scales_of_sixteen_in_e4m3() -> None:
    close(*run("e2m1", "e2m1", group=16, scale_kind=torch.float8_e4m3fn))


def test_extreme_scales() -> None:
    got, wanted = run("e4m3", "e4m3", scales=(0, 1))
    assert np.isfinite(got).all() and (wanted.astype(np.float32) == got).all()
    got, wanted = run("e4m3", "e4m3", scales=(254, 256))
    assert np.isnan(wanted).any() and (np.isnan(got) == np.isnan(wanted)).all()


@triton.jit
def batched_kernel(a_ptr, s_ptr, b_ptr, o_ptr):
    z = tl.arange(0, 2)[:, None, None]
    i = tl.arange(0, 16)
    k = tl.arange(0, 32)
    a = tl.load(a_ptr + z * 512 + i[None, :, None] * 32 + k[None, None, :])
    s = tl.load(s_ptr + z * 16 + i[None, :, None])
    b = tl.load(b_ptr + z * 512 + k[None, :, None] * 16 + i[None, None, :])
    tl.store(o_ptr + z * 256 + i[None, :, None] * 16 + i[None, None, :], tl.dot_scaled(a, s, "e4m3", b, None, "bf16"))


@pytest.mark.skipif(not capabilities.batched_scales(), reason="this Triton refuses the scales of a batch")
def test_batches() -> None:
    a, a_raw = operand("e4m3", (2, 16, 32), 1, 1)
    b, b_raw = operand("bf16", (2, 32, 16), 1, 2)
    scales = np.random.default_rng(0).integers(120, 130, (2, 16, 1)).astype(np.uint8)
    out = torch.zeros(2, 16, 16)
    with tritontrace.session():
        batched_kernel[(1,)](a_raw, torch.from_numpy(scales), b_raw, out)
    close(out.numpy(), (a * 2.0 ** (scales.astype(int) - 127)) @ b)


def test_clients_see_a_dot_of_the_scaled_operands() -> None:
    dots: list[Any] = []

    class Reader(tritontrace.Client):
        name = "reader"

        def register_op_callback(self, op: type) -> tritontrace.OpCallbacks | None:
            return tritontrace.OpCallbacks(after=dots.append) if op is tritontrace.events.Dot else None

    with tritontrace.session(clients=[Reader()]):
        got, _ = run("e2m1", "e4m3")
    (event,) = dots
    assert event.input_precision == "scaled"
    close(got, np.asarray(event.a)[0] @ np.asarray(event.b)[0])
