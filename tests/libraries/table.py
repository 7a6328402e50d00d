"""``python -m tests.libraries.table``: every case here and under TRITON_INTERPRET=1, each peer in a process of its own.

Writes the installed libraries' sections of docs/libraries.md and leaves the rest of that page as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import selectors
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.libraries.registry import LIBRARIES, Library

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "libraries.md"
#: Importing torch and a library may take long on a busy machine.
START_LIMIT = 300.0
LOG = sys.stderr
Answer = dict[str, Any]


class Peer:
    """A worker process that is started when first asked and again after a timeout or crash.

    One that cannot load the library is not started again: every case gets that answer.
    """

    def __init__(self, key: str, engine: str, limit: float) -> None:
        self.key, self.engine, self.limit = key, engine, limit
        self.process: subprocess.Popen[str] | None = None
        self.errors = Path(os.devnull)
        self.unable: Answer | None = None

    def start(self) -> Answer:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        environment.pop("TRITON_INTERPRET", None)
        if self.engine == "interpreter":
            environment["TRITON_INTERPRET"] = "1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.libraries.worker", self.key, self.engine],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment,
        )  # fmt: skip
        return self.answer(START_LIMIT, "does not start: import of the library failed or took too long")

    def ask(self, name: str) -> Answer:
        if self.unable is not None:
            return self.unable
        if self.process is None:
            started = self.start()
            if "ready" not in started:
                self.stop()
                self.unable = started
                return started
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self.answer(self.limit, f"does not end within {self.limit:g} s")

    def answer(self, limit: float, late: str) -> Answer:
        assert self.process is not None and self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(limit)
        line = self.process.stdout.readline() if ready else ""
        if line:
            answer: Answer = json.loads(line)
            return answer
        text = late if not ready else f"the process died ({self.process.wait()})"
        self.stop()
        return {"error": text}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def measure(key: str, limit: float, only: str, names: list[str]) -> list[tuple[str, Answer, Answer]]:
    peers = [Peer(key, engine, limit) for engine in ("tritontrace", "interpreter")]
    rows = []
    for name in names:
        if only not in name:
            continue
        ours, interpreter = (peer.ask(name) for peer in peers)
        rows.append((name, ours, interpreter))
        print(f"{key} {name}: {cells(name, ours, interpreter)[1:]}", file=LOG, flush=True)
    for peer in peers:
        peer.stop()
    return rows


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.0f} ms"


def short(text: str, width: int = 110) -> str:
    """Fits a cell: one line, no path of this machine, no table syntax."""
    text = re.sub(r"(/[\w.+-]+)+/(?=[\w.+-]+)", "", " ".join(text.split())).replace("|", "\\|")
    return text if len(text) <= width else text[: width - 1] + "…"


def cells(name: str, ours: Answer, interpreter: Answer) -> list[str]:
    if ours["error"]:
        status, times = f"**{short(ours['error'])}**", ["", ""]
    else:
        status = "equal" if not ours["findings"] else f"equal, {len(ours['findings'])} finding(s)"
        times = [seconds(ours["first"]), seconds(ours["best"])]
    if interpreter["error"]:
        peer = short(interpreter["error"])
    elif ours["error"]:
        peer = f"equal in {seconds(interpreter['best'])}"
    else:
        peer = f"{interpreter['best'] / ours['best']:.1f}x ({seconds(interpreter['best'])})"
    return [f"`{name}`", status, *times, peer]


def section(library: Library, rows: list[tuple[str, Answer, Answer]]) -> str:
    equal = [ours for _, ours, _ in rows if not ours["error"]]
    both = [(ours, peer) for _, ours, peer in rows if not ours["error"] and not peer["error"]]
    failing = sum(1 for _, _, peer in rows if peer["error"])
    lines = [
        f"{library.distribution} {version(library.distribution)}, triton {version('triton')}, torch {version('torch')}, "
        f"Python {platform.python_version()}: {len(equal)} of {len(rows)} operations equal their float64 references; "
        f"under `TRITON_INTERPRET=1` {failing} of {len(rows)} fail."
    ]
    if both:
        ratio = statistics.geometric_mean(peer["best"] / ours["best"] for ours, peer in both)
        lines[0] += f" Where both are right, the geometric mean of the ratios is {ratio:.1f}."
    lines += ["", "| operation | status | first call | later calls | against `TRITON_INTERPRET=1` |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    lines += ["| " + " | ".join(cells(*row)) + " |" for row in rows]
    notes = {case.name: case.finding for case in library.load() if case.finding}
    if notes:
        lines += ["", "Findings in the library's kernels:", ""] + [f"- `{name}`: {text}" for name, text in notes.items()]
    return "\n".join(lines)


def write(key: str, text: str) -> None:
    """Puts `text` between the page's marks for `key`."""
    begin, end = f"<!-- {key}: begin -->", f"<!-- {key}: end -->"
    page = PAGE.read_text()
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{PAGE} lacks the lines {begin} and {end}")
    PAGE.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.libraries.table", description=__doc__)
    parser.add_argument("--library", action="append", choices=list(LIBRARIES), help="default: all that are installed")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one case of one peer, its repeats together")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT; the page is not written")
    options = parser.parse_args()
    keys = options.library or [key for key, library in LIBRARIES.items() if library.installed]
    failed = False
    for key in keys:
        started = time.monotonic()
        rows = measure(key, options.limit, options.only, [case.name for case in LIBRARIES[key].load()])
        text = section(LIBRARIES[key], rows)
        failed |= any(ours["error"] for _, ours, _ in rows)
        if options.only:
            print(text)
        else:
            write(key, text)
        print(f"{key}: {len(rows)} cases in {time.monotonic() - started:.0f} s", file=LOG)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
