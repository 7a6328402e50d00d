"""Independence from Triton's own interpreter, which replaces functions of ``triton.language`` for the whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.known_faults.helpers import ROOT, in_subprocess

HERE = Path(__file__).parent


@pytest.mark.parametrize("mode", ["held", "beside", "late", "inside", "lost"])
def test_traced_launches_and_tritons_interpreter(mode: str) -> None:
    if mode == "lost" and sys.version_info < (3, 11):
        pytest.skip("Triton's compiler cannot be imported in that state: inspect knows no signature of print")
    printed = in_subprocess(HERE / "beside_interpreter.py", mode, TRITON_INTERPRET="1")
    assert printed.splitlines()[-1] == "right"


@pytest.mark.slow
def test_nothing_that_the_interpreter_replaces_is_called() -> None:
    files = [
        "language/test_aggregates.py",
        "language/test_control_flow.py",
        "language/test_folds.py",
        "engines/test_step_through.py",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.poisoned"]
    run = subprocess.run(
        [*command, *(f"tests/{file}" for file in files)], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert run.returncode == 0, run.stdout[-3000:]


@triton.jit
def exponential(x_ptr):
    tl.store(x_ptr, tl.exp(tl.load(x_ptr)))


@pytest.mark.parametrize("engine", ["ir", "python"])
def test_what_a_user_puts_into_the_language_counts(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tl, "exp", tl.exp2)
    x = torch.full((1,), 3.0)
    with tritontrace.session(engine=engine):
        exponential[(1,)](x)
    assert x.item() == 8.0
