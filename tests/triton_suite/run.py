"""``make triton-tests TRITON_SRC=path``: Triton's language tests in both modes, and a table of what they came to."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.triton_suite import listed, page
from tests.triton_suite.processes import Outcome, Runner

LANGUAGE = (
    "core standard random block_pointer tensor_descriptor conversions libdevice mxfp tuple annotations decorator frontend "
    "compile_errors compile_only subprocess line_info matmul pipeliner warp_specialization reproducer module"
)
RUNTIME = "launch autotuner autotune_listener specialize cache bindings subproc no_torch_dispatch compilation_listener"
FILES = [f"unit/language/test_{name}.py" for name in LANGUAGE.split()]
FILES += [f"unit/runtime/test_{name}.py" for name in RUNTIME.split()]
PASSES = ("passed", "xpassed")


@dataclass
class Row:
    """One file's counts. `fails` are tests that pass with the interpreter, do not pass in ours, and are not listed."""

    file: str
    tests: int = 0
    interpreter: int = 0
    ours: int = 0
    listed: int = 0
    fails: int = 0
    more: int = 0
    interpreter_seconds: float = 0.0
    our_seconds: float = 0.0


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    options.results.mkdir(parents=True, exist_ok=True)
    runner = Runner(options.source.resolve(), options.results.resolve(), options.limit, options.as_gpu)
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    files = [file for file in FILES if _chosen(file, options.files) and (runner.tests / file).exists()]
    if not files:
        raise SystemExit(f"no test files of Triton's below {runner.tests}")
    collected = runner.collect(files)
    uncollected = sorted(file.removeprefix("unit/") for file in set(files) - {test.split("::", 1)[0] for test in collected})
    if uncollected:
        console.print(f"not collected (see {runner.folder / 'collect.log'}): {', '.join(uncollected)}", soft_wrap=True)
    ids = [test for test in collected if fnmatch.fnmatchcase(test, options.tests.replace("[", "[[]"))]
    ids = ids[:: options.every]
    console.print(f"{len(ids)} tests of {len(files)} files")

    with Progress(console=console) as progress:

        def run(mode: str, wanted: list[str]) -> dict[str, Outcome]:
            task = progress.add_task(mode, total=len(wanted))
            return runner.run(mode, wanted, options.jobs, lambda count: progress.advance(task, count))

        if options.ours_first:
            return _ours_first(console, runner, ids, run, options)
        known = {} if options.fresh else runner.results("interpreter")
        interpreter = run("interpreter", [test for test in ids if test not in known])
        # Fewer than asked for only when it was told to stop.
        ids = [test for test in ids if test in interpreter]
        mine = ids if options.all else [test for test in ids if interpreter[test].outcome in PASSES]
        results: dict[str, dict[str, Outcome]] = {}
        for engine in options.engine:
            known = {} if options.fresh else runner.results(mode_of(engine))
            wanted = mine
            if options.rerun == "failed":
                wanted = [test for test in mine if test not in known or known[test].outcome not in PASSES]
            elif options.rerun == "none":
                wanted = [test for test in mine if test not in known]
            results[engine] = run(mode_of(engine), wanted)

    entries = listed.read()
    counted = {engine: count(ids, interpreter, ours, entries, engine) for engine, ours in results.items()}
    columns, table = engines_table({engine: rows for engine, (rows, _) in counted.items()})
    for number, (engine, (_, failing)) in enumerate(counted.items()):
        _print(console, (columns, table) if number == 0 else None, failing, results[engine], options.show)
    if options.write is not None:
        page.write(options.write, page.section(markdown(columns, table), uncollected, entries))
    return 1 if any(failing for _, failing in counted.values()) else 0


def mode_of(engine: str) -> str:
    """The name under which results of an engine of ours are kept."""
    return "ours" if engine == "ir" else f"ours-{engine}"


def _ours_first(
    console: Console, runner: Runner, ids: list[str], run: Callable[[str, list[str]], dict[str, Outcome]], options: Any
) -> int:
    """The failures without the table, for less: the interpreter runs only what does not pass here."""
    mode = mode_of(options.engine[0])
    known = {} if options.rerun == "all" else runner.results(mode)
    ours = run(mode, [test for test in ids if test not in known or known[test].outcome not in PASSES])
    known = {} if options.fresh else runner.results("interpreter")
    failing = [test for test in ids if test in ours and ours[test].outcome not in (*PASSES, "skipped", "xfailed")]
    interpreter = run("interpreter", [] if options.as_gpu else [test for test in failing if test not in known])
    if not options.as_gpu:
        failing = [test for test in failing if test in interpreter and interpreter[test].outcome in PASSES]
    entries = listed.read()
    failing = [test for test in failing if not listed.find(entries, "differs", test.removeprefix("unit/"), options.engine[0])]
    _print(console, None, failing, ours, options.show)
    return 1 if failing else 0


