"""``python -m benchmarks.compare REV1 REV2``: two commits of tritontrace on the same inputs, in alternating rounds.

Each commit's package is checked out into a worktree; the workloads and this harness are the current checkout's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers import ROOT, Measurement, geometric_mean, take_turns
from benchmarks.worker import PEERS
from benchmarks.workloads import WORKLOADS


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def library_at(revision: str) -> Iterator[Path]:
    """A folder that holds nothing but `revision`'s tritontrace package."""
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="tritontrace-bench-") as folder:
        tree, library = Path(folder, "tree"), Path(folder, "library")
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            library.mkdir()
            (library / "tritontrace").symlink_to(tree / "tritontrace", target_is_directory=True)
            yield library
        finally:
            _git("worktree", "remove", "--force", str(tree))


def spread(result: Measurement) -> str:
    """Half the distance of the quartiles, relative to the median."""
    if len(result.times) < 4:
        return ""
    low, _, high = quantiles(result.times, n=4)
    return f" ±{(high - low) / 2 / result.median * 100:.0f}%"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("revisions", nargs=2, metavar="REV")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="5 calls: a look, not a result")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="workloads whose name holds TEXT")
    parser.add_argument("--peer", choices=[p for p in PEERS if p != "interpreter"], default="tracer")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "compare.json")
    options = parser.parse_args()
    iterations = 5 if options.quick else options.iterations
    chosen = [w for w in WORKLOADS if not options.only or any(text in w.name for text in options.only)]
    old, new = options.revisions
    table = Table(title=f"{options.peer}, median of {iterations} calls in alternating rounds (± half the quartile distance)")
    for heading in ("workload", old, new, "new / old"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    ratios: list[float] = []
    report: dict[str, Any] = {"revisions": [_git("rev-parse", r) for r in options.revisions], "workloads": {}}
    failed = False
    with library_at(old) as first, library_at(new) as second:
        for workload in chosen:
            print(f"{workload.name} ...", file=sys.stderr, flush=True)
            libraries = [(options.peer, first), (options.peer, second)]
            results = take_turns(libraries, [f"old {old}", f"new {new}"], workload.name, iterations, 0.0)
            report["workloads"][workload.name] = [r.to_dict() for r in results]
            cells = [workload.name]
            for result in results:
                if result.error or result.wrong:
                    failed = True
                    print(f"  {result.peer}: {result.error or result.wrong}", file=sys.stderr, flush=True)
                    cells.append("failed" if result.error else "wrong")
                else:
                    cells.append(f"{result.median * 1e3:.2f} ms{spread(result)}")
            if all(r.times and not r.wrong for r in results):
                ratios.append(results[1].median / results[0].median)
                cells.append(f"{ratios[-1]:.3f}")
            else:
                cells.append("-")
            table.add_row(*cells)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(f"geometric mean of new / old: {geometric_mean(ratios):.3f} (below 1 is faster)")
    report["geometric_mean"] = geometric_mean(ratios) if ratios else None
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
