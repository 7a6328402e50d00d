"""A script, not a test, for TRITON_INTERPRET=1: traced launches after, inside and beside runs of Triton's own interpreter.

The first argument says which. "held": a thread stands still in the middle of an interpreted kernel. "beside": it runs one such
kernel after another, while eight threads trace. "late": tritontrace is imported when the interpreter left replacements behind.
"inside": imported while it is in the middle of a kernel. "lost": after two interpreters have restored what each had found of the
other's, so that Triton itself has nothing of its own any more.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

ENGINES = ("ir", "python", "auto")
OWNERS = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, tl.dtype)

fallbacks: list[Any] = []
"""What engine="auto" told of launches that it had to start again."""


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        fallbacks.append(record.getMessage())


logging.getLogger("tritontrace.engines.auto").addHandler(_Handler())
entered, leave = threading.Event(), threading.Event()


def pause() -> None:
    entered.set()
    assert leave.wait(100)


@triton.jit
def shifted(x, by):
    return x + by


@triton.jit
def interpreted(x_ptr, out_ptr, n, HOLD: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    total = tl.sum(shifted(x * 2, 1.0))
    if HOLD:
        pause()
    for _ in tl.range(0, 2):
        total += tl.sum(x).to(tl.float32)
    tl.store(out_ptr + tl.program_id(0), total)


@triton.jit
def smaller(a, b):
    return tl.where(a < b, a, b)


def twice(x: Any, _semantic: Any) -> Any:
    return tl.core.add(x, x, _semantic=_semantic)


@tl.core.builtin
def own(x, _semantic=None):
    return tl.core.mul(twice(x, _semantic), 0.5, _semantic=_semantic)


class _Pair:
    def __init__(self, first, second):
        self.first = first
        self.second = second

    def total(self, _semantic=None):
        return tl.core.add(self.first, self.second, _semantic=_semantic)


_Pair.__annotations__ = {"first": tl.tensor, "second": tl.tensor}  # 3.6 takes no strings
Pair = tl.core._aggregate(_Pair)


@triton.jit
def paired(desc, out_ptr, SCALE: tl.constexpr):
    x = desc.load([0, 0])
    tl.store(out_ptr, tl.sum(tl.sum(Pair(x, x * SCALE).total(), 0), 0))


@triton.jit
def refused(out_ptr, SCALE: tl.constexpr):
    tl.static_assert(SCALE < 0, "not allowed")


@triton.jit
def traced(x_ptr, out_ptr, count_ptr, n, SCALE: tl.constexpr, B: tl.constexpr):
    tl.static_assert(B > 1)
    tl.static_print("tracing", SCALE)
    at = tl.multiple_of(tl.program_id(0) * B, 2) + tl.arange(0, B)
    x = own(tl.load(x_ptr + at, mask=at < n, other=0.0))
    total = tl.sum(x) + tl.reduce(x, 0, smaller) + x.max()
    for i in tl.static_range(3):
        tl.static_assert(i < 3)
        total += i + tl.sum(tl.full([2 << i], 0.0, tl.float32))
    for i in tl.range(0, 3):
        total += shifted(i, 1).to(tl.uint8).to(tl.float32)
    y = tl.cumsum(tl.where((x > 2) & (at < n), -x, x) * SCALE, 0)
    if tl.abs(total) > 1000:
        y = y * 0
    desc = tl.make_tensor_descriptor(x_ptr, [1, n], [n, 1], [1, B])
    y += desc.load([0, 0]).reshape(B) + libdevice.abs(-x) + tl.math.abs(-x)
    y += libdevice.isinf(x)
    tl.atomic_add(count_ptr, 1)
    tl.store(out_ptr + at, y + total, mask=at < n)


B, N = 8, 16


def wanted(x: torch.Tensor, scale: int) -> torch.Tensor:
    parts = x.view(2, B)
    total = parts.sum(1) + parts.amin(1) + parts.amax(1) + 3 + 6
    y = torch.where(parts > 2, -parts, parts) * scale
    return (y.cumsum(1) + parts[:1] + 2 * parts.abs() + total[:, None]).view(N)


def trace(engine: str, scale: int) -> Any:
    import tritontrace

    x = torch.arange(N, dtype=torch.float32) / 2 + scale % 3
    out, count = torch.zeros(N), torch.zeros(1, dtype=torch.int32)
    with tritontrace.session(clients=["sanitizer"], engine=engine) as session:
        compiled = traced[(2,)](x, out, count, N, SCALE=scale, B=B)
        paired[(1,)](TensorDescriptor(x, [1, N], [N, 1], [1, B]), pair := torch.ones(1), SCALE=scale)
        try:
            refused[(1,)](pair, SCALE=scale)
            raise AssertionError("tl.static_assert has no effect")
        except (triton.CompilationError, tritontrace.KernelError) as error:
            assert "not allowed" in f"{error} {error.__cause__}", error
    torch.testing.assert_close(out, wanted(x, scale))
    assert pair.item() == (1 + scale) * x[:B].sum()
    assert count.item() == 2 and session.findings == [] and session.launches[0].completed
    assert not fallbacks, fallbacks
    return compiled


def interpret(hold: bool = False) -> None:
    x, out = torch.arange(N, dtype=torch.float32), torch.zeros(2)
    interpreted[(2,)](x, out, N, HOLD=hold, B=B)
    assert out.tolist() == [4 * 28.0 + B, 4 * 92.0 + B]


def replaced() -> list[str]:
    values = [(name, value) for owner in OWNERS for name, value in list(vars(owner).items()) if type(value) is type(trace)]
    return [name for name, value in values if value.__module__ == "triton.runtime.interpreter"]


def held(work: Any) -> None:
    """`work` while another thread is in the middle of an interpreted kernel; nothing that it replaced may be touched."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            interpret(hold=True)
        except BaseException as error:
            errors.append(error)
            entered.set()

    entered.clear()
    leave.clear()
    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(100)
    try:
        if errors:
            raise errors[0]
        assert {"load", "range", "__add__", "to_ir"} <= set(replaced())
        before = [dict(vars(owner)) for owner in OWNERS]
        work()
        assert [dict(vars(owner)) for owner in OWNERS] == before
    finally:
        leave.set()
        thread.join()
    assert not errors, errors


