"""Which lines of kernels are executed, as coverage.py data."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tritontrace import events
from tritontrace.clients.base import Client, OpCallbacks
from tritontrace.engines.base import LINES
from tritontrace.forking import fork_safe
from tritontrace.parsing import undisturbed

if TYPE_CHECKING:
    from tritontrace.launch import Launch

__all__ = ["Coverage"]

_Statement = tuple[str, int, bool]
_WRITING = fork_safe(threading.Lock())


class Coverage(Client):
    """Records the statements of kernels, and of the helpers they call, that at least one program executed.

    The file that it writes is coverage.py's: ``coverage report --data-file=...`` and ``coverage html`` show kernels with it,
    and ``coverage combine`` merges it with what it measured of the rest of the program.

    `data_file`
        Where to write; the default is found by ``coverage combine`` next to a ``.coverage``.
    `append`
        Add to what the file has. False: begin anew, with the first launch that this client sees.
    `branch`
        Record branches, too. coverage.py merges such data only with data that has branches (``coverage run --branch``).

    A launch's statements are in the file when the launch has ended. ``launch.records["coverage"]`` has (file, sorted lines).

    Raises `ImportError` without coverage.py: ``pip install 'tritontrace[coverage]'``.
    """

    name = "coverage"
    instruments = frozenset({LINES})

    def __init__(
        self, *, data_file: str | os.PathLike[str] = ".coverage.tritontrace", append: bool = False, branch: bool = True
    ) -> None:
        _coverage()
        self.data_file = os.path.abspath(data_file)
        self.append = append
        self.branch = branch
        self._all: _Merged = _Merged(self.data_file, append, branch)
        self._statements: set[_Statement] = set()

    def for_launch(self, launch: Launch) -> Coverage:
        """A client of its own for each launch; all of them add to one file."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        own._statements = set()
        return own

    def register_op_callback(self, op: type[events.Event]) -> OpCallbacks | None:
        """Listens to what is executed."""
        return OpCallbacks(before=self._executed) if op is events.Executed else None

    def _executed(self, event: events.Executed) -> None:
        self._statements.update(event.statements)

    def finalize(self) -> list[Any]:
        """Writes the file, if this launch executed something new."""
        self._all.add(self._statements)
        lines: dict[str, set[int]] = {}
        for file, line, taken in self._statements:
            if taken:
                lines.setdefault(file, set()).add(line)
        return [(file, sorted(found)) for file, found in sorted(lines.items())]


class _Merged:
    """What all launches of one client executed, and the file that says so."""

    def __init__(self, data_file: str, append: bool, branch: bool) -> None:
        self.data_file = data_file
        self.append = append
        self.branch = branch
        self.statements: set[_Statement] = set()
        self.begun = False
        self.written = -1

    def add(self, statements: set[_Statement]) -> None:
        # One writer in the process: two clients may name one file.
        with _WRITING:
            self.statements |= statements
            if len(self.statements) != self.written:
                self._write()
                self.written = len(self.statements)

    def _write(self) -> None:
        data = _coverage().CoverageData(basename=self.data_file)
        if not self.begun and not self.append:
            data.erase()
        self.begun = True
        if os.path.exists(self.data_file):
            data.read()
        by_file: dict[str, set[tuple[int, bool]]] = {}
        for file, line, taken in self.statements:
            by_file.setdefault(file, set()).add((line, taken))
        known = {file: _Source(file, found) for file, found in by_file.items() if os.path.exists(file)}
        if self.branch:
            data.add_arcs({file: source.arcs() for file, source in known.items()})
        else:
            data.add_lines({file: source.lines() for file, source in known.items()})
        data.close()


class _Source:
    """One file: what coverage.py would have seen of the statements that were executed."""

    def __init__(self, file: str, found: Iterable[tuple[int, bool]]) -> None:
        from coverage.python import PythonFileReporter

        found = set(found)
        self.possible: set[tuple[int, int]] = set(PythonFileReporter(file, _parsing()).arcs())
        self.executed = {line for line, taken in found if taken}
        self.skipped = {line for line, taken in found if not taken}
        self.syntax = _Syntax(file)

    def lines(self) -> set[int]:
        """The lines that were executed; Python executed the ``def`` of a function that ran."""
        return self.executed | self._headers()

    def _headers(self) -> set[int]:
        return {line for lines, body in self.syntax.functions if not self.executed.isdisjoint(body) for line in lines}

    def arcs(self) -> set[tuple[int, int]]:
        """The ways between executed statements that were taken."""
        headers = self._headers()
        exits: dict[int, set[int]] = {}
        for start, end in self.possible:
            exits.setdefault(start, set()).add(end)
        taken: set[tuple[int, int]] = set()
        for start, end in self.possible:
            if start in headers:
                # where it went from there concerns the module, which is not a kernel's
                taken.add((start, end if end in headers else -1))
            elif start < 0:
                if end in self.executed:
                    taken.add((start, end))
            elif start in self.executed and self._goes(start, end, exits[start]):
                taken.add((start, end))
        return taken

    def _goes(self, start: int, end: int, exits: set[int]) -> bool:
        if len(exits) == 1:
            return True
        first, other = self.syntax.branches.get(start, (None, None))
        if end == first:
            return end in self.executed and end != start
        if start in self.syntax.loops:
            return True  # it ended: nothing leaves a kernel in the middle of a loop
        if other is not None:
            return end in self.executed
        return start in self.skipped


class _Syntax:
    """Of a file's syntax: what each ``if``, ``for`` and ``while`` begins its branches with, and where functions are."""

    def __init__(self, file: str) -> None:
        import ast

        from coverage.python import get_python_source

        self.branches: dict[int, tuple[int | None, int | None]] = {}
        self.loops: set[int] = set()
        self.functions: list[tuple[set[int], range]] = []
        for node in ast.walk(undisturbed(lambda: ast.parse(get_python_source(file)))):
            if isinstance(node, (ast.If, ast.For, ast.While)):
                other = node.orelse[0].lineno if node.orelse else None
                self.branches[node.lineno] = (node.body[0].lineno, other)
                if not isinstance(node, ast.If):
                    self.loops.add(node.lineno)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}
                self.functions.append((lines, range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)))


def _parsing() -> Any:
    """A `coverage.Coverage` that measures nothing: coverage.py wants one to read a file's structure with."""
    return _coverage().Coverage(data_file=None, config_file=False)


def _coverage() -> Any:
    try:
        import coverage
    except ImportError:
        raise ImportError(
            "the coverage client writes coverage.py data, and coverage.py is not installed: pip install 'tritontrace[coverage]'"
        ) from None
    return coverage
