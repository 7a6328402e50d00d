"""Real, offline compiles of traced kernels, and what a traced launch returns."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import types
import weakref
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
import wrapt
from triton.compiler import ASTSource, CompiledKernel

from tritontrace.kernels import binding
from tritontrace.kernels.arguments import bind
from tritontrace.kernels.binding import real_compile
from tritontrace.kernels.compiled import CompiledLaunch, compile_offline
from tritontrace.kernels.targets import Target

CUDA = Target.parse("cuda:90")
HIP = Target.parse("hip:gfx942")

SCALE = tl.constexpr(3)


@triton.jit
def _scaled(x, factor=SCALE):
    return x * factor


@triton.jit
def _deep(x):
    return traced_scaled(x) + 1


class Traced(wrapt.ObjectProxy):  # type: ignore[misc]  # wrapt is untyped
    """What a TritonTrace is to Triton: a proxy that cannot be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a traced kernel is launched with a grid")


traced_scaled = Traced(_scaled)
traced_deep = Traced(_deep)
helpers = types.ModuleType("helpers")
helpers.scaled = traced_scaled  # type: ignore[attr-defined]
helpers.deep = traced_deep  # type: ignore[attr-defined]


@triton.jit
def by_name(x_ptr):
    tl.store(x_ptr, traced_scaled(tl.load(x_ptr)))


@triton.jit
def by_module(x_ptr):
    tl.store(x_ptr, helpers.scaled(tl.load(x_ptr)))


@triton.jit
def two_deep(x_ptr):
    tl.store(x_ptr, helpers.deep(tl.load(x_ptr)))


@triton.jit
def by_default(x_ptr, function: tl.constexpr = traced_scaled):
    tl.store(x_ptr, function(tl.load(x_ptr)))


@triton.jit
def by_argument(x_ptr, function: tl.constexpr):
    tl.store(x_ptr, function(tl.load(x_ptr)))


def by_closure() -> Any:
    local = Traced(_scaled)

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, local(tl.load(x_ptr)))

    return kernel


KERNELS = {
    "by name": (by_name, {}),
    "by module": (by_module, {}),
    "two deep": (two_deep, {}),
    "by default": (by_default, {}),
    "by argument": (by_argument, {"function": traced_scaled}),
    "by closure": (by_closure(), {}),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path_factory.getbasetemp() / "triton")
        yield


def snapshot() -> list[tuple[Any, dict[str, Any]]]:
    spaces = [tl, tl.tensor, tl.core, tl.standard, tl.math, helpers, sys.modules[__name__]]
    functions = [_scaled, _deep, by_name, by_module, two_deep, by_default, by_argument, tl.sum, tl.target_info.is_cuda]
    found = [(space, dict(vars(space))) for space in [*spaces, *functions]]
    found += [(function.used_global_vals, dict(function.used_global_vals)) for function in functions]
    return found


def unchanged(before: list[tuple[Any, dict[str, Any]]]) -> bool:
    for space, old in before:
        new = space if isinstance(space, dict) else vars(space)
        if old.keys() != new.keys() or any(new[name] is not value for name, value in old.items()):
            return False
    return True


@pytest.mark.parametrize("target", [CUDA, HIP], ids=str)
@pytest.mark.parametrize("way", list(KERNELS))
def test_traced_helpers_compile_for_real(way: str, target: Target) -> None:
    kernel, kwargs = KERNELS[way]
    before = snapshot()
    own = dict(vars(kernel))
    bound = bind(kernel, (torch.ones(4),), kwargs, target)
    compiled = real_compile(kernel, bound)
    assert unchanged(before) and vars(kernel) == own and kernel.hash is None
    assert isinstance(compiled, CompiledKernel)
    assert compiled.metadata.target == target.gpu_target
    assert ("ptx" if target is CUDA else "amdgcn") in compiled.asm
    assert compiled.n_regs > 0 and compiled.n_spills == 0
    assert compiled.src.fn is kernel


