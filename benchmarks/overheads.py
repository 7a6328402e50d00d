"""What tritontrace costs code that it does not trace, and what opening a session costs.

The launches are Triton's real hot path (`JITFunction.run` with a filled cache) over a driver that does nothing, since
a GPU would only add noise to what is measured here: the Python time of one launch. The two states alternate in short
blocks, of which the fastest counts, so that other work on the machine disturbs neither.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from benchmarks.peers import ROOT

STATES = ("no session", "session elsewhere")
_TURNS = 60
_CALLS = 500


def _null_driver() -> None:
    """Makes Triton's active driver one that launches nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class NullDriver:
        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

    driver.set_active(NullDriver())


class _NullKernel:
    """What stands in the kernel cache: a compiled kernel whose launch does nothing."""

    function = packed_metadata = None

    def launch_metadata(self, *arguments: Any) -> None:
        return None

    def run(self, *arguments: Any) -> None:
        return None


def _launch_microseconds() -> dict[str, float]:
    """The least time of one launch over many short blocks, without a session and with one on another thread in turns."""
    import torch

    import tritontrace
    from examples.kernels.vector_add import add_kernel

    x = torch.zeros(16)
    null = _NullKernel()

    class FilledCache(dict):  # type: ignore[type-arg]
        """Answers every specialization with the kernel that does nothing."""

        def get(self, key: Any, default: Any = None) -> Any:
            return null

    def block() -> float:
        start = time.perf_counter()
        for _ in range(_CALLS):
            add_kernel[(1,)](x, x, x, 16, BLOCK=16)
        return (time.perf_counter() - start) / _CALLS * 1e6

    _null_driver()
    add_kernel.device_caches[0] = (FilledCache(), *add_kernel.device_caches[0][1:])
    block()
    times: dict[str, list[float]] = {state: [] for state in STATES}
    with ThreadPoolExecutor(1) as elsewhere:
        for _ in range(_TURNS):
            times[STATES[0]].append(block())
            session = tritontrace.session(clients=["tracer"])
            elsewhere.submit(session.__enter__).result()
            try:
                times[STATES[1]].append(block())
            finally:
                elsewhere.submit(session.__exit__, None, None, None).result()
    least = {f"launch, {state}": min(values) for state, values in times.items()}
    more = least[f"launch, {STATES[1]}"] - least[f"launch, {STATES[0]}"]
    return {**least, "launch, more with a session elsewhere": more}


def _session_microseconds() -> dict[str, float]:
    """Opening and closing a session once warm, alone and with another one open."""
    import tritontrace

    def block(clients: list[str]) -> float:
        times = []
        for _ in range(300):
            start = time.perf_counter()
            with tritontrace.session(clients=clients):
                pass
            times.append(time.perf_counter() - start)
        return median(times[100:]) * 1e6

    out = {
        "session open+close (tracer)": block(["tracer"]),
        "session open+close (tracer, sanitizer)": block(["tracer", "sanitizer"]),
    }
    with tritontrace.session(clients=["tracer"]):
        out["nested session open+close (tracer)"] = block(["tracer"])
    return out


_CHILDREN = {"sessions": _session_microseconds, "launches": _launch_microseconds}


def measure_overheads() -> dict[str, Any]:
    """Everything above as ``{"values": {name: microseconds}, "lines": [...], "errors": [...]}``."""
    values: dict[str, float] = {}
    errors: list[str] = []
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | {"OMP_NUM_THREADS": "1"}
    for child in _CHILDREN:
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.overheads", child], capture_output=True, text=True, env=env, cwd=ROOT, check=False
        )
        if run.returncode:
            errors.append(f"{child}: {run.stderr.strip()[-500:]}")
        else:
            values.update(json.loads(run.stdout))
    lines = [f"{name}: {value:.2f} us" for name, value in values.items()] + [f"failed: {error}" for error in errors]
    return {"values": values, "lines": lines, "errors": errors}


if __name__ == "__main__":
    print(json.dumps(_CHILDREN[sys.argv[1]]()))
