"""One peer on one workload in a process of its own: ``python -m benchmarks.worker PEER WORKLOAD``.

Answers its first call, then each word on a line of stdin (``run``, or ``check``, which is the last), with a line of
JSON. The process is its own so that no peer profits or suffers from what another one patched, cached or allocated.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy  # noqa: F401  part of what the imports take
import torch
import triton  # noqa: F401

PEERS = ("interpreter", "tracer", "sanitizer")
"""``interpreter`` is Triton's own (the process must be started with TRITON_INTERPRET=1); the others are ours."""


def context(peer: str) -> Callable[[], AbstractContextManager[Any]]:
    """What is entered around each call: a fresh session, or nothing. Importing ours is part of what imports take."""
    if peer == "interpreter":
        return contextlib.nullcontext
    import tritontrace

    return lambda: tritontrace.session(clients=[peer])


def peak_bytes() -> int:
    """The process's high-water mark of resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(peer: str, name: str) -> None:
    torch.set_num_threads(1)
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a kernel prints must not mix with the answers

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    enter = context(peer)
    from benchmarks.workloads import by_name, input_bytes, mismatch

    workload = by_name(name)
    imports = peak_bytes()
    inputs = workload.inputs()

    def timed() -> tuple[float, Any]:
        start = time.perf_counter()
        with enter():
            output = workload.run(*inputs)
        return time.perf_counter() - start, output

    # The warm-up, which compiles and fills caches, is the first call.
    seconds, output = timed()
    answer(seconds=seconds, input_bytes=input_bytes(inputs))
    for line in sys.stdin:
        if line.strip() == "run":
            del output
            seconds, output = timed()
            answer(seconds=seconds)
        else:
            # The memory is read before the check, which takes some itself.
            peak = peak_bytes()
            answer(above_imports=peak - imports, wrong=mismatch(workload, inputs, output))
            break


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