FACTOR = tl.constexpr(2)


@triton.jit
def _by_factor(x):
    return x * FACTOR


@triton.jit
def reads_a_global(x_ptr):
    tl.store(x_ptr, _by_factor(tl.load(x_ptr)))


@pytest.mark.parametrize("on_disk", [False, True], ids=["compiled", "from Triton's cache"])
def test_a_compile_is_not_remembered_past_the_globals_it_was_made_with(monkeypatch: pytest.MonkeyPatch, on_disk: bool) -> None:
    def compiled() -> str:
        return str(real_compile(kernel, bind(kernel, (torch.ones(4, dtype=torch.int32),), {}, CUDA)).asm["ttir"])

    kernel = triton.jit(reads_a_global.fn)
    if on_disk:  # by another object of the same source: what is remembered goes with the object
        compiled()
        kernel = triton.jit(reads_a_global.fn)
    before = compiled()
    assert compiled() == before and "dense<2>" in before.replace("arith.constant 2 :", "dense<2>")
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(5))
    after = compiled()
    assert "arith.constant 5 :" in after and "arith.constant 2 :" not in after
    monkeypatch.undo()
    assert compiled() == before


def test_an_edited_kernel_is_compiled_again() -> None:
    kernel = triton.jit(reads_a_global.fn)
    bound = bind(kernel, (torch.ones(4),), {}, CUDA)
    assert "tt.store" in real_compile(kernel, bound).asm["ttir"]
    source = "def reads_a_global(x_ptr):\n    tl.atomic_add(x_ptr, 1)\n"
    kernel._unsafe_update_src(source)
    text = real_compile(kernel, bind(kernel, (torch.ones(4),), {}, CUDA)).asm["ttir"]
    assert "tt.atomic_rmw" in text and "tt.store" not in text


@triton.jit
def stores_constants(x_ptr, a: tl.constexpr, b: tl.constexpr, kind: tl.constexpr):
    tl.store(x_ptr, tl.full((), a, tl.float32) + b)
    tl.store(x_ptr + 1, tl.full((), 1, kind))