def in_threads(*work: Any) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(work))

    def run(function: Any) -> None:
        barrier.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def compile_offline() -> None:
    assert "// .globl\ttraced" in trace("ir", 77).asm["ptx"]


def all_engines(first: int, count: int = 2) -> None:
    for number in range(count):
        for offset, engine in enumerate(ENGINES):
            trace(engine, first + 10 * number + offset)


def beside() -> None:
    running = threading.Event()
    running.set()
    runs = 0

    def interprets() -> None:
        nonlocal runs
        while running.is_set():
            interpret()
            runs += 1

    def traces(seed: int) -> Any:
        def run() -> None:
            for number in range(6):
                trace(ENGINES[(seed + number) % 3], 100 * seed + number)

        return run

    def all_traces() -> None:
        try:
            in_threads(*(traces(seed) for seed in range(8)))
        finally:
            running.clear()

    in_threads(interprets, all_traces)
    assert runs > 3


def lose_originals() -> None:
    import types

    from triton.runtime import interpreter

    kernel: Any = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    first = interpreter._patch_lang(kernel)
    second = interpreter._patch_lang(kernel)
    first.restore()
    second.restore()
    assert {"range", "static_range", "static_assert", "reduce", "__bool__", "to_ir"} <= set(replaced())


def main(mode: str) -> None:
    assert type(traced).__name__ == "InterpretedFunction"
    assert "tritontrace" not in sys.modules
    if mode in ("held", "beside"):
        import tritontrace  # noqa: F401 - before the interpreter has run
    said = sys.stdout = io.StringIO()
    if mode == "held":
        for number in range(3):
            held(lambda: in_threads(*(lambda e=e, n=number: trace(e, 1000 + n) for e in ENGINES)))
        held(compile_offline)
    elif mode == "beside":
        beside()
    elif mode == "late":
        interpret()  # it calls tl.sum
        assert "load" in replaced()
    elif mode == "inside":
        held(lambda: all_engines(2000, 1))
    elif mode == "lost":
        lose_originals()
    all_engines(3000, 1)
    interpret()
    all_engines(4000, 1)
    held(lambda: all_engines(5000, 1))
    from tritontrace.kernels import originals

    # What was seen at import is enough, if it was early.
    assert (originals._parsed.cache_info().misses == 0) == (mode not in ("inside", "lost")), originals._parsed.cache_info()
    # tl.static_print prints the plain values, and as often as a kernel is compiled, or a program stepped through
    assert [said.getvalue().count(f"tracing {number}\n") for number in (5000, 5001)] == [1, 2], said.getvalue()
    sys.stdout = sys.__stdout__
    print("right")


if __name__ == "__main__":
    main(sys.argv[1])
