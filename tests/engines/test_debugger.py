"""pdb in a kernel, driven through a pseudo-terminal as by a person: it stops on the kernel's lines and shows its values."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="there is no pseudo-terminal here")

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


class Terminal:
    """A process on the other side of a pseudo-terminal."""

    def __init__(self, script: Path) -> None:
        root = Path(__file__).resolve().parents[2]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            settings = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "TERM": "dumb", "PYTHONBREAKPOINT": "pdb.set_trace"}
            os.execve(sys.executable, [sys.executable, str(script)], {**os.environ, **settings})

    def until(self, text: str, seconds: float = 120) -> str:
        """What the process writes up to `text`."""
        seen = ""
        end = time.monotonic() + seconds
        while text not in seen and time.monotonic() < end:
            try:
                more = os.read(self.fd, 4096).decode(errors="replace")
            except OSError:  # Linux's way to say that the other side is closed
                break
            seen += more
        assert text in seen, seen
        return seen

    def ask(self, line: str) -> str:
        os.write(self.fd, line.encode() + b"\n")
        return self.until("(Pdb) ")

    def end(self, line: str, result: str) -> None:
        """The last line that is typed; the process shows `result` and ends well."""
        os.write(self.fd, line.encode() + b"\n")
        self.until(result)
        assert os.waitpid(self.pid, 0)[1] == 0
        os.close(self.fd)


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
