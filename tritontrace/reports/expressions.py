"""The source text behind an access: which expression made its address, and which its mask."""

from __future__ import annotations

import ast
import functools
import linecache

from tritontrace.parsing import undisturbed
from tritontrace.source import SourceLocation

__all__ = ["access_expressions"]


def access_expressions(location: SourceLocation) -> tuple[str | None, str | None]:
    """(address, mask) as written in the call at `location`; None for what is not there or cannot be found.

    The address of a method (``descriptor.load([row, 0])``, ``pointer.store(...)``) is the object and its first argument.
    """
    call = _call_at(location)
    if call is None:
        return None, None
    source = "".join(linecache.getlines(location.file))
    mask = next((keyword.value for keyword in call.keywords if keyword.arg == "mask"), None)
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    place = 1 if name == "load" else 2
    if mask is None and len(call.args) > place and name in ("load", "store"):
        mask = call.args[place]
    address = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("pointer", "offsets")), None)
    text = _text(source, address)
    if text is not None and isinstance(address, ast.List) and isinstance(function, ast.Attribute):
        text = f"{_text(source, function.value)} at {text}"
    return text, _text(source, mask)


def _text(source: str, node: ast.AST | None) -> str | None:
    if node is None:
        return None
    segment = ast.get_source_segment(source, node)
    return None if segment is None else " ".join(segment.split())


def _call_at(location: SourceLocation) -> ast.Call | None:
    """The innermost call that begins at the location's line and column (columns count from 1)."""
    lines = linecache.getlines(location.file)
    if not lines or not 0 < location.line <= len(lines):
        return None
    calls = _calls("".join(lines)).get(location.line, ())
    # In ``tl.load(p).to(tl.int32)`` two calls begin at one place; the walk gives the inner one last.
    return next((call for call in reversed(calls) if call.col_offset == location.column - 1), None)


@functools.lru_cache(maxsize=32)
def _calls(source: str) -> dict[int, tuple[ast.Call, ...]]:
    try:
        tree = undisturbed(lambda: ast.parse(source))
    except SyntaxError:  # the file has changed since
        return {}
    found: dict[int, list[ast.Call]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.setdefault(node.lineno, []).append(node)
    return {line: tuple(calls) for line, calls in found.items()}
