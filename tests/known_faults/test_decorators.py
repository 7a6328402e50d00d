"""Known faults 7, 29, 30, 31: autotuned kernels and heuristics, where there is no driver."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.known_faults.helpers import changed, in_threads, snapshot


@pytest.fixture(autouse=True)
def traced():
    """Every test of this module runs in a session, which must stay without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []


def configs(*blocks: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}) for block in blocks]


def test_fault_29_autotune_without_a_gpu(traced) -> None:
    @triton.autotune(configs(16, 64), key=["n"])
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x + 1, mask=offsets < n)

    x = torch.randn(100)
    out = torch.zeros(100)
    kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
    assert torch.equal(out, x + 1)
    assert len(traced.launches) == 1
    assert traced.launches[0].config["BLOCK"] in (16, 64)


def test_fault_30_trials_add_nothing() -> None:
    @triton.autotune(configs(8, 16), key=["n"])
    @triton.jit
    def kernel(out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(out_ptr + offsets, 1, mask=offsets < n)

    out = torch.zeros(16, dtype=torch.int32)
    kernel[lambda meta: (triton.cdiv(16, meta["BLOCK"]),)](out, 16)
    assert out.sum().item() == 16
    assert out.tolist() == [1] * 16


def test_fault_30_scaling_in_place_is_done_once() -> None:
    @triton.autotune(configs(8, 16, 32), key=["n"])
    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(x_ptr + offsets, x * 2, mask=offsets < n)

    x = torch.arange(50, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(50, meta["BLOCK"]),)
    kernel[grid](x, 50)
    assert torch.equal(x, 2 * torch.arange(50, dtype=torch.float32))
    kernel[grid](x, 50)  # the cache is warm now
    assert torch.equal(x, 4 * torch.arange(50, dtype=torch.float32))


def test_fault_30_only_the_chosen_configs_half_is_written(traced) -> None:
    @triton.autotune([triton.Config({"HALF": 0}), triton.Config({"HALF": 1})], key=[])
    @triton.jit
    def kernel(out_ptr, HALF: tl.constexpr):
        tl.store(out_ptr + HALF * 8 + tl.arange(0, 8), 1)

    out = torch.zeros(16, dtype=torch.int32)
    kernel[(1,)](out)
    chosen = traced.launches[0].config["HALF"]
    assert out.reshape(2, 8).sum(1).tolist() == ([8, 0] if chosen == 0 else [0, 8])


@triton.jit
def evenness_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, x + 100)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, x + 1, mask=offsets < n)


def even(args) -> bool:
    return args["n"] % args["BLOCK"] == 0


def decorated() -> dict[str, object]:
    """Fresh kernels each time: one layer, and both orders of two."""
    return {
        "heuristics": triton.heuristics({"BLOCK": lambda args: 16, "EVEN": even})(evenness_kernel),
        "autotune over heuristics": triton.autotune(configs(16, 8), key=["n"])(
            triton.heuristics({"EVEN": even})(evenness_kernel)
        ),
        "heuristics over autotune": triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})(
            triton.autotune(configs(16, 8), key=["n"])(evenness_kernel)
        ),
    }


@pytest.mark.parametrize("name", ["heuristics", "autotune over heuristics", "heuristics over autotune"])
def test_fault_31_heuristics_kernels_run_and_stay_as_they_are(name: str) -> None:
    kernel = decorated()[name]
    layers = [kernel]
    while hasattr(layers[-1], "fn") and not isinstance(layers[-1], triton.runtime.JITFunction):
        layers.append(layers[-1].fn)
    before = snapshot(*layers)
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)
    for n, added in ((64, 100), (50, 1)):
        x = torch.randn(n)
        out = torch.zeros(n)
        kernel[grid](x, out, n)
        assert torch.equal(out, x + added)
    assert changed(before, *layers) == []
    assert not getattr(kernel, "cache", None)


def test_fault_7_two_threads_launch_one_cold_autotuned_kernel() -> None:
    for _ in range(5):
        kernel = triton.autotune(configs(16, 8, 32), key=["n"])(triton.heuristics({"EVEN": even})(evenness_kernel))

        def launch(n: int, kernel=kernel) -> None:
            with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
                x, out = torch.randn(n), torch.zeros(n)
                kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
            assert session.findings == []
            difference = (out - x).round()
            assert difference.eq(1).all() or difference.eq(100).all()

        in_threads([lambda: launch(64), lambda: launch(50)])
