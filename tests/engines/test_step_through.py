"""``engine="python"``: statement by statement, with real places, one program at a time."""

from __future__ import annotations

import linecache
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace.errors import DeadlockError, KernelError, UnsupportedOpError
from tritontrace.events import Atomic, Load

SEEN: list[Any] = []


@triton.jit
def noting(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    SEEN.append((__program__, x))  # noqa: F821 - a local of every kernel in this engine
    y = x * 2
    tl.store(out_ptr + at, y)


def test_a_kernel_runs_any_python_and_sees_its_values() -> None:
    SEEN.clear()
    x, out = torch.arange(8.0), torch.zeros(8)
    before = dict(vars(noting))
    names = set(globals())
    with tritontrace.session(engine="python", programs=[(1, 0, 0)]) as session:
        noting[(2,)](x, out, B=4)
    ((program, block),) = SEEN
    assert program == (1, 0, 0)
    assert block.numpy().tolist() == [4, 5, 6, 7]
    assert str(block) == "fp32[4] [4. 5. 6. 7.]"
    assert out.tolist() == [0, 0, 0, 0, 8, 10, 12, 14]
    assert session.launches[0].completed
    assert vars(noting) == before
    assert set(globals()) == names


def test_lines_are_the_kernels_own() -> None:
    lines: list[str] = []

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name != "noting":
            return None
        if event == "line":
            lines.append(linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip())
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        with tritontrace.session(engine="python"):
            noting[(1,)](torch.zeros(4), torch.zeros(4), B=4)
    finally:
        sys.settrace(old)
    body = [line for line in lines if not line.startswith("def ")]
    assert body[0].startswith("at = ") and body[-1].startswith("tl.store(") and len(body) == 5


@triton.jit
def failing_helper(x):
    if tl.program_id(0) == 2:
        raise ValueError("not this one")
    return x


@triton.jit
def failing(x_ptr, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x_ptr + at, failing_helper(tl.load(x_ptr + at)))


def test_an_exception_names_line_and_program_and_has_the_kernels_traceback() -> None:
    with tritontrace.session(engine="python"), pytest.raises(KernelError) as caught:
        failing[(4,)](torch.zeros(4), B=4)
    error = caught.value
    assert error.programs == ((2, 0, 0),)
    assert error.location is not None and error.location.function == "failing_helper"
    assert "raise ValueError" in linecache.getline(error.location.file, error.location.line)
    assert isinstance(error.__cause__, ValueError)
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    assert frames[0].name == "failing" and frames[-1].name == "failing_helper"


class _Places(tritontrace.Client):
    name = "places"

    def __init__(self) -> None:
        self.places: list[Any] = []

    def register_op_callback(self, op: type) -> Any:
        if op is not Load:
            return None
        return tritontrace.OpCallbacks(after=lambda event: self.places.append((event.site, event.programs.tolist(), event.value)))


@triton.jit
def loading_helper(p, at):
    return tl.load(p + at)


@triton.jit
def loading(x_ptr, out_ptr, n, B: tl.constexpr):
    at = tl.arange(0, B)
    for i in range(2):
        x = loading_helper(x_ptr, at)
        y = tl.load(x_ptr + at + i, mask=at + i < n, other=0.0)
        tl.store(out_ptr + at, x + y)


def test_sites_are_those_of_the_ir_engine() -> None:
    seen = {}
    for engine in ("ir", "python"):
        client = _Places()
        with tritontrace.session(clients=[client], engine=engine):
            loading[(1,)](torch.arange(4.0), torch.zeros(4), 4, B=4)
        seen[engine] = client.places
    assert len(seen["ir"]) == len(seen["python"]) == 4
    for (a, programs, value), (b, others, other) in zip(seen["ir"], seen["python"], strict=True):
        column = a.location.column if sys.version_info >= (3, 11) else 0
        assert (a.location.file, a.location.line, column) == (b.location.file, b.location.line, b.location.column)
        assert [c.line for c in a.call_stack] == [c.line for c in b.call_stack]
        assert (a.op, a.block, a.dtype, a.parameter, a.element_bits) == (b.op, b.block, b.dtype, b.parameter, b.element_bits)
        assert programs == others and (value == other).all()


@triton.jit
def elementwise_logic(x_ptr, out_ptr, n, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(x_ptr + at)
    inside = (x > 1 and x < 6) or not (at < n)
    middle = 2 <= x < 4
    tl.store(out_ptr + at, inside.to(tl.int32) + 10 * middle.to(tl.int32))


def test_logic_and_chained_comparisons_go_element_by_element() -> None:
    x, out = torch.arange(8.0), torch.zeros(8, dtype=torch.int32)
    with tritontrace.session(engine="python"):
        elementwise_logic[(1,)](x, out, 7, B=8)
    assert out.tolist() == [0, 0, 11, 11, 1, 1, 0, 1]


@triton.jit
def waiting(flag_ptr, out_ptr, last):
    pid = tl.program_id(0)
    if pid == last:
        tl.atomic_xchg(flag_ptr, 1)
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass
    tl.store(out_ptr + pid, pid + 1)


def test_programs_that_wait_for_a_later_one_finish() -> None:
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    with tritontrace.session(engine="python"):
        waiting[(5,)](flag, out, 4)
    assert out.tolist() == [1, 2, 3, 4, 5]


def test_a_wait_for_nobody_is_a_deadlock_that_names_the_line() -> None:
    before = threading.active_count()
    with tritontrace.session(engine="python"), pytest.raises(DeadlockError) as caught:
        waiting[(3,)](torch.zeros(1, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), 7)
    assert caught.value.location is not None
    assert "while" in linecache.getline(caught.value.location.file, caught.value.location.line)
    assert sorted(caught.value.programs) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    for thread in threading.enumerate():
        if thread.name.startswith("tritontrace"):
            thread.join(5)
    assert threading.active_count() == before


PLAIN, LIMIT = 3, tl.constexpr(2)


@triton.jit
def reading_globals(out_ptr, DEEP: tl.constexpr):
    if DEEP:
        tl.store(out_ptr, PLAIN)
    tl.store(out_ptr + 1, LIMIT)


def test_a_plain_global_is_refused_where_it_is_read_and_only_there() -> None:
    out = torch.zeros(2)
    with tritontrace.session(engine="python"):
        reading_globals[(1,)](out, DEEP=False)  # the compiler does not look at a branch that is not taken
        assert out.tolist() == [0, 2]
        with pytest.raises(KernelError, match="Cannot access global variable PLAIN") as caught:
            reading_globals[(1,)](out, DEEP=True)
    place = caught.value.location
    assert place is not None and "PLAIN" in linecache.getline(place.file, place.line)


@triton.jit
def additions(out_ptr, kept_ptr, HOW: tl.constexpr):
    if HOW == "alone":
        tl.atomic_add(out_ptr, 1)
    elif HOW == "named":
        old = tl.atomic_add(out_ptr, 1)  # noqa: F841 - that nothing reads it is the point
    else:
        seen = tl.atomic_add(out_ptr, 1)
        tl.store(kept_ptr, seen)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell where in a line it stands")
@pytest.mark.parametrize(("how", "read"), [("alone", False), ("named", False), ("read", True)])
def test_an_atomic_whose_result_nothing_reads_has_none(how: str, read: bool) -> None:
    # The race detector needs it: such an atomic puts no program behind another.
    seen = []

    class Results(tritontrace.Client):
        name = "results"

        def register_op_callback(self, op: type) -> Any:
            return tritontrace.OpCallbacks(after=lambda event: seen.append(event.result is not None)) if op is Atomic else None

    out = torch.zeros(1, dtype=torch.int32)
    for engine in ("ir", "python"):
        with tritontrace.session(clients=[Results()], engine=engine):
            additions[(1,)](out, torch.zeros(1, dtype=torch.int32), HOW=how)
    assert out.item() == 2 and seen == [read, read]


@triton.jit
def counting(out_ptr, kept_ptr, n):
    for i in range(n):
        tl.store(kept_ptr, tl.atomic_add(out_ptr + i, 1))


def test_atomics_of_launches_on_several_threads_come_one_after_another() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with tritontrace.session(engine="python"), ThreadPoolExecutor(4) as pool:
            list(pool.map(tritontrace.propagate(lambda _: counting[(5,)](out, torch.zeros(1, dtype=torch.int32), 4)), range(40)))
    finally:
        sys.setswitchinterval(old)
    assert out.tolist() == [200] * 4


@triton.jit
def with_assembly(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.inline_asm_elementwise("mystery $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1))


@triton.jit
def with_try(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.arange(0, B)
    try:
        x = tl.load(x_ptr + at)
    finally:
        tl.store(out_ptr + at, x + 1)


def test_inline_assembly_needs_a_callback_in_both_engines() -> None:
    x, out = torch.arange(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    for engine in ("ir", "python", "auto"):
        out.zero_()
        with tritontrace.session(engine=engine), pytest.raises(UnsupportedOpError, match="mystery"):
            with_assembly[(1,)](x, out, B=4)
        assert not out.any()
        with tritontrace.session(engine=engine, inline_asm={"mystery $0, $1;": lambda v: v + 7}):
            with_assembly[(1,)](x, out, B=4)
        assert out.tolist() == [7, 8, 9, 10]


def test_auto_runs_in_the_python_engine_what_the_compiler_has_no_words_for(caplog: pytest.LogCaptureFixture) -> None:
    x, out = torch.arange(4.0), torch.zeros(4)
    with tritontrace.session(engine="auto"):
        noting_free = loading[(1,)](x, torch.zeros(4), 4, B=4)
    assert noting_free is not None and not caplog.records
    with tritontrace.session(engine="auto"):
        with_try[(1,)](x, out, B=4)
    assert out.tolist() == [1, 2, 3, 4]
    (record,) = caplog.records
    assert "with_try" in record.getMessage() and "Try" in record.getMessage()


@triton.jit
def badly_typed(out_ptr):
    tl.store(out_ptr, out_ptr * 2)


def test_auto_keeps_what_the_compiler_refuses_refused() -> None:
    with tritontrace.session(engine="auto"), pytest.raises(triton.compiler.errors.CompilationError):
        badly_typed[(1,)](torch.zeros(1))


@triton.jit
def constants_on_the_right(out_ptr):
    for i in tl.static_range(3):
        tl.store(out_ptr + i, tl.sum(tl.full([2 << i], 1.0, tl.float32)) + 2**i)


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_operators_of_a_number_and_a_compile_time_constant(engine: str) -> None:
    out = torch.zeros(3)
    with tritontrace.session(engine=engine):
        constants_on_the_right[(1,)](out)
    assert out.tolist() == [3.0, 6.0, 12.0]


@triton.jit
def awaiting_the_last(flag_ptr, o_ptr, n):
    pid = tl.program_id(0)
    if pid == n - 1:
        tl.atomic_xchg(flag_ptr, 1)
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass
    tl.store(o_ptr + pid, pid)


def test_a_thousand_programs_may_wait() -> None:
    out = torch.zeros(1500, dtype=torch.int32)
    with tritontrace.session(engine="python"):
        awaiting_the_last[(1500,)](torch.zeros(1, dtype=torch.int32), out, 1500)
    assert torch.equal(out, torch.arange(1500, dtype=torch.int32))


@triton.jit
def stops(x):
    breakpoint()
    return x


@triton.jit
def calls_one_that_stops(x_ptr):
    tl.store(x_ptr, stops(tl.load(x_ptr)))


@triton.jit
def tries(x_ptr):
    try:
        tl.store(x_ptr, 1.0)
    except ValueError:
        pass


@triton.jit
def misspelt(x_ptr):
    tl.store(x_ptr, undefined_name)  # noqa: F821


@pytest.mark.parametrize(("kernel", "helps"), [(calls_one_that_stops, True), (tries, True), (misspelt, False)])
def test_the_ir_engine_points_to_the_python_engine(kernel: Any, helps: bool, caplog: pytest.LogCaptureFixture) -> None:
    with tritontrace.session(engine="ir"), pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](torch.zeros(1))
    said = "\n".join([caplog.text, *getattr(caught.value, "__notes__", ())])
    assert ("engine='python'" in said) == helps


@triton.jit
def listing_kernel(x):
    log = []
    v = tl.load(x + tl.arange(0, 8))
    log.append(v.numpy().max())
    tl.store(x + tl.arange(0, 8), v + len(log))


def test_auto_runs_lists_and_arrays_of_a_kernel_in_the_python_engine() -> None:
    x = torch.zeros(8)
    with tritontrace.session(engine="auto"):
        listing_kernel[(1,)](x)
    assert x.tolist() == [1.0] * 8


@triton.jit
def mixes_types(out_ptr):
    tl.store(out_ptr, tl.arange(0, 3))


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_a_kernel_that_triton_refuses_raises_an_error_of_tritons(engine: str) -> None:
    with tritontrace.session(engine=engine), pytest.raises(triton.TritonError, match="power of 2"):
        mixes_types[(1,)](torch.zeros(4))


@triton.jit
def marks(x_ptr):
    tl.store(x_ptr, 1.0)


LAUNCHED = [torch.zeros(1)]


def launch_another() -> None:
    marks[(1,)](LAUNCHED[0])


@triton.jit
def launching_kernel(flag_ptr):
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag_ptr, 0) == 0:
            pass
    else:
        launch_another()
        tl.atomic_xchg(flag_ptr, 1)


def test_a_launch_by_a_program_is_traced_on_whatever_thread_the_program_runs() -> None:
    with tritontrace.session(engine="python") as session:
        launching_kernel[(2,)](torch.zeros(1, dtype=torch.int32))
    assert LAUNCHED[0].item() == 1.0
    assert [launch.kernel_name for launch in session.launches] == ["launching_kernel", "marks"]
