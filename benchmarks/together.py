"""What clients cost beside the engine: ``python -m benchmarks.together WORKLOAD-OR-SINGLE SECONDS`` prints a line of JSON.

A workload of `workloads.py` is run in turns by the engine alone and by a session with all clients of `FOUR` that exist. The
two singles (`SINGLES`) are race detection over one launch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import triton

from benchmarks.sanitizer_kernels import by_name as sanitized
from benchmarks.sanitizer_kernels import histogram_kernel
from benchmarks.workloads import by_name

SINGLES = ("race detection, matmul 4096^3", "race detection, histogram 1M")
MOST = 10


def four() -> tuple[list[Any], list[str]]:
    """(the clients, the names of those that this version lacks)."""
    import tritontrace

    clients: list[Any] = ["sanitizer"]
    missing = []
    for name in ("RaceDetector", "Profiler"):
        made = getattr(tritontrace, name, None)
        if made is None:
            missing.append(name)
        else:
            clients.append(made())
    return [*clients, tritontrace.Tracer(values=False)], missing


def together(name: str, seconds: float) -> dict[str, Any]:
    """Times of the engine alone and of all clients, in turns."""
    import tritontrace

    workload = by_name(name)
    inputs = workload.inputs()
    _, missing = four()

    def timed(enter: Callable[[], AbstractContextManager[Any]]) -> float:
        start = time.perf_counter()
        with enter():
            workload.run(*inputs)
        return time.perf_counter() - start

    def alone() -> AbstractContextManager[Any]:
        return tritontrace.session()

    def all_four() -> AbstractContextManager[Any]:
        return tritontrace.session(clients=four()[0])

    timed(alone)
    timed(all_four)
    engine: list[float] = []
    clients: list[float] = []
    while len(engine) < MOST and (len(engine) < 3 or sum(engine) + sum(clients) < seconds):
        engine.append(timed(alone))
        clients.append(timed(all_four))
    return {"engine_s": engine, "clients_s": clients, "missing": missing}


def single(name: str) -> dict[str, Any]:
    """Race detection over one launch; a dry run where the detector offers one, else beside execution."""
    import inspect

    import tritontrace

    detector = getattr(tritontrace, "RaceDetector", None)
    if detector is None:
        return {"missing": ["RaceDetector"]}
    dry = "dry_run" in inspect.signature(detector.__init__).parameters
    options = {"dry_run": True} if dry else {}
    if "matmul" in name:
        case = sanitized("matmul 4096^3")
        device = "meta" if dry else "cpu"
        kernel = case.kernel
        launches = [(case.grid(*size), case.values(size, device) | case.constants) for size in (case.warm, case.size)]
    else:
        kernel = histogram_kernel
        generator = torch.Generator().manual_seed(0)
        launches = []
        for n in (1 << 14, 1 << 20):
            x = torch.randint(0, 256, (n,), generator=generator, dtype=torch.int32)
            arguments = {"x": x, "counts": torch.zeros(256, dtype=torch.int32), "n": n, "TILE": 1024}
            launches.append(((triton.cdiv(n, 1024),), arguments))
    times = []
    found = 0
    for grid, arguments in (launches[0], *[launches[1]] * 3):
        start = time.perf_counter()
        with tritontrace.session(clients=[detector(**options)]) as session:
            kernel[grid](**arguments)
        times.append(time.perf_counter() - start)
        found = len(session.findings)
    return {"dry": dry, "build_s": times[0], "times_s": times[1:], "findings": found, "missing": []}


def main(name: str, seconds: str) -> None:
    torch.set_num_threads(1)
    answers = sys.stdout
    sys.stdout = sys.stderr
    result = single(name) if name in SINGLES else together(name, float(seconds))
    answers.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
