"""pdb in a kernel, driven through a pseudo-terminal as by a person: it stops on the kernel's lines and shows its values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="there is no pseudo-terminal here")

from tests.engines.terminal import Terminal

SCRIPT = """
import torch, triton, triton.language as tl, tritontrace

@triton.jit
def kernel(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    breakpoint()
    y = x * 2 + 1
    tl.store(out_ptr + at, y)

out = torch.zeros(16)
with tritontrace.session(engine="python", programs=[(3, 0, 0)]):
    kernel[(4,)](torch.arange(16.0), out, B=4)
print("result", out[11:].tolist())
"""


def test_a_person_stops_looks_steps_and_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "debugged.py"
    script.write_text(SCRIPT)
    terminal = Terminal(script)
    stop = terminal.until("(Pdb) ")
    assert f"{script}(" in stop and "kernel()" in stop
    assert "y = x * 2 + 1" in terminal.ask("n") or "y = x * 2 + 1" in stop
    assert "fp32[4] [12. 13. 14. 15.]" in terminal.ask("p x")
    assert "(3, 0, 0)" in terminal.ask("p __program__")
    shown = terminal.ask("p B")
    assert "4" in shown
    assert "tl.store(out_ptr + at, y)" in terminal.ask("n") + terminal.ask("l .")
    assert "[25. 27. 29. 31.]" in terminal.ask("p y")
    terminal.end("c", "result [0.0, 25.0, 27.0, 29.0, 31.0]")


def test_whoever_quits_the_debugger_gets_bdb_quit(tmp_path: Path) -> None:
    script = tmp_path / "debugged.py"
    script.write_text(
        SCRIPT.replace("with tritontrace.session", "import bdb\ntry:\n  with tritontrace.session").replace(
            "    kernel[(4,)]", "      kernel[(4,)]"
        )
        + "\n"
    )
    text = script.read_text().replace('print("result"', 'except bdb.BdbQuit:\n    print("quit")\nprint("result"')
    script.write_text(text)
    terminal = Terminal(script)
    terminal.until("(Pdb) ")
    terminal.end("q", "quit\r\nresult [0.0, 0.0, 0.0, 0.0, 0.0]")


def test_auto_takes_a_breakpoint_in_a_helper_to_the_python_engine(tmp_path: Path) -> None:
    script = tmp_path / "debugged.py"
    helper = "@triton.jit\ndef twice(v, by=2):\n    breakpoint()\n    return v * by\n\n"
    text = SCRIPT.replace("@triton.jit", helper + "@triton.jit")
    text = text.replace("    breakpoint()\n    y = x * 2 + 1", "    y = twice(x) + 1")
    script.write_text(text.replace('engine="python"', 'engine="auto"'))
    terminal = Terminal(script)
    assert "twice()" in terminal.until("(Pdb) ")
    assert "fp32[4] [12. 13. 14. 15.]" in terminal.ask("p v")
    terminal.end("c", "result [0.0, 25.0, 27.0, 29.0, 31.0]")


def test_display_follows_blocks_through_what_cannot_be_compared(tmp_path: Path) -> None:
    script = tmp_path / "debugged.py"
    body = "    y = x * float('nan')\n    y = x > 12\n    y = 1 + x\n"
    script.write_text(SCRIPT.replace("    y = x * 2 + 1\n", body + "    y = x * 2 + 1\n"))
    terminal = Terminal(script)
    terminal.until("(Pdb) ")
    assert "raised NameError" in terminal.ask("display y")
    terminal.ask("display x")
    assert "False" in terminal.ask("p x == None or x == 'text'")
    assert "int1[4] [False  True False False]" in terminal.ask("p x == 13")
    shown = terminal.asks("n", "n", "n", "n")
    if "[old: ** raised" not in shown[0]:  # Python 3.13 stops at breakpoint() itself
        shown = [*shown[1:], terminal.ask("n")]
    assert "display y: fp32[4] [nan nan nan nan]  [old: ** raised NameError" in shown[0]
    assert "display y: int1[4] [False  True  True  True]  [old: fp32[4] [nan nan nan nan]]" in shown[1]
    assert "display y: fp32[4] [13. 14. 15. 16.]  [old: int1[4] [False  True  True  True]]" in shown[2]
    assert "display y: fp32[4] [25. 27. 29. 31.]  [old: fp32[4] [13. 14. 15. 16.]]" in shown[3]
    assert "display x" not in "".join(shown)
    terminal.end("c", "result [0.0, 25.0, 27.0, 29.0, 31.0]")


HELPERS = """
import sys, torch, triton, triton.language as tl, tritontrace

@triton.jit
def scaled(v, by):
    w = v * by
    return w + 1

@triton.jit
def kernel(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    y = scaled(x, 2)
    tl.store(out_ptr + at, y)

@triton.jit
def turns(flag, out, B: tl.constexpr):
    me = tl.num_programs(0) - 1 - tl.program_id(0)
    while tl.atomic_add(flag, 0) != me:
        pass
    v = tl.load(out)
    w = v * 2 + me
    tl.store(out, w)
    tl.atomic_add(flag, 1)

def run(which, n, dtype):
    x, out = torch.arange(16).to(dtype), torch.zeros(16, dtype=dtype)
    if which is turns:
        x.zero_()
    with tritontrace.session(engine="python"):
        which[(n,)](x, out, B=4)
    print("result", out[:5].tolist())

if sys.argv[1] == "kernel":
    run(kernel, 4, torch.float32)
else:
    run(turns, 4, torch.int32)
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(HELPERS.splitlines(), 1) if text in line)


@pytest.fixture
def helpers(tmp_path: Path) -> Path:
    script = tmp_path / "helpers.py"
    script.write_text(HELPERS)
    return script


def test_steps_go_from_kernel_line_to_kernel_line(helpers: Path) -> None:
    helpers.write_text(HELPERS.replace("    y = scaled", "    breakpoint()\n    y = scaled"))
    terminal = Terminal(helpers, "kernel")
    if "y = scaled" not in terminal.until("(Pdb) "):  # Python 3.13 stops at breakpoint() itself
        terminal.ask("n")
    called = terminal.ask("s")
    assert "--Call--" in called and "def scaled(v, by)" in called
    shown = terminal.ask("w")
    assert all(text in shown for text in ("run(kernel, 4", "which[(n,)]", "y = scaled(x, 2)", "def scaled"))
    assert shown.count("\r\n-> ") == 4
    assert "y = scaled(x, 2)" in terminal.ask("u")
    terminal.ask("d")
    assert "w = v * by" in terminal.ask("n")
    assert "return w + 1" in terminal.ask("n")
    assert "--Return--" in terminal.ask("n")
    assert "tl.store(out_ptr + at, y)" in terminal.ask("n")
    returned = terminal.ask("s")
    assert "--Return--" in returned and "kernel()->None" in returned
    assert "--Call--" in (begun := terminal.ask("n")) and "def kernel" in begun
    assert "at = tl.program_id(0)" in terminal.ask("n")
    assert "(1, 0, 0)" in terminal.ask("p __program__")
    terminal.asks("c", "c", "c", f"b {line_of('return w + 1')}", "c", "n", "n")
    assert "(3, 0, 0)" in terminal.ask("p __program__")
    assert "kernel()->None" in terminal.ask("n")
    assert "with tritontrace.session" in terminal.ask("n")  # in the script again
    assert 'print("result"' in terminal.ask("n")
    terminal.end("c", "result [1.0, 3.0, 5.0, 7.0, 9.0]")


def test_a_breakpoint_on_a_function_knows_the_program(helpers: Path) -> None:
    terminal = Terminal("-m", "pdb", helpers, "kernel")
    terminal.until("(Pdb) ")
    terminal.ask("b scaled, __program__ == (2, 0, 0)")
    assert "w = v * by" in terminal.ask("c")
    assert "(2, 0, 0)" in terminal.ask("p __program__")
    assert "[ 8.  9. 10. 11.]" in terminal.ask("p v")
    assert "return w + 1" in terminal.ask("n")
    assert "--Return--" in terminal.ask("n")
    assert "tl.store(out_ptr + at, y)" in terminal.ask("n")
    assert "result [1.0, 3.0, 5.0, 7.0, 9.0]" in terminal.ask("c")
    os.close(terminal.fd)


def test_breakpoints_stop_programs_that_others_wait_for(helpers: Path) -> None:
    terminal = Terminal("-m", "pdb", helpers, "turns")
    terminal.until("(Pdb) ")
    terminal.ask(f"b {line_of('w = v * 2')}, __program__[0] > 1")
    assert "w = v * 2 + me" in terminal.ask("c")
    assert "(3, 0, 0)" in terminal.ask("p __program__")
    assert "tl.store(out, w)" in terminal.ask("n")
    terminal.ask("n")
    assert "--Return--" in terminal.ask("n")
    assert "while tl.atomic_add(flag, 0) != me" in terminal.ask("n") + terminal.ask("n")  # in the program whose turn it is
    assert "(3, 0, 0)" not in terminal.ask("p __program__")
    assert "w = v * 2 + me" in terminal.ask("c")
    assert "(2, 0, 0)" in terminal.ask("p __program__")
    assert "result [11, 0, 0, 0, 0]" in terminal.ask("c")
    os.close(terminal.fd)


def test_quitting_in_a_program_that_others_wait_for_ends_the_launch(helpers: Path) -> None:
    text = HELPERS.replace("    w = v * 2", "    breakpoint()\n    w = v * 2")
    caught = "    except bdb.BdbQuit:\n        print('quit', threading.active_count(), sys.gettrace())"
    text = text.replace("    run(turns", "    import bdb, threading\n    try:\n        run(turns").rstrip() + "\n" + caught
    helpers.write_text(text)
    terminal = Terminal(helpers, "turns")
    assert "turns()" in terminal.until("(Pdb) ")
    terminal.end("q", "quit 1 None")


def test_a_breakpoint_hook_of_the_users_is_called_from_the_kernel(helpers: Path) -> None:
    helpers.write_text(HELPERS.replace("    y = scaled", "    breakpoint()\n    y = scaled"))
    hook = "def hook():\n    frame = sys._getframe(1)\n    print('hook', frame.f_code.co_name, frame.f_locals['__program__'])\n"
    (helpers.parent / "hooks.py").write_text("import sys\n" + hook)
    terminal = Terminal(helpers, "kernel", breakpoint="hooks.hook")
    assert terminal.until("result [1.0, 3.0").count("hook kernel (") == 4
    assert os.waitpid(terminal.pid, 0)[1] == 0
    os.close(terminal.fd)


def test_pdb_set_trace_is_breakpoint(helpers: Path) -> None:
    helpers.write_text(
        HELPERS.replace("    w = v * by", "    pdb.set_trace()\n    w = v * by").replace("import sys,", "import pdb, sys,")
    )
    terminal = Terminal(helpers, "kernel")
    assert "scaled()" in terminal.until("(Pdb) ")
    assert "y = scaled(x, 2)" in terminal.ask("u")
    terminal.asks("c", "c", "c")
    terminal.end("c", "result [1.0, 3.0, 5.0, 7.0, 9.0]")
