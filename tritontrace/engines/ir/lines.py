"""Which statements of the source are executed.

The frontend leaves a mark in the IR where it begins a statement: an operation with an effect, so that it stays in the block
that it was made in, whatever becomes of the statement's own operations (a constant, a ``tl.constexpr`` branch and a docstring
leave none). The marks of a block become one operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritontrace import events
from tritontrace.engines.ir.companions import closed_functions
from tritontrace.engines.ir.tree import Module, Op, Region, walk

if TYPE_CHECKING:
    from tritontrace.engines.ir.runtime import Frame

__all__ = ["LINES_OP", "executed", "mark_lines", "statement_mark"]

LINES_OP = "tritontrace.lines"
_PREFIX = "tritontrace statement|"

_Statement = tuple[str, int, bool]


def statement_mark(file: str, line: int, taken: bool) -> str:
    """The text of a mark; see `events.Executed` for its parts."""
    return f"{_PREFIX}{int(taken)}|{line}|{file}|"


def mark_lines(module: Module) -> None:
    """Turns the marks into operations, one a block, in place.

    The marks inside what reductions and scans combine with go to where those stand: it is run as the engine likes.
    """
    moved = {name: _take(module.functions[name].body) for name in closed_functions(module)}
    for function in module.functions.values():
        _gather(function.body, moved)


def _take(region: Region) -> list[_Statement]:
    """Takes the marks out of a region."""
    found: list[_Statement] = []
    for block in region.blocks:
        found.extend(statement for op in block.ops for statement in _statement(op))
        block.ops = [op for op in block.ops if not _statement(op)]
        for op in block.ops:
            for inner in op.regions:
                found.extend(_take(inner))
    return found


def _statement(op: Op) -> list[_Statement]:
    prefix = str(op.attributes.get("prefix", "")) if op.name == "tt.print" else ""
    start = prefix.find(_PREFIX)
    if start < 0:
        return []
    taken, line, file = prefix[start + len(_PREFIX) :].rsplit("|", 1)[0].split("|", 2)
    return [(file, int(line), taken == "1")]


def _gather(region: Region, moved: dict[str, list[_Statement]]) -> None:
    for block in region.blocks:
        statements: dict[_Statement, None] = {}
        first: Op | None = None
        kept: list[Op] = []
        for op in block.ops:
            marks = _statement(op)
            inside: list[_Statement] = []
            if op.name in ("tt.reduce", "tt.scan", "tt.map_elementwise"):
                for inner in op.regions:
                    inside.extend(_take(inner))
                    inside.extend(s for call in walk(inner) if call.name == "tt.call" for s in moved[call.attributes["callee"]])
            else:
                if op.name == "tt.call":
                    inside.extend(moved.get(op.attributes["callee"], ()))
                for inner in op.regions:
                    _gather(inner, moved)
            if (marks or inside) and first is None:
                first = Op(LINES_OP, [], [], {}, [], [], op.location)
                kept.append(first)
            statements.update(dict.fromkeys([*marks, *inside]))
            if not marks:
                kept.append(op)
        if first is not None:
            first.attributes = {"statements": tuple(statements)}
        block.ops = kept


def executed(frame: Frame, site: events.Site) -> None:
    """Tells clients once that a block was executed."""
    rt = frame.rt
    if site.id not in rt.executed:
        rt.executed.add(site.id)
        rt.before(events.Executed(rt.launch, site, frame, site.attributes["statements"]))
