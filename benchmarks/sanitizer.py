"""``python -m benchmarks.sanitizer``: ours against triton-viz's sanitizer, and what our clients cost together.

Writes `docs/benchmarks.md`'s section on it and `benchmarks/results/sanitizer.json`. triton-viz runs in an environment of its
own (``make bench-sanitizer`` makes it), because no version of Triton suits all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers import ROOT, geometric_mean
from benchmarks.sanitizer_kernels import CASES, Sanitized
from benchmarks.together import SINGLES
from benchmarks.workloads import WORKLOADS

BEGIN, END = "<!-- sanitizer: made by python -m benchmarks.sanitizer -->", "<!-- sanitizer: end -->"
_NAMES = ("triton-viz", "triton", "torch")
_VERSIONS = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {_NAMES}}}))"


def ask(python: str, module: str, *words: str, timeout: float, fake: bool = False) -> dict[str, Any]:
    """The JSON that a worker prints, or {"error": why there is none}."""
    env = {key: value for key, value in os.environ.items() if key not in ("TRITON_INTERPRET", "SANITIZER_ENABLE_FAKE_TENSOR")}
    env |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {"PYTHONPATH": str(ROOT)}
    if fake:
        env["SANITIZER_ENABLE_FAKE_TENSOR"] = "1"
    command = [python, "-m", module, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {timeout:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"error": said[-1][:200]}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def shown(seconds: float) -> str:
    """A time with a unit that suits it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def noise() -> dict[str, float]:
    """What the machine does to a fixed piece of work: median and spread of 200 turns, and the load at the time."""
    times = []
    for _ in range(200):
        start = time.perf_counter()
        sum(range(20000))
        times.append(time.perf_counter() - start)
    times.sort()
    return {"median_s": times[100], "p5_s": times[10], "p95_s": times[190], "load": os.getloadavg()[0]}


def against(case: Sanitized, options: argparse.Namespace) -> dict[str, Any]:
    """All peers on one launch, one process after the other."""
    out: dict[str, Any] = {"target": case.target}
    worker = "benchmarks.sanitizer_worker"
    for peer in ("triton-viz", "triton-viz-fake", "dry", "beside"):
        if peer == "beside" and not case.beside:
            out[peer] = {"error": "not run: executing takes minutes"}
            continue
        python = options.viz if peer.startswith("triton-viz") else sys.executable
        fake = peer == "triton-viz-fake"
        out[peer] = ask(python, worker, peer, case.name, str(options.seconds), timeout=options.timeout, fake=fake)
        print(f"  {peer}: {summary(out[peer])}", file=sys.stderr, flush=True)
    viz = [median(out[peer]["times_s"]) for peer in ("triton-viz", "triton-viz-fake") if "times_s" in out[peer]]
    for peer in ("dry", "beside"):
        if viz and "times_s" in out[peer]:
            out[peer]["ratio"] = min(viz) / median(out[peer]["times_s"])
    return out


def summary(answer: dict[str, Any]) -> str:
    """One peer's cell of the table."""
    if "times_s" not in answer:
        return str(answer.get("error", "-")).replace("|", "/")
    times = answer["times_s"]
    text = f"{shown(median(times))} ({shown(min(times))} to {shown(max(times))}, n={len(times)})"
    if answer["findings"]:
        text += f"; {answer['findings']} false findings"
    return text if answer["finds_planted_fault"] else text + "; misses the planted fault"


