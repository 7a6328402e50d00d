"""Findings and sessions as text for people."""

from __future__ import annotations

import io
import linecache
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from rich.console import Console, Group
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tritontrace.reports.expressions import access_expressions
from tritontrace.reports.profile import profiles

if TYPE_CHECKING:
    from tritontrace.findings import Finding
    from tritontrace.launch import ArgumentInfo, Launch
    from tritontrace.source import SourceLocation

__all__ = ["ReportSource", "format_elements", "format_programs", "render", "render_finding"]

DEFAULT_WIDTH = 110
_CONTEXT_LINES = 2
_MOST_RANGES = 8
"""Ranges of programs, elements or iterations shown before the rest is only counted."""


class ReportSource(Protocol):
    """What a report is made of; a `Session` is one."""

    @property
    def launches(self) -> Sequence[Launch]: ...

    @property
    def findings(self) -> Sequence[Finding]: ...


def render(session: ReportSource, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """The whole report of a session: a summary line, every finding, every profile, and the launches that ended early."""
    launches, findings = list(session.launches), list(session.findings)
    parts: list[Any] = [_headline(launches, findings)]
    parts += [Text(f"  only part of {_launch_title(launch)} ran: {_ran(launch)}") for launch in launches if _in_part(launch)]
    for number, finding in enumerate(findings, 1):
        parts += [Text(), _finding(finding, f"{number} of {len(findings)}: ")]
    for launch in launches:
        described = [line for records in launch.records.values() for record in records for line in _described(record)]
        if described:
            parts += [Text(), Rule(Text(_launch_title(launch), "bold"), align="left", characters="─")]
            parts += [Text(f"  {line}") for line in described]
    parts += profiles(launches)
    failed = [launch for launch in launches if launch.error is not None]
    if failed:
        parts += [Text(), Rule(Text("launches that raised", "bold"), align="left", characters="─")]
        for launch in failed:
            parts.append(Text(f"  {_launch_title(launch)}: {type(launch.error).__name__}: {launch.error}"))
            parts += [Text(f"    {note}") for note in getattr(launch.error, "__notes__", ())]
    return _to_text(Group(*parts), width, color)


def _described(record: Any) -> list[str]:
    """What a record that is no finding says of itself."""
    describe = getattr(record, "describe", None)
    return str(describe()).splitlines() if callable(describe) else []


def render_finding(finding: Finding, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """One finding: where in the source, what memory, which elements, which programs."""
    return _to_text(_finding(finding, ""), width, color)


def format_programs(programs: npt.NDArray[np.int32]) -> str:
    """Program ids (int32 ``[N, 3]``) as ranges: ``(0..3, 1, 0)`` is the four programs with x from 0 to 3."""
    boxes = _boxes(programs)
    shown = ", ".join(f"({', '.join(_range(low, high) for low, high in box)})" for box in boxes[:_MOST_RANGES])
    rest = sum(_volume(box) for box in boxes[_MOST_RANGES:])
    return f"{shown} and {rest} more" if rest else shown


def format_elements(elements: npt.NDArray[np.int64]) -> str:
    """Sorted indices as ranges, ``80..95, 100``; evenly spaced ones as ``1, 3, .. 9 (every 2)``."""
    if len(elements) > 2:
        step = int(elements[1] - elements[0])
        if step > 1 and bool((np.diff(elements) == step).all()):
            return f"{elements[0]}, {elements[1]}, .. {elements[-1]} (every {step})"
    runs = _runs(elements)
    shown = ", ".join(_range(low, high) for low, high in runs[:_MOST_RANGES])
    rest = sum(high - low + 1 for low, high in runs[_MOST_RANGES:])
    return f"{shown} and {rest} more" if rest else shown


def _to_text(content: Any, width: int, color: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    console.print(content)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _headline(launches: Sequence[Launch], findings: Sequence[Finding]) -> Text:
    kernels = Counter(launch.kernel_name for launch in launches)
    names = ", ".join(name if count == 1 else f"{name} (x{count})" for name, count in kernels.items())
    if not launches and not findings:
        return Text("tritontrace: no launch was traced")
    unseen = not any(launch.records for launch in launches) and not findings
    what = "no client looked for anything" if unseen else "no findings" if not findings else _count(len(findings), "finding")
    line = f"tritontrace: {what} in {_count(len(launches), 'traced launch', 'traced launches')}"
    plain = unseen or any(map(_in_part, launches))
    return Text(f"{line}: {names}" if names else line, "bold red" if findings else "" if plain else "bold green")


def _in_part(launch: Launch) -> bool:
    return launch.programs is not None and len(launch.programs) < launch.n_programs


def _ran(launch: Launch) -> str:
    programs = np.array(launch.programs, np.int32).reshape(-1, 3)
    ran = f"program{'s' if len(programs) > 1 else ''} {format_programs(programs)}" if len(programs) else "no program"
    return f"{ran} of {launch.n_programs}"


def _finding(finding: Finding, prefix: str) -> Group:
    title = " ".join(part for part in (finding.kind.replace("_", "-"), finding.access) if part)
    if finding.tensor is not None:
        title += f" of {finding.tensor}"
    if finding.benign:
        title += " (benign)"
    where = f" in {_launch_title(finding.launch)}" if finding.launch is not None else ""
    parts: list[Any] = [Rule(Text(f"{prefix}{title}{where}", "bold"), align="left", characters="─")]
    if finding.location is not None:
        parts += _source(finding.location)
    parts += _callers(finding.call_stack)
    if finding.use is not None:
        parts += [Text("  used at", "dim"), *_source(finding.use, context=0)]
    other = (finding.other or {}).get("location")
    if other is not None:
        parts += [Text("  against", "dim"), *_source(other, context=0)]
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(finding):
        facts.add_row(name, value)
    parts.append(Padding(facts, (0, 0, 0, 2)))
    return Group(*parts)


def _facts(finding: Finding) -> Iterable[tuple[str, str]]:
    launch, details = finding.launch, finding.details
    info = launch.arguments.get(finding.tensor) if launch is not None and finding.tensor is not None else None
    if info is not None and info.is_tensor:
        yield "tensor", _tensor(info)
    if len(finding.elements):
        count, (first, last) = len(finding.elements), finding.elements[[0, -1]]
        ends = f" (first {first}, last {last})" if count > 1 else ""
        text = f"{_count(count, 'element')}: {format_elements(finding.elements)}{ends}"
        if details.get("all_elements_listed") is False:
            known = details.get("elements_in_all")
            text = f"{known} in all; the first: {text}" if known else f"more than are listed; the first that were met: {text}"
        if info is not None and details.get("element_bytes", info.element_bytes) != info.element_bytes:
            text += f", counted in {details.get('element_type') or 'the access'} elements of {details['element_bytes']} bytes"
        yield "elements", text
    elif "first_address" in details:
        yield "addresses", f"{details['first_address']:#x} to {details['last_address']:#x}"
    if finding.kind == "out_of_bounds":
        yield "outside", _outside(finding)
        if "wrapped" in details:
            yield "why", _wrapped(details["wrapped"])
    if len(finding.programs):
        total = f" of {launch.n_programs}" if launch is not None else ""
        yield "programs", f"{_count(len(finding.programs), 'program')}{total}: {format_programs(finding.programs)}"
    others = (finding.other or {}).get("programs")
    if others is not None and len(others):
        yield "against", format_programs(np.asarray(others, np.int32).reshape(-1, 3))
    if finding.lanes is not None and len(finding.lanes):
        yield "lanes", format_elements(finding.lanes)
    if finding.iterations:
        yield "loop", _loops(finding.iterations)
    address, mask = access_expressions(finding.location) if finding.location is not None else (None, None)
    if address is not None and finding.kind in ("out_of_bounds", "uninitialized"):
        yield "address", address
    if finding.kind == "out_of_bounds" and "masked" in details:
        given = f"{mask}, which lets these lanes through" if mask else "given, but it lets these lanes through"
        yield "mask", given if details["masked"] or mask else "none given"
    elif finding.kind == "undefined_lane":
        yield "mask", f"{mask}, without other=" if mask else "given, without other="
        yield "reaches", str(details.get("uses", ""))
        yield "remedy", "give the load an other=, or mask the use"
    elif finding.kind == "race" and "why" in details:
        yield "race", str(details["pair"])
        yield "why", str(details["why"])
        yield "remedy", str(details["remedy"])
    elif finding.kind != "out_of_bounds":
        yield "message", finding.message


def _outside(finding: Finding) -> str:
    details = finding.details
    size = details.get("element_bytes", 1)
    far = []
    if details.get("bytes_before"):
        far.append(f"up to {_distance(details['bytes_before'], size)} before the start")
    if details.get("bytes_after"):
        far.append(f"up to {_distance(details['bytes_after'], size)} past the end")
    if finding.tensor is None:
        far = ["in no known memory; name it with session.register_memory if the kernel may reach it"]
    text = " and ".join(far) or "between the elements of the strided view"
    neighbour = details.get("neighbour")
    if details.get("inside_storage"):
        text += ", still inside the tensor's storage"
    if neighbour is not None:
        text += f"; that is memory of argument {neighbour}"
    return text


def _wrapped(element: int) -> str:
    return f"the offset wrapped at 32 bits; element {element} was meant: widen before multiplying, x.to(tl.int64) * stride"


def _distance(nbytes: int, size: int) -> str:
    if nbytes % size == 0 and size > 1:
        return f"{_count(nbytes // size, 'element')} ({_count(nbytes, 'byte')})"
    return _count(nbytes, "byte")


def _tensor(info: ArgumentInfo) -> str:
    if info.shape is None:
        return f"{info.name}: {info.dtype}, a pointer without a shape, on {info.device} ({info.type})"
    shape, stride = list(info.shape), list(info.stride or ())
    return f"{info.name}: {info.dtype} {shape}, stride {stride}, on {info.device} ({info.type})"


def _loops(iterations: Sequence[tuple[int, ...]]) -> str:
    array = np.unique(np.array(iterations, np.int64).reshape(len(iterations), -1), axis=0)
    if array.shape[1] == 1:
        word = "iteration" if len(array) == 1 else "iterations"
        return f"{word} {format_elements(array[:, 0])}"
    shown = ", ".join(str(tuple(int(i) for i in row)) for row in array[:_MOST_RANGES])
    rest = f" and {len(array) - _MOST_RANGES} more" if len(array) > _MOST_RANGES else ""
    return f"iterations {shown}{rest} (outermost loop first)"


def _launch_title(launch: Launch) -> str:
    title = f"{launch.kernel_name}[{', '.join(map(str, launch.grid))}], launch {launch.index}"
    return f"{title} (config {dict(launch.config)})" if launch.config else title


def _source(location: SourceLocation, context: int = _CONTEXT_LINES) -> list[Any]:
    """The line with a caret under the access, and the lines before and behind it."""
    function = f" in {location.function}" if location.function else ""
    parts: list[Any] = [Text(f"  {location.file}:{location.line}{function}", "cyan")]
    for number in range(max(1, location.line - context), location.line + context + 1):
        line = linecache.getline(location.file, number).rstrip()
        here = number == location.line
        if not line and not here:
            continue
        parts.append(
            Text(f"  {'>' if here else ' '} {number:>5} | {line}", "bold" if here else "dim", no_wrap=True, overflow="ellipsis")
        )
        if here and line and location.column > 0:
            # Tabs stay, so that the caret stands under its column whatever their width.
            lead = "".join("\t" if character == "\t" else " " for character in line[: location.column - 1])
            parts.append(Text(f"          | {lead}^", "bold red", no_wrap=True, overflow="ellipsis"))
    return parts


def _callers(call_stack: Sequence[SourceLocation]) -> list[Any]:
    parts: list[Any] = []
    for frame in reversed(call_stack):
        function = f" in {frame.function}" if frame.function else ""
        parts.append(Text(f"  called from {frame.file}:{frame.line}{function}", "cyan"))
        line = linecache.getline(frame.file, frame.line).strip()
        if line:
            parts.append(Text(f"    {frame.line:>5} | {line}", no_wrap=True, overflow="ellipsis"))
    return parts


def _runs(values: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Sorted distinct integers as inclusive runs."""
    if not len(values):
        return []
    breaks = np.flatnonzero(np.diff(values) != 1)
    starts, ends = np.r_[0, breaks + 1], np.r_[breaks, len(values) - 1]
    return [(int(values[a]), int(values[b])) for a, b in zip(starts, ends, strict=True)]


_Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


def _boxes(programs: npt.NDArray[np.int32]) -> list[_Box]:
    """The programs as boxes of ids: runs of x, joined over neighbouring y and z where they repeat."""
    ids = np.unique(np.asarray(programs, np.int64).reshape(-1, 3)[:, ::-1], axis=0)  # z, y, x
    if not len(ids):
        return []
    by_run: dict[int, dict[tuple[int, int], list[int]]] = {}  # z: run of x: every y that has it
    for group in np.split(ids, np.flatnonzero((ids[1:, :2] != ids[:-1, :2]).any(axis=1)) + 1):
        for run in _runs(group[:, 2]):
            by_run.setdefault(int(group[0, 0]), {}).setdefault(run, []).append(int(group[0, 1]))
    planes = {z: [(run, span) for run, ys in runs.items() for span in _runs(np.array(ys))] for z, runs in by_run.items()}
    by_rectangle: dict[tuple[tuple[int, int], tuple[int, int]], list[int]] = {}
    for z, rectangles in planes.items():
        for rectangle in rectangles:
            by_rectangle.setdefault(rectangle, []).append(z)
    return [(x, y, z_span) for (x, y), zs in by_rectangle.items() for z_span in _runs(np.array(zs))]


def _volume(box: _Box) -> int:
    size = 1
    for low, high in box:
        size *= high - low + 1
    return size


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}..{high}"


def _count(number: int, word: str, plural: str | None = None) -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"
