"""What the tests of known faults share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triton.language as tl

ROOT = Path(__file__).resolve().parents[2]

WATCHED = (tl, tl.tensor, tl.core, tl.math, tl.standard)


def snapshot(*objects: Any) -> list[dict[str, Any]]:
    """The attribute dictionaries of `objects`, copied, so that identities can be compared later."""
    return [dict(vars(o)) for o in objects]


def changed(before: list[dict[str, Any]], *objects: Any) -> list[str]:
    """The names whose object is another one than in `before`, that came, or that went."""
    out = []
    for old, current in zip(before, objects, strict=True):
        new = dict(vars(current))
        missing = object()
        out += [name for name in {**old, **new} if old.get(name, missing) is not new.get(name, missing)]
    return out


@contextmanager
def watching(*objects: Any) -> Iterator[list[str]]:
    """Compares from another thread, over and over, what `objects` hold; the list it gives gets the names that changed."""
    before = snapshot(*objects)
    seen: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.001):
            seen.extend(changed(before, *objects))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
        seen.extend(changed(before, *objects))


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """Runs all at once, each on a thread of its own that starts when all are ready; the first error is raised."""
    barrier = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = functions[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def in_subprocess(source: Path, *arguments: str, **environment: str) -> str:
    """Runs a script in a process of its own, with `arguments`, and `environment` on top of ours; returns what it printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, str(source), *arguments]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    return run.stdout
