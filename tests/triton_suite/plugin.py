"""The pytest plugin under which Triton's tests run, in both modes (`run.py` loads it with ``-p``).

In the mode ``interpreter`` the environment has ``TRITON_INTERPRET=1`` and the plugin only selects and records. In the mode
``ours`` it has not: kernels stay JITFunctions, each test runs inside a `tritontrace.session`, and the tests' question
``is_interpreter()`` (what they may ask of the hardware, which inspections of compiled code to leave out) is answered with
yes, except in tests that `listed.toml` names under ``gpu``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from tests.triton_suite import listed

OURS = "ours"
# Helpers of Triton's tests that ask is_interpreter() to know how a kernel is made, not what the hardware can.
ABOUT_KERNELS = {"patch_kernel"}


class TooSlow(BaseException):
    """A test ran past its limit. A BaseException, so that a test's own ``except Exception`` does not take it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("triton suite")
    group.addoption("--suite-mode", choices=["interpreter", OURS, f"{OURS}-python", f"{OURS}-auto"], required=True)
    group.addoption("--suite-record", type=Path, help="where each outcome is appended, one JSON object a line")
    group.addoption("--suite-ids", type=Path, help="run only the tests whose ids stand in this file")
    group.addoption("--suite-collect", type=Path, help="write the ids of the collected tests here")
    group.addoption("--suite-as-gpu", action="store_true", help="ours: answer is_interpreter() with no in every test")
    group.addoption("--suite-limit", type=float, default=120.0, help="seconds that one test may take")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "interpreter: Triton's mark for tests that its interpreter runs")
    config.addinivalue_line("markers", "enable_spmd: Triton's")
    config.pluginmanager.register(Suite(config), "triton-suite-runner")


class Suite:
    """Selects, times, records; and in the mode ``ours`` opens the session and answers for the hardware."""

    def __init__(self, config: pytest.Config) -> None:
        self.ours = config.option.suite_mode.startswith(OURS)
        self.engine = config.option.suite_mode.partition("-")[2] or "ir"
        self.record: Path | None = config.option.suite_record
        self.limit: float = config.option.suite_limit
        self.all_as_gpu: bool = config.option.suite_as_gpu
        self.as_gpu = self.all_as_gpu
        self.entries = listed.read()
        if self.ours:
            self._answer_for_the_hardware()

    def _answer_for_the_hardware(self) -> None:
        """Let tests take the interpreter's way where they choose one by hardware, with kernels that are compiled.

        The module asks the GPU driver while it is imported, so it is imported as under the interpreter; Triton's language
        itself must not be.
        """
        import triton
        import triton.language  # loads it

        assert not triton.knobs.runtime.interpret, "TRITON_INTERPRET is set"
        os.environ["TRITON_INTERPRET"] = "1"
        try:
            import triton._internal_testing as testing
        finally:
            del os.environ["TRITON_INTERPRET"]
        import tritontrace.engines.ir.engine  # no part of the first test's time  # noqa: F401

        testing.is_interpreter = self._is_interpreter
        testing.get_current_target = self._current_target

    def _is_interpreter(self) -> bool:
        return not self.as_gpu and sys._getframe(1).f_code.co_name not in ABOUT_KERNELS

    def _current_target(self) -> Any:
        """No target, as under the interpreter; so that no test believes in a feature of one architecture."""
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if config.option.suite_ids is not None:
            wanted = set(config.option.suite_ids.read_text().splitlines())
            dropped = [item for item in items if item.nodeid not in wanted]
            items[:] = [item for item in items if item.nodeid in wanted]
            config.hook.pytest_deselected(items=dropped)
        if config.option.suite_collect is not None:
            config.option.suite_collect.write_text("".join(f"{item.nodeid}\n" for item in items))

    def _note(self, **fields: Any) -> None:
        if self.record is not None:
            with self.record.open("a") as file:
                file.write(json.dumps(fields) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._note(id=item.nodeid, outcome="started")
        # Many tests draw inputs without a seed: both modes shall see the same ones.
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        self._outcome, self._message, self._began = "passed", "", time.perf_counter()
        listed_so = listed.find(self.entries, "gpu", item.nodeid.removeprefix("unit/"), self.engine) is not None
        self.as_gpu = self.all_as_gpu or listed_so
        previous = signal.signal(signal.SIGALRM, self._too_slow)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            self.as_gpu = self.all_as_gpu
            seconds = round(time.perf_counter() - self._began, 3)
            self._note(id=item.nodeid, outcome=self._outcome, seconds=seconds, message=self._message)

    def _too_slow(self, number: int, frame: FrameType | None) -> NoReturn:
        raise TooSlow(f"took longer than {self.limit:g} s")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if not self.ours:
            return (yield)
        import tritontrace

        # Strict: a launch that is not traced must not pass for one that is.
        with tritontrace.session(engine=self.engine, strict=True, keep=1):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and not hasattr(report, "wasxfail"):
            return
        if hasattr(report, "wasxfail"):
            outcome = "xpassed" if report.passed else "xfailed"
        else:
            outcome = report.outcome
        if self._outcome == "failed":
            return
        self._outcome = outcome
        self._message = _message(report)


def _message(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return str(longrepr[2])[:300]
    crash = getattr(longrepr, "reprcrash", None)
    if crash is None:
        return str(longrepr)[-600:]
    return f"{crash.message[:1500]} ({Path(crash.path).name}:{crash.lineno})"
