"""Every example runs, and says what its page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for shown in re.findall(rf"\$ python examples/{example.name}\n(.*?)```", page.read_text(), flags=re.S):
            assert _plain(shown) == _plain(done.stdout), f"{page.name} shows something else"
        parts = rf"Part of what `examples/{example.name}` prints\b[^\n]*\n\n```text\n(.*?)```"
        for shown in re.findall(parts, page.read_text(), flags=re.S):
            assert f" {' '.join(_plain(shown))} " in f" {' '.join(_plain(done.stdout))} ", f"{page.name} shows something else"


def _plain(text: str) -> list[str]:
    """The words: where a line is broken, and how long a rule is, depends on how long the checkout's path is.

    The last digits of a long number depend on the machine, whose vector units compute exponentials.
    """
    text = re.sub(r"(\d\.\d{13})\d+", r"\1", text)
    return re.sub("─+", "─", text.replace(f"{ROOT}/", "")).split()
