"""Pointers that loops carry from one tensor to another: ping-pong buffers, rotations, choices, block pointers."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import tritontrace
from tritontrace.kernels import capabilities


@triton.jit
def swapped(a_ptr, b_ptr, out_ptr, n):
    p = a_ptr
    q = b_ptr
    for _ in range(n):
        t = p
        p = q
        q = t
    tl.store(out_ptr, tl.load(p))
    tl.store(out_ptr + 1, tl.load(q))


@triton.jit
def swapped_and_moved(a_ptr, b_ptr, out_ptr, n):
    p = a_ptr
    q = b_ptr
    for _ in range(n):
        t = p
        p = q
        q = t
        p += 1
    tl.store(out_ptr, tl.load(p))
    tl.store(out_ptr + 1, tl.load(q))


@triton.jit
def ping_pong(a_ptr, b_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    source = a_ptr
    target = b_ptr
    for _ in range(n):
        tl.store(target + offsets, tl.load(source + offsets) * 2)
        t = source
        source = target
        target = t


@triton.jit
def ping_pong_of_tiles(a_ptr, b_ptr, n, N: tl.constexpr):
    source = a_ptr + tl.arange(0, N)
    target = b_ptr + tl.arange(0, N)
    for _ in range(n):
        tl.store(target, tl.load(source) * 2)
        source, target = target, source


@triton.jit
def ping_pong_while(a_ptr, b_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    source = a_ptr
    target = b_ptr
    k = 0
    while k < n:
        tl.store(target + offsets, tl.load(source + offsets) * 2)
        t = source
        source = target
        target = t
        k += 1


@triton.jit
def ping_pong_until(a_ptr, b_ptr, limit, N: tl.constexpr):
    # how often depends on what was written
    offsets = tl.arange(0, N)
    source = a_ptr
    target = b_ptr
    while tl.max(tl.load(source + offsets), 0) < limit:
        tl.store(target + offsets, tl.load(source + offsets) * 2)
        t = source
        source = target
        target = t


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_two_pointers_change_places(n: int, clean: Any) -> None:
    a, b, out = torch.arange(10.0), torch.arange(100.0, 110.0), torch.zeros(2)
    with clean(2):
        swapped[(1,)](a, b, out, n)
        assert out.tolist() == ([0.0, 100.0] if n % 2 == 0 else [100.0, 0.0])
        swapped_and_moved[(1,)](a, b, out, n)
    p, q = (a.tolist(), 0), (b.tolist(), 0)
    for _ in range(n):
        p, q = (q[0], q[1] + 1), p
    assert out.tolist() == [p[0][p[1]], q[0][q[1]]]


@pytest.mark.parametrize("kernel", [ping_pong, ping_pong_of_tiles, ping_pong_while], ids=lambda k: k.__name__)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_ping_pong(kernel: Any, n: int, clean: Any) -> None:
    a, b = torch.ones(8), torch.zeros(8)
    with clean():
        kernel[(1,)](a, b, n, N=8)
    last = {n: 2.0**n, n - 1: 2.0 ** (n - 1)}
    even, odd = (last[k] for k in sorted(last, key=lambda k: k % 2))
    assert a.tolist() == [even] * 8 and b.tolist() == [odd] * 8


def test_ping_pong_as_long_as_the_data_says(clean: Any) -> None:
    a, b = torch.ones(8), torch.zeros(8)
    with clean():
        ping_pong_until[(1,)](a, b, 30.0, N=8)
    assert a.tolist() == [16.0] * 8 and b.tolist() == [32.0] * 8


@pytest.mark.parametrize("kernel", [ping_pong, ping_pong_of_tiles, ping_pong_while], ids=lambda k: k.__name__)
def test_a_fault_in_one_of_two_buffers_is_found(kernel: Any) -> None:
    a, b = torch.ones(8), torch.zeros(6)
    with tritontrace.session(clients=["sanitizer"]) as session:
        kernel[(1,)](a, b, 2, N=8)
    assert {finding.access for finding in session.findings} == {"load", "store"}
    assert all(finding.lanes.tolist() == [6, 7] for finding in session.findings)
    assert b.tolist() == [2.0] * 6 and a.tolist() == [4.0] * 6 + [0.0] * 2


@triton.jit
def rotated(a_ptr, b_ptr, c_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = a_ptr
    y = b_ptr
    z = c_ptr
    for _ in range(n):
        tl.store(y + offsets, tl.load(x + offsets) + 1)
        t = x
        x = y
        y = z
        z = t


@pytest.mark.parametrize("n", range(1, 8))
def test_three_pointers_rotate(n: int, clean: Any) -> None:
    tensors = [torch.ones(8), torch.zeros(8), torch.zeros(8)]
    with clean():
        rotated[(1,)](*tensors, n, N=8)
    cells = [1.0, 0.0, 0.0]
    for k in range(n):
        cells[(k + 1) % 3] = cells[k % 3] + 1
    assert [float(tensor[0]) for tensor in tensors] == cells


@triton.jit
def chosen(a_ptr, b_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    p = a_ptr
    for k in range(n):
        if k % 2 == 1:
            p = b_ptr
        else:
            p = a_ptr
        tl.store(out_ptr + k * N + offsets, tl.load(p + offsets))


@triton.jit
def replaced(a_ptr, b_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    p = a_ptr
    for k in range(n):
        tl.store(out_ptr + k * N + offsets, tl.load(p + offsets))
        p = b_ptr


@triton.jit
def by_where(a_ptr, b_ptr, out_ptr):
    pid = tl.program_id(0)
    p = tl.where(tl.load(out_ptr + pid) > 0, a_ptr, b_ptr)
    for k in range(pid):
        p = tl.where(k % 2 == 0, b_ptr, a_ptr) + k
    tl.store(out_ptr + pid, tl.load(p))


@triton.jit
def pick(a_ptr, b_ptr, c):
    if c == 0:
        return a_ptr
    elif c == 1:
        return b_ptr
    return a_ptr + 4


@triton.jit
def by_helper(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    pid = tl.program_id(0)
    offsets = tl.arange(0, N)
    p = pick(a_ptr, b_ptr, pid)
    tl.store(out_ptr + pid * N + offsets, tl.load(p + offsets, mask=offsets < 4))
    p = p + 1
    p = p - 1
    tl.atomic_add(p, 1.0)


@triton.jit
def per_program(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    # each program swaps as often as its number says
    pid = tl.program_id(0)
    offsets = tl.arange(0, N)
    p = a_ptr
    q = b_ptr
    for _ in range(pid):
        p, q = q, p
    tl.store(out_ptr + pid * N + offsets, tl.load(p + offsets))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_pointer_chosen_in_a_loop(n: int, clean: Any) -> None:
    a, b = torch.ones(8), torch.full((8,), 2.0)
    out = torch.full((2, 3, 8), 9.0)
    with clean(2):
        chosen[(1,)](a, b, out[0], n, N=8)
        replaced[(1,)](a, b, out[1], n, N=8)
    assert out[0, :, 0].tolist() == [1.0, 2.0, 1.0][:n] + [9.0] * (3 - n)
    assert out[1, :, 0].tolist() == [1.0, 2.0, 2.0][:n] + [9.0] * (3 - n)


def test_a_pointer_chosen_by_program(clean: Any) -> None:
    a, b = torch.arange(8.0), torch.arange(10.0, 18.0)
    out = torch.zeros(5)
    with clean(2):
        by_where[(5,)](a, b, out)
        assert out.tolist() == [10.0, 10.0, 1.0, 12.0, 3.0]
        rows = torch.zeros(6, 8)
        per_program[(6,)](a, b, rows, N=8)
    assert torch.equal(rows, torch.stack([a, b] * 3))


def test_a_pointer_chosen_by_a_helper(clean: Any) -> None:
    a, b, out = torch.arange(8.0), torch.arange(8.0, 16.0), torch.zeros(3, 4)
    with clean():
        by_helper[(3,)](a, b, out, N=4)
    assert torch.equal(out, torch.tensor([[0.0, 1, 2, 3], [8, 9, 10, 11], [4, 5, 6, 7]]))
    assert a.tolist() == [1.0, 1, 2, 3, 5, 5, 6, 7] and b[0] == 9.0


@triton.jit
def block_pointers(a_ptr, b_ptr, out_ptr, n, N: tl.constexpr):
    p = tl.make_block_ptr(a_ptr, (16,), (1,), (0,), (N,), (0,))
    q = tl.make_block_ptr(b_ptr, (16,), (1,), (0,), (N,), (0,))
    total = tl.zeros((N,), tl.float32)
    for _ in range(n):
        total += tl.load(p, boundary_check=(0,))
        t = p
        p = q
        q = tl.advance(t, (4,))
    tl.store(out_ptr + tl.arange(0, N), total)


@pytest.mark.skipif(not capabilities.block_pointers(), reason="this Triton has no block pointers")
@pytest.mark.filterwarnings("ignore:.*make_block_ptr:UserWarning")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_block_pointers_change_places(n: int, clean: Any) -> None:
    a, b, out = torch.arange(16.0), torch.arange(100.0, 116.0), torch.zeros(8)
    with clean():
        block_pointers[(1,)](a, b, out, n, N=8)
    assert torch.equal(out, sum(list(itertools.islice((t[k : k + 8] for k in (0, 4) for t in (a, b)), n))))


@triton.jit
def descriptors(a_ptr, b_ptr, out_ptr, n, N: tl.constexpr):
    p = tl.make_tensor_descriptor(a_ptr, [16], [1], [N])
    q = tl.make_tensor_descriptor(b_ptr, [16], [1], [N])
    total = tl.zeros((N,), tl.float32)
    for k in range(n):
        total += p.load([k // 2 * 4])
        p, q = q, p
    tl.store(out_ptr + tl.arange(0, N), total)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_descriptors_change_places(n: int, clean: Any) -> None:
    a, b, out = torch.arange(16.0), torch.arange(100.0, 116.0), torch.zeros(8)
    with clean():
        descriptors[(1,)](a, b, out, n, N=8)
    assert torch.equal(out, sum(list(itertools.islice((t[k : k + 8] for k in (0, 4) for t in (a, b)), n))))


# -- any such loop ------------------------------------------------------------------------------------------------------

pointers = st.integers(0, 2)
statements = st.one_of(
    st.builds(lambda i, j: f"p{i} = p{j}", pointers, pointers),
    st.builds(lambda i, j: f"p{i}, p{j} = p{j}, p{i}", pointers, pointers),
    st.builds(lambda i, c: f"p{i} += {c}", pointers, st.integers(1, 2)),
    st.builds(lambda i, j, c: f"p{i} = p{j} + {c}", pointers, pointers, st.integers(0, 1)),
    st.builds(lambda i, j: f"tl.store(p{i}, tl.load(p{j}) * 2 + k)", pointers, pointers),
    st.builds(lambda i: f"total += tl.load(p{i})", pointers),
    st.builds(lambda r, i, j: f"if k % 2 == {r}:\n            p{i} = p{j}", st.integers(0, 1), pointers, pointers),
    st.builds(
        lambda r, i, j: f"if (k + pid) % 2 == {r}:\n            p{i}, p{j} = p{j}, p{i}", st.integers(0, 1), pointers, pointers
    ),
)
bodies = st.lists(statements, min_size=1, max_size=5)

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def walk(a_ptr, b_ptr, c_ptr, out_ptr, n, SIZE: tl.constexpr):
    pid = tl.program_id(0)
    p0 = a_ptr + pid * SIZE
    p1 = b_ptr + pid * SIZE
    p2 = c_ptr + pid * SIZE
    total = tl.load(out_ptr + pid)
    {loop}
        {body}
    tl.store(out_ptr + pid, total + tl.load(p0) * 3 + tl.load(p1) * 5 + tl.load(p2) * 7)
"""
LOOPS = ("for k in range(n):", "for k in range(pid, n):", "k = -1\n    while k < n - 1:\n        k += 1")
SIZE = 64


