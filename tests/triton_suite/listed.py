"""Which of Triton's tests are treated in a way of their own, and why: `listed.toml`, read."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest depends on it there

FILE = Path(__file__).with_name("listed.toml")


@dataclass(frozen=True)
class Entry:
    """Tests by pattern (``*`` stands for anything, all else for itself), and the reason for the treatment.

    `engines`: in these of our engines only; in all of them if empty.
    """

    kind: str
    tests: tuple[str, ...]
    reason: str
    engines: tuple[str, ...] = ()

    def names(self, test: str, engine: str) -> bool:
        if self.engines and engine not in self.engines:
            return False
        return any(_expression(pattern).fullmatch(test) for pattern in self.tests)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*"))


def read(path: Path = FILE) -> list[Entry]:
    """All entries. Kinds: ``gpu`` (runs as a GPU's test, not as the interpreter's) and ``differs`` (may fail)."""
    data: dict[str, list[dict[str, Any]]] = tomllib.loads(path.read_text())
    unknown = set(data) - {"gpu", "differs"}
    if unknown:
        raise ValueError(f"{path}: unknown kinds {sorted(unknown)}")
    return [
        Entry(kind, tuple(entry["tests"]), entry["reason"], tuple(entry.get("engines", ())))
        for kind, entries in data.items()
        for entry in entries
    ]


def find(entries: list[Entry], kind: str, test: str, engine: str) -> Entry | None:
    return next((entry for entry in entries if entry.kind == kind and entry.names(test, engine)), None)
