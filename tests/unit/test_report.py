"""The text report: what it says, line by line."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import tritontrace
from tests.unit.made_events import launch_of
from tritontrace.findings import Finding
from tritontrace.launch import Launch
from tritontrace.reports.data import as_dict
from tritontrace.reports.text import format_elements, format_programs, render, render_finding
from tritontrace.source import SourceLocation


@pytest.fixture
def source(tmp_path: Any) -> str:
    path = tmp_path / "kernels.py"
    path.write_text("# one\ndef put(ptr, v):\n    tl.store(ptr, v)\n# four\ndef kernel(x):\n\tput(x, 1)\n# seven\n")
    return str(path)


def finding(source: str, launch: Launch, **changes: Any) -> Finding:
    settings: dict[str, Any] = {
        "kind": "out_of_bounds",
        "message": "out-of-bounds store",
        "client": "sanitizer",
        "access": "store",
        "tensor": "x",
        "location": SourceLocation(source, 3, 5, "put"),
        "call_stack": (SourceLocation(source, 6, 2, "kernel"),),
        "programs": np.array([[1, 0, 0], [2, 0, 0], [3, 0, 0]], np.int32),
        "elements": np.array([8, 9, 10, 15]),
        "iterations": ((2,), (3,)),
        "launch": launch,
        "details": {"bytes_before": 0, "bytes_after": 32, "element_bytes": 4, "neighbour": "y", "masked": False, "gaps": False},
    }
    return Finding(**{**settings, **changes})


def test_a_finding_says_where_what_and_who(source: str) -> None:
    launch = launch_of(x=torch.zeros(4, 2), y=torch.zeros(3))
    text = render_finding(finding(source, launch))
    lines = text.splitlines()
    assert lines[0].startswith("out-of-bounds store of x in kernel[4, 1, 1], launch 0")
    at = next(i for i, line in enumerate(lines) if line.startswith("  >"))
    assert lines[at - 1].rstrip() == "        2 | def put(ptr, v):"
    assert lines[at] == "  >     3 |     tl.store(ptr, v)"
    assert lines[at + 1] == "          |     ^"
    assert lines[at + 2] == "        4 | # four"
    assert lines[at + 1].index("^") == lines[at].index("tl.store")
    assert f"called from {source}:6 in kernel" in text and "6 | put(x, 1)" in text
    assert "x: float32 [4, 2], stride [2, 1], on cpu (*fp32)" in text
    assert "4 elements: 8..10, 15 (first 8, last 15)" in text
    assert "up to 8 elements (32 bytes) past the end; that is memory of argument y" in text
    assert "3 programs of 4: (1..3, 0, 0)" in text
    assert "iterations 2..3" in text
    assert "none given" in text


def test_the_caret_keeps_tabs(source: str) -> None:
    text = render_finding(finding(source, launch_of(x=torch.zeros(2)), location=SourceLocation(source, 6, 2), call_stack=()))
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  >"))
    assert lines[at + 1].index("^") == lines[at].index("put")


def test_a_place_without_source_still_gets_a_report() -> None:
    launch = launch_of(x=torch.zeros(2))
    text = render_finding(finding("<stdin>", launch, location=SourceLocation("<stdin>", 4, 9), call_stack=()))
    assert "<stdin>:4" in text
    assert "store of x" in render_finding(finding("", launch, location=None, call_stack=()))


def test_pointers_from_nowhere(source: str) -> None:
    details = {"first_address": 4096, "last_address": 8192, "element_bytes": 4, "masked": True}
    made = finding(source, launch_of(x=torch.zeros(2)), tensor=None, elements=np.zeros(0, np.int64), details=details)
    text = render_finding(made)
    assert "0x1000 to 0x2000" in text and "register_memory" in text


def test_a_strided_view_and_its_storage(source: str) -> None:
    launch = launch_of(x=torch.zeros(9)[::2])
    details = {"bytes_before": 0, "bytes_after": 0, "element_bytes": 4, "inside_storage": True, "masked": True, "gaps": True}
    text = render_finding(finding(source, launch, elements=np.array([1]), details=details))
    assert "between the elements of the strided view, still inside the tensor's storage" in text
    assert "1 element: 1\n" in text
    assert "stride [2]" in text


def test_other_kinds_of_finding(source: str) -> None:
    launch = launch_of(x=torch.zeros(2))
    race = finding(
        source,
        launch,
        kind="race",
        benign=True,
        message="two programs store to one cell",
        other={"location": SourceLocation(source, 6, 2), "programs": [(7, 0, 0)]},
    )
    text = render_finding(race)
    assert "race store of x (benign)" in text
    assert "against" in text and "(7, 0, 0)" in text and "two programs store to one cell" in text
    undefined = finding(source, launch, kind="undefined_lane", use=SourceLocation(source, 6, 2), lanes=np.arange(20, 32))
    text = render_finding(undefined)
    assert "used at" in text and "20..31" in text


def test_the_whole_session(source: str) -> None:
    one, two = launch_of(x=torch.zeros(2)), launch_of(x=torch.zeros(2))
    two.index = 1
    one.findings = [finding(source, one), finding(source, one, access="load")]
    session = SimpleNamespace(launches=[one, two], findings=list(one.findings))
    text = render(session)
    assert text.startswith("tritontrace: 2 findings in 2 traced launches: kernel (x2)\n")
    assert "1 of 2: out-of-bounds store of x" in text and "2 of 2: out-of-bounds load of x" in text
    assert "\x1b[" not in text and "\x1b[" in render(session, color=True)
    assert max(map(len, render(session, width=70).splitlines())) <= 70


def test_nothing_found_and_a_launch_that_failed() -> None:
    launch = launch_of(x=torch.zeros(2))
    launch.records = {"sanitizer": []}
    session = SimpleNamespace(launches=[launch], findings=[])
    assert render(session) == "tritontrace: no findings in 1 traced launch: kernel\n"
    assert render(SimpleNamespace(launches=[], findings=[])) == "tritontrace: no launch was traced\n"
    launch.error = RuntimeError("it broke")
    assert "RuntimeError: it broke" in render(session)


def test_text_from_the_user_is_not_markup(source: str) -> None:
    launch = launch_of(x=torch.zeros(2))
    launch.error = RuntimeError("[bold]not[/bold] :smile: [/]")
    assert "[bold]not[/bold] :smile: [/]" in render(SimpleNamespace(launches=[launch], findings=[]))


def test_the_same_as_data(source: str) -> None:
    launch = launch_of(x=torch.zeros(2))
    launch.findings = [finding(source, launch)]
    data = json.loads(json.dumps(as_dict(SimpleNamespace(launches=[launch], findings=launch.findings))))
    assert data["schema_version"] == 1
    assert data["findings"][0]["elements"] == [8, 9, 10, 15]
    assert data["launches"][0]["findings"][0]["location"]["line"] == 3


@pytest.mark.parametrize(
    ("programs", "text"),
    [
        ([(0, 0, 0)], "(0, 0, 0)"),
        ([(i, 0, 0) for i in range(4)], "(0..3, 0, 0)"),
        ([(x, y, z) for x in range(2, 4) for y in range(3) for z in range(2)], "(2..3, 0..2, 0..1)"),
        ([(0, 0, 0), (2, 0, 0), (3, 0, 0)], "(0, 0, 0), (2..3, 0, 0)"),
        ([(1, 0, 0), (1, 2, 0)], "(1, 0, 0), (1, 2, 0)"),
        ([(1, y, 0) for y in range(1000)], "(1, 0..999, 0)"),
        ([], ""),
    ],
)
def test_programs_as_ranges(programs: Any, text: str) -> None:
    ids = np.array(programs, np.int32).reshape(-1, 3)
    assert format_programs(ids) == text
    assert format_programs(ids[::-1]) == text


def test_many_ranges_are_counted() -> None:
    ids = np.array([(2 * i, 0, 0) for i in range(100)], np.int32)
    assert format_programs(ids).endswith("(14, 0, 0) and 92 more")


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        ([100], "100"),
        ([-2, -1], "-2..-1"),
        ([1, 2, 3, 7, 9, 10], "1..3, 7, 9..10"),
        ([1, 3], "1, 3"),
        ([1, 3, 5, 7], "1, 3, .. 7 (every 2)"),
        ([], ""),
    ],
)
def test_elements_as_ranges(elements: list[int], text: str) -> None:
    assert format_elements(np.array(elements, np.int64)) == text


@triton.jit
def expressions_kernel(src, dst, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    value = tl.load(
        src + at * 2,
        mask=at
        < n + 1,
        other=0,
    ).to(tl.int32)
    tl.store(dst + at, value, at < n + 2)


def test_a_report_quotes_the_address_and_the_mask() -> None:
    with tritontrace.session(clients=["sanitizer"]) as session:
        expressions_kernel[(1,)](torch.ones(8), torch.ones(4), 4, TILE=8)
    report = session.report()
    assert "address   src + at * 2" in report and "mask      at < n + 1, which lets these lanes through" in report
    assert "address   dst + at" in report and "mask      at < n + 2, which" in report


@triton.jit
def unfilled_kernel(src, dst, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(dst, tl.sum(tl.load(src + at, at < n)))


def test_a_report_on_undefined_lanes_shows_where_they_go() -> None:
    with tritontrace.session(clients=["sanitizer"]) as session:
        unfilled_kernel[(1,)](torch.ones(8), torch.ones(1), 4, TILE=8)
    report = session.report()
    assert "mask      at < n, without other=" in report and "reaches   meets other lanes at" in report
    assert "lanes     4..7" in report


def test_a_session_without_clients_does_not_call_a_launch_clean() -> None:
    for clients, said in (([], "no client looked for anything in"), (["sanitizer"], "no findings in")):
        with tritontrace.session(clients=clients) as session:
            unfilled_kernel[(1,)](torch.ones(8), torch.ones(1), 8, TILE=8)
        assert f"tritontrace: {said} 1 traced launch: unfilled_kernel" in session.report()
