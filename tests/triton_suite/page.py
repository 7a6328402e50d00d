"""`docs/triton-tests.md`: what one run came to, between the page's marks."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

from tests.triton_suite import listed

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def section(table: str, uncollected: list[str], entries: list[listed.Entry]) -> str:
    """The table with what it was made with, the files that gave no tests, and the listed tests with their reasons."""
    versions = f"triton {version('triton')}, torch {version('torch')}, Python {platform.python_version()}"
    parts = [f"{versions}:", table.strip()]
    if uncollected:
        why = "a GPU, or a package that they import, is missing"
        parts.append(f"Not collected where this was made ({why}): {', '.join(uncollected)}.")
    for kind, words in (("gpu", "Asked as on a GPU:"), ("differs", "May fail:")):
        mine = [entry for entry in entries if entry.kind == kind]
        if mine:
            lines = [
                f"- {', '.join(f'`{test}`' for test in entry.tests)}"
                f"{' (' + ', '.join(entry.engines) + ')' if entry.engines else ''}: {entry.reason}"
                for entry in mine
            ]
            parts.append("\n".join([words, "", *lines]))
    return "\n\n".join(parts)


def write(page: Path, text: str) -> None:
    """Puts `text` between the marks of `page`; a page that is not there yet is made of them alone."""
    before = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    head, found, rest = before.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{page} lacks the lines {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")
