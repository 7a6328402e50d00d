"""``Sanitizer(uninitialized=True)``: reads of what ``torch.empty`` made and nobody has written since."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Sanitizer
from tritontrace.engines.written import WRITTEN, TorchWatch


def watched(**options: Any) -> tritontrace.Session:
    return tritontrace.session(clients=[Sanitizer(uninitialized=True, **options)])


def said(session: tritontrace.Session) -> list[tuple[Any, ...]]:
    assert all(finding.kind == "uninitialized" and finding.message for finding in session.findings), session.report()
    return [(f.access, f.tensor, f.programs[:, 0].tolist(), f.elements.tolist()) for f in session.findings]


@triton.jit
def copy_kernel(src, dst, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


def copy(src: torch.Tensor, dst: torch.Tensor) -> None:
    copy_kernel[(triton.cdiv(src.numel(), 8),)](src, dst, src.numel(), TILE=8)


def test_a_fresh_tensor_is_read() -> None:
    with watched() as session:
        copy(torch.empty(12), torch.empty(12))
    assert said(session) == [("load", "src", [0, 1], list(range(12)))]


def test_what_a_kernel_has_written_may_be_read() -> None:
    with watched() as session:
        a, b, c = torch.ones(12), torch.empty(12), torch.empty(12)
        copy(a, b)
        copy(b, c)
        copy(a[:8], d := torch.empty(12))
        copy(d, torch.empty(12))
    assert said(session) == [("load", "src", [1], [8, 9, 10, 11])]
    assert torch.equal(a, c)


def test_what_torch_has_written_may_be_read() -> None:
    out = torch.zeros(12)
    with watched() as session:
        for write in (
            lambda t: t.fill_(1),
            lambda t: t.copy_(torch.ones(12)),
            lambda t: torch.add(torch.ones(12), 1, out=t),
            lambda t: t.view(3, 4).transpose(0, 1).copy_(torch.ones(4, 3)),
            lambda t: t.normal_(),
            lambda t: torch._foreach_zero_([t]),
            lambda t: t.__setitem__(slice(None), 2.0),
        ):
            write(t := torch.empty(12))
            copy(t, out)
        for t in (torch.zeros(12), torch.randn(12), torch.empty(12).fill_(1) * 2, torch.arange(12.0), torch.tensor([1.0] * 12)):
            copy(t, out)
    assert not session.findings, session.report()


def test_parts_by_strides() -> None:
    with watched() as session:
        t = torch.empty(4, 4)
        t[1] = 0
        t[:, 2] = 0
        copy(t, torch.empty(16))
    assert said(session) == [("load", "src", [0, 1], [0, 1, 3, 8, 9, 11, 12, 13, 15])]


def test_makers_that_do_not_fill() -> None:
    with watched() as session:
        x = torch.ones(4)
        for t in (torch.empty_like(x), x.new_empty(4), torch.empty_strided((4,), (1,)), x.new_empty_strided((4,), (1,))):
            copy(t, torch.empty(4))
    assert [finding.elements.tolist() for finding in session.findings] == [[0, 1, 2, 3]] * 4


def test_writers_that_nobody_watches() -> None:
    with watched() as session:
        a, b, c = torch.empty(8), torch.empty(8, dtype=torch.int8), torch.empty(8)
        a.numpy()[:] = np.arange(8)
        b.numpy()[:6] = 1
        thread = threading.Thread(target=lambda: c.fill_(3))
        thread.start()
        thread.join()
        copy(a, torch.empty(8))
        copy(c, torch.empty(8))
        assert not session.findings
        copy(b, torch.empty(8, dtype=torch.int8))
    assert said(session) == [("load", "src", [0], [6, 7])]


@triton.jit
def add_kernel(src, dst, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.atomic_add(dst + at, tl.load(src + tl.program_id(0) * TILE + at))


@triton.jit
def swap_kernel(dst):
    tl.atomic_xchg(dst + tl.program_id(0), 1.0)


def test_atomics() -> None:
    with watched() as session:
        out = torch.empty(4)
        add_kernel[(3,)](torch.ones(12), out, TILE=4)
        add_kernel[(3,)](torch.ones(12), out, TILE=4)
        swap_kernel[(4,)](fresh := torch.empty(4))
        copy(fresh, torch.empty(4))
    assert said(session) == [("atomic", "dst", [0], [0, 1, 2, 3])]


def test_only_what_was_made_inside() -> None:
    outside = torch.empty(8)
    with watched() as session:
        copy(outside, torch.empty(8))
    with tritontrace.session(clients=["sanitizer"]) as other:
        copy(torch.empty(8), torch.empty(8))
    assert not session.findings and not other.findings


def test_memory_that_is_used_again_is_another_storage() -> None:
    with watched() as session:
        for _ in range(50):
            copy(torch.empty(64).zero_(), torch.empty(64))
            copy(torch.ones(64), torch.empty(64))
    assert not session.findings


@triton.jit
def in_place_kernel(x, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(x + at, 1.0, mask=at < n)
    tl.debug_barrier()
    tl.store(x + at, tl.load(x + at) + 1)


def test_inside_one_kernel() -> None:
    with watched() as session:
        in_place_kernel[(1,)](torch.empty(8), 5, TILE=8)
    assert said(session) == [("load", "x", [0], [5, 6, 7])]


def test_dry_runs_follow_what_kernels_would_write() -> None:
    with watched(dry_run=True) as session:
        a, b = torch.empty(8), torch.empty(8)
        copy(torch.ones(8), a)
        copy(a, b)
        copy(torch.empty(8), b)
    assert [len(launch.findings) for launch in session.launches] == [0, 0, 1]


def test_sessions_close_in_any_order_and_nothing_stays() -> None:
    depth = torch._C._len_torch_dispatch_stack()
    a, b = watched(), watched()
    a.open()
    b.open()
    a.close()
    t = torch.empty(4)
    assert WRITTEN.find(t.untyped_storage().data_ptr(), 16) is not None
    b.close()
    assert torch._C._len_torch_dispatch_stack() == depth
    t = torch.empty(4)
    assert WRITTEN.find(t.untyped_storage().data_ptr(), 16) is None


def test_closed_on_another_thread_it_is_silent_at_once_and_gone_at_the_next() -> None:
    depth = torch._C._len_torch_dispatch_stack()
    session = watched()
    session.open()
    thread = threading.Thread(target=session.close)
    thread.start()
    thread.join()
    t = torch.empty(4)
    assert WRITTEN.find(t.untyped_storage().data_ptr(), 16) is None
    with watched():
        assert torch._C._len_torch_dispatch_stack() == depth + 1
    assert torch._C._len_torch_dispatch_stack() == depth


def test_a_mode_of_somebody_else_keeps_its_place() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    session = watched()
    session.open()
    with Theirs():
        session.close()
        torch.empty(3)
        assert len(seen) == 1
    torch.empty(3)
    assert len(seen) == 1


def test_propagated_functions_are_watched_on_their_thread() -> None:
    def work() -> None:
        copy(torch.empty(4), torch.ones(4))

    with watched() as session:
        thread = threading.Thread(target=tritontrace.propagate(work))
        thread.start()
        thread.join()
    assert said(session) == [("load", "src", [0], [0, 1, 2, 3])]


def test_the_watch_sees_one_thread() -> None:
    watch = TorchWatch()
    watch.enter()
    depths: list[int] = []
    thread = threading.Thread(target=lambda: depths.append(torch._C._len_torch_dispatch_stack()))
    thread.start()
    thread.join()
    watch.leave()
    assert depths == [0]
