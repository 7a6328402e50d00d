"""What tritontrace costs code that it does not trace, and what opening a session costs.

The launches are Triton's real hot path (`JITFunction.run` with a filled cache) over a driver that does nothing, since
a GPU would only add noise to what is measured here: the Python time of one launch. Each state is measured in a
process of its own, in turns, so that a machine that slows down slows both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median
from typing import Any

from benchmarks.peers import ROOT

STATES = ("no session", "session elsewhere")
_ROUNDS = 5
_CALLS = 20_000


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


def _launch_microseconds() -> float:
    """The least time of one launch over several blocks of launches."""
    import torch

    from examples.kernels.vector_add import add_kernel

    x = torch.zeros(16)
    null = _NullKernel()

    class FilledCache(dict):  # type: ignore[type-arg]
        """Answers every specialization with the kernel that does nothing."""

        def get(self, key: Any, default: Any = None) -> Any:
            return null

    def launch() -> Any:
        return add_kernel[(1,)](x, x, x, 16, BLOCK=16)

    add_kernel.device_caches[0] = (FilledCache(), *add_kernel.device_caches[0][1:])
    for _ in range(1000):
        launch()
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(_CALLS // 10):
            launch()
        best = min(best, (time.perf_counter() - start) / (_CALLS // 10))
    return best * 1e6


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


def child(state: str) -> None:
    """Measures `state` and prints a JSON object."""
    if state == "sessions":
        print(json.dumps(_session_microseconds()))
        return
    _null_driver()
    if state == "no session":
        print(json.dumps(_launch_microseconds()))
        return
    import tritontrace

    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        opened: Future[None] = Future()

        def hold() -> None:
            try:
                with tritontrace.session(clients=["tracer"]):
                    opened.set_result(None)
                    done.wait()
            except BaseException as error:
                opened.set_exception(error)

        pool.submit(hold)
        try:
            opened.result()
            result = _launch_microseconds()
        finally:
            done.set()
    print(json.dumps(result))


def _ask(state: str) -> Any:
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.overheads", state], capture_output=True, text=True, env=env, cwd=ROOT, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{state}: {run.stderr.strip()[-500:]}")
    return json.loads(run.stdout)


def measure_overheads() -> dict[str, Any]:
    """Everything above as ``{"values": {name: microseconds}, "lines": [...], "errors": [...]}``."""
    values: dict[str, float] = {}
    errors: list[str] = []
    try:
        values.update(_ask("sessions"))
    except RuntimeError as error:
        errors.append(str(error))
    try:
        times: dict[str, list[float]] = {state: [] for state in STATES}
        for turn in range(_ROUNDS):
            for state in STATES if turn % 2 == 0 else reversed(STATES):
                times[state].append(_ask(state))
        for state in STATES:
            values[f"launch, {state}"] = median(times[state])
        values["launch, more with a session elsewhere"] = median(times[STATES[1]]) - median(times[STATES[0]])
    except RuntimeError as error:
        errors.append(str(error))
    lines = [f"{name}: {value:.2f} us" for name, value in values.items()] + [f"failed: {error}" for error in errors]
    return {"values": values, "lines": lines, "errors": errors}


if __name__ == "__main__":
    child(sys.argv[1])
