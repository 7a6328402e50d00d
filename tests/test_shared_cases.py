"""The shared folder of cases, where it lies beside the checkout: exactly what each of them plants is found."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import tritontrace
from tritontrace.kernels.capabilities import block_pointers

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "cases"
NAMES = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))

pytestmark = pytest.mark.skipif(not NAMES, reason="the folder ../shared/cases is not beside this checkout")

KINDS = {"oob": "out_of_bounds", "undefined_lane": "undefined_lane", "uninit": "uninitialized"}

RIGHT_OUTPUTS = {"b01", "b02", "b03", "b05", "b10", "b11", "b12", "b13"}
"""Faulty cases whose outputs are right all the same, where an access outside gives 0 and writes nothing."""

BLOCK_POINTERS = {"b05", "b06", "b13"}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(f"shared_case_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES or ["none"])
def test_shared_case(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name[:3] in BLOCK_POINTERS and not block_pointers():
        pytest.skip("this triton has no block pointers")
    module = load(name, monkeypatch)
    torch.manual_seed(0)
    with tritontrace.session(clients=[tritontrace.Sanitizer(uninitialized=True), "tracer", "race_detector"]) as session:
        results = module.run()
    expected = [truth for truth in module.TRUTH["findings"] if truth["kind"] in KINDS]
    races = [finding for finding in session.findings if finding.kind == "race"]
    others = [finding for finding in session.findings if finding.kind != "race"]
    assert len(others) == len(expected), session.report()
    for truth, finding in zip(expected, others, strict=True):
        compare(truth, finding)
    compare_races([truth for truth in module.TRUTH["findings"] if truth["kind"] == "race"], races)
    if module.TRUTH.get("clean") or name[:3] in RIGHT_OUTPUTS:
        for _, actual, wanted, atol, rtol in results:
            torch.testing.assert_close(actual, wanted, atol=atol, rtol=rtol, check_dtype=False)


def compare_races(truths: list[dict[str, Any]], races: list[tritontrace.Finding]) -> None:
    """A case lists a race for each memory that programs meet in; a finding holds all of one line and tensor."""
    by_line: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for truth in truths:
        by_line.setdefault((truth["line"], truth["tensor"]), []).append(truth)
    assert len(races) == len(by_line), [race.message for race in races]
    for (line, tensor), group in by_line.items():
        (race,) = [f for f in races if f.location is not None and f.location.line == line and f.tensor == tensor]
        assert race.other is not None
        assert sorted({element for truth in group for element in truth["elements"]}) == race.elements.tolist()
        for truth in group:
            who = [p for p, elements in race.elements_by_program.items() if set(elements.tolist()) & set(truth["elements"])]
            assert sorted(who) == truth["programs"]
            assert race.access == truth["access"] and race.benign == truth.get("benign", False)
            assert race.other["location"].line == truth.get("other_line", line)


def compare(truth: dict[str, Any], finding: tritontrace.Finding) -> None:
    assert (finding.kind, finding.access, finding.tensor) == (KINDS[truth["kind"]], truth["access"], truth["tensor"])
    assert finding.location is not None and finding.location.line == truth["line"]
    assert [tuple(row) for row in finding.programs.tolist()] == truth["programs"]
    if "lanes" in truth:
        assert finding.lanes is not None and finding.lanes.tolist() == truth["lanes"]
        assert finding.use is not None and finding.use.line == truth["use_line"]
    elif isinstance(truth["elements"], dict):
        by_program = {program: elements.tolist() for program, elements in finding.elements_by_program.items()}
        assert by_program == {program: sorted(elements) for program, elements in truth["elements"].items()}
    else:
        assert finding.elements.tolist() == sorted(truth["elements"])
    if "call_line" in truth:
        assert truth["call_line"] in [frame.line for frame in finding.call_stack]
    if "iteration" in truth:
        assert finding.iterations == ((truth["iteration"],),)
