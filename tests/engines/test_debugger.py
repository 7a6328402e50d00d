"""pdb in a kernel, driven through a pseudo-terminal as by a person: it stops on the kernel's lines and shows its values."""

from __future__ import annotations

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
