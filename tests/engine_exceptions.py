"""What does not hold of both engines: tests that say nothing about the Python engine, and launches that may differ.

``--engine python`` skips the tests of `EXCEPTIONS`; ``--engine both`` is less strict with launches of the tests of `COMPARED`.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

__all__ = ["COMPARED", "EXCEPTIONS", "Compared", "compared", "reason"]


@dataclass(frozen=True)
class Compared:
    """What need not be equal, and why.

    `nothing`: no comparison. `order`: the order of programs decides what comes out; the IR engine, too, runs one program after
    another. `waits`: how often a program looks is nobody's promise, so that only memory is compared. `close`: (rtol, atol) for
    values instead of equal bits.
    """

    nothing: str | None = None
    order: str | None = None
    waits: str | None = None
    close: tuple[float, float] | None = None


_RECORDED = "the compiler's own record of the names it met"

EXCEPTIONS: dict[str, str] = {
    "*test_control_flow.py::test_recursion_is_refused_and_says_why*": "recursion is something this engine runs",
    "*test_containers.py::test_keyword_only_parameters_are_refused_where*": "so are keyword-only parameters, in every version",
    "*test_harness.py::test_a_name_in_code_that_is_not_compiled_does_not_count": _RECORDED,
    "*test_harness.py::test_a_name_of_another_spelling_does_not_count": _RECORDED,
    "*test_polls.py::test_programs_wait_for_the_last_one?70000-*": "a program that waits holds a thread",
    "*test_inline_asm.py::test_without_one_nothing_is_written_also_*": "what stands before the line that fails has been done",
    "*test_inline_asm.py::test_two_programs_may_answer_differently": "a callback gets one program at a time",
    "*test_cases.py::test_races?a_lock_at_the_scope_of_a_program?": "the race is found with another of its partners first",
}
"""Node ids (globs) and why."""


def reason(nodeid: str) -> str | None:
    """Why the test is no test of the Python engine, or None."""
    return next((why for pattern, why in EXCEPTIONS.items() if fnmatch.fnmatchcase(nodeid, pattern)), None)


_RACE = "programs race, which is what the test is about"
_TICKETS = "programs take tickets, or add up in the order in which they come"
_SPINS = "programs look at a flag or a lock until it changes"

COMPARED: dict[str, Compared] = {
    "*test_determinism.py::test_locks_finish_in_every_order": Compared(order=_TICKETS, waits=_SPINS),
    "*test_determinism.py::test_a_result_of_the_python_engine_says_that_programs_ran_alone*": Compared(order=_RACE),
    "*test_dry_run.py::test_addresses_that_the_kernel_makes_itself_are_followed_on_copies": Compared(order=_TICKETS),
    "*test_polls.py::test_a_timeout*": Compared(waits=_SPINS),
    "*test_polls.py::test_*": Compared(order=_TICKETS, waits=_SPINS),
    "*test_ir_engine.py::test_waiting_for_a_later_program*": Compared(order=_TICKETS, waits=_SPINS),
    "*test_ir_engine.py::test_programs_in_an_order_that_they_choose": Compared(order=_TICKETS, waits=_SPINS),
    "*test_ir_engine.py::test_locks_in_helpers_in_loops": Compared(order=_TICKETS, waits=_SPINS),
    "*test_race_detector.py::test_a_lock_that_goes_from_hand_to_hand_needs_no_clocks": Compared(order=_TICKETS, waits=_SPINS),
    "*test_race_detector.py::test_what_to_do_depends_on_what_the_programs_do": Compared(order=_RACE, waits=_SPINS),
    "*test_launching.py::test_one_tensor_as_argument_of_launches_on_many_threads": Compared(nothing="threads write one tensor"),
    "*test_inline_asm.py::test_two_programs_may_answer_differently": Compared(nothing="a callback gets one program at a time"),
    "*test_atomics.py::test_every_operation_and_type?m*-torch.float*": Compared(order="Triton makes two atomics of it"),
    "*test_layer_norm.py::test_backward_with_locks*": Compared(order=_TICKETS, waits=_SPINS),
    "*test_race_kernels_property.py::test_drawn_kernels": Compared(order=_RACE),
    "*test_cases.py::test_races*lock*": Compared(order=_RACE, waits=_SPINS),
    "*test_cases.py::test_races*flag*": Compared(order=_RACE, waits=_SPINS),
    "*test_cases.py::test_races*barrier*": Compared(order=_RACE, waits=_SPINS),
    "*test_cases.py::test_races*semaphore*": Compared(order=_RACE, waits=_SPINS),
    "*test_cases.py::test_races*": Compared(order=_RACE),
    "*test_shared_cases.py::test_shared_case?r*lock*": Compared(order=_TICKETS, waits=_SPINS),
    "*test_shared_cases.py::test_shared_case?r*": Compared(order=_RACE),
    "*test_bounds.py::test_fault_40_a_program_that_waits_for_a_later_one_finishes": Compared(order=_TICKETS, waits=_SPINS),
}
"""Node ids (globs) and what of their launches need not be equal."""


def compared(nodeid: str) -> Compared:
    """What of the test's launches need not be equal in the two engines."""
    return next((what for pattern, what in COMPARED.items() if fnmatch.fnmatchcase(nodeid, pattern)), Compared())