def count(
    ids: list[str], interpreter: dict[str, Outcome], ours: dict[str, Outcome], entries: list[listed.Entry], engine: str
) -> tuple[list[Row], list[str]]:
    """A row for each file, and the tests that fail with no listed reason."""
    rows: dict[str, Row] = {}
    failing: list[str] = []
    for test in ids:
        file = test.split("::", 1)[0].removeprefix("unit/")
        row = rows.setdefault(file, Row(file))
        row.tests += 1
        mine = ours.get(test)
        good = mine is not None and mine.outcome in PASSES
        if interpreter[test].outcome not in PASSES:
            row.more += good
            continue
        row.interpreter += 1
        row.interpreter_seconds += interpreter[test].seconds
        row.our_seconds += mine.seconds if mine else 0.0
        if good:
            row.ours += 1
        elif listed.find(entries, "differs", test.removeprefix("unit/"), engine):
            row.listed += 1
        else:
            row.fails += 1
            failing.append(test)
    return list(rows.values()), failing


COLUMNS = ("file", "tests", "interpreter passes", "of these ours", "listed", "fail", "ours only", "interpreter s", "ours s")


def _cells(row: Row) -> list[str]:
    numbers = (row.tests, row.interpreter, row.ours, row.listed, row.fails, row.more)
    return [row.file, *map(str, numbers), f"{row.interpreter_seconds:.0f}", f"{row.our_seconds:.0f}"]


def _total(rows: list[Row]) -> Row:
    total = Row("all")
    for row in rows:
        for name in ("tests", "interpreter", "ours", "listed", "fails", "more", "interpreter_seconds", "our_seconds"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
    return total


def engines_table(rows: dict[str, list[Row]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """(columns, lines of cells, the last one being the sum) of the rows of each engine: one table for all of them."""
    if len(rows) == 1:
        (only,) = rows.values()
        return COLUMNS, [_cells(row) for row in [*only, _total(only)]]
    columns = ["file", "tests", "interpreter passes", "interpreter s"]
    for engine in rows:
        columns += [f"{engine} passes", f"{engine} listed", f"{engine} fail", f"{engine} s"]
    lines = []
    for of_engines in zip(*([*own, _total(own)] for own in rows.values())):
        first = of_engines[0]
        line = [first.file, str(first.tests), str(first.interpreter), f"{first.interpreter_seconds:.0f}"]
        for row in of_engines:
            line += [str(row.ours), str(row.listed), str(row.fails), f"{row.our_seconds:.0f}"]
        lines.append(line)
    return tuple(columns), lines


def markdown(columns: tuple[str, ...], table: list[list[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "| --- " + "| ---: " * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in table]
    return "\n".join(lines) + "\n"


def _print(console: Console, counted: Any, failing: list[str], ours: dict[str, Outcome], show: int) -> None:
    if counted is not None:
        columns, (*lines, total) = counted
        table = Table(*columns)
        for line in lines:
            table.add_row(*line)
        table.add_section()
        table.add_row(*total)
        console.print(table)
    groups: dict[str, list[str]] = defaultdict(list)
    for test in failing:
        groups[test.split("[", 1)[0]].append(test)
    for function, tests in groups.items():
        outcomes = Counter(ours[test].outcome if test in ours else "not run" for test in tests)
        console.print(f"{function}: {dict(outcomes)}", markup=False)
        for test in tests[:show]:
            mine = ours.get(test, Outcome("not run"))
            message = " ".join(mine.message.split())[:700]
            console.print(f"    {test.removeprefix(function)} {message}", markup=False, soft_wrap=True)


def _engines(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ("ir", "python", "auto"):
            raise argparse.ArgumentTypeError(f"unknown engine {name!r}; the engines are ir, python, auto")
    return names


def _chosen(file: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(file, f"*{pattern}*") for pattern in patterns)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="a checkout of Triton (its python/test is what is used)")
    parser.add_argument("--results", type=Path, default=Path(".triton-suite"), help="what is known from earlier runs")
    parser.add_argument("--engine", type=_engines, default=["ir"], help="ir, python, auto, or several with commas between")
    parser.add_argument("--files", nargs="*", default=[], help="only files whose path contains one of these")
    parser.add_argument("--tests", default="*", help="only tests whose id matches this glob")
    parser.add_argument("--every", type=int, default=1, help="only every n-th test")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one test may take")
    parser.add_argument("--fresh", action="store_true", help="do not use the interpreter's results of earlier runs")
    parser.add_argument("--rerun", choices=["all", "failed", "none"], default="all", help="which of our known results to replace")
    parser.add_argument("--all", action="store_true", help="also run here what does not pass with the interpreter")
    parser.add_argument("--ours-first", action="store_true", help="no table: the interpreter runs only what fails here")
    parser.add_argument("--as-gpu", action="store_true", help="tests take a GPU's way wherever they choose")
    parser.add_argument("--show", type=int, default=2, help="failures to show of each test function")
    parser.add_argument("--write", type=Path, help="write the table into this page, between its marks")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
