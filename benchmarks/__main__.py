"""``python -m benchmarks``: ours against TRITON_INTERPRET=1, then what sessions and their wrappers cost."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.overheads import measure_overheads
from benchmarks.peers import ROOT, Measurement, geometric_mean, take_turns
from benchmarks.worker import PEERS
from benchmarks.workloads import WORKLOADS

LOG = sys.stderr


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--iterations", type=int, default=20, help="measured calls of each peer (default 20, after one warm-up)")
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds for one peer on one workload, past which it is measured less often"
    )
    parser.add_argument("--full", action="store_true", help="no budget: every peer is measured in every round")
    parser.add_argument("--quick", action="store_true", help="5 calls and a budget of 15 s: a look, not a result")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="workloads whose name holds TEXT")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--no-overheads", action="store_true", help="leave out what sessions cost")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "latest.json")
    options = parser.parse_args(arguments)
    if options.quick:
        options.iterations, options.budget = 5, 15.0
    if options.full:
        options.budget = 0.0
    return options


def row(name: str, results: list[Measurement], iterations: int) -> tuple[list[str], dict[str, float]]:
    """The table's cells, and each of our peers' speed over the interpreter's."""
    base = next((r for r in results if r.peer == "interpreter" and r.times), None)
    cells, ratios = [name], {}
    for result in results:
        if result.error or result.wrong:
            cells.append("failed" if result.error else "wrong")
            continue
        note = f" (n={len(result.times)})" if len(result.times) < iterations else ""
        text = seconds(result.median) + note
        if base is not None and result is not base:
            ratios[result.peer] = base.median / result.median
            text += f"  {ratios[result.peer]:.0f}x"
        cells.append(text)
    for result in results:
        if result.peer == "interpreter":
            continue
        limit = 3 * result.input_bytes + 200e6
        within = "" if result.above_imports <= limit else " !"
        cells.append("-" if result.error else f"{result.above_imports / 1e6:.0f} MB{within}")
    return cells, ratios


def main() -> int:
    options = parse()
    chosen = [w for w in WORKLOADS if not options.only or any(text in w.name for text in options.only)]
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(
        title=f"median of up to {options.iterations} calls; speed over the interpreter's; memory above imports (! = too much)"
    )
    table.add_column("workload")
    for peer in options.peers:
        table.add_column(peer, justify="right")
    for peer in options.peers:
        if peer != "interpreter":
            table.add_column(f"{peer} memory", justify="right")
    collected: dict[str, list[float]] = {}
    report: dict[str, Any] = {"machine": platform.platform(), "python": platform.python_version(), "workloads": {}}
    report |= {name: version(name) for name in ("torch", "triton", "numpy")}
    report |= {
        "iterations": options.iterations,
        "budget_s": options.budget,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    failed = False
    for workload in chosen:
        print(f"{workload.name} ...", file=LOG, flush=True)
        results = take_turns(
            [(peer, ROOT) for peer in options.peers], options.peers, workload.name, options.iterations, options.budget
        )
        for result in results:
            if result.error or result.wrong:
                failed = True
                print(f"  {result.peer}: {result.error or result.wrong}", file=LOG, flush=True)
        cells, ratios = row(workload.name, results, options.iterations)
        table.add_row(*cells)
        for peer, ratio in ratios.items():
            collected.setdefault(peer, []).append(ratio)
        report["workloads"][workload.name] = {"peers": [r.to_dict() for r in results], "speedup": ratios}
    console.print(table)
    report["geometric_mean"] = {peer: geometric_mean(values) for peer, values in collected.items()}
    report["least"] = {peer: min(values) for peer, values in collected.items()}
    for peer, values in collected.items():
        missing = len(chosen) - len(values)
        note = f" ({missing} of {len(chosen)} workloads missing)" if missing else ""
        console.print(
            f"{peer}: geometric mean {geometric_mean(values):.1f}x, least {min(values):.1f}x the interpreter's speed{note}"
        )
    if not options.no_overheads:
        report["overheads"] = overheads = measure_overheads()
        for line in overheads["lines"]:
            console.print(line)
        failed = failed or bool(overheads["errors"])
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"JSON: {options.json}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