def table(report: dict[str, Any]) -> list[str]:
    """The section of docs/benchmarks.md."""
    versions, before, after = report["viz_versions"], report["noise"][0], report["noise"][1]
    out = [
        "## The sanitizer against triton-viz's, and clients together",
        "",
        f"`make bench-sanitizer`, {report['time']}, Python {platform.python_version()}. Ours: triton {version('triton')}, torch "
        f"{version('torch')}, numpy {version('numpy')}. triton-viz {versions.get('triton-viz', '?')} (from PyPI) with triton "
        f"{versions.get('triton', '?')} (it lacks what later versions took out), torch {versions.get('torch', '?')}.",
        "",
        "Each peer runs each launch in a process of its own, one thread, one process at a time, same kernels, sizes and real CPU "
        "tensors. The first launch in a process is of another size and builds; only later ones are measured, every one from "
        "scratch (a fresh session; triton-viz's memory of earlier launches emptied). `dry` is `Sanitizer(dry_run=True)`, "
        "`beside` is `Sanitizer()` beside the executing launch; triton-viz executes nothing. Medians, with the range. The "
        "ratio is to the faster of triton-viz's two modes. "
        "In every process a fault is planted once (a tensor one element short), and a clean "
        "launch must give no finding; the cells say where a tool fails that.",
        "",
        f"Noise of the machine: a fixed loop of Python took {shown(before['median_s'])} (5% to 95%: {shown(before['p5_s'])} to "
        f"{shown(before['p95_s'])}) at the start and {shown(after['median_s'])} ({shown(after['p5_s'])} to "
        f"{shown(after['p95_s'])}) at the end; load average {before['load']:.1f} and {after['load']:.1f} on "
        f"{os.cpu_count()} cores.",
        "",
        "| launch | triton-viz | triton-viz, fake tensors | dry | beside | ratio, dry | ratio, beside | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name, case in report["cases"].items():
        cells = [summary(case[peer]) for peer in ("triton-viz", "triton-viz-fake", "dry", "beside")]
        for peer in ("dry", "beside"):
            ratio = case[peer].get("ratio")
            cells.append("-" if ratio is None else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x")
        if "ratio" in case["dry"]:
            ratios.append(case["dry"]["ratio"])
        out.append(f"| {name} | {' | '.join(cells)} | {case['target']:.0f}x |")
    out.append(f"| geometric mean | | | | | {geometric_mean(ratios):.0f}x | | |")
    out += ["", *_own(report), "", *_together(report)]
    return out


def _own(report: dict[str, Any]) -> list[str]:
    first = report["first"]
    if "error" in first:
        return [f"First check: {first['error']}"]
    out = [
        "The first check of matmul 4096^3, on tensors of the meta device, in a process where the same program was launched once "
        "with 512^3 (so that building it is no part): median "
        f"{shown(median(first['first_s']))} of {len(first['first_s'])} processes ({shown(min(first['first_s']))} to "
        f"{shown(max(first['first_s']))}), of processor time {shown(median(first['first_cpu_s']))}; "
        "target 10 ms. An identical dry launch again: median "
        f"{shown(median(first['repeated_s']))}, least {shown(min(first['repeated_s']))}, of "
        f"{len(first['repeated_s'])}; target 50 us.",
        "",
        "Memory of one dry vector addition, by grid:",
        "",
        "| programs | peak of Python and numpy | resident set's high-water mark | seconds |",
        "|---|---|---|---|",
    ]
    for grid in report["memory"].get("grids", []):
        out.append(
            f"| {grid['programs']} | {grid['peak_bytes'] / 1e6:.1f} MB | {grid['resident_bytes'] / 1e6:.0f} MB | "
            f"{shown(grid['seconds'])} |"
        )
    return out


_TOGETHER = "Sanitizer, race detector, profiler and tracer (summary) together"


def _together(report: dict[str, Any]) -> list[str]:
    out = [
        f"{_TOGETHER}, on the workloads of `make bench`, against a session "
        "without clients, in turns (target: at most 2x); and race detection alone (target: under 1 s):",
        "",
        "| launch | engine alone | all four | ratio | |",
        "|---|---|---|---|---|",
    ]
    for name, found in report["together"].items():
        missing = f"without {', '.join(found['missing'])}" if found.get("missing") else ""
        if "engine_s" in found:
            engine, clients = median(found["engine_s"]), median(found["clients_s"])
            out.append(f"| {name} | {shown(engine)} | {shown(clients)} | {clients / engine:.2f}x | {missing} |")
        elif "times_s" in found:
            form = "dry" if found["dry"] else "beside execution"
            findings = f"{form}, {found['findings']} findings"
            out.append(f"| {name} | | {shown(median(found['times_s']))} | | {findings} |")
        else:
            out.append(f"| {name} | | | | {found.get('error', missing)} |")
    return out


def write_section(lines: list[str], path: Path) -> None:
    """Puts the section in its place in the page, or at its end."""
    text = path.read_text()
    section = "\n".join([BEGIN, *lines, END])
    if BEGIN in text:
        head, rest = text.split(BEGIN, 1)
        text = head + section + rest.split(END, 1)[1]
    else:
        text = text.rstrip("\n") + "\n\n" + section + "\n"
    path.write_text(text)


def together(options: argparse.Namespace) -> dict[str, Any]:
    """The answers of `together.py`, by workload."""
    found = {}
    for name in [*(w.name for w in WORKLOADS), *SINGLES]:
        print(name, file=sys.stderr, flush=True)
        found[name] = ask(sys.executable, "benchmarks.together", name, str(options.seconds), timeout=options.timeout)
    return found


def replace_together(page: Path, options: argparse.Namespace) -> None:
    """Measures what clients cost together anew, and puts it in the place of the table that the page has."""
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    report = {"together": together(options)}
    load = f"Measured {date} (`--only-together`), load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores."
    lines = [*_together(report), "", load]
    head, rest = page.read_text().split(_TOGETHER, 1)
    page.write_text(head + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanitizer", description=__doc__)
    parser.add_argument("--viz", default=str(ROOT / ".venv-triton-viz" / "bin" / "python"), help="Python that has triton-viz")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured launches of one peer take about so long")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one peer on one launch, all in all")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="launches whose name holds TEXT")
    parser.add_argument("--no-together", action="store_true", help="leave out what clients cost together")
    parser.add_argument("--only-together", action="store_true", help="measure that alone, and put it in the page")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "sanitizer.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    if options.only_together:
        replace_together(options.page, options)
        return 0
    report: dict[str, Any] = {"time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "noise": [noise()], "cases": {}}
    asked = subprocess.run([options.viz, "-c", _VERSIONS], capture_output=True, text=True)
    report["viz_versions"] = json.loads(asked.stdout) if asked.returncode == 0 else {}
    if asked.returncode:
        print(f"no triton-viz at {options.viz}", file=sys.stderr)
    for case in CASES:
        if not options.only or any(text in case.name for text in options.only):
            print(case.name, file=sys.stderr, flush=True)
            report["cases"][case.name] = against(case, options)
    worker = "benchmarks.sanitizer_worker"
    firsts = [ask(sys.executable, worker, "first", CASES[0].name, "0", timeout=options.timeout) for _ in range(7)]
    good = [answer for answer in firsts if "error" not in answer]
    report["first"] = firsts[0] if not good else {
        "first_s": [answer["first_s"] for answer in good],
        "first_cpu_s": [answer["first_cpu_s"] for answer in good],
        "repeated_s": [t for answer in good for t in answer["repeated_s"]],
    }  # fmt: skip
    report["memory"] = ask(sys.executable, worker, "memory", "-", "0", timeout=options.timeout)
    report["together"] = {}
    if not options.no_together:
        report["together"] = together(options)
    report["noise"].append(noise())
    lines = table(report)
    sys.stdout.write("\n".join(lines) + "\n")
    if "repeated_s" in report["first"]:
        report["first"]["repeated_s"] = sorted(report["first"]["repeated_s"])[:: max(1, len(report["first"]["repeated_s"]) // 20)]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    if not options.only:
        write_section(lines, options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
