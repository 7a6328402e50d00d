"""MLIR's locations: ``loc("file":line:col)``, named, fused and call-site ones, behind ``#loc`` aliases."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import triton

from tritontrace.engines.ir.tree import NO_LOCATION, OpLocation
from tritontrace.source import SourceLocation

if TYPE_CHECKING:
    from tritontrace.events import Site

__all__ = ["Locations", "python_name", "unescape", "users_place"]

_TRITON = os.path.dirname(os.path.abspath(triton.__file__)) + os.sep

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\((.*)\))?$', re.S)
_FUSED = re.compile(r"fused(?:<.*?>)?\[(.*)\]$", re.S)
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.S)
_SIMPLE_ESCAPES = {b"n": b"\n", b"t": b"\t"}


def unescape(text: str) -> str:
    """The string that a quoted MLIR string (without its quotes) stands for; bytes are UTF-8."""
    if "\\" not in text:
        return text

    def replace(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return bytes([int(code, 16)]) if len(code) == 2 else _SIMPLE_ESCAPES.get(code, code)

    return _ESCAPE.sub(replace, text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def python_name(symbol: str) -> str:
    """The Python function's name in a mangled symbol: ``"pkg.mod.helper__fp32_i32"`` -> ``"helper"``.

    Triton appends ``__`` and the argument types. A function's own name may hold ``__`` too, so this is for display.
    """
    module_and_name = symbol
    # the first "__" after the name: dunder parts of the module (`__main__.`) come before its last dot
    for match in re.finditer("__", symbol):
        head = symbol[: match.start()]
        rest = symbol[match.end() :]
        if head and not head.endswith(".") and not rest.startswith("."):
            module_and_name = head
            break
    return module_and_name.rpartition(".")[2] or symbol


def users_place(where: OpLocation | Site) -> SourceLocation | None:
    """Where the user's code asks for the operation: for one inside ``tl.sum`` the line that calls ``tl.sum``."""
    frames = (*where.call_stack, *([where.location] if where.location is not None else []))
    own = [frame for frame in frames if not frame.file.startswith(_TRITON)]
    return own[-1] if own else where.location


class Locations:
    """Resolves the location texts of one module; every distinct one is parsed once per function."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str | None, dict[str, OpLocation]] = {}

    def resolve(self, text: str, function: str | None) -> OpLocation:
        """The location that `text` (what stands between ``loc(`` and ``)``) names, in a function of that name."""
        known = self._known.get(function)
        if known is None:
            known = self._known[function] = {}
        found = known.get(text)
        if found is None:
            variable, frames = self._frames(text, 0)
            if frames:
                # only the outermost frame is in `function`: the others were inlined into it by Triton
                places = [SourceLocation(file, line, column) for file, line, column in frames]
                outermost = places[-1]
                places[-1] = SourceLocation(outermost.file, outermost.line, outermost.column, function)
                found = OpLocation(places[0], tuple(reversed(places[1:])), variable)
            else:
                found = OpLocation(None, (), variable) if variable else NO_LOCATION
            known[text] = found
        return found

    def _frames(self, text: str, depth: int) -> tuple[str | None, list[tuple[str, int, int]]]:
        """(variable, frames innermost first)."""
        variable: str | None = None
        while depth < 200:  # aliases cannot form a cycle in valid text; invalid text must not hang us
            depth += 1
            text = text.strip()
            if text.startswith("#"):
                text = self._aliases.get(text, "unknown")
                continue
            if text.startswith("loc("):
                text = text[4:-1]
                continue
            if text.startswith("callsite("):
                callee, caller = _split_callsite(text[9:-1])
                name, inner = self._frames(callee, depth)
                _, outer = self._frames(caller, depth)
                return variable or name, inner + outer
            match = _FILE.match(text)
            if match:
                return variable, [(unescape(match.group(1)), int(match.group(2)), int(match.group(3)))]
            match = _NAMED.match(text)
            if match:
                variable = variable or unescape(match.group(1))
                if match.group(2) is None:
                    return variable, []
                text = match.group(2)
                continue
            match = _FUSED.match(text)
            if match:
                return self._first_of(match.group(1), variable, depth)
            return variable, []
        return variable, []

    def _first_of(self, text: str, variable: str | None, depth: int) -> tuple[str | None, list[tuple[str, int, int]]]:
        """The first of a fused location's parts that names a place."""
        for part in _split_top(text, ","):
            name, frames = self._frames(part, depth)
            if frames:
                return variable or name, frames
        return variable, []


def _split_callsite(text: str) -> tuple[str, str]:
    parts = _split_top(text, " at ")
    return parts[0], " at ".join(parts[1:]) or "unknown"


def _split_top(text: str, separator: str) -> list[str]:
    """`text` split at the separators that stand in no bracket and no string."""
    parts = []
    depth = start = index = 0
    while index < len(text):
        char = text[index]
        if char == '"':
            index += 1
            while index < len(text) and text[index] != '"':
                index += 2 if text[index] == "\\" else 1
        elif char in "([<{":
            depth += 1
        elif char in ")]>}":
            depth -= 1
        elif depth == 0 and text.startswith(separator, index):
            parts.append(text[start:index])
            start = index + len(separator)
        index += 1
    parts.append(text[start:])
    return parts
