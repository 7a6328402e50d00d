"""Where in the user's source something happened."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SourceLocation"]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a kernel's Python source.

    `line` and `column` count from 1, as Triton's compiler counts them; `function` is the name of the
    ``@triton.jit`` function the line belongs to, where it is known.
    """

    file: str
    line: int
    column: int = 0
    function: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def to_dict(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        return {"file": self.file, "line": self.line, "column": self.column, "function": self.function}
