"""Where the running program stands in the kernel's source, and the sites of its operations.

A site is one operation reached by one chain of calls, as in the IR engine, so that clients see the same sites. The place is
read off the Python stack: the frames that run rewritten code are the kernel's and its helpers', and their code keeps the
user's files, lines and columns.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from tritontrace import events
from tritontrace.engines.ir import numerics
from tritontrace.engines.ir.codegen import triton_dtype
from tritontrace.engines.ir.runtime import MemorySite
from tritontrace.source import SourceLocation

__all__ = [
    "CodeInfo",
    "Sites",
    "is_kernel_code",
    "kernel_frames",
    "locate",
    "original_of",
    "place",
    "register",
    "result_is_read",
    "set_boundary",
]


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """What is known of a code object that runs rewritten source.

    `variables` are names by the place of what they are bound to, `ignored` the places of calls whose results nothing reads;
    `original` is the user's function.
    """

    code: CodeType
    function: str
    variables: dict[tuple[int, int], str]
    ignored: frozenset[tuple[int, int]]
    original: weakref.ref[Any]


_CODES: dict[int, CodeInfo] = {}
"""Rewritten code by identity. Each entry holds its code object, so that an id is never used again for another."""


def register(info: CodeInfo) -> None:
    """Make code, and the code nested in it, known as the source of a function."""
    _CODES[id(info.code)] = info
    for inner in info.code.co_consts:
        if isinstance(inner, CodeType):
            register(replace(info, code=inner))


def original_of(code: CodeType) -> Any:
    """The user's function that rewritten `code` runs, or None."""
    info = _CODES.get(id(code))
    return None if info is None else info.original()


def result_is_read() -> bool:
    """False if nothing reads the result of the call that the running program stands at. Python 3.10 does not know."""
    frames = kernel_frames(sys._getframe(1))
    if not frames:
        return True
    line, column, _ = place(frames[0])
    return (line, column - 1) not in _CODES[id(frames[0].f_code)].ignored


def kernel_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames of the running program, innermost first. A program that another one's launch contains is not looked into."""
    found = []
    while frame is not None:
        if id(frame.f_code) in _CODES:
            found.append(frame)
        elif frame.f_code is _boundary:
            break
        frame = frame.f_back
    return found


_boundary: CodeType | None = None


def set_boundary(code: CodeType) -> None:
    """The code of the engine's function that calls kernels; the stack is read no further."""
    global _boundary
    _boundary = code


@lru_cache(maxsize=4096)
def _positions(code_id: int) -> Any:
    code = _CODES[code_id].code
    reader = getattr(code, "co_positions", None)  # Python 3.11 and later
    return None if reader is None else list(reader())


def locate(frame: FrameType) -> SourceLocation:
    """The place of the expression that `frame` is evaluating."""
    line, column, function = place(frame)
    return SourceLocation(frame.f_code.co_filename, line, column, function)


def place(frame: FrameType) -> tuple[int, int, str]:
    """(line, column from 1, function) of a kernel's frame; column 0 where Python does not know it."""
    info = _CODES[id(frame.f_code)]
    line, column = frame.f_lineno or 0, 0
    positions = _positions(id(frame.f_code))
    if positions is not None:
        first, _, start, _ = positions[frame.f_lasti // 2]
        if first is not None and start is not None:
            line, column = first, start + 1
    return line, column, info.function


class Sites:
    """The sites of one launch, by place. Ids count from 0 in the order in which operations are first met."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def event(self, op: str, block: tuple[int, ...], element: str) -> events.Site:
        """The site of the operation that is being executed."""
        frames = kernel_frames(sys._getframe(1))
        key = (op, block, element, tuple([(id(frame.f_code), frame.f_lasti) for frame in frames]))
        site = self._known.get(key)
        if site is None:
            site = self._known[key] = self._make(op, block, element, frames)
        return site

    def memory(self, op: str, block: tuple[int, ...], element: str, parameter: str | None) -> MemorySite:
        """As `event`, of a memory operation through a pointer that comes from `parameter`."""
        frames = kernel_frames(sys._getframe(1))
        key = (op, block, element, parameter, tuple([(id(frame.f_code), frame.f_lasti) for frame in frames]))
        site = self._known.get(key)
        if site is None:
            event = self._make(op, block, element, frames)
            event.parameter = parameter
            site = self._known[key] = MemorySite(event, element)
        return site

    def _make(self, op: str, block: tuple[int, ...], element: str, frames: list[FrameType]) -> events.Site:
        places = [locate(frame) for frame in frames]
        location = places[0] if places else None
        variable = None
        if location is not None:
            variable = _CODES[id(frames[0].f_code)].variables.get((location.line, location.column - 1))
        known = element.startswith("ptr<") or not element or element[0] in "fib"
        return events.Site(
            id=len(self._known),
            op=op,
            location=location,
            call_stack=tuple(reversed(places[1:])),
            block=block,
            dtype=triton_dtype(element),
            element_bits=numerics.element_bytes(element) * 8 if element and known else 32,
            variable=variable,
        )


def is_kernel_code(code: CodeType) -> bool:
    """True for code that runs rewritten source."""
    return id(code) in _CODES
