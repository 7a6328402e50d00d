"""The runner of Triton's own tests, on a small checkout made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.triton_suite import listed, page, run
from tests.triton_suite.processes import Outcome, Runner

CONFTEST = """
import pytest


def pytest_addoption(parser):
    parser.addoption("--device", default="cuda")


@pytest.fixture
def device(request):
    return request.config.getoption("--device")
"""

TESTS = """
import os
import time

import pytest
import torch
import triton
import triton.language as tl
from triton._internal_testing import is_cuda, is_interpreter


@triton.jit
def copy(x_ptr, out_ptr):
    offsets = tl.arange(0, 8)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + 1)


def test_copy(device):
    x = torch.arange(8, device=device)
    out = torch.zeros_like(x)
    copy[(1, )](x, out)
    assert (out == x + 1).all()


@triton.jit
def copy_at_last(x_ptr, out_ptr):
    offsets = tl.arange(0, 8)
    try:
        x = tl.load(x_ptr + offsets)
    finally:
        tl.store(out_ptr + offsets, x)


def test_try(device):
    x, out = torch.arange(8, device=device), torch.zeros(8, dtype=torch.int64, device=device)
    copy_at_last[(1, )](x, out)
    assert (out == x).all()


def test_hardware():
    assert is_interpreter() and not is_cuda()


def test_kernels_stay_compiled():
    assert isinstance(copy, triton.JITFunction)


def test_interpreted():
    assert not isinstance(copy, triton.JITFunction)


@pytest.mark.parametrize("n", [1, 2])
def test_crash(n):
    if n == 1 and not os.environ.get("TRITON_INTERPRET"):
        os._exit(3)


def test_slow():
    if not os.environ.get("TRITON_INTERPRET"):
        time.sleep(100)


def test_skipped():
    pytest.skip("not here")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tests = tmp_path / "source" / "python" / "test"
    (tests / "unit" / "language").mkdir(parents=True)
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "unit" / "language" / "test_core.py").write_text(TESTS)
    return tmp_path / "source"


@pytest.mark.slow
def test_both_modes(source: Path, tmp_path: Path) -> None:
    runner = Runner(source, tmp_path, limit=8.0)
    ids = runner.collect(["unit/language/test_core.py"])
    names = [test.split("::")[1] for test in ids]
    interpreter = runner.run("interpreter", ids, 1, lambda count: None)
    assert {name: interpreter[test].outcome for name, test in zip(names, ids)} == {
        "test_copy": "passed",
        "test_try": "passed",
        "test_hardware": "passed",
        "test_kernels_stay_compiled": "failed",
        "test_interpreted": "passed",
        "test_crash[1]": "passed",
        "test_crash[2]": "passed",
        "test_slow": "passed",
        "test_skipped": "skipped",
    }
    ours = runner.run("ours", ids, 1, lambda count: None)
    outcomes = {name: ours[test].outcome for name, test in zip(names, ids)}
    # A test that takes the process along is named, and the ones after it run all the same.
    assert outcomes == {
        "test_copy": "passed",
        "test_try": "failed",
        "test_hardware": "passed",
        "test_kernels_stay_compiled": "passed",
        "test_interpreted": "failed",
        "test_crash[1]": "crashed",
        "test_crash[2]": "passed",
        "test_slow": "failed",
        "test_skipped": "skipped",
    }
    assert "took longer than 8 s" in ours[ids[names.index("test_slow")]].message

    entries = [listed.Entry("differs", ("language/test_core.py::test_interpreted",), "it is about the interpreter")]
    (row,), failing = run.count(ids, interpreter, ours, entries, "ir")
    assert failing == [ids[names.index("test_try")], ids[names.index("test_crash[1]")], ids[names.index("test_slow")]]
    assert (row.tests, row.interpreter, row.ours, row.listed, row.fails, row.more) == (9, 7, 3, 1, 3, 1)
    assert "| language/test_core.py | 9 | 7 | 3 | 1 | 3 | 1 |" in run.markdown(*run.engines_table({"ir": [row]}))


@pytest.mark.slow
def test_engines_beside_each_other(source: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    common = ["--source", str(source), "--results", str(results), "--tests", "*y", "--jobs", "1"]
    assert run.main([*common, "--engine", "ir,python", "--write", str(tmp_path / "page.md")]) == 1
    table = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("|")]
    assert "| ir passes | ir listed | ir fail |" in table[0] and "| python passes | python listed | python fail |" in table[0]
    cells = [cell.strip() for cell in table[2].strip("|").split("|")]
    assert cells[:3] == ["language/test_core.py", "2", "2"]
    assert (cells[4:7], cells[8:11]) == (["1", "0", "1"], ["2", "0", "0"])
    assert {path.stem for path in results.glob("*.jsonl")} == {"interpreter", "ours", "ours-python"}


def test_an_engine_that_there_is_not_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--source", str(source), "--engine", "jit"])
    assert "the engines are ir, python, auto" in capsys.readouterr().err


def test_patterns_take_brackets_literally() -> None:
    entry = listed.Entry("differs", ("language/test_core.py::test_x[*-f[p]]",), "")
    assert entry.names("language/test_core.py::test_x[1-f[p]]", "ir")
    assert not entry.names("language/test_core.py::test_x[1-fp]", "ir")


def test_every_entry_has_tests_and_a_reason() -> None:
    for entry in listed.read():
        assert entry.tests and len(entry.reason) > 20, entry


def test_a_checkout_without_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no test files of Triton's"):
        run.main(["--source", str(tmp_path), "--results", str(tmp_path / "results")])


def test_counts_of_nothing_run() -> None:
    rows, failing = run.count(["unit/a.py::t"], {"unit/a.py::t": Outcome("passed")}, {}, [], "ir")
    assert failing == ["unit/a.py::t"] and rows[0].fails == 1


def test_the_page_keeps_what_is_outside_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"# Words\n\n{page.BEGIN}\nold\n{page.END}\n\nmore words\n")
    entries = [listed.Entry("differs", ("language/test_core.py::test_x[*]",), "it asks for the interpreter's class")]
    page.write(path, page.section("| a |\n", ["language/test_gone.py"], entries))
    text = path.read_text()
    assert text.startswith("# Words\n") and text.endswith("more words\n") and "old" not in text
    assert "| a |" in text and "language/test_gone.py" in text
    assert "`language/test_core.py::test_x[*]`: it asks for the interpreter's class" in text and "Asked as on a GPU" not in text

    path.write_text("a page without marks\n")
    with pytest.raises(SystemExit, match="lacks the lines"):
        page.write(path, "text")
    assert path.read_text() == "a page without marks\n"
    page.write(tmp_path / "new.md", "text")
    assert (tmp_path / "new.md").read_text() == f"{page.BEGIN}\ntext\n{page.END}\n"


def test_what_is_listed_for_one_engine_counts_in_that_one() -> None:
    entries = [listed.Entry("differs", ("a.py::t",), "it names a class", ("python",))]
    outcomes = {"unit/a.py::t": Outcome("passed")}, {"unit/a.py::t": Outcome("failed")}
    assert run.count(["unit/a.py::t"], *outcomes, entries, "python")[1] == []
    assert run.count(["unit/a.py::t"], *outcomes, entries, "ir")[1] == ["unit/a.py::t"]
    assert any(entry.engines == ("python",) for entry in listed.read())
