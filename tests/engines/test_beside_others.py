"""The Python engine beside others: Triton's interpreter, compilers, the IR engine, tracers of Python; and after errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tritontrace
from tests.known_faults.helpers import WATCHED, changed, in_subprocess, in_threads, snapshot, watching
from tritontrace.engines.python.state import CURRENT
from tritontrace.errors import DeadlockError, KernelError

HERE = Path(__file__).parent


def test_kernels_of_triton_interpret() -> None:
    assert in_subprocess(HERE / "interpreted.py", TRITON_INTERPRET="1") == "right\n"


def test_coverage_sees_the_kernels_lines() -> None:
    pytest.importorskip("coverage")
    lines = in_subprocess(HERE / "covered.py").splitlines()
    assert {"x = tl.load(x_ptr)", "if BIG:", "x = x + 1", "tl.store(x_ptr, x)"} <= set(lines)
    assert "x = x * 100" not in lines


@triton.jit
def shifted(x, by):
    return x + by


@triton.jit
def smaller(a, b):
    return tl.where(a < b, a, b)


@triton.jit
def mixed(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    for i in range(3):
        x = shifted(x, i.to(tl.float32))
    tl.store(out_ptr + at, x - tl.reduce(x, 0, smaller), mask=at < n)


@triton.jit
def compiled(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.sqrt(tl.load(x_ptr + at)) + tl.sum(tl.load(x_ptr + at)))


def ptx() -> str:
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "BLOCK": "constexpr"}
    source = ASTSource(compiled, signature, {"BLOCK": 64}, {})
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])


def launches(engine: str, seed: int, count: int) -> Callable[[], int]:
    def run() -> int:
        right = 0
        for number in range(count):
            x = torch.randn(40, generator=torch.Generator().manual_seed(100 * seed + number))
            out = torch.zeros(40)
            with tritontrace.session(clients=["sanitizer"], engine=engine) as session:
                mixed[(5,)](x, out, 40, BLOCK=8)
            wanted = x + 3
            torch.testing.assert_close(out, wanted - wanted.view(5, 8).min(1, keepdim=True).values.expand(5, 8).reshape(40))
            assert session.findings == [] and len(session.launches) == 1
            right += 1
        return right

    return run


def test_eight_threads_of_both_engines_beside_a_compiler_and_an_interpreter() -> None:
    alone = ptx()

    def compiles() -> int:
        return sum(ptx() == alone for _ in range(10))

    def interprets() -> str:
        return in_subprocess(HERE / "interpreted.py", "20", TRITON_INTERPRET="1")

    work = [launches("python" if seed % 2 else "ir", seed, 15) for seed in range(8)]
    with watching(*WATCHED) as seen:
        results = in_threads([*work, compiles, interprets])
    assert results == [*[15] * 8, 10, "right\n"]
    assert seen == []


def test_nothing_is_written_on_kernels_helpers_and_combine_functions() -> None:
    kernels = (mixed, shifted, smaller, tl.sum, tl.max)
    before = snapshot(*kernels)
    hashes = [kernel.hash for kernel in kernels]
    launches("python", 1, 2)()
    assert changed(before, *kernels) == []
    assert [kernel.hash for kernel in kernels] == hashes


@triton.jit
def picky(a, b):
    if tl.program_id(0) == 1:
        raise ValueError("in a combine function")
    return a + b


@triton.jit
def failing(x_ptr, WHERE: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(x_ptr + at)
    if WHERE == "combine":
        x += tl.reduce(x, 0, picky)
    for i in range(3):
        if WHERE == "for" and i == 1:
            raise ValueError("in a loop")
    k = 0
    while k < 4:
        k += 1
        if WHERE == "while" and k == 2:
            raise ValueError("in a while loop")
    while WHERE == "wait" and tl.atomic_add(x_ptr, 0.0) != tl.program_id(0) + 100.0:
        if tl.program_id(0) == 2:
            raise ValueError("beside programs that wait")
    while WHERE == "deadlock" and tl.atomic_add(x_ptr, 0.0) == 0.0:
        pass


@pytest.mark.parametrize("where", ["combine", "for", "while", "wait", "deadlock"])
def test_an_error_in_the_middle_leaves_nothing_behind(where: str) -> None:
    threads = set(threading.enumerate())
    objects: tuple[Any, ...] = (*WATCHED, failing, picky)
    before = snapshot(*objects)
    for _ in range(3):
        with (
            tritontrace.session(clients=["tracer"], engine="python") as session,
            pytest.raises(DeadlockError if where == "deadlock" else KernelError),
        ):
            failing[(4,)](torch.zeros(4), WHERE=where, B=4)
        (launch,) = session.launches
        assert not launch.completed and launch.error is not None
        assert CURRENT.get(None) is None
        for thread in set(threading.enumerate()) - threads:
            thread.join(10)
        assert set(threading.enumerate()) <= threads
    assert changed(before, *objects) == []
    assert launches("python", 3, 1)() == 1
