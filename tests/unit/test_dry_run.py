"""``Sanitizer(dry_run=True)``: the same findings as beside an executing launch, and nothing is executed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

import tritontrace
from tests.cases import bounds
from tests.cases.common import Case, check
from tritontrace import Sanitizer
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.engines.ir import engine as ir_engine
from tritontrace.engines.phantom import Phantoms
from tritontrace.kernels import capabilities

CASES = [case for case in bounds.CASES if capabilities.block_pointers() or "block_pointer" not in case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cases_give_the_same_findings(case: Case) -> None:
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        case.run()
    check(case, bounds.__file__, session.findings)
    for launch in session.launches:
        assert launch.dry and not launch.completed and launch.error is None
    assert session.report()


@triton.jit
def add_kernel(x, y, out, n, TILE: tl.constexpr):
    offsets = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def test_nothing_is_written() -> None:
    x, y, out = torch.ones(100), torch.ones(100), torch.full((100,), 7.0)
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        add_kernel[(4,)](x, y, out, 100, TILE=32)
        add_kernel[(4,)](x, y, out, 101, TILE=32)
    assert (out == 7).all()
    assert [len(launch.findings) for launch in session.launches] == [0, 3]


@pytest.fixture(params=["meta", "fake"])
def tensors(request: pytest.FixtureRequest) -> Iterator[type]:
    class Make:
        @staticmethod
        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            if request.param == "meta":
                return torch.empty(*shape, dtype=dtype, device="meta")
            return mode.from_tensor(torch.empty(*shape, dtype=dtype))

    mode = FakeTensorMode()
    yield Make


def test_tensors_without_memory(tensors: type) -> None:
    x, y, out = tensors.empty(100), tensors.empty(100), tensors.empty(100)
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        add_kernel[(4,)](x, y, out, 100, TILE=32)
        assert not session.findings
        add_kernel[(4,)](x, y, out, 103, TILE=32)
    assert sorted((f.access, f.tensor, f.elements.tolist()) for f in session.findings) == [
        ("load", "x", [100, 101, 102]),
        ("load", "y", [100, 101, 102]),
        ("store", "out", [100, 101, 102]),
    ]


def test_views_of_one_storage_without_memory() -> None:
    whole = torch.empty(12, device="meta")
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        add_kernel[(1,)](whole[:4], whole[4:8], whole[8:], 5, TILE=8)
    assert [(f.tensor, f.elements.tolist()) for f in session.findings] == [("x", [4]), ("y", [4]), ("out", [4])]
    assert session.findings[0].details["neighbour"] == "y"
    assert session.findings[0].details["inside_storage"]


def test_an_executing_session_refuses_tensors_without_memory() -> None:
    x = torch.empty(100, device="meta")
    with tritontrace.session(clients=["sanitizer"]), pytest.raises(TypeError, match="meta device"):
        add_kernel[(4,)](x, x, x, 100, TILE=32)


@triton.jit
def gather_kernel(index, table, out, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    tl.store(out + lanes, tl.load(table + tl.load(index + lanes)))


def test_data_that_decides_an_address_is_read_at_every_launch() -> None:
    table, out = torch.arange(4.0), torch.zeros(4)
    index = torch.tensor([0, 1, 2, 3])
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        gather_kernel[(1,)](index, table, out, TILE=4)
        assert not session.findings
        index[2] = 9
        gather_kernel[(1,)](index, table, out, TILE=4)
    (finding,) = session.findings
    assert (finding.tensor, finding.elements.tolist()) == ("table", [9])
    assert not out.any()


def test_only_the_deciding_tensor_must_be_real(tensors: type) -> None:
    table, out = tensors.empty(4), tensors.empty(4)
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        gather_kernel[(1,)](torch.tensor([0, 1, 2, 4]), table, out, TILE=4)
        with pytest.raises(tritontrace.UnsupportedOpError, match="data of 'index' decides"):
            gather_kernel[(1,)](tensors.empty(4, dtype=torch.int64), table, out, TILE=4)
    (finding,) = session.findings
    assert (finding.tensor, finding.elements.tolist()) == ("table", [4])


@triton.jit
def list_kernel(heads, items, count, out):
    # The place comes from a counter, and is read back from memory that the kernel writes.
    place = tl.atomic_add(count, 1)
    tl.store(items + place, tl.program_id(0))
    tl.store(heads, place)
    tl.store(out + tl.load(heads), 1)


def test_addresses_that_the_kernel_makes_itself_are_followed_on_copies() -> None:
    heads, items, count, out = (torch.zeros(n, dtype=torch.int32) for n in (1, 4, 1, 8))
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        list_kernel[(6,)](heads, items, count, out)
    (finding,) = session.findings
    assert (finding.tensor, finding.elements.tolist()) == ("items", [4, 5])
    assert not any(tensor.any() for tensor in (heads, items, count, out))
    assert session.launches[0].dry and not session.launches[0].completed


@triton.jit
def helper(x, n):
    if n > 8:
        return x * 2
    return x + 1


@triton.jit
def early_kernel(x, out, n, TILE: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 0:
        return
    lanes = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for step in range(pid):
        total += helper(tl.load(x + step * TILE + lanes), n)
    tl.store(out + pid * TILE + lanes, total)


def test_early_return_and_loops_that_depend_on_the_program() -> None:
    x, out = torch.empty(16), torch.empty(24)
    findings = []
    for client in (Sanitizer(dry_run=True), Sanitizer()):
        with tritontrace.session(clients=[client]) as session:
            early_kernel[(4,)](x, out, 4, TILE=8)
        findings.append([(f.tensor, f.programs.tolist(), f.elements.tolist(), f.iterations) for f in session.findings])
    assert findings[0] == findings[1]
    assert [name for name, *_ in findings[0]] == ["x", "out"]


class Counter(Client):
    """Wants execution."""

    name = "counter"

    def register_op_callback(self, op: type[tritontrace.events.Event]) -> OpCallbacks | None:
        return OpCallbacks(after=lambda event: None)


def test_beside_a_client_that_wants_values_the_launch_is_executed() -> None:
    x, y, out = torch.ones(40), torch.ones(40), torch.zeros(40)
    with tritontrace.session(clients=[Sanitizer(dry_run=True), Counter()]) as session:
        add_kernel[(2,)](x, y, out, 41, TILE=32)
    assert (out == 2).all() and len(session.findings) == 3
    assert session.launches[0].completed and not session.launches[0].dry
    out.zero_()
    with tritontrace.session(), tritontrace.session(clients=[Sanitizer(dry_run=True)]):
        add_kernel[(2,)](x, y, out, 40, TILE=32)
    assert (out == 2).all()


def test_tuning_hooks_do_not_reach_the_users_tensors() -> None:
    called = []

    def hook(named):
        called.append(named["TILE"])
        named["out"].fill_(3)

    configs = [triton.Config({"TILE": 16}, pre_hook=hook), triton.Config({"TILE": 64}, pre_hook=hook)]
    tuned = triton.autotune(configs=configs, key=["n"], reset_to_zero=["out"])(add_kernel)
    x, y, out = torch.ones(100), torch.ones(100), torch.full((100,), 7.0)
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        tuned[lambda meta: (triton.cdiv(meta["n"], meta["TILE"]),)](x, y, out, 100)
        tuned[lambda meta: (triton.cdiv(meta["n"], meta["TILE"]),)](x, y, out, 100)
    assert (out == 7).all() and called and not session.findings
    meta = [torch.empty(100, device="meta") for _ in range(3)]
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        tuned[lambda meta: (triton.cdiv(meta["n"], meta["TILE"]),)](*meta, 104)
    assert {finding.tensor for finding in session.findings} == {"x", "y", "out"}


def findings_of(launch: tritontrace.Launch) -> list[tuple[str | None, list[int]]]:
    assert all(finding.launch is launch for finding in launch.findings)
    assert launch.records["sanitizer"] == launch.findings
    return [(finding.tensor, finding.elements.tolist()) for finding in launch.findings]


def test_an_identical_launch_gets_the_same_findings_without_being_analysed(
    tensors: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    run = ir_engine.IREngine.run
    monkeypatch.setattr(ir_engine.IREngine, "run", lambda self, what: (runs.append(what.launch), run(self, what)))
    x, y, out = tensors.empty(100), tensors.empty(100), tensors.empty(100)
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        for _ in range(3):
            add_kernel[(4,)](x, y, out, 101, TILE=32)
            add_kernel[(4,)](x, y, out, 100, TILE=32)
        add_kernel[(4,)](x, y, out[1:], 100, TILE=32)
        add_kernel[(5,)](x, y, out, 100, TILE=32)
        add_kernel[(4,)](x, y, out, 100, TILE=16)
        add_kernel[(4,)](x[:99], y, out, 100, TILE=32)
        add_kernel[(4,)](x.view(10, 10).T, y, out, 100, TILE=32)
    assert len(runs) == 7
    first, clean, *rest = session.launches
    for launch in rest[0:4:2]:
        assert launch is not first and findings_of(launch) == findings_of(first) != []
        assert launch.to_dict() == first.to_dict() | {
            "index": launch.index,
            "findings": [finding.to_dict() for finding in launch.findings],
        }
    assert not clean.findings and [launch.index for launch in session.launches] == list(range(11))
    assert findings_of(session.launches[6]) == [("out", [99])]
    assert findings_of(session.launches[9]) == [("x", [99])]


def test_what_is_kept_dies_with_the_session_and_raises_where_findings_do() -> None:
    x = torch.empty(100, device="meta")
    with tritontrace.session(clients=[Sanitizer(dry_run=True)], on_finding="raise"):
        for _ in range(3):
            with pytest.raises(tritontrace.FindingError):
                add_kernel[(4,)](x, x, x, 101, TILE=32)
    with tritontrace.session(clients=[Sanitizer(dry_run=True, bounds="storage")]) as session:
        for _ in range(2):
            add_kernel[(2,)](x[:50], x[:50], x[:50], 60, TILE=32)
    assert not session.findings


SHIFT = tl.constexpr(0)


@triton.jit
def shift_kernel(x):
    tl.store(x + SHIFT, 1.0)


def test_a_kept_verdict_does_not_outlive_the_constant_that_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.empty(2, device="meta")
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        shift_kernel[(1,)](x)
        monkeypatch.setitem(globals(), "SHIFT", tl.constexpr(7))
        with pytest.raises(RuntimeError, match="has changed"):
            shift_kernel[(1,)](x)
    assert not session.findings


@triton.jit
def unknown_math_kernel(x, out, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + lanes)], tl.int32, is_pure=True, pack=1)
    tl.store(out + lanes + 1, value)


def test_what_only_computes_values_need_not_be_known() -> None:
    x, out = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        unknown_math_kernel[(1,)](x, out, TILE=8)
    (finding,) = session.findings
    assert (finding.access, finding.elements.tolist()) == ("store", [8])


def test_memory_does_not_grow_with_the_grid() -> None:
    sizes = []
    for programs in (1 << 14, 1 << 18):
        x = torch.empty(programs * 64, device="meta")
        with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
            add_kernel[(1,)](x, x, x, 64, TILE=64)
            tracemalloc.start()
            add_kernel[(programs,)](x, x, x, programs * 64, TILE=64)
            sizes.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert not session.findings
    assert sizes[1] < 3 * sizes[0] + (1 << 20)
    assert sizes[1] < 64 * ir_engine.SLICE_ELEMENTS


@triton.jit
def descriptor_kernel(src, dst, rows, cols, TILE: tl.constexpr):
    a = tl.make_tensor_descriptor(src, [rows, cols], [cols, 1], [TILE, TILE])
    b = tl.make_tensor_descriptor(dst, [rows, cols], [cols, 1], [TILE, TILE])
    for step in range(tl.cdiv(cols, TILE)):
        b.store([tl.program_id(0) * TILE, step * TILE], a.load([tl.program_id(0) * TILE, step * TILE]))


def test_descriptors() -> None:
    src, dst = torch.empty(20, 24, device="meta"), torch.empty(16, 24, device="meta")
    with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
        descriptor_kernel[(2,)](src, dst, 20, 24, TILE=16)
    (finding,) = session.findings
    assert (finding.access, finding.tensor, finding.programs.tolist()) == ("store", "dst", [[1, 0, 0]])
    assert finding.elements.tolist() == list(range(16 * 24, 20 * 24))


def test_phantom_storages_are_far_apart() -> None:
    a = torch.empty(1 << 30, device="meta")
    b = torch.empty(4, device="meta")
    phantoms = Phantoms([a, b, a[5:], [b]])
    (first, size), (second, _) = phantoms.ranges()
    assert second - (first + size) > 1 << 40
    assert phantoms.address(a[5:]) == first + 20 and phantoms.address(torch.empty(1)) is None


@pytest.mark.parametrize(
    ("others", "named"),
    [(["numerics"], "the client 'numerics' wants"), (["tracer", "race_detector"], "the clients 'race_detector', 'tracer' want")],
)
def test_who_keeps_a_launch_from_being_a_dry_run_is_named(others: list[str], named: str) -> None:
    x = torch.empty(100, device="meta")
    with (
        tritontrace.session(clients=[Sanitizer(dry_run=True), *others]),
        pytest.raises(tritontrace.ArgumentError, match=f"argument 'x'.*{named}"),
    ):
        add_kernel[(1,)](x, x, x, 100, TILE=16)
    with (
        tritontrace.session(clients=[]),
        tritontrace.session(clients=[Sanitizer(dry_run=True)]),
        pytest.raises(tritontrace.ArgumentError, match="an enclosing session wants"),
    ):
        add_kernel[(1,)](x, x, x, 100, TILE=16)


@triton.jit
def rows_kernel(x, stride, WIDE: tl.constexpr, TILE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    tl.store(x + row * stride + tl.arange(0, TILE), 0.0)


def test_an_offset_that_wrapped_at_32_bits_is_called_that() -> None:
    def check(rows: int, wide: bool) -> tritontrace.Session:
        with tritontrace.session(clients=[Sanitizer(dry_run=True)]) as session:
            rows_kernel[(25000,)](torch.empty(rows, 100_000, device="meta"), 100_000, WIDE=wide, TILE=16)
        return session

    session = check(25000, False)
    (finding,) = session.findings
    first = (1 << 31) // 100_000 + 1
    assert finding.details["wrapped"] == first * 100_000 and finding.elements[0] == first * 100_000 - (1 << 32)
    assert len(finding.programs) == 25000 - first
    assert "wrapped at 32 bits" in finding.message and "wrapped at 32 bits" in session.report()
    assert not check(25000, True).findings
    # With fewer rows the elements that were meant do not exist either.
    (finding,) = check(20000, False).findings
    assert "wrapped" not in finding.details and "wrapped" not in finding.message
