"""What the kernel corpus shares: a session that every kernel must pass through right, traced and without a finding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pytest
import torch

import tritontrace


class Clean(Protocol):
    """``with clean(launches=2): ...``: see `clean`."""

    def __call__(self, launches: int = 1) -> AbstractContextManager[Any]: ...


@pytest.fixture
def clean() -> Clean:
    """A context that traces its body under all checks and demands so many complete launches and no finding."""

    @contextmanager
    def context(launches: int = 1) -> Iterator[Any]:
        with tritontrace.session(clients=["tracer", "sanitizer", "race_detector"]) as session:
            yield session
        assert [str(finding.message) for finding in session.findings] == []
        assert len(session.launches) == launches
        assert all(launch.completed and launch.error is None for launch in session.launches)
        assert all(launch.records.get("tracer") for launch in session.launches), "the tracer saw nothing"

    return context


@pytest.fixture
def randn() -> Any:
    """Normal random numbers from a seed of the test's own."""
    generator = torch.Generator().manual_seed(7)
    return lambda *shape, dtype=torch.float32: torch.randn(*shape, generator=generator).to(dtype)