class Place:
    """A pointer in Python: a list and an index."""

    def __init__(self, cells: list[int], at: int) -> None:
        self.cells, self.at = cells, at

    def __add__(self, step: int) -> Place:
        return Place(self.cells, self.at + step)


def in_python(source: str, tensors: list[list[int]], n: int, programs: int) -> None:
    """The kernel's own text, run program after program on lists."""
    text = source.partition("@triton.jit")[2].replace(": tl.constexpr", "")
    for pid in range(programs):

        def store(place: Place, value: int) -> None:
            place.cells[place.at] = value

        language = SimpleNamespace(program_id=lambda axis: pid, load=lambda place: place.cells[place.at], store=store)
        names: dict[str, Any] = {"tl": language}
        exec(text, names)
        names["walk"](*(Place(cells, 0) for cells in tensors), n, SIZE)


@given(bodies, st.sampled_from(LOOPS), st.integers(2, 5))
@settings(deadline=None, max_examples=30)
def test_any_walk_of_three_pointers(tmp_path_factory: Any, body: list[str], loop: str, n: int) -> None:
    source = SOURCE.format(loop=loop, body="\n        ".join(body))
    path = Path(tmp_path_factory.mktemp("walks")) / "walk.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("walk", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    programs = 3
    tensors = [torch.arange(programs * SIZE) * (i + 1) % 97 for i in range(3)]
    out = torch.zeros(programs, dtype=torch.int64)
    want = [tensor.tolist() for tensor in (*tensors, out)]
    in_python(source, want, n, programs)
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        module.walk[(programs,)](*tensors, out, n, SIZE=SIZE)
    assert [tensor.tolist() for tensor in (*tensors, out)] == want
    assert session.findings == []


@triton.jit
def one_each(a_ptr, b_ptr, out_ptr):
    pid = tl.program_id(0)
    p = tl.where(pid % 2 == 0, a_ptr, b_ptr)
    tl.store(out_ptr + pid, tl.load(p + pid))


def test_an_access_of_programs_that_mean_different_tensors_names_none() -> None:
    a, b, out = torch.arange(4.0), torch.arange(10.0, 14.0), torch.zeros(4)
    named: dict[int, str | None] = {}

    class Names(tritontrace.Client):
        name = "names"

        def register_op_callback(self, op: type) -> tritontrace.OpCallbacks | None:
            return tritontrace.OpCallbacks(after=self.note) if op is tritontrace.events.Load else None

        def note(self, event: tritontrace.events.Load) -> None:
            named.update(dict.fromkeys(event.programs[:, 0].tolist(), event.tensor))

    with tritontrace.session(clients=[Names()]):
        one_each[(4,)](a, b, out)
    assert out.tolist() == [0.0, 11.0, 2.0, 13.0]
    # one program after another, each has its own name; together they have none
    right = {0: "a_ptr", 1: "b_ptr", 2: "a_ptr", 3: "b_ptr"}
    assert named in (right, dict.fromkeys(range(4)))
