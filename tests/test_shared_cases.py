"""The shared folder of cases, where it lies beside the checkout: the findings that this library makes so far.

Races have a client of their own; here such a case must run, finish, and get no finding of another kind.
"""

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
    with tritontrace.session(clients=[tritontrace.Sanitizer(uninitialized=True), "tracer"]) as session:
        results = module.run()
    expected = [truth for truth in module.TRUTH["findings"] if truth["kind"] in KINDS]
    assert len(session.findings) == len(expected), session.report()
    for truth, finding in zip(expected, session.findings, strict=True):
        compare(truth, finding)
    if module.TRUTH.get("clean") or name[:3] in RIGHT_OUTPUTS:
        for _, actual, wanted, atol, rtol in results:
            torch.testing.assert_close(actual, wanted, atol=atol, rtol=rtol, check_dtype=False)


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
