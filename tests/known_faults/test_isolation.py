"""Known faults 1, 2, 3, 5, 6, 8, 28, 42: threads, what a launch leaves behind, and what clients do to outputs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tritontrace
from tests.known_faults.helpers import WATCHED, changed, in_subprocess, in_threads, snapshot, watching
from tritontrace.clients.registry import known_names

HERE = Path(__file__).parent


@triton.jit
def axpy_kernel(x_ptr, y_ptr, out_ptr, a, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, a * x + y, mask=mask)


@triton.jit
def other_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, tl.sqrt(x * x + 1.0) + tl.sum(x), mask=offsets < n)


def axpy(seed: int, n: int = 300) -> None:
    """One launch, checked."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, generator=generator), torch.randn(n, generator=generator)
    out = torch.empty(n)
    axpy_kernel[(triton.cdiv(n, 64),)](x, y, out, 2.0, n, BLOCK=64)
    torch.testing.assert_close(out, 2 * x + y)


def test_fault_1_four_threads_launch_one_kernel_at_once() -> None:
    def launches(seed: int) -> int:
        with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
            for i in range(200):
                axpy(seed * 1000 + i)
        assert session.findings == []
        return len(session.launches)

    assert in_threads([lambda s=s: launches(s) for s in range(4)]) == [200] * 4


def compiled_text() -> str:
    """The PTX of `other_kernel`, compiled for a GPU that is not there."""
    source = ASTSource(other_kernel, signature={"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
                       constexprs={(3,): 128})  # fmt: skip
    return str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])


def test_fault_2_compiling_beside_traced_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    alone = compiled_text()
    stop = threading.Event()

    def compile_in_a_loop() -> set[str]:
        texts = set()
        while not stop.is_set():
            texts.add(compiled_text())
        return texts

    def launches(seed: int) -> None:
        try:
            with tritontrace.session(clients=["tracer", "sanitizer"]):
                for i in range(40):
                    axpy(seed + i)
        finally:
            stop.set()

    texts, _, _ = in_threads([compile_in_a_loop, lambda: launches(0), lambda: launches(1000)])
    assert texts == {alone}


def test_fault_3_nothing_changes_in_triton_or_the_users_module() -> None:
    module = sys.modules[__name__]
    objects = (*WATCHED, module, axpy_kernel, axpy_kernel.fn)
    axpy_kernel_vars = snapshot(axpy_kernel)
    before = snapshot(*objects)
    with watching(*objects) as seen, tritontrace.session(clients=["tracer", "sanitizer"]):
        for i in range(30):
            axpy(i, n=64 + i)
    assert seen == []
    assert changed(before, *objects) == []
    assert changed(axpy_kernel_vars, axpy_kernel) == []


def test_fault_3_classes_are_as_before_after_the_last_session() -> None:
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    classes = (JITFunction, Autotuner, Heuristics)
    before = snapshot(*classes)
    with tritontrace.session(clients=["tracer"]):
        axpy(1)
    assert changed(before, *classes) == []


@triton.jit
def eighty_stores_kernel(out_ptr, n, BLOCK: tl.constexpr):
    for i in range(n):
        tl.store(out_ptr + i * BLOCK + tl.arange(0, BLOCK), i)


@triton.jit
def eighty_other_stores_kernel(out_ptr, n, BLOCK: tl.constexpr):
    for i in range(n):
        tl.store(out_ptr + (n - 1 - i) * BLOCK + tl.arange(0, BLOCK), -i)


class StoreCounter(tritontrace.Client):
    """Counts the stores of each launch, program by program."""

    name = "store_counter"

    def __init__(self) -> None:
        self.count = 0

    def for_launch(self, launch):
        return StoreCounter()

    def register_op_callback(self, op):
        if op is not tritontrace.events.Store:
            return None
        return tritontrace.OpCallbacks(after=self.seen)

    def seen(self, event) -> None:
        self.count += len(event)

    def finalize(self):
        return [self.count]


def test_fault_5_each_launch_has_its_own_events() -> None:
    def launches(kernel) -> list[int]:
        with tritontrace.session(clients=[StoreCounter]) as session:
            for _ in range(10):
                out = torch.zeros(80 * 16, dtype=torch.int32)
                kernel[(1,)](out, 80, BLOCK=16)
        return [launch.records["store_counter"][0] for launch in session.launches]

    counts = in_threads([lambda: launches(eighty_stores_kernel), lambda: launches(eighty_other_stores_kernel)])
    assert counts == [[80] * 10, [80] * 10]


@pytest.mark.parametrize("environment", [{"TRITON_INTERPRET": "1"}, {"SET_AFTER_IMPORT": "1"}], ids=["before", "after"])
def test_faults_6_and_8_the_interpreters_variable_changes_nothing(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set before Triton is imported, and after; every other test of this suite runs with it unset."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert in_subprocess(HERE / "interpreted.py", **environment).strip() == "right"


def test_fault_28_launch_hooks_fire_once_per_launch() -> None:
    entered, left = [], []
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    on_enter, on_leave = entered.append, left.append
    enter.add(on_enter)
    leave.add(on_leave)
    try:
        with tritontrace.session(clients=["tracer"]), tritontrace.session(clients=["sanitizer"]):
            axpy(1)
            axpy(2)
    finally:
        enter.remove(on_enter)
        leave.remove(on_leave)
    assert len(entered) == len(left) == 2
    assert "axpy_kernel" in entered[0].get()["name"]


@pytest.mark.parametrize("clients", [[name] for name in known_names()] + [known_names()], ids=lambda c: "+".join(c))
def test_fault_42_outputs_are_right_under_every_client(clients: list[str]) -> None:
    with tritontrace.session(clients=clients) as session:
        axpy(3, n=1000)
    assert session.launches[0].completed
