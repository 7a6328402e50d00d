"""One sanitizer on one launch in a process of its own: ``python -m benchmarks.sanitizer_worker PEER CASE SECONDS``.

Prints one line of JSON. ``triton-viz`` and ``triton-viz-fake`` run in triton-viz's environment, the others in ours.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import torch

from benchmarks.sanitizer_kernels import Sanitized, add_kernel, by_name

PEERS = ("triton-viz", "triton-viz-fake", "dry", "beside")
MOST = 10
"""Measured launches, at most."""

Launcher = Callable[[Any, tuple[int, ...], dict[str, Any]], int]
"""Launches (kernel, grid, arguments) under a sanitizer from scratch; the number of findings."""


def viz() -> Launcher:
    """triton-viz's sanitizer. What it remembers of earlier launches is dropped, so that each is analysed."""
    from triton_viz.clients.sanitizer import sanitizer
    from triton_viz.core import trace

    def launch(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> int:
        sanitizer._fn_symbolic_cache_set.clear()
        client = sanitizer.Sanitizer(abort_on_error=False)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            trace(client=client)(kernel)[grid](**arguments)
        return len(client.records)

    return launch


def ours(dry: bool) -> Launcher:
    """A session with the sanitizer, opened and closed around each launch: nothing is kept from one to the next."""
    import tritontrace

    def launch(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> int:
        with tritontrace.session(clients=[tritontrace.Sanitizer(dry_run=dry)]) as session:
            kernel[grid](**arguments)
        return len(session.findings)

    return launch


def measure(peer: str, case: Sanitized, seconds: float) -> dict[str, Any]:
    """The first launch of another size (it builds), then launches of the case's own size; the first of these stands apart."""
    launch = viz() if peer.startswith("triton-viz") else ours(peer == "dry")

    def timed(size: tuple[int, ...], arguments: dict[str, Any]) -> tuple[float, int]:
        start = time.perf_counter()
        found = launch(case.kernel, case.grid(*size), arguments | case.constants)
        return time.perf_counter() - start, found

    build, _ = timed(case.warm, case.values(case.warm, "cpu"))
    arguments = case.values(case.size, "cpu")
    times: list[float] = []
    found = 0
    while len(times) < MOST and (not times or sum(times) < seconds):
        took, found = timed(case.size, arguments)
        times.append(took)
    _, planted = timed(case.warm, case.values(case.warm, "cpu", fault=True))
    return {"build_s": build, "times_s": times, "findings": found, "finds_planted_fault": planted > 0}


def first_check(case: Sanitized) -> dict[str, Any]:
    """The first dry launch of the size in a process where another size has built the program, and identical repetitions."""
    import tritontrace

    meta, other = case.values(case.size, "meta"), case.values(case.warm, "meta")
    grid, warm = case.grid(*case.size), case.grid(*case.warm)
    repeated = []
    with tritontrace.session(clients=[tritontrace.Sanitizer(dry_run=True)]):
        case.kernel[warm](**other, **case.constants)
        start, cpu = time.perf_counter(), time.process_time()
        case.kernel[grid](**meta, **case.constants)
        first, first_cpu = time.perf_counter() - start, time.process_time() - cpu
        for _ in range(1000):
            start = time.perf_counter()
            case.kernel[grid](**meta, **case.constants)
            repeated.append(time.perf_counter() - start)
    return {"first_s": first, "first_cpu_s": first_cpu, "repeated_s": repeated}


def memory() -> dict[str, Any]:
    """The peak of Python's and numpy's memory, and the growth of the process, over dry launches of ever larger grids."""
    import tritontrace

    def launch(programs: int) -> None:
        x = torch.empty(programs * 64, device="meta")
        with tritontrace.session(clients=[tritontrace.Sanitizer(dry_run=True)]) as session:
            add_kernel[(programs,)](x, x, x, programs * 64 - 7, TILE=64)
        if session.findings:
            raise RuntimeError("a clean launch is not clean")

    launch(1 << 10)
    rows = []
    for power in (10, 12, 14, 16, 18, 20):
        tracemalloc.start()
        launch(1 << power)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        start = time.perf_counter()
        launch(1 << power)
        took = time.perf_counter() - start
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rows.append({"programs": 1 << power, "peak_bytes": peak, "resident_bytes": resident, "seconds": took})
    return {"grids": rows}


def main(what: str, name: str, seconds: str) -> None:
    torch.set_num_threads(1)
    answers = sys.stdout
    sys.stdout = sys.stderr
    if what == "memory":
        result = memory()
    elif what == "first":
        result = first_check(by_name(name))
    else:
        result = measure(what, by_name(name), float(seconds))
    answers.write(json.dumps(result) + "\n")
    answers.flush()
    os._exit(0)  # triton-viz's threads and solver need no goodbye


if __name__ == "__main__":
    main(*sys.argv[1:4])
