"""Known faults 12, 50, 52 and 53: globals of a kernel, aliases, and masked loads without `other`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import tritontrace
from tests.refusals import refusal

cast = tl.cast
to_float = tl.float32
load = tl.load
extra = tl.extra
SCALE = tl.constexpr(3)
PLAIN = 3
ANNOTATED: tl.constexpr = tl.constexpr(4)
TUPLE = tl.constexpr((1, 2, 3))
NAMES = ("a", "b")


class Settings:
    size = 5
    marked = tl.constexpr(6)


# -- fault 52 -----------------------------------------------------------------------------------------------------------


@triton.jit
def reads_plain(out_ptr):
    tl.store(out_ptr, PLAIN)


@triton.jit
def helper_reads_plain(x):
    return x * PLAIN


@triton.jit
def reads_plain_through_a_helper(out_ptr):
    tl.store(out_ptr, helper_reads_plain(2))


@triton.jit
def reads_a_tuple(out_ptr):
    tl.store(out_ptr, len(NAMES))


@triton.jit
def reads_nothing(out_ptr):
    tl.store(out_ptr, NOWHERE)  # noqa: F821


@pytest.mark.parametrize("kernel", [reads_plain, reads_plain_through_a_helper, reads_a_tuple], ids=lambda k: k.__name__)
def test_fault_52_a_global_that_is_no_constant_is_refused_with_the_compilers_message(kernel: Any, refused: Any) -> None:
    out = torch.full((1,), 5.0)
    with pytest.raises(refusal()) as caught:
        kernel[(1,)](out)
    texts, error = [], caught.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert any("Cannot access global variable" in text and "constexpr" in text for text in texts), texts
    assert out.item() == 5.0


def test_fault_52_a_name_that_is_nowhere(refused: Any) -> None:
    with pytest.raises(refusal(), match=r"NOWHERE'? is not defined"):
        reads_nothing[(1,)](torch.zeros(1))


def test_fault_52_a_closure_over_a_number_is_refused_too(refused: Any) -> None:
    captured = 7

    @triton.jit
    def reads_closure(out_ptr):
        tl.store(out_ptr, captured)

    out = torch.full((1,), 5.0)
    with pytest.raises(refusal(), match="captured"):
        reads_closure[(1,)](out)
    assert out.item() == 5.0


@triton.jit
def reads_constants(out_ptr):
    tl.store(out_ptr + 0, SCALE)
    tl.store(out_ptr + 1, ANNOTATED)
    tl.store(out_ptr + 2, TUPLE[2])
    tl.store(out_ptr + 3, tl.full([], SCALE.value + 1, to_float).to(tl.int32))


def test_constant_globals_are_read(traced: Any) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    reads_constants[(1,)](out)
    assert out.tolist() == [3, 4, 3, 4]


# -- fault 12 -------------------------------------------------------------------------------------------------------------


def fresh(value: Any) -> tuple[Any, dict[str, Any]]:
    """A kernel in a module of its own that reads the global CONSTANT, and that module's names."""
    import linecache

    source = "@triton.jit\ndef reads(out_ptr):\n    tl.store(out_ptr, CONSTANT)\n"
    name = f"<fresh {id(object())} {value}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"triton": triton, "tl": tl, "CONSTANT": tl.constexpr(value), "__name__": "fresh"}
    exec(compile(source, name, "exec"), names)
    return names["reads"], names


def test_fault_12_a_constant_that_changes_between_launches_is_refused(traced: Any) -> None:
    reads, names = fresh(3)
    out = torch.zeros(1, dtype=torch.int32)
    reads[(1,)](out)
    assert out.item() == 3
    names["CONSTANT"] = tl.constexpr(4)
    with pytest.raises(
        RuntimeError, match=r"Global variable CONSTANT has changed since we compiled this kernel, from .*3.* to .*4"
    ):
        reads[(1,)](out)
    assert out.item() == 3
    names["CONSTANT"] = tl.constexpr(3)  # an equal one is no change
    reads[(1,)](out)
    assert out.item() == 3


def test_fault_12_what_changes_before_the_first_launch_counts(traced: Any) -> None:
    reads, names = fresh(3)
    names["CONSTANT"] = tl.constexpr(9)
    out = torch.zeros(1, dtype=torch.int32)
    reads[(1,)](out)
    assert out.item() == 9
    del names["CONSTANT"]
    with pytest.raises(RuntimeError, match="CONSTANT has changed"):
        reads[(1,)](out)


# -- fault 50 -------------------------------------------------------------------------------------------------------------


@triton.jit
def through_aliases(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = load(x_ptr + offsets)
    tl.store(out_ptr + offsets, cast(x, tl.int32) + cast(x, to_float).to(tl.int32))


@triton.jit
def through_extra(x_ptr, out_ptr):
    x = tl.load(x_ptr)
    tl.store(out_ptr + 0, tl.extra.cuda.libdevice.tanh(x))
    tl.store(out_ptr + 1, extra.cuda.libdevice.pow(x, 2.0))
    tl.store(out_ptr + 2, libdevice.asin(x))
    tl.store(out_ptr + 3, tl.extra.cuda.num_threads())
    tl.store(out_ptr + 4, extra.cuda.num_warps())


def test_fault_50_aliases_at_module_level(traced: Any) -> None:
    x, out = torch.tensor([0.5, 1.7, -2.9, 4.0]), torch.zeros(4, dtype=torch.int32)
    through_aliases[(1,)](x, out, N=4)
    assert out.tolist() == [0, 2, -4, 8]


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_fault_50_extra(warps: int, traced: Any) -> None:
    x, out = torch.tensor([0.5]), torch.zeros(5)
    through_extra[(1,)](x, out, num_warps=warps)
    torch.testing.assert_close(out[:3], torch.stack([x.tanh(), x**2, x.asin()]).flatten())
    assert out[3:].tolist() == [32.0 * warps, float(warps)]


# -- fault 53 -------------------------------------------------------------------------------------------------------------


@triton.jit
def masked(x_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x, mask=offsets < n)


@triton.jit
def uses_undefined_lanes(x_ptr, out_ptr, n, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N), mask=tl.arange(0, N) < n)
    tl.store(out_ptr, tl.max(x, 0))


def test_fault_53_masked_lanes_that_nothing_uses_are_no_fault(traced: Any) -> None:
    x, out = -1 - torch.rand(20), torch.zeros(20)
    masked[(1,)](x, out, 20, N=32)
    assert torch.equal(out, x)


def test_fault_53_a_client_sees_that_masked_lanes_have_no_value() -> None:
    seen = []

    class Watching(tritontrace.Client):
        name = "watching"

        def register_op_callback(self, op: Any) -> Any:
            if op is tritontrace.events.Load:
                return tritontrace.OpCallbacks(after=lambda event: seen.append((event.other, event.active().tolist())))
            return None

    x, out = -1 - torch.rand(4), torch.zeros(1)
    with tritontrace.session(clients=[Watching]):
        uses_undefined_lanes[(1,)](x, out, 4, N=8)
    assert seen == [(None, [[True] * 4 + [False] * 4])]
    assert out.item() == 0.0  # whatever a lane without a value is, it is the same every time


def test_fault_53_undefined_lanes_that_reach_a_store_are_a_finding() -> None:
    with tritontrace.session(clients=["sanitizer"]) as session:
        uses_undefined_lanes[(1,)](-1 - torch.rand(20), torch.zeros(1), 20, N=32)
    (finding,) = session.findings
    assert finding.kind == "undefined_lane" and finding.tensor == "x_ptr" and finding.lanes.tolist() == list(range(20, 32))
