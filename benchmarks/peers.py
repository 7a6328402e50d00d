"""Starts workers and talks to them; the rounds in which peers take turns; statistics."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent


class WorkerError(RuntimeError):
    """A worker ended before it answered; the message carries the end of what it wrote to stderr."""


class Worker:
    """A running `benchmarks.worker` process. Making one starts it; `warm_up` waits for its first answer.

    `library` is a folder that holds the `tritontrace` package to measure (default: this checkout's).
    """

    def __init__(self, peer: str, workload: str, library: Path = ROOT) -> None:
        self.peer = peer
        env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        env.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
        # The working directory is `library` too, and off the path where Python can do that: `library` decides what is imported.
        env["PYTHONPATH"] = os.pathsep.join([str(library), str(ROOT)])
        env["PYTHONSAFEPATH"] = "1"
        if peer == "interpreter":
            env["TRITON_INTERPRET"] = "1"
        # A file, not a pipe: nobody reads it while the worker runs, and a full pipe would stop the worker.
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  open as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", peer, workload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=env,
            cwd=library,
        )

    def warm_up(self) -> dict[str, Any]:
        """Seconds of the first call, and the size of the inputs."""
        return self._answer()

    def run(self) -> float:
        """Seconds of one more call."""
        self._ask("run")
        return float(self._answer()["seconds"])

    def check(self) -> dict[str, Any]:
        """The peak of the memory so far, and what is wrong with the last output (None if nothing is); ends the worker."""
        self._ask("check")
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def _ask(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._stderr.seek(0)
            raise WorkerError(f"{self.peer} ended with {self._process.returncode}:\n{self._stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Measurement:
    """What one peer did on one workload; `times` are the measured calls in seconds."""

    peer: str
    warm_up: float = 0.0
    times: list[float] = field(default_factory=list)
    above_imports: int = 0
    input_bytes: int = 0
    wrong: str | None = None
    error: str | None = None

    @property
    def median(self) -> float:
        return median(self.times) if self.times else math.nan

    def to_dict(self) -> dict[str, Any]:
        return {
            "peer": self.peer,
            "warm_up_s": self.warm_up,
            "times_s": self.times,
            "median_s": None if not self.times else self.median,
            "min_s": min(self.times, default=None),
            "peak_bytes_above_imports": self.above_imports,
            "input_bytes": self.input_bytes,
            "wrong": self.wrong,
            "error": self.error,
        }


def take_turns(
    peers: Sequence[tuple[str, Path]], labels: Sequence[str], workload: str, iterations: int, budget: float
) -> list[Measurement]:
    """Measures `workload` on each peer, one call of each in turn, in an order that alternates from round to round.

    A peer whose first measured call says that `iterations` of them would take more than `budget` seconds is measured in
    fewer rounds, spread evenly over the run, but at least in three.
    """
    results = [Measurement(label) for label in labels]
    workers: dict[int, Worker] = {}
    try:
        # Started one after the other: imports would slow each other down.
        for index, ((peer, library), result) in enumerate(zip(peers, results, strict=True)):
            workers[index] = Worker(peer, workload, library)
            first = _guarded(workers, index, result, Worker.warm_up)
            if first is not None:
                result.warm_up, result.input_bytes = first["seconds"], first["input_bytes"]
        strides = [1] * len(results)
        for turn in range(iterations):
            if turn == 1:  # by a measured call: the warm-up also compiles
                strides = [_stride(result.times[0], iterations, budget) if result.times else 1 for result in results]
            order = list(workers) if turn % 2 == 0 else list(reversed(workers))
            for index in order:
                if turn % strides[index] == 0:
                    elapsed = _guarded(workers, index, results[index], Worker.run)
                    if elapsed is not None:
                        results[index].times.append(elapsed)
        for index in list(workers):
            last = _guarded(workers, index, results[index], Worker.check)
            if last is not None:
                results[index].wrong, results[index].above_imports = last["wrong"], last["above_imports"]
    finally:
        for worker in workers.values():
            worker.close()
    return results


def _guarded(workers: dict[int, Worker], index: int, result: Measurement, ask: Callable[[Worker], T]) -> T | None:
    """Asks a worker; one that has died is noted in its result, taken out, and answers None."""
    try:
        return ask(workers[index])
    except (WorkerError, BrokenPipeError) as error:
        result.error = str(error)
        workers.pop(index).close()
        return None


def _stride(seconds: float, iterations: int, budget: float) -> int:
    """Every how many rounds a peer takes part."""
    if not budget:
        return 1
    return max(1, min(math.ceil(iterations * seconds / budget), iterations // 3))


def geometric_mean(values: Sequence[float]) -> float:
    """NaN for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
