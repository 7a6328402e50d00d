"""Kernels with a known truth: what a session must report about them, and what they must compute."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tritontrace.findings import Finding

Program = tuple[int, int, int]
Result = tuple[torch.Tensor, torch.Tensor]
"""(what the kernel wrote, what it must have written)"""


@dataclass(frozen=True)
class Fault:
    """One finding that must be reported, exactly.

    `at` is the tag of the comment ``# fault: tag`` on the line of the access, `called_at` that of the call that leads there.
    `elements` holds for all programs together, or is a dict by program. Of a race, `other_at` is the tag of the second access.
    """

    at: str
    access: str
    tensor: str | None
    programs: Sequence[Program]
    elements: Sequence[int] | dict[Program, Sequence[int]]
    kind: str = "out_of_bounds"
    iterations: Sequence[tuple[int, ...]] = ()
    called_at: str | None = None
    other_at: str | None = None
    benign: bool = False


@dataclass(frozen=True)
class Case:
    """A kernel launch and its truth: `run` launches and returns results; no `faults` means that nothing may be found."""

    name: str
    run: Callable[[], Sequence[Result]]
    faults: Sequence[Fault] = field(default=())


def line_of(file: str, tag: str) -> int:
    """The line of the comment ``# fault: tag``."""
    lines = linecache.getlines(file)
    (line,) = (number for number, text in enumerate(lines, 1) if text.rstrip().endswith(f"# fault: {tag}"))
    return line


def check(case: Case, file: str, findings: Sequence[Finding]) -> None:
    """Asserts that the findings are the case's faults, and nothing else."""
    said = [finding.message for finding in findings]
    assert len(findings) == len(case.faults), said
    left = list(findings)
    for fault in case.faults:
        line = line_of(file, fault.at)
        stack = None if fault.called_at is None else line_of(file, fault.called_at)
        found = next(
            (
                f
                for f in left
                if (f.kind, f.access, f.tensor) == (fault.kind, fault.access, fault.tensor)
                and f.location is not None
                and (f.location.file, f.location.line) == (file, line)
                and (stack is None or stack in [frame.line for frame in f.call_stack])
            ),
            None,
        )
        assert found is not None, f"{fault} was not reported; reported: {said}"
        left.remove(found)
        _compare(fault, found)
        assert found.benign == fault.benign
        if fault.other_at is not None:
            assert found.other is not None and found.other["location"].line == line_of(file, fault.other_at), found.message


def _compare(fault: Fault, found: Finding) -> None:
    assert [tuple(int(i) for i in row) for row in found.programs] == list(fault.programs)
    if isinstance(fault.elements, dict):
        assert set(found.elements_by_program) == set(fault.elements)
        for program, elements in fault.elements.items():
            assert found.elements_by_program[program].tolist() == sorted(elements), program
    else:
        assert found.elements.tolist() == sorted(fault.elements)
    if fault.iterations:
        assert sorted(found.iterations) == sorted(fault.iterations)
    record: dict[str, Any] = found.to_dict()
    assert record["location"]["line"] == found.location.line if found.location else True
