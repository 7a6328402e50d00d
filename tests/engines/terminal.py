"""A person's terminal, for tests of pdb."""

from __future__ import annotations

import os
import pty
import sys
import time
from pathlib import Path


class Terminal:
    """A process on the other side of a pseudo-terminal."""

    def __init__(self, *command: str | Path, breakpoint: str = "pdb.set_trace") -> None:
        root = Path(__file__).resolve().parents[2]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            settings = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "TERM": "dumb", "PYTHONBREAKPOINT": breakpoint}
            os.execve(sys.executable, [sys.executable, *map(str, command)], {**os.environ, **settings})

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

    def asks(self, *lines: str) -> list[str]:
        """The answers, one after another."""
        return [self.ask(line) for line in lines]
