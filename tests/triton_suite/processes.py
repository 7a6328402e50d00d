"""Running chosen tests of the checkout in processes of their own, with what each came to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PLUGIN = "tests.triton_suite.plugin"


@dataclass(frozen=True)
class Outcome:
    """What one test came to: passed, failed, skipped, xfailed, xpassed, crashed (took the process along) or hung."""

    outcome: str
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Runner:
    """Where the tests are, and how long one may take."""

    source: Path
    folder: Path
    limit: float = 120.0
    as_gpu: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End all processes of running `run` calls, keeping what was recorded so far."""
        self.stopping.set()

    @property
    def tests(self) -> Path:
        return self.source / "python" / "test"

    def collect(self, files: Iterable[str]) -> list[str]:
        """The ids of all tests in `files` (relative to ``python/test``)."""
        out = self.folder / "collected.txt"
        out.unlink(missing_ok=True)
        log = self.folder / "collect.log"
        self._pytest("interpreter", list(files), "--collect-only", f"--suite-collect={out}", log=log).wait()
        if not out.exists():
            raise SystemExit(f"pytest could not collect the tests; see {log}")
        return out.read_text().splitlines()

    def run(
        self, mode: str, ids: list[str], jobs: int, progress: Callable[[int], None], chunk: int = 300
    ) -> dict[str, Outcome]:
        """Run `ids`; results also go to ``<folder>/<mode>.jsonl`` as they come, so that an interrupted run can be continued."""
        chunks: list[list[str]] = []
        for test in ids:
            if not chunks or len(chunks[-1]) >= chunk or _file(chunks[-1][0]) != _file(test):
                chunks.append([])
            chunks[-1].append(test)
        with ThreadPoolExecutor(jobs) as pool:
            for _ in pool.map(lambda numbered: self._run_chunk(mode, numbered[0], numbered[1], progress), enumerate(chunks)):
                pass
        return self.results(mode)

    def results(self, mode: str) -> dict[str, Outcome]:
        """What earlier and this run wrote about each test, the newest last."""
        found: dict[str, Outcome] = {}
        for line in self._lines(self.folder / f"{mode}.jsonl"):
            found[line["id"]] = Outcome(line["outcome"], line.get("seconds", 0.0), line.get("message", ""))
        return found

    def _run_chunk(self, mode: str, number: int, ids: list[str], progress: Callable[[int], None]) -> None:
        left, attempt = ids, 0
        while left and not self.stopping.is_set():
            attempt += 1
            stem = self.folder / f"{mode}-{os.getpid()}-{threading.get_ident()}-{number}-{attempt}"
            ids_file, record, log = stem.with_suffix(".ids"), stem.with_suffix(".part"), stem.with_suffix(".log")
            ids_file.write_text("\n".join(left) + "\n")
            process = self._pytest(mode, [_file(left[0])], f"--suite-ids={ids_file}", f"--suite-record={record}", log=log)
            hung = self._watch(process, record)
            ended: dict[str, dict[str, object]] = {}
            for line in self._lines(record):
                if line["outcome"] == "started":
                    if self.stopping.is_set():
                        continue
                    how = f"the process ended: {process.returncode}"
                    ended[line["id"]] = {"id": line["id"], "outcome": "hung" if hung else "crashed", "message": how}
                else:
                    ended[line["id"]] = line
            if not ended and not self.stopping.is_set():
                message = " ".join(log.read_text().split())[-600:]
                ended = {test: {"id": test, "outcome": "crashed", "message": message} for test in left}
            with _APPEND, (self.folder / f"{mode}.jsonl").open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in ended.values())
            progress(len(ended))
            if self.stopping.is_set() or all(line["outcome"] not in ("hung", "crashed") for line in ended.values()):
                for path in (ids_file, record, log):
                    path.unlink(missing_ok=True)
                missing = [test for test in left if test not in ended]
                assert self.stopping.is_set() or not missing, f"pytest did not run {missing[:3]}"
            left = [test for test in left if test not in ended]

    def _watch(self, process: subprocess.Popen[bytes], record: Path) -> bool:
        """Wait for the end; kill it when nothing was recorded for much longer than one test may take. True if killed."""
        size, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = record.stat().st_size if record.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif self.stopping.is_set() or time.monotonic() - since > 2 * self.limit + 120:
                process.kill()
                process.wait()
                return True
        return False

    def _pytest(self, mode: str, files: list[str], *options: str, log: Path) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        if mode == "interpreter":
            environment["TRITON_INTERPRET"] = "1"
        # Only this repository: the checkout's own python/triton must never be what is imported.
        environment["PYTHONPATH"] = str(REPOSITORY)
        environment["OMP_NUM_THREADS"] = "1"
        environment["TRITON_CACHE_DIR"] = str(self.folder / "cache")
        root = [f"--rootdir={self.tests}", f"--confcutdir={self.tests}", "-c", os.devnull, "-p", "no:cacheprovider"]
        quiet = ["-q", "--no-header", "--tb=short", "-W", "ignore", "--device=cpu", f"--suite-limit={self.limit}"]
        if self.as_gpu and mode.startswith("ours"):
            options = (*options, "--suite-as-gpu")
        command = [sys.executable, "-m", "pytest", *root, *quiet, "-p", PLUGIN, f"--suite-mode={mode}", *options, *files]
        with log.open("wb") as out:
            return subprocess.Popen(command, cwd=self.tests, env=environment, stdout=out, stderr=subprocess.STDOUT)

    @staticmethod
    def _lines(path: Path) -> list[dict[str, object]]:
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


_APPEND = threading.Lock()


def _file(test: str) -> str:
    return test.split("::", 1)[0]
