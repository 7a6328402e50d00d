"""Where the prints of a kernel go: lines of text, to what the sessions that see the launch have named."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

__all__ = ["NAMES", "Destination", "Writer", "writer_for"]

NAMES = ("stderr", "stdout", "log", None)
"""The destinations that have a name; None shows nothing."""

LINES = 256
"""Lines of one launch that are shown; on a GPU a kernel's print buffer is finite too."""

_log = logging.getLogger("tritontrace.kernel")


class _Stream(Protocol):
    def write(self, text: str, /) -> object: ...


Destination = str | Callable[[str], object] | _Stream | None


class Writer:
    """The lines of one launch, the first `LINES` of them, written to each of `destinations`."""

    def __init__(self, destinations: Sequence[Destination]) -> None:
        # One line for two sessions with the same destination is one line.
        unique: list[Destination] = []
        for destination in destinations:
            if destination is not None and not any(destination is one or destination == one for one in unique):
                unique.append(destination)
        self.destinations = unique
        self.left = LINES if unique else 0

    def write(self, lines: Iterable[str]) -> None:
        """Takes no more lines from the iterator than it shows."""
        for line in lines:
            if self.left <= 0:
                return
            self.left -= 1
            self._emit(line)
            if self.left == 0:
                self._emit(f"(only the first {LINES} lines that a launch prints are shown)")

    def _emit(self, line: str) -> None:
        for destination in self.destinations:
            if destination == "log":
                _log.info("%s", line)
                continue
            stream: Any = getattr(sys, destination) if isinstance(destination, str) else destination
            if stream is None:
                continue  # a program without a console
            write = getattr(stream, "write", None)
            if write is None:
                stream(line)
            else:
                write(line + "\n")


def writer_for(destinations: object) -> Writer:
    """The writer of a launch, from the option ``"prints"`` of its run (absent in a run without a session)."""
    return Writer(destinations if isinstance(destinations, tuple) else ())
