"""Coverage: what `coverage report` says of kernels."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tritontrace import Coverage

coverage = pytest.importorskip("coverage")
FILE = Path(__file__).with_name("covered_kernels.py")
SOURCE = FILE.read_text().splitlines()
RAN = {n for n, line in enumerate(SOURCE, 1) if line.endswith("# ran")}
MISSED = {n for n, line in enumerate(SOURCE, 1) if line.endswith("# missed")}

spec = importlib.util.spec_from_file_location("covered_kernels", FILE)
assert spec is not None and spec.loader is not None
covered = importlib.util.module_from_spec(spec)
spec.loader.exec_module(covered)


def line(text: str) -> int:
    return next(n for n, found in enumerate(SOURCE, 1) if found.strip().startswith(text))


def launch(client: Coverage, n: int = 40, flag: bool = True) -> tritontrace.Session:
    with tritontrace.session([client]) as session:
        covered.kernel[(4,)](torch.zeros(64), n, flag, BLOCK=16)
    return session


def reported(data: Path, *options: str) -> dict:
    out = data.with_suffix(".json")
    command = [sys.executable, "-m", "coverage", "json", f"--data-file={data}", "-q", "-o", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=data.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(out.read_text())["files"].values()
    return found


@pytest.mark.parametrize("branch", [True, False])
def test_executed_lines_are_covered_and_the_others_missing(tmp_path: Path, branch: bool) -> None:
    data = tmp_path / "cov"
    session = launch(Coverage(data_file=data, branch=branch))
    found = reported(data)
    assert RAN <= set(found["executed_lines"])
    assert MISSED <= set(found["missing_lines"])
    ((file, lines),) = session.launches[0].records["coverage"]
    assert file == str(FILE) and RAN <= set(lines) and MISSED.isdisjoint(lines)


def test_branches_that_no_program_took_are_missing(tmp_path: Path) -> None:
    data = tmp_path / "cov"
    launch(Coverage(data_file=data))
    missing = {tuple(arc) for arc in reported(data)["missing_branches"]}
    in_kernels = {arc for arc in missing if arc[0] > line("def kernel")}
    assert in_kernels == {
        (line("if pid == 7"), line("x = x * 2")),
        (line("if n > 1000"), line("x += tl.sum")),
        (line("while n < 0"), line("n += 1")),
    }
    assert (line("if FLAG"), line("y = x - 1")) in missing


def test_an_if_that_is_always_taken_has_a_missing_branch(tmp_path: Path) -> None:
    data = tmp_path / "cov"
    with tritontrace.session([Coverage(data_file=data)]):
        covered.kernel[(1,)](torch.zeros(64), 40, True, BLOCK=16)
    missing = {tuple(arc) for arc in reported(data)["missing_branches"]}
    assert (line("if pid == 0"), line("for k in")) in missing
    assert (line("for k in"), line("x += k")) in missing


def test_launches_add_up_and_a_new_client_begins_anew(tmp_path: Path) -> None:
    data = tmp_path / "cov"
    client = Coverage(data_file=data)
    launch(client)
    launch(client, flag=False)
    assert line("y = x - 1") in reported(data)["executed_lines"]
    launch(Coverage(data_file=data))
    assert line("y = x - 1") not in reported(data)["executed_lines"]
    launch(Coverage(data_file=data, append=True), flag=False)
    found = reported(data)["executed_lines"]
    assert line("y = x - 1") in found and line("y = x + 1") in found


def test_threads_write_one_file(tmp_path: Path) -> None:
    data = tmp_path / "cov"
    client = Coverage(data_file=data)
    with tritontrace.session([client], scope="process") as session:
        threads = [
            threading.Thread(target=lambda f=flag: covered.kernel[(4,)](torch.zeros(64), 40, f, BLOCK=16))
            for flag in [True, False] * 4
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(session.launches) == 8 and all(launch.error is None for launch in session.launches)
    found = reported(data)["executed_lines"]
    assert {line("y = x - 1"), line("y = x + 1")} <= set(found)


def test_it_combines_with_ordinary_data_and_makes_html(tmp_path: Path) -> None:
    launch(Coverage(data_file=tmp_path / ".coverage.tritontrace"))
    ordinary = coverage.CoverageData(basename=str(tmp_path / ".coverage.host"))
    ordinary.add_arcs({str(FILE): {(-1, 3), (3, 4)}})
    ordinary.close()
    for command in (["combine"], ["html", "-d", "html"]):
        done = subprocess.run([sys.executable, "-m", "coverage", *command], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    found = reported(tmp_path / ".coverage")
    assert RAN | {3, 4} <= set(found["executed_lines"])
    assert any("covered_kernels" in page.name for page in (tmp_path / "html").glob("*.html"))


def test_outputs_are_right(tmp_path: Path) -> None:
    x = torch.arange(64.0)
    wanted = x.clone()
    with tritontrace.session([]):
        covered.kernel[(4,)](wanted, 40, True, BLOCK=16)
    with tritontrace.session([Coverage(data_file=tmp_path / "cov")]):
        covered.kernel[(4,)](x, 40, True, BLOCK=16)
    assert torch.equal(x, wanted)


@triton.jit
def with_defaults(x_ptr, value=3, twice: tl.constexpr = True):
    tl.store(x_ptr, value)
    if twice:
        tl.store(x_ptr + 1, value)


def test_parameters_with_default_values(tmp_path: Path) -> None:
    x = torch.zeros(2)
    with tritontrace.session([Coverage(data_file=tmp_path / "cov")]):
        with_defaults[(1,)](x)
    assert x.tolist() == [3, 3]
    data = coverage.CoverageData(str(tmp_path / "cov"))
    data.read()
    first = with_defaults.starting_line_number
    assert {first + 2, first + 3, first + 4} <= set(data.lines(__file__) or ())


def test_without_coverage_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coverage", None)
    with pytest.raises(ImportError, match=r"pip install 'tritontrace\[coverage\]'"):
        Coverage()
