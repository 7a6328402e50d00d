"""``python -m benchmarks.step_through``: what ``engine="python"`` costs beside TRITON_INTERPRET=1, both in turns in one run.

Each side is a process of its own, asked for one round after another, so that other work on the machine meets both alike. A
round's time is the least of several launches; a part (a helper's call, an operation) is the difference of two kernels that
differ in it alone. The table has the medians of the rounds and of their ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- step-through: begin -->", "<!-- step-through: end -->"
TURNS = 200
"""Iterations of each loop that is measured."""


@triton.jit
def empty(x_ptr):
    pass


@triton.jit
def twice(x):
    return x


@triton.jit
def loop(x_ptr, n):
    for _ in range(n):
        pass


@triton.jit
def calls(x_ptr, n):
    for i in range(n):
        twice(i)


@triton.jit
def scalars(x_ptr, n):
    a = tl.load(x_ptr)
    for _ in range(n):
        a = a * 0.5 + 1.0
        a = a - 0.25


@triton.jit
def blocks(x_ptr, n, BLOCK: tl.constexpr):
    a = tl.load(x_ptr + tl.arange(0, BLOCK))
    for _ in range(n):
        a = a * 0.5 + 1.0
        a = a - 0.25


@triton.jit
def memory(x_ptr, n, BLOCK: tl.constexpr):
    at = x_ptr + tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(at, tl.load(at))


@triton.jit
def reductions(x_ptr, n, BLOCK: tl.constexpr):
    a = tl.load(x_ptr + tl.arange(0, BLOCK))
    for _ in range(n):
        tl.sum(a, axis=0)


def measure() -> dict[str, float]:
    """Microseconds of each part, once."""
    x = torch.ones(4096)

    def least(kernel: Any, *args: Any, repeat: int = 3, grid: int = 1, **kwargs: Any) -> float:
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            kernel[(grid,)](x, *args, **kwargs)
            times.append(time.perf_counter() - start)
        return min(times) * 1e6

    plain = least(loop, TURNS)
    launch = least(empty, repeat=20)
    return {
        "a launch of one empty program": launch,
        "each further program of it": (least(empty, grid=101) - launch) / 100,
        "an iteration of a loop": (plain - launch) / TURNS,
        "a call of a helper": (least(calls, TURNS) - plain) / TURNS,
        "an operation on scalars": (least(scalars, TURNS) - plain) / TURNS / 3,
        "an operation on blocks of 1024": (least(blocks, TURNS, BLOCK=1024) - plain) / TURNS / 3,
        "a load and a store of 1024": (least(memory, TURNS, BLOCK=1024) - plain) / TURNS,
        "tl.sum of 1024": (least(reductions, TURNS, BLOCK=1024) - plain) / TURNS,
    }


def serve(peer: str) -> None:
    """Answers each line of stdin with a round."""
    torch.set_num_threads(1)
    if peer == "python":
        import tritontrace

        context: Any = tritontrace.session(engine="python", keep=1)
    else:
        context = nullcontext()
    with context:
        measure()
        for _ in sys.stdin:
            sys.stdout.write(json.dumps(measure()) + "\n")
            sys.stdout.flush()


class _Peer:
    def __init__(self, name: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | {"OMP_NUM_THREADS": "1"}
        if name == "interpreter":
            environment["TRITON_INTERPRET"] = "1"
        command = [sys.executable, "-m", "benchmarks.step_through", "--serve", name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT)

    def round(self) -> dict[str, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def section(rounds: list[tuple[dict[str, float], dict[str, float]]]) -> str:
    """The page's lines."""
    lines = [
        BEGIN,
        "## The step-through engine",
        "",
        '`engine="python"` without clients beside `TRITON_INTERPRET=1` (`make bench-step-through`): medians of',
        f"{len(rounds)} rounds in turns, in microseconds, and of their ratios; Python {platform.python_version()}, "
        f"triton {version('triton')}, torch {version('torch')}.",
        "A program or an iteration that does nothing costs the interpreter nothing: its loops count in Python's "
        "integers, ours in Triton's.",
        "",
        '| | interpreter | `engine="python"` | ratio |',
        "| --- | ---: | ---: | ---: |",
    ]
    for name in rounds[0][0]:
        theirs, ours = ([row[side][name] for row in rounds] for side in (0, 1))
        ratio = median(b / a for a, b in zip(theirs, ours))
        lines.append(f"| {name} | {median(theirs):.1f} | {median(ours):.1f} | {ratio:.3f} |")
    return "\n".join([*lines, END]) + "\n"


def write(text: str, page: Path) -> None:
    """Put the section in the place of the one before, or at the end."""
    old = page.read_text() if page.exists() else ""
    if BEGIN in old:
        before, _, rest = old.partition(BEGIN)
        page.write_text(before + text + rest.partition(END)[2].lstrip("\n"))
    else:
        page.write_text(old.rstrip("\n") + "\n\n" + text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_through", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--serve", choices=("interpreter", "python"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    peers = [_Peer(name) for name in ("interpreter", "python")]
    try:
        rounds = [(peers[0].round(), peers[1].round()) for _ in range(options.rounds)]
    finally:
        for peer in peers:
            peer.close()
    text = section(rounds)
    print(text)
    if options.write:
        write(text, PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
