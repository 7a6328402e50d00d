"""What instruments tell (lines, undefined lanes, NaN and infinity, overflow, float64, flops), in both engines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, reject, settings
from triton.compiler.errors import CompilationError

import tritontrace
from tests.engines import generated
from tests.engines.comparing import Comparing
from tests.engines.instruments import ALL
from tests.engines.test_comparison import CLOSE, EXACT, generated_inputs, rand
from tritontrace import engines
from tritontrace.engines.base import EngineRun


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    plain = engines.get
    ir = getattr(plain("ir"), "first", plain("ir"))

    def launch(run: Any, second: Any = None) -> list[str]:
        engine = Comparing(ir, second or plain("python"), ALL)
        monkeypatch.setattr(engines, "get", lambda name: engine if name == "ir" else plain(name))
        try:
            with tritontrace.session(engine="ir"):
                run()
        finally:
            monkeypatch.setattr(engines, "get", plain)
        assert engine.compared
        return [text for text in engine.differences if "accesses differ" not in text and "in one engine and" not in text]

    return launch


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_corpus(name: str, told: Any) -> None:
    different = told((EXACT | CLOSE)[name])
    # An exponential's last bit depends on where in a vector a lane stands, which differs between the engines on some.
    assert [text for text in different if name in EXACT or "'reference'" not in text] == []


@pytest.mark.filterwarnings("ignore:Logical operators")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=generated.kernels())
def test_generated_kernels(drawn: tuple[str, str], tmp_path: Path, told: Any) -> None:
    source, kind = drawn
    kernel = generated.load(source, tmp_path)
    x, y = generated_inputs(kind)
    try:
        found = told(lambda: kernel[(3,)](x, y, torch.zeros(20, dtype=x.dtype), 19, B=8))
    except CompilationError:
        reject()
    assert found == [], source


@triton.jit
def half(x):
    if x > 1.0:
        return x / 2
    return x


@triton.jit
def larger(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)


@triton.jit
def scaled(a, b):
    return tl.log(a) + b


@triton.jit
def many(x_ptr, i_ptr, out_ptr, n, limit, B: tl.constexpr, FLAG: tl.constexpr):
    """Undefined lanes, NaNs and wrapped integers on all ways that there are."""
    pid = tl.program_id(0)
    at = tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n)
    i = tl.load(i_ptr + at, mask=at < n - 1)
    if FLAG:
        x = x - 3.0
    else:
        x = x + 1.0
    y = tl.log(x)
    if pid == 1:
        y = y * 0.0
    elif pid > 2:
        return
    for k in range(tl.load(i_ptr + pid)):
        y += tl.sqrt(x) / (k - 1)
        i = i * i + k
    while limit > 2:
        limit = limit // 2
        y = tl.where(at < limit, y, y + tl.exp(x * 100))
    best, where = tl.reduce((y, at), 0, larger)
    tl.store(out_ptr + pid, best, mask=where >= 0)
    tl.store(out_ptr + 8 + at, tl.cumsum(i, axis=0, reverse=True).to(tl.float32), mask=at < n)
    tl.store(out_ptr + 8 + at, tl.associative_scan(tl.abs(y), 0, scaled), mask=at < n)
    tl.atomic_add(out_ptr + at, tl.trans(tl.reshape(y, (2, B // 2))).reshape(B))
    tl.store(out_ptr + at, tl.gather(y, i & (B - 1), 0))
    tl.store(out_ptr + at, tl.join(y, y).to(tl.float16).sum(1).to(tl.float32))
    if tl.max(i, axis=0) > 4:
        tl.store(out_ptr, half(tl.load(x_ptr)))


@pytest.mark.parametrize("flag", [False, True])
def test_all_ways(flag: bool, told: Any) -> None:
    x, i = rand(16), torch.arange(2, 18, dtype=torch.int32)
    i[3:6] = 2**30
    assert told(lambda: many[(4,)](x, i, torch.zeros(32), 10, 17, B=16, FLAG=flag)) == []


@triton.jit
def doubled(x):
    return 1.0 / x


@triton.jit
def mapped(x_ptr, out_ptr, B: tl.constexpr):
    at = tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < 3)
    tl.store(out_ptr + at, tl.map_elementwise(doubled, x))


@triton.jit
def through_descriptors(x_ptr, out_ptr, row, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [B, B], [B, 1], [B, B])
    out = tl.make_tensor_descriptor(out_ptr, [B, B], [B, 1], [B, B])
    at = tl.arange(0, 2)
    skew = tl.sum(tl.load(row + at, mask=at < 1), axis=0)
    tile = x.load([0, skew])
    out.store([0, 0], tl.log(tile - 2.0))
    out.atomic_add([0, 0], tl.dot(tile * 1e30, tile * 1e30))


def test_functions_of_lanes_and_descriptors(told: Any) -> None:
    if hasattr(tl, "map_elementwise"):
        assert told(lambda: mapped[(1,)](rand(4), torch.zeros(4), B=4)) == []
    row = torch.zeros(2, dtype=torch.int32)
    assert told(lambda: through_descriptors[(1,)](rand(16, 16), torch.zeros(16, 16), row, B=16)) == []


class Deaf:
    """The Python engine without its instruments."""

    def run(self, run: EngineRun) -> None:
        engines.get("python").run(dataclasses.replace(run, instruments=frozenset()))


def test_an_engine_that_tells_nothing_is_seen(told: Any) -> None:
    x, i = rand(16), torch.arange(2, 18, dtype=torch.int32)
    i[3:6] = 2**30
    found = told(lambda: many[(4,)](x, i, torch.zeros(32), 10, 17, B=16, FLAG=True), Deaf())
    for kind in ("executed", "undefined", "made", "stored", "overflow", "flops"):
        assert any(f"('{kind}'" in text or f"{kind}:" in text for text in found), kind


@triton.jit
def single(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 1))
    tl.store(out_ptr + tl.arange(0, 1), x - 2.0)
    tl.store(out_ptr, (tl.load(x_ptr) * 3.0) - tl.load(x_ptr))
    tl.store(out_ptr, tl.max(x, axis=0) - tl.load(x_ptr + 1))
    tl.store(out_ptr + tl.arange(0, 4), tl.load(x_ptr) - tl.arange(0, 4).to(tl.float32))


def test_a_zero_that_is_no_constant(told: Any) -> None:
    assert told(lambda: single[(1,)](torch.zeros(2), torch.zeros(4))) == []