@pytest.mark.parametrize(
    "one, other", [((0.0, 1), (-0.0, 1)), ((1.0, 1), (1.0, 1.0)), ((1.0, True), (1.0, 1)), ((1.0, 1.0), (True, 1.0))]
)
def test_constants_that_are_equal_and_not_the_same_are_told_apart(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    x = torch.ones(4)

    def of(kernel: Any, constants: tuple[Any, Any]) -> str:
        return str(real_compile(kernel, bind(kernel, (x, *constants, tl.float32), {}, CUDA)).asm["ttir"])

    kernel = triton.jit(stores_constants.fn)
    of(kernel, one)
    assert of(kernel, other) == of(triton.jit(stores_constants.fn), other)


@triton.jit
def takes_numbers(x_ptr, n, factor, wanted: tl.constexpr):
    tl.store(x_ptr + n, factor * wanted)


def _remembered(kernel: Any) -> tuple[int, int]:
    known = binding._compiles.get(kernel)
    assert known is not None
    return len(known.by_source), len(known.by_request)


def test_what_is_remembered_does_not_grow_with_the_values_of_a_kernel() -> None:
    kernel = triton.jit(takes_numbers.fn)
    memory = torch.ones(1000)
    for n in range(2, 60):
        x = memory[n:]
        real_compile(kernel, bind(kernel, (x, n, n / 7), {"wanted": float("nan")}, CUDA))
    # 16 divides both the address and n, the address alone (where n is a multiple of 4), or neither.
    assert _remembered(kernel) == (3, 3)


def test_the_request_tells_apart_what_triton_specializes_on() -> None:
    x = torch.ones(64)
    calls: list[tuple[Any, ...]] = [
        (x, 2),
        (x[1:], 2),
        (x, 16),
        (x, 1),
        (x, 2**40),
        (x, 2**31),
        (x, -(2**31)),
        (x.half(), 2),
        (x, 2),
    ]
    for target in (CUDA, HIP):
        kernel = triton.jit(takes_numbers.fn)
        for call in calls:
            bound = bind(kernel, (*call, 0.5), {"wanted": 2.0}, target)
            fresh = triton.jit(takes_numbers.fn)
            known = real_compile(kernel, bound)
            alone = real_compile(fresh, bind(fresh, (*call, 0.5), {"wanted": 2.0}, target))
            assert known.asm["ttir"] == alone.asm["ttir"] and known.hash == alone.hash
        assert _remembered(kernel)[0] == 6  # both i64 that 16 divides are one, -2**31 is as 16, and the last is as the first
        known = real_compile(kernel, bound)
        for options in ({"num_warps": 2}, {"num_warps": 8}, {"num_warps": 2}):
            chosen = real_compile(kernel, bind(kernel, (x, 2, 0.5), {"wanted": 2.0, **options}, target))
            assert chosen.metadata.num_warps == options["num_warps"]


def test_tensors_past_two_gigabytes_have_a_compile_of_their_own_on_amd() -> None:
    kernel = triton.jit(takes_numbers.fn)
    small, large = torch.empty(4), torch.empty(2**29 + 4, device="meta")
    texts = [real_compile(kernel, bind(kernel, (t, 2, 0.5), {"wanted": 2.0}, HIP)).asm["ttir"] for t in (small, large, small)]
    assert "tt.pointer_range = 32" in texts[0] and "tt.pointer_range" not in texts[1] and texts[2] == texts[0]


def test_the_compile_is_tritons_own() -> None:
    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

    x = torch.zeros(256)
    ours = real_compile(kernel, bind(kernel, (x, x, 256), {"BLOCK": 128, "num_warps": 2}, CUDA))
    assert "tt.divisibility = 16" in ours.asm["ttir"] and ours.metadata.num_warps == 2
    unaligned = real_compile(kernel, bind(kernel, (x[1:], x[1:], 255), {"BLOCK": 128, "num_warps": 2}, CUDA))
    assert "tt.divisibility" not in unaligned.asm["ttir"]
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    attributes = {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]], (2,): [["tt.divisibility", 16]]}
    theirs = triton.compile(
        ASTSource(kernel, signature, {"BLOCK": 128}, attributes), target=CUDA.gpu_target, options={"num_warps": 2}
    )
    assert ours.asm["ptx"] == theirs.asm["ptx"]


def test_another_target_than_the_launchs() -> None:
    bound = bind(by_name, (torch.ones(4),), {}, CUDA)
    assert "amdgcn" in compile_offline(by_name, bound, HIP).asm
    assert "ptx" in compile_offline(by_name, bound).asm


def test_target_info_in_a_real_compile() -> None:
    @triton.jit
    def kernel(x_ptr):
        if tl.target_info.is_cuda():
            tl.store(x_ptr, 1001.0)
        else:
            tl.store(x_ptr, 1002.0)

    x = torch.ones(4)
    for target, there, absent in ((CUDA, "1.001000e+03", "1.002000e+03"), (HIP, "1.002000e+03", "1.001000e+03")):
        text = real_compile(kernel, bind(kernel, (x,), {}, target)).asm["ttir"]
        assert there in text and absent not in text


def test_a_compiled_kernel_is_remembered_but_each_caller_has_its_own() -> None:
    bound = bind(by_name, (torch.ones(4),), {}, CUDA)
    first, second = real_compile(by_name, bound), real_compile(traced_by_name, bound)
    assert first is not second and first.asm is second.asm
    other = real_compile(by_name, bind(by_name, (torch.ones(4, dtype=torch.float64),), {}, CUDA))
    assert other.asm is not first.asm


traced_by_name = Traced(by_name)


