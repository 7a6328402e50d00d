"""Tests that say nothing about the Python engine: ``--engine python`` skips them, for the reason that stands here."""

from __future__ import annotations

import fnmatch

__all__ = ["EXCEPTIONS", "reason"]

_UNDEFINED = "undefined lanes are followed in the kernel's IR only"
_RECORDED = "the compiler's own record of the names it met"

EXCEPTIONS: dict[str, str] = {
    "*test_control_flow.py::test_recursion_is_refused_and_says_why*": "recursion is something this engine runs",
    "*test_containers.py::test_keyword_only_parameters_are_refused_where*": "so are keyword-only parameters, in every version",
    "*test_harness.py::test_a_name_in_code_that_is_not_compiled_does_not_count": _RECORDED,
    "*test_harness.py::test_a_name_of_another_spelling_does_not_count": _RECORDED,
    "*test_inline_asm.py::test_without_one_nothing_is_written_also_*": "what stands before the line that fails has been done",
    "*test_inline_asm.py::test_two_programs_may_answer_differently": "a callback gets one program at a time",
    "*test_names.py::test_fault_53_undefined_lanes_that_reach_a_store*": _UNDEFINED,
    "*test_shared_cases.py::test_shared_case?u03_masked_load_without_other?": _UNDEFINED,
    "*test_cases.py::test_races?a_lock_at_the_scope_of_a_program?": "the race is found with another of its partners first",
}
"""Node ids (globs) and why."""


def reason(nodeid: str) -> str | None:
    """Why the test is no test of the Python engine, or None."""
    return next((why for pattern, why in EXCEPTIONS.items() if fnmatch.fnmatchcase(nodeid, pattern)), None)
