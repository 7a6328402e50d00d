"""``tl.device_print`` is seen without being asked for, and ``tl.device_assert`` fails where debug is on."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tempfile
import textwrap

import pytest
import torch
import triton
import triton.language as tl

import tritontrace


@triton.jit
def printing(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + tl.program_id(0) * B + i)
    tl.device_print("x:", x, i)


LINE = printing.starting_line_number + 4


def test_prints_appear_on_stderr_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    with tritontrace.session():
        printing[(2,)](torch.tensor([1.5, 2, 3, -4]), B=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"printing:{LINE} pid (0, 0, 0) x: [1.5 2. ] [0 1]",
        f"printing:{LINE} pid (1, 0, 0) x: [ 3. -4.] [0 1]",
    ]


@pytest.mark.parametrize("destination", ["stdout", None, "stream", "function", "log"])
def test_prints_go_where_the_session_says(
    destination: str | None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    stream, lines = io.StringIO(), []
    given = {"stream": stream, "function": lines.append}.get(destination, destination)
    with caplog.at_level(logging.INFO, "tritontrace.kernel"), tritontrace.session(prints=given):
        printing[(1,)](torch.tensor([7]), B=1)
    line = f"printing:{LINE} pid (0, 0, 0) x: [7] [0]"
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (line + "\n" if destination == "stdout" else "")
    assert stream.getvalue() == (line + "\n" if destination == "stream" else "")
    assert lines == ([line] if destination == "function" else [])
    assert [record.getMessage() for record in caplog.records] == ([line] if destination == "log" else [])


def test_two_sessions_print_once_to_one_destination(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with tritontrace.session(), tritontrace.session(), tritontrace.session(prints=lines.append):
        printing[(1,)](torch.tensor([7]), B=1)
    assert capsys.readouterr().err.count("pid") == 1 and len(lines) == 1


def test_a_traced_kernel_prints_too(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    tritontrace.trace(printing, prints=lines.append)[(1,)](torch.tensor([7]), B=1)
    assert len(lines) == 1 and capsys.readouterr().err == ""


def test_what_is_printed_has_a_bound() -> None:
    lines: list[str] = []
    seen = []

    class Reader(tritontrace.Client):
        name = "reader"

        def register_op_callback(self, op: type) -> tritontrace.OpCallbacks | None:
            return tritontrace.OpCallbacks(after=seen.append) if op is tritontrace.events.Print else None

    with tritontrace.session(clients=[Reader()], prints=lines.append):
        printing[(1000,)](torch.zeros(1000 * 512), B=512)
    assert len(lines) == 257 and "only the first 256" in lines[-1]
    assert all(len(line) < 200 and "..." in line for line in lines[:-1])
    assert sum(event.batch.P for event in seen) == 1000


@triton.jit
def kinds(u_ptr, f_ptr, o_ptr):
    i = tl.arange(0, 2)
    tl.device_print("u", tl.load(u_ptr + i))
    tl.device_print("hex", tl.load(u_ptr + i), tl.load(f_ptr + i), hex=True)
    tl.device_print("scalar", tl.load(f_ptr))
    tl.device_print("flag", tl.load(f_ptr + i) > 1)
    tl.device_print("nothing")
    tl.store(o_ptr, 1)


def test_each_type_is_readable() -> None:
    lines: list[str] = []
    u = torch.tensor([4294967295, 16], dtype=torch.uint32)
    with tritontrace.session(prints=lines.append):
        kinds[(1,)](u, torch.tensor([0.5, 3.0]), torch.zeros(1))
    shown = [line.partition("pid (0, 0, 0) ")[2] for line in lines]
    assert shown[0] == "u: [4294967295         16]"
    assert shown[1] == "hex: [0xffffffff 0x00000010] [0x1.0000000000000p-1 0x1.8000000000000p+1]"
    assert shown[2:] == ["scalar: 0.5", "flag: [False  True]", "nothing"]


@pytest.mark.parametrize("bad", ["stderrr", 7, object()])
def test_a_destination_that_cannot_be_written_to_is_refused(bad: object) -> None:
    with pytest.raises((TypeError, ValueError), match="prints"):
        tritontrace.session(prints=bad)


@triton.jit
def asserting(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.device_assert(x > 0, "x must be positive", mask=x != 7)
    tl.store(o_ptr + i, x)


def test_an_assert_fails_only_where_debug_is_on() -> None:
    x, out = torch.tensor([1.0, 2, -3, 4]), torch.zeros(4)
    with tritontrace.session() as session:
        asserting[(2,)](x, out, B=2)
        assert torch.equal(out, x)
        with pytest.raises(tritontrace.KernelError) as caught:
            asserting[(2,)](x, out, B=2, debug=True)
    error = caught.value
    assert "x must be positive" in str(error) and "(1, 0, 0)" in str(error)
    assert error.programs == ((1, 0, 0),)
    assert error.location is not None and error.location.line == asserting.starting_line_number + 4
    assert isinstance(error.__cause__, AssertionError)
    assert not session.launches[-1].completed


def test_triton_debug_turns_asserts_on() -> None:
    source = """
        import torch, triton, triton.language as tl, tritontrace
        @triton.jit
        def kernel(x_ptr):
            tl.device_assert(tl.load(x_ptr) > 0, "no")
        with tritontrace.session():
            kernel[(1,)](torch.zeros(1))
    """
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(textwrap.dedent(source))
        script.flush()
        for debug, code in (("1", 1), ("0", 0)):
            environment = {**os.environ, "TRITON_DEBUG": debug, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run([sys.executable, script.name], env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == code, done.stderr
            assert ("device_assert failed: no" in done.stderr) == bool(code)