def test_spills_are_known_offline() -> None:
    @triton.jit
    def heavy(x_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets)
        y = tl.load(x_ptr + BLOCK + offsets)
        total = tl.sum(x * y, 0)
        tl.store(x_ptr + offsets, x * total + y * tl.max(y, 0))

    compiled = real_compile(heavy, bind(heavy, (torch.zeros(8),), {"BLOCK": 16384, "num_warps": 1, "maxnreg": 32}, CUDA))
    assert compiled.n_regs == 32 and compiled.n_spills > 0


def test_what_a_launch_returns_compiles_when_asked_and_launches_when_given_a_grid() -> None:
    x = torch.ones(4)
    bound = bind(by_name, (x,), {"num_warps": 2}, CUDA)
    launches: list[Any] = []
    returned = CompiledLaunch(bound, lambda grid: lambda *args: launches.append((grid, args)))
    assert isinstance(returned, CompiledKernel)
    assert returned._compiled is None
    returned[(2, 1, 1)](x)
    assert launches == [((2, 1, 1), (x,))] and returned._compiled is None
    assert returned.n_regs > 0 and returned.n_spills == 0
    assert returned.metadata.num_warps == 2 and returned.metadata.name == "by_name"
    assert "ptx" in returned.asm and returned.src.fn is by_name and returned.kernel == returned.asm["cubin"]
    assert not hasattr(returned, "nothing_like_that") and "by_name" in repr(returned)


def test_what_a_launch_returns_keeps_no_tensor() -> None:
    x, y = torch.ones(4), torch.ones(4)

    @triton.jit
    def kernel(x_ptr, more, name: tl.constexpr):
        tl.store(x_ptr, tl.load(more[0]) + more[1])

    returned = CompiledLaunch(bind(kernel, (x, (y, 2.0), "text"), {}, HIP), lambda grid: lambda *args: None)
    alive = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert "tt.pointer_range = 32" in returned.asm["ttir"]


def test_compile_errors_are_tritons() -> None:
    @triton.jit
    def small_dot(x_ptr):
        offsets = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
        x = tl.load(x_ptr + offsets)
        tl.store(x_ptr + offsets, tl.dot(x, x))

    with pytest.raises(triton.CompilationError):
        real_compile(small_dot, bind(small_dot, (torch.zeros(16),), {}, CUDA))


def test_threads_compile_beside_each_other() -> None:
    results: list[Any] = []
    start = threading.Barrier(4)

    def work(target: Target) -> None:
        start.wait()
        try:
            for kernel in (by_name, two_deep):
                compiled = real_compile(kernel, bind(kernel, (torch.ones(4),), {}, target))
                results.append((kernel, str(target), compiled.asm["ttir"]))
        except BaseException as error:
            results.append(error)

    before = snapshot()
    threads = [threading.Thread(target=work, args=(target,)) for target in (CUDA, HIP, CUDA, HIP)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert unchanged(before)
    assert len({result[:2]: result for result in results}) == 4 and len(set(results)) == 4


def test_kernels_decorated_under_triton_interpret_compile(tmp_path: Any) -> None:
    script = tmp_path / "kernels.py"
    script.write_text(
        "import torch, triton, triton.language as tl\n"
        "from tritontrace.kernels.arguments import bind\n"
        "from tritontrace.kernels.binding import real_compile\n"
        "from tritontrace.kernels.targets import Target\n"
        "@triton.jit\n"
        "def kernel(x_ptr, BLOCK: tl.constexpr):\n"
        "    x = tl.load(x_ptr + tl.arange(0, BLOCK))\n"
        "    tl.store(x_ptr, tl.sum(x, 0) + x.max())\n"
        "bound = bind(kernel, (torch.zeros(64),), {'BLOCK': 64}, Target.parse('cuda:90'))\n"
        "print(type(kernel).__name__, real_compile(kernel, bound).n_regs > 0)\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["InterpretedFunction", "True"], done.stderr
