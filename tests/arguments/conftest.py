"""What the tests of arguments share: a session that must stay clean, and a kernel that copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tritontrace


@pytest.fixture
def traced() -> Iterator[Any]:
    """A session with tracer and sanitizer around the test, which must end without findings."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert [str(finding.message) for finding in session.findings] == []


@pytest.fixture
def refused() -> Iterator[Any]:
    """A session for launches that are refused: none of them may have reached the grid."""
    with tritontrace.session(clients=["tracer", "sanitizer"]) as session:
        yield session
    assert session.findings == []
    for launch in session.launches:
        assert not launch.completed and launch.error is not None
        assert not launch.records.get("tracer")


@pytest.fixture
def bits() -> Any:
    """The bytes of a tensor's elements in order, whatever its dtype: NaN and -0.0 compare too."""

    def of(tensor: torch.Tensor) -> bytes:
        flat = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""

    return of
