"""One peer of the table: ``python -m tests.libraries.worker LIBRARY ENGINE`` reads names of cases and answers with JSON lines.

ENGINE is "tritontrace" or "interpreter"; for the latter the caller has set TRITON_INTERPRET=1 in the environment, which Triton
reads when kernels are decorated.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from typing import Any

from tests.libraries.case import Case
from tests.libraries.registry import LIBRARIES

#: After the first call, a case is repeated this often; once if that takes more than BUDGET seconds together, never past SLOW.
REPEATS = 3
BUDGET = 5.0
SLOW = 25.0


def measure(case: Case, engine: str) -> dict[str, Any]:
    """The first call's seconds (which compiles), the best of some further calls, and whether the results are right."""
    import tritontrace

    # One session for all calls, as a test suite or a program has: a tuner is analysed in the first.
    session = tritontrace.session(clients=["sanitizer"]) if engine == "tritontrace" else None

    def call() -> tuple[float, Any]:
        values = case.make_inputs()
        started = time.perf_counter()
        got = case.run(values)
        return time.perf_counter() - started, got

    with session or contextlib.nullcontext():
        first, got = call()
        answer: dict[str, Any] = {"first": first, "best": None, "launches": 0, "findings": [], "error": None}
        if session is not None:
            answer["launches"] = len(session.launches)
            answer["findings"] = [f"{f.kind}: {f.message}" for f in session.findings]
        try:
            case.check(got, case.reference(case.make_inputs()))
        except AssertionError as error:
            answer["error"] = "wrong: " + mismatch(str(error))
            return answer
        if session is not None and not session.launches:
            answer["error"] = "no kernel was traced"
            return answer
        spent = first
        for _ in range(REPEATS):
            if answer["best"] is not None and spent > BUDGET:
                break
            if spent > SLOW:
                break
            seconds, _ = call()
            answer["best"] = seconds if answer["best"] is None else min(answer["best"], seconds)
            spent += seconds
    answer["best"] = first if answer["best"] is None else answer["best"]
    return answer


def mismatch(message: str) -> str:
    """The lines of assert_close's message that say which result differs, and by how much."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    which = lines[0].split(": ")
    name = which[1] if len(which) > 1 else which[0]
    largest = next((line for line in lines if line.startswith("Greatest absolute difference")), "")
    amount = largest.partition(": ")[2].split(" ")[0]
    return f"{name} is off by {amount}" if amount else lines[0]


def reason(error: BaseException) -> str:
    """The innermost cause, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"


def main() -> None:
    library, engine = sys.argv[1:]
    # Libraries print; the answers go to the real stdout.
    with os.fdopen(os.dup(1), "w") as answers, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)
        try:
            cases = {case.name: case for case in LIBRARIES[library].load()}
        except Exception as error:
            print(json.dumps({"error": f"import: {reason(error)}"}), file=answers, flush=True)
            return
        print(json.dumps({"ready": list(cases)}), file=answers, flush=True)
        for line in sys.stdin:
            try:
                answer = measure(cases[line.strip()], engine)
            except BaseException as error:
                traceback.print_exc()
                answer = {"error": reason(error)}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
