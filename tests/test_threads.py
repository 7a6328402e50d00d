"""Many threads, each with a session of its own, beside one that compiles: outputs, text and Triton's objects stay the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tritontrace
from tests.known_faults.helpers import WATCHED, in_threads, watching


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * factor, mask=offsets < n)


@triton.jit
def row_statistics(x, n):
    mean = tl.sum(x, axis=0) / n
    return mean, tl.sum(x * x, axis=0) / n - mean * mean


@triton.jit
def statistics_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=0.0)
    mean, variance = row_statistics(x, n)
    tl.store(out_ptr + 2 * row, mean)
    tl.store(out_ptr + 2 * row + 1, variance)


@triton.jit
def count_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.atomic_add(out_ptr + (x > 0).to(tl.int32), 1, mask=offsets < n)


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tile = i[:, None] * B + i[None, :]
    tl.store(out_ptr + tile, tl.dot(tl.load(a_ptr + tile), tl.load(b_ptr + tile), input_precision="ieee"))


@triton.jit
def compiled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    mean, variance = row_statistics(x, n)  # a helper that traced launches use at the same time
    tl.store(out_ptr + offsets, tl.exp(x - mean) / tl.sqrt(variance + 1.0), mask=offsets < n)


def scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, 3.0, x.numel(), BLOCK=64)
    return out


def statistics(x: torch.Tensor) -> torch.Tensor:
    x = x[:256].reshape(8, 32)
    out = torch.empty(8, 2)
    statistics_kernel[(8,)](x, out, 32, BLOCK=32)
    return out


def count(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, dtype=torch.int32)
    count_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def dot(x: torch.Tensor) -> torch.Tensor:
    a = x[:256].reshape(16, 16)
    out = torch.empty(16, 16)
    dot_kernel[(1,)](a, a.t().contiguous(), out, B=16)
    return out


KERNELS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (scale, statistics, count, dot)


def inputs(seed: int) -> torch.Tensor:
    return torch.randn(300, generator=torch.Generator().manual_seed(seed))


def compile_offline() -> str:
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(compiled_kernel, signature=signature, constexprs={(3,): 64})
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])


def launches(function: Callable[[torch.Tensor], torch.Tensor], seeds: range) -> list[torch.Tensor]:
    """One traced launch for each seed, in one session of its own."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        outputs = [function(inputs(seed)) for seed in seeds]
    assert len(session.launches) == len(seeds)
    assert all(launch.completed for launch in session.launches)
    assert session.findings == []
    return outputs


@pytest.mark.slow
def test_eight_threads_beside_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads for each of four kernels, 200 launches each, while a ninth compiles offline all the time."""
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    text = compile_offline()
    seeds = [range(200 * i, 200 * (i + 1)) for i in range(8)]
    jobs = [(KERNELS[i % 4], seeds[i]) for i in range(8)]
    serial = [launches(*job) for job in jobs]

    finished = threading.Event()

    def compiler() -> list[str]:
        texts = []
        while not finished.is_set() or not texts:
            texts.append(compile_offline())
        return texts

    with watching(*WATCHED) as seen, ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(compiler)
        try:
            parallel = in_threads([lambda job=job: launches(*job) for job in jobs])
        finally:
            finished.set()
        texts = compiled.result()
    assert seen == []
    assert set(texts) == {text}
    for alone, together in zip(serial, parallel, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_cold_kernels_on_many_threads_at_once() -> None:
    """Nobody has compiled these kernels: all threads meet in the frontend."""

    def fresh() -> Callable[[torch.Tensor], torch.Tensor]:
        @triton.jit
        def shift(x, by):
            return x + by

        @triton.jit
        def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + offsets, mask=offsets < n)
            tl.store(out_ptr + offsets, shift(x, 1), mask=offsets < n)

        def run(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
            return out

        return run

    for _ in range(5):
        shared = fresh()
        functions = [shared, shared, shared, shared, fresh(), fresh(), fresh(), fresh()]
        outputs = in_threads([lambda f=f, s=s: launches(f, range(s, s + 3)) for s, f in enumerate(functions)])
        for seed, results in enumerate(outputs):
            for offset, result in enumerate(results):
                assert torch.equal(result, inputs(seed + offset) + 1)


def test_one_thread_in_a_session_and_one_outside() -> None:
    """The thread without a session reaches Triton itself, which has no driver here; the other one is traced."""
    ready, done = threading.Event(), threading.Event()

    def inside() -> None:
        with tritontrace.session(clients=["tracer"]) as session:
            ready.set()
            for seed in range(50):
                assert torch.equal(scale(inputs(seed)), inputs(seed) * 3)
            done.wait()
        assert len(session.launches) == 50

    def outside() -> None:
        ready.wait()
        try:
            if torch.cuda.is_available():
                pytest.skip("a driver is there")
            for _ in range(20):
                with pytest.raises(RuntimeError, match="driver"):
                    scale(inputs(0))
        finally:
            done.set()

    in_threads([inside, outside])
