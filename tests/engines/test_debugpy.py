"""debugpy, which editors debug with: a breakpoint on a kernel's line stops there, and shows the kernel's values."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

debugpy = pytest.importorskip("debugpy", reason="debugpy is not installed (pip install debugpy)")

SCRIPT = """
import torch, triton, triton.language as tl, tritontrace

@triton.jit
def doubled(x):
    y = x * 2
    return y

@triton.jit
def kernel(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    y = doubled(x) + 1
    tl.store(out_ptr + at, y)

out = torch.zeros(16)
with tritontrace.session(engine="python", programs=[(3, 0, 0)]):
    kernel[(4,)](torch.arange(16.0), out, B=4)
print("result", out[11:].tolist())
"""


class Editor:
    """What an editor says to debugpy: the Debug Adapter Protocol over a socket."""

    def __init__(self, port: int) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.stream = self.socket.makefile("rb")
        self.number = 0
        self.events: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> int:
        self.number += 1
        body = json.dumps({"seq": self.number, "type": "request", "command": command, "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self.number

    def read(self) -> dict[str, Any]:
        length = 0
        while (line := self.stream.readline().strip()) or not length:
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        message: dict[str, Any] = json.loads(self.stream.read(length))
        return message

    def answer(self, number: int) -> dict[str, Any]:
        while True:
            message = self.read()
            if message["type"] == "event":
                self.events.append(message)
            elif message.get("request_seq") == number:
                assert message["success"], message
                body: dict[str, Any] = message.get("body", {})
                return body

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.answer(self.send(command, **arguments))

    def event(self, name: str) -> dict[str, Any]:
        while True:
            for event in self.events:
                if event["event"] == name:
                    self.events.remove(event)
                    body: dict[str, Any] = event.get("body", {})
                    return body
            message = self.read()
            if message["type"] == "event":
                self.events.append(message)

    def where(self, thread: int) -> list[tuple[str, str, int, int]]:
        """(file, function, line, id) of the frames, innermost first."""
        frames = self.ask("stackTrace", threadId=thread)["stackFrames"]
        return [(frame["source"]["path"], frame["name"].rpartition(".")[2], frame["line"], frame["id"]) for frame in frames]

    def value(self, frame: int, expression: str) -> str:
        result: str = self.ask("evaluate", expression=expression, frameId=frame, context="repl")["result"]
        return result


@pytest.fixture
def debugged(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Editor, Path]]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(Path(debugpy.__file__).parents[1])])
    settings = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    command = [sys.executable, "-m", "debugpy", "--listen", f"127.0.0.1:{port}", "--wait-for-client", str(script)]
    process = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process, Editor(port), script
    finally:
        process.kill()
        process.communicate()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if text in line)


@pytest.mark.slow
def test_a_breakpoint_stops_on_the_kernels_line(debugged: tuple[subprocess.Popen[str], Editor, Path]) -> None:
    process, editor, script = debugged
    editor.ask("initialize", adapterID="test", pathFormat="path", linesStartAt1=True)
    attached = editor.send("attach", justMyCode=True)
    editor.event("initialized")
    wanted = [line_of("y = doubled(x) + 1"), line_of("y = x * 2")]
    editor.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": line} for line in wanted])
    editor.ask("configurationDone")
    editor.answer(attached)

    thread = editor.event("stopped")["threadId"]
    file, name, line, frame = editor.where(thread)[0]
    assert (file, name, line) == (str(script), "kernel", wanted[0])
    assert editor.value(frame, "x") == "fp32[4] [12. 13. 14. 15.]"
    assert editor.value(frame, "__program__") == "(3, 0, 0)"

    editor.ask("continue", threadId=thread)
    assert editor.event("stopped")["threadId"] == thread
    names = [(name, line) for file, name, line, _ in editor.where(thread) if file == str(script)]
    assert names[:2] == [("doubled", wanted[1]), ("kernel", wanted[0])]

    editor.ask("next", threadId=thread)
    editor.event("stopped")
    file, name, line, frame = editor.where(thread)[0]
    assert (file, name, line) == (str(script), "doubled", line_of("return y"))
    assert editor.value(frame, "y") == "fp32[4] [24. 26. 28. 30.]"

    editor.ask("continue", threadId=thread)
    editor.event("terminated")
    editor.ask("disconnect")
    output, _ = process.communicate(timeout=60)
    assert "result [0.0, 25.0, 27.0, 29.0, 31.0]" in output
