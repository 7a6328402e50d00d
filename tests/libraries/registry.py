"""The libraries under test: how each is found, what it needs on a machine without a GPU, and where its cases are."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from tests.libraries import flag_gems_setup
from tests.libraries.case import Case


def nothing() -> None:
    """A library that needs no preparation."""


@dataclass(frozen=True)
class Library:
    """`environment` is set and `prepare` called once in a process, before the cases are loaded.

    Both are what a user without a GPU does as well; docs/libraries.md says so for each library.
    """

    title: str
    distribution: str
    package: str
    cases_module: str
    environment: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = nothing

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    def load(self) -> list[Case]:
        """Its cases, with the library ready to run. The module imports the library at its top."""
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)
        self.prepare()
        cases: list[Case] = importlib.import_module(self.cases_module).CASES
        names = [case.name for case in cases]
        assert len(set(names)) == len(names), f"{self.title}: two cases of one name"
        return cases


def prepare_liger() -> None:
    """DyT's backward makes a program for each multiprocessor of torch's GPU; here it is told of one with four."""
    import torch
    from liger_kernel.ops import dyt

    dyt.infer_device = lambda: "cuda"
    if not torch.cuda.is_available():
        torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(multi_processor_count=4)


LIBRARIES: dict[str, Library] = {
    "liger": Library("Liger-Kernel", "liger-kernel", "liger_kernel", "tests.libraries.liger_ops", prepare=prepare_liger),
    "fla": Library("flash-linear-attention", "flash-linear-attention", "fla", "tests.libraries.fla_ops"),
    "flag_gems": Library(
        "FlagGems",
        "flag-gems",
        "flag_gems",
        "tests.libraries.flag_gems_ops",
        environment=flag_gems_setup.ENVIRONMENT,
        prepare=flag_gems_setup.prepare,
    ),
}
