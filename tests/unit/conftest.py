"""What the unit tests share."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest


@pytest.fixture
def switch_everywhere() -> Iterator[None]:
    """Threads that the test starts let another one run at every line of the session, scope and patching modules.

    Python changes threads rarely, and almost never between two given lines, so a missing lock would go unnoticed in a
    thousand repetitions. With this, every place where a change can do harm is tried within a few.
    """

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            # Gives the interpreter away: mostly for one line of another thread, sometimes for as many as it takes.
            time.sleep(1e-3 if random.random() < 0.1 else 0)
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        return line if "/tritontrace/" in file and ("/scopes/" in file or "/patching/" in file or "session.py" in file) else None

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threading.settrace(call)
    yield
    threading.settrace(None)  # type: ignore[arg-type]  # typeshed: None is what takes it out
    sys.setswitchinterval(interval)
